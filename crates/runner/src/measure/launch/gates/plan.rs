// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What gates are measured: from a list or host settings to the discipline and the times of each
//! class.

use std::fmt::Write;

use timewire_base::{GateMask, IfName, Instant, SocketPriority, Span, TrafficClass, parse_span};
use timewire_capture::gate::GateTimes;
use timewire_model::scenario::host::{DesiredInterface, HostSettings};
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{Qdisc, QueueRange, Taprio, TaprioMode};

use super::result::{Entry, Schedule};
use crate::RunnerError;

/// What is asked for of the gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatesSpec {
    /// Entries of a cycle that starts with TAI; a class has a queue, and the socket priority of its
    /// number.
    List(Vec<(GateMask, Span)>),
    /// The one interface with gates of host settings.
    File {
        /// For messages.
        name: String,
        /// What the file says.
        file: Box<HostSettings>,
    },
}

/// Reads entries as `tc` writes them, with a unit: `S 1 300us, S 2 300us`. The number is that of
/// the open classes, a bit each, hexadecimal.
///
/// **Errors**: what is none, in words.
pub fn parse_list(text: &str) -> Result<Vec<(GateMask, Span)>, String> {
    let entry = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["S", mask, interval] = words[..] else {
            return Err(format!("`{}` is no entry such as `S 1 300us`", text.trim()));
        };
        let digits = mask.trim_start_matches("0x");
        let bits = u32::from_str_radix(digits, 16).ok().filter(|bits| *bits < 1 << MAX_CLASSES);
        let bits = bits.ok_or_else(|| {
            format!("`{mask}` is no set of classes 0 to 15, a bit each, hexadecimal: 0 to ffff")
        })?;
        let interval = parse_span(interval).map_err(|error| error.to_string())?;
        Ok((GateMask::new(bits), interval))
    };
    text.split(',').map(entry).collect()
}

/// Linux keeps as many.
const MAX_CLASSES: u32 = 16;

/// What is measured.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) tree: QdiscTree,
    pub(super) schedule: Schedule,
    pub(super) base: Instant<timewire_base::Tai>,
    pub(super) cycle: Span,
    pub(super) classes: Vec<PlannedClass>,
    /// Queues that the interface must have.
    pub(super) queues: u32,
    /// What the discipline adds to the length of a frame. **Units**: bytes.
    pub(super) overhead: u32,
    pub(super) is_offloaded: bool,
    pub(super) notes: Vec<String>,
}

/// A class whose gate is open at some time.
#[derive(Clone, Debug)]
pub(super) struct PlannedClass {
    pub(super) class: TrafficClass,
    pub(super) priority: SocketPriority,
    pub(super) times: GateTimes,
}

/// Plans for this interface.
///
/// **Errors**: a request that no interface could have, or without anything to measure.
pub(super) fn plan(spec: &GatesSpec, interface: &IfName) -> Result<Plan, RunnerError> {
    let invalid = RunnerError::Invalid;
    let (name, file) = match spec {
        GatesSpec::List(entries) => ("--gates".to_owned(), of_list(entries)?),
        GatesSpec::File { name, file } => (name.clone(), (**file).clone()),
    };
    let has_gates = |spec: &&DesiredInterface| {
        spec.transmit.as_ref().is_some_and(|transmit| transmit.gates.is_some())
    };
    let mut gated = file.host.interfaces.iter().filter(has_gates);
    let (Some(wanted), None) = (gated.next(), gated.next()) else {
        return Err(invalid(format!("{name} must have one interface with gates")));
    };
    let transmit = wanted.transmit.as_ref().expect("invariant: it has gates");
    let tree = QdiscTree::of_desired(interface, transmit).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        invalid(format!("{name}: {}", errors.join("; ")))
    })?;
    let Qdisc::Taprio(taprio) = tree.root().qdisc() else {
        return Err(invalid(format!("{name} has no gates")));
    };
    let base = Instant::from_ns(taprio.options().base_time.as_ns());
    let mut notes = Vec::new();
    let classes =
        classes(taprio, base, &mut notes).map_err(|why| invalid(format!("{name}: {why}")))?;
    let queues = taprio.options().classes.iter().flat_map(|one| one.queues()).copied();
    Ok(Plan {
        schedule: schedule(taprio),
        base,
        cycle: taprio.cycle(),
        classes,
        queues: queues.map(QueueRange::end).max().unwrap_or(1),
        overhead: tree.root().size_table().map_or(0, |table| table.overhead()),
        is_offloaded: taprio.options().mode != TaprioMode::Software,
        tree,
        notes,
    })
}

fn of_list(entries: &[(GateMask, Span)]) -> Result<HostSettings, RunnerError> {
    let all = entries.iter().fold(0, |all, (mask, _)| all | mask.bits());
    let count = u32::BITS - all.leading_zeros();
    let mut classes = String::from("{ queues: 1@0 }");
    for class in 1..count {
        let _ = write!(classes, ", {{ priorities: [{class}], queues: 1@{class} }}");
    }
    let entry = |(mask, interval): &(GateMask, Span)| {
        let open = (0..count).filter(|class| mask.bits() & 1 << class != 0);
        let open = open.map(|class| class.to_string()).collect::<Vec<_>>().join(", ");
        format!("{{ open: [{open}], interval: {}ns }}", interval.as_ns())
    };
    let list = entries.iter().map(entry).collect::<Vec<_>>().join(", ");
    let text = format!(
        "timewire: 1\nkind: network\nname: measure-gates\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      - name: eth0\n        \
         transmit: {{ classes: [{classes}], gates: {{ entries: [{list}] }} }}\n"
    );
    HostSettings::parse("--gates", &text).map_err(|errors| RunnerError::Invalid(errors.to_string()))
}

fn schedule(taprio: &Taprio) -> Schedule {
    let entries = taprio.options().entries.iter().map(|entry| Entry {
        gate_states: entry.gate_states.bits(),
        interval_ns: entry.interval.as_ns(),
    });
    Schedule {
        mode: match taprio.options().mode {
            TaprioMode::Software => "software",
            TaprioMode::TxtimeAssist => "txtime-assist",
            TaprioMode::FullOffload => "full-offload",
        }
        .to_owned(),
        base_time_ns: taprio.options().base_time.as_ns(),
        cycle_ns: taprio.cycle().as_ns(),
        entries: entries.collect(),
        applied_before: false,
    }
}

fn classes(
    taprio: &Taprio,
    base: Instant<timewire_base::Tai>,
    notes: &mut Vec<String>,
) -> Result<Vec<PlannedClass>, String> {
    let map = taprio.options().classes.as_ref().ok_or("the gates are of no classes")?;
    let mut planned = Vec::new();
    for number in 0..map.count() {
        let class = TrafficClass::new(number.into()).map_err(|error| error.to_string())?;
        let entries: Vec<(bool, Span)> = taprio
            .options()
            .entries
            .iter()
            .map(|entry| (entry.gate_states.is_open(class), entry.interval))
            .collect();
        let times = GateTimes::of(base, &entries).map_err(|error| error.to_string())?;
        let priorities = (0..=15).filter_map(|number| SocketPriority::new(number).ok());
        let priority = { priorities }.find(|priority| map.class_of(*priority) == class);
        match (times, priority) {
            (Some(times), Some(priority)) => planned.push(PlannedClass { class, priority, times }),
            (None, _) => notes.push(format!(
                "class {class} is not measured: its gate is never open, and its frames would wait \
                 for ever"
            )),
            (_, None) => {
                notes.push(format!("class {class} is not measured: no socket priority is of it"));
            }
        }
    }
    if planned.is_empty() { Err("no gate is ever open".to_owned()) } else { Ok(planned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_list_is_that_of_tc_with_units() {
        let list = parse_list("S 1 300us, S 2 300us,S 0x0c 400us").unwrap();
        let eth0 = IfName::new("eth0").unwrap();
        let plan = plan(&GatesSpec::List(list), &eth0).unwrap();
        let told = plan.tree.commands(timewire_tsn::qdisc::InstallVerb::Add)[0].to_string();
        let entries = "sched-entry S 01 300000 sched-entry S 02 300000 sched-entry S 0c 400000";
        assert!(told.contains(entries) && told.contains("num_tc 4"), "{told}");
        assert_eq!((plan.queues, plan.cycle), (4, Span::from_ms(1)));
        let of: Vec<_> = plan.classes.iter().map(|one| one.priority.get()).collect();
        assert_eq!(of, [0, 1, 2, 3]);
    }

    #[test]
    fn t0_what_cannot_be_measured_is_named() {
        for (text, why) in [
            ("S 1", "`S 1` is no entry"),
            ("S 10000 1us", "hexadecimal: 0 to ffff"),
            ("S 1 300", "no unit"),
            ("H 1 300us", "is no entry such as"),
        ] {
            let told = parse_list(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        let eth0 = IfName::new("eth0").unwrap();
        let planned = |text| plan(&GatesSpec::List(parse_list(text).unwrap()), &eth0);
        let never = planned("S 5 10us, S 4 10us").unwrap();
        assert_eq!(never.classes.len(), 2);
        assert!(never.notes[0].contains("class 1 is not measured"), "{:?}", never.notes);
        assert!(planned("S 1 0us").is_err() && planned("S 0 10us").is_err());
    }
}

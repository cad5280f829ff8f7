// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether all that is written of one plan says the same: each file is read back, and for each port
//! and instant of its cycle the priorities whose gate is open are compared; of a device whose
//! driver takes a mask for its queues, the masks as well.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{IfName, SocketPriority, Span};
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::{NetGates, NetworkFile};
use timewire_tsn::desired::QdiscTree;
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{Qdisc, QdiscCommand, Taprio};

use super::planned::{by_class, queues};
use super::render::{Node, RenderError, Rendered};
use super::{FileProblem, ends};
use crate::exchange::read_gates;
use crate::model::{LinkId, Plan};

/// The gates of one port as one file has them.
struct Gates {
    file: String,
    base: Span,
    cycle: Span,
    /// By entry: the queues that are open, and how long.
    entries: Vec<(u8, Span)>,
    /// By priority: its queue.
    queues: [u8; 8],
    /// How many queues are told.
    count: u64,
}

/// **Errors**: two files that differ, or one that cannot be read back.
pub fn check_rendered(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
    files: &[Rendered],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), RenderError> {
    let simulated = by_class(file, given, plan).ok();
    for node in Node::all(file, given, plan) {
        if !go_on() {
            return Err(RenderError::Ended);
        }
        let mut told: BTreeMap<String, Vec<Gates>> = BTreeMap::new();
        for rendered in files {
            let failed = |what: String| RenderError::Disagree {
                one: rendered.name.clone(),
                other: "its own reader".to_owned(),
                port: node.name.to_string(),
                what,
            };
            let end = rendered.name.strip_prefix(node.name.as_str());
            let gates = match end {
                Some(".host.yaml") => of_host(rendered, files),
                Some(".yang.json") => of_yang(rendered),
                _ => continue,
            };
            for (interface, gates) in gates.map_err(failed)? {
                told.entry(interface).or_default().extend(gates);
            }
        }
        let lines = format!("{}.tc", node.name);
        let is_for_tc = files.iter().any(|file| file.name == lines);
        for (number, link, far) in node.ports() {
            let all = told.remove(&format!("eth{number}")).unwrap_or_default();
            let port = format!("port eth{number} of {} to {far}", node.name);
            let has_gates = plan.gates.iter().any(|gates| gates.link == link);
            let in_files = 1 + usize::from(is_for_tc) + usize::from(node.is_bridge());
            if all.len() != if has_gates { in_files } else { 0 } {
                let names: Vec<&str> = all.iter().map(|gates| gates.file.as_str()).collect();
                return Err(RenderError::Disagree {
                    one: "the plan".to_owned(),
                    other: names.join(", "),
                    port,
                    what: format!("{} files have gates there", all.len()),
                });
            }
            let pairs = all.iter().skip(1).map(|other| (&all[0], other));
            for (one, other) in pairs {
                one.same(other, &port, !0)?;
                if node.has_a_class_for_each_queue() {
                    one.same_queues(other, &port)?;
                }
            }
            let is_held = node.device.launch_time.is_some();
            let network = simulated.as_ref().filter(|_| !is_held);
            let in_file = network.and_then(|network| of_network(network, file, link));
            if let (Some(first), Some(simulated)) = (all.first(), in_file) {
                first.same(&simulated, &port, compared(given, plan, link))?;
            }
        }
    }
    Ok(())
}

/// The priorities of the streams that are planned on a link, and those that no planned stream has:
/// of the rest no frame comes there.
fn compared(given: &FileProblem, plan: &Plan, link: LinkId) -> u8 {
    let bit = |priority: u64| 1_u8 << priority.min(7);
    let streams = given.problem.streams().iter();
    let planned = streams.fold(0, |mask, stream| mask | bit(stream.priority.into()));
    let here = queues(plan, given, link).into_values().flatten();
    here.fold(!planned, |mask, priority| mask | bit(priority))
}

/// What host settings and their `tc` lines say of each interface.
fn of_host(host: &Rendered, files: &[Rendered]) -> Result<Vec<(String, Vec<Gates>)>, String> {
    let parsed = HostSettings::parse(&host.name, &host.text).map_err(|error| error.to_string())?;
    let name = host.name.replace(".host.yaml", ".tc");
    let lines = files.iter().find(|file| file.name == name);
    let mut commands = match lines {
        Some(file) => Some(commands(&file.text, &name)?),
        None => None,
    };
    let mut is_for_tc = true;
    let mut all = Vec::new();
    for interface in &parsed.host.interfaces {
        let Some(spec) = &interface.transmit else { continue };
        let tree = QdiscTree::of_desired(&interface.name, spec).map_err(|errors| {
            let each: Vec<String> = errors.iter().map(ToString::to_string).collect();
            each.join("; ")
        })?;
        let mut gates = Vec::new();
        for node in tree.nodes() {
            let key = (interface.name.clone(), node.place().to_string());
            let place = node.place();
            if let Qdisc::Taprio(one) = node.qdisc() {
                is_for_tc &= one.check_tc_message().is_ok();
            }
            let Some(commands) = &mut commands else {
                if let Qdisc::Taprio(one) = node.qdisc() {
                    gates.push(of_taprio(&host.name, one)?);
                }
                continue;
            };
            let Some(line) = commands.remove(&key) else {
                return Err(format!("{name} has nothing at {} {place}", interface.name));
            };
            if let (Qdisc::Taprio(one), Qdisc::Taprio(other)) = (node.qdisc(), &line) {
                gates.push(of_taprio(&host.name, one)?);
                gates.push(of_taprio(&name, other)?);
            } else if *node.qdisc() != line {
                return Err(format!("{name} differs at {} {place}", interface.name));
            }
        }
        all.push((interface.name.to_string(), gates));
    }
    if commands.is_none() && is_for_tc {
        return Err(format!("there is no {name}, and tc has room for all of it"));
    }
    match commands.unwrap_or_default().keys().next() {
        None => Ok(all),
        Some((device, place)) => Err(format!("{name} has more, at {device} {place}")),
    }
}

/// By interface and place the discipline that is there after all lines.
fn commands(text: &str, name: &str) -> Result<BTreeMap<(IfName, String), Qdisc>, String> {
    let mut all = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let command: QdiscCommand =
            line.parse().map_err(|error| format!("{name}:{}: {error}", index + 1))?;
        if let (Some(place), Some(qdisc)) = (command.place(), command.qdisc()) {
            let key = (command.device().clone(), place.to_string());
            if all.insert(key, qdisc.clone()).is_some_and(|before| before != *qdisc) {
                return Err(format!("{name}:{} replaces another line", index + 1));
            }
        }
    }
    Ok(all)
}

fn of_taprio(file: &str, taprio: &Taprio) -> Result<Gates, String> {
    let options = taprio.options();
    let classes = options.classes.as_ref().ok_or("a taprio has no classes")?;
    let mut queues = [0; 8];
    for (priority, queue) in (0_u64..).zip(&mut queues) {
        let class = SocketPriority::new(priority).map(|priority| classes.class_of(priority));
        *queue = class.map_or(0, |class| class.get());
    }
    let entry = |entry: &timewire_tsn::qdisc::GateControlEntry| {
        let mask = u8::try_from(entry.gate_states.bits());
        mask.map(|mask| (mask, entry.interval)).map_err(|_| "a mask has more than 8 bits")
    };
    Ok(Gates {
        file: file.to_owned(),
        base: options.base_time,
        cycle: taprio.cycle(),
        entries: options.entries.iter().map(entry).collect::<Result<_, _>>()?,
        queues,
        count: classes.count().into(),
    })
}

fn of_yang(yang: &Rendered) -> Result<Vec<(String, Vec<Gates>)>, String> {
    let read = read_gates(&yang.name, yang.text.as_bytes()).map_err(|error| error.to_string())?;
    if let Some(first) = read.unread.first() {
        return Err(format!("{} is not read", first.path));
    }
    if let Some(why) = read.open.into_iter().next() {
        return Err(why);
    }
    let each = read.interfaces.into_iter().map(|gates| {
        let queues = gates.classes.map(|class| class.unwrap_or(0));
        let count = u64::from(queues.iter().copied().max().unwrap_or(0)) + 1;
        let open = gates.entries.iter().fold(0, |mask, (open, _)| mask | open);
        let own = Gates {
            file: yang.name.clone(),
            base: gates.base,
            cycle: gates.cycle,
            entries: gates.entries,
            queues,
            count: count.max(u64::from(8 - open.leading_zeros())),
        };
        (gates.interface, vec![own])
    });
    Ok(each.collect())
}

/// The port of the network with the plan in it that sends on a link of the file.
fn of_network(network: &NetworkFile, file: &NetworkFile, link: LinkId) -> Option<Gates> {
    let (own, far, _) = ends(file, link);
    let mut ports = network.ports.iter().filter(|port| port.of == [own.clone()]);
    let gates: &NetGates =
        ports.find(|port| port.to.as_ref() == Some(far) && port.gates.is_some())?.gates.as_ref()?;
    let open = |entry: &timewire_model::scenario::network::NetGateEntry| {
        let mask = entry.open.iter().fold(0_u8, |mask, class| mask | 1 << class.get().min(7));
        (mask, entry.interval)
    };
    let entries: Vec<_> = gates.entries.iter().map(open).collect();
    let total = entries.iter().fold(Span::ZERO, |sum, (_, lasts)| sum + *lasts);
    Some(Gates {
        file: "planned.network.json".to_owned(),
        base: gates.base_time,
        cycle: gates.cycle_time.unwrap_or(total),
        entries,
        queues: [0, 1, 2, 3, 4, 5, 6, 7],
        count: 8,
    })
}

impl Gates {
    /// When each entry begins, in a cycle that begins with time, and its place in the list.
    fn starts(&self) -> BTreeMap<i64, usize> {
        let cycle = self.cycle.as_ns().max(1);
        let mut at = self.base.as_ns().rem_euclid(cycle);
        let (end, mut starts) = (at + cycle, BTreeMap::new());
        for (index, (_, lasts)) in self.entries.iter().enumerate() {
            if at < end {
                starts.insert(at.rem_euclid(cycle), index);
            }
            at = at.saturating_add(lasts.as_ns());
        }
        starts
    }

    /// The entry at an instant of the cycle: the last that began, maybe in the cycle before.
    fn entry(starts: &BTreeMap<i64, usize>, at: i64) -> usize {
        let before = starts.range(..=at).next_back().or_else(|| starts.iter().next_back());
        before.map_or(0, |(_, index)| *index)
    }

    /// The priorities whose gate is open in an entry.
    fn priorities(&self, entry: usize) -> u8 {
        let open = self.entries.get(entry).map_or(0, |(open, _)| *open);
        let is_open = |priority: &usize| open & (1_u8 << self.queues[*priority].min(7)) != 0;
        (0..8).filter(is_open).fold(0, |mask, priority| mask | 1 << priority)
    }

    fn differs(&self, other: &Gates, port: &str, what: String) -> RenderError {
        let (one, other) = (self.file.clone(), other.file.clone());
        RenderError::Disagree { one, other, port: port.to_owned(), what }
    }

    /// At every instant, masks by entry.
    fn compare(
        &self,
        other: &Gates,
        port: &str,
        what: &str,
        mask: impl Fn(&Gates, usize) -> u8,
    ) -> Result<(), RenderError> {
        if self.cycle != other.cycle {
            let (one, other_cycle) = (self.cycle, other.cycle);
            let what = format!("a cycle of {one} and one of {other_cycle}");
            return Err(self.differs(other, port, what));
        }
        let (own, others) = (self.starts(), other.starts());
        let instants: BTreeSet<i64> = own.keys().chain(others.keys()).copied().collect();
        for at in instants {
            let (entry, entry_there) = (Gates::entry(&own, at), Gates::entry(&others, at));
            let (here, there) = (mask(self, entry), mask(other, entry_there));
            if here != there {
                let at = Span::from_ns(at);
                return Err(self.differs(
                    other,
                    port,
                    format!(
                        "at {at} of the cycle entry {entry} opens the {what} of mask \
                         {here:#04x}, and entry {entry_there} those of {there:#04x}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// **Errors**: some of these priorities go at another time.
    fn same(&self, other: &Gates, port: &str, of: u8) -> Result<(), RenderError> {
        self.compare(other, port, "priorities", |gates, entry| gates.priorities(entry) & of)
    }

    /// **Errors**: some queue of the device opens at another time, or they count them otherwise.
    fn same_queues(&self, other: &Gates, port: &str) -> Result<(), RenderError> {
        if self.count != other.count {
            let what = format!("{} queues and {}", self.count, other.count);
            return Err(self.differs(other, port, what));
        }
        if let Some(priority) = (0..8).find(|it| self.queues[*it] != other.queues[*it]) {
            let (one, there) = (self.queues[priority], other.queues[priority]);
            let what = format!("priority {priority} is in queue {one} and in {there}");
            return Err(self.differs(other, port, what));
        }
        self.compare(other, port, "queues", |gates, entry| {
            gates.entries.get(entry).map_or(0, |(open, _)| *open)
        })
    }
}

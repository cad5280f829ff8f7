// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedule carried out by the kernel: on each station's interface the queueing discipline
//! taprio with the station's gates.
//!
//! A virtual interface states 10 Gbit/s, and taprio would hand over at once whatever waits when the
//! gates open. The segment's rate is kept below it for best effort, by a tbf of one frame: what a
//! card of that rate would take. Real-time frames are few, and pass it.
//!
//! Not here: which gates (`timewire_sched::qdisc`), who sends.

use std::fs;
use std::io;
use std::sync::Arc;

use timewire_host::HostError;
use timewire_host::group::Group;
use timewire_lab::{Lab, LabError};
use timewire_sched::qdisc::taprio_of_station;
use timewire_sched::scenario::{Scenario, Station};
use timewire_sys::scheduler::RtPriority;
use timewire_trace::summary::{Fact, FactLevel};

use crate::CtlError;
use crate::station::GROUP_PRIORITY;

/// Gives every station its gates; a station without a slot gets none, and must not send.
pub(super) fn install(scenario: &Scenario, lab: &Lab) -> Result<(), CtlError> {
    for station in with_slots(scenario) {
        lab.add_qdiscs(&station.name, &lines(scenario, station)?)?;
    }
    Ok(())
}

/// Takes the gates away.
pub(super) fn remove(scenario: &Scenario, lab: &Lab) -> Result<(), CtlError> {
    for station in with_slots(scenario) {
        lab.remove_qdiscs(&station.name)?;
    }
    Ok(())
}

/// Tries whether this kernel has what is needed, before anything is measured.
///
/// **Errors**: it has not; the way out is named.
pub(super) fn probe(scenario: &Scenario, lab: &Lab) -> Result<(), CtlError> {
    let Some(station) = with_slots(scenario).next() else { return Ok(()) };
    match lab.add_qdiscs(&station.name, &lines(scenario, station)?) {
        Ok(()) => Ok(lab.remove_qdiscs(&station.name)?),
        Err(LabError::Host(error @ HostError::ToolFailed { .. })) => {
            Err(CtlError::Lab(LabError::Unsupported {
                missing: "the queueing discipline taprio, which a case of the scenario uses",
                remedy: "run in a kernel that has it: --lab uml",
                source: io::Error::other(error),
            }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Where the programs of real-time streams go: there is no MAC that has a group for them.
pub(super) fn priority_group(lab: &Lab) -> Group {
    let priority = RtPriority::new(GROUP_PRIORITY)
        .expect("invariant: the priority lies in the kernel's range");
    Group::new(Arc::clone(lab.journal()), priority)
}

/// What the stations use.
pub(super) fn facts(scenario: &Scenario) -> Vec<Fact> {
    let fact = |name: &str, value: &str, level| Fact {
        area: format!("gates of {}", scenario.name),
        name: name.to_owned(),
        value: value.to_owned(),
        level,
    };
    let carrier = "taprio in software, by socket priority; tbf for best effort";
    let mut facts = vec![fact("transmit", carrier, FactLevel::Ok)];
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if serves_best_effort_first(&release) {
        let what = "while the gates are open, best effort goes first: taprio before Linux 6.3 \
                    serves queues in ascending order";
        facts.push(fact("priorities", what, FactLevel::Degraded));
    }
    facts
}

/// Whether taprio of this kernel takes the lowest queue first
/// (linux v6.2 `net/sched/sch_taprio.c:taprio_dequeue_soft`, changed in v6.3).
fn serves_best_effort_first(release: &str) -> bool {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (6, 3),
        _ => false,
    }
}

fn with_slots(scenario: &Scenario) -> impl Iterator<Item = &Station> {
    let has_slot = |station: &&Station| {
        scenario.schedule.slots().iter().any(|slot| slot.station == station.name)
    };
    scenario.stations.iter().filter(has_slot)
}

/// What `tc qdisc add dev INTERFACE` is given.
fn lines(scenario: &Scenario, station: &Station) -> Result<Vec<String>, CtlError> {
    let port = scenario.virtual_port();
    let gates = taprio_of_station(&scenario.schedule, &station.name, &port)
        .map_err(|error| CtlError::Invalid(error.to_string()))?;
    let rate = scenario.segment.rate.get();
    let burst = port.largest.wire_len().get();
    let queued = scenario.mac.queue_frames.get() * u64::from(port.largest.get());
    Ok(vec![
        format!("root handle 100: {gates}"),
        // The best-effort class has the first queue.
        format!("parent 100:1 tbf rate {rate}bit burst {burst} limit {queued} overhead 24 mpu 84"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_kernels_that_serve_best_effort_first_are_known() {
        for (release, old) in [
            ("6.1.192", true),
            ("5.10.0-28-amd64", true),
            ("6.3.0-rc1", false),
            ("6.12.117", false),
        ] {
            assert_eq!(serves_best_effort_first(release), old, "{release}");
        }
        assert!(!serves_best_effort_first("unknown"));
    }
}

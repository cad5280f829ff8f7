// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host does now, at one look: clocks, the MACs with their slots, interfaces with gates,
//! queues and drops, programs that send and receive streams, groups, real-time threads. Nothing is
//! changed, and what cannot be read is said and left out.
//!
//! Not here: the text (`view`), asking again and again (`timewire-cli`).

mod threads;
mod view;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use timewire_base::{IfName, Span, StationName};
use timewire_host::groups::ModelStatus;
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::model::{ClockState, QdiscCounters, Reading};
use timewire_model::tdm::TdmSchedule;

use crate::clock::{self, ClockStatus, Ptp4l};
use crate::control::{self, Client, Status};
use crate::groups::{self, GroupRequest, GroupResponse};
use crate::streams::clocks::ClockBound;

pub use threads::{ProgramLook, ThreadLook};
pub use view::{Room, view};

/// The `schema` field.
pub const TOP_SCHEMA: &str = "timewire.top/1";

/// A look at a host.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Format and version.
    pub schema: &'static str,
    /// When, nanoseconds since 1970 UTC.
    pub taken_utc_ns: i64,
    /// What the kernel knows of its clock; `null` where it says nothing.
    pub clock: Option<ClockState>,
    /// Clocks that are watched.
    pub clocks: Vec<ClockStatus>,
    /// How far this host's clock is from what gives the time, as the user says.
    pub clock_error: ClockBound,
    /// `ptp4l`s that run here, and where each takes questions.
    pub ptp4l: Vec<Ptp4l>,
    /// MACs.
    pub macs: Vec<Status>,
    /// Interfaces.
    pub interfaces: Vec<InterfaceLook>,
    /// Programs of Timewire that send, receive or keep something.
    pub programs: Vec<ProgramLook>,
    /// Trees of scheduling groups, as `group show --json` has them; `null` where none is in force.
    pub groups: Option<ModelStatus>,
    /// Threads with a real-time policy, the most urgent first.
    pub threads: Vec<ThreadLook>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceLook {
    /// Its name.
    pub name: String,
    /// `UP`, `DOWN` and so on.
    pub operstate: String,
    /// **Units**: megabits per second.
    pub speed_mbps: Option<u64>,
    /// By the kernel: `rx_packets`, `tx_bytes`, `tx_dropped` and so on.
    pub counters: BTreeMap<String, u64>,
    /// Queueing disciplines.
    pub qdiscs: Vec<QdiscLook>,
}

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QdiscLook {
    /// Which.
    pub kind: String,
    /// Its handle.
    pub handle: String,
    /// What it is in.
    pub parent: String,
    /// Frames that left it.
    pub packets: u64,
    /// Frames that it dropped.
    pub drops: u64,
    /// Frames that waited longer than it lets them.
    pub overlimits: u64,
    /// Frames in it.
    pub queued: u64,
    /// Bytes in it.
    pub backlog_bytes: u64,
    /// Of one for time-sensitive traffic: its words for `tc`.
    pub words: Option<String>,
    /// Of one with gates: the schedule that runs, and in `admin` the one that waits.
    pub gates: Option<Json>,
}

impl Look {
    /// Looks at this host; at these interfaces, or at all of this network namespace.
    ///
    /// **Errors**: there is no such interface. Anything else that cannot be read is a note.
    pub fn take(
        interfaces: &[IfName],
        clock_error: ClockBound,
    ) -> Result<Look, timewire_host::HostError> {
        let snapshot = Snapshot::of_this_host(interfaces)?;
        let mut notes = Vec::new();
        let clock = match &snapshot.state.host.clock {
            Reading::Known(clock) => Some(clock.clone()),
            other => {
                notes.extend(other.why_not().map(|why| format!("the system clock: {why}")));
                None
            }
        };
        let (programs, threads) = threads::of_host(Path::new("/proc"));
        Ok(Look {
            clock_error,
            schema: TOP_SCHEMA,
            taken_utc_ns: snapshot.state.host.taken_utc_ns,
            clock,
            clocks: clocks(&mut notes),
            ptp4l: clock::ptp4l_instances(),
            macs: macs(&mut notes),
            interfaces: interfaces_of(&snapshot),
            programs,
            groups: match groups::ask(&GroupRequest::Show) {
                Ok(GroupResponse::Status { status }) => Some(*status),
                // Mostly there are none.
                _ => None,
            },
            threads,
            notes,
        })
    }

    /// How long after another look this one was taken.
    pub fn since(&self, before: &Look) -> Option<Span> {
        let ns = self.taken_utc_ns.checked_sub(before.taken_utc_ns)?;
        (ns > 0).then(|| Span::from_ns(ns))
    }
}

fn clocks(notes: &mut Vec<String>) -> Vec<ClockStatus> {
    let names = clock::running().unwrap_or_else(|error| {
        notes.push(format!("watched clocks: {error}"));
        Vec::new()
    });
    // One that ended between is not there any more.
    names.iter().filter_map(|name| clock::find(Some(name)).ok()).collect()
}

fn macs(notes: &mut Vec<String>) -> Vec<Status> {
    let names = control::running().unwrap_or_else(|error| {
        notes.push(format!("MACs: {error}"));
        Vec::new()
    });
    let mut found = Vec::new();
    for name in names {
        match Client::new(&name).status() {
            Ok(status) => found.push(status),
            Err(error) => notes.push(format!("MAC `{name}`: {error}")),
        }
    }
    found
}

fn interfaces_of(snapshot: &Snapshot) -> Vec<InterfaceLook> {
    let one = |(name, state): (&IfName, &timewire_host::snapshot::model::InterfaceState)| {
        let counters = snapshot.counters.interfaces.get(name);
        let counted = counters.and_then(|it| it.qdiscs.known()).map_or(&[][..], Vec::as_slice);
        let settings = snapshot.settings.interfaces.get(name);
        let settings = settings.and_then(|it| it.qdiscs.known());
        let qdiscs = settings.into_iter().flatten().map(|qdisc| {
            let is = |handle: &str, parent: &str| qdisc.handle == handle && qdisc.parent == parent;
            let counted = counted.iter().find(|it| is(&it.handle, &it.parent));
            let count = |key: &str| counted.map_or(0, |it| number(it, key));
            let now = state.qdiscs.iter().find(|it| is(&it.handle, &it.parent));
            QdiscLook {
                kind: qdisc.kind.clone(),
                handle: qdisc.handle.clone(),
                parent: qdisc.parent.clone(),
                packets: count("packets"),
                drops: count("drops"),
                overlimits: count("overlimits"),
                queued: count("qlen"),
                backlog_bytes: count("backlog"),
                words: qdisc.words.clone(),
                gates: now.filter(|it| it.kind == "taprio").map(|it| it.options.clone()),
            }
        });
        InterfaceLook {
            name: name.to_string(),
            operstate: state.operstate.clone(),
            speed_mbps: state.speed_mbps,
            counters: counters.and_then(|it| it.link.known()).cloned().unwrap_or_default(),
            qdiscs: qdiscs.collect(),
        }
    };
    snapshot.state.interfaces.iter().map(one).collect()
}

fn number(counted: &QdiscCounters, key: &str) -> u64 {
    counted.counters.get(key).and_then(Json::as_u64).unwrap_or(0)
}

/// The slots of a station: from and for how long.
fn slots_of(schedule: &TdmSchedule, station: &str) -> Vec<(Span, Span)> {
    let is_own = |name: &StationName| name.as_str() == station;
    let own = schedule.slots().iter().filter(|slot| is_own(&slot.station));
    own.map(|slot| (slot.offset, slot.transmit)).collect()
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller writes into its journal before it does it, and what it says at the end.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, StationName, Tai};

use super::start::Start;
use crate::protocol::clock::ClockBound;
use crate::protocol::name::{ExperimentId, RecordName};
use crate::protocol::outcome::{CommandOutcome, FailureKind, Record, Restored, Why};
use crate::protocol::plan::{Phase, Plan};

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// The experiment; always the first.
    Began {
        /// All of it.
        plan: Plan,
    },
    /// The stations of one order go on to this phase.
    Group {
        /// The phase.
        phase: Phase,
        /// Their order.
        order: u32,
        /// When they start, in `run`.
        at: Option<Instant<Tai>>,
        /// How far each clock was from the controller's, in `run`.
        clocks: BTreeMap<StationName, ClockBound>,
    },
    /// A command is given to a station.
    Sent {
        /// To which.
        station: StationName,
        /// Its number there.
        number: u32,
    },
    /// It has ended; if it failed and is not tried again, the experiment has too.
    Ended {
        /// At which station.
        station: StationName,
        /// Its number there.
        number: u32,
        /// How.
        outcome: CommandOutcome,
    },
    /// A station told when it began with what starts at the common instant.
    Started {
        /// Which.
        station: StationName,
        /// When, by its own clock; when the order came, if that was too late.
        at: Instant<Tai>,
        /// The order came after the instant, and nothing was started.
        is_late: bool,
    },
    /// Something failed beside the commands; from the first failure on, only reporting and teardown
    /// are left.
    Failed {
        /// What.
        failure: Failure,
    },
    /// A record is here, whole.
    Stored {
        /// Of which station.
        station: StationName,
        /// Which.
        record: RecordName,
    },
    /// The experiment has ended.
    Closed,
}

/// Something that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// In which phase.
    pub phase: Phase,
    /// At which station; none when it is not about one.
    pub station: Option<StationName>,
    /// What.
    pub cause: Cause,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Cause {
    /// A command.
    Command {
        /// Which, as its task is called.
        title: String,
        /// In which way.
        kind: FailureKind,
        /// What exactly.
        why: String,
    },
    /// The station was not done with the phase in its time.
    Timeout {
        /// How long it had.
        limit: Span,
        /// What it had not done.
        waiting_for: String,
    },
    /// Nothing was heard of the station for the length of the lease.
    Silent {
        /// The lease.
        lease: Span,
    },
    /// The station has restored its host by itself.
    Lapsed {
        /// Why; none when it does not say.
        why: Option<Why>,
    },
    /// Its clock may be too far from the controller's.
    Clock {
        /// How far; none when it could not be found out.
        bound: Option<ClockBound>,
        /// How far it may be.
        allowed: Span,
    },
    /// A record could not be brought here.
    Record {
        /// Which.
        record: RecordName,
        /// Why not.
        why: String,
    },
    /// The host could not be restored whole.
    Left {
        /// What is left.
        left: Vec<String>,
    },
    /// It cannot take part: told before the first phase, when nothing is changed yet.
    NotReady {
        /// Why not.
        why: String,
    },
    /// Someone asked the controller to end.
    EndRequested,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::NotReady { .. } => write!(f, "preflight: ")?,
            _ => write!(f, "{}: ", self.phase)?,
        }
        if let Some(station) = &self.station {
            write!(f, "{station}: ")?;
        }
        self.cause.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Command { title, kind, why } => write!(f, "`{title}` {kind}: {why}"),
            Cause::Timeout { limit, waiting_for } => {
                write!(f, "not done within {limit}: {waiting_for}")
            }
            Cause::Silent { lease } => write!(f, "nothing heard of it for its lease of {lease}"),
            Cause::Lapsed { why: Some(why) } => write!(f, "it restored its host: {why}"),
            Cause::Lapsed { why: None } => write!(f, "it knows nothing of the experiment any more"),
            Cause::Clock { bound: Some(bound), allowed } => {
                let ClockBound { offset, error } = bound;
                write!(
                    f,
                    "its clock is {offset} from the controller's, known to {error}, where \
                     {allowed} are allowed in all"
                )
            }
            Cause::Clock { bound: None, .. } => write!(f, "its clock is not known"),
            Cause::Record { record, why } => write!(f, "record {record}: {why}"),
            Cause::Left { left } => write!(f, "not restored: {}", left.join("; ")),
            Cause::NotReady { why } => f.write_str(why),
            Cause::EndRequested => write!(f, "ended on request"),
        }
    }
}

/// How an experiment ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Which.
    pub experiment: ExperimentId,
    /// What failed, in the order in which it did; empty when all was done.
    pub failures: Vec<Failure>,
    /// When the stations started, and how far their clocks were from the controller's.
    pub starts: Vec<Start>,
    /// How it ended for each station.
    pub stations: BTreeMap<StationName, StationEnd>,
}

/// How the experiment ended for a station.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationEnd {
    /// What of its host is not as it was; `None` when the station could not be asked: it restores
    /// its host by itself when its lease ends.
    pub restored: Option<Restored>,
    /// The records that are here.
    pub records: Vec<Record>,
    /// Those that the station keeps.
    pub missing: Vec<Record>,
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controller's machine: leads the stations of an experiment through its phases, each a barrier
//! over all of them. When one station fails, all go to report and teardown; these come always.
//!
//! Not here: links, the store of records, the journal's file (`crate::controller`).

mod drive;
mod entry;
mod preflight;
mod start;
mod state;

use std::collections::BTreeMap;

use timewire_base::{Instant, Mono, StationName};

use crate::protocol::clock::Now;
use crate::protocol::message::{FromAgent, ToAgent};
use crate::protocol::name::RecordName;
use crate::protocol::outcome::Record;
use crate::protocol::plan::{Phase, Plan, PlanError};
pub use entry::{Cause, End, Entry, Failure, StationEnd};
pub use start::{ActualStart, Differences, Start, StartSkew, StationStart};
use state::{Group, Station};

/// What happens to a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of a station's agent.
    Heard {
        /// Of which.
        station: StationName,
        /// What it says.
        message: FromAgent,
    },
    /// A record is stored whole, with the digest that it must have; or why it is not.
    Stored {
        /// Of which station.
        station: StationName,
        /// Which.
        record: RecordName,
        /// Why not.
        outcome: Result<(), String>,
    },
    /// There is a new link to a station: what was said over the old one may be lost.
    Linked {
        /// Which.
        station: StationName,
    },
    /// A station's agent is a program that is being started.
    Starting {
        /// Which.
        station: StationName,
    },
    /// A station cannot be reached now.
    Unreached {
        /// Which.
        station: StationName,
        /// Why.
        why: String,
        /// It will not be reached by trying again: it is not paired, or speaks another version.
        is_final: bool,
    },
    /// Someone asks it to end: report and teardown come now.
    End,
    /// The time that [`Controller::wake_at`] named has come.
    Tick,
}

/// What a controller does, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write into the journal; it is on disk before the next action.
    Append(Entry),
    /// Say to a station's agent.
    Send {
        /// To which.
        station: StationName,
        /// What.
        message: ToAgent,
    },
    /// Write a piece of a record. At offset 0 what was there before is gone.
    Store {
        /// Of which station.
        station: StationName,
        /// Which.
        record: RecordName,
        /// **Units**: bytes.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// All pieces are there: check the digest. [`Event::Stored`] follows, when it is on disk.
    Check {
        /// Of which station.
        station: StationName,
        /// What it must be.
        record: Record,
    },
    /// The experiment has ended.
    End(End),
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Controller {
    plan: Plan,
    stations: BTreeMap<StationName, Station>,
    group: Option<Group>,
    /// When the stations of the group must be done.
    deadline: Option<Instant<Mono>>,
    failures: Vec<Failure>,
    starts: Vec<Start>,
    nonce: u64,
    closed: bool,
}

impl Controller {
    /// A controller of a new experiment, and its first actions.
    ///
    /// **Errors**: the plan cannot be carried out.
    pub fn begin(plan: Plan, now: Now) -> Result<(Controller, Vec<Action>), PlanError> {
        plan.check()?;
        let mut out = vec![Action::Append(Entry::Began { plan: plan.clone() })];
        let mut controller = Controller::new(plan);
        controller.advance(now, &mut out);
        Ok((controller, out))
    }

    /// A controller that goes on where its journal ends, and its first actions; `None` when the
    /// journal does not even have the plan.
    pub fn resume(entries: &[Entry], now: Now) -> Option<(Controller, Vec<Action>)> {
        let (first, rest) = entries.split_first()?;
        let Entry::Began { plan } = first else { return None };
        let mut controller = Controller::new(plan.clone());
        for entry in rest {
            controller.apply(entry);
        }
        // Answers to a former life do not count, and no silence before this one does.
        controller.nonce = u64::try_from(now.mono.as_ns().max(0)).unwrap_or(0) << 8;
        controller.restart_clocks(now);
        let mut out = Vec::new();
        if controller.closed {
            out.push(Action::End(controller.end()));
        } else {
            controller.advance(now, &mut out);
        }
        Some((controller, out))
    }

    fn new(plan: Plan) -> Controller {
        let stations = plan.stations.iter().map(|s| (s.name.clone(), Station::new(s.clone())));
        Controller {
            stations: stations.collect(),
            plan,
            group: None,
            deadline: None,
            failures: Vec::new(),
            starts: Vec::new(),
            nonce: 0,
            closed: false,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The phase that goes on; none before the first and after the last.
    pub fn phase(&self) -> Option<Phase> {
        self.group.as_ref().filter(|_| !self.closed).map(|group| group.phase)
    }

    /// What failed so far.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What happened, at this time; what is to be done.
    pub fn on(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        if self.closed {
            return out;
        }
        match event {
            Event::Heard { station, message } => self.heard(now, &station, message, &mut out),
            Event::Stored { station, record, outcome } => {
                self.stored(&station, record, outcome, &mut out);
            }
            Event::Linked { station } => self.linked(now, &station),
            Event::Starting { station } => {
                if let Some(station) = self.stations.get_mut(&station) {
                    station.preflight.starts = true;
                }
            }
            Event::Unreached { station, why, is_final } => {
                if let Some(station) = self.stations.get_mut(&station) {
                    station.preflight.unreached = Some((why, is_final));
                }
            }
            Event::End => {
                let asked = self.failures.iter().any(|f| f.cause == Cause::EndRequested);
                if !asked {
                    self.fail(None, Cause::EndRequested, &mut out);
                }
            }
            Event::Tick => {}
        }
        self.advance(now, &mut out);
        out
    }

    fn write(&mut self, entry: Entry, out: &mut Vec<Action>) {
        self.apply(&entry);
        out.push(Action::Append(entry));
    }

    fn fail(&mut self, station: Option<&StationName>, cause: Cause, out: &mut Vec<Action>) {
        let phase = self.group.as_ref().map_or(Phase::Setup, |group| group.phase);
        let failure = Failure { phase, station: station.cloned(), cause };
        self.write(Entry::Failed { failure }, out);
    }

    /// How it ended, as far as it is known.
    fn end(&self) -> End {
        let end = |station: &Station| {
            let (stored, missing): (Vec<_>, Vec<_>) =
                station.records.iter().partition(|kept| kept.is_stored());
            let records = |kept: Vec<&state::Kept>| {
                kept.into_iter().map(|kept| kept.record.clone()).collect()
            };
            StationEnd {
                restored: station.restored.clone(),
                records: records(stored),
                missing: records(missing),
            }
        };
        End {
            experiment: self.plan.experiment.clone(),
            failures: self.failures.clone(),
            starts: self.starts.clone(),
            stations: self.stations.iter().map(|(name, s)| (name.clone(), end(s))).collect(),
        }
    }
}

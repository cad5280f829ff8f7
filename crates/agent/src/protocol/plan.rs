// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment is: its stations, and what each of them does in which phase.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::{Instant, Span, StationName, Tai};

use crate::protocol::message::MAX_MESSAGE;
use crate::protocol::name::ExperimentId;
use crate::protocol::outcome::FailureKind;
use crate::protocol::task::Task;

/// A part of the experiment that no station begins before all others have ended the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Make the hosts what the experiment needs.
    Setup,
    /// Start what must be there before the first packet.
    Open,
    /// What the experiment is about; begins everywhere at one instant.
    Run,
    /// Let what is under way arrive.
    Finish,
    /// End what was opened.
    Close,
    /// Close the records and bring them to the controller.
    Report,
    /// Restore the hosts; comes always, as the report does.
    Teardown,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Phase; 7] = [
        Phase::Setup,
        Phase::Open,
        Phase::Run,
        Phase::Finish,
        Phase::Close,
        Phase::Report,
        Phase::Teardown,
    ];

    /// The one after it.
    pub fn next(self) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| *phase > self)
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Open => "open",
            Phase::Run => "run",
            Phase::Finish => "finish",
            Phase::Close => "close",
            Phase::Report => "report",
            Phase::Teardown => "teardown",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// This trial of it.
    pub experiment: ExperimentId,
    /// How long things may take.
    pub timing: Timing,
    /// Its stations.
    pub stations: Vec<StationPlan>,
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// A station that hears nothing for so long restores its host.
    pub lease: Span,
    /// After so long without an answer something is said again.
    pub resend: Span,
    /// A station of which nothing is heard for so long before the first phase does not take part.
    pub preflight: Span,
    /// How far ahead of now the instant is at which `run` starts.
    pub lead: Span,
    /// That instant is a whole multiple of this (TAI): what is periodic has the same phases in
    /// each run.
    pub step: Span,
    /// A station whose clock may be further than this from the controller's does not run.
    pub clock_within: Span,
    /// How long the stations of one order may take in a phase; [`Timing::PHASE`] for those that
    /// are not here.
    pub phases: BTreeMap<Phase, Span>,
}

impl Timing {
    /// The timeout of a phase that has none of its own.
    pub const PHASE: Span = Span::from_secs(60);

    /// The first instant at or after this one at which `run` may start.
    pub fn on_step(&self, soon: Instant<Tai>) -> Instant<Tai> {
        let wait = (-soon.as_ns()).rem_euclid(self.step.as_ns().max(1));
        soon.saturating_add(Span::from_ns(wait))
    }

    /// How long the stations of one order may take in this phase.
    pub fn of_phase(&self, phase: Phase) -> Span {
        self.phases.get(&phase).copied().unwrap_or(Timing::PHASE)
    }
}

/// Good for stations on one network.
impl Default for Timing {
    fn default() -> Timing {
        Timing {
            lease: Span::from_secs(10),
            resend: Span::from_ms(500),
            preflight: Span::from_secs(5),
            lead: Span::from_secs(1),
            step: Span::from_ns(1),
            clock_within: Span::from_ms(10),
            phases: BTreeMap::new(),
        }
    }
}

/// A station.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationPlan {
    /// Its name.
    pub name: StationName,
    /// What it does; nothing in phases that are not here.
    pub parts: BTreeMap<Phase, Part>,
}

/// What a station does in a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Stations of a lower order go before, those of the same order go together.
    pub order: u32,
    /// How long after the begin of its order it begins; in `run`, after the common instant.
    pub after: Span,
    /// One after the other.
    pub steps: Vec<Step>,
}

/// One thing to do, and what is done when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What.
    pub task: Task,
    /// The station ends it after so long.
    pub timeout: Span,
    /// Whether it is tried again.
    pub retry: Retry,
}

/// Whether something that failed is tried again. Without, it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// How often.
    pub times: u32,
    /// How long after the failure.
    pub pause: Span,
    /// After which failures; a command that came late, or to a station that takes no part any
    /// more, is never tried again.
    pub after: BTreeSet<FailureKind>,
}

impl Retry {
    /// Whether the failure of this attempt (the first is 0) leads to another.
    pub fn allows(&self, attempt: u32, kind: FailureKind) -> bool {
        let hopeless =
            matches!(kind, FailureKind::Late | FailureKind::Lapsed | FailureKind::Stopped);
        attempt < self.times && self.after.contains(&kind) && !hopeless
    }
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Too few or too many.
    #[error("{count} stations: an experiment has 1 to {MAX_STATIONS}")]
    Stations {
        /// How many there are.
        count: usize,
    },
    /// Twice the same.
    #[error("there are two stations `{name}`")]
    Twice {
        /// The name.
        name: StationName,
    },
    /// Too many.
    #[error("station `{station}`, {phase}: {count} steps are more than {MAX_STEPS}")]
    Steps {
        /// Of which station.
        station: StationName,
        /// In which phase.
        phase: Phase,
        /// How many there are.
        count: usize,
    },
    /// Too much for one message.
    #[error("station `{station}`, {phase}: `{task}` has {bytes} bytes, more than {MAX_TASK}")]
    Task {
        /// Of which station.
        station: StationName,
        /// In which phase.
        phase: Phase,
        /// Which.
        task: String,
        /// How long it is.
        bytes: usize,
    },
    /// A time that is out of range.
    #[error("{what} is {value}: it must be {least} to {most}")]
    Time {
        /// Which.
        what: String,
        /// What it is.
        value: Span,
        /// The least.
        least: Span,
        /// The most.
        most: Span,
    },
}

/// Most stations of an experiment.
pub const MAX_STATIONS: usize = 1_024;
/// Most steps of a station in a phase.
pub const MAX_STEPS: usize = 256;
/// Longest task, as JSON; the rest of a message has room beside it.
///
/// **Units**: bytes.
pub const MAX_TASK: usize = MAX_MESSAGE - 4_096;
/// The shortest and longest lease.
pub const LEASES: (Span, Span) = (Span::from_ms(100), Span::from_secs(3_600));
const DAY: Span = Span::from_secs(86_400);
const SHORTEST: Span = Span::from_ms(1);

impl Plan {
    /// Whether it can be carried out.
    ///
    /// **Errors**: the first thing that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        let count = self.stations.len();
        if count == 0 || count > MAX_STATIONS {
            return Err(PlanError::Stations { count });
        }
        self.timing.check()?;
        let mut names = BTreeSet::new();
        for station in &self.stations {
            if !names.insert(&station.name) {
                return Err(PlanError::Twice { name: station.name.clone() });
            }
            for (phase, part) in &station.parts {
                part.check(&station.name, *phase)?;
            }
        }
        Ok(())
    }
}

impl Timing {
    fn check(&self) -> Result<(), PlanError> {
        let quarter = Span::from_ns(self.lease.as_ns() / 4);
        within("the lease", self.lease, LEASES)?;
        within("the time after which something is said again", self.resend, (SHORTEST, quarter))?;
        within("the time of the preflight", self.preflight, (SHORTEST, DAY))?;
        within("the lead of `run`", self.lead, (SHORTEST, DAY))?;
        within("the step of the start of `run`", self.step, (Span::from_ns(1), DAY))?;
        within("the largest difference of clocks", self.clock_within, (Span::from_ns(1), DAY))?;
        for (phase, timeout) in &self.phases {
            within(&format!("the timeout of {phase}"), *timeout, (SHORTEST, DAY))?;
        }
        Ok(())
    }
}

impl Part {
    fn check(&self, station: &StationName, phase: Phase) -> Result<(), PlanError> {
        let station = station.clone();
        let count = self.steps.len();
        if count > MAX_STEPS {
            return Err(PlanError::Steps { station, phase, count });
        }
        within(&format!("`after` of {station} in {phase}"), self.after, (Span::ZERO, DAY))?;
        for Step { task, timeout, retry } in &self.steps {
            let named = |what| format!("{what} of `{}` on {station} in {phase}", task.title());
            within(&named("the timeout"), *timeout, (SHORTEST, DAY))?;
            within(&named("the pause"), retry.pause, (Span::ZERO, DAY))?;
            let bytes = serde_json::to_vec(task).map_or(usize::MAX, |json| json.len());
            if bytes > MAX_TASK {
                return Err(PlanError::Task { station, phase, task: task.title(), bytes });
            }
        }
        Ok(())
    }
}

fn within(what: &str, value: Span, (least, most): (Span, Span)) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Time { what: what.to_owned(), value, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(count: usize) -> Plan {
        let stations = (0..count).map(|n| StationPlan {
            name: StationName::new(&format!("s{n}")).unwrap(),
            parts: BTreeMap::new(),
        });
        Plan {
            experiment: ExperimentId::new("e").unwrap(),
            timing: Timing::default(),
            stations: stations.collect(),
        }
    }

    #[test]
    fn t0_a_common_start_is_at_a_whole_multiple_of_the_step() {
        let timing = Timing { step: Span::from_ns(100), ..Timing::default() };
        let started = [0, 1, 99, 100, 101].map(|soon| timing.on_step(Instant::from_ns(soon)));
        assert_eq!(started, [0, 100, 100, 100, 200].map(Instant::from_ns));
        let any = Timing::default();
        assert_eq!(any.on_step(Instant::from_ns(12_345)), Instant::from_ns(12_345));
    }

    #[test]
    fn t0_plans_out_of_bounds_are_refused_with_the_bound() {
        assert_eq!(plan(MAX_STATIONS).check(), Ok(()));
        assert!(matches!(plan(0).check(), Err(PlanError::Stations { count: 0 })));
        assert!(matches!(plan(1_025).check(), Err(PlanError::Stations { .. })));
        let mut twice = plan(2);
        twice.stations[1].name = twice.stations[0].name.clone();
        assert!(matches!(twice.check(), Err(PlanError::Twice { .. })));
        let mut slow = plan(1);
        slow.timing.resend = Span::from_secs(3);
        let error = slow.check().unwrap_err().to_string();
        assert!(error.contains("2500ms"), "{error}");
        let mut large = plan(1);
        let name = crate::protocol::RecordName::new("f").unwrap();
        let task = Task::Put { name, text: "x".repeat(MAX_TASK) };
        let step = Step { task, timeout: Span::from_secs(1), retry: Retry::default() };
        let part = Part { steps: vec![step], ..Part::default() };
        large.stations[0].parts.insert(Phase::Setup, part);
        assert!(matches!(large.check(), Err(PlanError::Task { .. })));
        // The longest piece fits, whatever is in it.
        let name = crate::protocol::RecordName::new("f").unwrap();
        let bytes = vec![0xff; crate::protocol::message::MAX_PIECE];
        let task = Task::PutPiece { name, offset: u64::MAX, bytes, digest: Some("f".repeat(64)) };
        let step = Step { task, timeout: Span::from_secs(1), retry: Retry::default() };
        large.stations[0].parts.get_mut(&Phase::Setup).unwrap().steps = vec![step];
        assert_eq!(large.check(), Ok(()));
    }

    #[test]
    fn t0_phases_follow_each_other() {
        let mut phase = Phase::Setup;
        let mut seen = vec![phase];
        while let Some(next) = phase.next() {
            phase = next;
            seen.push(phase);
        }
        assert_eq!(seen, Phase::ALL);
    }
}

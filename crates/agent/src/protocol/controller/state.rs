// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller knows of the experiment: all that follows from its journal, and what only
//! matter while it lives.

use std::collections::VecDeque;

use timewire_base::{Instant, Mono, Span, StationName, Tai};

use super::preflight::Preflight;
use super::{ActualStart, Cause, Controller, Entry, Failure, Start};
use crate::protocol::clock::{ClockEstimate, Now};
use crate::protocol::message::What;
use crate::protocol::name::RecordName;
use crate::protocol::outcome::{CommandOutcome, FailureKind, Record, Restored};
use crate::protocol::plan::{Part, Phase, Retry, StationPlan};

/// The stations of one order in one phase.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub phase: Phase,
    pub order: u32,
    pub at: Option<Instant<Tai>>,
}

/// Something to do at a station in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Stop all programs.
    Halt,
    /// A step of the plan.
    Step(usize),
    /// Close the records.
    Keep,
    /// Restore the host.
    Restore,
}

/// A command that was given and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub number: u32,
    pub job: Job,
    pub attempt: u32,
}

/// A record that the station keeps, or kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub record: Record,
    pub progress: Progress,
}

/// How far a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// So many bytes are here.
    Fetching(u64),
    /// All are here, and are looked at.
    Checking,
    /// It is here; the station may not know yet.
    Stored,
    /// It is here, and the station knows.
    Dropped,
    /// It cannot be brought here.
    GivenUp,
}

impl Kept {
    pub fn is_stored(&self) -> bool {
        matches!(self.progress, Progress::Stored | Progress::Dropped)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Station {
    pub plan: StationPlan,
    /// It takes part in the group that goes on.
    pub active: bool,
    /// What is still to be done in this phase; the front one may be outstanding.
    pub jobs: VecDeque<Job>,
    pub attempt: u32,
    pub outstanding: Option<Outstanding>,
    pub last_number: u32,
    /// The command that starts at the common instant.
    pub start: Option<u32>,
    /// It has said which records there are.
    pub has_told: bool,
    pub records: Vec<Kept>,
    pub restored: Option<Restored>,
    /// It has said once that it takes part.
    pub begun: bool,
    /// The last question for a clock before that.
    pub begun_after: u64,
    pub forgotten: bool,
    /// Its lapse was told.
    pub lapsed: bool,
    /// It is waited for no longer in this phase.
    pub abandoned: bool,
    pub preflight: Preflight,
    pub clock: ClockEstimate,
    /// So many exchanges in a row left it unknown whether its clock is near enough.
    pub vague: u32,
    /// Questions for its clock that were not answered yet, the oldest first.
    pub exchanges: VecDeque<(u64, Now)>,
    pub next_clock: Option<Instant<Mono>>,
    /// When the last message that waits for an answer went.
    pub sent: Option<Instant<Mono>>,
    /// It was sent more than once.
    pub is_repeated: bool,
    /// How often the time until it is sent again is doubled.
    pub doublings: u32,
    pub heard: Option<Instant<Mono>>,
    /// The next command waits until then.
    pub not_before: Option<Instant<Mono>>,
    /// What it answered instead of doing something.
    pub refusal: Option<String>,
}

impl Station {
    pub fn new(plan: StationPlan) -> Station {
        Station {
            plan,
            active: false,
            jobs: VecDeque::new(),
            attempt: 0,
            outstanding: None,
            last_number: 0,
            start: None,
            has_told: false,
            records: Vec::new(),
            restored: None,
            begun: false,
            begun_after: 0,
            forgotten: false,
            lapsed: false,
            abandoned: false,
            preflight: Preflight::default(),
            clock: ClockEstimate::default(),
            vague: 0,
            exchanges: VecDeque::new(),
            next_clock: None,
            sent: None,
            is_repeated: false,
            doublings: 0,
            heard: None,
            not_before: None,
            refusal: None,
        }
    }

    /// What it does in a phase; nothing and first where the plan does not say.
    pub fn part(&self, phase: Phase) -> Part {
        self.plan.parts.get(&phase).cloned().unwrap_or_default()
    }

    fn enter(&mut self, group: &Group, has_failed: bool) {
        let part = self.part(group.phase);
        self.active = part.order == group.order;
        self.outstanding = None;
        self.jobs.clear();
        if !self.active {
            return;
        }
        (self.attempt, self.abandoned, self.sent) = (0, false, None);
        if group.phase == Phase::Report && has_failed {
            self.jobs.push_back(Job::Halt);
        }
        self.jobs.extend((0..part.steps.len()).map(Job::Step));
        match group.phase {
            // Records of programs that still run would be torn.
            Phase::Report => self.jobs.extend([Job::Halt, Job::Keep]),
            Phase::Teardown => self.jobs.push_back(Job::Restore),
            _ => {}
        }
    }

    /// Whether a failure of this attempt at this job leads to another.
    pub fn retries(&self, phase: Phase, job: Job, attempt: u32, kind: FailureKind) -> bool {
        match job {
            Job::Step(index) => {
                self.part(phase).steps.get(index).is_some_and(|s| s.retry.allows(attempt, kind))
            }
            // After a restart the agent does not know whether it closed the records.
            Job::Keep => kind == FailureKind::Unknown && attempt < KEEP_RETRIES,
            Job::Halt | Job::Restore => false,
        }
    }

    /// The pause after a failure of this job.
    pub fn retry_of(&self, phase: Phase, job: Job) -> Retry {
        match job {
            Job::Step(index) => {
                self.part(phase).steps.get(index).map(|s| s.retry.clone()).unwrap_or_default()
            }
            _ => Retry::default(),
        }
    }

    /// What a job is called.
    pub fn title(&self, phase: Phase, job: Job) -> String {
        match job {
            Job::Halt => "stop all programs".to_owned(),
            Job::Step(index) => {
                let part = self.part(phase);
                part.steps.get(index).map_or_else(String::new, |step| step.task.title())
            }
            Job::Keep => "close the records".to_owned(),
            Job::Restore => "restore the host".to_owned(),
        }
    }

    /// The command of a job.
    pub fn what(&self, group: &Group, job: Job, attempt: u32) -> Option<What> {
        match job {
            Job::Halt => Some(What::Halt),
            Job::Keep => Some(What::Keep),
            Job::Restore => Some(What::Restore),
            Job::Step(index) => {
                let part = self.part(group.phase);
                let step = part.steps.get(index)?;
                let is_first = index == 0 && attempt == 0;
                let at = group.at.filter(|_| is_first).map(|at| at.saturating_add(part.after));
                Some(What::Task { task: step.task.clone(), at, timeout: step.timeout })
            }
        }
    }

    pub fn record(&mut self, name: &RecordName) -> Option<&mut Kept> {
        self.records.iter_mut().find(|kept| kept.record.name == *name)
    }

    fn is_restored(&self) -> bool {
        self.restored.as_ref().is_some_and(|restored| restored.left.is_empty())
    }

    /// Whether all records that it keeps are here; not known before it has told of them.
    pub fn has_all(&self) -> bool {
        self.has_told && self.records.iter().all(Kept::is_stored)
    }

    fn sent(&mut self, number: u32, has_instant: bool) {
        let Some(job) = self.jobs.front().copied() else { return };
        self.last_number = number;
        if has_instant && job == Job::Step(0) && self.attempt == 0 {
            self.start = Some(number);
        }
        self.outstanding = Some(Outstanding { number, job, attempt: self.attempt });
    }

    fn failed(&mut self, cause: &Cause) {
        match cause {
            Cause::Lapsed { .. } => self.lapsed = true,
            Cause::Record { record, .. } => {
                if let Some(kept) = self.record(record) {
                    kept.progress = Progress::GivenUp;
                }
            }
            _ => {}
        }
    }

    /// What a command's end means; a failure is part of it, so that no restart comes between.
    fn ended(&mut self, phase: Phase, number: u32, outcome: &CommandOutcome) -> Option<Cause> {
        let Outstanding { job, attempt, .. } =
            self.outstanding.take_if(|outstanding| outstanding.number == number)?;
        let mut cause = None;
        match outcome {
            CommandOutcome::Failed { kind, .. } if self.retries(phase, job, attempt, *kind) => {
                self.attempt += 1;
                return None;
            }
            // That it lapsed has been told.
            CommandOutcome::Failed { kind: FailureKind::Lapsed, .. } if self.lapsed => {}
            // Nothing runs after a restart of the agent either.
            CommandOutcome::Failed {
                kind: FailureKind::Unknown | FailureKind::Stopped, ..
            } if job == Job::Halt => {}
            CommandOutcome::Failed { kind, why } => {
                let title = self.title(phase, job);
                cause = Some(Cause::Command { title, kind: *kind, why: why.clone() });
            }
            CommandOutcome::Kept { records } => {
                self.has_told = true;
                for record in records {
                    if self.record(&record.name).is_none() {
                        let progress = Progress::Fetching(0);
                        self.records.push(Kept { record: record.clone(), progress });
                    }
                }
            }
            CommandOutcome::Restored(restored) => {
                self.restored = Some(restored.clone());
                let left = restored.left.clone();
                cause = Some(Cause::Left { left }).filter(|_| !self.is_restored());
            }
            CommandOutcome::Done { .. } => {}
        }
        self.jobs.pop_front();
        self.attempt = 0;
        cause
    }
}

/// How often the records are closed once more.
const KEEP_RETRIES: u32 = 3;

impl Controller {
    /// What an entry means, the same when it is written and when it is read again.
    pub(super) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Began { .. } => {}
            Entry::Group { phase, order, at, clocks } => {
                let group = Group { phase: *phase, order: *order, at: *at };
                let has_failed = !self.failures.is_empty();
                for station in self.stations.values_mut() {
                    // Each that ever set up took part, whatever became of the answer.
                    station.begun |= *phase > Phase::Setup;
                    station.enter(&group, has_failed);
                }
                if let Some(at) = *at {
                    let stations = &self.stations;
                    let after = |name: &StationName| {
                        stations.get(name).map_or(Span::ZERO, |s| s.part(*phase).after)
                    };
                    self.starts.push(Start::planned(at, clocks, after));
                }
                self.group = Some(group);
            }
            Entry::Sent { station, number } => {
                if let Some(station) = self.stations.get_mut(station) {
                    station.begun = true;
                    let group = self.group.as_ref();
                    station.sent(*number, group.is_some_and(|group| group.at.is_some()));
                }
            }
            Entry::Ended { station, number, outcome } => {
                let phase = self.group.as_ref().map_or(Phase::Setup, |group| group.phase);
                let known = self.stations.get_mut(station);
                if let Some(cause) = known.and_then(|s| s.ended(phase, *number, outcome)) {
                    self.failures.push(Failure { phase, station: Some(station.clone()), cause });
                }
            }
            Entry::Started { station, at, is_late } => {
                let actual =
                    if *is_late { ActualStart::Late(*at) } else { ActualStart::Started(*at) };
                // A station starts once, with those of its order.
                for start in &mut self.starts {
                    if let Some(start) = start.stations.get_mut(station) {
                        start.actual = actual;
                    }
                }
            }
            Entry::Failed { failure } => {
                let station = failure.station.as_ref();
                if let Some(station) = station.and_then(|name| self.stations.get_mut(name)) {
                    station.failed(&failure.cause);
                }
                self.failures.push(failure.clone());
            }
            Entry::Stored { station, record } => {
                let station = self.stations.get_mut(station);
                if let Some(kept) = station.and_then(|station| station.record(record)) {
                    kept.progress = Progress::Stored;
                }
            }
            Entry::Closed => self.closed = true,
        }
    }
}

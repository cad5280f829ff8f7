// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent's machine: does what one station is asked to, each command once, and restores its host
//! when it is asked to, when it hears nothing for the length of its lease, and when it was
//! killed and starts again. What it keeps it keeps until the controller has it.
//!
//! Not here: programs, files and the host (`station`).

mod entry;
mod state;

use std::collections::BTreeMap;

use timewire_base::{Instant, Mono, Span, StationName, Tai};

use crate::protocol::clock::Now;
use crate::protocol::message::{Answer, Ask, FromAgent, Lack, Standing, ToAgent, VERSION, What};
use crate::protocol::name::{ExperimentId, RecordName};
use crate::protocol::outcome::{CommandOutcome, FailureKind, Restored, Why};
use crate::protocol::plan::LEASES;
use crate::protocol::task::Task;
pub use entry::{Entry, Kind, compact};
use state::{Known, State};

/// What happens to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of the controller.
    Heard(ToAgent),
    /// A command has ended: one that `Start`, `Halt` or `Keep` was about.
    Ended {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        number: u32,
        /// How.
        outcome: CommandOutcome,
        /// When the task really began, by this station's clock; none of what did not.
        began: Option<Instant<Tai>>,
    },
    /// It was looked at what the host is like.
    Surveyed {
        /// For which experiment.
        experiment: ExperimentId,
        /// Why it cannot be known.
        outcome: Result<(), String>,
    },
    /// The host is back, and no program of the experiment runs.
    Restored {
        /// Of which experiment.
        experiment: ExperimentId,
        /// What of it is not.
        restored: Restored,
    },
    /// A piece of a record was read, or could not be.
    Read {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        record: RecordName,
        /// **Units**: bytes.
        offset: u64,
        /// The bytes from there on, at most [`crate::protocol::message::MAX_PIECE`]; or why there
        /// are none.
        bytes: Result<Vec<u8>, String>,
    },
    /// The time that [`Agent::wake_at`] named has come.
    Tick,
}

/// What an agent does, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write into the journal; it is on disk before the next action.
    Append(Entry),
    /// Say to the controller of this experiment.
    Answer(FromAgent),
    /// Look at what the host is like before the experiment changes it, and keep that on disk.
    /// [`Event::Surveyed`] follows.
    Survey {
        /// For which experiment.
        experiment: ExperimentId,
    },
    /// Begin a task. [`Event::Ended`] follows.
    Start {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which command.
        number: u32,
        /// What.
        task: Task,
        /// Not before this instant.
        at: Option<Instant<Tai>>,
    },
    /// End what this command does, by force if need be. [`Event::Ended`] of it follows.
    Stop {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which command.
        number: u32,
    },
    /// Stop all programs. [`Event::Ended`] of all of them, then of this command, follow.
    Halt {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which command.
        number: u32,
    },
    /// Close the records. [`Event::Ended`] with all of them follows.
    Keep {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which command.
        number: u32,
    },
    /// Stop all programs and restore the host. [`Event::Restored`] follows.
    Restore {
        /// Of which experiment.
        experiment: ExperimentId,
    },
    /// Read a piece of a record. [`Event::Read`] follows.
    Read {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        record: RecordName,
        /// **Units**: bytes.
        offset: u64,
    },
    /// Remove a record; it may be gone already.
    Drop {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        record: RecordName,
    },
    /// Remove all that is left of an experiment.
    Forget {
        /// Which.
        experiment: ExperimentId,
    },
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// What it lacks to change its host.
    lacks: Vec<Lack>,
    known: BTreeMap<ExperimentId, Known>,
    /// The experiment that it is asked to take part in, while it looks at its host.
    surveying: Option<(ExperimentId, StationName, Span)>,
    forgotten: Vec<ExperimentId>,
}

/// Most experiments of which an agent keeps records.
pub const MAX_KNOWN: usize = 256;
/// As many names of past experiments are remembered, so that none begins again by a late message.
pub const MAX_FORGOTTEN: usize = 4_096;

impl Agent {
    /// An agent that begins with what its journal says, and the first actions: what goes on by the
    /// journal was interrupted, and is restored.
    pub fn resume(entries: &[Entry]) -> (Agent, Vec<Action>) {
        let mut agent = Agent::default();
        for entry in entries {
            agent.apply(entry);
        }
        let mut out = Vec::new();
        let ids: Vec<ExperimentId> = agent.known.keys().cloned().collect();
        for experiment in ids {
            agent.interrupted(&experiment, &mut out);
        }
        (agent, out)
    }

    /// The same agent, which lacks this to change its host.
    #[must_use]
    pub fn lacking(self, lacks: Vec<Lack>) -> Agent {
        Agent { lacks, ..self }
    }

    /// The next instant at which it wants a [`Event::Tick`].
    pub fn wake_at(&self) -> Option<Instant<Mono>> {
        self.known.values().filter_map(Known::wake_at).min()
    }

    /// The experiments that it knows, with how it stands in them, in the order of their names.
    pub fn experiments(&self) -> impl Iterator<Item = (&ExperimentId, &StationName, &Standing)> {
        self.known.iter().map(|(id, known)| (id, &known.station, &known.standing))
    }

    /// What happened, at this time; what is to be done.
    pub fn on(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Heard(message) => self.heard(now, message, &mut out),
            Event::Ended { experiment, number, outcome, began } => {
                self.ended(&experiment, number, (outcome, began), &mut out);
            }
            Event::Surveyed { experiment, outcome } => {
                self.surveyed(now, &experiment, outcome, &mut out);
            }
            Event::Restored { experiment, restored } => {
                self.restored(&experiment, restored, &mut out);
            }
            Event::Read { experiment, record, offset, bytes } => {
                let answer = match bytes {
                    Ok(bytes) => Answer::Piece { record, offset, bytes },
                    Err(why) => Answer::Refused { why: format!("cannot read {record}: {why}") },
                };
                self.answer(&experiment, answer, &mut out);
            }
            Event::Tick => {}
        }
        self.look_at_time(now, &mut out);
        out
    }

    fn heard(&mut self, now: Now, message: ToAgent, out: &mut Vec<Action>) {
        let ToAgent { experiment, ask, .. } = message;
        // What comes after the end of the lease does not renew it.
        self.look_at_time(now, out);
        if let Some(known) = self.known.get_mut(&experiment) {
            known.until = Some(now.mono.saturating_add(known.lease));
        }
        match ask {
            Ask::Preflight => {
                let (lacks, busy) = (self.lacks.clone(), self.other_than(&experiment));
                self.answer(&experiment, Answer::Preflight { lacks, busy }, out);
            }
            Ask::Begin { station, lease } => self.begin(&experiment, station, lease, out),
            Ask::Clock { nonce } => {
                self.answer(&experiment, Answer::Clock { nonce, clock: now.tai }, out);
            }
            Ask::Command { number, what } => self.command(now, &experiment, number, what, out),
            Ask::Fetch { record, offset } => match self.known.get(&experiment) {
                Some(known) if known.records.contains_key(&record) => {
                    out.push(Action::Read { experiment, record, offset });
                }
                _ => {
                    let why = format!("there is no record {record}");
                    self.answer(&experiment, Answer::Refused { why }, out);
                }
            },
            Ask::Received { record } => self.received(&experiment, record, out),
            Ask::Forget => self.forget(&experiment, out),
        }
    }

    fn begin(
        &mut self,
        experiment: &ExperimentId,
        station: StationName,
        lease: Span,
        out: &mut Vec<Action>,
    ) {
        let is_over = self.forgotten.contains(experiment);
        if is_over || self.known.contains_key(experiment) {
            return self.answer(experiment, Answer::Standing, out);
        }
        if self.surveying.as_ref().is_some_and(|(id, ..)| id == experiment) {
            // The answer comes when the host is known.
            return;
        }
        let refusal = if let Some(with) = self.other_than(experiment) {
            Some(Answer::Busy { with })
        } else if self.known.len() >= MAX_KNOWN {
            let why = format!("records of {MAX_KNOWN} experiments wait here for their controllers");
            Some(Answer::Refused { why })
        } else if !(LEASES.0..=LEASES.1).contains(&lease) {
            let (least, most) = LEASES;
            let why = format!("a lease is {least} to {most} long, not {lease}");
            Some(Answer::Refused { why })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer(experiment, refusal, out);
        }
        self.surveying = Some((experiment.clone(), station, lease));
        out.push(Action::Survey { experiment: experiment.clone() });
    }

    /// The other experiment that holds this host, or is about to.
    fn other_than(&self, experiment: &ExperimentId) -> Option<ExperimentId> {
        let held = self.known.iter().filter(|(_, known)| known.is_under_way()).map(|(id, _)| id);
        let surveyed = self.surveying.iter().map(|(id, ..)| id);
        held.chain(surveyed).find(|id| *id != experiment).cloned()
    }

    /// The host is known: what differs from it at the end is the experiment's doing.
    fn surveyed(
        &mut self,
        now: Now,
        experiment: &ExperimentId,
        outcome: Result<(), String>,
        out: &mut Vec<Action>,
    ) {
        let Some((_, station, lease)) = self.surveying.take_if(|(id, ..)| id == experiment) else {
            return;
        };
        if let Err(why) = outcome {
            let why = format!("it cannot tell what its host is like: {why}");
            return self.answer(experiment, Answer::Refused { why }, out);
        }
        self.write(Entry::Began { experiment: experiment.clone(), station, lease }, out);
        if let Some(known) = self.known.get_mut(experiment) {
            known.until = Some(now.mono.saturating_add(lease));
        }
        self.answer(experiment, Answer::Standing, out);
    }

    fn command(
        &mut self,
        now: Now,
        experiment: &ExperimentId,
        number: u32,
        what: What,
        out: &mut Vec<Action>,
    ) {
        let Some(known) = self.known.get(experiment) else {
            // Nothing was done here for it, so nothing is kept and nothing to be restored.
            let outcome = match what {
                What::Task { .. } => CommandOutcome::failed(
                    FailureKind::Lapsed,
                    "the agent knows no such experiment",
                ),
                What::Halt => CommandOutcome::Done { exit: None },
                What::Keep => CommandOutcome::Kept { records: Vec::new() },
                What::Restore => CommandOutcome::Restored(Restored::default()),
            };
            let answer = Answer::Ended { number, outcome, began: None };
            return self.answer(experiment, answer, out);
        };
        match known.commands.get(&number).map(|command| &command.state) {
            Some(State::Ended { outcome, began }) => {
                let (outcome, began) = (outcome.clone(), *began);
                self.answer(experiment, Answer::Ended { number, outcome, began }, out);
            }
            Some(State::Running { .. }) => {
                self.answer(experiment, Answer::Running { number }, out);
            }
            None if known.commands.last_key_value().is_some_and(|(last, _)| *last > number) => {
                let why = "a command with a higher number came before";
                let outcome = CommandOutcome::failed(FailureKind::Superseded, why);
                self.answer(experiment, Answer::Ended { number, outcome, began: None }, out);
            }
            None => self.accept(now, experiment, number, what, out),
        }
    }

    /// A command that was not seen before.
    fn accept(
        &mut self,
        now: Now,
        experiment: &ExperimentId,
        number: u32,
        what: What,
        out: &mut Vec<Action>,
    ) {
        let standing = self.standing(experiment);
        let id = || experiment.clone();
        let at_once = match (&what, &standing) {
            (What::Task { at: Some(at), .. }, Standing::Held) if *at <= now.tai => {
                let late = now.tai - *at;
                Some(CommandOutcome::failed(FailureKind::Late, format!("it came {late} too late")))
            }
            (_, Standing::Held) | (What::Keep, Standing::Restored { .. }) => None,
            (What::Restore, Standing::Restored { restored, .. }) => {
                Some(CommandOutcome::Restored(restored.clone()))
            }
            (What::Task { .. }, Standing::Restoring { why } | Standing::Restored { why, .. }) => {
                Some(CommandOutcome::failed(
                    FailureKind::Lapsed,
                    format!("it restored its host: {why}"),
                ))
            }
            (What::Halt, Standing::Restored { .. }) => Some(CommandOutcome::Done { exit: None }),
            (What::Restore, _) => None,
            // The controller asks again, and finds the host restored.
            _ => return self.answer(experiment, Answer::Standing, out),
        };
        if let Some(outcome) = at_once {
            let is_late =
                matches!(&outcome, CommandOutcome::Failed { kind: FailureKind::Late, .. });
            let began = is_late.then_some(now.tai);
            return self.write_end(id(), number, (outcome, began), out);
        }
        let kind = Kind::of(&what);
        self.write(Entry::Started { experiment: id(), number, kind }, out);
        match what {
            What::Task { task, at, timeout } => {
                let wait = at.map_or(0, |at| at.as_ns().saturating_sub(now.tai.as_ns()).max(0));
                let deadline = now.mono.saturating_add(timeout);
                let deadline = deadline.saturating_add(Span::from_ns(wait));
                self.known_mut(experiment).set_deadline(number, deadline);
                out.push(Action::Start { experiment: id(), number, task, at });
            }
            What::Halt => out.push(Action::Halt { experiment: id(), number }),
            What::Keep => out.push(Action::Keep { experiment: id(), number }),
            What::Restore if standing == Standing::Held => self.restore(id(), Why::Asked, out),
            What::Restore => {}
        }
        self.answer(experiment, Answer::Running { number }, out);
    }

    fn ended(
        &mut self,
        experiment: &ExperimentId,
        number: u32,
        (outcome, began): (CommandOutcome, Option<Instant<Tai>>),
        out: &mut Vec<Action>,
    ) {
        let Some(known) = self.known.get(experiment) else { return };
        let Some(State::Running { timed_out, .. }) = known.state(number) else { return };
        let outcome = if *timed_out && known.kind(number) == Some(Kind::Task) {
            CommandOutcome::failed(FailureKind::TimedOut, "it went on for longer than its timeout")
        } else {
            outcome
        };
        self.write_end(experiment.clone(), number, (outcome, began), out);
    }

    fn write_end(
        &mut self,
        experiment: ExperimentId,
        number: u32,
        (outcome, began): (CommandOutcome, Option<Instant<Tai>>),
        out: &mut Vec<Action>,
    ) {
        let answer = Answer::Ended { number, outcome: outcome.clone(), began };
        self.write(Entry::Ended { experiment: experiment.clone(), number, outcome, began }, out);
        self.answer(&experiment, answer, out);
    }

    fn restored(&mut self, experiment: &ExperimentId, restored: Restored, out: &mut Vec<Action>) {
        let Standing::Restoring { why } = self.standing(experiment) else { return };
        let running = self.known_mut(experiment).running();
        let id = experiment.clone();
        self.write(Entry::Restored { experiment: id, restored: restored.clone() }, out);
        for (number, kind) in running {
            let outcome = match kind {
                Kind::Restore => CommandOutcome::Restored(restored.clone()),
                // Its end is still to be told; records can be closed on a restored host.
                Kind::Keep => continue,
                Kind::Task | Kind::Halt => CommandOutcome::failed(
                    FailureKind::Stopped,
                    format!("the host was restored: {why}"),
                ),
            };
            self.ended(experiment, number, (outcome, None), out);
        }
        let known = self.known_mut(experiment);
        // Nothing was asked of it, so there is nothing that a controller could come for.
        if known.commands.is_empty() && restored.left.is_empty() {
            self.over(experiment, out);
        }
    }

    fn received(&mut self, experiment: &ExperimentId, record: RecordName, out: &mut Vec<Action>) {
        let is_kept =
            self.known.get(experiment).is_some_and(|known| known.records.contains_key(&record));
        if is_kept {
            let experiment = experiment.clone();
            self.write(
                Entry::Received { experiment: experiment.clone(), record: record.clone() },
                out,
            );
            out.push(Action::Drop { experiment, record: record.clone() });
        }
        // Not kept: dropped before.
        self.answer(experiment, Answer::Dropped { record }, out);
    }

    fn forget(&mut self, experiment: &ExperimentId, out: &mut Vec<Action>) {
        let Some(known) = self.known.get(experiment) else {
            return self.answer(experiment, Answer::Standing, out);
        };
        let kept = known.records.len();
        if kept > 0 || !matches!(known.standing, Standing::Restored { .. }) {
            let why = format!("it is not over: {kept} records wait to be received");
            return self.answer(experiment, Answer::Refused { why }, out);
        }
        self.over(experiment, out);
        self.answer(experiment, Answer::Standing, out);
    }

    fn over(&mut self, experiment: &ExperimentId, out: &mut Vec<Action>) {
        self.write(Entry::Forgotten { experiment: experiment.clone() }, out);
        out.push(Action::Forget { experiment: experiment.clone() });
    }

    fn restore(&mut self, experiment: ExperimentId, why: Why, out: &mut Vec<Action>) {
        self.write(Entry::Restoring { experiment: experiment.clone(), why }, out);
        out.push(Action::Restore { experiment });
    }

    /// Leases that ran out and tasks that take too long.
    fn look_at_time(&mut self, now: Now, out: &mut Vec<Action>) {
        let ids: Vec<ExperimentId> = self.known.keys().cloned().collect();
        for experiment in ids {
            let known = self.known_mut(&experiment);
            let is_held = known.standing == Standing::Held;
            if is_held && known.until.is_some_and(|until| until <= now.mono) {
                self.restore(experiment, Why::LeaseRanOut, out);
                continue;
            }
            for number in known.overdue(now.mono) {
                out.push(Action::Stop { experiment: experiment.clone(), number });
            }
        }
    }

    /// After a restart: what went on is not known to have ended, and the host is restored.
    fn interrupted(&mut self, experiment: &ExperimentId, out: &mut Vec<Action>) {
        for (number, kind) in self.known_mut(experiment).running() {
            if kind != Kind::Restore {
                let why = "the agent was killed while it went on";
                let outcome = CommandOutcome::failed(FailureKind::Unknown, why);
                let experiment = experiment.clone();
                self.write(Entry::Ended { experiment, number, outcome, began: None }, out);
            }
        }
        let restore = Action::Restore { experiment: experiment.clone() };
        match self.standing(experiment) {
            Standing::Held => self.restore(experiment.clone(), Why::AgentRestarted, out),
            Standing::Restoring { .. } => out.push(restore),
            _ => {}
        }
        for record in &self.known_mut(experiment).received {
            out.push(Action::Drop { experiment: experiment.clone(), record: record.clone() });
        }
    }

    fn answer(&self, experiment: &ExperimentId, answer: Answer, out: &mut Vec<Action>) {
        let standing = self.standing(experiment);
        let experiment = experiment.clone();
        out.push(Action::Answer(FromAgent { version: VERSION, experiment, standing, answer }));
    }

    fn standing(&self, experiment: &ExperimentId) -> Standing {
        match self.known.get(experiment) {
            Some(known) => known.standing.clone(),
            None if self.forgotten.contains(experiment) => Standing::Forgotten,
            None => Standing::Unknown,
        }
    }

    fn known_mut(&mut self, experiment: &ExperimentId) -> &mut Known {
        self.known.get_mut(experiment).expect("invariant: the caller found it")
    }

    fn write(&mut self, entry: Entry, out: &mut Vec<Action>) {
        self.apply(&entry);
        out.push(Action::Append(entry));
    }
}

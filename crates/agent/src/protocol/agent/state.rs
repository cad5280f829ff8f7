// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an agent knows of its experiments: all that follows from its journal, and the times that
//! only matter while it lives.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{Instant, Mono, Span, StationName, Tai};

use super::{Agent, Entry, Kind, MAX_FORGOTTEN};
use crate::protocol::message::Standing;
use crate::protocol::name::{ExperimentId, RecordName};
use crate::protocol::outcome::{CommandOutcome, Record};

/// An experiment.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub station: StationName,
    pub standing: Standing,
    pub lease: Span,
    /// When the lease ends; none after a restart, which ends it.
    pub until: Option<Instant<Mono>>,
    pub commands: BTreeMap<u32, Command>,
    /// Kept for the controller.
    pub records: BTreeMap<RecordName, Record>,
    /// The controller has them.
    pub received: BTreeSet<RecordName>,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub kind: Kind,
    pub state: State,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Running { deadline: Option<Instant<Mono>>, timed_out: bool },
    Ended { outcome: CommandOutcome, began: Option<Instant<Tai>> },
}

impl Known {
    /// Whether it holds the host.
    pub fn is_under_way(&self) -> bool {
        matches!(self.standing, Standing::Held | Standing::Restoring { .. })
    }

    pub fn state(&self, number: u32) -> Option<&State> {
        self.commands.get(&number).map(|command| &command.state)
    }

    pub fn kind(&self, number: u32) -> Option<Kind> {
        self.commands.get(&number).map(|command| command.kind)
    }

    /// The commands that go on.
    pub fn running(&self) -> Vec<(u32, Kind)> {
        let is_running = |command: &Command| matches!(command.state, State::Running { .. });
        let running = self.commands.iter().filter(|(_, command)| is_running(command));
        running.map(|(number, command)| (*number, command.kind)).collect()
    }

    pub fn set_deadline(&mut self, number: u32, at: Instant<Mono>) {
        if let Some(Command { state: State::Running { deadline, .. }, .. }) =
            self.commands.get_mut(&number)
        {
            *deadline = Some(at);
        }
    }

    /// Commands whose deadline has come; each once.
    pub fn overdue(&mut self, now: Instant<Mono>) -> Vec<u32> {
        let mut found = Vec::new();
        for (number, command) in &mut self.commands {
            if let State::Running { deadline, timed_out } = &mut command.state
                && deadline.is_some_and(|deadline| deadline <= now)
            {
                (*deadline, *timed_out) = (None, true);
                found.push(*number);
            }
        }
        found
    }

    pub fn wake_at(&self) -> Option<Instant<Mono>> {
        let lease = self.until.filter(|_| self.standing == Standing::Held);
        let deadlines = self.commands.values().filter_map(|command| match command.state {
            State::Running { deadline, .. } => deadline,
            State::Ended { .. } => None,
        });
        deadlines.chain(lease).min()
    }

    fn begin(&mut self, number: u32, kind: Kind) {
        let state = State::Running { deadline: None, timed_out: false };
        self.commands.insert(number, Command { kind, state });
    }

    fn end(&mut self, number: u32, outcome: &CommandOutcome, began: Option<Instant<Tai>>) {
        if let CommandOutcome::Kept { records } = outcome {
            let new = records.iter().filter(|record| !self.received.contains(&record.name));
            self.records.extend(new.map(|record| (record.name.clone(), record.clone())));
        }
        let kind = self.kind(number).unwrap_or(Kind::Task);
        let state = State::Ended { outcome: outcome.clone(), began };
        self.commands.insert(number, Command { kind, state });
    }
}

impl Agent {
    /// What an entry means, the same when it is written and when it is read again.
    pub(super) fn apply(&mut self, entry: &Entry) {
        let experiment = entry.experiment();
        if let Entry::Began { station, lease, .. } = entry {
            let known = Known {
                station: station.clone(),
                standing: Standing::Held,
                lease: *lease,
                until: None,
                commands: BTreeMap::new(),
                records: BTreeMap::new(),
                received: BTreeSet::new(),
            };
            self.known.insert(experiment.clone(), known);
            return;
        }
        if let Entry::Forgotten { experiment } = entry {
            self.known.remove(experiment);
            self.remember(experiment);
            return;
        }
        let Some(known) = self.known.get_mut(experiment) else { return };
        match entry {
            Entry::Started { number, kind, .. } => known.begin(*number, *kind),
            Entry::Ended { number, outcome, began, .. } => known.end(*number, outcome, *began),
            Entry::Restoring { why, .. } => known.standing = Standing::Restoring { why: *why },
            Entry::Restored { restored, .. } => {
                if let Standing::Restoring { why } = known.standing {
                    known.standing = Standing::Restored { why, restored: restored.clone() };
                }
            }
            Entry::Received { record, .. } => {
                known.records.remove(record);
                known.received.insert(record.clone());
            }
            Entry::Began { .. } | Entry::Forgotten { .. } => {}
        }
    }

    fn remember(&mut self, experiment: &ExperimentId) {
        if self.forgotten.len() == MAX_FORGOTTEN {
            self.forgotten.remove(0);
        }
        self.forgotten.push(experiment.clone());
    }
}

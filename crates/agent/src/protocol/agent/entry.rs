// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an agent writes into its journal, before it does it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, StationName, Tai};

use super::MAX_FORGOTTEN;
use crate::protocol::message::What;
use crate::protocol::name::{ExperimentId, RecordName};
use crate::protocol::outcome::{CommandOutcome, Restored, Why};

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// It takes part in an experiment.
    Began {
        /// In which.
        experiment: ExperimentId,
        /// As which station.
        station: StationName,
        /// Until it hears nothing for so long.
        lease: Span,
    },
    /// A command begins.
    Started {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        number: u32,
        /// Of which kind.
        kind: Kind,
    },
    /// A command has ended.
    Ended {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        number: u32,
        /// How.
        outcome: CommandOutcome,
        /// When its task really began, or came too late to begin, by this station's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        began: Option<Instant<Tai>>,
    },
    /// The host is restored from now on.
    Restoring {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Why.
        why: Why,
    },
    /// The host is back.
    Restored {
        /// Of which experiment.
        experiment: ExperimentId,
        /// What of it is not.
        restored: Restored,
    },
    /// The controller has a record.
    Received {
        /// Of which experiment.
        experiment: ExperimentId,
        /// Which.
        record: RecordName,
    },
    /// The experiment is over.
    Forgotten {
        /// Which.
        experiment: ExperimentId,
    },
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something of the plan.
    Task,
    /// Stopping all programs.
    Halt,
    /// Closing the records.
    Keep,
    /// Restoring the host.
    Restore,
}

impl Kind {
    /// The kind of a command.
    pub fn of(what: &What) -> Kind {
        match what {
            What::Task { .. } => Kind::Task,
            What::Halt => Kind::Halt,
            What::Keep => Kind::Keep,
            What::Restore => Kind::Restore,
        }
    }
}

impl Entry {
    /// The experiment that it is about.
    pub fn experiment(&self) -> &ExperimentId {
        match self {
            Entry::Began { experiment, .. }
            | Entry::Started { experiment, .. }
            | Entry::Ended { experiment, .. }
            | Entry::Restoring { experiment, .. }
            | Entry::Restored { experiment, .. }
            | Entry::Received { experiment, .. }
            | Entry::Forgotten { experiment } => experiment,
        }
    }
}

/// The entries without what no longer matters: of an experiment that is over its name is enough,
/// and of very many the latest.
pub fn compact(entries: Vec<Entry>) -> Vec<Entry> {
    let is_end = |entry: &&Entry| matches!(entry, Entry::Forgotten { .. });
    let over: Vec<&ExperimentId> =
        entries.iter().filter(is_end).map(|entry| entry.experiment()).collect();
    let all: BTreeSet<ExperimentId> = over.iter().copied().cloned().collect();
    let dropped = over.len().saturating_sub(MAX_FORGOTTEN);
    let too_old: BTreeSet<ExperimentId> = over[..dropped].iter().copied().cloned().collect();
    let keeps = |entry: &Entry| match entry {
        Entry::Forgotten { experiment } => !too_old.contains(experiment),
        other => !all.contains(other.experiment()),
    };
    entries.into_iter().filter(keeps).collect()
}

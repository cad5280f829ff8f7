// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of a command, and what a station keeps.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::protocol::name::RecordName;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CommandOutcome {
    /// It was done.
    Done {
        /// Exit code, where a program ended.
        exit: Option<i32>,
    },
    /// It was not done, or not to its end, or nobody knows.
    Failed {
        /// In which way.
        kind: FailureKind,
        /// What exactly, for people.
        why: String,
    },
    /// The records are closed, and stay until the controller has them.
    Kept {
        /// All that the controller does not have yet.
        records: Vec<Record>,
    },
    /// No program of the experiment runs any more.
    Restored(Restored),
}

/// What a station says of its host, compared with what it was like before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restored {
    /// What could not be restored; empty when all that was compared is as it was.
    pub left: Vec<String>,
    /// What could not be compared, and why: it is not known whether it is as it was.
    pub not_compared: Vec<String>,
}

impl CommandOutcome {
    /// A failure.
    pub fn failed(kind: FailureKind, why: impl Into<String>) -> CommandOutcome {
        CommandOutcome::Failed { kind, why: why.into() }
    }
}

/// In which way a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The station could not do or start it.
    NotStarted,
    /// The program ended with an exit code that is no success, or by a signal.
    Exited,
    /// It took longer than it may, and was ended.
    TimedOut,
    /// It was ended because the experiment was.
    Stopped,
    /// The agent was killed while it went on: whether it was done is not known.
    Unknown,
    /// The instant at which it was to start was over when the command came.
    Late,
    /// The station does not take part any more: its lease ran out, or its agent was killed.
    Lapsed,
    /// A later command came before it; it was not started.
    Superseded,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureKind::NotStarted => "could not be done",
            FailureKind::Exited => "failed",
            FailureKind::TimedOut => "took too long",
            FailureKind::Stopped => "was stopped",
            FailureKind::Unknown => "has an unknown outcome",
            FailureKind::Late => "came too late",
            FailureKind::Lapsed => "came when the station took no part any more",
            FailureKind::Superseded => "was overtaken by a later command",
        })
    }
}

/// Why a station restores its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The controller asked.
    Asked,
    /// It heard nothing of the controller for as long as the lease is.
    LeaseRanOut,
    /// Its agent was killed, and started again.
    AgentRestarted,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Asked => "the controller asked",
            Why::LeaseRanOut => "it heard nothing of the controller for the length of its lease",
            Why::AgentRestarted => "its agent ended and was started again",
        })
    }
}

/// A file that a station keeps for the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name, unique in the experiment and station.
    pub name: RecordName,
    /// **Units**: bytes.
    pub bytes: u64,
    /// What tells it from any other content; the drivers choose the function and check it.
    pub digest: String,
}

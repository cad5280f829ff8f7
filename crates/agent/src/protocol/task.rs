// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a station can be asked to do for an experiment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocol::name::{RecordName, WordName};

/// One thing to do. What it changes is undone by the agent at the end, whatever happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Write a file into the experiment's directory of the station.
    Put {
        /// The file.
        name: RecordName,
        /// What is in it.
        text: String,
    },
    /// Write a piece of a file that is too long for one task, or is no text.
    PutPiece {
        /// The file; it has its name when it is whole.
        name: RecordName,
        /// Where in it; all before was written.
        ///
        /// **Units**: bytes.
        offset: u64,
        /// What is there.
        #[serde(with = "crate::protocol::base64")]
        bytes: Vec<u8>,
        /// Of the last piece: what tells the whole file from any other content, as in a record.
        digest: Option<String>,
    },
    /// Keep the snapshot of the host as a record.
    Snapshot {
        /// The record.
        name: RecordName,
    },
    /// Make the host as host settings say.
    Apply {
        /// The text of a network file with the host settings of one station.
        host: String,
    },
    /// Start a program and wait for its end.
    Run(Program),
    /// Start a program that goes on; done as soon as it has started.
    Start(Program),
    /// Wait for the end of a program that was started.
    Wait {
        /// The program.
        name: WordName,
    },
    /// Ask a program that was started to end (SIGTERM), and wait for it.
    Stop {
        /// The program.
        name: WordName,
    },
}

/// A program and what counts as its success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name in the experiment; its output is kept as `NAME.out` and `NAME.err`.
    pub name: WordName,
    /// The words of the command. `timewire` as the first is the agent's own program.
    pub command: Vec<String>,
    /// What is added to its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Exit codes that are a success, beside 0.
    #[serde(default)]
    pub accept: Vec<u8>,
}

impl Task {
    /// The program that it starts.
    pub fn program(&self) -> Option<&Program> {
        match self {
            Task::Run(program) | Task::Start(program) => Some(program),
            _ => None,
        }
    }

    /// What to call it in a message.
    pub fn title(&self) -> String {
        match self {
            Task::Put { name, .. } => format!("write {name}"),
            Task::PutPiece { name, offset, .. } => format!("write {name} from byte {offset} on"),
            Task::Snapshot { name } => format!("snapshot {name}"),
            Task::Apply { .. } => "apply the host settings".to_owned(),
            Task::Run(program) => format!("run {}", program.name),
            Task::Start(program) => format!("start {}", program.name),
            Task::Wait { name } => format!("wait for {name}"),
            Task::Stop { name } => format!("stop {name}"),
        }
    }
}

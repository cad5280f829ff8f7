// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no laboratory.
//!
//! Not here: the exit code it leads to (the command line; `Unsupported` is 4).

use std::io;

use thiserror::Error;
use timewire_base::StationName;
use timewire_host::HostError;

/// A laboratory that cannot be had, or an operation on one that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// This host, or this user's privilege, has no room for a laboratory.
    #[error("no laboratory is possible here: {missing} ({source})")]
    Unsupported {
        /// What is missing.
        missing: &'static str,
        /// What the user can do.
        remedy: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The description cannot be built.
    #[error("this laboratory cannot be built: {why}")]
    Spec {
        /// What is wrong with it.
        why: String,
    },
    /// A namespace of the name that is needed exists, and someone else made it.
    #[error(
        "network namespace {name} exists already and is not ours; remove it: ip netns del {name}"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Changing the host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A namespace could not be entered, or something in it not be set.
    #[error("cannot {what}: {source}")]
    Namespace {
        /// What was tried, on what.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A tool said something that is not understood.
    #[error("cannot understand what `{command}` says: {why}")]
    ToolOutput {
        /// The command.
        command: String,
        /// What is wrong.
        why: String,
    },
    /// The links did not come up.
    #[error("the links of the laboratory did not come up: {waiting} is not ready")]
    NotReady {
        /// The link that was waited for last.
        waiting: String,
    },
    /// There is no such station.
    #[error("the laboratory has no station {name}")]
    NoStation {
        /// What was asked for.
        name: StationName,
    },
}

impl LabError {
    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LabError::Unsupported { remedy, .. } => Some(remedy),
            LabError::Host(error) => error.hint(),
            _ => None,
        }
    }
}

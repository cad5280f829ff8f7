// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no laboratory.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use thiserror::Error;
use timewire_base::{Failure, FileError, StationName};
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
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no place for laboratory kernels.
    #[error("no directory for laboratory kernels: {why}")]
    Cache {
        /// Why not.
        why: String,
    },
    /// Something that this host would need is not installed.
    #[error("missing here: {what}")]
    Missing {
        /// What.
        what: String,
        /// What the user can do.
        remedy: String,
    },
    /// The distribution's packages cannot be had or used.
    #[error("cannot {what}: {why}")]
    Packages {
        /// What was tried.
        what: String,
        /// What apt or dpkg said.
        why: String,
    },
    /// A kernel could not be built.
    #[error("{step} failed: {why}")]
    Build {
        /// Which part of the build.
        step: String,
        /// What it said last.
        why: String,
    },
    /// There is no such kernel in the cache.
    #[error("no laboratory kernel {series} is there")]
    NoKernel {
        /// Which one was asked for.
        series: String,
        /// The command that gets it.
        command: String,
    },
    /// A machine of the laboratory failed.
    #[error("the laboratory's machine failed: {why}{}", last_words(.log))]
    Guest {
        /// How.
        why: String,
        /// The last lines of its kernel.
        log: String,
    },
    /// A machine of the laboratory has too little memory for what runs in it.
    #[error("{machine} ran out of memory ({mib} MiB){}", by(.program))]
    OutOfMemory {
        /// Which machine, as the subject of a sentence.
        machine: String,
        /// What it has.
        mib: u32,
        /// The program that asked for more, where its kernel told.
        program: Option<String>,
    },
    /// Somebody asked to end before the machine had.
    #[error("ended on request; what was written until then is kept")]
    EndRequested,
    /// There is no such station.
    #[error("the laboratory has no station {name}")]
    NoStation {
        /// What was asked for.
        name: StationName,
    },
}

impl Failure for LabError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            LabError::Host(error) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            LabError::Unsupported { remedy, .. } => Some((*remedy).to_owned()),
            LabError::Missing { remedy, .. } => Some(remedy.clone()),
            LabError::NoKernel { command, .. } => {
                Some(format!("`{command}` gets it; `timewire lab doctor` tells what is possible"))
            }
            LabError::OutOfMemory { mib, .. } => Some(format!(
                "give it more: `--memory {}` of `lab exec` and `lab shell`, `memory_mib: {}` of \
                 a station in a segment file (`run --on lab:uml` has as much as it has)",
                mib * 2,
                mib * 2
            )),
            _ => return self.inner()?.hint(),
        };
        hint.map(Cow::Owned)
    }

    fn is_unsupported(&self) -> bool {
        match self {
            LabError::Unsupported { .. } | LabError::Missing { .. } | LabError::NoKernel { .. } => {
                true
            }
            _ => self.inner().is_some_and(Failure::is_unsupported),
        }
    }
}

impl LabError {
    /// The error of an operation on a file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> LabError + use<> {
        FileError::unusable(what, path)
    }
}

fn by(program: &Option<String>) -> String {
    program.as_ref().map_or(String::new(), |name| format!(" when `{name}` asked for more"))
}

fn last_words(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its kernel said last:\n{log}") }
}

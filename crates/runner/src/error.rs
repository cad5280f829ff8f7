// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong while an experiment runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use timewire_base::{Failure, FileError};
use timewire_capture::record::RecordError;
use timewire_datapath::DatapathError;
use timewire_datapath::listen::ListenError;
use timewire_datapath::talker::TalkerError;
use timewire_datapath::transmit::PortError;
use timewire_host::HostError;
use timewire_lab::LabError;

use crate::trace::TraceError;

/// An operation that failed; the host is as it was before, unless the message says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// A station could not do its part.
    #[error(transparent)]
    Station(#[from] DatapathError),
    /// Changing the host, or undoing that, failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The laboratory failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The case could not be traced.
    #[error("cannot trace: {0}")]
    Trace(#[from] TraceError),
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
    /// A receiver could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A talker could not be, or failed.
    #[error(transparent)]
    Talk(#[from] TalkerError),
    /// The kernel refused something of a thread, a socket or a setting.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A change of the host could not be taken back.
    #[error("the host is left changed: {why}; the journal is {}", .journal.display())]
    LeftChanged {
        /// What could not be done, and why.
        why: String,
        /// What names the rest; the next start tries again.
        journal: PathBuf,
    },
    /// The process that tries what the kernel can do failed.
    #[error("what the kernel can do could not be tried: {why}")]
    Probes {
        /// What went wrong.
        why: String,
    },
    /// A record file cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Records {
        /// The file.
        path: PathBuf,
        /// Why.
        source: RecordError,
    },
    /// A backend of the schedule does not work here.
    #[error("{what}: {why}")]
    NoBackend {
        /// Which one, and who wants it.
        what: String,
        /// What is missing, or what came of trying it.
        why: String,
        /// Whether another kernel would have it.
        missing: bool,
    },
    /// A person or a service manager asked to end.
    #[error(
        "ended on request; what was recorded until then is kept in {path}",
        path = .path.display()
    )]
    EndRequested {
        /// The run directory.
        path: PathBuf,
    },
    /// Stations with agents failed.
    #[error("{}", .failures.join("; "))]
    Stations {
        /// What, on which station.
        failures: Vec<String>,
    },
    /// Stations are not as they were before.
    #[error("left changed: {}", in_lines(.left))]
    HostsLeftChanged {
        /// What, by station.
        left: BTreeMap<String, Vec<String>>,
    },
    /// This host has not what is asked for.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What is missing.
        why: String,
    },
    /// A request or a task that cannot be.
    #[error("{0}")]
    Invalid(String),
}

fn in_lines(left: &BTreeMap<String, Vec<String>>) -> String {
    let lines = left.iter().map(|(station, what)| format!("{station}: {}", what.join("; ")));
    lines.collect::<Vec<_>>().join("; ")
}

impl Failure for RunnerError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            RunnerError::Station(error) => Some(error),
            RunnerError::Host(error) => Some(error),
            RunnerError::Lab(error) => Some(error),
            RunnerError::Trace(error) => Some(error),
            RunnerError::Listen(error) => Some(error),
            RunnerError::Talk(TalkerError::Port(error)) => Some(error),
            _ => None,
        }
    }

    fn is_unsupported(&self) -> bool {
        matches!(self, RunnerError::NoBackend { .. } | RunnerError::Unsupported { .. })
            || self.inner().is_some_and(Failure::is_unsupported)
    }

    fn leaves_changed(&self) -> bool {
        matches!(self, RunnerError::LeftChanged { .. } | RunnerError::HostsLeftChanged { .. })
            || self.inner().is_some_and(Failure::leaves_changed)
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            RunnerError::NoBackend { missing: true, .. } => {
                Some("run in a kernel that has it: --on lab:uml".into())
            }
            RunnerError::Kernel { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some("real-time policies need CAP_SYS_NICE, frames CAP_NET_RAW".into())
            }
            RunnerError::EndRequested { path } => {
                Some(format!("`timewire run --continue {}` goes on with it", path.display()).into())
            }
            _ => self.inner()?.hint(),
        }
    }
}

impl RunnerError {
    /// An error about a file.
    pub(crate) fn file(
        what: &'static str,
        path: &Path,
    ) -> impl Fn(io::Error) -> RunnerError + use<> {
        FileError::unusable(what, path)
    }

    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> RunnerError {
        RunnerError::Kernel { what: what.into(), source }
    }
}

impl From<PortError> for RunnerError {
    fn from(error: PortError) -> RunnerError {
        RunnerError::Talk(TalkerError::Port(error))
    }
}

/// An error of another kind, in its own words.
pub(crate) fn invalid(error: impl std::fmt::Display) -> RunnerError {
    RunnerError::Invalid(error.to_string())
}

/// Words about what was to be done, before those of the error.
pub(crate) trait Context<T> {
    /// With these words.
    fn context(self, what: &str) -> Result<T, RunnerError>
    where
        Self: Sized,
    {
        self.with_context(|| what.to_owned())
    }

    /// With words that are put together when they are needed.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, RunnerError>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, RunnerError> {
        self.map_err(|error| RunnerError::Invalid(format!("{}: {error}", what())))
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, RunnerError> {
        self.ok_or_else(|| RunnerError::Invalid(what()))
    }
}

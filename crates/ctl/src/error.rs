// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong while stations and experiments run.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use timewire_base::{IfName, StationName};
use timewire_bpf::BpfError;
use timewire_host::HostError;
use timewire_host::clock::config::ConfigError;
use timewire_lab::LabError;
use timewire_path::mac::PathError;
use timewire_trace::record::RecordError;

use crate::trace::TraceError;

/// An operation that failed; the host is as it was before, unless the message says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CtlError {
    /// Changing the host, or undoing that, failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The laboratory failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The case could not be traced.
    #[error("cannot trace: {0}")]
    Trace(#[from] TraceError),
    /// The MAC could not be started or changed.
    #[error("MAC of {link}: {source}")]
    Mac {
        /// Its link.
        link: IfName,
        /// Why.
        source: PathError,
    },
    /// A file could not be used.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    File {
        /// What was to be done with it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process that tries what the kernel can do failed.
    #[error("what the kernel can do could not be tried: {why}")]
    Probes {
        /// What went wrong.
        why: String,
    },
    /// A file of a run directory does not hold what it should.
    #[error("{path}: {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
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
    /// No MAC runs under that name.
    #[error("no MAC runs as `{instance}`{}", others(.running))]
    NoMac {
        /// The name.
        instance: String,
        /// Those that run.
        running: Vec<String>,
    },
    /// No MAC runs.
    #[error("no MAC runs here: `timewire tdm start` starts one")]
    NoMacAtAll,
    /// A MAC runs under that name already.
    #[error("a MAC runs as `{instance}` already: `timewire tdm stop --name {instance}` ends it")]
    MacRuns {
        /// The name.
        instance: String,
    },
    /// The MAC refused a request.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// The talk with a MAC broke off.
    #[error("the MAC `{instance}` does not answer: {source}")]
    Control {
        /// Its name.
        instance: String,
        /// Why.
        source: io::Error,
    },
    /// The link carries addresses, which would stop working.
    #[error(
        "{link} carries the address{} {}, which would stop working: \
         `--move-addresses` moves them to {stack} until the MAC ends",
        if .addresses.len() == 1 { "" } else { "es" }, .addresses.join(", ")
    )]
    LinkHasAddresses {
        /// The link.
        link: IfName,
        /// Where they would go.
        stack: IfName,
        /// The addresses.
        addresses: Vec<String>,
    },
    /// An interface exists that would have to be made.
    #[error("interface {name} exists already: choose another with `--stack`, or delete it")]
    InterfaceExists {
        /// Its name.
        name: IfName,
    },
    /// The interface is missing or unfit.
    #[error("{link}: {why}")]
    Link {
        /// The link.
        link: IfName,
        /// What is wrong with it.
        why: String,
    },
    /// A station that the scenario does not have.
    #[error("the scenario has no station `{name}`: it has {}", .known.join(", "))]
    NoStation {
        /// What was asked for.
        name: StationName,
        /// Those it has.
        known: Vec<String>,
    },
    /// A carrier of the schedule does not work here.
    #[error("{what}: {why}")]
    NoCarrier {
        /// Which one, and who wants it.
        what: String,
        /// What is missing, or what came of trying it.
        why: String,
        /// Whether another kernel would have it.
        missing: bool,
    },
    /// A program of the experiment failed.
    #[error("{what} {how}{}", said(.stderr))]
    Program {
        /// Which one.
        what: String,
        /// How it ended.
        how: String,
        /// What it said.
        stderr: String,
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
    /// The clock cannot be kept as the file has it.
    #[error(transparent)]
    Clock(#[from] ConfigError),
    /// Somebody else steers the same clock.
    #[error("{why}; two that steer one clock spoil it")]
    Rival {
        /// Who.
        why: String,
        /// What the user can do.
        hint: String,
    },
    /// The gate before an interface's queueing discipline cannot be had.
    #[error("{link}: {source}")]
    Gate {
        /// The interface.
        link: IfName,
        /// Why not.
        source: BpfError,
    },
    /// A request or a task that cannot be.
    #[error("{0}")]
    Invalid(String),
}

fn others(names: &[String]) -> String {
    match names {
        [] => "; none runs here: `timewire tdm start` starts one".to_owned(),
        names => format!("; running: {}", names.join(", ")),
    }
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; it said: {text}"),
    }
}

impl CtlError {
    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            CtlError::Host(error) => error.hint().map(str::to_owned),
            CtlError::Lab(error) => error.hint(),
            CtlError::Clock(error) => Some(error.hint().to_owned()),
            CtlError::Rival { hint, .. } => Some(hint.clone()),
            CtlError::Gate { .. } => {
                Some("it needs Linux 6.6, CAP_BPF and CAP_NET_ADMIN (run as root)".to_owned())
            }
            CtlError::Mac { source: PathError::NoCarrier { .. }, .. } => {
                Some("the MAC needs at least CAP_NET_RAW (run as root)".to_owned())
            }
            CtlError::NoCarrier { missing: true, .. } => {
                Some("run in a kernel that has it: --lab uml".to_owned())
            }
            _ => None,
        }
    }

    /// The error with its hint, on one line.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self} ({hint})"),
            None => self.to_string(),
        }
    }

    /// An error about a file.
    pub(crate) fn file(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> CtlError + use<> {
        let path = path.to_owned();
        move |source| CtlError::File { what, path, source }
    }

    /// No thread could be started.
    pub(crate) fn thread(error: io::Error) -> CtlError {
        CtlError::Invalid(format!("cannot start a thread: {error}"))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong while a station runs.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use thiserror::Error;
use timewire_base::{Failure, FileError, IfName, StationName};
use timewire_bpf::BpfError;
use timewire_host::HostError;
use timewire_host::clock::config::ConfigError;

use crate::mac::PathError;

/// An operation that failed; the host is as it was before, unless the message says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatapathError {
    /// Changing the host, or undoing that, failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The MAC could not be started or changed.
    #[error("MAC of {link}: {source}")]
    Mac {
        /// Its link.
        link: IfName,
        /// Why.
        source: PathError,
    },
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
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
    #[error("there is no station `{name}`: there are {}", .known.join(", "))]
    NoStation {
        /// What was asked for.
        name: StationName,
        /// Those it has.
        known: Vec<String>,
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

impl Failure for DatapathError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            DatapathError::Host(error) => Some(error),
            DatapathError::Clock(error) => Some(error),
            _ => None,
        }
    }

    fn is_unsupported(&self) -> bool {
        match self {
            DatapathError::Gate { .. } => true,
            DatapathError::Mac { source: PathError::NoSocket { .. }, .. } => true,
            _ => self.inner().is_some_and(Failure::is_unsupported),
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            DatapathError::Rival { hint, .. } => hint.clone(),
            DatapathError::Gate { .. } => {
                "it needs Linux 6.6, CAP_BPF and CAP_NET_ADMIN (run as root)".to_owned()
            }
            DatapathError::Mac { source: PathError::NoSocket { .. }, .. } => {
                "the MAC needs at least CAP_NET_RAW (run as root)".to_owned()
            }
            _ => return self.inner()?.hint(),
        };
        Some(Cow::Owned(hint))
    }
}

impl DatapathError {
    /// The error with its hint, on one line.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self} ({hint})"),
            None => self.to_string(),
        }
    }

    /// An error about a file: `what` was to be done with it.
    pub fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> DatapathError + use<> {
        FileError::unusable(what, path)
    }

    /// No thread could be started.
    pub fn thread(error: io::Error) -> DatapathError {
        DatapathError::Invalid(format!("cannot start a thread: {error}"))
    }
}

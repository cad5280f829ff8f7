// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracing packets through this kernel into a capture.
//!
//! Not here: the programs in the kernel (`timewire-bpf`), what a capture comes to
//! (`timewire-capture`).

pub mod collect;
mod kernel;
pub mod live;
mod stations;

use std::borrow::Cow;
use std::io;

use thiserror::Error;
use timewire_base::Failure;
use timewire_bpf::BpfError;
use timewire_host::HostError;
use timewire_lab::LabError;

/// A capture that could not be taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The programs could not be put to work, or not be asked.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// What this host is could not be found out.
    #[error("cannot read {what}: {source}")]
    Host {
        /// What was read.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A station could not be looked at.
    #[error(transparent)]
    Station(#[from] LabError),
    /// The tools that know interfaces and queueing disciplines failed.
    #[error(transparent)]
    Tool(#[from] HostError),
    /// What they said is not understood.
    #[error("cannot read what `{tool}` says of {station}: {why}")]
    Said {
        /// The tool.
        tool: &'static str,
        /// Of which station.
        station: String,
        /// What is wrong with it.
        why: String,
    },
    /// The capture could not be written.
    #[error("cannot write the capture: {0}")]
    Write(#[source] io::Error),
}

impl Failure for TraceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let forbidden = match self {
            TraceError::Bpf(error) => error.is_forbidden(),
            TraceError::Host { source, .. }
            | TraceError::Station(LabError::Namespace { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        };
        forbidden.then_some(
            "needs CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (run as root)".into(),
        )
    }

    fn is_unsupported(&self) -> bool {
        matches!(self, TraceError::Bpf(error) if error.is_unsupported())
    }
}

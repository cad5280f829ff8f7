// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a measurement could not be made.
//!
//! Not here: what was measured badly, which is in its result.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use timewire_host::HostError;
use timewire_lab::LabError;
use timewire_path::listen::ListenError;
use timewire_path::talker::TalkerError;
use timewire_path::transmit::PortError;

/// A measurement that could not be made; the host is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The pair of stations could not be had.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Changing the host, or undoing that, failed.
    #[error(transparent)]
    Host(#[from] HostError),
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
    /// This host has not what is asked for.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What is missing.
        why: String,
    },
    /// A change of the host could not be taken back.
    #[error("the host is left changed: {why}; the journal is {}", .journal.display())]
    LeftChanged {
        /// What could not be done, and why.
        why: String,
        /// What names the rest; the next start tries again.
        journal: PathBuf,
    },
    /// What is asked for cannot be.
    #[error("{0}")]
    Invalid(String),
}

impl MeasureError {
    /// Whether another kernel, driver or card would do it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            MeasureError::Unsupported { .. } => true,
            MeasureError::Lab(error) => error.is_unsupported(),
            MeasureError::Host(error) => error.is_unsupported(),
            MeasureError::Listen(error) => error.is_unsupported(),
            MeasureError::Talk(TalkerError::Port(error)) => error.is_unsupported(),
            _ => false,
        }
    }

    /// Whether the host was left changed.
    pub fn leaves_changed(&self) -> bool {
        let host = match self {
            MeasureError::LeftChanged { .. } => return true,
            MeasureError::Host(error) | MeasureError::Lab(LabError::Host(error)) => error,
            _ => return false,
        };
        matches!(host, HostError::NotUndone { .. })
    }

    /// What would help, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            MeasureError::Lab(error) => error.hint(),
            MeasureError::Host(error) => error.hint().map(str::to_owned),
            MeasureError::Listen(error) => error.hint().map(str::to_owned),
            MeasureError::Talk(TalkerError::Port(error)) => error.hint().map(str::to_owned),
            MeasureError::Kernel { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some("real-time policies need CAP_SYS_NICE, frames CAP_NET_RAW".to_owned())
            }
            _ => None,
        }
    }

    pub(crate) fn kernel(what: impl Into<String>, source: io::Error) -> MeasureError {
        MeasureError::Kernel { what: what.into(), source }
    }
}

impl From<PortError> for MeasureError {
    fn from(error: PortError) -> MeasureError {
        MeasureError::Talk(TalkerError::Port(error))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a talker or a listener could not run.

use std::io;

use thiserror::Error;
use timewire_host::HostError;
use timewire_path::listen::ListenError;
use timewire_path::talker::TalkerError;
use timewire_path::transmit::PortError;

use crate::CtlError;

/// A talker or a listener that could not run; the host is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Request(String),
    /// The talker could not be had.
    #[error(transparent)]
    Talker(#[from] TalkerError),
    /// The listener could not be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The port for answers could not be opened.
    #[error("answers: {0}")]
    Answers(#[from] PortError),
    /// The run directory, or a file.
    #[error(transparent)]
    Ctl(#[from] CtlError),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl From<HostError> for TrafficError {
    fn from(error: HostError) -> TrafficError {
        TrafficError::Ctl(CtlError::Host(error))
    }
}

impl TrafficError {
    /// Whether another kernel, driver or transport would do it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            TrafficError::Talker(TalkerError::Port(error)) | TrafficError::Answers(error) => {
                error.is_unsupported()
            }
            TrafficError::Listen(error) => error.is_unsupported(),
            TrafficError::Ctl(CtlError::Host(error)) => error.is_unsupported(),
            _ => false,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            TrafficError::Talker(TalkerError::Port(error)) | TrafficError::Answers(error) => {
                error.hint().map(str::to_owned)
            }
            TrafficError::Listen(error) => error.hint().map(str::to_owned),
            TrafficError::Ctl(error) => error.hint(),
            _ => None,
        }
    }

    pub(super) fn system(what: &str) -> impl FnOnce(io::Error) -> TrafficError + use<> {
        let what = what.to_owned();
        move |source| TrafficError::System { what, source }
    }
}

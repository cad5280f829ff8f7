// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a talker or a listener could not run.

use std::io;

use crate::listen::ListenError;
use crate::talker::TalkerError;
use crate::transmit::PortError;
use thiserror::Error;
use timewire_base::Failure;
use timewire_host::HostError;

use crate::DatapathError;

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
    Ctl(#[from] DatapathError),
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
        TrafficError::Ctl(DatapathError::Host(error))
    }
}

impl Failure for TrafficError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            TrafficError::Talker(TalkerError::Port(error)) | TrafficError::Answers(error) => {
                Some(error)
            }
            TrafficError::Listen(error) => Some(error),
            TrafficError::Ctl(error) => Some(error),
            _ => None,
        }
    }
}

impl TrafficError {
    pub(super) fn system(what: &str) -> impl FnOnce(io::Error) -> TrafficError + use<> {
        let what = what.to_owned();
        move |source| TrafficError::System { what, source }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stream cannot be sent, received or written.
//!
//! Not here: packets that are lost or late, which are counted.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use timewire_avtp::AvtpError;
use timewire_path::listen::ListenError;
use timewire_path::transmit::PortError;

/// A stream that cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The way out cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The way in cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The interface failed while packets were sent or received.
    #[error("{what}: {source}")]
    Interface {
        /// What was done with which interface.
        what: String,
        /// Why it failed.
        source: io::Error,
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
    /// A file is not what it should be.
    #[error("{path}: {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Settings that no stream can have.
    #[error("no such stream: {0}")]
    Setting(#[from] AvtpError),
    /// A request that cannot be.
    #[error("{0}")]
    Invalid(String),
}

impl StreamError {
    /// Whether another kernel or driver would do it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            StreamError::Port(error) => error.is_unsupported(),
            StreamError::Listen(error) => error.is_unsupported(),
            _ => false,
        }
    }

    /// What would help, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StreamError::Port(error) => error.hint(),
            StreamError::Listen(error) => error.hint(),
            StreamError::File { what: "create", source, .. }
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                Some("recordings are not written over: choose another name, or `--force`")
            }
            _ => None,
        }
    }

    /// An error about a file.
    pub(super) fn file(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> StreamError + use<> {
        let path = path.to_owned();
        move |source| StreamError::File { what, path, source }
    }
}

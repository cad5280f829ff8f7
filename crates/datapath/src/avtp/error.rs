// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stream cannot be sent, received or written.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use crate::listen::ListenError;
use crate::transmit::PortError;
use thiserror::Error;
use timewire_avtp::AvtpError;
use timewire_base::{Failure, FileError};

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
    /// A file could not be used, or does not hold what it should.
    #[error(transparent)]
    File(#[from] FileError),
    /// Settings that no stream can have.
    #[error("no such stream: {0}")]
    Setting(#[from] AvtpError),
    /// A request that cannot be.
    #[error("{0}")]
    Invalid(String),
}

impl Failure for StreamError {
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            StreamError::Port(error) => Some(error),
            StreamError::Listen(error) => Some(error),
            _ => None,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            StreamError::File(FileError::Unusable { what: "create", source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                Some("recordings are not written over: choose another name, or `--force`")
            }
            _ => return self.inner()?.hint(),
        };
        hint.map(Cow::Borrowed)
    }
}

impl StreamError {
    /// An error about a file.
    pub(super) fn file(
        what: &'static str,
        path: &Path,
    ) -> impl Fn(io::Error) -> StreamError + use<> {
        FileError::unusable(what, path)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures that cannot be studied.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use timewire_base::Failure;
use timewire_capture::align::AlignError;
use timewire_capture::capture::CaptureError;

/// Why nothing came of it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StudyError {
    /// No file was given.
    #[error("no capture was given")]
    Nothing,
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", file.display())]
    Open {
        /// Which.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{}: {source}", file.display())]
    Capture {
        /// Which.
        file: PathBuf,
        /// Why not.
        source: CaptureError,
    },
    /// Somebody asked to end before any packet path could be found.
    #[error("ended on request; nothing was written")]
    EndRequested,
    /// Hosts whose clocks cannot be compared.
    #[error(
        "the clocks of {} cannot be brought onto that of {reference}: their captures have no \
         samples of synchronised clocks, and {}",
        hosts.join(", "), why.join("; ")
    )]
    Apart {
        /// The host whose clock is that of all.
        reference: String,
        /// Those without a way.
        hosts: Vec<String>,
        /// What is the matter with each pair of hosts.
        why: Vec<String>,
    },
}

impl Failure for StudyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            StudyError::Apart { .. } => Some(
                "trace hosts that send to each other both ways, keep their clocks with \
                 `timewire clock`, or state how far they are apart: --clock-error 5us"
                    .to_owned(),
            ),
            _ => None,
        };
        hint.map(Cow::Owned)
    }
}

/// Why a pair of hosts is of no use.
pub(super) fn unaligned(a: &str, b: &str, error: &AlignError) -> String {
    format!("{a} and {b}: {error}")
}

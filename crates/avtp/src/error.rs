// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this crate refuses to read and to write.

use thiserror::Error;

/// Bytes that are no packet or no media file, or a value that none can have.
///
/// **Units**: offsets and lengths are bytes, from the start of what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AvtpError {
    /// The bytes end before the field does.
    #[error("{field} at byte {offset} needs {needed} bytes, {have} are there")]
    Truncated {
        /// The field.
        field: &'static str,
        /// Where it starts.
        offset: usize,
        /// How long it is.
        needed: usize,
        /// How much of it is there.
        have: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{field} at byte {offset} is {read:#x}; right would be {right}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// Where it starts.
        offset: usize,
        /// What was read.
        read: u64,
        /// What it could be.
        right: &'static str,
    },
    /// A length that does not divide into whole pieces.
    #[error("{field} at byte {offset} is {read}; right would be a multiple of {of}")]
    Pieces {
        /// The field.
        field: &'static str,
        /// Where it starts.
        offset: usize,
        /// What was read.
        read: u64,
        /// The length of one piece.
        of: u64,
    },
    /// The place to write to is too short.
    #[error("{needed} bytes are to be written, there is room for {room}")]
    NoRoom {
        /// What would be written.
        needed: usize,
        /// The room.
        room: usize,
    },
    /// A value that cannot be written, or a setting that cannot be.
    #[error("{field} of {value} cannot be: it takes {right}")]
    Value {
        /// The field or setting.
        field: &'static str,
        /// What was given.
        value: u64,
        /// What it takes.
        right: &'static str,
    },
    /// A setting with a bound that depends on others.
    #[error("{field} of {value} cannot be: it takes {least} to {most}")]
    Range {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl AvtpError {
    /// Where in what was read the fault is; `None` for what is to be written.
    ///
    /// **Units**: bytes.
    pub fn offset(&self) -> Option<usize> {
        match *self {
            AvtpError::Truncated { offset, .. }
            | AvtpError::Wrong { offset, .. }
            | AvtpError::Pieces { offset, .. } => Some(offset),
            AvtpError::NoRoom { .. } | AvtpError::Value { .. } | AvtpError::Range { .. } => None,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What files name of the transmit side of an interface as Linux does: handles and ranges of
//! queues.

use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::TxQueue;

/// The name of a queueing discipline. Prints as `tc` takes it, hexadecimal: `8001:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(u16);

impl Handle {
    /// This handle; 0 lets the kernel choose one.
    pub const fn new(major: u16) -> Handle {
        Handle(major)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0)
    }
}

/// The transmit queues of one traffic class. Prints as `tc` takes it, `2@4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRange {
    /// How many queues.
    pub count: u16,
    /// The first of them.
    pub offset: TxQueue,
}

impl QueueRange {
    /// The first queue beyond the range.
    pub fn end(self) -> u32 {
        u32::from(self.offset.get()) + u32::from(self.count)
    }

    /// Whether a queue is in both.
    pub fn overlaps(self, other: QueueRange) -> bool {
        u32::from(self.offset.get()).max(u32::from(other.offset.get()))
            < self.end().min(other.end())
    }
}

impl fmt::Display for QueueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.count, self.offset)
    }
}

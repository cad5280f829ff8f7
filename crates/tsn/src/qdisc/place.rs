// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a queueing discipline stands, and how long frames count below it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A class of a queueing discipline; of `mqprio` and `taprio`, queue *n* is class *n* + 1. Prints
/// as `tc` takes it, hexadecimal: `8001:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId {
    /// Whose class.
    pub major: u16,
    /// Which one.
    pub minor: u16,
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.major)?;
        if self.minor == 0 { Ok(()) } else { write!(f, "{:x}", self.minor) }
    }
}

/// Where a queueing discipline stands. Prints as `tc` takes it: `root`, `parent 8001:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QdiscPosition {
    /// At the interface itself.
    Root,
    /// In a class of another discipline.
    Parent(ClassId),
}

impl fmt::Display for QdiscPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QdiscPosition::Root => f.write_str("root"),
            QdiscPosition::Parent(class) => write!(f, "parent {class}"),
        }
    }
}

/// Bytes that are added to the length of every frame before a discipline computes with it.
///
/// Prints as `tc` takes it: `stab overhead 24`.
///
/// **Source**: `linux v6.12 net/sched/sch_api.c:__qdisc_calculate_pkt_len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeTable {
    #[serde(rename = "overhead_bytes")]
    overhead: u16,
}

impl SizeTable {
    /// Check sequence, preamble, start delimiter and gap of Ethernet: 24 bytes that Linux does not
    /// count and the link carries.
    pub const ETHERNET: SizeTable = SizeTable { overhead: 24 };

    /// So many bytes.
    pub const fn new(overhead: u16) -> SizeTable {
        SizeTable { overhead }
    }

    /// **Units**: bytes.
    pub fn overhead(self) -> u32 {
        u32::from(self.overhead)
    }
}

impl fmt::Display for SizeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stab overhead {}", self.overhead)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four queueing disciplines of Linux for time-sensitive traffic, as `tc` takes them. A value
//! of these types is one that the kernel takes on some interface; what it refuses on every
//! interface cannot be built.
//!
//! Not here: running `tc` (`timewire-host`), what the disciplines do with a frame (`timewire-mac`).

mod class;
mod error;
mod place;
mod taprio;
mod tdm;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, Span};

pub use class::{QueueRange, TrafficClasses};
pub use error::{QdiscError, Refuser};
pub use place::{ClassId, Handle, Place, SizeTable};
pub use taprio::{
    FramePreemption, GateControlEntry, GateOperation, Taprio, TaprioMode, TaprioOptions,
};
pub use tdm::{TdmPort, TdmTaprio, TdmTaprioError, taprio_of_station};

/// A clock of Linux that a discipline can run on.
///
/// Reads with and without `CLOCK_`, in any case, as `tc` does; prints with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QdiscClock {
    /// `CLOCK_REALTIME`.
    #[serde(rename = "CLOCK_REALTIME")]
    Realtime,
    /// `CLOCK_MONOTONIC`.
    #[serde(rename = "CLOCK_MONOTONIC")]
    Monotonic,
    /// `CLOCK_BOOTTIME`.
    #[serde(rename = "CLOCK_BOOTTIME")]
    Boottime,
    /// `CLOCK_TAI`.
    #[serde(rename = "CLOCK_TAI")]
    Tai,
}

const CLOCKS: [(QdiscClock, &str); 4] = [
    (QdiscClock::Realtime, "REALTIME"),
    (QdiscClock::Monotonic, "MONOTONIC"),
    (QdiscClock::Boottime, "BOOTTIME"),
    (QdiscClock::Tai, "TAI"),
];

impl FromStr for QdiscClock {
    type Err = QdiscError;
    fn from_str(text: &str) -> Result<Self, QdiscError> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("CLOCK_").unwrap_or(&upper);
        let found = CLOCKS.iter().find(|(_, known)| *known == name);
        found.map(|(clock, _)| *clock).ok_or_else(|| QdiscError::Value {
            key: "clockid",
            text: text.to_owned(),
            why: "CLOCK_TAI, CLOCK_REALTIME, CLOCK_MONOTONIC or CLOCK_BOOTTIME".to_owned(),
        })
    }
}

impl fmt::Display for QdiscClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CLOCKS.iter().find(|(clock, _)| clock == self).map_or("", |(_, name)| name);
        write!(f, "CLOCK_{name}")
    }
}

/// How long `taprio` takes a frame of so many bytes to last, size table included, on an interface
/// that states this rate: whole Mbit/s, whole picoseconds per byte (17 at least), rounded down to
/// whole nanoseconds.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_set_picos_per_byte`,
/// `length_to_duration`.
pub fn taprio_duration(bytes: u32, stated: BitsPerSecond) -> Span {
    // An interface that states less than 1 Mbit/s states nothing: the kernel takes 10 Mbit/s.
    let mbit = match stated.get() / 1_000_000 {
        0 => 10,
        mbit => mbit,
    };
    let picos_per_byte = (8_000_000 / mbit).max(17);
    let ns = u64::from(bytes) * picos_per_byte / 1_000;
    Span::from_ns(i64::try_from(ns).expect("invariant: 4 GiB at 1 Mbit/s is 10 hours"))
}

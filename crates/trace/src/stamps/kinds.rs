// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taps of a transmit stamp, sets of them, and clocks that stamps are of.
//!
//! Not here: what the stamps of a message come to ([`super`]).

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Mono, Scale, Tai, Utc};

use crate::record::Tap;

/// Where on its way out the kernel stamps a message, in the order of the way.
///
/// **Source**: linux v6.12 `include/uapi/linux/errqueue.h:SCM_TSTAMP_*`. `SCM_TSTAMP_SND` is
/// [`Software`](StampTap::Software) when the first of the three times of the control message is
/// set, and [`Hardware`](StampTap::Hardware) when the third is
/// (`Documentation/networking/timestamping.rst`, 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampTap {
    /// Before the queueing discipline.
    Sched,
    /// The driver took it, by the kernel's clock.
    Software,
    /// It left the network card, by the card's clock.
    Hardware,
    /// The other side has acknowledged it (byte streams only).
    Acknowledged,
}

impl StampTap {
    /// Every tap, in the order of the way.
    pub const ALL: [StampTap; 4] =
        [StampTap::Sched, StampTap::Software, StampTap::Hardware, StampTap::Acknowledged];

    /// Its place in [`StampTap::ALL`].
    pub const fn index(self) -> usize {
        match self {
            StampTap::Sched => 0,
            StampTap::Software => 1,
            StampTap::Hardware => 2,
            StampTap::Acknowledged => 3,
        }
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            StampTap::Sched => "sched",
            StampTap::Software => "software",
            StampTap::Hardware => "hardware",
            StampTap::Acknowledged => "acknowledged",
        }
    }

    /// The tap of a record; none for an acknowledgement.
    pub const fn record_tap(self) -> Option<Tap> {
        match self {
            StampTap::Sched => Some(Tap::QdiscEnter),
            StampTap::Software => Some(Tap::TxSw),
            StampTap::Hardware => Some(Tap::TxHw),
            StampTap::Acknowledged => None,
        }
    }
}

/// Some of the taps.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TapSet(u8);

impl TapSet {
    /// None of them.
    pub const EMPTY: TapSet = TapSet(0);

    /// These.
    pub fn of(taps: &[StampTap]) -> TapSet {
        taps.iter().fold(TapSet::EMPTY, |set, &tap| set.with(tap))
    }

    /// These and another.
    #[must_use]
    pub const fn with(self, tap: StampTap) -> TapSet {
        TapSet(self.0 | 1 << tap.index())
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, those: TapSet) -> TapSet {
        TapSet(self.0 & !those.0)
    }

    /// Whether a tap is among them.
    pub const fn has(self, tap: StampTap) -> bool {
        self.0 & 1 << tap.index() != 0
    }

    /// The last on the way; `None` of none.
    pub const fn last(self) -> Option<StampTap> {
        match self.0 {
            0 => None,
            1 => Some(StampTap::Sched),
            2..=3 => Some(StampTap::Software),
            4..=7 => Some(StampTap::Hardware),
            _ => Some(StampTap::Acknowledged),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each, in the order of the way.
    pub fn iter(self) -> impl Iterator<Item = StampTap> {
        StampTap::ALL.into_iter().filter(move |&tap| self.has(tap))
    }
}

impl std::fmt::Debug for TapSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The clock that a stamp is of. Two times of different clocks say nothing of each other until
/// somebody says how the clocks are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StampClock {
    /// The system's clock, counted as UTC: software stamps of sockets.
    Utc,
    /// The system's clock, counted as TAI.
    Tai,
    /// The system's clock that never steps.
    Mono,
    /// The clock of a network card, by its number, of `/dev/ptpN`.
    Phc(u32),
}

/// A time on the clock that it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClockTime {
    /// Which clock.
    pub clock: StampClock,
    /// What it showed. **Units**: nanoseconds since the clock's epoch.
    pub ns: i64,
}

/// A time scale that a clock of the system shows.
pub trait ClockScale: Scale {
    /// That clock.
    const CLOCK: StampClock;
}

impl ClockScale for Utc {
    const CLOCK: StampClock = StampClock::Utc;
}
impl ClockScale for Tai {
    const CLOCK: StampClock = StampClock::Tai;
}
impl ClockScale for Mono {
    const CLOCK: StampClock = StampClock::Mono;
}

impl<S: ClockScale> From<Instant<S>> for ClockTime {
    fn from(instant: Instant<S>) -> ClockTime {
        ClockTime { clock: S::CLOCK, ns: instant.as_ns() }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timestamp points of a transmit timestamp, sets of them, and clocks that timestamps are of.

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Mono, Scale, Tai, Utc};

use crate::record::TimestampPoint;

/// Where on its way out the kernel timestamps a message, in the order of the way.
///
/// **Source**: linux v6.12 `include/uapi/linux/errqueue.h:SCM_TSTAMP_*`. `SCM_TSTAMP_SND` is
/// [`Software`](TransmitPoint::Software) when the first of the three times of the control message
/// is set, and [`Hardware`](TransmitPoint::Hardware) when the third is
/// (`Documentation/networking/timestamping.rst`, 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransmitPoint {
    /// Before the queueing discipline.
    Sched,
    /// The driver took it, by the kernel's clock.
    Software,
    /// It left the NIC, by the NIC's clock.
    Hardware,
    /// The other side has acknowledged it (byte streams only).
    Acknowledged,
}

impl TransmitPoint {
    /// Every timestamp point, in the order of the way.
    pub const ALL: [TransmitPoint; 4] = [
        TransmitPoint::Sched,
        TransmitPoint::Software,
        TransmitPoint::Hardware,
        TransmitPoint::Acknowledged,
    ];

    /// Its place in [`TransmitPoint::ALL`].
    pub const fn index(self) -> usize {
        match self {
            TransmitPoint::Sched => 0,
            TransmitPoint::Software => 1,
            TransmitPoint::Hardware => 2,
            TransmitPoint::Acknowledged => 3,
        }
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            TransmitPoint::Sched => "sched",
            TransmitPoint::Software => "software",
            TransmitPoint::Hardware => "hardware",
            TransmitPoint::Acknowledged => "acknowledged",
        }
    }

    /// The timestamp point of a record; none for an acknowledgement.
    pub const fn record_point(self) -> Option<TimestampPoint> {
        match self {
            TransmitPoint::Sched => Some(TimestampPoint::QdiscEnter),
            TransmitPoint::Software => Some(TimestampPoint::TxSw),
            TransmitPoint::Hardware => Some(TimestampPoint::TxHw),
            TransmitPoint::Acknowledged => None,
        }
    }
}

/// Some of the timestamp points.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PointSet(u8);

impl PointSet {
    /// None of them.
    pub const EMPTY: PointSet = PointSet(0);

    /// These.
    pub fn of(points: &[TransmitPoint]) -> PointSet {
        points.iter().fold(PointSet::EMPTY, |set, &point| set.with(point))
    }

    /// These and another.
    #[must_use]
    pub const fn with(self, point: TransmitPoint) -> PointSet {
        PointSet(self.0 | 1 << point.index())
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, those: PointSet) -> PointSet {
        PointSet(self.0 & !those.0)
    }

    /// Whether a timestamp point is among them.
    pub const fn has(self, point: TransmitPoint) -> bool {
        self.0 & 1 << point.index() != 0
    }

    /// The last on the way; `None` of none.
    pub const fn last(self) -> Option<TransmitPoint> {
        match self.0 {
            0 => None,
            1 => Some(TransmitPoint::Sched),
            2..=3 => Some(TransmitPoint::Software),
            4..=7 => Some(TransmitPoint::Hardware),
            _ => Some(TransmitPoint::Acknowledged),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each, in the order of the way.
    pub fn iter(self) -> impl Iterator<Item = TransmitPoint> {
        TransmitPoint::ALL.into_iter().filter(move |&point| self.has(point))
    }
}

impl std::fmt::Debug for PointSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The clock that a timestamp is of. Two times of different clocks say nothing of each other until
/// somebody says how the clocks are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestampClock {
    /// The system's clock, counted as UTC: software timestamps of sockets.
    Utc,
    /// The system's clock, counted as TAI.
    Tai,
    /// The system's clock that never steps.
    Mono,
    /// The clock of a NIC, by its number, of `/dev/ptpN`.
    Phc(u32),
}

/// A time on the clock that it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClockTime {
    /// Which clock.
    pub clock: TimestampClock,
    /// What it showed. **Units**: nanoseconds since the clock's epoch.
    pub ns: i64,
}

/// A time scale that a clock of the system shows.
pub trait ClockScale: Scale {
    /// That clock.
    const CLOCK: TimestampClock;
}

impl ClockScale for Utc {
    const CLOCK: TimestampClock = TimestampClock::Utc;
}
impl ClockScale for Tai {
    const CLOCK: TimestampClock = TimestampClock::Tai;
}
impl ClockScale for Mono {
    const CLOCK: TimestampClock = TimestampClock::Mono;
}

impl<S: ClockScale> From<Instant<S>> for ClockTime {
    fn from(instant: Instant<S>) -> ClockTime {
        ClockTime { clock: S::CLOCK, ns: instant.as_ns() }
    }
}

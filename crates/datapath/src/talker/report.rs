// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker did: counters of each stream that add up, and how late it was.

use std::fmt;

use serde::Serialize;
use timewire_stats::HistogramSummary;

/// What became of the frames of a stream. Of a stream that has ended,
/// `planned = sent + skipped_woke_late + skipped_overran + expired + not_filled + not_taken +
/// refused`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamCounters {
    /// Frames whose time came, or that were posted.
    pub planned: u64,
    /// Given to the kernel, which took them.
    pub sent: u64,
    /// Left out: their deadline passed while the thread slept, which woke late.
    pub skipped_woke_late: u64,
    /// Left out: their deadline passed while the thread was busy with earlier ones, or filled them.
    pub skipped_overran: u64,
    /// Posted, and not sent because their deadline had passed.
    pub expired: u64,
    /// Left out by the program that was to fill them.
    pub not_filled: u64,
    /// No buffer was free, or the interface's queue or the socket's buffer was full.
    pub not_taken: u64,
    /// The kernel refused them for another reason, such as no route.
    pub refused: u64,
    /// Of those sent: after their deadline.
    pub past_deadline: u64,
    /// Of those sent: dropped by the queueing discipline because of an invalid launch time, mostly
    /// one that was past.
    pub launch_invalid: u64,
    /// Of those sent: dropped by the queueing discipline since it came to them too late.
    pub launch_missed: u64,
    /// Timestamps that came back.
    pub timestamps: u64,
    /// Timestamps that did not come back, or not while the talker waited for them.
    pub timestamps_missing: u64,
}

/// How many there are.
pub(super) const COUNTERS: usize = 13;

impl StreamCounters {
    /// Adds those of another stream.
    pub fn add(&mut self, other: &StreamCounters) {
        for (mine, other) in self.each().into_iter().zip(other.values()) {
            *mine += other;
        }
    }

    pub(super) fn values(mut self) -> [u64; COUNTERS] {
        self.each().map(|counter| *counter)
    }

    pub(super) fn from_values(values: [u64; COUNTERS]) -> StreamCounters {
        let mut counters = StreamCounters::default();
        counters.each().into_iter().zip(values).for_each(|(counter, value)| *counter = value);
        counters
    }

    fn each(&mut self) -> [&mut u64; COUNTERS] {
        // Named one by one: a counter that is new is not forgotten here.
        let StreamCounters {
            planned,
            sent,
            skipped_woke_late,
            skipped_overran,
            expired,
            not_filled,
            not_taken,
            refused,
            past_deadline,
            launch_invalid,
            launch_missed,
            timestamps,
            timestamps_missing,
        } = self;
        [
            planned,
            sent,
            skipped_woke_late,
            skipped_overran,
            expired,
            not_filled,
            not_taken,
            refused,
            past_deadline,
            launch_invalid,
            launch_missed,
            timestamps,
            timestamps_missing,
        ]
    }
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamReport {
    /// Its number.
    pub stream: u16,
    /// What became of its frames.
    pub counters: StreamCounters,
    /// From the time that a frame was due to that when it was written for the kernel.
    pub lateness: HistogramSummary,
}

/// Timestamps that were not the first and good one of their message at their timestamp point, of
/// all ports; see [`timewire_capture::timestamps::Verdict`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimestampFaults {
    /// First ones that their clock cannot have shown: it was set meanwhile. They are told as any
    /// other.
    pub suspect: u64,
    /// Further ones of the same message and timestamp point.
    pub duplicate: u64,
    /// Of these, such as say something else than the first.
    pub differing: u64,
    /// Those that came when their message had been given up.
    pub late: u64,
}

impl TimestampFaults {
    pub(crate) fn add(&mut self, other: TimestampFaults) {
        let TimestampFaults { suspect, duplicate, differing, late } = other;
        self.suspect += suspect;
        self.duplicate += duplicate;
        self.differing += differing;
        self.late += late;
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == TimestampFaults::default()
    }
}

/// In words, with their numbers; only those that there are.
impl fmt::Display for TimestampFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = [
            (self.suspect, "suspect (a clock was set)"),
            (self.duplicate, "duplicate"),
            (self.differing, "of these with another time"),
            (self.late, "too late"),
        ];
        let parts: Vec<String> = of
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

/// What a talker did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TalkerReport {
    /// Each stream, in the order they were given.
    pub streams: Vec<StreamReport>,
    /// From the time that the thread was to wake to that when it did, before it spun.
    pub wake_lateness: HistogramSummary,
    /// Rounds in which it did not sleep, since something was due already.
    pub busy_rounds: u64,
    /// Times that frames stayed in the ring of AF_XDP until the next flush.
    pub delayed: u64,
    /// ICMP and other errors about earlier messages.
    pub other_errors: u64,
    /// Timestamps that came twice, too late, or from a clock that was set.
    pub timestamp_faults: TimestampFaults,
    /// Reports about messages that are not known any more or were not taken.
    pub unknown_reports: u64,
    /// Reports that were lost because they were not asked for in time.
    pub lost_reports: u64,
}

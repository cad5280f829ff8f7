// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of the frames of a stream, in memory that has a bound.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timewire_stats::Samples;

use crate::SimTime;

/// Why a frame did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostBy {
    /// A queue was full.
    QueueFull,
    /// It came after its launch time.
    Late,
    /// It is longer than any window of its class.
    NeverFits,
    /// Asynchronous shaping would have kept it too long.
    Shaped,
    /// The link lost it.
    Link,
    /// It arrived damaged.
    Corrupted,
    /// The link was down, or went down.
    LinkDown,
    /// A station or bridge on the way started again.
    Restart,
    /// Sixteen collisions.
    Collisions,
}

impl LostBy {
    /// All of them, in the order of [`StreamResult::lost`].
    pub const ALL: [LostBy; 9] = [
        LostBy::QueueFull,
        LostBy::Late,
        LostBy::NeverFits,
        LostBy::Shaped,
        LostBy::Link,
        LostBy::Corrupted,
        LostBy::LinkDown,
        LostBy::Restart,
        LostBy::Collisions,
    ];

    /// A short name, as results have it.
    pub fn name(self) -> &'static str {
        match self {
            LostBy::QueueFull => "queue_full",
            LostBy::Late => "late",
            LostBy::NeverFits => "never_fits",
            LostBy::Shaped => "shaped",
            LostBy::Link => "link_loss",
            LostBy::Corrupted => "corrupted",
            LostBy::LinkDown => "link_down",
            LostBy::Restart => "restart",
            LostBy::Collisions => "collisions",
        }
    }

    pub(super) fn index(self) -> usize {
        LostBy::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }
}

/// Latencies, in picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies(Samples);

/// Latencies that are kept of all streams: 64 MiB.
const MAX_LATENCIES: usize = 1 << 23;
/// And of one stream at most.
const ROOM_OF_ONE: usize = 1 << 20;

impl Latencies {
    /// None yet, of one of so many streams, which share the room.
    pub(super) fn of_one_of(streams: usize) -> Latencies {
        Latencies(Samples::with_room((MAX_LATENCIES / streams.max(1)).min(ROOM_OF_ONE)))
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The smallest. **Units**: picoseconds; `None` without any.
    pub fn min_ps(&self) -> Option<u64> {
        Some(self.0.range()?.0.unsigned_abs())
    }

    /// The largest. **Units**: picoseconds; `None` without any.
    pub fn max_ps(&self) -> Option<u64> {
        Some(self.0.range()?.1.unsigned_abs())
    }

    /// The mean, rounded down. **Units**: picoseconds; `None` without any.
    pub fn mean_ps(&self) -> Option<u64> {
        self.0.mean().map(i64::unsigned_abs)
    }

    /// The smallest value that at least so many millionths do not exceed (nearest rank); at most
    /// 0.8 % too large where there was no room to keep all. **Units**: picoseconds; `None` without
    /// any.
    pub fn at_ppm(&self, ppm: u32) -> Option<u64> {
        self.0.percentile(ppm).map(i64::unsigned_abs)
    }

    /// The latencies of two runs together.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.merge(&other.0);
    }

    /// More, in the order in which they came.
    pub(super) fn add(&mut self, values: &[u64]) {
        // No simulation is as long as 2^63 ps, 106 days.
        self.0.extend(values.iter().map(|ps| i64::try_from(*ps).unwrap_or(i64::MAX)));
    }
}

/// What became of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamResult {
    /// Frames that its application released.
    pub sent: u64,
    /// Frames that arrived.
    pub delivered: u64,
    /// Frames that did not, in the order of [`LostBy::ALL`].
    pub lost: [u64; 9],
    /// Frames on their way at the end.
    pub in_flight: u64,
    /// Transmissions of its frames that were not within a window of their class by the right time.
    pub outside_windows: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// From release to the application that receives it.
    pub latencies: Latencies,
}

impl StreamResult {
    /// Lost for any reason.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// Whether each frame arrived, was lost, or is on its way.
    pub(super) fn is_balanced(&self) -> bool {
        self.sent == self.delivered + self.lost_total() + self.in_flight
    }

    /// Frames arrived, some with latencies that count.
    pub(super) fn arrived(&mut self, frames: usize, latencies: &[u64]) {
        self.delivered += u64::try_from(frames).unwrap_or(u64::MAX);
        self.latencies.add(latencies);
    }

    /// Two runs together.
    pub fn merge(&mut self, other: &StreamResult) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.in_flight += other.in_flight;
        self.outside_windows += other.outside_windows;
        self.timeouts += other.timeouts;
        for (own, other) in self.lost.iter_mut().zip(&other.lost) {
            *own += other;
        }
        self.latencies.merge(&other.latencies);
    }
}

/// Something that the simulation must never do; a mistake of the simulator, not of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: SimTime,
    /// What.
    pub what: &'static str,
}

/// What came out. It can be written and read again, but for mistakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimOutcome {
    /// Of each stream; where several listen, of all of them together: a message counts once for
    /// each.
    pub streams: Vec<StreamResult>,
    /// Of streams where several listen, by their number: of each listener, in the order of
    /// [`Network::listeners`].
    pub listeners: BTreeMap<usize, Vec<StreamResult>>,
    /// Events that were handled.
    pub events: u64,
    /// Frames that were sent by a port.
    pub hops: u64,
    /// Collisions on shared segments.
    pub collisions: u64,
    /// Mistakes of the simulator; empty, or nothing here is to be trusted.
    #[serde(skip)]
    pub violations: Vec<Violation>,
    /// Most frames between ports and in applications at the same time.
    pub most_in_flight: usize,
}

impl SimOutcome {
    /// Another run of the network, after this one.
    pub fn merge(&mut self, other: SimOutcome) {
        for (own, other) in self.streams.iter_mut().zip(&other.streams) {
            own.merge(other);
        }
        for (stream, results) in &other.listeners {
            let own = self.listeners.get_mut(stream).into_iter().flatten();
            own.zip(results).for_each(|(own, other)| own.merge(other));
        }
        self.events += other.events;
        self.hops += other.hops;
        self.collisions += other.collisions;
        self.violations.extend(other.violations);
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
    }
}

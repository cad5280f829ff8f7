// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of the frames of a stream, in memory that has a bound.
//!
//! Not here: exact percentiles of records (`timewire-trace`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

/// Latencies: each one while there is room for them, then counts of them, exact below 256 ns, then
/// in steps of less than 0.8 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// As they came. **Units**: picoseconds.
    kept: Vec<u64>,
    room: usize,
    /// Sorted by bucket; empty while all are kept.
    buckets: Vec<(u16, u32)>,
    count: u64,
    min_ps: u64,
    max_ps: u64,
    sum_ps: u128,
}

/// Buckets of each power of two: 2^7.
const STEPS_LOG2: u32 = 7;
/// Latencies that are kept of all streams: 64 MiB.
const ROOM: usize = 1 << 23;
/// And of one stream at most.
const ROOM_OF_ONE: usize = 1 << 20;

impl Latencies {
    /// None yet, of one of so many streams, which share the room.
    pub(super) fn of_one_of(streams: usize) -> Latencies {
        Latencies { room: (ROOM / streams.max(1)).min(ROOM_OF_ONE), ..Latencies::default() }
    }

    /// Whether each is known, and with that every percentile exactly.
    pub fn is_exact(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest. **Units**: picoseconds; `None` without any.
    pub fn min_ps(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ps)
    }

    /// The largest. **Units**: picoseconds; `None` without any.
    pub fn max_ps(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ps)
    }

    /// The mean, rounded down. **Units**: picoseconds; `None` without any.
    pub fn mean_ps(&self) -> Option<u64> {
        u64::try_from(self.sum_ps.checked_div(self.count.into())?).ok()
    }

    /// The smallest value that at least so many millionths do not exceed (nearest rank); at most
    /// 0.8 % too large unless it [is exact](Latencies::is_exact). **Units**: picoseconds; `None`
    /// without any.
    pub fn at_ppm(&self, ppm: u64) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(ppm)).div_ceil(1_000_000).max(1);
        if self.is_exact() {
            let place = usize::try_from(rank - 1).ok().filter(|place| *place < self.kept.len())?;
            return Some(*self.kept.clone().select_nth_unstable(place).1);
        }
        let mut below = 0_u128;
        for (bucket, count) in &self.buckets {
            below += u128::from(*count);
            if below >= rank {
                return Some(end_of(*bucket).saturating_mul(1_000).clamp(self.min_ps, self.max_ps));
            }
        }
        None
    }

    /// The latencies of two runs together.
    pub fn merge(&mut self, other: &Latencies) {
        if other.count == 0 {
            return;
        }
        let none = self.count == 0;
        self.min_ps = if none { other.min_ps } else { self.min_ps.min(other.min_ps) };
        self.max_ps = self.max_ps.max(other.max_ps);
        self.sum_ps += other.sum_ps;
        self.count += other.count;
        self.room = self.room.max(other.room);
        self.keep(&other.kept);
        if !other.is_exact() {
            self.count_kept();
        }
        for (bucket, count) in &other.buckets {
            self.count_in(*bucket, *count);
        }
    }

    /// More, in the order in which they came.
    pub(super) fn add(&mut self, values: &[u64]) {
        let Some(first) = values.first() else { return };
        let (mut min, mut max) = (if self.count == 0 { *first } else { self.min_ps }, self.max_ps);
        for ps in values {
            (min, max) = (min.min(*ps), max.max(*ps));
            self.sum_ps += u128::from(*ps);
            self.count += 1;
        }
        (self.min_ps, self.max_ps) = (min, max);
        let fit = match self.is_exact() {
            true => values.len().min(self.room.saturating_sub(self.kept.len())),
            false => 0,
        };
        let (fit, others) = values.split_at(fit);
        self.keep(fit);
        self.keep(others);
    }

    /// Keeps these, too, or only counts all from now on.
    fn keep(&mut self, values: &[u64]) {
        if values.is_empty() {
            return;
        }
        if self.is_exact() && self.kept.len() + values.len() <= self.room {
            self.kept.extend_from_slice(values);
            return;
        }
        self.count_kept();
        for ps in values {
            self.count_in(bucket_of_ps(*ps), 1);
        }
    }

    fn count_kept(&mut self) {
        for ps in std::mem::take(&mut self.kept) {
            self.count_in(bucket_of_ps(ps), 1);
        }
    }

    fn count_in(&mut self, bucket: u16, count: u32) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }
}

/// Rounded up, so that the end of a bucket is not below what is in it.
fn bucket_of_ps(ps: u64) -> u16 {
    bucket_of(ps.div_ceil(1_000))
}

fn bucket_of(ns: u64) -> u16 {
    let high = ns.checked_ilog2().unwrap_or(0);
    let shift = high.saturating_sub(STEPS_LOG2);
    let bucket = (u64::from(shift) << STEPS_LOG2) + (ns >> shift);
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// The largest value of a bucket.
fn end_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 2 << STEPS_LOG2 {
        return bucket;
    }
    let shift = (bucket >> STEPS_LOG2) - 1;
    let value = bucket - (shift << STEPS_LOG2);
    ((value + 1) << shift) - 1
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
pub struct Outcome {
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

impl Outcome {
    /// Another run of the network, after this one.
    pub fn merge(&mut self, other: Outcome) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn t0_percentiles_are_exact_while_there_is_room_and_then_within_a_step(
            values in proptest::collection::vec(0..10_000_000_000_u64, 1..300),
            ppm in 1..1_000_000_u64, room in 0..400_usize,
        ) {
            let empty = Latencies { room, ..Latencies::default() };
            let mut latencies = empty.clone();
            for value in &values { latencies.add(&[*value]); }
            prop_assert_eq!(latencies.is_exact(), values.len() <= room);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let count = u64::try_from(sorted.len()).unwrap();
            let rank = (count * ppm).div_ceil(1_000_000).max(1);
            let exact = sorted[usize::try_from(rank - 1).unwrap()];
            let said = latencies.at_ppm(ppm).unwrap();
            let step = if values.len() <= room { 0 } else { exact / 127 + 1_000 };
            prop_assert!(said >= exact && said <= exact + step, "{said} {exact}");
            prop_assert_eq!(latencies.max_ps(), sorted.last().copied());
            prop_assert_eq!(latencies.min_ps(), sorted.first().copied());
            prop_assert_eq!(latencies.mean_ps(), Some(sorted.iter().sum::<u64>() / count));
            let (mut one, mut two) = (empty.clone(), empty);
            for (n, value) in values.iter().enumerate() {
                if n % 2 == 0 { one.add(&[*value]) } else { two.add(&[*value]) }
            }
            one.merge(&two);
            one.kept.sort_unstable();
            latencies.kept.sort_unstable();
            prop_assert_eq!(one, latencies);
        }
    }
}

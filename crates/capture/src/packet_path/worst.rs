// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst packet paths: those that took longest, and those above a threshold, each with the
//! reason.

use std::collections::BTreeMap;

use super::PacketPath;
use super::culprit::Verdict;

/// A packet path and what took so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The packet path.
    pub packet_path: PacketPath,
    /// Its largest stage, and why.
    pub verdict: Verdict,
    /// The same in a sentence.
    pub sentence: String,
}

/// How many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The longest: so many.
    pub longest: usize,
    /// Those that took longer than this, whatever the bound of their clocks.
    ///
    /// **Units**: ns.
    pub above_ns: Option<i64>,
    /// At most so many of those, the first; all are counted.
    pub above: usize,
    /// Also the longest of each station at which packet paths end, until it is taken.
    pub of_stations: bool,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep { longest: 10, above_ns: None, above: 1_000, of_stations: false }
    }
}

/// Keeps the worst.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    keep: Keep,
    longest: Vec<Judged>,
    above: Vec<Judged>,
    count_above: u64,
    count_doubtful: u64,
    of_stations: BTreeMap<(u8, u8), Judged>,
}

impl Worst {
    /// Keeps so many.
    pub fn new(keep: Keep) -> Worst {
        Worst { keep, ..Worst::default() }
    }

    /// Looks at a packet path; `judge` is asked only when it is kept.
    pub fn add(
        &mut self,
        packet_path: &PacketPath,
        judge: impl FnOnce(&PacketPath) -> (Verdict, String),
    ) {
        let time = packet_path.end_to_end_ns();
        let bound = i64::try_from(packet_path.bound_ns()).unwrap_or(i64::MAX);
        let exceeds = |time: i64| self.keep.above_ns.is_some_and(|above| time > above);
        let above = exceeds(time.saturating_sub(bound));
        self.count_above += u64::from(above);
        self.count_doubtful += u64::from(!above && exceeds(time.saturating_add(bound)));
        let keep_above = above && self.above.len() < self.keep.above;
        // Of two that took as long the earlier one goes first.
        let place = self.longest.partition_point(|kept| kept.packet_path.end_to_end_ns() >= time);
        let keep_longest = place < self.keep.longest;
        let end = packet_path.points.last().filter(|_| self.keep.of_stations);
        let end = end.map(|point| (point.capture, point.station)).filter(|end| {
            let before = self.of_stations.get(end);
            before.is_none_or(|before| before.packet_path.end_to_end_ns() < time)
        });
        if !keep_above && !keep_longest && end.is_none() {
            return;
        }
        let (verdict, sentence) = judge(packet_path);
        let judged = Judged { packet_path: packet_path.clone(), verdict, sentence };
        if keep_above {
            self.above.push(judged.clone());
        }
        if let Some(end) = end {
            self.of_stations.insert(end, judged.clone());
        }
        if keep_longest {
            self.longest.insert(place, judged);
            self.longest.truncate(self.keep.longest);
        }
    }

    /// The longest, descending.
    pub fn longest(&self) -> &[Judged] {
        &self.longest
    }

    /// The longest of each station since this was asked last, by where it ended.
    pub fn take_of_stations(&mut self) -> BTreeMap<(u8, u8), Judged> {
        std::mem::take(&mut self.of_stations)
    }

    /// Those above the threshold, as they came.
    pub fn above(&self) -> &[Judged] {
        &self.above
    }

    /// How many may be above it or not: they are within the bound of the clocks of two hosts.
    pub fn count_doubtful(&self) -> u64 {
        self.count_doubtful
    }

    /// How many are above it, kept or not.
    pub fn count_above(&self) -> u64 {
        self.count_above
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is on each link over its cycle: who overlaps whom, and who can be early.

use std::collections::BTreeSet;

use super::finding::Findings;
use super::{CheckError, Finding, MAX_INSTANCES, Rule, Sent, greatest_common_divisor};
use crate::model::{Problem, Role};

/// A transmission in a cycle: its start there, and its place in the list of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instance {
    pub(super) start: i64,
    pub(super) place: usize,
}

/// When a frame must wait for its queue's gate.
pub(super) struct Gates {
    pub(super) cycle: i64,
    /// By queue: when it is open, in order, joined where they touch.
    pub(super) open: Vec<Vec<(i64, i64)>>,
}

pub(super) struct OnLink {
    /// The least common multiple of the intervals.
    pub(super) cycle: i64,
    /// By start.
    pub(super) instances: Vec<Instance>,
    pub(super) gates: Option<Gates>,
}

/// By link.
pub(super) struct Links {
    pub(super) links: Vec<OnLink>,
}

impl Links {
    /// Everything that is sent on each link in a cycle of it.
    pub(super) fn new(problem: &Problem, sent: &[Sent]) -> Result<Links, CheckError> {
        let network = problem.network();
        let mut links: Vec<OnLink> = network
            .links()
            .iter()
            .map(|_| OnLink { cycle: 1, instances: Vec::new(), gates: None })
            .collect();
        for here in sent {
            let cycle = &mut links[here.link.index()].cycle;
            // A divisor of the problem's cycle, so it fits.
            *cycle *= here.interval / greatest_common_divisor(*cycle, here.interval);
        }
        let count = |here: &Sent| links[here.link.index()].cycle / here.interval;
        let instances: u64 = sent.iter().map(|here| count(here).unsigned_abs()).sum();
        if instances > MAX_INSTANCES {
            return Err(CheckError::TooMany { instances, most: MAX_INSTANCES });
        }
        for (place, here) in sent.iter().enumerate() {
            let link = &mut links[here.link.index()];
            let mut start = here.start.rem_euclid(here.interval);
            while start < link.cycle {
                link.instances.push(Instance { start, place });
                start += here.interval;
            }
        }
        for link in &mut links {
            link.instances.sort_unstable();
        }
        Ok(Links { links })
    }

    /// How many transmissions were gone through.
    pub(super) fn instances(&self) -> u64 {
        self.links.iter().map(|link| u64::try_from(link.instances.len()).unwrap_or(u64::MAX)).sum()
    }

    /// No two at once.
    pub(super) fn overlaps(&self, sent: &[Sent], findings: &mut Findings<'_>) {
        for link in &self.links {
            let mut told = BTreeSet::new();
            // Who holds the link for longest so far; the first round is the cycle before.
            let mut holder: Option<(i64, usize)> = None;
            for round in [-link.cycle, 0] {
                for (number, instance) in link.instances.iter().enumerate() {
                    if findings.is_over_at(number) {
                        return;
                    }
                    let here = &sent[instance.place];
                    let start = instance.start + round;
                    if let Some((until, other)) =
                        holder.filter(|(until, _)| round == 0 && *until > start)
                    {
                        let both = (
                            here.stream.min(sent[other].stream),
                            here.stream.max(sent[other].stream),
                        );
                        if told.insert(both) {
                            let finding = Finding::of(Rule::Overlap).link(here.link);
                            let finding = finding.streams(&[here.stream, sent[other].stream]);
                            let finding = finding.frame(here.frame).at(instance.start);
                            findings.add(finding.found(start, until));
                        }
                    }
                    let end = start + here.occupancy;
                    if holder.is_none_or(|(until, _)| until < end) {
                        holder = Some((end, instance.place));
                    }
                }
            }
        }
    }

    /// How much earlier than planned each frame can start: because processing was shorter and
    /// clocks differ, as far as gates and what is sent before let it.
    ///
    /// First without regard to what is sent before, which gives upper bounds; then each round takes
    /// the bounds of the round before.
    pub(super) fn earliness(&self, sent: &mut [Sent], findings: &mut Findings<'_>) {
        for round in 0..ROUNDS {
            let mut changed = false;
            for place in 0..sent.len() {
                if findings.is_over_at(place) {
                    return;
                }
                let before = sent[place].before.map_or(0, |before| sent[before].early);
                let wait = sent[place].wait + before;
                let early = if wait == 0 { 0 } else { self.early(sent, place, wait, round > 0) };
                changed |= early != sent[place].early;
                sent[place].early = early;
            }
            if !changed {
                break;
            }
        }
    }

    fn early(&self, sent: &[Sent], place: usize, wait: i64, regard: bool) -> i64 {
        let here = &sent[place];
        let link = &self.links[here.link.index()];
        let mut most = 0;
        let mut start = here.start.rem_euclid(here.interval);
        while start < link.cycle {
            let opens = |at| match &link.gates {
                Some(gates) => gates.opens(here.queue, at, here.length).unwrap_or(start).min(start),
                None => at,
            };
            let mut at = opens(start - wait);
            if regard && at < start {
                at = opens(at.max(link.free(sent, Instance { start, place })).min(start));
            }
            most = most.max(start - at);
            start += here.interval;
        }
        most
    }

    /// No frame is there in another's turn: the frame of another stream that starts before it, in
    /// the same queue or where no gate keeps them apart, has surely started when it comes.
    pub(super) fn isolation(&self, problem: &Problem, sent: &[Sent], findings: &mut Findings<'_>) {
        let network = problem.network();
        for (index, link) in self.links.iter().enumerate() {
            let talks = network.node(network.links()[index].from).role == Role::EndStation;
            if talks {
                continue;
            }
            let mut told = BTreeSet::new();
            // By queue: the last transmission, and the last one of another stream than that.
            let mut last: Vec<[Option<(i64, usize)>; 2]> = vec![[None; 2]; 256];
            for round in [-link.cycle, 0] {
                for (number, instance) in link.instances.iter().enumerate() {
                    if findings.is_over_at(number) {
                        return;
                    }
                    let here = &sent[instance.place];
                    let start = instance.start + round;
                    let queue = if link.gates.is_some() { usize::from(here.queue) } else { 0 };
                    let other = last[queue]
                        .into_iter()
                        .flatten()
                        .find(|(_, other)| sent[*other].stream != here.stream);
                    let comes = start - here.wait - here.before.map_or(0, |it| sent[it].early);
                    if let Some((turn, other)) =
                        other.filter(|(turn, _)| round == 0 && comes <= *turn)
                        && turn < start
                        && told.insert((here.stream, sent[other].stream))
                    {
                        let finding = Finding::of(Rule::Isolation).link(here.link);
                        let finding = finding.streams(&[here.stream, sent[other].stream]);
                        let finding = finding.frame(here.frame).at(instance.start);
                        findings.add(finding.found(comes, turn));
                    }
                    let last = &mut last[queue];
                    let same = last[0].is_none_or(|(_, it)| sent[it].stream == here.stream);
                    *last = [Some((start, instance.place)), if same { last[1] } else { last[0] }];
                }
            }
        }
    }
}

/// Rounds of taking what is sent before into account.
const ROUNDS: u32 = 6;

impl OnLink {
    /// Goes on for a multiple of the cycle; false if it is none, or too long to go through.
    pub(super) fn widen(&mut self, cycle: i64) -> bool {
        if cycle <= 0 || cycle % self.cycle != 0 {
            return false;
        }
        let times = cycle / self.cycle;
        let instances = i64::try_from(self.instances.len()).unwrap_or(i64::MAX);
        if times.saturating_mul(instances).unsigned_abs() > MAX_INSTANCES {
            return false;
        }
        let once = self.instances.clone();
        for round in 1..times {
            let shift = round * self.cycle;
            self.instances.extend(
                once.iter().map(|it| Instance { start: it.start + shift, place: it.place }),
            );
        }
        self.cycle = cycle;
        true
    }

    /// When what is sent before has left at the earliest; far back if nothing is.
    fn free(&self, sent: &[Sent], instance: Instance) -> i64 {
        let place = self.instances.partition_point(|other| *other < instance);
        let (before, shift) = match place.checked_sub(1) {
            Some(before) => (self.instances[before], 0),
            None => (self.instances[self.instances.len() - 1], self.cycle),
        };
        let other = &sent[before.place];
        before.start - shift + other.length - other.early
    }
}

impl Gates {
    /// The first instant at or after `at` at which the queue's gate is open for so long that a
    /// frame of this length fits; `None`: there is none.
    fn opens(&self, queue: u8, at: i64, length: i64) -> Option<i64> {
        let open = self.open.get(usize::from(queue)).filter(|open| !open.is_empty())?;
        let round = at.div_euclid(self.cycle) * self.cycle;
        let phase = at - round;
        let next = open.partition_point(|(_, end)| *end <= phase);
        // Each window, the one after the turn of the cycle as well, is looked at once.
        (next..=next + open.len()).find_map(|place| {
            let turns = i64::try_from(place / open.len()).ok()?;
            let (start, end) = open[place % open.len()];
            let over = open[0].0 == 0 && end == self.cycle && open.len() > 1;
            let end = if over { end + open[0].1 } else { end };
            let shift = round + turns * self.cycle;
            let start = (start + shift).max(at);
            (end + shift - start >= length).then_some(start)
        })
    }

    /// Whether the gate is open all the time.
    pub(super) fn covers(&self, queue: u8, start: i64, length: i64) -> bool {
        let Some(open) = self.open.get(usize::from(queue)) else { return false };
        let mut at = start.rem_euclid(self.cycle);
        let mut left = length;
        while left > 0 {
            let next = open.partition_point(|(_, end)| *end <= at);
            match open.get(next) {
                Some((start, end)) if *start <= at => {
                    left -= end - at;
                    at = if *end == self.cycle { 0 } else { *end };
                }
                _ => return false,
            }
        }
        true
    }
}

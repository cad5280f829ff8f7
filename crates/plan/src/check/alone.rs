// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a stream whose starts nobody tells has some with which it arrives in time, as far as
//! gates go: of all starts that it may have, not of some.
//!
//! Gates hold a frame until they let it go, so that a later start never arrives sooner, and between
//! two starts at which some gate was reached just in time the latency does not rise. It is least at
//! one of those starts, or at the last that the stream may have; these are looked at.

use std::collections::{BTreeMap, BTreeSet};

use super::greatest_common_divisor;
use super::times::{forwarding, occupancy};
use crate::model::{LinkId, Network, Stream};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    /// Some start is in time.
    InTime,
    /// With none: the gates of this port let no frame of it through.
    Shut(LinkId),
    /// With none: the least latency that any start has. **Units**: nanoseconds.
    Late(i64),
    /// There are too many starts to look at each.
    Undecided,
}

/// The most starts that are looked at for a stream.
const MAX_STARTS: usize = 50_000;
/// The most intervals of a stream in which its frames may lie differently in the cycle of a port.
const MAX_TURNS: i64 = 10_000;

/// When a frame can start on a port so that its gate is open for it in every interval alike:
/// periodic, from and until, both included.
pub(super) struct Starts {
    period: i64,
    spans: Vec<(i64, i64)>,
    /// Whether the intervals were too many to look at each.
    is_cut: bool,
}

impl Starts {
    /// `open`: when the gate is open in two cycles, joined where they touch.
    pub(super) fn new(open: &[(i64, i64)], cycle: i64, length: i64, stream: &Stream) -> Starts {
        let period = greatest_common_divisor(cycle, stream.interval.as_ns()).max(1);
        let is_cut = cycle / period > MAX_TURNS;
        if open == [(0, 2 * cycle)] {
            return Starts { period, spans: vec![(0, period - 1)], is_cut: false };
        }
        // In one cycle, where its last nanosecond is the latest start.
        let mut fits: Vec<(i64, i64)> = Vec::new();
        for (from, until) in open {
            let last = (until - length).min(cycle - 1);
            if *from <= last {
                fits.push((*from, last));
            }
        }
        let mut spans = vec![(0, period - 1)];
        let turns = if is_cut { 0 } else { cycle / period };
        for turn in 0..turns {
            let at = turn * period;
            let own = fits.iter().map(|(from, until)| (from - at, until - at));
            let own: Vec<(i64, i64)> = own.collect();
            spans = common(&spans, &own);
        }
        Starts { period, spans, is_cut }
    }

    /// The first at or after an instant.
    fn next(&self, at: i64) -> Option<i64> {
        let round = at.div_euclid(self.period) * self.period;
        let phase = at - round;
        let after = self.spans.iter().find(|(_, until)| *until >= phase);
        let next = after.map(|(from, _)| round + phase.max(*from));
        next.or_else(|| self.spans.first().map(|(from, _)| round + self.period + from))
    }
}

/// What is in both, each in order.
fn common(one: &[(i64, i64)], other: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let (mut all, mut at) = (Vec::new(), 0);
    for (from, until) in one {
        while other.get(at).is_some_and(|(_, end)| end < from) {
            at += 1;
        }
        for (start, end) in other[at..].iter().take_while(|(start, _)| start <= until) {
            all.push((*from.max(start), *until.min(end)));
        }
    }
    all
}

/// The way of a stream, and the gates on it.
struct StreamRoute<'a> {
    network: &'a Network,
    stream: &'a Stream,
    trees: &'a [Vec<LinkId>],
    gates: BTreeMap<LinkId, Starts>,
}

/// Looks at all starts of a stream that matter. `gates` are those of a port, where it has some.
pub(super) fn any_start(
    network: &Network,
    stream: &Stream,
    trees: &[Vec<LinkId>],
    gates: impl Fn(LinkId) -> Option<Starts>,
) -> Alone {
    let links: BTreeSet<LinkId> = trees.iter().flatten().copied().collect();
    let own: BTreeMap<LinkId, Starts> =
        links.iter().filter_map(|link| Some((*link, gates(*link)?))).collect();
    if own.values().any(|starts| starts.is_cut) {
        return Alone::Undecided;
    }
    if let Some((link, _)) = own.iter().find(|(_, starts)| starts.spans.is_empty()) {
        return Alone::Shut(*link);
    }
    let way = StreamRoute { network, stream, trees, gates: own };
    let (earliest, latest) = (stream.release.earliest.as_ns(), stream.release_latest().as_ns());
    let (starts, is_cut) = way.candidates(earliest, latest);
    let mut least: Option<i64> = None;
    for start in starts {
        let Some(latency) = way.latency(start) else { continue };
        if latency <= stream.latency_max.as_ns() {
            return Alone::InTime;
        }
        least = Some(least.map_or(latency, |least| least.min(latency)));
    }
    let first = trees.iter().flatten().find(|link| network.link(**link).from == stream.talker);
    match (least, first) {
        _ if is_cut => Alone::Undecided,
        (Some(latency), _) => Alone::Late(latency),
        (None, Some(link)) => Alone::Shut(*link),
        (None, None) => Alone::Undecided,
    }
}

impl StreamRoute<'_> {
    /// Starts at which a gate is reached just in time, the first and the last; and whether there
    /// were more.
    fn candidates(&self, earliest: i64, latest: i64) -> (BTreeSet<i64>, bool) {
        let mut all = BTreeSet::from([earliest, latest]);
        let open = BTreeMap::new();
        for ((_, link, _), at) in self.follow(0, &open).unwrap_or_default() {
            let Some(starts) = self.gates.get(&link) else { continue };
            let edges = starts.spans.iter().flat_map(|(from, until)| [*from, *until]);
            for edge in edges {
                let shift = edge - at - earliest;
                let mut start = earliest + shift.rem_euclid(starts.period);
                while start <= latest {
                    if all.len() >= MAX_STARTS {
                        return (all, true);
                    }
                    all.insert(start);
                    start += starts.period;
                }
            }
        }
        (all, false)
    }

    /// From this start until the last bit is at the last listener; `None`: the talker's gate is
    /// shut then.
    fn latency(&self, start: i64) -> Option<i64> {
        let sent = self.follow(start, &self.gates)?;
        let end = sent.iter().map(|((_, link, _), at)| {
            let propagation = self.network.link(*link).propagation.as_ns();
            at + occupancy(self.network, *link, self.stream) + propagation
        });
        end.max().map(|end| end - start)
    }

    /// By copy, link and frame when it starts: as soon as it is there and the gate lets it, frames
    /// in their order. The first frame starts at the talker when it is told to.
    fn follow(
        &self,
        start: i64,
        gates: &BTreeMap<LinkId, Starts>,
    ) -> Option<BTreeMap<(u8, LinkId, u32), i64>> {
        let mut all: BTreeMap<(u8, LinkId, u32), i64> = BTreeMap::new();
        for (copy, tree) in (0_u8..).zip(self.trees) {
            for link in tree {
                let from = self.network.link(*link).from;
                let before = tree.iter().find(|other| self.network.link(**other).to == from);
                let busy = occupancy(self.network, *link, self.stream);
                let mut free = i64::MIN;
                for frame in 0..self.stream.frames {
                    let there = match before {
                        Some(before) => {
                            let sent = all.get(&(copy, *before, frame)).copied()?;
                            sent + forwarding(self.network, *before, *link, self.stream)
                        }
                        None => start,
                    };
                    let ready = there.max(free);
                    let starts = gates.get(link).map_or(Some(ready), |gate| gate.next(ready))?;
                    if before.is_none() && frame == 0 && starts != start {
                        return None;
                    }
                    free = starts + busy;
                    all.insert((copy, *link, frame), starts);
                }
            }
        }
        Some(all)
    }
}

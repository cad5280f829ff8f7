// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the reason of a refusal: small enough to be read, and without anything of the search.
//!
//! A proof is accepted when each number in it is derived again and the conclusion follows. What
//! says itself that it is none is not proven, however likely.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use timewire_base::Span;

use super::times::{forwarding, occupancy, vagueness};
use super::{Verdict, greatest_common_divisor as divisor_of};
use crate::model::{
    Certificate, LinkId, Network, NodeId, Plan, Problem, Refusal, Role, Route, Stream, StreamId,
};

pub(super) type Judged = Result<Verdict, String>;

/// Derives the certificate's numbers again.
pub fn judge(problem: &Problem, plan: &Plan, refusal: &Refusal) -> Verdict {
    let Some(stream) = problem.streams().get(refusal.stream.index()) else {
        return Verdict::Wrong { why: "there is no such stream".to_owned() };
    };
    let (network, refused) = (problem.network(), refusal.stream);
    let judge = Judge { problem, plan, network, refused, stream };
    let judged = match &refusal.certificate {
        Certificate::NoPath { listener, copies } => judge.no_path(*listener, *copies),
        Certificate::MinimumLatency { listener, path, needed, allowed } => {
            judge.minimum_latency(*listener, path, needed.as_ns(), allowed.as_ns())
        }
        Certificate::Jitter { listener, path, parts, needed, proof: true, .. } => {
            judge.jitter(*listener, path, parts, *needed)
        }
        Certificate::Window { link, needed, available } => judge.window(*link, *needed, *available),
        Certificate::LinkLoad { link, streams, needed, cycle } => {
            judge.link_load(*link, streams, *needed, *cycle)
        }
        Certificate::PairConflict { link, other, needed, divisor } => {
            let streams = [refusal.stream, *other];
            judge.pigeonhole(*link, &streams, *needed, *divisor)
        }
        Certificate::Clique { link, streams, needed, divisor } => {
            judge.pigeonhole(*link, streams, *needed, *divisor)
        }
        Certificate::NoInstant { node } => judge.no_instant(*node),
        Certificate::Cases { parts, tree } => judge.cases(parts, tree),
        Certificate::Packing { link, bin, streams, alike, tree } => {
            judge.packing(*link, *bin, streams, alike, tree)
        }
        _ => Ok(Verdict::NotProven),
    };
    judged.unwrap_or_else(|why| Verdict::Wrong { why })
}

pub(super) struct Judge<'a> {
    pub(super) problem: &'a Problem,
    plan: &'a Plan,
    pub(super) network: &'a Network,
    refused: StreamId,
    stream: &'a Stream,
}

impl Judge<'_> {
    fn no_path(&self, listener: NodeId, copies: u8) -> Judged {
        ensure(self.stream.listeners.contains(&listener), "it does not listen")?;
        ensure(copies == self.stream.copies, "the stream has another number of copies")?;
        let ways = self.ways(self.stream, listener, None);
        ensure(ways < copies, "there are ways enough")?;
        Ok(Verdict::Proven)
    }

    fn no_instant(&self, node: NodeId) -> Judged {
        ensure(node == self.stream.talker, "it does not talk")?;
        let limits = &self.network.node(node).limits;
        let waits = limits.launch_time || limits.gate_entries != Some(0);
        ensure(!waits, "it has gates or launch times")?;
        Ok(Verdict::Proven)
    }

    fn minimum_latency(&self, to: NodeId, path: &[LinkId], needed: i64, allowed: i64) -> Judged {
        ensure(self.stream.listeners.contains(&to), "it does not listen")?;
        ensure(allowed == self.stream.latency_max.as_ns(), "more is allowed, or less")?;
        ensure(self.leads(path, to), "the path does not lead to the listener")?;
        // What is claimed may be less than the exact least, but must be more than is allowed.
        let best = self.quickest(to).ok_or("there is no path")?;
        ensure(needed <= best, "there is a way that takes less")?;
        ensure(needed > allowed, "it is quick enough")?;
        Ok(Verdict::Proven)
    }

    fn jitter(&self, to: NodeId, path: &[LinkId], parts: &[Span], needed: Span) -> Judged {
        ensure(self.leads(path, to), "the path does not lead to a listener")?;
        let sum = parts.iter().try_fold(Span::ZERO, |sum, part| sum.checked_add(*part));
        ensure(parts.len() == path.len() && sum == Some(needed), "its parts are another sum")?;
        let (vague, links) = (vagueness(self.network), self.links_of(self.stream));
        let last = links.iter().filter(|id| self.network.link(**id).to == to);
        let least = last.map(|id| vague[id.index()]).min().ok_or("there is no path")?;
        ensure(needed.as_ns() <= least, "there is a way that differs less")?;
        let allowed = self.stream.jitter_max.ok_or("it may differ by anything")?;
        ensure(needed > allowed, "it differs little enough")?;
        Ok(Verdict::Proven)
    }

    fn window(&self, link: LinkId, needed: Span, available: Span) -> Judged {
        self.forced(self.refused, link)?;
        ensure(available == self.stream.interval, "the interval is another")?;
        let message = occupancy(self.network, link, self.stream) * i64::from(self.stream.frames);
        ensure(needed.as_ns() == message, "the message occupies the link for another time")?;
        ensure(needed > available, "it is short enough")?;
        Ok(Verdict::Proven)
    }

    fn link_load(&self, link: LinkId, streams: &[StreamId], needed: Span, cycle: Span) -> Judged {
        let streams = self.named(link, streams)?;
        let (mut common, mut load) = (1_i64, 0_i128);
        for stream in &streams {
            common *= stream.interval.as_ns() / divisor_of(common, stream.interval.as_ns());
        }
        for stream in &streams {
            let frames = i128::from(common / stream.interval.as_ns()) * i128::from(stream.frames);
            load += frames * i128::from(occupancy(self.network, link, stream));
        }
        ensure(cycle.as_ns() == common, "the common multiple of the intervals is another")?;
        ensure(i128::from(needed.as_ns()) == load, "the load is another")?;
        ensure(load > i128::from(common), "there is room for all")?;
        Ok(Verdict::Proven)
    }

    /// Frames of two streams that are disjoint in all intervals are disjoint modulo the greatest
    /// common divisor of both, and so modulo any multiple of it. If that holds for every two, they
    /// share one span. Of a message's frames one counts, unless its interval is the span itself.
    fn pigeonhole(
        &self,
        link: LinkId,
        streams: &[StreamId],
        needed: Span,
        divisor: Span,
    ) -> Judged {
        let streams = self.named(link, streams)?;
        ensure(streams.len() > 1 && divisor > Span::ZERO, "it takes two streams and a divisor")?;
        let divisor = divisor.as_ns();
        for (index, one) in streams.iter().enumerate() {
            for other in &streams[..index] {
                let common = divisor_of(one.interval.as_ns(), other.interval.as_ns());
                ensure(divisor % common == 0, "two intervals have another common divisor")?;
            }
        }
        let (mut single, mut whole, mut proven) = (0_i64, 0_i64, 0_i64);
        for stream in &streams {
            let frame = occupancy(self.network, link, stream);
            let message = frame * i64::from(stream.frames);
            (single, whole) = (single + frame, whole + message);
            proven += if stream.interval.as_ns() == divisor { message } else { frame };
        }
        ensure(
            [single, whole, proven].contains(&needed.as_ns()),
            "frames of each fill another time",
        )?;
        ensure(proven > divisor, "they fit")?;
        Ok(Verdict::Proven)
    }

    /// The streams, each once, with the refused one, the others admitted, none of which can avoid
    /// the link.
    fn named(&self, link: LinkId, streams: &[StreamId]) -> Result<Vec<&Stream>, String> {
        let distinct = self.distinct(streams)?;
        for id in &distinct {
            self.forced(*id, link)?;
        }
        Ok(distinct.into_iter().map(|id| self.problem.stream(id)).collect())
    }

    /// The streams, each once, with the refused one, the others admitted.
    pub(super) fn distinct(&self, streams: &[StreamId]) -> Result<BTreeSet<StreamId>, String> {
        let distinct: BTreeSet<StreamId> = streams.iter().copied().collect();
        ensure(distinct.len() == streams.len(), "a stream is named twice")?;
        ensure(distinct.contains(&self.refused), "the refused stream is not named")?;
        for id in &distinct {
            let admitted = self.plan.admitted.iter().any(|admission| admission.stream == *id);
            ensure(admitted || *id == self.refused, "a stream is named that is not admitted")?;
        }
        Ok(distinct)
    }

    pub(super) fn forced(&self, id: StreamId, link: LinkId) -> Result<(), String> {
        let stream = self.problem.streams().get(id.index()).ok_or("there is no such stream")?;
        ensure(self.network.links().get(link.index()).is_some(), "there is no such link")?;
        let avoids = |node: &NodeId| self.ways(stream, *node, Some(link)) >= stream.copies;
        ensure(!stream.listeners.iter().all(avoids), "a stream can avoid the link")
    }

    /// Whether the stream may use the link.
    fn usable(&self, stream: &Stream, id: LinkId) -> bool {
        let link = self.network.link(id);
        let forwards =
            link.from == stream.talker || self.network.node(link.from).role == Role::Bridge;
        let given = match &stream.route {
            Route::Free => true,
            Route::Given(trees) => trees.iter().any(|tree| tree.contains(&id)),
        };
        forwards && given && link.to != stream.talker
    }

    fn links_of(&self, stream: &Stream) -> Vec<LinkId> {
        let all = (0..self.network.links().len()).map(LinkId::from_index);
        all.filter(|id| self.usable(stream, *id)).collect()
    }

    /// How many ways without a common link there are, as far as copies ask for; by augmenting.
    fn ways(&self, stream: &Stream, listener: NodeId, without: Option<LinkId>) -> u8 {
        let mut links = self.links_of(stream);
        links.retain(|id| Some(*id) != without);
        // By node: links that leave it, and links that come to it, which a way may give back.
        let mut around = vec![Vec::new(); self.network.nodes().len()];
        for (index, id) in links.iter().enumerate() {
            around[self.network.link(*id).from.index()].push((index, true));
            around[self.network.link(*id).to.index()].push((index, false));
        }
        let mut used = vec![false; links.len()];
        for way in 0..stream.copies {
            let mut came: Vec<Option<(usize, bool)>> = vec![None; around.len()];
            let mut open = vec![stream.talker];
            while let Some(node) = open.pop() {
                for &(index, forth) in &around[node.index()] {
                    let link = self.network.link(links[index]);
                    let next = if forth { link.to } else { link.from };
                    let new = next != stream.talker && came[next.index()].is_none();
                    if new && used[index] != forth {
                        came[next.index()] = Some((index, forth));
                        open.push(next);
                    }
                }
            }
            let mut at = listener;
            if came[at.index()].is_none() {
                return way;
            }
            while let Some((index, forth)) = came[at.index()] {
                used[index] = forth;
                let link = self.network.link(links[index]);
                at = if forth { link.from } else { link.to };
            }
        }
        stream.copies
    }

    /// One frame's time to the end of its last link.
    fn last(&self, link: LinkId) -> i64 {
        occupancy(self.network, link, self.stream) + self.network.link(link).propagation.as_ns()
    }

    fn leads(&self, path: &[LinkId], listener: NodeId) -> bool {
        let mut at = Some(self.stream.talker);
        for id in path {
            let link = self.network.links().get(id.index());
            let goes_on =
                link.filter(|link| Some(link.from) == at && self.usable(self.stream, *id));
            at = goes_on.map(|link| link.to);
        }
        at == Some(listener) && self.stream.listeners.contains(&listener)
    }

    /// The least time over all ways: for each occupancy that may be the longest on the way, the
    /// quickest way over links that are not slower.
    fn quickest(&self, listener: NodeId) -> Option<i64> {
        let usable = self.links_of(self.stream);
        let times: BTreeSet<i64> =
            usable.iter().map(|id| occupancy(self.network, *id, self.stream)).collect();
        let mut leaving = vec![Vec::new(); self.network.nodes().len()];
        for id in &usable {
            leaving[self.network.link(*id).from.index()].push(*id);
        }
        let others = i64::from(self.stream.frames - 1);
        let best = |longest| Some(self.first(listener, longest, &leaving)? + longest * others);
        times.into_iter().filter_map(best).min()
    }

    /// The least time of one frame; what is settled is its start on a link.
    fn first(&self, listener: NodeId, longest: i64, leaving: &[Vec<LinkId>]) -> Option<i64> {
        let mut settled = BTreeSet::new();
        let mut best: Option<i64> = None;
        let first = leaving[self.stream.talker.index()].iter().map(|id| Reverse((0, *id)));
        let mut open: BinaryHeap<Reverse<(i64, LinkId)>> = first.collect();
        while let Some(Reverse((start, id))) = open.pop() {
            if occupancy(self.network, id, self.stream) > longest || !settled.insert(id) {
                continue;
            }
            let to = self.network.link(id).to;
            if to == listener {
                let time = start + self.last(id);
                best = Some(best.map_or(time, |best| best.min(time)));
            }
            for next in leaving[to.index()].iter().filter(|next| !settled.contains(next)) {
                open.push(Reverse((
                    start + forwarding(self.network, id, *next, self.stream),
                    *next,
                )));
            }
        }
        best
    }
}

pub(super) fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

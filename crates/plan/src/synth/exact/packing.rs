// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places all streams of a full link anew: who is in which of its bins, and one after the other in
//! each of them, as far as the other links of their ways are free then.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{Sequence, Span};

use super::super::Planner;
use super::super::shape::Stretch;
use super::super::table::{Item as Busy, divisor};
use super::LinkId;
use super::bins::Bins;
use super::order::{Near, Order};
use super::overfull::Entry;
use crate::model::{Certificate, PackingCase, StreamId};

/// Links that are packed, at most, and packings of one that are put in order.
const MAX_LINKS: usize = 4;
const MAX_PACKINGS: u32 = 64;
/// Links that are less full are not packed. **Units**: 2^20ths.
const LEAST_LOAD: i64 = (3 << 20) / 4;

/// A stream on the link that is packed.
struct Member {
    id: usize,
    interval: i64,
    /// From the start at the talker until it is on the link, and for how long it is.
    start: i64,
    length: i64,
    /// The other links, from its start on this one.
    others: Vec<Stretch>,
}

impl Planner {
    /// Packs the links of those that wait, the fullest first; who still waits.
    pub(super) fn pack(&mut self, mut left: Vec<usize>, steps: &mut u64) -> Vec<usize> {
        let links: BTreeSet<LinkId> = left.iter().flat_map(|id| self.links_of(*id)).collect();
        let mut links: Vec<LinkId> = links.into_iter().collect();
        links.retain(|link| self.load[link.index()] >= LEAST_LOAD);
        links.sort_by_key(|link| std::cmp::Reverse(self.load[link.index()]));
        links.truncate(MAX_LINKS);
        let mut count = u64::try_from(links.len()).unwrap_or(1);
        for link in links {
            let before = *steps / count;
            let mut own = before;
            self.pack_link(link, &left, &mut own);
            *steps -= before - own;
            count -= 1;
            left.retain(|id| self.seats[*id].start.is_none());
        }
        left
    }

    /// A proof that a stream does not fit into the bins of a link beside others that have to go
    /// over it too.
    pub(super) fn refute(&self, id: usize, steps: &mut u64) -> Option<Certificate> {
        for link in self.unavoidable(id) {
            let mut all = vec![id];
            let items = self.table.items(link.index()).iter().filter_map(Busy::owner);
            let others: BTreeSet<usize> = items.collect();
            all.extend(others.into_iter().filter(|other| self.unavoidable(*other).contains(&link)));
            let interval = |id: &usize| self.stream(*id).interval.as_ns();
            let sizes: BTreeSet<i64> = all.iter().map(interval).collect();
            for size in sizes.into_iter().filter(|size| interval(&id) % size == 0) {
                let own: Vec<usize> =
                    all.iter().copied().filter(|id| interval(id) % size == 0).collect();
                if let Some(proof) = self.refute_bins(link, size, own, steps) {
                    return Some(proof);
                }
            }
        }
        None
    }

    /// The same for bins of a size, without those who are not needed.
    fn refute_bins(
        &self,
        link: LinkId,
        size: i64,
        mut all: Vec<usize>,
        steps: &mut u64,
    ) -> Option<Certificate> {
        let bins = |all: &[usize]| Bins::new(size, all.iter().map(|id| self.frame_of(*id, link)));
        let mut proof = bins(&all)?.refute(steps)?;
        // The first is who is rejected.
        for place in (1..all.len()).rev() {
            let mut fewer = all.clone();
            fewer.remove(place);
            let is_bin = |id: &usize| self.stream(*id).interval.as_ns() == size;
            let shorter = fewer.iter().any(is_bin).then(|| bins(&fewer)?.refute(steps)).flatten();
            if let Some(shorter) = shorter {
                (all, proof) = (fewer, shorter);
            }
        }
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let case = |entry: Entry| match entry {
            Entry::Split(item) => PackingCase::Split { stream: number(item) },
            Entry::Count(least) => PackingCase::Count { least: Span::from_ns(least) },
            Entry::Sums => PackingCase::Sums,
        };
        let alike = proof.alike.into_iter().map(|to| to.into_iter().map(number).collect());
        Some(Certificate::Packing {
            link,
            bin: Span::from_ns(size),
            streams: all.into_iter().map(StreamId::from_index).collect(),
            alike: alike.collect(),
            tree: proof.tree.into_iter().map(case).collect(),
        })
    }

    /// Interval of a stream and the least that it takes of a link at a stretch: a frame, or at its
    /// talker, where they follow each other, all of a message.
    fn frame_of(&self, id: usize, link: LinkId) -> (i64, i64) {
        let (stream, network) = (self.stream(id), self.problem.network());
        let at_talker = network.link(link).from == stream.talker;
        let together = if at_talker { i64::from(stream.frames) } else { 1 };
        let frame = network.occupancy(link, stream.length_bytes).as_ns();
        (stream.interval.as_ns(), frame * together)
    }

    fn links_of(&self, id: usize) -> BTreeSet<LinkId> {
        let shapes = self.seats[id].shape.iter();
        shapes.flat_map(|shape| shape.stretches.iter().map(|stretch| stretch.link)).collect()
    }

    /// Places those that are on a link, and as many of those that wait for it as it has time for.
    fn pack_link(&mut self, link: LinkId, left: &[usize], steps: &mut u64) {
        let items = self.table.items(link.index());
        if items.iter().any(|item| item.owner().is_none()) {
            return;
        }
        let placed: BTreeSet<usize> = items.iter().filter_map(Busy::owner).collect();
        let before: Vec<(usize, i64)> =
            placed.iter().filter_map(|id| Some((*id, self.seats[*id].start?))).collect();
        let waiting = left.iter().copied().filter(|id| self.links_of(*id).contains(&link));
        let mut members: Vec<Member> =
            placed.iter().copied().chain(waiting).map(|id| self.member(id, link)).collect();
        let bins = loop {
            if members.len() <= before.len() {
                return;
            }
            let Some(bins) = bins(&members) else { return };
            if bins.spare() >= 0 {
                break bins;
            }
            members.pop();
        };
        for (id, _) in &before {
            self.take(*id);
        }
        let work = self.table.work;
        let starts = self.starts(&bins, &members, steps);
        *steps = steps.saturating_sub(self.table.work - work);
        match starts {
            Some(starts) => {
                for (member, start) in members.iter().zip(starts) {
                    self.put(member.id, start);
                }
            }
            None => {
                for (id, start) in before {
                    self.put(id, start);
                }
            }
        }
    }

    fn member(&self, id: usize, link: LinkId) -> Member {
        let all = || self.seats[id].shape.iter().flat_map(|shape| &shape.stretches);
        let own = all().filter(|own| own.link == link);
        let start = own.clone().map(|own| own.start).min().unwrap_or(0);
        let end = own.map(|own| own.start + own.length).max().unwrap_or(0);
        let others = all().filter(|other| other.link != link);
        let others = others.map(|other| Stretch { start: other.start - start, ..*other }).collect();
        let interval = self.stream(id).interval.as_ns();
        Member { id, interval, start, length: end - start, others }
    }

    /// When each starts at its talker, beside all who are placed.
    fn starts(&mut self, bins: &Bins, members: &[Member], steps: &mut u64) -> Option<Vec<i64>> {
        let near = near(members);
        let mut random = Sequence::new(self.options.seed);
        for number in 0..MAX_PACKINGS {
            let firsts = bins.pack(number, &mut random, steps)?;
            let mut order = Order::new(bins, &firsts)?;
            let mut is_free = |item: usize, at: i64| self.is_free(&members[item], at);
            if order.settle(&near, &mut is_free, &mut random, steps) {
                let starts = members.iter().zip(order.starts());
                return Some(starts.map(|(member, at)| member.start_for(*at)).collect());
            }
            if *steps == 0 {
                break;
            }
        }
        None
    }

    /// Whether nobody who is placed is in the way of a stream that is on the link from an instant
    /// on, and it may start then.
    fn is_free(&mut self, member: &Member, at: i64) -> bool {
        let start = member.start_for(at);
        let (from, until) = self.window(member.id);
        let seat = &self.seats[member.id];
        let Some(shape) = &seat.shape else { return false };
        let is_allowed = (from..=until).contains(&start);
        if member.others.iter().all(|other| self.table.items(other.link.index()).is_empty()) {
            return is_allowed;
        }
        is_allowed && self.table.fit(seat.class, &shape.stretches, start, start) == Some(start)
    }
}

impl Member {
    fn start_for(&self, at: i64) -> i64 {
        (at - self.start).rem_euclid(self.interval)
    }
}

/// By member: who meets it on another link, and when.
fn near(members: &[Member]) -> Vec<Vec<Near>> {
    let mut on: BTreeMap<LinkId, Vec<(usize, Stretch)>> = BTreeMap::new();
    for (number, member) in members.iter().enumerate() {
        for stretch in &member.others {
            on.entry(stretch.link).or_default().push((number, *stretch));
        }
    }
    let mut all = vec![Vec::new(); members.len()];
    for stretches in on.values() {
        for (one, own) in stretches {
            for (other, its) in stretches.iter().filter(|(other, _)| other != one) {
                let every = divisor(members[*one].interval, members[*other].interval);
                let first = own.start - its.start - its.length + 1;
                let length = own.length + its.length - 1;
                all[*one].push(Near { other: *other, every, first, length });
            }
        }
    }
    all
}

/// Those on a link as what lies in bins of the greatest common divisor of their intervals. `None`:
/// there would be too many.
fn bins(members: &[Member]) -> Option<Bins> {
    let size = members.iter().fold(0, |all, member| divisor(all, member.interval));
    Bins::new(size, members.iter().map(|member| (member.interval, member.length)))
}

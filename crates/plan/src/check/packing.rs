// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges a proof that streams do not fit into a link's bins. One of them repeats with each bin, so
//! a frame of another one, which meets it in no interval, lies between two of its frames and with
//! that in one bin, and in every bin that is a multiple of its interval later. It chooses nothing.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::Span;

use super::certificate::{Judge, Judged, ensure};
use super::times::occupancy;
use super::{Verdict, greatest_common_divisor as divisor_of};
use crate::model::{LinkId, PackingCase, StreamId};

/// What is gone through at most; a proof that needs more is none.
const MAX_BINS: i64 = 64;
const MAX_STREAMS: usize = 2_000;
const MAX_ENTRIES: usize = 10_000;
const MAX_SUMS: usize = 1 << 13;
const MAX_LOOKS: usize = 1 << 30;

/// A stream: after how many bins it comes again, and how long it is in each.
struct Frame {
    every: usize,
    length: i64,
}

/// All frames, the bins, and what may still be looked at.
struct Packing {
    size: i64,
    count: usize,
    frames: Vec<Frame>,
    looks: usize,
}

/// By stream: in which bin it is first, as far as that is supposed.
type Firsts = Vec<Option<usize>>;

impl Judge<'_> {
    pub(super) fn packing(
        &self,
        link: LinkId,
        bin: Span,
        streams: &[StreamId],
        alike: &[Vec<u32>],
        tree: &[PackingCase],
    ) -> Judged {
        ensure(streams.len() <= MAX_STREAMS && tree.len() <= MAX_ENTRIES, "it is too long")?;
        self.distinct(streams)?;
        for stream in streams {
            self.forced(*stream, link)?;
        }
        let mut packing = self.packed(link, bin.as_ns(), streams)?;
        let alike: Vec<Vec<usize>> =
            alike.iter().map(|to| packing.numbers(to)).collect::<Result<_, _>>()?;
        let first = |frame: &Frame| (frame.every == 1).then_some(0);
        let firsts: Firsts = packing.frames.iter().map(first).collect();
        ensure(firsts.iter().any(Option::is_some), "none repeats with each bin")?;
        let mut rest = tree.iter();
        let mut open = vec![firsts];
        while let Some(firsts) = open.pop() {
            let case = rest.next().ok_or("a case is left out")?;
            let room = packing.room(&firsts)?;
            match *case {
                PackingCase::Split { stream } => {
                    let stream = usize::try_from(stream).unwrap_or(usize::MAX);
                    ensure(firsts.get(stream) == Some(&None), "a stream is not there")?;
                    open.extend(packing.cases(&firsts, &room, stream, &alike));
                }
                PackingCase::Count { least } => packing.too_many(&firsts, &room, least.as_ns())?,
                PackingCase::Sums => packing.too_few_sums(&firsts, &room)?,
            }
        }
        ensure(rest.next().is_none(), "there are more cases than there can be")?;
        Ok(Verdict::Proven)
    }

    /// Of a message one frame counts, but all at its talker, where they follow each other.
    fn packed(&self, link: LinkId, size: i64, streams: &[StreamId]) -> Result<Packing, String> {
        let (mut count, mut frames) = (1, Vec::new());
        for id in streams {
            let stream = self.problem.stream(*id);
            let interval = stream.interval.as_ns();
            ensure(size > 0 && interval % size == 0, "an interval is no multiple of a bin")?;
            let every = interval / size;
            ensure(every <= MAX_BINS, "it is too long")?;
            count *= every / divisor_of(count, every);
            ensure(count <= MAX_BINS, "it is too long")?;
            let at_talker = self.network.link(link).from == stream.talker;
            let together = if at_talker { i64::from(stream.frames) } else { 1 };
            let length = occupancy(self.network, link, stream) * together;
            frames.push(Frame { every: usize::try_from(every).unwrap_or(1), length });
        }
        let count = usize::try_from(count).unwrap_or(1);
        Ok(Packing { size, count, frames, looks: MAX_LOOKS })
    }
}

impl Packing {
    /// Other numbers of the bins, if each has its own and bins that a stream has in common are
    /// those that one has in common afterwards.
    fn numbers(&self, to: &[u32]) -> Result<Vec<usize>, String> {
        let to: Vec<usize> = to.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
        let distinct: BTreeSet<usize> = to.iter().copied().collect();
        let all = distinct.len() == self.count && distinct.last() == Some(&(self.count - 1));
        ensure(all && to.len() == self.count, "a bin has another number, or none")?;
        let turns: BTreeSet<usize> = self.frames.iter().map(|frame| frame.every).collect();
        let keeps = |turn: &usize| (0..self.count).all(|b| to[b] % turn == to[b % turn] % turn);
        ensure(turns.iter().all(keeps), "bins are not alike")?;
        Ok(to)
    }

    fn look(&mut self, times: usize) -> Result<(), String> {
        self.looks = self.looks.checked_sub(times).ok_or("it takes too long to go through")?;
        Ok(())
    }

    /// By bin: what those that are there leave of it.
    fn room(&mut self, firsts: &Firsts) -> Result<Vec<i64>, String> {
        self.look(self.frames.len() * self.count)?;
        let mut room = vec![self.size; self.count];
        for (frame, first) in self.frames.iter().zip(firsts) {
            for (bin, room) in room.iter_mut().enumerate() {
                if first.is_some_and(|first| bin % frame.every == first) {
                    *room -= frame.length;
                }
            }
        }
        Ok(room)
    }

    /// The cases of where a stream is first, the last one first: but for those in which a bin is
    /// too full, and those that are an earlier one by other numbers of the bins.
    fn cases(
        &self,
        firsts: &Firsts,
        room: &[i64],
        stream: usize,
        alike: &[Vec<usize>],
    ) -> Vec<Firsts> {
        let own = &self.frames[stream];
        let mut taken: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        for (frame, first) in self.frames.iter().zip(firsts) {
            if let Some(first) = first {
                *taken.entry((frame.every, *first)).or_insert(0) += frame.length;
            }
        }
        let is_earlier = |first: usize, to: &Vec<usize>| {
            let same = |((every, at), length): (&(usize, usize), &i64)| {
                taken.get(&(*every, to[*at] % every)) == Some(length)
            };
            to[first] % own.every < first && taken.iter().all(same)
        };
        let is_case = |first: &usize| {
            let mut bins = (0..self.count).filter(|bin| bin % own.every == *first);
            bins.all(|bin| own.length <= room[bin])
                && !alike.iter().any(|to| is_earlier(*first, to))
        };
        let case = |first: usize| {
            let mut case = firsts.clone();
            case[stream] = Some(first);
            case
        };
        (0..own.every).rev().filter(is_case).map(case).collect()
    }

    /// Those that are nowhere yet, with how many bins each takes, the shortest first.
    fn open(&self, firsts: &Firsts, least: i64) -> Vec<(i64, i64)> {
        let open = self.frames.iter().zip(firsts).filter(|(_, first)| first.is_none());
        let times = |frame: &Frame| i64::try_from(self.count / frame.every).unwrap_or(i64::MAX);
        let open = open.map(|(frame, _)| (frame.length, times(frame)));
        let mut open: Vec<(i64, i64)> = open.filter(|(length, _)| *length >= least).collect();
        open.sort_unstable();
        open
    }

    /// More frames of a length or a greater one than there can be in all bins together, if each has
    /// as many of the shortest of these as it has room for.
    fn too_many(&mut self, firsts: &Firsts, room: &[i64], least: i64) -> Result<(), String> {
        let open = self.open(firsts, least);
        self.look(open.len() * room.len())?;
        let mut fit = 0;
        for room in room {
            let mut left = *room;
            for (length, _) in &open {
                left -= length;
                fit += i64::from(left >= 0);
            }
        }
        ensure(open.iter().map(|(_, times)| times).sum::<i64>() > fit, "there is room for all")
    }

    /// More time than there is in all bins together, if each is filled as far as lengths of
    /// different streams fill it.
    fn too_few_sums(&mut self, firsts: &Firsts, room: &[i64]) -> Result<(), String> {
        let (open, most) = (self.open(firsts, 0), room.iter().max().copied().unwrap_or(0));
        let mut sums = BTreeSet::from([0]);
        for (length, _) in &open {
            self.look(8 * sums.len())?;
            let more: Vec<i64> =
                sums.iter().map(|sum| sum + length).filter(|sum| *sum <= most).collect();
            sums.extend(more);
            ensure(sums.len() <= MAX_SUMS, "it takes too long to go through")?;
        }
        let best = |room: &i64| sums.range(..=room).next_back().copied().unwrap_or(0);
        let all: i64 = room.iter().map(best).sum();
        let needed: i64 = open.iter().map(|(length, times)| length * times).sum();
        ensure(needed > all, "there is room for all")
    }
}

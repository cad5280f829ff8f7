// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proves that items do not fit into a link's bins: by how many frames of a length or more fit into
//! each bin, by which sums of lengths there are, and where that is not enough by cases of which
//! bins an item is in. Of cases that are alike but for the numbers of bins one is looked at.

use std::collections::BTreeSet;

use super::bins::Bins;

/// What a proof says of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Each bin in which this item may be first is a case.
    Split(usize),
    /// There are more frames of this length or a greater one than bins have room for.
    Count(i64),
    /// No frames fill the bins so well that there is room for all.
    Sums,
}

/// A proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Other numbers for bins, under which what repeats still does.
    pub alike: Vec<Vec<usize>>,
    /// Each split followed by all of its cases.
    pub tree: Vec<Entry>,
}

/// The most entries of a proof, and sums of lengths that are looked at.
const MAX_ENTRIES: usize = 4_000;
const MAX_SUMS: usize = 1 << 12;

impl Bins {
    /// That there is no room for all items. `None`: there is, or it takes more steps.
    pub fn refute(&self, steps: &mut u64) -> Option<Proof> {
        let firsts = self.items.iter().map(|item| (item.every == 1).then_some(0)).collect();
        let alike = self.swaps();
        let mut search = Search { bins: self, firsts, alike, used: BTreeSet::new(), steps };
        let mut tree = Vec::new();
        search.case(&mut tree)?;
        let Search { alike, used, .. } = search;
        Some(Proof { alike: used.into_iter().map(|number| alike[number].clone()).collect(), tree })
    }

    /// Numberings of the bins that exchange two of their parts: of those bins that have all but the
    /// last of a few digits in common, in the digits of one prime factor of their count.
    fn swaps(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        let (mut rest, mut prime) = (self.count, 2);
        while rest > 1 {
            let mut power = 1;
            while rest.is_multiple_of(prime) {
                (power, rest) = (power * prime, rest / prime);
            }
            let others = self.count / power;
            let mut low = 1;
            while low < power {
                let high = low * prime;
                for one in 0..high {
                    for other in (one + low..high).step_by(low) {
                        let moved = |bin: usize| {
                            let digits = bin % power;
                            let to = match digits % high {
                                part if part == one => digits + other - one,
                                part if part == other => digits + one - other,
                                _ => digits,
                            };
                            let is_it =
                                |it: &usize| it % power == to && it % others == bin % others;
                            (0..self.count).find(is_it).unwrap_or(bin)
                        };
                        all.push((0..self.count).map(moved).collect());
                    }
                }
                low = high;
            }
            prime += 1;
        }
        all
    }
}

struct Search<'a> {
    bins: &'a Bins,
    /// By item: in which bin it is first, as far as that is supposed.
    firsts: Vec<Option<usize>>,
    alike: Vec<Vec<usize>>,
    used: BTreeSet<usize>,
    steps: &'a mut u64,
}

impl Search<'_> {
    /// Proves that a case is none. `None`: it may be one, or there are no steps left.
    fn case(&mut self, tree: &mut Vec<Entry>) -> Option<()> {
        let effort = self.bins.count * self.bins.turns().len() + 2 * self.bins.items.len();
        *self.steps = self.steps.checked_sub(1 + u64::try_from(effort).ok()?)?;
        let room = self.room();
        if let Some(entry) = self.bound(&room) {
            tree.push(entry);
            return Some(());
        }
        let open = (0..self.firsts.len()).filter(|item| self.firsts[*item].is_none());
        let item = open.min_by_key(|item| {
            let own = self.bins.items[*item];
            let fits = (0..own.every).filter(|first| self.fits(*item, *first, &room)).count();
            (fits, std::cmp::Reverse(own.length), *item)
        })?;
        if tree.len() >= MAX_ENTRIES {
            return None;
        }
        tree.push(Entry::Split(item));
        let loads = self.loads();
        for first in 0..self.bins.items[item].every {
            if !self.fits(item, first, &room) || self.is_like_before(item, first, &loads) {
                continue;
            }
            self.firsts[item] = Some(first);
            let done = self.case(tree);
            self.firsts[item] = None;
            done?;
        }
        Some(())
    }

    /// By bin: what is free of it.
    fn room(&self) -> Vec<i64> {
        let mut room = vec![self.bins.size; self.bins.count];
        for (item, first) in self.bins.items.iter().zip(&self.firsts) {
            let Some(first) = first else { continue };
            for bin in (*first..self.bins.count).step_by(item.every) {
                room[bin] -= item.length;
            }
        }
        room
    }

    fn fits(&self, item: usize, first: usize, room: &[i64]) -> bool {
        let own = self.bins.items[item];
        room[first..].iter().step_by(own.every).all(|room| own.length <= *room)
    }

    /// By turn and first bin: what is supposed to be there.
    fn loads(&self) -> Vec<(usize, Vec<i64>)> {
        let mut loads: Vec<(usize, Vec<i64>)> =
            self.bins.turns().into_iter().map(|turn| (turn, vec![0; turn])).collect();
        for (item, first) in self.bins.items.iter().zip(&self.firsts) {
            let own = loads.iter_mut().find(|(turn, _)| *turn == item.every);
            if let (Some((_, loads)), Some(first)) = (own, first) {
                loads[*first] += item.length;
            }
        }
        loads
    }

    /// Whether bins can be numbered so that an item which is first in this one is first in one
    /// before it, and all else is the same.
    fn is_like_before(&mut self, item: usize, first: usize, loads: &[(usize, Vec<i64>)]) -> bool {
        let every = self.bins.items[item].every;
        let is_like = |alike: &Vec<usize>| {
            alike[first] % every < first
                && loads.iter().all(|(turn, loads)| {
                    (0..self.bins.count).all(|bin| loads[bin % turn] == loads[alike[bin] % turn])
                })
        };
        let found = self.alike.iter().position(is_like);
        self.used.extend(found);
        found.is_some()
    }

    /// A reason why what is open has no room, without cases.
    fn bound(&mut self, room: &[i64]) -> Option<Entry> {
        let open = self.bins.items.iter().zip(&self.firsts).filter(|(_, first)| first.is_none());
        let mut open: Vec<(i64, usize)> =
            open.map(|(item, _)| (item.length, self.bins.count / item.every)).collect();
        open.sort_unstable();
        let mut ends = vec![0];
        for (length, _) in &open {
            ends.push(ends[ends.len() - 1] + length);
        }
        let fit = |from: usize, room: i64| {
            ends[from..].partition_point(|e| e - ends[from] <= room).saturating_sub(1)
        };
        let mut needed: usize = open.iter().map(|(_, times)| times).sum();
        for place in 0..open.len() {
            if place == 0 || open[place].0 > open[place - 1].0 {
                *self.steps = self.steps.saturating_sub(u64::try_from(room.len()).ok()?);
                if room.iter().map(|room| fit(place, *room)).sum::<usize>() < needed {
                    return Some(Entry::Count(open[place].0));
                }
            }
            needed -= open[place].1;
        }
        let sums = self.sums(&open, room.iter().copied().max().unwrap_or(0))?;
        let most = |room: &i64| sums[sums.partition_point(|sum| sum <= room).max(1) - 1];
        let all: i64 = room.iter().map(most).sum();
        let times = |times: usize| i64::try_from(times).unwrap_or(i64::MAX);
        let needed: i64 = open.iter().map(|(length, own)| length * times(*own)).sum();
        (all < needed).then_some(Entry::Sums)
    }

    /// All sums of different items, up to a bound. `None`: there are too many.
    fn sums(&mut self, open: &[(i64, usize)], most: i64) -> Option<Vec<i64>> {
        let mut sums = vec![0];
        for (length, _) in open {
            let effort = u64::try_from(sums.len() / 4).unwrap_or(0);
            *self.steps = self.steps.saturating_sub(effort);
            let more: Vec<i64> = sums.iter().map(|sum| sum + length).collect();
            sums.extend(more.into_iter().filter(|sum| *sum <= most));
            sums.sort();
            sums.dedup();
            if sums.len() > MAX_SUMS {
                return None;
            }
        }
        Some(sums)
    }
}

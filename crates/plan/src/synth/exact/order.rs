// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of frames within bins, so that they do not meet on the other links of their ways:
//! two that lie in the same bins change places, mostly if fewer meet afterwards (min-conflicts;
//! Minton et al., 1992).

use timewire_base::Sequence;

use super::bins::Bins;

/// What another one's start may not be after one's own: so far, for so long, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    pub other: usize,
    pub every: i64,
    pub first: i64,
    pub length: i64,
}

/// Those that lie in the same bins, one after the other.
#[derive(Clone, Debug)]
struct Group {
    members: Vec<usize>,
    start: i64,
}

/// Frames of all bins in an order.
#[derive(Clone, Debug)]
pub struct Order {
    /// By item: how long it is, then of bins' spare time.
    lengths: Vec<i64>,
    groups: Vec<Group>,
    group: Vec<usize>,
    starts: Vec<i64>,
    /// By item: how many meet it, or 1 for what else is in the way.
    bad: Vec<usize>,
}

/// Changes that are tried for each item, and for all.
const CHANGES_EACH: usize = 100;
const MAX_CHANGES: usize = 10_000;
/// One in so many changes may make it worse by one.
const WORSE: usize = 8;
/// Pieces of what is left of a bin.
const SPARE_PIECES: i64 = 3;
/// Looks at two items that are a step.
const LOOKS: usize = 8;

impl Order {
    /// Short turns are first, the longest of each group is. Who comes again in bins of which a
    /// shorter turn knows nothing is at their end, so that no space between the two is lost.
    /// `None`: some is lost all the same, and too much of it.
    pub fn new(bins: &Bins, firsts: &[usize]) -> Option<Order> {
        let mut turns = bins.turns();
        if turns.last() != Some(&bins.count) {
            turns.push(bins.count);
        }
        let lengths: Vec<i64> = bins.items.iter().map(|item| item.length).collect();
        let (starts, bad) = (vec![0; lengths.len()], vec![0; lengths.len()]);
        let group = vec![0; lengths.len()];
        let mut order = Order { lengths, groups: Vec::new(), group, starts, bad };
        let (mut front, mut back) = (vec![0; bins.count], vec![bins.size; bins.count]);
        for &every in &turns {
            let is_apart = turns.iter().any(|turn| *turn < every && !every.is_multiple_of(*turn));
            let at_end = is_apart && every < bins.count;
            for first in 0..every {
                let own = |item: &usize| bins.items[*item].every == every && firsts[*item] == first;
                let members: Vec<usize> = (0..bins.items.len()).filter(own).collect();
                let length: i64 = members.iter().map(|member| order.lengths[*member]).sum();
                let own = (first..bins.count).step_by(every);
                let begin = match at_end {
                    true => own.clone().map(|bin| back[bin]).min()? - length,
                    false => own.clone().map(|bin| front[bin]).max()?,
                };
                for bin in own {
                    let end = if at_end { &mut back[bin] } else { &mut front[bin] };
                    *end = if at_end { begin } else { begin + length };
                }
                order.add(members, i64::try_from(first).ok()? * bins.size + begin);
            }
        }
        order.add_spare(&front, &back)?;
        for group in 0..order.groups.len() {
            order.lay(group);
        }
        Some(order)
    }

    fn add(&mut self, mut members: Vec<usize>, start: i64) {
        members.sort_by_key(|member| std::cmp::Reverse(self.lengths[*member]));
        for member in &members {
            self.group[*member] = self.groups.len();
        }
        self.groups.push(Group { members, start });
    }

    /// What is left of a bin lies between those that are in it alone. `None`: a bin is too full.
    fn add_spare(&mut self, front: &[i64], back: &[i64]) -> Option<()> {
        let first = self.groups.len() - front.len();
        for (bin, (front, back)) in front.iter().zip(back).enumerate() {
            let left = Some(back - front).filter(|left| *left >= 0)?;
            for piece in (0..SPARE_PIECES).filter(|_| left > 0) {
                self.groups[first + bin].members.push(self.lengths.len());
                self.group.push(first + bin);
                let end = |piece: i64| left * piece / SPARE_PIECES;
                self.lengths.push(end(piece + 1) - end(piece));
                self.starts.push(0);
                self.bad.push(0);
            }
        }
        Some(())
    }

    /// By item: where it starts on the link.
    pub fn starts(&self) -> &[i64] {
        &self.starts
    }

    fn lay(&mut self, group: usize) {
        let mut start = self.groups[group].start;
        for member in &self.groups[group].members {
            self.starts[*member] = start;
            start += self.lengths[*member];
        }
    }

    /// Changes places until no two meet and nothing is in the way; whether that went.
    pub fn settle(
        &mut self,
        near: &[Vec<Near>],
        is_free: &mut dyn FnMut(usize, i64) -> bool,
        random: &mut Sequence,
        steps: &mut u64,
    ) -> bool {
        self.recount(near, is_free);
        for _ in 0..MAX_CHANGES.min(CHANGES_EACH * self.lengths.len()) {
            let bad: Vec<usize> = (0..self.bad.len()).filter(|item| self.bad[*item] > 0).collect();
            if bad.is_empty() || *steps == 0 {
                return bad.is_empty();
            }
            let item = bad[random.below(bad.len())];
            let group = self.group[item];
            let before = self.count(group, near, is_free, false, steps);
            let members = self.groups[group].members.clone();
            self.change(group, item, random);
            let after = self.count(group, near, is_free, true, steps);
            if after > before && (after > before + 1 || random.below(WORSE) > 0) {
                self.count(group, near, is_free, false, steps);
                self.groups[group].members = members;
                self.lay(group);
                self.count(group, near, is_free, true, steps);
            }
        }
        false
    }

    /// Puts an item to another place in its group, or gives it that of another.
    fn change(&mut self, group: usize, item: usize, random: &mut Sequence) {
        let members = &mut self.groups[group].members;
        let place = members.iter().position(|member| *member == item).unwrap_or(0);
        let other = random.below(members.len());
        if random.below(2) == 0 {
            let member = members.remove(place);
            members.insert(other, member);
        } else {
            members.swap(place, other);
        }
        self.lay(group);
    }

    /// Counts anew who meets whom.
    fn recount(&mut self, near: &[Vec<Near>], is_free: &mut dyn FnMut(usize, i64) -> bool) {
        for item in 0..near.len() {
            let meets = near[item].iter().filter(|near| self.meets(item, near)).count();
            self.bad[item] = meets + usize::from(!is_free(item, self.starts[item]));
        }
    }

    fn meets(&self, item: usize, near: &Near) -> bool {
        let apart = self.starts[near.other] - self.starts[item] - near.first;
        apart.rem_euclid(near.every) < near.length
    }

    /// Adds what those of a group meet to all counts, or takes it off; how many that are.
    fn count(
        &mut self,
        group: usize,
        near: &[Vec<Near>],
        is_free: &mut dyn FnMut(usize, i64) -> bool,
        add: bool,
        steps: &mut u64,
    ) -> usize {
        let (mut sum, mut looks) = (0, 0);
        for place in 0..self.groups[group].members.len() {
            let item = self.groups[group].members[place];
            let Some(all) = near.get(item) else { continue };
            looks += 2 + all.len();
            let mut own = usize::from(!is_free(item, self.starts[item]));
            for near in all {
                if !self.meets(item, near) {
                    continue;
                }
                own += 1;
                if self.group[near.other] != group {
                    let bad = &mut self.bad[near.other];
                    *bad = if add { *bad + 1 } else { bad.saturating_sub(1) };
                }
            }
            sum += own;
            self.bad[item] = if add { own } else { 0 };
        }
        *steps = steps.saturating_sub(u64::try_from(1 + looks / LOOKS).unwrap_or(1));
        sum
    }
}

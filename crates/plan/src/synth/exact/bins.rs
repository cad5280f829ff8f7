// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packs what repeats into a link's bins: spans as long as the interval of which all others are
//! multiples. A frame lies in every so many bins; what is chosen is in which of them it is first.
//!
//! Bin by bin, sets of frames are looked for that fill it as nearly as all that is spare allows
//! (bin completion; Korf, "An improved algorithm for optimal bin packing", 2003), with the sums
//! that can be reached in tables of bits. Short searches in different orders are begun again and
//! again, and become longer.
//!
//! Not here: where in a bin a frame is.

use timewire_base::Sequence;

use super::super::table::divisor;

/// What lies in every so many bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub every: usize,
    pub length: i64,
}

/// What is to be packed.
#[derive(Clone, Debug)]
pub struct Bins {
    /// How long a bin is.
    pub size: i64,
    /// How many there are; each `every` divides it.
    pub count: usize,
    pub items: Vec<Item>,
}

/// The most bins.
const MAX_BINS: i64 = 64;
/// The most items.
const MAX_ITEMS: usize = 1_000;
/// Words of all tables of sums.
const MAX_WORDS: usize = 1 << 23;
/// Steps that a word of a table takes: one for so many.
const WORDS: usize = 8;

impl Bins {
    /// Bins of this size for what has these intervals and lengths. `None`: there would be too
    /// many, or an interval is no multiple.
    pub fn new(size: i64, all: impl Iterator<Item = (i64, i64)>) -> Option<Bins> {
        let (mut count, mut items) = (1, Vec::new());
        for (interval, length) in all {
            let every = Some(interval).filter(|interval| interval % size == 0)? / size;
            count = count / divisor(count, every) * every;
            if count > MAX_BINS {
                return None;
            }
            items.push(Item { every: usize::try_from(every).ok()?, length });
        }
        let count = usize::try_from(count).ok()?;
        (items.len() <= MAX_ITEMS).then_some(Bins { size, count, items })
    }

    /// What all items leave free of all bins together; less than 0: it is too much.
    pub fn spare(&self) -> i128 {
        let times = |count: usize| i128::try_from(count).unwrap_or(i128::MAX);
        let taken = |item: &Item| i128::from(item.length) * times(self.count / item.every);
        i128::from(self.size) * times(self.count) - self.items.iter().map(taken).sum::<i128>()
    }

    /// The different numbers of bins after which items come again.
    pub fn turns(&self) -> Vec<usize> {
        let mut turns: Vec<usize> = self.items.iter().map(|item| item.every).collect();
        turns.sort_unstable();
        turns.dedup();
        turns
    }

    /// By item, in which bin it is first. `None`: none was found in so many steps, which it takes
    /// from them.
    ///
    /// Others than the first are other ones.
    pub fn pack(&self, number: u32, random: &mut Sequence, steps: &mut u64) -> Option<Vec<usize>> {
        if self.spare() < 0 {
            return None;
        }
        for round in number.. {
            let mut filling = Filling::new(self, round, random)?;
            let (found, whole) = (filling.fill(0, steps), !filling.is_cut);
            match found {
                Some(true) => return Some(filling.place),
                Some(false) if whole => return None,
                _ if *steps == 0 => return None,
                _ => {}
            }
        }
        None
    }
}

/// A search with bins partly filled. Lengths are in units that divide them all.
struct Filling<'a> {
    bins: &'a Bins,
    size: usize,
    /// Lengths of the items.
    lengths: Vec<usize>,
    /// By item: its place in the order in which they are tried.
    ranks: Vec<usize>,
    /// Bins in the order in which they are filled.
    sequence: Vec<usize>,
    turns: Vec<usize>,
    /// By turn and first bin: whether it is decided which items are there.
    decided: Vec<Vec<bool>>,
    /// By turn: what has no place yet.
    left: Vec<usize>,
    /// By item: its turn, whether it has a place, and which.
    turn: Vec<usize>,
    is_placed: Vec<bool>,
    place: Vec<usize>,
    /// By bin: what is taken.
    load: Vec<usize>,
    /// What may be left free of all bins that are still to be filled.
    spare: usize,
    /// Sets tried for a bin, and bins filled, at most.
    alternatives: usize,
    nodes: u64,
    /// Whether something was left out.
    is_cut: bool,
    /// Candidates of a bin at most.
    most: usize,
}

/// What is tried for one bin.
struct Bin {
    /// Where it is in the sequence.
    at: usize,
    candidates: Vec<usize>,
    /// The same for each, first of those after it: the sums that it and those after it have.
    sums: Vec<Vec<u64>>,
    tried: usize,
}

impl<'a> Filling<'a> {
    fn new(bins: &'a Bins, round: u32, random: &mut Sequence) -> Option<Filling<'a>> {
        let unit = bins.items.iter().fold(0, |unit, item| divisor(unit, item.length)).max(1);
        let size = usize::try_from(bins.size / unit).ok()?;
        let length = |item: &Item| usize::try_from(item.length / unit).ok();
        let lengths: Vec<usize> = bins.items.iter().map(length).collect::<Option<_>>()?;
        let turns = bins.turns();
        let times = |item: usize| bins.count / bins.items[item].every;
        let volume: usize = (0..lengths.len()).map(|item| lengths[item] * times(item)).sum();
        let spare = (size * bins.count).checked_sub(volume)?;
        let order = Filling::order(bins, &lengths, round, random);
        let mut ranks = vec![0; lengths.len()];
        for (rank, item) in order.iter().enumerate() {
            ranks[*item] = rank;
        }
        let of = |item: &Item| turns.iter().position(|turn| *turn == item.every);
        let turn: Vec<usize> = bins.items.iter().map(of).collect::<Option<_>>()?;
        let mut left = vec![0; turns.len()];
        for (turn, length) in turn.iter().zip(&lengths) {
            left[*turn] += length;
        }
        let mut filling = Filling {
            ranks,
            left,
            turn,
            sequence: Filling::sequence(bins, &turns, round, random),
            decided: turns.iter().map(|turn| vec![false; *turn]).collect(),
            is_placed: vec![false; lengths.len()],
            place: vec![0; lengths.len()],
            load: vec![0; bins.count],
            alternatives: [3, 16, usize::MAX][usize::try_from(round % 3).ok()?],
            nodes: 256 << (round / 3).min(32),
            is_cut: false,
            most: MAX_WORDS / bins.count / (size / 64 + 1),
            bins,
            size,
            lengths,
            turns,
            spare,
        };
        let all: Vec<usize> = (0..filling.lengths.len()).collect();
        for item in all.into_iter().filter(|item| bins.items[*item].every == 1) {
            filling.put(item, 0).then_some(())?;
        }
        if let Some(decided) = filling.decided.first_mut().filter(|decided| decided.len() == 1) {
            decided[0] = true;
        }
        Some(filling)
    }

    /// The longest first; after the first round chance changes that a little. Those that are alike
    /// stay together.
    fn order(bins: &Bins, lengths: &[usize], round: u32, random: &mut Sequence) -> Vec<usize> {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        let alike = |item: &usize| (std::cmp::Reverse(lengths[*item]), bins.items[*item].every);
        order.sort_by_key(alike);
        if round == 0 {
            return order;
        }
        let (mut ranks, mut last, mut rank) = (vec![0; lengths.len()], None, 0);
        for item in &order {
            if last != Some(alike(item)) {
                rank = lengths[*item] * (64 + random.below(64));
                last = Some(alike(item));
            }
            ranks[*item] = rank;
        }
        order.sort_by_key(|item| (std::cmp::Reverse(ranks[*item]), alike(item)));
        order
    }

    /// Bins that have most items in common follow each other.
    fn sequence(bins: &Bins, turns: &[usize], round: u32, random: &mut Sequence) -> Vec<usize> {
        let mut turns = turns.to_vec();
        if round > 0 {
            for place in (1..turns.len()).rev() {
                // Short turns are mostly first.
                if random.below(4) == 0 {
                    turns.swap(place, place - 1);
                }
            }
        }
        let mut sequence: Vec<usize> = (0..bins.count).collect();
        sequence.sort_by_key(|bin| turns.iter().map(|turn| bin % turn).collect::<Vec<_>>());
        sequence
    }

    /// Whether there is room for an item in all of its bins; it is there even if there is none.
    fn put(&mut self, item: usize, first: usize) -> bool {
        (self.is_placed[item], self.place[item]) = (true, first);
        self.left[self.turn[item]] -= self.lengths[item];
        let mut fits = true;
        for bin in (first..self.bins.count).step_by(self.bins.items[item].every) {
            self.load[bin] += self.lengths[item];
            fits &= self.load[bin] <= self.size;
        }
        fits
    }

    fn take(&mut self, item: usize) {
        self.is_placed[item] = false;
        self.left[self.turn[item]] += self.lengths[item];
        for bin in (self.place[item]..self.bins.count).step_by(self.bins.items[item].every) {
            self.load[bin] -= self.lengths[item];
        }
    }

    /// Whether there are sets for this bin of the sequence and all after it. `None`: it is given
    /// up.
    fn fill(&mut self, at: usize, steps: &mut u64) -> Option<bool> {
        let Some(&bin) = self.sequence.get(at) else { return Some(true) };
        self.nodes = self.nodes.checked_sub(1)?;
        let new: Vec<usize> = (0..self.turns.len())
            .filter(|turn| !self.decided[*turn][bin % self.turns[*turn]])
            .collect();
        let mut open = Vec::new();
        for &turn in &new {
            self.decided[turn][bin % self.turns[turn]] = true;
            open.extend((0..self.lengths.len()).filter(|item| self.is_open(*item, turn)));
        }
        let found = self.sets(at, open, steps);
        if found != Some(true) {
            for turn in new {
                self.decided[turn][bin % self.turns[turn]] = false;
            }
        }
        found
    }

    fn is_open(&self, item: usize, turn: usize) -> bool {
        self.turn[item] == turn && !self.is_placed[item]
    }

    /// Goes on with the next bin, after all items of turns for which one bin is left are put into
    /// that.
    fn next(&mut self, at: usize, steps: &mut u64) -> Option<bool> {
        let mut forced: Vec<(usize, usize)> = Vec::new();
        for (turn, decided) in self.decided.iter().enumerate() {
            let mut open = (0..decided.len()).filter(|first| !decided[*first]);
            if let (Some(first), None) = (open.next(), open.next()) {
                forced.push((turn, first));
            }
        }
        let (mut fits, mut put) = (true, Vec::new());
        for &(turn, first) in &forced {
            self.decided[turn][first] = true;
            for item in 0..self.lengths.len() {
                if self.is_open(item, turn) {
                    fits &= self.put(item, first);
                    put.push(item);
                }
            }
        }
        let found = if fits && self.has_room() { self.fill(at + 1, steps) } else { Some(false) };
        if found == Some(false) {
            for item in put {
                self.take(item);
            }
            for (turn, first) in forced {
                self.decided[turn][first] = false;
            }
        }
        found
    }

    /// Sets of these items for a bin: those that leave least of it free are first.
    fn sets(&mut self, at: usize, open: Vec<usize>, steps: &mut u64) -> Option<bool> {
        let room = self.size - self.load[self.sequence[at]];
        let mut candidates = open;
        candidates.retain(|item| self.lengths[*item] <= room);
        candidates.sort_by_key(|item| self.ranks[*item]);
        if candidates.len() > self.most {
            candidates.truncate(self.most);
            self.is_cut = true;
        }
        let words = room / 64 + 1;
        self.work(self.lengths.len() + candidates.len() * words, steps)?;
        let mut sums = vec![vec![0; words]; candidates.len() + 1];
        sums[candidates.len()][0] = 1;
        for place in (0..candidates.len()).rev() {
            let (own, after) = sums.split_at_mut(place + 1);
            shifted(&mut own[place], &after[0], self.lengths[candidates[place]]);
        }
        let mut bin = Bin { at, candidates, sums, tried: 0 };
        let least = room - room.min(self.spare);
        for target in (least..=room).rev() {
            if !has(&bin.sums[0], target) {
                continue;
            }
            if bin.tried >= self.alternatives {
                self.is_cut = true;
                break;
            }
            self.spare -= room - target;
            let found = self.choose(&mut bin, 0, target, steps);
            if found != Some(false) {
                return found;
            }
            self.spare += room - target;
        }
        Some(false)
    }

    /// Sets of the candidates from a place on that take exactly so much.
    fn choose(&mut self, bin: &mut Bin, from: usize, need: usize, steps: &mut u64) -> Option<bool> {
        if need == 0 {
            bin.tried += 1;
            self.work(self.turns.len() * self.load.len(), steps)?;
            return self.next(bin.at, steps);
        }
        if bin.tried >= self.alternatives {
            self.is_cut = true;
            return Some(false);
        }
        self.work(WORDS, steps)?;
        let Some(&item) = bin.candidates.get(from) else { return Some(false) };
        let (length, every) = (self.lengths[item], self.bins.items[item].every);
        if length <= need && has(&bin.sums[from + 1], need - length) {
            let fits = self.put(item, self.sequence[bin.at] % every);
            let found =
                if fits { self.choose(bin, from + 1, need - length, steps) } else { Some(false) };
            if found != Some(false) {
                return found;
            }
            self.take(item);
        }
        // Of those that are alike the first ones are taken.
        let like = |other: &usize| {
            self.lengths[*other] == length && self.bins.items[*other].every == every
        };
        let mut next = from + 1;
        while bin.candidates.get(next).is_some_and(like) {
            next += 1;
        }
        match has(&bin.sums[next], need) {
            true => self.choose(bin, next, need, steps),
            false => Some(false),
        }
    }

    /// Whether what has no place yet has room in what is not decided, turn by turn.
    fn has_room(&self) -> bool {
        let turns = self.turns.iter().zip(&self.decided).zip(&self.left);
        turns.into_iter().all(|((every, decided), left)| {
            let open = (0..*every).filter(|first| !decided[*first]);
            let room = |first: usize| {
                let loads = self.load[first..].iter().step_by(*every);
                self.size - loads.max().copied().unwrap_or(0).min(self.size)
            };
            *left <= open.map(room).sum()
        })
    }

    /// Takes so much from the steps. `None`: none are left.
    fn work(&self, words: usize, steps: &mut u64) -> Option<()> {
        *steps = steps.saturating_sub(u64::try_from(1 + words / WORDS).unwrap_or(u64::MAX));
        (*steps > 0).then_some(())
    }
}

/// Whether a sum can be reached.
fn has(sums: &[u64], sum: usize) -> bool {
    sums.get(sum / 64).is_some_and(|word| word >> (sum % 64) & 1 == 1)
}

/// The sums of others, with an item of this length or without it.
fn shifted(own: &mut [u64], others: &[u64], length: usize) {
    own.copy_from_slice(others);
    let (words, bits) = (length / 64, length % 64);
    for place in words..own.len() {
        let low = others[place - words] << bits;
        let high = match (bits, place > words) {
            (1.., true) => others[place - words - 1] >> (64 - bits),
            _ => 0,
        };
        own[place] |= low | high;
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is on which link when, and the first instant at which a message fits.
//!
//! Intervals are numbered as *classes*. A link has a [`BusyTimeline`] for each class that was asked
//! for; lines of other classes are made when they are.

use std::collections::BTreeMap;

use super::line::{BusyTimeline, Cursor};
use super::shape::Stretch;

/// The most pieces of a line. Who would have more meets so many of another's messages in one of its
/// intervals that no list of gates has them, so it is not looked for.
pub const MAX_PIECES: i64 = 1 << 20;

/// A stretch of a stream on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub stream: u32,
    pub class: usize,
    /// Within the class's interval.
    pub start: i64,
    pub length: i64,
}

/// Whose what is that belongs to no stream, and stays.
pub const NOBODY: u32 = u32::MAX;

impl Item {
    /// The stream, if it is one.
    pub fn owner(&self) -> Option<usize> {
        usize::try_from(self.stream).ok().filter(|_| self.stream != NOBODY)
    }
}

/// A link. A line is without what is so dense that no list of gates has it.
#[derive(Clone, Debug)]
struct Port {
    items: Vec<Item>,
    /// The newest line, beside the rest of the port in memory, since it is asked most. Its class;
    /// [`NONE`]: there is no line.
    class: usize,
    newest: BusyTimeline,
    older: Vec<(usize, BusyTimeline)>,
    /// How many items there will be, as far as that is known.
    expected: usize,
}

/// No class.
const NONE: usize = usize::MAX;

impl Port {
    fn new() -> Port {
        let (items, older, newest) = (Vec::new(), Vec::new(), BusyTimeline::new(1, 1));
        Port { items, class: NONE, newest, older, expected: 0 }
    }

    fn line(&self, class: usize) -> Option<&BusyTimeline> {
        if self.class == class {
            return Some(&self.newest);
        }
        self.older.iter().find(|(other, _)| *other == class).map(|(_, line)| line)
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &BusyTimeline)> {
        let newest = (self.class != NONE).then_some((self.class, &self.newest));
        newest.into_iter().chain(self.older.iter().map(|(class, line)| (*class, line)))
    }

    /// Forgets all lines. Those that come leave out gaps shorter than `least`.
    fn clear(&mut self, least: i64) {
        (self.class, self.newest, self.older) = (NONE, BusyTimeline::new(1, least), Vec::new());
    }
}

/// All links and what is on them.
#[derive(Clone, Debug)]
pub struct Table {
    ports: Vec<Port>,
    intervals: Vec<i64>,
    classes: BTreeMap<i64, usize>,
    /// By class and class: the greatest common divisor of their intervals.
    divisors: Vec<Vec<i64>>,
    /// Whether a link keeps only its newest line.
    lean: bool,
    /// What was done so far, in steps of about the same effort.
    pub work: u64,
}

impl Table {
    pub fn new(links: usize) -> Table {
        Table {
            ports: vec![Port::new(); links],
            intervals: Vec::new(),
            classes: BTreeMap::new(),
            divisors: Vec::new(),
            lean: false,
            work: 0,
        }
    }

    /// From here on streams are placed by interval, nothing is taken off, and a link has only its
    /// newest line. For each link: how many stretches are likely to come, and less time than what
    /// is nobody asks for.
    pub fn begin(&mut self, links: impl Iterator<Item = (usize, i64)>) {
        self.lean = true;
        for (port, (expected, least)) in self.ports.iter_mut().zip(links) {
            port.clear(least.max(1));
            port.expected = expected;
            port.items.reserve_exact(expected);
        }
    }

    /// From here on anything may be asked for and taken off.
    pub fn end(&mut self) {
        self.lean = false;
        for port in self.ports.iter_mut().filter(|port| port.newest.least() > 1) {
            port.clear(1);
        }
    }

    /// The number of an interval.
    pub fn class(&mut self, interval: i64) -> usize {
        if let Some(class) = self.classes.get(&interval) {
            return *class;
        }
        let class = self.intervals.len();
        self.classes.insert(interval, class);
        self.intervals.push(interval);
        for (row, other) in self.divisors.iter_mut().zip(&self.intervals) {
            row.push(divisor(*other, interval));
        }
        let row = self.intervals.iter().map(|other| divisor(*other, interval)).collect();
        self.divisors.push(row);
        class
    }

    pub fn interval(&self, class: usize) -> i64 {
        self.intervals[class]
    }

    pub fn divisor(&self, one: usize, other: usize) -> i64 {
        self.divisors[one][other]
    }

    pub fn items(&self, link: usize) -> &[Item] {
        &self.ports[link].items
    }

    /// Puts a message where it is known to fit.
    pub fn put(&mut self, stream: u32, class: usize, start: i64, stretches: &[Stretch]) {
        let interval = self.intervals[class];
        for stretch in stretches {
            let port = &mut self.ports[stretch.link.index()];
            let start = (start + stretch.start).rem_euclid(interval);
            port.items.push(Item { stream, class, start, length: stretch.length });
            let divisors = &self.divisors[class];
            let is_kept = |other: usize| self.intervals[other] / divisors[other] <= MAX_PIECES;
            if port.class != NONE {
                if is_kept(port.class) {
                    port.newest.add(start, stretch.length, divisors[port.class]);
                } else {
                    port.class = NONE;
                }
            }
            port.older.retain_mut(|(other, line)| {
                let kept = is_kept(*other);
                if kept {
                    line.add(start, stretch.length, divisors[*other]);
                }
                kept
            });
            self.work += 1;
        }
    }

    /// Takes a message off all links.
    pub fn take(&mut self, stream: u32, stretches: &[Stretch]) {
        for stretch in stretches {
            let port = &mut self.ports[stretch.link.index()];
            while let Some(place) = port.items.iter().position(|item| item.stream == stream) {
                let item = port.items.swap_remove(place);
                let every = self.intervals[item.class];
                let Port { items, class, newest, older, .. } = port;
                let newest = (*class != NONE).then_some((*class, newest));
                let older = older.iter_mut().map(|(class, line)| (*class, line));
                for (class, line) in newest.into_iter().chain(older) {
                    let folded = self.divisors[item.class][class];
                    line.take(item.start, item.length, folded);
                    if folded == every {
                        continue;
                    }
                    // Folded into a shorter interval, it may have lain over others.
                    for other in items.iter() {
                        let other_folded = self.divisors[other.class][class];
                        let common = divisor(folded, other_folded);
                        let ahead = (other.start - item.start).rem_euclid(common);
                        let behind = (item.start - other.start).rem_euclid(common);
                        if ahead < item.length || behind < other.length {
                            line.add(other.start, other.length, other_folded);
                        }
                    }
                }
            }
            self.work += 1;
        }
    }

    /// The first start from `from` until `until`, both included, at which every stretch is free.
    pub fn fit(
        &mut self,
        class: usize,
        stretches: &[Stretch],
        from: i64,
        until: i64,
    ) -> Option<i64> {
        if !stretches.iter().all(|stretch| self.has_line(stretch.link.index(), class)) {
            return None;
        }
        let mut cursors: Vec<(i64, Cursor)> = Vec::with_capacity(stretches.len());
        for stretch in stretches {
            let line = self.ports[stretch.link.index()].line(class)?;
            cursors.push((stretch.start, line.cursor(stretch.length, from + stretch.start)));
        }
        // Those that say no most often are asked first.
        cursors.sort_by_key(|(_, cursor)| std::cmp::Reverse(cursor.busy_intervals()));
        let mut start = from;
        let mut calm = 0;
        let mut next = 0;
        while calm < cursors.len() {
            let (after, cursor) = &mut cursors[next];
            self.work += 1;
            match cursor.wait(start + *after)? {
                0 => calm += 1,
                wait => {
                    start += wait;
                    calm = 1;
                    if start > until {
                        return None;
                    }
                }
            }
            next = if next + 1 == cursors.len() { 0 } else { next + 1 };
        }
        Some(start)
    }

    /// Makes a link's line for a class if need be; `false`: it would have too many pieces.
    fn has_line(&mut self, link: usize, class: usize) -> bool {
        let port = &mut self.ports[link];
        if port.line(class).is_some() {
            return true;
        }
        let interval = self.intervals[class];
        let each = port.items.iter().map(|item| interval / self.divisors[item.class][class]);
        let pieces = each.fold(0, i64::saturating_add);
        if pieces > MAX_PIECES {
            return false;
        }
        let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
        // A line of many pieces is dearer to fold than what is on the link to fold anew.
        let longer = port.lines().filter(|(other, line)| {
            self.intervals[*other] % interval == 0 && line.busy_intervals() / 8 <= pieces
        });
        let whole = |(other, _): &(usize, &BusyTimeline)| {
            let own = self.intervals[*other];
            let fits =
                |item: &Item| self.divisors[item.class][*other] == self.intervals[item.class];
            interval % own == 0 && port.items.iter().all(fits)
        };
        let line = if let Some((_, line)) = longer.min_by_key(|(other, _)| self.intervals[*other]) {
            line.folded(interval)
        } else if let Some((other, line)) =
            port.lines().filter(whole).max_by_key(|(other, _)| self.intervals[*other])
        {
            let more = port.expected.saturating_sub(port.items.len());
            line.repeated(interval / self.intervals[other], more)
        } else {
            let every = |item: &Item| self.divisors[item.class][class];
            let all = port.items.iter().map(|item| (item.start, item.length, every(item)));
            BusyTimeline::of(interval, port.newest.least(), all)
        };
        self.work += 1 + u64::try_from(port.items.len()).unwrap_or(u64::MAX) / 8;
        let before = (port.class, std::mem::replace(&mut port.newest, line));
        if !self.lean && before.0 != NONE {
            port.older.push(before);
        }
        port.class = class;
        true
    }

    /// Makes all lines of all links, as far as they have not too many pieces.
    pub fn complete(&mut self) {
        let mut classes: Vec<usize> = (0..self.intervals.len()).collect();
        // Short intervals are folded from long ones.
        classes.sort_by_key(|class| std::cmp::Reverse(self.intervals[*class]));
        for link in 0..self.ports.len() {
            for &class in &classes {
                self.has_line(link, class);
            }
        }
    }

    /// By class: how many stretches are on a link.
    pub fn stretches(&self, link: usize) -> Vec<i64> {
        let mut counts = vec![0; self.intervals.len()];
        for item in &self.ports[link].items {
            counts[item.class] += 1;
        }
        counts
    }

    /// Gives what is of one stream to another.
    pub fn rename(&mut self, stream: u32, name: u32, stretches: &[Stretch]) {
        for stretch in stretches {
            let items = &mut self.ports[stretch.link.index()].items;
            for item in items.iter_mut().filter(|item| item.stream == stream) {
                item.stream = name;
            }
        }
    }
}

/// The greatest common divisor.
pub fn divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use timewire_base::Sequence;

    use super::*;
    use crate::model::LinkId;

    /// Whether two stretches ever meet, by looking at all their instances in a common multiple.
    fn meet(a: &Item, b: &Item, intervals: (i64, i64)) -> bool {
        let cycle = intervals.0 * intervals.1 / divisor(intervals.0, intervals.1);
        (0..cycle / intervals.0).any(|i| {
            (0..cycle / intervals.1).any(|k| {
                let ahead = (b.start + k * intervals.1) - (a.start + i * intervals.0);
                ahead.rem_euclid(cycle) < a.length || (-ahead).rem_euclid(cycle) < b.length
            })
        })
    }

    #[test]
    fn t0_nothing_that_fits_meets_anything() {
        for seed in 0..300 {
            let mut random = Sequence::new(seed);
            let intervals = [30, 60, 45, 20, 100];
            let mut table = Table::new(3);
            let mut placed: Vec<(u32, Vec<Stretch>)> = Vec::new();
            for stream in 0..40u32 {
                let interval = intervals[random.below(intervals.len())];
                let class = table.class(interval);
                let stretches: Vec<Stretch> = (0..1 + random.below(3))
                    .map(|link| Stretch {
                        link: LinkId::from_index(link),
                        start: i64::try_from(random.below(50)).unwrap(),
                        length: 1 + i64::try_from(random.below(5)).unwrap(),
                    })
                    .collect();
                if let Some(start) = table.fit(class, &stretches, 0, interval - 1) {
                    table.put(stream, class, start, &stretches);
                    placed.push((stream, stretches));
                }
                if random.below(4) == 0 && !placed.is_empty() {
                    let (stream, stretches) = placed.swap_remove(random.below(placed.len()));
                    table.take(stream, &stretches);
                }
                if random.below(8) == 0 {
                    table.complete();
                }
                for port in &table.ports {
                    for (class, line) in port.lines() {
                        let mut fresh = BusyTimeline::new(table.intervals[class], 1);
                        for item in &port.items {
                            let every = table.divisors[item.class][class];
                            fresh.add(item.start, item.length, every);
                        }
                        assert_eq!(*line, fresh, "seed {seed}");
                    }
                    for (n, a) in port.items.iter().enumerate() {
                        for b in &port.items[n + 1..] {
                            let own = (table.intervals[a.class], table.intervals[b.class]);
                            assert!(!meet(a, b, own), "seed {seed}: {a:?} {b:?} {own:?}");
                        }
                    }
                }
            }
        }
    }
}

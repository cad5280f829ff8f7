// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a link is busy, as seen by streams of one interval: everything that is on it, folded into
//! that interval. All times are nanoseconds as bare numbers, as everywhere in the search.

/// Busy time of a repeating cycle, as sorted intervals that neither overlap nor touch, the latest
/// first: streams are placed early in the cycle, and what is behind them in memory has to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyTimeline {
    cycle: i64,
    /// Free time between two intervals that is shorter counts as busy.
    least: i64,
    busy: Vec<(i64, i64)>,
}

impl BusyTimeline {
    /// Free for all of the cycle. Who asks for free time of `least` or more only and takes nothing
    /// back, gets the same answers from fewer intervals; 1 keeps every instant as it is.
    pub fn new(cycle: i64, least: i64) -> BusyTimeline {
        BusyTimeline { cycle, least, busy: Vec::new() }
    }

    /// All of these, each busy from `start` for `length` and again every so often, as
    /// [`BusyTimeline::add`] has it.
    pub fn of(cycle: i64, least: i64, all: impl Iterator<Item = (i64, i64, i64)>) -> BusyTimeline {
        let mut line = BusyTimeline::new(cycle, least);
        for (start, length, every) in all {
            line.each(start, length, every, |line, start, end| line.busy.push((start, end)));
        }
        line.busy.sort_unstable_by_key(latest_first);
        line.join();
        line
    }

    /// Joins what is sorted and too near to each other.
    fn join(&mut self) {
        let least = self.least;
        self.busy.dedup_by(|earlier, later| {
            let near = later.0 - earlier.1 < least;
            if near {
                later.0 = later.0.min(earlier.0);
            }
            near
        });
    }

    /// The same line seen in a cycle that is so many times as long, with room for so many more
    /// intervals.
    pub fn repeated(&self, times: i64, more: usize) -> BusyTimeline {
        let copies = usize::try_from(times).unwrap_or(0);
        let busy = Vec::with_capacity((self.busy.len() * copies).saturating_add(more));
        let mut line = BusyTimeline { busy, cycle: self.cycle * times, ..*self };
        for turn in (0..times).rev() {
            let base = turn * self.cycle;
            line.busy.extend(self.busy.iter().map(|(start, end)| (start + base, end + base)));
        }
        line.join();
        line
    }

    /// The same line seen in a cycle that divides its own.
    pub fn folded(&self, cycle: i64) -> BusyTimeline {
        let mut busy = Vec::with_capacity(self.busy.len() + 8);
        for &(start, end) in &self.busy {
            let (mut start, mut left) = (start % cycle, end - start);
            while left > 0 {
                let length = left.min(cycle - start);
                busy.push((start, start + length));
                (start, left) = (0, left - length);
            }
        }
        // Turn by turn it is sorted, which this sort makes use of.
        busy.sort_by_key(latest_first);
        let mut line = BusyTimeline { cycle, least: self.least, busy };
        line.join();
        line
    }

    /// The shortest free time that it has.
    pub fn least(&self) -> i64 {
        self.least
    }

    /// Busy from `start`, which may lie anywhere, for `length`, and again every `every`, which
    /// divides the cycle.
    pub fn add(&mut self, start: i64, length: i64, every: i64) {
        self.each(start, length, every, BusyTimeline::insert);
    }

    /// Takes back what was added and overlaps nothing else.
    pub fn take(&mut self, start: i64, length: i64, every: i64) {
        self.each(start, length, every, BusyTimeline::cut);
    }

    fn each(&mut self, start: i64, length: i64, every: i64, act: fn(&mut BusyTimeline, i64, i64)) {
        let length = length.min(every);
        let mut start = start.rem_euclid(every);
        while start < self.cycle {
            let end = start + length;
            if end <= self.cycle {
                act(self, start, end);
            } else {
                act(self, start, self.cycle);
                act(self, 0, end - self.cycle);
            }
            start += every;
        }
    }

    /// How many intervals are so late that this holds for them. Looked for from the earliest on,
    /// since most are, and a long line is in no cache.
    fn later(&self, holds: impl Fn(&(i64, i64)) -> bool) -> usize {
        let count = self.busy.len();
        let mut near = 4;
        while near < count && !holds(&self.busy[count - near]) {
            near *= 4;
        }
        let base = count.saturating_sub(near);
        base + self.busy[base..].partition_point(holds)
    }

    fn insert(&mut self, start: i64, end: i64) {
        let least = self.least;
        let later = self.later(|&(s, _)| s - end >= least);
        let Some(&(at, until)) = self.busy.get(later).filter(|&&(_, e)| start - e < least) else {
            self.busy.insert(later, (start, end));
            return;
        };
        let next = later + 1;
        let until = until.max(end);
        if self.busy.get(next).is_none_or(|&(_, e)| start - e >= least) {
            self.busy[later] = (at.min(start), until);
            return;
        }
        let last = next + self.busy[next..].partition_point(|&(_, e)| start - e < least);
        self.busy[later] = (start.min(self.busy[last - 1].0), until);
        self.busy.drain(next..last);
    }

    fn cut(&mut self, start: i64, end: i64) {
        let later = self.later(|&(s, _)| s >= end);
        let Some(&(at, until)) = self.busy.get(later) else { return };
        match (at < start, end < until) {
            (false, false) => {
                self.busy.remove(later);
            }
            (true, false) => self.busy[later].1 = start,
            (false, true) => self.busy[later].0 = end,
            (true, true) => {
                self.busy[later].0 = end;
                self.busy.insert(later + 1, (at, start));
            }
        }
    }

    /// Looks for free time for `length`, first from `at` on, then from later and later instants.
    pub fn cursor(&self, length: i64, at: i64) -> Cursor<'_> {
        let turn = at.div_euclid(self.cycle) * self.cycle;
        let from = at - turn;
        let left = self.later(|&(_, end)| end > from);
        Cursor { busy: &self.busy, cycle: self.cycle, length, left, turn }
    }

    /// How many busy intervals it has.
    pub fn busy_intervals(&self) -> usize {
        self.busy.len()
    }

    /// Busy time in a cycle.
    #[cfg(test)]
    pub fn total(&self) -> i64 {
        self.busy.iter().map(|(start, end)| end - start).sum()
    }
}

/// By the end: what begins early may end late and be over others.
fn latest_first((_, end): &(i64, i64)) -> std::cmp::Reverse<i64> {
    std::cmp::Reverse(*end)
}

/// A place in a line that only goes on.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    busy: &'a [(i64, i64)],
    cycle: i64,
    length: i64,
    /// How many busy intervals can still matter in this turn of the cycle, and where it begins.
    left: usize,
    turn: i64,
}

impl Cursor<'_> {
    /// How many busy intervals the line has.
    pub fn busy_intervals(&self) -> usize {
        self.busy.len()
    }

    /// How much later than `at` the line is free for the length at a stretch; 0: at once. `None`:
    /// it never is. `at` is not before the instant that was the last answer.
    pub fn wait(&mut self, at: i64) -> Option<i64> {
        if self.length > self.cycle {
            return None;
        }
        if self.busy.is_empty() {
            return Some(0);
        }
        let mut asked = at - self.turn;
        let mut place = asked;
        loop {
            while let [.., (start, end)] = self.busy[..self.left] {
                if end > place {
                    if place + self.length <= start {
                        return Some(place - asked);
                    }
                    place = end;
                    if place - asked >= self.cycle {
                        return None;
                    }
                }
                self.left -= 1;
            }
            (asked, place) = (asked - self.cycle, place - self.cycle);
            (self.left, self.turn) = (self.busy.len(), self.turn + self.cycle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by a list of every nanosecond.
    fn slow_wait(line: &[bool], at: i64, length: i64) -> Option<i64> {
        let cycle = i64::try_from(line.len()).unwrap();
        let free = |t: i64| !line[usize::try_from(t.rem_euclid(cycle)).unwrap()];
        if length > cycle {
            return None;
        }
        (0..cycle).find(|d| (0..length).all(|k| free(at + d + k)))
    }

    fn wait(line: &BusyTimeline, at: i64, length: i64) -> Option<i64> {
        line.cursor(length, at).wait(at)
    }

    proptest! {
        #[test]
        fn t0_a_line_is_a_list_of_instants(
            steps in proptest::collection::vec((0i64..120, 1i64..20, 0usize..3), 1..20),
            asked in proptest::collection::vec((-200i64..300, 1i64..61), 10),
        ) {
            let every = [60, 30, 20];
            let mut line = BusyTimeline::new(60, 1);
            let mut slow = vec![false; 60];
            let mut all = Vec::new();
            for (start, length, which) in steps {
                let every = every[which];
                let length = length.min(every);
                line.add(start, length, every);
                all.push((start, length, every));
                for turn in 0..60 / every {
                    for k in 0..length {
                        let t = (start + turn * every + k).rem_euclid(60);
                        slow[usize::try_from(t).unwrap()] = true;
                    }
                }
            }
            for (at, length) in asked {
                prop_assert_eq!(wait(&line, at, length), slow_wait(&slow, at, length));
                let long = line.repeated(3, 0);
                prop_assert_eq!(wait(&long, at, length), slow_wait(&slow.repeat(3), at, length));
                let mut cursor = line.cursor(length, at);
                let mut at = at;
                for later in [0, 3, 50, 61, 200] {
                    at += later;
                    let slow = slow_wait(&slow, at, length);
                    prop_assert_eq!(cursor.wait(at), slow);
                    let Some(wait) = slow else { break };
                    at += wait;
                }
            }
            prop_assert_eq!(&BusyTimeline::of(60, 1, all.into_iter()), &line);
            prop_assert_eq!(&line.repeated(3, 1).folded(60), &line);
            let busy = slow.iter().filter(|busy| **busy).count();
            prop_assert_eq!(line.total(), i64::try_from(busy).unwrap());
        }

        #[test]
        fn t0_what_is_taken_back_was_never_there(
            items in proptest::collection::vec((0i64..200, 1i64..9, 0usize..3), 1..30),
        ) {
            let every = [120, 60, 30];
            let mut line = BusyTimeline::new(120, 1);
            let mut kept = Vec::new();
            for (start, length, which) in items {
                let every = every[which];
                let free = (0..120 / every)
                    .all(|k| wait(&line, start + k * every, length) == Some(0));
                if free {
                    line.add(start, length, every);
                    kept.push((start, length, every));
                }
            }
            let all = line.clone();
            for (start, length, every) in &kept {
                let mut without = all.clone();
                without.take(*start, *length, *every);
                prop_assert_eq!(without.total(), all.total() - length * (120 / every));
                line.take(*start, *length, *every);
            }
            prop_assert_eq!(line, BusyTimeline::new(120, 1));
        }
    }
}

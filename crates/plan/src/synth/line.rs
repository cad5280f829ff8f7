// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a link is busy, as seen by streams of one interval: everything that is on it, folded into
//! that interval. All times are nanoseconds as bare numbers, as everywhere in the search.
//!
//! Not here: which stream makes it busy ([`super::table`]).

/// Busy time of a repeating cycle, as sorted intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    cycle: i64,
    busy: Vec<(i64, i64)>,
}

impl Line {
    pub fn new(cycle: i64) -> Line {
        Line { cycle, busy: Vec::new() }
    }

    /// All of these, each busy from `start` for `length` and again every so often, as
    /// [`Line::add`] has it.
    pub fn of(cycle: i64, all: impl Iterator<Item = (i64, i64, i64)>) -> Line {
        let mut line = Line::new(cycle);
        for (start, length, every) in all {
            line.each(start, length, every, |line, start, end| line.busy.push((start, end)));
        }
        line.busy.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (start, end) in line.busy {
            match joined.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        Line { cycle, busy: joined }
    }

    /// The same line seen in a cycle that is so many times as long.
    pub fn repeated(&self, times: i64) -> Line {
        let copies = (0..times).flat_map(|k| {
            let base = k * self.cycle;
            self.busy.iter().map(move |(start, end)| (start + base, end + base))
        });
        let mut busy: Vec<(i64, i64)> = Vec::with_capacity(self.busy.len());
        for (start, end) in copies {
            match busy.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => busy.push((start, end)),
            }
        }
        Line { cycle: self.cycle * times, busy }
    }

    /// Busy from `start`, which may lie anywhere, for `length`, and again every `every`, which
    /// divides the cycle.
    pub fn add(&mut self, start: i64, length: i64, every: i64) {
        self.each(start, length, every, Line::insert);
    }

    /// Takes back what was added and overlaps nothing else.
    pub fn take(&mut self, start: i64, length: i64, every: i64) {
        self.each(start, length, every, Line::cut);
    }

    fn each(&mut self, start: i64, length: i64, every: i64, act: fn(&mut Line, i64, i64)) {
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

    fn insert(&mut self, start: i64, end: i64) {
        let first = self.busy.partition_point(|&(_, e)| e < start);
        let Some(&(at, until)) = self.busy.get(first).filter(|&&(s, _)| s <= end) else {
            self.busy.insert(first, (start, end));
            return;
        };
        let next = first + 1;
        if self.busy.get(next).is_none_or(|&(s, _)| s > end) {
            self.busy[first] = (at.min(start), until.max(end));
            return;
        }
        let last = next + self.busy[next..].partition_point(|&(s, _)| s <= end);
        let end = end.max(self.busy[last - 1].1);
        self.busy[first] = (at.min(start), end);
        self.busy.drain(next..last);
    }

    fn cut(&mut self, start: i64, end: i64) {
        let first = self.busy.partition_point(|&(_, e)| e <= start);
        let Some(&(at, until)) = self.busy.get(first) else { return };
        match (at < start, end < until) {
            (false, false) => {
                self.busy.remove(first);
            }
            (true, false) => self.busy[first].1 = start,
            (false, true) => self.busy[first].0 = end,
            (true, true) => {
                self.busy[first].1 = start;
                self.busy.insert(first + 1, (end, until));
            }
        }
    }

    /// Looks for free time for `length`, from later and later instants.
    pub fn cursor(&self, length: i64) -> Cursor<'_> {
        Cursor { line: self, length, next: 0, turn: 0 }
    }

    /// Busy time in a cycle.
    #[cfg(test)]
    pub fn total(&self) -> i64 {
        self.busy.iter().map(|(start, end)| end - start).sum()
    }
}

/// A place in a line that only goes on.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    line: &'a Line,
    length: i64,
    /// The first busy interval that can matter, and where its turn of the cycle begins.
    next: usize,
    turn: i64,
}

impl Cursor<'_> {
    /// Goes to the turn in which `at` is. Before the first question, and after going back.
    pub fn reset(&mut self, at: i64) {
        let (cycle, busy) = (self.line.cycle, &self.line.busy);
        self.turn = at.div_euclid(cycle) * cycle;
        let from = at - self.turn;
        self.next = busy.partition_point(|&(_, end)| end <= from);
    }

    /// How many busy intervals the line has.
    pub fn busy_intervals(&self) -> usize {
        self.line.busy.len()
    }

    /// How much later than `at` the line is free for the length at a stretch; 0: at once. `None`:
    /// it never is. `at` is not before the instant that was the last answer.
    pub fn wait(&mut self, at: i64) -> Option<i64> {
        let (cycle, busy) = (self.line.cycle, self.line.busy.as_slice());
        if self.length > cycle {
            return None;
        }
        if busy.is_empty() {
            return Some(0);
        }
        let mut place = at;
        loop {
            let Some(&(start, end)) = busy.get(self.next) else {
                (self.next, self.turn) = (0, self.turn + cycle);
                continue;
            };
            if end + self.turn > place {
                if place + self.length <= start + self.turn {
                    return Some(place - at);
                }
                place = place.max(end + self.turn);
                if place - at >= cycle {
                    return None;
                }
            }
            self.next += 1;
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

    fn wait(line: &Line, at: i64, length: i64) -> Option<i64> {
        let mut cursor = line.cursor(length);
        cursor.reset(at);
        cursor.wait(at)
    }

    proptest! {
        #[test]
        fn t0_a_line_is_a_list_of_instants(
            steps in proptest::collection::vec((0i64..120, 1i64..20, 0usize..3), 1..20),
            asked in proptest::collection::vec((-200i64..300, 1i64..61), 10),
        ) {
            let every = [60, 30, 20];
            let mut line = Line::new(60);
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
                let long = line.repeated(3);
                prop_assert_eq!(wait(&long, at, length), slow_wait(&slow.repeat(3), at, length));
                let mut cursor = line.cursor(length);
                cursor.reset(at);
                let mut at = at;
                for later in [0, 3, 50, 61, 200] {
                    at += later;
                    let slow = slow_wait(&slow, at, length);
                    prop_assert_eq!(cursor.wait(at), slow);
                    let Some(wait) = slow else { break };
                    at += wait;
                }
            }
            prop_assert_eq!(&Line::of(60, all.into_iter()), &line);
            let busy = slow.iter().filter(|busy| **busy).count();
            prop_assert_eq!(line.total(), i64::try_from(busy).unwrap());
        }

        #[test]
        fn t0_what_is_taken_back_was_never_there(
            items in proptest::collection::vec((0i64..200, 1i64..9, 0usize..3), 1..30),
        ) {
            let every = [120, 60, 30];
            let mut line = Line::new(120);
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
            prop_assert_eq!(line, Line::new(120));
        }
    }
}

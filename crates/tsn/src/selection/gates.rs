// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gates of the queues of a port: a list of states that repeats.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.8.4 and 8.6.9.

use thiserror::Error;
use timewire_base::Span;

use crate::time::Ps;

/// A gate list that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GateError {
    /// The list has no entry.
    #[error("a gate list without entries says nothing: write at least one")]
    Empty,
    /// An entry has no length.
    #[error("entry {index} lasts {interval}: an entry takes time")]
    NoInterval {
        /// Which entry, from 0.
        index: usize,
        /// What was given.
        interval: Span,
    },
    /// The entries are longer than the cycle.
    #[error("the entries together are {total}, longer than the cycle of {cycle}")]
    BeyondCycle {
        /// Sum of the entries.
        total: Span,
        /// The cycle.
        cycle: Span,
    },
}

/// One state of the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateEntry {
    /// Bit `n` is set when the gate of class `n` is open.
    pub open: u8,
    /// How long the state lasts.
    pub interval: Span,
    /// Preemptable frames hold back meanwhile (Set-And-Hold-MAC).
    pub hold: bool,
}

/// Where an instant lies in the windows of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The gate is open, for the last time just before `until`.
    Open {
        /// First instant at which it is closed; [`Ps::MAX`] when it never closes.
        until: Ps,
    },
    /// The gate is closed, and opens at `at`, strictly later.
    Closed {
        /// When it opens; [`Ps::MAX`] when it never does.
        at: Ps,
    },
}

/// Traffic classes of a port; class 7 is the most urgent.
pub const CLASSES: usize = 8;

/// The gates of the eight classes of a port, by the clock of its station, for ever; before their
/// first cycle, too, unless they begin then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateList {
    base: Ps,
    /// Before that all gates are open.
    begins: Option<Ps>,
    cycle: i64,
    /// One for each class, and the times of hold.
    windows: [Windows; CLASSES + 1],
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Windows {
    /// Open intervals within the cycle, in their order and apart.
    spans: Vec<(i64, i64)>,
    always: bool,
    /// The last interval goes on into the first of the next cycle.
    wraps: bool,
}

impl GateList {
    /// A list whose entries begin at `base` and every cycle from it; what the entries leave of the
    /// cycle, the last of them fills. Without a cycle it is as long as its entries.
    ///
    /// **Errors**: no entries, one without length, or more than the cycle takes.
    pub fn new(
        base: Ps,
        cycle: Option<Span>,
        entries: &[GateEntry],
    ) -> Result<GateList, GateError> {
        let mut total = Span::ZERO;
        for (index, entry) in entries.iter().enumerate() {
            if entry.interval <= Span::ZERO {
                return Err(GateError::NoInterval { index, interval: entry.interval });
            }
            total = total.checked_add(entry.interval).unwrap_or(Span::MAX);
        }
        let cycle = cycle.unwrap_or(total);
        if entries.is_empty() {
            return Err(GateError::Empty);
        }
        if total > cycle || cycle > LONGEST {
            return Err(GateError::BeyondCycle { total, cycle: cycle.min(LONGEST) });
        }
        let cycle = Ps::from_span(cycle).get();
        let open = |class: usize, entry: &GateEntry| match class {
            HOLD => entry.hold,
            class => entry.open >> class & 1 == 1,
        };
        let windows =
            std::array::from_fn(|class| Windows::new(cycle, entries, |entry| open(class, entry)));
        Ok(GateList { base, begins: None, cycle, windows })
    }

    /// The same, in force from its base on. Before that all gates are open.
    ///
    /// **Source**: Linux 6.12, `net/sched/sch_taprio.c`, without a schedule before;
    /// IEEE 802.1Q-2022, 8.6.9.4.5, AdminGateStates with their default.
    pub fn from_base(self) -> GateList {
        GateList { begins: Some(self.base), ..self }
    }

    /// When the list comes into force, if that is later.
    fn yet_to_begin(&self, at: Ps) -> Option<Ps> {
        self.begins.filter(|begins| at < *begins)
    }

    /// Whether the gate of a class is open at an instant, and until or from when.
    pub fn gate(&self, class: usize, at: Ps) -> Gate {
        let listed = |at| self.windows[class].at(self.offset(at), self.cycle, at);
        match (self.yet_to_begin(at), class) {
            (None, _) => listed(at),
            // Nothing holds yet.
            (Some(begins), HOLD) => match listed(begins) {
                Gate::Open { .. } => Gate::Closed { at: begins },
                closed @ Gate::Closed { .. } => closed,
            },
            (Some(begins), _) => match listed(begins) {
                open @ Gate::Open { .. } => open,
                Gate::Closed { .. } => Gate::Open { until: begins },
            },
        }
    }

    /// Whether a frame that starts now and lasts so long ends within the window; else when to look
    /// again, [`Ps::MAX`] when no window is that long.
    pub(crate) fn lets(&self, class: usize, at: Ps, lasts: Ps) -> Result<(), Ps> {
        if self.yet_to_begin(at).is_some_and(|begins| at + lasts <= begins) {
            return Ok(());
        }
        if lasts > self.longest(class) {
            return Err(Ps::MAX);
        }
        match self.gate(class, at) {
            Gate::Open { until } if at + lasts <= until => Ok(()),
            Gate::Open { until } => match self.gate(class, until) {
                Gate::Closed { at } => Err(at),
                Gate::Open { .. } => Err(until),
            },
            Gate::Closed { at } => Err(at),
        }
    }

    /// Whether preemptable frames hold back at an instant, or will at most `advance` later.
    pub fn hold(&self, at: Ps, advance: Ps) -> Gate {
        match self.gate(HOLD, at) {
            Gate::Closed { at: Ps::MAX } => Gate::Closed { at: Ps::MAX },
            Gate::Closed { at: begins } if begins - at <= advance => self.gate(HOLD, begins),
            Gate::Closed { at: begins } => Gate::Closed { at: begins - advance },
            open @ Gate::Open { .. } => open,
        }
    }

    /// The longest window of a class; [`Ps::MAX`] when its gate never closes, zero when it never
    /// opens.
    pub fn longest(&self, class: usize) -> Ps {
        let windows = &self.windows[class];
        match (windows.always, windows.spans.first(), windows.spans.last()) {
            (true, ..) => Ps::MAX,
            (false, Some(first), Some(last)) => {
                let inner = windows.spans.iter().map(|(start, end)| end - start).max();
                let seam = if windows.wraps { first.1 + last.1 - last.0 } else { 0 };
                Ps::new(inner.unwrap_or(0).max(seam))
            }
            _ => Ps::ZERO,
        }
    }

    /// For how much of each cycle the gate of a class is open, and the cycle.
    pub(crate) fn open_share(&self, class: usize) -> (Ps, Ps) {
        let cycle = Ps::new(self.cycle);
        (self.open_time(class, self.base, self.base + cycle), cycle)
    }

    /// For how much of `[from, to)` the gate of a class is open.
    pub fn open_time(&self, class: usize, from: Ps, to: Ps) -> Ps {
        if let Some(begins) = self.yet_to_begin(from) {
            return match to <= begins {
                true => to - from,
                false => begins - from + self.open_time(class, begins, to),
            };
        }
        let windows = &self.windows[class];
        if windows.always {
            return to - from;
        }
        let whole: i64 = windows.spans.iter().map(|(start, end)| end - start).sum();
        let until = |at: Ps| {
            let since = at - self.base;
            let (cycles, rest) =
                (since.get().div_euclid(self.cycle), since.get().rem_euclid(self.cycle));
            let part: i64 =
                windows.spans.iter().map(|(start, end)| (rest.min(*end) - start).max(0)).sum();
            cycles * whole + part
        };
        Ps::new(until(to) - until(from))
    }

    fn offset(&self, at: Ps) -> i64 {
        (at - self.base).get().rem_euclid(self.cycle)
    }
}

impl Windows {
    fn new(cycle: i64, entries: &[GateEntry], open: impl Fn(&GateEntry) -> bool) -> Windows {
        let mut spans: Vec<(i64, i64)> = Vec::new();
        let mut at = 0;
        for (index, entry) in entries.iter().enumerate() {
            let start = at;
            let last = index + 1 == entries.len();
            at = if last { cycle } else { at + Ps::from_span(entry.interval).get() };
            if !open(entry) {
                continue;
            }
            match spans.last_mut() {
                Some((_, end)) if *end == start => *end = at,
                _ => spans.push((start, at)),
            }
        }
        let always = spans == [(0, cycle)];
        let wraps = !always
            && spans.first().is_some_and(|(start, _)| *start == 0)
            && spans.last().is_some_and(|(_, end)| *end == cycle);
        Windows { spans, always, wraps }
    }

    fn at(&self, offset: i64, cycle: i64, at: Ps) -> Gate {
        if self.always {
            return Gate::Open { until: Ps::MAX };
        }
        let (Some(first), Some(_)) = (self.spans.first(), self.spans.last()) else {
            return Gate::Closed { at: Ps::MAX };
        };
        let after = self.spans.partition_point(|(start, _)| *start <= offset);
        if let Some((_, end)) = after.checked_sub(1).and_then(|index| self.spans.get(index))
            && offset < *end
        {
            let seam = if self.wraps && *end == cycle { first.1 } else { 0 };
            return Gate::Open { until: at.saturating_add(Ps::new(end - offset + seam)) };
        }
        let next = self.spans.get(after).map_or(first.0 + cycle, |(start, _)| *start);
        Gate::Closed { at: at.saturating_add(Ps::new(next - offset)) }
    }
}

/// The index of the times of hold, behind the classes.
const HOLD: usize = CLASSES;
/// Longest cycle: sums of times stay within 64 bits.
const LONGEST: Span = Span::from_secs(1_000);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(open: u8, us: i64) -> GateEntry {
        GateEntry { open, interval: Span::from_us(us), hold: false }
    }

    fn us(us: i64) -> Ps {
        Ps::from_span(Span::from_us(us))
    }

    #[test]
    fn t0_windows_are_joined_also_over_the_end_of_the_cycle() {
        let entries = [entry(3, 10), entry(1, 10), entry(0, 10), entry(1, 10)];
        let list = GateList::new(us(5), Some(Span::from_us(50)), &entries).unwrap();
        assert_eq!(list.gate(0, us(5)), Gate::Open { until: us(25) });
        assert_eq!(list.gate(0, us(25)), Gate::Closed { at: us(35) });
        assert_eq!(list.gate(0, us(40)), Gate::Open { until: us(75) }, "over the seam");
        assert_eq!(list.gate(1, us(15)), Gate::Closed { at: us(55) });
        assert_eq!(list.gate(1, us(0)), Gate::Closed { at: us(5) }, "before the base");
        assert_eq!(list.gate(7, us(0)), Gate::Closed { at: Ps::MAX });
        assert_eq!((list.longest(0), list.longest(1), list.longest(7)), (us(40), us(10), us(0)));
    }

    #[test]
    fn t0_before_a_list_begins_all_gates_are_open() {
        let entries = [entry(0x01, 10), entry(0x02, 30)];
        let list = GateList::new(us(100), None, &entries).unwrap().from_base();
        // Class 0 is open at the base, class 1 from 10 us on, class 2 never.
        assert_eq!(list.gate(0, us(50)), Gate::Open { until: us(110) });
        assert_eq!(list.gate(1, us(50)), Gate::Open { until: us(100) });
        assert_eq!(list.gate(2, us(99)), Gate::Open { until: us(100) });
        assert_eq!(list.gate(2, us(100)), Gate::Closed { at: Ps::MAX });
        assert_eq!(list.gate(1, us(100)), Gate::Closed { at: us(110) });
        // A frame must end before its gate closes.
        assert_eq!(list.lets(1, us(95), us(5)), Ok(()));
        assert_eq!(list.lets(1, us(96), us(5)), Err(us(110)));
        assert_eq!(list.lets(2, us(90), us(10)), Ok(()));
        assert_eq!(list.lets(2, us(91), us(10)), Err(Ps::MAX));
        assert_eq!(list.open_time(1, us(50), us(140)), us(50 + 30));
        assert_eq!(list.open_time(1, us(20), us(60)), us(40));
        assert_eq!(list.open_time(2, us(100), us(200)), us(0));
    }

    #[test]
    fn t0_a_hold_begins_early_also_when_it_is_shorter_than_that() {
        let hold = GateEntry { hold: true, ..entry(0xff, 2) };
        let list = GateList::new(us(0), None, &[entry(0xff, 98), hold]).unwrap();
        assert_eq!(list.hold(us(50), us(10)), Gate::Closed { at: us(88) });
        for at in 88..100 {
            assert_eq!(list.hold(us(at), us(10)), Gate::Open { until: us(100) }, "{at} us");
        }
        assert_eq!(list.hold(us(100), us(10)), Gate::Closed { at: us(188) });
    }

    #[test]
    fn t0_what_is_no_list_is_refused() {
        let make = |cycle, entries: &[GateEntry]| GateList::new(Ps::ZERO, cycle, entries);
        assert_eq!(make(None, &[]), Err(GateError::Empty));
        assert!(matches!(make(None, &[entry(1, 0)]), Err(GateError::NoInterval { index: 0, .. })));
        let cycle = Some(Span::from_us(5));
        assert!(matches!(make(cycle, &[entry(1, 6)]), Err(GateError::BeyondCycle { .. })));
        assert_eq!(
            make(None, &[entry(1, 6)]).unwrap().gate(0, us(1)),
            Gate::Open { until: Ps::MAX }
        );
    }

    proptest! {
        /// The second method: the list walked state by state, one microsecond at a time.
        #[test]
        fn t0_windows_agree_with_the_list_itself(
            entries in proptest::collection::vec((0..4_u8, 1..6_i64), 1..6),
            rest in 0..4_i64, base in -9..9_i64, at in -40..40_i64, length in 0..40_i64,
        ) {
            let list: Vec<GateEntry> = entries.iter().map(|(m, us)| entry(*m, *us)).collect();
            let total: i64 = entries.iter().map(|(_, us)| us).sum::<i64>() + rest;
            let gates = GateList::new(us(base), Some(Span::from_us(total)), &list).unwrap();
            let is_open = |at: i64| {
                let mut offset = (at - base).rem_euclid(total);
                for (mask, us) in &entries {
                    if offset < *us { return mask & 1 == 1; }
                    offset -= us;
                }
                entries[entries.len() - 1].0 & 1 == 1
            };
            let change = (at + 1..at + 2 * total).find(|next| is_open(*next) != is_open(at));
            let change = change.map_or(Ps::MAX, us);
            let expected = if is_open(at) {
                Gate::Open { until: change }
            } else {
                Gate::Closed { at: change }
            };
            prop_assert_eq!(gates.gate(0, us(at)), expected);
            let open = (at..at + length).filter(|at| is_open(*at)).count();
            let open = us(i64::try_from(open).unwrap());
            prop_assert_eq!(gates.open_time(0, us(at), us(at + length)), open);
        }
    }
}

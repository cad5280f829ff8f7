// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How frames kept to the gate of their traffic class: inside its windows or not, how late the gate
//! opened for those that waited, and how near to its closing the last ones were.

use timewire_base::{CyclicWindows, Instant, Phase, Span, Tai, Window, WindowError};

/// When the gate of one class is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateTimes {
    /// All the time.
    Always,
    /// In these windows, no two of which touch.
    Windows(CyclicWindows),
}

impl GateTimes {
    /// From the entries of a cycle that starts at `base`: whether the gate is open, and how long.
    /// Entries that are open one after the other are one window, also over the end of the cycle.
    /// `None` when it is never open.
    ///
    /// **Errors**: a cycle without length, or more windows than can be.
    pub fn of(
        base: Instant<Tai>,
        entries: &[(bool, Span)],
    ) -> Result<Option<GateTimes>, WindowError> {
        let mut windows: Vec<Window> = Vec::new();
        let mut offset = Span::ZERO;
        let mut is_open = false;
        for &(opens, length) in entries {
            match windows.last_mut().filter(|_| is_open) {
                Some(last) if opens => last.length += length,
                _ if opens => windows.push(Window { offset, length }),
                _ => {}
            }
            is_open = opens;
            offset += length;
        }
        let cycle = offset;
        let mut base = base;
        if let [first, .., last] = windows[..]
            && first.offset == Span::ZERO
            && last.offset + last.length == cycle
        {
            // The cycle is told from the opening of the window that goes over its end.
            base = base + last.offset;
            windows.pop();
            windows.iter_mut().for_each(|one| one.offset += cycle - last.offset);
            windows[0] = Window { offset: Span::ZERO, length: last.length + first.length };
        }
        let always = windows.first().is_some_and(|one| one.length == cycle);
        let is_never = windows.is_empty();
        let checked = CyclicWindows::new(base, cycle, windows)?;
        Ok(match (always, is_never) {
            (true, _) => Some(GateTimes::Always),
            (false, true) => None,
            (false, false) => Some(GateTimes::Windows(checked)),
        })
    }
}

/// A frame that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedFrame {
    /// When it was given to the discipline.
    pub ready: Instant<Tai>,
    /// When it left.
    pub left: Instant<Tai>,
}

/// How the frames of a class kept to its gate.
///
/// **Units**: nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conformance {
    /// Frames that left in a window.
    pub inside: u64,
    /// Of each frame outside that is nearer to the next opening: how long before it.
    pub before: Vec<i64>,
    /// Of each other frame outside: how long after the last closing; 0 is the closing itself.
    pub after: Vec<i64>,
    /// Of each opening for which a frame waited: how long after it the first of those left.
    pub opening: Vec<i64>,
    /// Of each window in which frames left: how long after the opening the first did, waiting or
    /// not.
    pub first: Vec<i64>,
    /// Of each frame: from when it was given to the discipline to when it left.
    pub wait: Vec<i64>,
    /// Of each frame that left in a window and was not over when that closed: by how much.
    pub past_end: Vec<i64>,
    /// Of each window in which frames left: from the end of the last one to the closing; negative
    /// when it was not over.
    pub unused: Vec<i64>,
}

/// Holds frames against a gate. `length` is how long a frame takes on the link, from the time that
/// it left.
pub fn judge(gate: &GateTimes, frames: &[GatedFrame], length: Span) -> Conformance {
    let mut frames = frames.to_vec();
    frames.sort_by_key(|frame| (frame.left, frame.ready));
    let mut found = Conformance::default();
    let mut here: Option<Visit> = None;
    for GatedFrame { ready, left } in frames {
        found.wait.push(ns_between(ready, left));
        let windows = match gate {
            GateTimes::Always => {
                found.inside += 1;
                continue;
            }
            GateTimes::Windows(windows) => windows,
        };
        let (start, end) = match windows.phase(left) {
            Some(Phase::Inside { start, end }) => (start, end),
            Some(Phase::Before { start, .. }) => {
                let until = ns_between(left, start);
                let since = since_closing(windows, left);
                if until < since {
                    found.before.push(until)
                } else {
                    found.after.push(since)
                }
                continue;
            }
            None => continue,
        };
        found.inside += 1;
        let over = left.saturating_add(length);
        if over > end {
            found.past_end.push(ns_between(end, over));
        }
        if here.is_none_or(|visit| visit.start != start) {
            found.close(here.take());
            let offset = ns_between(start, left);
            found.first.push(offset);
            here = Some(Visit { start, end, over, opened: false });
        }
        if let Some(visit) = &mut here {
            visit.over = over;
            if !visit.opened && ready < start {
                visit.opened = true;
                found.opening.push(ns_between(start, left));
            }
        }
    }
    found.close(here);
    found
}

impl Conformance {
    fn close(&mut self, visit: Option<Visit>) {
        if let Some(Visit { end, over, .. }) = visit {
            self.unused.push(ns_between(over, end));
        }
    }
}

/// A window in which frames left.
#[derive(Clone, Copy, Debug)]
struct Visit {
    start: Instant<Tai>,
    end: Instant<Tai>,
    /// When the last frame so far was over.
    over: Instant<Tai>,
    /// Whether a frame that had waited for it has left.
    opened: bool,
}

fn ns_between(from: Instant<Tai>, to: Instant<Tai>) -> i64 {
    to.as_ns().saturating_sub(from.as_ns())
}

/// Of an instant outside.
fn since_closing(windows: &CyclicWindows, at: Instant<Tai>) -> i64 {
    let (offset, cycle) = (windows.offset_in_cycle(at).as_ns(), windows.cycle().as_ns());
    let since = |one: &Window| (offset - (one.offset + one.length).as_ns()).rem_euclid(cycle);
    windows.windows().iter().map(since).min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: i64) -> Instant<Tai> {
        Instant::from_ns(ns)
    }

    fn gate(base: i64, entries: &[(bool, i64)]) -> Option<GateTimes> {
        let entries: Vec<_> = entries.iter().map(|&(open, ns)| (open, Span::from_ns(ns))).collect();
        GateTimes::of(at(base), &entries).unwrap()
    }

    fn frames(list: &[(i64, i64)]) -> Vec<GatedFrame> {
        list.iter().map(|&(ready, left)| GatedFrame { ready: at(ready), left: at(left) }).collect()
    }

    #[test]
    fn t0_entries_that_touch_are_one_window_also_over_the_end_of_the_cycle() {
        let of = |entries: &[(bool, i64)]| match gate(1_000, entries) {
            Some(GateTimes::Windows(windows)) => {
                let list = windows.windows().iter();
                let list = list.map(|one| (one.offset.as_ns(), one.length.as_ns()));
                (windows.base_time().as_ns(), list.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(of(&[(true, 30), (true, 20), (false, 50)]), (1_000, vec![(0, 50)]));
        let over = [(true, 10), (false, 20), (true, 30), (false, 25), (true, 15)];
        assert_eq!(of(&over), (1_085, vec![(0, 25), (45, 30)]));
        assert_eq!(gate(0, &[(true, 10), (true, 20)]), Some(GateTimes::Always));
        assert_eq!(gate(0, &[(false, 10)]), None);
    }

    /// A cycle of 100, open from 20 to 60; a frame takes 5.
    #[test]
    fn t0_a_table_made_by_hand() {
        let gate = gate(0, &[(false, 20), (true, 40), (false, 40)]).unwrap();
        let list = [
            // Waited for the opening, with one behind it, and one that came into the open gate.
            (3, 22),
            (5, 22),
            (40, 41),
            // In the next cycle: none waited; the last is over 2 after the closing.
            (130, 133),
            (156, 157),
            // Outside: 60 after the closing is 0; at the middle of the gap, 20 of 40 each way; then
            // nearer to the opening.
            (158, 160),
            (185, 190),
            (210, 215),
            // Waited, and came 39 late.
            (301, 359),
        ];
        let found = judge(&gate, &frames(&list), Span::from_ns(5));
        let expected = Conformance {
            inside: 6,
            before: vec![5],
            after: vec![0, 30],
            opening: vec![2, 39],
            first: vec![2, 13, 39],
            wait: vec![19, 17, 1, 3, 1, 2, 5, 5, 58],
            past_end: vec![2, 4],
            unused: vec![14, -2, -4],
        };
        assert_eq!(found, expected);
    }

    proptest! {
        /// second method: every nanosecond of the cycle is looked at.
        #[test]
        fn t0_agrees_with_looking_at_every_nanosecond(
            entries in proptest::collection::vec((any::<bool>(), 1_i64..9), 1..7),
            list in proptest::collection::vec((0_i64..200, 0_i64..40), 0..20),
            base in -50_i64..50,
        ) {
            let cycle: i64 = entries.iter().map(|one| one.1).sum();
            let states: Vec<bool> = entries
                .iter()
                .flat_map(|&(open, ns)| std::iter::repeat_n(open, usize::try_from(ns).unwrap()))
                .collect();
            let open = |ns: i64| states[usize::try_from((ns - base).rem_euclid(cycle)).unwrap()];
            let list: Vec<_> = list.iter().map(|&(ready, wait)| (ready, ready + wait)).collect();
            let Some(gate) = gate(base, &entries) else {
                prop_assert!(!states.contains(&true));
                return Ok(());
            };
            let found = judge(&gate, &frames(&list), Span::from_ns(3));
            let inside = list.iter().filter(|(_, left)| open(*left)).count();
            prop_assert_eq!(found.inside, u64::try_from(inside).unwrap());
            let mut outside: Vec<(bool, i64)> = Vec::new();
            for &(_, left) in list.iter().filter(|(_, left)| !open(*left)) {
                let until = (1..).find(|by| open(left + by)).unwrap();
                let since = (1..).find(|by| open(left - by)).unwrap() - 1;
                outside.push(if until < since { (true, until) } else { (false, since) });
            }
            let mut told: Vec<_> = found.before.iter().map(|ns| (true, *ns)).collect();
            told.extend(found.after.iter().map(|ns| (false, *ns)));
            outside.sort_unstable();
            told.sort_unstable();
            prop_assert_eq!(told, outside);
            if states.contains(&false) {
                let closed = |left: i64| (0..).map(|by| left - by).find(|ns| !open(*ns));
                let start = |left: i64| closed(left).unwrap() + 1;
                let mut firsts = std::collections::BTreeMap::new();
                let mut openings = std::collections::BTreeMap::new();
                for &(ready, left) in list.iter().filter(|(_, left)| open(*left)) {
                    let at = start(left);
                    let first = firsts.entry(at).or_insert(left - at);
                    *first = (*first).min(left - at);
                    if ready < at {
                        let late = openings.entry(at).or_insert(left - at);
                        *late = (*late).min(left - at);
                    }
                }
                prop_assert_eq!(found.first, firsts.into_values().collect::<Vec<_>>());
                prop_assert_eq!(found.opening, openings.into_values().collect::<Vec<_>>());
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the line is this station's: the windows in effect, and the change that is due.

use timewire_base::{CyclicWindows, Instant, Phase, Span, Tai};

/// A change of the windows that has been asked for and has not yet taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The windows to come; `None` for none, so that frames leave at once.
    pub windows: Option<CyclicWindows>,
    /// When they take effect.
    #[doc(alias = "ConfigChangeTime")]
    pub config_change_time: Instant<Tai>,
}

/// Where an instant lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// There are no windows to keep to.
    Always,
    /// In the window `[start, end)`.
    Inside { start: Instant<Tai>, end: Instant<Tai> },
    /// Between windows; the next one starts then.
    Before { start: Instant<Tai> },
    /// The station has no window at all.
    Never,
}

/// The windows in effect and the ones to come.
pub(crate) struct StationWindows {
    windows: Option<CyclicWindows>,
    pending: Option<Pending>,
    longest: Span,
    known: Known,
}

/// The last window asked about: no other starts between `from` and `end`. Spares a division on
/// every call but the first of a window.
#[derive(Clone, Copy)]
struct Known {
    from: Instant<Tai>,
    start: Instant<Tai>,
    end: Instant<Tai>,
}

impl Known {
    const NOTHING: Known = Known { from: END_OF_TIME, start: END_OF_TIME, end: START_OF_TIME };
}

/// The last instant there is; stands for "never" where an instant is wanted.
pub(crate) const END_OF_TIME: Instant<Tai> = Instant::from_ns(i64::MAX);
/// The first instant there is.
pub(crate) const START_OF_TIME: Instant<Tai> = Instant::from_ns(i64::MIN);

/// From one instant to another; stops at the longest span instead of overflowing.
pub(crate) fn span_between(from: Instant<Tai>, to: Instant<Tai>) -> Span {
    Span::from_ns(to.as_ns().saturating_sub(from.as_ns()))
}

impl StationWindows {
    pub(crate) fn new(windows: Option<CyclicWindows>) -> StationWindows {
        let mut gate = StationWindows {
            windows: None,
            pending: None,
            longest: Span::ZERO,
            known: Known::NOTHING,
        };
        gate.install(windows);
        gate
    }

    pub(crate) fn windows(&self) -> Option<&CyclicWindows> {
        self.windows.as_ref()
    }

    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    /// When the pending change takes effect; the end of time when there is none.
    pub(crate) fn change_time(&self) -> Instant<Tai> {
        self.pending.as_ref().map_or(END_OF_TIME, |pending| pending.config_change_time)
    }

    /// The longest window there is; no frame longer than this can ever leave.
    pub(crate) fn longest(&self) -> Span {
        self.longest
    }

    /// Asks for other windows, from their first cycle start at or after `earliest`; for none, from
    /// the present ones' next cycle start. Gives back the windows of a change that this one
    /// replaces.
    pub(crate) fn change(
        &mut self,
        windows: Option<CyclicWindows>,
        earliest: Instant<Tai>,
    ) -> Option<CyclicWindows> {
        let cycle = windows.as_ref().or(self.windows.as_ref());
        let config_change_time = cycle.map_or(earliest, |c| c.cycle_start_at_or_after(earliest));
        let replaced = self.pending.replace(Pending { windows, config_change_time });
        replaced.and_then(|pending| pending.windows)
    }

    /// Lets a pending change take effect. Gives back the windows that held until now.
    pub(crate) fn take_effect(&mut self) -> Option<CyclicWindows> {
        let pending = self.pending.take()?;
        self.install(pending.windows)
    }

    fn install(&mut self, windows: Option<CyclicWindows>) -> Option<CyclicWindows> {
        let lengths = windows.iter().flat_map(|w| w.windows()).map(|w| w.length);
        self.longest = lengths.max().unwrap_or(Span::ZERO);
        self.known = Known::NOTHING;
        std::mem::replace(&mut self.windows, windows)
    }

    /// Where an instant lies in the windows in effect.
    pub(crate) fn look(&mut self, at: Instant<Tai>) -> Opening {
        let Some(windows) = &self.windows else {
            return Opening::Always;
        };
        if at < self.known.from || at >= self.known.end {
            self.known = match windows.phase(at) {
                Some(Phase::Inside { start, end }) => Known { from: start, start, end },
                Some(Phase::Before { start, end }) => Known { from: at, start, end },
                None => return Opening::Never,
            };
        }
        let Known { start, end, .. } = self.known;
        if start <= at { Opening::Inside { start, end } } else { Opening::Before { start } }
    }

    /// The first window start at or after an instant; the end of time when there is none.
    pub(crate) fn next_start(&self, at: Instant<Tai>) -> Instant<Tai> {
        let start = self.windows.as_ref().and_then(|w| w.next_start_at_or_after(at));
        // At the end of time the window that contains it is the last.
        start.filter(|&start| start >= at).unwrap_or(END_OF_TIME)
    }

    /// Whether it is known without a division that no window starts in `(after, until]`.
    pub(crate) fn is_quiet(&self, after: Instant<Tai>, until: Instant<Tai>) -> bool {
        let Known { from, start, end } = self.known;
        from <= after && until < if after < start { start } else { end }
    }

    /// How many windows started strictly after `after`, could have carried a frame that needs
    /// `need` and is first on the line at `line_free`, and were past that at `now`.
    pub(crate) fn missed(
        &self,
        after: Instant<Tai>,
        now: Instant<Tai>,
        line_free: Instant<Tai>,
        need: Span,
    ) -> u64 {
        let Some(cyclic) = &self.windows else {
            return 0;
        };
        let ns = |at: Instant<Tai>| i128::from(at.as_ns());
        let cycle = i128::from(cyclic.cycle().as_ns());
        let mut missed = 0;
        for window in cyclic.windows() {
            let slack = i128::from((window.length - need).as_ns());
            if slack < 0 {
                continue;
            }
            // Starts strictly between these two; a start at the first cycle counts as number 0.
            let low = ns(after).max(ns(line_free) - slack - 1);
            let high = ns(now) - slack;
            let first = ns(cyclic.base_time()) + i128::from(window.offset.as_ns());
            let up_to = |bound: i128| (bound - first).div_euclid(cycle);
            missed += (up_to(high - 1) - up_to(low)).max(0);
        }
        u64::try_from(missed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use timewire_base::Window;

    fn cyclic(list: &[(i64, i64)], cycle: i64) -> Option<CyclicWindows> {
        let list = list.iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        CyclicWindows::new(Instant::from_ns(3), Span::from_ns(cycle), list.collect()).ok()
    }

    fn at(ns: i64) -> Instant<Tai> {
        Instant::from_ns(ns)
    }

    proptest! {
        /// What is remembered of the last answer never changes the next one.
        #[test]
        fn t0_looking_again_is_looking_anew(
            list in proptest::collection::vec((0_i64..60, 1_i64..12), 0..4),
            asked in proptest::collection::vec(-100_i64..300, 1..30),
        ) {
            let Some(windows) = cyclic(&list, 64) else { return Ok(()) };
            let mut gate = StationWindows::new(Some(windows.clone()));
            let mut before = None;
            for ns in asked {
                if let Some(before) = before && gate.is_quiet(at(before), at(ns)) {
                    let next = windows.next_start_at_or_after(at(before + 1));
                    prop_assert!(next.is_none_or(|start| start > at(ns)));
                }
                let fresh = StationWindows::new(Some(windows.clone())).look(at(ns));
                prop_assert_eq!(gate.look(at(ns)), fresh);
                before = Some(ns);
            }
        }

        #[test]
        fn t0_missed_windows_agree_with_brute_force(
            list in proptest::collection::vec((0_i64..60, 1_i64..12), 0..4),
            (after, wait, busy) in (-100_i64..100, 0_i64..200, -50_i64..150),
            need in 1_i64..12,
        ) {
            let Some(windows) = cyclic(&list, 64) else { return Ok(()) };
            let (now, line_free) = (after + wait, after + busy);
            let mut expected = 0;
            for start in after + 1..=now {
                for &(offset, length) in &list {
                    let last_chance = start + length - need;
                    expected += u64::from(
                        (start - 3 - offset).rem_euclid(64) == 0
                            && length >= need
                            && last_chance < now
                            && last_chance >= line_free,
                    );
                }
            }
            let gate = StationWindows::new(Some(windows));
            let missed = gate.missed(at(after), at(now), at(line_free), Span::from_ns(need));
            prop_assert_eq!(missed, expected);
        }
    }
}

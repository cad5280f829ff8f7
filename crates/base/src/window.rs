// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The windows of a repeating cycle: when one station may send. Built once from checked parts, then
//! only asked. The transmission machine, the client library, the schedule and the judge of a run
//! all ask this one type, so they cannot disagree about where a window ends.
//!
//! Intervals are half-open, `[start, end)`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Instant, Span, Tai};

/// Windows that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The cycle has no length.
    #[error("a cycle of {cycle} has no length")]
    EmptyCycle {
        /// What was given.
        cycle: Span,
    },
    /// A window has no length or starts before the cycle.
    #[error("a window of {length} at {offset} is empty or starts before the cycle")]
    EmptyWindow {
        /// Start in the cycle.
        offset: Span,
        /// Length.
        length: Span,
    },
    /// A window ends after the cycle.
    #[error("the window at {offset} ends at {end}, after the cycle of {cycle}")]
    BeyondCycle {
        /// Start in the cycle.
        offset: Span,
        /// End in the cycle.
        end: Span,
        /// The cycle.
        cycle: Span,
    },
    /// Two windows share time.
    #[error("the window at {second} starts before the one at {first} ends")]
    Overlap {
        /// Start of the earlier window.
        first: Span,
        /// Start of the later one.
        second: Span,
    },
    /// More windows than a machine without allocation keeps.
    #[error("{count} windows are more than the {max} that a station can have")]
    TooMany {
        /// What was given.
        count: usize,
        /// The bound.
        max: usize,
    },
}

/// One window of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Start, from the start of the cycle.
    #[serde(rename = "offset_ns")]
    pub offset: Span,
    /// Length.
    #[serde(rename = "length_ns")]
    pub length: Span,
}

/// Where an instant lies relative to the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Inside a window.
    Inside {
        /// When that window started.
        start: Instant<Tai>,
        /// When it ends (the first instant outside).
        end: Instant<Tai>,
    },
    /// Between windows.
    Before {
        /// When the next window starts, strictly after the instant asked about.
        start: Instant<Tai>,
        /// When that window ends.
        end: Instant<Tai>,
    },
}

/// The windows of one station in a cycle that repeats for ever from its base time, and before it.
///
/// **Shape**: windows sorted by offset, disjoint, each inside the cycle; at most
/// [`CyclicWindows::MAX_WINDOWS`]; none at all means "never".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct CyclicWindows {
    base_time: Instant<Tai>,
    cycle: Span,
    windows: Vec<Window>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    base_time_ns: Instant<Tai>,
    cycle_ns: Span,
    windows: Vec<Window>,
}

impl TryFrom<Unchecked> for CyclicWindows {
    type Error = WindowError;
    fn try_from(raw: Unchecked) -> Result<Self, WindowError> {
        CyclicWindows::new(raw.base_time_ns, raw.cycle_ns, raw.windows)
    }
}

impl From<CyclicWindows> for Unchecked {
    fn from(checked: CyclicWindows) -> Unchecked {
        Unchecked {
            base_time_ns: checked.base_time,
            cycle_ns: checked.cycle,
            windows: checked.windows,
        }
    }
}

impl CyclicWindows {
    /// Most windows one station can have in a cycle.
    pub const MAX_WINDOWS: usize = 256;

    /// Sorts and checks the windows.
    ///
    /// **Errors**: a cycle without length, an empty window, one that leaves the cycle, two that
    /// overlap, or too many.
    pub fn new(
        base_time: Instant<Tai>,
        cycle: Span,
        mut windows: Vec<Window>,
    ) -> Result<CyclicWindows, WindowError> {
        if cycle <= Span::ZERO {
            return Err(WindowError::EmptyCycle { cycle });
        }
        if windows.len() > Self::MAX_WINDOWS {
            return Err(WindowError::TooMany { count: windows.len(), max: Self::MAX_WINDOWS });
        }
        windows.sort();
        for window in &windows {
            let Window { offset, length } = *window;
            if offset.is_negative() || length <= Span::ZERO {
                return Err(WindowError::EmptyWindow { offset, length });
            }
            let end = offset.checked_add(length).unwrap_or(Span::MAX);
            if end > cycle {
                return Err(WindowError::BeyondCycle { offset, end, cycle });
            }
        }
        for pair in windows.windows(2) {
            if pair[0].offset + pair[0].length > pair[1].offset {
                return Err(WindowError::Overlap { first: pair[0].offset, second: pair[1].offset });
            }
        }
        Ok(CyclicWindows { base_time, cycle, windows })
    }

    /// When a cycle starts; all others start whole cycles before or after it.
    pub fn base_time(&self) -> Instant<Tai> {
        self.base_time
    }

    /// The length of the cycle.
    pub fn cycle(&self) -> Span {
        self.cycle
    }

    /// The windows, sorted.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How far into its cycle an instant lies: `[0, cycle)`, also before the base time.
    pub fn offset_in_cycle(&self, at: Instant<Tai>) -> Span {
        // In 128 bits: the difference of two extreme instants does not fit 64.
        let since = i128::from(at.as_ns()) - i128::from(self.base_time.as_ns());
        let offset = since.rem_euclid(i128::from(self.cycle.as_ns()));
        Span::from_ns(i64::try_from(offset).expect("invariant: a remainder is below the cycle"))
    }

    /// The start of the first cycle *at or after* an instant.
    ///
    /// Saturates at the end of the time scale.
    pub fn cycle_start_at_or_after(&self, at: Instant<Tai>) -> Instant<Tai> {
        match self.offset_in_cycle(at) {
            Span::ZERO => at,
            offset => at.saturating_add(self.cycle - offset),
        }
    }

    /// Where an instant lies: inside a window, or before the next. `None` when there are no
    /// windows.
    ///
    /// Windows that touch are separate: the end of one is the start of the next.
    pub fn phase(&self, at: Instant<Tai>) -> Option<Phase> {
        let offset = self.offset_in_cycle(at);
        let index = self.windows.partition_point(|w| w.offset + w.length <= offset);
        let (window, from_now) = match self.windows.get(index) {
            Some(window) => (window, window.offset - offset),
            None => {
                let window = self.windows.first()?;
                (window, self.cycle - offset + window.offset)
            }
        };
        let start = at.saturating_add(from_now);
        let end = start.saturating_add(window.length);
        Some(if start <= at { Phase::Inside { start, end } } else { Phase::Before { start, end } })
    }

    /// The first window that starts *at or after* an instant. `None` when there are no windows.
    pub fn next_start_at_or_after(&self, at: Instant<Tai>) -> Option<Instant<Tai>> {
        match self.phase(at)? {
            Phase::Before { start, .. } => Some(start),
            Phase::Inside { start, .. } if start == at => Some(start),
            Phase::Inside { end, .. } => match self.phase(end)? {
                Phase::Inside { start, .. } | Phase::Before { start, .. } => Some(start),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn windows(list: &[(i64, i64)], cycle: i64) -> Result<CyclicWindows, WindowError> {
        let list = list.iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        CyclicWindows::new(Instant::from_ns(1_000), Span::from_ns(cycle), list.collect())
    }

    fn at(ns: i64) -> Instant<Tai> {
        Instant::from_ns(ns)
    }

    #[test]
    fn t0_phase_at_the_edges() {
        let w = windows(&[(0, 20), (60, 20)], 100).unwrap();
        let inside = |s, e| Some(Phase::Inside { start: at(s), end: at(e) });
        let before = |s, e| Some(Phase::Before { start: at(s), end: at(e) });
        assert_eq!(w.phase(at(1_000)), inside(1_000, 1_020));
        assert_eq!(w.phase(at(1_019)), inside(1_000, 1_020));
        assert_eq!(w.phase(at(1_020)), before(1_060, 1_080));
        assert_eq!(w.phase(at(1_080)), before(1_100, 1_120));
        assert_eq!(w.phase(at(999)), before(1_000, 1_020));
        assert_eq!(w.phase(at(-40)), inside(-40, -20));
        assert_eq!(w.next_start_at_or_after(at(1_000)), Some(at(1_000)));
        assert_eq!(w.next_start_at_or_after(at(1_001)), Some(at(1_060)));
        assert_eq!(w.cycle_start_at_or_after(at(1_000)), at(1_000));
        assert_eq!(w.cycle_start_at_or_after(at(1_001)), at(1_100));
        assert_eq!(windows(&[], 10).unwrap().phase(at(5)), None);
    }

    #[test]
    fn t0_touching_windows_stay_apart() {
        let w = windows(&[(0, 50), (50, 50)], 100).unwrap();
        assert_eq!(w.phase(at(1_049)), Some(Phase::Inside { start: at(1_000), end: at(1_050) }));
        assert_eq!(w.phase(at(1_050)), Some(Phase::Inside { start: at(1_050), end: at(1_100) }));
        assert_eq!(w.next_start_at_or_after(at(1_001)), Some(at(1_050)));
    }

    #[test]
    fn t0_impossible_windows_are_refused() {
        assert!(matches!(windows(&[], 0), Err(WindowError::EmptyCycle { .. })));
        assert!(matches!(windows(&[(0, 0)], 10), Err(WindowError::EmptyWindow { .. })));
        assert!(matches!(windows(&[(-1, 5)], 10), Err(WindowError::EmptyWindow { .. })));
        assert!(matches!(windows(&[(5, 6)], 10), Err(WindowError::BeyondCycle { .. })));
        assert!(matches!(windows(&[(5, i64::MAX)], 10), Err(WindowError::BeyondCycle { .. })));
        assert!(matches!(windows(&[(4, 3), (0, 5)], 10), Err(WindowError::Overlap { .. })));
        let many: Vec<_> = (0..257).map(|i| (i * 2, 1)).collect();
        assert!(matches!(windows(&many, 1_000), Err(WindowError::TooMany { .. })));
    }

    #[test]
    fn t0_windows_survive_json_and_json_is_checked() {
        let w = windows(&[(0, 20)], 100).unwrap();
        let text = serde_json::to_string(&w).unwrap();
        assert_eq!(serde_json::from_str::<CyclicWindows>(&text).unwrap(), w);
        let bad = text.replace("\"cycle_ns\":100", "\"cycle_ns\":10");
        assert!(serde_json::from_str::<CyclicWindows>(&bad).is_err());
    }

    proptest! {
        /// second method: ask every nanosecond of a small cycle by brute force.
        #[test]
        fn t0_phase_agrees_with_brute_force(
            raw in proptest::collection::vec((0_i64..60, 1_i64..12), 0..5),
            cycle in 1_i64..64,
            t in -300_i64..300,
        ) {
            let Ok(w) = windows(&raw, cycle) else { return Ok(()) };
            let inside = |ns: i64| {
                let phase = (ns - 1_000).rem_euclid(cycle);
                raw.iter().any(|&(o, l)| o <= phase && phase < o + l)
            };
            match w.phase(at(t)) {
                None => prop_assert!(raw.is_empty()),
                Some(Phase::Inside { start, end }) => {
                    prop_assert!((start.as_ns()..end.as_ns()).contains(&t));
                    prop_assert!((start.as_ns()..end.as_ns()).all(inside));
                }
                Some(Phase::Before { start, .. }) => {
                    prop_assert!(start.as_ns() > t);
                    prop_assert!((t..start.as_ns()).all(|ns| !inside(ns)));
                    prop_assert!(inside(start.as_ns()));
                }
            }
        }

        #[test]
        fn t0_extreme_instants_do_not_panic(t in any::<i64>(), cycle in 1_i64..i64::MAX) {
            let w = windows(&[(0, 1)], cycle).unwrap();
            let t = at(t);
            let _ = (w.phase(t), w.cycle_start_at_or_after(t), w.next_start_at_or_after(t));
        }
    }
}

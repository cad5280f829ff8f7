// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a cycle messages arrive.

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, Tai};

/// A cycle that arrivals are laid over, in equal bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseCycle {
    /// A start of the cycle; the others lie whole cycles before and after it.
    pub base_time: Instant<Tai>,
    /// Its length, above zero.
    pub cycle_time: Span,
    /// Bins of a cycle, 1 to 65536.
    pub bins: u32,
}

/// Counts arrivals by their phase: the time since the last start of the cycle, in `[0, cycle)`.
#[derive(Clone, Debug)]
pub struct PhaseHistogram {
    cycle: PhaseCycle,
    counts: Box<[u64]>,
    range: Option<(i64, i64)>,
}

/// A phase histogram to keep.
///
/// **Shape**: `counts[i]` arrivals with `phase * bins / cycle_time = i`, rounded down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// A start of the cycle, TAI.
    pub base_time_ns: i64,
    /// Length of the cycle.
    pub cycle_time_ns: i64,
    /// All arrivals.
    pub count: u64,
    /// Smallest phase; `null` of none.
    pub min_ns: Option<i64>,
    /// Largest phase; `null` of none.
    pub max_ns: Option<i64>,
    /// Arrivals by bin.
    pub counts: Vec<u64>,
}

impl PhaseHistogram {
    /// An empty one.
    ///
    /// **Panics** when the cycle is not above zero or the bins are outside their bounds.
    pub fn new(cycle: PhaseCycle) -> PhaseHistogram {
        assert!(cycle.cycle_time > Span::ZERO, "a cycle is longer than nothing");
        assert!((1..=65_536).contains(&cycle.bins), "1 to 65536 bins, not {}", cycle.bins);
        let bins = usize::try_from(cycle.bins).expect("invariant: 17 bits fit");
        PhaseHistogram { cycle, counts: vec![0; bins].into_boxed_slice(), range: None }
    }

    /// The time since the last start of the cycle at or before an instant.
    pub fn phase_of(&self, at: Instant<Tai>) -> Span {
        let since = i128::from(at.as_ns()) - i128::from(self.cycle.base_time.as_ns());
        let phase = since.rem_euclid(i128::from(self.cycle.cycle_time.as_ns()));
        Span::from_ns(i64::try_from(phase).expect("invariant: below a cycle of 64 bits"))
    }

    /// Something arrived.
    pub fn record(&mut self, at: Instant<Tai>) {
        let phase = self.phase_of(at).as_ns();
        let scaled = i128::from(phase) * i128::from(self.cycle.bins);
        let bin = usize::try_from(scaled / i128::from(self.cycle.cycle_time.as_ns()));
        self.counts[bin.expect("invariant: a phase is in a bin")] += 1;
        let (min, max) = self.range.unwrap_or((phase, phase));
        self.range = Some((min.min(phase), max.max(phase)));
    }

    /// Forgets all arrivals.
    pub fn reset(&mut self) {
        self.counts.fill(0);
        self.range = None;
    }

    /// Arrivals by bin.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// To keep.
    pub fn summary(&self) -> PhaseSummary {
        PhaseSummary {
            base_time_ns: self.cycle.base_time.as_ns(),
            cycle_time_ns: self.cycle.cycle_time.as_ns(),
            count: self.counts.iter().sum(),
            min_ns: self.range.map(|range| range.0),
            max_ns: self.range.map(|range| range.1),
            counts: self.counts.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn t0_phases_before_and_after_the_base_and_bins_that_do_not_divide() {
        let base_time = Instant::from_ns(1_000);
        let cycle = PhaseCycle { base_time, cycle_time: Span::from_ns(10), bins: 3 };
        let mut histogram = PhaseHistogram::new(cycle);
        for (at, phase) in [(1_000, 0), (999, 9), (990, 0), (1_003, 3), (1_004, 4), (1_017, 7)] {
            assert_eq!(histogram.phase_of(Instant::from_ns(at)), Span::from_ns(phase), "{at}");
            histogram.record(Instant::from_ns(at));
        }
        // Bins of 10/3: 0 to 3, 4 to 6, 7 to 9.
        assert_eq!(histogram.counts(), [3, 1, 2]);
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (6, Some(0), Some(9)));
        histogram.reset();
        assert_eq!((histogram.summary().count, histogram.summary().min_ns), (0, None));
    }

    proptest! {
        #[test]
        fn t0_every_instant_has_a_bin(
            base: i64, at: i64, cycle_time in 1..=i64::MAX, bins in 1..=65_536_u32,
        ) {
            let base_time = Instant::from_ns(base);
            let cycle = PhaseCycle { base_time, cycle_time: Span::from_ns(cycle_time), bins };
            let mut histogram = PhaseHistogram::new(cycle);
            histogram.record(Instant::from_ns(at));
            let phase = i128::from(histogram.phase_of(Instant::from_ns(at)).as_ns());
            let whole = i128::from(at) - i128::from(base) - phase;
            prop_assert_eq!(whole % i128::from(cycle_time), 0);
            let bin = histogram.counts().iter().position(|&count| count == 1).unwrap();
            let (bin, bins) = (i128::try_from(bin).unwrap(), i128::from(bins));
            prop_assert!(bin * i128::from(cycle_time) <= phase * bins);
            prop_assert!(phase * bins < (bin + 1) * i128::from(cycle_time));
        }
    }
}

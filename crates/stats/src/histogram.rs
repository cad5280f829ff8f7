// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A histogram of times in fixed memory, whose bins widen with the time: every bin is at most a
//! 32nd of the times in it wide.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use crate::distribution::Statistics;
use crate::rank::rank;
use crate::sums::{Few, Sums, as_f64};

/// Counts times, also negative ones.
///
/// Up to 63 ns either way a bin is one nanosecond; above, each octave has 32 bins. A percentile is
/// by nearest rank and tells the middle of its bin: it is off by at most a 64th of
/// the value. Count, smallest, largest, mean and standard deviation are exact.
///
/// Recording allocates nothing, and merging gives what recording all in one would have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHistogram {
    /// By magnitude: of times at or above zero, and below.
    positive: Box<[u64]>,
    negative: Box<[u64]>,
    /// Beyond the last bin, either way.
    above: u64,
    below: u64,
    range: Option<(i64, i64)>,
    sums: Sums,
}

/// A histogram to keep.
///
/// **Units**: nanoseconds. All times are 0 when `count` is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// Of the times themselves, but for percentiles, which are off by at most `percentile_error`
    /// of themselves.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Bound of the relative error of percentiles.
    pub percentile_error: f64,
    /// Bins that have any, ascending.
    pub bins: Vec<HistogramBin>,
}

impl Deref for HistogramSummary {
    type Target = Statistics;

    fn deref(&self) -> &Statistics {
        &self.statistics
    }
}

/// Times from `from_ns` to `to_ns`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramBin {
    /// Smallest time that is counted here.
    pub from_ns: i64,
    /// Largest time that is counted here.
    pub to_ns: i64,
    /// How many.
    pub count: u64,
}

/// Bins of an octave, and twice of them: below that, bins are one nanosecond.
const OCTAVE: u64 = 32;

impl Default for LogHistogram {
    fn default() -> LogHistogram {
        LogHistogram::new()
    }
}

impl LogHistogram {
    /// Bound of the relative error of a percentile: a 64th.
    pub const PERCENTILE_ERROR: f64 = 1.0 / 64.0;

    /// Bins for every time there is; 30 KiB.
    pub fn new() -> LogHistogram {
        LogHistogram::of_bins(bin_of::<OCTAVE>(1 << 63) + 1)
    }

    /// Bins for times up to `limit` either way, and one beyond them on each side, whose percentiles
    /// are told as the largest (smallest) time; 15 KiB for ten seconds.
    pub fn up_to(limit: Span) -> LogHistogram {
        LogHistogram::of_bins(bin_of::<OCTAVE>(limit.as_ns().unsigned_abs()) + 1)
    }

    fn of_bins(bins: usize) -> LogHistogram {
        LogHistogram {
            positive: vec![0; bins].into_boxed_slice(),
            negative: vec![0; bins].into_boxed_slice(),
            above: 0,
            below: 0,
            range: None,
            sums: Sums::default(),
        }
    }

    /// Counts times; as [`LogHistogram::record`] of each.
    ///
    /// **Units**: nanoseconds.
    pub fn record_all(&mut self, times: &[i64]) {
        let Some(&first) = times.first() else { return };
        let range = self.range.unwrap_or((first, first));
        // Nearly all are small, of one sign or of both.
        let mut is_within = None;
        if first >= 0 {
            is_within = self.record_small(times, range);
        }
        let is_within = is_within.or_else(|| self.record_near(times, range));
        let is_within = is_within.unwrap_or_else(|| {
            times.iter().for_each(|&ns| self.put(ns));
            self.sums.add_large(times);
            false
        });
        self.range = Some(if is_within {
            range
        } else {
            times.iter().fold(range, |(min, max), &ns| (min.min(ns), max.max(ns)))
        });
    }

    /// Counts times, all but their range, if they are small and none is negative; whether they lie
    /// within this range, then.
    #[inline]
    fn record_small(&mut self, times: &[i64], range: (i64, i64)) -> Option<bool> {
        let few = Few::of(times, range);
        if !few.are_small() {
            return None;
        }
        let (mut bins, beyond) = (Parts::of(&mut self.positive), &mut self.above);
        // Four in a round.
        let (fours, rest) = times.as_chunks::<4>();
        fours.iter().for_each(|four| four.iter().for_each(|&ns| bins.put(beyond, ns)));
        rest.iter().for_each(|&ns| bins.put(beyond, ns));
        self.sums.add_all(&few);
        Some(few.are_within())
    }

    /// As [`LogHistogram::record_small`], of times of which some are negative, as those to a launch
    /// time that is yet to come.
    #[inline(never)]
    fn record_near(&mut self, times: &[i64], (min, max): (i64, i64)) -> Option<bool> {
        let mut moved = [0; BATCH];
        let moved = moved.get_mut(..times.len())?;
        for (moved, &ns) in moved.iter_mut().zip(times) {
            *moved = ns.wrapping_add(Few::MIDDLE);
        }
        // If a bound overflows, the times are said to be outside.
        let range = (min.wrapping_add(Few::MIDDLE), max.wrapping_add(Few::MIDDLE));
        let few = Few::of(moved, range);
        if !few.are_small() {
            return None;
        }
        let mut above = (Parts::of(&mut self.positive), &mut self.above);
        let mut below = (Parts::of(&mut self.negative), &mut self.below);
        for &ns in times {
            let (bins, beyond) = if ns < 0 { &mut below } else { &mut above };
            bins.put(beyond, ns);
        }
        self.sums.add_moved(&few);
        Some(few.are_within())
    }

    /// Counts a time in its bin.
    #[inline]
    fn put(&mut self, ns: i64) {
        let bin = bin_of::<OCTAVE>(ns.unsigned_abs());
        let (bins, beyond) = if ns < 0 {
            (&mut self.negative, &mut self.below)
        } else {
            (&mut self.positive, &mut self.above)
        };
        *bins.get_mut(bin).unwrap_or(beyond) += 1;
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, time: Span) {
        let ns = time.as_ns();
        self.put(ns);
        match &mut self.range {
            // Mostly neither.
            Some((min, max)) if ns < *min || ns > *max => {
                (*min, *max) = ((*min).min(ns), (*max).max(ns));
            }
            Some(_) => {}
            none => *none = Some((ns, ns)),
        }
        self.sums.add(ns);
    }

    /// Counts all that another has counted.
    ///
    /// **Panics** when their limits differ.
    pub fn merge(&mut self, other: &LogHistogram) {
        assert_eq!(self.positive.len(), other.positive.len(), "histograms of the same limit");
        for (bins, others) in
            [(&mut self.positive, &other.positive), (&mut self.negative, &other.negative)]
        {
            bins.iter_mut().zip(others).for_each(|(count, other)| *count += other);
        }
        self.above += other.above;
        self.below += other.below;
        self.range = match (self.range, other.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.sums.merge(&other.sums);
    }

    /// Forgets all times.
    pub fn reset(&mut self) {
        self.positive.fill(0);
        self.negative.fill(0);
        (self.above, self.below, self.range, self.sums) = (0, 0, None, Sums::default());
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.sums.count()
    }

    /// The smallest and the largest.
    pub fn range(&self) -> Option<(Span, Span)> {
        self.range.map(|(min, max)| (Span::from_ns(min), Span::from_ns(max)))
    }

    /// Arithmetic mean. **Units**: nanoseconds; 0 of nothing.
    pub fn mean_ns(&self) -> f64 {
        self.sums.mean()
    }

    /// Standard deviation of the sample (n - 1). **Units**: nanoseconds; 0 for fewer than two.
    pub fn stddev_ns(&self) -> f64 {
        self.sums.deviation()
    }

    /// The time that at least `ppm` millionths of all do not exceed (nearest rank), to within a
    /// 64th of itself; the smallest and the largest are exact. `None` of nothing.
    pub fn percentile(&self, ppm: u32) -> Option<Span> {
        self.nth(ppm, &self.filled_bins(), middle)
    }

    /// As [`LogHistogram::percentile`], for bounds: never too small, and at most a 32nd of itself
    /// too large.
    pub fn percentile_at_most(&self, ppm: u32) -> Option<Span> {
        self.nth(ppm, &self.filled_bins(), |bin| bin.to_ns)
    }

    /// A percentile, from the bins that have any, as what is told of its bin.
    fn nth(
        &self,
        ppm: u32,
        bins: &[HistogramBin],
        told: impl Fn(HistogramBin) -> i64,
    ) -> Option<Span> {
        let (min, max) = self.range?;
        let rank = rank(self.count(), ppm);
        if rank == 1 || rank == self.count() {
            return Some(Span::from_ns(if rank == 1 { min } else { max }));
        }
        let mut seen = 0;
        let reached = bins.iter().find(|bin| {
            seen += bin.count;
            seen >= rank
        });
        let ns = match *reached? {
            HistogramBin { from_ns: i64::MIN, .. } if self.below > 0 => min,
            HistogramBin { to_ns: i64::MAX, .. } if self.above > 0 => max,
            bin => told(bin),
        };
        Some(Span::from_ns(ns.clamp(min, max)))
    }

    /// Bins that have any, ascending. Those beyond the limit reach to the end of 64 bits.
    pub fn bins(&self) -> impl Iterator<Item = HistogramBin> {
        self.filled_bins().into_iter()
    }

    fn filled_bins(&self) -> Vec<HistogramBin> {
        let mut bins = Vec::new();
        // The end that the outermost bins share with what lies beyond them.
        let last = i64::try_from(bounds::<OCTAVE>(self.positive.len() - 1).1).unwrap_or(i64::MAX);
        if self.below > 0 {
            let to_ns = (-last).saturating_sub(1);
            bins.push(HistogramBin { from_ns: i64::MIN, to_ns, count: self.below });
        }
        for (bin, &count) in self.negative.iter().enumerate().rev() {
            if count > 0 {
                let (from, to) = bounds::<OCTAVE>(bin);
                bins.push(HistogramBin { from_ns: negated(to), to_ns: negated(from), count });
            }
        }
        for (bin, &count) in self.positive.iter().enumerate() {
            if count > 0 {
                let (from, to) = bounds::<OCTAVE>(bin);
                let from_ns = i64::try_from(from).unwrap_or(i64::MAX);
                let to_ns = i64::try_from(to).unwrap_or(i64::MAX);
                bins.push(HistogramBin { from_ns, to_ns, count });
            }
        }
        if self.above > 0 {
            let from_ns = last.saturating_add(1);
            bins.push(HistogramBin { from_ns, to_ns: i64::MAX, count: self.above });
        }
        bins
    }

    /// To keep.
    pub fn summary(&self) -> HistogramSummary {
        let (min, max) = self.range.unwrap_or((0, 0));
        let bins = self.filled_bins();
        let percentile = |ppm| self.nth(ppm, &bins, middle).map_or(0, Span::as_ns);
        HistogramSummary {
            statistics: Statistics {
                count: self.count(),
                min_ns: min,
                p50_ns: percentile(500_000),
                p90_ns: percentile(900_000),
                p99_ns: percentile(990_000),
                p999_ns: percentile(999_000),
                max_ns: max,
                mean_ns: self.mean_ns(),
                stddev_ns: self.stddev_ns(),
            },
            percentile_error: Self::PERCENTILE_ERROR,
            bins,
        }
    }
}

fn middle(bin: HistogramBin) -> i64 {
    bin.from_ns + (bin.to_ns - bin.from_ns) / 2
}

/// A histogram whose times are kept as they come and counted many at once: for a loop that has no
/// time to spare where a time comes. Recording allocates nothing.
#[derive(Clone, Debug)]
pub struct BatchedHistogram {
    histogram: LogHistogram,
    waiting: [i64; BATCH],
    count: usize,
}

/// Times that are counted at once.
pub const BATCH: usize = 64;

impl BatchedHistogram {
    /// As [`LogHistogram::up_to`].
    pub fn up_to(limit: Span) -> BatchedHistogram {
        BatchedHistogram { histogram: LogHistogram::up_to(limit), waiting: [0; BATCH], count: 0 }
    }

    /// Keeps a time.
    #[inline]
    pub fn record(&mut self, time: Span) {
        // A power of two, so that no place is out of bounds.
        let place = self.count % BATCH;
        self.waiting[place] = time.as_ns();
        self.count = place + 1;
        if self.count == BATCH {
            self.settle();
        }
    }

    /// Counts what is kept; the histogram with all times.
    pub fn settle(&mut self) -> &LogHistogram {
        let count = std::mem::take(&mut self.count);
        self.histogram.record_all(&self.waiting[..count]);
        &self.histogram
    }

    /// The histogram without the times since it was settled last.
    pub fn settled(&self) -> &LogHistogram {
        &self.histogram
    }
}

impl HistogramSummary {
    /// Share of the times at or below `to_ns` of a bin, for drawing.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, i64)> {
        let total = as_f64(self.count.into());
        self.bins.iter().scan(0_u128, move |seen, bin| {
            *seen += u128::from(bin.count);
            Some((as_f64(*seen) / total, bin.to_ns))
        })
    }
}

/// The bin of a magnitude, of so many bins in an octave.
#[inline]
pub(crate) fn bin_of<const OCTAVE: u64>(magnitude: u64) -> usize {
    // 0 for the first octave and all below it.
    let octave = ((magnitude / OCTAVE) | 1).ilog2();
    let bin = (OCTAVE * u64::from(octave)).wrapping_add(magnitude >> octave);
    usize::try_from(bin).expect("invariant: below 8000")
}

/// The bins of one sign: those of one nanosecond up to 31 ns, and the others.
struct Parts<'a> {
    narrow: &'a mut [u64],
    wide: &'a mut [u64],
}

impl Parts<'_> {
    #[inline]
    fn of(bins: &mut [u64]) -> Parts<'_> {
        let (narrow, wide) = bins.split_at_mut(bins.len().min(NARROW));
        Parts { narrow, wide }
    }

    /// Counts a time less than 2^31 either way by its magnitude.
    #[inline]
    fn put(&mut self, beyond: &mut u64, ns: i64) {
        match self.wide.get_mut(wide_bin_of(ns)) {
            // A count of 64 bits is out of reach.
            Some(counter) => *counter = counter.wrapping_add(1),
            None => self.put_elsewhere(beyond, ns),
        }
    }

    #[cold]
    fn put_elsewhere(&mut self, beyond: &mut u64, ns: i64) {
        let bin = usize::try_from(ns.unsigned_abs()).unwrap_or(usize::MAX);
        *self.narrow.get_mut(bin).unwrap_or(beyond) += 1;
    }
}

/// How many bins are [`Parts::narrow`].
const NARROW: usize = 32;

/// As [`bin_of`] of its magnitude less [`NARROW`], of a time less than 2^31 either way, in fewer
/// instructions: its exponent and the upper bits of its mantissa as a floating-point number, which
/// has no rounding. More than there are bins of a magnitude below that.
#[inline]
fn wide_bin_of(ns: i64) -> usize {
    let [a, b, c, d, ..] = ns.to_le_bytes();
    let bits = f64::from(i32::from_le_bytes([a, b, c, d])).to_bits() & !SIGN;
    // Of the mantissa as many bits as tell the bin of an octave.
    let bin = (bits >> (f64::MANTISSA_DIGITS - 1 - OCTAVE.ilog2())).wrapping_sub(FIRST_WIDE);
    usize::try_from(bin).expect("invariant: u64 fits usize")
}

/// Of a floating-point number.
const SIGN: u64 = 1 << 63;
/// What is looked at of the floating-point number 32, the smallest of the wide bins.
const FIRST_WIDE: u64 = (1_023 + 5) * OCTAVE;
const _: () = assert!(OCTAVE == 1 << 5 && NARROW == 1 << 5);

/// The smallest and largest magnitude of a bin.
pub(crate) fn bounds<const OCTAVE: u64>(bin: usize) -> (u64, u64) {
    let bin = u64::try_from(bin).expect("invariant: below 8000");
    let octave = (bin / OCTAVE).saturating_sub(1);
    let from = (bin - OCTAVE * octave) << octave;
    (from, from + ((1 << octave) - 1))
}

pub(crate) fn negated(magnitude: u64) -> i64 {
    0_i64.checked_sub_unsigned(magnitude).unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Bins, Distribution};

    fn histogram(mut empty: LogHistogram, values: &[i64]) -> LogHistogram {
        values.iter().for_each(|&value| empty.record(Span::from_ns(value)));
        empty
    }

    #[test]
    fn t0_bins_join_and_are_narrow() {
        let count = LogHistogram::new().positive.len();
        assert_eq!(count, 1_889);
        assert_eq!(bounds::<OCTAVE>(0), (0, 0));
        for bin in 1..count - 1 {
            let (from, to) = bounds::<OCTAVE>(bin);
            assert_eq!(bounds::<OCTAVE>(bin - 1).1 + 1, from, "bin {bin}");
            assert_eq!((bin_of::<OCTAVE>(from), bin_of::<OCTAVE>(to)), (bin, bin));
            assert!((to - from + 1) <= (from / 32).max(1), "bin {bin}: {from} to {to}");
        }
        assert_eq!(bounds::<OCTAVE>(count - 1).0, 1 << 63);
    }

    #[test]
    fn t0_bins_by_floating_point_are_the_same_or_none() {
        for bin in 0..bin_of::<OCTAVE>(1 << 31) {
            let (from, to) = bounds::<OCTAVE>(bin);
            for time in [from, from + (to - from) / 2, to].map(u64::cast_signed) {
                let bins = [wide_bin_of(time), wide_bin_of(-time)];
                match bin.checked_sub(NARROW) {
                    Some(wide) => assert_eq!(bins, [wide, wide], "{time}"),
                    None => {
                        assert!(bins.iter().all(|bin| *bin > bin_of::<OCTAVE>(1 << 63)), "{time}")
                    }
                }
            }
        }
    }

    #[test]
    fn t0_ends_of_the_range_and_beyond_the_limit() {
        let ends = histogram(LogHistogram::new(), &[i64::MIN, -1, 0, i64::MAX]);
        let bins: Vec<HistogramBin> = ends.bins().collect();
        assert_eq!((bins.len(), bins[0].from_ns, bins[3].to_ns), (4, i64::MIN, i64::MAX));
        let top = histogram(LogHistogram::new(), &[0, i64::MAX - 9, i64::MAX]);
        assert_eq!(top.percentile(500_000).unwrap().as_ns(), i64::MAX - (1 << 56));
        let percentiles = [1, 250_001, 500_001, 750_001].map(|p| ends.percentile(p).unwrap());
        assert_eq!(percentiles.map(Span::as_ns), [i64::MIN, -1, 0, i64::MAX]);
        let limited = LogHistogram::up_to(Span::from_ns(100));
        let limited = histogram(limited, &[-5_000, -101, 0, 101, 102, 9_000]);
        let bins: Vec<HistogramBin> = limited.bins().collect();
        let bin = |from_ns, to_ns, count| HistogramBin { from_ns, to_ns, count };
        // 100 and 101 share a bin.
        let inside = [bin(-101, -100, 1), bin(0, 0, 1), bin(100, 101, 1)];
        assert_eq!(bins[0], bin(i64::MIN, -102, 1));
        assert_eq!(bins[1..4], inside);
        assert_eq!(bins[4], bin(102, i64::MAX, 2));
        assert_eq!(limited.percentile(1).unwrap(), Span::from_ns(-5_000));
        assert_eq!(limited.percentile(999_000).unwrap(), Span::from_ns(9_000));
        let empty = LogHistogram::new().summary();
        assert_eq!((empty.count, empty.p50_ns, empty.bins.len()), (0, 0, 0));
        assert_eq!(LogHistogram::new().percentile(500_000), None);
    }

    #[test]
    fn t0_a_summary_is_read_back() {
        let summary = histogram(LogHistogram::new(), &[-70, 5, 5, 1_000_003]).summary();
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<HistogramSummary>(&text).unwrap(), summary);
        let cumulative: Vec<(f64, i64)> = summary.cumulative().collect();
        assert_eq!(cumulative[..2], [(0.25, -70), (0.75, 5)]);
    }

    fn values() -> impl Strategy<Value = Vec<i64>> {
        let value = prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -100_i64..100,
            -1_000_000_i64..1_000_000,
            (0_u32..62, any::<i64>()).prop_map(|(shift, value)| value >> shift),
        ];
        proptest::collection::vec(value, 1..300)
    }

    proptest! {
        #[test]
        fn t0_agrees_with_the_sorted_values(values in values(), ppm in 0_u32..=1_000_000) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let filled = histogram(LogHistogram::new(), &values);
            let near = |told: i64, exact: i64| {
                let off = (i128::from(told) - i128::from(exact)).unsigned_abs();
                off * 64 <= u128::from(exact.unsigned_abs())
            };
            let rank = (values.len() * usize::try_from(ppm).unwrap()).div_ceil(1_000_000).max(1);
            let told = filled.percentile(ppm).unwrap().as_ns();
            prop_assert!(near(told, sorted[rank - 1]), "{} for {}", told, sorted[rank - 1]);
            let (most, exact) = (filled.percentile_at_most(ppm).unwrap(), sorted[rank - 1]);
            let over = i128::from(most.as_ns()) - i128::from(exact);
            prop_assert!(over >= 0 && over * 32 <= i128::from(exact).abs(), "{most} for {exact}");
            let bins = Bins::covering(Span::from_ns(10), Span::from_ns(1));
            let exact = Distribution::of(values.clone(), bins).unwrap();
            let summary = filled.summary();
            prop_assert_eq!(summary.count, exact.count);
            prop_assert_eq!((summary.min_ns, summary.max_ns), (exact.min_ns, exact.max_ns));
            for (told, exact) in [
                (summary.p50_ns, exact.p50_ns),
                (summary.p90_ns, exact.p90_ns),
                (summary.p99_ns, exact.p99_ns),
                (summary.p999_ns, exact.p999_ns),
            ] {
                prop_assert!(near(told, exact), "{} for {}", told, exact);
            }
            let scale = exact.max_ns.unsigned_abs().max(exact.min_ns.unsigned_abs()).max(1);
            let close = 1e-9 * as_f64(scale.into());
            prop_assert!((summary.mean_ns - exact.mean_ns).abs() <= close);
            prop_assert!((summary.stddev_ns - exact.stddev_ns).abs() <= close);
            for bin in &summary.bins {
                let inside = |value: &&i64| (bin.from_ns..=bin.to_ns).contains(*value);
                let count = u64::try_from(sorted.iter().filter(inside).count()).unwrap();
                prop_assert_eq!(bin.count, count);
            }
        }

        #[test]
        fn t0_counting_many_at_once_is_counting_each(values in values(), limit in 0_i64..1 << 40) {
            let limit = Span::from_ns(limit);
            let each = histogram(LogHistogram::up_to(limit), &values);
            let mut batched = BatchedHistogram::up_to(limit);
            values.iter().for_each(|&value| batched.record(Span::from_ns(value)));
            let settled = u64::try_from(values.len() / BATCH * BATCH).unwrap();
            prop_assert_eq!(batched.settled().count(), settled);
            prop_assert_eq!(batched.settle(), &each);
            prop_assert_eq!(batched.settled(), &each);
        }

        #[test]
        fn t0_counting_small_times_at_once_is_counting_each(
            times in proptest::collection::vec((0_i64..1 << 29, 0_u32..29, any::<bool>()), 1..400),
            signs in 0_u8..3,
            limit in 0_i64..1 << 30,
            odd in prop_oneof![Just(None), (any::<usize>(), any::<i64>()).prop_map(Some)],
        ) {
            let limit = Span::from_ns(limit);
            // All but the first few are mostly within a range that is known.
            let mut values = vec![0, 1 << 27];
            values.extend(times.iter().map(|&(time, shift, is_negative)| {
                let is_negative = signs == 1 || signs == 2 && is_negative;
                if is_negative { -(time >> shift) } else { time >> shift }
            }));
            if let Some((at, value)) = odd {
                let at = at % values.len();
                values[at] = value;
            }
            let each = histogram(LogHistogram::up_to(limit), &values);
            let mut batched = BatchedHistogram::up_to(limit);
            values.iter().for_each(|&value| batched.record(Span::from_ns(value)));
            prop_assert_eq!(batched.settle(), &each);
        }

        #[test]
        fn t0_merging_is_recording_in_one(a in values(), b in values(), limit in 0_i64..1 << 40) {
            let empty = LogHistogram::up_to(Span::from_ns(limit));
            let mut merged = histogram(empty.clone(), &a);
            merged.merge(&histogram(empty.clone(), &b));
            merged.merge(&empty);
            let both = histogram(empty.clone(), &[a, b].concat());
            prop_assert_eq!(&merged, &both);
            let counted: u64 = both.bins().map(|bin| bin.count).sum();
            prop_assert_eq!(counted, both.count());
            merged.reset();
            prop_assert_eq!(merged, empty);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact statistics of a list of times. Percentiles are of the values themselves (nearest rank),
//! not of bins; floats appear only in the mean and the standard deviation.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use crate::rank::{nearest_rank, rank};
use crate::sums::{Sums, as_f64};

/// A list of times in ten numbers.
///
/// **Units**: nanoseconds. Percentile `q` is the smallest value that at least `q` of all values do
/// not exceed (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many values.
    pub count: u64,
    /// Smallest.
    pub min_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 90 %.
    pub p90_ns: i64,
    /// 99 %.
    pub p99_ns: i64,
    /// 99.9 %.
    pub p999_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation of the sample (n - 1); 0 for one value.
    pub stddev_ns: f64,
}

impl Statistics {
    /// Of times in nanoseconds; `None` when there is no value.
    pub fn of(mut values: Vec<i64>) -> Option<Statistics> {
        values.sort_unstable();
        Statistics::of_sorted(&values)
    }

    fn of_sorted(sorted: &[i64]) -> Option<Statistics> {
        let mut sums = Sums::default();
        sorted.iter().for_each(|&value| sums.add(value));
        Some(Statistics {
            count: sums.count(),
            min_ns: *sorted.first()?,
            p50_ns: nearest_rank(sorted, 500_000)?,
            p90_ns: nearest_rank(sorted, 900_000)?,
            p99_ns: nearest_rank(sorted, 990_000)?,
            p999_ns: nearest_rank(sorted, 999_000)?,
            max_ns: *sorted.last()?,
            mean_ns: sums.mean(),
            stddev_ns: sums.deviation(),
        })
    }

    /// Largest minus smallest.
    pub fn peak_to_peak_ns(&self) -> i64 {
        self.max_ns.saturating_sub(self.min_ns)
    }
}

/// How a list of times is distributed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Its numbers.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Largest minus smallest. **Units**: nanoseconds.
    pub peak_to_peak_ns: i64,
    /// Histogram for drawing.
    pub histogram: Histogram,
    /// Cumulative distribution for drawing, with a dense tail: `(share of values, time)`, both
    /// ascending, at most some 200 points, the last with share 1.
    pub cdf: Vec<(f64, i64)>,
}

impl Deref for Distribution {
    type Target = Statistics;

    fn deref(&self) -> &Statistics {
        &self.statistics
    }
}

impl Distribution {
    /// The distribution of some times in nanoseconds, with a histogram in these bins. `None` when
    /// there is no value.
    pub fn of(mut values: Vec<i64>, bins: Bins) -> Option<Distribution> {
        values.sort_unstable();
        let statistics = Statistics::of_sorted(&values)?;
        Some(Distribution {
            statistics,
            peak_to_peak_ns: statistics.peak_to_peak_ns(),
            histogram: Histogram::of(&values, bins),
            cdf: cdf(&values),
        })
    }
}

/// The bins of a histogram. Two histograms to be laid over each other are made with the same bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bins {
    width: Span,
    count: usize,
}

impl Bins {
    /// Bins of this width from zero until they cover `upto`.
    ///
    /// **Panics** when the width is not above zero or the bins are more than [`Bins::MAX`].
    pub fn covering(upto: Span, width: Span) -> Bins {
        assert!(width > Span::ZERO, "a bin has a width above zero");
        let bins = upto.as_ns().max(0).unsigned_abs().div_ceil(width.as_ns().unsigned_abs());
        let count = usize::try_from(bins).unwrap_or(usize::MAX);
        assert!(count <= Self::MAX, "{upto} in bins of {width} is more than {} bins", Self::MAX);
        Bins { width, count }
    }

    /// Most bins of a histogram.
    pub const MAX: usize = 100_000;
}

/// Counts in equal bins.
///
/// **Shape**: `counts[i]` values in `[i * bin_ns, (i + 1) * bin_ns)`; `beyond` at or after the
/// last. A value below zero (two clocks that disagree) is in no bin: the rest to the distribution's
/// count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Width of a bin.
    pub bin_ns: i64,
    /// Values per bin, from zero.
    pub counts: Vec<u64>,
    /// Values beyond the last bin.
    pub beyond: u64,
}

impl Histogram {
    fn of(values: &[i64], bins: Bins) -> Histogram {
        let mut histogram =
            Histogram { bin_ns: bins.width.as_ns(), counts: vec![0; bins.count], beyond: 0 };
        for &value in values.iter().filter(|&&value| value >= 0) {
            let bin = usize::try_from(value / histogram.bin_ns).unwrap_or(usize::MAX);
            match histogram.counts.get_mut(bin) {
                Some(count) => *count += 1,
                None => histogram.beyond += 1,
            }
        }
        histogram
    }
}

/// The smallest value, then every percent, and ten times as dense from 99 %, 99.9 % and so on.
fn cdf(sorted: &[i64]) -> Vec<(f64, i64)> {
    let coarse = (0..99).map(|percent| percent * 10_000);
    let dense = [(990_000, 1_000), (999_000, 100), (999_900, 10), (999_990, 1)];
    let tail = dense.iter().flat_map(|&(from, step)| (0..9).map(move |i| from + i * step));
    let all = coarse.chain(tail).chain([999_999, 1_000_000]);
    let count = u64::try_from(sorted.len()).expect("invariant: a length fits 64 bits");
    let point = |ppm| Some((rank(count, ppm), nearest_rank(sorted, ppm)?));
    let mut points: Vec<(u64, i64)> = all.filter_map(point).collect();
    points.dedup_by_key(|(rank, _)| *rank);
    let share = |rank: u64| as_f64(rank.into()) / as_f64(count.into());
    points.into_iter().map(|(rank, value)| (share(rank), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn as_u64(len: usize) -> u64 {
        u64::try_from(len).unwrap()
    }

    fn bins() -> Bins {
        Bins::covering(Span::from_ns(100), Span::from_ns(10))
    }

    #[test]
    fn t0_known_values() {
        assert_eq!(Distribution::of(Vec::new(), bins()), None);
        let one = Distribution::of(vec![7], bins()).unwrap();
        assert_eq!((one.count, one.min_ns, one.p50_ns, one.p999_ns, one.max_ns), (1, 7, 7, 7, 7));
        assert_eq!((one.mean_ns.to_bits(), one.stddev_ns.to_bits()), (7_f64.to_bits(), 0));
        assert_eq!(one.cdf, [(1.0, 7)]);
        let thousand = Distribution::of((1..=1_000).rev().collect(), bins()).unwrap();
        assert_eq!((thousand.p50_ns, thousand.p90_ns), (500, 900));
        assert_eq!((thousand.p99_ns, thousand.p999_ns, thousand.max_ns), (990, 999, 1_000));
        assert_eq!(thousand.peak_to_peak_ns, 999);
        assert_eq!(thousand.cdf.first(), Some(&(0.001, 1)));
        assert_eq!(thousand.cdf.last(), Some(&(1.0, 1_000)));
        let few = Distribution::of(vec![2, 4, 4, 4, 5, 5, 7, 9], bins()).unwrap();
        assert!((few.mean_ns - 5.0).abs() < 1e-12);
        assert!((few.stddev_ns - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn t0_histogram_at_the_edges() {
        let values = vec![-1, 0, 9, 10, 99, 100, i64::MAX];
        let histogram = Distribution::of(values, bins()).unwrap().histogram;
        assert_eq!(histogram.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((histogram.bin_ns, histogram.beyond), (10, 2));
        let uneven = Bins::covering(Span::from_ns(101), Span::from_ns(10));
        assert_eq!(uneven.count, 11, "the last bin reaches beyond");
    }

    #[test]
    fn t0_large_values_lose_nothing_to_cancellation() {
        let base = 1_700_000_000_000_000_000_i64;
        let far = Distribution::of(vec![base, base + 1_024, base + 2_048], bins()).unwrap();
        assert!((far.stddev_ns - 1_024.0).abs() < 1e-9, "{}", far.stddev_ns);
        let extreme = Distribution::of(vec![i64::MIN, i64::MAX], bins()).unwrap();
        assert_eq!(extreme.peak_to_peak_ns, i64::MAX);
        assert!(extreme.mean_ns.is_finite() && extreme.stddev_ns.is_finite());
    }

    #[test]
    fn t0_the_tail_of_the_cdf_is_dense() {
        let cdf = Distribution::of((1..=1_000_000).collect(), bins()).unwrap().cdf;
        assert!(cdf.len() > 130 && cdf.len() <= 200, "{} points", cdf.len());
        let beyond = |share: f64| cdf.iter().filter(|point| point.0 > share).count();
        assert!(beyond(0.99) > 30 && beyond(0.999) > 20 && beyond(0.9999) > 10);
    }

    /// second method: counts instead of ranks, Welford instead of two passes.
    fn naive(values: &[i64], share: (usize, usize)) -> i64 {
        let enough = |value: i64| {
            let below = values.iter().filter(|&&other| other <= value).count();
            below * share.1 >= values.len() * share.0
        };
        *values.iter().filter(|&&value| enough(value)).min().unwrap()
    }

    fn welford(values: &[i64]) -> (f64, f64) {
        let (mut n, mut mean, mut m2) = (0.0, 0.0, 0.0);
        for &value in values {
            let value = as_f64(u128::try_from(value).unwrap());
            n += 1.0;
            let delta = value - mean;
            mean += delta / n;
            m2 += delta * (value - mean);
        }
        (mean, if n < 2.0 { 0.0 } else { (m2 / (n - 1.0)).sqrt() })
    }

    proptest! {
        #[test]
        fn t0_agrees_with_a_second_way_to_compute_it(
            values in proptest::collection::vec(0_i64..200, 1..400),
        ) {
            let d = Distribution::of(values.clone(), bins()).unwrap();
            prop_assert_eq!(d.count, as_u64(values.len()));
            prop_assert_eq!(Some(&d.min_ns), values.iter().min());
            prop_assert_eq!(Some(&d.max_ns), values.iter().max());
            prop_assert_eq!(d.peak_to_peak_ns, d.max_ns - d.min_ns);
            prop_assert_eq!(d.p50_ns, naive(&values, (1, 2)));
            prop_assert_eq!(d.p90_ns, naive(&values, (9, 10)));
            prop_assert_eq!(d.p99_ns, naive(&values, (99, 100)));
            prop_assert_eq!(d.p999_ns, naive(&values, (999, 1_000)));
            let (mean, stddev) = welford(&values);
            prop_assert!((d.mean_ns - mean).abs() < 1e-9 && (d.stddev_ns - stddev).abs() < 1e-9);
            for (bin, &count) in (0..).zip(&d.histogram.counts) {
                let inside = values.iter().filter(|&&value| value / 10 == bin).count();
                prop_assert_eq!(count, as_u64(inside));
            }
            let binned = d.histogram.counts.iter().sum::<u64>() + d.histogram.beyond;
            prop_assert_eq!(binned, d.count);
            prop_assert!(d.cdf.is_sorted() && d.cdf.len() <= 200);
            for &(share, time) in &d.cdf {
                let at_most = as_f64(values.iter().filter(|&&v| v <= time).count() as u128);
                let below = as_f64(values.iter().filter(|&&v| v < time).count() as u128);
                let rank = share * as_f64(d.count.into());
                prop_assert!(below < rank && rank <= at_most + 1e-9, "{share} {time}");
            }
            prop_assert_eq!(d.cdf.last(), Some(&(1.0, d.max_ns)));
        }
    }
}

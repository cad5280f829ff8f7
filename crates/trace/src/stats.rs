// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact statistics of a list of times. Percentiles are of the values themselves (nearest rank), not
//! of bins; floats appear only in the mean and the standard deviation.
//!
//! Not here: which times are taken (`analyse`).

use serde::{Deserialize, Serialize};

/// How a list of times is distributed.
///
/// **Units**: nanoseconds. Percentile `q` is the smallest value that at least `q` of all values do
/// not exceed (nearest rank).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
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
    /// Largest minus smallest.
    pub peak_to_peak_ns: i64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation of the sample (n - 1); 0 for one value.
    pub stddev_ns: f64,
    /// Histogram for drawing.
    pub histogram: Histogram,
    /// Cumulative distribution for drawing, with a dense tail: `(share of values, time)`, both
    /// ascending, at most some 200 points, the last with share 1.
    pub cdf: Vec<(f64, i64)>,
}

/// Counts in equal bins.
///
/// **Shape**: `counts[i]` values in `[i * bin_ns, (i + 1) * bin_ns)`; `beyond` at or after the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Width of a bin.
    pub bin_ns: i64,
    /// Values per bin, from zero.
    pub counts: Vec<u64>,
    /// Values beyond the last bin.
    pub beyond: u64,
}

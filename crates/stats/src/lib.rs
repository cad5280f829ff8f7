// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics of times: exact ones of values that are all there ([`Statistics`], [`Distribution`]),
//! a histogram in fixed memory for loops that have no time to spare ([`LogHistogram`]), and values
//! that are kept while there is room and counted from then on ([`Samples`]).
//!
//! A percentile has one definition everywhere, that of [`rank`].
#![forbid(unsafe_code)]

mod distribution;
mod histogram;
mod rank;
mod samples;
mod sums;

pub use distribution::{Bins, Distribution, Histogram, Statistics};
pub use histogram::{BATCH, BatchedHistogram, HistogramBin, HistogramSummary, LogHistogram};
pub use rank::{median, nearest_rank, rank};
pub use samples::Samples;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far values of a series resemble those before them, as the length of the blocks that a
//! resample keeps together.

use super::number::{f64_of, whole};

/// Fewest blocks of a run that say how much a figure varies.
pub(super) const FEWEST_BLOCKS: usize = 20;
/// Fewest values of a run.
pub(super) const FEWEST_VALUES: usize = 100;
/// No memory is looked for beyond so many values.
const LONGEST_MEMORY: usize = 1_000;
/// Autocorrelations in a row that have to be none before the memory ends.
const SILENT: usize = 5;
/// Values that are taken together where those next to each other alternate, as requests and their
/// responses do.
const TOGETHER: [usize; 3] = [1, 2, 4];

/// What a resample keeps together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blocks {
    /// Values of a block.
    pub length: usize,
    /// By how much the variance between such blocks is more than they show, because neighbours
    /// still resemble each other.
    pub stretch: f64,
}

impl Blocks {
    /// The longer of both, with the larger stretch.
    pub fn and(self, other: Blocks) -> Blocks {
        let length = self.length.max(other.length);
        Blocks { length, stretch: self.stretch.max(other.stretch) }
    }
}

/// The blocks of a series of at least [`FEWEST_VALUES`]: by the automatic rule of Politis and White
/// for blocks that wrap around, and at least as long as the cube root of the number of values.
/// Where the rule asks for more than leaves [`FEWEST_BLOCKS`], or sees no end of the memory, so
/// many blocks, whose resemblance is measured.
///
/// **Source**: Politis, White, "Automatic block-length selection for the dependent bootstrap",
/// 2004, with the correction by Patton, Politis, White, 2009.
pub(super) fn blocks(series: &[f64]) -> Option<Blocks> {
    let n = series.len();
    if n < FEWEST_VALUES {
        return None;
    }
    let longest = n / FEWEST_BLOCKS;
    let mean = series.iter().sum::<f64>() / f64_of(n);
    let centred: Vec<f64> = series.iter().map(|value| value - mean).collect();
    let ruled = TOGETHER.into_iter().find_map(|together| wanted(&centred, together));
    match ruled {
        Some(length) if length <= longest => Some(Blocks { length, stretch: 1.0 }),
        _ => Some(Blocks { length: longest, stretch: stretch(&centred, longest) }),
    }
}

/// The length that the rule asks for, of so many values taken together.
fn wanted(centred: &[f64], together: usize) -> Option<usize> {
    let sums: Vec<f64> = centred.chunks_exact(together).map(|it| it.iter().sum()).collect();
    let root = f64_of(sums.len()).cbrt();
    let variance = autocovariance(&sums, 0);
    let factor = if variance > 0.0 { rule(&sums, variance)? } else { 0.0 };
    let floor = whole(f64_of(centred.len()).cbrt().ceil());
    Some((whole((factor * root).ceil()) * together).max(floor.next_multiple_of(together)))
}

/// What the variance of a sum is more than that of its blocks, by the resemblance of neighbours as
/// of a series in which each value remembers the one before.
fn stretch(centred: &[f64], length: usize) -> f64 {
    let sums: Vec<f64> = centred.chunks_exact(length).map(|it| it.iter().sum()).collect();
    let mean = sums.iter().sum::<f64>() / f64_of(sums.len());
    let sums: Vec<f64> = sums.iter().map(|sum| sum - mean).collect();
    let variance = autocovariance(&sums, 0);
    if variance <= 0.0 {
        return 1.0;
    }
    let resemblance = (autocovariance(&sums, 1) / variance).clamp(0.0, MAX_RESEMBLANCE);
    (1.0 + resemblance) / (1.0 - resemblance)
}

/// Of neighbouring blocks; a drift comes near it.
const MAX_RESEMBLANCE: f64 = 0.95;

/// The factor of the cube root of the number of values.
fn rule(centred: &[f64], variance: f64) -> Option<f64> {
    let n = centred.len();
    let longest = (n / 10).clamp(1, LONGEST_MEMORY);
    let noise = 2.0 * (f64_of(n).log10() / f64_of(n)).sqrt() * variance;
    let mut covariances = vec![variance];
    let mut silent = 0;
    while silent < SILENT {
        let lag = covariances.len();
        if lag > longest + SILENT || lag >= n {
            return None;
        }
        let covariance = autocovariance(centred, lag);
        covariances.push(covariance);
        silent = if covariance.abs() < noise { silent + 1 } else { 0 };
    }
    let memory = (covariances.len() - 1 - SILENT).max(1);
    let width = (2 * memory).min(n - 1);
    while covariances.len() <= width {
        covariances.push(autocovariance(centred, covariances.len()));
    }
    let (mut slope, mut total) = (0.0, variance);
    for (lag, covariance) in covariances.iter().enumerate().take(width + 1).skip(1) {
        let part = f64_of(lag) / f64_of(width);
        let weight = if part <= 0.5 { 1.0 } else { 2.0 * (1.0 - part) };
        slope += 2.0 * weight * f64_of(lag) * covariance;
        total += 2.0 * weight * covariance;
    }
    // A series that swings back and forth can have a total of nothing; it needs no long blocks.
    let spread = (4.0 / 3.0 * total * total).max(1e-12 * variance * variance);
    Some((2.0 * slope * slope / spread).cbrt())
}

fn autocovariance(centred: &[f64], lag: usize) -> f64 {
    let pairs = centred.iter().zip(&centred[lag..]);
    pairs.map(|(a, b)| a * b).sum::<f64>() / f64_of(centred.len())
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::Latencies;
    use super::*;

    fn normal(memory: f64, n: usize) -> Vec<f64> {
        let mut source = Latencies::new(3, memory);
        (0..n).map(|_| source.normal()).collect()
    }

    #[test]
    fn t0_blocks_grow_with_memory() {
        let none = blocks(&normal(0.0, 4_000)).unwrap();
        assert!(none.length <= 24, "{none:?}");
        let some = blocks(&normal(0.8, 4_000)).unwrap();
        // The rule gives 5.4 of the cube root for this memory, were it known exactly.
        assert!((40..=130).contains(&some.length), "{some:?}");
        assert_eq!(blocks(&vec![1.0; 1_000]), Some(Blocks { length: 10, stretch: 1.0 }));
        assert_eq!(blocks(&[1.0; 99]), None);
    }

    #[test]
    fn t0_a_memory_without_an_end_is_stretched() {
        let drift: Vec<f64> = (0..4_000).map(f64::from).collect();
        let found = blocks(&drift).unwrap();
        assert!(found.length == 200 && found.stretch > 5.0, "{found:?}");
        let long = blocks(&normal(0.999, 2_000)).unwrap();
        assert!(long.length == 100 && long.stretch > 2.0, "{long:?}");
    }

    /// Requests and responses have times of their own, one after the other without end.
    #[test]
    fn t0_values_that_alternate_need_no_longer_blocks() {
        let noise = normal(0.0, 4_000);
        let alternate = |at: usize| if at.is_multiple_of(2) { 50.0 } else { -50.0 };
        let series: Vec<f64> =
            noise.iter().enumerate().map(|(at, value)| value + alternate(at)).collect();
        let found = blocks(&series).unwrap();
        assert!(found.length <= 40 && found.length.is_multiple_of(2), "{found:?}");
    }
}

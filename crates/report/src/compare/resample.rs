// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the median, the 99th percentile and the mean of one series would lie elsewhere in other
//! runs like it: by a bootstrap of blocks that wrap around.

use super::block::{Blocks, FEWEST_BLOCKS, FEWEST_VALUES, blocks};
use super::number::f64_of;
use super::random::Random;

/// Resamples of each series.
pub(super) const RESAMPLES: usize = 500;
/// Fewest values beyond a percentile.
const FEWEST_BEYOND: usize = 10;

/// Why there is no interval.
const TOO_FEW: &str = "too few values";

/// Median, 99th percentile and mean, in this order.
pub(super) const FIGURES: usize = 3;
/// How many of 100 values are beyond each percentile.
const BEYOND: [usize; 2] = [50, 1];

/// One figure of one series, with the deviations below and above it that other runs would have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub value: f64,
    /// Of the logarithm; `None` when a value is not above zero.
    pub log: Option<Deviation>,
    pub plain: Deviation,
    /// Blocks less one.
    pub freedom: f64,
}

/// Standard deviations downwards and upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Deviation {
    pub down: f64,
    pub up: f64,
}

impl Deviation {
    fn times(self, factor: f64) -> Deviation {
        Deviation { down: self.down * factor, up: self.up * factor }
    }
}

/// The estimates of a series, or why there is none of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimates {
    pub block: Option<usize>,
    pub figures: [Result<Estimate, &'static str>; FIGURES],
    pub values: Option<[f64; FIGURES]>,
}

/// Takes them of times in nanoseconds, in the order of time.
pub(super) fn estimates(series: &[i64], random: &mut Random) -> Estimates {
    if series.is_empty() {
        let figures = [Err("no values"); FIGURES];
        return Estimates { block: None, figures, values: None };
    }
    let mut resampler = Resampler::new(series);
    let values = resampler.original();
    let Some(blocks) = blocks_of(series, values) else {
        let figures = [Err(TOO_FEW); FIGURES];
        return Estimates { block: None, figures, values: Some(values) };
    };
    let replicates: Vec<[f64; FIGURES]> =
        (0..RESAMPLES).map(|_| resampler.draw(blocks.length, random)).collect();
    let freedom = f64_of(series.len()) / f64_of(blocks.length) - 1.0;
    let times = blocks.stretch.sqrt();
    let figure = |at: usize| {
        if let Some(&beyond) = BEYOND.get(at)
            && series.len() * beyond < 100 * FEWEST_BEYOND
        {
            return Err("fewer than 10 values lie beyond this percentile");
        }
        let drawn = || replicates.iter().map(|replicate| replicate[at]);
        let value = values[at];
        let positive = value > 0.0 && drawn().all(|drawn| drawn > 0.0);
        let log = positive.then(|| deviation(value.ln(), drawn().map(f64::ln)).times(times));
        Ok(Estimate { value, log, plain: deviation(value, drawn()).times(times), freedom })
    };
    let block = Some(blocks.length);
    Estimates { block, figures: std::array::from_fn(figure), values: Some(values) }
}

/// The longest block that one of the figures asks for: the mean by the values, a percentile by
/// whether they are beyond it.
fn blocks_of(series: &[i64], [p50, p99, _]: [f64; FIGURES]) -> Option<Blocks> {
    let values: Vec<f64> = series.iter().map(|&value| value as f64).collect();
    let beyond = |limit: f64| -> Vec<f64> {
        values.iter().map(|&value| f64::from(u8::from(value > limit))).collect()
    };
    Some(blocks(&values)?.and(blocks(&beyond(p50))?).and(blocks(&beyond(p99))?))
}

/// Each side by the replicates on it, and at least the deviation of both together: a side that no
/// replicate fell on is not known to be short.
fn deviation(value: f64, replicates: impl Iterator<Item = f64>) -> Deviation {
    let (mut below, mut above, mut count) = (0.0, 0.0, 0_usize);
    for replicate in replicates {
        let distance = replicate - value;
        *(if distance < 0.0 { &mut below } else { &mut above }) += distance * distance;
        count += 1;
    }
    let both = ((below + above) / f64_of(count)).sqrt();
    let side = |squares: f64| (2.0 * squares / f64_of(count)).sqrt().max(both);
    Deviation { down: side(below), up: side(above) }
}

/// A series ready to be drawn from.
struct Resampler {
    sorted: Vec<i64>,
    /// The place of each value of the series in `sorted`.
    places: Vec<usize>,
    /// Sum of the values before each; one longer than the series.
    sums: Vec<i128>,
    counts: Vec<u32>,
}

impl Resampler {
    fn new(series: &[i64]) -> Resampler {
        let mut order: Vec<usize> = (0..series.len()).collect();
        order.sort_by_key(|&at| series[at]);
        let mut places = vec![0; series.len()];
        for (place, &at) in order.iter().enumerate() {
            places[at] = place;
        }
        let mut sums = Vec::with_capacity(series.len() + 1);
        sums.push(0);
        sums.extend(series.iter().scan(0_i128, |sum, &value| {
            *sum += i128::from(value);
            Some(*sum)
        }));
        let sorted = order.iter().map(|&at| series[at]).collect();
        Resampler { sorted, places, sums, counts: vec![0; series.len()] }
    }

    fn original(&mut self) -> [f64; FIGURES] {
        self.counts.fill(1);
        self.figures(self.sums[self.sorted.len()])
    }

    fn draw(&mut self, block: usize, random: &mut Random) -> [f64; FIGURES] {
        let n = self.sorted.len();
        self.counts.fill(0);
        let (mut drawn, mut sum) = (0, 0);
        while drawn < n {
            let length = block.min(n - drawn);
            let from = random.below(n);
            let to = (from + length).min(n);
            let wrapped = length - (to - from);
            for &place in self.places[from..to].iter().chain(&self.places[..wrapped]) {
                self.counts[place] += 1;
            }
            sum += self.sums[to] - self.sums[from] + self.sums[wrapped];
            drawn += length;
        }
        self.figures(sum)
    }

    /// Percentiles by nearest rank, as everywhere.
    fn figures(&self, sum: i128) -> [f64; FIGURES] {
        let n = self.sorted.len();
        let ranks = BEYOND.map(|beyond| (n * (100 - beyond)).div_ceil(100));
        let mut found = [0_i64; 2];
        let (mut seen, mut next) = (0, 0);
        for (place, &count) in self.counts.iter().enumerate() {
            seen += usize::try_from(count).expect("invariant: 32 bits fit a size");
            while next < ranks.len() && seen >= ranks[next] {
                found[next] = self.sorted[place];
                next += 1;
            }
            if next == ranks.len() {
                break;
            }
        }
        [found[0] as f64, found[1] as f64, sum as f64 / f64_of(n)]
    }
}

/// How often the share of a series would lie elsewhere, as the number of independent values that
/// would say as much; or why that is not known. Never more than there are values.
pub(super) fn independent(series: &[bool]) -> Result<f64, &'static str> {
    let n = series.len();
    let values: Vec<f64> = series.iter().map(|&is| f64::from(u8::from(is))).collect();
    let share = values.iter().sum::<f64>() / f64_of(n);
    if n < FEWEST_VALUES {
        return Err(TOO_FEW);
    }
    if share <= 0.0 || share >= 1.0 {
        return Ok(f64_of(n));
    }
    let Blocks { length: block, stretch } = blocks(&values).ok_or(TOO_FEW)?;
    // The variance that a bootstrap of blocks has, without drawing them.
    let mut sum: f64 = values[..block].iter().sum();
    let mut squares = 0.0;
    for at in 0..n {
        squares += (sum - share * f64_of(block)).powi(2);
        sum += values[(at + block) % n] - values[at];
    }
    let variance = stretch * squares / f64_of(n) / f64_of(block);
    let bursts = (variance / (share * (1.0 - share))).max(1.0);
    Ok((f64_of(n) / bursts).max(f64_of(FEWEST_BLOCKS)))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::Latencies;
    use super::*;

    #[test]
    fn t0_figures_of_the_original_are_exact() {
        let series: Vec<i64> = (1..=1_000).rev().collect();
        let found = estimates(&series[..], &mut Random::new(1, "x")).values.unwrap();
        assert_eq!(found.map(f64::to_bits), [500.0, 990.0, 500.5].map(f64::to_bits));
        let one = estimates(&[7], &mut Random::new(1, "x"));
        assert_eq!(one.figures, [Err(TOO_FEW); FIGURES]);
        assert_eq!(estimates(&[], &mut Random::new(1, "x")).figures, [Err("no values"); FIGURES]);
    }

    /// Against the deviation of the mean that is known for such a series.
    #[test]
    fn t0_deviations_are_those_of_many_series() {
        for memory in [0.0, 0.6] {
            let mut source = Latencies::new(11, memory);
            let series: Vec<i64> = source.take(4_000, 1.0);
            let mean = estimates(&series, &mut Random::new(5, "x")).figures[2].unwrap();
            let means: Vec<f64> = (0..200)
                .map(|_| source.take(4_000, 1.0).iter().sum::<i64>() as f64 / 4_000.0)
                .collect();
            let centre = means.iter().sum::<f64>() / 200.0;
            let spread = (means.iter().map(|m| (m - centre).powi(2)).sum::<f64>() / 199.0).sqrt();
            let ratio = mean.plain.up / spread;
            assert!((0.7..1.5).contains(&ratio), "memory {memory}: {ratio}");
        }
    }

    #[test]
    fn t0_bursts_count_as_less() {
        let single: Vec<bool> = (0..4_000).map(|at| at * 7_919 % 100 == 0).collect();
        let bursts: Vec<bool> = (0..4_000).map(|at| (at / 8) * 7_919 % 100 == 0).collect();
        let (single, bursts) = (independent(&single).unwrap(), independent(&bursts).unwrap());
        assert!(bursts < single / 4.0, "{bursts} {single}");
        assert!((independent(&[false; 100]).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(independent(&[true; 10]), Err(TOO_FEW));
    }
}

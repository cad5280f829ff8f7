// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times that differ from frame to frame: processing, scheduling, what an application needs. All
//! in whole numbers, so that a seed gives the same times on every machine.

use timewire_base::{Sequence, Span};

use super::engine::{STREAM, sequence};

/// A time, or how it is distributed. Never negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always this.
    Fixed(Span),
    /// Every time from the first to the second is as likely.
    Uniform(Span, Span),
    /// Around a mean with a standard deviation, as a sum of twelve uniform times: at most six
    /// deviations away.
    Normal {
        /// The mean.
        mean: Span,
        /// The standard deviation.
        deviation: Span,
    },
    /// At least `min`, and beyond it exponential with this mean.
    Exponential {
        /// The least.
        min: Span,
        /// The mean of what comes on top.
        mean: Span,
    },
    /// As measured: one of these times, each as likely.
    Empirical(Vec<Span>),
}

impl Delay {
    /// No time.
    pub const NONE: Delay = Delay::Fixed(Span::ZERO);

    /// When messages with such gaps between them are released, from the start on and before
    /// `until`; at most so many. They are those of the stream of this number in a [`Network`] with
    /// this seed.
    ///
    /// [`Network`]: super::Network
    pub fn releases(&self, (seed, stream): (u64, usize), until: Span, most: usize) -> Vec<Span> {
        let mut random = sequence(seed, STREAM, stream);
        let mut at = self.draw(&mut random);
        let end = ps(until);
        let mut releases = Vec::new();
        while at < end && releases.len() < most {
            releases.push(Span::from_ns(i64::try_from(at / 1_000).unwrap_or(i64::MAX)));
            at = at.saturating_add(self.draw(&mut random).max(1));
        }
        releases
    }

    /// The longest of the times that it names.
    pub(super) fn longest(&self) -> Span {
        match self {
            Delay::Fixed(span) => *span,
            Delay::Uniform(from, to) => (*from).max(*to),
            Delay::Normal { mean, deviation } => (*mean).max(*deviation),
            Delay::Exponential { min, mean } => (*min).max(*mean),
            Delay::Empirical(times) => times.iter().copied().max().unwrap_or(Span::ZERO),
        }
    }

    /// The time, if it is always the same. **Units**: picoseconds.
    pub(super) fn fixed(&self) -> Option<u64> {
        match self {
            Delay::Fixed(span) => Some(ps(*span)),
            _ => None,
        }
    }

    /// Draws one. **Units**: picoseconds.
    pub(super) fn draw(&self, random: &mut Sequence) -> u64 {
        match self {
            Delay::Fixed(span) => ps(*span),
            Delay::Uniform(from, to) => {
                let (from, to) = (ps(*from), ps(*to));
                from + below(random.next(), to.saturating_sub(from).saturating_add(1))
            }
            Delay::Normal { mean, deviation } => {
                let away = normal(random, ps(*deviation));
                ps(*mean).checked_add_signed(away).unwrap_or(0)
            }
            Delay::Exponential { min, mean } => {
                ps(*min).saturating_add(exponential(random.next(), ps(*mean)))
            }
            Delay::Empirical(times) => match u64::try_from(times.len()) {
                Ok(count) if count > 0 => {
                    let index = below(random.next(), count);
                    times.get(usize::try_from(index).unwrap_or(0)).map_or(0, |span| ps(*span))
                }
                _ => 0,
            },
        }
    }
}

/// **Units**: picoseconds; a negative span is none.
pub(super) fn ps(span: Span) -> u64 {
    u64::try_from(span.as_ns()).unwrap_or(0).saturating_mul(1_000)
}

/// A random number below `bound`.
pub(super) fn below(random: u64, bound: u64) -> u64 {
    let scaled = (u128::from(random) * u128::from(bound)) >> 64;
    u64::try_from(scaled).expect("invariant: it is below the bound")
}

/// Normal around zero: twelve uniform numbers, less six.
pub(super) fn normal(random: &mut Sequence, deviation: u64) -> i64 {
    let sum: i128 = (0..12).map(|_| i128::from(random.next() >> 32)).sum();
    let centred = sum - (6 << 32);
    i64::try_from((centred * i128::from(deviation)) >> 32).unwrap_or(0)
}

/// Exponential with this mean: `-ln(u)` times it, with 32 bits of the logarithm.
fn exponential(random: u64, mean: u64) -> u64 {
    const LN_2_Q32: u128 = 2_977_044_472;
    let u = random | 1;
    // u / 2^64 = x / 2^(zeros + 1), with x from 1 to 2; its logarithm bit by bit, by squaring.
    let zeros = u.leading_zeros();
    let mut x = u128::from(u << zeros);
    let mut fraction = 0_u128;
    for _ in 0..32 {
        x = (x * x) >> 63;
        fraction <<= 1;
        if x >> 64 != 0 {
            x >>= 1;
            fraction |= 1;
        }
    }
    let log2 = (u128::from(zeros + 1) << 32) - fraction;
    let scaled = (((log2 * LN_2_Q32) >> 32) * u128::from(mean)) >> 32;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of many draws, in nanoseconds.
    #[allow(clippy::cast_precision_loss, reason = "statistics of a test")]
    fn moments(delay: &Delay) -> (f64, f64, u64, u64) {
        let mut random = Sequence::new(3);
        let draws: Vec<u64> = (0..200_000).map(|_| delay.draw(&mut random)).collect();
        let n = draws.len() as f64;
        let mean = draws.iter().map(|d| *d as f64).sum::<f64>() / n;
        let square = draws.iter().map(|d| (*d as f64 - mean).powi(2)).sum::<f64>() / n;
        let least = draws.iter().min().copied().unwrap();
        (mean / 1e3, square.sqrt() / 1e3, least, draws.iter().max().copied().unwrap())
    }

    #[test]
    fn t0_times_are_distributed_as_they_say() {
        let us = Span::from_us;
        let (mean, deviation, ..) = moments(&Delay::Exponential { min: us(5), mean: us(10) });
        assert!((mean - 15_000.0).abs() < 100.0 && (deviation - 10_000.0).abs() < 150.0);
        let (mean, deviation, ..) = moments(&Delay::Normal { mean: us(50), deviation: us(5) });
        assert!((mean - 50_000.0).abs() < 50.0 && (deviation - 5_000.0).abs() < 50.0);
        let (mean, _, least, most) = moments(&Delay::Uniform(us(1), us(3)));
        assert!((mean - 2_000.0).abs() < 10.0 && least >= 1_000_000 && most <= 3_000_000);
        let (mean, ..) = moments(&Delay::Empirical(vec![us(1), us(1), us(4)]));
        assert!((mean - 2_000.0).abs() < 20.0);
        assert_eq!(Delay::Fixed(us(7)).draw(&mut Sequence::new(1)), 7_000_000);
    }
}

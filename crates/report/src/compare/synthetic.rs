// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies that are known: each resembles the one before, with a long tail. What the comparison
//! says of such series is tested, and stands as a table in the book.

use super::random::Random;

/// A source of latencies: the exponential of a sequence in which each value is `memory` times the
/// one before and a normal rest. In one of some hundred, a whole stall comes on top.
#[derive(Clone, Debug)]
pub struct Latencies {
    random: Random,
    memory: f64,
    state: f64,
    /// Messages that the present stall still holds up, and by how much.
    stall: (u32, f64),
}

/// Draws of 2^53 parts.
const PARTS: usize = 1 << 53;
/// The latency that half of the messages stay below, nanoseconds.
const MEDIAN_NS: f64 = 400_000.0;
/// Deviation of the logarithm.
const SPREAD: f64 = 0.25;

impl Latencies {
    /// `memory` from 0 (each on its own) to below 1.
    pub fn new(seed: u64, memory: f64) -> Latencies {
        let mut source = Latencies {
            random: Random::new(seed, "latencies"),
            memory,
            state: 0.0,
            stall: (0, 0.0),
        };
        source.state = source.gauss();
        source
    }

    /// So many latencies in nanoseconds, one after the other, each times `factor`.
    pub fn take(&mut self, count: usize, factor: f64) -> Vec<i64> {
        (0..count).map(|_| self.latency(factor)).collect()
    }

    fn latency(&mut self, factor: f64) -> i64 {
        let bulk = MEDIAN_NS * (SPREAD * self.normal()).exp();
        self.stall.0 = self.stall.0.saturating_sub(1);
        if self.stall.0 == 0 && self.uniform() < 1.0 / 300.0 {
            // A Pareto tail of exponent 3: its mean exists, and so does its variance.
            let held_up = MEDIAN_NS * self.uniform().max(1e-9).powf(-1.0 / 3.0);
            self.stall = (1 + u32::from(self.uniform() < 0.5) * 3, held_up);
        }
        let stalled = if self.stall.0 > 0 { self.stall.1 } else { 0.0 };
        let ns = factor * (bulk + stalled);
        #[expect(clippy::cast_possible_truncation, reason = "below 2^53, whole nanoseconds")]
        let ns = ns.round() as i64;
        ns
    }

    /// The next of the sequence; mean 0, deviation 1.
    pub(super) fn normal(&mut self) -> f64 {
        let rest = (1.0 - self.memory * self.memory).sqrt();
        self.state = self.memory * self.state + rest * self.gauss();
        self.state
    }

    fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().max(1e-300).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn uniform(&mut self) -> f64 {
        super::number::f64_of(self.random.below(PARTS)) / super::number::f64_of(PARTS)
    }
}

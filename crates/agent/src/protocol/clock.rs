// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a station's clock is from the controller's, from exchanges over a network whose two ways
//! may take different times: an offset, and an error that the true offset does not exceed.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Mono, Span, Tai};

/// The time on both scales that a machine needs: timeouts must not step, schedules are TAI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of `CLOCK_MONOTONIC`.
    pub mono: Instant<Mono>,
    /// Of `CLOCK_TAI`, read at the same instant.
    pub tai: Instant<Tai>,
}

/// How far a clock is from the controller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockBound {
    /// Station's clock minus controller's.
    pub offset: Span,
    /// The true offset is at most this far from `offset`.
    pub error: Span,
}

impl ClockBound {
    /// The two clocks are not further apart than this.
    pub fn apart(self) -> Span {
        Span::from_ns(
            self.offset.as_ns().saturating_abs().saturating_add(self.error.as_ns().max(0)),
        )
    }
}

/// The last exchanges with one station.
#[derive(Clone, Debug, Default)]
pub struct ClockEstimate(VecDeque<Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant<Mono>,
    bound: ClockBound,
    /// From the question to the answer.
    way: Span,
}

impl ClockEstimate {
    /// How many exchanges there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes an exchange: asked at `sent`, answered with `theirs`, heard at `heard`.
    pub fn add(&mut self, sent: Now, heard: Now, theirs: Instant<Tai>) {
        let way = heard.mono.as_ns().saturating_sub(sent.mono.as_ns()).max(0);
        // A step of the controller's own clock within the exchange is part of the error.
        let by_tai = heard.tai.as_ns().saturating_sub(sent.tai.as_ns());
        let step = by_tai.saturating_sub(way).saturating_abs();
        let middle = sent.tai.as_ns().saturating_add(way / 2);
        let bound = ClockBound {
            offset: Span::from_ns(theirs.as_ns().saturating_sub(middle)),
            error: Span::from_ns((way - way / 2).saturating_add(step)),
        };
        // Exchanges that this one contradicts are from before a step.
        self.0.retain(|old| {
            let (old, new) = (aged(*old, heard.mono), bound);
            let apart = old.offset.as_ns().saturating_sub(new.offset.as_ns()).saturating_abs();
            apart <= old.error.as_ns().saturating_add(new.error.as_ns())
        });
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Sample { at: heard.mono, bound, way: Span::from_ns(way) });
    }

    /// The best that is known now; `None` without an exchange.
    pub fn bound(&self, now: Instant<Mono>) -> Option<ClockBound> {
        self.0.iter().map(|sample| aged(*sample, now)).min_by_key(|bound| bound.error)
    }

    /// How long a question and its answer take at least; zero without an exchange.
    pub fn round_trip(&self) -> Span {
        self.0.iter().map(|sample| sample.way).min().unwrap_or(Span::ZERO)
    }
}

/// How many exchanges are remembered.
const KEPT: usize = 8;
/// Two clocks, each wrong by 100 ppm at most: a nanosecond in 5000.
const DRIFT_DIVISOR: i64 = 5_000;

/// What an exchange says later on: the error grows as the clocks may drift.
fn aged(sample: Sample, now: Instant<Mono>) -> ClockBound {
    let age = now.as_ns().saturating_sub(sample.at.as_ns()).max(0);
    let error = sample.bound.error.as_ns().saturating_add(age / DRIFT_DIVISOR);
    ClockBound { error: Span::from_ns(error), ..sample.bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono: i64, tai: i64) -> Now {
        Now { mono: Instant::from_ns(mono), tai: Instant::from_ns(tai) }
    }

    #[test]
    fn t0_the_true_offset_lies_within_the_error_however_uneven_the_ways() {
        for (there, back) in [(0, 100), (100, 0), (50, 50), (7, 1)] {
            let mut clock = ClockEstimate::default();
            let true_offset = 1_000;
            let theirs = Instant::from_ns(5_000 + there + true_offset);
            clock.add(at(0, 5_000), at(there + back, 5_000 + there + back), theirs);
            let bound = clock.bound(Instant::from_ns(there + back)).unwrap();
            let wrong = (bound.offset.as_ns() - true_offset).abs();
            assert!(wrong <= bound.error.as_ns(), "{there} {back}: {bound:?}");
            assert!(bound.apart() >= Span::from_ns(true_offset));
        }
    }

    #[test]
    fn t0_the_error_grows_and_a_step_discards_what_was() {
        let mut clock = ClockEstimate::default();
        clock.add(at(0, 0), at(10, 10), Instant::from_ns(5));
        let later = Instant::from_ns(1_000_000_000);
        assert_eq!(clock.bound(later).unwrap().error, Span::from_ns(5 + 199_999));
        let stepped = Instant::from_ns(9_000_000_000);
        clock.add(at(1_000_000_000, 1_000_000_000), at(1_000_000_010, 1_000_000_010), stepped);
        assert_eq!(clock.count(), 1);
        assert!(clock.bound(later).unwrap().offset > Span::from_secs(7));
    }

    #[test]
    fn t0_a_step_of_the_own_clock_within_an_exchange_is_an_error() {
        let mut clock = ClockEstimate::default();
        clock.add(at(0, 0), at(10, 1_000_010), Instant::from_ns(5));
        assert!(clock.bound(Instant::from_ns(10)).unwrap().error >= Span::from_ms(1));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a figure of each run to the interval of their ratio and difference.
//!
//! The deviations of both runs are put together side by side (the method of variance estimates
//! recovery): below by what B may be less and A more, above the other way round.

use serde::Serialize;

use super::quantile::{normal_upper, student_upper};
use super::resample::{Deviation, Estimate};

/// A number and what it may be.
///
/// **Units**: those of the field that has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// As measured.
    pub value: f64,
    /// Not less than this,
    pub low: f64,
    /// and not more than this, at the level of the comparison.
    pub high: f64,
}

impl Interval {
    pub(super) fn exactly(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }
}

/// B over A, each side left with this probability; `None` where one has values not above zero.
pub(super) fn ratio(a: &Estimate, b: &Estimate, side: f64) -> Option<Interval> {
    let (log_a, log_b) = (a.log?, b.log?);
    let log = together((a.value.ln(), log_a), (b.value.ln(), log_b), reach(a, b, side));
    Some(Interval { value: b.value / a.value, low: log.low.exp(), high: log.high.exp() })
}

/// B less A.
pub(super) fn difference(a: &Estimate, b: &Estimate, side: f64) -> Interval {
    together((a.value, a.plain), (b.value, b.plain), reach(a, b, side))
}

/// Deviations that the interval reaches; the fewer blocks, the more.
fn reach(a: &Estimate, b: &Estimate, side: f64) -> f64 {
    student_upper(side, a.freedom.min(b.freedom))
}

fn together((a, of_a): (f64, Deviation), (b, of_b): (f64, Deviation), reach: f64) -> Interval {
    let value = b - a;
    Interval {
        value,
        low: value - reach * of_b.down.hypot(of_a.up),
        high: value + reach * of_b.up.hypot(of_a.down),
    }
}

/// A share and the number of independent values that it is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    pub share: f64,
    pub of: f64,
}

impl Share {
    /// The score interval.
    ///
    /// **Source**: E. B. Wilson, 1927.
    fn interval(self, side: f64) -> (f64, f64) {
        let z = normal_upper(side);
        let (share, of) = (self.share, self.of);
        let centre = share + z * z / (2.0 * of);
        let half = z * (share * (1.0 - share) / of + z * z / (4.0 * of * of)).sqrt();
        let scale = 1.0 + z * z / of;
        (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
    }
}

/// B less A, of score intervals.
///
/// **Source**: R. G. Newcombe, "Interval estimation for the difference between independent
/// proportions", 1998, method 10.
pub(super) fn share_difference(a: Share, b: Share, side: f64) -> Interval {
    let (low_a, high_a) = a.interval(side);
    let (low_b, high_b) = b.interval(side);
    let value = b.share - a.share;
    Interval {
        value,
        low: value - (b.share - low_b).hypot(high_a - a.share),
        high: value + (high_b - b.share).hypot(a.share - low_a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_shares_have_the_intervals_of_their_source() {
        // The first example of Newcombe: 56/70 and 48/80 at 95 %.
        let (a, b) = (Share { share: 0.6, of: 80.0 }, Share { share: 0.8, of: 70.0 });
        let found = share_difference(a, b, 0.025);
        assert!((found.low - 0.052_4).abs() < 1e-4, "{found:?}");
        assert!((found.high - 0.333_9).abs() < 1e-4, "{found:?}");
        let none = Share { share: 0.0, of: 100.0 };
        let found = share_difference(none, none, 0.005);
        assert!(found.low < 0.0 && found.high > 0.0, "none of 100 is not none at all: {found:?}");
    }

    #[test]
    fn t0_the_upper_side_of_a_is_the_lower_side_of_the_ratio() {
        let of = |value: f64, down: f64, up: f64| Estimate {
            value,
            log: Some(Deviation { down, up }),
            plain: Deviation { down: down * value, up: up * value },
            freedom: 1e9,
        };
        let (a, b) = (of(100.0, 0.0, 0.1), of(200.0, 0.0, 0.0));
        let found = ratio(&a, &b, 0.025).unwrap();
        assert!((found.low - 2.0 * (-0.196_f64).exp()).abs() < 1e-3, "{found:?}");
        assert!((found.high - 2.0).abs() < 1e-12, "{found:?}");
        let found = difference(&a, &b, 0.025);
        assert!((found.low - 80.4).abs() < 0.01 && (found.high - 100.0).abs() < 1e-9);
        assert_eq!(ratio(&Estimate { log: None, ..a }, &b, 0.025), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time in which gates, credit and ports count.

use std::ops::{Add, Sub};

use timewire_base::{BitsPerSecond, Span};

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// An instant of a port, or the time between two of them.
///
/// **Units**: picoseconds, signed 64 bits (106 days either way): a byte takes a whole number of
/// them at every usual rate. Arithmetic with operators panics on overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ps(i64);

impl Ps {
    /// No time, or the start.
    pub const ZERO: Ps = Ps(0);
    /// The end of time: never.
    pub const MAX: Ps = Ps(i64::MAX);

    /// So many picoseconds.
    pub const fn new(ps: i64) -> Ps {
        Ps(ps)
    }

    /// So many whole nanoseconds.
    ///
    /// **Panics** beyond 106 days.
    pub const fn from_span(span: Span) -> Ps {
        Ps(span.as_ns().checked_mul(1_000).expect("a time of a port is shorter than 106 days"))
    }

    /// **Units**: picoseconds.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The sum; stops at the end of time.
    #[must_use]
    pub const fn saturating_add(self, other: Ps) -> Ps {
        Ps(self.0.saturating_add(other.0))
    }

    /// How long a link is busy with so many bytes, rounded up.
    pub fn of_bytes(bytes: u32, rate: BitsPerSecond) -> Ps {
        let bits = u64::from(bytes) * 8;
        let scaled = (u128::from(bits) * PS_PER_SECOND).div_ceil(u128::from(rate.get()));
        Ps(i64::try_from(scaled).unwrap_or(i64::MAX))
    }
}

impl Add for Ps {
    type Output = Ps;
    fn add(self, other: Ps) -> Ps {
        Ps(self.0.checked_add(other.0).expect("invariant: the time of a port fits 64 bits"))
    }
}

impl Sub for Ps {
    type Output = Ps;
    fn sub(self, other: Ps) -> Ps {
        Ps(self.0.checked_sub(other.0).expect("invariant: the time of a port fits 64 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_bytes_take_whole_picoseconds_at_usual_rates() {
        let rate = |bps| BitsPerSecond::new(bps).unwrap();
        assert_eq!(Ps::of_bytes(84, rate(100_000_000)), Ps::from_span(Span::from_ns(6_720)));
        assert_eq!(Ps::of_bytes(1, rate(2_500_000_000)), Ps::new(3_200));
        assert_eq!(Ps::of_bytes(1, rate(3)), Ps::new(2_666_666_666_667));
    }
}

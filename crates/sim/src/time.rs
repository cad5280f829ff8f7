// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated time.

use std::fmt;

use timewire_base::{Instant, Span, Tai};

const PS_PER_NS: u64 = 1_000;

/// An instant of a simulation.
///
/// **Units**: picoseconds since its start, 64 bits (213 days). A bit takes whole picoseconds at
/// 10 Mbit/s as at 100 Gbit/s, and a clock that drifts reads each of its nanoseconds at an instant
/// of its own; in nanoseconds neither holds.
///
/// **Panics**: arithmetic that leaves the 213 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(u64);

impl SimTime {
    /// The start of the simulation.
    pub const START: SimTime = SimTime(0);
    /// The last instant there is.
    pub const MAX: SimTime = SimTime(u64::MAX);

    /// The instant so many picoseconds after the start.
    pub const fn from_ps(ps: u64) -> SimTime {
        SimTime(ps)
    }

    /// The instant so many nanoseconds after the start.
    ///
    /// **Panics** after 213 days.
    pub const fn from_ns(ns: u64) -> SimTime {
        SimTime(ns.checked_mul(PS_PER_NS).expect("a simulation is shorter than 213 days"))
    }

    /// **Units**: picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Nanoseconds since the start, rounded down.
    pub const fn as_ns_floor(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// The instant so many picoseconds later.
    #[must_use]
    pub fn plus_ps(self, ps: u64) -> SimTime {
        SimTime(self.0.checked_add(ps).expect("a simulation is shorter than 213 days"))
    }

    /// The instant a span later; a negative span is none.
    #[must_use]
    pub fn plus(self, span: Span) -> SimTime {
        let ns = u64::try_from(span.as_ns()).unwrap_or(0);
        let ps = ns.checked_mul(PS_PER_NS).expect("a simulation is shorter than 213 days");
        self.plus_ps(ps)
    }

    /// Picoseconds from `earlier` to this instant; zero when it is not earlier.
    pub const fn ps_since(self, earlier: SimTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant on the scale of a simulation that started at `epoch`, rounded down to a whole
    /// nanosecond.
    pub fn tai_floor(self, epoch: Instant<Tai>) -> Instant<Tai> {
        let ns = i64::try_from(self.as_ns_floor()).expect("invariant: 2^64 / 1000 fits 63 bits");
        epoch + Span::from_ns(ns)
    }
}

/// Prints seconds with all twelve digits.
impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:012}s", self.0 / 1_000_000_000_000, self.0 % 1_000_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_instants_round_down_to_nanoseconds() {
        let at = SimTime::from_ps(1_999);
        assert_eq!(at.as_ns_floor(), 1);
        assert_eq!(at.tai_floor(Instant::from_ns(5)), Instant::from_ns(6));
        assert_eq!(SimTime::from_ns(2).plus(Span::from_ns(3)), SimTime::from_ps(5_000));
        assert_eq!(SimTime::from_ps(1_500_000_000_001).to_string(), "1.500000000001s");
        assert_eq!(SimTime::START.ps_since(at), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a station's clock reads.

use thiserror::Error;
use timewire_base::{Instant, Span, Tai};

use crate::SimTime;
use crate::master::LocalNs;

/// A nanosecond in the units the clock counts in: picoseconds times parts per billion.
const PARTS_PER_NS: u128 = 1_000 * PARTS;
/// What one picosecond counts at the right rate.
const PARTS: u128 = 1_000_000_000;

/// The clock of a station: it started at zero with the simulation, and its rate is the right one
/// times `1 + drift`, with a drift that may change at given instants. Its wall clock shows the
/// simulation's epoch plus an offset plus what it counted.
///
/// The count is exact: picoseconds times parts per billion, in integers. What the clock *reads* is
/// the count rounded down to a nanosecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationClock {
    offset: Span,
    /// In the order of their beginnings; the first begins at the start.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: SimTime,
    /// Exact count at its beginning.
    counted: u128,
    /// Parts per billion, with the right rate itself.
    rate: u128,
}

/// A clock that no station has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClockError {
    /// The drift is larger than a tenth of a second per second.
    #[error(
        "a drift of {ppb} ppb is more than {max} ppb; oscillators are within 100000 ppb",
        max = StationClock::MAX_DRIFT_PPB
    )]
    Drift {
        /// What was asked for.
        ppb: i32,
    },
    /// The rate changes before it changed last.
    #[error("a change of drift at {at} does not come after the one before it")]
    Order {
        /// The instant of the change.
        at: SimTime,
    },
}

impl StationClock {
    /// The largest drift. **Units**: parts per billion.
    pub const MAX_DRIFT_PPB: i32 = 100_000_000;

    /// A clock that is `offset` ahead at the start, and gains `drift_ppb` nanoseconds a second.
    ///
    /// **Errors**: a drift beyond [`StationClock::MAX_DRIFT_PPB`], either way.
    pub fn new(offset: Span, drift_ppb: i32) -> Result<StationClock, ClockError> {
        let piece = Piece { from: SimTime::START, counted: 0, rate: rate(drift_ppb)? };
        Ok(StationClock { offset, pieces: vec![piece] })
    }

    /// The clock that is right.
    pub fn exact() -> StationClock {
        StationClock::new(Span::ZERO, 0).expect("invariant: zero is within the bound")
    }

    /// The same clock, whose drift changes at an instant. What it reads does not jump there.
    ///
    /// **Errors**: as [`StationClock::new`]; an instant that is not after the last change.
    pub fn drifting_from(mut self, at: SimTime, drift_ppb: i32) -> Result<Self, ClockError> {
        let rate = rate(drift_ppb)?;
        if at <= self.pieces[self.pieces.len() - 1].from {
            return Err(ClockError::Order { at });
        }
        let counted = self.counted(at);
        self.pieces.push(Piece { from: at, counted, rate });
        Ok(self)
    }

    /// What the clock has counted at an instant, rounded down.
    pub fn read(&self, at: SimTime) -> LocalNs {
        let ns = self.counted(at) / PARTS_PER_NS;
        LocalNs(u64::try_from(ns).expect("invariant: 213 days at 1.1 times the rate fit 64 bits"))
    }

    /// The first instant at which the clock reads `local` or more; `None` beyond the end of time.
    ///
    /// At that instant it reads exactly `local`, because it never gains a whole nanosecond in one
    /// picosecond.
    pub fn reaches(&self, local: LocalNs) -> Option<SimTime> {
        let counted = u128::from(local.0) * PARTS_PER_NS;
        let piece = self.pieces.iter().rev().find(|piece| piece.counted < counted);
        let Some(piece) = piece else { return Some(SimTime::START) };
        let ps = u128::from(piece.from.as_ps()) + (counted - piece.counted).div_ceil(piece.rate);
        u64::try_from(ps).ok().map(SimTime::from_ps)
    }

    /// The wall clock at an instant, in a simulation that started at `epoch`.
    ///
    /// **Panics** when that is not within 292 years of 1970.
    pub fn wall(&self, epoch: Instant<Tai>, at: SimTime) -> Instant<Tai> {
        let ns = i64::try_from(self.read(at).0).expect("invariant: 234 days fit 63 bits");
        epoch + self.offset + Span::from_ns(ns)
    }

    fn counted(&self, at: SimTime) -> u128 {
        let piece = self.pieces.iter().rev().find(|piece| piece.from <= at);
        let piece = piece.expect("invariant: the first piece begins at the start");
        piece.counted + u128::from(at.ps_since(piece.from)) * piece.rate
    }
}

fn rate(drift_ppb: i32) -> Result<u128, ClockError> {
    let bound = StationClock::MAX_DRIFT_PPB;
    if !(-bound..=bound).contains(&drift_ppb) {
        return Err(ClockError::Drift { ppb: drift_ppb });
    }
    Ok(PARTS.checked_add_signed(drift_ppb.into()).expect("invariant: the drift is below one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t0_a_fast_clock_gains_a_hundred_nanoseconds_in_a_millisecond() {
        let clock = StationClock::new(Span::from_us(5), 100_000).unwrap();
        assert_eq!(clock.read(SimTime::from_ns(1_000_000)), LocalNs(1_000_100));
        // 1 ms of its own takes 1e6 / 1.0001 ns.
        assert_eq!(clock.reaches(LocalNs(1_000_000)), Some(SimTime::from_ps(999_900_010)));
        let epoch = Instant::from_ns(1_000);
        assert_eq!(clock.wall(epoch, SimTime::from_ns(1_000_000)), Instant::from_ns(1_006_100));
    }

    #[test]
    fn t0_the_right_clock_reads_simulated_time() {
        let clock = StationClock::exact();
        assert_eq!(clock.read(SimTime::from_ps(41_999)), LocalNs(41));
        assert_eq!(clock.reaches(LocalNs(42)), Some(SimTime::from_ns(42)));
        assert_eq!(clock.reaches(LocalNs(u64::MAX)), None);
    }

    #[test]
    fn t0_impossible_clocks_are_refused() {
        assert!(StationClock::new(Span::ZERO, 100_000_001).is_err());
        assert!(StationClock::new(Span::ZERO, -100_000_001).is_err());
        let clock = StationClock::exact().drifting_from(SimTime::from_ns(5), 1).unwrap();
        assert!(clock.drifting_from(SimTime::from_ns(5), 2).is_err());
    }

    proptest! {
        #[test]
        fn t0_a_reading_is_reached_exactly_and_not_before(
            first in -100_000_000..=100_000_000_i32,
            second in -100_000_000..=100_000_000_i32,
            change in 1..10_000_000_000_000_u64,
            local in 0..20_000_000_000_u64,
        ) {
            let clock = StationClock::new(Span::ZERO, first).unwrap();
            let clock = clock.drifting_from(SimTime::from_ps(change), second).unwrap();
            let at = clock.reaches(LocalNs(local)).unwrap();
            prop_assert_eq!(clock.read(at), LocalNs(local));
            if at > SimTime::START {
                let before = SimTime::from_ps(at.as_ps() - 1);
                prop_assert!(clock.read(before) < LocalNs(local));
            }
        }

        #[test]
        fn t0_a_clock_never_goes_back(
            drift in -100_000_000..=100_000_000_i32,
            one in 0..u64::MAX / 4,
            other in 0..u64::MAX / 4,
        ) {
            let clock = StationClock::new(Span::ZERO, drift).unwrap();
            let (early, late) = (one.min(other), one.max(other));
            prop_assert!(clock.read(SimTime::from_ps(early)) <= clock.read(SimTime::from_ps(late)));
        }
    }
}

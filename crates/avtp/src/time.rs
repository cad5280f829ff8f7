// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Presentation times of 32 bits, cadences that do not drift, rates in parts per billion.
//!
//! **Source**: IEEE 1722-2016, 4.4.4.9 (`avtp_timestamp`).

use std::fmt;

use timewire_base::{Instant, Span, Tai};

use crate::AvtpError;
use crate::bytes::check;

/// How far 32 bits of nanoseconds reach.
const WRAP: i64 = 1 << 32;

/// The longest time from launch to presentation. Packets say 32 bits of nanoseconds, and a listener
/// takes the instant nearest to it: beyond half of them it would be taken for one in the past.
pub const MAX_TRANSIT: Span = Span::from_secs(2);

/// **Errors**: negative, or longer than [`MAX_TRANSIT`].
pub(crate) fn check_transit(transit: Span) -> Result<(), AvtpError> {
    let fits = (Span::ZERO..=MAX_TRANSIT).contains(&transit);
    check("transit", transit.as_ns().unsigned_abs(), fits, "0ns to 2s")
}

/// A presentation time as packets carry it: the low 32 bits of gPTP time, which is TAI.
///
/// **Units**: nanoseconds modulo 2^32, so modulo 4.294 967 296 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AvtpTime(u32);

impl AvtpTime {
    /// From the bits in the packet.
    pub const fn from_bits(bits: u32) -> AvtpTime {
        AvtpTime(bits)
    }

    /// The bits in the packet.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The presentation time of an instant.
    pub fn of(at: Instant<Tai>) -> AvtpTime {
        let low = at.as_ns().rem_euclid(WRAP);
        AvtpTime(u32::try_from(low).expect("invariant: 32 bits"))
    }

    /// The instant with this time that is nearest to `now`: from 2.147 483 648 s before (that one
    /// included) to as long after (not included). Stops at the ends of the scale.
    pub fn near(self, now: Instant<Tai>) -> Instant<Tai> {
        let ahead = i64::from(self.0.wrapping_sub(AvtpTime::of(now).0));
        now.saturating_add(Span::from_ns(if ahead >= WRAP / 2 { ahead - WRAP } else { ahead }))
    }
}

/// How much faster than nominal a clock runs.
///
/// **Units**: parts per billion; negative is slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppb(i64);

impl Ppb {
    /// So many parts per billion.
    pub const fn new(ppb: i64) -> Ppb {
        Ppb(ppb)
    }

    /// **Units**: parts per billion.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Ppb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+}ppb", self.0)
    }
}

/// Events that repeat: so many seconds for so many events. The n-th event is computed from n and
/// not from the one before, so that roundings do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    seconds: u64,
    events: u64,
}

/// The largest number on either side; keeps all products within 128 bits.
const MAX_CADENCE: u64 = 1 << 40;

impl Cadence {
    /// `events` events in `seconds` seconds.
    ///
    /// **Errors**: zero, or more than 2^40 of either in the lowest terms.
    pub fn new(seconds: u64, events: u64) -> Result<Cadence, AvtpError> {
        let divisor = gcd(seconds, events).max(1);
        let (seconds, events) = (seconds / divisor, events / divisor);
        for (field, value) in [("seconds of a cadence", seconds), ("events of a cadence", events)] {
            if !(1..=MAX_CADENCE).contains(&value) {
                return Err(AvtpError::Range { field, value, least: 1, most: MAX_CADENCE });
            }
        }
        Ok(Cadence { seconds, events })
    }

    /// So many events a second.
    ///
    /// **Errors**: none.
    pub fn of_hz(hz: u32) -> Result<Cadence, AvtpError> {
        Cadence::new(1, hz.into())
    }

    /// The time from event 0 to event `n`, rounded down to a nanosecond. Stops at the ends of
    /// 64 bits.
    pub fn at_floor(self, n: i64) -> Span {
        let ns = i128::from(n) * i128::from(self.seconds) * 1_000_000_000;
        Span::from_ns(saturate(ns.div_euclid(i128::from(self.events))))
    }

    /// How many events lie in `span`, rounded up: the next event at or after it.
    pub fn events_in_ceil(self, span: Span) -> i64 {
        let (events, seconds) = (i128::from(self.events), i128::from(self.seconds));
        let divisor = seconds * 1_000_000_000;
        saturate((i128::from(span.as_ns()) * events + divisor - 1).div_euclid(divisor))
    }

    /// The period in nanoseconds, as numerator and denominator in the lowest terms.
    pub(crate) fn period_ns(self) -> (u64, u64) {
        let divisor = gcd(1_000_000_000, self.events);
        // 2^40 * 10^9 is more than 64 bits hold only for periods of centuries.
        (self.seconds.saturating_mul(1_000_000_000 / divisor), self.events / divisor)
    }
}

fn saturate(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The time between two instants, at the ends of 64 bits rather than beyond.
pub(crate) fn since(later: Instant<Tai>, earlier: Instant<Tai>) -> Span {
    Span::from_ns(later.as_ns().saturating_sub(earlier.as_ns()))
}

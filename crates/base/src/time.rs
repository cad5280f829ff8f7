// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durations and instants. An instant carries its time scale in its type, so that a TAI launch time
//! cannot be compared with a monotonic wake-up by accident.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Neg, Sub};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signed duration.
///
/// **Units**: nanoseconds, 64 bits (±292 years). Arithmetic with operators panics on overflow in
/// every build; use the `checked_` forms on input from outside.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(i64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(i64::MAX);

    /// A span of so many nanoseconds.
    pub const fn from_ns(ns: i64) -> Span {
        Span(ns)
    }

    /// A span of so many microseconds.
    ///
    /// **Panics** when it does not fit 64-bit nanoseconds.
    pub const fn from_us(us: i64) -> Span {
        Span(us.checked_mul(1_000).expect("invariant: microseconds fit 64-bit nanoseconds"))
    }

    /// A span of so many milliseconds.
    ///
    /// **Panics** when it does not fit 64-bit nanoseconds.
    pub const fn from_ms(ms: i64) -> Span {
        Span(ms.checked_mul(1_000_000).expect("invariant: milliseconds fit 64-bit nanoseconds"))
    }

    /// A span of so many seconds.
    ///
    /// **Panics** when it does not fit 64-bit nanoseconds.
    pub const fn from_secs(s: i64) -> Span {
        Span(s.checked_mul(1_000_000_000).expect("invariant: seconds fit 64-bit nanoseconds"))
    }

    /// **Units**: nanoseconds.
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// **Units**: microseconds, for statistics and rendering only.
    #[allow(clippy::cast_precision_loss, reason = "rendering: 53 bits of nanoseconds are 104 days")]
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Whether the span is before zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The sum, or `None` when it does not fit.
    pub const fn checked_add(self, other: Span) -> Option<Span> {
        match self.0.checked_add(other.0) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }

    /// The product, or `None` when it does not fit.
    pub const fn checked_mul(self, n: i64) -> Option<Span> {
        match self.0.checked_mul(n) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
}

impl Add for Span {
    type Output = Span;
    #[inline]
    fn add(self, other: Span) -> Span {
        Span(self.0.checked_add(other.0).expect("invariant: span sum fits 64 bits"))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    #[inline]
    fn sub(self, other: Span) -> Span {
        Span(self.0.checked_sub(other.0).expect("invariant: span difference fits 64 bits"))
    }
}

impl Neg for Span {
    type Output = Span;
    #[inline]
    fn neg(self) -> Span {
        Span(self.0.checked_neg().expect("invariant: span negation fits 64 bits"))
    }
}

/// Prints with the largest unit that keeps the value whole: `220us`, `1040us`, `1500ns`, `2s`; what
/// would have more than five digits then has a fraction: `3.040191251s`. `parse_span` reads it
/// back.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, ns) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        if ns == 0 {
            return f.write_str("0ns");
        }
        let unit = |fits: &dyn Fn(u64) -> bool| UNITS.into_iter().find(|(unit, _)| fits(*unit));
        let exact = unit(&|unit| ns.is_multiple_of(unit) && ns / unit <= MAX_DIGITS);
        if let Some((unit, name)) = exact {
            return write!(f, "{sign}{}{name}", ns / unit);
        }
        let (unit, name) = unit(&|unit| ns >= unit).unwrap_or(UNITS[3]);
        let rest = format!("{:09}", ns % unit * (UNITS[0].0 / unit));
        let rest = rest.trim_end_matches('0');
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{rest}{name}", ns / unit)
    }
}

/// Of [`Span`]'s text, the largest first. **Units**: ns.
const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
/// A whole number above it is written in a larger unit, with a fraction.
const MAX_DIGITS: u64 = 99_999;

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A time scale: what an instant counts from, and whether it may step.
pub trait Scale: Copy + 'static {
    /// Short name used in output.
    const NAME: &'static str;
}

/// International Atomic Time, Linux `CLOCK_TAI`: no leap seconds. Schedules live on this scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tai {}

/// Linux `CLOCK_MONOTONIC`: never steps, no relation to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mono {}

/// Linux `CLOCK_REALTIME`: UTC with leap seconds smeared or stepped by the host's daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Utc {}

impl Scale for Tai {
    const NAME: &'static str = "TAI";
}
impl Scale for Mono {
    const NAME: &'static str = "MONOTONIC";
}
impl Scale for Utc {
    const NAME: &'static str = "UTC";
}

/// A point in time on the scale `S`.
///
/// **Units**: nanoseconds since the scale's epoch, 64 bits signed. Scales do not mix:
///
/// ```compile_fail
/// use timewire_base::{Instant, Mono, Tai};
/// let launch: Instant<Tai> = Instant::from_ns(5);
/// let wake: Instant<Mono> = Instant::from_ns(3);
/// let _wrong = launch - wake;
/// ```
pub struct Instant<S: Scale> {
    ns: i64,
    scale: PhantomData<S>,
}

impl<S: Scale> Instant<S> {
    /// The instant so many nanoseconds after the scale's epoch.
    pub const fn from_ns(ns: i64) -> Instant<S> {
        Instant { ns, scale: PhantomData }
    }

    /// **Units**: nanoseconds since the scale's epoch.
    pub const fn as_ns(self) -> i64 {
        self.ns
    }

    /// The later instant, or `None` when it does not fit 64 bits.
    pub const fn checked_add(self, span: Span) -> Option<Instant<S>> {
        match self.ns.checked_add(span.as_ns()) {
            Some(ns) => Some(Instant::from_ns(ns)),
            None => None,
        }
    }

    /// The later instant; stops at the end of the scale instead of overflowing.
    pub const fn saturating_add(self, span: Span) -> Instant<S> {
        Instant::from_ns(self.ns.saturating_add(span.as_ns()))
    }
}

impl<S: Scale> Clone for Instant<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Scale> Copy for Instant<S> {}
impl<S: Scale> PartialEq for Instant<S> {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
    }
}
impl<S: Scale> Eq for Instant<S> {}
impl<S: Scale> PartialOrd for Instant<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<S: Scale> Ord for Instant<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ns.cmp(&other.ns)
    }
}
impl<S: Scale> Hash for Instant<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ns.hash(state);
    }
}
impl<S: Scale> Add<Span> for Instant<S> {
    type Output = Instant<S>;
    #[inline]
    fn add(self, span: Span) -> Instant<S> {
        self.checked_add(span).expect("invariant: instant fits 64-bit nanoseconds")
    }
}
impl<S: Scale> Sub<Span> for Instant<S> {
    type Output = Instant<S>;
    #[inline]
    fn sub(self, span: Span) -> Instant<S> {
        self + -span
    }
}
impl<S: Scale> Sub for Instant<S> {
    type Output = Span;
    #[inline]
    fn sub(self, other: Self) -> Span {
        Span(self.ns.checked_sub(other.ns).expect("invariant: instants lie within 292 years"))
    }
}
impl<S: Scale> fmt::Debug for Instant<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}ns", S::NAME, self.ns)
    }
}
impl<S: Scale> Serialize for Instant<S> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.serialize_i64(self.ns)
    }
}
impl<'de, S: Scale> Deserialize<'de> for Instant<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Instant::from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_span_prints_with_the_largest_whole_unit() {
        let cases = [
            (0, "0ns"),
            (1, "1ns"),
            (1_500, "1500ns"),
            (220_000, "220us"),
            (1_040_000, "1040us"),
            (3_000_000, "3ms"),
            (2_000_000_000, "2s"),
            (-40_000, "-40us"),
            (99_999_000, "99999us"),
            (100_001_000, "100.001ms"),
            (3_040_191_251, "3.040191251s"),
            (-1_000_000_001, "-1.000000001s"),
            (1_767_323_040_000_000_000, "1767323040s"),
            (i64::MIN, "-9223372036.854775808s"),
        ];
        for (ns, text) in cases {
            assert_eq!(Span::from_ns(ns).to_string(), text);
        }
    }

    #[test]
    fn t0_instants_subtract_to_spans() {
        let a = Instant::<Tai>::from_ns(1_000);
        assert_eq!((a + Span::from_us(1)) - a, Span::from_ns(1_000));
        assert_eq!(Instant::<Tai>::from_ns(i64::MAX).checked_add(Span::from_ns(1)), None);
    }
}

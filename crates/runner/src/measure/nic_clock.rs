// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Making the NIC's timestamps comparable with the system's: how far the NIC's clock is ahead is
//! measured before and after, and what lies between is interpolated. The error of that is known,
//! and timestamps whose error is too large are not used.
//!
//! ```text
//! ahead of TAI at a timestamp = before + (after - before) * (timestamp - first) / (last - first)
//! error = the larger error of the two looks + half of |after - before|
//! ```

use serde::Serialize;
use timewire_base::{IfName, Instant, Span, Tai};
use timewire_sys::clock;
use timewire_sys::phc::{NicClock, timestamp_abilities};

/// How far a NIC's clock was ahead of the system's TAI at one moment of its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// When, by the system's clock.
    pub at: Instant<Tai>,
    /// How far ahead.
    pub ahead: Span,
    /// At most so wrong.
    pub error: Span,
}

/// Looks at the clock of an interface's NIC.
///
/// **Errors**: in words: it has none, or it cannot be read.
pub fn look(interface: &IfName) -> Result<Look, String> {
    let abilities = timestamp_abilities(interface)
        .map_err(|error| format!("{interface} does not tell what it timestamps: {error}"))?;
    let number = abilities.phc.ok_or_else(|| format!("{interface} has no clock"))?;
    let unreadable = |error| format!("the clock of {interface} cannot be read: {error}");
    let nic = NicClock::open(number).map_err(unreadable)?;
    let (relation, _) = nic.ahead_of_realtime().map_err(unreadable)?;
    // The NIC is mostly on TAI, which is ahead of UTC by an offset that the kernel knows.
    let ahead = relation.ahead - clock::tai_offset();
    Ok(Look { at: clock::now(), ahead, error: relation.error })
}

/// What makes the system's time of a NIC's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    before: Look,
    after: Look,
}

impl Mapping {
    /// Between two looks.
    ///
    /// **Errors**: in words: its error is larger than allowed.
    pub fn new(before: Look, after: Look, max_error: Span) -> Result<Mapping, String> {
        let mapping = Mapping { before, after };
        let error = mapping.error();
        if error > max_error {
            return Err(format!(
                "the NIC's clock is known to {error} only, of {max_error} allowed: it was {} \
                 ahead before and {} after",
                before.ahead, after.ahead
            ));
        }
        Ok(mapping)
    }

    /// At most so wrong.
    pub fn error(&self) -> Span {
        let drift = self.after.ahead.as_ns().abs_diff(self.before.ahead.as_ns());
        let half = i64::try_from(drift.div_ceil(2)).unwrap_or(i64::MAX);
        let look = self.before.error.max(self.after.error);
        Span::from_ns(look.as_ns().saturating_add(half))
    }

    /// The system's time of a timestamp. **Units**: nanoseconds.
    pub fn tai_ns(&self, timestamp_ns: i64) -> i64 {
        let (before, after) = (self.before, self.after);
        // The NIC's own time of the two looks.
        let nic = |look: Look| i128::from(look.at.as_ns()) + i128::from(look.ahead.as_ns());
        let (first, last) = (nic(before), nic(after));
        let drift = i128::from(after.ahead.as_ns()) - i128::from(before.ahead.as_ns());
        let passed = (i128::from(timestamp_ns) - first).clamp(0, (last - first).max(0));
        let share = if last > first { drift * passed / (last - first) } else { 0 };
        let ahead = i128::from(before.ahead.as_ns()) + share;
        i64::try_from(i128::from(timestamp_ns) - ahead).unwrap_or(i64::MAX)
    }
}

/// What is told about the NIC's timestamps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NicTimestamps {
    /// Whether times from and to the NIC's timestamps are told.
    pub comparable: bool,
    /// Then: how wrong they can be.
    pub error_ns: Option<i64>,
    /// Else: why not.
    pub why: Option<String>,
}

/// As before anything was measured.
impl Default for NicTimestamps {
    fn default() -> NicTimestamps {
        NicTimestamps::unknown("not measured")
    }
}

impl NicTimestamps {
    /// The two clocks are related so.
    pub fn known(mapping: &Mapping) -> NicTimestamps {
        NicTimestamps { comparable: true, error_ns: Some(mapping.error().as_ns()), why: None }
    }

    /// They are not.
    pub fn unknown(why: impl Into<String>) -> NicTimestamps {
        NicTimestamps { comparable: false, error_ns: None, why: Some(why.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: i64, ahead: i64, error: i64) -> Look {
        let (ahead, error) = (Span::from_ns(ahead), Span::from_ns(error));
        Look { at: Instant::from_ns(at), ahead, error }
    }

    #[test]
    fn t0_a_clock_that_goes_too_fast_is_followed() {
        let limit = Span::from_us(1);
        let mapping = Mapping::new(look(0, 1_000, 20), look(1_000_000, 1_200, 30), limit).unwrap();
        assert_eq!(mapping.error().as_ns(), 130);
        assert_eq!(mapping.tai_ns(1_000), 0);
        assert_eq!(mapping.tai_ns(1_001_200), 1_000_000);
        assert_eq!(mapping.tai_ns(501_100), 500_000);
        // Outside the looks their offsets hold.
        assert_eq!(mapping.tai_ns(0), -1_000);
        assert_eq!(mapping.tai_ns(2_001_200), 2_000_000);
    }

    #[test]
    fn t0_a_clock_that_is_not_known_well_enough_is_refused() {
        let limit = Span::from_us(1);
        let stepped = Mapping::new(look(0, 0, 20), look(9, 37_000_000_000, 20), limit);
        let why = stepped.unwrap_err();
        assert!(why.starts_with("the NIC's clock is known to 18.50000002s only"), "{why}");
        let far_but_steady = Mapping::new(look(0, 1 << 40, 20), look(9, 1 << 40, 20), limit);
        let mapping = far_but_steady.unwrap();
        assert_eq!(mapping.tai_ns((1 << 40) + 5), 5);
        assert_eq!(NicTimestamps::known(&mapping).error_ns, Some(20));
        assert!(Mapping::new(look(0, 0, 1_001), look(9, 0, 0), limit).is_err());
    }

    #[test]
    fn t0_the_loopback_interface_has_no_clock() {
        let why = super::look(&IfName::new("lo").unwrap()).unwrap_err();
        assert!(why.starts_with("lo "), "{why}");
    }
}

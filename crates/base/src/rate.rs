// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates and the time a frame needs at a rate.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Span, WireLen};

/// The rate of a link.
///
/// **Units**: bit/s, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BitsPerSecond(u64);

impl BitsPerSecond {
    /// The largest rate accepted, 10 Tbit/s; keeps all products within 64 bits.
    pub const MAX: u64 = 10_000_000_000_000;

    /// A rate of so many bits per second; `None` for zero or above [`BitsPerSecond::MAX`].
    pub const fn new(bps: u64) -> Option<BitsPerSecond> {
        if bps == 0 || bps > Self::MAX { None } else { Some(BitsPerSecond(bps)) }
    }

    /// **Units**: bit/s.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long the link is busy with this many bytes, rounded up to a whole nanosecond.
    ///
    /// Rounding up errs on the side of the schedule: a frame never needs more than we say.
    pub fn duration_of(self, length: WireLen) -> Span {
        let bit_ns = u64::from(length.get()) * 8 * 1_000_000_000;
        let ns = bit_ns.div_ceil(self.0);
        Span::from_ns(i64::try_from(ns).expect("invariant: 65 555 bytes at 1 bit/s is 145 hours"))
    }

    /// How many bytes on the wire fit into `span`, rounded down.
    pub fn bytes_in_floor(self, span: Span) -> u64 {
        let Ok(ns) = u128::try_from(span.as_ns()) else { return 0 };
        let bytes = ns * u128::from(self.0) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl TryFrom<u64> for BitsPerSecond {
    type Error = String;
    fn try_from(bps: u64) -> Result<Self, String> {
        BitsPerSecond::new(bps).ok_or_else(|| format!("{bps} bit/s is no rate of a link"))
    }
}

impl From<BitsPerSecond> for u64 {
    fn from(rate: BitsPerSecond) -> u64 {
        rate.0
    }
}

/// Prints as `parse_rate` reads: `100Mbit`, `1Gbit`.
impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (factor, unit) in [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit")] {
            if self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}bit", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameLen;

    #[test]
    fn t0_duration_rounds_up() {
        let fast = BitsPerSecond::new(100_000_000).unwrap();
        assert_eq!(fast.duration_of(FrameLen::new(60).unwrap().wire_len()), Span::from_ns(6_720));
        let odd = BitsPerSecond::new(3_000_000_000).unwrap();
        assert_eq!(odd.duration_of(FrameLen::new(60).unwrap().wire_len()), Span::from_ns(224));
        assert_eq!(fast.bytes_in_floor(Span::from_us(220)), 2_750);
        assert_eq!(fast.bytes_in_floor(Span::from_us(-1)), 0);
        assert_eq!(BitsPerSecond::new(0), None);
        assert_eq!(fast.to_string(), "100Mbit");
    }
}

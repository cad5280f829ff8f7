// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers on a frame's way through Linux to a transmit queue: socket priority, traffic class,
//! queue, and the gates of the classes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number that none of these types can have, or text that is no number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// Beyond the last one.
    #[error("{number} is no {what}: 0 to {max}")]
    OutOfRange {
        /// What kind of number.
        what: &'static str,
        /// What was given.
        number: u64,
        /// The largest one.
        max: u64,
    },
    /// Text without a number.
    #[error("`{text}` is no {what}: a number, {example}")]
    NotANumber {
        /// What kind of number.
        what: &'static str,
        /// What was given.
        text: String,
        /// A correct one.
        example: &'static str,
    },
}

macro_rules! checked_number {
    ($name:ident, $inner:ty, $what:literal, $max:expr) => {
        impl $name {
            /// The largest number.
            pub const MAX: $inner = $max;

            /// **Errors**: beyond [`Self::MAX`].
            pub fn new(number: u64) -> Result<$name, QueueError> {
                match <$inner>::try_from(number) {
                    Ok(n) if n <= Self::MAX => Ok($name(n)),
                    _ => Err(QueueError::OutOfRange {
                        what: $what,
                        number,
                        max: u64::from(Self::MAX),
                    }),
                }
            }

            /// The number.
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number, as an index.
            pub fn index(self) -> usize {
                usize::from(self.0)
            }
        }
        impl TryFrom<u64> for $name {
            type Error = QueueError;
            fn try_from(number: u64) -> Result<Self, QueueError> {
                $name::new(number)
            }
        }
        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                u64::from(value.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = QueueError;
            fn from_str(text: &str) -> Result<Self, QueueError> {
                let number = text.parse().map_err(|_| QueueError::NotANumber {
                    what: $what,
                    text: text.to_owned(),
                    example: "such as 3",
                })?;
                $name::new(number)
            }
        }
    };
}

/// The priority of a frame inside Linux: `SO_PRIORITY` of its socket, `skb->priority`. The queueing
/// disciplines look at its lowest four bits only.
///
/// **Units**: 0 to 15; by itself no order of urgency. Not a PCP, and not Timewire's
/// [`Priority`](crate::Priority).
///
/// **Source**: `linux v6.12 include/linux/netdevice.h:netdev_get_prio_tc_map`, `TC_BITMASK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SocketPriority(u8);
checked_number!(SocketPriority, u8, "socket priority", 15);

/// A traffic class as Linux numbers them.
///
/// **Units**: 0 to 15. `taprio` serves the higher number first; `mqprio` leaves the order to the
/// device.
///
/// **Source**: `linux v6.12 include/uapi/linux/pkt_sched.h:TC_QOPT_MAX_QUEUE`,
/// `net/sched/sch_taprio.c:taprio_dequeue_tc_priority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct TrafficClass(u8);
checked_number!(TrafficClass, u8, "traffic class", 15);

/// A transmit queue of an interface, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct TxQueue(u16);
checked_number!(TxQueue, u16, "transmit queue", u16::MAX);

/// Which gates are open: bit *n* is the gate of traffic class *n*.
///
/// Prints and reads as hexadecimal without `0x`, as `tc` takes it.
#[doc(alias = "gate-states-value")]
#[doc(alias = "gateStatesValue")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GateMask(u32);

impl GateMask {
    /// Every gate closed.
    pub const CLOSED: GateMask = GateMask(0);

    /// These gates.
    pub const fn new(bits: u32) -> GateMask {
        GateMask(bits)
    }

    /// The gates of these classes.
    pub fn of(classes: &[TrafficClass]) -> GateMask {
        GateMask(classes.iter().fold(0, |bits, class| bits | (1 << class.get())))
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the gate of this class is open.
    pub const fn is_open(self, class: TrafficClass) -> bool {
        self.0 & (1 << class.0) != 0
    }
}

impl fmt::Display for GateMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

impl FromStr for GateMask {
    type Err = QueueError;
    fn from_str(text: &str) -> Result<Self, QueueError> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        let bad = || QueueError::NotANumber {
            what: "gate mask",
            text: text.to_owned(),
            example: "hexadecimal and at most 32 bits, such as 0f",
        };
        // `from_str_radix` would take a sign.
        if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u32::from_str_radix(digits, 16).map(GateMask).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_numbers_beyond_the_last_are_refused() {
        assert_eq!(TrafficClass::new(15).unwrap().get(), 15);
        assert_eq!(
            TrafficClass::new(16).unwrap_err().to_string(),
            "16 is no traffic class: 0 to 15"
        );
        assert!(SocketPriority::new(16).is_err());
        assert!(TxQueue::new(65_535).is_ok() && TxQueue::new(65_536).is_err());
        let wrong = "x".parse::<TxQueue>().unwrap_err().to_string();
        assert_eq!(wrong, "`x` is no transmit queue: a number, such as 3");
    }

    #[test]
    fn t0_a_mask_reads_as_tc_takes_it() {
        for (text, bits) in [("01", 1), ("ff", 255), ("0xFF", 255), ("0x80000000", 1 << 31)] {
            assert_eq!(text.parse::<GateMask>().unwrap().bits(), bits, "{text}");
        }
        for text in ["", "0x", "g", "+1", "-1", "100000000", "0x 1"] {
            assert!(text.parse::<GateMask>().is_err(), "{text}");
        }
        let class = |n| TrafficClass::new(n).unwrap();
        let mask = GateMask::of(&[class(0), class(4)]);
        assert_eq!(mask.to_string(), "11");
        assert!(mask.is_open(class(4)) && !mask.is_open(class(1)));
        assert_eq!(GateMask::CLOSED.to_string(), "00");
    }
}

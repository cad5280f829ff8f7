// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who carries a schedule out: Timewire's own MAC, or a queueing discipline of the kernel. What
//! each of them promises, which one is taken, and what it is given for one station.
//!
//! | carrier | real time | best effort |
//! | --- | --- | --- |
//! | `taprio` | gates | the same gates, after real time |
//! | `taprio-assist` | gates of its own at the start of the slot, kept by `etf` | the rest of it |
//! | `mac` | Timewire's MAC | Timewire's MAC |
//! | `etf` | a launch time in the slot for each frame | at any time |
//! | `cbs` | at most its reserved rate, at any time | at any time |
//!
//! Not here: trying whether a kernel has them and putting them in their place (`timewire-ctl`),
//! their words for `tc` ([`crate::qdisc`]).

mod choose;
mod launch;
mod station;

use std::fmt;
use std::str::FromStr;

pub use choose::{Asked, Choice, NoneWorks, PassedOver, Tried, choose};
pub use launch::{LaunchPlan, launch_plan};
pub use station::{CarrierError, Reservation, check_carrier, reservation, station_qdiscs};

use crate::scenario::CaseMac;

/// Who carries a schedule out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScheduleCarrier {
    /// The kernel's gates.
    Taprio,
    /// The kernel's gates as launch times.
    TaprioAssist,
    /// Timewire's own MAC.
    Mac,
    /// Launch times that the sending program computes.
    Etf,
    /// The credit-based shaper.
    Cbs,
}

/// Which frames a carrier keeps inside their station's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPromise {
    /// All.
    All,
    /// Those of the real-time streams.
    RealTime,
    /// None: it has no slots.
    None,
}

impl SlotPromise {
    /// The word in output.
    pub fn word(self) -> &'static str {
        match self {
            SlotPromise::All => "all",
            SlotPromise::RealTime => "real_time",
            SlotPromise::None => "none",
        }
    }
}

impl ScheduleCarrier {
    /// All of them, the best first: first those that keep every frame in its slot, of these the
    /// kernel's before a thread in user space, then what keeps the real-time frames, then what
    /// keeps no slots.
    pub const BY_PREFERENCE: [ScheduleCarrier; 5] = [
        ScheduleCarrier::Taprio,
        ScheduleCarrier::TaprioAssist,
        ScheduleCarrier::Mac,
        ScheduleCarrier::Etf,
        ScheduleCarrier::Cbs,
    ];

    /// The name on the command line and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            ScheduleCarrier::Taprio => "taprio",
            ScheduleCarrier::TaprioAssist => "taprio-assist",
            ScheduleCarrier::Mac => "mac",
            ScheduleCarrier::Etf => "etf",
            ScheduleCarrier::Cbs => "cbs",
        }
    }

    /// Which frames it keeps in their slots.
    pub fn slots(self) -> SlotPromise {
        match self {
            ScheduleCarrier::Taprio | ScheduleCarrier::TaprioAssist | ScheduleCarrier::Mac => {
                SlotPromise::All
            }
            ScheduleCarrier::Etf => SlotPromise::RealTime,
            ScheduleCarrier::Cbs => SlotPromise::None,
        }
    }

    /// What it promises, in one sentence without a full stop.
    pub fn promise(self) -> &'static str {
        match self {
            ScheduleCarrier::Taprio => {
                "every frame inside its station's slot, by gates of the kernel; real time goes \
                 first"
            }
            ScheduleCarrier::TaprioAssist => {
                "every frame inside its station's slot, by launch times that the kernel computes \
                 from gates; the start of the slot is kept for real time, the rest for best effort"
            }
            ScheduleCarrier::Mac => {
                "every frame inside its station's slot, by Timewire's own MAC; real time goes first"
            }
            ScheduleCarrier::Etf => {
                "every real-time frame inside its station's slot, by a launch time that its \
                 program computes; best effort has no gate and is sent at any time"
            }
            ScheduleCarrier::Cbs => {
                "no slots: the real-time class of each station gets its reserved rate and sends no \
                 faster; best effort is sent at any time"
            }
        }
    }

    /// What it leaves undone, for a choice that passed it over.
    fn shortcoming(self) -> &'static str {
        match self {
            ScheduleCarrier::Taprio | ScheduleCarrier::TaprioAssist => "a better one works",
            ScheduleCarrier::Mac => "the kernel needs no thread that must wake in time",
            ScheduleCarrier::Etf => "it leaves best effort without gates",
            ScheduleCarrier::Cbs => "it keeps a rate, but no slots",
        }
    }

    /// The word of a case of a scenario.
    pub fn case_mac(self) -> CaseMac {
        match self {
            ScheduleCarrier::Taprio => CaseMac::Taprio,
            ScheduleCarrier::TaprioAssist => CaseMac::TaprioAssist,
            ScheduleCarrier::Mac => CaseMac::Tdm,
            ScheduleCarrier::Etf => CaseMac::Etf,
            ScheduleCarrier::Cbs => CaseMac::Cbs,
        }
    }

    /// The carrier of a case; `None` for plain Ethernet.
    pub fn of_case(mac: CaseMac) -> Option<ScheduleCarrier> {
        Self::BY_PREFERENCE.into_iter().find(|carrier| carrier.case_mac() == mac)
    }

    /// Whether the kernel carries the schedule out.
    pub fn is_kernels(self) -> bool {
        self != ScheduleCarrier::Mac
    }

    /// Whether real-time frames have a class of their own in a case without priorities, too:
    /// where that class is all that the carrier is about.
    pub fn always_has_classes(self) -> bool {
        matches!(self, ScheduleCarrier::Etf | ScheduleCarrier::Cbs)
    }
}

impl fmt::Display for ScheduleCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no carrier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no carrier: they are taprio, taprio-assist, mac, etf and cbs")]
pub struct NoCarrier {
    /// The word.
    pub word: String,
}

impl FromStr for ScheduleCarrier {
    type Err = NoCarrier;
    fn from_str(word: &str) -> Result<Self, NoCarrier> {
        let found = Self::BY_PREFERENCE.into_iter().find(|carrier| carrier.as_str() == word);
        found.ok_or_else(|| NoCarrier { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_every_carrier_is_named_by_its_word_and_by_its_case() {
        for carrier in ScheduleCarrier::BY_PREFERENCE {
            assert_eq!(carrier.as_str().parse(), Ok(carrier));
            assert_eq!(ScheduleCarrier::of_case(carrier.case_mac()), Some(carrier));
        }
        assert_eq!(ScheduleCarrier::of_case(CaseMac::None), None);
        assert_eq!(
            "tsn".parse::<ScheduleCarrier>().unwrap_err().to_string(),
            "`tsn` is no carrier: they are taprio, taprio-assist, mac, etf and cbs"
        );
    }

    #[test]
    fn t0_who_keeps_more_is_preferred() {
        let rank = |carrier: &ScheduleCarrier| match carrier.slots() {
            SlotPromise::All => 0,
            SlotPromise::RealTime => 1,
            SlotPromise::None => 2,
        };
        assert!(ScheduleCarrier::BY_PREFERENCE.iter().map(rank).is_sorted());
    }
}

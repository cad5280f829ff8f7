// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who carries a schedule out: Timewire's own MAC, or a queueing discipline of the kernel. What
//! each of them promises, which one is taken, and what it is given for one station.
//!
//! | backend | real time | best effort |
//! | --- | --- | --- |
//! | `taprio` | gates | the same gates, after real time |
//! | `taprio-assist` | gates of its own at the start of the slot, kept by `etf` | the rest of it |
//! | `mac` | Timewire's MAC | Timewire's MAC |
//! | `etf` | a launch time in the slot for each frame | at any time |
//! | `cbs` | at most its reserved rate, at any time | at any time |
//!
//! Not here: trying whether a kernel has them and putting them in their place (`timewire-runner`),
//! their words for `tc` ([`crate::qdisc`]).

mod choose;
mod launch;
mod station;

use std::fmt;
use std::str::FromStr;

pub use choose::{Asked, Choice, NoneWorks, PassedOver, Tried, choose};
pub use launch::{LaunchPlan, launch_plan};
pub use station::{
    BackendError, Reservation, assist_real_time, check_backend, reservation, station_qdiscs,
};

use timewire_model::scenario::CaseBackend;

/// Who carries a schedule out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransmitBackend {
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

/// Which frames a backend keeps inside their station's slots.
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

impl TransmitBackend {
    /// All of them, the best first: first those that keep every frame in its slot, of these the
    /// kernel's before a thread in user space, then what keeps the real-time frames, then what
    /// keeps no slots.
    pub const BY_PREFERENCE: [TransmitBackend; 5] = [
        TransmitBackend::Taprio,
        TransmitBackend::TaprioAssist,
        TransmitBackend::Mac,
        TransmitBackend::Etf,
        TransmitBackend::Cbs,
    ];

    /// The name on the command line and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            TransmitBackend::Taprio => "taprio",
            TransmitBackend::TaprioAssist => "taprio-assist",
            TransmitBackend::Mac => "mac",
            TransmitBackend::Etf => "etf",
            TransmitBackend::Cbs => "cbs",
        }
    }

    /// Which frames it keeps in their slots.
    pub fn slots(self) -> SlotPromise {
        match self {
            TransmitBackend::Taprio | TransmitBackend::TaprioAssist | TransmitBackend::Mac => {
                SlotPromise::All
            }
            TransmitBackend::Etf => SlotPromise::RealTime,
            TransmitBackend::Cbs => SlotPromise::None,
        }
    }

    /// What it promises, in one sentence without a full stop.
    pub fn promise(self) -> &'static str {
        match self {
            TransmitBackend::Taprio => {
                "every frame inside its station's slot, by gates of the kernel; real time goes \
                 first"
            }
            TransmitBackend::TaprioAssist => {
                "every frame inside its station's slot, by launch times that the kernel computes \
                 from gates; the start of the slot is kept for real time, the rest for best effort"
            }
            TransmitBackend::Mac => {
                "every frame inside its station's slot, by Timewire's own MAC; real time goes first"
            }
            TransmitBackend::Etf => {
                "every real-time frame inside its station's slot, by a launch time that its \
                 program computes; best effort has no gate and is sent at any time"
            }
            TransmitBackend::Cbs => {
                "no slots: the real-time class of each station gets its reserved rate and sends no \
                 faster; best effort is sent at any time"
            }
        }
    }

    /// What it leaves undone, for a choice that passed it over.
    fn shortcoming(self) -> &'static str {
        match self {
            TransmitBackend::Taprio | TransmitBackend::TaprioAssist => "a better one works",
            TransmitBackend::Mac => "the kernel needs no thread that must wake in time",
            TransmitBackend::Etf => "it leaves best effort without gates",
            TransmitBackend::Cbs => "it keeps a rate, but no slots",
        }
    }

    /// The word of a case of a scenario.
    pub fn case_backend(self) -> CaseBackend {
        match self {
            TransmitBackend::Taprio => CaseBackend::Taprio,
            TransmitBackend::TaprioAssist => CaseBackend::TaprioAssist,
            TransmitBackend::Mac => CaseBackend::Mac,
            TransmitBackend::Etf => CaseBackend::Etf,
            TransmitBackend::Cbs => CaseBackend::Cbs,
        }
    }

    /// The backend of a case; `None` for plain Ethernet.
    pub fn of_case(mac: CaseBackend) -> Option<TransmitBackend> {
        Self::BY_PREFERENCE.into_iter().find(|backend| backend.case_backend() == mac)
    }

    /// Whether the kernel carries the schedule out.
    pub fn is_kernels(self) -> bool {
        self != TransmitBackend::Mac
    }

    /// Whether real-time frames have a class of their own in a case without priorities, too:
    /// where that class is all that the backend is about.
    pub fn always_has_classes(self) -> bool {
        matches!(self, TransmitBackend::Etf | TransmitBackend::Cbs)
    }
}

impl fmt::Display for TransmitBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no backend: they are taprio, taprio-assist, mac, etf and cbs")]
pub struct NoBackend {
    /// The word.
    pub word: String,
}

impl FromStr for TransmitBackend {
    type Err = NoBackend;
    fn from_str(word: &str) -> Result<Self, NoBackend> {
        let found = Self::BY_PREFERENCE.into_iter().find(|backend| backend.as_str() == word);
        found.ok_or_else(|| NoBackend { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_every_backend_is_named_by_its_word_and_by_its_case() {
        for backend in TransmitBackend::BY_PREFERENCE {
            assert_eq!(backend.as_str().parse(), Ok(backend));
            assert_eq!(TransmitBackend::of_case(backend.case_backend()), Some(backend));
        }
        assert_eq!(TransmitBackend::of_case(CaseBackend::None), None);
        assert_eq!(
            "tsn".parse::<TransmitBackend>().unwrap_err().to_string(),
            "`tsn` is no backend: they are taprio, taprio-assist, mac, etf and cbs"
        );
    }

    #[test]
    fn t0_who_keeps_more_is_preferred() {
        let rank = |backend: &TransmitBackend| match backend.slots() {
            SlotPromise::All => 0,
            SlotPromise::RealTime => 1,
            SlotPromise::None => 2,
        };
        assert!(TransmitBackend::BY_PREFERENCE.iter().map(rank).is_sorted());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four queueing disciplines of Linux for time-sensitive traffic, as `tc` takes them. A value
//! of these types is one that the kernel takes on some interface; what it refuses on every
//! interface cannot be built.
//!
//! Not here: running `tc` (`timewire-host`), what the disciplines do with a frame
//! ([`crate::port`]).

mod cbs;
mod class;
mod command;
mod credit;
mod doubt;
mod error;
mod etf;
mod gated;
mod mqprio;
mod place;
mod shown;
mod taprio;
mod tdm;
mod words;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, Span};
pub use timewire_model::queue::{Handle, QueueRange};

pub use cbs::Cbs;
pub use class::TrafficClasses;
pub use command::{InstallVerb, QdiscAction, QdiscCommand};
pub use credit::{
    CLASS_A_INTERVAL, CLASS_B_INTERVAL, CreditError, CreditShaper, ReservedClass, ReservedStream,
    rate_of_streams_ceil,
};
pub use doubt::{Doubt, PortLimits};
pub use error::{QdiscError, Refuser};
pub use etf::{Etf, EtfFlags};
pub use gated::{CreditRange, GatedRate};
pub use mqprio::{ClassRate, Mqprio, MqprioHardware, MqprioOptions, MqprioShaper};
pub use place::{ClassId, QdiscPosition, SizeTable};
pub use shown::ShownQdisc;
pub use taprio::{
    FramePreemption, GateControlEntry, GateOperation, MAX_SHOWN_ENTRIES, Taprio, TaprioMode,
    TaprioOptions,
};
pub(crate) use tdm::best_effort_and_real_time;
pub use tdm::{TdmPort, TdmTaprio, TdmTaprioError, taprio_of_station};

use words::Words;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QdiscKind {
    /// Traffic classes with queues of their own.
    Mqprio,
    /// Gates that open and close by a list.
    Taprio,
    /// Launch times.
    Etf,
    /// Credit.
    Cbs,
}

impl QdiscKind {
    /// All of them.
    pub const ALL: [QdiscKind; 4] =
        [QdiscKind::Mqprio, QdiscKind::Taprio, QdiscKind::Etf, QdiscKind::Cbs];

    /// The name in `tc` and in the kernel.
    pub fn as_str(self) -> &'static str {
        match self {
            QdiscKind::Mqprio => "mqprio",
            QdiscKind::Taprio => "taprio",
            QdiscKind::Etf => "etf",
            QdiscKind::Cbs => "cbs",
        }
    }
}

impl fmt::Display for QdiscKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for QdiscKind {
    type Err = QdiscError;
    fn from_str(word: &str) -> Result<Self, QdiscError> {
        let known = QdiscKind::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| QdiscError::Kind { kind: word.to_owned() })
    }
}

/// One of the four disciplines with its settings.
///
/// Reads and prints the words of `tc` from the kind on: `cbs idleslope 20000 ...`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Qdisc {
    /// Traffic classes with queues of their own.
    Mqprio(Mqprio),
    /// Gates that open and close by a list.
    Taprio(Taprio),
    /// Launch times.
    Etf(Etf),
    /// Credit.
    Cbs(Cbs),
}

impl Qdisc {
    /// Which of the four.
    pub fn kind(&self) -> QdiscKind {
        match self {
            Qdisc::Mqprio(_) => QdiscKind::Mqprio,
            Qdisc::Taprio(_) => QdiscKind::Taprio,
            Qdisc::Etf(_) => QdiscKind::Etf,
            Qdisc::Cbs(_) => QdiscKind::Cbs,
        }
    }

    /// The words after the kind.
    fn parse_kind(kind: QdiscKind, words: &mut Words<'_>) -> Result<Qdisc, QdiscError> {
        Ok(match kind {
            QdiscKind::Mqprio => Qdisc::Mqprio(Mqprio::parse(words)?),
            QdiscKind::Taprio => Qdisc::Taprio(Taprio::parse(words)?),
            QdiscKind::Etf => Qdisc::Etf(Etf::parse(words)?),
            QdiscKind::Cbs => Qdisc::Cbs(Cbs::parse(words)?),
        })
    }
}

impl FromStr for Qdisc {
    type Err = QdiscError;
    fn from_str(text: &str) -> Result<Self, QdiscError> {
        let mut words = Words::new(text);
        let kind = words.need("mqprio, taprio, etf or cbs")?.parse()?;
        Qdisc::parse_kind(kind, &mut words)
    }
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Qdisc::Mqprio(mqprio) => mqprio.fmt(f),
            Qdisc::Taprio(taprio) => taprio.fmt(f),
            Qdisc::Etf(etf) => etf.fmt(f),
            Qdisc::Cbs(cbs) => cbs.fmt(f),
        }
    }
}

/// A clock of Linux that a discipline can run on.
///
/// Reads with and without `CLOCK_`, in any case, as `tc` does; prints with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QdiscClock {
    /// `CLOCK_REALTIME`.
    #[serde(rename = "CLOCK_REALTIME")]
    Realtime,
    /// `CLOCK_MONOTONIC`.
    #[serde(rename = "CLOCK_MONOTONIC")]
    Monotonic,
    /// `CLOCK_BOOTTIME`.
    #[serde(rename = "CLOCK_BOOTTIME")]
    Boottime,
    /// `CLOCK_TAI`.
    #[serde(rename = "CLOCK_TAI")]
    Tai,
}

const CLOCKS: [(QdiscClock, &str); 4] = [
    (QdiscClock::Realtime, "REALTIME"),
    (QdiscClock::Monotonic, "MONOTONIC"),
    (QdiscClock::Boottime, "BOOTTIME"),
    (QdiscClock::Tai, "TAI"),
];

impl FromStr for QdiscClock {
    type Err = QdiscError;
    fn from_str(text: &str) -> Result<Self, QdiscError> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("CLOCK_").unwrap_or(&upper);
        let found = CLOCKS.iter().find(|(_, known)| *known == name);
        found.map(|(clock, _)| *clock).ok_or_else(|| QdiscError::Value {
            key: "clockid",
            text: text.to_owned(),
            why: "CLOCK_TAI, CLOCK_REALTIME, CLOCK_MONOTONIC or CLOCK_BOOTTIME".to_owned(),
        })
    }
}

impl fmt::Display for QdiscClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CLOCKS.iter().find(|(clock, _)| clock == self).map_or("", |(_, name)| name);
        write!(f, "CLOCK_{name}")
    }
}

/// How long `taprio` takes a frame of so many bytes to last, size table included, on an interface
/// that states this rate: whole Mbit/s, whole picoseconds per byte (17 at least), rounded down to
/// whole nanoseconds.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:taprio_set_picos_per_byte`,
/// `length_to_duration`.
pub fn taprio_duration(bytes: u32, stated: BitsPerSecond) -> Span {
    // An interface that states less than 1 Mbit/s states nothing: the kernel takes 10 Mbit/s.
    let mbit = match stated.get() / 1_000_000 {
        0 => 10,
        mbit => mbit,
    };
    let picos_per_byte = (8_000_000 / mbit).max(17);
    let ns = u64::from(bytes) * picos_per_byte / 1_000;
    Span::from_ns(i64::try_from(ns).expect("invariant: 4 GiB at 1 Mbit/s is 10 hours"))
}

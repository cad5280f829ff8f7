// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the numbers in the events of one capture stand for.
//!
//! A capture is of one kernel: it has one clock, `CLOCK_MONOTONIC`, and as many stations as there
//! are network namespaces to tell apart. What is learned while it runs (threads, points, samples of
//! clocks, losses) is written as it is learned.
//!
//! In a file ([`Writer`], [`Reader`]) a capture is a header, then blocks of events and of notes as
//! they came.
//!
//! Not here: the events themselves ([`crate::event`]).

mod block;
mod cut;
mod export;
mod merge;
mod names;
mod notes;
mod packets;
mod read;
mod write;

#[cfg(test)]
mod part_tests;
#[cfg(test)]
mod tests;

pub use block::{
    BLOCK_BYTES, CAPTURE_VERSION, EVENTS_PER_BLOCK, End, MAX_CONTENT_BYTES, MAX_HEADER_BYTES,
    STORED_BYTES,
};
pub use cut::{Cut, CutReport};
pub use export::{COLUMNS, Format, export, rows};
pub use merge::{Merge, MergeError, MergeReport, by_boot};
pub use names::{Info, Names};
pub use packets::{ONCE, PacketsReport, export_packets, sees_packets};
pub use read::{CaptureError, Health, Item, Reader, WINDOW};
pub use write::Writer;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::kernel::DropReasons;

/// The `schema` field of the header this version writes.
pub const CAPTURE_SCHEMA: &str = "timewire.capture/1";

/// The first that stands in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureHeader {
    /// Name of the host.
    pub host: String,
    /// The boot of its kernel, `/proc/sys/kernel/random/boot_id`: captures of one boot share a
    /// clock.
    pub boot: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Program and version that wrote it.
    pub writer: String,
    /// The stations, by the numbers in the events.
    pub stations: Vec<Station>,
    /// What is watched, by [`crate::event::Hook::name`]; what the kernel lacks is not in it.
    pub hooks: Vec<String>,
    /// What should have been watched and could not be: the hook, and why not.
    pub missing: BTreeMap<String, String>,
    /// The filter, as it was given; empty for all packets.
    pub filter: String,
    /// Of how many packets one is kept, by its tag; 1 for all.
    pub keep_one_of: u32,
    /// Anything else worth keeping.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
}

impl CaptureHeader {
    /// What the `meta` calls the reason of drops with this number: the header has the names, since
    /// another kernel has others.
    pub fn reason_key(reason: u64) -> String {
        format!("drop.{reason}")
    }

    /// What the `meta` calls a subsystem of reasons: the upper 16 bits of their numbers.
    pub fn subsystem_key(subsystem: u64) -> String {
        format!("drop-subsystem.{subsystem}")
    }

    /// What the `meta` calls an interrupt.
    pub fn interrupt_key(interrupt: u64) -> String {
        format!("irq.{interrupt}")
    }

    /// The name of a reason of drops, if the capture has it.
    pub fn reason_name(&self, reason: u64) -> Option<&String> {
        self.meta.get(&Self::reason_key(reason))
    }

    /// A reason of drops in words: its name, or that it has none.
    pub fn reason(&self, reason: u64) -> String {
        self.reason_name(reason).cloned().unwrap_or_else(|| {
            let subsystem = DropReasons::subsystem(reason);
            let named = self.meta.get(&Self::subsystem_key(subsystem));
            let named = named.map_or_else(|| subsystem.to_string(), Clone::clone);
            format!("unknown reason {} (subsystem {named})", reason & !0xffff_0000)
        })
    }

    /// An interrupt: its number, with its name if the capture has it.
    pub fn interrupt(&self, interrupt: u64) -> String {
        match self.meta.get(&Self::interrupt_key(interrupt)) {
            Some(name) => format!("{interrupt} ({name})"),
            None => interrupt.to_string(),
        }
    }
}

/// A network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Its name; that of the host when the capture has one only.
    pub name: String,
    /// The number of its namespace (`st_ino` of `/proc/PID/ns/net`).
    pub namespace: u64,
    /// Its interfaces: index and name.
    pub interfaces: BTreeMap<u32, String>,
}

/// What is learned while a capture runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Note {
    /// The name of a thread.
    Thread {
        /// Its number.
        thread: u32,
        /// Its name.
        name: String,
    },
    /// A point at which a program puts markers.
    Point {
        /// Its number, the object of the events.
        point: u64,
        /// Its name.
        name: String,
        /// The process whose point it is.
        process: u32,
    },
    /// What the tag of packets stands for: whose they are. Once for each upper half of a tag.
    Flow {
        /// The upper 32 bits of its tags.
        flow: u32,
        /// In words: `UDP 10.0.0.1:7000 > 10.0.0.2:7001`.
        name: String,
    },
    /// The host's clocks, read together.
    Clocks(ClockSample),
    /// A queueing discipline.
    Qdisc {
        /// Index of the station.
        station: u8,
        /// Index of the interface.
        interface: u32,
        /// Its handle.
        handle: u32,
        /// Its kind, as `tc` has it.
        kind: String,
    },
    /// What a counter of a program has come to. Each thread has its own; of one name in one process
    /// the sum is meant.
    Counter {
        /// When it was read.
        at_ns: u64,
        /// Whose it is.
        process: u32,
        /// Which thread's.
        thread: u32,
        /// Its name.
        name: String,
        /// All that was added until then.
        value: u64,
    },
    /// What a histogram of a program has come to; as a counter.
    Histogram {
        /// When it was read.
        at_ns: u64,
        /// Whose it is.
        process: u32,
        /// Which thread's.
        thread: u32,
        /// Its name.
        name: String,
        /// How often a value was 0, 1, 2 to 3, 4 to 7, ... had so many bits; without the zeros at
        /// the end.
        buckets: Vec<u64>,
        /// The sum of all values, modulo 2^64.
        sum: u64,
    },
    /// How much was lost until now, for each hook; all that are watched are in it.
    Losses(BTreeMap<String, HookCount>),
}

/// How many events a hook had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCount {
    /// Times it was reached.
    pub seen: u64,
    /// Events of it that were written.
    pub written: u64,
    /// Events that had no room.
    pub lost: u64,
}

/// The host's clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME` less it.
    pub realtime_ahead_ns: i64,
    /// `CLOCK_TAI` less `CLOCK_REALTIME`.
    pub tai_ahead_ns: i64,
    /// So far, at most, are the two from right: the time that reading took.
    pub error_ns: u64,
    /// How far the synchronisation says that `CLOCK_REALTIME` is from the one that gives the time;
    /// `None` when nothing says it.
    pub offset_ns: Option<i64>,
}

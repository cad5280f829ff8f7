// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet paths: from the events of one or more captures to the way of each packet, from the
//! program that sent it to each that received it, and how long every stage of it took.
//!
//! [`PacketPaths`] takes events one by one and gives each packet path once, when nothing that is
//! still to come could change it. It keeps open packet paths only. [`Analysis`](analysis::Analysis)
//! adds tables, the worst packet paths with the reason for each, and chains of markers.
//!
//! What belongs together is what events prove ([`Rule`]). Where they allow more than one way to
//! read them, the packet path is [`Status::Ambiguous`]; where events were lost around it,
//! [`Status::Lossy`]. The stages of every packet path sum to its length exactly, since each is the
//! difference of neighbouring timestamps.
//!
//! Definitions: `docs/src/reference/packet-paths.md`.
//!
//! Not here: clocks of several hosts ([`ClockMap`] is asked; `align` answers), the file of events
//! ([`crate::capture`]), drawing.

pub mod analysis;
mod arrivals;
mod bounds;
pub mod chain;
mod clash;
mod context;
pub mod culprit;
pub mod export;
mod follow;
mod identity;
mod join;
mod losses;
mod node;
mod socket;
pub mod stage;
pub mod table;
#[cfg(test)]
pub(crate) mod tests;
pub mod worst;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::capture::{CaptureHeader, HookCount};
use crate::event::{Event, Hook};
pub use bounds::{Bounds, LeftOut};
pub use clash::Clash;
pub use follow::{Counts, Held, PacketPaths};
pub use losses::Loss;
pub use stage::{Parts, Stage};

/// An instant on the scale that all captures share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// **Units**: ns; the scale's zero is the map's own.
    pub ns: i64,
    /// It is at most so far from right, compared with an instant of another capture.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
}

/// From the clock of each capture to the scale that all of them share.
pub trait ClockMap {
    /// An instant of a capture's clock. For one capture a later instant never comes to an earlier
    /// one.
    fn to_common(&self, capture: usize, at_ns: u64) -> Common;

    /// The same instant in TAI as that host's kernel had it then, which decides when its gates
    /// opened. `None` when the capture does not tell.
    ///
    /// **Units**: ns since 1970-01-01 TAI.
    fn to_tai(&self, capture: usize, at_ns: u64) -> Option<i64> {
        let _ = (capture, at_ns);
        None
    }
}

impl<C: ClockMap + ?Sized> ClockMap for &C {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        (**self).to_common(capture, at_ns)
    }

    fn to_tai(&self, capture: usize, at_ns: u64) -> Option<i64> {
        (**self).to_tai(capture, at_ns)
    }
}

/// Captures of one kernel: their clock is the common one, and there is no bound to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneClock;

impl ClockMap for OneClock {
    fn to_common(&self, _: usize, at_ns: u64) -> Common {
        Common { ns: i64::try_from(at_ns).unwrap_or(i64::MAX), bound_ns: 0 }
    }
}

/// What has to be known of a capture before its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Hooks that were watched.
    pub hooks: BTreeSet<Hook>,
    /// When events were lost, and of which hooks.
    pub losses: Vec<Loss>,
    /// The collector sets [`Flags::ALONE`](crate::event::Flags::ALONE). Without it, a socket is
    /// believed to be empty when the capture begins.
    pub tells_alone: bool,
    /// The reason of drops of a packet for which the kernel has no protocol (`UNHANDLED_PROTO`).
    pub unhandled: Option<u64>,
}

impl CaptureInfo {
    /// Of a header: hooks that this version does not know are left out.
    pub fn of(header: &CaptureHeader) -> CaptureInfo {
        let hooks = header.hooks.iter().filter_map(|name| Hook::from_name(name)).collect();
        let tells_alone = header.meta.get("alone").is_some_and(|value| value == "yes");
        let named = |(key, name): (&String, &String)| {
            (name == "UNHANDLED_PROTO").then(|| key.strip_prefix("drop.")?.parse().ok()).flatten()
        };
        let unhandled = header.meta.iter().find_map(named);
        CaptureInfo { hooks, losses: Vec::new(), tells_alone, unhandled }
    }

    /// Everything is watched and nothing was lost.
    pub fn all() -> CaptureInfo {
        CaptureInfo { hooks: Hook::ALL.into_iter().collect(), ..CaptureInfo::default() }
    }

    /// Adds what two successive [`Note::Losses`](crate::capture::Note::Losses) tell: `before` at
    /// `from_ns` (nothing, for the first of a capture), `now` at `to_ns`.
    pub fn add_losses(
        &mut self,
        (from_ns, before): (u64, &BTreeMap<String, HookCount>),
        (to_ns, now): (u64, &BTreeMap<String, HookCount>),
    ) {
        for (name, count) in now {
            let old = before.get(name).map_or(0, |old| old.lost);
            if let (Some(hook), true) = (Hook::from_name(name), count.lost > old) {
                let events = count.lost - old;
                // So many that they are told apart no more: the last of the hook becomes longer.
                let full = self.losses.len() >= MAX_LOSSES;
                let last = self.losses.iter_mut().rev().filter(|_| full);
                match last.take(Hook::ALL.len()).find(|loss| loss.hook == hook) {
                    Some(loss) => {
                        loss.to_ns = loss.to_ns.max(to_ns);
                        loss.events = loss.events.saturating_add(events);
                    }
                    None => self.losses.push(Loss { hook, from_ns, to_ns, events }),
                }
            }
        }
    }
}

/// Losses of one capture that are told apart.
const MAX_LOSSES: usize = 1 << 16;

/// A network interface in a capture.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Port {
    /// Index of the capture.
    pub capture: usize,
    /// Index of the station in it.
    pub station: u8,
    /// Index of the interface in the station.
    pub interface: u32,
}

/// How packet paths are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Events of one capture may come so much out of order; those that are later count as lost.
    ///
    /// **Units**: ns.
    pub reorder_ns: i64,
    /// A frame is on the wire at most so long. So long a tag is looked for on other hosts, and a
    /// packet path is held back after its end.
    ///
    /// **Units**: ns.
    pub window_ns: i64,
    /// A packet rests (in a queueing discipline, in a socket) at most so long; after that its
    /// packet path ends where it was last seen.
    ///
    /// **Units**: ns.
    pub longest_ns: i64,
    /// Which interfaces hear each other: the number of their segment. A frame that was sent at one
    /// of them was not received at an interface of another segment.
    pub segments: BTreeMap<Port, u32>,
    /// How much is kept.
    pub bounds: Bounds,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            reorder_ns: 1_000_000,
            window_ns: 100_000_000,
            longest_ns: 10_000_000_000,
            segments: BTreeMap::new(),
            bounds: Bounds::default(),
        }
    }
}

/// Why an event is taken for the next of the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Rule {
    /// It is the first.
    First,
    /// The same buffer of the same kernel, with no sign of another packet in it.
    Object,
    /// A copy of the buffer: the kernel made it on the same CPU right after the event before.
    Copy,
    /// A copy of the buffer: the only packet of the station with this tag; or the frame that the
    /// driver showed: the only one of its interface.
    CopyByTag,
    /// Another host or another buffer: the tag is in the message, and one transmission only has it.
    Tag,
    /// As [`Rule::Tag`], by a hash of headers and content.
    Content,
    /// As [`Rule::Content`], several have it; as many were sent as were received, in this order.
    Order,
    /// The order of messages in the socket, and a length that fits.
    SocketOrder,
    /// The thread was woken because of the socket.
    Woken,
    /// The system call of this thread sent to this socket.
    SendCall,
    /// A marker with the packet's tag.
    Marker,
}

impl Rule {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::First => "first",
            Rule::Object => "object",
            Rule::Copy => "copy",
            Rule::CopyByTag => "copy-by-tag",
            Rule::Tag => "tag",
            Rule::Content => "content",
            Rule::Order => "order",
            Rule::SocketOrder => "socket-order",
            Rule::Woken => "woken",
            Rule::SendCall => "send-call",
            Rule::Marker => "marker",
        }
    }
}

/// One event of a packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// **Units**: ns of the common scale.
    pub at_ns: i64,
    /// The timestamp itself.
    ///
    /// **Units**: ns of the capture's clock.
    pub raw_ns: u64,
    /// As in the event.
    pub aux: u64,
    /// Of [`Common::bound_ns`]; 2^32 - 1 stands for that and more.
    pub bound_ns: u32,
    /// As in the event.
    pub interface: u32,
    /// As in the event.
    pub thread: u32,
    /// As in the event.
    pub length: u16,
    /// As in the event.
    pub cpu: u16,
    /// Where.
    pub hook: Hook,
    /// As in the event.
    pub station: u8,
    /// Index of the capture.
    pub capture: u8,
    /// Why it is the next of the same packet.
    pub rule: Rule,
}

impl Point {
    fn of(capture: u8, event: &Event, common: Common) -> Point {
        Point {
            at_ns: common.ns,
            raw_ns: event.at_ns,
            aux: event.aux,
            bound_ns: u32::try_from(common.bound_ns).unwrap_or(u32::MAX),
            interface: event.interface,
            thread: event.thread,
            length: event.length,
            cpu: event.cpu,
            hook: event.hook,
            station: event.station,
            capture,
            rule: Rule::First,
        }
    }

    /// The interface it was seen at.
    pub fn port(&self) -> Port {
        Port {
            capture: usize::from(self.capture),
            station: self.station,
            interface: self.interface,
        }
    }
}

/// What is known of a packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// No event of it can be missing.
    Complete,
    /// Events were lost while it lasted.
    Lossy,
    /// Events can be read in more than one way.
    Ambiguous,
}

impl Status {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Complete => "complete",
            Status::Lossy => "lossy",
            Status::Ambiguous => "ambiguous",
        }
    }
}

/// Why a packet path is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Why {
    /// Events were lost in its time.
    Lost,
    /// Events of its socket were lost before, and nothing since has shown which message is which.
    SocketAfterLoss,
    /// The socket was found empty while the message should have been in it.
    SocketEmpty,
    /// Several transmissions have its tag.
    Transmissions {
        /// How many; 255 for that and more.
        candidates: u8,
    },
    /// It came twice where it was sent once.
    ReceivedTwice,
    /// Several packets of the station have its tag when a copy is seen.
    Copies {
        /// How many.
        candidates: u8,
    },
    /// The length of what was read does not fit what was queued.
    Length {
        /// Of the frame.
        queued: u16,
        /// Of the message.
        read: u16,
    },
    /// There was no room to keep all of it.
    LeftOut,
    /// Where it came from seems to come from it: one packet is in two captures, or a clock is
    /// wrong.
    Circle,
}

impl Why {
    /// The status it makes.
    pub const fn status(self) -> Status {
        match self {
            Why::Lost | Why::SocketAfterLoss | Why::SocketEmpty | Why::LeftOut => Status::Lossy,
            _ => Status::Ambiguous,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Lost => write!(f, "events were lost in its time"),
            Why::SocketAfterLoss => write!(f, "events of its socket were lost before"),
            Why::SocketEmpty => write!(f, "its socket was found empty before it was read"),
            Why::Transmissions { candidates } => {
                write!(f, "{candidates} transmissions have its tag")
            }
            Why::ReceivedTwice => write!(f, "it was received twice where it was sent once"),
            Why::Copies { candidates } => {
                write!(f, "{candidates} packets of the station have its tag")
            }
            Why::Length { queued, read } => {
                write!(f, "a message of {read} bytes does not fit a frame of {queued}")
            }
            Why::LeftOut => write!(f, "there was no room to keep all of it"),
            Why::Circle => write!(f, "it seems to come from a packet that comes from it"),
        }
    }
}

/// How a packet path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum PathOutcome {
    /// A program received it.
    Received,
    /// It was dropped.
    Dropped {
        /// The kernel's reason.
        reason: u64,
    },
    /// It is in a socket and was not read in time.
    Queued,
    /// A driver sent it, and no capture saw it again.
    Sent,
    /// It was not seen again.
    Unseen,
}

impl PathOutcome {
    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            PathOutcome::Received => "received",
            PathOutcome::Dropped { .. } => "dropped",
            PathOutcome::Queued => "queued",
            PathOutcome::Sent => "sent",
            PathOutcome::Unseen => "unseen",
        }
    }
}

/// One packet on its way from a sender to one receiver.
///
/// Packets with several receivers have a packet path for each; the part before they part is in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// Its number: in the order in which packet paths are given, from 0.
    pub number: u64,
    /// The packet's tag; 0 for none.
    pub tag: u64,
    /// Whether the tag is from the message itself.
    pub tagged: bool,
    /// What is known.
    pub status: Status,
    /// Why it is not complete.
    pub why: Option<Why>,
    /// How it ended.
    pub outcome: PathOutcome,
    /// Its events, in their order.
    pub points: Vec<Point>,
    /// What they come to: neighbouring stages share a point.
    pub stages: Vec<Stage>,
    /// When a sender was told that it has left, of those that asked
    /// ([`Hook::TransmitTimestamp`]), in order: for each interface one of the driver, without a
    /// time, and one of the NIC, with the time of its clock, at most. They are no points, since
    /// they can come when the packet is at its receiver already.
    pub timestamps: Vec<Point>,
}

impl PacketPath {
    /// When it began.
    ///
    /// **Units**: ns of the common scale.
    pub fn from_ns(&self) -> i64 {
        self.points.first().map_or(0, |point| point.at_ns)
    }

    /// When it ended.
    ///
    /// **Units**: ns of the common scale.
    pub fn to_ns(&self) -> i64 {
        self.points.last().map_or(0, |point| point.at_ns)
    }

    /// How long it took: the sum of its stages.
    ///
    /// **Units**: ns.
    pub fn end_to_end_ns(&self) -> i64 {
        self.to_ns() - self.from_ns()
    }

    /// How far [`PacketPath::end_to_end_ns`] may be from right since the clocks of its ends differ;
    /// 0 when both are of one capture.
    ///
    /// **Units**: ns.
    pub fn bound_ns(&self) -> u64 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) if first.capture != last.capture => {
                u64::from(first.bound_ns) + u64::from(last.bound_ns)
            }
            _ => 0,
        }
    }

    /// Whether its times mean something: of one between two hosts, whether it is known how far
    /// their clocks are apart at its ends and at every stage between.
    pub fn is_timed(&self) -> bool {
        let known = |bound: u64| bound < u64::from(u32::MAX);
        known(self.bound_ns()) && self.stages.iter().all(|stage| known(stage.bound_ns))
    }

    /// The upper half of its tag: whose packet it is.
    pub fn flow(&self) -> u32 {
        u32::try_from(self.tag >> 32).expect("invariant: 32 bits are left")
    }
}

/// What is told of events and packet paths as they pass. All have defaults that do nothing.
pub trait Observer {
    /// An event, in the order of the common scale.
    fn event(&mut self, capture: usize, point: &Point, event: &Event) {
        let _ = (capture, point, event);
    }

    /// A packet path; nothing that is still to come changes it.
    fn packet_path(&mut self, packet_path: &PacketPath) {
        let _ = packet_path;
    }
}

/// Keeps every packet path.
impl Observer for Vec<PacketPath> {
    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.push(packet_path.clone());
    }
}

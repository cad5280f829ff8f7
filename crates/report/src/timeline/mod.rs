// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace as lines over time, in bounded memory, and the drawing of one packet path on them.
//!
//! [`TimelineInput`] is the boundary between analysis and drawing: [`Gather`] fills it from events
//! and packet paths as they pass; [`crate::perfetto`] and [`crate::packet_paths::page`] draw it.
//! All times are already those of the scale that the hosts share; nothing here corrects a clock.
//!
//! Not here: packet paths themselves (`timewire_capture::packet_path`), tables
//! ([`crate::packet_paths`]).

mod gather;
mod lanes;
mod names;
mod pick;
mod picture;
mod rows;

pub use gather::{Gather, GatherOptions};
pub use names::Names;
pub(crate) use picture::picture;
pub(crate) use rows::rows;

/// Everything that is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineInput {
    /// What it is of.
    pub title: String,
    /// What was lost, a sentence each; said before anything else. Empty: nothing.
    pub losses: Vec<String>,
    /// Streams that have one number, in words.
    pub clashes: Vec<String>,
    /// What of the trace is in it, and what was left out for want of room, a sentence each.
    pub extent: Vec<String>,
    /// The hosts.
    pub hosts: Vec<HostView>,
    /// The lines, in the order in which they are drawn: by host, station, kind.
    pub lanes: Vec<Lane>,
    /// The names that [`Mark::name`], [`Interval::name`] and [`Band::name`] stand for.
    pub names: Vec<String>,
    /// Instants, ascending.
    pub events: Vec<Mark>,
    /// What lasts, ascending by their begin.
    pub intervals: Vec<Interval>,
    /// When a station may send (gates, slots), ascending by their begin.
    pub bands: Vec<Band>,
    /// How many frames were in a queue from an instant on, ascending.
    pub counts: Vec<Count>,
    /// The packet paths, ascending by their number.
    pub packet_paths: Vec<Flow>,
    /// UTC less the common scale, where it is known.
    ///
    /// **Units**: ns.
    pub utc_ahead_ns: Option<i64>,
}

/// A host: one kernel, one clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// The largest bound of its instants, compared with another host's; 0 for the one whose clock
    /// is the common one.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Index of the host.
    pub host: usize,
    /// Name of the station; empty for what belongs to the host as a whole.
    pub station: String,
    /// What is on it.
    pub kind: LaneKind,
    /// Its name, without the station's.
    pub name: String,
}

/// What a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneKind {
    /// When a station may send.
    Gates,
    /// Markers of programs.
    Marker,
    /// Events of one hook that begin or end no stage: drops, transmit timestamps.
    Hook,
    /// Stages at an interface.
    Interface,
    /// Frames in a queueing discipline.
    Queue,
    /// Messages that rest in a socket.
    Socket,
    /// Stages that a thread carries out.
    Thread,
    /// Interrupts, deferred work and polls of a CPU.
    Cpu,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// **Units**: ns of the common scale.
    pub at_ns: i64,
    /// Index of its line.
    pub lane: usize,
    /// Index of its name.
    pub name: usize,
    /// The packet path whose event it is.
    pub packet_path: Option<u64>,
}

/// What lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// **Units**: ns of the common scale.
    pub from_ns: i64,
    /// Its end; before its begin only where two clocks disagree, within their bounds.
    ///
    /// **Units**: ns of the common scale.
    pub to_ns: i64,
    /// Index of its line.
    pub lane: usize,
    /// Index of its name.
    pub name: usize,
    /// How far its length may be from right, where it lies between two clocks.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
    /// The packet path whose stage it is.
    pub packet_path: Option<u64>,
}

impl Interval {
    /// What tells it from others on its line: packet paths that part later share the stages before.
    fn key(&self) -> (i64, i64, usize, usize) {
        (self.from_ns, self.to_ns, self.lane, self.name)
    }
}

/// A time in which a station may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Band {
    /// **Units**: ns of the common scale.
    pub from_ns: i64,
    /// **Units**: ns of the common scale.
    pub to_ns: i64,
    /// Index of a line of kind [`LaneKind::Gates`]; it shades all lines of that station.
    pub lane: usize,
    /// Index of its name.
    pub name: usize,
}

/// Frames in a queue, from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// **Units**: ns of the common scale.
    pub at_ns: i64,
    /// Index of a line of kind [`LaneKind::Queue`].
    pub lane: usize,
    /// So many.
    pub value: u64,
}

/// A packet path across the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Its number in the analysis.
    pub number: u64,
    /// What is known of it: `complete`, `lossy`, `ambiguous`; and how it ended.
    pub state: String,
    /// Whose packet it was, in words.
    pub flow: String,
    /// Its first event.
    ///
    /// **Units**: ns of the common scale.
    pub from_ns: i64,
    /// **Units**: ns, from end to end.
    pub length_ns: i64,
    /// How far that may be from right, since two clocks were read.
    ///
    /// **Units**: ns.
    pub bound_ns: u64,
    /// The reason for its length; empty when it is none of the worst.
    pub sentence: String,
    /// Its stages, in their order; empty when it is none of the worst.
    pub stages: Vec<Interval>,
}

impl TimelineInput {
    /// From the first instant of anything to the last; `None` when there is nothing.
    ///
    /// **Units**: ns of the common scale.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let marks = self.events.iter().map(|mark| (mark.at_ns, mark.at_ns));
        let lasting = self.intervals.iter().map(|it| (it.from_ns, it.to_ns.max(it.from_ns)));
        let counts = self.counts.iter().map(|count| (count.at_ns, count.at_ns));
        let all = marks.chain(lasting).chain(counts);
        let all = all.chain(self.bands.iter().map(|band| (band.from_ns, band.to_ns)));
        all.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))
    }
}

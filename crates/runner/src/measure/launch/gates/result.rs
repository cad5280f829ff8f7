// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of gates comes to: how the frames of each class kept to its windows.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, Window};
use timewire_capture::gate::{self, GateTimes, GatedFrame};

use timewire_datapath::drops::DropCause;

use super::super::limit::{self, Checked, FIGURES, Limit, Names};
use super::super::result::{
    Conclusion, Conditions, Counts, Errors, Fate, NicClockSeen, PointClock, Unavailable,
};
use super::super::{TimestampPoint, cell};
use crate::measure::run::Report;

/// The format of [`Measured`] as JSON.
pub const SCHEMA: &str = "timewire.measure-gates/1";

/// One frame of a class. **Units**: nanoseconds of TAI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// When it was written for the kernel.
    pub sent_ns: i64,
    /// When the kernel gave it to the discipline.
    pub ready_ns: Option<i64>,
    /// The timestamp of the sender's side as it left.
    pub sender_ns: Option<i64>,
    /// The kernel's timestamp where it arrived.
    pub peer_ns: Option<i64>,
    /// What became of it.
    pub fate: Fate,
}

/// A class, and what was sent in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    /// The traffic class.
    pub class: u8,
    /// The socket priority of its frames.
    pub priority: u8,
    /// When its gate is open.
    pub times: GateTimes,
    /// The frames, in their order.
    pub frames: Vec<Frame>,
}

/// How the frames of a class kept to its gate, by the timestamps of one timestamp point.
///
/// **Units**: nanoseconds; what has no frames is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtPoint {
    /// Whose clock's.
    #[serde(flatten)]
    pub by: PointClock,
    /// Frames with a timestamp.
    pub timestamped: u64,
    /// Of these, such as left in a window.
    pub inside: u64,
    /// Outside, nearer to the next opening: how long before it.
    pub before: Option<Errors>,
    /// Outside otherwise: how long after the closing.
    pub after: Option<Errors>,
    /// Of each opening for which frames waited: how late the first of them left.
    pub opening: Option<Errors>,
    /// Of each window with frames: how long after its opening the first left, waiting or not.
    pub first: Option<Errors>,
    /// From the discipline's door to leaving.
    pub wait: Option<Errors>,
    /// In a window, and not over as it closed: by how much.
    pub past_end: Option<Errors>,
    /// Of each window with frames: from the end of the last to the closing.
    pub unused: Option<Errors>,
    /// Frames that were sent and have no timestamp.
    pub lost: u64,
}

impl AtPoint {
    /// Frames that left while the gate was closed.
    pub fn outside(&self) -> u64 {
        self.timestamped - self.inside
    }

    fn spreads(&self) -> [(&'static str, &Option<Errors>); 7] {
        [
            ("before", &self.before),
            ("after", &self.after),
            ("opening", &self.opening),
            ("first", &self.first),
            ("wait", &self.wait),
            ("past-end", &self.past_end),
            ("unused", &self.unused),
        ]
    }
}

/// One class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// The traffic class.
    pub class: u8,
    /// The socket priority of its frames.
    pub priority: u8,
    /// Its windows, from the schedule's base time; the last may go over the end of the cycle.
    pub windows: Vec<Window>,
    /// What became of its frames.
    pub counts: Counts,
    /// The timestamp point that the table shows.
    pub shown: TimestampPoint,
    /// At every timestamp point that there is.
    pub points: Vec<AtPoint>,
}

impl Class {
    /// The timestamp point that the table shows.
    pub fn at_shown(&self) -> Option<&AtPoint> {
        self.points.iter().find(|at| at.by.point == self.shown)
    }

    fn figures(&self) -> Vec<(String, i64)> {
        let Some(at) = self.at_shown().filter(|at| at.by.incomparable.is_none()) else {
            return Vec::new();
        };
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let past_end = at.past_end.as_ref().map_or(0, |errors| errors.count);
        let counts = [
            ("outside", at.outside()),
            ("past-end", past_end),
            ("lost", at.lost),
            ("not-taken", self.counts.not_taken),
        ];
        let mut found: Vec<(String, i64)> =
            counts.iter().map(|(name, value)| ((*name).to_owned(), count(*value))).collect();
        for (name, errors) in at.spreads() {
            let values = errors.as_ref().map(limit::figures);
            let named = values.into_iter().flat_map(|values| FIGURES.into_iter().zip(values));
            found.extend(named.map(|(figure, value)| (format!("{name}-{figure}"), value)));
        }
        found
    }
}

/// What limits can be set for.
pub(super) fn names() -> Names {
    let spreads = ["before", "after", "opening", "first", "wait", "past-end", "unused"];
    let times = spreads.iter().flat_map(|name| FIGURES.map(|figure| format!("{name}-{figure}")));
    let counts = ["outside", "past-end", "lost", "not-taken"].map(str::to_owned).to_vec();
    Names { times: times.collect(), counts }
}

/// The schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Who opens and closes the gates.
    pub mode: String,
    /// A cycle starts then, by TAI.
    pub base_time_ns: i64,
    /// Its length.
    pub cycle_ns: i64,
    /// Its entries: the classes whose gates are open, a bit each, and how long.
    pub entries: Vec<Entry>,
    /// Whether it was there already, so that it is only said to be this one.
    pub applied_before: bool,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The classes whose gates are open, a bit each.
    pub gate_states: u32,
    /// How long.
    pub interval_ns: i64,
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Where.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The schedule.
    pub schedule: Schedule,
    /// From one frame of a class to the next.
    pub every_ns: i64,
    /// **Units**: bytes with Ethernet header, without check sequence.
    pub frame_bytes: u32,
    /// How long the discipline takes a frame to be on the link.
    pub frame_ns: i64,
    /// Rate of the interface, as the discipline has it.
    pub rate_mbit: u64,
    /// How the sender ran.
    pub scheduling: String,
    /// Each class whose gate is open at some time.
    pub classes: Vec<Class>,
    /// Why frames did not leave.
    pub drop_causes: Vec<DropCause>,
    /// Why nothing could be measured.
    pub absent: Option<Unavailable>,
    /// Limits and notes.
    #[serde(flatten)]
    pub conclusion: Conclusion,
    /// Every frame, which the JSON has not.
    #[serde(skip)]
    pub shots: Vec<Shot>,
}

impl Report for Measured {
    const NAME: &'static str = "gates";
    const FRAMES: Option<&str> = Some("class,seq,sent_ns,ready_ns,sender_ns,peer_ns,fate");

    fn text(&self) -> String {
        super::text::text(self)
    }

    fn ended_early(&self) -> bool {
        self.conclusion.ended_early
    }

    fn absent(&self) -> Option<bool> {
        self.absent.as_ref().map(|absent| absent.unsupported)
    }

    /// Whether frames left while their gate was closed, a class could not be judged, or a limit
    /// does not pass.
    fn has_findings(&self) -> bool {
        let is_bad = |class: &Class| {
            class.at_shown().is_none_or(|at| at.timestamped == 0 || at.outside() > 0)
        };
        self.conclusion.has_findings() || self.classes.iter().any(is_bad)
    }

    fn keep(&mut self, notes: &mut Vec<String>) {
        self.conclusion.notes.append(notes);
    }

    fn write_frames(&self, out: &mut dyn Write) -> io::Result<()> {
        for Shot { class, frames, .. } in &self.shots {
            for (seq, frame) in frames.iter().enumerate() {
                let Frame { sent_ns, ready_ns, sender_ns, peer_ns, fate } = *frame;
                let timestamps = [ready_ns, sender_ns, peer_ns].map(cell).join(",");
                writeln!(out, "{class},{seq},{sent_ns},{timestamps},{}", fate.word())?;
            }
        }
        Ok(())
    }
}

/// From the frames of a class to its figures.
pub(super) fn class(
    shot: &Shot,
    sender: TimestampPoint,
    has_peer: bool,
    nic: Option<&NicClockSeen>,
    shown: TimestampPoint,
    (schedule, length): (&Schedule, Span),
) -> Class {
    let mut counts = Counts::default();
    for frame in &shot.frames {
        counts.add(frame.fate);
    }
    let mut points = vec![at_point(shot, sender, nic, length, |frame| frame.sender_ns)];
    if has_peer {
        points.push(at_point(shot, TimestampPoint::Peer, None, length, |frame| frame.peer_ns));
    }
    let mut windows = match &shot.times {
        GateTimes::Always => {
            vec![Window { offset: Span::ZERO, length: Span::from_ns(schedule.cycle_ns) }]
        }
        GateTimes::Windows(windows) => {
            let shift = windows.base_time().as_ns() - schedule.base_time_ns;
            let told = |one: &Window| {
                let offset = (one.offset.as_ns() + shift).rem_euclid(schedule.cycle_ns);
                Window { offset: Span::from_ns(offset), ..*one }
            };
            windows.windows().iter().map(told).collect()
        }
    };
    windows.sort();
    let Shot { class, priority, .. } = *shot;
    Class { class, priority, windows, counts, shown, points }
}

fn at_point(
    shot: &Shot,
    point: TimestampPoint,
    nic: Option<&NicClockSeen>,
    length: Span,
    timestamp: fn(&Frame) -> Option<i64>,
) -> AtPoint {
    let by = PointClock::of(point, nic);
    let sent = || shot.frames.iter().filter(|frame| frame.fate == Fate::Sent);
    let gated = |frame: &Frame| {
        let ready = Instant::from_ns(frame.ready_ns.unwrap_or(frame.sent_ns));
        Some(GatedFrame { ready, left: Instant::from_ns(timestamp(frame)?) })
    };
    let frames: Vec<GatedFrame> = match by.incomparable {
        None => sent().filter_map(gated).collect(),
        Some(_) => Vec::new(),
    };
    let found = gate::judge(&shot.times, &frames, length);
    let lost = sent().filter(|frame| timestamp(frame).is_none()).count();
    AtPoint {
        by,
        timestamped: u64::try_from(frames.len()).unwrap_or(u64::MAX),
        inside: found.inside,
        before: Errors::of(found.before),
        after: Errors::of(found.after),
        opening: Errors::of(found.opening),
        first: Errors::of(found.first),
        wait: Errors::of(found.wait),
        past_end: Errors::of(found.past_end),
        unused: Errors::of(found.unused),
        lost: u64::try_from(lost).unwrap_or(u64::MAX),
    }
}

/// Holds the limits against every class.
pub(super) fn checked(limits: &[Limit], classes: &[Class]) -> Vec<Checked> {
    let of =
        |class: &Class| limit::check(limits, &format!("class {}", class.class), &class.figures());
    classes.iter().flat_map(of).collect()
}

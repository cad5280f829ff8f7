// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of gates comes to: how the frames of each class kept to its windows.
//!
//! Not here: the arithmetic (`timewire_trace::gate`), the table as text (`super::text`).

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, Window};
use timewire_trace::gate::{self, GateTimes, GatedFrame};

use super::super::Tap;
use super::super::limit::{self, Checked, FIGURES, Limit, Names};
use super::super::result::{CARD_LIMIT, CardClockSeen, Counts, Errors, Fate};
use crate::drops::DropCause;

/// The format of [`Measured`] as JSON.
pub const SCHEMA: &str = "timewire.measure-gates/1";

/// One frame of a class. **Units**: nanoseconds of TAI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// When it was written for the kernel.
    pub sent_ns: i64,
    /// When the kernel gave it to the discipline.
    pub ready_ns: Option<i64>,
    /// The stamp of the sender's side as it left.
    pub sender_ns: Option<i64>,
    /// The kernel's stamp where it arrived.
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

/// How the frames of a class kept to its gate, by the stamps of one tap.
///
/// **Units**: nanoseconds; what has no frames is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtTap {
    /// Where.
    pub tap: Tap,
    /// Whose clock stamped.
    pub clock: String,
    /// Why it cannot be held against the schedule; nothing else is there then.
    pub incomparable: Option<String>,
    /// Of a card's clock: how far from TAI at most, with the error of looking.
    pub clock_within_ns: Option<i64>,
    /// Frames with a stamp.
    pub stamped: u64,
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
    /// Frames that were sent and have no stamp.
    pub lost: u64,
}

impl AtTap {
    /// Frames that left while the gate was closed.
    pub fn outside(&self) -> u64 {
        self.stamped - self.inside
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
    /// The tap that the table shows.
    pub shown: Tap,
    /// At every tap that there is.
    pub taps: Vec<AtTap>,
}

impl Class {
    /// The tap that the table shows.
    pub fn at_shown(&self) -> Option<&AtTap> {
        self.taps.iter().find(|at| at.tap == self.shown)
    }

    fn figures(&self) -> Vec<(String, i64)> {
        let Some(at) = self.at_shown().filter(|at| at.incomparable.is_none()) else {
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

/// Why nothing could be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// What is missing, and what would be right.
    pub why: String,
    /// Whether another kernel, driver or card would have it.
    pub unsupported: bool,
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The format.
    pub schema: String,
    /// The release of the kernel.
    pub kernel: String,
    /// Between which stations.
    pub place: String,
    /// Whether the kernel's time is virtual.
    pub virtual_time: bool,
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
    pub absent: Option<Absent>,
    /// The limits that were set, of each class.
    pub limits: Vec<Checked>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Whether it was ended before all was measured.
    pub ended_early: bool,
}

impl Measured {
    /// Whether frames left while their gate was closed, a class could not be judged, or a limit was
    /// missed.
    pub fn has_findings(&self) -> bool {
        let is_bad =
            |class: &Class| class.at_shown().is_none_or(|at| at.stamped == 0 || at.outside() > 0);
        self.classes.iter().any(is_bad) || self.limits.iter().any(|one| !one.kept)
    }
}

/// From the frames of a class to its figures.
pub(super) fn class(
    shot: &Shot,
    sender: Tap,
    has_peer: bool,
    card: Option<&CardClockSeen>,
    shown: Tap,
    (schedule, length): (&Schedule, Span),
) -> Class {
    let mut counts = Counts::default();
    for frame in &shot.frames {
        counts.add(frame.fate);
    }
    let mut taps = vec![at_tap(shot, sender, card, length, |frame| frame.sender_ns)];
    if has_peer {
        taps.push(at_tap(shot, Tap::Peer, None, length, |frame| frame.peer_ns));
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
    Class { class, priority, windows, counts, shown, taps }
}

fn at_tap(
    shot: &Shot,
    tap: Tap,
    card: Option<&CardClockSeen>,
    length: Span,
    stamp: fn(&Frame) -> Option<i64>,
) -> AtTap {
    let is_card = tap == Tap::TxHardware;
    let incomparable = match card.filter(|_| is_card) {
        None if is_card => Some("the card's clock cannot be read".to_owned()),
        Some(card) if card.most_ns > CARD_LIMIT.as_ns() => Some(format!(
            "{} is up to {} from CLOCK_TAI, more than {CARD_LIMIT}: synchronise them first \
             (phc2sys, or `timewire clock start`)",
            card.device,
            Span::from_ns(card.most_ns)
        )),
        _ => None,
    };
    let clock = match card.filter(|_| is_card) {
        Some(card) => card.device.clone(),
        None if is_card => "the card's".to_owned(),
        None => "CLOCK_TAI".to_owned(),
    };
    let sent = || shot.frames.iter().filter(|frame| frame.fate == Fate::Sent);
    let gated = |frame: &Frame| {
        let ready = Instant::from_ns(frame.ready_ns.unwrap_or(frame.sent_ns));
        Some(GatedFrame { ready, left: Instant::from_ns(stamp(frame)?) })
    };
    let frames: Vec<GatedFrame> = match incomparable {
        None => sent().filter_map(gated).collect(),
        Some(_) => Vec::new(),
    };
    let found = gate::judge(&shot.times, &frames, length);
    let lost = sent().filter(|frame| stamp(frame).is_none()).count();
    AtTap {
        tap,
        clock,
        incomparable,
        clock_within_ns: card.filter(|_| is_card).map(|card| card.most_ns),
        stamped: u64::try_from(frames.len()).unwrap_or(u64::MAX),
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

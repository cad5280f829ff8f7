// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames did not leave: a decision from what the sockets heard and what each queueing
//! discipline counted. Where causes cannot be told apart, all of them are named.
//!
//! **Source**: `linux v6.12 net/sched/sch_etf.c:is_packet_valid, timesortedlist_drop`,
//! `net/sched/sch_taprio.c:taprio_enqueue, taprio_enqueue_one, find_entry_to_transmit`,
//! `net/sched/sch_mqprio.c:mqprio_dump`, `include/net/sch_generic.h:qdisc_drop`.
//!
//! Not here: reading the counters (`super`).

use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::{SocketPriority, TrafficClass};
use timewire_sched::qdisc::{TaprioMode, TaprioOptions};

/// Why a frame did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// `etf` takes frames of sockets with launch times only.
    NoLaunchTime,
    /// The launch times of the socket are of another clock than those of `etf`.
    LaunchClock,
    /// One of the socket and `etf` is in deadline mode, the other is not.
    LaunchMode,
    /// The launch time had passed as the frame came to `etf`.
    LaunchPast,
    /// The launch time was before that of a frame that `etf` had let go already.
    LaunchOutOfOrder,
    /// The launch time passed while the frame waited in `etf`.
    LaunchMissed,
    /// With its launch time, the frame fits no entry in which its gate is open.
    OutsideGate,
    /// Its gate is always open, and the frame would be sent across the end of an entry.
    AcrossEntry,
    /// The frame is longer than the longest opening of its gate, or than the max-sdu of its class.
    FrameTooLong,
    /// The limit of a queueing discipline is reached.
    QueueFull,
    /// A queueing discipline dropped the frame by a rule of its own.
    QdiscRule,
    /// The send buffer of the socket, or the ring, is full.
    SocketBufferFull,
    /// The transmit ring of the NIC is full.
    NicQueueFull,
    /// The kernel dropped the frame outside of the queueing disciplines.
    Elsewhere,
}

impl Cause {
    const fn text(self) -> &'static str {
        match self {
            Cause::NoLaunchTime => {
                "the socket has no launch times (SO_TXTIME), and etf drops all frames without one"
            }
            Cause::LaunchClock => "the launch times are not of the clock of etf",
            Cause::LaunchMode => "only one of the socket and etf is in deadline mode",
            Cause::LaunchPast => "the launch time had passed as the frame came to etf",
            Cause::LaunchOutOfOrder => {
                "the launch time was before that of a frame that etf had sent already"
            }
            Cause::LaunchMissed => "the launch time passed while the frame waited in etf",
            Cause::OutsideGate => {
                "with its launch time the frame fits no entry in which its gate is open"
            }
            Cause::AcrossEntry => {
                "the launch time is so shortly before the end of a gate entry that the frame \
                 crosses it; taprio drops it though the gate stays open"
            }
            Cause::FrameTooLong => {
                "the frame is longer than the longest opening of its gate, or than the max-sdu of \
                 its class"
            }
            Cause::QueueFull => "the limit of the queue is reached",
            Cause::QdiscRule => "a rule of that queueing discipline",
            Cause::SocketBufferFull => "the buffer of the socket is full",
            Cause::NicQueueFull => "the transmit ring of the NIC is full",
            Cause::Elsewhere => {
                "the kernel dropped the frame outside of the queueing disciplines, such as in the \
                 driver"
            }
        }
    }

    /// What would be right.
    const fn advice(self) -> &'static str {
        match self {
            Cause::NoLaunchTime => {
                "send with launch times (--launch), or with a priority of a class without etf"
            }
            Cause::LaunchClock => "use launch times of CLOCK_TAI",
            Cause::LaunchMode => "use --deadline with an etf in deadline mode, and only there",
            Cause::LaunchPast => "hand frames over earlier: a longer --launch",
            Cause::LaunchOutOfOrder => {
                "hand frames over earlier (a longer --launch), or in the order of launch times"
            }
            Cause::LaunchMissed => "use a longer delta of etf, and hand frames over earlier",
            Cause::OutsideGate => "choose launch times inside the openings of the gate (--offset)",
            Cause::AcrossEntry => {
                "choose launch times away from the ends of entries (--offset), or use fewer entries"
            }
            Cause::FrameTooLong => "use shorter frames, a longer opening or another class",
            Cause::QueueFull => "send less at once, or use a longer limit",
            Cause::QdiscRule => "look at its settings with tc -s qdisc show",
            Cause::SocketBufferFull => "use a larger --buffer, or send less at once",
            Cause::NicQueueFull => "send less at once, or use a longer ring (ethtool -G)",
            Cause::Elsewhere => "look at the counters of the NIC with ethtool -S",
        }
    }
}

/// A cause, and the queueing discipline that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The cause.
    pub cause: Cause,
    /// Where; `None` of a cause that is of no discipline, or where that is not known.
    pub interface: Option<String>,
    /// Kind of the discipline.
    pub qdisc: Option<String>,
    /// Its handle; `0:` of one that the kernel made.
    pub handle: Option<String>,
    /// `root`, or the class that it is in.
    pub parent: Option<String>,
}

impl Candidate {
    fn bare(cause: Cause) -> Candidate {
        Candidate { cause, interface: None, qdisc: None, handle: None, parent: None }
    }

    fn at(cause: Cause, qdisc: &QdiscDrops) -> Candidate {
        Candidate {
            cause,
            interface: Some(qdisc.interface.clone()),
            qdisc: Some(qdisc.kind.clone()),
            handle: Some(qdisc.handle.clone()),
            parent: Some(qdisc.parent.clone()),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(interface), Some(qdisc), Some(handle)) =
            (&self.interface, &self.qdisc, &self.handle)
        {
            write!(f, "{qdisc} {handle}")?;
            if let Some(parent) = self.parent.as_ref().filter(|parent| *parent != "root") {
                write!(f, " parent {parent}")?;
            }
            write!(f, " of {interface}: ")?;
        }
        write!(f, "{}. {}", self.cause.text(), capital(self.cause.advice()))
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Frames that did not leave, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCause {
    /// How many.
    pub frames: u64,
    /// One where the cause is certain, otherwise all that are possible.
    pub candidates: Vec<Candidate>,
    /// Why the counters of the queueing disciplines are not known; `None` where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_counted: Option<String>,
}

impl DropCause {
    /// Adds frames to those that have the same candidates.
    pub fn merge(all: &mut Vec<DropCause>, more: &[DropCause]) {
        for one in more {
            match all.iter_mut().find(|it| it.candidates == one.candidates) {
                Some(known) => known.frames += one.frames,
                None => all.push(one.clone()),
            }
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.candidates.iter().map(ToString::to_string).collect();
        match &told[..] {
            [one] => write!(f, "{} dropped: {one}", self.frames)?,
            _ => write!(f, "{} dropped, one of: {}", self.frames, told.join("; or "))?,
        }
        match &self.not_counted {
            Some(why) => write!(f, " (the counters of queueing disciplines are not known: {why})"),
            None => Ok(()),
        }
    }
}

/// How a socket sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// The interface that it was told.
    pub interface: Option<String>,
    /// Of `SO_TXTIME`; `None` without.
    pub launch: Option<SocketLaunch>,
    /// Its priority.
    pub priority: Option<SocketPriority>,
}

/// How launch times of a socket are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLaunch {
    /// Of `CLOCK_TAI`.
    pub is_tai: bool,
    /// They are the latest moment.
    pub deadline: bool,
}

/// What a socket heard of frames that did not leave. **Units**: frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The send call failed with `ENOBUFS`: also those of `invalid`.
    pub no_buffers: u64,
    /// `EAGAIN`, or no buffer was free before the call.
    pub again: u64,
    /// `EBUSY`.
    pub busy: u64,
    /// Error queue: `SO_EE_CODE_TXTIME_INVALID_PARAM`.
    pub invalid: u64,
    /// Error queue: `SO_EE_CODE_TXTIME_MISSED`.
    pub missed: u64,
    /// Frames whose launch time had passed before they were handed over.
    pub past: u64,
}

impl Heard {
    /// Whether all frames left.
    pub fn is_empty(&self) -> bool {
        let Heard { no_buffers, again, busy, invalid, missed, past: _ } = *self;
        no_buffers + again + busy + invalid + missed == 0
    }

    /// Frames whose send call failed with `ENOBUFS`, without those whose launch time is told as
    /// invalid.
    fn unexplained(&self) -> u64 {
        self.no_buffers.saturating_sub(self.invalid)
    }
}

/// What a queueing discipline refuses frames for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// `etf`, whose clock is always `CLOCK_TAI`.
    Etf {
        /// Launch times are the latest moment.
        deadline: bool,
    },
    /// `taprio`.
    Taprio {
        /// It gives frames their launch times itself (txtime-assist).
        assist: bool,
        /// The class of each priority; empty where it is not known.
        classes: Vec<TrafficClass>,
        /// Classes whose gate is never shut, and that have no max-sdu.
        always_open: Vec<TrafficClass>,
    },
    /// Any other.
    Other,
}

impl Refuser {
    /// By its settings.
    pub fn of_taprio(options: &TaprioOptions) -> Refuser {
        let classes = options.classes.as_ref();
        let mut always_open: Vec<TrafficClass> =
            classes.map(|it| it.map().to_vec()).unwrap_or_default();
        always_open.retain(|class| {
            let is_limited = options.max_sdu.get(class.index()).is_some_and(|most| *most > 0);
            !is_limited && options.entries.iter().all(|entry| entry.gate_states.is_open(*class))
        });
        Refuser::Taprio {
            assist: options.mode == TaprioMode::TxtimeAssist,
            classes: classes.map(|it| it.map().to_vec()).unwrap_or_default(),
            always_open,
        }
    }
}

/// A queueing discipline, and what it dropped meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscDrops {
    /// Its interface.
    pub interface: String,
    /// Its kind.
    pub kind: String,
    /// Its handle.
    pub handle: String,
    /// `root`, or the class that it is in.
    pub parent: String,
    /// What it refuses frames for.
    pub refuser: Refuser,
    /// All that it dropped.
    pub drops: u64,
    /// Its overlimits: of `etf` frames whose launch time passed in it, which are drops as well.
    pub overlimits: u64,
}

impl QdiscDrops {
    /// Whether it is at the same place, and was not replaced by one with another handle.
    pub fn is_same(&self, other: &QdiscDrops) -> bool {
        (&self.interface, &self.kind, &self.handle, &self.parent)
            == (&other.interface, &other.kind, &other.handle, &other.parent)
    }

    /// Frames that it dropped as they came.
    fn refused(&self) -> u64 {
        match self.refuser {
            Refuser::Etf { .. } => self.drops.saturating_sub(self.overlimits),
            _ => self.drops,
        }
    }

    /// Why it dropped a frame of this socket as it came.
    fn why(&self, socket: &Socket) -> Vec<Cause> {
        match (&self.refuser, socket.launch) {
            (Refuser::Etf { .. }, None) => vec![Cause::NoLaunchTime],
            (Refuser::Etf { .. }, Some(launch)) if !launch.is_tai => vec![Cause::LaunchClock],
            (Refuser::Etf { deadline }, Some(launch)) if launch.deadline != *deadline => {
                vec![Cause::LaunchMode]
            }
            (Refuser::Etf { .. }, Some(_)) => vec![Cause::LaunchPast, Cause::LaunchOutOfOrder],
            (Refuser::Taprio { assist: false, .. }, None) => vec![Cause::FrameTooLong],
            (Refuser::Taprio { classes, always_open, .. }, _) => {
                let priority = socket.priority.map_or(0, |priority| priority.index());
                match classes.get(priority) {
                    Some(class) if always_open.contains(class) => vec![Cause::AcrossEntry],
                    _ => vec![Cause::OutsideGate, Cause::FrameTooLong],
                }
            }
            (Refuser::Other, _) if HAS_LIMIT.contains(&self.kind.as_str()) => {
                vec![Cause::QueueFull]
            }
            (Refuser::Other, _) => vec![Cause::QueueFull, Cause::QdiscRule],
        }
    }
}

/// Disciplines that drop a frame only because their limit is reached.
const HAS_LIMIT: [&str; 3] = ["pfifo", "bfifo", "pfifo_fast"];
/// Disciplines whose own counter leaves the drops of their children out: these return the child's
/// refusal without counting it.
const WITHOUT_CHILDREN: [&str; 2] = ["taprio", "cbs"];

/// Takes the drops of children out of the counters of disciplines that have them in theirs.
pub(super) fn without_children(mut all: Vec<QdiscDrops>) -> Vec<QdiscDrops> {
    let before = all.clone();
    for one in &mut all {
        if WITHOUT_CHILDREN.contains(&one.kind.as_str()) || one.handle == "0:" {
            continue;
        }
        let is_child = |child: &&QdiscDrops| {
            child.interface == one.interface && child.parent.starts_with(&one.handle)
        };
        let of_children: u64 = before.iter().filter(is_child).map(|child| child.drops).sum();
        one.drops = one.drops.saturating_sub(of_children);
    }
    all
}

/// Why frames of these sockets did not leave. `qdiscs` is what the disciplines dropped meanwhile,
/// `None` where it is not known.
pub fn decide(sockets: &[(Socket, Heard)], qdiscs: Option<&[QdiscDrops]>) -> Vec<DropCause> {
    let mut told = Vec::new();
    let all_invalid: u64 = sockets.iter().map(|(_, heard)| heard.invalid).sum();
    let all_refused: u64 = sockets.iter().map(|(_, heard)| heard.unexplained()).sum();
    for (socket, heard) in sockets {
        let near = qdiscs.map(|qdiscs| nearest(socket, qdiscs));
        let near = near.as_deref();
        let mut add = |frames: u64, candidates: Vec<Candidate>| {
            if frames > 0 {
                DropCause::merge(&mut told, &[DropCause { frames, candidates, not_counted: None }]);
            }
        };
        invalid(socket, heard, near, &mut add);
        add(heard.missed, of_etf(near, |it| it.overlimits > 0, &[Cause::LaunchMissed]));
        refused(socket, heard.unexplained(), near, (all_invalid, all_refused), &mut add);
        add(heard.again, vec![Candidate::bare(Cause::SocketBufferFull)]);
        add(heard.busy, vec![Candidate::bare(Cause::NicQueueFull)]);
    }
    told
}

/// The disciplines of the socket's interface, if one of them dropped anything: those of the
/// interface below a VLAN are others.
fn nearest<'a>(socket: &Socket, qdiscs: &'a [QdiscDrops]) -> Vec<&'a QdiscDrops> {
    let has_dropped = |it: &&QdiscDrops| it.drops > 0;
    let own = |it: &&QdiscDrops| socket.interface.as_ref().is_none_or(|own| *own == it.interface);
    let found: Vec<_> = qdiscs.iter().filter(has_dropped).filter(own).collect();
    if found.is_empty() { qdiscs.iter().filter(has_dropped).collect() } else { found }
}

/// These causes, at the one `etf` that there is.
fn of_etf(
    qdiscs: Option<&[&QdiscDrops]>,
    has: impl Fn(&QdiscDrops) -> bool,
    causes: &[Cause],
) -> Vec<Candidate> {
    let is_etf = |it: &&&QdiscDrops| matches!(it.refuser, Refuser::Etf { .. }) && has(it);
    let found: Vec<_> = qdiscs.unwrap_or_default().iter().filter(is_etf).collect();
    match &found[..] {
        [] => causes.iter().map(|cause| Candidate::bare(*cause)).collect(),
        found => {
            let of = |it: &QdiscDrops| -> Vec<Candidate> {
                causes.iter().map(|cause| Candidate::at(*cause, it)).collect()
            };
            found.iter().flat_map(|it| of(it)).collect()
        }
    }
}

/// Frames whose launch time is told as invalid: only `etf` says so.
fn invalid(
    socket: &Socket,
    heard: &Heard,
    near: Option<&[&QdiscDrops]>,
    add: &mut dyn FnMut(u64, Vec<Candidate>),
) {
    let refusing = |it: &QdiscDrops| it.refused() > 0;
    let etf = near
        .unwrap_or_default()
        .iter()
        .filter(|it| refusing(it))
        .find_map(|it| matches!(it.refuser, Refuser::Etf { .. }).then(|| it.why(socket)));
    let any = [Cause::LaunchPast, Cause::LaunchOutOfOrder, Cause::LaunchMode, Cause::LaunchClock];
    let why = etf.unwrap_or_else(|| {
        let is_tai = socket.launch.is_none_or(|launch| launch.is_tai);
        if is_tai { any[..3].to_vec() } else { vec![Cause::LaunchClock] }
    });
    let is_late = why.contains(&Cause::LaunchPast);
    let past = if is_late { heard.past.min(heard.invalid) } else { 0 };
    add(past, of_etf(near, refusing, &[Cause::LaunchPast]));
    add(heard.invalid - past, of_etf(near, refusing, &why));
}

/// Frames whose send call failed, without anything in the error queue.
fn refused(
    socket: &Socket,
    frames: u64,
    near: Option<&[&QdiscDrops]>,
    (all_invalid, all_refused): (u64, u64),
    add: &mut dyn FnMut(u64, Vec<Candidate>),
) {
    let Some(near) = near else {
        let of_launch = [Cause::OutsideGate, Cause::FrameTooLong, Cause::QueueFull];
        let plain = [Cause::NoLaunchTime, Cause::FrameTooLong, Cause::QueueFull];
        let causes = if socket.launch.is_some() { of_launch } else { plain };
        return add(frames, causes.map(Candidate::bare).to_vec());
    };
    // Those that are told as invalid are in the counters of etf.
    let mut known = all_invalid;
    let mut left: Vec<(&QdiscDrops, u64)> = Vec::new();
    for it in near {
        let mut own = it.refused();
        if matches!(it.refuser, Refuser::Etf { .. }) {
            let taken = own.min(known);
            (own, known) = (own - taken, known - taken);
        }
        if own > 0 {
            left.push((it, own));
        }
    }
    let candidates = |it: &QdiscDrops| -> Vec<Candidate> {
        it.why(socket).into_iter().map(|cause| Candidate::at(cause, it)).collect()
    };
    let counted: u64 = left.iter().map(|(_, own)| own).sum();
    if frames == all_refused && counted <= frames {
        // One socket: all that was counted is its own.
        left.iter().for_each(|(it, own)| add(*own, candidates(it)));
        return add(frames - counted, vec![Candidate::bare(Cause::Elsewhere)]);
    }
    let mut all: Vec<Candidate> = left.iter().flat_map(|(it, _)| candidates(it)).collect();
    if counted < all_refused {
        all.push(Candidate::bare(Cause::Elsewhere));
    }
    add(frames, all);
}

#[cfg(test)]
mod tests;

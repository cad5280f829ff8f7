// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames did not leave: a decision from what the sockets heard and what each queueing
//! discipline counted. Where causes cannot be told apart, all of them are named.
//!
//! **Source**: `linux v6.12 net/sched/sch_etf.c:is_packet_valid, timesortedlist_drop`,
//! `net/sched/sch_taprio.c:taprio_enqueue, taprio_enqueue_one, find_entry_to_transmit`,
//! `net/sched/sch_mqprio.c:mqprio_dump`, `include/net/sch_generic.h:qdisc_drop`.
//!
//! Not here: the causes (`timewire_base::drops`), reading the counters (`timewire-datapath`).

use timewire_base::TrafficClass;
use timewire_base::drops::{Candidate, Cause, DropCause, Heard, Socket};

use crate::qdisc::{TaprioMode, TaprioOptions};

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
pub fn without_children(mut all: Vec<QdiscDrops>) -> Vec<QdiscDrops> {
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
        add(heard.down, vec![Candidate::bare(Cause::NoLink)]);
        let errno = Some(heard.refused_errno).filter(|errno| *errno != 0);
        add(heard.refused, vec![Candidate { errno, ..Candidate::bare(Cause::Refused) }]);
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
                causes.iter().map(|cause| at(*cause, it)).collect()
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
    if socket.bypasses_qdisc {
        // linux v6.12 net/core/dev.c:__dev_direct_xmit has one answer for both.
        let causes = [Cause::NicQueueFull, Cause::NoLink];
        return add(frames, causes.map(Candidate::bare).to_vec());
    }
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
        it.why(socket).into_iter().map(|cause| at(cause, it)).collect()
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

fn at(cause: Cause, qdisc: &QdiscDrops) -> Candidate {
    Candidate {
        cause,
        interface: Some(qdisc.interface.clone()),
        qdisc: Some(qdisc.kind.clone()),
        handle: Some(qdisc.handle.clone()),
        parent: Some(qdisc.parent.clone()),
        errno: None,
    }
}

#[cfg(test)]
mod tests;

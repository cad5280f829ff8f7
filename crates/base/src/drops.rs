// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why frames did not leave: the causes, with names and words, and what sockets hear of it.
//!
//! **Source**: `linux v6.12 net/sched/sch_etf.c:is_packet_valid, timesortedlist_drop`,
//! `net/sched/sch_taprio.c:taprio_enqueue, taprio_enqueue_one, find_entry_to_transmit`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::SocketPriority;

/// `EAGAIN`, `EBUSY`, `ENETDOWN`, `ENOBUFS`, from linux v6.12 `include/uapi/asm-generic/errno*.h`.
pub const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;

/// Whether the error of a send call says that a queue or a buffer is full.
pub const fn is_full(errno: i32) -> bool {
    matches!(errno, EAGAIN | EBUSY | ENOBUFS)
}

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
    /// The interface is down, or has no link.
    NoLink,
    /// The kernel dropped the frame outside of the queueing disciplines.
    Elsewhere,
    /// The send call failed with another error, such as that there is no route.
    Refused,
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
            Cause::NoLink => "the interface is down, or has no link",
            Cause::Elsewhere => {
                "the kernel dropped the frame outside of the queueing disciplines, such as in the \
                 driver"
            }
            Cause::Refused => "the message was refused",
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
            Cause::NoLink => "look at it with ip link show",
            Cause::Elsewhere => "look at the counters of the NIC with ethtool -S",
            Cause::Refused => "look at the interface, the route and the length of the message",
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
    /// Of [`Cause::Refused`]: the error's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

impl Candidate {
    /// Without a place.
    pub fn bare(cause: Cause) -> Candidate {
        Candidate { cause, interface: None, qdisc: None, handle: None, parent: None, errno: None }
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
        f.write_str(self.cause.text())?;
        if let Some(errno) = self.errno {
            write!(f, " (errno {errno})")?;
        }
        write!(f, ". {}", capital(self.cause.advice()))
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
    /// What it sends passes no queueing discipline (`PACKET_QDISC_BYPASS`, AF_XDP).
    pub bypasses_qdisc: bool,
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
    /// `ENETDOWN`.
    pub down: u64,
    /// Error queue: `SO_EE_CODE_TXTIME_INVALID_PARAM`.
    pub invalid: u64,
    /// Error queue: `SO_EE_CODE_TXTIME_MISSED`.
    pub missed: u64,
    /// Frames whose launch time had passed before they were handed over.
    pub past: u64,
    /// The send call failed with another error.
    pub refused: u64,
    /// The first such error; 0 without a number.
    pub refused_errno: i32,
}

impl Heard {
    /// Frames that did not leave. Those of `invalid` are in `no_buffers`, where the send call told
    /// of them.
    pub fn total(&self) -> u64 {
        let Heard { no_buffers, again, busy, down, invalid, missed, refused, .. } = *self;
        no_buffers.max(invalid) + again + busy + down + missed + refused
    }

    /// Whether all frames left.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Frames whose send call failed with `ENOBUFS`, without those whose launch time is told as
    /// invalid.
    pub fn unexplained(&self) -> u64 {
        self.no_buffers.saturating_sub(self.invalid)
    }

    /// With all that was not taken since something was full ([`is_full`]), of which a talker
    /// without a free buffer tells no event.
    pub fn complete(&mut self, not_taken: u64) {
        let told = self.unexplained() + self.again + self.busy;
        self.again += not_taken.saturating_sub(told);
    }

    /// Counts a send call that failed; 0 for an error without a number.
    #[inline]
    pub fn not_taken(&mut self, errno: i32) {
        match errno {
            ENOBUFS => self.no_buffers += 1,
            EAGAIN => self.again += 1,
            EBUSY => self.busy += 1,
            ENETDOWN => self.down += 1,
            _ => {
                if self.refused == 0 {
                    self.refused_errno = errno;
                }
                self.refused += 1;
            }
        }
    }

    /// With what another socket of the same settings heard.
    #[must_use]
    pub fn and(self, other: Heard) -> Heard {
        Heard {
            no_buffers: self.no_buffers + other.no_buffers,
            again: self.again + other.again,
            busy: self.busy + other.busy,
            down: self.down + other.down,
            invalid: self.invalid + other.invalid,
            missed: self.missed + other.missed,
            past: self.past + other.past,
            refused: self.refused + other.refused,
            refused_errno: if self.refused > 0 { self.refused_errno } else { other.refused_errno },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_is_told_by_no_event_is_added_whatever_else_happened() {
        let mut heard = Heard::default();
        // Of these a talker counts the first three as not taken, and the others as refused.
        for errno in [EAGAIN, EBUSY, ENOBUFS, ENETDOWN, ENETDOWN, 13] {
            heard.not_taken(errno);
        }
        heard.complete(3 + 50);
        assert_eq!((heard.again, heard.down, heard.refused, heard.total()), (51, 2, 1, 56));
    }
}

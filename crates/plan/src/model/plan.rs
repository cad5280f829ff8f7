// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan says: starts, gates, and reasons.

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::{CasePart, LinkId, NodeId, PackingCase, Split, StreamId};

/// One frame on one link, in each interval of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Transmission {
    /// Where.
    pub link: LinkId,
    /// Which frame of the message, from 0.
    pub frame: u32,
    /// Which copy of a redundant stream, from 0.
    pub copy: u8,
    /// The queue of the port that it is in.
    pub queue: u8,
    /// From the start of the stream's interval; it may lie beyond the interval's end.
    pub start: Span,
}

/// A stream with a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Which stream.
    pub stream: StreamId,
    /// **Shape**: by copy, then link from the talker outwards, each after the link before it, then
    /// frame. The links of a copy are its tree.
    pub transmissions: Vec<Transmission>,
}

/// A stream without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which stream.
    pub stream: StreamId,
    /// Why.
    pub certificate: Certificate,
}

/// Why a stream is rejected. All but [`Certificate::NotFound`], [`Certificate::Kept`],
/// [`Certificate::GateLimit`] and a
/// [`Certificate::Jitter`] that says so are proofs: together with the streams that they name, all
/// of which the plan admits, this one is admitted by no plan of this model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Certificate {
    /// No way to a listener, or not as many ways without a common link as there are copies.
    NoPath {
        /// Who cannot be reached.
        listener: NodeId,
        /// How many copies were asked for.
        copies: u8,
    },
    /// The talker's port has neither gates nor launch times, so nothing starts at an instant.
    NoInstant {
        /// The talker.
        node: NodeId,
    },
    /// Even alone in the network, the message needs longer.
    MinimumLatency {
        /// Who is reached too late.
        listener: NodeId,
        /// The quickest way there.
        path: Vec<LinkId>,
        /// How long it takes on that way.
        needed: Span,
        /// How long it may.
        allowed: Span,
    },
    /// What it arrives at differs by more than it may: ports that hold no frame back until a gate
    /// opens pass on by how much processing and clocks differ.
    Jitter {
        /// Where.
        listener: NodeId,
        /// The way there.
        path: Vec<LinkId>,
        /// By link of the way: what its port adds.
        parts: Vec<Span>,
        /// Their sum.
        needed: Span,
        /// How much it may differ.
        allowed: Span,
        /// Whether no plan has less; otherwise gates of other places might hold frames back.
        proof: bool,
    },
    /// A message is longer on a link, which it cannot avoid, than its interval.
    Window {
        /// Where.
        link: LinkId,
        /// How long the message occupies the link.
        needed: Span,
        /// How long an interval is.
        available: Span,
    },
    /// The streams, none of which can avoid the link, want more of it than there is.
    LinkLoad {
        /// Where.
        link: LinkId,
        /// Who, with the refused one.
        streams: Vec<StreamId>,
        /// How long they occupy the link in a cycle.
        needed: Span,
        /// How long the cycle is: the common multiple of these streams' intervals.
        cycle: Span,
    },
    /// The two, neither of which can avoid the link, meet on it however they are placed: the
    /// frames of one of each fill more than the greatest common divisor of their intervals.
    PairConflict {
        /// Where.
        link: LinkId,
        /// Whom it meets.
        other: StreamId,
        /// Time of one frame of each.
        needed: Span,
        /// The greatest common divisor of both intervals.
        divisor: Span,
    },
    /// As for a pair, for more: what does not meet modulo the greatest common divisor of two
    /// intervals does not meet modulo a multiple of it either, so if that of every two divides
    /// `divisor`, one frame of each must fit into it.
    Clique {
        /// Where.
        link: LinkId,
        /// Who, with the refused one.
        streams: Vec<StreamId>,
        /// Time of one frame of each.
        needed: Span,
        /// A multiple of the greatest common divisor of each two of the intervals.
        divisor: Span,
    },
    /// Streams that are not admitted together, by going through all cases. It holds for plans in
    /// which no frame waits on its way: each part is as long as it is, however it is placed.
    Cases {
        /// Who, with the refused one, and where. Parts of the same shape are in any order.
        parts: Vec<CasePart>,
        /// **Shape**: each split is followed by its first case and then by its second one; `None`
        /// is a case in which what follows from the bounds contradicts itself.
        tree: Vec<Option<Split>>,
    },
    /// Streams, none of which can avoid the link, that do not fit into its bins. One of them
    /// repeats with each bin, so that every frame lies within one, and again as many bins later as
    /// its interval has. Of a message one frame counts, but all at its talker.
    Packing {
        /// Where.
        link: LinkId,
        /// How long a bin is: the interval of one of the streams, which divides all others.
        bin: Span,
        /// Who, with the refused one.
        streams: Vec<StreamId>,
        /// **Shape**: for each, by bin its number in another order in which streams repeat as well.
        /// Of two cases that are the same but for that, the proof has the first.
        alike: Vec<Vec<u32>>,
        /// **Shape**: each split is followed by its cases, by the first bin of the stream; but for
        /// those in which a bin is too full.
        tree: Vec<PackingCase>,
    },
    /// An exact solver found none; its words.
    Solver {
        /// What it said.
        statement: String,
    },
    /// No proof: the gate list of a port is full.
    GateLimit {
        /// Which port.
        link: LinkId,
        /// Entries with this stream; [`Certificate::TOO_LONG`] or [`Certificate::NOT_FREE`] where
        /// another limit of the list is in the way.
        needed: u32,
        /// Entries that the port has, or that are reckoned with.
        allowed: u32,
    },
    /// No proof: none was found beside the streams of an earlier plan, of which few may be moved.
    Kept {
        /// How many have to move, by what was found; `None`: nothing was found with more, either.
        needed: Option<u32>,
        /// How many may move.
        allowed: u32,
    },
    /// No proof: none was found.
    NotFound {
        /// Work units spent before it was given up.
        tried: u64,
    },
}

impl Certificate {
    /// Whether it says that there is no plan, rather than that none was found.
    pub fn is_proof(&self) -> bool {
        !matches!(
            self,
            Certificate::NotFound { .. }
                | Certificate::Kept { .. }
                | Certificate::GateLimit { .. }
                | Certificate::Jitter { proof: false, .. }
        )
    }

    /// In place of a number of entries: the list would repeat after a longer cycle than the port
    /// can have.
    pub const TOO_LONG: u32 = u32::MAX;
    /// In place of a number of entries: gates would be open for planned frames in time that is kept
    /// free.
    pub const NOT_FREE: u32 = u32::MAX - 1;

    /// The streams that it names beside the refused one, which may be among them.
    pub fn others(&self) -> Vec<StreamId> {
        match self {
            Certificate::LinkLoad { streams, .. }
            | Certificate::Clique { streams, .. }
            | Certificate::Packing { streams, .. } => streams.clone(),
            Certificate::PairConflict { other, .. } => vec![*other],
            Certificate::Cases { parts, .. } => parts.iter().map(|part| part.stream).collect(),
            _ => Vec::new(),
        }
    }

    /// The same after one stream was taken out and `last` took its number. `None`: it named that
    /// stream, so it says nothing any more.
    pub(crate) fn without(mut self, gone: StreamId, last: StreamId) -> Option<Certificate> {
        if let Certificate::Cases { parts, .. } = &mut self {
            if parts.iter().any(|part| part.stream == gone) {
                return None;
            }
            for part in parts.iter_mut().filter(|part| part.stream == last) {
                part.stream = gone;
            }
        }
        let named: &mut [StreamId] = match &mut self {
            Certificate::LinkLoad { streams, .. }
            | Certificate::Clique { streams, .. }
            | Certificate::Packing { streams, .. } => streams,
            Certificate::PairConflict { other, .. } => std::slice::from_mut(other),
            _ => &mut [],
        };
        if named.contains(&gone) {
            return None;
        }
        for stream in named.iter_mut().filter(|stream| **stream == last) {
            *stream = gone;
        }
        Some(self)
    }
}

/// A queue's gate is open from `start` to `end`; other scheduled queues are shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GateWindow {
    /// From the start of the port's cycle; not before it.
    pub start: Span,
    /// Not after the cycle's end: what would go beyond it is two windows.
    pub end: Span,
    /// Whose gate.
    pub queue: u8,
}

/// The gates of a port. What is in no window belongs to everyone else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortGates {
    /// Which port: the one that sends on this link.
    pub link: LinkId,
    /// It repeats with this: the common multiple of the intervals of its streams and of the port's
    /// granularity.
    pub cycle: Span,
    /// In order, without overlap. Each transmission lies within a window of its queue.
    pub windows: Vec<GateWindow>,
    /// How many entries a gate control list of these windows has, the time between them included.
    pub entries: u32,
    /// Time within windows that is used by no transmission, because windows were joined or widened
    /// for the port's limits; zero: they cover exactly what is sent.
    pub spare: Span,
}

/// Who has which place, and who has none, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Everything repeats with this.
    pub cycle: Span,
    /// By stream.
    pub admitted: Vec<Admission>,
    /// By stream.
    pub refused: Vec<Refusal>,
    /// By link; only ports that send scheduled frames and have gates.
    pub gates: Vec<PortGates>,
}

/// The greatest common divisor of two spans; of a span and zero it is the span.
pub fn greatest_divisor(a: Span, b: Span) -> Span {
    let (mut a, mut b) = (a.as_ns().unsigned_abs(), b.as_ns().unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Span::from_ns(i64::try_from(a).unwrap_or(i64::MAX))
}

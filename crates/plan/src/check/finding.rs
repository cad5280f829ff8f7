// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a check finds.

use std::fmt::Write;

use serde::Serialize;
use timewire_base::Span;

use crate::model::{LinkId, Problem, StreamId};

/// What a plan contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// A stream that the problem does not have.
    UnknownStream,
    /// A stream that is admitted or refused more than once, or both.
    StreamTwice,
    /// A stream that is neither admitted nor refused.
    StreamMissing,
    /// A link that the network does not have.
    UnknownLink,
    /// A copy, or frame, that the stream does not have.
    UnknownFrame,
    /// A frame that comes twice on a link.
    FrameTwice,
    /// A frame that does not come on a link of its tree.
    FrameMissing,
    /// A copy without any transmission.
    CopyMissing,
    /// A start before zero or beyond any plan.
    StartRange,
    /// A link that does not continue the tree from the talker: it begins where nothing has arrived,
    /// leaves a station that does not forward, or ends where the tree has been.
    Path,
    /// A listener that is not reached.
    ListenerMissed,
    /// A link that leads to no listener.
    UselessLink,
    /// Another way than the one that is given for the stream.
    RouteDiffers,
    /// A link that two copies share.
    CopiesShare,
    /// A frame that starts before it can be there.
    Causality,
    /// A frame that starts before the one before it in its message has left.
    FrameOrder,
    /// Two transmissions at once on a link.
    Overlap,
    /// A message that starts outside what its stream allows.
    Release,
    /// A message that arrives too late.
    Latency,
    /// A latency that can differ by more than allowed.
    Jitter,
    /// A frame that can be in its queue before another has left in that one's turn, so that it can
    /// take that turn or block it.
    Isolation,
    /// A queue that the port does not have.
    Queue,
    /// A port with gates that has no list of them.
    GatesMissing,
    /// A list of gates twice, for a port without gates, or for one that sends nothing.
    GatesUnexpected,
    /// A transmission outside the windows of its queue.
    GateShut,
    /// Windows that are empty, out of order, overlapping or beyond the cycle.
    GateWindows,
    /// Windows longer than what is sent and what is declared as spare.
    GateSpare,
    /// Another number of entries than declared.
    GateCount,
    /// More gate entries than the port has.
    GateEntries,
    /// A gate entry that is too short.
    IntervalShort,
    /// A gate entry that is too long.
    IntervalLong,
    /// Another gate is open while a planned frame passes, or others are in its queue.
    GateShared,
    /// A gate that changes between two instants that the port can have.
    Granularity,
    /// Something planned is sent, or could be, in time that is kept free.
    Reserve,
    /// A cycle of the gates that is longer than the port can have.
    CycleLong,
    /// A queue that opens more often in a cycle than the port can.
    Openings,
    /// A gate that changes with one of another port of a device where they may not.
    Together,
    /// Neither a gate nor a launch time lets the talker start at the instant.
    LaunchTime,
    /// The plan does not repeat with its cycle.
    Cycle,
    /// The gates of a port do not repeat with the streams on it.
    PortCycle,
    /// A reason for a refusal that does not hold.
    Certificate,
}

/// One contradiction: where, who, when, what was found and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is contradicted.
    pub rule: Rule,
    /// On which link or port.
    pub link: Option<LinkId>,
    /// The streams that it is about, the one that breaks the rule first.
    pub streams: Vec<StreamId>,
    /// Which frame of the first stream's message.
    pub frame: Option<u32>,
    /// When: from the start of the stream's interval, or of the link's cycle where it is about two
    /// streams or a gate.
    pub at: Option<Span>,
    /// What the plan has: a time, or a number where the rule is about one.
    pub found: Option<i64>,
    /// The bound that this breaks.
    pub bound: Option<i64>,
}

impl Finding {
    pub(super) fn of(rule: Rule) -> Finding {
        Finding {
            rule,
            link: None,
            streams: Vec::new(),
            frame: None,
            at: None,
            found: None,
            bound: None,
        }
    }

    pub(super) fn link(mut self, link: LinkId) -> Finding {
        self.link = Some(link);
        self
    }

    pub(super) fn streams(mut self, streams: &[StreamId]) -> Finding {
        self.streams = streams.to_vec();
        self
    }

    pub(super) fn frame(mut self, frame: u32) -> Finding {
        self.frame = Some(frame);
        self
    }

    pub(super) fn at(mut self, ns: i64) -> Finding {
        self.at = Some(Span::from_ns(ns));
        self
    }

    pub(super) fn found(mut self, found: i64, bound: i64) -> Finding {
        (self.found, self.bound) = (Some(found), Some(bound));
        self
    }

    /// In words, with the names of the problem.
    pub fn describe(&self, problem: &Problem) -> String {
        let mut text = self.rule.words().to_owned();
        if let Some(link) = self.link {
            let known = problem.network().links().get(link.index());
            let name = known.map_or_else(|| format!("#{}", link.0), |link| link.name.clone());
            let _ = write!(text, "; link {name}");
        }
        for (index, stream) in self.streams.iter().enumerate() {
            let known = problem.streams().get(stream.index());
            let name = known.map_or_else(|| format!("#{}", stream.0), |it| it.name.clone());
            let _ = write!(text, "{}{name}", if index == 0 { "; stream " } else { ", " });
        }
        if let Some(frame) = self.frame {
            let _ = write!(text, "; frame {frame}");
        }
        if let Some(at) = self.at {
            let _ = write!(text, "; at {} ns", at.as_ns());
        }
        if let (Some(found), Some(bound)) = (self.found, self.bound) {
            let unit = if self.rule.counts() { "" } else { " ns" };
            let _ = write!(text, "; {found}{unit}, should be {} {bound}{unit}", self.rule.sense());
        }
        text
    }
}

impl Rule {
    /// What is wrong, in words.
    pub fn words(self) -> &'static str {
        match self {
            Rule::UnknownStream => "there is no such stream",
            Rule::StreamTwice => "the stream has more than one answer",
            Rule::StreamMissing => "the stream has no answer",
            Rule::UnknownLink => "there is no such link",
            Rule::UnknownFrame => "the stream has no such frame or copy",
            Rule::FrameTwice => "a frame is sent twice on a link",
            Rule::FrameMissing => "a frame is not sent on a link of its tree",
            Rule::CopyMissing => "a copy is not sent",
            Rule::StartRange => "a start is before zero or beyond any plan",
            Rule::Path => "a link does not continue the way from the talker",
            Rule::ListenerMissed => "a listener is not reached",
            Rule::UselessLink => "a link leads to no listener",
            Rule::RouteDiffers => "the way is not the given one",
            Rule::CopiesShare => "two copies share a link",
            Rule::Causality => "a frame starts before it can be there",
            Rule::FrameOrder => "a frame starts before the one before it has left",
            Rule::Overlap => "two transmissions at once",
            Rule::Release => "the message starts outside its release window",
            Rule::Latency => "the message arrives too late",
            Rule::Jitter => "the latency can differ too much",
            Rule::Isolation => "a frame can be there in another's turn",
            Rule::Queue => "the port has no such queue",
            Rule::GatesMissing => "the port has gates and no list of them",
            Rule::GatesUnexpected => "a list of gates that does not belong there",
            Rule::GateShut => "a transmission outside the windows of its queue",
            Rule::GateWindows => "windows empty, out of order, overlapping or beyond the cycle",
            Rule::GateSpare => "windows and transmissions differ by another time than declared",
            Rule::GateCount => "another number of gate entries than declared",
            Rule::GateEntries => "more gate entries than the port has",
            Rule::IntervalShort => "a gate entry is too short",
            Rule::IntervalLong => "a gate entry is too long",
            Rule::GateShared => "others may be sent in a planned frame's turn",
            Rule::Granularity => "a gate changes where the port cannot",
            Rule::Reserve => "a planned frame has time that is kept free",
            Rule::CycleLong => "the gates repeat later than the port can have it",
            Rule::Openings => "a queue opens too often in a cycle",
            Rule::Together => "two ports change their gates at once, which their device cannot",
            Rule::LaunchTime => "neither gate nor launch time lets the talker start then",
            Rule::Cycle => "the plan does not repeat with its cycle",
            Rule::PortCycle => "the gates do not repeat with the port's streams",
            Rule::Certificate => "the reason of the refusal does not hold",
        }
    }

    fn counts(self) -> bool {
        matches!(
            self,
            Rule::GateCount | Rule::GateEntries | Rule::Openings | Rule::Queue | Rule::UnknownFrame
        )
    }

    fn sense(self) -> &'static str {
        match self {
            Rule::Causality | Rule::FrameOrder | Rule::Overlap | Rule::IntervalShort => "at least",
            Rule::Isolation => "later than",
            Rule::Queue | Rule::UnknownFrame => "below",
            Rule::GateSpare | Rule::GateCount => "exactly",
            Rule::Granularity | Rule::Cycle | Rule::PortCycle => "a multiple of",
            Rule::Release => "not beyond",
            _ => "at most",
        }
    }
}

/// What became of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The stream has no place beside those that the certificate names.
    Proven,
    /// It claims no proof, or one that cannot be checked here.
    NotProven,
    /// It claims a proof that does not hold.
    Wrong {
        /// What does not hold.
        why: String,
    },
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first of them, in the order of the work.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub left_out: u64,
    /// What became of each reason of a refusal, by stream.
    pub verdicts: Vec<(StreamId, Verdict)>,
    /// Transmissions of the plan.
    pub transmissions: usize,
    /// Transmissions gone through: those of each link's cycle.
    pub instances: u64,
    /// Whether it was ended before all was looked at: there may be more findings.
    pub ended_early: bool,
}

impl Report {
    /// Nothing contradicts the plan, and all was looked at.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && !self.ended_early
    }
}

/// So many are kept.
const MAX_FINDINGS: usize = 1_000;

pub(super) struct Findings<'a> {
    kept: Vec<Finding>,
    left_out: u64,
    /// Asked once in a while.
    go_on: &'a mut dyn FnMut() -> bool,
    is_over: bool,
}

impl Findings<'_> {
    pub(super) fn new(go_on: &mut dyn FnMut() -> bool) -> Findings<'_> {
        Findings { kept: Vec::new(), left_out: 0, go_on, is_over: false }
    }

    /// Whether nobody wants more to be looked at.
    pub(super) fn is_over(&mut self) -> bool {
        self.is_over = self.is_over || !(self.go_on)();
        self.is_over
    }

    /// The same, asked at some of many.
    pub(super) fn is_over_at(&mut self, number: usize) -> bool {
        if number.is_multiple_of(ASK) { self.is_over() } else { self.is_over }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        if self.kept.len() < MAX_FINDINGS {
            self.kept.push(finding);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn report(
        self,
        verdicts: Vec<(StreamId, Verdict)>,
        instances: u64,
        transmissions: usize,
    ) -> Report {
        Report {
            findings: self.kept,
            left_out: self.left_out,
            verdicts,
            transmissions,
            instances,
            ended_early: self.is_over,
        }
    }
}

/// Transmissions between two questions.
const ASK: usize = 1 << 14;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network as it is given to the simulator. Everything has a number: its place in its list.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_tsn::port::{AsyncLimits, CLASSES, ClassConfig, GateList, PortConfig, Ps};

use super::clock::ClockSpec;
use super::delay::Delay;
use super::replay::Replay;
use crate::SimTime;

/// A network, its traffic and its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Stations and bridges.
    pub nodes: Vec<NodeSpec>,
    /// Links between two of them, full duplex.
    pub links: Vec<LinkSpec>,
    /// Segments that several share, half duplex.
    pub media: Vec<MediumSpec>,
    /// Streams of frames.
    pub streams: Vec<StreamSpec>,
    /// Nodes beside its first where a stream goes, too, by its number: bridges copy its frames
    /// where their ways part.
    pub more_listeners: BTreeMap<usize, Vec<usize>>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How long it runs.
    pub duration: Span,
    /// Latencies of frames released before are not counted.
    pub warm_up: Span,
    /// How far beyond a window of its class a transmission may be, by the right time, before it
    /// counts as outside.
    pub tolerance: Span,
    /// Everything that is random follows from it.
    pub seed: u64,
}

/// A station or a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// From the last bit of a frame to the queue of the next port; a bridge forwards frames of one
    /// port in their order.
    pub forward: Delay,
    /// A bridge forwards a frame once so much of it is there, unless its next port is faster or
    /// the frame can be preempted; without it, a frame is received as a whole.
    pub cut_through_bytes: Option<u32>,
    /// From the release of a message to the queue of the port.
    pub send: Delay,
    /// From the last bit of a frame to the application.
    pub receive: Delay,
    /// Its clock.
    pub clock: ClockSpec,
}

impl Default for NodeSpec {
    fn default() -> NodeSpec {
        NodeSpec {
            forward: Delay::NONE,
            cut_through_bytes: None,
            send: Delay::NONE,
            receive: Delay::NONE,
            clock: ClockSpec::default(),
        }
    }
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// The nodes, and their ports onto the link.
    pub ends: [(usize, PortConfig); 2],
    /// From one end to the other.
    pub delay: Span,
    /// How often a frame is lost. **Units**: parts per billion.
    pub loss_ppb: u32,
    /// How often a frame arrives damaged. **Units**: parts per billion.
    pub corrupt_ppb: u32,
}

/// A segment that several nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumSpec {
    /// Who may send when.
    pub access: Access,
    /// Between any two stations.
    pub delay: Span,
    /// The nodes, and their ports; on a shared segment no frame is preempted.
    pub stations: Vec<(usize, PortConfig)>,
    /// How often a frame is lost. **Units**: parts per billion.
    pub loss_ppb: u32,
    /// How often a frame arrives damaged. **Units**: parts per billion.
    pub corrupt_ppb: u32,
}

/// Who may send when on a shared segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever hears nothing; collisions and binary exponential back-off, at most 16 attempts.
    ///
    /// **Source**: IEEE 802.3-2022, 4.2.3.2.
    Contention,
    /// Who waits longest, without collisions.
    InTurn,
    /// Who has the token, which goes from one station to the next.
    Token {
        /// A station that has it starts no frame later than this after it came.
        hold: Span,
        /// What a station needs to pass it on, besides the time of a 64-byte frame.
        pass: Span,
    },
}

/// A stream of frames of one length, or as they were captured, from one station to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Where it starts.
    pub from: usize,
    /// Where it goes.
    pub to: usize,
    /// Its class in every port, 0 to 7.
    pub class: usize,
    /// Length of its frames; of a replay, each frame has its own.
    pub frame: FrameLen,
    /// When frames are released.
    pub traffic: Traffic,
    /// Its frames have launch times so much after their release, by their station's clock.
    pub launch: Option<Span>,
    /// Bridges shape it asynchronously.
    pub shape: Option<AsyncLimits>,
}

/// When frames of a stream are released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// By the station's clock, in every period.
    Cyclic {
        /// The period, above zero.
        period: Span,
        /// When in the period, counted from the start of the clock's time scale.
        offset: Span,
        /// How much later it really is.
        jitter: Delay,
        /// Frames of each period, at least one.
        frames: u32,
        /// Between those.
        spacing: Span,
    },
    /// At any time, but never sooner than a least time after the one before.
    Sporadic {
        /// From a frame to the next.
        gap: Delay,
    },
    /// The next when the last frame of another stream, the answer, has come back.
    Request {
        /// The stream that answers.
        answer: usize,
        /// From the answer to the next request.
        think: Delay,
        /// Without an answer the next one goes after this. Above zero.
        timeout: Span,
        /// When the first goes.
        first: Span,
    },
    /// One for each frame of another stream that arrives where this one starts.
    After {
        /// That stream.
        stream: usize,
        /// How long it takes to make the frame.
        work: Delay,
        /// Latencies count from the release of the frame that caused it.
        from_cause: bool,
    },
    /// As captured, by the station's clock, from so long after the start on.
    Replay {
        /// The frames.
        frames: Arc<Replay>,
        /// When the first is due.
        offset: Span,
    },
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at: Span,
    /// How long it lasts; what happens at an instant does not look at it.
    pub lasts: Span,
    /// What.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A link loses frames, beside its usual loss. **Units**: parts per billion.
    Loss(usize, u32),
    /// A link damages frames, beside its usual share. **Units**: parts per billion.
    Corruption(usize, u32),
    /// A link is down; what is on it is lost.
    LinkDown(usize),
    /// A stream sends as much as the rate of its link allows.
    Babble(usize),
    /// A node starts again: what it keeps is lost, and what comes meanwhile.
    Restart(usize),
    /// A node's clock jumps.
    ClockStep(usize, Span),
    /// A node's clock goes at another rate. **Units**: parts per billion, at most 10^8 either way.
    ClockDrift(usize, i32),
    /// Nobody hears the master of the time.
    MasterLost,
    /// The application of a stream releases its frames so much late.
    LateApplication(usize, Span),
    /// The gates of an end of a link change, when the node's clock reads the first time.
    Gates {
        /// The port.
        port: PortIndex,
        /// When, by the node's clock.
        change: Ps,
        /// What they are then.
        gates: Option<Box<GateList>>,
    },
}

/// A port: two for each link (`2 * link + end`), then those of the segments in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortIndex(pub usize);

/// A network that cannot exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetError {
    /// A number that nothing has.
    #[error("{what} {number} does not exist: there are {count}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// No way from one end of a stream to the other.
    #[error("stream {stream} has no way from node {from} to node {to}")]
    NoRoute {
        /// The stream.
        stream: usize,
        /// Where it starts.
        from: usize,
        /// Where it goes.
        to: usize,
    },
    /// A time that has to be above zero.
    #[error("{what} of {owner} {number} is zero: it takes time")]
    NoTime {
        /// Which time.
        what: &'static str,
        /// Of what.
        owner: &'static str,
        /// Its number.
        number: usize,
    },
    /// A time that is too long to simulate.
    #[error("{what} of {span} is longer than {max}")]
    TooLong {
        /// Which time.
        what: &'static str,
        /// What was given.
        span: Span,
        /// The bound.
        max: Span,
    },
    /// An answer, or what follows a stream, that does not start where that stream arrives.
    #[error("stream {stream} follows stream {cause}, but does not start where that arrives")]
    Elsewhere {
        /// The stream that follows.
        stream: usize,
        /// The stream before it.
        cause: usize,
    },
    /// A replay that is to babble: its frames are those that were captured.
    #[error("stream {stream} is a replay, which does not babble")]
    BabblingReplay {
        /// The stream.
        stream: usize,
    },
    /// A clock that no oscillator has.
    #[error("the clock of node {node} drifts or wanders by more than 100000 ppm")]
    Clock {
        /// The node.
        node: usize,
    },
    /// More of something than a simulation takes.
    #[error("{count} {what} are more than {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// What was given.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// Stations of one segment that send at different rates, or none at all.
    #[error("segment {medium} needs two stations or more, all of one rate")]
    Medium {
        /// Its number.
        medium: usize,
    },
    /// More frames on their way than memory is given for: queues without a bound, or long delays.
    #[error(
        "more than {max} frames are on their way after {at}, most of stream {stream} and {what} \
         port {number}",
        what = if *waits { "waiting at" } else { "sent by" },
        number = port.0
    )]
    TooManyFrames {
        /// The bound.
        max: usize,
        /// When.
        at: SimTime,
        /// The stream that most of them are of.
        stream: usize,
        /// Where most of them wait; if they do not wait at a port, the one that they leave first.
        port: PortIndex,
        /// They wait at a port; if not, most are on links or in nodes.
        waits: bool,
    },
}

/// A port without gates or shapers.
pub fn plain_port(rate: BitsPerSecond) -> PortConfig {
    PortConfig {
        rate,
        classes: [ClassConfig::default(); CLASSES],
        gates: None,
        hold_advance: Ps::ZERO,
    }
}

impl LinkSpec {
    /// A link without faults between two plain ports.
    pub fn plain(one: usize, other: usize, rate: BitsPerSecond, delay: Span) -> LinkSpec {
        let ends = [(one, plain_port(rate)), (other, plain_port(rate))];
        LinkSpec { ends, delay, loss_ppb: 0, corrupt_ppb: 0 }
    }
}

impl Network {
    /// The longest simulation, and the longest time of anything in it: sums of many fit 64 bits.
    pub const LONGEST: Span = Span::from_secs(86_400);
    /// Most hops of a stream, streams, ports and nodes.
    pub const MAX_HOPS: usize = 255;
    /// Most streams, ports and nodes, each.
    pub const MAX_THINGS: usize = 1 << 24;
    /// Most frames on their way, beside what each stream and port has once.
    pub const MAX_IN_FLIGHT: usize = 1 << 22;

    /// A network of nothing, to be filled.
    pub fn empty(duration: Span, seed: u64) -> Network {
        Network {
            nodes: Vec::new(),
            links: Vec::new(),
            media: Vec::new(),
            streams: Vec::new(),
            more_listeners: BTreeMap::new(),
            faults: Vec::new(),
            duration,
            warm_up: Span::ZERO,
            tolerance: Span::ZERO,
            seed,
        }
    }

    /// The port of a link at one of its ends (0 or 1).
    pub fn link_port(&self, link: usize, end: usize) -> PortIndex {
        PortIndex(2 * link + end)
    }

    /// The port of a station (its place in the list) of a segment.
    pub fn medium_port(&self, medium: usize, station: usize) -> PortIndex {
        let before: usize = self.media[..medium].iter().map(|medium| medium.stations.len()).sum();
        PortIndex(2 * self.links.len() + before + station)
    }

    /// The nodes where a stream goes.
    pub fn listeners(&self, stream: usize) -> impl Iterator<Item = usize> {
        let first = self.streams.get(stream).map(|spec| spec.to);
        let more = self.more_listeners.get(&stream).into_iter().flatten().copied();
        first.into_iter().chain(more)
    }

    /// The way of each stream: the ports that its frames leave, in the order of
    /// [`Seen::hop`](super::Seen::hop).
    ///
    /// **Errors**: as [`Network::check`]; a stream without a way.
    pub fn ways(&self) -> Result<Vec<Vec<PortIndex>>, NetError> {
        self.check()?;
        super::route::Routes::of(self).map(|routes| routes.ways())
    }

    /// Whether everything it names exists.
    ///
    /// **Errors**: the first thing that cannot be.
    pub fn check(&self) -> Result<(), NetError> {
        let node = |number| known("node", number, self.nodes.len());
        let stream = |number| known("stream", number, self.streams.len());
        self.check_times()?;
        let ports = 2 * self.links.len()
            + self.media.iter().map(|medium| medium.stations.len()).sum::<usize>();
        for (what, count) in
            [("streams", self.streams.len()), ("ports", ports), ("nodes", self.nodes.len())]
        {
            if count > Self::MAX_THINGS {
                return Err(NetError::TooMany { what, count, max: Self::MAX_THINGS });
            }
        }
        for (number, _) in self.links.iter().flat_map(|link| &link.ends) {
            node(*number)?;
        }
        for (number, medium) in self.media.iter().enumerate() {
            let rates = medium.stations.iter().map(|(_, port)| port.rate);
            let same = rates.clone().zip(rates.skip(1)).all(|(one, other)| one == other);
            if medium.stations.len() < 2 || !same {
                return Err(NetError::Medium { medium: number });
            }
            for (number, _) in &medium.stations {
                node(*number)?;
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let drift = node.clock.drift_ppb;
            if drift.unsigned_abs() > MAX_PPB || node.clock.wander_ppb > MAX_PPB {
                return Err(NetError::Clock { node: number });
            }
            if node.clock.sync.is_some_and(|sync| sync.interval <= Span::ZERO) {
                return Err(NetError::NoTime {
                    what: "the interval of synchronisation",
                    owner: "node",
                    number,
                });
            }
        }
        for (number, spec) in self.streams.iter().enumerate() {
            node(spec.from)?;
            node(spec.to)?;
            known("class", spec.class, CLASSES)?;
            self.check_traffic(number, spec)?;
        }
        for (number, nodes) in &self.more_listeners {
            stream(*number)?;
            nodes.iter().try_for_each(|number| node(*number))?;
        }
        for fault in &self.faults {
            match &fault.kind {
                FaultKind::Loss(link, _)
                | FaultKind::Corruption(link, _)
                | FaultKind::LinkDown(link) => known("link", *link, self.links.len())?,
                FaultKind::Babble(number) => {
                    stream(*number)?;
                    if let Traffic::Replay { .. } = self.streams[*number].traffic {
                        return Err(NetError::BabblingReplay { stream: *number });
                    }
                }
                FaultKind::LateApplication(number, _) => stream(*number)?,
                FaultKind::Restart(number) | FaultKind::ClockStep(number, _) => node(*number)?,
                FaultKind::ClockDrift(number, ppb) => {
                    node(*number)?;
                    if ppb.unsigned_abs() > MAX_PPB {
                        return Err(NetError::Clock { node: *number });
                    }
                }
                FaultKind::Gates { port, .. } => known("port", port.0, ports)?,
                FaultKind::MasterLost => {}
            }
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), NetError> {
        let check = |what, span: Span| match span {
            span if span > Self::LONGEST || span < -Self::LONGEST => {
                Err(NetError::TooLong { what, span, max: Self::LONGEST })
            }
            _ => Ok(()),
        };
        check("the duration", self.duration)?;
        check("the warm-up", self.warm_up)?;
        check("the tolerance", self.tolerance)?;
        for node in &self.nodes {
            for delay in [&node.forward, &node.send, &node.receive] {
                check("a delay of a node", delay.longest())?;
            }
            check("the offset of a clock", node.clock.offset)?;
            if let Some(sync) = node.clock.sync {
                check("the interval of synchronisation", sync.interval)?;
                check("the error of synchronisation", sync.error)?;
                check("the bias of synchronisation", sync.bias)?;
            }
        }
        for delay in self.links.iter().map(|link| link.delay) {
            check("the delay of a link", delay)?;
        }
        for medium in &self.media {
            check("the delay of a segment", medium.delay)?;
            if let Access::Token { hold, pass } = medium.access {
                check("the hold of a token", hold)?;
                check("the passing of a token", pass)?;
            }
        }
        for stream in &self.streams {
            stream.times().try_for_each(|span| check("a time of a stream", span))?;
        }
        let offset = |node: &NodeSpec| node.clock.offset.max(-node.clock.offset);
        let mut jumps: Vec<Span> = self.nodes.iter().map(offset).collect();
        for fault in &self.faults {
            check("the time of a fault", fault.at)?;
            check("the length of a fault", fault.lasts)?;
            if let FaultKind::ClockStep(_, by) | FaultKind::LateApplication(_, by) = fault.kind {
                check("a time of a fault", by)?;
            }
            if let FaultKind::ClockStep(node, by) = fault.kind
                && let Some(sum) = jumps.get_mut(node)
            {
                *sum += by.max(-by);
                check("a clock's offset and jumps together", *sum)?;
            }
        }
        Ok(())
    }

    fn check_traffic(&self, number: usize, spec: &StreamSpec) -> Result<(), NetError> {
        let no_time = |what| Err(NetError::NoTime { what, owner: "stream", number });
        let follows = |cause: usize| {
            known("stream", cause, self.streams.len())?;
            if !self.listeners(cause).any(|node| node == spec.from) {
                return Err(NetError::Elsewhere { stream: number, cause });
            }
            Ok(())
        };
        match &spec.traffic {
            Traffic::Cyclic { period, .. } if *period <= Span::ZERO => no_time("the period"),
            Traffic::Sporadic { gap } if gap.longest() <= Span::ZERO => no_time("the gap"),
            Traffic::Request { timeout, .. } if *timeout <= Span::ZERO => no_time("the timeout"),
            Traffic::Request { answer, .. } => follows(*answer),
            Traffic::After { stream, .. } => follows(*stream),
            _ => Ok(()),
        }
    }
}

impl StreamSpec {
    /// All times that it names.
    fn times(&self) -> impl Iterator<Item = Span> {
        let of_traffic = match &self.traffic {
            Traffic::Cyclic { period, offset, jitter, spacing, .. } => {
                [*period, *offset, jitter.longest(), *spacing]
            }
            Traffic::Sporadic { gap } => [gap.longest(); 4],
            Traffic::Request { think, timeout, first, .. } => {
                [think.longest(), *timeout, *first, Span::ZERO]
            }
            Traffic::After { work, .. } => [work.longest(); 4],
            Traffic::Replay { offset, .. } => [*offset; 4],
        };
        let residence = self.shape.map(|limits| limits.max_residence);
        of_traffic.into_iter().chain(self.launch).chain(residence)
    }
}

/// The largest drift of a clock. **Units**: parts per billion.
const MAX_PPB: u32 = 100_000_000;

fn known(what: &'static str, number: usize, count: usize) -> Result<(), NetError> {
    if number < count { Ok(()) } else { Err(NetError::Unknown { what, number, count }) }
}

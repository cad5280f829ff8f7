// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams, and a network together with the streams that want a place in it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::network::{MAX_OBJECTS, check_bytes, check_span};
use super::plan::greatest_divisor;
use super::{LinkId, ModelError, Network, NodeId, Role};

/// A stream, by its place in [`Problem::streams`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct StreamId(pub u32);

/// When messages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// One in each interval, as a program that knows the schedule makes them.
    Periodic,
    /// At any time, with the interval as minimum distance. It is given a place in every interval,
    /// and its message waits for the next one: up to one interval more than the planned latency.
    Sporadic,
}

/// Which way a stream goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Any.
    Free,
    /// Over these links: a tree from the talker to all listeners, each link after the one before
    /// it. With redundancy, one tree for each copy.
    Given(Vec<Vec<LinkId>>),
}

/// When the first frame of a message may start at the talker, from the start of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Not before.
    pub earliest: Span,
    /// Not after; `None`: anywhere in the interval.
    pub latest: Option<Span>,
}

/// A message that comes again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// As people call it; no two streams have the same.
    pub name: String,
    /// Who sends.
    pub talker: NodeId,
    /// Who receives; several: a multicast tree.
    pub listeners: Vec<NodeId>,
    /// One message in each.
    pub interval: Span,
    /// Frames of a message, one after the other.
    pub frames: u32,
    /// Length of each frame. **Units**: bytes, without the network's overhead.
    pub length_bytes: u32,
    /// From the message's first bit at the talker to its last bit at the last listener, at most.
    pub latency_max: Span,
    /// How much the latency may differ from message to message; `None`: anything.
    pub jitter_max: Option<Span>,
    /// When it may start.
    pub release: Release,
    /// 0 to 7, and the queue of a port, or its highest queue when it has fewer. A port whose gates
    /// have limits has all scheduled frames in its highest queue.
    pub priority: u8,
    /// Which way it goes.
    pub route: Route,
    /// How many copies go over ways that share no link; 1: no redundancy.
    pub copies: u8,
    /// When messages come.
    pub arrival: Arrival,
}

impl Stream {
    /// A periodic stream from one station to another that may take its whole interval.
    pub fn new(
        name: impl Into<String>,
        talker: NodeId,
        listener: NodeId,
        interval: Span,
        length_bytes: u32,
    ) -> Stream {
        Stream {
            name: name.into(),
            talker,
            listeners: vec![listener],
            interval,
            frames: 1,
            length_bytes,
            latency_max: interval,
            jitter_max: None,
            release: Release { earliest: Span::ZERO, latest: None },
            priority: 7,
            route: Route::Free,
            copies: 1,
            arrival: Arrival::Periodic,
        }
    }

    /// The latest start at the talker: what is asked for, or the last instant of the interval.
    pub fn release_latest(&self) -> Span {
        self.release.latest.unwrap_or(self.interval - Span::from_ns(1))
    }
}

/// A network and the streams that want a place in it, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    network: Network,
    streams: Vec<Stream>,
    cycle: Span,
    #[serde(skip)]
    names: BTreeMap<String, StreamId>,
    /// How many streams have each interval.
    #[serde(skip)]
    intervals: BTreeMap<Span, usize>,
}

/// The most frames of a message.
pub(crate) const MAX_FRAMES: u32 = 4096;

/// The longest common multiple of intervals; a plan repeats with it.
const LONGEST_CYCLE: Span = Span::from_secs(1_000_000);

impl Problem {
    /// Checks each stream against the network.
    ///
    /// **Errors**: a node or link that is not there, a number out of its bounds, a path that does
    /// not go from the talker to the listeners.
    pub fn new(network: Network, streams: Vec<Stream>) -> Result<Problem, ModelError> {
        let cycle = Span::from_ns(1);
        let (names, intervals) = (BTreeMap::new(), BTreeMap::new());
        let mut problem = Problem { network, streams: Vec::new(), cycle, names, intervals };
        problem.streams.reserve(streams.len());
        for stream in streams {
            problem.add(stream)?;
        }
        Ok(problem)
    }

    /// One more stream.
    ///
    /// **Errors**: as [`Problem::new`]; nothing is added.
    pub fn add(&mut self, stream: Stream) -> Result<StreamId, ModelError> {
        self.check_new(&stream)?;
        if !self.intervals.contains_key(&stream.interval) {
            self.cycle = common_multiple(self.cycle, stream.interval)?;
        }
        *self.intervals.entry(stream.interval).or_insert(0) += 1;
        Ok(self.push(stream))
    }

    /// One more stream that is only bounded: nothing repeats with it, so that its interval is not
    /// part of the cycle. It stays.
    ///
    /// **Errors**: as [`Problem::new`]; nothing is added.
    pub(crate) fn add_unscheduled(&mut self, stream: Stream) -> Result<StreamId, ModelError> {
        self.check_new(&stream)?;
        Ok(self.push(stream))
    }

    fn check_new(&self, stream: &Stream) -> Result<(), ModelError> {
        if self.streams.len() >= MAX_OBJECTS {
            let count = self.streams.len() + 1;
            return Err(ModelError::TooMany { what: "streams", count, most: MAX_OBJECTS });
        }
        if self.names.contains_key(&stream.name) {
            let name = stream.name.clone();
            return Err(ModelError::NameTaken { kind: "stream", name });
        }
        check_stream(&self.network, stream)
    }

    fn push(&mut self, stream: Stream) -> StreamId {
        let id = StreamId::from_index(self.streams.len());
        self.names.insert(stream.name.clone(), id);
        self.streams.push(stream);
        id
    }

    /// Takes a stream out. The last stream takes its number.
    ///
    /// **Panics** for an id of another problem.
    pub fn remove(&mut self, id: StreamId) -> Stream {
        let stream = self.streams.swap_remove(id.index());
        self.names.remove(&stream.name);
        if let Some(moved) = self.streams.get(id.index()) {
            self.names.insert(moved.name.clone(), id);
        }
        if let Some(count) = self.intervals.get_mut(&stream.interval) {
            *count -= 1;
            if *count == 0 {
                self.intervals.remove(&stream.interval);
                let one = Span::from_ns(1);
                let least = self.intervals.keys().try_fold(one, |a, b| common_multiple(a, *b));
                self.cycle = least.expect("invariant: a part of what had a common multiple");
            }
        }
        stream
    }

    /// Which stream has this name.
    pub fn find(&self, name: &str) -> Option<StreamId> {
        self.names.get(name).copied()
    }

    /// Where the streams go.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// All streams; [`StreamId`] is the place here.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// **Panics** for an id of another problem.
    pub fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id.index()]
    }

    /// The least common multiple of all intervals; 1 ns without streams.
    pub fn cycle(&self) -> Span {
        self.cycle
    }
}

/// **Errors**: longer than any plan may be.
fn common_multiple(one: Span, other: Span) -> Result<Span, ModelError> {
    let times = other.as_ns() / greatest_divisor(one, other).as_ns();
    one.checked_mul(times)
        .filter(|cycle| *cycle <= LONGEST_CYCLE)
        .ok_or(ModelError::Cycle { most: LONGEST_CYCLE })
}

fn check_stream(network: &Network, stream: &Stream) -> Result<(), ModelError> {
    check_station(network, stream, "talker", stream.talker)?;
    let mut listeners = BTreeSet::from([stream.talker]);
    for listener in &stream.listeners {
        check_station(network, stream, "listener", *listener)?;
        if !listeners.insert(*listener) {
            return Err(ModelError::Listeners { stream: stream.name.clone() });
        }
    }
    if stream.listeners.is_empty() {
        return Err(ModelError::Listeners { stream: stream.name.clone() });
    }
    let owner = format!("stream {}", stream.name);
    let one = Span::from_ns(1);
    check_span(&owner, "interval", stream.interval, one)?;
    check_span(&owner, "latency_max", stream.latency_max, one)?;
    check_span(&owner, "jitter_max", stream.jitter_max.unwrap_or(Span::ZERO), Span::ZERO)?;
    check_span(&owner, "release earliest", stream.release.earliest, Span::ZERO)?;
    let latest = stream.release_latest();
    if latest < stream.release.earliest || latest >= stream.interval {
        let (field, value_ns) = ("release latest", latest.as_ns());
        let bound = "at least the earliest and before the end of the interval";
        return Err(ModelError::Time { owner, field, value_ns, bound });
    }
    check_bytes(&owner, "length_bytes", stream.length_bytes, 1)?;
    let number = |field, value, bound| ModelError::Number {
        owner: owner.clone(),
        field,
        value: u64::from(value),
        bound,
    };
    if !(1..=MAX_FRAMES).contains(&stream.frames) {
        return Err(number("frames", stream.frames, "1 to 4096"));
    }
    if stream.priority > 7 {
        return Err(number("priority", stream.priority.into(), "0 to 7"));
    }
    if !(1..=4).contains(&stream.copies) {
        return Err(number("copies", stream.copies.into(), "1 to 4"));
    }
    check_route(network, stream)
}

fn check_station(
    network: &Network,
    stream: &Stream,
    field: &'static str,
    node: NodeId,
) -> Result<(), ModelError> {
    let stream = stream.name.clone();
    let nodes = network.nodes().len();
    match network.nodes().get(node.index()) {
        None => Err(ModelError::StreamNode { stream, field, node: node.0, nodes }),
        Some(node) if node.role == Role::Bridge => {
            Err(ModelError::NotAStation { stream, field, name: node.name.clone() })
        }
        Some(_) => Ok(()),
    }
}

/// Each given tree begins at the talker, reaches every node once, and all listeners; copies share
/// no link.
fn check_route(network: &Network, stream: &Stream) -> Result<(), ModelError> {
    let Route::Given(trees) = &stream.route else { return Ok(()) };
    let wrong = |what: String| Err(ModelError::Path { stream: stream.name.clone(), what });
    if trees.len() != usize::from(stream.copies) {
        return wrong(format!("{} trees for {} copies", trees.len(), stream.copies));
    }
    let mut used = BTreeSet::new();
    for tree in trees {
        let mut reached = BTreeSet::from([stream.talker]);
        for id in tree {
            let Some(link) = network.links().get(id.index()) else {
                return wrong(format!("there is no link {}", id.0));
            };
            if !reached.contains(&link.from) {
                return wrong(format!("{} does not begin where an earlier link ends", link.name));
            }
            let station = network.node(link.from).role == Role::EndStation;
            if station && link.from != stream.talker {
                return wrong(format!("{} leaves an end station", link.name));
            }
            if !reached.insert(link.to) {
                return wrong(format!("{} ends where the tree has been", link.name));
            }
            if !used.insert(*id) {
                return wrong(format!("{} is in two copies", link.name));
            }
        }
        if let Some(missed) = stream.listeners.iter().find(|node| !reached.contains(node)) {
            return wrong(format!("it does not reach {}", network.node(*missed).name));
        }
    }
    Ok(())
}

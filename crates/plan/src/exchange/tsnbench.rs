// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios of TSNBench (Schweissguth et al., "TSN Scheduler Benchmarking", WFCS 2023): a file of
//! streams and a file of the network, both JSON.
//!
//! Lengths are those of a frame from its addresses to its check sequence; 20 bytes surround it. A
//! bridge forwards when so many bytes have come, preamble included, or when the frame is whole.
//!
//! **The gap** behind a frame is part of what occupies a link, but neither of a latency nor of what
//! a bridge that stores waits for. Here it is part of both, so that its time is added to each limit
//! and taken from the processing of such bridges: that on the fastest link in question, so that no
//! plan holds here that does not hold there.
//!
//! **Source**: `format_specification` of EikeSG/TSNBenchScenarios.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use timewire_base::{BitsPerSecond, Span};

use crate::model::{
    Forwarding, Link, LinkId, Network, NetworkOptions, Node, NodeId, Problem, Role, Route, Stream,
};

/// What is wrong in a scenario, in which file, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}: {what}\n  remedy: {remedy}")]
pub struct ScenarioError {
    /// The file's name.
    pub file: String,
    /// A stream, a node, a link, or a line.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

/// How a scenario is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tsnbench {
    /// Each stream goes the way of the file; otherwise any.
    pub keeps_ways: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Topology {
    /// Always true: the other direction of a link is a link of its own.
    #[serde(default = "directed")]
    directed: bool,
    /// Several links between two nodes are told apart by their keys, whatever it says.
    #[serde(default, rename = "multigraph")]
    _multigraph: bool,
    /// Hints for schedulers.
    #[serde(default, rename = "graph")]
    _graph: IgnoredAny,
    nodes: Vec<NodeEntry>,
    links: Vec<LinkEntry>,
}

fn directed() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    /// Where it is drawn.
    #[serde(default, rename = "pos")]
    _pos: IgnoredAny,
    id: String,
    is_switch: bool,
    processing_delay_ns: u32,
    /// `null`: it stores.
    fwd_header_b: Option<u32>,
    queues_per_port: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    key: String,
    source: String,
    target: String,
    link_speed_mbps: u32,
    propagation_delay_ns: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamEntry {
    sources: Vec<String>,
    destinations: Vec<String>,
    cycle_time_ns: u64,
    frame_size_b: u32,
    max_latency_ns: Option<u64>,
    #[serde(default)]
    route: Vec<[String; 3]>,
}

/// Streams in the order of the file; a name that comes twice is there twice.
struct Entries(Vec<(String, StreamEntry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Entries, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of streams")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// Bytes around a frame, and those of them behind it.
const OVERHEAD: u32 = 20;
const GAP: u32 = 12;

/// A file while it is read.
struct SourceFile<'a>(&'a str);

impl SourceFile<'_> {
    fn parse<'de, T: Deserialize<'de>>(
        &self,
        bytes: &'de [u8],
        what: &str,
    ) -> Result<T, ScenarioError> {
        serde_json::from_slice(bytes).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            let text = error.to_string();
            let said = text.split(" at line ").next().unwrap_or_default();
            self.error(&place, said, what)
        })
    }

    fn error(&self, place: &str, what: &str, remedy: &str) -> ScenarioError {
        let [file, place, what, remedy] = [self.0, place, what, remedy].map(str::to_owned);
        ScenarioError { file, place, what, remedy }
    }
}

/// A problem from a file of streams and a file of the network, each with its name.
///
/// **Errors**: the first mistake, with its place and what would be right.
pub fn read_tsnbench(
    streams: (&str, &[u8]),
    topology: (&str, &[u8]),
    how: Tsnbench,
) -> Result<Problem, ScenarioError> {
    let file = SourceFile(topology.0);
    let (network, ids) = network(&file, topology.1)?;
    let file = SourceFile(streams.0);
    let entries: Entries = file.parse(streams.1, "an object with an object for each stream")?;
    let mut problem = Problem::new(network, Vec::new())
        .map_err(|error| file.error("streams", &error.to_string(), "see the book"))?;
    for (name, entry) in entries.0 {
        let place = format!("stream {name}");
        let stream = stream(&file, &place, name, &entry, &problem, &ids, how)?;
        problem.add(stream).map_err(|error| {
            file.error(&place, &error.to_string(), "mind the bounds of a stream in the book")
        })?;
    }
    Ok(problem)
}

type Ids = BTreeMap<String, NodeId>;

fn network(file: &SourceFile, bytes: &[u8]) -> Result<(Network, Ids), ScenarioError> {
    let topology: Topology = file.parse(bytes, "an object with `nodes` and `links`")?;
    if !topology.directed {
        let what = "`directed` is false";
        return Err(file.error("directed", what, "a link for each direction, and `true`"));
    }
    let mut ids = Ids::new();
    let mut nodes = Vec::new();
    for entry in topology.nodes {
        let role = if entry.is_switch { Role::Bridge } else { Role::EndStation };
        let mut node = Node::new(entry.id.clone(), role);
        node.processing_max = Span::from_ns(entry.processing_delay_ns.into());
        node.processing_min = node.processing_max;
        if let Some(header_bytes) = entry.fwd_header_b {
            node.forwarding = Forwarding::CutThrough { header_bytes };
        }
        node.limits.queues = entry.queues_per_port;
        ids.insert(entry.id, NodeId::from_index(nodes.len()));
        nodes.push(node);
    }
    let mut links = Vec::new();
    for entry in topology.links {
        let place = format!("link {}", entry.key);
        let end = |name: &String| {
            ids.get(name).copied().ok_or_else(|| {
                file.error(&place, &format!("there is no node {name}"), "an `id` of a node")
            })
        };
        let (from, to) = (end(&entry.source)?, end(&entry.target)?);
        let rate = BitsPerSecond::new(u64::from(entry.link_speed_mbps) * 1_000_000);
        let Some(rate) = rate else {
            return Err(file.error(&place, "link_speed_mbps is 0", "1 or more"));
        };
        let propagation = Span::from_ns(entry.propagation_delay_ns.into());
        links.push(Link { name: entry.key, from, to, rate, propagation });
    }
    for (index, node) in nodes.iter_mut().enumerate() {
        if node.forwarding == Forwarding::StoreAndForward {
            let less = node.processing_max - gap_time(&links, &[NodeId::from_index(index)]);
            node.processing_max = less.max(Span::ZERO);
            node.processing_min = node.processing_max;
        }
    }
    let options = NetworkOptions { overhead_bytes: OVERHEAD, ..NetworkOptions::default() };
    let network = Network::new(nodes, links, options).map_err(|error| {
        file.error("nodes and links", &error.to_string(), "each `id` and each `key` once")
    })?;
    Ok((network, ids))
}

fn stream(
    file: &SourceFile,
    place: &str,
    name: String,
    entry: &StreamEntry,
    problem: &Problem,
    ids: &Ids,
    how: Tsnbench,
) -> Result<Stream, ScenarioError> {
    let station = |name: &String| {
        ids.get(name).copied().ok_or_else(|| {
            file.error(place, &format!("there is no node {name}"), "an `id` of an end station")
        })
    };
    let [source] = entry.sources.as_slice() else {
        let what = format!("{} sources", entry.sources.len());
        return Err(file.error(place, &what, "one source"));
    };
    let talker = station(source)?;
    let listeners: Vec<NodeId> =
        entry.destinations.iter().map(station).collect::<Result<_, _>>()?;
    let time = |field: &str, ns: u64| {
        i64::try_from(ns).map(Span::from_ns).map_err(|_| {
            file.error(place, &format!("{field} is {ns} ns"), "at most 1000 s, as nanoseconds")
        })
    };
    let interval = time("cycle_time_ns", entry.cycle_time_ns)?;
    let mut stream = Stream::new(name, talker, talker, interval, entry.frame_size_b);
    stream.latency_max = match entry.max_latency_ns {
        None => Span::from_secs(1000),
        Some(ns) => {
            let gap = gap_time(problem.network().links(), &listeners);
            time("max_latency_ns", ns)?.checked_add(gap).unwrap_or(Span::from_secs(1000))
        }
    };
    stream.listeners = listeners;
    if how.keeps_ways {
        stream.route = Route::Given(vec![way(file, place, entry, problem.network())?]);
    }
    Ok(stream)
}

/// How long the gap takes on the fastest link to any of these nodes.
fn gap_time(links: &[Link], nodes: &[NodeId]) -> Span {
    let last = links.iter().filter(|link| nodes.contains(&link.to));
    let Some(fastest) = last.map(|link| link.rate.get()).max() else { return Span::ZERO };
    Span::from_ns(i64::try_from(u64::from(GAP) * 8 * 1_000_000_000 / fastest).unwrap_or(0))
}

fn way(
    file: &SourceFile,
    place: &str,
    entry: &StreamEntry,
    network: &Network,
) -> Result<Vec<LinkId>, ScenarioError> {
    let mut way = Vec::new();
    for [from, to, key] in &entry.route {
        let is_it = |link: &Link| {
            let ends = [link.from, link.to].map(|node| network.node(node).name.as_str());
            link.name == *key && ends == [from.as_str(), to.as_str()]
        };
        let Some(index) = network.links().iter().position(is_it) else {
            let what = format!("there is no link {key} from {from} to {to}");
            return Err(file.error(place, &what, "[source, target, key] of a link"));
        };
        way.push(LinkId::from_index(index));
    }
    if way.is_empty() {
        return Err(file.error(place, "it has no `route`", "one, or any ways"));
    }
    Ok(way)
}

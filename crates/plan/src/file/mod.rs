// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of networks, the same that a simulator reads: the problem of those streams that ask for a
//! place, bounds for the others, and what a plan says about such a file.
//!
//! A stream takes the way that the simulator gives it: the fewest hops, and of several such ways
//! the one whose links come first in the file.
//!
//! Not here: reading the text (`timewire-model`).

mod agree;
mod chains;
mod configured;
mod gated;
mod limits;
mod margin;
mod planned;
mod qdiscs;
mod refused;
mod render;
mod rest;
mod route;
mod uni;
mod yang;

pub use agree::check_rendered;
pub use configured::{FileUnread, Held, HoldError, hold, is_configuration, is_rendered_beside};
pub use gated::{GatedClass, gated_classes, gated_text};
pub use limits::{JudgedLimit, judged_limits};
pub use margin::clocks_beyond;
pub use planned::planned;
pub use refused::unrendered;
pub use render::{RenderError, Rendered, render, render_while};
pub use rest::{RestBound, Unbounded, bounds, bounds_on_linux};
pub use route::of_stream as route_of;
pub use uni::{UniError, UniPlaced, UniRefusal, failure_code, uni_name, with_uni};

use timewire_base::{Span, StationName};
use timewire_model::scenario::network::{
    DeviceModel, NetBridge, NetDevice, NetLink, NetPort, NetStream, NetTraffic, NetworkFile,
};
use timewire_tsn::qdisc::MAX_SHOWN_ENTRIES;

use crate::model::{
    Arrival, DeviceLimits, Forwarding, Link, LinkId, ModelError, Network, NetworkOptions, Node,
    NodeId, Problem, Release, Reserve, Role, Route, Stream, StreamId, bytes_time,
};

/// Preamble, delimiter and gap. **Units**: bytes.
const OVERHEAD: u32 = 20;
/// The gap between frames; a frame is there before it. **Units**: bytes.
const GAP: u32 = 12;
/// Preamble and delimiter. **Units**: bytes.
const PREAMBLE: u32 = 8;
/// Shortest packet, as Linux counts it. **Units**: bytes.
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:fill_sched_entry`.
const SHORTEST: u32 = 60;

/// The streams of a file that ask for a place.
#[derive(Clone, Debug)]
pub struct FileProblem {
    /// The problem; a stream's name is that of the file.
    pub problem: Problem,
    /// By [`StreamId`]: its place in the file; `None` for one that a file cannot express.
    pub streams: Vec<Option<usize>>,
}

/// The problem of a file. The link from the first to the second end of the file's link `i` is link
/// `2 i`, the other direction `2 i + 1`.
///
/// **Errors**: numbers beyond what is planned; a way that leads through a station.
pub fn problem(file: &NetworkFile) -> Result<FileProblem, ModelError> {
    let mut problem = Problem::new(network(file)?, Vec::new())?;
    let mut streams = Vec::new();
    for (index, stream) in file.streams.iter().enumerate() {
        if stream.scheduled {
            problem.add(placed(file, stream))?;
            streams.push(Some(index));
        }
    }
    Ok(FileProblem { problem, streams })
}

impl FileProblem {
    /// Which stream of the problem a stream of the file is, by its place there.
    pub fn id_of(&self, index: usize) -> Option<StreamId> {
        self.streams.iter().position(|own| *own == Some(index)).map(StreamId::from_index)
    }
}

fn network(file: &NetworkFile) -> Result<Network, ModelError> {
    let mut nodes = Vec::new();
    for station in &file.stations {
        let mut node = Node::new(station.name.as_str(), Role::EndStation);
        node.limits = limits(file, &station.name, &station.device);
        node.correction = margin::correction(&station.clock);
        let (least, most) = station.send.range();
        node.early = most.map_or(Span::ZERO, |most| most - least);
        nodes.push(node);
    }
    for bridge in &file.bridges {
        nodes.push(bridge_node(file, bridge));
    }
    let mut links: Vec<Link> = Vec::new();
    for (index, link) in file.links.iter().enumerate() {
        for end in 0..2 {
            let (one, other) = (&link.between[end], &link.between[1 - end]);
            links.push(Link {
                name: link_name(file, LinkId::from_index(2 * index + end)),
                from: node_id(file, one),
                to: node_id(file, other),
                rate: link.rate,
                propagation: link.delay,
            });
        }
    }
    let reserve = file.reserve.as_ref().map(|it| Reserve { every: it.period, lasts: it.duration });
    let options = NetworkOptions {
        overhead_bytes: OVERHEAD,
        sync_error: file.sync_error,
        reserve,
        rate_error_ppm: margin::rate_error_ppm(file),
    };
    Network::new(nodes, links, options)
}

/// Both ends, and a number where others join the same two.
fn link_name(file: &NetworkFile, link: LinkId) -> String {
    let (one, other, index) = ends(file, link);
    let twins = file.links[..index].iter().filter(|twin| joins(twin, one, other)).count();
    let which = if twins > 0 { format!("#{}", twins + 1) } else { String::new() };
    format!("{one}>{other}{which}")
}

fn joins(link: &NetLink, one: &StationName, other: &StationName) -> bool {
    link.between.contains(one) && link.between.contains(other)
}

/// Which node of the problem, and of a simulation, a station or bridge is.
fn node_id(file: &NetworkFile, name: &StationName) -> NodeId {
    let stations = file.stations.iter().map(|station| &station.name);
    let mut all = stations.chain(file.bridges.iter().map(|bridge| &bridge.name));
    let place = all.position(|other| other == name);
    NodeId::from_index(place.expect("invariant: a checked file names what is there"))
}

/// A frame is whole before the gap after it has passed, so a bridge may have it that much sooner
/// than its occupancy ends, and forward it before that where it takes less than a gap.
fn bridge_node(file: &NetworkFile, bridge: &NetBridge) -> Node {
    let mut node = Node::new(bridge.name.as_str(), Role::Bridge);
    let own = file.links.iter().filter(|link| link.between.contains(&bridge.name));
    let gap = own.map(|link| bytes_time(link.rate, GAP)).max().unwrap_or(Span::ZERO);
    let early = gap + Span::from_ns(1);
    let (least, most) = bridge.forward.range();
    node.processing_min = least - early;
    node.processing_max = most.unwrap_or(least);
    node.forwarding = match bridge.cut_through {
        Some(bytes) => Forwarding::CutThrough { header_bytes: bytes.get() + PREAMBLE },
        None => Forwarding::StoreAndForward,
    };
    node.limits = limits(file, &bridge.name, &bridge.device);
    node.correction = margin::correction(&bridge.clock);
    node
}

/// What a port of a node can do. A list that all ports share has an equal part for each that has a
/// link; in software a state is no shorter than the shortest packet at the slowest link.
fn limits(file: &NetworkFile, name: &StationName, device: &NetDevice) -> DeviceLimits {
    let own = || file.links.iter().filter(|link| link.between.contains(name));
    let ports = u64::try_from(own().count()).unwrap_or(u64::MAX).max(1);
    let own_list = device.gate_entries.map(|count| count.get());
    let part = device.shared_entries.map(|all| all / ports);
    // The kernel, and host settings, have no longer list of a device whose limits are known.
    let shown = device.model.and(u64::try_from(MAX_SHOWN_ENTRIES).ok());
    let entries = own_list.into_iter().chain(part).chain(shown).min();
    let mut interval_min = device.interval_min;
    if device.model == Some(DeviceModel::Taprio) {
        let shortest = own().map(|link| bytes_time(link.rate, SHORTEST));
        interval_min = shortest.fold(interval_min, Span::max);
    }
    // As well as of the device, limits of what its lists are written into.
    let known = device.model.filter(|_| entries != Some(0));
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    DeviceLimits {
        queues: u8::try_from(device.queues.get()).unwrap_or(8),
        gate_entries: entries.map(count),
        interval_min,
        interval_max: device.interval_max.map(|most| on_grid(most, device)),
        granularity: device.granularity,
        cycle_max: device.cycle_max.or(known.map(|_| refused::CYCLE_MAX)),
        openings: device.openings.map(|openings| count(openings.get())),
        changes_apart: device.profile().is_some_and(|profile| profile.exclusive_changes),
        launch_time: device.launch_time.is_some(),
        device: device.profile().map(|profile| profile.title),
    }
}

/// The longest state; where ports change apart, a multiple of any step of theirs: see
/// [`Network::grid`].
fn on_grid(most: Span, device: &NetDevice) -> Span {
    if !device.profile().is_some_and(|profile| profile.exclusive_changes) {
        return most;
    }
    let step = 20 * device.interval_min.max(device.granularity).as_ns();
    let floor = most.as_ns() / step * step;
    if floor > 0 { Span::from_ns(floor) } else { most }
}

/// With header and check sequence, and padded when it is short.
fn frame_bytes(stream: &NetStream) -> u32 {
    stream.frame_len().wire_len().get() - OVERHEAD
}

fn base_stream(file: &NetworkFile, stream: &NetStream, interval: Span) -> Stream {
    let listeners: Vec<NodeId> =
        stream.listeners.all().iter().map(|to| node_id(file, to)).collect();
    let (talker, listener) = (node_id(file, &stream.talker), listeners[0]);
    let mut made =
        Stream::new(stream.name.as_str(), talker, listener, interval, frame_bytes(stream));
    made.priority = u8::try_from(stream.class.get()).unwrap_or(7);
    made.listeners = listeners;
    made
}

fn placed(file: &NetworkFile, stream: &NetStream) -> Stream {
    let mut made = match &stream.traffic {
        NetTraffic::Cyclic(cyclic) => {
            let mut made = base_stream(file, stream, cyclic.period);
            made.frames = u32::try_from(cyclic.burst.get()).unwrap_or(u32::MAX);
            let jitter = cyclic.jitter.range().1.unwrap_or(Span::ZERO);
            made.release = Release { earliest: cyclic.offset + jitter, latest: None };
            made
        }
        NetTraffic::Sporadic(sporadic) => {
            let mut made = base_stream(file, stream, sporadic.gap.range().0);
            made.arrival = Arrival::Sporadic;
            made
        }
        _ => unreachable!("invariant: a checked file has places for no other traffic"),
    };
    made.latency_max = stream.max_latency.unwrap_or(made.interval);
    made.jitter_max = stream.max_jitter;
    if let Some(tree) = route::of_stream(file, stream) {
        made.route = Route::Given(vec![tree]);
    }
    made
}

/// The port that sends on a link: its node's place, the node at the other end, the file's link.
fn ends(file: &NetworkFile, link: LinkId) -> (&StationName, &StationName, usize) {
    let (place, end) = (link.index() / 2, link.index() % 2);
    let between = &file.links[place].between;
    (&between[end], &between[1 - end], place)
}

/// What the file says of the port that sends on a link.
fn ports_of(file: &NetworkFile, link: LinkId) -> impl Iterator<Item = &NetPort> {
    let (own, far, _) = ends(file, link);
    let is_this =
        move |port: &&NetPort| port.of.contains(own) && port.to.as_ref().is_none_or(|to| to == far);
    file.ports.iter().filter(is_this)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes, links, and what their ports can do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, Span};

use super::ModelError;

/// The most nodes, links or streams of a problem.
pub(crate) const MAX_OBJECTS: usize = 4_000_000;
/// The longest time in a description, 1 000 s; keeps all sums within 64 bits.
pub(crate) const LONGEST: Span = Span::from_secs(1_000);
/// The slowest link; with it the longest message still is a time of 64 bits.
const SLOWEST: u64 = 100_000;
/// The most bytes of a frame with everything around it.
pub(crate) const MAX_BYTES: u32 = 16 << 20;

/// A node, by its place in [`Network::nodes`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// A directed link, by its place in [`Network::links`]. It stands for the port that sends on it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct LinkId(pub u32);

macro_rules! index {
    ($id:ident) => {
        impl $id {
            /// The place in the list of its kind.
            pub fn index(self) -> usize {
                usize::try_from(self.0).expect("invariant: 32 bits are a place in memory")
            }
            /// **Panics** when there are more than 32 bits count, which no checked list has.
            pub fn from_index(index: usize) -> $id {
                $id(u32::try_from(index).expect("invariant: checked lists count in 32 bits"))
            }
        }
    };
}
index!(NodeId);
index!(LinkId);
index!(StreamId);

use super::StreamId;

/// What a node is to streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Talks and listens; forwards nothing.
    EndStation,
    /// Forwards; neither talks nor listens.
    Bridge,
}

/// When a bridge begins to forward a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// When it is whole.
    StoreAndForward,
    /// When so many bytes of the occupancy have come, the preamble among them. Between links of
    /// different rates it stores.
    CutThrough {
        /// **Units**: bytes from the start of the occupancy.
        header_bytes: u32,
    },
}

/// What the sending ports of a node can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// Queues of a port, 1 to 8.
    pub queues: u8,
    /// The longest gate list of a port; `None`: any; `Some(0)`: it has no gates, and its frames go
    /// at launch times or at once.
    pub gate_entries: Option<u32>,
    /// The shortest interval of a gate entry.
    pub interval_min: Span,
    /// The longest interval of a gate entry; `None`: any.
    pub interval_max: Option<Span>,
    /// Gates change at multiples of this; at least 1 ns.
    pub granularity: Span,
    /// The longest cycle of the gates; `None`: any.
    pub cycle_max: Option<Span>,
    /// How often a queue can open in a cycle; `None`: as often as there are entries.
    pub openings: Option<u32>,
    /// Whether no two of its ports may change gates at the same instant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes_apart: bool,
    /// Whether it can send each frame at an instant given with it.
    pub launch_time: bool,
    /// The device that has these limits, for messages. It is not written.
    #[serde(skip)]
    pub device: Option<&'static str>,
}

impl Default for DeviceLimits {
    /// Eight queues, gates without limits, no launch times.
    fn default() -> Self {
        DeviceLimits {
            queues: 8,
            gate_entries: None,
            interval_min: Span::from_ns(1),
            interval_max: None,
            granularity: Span::from_ns(1),
            cycle_max: None,
            openings: None,
            changes_apart: false,
            launch_time: false,
            device: None,
        }
    }
}

/// An end station or a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// As people call it; no two nodes have the same.
    pub name: String,
    /// What it is to streams.
    pub role: Role,
    /// From a frame being there until it can be sent on, at least; negative where it can be sent
    /// on before its overhead is there.
    pub processing_min: Span,
    /// The same, at most.
    pub processing_max: Span,
    /// When forwarding begins.
    pub forwarding: Forwarding,
    /// What its ports can do.
    pub limits: DeviceLimits,
    /// How far its clock jumps at most when it is set right.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub correction: Span,
    /// How much before its start a message of a talker may come to its port.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub early: Span,
}

impl Node {
    /// A node that forwards whole frames at once, without limits.
    pub fn new(name: impl Into<String>, role: Role) -> Node {
        Node {
            name: name.into(),
            role,
            processing_min: Span::ZERO,
            processing_max: Span::ZERO,
            forwarding: Forwarding::StoreAndForward,
            limits: DeviceLimits::default(),
            correction: Span::ZERO,
            early: Span::ZERO,
        }
    }
}

/// One direction between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// As people call it, such as `sw1-sw2`.
    pub name: String,
    /// Whose port sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// How fast it is.
    pub rate: BitsPerSecond,
    /// How long a bit travels.
    pub propagation: Span,
}

/// Time on every link that nothing planned may use: for frames of time synchronization, which come
/// at instants of their own. It begins at whole multiples of `every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// From one such time to the next.
    pub every: Span,
    /// How long each lasts; less than `every`.
    pub lasts: Span,
}

/// What holds in a whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkOptions {
    /// Bytes around each frame that occupy the link: 20 on Ethernet (preamble, delimiter, gap)
    /// when lengths include the frame check sequence.
    pub overhead_bytes: u32,
    /// The most by which the clocks of two neighbours differ.
    pub sync_error: Span,
    /// What is kept free on each link.
    #[serde(default)]
    pub reserve: Option<Reserve>,
    /// By how much the rates of a port's transmitter and of the clock of its gates differ at most.
    /// **Units**: millionths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rate_error_ppm: u32,
}

fn is_zero(ppm: &u32) -> bool {
    *ppm == 0
}

fn is_nothing(span: &Span) -> bool {
    *span == Span::ZERO
}

impl Default for NetworkOptions {
    /// Ethernet, perfect clocks.
    fn default() -> Self {
        NetworkOptions {
            overhead_bytes: 20,
            sync_error: Span::ZERO,
            reserve: None,
            rate_error_ppm: 0,
        }
    }
}

/// Nodes and links, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    nodes: Vec<Node>,
    links: Vec<Link>,
    options: NetworkOptions,
}

impl Network {
    /// Checks every node and link.
    ///
    /// **Errors**: a node that does not exist, a name twice, a number out of its bounds.
    pub fn new(
        nodes: Vec<Node>,
        links: Vec<Link>,
        options: NetworkOptions,
    ) -> Result<Network, ModelError> {
        for (what, count) in [("nodes", nodes.len()), ("links", links.len())] {
            if count > MAX_OBJECTS {
                return Err(ModelError::TooMany { what, count, most: MAX_OBJECTS });
            }
        }
        check_span("network", "sync_error", options.sync_error, Span::ZERO)?;
        check_bytes("network", "overhead_bytes", options.overhead_bytes, 0)?;
        if let Some(Reserve { every, lasts }) = options.reserve {
            check_span("network", "reserve.every", every, Span::from_ns(1))?;
            check_span("network", "reserve.lasts", lasts, Span::from_ns(1))?;
            if lasts >= every {
                let (owner, bound) = ("network".to_owned(), "less than every");
                let (field, value_ns) = ("reserve.lasts", lasts.as_ns());
                return Err(ModelError::Time { owner, field, value_ns, bound });
            }
        }
        let mut names = BTreeSet::new();
        for node in &nodes {
            if !names.insert(node.name.as_str()) {
                return Err(ModelError::NameTaken { kind: "node", name: node.name.clone() });
            }
            check_node(node)?;
        }
        let mut names = BTreeSet::new();
        for link in &links {
            if !names.insert(link.name.as_str()) {
                return Err(ModelError::NameTaken { kind: "link", name: link.name.clone() });
            }
            check_link(link, nodes.len())?;
        }
        Ok(Network { nodes, links, options })
    }

    /// All nodes; [`NodeId`] is the place here.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All links; [`LinkId`] is the place here.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// What holds everywhere.
    pub fn options(&self) -> NetworkOptions {
        self.options
    }

    /// **Panics** for an id of another network.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// **Panics** for an id of another network.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// When the gates of a port may change: at the second time, and then after each multiple of
    /// the first. Where no two ports of a device may change at once, each has a second time of its
    /// own, and the first divides common intervals: 5, 10, 20, ... times the shortest entry.
    pub fn grid(&self, link: LinkId) -> (Span, Span) {
        let from = self.link(link).from;
        let limits = &self.node(from).limits;
        if !limits.changes_apart {
            return (limits.granularity, Span::ZERO);
        }
        let own = self.links.iter().enumerate().filter(|(_, other)| other.from == from);
        let (mut ports, mut before) = (0_i64, 0_i64);
        for (index, _) in own {
            before += i64::from(index < link.index());
            ports += 1;
        }
        let mut times = if ports == 1 { 1 } else { 5 };
        while times < ports {
            times *= 2;
        }
        // Neither from one of them to the turn of the cycle is an entry too short.
        let grain = limits.granularity.as_ns();
        let step = (limits.interval_min.as_ns().max(1) + grain - 1) / grain * grain;
        (Span::from_ns(step.saturating_mul(times)), Span::from_ns(step.saturating_mul(before)))
    }

    /// How long a plan keeps a link for a frame of this length: its time with the network's
    /// overhead, rounded up to a whole nanosecond, and its [`Network::margin`].
    pub fn occupancy(&self, link: LinkId, length_bytes: u32) -> Span {
        let (sent, margin) = self.kept(link, length_bytes);
        sent.checked_add(margin).unwrap_or(Span::MAX)
    }

    /// The part of a frame's occupancy beyond its own time: the clock of the gates may go faster
    /// than the transmitter's, and be set right as they open.
    pub fn margin(&self, link: LinkId, length_bytes: u32) -> Span {
        self.kept(link, length_bytes).1
    }

    /// A frame's own time, and its margin.
    pub(crate) fn kept(&self, link: LinkId, length_bytes: u32) -> (Span, Span) {
        let link = self.link(link);
        let bytes = length_bytes.saturating_add(self.options.overhead_bytes);
        let sent = bytes_time(link.rate, bytes);
        let margin = self.slower(sent).checked_add(self.node(link.from).correction);
        (sent, margin.unwrap_or(Span::MAX))
    }

    /// When the start of a frame that a bridge waits for is there, after the frame's start.
    pub(crate) fn header_time(&self, link: LinkId, header_bytes: u32) -> Span {
        let sent = bytes_time(self.link(link).rate, header_bytes);
        sent.checked_add(self.slower(sent)).unwrap_or(Span::MAX)
    }

    /// By how much a transmitter may be slower in so much time, rounded up.
    fn slower(&self, time: Span) -> Span {
        let ppm = self.options.rate_error_ppm;
        if ppm == 0 {
            return Span::ZERO;
        }
        let time = time.as_ns().unsigned_abs();
        let slower = match time.checked_mul(ppm.into()) {
            Some(all) => all.div_ceil(1_000_000),
            None => time.div_ceil(1_000_000).saturating_mul(ppm.into()),
        };
        Span::from_ns(i64::try_from(slower).unwrap_or(i64::MAX))
    }
}

/// How long so many bytes need at a rate, rounded up.
pub(crate) fn bytes_time(rate: BitsPerSecond, bytes: u32) -> Span {
    let ns = match u64::from(bytes).checked_mul(8_000_000_000) {
        Some(bits) => u128::from(bits.div_ceil(rate.get())),
        None => (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate.get())),
    };
    Span::from_ns(i64::try_from(ns).unwrap_or(i64::MAX))
}

pub(crate) fn check_span(
    owner: &str,
    field: &'static str,
    value: Span,
    least: Span,
) -> Result<(), ModelError> {
    if value < least || value > LONGEST {
        let bound = match least {
            Span::ZERO => "at least 0 and at most 1000 s",
            _ => "at least 1 ns and at most 1000 s",
        };
        let owner = owner.to_owned();
        return Err(ModelError::Time { owner, field, value_ns: value.as_ns(), bound });
    }
    Ok(())
}

pub(crate) fn check_bytes(
    owner: &str,
    field: &'static str,
    value: u32,
    least: u32,
) -> Result<(), ModelError> {
    if value < least || value > MAX_BYTES {
        let bound = if least == 0 { "at most 16 MiB" } else { "at least 1 and at most 16 MiB" };
        let (owner, value) = (owner.to_owned(), u64::from(value));
        return Err(ModelError::Number { owner, field, value, bound });
    }
    Ok(())
}

fn check_node(node: &Node) -> Result<(), ModelError> {
    let owner = format!("node {}", node.name);
    let least = node.processing_min.max(-node.processing_min);
    check_span(&owner, "processing_min", least, Span::ZERO)?;
    check_span(&owner, "processing_max", node.processing_max, Span::ZERO)?;
    if node.processing_max < node.processing_min {
        let (field, value_ns) = ("processing_max", node.processing_max.as_ns());
        return Err(ModelError::Time { owner, field, value_ns, bound: "at least processing_min" });
    }
    if let Forwarding::CutThrough { header_bytes } = node.forwarding {
        check_bytes(&owner, "header_bytes", header_bytes, 1)?;
    }
    let limits = &node.limits;
    if !(1..=8).contains(&limits.queues) {
        let value = u64::from(limits.queues);
        return Err(ModelError::Number { owner, field: "queues", value, bound: "1 to 8" });
    }
    if limits.openings == Some(0) {
        let (field, bound) = ("openings", "1 or more; a port without gates has gate_entries 0");
        return Err(ModelError::Number { owner, field, value: 0, bound });
    }
    check_span(&owner, "interval_min", limits.interval_min, Span::ZERO)?;
    check_span(&owner, "granularity", limits.granularity, Span::from_ns(1))?;
    if let Some(most) = limits.cycle_max {
        check_span(&owner, "cycle_max", most, Span::from_ns(1))?;
    }
    if let Some(most) = limits.interval_max {
        check_span(&owner, "interval_max", most, Span::from_ns(1))?;
        if most < limits.interval_min {
            let (field, value_ns) = ("interval_max", most.as_ns());
            return Err(ModelError::Time {
                owner,
                field,
                value_ns,
                bound: "at least interval_min",
            });
        }
    }
    Ok(())
}

fn check_link(link: &Link, nodes: usize) -> Result<(), ModelError> {
    for node in [link.from, link.to] {
        if node.index() >= nodes {
            return Err(ModelError::NoSuchNode { link: link.name.clone(), node: node.0, nodes });
        }
    }
    if link.from == link.to {
        return Err(ModelError::Loop { link: link.name.clone() });
    }
    let owner = format!("link {}", link.name);
    if link.rate.get() < SLOWEST {
        let (field, value, bound) = ("rate", link.rate.get(), "at least 100000 bit/s");
        return Err(ModelError::Number { owner, field, value, bound });
    }
    check_span(&owner, "propagation", link.propagation, Span::ZERO)
}

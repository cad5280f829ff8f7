// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a page shows beside the numbers of a summary: time series over time, clocks, the network,
//! the longest packet paths. All of it is bounded, however long the run was.

use std::collections::BTreeMap;

use timewire_capture::series::StreamTimeSeries;
use timewire_capture::sync::ClockSeries;

/// All of it; what is not known is empty.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Of each case, by its id: transfer times over time.
    pub series: BTreeMap<String, Vec<StreamTimeSeries>>,
    /// How the clocks went.
    pub clocks: Vec<ClockSeries>,
    /// The network, where it is known.
    pub topology: Option<Topology>,
    /// Of each case, by its id: the longest packet paths of its capture, the longest first.
    pub longest: BTreeMap<String, Vec<LongPacketPath>>,
}

/// A packet path, and where its time went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPacketPath {
    /// Whose packet it was.
    pub flow: String,
    /// **Units**: nanoseconds.
    pub end_to_end_ns: i64,
    /// Its largest stage and why, in a sentence.
    pub sentence: String,
    /// Name, begin since that of the packet path, and length of each stage. **Units**: nanoseconds.
    pub stages: Vec<(String, i64, i64)>,
}

/// A network with what its links carried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Stations and bridges.
    pub nodes: Vec<TopologyNode>,
    /// Links and segments.
    pub links: Vec<TopologyLink>,
}

/// A node of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyNode {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: TopologyKind,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKind {
    /// Streams start and end here.
    Station,
    /// Frames are forwarded here.
    Bridge,
    /// Stations share it, and one sends at a time.
    Segment,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyLink {
    /// Places of its ends among the nodes.
    pub ends: [usize; 2],
    /// **Units**: bits per second.
    pub rate_bps: u64,
    /// From the first end to the second, and back: what it carried; `None` where that is not known.
    pub carried: Option<[Carried; 2]>,
}

/// What went over a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Frames.
    pub frames: u64,
    /// Share of the time in which it sent, preambles and gaps included.
    pub share: f64,
}

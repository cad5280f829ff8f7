// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links of a network that are made for a run: its stations become namespaces of a kernel, with
//! bridges and links between them.

use std::collections::BTreeSet;

use timewire_base::{BitsPerSecond, Span, StationName};

use super::item::Reader;
use super::network::{NetLink, NetworkFile};
use super::orchestrated::StationPart;
use super::record::record;

record! {
    /// The links of a network.
    pub struct NetworkSpec {
        /// Nodes that forward frames. One that is also among the stations has an agent, and does
        /// there what its phases say.
        bridges: Vec<StationName> = "[]",
        /// Links between two of the stations and bridges, full duplex.
        links: Vec<WireSpec>,
    }
}

record! {
    /// A link, full duplex.
    pub struct WireSpec by "between" {
        /// Which two.
        between: Vec<StationName>,
        /// Its rate.
        rate: BitsPerSecond = "100Mbit",
        /// From one end to the other, in whole microseconds.
        delay: Span = "1us",
    }
}

impl NetworkSpec {
    /// All nodes: the stations in their order, then the bridges that are none of them.
    pub fn nodes<'a>(&'a self, stations: &'a [StationPart]) -> Vec<&'a StationName> {
        let mut nodes: Vec<_> = stations.iter().map(|station| &station.name).collect();
        for bridge in &self.bridges {
            if !nodes.contains(&bridge) {
                nodes.push(bridge);
            }
        }
        nodes
    }
}

impl WireSpec {
    /// A link of a network file: kernels have no finer delay than microseconds.
    pub(super) fn of(link: &NetLink) -> WireSpec {
        let us = link.delay.as_ns().saturating_add(999) / 1_000;
        WireSpec { between: link.between.clone(), rate: link.rate, delay: Span::from_us(us) }
    }
}

/// Whether nodes that do something by themselves can have the links of the file: nothing else says
/// which way frames go.
pub(super) fn check(file: &NetworkFile, reader: &mut Reader) {
    let nodes: Vec<&StationName> = file.phases().map(|(name, _)| name).collect();
    if nodes.len() > MAX_NODES {
        let message = format!("{} stations and bridges are more than {MAX_NODES}", nodes.len());
        reader.fail_at("stations", message, "the addresses are of one subnet");
    }
    let is_bridge = |name: &StationName| file.bridges.iter().any(|it| it.name == *name);
    let mut linked = BTreeSet::new();
    // Bridges that frames can reach from each other: the representative of each.
    let mut reach: Vec<usize> = (0..nodes.len()).collect();
    for (i, link) in file.links.iter().enumerate() {
        linked.extend(&link.between);
        if !link.between.iter().all(is_bridge) {
            continue;
        }
        let of = |end| nodes.iter().position(|node| *node == end).map(|node| reach[node]);
        if let [Some(one), Some(other)] = [of(&link.between[0]), of(&link.between[1])] {
            if one == other {
                let message = "this link closes a ring of bridges".to_owned();
                reader.fail_at(&format!("links[{i}]"), message, RING_HINT);
            }
            reach.iter_mut().filter(|it| **it == other).for_each(|it| *it = one);
        }
    }
    for node in nodes.into_iter().filter(|node| !file.links.is_empty() && !linked.contains(node)) {
        let message = format!("`{node}` has no link");
        reader.fail_at("links", message, "every station and bridge has one");
    }
}

/// What the addresses have room for.
const MAX_NODES: usize = 200;
const RING_HINT: &str = "frames would go round for ever: leave it out, or let stations with two \
                         links each make the ring (an interface of type hsr)";

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network that an experiment file can bring along: its stations become namespaces of the
//! laboratory's kernel, with bridges and links between them.

use std::collections::BTreeSet;

use timewire_base::{BitsPerSecond, Span, StationName};

use super::experiment_file::StationPart;
use super::item::Reader;
use super::record::record;
use super::value::Count;

record! {
    /// The network of an experiment that is performed in the laboratory's kernel.
    pub struct NetworkSpec {
        /// Nodes that forward frames. One that is also among `stations` has an agent, and does
        /// there what its phases say.
        bridges: Vec<StationName> = "[]",
        /// VLANs that all bridges let through, tagged.
        vlans: Vec<Count<1, 4094>> = "[]",
        /// Bridges may be linked in a ring: the stations confine each VLAN to a tree.
        rings: bool = "false",
        /// Links between two of the stations and bridges, full duplex.
        links: Vec<WireSpec>,
    }
}

record! {
    /// A link, full duplex; or its two ends alone: `[alpha, west]`.
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

    pub(super) fn check(&self, stations: &[StationPart], reader: &mut Reader) {
        let nodes = self.nodes(stations);
        if nodes.len() > MAX_NODES {
            let message = format!("{} stations and bridges are more than {MAX_NODES}", nodes.len());
            reader.fail_at("network", message, "the addresses are of one subnet");
        }
        let bridges: BTreeSet<_> = self.bridges.iter().collect();
        if bridges.len() != self.bridges.len() {
            let message = "a bridge is named twice".to_owned();
            reader.fail_at("network.bridges", message, "name each once");
        }
        let mut linked = BTreeSet::new();
        // Bridges that frames can reach from each other: the representative of each.
        let mut reach: Vec<usize> = (0..nodes.len()).collect();
        for (i, link) in self.links.iter().enumerate() {
            let at = format!("network.links[{i}]");
            if let Err((key, message, hint)) = link.check(&nodes) {
                reader.fail_at(&format!("{at}{key}"), message, hint);
                continue;
            }
            let mut ends = [&link.between[0], &link.between[1]];
            ends.sort();
            if !linked.insert(ends) {
                let message = format!("{} and {} have a link already", ends[0], ends[1]);
                reader.fail_at(&at, message, "two nodes have one link");
            }
            if ends.iter().all(|end| bridges.contains(end)) {
                let of = |end| nodes.iter().position(|node| *node == end).map(|node| reach[node]);
                if let [Some(one), Some(other)] = ends.map(of) {
                    if one == other && !self.rings {
                        let message = "this link closes a ring of bridges".to_owned();
                        reader.fail_at(&at, message, RING_HINT);
                    }
                    reach.iter_mut().filter(|it| **it == other).for_each(|it| *it = one);
                }
            }
        }
        let is_linked = |node: &StationName| linked.iter().any(|ends| ends.contains(&node));
        for node in nodes.into_iter().filter(|node| !is_linked(node)) {
            let message = format!("`{node}` has no link");
            reader.fail_at("network.links", message, "every station and bridge has one");
        }
    }
}

impl WireSpec {
    /// Key, message and hint of what is wrong.
    fn check(&self, nodes: &[&StationName]) -> Result<(), (&'static str, String, &'static str)> {
        let [one, other] = self.between.as_slice() else {
            let message = format!("a link has two ends, not {}", self.between.len());
            return Err((".between", message, "write `between: [ONE, OTHER]`"));
        };
        if one == other {
            return Err((".between", format!("a link of `{one}` with itself"), "name another"));
        }
        if let Some(lost) = [one, other].into_iter().find(|end| !nodes.contains(end)) {
            let message = format!("there is no station or bridge `{lost}`");
            return Err((".between", message, "name one of `stations` or `bridges`"));
        }
        if self.delay.is_negative() || self.delay.as_ns() % 1_000 != 0 {
            let message = format!("{} is no number of whole microseconds", self.delay);
            return Err((".delay", message, "the kernel's links have no finer delay"));
        }
        Ok(())
    }
}

/// What the addresses have room for.
const MAX_NODES: usize = 200;
const RING_HINT: &str = "frames would go round for ever: leave it out, or let stations with two \
                         links each make the ring (an interface of type hsr)";

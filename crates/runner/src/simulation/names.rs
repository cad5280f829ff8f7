// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a network file calls the numbers of a simulation: nodes, ports, and a row for each listener
//! of each stream.

use timewire_model::scenario::network::NetworkFile;
use timewire_sim::net::Network;

/// A stream, and one of those that listen to it.
pub struct Row {
    /// `STREAM`, or `STREAM>LISTENER` where several listen.
    pub name: String,
    pub stream: usize,
    /// Nodes.
    pub from: usize,
    pub to: usize,
}

/// The names of a network.
pub struct Rows {
    rows: Vec<Row>,
    /// Of each stream.
    listeners: Vec<usize>,
    nodes: Vec<String>,
    segments: Vec<String>,
}

impl Rows {
    pub fn of(file: &NetworkFile, network: &Network) -> Rows {
        let stations = file.stations.iter().map(|station| station.name.to_string());
        let nodes: Vec<String> =
            stations.chain(file.bridges.iter().map(|bridge| bridge.name.to_string())).collect();
        let mut rows = Vec::new();
        let streams = file.streams.iter().zip(&network.streams).enumerate();
        for (stream, (named, spec)) in streams {
            let several = network.more_listeners.contains_key(&stream);
            for (to, station) in network.listeners(stream).zip(named.listeners.all()) {
                let name = match several {
                    true => format!("{}>{station}", named.name),
                    false => named.name.to_string(),
                };
                rows.push(Row { name, stream, from: spec.from, to });
            }
        }
        let listeners = (0..network.streams.len()).map(|it| network.listeners(it).count());
        let segments = file.segments.iter().map(|segment| segment.name.to_string()).collect();
        Rows { rows, listeners: listeners.collect(), nodes, segments }
    }

    pub fn all(&self) -> &[Row] {
        &self.rows
    }

    /// How many listen to each stream.
    pub fn listeners(&self) -> &[usize] {
        &self.listeners
    }

    /// The name of a segment.
    pub fn segment(&self, segment: usize) -> &str {
        self.segments.get(segment).map_or("", String::as_str)
    }

    /// The name of a station or bridge.
    pub fn node(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", String::as_str)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up networks and streams, the same for the same seed: for tests, benchmarks and examples.

use timewire_base::{BitsPerSecond, Sequence, Span};

use crate::model::{
    Link, LinkId, ModelError, Network, NetworkOptions, Node, NodeId, Problem, Role, Stream,
};
use crate::synth::{Graph, Shape, Table, share};

/// How bridges are connected; both directions of each connection are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One after the other.
    Line(usize),
    /// One after the other, and the last to the first.
    Ring(usize),
    /// Each to the two below it.
    Tree(usize),
    /// A ring, and chords from each third bridge to the one opposite.
    Mesh(usize),
    /// Rows and columns, each a ring.
    Torus(usize, usize),
    /// Pods of so many lower and as many upper bridges, each upper one with its own core bridges.
    FatTree {
        /// Pods.
        pods: usize,
        /// Lower bridges of a pod, and upper ones.
        width: usize,
        /// Core bridges of an upper bridge.
        cores: usize,
    },
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How bridges are connected.
    pub topology: Topology,
    /// End stations at each bridge; in a fat tree at each lower one.
    pub stations: usize,
    /// Streams, at most.
    pub streams: usize,
    /// Intervals to choose from.
    pub intervals: Vec<Span>,
    /// Shortest and longest frame. **Units**: bytes.
    pub lengths: (u32, u32),
    /// Lengths are the shortest and whole multiples of this more; at least 1. **Units**: bytes.
    pub length_step: u32,
    /// No stream is added that would load a link of its shortest way more than this. **Units**:
    /// percent.
    pub load_percent: u32,
    /// Whether only streams are added that are admitted beside those before them, in one plan that
    /// is not told: the problem is then known to have a plan with all of them.
    pub solvable: bool,
    /// What holds everywhere.
    pub options: NetworkOptions,
    /// Processing of a bridge, at least and at most.
    pub processing: (Span, Span),
    /// For all choices.
    pub seed: u64,
}

impl Recipe {
    /// Streams of 0.5 to 4 ms and 64 to 500 bytes on Gigabit Ethernet.
    pub fn new(topology: Topology, stations: usize, streams: usize, seed: u64) -> Recipe {
        Recipe {
            topology,
            stations,
            streams,
            intervals: [500, 1000, 2000, 4000].map(Span::from_us).to_vec(),
            lengths: (64, 500),
            length_step: 1,
            load_percent: 100,
            solvable: false,
            options: NetworkOptions::default(),
            processing: (Span::from_us(2), Span::from_us(2)),
            seed,
        }
    }

    /// The network and its streams. Streams that would exceed the load are left out; after twenty
    /// in a row there are no more.
    ///
    /// **Errors**: a number out of the model's bounds.
    pub fn problem(&self) -> Result<Problem, ModelError> {
        let network = self.network()?;
        let stations: Vec<NodeId> = (0..network.nodes().len())
            .filter(|node| network.nodes()[*node].role == Role::EndStation)
            .map(NodeId::from_index)
            .collect();
        let mut random = Sequence::new(self.seed);
        let mut graph = Graph::new(&network);
        let mut load = vec![0i64; network.links().len()];
        let most = (i64::from(self.load_percent) << 20) / 100;
        let mut streams = Vec::new();
        let mut hidden = Hidden { table: Table::new(network.links().len()), count: 0 };
        let mut misses = 0;
        while streams.len() < self.streams && misses < 20 && stations.len() > 1 {
            let talker = random.below(stations.len());
            let other = random.below(stations.len() - 1);
            let listener = if other >= talker { other + 1 } else { other };
            let interval = self.intervals[random.below(self.intervals.len())];
            let step = self.length_step.max(1);
            let range = (self.lengths.1.saturating_sub(self.lengths.0) / step).saturating_add(1);
            let more = random.below(usize::try_from(range).unwrap_or(1));
            let length = self.lengths.0 + step * u32::try_from(more).unwrap_or(0);
            let (talker, listener) = (stations[talker], stations[listener]);
            let name = format!("s{}", streams.len());
            let stream = Stream::new(name, talker, listener, interval, length);
            let mut price = |link: LinkId| load[link.index()];
            let Some(way) = graph.short(talker, listener, &mut price) else { break };
            let full = |link: &LinkId| load[link.index()] + share(&network, &stream, *link) > most;
            let full = way.iter().any(full);
            if full || (self.solvable && !hidden.admit(&network, &stream, &way, &mut random)) {
                misses += 1;
                continue;
            }
            misses = 0;
            for link in &way {
                load[link.index()] += share(&network, &stream, *link);
            }
            streams.push(stream);
        }
        Problem::new(network, streams)
    }

    fn network(&self) -> Result<Network, ModelError> {
        let (bridges, pairs, edges) = self.topology.connections();
        let mut nodes: Vec<Node> = Vec::new();
        for number in 0..bridges {
            let mut node = Node::new(format!("b{number}"), Role::Bridge);
            (node.processing_min, node.processing_max) = self.processing;
            nodes.push(node);
        }
        let mut pairs = pairs;
        for bridge in edges {
            for _ in 0..self.stations {
                pairs.push((bridge, nodes.len()));
                let number = nodes.len() - bridges;
                nodes.push(Node::new(format!("e{number}"), Role::EndStation));
            }
        }
        let rate = BitsPerSecond::new(1_000_000_000).expect("invariant: a rate that there is");
        let mut links = Vec::new();
        for (a, b) in pairs {
            for (from, to) in [(a, b), (b, a)] {
                links.push(Link {
                    name: format!("{}-{}", nodes[from].name, nodes[to].name),
                    from: NodeId::from_index(from),
                    to: NodeId::from_index(to),
                    rate,
                    propagation: Span::ZERO,
                });
            }
        }
        Network::new(nodes, links, self.options)
    }
}

/// The plan that shows that there is one.
struct Hidden {
    table: Table,
    count: u32,
}

impl Hidden {
    /// Whether a stream is admitted, from an instant by chance on or from the first on.
    fn admit(
        &mut self,
        network: &Network,
        stream: &Stream,
        way: &[LinkId],
        random: &mut Sequence,
    ) -> bool {
        let shape = Shape::new(network, stream, vec![way.to_vec()]);
        let interval = stream.interval.as_ns();
        let class = self.table.class(interval);
        let first = i64::try_from(random.below(usize::try_from(interval).unwrap_or(1)));
        let mut fit = |from| self.table.fit(class, &shape.stretches, from, interval - 1);
        let Some(start) = fit(first.unwrap_or(0)).or_else(|| fit(0)) else { return false };
        self.count += 1;
        self.table.put(self.count, class, start, &shape.stretches);
        true
    }
}

impl Topology {
    /// Bridges, connections between them, and those that have stations.
    fn connections(self) -> (usize, Vec<(usize, usize)>, Vec<usize>) {
        let ring = |n: usize| -> Vec<(usize, usize)> {
            let back = (n > 2).then_some((n.saturating_sub(1), 0));
            (1..n).map(|k| (k - 1, k)).chain(back).collect()
        };
        match self {
            Topology::Line(n) => (n, (1..n).map(|k| (k - 1, k)).collect(), (0..n).collect()),
            Topology::Ring(n) => (n, ring(n), (0..n).collect()),
            Topology::Tree(n) => (n, (1..n).map(|k| ((k - 1) / 2, k)).collect(), (0..n).collect()),
            Topology::Mesh(n) => {
                let chords = (0..n / 2).step_by(3).map(|k| (k, k + n / 2));
                let chords = chords.filter(|(a, b)| b - a > 1 && b - a < n - 1);
                (n, ring(n).into_iter().chain(chords).collect(), (0..n).collect())
            }
            Topology::Torus(w, h) => {
                let mut pairs = Vec::new();
                for y in 0..h {
                    for x in 0..w {
                        let here = y * w + x;
                        if x + 1 < w || w > 2 {
                            pairs.push((here, y * w + (x + 1) % w));
                        }
                        if y + 1 < h || h > 2 {
                            pairs.push((here, (y + 1) % h * w + x));
                        }
                    }
                }
                (w * h, pairs, (0..w * h).collect())
            }
            Topology::FatTree { pods, width, cores } => {
                let (lower, upper) = (pods * width, 2 * pods * width);
                let mut pairs = Vec::new();
                for pod in 0..pods {
                    for a in 0..width {
                        let above = lower + pod * width + a;
                        pairs.extend((0..width).map(|e| (pod * width + e, above)));
                        pairs.extend((0..cores).map(|c| (above, upper + a * cores + c)));
                    }
                }
                (upper + width * cores, pairs, (0..lower).collect())
            }
        }
    }
}

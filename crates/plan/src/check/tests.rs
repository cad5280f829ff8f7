// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans made here by trying every offset, and what is found when one is spoilt.

use timewire_base::{BitsPerSecond, Span};

use super::*;
use crate::model::{
    Admission, DeviceLimits, GateWindow, Link, Network, NetworkOptions, Node, NodeId, PortGates,
    Refusal, Release, Role, Route, Stream, Transmission, greatest_divisor,
};

mod corruptions;
mod packings;
mod proofs;

/// Deterministic and small.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 20).unwrap() % n
    }
}

fn us(us: usize) -> Span {
    Span::from_us(i64::try_from(us).unwrap())
}

/// A ring of four bridges, 0 to 3, and stations 4 to 7, one at each; 4 and 6 are at the bridges 3
/// and 1 as well. Links come in pairs, forth and back.
#[derive(Clone)]
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) options: NetworkOptions,
    pub(super) streams: Vec<Stream>,
    pub(super) plan: Plan,
}

const EDGES: [(u32, u32); 10] =
    [(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (5, 1), (6, 2), (7, 3), (4, 3), (6, 1)];

/// The link from one node to another.
fn link(from: u32, to: u32) -> LinkId {
    let place = |edge| EDGES.iter().position(|it| *it == edge);
    let index = match place((from, to)) {
        Some(index) => index * 2,
        None => place((to, from)).unwrap() * 2 + 1,
    };
    LinkId::from_index(index)
}

fn tree(nodes: &[(u32, u32)]) -> Vec<LinkId> {
    nodes.iter().map(|(from, to)| link(*from, *to)).collect()
}

pub(super) fn network() -> World {
    let limits = DeviceLimits {
        gate_entries: Some(300),
        interval_min: Span::from_ns(1),
        interval_max: Some(us(5_000)),
        launch_time: true,
        ..DeviceLimits::default()
    };
    let node = |index| {
        let role = if index < 4 { Role::Bridge } else { Role::EndStation };
        let (processing_min, processing_max) = (Span::from_ns(900), Span::from_ns(1_000));
        Node { processing_min, processing_max, limits, ..Node::new(format!("n{index}"), role) }
    };
    let mut links = Vec::new();
    for (a, b) in EDGES {
        for (from, to) in [(a, b), (b, a)] {
            links.push(Link {
                name: format!("n{from}-n{to}"),
                from: NodeId(from),
                to: NodeId(to),
                rate: BitsPerSecond::new(1_000_000_000).unwrap(),
                propagation: Span::from_ns(50),
            });
        }
    }
    World {
        nodes: (0..8).map(node).collect(),
        links,
        options: NetworkOptions {
            overhead_bytes: 20,
            sync_error: Span::from_ns(20),
            ..NetworkOptions::default()
        },
        streams: Vec::new(),
        plan: Plan::default(),
    }
}

type Trees = Vec<Vec<LinkId>>;

/// What streams go over: unicast, multicast, two copies.
fn ways() -> Vec<(u32, Vec<u32>, Trees)> {
    vec![
        (4, vec![6], vec![tree(&[(4, 0), (0, 1), (1, 2), (2, 6)])]),
        (5, vec![7], vec![tree(&[(5, 1), (1, 2), (2, 3), (3, 7)])]),
        (7, vec![5, 6], vec![tree(&[(7, 3), (3, 2), (2, 1), (1, 5), (2, 6)])]),
        (4, vec![6], vec![tree(&[(4, 0), (0, 1), (1, 6)]), tree(&[(4, 3), (3, 2), (2, 6)])]),
        (5, vec![6], vec![tree(&[(5, 1), (1, 2), (2, 6)])]),
    ]
}

impl World {
    pub(super) fn problem(&self) -> Problem {
        let network = Network::new(self.nodes.clone(), self.links.clone(), self.options).unwrap();
        Problem::new(network, self.streams.clone()).unwrap()
    }

    pub(super) fn report(&self) -> Report {
        check(&self.problem(), &self.plan).unwrap()
    }

    /// Random streams, each at the first offset of 100 ns at which it meets none before it.
    pub(super) fn planned(seed: u64) -> World {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..10 {
            random.below(2);
        }
        let mut world = network();
        let ways = ways();
        for index in 0..ways.len() + 3 {
            let (talker, listeners, trees) = ways[index % ways.len()].clone();
            let interval = us([100, 200, 250, 400][random.below(4)]);
            let length = u32::try_from(64 + random.below(400)).unwrap();
            let name = format!("s{index}");
            let mut stream =
                Stream::new(name, NodeId(talker), NodeId(listeners[0]), interval, length);
            stream.listeners = listeners.into_iter().map(NodeId).collect();
            stream.frames = u32::try_from(1 + random.below(2) + usize::from(index == 0)).unwrap();
            stream.copies = u8::try_from(trees.len()).unwrap();
            stream.jitter_max = Some(Span::ZERO);
            if index == 1 {
                stream.route = Route::Given(trees.clone());
                stream.release = Release { earliest: us(1), latest: Some(us(90)) };
            }
            if index == 4 {
                stream.latency_max = us(100);
            }
            world.streams.push(stream);
            let queue = if random.below(3) == 0 { 6 } else { 7 };
            world.place(StreamId::from_index(index), &trees, queue);
        }
        world.plan.cycle = world.problem().cycle();
        world.gates();
        world
    }

    fn place(&mut self, id: StreamId, trees: &Trees, queue: u8) {
        let problem = self.problem();
        let stream = problem.stream(id);
        let mut offset = stream.release.earliest;
        loop {
            assert!(offset <= stream.release_latest(), "a handful of streams has room");
            let all = sent_at(&problem, stream, trees, queue, offset);
            if all.iter().all(|one| self.free(&problem, id, one)) {
                self.plan.admitted.push(Admission { stream: id, transmissions: all });
                return;
            }
            offset += Span::from_ns(100);
        }
    }

    /// Whether nothing that is placed is on the link at that time.
    fn free(&self, problem: &Problem, id: StreamId, one: &Transmission) -> bool {
        let long =
            |id: StreamId| problem.network().occupancy(one.link, problem.stream(id).length_bytes);
        self.plan.admitted.iter().all(|admission| {
            let other = problem.stream(admission.stream);
            let common = greatest_divisor(other.interval, problem.stream(id).interval).as_ns();
            admission.transmissions.iter().filter(|it| it.link == one.link).all(|it| {
                let after = (one.start - it.start).as_ns().rem_euclid(common);
                after >= long(admission.stream).as_ns() && common - after >= long(id).as_ns()
            })
        })
    }

    /// Windows that cover what is sent, by marking every transmission of every cycle.
    pub(super) fn gates(&mut self) {
        let problem = self.problem();
        self.plan.gates.clear();
        for index in 0..self.links.len() {
            let link = LinkId::from_index(index);
            let mut cycle = 1;
            let mut here = Vec::new();
            for admission in &self.plan.admitted {
                let stream = problem.stream(admission.stream);
                let long = problem.network().occupancy(link, stream.length_bytes).as_ns();
                let interval = stream.interval.as_ns();
                for one in admission.transmissions.iter().filter(|it| it.link == link) {
                    cycle *= interval / greatest_common_divisor(cycle, interval);
                    here.push((one.start.as_ns(), long, interval, one.queue));
                }
            }
            let mut windows: Vec<(i64, i64, u8)> = Vec::new();
            for (start, long, interval, queue) in here {
                for turn in 0..cycle / interval {
                    let from = (start + turn * interval) % cycle;
                    windows.push((from, cycle.min(from + long), queue));
                    if from + long > cycle {
                        windows.push((0, from + long - cycle, queue));
                    }
                }
            }
            windows.sort_unstable();
            if !windows.is_empty() {
                self.plan.gates.push(port(link, cycle, windows));
            }
        }
    }
}

fn port(link: LinkId, cycle: i64, windows: Vec<(i64, i64, u8)>) -> PortGates {
    let mut joined: Vec<(i64, i64, u8)> = Vec::new();
    let (mut entries, mut until) = (0, 0);
    for window in windows {
        entries += u32::from(window.0 > until);
        match joined.last_mut() {
            Some(last) if last.1 == window.0 && last.2 == window.2 => last.1 = window.1,
            _ => {
                joined.push(window);
                entries += 1;
            }
        }
        until = window.1;
    }
    entries += u32::from(until < cycle);
    let span = Span::from_ns;
    let windows = joined
        .into_iter()
        .map(|(start, end, queue)| GateWindow { start: span(start), end: span(end), queue })
        .collect();
    PortGates { link, cycle: span(cycle), windows, entries, spare: Span::ZERO }
}

/// Without waiting: each frame starts on a link as soon as it can be there.
fn sent_at(
    problem: &Problem,
    stream: &Stream,
    trees: &Trees,
    queue: u8,
    offset: Span,
) -> Vec<Transmission> {
    let network = problem.network();
    let mut all = Vec::new();
    for (copy, tree) in trees.iter().enumerate() {
        let mut starts: Vec<(NodeId, Span)> = vec![(stream.talker, offset)];
        for id in tree {
            let link = network.link(*id);
            let start = starts.iter().find(|(node, _)| *node == link.from).unwrap().1;
            let long = network.occupancy(*id, stream.length_bytes);
            for frame in 0..stream.frames {
                let start = start + Span::from_ns(long.as_ns() * i64::from(frame));
                let copy = u8::try_from(copy).unwrap();
                all.push(Transmission { link: *id, frame, copy, queue, start });
            }
            let there = start + long + link.propagation + Span::from_ns(1_000);
            starts.push((link.to, there + network.options().sync_error));
        }
    }
    all
}

#[test]
fn t0_valid_plans_are_clean() {
    for seed in 0..200 {
        let world = World::planned(seed);
        let report = world.report();
        let problem = world.problem();
        let words: Vec<String> = report.findings.iter().map(|it| it.describe(&problem)).collect();
        assert!(report.is_clean(), "seed {seed}: {words:#?}");
        assert!(report.instances > 50 && report.transmissions > 40);
    }
}

#[test]
fn t0_a_finding_names_link_streams_and_instants() {
    let mut world = World::planned(1);
    let second = &mut world.plan.admitted[0].transmissions[3];
    second.start = second.start - us(1);
    let report = world.report();
    let problem = world.problem();
    let early = report.findings.iter().find(|it| it.rule == Rule::Causality).unwrap();
    let words = early.describe(&problem);
    assert!(words.starts_with("a frame starts before it can be there; link n0-n1; stream s0; "));
    let (found, bound) = (early.found.unwrap(), early.bound.unwrap());
    assert_eq!(bound - found, 1_000);
    assert!(words.ends_with(&format!("; {found} ns, should be at least {bound} ns")), "{words}");
}

/// With wide processing a frame can come before its turn: it waits for its gate, and without gates
/// it goes at once and can meet what is planned there.
#[test]
fn t0_a_port_without_gates_lets_frames_go_early() {
    let mut world = network();
    let trees = vec![tree(&[(5, 1), (1, 2), (2, 6)])];
    for name in ["one", "two"] {
        let mut stream = Stream::new(name, NodeId(5), NodeId(6), us(100), 105);
        stream.jitter_max = Some(Span::from_ns(0));
        world.streams.push(stream);
    }
    for node in &mut world.nodes[..4] {
        node.limits.gate_entries = Some(0);
    }
    world.place(StreamId(0), &trees, 7);
    world.place(StreamId(1), &trees, 7);
    world.plan.cycle = us(100);
    world.gates();
    world.plan.gates.retain(|gates| gates.link == link(5, 1));
    // 100 ns of processing and twice 20 of clocks on the first bridge, and again on the second.
    let report = world.report();
    let jitter: Vec<_> = report.findings.iter().map(|it| (it.rule, it.found, it.bound)).collect();
    assert_eq!(jitter, [(Rule::Jitter, Some(280), Some(0)), (Rule::Jitter, Some(280), Some(0))]);
    for stream in &mut world.streams {
        stream.jitter_max = Some(Span::from_ns(280));
    }
    assert!(world.report().is_clean());
    // 1000 ns of uncertainty and 1000 ns from start to start: no order is sure.
    world.nodes[1].processing_min = Span::from_ns(40);
    let found = world.report().findings;
    assert!(found.iter().any(|it| it.rule == Rule::Isolation && it.link == Some(link(1, 2))));
}

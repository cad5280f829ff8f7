// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each kind of certificate, right and with each of its numbers wrong.

use super::*;
use crate::model::{Certificate, Forwarding};

/// A chain: station 0, bridges 1 and 2, station 3; a second pair of links from 1 to 2 when `wide`;
/// 8 ns for a byte on the first link, and `slower` times that on the link from bridge to bridge.
pub(super) struct Chain {
    pub(super) wide: bool,
    pub(super) slower: u64,
    pub(super) forwarding: Forwarding,
}

impl Chain {
    pub(super) fn problem(&self, streams: Vec<Stream>) -> Problem {
        let role = |index| if [1, 2].contains(&index) { Role::Bridge } else { Role::EndStation };
        let nodes = (0..5)
            .map(|index| Node {
                processing_max: us(1),
                forwarding: self.forwarding,
                ..Node::new(format!("n{index}"), role(index))
            })
            .collect();
        let mut edges = vec![(0, 1), (1, 2), (2, 3), (3, 2), (4, 1)];
        if self.wide {
            edges.push((1, 2));
        }
        let links = edges.iter().enumerate().map(|(index, (from, to))| Link {
            name: format!("l{index}"),
            from: NodeId(*from),
            to: NodeId(*to),
            rate: BitsPerSecond::new(1_000_000_000 / if index == 1 { self.slower } else { 1 })
                .unwrap(),
            propagation: Span::from_ns(100),
        });
        let options = NetworkOptions { sync_error: Span::from_ns(10), ..NetworkOptions::default() };
        Problem::new(Network::new(nodes, links.collect(), options).unwrap(), streams).unwrap()
    }
}

pub(super) const CHAIN: Chain =
    Chain { wide: false, slower: 1, forwarding: Forwarding::StoreAndForward };

pub(super) fn stream(index: usize, interval: usize, bytes: u32, frames: u32) -> Stream {
    let talker = NodeId(if index == 1 { 4 } else { 0 });
    Stream { frames, ..Stream::new(format!("s{index}"), talker, NodeId(3), us(interval), bytes) }
}

/// The last stream is refused, the others are admitted.
pub(super) fn verdict(problem: &Problem, certificate: &Certificate) -> Verdict {
    let last = problem.streams().len() - 1;
    let admitted = (0..last)
        .map(|index| Admission { stream: StreamId::from_index(index), transmissions: Vec::new() })
        .collect();
    let stream = StreamId::from_index(last);
    let refusal = Refusal { stream, certificate: certificate.clone() };
    judge(problem, &Plan { admitted, ..Plan::default() }, &refusal)
}

pub(super) fn wrong(problem: &Problem, certificates: &[(Certificate, &str)]) {
    for (certificate, reason) in certificates {
        let why = (*reason).to_owned();
        assert_eq!(verdict(problem, certificate), Verdict::Wrong { why }, "{certificate:?}");
    }
}

pub(super) fn ns(ns: i64) -> Span {
    Span::from_ns(ns)
}

#[test]
fn t0_minimum_latency_is_derived_again() {
    // 125 bytes with their overhead: 1 us on each link, 100 ns of cable, 1010 ns in each bridge.
    let mut late = stream(0, 100, 105, 3);
    // Three links and cables, two bridges, and two frames that wait behind the first.
    let needed = 3 * 1_100 + 2 * 1_010 + 2 * 1_000;
    late.latency_max = ns(needed - 1);
    let path = vec![LinkId(0), LinkId(1), LinkId(2)];
    let certificate = |listener, path: &[LinkId], needed, allowed| Certificate::MinimumLatency {
        listener: NodeId(listener),
        path: path.to_vec(),
        needed: ns(needed),
        allowed: ns(allowed),
    };
    let problem = CHAIN.problem(vec![late.clone()]);
    let right = certificate(3, &path, needed, needed - 1);
    assert_eq!(verdict(&problem, &right), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(4, &path, needed, needed - 1), "it does not listen"),
            (certificate(3, &path, needed + 1, needed - 1), "there is a way that takes less"),
            (certificate(3, &path, needed, needed - 2), "more is allowed, or less"),
            (
                certificate(3, &path[..2], needed, needed - 1),
                "the path does not lead to the listener",
            ),
            (
                certificate(3, &path[1..], needed, needed - 1),
                "the path does not lead to the listener",
            ),
        ],
    );
    let patient = Stream { latency_max: ns(needed), ..late.clone() };
    let problem = CHAIN.problem(vec![patient]);
    wrong(&problem, &[(certificate(3, &path, needed, needed), "it is quick enough")]);
    // A second, quicker link beside a slow one.
    let slow = Chain { slower: 10, wide: true, ..CHAIN };
    let problem = slow.problem(vec![late.clone()]);
    let around = certificate(3, &path, needed + 9_000 * 3, needed - 1);
    wrong(&problem, &[(around, "there is a way that takes less")]);
    let direct = certificate(3, &[LinkId(0), LinkId(5), LinkId(2)], needed, needed - 1);
    assert_eq!(verdict(&problem, &direct), Verdict::Proven);
    // Cut through after 16 bytes, 128 ns, where the rates are the same: on both bridges.
    let cut = Chain { forwarding: Forwarding::CutThrough { header_bytes: 16 }, ..CHAIN };
    let needed = needed - 2 * (1_000 - 128);
    let quick = Stream { latency_max: ns(needed - 1), ..late };
    let problem = cut.problem(vec![quick.clone()]);
    assert_eq!(verdict(&problem, &certificate(3, &path, needed, needed - 1)), Verdict::Proven);
}

#[test]
fn t0_ways_are_counted_again() {
    let certificate = |listener, copies| Certificate::NoPath { listener: NodeId(listener), copies };
    let mut twice = stream(0, 100, 105, 1);
    twice.copies = 2;
    let problem = Chain { wide: true, ..CHAIN }.problem(vec![twice]);
    assert_eq!(verdict(&problem, &certificate(3, 2)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(4, 2), "it does not listen"),
            (certificate(3, 3), "the stream has another number of copies"),
        ],
    );
    let problem = CHAIN.problem(vec![stream(0, 100, 105, 1)]);
    wrong(&problem, &[(certificate(3, 1), "there are ways enough")]);
    let back = Stream::new("back", NodeId(3), NodeId(0), us(100), 105);
    assert_eq!(verdict(&CHAIN.problem(vec![back]), &certificate(0, 1)), Verdict::Proven);
}

/// Two ways that must give back a link which the first one took.
#[test]
fn t0_ways_are_exchanged_where_that_gives_more() {
    let mut world = network();
    let mut twice = Stream::new("twice", NodeId(4), NodeId(6), us(100), 105);
    twice.copies = 2;
    world.streams.push(twice);
    let certificate = Certificate::NoPath { listener: NodeId(6), copies: 2 };
    let reason = Verdict::Wrong { why: "there are ways enough".to_owned() };
    assert_eq!(verdict(&world.problem(), &certificate), reason);
}

#[test]
fn t0_windows_are_derived_again() {
    let certificate = |link, needed, available| Certificate::Window {
        link: LinkId(link),
        needed: us(needed),
        available: us(available),
    };
    let problem = CHAIN.problem(vec![stream(0, 10, 1_230, 2)]);
    assert_eq!(verdict(&problem, &certificate(1, 20, 10)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(4, 20, 10), "a stream can avoid the link"),
            (certificate(9, 20, 10), "there is no such link"),
            (certificate(1, 20, 11), "the interval is another"),
            (certificate(1, 21, 10), "the message occupies the link for another time"),
        ],
    );
    let problem = CHAIN.problem(vec![stream(0, 20, 1_230, 2)]);
    wrong(&problem, &[(certificate(1, 20, 20), "it is short enough")]);
    let problem = Chain { wide: true, ..CHAIN }.problem(vec![stream(0, 10, 1_230, 2)]);
    wrong(&problem, &[(certificate(1, 20, 10), "a stream can avoid the link")]);
    let given = Route::Given(vec![vec![LinkId(0), LinkId(1), LinkId(2)]]);
    let fixed = Stream { route: given, ..stream(0, 10, 1_230, 2) };
    let problem = Chain { wide: true, ..CHAIN }.problem(vec![fixed]);
    assert_eq!(verdict(&problem, &certificate(1, 20, 10)), Verdict::Proven);
}

pub(super) fn ids(ids: &[u32]) -> Vec<StreamId> {
    ids.iter().copied().map(StreamId).collect()
}

#[test]
fn t0_loads_are_derived_again() {
    let certificate = |link, streams: &[u32], needed, cycle| Certificate::LinkLoad {
        link: LinkId(link),
        streams: ids(streams),
        needed: us(needed),
        cycle: us(cycle),
    };
    // 10 us in 20, and 10 in 30, and 20 in 60: more than 60 in 60 with the last.
    let streams = vec![stream(0, 20, 1_230, 1), stream(1, 30, 1_230, 1), stream(2, 60, 1_230, 2)];
    let problem = CHAIN.problem(streams.clone());
    assert_eq!(verdict(&problem, &certificate(1, &[0, 1, 2], 70, 60)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(1, &[0, 2], 50, 60), "there is room for all"),
            (certificate(1, &[0, 1], 50, 60), "the refused stream is not named"),
            (certificate(1, &[0, 1, 2, 2], 70, 60), "a stream is named twice"),
            (certificate(1, &[0, 1, 2, 7], 70, 60), "a stream is named that is not admitted"),
            (certificate(1, &[0, 1, 2], 71, 60), "the load is another"),
            (
                certificate(1, &[0, 1, 2], 70, 120),
                "the common multiple of the intervals is another",
            ),
            (certificate(0, &[0, 1, 2], 70, 60), "a stream can avoid the link"),
        ],
    );
    let problem = Chain { wide: true, ..CHAIN }.problem(streams);
    wrong(&problem, &[(certificate(1, &[0, 1, 2], 70, 60), "a stream can avoid the link")]);
}

#[test]
fn t0_pairs_are_derived_again() {
    let certificate = |link, other, needed, divisor| Certificate::PairConflict {
        link: LinkId(link),
        other: StreamId(other),
        needed: us(needed),
        divisor: us(divisor),
    };
    let problem = CHAIN.problem(vec![stream(0, 40, 1_230, 1), stream(1, 60, 1_355, 1)]);
    assert_eq!(verdict(&problem, &certificate(1, 0, 21, 20)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(1, 1, 22, 60), "a stream is named twice"),
            (certificate(1, 0, 20, 20), "frames of each fill another time"),
            (certificate(1, 0, 21, 19), "two intervals have another common divisor"),
            (certificate(1, 0, 21, 40), "they fit"),
            (certificate(0, 0, 21, 20), "a stream can avoid the link"),
        ],
    );
}

#[test]
fn t0_pigeonholes_are_derived_again() {
    let certificate = |streams: &[u32], needed, divisor| Certificate::Clique {
        link: LinkId(1),
        streams: ids(streams),
        needed: us(needed),
        divisor: us(divisor),
    };
    // Each two of 40, 60 and 100 us have 20 us in common; frames of 10 us.
    let three = |frames| {
        vec![stream(0, 40, 1_230, 1), stream(1, 60, 1_230, 1), stream(2, 100, 1_230, frames)]
    };
    let problem = CHAIN.problem(three(1));
    assert_eq!(verdict(&problem, &certificate(&[0, 1, 2], 30, 20)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (certificate(&[1, 2], 20, 20), "they fit"),
            (certificate(&[2], 10, 20), "it takes two streams and a divisor"),
            (certificate(&[0, 1, 2], 30, 10), "two intervals have another common divisor"),
            (certificate(&[0, 1, 2], 40, 20), "frames of each fill another time"),
        ],
    );
    // Frames of one message may be a multiple of the divisor apart: each message counts once.
    let problem = CHAIN.problem(vec![stream(0, 40, 1_230, 1), stream(1, 60, 1_230, 2)]);
    wrong(&problem, &[(certificate(&[0, 1], 30, 20), "they fit")]);
    // But not when the divisor is the interval itself.
    let problem = CHAIN.problem(vec![stream(0, 40, 1_230, 1), stream(1, 20, 1_230, 2)]);
    assert_eq!(verdict(&problem, &certificate(&[0, 1], 30, 20)), Verdict::Proven);
}

#[test]
fn t0_talkers_without_instants_are_looked_up() {
    let certificate = |node| Certificate::NoInstant { node: NodeId(node) };
    let mut world = network();
    world.streams.push(Stream::new("one", NodeId(4), NodeId(6), us(100), 105));
    wrong(
        &world.problem(),
        &[(certificate(5), "it does not talk"), (certificate(4), "it has gates or launch times")],
    );
    world.nodes[4].limits.gate_entries = Some(0);
    wrong(&world.problem(), &[(certificate(4), "it has gates or launch times")]);
    world.nodes[4].limits.launch_time = false;
    assert_eq!(verdict(&world.problem(), &certificate(4)), Verdict::Proven);
}

#[test]
fn t0_what_is_no_proof_is_not_proven() {
    let problem = CHAIN.problem(vec![stream(0, 40, 100, 1)]);
    for certificate in [
        Certificate::NotFound { tried: 7 },
        Certificate::GateLimit { link: LinkId(1), needed: 9, allowed: 8 },
        Certificate::Solver { statement: "unsatisfiable".to_owned() },
    ] {
        assert_eq!(verdict(&problem, &certificate), Verdict::NotProven);
    }
    let refusal = Refusal { stream: StreamId(5), certificate: Certificate::NotFound { tried: 1 } };
    let unknown = judge(&problem, &Plan::default(), &refusal);
    assert_eq!(unknown, Verdict::Wrong { why: "there is no such stream".to_owned() });
}

#[test]
fn t0_jitter_that_no_gate_takes_away_is_a_proof() {
    let mut problem = CHAIN.problem(vec![stream(0, 100, 105, 1)]);
    // 1 us of processing that may be 0, clocks 10 ns apart on either side: 1020 ns a bridge.
    let gateless = |node: &Node, bridges: &[&str]| Node {
        processing_min: Span::ZERO,
        limits: DeviceLimits {
            gate_entries: bridges.contains(&node.name.as_str()).then_some(0),
            ..node.limits
        },
        ..node.clone()
    };
    let without = |problem: &Problem, bridges: &[&str], jitter: Option<Span>| {
        let network = problem.network();
        let nodes = network.nodes().iter().map(|node| gateless(node, bridges)).collect();
        let network = Network::new(nodes, network.links().to_vec(), network.options()).unwrap();
        let stream = Stream { jitter_max: jitter, ..problem.stream(StreamId(0)).clone() };
        Problem::new(network, vec![stream]).unwrap()
    };
    let path = vec![LinkId(0), LinkId(1), LinkId(2)];
    let claim = |parts: &[i64], needed: i64| Certificate::Jitter {
        listener: NodeId(3),
        path: path.clone(),
        parts: parts.iter().map(|part| ns(*part)).collect(),
        needed: ns(needed),
        allowed: ns(1_000),
        proof: true,
    };
    problem = without(&problem, &["n2"], Some(ns(1_000)));
    assert_eq!(verdict(&problem, &claim(&[0, 0, 1_020], 1_020)), Verdict::Proven);
    wrong(
        &problem,
        &[
            (claim(&[0, 0, 1_021], 1_021), "there is a way that differs less"),
            (claim(&[0, 1_020, 1_020], 2_040), "there is a way that differs less"),
            (claim(&[0, 0, 1_020], 1_019), "its parts are another sum"),
            (claim(&[0, 1_020], 1_020), "its parts are another sum"),
            (claim(&[0, 0, 1_000], 1_000), "it differs little enough"),
            (claim(&[0, i64::MAX, i64::MAX], 1_020), "its parts are another sum"),
        ],
    );
    let Certificate::Jitter { parts, .. } = claim(&[0, 1_020], 1_020) else { unreachable!() };
    let astray = Certificate::Jitter {
        listener: NodeId(3),
        path: vec![LinkId(0), LinkId(1)],
        parts,
        needed: ns(1_020),
        allowed: ns(1_000),
        proof: true,
    };
    wrong(&problem, &[(astray, "the path does not lead to a listener")]);
    // Frames come to n1 from stations only, and from there through two bridges without gates.
    let both = without(&problem, &["n1", "n2"], Some(ns(2_000)));
    let two = claim(&[0, 1_020, 1_020], 2_040);
    assert_eq!(
        verdict(&both, &two),
        // A station at n2 has frames that come past one bridge only.
        Verdict::Wrong { why: "there is a way that differs less".to_owned() }
    );
    // With gates everything can be held back, and without a limit nothing is asked.
    let gates = without(&problem, &[], Some(ns(1_000)));
    wrong(&gates, &[(claim(&[0, 0, 1_020], 1_020), "there is a way that differs less")]);
    let any = without(&problem, &["n2"], None);
    wrong(&any, &[(claim(&[0, 0, 1_020], 1_020), "it may differ by anything")]);
    // What says itself that it is no proof is none.
    let mut open = claim(&[0, 0, 1_020], 1_020);
    if let Certificate::Jitter { proof, .. } = &mut open {
        *proof = false;
    }
    assert_eq!(verdict(&problem, &open), Verdict::NotProven);
    assert!(!open.is_proof());
}

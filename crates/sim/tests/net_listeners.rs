// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams with several listeners, streams as they were captured, and what an observer is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_sim::net::{
    Access, Delay, Fault, FaultKind, LinkSpec, LostBy, MediumSpec, NetError, Network, NodeSpec,
    Observer, Replay, Seen, SimOutcome, Simulation, StreamSpec, Traffic, What, plain_port,
};

fn us(us: i64) -> Span {
    Span::from_us(us)
}

fn rate() -> BitsPerSecond {
    BitsPerSecond::new(100_000_000).unwrap()
}

fn stream(from: usize, to: usize, traffic: Traffic) -> StreamSpec {
    let frame = FrameLen::new(101).unwrap();
    StreamSpec { from, to, class: 0, frame, traffic, launch: None, shape: None }
}

fn every(period: Span) -> Traffic {
    let (offset, spacing) = (Span::ZERO, Span::ZERO);
    Traffic::Cyclic { period, offset, jitter: Delay::NONE, frames: 1, spacing }
}

/// Talker 0 at bridge 1, to which listeners 2 and 3 and bridge 4 are linked, and to that 5.
fn tree() -> Network {
    // No message is on its way at the end.
    let mut network = Network::empty(us(10_500), 1);
    network.nodes = vec![NodeSpec::default(); 6];
    let link = |(a, b)| LinkSpec::plain(a, b, rate(), Span::ZERO);
    network.links = [(0, 1), (1, 2), (1, 3), (1, 4), (4, 5)].map(link).to_vec();
    network.streams = vec![stream(0, 2, every(us(1_000)))];
    network.more_listeners = BTreeMap::from([(0, vec![5, 3])]);
    network
}

fn run(network: &Network) -> SimOutcome {
    let outcome = Simulation::run(network).unwrap();
    assert_eq!(outcome.violations, []);
    outcome
}

/// 101 bytes, check sequence and preamble, at 80 ns each.
const ONE: u64 = 113 * 80_000;

#[test]
fn t2_a_stream_comes_to_all_its_listeners_and_is_sent_once_on_each_link() {
    let outcome = run(&tree());
    let listeners = &outcome.listeners[&0];
    let latencies = listeners.iter().map(|it| (it.latencies.min_ps(), it.latencies.max_ps()));
    let hops = [2, 3, 2].map(|hops| (Some(hops * ONE), Some(hops * ONE)));
    assert_eq!(latencies.collect::<Vec<_>>(), hops);
    assert!(listeners.iter().all(|it| it.sent == it.delivered && it.lost_total() == 0));
    // One transmission on each of the five links, not one for each listener.
    let messages = listeners[0].sent;
    assert_eq!((outcome.hops, outcome.streams[0].sent), (5 * messages, 3 * messages));
    assert_eq!(outcome.streams[0].latencies.max_ps(), Some(3 * ONE));
}

#[test]
fn t2_what_is_lost_is_lost_for_those_behind_it() {
    let mut network = tree();
    let (at, lasts) = (Span::ZERO, Span::from_secs(1));
    // The link to bridge 4: only listener 5 is behind it.
    network.faults = vec![Fault { at, lasts, kind: FaultKind::LinkDown(3) }];
    let outcome = run(&network);
    let delivered: Vec<bool> = outcome.listeners[&0].iter().map(|it| it.delivered > 0).collect();
    assert_eq!(delivered, [true, false, true]);
    // The talker's own link: everybody is.
    network.faults[0].kind = FaultKind::LinkDown(0);
    let outcome = run(&network);
    let down = LostBy::ALL.iter().position(|by| *by == LostBy::LinkDown).unwrap();
    assert!(outcome.listeners[&0].iter().all(|it| it.lost[down] == it.sent && it.sent > 5));
}

#[test]
fn t2_a_segment_is_heard_by_all_listeners_on_it() {
    let mut network = Network::empty(us(10_500), 1);
    network.nodes = vec![NodeSpec::default(); 4];
    network.media = vec![MediumSpec {
        access: Access::InTurn,
        delay: Span::ZERO,
        stations: (0..4).map(|node| (node, plain_port(rate()))).collect(),
        loss_ppb: 0,
        corrupt_ppb: 0,
    }];
    network.streams = vec![stream(0, 1, every(us(1_000)))];
    network.more_listeners = BTreeMap::from([(0, vec![2, 3])]);
    let outcome = run(&network);
    let listeners = &outcome.listeners[&0];
    assert!(listeners.iter().all(|it| it.latencies.max_ps() == Some(ONE)));
    assert_eq!(outcome.hops, listeners[0].sent);
}

#[test]
fn t2_a_bridge_looks_at_a_frame_once_for_all_its_copies() {
    // Station 0 and bridges 1 and 2 on a segment; 3 and 5 behind the one, 4 behind the other.
    let mut network = Network::empty(us(10_500), 1);
    network.nodes = vec![NodeSpec::default(); 6];
    for bridge in [1, 2] {
        network.nodes[bridge].forward = Delay::Uniform(us(0), us(100));
    }
    network.media = vec![MediumSpec {
        access: Access::InTurn,
        delay: Span::ZERO,
        stations: (0..3).map(|node| (node, plain_port(rate()))).collect(),
        loss_ppb: 0,
        corrupt_ppb: 0,
    }];
    let link = |(a, b)| LinkSpec::plain(a, b, rate(), Span::ZERO);
    network.links = [(1, 3), (2, 4), (1, 5)].map(link).to_vec();
    network.streams = vec![stream(0, 3, every(us(1_000)))];
    network.more_listeners = BTreeMap::from([(0, vec![4, 5])]);
    let outcome = run(&network);
    let listeners = &outcome.listeners[&0];
    assert_eq!(listeners[0].latencies, listeners[2].latencies);
    assert_ne!(listeners[0].latencies, listeners[1].latencies);
}

#[test]
fn t2_any_listener_can_answer_and_others_do_not_ask() {
    let mut network = tree();
    let after = |stream| Traffic::After { stream, work: Delay::NONE, from_cause: false };
    network.streams.push(stream(3, 0, after(0)));
    let outcome = run(&network);
    assert_eq!(outcome.streams[1].sent, outcome.listeners[&0][2].delivered);
    network.streams[1].from = 4;
    let refused = Simulation::run(&network).unwrap_err();
    assert_eq!(refused, NetError::Elsewhere { stream: 1, cause: 0 });
}

#[test]
fn t2_a_replay_has_the_times_and_lengths_of_its_frames() {
    let mut frames = Replay::default();
    for (at, bytes) in [(0, 60), (700, 1_000), (700, 101), (900, 60)] {
        frames.push(us(at), FrameLen::new(bytes).unwrap()).unwrap();
    }
    let mut network = tree();
    network.more_listeners.clear();
    let replay = Traffic::Replay { frames: Arc::new(frames), offset: us(50) };
    network.streams = vec![stream(0, 2, replay)];
    let told = watched(&network);
    let released: Vec<(u64, u32)> = told
        .iter()
        .filter(|seen| seen.what == What::Released)
        .map(|seen| (seen.at_ps / 1_000_000, seen.wire_bytes))
        .collect();
    assert_eq!(released, [(50, 84), (750, 1_024), (750, 125), (950, 84)]);
    let outcome = run(&network);
    assert_eq!((outcome.streams[0].sent, outcome.streams[0].delivered), (4, 4));
    // The shortest frame: 72 bytes with its preamble, on two links.
    assert_eq!(outcome.streams[0].latencies.min_ps(), Some(2 * 72 * 80_000));
    let (at, lasts) = (Span::ZERO, us(10));
    network.faults = vec![Fault { at, lasts, kind: FaultKind::Babble(0) }];
    let refused = Simulation::run(&network).unwrap_err();
    assert_eq!(refused, NetError::BabblingReplay { stream: 0 });
}

struct Keeps(Arc<Mutex<Vec<Seen>>>);

impl Observer for Keeps {
    fn seen(&mut self, seen: &Seen) {
        self.0.lock().unwrap().push(*seen);
    }
}

/// All that an observer is told; the outcome is the same as without.
fn watched(network: &Network) -> Vec<Seen> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let mut simulation = Simulation::new(network).unwrap();
    simulation.observe(Box::new(Keeps(Arc::clone(&kept))));
    while simulation.go_on(1_000).unwrap() {}
    assert_eq!(simulation.finish(), run(network));
    let kept = kept.lock().unwrap();
    assert!(kept.windows(2).all(|two| two[0].at_ps <= two[1].at_ps));
    kept.clone()
}

#[test]
fn t2_an_observer_is_told_of_every_frame_from_its_release_to_its_end() {
    let mut network = tree();
    network.links[2].loss_ppb = 300_000_000;
    network.links[4].corrupt_ppb = 300_000_000;
    let told = watched(&network);
    let outcome = run(&network);
    let count = |is: fn(&What) -> bool| told.iter().filter(|seen| is(&seen.what)).count();
    let sum = |of: fn(&timewire_sim::net::StreamResult) -> u64| {
        let all: u64 = outcome.listeners[&0].iter().map(of).sum();
        usize::try_from(all).unwrap()
    };
    let listeners = outcome.listeners[&0].len();
    assert_eq!(count(|what| *what == What::Released) * listeners, sum(|it| it.sent));
    assert_eq!(count(|what| matches!(what, What::Delivered { .. })), sum(|it| it.delivered));
    assert_eq!(count(|what| matches!(what, What::Missed { .. })), sum(|it| it.lost_total()));
    assert_eq!(count(|what| matches!(what, What::Lost { .. })), sum(|it| it.lost_total()));
    assert_eq!(
        u64::try_from(count(|what| matches!(what, What::Started { .. }))).unwrap(),
        outcome.hops
    );
    assert!(sum(|it| it.lost_total()) > 2, "{outcome:?}");
    // A copy is where it is told to come to, at the port that is told.
    let ways = network.ways().unwrap();
    for seen in &told {
        if let What::Queued { port } | What::Started { port, .. } = seen.what {
            assert_eq!(ways[seen.stream][usize::from(seen.hop)], port);
        }
    }
}

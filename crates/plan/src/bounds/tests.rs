// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds beside figures derived by hand, and beside what a small simulator shows.

use timewire_base::{BitsPerSecond, Span};

use super::*;
use crate::model::{Link, Network, NetworkOptions, Node, NodeId, Problem, Role, Stream, StreamId};

mod simulator;

pub(super) fn node(index: usize, role: Role) -> Node {
    Node::new(format!("n{index}"), role)
}

/// Links of so many Mbit/s between these nodes; what nothing leaves or joins but one is a station.
pub(super) fn network(nodes: Vec<Node>, edges: &[(u32, u32, u64)]) -> Network {
    let links = edges.iter().enumerate().map(|(index, (from, to, mbit))| Link {
        name: format!("l{index}"),
        from: NodeId(*from),
        to: NodeId(*to),
        rate: BitsPerSecond::new(mbit * 1_000_000).unwrap(),
        propagation: Span::ZERO,
    });
    Network::new(nodes, links.collect(), NetworkOptions::default()).unwrap()
}

/// Two stations, 0 and 1, at a bridge 2, and a listener 3; all at 1 Gbit/s.
fn star(streams: Vec<Stream>) -> (Problem, Vec<Route>) {
    let roles = [Role::EndStation, Role::EndStation, Role::Bridge, Role::EndStation];
    let nodes = roles.iter().enumerate().map(|(index, role)| node(index, *role)).collect();
    let network = network(nodes, &[(0, 2, 1_000), (1, 2, 1_000), (2, 3, 1_000)]);
    let routes = streams.iter().enumerate().map(|(index, stream)| Route {
        stream: StreamId::from_index(index),
        links: vec![LinkId(stream.talker.0), LinkId(2)],
        together: 0,
    });
    let routes = routes.collect();
    (Problem::new(network, streams).unwrap(), routes)
}

fn stream(index: u32, talker: u32, priority: u8, bytes: u32) -> Stream {
    let name = format!("s{index}");
    let interval = Span::from_us(1_000);
    let stream = Stream::new(name, NodeId(talker), NodeId(3), interval, bytes - 20);
    Stream { priority, ..stream }
}

fn schemes(scheme: &PortScheme) -> Vec<PortScheme> {
    vec![scheme.clone(); 3]
}

fn latency(bounds: &NetworkBounds, stream: usize) -> i64 {
    bounds.streams[stream].latency.unwrap().as_ns()
}

#[test]
fn t0_alone_a_stream_waits_for_one_frame_of_others_on_each_link() {
    let (problem, routes) = star(vec![stream(0, 0, 7, 125)]);
    let bounds = bound(&problem, &routes, &schemes(&PortScheme::default())).unwrap();
    // Twice 1542 bytes of others and 125 of its own.
    let hop = (1_542 + 125) * 8;
    assert_eq!(latency(&bounds, 0), 2 * hop);
    assert_eq!(bounds.streams[0].jitter, Some(Span::from_ns(2 * 1_542 * 8)));
    // What comes while the other's frame is sent is the backlog: a burst of 1000 bits, and a
    // little of the next message, which comes at 1 bit/us.
    let queue = bounds.queues.iter().find(|queue| queue.link == LinkId(0)).unwrap();
    assert_eq!(queue.backlog_bytes, Some(127));
    let quiet = PortScheme { other_bytes: 0, ..PortScheme::default() };
    let bounds = bound(&problem, &routes, &schemes(&quiet)).unwrap();
    assert_eq!((latency(&bounds, 0), bounds.streams[0].jitter), (2_000, Some(Span::ZERO)));
}

#[test]
fn t0_express_frames_wait_for_143_bytes() {
    let (problem, routes) = star(vec![stream(0, 0, 7, 125)]);
    let scheme = PortScheme { other_preemptable: true, ..PortScheme::default() };
    let bounds = bound(&problem, &routes, &schemes(&scheme)).unwrap();
    assert_eq!(latency(&bounds, 0), 2 * (1_144 + 1_000));
    // Who can be interrupted as well waits for the whole frame.
    let scheme = PortScheme { preemptable: 1 << 7, ..scheme };
    let bounds = bound(&problem, &routes, &schemes(&scheme)).unwrap();
    assert_eq!(latency(&bounds, 0), 2 * (1_542 + 125) * 8);
}

#[test]
fn t0_interrupted_frames_pay_for_each_interruption() {
    let (problem, routes) = star(vec![stream(0, 0, 7, 125), stream(1, 1, 3, 125)]);
    let quiet = PortScheme { other_bytes: 0, ..PortScheme::default() };
    let plain = latency(&bound(&problem, &routes, &schemes(&quiet)).unwrap(), 1);
    let scheme = PortScheme { preemptable: 1 << 3, ..quiet };
    let interrupted = latency(&bound(&problem, &routes, &schemes(&scheme)).unwrap(), 1);
    assert!((plain + 24 * 8..plain + 24 * 8 + 5).contains(&interrupted), "{plain} {interrupted}");
}

#[test]
fn t0_lower_classes_wait_for_higher_ones() {
    let (problem, routes) = star(vec![stream(0, 0, 7, 1_250), stream(1, 1, 3, 125)]);
    let quiet = PortScheme { other_bytes: 0, ..PortScheme::default() };
    let bounds = bound(&problem, &routes, &schemes(&quiet)).unwrap();
    // Alone on the first link, 1 us. On the second the higher frame of 10 us, a hundredth more
    // for what its stream brings meanwhile, and its own.
    assert!((12_000..12_300).contains(&latency(&bounds, 1)), "{}", latency(&bounds, 1));
    // The higher one waits for one frame of the lower on the shared link.
    assert_eq!(latency(&bounds, 0), 10_000 + 1_000 + 10_000);
}

#[test]
fn t0_credit_makes_a_class_wait_for_its_slope() {
    let (problem, routes) = star(vec![stream(0, 0, 6, 125)]);
    let idle_slope = BitsPerSecond::new(100_000_000).unwrap();
    let mut scheme = PortScheme::default();
    scheme.classes[6] = Selection::Credit { idle_slope };
    let bounds = bound(&problem, &routes, &schemes(&scheme)).unwrap();
    // A frame of others, then its own at a tenth of the rate, on both links. On the second its
    // burst
    // has grown by 22 bits, 1 bit/us of what the first wait can differ; the link brings them no
    // faster than they last, 22 ns, which the last of them has waited less.
    let first = 1_542 * 8 + 10_000;
    assert_eq!(latency(&bounds, 0), 2 * first + 220 - 22 + 1);
}

#[test]
fn t0_the_lower_class_with_credit_waits_for_the_burst_of_the_higher() {
    let (problem, routes) = star(vec![stream(0, 0, 6, 1_542), stream(1, 0, 5, 1_542)]);
    let mut scheme = PortScheme::default();
    for (class, mbit) in [(6, 500_u64), (5, 250)] {
        let idle_slope = BitsPerSecond::new(mbit * 1_000_000).unwrap();
        scheme.classes[class] = Selection::Credit { idle_slope };
    }
    let bounds = bound(&problem, &routes, &schemes(&scheme)).unwrap();
    let delay = |class| {
        let mut queues = bounds.queues.iter();
        let queue = queues.find(|queue| queue.link == LinkId(0) && queue.class == class);
        queue.unwrap().delay.unwrap().as_ns()
    };
    // 12336 bits: a frame of others, and its own at half the rate.
    assert_eq!(delay(6), 12_336 + 2 * 12_336);
    // A frame of others and what is sent of the higher class from the credit of that time, one more
    // of it, and its own at a quarter of the rate.
    assert_eq!(delay(5), 2 * 12_336 + 12_336 + 4 * 12_336);
}

#[test]
fn t0_a_class_by_strict_priority_between_two_with_credit_is_refused() {
    let streams = vec![stream(0, 0, 6, 125), stream(1, 0, 5, 125), stream(2, 1, 4, 125)];
    let (problem, routes) = star(streams);
    let idle_slope = BitsPerSecond::new(100_000_000).unwrap();
    let mut scheme = PortScheme::default();
    scheme.classes[6] = Selection::Credit { idle_slope };
    scheme.classes[4] = Selection::Credit { idle_slope };
    let error = bound(&problem, &routes, &schemes(&scheme)).unwrap_err();
    assert!(matches!(error, BoundsError::Between { class: 5, .. }));
}

#[test]
fn t0_gates_are_waited_for() {
    let (problem, routes) = star(vec![stream(0, 0, 3, 125)]);
    let open = |start, end, open| ClassWindow {
        start: Span::from_us(start),
        end: Span::from_us(end),
        open,
        hold: false,
    };
    let windows = vec![open(0, 40, 0x80), open(40, 100, 0x7f)];
    let gates = ClassGates { cycle: Span::from_us(100), windows };
    let scheme = PortScheme { gates: Some(gates), other_bytes: 0, ..PortScheme::default() };
    let bounds = bound(&problem, &routes[..], &schemes(&scheme)).unwrap();
    let delay = bounds.queues[0].delay.unwrap().as_ns();
    // 40 us shut, and 1 us before in which the frame would not have ended; then its own 1 us, as
    // the average rate of 59 in 100 has it.
    assert!((42_000..=42_700).contains(&delay), "{delay}");
    let shut = PortScheme {
        gates: Some(ClassGates { cycle: Span::from_us(100), windows: vec![open(0, 40, 0x80)] }),
        ..PortScheme::default()
    };
    let bounds = bound(&problem, &routes, &schemes(&shut)).unwrap();
    assert_eq!(bounds.streams[0].latency, None);
    let without = bounds.streams[0].without.as_ref().unwrap();
    assert_eq!(without.origin, PortClass { link: LinkId(0), class: 3 });
    assert_eq!((without.first, &*without.cause), (without.origin, &Cause::Shut));
}

#[test]
fn t0_preemptable_frames_wait_for_a_hold_and_what_was_cut_by_it() {
    let (problem, routes) = star(vec![stream(0, 0, 3, 125)]);
    let open = |start, end, open, hold| ClassWindow {
        start: Span::from_us(start),
        end: Span::from_us(end),
        open,
        hold,
    };
    let delay = |preemptable: u8, hold: bool| {
        let windows = vec![open(0, 40, 0x80, hold), open(40, 100, 0x7f, false)];
        let gates = Some(ClassGates { cycle: Span::from_us(100), windows });
        let hold_advance = Span::from_us(2);
        let scheme = PortScheme {
            gates,
            preemptable,
            hold_advance,
            other_bytes: 0,
            ..PortScheme::default()
        };
        let bounds = bound(&problem, &routes[..], &schemes(&scheme)).unwrap();
        bounds.queues[0].delay.unwrap().as_ns()
    };
    let express = delay(0, true);
    assert_eq!(express, delay(0x0f, false), "who is not held waits for its gate alone");
    // 2 us before, and 167 bytes after it: the end of one that was cut.
    let held = delay(0x0f, true) - express;
    assert!((3_336..=3_500).contains(&held), "{held}");
}

#[test]
fn t0_gates_beside_a_plan() {
    let window = |start, end, queue| crate::model::GateWindow {
        start: Span::from_us(start),
        end: Span::from_us(end),
        queue,
    };
    let gates = crate::model::PortGates {
        link: LinkId(0),
        cycle: Span::from_us(100),
        windows: vec![window(10, 20, 7), window(20, 30, 6)],
        entries: 4,
        spare: Span::ZERO,
    };
    let masks: Vec<(i64, u8, bool)> = ClassGates::beside(&gates)
        .windows
        .iter()
        .map(|it| ((it.end - it.start).as_ns() / 1_000, it.open, it.hold))
        .collect();
    let (rest, first) = ((10, 0x3f, false), (10, 0x80, true));
    assert_eq!(masks, [rest, first, (10, 0x40, true), (70, 0x3f, false)]);
}

/// Three bridges in a ring with a stream over two links each: the bursts feed each other.
fn ring() -> (Problem, Vec<Route>) {
    let role = |index| if index < 3 { Role::Bridge } else { Role::EndStation };
    let nodes = (0..6).map(|index| node(index, role(index))).collect();
    let mut edges = vec![(0, 1, 100), (1, 2, 100), (2, 0, 100)];
    edges.extend([(3, 0, 100), (4, 1, 100), (5, 2, 100), (0, 3, 100), (1, 4, 100), (2, 5, 100)]);
    let streams: Vec<Stream> = (0..3_u32)
        .map(|index| {
            let (talker, listener) = (NodeId(3 + index), NodeId(3 + (index + 2) % 3));
            Stream::new(format!("s{index}"), talker, listener, Span::from_us(1_000), 980)
        })
        .collect();
    let links = |index: u32| [3 + index, index, (index + 1) % 3, 6 + (index + 2) % 3];
    let routes = (0..3_u32).map(|index| Route {
        stream: StreamId(index),
        links: links(index).map(LinkId).to_vec(),
        together: 0,
    });
    (Problem::new(network(nodes, &edges), streams).unwrap(), routes.collect())
}

#[test]
fn t0_bursts_of_a_circle_fit_each_other() {
    let (problem, routes) = ring();
    let bounds = bound(&problem, &routes, &vec![PortScheme::default(); 9]).unwrap();
    assert!(bounds.streams.iter().all(|stream| stream.without.is_none()));
    // Without the circle: as with regulators. The bursts that grow in it add less than a message.
    let (other, own) = (1_542 * 80, 1_000 * 80);
    let expected = 4 * (other + own) + 2 * own;
    let found = latency(&bounds, 0);
    assert!((expected..expected + 2 * own).contains(&found), "{found}");
    // All are alike, so that all have one bound.
    assert!((1..3).all(|stream| latency(&bounds, stream) == found));
}

/// Five bridges, each linked to each other and with a station: a stream over all five in every
/// order. At each port frames of three others meet.
fn braid() -> (Problem, Vec<Route>) {
    let role = |index| if index < 5 { Role::Bridge } else { Role::EndStation };
    let nodes = (0..10).map(|index| node(index, role(index))).collect();
    let pairs = (0..5_u32).flat_map(|one| (0..5_u32).map(move |other| (one, other)));
    let mut edges: Vec<(u32, u32, u64)> =
        pairs.filter(|(one, other)| one != other).map(|(one, other)| (one, other, 100)).collect();
    edges.extend(
        (0..5).flat_map(|bridge| [(5 + bridge, bridge, 1_000), (bridge, 5 + bridge, 1_000)]),
    );
    let mut orders: Vec<Vec<u32>> = vec![Vec::new()];
    for _ in 0..5 {
        let longer = |order: &Vec<u32>| {
            let order = order.clone();
            let next = (0..5).filter(|it| !order.contains(it)).collect::<Vec<u32>>();
            next.into_iter().map(move |it| [&order[..], &[it]].concat())
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    let link = |from: u32, to: u32| {
        let found = edges.iter().position(|edge| (edge.0, edge.1) == (from, to));
        LinkId::from_index(found.unwrap())
    };
    let (mut streams, mut routes) = (Vec::new(), Vec::new());
    for order in &orders {
        let (talker, listener) = (5 + order[0], 5 + order[4]);
        let name = format!("s{}", streams.len());
        let interval = Span::from_us(1_000);
        let ends = (NodeId(talker), NodeId(listener));
        let way = [&[talker], &order[..], &[listener]].concat();
        routes.push(Route {
            stream: StreamId::from_index(streams.len()),
            links: way.windows(2).map(|pair| link(pair[0], pair[1])).collect(),
            together: 0,
        });
        streams.push(Stream::new(name, ends.0, ends.1, interval, 480));
    }
    (Problem::new(network(nodes, &edges), streams).unwrap(), routes)
}

#[test]
fn t0_a_circle_without_rest_is_told_and_regulators_break_it() {
    let (problem, routes) = braid();
    let scheme = PortScheme::default();
    let bounds = bound(&problem, &routes, &vec![scheme.clone(); 30]).unwrap();
    for stream in &bounds.streams {
        let without = stream.without.as_ref().unwrap();
        let Cause::Circular { queues } = &*without.cause else { panic!("{without:?}") };
        assert!(queues.len() > 1 && queues.contains(&without.origin), "{without:?}");
        assert!(without.cause.describe(&problem).ends_with("grow with each other without end"));
    }
    assert!(bounds.streams.iter().all(|stream| stream.latency.is_none()));
    // What comes first, and what nothing comes back to, has its bound all the same.
    let first = bounds.queues.iter().filter(|queue| queue.link.0 >= 20 && queue.link.0 % 2 == 0);
    assert!({ first }.all(|queue| queue.without.is_none()));
    let mut regulated = scheme;
    regulated.classes[7] = Selection::Regulated;
    let bounds = bound(&problem, &routes, &vec![regulated; 30]).unwrap();
    assert!(bounds.queues.iter().all(|queue| queue.without.is_none()));
}

#[test]
fn t0_overload_and_wrong_routes_are_told() {
    let mut heavy = stream(0, 0, 7, 1_250);
    heavy.interval = Span::from_us(9);
    let (problem, mut routes) = star(vec![heavy, stream(1, 0, 3, 125)]);
    let bounds = bound(&problem, &routes, &schemes(&PortScheme::default())).unwrap();
    let own = PortClass { link: LinkId(0), class: 7 };
    let beside = PortClass { link: LinkId(0), class: 3 };
    for (stream, first) in bounds.streams.iter().zip([own, beside]) {
        let without = stream.without.as_ref().unwrap();
        assert_eq!((without.first, without.origin), (first, own));
        assert!(matches!(*without.cause, Cause::Overload { link_bps: 1_000_000_000, .. }));
    }
    assert!(bounds.streams.iter().all(|stream| stream.latency.is_none()));
    routes[0].links.swap(0, 1);
    let error = bound(&problem, &routes, &schemes(&PortScheme::default())).unwrap_err();
    assert_eq!(error, BoundsError::Route { stream: StreamId(0), link: LinkId(2) });
    let error = bound(&problem, &[], &[]).unwrap_err();
    assert_eq!(error, BoundsError::Schemes { schemes: 0, links: 3 });
}

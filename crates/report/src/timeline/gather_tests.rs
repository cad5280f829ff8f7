// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of two hosts by hand, and what is gathered of it.

use timewire_base::{Span, Window};
use timewire_capture::packet_path::{OneClock, Parts, Rule, Stage, Status};

use super::*;

/// A packet path with an event at each of these times: hooks as they come, two captures.
pub(crate) fn packet_path(number: u64, at: &[i64]) -> PacketPath {
    use Hook::{DeviceQueue, DriverStart, SendEnter, SocketQueue, SocketReceive, StackReceive};
    let hooks = [SendEnter, DeviceQueue, DriverStart, StackReceive, SocketQueue, SocketReceive];
    let point = |(n, &at_ns): (usize, &i64)| {
        let capture = u8::from(n > 2);
        Point {
            at_ns,
            raw_ns: u64::try_from(at_ns).unwrap(),
            aux: 0,
            bound_ns: u32::from(capture) * 40,
            interface: 2,
            thread: 10 + u32::from(capture),
            length: 100,
            cpu: 0,
            hook: hooks[n],
            station: 0,
            capture,
            rule: Rule::First,
        }
    };
    let points: Vec<Point> = at.iter().enumerate().map(point).collect();
    let parts = [Parts::SEND, Parts::QDISC, Parts::WIRE, Parts::STACK, Parts::READ];
    let stage = |n: usize| Stage {
        parts: parts[n],
        hop: u8::from(n > 1),
        from: n,
        to: n + 1,
        ns: at[n + 1] - at[n],
        bound_ns: if n == 2 { 40 } else { 0 },
        rule: Rule::Object,
    };
    let stages = (0..at.len() - 1).map(stage).collect();
    let (status, outcome) = (Status::Complete, PathOutcome::Received);
    let tag = (7 << 32) | number;
    let timestamps = Vec::new();
    PacketPath { number, tag, tagged: true, status, why: None, outcome, points, stages, timestamps }
}

/// The common scale is capture 0's clock; its TAI is 1000 ns ahead.
struct Clocks;
impl ClockMap for Clocks {
    fn to_common(&self, capture: usize, at_ns: u64) -> timewire_capture::packet_path::Common {
        OneClock.to_common(capture, at_ns)
    }
    fn to_tai(&self, _: usize, at_ns: u64) -> Option<i64> {
        i64::try_from(at_ns).ok().map(|ns| ns + 1_000)
    }
}

fn event(hook: Hook, at_ns: u64, aux: u64, object: u64) -> (Point, Event) {
    let point = Point { hook, aux, ..packet_path(0, &[i64::try_from(at_ns).unwrap()]).points[0] };
    let flags = timewire_capture::event::Flags::default();
    let (tag, interface, thread, cpu, length, station) = (0, 2, 10, 0, 0, 0);
    (point, Event { at_ns, object, tag, aux, interface, thread, cpu, flags, length, hook, station })
}

fn told(gather: &mut Gather, hook: Hook, at_ns: u64, aux: u64, object: u64) {
    let (point, event) = event(hook, at_ns, aux, object);
    gather.event(0, &point, &event);
}

#[test]
fn t0_what_passes_is_on_its_line() {
    let mut gather = Gather::new(GatherOptions::default());
    told(&mut gather, Hook::Marker, 900, 0, 3);
    told(&mut gather, Hook::IrqEntry, 950, 33, 0);
    told(&mut gather, Hook::IrqExit, 970, 33, 0);
    told(&mut gather, Hook::QdiscEnqueue, 1_050, (1 << 48) | 4, 9);
    told(&mut gather, Hook::SoftirqExit, 1_060, 3, 0);
    gather.packet_path(&packet_path(0, &[1_000, 1_100, 1_300, 1_900, 2_000, 2_500]));
    let windows = CyclicWindows::new(
        Instant::from_ns(0),
        Span::from_ns(1_000),
        vec![Window { offset: Span::from_ns(200), length: Span::from_ns(100) }],
    );
    gather.schedule(0, 0, windows.unwrap());
    let input = gather.finish("one", &[], &Clocks);

    let line = |lane: usize| input.lanes[lane].name.clone();
    let of = |it: &Interval| (line(it.lane), input.names[it.name].clone(), it.from_ns, it.to_ns);
    let intervals: Vec<_> = input.intervals.iter().map(of).collect();
    let expected = [
        ("CPU 0 interrupts", "interrupt 33", 950, 970),
        ("thread 10", "send", 1_000, 1_100),
        ("interface 2 qdisc", "qdisc", 1_100, 1_300),
        ("interface 2 wire", "wire", 1_300, 1_900),
        ("interface 2 stack", "stack", 1_900, 2_000),
        ("socket 1", "read", 2_000, 2_500),
    ];
    let expected = expected.map(|(l, n, from, to)| (l.to_owned(), n.to_owned(), from, to));
    assert_eq!(intervals, expected);
    // A handler whose begin was not seen is not drawn.
    assert!(!input.names.iter().any(|name| name.contains("softirq")));
    let counts: Vec<_> = input.counts.iter().map(|it| (line(it.lane), it.value)).collect();
    assert_eq!(counts, [("interface 2 qdisc 1:0".to_owned(), 5)]);
    // Of packet paths 1000 to 1300 at the station, and a cycle around: TAI is 1000 ns ahead.
    let bands: Vec<_> = input.bands.iter().map(|it| (it.from_ns, it.to_ns)).collect();
    assert_eq!(bands, [(200, 300), (1_200, 1_300), (2_200, 2_300)]);
    assert_eq!(input.hosts[1].bound_ns, 40);
    assert_eq!(input.packet_paths[0].bound_ns, 40);
    assert_eq!(input.extent, ["all 1 packet paths", "of 5 events"]);
    assert!(input.lanes.is_sorted_by_key(|lane| lane.host));
    assert_eq!(input.span_ns(), Some((200, 2_500)));
}

#[test]
fn t0_others_are_bounded_and_those_of_packet_paths_stay() {
    let options = GatherOptions { packet_paths: 1, others: 100, ..GatherOptions::default() };
    let mut gather = Gather::new(options);
    gather.packet_path(&packet_path(0, &[5_000, 5_100, 5_300, 5_450]));
    for at in 0..5_000 {
        told(&mut gather, Hook::Marker, at * 10, 0, 3);
        assert!(gather.others.len() <= 200);
    }
    let input = gather.finish("one", &[], &OneClock);
    assert_eq!(input.events.iter().filter(|mark| mark.packet_path.is_none()).count(), 100);
    let inside = |mark: &&Mark| mark.packet_path.is_none() && (5_000..=5_450).contains(&mark.at_ns);
    assert_eq!(input.events.iter().filter(inside).count(), 46);
    assert!(input.extent[1].starts_with("100 of 5000 "), "{:?}", input.extent);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several captures: joining by tag, by content, by order; what cannot be decided; clocks.

use super::*;
use Hook::*;

/// Capture `n` is ahead by so much, and right within so much.
struct Ahead(Vec<(i64, u64)>);

impl ClockMap for Ahead {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        let (ahead, bound_ns) = self.0[capture];
        Common { ns: i64::try_from(at_ns).unwrap() - ahead, bound_ns }
    }
}

fn sent(at: u64, tag: u64, flags: Flags) -> Vec<(usize, Event)> {
    let event = |at, hook| Event { flags, ..ev(at, hook, at << 8, tag).on(0, 2) };
    let object = at << 8;
    [event(at, DeviceQueue).aux(0x50), event(at + 10, DriverStart), event(at + 15, DriverDone)]
        .map(|event| (0, Event { object, ..event }))
        .to_vec()
}

fn received(capture: usize, at: u64, tag: u64, flags: Flags) -> Vec<(usize, Event)> {
    let object = at << 8;
    let event = |at, hook| Event { flags, ..ev(at, hook, object, tag).on(0, 3) };
    vec![
        (capture, event(at, NapiReceive)),
        (capture, event(at + 5, StackReceive)),
        (capture, event(at + 9, SocketQueue).aux(0x60)),
        (capture, ev(at + 20, SocketReceive, 0x60, 0).aux(58).bytes(58)),
    ]
}

const NONE: Flags = Flags(0);

fn follow_hosts(clocks: Ahead, settings: Settings, events: Vec<(usize, Event)>) -> Vec<PacketPath> {
    let mut events = events;
    let infos = clocks.0.iter().map(|_| CaptureInfo::all()).collect();
    events.sort_by_key(|(capture, event)| clocks.to_common(*capture, event.at_ns).ns);
    let mut packet_paths = PacketPaths::new(infos, clocks, settings);
    let mut out = Vec::new();
    events.iter().for_each(|(capture, event)| packet_paths.event(*capture, event, &mut out));
    packet_paths.finish(&mut out);
    assert!(packet_paths.nodes.is_empty());
    out.iter().for_each(sums);
    out
}

fn two() -> Ahead {
    Ahead(vec![(0, 0), (0, 0)])
}

#[test]
fn t0_a_tag_joins_hosts_and_the_wire_has_the_bound() {
    for (flags, rule) in [(Flags::TAGGED, Rule::Tag), (NONE, Rule::Content)] {
        let clocks = Ahead(vec![(-500, 30), (70_000, 12)]);
        let mut events = sent(1_000, 5, flags);
        events.extend(received(1, 71_535, 5, flags));
        let out = follow_hosts(clocks, settings(), events);
        let [packet_path] = &out[..] else { panic!("{out:?}") };
        assert_eq!(
            (packet_path.status, packet_path.outcome),
            (Status::Complete, PathOutcome::Received)
        );
        let expected = [
            ("qdisc", 10),
            ("driver", 5),
            ("wire", 20),
            ("softirq", 5),
            ("stack", 4),
            ("wake-up+read", 11),
        ];
        assert_eq!(stages(packet_path), named(&expected));
        assert_eq!((packet_path.stages[2].rule, packet_path.stages[2].bound_ns), (rule, 42));
        assert_eq!((packet_path.stages[1].bound_ns, packet_path.bound_ns()), (0, 42));
    }
}

#[test]
fn t0_a_reception_before_its_transmission_is_within_the_bound_or_is_none() {
    let mut events = sent(1_000, 5, NONE);
    events.extend(received(1, 990, 5, NONE));
    let out = follow_hosts(Ahead(vec![(0, 15), (0, 10)]), settings(), events.clone());
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    // The driver's end is after the arrival on this scale: one stage, and below zero.
    assert_eq!(stages(packet_path)[1], ("driver+wire".to_owned(), -20));
    let out = follow_hosts(Ahead(vec![(0, 15), (0, 4)]), settings(), events);
    let outcomes: Vec<PathOutcome> = out.iter().map(|j| j.outcome).collect();
    assert_eq!(outcomes, [PathOutcome::Received, PathOutcome::Sent]);
}

#[test]
fn t0_everyone_who_hears_a_transmission_has_a_packet_path() {
    let mut events = sent(1_000, 5, Flags::TAGGED);
    events.extend(received(1, 1_050, 5, Flags::TAGGED));
    events.extend(received(2, 1_060, 5, Flags::TAGGED));
    let clocks = Ahead(vec![(0, 0), (0, 0), (0, 0)]);
    let out = follow_hosts(clocks, settings(), events);
    let times: Vec<i64> = out.iter().map(PacketPath::end_to_end_ns).collect();
    assert_eq!(times, [70, 80]);
    assert!(out.iter().all(|j| j.status == Status::Complete));
    assert_eq!(out[0].points[..3], out[1].points[..3]);
}

#[test]
fn t0_repeated_content_is_told_apart_by_time_and_order() {
    // One after the other: each reception has one transmission that was not received yet.
    let mut events = Vec::new();
    for n in 0..5 {
        events.extend(sent(1_000 + 200 * n, 5, NONE));
        events.extend(received(1, 1_100 + 200 * n, 5, NONE));
    }
    let out = follow_hosts(two(), settings(), events);
    assert_eq!(out.len(), 5);
    assert!(out.iter().all(|j| (j.status, j.end_to_end_ns()) == (Status::Complete, 120)));
    // Two are on the way at once: as many came as went, in their order.
    let mut events = sent(1_000, 5, NONE);
    events.extend(sent(1_050, 5, NONE));
    events.extend(received(1, 1_100, 5, NONE));
    events.extend(received(1, 1_170, 5, NONE));
    let out = follow_hosts(two(), settings(), events);
    let found: Vec<(Status, i64, Rule)> =
        out.iter().map(|j| (j.status, j.end_to_end_ns(), j.stages[2].rule)).collect();
    let by_order = |ns| (Status::Complete, ns, Rule::Order);
    assert_eq!(found, [by_order(120), by_order(140)]);
}

#[test]
fn t0_two_sent_and_one_received_is_not_guessed() {
    let mut events = sent(1_000, 5, NONE);
    events.extend(sent(1_050, 5, NONE));
    events.extend(received(1, 1_100, 5, NONE));
    let out = follow_hosts(two(), settings(), events);
    let mut found: Vec<(PathOutcome, Status)> = out.iter().map(|j| (j.outcome, j.status)).collect();
    found.sort();
    let expected = [
        (PathOutcome::Received, Status::Ambiguous),
        (PathOutcome::Sent, Status::Complete),
        (PathOutcome::Sent, Status::Complete),
    ];
    assert_eq!(found, expected);
    let why = out.iter().find_map(|j| j.why);
    assert_eq!(why, Some(Why::Transmissions { candidates: 2 }));
}

#[test]
fn t0_one_sent_and_received_twice_is_not_guessed() {
    let mut events = sent(1_000, 5, Flags::TAGGED);
    events.extend(received(1, 1_100, 5, Flags::TAGGED));
    events.extend(received(1, 1_200, 5, Flags::TAGGED));
    let out = follow_hosts(two(), settings(), events);
    let twice = out.iter().filter(|j| j.why == Some(Why::ReceivedTwice));
    assert_eq!(twice.count(), 2);
    assert!(out.iter().all(|j| j.status != Status::Complete || j.outcome == PathOutcome::Sent));
}

#[test]
fn t0_two_stations_that_sent_it_are_told_apart_by_segments_only() {
    // Host 0 sends; host 1 bridges from its port 3 to its port 4; host 2 receives.
    let object = 0xb;
    let hop = |at, hook, port| (1, ev(at, hook, object, 5).on(0, port));
    let mut events = sent(1_000, 5, Flags::TAGGED);
    events.push(hop(1_040, NapiReceive, 3));
    events.push(hop(1_045, StackReceive, 3));
    events.push(hop(1_050, DeviceQueue, 4));
    events.push(hop(1_055, DriverStart, 4));
    events.extend(received(2, 1_090, 5, Flags::TAGGED));
    let clocks = || Ahead(vec![(0, 0), (0, 0), (0, 0)]);
    let out = follow_hosts(clocks(), settings(), events.clone());
    let end = out.iter().find(|j| j.outcome == PathOutcome::Received).unwrap();
    assert_eq!(end.why, Some(Why::Transmissions { candidates: 2 }));
    let port = |capture, interface| Port { capture, station: 0, interface };
    let segments = [(port(0, 2), 1), (port(1, 3), 1), (port(1, 4), 2), (port(2, 3), 2)].into();
    let out = follow_hosts(clocks(), Settings { segments, ..settings() }, events);
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    assert_eq!((packet_path.status, packet_path.end_to_end_ns()), (Status::Complete, 110));
    let hops: Vec<(String, u8)> =
        packet_path.stages.iter().map(|s| (s.parts.name(), s.hop)).collect();
    assert_eq!(hops[4], ("forward".to_owned(), 1));
    assert_eq!(hops[6], ("driver+wire".to_owned(), 2));
}

#[test]
fn t0_a_reception_from_outside_is_complete_only_without_losses_anywhere() {
    for lost in [false, true] {
        let mut info = CaptureInfo::all();
        if lost {
            info.losses.push(Loss { hook: DriverStart, from_ns: 900, to_ns: 1_001, events: 1 });
        }
        let mut packet_paths = PacketPaths::new(vec![info, CaptureInfo::all()], two(), settings());
        let mut out = Vec::new();
        for (capture, event) in received(1, 1_100, 5, Flags::TAGGED) {
            packet_paths.event(capture, &event, &mut out);
        }
        packet_paths.finish(&mut out);
        assert_eq!(out[0].points[0].hook, NapiReceive);
        assert_eq!(out[0].status == Status::Complete, !lost);
    }
}

/// A time between two clocks counts with its bound, and not at all where there is none.
#[test]
fn t0_a_time_between_clocks_is_judged_within_its_bound() {
    use super::super::analysis::{Analysis, Wanted};
    use super::super::worst::Keep;
    // The packet path takes 55 ns, right within 30 + 12.
    for (bounds, limit, expected) in [
        ((30, 12), 12, (1, 0, 0)),
        ((30, 12), 13, (0, 1, 0)),
        ((30, 12), 96, (0, 1, 0)),
        ((30, 12), 97, (0, 0, 0)),
        ((0, u64::MAX), 12, (0, 0, 1)),
    ] {
        let clocks = || Ahead(vec![(-500, bounds.0), (70_000, bounds.1)]);
        let mut events = sent(1_000, 5, Flags::TAGGED);
        events.extend(received(1, 71_535, 5, Flags::TAGGED));
        let keep = Keep { above_ns: Some(limit), ..Keep::default() };
        let wanted = Wanted { settings: settings(), keep, ..Wanted::default() };
        let infos = vec![CaptureInfo::all(); 2];
        let mut analysis = Analysis::new(infos, clocks(), wanted);
        let mut out: Vec<PacketPath> = Vec::new();
        events.sort_by_key(|(capture, event)| clocks().to_common(*capture, event.at_ns).ns);
        events.iter().for_each(|(capture, event)| analysis.event(*capture, event, &mut out));
        analysis.finish(&mut out);
        assert_eq!(out[0].end_to_end_ns(), 55);
        let worst = analysis.worst();
        let untimed: u64 = analysis.counts().left_out.values().sum();
        let found = (worst.count_above(), worst.count_doubtful(), untimed);
        assert_eq!(found, expected, "{bounds:?} {limit}");
        assert_eq!(analysis.rows().is_empty(), untimed == 1);
    }
}

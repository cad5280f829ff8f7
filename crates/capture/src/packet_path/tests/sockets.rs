// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order in sockets.

use super::*;
use Hook::*;

fn queued(at: u64, object: u64, tag: u64, bytes: u16) -> [Event; 2] {
    let frame = |at, hook| ev(at, hook, object, tag).on(1, 3).bytes(bytes);
    [frame(at, StackReceive), frame(at + 10, SocketQueue).aux(0x60)]
}

fn read(at: u64, bytes: u16) -> Event {
    ev(at, SocketReceive, 0x60, 0).on(1, 0).by(20).aux(bytes.into()).bytes(bytes)
}

fn follow_all(events: &[Event]) -> Vec<(u64, i64, Status, Option<Why>)> {
    let out = follow(CaptureInfo::all(), events);
    let received = out.iter().filter(|j| j.outcome == PathOutcome::Received);
    received.map(|j| (j.tag, j.end_to_end_ns(), j.status, j.why)).collect()
}

#[test]
fn t0_messages_are_read_in_the_order_in_which_they_came() {
    let mut events = Vec::new();
    events.extend(queued(1_000, 0xa, 5, 100));
    events.extend(queued(1_100, 0xb, 6, 142));
    events.push(read(1_200, 58).flag(Flags::PEEKED));
    events.push(read(1_210, 58));
    // Not asked for; it counts in the order.
    events.push(ev(1_220, SocketQueue, 0xc, 0).aux(0x60).flag(Flags::OTHER).on(1, 3));
    events.extend(queued(1_230, 0xd, 7, 100));
    events.push(read(1_300, 100));
    events.push(read(1_310, 58));
    events.push(read(1_320, 58));
    events.push(read(1_330, 58));
    let complete = |tag, ns| (tag, ns, Status::Complete, None);
    assert_eq!(follow_all(&events), [complete(5, 210), complete(6, 200), complete(7, 90)]);
}

#[test]
fn t0_a_length_that_does_not_fit_is_no_guess() {
    let mut events = Vec::new();
    events.extend(queued(1_000, 0xa, 5, 100));
    events.push(read(1_100, 101));
    events.extend(queued(2_000, 0xa, 6, 100));
    events.push(read(2_100, 58));
    events.extend(queued(3_000, 0xa, 7, 100));
    events.push(read(3_100, 20));
    let length = |queued, read| Some(Why::Length { queued, read });
    let found = follow_all(&events);
    assert_eq!(found[0], (5, 100, Status::Ambiguous, length(100, 101)));
    assert_eq!(found[1], (6, 100, Status::Complete, None));
    assert_eq!(found[2], (7, 100, Status::Ambiguous, length(100, 20)));
}

#[test]
fn t0_a_packet_socket_reads_the_header_of_the_link_too() {
    let mut events = Vec::new();
    for (at, tag) in [(1_000, 5), (2_000, 6)] {
        events.extend(queued(at, 0xa, tag, 64));
        events.push(read(at + 100, 78));
    }
    events.extend(queued(3_000, 0xa, 7, 64));
    events.push(read(3_100, 64));
    let found = follow_all(&events);
    assert_eq!(found[..2], [5, 6].map(|tag| (tag, 100, Status::Complete, None)));
    assert_eq!(found[2].3, Some(Why::Length { queued: 64, read: 64 }), "of one flow one way");
    // One with a VLAN tag, which the socket has beside the frame.
    let mut events = Vec::new();
    events.extend(queued(1_000, 0xa, 5, 64));
    events.push(read(1_100, 74));
    assert_eq!(follow_all(&events), [(5, 100, Status::Complete, None)]);
}

#[test]
fn t0_what_packet_sockets_leave_of_a_frame_is_no_loss() {
    const UNHANDLED: u64 = 74;
    let info = || CaptureInfo { unhandled: Some(UNHANDLED), ..CaptureInfo::all() };
    let drop = |at, reason: u64| ev(at, Drop, 0xa, 5).on(1, 3).aux(reason).bytes(60);
    let outcomes = |events: &[Event]| {
        let mut all: Vec<_> = follow(info(), events).iter().map(|it| it.outcome).collect();
        all.sort();
        all
    };
    let mut events: Vec<Event> = queued(1_000, 0xa, 5, 64).into();
    // A second socket takes the same frame.
    events.push(ev(1_020, SocketQueue, 0xa, 5).on(1, 3).aux(0x61).bytes(64));
    let waits = events.clone();
    events.push(drop(1_030, UNHANDLED));
    events.push(read(1_100, 78));
    events.push(Event { object: 0x61, ..read(1_200, 78) });
    assert_eq!(outcomes(&events), [PathOutcome::Received; 2]);
    // Dropped for another reason, it is lost.
    let lost = [waits, vec![drop(1_030, UNHANDLED + 1)]].concat();
    assert!(outcomes(&lost).contains(&PathOutcome::Dropped { reason: UNHANDLED + 1 }));
    // Where no socket took it, it is lost.
    let lost = [ev(1_000, StackReceive, 0xa, 5).on(1, 3).bytes(64), drop(1_030, UNHANDLED)];
    assert_eq!(outcomes(&lost), [PathOutcome::Dropped { reason: UNHANDLED }]);
}

#[test]
fn t0_after_a_loss_a_socket_is_unsure_until_it_is_known_to_be_empty() {
    // A `socket-receive` was lost at 500; everything after is one message late.
    let lost = Loss { hook: SocketReceive, from_ns: 400, to_ns: 600, events: 1 };
    let info = || CaptureInfo { losses: vec![lost], ..CaptureInfo::all() };
    let mut events = queued(100, 0xe, 4, 100).to_vec();
    events.extend(queued(100_000, 0xa, 5, 100));
    events.push(read(100_100, 58));
    let sleeper = [
        ev(200_010, SocketQueue, 0xb, 6).aux(0x60).on(1, 3),
        ev(200_011, Waking, 0x60, 0).aux(20).on(1, 0),
        ev(200_100, SwitchIn, 0x60, 0).by(20).on(1, 0).cpu(2),
        read(200_150, 58),
    ];
    let mut woken = events.clone();
    woken.push(ev(200_000, StackReceive, 0xb, 6).on(1, 3));
    woken.extend(sleeper);
    let mut alone = events.clone();
    alone.extend(queued(200_000, 0xb, 6, 100));
    alone.last_mut().unwrap().flags = Flags::TAGGED.with(Flags::ALONE);
    alone.push(read(200_150, 58));
    let mut again = events.clone();
    again.push(ev(150_000, SocketReceive, 0x60, 0).on(1, 0).aux((-11_i64).cast_unsigned()));
    again.extend(queued(200_000, 0xb, 6, 100));
    again.push(read(200_150, 58));
    for events in [woken, alone, again] {
        let out = follow(info(), &events);
        let found: Vec<(u64, Status, PathOutcome)> =
            out.iter().map(|j| (j.tag, j.status, j.outcome)).collect();
        assert!(found.contains(&(4, Status::Lossy, PathOutcome::Received)), "{found:?}");
        assert!(found.contains(&(5, Status::Lossy, PathOutcome::Queued)), "{found:?}");
        assert!(found.contains(&(6, Status::Complete, PathOutcome::Received)), "{found:?}");
    }
    // Nothing proves it: the packet path is not complete.
    events.extend(queued(200_000, 0xb, 6, 100));
    events.push(read(200_150, 58));
    assert!(follow(info(), &events).iter().all(|j| j.status == Status::Lossy));
}

#[test]
fn t0_a_collector_that_tells_of_lone_messages_is_not_believed_before() {
    let info = || CaptureInfo { tells_alone: true, ..CaptureInfo::all() };
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.push(read(1_100, 58));
    assert_eq!(follow(info(), &events)[0].why, Some(Why::SocketAfterLoss));
    events[1].flags = Flags::TAGGED.with(Flags::ALONE);
    assert_eq!(follow(info(), &events)[0].status, Status::Complete);
}

#[test]
fn t0_a_tag_of_the_read_says_more_than_the_order() {
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.extend(queued(1_100, 0xb, 6, 100));
    events.push(Event { tag: 6, ..read(1_200, 58) });
    let out = follow(CaptureInfo::all(), &events);
    let six = out.iter().find(|j| j.tag == 6).unwrap();
    assert_eq!((six.status, six.stages.last().unwrap().rule), (Status::Complete, Rule::Tag));
    let five = out.iter().find(|j| j.tag == 5).unwrap();
    assert_eq!((five.outcome, five.status), (PathOutcome::Queued, Status::Lossy));
}

#[test]
fn t0_a_waking_that_another_cpu_overtakes_takes_nothing_out_of_the_socket() {
    // The second message is queued between the first one's entry into the queue and its waking
    // of the reader; it is either of them that wakes.
    for waker in [3, 4] {
        let mut events: Vec<Event> = queued(1_000, 0xa, 5, 100).map(|e| e.cpu(3)).to_vec();
        events.extend(queued(1_001, 0xb, 6, 100).map(|e| e.cpu(4)));
        events.push(ev(1_012, Waking, 0x60, 0).aux(20).on(1, 0).cpu(waker));
        events.push(ev(1_200, SwitchIn, 0x60, 0).by(20).on(1, 0).cpu(2));
        events.push(read(1_250, 58));
        events.push(read(1_270, 58));
        events.sort_by_key(|event| event.at_ns);
        let complete = |tag, ns| (tag, ns, Status::Complete, None);
        assert_eq!(follow_all(&events), [complete(5, 250), complete(6, 269)], "CPU {waker}");
    }
}

#[test]
fn t0_a_message_that_came_before_the_reader_ran_waited_for_it() {
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.push(ev(1_012, Waking, 0x60, 0).aux(20).on(1, 0));
    events.extend(queued(1_100, 0xb, 6, 100));
    events.push(ev(1_200, SwitchIn, 0x60, 0).by(20).on(1, 0).cpu(2));
    events.push(read(1_250, 58));
    events.push(read(1_270, 58));
    events.extend(queued(1_260, 0xc, 7, 100));
    events.push(read(1_300, 58));
    events.sort_by_key(|event| event.at_ns);
    let out = follow(CaptureInfo::all(), &events);
    let last = |j: &PacketPath| stages(j).split_off(1);
    assert_eq!(last(&out[0]), named(&[("wake-up", 190), ("read", 50)]));
    assert_eq!(last(&out[1]), named(&[("wake-up", 90), ("read", 70)]));
    assert_eq!(last(&out[2]), named(&[("wake-up+read", 30)]));
}

#[test]
fn t0_a_reader_that_is_awake_can_be_before_the_kernels_word() {
    // Taken at 1 005, between the stack and the socket's word at 1 010.
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.insert(1, read(1_005, 58));
    events.extend(queued(1_100, 0xb, 6, 100));
    events.push(read(1_200, 58));
    let complete = |tag, ns| (tag, ns, Status::Complete, None);
    assert_eq!(follow_all(&events), [complete(5, 5), complete(6, 100)]);
    let out = follow(CaptureInfo::all(), &events);
    assert_eq!(stages(&out[0]), named(&[("stack+wake-up+read", 5)]));
    // The mark of the program that read it may be before that word, too.
    let mark = ev(1_007, Marker, 8, 5).on(1, 0).by(20);
    events.insert(2, mark);
    assert_eq!(follow_all(&events), [complete(5, 7), complete(6, 100)]);
}

#[test]
fn t0_what_was_read_before_is_not_what_comes() {
    let not_read = |events: &[Event]| {
        let out = follow(CaptureInfo::all(), events);
        let first = out.iter().find(|packet_path| packet_path.tag == 5).unwrap();
        assert_ne!(first.outcome, PathOutcome::Received, "{first:?}");
    };
    // Before the stack had it.
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.insert(0, read(990, 58));
    not_read(&events);
    // The socket says that it has one message, which is this.
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events[1] = events[1].flag(Flags::ALONE);
    events.insert(1, read(1_005, 58));
    not_read(&events);
    // Another station's program, longer than the frame, on another socket.
    for other in [
        Event { station: 0, ..read(1_005, 58) },
        read(1_005, 101),
        Event { object: 0x61, ..read(1_005, 58) },
    ] {
        let mut events = queued(1_000, 0xa, 5, 100).to_vec();
        events.insert(1, other);
        not_read(&events);
    }
    // Nobody knows what was in the socket when the capture began.
    let info = CaptureInfo { tells_alone: true, ..CaptureInfo::all() };
    let mut events = queued(1_000, 0xa, 5, 100).to_vec();
    events.insert(1, read(1_005, 58));
    let out = follow(info, &events);
    assert_ne!(out[0].outcome, PathOutcome::Received, "{out:?}");
}

#[test]
fn t0_a_message_leaves_the_queue_before_its_call_ends() {
    let wake = ev(1_020, Waking, 0x60, 0).on(1, 0).aux(20);
    let run = ev(1_030, SwitchIn, 0x60, 0).on(1, 0).by(20);
    let alone = |mut events: [Event; 2]| {
        events[1] = events[1].flag(Flags::ALONE);
        events
    };
    let first = alone(queued(1_000, 0xa, 5, 100));
    let second = alone(queued(1_100, 0xb, 6, 100));
    // The second is alone: the first is in the hands of the thread that was woken for it.
    let events = [&first[..], &[wake, run], &second, &[read(1_200, 58), read(1_300, 58)]].concat();
    let complete = |tag, ns| (tag, ns, Status::Complete, None);
    assert_eq!(follow_all(&events), [complete(5, 200), complete(6, 200)]);
    // Nobody was woken; or nobody says it before the third is alone as well: read unseen.
    let third = alone(queued(1_150, 0xc, 7, 100));
    for (between, more) in [(&[][..], &[][..]), (&[wake, run][..], &third[..])] {
        let events = [&first[..], between, &second, more, &[read(1_300, 58)]].concat();
        let out = follow(CaptureInfo::all(), &events);
        let unseen = out.iter().find(|packet_path| packet_path.tag == 5).unwrap();
        assert_eq!((unseen.status, unseen.why), (Status::Lossy, Some(Why::SocketEmpty)));
    }
}

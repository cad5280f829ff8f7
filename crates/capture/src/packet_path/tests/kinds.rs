// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One kernel: every stage, buffers that are used again, copies, drops, losses.

use super::*;
use Hook::*;

#[test]
fn t0_every_stage_of_a_whole_packet_path() {
    let out = follow(CaptureInfo::all(), &whole());
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    assert_eq!(
        (packet_path.status, packet_path.outcome),
        (Status::Complete, PathOutcome::Received)
    );
    let expected = [
        ("app", 100),
        ("send", 200),
        ("qdisc", 800),
        ("driver", 50),
        ("wire", 250),
        ("softirq", 500),
        ("stack", 100),
        ("wake-up", 500),
        ("read", 100),
        ("handle", 300),
    ];
    assert_eq!(stages(packet_path), named(&expected));
    assert_eq!(packet_path.end_to_end_ns(), 2_900);
    let hops: Vec<u8> = packet_path.stages.iter().map(|stage| stage.hop).collect();
    assert_eq!(hops, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    let rules: Vec<Rule> = packet_path.stages.iter().map(|stage| stage.rule).collect();
    use Rule::{Marker as Mark, Object, SendCall, SocketOrder, Woken};
    let wanted = [Mark, SendCall, Object, Object, Object, Object, Object, Woken, SocketOrder, Mark];
    assert_eq!(rules, wanted);
}

#[test]
fn t0_a_call_that_ends_after_its_message_was_read_is_where_it_began() {
    // A veth delivers in the sender's call.
    let mut events = whole();
    let call = events.iter().position(|event| event.hook == SocketSend).unwrap();
    let end = events.remove(call);
    let read = events.iter().position(|event| event.hook == SocketReceive).unwrap();
    events.insert(read + 1, Event { at_ns: 3_650, ..end });
    let out = follow(CaptureInfo::all(), &events);
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    assert_eq!(stages(packet_path)[..2], named(&[("app", 100), ("send", 200)]));
    // Another socket's end says nothing of it.
    let end = events.iter_mut().find(|event| event.hook == SocketSend).unwrap();
    end.object += 1;
    let out = follow(CaptureInfo::all(), &events);
    assert_eq!(stages(&out[0])[..1], named(&[("app+send", 300)]));
}

#[test]
fn t0_without_a_hook_its_neighbours_are_one_stage_and_it_says_so() {
    let cases = [
        (DriverDone, "driver+wire", 300),
        (DriverStart, "qdisc+driver+wire", 1_100),
        (ReceiveQueue, "wire+softirq", 750),
        (StackReceive, "softirq+stack", 600),
        (SocketQueue, "", 0),
        (SwitchIn, "wake-up+read", 600),
        (DeviceQueue, "", 0),
        (SendEnter, "app+send", 300),
        (SocketSend, "app+send", 300),
    ];
    for (without, name, ns) in cases {
        let mut info = CaptureInfo::all();
        info.hooks.remove(&without);
        let kept: Vec<Event> = whole().into_iter().filter(|e| e.hook != without).collect();
        let out = follow(info, &kept);
        let received: Vec<&PacketPath> =
            out.iter().filter(|j| j.outcome == PathOutcome::Received).collect();
        if name.is_empty() {
            // Without the queue of the socket nothing says which message is which; without the
            // device's the sender is not known.
            assert!(received.iter().all(|j| !stages(j).iter().any(|s| s.0 == "send")));
            continue;
        }
        let [packet_path] = received[..] else { panic!("{without:?}: {out:?}") };
        assert_eq!(packet_path.status, Status::Complete, "{without:?}");
        let found = stages(packet_path);
        assert!(found.contains(&(name.to_owned(), ns)), "{without:?}: {found:?}");
    }
}

#[test]
fn t0_a_driver_that_returns_after_the_frame_has_arrived() {
    let mut events = whole();
    for event in &mut events {
        if event.hook == DriverDone {
            event.at_ns = 2_450;
        }
    }
    let out = follow(CaptureInfo::all(), &events);
    assert!(stages(&out[0]).contains(&("driver+wire".to_owned(), 300)), "{out:?}");
    assert_eq!(out[0].status, Status::Complete);
}

#[test]
fn t0_events_of_two_cpus_out_of_order() {
    let mut events = whole();
    events.swap(7, 8);
    events.swap(10, 11);
    let expected = follow(CaptureInfo::all(), &whole());
    assert_eq!(follow(CaptureInfo::all(), &events), expected);
}

#[test]
fn t0_an_event_that_is_too_late_is_a_loss() {
    let mut packet_paths = PacketPaths::new(vec![CaptureInfo::all()], OneClock, settings());
    let mut out = Vec::new();
    let (mut events, late) = (whole(), 9);
    let event = events.remove(late);
    events.iter().for_each(|event| packet_paths.event(0, event, &mut out));
    packet_paths.settle(4_000, &mut out);
    packet_paths.event(0, &event, &mut out);
    packet_paths.finish(&mut out);
    assert_eq!(packet_paths.counts().late, 1);
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    assert_eq!((packet_path.status, packet_path.why), (Status::Lossy, Some(Why::Lost)));
}

/// A packet that begins with `device-queue` at `at` and ends in a socket; `object` is its buffer.
fn short(at: u64, object: u64, tag: u64) -> Vec<Event> {
    vec![
        ev(at, DeviceQueue, object, tag).aux(0x50).on(0, 2),
        ev(at + 10, DriverStart, object, tag).on(0, 2),
        ev(at + 20, ReceiveQueue, object, tag).on(1, 3),
        ev(at + 25, DriverDone, object, tag).on(0, 2),
        ev(at + 30, StackReceive, object, tag).on(1, 3),
        ev(at + 40, SocketQueue, object, tag).on(1, 3).aux(0x60),
        ev(at + 50, SocketReceive, 0x60, 0).on(1, 0).aux(58).bytes(58),
    ]
}

#[test]
fn t0_a_buffer_is_used_again_for_another_packet() {
    let mut events = short(1_000, 0xa, 5);
    events.extend(short(2_000, 0xa, 6));
    // The same tag in the same buffer, right after: told apart by what happens to it.
    events.extend(short(3_000, 0xa, 6));
    // Buffer freed before `socket-receive` is seen, and taken by a new packet.
    let mut early = short(4_000, 0xa, 7);
    let read = early.pop().unwrap();
    events.extend(early);
    let mut next = short(4_045, 0xa, 8);
    next.insert(1, read);
    events.extend(next);
    let out = follow(CaptureInfo::all(), &events);
    let tags: Vec<u64> = out.iter().map(|packet_path| packet_path.tag).collect();
    assert_eq!(tags, [5, 6, 6, 7, 8]);
    for packet_path in &out {
        assert_eq!(
            (packet_path.status, packet_path.outcome),
            (Status::Complete, PathOutcome::Received)
        );
        assert_eq!(packet_path.end_to_end_ns(), 50);
        assert_eq!(packet_path.stages.len(), 5);
    }
}

#[test]
fn t0_the_first_flag_and_another_tag_end_what_was_in_the_buffer() {
    let mut events = short(1_000, 0xa, 5);
    events.truncate(5);
    events.push(ev(1_035, StackReceive, 0xa, 9).on(1, 3));
    events.push(ev(1_036, DeviceQueue, 0xb, 5).aux(0x50).on(0, 2));
    events.push(ev(1_037, DriverStart, 0xb, 5).on(0, 2).flag(Flags::FIRST));
    let out = follow(CaptureInfo::all(), &events);
    let ends: Vec<(u64, usize, PathOutcome)> =
        out.iter().map(|j| (j.tag, j.points.len(), j.outcome)).collect();
    assert!(ends.contains(&(5, 4, PathOutcome::Unseen)), "{ends:?}");
    assert!(ends.contains(&(9, 1, PathOutcome::Unseen)), "{ends:?}");
}

#[test]
fn t0_a_multicast_message_is_a_packet_path_for_each_socket() {
    let mut events = short(1_000, 0xa, 5);
    // Copies for two more sockets, made right after the stack had it; then the buffer itself.
    events.insert(5, ev(1_032, SocketQueue, 0xb, 5).on(1, 3).aux(0x61).flag(Flags::CLONED));
    events.insert(6, ev(1_034, SocketQueue, 0xc, 5).on(1, 3).aux(0x62).flag(Flags::CLONED));
    events.push(ev(1_060, SocketReceive, 0x62, 0).on(1, 0).aux(58).bytes(58));
    events.push(ev(1_070, SocketReceive, 0x61, 0).on(1, 0).aux(58).bytes(58));
    let out = follow(CaptureInfo::all(), &events);
    let found: Vec<(i64, Status, Rule)> = out
        .iter()
        .map(|j| (j.end_to_end_ns(), j.status, j.points[j.points.len() - 2].rule))
        .collect();
    use Status::Complete;
    let copy = |ns| (ns, Complete, Rule::Copy);
    assert_eq!(found, [(50, Complete, Rule::Object), copy(60), copy(70)]);
    assert!(out.iter().all(|j| j.points[..4] == out[0].points[..4]), "the shared part");
}

#[test]
fn t0_a_bridge_forwards_and_floods() {
    let start = short(1_000, 0xa, 5);
    let mut events = start[..5].to_vec();
    // Station 1 floods: a copy to interface 4, the buffer itself to interface 5.
    events.push(ev(1_040, DeviceQueue, 0xb, 5).on(1, 4));
    events.push(ev(1_041, DriverStart, 0xb, 5).on(1, 4));
    events.push(ev(1_045, ReceiveQueue, 0xb, 5).on(2, 6).cpu(1));
    events.push(ev(1_050, DeviceQueue, 0xa, 5).on(1, 5));
    events.push(ev(1_052, DriverStart, 0xa, 5).on(1, 5));
    events.push(ev(1_060, StackReceive, 0xb, 5).on(2, 6).cpu(1));
    events.push(ev(1_065, ReceiveQueue, 0xa, 5).on(3, 7));
    events.push(ev(1_066, StackReceive, 0xa, 5).on(3, 7));
    events.push(ev(1_070, SocketQueue, 0xb, 5).on(2, 6).cpu(1).aux(0x60));
    events.push(ev(1_071, SocketQueue, 0xa, 5).on(3, 7).aux(0x61));
    events.push(ev(1_090, SocketReceive, 0x60, 0).on(2, 0).aux(58).bytes(58));
    events.push(ev(1_091, SocketReceive, 0x61, 0).on(3, 0).aux(58).bytes(58));
    let out = follow(CaptureInfo::all(), &events);
    let [first, second] = &out[..] else { panic!("{out:?}") };
    for packet_path in [first, second] {
        assert_eq!(
            (packet_path.status, packet_path.outcome),
            (Status::Complete, PathOutcome::Received)
        );
    }
    let expected = [
        ("qdisc", 10),
        ("driver+wire", 10),
        ("softirq", 10),
        ("forward", 10),
        ("qdisc", 1),
        ("driver+wire", 4),
        ("softirq", 15),
        ("stack", 10),
        ("wake-up+read", 20),
    ];
    assert_eq!(stages(first), named(&expected));
    assert_eq!(first.stages.iter().map(|s| s.hop).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(stages(second)[3], ("forward".to_owned(), 20));
    assert_eq!(second.end_to_end_ns(), 91);
}

#[test]
fn t0_devices_above_each_other_and_a_driver_that_is_busy() {
    let events = [
        ev(1_000, DeviceQueue, 0xa, 5).aux(0x50).on(0, 9),
        ev(1_010, DriverStart, 0xa, 5).on(0, 9),
        ev(1_012, DeviceQueue, 0xa, 5).aux(0x50).on(0, 2),
        ev(1_020, DriverStart, 0xa, 5).on(0, 2),
        ev(1_021, DriverDone, 0xa, 5).on(0, 2).aux(16),
        ev(1_022, DriverDone, 0xa, 5).on(0, 9),
        ev(1_030, DriverStart, 0xa, 5).on(0, 2),
        ev(1_033, DriverDone, 0xa, 5).on(0, 2),
    ];
    let out = follow(CaptureInfo::all(), &events);
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    let expected = [("qdisc", 10), ("driver", 2), ("qdisc", 18), ("driver", 3)];
    assert_eq!(stages(packet_path), named(&expected));
    assert_eq!((packet_path.outcome, packet_path.status), (PathOutcome::Sent, Status::Complete));
}

#[test]
fn t0_a_point_at_the_sender_has_a_packet_path() {
    let mut events = short(1_000, 0xa, 5);
    events.insert(1, ev(1_005, SocketQueue, 0xb, 5).on(0, 2).aux(0x70));
    events.push(ev(1_080, SocketReceive, 0x70, 0).on(0, 0).aux(100));
    let out = follow(CaptureInfo::all(), &events);
    let [receiver, point] = &out[..] else { panic!("{out:?}") };
    assert_eq!((receiver.end_to_end_ns(), point.end_to_end_ns()), (50, 80));
    let merged = "qdisc+driver+wire+softirq+stack";
    assert_eq!(stages(point), named(&[(merged, 5), ("wake-up+read", 75)]));
    assert_eq!(point.status, Status::Complete);
}

#[test]
fn t0_a_drop_ends_a_packet_path_where_it_happens() {
    let all: Vec<Event> = whole().into_iter().filter(|e| e.hook != Marker).collect();
    for (after, stage) in [
        (DeviceQueue, "qdisc"),
        (QdiscEnqueue, "qdisc"),
        (DriverStart, "driver"),
        (ReceiveQueue, "softirq"),
        (StackReceive, "stack"),
        (SocketQueue, "wake-up"),
    ] {
        let index = all.iter().position(|e| e.hook == after).unwrap();
        let mut events = all[..=index].to_vec();
        let at = Event { hook: Drop, at_ns: all[index].at_ns + 7, aux: 77, ..all[index] };
        events.push(at);
        events.push(ev(9_000, SocketSend, 0x50, 0).by(10).aux(58));
        // The next message of the socket is the next, not the dropped one.
        events.extend(short(10_000, 0xa, 6));
        let out = follow(CaptureInfo::all(), &events);
        let [dropped, next] = &out[..] else { panic!("{after:?}: {out:?}") };
        assert_eq!(dropped.outcome, PathOutcome::Dropped { reason: 77 });
        assert_eq!(dropped.status, Status::Complete, "{after:?}");
        assert_eq!(stages(dropped).last().unwrap().0, stage, "{after:?}");
        assert_eq!((next.tag, next.status, next.end_to_end_ns()), (6, Status::Complete, 50));
    }
}

#[test]
fn t0_no_lost_event_leaves_a_complete_packet_path() {
    for (index, lost) in whole().into_iter().enumerate() {
        let mut events = whole();
        events.remove(index);
        let mut info = CaptureInfo::all();
        let (from_ns, to_ns) = (lost.at_ns - 1, lost.at_ns + 1);
        info.losses.push(Loss { hook: lost.hook, from_ns, to_ns, events: 1 });
        let out = follow(info, &events);
        assert!(!out.is_empty());
        for packet_path in out {
            assert_ne!(
                packet_path.status,
                Status::Complete,
                "{:?} lost: {packet_path:?}",
                lost.hook
            );
        }
    }
}

#[test]
fn t0_losses_elsewhere_and_of_other_hooks_do_not_count() {
    let mut info = CaptureInfo::all();
    info.losses.push(Loss { hook: IrqEntry, from_ns: 0, to_ns: 9_000, events: 5 });
    info.losses.push(Loss { hook: Drop, from_ns: 90_000, to_ns: 99_000, events: 5 });
    let out = follow(info, &whole());
    assert_eq!(out[0].status, Status::Complete);
}

#[test]
fn t0_a_loss_that_is_told_later_counts_while_the_packet_path_is_held() {
    let mut packet_paths = PacketPaths::new(vec![CaptureInfo::all()], OneClock, settings());
    let mut out = Vec::new();
    whole().iter().for_each(|event| packet_paths.event(0, event, &mut out));
    packet_paths.settle(4_000, &mut out);
    packet_paths.lose(0, Loss { hook: QdiscEnqueue, from_ns: 0, to_ns: 1_500, events: 1 });
    packet_paths.finish(&mut out);
    assert_eq!(out[0].status, Status::Lossy);
}

#[test]
fn t0_another_socket_of_the_same_thread_did_not_make_the_call() {
    // In the send call of thread 10 the kernel answers for socket 0x51 on the same CPU.
    let mut events = whole();
    events.insert(5, ev(1_510, SendEnter, 0, 0).by(10));
    let answer = ev(1_520, DeviceQueue, 0xf, 99).by(10).aux(0x51).on(0, 2);
    events.insert(6, answer);
    events.insert(7, ev(1_530, SocketSend, 0x50, 0).by(10).aux(58));
    let out = follow(CaptureInfo::all(), &events);
    let answer = out.iter().find(|j| j.tag == 99).unwrap();
    assert_eq!(answer.points[0].hook, DeviceQueue);
    let first = out.iter().find(|j| j.tag == 5).unwrap();
    assert_eq!(first.points[1].hook, SendEnter);
}

#[test]
fn t0_a_sequence_that_wraps() {
    let tag = |sequence: u32| (7_u64 << 32) | u64::from(sequence);
    let mut events = Vec::new();
    for (index, sequence) in [u32::MAX - 1, u32::MAX, 0, 1].into_iter().enumerate() {
        let at = 1_000 + 100 * u64::try_from(index).unwrap();
        events.extend(short(at, 0xa, tag(sequence)));
    }
    let out = follow(CaptureInfo::all(), &events);
    assert_eq!(out.len(), 4);
    assert!(out.iter().all(|j| j.status == Status::Complete && j.flow() == 7));
}

#[test]
fn t0_names_of_stages_are_read_back() {
    for (part, name) in Parts::ALL {
        assert_eq!((part.name(), Parts::from_name(name)), (name.to_owned(), Some(part)));
    }
    let merged = Parts::from_name("driver+wire").unwrap();
    assert_eq!((merged.name().as_str(), merged.has(Parts::WIRE)), ("driver+wire", true));
    assert_eq!(Parts::from_name("driver+nothing"), None);
}

#[test]
fn t0_a_timestamp_is_its_packets_whenever_it_comes() {
    // While the driver has it; when it is at its receiver; within the window after its end.
    for at in [2_120, 2_500, 5_000] {
        let mut events = whole();
        events.push(ev(at, TransmitTimestamp, 0xa, 5).on(0, 2).aux(77));
        // Of another interface, of another packet in that buffer, and of no packet at all.
        events.push(ev(at, TransmitTimestamp, 0xa, 5).on(0, 3).aux(1));
        events.push(ev(at, TransmitTimestamp, 0xa, 6).on(0, 2).aux(2));
        events.push(ev(at, TransmitTimestamp, 0xb, 5).on(0, 2).aux(3));
        events.sort_by_key(|event| event.at_ns);
        let out = follow(CaptureInfo::all(), &events);
        let without = follow(CaptureInfo::all(), &whole());
        assert_eq!(out.len(), 1);
        let timestamps: Vec<_> = out[0].timestamps.iter().map(|at| (at.at_ns, at.aux)).collect();
        assert_eq!(timestamps, [(i64::try_from(at).unwrap(), 77)]);
        assert_eq!((&out[0].points, &out[0].stages), (&without[0].points, &without[0].stages));
    }
    // The driver tells first, then the NIC; a sender is told once by each.
    let mut events = whole();
    for (at, nic_ns) in [(2_120, 0), (2_125, 0), (2_900, 77), (2_950, 78)] {
        events.push(ev(at, TransmitTimestamp, 0xa, 5).on(0, 2).aux(nic_ns));
    }
    events.sort_by_key(|event| event.at_ns);
    let out = follow(CaptureInfo::all(), &events);
    let timestamps: Vec<_> = out[0].timestamps.iter().map(|at| (at.at_ns, at.aux)).collect();
    assert_eq!(timestamps, [(2_120, 0), (2_900, 77)]);
    // Of two packets with the same content in one buffer, the later has gone last.
    let mut events = [short(1_000, 0xa, 5), short(2_000, 0xa, 5)].concat();
    let sent = events.iter().rfind(|event| event.hook == DriverStart).unwrap();
    events.push(Event { at_ns: 2_900, hook: TransmitTimestamp, ..*sent });
    let out = follow(CaptureInfo::all(), &events);
    let counts: Vec<_> = out.iter().map(|packet_path| packet_path.timestamps.len()).collect();
    assert_eq!(counts, [0, 1], "{out:?}");
}

#[test]
fn t0_a_driver_that_frees_what_it_has_sent_drops_nothing() {
    let freed = |reason: u64, interface: u32| {
        let mut events = whole();
        // The receiver has it in another buffer.
        events[8..].iter_mut().filter(|it| it.object == 0xa).for_each(|it| it.object = 0xb);
        events.insert(8, ev(2_300, Drop, 0xa, 5).on(0, interface).aux(reason));
        let out = follow(CaptureInfo::all(), &events);
        out.iter().map(|packet_path| packet_path.outcome).collect::<Vec<_>>()
    };
    assert_eq!(freed(2, 2), [PathOutcome::Received]);
    // Before Linux 6.2.
    assert_eq!(freed(1, 2), [PathOutcome::Received]);
    // With a reason, or elsewhere, it is dropped.
    assert!(freed(7, 2).contains(&PathOutcome::Dropped { reason: 7 }));
    assert!(freed(2, 9).contains(&PathOutcome::Dropped { reason: 2 }));
    // Before the driver was done it has not sent it.
    let mut events = whole();
    events.truncate(7);
    events.push(ev(2_120, Drop, 0xa, 5).on(0, 2).aux(2));
    let out = follow(CaptureInfo::all(), &events);
    assert_eq!(out[0].outcome, PathOutcome::Dropped { reason: 2 });
}

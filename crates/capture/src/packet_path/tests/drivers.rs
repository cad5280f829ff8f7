// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that a driver has shown before the stack has a packet of them.

use proptest::prelude::*;

use super::super::arrivals::Arrivals;
use super::*;
use Hook::*;

/// The driver of the second station shows a frame with that tag.
fn shown(at_ns: u64, tag: u64) -> Event {
    ev(at_ns, Xdp, 0, tag).on(1, 3).cpu(1)
}

fn with(more: &[Event]) -> Vec<Event> {
    let mut events = whole();
    events.extend(more);
    events.sort_by_key(|event| event.at_ns);
    events
}

fn of_wire(packet_path: &PacketPath) -> Vec<(String, i64)> {
    let all = stages(packet_path).into_iter();
    all.filter(|(name, _)| ["wire", "driver-receive", "softirq"].contains(&&name[..])).collect()
}

/// Three packets with one tag, one after the other, in buffers that the receiver fills anew.
fn repeated(starts: [u64; 3]) -> Vec<Event> {
    let mut events = Vec::new();
    for (n, at) in (0_u64..).zip(starts) {
        let (down, up) = (0xa0 + n, 0xb0 + n);
        events.extend([
            ev(at, DeviceQueue, down, 5).on(0, 2).flag(Flags::FIRST),
            ev(at + 10, DriverStart, down, 5).on(0, 2),
            ev(at + 20, DriverDone, down, 5).on(0, 2),
            ev(at + 500, NapiReceive, up, 5).on(1, 3).cpu(1).flag(Flags::FIRST),
            ev(at + 600, StackReceive, up, 5).on(1, 3).cpu(1),
        ]);
    }
    events
}

/// Of each packet of [`repeated`] that was received, how long the driver had it.
fn in_drivers(mut events: Vec<Event>, shown: &[Event]) -> Vec<Option<i64>> {
    events.extend(shown);
    events.sort_by_key(|event| event.at_ns);
    let out = follow(CaptureInfo::all(), &events);
    let received =
        out.iter().filter(|packet_path| packet_path.points.iter().any(|p| p.station == 1));
    let in_driver = |packet_path: &PacketPath| {
        let of = |stage: &&Stage| stage.parts == Parts::DRIVER_RECEIVE;
        packet_path.stages.iter().find(of).map(|stage| stage.ns)
    };
    received.map(in_driver).collect()
}

#[test]
fn t0_the_driver_that_receives_has_a_stage_of_its_own() {
    let out = follow(CaptureInfo::all(), &with(&[shown(2_300, 5)]));
    let [packet_path] = &out[..] else { panic!("{out:?}") };
    assert_eq!(
        (packet_path.status, packet_path.outcome),
        (Status::Complete, PathOutcome::Received)
    );
    let expected = [("wire", 150), ("driver-receive", 100), ("softirq", 500)];
    assert_eq!(of_wire(packet_path), named(&expected));
    assert_eq!(packet_path.end_to_end_ns(), 2_900);
    let hops: Vec<u8> = packet_path.stages.iter().map(|stage| stage.hop).collect();
    assert_eq!(hops, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
    let rules: Vec<Rule> = packet_path.stages[4..7].iter().map(|stage| stage.rule).collect();
    assert_eq!(rules, [Rule::CopyByTag, Rule::Object, Rule::Object]);
}

#[test]
fn t0_the_driver_that_sends_may_be_done_after_the_other_has_shown_the_frame() {
    let mut events = with(&[shown(2_300, 5)]);
    events.iter_mut().filter(|event| event.hook == DriverDone).for_each(|e| e.at_ns = 2_350);
    let out = follow(CaptureInfo::all(), &events);
    let found = stages(&out[0]);
    assert!(found.contains(&("driver+wire".to_owned(), 200)), "{found:?}");
    assert!(found.contains(&("driver-receive".to_owned(), 100)), "{found:?}");
}

#[test]
fn t0_without_the_hook_after_it_the_driver_is_part_of_what_follows() {
    let mut info = CaptureInfo::all();
    info.hooks.remove(&ReceiveQueue);
    let mut events = with(&[shown(2_300, 5)]);
    events.retain(|event| event.hook != ReceiveQueue);
    let found = stages(&follow(info, &events)[0]);
    assert!(found.contains(&("wire".to_owned(), 150)), "{found:?}");
    assert!(found.contains(&("driver-receive+softirq".to_owned(), 600)), "{found:?}");
}

#[test]
fn t0_frames_of_elsewhere_and_of_others_are_not_taken() {
    let bare = stages(&follow(CaptureInfo::all(), &whole())[0]);
    let station = ev(2_300, Xdp, 0, 5).on(0, 3);
    let interface = ev(2_300, Xdp, 0, 5).on(1, 4);
    // Not yet sent; long after its driver showed it; already received; another tag, and none.
    let early = shown(1_350, 5);
    for other in [station, interface, early, shown(2_500, 5), shown(2_300, 6), shown(2_300, 0)] {
        let out = follow(CaptureInfo::all(), &with(&[other]));
        assert_eq!(stages(&out[0]), bare, "{other:?}");
        assert_eq!((out.len(), out[0].status), (1, Status::Complete));
    }
}

#[test]
fn t0_a_new_buffer_has_its_transmission_by_the_frame_that_was_shown() {
    let starts = [10_000, 30_000, 50_000];
    let frames = starts.map(|at| shown(at + 400, 5));
    assert_eq!(in_drivers(repeated(starts), &frames), [Some(100); 3]);
    assert_eq!(in_drivers(repeated(starts), &[]), [None; 3]);
    let mut events = repeated(starts);
    events.extend(frames);
    events.sort_by_key(|event| event.at_ns);
    let out = follow(CaptureInfo::all(), &events);
    assert_eq!(out.len(), 3);
    for packet_path in &out {
        assert_eq!(packet_path.status, Status::Complete);
        let expected = [("wire", 380), ("driver-receive", 100), ("softirq", 100)];
        assert_eq!(of_wire(packet_path), named(&expected));
        let rules: Vec<Rule> = packet_path.stages.iter().map(|stage| stage.rule).collect();
        let expected = [Rule::Object, Rule::Object, Rule::Tag, Rule::CopyByTag, Rule::Object];
        assert_eq!(rules, expected);
    }
}

#[test]
fn t0_of_two_frames_with_one_tag_on_their_way_neither_is_taken() {
    // The first two overlap: both are shown before either is received.
    let starts = [10_000, 10_050, 50_000];
    let frames = starts.map(|at| shown(at + 400, 5));
    assert_eq!(in_drivers(repeated(starts), &frames), [None, None, Some(100)]);
}

#[test]
fn t0_a_frame_that_was_never_received_leaves_doubt_for_a_window() {
    let starts = [10_000, 30_000, 50_000];
    let mut frames = starts.map(|at| shown(at + 400, 5)).to_vec();
    // A window is 10 000: the doubt of the first is over before the second comes.
    frames.push(shown(10_100, 5));
    assert_eq!(in_drivers(repeated(starts), &frames), [None, Some(100), Some(100)]);
    // Within a window of each other the doubt goes on.
    let starts = [10_000, 15_000, 20_000];
    let mut frames = starts.map(|at| shown(at + 400, 5)).to_vec();
    frames.push(shown(10_100, 5));
    assert_eq!(in_drivers(repeated(starts), &frames), [None; 3]);
}

const WINDOW: i64 = 100;

fn point(at_ns: i64) -> Point {
    let event = shown(at_ns.unsigned_abs(), 5);
    Point::of(0, &event, Common { ns: at_ns, bound_ns: 0 })
}

proptest! {
    /// Frames are shown at some times and received, in any order, or not: what is taken for a
    /// frame's reception is; and who is alone is found.
    #[test]
    fn t0_a_frame_is_never_taken_for_another(
        frames in proptest::collection::vec((0_i64..60, 0_i64..45, any::<bool>()), 1..30),
    ) {
        let mut at = 0;
        let mut events = Vec::new();
        let mut times = Vec::new();
        for (frame, (pause, delay, is_received)) in frames.iter().enumerate() {
            // Shown at even times, received at odd ones; a window is longer than any delay.
            at += 2 * (1 + pause);
            let received = at + 2 * delay + 1;
            times.push((at, is_received.then_some(received)));
            events.push((at, frame, true));
            if *is_received {
                events.push((received, frame, false));
            }
        }
        events.sort_unstable();
        let mut arrivals = Arrivals::default();
        for (now, frame, is_shown) in events {
            if is_shown {
                arrivals.seen(&point(now), 5, WINDOW, 1_000);
                prop_assert!(arrivals.len() <= 52, "only a window is kept");
                continue;
            }
            let found = arrivals.received(&point(now), 5, WINDOW).map(|found| found.at_ns);
            let own = times[frame].0;
            prop_assert!(found.is_none_or(|found| found == own), "{found:?} {own}");
            let mut others = times.iter().enumerate().filter(|(other, _)| *other != frame);
            let alone = others.all(|(_, (shown, _))| *shown > now || *shown + WINDOW < own);
            prop_assert!(found.is_some() || !alone);
        }
    }
}

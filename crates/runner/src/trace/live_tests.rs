// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The view's analysis with events by hand, in the time of the events.

use std::sync::Mutex;

use timewire_capture::event::Flags;
use timewire_capture::packet_path::{PacketPath, PathOutcome, Status};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// What a viewer was told.
#[derive(Debug, Default)]
struct ShownToViewer {
    packet_paths: Vec<(Status, PathOutcome, i64)>,
    /// When, what was not shown, stations with a slowest packet path, whether it was the last.
    moments: Vec<(i64, u64, Vec<u8>, bool)>,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    told: Arc<Mutex<ShownToViewer>>,
    /// After so many moments nobody looks.
    most: Option<usize>,
    /// Nothing is shown before this is dropped.
    gate: Arc<Mutex<()>>,
}

impl Observer for Watch {
    fn packet_path(&mut self, packet_path: &PacketPath) {
        let it = (packet_path.status, packet_path.outcome, packet_path.end_to_end_ns());
        self.told.lock().unwrap().packet_paths.push(it);
    }
}

impl Viewer for Watch {
    fn begin(&mut self, _: &CaptureHeader) {}

    fn moment(&mut self, moment: &Moment<'_>) -> io::Result<()> {
        drop(self.gate.lock().unwrap());
        let mut told = self.told.lock().unwrap();
        if self.most.is_some_and(|most| told.moments.len() >= most) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let stations = moment.of_stations.keys().map(|at| at.1).collect();
        told.moments.push((moment.elapsed.as_ns(), moment.not_shown, stations, moment.is_last));
        Ok(())
    }
}

fn header() -> CaptureHeader {
    let hooks = [Hook::DeviceQueue, Hook::DriverStart, Hook::StackReceive, Hook::SocketQueue];
    let all = hooks.into_iter().chain([Hook::SocketReceive]);
    CaptureHeader {
        hooks: all.map(|hook| hook.name().to_owned()).collect(),
        meta: BTreeMap::from([("alone".to_owned(), "yes".to_owned())]),
        ..CaptureHeader::default()
    }
}

/// Packet `n` from station 0 to station 1, 4 us long.
fn packet(n: u64, at_ns: u64) -> Vec<[u8; EVENT_BYTES]> {
    let event = |later: u64, hook, station, interface, object, aux| {
        let tagged = if hook == Hook::SocketQueue {
            Flags::TAGGED.with(Flags::ALONE)
        } else {
            Flags::TAGGED
        };
        let flags = if hook == Hook::DeviceQueue { tagged.with(Flags::FIRST) } else { tagged };
        let tag = if hook == Hook::SocketReceive { 0 } else { (7 << 32) | (n + 1) };
        let (thread, cpu, length) = (9, 0, 100);
        let at_ns = at_ns + later;
        Event { at_ns, object, tag, aux, interface, thread, cpu, flags, length, hook, station }
            .to_bytes()
    };
    let object = (n + 1) << 8;
    vec![
        event(0, Hook::DeviceQueue, 0, 2, object, 0x50),
        event(1_000, Hook::DriverStart, 0, 2, object, 0),
        event(2_000, Hook::StackReceive, 1, 3, object, 0),
        event(3_000, Hook::SocketQueue, 1, 3, object, 0x60),
        event(4_000, Hook::SocketReceive, 1, 0, 0x60, 58),
    ]
}

fn passed(upto_ns: u64, lost: u64) -> Passed {
    let count = HookCount { seen: lost, written: 0, lost };
    let hooks = BTreeMap::from([("driver-start".to_owned(), count)]);
    Passed { upto_ns, hooks, now_ns: upto_ns + 10_000 }
}

fn portion(events: Vec<[u8; EVENT_BYTES]>, passed: Passed, not_shown: u64) -> Portion {
    Portion { events, notes: Vec::new(), passed, not_shown }
}

#[test]
fn t0_packet_paths_are_shown_while_they_come_and_losses_before_them() {
    let watch = Watch::default();
    let mut follow = Follow::new(&header(), SECOND, Span::from_secs(1), watch.clone());
    let step = SECOND / 20;
    // A packet in each portion. In the tenth second the kernel loses one event, in the twentieth
    // there is no room for some.
    for n in 0..20 * 30 {
        let now = SECOND + (n + 1) * step;
        let lost = u64::from(n >= 20 * 10);
        let not_shown = if n == 20 * 20 { 5 } else { 0 };
        let events = packet(n, now - step / 2);
        follow.take(portion(events, passed(now, lost), not_shown)).unwrap();
    }
    follow.end().unwrap();
    let told = watch.told.lock().unwrap();
    assert_eq!(told.packet_paths.len(), 600);
    assert!(told.packet_paths.iter().all(|it| it.1 == PathOutcome::Received && it.2 == 4_000));
    let lossy = told.packet_paths.iter().enumerate().filter(|(_, it)| it.0 != Status::Complete);
    let lossy: Vec<usize> = lossy.map(|it| it.0).collect();
    // Those around the losses, no others: within 100 ms.
    assert!(lossy.contains(&200) && lossy.contains(&400), "{lossy:?}");
    assert!(lossy.iter().all(|n| n.abs_diff(200) <= 3 || n.abs_diff(400) <= 3), "{lossy:?}");
    let moments: Vec<i64> = told.moments.iter().map(|it| it.0 / 1_000_000_000).collect();
    let seconds: Vec<i64> = (1..=30).chain([30]).collect();
    assert_eq!(moments, seconds);
    assert!(told.moments[..30].iter().all(|it| it.2 == [1]), "{told:?}");
    let not_shown: Vec<u64> = told.moments.iter().map(|it| it.1).collect();
    assert_eq!((not_shown[19], not_shown[20], not_shown[30]), (0, 5, 5));
    assert_eq!(told.moments.iter().filter(|it| it.3).count(), 1);
}

#[test]
fn t0_a_cpu_that_is_emptied_later_takes_nothing_from_the_order() {
    let watch = Watch::default();
    let mut follow = Follow::new(&header(), 0, Span::from_secs(1), watch.clone());
    let mut rest = Vec::new();
    for n in 0..100_u64 {
        // The receiver's CPU is emptied later, and has events of the next portion already.
        let now = (n + 1) * SECOND / 20;
        let mut events = packet(2 * n + 1, now + 1_000)[3..].to_vec();
        events.splice(
            0..0,
            std::mem::replace(&mut rest, packet(2 * n + 1, now + 1_000)[..3].to_vec()),
        );
        events.extend(packet(2 * n, now - SECOND / 40));
        follow.take(portion(events, passed(now, 0), 0)).unwrap();
    }
    follow.early.extend(rest.iter().filter_map(Event::from_bytes));
    follow.early.sort_by_key(|event| event.at_ns);
    follow.end().unwrap();
    let told = watch.told.lock().unwrap();
    assert_eq!(told.packet_paths.len(), 200);
    let whole = (Status::Complete, PathOutcome::Received, 4_000);
    assert!(told.packet_paths.iter().all(|it| *it == whole), "{told:?}");
}

#[test]
fn t0_an_event_that_comes_late_is_no_loss_and_one_that_comes_too_late_is() {
    let watch = Watch::default();
    let mut follow = Follow::new(&header(), 0, Span::from_secs(1), watch.clone());
    let step = SECOND / 20;
    let mut late = BTreeMap::new();
    for n in 0..400_u64 {
        let now = (n + 1) * step;
        let mut events = packet(n, now - step / 2);
        // The sender's first event comes some portions after the others.
        let portions = match n {
            100 => 4,
            200 => 8,
            _ => 0,
        };
        if portions > 0 {
            late.insert(n + portions, events.remove(0));
        }
        events.extend(late.remove(&n));
        follow.take(portion(events, passed(now, 0), 0)).unwrap();
    }
    follow.end().unwrap();
    let told = watch.told.lock().unwrap();
    let lossy = told.packet_paths.iter().enumerate().filter(|(_, it)| it.0 != Status::Complete);
    let lossy: Vec<usize> = lossy.map(|it| it.0).collect();
    assert_eq!(told.packet_paths.len(), 400);
    // Those that had not come out by then.
    assert!(!lossy.is_empty() && lossy.iter().all(|n| (200..=210).contains(n)), "{lossy:?}");
}

#[test]
fn t0_too_many_packets_at_once_are_not_shown() {
    let watch = Watch::default();
    let mut follow = Follow::new(&header(), 0, Span::from_secs(1), watch.clone());
    follow.most_packets = 100;
    let mut held = 0;
    let step = SECOND / 20;
    for n in 0..2_000_u64 {
        // They wait in a queueing discipline that never sends.
        let now = (n + 1) * step;
        let all =
            (0..10).flat_map(|k| packet(n * 10 + k, now - step / 2 + k * 5_000)[..1].to_vec());
        follow.take(portion(all.collect(), passed(now, 0), 0)).unwrap();
        held = held.max(follow.analysis.held().packets);
        assert!(follow.early.len() <= 80);
    }
    assert!((100..=200).contains(&held), "{held}");
    follow.end().unwrap();
    let told = watch.told.lock().unwrap();
    let not_shown = told.moments.last().unwrap().1;
    let shown = count(told.packet_paths.len());
    assert_eq!(shown + not_shown, 20_000);
    assert!(not_shown > 0 && shown > 0);
}

#[test]
fn t0_the_collector_never_waits_and_what_has_no_room_is_counted() {
    let watch = Watch::default();
    let gate = Arc::clone(&watch.gate);
    let shut = gate.lock().unwrap();
    let live = Live::start(&header(), Span::from_ns(1), watch.clone()).unwrap();
    let mut shown = Shown { sink: Nowhere, live: Some(live) };
    assert_eq!(shown.every(), Some(EVERY));
    let begun = clock::now::<Mono>().as_ns().unsigned_abs();
    let all = 2 * count(MAX_WAITING) / 5;
    // This ends, though nobody takes anything.
    for n in 0..all {
        shown.events(&packet(n, begun + n * 10_000)).unwrap();
        shown.passed(passed(begun + n * 10_000, 0));
    }
    shown.passed(passed(begun + all * 10_000, 0));
    drop(shut);
    shown.live.unwrap().end().unwrap();
    let told = watch.told.lock().unwrap();
    let last = told.moments.last().unwrap();
    assert!(last.3 && last.1 > 0, "{last:?}");
    let shown = told.packet_paths.iter().filter(|it| it.1 == PathOutcome::Received).count();
    assert!(shown > 0 && count(shown) * 5 + last.1 <= all * 5, "{shown} {last:?}");
    assert!(count(shown) * 5 + last.1 + 20 >= all * 5, "{shown} {last:?}");
}

#[test]
fn t0_a_view_that_ends_leaves_the_capture_alone() {
    let watch = Watch { most: Some(1), ..Watch::default() };
    let live = Live::start(&header(), Span::from_ns(1), watch.clone()).unwrap();
    let mut shown = Shown { sink: Nowhere, live: Some(live) };
    let begun = clock::now::<Mono>().as_ns().unsigned_abs();
    let mut n = 0;
    while shown.live.as_ref().unwrap().to.is_some() {
        n += 1;
        shown.events(&packet(n, begun + n * 10_000)).unwrap();
        shown.passed(passed(begun + n * 10_000, 0));
        std::thread::yield_now();
    }
    for _ in 0..10 {
        shown.events(&packet(n, begun + n * 10_000)).unwrap();
        shown.note(&Note::Thread { thread: 1, name: "one".to_owned() }).unwrap();
    }
    let live = shown.live.unwrap();
    assert!(live.pending.events.is_empty() && live.pending.notes.is_empty());
    assert_eq!(live.end().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(watch.told.lock().unwrap().moments.len(), 1);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows, priorities, the hybrid mode, and changing all of it while frames wait.

use std::path::{Path, PathBuf};

use timewire_base::{BitsPerSecond, CyclicWindows, Instant, Phase, Span, Tai};
use timewire_capture::record::{Record, RecordFile, RecordHeader, TimestampPoint};
use timewire_datapath::SocketChoice;
use timewire_datapath::mac::{ClockRule, MacSpec};
use timewire_datapath::observe::{ObservedPort, observe};
use timewire_datapath::record::Recorder;
use timewire_sys::clock;
use timewire_tsn::Mode;

use crate::station::{
    OTHER, Random, Station, name, now, number_of, on_a_station, on_each_socket, ports, queue, raw,
    spec, start, total, udp, wait_for, windows,
};

const URGENT: u16 = 15_001;
const NORMAL: u16 = 16_001;

/// A MAC whose only window of an hour has just passed.
fn shut(socket: SocketChoice) -> MacSpec {
    let hour = Span::from_secs(3_600);
    let passed = windows(now() - Span::from_secs(1), hour, Span::from_ms(500));
    MacSpec { windows: Some(passed), ..spec(socket) }
}

/// Windows that are open nine tenths of the time, from now on.
fn open() -> CyclicWindows {
    windows(now(), Span::from_ms(1), Span::from_us(900))
}

/// The records of everything on the segment while `traffic` ran, and how many were lost.
fn observed(traffic: impl FnOnce()) -> (Vec<Record>, u64) {
    let file = Scratch::new();
    let header = RecordHeader {
        writer: "test".to_owned(),
        case: "a/b/c".to_owned(),
        clocks: timewire_datapath::clocks(),
        stations: vec!["alpha".to_owned()],
        flows: Vec::new(),
        meta: std::collections::BTreeMap::default(),
    };
    let recorder = Recorder::create(&file.0, &header).unwrap();
    let hub = [ObservedPort { interface: name("seg0"), station: Some(0) }];
    let end = now() + Span::from_secs(4);
    let before = packet_sockets();
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| observe(&hub, &[], &[], end, &recorder));
        while packet_sockets() == before {
            std::thread::yield_now();
        }
        traffic();
        assert!(now() < end, "the traffic took too long");
        observer.join().unwrap().unwrap();
    });
    recorder.finish().unwrap();
    let decoded = RecordFile::decode(&std::fs::read(&file.0).unwrap()).unwrap();
    (decoded.records, decoded.lost)
}

/// How many AF_PACKET sockets receive in the station's namespace: column `R`, set once one is
/// bound.
fn packet_sockets() -> usize {
    let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    table.lines().filter(|line| line.split_ascii_whitespace().nth(5) == Some("1")).count()
}

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let unique = format!("timewire-{}-{:?}", std::process::id(), std::thread::current().id());
        Scratch(Path::new(&std::env::temp_dir()).join(unique))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether they leave in their windows is asserted in virtual time (`scenarios/sockets-*.yaml`):
/// here the timestamps are those of a receive softirq, which a busy host puts off.
#[test]
fn t3_random_frames_leave_and_none_is_lost_uncounted() {
    on_each_socket(|station, socket| {
        let tdm = windows(now(), Span::from_ms(2), Span::from_us(700));
        let mut spec = spec(socket);
        spec.config.rate = BitsPerSecond::new(100_000_000).unwrap();
        spec.config.ahead = Span::from_us(30);
        spec.windows = Some(tdm.clone());
        let mut mac = start(spec);
        let mut random = Random(7);
        let mut sent = 0;
        let (records, lost) = observed(|| {
            while sent < 3_000 {
                let length = usize::try_from(60 + random.below(1_455)).unwrap();
                station.stack.send(&raw(OTHER, length, sent));
                sent += 1;
                if random.below(4) == 0 {
                    clock::sleep_until(now() + Span::from_us(100));
                }
            }
            wait_for(&mut mac, "the queues are empty", |status| total(status).depth == 0);
        });
        let status = mac.status().unwrap();
        let total = total(&status);
        assert_eq!(total.arrived + status.observed.ingress_dropped, sent);
        let out = total.released - status.observed.not_sent.total();
        assert_eq!(station.wire.receive().len(), usize::try_from(out).unwrap());
        assert_eq!((u64::try_from(records.len()).unwrap(), lost), (out, 0));
        let outside = |record: &&Record| {
            assert_eq!(
                (record.point, record.station, record.flow),
                (TimestampPoint::Segment, 0, Record::NO_FLOW)
            );
            !matches!(tdm.phase(Instant::from_ns(record.at_ns)), Some(Phase::Inside { .. }))
        };
        let outside = records.iter().filter(outside).count();
        eprintln!("  {outside} of {} frames were timestamped outside their window", records.len());
        mac.stop().unwrap();
    });
}

/// Sends normal frames, then urgent ones, while the window is shut; they fit the ingress.
fn queue_up(station: &mut Station, normal: u64, urgent: u64) {
    for number in 0..normal {
        station.stack.send(&udp(OTHER, 1, NORMAL, 100, number));
    }
    for number in 0..urgent {
        station.stack.send(&udp(OTHER, 1, URGENT, 100, number));
    }
}

fn in_order(port: u16, count: u64) -> impl Iterator<Item = (u16, u64)> {
    (0..count).map(move |number| (port, number))
}

#[test]
fn t3_urgent_frames_overtake_a_queue_of_normal_ones() {
    on_each_socket(|station, socket| {
        let spec = MacSpec { send: ports(&[(u64::from(URGENT), 1)]), ..shut(socket) };
        let mut mac = start(spec);
        queue_up(station, 300, 20);
        let status = wait_for(&mut mac, "all wait", |status| total(status).depth == 320);
        assert_eq!(queue(&status, 1).depth, 20);
        mac.set_windows(Some(open()), now()).unwrap();
        let frames = station.wire.expect(320);
        let came: Vec<_> = frames.iter().map(|frame| number_of(frame)).collect();
        let expected: Vec<_> = in_order(URGENT, 20).chain(in_order(NORMAL, 300)).collect();
        assert_eq!(came, expected);
        mac.stop().unwrap();
    });
}

#[test]
fn t3_windows_and_lists_change_while_frames_wait() {
    on_each_socket(|station, socket| {
        let spec = MacSpec { send: ports(&[(u64::from(URGENT), 1)]), ..shut(socket) };
        let mut mac = start(spec);
        queue_up(station, 50, 10);
        wait_for(&mut mac, "all wait", |status| total(status).depth == 60);

        // Frames stay in the queue they came to; later ones go by the new list.
        mac.set_send(&ports(&[(u64::from(NORMAL), 5)])).unwrap();
        queue_up(station, 50, 10);
        let status = wait_for(&mut mac, "all wait", |status| total(status).depth == 120);
        assert_eq!(status.send, ports(&[(u64::from(NORMAL), 5)]));
        assert_eq!(queue(&status, 5).depth, 50);
        mac.set_send(&ports(&[])).unwrap();
        queue_up(station, 50, 10);
        wait_for(&mut mac, "all wait", |status| total(status).depth == 180);

        let next = open();
        mac.set_windows(Some(next.clone()), now()).unwrap();
        let came: Vec<_> = station.wire.expect(180).iter().map(|frame| number_of(frame)).collect();
        let default = in_order(NORMAL, 50)
            .chain(in_order(URGENT, 10))
            .chain(in_order(NORMAL, 50))
            .chain(in_order(URGENT, 10));
        let expected: Vec<_> =
            in_order(URGENT, 10).chain(in_order(NORMAL, 50)).chain(default).collect();
        assert_eq!(came, expected);
        let status = mac.status().unwrap();
        assert_eq!((status.windows, status.counters.schedule_changes), (Some(next), 1));

        // Back and forth under traffic; without windows at the end.
        for round in 0..40_u64 {
            let windows = (round % 2 == 0).then(open);
            mac.set_windows(windows, now()).unwrap();
            for number in 0..20 {
                station.stack.send(&raw(OTHER, 200, number));
            }
        }
        station.wire.expect(800);
        let quiet = |status: &timewire_datapath::mac::MacStatus| status.pending.is_none();
        let status = wait_for(&mut mac, "no change is pending", quiet);
        assert_eq!((status.windows.clone(), total(&status).released), (None, 980));
        assert_eq!((status.observed.ingress_dropped, status.observed.not_sent.total()), (0, 0));
        mac.stop().unwrap();
    });
}

#[test]
fn t3_without_a_synchronised_clock_nothing_leaves() {
    if clock::discipline().unwrap().synchronised {
        eprintln!("SKIP: this host's clock is synchronised");
        return;
    }
    on_each_socket(|station, socket| {
        let clock = ClockRule::Synchronised { max_error: Span::from_ms(1) };
        let mut mac = start(MacSpec { windows: Some(open()), clock, ..spec(socket) });
        for number in 0..30 {
            station.stack.send(&raw(OTHER, 200, number));
        }
        let held = wait_for(&mut mac, "all are held", |s| s.counters.held_unsynchronised == 30);
        assert_eq!((total(&held).depth, total(&held).released), (30, 0));
        // Several times as long as the clock is looked at.
        let later = now() + Span::from_ms(300);
        clock::sleep_until(later);
        assert_eq!(total(&mac.status().unwrap()).depth, 30);
        assert_eq!(station.wire.receive(), Vec::<Vec<u8>>::new());
        // Without windows nobody's slot can be hurt.
        let fast = windows(now(), Span::from_ms(1), Span::from_us(900));
        mac.set_windows(Some(fast), now()).unwrap();
        mac.set_windows(None, now()).unwrap();
        mac.stop().unwrap();
    });
}

/// When the window that is open at or after an instant ends.
fn end_of_window(windows: &CyclicWindows, at: Instant<Tai>) -> Instant<Tai> {
    match windows.phase(at).unwrap() {
        Phase::Inside { end, .. } | Phase::Before { end, .. } => end,
    }
}

#[test]
fn t3_hybrid_best_effort_is_bound_only_while_there_is_real_time() {
    on_each_socket(|station, socket| {
        let idle_after = Span::from_ms(100);
        let tdm = windows(now(), Span::from_ms(600), Span::from_ms(50));
        let mut spec = MacSpec {
            windows: Some(tdm.clone()),
            recv: ports(&[(u64::from(URGENT), 1)]),
            ..spec(socket)
        };
        spec.config.mode = Mode::Hybrid { idle_after };
        let mut mac = start(spec);
        // It listens first; then frames leave while the window is shut.
        clock::sleep_until(now() + idle_after + Span::from_ms(20));
        for number in 0..5 {
            clock::sleep_until(end_of_window(&tdm, now()) + Span::from_ms(1));
            let sent = now();
            station.stack.send(&raw(OTHER, 200, number));
            station.wire.expect(1);
            assert!(now() < sent + Span::from_ms(500), "it waited for the window");
        }

        // As long as another station's real-time frames are seen, only in the window.
        clock::sleep_until(end_of_window(&tdm, now()) + Span::from_ms(1));
        let shut = now();
        for number in 0..30 {
            station.wire.send(&udp(OTHER, 1, URGENT, 100, number));
            clock::sleep_until(now() + Span::from_ms(1));
        }
        station.stack.send(&raw(OTHER, 200, 9));
        let mut came = Vec::new();
        while came.is_empty() {
            station.wire.send(&udp(OTHER, 1, URGENT, 100, 0));
            clock::sleep_until(now() + Span::from_ms(5));
            came = station.wire.receive();
        }
        let Some(Phase::Before { start, .. }) = tdm.phase(shut) else { panic!("a slow host") };
        assert!(now() >= start, "it left {} before its window", start - now());
        let foreign = mac.status().unwrap().received.foreign;
        assert!(foreign > 30, "{foreign} frames of others");
        mac.stop().unwrap();
    });
}

#[test]
fn t3_a_full_queue_drops_and_counts() {
    on_a_station(|station| {
        for socket in crate::station::SOCKETS {
            let mut spec = shut(socket);
            spec.config.queue_capacity = 100;
            let mut mac = start(spec);
            for number in 0..1_000 {
                station.stack.send(&raw(OTHER, 200, number));
            }
            let status = wait_for(&mut mac, "all came", |status| total(status).arrived == 1_000);
            assert_eq!((total(&status).dropped_full, total(&status).depth), (900, 100));
            mac.set_windows(Some(open()), now()).unwrap();
            let frames = station.wire.expect(100);
            assert!((0..100).zip(frames).all(|(number, frame)| frame == raw(OTHER, 200, number)));
            mac.stop().unwrap();
        }
    });
}

#[test]
fn t3_more_frames_than_buffers_are_counted() {
    on_each_socket(|station, socket| {
        let mut spec = shut(socket);
        spec.config.queue_capacity = 65_536;
        let mut mac = start(spec);
        let sent = 12_000;
        for number in 0..sent {
            station.stack.send(&raw(OTHER, 60, number));
        }
        let all = |status: &timewire_datapath::mac::MacStatus| {
            let waiting = if socket == SocketChoice::AfPacket { 12_000 - 8_192 } else { 0 };
            total(status).arrived + status.observed.ingress_dropped + waiting == sent
        };
        wait_for(&mut mac, "each frame has arrived or was counted", all);
        mac.set_windows(Some(open()), now()).unwrap();
        let empty = |status: &timewire_datapath::mac::MacStatus| {
            let total = total(status);
            total.depth == 0 && total.arrived + status.observed.ingress_dropped == sent
        };
        let status = wait_for(&mut mac, "all have left", empty);
        assert_eq!(station.wire.receive().len() as u64, total(&status).released);
        mac.stop().unwrap();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::tempdir;
use timewire_base::Failure;
use timewire_capture::capture::{CAPTURE_SCHEMA, Station, Writer};
use timewire_capture::event::Flags;
use timewire_capture::packet_path::{PacketPath, PathOutcome, Status};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Host b's clock is so far ahead of a's, and 50 ppm faster.
fn b_of(a_ns: u64) -> u64 {
    a_ns + 77 * SECOND + a_ns / 20_000
}

fn header(host: &str) -> CaptureHeader {
    assert!(CAPTURE_SCHEMA.starts_with("timewire.capture/"));
    let station = Station {
        name: host.to_owned(),
        namespace: 1,
        interfaces: BTreeMap::from([(2, "eth0".to_owned())]),
    };
    CaptureHeader {
        host: host.to_owned(),
        boot: format!("boot of {host}"),
        stations: vec![station],
        hooks: Hook::ALL.iter().map(|hook| hook.name().to_owned()).collect(),
        keep_one_of: 1,
        ..CaptureHeader::default()
    }
}

fn event(hook: Hook, at_ns: u64, object: u64, tag: u64) -> Event {
    Event {
        at_ns,
        object,
        tag,
        aux: if hook == Hook::SocketQueue { 99 } else { 0 },
        interface: 2,
        thread: 7,
        cpu: 0,
        flags: Flags::TAGGED,
        length: 100,
        hook,
        station: 0,
    }
}

/// A packet from one host to the other: events of the sender and of the receiver, by `a`'s clock.
fn packet(at: u64, object: u64, tag: u64, wire: u64) -> (Vec<Event>, Vec<Event>) {
    let sender = [(Hook::DeviceQueue, 0), (Hook::DriverStart, 300), (Hook::DriverDone, 350)];
    let receiver = [
        (Hook::NapiReceive, 300 + wire),
        (Hook::StackReceive, 500 + wire),
        (Hook::SocketQueue, 900 + wire),
    ];
    let make = |(hook, after): (Hook, u64)| event(hook, at + after, object, tag);
    let mut received: Vec<Event> = receiver.map(make).to_vec();
    let read = event(Hook::SocketReceive, at + 5_000 + wire, 99, 0);
    received.push(Event { aux: 58, length: 58, ..read });
    (sender.map(make).to_vec(), received)
}

/// Two captures of ten seconds with a packet each way every 20 ms.
fn captures(directory: &Path, both_ways: bool) -> Vec<PathBuf> {
    sampled(directory, both_ways, &[])
}

/// The same with samples of the clocks at these seconds of `a`'s clock, which nothing synchronises.
fn sampled(directory: &Path, both_ways: bool, seconds: &[u64]) -> Vec<PathBuf> {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for n in 0..500_u64 {
        let at = 5 * SECOND + n * 20_000_000;
        // Every tenth meets others on its way.
        let wire = 700 + if n % 10 == 3 { 40_000 } else { n % 7 };
        let (sent, received) = packet(at, 10 + n, 1 << 32 | n, wire);
        of_a.extend(sent);
        of_b.extend(received);
        if both_ways {
            let (sent, received) = packet(at + 9_000_000, 10_000 + n, 2 << 32 | n, wire);
            of_b.extend(sent);
            of_a.extend(received);
        }
    }
    for event in &mut of_b {
        event.at_ns = b_of(event.at_ns);
    }
    let write = |name: &str, mut events: Vec<Event>| {
        events.sort_by_key(|event| event.at_ns);
        let file = directory.join(format!("{name}.twc"));
        let mut writer = Writer::new(File::create(&file).unwrap(), &header(name)).unwrap();
        for second in seconds {
            let a_ns = second * SECOND;
            let monotonic_ns = if name == "a" { a_ns } else { b_of(a_ns) };
            let utc_ns = 1_700_000_000 * SECOND + a_ns;
            let sample = ClockSample {
                monotonic_ns,
                realtime_ahead_ns: i64::try_from(utc_ns - monotonic_ns).unwrap(),
                tai_ahead_ns: 0,
                // Two samples around it forgive what the clock drifts by.
                error_ns: 30_000,
                offset_ns: None,
            };
            writer.note(&Note::Clocks(sample)).unwrap();
        }
        for event in &events {
            writer.event(event).unwrap();
        }
        let count = HookCount { seen: 1_500, written: 1_500, lost: 0 };
        let all = Hook::ALL.iter().map(|hook| (hook.name().to_owned(), count)).collect();
        writer.note(&Note::Losses(all)).unwrap();
        writer.finish().unwrap();
        file
    };
    vec![write("a", of_a), write("b", of_b)]
}

#[test]
fn t1_two_hosts_without_synchronisation_have_packet_paths_with_a_bound() {
    let directory = tempdir().unwrap();
    let study = Study { captures: captures(directory.path(), true), ..Study::default() };
    let mut packet_paths: Vec<PacketPath> = Vec::new();
    let mut told = 0;
    let studied = study
        .run(&mut packet_paths, &mut |_| {
            told += 1;
            true
        })
        .unwrap();
    assert_eq!(packet_paths.len(), 1_000);
    for packet_path in &packet_paths {
        assert_eq!(
            (packet_path.status, packet_path.outcome),
            (Status::Complete, PathOutcome::Received)
        );
        let sum: i64 = packet_path.stages.iter().map(|stage| stage.ns).sum();
        assert_eq!(sum, packet_path.end_to_end_ns());
        // 5.0 us and the wire, by a's clock.
        let n = packet_path.tag & 0xffff_ffff;
        let wire = if n % 10 == 3 { 40_700 } else { 700 + n % 7 };
        let right = i64::try_from(5_000 + wire).unwrap();
        let off = right.abs_diff(packet_path.end_to_end_ns());
        // 50 ppm of a packet path is nothing.
        assert!(
            off <= packet_path.bound_ns() + 3,
            "{off} ns off, bound {}",
            packet_path.bound_ns()
        );
        assert!((300..2_000).contains(&packet_path.bound_ns()), "{}", packet_path.bound_ns());
    }
    let [a, b] = studied.clocks.aligned() else { panic!("two hosts") };
    assert_eq!((&a.way, a.bound_ns), (&ClockWay::Itself, Some(0)));
    assert_eq!(b.way, ClockWay::Packets { to: "a".to_owned() });
    assert!((b.rate_ppb.unwrap() - 50_000.0).abs() < 200.0, "{b:?}");
    assert!((350..2_000).contains(&b.bound_ns.unwrap()), "{b:?}");
    assert_eq!(studied.captures[0].events, 500 * 3 + 500 * 4);
    assert_eq!(studied.captures[0].lost(), 0);
    assert!(studied.captures[1].health.is_whole());
}

#[test]
fn t1_hosts_that_nothing_joins_are_named() {
    let directory = tempdir().unwrap();
    let study = Study { captures: captures(directory.path(), false), ..Study::default() };
    let error = study.run(&mut Vec::<PacketPath>::new(), &mut |_| true).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("the clocks of b cannot be brought onto that of a"), "{said}");
    assert!(said.contains("500 were found from the first host to the second and 0 back"), "{said}");
    // One alone needs no other clock.
    let alone = Study { captures: vec![study.captures[0].clone()], ..Study::default() };
    let mut packet_paths: Vec<PacketPath> = Vec::new();
    alone.run(&mut packet_paths, &mut |_| true).unwrap();
    assert_eq!(packet_paths.len(), 500);
    assert!(packet_paths.iter().all(|packet_path| packet_path.outcome == PathOutcome::Sent));
}

#[test]
fn t1_files_that_are_no_captures_are_refused() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("no.twc");
    std::fs::write(&file, "hello").unwrap();
    let of = |captures: Vec<PathBuf>| {
        let study = Study { captures, ..Study::default() };
        study.run(&mut Vec::<PacketPath>::new(), &mut |_| true).unwrap_err().to_string()
    };
    assert!(of(vec![file]).contains("no.twc: this is no capture"));
    assert!(of(vec![directory.path().join("none")]).contains("cannot open"));
    assert_eq!(of(Vec::new()), "no capture was given");
}

#[test]
fn t1_packet_paths_around_a_loss_are_lossy_and_the_others_are_not() {
    let directory = tempdir().unwrap();
    let whole = captures(directory.path(), true);
    // Both hosts in one capture of one kernel: the second's events are on the first's clock.
    let mut reader = open(&whole[0]).unwrap();
    let mut events = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Event(event) = item {
            events.push(event);
        }
    }
    let file = directory.path().join("lossy.twc");
    let mut writer = Writer::new(File::create(&file).unwrap(), &header("a")).unwrap();
    let sample = |at_ns: u64| {
        Note::Clocks(ClockSample {
            monotonic_ns: at_ns,
            realtime_ahead_ns: 0,
            tai_ahead_ns: 0,
            error_ns: 0,
            offset_ns: None,
        })
    };
    let count = |lost: u64| {
        let count = HookCount { seen: 1_000, written: 1_000 - lost, lost };
        let hook = Hook::DriverStart.name().to_owned();
        Note::Losses(BTreeMap::from([(hook, count)]))
    };
    let mut second = 5;
    for event in &events {
        while event.at_ns >= second * SECOND {
            // Seven are lost between the eighth second and the ninth.
            let lost = if second >= 9 { 7 } else { 0 };
            for note in [sample(second * SECOND), count(lost), sample(second * SECOND + 1_000)] {
                writer.note(&note).unwrap();
            }
            second += 1;
        }
        writer.event(event).unwrap();
    }
    writer.finish().unwrap();
    let study = Study { captures: vec![file], ..Study::default() };
    let mut packet_paths: Vec<PacketPath> = Vec::new();
    let studied = study.run(&mut packet_paths, &mut |_| true).unwrap();
    assert_eq!(studied.captures[0].lost(), 7);
    let lossy = |from: i64, to: i64| {
        let these = packet_paths.iter().filter(|packet_path| {
            let at = packet_path.from_ns() / 1_000_000_000;
            (from..to).contains(&at)
        });
        let statuses: Vec<Status> = these.map(|packet_path| packet_path.status).collect();
        assert!(statuses.len() > 90, "{}", statuses.len());
        statuses.iter().filter(|status| **status == Status::Lossy).count() * 100 / statuses.len()
    };
    assert_eq!((lossy(5, 7), lossy(8, 9), lossy(11, 14)), (0, 100, 0));
}

#[test]
fn t1_a_bound_of_the_clocks_can_be_stated() {
    let directory = tempdir().unwrap();
    let seconds: Vec<u64> = (4..=17).collect();
    let captures = sampled(directory.path(), false, &seconds);
    let mut study = Study { captures, ..Study::default() };
    let error = study.run(&mut Vec::<PacketPath>::new(), &mut |_| true).unwrap_err();
    assert!(error.hint().unwrap().contains("--clock-error"), "{error}");
    study.clock_error_ns = Some(5_001);
    let mut packet_paths: Vec<PacketPath> = Vec::new();
    let studied = study.run(&mut packet_paths, &mut |_| true).unwrap();
    let [_, b] = studied.clocks.aligned() else { panic!() };
    assert!(b.stated && matches!(b.way, ClockWay::Synchronised { .. }), "{b:?}");
    // Half of it for each host, and the errors of reading their clocks.
    let bound = b.bound_ns.unwrap();
    assert!((2 * 2_501 + 60_000..200_000).contains(&bound), "{bound}");
    assert_eq!(packet_paths.len(), 500);
    assert!(
        packet_paths.iter().all(|packet_path| packet_path.bound_ns() >= 5_001),
        "{:?}",
        packet_paths[0]
    );
}

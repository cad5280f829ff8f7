// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use timewire_trace::capture::{CAPTURE_SCHEMA, Station, Writer};
use timewire_trace::event::Flags;
use timewire_trace::journey::{Journey, Outcome, Status};

use super::*;

/// A directory that is gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("timewire-study-{}-{number}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&place.0).unwrap();
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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
fn t1_two_hosts_without_synchronisation_have_journeys_with_a_bound() {
    let directory = Place::new();
    let study = Study { captures: captures(&directory.0, true), ..Study::default() };
    let mut journeys: Vec<Journey> = Vec::new();
    let mut told = 0;
    let studied = study
        .run(&mut journeys, &mut |_| {
            told += 1;
            true
        })
        .unwrap();
    assert_eq!(journeys.len(), 1_000);
    for journey in &journeys {
        assert_eq!((journey.status, journey.outcome), (Status::Complete, Outcome::Received));
        let sum: i64 = journey.stages.iter().map(|stage| stage.ns).sum();
        assert_eq!(sum, journey.end_to_end_ns());
        // 5.0 us and the wire, by a's clock.
        let n = journey.tag & 0xffff_ffff;
        let wire = if n % 10 == 3 { 40_700 } else { 700 + n % 7 };
        let right = i64::try_from(5_000 + wire).unwrap();
        let off = right.abs_diff(journey.end_to_end_ns());
        // 50 ppm of a journey is nothing.
        assert!(off <= journey.bound_ns() + 3, "{off} ns off, bound {}", journey.bound_ns());
        assert!((300..2_000).contains(&journey.bound_ns()), "{}", journey.bound_ns());
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
    let directory = Place::new();
    let study = Study { captures: captures(&directory.0, false), ..Study::default() };
    let error = study.run(&mut Vec::<Journey>::new(), &mut |_| true).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("the clocks of b cannot be brought onto that of a"), "{said}");
    assert!(said.contains("500 were found from the first host to the second and 0 back"), "{said}");
    // One alone needs no other clock.
    let alone = Study { captures: vec![study.captures[0].clone()], ..Study::default() };
    let mut journeys: Vec<Journey> = Vec::new();
    alone.run(&mut journeys, &mut |_| true).unwrap();
    assert_eq!(journeys.len(), 500);
    assert!(journeys.iter().all(|journey| journey.outcome == Outcome::Sent));
}

#[test]
fn t1_files_that_are_no_captures_are_refused() {
    let directory = Place::new();
    let file = directory.0.join("no.twc");
    std::fs::write(&file, "hello").unwrap();
    let of = |captures: Vec<PathBuf>| {
        let study = Study { captures, ..Study::default() };
        study.run(&mut Vec::<Journey>::new(), &mut |_| true).unwrap_err().to_string()
    };
    assert!(of(vec![file]).contains("no.twc: this is no capture"));
    assert!(of(vec![directory.0.join("none")]).contains("cannot open"));
    assert_eq!(of(Vec::new()), "no capture was given");
}

#[test]
fn t1_journeys_around_a_loss_are_lossy_and_the_others_are_not() {
    let directory = Place::new();
    let whole = captures(&directory.0, true);
    // Both hosts in one capture of one kernel: the second's events are on the first's clock.
    let mut reader = open(&whole[0]).unwrap();
    let mut events = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Event(event) = item {
            events.push(event);
        }
    }
    let file = directory.0.join("lossy.twc");
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
    let mut journeys: Vec<Journey> = Vec::new();
    let studied = study.run(&mut journeys, &mut |_| true).unwrap();
    assert_eq!(studied.captures[0].lost(), 7);
    let lossy = |from: i64, to: i64| {
        let these = journeys.iter().filter(|journey| {
            let at = journey.from_ns() / 1_000_000_000;
            (from..to).contains(&at)
        });
        let statuses: Vec<Status> = these.map(|journey| journey.status).collect();
        assert!(statuses.len() > 90, "{}", statuses.len());
        statuses.iter().filter(|status| **status == Status::Lossy).count() * 100 / statuses.len()
    };
    assert_eq!((lossy(5, 7), lossy(8, 9), lossy(11, 14)), (0, 100, 0));
}

#[test]
fn t1_a_bound_of_the_clocks_can_be_stated() {
    let directory = Place::new();
    let seconds: Vec<u64> = (4..=17).collect();
    let captures = sampled(&directory.0, false, &seconds);
    let mut study = Study { captures, ..Study::default() };
    let error = study.run(&mut Vec::<Journey>::new(), &mut |_| true).unwrap_err();
    assert!(error.hint().unwrap().contains("--clock-error"), "{error}");
    study.clock_error_ns = Some(5_001);
    let mut journeys: Vec<Journey> = Vec::new();
    let studied = study.run(&mut journeys, &mut |_| true).unwrap();
    let [_, b] = studied.clocks.aligned() else { panic!() };
    assert!(b.stated && matches!(b.way, ClockWay::Synchronised { .. }), "{b:?}");
    // Half of it for each host, and the errors of reading their clocks.
    let bound = b.bound_ns.unwrap();
    assert!((2 * 2_501 + 60_000..200_000).contains(&bound), "{bound}");
    assert_eq!(journeys.len(), 500);
    assert!(journeys.iter().all(|journey| journey.bound_ns() >= 5_001), "{:?}", journeys[0]);
}

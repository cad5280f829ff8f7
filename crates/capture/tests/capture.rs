// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture of version 1 is read for ever, and what is written is of version 1.

use std::collections::BTreeMap;

use timewire_capture::capture::{
    CaptureHeader, ClockSample, HookCount, Item, Note, Reader, Station, Writer,
};
use timewire_capture::event::{Event, Flags, Hook};

const VERSION_1: &[u8] = include_bytes!("data/v1.twc");

fn header() -> CaptureHeader {
    let interfaces = BTreeMap::from([(1, "lo".to_owned()), (7, "tw0".to_owned())]);
    let alpha = Station { name: "alpha".to_owned(), namespace: 4_026_531_840, interfaces };
    let beta = Station { name: "beta".to_owned(), namespace: 4_026_532_001, ..Station::default() };
    CaptureHeader {
        host: "lab".to_owned(),
        boot: "0f3c1f6a-6f0e-4a53-9a5e-2b1f4a7c9d10".to_owned(),
        kernel: "6.12.0".to_owned(),
        writer: "timewire 0.1.0".to_owned(),
        stations: vec![alpha, beta],
        hooks: hooks().map(|hook| hook.name().to_owned()).collect(),
        missing: BTreeMap::from([("xdp".to_owned(), "no program is attached".to_owned())]),
        filter: "udp port 7000".to_owned(),
        keep_one_of: 4,
        meta: BTreeMap::from([("case".to_owned(), "pipeline".to_owned())]),
    }
}

/// Those that there were when the file was written.
fn hooks() -> impl Iterator<Item = Hook> {
    Hook::ALL.into_iter().filter(|hook| *hook <= Hook::SendEnter)
}

fn notes() -> Vec<Note> {
    let count = HookCount { seen: 30, written: 22, lost: 8 };
    let sample = ClockSample {
        monotonic_ns: 5_000_000_000,
        realtime_ahead_ns: 1_767_323_040_000_000_000,
        tai_ahead_ns: 37_000_000_000,
        error_ns: 120,
        offset_ns: Some(-45),
    };
    vec![
        Note::Thread { thread: 812, name: "talker".to_owned() },
        Note::Point { point: 3, name: "cycle start".to_owned(), process: 812 },
        Note::Flow { flow: 0xc0de_0007, name: "UDP 10.0.0.1:7000 > 10.0.0.2:7001".to_owned() },
        Note::Clocks(sample),
        Note::Clocks(ClockSample { offset_ns: None, ..sample }),
        Note::Qdisc { station: 0, interface: 7, handle: 0x64_0000, kind: "taprio".to_owned() },
        Note::Losses(BTreeMap::from([("drop".to_owned(), count)])),
    ]
}

/// One of each hook, not in order; the last ten seconds after the others.
fn events() -> Vec<Event> {
    let one = |(n, hook): (u64, Hook)| {
        let late = if n > 18 { 10_000_000_000 } else { 0 };
        Event {
            at_ns: 5_000_000_000 + late + 1_000 * (n ^ 1),
            object: 0xffff_8880_0000_0000 + n,
            tag: 0xc0de_0007_0000_0000 + n,
            aux: 0_u64.wrapping_sub(n),
            interface: 7,
            thread: 812,
            cpu: 3,
            flags: Flags::TAGGED.with(Flags::FIRST),
            length: 106,
            hook,
            station: if n % 5 == 4 { Event::NO_STATION } else { u8::from(n % 2 == 1) },
        }
    };
    (0..).zip(hooks()).map(one).collect()
}

#[test]
fn t1_a_capture_of_version_1_is_read() {
    let mut reader = Reader::new(VERSION_1).unwrap();
    assert_eq!(*reader.header(), header());
    let (mut read_events, mut read_notes) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Event(event) => read_events.push(event),
            Item::Note(note) => read_notes.push(note),
        }
    }
    let mut expected = events();
    expected.sort_by_key(|event| event.at_ns);
    assert_eq!(read_events, expected);
    assert_eq!(read_notes, notes());
    assert!(reader.health().is_whole(), "{:?}", reader.health());
    let end = reader.end().unwrap();
    assert_eq!((end.events, end.first_ns), (22, Some(5_000_000_000)));
    assert_eq!(end.losses.as_ref().unwrap()["drop"].lost, 8);
}

#[test]
fn t1_what_is_written_is_version_1() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for note in notes() {
        writer.note(&note).unwrap();
    }
    for event in events() {
        writer.event(&event).unwrap();
    }
    let written = writer.finish().unwrap();
    assert!(written == VERSION_1, "the bytes differ from those of tests/data/v1.twc");
}

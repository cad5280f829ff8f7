// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures written and read, whole and damaged.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};

use proptest::prelude::*;

use super::block::HEAD_BYTES;
use super::*;
use crate::event::{EVENT_BYTES, Event, Flags, Hook};

pub(super) fn header() -> CaptureHeader {
    let interfaces = BTreeMap::from([(1, "lo".to_owned()), (2, "eth0".to_owned())]);
    CaptureHeader {
        host: "alpha".to_owned(),
        boot: "b0".to_owned(),
        kernel: "6.12".to_owned(),
        writer: "timewire 0".to_owned(),
        stations: vec![Station { name: "alpha".to_owned(), namespace: 7, interfaces }],
        hooks: vec!["socket-send".to_owned(), "drop".to_owned()],
        missing: BTreeMap::new(),
        filter: "udp".to_owned(),
        keep_one_of: 1,
        meta: BTreeMap::new(),
    }
}

pub(super) fn event(at_ns: u64, mark: u64) -> Event {
    let hook = Hook::ALL[usize::try_from(mark % 22).unwrap()];
    Event {
        at_ns,
        object: mark,
        tag: mark << 32 | 5,
        aux: u64::MAX - mark,
        interface: 2,
        thread: 100,
        cpu: 1,
        flags: Flags::FIRST,
        length: 60,
        hook,
        station: 0,
    }
}

pub(super) fn losses(lost: u64) -> Note {
    let count = HookCount { seen: 9, written: 9 - lost, lost };
    Note::Losses(BTreeMap::from([("drop".to_owned(), count)]))
}

/// A closed capture; flushed after every so many events.
pub(super) fn written(events: &[Event], notes: &[Note], flush_every: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for note in notes {
        writer.note(note).unwrap();
    }
    for (number, event) in events.iter().enumerate() {
        writer.event(event).unwrap();
        if number % flush_every == flush_every - 1 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

/// All that a capture gives.
pub(super) fn read(bytes: &[u8], window: usize) -> (Vec<Event>, Vec<Note>, Health) {
    let mut reader = Reader::with_window(bytes, window).unwrap();
    let (mut events, mut notes) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Event(event) => events.push(event),
            Item::Note(note) => notes.push(note),
        }
    }
    (events, notes, reader.health())
}

fn sorted(events: &[Event]) -> Vec<Event> {
    let mut sorted = events.to_vec();
    sorted.sort_by_key(|event| event.at_ns);
    sorted
}

fn any_events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let time = prop_oneof![
        8 => 0..5_000_u64,
        1 => any::<u64>(),
        1 => 3_000_000_000..9_000_000_000_u64,
    ];
    prop::collection::vec((time, 0..u64::from(u32::MAX)), 0..most)
        .prop_map(|events| events.into_iter().map(|(at_ns, mark)| event(at_ns, mark)).collect())
}

#[test]
fn t0_a_close_that_names_another_place_is_damage() {
    let mut bytes = written(&[event(5, 1)], &[], 1);
    assert!(read(&bytes, 10).2.is_whole());
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    let health = read(&bytes, 10).2;
    assert!(health.clean_end && !health.is_whole(), "{health:?}");
}

proptest! {
    #[test]
    fn t0_a_capture_gives_what_was_written_in_order(
        events in any_events(400),
        lost in prop::collection::vec(0..9_u64, 0..4),
        flush_every in 1..300_usize,
    ) {
        let notes: Vec<Note> = lost.into_iter().map(losses).collect();
        let bytes = written(&events, &notes, flush_every);
        let (read_events, read_notes, health) = read(&bytes, 1000);
        prop_assert_eq!(read_events, sorted(&events));
        prop_assert_eq!(&read_notes, &notes);
        prop_assert!(health.is_whole(), "{:?}", health);
        let end = Reader::new(Cursor::new(&bytes)).unwrap().find_end().unwrap().unwrap();
        prop_assert_eq!(end.events, u64::try_from(events.len()).unwrap());
        prop_assert_eq!(end.first_ns, events.iter().map(|event| event.at_ns).min());
        prop_assert_eq!(end.last_ns, events.iter().map(|event| event.at_ns).max());
        let last = notes.last().map(|note| match note {
            Note::Losses(losses) => losses.clone(),
            _ => unreachable!(),
        });
        prop_assert_eq!(end.losses, last);
    }

    #[test]
    fn t0_any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        start in 0..4_u8,
    ) {
        let good = written(&[event(5, 1), event(6, 2)], &[losses(1)], 1);
        let kept = [0, 16, good.len() / 2, good.len()][usize::from(start)];
        let bytes = [&good[..kept], &bytes].concat();
        if let Ok(mut reader) = Reader::with_window(&bytes[..], 10) {
            let mut given = 0;
            while reader.next().unwrap().is_some() {
                given += 1;
            }
            prop_assert!(given <= 3);
            prop_assert_eq!(reader.bytes(), u64::try_from(bytes.len()).unwrap());
        }
    }

    #[test]
    fn t0_damage_never_makes_an_event(
        events in any_events(300),
        flush_every in 1..40_usize,
        blows in prop::collection::vec(any_blow(), 1..6),
    ) {
        let whole = written(&events, &[losses(2), losses(3)], flush_every);
        let header_end = written(&[], &[], 1).len() - end_bytes();
        let mut bytes = whole.clone();
        for blow in &blows {
            blow.strike(&mut bytes, header_end);
        }
        let (given, _, health) = read(&bytes, 1000);
        let mut left = sorted(&events);
        for event in &given {
            let known = left.iter().position(|known| known == event);
            prop_assert!(known.is_some(), "{:?} was never written", event);
            left.remove(known.unwrap());
        }
        // What is not there is said, unless the end is gone, too.
        if health.clean_end {
            prop_assert_eq!(u64::try_from(left.len()).unwrap(), health.missing_events);
        }
        if bytes != whole {
            prop_assert!(!health.is_whole(), "{:?}", health);
        }
    }

    #[test]
    fn t0_a_killed_writer_leaves_every_whole_block(
        events in any_events(300),
        flush_every in 1..40_usize,
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = written(&events, &[], flush_every);
        let header_end = written(&[], &[], 1).len() - end_bytes();
        let cut = header_end + cut.index(whole.len() - header_end);
        // Where blocks end, and how many events there are by then.
        let mut last = (header_end, 0);
        let mut at = header_end;
        while at + HEAD_BYTES <= whole.len() {
            let head = block::Head::from_bytes(whole[at..].first_chunk().unwrap()).unwrap();
            at += HEAD_BYTES + head.content_bytes().unwrap();
            if at <= cut {
                let events = if head.content == block::content::EVENTS { head.count } else { 0 };
                last = (at, last.1 + usize::try_from(events).unwrap());
            }
            if head.content == block::content::END {
                break;
            }
        }
        let (given, _, health) = read(&whole[..cut], 1000);
        prop_assert_eq!(given, sorted(&events[..last.1]));
        prop_assert_eq!(health.torn_bytes, u64::try_from(cut - last.0).unwrap());
        prop_assert_eq!((health.damaged, health.missing_events), (0, 0));
    }

    #[test]
    fn t0_a_window_orders_what_it_can_and_counts_the_rest(
        events in any_events(200),
        window in 1..50_usize,
    ) {
        let bytes = written(&events, &[], 20);
        let (given, _, health) = read(&bytes, window);
        let (mut late, mut latest) = (0, 0);
        for event in &given {
            late += u64::from(event.at_ns < latest);
            latest = latest.max(event.at_ns);
        }
        prop_assert_eq!(health.disordered, late);
        let (mut given, mut events) = (given, events);
        let key = |event: &Event| event.to_bytes();
        given.sort_by_key(key);
        events.sort_by_key(key);
        prop_assert_eq!(given, events);
    }
}

fn end_bytes() -> usize {
    let end = serde_json::to_vec(&End::default()).unwrap();
    HEAD_BYTES + end.len() + 16
}

/// What may befall a file behind its header.
#[derive(Clone, Debug)]
enum Blow {
    Flip(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    Again(prop::sample::Index, prop::sample::Index, usize),
    Zero(prop::sample::Index, usize),
}

fn any_blow() -> impl Strategy<Value = Blow> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        (place(), 1..=255_u8).prop_map(|(at, bits)| Blow::Flip(at, bits)),
        (place(), 1..3000_usize).prop_map(|(at, bytes)| Blow::Remove(at, bytes)),
        (place(), prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(at, bytes)| Blow::Insert(at, bytes)),
        (place(), place(), 1..3000_usize)
            .prop_map(|(from, to, bytes)| Blow::Again(from, to, bytes)),
        (place(), 1..3000_usize).prop_map(|(at, bytes)| Blow::Zero(at, bytes)),
    ]
}

impl Blow {
    fn strike(&self, file: &mut Vec<u8>, header: usize) {
        let body = file.len() - header + 1;
        let place = |index: &prop::sample::Index| header + index.index(body);
        let until = |at: usize, bytes: usize| (at + bytes).min(file.len());
        match self {
            Blow::Flip(at, bits) => {
                if let Some(byte) = file.get_mut(place(at)) {
                    *byte ^= bits;
                }
            }
            Blow::Remove(at, bytes) => drop(file.drain(place(at)..until(place(at), *bytes))),
            Blow::Insert(at, bytes) => {
                let at = place(at);
                file.splice(at..at, bytes.iter().copied());
            }
            Blow::Again(from, to, bytes) => {
                let copy = file[place(from)..until(place(from), *bytes)].to_vec();
                let at = place(to);
                file.splice(at..at, copy);
            }
            Blow::Zero(at, bytes) => {
                let (at, end) = (place(at), until(place(at), *bytes));
                file[at..end].fill(0);
            }
        }
    }
}

#[test]
fn t0_an_event_takes_less_than_48_bytes() {
    let events: Vec<Event> = (0..100_000).map(|at| event(1000 * at, at)).collect();
    let bytes = written(&events, &[losses(0)], usize::MAX).len();
    assert!(bytes <= 44 * events.len() + 64 * 70 + 1500, "{bytes}");
    // Even where a block has only 16.
    assert!(written(&events[..96_000], &[], 16).len() <= 48 * 96_000 + 1500);
}

#[test]
fn t0_times_far_apart_take_a_block_each() {
    let events = [event(0, 1), event(u64::MAX, 2), event(1 << 40, 3), event((1 << 40) - 1, 4)];
    let (given, _, health) = read(&written(&events, &[], 100), 10);
    assert_eq!(given, sorted(&events));
    assert!(health.is_whole());
}

#[test]
fn t0_newer_versions_are_refused_with_both_numbers() {
    let mut bytes = written(&[], &[], 1);
    bytes[8] = 2;
    let said = Reader::new(&bytes[..]).unwrap_err().to_string();
    assert_eq!(said, "the capture has version 2; this program reads up to version 1");
    let said = Reader::new(&b"timewire"[..]).unwrap_err().to_string();
    assert_eq!(said, "this is no capture: it does not start with the .twc magic");
    let said = Reader::new(&written(&[], &[], 1)[..90]).unwrap_err().to_string();
    assert_eq!(said, "the header of the capture is damaged: the file ends within it");
}

#[test]
fn t0_what_a_newer_writer_adds_is_counted_and_left_out() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let mut unknown = event(3, 1).to_bytes();
    unknown[46] = 200;
    writer.event_bytes(&unknown).unwrap();
    writer.event(&event(4, 2)).unwrap();
    let bytes = writer.finish().unwrap();
    let (given, _, health) = read(&bytes, 10);
    assert_eq!(given, [event(4, 2)]);
    assert_eq!((health.unknown_events, health.missing_events), (1, 0));
}

#[test]
fn t0_blocks_of_another_capture_are_damage() {
    let events: Vec<Event> = (0..40).map(|at| event(at, at)).collect();
    let ours = written(&events, &[], 10);
    let other = CaptureHeader { host: "beta".to_owned(), ..header() };
    let mut writer = Writer::new(Vec::new(), &other).unwrap();
    for at in 0..40 {
        writer.event(&event(at, 1000 + at)).unwrap();
    }
    let theirs = writer.finish().unwrap();
    let (given, _, health) = read(&[&ours[..], &theirs].concat(), 100);
    assert_eq!(given, events);
    assert!(health.torn_bytes > 0 || health.damaged > 0, "{health:?}");
}

/// A sink that is full for a while.
struct Full(Vec<u8>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1 == 5 {
            self.0.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn t0_a_block_that_could_not_be_written_is_missed_alone() {
    let mut writer = Writer::new(Full(Vec::new(), 0), &header()).unwrap();
    let mut failed = 0;
    for at in 0..60 {
        writer.event(&event(at, at)).unwrap();
        if at % 10 == 9 {
            failed += usize::from(writer.flush().is_err());
        }
    }
    let bytes = writer.finish().unwrap().0;
    let (given, _, health) = read(&bytes, 100);
    assert_eq!((failed, given.len()), (1, 50));
    assert_eq!((health.damaged, health.missing_blocks, health.missing_events), (1, 1, 10));
    assert!(health.clean_end);
}

#[test]
fn t0_stored_and_whole_events_differ_by_the_time_only() {
    assert_eq!(STORED_BYTES + 4, EVENT_BYTES);
    assert_eq!(EVENTS_PER_BLOCK, 1488);
}

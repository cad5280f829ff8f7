// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading record files and analysing a case needs memory in proportion to the files, whatever
//! their records and headers say: no number, time or name makes a table of its own size.

use std::collections::BTreeMap;

use timewire_base::{BitsPerSecond, Instant, Span};
use timewire_capture::analyse::{
    Analysis, CaseInput, ReservedInput, StreamInput, analyse, series, transfers,
};
use timewire_capture::record::{
    ClockInfo, Encoder, Record, RecordFile, RecordHeader, TimestampPoint,
};
use timewire_capture::summary::{SlotShape, StreamClass};

use crate::counting::{memory_of, mixed};

/// Memory for each further byte of a record file, at most. A record of 32 bytes is held as read, as
/// a timestamp and as a value of each figure that it is part of.
const FACTOR: u64 = 8;
/// Memory for each further byte of a header, at most: a name of one letter takes 4 bytes there and
/// 56 as a string in a list that grows.
const FACTOR_OF_NAMES: u64 = 10;
/// Records of the shorter file.
const RECORDS: u64 = 12_700;

fn names(count: usize, name: &str) -> Vec<String> {
    (0..count).map(|n| format!("{name}{n}")).collect()
}

fn header(stations: Vec<String>, flows: Vec<String>) -> RecordHeader {
    let clock = ClockInfo { name: "TAI".to_owned(), error_bound: Span::ZERO };
    let (writer, case) = ("any".to_owned(), "a/b/c".to_owned());
    RecordHeader { writer, case, clocks: vec![clock], stations, flows, meta: BTreeMap::new() }
}

fn file(header: &RecordHeader, records: impl Iterator<Item = Record>) -> Vec<u8> {
    let (mut encoder, mut bytes) = Encoder::new(header).unwrap();
    let put = |bytes: &mut Vec<u8>, offset: u64, block: &[u8]| {
        let at = usize::try_from(offset).unwrap();
        bytes.resize(bytes.len().max(at + block.len()), 0);
        bytes[at..at + block.len()].copy_from_slice(block);
    };
    for record in records {
        if let Some(block) = encoder.push(&record) {
            put(&mut bytes, block.offset, block.bytes);
        }
    }
    let last = encoder.finish(0);
    put(&mut bytes, last.offset, &last.bytes[..]);
    bytes
}

fn record(at_ns: i64, seq: u64, point: TimestampPoint, station: u64, flow: u64) -> Record {
    let low = |n: u64| n.to_le_bytes();
    Record {
        at_ns,
        seq: u32::from_le_bytes(*low(seq).first_chunk().unwrap()),
        frame_len: u16::from_le_bytes(*low(mixed(seq)).first_chunk().unwrap()),
        point,
        station: low(station)[0],
        flow: u16::from_le_bytes(*low(flow).first_chunk().unwrap()),
        flags: 0,
        clock: 0,
    }
}

fn point(n: u64) -> TimestampPoint {
    TimestampPoint::ALL[usize::try_from(n % 17).unwrap()]
}

/// One of the nine flows of the three streams.
fn flow(n: u64) -> u64 {
    n % 9
}

type Made = fn(u64) -> Record;

const KINDS: [(&str, Made); 9] = [
    ("anything at any time", |n| {
        record(mixed(n).cast_signed(), mixed(n + 1), point(mixed(n + 2)), mixed(n + 3), flow(n))
    }),
    ("any number at one time", |n| record(5, mixed(n), point(n), 0, 0)),
    ("one number without end", |n| record(n.cast_signed(), 7, point(n), 0, flow(n / 17))),
    ("sent, and far later received", |n| {
        let (at, point) = if n % 2 == 0 {
            (-1, TimestampPoint::Send)
        } else {
            (i64::MAX - 9, TimestampPoint::Receive)
        };
        record(at * (n / 2 % 2).cast_signed(), n / 2, point, 0, flow(n / 2))
    }),
    ("all timestamps of each message", |n| {
        record(n.cast_signed() * 1_000, n / 17, point(n), 0, flow(n / 17))
    }),
    ("numbers and times far apart", |n| {
        let at = mixed(n / 2).cast_signed() / 2 + (n % 2).cast_signed();
        record(
            at,
            mixed(n / 2),
            if n % 2 == 0 { TimestampPoint::Send } else { TimestampPoint::Receive },
            0,
            0,
        )
    }),
    ("sent and never received", |n| record(n.cast_signed(), n, TimestampPoint::Send, 0, flow(n))),
    ("received and never sent", |n| {
        record(n.cast_signed(), n, TimestampPoint::Receive, 0, flow(n))
    }),
    ("frames of any station", |n| {
        record(n.cast_signed() * 777, n, TimestampPoint::Segment, n, flow(n))
    }),
];

/// Three streams; one of 256 stations has a slot.
fn case(cycle: Span, endpoints: Vec<RecordFile>, observers: Vec<RecordFile>) -> CaseInput {
    let stream = |name: &str| StreamInput {
        period: None,
        name: name.to_owned(),
        class: StreamClass::RealTime,
        deadline: Span::from_us(5),
    };
    CaseInput {
        scenario: "a".to_owned(),
        case: "b".to_owned(),
        title: "A".to_owned(),
        load: "c".to_owned(),
        message_bytes: 64,
        tdm: true,
        backend: None,
        reserved: vec![ReservedInput {
            station: "s0".to_owned(),
            rate: BitsPerSecond::new(1_000_000).unwrap(),
            burst_bits: 1_000,
        }],
        base_time: Instant::from_ns(0),
        cycle,
        slots: vec![SlotShape {
            station: "s0".to_owned(),
            offset_ns: 0,
            transmit_ns: 100_000,
            guard_ns: 0,
        }],
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        published: None,
        streams: ["x", "y", "z"].map(stream).to_vec(),
        from: Instant::from_ns(i64::MIN),
        to: Instant::from_ns(i64::MAX),
        until_kernel: false,
        endpoints,
        observers,
        macs: Vec::new(),
        timestamp_bound: None,
    }
}

fn flows() -> Vec<String> {
    let of = |stream: &str| ["", ".request", ".response"].map(|part| format!("{stream}{part}"));
    ["x", "y", "z"].iter().flat_map(|stream| of(stream)).collect()
}

/// What is done with files that were read.
type Taking = fn(CaseInput);

const TAKING: [(&str, Taking); 3] = [
    ("analyse", |input| drop(analyse(input).unwrap())),
    ("series", |input| drop(series(input).unwrap())),
    ("transfers", |input| drop(transfers(&input))),
];

#[test]
fn t0_records_need_memory_in_proportion_to_their_files() {
    let header = header(names(256, "s"), flows());
    for (kind, made) in KINDS {
        let [once, twice] = [1, 2].map(|times| file(&header, (0..times * RECORDS).map(made)));
        for (what, taking) in TAKING {
            for observed in [false, true] {
                let needed = |bytes: &[u8]| {
                    let read = || {
                        let files = vec![RecordFile::decode(bytes).unwrap()];
                        assert_eq!(files[0].unknown_records, 0);
                        let cycle = Span::from_ms(1);
                        taking(match observed {
                            true => case(cycle, Vec::new(), files),
                            false => case(cycle, files, Vec::new()),
                        });
                    };
                    memory_of(read).0
                };
                let (less, more) = (needed(&once), needed(&twice));
                let bytes = u64::try_from(twice.len() - once.len()).unwrap();
                assert!(
                    more <= less + FACTOR * bytes,
                    "{kind}, {what}: {less} bytes, then {more} for {bytes} bytes of file more"
                );
                assert!(less < FACTOR * bytes + 1_000_000, "{kind}, {what}: {less} bytes");
            }
        }
    }
}

#[test]
fn t0_names_need_memory_in_proportion_to_the_header() {
    let flows = |count| file(&header(names(1, "s"), names(count, "")), std::iter::empty());
    let needed = |bytes: &[u8]| {
        let read = || {
            let files = || vec![RecordFile::decode(bytes).unwrap()];
            let input = case(Span::from_secs(1), files(), files());
            drop(analyse(input).unwrap());
        };
        memory_of(read).0
    };
    let (once, twice) = (flows(30_000), flows(60_000));
    let (less, more) = (needed(&once), needed(&twice));
    let bytes = u64::try_from(twice.len() - once.len()).unwrap();
    // Both files.
    let most = less + 2 * FACTOR_OF_NAMES * bytes;
    assert!(more <= most, "{less} bytes, then {more} for {bytes} bytes of file more");
}

/// Phase histograms of a long cycle have 80 kB each: a name alone has none, and of stations without
/// a slot there are so many at most.
#[test]
fn t0_stations_of_many_files_have_a_bounded_number_of_histograms() {
    let with = |files: usize, records: u64| -> (u64, Analysis) {
        let one = |number: usize| {
            let header = header(names(256, &format!("f{number}-")), Vec::new());
            let made = (0..records).map(|n| record(5, n, TimestampPoint::Segment, n, 0xffff));
            RecordFile::decode(&file(&header, made)).unwrap()
        };
        memory_of(|| {
            let observers = (0..files).map(one).collect();
            analyse(case(Span::from_secs(10), Vec::new(), observers)).unwrap()
        })
    };
    let (named, of_names) = with(20, 0);
    assert!(named < 4_000_000, "{named} bytes for names");
    assert_eq!(of_names.case.wire.phases.len(), 1, "the one that has a slot");
    let (all, found) = with(20, 256);
    assert!(all < 257 * 80_100 + 6_000_000, "{all} bytes");
    let wire = &found.case.wire;
    assert_eq!((wire.frames, wire.phases.len()), (20 * 256, 257));
    let left_out = found.notes.iter().find(|note| note.id == "phases-left-out").unwrap();
    assert!(left_out.measured.contains("4864 stations without a slot"), "{left_out:?}");
}

#[test]
fn t0_more_names_than_records_can_have_are_refused() {
    let good = header(vec!["aaaa".to_owned(); 200], Vec::new());
    let bytes = file(&good, std::iter::empty());
    // The same header with more names of fewer letters, in the same room.
    let text = String::from_utf8_lossy(&bytes[24..4096]).into_owned();
    let start = text.find("\"aaaa\"").unwrap() + 24;
    let room = 200 * 7 - 1;
    let mut list = ["\"\""; 300].join(",");
    list += &" ".repeat(room - list.len());
    let mut bytes = bytes;
    bytes[start..start + room].copy_from_slice(list.as_bytes());
    let sum = {
        let mut rest = bytes[..20].to_vec();
        rest.extend(&bytes[24..4096]);
        crc32fast::hash(&rest)
    };
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    let error = RecordFile::decode(&bytes).unwrap_err().to_string();
    assert_eq!(error, "a record file cannot have 300 stations; at most 256");
}

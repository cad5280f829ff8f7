// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire report` and `compare` under a limit of memory: records that say anything end them
//! with a result or an error, and take no more than a multiple of their files.

use std::fs;
use std::process::Command;

use crate::support::{Said, Scratch, TIMEWIRE, run, timewire};
use timewire_base::Span;
use timewire_capture::record::{
    ClockInfo, Encoder, Record, RecordFile, RecordHeader, TimestampPoint,
};

/// **Units**: KiB of address space; the program alone takes a part of it.
const LIMIT: u32 = 250_000;
/// Records of a file: 200 kB.
const RECORDS: u64 = 6_000;

/// A number that looks random.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn low(n: u64) -> u32 {
    u32::from_le_bytes(*n.to_le_bytes().first_chunk().unwrap())
}

/// A timestamp of message `seq` of the first flow.
fn timestamp(at_ns: i64, seq: u64, point: TimestampPoint) -> Record {
    let (frame_len, station, flow, flags, clock) = (100, 0, 0, 0, 0);
    Record { at_ns, seq: low(seq), frame_len, point, station, flow, flags, clock }
}

fn point(n: u64) -> TimestampPoint {
    TimestampPoint::ALL[usize::try_from(n % 17).unwrap()]
}

fn begins(n: u64) -> bool {
    n.is_multiple_of(2)
}

/// The `n`th record of a measured interval that begins at an instant.
type Made = fn(u64, i64) -> Record;

const KINDS: [(&str, Made); 7] = [
    ("anything", |n, _| timestamp(mixed(n).cast_signed(), mixed(n + 1), point(n))),
    ("any number, in the interval", |n, at| {
        timestamp(at + (n % 1_000_000).cast_signed(), mixed(n), point(n))
    }),
    ("clocks decades apart", |n, at| {
        let far = 1_800_000_000_000_000_000 + (n % 300).cast_signed();
        match begins(n) {
            true => timestamp(at + (n % 999).cast_signed(), n / 2, TimestampPoint::Send),
            false => timestamp(far, n / 2, TimestampPoint::Receive),
        }
    }),
    ("from the first instant to the last", |n, _| {
        let at = [i64::MIN, i64::MAX][usize::from(begins(n / 2))];
        timestamp(at, n / 2, if begins(n) { TimestampPoint::Send } else { TimestampPoint::Receive })
    }),
    ("one message again and again", |n, at| timestamp(at, 7, point(n))),
    ("frames only", |n, at| {
        timestamp(at + (n * 777 % 1_000_000).cast_signed(), n, TimestampPoint::Segment)
    }),
    ("every message at one instant", |n, at| {
        timestamp(at, n / 2, if begins(n) { TimestampPoint::Send } else { TimestampPoint::Receive })
    }),
];

fn file(header: &RecordHeader, made: Made, from_ns: i64, flows: u16) -> Vec<u8> {
    let (mut encoder, mut bytes) = Encoder::new(header).unwrap();
    for n in 0..RECORDS {
        let flow = u16::try_from(n / 2 % u64::from(flows)).unwrap();
        if let Some(block) = encoder.push(&Record { flow, ..made(n, from_ns) }) {
            assert_eq!(block.offset, u64::try_from(bytes.len()).unwrap());
            bytes.extend_from_slice(block.bytes);
        }
    }
    bytes.extend_from_slice(&encoder.finish(0).bytes[..]);
    bytes
}

fn limited(words: &[&str]) -> Said {
    let script = format!("ulimit -v {LIMIT}; exec \"$0\" \"$@\"");
    run(Command::new("sh").args(["-c", &script, TIMEWIRE]).args(words))
}

/// It ended by itself, with a result or an error that is told.
fn ended(said: &Said, what: &str) {
    let is_told = match said.code {
        Some(0 | 1) => true,
        Some(2) => said.stderr.starts_with("error: "),
        _ => false,
    };
    assert!(is_told && !said.stderr.contains("panicked"), "{what}: {said:?}");
}

#[test]
fn t1_a_report_of_any_records_ends_under_a_limit() {
    let scratch = Scratch::new();
    let clock = ClockInfo { name: "TAI".to_owned(), error_bound: Span::ZERO };
    let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let header = RecordHeader {
        clocks: vec![clock],
        stations: names(1),
        flows: names(60_000),
        ..RecordHeader::default()
    };
    for (role, name) in [("listen", "listener.twr"), ("talk", "talker.twr")] {
        for (kind, made) in KINDS {
            for flows in [1, 60_000] {
                let directory = scratch.join(&format!("{role}-{flows}-{}", kind.len()));
                fs::create_dir(&directory).unwrap();
                let told = format!(
                    "{{\"schema\": \"timewire.traffic/1\", \"role\": \"{role}\", \"told\": {{}}}}"
                );
                fs::write(format!("{directory}/traffic.json"), told).unwrap();
                fs::write(format!("{directory}/{name}"), file(&header, made, 5_000, flows))
                    .unwrap();
                let what = format!("{role}, {kind}, {flows} flows");
                let log = format!("{directory}/log");
                ended(&limited(&["report", &directory, "--hdr", &log]), &what);
                fs::remove_dir_all(&directory).unwrap();
            }
        }
    }
}

const NETWORK: &str = "timewire: 1
kind: network
name: two
duration: 20ms
stations:
- { name: a }
- { name: b }
links:
- { between: [a, b] }
streams:
- { name: fast, talker: a, listeners: b, class: 7, size: 100B, kind: cyclic, period: 1ms }
";

#[test]
fn t2_a_comparison_of_any_records_ends_under_a_limit() {
    let scratch = Scratch::new();
    let (network, directory) = (scratch.write("net.yaml", NETWORK), scratch.join("run"));
    timewire(&["sim", &network, "--out", &directory]).done();
    let cases = format!("{directory}/cases");
    let case = fs::read_dir(&cases).unwrap().next().unwrap().unwrap().path();
    let told = fs::read_to_string(case.join("case.json")).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let from_ns = told["from_ns"].as_i64().unwrap();
    let files: Vec<_> = fs::read_dir(&case).unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> =
        files.iter().filter(|path| path.extension().is_some_and(|it| it == "twr")).collect();
    let headers: Vec<RecordHeader> = files
        .iter()
        .map(|path| RecordFile::decode(&fs::read(path).unwrap()).unwrap().header)
        .collect();
    assert!(files.len() >= 2, "{files:?}");
    for (kind, made) in KINDS {
        for (path, header) in files.iter().zip(&headers) {
            let flows = u16::try_from(header.flows.len()).unwrap().max(1);
            fs::write(path, file(header, made, from_ns, flows)).unwrap();
        }
        let page = scratch.join("page.html");
        ended(&limited(&["report", &directory]), kind);
        ended(&limited(&["compare", &directory, &directory, "--html", &page]), kind);
    }
}

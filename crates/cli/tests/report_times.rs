// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire report --hdr`, `--csv` and `--parquet`: what HdrHistogram reads from the log is what
//! the run says, and so are the tables.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::time::Duration;

use crate::support::{Scratch, timewire};
use crate::tables;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::{Value, json};
use timewire_base::Span;
use timewire_capture::record::{
    ClockInfo, Encoder, Record, RecordFile, RecordHeader, TimestampPoint,
};

/// A stream whose messages take very different times, and one that loses some.
const NETWORK: &str = "timewire: 1
kind: network
name: three
duration: 3200ms
warm_up: 20ms
seed: 5
stations:
- { name: a, send: { kind: uniform, min: 2us, max: 9us } }
- { name: b, receive: { kind: exponential, min: 5us, mean: 300us } }
- { name: c }
bridges:
- { name: br, forward: 3us }
links:
- { between: [a, br] }
- { between: [br, b] }
- { between: [br, c], loss: 20% }
streams:
- { name: fast, talker: a, listeners: b, class: 7, size: 100B, kind: cyclic, period: 1ms }
- { name: slow, talker: a, listeners: c, size: 800B, kind: cyclic, period: 2ms }
";

/// A line of a log.
struct LogLine {
    tag: String,
    start: Duration,
    length: Duration,
    histogram: Histogram<u64>,
}

/// A log as the crate reads it, and the instant that its lines count from.
fn read(path: &str) -> (Duration, Vec<LogLine>) {
    let bytes = fs::read(path).unwrap();
    let (mut base, mut lines) = (None, Vec::new());
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(&bytes) {
        match entry.unwrap() {
            LogEntry::StartTime(_) => {}
            LogEntry::BaseTime(at) => base = Some(at),
            LogEntry::Interval(line) => {
                let coded = decoded(line.encoded_histogram());
                let histogram: Histogram<u64> =
                    deserializer.deserialize(&mut Cursor::new(coded)).unwrap();
                let tag = line.tag().unwrap().as_str().to_owned();
                let (start, length) = (line.start_timestamp(), line.duration());
                lines.push(LogLine { tag, start, length, histogram });
            }
        }
    }
    (base.unwrap(), lines)
}

/// RFC 4648 section 4, backwards.
fn decoded(text: &str) -> Vec<u8> {
    let alphabet = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']);
    let values: BTreeMap<char, u32> = alphabet.zip(0..).collect();
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for c in text.trim_end_matches('=').chars() {
        bits = (bits << 6) | values[&c];
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).unwrap());
        }
        bits &= 0xff;
    }
    out
}

/// The histograms of a tag as one.
fn whole(lines: &[LogLine], tag: &str) -> Histogram<u64> {
    let mut all = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
    lines.iter().filter(|line| line.tag == tag).for_each(|line| all += &line.histogram);
    all
}

fn simulated(scratch: &Scratch) -> String {
    let (file, directory) = (scratch.write("net.yaml", NETWORK), scratch.join("run"));
    timewire(&["sim", &file, "--runs", "2", "--out", &directory, "--json"]);
    directory
}

#[test]
fn t2_a_log_has_the_counts_and_percentiles_of_the_run() {
    let scratch = Scratch::new();
    let (directory, log) = (simulated(&scratch), scratch.join("run.hlog"));
    let said = timewire(&["report", &directory, "--hdr", &log, "--json"]).done();
    assert_eq!(said.stderr, "");
    let (_, lines) = read(&log);
    // Three seconds and a bit, two runs, two streams.
    assert_eq!(lines.len(), 4 * 2 * 2);
    assert!(lines.is_sorted_by_key(|line| line.start), "in the order of time");
    let summary = said.json();
    for case in summary["cases"].as_array().unwrap() {
        for stream in case["streams"].as_array().unwrap() {
            let tag = format!("{}/{}", words(case, "id"), words(stream, "name"));
            let (found, of_run) = (whole(&lines, &tag), &stream["transfer"]);
            assert!(number(stream, "received") > 1_000, "{tag}: {stream}");
            assert_eq!(found.len(), number(stream, "received"), "{tag}");
            for (quantile, name) in [
                (0.0, "min_ns"),
                (0.5, "p50_ns"),
                (0.9, "p90_ns"),
                (0.99, "p99_ns"),
                (0.999, "p999_ns"),
                (1.0, "max_ns"),
            ] {
                let value = found.value_at_quantile(quantile);
                let exact = number(of_run, name);
                assert!(found.equivalent(value, exact), "{tag} {name}: {value}, not {exact}");
                assert!(value.abs_diff(exact) <= exact / 1_000 + 1, "{tag} {name}");
            }
        }
    }
    // And again the same.
    let before = fs::read(&log).unwrap();
    timewire(&["report", &directory, "--hdr", &log, "--force"]).done();
    assert!(before == fs::read(&log).unwrap(), "the same bytes");
}

fn words(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap()
}

/// second method: from the records themselves, without what the summary is made by.
#[test]
fn t2_each_interval_has_the_messages_that_were_sent_in_it() {
    let scratch = Scratch::new();
    let (directory, log) = (simulated(&scratch), scratch.join("run.hlog"));
    timewire(&["report", &directory, "--hdr", &log, "--hdr-interval", "250ms"]).done();
    let (base, lines) = read(&log);
    let case = format!("{directory}/cases/three.simulated.run-2");
    let told: Value =
        serde_json::from_str(&fs::read_to_string(format!("{case}/case.json")).unwrap()).unwrap();
    let from_ns = told["from_ns"].as_i64().unwrap();
    assert_eq!(i64::try_from(base.as_nanos()).unwrap(), from_ns);
    let timestamps = |station: &str, point: TimestampPoint| -> BTreeMap<u32, i64> {
        let bytes = fs::read(format!("{case}/{station}.twr")).unwrap();
        let file = RecordFile::decode(&bytes).unwrap();
        let fast = file.header.flows.iter().position(|flow| flow == "fast").unwrap();
        let of_it = |record: &&Record| usize::from(record.flow) == fast && record.point == point;
        file.records.iter().filter(of_it).map(|record| (record.seq, record.at_ns)).collect()
    };
    let (sent, received) =
        (timestamps("a", TimestampPoint::Send), timestamps("b", TimestampPoint::Receive));
    let mut expected: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    // Those of the warm-up are not measured.
    for (seq, at) in sent.iter().filter(|(_, at)| **at >= from_ns) {
        let took = received.get(seq).map(|there| there - at);
        expected.entry((at - from_ns) / 250_000_000).or_default().extend(took);
    }
    let mut seen = 0;
    for line in lines.iter().filter(|line| line.tag == "three/simulated/run-2/fast") {
        let times = &expected[&i64::try_from(line.start.as_millis() / 250).unwrap()];
        assert_eq!(line.histogram.len(), u64::try_from(times.len()).unwrap());
        let largest = u64::try_from(*times.iter().max().unwrap()).unwrap();
        assert!(line.histogram.equivalent(line.histogram.max(), largest));
        assert!(line.length <= Duration::from_millis(250));
        seen += 1;
    }
    assert_eq!(seen, expected.len());
    assert!(seen > 10, "{seen}");
}

#[test]
fn t2_a_table_has_every_message_of_the_run() {
    let scratch = Scratch::new();
    let (directory, csv) = (simulated(&scratch), scratch.join("run.csv"));
    let parquet = scratch.join("run.parquet");
    let report = ["report", &directory, "--csv", &csv, "--parquet", &parquet];
    let summary = timewire(&[&report[..], &["--json"]].concat()).done().json();
    let text = fs::read_to_string(&csv).unwrap();
    assert!(tables::parquet_as_csv(&parquet) == text, "the two tables differ");
    let sizes = [&csv, &parquet].map(|path| fs::metadata(path).unwrap().len());
    assert!(sizes[1] < sizes[0] / 4, "{sizes:?}");
    let bytes = fs::read(&parquet).unwrap();
    timewire(&[&report[..], &["--force"]].concat()).done();
    assert!(bytes == fs::read(&parquet).unwrap(), "the same run, other bytes");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("series,begin_ns,took_ns"));
    let mut found: BTreeMap<&str, Vec<(i64, Option<i64>)>> = BTreeMap::new();
    for line in lines {
        let [series, begin, took] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let took = (!took.is_empty()).then(|| took.parse().unwrap());
        found.entry(series).or_default().push((begin.parse().unwrap(), took));
    }
    for case in summary["cases"].as_array().unwrap() {
        for stream in case["streams"].as_array().unwrap() {
            let tag = format!("{}/{}", words(case, "id"), words(stream, "name"));
            let messages = found.remove(tag.as_str()).unwrap();
            assert!(messages.is_sorted_by_key(|message| message.0), "{tag}");
            let mut times: Vec<i64> = messages.iter().filter_map(|message| message.1).collect();
            times.sort_unstable();
            let count = |many: usize| u64::try_from(many).unwrap();
            assert_eq!(count(messages.len()), number(stream, "sent"), "{tag}");
            assert_eq!(count(times.len()), number(stream, "received"), "{tag}");
            // Nearest rank, to the nanosecond.
            let of_run = &stream["transfer"];
            for (of_thousand, name) in [(500, "p50_ns"), (990, "p99_ns"), (1_000, "max_ns")] {
                let rank = (times.len() * of_thousand).div_ceil(1_000);
                assert_eq!(times[rank - 1], of_run[name].as_i64().unwrap(), "{tag} {name}");
            }
        }
    }
    assert!(found.is_empty(), "{:?}", found.keys());
}

/// The directory of a talker or a listener with 2000 messages, one a millisecond.
fn traffic(scratch: &Scratch, role: &str, points: [TimestampPoint; 2]) -> String {
    let clocks = vec![ClockInfo { name: "TAI".to_owned(), error_bound: Span::from_ns(1) }];
    let header = RecordHeader {
        writer: "test".to_owned(),
        case: "test".to_owned(),
        clocks,
        stations: vec!["here".to_owned()],
        flows: vec!["1 to 192.0.2.1:5, far".to_owned()],
        meta: BTreeMap::new(),
    };
    let (mut encoder, mut bytes) = Encoder::new(&header).unwrap();
    for seq in 0..2_000_u32 {
        let begun = 1_800_000_000_000_000_000 + i64::from(seq) * 1_000_000;
        let took = 1_000 + i64::from(seq % 100) * 10;
        for (point, at_ns) in points.into_iter().zip([begun, begun + took]) {
            let (frame_len, station, flow, flags, clock) = (64, 0, 0, 0, 0);
            let record = Record { at_ns, seq, frame_len, point, station, flow, flags, clock };
            if let Some(block) = encoder.push(&record) {
                bytes.extend_from_slice(block.bytes);
            }
        }
    }
    bytes.extend_from_slice(&encoder.finish(0).bytes[..]);
    fs::write(scratch.join(&format!("{role}er.twr")), bytes).unwrap();
    let told = json!({"schema": "timewire.traffic/1", "role": role, "tool": "timewire",
                      "told": {"arguments": [role]}});
    scratch.write("traffic.json", &told.to_string());
    scratch.path().display().to_string()
}

#[test]
fn t1_talkers_and_listeners_have_logs() {
    for (role, points, what) in [
        (
            "talk",
            [TimestampPoint::Scheduled, TimestampPoint::Send],
            "# lateness, Scheduled to Send;",
        ),
        ("listen", [TimestampPoint::Send, TimestampPoint::Receive], "# transfer, Send to Receive;"),
        (
            "listen",
            [TimestampPoint::Scheduled, TimestampPoint::Receive],
            "# transfer, Scheduled to Receive;",
        ),
    ] {
        let scratch = Scratch::new();
        let (directory, log) = (traffic(&scratch, role, points), scratch.join("log"));
        // It was cut short: nobody counted.
        let said = timewire(&["report", &directory, "--hdr", &log]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""), "{said:?}");
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(what), "{text:.300}");
        let (base, lines) = read(&log);
        assert_eq!((base, lines.len()), (Duration::from_secs(1_800_000_000), 2));
        let all = whole(&lines, "stream/1_to_192.0.2.1:5__far");
        assert_eq!((all.len(), all.min(), all.max()), (2_000, 1_000, 1_990));
        assert_eq!(all.value_at_quantile(0.5), 1_490);
        let csv = scratch.join("csv");
        timewire(&["report", &directory, "--csv", &csv]);
        let text = fs::read_to_string(&csv).unwrap();
        let line = "\"stream/1 to 192.0.2.1:5, far\",1800000000001000000,1010";
        assert_eq!((text.lines().count(), text.lines().nth(2)), (2_001, Some(line)));
    }
}

#[test]
fn t1_what_cannot_be_written_changes_nothing() {
    let scratch = Scratch::new();
    let (directory, log) = (simulated(&scratch), scratch.write("run.hlog", "mine"));
    let other = scratch.join("other.hlog");
    let page = format!("{directory}/report.html");
    fs::remove_file(&page).unwrap();
    let refused = |words: &[&str], why: &str| {
        let said = timewire(&[&["report", &directory], words].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
        assert_eq!(scratch.list(), ["net.yaml", "run", "run.hlog"]);
        assert!(!fs::exists(&page).unwrap(), "there is no report either");
    };
    refused(&["--hdr", &log], "--force writes over it");
    refused(&["--hdr", "/nowhere/log"], "cannot write /nowhere/log");
    let short = ["--hdr", &other, "--hdr-interval"];
    refused(&[&short[..], &["10us"]].concat(), "10us is below 1ms");
    refused(&[&short[..], &["10"]].concat(), "10");
    refused(&["--hdr-interval", "1s"], "--hdr");
    refused(&["--force"], "--force is for the files of --hdr, --csv and --parquet");
    refused(&["--csv", &other, "--hdr", &log], "--force writes over it");
    refused(&["--csv", &other, "--parquet", &other], "is to be written twice");
    refused(&["--csv", &other, "--serve"], "--serve");
    refused(&["--parquet", &other, "--serve"], "--serve");
    refused(&["--parquet", &log], "--force writes over it");
    refused(&["--parquet", "/nowhere/table"], "cannot write /nowhere/table");
    refused(&["--parquet", "/dev/full"], "cannot write /dev/full");
    refused(&["--hdr", &other, "--serve"], "--serve");
    assert_eq!(fs::read_to_string(&log).unwrap(), "mine");

    // A stream of a year.
    let path = format!("{directory}/cases/three.simulated.run-1/case.json");
    let mut case: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    case["from_ns"] = json!(-31_536_000_000_000_000_i64);
    fs::write(&path, case.to_string()).unwrap();
    refused(&["--hdr", &other, "--hdr-interval", "1ms"], "a log has at most 1000000");
    let bare = Scratch::new();
    bare.write("path.json", "{}");
    let directory = bare.path().display().to_string();
    let said = timewire(&["report", &directory, "--hdr", &other]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("has no times of single messages"), "{said:?}");
    assert_eq!(bare.list(), ["path.json"]);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire report`: a page, a text and JSON of every kind of run that leaves a directory; what it
//! serves and to whom; and a run of many messages.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Scratch, TIMEWIRE, timewire};
use serde_json::{Value, json};
use timewire_base::Span;
use timewire_capture::record::{
    ClockInfo, Encoder, Record, RecordHeader, TimestampPoint as Timestamp,
};
use timewire_runner::measure::launch::gates::result::{AtPoint, Class, Measured, Schedule};
use timewire_runner::measure::launch::result::{Conclusion, Conditions, PointClock};
use timewire_runner::measure::launch::{self, TimestampPoint};

const LAUNCH: &str = include_str!("fixtures/report/launch.json");
const FRAMES: &str = include_str!("fixtures/report/frames.csv");
const RECEIVE: &str = include_str!("fixtures/report/receive.json");
const PATH: &str = include_str!("fixtures/report/path.json");
const TALK: &str = include_str!("fixtures/report/talk.json");
const LISTEN: &str = include_str!("fixtures/report/listen.json");
/// The first frames of a run of `TWO_GATES`, and those around the first that met a stranger's.
const SEGMENT: &str = include_str!("fixtures/report/segment.jsonl");
const TWO_GATES: &str = include_str!("../../../scenarios/kernels/two-gates.network.yaml");

/// Writes a record file of one flow; gives how many records it has.
fn records(path: &Path, flow: &str, all: impl Iterator<Item = (Timestamp, u32, i64)>) -> u64 {
    let clock = || ClockInfo { name: "TAI".to_owned(), error_bound: Span::from_ns(1) };
    let header = RecordHeader {
        writer: "test".to_owned(),
        case: "test".to_owned(),
        clocks: vec![clock()],
        stations: vec!["here".to_owned()],
        flows: vec![flow.to_owned()],
        meta: BTreeMap::new(),
    };
    let (mut encoder, first) = Encoder::new(&header).unwrap();
    let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    file.write_all(&first).unwrap();
    let mut count = 0;
    for (point, seq, at_ns) in all {
        let (frame_len, station, flow, flags, clock) = (64, 0, 0, 0, 0);
        let record = Record { at_ns, seq, frame_len, point, station, flow, flags, clock };
        if let Some(block) = encoder.push(&record) {
            file.write_all(block.bytes).unwrap();
        }
        count += 1;
    }
    file.write_all(&encoder.finish(0).bytes[..]).unwrap();
    file.flush().unwrap();
    count
}

/// Reports in every form. Gives the page; its exit code is `code` each time.
fn report(directory: &str, code: i32, verdict: &str) -> String {
    let said = timewire(&["report", directory]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(code), ""), "{said:?}");
    let page = fs::read_to_string(format!("{directory}/report.html")).unwrap();
    assert!(page.contains(&format!("<b>{verdict}</b>")), "{directory}: {verdict}");
    assert!(page.trim_end().ends_with("</html>"), "{directory}");
    for word in ["http:", "https:", "<script", "@import", "NaN", "inf\""] {
        assert!(!page.contains(word), "{directory}: `{word}` on the page");
    }
    for svg in page.split("<svg ").skip(1) {
        let (svg, _) = svg.split_once("</svg>").unwrap();
        assert!(svg.contains("role=\"img\"") && svg.contains("<title"), "{svg:.90}");
    }
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|it| &it[..it.find('"').unwrap()]).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "{directory}: ids are unique");
    let markdown = timewire(&["report", directory, "--markdown"]);
    assert_eq!(markdown.code, Some(code));
    assert!(markdown.stdout.starts_with("## "), "{markdown:?}");
    assert!(markdown.stdout.contains(&format!("**{verdict}**")), "{markdown:?}");
    let as_json = timewire(&["report", directory, "--json"]);
    assert_eq!(as_json.code, Some(code));
    assert!(as_json.json()["schema"].as_str().unwrap().starts_with("timewire."));
    let again = fs::read_to_string(format!("{directory}/report.html")).unwrap();
    assert!(page == again, "{directory}: the same bytes");
    page
}

#[test]
fn t1_launch_times() {
    let scratch = Scratch::new();
    let found: launch::result::Measured = serde_json::from_str(LAUNCH).unwrap();
    let again = serde_json::to_string_pretty(&found).unwrap() + "\n";
    assert_eq!(again.replace("      \"drop_causes\": [],\n", ""), LAUNCH);
    scratch.write("launch.json", LAUNCH);
    scratch.write("frames.csv", FRAMES);
    let page = report(&scratch.path().display().to_string(), 0, "PASS");
    for text in ["plain @ 1ms", "mac @ 1ms", "Launch errors", "Percentiles.", "Tail.", "over time"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn t1_gates() {
    let scratch = Scratch::new();
    let windows = json!([{"offset_ns": 0, "length_ns": 300_000}]);
    let at = AtPoint {
        by: PointClock {
            point: TimestampPoint::Peer,
            clock: "TAI".to_owned(),
            incomparable: None,
            clock_within_ns: None,
        },
        timestamped: 3,
        inside: 2,
        before: None,
        after: None,
        opening: None,
        first: None,
        wait: None,
        past_end: None,
        unused: None,
        lost: 0,
    };
    let class = Class {
        class: 1,
        priority: 1,
        windows: serde_json::from_value(windows).unwrap(),
        counts: serde_json::from_value(json!({
            "planned": 3, "sent": 3, "not_taken": 0, "invalid": 0, "missed": 0, "unsent": 0
        }))
        .unwrap(),
        shown: TimestampPoint::Peer,
        points: vec![at],
    };
    let found = Measured {
        conditions: Conditions {
            schema: "timewire.measure-gates/1".to_owned(),
            kernel: "6.12".to_owned(),
            place: "here".to_owned(),
            virtual_time: true,
        },
        schedule: Schedule {
            mode: "software".to_owned(),
            base_time_ns: 1_000_000,
            cycle_ns: 500_000,
            entries: Vec::new(),
            applied_before: false,
        },
        every_ns: 500_000,
        frame_bytes: 322,
        frame_ns: 2_000,
        rate_mbit: 1_000,
        scheduling: "sender as any program".to_owned(),
        classes: vec![class],
        drop_causes: Vec::new(),
        absent: None,
        conclusion: Conclusion { notes: vec!["<a note>".to_owned()], ..Conclusion::default() },
        shots: Vec::new(),
    };
    let json = serde_json::to_string(&found).unwrap();
    let first = "{\"schema\":\"timewire.measure-gates/1\",\"kernel\":\"6.12\",\"place\":\"here\",\
                 \"virtual_time\":true,\"schedule\":{";
    let at = "\"points\":[{\"point\":\"peer\",\"clock\":\"TAI\",\"incomparable\":null,\
              \"clock_within_ns\":null,\"timestamped\":3,";
    assert!(json.contains(at), "{json}");
    let last = ",\"absent\":null,\"limits\":[],\"notes\":[\"<a note>\"],\"ended_early\":false}";
    assert!(json.starts_with(first) && json.ends_with(last), "{json}");
    scratch.write("gates.json", &json);
    let frames = "class,seq,sent_ns,ready_ns,sender_ns,peer_ns,fate\n\
                  1,0,0,,,1500010,sent\n1,1,0,,,2100000,sent\n1,2,0,,,2400000,sent\n";
    scratch.write("frames.csv", frames);
    let page = report(&scratch.path().display().to_string(), 1, "FAIL");
    for text in ["1 of 3", "Frames in the cycle", "&lt;a note&gt;", "window 0 to 300"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn t1_receive_and_path() {
    let scratch = Scratch::new();
    scratch.write("receive.json", RECEIVE);
    let directory = scratch.path().display().to_string();
    let page = report(&directory, 0, "PASS");
    for text in ["send-&gt;kernel", "message by message", "up to 2 µs", "number of the message"] {
        assert!(page.contains(text), "{text}");
    }
    let lost = RECEIVE.replacen("\"lost\": 0", "\"lost\": 7", 1);
    scratch.write("receive.json", &lost);
    assert!(report(&directory, 1, "FAIL").contains("7 lost"));
    let scratch = Scratch::new();
    scratch.write("path.json", PATH);
    let page = report(&scratch.path().display().to_string(), 0, "PASS");
    assert!(page.contains("one way: send -&gt; far user") && page.contains("Trials"));
}

#[test]
fn t1_talker_and_listener() {
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    let told = |role: &str, arguments: Value| {
        let told = json!({"arguments": arguments});
        json!({"schema": "timewire.traffic/1", "role": role, "tool": "timewire", "told": told})
            .to_string()
    };
    let host = json!({"settings": {"host": {"kernel": {"release": "6.12.0"}}}}).to_string();
    scratch.write("traffic.json", &told("talk", json!(["talk", "127.0.0.1:1"])));
    scratch.write("host.before.json", &host);
    let timestamps = (0..500_u32).flat_map(|seq| {
        let due = i64::from(seq) * 1_000_000;
        let took = 700 + i64::from(seq % 7) * 100;
        [(Timestamp::Scheduled, seq, due), (Timestamp::Send, seq, due + took)]
    });
    records(&scratch.path().join("talker.twr"), "1 to a", timestamps);
    // Without `report.json` it was killed.
    let page = report(&directory, 1, "FAIL");
    assert!(page.contains("Cut short.") && page.contains("Handed over after due"));
    scratch.write("report.json", TALK);
    let page = report(&directory, 1, "FAIL");
    assert!(page.contains("the thread wakes in time") && page.contains("6.12.0"), "{page}");
    let mut well: Value = serde_json::from_str(TALK).unwrap();
    for key in ["skipped_woke_late", "skipped_overran"] {
        well["total"][key] = json!(0);
    }
    well["total"]["sent"] = well["total"]["planned"].clone();
    scratch.write("report.json", &well.to_string());
    report(&directory, 0, "PASS");

    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    scratch.write("report.json", LISTEN);
    let timestamps = (0..500_u32).flat_map(|seq| {
        let sent = i64::from(seq) * 1_000_000;
        let took = if seq == 250 { 9_000_000 } else { 40_000 + i64::from(seq) };
        [(Timestamp::Send, seq, sent), (Timestamp::Receive, seq, sent + took)]
    });
    records(&scratch.path().join("listener.twr"), "1", timestamps);
    for (limit, code, verdict) in [(None, 0, "MEASURED"), (Some("loss=0"), 1, "FAIL")] {
        let expect = limit.map(|limit| format!("--expect={limit}"));
        let words: Vec<&str> = ["listen"].into_iter().chain(expect.as_deref()).collect();
        scratch.write("traffic.json", &told("listen", json!(words)));
        let page = report(&directory, code, verdict);
        assert!(page.contains("Arrivals in the cycle") && page.contains("Transfer over time"));
    }
    let words = json!(["listen", "--expect", "streams=1"]);
    scratch.write("traffic.json", &told("listen", words));
    report(&directory, 0, "PASS");
}

#[test]
fn t1_stations() {
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    scratch.write("sweep.json", "{}");
    let said = timewire(&["report", &directory]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("with the same --out goes on with it"), "{said:?}");
    let station = |difference: i64| {
        json!({"state": "started", "planned_ns": 0, "actual_ns": difference,
               "difference_ns": difference, "clock_offset_ns": 3, "clock_error_ns": 4})
    };
    let result = |verdict: &str, why: &str| {
        json!({
            "number": 1, "repeat": 1, "values": {"rate": "10|<b>"}, "failures": [],
            "left": {}, "unasked": [],
            "starts": [{"at_ns": 0, "stations": {"a": station(1_500), "b": station(2_500)}}],
            "checks": [{"of": "a: out /p99", "number": 7.5, "at_most": "8", "verdict": verdict,
                        "why": why}],
        })
    };
    let summary = |results: Vec<Value>| {
        json!({"schema": "timewire.experiment/1", "name": "two", "trials": 1,
               "results": results})
        .to_string()
    };
    scratch.write("summary.json", &summary(vec![result("pass", "")]));
    let page = report(&directory, 0, "PASS");
    for text in ["rate=10|&lt;b&gt;", "Common starts", "a: out /p99 at most 8", "1.500", "<circle"]
    {
        assert!(page.contains(text), "{text}");
    }
    // Repeats of one value come together, in the order of the file; a seed of each is not told.
    let many = |rate: &str, seed: u32, p99: f64| {
        let mut one = result("pass", "");
        one["values"] = json!({"rate": rate, "seed": seed.to_string()});
        one["checks"][0]["number"] = json!(p99);
        one
    };
    let all = [("10", 1, 7.0), ("9", 1, 1.0), ("10", 2, 5.5), ("9", 2, 3.0), ("10", 3, 6.0)];
    let all: Vec<Value> = all.map(|(rate, seed, p99)| many(rate, seed, p99)).to_vec();
    let mut found: Value = serde_json::from_str(&summary(all)).unwrap();
    found["trials"] = json!(5);
    scratch.write("summary.json", &found.to_string());
    report(&directory, 0, "PASS");
    let told = timewire(&["report", &directory, "--json"]).json();
    let table = &told["sections"][0]["tables"][0];
    assert_eq!(table["caption"], "a: out /p99, at most 8");
    let rows = [["rate=9", "2", "1", "1", "3", "0"], ["rate=10", "3", "5.5", "6", "7", "0"]];
    assert_eq!(table["rows"], json!(rows));
    scratch.write("summary.json", &summary(vec![result("fail", "too large")]));
    assert!(report(&directory, 1, "FAIL").contains("too large"));
    scratch.write("summary.json", &summary(Vec::new()));
    assert!(report(&directory, 1, "FAIL").contains("1 of 1 trials are not done."));
}

#[test]
fn t1_kernels_on_a_segment() {
    let scratch = Scratch::new();
    let directory = scratch.path().display().to_string();
    scratch.write("network.yaml", TWO_GATES);
    scratch.write("segment.jsonl", SEGMENT);
    // It was killed, also while it wrote a line.
    let page = report(&directory, 1, "FAIL");
    assert!(page.contains("Cut short.") && page.contains("They were alpha, beta."), "{page}");
    scratch.write("segment.jsonl", &SEGMENT[..SEGMENT.len() - 9]);
    report(&directory, 1, "FAIL");
    scratch.write("segment.jsonl", SEGMENT);
    let station = |name: &str, code: Option<u8>| json!({"name": name, "exit_code": code});
    let summary = |code| {
        json!({"schema": "timewire.segment-summary/1", "kernel": "6.12", "passages": 12,
               "simulated_ns": 1_178_000_000, "host_ns": 9_000_000_000_u64,
               "stations": [station("alpha", Some(0)), station("beta", code)]})
        .to_string()
    };
    scratch.write("summary.json", &summary(Some(0)));
    let page = report(&directory, 0, "PASS");
    for text in [
        "two-gates: taprio on two kernels",
        "hub, 100Mbit, 0.500 µs from end to end",
        "100 ppm from 1s on",
        "Ready to last bit over time: beta.",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let told = timewire(&["report", &directory, "--json"]).json();
    let waited = &told["sections"][1]["tables"][1]["rows"];
    assert_eq!(waited[1], json!(["beta", "alpha", "4", "0.297", "13.577", "40.137", "40.137"]));
    // Ended by a duration, or by itself with some words.
    scratch.write("summary.json", &summary(None));
    assert!(report(&directory, 0, "PASS").contains("it was ended by the duration of 1s"));
    fs::create_dir(scratch.path().join("beta")).unwrap();
    scratch.write("beta/stderr", "one\nno such <device>\n\n");
    scratch.write("summary.json", &summary(Some(9)));
    let page = report(&directory, 1, "FAIL");
    assert!(
        page.contains("exit code 9") && page.contains("its last words: no such &lt;device&gt;")
    );
    // Each frame is a line, from when it was ready.
    let table = scratch.join("frames.csv");
    let log = scratch.join("frames.hlog");
    timewire(&["report", &directory, "--csv", &table, "--hdr", &log]);
    let table = fs::read_to_string(table).unwrap();
    assert_eq!(table.lines().count(), 13);
    assert_eq!(table.lines().nth(1), Some("alpha,1767225601021000537,12320"));
    assert!(fs::read_to_string(log).unwrap().contains("Tag=beta"));
    scratch.write("segment.jsonl", "{}\n");
    let said = timewire(&["report", &directory]);
    assert!(said.code == Some(2) && said.stderr.contains("does not begin as"), "{said:?}");
}

#[test]
fn t1_what_is_no_run_is_named_with_the_command_for_it() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path().join("run/0001/records/here")).unwrap();
    fs::create_dir_all(scratch.path().join("array")).unwrap();
    fs::create_dir_all(scratch.path().join("host")).unwrap();
    for name in ["run/sweep.json", "array/array.json", "host/record.json", "here.twc", "a.txt"] {
        scratch.write(name, "{}");
    }
    scratch.write("heard.wav", "RIFF....");
    let named = [
        ("here.twc", "timewire trace show"),
        ("a.txt", "name the directory that `--out` named"),
        ("heard.wav", "a sound file"),
        ("array", "--merge --out RUN"),
        ("host", "timewire doctor --on"),
        ("run/0001", "it is a part of the run"),
        ("run/0001/records/here", "it is a part of the run"),
    ];
    for (name, why) in named {
        let said = timewire(&["report", &scratch.join(name)]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains("is no directory of a run: "), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
    }
    let said = timewire(&["report", &scratch.join("nothing")]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

const NETWORK: &str = "timewire: 1
kind: network
name: pair
duration: 19500us
seed: 5
stations: [{ name: a }, { name: b }, { name: c }]
bridges: [{ name: br }]
links: [{ between: [a, br] }, { between: [br, b] }]
segments: [{ name: bus, stations: [b, c] }]
streams:
- { name: fast, talker: a, listeners: b, class: 7, size: 1250B, kind: cyclic, period: 1ms }
limits: [{ id: bound, metric: latency-max, stream: fast, at_most: 1ms }]
";

/// The directory of a simulation of two stations.
fn simulated(scratch: &Scratch, options: &[&str]) -> String {
    let file = scratch.write("pair.network.yaml", NETWORK);
    let directory = scratch.join("run");
    let words = [&["sim", &file, "--out", &directory], options].concat();
    timewire(&words).done();
    directory
}

#[test]
fn t1_a_simulation_draws_its_network_with_what_links_carried() {
    let scratch = Scratch::new();
    let directory = simulated(&scratch, &[]);
    let page = report(&directory, 0, "PASS");
    // Twenty frames of 1250 bytes and their heads in 19.5 ms at 100 Mbit/s.
    let ports: Value =
        serde_json::from_str(&fs::read_to_string(format!("{directory}/ports.json")).unwrap())
            .unwrap();
    assert_eq!(ports["ports"].as_array().unwrap().len(), 6);
    let first = &ports["ports"][0];
    assert_eq!((&first["from"], &first["to"]), (&json!("a"), &json!("br")));
    assert_eq!(first["frames"], 20);
    let busy = first["busy_ns"].as_u64().unwrap();
    assert!((20 * 100_000..20 * 106_000).contains(&busy), "{busy}");
    for text in ["The network.", ">bus</text>", "Links, the busiest first", "10 %", "by its Send."]
    {
        assert!(page.contains(text), "{text}");
    }
    // Of a run that was cut short nothing is known of its ports.
    fs::remove_file(format!("{directory}/ports.json")).unwrap();
    let page = report(&directory, 0, "PASS");
    assert!(page.contains("The network.") && !page.contains("Links, the busiest first"));
}

/// A server of a report.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(directory: &str) -> Server {
        let mut child = Command::new(TIMEWIRE)
            .args(["report", directory, "--serve", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://127.0.0.1:").nth(1).unwrap();
        let port = address.split('/').next().unwrap().parse().unwrap();
        Server { child, port }
    }

    /// Head and body of an answer.
    fn ask(&self, method: &str, path: &str, host: &str, more: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap(), body)
    }

    fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "it ends well when it is asked to");
    }
}

#[test]
fn t1_a_report_is_served_to_loopback_by_its_names() {
    let scratch = Scratch::new();
    let directory = simulated(&scratch, &["--trace"]);
    let server = Server::start(&directory);
    let ours = format!("localhost:{}", server.port);
    let (head, index) = server.ask("GET", "/", &ours, "");
    let index = String::from_utf8(index).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let trace = "/traces/pair.simulated.run-1.perfetto-trace";
    assert!(index.contains("/report.html") && index.contains(trace), "{index}");
    assert!(index.contains("https://ui.perfetto.dev/#!/?url=http://127.0.0.1"), "{index}");
    let (_, page) = server.ask("GET", "/report.html", &ours, "");
    assert_eq!(page, fs::read(format!("{directory}/report.html")).unwrap());
    let perfetto = "Origin: https://ui.perfetto.dev\r\n";
    let (head, bytes) = server.ask("GET", trace, &ours, perfetto);
    assert!(head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev"), "{head}");
    assert!(bytes.len() > 1_000, "{} bytes", bytes.len());
    for (path, host, more) in [
        ("/report.html", format!("evil.example:{}", server.port), ""),
        (trace, format!("127.0.0.1.evil.example:{}", server.port), perfetto),
        ("/report.html", ours.clone(), perfetto),
        (trace, ours.clone(), "Origin: https://evil.example\r\n"),
    ] {
        let (head, body) = server.ask("GET", path, &host, more);
        assert!(head.starts_with("HTTP/1.1 403 "), "{path} {host} {more}: {head}");
        assert!(!head.contains("Access-Control") && body.len() < 100);
    }
    let (head, body) = server.ask("HEAD", "/summary.json", &ours, "");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    assert!(server.ask("GET", "/run.json", &ours, "").0.starts_with("HTTP/1.1 404 "));
    server.end();
}

#[test]
fn t1_nothing_is_served_beyond_loopback() {
    let scratch = Scratch::new();
    let directory = simulated(&scratch, &[]);
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.org:80", "nowhere"] {
        let said = timewire(&["report", &directory, "--serve", address]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("is no address of loopback"), "{said:?}");
    }
}

/// Names under which distributions install the browser.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = BROWSERS.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    all.into_iter().find(|file| file.is_file())
}

/// Ten million records with `TIMEWIRE_SLOW=1`, else fifty times less: the page is as small.
#[test]
fn t3_many_records_come_to_a_page_that_opens_at_once() {
    let messages = if std::env::var("TIMEWIRE_SLOW").is_ok_and(|it| it == "1") {
        5_000_000_u32
    } else {
        100_000
    };
    let scratch = Scratch::new();
    let directory = simulated(&scratch, &[]);
    let case = format!("{directory}/cases/pair.simulated.run-1");
    let mut told: Value =
        serde_json::from_str(&fs::read_to_string(format!("{case}/case.json")).unwrap()).unwrap();
    told["to_ns"] = json!(i64::from(messages) * 1_000_000);
    fs::write(format!("{case}/case.json"), told.to_string()).unwrap();
    // A tail that falls off, and a storm of some thousand in the middle.
    let took = |seq: u32| {
        let random = u64::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let slow = i64::try_from(random % 4_096).unwrap();
        let tail = if random % 10_007 == 0 { 900_000 + slow * 100 } else { 0 };
        let storm = if seq / 5_000 == messages / 10_000 { 400_000 } else { 0 };
        100_000 + slow * 20 + tail + storm
    };
    let sent = |seq: u32| i64::from(seq) * 1_000_000;
    let talker = (0..messages).map(|seq| (Timestamp::Send, seq, sent(seq)));
    let listener = (0..messages).map(|seq| (Timestamp::Receive, seq, sent(seq) + took(seq)));
    let count = records(Path::new(&format!("{case}/a.twr")), "fast", talker)
        + records(Path::new(&format!("{case}/b.twr")), "fast", listener);
    assert_eq!(count, 2 * u64::from(messages));
    let started = std::time::Instant::now();
    let said = timewire(&["report", &directory, "--json"]);
    let computed = started.elapsed();
    assert_eq!(said.stderr, "", "{said:?}");
    assert_eq!(said.json()["cases"][0]["streams"][0]["received"], messages);
    let page = fs::read_to_string(format!("{directory}/report.html")).unwrap();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    eprintln!("{count} records: {} bytes of page, computed in {computed:?}", page.len());
    let Some(browser) = browser() else {
        eprintln!("SKIP: none of {} is installed", BROWSERS.join(", "));
        return;
    };
    opens(&browser, scratch.path(), &page);
}

/// Opens a page in a frame, and looks what it asked for and what the browser said.
fn opens(browser: &Path, directory: &Path, page: &str) {
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    let outer = format!(
        "<!doctype html><meta charset=\"utf-8\"><body><iframe style=\"width:1280px;height:900px\" \
         srcdoc=\"{inner}\"></iframe><p id=\"found\"></p><script>addEventListener('load', () => {{\
         const frame = document.querySelector('iframe');\
         const asked = frame.contentWindow.performance.getEntriesByType('resource');\
         const high = frame.contentDocument.documentElement.scrollHeight;\
         document.getElementById('found').textContent =\
         asked.length + ' ' + Math.round(performance.now()) + ' ' + high;\
         }});</script>"
    );
    fs::write(directory.join("outer.html"), outer).unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=2", "120"])
        .arg(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", directory.join("outer.html").display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (dom, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{log}");
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the browser complains: {console:#?}");
    let (_, found) = dom.split_once("<p id=\"found\">").unwrap();
    let (found, _) = found.split_once("</p>").unwrap();
    let numbers: Vec<u32> = found.split(' ').map(|number| number.parse().unwrap()).collect();
    let [asked, took_ms, high] = numbers[..] else { panic!("{found}") };
    assert_eq!(asked, 0, "the page asks for nothing");
    assert!(high > 2_000, "it is {high} px high");
    // How fast it is depends on who else computes here: it is told, not judged.
    eprintln!("the page was there and laid out {took_ms} ms after the browser began to read it");
}

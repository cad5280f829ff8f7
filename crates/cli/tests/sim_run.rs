// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire sim --out`: a simulation leaves what a run leaves, and other verbs read it. Captures
//! and records as input of a simulation; streams with several listeners.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const TIMEWIRE: &str = env!("CARGO_BIN_EXE_timewire");

/// An empty directory of this test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-run-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn timewire(words: &[&str]) -> (i32, String, String) {
    // However slow the machine is, stderr has what is wrong.
    let mut command = Command::new(TIMEWIRE);
    let output = command.args(words).env("TIMEWIRE_PROGRESS", "0").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// As JSON, with nothing on stderr.
fn told(words: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = timewire(words);
    assert_eq!(stderr, "", "{words:?}");
    (code, serde_json::from_str(&stdout).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Two stations, a bridge between them, and a third behind it; a link that loses some frames.
const NETWORK: &str = "timewire: 1
kind: network
name: three
duration: 200ms
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
ports:
- { of: [br], to: b, gates: { entries: [{ open: [7], interval: 250us },
    { open: [0, 1, 2, 3, 4, 5, 6, 7], interval: 250us }] } }
streams:
- { name: fast, talker: a, listeners: b, class: 7, size: 100B, kind: cyclic, period: 1ms }
- { name: slow, talker: a, listeners: c, size: 800B, kind: cyclic, period: 2ms, burst: 3 }
limits:
- { id: bound, metric: latency-max, stream: fast, at_most: 20ms }
- { id: all-there, metric: lost, stream: slow, at_most: 0% }
";

fn network(directory: &Path, text: &str) -> PathBuf {
    let file = directory.join("net.yaml");
    fs::write(&file, text).unwrap();
    file
}

/// All files below a directory.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let name = text(path.strip_prefix(directory).unwrap()).to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

fn stream<'a>(report: &'a Value, name: &str) -> &'a Value {
    let streams = report["streams"].as_array().unwrap();
    streams.iter().find(|it| it["name"] == name).unwrap()
}

#[test]
fn t2_a_simulation_leaves_the_directory_of_a_run() {
    let place = directory("leaves");
    let file = network(&place, NETWORK);
    let (one, two) = (place.join("one"), place.join("two"));
    let sim = |jobs: &str, out: &Path| {
        let words = ["--runs", "2", "--jobs", jobs, "--trace", "--out", text(out), "--json"];
        told(&[["sim", text(&file)].as_slice(), &words].concat())
    };
    let (code, report) = sim("1", &one);
    assert_eq!(code, 1, "frames are lost: {report}");
    assert_eq!(sim("2", &two).1, report);
    let files = contents(&one);
    assert!(files == contents(&two), "the same seed gives the same bytes on any processors");
    for name in ["run.json", "three.network.yaml", "summary.json", "report.html", "end.json"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    for name in ["a.twr", "b.twr", "c.twr", "case.json", "trace.twc", "trace.html"] {
        assert!(files.contains_key(&format!("cases/three.simulated.run-2/{name}")), "{name}");
    }
    // The records say what the simulation said: whole nanoseconds, rounded up.
    let (code, summary) = told(&["report", text(&one), "--json"]);
    assert_eq!((code, summary["verdict"].as_str()), (1, Some("fail")));
    let findings: Vec<_> = summary["findings"].as_array().unwrap().iter().collect();
    let verdict = |id: &str| findings.iter().find(|it| it["id"] == id).unwrap()["verdict"].clone();
    assert_eq!(
        (verdict("three/bound"), verdict("three/all-there")),
        ("pass".into(), "fail".into())
    );
    let (_, alone) = told(&["sim", text(&file), "--json"]);
    let case = &summary["cases"][0];
    for name in ["fast", "slow"] {
        let (of_sim, of_run) = (&stream(&alone, name)["latency"], &stream(case, name)["transfer"]);
        assert_eq!(of_sim["count"], of_run["count"], "{name}");
        for of in ["min", "p50", "p99", "max"] {
            let ps = of_sim[format!("{of}_ps")].as_u64().unwrap();
            assert_eq!(Some(ps.div_ceil(1_000)), of_run[format!("{of}_ns")].as_u64(), "{name}");
        }
    }
    let environment = summary["environment"].as_array().unwrap();
    assert!(environment.iter().all(|fact| fact["area"] == "simulation"), "{environment:?}");
    let (code, comparison) = told(&["compare", text(&one), text(&two), "--json"]);
    assert_eq!((code, comparison["counts"]["worse"].as_u64()), (0, Some(0)), "{comparison}");
    assert_eq!(comparison["cases"].as_array().unwrap().len(), 2);
    let (code, _, stderr) = timewire(&["sim", text(&file), "--out", text(&one)]);
    assert_eq!(code, 2);
    assert!(stderr.contains("it is not empty"), "{stderr}");
    let bad = place.join("bad");
    let (code, _, stderr) = timewire(&["sim", text(&file), "--trace=fats", "--out", text(&bad)]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("there is no stream `fats` to trace; there are fast, slow"),
        "{stderr}"
    );
    let kept = place.join("kept.json");
    let words = ["sim", text(&file), "--checkpoint", text(&kept), "--out", text(&bad)];
    let (code, _, stderr) = timewire(&words);
    assert_eq!(code, 2);
    assert!(stderr.contains("cannot be used with"), "{stderr}");
    assert!(!bad.exists() && !kept.exists());
}

#[test]
fn t2_a_trace_has_the_packet_path_of_every_frame() {
    let place = directory("traced");
    let file = network(&place, NETWORK);
    let out = place.join("run");
    let (_, report) = told(&["sim", text(&file), "--trace", "--out", text(&out), "--json"]);
    let capture = out.join("cases/three.simulated.run-1/trace.twc");
    let packet_paths = place.join("packet-paths.jsonl");
    let (code, _, stderr) = timewire(&[
        "trace",
        "show",
        text(&capture),
        "--all",
        "--jsonl",
        text(&packet_paths),
        "--json",
    ]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut longest = 0;
    for line in fs::read_to_string(&packet_paths).unwrap().lines() {
        let packet_path: Value = serde_json::from_str(line).unwrap();
        assert_eq!(packet_path["status"], "complete", "{packet_path}");
        let outcome = packet_path["outcome"].to_string();
        *counts.entry(outcome).or_default() += 1;
        if packet_path["flow"].as_str().is_some_and(|flow| flow.starts_with("fast")) {
            longest = longest.max(packet_path["end_to_end_ns"].as_i64().unwrap());
        }
    }
    let sum = |of: &dyn Fn(&Value) -> u64| {
        report["streams"].as_array().unwrap().iter().map(of).sum::<u64>()
    };
    let delivered = sum(&|it| it["delivered"].as_u64().unwrap());
    let lost = sum(&|it| it["lost"]["link_loss"].as_u64().unwrap_or(0));
    let of = |word: &str| {
        counts.iter().filter(|(name, _)| name.contains(word)).map(|it| it.1).sum::<u64>()
    };
    assert_eq!((of("received"), of("dropped")), (delivered, lost), "{counts:?}");
    let (_, text_of, _) = timewire(&["trace", "show", text(&capture), "--all", "--worst", "600"]);
    assert!(text_of.contains("dropped: link_loss"), "{text_of}");
    let packets = place.join("packets.pcapng");
    let export = ["trace", "export", text(&capture), "--as", "pcapng", "--out", text(&packets)];
    let (code, said, _) = timewire(&export);
    assert!(code == 0 && !said.contains("without headers"), "{said}");
    let perfetto = place.join("packet-paths.perfetto");
    let (code, ..) = timewire(&["trace", "show", text(&capture), "--perfetto", text(&perfetto)]);
    assert_eq!(code, 0);
    // What was exported can be sent again: from each frame's first transmission.
    let replayed = NETWORK
        .replace(
            "size: 800B, kind: cyclic, period: 2ms, burst: 3",
            "kind: replay, file: packets.pcapng, offset: 1ms",
        )
        .replace("20%", "0%");
    let (code, again) = told(&["sim", text(&network(&place, &replayed)), "--json"]);
    assert_eq!(code, 0, "{again}");
    assert!(stream(&again, "slow")["sent"].as_u64().unwrap() > delivered);
}

/// A capture in the classic format with nanoseconds, of frames at these times with these tags.
fn capture(frames: &[(u32, u32, Option<u16>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |numbers: &[u32]| numbers.iter().for_each(|it| out.extend(it.to_le_bytes()));
    put(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1]);
    for (ns, length, tag) in frames {
        let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
        match tag {
            Some(tag) => {
                bytes.extend([0x81, 0, tag.to_be_bytes()[0], tag.to_be_bytes()[1], 8, 0]);
            }
            None => bytes.extend([8, 0]),
        }
        let kept = u32::try_from(bytes.len()).unwrap();
        out.extend([7, *ns, kept, *length].iter().flat_map(|it| it.to_le_bytes()));
        out.extend(bytes);
    }
    out
}

#[test]
fn t2_a_capture_is_replayed_by_its_tags() {
    let place = directory("replay");
    // VLAN 5 with priority 6, the same with priority 1, and none.
    let (urgent, other) = (6 << 13 | 5, 1 << 13 | 5);
    let frames = [
        (1_000, 100, None),
        (2_000, 200, Some(urgent)),
        (5_000, 300, Some(other)),
        (9_000, 400, Some(urgent)),
    ];
    fs::write(place.join("plant.pcap"), capture(&frames)).unwrap();
    let text_of = |wanted: &str| {
        format!(
            "timewire: 1\nkind: network\nname: again\nduration: 1ms\nstations:\n- {{ name: a }}\n\
             - {{ name: b }}\nlinks:\n- {{ between: [a, b], delay: 0ns }}\nstreams:\n- {{ name: s, \
             talker: a, listeners: b, kind: replay, file: plant.pcap{wanted} }}\n"
        )
    };
    let sim = |wanted: &str| {
        let file = network(&place, &text_of(wanted));
        timewire(&["sim", text(&file), "--json"])
    };
    let sent = |wanted: &str| {
        let (code, stdout, stderr) = sim(wanted);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let it = stream(&report, "s");
        let latency = |of: &str| it["latency"][of].as_u64().unwrap() / 80_000;
        (it["delivered"].as_u64().unwrap(), latency("min_ps"), latency("max_ps"))
    };
    // Bytes on the link: check sequence and preamble on top. They come 1, 4 and 8 us after the
    // first, which is less than the longer ones need; so the last waits for two others.
    assert_eq!(sent("").0, 4);
    assert_eq!(sent(", pcp: 1"), (1, 312, 312));
    assert_eq!(sent(", vlan: 5, pcp: 6").0, 2);
    assert_eq!(sent(", source: '02:00:00:00:00:01'").0, 4);
    let refused = |wanted: &str, said: &str| {
        let (code, stdout, stderr) = sim(wanted);
        assert_eq!((code, stdout.as_str()), (2, ""), "{wanted}");
        assert!(stderr.contains(said), "{said}: {stderr}");
    };
    refused(", vlan: 6", "none of its 4 packets is one that is asked for");
    let mut torn = capture(&frames);
    torn.pop();
    fs::write(place.join("plant.pcap"), &torn).unwrap();
    refused("", "plant.pcap: it ends within the block that begins at byte");
    fs::write(place.join("plant.pcap"), capture(&[(0, 30_000, None)])).unwrap();
    refused("", "its packet 1 has 30000 bytes, and no link takes more than 9018");
    fs::remove_file(place.join("plant.pcap")).unwrap();
    refused("", "cannot read the capture");
}

#[test]
fn t2_limits_of_a_capture_that_was_not_read_whole_are_inconclusive() {
    let place = directory("replay-unread");
    let mut bytes = capture(&[(1_000, 100, None), (9_000, 400, None)]);
    let text_of = |limits: &str| {
        format!(
            "timewire: 1\nkind: network\nname: again\nduration: 1ms\nstations:\n- {{ name: a }}\n\
             - {{ name: b }}\nlinks:\n- {{ between: [a, b], delay: 0ns }}\nstreams:\n- {{ name: s, \
             talker: a, listeners: b, kind: replay, file: plant.pcap }}\n{limits}"
        )
    };
    let limits = "limits:\n- { id: soon, metric: latency-max, stream: s, at_most: 1ms }\n";
    let sim = |limits: &str, more: &[&str]| {
        let file = network(&place, &text_of(limits));
        timewire(&[&["sim", text(&file)], more].concat())
    };
    fs::write(place.join("plant.pcap"), &bytes).unwrap();
    let (code, stdout, _) = sim(limits, &["--json"]);
    assert_eq!(code, 0, "{stdout}");
    // Frames end with check sequences of four bytes, which are not told from data.
    bytes[23] = 0x24;
    fs::write(place.join("plant.pcap"), &bytes).unwrap();
    let (code, stdout, stderr) = sim(limits, &["--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let told = report["inconclusive"][0].as_str().unwrap();
    assert!(told.contains("not read: 1 interfaces whose frames end with check"), "{told}");
    assert_eq!((code, report["limits"][0]["verdict"].as_str()), (1, Some("pass")), "{stderr}");
    let (code, shown, _) = sim(limits, &["--out", text(&place.join("run"))]);
    assert_eq!(code, 1);
    assert!(shown.contains("INCONCLUSIVE: ") && shown.contains("limits are judged without it"));
    let summary = fs::read_to_string(place.join("run/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let findings = summary["findings"].as_array().unwrap();
    assert!(findings.iter().any(|it| it["id"] == "again/traffic"), "{findings:?}");
    // Without limits there is nothing to judge.
    assert_eq!(sim("", &[]).0, 0);
}

#[test]
fn t2_software_takes_the_times_that_a_run_recorded() {
    let place = directory("recorded");
    let (file, out) = (network(&place, NETWORK), place.join("run"));
    timewire(&["sim", text(&file), "--out", text(&out)]);
    let records = "run/cases/three.simulated.run-1/b.twr";
    let with = |receive: &str| {
        let text_of = NETWORK.replace("{ kind: exponential, min: 5us, mean: 300us }", receive);
        let file = network(&place, &text_of);
        timewire(&["sim", text(&file), "--json"])
    };
    let max = |said: (i32, String, String)| {
        assert_eq!(said.2, "");
        let report: Value = serde_json::from_str(&said.1).unwrap();
        stream(&report, "fast")["latency"]["mean_ps"].as_u64().unwrap()
    };
    let given = max(with("{ kind: exponential, min: 5us, mean: 300us }"));
    let again = max(with(&format!("{{ kind: recorded, file: {records} }}")));
    assert!(again.abs_diff(given) < given / 5, "{given} {again}");
    fs::write(place.join("wake.csv"), "n, wake_up_ns\n1, 40000\n2, 40000\n3,\n").unwrap();
    let fixed = max(with("{ kind: recorded, file: wake.csv, column: wake_up_ns }"));
    assert!(fixed > 40_000_000 && fixed < given, "{fixed}");
    let (code, _, stderr) = with("{ kind: recorded, file: wake.csv, column: wakeup }");
    assert_eq!(code, 2);
    let said = "`receive` of station b: cannot take times from";
    assert!(stderr.contains(said) && stderr.contains("there are n, wake_up_ns"), "{stderr}");
    let (_, _, stderr) = with(&format!("{{ kind: recorded, file: {records}, from: RxHv }}"));
    assert!(stderr.contains("`RxHv` is no timestamp point; there are Scheduled"), "{stderr}");
}

#[test]
fn t2_several_listeners_have_a_row_each_and_the_worst_is_judged() {
    let place = directory("listeners");
    let several = NETWORK
        .replace("name: fast, talker: a, listeners: b", "name: fast, talker: a, listeners: [c, b]")
        .replace("loss: 20%", "loss: 0%")
        .replace("at_most: 20ms", "at_most: 30us");
    let out = place.join("run");
    let file = network(&place, &several);
    let (code, report) = told(&["sim", text(&file), "--trace", "--out", text(&out), "--json"]);
    assert_eq!(code, 1, "{report}");
    let fast = stream(&report, "fast");
    let each = fast["listeners"].as_array().unwrap();
    assert_eq!((each[0]["name"].as_str(), each[1]["name"].as_str()), (Some("c"), Some("b")));
    let most = |it: &Value| it["latency"]["max_ps"].as_u64().unwrap();
    assert!(most(&each[0]) < 200_000_000 && most(&each[1]) > 300_000_000, "{each:?}");
    assert_eq!(most(fast), most(&each[1]));
    let bound = &report["limits"][0];
    let said = bound["measured"].as_str().unwrap();
    let ns = most(&each[1]).div_ceil(1_000);
    assert_eq!(said, format!("{}.{:03}us", ns / 1_000, ns % 1_000));
    let (_, summary) = told(&["report", text(&out), "--json"]);
    let rows = summary["cases"][0]["streams"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fast>c", "fast>b", "slow"]);
    assert_eq!(rows[1]["transfer"]["max_ns"].as_u64(), Some(ns));
    // In the capture, each listener has a packet path of its own; the way to the bridge is in both.
    let packet_paths = place.join("packet-paths.jsonl");
    let capture = out.join("cases/three.simulated.run-1/trace.twc");
    timewire(&["trace", "show", text(&capture), "--all", "--jsonl", text(&packet_paths)]);
    let lines = fs::read_to_string(&packet_paths).unwrap();
    let complete = |word: &str| {
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|it| it["status"] == "complete" && it.to_string().contains(word)).count()
    };
    let received = each.iter().map(|it| it["delivered"].as_u64().unwrap()).sum::<u64>();
    let received = received + stream(&report, "slow")["delivered"].as_u64().unwrap();
    assert_eq!(u64::try_from(complete("\"received\"")).unwrap(), received);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipeline from the scenario to its figures, also traced, and what becomes of a traced run that
//! is killed or cannot be.

use std::fs;

use crate::support;
use crate::support::{Host, NOBODY, run, timewire, wait_until};
use serde_json::Value;

/// Three stations, `first` to `last`, whose stimuli are computed with for a moment.
const PIPELINE: &str = "timewire: 1
name: line
kind: network
segments: [{ rate: 100Mbit }]
stations:
  - { name: first, address: 10.77.0.1/24 }
  - { name: middle, address: 10.77.0.2/24 }
  - { name: last, address: 10.77.0.3/24 }
schedule:
  kind: tdm
  cycle_time: 2ms
  guard: 100us
  slots:
    - { station: first, transmit: 500us }
    - { station: middle, transmit: 500us }
    - { station: last, transmit: 500us }
mac: { queue_frames: 64 }
streams:
  - { name: work, kind: pipeline, talker: first, listeners: [middle, last], components: 3,
      compute: 5us, port: 15001, size: 10B, class: 7, period: 10ms, deadline: 1s }
duration: 800ms
warm_up: 300ms
experiment:
  quick_duration: 600ms
  loads: [alone]
  cases:
    - { name: plain, title: Plain Ethernet, change: { schedule: null } }
    - { name: tdm, title: TDM, change: { streams: { work: { class: 0 } } } }
    - name: aligned
      title: Aligned
      change:
        schedule: { release: aligned, lead: 200us }
        streams: { work: { class: 0 } }
published: { source: somebody, latency_mean: 537us, transmit_mean: 492us, receive_mean: 41us }
limits:
  - { id: arrives, metric: lost, stream: work, case: tdm, load: alone, at_most: 0% }
";

#[test]
fn t3_a_pipeline_is_measured_as_a_whole_and_by_its_messages() {
    let Some(host) = Host::start() else { return };
    let file = host.scratch().write("line.yaml", PIPELINE);
    let said = host.timewire(&["run", &file, "--quick", "--json", "--out", "out"]).done();
    let summary = said.json();
    assert_eq!(summary["verdict"], "pass");
    let cases = summary["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let streams = case["streams"].as_array().unwrap();
        let names: Vec<_> = streams.iter().map(|stream| stream["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["work", "work-1", "work-2"]);
        for stream in streams {
            let (sent, lost) = (stream["sent"].as_u64().unwrap(), &stream["lost"]);
            assert!((1..=31).contains(&sent) && *lost == 0, "{case}");
        }
        let of = |stream: usize, figure: &str| streams[stream][figure]["count"].as_u64();
        // The whole has no way of its own.
        assert_eq!((of(0, "slot_wait"), of(0, "receive")), (None, None));
        for message in [1, 2] {
            assert_eq!(of(message, "slot_wait"), of(message, "transfer"));
            assert_eq!(of(message, "receive"), of(message, "transfer"));
        }
        // It has both messages in it, and all that is computed: 9 times 5us.
        let least = |stream: usize| streams[stream]["transfer"]["min_ns"].as_i64().unwrap();
        assert!(least(0) >= least(1) + least(2) + 45_000, "{case}");
        assert_eq!(case["wire"]["real_time_frames"], case["wire"]["frames"]);
    }
    host.is_clean();
}

#[test]
fn t4_in_virtual_time_each_message_leaves_as_its_slot_opens() {
    if !support::has_kernel() {
        return;
    }
    let scratch = support::Scratch::new();
    let file = scratch.write("line.yaml", PIPELINE);
    let out = scratch.join("out");
    let said =
        timewire(&["run", &file, "--on", "lab:uml", "--quick", "--json", "--out", &out]).done();
    let summary = said.json();
    let case = summary["cases"].as_array().unwrap().iter().find(|it| it["case"] == "tdm").unwrap();
    let us = |stream: usize, part: &str, figure: &str| {
        case["streams"][stream][part][figure].as_i64().unwrap() / 1_000
    };
    let between = |stream, part: &str| (us(stream, part, "min_ns"), us(stream, part, "max_ns"));
    // The source begins with its slot, and computes for 15us: its message goes at once.
    let (least, most) = between(1, "slot_wait");
    assert!(0 <= least && most <= 3, "{least}us to {most}us");
    // The next slot begins 600us after that one. Of these, two stations have computed for 15us, and
    // a message was on the link.
    let (least, most) = between(2, "slot_wait");
    assert!(555 <= least && most <= 570, "{least}us to {most}us");
    // All of it, and what the last station computes.
    let (least, most) = between(0, "transfer");
    assert!(615 <= least && most <= 635, "{least}us to {most}us");
    assert_eq!(case["wire"]["outside_slots"], 0);
    // There is no BTF in that kernel.
    let out = scratch.join("traced");
    let said = timewire(&["run", &file, "--on", "lab:uml", "--quick", "--trace", "--out", &out]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let refused = "not supported on lab:uml: --trace: its kernel does not describe its types (BTF)";
    assert!(said.stderr.contains(refused), "{said:?}");
}

/// A traced run into `out`; none where this kernel cannot be traced.
fn traced(host: &Host, more: &[&str]) -> Option<support::Said> {
    let file = host.scratch().write("line.yaml", PIPELINE);
    let words = [&["run", &file, "--quick", "--trace", "--out", "out"], more].concat();
    let said = host.timewire(&words);
    if said.code == Some(4) {
        eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
        return None;
    }
    Some(said.done())
}

/// The marks of a capture: station, point, value, and the number of the stimulus.
fn marks(host: &Host, capture: &str) -> Vec<(String, String, u64, u64)> {
    let said = host.timewire(&["trace", "export", capture, "--as", "jsonl"]).done();
    let events = said.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let marks = events.filter(|event| event["hook"] == "marker").map(|event| {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let tag = text("tag");
        let tag = u64::from_str_radix(tag.trim_start_matches("0x"), 16).unwrap();
        (text("station"), text("point"), event["aux"].as_u64().unwrap(), tag & 0xffff_ffff)
    });
    marks.collect()
}

#[test]
fn t3_a_traced_pipeline_has_the_figures_of_each_message() {
    let Some(host) = Host::start() else { return };
    let Some(said) = traced(&host, &["--json"]) else { return };
    let summary = said.json();
    for case in summary["cases"].as_array().unwrap() {
        let traced = &case["traced"];
        assert_eq!(traced["lost"], 0, "{case}");
        let with_mac = case["case"] != "plain";
        for (number, stream) in traced["streams"].as_array().unwrap().iter().enumerate() {
            let measured = &case["streams"][number + 1];
            assert_eq!(stream["stream"], measured["name"]);
            // Each message that the records have, joined at all four points.
            assert_eq!(stream["sent"], measured["sent"], "{case}");
            assert_eq!((&stream["incomplete"], &stream["ambiguous"]), (&0.into(), &0.into()));
            for part in ["transmit", "link", "receive", "transfer"] {
                assert_eq!(stream[part]["count"], stream["sent"], "{part}: {case}");
                assert!(stream[part]["min_ns"].as_i64().unwrap() >= 0, "{part}: {case}");
            }
            let mean = |part: &str| stream[part]["mean_ns"].as_f64().unwrap();
            let parts = mean("transmit") + mean("link") + mean("receive");
            assert!((parts - mean("transfer")).abs() < 1.0, "{case}");
            let driver = if with_mac { "mac.transmit" } else { "driver-start" };
            assert_eq!(stream["driver"], Value::from([driver]));
        }
        let page = host.scratch().path().join("out").join(traced["page"].as_str().unwrap());
        let page = fs::read_to_string(page).unwrap();
        // Marks are drawn where they are near one of the longest packet paths.
        for station in ["first", "middle", "last"] {
            assert!(page.contains(station), "{station}");
        }
        assert_eq!(page.contains("may send"), with_mac);
    }
    // From what was recorded the same comes again, and people are told as well.
    let told = host.timewire(&["report", "out"]).done();
    assert!(told.stdout.contains("\ntraced messages, all times in us; transmit: "), "{told:?}");
    let published = told.stdout.lines().find(|line| line.starts_with("published  ")).unwrap();
    let means: Vec<_> = published.split_whitespace().skip(1).collect();
    assert_eq!(means, ["492.0", "-", "41.0", "537.0"]);
    let again = fs::read_to_string(host.scratch().path().join("out/summary.json")).unwrap();
    assert_eq!(again, said.stdout);
    let report = fs::read_to_string(host.scratch().path().join("out/report.html")).unwrap();
    assert!(report.contains("href=\"cases/line.tdm.alone/trace.html\""));
    host.is_clean();
}

#[test]
fn t3_a_traced_pipeline_tells_each_step_by_a_mark() {
    let Some(host) = Host::start() else { return };
    if traced(&host, &[]).is_none() {
        return;
    }
    let all = marks(&host, "out/cases/line.tdm.alone/trace.twc");
    // One that began after the start and was done before the end.
    let number = 7;
    let of = |station: &str| -> Vec<(&str, u64)> {
        let here = all.iter().filter(|mark| mark.0 == station && mark.3 == number);
        here.filter(|mark| mark.1 != "mac.transmit").map(|mark| (&*mark.1, mark.2)).collect()
    };
    let mut steps = Vec::new();
    for component in 1..=3 {
        steps.extend([("START_CYCLE", component), ("END_CYCLE", component)]);
        if component < 3 {
            steps.extend([("STIMULUS_SENT", component), ("STIMULUS_RECD", component + 1)]);
        }
    }
    let (sent, received) = (("REMOTE_STIMULUS_SENT", 0), ("REMOTE_STIMULUS_RECD", 0));
    let with = |point: (&'static str, u64), port: u64| (point.0, point.1 + port);
    let first = [&steps[..], &[with(sent, 15_001)]].concat();
    let middle = [&[with(received, 15_001)], &steps[..], &[with(sent, 15_002)]].concat();
    let last = [&[with(received, 15_002)], &steps[..]].concat();
    assert_eq!([of("first"), of("middle"), of("last")], [first, middle, last]);
    let by_mac = all.iter().filter(|mark| mark.1 == "mac.transmit" && mark.3 == number);
    let by_mac: Vec<_> = by_mac.map(|mark| (&*mark.0, mark.2)).collect();
    // Headers of UDP, IP and Ethernet around 10 bytes.
    assert_eq!(by_mac, [("first", 52), ("middle", 52)]);
    host.is_clean();
}

#[test]
fn t3_a_traced_run_that_is_killed_keeps_what_it_saw() {
    let Some(host) = Host::start() else { return };
    if traced(&host, &[]).is_none() {
        return;
    }
    host.tool("rm -rf out");
    let file = host.scratch().write("line.yaml", &PIPELINE.replace("500ms", "20s"));
    let run = host.spawn(&["run", &file, "--trace", "--out", "out"]);
    let capture = host.scratch().path().join("out/cases/line.plain.alone/trace.twc");
    wait_until("something is in the capture", || {
        fs::metadata(&capture).is_ok_and(|file| file.len() > 200_000)
    });
    run.signal("KILL");
    assert_eq!(run.end().code, None);
    let said = host.timewire(&["report", "out", "--json"]);
    // The limit is of a case that did not run.
    assert_eq!(said.code, Some(1));
    let summary = said.json();
    assert_eq!(summary["complete"], false);
    let streams = summary["cases"][0]["traced"]["streams"].as_array().unwrap();
    assert!(streams.iter().all(|it| it["transfer"]["count"].as_u64().unwrap() > 10), "{summary}");
    let info = host.timewire(&["trace", "info", capture.to_str().unwrap()]).done();
    assert!(info.stdout.contains("the writer did not end it"), "{info:?}");
    host.is_clean();
}

#[test]
fn t3_who_may_not_trace_is_told_before_anything_is_made() {
    let Some(host) = Host::start() else { return };
    let file = host.scratch().write("line.yaml", PIPELINE);
    let out = host.scratch().join("out");
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    let line = ["setpriv", &user[0], &user[1], "--clear-groups", "--bounding-set=-all"];
    let words = [&line[..], &[support::TIMEWIRE, "run", &file, "--trace", "--out", &out]].concat();
    let said = run(&mut host.command("", &words));
    assert!(matches!(said.code, Some(2 | 4)), "{said:?}");
    assert!(said.stderr.starts_with("error: "), "{said:?}");
    assert!(!host.scratch().path().join("out").exists());
    // Nor does a dry run need it.
    timewire(&["run", &file, "--trace", "--dry-run"]).done();
}

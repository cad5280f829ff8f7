// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan FILE`: the shipped network, and random ones, whose plans the simulator holds to
//! their word: no frame outside its window, none lost, every deadline met.

use std::fs;
use std::path::Path;

use crate::support::{Scratch, timewire};
use serde_json::Value;

fn cell() -> String {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks");
    networks.join("planned-cell.network.yaml").display().to_string()
}

/// What classes with credit carry behind gates that the plan found is what the simulator tells of
/// the network with the plan in it.
#[test]
fn t2_credit_behind_planned_gates_has_its_rates() {
    let scratch = Scratch::new();
    let rendered = scratch.join("rendered");
    let planned = timewire(&["plan", &cell(), "--render", &rendered, "--json"]).done().json();
    let told = &planned["gated_credit"];
    let network = format!("{rendered}/planned.network.json");
    let simulated = timewire(&["sim", &network, "--json"]).json();
    assert_eq!(*told, simulated["gated_credit"]);
    let told = told.as_array().unwrap();
    assert!(told.len() > 3, "{told:?}");
    for one in told {
        assert_eq!((&one["class"], &one["reserved_bps"]), (&5.into(), &200_000_000.into()));
        let rate = |name: &str| one[name].as_u64().unwrap();
        assert!(rate("linux_least_bps") < 200_000_000 && rate("open_ppm") < 1_000_000, "{one}");
        assert!(rate("linux_least_bps") <= rate("linux_most_bps"), "{one}");
    }
    let text = timewire(&["plan", &cell()]).done().stdout;
    assert!(text.contains("class 5: credit of 200.000 Mbit/s behind a gate"), "{text}");
}

/// One cause takes all bounds away; it is told once, and in JSON with each stream.
#[test]
fn t2_the_cause_that_leaves_no_stream_a_bound_is_told_once() {
    let scratch = Scratch::new();
    let text = "timewire: 1\nkind: network\nname: x\nstations: [a, b]\nbridges: [br]\n\
                links: [[a, br], [br, b]]\n\
                ports: [{ of: [br], to: b, cbs: [{ class: 6, idle_slope: 20Mbit, rules: linux, \
                hi_credit: 300B, lo_credit: 1200B }] }]\nstreams:\n\
                - { name: s, talker: a, listeners: b, size: 64B, period: 1ms }\n\
                - { name: t, talker: b, listeners: a, kind: replay, file: x.pcap }\n";
    let file = scratch.write("x.yaml", text);
    let said = timewire(&["plan", &file]).done();
    let why = "br>b class 6: br counts credit as Linux does";
    let told = format!("not scheduled, and no bound for any of them: {why}\n  s, t\n");
    assert!(said.stdout.contains(&told), "{said:?}");
    assert_eq!(said.stdout.matches("counts credit").count(), 1, "{said:?}");
    let json = timewire(&["plan", &file, "--json"]).done().json();
    let rest = json["not_scheduled"].as_array().unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!(rest.len(), 2, "{json:#}");
    assert!(rest.iter().all(|it| it["why"]["cause"] == "linux_credit"), "{json:#}");
}

/// What a file asks of streams that are not scheduled is part of the verdict: no bound is no
/// success. A stream without a limit asks for nothing.
#[test]
fn t2_a_limit_of_a_stream_without_a_place_is_judged() {
    let scratch = Scratch::new();
    let cell = fs::read_to_string(cell()).unwrap();
    let more = "  - { name: more, talker: server, listeners: camera, class: 0, size: 1472B,
      kind: flood, rate: 900Mbit }\n";
    let limit = |stream: &str, at_most: &str| {
        format!(
            "limits:\n  - {{ id: asked, metric: latency-max, stream: {stream}, \
             at_most: {at_most} }}\n"
        )
    };
    let cases = [
        ("nothing", String::new(), 0, None),
        ("kept", limit("files", "1ms"), 0, Some("pass")),
        ("above", limit("files", "100us"), 1, Some("inconclusive")),
        ("placed", limit("set-1", "1ms"), 0, None),
        ("overload", more.to_owned(), 0, None),
        ("lost", format!("{more}{}", limit("files", "1s")), 1, Some("fail")),
    ];
    for (name, more, code, verdict) in cases {
        let file = scratch.write(&format!("{name}.yaml"), &format!("{cell}{more}"));
        let text = timewire(&["plan", &file]);
        assert_eq!(text.code, Some(code), "{name}: {text:?}");
        let json = timewire(&["plan", &file, "--json"]);
        assert_eq!(json.code, Some(code), "{name}");
        assert_eq!(json.json()["limits"][0]["verdict"].as_str(), verdict, "{name}");
        if let Some(verdict) = verdict {
            let verdict = verdict.to_uppercase();
            let line = format!("  {verdict} asked: latency-max of files is to be at most ");
            assert!(text.stdout.contains(&line), "{name}: {text:?}");
        }
    }
}

fn of_stream(report: &Value, name: &Value) -> Value {
    let streams = report["simulation"]["streams"].as_array().unwrap();
    streams.iter().find(|stream| stream["name"] == *name).unwrap().clone()
}

#[test]
fn t1_the_shipped_network_is_planned_explained_and_simulated() {
    let said = timewire(&["plan", &cell(), "--simulate"]).done();
    assert!(
        said.stdout.starts_with("7 of 7 streams are admitted; 10 nodes, 18 links, cycle 4ms\n"),
        "{said:?}"
    );
    assert!(said.stdout.contains("not scheduled:\n  pictures: latency at most "), "{said:?}");
    // On the worst clocks that the file allows.
    let apart = said.stdout.lines().filter(|line| line.starts_with("clocks of neighbours 500ns"));
    let apart: Vec<&str> = apart.collect();
    assert!(apart.len() == 4 && apart.iter().all(|line| line.contains(" limits pass")), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "set-1"]).done();
    assert!(said.stdout.contains("plc-1>west"), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "files"]).done();
    assert!(said.stdout.starts_with("files: latency at most "), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "nobody"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn t1_a_clock_that_a_plan_does_not_allow_is_named() {
    let scratch = Scratch::new();
    let text = OVERTAKEN.replace("{ name: a }", "{ name: a, clock: { offset: 300ns } }");
    let file = scratch.write("clock.yaml", &text);
    let said = timewire(&["plan", &file]).done();
    let line = "clock of a: it can be 300ns off, and with a sync_error of 0ns a plan allows 0ns: ";
    assert!(said.stdout.contains(line), "{said:?}");
    let json = timewire(&["plan", &file, "--json"]).done().json();
    assert_eq!(json["clocks_beyond_sync_error"][0]["off_ns"], 300);
}

#[test]
fn t2_streams_with_several_listeners_have_places_that_hold() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(cell()).unwrap();
    let several = text
        .replace(
            "name: set-1, talker: plc-1, listeners: drive-1,",
            "name: set-1, talker: plc-1, listeners: [drive-1, drive-3, drive-2],",
        )
        .replace("scheduled: true, max_latency: 100us", "scheduled: true, max_latency: 200us")
        .replace("talker: camera, listeners: server", "talker: camera, listeners: [server, plc-2]");
    let file = scratch.write("several.yaml", &several);
    let said = timewire(&["plan", &file, "--simulate", "--json"]).done();
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["refused"], 0, "{report}");
    let listeners = &of_stream(&report, &Value::from("set-1"))["listeners"];
    let most = |place: usize| listeners[place]["latency"]["max_ps"].as_u64().unwrap();
    assert!((0..3).all(|place| most(place) > 0 && most(place) <= 305_000_000), "{listeners}");
    for limit in report["simulation"]["limits"].as_array().unwrap() {
        assert_eq!(limit["verdict"], "pass", "{limit}");
    }
    let rest = report["not_scheduled"].as_array().unwrap();
    let pictures = rest.iter().find(|it| it["name"] == "pictures").unwrap();
    let bound = pictures["latency_max_ns"].as_u64().unwrap();
    let seen = &of_stream(&report, &Value::from("pictures"))["latency"]["max_ps"];
    assert!(seen.as_u64().unwrap() <= bound * 1_000, "{bound} {seen}");
}

#[test]
fn t1_a_plan_is_written_for_linux_once() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("out");
    let name = dir.display().to_string();
    timewire(&["plan", &cell(), "--render", &name]).done();
    let files = fs::read_dir(&dir).unwrap().count();
    let again = timewire(&["plan", &cell(), "--render", &name]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("is there and not empty"), "{again:?}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), files);
    let file = scratch.write("file", "");
    let no_place = timewire(&["plan", &cell(), "--render", &file, "--force"]);
    assert_eq!(no_place.code, Some(2), "{no_place:?}");
    assert!(no_place.stderr.ends_with("file is no directory\n"), "{no_place:?}");
    // What was written is simulated as any file.
    let planned = dir.join("planned.network.json").display().to_string();
    timewire(&["sim", &planned]).done();
}

#[test]
fn t1_a_file_not_scheduleds_has_bounds_only() {
    let scratch = Scratch::new();
    let file = cell().replace("planned-cell", "tsn-line");
    let said = timewire(&["plan", &file]).done();
    assert!(said.stdout.starts_with("no stream is scheduled\nnot scheduled:\n"), "{said:?}");
    assert_eq!(said.stdout.matches(": latency at most ").count(), 3, "{said:?}");
    let dir = scratch.path().join("out").display().to_string();
    let said = timewire(&["plan", &file, "--render", &dir]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(!Path::new(&dir).exists());
}

#[test]
fn t1_a_refused_stream_of_a_file_has_exit_code_1() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(cell()).unwrap().replace("latency: 100us", "latency: 5us");
    let file = scratch.write("late.yaml", &text);
    let said = timewire(&["plan", &file]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("class 7: alone in the network it needs "), "{said:?}");
}

/// A frame on a slow link is there before its gap is over, 960 ns earlier than its occupancy ends.
/// Were that forgotten, `slow` would be in the bridge before `fast` and leave in its window, and
/// `fast` 700 ns later than it may.
const OVERTAKEN: &str = "timewire: 1
kind: network
name: overtaken
duration: 10ms
sync_error: 0ns
stations: [{ name: a }, { name: b }, { name: c }]
bridges: [{ name: br, forward: 2us }]
links:
- { between: [a, br], rate: 100Mbit }
- { between: [b, br], rate: 1Gbit }
- { between: [br, c], rate: 1Gbit }
streams:
- { name: slow, talker: a, listeners: c, class: 7, size: 14B,
    kind: cyclic, period: 1ms, scheduled: true }
- { name: fast, talker: b, listeners: c, class: 7, size: 14B,
    kind: cyclic, period: 1ms, offset: 5350ns, scheduled: true, max_latency: 4346ns }
";

#[test]
fn t2_a_frame_that_is_there_a_gap_earlier_takes_no_window_of_another() {
    let scratch = Scratch::new();
    let file = scratch.write("overtaken.yaml", OVERTAKEN);
    timewire(&["plan", &file, "--simulate"]).done();
}

/// A talker without gates sends six planned frames of 117 us, and one more frame of its own, which
/// goes in what a frame leaves of its time.
const BESIDE: &str = "timewire: 1
kind: network
name: beside
duration: 40ms
stations: [{ name: a, device: { gate_entries: 0, launch_time: 50us } }, { name: b }, { name: c }]
bridges: [{ name: br, forward: 2us }]
links: [{ between: [a, br] }, { between: [br, b] }, { between: [br, c] }]
streams:
- { name: s, talker: a, listeners: b, class: 7, size: 1400B,
    kind: cyclic, period: 1ms, burst: 6, scheduled: true }
- { name: rest, talker: a, listeners: c, size: 100B,
    kind: cyclic, period: 1ms, offset: 60us }
";

#[test]
fn t2_others_keep_their_bounds_beside_planned_frames_that_no_gate_parts() {
    let scratch = Scratch::new();
    let file = scratch.write("beside.yaml", BESIDE);
    let report = timewire(&["plan", &file, "--simulate", "--json"]).done().json();
    let bound = report["not_scheduled"][0]["latency_max_ns"].as_u64().unwrap();
    let latency = &of_stream(&report, &Value::from("rest"))["latency"];
    let longest = latency["max_ps"].as_u64().unwrap();
    assert!(longest > 80_000_000, "it waits for one of them: {latency}");
    assert!(longest <= bound * 1_000, "{latency}, bound {bound} ns");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire plan FILE`: the shipped network, and random ones, whose plans the simulator holds to
//! their word: no frame outside its window, none lost, every deadline met.

use std::fmt::Write as _;
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

/// A sequence that looks random (Knuth's MMIX constants).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let place = self.below(u64::try_from(words.len()).unwrap());
        words[usize::try_from(place).unwrap()]
    }
}

/// A clock that is wrong by at most half of what two may differ by.
fn clock(draw: &mut Draw, sync: &str) -> String {
    match sync {
        "0ns" => String::new(),
        _ => format!("clock: {{ offset: {}500ns }}, ", draw.of(&["", "-"])),
    }
}

/// The same of one that drifts and is set right, or stays wrong.
fn drifting(draw: &mut Draw) -> &'static str {
    draw.of(&[
        "offset: 500ns",
        "offset: -500ns",
        "drift: 20ppm, sync: { interval: 5ms, error: 60ns }",
        "drift: -30ppm, wander: 1ppm, sync: { interval: 5ms, error: 60ns }",
        "drift: 40ppm, sync: { by: beacon, interval: 2ms, error: 60ns, bias: 100ns }",
    ])
}

/// One to four bridges in a line with stations whose clocks drift, and a few streams of one class.
fn light(seed: u64) -> String {
    let mut draw = Draw(seed);
    let bridges = 1 + draw.below(4);
    let (mut stations, mut links, mut text) = (Vec::new(), String::new(), String::new());
    for bridge in 0..bridges {
        let device = draw.of(&["", "interval_min: 1us", "gate_entries: 64, granularity: 8ns"]);
        let forward = draw.of(&["2us", "1500ns", "{ kind: uniform, min: 500ns, max: 3us }"]);
        let clock = drifting(&mut draw);
        let _ = writeln!(
            text,
            "- {{ name: b{bridge}, forward: {forward}, clock: {{ {clock} }}, \
             device: {{ {device} }} }}"
        );
        if bridge > 0 {
            let _ = writeln!(links, "- {{ between: [b{}, b{bridge}], rate: 1Gbit }}", bridge - 1);
        }
        for number in 0..1 + draw.below(3) + u64::from(bridges == 1) {
            stations.push((format!("s{bridge}-{number}"), bridge));
        }
    }
    text += "stations:\n";
    for (name, bridge) in &stations {
        let device = draw.of(&["", "gate_entries: 200, interval_min: 2us"]);
        let send = draw.of(&["0us", "3us", "{ kind: uniform, min: 1us, max: 2us }"]);
        let clock = drifting(&mut draw);
        let _ = writeln!(
            text,
            "- {{ name: {name}, send: {send}, clock: {{ {clock} }}, device: {{ {device} }} }}"
        );
        let rate = draw.of(&["100Mbit", "1Gbit"]);
        let _ = writeln!(links, "- {{ between: [{name}, b{bridge}], rate: {rate} }}");
    }
    let mut streams = String::new();
    let count = u64::try_from(stations.len()).unwrap();
    for stream in 0..2 + draw.below(5) {
        let from = draw.below(count);
        let to = (from + 1 + draw.below(count - 1)) % count;
        let name = |place: u64| &stations[usize::try_from(place).unwrap()].0;
        let (size, period) = (20 + draw.below(600), draw.of(&["1ms", "2ms"]));
        let burst = draw.of(&["1", "1", "2"]);
        let _ = writeln!(
            streams,
            "- {{ name: t{stream}, talker: {}, listeners: {}, class: 7, size: {size}B, \
             period: {period}, burst: {burst}, scheduled: true, max_latency: 700us }}",
            name(from),
            name(to)
        );
    }
    format!(
        "timewire: 1\nkind: network\nname: light-{seed}\nduration: 300ms\nsync_error: 1us\n\
         bridges:\n{text}links:\n{links}streams:\n{streams}"
    )
}

/// Two to five bridges in a line or ring with links of two rates, one to three stations at each,
/// streams with places, and others beside them that fill the links.
fn network(seed: u64) -> String {
    let mut draw = Draw(seed);
    let bridges = 2 + draw.below(4);
    let sync = draw.of(&["0ns", "1us"]);
    let mut text = format!(
        "timewire: 1\nkind: network\nname: random-{seed}\nduration: 40ms\n\
         sync_error: {sync}\nstations:\n"
    );
    let mut stations = Vec::new();
    for bridge in 0..bridges {
        for number in 0..=draw.below(3) {
            let launch =
                draw.of(&["", "launch_time: 30us", "gate_entries: 200, interval_min: 2us"]);
            let send = draw.of(&["0us", "3us"]);
            let receive = draw.of(&["0us", "{ kind: uniform, min: 1us, max: 4us }"]);
            let clock = clock(&mut draw, sync);
            let name = format!("s{bridge}-{number}");
            let _ = writeln!(
                text,
                "- {{ name: {name}, send: {send}, receive: {receive}, {clock}\
                 device: {{ {launch} }} }}"
            );
            stations.push((name, bridge));
        }
    }
    text.push_str("bridges:\n");
    let through = draw.below(4) == 0;
    for bridge in 0..bridges {
        let forward = draw.of(&["0us", "1500ns", "{ kind: uniform, min: 500ns, max: 3us }"]);
        let device = draw.of(&["", "interval_min: 5us", "gate_entries: 64, granularity: 100ns"]);
        let clock = clock(&mut draw, sync);
        let cut = if through { "cut_through: 64B, " } else { "" };
        let _ = writeln!(
            text,
            "- {{ name: b{bridge}, forward: {forward}, {cut}{clock}device: {{ {device} }} }}"
        );
    }
    text.push_str("links:\n");
    let ring = bridges > 2 && draw.below(2) == 0;
    for bridge in 0..bridges - u64::from(!ring) {
        let next = (bridge + 1) % bridges;
        let _ = writeln!(text, "- {{ between: [b{bridge}, b{next}], rate: 1Gbit }}");
    }
    for (name, bridge) in &stations {
        let rate = if through { "1Gbit" } else { draw.of(&["100Mbit", "1Gbit"]) };
        let _ = writeln!(text, "- {{ between: [{name}, b{bridge}], rate: {rate} }}");
    }
    text + &streams(&mut draw, &stations)
}

fn streams(draw: &mut Draw, stations: &[(String, u64)]) -> String {
    let mut text = "streams:\n".to_owned();
    for stream in 0..16 + draw.below(60) {
        let count = u64::try_from(stations.len()).unwrap();
        let from = draw.below(count);
        let to = (from + 1 + draw.below(count - 1)) % count;
        let name = |place: u64| &stations[usize::try_from(place).unwrap()].0;
        let what = if stream % 4 == 3 {
            let class = draw.below(3);
            let message = 100 + draw.below(1_300);
            let period = draw.of(&["300us", "1ms"]);
            format!(
                "class: {class}, size: {message}B, kind: cyclic, period: {period}, \
                 jitter: {{ kind: uniform, min: 0us, max: 200us }}"
            )
        } else {
            let class = draw.of(&["6", "7"]);
            let message = 20 + draw.below(1_400);
            let period = draw.of(&["500us", "1ms", "2ms"]);
            let burst = draw.of(&["1", "1", "3"]);
            let jitter = draw.of(&["", ", max_jitter: 40us"]);
            format!(
                "class: {class}, size: {message}B, kind: cyclic, period: {period}, \
                 burst: {burst}, scheduled: true, max_latency: 700us{jitter}"
            )
        };
        let _ = writeln!(
            text,
            "- {{ name: t{stream}, talker: {}, listeners: {}, {what} }}",
            name(from),
            name(to)
        );
    }
    text
}

fn of_stream(report: &Value, name: &Value) -> Value {
    let streams = report["simulation"]["streams"].as_array().unwrap();
    streams.iter().find(|stream| stream["name"] == *name).unwrap().clone()
}

#[test]
fn t2_the_plans_of_random_networks_hold_in_the_simulator() {
    let scratch = Scratch::new();
    let (mut planned, mut messages, mut refused, mut clocks) = (0, 0, 0, 0);
    for seed in 0..36 {
        let file = scratch.write("random.yaml", &network(seed));
        let said = timewire(&["plan", &file, "--simulate", "--json", "--steps", "200000"]);
        assert!(matches!(said.code, Some(0 | 1)), "seed {seed}: {said:?}");
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(report["simulation"]["violations"].as_array().unwrap().len(), 0);
        // Also with the clocks of neighbours as far apart as they may be, both ways.
        let apart = report["simulation_clocks_apart"].as_array().map_or(&[][..], Vec::as_slice);
        for simulation in std::iter::once(&report["simulation"]).chain(apart) {
            for limit in simulation["limits"].as_array().unwrap() {
                assert_eq!(limit["verdict"], "pass", "seed {seed}: {limit}\n{}", network(seed));
            }
            clocks += 1;
        }
        refused += report["refused"].as_u64().unwrap();
        for stream in report["streams"].as_array().unwrap() {
            if stream["admitted"] != true {
                continue;
            }
            let result = of_stream(&report, &stream["name"]);
            assert_eq!(result["outside_windows"], 0, "seed {seed}: {result}");
            assert!(result["lost"].as_object().unwrap().values().all(|count| *count == 0));
            messages += result["delivered"].as_u64().unwrap();
            planned += 1;
        }
        // What is not scheduled keeps its bound.
        for rest in report["not_scheduled"].as_array().unwrap() {
            let Some(bound) = rest["latency_max_ns"].as_u64() else { continue };
            let latency = &of_stream(&report, &rest["name"])["latency"];
            let Some(longest) = latency["max_ps"].as_u64() else { continue };
            // Software at both ends comes on top, and how late the message was.
            let software = 3_000 + 4_000 + 200_000;
            assert!(longest <= (bound + software) * 1_000, "seed {seed}: {rest} {latency}");
        }
    }
    println!("{planned} streams with {messages} messages, {refused} refused");
    assert!(
        planned > 300 && messages > 5_000 && refused > 0 && clocks > 36,
        "{clocks} simulations of {planned} streams with {messages} messages"
    );
}

/// Clocks that drift, jump when they are set right, and stay wrong for ever, all within what the
/// file says: no message misses its window.
#[test]
fn t2_plans_hold_on_clocks_that_drift() {
    let scratch = Scratch::new();
    let mut messages = 0;
    for seed in 0..60 {
        let file = scratch.write("light.yaml", &light(seed));
        let said = timewire(&["plan", &file, "--simulate", "--json"]);
        assert_eq!(said.code, Some(0), "seed {seed}: {said:?}\n{}", light(seed));
        for stream in said.json()["simulation"]["streams"].as_array().unwrap() {
            assert_eq!(stream["outside_windows"], 0, "seed {seed}: {stream}");
            messages += stream["delivered"].as_u64().unwrap();
        }
    }
    assert!(messages > 20_000, "{messages}");
}

#[test]
fn t1_the_shipped_network_is_planned_explained_and_simulated() {
    let said = timewire(&["plan", &cell(), "--simulate"]).done();
    assert!(
        said.stdout.starts_with("7 of 7 streams are admitted; 10 nodes, 18 links, cycle 4ms\n"),
        "{said:?}"
    );
    assert!(said.stdout.contains("not scheduled:\n  pictures: latency at most "), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "set-1"]).done();
    assert!(said.stdout.contains("plc-1>west"), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "files"]).done();
    assert!(said.stdout.starts_with("files: latency at most "), "{said:?}");
    let said = timewire(&["plan", &cell(), "--explain", "nobody"]);
    assert_eq!(said.code, Some(2), "{said:?}");
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
stations: [{ name: a }, { name: b }, { name: c }]
bridges: [{ name: br, forward: 2us }]
links:
- { between: [a, br], rate: 100Mbit }
- { between: [b, br], rate: 1Gbit }
- { between: [br, c], rate: 1Gbit }
streams:
- { name: slow, talker: a, listeners: c, class: 7, size: 18B,
    kind: cyclic, period: 1ms, scheduled: true }
- { name: fast, talker: b, listeners: c, class: 7, size: 18B,
    kind: cyclic, period: 1ms, offset: 5348ns, scheduled: true, max_latency: 4344ns }
";

#[test]
fn t2_a_frame_that_is_there_a_gap_earlier_takes_no_window_of_another() {
    let scratch = Scratch::new();
    let file = scratch.write("overtaken.yaml", OVERTAKEN);
    timewire(&["plan", &file, "--simulate"]).done();
}

/// A talker without gates sends six planned frames of 117 us, and one more frame of its own.
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
    assert!(longest > 600_000_000, "it waits for most of them: {latency}");
    assert!(longest <= bound * 1_000, "{latency}, bound {bound} ns");
}

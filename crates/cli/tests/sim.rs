// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire sim`: what it says of the shipped networks, and of wrong use.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TIMEWIRE: &str = env!("CARGO_BIN_EXE_timewire");

fn sim(file: &str, options: &[&str]) -> (i32, String, String) {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks");
    let mut command = Command::new(TIMEWIRE);
    // However slow the machine is, stderr has what is wrong.
    command.env("TIMEWIRE_PROGRESS", "0");
    command.arg("sim").arg(networks.join(file)).args(options);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(file: &str, options: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = sim(file, &[&["--json"], options].concat());
    assert_eq!(stderr, "", "{file}");
    (code, serde_json::from_str(&stdout).unwrap())
}

fn latency_us(report: &Value, stream: &str, of: &str) -> u64 {
    let streams = report["streams"].as_array().unwrap();
    let found = streams.iter().find(|it| it["name"] == stream).unwrap();
    found["latency"][of].as_u64().unwrap() / 1_000_000
}

#[test]
fn t2_ways_of_access_differ_as_they_should() {
    let worst = |name: &str| {
        let (code, report) = json(&format!("access-{name}.network.yaml"), &[]);
        let streams = ["n1", "n2", "n3", "n4"].map(|n| format!("control-{n}"));
        let most = streams.iter().map(|stream| latency_us(&report, stream, "max_ps")).max();
        for stream in report["streams"].as_array().unwrap() {
            assert_eq!(stream["outside_windows"], 0, "{name}: {stream}");
        }
        (most.unwrap(), code, report["collisions"].as_u64().unwrap())
    };
    let [contention, switched, token] = ["csma-cd", "switched", "token"].map(worst);
    let [ftt, rtnet, tdm] = ["ftt", "rtnet", "tdm"].map(worst);
    // Only contention collides; slots have a bound near their cycle, a switch a lower one.
    assert!(contention.2 > 100 && contention.0 > switched.0, "{contention:?} {switched:?}");
    assert!(token.2 == 0 && rtnet.2 == 0 && tdm.2 == 0 && switched.2 == 0);
    assert!(ftt.2 > 0, "in its asynchronous window");
    for (most, code, _) in [switched, token, ftt, rtnet, tdm] {
        assert!(most < 4_100 && code == 0, "{most}");
    }
}

#[test]
fn t2_the_same_seed_gives_the_same_bytes() {
    let file = "tsn-line.network.yaml";
    let first = sim(file, &["--seed", "7", "--json"]);
    assert_eq!(first, sim(file, &["--seed", "7", "--json"]));
    assert_ne!(first.1, sim(file, &["--seed", "8", "--json"]).1);
    assert_eq!(first.0, 0, "{}", first.1);
}

#[test]
fn t2_several_runs_are_one_table_and_the_worst_is_worse() {
    let (_, one) = json("access-tdm.network.yaml", &[]);
    let (_, three) = json("access-tdm.network.yaml", &["--runs", "3"]);
    let sent = |report: &Value| report["streams"][0]["sent"].as_u64().unwrap();
    assert_eq!((sent(&three), three["runs"].as_u64()), (3 * sent(&one), Some(3)));
    let (_, worst) = json("access-tdm.network.yaml", &["--worst=6"]);
    let most = |report: &Value| {
        (1..5).map(|n| latency_us(report, &format!("control-n{n}"), "max_ps")).max()
    };
    assert!(most(&worst) >= most(&one) && worst["worst"]["trials"] == 6);
    let (code, table, _) = sim("access-tdm.network.yaml", &[]);
    assert_eq!(code, 0);
    assert!(table.contains("control-n1") && table.contains("PASS control-n1-latency: latency-max"));
}

#[test]
fn t2_wrong_use_says_what_would_be_right() {
    let (code, stdout, stderr) = sim("nowhere.yaml", &[]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("cannot read"), "{stderr}");
    let (code, _, stderr) = sim("../tdm-64.yaml", &[]);
    assert_eq!(code, 2);
    assert!(stderr.contains("with `streams[0].kind`, its stations run programs: "), "{stderr}");
    assert!(stderr.contains("takes it, and with `--on sim` simulates it"), "{stderr}");
    let random = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-random.network.yaml");
    let text = "timewire: 1\nkind: network\nname: random\nduration: 1ms\n\
        stations: [{ name: a }, { name: b }]\nlinks: [{ between: [a, b] }]\nstreams:\n\
        - { name: s, talker: a, listeners: b, size: 64B, kind: sporadic, gap: 1ms }\n";
    fs::write(&random, text).unwrap();
    let (code, stdout, stderr) = sim(random.to_str().unwrap(), &["--worst"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("there are no phases to search"), "{stderr}");
    let (code, _, stderr) = sim("access-tdm.network.yaml", &["--runs", "0"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--runs"), "{stderr}");
}

#[test]
fn t2_frames_that_no_link_takes_are_lost_or_an_error_with_names() {
    let simulated = |name: &str, duration: &str, stream: &str, ports: &str| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{name}.network.yaml"));
        let text = format!(
            "timewire: 1\nkind: network\nname: {name}\nduration: {duration}\nstations: [a, b]\n\
             bridges: [west]\nlinks: [[a, west], [west, b]]\n{ports}streams:\n\
             - {{ name: control, talker: a, listeners: b, class: 7, size: 64B, period: 1ms }}\n\
             - {{ name: most, talker: a, listeners: b, {stream} }}\n"
        );
        fs::write(&file, text).unwrap();
        sim(file.to_str().unwrap(), &["--json"])
    };
    let unbounded = "ports: [{ of: [a], capacity: unbounded }]\n";
    let often = "size: 64B, period: 100ns";
    let flood = "size: 1472B, kind: flood, rate: 1000Gbit";
    for (name, stream, after) in [("often", often, "42"), ("flood", flood, "5")] {
        let (code, stdout, stderr) = simulated(name, "1s", stream, unbounded);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        let told = format!("error: stream most: after {after}");
        assert!(stderr.starts_with(&told), "{stderr}");
        let told = "ms of simulated time more than 4194304 frames are on their way, most of them \
            waiting at the port of a to west; write a `capacity` for that port, or let it send \
            less\n";
        assert!(stderr.ends_with(told), "{stderr}");
    }
    // With the usual bound they are lost where they wait, and nobody else's are.
    let (code, stdout, stderr) = simulated("bounded", "100ms", often, "");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let [control, most] = [0, 1].map(|place| &report["streams"][place]);
    assert_eq!((&control["sent"], &control["lost"]), (&101.into(), &serde_json::json!({})));
    let lost = most["lost"]["queue_full"].as_u64().unwrap();
    // 130 bytes take 10.4 us, in which 104 are released.
    assert!((980_000..1_000_000).contains(&lost), "{most}");
}

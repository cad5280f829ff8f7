// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C in a terminal, which goes to all processes of the foreground at once: every command that
//! takes long keeps what there is, says so in the same words, ends with its documented code, and
//! leaves nothing. A table over those commands that measure and compute, each for SIGINT and
//! SIGTERM, to all of its processes and to itself alone.

use std::fs;

use crate::support::interrupted::{Condition, WAYS, computes, interrupted};
use crate::support::{BOTH_CASES, Host, Tiny, run, wait_until};
use serde_json::Value;

/// Frames that an interface of a namespace has sent.
fn sent(host: &Host, netns: &str, interface: &str) -> u64 {
    let words = ["ip", "-s", "-j", "link", "show", interface];
    let said = run(&mut host.command(netns, &words)).stdout;
    let links: Value = serde_json::from_str(&said).unwrap_or_default();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap_or(0)
}

/// A network that is simulated for so long.
fn long_network(name: &str, duration: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: {name}\nduration: {duration}\n\
         stations: [{{ name: a }}, {{ name: b }}]\nlinks: [{{ between: [a, b] }}]\n\
         streams:\n- {{ name: s, talker: a, listeners: b, class: 7, size: 59B, \
         scheduled: true, max_latency: 1ms, kind: cyclic, period: 20us }}\n"
    )
}

/// Streams of which three are rejected, and no proof says so: bytes, and the period in
/// microseconds.
const CROWD: [(u32, u32); 35] = [
    (195, 700),
    (115, 600),
    (176, 600),
    (170, 900),
    (251, 900),
    (74, 700),
    (57, 900),
    (160, 900),
    (245, 1000),
    (228, 600),
    (118, 900),
    (201, 700),
    (280, 600),
    (57, 800),
    (56, 600),
    (52, 1000),
    (225, 900),
    (298, 700),
    (235, 900),
    (185, 600),
    (245, 700),
    (290, 900),
    (191, 900),
    (138, 700),
    (223, 700),
    (244, 700),
    (293, 900),
    (287, 800),
    (156, 600),
    (286, 1000),
    (97, 600),
    (80, 800),
    (279, 800),
    (289, 1000),
    (179, 900),
];

/// A network whose plan is searched for as long as it may take.
fn crowded_network() -> String {
    let mut text = "timewire: 1\nkind: network\nname: crowd\nduration: 1s\n\
                    stations: [{ name: a }, { name: b }]\nlinks: [{ between: [a, b] }]\nstreams:\n"
        .to_owned();
    for (number, (bytes, period)) in CROWD.into_iter().enumerate() {
        text += &format!(
            "- {{ name: s{number}, talker: a, listeners: b, class: 7, size: {bytes}B, \
             scheduled: true, max_latency: {period}us, kind: cyclic, period: {period}us }}\n"
        );
    }
    text
}

/// Streams without starts through many bridges, none of which can be in time, whatever its start.
fn late_network() -> String {
    let bridges: Vec<String> = (0..16).map(|number| format!("x{number}")).collect();
    let chain: Vec<&str> =
        ["a"].into_iter().chain(bridges.iter().map(String::as_str)).chain(["b"]).collect();
    let pairs = chain.windows(2).map(|two| format!("{{ between: [{}, {}] }}", two[0], two[1]));
    let names = bridges.iter().map(|name| format!("{{ name: {name} }}"));
    let mut text = format!(
        "timewire: 1\nkind: network\nname: late\nduration: 1s\n\
         stations: [{{ name: a }}, {{ name: b }}]\nbridges: [{}]\nlinks: [{}]\nstreams:\n",
        names.collect::<Vec<_>>().join(", "),
        pairs.collect::<Vec<_>>().join(", ")
    );
    for number in 0..1_000 {
        text += &format!(
            "- {{ name: s{number}, talker: a, listeners: b, class: 7, size: 59B, \
             scheduled: true, max_latency: 1us, kind: cyclic, period: 10s }}\n"
        );
    }
    text
}

/// Gates of its talker that make many starts worth a look.
fn many_gates() -> String {
    let mut text = "timewire: 1\nkind: network\nname: a\n\
         stations:\n- name: alpha\n  host:\n    interfaces:\n      - name: eth0\n        \
         transmit:\n          \
        handle: 100\n          overhead: 24B\n          classes:\n            \
        - { queues: 1@0 }\n            - { priorities: [7], queues: 1@1 }\n          \
        gates:\n            base_time: 0ns\n            entries:\n"
        .to_owned();
    for _ in 0..15 {
        text += "            - { open: [1], interval: 30us }\n            \
                 - { open: [0], interval: 20us }\n";
    }
    text + "            - { open: [0], interval: 250us }\n"
}

/// Frames between the stations of a measurement.
fn sent_on_bench(host: &Host) -> u64 {
    let names = host.list("/run/netns");
    let benches = names.iter().filter(|name| name.starts_with("twbench-"));
    benches.map(|name| sent(host, name, "eth0")).sum()
}

/// A command, what is waited for, its exit codes, what it says and which files it leaves in `out`.
type Row<'a> = (&'a [&'a str], Condition, &'a [i32], &'a str, &'a [&'a str]);

const REQUEST: &str = "ended on request";

#[test]
fn t3_every_long_command_keeps_what_there_is() {
    let Some(host) = Host::start() else { return };
    let file = host.scratch().write(
        "tiny.yaml",
        &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text().replace("250ms", "600s"),
    );
    let on_bench: Condition = |host| sent_on_bench(host) > 100;
    let on_record: Condition = |host| {
        host.scratch().path().join("out/traffic.json").exists() && sent(host, "", "lo") > 100
    };
    let launch = |how| ["measure", "launch", "--how", how, "--cycle", "1ms", "--count", "600000"];
    let (plain, mac) = (launch("plain"), launch("mac"));
    let in_case: Condition = |host| {
        let cases = host.scratch().path().join("out/cases");
        let cases = fs::read_dir(cases).into_iter().flatten().flatten();
        cases
            .flat_map(|case| fs::read_dir(case.path()).into_iter().flatten().flatten())
            .any(|file| file.path().extension().is_some_and(|e| e == "twr"))
    };
    let table: [Row<'_>; 8] = [
        (&plain, on_bench, &[2], REQUEST, &["frames.csv", "launch.json", "launch.txt"]),
        (&mac, on_bench, &[2], REQUEST, &["frames.csv", "launch.json", "launch.txt"]),
        (
            &["measure", "receive", "--over", "udp", "--rate", "100", "--for", "600s"],
            on_bench,
            &[2],
            REQUEST,
            &["receive.json"],
        ),
        (
            &["measure", "path", "--rate", "100", "--trial", "600s", "--reflect"],
            on_bench,
            &[2],
            REQUEST,
            &["path.json"],
        ),
        (&["run", &file], in_case, &[2], REQUEST, &["run.json"]),
        (&["demo", "--quick"], in_case, &[2], REQUEST, &["run.json"]),
        // These end with what they found: on a busy machine a message is late.
        (
            &["talk", "127.0.0.1:9009", "--cycle", "1ms"],
            on_record,
            &[0, 1],
            "sent",
            &["report.json"],
        ),
        (&["listen", "127.0.0.1:9009"], on_record, &[0, 1], "messages of", &["report.json"]),
    ];
    // Messages for the listener.
    let _talker = host.spawn(&["talk", "127.0.0.1:9009", "--cycle", "1ms"]);
    for (words, condition, codes, says, files) in table {
        for way in WAYS {
            let out = host.scratch().path().join("out");
            let _ = fs::remove_dir_all(&out);
            let directory = out.display().to_string();
            let mut all = words.to_vec();
            if !files.is_empty() {
                all.extend(["--out", &directory]);
            }
            let said = interrupted(&host, &all, condition, way);
            let is_right = said.code.is_some_and(|code| codes.contains(&code));
            assert!(is_right, "{way:?} {words:?}: {said:?}");
            let told = said.stdout.clone() + &said.stderr;
            assert!(told.contains(says), "{way:?} {words:?}: {said:?}");
            for file in files {
                assert!(out.join(file).exists(), "{way:?} {words:?}: no {file}: {said:?}");
                if words[0] == "measure" && file.ends_with(".json") {
                    let text = fs::read_to_string(out.join(file)).unwrap();
                    let kept: serde_json::Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(kept["ended_early"], true, "{way:?} {words:?}");
                }
            }
            wait_until("its stations are gone", || {
                host.list("/run/netns").iter().all(|name| !name.starts_with("tw"))
            });
            let helpers = || host.processes().iter().filter(|process| process.is_ours()).count();
            wait_until("nothing but the talker runs", || helpers() == 1);
        }
    }
}

#[test]
fn t3_every_long_computation_keeps_what_there_is() {
    let Some(host) = Host::start() else { return };
    let long = host.scratch().write("long.yaml", &long_network("long", "86400s"));
    let short = host.scratch().write("short.yaml", &long_network("short", "100ms"));
    let crowd = host.scratch().write("crowd.yaml", &crowded_network());
    let kept = host.scratch().path().join("kept").display().to_string();
    let has_kept: Condition = |host| host.scratch().path().join("kept").exists();
    let of_first: &str = "ended on request: the first of 1 runs was at ";
    let many = "of 1000000 runs had ended; limits are judged by that alone";
    let sim_many = ["sim", &short, "--runs", "1000000", "--checkpoint", &kept];
    let files = &["run.json", "end.json", "simulation.json", "report.html"];
    let best = "; ended on request: this is the best plan until then";
    let worst = "of 1000000 phases were tried";
    let drawn = host.scratch().join("drawn.svg");
    let late = host.scratch().write("late.yaml", &late_network());
    let gates = host.scratch().join("gates");
    fs::create_dir(&gates).unwrap();
    host.scratch().write("gates/a.host.yaml", &many_gates());
    let found = "ended on request: this is what was found until then";
    let scenario = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let scenario = scenario.replace("\nduration: 250ms", "\nduration: 60000s");
    let scenario = host.scratch().write("scenario.yaml", &scenario);
    let kept_in = "ended on request; what was recorded until then is kept in ";
    let records = &["run.json", "cases/tiny.plain.alone/control-client.twr"];
    let table: [Row<'_>; 12] = [
        (&["run", &scenario, "--on", "sim"], computes, &[2], kept_in, records),
        (&["sim", &long], computes, &[2], of_first, &[]),
        (&["sim", &long, "--json"], computes, &[2], "\"ended_early\": {", &[]),
        (&["sim", &long], computes, &[2], of_first, files),
        (&["sim", &short, "--runs", "1000000"], computes, &[2], many, files),
        (&sim_many, has_kept, &[2], many, &[]),
        (&["sim", &short, "--worst=1000000"], computes, &[2], worst, &[]),
        (&["sim", &long, "--worst"], computes, &[2], "ended on request in the first trial", &[]),
        (&["plan", &crowd, "--time-limit", "600s"], computes, &[2], best, &[]),
        (&["plan", &crowd, "--time-limit", "600s", "--gantt", &drawn], computes, &[2], best, &[]),
        (&["plan", &late, "--check", &gates], computes, &[2], found, &[]),
        (&["plan", &long, "--simulate"], computes, &[2], of_first, &[]),
    ];
    for (words, condition, codes, says, files) in table {
        for way in WAYS {
            let out = host.scratch().path().join("out");
            let _ = fs::remove_dir_all(&out);
            let _ = fs::remove_file(&kept);
            let _ = fs::remove_file(&drawn);
            let directory = out.display().to_string();
            let mut all = words.to_vec();
            if !files.is_empty() {
                all.extend(["--out", &directory]);
            }
            let said = interrupted(&host, &all, condition, way);
            assert_eq!(said.code, codes.first().copied(), "{way:?} {words:?}: {said:?}");
            let told = said.stdout.clone() + &said.stderr;
            assert!(told.contains(says), "{way:?} {words:?}: {said:?}");
            for file in files {
                assert!(out.join(file).exists(), "{way:?} {words:?}: no {file}: {said:?}");
            }
            assert_eq!(words.contains(&"--gantt"), fs::exists(&drawn).unwrap(), "{words:?}");
            if !files.is_empty() {
                let said = host.timewire(&["report", &directory]);
                let is_cut = ["was ended on request", "the run was cut short"];
                let is_told = is_cut.iter().any(|words| said.stdout.contains(words));
                assert!(is_told, "{words:?}: {said:?}");
            }
        }
    }
}

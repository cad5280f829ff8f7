// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario library: the experiments that bring their network along, in the laboratory's kernel
//! and in virtual time; the networks, planned and simulated.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

use crate::support::{NOBODY, Said, Scratch, TIMEWIRE, has_kernel, run, timewire};

/// The networks that run in the laboratory's kernel, with how many rows of streams each has there;
/// each has a test here, or in `cases`.
const ON_KERNELS: [(&str, usize); 9] = [
    ("access-switched", 8),
    ("avb", 5),
    ("control-loop", 14),
    ("line-qos", 12),
    ("line", 12),
    ("opcua-pubsub-like", 6),
    ("planned-cell", 9),
    ("profinet-like", 13),
    ("ring", 16),
];

/// The networks of one segment that run there, with how many streams are measured.
const SEGMENTS_ON_KERNELS: [(&str, usize); 3] =
    [("access-csma-cd", 8), ("access-rtnet", 9), ("access-tdm", 8)];

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Files of a directory that are no directories, by name.
fn files(directory: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(scenarios().join(directory)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: PathBuf| (path.file_name().unwrap().to_string_lossy().into_owned(), path);
    let mut files: Vec<_> = paths.map(name).collect();
    files.sort();
    files
}

fn run_in_the_laboratory(file: &str, scratch: &Scratch) -> Said {
    timewire(&["run", file, "--on", "lab:uml", "--out", &scratch.join("out"), "--json"])
}

/// Every number of the file is within its limits.
#[track_caller]
fn holds(name: &str, limits: usize) {
    if !has_kernel() {
        return;
    }
    let file = scenarios().join("experiments").join(name);
    let scratch = Scratch::new();
    let said = run_in_the_laboratory(&file.display().to_string(), &scratch).done();
    let summary = said.json();
    let results = summary["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{said:?}");
    let checks = results[0]["checks"].as_array().unwrap();
    assert_eq!(checks.len(), limits, "{said:?}");
    assert!(checks.iter().all(|check| check["verdict"] == "pass"), "{said:?}");
}

/// Every stream of the network is as promised in the laboratory's kernel.
#[track_caller]
fn is_as_promised(name: &str) {
    if !has_kernel() {
        return;
    }
    let file = scenarios().join(format!("networks/{name}.network.yaml")).display().to_string();
    let scratch = Scratch::new();
    let said = run_in_the_laboratory(&file, &scratch).done();
    let summary = said.json();
    assert_eq!(summary["verdict"], "pass", "{said:?}");
    let findings = summary["findings"].as_array().unwrap();
    // Of each stream what it is promised; limits of the file are findings of their own.
    let is_row = |it: &&Json| {
        let limit = it["limit"].as_str().unwrap();
        limit.contains(" promised by the ") || limit == "nothing is promised"
    };
    let judged: Vec<_> = findings.iter().filter(is_row).collect();
    let (_, rows) = ON_KERNELS.iter().find(|(own, _)| *own == name).unwrap();
    assert_eq!(judged.len(), *rows, "{said:?}");
    // Load is not judged, everything else passed.
    let is_load = |it: &Json| it["limit"] == "nothing is promised" && it["verdict"].is_null();
    assert!(judged.iter().all(|it| is_load(it) || it["verdict"] == "pass"), "{said:?}");
    assert!(judged.iter().any(|it| !is_load(it)), "{said:?}");
    let compiled = format!("cases/{name}.network.all/compiled.json");
    for file in ["report.html", "summary.json", &compiled, "end.json"] {
        assert!(Path::new(&scratch.join("out")).join(file).is_file(), "{file}");
    }
}

/// Networks of one segment pass, and their stations send as many messages as in the simulator.
#[test]
fn t4_kernels_on_one_segment_send_what_simulated_stations_send() {
    if !has_kernel() {
        return;
    }
    for (name, streams) in SEGMENTS_ON_KERNELS {
        let file = scenarios().join(format!("networks/{name}.network.yaml")).display().to_string();
        let scratch = Scratch::new();
        let kernels = run_in_the_laboratory(&file, &scratch).done().json();
        let out = scratch.join("sim");
        let simulated = timewire(&["run", &file, "--on", "sim", "--out", &out, "--json"]);
        let simulated = simulated.done().json();
        assert_eq!(kernels["verdict"], "pass", "{name}: {kernels:#}");
        assert_eq!(simulated["verdict"], "pass", "{name}: {simulated:#}");
        let sent = |summary: &Json| {
            let streams = summary["cases"][0]["streams"].as_array().unwrap().iter();
            let of = |it: &Json| (it["name"].as_str().unwrap().to_owned(), it["sent"].as_u64());
            let mut all: Vec<_> = streams.map(of).collect();
            all.sort();
            all
        };
        assert_eq!(sent(&kernels).len(), streams, "{name}");
        for ((one, here), (other, there)) in sent(&kernels).into_iter().zip(sent(&simulated)) {
            assert_eq!(one, other);
            // What is under way when a simulation ends is not among its messages.
            let under_way = here.unwrap().saturating_sub(there.unwrap());
            assert!(under_way <= 5 && here >= there, "{name}: {one}: {here:?}, {there:?}");
        }
        assert_eq!(kernels["cases"][0]["wire"]["outside_slots"], 0, "{name}: {kernels:#}");
    }
}

#[test]
fn t4_sporadic_streams_cross_a_switch() {
    is_as_promised("access-switched");
}

#[test]
fn t4_credit_bounds_two_classes_over_seven_hops() {
    is_as_promised("avb");
}

#[test]
fn t4_a_red_interval_keeps_files_away_on_a_line() {
    is_as_promised("profinet-like");
}

#[test]
fn t4_launch_times_reach_two_subscribers() {
    is_as_promised("opcua-pubsub-like");
}

#[test]
fn t4_kernels_do_what_is_planned_on_a_line() {
    is_as_promised("line");
}

#[test]
fn t4_kernels_do_what_is_planned_on_a_ring_of_bridges() {
    is_as_promised("ring");
}

#[test]
fn t4_kernels_do_what_is_planned_in_a_cell() {
    is_as_promised("planned-cell");
}

/// A network whose limit cannot hold fails, and the table says which stream and by how much.
#[test]
fn t4_a_stream_that_is_late_fails_with_its_time() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let text = fs::read_to_string(scenarios().join("networks/avb.network.yaml")).unwrap();
    let tight = text.replacen("max_latency: 50ms", "max_latency: 370us", 1);
    assert_ne!(tight, text);
    let file =
        scratch.write("avb.network.yaml", &tight.replacen("duration: 500ms", "duration: 50ms", 1));
    let said = timewire(&["run", &file, "--on", "lab:uml", "--out", &scratch.join("out")]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let wrong: Vec<_> = said.stdout.lines().filter(|line| line.starts_with("class-b: ")).collect();
    assert_eq!(wrong.len(), 1, "{said:?}");
    assert!(wrong[0].starts_with("class-b: class-b-latency: latency-max is "), "{said:?}");
    assert!(wrong[0].ends_with(" µs, at most 370us"), "{said:?}");
    assert!(said.stdout.contains("\nverdict: fail\n"), "{said:?}");
}

#[test]
fn t1_what_a_place_cannot_do_is_told_before_the_start() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let file = |name: &str| scenarios().join("networks").join(name).display().to_string();
    let refused = |name: &str, place: &str, says: &str| {
        let said = timewire(&["run", &file(name), "--on", place, "--out", &out]);
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.stderr.contains(says), "{said:?}");
        assert!(said.stderr.contains("nothing was run"), "{said:?}");
        assert!(!Path::new(&out).exists());
    };
    let token = "segments[0].access: kernels pass no token";
    refused("access-token.network.yaml", "lab:uml", token);
    refused("access-token.network.yaml", "lab", token);
    refused("tsn-line.network.yaml", "lab:uml", "not supported on lab:uml: faults: ");
    // Namespaces of this kernel, where it has all that they need.
    let line = file("line.network.yaml");
    let said = timewire(&["run", &line, "--on", "lab", "--dry-run"]);
    match said.code {
        Some(0) => assert!(said.stdout.contains("launch error on lab: "), "{said:?}"),
        _ => {
            refused("line.network.yaml", "lab", "error: line: not supported on lab: ");
            refused("line.network.yaml", "lab", "; --on lab:uml has it\n");
        }
    }
    // Where no place is named, it is the one that has links.
    let here = timewire(&["run", &file("line.network.yaml"), "--dry-run"]).done();
    let there = timewire(&["run", &file("line.network.yaml"), "--on", "lab:uml", "--dry-run"]);
    assert_eq!(here.stdout, there.done().stdout);
    // A stream that no plan can have is rejected before anything else.
    let text = fs::read_to_string(file("line.network.yaml")).unwrap();
    let text = text.replacen(
        "scheduled: true, max_latency: 200us, max_jitter: 20us",
        "scheduled: true, max_latency: 20us",
        1,
    );
    let own = scratch.write("line.network.yaml", &text);
    let said = timewire(&["run", &own, "--on", "lab:uml", "--out", &out]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.starts_with("rejected: set-1: "), "{said:?}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn t4_a_ring_loses_nothing_with_a_link() {
    holds("ring.yaml", 13);
}

#[test]
fn t4_a_ring_that_is_cut_twice_misses_its_limits() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let text = fs::read_to_string(scenarios().join("experiments/ring.yaml")).unwrap();
    let once = "{run: [ip, link, set, eth0, down], name: cut}";
    assert!(text.contains(once), "{text}");
    let twice = format!("{once}, {{run: [ip, link, set, eth1, down], name: again}}");
    let file = scratch.write("ring.yaml", &text.replace(once, &twice));
    let said = run_in_the_laboratory(&file, &scratch);
    assert_eq!(said.code, Some(1), "{said:?}");
    let checks = said.json()["results"][0]["checks"].clone();
    let missed = checks.as_array().unwrap().iter().filter(|check| check["verdict"] != "pass");
    let missed: Vec<_> = missed.map(|check| check["of"].as_str().unwrap().to_owned()).collect();
    // The neighbour has no link any more; the station opposite has all.
    assert!(missed.contains(&"b listen.out /data/heard/streams/*/frames".to_owned()), "{missed:?}");
    assert!(missed.iter().all(|of| of.starts_with("b ")), "{missed:?}");
}

/// A network's nodes are namespaces of the kernel that it is run on, and nothing of them is left,
/// also when the run is killed.
#[test]
fn t4_a_network_runs_in_namespaces_of_a_kernel_and_leaves_none() {
    if !has_kernel() {
        return;
    }
    let file = scenarios().join("networks/control-loop.network.yaml").display().to_string();
    let ring = scenarios().join("experiments/ring.yaml").display().to_string();
    let script = format!(
        "set -e; cd /tmp
         {TIMEWIRE} run {file} --on lab --quick --out whole --json > whole.json 2> /dev/null
         {TIMEWIRE} run {ring} --out ring --json > ring.json 2> /dev/null
         {TIMEWIRE} run {file} --on lab --quick --out killed > /dev/null 2>&1 & own=$!
         until ip netns list | grep -q panel; do sleep 0.1; done
         until [ -d killed/cases/control-loop.one-queue.all/experiment/0001 ]; do sleep 0.1; done
         kill -9 $own
         until [ -z \"$(ip netns list)\" ]; do sleep 0.1; done
         cat whole.json"
    );
    let said = timewire(&["lab", "exec", "--", "sh", "-c", &script]).done();
    let summary = said.json();
    assert_eq!(summary["verdict"], "pass", "{summary:#}");
    assert_eq!(summary["cases"].as_array().unwrap().len(), 2, "{summary:#}");
}

/// The files of a machine are those of the host, with the rights of who started it.
#[test]
fn t4_an_ordinary_user_performs_an_experiment_with_a_network() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("TIMEWIRE_CACHE").unwrap_or(format!("{home}/.cache/timewire"));
    let own = scratch.join("cache");
    // A kernel needs a library with registers on some processors only.
    let copy = "mkdir -p $2/kernels && cp -r $1/kernels/uml-* $2/kernels && \
                for it in $1/kernels/registers-*; do [ ! -e $it ] || cp -r $it $2/kernels; done && \
                chown -R $4:$4 $3";
    let scratch_path = scratch.path().display().to_string();
    let user = NOBODY.to_string();
    run(Command::new("sh").args(["-ec", copy, "-", &cache, &own, &scratch_path, &user])).done();
    let file = scenarios().join("experiments/ring.yaml").display().to_string();
    let words = ["run", &file, "--on", "lab:uml", "--out", &scratch.join("out"), "--json"];
    let mut command = Command::new(TIMEWIRE);
    command.args(words).uid(NOBODY).gid(NOBODY).env("TIMEWIRE_CACHE", &own).env("HOME", &own);
    run(command.current_dir(scratch.path())).done();
}

#[test]
fn t1_each_network_that_kernels_can_carry_out_has_a_test() {
    let mut found = Vec::new();
    for (name, path) in files("networks") {
        let file = path.display().to_string();
        let said = timewire(&["run", &file, "--on", "lab:uml", "--dry-run", "--json"]);
        if said.code == Some(0) {
            let cases = said.json();
            let cases = cases.as_array().unwrap().iter();
            // Of one segment, it is a scenario.
            let rows = cases.map(|it| it["promises"].as_array().or(it["streams"].as_array()));
            let rows = rows.map(|it| it.unwrap().len()).sum();
            found.push((name.split('.').next().unwrap().to_owned(), rows));
        }
    }
    let known = SEGMENTS_ON_KERNELS.iter().chain(&ON_KERNELS);
    let mut known: Vec<_> = known.map(|(name, rows)| ((*name).to_owned(), *rows)).collect();
    known.sort();
    found.sort();
    assert_eq!(found, known);
}

#[test]
fn t1_an_experiment_says_where_it_can_be_run() {
    let scratch = Scratch::new();
    let file = |name: &str| scenarios().join("experiments").join(name).display().to_string();
    let out = scratch.join("out");
    let said = timewire(&["run", &file("ring.yaml"), "--dry-run"]);
    match said.code {
        Some(0) => assert!(said.stdout.starts_with("ring: 1 trials"), "{said:?}"),
        _ => {
            assert_eq!(said.code, Some(4), "{said:?}");
            assert!(said.stderr.contains("; --on lab:uml has it"), "{said:?}");
        }
    }
    let said = timewire(&["run", &file("cycles.yaml"), "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("name with --on the hosts file"), "{said:?}");
    let said = timewire(&["run", &file("cycles.yaml"), "--on", "lab:uml", "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("it has no `links`"), "{said:?}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn t4_slots_of_one_frame_are_kept() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scenarios().join("rtnet-like.yaml").display().to_string();
    let out = scratch.join("out");
    let said =
        timewire(&["run", &file, "--quick", "--on", "lab:uml", "--out", &out, "--json"]).done();
    assert_eq!(said.json()["verdict"], "pass", "{said:?}");
}

#[test]
fn t2_every_network_keeps_its_limits() {
    let mut planned = 0;
    for (name, path) in files("networks") {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.display().to_string();
        let scratch = Scratch::new();
        let said = if text.contains("\nexperiment:") {
            timewire(&["run", &file, "--on", "sim", "--out", &scratch.join("out")])
        } else if text.contains("scheduled: true") {
            planned += 1;
            timewire(&["plan", &file, "--simulate"])
        } else {
            timewire(&["sim", &file])
        };
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(said.stdout.contains("\nPASS "), "{name} has no limit: {said:?}");
    }
    assert_eq!(planned, 3);
}

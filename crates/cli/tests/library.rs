// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario library: the experiments that bring their network along, in the laboratory's kernel
//! and in virtual time; the networks, planned and simulated.
//!
//! Not here: whether the page lists every file (`timewire-sched`), the experiments on stations that
//! are there (`experiments`), whole scenarios (`.ci/run`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{NOBODY, Said, Scratch, TIMEWIRE, run, timewire};

/// The experiments with a network of their own; each has a test here.
const WITH_NETWORK: [&str; 5] =
    ["avb.yaml", "line.yaml", "opcua-pubsub-like.yaml", "profinet-like.yaml", "ring.yaml"];

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

fn has_kernel() -> bool {
    let has = timewire(&["lab", "exec", "--", "true"]).code == Some(0);
    if !has {
        eprintln!("SKIP: no laboratory kernel here; `timewire lab uml` builds one");
    }
    has
}

fn run_in_the_laboratory(file: &str, scratch: &Scratch) -> Said {
    timewire(&["run", file, "--lab", "uml", "--out", &scratch.join("out"), "--json"])
}

/// Every number of the file is within its limits.
#[track_caller]
fn holds(name: &str) {
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
    let limits = fs::read_to_string(&file).unwrap().matches("record: ").count();
    assert_eq!(checks.len(), limits, "{said:?}");
    assert!(checks.iter().all(|check| check["ok"] == true), "{said:?}");
}

#[test]
fn t4_credit_bounds_two_classes_over_seven_hops() {
    holds("avb.yaml");
}

#[test]
fn t4_a_red_interval_keeps_files_away_on_a_line() {
    holds("profinet-like.yaml");
}

#[test]
fn t4_launch_times_reach_two_subscribers() {
    holds("opcua-pubsub-like.yaml");
}

#[test]
fn t4_kernels_do_what_is_planned_on_a_line() {
    holds("line.yaml");
}

#[test]
fn t4_a_ring_loses_nothing_with_a_link() {
    holds("ring.yaml");
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
    fs::create_dir(scratch.path().join("ring")).unwrap();
    let streams = fs::read_to_string(scenarios().join("experiments/ring/streams.yaml")).unwrap();
    scratch.write("ring/streams.yaml", &streams);
    let said = run_in_the_laboratory(&file, &scratch);
    assert_eq!(said.code, Some(1), "{said:?}");
    let checks = said.json()["results"][0]["checks"].clone();
    let missed = checks.as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let missed: Vec<_> = missed.map(|check| check["of"].as_str().unwrap().to_owned()).collect();
    // The neighbour has no link any more; the station opposite has all.
    assert!(missed.contains(&"b listen.out /data/heard/streams/0/frames".to_owned()), "{missed:?}");
    assert!(missed.iter().all(|of| of.starts_with("b ")), "{missed:?}");
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
    let words = ["run", &file, "--lab", "uml", "--out", &scratch.join("out"), "--json"];
    let mut command = Command::new(TIMEWIRE);
    command.args(words).uid(NOBODY).gid(NOBODY).env("TIMEWIRE_CACHE", &own).env("HOME", &own);
    run(command.current_dir(scratch.path())).done();
}

#[test]
fn t1_each_experiment_with_a_network_has_a_test() {
    let mut found = Vec::new();
    for (name, path) in files("experiments") {
        if fs::read_to_string(path).unwrap().contains("\nnetwork:") {
            found.push(name);
        }
    }
    assert_eq!(found, WITH_NETWORK);
}

#[test]
fn t1_an_experiment_says_where_it_can_be_run() {
    let scratch = Scratch::new();
    let file = |name: &str| scenarios().join("experiments").join(name).display().to_string();
    let out = scratch.join("out");
    let said = timewire(&["run", &file("ring.yaml"), "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("or have them made with --lab uml"), "{said:?}");
    let said = timewire(&["run", &file("cycles.yaml"), "--lab", "uml", "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("no key `network`"), "{said:?}");
    let map = file("stations.yaml");
    let said = timewire(&["run", &file("ring.yaml"), "--lab", "uml", "--map", &map, "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
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
    let said = timewire(&["run", &file, "--quick", "--lab", "uml", "--out", &out, "--json"]).done();
    assert_eq!(said.json()["verdict"], "pass", "{said:?}");
}

#[test]
fn t2_every_network_keeps_its_limits() {
    let mut planned = 0;
    for (name, path) in files("networks") {
        let text = fs::read_to_string(&path).unwrap();
        let file = path.display().to_string();
        let said = if text.contains("place:") {
            planned += 1;
            timewire(&["plan", &file, "--simulate"])
        } else {
            timewire(&["sim", &file])
        };
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(said.stdout.contains("\nok "), "{name} has no limit: {said:?}");
    }
    assert_eq!(planned, 3);
}

/// The gates and the times of hand-over in `experiments/line` are those of the plan.
#[test]
fn t1_the_line_of_kernels_has_the_plan_of_its_network() {
    const AHEAD_NS: i64 = 5_000;
    let scratch = Scratch::new();
    let network = scenarios().join("networks/line.network.yaml").display().to_string();
    let plan = scratch.join("plan");
    timewire(&["plan", &network, "--render", &plan]).done();
    let (mut gates, mut streams) = (0, BTreeMap::new());
    for (name, path) in files("experiments/line") {
        let text = fs::read_to_string(&path).unwrap();
        if name.ends_with(".tc") {
            gates += 1;
            assert_eq!(text, fs::read_to_string(format!("{plan}/{name}")).unwrap(), "{name}");
            continue;
        }
        // A stream's name is the comment behind it.
        for entry in text.split("\n- ").skip(1) {
            let number = |key: &str| -> i64 {
                let rest = entry.split_once(&format!("{key}: ")).unwrap().1;
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
                rest[..digits].parse().unwrap()
            };
            let stream = entry.trim_end().rsplit_once("# ").unwrap().1.to_owned();
            let (cycle, offset) = (number("cycle") * 1_000, number("offset"));
            streams.insert(stream, (cycle, (offset + AHEAD_NS) % cycle, number("size")));
        }
    }
    let mut starts = BTreeMap::new();
    for entry in fs::read_dir(&plan).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".launch.csv") {
            continue;
        }
        for row in fs::read_to_string(path).unwrap().lines().skip(1) {
            let cells: Vec<&str> = row.split(',').collect();
            let number = |at: usize| cells[at].parse::<i64>().unwrap();
            // 18 bytes are header and check sequence.
            starts.insert(cells[0].to_owned(), (number(4), number(5), number(7) - 18));
        }
    }
    assert_eq!((gates, streams.len()), (11, 12));
    assert_eq!(streams, starts);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments in `scenarios/experiments`, each in a tiny variant, on the namespaces that the
//! head of their map says how to make.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support;
use crate::support::{Host, Said, TIMEWIRE};
use serde_json::Value as Json;

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/experiments").join(name);
    fs::read_to_string(path).unwrap()
}

/// A host with the stations of the hosts file, made as its head says.
struct Stations {
    host: Host,
}

impl Stations {
    /// `None`, after saying why, where no such host can be made.
    fn start() -> Option<Stations> {
        let host = Host::start()?;
        // The journals of this host's agents.
        host.tool("mount -t tmpfs tmpfs /var/lib");
        let hosts = shipped("hosts.yaml");
        let commands: Vec<&str> =
            hosts.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
        assert_eq!(commands.len(), 9, "{hosts}");
        commands.iter().for_each(|command| drop(host.tool(command)));
        host.scratch().write("hosts.yaml", &hosts);
        fs::create_dir(host.scratch().path().join("bin")).unwrap();
        symlink(TIMEWIRE, host.scratch().path().join("bin/timewire")).unwrap();
        Some(Stations { host })
    }

    /// Performs a file after putting small numbers in place of its own.
    fn run(&self, name: &str, tiny: &[(&str, &str)]) -> (Said, Json) {
        self.run_with(name, tiny, &[])
    }

    /// The same with more options.
    fn run_with(&self, name: &str, tiny: &[(&str, &str)], more: &[&str]) -> (Said, Json) {
        let mut text = shipped(name);
        for (from, to) in tiny {
            assert!(text.contains(from), "{name} has no `{from}`");
            text = text.replace(from, to);
        }
        self.host.scratch().write(name, &text);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("PATH={}:{path}", self.host.scratch().join("bin"));
        let out = self.out(name);
        let run = ["run", name, "--on", "hosts.yaml", "--out", &out, "--json"];
        let words = [&["env", &path, TIMEWIRE], &run[..], more].concat();
        let said = self.host.spawn_in("", &words).end();
        assert!(!said.stdout.is_empty(), "{said:?}");
        let summary = said.json();
        (said, summary)
    }

    fn out(&self, name: &str) -> String {
        self.host.scratch().join(name.trim_end_matches(".yaml"))
    }

    /// A record of a trial.
    fn record(&self, name: &str, trial: &str, record: &str) -> String {
        let path = Path::new(&self.out(name)).join(trial).join("records").join(record);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Every trial was done, and its numbers are within their limits.
#[track_caller]
fn all_are_done(said: &Said, summary: &Json, trials: usize, checks: usize) {
    assert_eq!(said.code, Some(0), "{said:?}");
    let results = summary["results"].as_array().unwrap();
    assert_eq!(results.len(), trials, "{said:?}");
    assert!(results.iter().all(|it| it["checks"].as_array().unwrap().len() == checks), "{said:?}");
}

#[test]
fn t3_rxtest_measures_both_sockets() {
    let Some(stations) = Stations::start() else { return };
    let name = "rxtest.yaml";
    let tiny =
        [("--rate=10'", "--rate=200'"), ("=1000'", "=40'"), ("at_least: 1000", "at_least: 40")];
    let (said, summary) = stations.run(name, &tiny);
    all_are_done(&said, &summary, 1, 2);
    let report: Json =
        serde_json::from_str(&stations.record(name, "0001", "listener/receive.json")).unwrap();
    let stages = report["combinations"][1]["stages"].as_array().unwrap();
    let named = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap();
    for stage in ["send->kernel", "kernel->user"] {
        let all = &named(stage)["all"];
        assert!(all["mean_ns"].is_number() && all["stddev_ns"].is_number(), "{all}");
    }
    assert!(stations.record(name, "0001", "listener/receive.svg").starts_with("<svg"));
    assert!(stations.record(name, "0001", "listener/host.json").contains("timewire.snapshot"));
}

#[test]
fn t3_the_study_varies_each_setting_in_one_run() {
    let Some(stations) = Stations::start() else { return };
    let name = "receive-study.yaml";
    let tiny = [
        ("--rate=10,128,1000,5000", "--rate=100,200"),
        ("load=0,50,90", "load=0,20"),
        ("0,10udp,100udp,10packet,100packet", "0,3udp,3packet"),
        ("--for=3s", "--for=100ms"),
        ("--repeat=3", "--repeat=1"),
    ];
    let (said, summary) = stations.run(name, &tiny);
    all_are_done(&said, &summary, 4, 2);
    for result in summary["results"].as_array().unwrap() {
        let number = format!("{:04}", result["number"].as_u64().unwrap());
        let record = stations.record(name, &number, "listener/receive.json");
        let report: Json = serde_json::from_str(&record).unwrap();
        let what = result["values"]["what"].as_str().unwrap();
        let values = what.split(',').count();
        let combinations = report["combinations"].as_array().unwrap();
        assert_eq!(combinations.len(), 2 * values, "{what}");
        // The ratios are to another value of the setting, for each of both sockets.
        assert_eq!(report["compare"], result["values"]["compare"], "{what}");
        let of_both = |it: &Json| it["stages"][0]["ratio"].is_object();
        let compared = combinations.iter().filter(|it| of_both(it)).count();
        assert_eq!(compared, 2 * (values - 1), "{what}");
    }
}

#[test]
fn t3_rates_and_ways_are_one_run() {
    let Some(stations) = Stations::start() else { return };
    let tiny = [("--rate=1,128,", "--rate=50,128,"), ("--for=10s", "--for=100ms")];
    let tiny = [&tiny[..], &[("--repeat=3", "--repeat=1")]].concat();
    let (said, summary) = stations.run("rates.yaml", &tiny);
    if said.stderr.contains("AF_XDP") && said.code != Some(0) {
        eprintln!("SKIP: {}", said.stderr.trim());
        return;
    }
    all_are_done(&said, &summary, 3, 1);
}

#[test]
fn t3_a_cycle_is_kept_between_two_stations() {
    let Some(stations) = Stations::start() else { return };
    let tiny = [("10ms, 1ms, 250us", "1ms, 250us"), ("1000", "50"), ("repeats: 2", "repeats: 1")];
    let (said, summary) = stations.run("cycles.yaml", &tiny);
    all_are_done(&said, &summary, 4, 5);
    // What was sent is what is counted, not what is expected: a message too few is told.
    let tiny = [("10ms, 1ms, 250us", "1ms"), ("64B, 1400B", "64B"), ("'1000'", "'50'")];
    fs::remove_dir_all(stations.out("cycles.yaml")).unwrap();
    let (said, summary) = stations.run("cycles.yaml", &tiny);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(summary["results"][0]["checks"][0]["why"], "too small", "{said:?}");
}

/// What `run` is told of the clocks, its listeners tell; without it they tell no latency.
#[test]
fn t3_a_run_states_how_far_clocks_are_apart() {
    let Some(stations) = Stations::start() else { return };
    let name = "cycles.yaml";
    let tiny = [
        ("10ms, 1ms, 250us", "1ms"),
        ("64B, 1400B", "64B"),
        ("1000", "50"),
        ("repeats: 2", "repeats: 1"),
    ];
    for (more, bound) in [(&[][..], None), (&["--clock-error", "5us"][..], Some(5_000))] {
        let (said, summary) = stations.run_with(name, &tiny, more);
        all_are_done(&said, &summary, 1, 5);
        let heard = stations.record(name, "0001", "listener/listen.out");
        let last: Json = serde_json::from_str(heard.lines().last().unwrap()).unwrap();
        let stream = &last["data"]["heard"]["streams"][0];
        assert_eq!(stream["clock"]["error_ns"].as_i64(), bound, "{stream}");
        assert_eq!(stream["between"].is_null(), bound.is_none(), "{stream}");
        fs::remove_dir_all(stations.out(name)).unwrap();
    }
}

#[test]
fn t4_launch_times_are_kept_in_the_laboratory_s_kernel() {
    if !support::has_kernel() {
        return;
    }
    let Some(stations) = Stations::start() else { return };
    let tiny = [
        ("1ms, 250us", "1ms"),
        ("--count=5000", "--count=200"),
        ("at_least: 5000", "at_least: 200"),
    ];
    let (said, summary) = stations.run("launch-times.yaml", &tiny);
    all_are_done(&said, &summary, 1, 4);
}

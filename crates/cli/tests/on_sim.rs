// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run SCENARIO --on sim`: the experiment of a scenario in the simulator, without privileges.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

use crate::support::{BOTH_CASES, Host, NOBODY, PLAIN_CASE, Said, Scratch, TIMEWIRE, Tiny, run};

fn scenario(name: &str) -> String {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    all.join(name).display().to_string()
}

/// A directory that a user without privileges writes to.
fn open() -> Scratch {
    let scratch = Scratch::new();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(scratch.path(), all).unwrap();
    scratch
}

/// The command in a directory, as a user without privileges.
fn timewire(scratch: &Scratch, words: &[&str]) -> Said {
    let mut command = Command::new(TIMEWIRE);
    command.current_dir(scratch.path()).args(words).env("TIMEWIRE_PROGRESS", "0");
    // Whoever is not root has none to give up.
    if fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0) {
        command.uid(NOBODY).gid(NOBODY);
    }
    run(&mut command)
}

fn case<'a>(summary: &'a Json, id: &str) -> &'a Json {
    let mut cases = summary["cases"].as_array().unwrap().iter();
    cases.find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}"))
}

/// Every file below a directory, with its content.
fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().to_owned();
                    found.push((name, fs::read(&path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Every limit of scenarios passes.
#[track_caller]
fn passes(names: &[&str]) {
    let scratch = open();
    let files: Vec<String> = names.iter().map(|name| scenario(name)).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let more = ["--on", "sim", "--quick", "--out", "out"];
    let said = timewire(&scratch, &[&["run"], &files[..], &more[..]].concat()).done();
    assert!(said.stdout.contains("verdict: PASS"), "{said:?}");
}

#[test]
fn t2_a_planned_network_keeps_its_promises_in_the_simulator() {
    let scratch = open();
    let file = scenario("networks/line.network.yaml");
    let words = ["run", &file, "--on", "sim", "--json", "--out", "out"];
    let told = timewire(&scratch, &words).done().json();
    // Each of the twelve planned streams has limits that come from its plan alone.
    assert_eq!(told["cases"][0]["id"], "line/network/all");
    let findings = told["findings"].as_array().unwrap();
    let latency = |it: &&Json| it["id"].as_str().unwrap().starts_with("line/planned-latency-max-");
    assert_eq!(findings.iter().filter(latency).count(), 12, "{findings:#?}");
    assert!(findings.iter().all(|it| it["verdict"] == "pass"), "{findings:#?}");
    let again = ["report", "out", "--json"];
    assert_eq!(timewire(&scratch, &again).done().json()["verdict"], "pass");
    // One whose stream asks for less than its route takes is rejected before anything runs.
    let text = fs::read_to_string(&file).unwrap().replacen("latency: 200us", "latency: 10us", 1);
    scratch.write("short.yaml", &text);
    let said = timewire(&scratch, &["run", "short.yaml", "--on", "sim", "--out", "none"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("rejected: set-1: "), "{said:?}");
    assert!(!scratch.path().join("none").exists());
}

#[test]
fn t2_cyclic_streams_arrive_when_their_slots_let_them() {
    let scratch = open();
    crate::programs::write(&scratch, "1");
    let words = ["run", "own.yaml", "--on", "sim", "--json", "--out", "out"];
    let summary = timewire(&scratch, &words).done().json();
    // What a program of the user's would send: 20 bytes, 5.92 us with headers and preamble, in each
    // period, which begins with the slot.
    for id in ["own/plain/alone", "own/tdm/alone"] {
        let stream = &case(&summary, id)["streams"][0];
        let range = |name: &str| stream["transfer"][name].as_i64().unwrap();
        assert_eq!((range("min_ns"), range("max_ns")), (5_920, 5_920), "{stream:#}");
        assert_eq!((&stream["sent"], &stream["lost"]), (&200.into(), &0.into()), "{stream:#}");
    }
    let facts = summary["environment"].as_array().unwrap();
    let fact = facts.iter().find(|it| it["area"] == "programs of own").unwrap();
    assert_eq!(fact["name"], "controller, plant");
    // Due behind its slot, a message waits for the next one.
    let late = crate::programs::SCENARIO.replace("period: 2ms", "period: 2ms, offset: 700us");
    scratch.write("own.yaml", &late);
    let words = ["run", "own.yaml", "--on", "sim", "--json", "--out", "late"];
    let summary = timewire(&scratch, &words).done().json();
    let waits = &case(&summary, "own/tdm/alone")["streams"][0]["transfer"];
    assert_eq!((&waits["min_ns"], &waits["max_ns"]), (&305_920.into(), &305_920.into()));
}

#[test]
fn t2_the_first_experiment_passes_in_the_simulator() {
    let scratch = open();
    let file = scenario("tdm-64.yaml");
    let words = ["run", &file, "--on", "sim", "--quick", "--json", "--out", "out"];
    let summary = timewire(&scratch, &words).done().json();
    assert_eq!(summary["verdict"], "pass", "{summary:#}");
    let p50 = |id: &str| case(&summary, id)["streams"][0]["transfer"]["p50_ns"].as_i64().unwrap();
    // A request and its answer are together one cycle on their way; the clock has nanoseconds.
    let waits = p50("tdm-64/tdm-priority/alone");
    assert!((509_000..=531_000).contains(&waits), "{waits}");
    // A lead of 40 us and a frame of 9.44 us; alone on a plain link, the frame.
    assert_eq!(p50("tdm-64/tdm-priority-aligned/alone"), 49_440);
    assert_eq!(p50("tdm-64/plain/alone"), 9_440);
    for case in summary["cases"].as_array().unwrap() {
        let is_tdm = case["tdm"] == true;
        assert_eq!(case["macs"].as_array().unwrap().len(), if is_tdm { 4 } else { 0 });
        assert!(!is_tdm || case["wire"]["outside_slots"] == 0, "{case:#}");
        assert!(case["streams"][0]["receive"].is_null(), "{case:#}");
    }
    let fact = |name: &str| {
        let mut facts = summary["environment"].as_array().unwrap().iter();
        facts.find(|it| it["area"] == "simulator" && it["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(fact("seed"), "1");
    assert!(fact("not measured").as_str().unwrap().starts_with("receive (-): "));
}

#[test]
fn t2_the_table_of_the_thesis_comes_out_as_half_the_cycle() {
    let scratch = open();
    for (size, cycle) in [(64, 1_040.0), (256, 1_200.0), (1_472, 1_920.0)] {
        let (file, out) = (scenario(&format!("tdm-{size}.yaml")), format!("out-{size}"));
        let words = ["run", &file, "--on", "sim", "--quick", "--json", "--out", &out];
        let summary = timewire(&scratch, &words).done().json();
        for load in ["alone", "flood"] {
            let case = case(&summary, &format!("tdm-{size}/tdm-priority/{load}"));
            let mean = case["streams"][0]["transfer"]["mean_ns"].as_f64().unwrap() / 1e3;
            assert!((mean - cycle / 2.0).abs() < 1.0, "{size} {load}: {mean}");
        }
    }
}

#[test]
fn t2_all_other_scenarios_of_the_library_pass_in_the_simulator() {
    passes(&["tdm-256.yaml", "tdm-1472.yaml", "rtnet-like.yaml"]);
    passes(&["streams-64.yaml", "streams-256.yaml", "streams-1472.yaml"]);
    passes(&["pipeline.yaml", "pipeline-planned.yaml", "kernels/clock-tdm.yaml"]);
    passes(&["backends-64.yaml", "backends-256.yaml", "backends-1472.yaml"]);
    passes(&["taprio-64.yaml", "taprio-256.yaml", "taprio-1472.yaml"]);
}

#[test]
fn t2_the_same_seed_gives_the_same_run_directory() {
    let scratch = open();
    let file = scenario("tdm-64.yaml");
    let simulated = |out: &str, more: &[&str]| {
        let words = ["run", &file, "--on", "sim", "--quick", "--out", out];
        timewire(&scratch, &[&words[..], more].concat()).done();
        content(&scratch.path().join(out))
    };
    let first = simulated("first", &["--seed", "7"]);
    assert!(
        first.iter().filter(|(name, _)| name.extension().is_some_and(|e| e == "twr")).count() > 8
    );
    assert!(first == simulated("again", &["--seed", "7"]), "the same seed gives other bytes");
    let other = simulated("other", &["--seed", "8"]);
    let records = |all: &[(PathBuf, Vec<u8>)]| -> Vec<Vec<u8>> {
        let of =
            |(name, _): &&(PathBuf, _)| name.ends_with("tdm-64.plain.flood/control-client.twr");
        all.iter().filter(of).map(|(_, bytes)| bytes.clone()).collect()
    };
    assert_eq!(records(&first).len(), 1);
    assert_ne!(records(&first), records(&other), "the seed changes nothing");
}

#[test]
fn t3_a_simulation_has_the_shape_of_a_run_in_the_laboratory() {
    let Some(host) = Host::start() else { return };
    let more = "limits:\n  - { id: slots, metric: outside-slots, case: tdm, load: alone, at_most: \
                100% }\n  - { id: lost, metric: lost, stream: control, case: tdm, load: alone, \
                at_most: 50% }\n";
    host.scratch().write("tiny.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more }.text());
    let words = ["run", "tiny.yaml", "--json", "--out"];
    let here = host.timewire(&[&words[..], &["sim", "--on", "sim"]].concat()).done().json();
    let lab = host.timewire(&[&words[..], &["lab"]].concat()).done().json();
    let shape = |summary: &Json| {
        // How a clock daemon of this host goes is no part of a simulation.
        let keys = |it: &Json| -> BTreeSet<String> {
            it.as_object().unwrap().keys().filter(|key| *key != "sync").cloned().collect()
        };
        let cases = summary["cases"].as_array().unwrap().iter();
        let cases: Vec<_> = cases
            .map(|case| {
                let macs = case["macs"].as_array().unwrap().iter();
                let queues = macs
                    .map(|mac| (mac["station"].clone(), mac["queues"].as_array().map(Vec::len)));
                (
                    case["id"].clone(),
                    keys(case),
                    keys(&case["streams"][0]),
                    queues.collect::<Vec<_>>(),
                )
            })
            .collect();
        let limits = summary["findings"].as_array().unwrap().iter();
        let limits = limits.filter(|it| !it["verdict"].is_null());
        let limits: Vec<_> = limits.map(|it| (it["id"].clone(), it["verdict"].clone())).collect();
        (keys(summary), cases, limits)
    };
    assert_eq!(shape(&here), shape(&lab), "{here:#}");
    // The run directory is one as any other.
    host.timewire(&["report", "sim"]).done();
    host.timewire(&["report", "sim", "--parquet", "messages.parquet", "--csv", "messages.csv"])
        .done();
    host.timewire(&["compare", "sim", "lab", "--tolerance", "10000000%"]);
    host.is_clean();
}

#[test]
fn t2_what_the_simulator_cannot_do_is_said_before_it_begins() {
    let scratch = open();
    let text = Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text();
    scratch.write("tiny.yaml", &text);
    scratch.write("long.yaml", &text.replace("\nduration: 250ms", "\nduration: 86400s"));
    scratch.write("tdm.yaml", &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text());
    let experiment = scenario("experiments/ring.yaml");
    let run = |words: &[&str]| {
        let more = ["--on", "sim", "--out", "refused"];
        let said = timewire(&scratch, &[&["run"], words, &more[..]].concat());
        assert!(!scratch.path().join("refused").exists(), "{said:?}");
        said
    };
    let refused = |words: &[&str], code: i32, why: &str| {
        let said = run(words);
        assert!(said.code == Some(code) && said.stderr.contains(why), "{said:?}");
        assert_eq!(said.stdout, "", "{said:?}");
    };
    refused(&["tiny.yaml", "--trace"], 4, "--trace is not for --on sim");
    refused(&["tiny.yaml", "--trace", "--dry-run"], 4, "--trace is not for --on sim");
    refused(&["long.yaml"], 4, "it lasts longer than 86400s, the longest simulation");
    refused(&["long.yaml", "--dry-run"], 4, "it lasts longer than 86400s");
    refused(&[&experiment], 4, "its stations run programs of their own");
    refused(&["tiny.yaml", "--kernel", "6.1"], 2, "--kernel is for `--on lab:uml` and");
    refused(&["tiny.yaml", "--clock-error", "1us"], 2, "--clock-error is for hosts");
    refused(&["tiny.yaml", "--tolerance", "5%"], 2, "--tolerance is for a comparison");
    let said = run(&["tdm.yaml", "--dry-run"]).done();
    assert!(said.stdout.contains("tiny: cycle 1ms"), "{said:?}");
}

#[test]
fn t2_every_backend_can_be_asked_for() {
    let scratch = open();
    let cases = "{ name: tdm, title: TDM }";
    scratch.write("tiny.yaml", &Tiny { name: "tiny", cases, more: "" }.text());
    for (asked, taken) in
        [("auto", "taprio"), ("mac", "mac"), ("taprio-assist", "taprio-assist"), ("cbs", "cbs")]
    {
        let out = format!("out-{asked}");
        let words =
            ["run", "tiny.yaml", "--on", "sim", "--json", "--backend", asked, "--out", &out];
        let summary = timewire(&scratch, &words).done().json();
        assert_eq!(summary["cases"][0]["backend"]["name"], taken, "{asked}");
        assert_eq!(summary["backends"][0]["chosen"], taken, "{asked}");
    }
}

#[test]
fn t2_runs_in_two_places_are_side_by_side() {
    let scratch = open();
    let more = "limits:\n  - { id: fast, metric: latency-p50, stream: control, case: tdm, load: \
                alone, at_most: BOUND }\n";
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more }.text();
    let limits = |at_most: &str| text.replace("BOUND", at_most);
    let simulated = |name: &str, text: &str| {
        scratch.write(&format!("{name}.yaml"), text);
        let file = format!("{name}.yaml");
        timewire(&scratch, &["run", &file, "--on", "sim", "--out", name]);
    };
    simulated("good", &limits("1ms"));
    simulated("bad", &limits("1us"));
    let said = timewire(&scratch, &["compare", "--places", "good", "good", "--json"]).done();
    let found = said.json();
    assert_eq!(
        (&found["schema"], &found["verdict"]),
        (&"timewire.places/1".into(), &"pass".into())
    );
    assert_eq!(found["streams"].as_array().unwrap().len(), 2);
    assert_eq!(found["streams"][0]["figures"][0], found["streams"][0]["figures"][1]);
    let said = timewire(&scratch, &["compare", "--places", "good", "bad"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.stdout.contains("sim 2"), "{said:?}");
    assert!(said.stdout.contains("!500.0"), "{said:?}");
    assert!(said.stdout.contains("tiny/fast  pass  fail   differs"), "{said:?}");
    assert!(said.stdout.ends_with("verdict: FAIL (2 places, 1 of 1 limits differ between them)\n"));
    let refused = |words: &[&str], why: &str| {
        let said = timewire(&scratch, &[&["compare"], words].concat());
        assert!(said.code == Some(2) && said.stderr.contains(why), "{said:?}");
    };
    refused(&["good", "bad", "good"], "compare holds one run against another, and 3 were given");
    refused(&["--places", "good", "bad", "--seed", "3"], "--seed is not for --places");
    refused(&["--places", "good", "bad", "--all"], "cannot be used with");
    scratch.write("other.yaml", &limits("1ms").replace("name: tiny", "name: other"));
    timewire(&scratch, &["run", "other.yaml", "--on", "sim", "--out", "other"]).done();
    refused(&["--places", "good", "other"], "the runs have no case in common: good has tiny/");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` of a network file with an experiment: every case under every load, in the simulator and on
//! kernels, and both side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::support::{Said, Scratch, TIMEWIRE, has_kernel, run, timewire};

fn scenario() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks/line-qos.network.yaml")
}

const CASES: [&str; 6] = [
    "line-qos/one-queue/alone",
    "line-qos/one-queue/files",
    "line-qos/priority/alone",
    "line-qos/priority/files",
    "line-qos/scheduled/alone",
    "line-qos/scheduled/files",
];

fn ids(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect()
}

fn finding<'a>(summary: &'a Json, id: &str) -> &'a Json {
    let mut found = summary["findings"].as_array().unwrap().iter();
    found.find(|it| it["id"] == id).unwrap_or_else(|| panic!("no {id}: {summary}"))
}

fn simulated(scratch: &Scratch, file: &str, out: &str) -> Said {
    let out = scratch.join(out);
    timewire(&["run", file, "--on", "sim", "--quick", "--out", &out, "--json"])
}

#[test]
fn t2_the_cases_of_a_network_are_compared_in_the_simulator() {
    let scratch = Scratch::new();
    let file = scenario().display().to_string();
    let summary = simulated(&scratch, &file, "out").done().json();
    assert_eq!(ids(&summary["cases"]), CASES);
    assert_eq!(summary["verdict"], "pass");
    for id in ["priority-helps", "schedule-helps", "files-do-not-matter"] {
        assert_eq!(finding(&summary, &format!("line-qos/{id}"))["verdict"], "pass");
    }
    // Each case has the limits of the file, and the last two the promises of their plan.
    for case in CASES {
        assert_eq!(finding(&summary, &format!("{case}/arrives"))["verdict"], "pass");
        let planned = format!("{case}/planned-latency-max-control");
        let findings = summary["findings"].as_array().unwrap();
        let is_planned = findings.iter().any(|it| it["id"] == planned.as_str());
        assert_eq!(is_planned, case.contains("scheduled"), "{case}");
    }
    let streams = |at: usize| summary["cases"][at]["streams"].as_array().unwrap().len();
    assert_eq!((streams(0), streams(1)), (1, 3));
    // The same file and seed give the same bytes.
    simulated(&scratch, &file, "again").done();
    let path = |run: &str| scratch.path().join(run).join("summary.json");
    assert_eq!(fs::read(path("out")).unwrap(), fs::read(path("again")).unwrap());
    // A limit that does not hold fails with both values.
    let text = fs::read_to_string(scenario()).unwrap();
    let tight = scratch.write("line-qos.yaml", &text.replace("at_most: 0.7", "at_most: 0.1"));
    let said = simulated(&scratch, &tight, "tight");
    assert_eq!(said.code, Some(1), "{said:?}");
    let summary = said.json();
    let failed = finding(&summary, "line-qos/priority-helps");
    assert_eq!(failed["verdict"], "fail");
    let measured = failed["measured"].as_str().unwrap();
    assert!(measured.contains("in priority/files, 0.6 of "), "{measured}");
}

/// In one run directory, each judged as it is alone.
#[test]
fn t2_several_networks_are_one_run() {
    let scratch = Scratch::new();
    let (file, text) = (scenario().display().to_string(), fs::read_to_string(scenario()).unwrap());
    let cell = scenario().with_file_name("planned-cell.network.yaml").display().to_string();
    let run = |files: &[&str], out: &str| {
        let out = scratch.join(out);
        timewire(&[&["run"], files, &["--on", "sim", "--out", &out, "--json"]].concat())
    };
    let both = run(&[&file, &cell], "both").done().json();
    assert_eq!(both["title"], "line-qos, planned-cell");
    let (line, alone) = (run(&[&file], "line").done().json(), run(&[&cell], "cell").done().json());
    let cases = |of: &Json| of["cases"].as_array().unwrap().clone();
    assert_eq!(cases(&both), [cases(&line), cases(&alone)].concat());
    // A finding says of which network it is, as one of several cases does.
    let measured = |of: &Json, prefix: &str, from: &str| {
        let all = of["findings"].as_array().unwrap().iter();
        let all = all.filter_map(|it| {
            let rest = it["id"].as_str()?.strip_prefix(prefix)?;
            Some((rest.to_owned(), it["measured"].clone(), it["verdict"].clone()))
        });
        let all: Vec<_> = all.collect();
        assert!(!all.is_empty(), "{from}: {of:#}");
        all
    };
    assert_eq!(measured(&both, "line-qos/", "both"), measured(&line, "line-qos/", "line"));
    let id = alone["cases"][0]["id"].as_str().unwrap();
    let of_cell = measured(&both, &format!("{id}/"), "both");
    assert_eq!(of_cell, measured(&alone, "planned-cell/", "cell"));
    let out = scratch.path().join("both");
    for name in ["line-qos", "planned-cell"] {
        assert!(out.join(format!("{name}.network.yaml")).exists(), "{name}");
    }
    timewire(&["compare", &scratch.join("both"), &scratch.join("both")]).done();
    // On kernels: each is compiled.
    let said = timewire(&["run", &file, &cell, "--on", "lab:uml", "--dry-run", "--json"]).done();
    assert_eq!(said.json().as_array().unwrap().len(), CASES.len() + 1);
    // Where a stream of one is rejected, that one is named and nothing is run.
    let tight = scratch.write(
        "tight.yaml",
        &text
            .replace("max_latency: 200us", "max_latency: 9us")
            .replace("name: line-qos", "name: tight"),
    );
    let said = run(&[&cell, &tight], "tight");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("rejected in tight/scheduled/alone: control: "), "{said:?}");
    assert!(!scratch.path().join("tight").exists());
    let same = scratch.write("same.yaml", &text);
    let why = format!(
        "error: {same}: its `name: line-qos` is that of {file} too; results are kept by name, so \
         each file needs its own\n"
    );
    run(&[&file, &same], "same").failed(2, &why);
}

#[test]
fn t1_what_is_wrong_with_a_case_is_told_before_anything_runs() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(scenario()).unwrap();
    let out = scratch.join("out");
    let refused = |from: &str, to: &str, more: &[&str], code: i32, says: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let file = scratch.write("file.yaml", &changed);
        let said = timewire(&[&["run", &file, "--on", "sim", "--out", &out], more].concat());
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(says), "{said:?}");
        assert!(!Path::new(&out).exists());
    };
    let quick = "add `quick_duration` to `experiment`";
    refused("  quick_duration: 100ms\n", "", &["--quick"], 2, quick);
    let rejected = "rejected in scheduled/alone: control: ";
    refused("max_latency: 200us", "max_latency: 20us", &[], 1, rejected);
    let wrong = "in the case `one-queue`: 8 is not a whole number, 0 to 7";
    refused("{ class: 0 }", "{ class: 8 }", &[], 2, wrong);
    // Verbs for one network take the file as it stands, or one of its cases.
    let file = scenario().display().to_string();
    let said = timewire(&["sim", &file]).done();
    assert!(said.stdout.contains("PASS arrives: lost of control is 0 of "), "{said:?}");
    assert!(said.stderr.starts_with("note: this is the file as it stands; "), "{said:?}");
    let said = timewire(&["plan", &file]).done();
    assert!(said.stdout.starts_with("no stream is scheduled\n"), "{said:?}");
    let said = timewire(&["plan", &file, "--case", "scheduled/files", "--simulate"]).done();
    assert!(said.stdout.starts_with("1 of 1 streams are admitted"), "{said:?}");
    let said = timewire(&["sim", &file, "--case", "scheduled"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("there are one-queue/alone, "), "{said:?}");
}

#[test]
fn t4_kernels_give_what_the_simulator_gives_case_by_case() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scenario().display().to_string();
    simulated(&scratch, &file, "sim").done();
    let (sim, lab) = (scratch.join("sim"), scratch.join("lab"));
    let words = ["run", &file, "--on", "lab:uml", "--quick", "--out", &lab, "--json"];
    let summary = timewire(&words).done().json();
    assert_eq!((ids(&summary["cases"]), &summary["verdict"]), (CASES.to_vec(), &"pass".into()));
    let said = timewire(&["compare", "--places", &sim, &lab, "--json"]).done();
    let places = said.json();
    // Limits of the file are judged in both places, under the same names.
    let limits = places["limits"].as_array().unwrap();
    for id in CASES.map(|case| format!("{case}/arrives")) {
        let row = limits.iter().find(|row| row["id"] == id.as_str()).unwrap();
        assert!(
            row["judged"].as_array().unwrap().iter().all(|it| it["verdict"] == "pass"),
            "{row}"
        );
    }
    assert_eq!(places["runs"][1]["place"], "lab:uml", "{places}");
    let rows = places["streams"].as_array().unwrap();
    let control: Vec<_> = rows.iter().filter(|row| row["stream"] == "control").collect();
    assert_eq!(control.len(), CASES.len());
    for row in control {
        let figure = |place: usize, key: &str| row["figures"][place][key].as_f64().unwrap();
        // The largest may have the launch error of the place on top, as its promise does.
        let ratio = |key: &str| figure(1, key) / figure(0, key);
        assert!((0.9..1.15).contains(&ratio("p50_ns")), "{row}");
        assert!(ratio("max_ns") >= 0.9, "{row}");
        let promise = &row["figures"][1]["promise"];
        let by = if row["case"].as_str().unwrap().contains("scheduled") { "plan" } else { "bound" };
        assert_eq!(promise["by"], by, "{row}");
        assert!(figure(1, "max_ns") <= promise["limit_ns"].as_f64().unwrap(), "{row}");
    }
    let page = scratch.join("places.html");
    let said = timewire(&["compare", "--places", &sim, &lab, "--html", &page]).done();
    assert!(said.stdout.contains("promise"), "{said:?}");
    let page = fs::read_to_string(&page).unwrap();
    // Of each case a figure, with a bar of each stream in each place.
    assert_eq!(page.matches("<figure>").count(), CASES.len());
    assert_eq!(page.matches("<circle class=\"f s").count(), 2 * (3 + 3 * 3));
}

/// Answers, requests, chains and sporadic streams: kernels send what the simulator sends.
#[test]
fn t4_a_control_loop_has_as_many_messages_on_kernels_as_in_the_simulator() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scenario().with_file_name("control-loop.network.yaml").display().to_string();
    let of = |place: &str| {
        let out = scratch.join(&place.replace(':', "-"));
        timewire(&["run", &file, "--on", place, "--quick", "--out", &out, "--json"]).done().json()
    };
    let (kernels, simulated) = (of("lab:uml"), of("sim"));
    for summary in [&kernels, &simulated] {
        assert_eq!(summary["verdict"], "pass", "{summary:#}");
        assert_eq!(finding(summary, "control-loop/loop-gains")["verdict"], "pass");
    }
    for (case, name) in [(0, "one-queue"), (1, "priority")] {
        let streams =
            |summary: &Json| summary["cases"][case]["streams"].as_array().unwrap().clone();
        for (here, there) in streams(&kernels).iter().zip(&streams(&simulated)) {
            assert_eq!(here["name"], there["name"]);
            let count = |of: &Json| of["received"].as_u64().unwrap();
            // What is under way when a simulation ends is not among its messages, and talkers of
            // kernels begin up to some ms after the first program: a burst more or less.
            let burst = if here["class"] == "best_effort" && count(there) > 200 { 8 } else { 1 };
            let apart = count(here).abs_diff(count(there));
            let text = || format!("{} of {}", count(here), count(there));
            assert!(apart <= count(there) / 50 + 2 * burst, "{name}, {}: {}", here["name"], text());
            let least = |of: &Json| of["transfer"]["min_ns"].as_u64().unwrap();
            // Programs of kernels wake up late, and a link has whole microseconds.
            let slower = least(here).saturating_sub(least(there));
            assert!(
                slower < 40_000,
                "{name}, {}: {} of {}",
                here["name"],
                least(here),
                least(there)
            );
        }
    }
    // The chain counts from the sensor's value on: the controller computes for 100 us.
    for summary in [&kernels, &simulated] {
        let streams = summary["cases"][1]["streams"].as_array().unwrap();
        let act = streams.iter().find(|it| it["name"] == "act").unwrap();
        assert!(act["transfer"]["min_ns"].as_u64().unwrap() > 149_000, "{act:#}");
    }
}

/// Two stations with steps of their own beside a stream.
const OWN_STEPS: &str = r#"timewire: 1
kind: network
name: own
duration: 200ms
stations:
  - name: a
    phases:
      setup: [{ snapshot: host.json }, { put: note.txt, from: below/note.txt }]
      run: [{ run: [cat, note.txt], name: said }, { run: [date, "+%s%N"], name: soon }]
  - name: b
    phases:
      close: [{ run: [echo, "8"], name: queues }]
bridges:
  - name: m
    phases: { run: { after: 50ms, steps: [{ run: [date, "+%s%N"], name: late }] } }
links: [[a, m], [m, b]]
streams: [{ name: s, talker: a, listeners: b, class: 5, size: 64B, period: 1ms, max_loss: 0% }]
checks:
  - { station: b, record: queues.out, value: "", at_least: 8 }
  - { station: b, record: queues.out, value: "", at_most: 7 }
"#;

#[test]
fn t4_stations_do_steps_of_their_own_beside_the_streams() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write("own.yaml", OWN_STEPS);
    let out = scratch.join("out");
    let run = |out: &str| timewire(&["run", &file, "--on", "lab:uml", "--out", out]);
    // Nothing runs before all of it can.
    let said = run(&out);
    assert!(said.code == Some(2) && said.stderr.contains("below/note.txt"), "{said:?}");
    assert!(!Path::new(&out).exists());
    fs::create_dir(scratch.path().join("below")).unwrap();
    scratch.write("below/note.txt", "hello\n");
    let said = run(&out);
    assert_eq!(said.code, Some(1), "{said:?}");
    for line in [
        "PASS own/b/queues.out: b queues.out is at least 8\n  8\n",
        "FAIL own/b/queues.out-2: b queues.out is at most 7\n  8\n",
        "verdict: fail\n",
    ] {
        assert!(said.stdout.contains(line), "{line}{said:?}");
    }
    let summary = timewire(&["report", &out, "--json"]).json();
    assert_eq!(summary["cases"][0]["streams"][0]["lost"], 0);
    assert_eq!(finding(&summary, "own/b/queues.out")["verdict"], "pass");
    let records = Path::new(&out).join("cases/own.network.all/experiment/0001/records");
    let record = |name: &str| fs::read_to_string(records.join(name)).unwrap();
    assert_eq!(record("a/said.out"), "hello\n");
    assert!(record("a/host.json").contains("timewire.snapshot"));
    let end: Json =
        serde_json::from_str(&fs::read_to_string(records.join("../end.json")).unwrap()).unwrap();
    let start = end["starts"][0]["at"].as_i64();
    // The clock is UTC, the instant TAI: they differ by whole seconds.
    let after = |name: &str| {
        let at: i64 = record(name).trim().parse().unwrap();
        (at - start.unwrap_or_else(|| panic!("{end:#}"))).rem_euclid(1_000_000_000)
    };
    assert!((50_000_000..60_000_000).contains(&after("m/late.out")));
    // While its messages are sent, which takes 200 ms.
    assert!(after("a/soon.out") < 20_000_000);
    let said = timewire(&["run", &file, "--on", "sim", "--out", &scratch.join("sim")]).done();
    assert!(said.stderr.contains("nothing of `phases`"), "{said:?}");
}

/// A stream whose rate of other traffic is varied, and repeated.
const VARIED: &str = r#"timewire: 1
kind: network
name: varied
duration: 60ms
stations: [{ name: a, phases: { run: [{ run: [echo, "${load}"], name: load }] } }, b]
bridges: [m]
links: [[a, m], [m, b]]
streams:
  - { name: s, talker: a, listeners: b, class: 5, size: 64B, period: 1ms, max_latency: 400us }
  - { name: files, talker: a, listeners: b, size: 1472B, kind: flood, rate: "${load}" }
experiment:
  variables: [{ name: load, values: [10Mbit, 50Mbit] }]
  repeats: 2
"#;

/// A case that fails takes none of the others with it.
#[test]
fn t4_cases_after_one_that_fails_are_run() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let step = "sh, -c, 'test ${load} != 10Mbit -o -e $OK'";
    let text = VARIED.replace("echo, \"${load}\"", &step.replace("$OK", &scratch.join("ok")));
    let file = scratch.write("varied.yaml", &text);
    let out = scratch.join("out");
    let said = timewire(&["run", &file, "--on", "lab:uml", "--out", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stdout.contains("load=50Mbit #2"), "{said:?}");
    assert!(!said.stdout.contains("load=10Mbit #1"), "{said:?}");
    assert!(said.stderr.contains("run: a: `run load` failed: exit code 1"), "{said:?}");
    assert!(said.stderr.contains("`timewire run --continue"), "{said:?}");
    scratch.write("ok", "");
    let said = timewire(&["run", "--continue", &out]).done();
    assert!(said.stdout.contains("load=10Mbit #1"), "{said:?}");
    assert!(said.stderr.contains("going on after 2 of 4 cases"), "{said:?}");
}

#[test]
fn t2_a_network_is_held_against_a_run_of_before() {
    let scratch = Scratch::new();
    let file = scratch.write("varied.yaml", VARIED);
    let (before, same, worse) = (scratch.join("before"), scratch.join("same"), scratch.join("x"));
    let run = |more: &[&str]| timewire(&[&["run", &file, "--on", "sim"], more].concat());
    run(&["--out", &before]).done();
    let said = run(&["--out", &same, "--baseline", &before]).done();
    assert!(said.stdout.contains("\nagainst the baseline:\n"), "{said:?}");
    assert!(!said.stdout.contains("environment differs"), "{said:?}");
    assert!(Path::new(&same).join("comparison.html").exists());
    fs::write(&file, VARIED.replace("[a, m], [m, b]", "{ between: [a, m], delay: 100us }, [m, b]"))
        .unwrap();
    let said = run(&["--out", &worse, "--baseline", &before]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("verdict: WORSE"), "{said:?}");
    fs::write(&file, VARIED.replace("name: varied", "name: other")).unwrap();
    let said = run(&["--out", &scratch.join("none"), "--baseline", &before]);
    assert!(said.code == Some(2) && said.stderr.contains("no case of these networks"), "{said:?}");
    assert!(!scratch.path().join("none").exists());
    let said = run(&["--tolerance", "5%"]);
    assert!(said.stderr.contains("--baseline DIR"), "{said:?}");
}

#[test]
fn t4_a_run_in_several_places_is_one_directory_and_goes_on() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write("varied.yaml", VARIED);
    let out = scratch.join("out");
    let words = ["run", &file, "--on", "sim", "--on", "lab:uml", "--out", &out];
    let shown = timewire(&[&words[..], &["--dry-run"]].concat()).done();
    assert!(
        shown.stderr.contains("== sim\n") && shown.stderr.contains("== lab-uml\n"),
        "{shown:?}"
    );
    assert!(!Path::new(&out).exists());
    // Interrupted in the second place.
    let log = scratch.path().join("log");
    let mut command = Command::new(TIMEWIRE);
    command.args(words).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    while !fs::read_to_string(&log).unwrap_or_default().contains("2 of 4: ") {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run(Command::new("kill").args(["-TERM", &child.id().to_string()])).done();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains(&format!("`timewire run --continue {out}` goes on in all")), "{said}");
    // Not with another file than the first place had.
    fs::write(&file, VARIED.replace("64B", "65B")).unwrap();
    let said = timewire(&["run", "--continue", &out]);
    assert!(said.code == Some(2) && said.stderr.contains("is not what it was"), "{said:?}");
    fs::write(&file, VARIED).unwrap();
    let said = timewire(&["run", "--continue", &out, "--baseline", &out]);
    assert!(said.stderr.contains("--baseline is not for runs in several places"), "{said:?}");
    let of_sim = Path::new(&out).join("sim/run.json");
    let meta = fs::read(&of_sim).unwrap();
    fs::write(&of_sim, "{").unwrap();
    let said = timewire(&["run", "--continue", &out]);
    assert!(said.code == Some(2) && said.stderr.contains("run.json"), "{said:?}");
    fs::write(&of_sim, meta).unwrap();
    let said = timewire(&["run", "--continue", &out, "--json"]).done();
    assert!(!said.stderr.contains("== sim") && said.stderr.contains("== lab-uml"), "{said:?}");
    let places = said.json();
    assert_eq!(places["schema"], "timewire.places/1", "{places:#}");
    let names = ["10mbit-r1", "10mbit-r2", "50mbit-r1", "50mbit-r2"];
    for name in names {
        let case = format!("network-load-{name}");
        let rows = places["streams"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["case"].as_str().unwrap().contains(&case)), "{places:#}");
        let records = format!("lab-uml/cases/varied.{case}.all/experiment/0001/records/a/load.out");
        let load = fs::read_to_string(Path::new(&out).join(records)).unwrap();
        assert!(name.starts_with(&load.trim().to_lowercase()), "{name}: {load}");
    }
    let page = fs::read_to_string(Path::new(&out).join("places.html")).unwrap();
    assert!(page.contains("lab:uml"), "{page}");
    let said = timewire(&["compare", "--places", &out]).done();
    assert!(said.stdout.contains("network-load-50mbit-r2"), "{said:?}");
    let said = timewire(&["report", &out]);
    assert!(said.stderr.contains("`timewire compare --places"), "{said:?}");
    let said = timewire(&["run", &file, "--on", "sim", "--on", "sim", "--out", &out]);
    assert!(said.stderr.contains("name each once"), "{said:?}");
    let said = timewire(&["run", &file, "--on", "sim", "--on", "lab:uml", "--clock-error", "1us"]);
    assert!(said.stderr.contains("--clock-error is for none of these places"), "{said:?}");
}

#[test]
fn t4_a_run_that_is_ended_keeps_the_cases_that_were_done() {
    if !has_kernel() {
        return;
    }
    for signal in ["INT", "KILL"] {
        ended_by(signal);
    }
}

fn ended_by(signal: &str) {
    let scratch = Scratch::new();
    let file = scenario().display().to_string();
    let out = scratch.join("out");
    let log = scratch.path().join("log");
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", &file, "--on", "lab:uml", "--quick", "--out", &out]);
    command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let third = || fs::read_to_string(&log).unwrap_or_default().contains("3 of 6: ");
    while !third() {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()])).done();
    let code = child.wait().unwrap().code();
    if signal == "INT" {
        assert_eq!(code, Some(2));
        let said = fs::read_to_string(&log).unwrap();
        let hint = format!("hint: `timewire run --continue {out}` goes on with it");
        assert!(said.contains("what was recorded until then is kept in"), "{said}");
        assert!(said.contains(&hint), "{said}");
    }
    let report = timewire(&["report", &out, "--json"]);
    assert_eq!(report.code, Some(1), "{report:?}");
    let summary = report.json();
    assert_eq!(ids(&summary["cases"])[..2], CASES[..2], "{signal}");
    assert_eq!(
        (&summary["complete"], &summary["verdict"]),
        (&false.into(), &"inconclusive".into())
    );
    assert_eq!(finding(&summary, "line-qos/one-queue/files/control")["verdict"], "pass");
    assert_eq!(finding(&summary, "line-qos/scheduled/files/run")["verdict"], "inconclusive");
    let summary = timewire(&["run", "--continue", &out, "--json"]).done().json();
    assert_eq!((ids(&summary["cases"]), &summary["complete"]), (CASES.to_vec(), &true.into()));
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains("4 of 6: "), "{said}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --continue`: a run that was cut short goes on in its directory, in every place; the cases
//! that had ended stay as they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde_json::Value as Json;

use crate::on_hosts::Stations;
use crate::support::{
    BOTH_CASES, Host, Said, Scratch, TIMEWIRE, Tiny, has_kernel, timewire, wait_until,
};

fn scenario(name: &str) -> String {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    all.join(name).display().to_string()
}

fn json(path: &Path) -> Json {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn cases(run: &Path) -> Vec<(String, PathBuf)> {
    let all = json(&run.join("run.json"));
    let ids = all["cases"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    ids.map(|id| (id.clone(), run.join("cases").join(id.replace('/', ".")))).collect()
}

/// Leaves what a run has that was killed in the case of this number, from 0: it is begun, and those
/// after it are not.
fn cut(run: &Path, number: usize) {
    for name in ["end.json", "summary.json", "report.html", "ports.json"] {
        let _ = fs::remove_file(run.join(name));
    }
    for (at, (_, path)) in cases(run).into_iter().enumerate().skip(number) {
        let told = ["network.json", "compiled.json"];
        let begun = at == number;
        for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name == "case.json" && begun {
                let mut case = json(&entry.path());
                case["ended"] = false.into();
                fs::write(entry.path(), case.to_string()).unwrap();
            } else if !begun && !told.contains(&name.as_str()) {
                match entry.path().is_dir() {
                    true => fs::remove_dir_all(entry.path()).unwrap(),
                    false => fs::remove_file(entry.path()).unwrap(),
                }
            }
        }
        // A scenario's cases have no directory before they begin.
        let _ = fs::remove_dir(&path);
    }
}

/// Every file below a directory, with its content.
fn content(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(directory).unwrap().to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

/// When each case was written.
fn written(run: &Path) -> Vec<SystemTime> {
    let of = |(_, path): &(String, PathBuf)| {
        fs::metadata(path.join("case.json")).unwrap().modified().unwrap()
    };
    cases(run).iter().map(of).collect()
}

/// Wherever it is cut, the run directory is in the end what it is without.
fn goes_on_to_the_same_bytes(words: &[&str]) {
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let to = out.display().to_string();
    let more = ["--on", "sim", "--quick", "--out", &to, "--json"];
    let whole = timewire(&[words, &more].concat()).done();
    let (before, count) = (content(&out), cases(&out).len());
    assert!(count > 2, "{whole:?}");
    for number in [0, count / 2, count - 1] {
        cut(&out, number);
        let said = timewire(&["run", "--continue", &to, "--json"]).done();
        assert_eq!(said.stdout, whole.stdout, "cut in case {number}");
        let after = content(&out);
        let names = |all: &BTreeMap<PathBuf, Vec<u8>>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before), "cut in case {number}");
        let other: Vec<_> = before.keys().filter(|name| after[*name] != before[*name]).collect();
        assert!(other.is_empty(), "cut in case {number}: {other:?}");
    }
}

#[test]
fn t2_a_simulated_run_goes_on_to_the_same_bytes_wherever_it_was_cut() {
    goes_on_to_the_same_bytes(&["demo"]);
    goes_on_to_the_same_bytes(&["run", &scenario("networks/line-qos.network.yaml")]);
    goes_on_to_the_same_bytes(&["run", &scenario("tdm-64.yaml"), "--seed", "7"]);
    let two = [scenario("streams-256.yaml"), scenario("backends-256.yaml")];
    goes_on_to_the_same_bytes(&["run", &two[0], &two[1]]);
    let (first, scratch) = (scenario("networks/line-qos.network.yaml"), Scratch::new());
    // The second names a file beside it.
    scratch.write("wake.csv", "wake_up_ns\n1000\n2500\n");
    let times = "receive: { kind: recorded, file: wake.csv, column: wake_up_ns }";
    let text = fs::read_to_string(&first).unwrap().replace("name: line-qos", "name: second");
    let text = text.replace("  - server\n", &format!("  - {{ name: server, {times} }}\n"));
    assert!(text.contains("wake.csv"), "{text}");
    goes_on_to_the_same_bytes(&["run", &first, &scratch.write("second.yaml", &text)]);
}

#[test]
fn t2_what_cannot_go_on_is_told_and_stays_as_it_is() {
    let scratch = Scratch::new();
    let (out, file) = (scratch.join("out"), scenario("networks/line-qos.network.yaml"));
    timewire(&["run", &file, "--on", "sim", "--quick", "--out", &out]).done();
    let before = content(Path::new(&out));
    let fails = |words: &[&str], why: &str| {
        let said = timewire(&[&["run"], words].concat());
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
        assert!(said.stderr.contains(why), "{words:?}: {said:?}");
        assert!(content(Path::new(&out)) == before, "{words:?} changed something");
    };
    fails(&["--continue", &out], "all its cases came to their end");
    fails(&["--continue", &out, &file], "cannot be used with '[FILE]...'");
    fails(&["--continue", &out, "--on", "lab:uml"], "cannot be used with '--on <PLACE>'");
    fails(&["--continue", &out, "--quick"], "cannot be used with '--quick'");
    fails(&["--continue", &scratch.join("none")], "no such directory");
    let trials = scratch.path().join("trials");
    fs::create_dir(&trials).unwrap();
    fs::write(trials.join("experiment.json"), "").unwrap();
    fails(&["--continue", &scratch.join("trials")], "the command that it began with");
    // A simulation by itself has no cases to go on with.
    let alone = scratch.join("alone");
    timewire(&["sim", &file, "--out", &alone]).done();
    fails(&["--continue", &alone], "nothing to go on with");
    fs::remove_file(Path::new(&alone).join("end.json")).unwrap();
    fails(&["--continue", &alone], "does not say what was asked for");
    // Another file than the one that was read when it began.
    let kept = Path::new(&out).join("line-qos.network.yaml");
    let text = fs::read_to_string(&kept).unwrap();
    cut(Path::new(&out), 3);
    let text = text.replace("name: priority", "name: other");
    fs::write(&kept, text.replace("case: priority", "case: other")).unwrap();
    let before = content(Path::new(&out));
    let said = timewire(&["run", "--continue", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("its cases are line-qos/one-queue/alone"), "{said:?}");
    assert!(content(Path::new(&out)) == before, "{said:?}");
}

/// What is there of a case is of who runs it.
#[test]
fn t2_a_run_that_goes_on_by_itself_is_left_alone() {
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    let text = text.replace("\nduration: 250ms", "\nduration: 60000s");
    let (file, out) = (scratch.write("tiny.yaml", &text), scratch.join("out"));
    let mut command = Command::new(TIMEWIRE);
    command.args(["run", &file, "--on", "sim", "--out", &out]).stderr(Stdio::null());
    let mut running = command.stdout(Stdio::null()).spawn().unwrap();
    let case = Path::new(&out).join("cases/tiny.plain.alone");
    wait_until("it is under way", || case.join("case.json").exists());
    let said = timewire(&["run", "--continue", &out]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("another process runs in it; nothing was run"), "{said:?}");
    assert!(case.join("case.json").exists());
    assert!(running.try_wait().unwrap().is_none());
    running.kill().unwrap();
    running.wait().unwrap();
}

/// The cases before the cut stay, the others are new, and the run is whole.
fn goes_on(run: &dyn Fn(&[&str]) -> Said, out: &Path, number: usize) -> Json {
    cut(out, number);
    let before = written(out).into_iter().take(number).collect::<Vec<_>>();
    let said = run(&["run", "--continue", &out.display().to_string(), "--json"]);
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    let summary = said.json();
    assert_eq!(summary["complete"], true, "{summary:#}");
    assert_eq!(summary["cases"].as_array().unwrap().len(), cases(out).len(), "{summary:#}");
    let streams = |case: &Json| case["streams"].as_array().unwrap().clone();
    for stream in summary["cases"].as_array().unwrap().iter().flat_map(streams) {
        assert!(stream["received"].as_u64() > Some(20), "{stream:#}");
    }
    assert_eq!(written(out)[..number], before);
    summary
}

#[test]
fn t3_a_run_in_the_laboratory_goes_on() {
    let Some(host) = Host::start() else { return };
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    host.scratch().write("tiny.yaml", &text);
    host.timewire(&["run", "tiny.yaml", "--out", "out"]).done();
    let out = host.scratch().path().join("out");
    let summary = goes_on(&|words| host.timewire(words), &out, 1);
    assert_eq!(summary["cases"][1]["macs"].as_array().unwrap().len(), 2, "{summary:#}");
    host.is_clean();
}

#[test]
fn t3_a_run_on_hosts_goes_on() {
    let Some(stations) = Stations::start() else { return };
    let host = &stations.host;
    host.tool("ip -n beta link set eth0 up");
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    host.scratch().write("tiny.yaml", &text);
    host.scratch().write("network.yaml", TWO_CASES);
    let before = stations.look();
    for file in ["tiny.yaml", "network.yaml"] {
        let out = host.scratch().path().join(format!("out-{file}"));
        let to = out.display().to_string();
        let said = host.timewire(&["run", file, "--on", "hosts.yaml", "--out", &to]);
        assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
        // The hosts are those of the run, whatever became of its files.
        fs::remove_file(host.scratch().path().join(file)).unwrap();
        goes_on(&|words| host.timewire(words), &out, 1);
        assert_eq!(stations.look(), before);
    }
}

/// Two stations on a link, which is the hub here.
const TWO_CASES: &str = "timewire: 1
kind: network
name: link
duration: 200ms
stations: [alpha, beta]
links: [[alpha, beta]]
streams:
  - { name: control, talker: alpha, listeners: beta, class: 0, size: 64B, period: 2ms }
experiment:
  cases:
    - { name: short }
    - { name: long, change: { streams: { control: { size: 640B } } } }
";

#[test]
fn t4_a_run_in_a_kernel_of_its_own_goes_on() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let text = Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text();
    for file in [scratch.write("tiny.yaml", &text), scratch.write("network.yaml", TWO_CASES)] {
        let to = format!("{file}.out");
        timewire(&["run", &file, "--on", "lab:uml", "--out", &to]).done();
        let out = Path::new(&to);
        let whole = json(&out.join("summary.json"));
        let summary = goes_on(&timewire, out, 1);
        // In virtual time a case is what it was.
        let figures = |summary: &Json, key: &str| summary["cases"][1]["streams"][0][key].clone();
        for key in ["sent", "received"] {
            assert_eq!(figures(&summary, key), figures(&whole, key), "{key}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the user's in a scenario: started with what they need, measured, ended.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::support::{Host, Scratch, list, wait_until};

/// `alpha` sends a message every 2 ms by a script; a program on `beta` looks at what it is given.
pub const SCENARIO: &str = "timewire: 1
kind: network
name: own
segments: [{ rate: 100Mbit }]
stations: [alpha, beta]
schedule: { kind: tdm, transmit: 450us, guard: 50us, slots: [alpha, beta] }
mac: { queue_frames: 64 }
streams:
  - { name: setpoint, kind: cyclic, talker: alpha, listeners: beta, size: 20B, period: 2ms,
      class: 7, deadline: 2ms }
programs:
  - { name: controller, station: alpha, command: exec ./in/talk.sh, files: [in/talk.sh],
      streams: [setpoint] }
  - name: plant
    station: beta
    command: >-
      env > seen; setsid sleep LEFT & trap 'echo asked; exit' TERM;
      while true; do sleep 0.01; done
    streams: [setpoint]
duration: 500ms
warm_up: 100ms
experiment:
  loads: [alone]
  cases:
    - { name: plain, title: Plain, change: { schedule: null } }
    - { name: tdm, title: TDM }
limits:
  - { id: lost, metric: lost, stream: setpoint, at_most: 50% }
";

/// Writes the scenario and its script; a program leaves a `sleep` of so long behind, by which a
/// test knows its own.
pub fn write(scratch: &Scratch, left: &str) {
    scratch.write("own.yaml", &SCENARIO.replace("LEFT", left));
    fs::create_dir_all(scratch.path().join("in")).unwrap();
    let script = "#!/bin/bash
n=0
while true; do
  printf %064d $((n++)) >/dev/udp/$TIMEWIRE_ADDRESS_BETA/$TIMEWIRE_PORT_SETPOINT
  sleep 0.002
done 2>/dev/null
";
    scratch.write("in/talk.sh", script);
}

/// Whether a process runs that was started with this word, in whichever process namespace.
pub fn runs(word: &str) -> bool {
    let has = |pid: &String| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|it| it == word.as_bytes())
    };
    list(Path::new("/proc")).iter().any(has)
}

/// What is measured of the script, which sends longer messages than the file says.
#[track_caller]
pub fn is_measured(summary: &Json) {
    for case in summary["cases"].as_array().unwrap() {
        let stream = &case["streams"][0];
        let count = |name: &str| stream[name].as_u64().unwrap();
        assert!(count("sent") > 20 && count("received") > 20, "{case:#}");
        assert!(stream["transfer"]["min_ns"].as_i64() > Some(0), "{case:#}");
        assert!(!stream["slot_wait"].is_null() && stream["receive"].is_null(), "{case:#}");
    }
    let findings = summary["findings"].as_array().unwrap();
    assert!(findings.iter().all(|it| it["id"] != "received-not-sent"), "{findings:#?}");
    let facts = summary["environment"].as_array().unwrap();
    let fact = facts.iter().find(|it| it["area"] == "stream setpoint").unwrap();
    let why = "it sends messages of 64 B, more than the `size` of 20 B";
    assert_eq!((&fact["value"], &fact["level"]), (&why.into(), &"degraded".into()));
}

#[test]
fn t3_programs_of_users_are_started_measured_and_ended() {
    let Some(host) = Host::start() else { return };
    let left = "98765.1";
    write(host.scratch(), left);
    let said = host.timewire(&["run", "own.yaml", "--json", "--out", "out"]).done();
    is_measured(&said.json());
    let out = host.scratch().path().join("out");
    let seen = out.join("cases/own.tdm.alone/plant-program/seen");
    let seen = fs::read_to_string(seen).unwrap();
    for variable in [
        "TIMEWIRE_STATION=beta",
        "TIMEWIRE_ADDRESS=10.77.0.2",
        "TIMEWIRE_ADDRESS_ALPHA=10.77.0.1",
        "TIMEWIRE_PORT_SETPOINT=15001",
    ] {
        assert!(seen.lines().any(|line| line == variable), "{variable}: {seen}");
    }
    let time = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.parse::<i64>().unwrap()
    };
    assert_eq!(time("TIMEWIRE_END=") - time("TIMEWIRE_START="), 500_000_000);
    let log = fs::read_to_string(out.join("logs/own.tdm.alone.plant-program.log")).unwrap();
    assert!(log.contains("asked\n"), "{log}");
    host.is_clean();
    assert!(!runs(left));
    // What is kept is enough to go on with, wherever the files were.
    fs::remove_file(out.join("end.json")).unwrap();
    fs::remove_dir_all(host.scratch().path().join("in")).unwrap();
    let case = out.join("cases/own.tdm.alone/case.json");
    let text = fs::read_to_string(&case).unwrap();
    fs::write(&case, text.replace("\"ended\": true", "\"ended\": false")).unwrap();
    let said = host.timewire(&["run", "--continue", "out", "--json"]).done();
    is_measured(&said.json());
}

#[test]
fn t3_a_program_that_fails_ends_the_run_and_says_why() {
    let Some(host) = Host::start() else { return };
    let left = "98765.2";
    write(host.scratch(), left);
    let failing = "setsid sleep LEFT & echo no such drive >&2; sleep 0.3; exit 3";
    let failing = SCENARIO.replace("exec ./in/talk.sh", failing);
    host.scratch().write("own.yaml", &failing.replace("LEFT", left));
    let said = host.timewire(&["run", "own.yaml", "--out", "out"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let why = "program `controller` ended before the case did, with exit code 3";
    assert!(said.stderr.contains(why) && said.stderr.contains("no such drive"), "{said:?}");
    host.is_clean();
    assert!(!runs(left));
    // A file that is not there is told before anything is made.
    let missing = SCENARIO.replace("files: [in/talk.sh]", "files: [in/walk.sh]");
    host.scratch().write("own.yaml", &missing);
    let said = host.timewire(&["run", "own.yaml", "--out", "none"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("in/walk.sh"), "{said:?}");
    assert!(!host.scratch().path().join("none").exists());
}

#[test]
fn t3_nothing_of_a_program_is_left_when_the_run_is_killed() {
    let Some(host) = Host::start() else { return };
    let left = "98765.3";
    write(host.scratch(), left);
    for signal in ["KILL", "INT"] {
        host.tool("rm -rf out");
        let run = host.spawn(&["run", "own.yaml", "--out", "out"]);
        wait_until("the program on beta runs", || runs(left));
        run.signal(signal);
        run.end();
        wait_until("nothing of it is left", || !runs(left));
        host.is_clean();
    }
}

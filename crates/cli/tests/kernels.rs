// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --on lab:uml` with programs alone as a user meets it: the file, the results, wrong use, and
//! ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{Said, Scratch, TIMEWIRE, has_kernel, run, timewire, wait_until};
use timewire_sys::namespace::Process;

/// One station that runs this shell script.
fn file(script: &str) -> String {
    format!(
        "timewire: 1\nkind: network\nname: one\nduration: 60s\nstations: [a]\n\
         programs: [{{name: own, station: a, command: \"{script}\"}}]\n"
    )
}

#[test]
fn t1_a_file_that_describes_no_segment_is_shown() {
    let scratch = Scratch::new();
    let text = file("true").replace("name: own", "nme: own");
    let path = scratch.write("bad.yaml", &text);
    let said = timewire(&["run", "--on", "lab:uml", &path]);
    let place = "6:13: programs[0]: unknown key `nme`: did you mean `name`?\n";
    assert!(said.stderr.starts_with(&format!("error: {path}:{place}")), "{said:?}");
    assert!(said.stderr.ends_with("; nothing was run\n"), "{said:?}");
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    // Only kernels of their own run programs without streams.
    let path = scratch.write("one.yaml", &file("true"));
    let said = timewire(&["run", &path, "--on", "lab"]);
    let place = "error: one: not supported on lab: programs: programs without streams run on \
                 kernels of their own: --on lab:uml\n";
    assert!(said.code == Some(4) && said.stderr.starts_with(place), "{said:?}");
    let shown = timewire(&["run", &path, "--dry-run"]).done();
    let first = "one: 1 kernel on a segment of 100Mbit, for 60s\n";
    let station = "  a            10.77.0.1/24     02:00:00:00:00:01  true\n";
    assert_eq!(shown.stdout, format!("{first}{station}"));
    let shown = timewire(&["run", &path, "--on", "lab:uml", "--dry-run", "--json"]).done().json();
    assert_eq!(shown["stations"][0]["command"], "true");
    let said = timewire(&["run", &path, "--on", "lab:uml", "--time", "wall"]);
    assert!(said.code == Some(2) && said.stderr.contains("--time wall is not for"), "{said:?}");
    timewire(&["run", "--on", "lab:uml", "no.yaml"])
        .failed(2, "error: cannot read no.yaml: No such file or directory (os error 2)\n");
}

#[test]
fn t4_a_segment_leaves_its_results_in_a_directory() {
    if !has_kernel() {
        return;
    }
    const SCRIPT: &str = "echo $TIMEWIRE_STATION; cat $TIMEWIRE_FILES/one.yaml";
    let scratch = Scratch::new();
    let path = scratch.write("one.yaml", &file(SCRIPT));
    let out = scratch.join("out");
    let said = timewire(&["run", "--on", "lab:uml", &path, "--out", &out]).done();
    assert!(said.stdout.contains("a                0        0"), "{said:?}");
    assert!(said.stdout.contains("results: "), "{said:?}");
    let wrote = fs::read_to_string(format!("{out}/a/stdout")).unwrap();
    assert_eq!(wrote, format!("a\n{}", fs::read_to_string(&path).unwrap()));
    let files = ["a", "network.yaml", "segment.jsonl", "segment.pcapng", "summary.json"];
    let mut found: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, files);
    // A directory is for one segment.
    let again = timewire(&["run", "--on", "lab:uml", &path, "--out", &out]);
    assert!(again.code == Some(2) && again.stderr.contains("it is not empty"), "{again:?}");
    // A command that fails is a finding.
    let path = scratch.write("fails.yaml", &file("exit 9"));
    let said =
        timewire(&["run", "--on", "lab:uml", &path, "--out", &scratch.join("fails"), "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.json()["stations"][0]["exit_code"], 9);
    // So is one that is killed, long before the end.
    let path = scratch.write("killed.yaml", &file("kill -9 $$"));
    let said =
        timewire(&["run", "--on", "lab:uml", &path, "--out", &scratch.join("killed"), "--json"]);
    assert_eq!(said.json()["stations"][0]["exit_code"], 137, "{said:?}");
    assert_eq!(said.code, Some(1), "{said:?}");
    // Files are beside the network file, also where that is named without a directory.
    let text = file("./words").replace("command:", "files: [words], command:");
    scratch.write("files.yaml", &text);
    scratch.write("words", "#!/bin/sh\necho beside\n");
    let mut inside = Command::new(TIMEWIRE);
    inside.current_dir(scratch.path()).args([
        "run",
        "--on",
        "lab:uml",
        "files.yaml",
        "--out",
        "with",
    ]);
    run(&mut inside).done();
    assert_eq!(fs::read_to_string(scratch.join("with/a/stdout")).unwrap(), "beside\n");
    // Both have a report, with the same exit codes.
    let said = timewire(&["report", &scratch.join("fails")]);
    assert!(said.code == Some(1) && said.stdout.contains("exit code 9"), "{said:?}");
    timewire(&["report", &out]).done();
}

/// Two kernels, each with a MAC of ours over AF_XDP, on one hub.
#[test]
fn t4_the_mac_keeps_its_slots_between_kernels() {
    if !has_kernel() {
        return;
    }
    if Command::new("bash").arg("-c").arg("true").output().is_err() {
        eprintln!("SKIP: bash is needed, which can send datagrams");
        return;
    }
    const CYCLE_PS: u64 = 1_040_000_000;
    const EPOCH_NS: u64 = 1_767_225_600_000_000_000;
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/kernels/mac.network.yaml");
    timewire(&["run", "--on", "lab:uml", file, "--out", &out]).done();
    let said = fs::read_to_string(format!("{out}/alpha/stdout")).unwrap();
    assert!(said.contains("transmit af_xdp"), "{said}");
    let lines = fs::read_to_string(format!("{out}/segment.jsonl")).unwrap();
    let mut count = 0;
    for line in lines.lines() {
        let frame = serde_json::from_str::<serde_json::Value>(line).unwrap()["data"].clone();
        if frame["length"] != 142 {
            continue;
        }
        count += 1;
        // The slots of alpha and beta in tdm-64: each 220 us, 260 us apart.
        let slot_ps = if frame["from"] == "alpha" { 0 } else { 260_000_000 };
        let phase = |key: &str| {
            let epoch_ps = EPOCH_NS % (CYCLE_PS / 1_000) * 1_000;
            (epoch_ps + frame[key].as_u64().unwrap() + CYCLE_PS - slot_ps) % CYCLE_PS
        };
        assert!(phase("start_ps") < phase("end_ps") && phase("end_ps") < 220_000_000, "{frame}");
        let met = &frame["found_busy_with"];
        assert!(met.is_null() || *met == frame["from"], "{frame}");
    }
    assert_eq!(count, 2 * 60 * 4);
}

/// A segment whose station does not end, and its kernel's process.
fn endless(scratch: &Scratch, script: &str) -> (Child, Process) {
    let path = scratch.write("endless.yaml", &file(script));
    let out = scratch.join("out");
    let child = Command::new(TIMEWIRE)
        .args(["run", "--on", "lab:uml", &path, "--out", &out])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = format!("{out}/a/begun");
    wait_until("the station has begun", || fs::exists(&begun).unwrap());
    let kernels = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let kernel = kernels.split_whitespace().next().expect("a kernel").parse().unwrap();
    (child, Process::of(kernel).unwrap())
}

fn end_of(mut child: Child) -> Said {
    let mut stderr = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        stderr += &line.unwrap();
    }
    Said { code: child.wait().unwrap().code(), stdout: String::new(), stderr }
}

#[test]
fn t4_a_segment_ends_when_it_is_asked_to_even_while_a_station_spins() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let (child, kernel) = endless(&scratch, "mkdir begun; while :; do :; done");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let said = end_of(child);
    assert!(said.code == Some(2) && said.stderr.is_empty(), "{said:?}");
    assert!(!kernel.is_alive());
    // What there is until then is kept, and has a report.
    let out = scratch.join("out");
    let summary = fs::read_to_string(format!("{out}/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["ended_early"], true, "{summary}");
    assert!(summary["stations"][0]["exit_code"].is_null(), "{summary}");
    let said = timewire(&["report", &out]);
    assert!(said.stdout.contains("was ended on request"), "{said:?}");
}

#[test]
fn t4_kernels_die_with_a_killed_segment() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let (mut child, kernel) = endless(&scratch, "mkdir begun; while :; do :; done");
    child.kill().unwrap();
    assert_eq!(end_of(child).code, None);
    wait_until("the kernel is gone", || !kernel.is_alive());
}

/// 10 us of guard, and a clock that goes 100 ppm too fast from one second on: gone after 100 ms. Up
/// to 0.8 us of the window before are free, and a frame is looked at once in each millisecond.
#[test]
fn t4_gates_keep_two_kernels_apart_until_the_guard_is_eaten() {
    if !has_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/kernels/two-gates.network.yaml");
    timewire(&["run", "--on", "lab:uml", file, "--out", &out]).done();
    let lines = fs::read_to_string(format!("{out}/segment.jsonl")).unwrap();
    let frames = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let (mut met, mut count) = (Vec::new(), 0);
    for frame in frames {
        let frame = &frame["data"];
        count += 1;
        // Its own frames before it are no stranger's.
        let busy_with = frame["found_busy_with"].as_str();
        if busy_with.is_some_and(|other| frame["from"] != other) {
            met.push(frame["ready_ps"].as_u64().unwrap() / 1_000_000);
        }
    }
    assert!(count > 2 * 150 * 15, "{count} frames");
    let said = timewire(&["report", &out, "--json"]).done();
    let strangers = &said.json()["sections"][1]["tables"][1]["rows"][1];
    assert_eq!(strangers[2], met.len().to_string(), "{strangers}");
    let first = met.iter().min().expect("the clocks drift apart");
    assert!((1_100_000..=1_109_000).contains(first), "the first after {first} us");
}

/// The drift comes back as what `ptp4l` corrects, and the offset goes.
#[test]
fn t4_ptp_takes_back_the_drift_of_the_file() {
    if !has_kernel() {
        return;
    }
    let there = Command::new("sh").args(["-c", "command -v ptp4l"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP: ptp4l and pmc (package linuxptp) are needed");
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/kernels/ptp.network.yaml");
    // Both run until the duration ends them.
    let said = timewire(&["run", "--on", "lab:uml", file, "--out", &out]).done();
    assert_eq!(said.stdout.matches("ended").count(), 2, "{said:?}");
    timewire(&["report", &out]).done();
    let log = fs::read_to_string(format!("{out}/follower/stdout")).unwrap();
    let last = log.lines().rfind(|line| line.contains("master offset")).expect("it followed");
    let number = |name: &str| -> i64 {
        let rest = last.split_once(name).unwrap().1;
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    // Timestamps of software, by a clock that steps by 256 ns.
    assert!(number("master offset").abs() < 5_000, "{last}");
    assert!((number("freq") - 20_000).abs() < 500, "{last}");
}

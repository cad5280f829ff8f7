// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same as `interrupt.rs` of all other commands that take long: those that read, that go on
//! until they are ended, and that start machines. And: no command is in none of the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::sync::mpsc;

use crate::support;
use crate::support::interrupted::{Condition, WAYS, end, hears, interrupted, leaves};
use crate::support::{Host, PLAIN_CASE, Scratch, Segment, TIMEWIRE, Tiny, wait_until};
use timewire_capture::capture::{CaptureHeader, Station, Writer};
use timewire_capture::event::{Event, Flags, Hook};

/// A command that takes long, and where it is ended.
const LONG: [(&str, &str); 41] = [
    ("agent find", HERE),
    ("agent pair", HERE),
    ("agent serve", HERE),
    ("apply", "../host/tests/apply_host.rs"),
    ("avtp can listen", HERE),
    ("avtp can talk", HERE),
    ("avtp crf listen", HERE),
    ("avtp crf talk", HERE),
    ("avtp listen", HERE),
    ("avtp talk", HERE),
    ("clock start", "tests/clock.rs"),
    ("clock status", "tests/clock.rs"),
    ("clock watch", "tests/clock.rs"),
    ("compare", HERE),
    ("demo", TABLE),
    ("group show", "tests/group.rs"),
    ("group start", HERE),
    ("lab exec", HERE),
    ("lab qemu", HERE),
    ("lab shell", "tests/lab.rs"),
    ("lab uml", HERE),
    ("listen", TABLE),
    ("measure launch", TABLE),
    ("measure path", TABLE),
    ("measure receive", TABLE),
    ("plan", TABLE),
    ("receive show", HERE),
    ("report", HERE),
    ("run", TABLE),
    ("sim", TABLE),
    ("talk", TABLE),
    ("tdm start", HERE),
    ("top", HERE),
    ("trace cut", HERE),
    ("trace export", HERE),
    ("trace info", HERE),
    ("trace merge", HERE),
    ("trace record", HERE),
    ("trace show", HERE),
    ("doctor", SAME),
    ("lab timestamps", SAME),
];
const HERE: &str = "tests/interrupt_others.rs";
const TABLE: &str = "tests/interrupt.rs";
/// Ended by what ends `compare`: `doctor` is over within a second (with `--record`, when the record
/// is whole), `lab timestamps` is for emulated NICs only.
const SAME: &str = "";

/// Commands that are over within a second, and why.
const QUICK: [(&str, &[&str]); 4] = [
    (
        "prints what it was made with",
        &["avtp reserve", "clock config", "completions", "group check", "man", "schema"],
    ),
    ("looks at this host once", &["agent peers", "lab doctor", "snapshot"]),
    ("asks one that runs, or reads what it left", &["status", "tdm show"]),
    (
        "one step, and what was begun is taken back by an undo log",
        &[
            "agent forget",
            "clock stop",
            "clock tai",
            "group add",
            "group remove",
            "group stop",
            "group switch",
            "lab clean",
            "receive set",
            "receive start",
            "receive stop",
            "tdm add process",
            "tdm recv",
            "tdm remove process",
            "tdm send",
            "tdm set",
            "tdm stop",
            "undo",
        ],
    ),
];

#[test]
fn t1_every_command_is_in_a_table_or_quick() {
    let all = leaves(&Scratch::new());
    let quick = QUICK.iter().flat_map(|(_, verbs)| verbs.iter().copied());
    let named: Vec<&str> = LONG.iter().map(|(verb, _)| *verb).chain(quick).collect();
    let set: BTreeSet<String> = named.iter().map(|verb| (*verb).to_owned()).collect();
    assert_eq!(set.len(), named.len(), "a command is named twice");
    assert_eq!(all, set, "every command is either long, and ended in a test, or quick");
    for (verb, file) in LONG.iter().filter(|(_, file)| !file.is_empty()) {
        let text = fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let words: Vec<String> = verb.split(' ').map(|word| format!("\"{word}\"")).collect();
        // Once in these tables, and once where it is run.
        let least = if *file == HERE && words.len() == 1 { 2 } else { 1 };
        // Where many have the first word, it is written once for all.
        let found = text.matches(&words.join(", ")).count();
        let found = found.max(text.matches(&words[words.len() / 2..].join(", ")).count());
        // That of `apply` calls the library, and asks what it says.
        let is_there = if *verb == "apply" { text.contains(REQUEST) } else { found >= least };
        assert!(is_there, "{verb} is not in {file}");
    }
}

const REQUEST: &str = "ended on request";

/// A command, what is waited for, its exit codes, what it says, and files that are there then.
type Row<'a> = (&'a [&'a str], Condition, &'a [i32], &'a str, &'a [&'a str]);

#[track_caller]
fn all_are_ended(host: &Host, table: &[Row<'_>]) {
    for (words, condition, codes, says, files) in table {
        for way in WAYS {
            for file in *files {
                let _ = fs::remove_file(host.scratch().path().join(file));
            }
            let said = interrupted(host, words, *condition, way);
            let is_right = said.code.is_some_and(|code| codes.contains(&code));
            assert!(is_right, "{way:?} {words:?}: {said:?}");
            let told = said.stdout.clone() + &said.stderr;
            assert!(told.contains(says), "{way:?} {words:?}: {said:?}");
            for file in *files {
                let there = fs::metadata(host.scratch().path().join(file));
                assert!(there.is_ok_and(|it| it.len() > 0), "{way:?} {words:?}: {file}: {said:?}");
            }
            let left = || host.scratch().list().into_iter().filter(|name| name.ends_with(".part"));
            assert_eq!(left().collect::<Vec<_>>(), [""; 0], "{way:?} {words:?}");
            wait_until("nothing of it runs", || {
                !host.processes().iter().any(support::Process::is_ours)
            });
        }
    }
}

/// A capture of one host whose packets pass one after another.
fn capture(packets: u64) -> Vec<u8> {
    let station = Station {
        name: "one".to_owned(),
        namespace: 1,
        interfaces: BTreeMap::from([(2, "eth0".to_owned()), (3, "eth1".to_owned())]),
    };
    let header = CaptureHeader {
        host: "one".to_owned(),
        stations: vec![station],
        hooks: Hook::ALL.iter().map(|hook| hook.name().to_owned()).collect(),
        keep_one_of: 1,
        ..CaptureHeader::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for number in 0..packets {
        let steps = [(Hook::ReceiveQueue, 2), (Hook::StackReceive, 2), (Hook::DriverStart, 3)];
        for ((hook, interface), after) in steps.into_iter().zip((0_u64..).step_by(1_000)) {
            let event = Event {
                at_ns: 1_000_000_000 + number * 100_000 + after,
                object: 0x1000 + number,
                tag: (1 << 32) | (number % 50),
                aux: 0,
                interface,
                thread: 11,
                cpu: 1,
                flags: Flags::TAGGED,
                length: 100,
                hook,
                station: 0,
            };
            writer.event(&event).unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Whether a file is being written, and something is in it.
fn writes(host: &Host) -> bool {
    let files = fs::read_dir(host.scratch().path()).unwrap().flatten();
    let mut parts = files.filter(|file| file.path().to_string_lossy().ends_with(".part"));
    parts.any(|part| part.metadata().is_ok_and(|it| it.len() > 0))
}

#[test]
fn t3_what_reads_keeps_what_it_has_read() {
    let Some(host) = Host::start() else { return };
    let big = capture(400_000);
    fs::write(host.scratch().path().join("big.twc"), &big).unwrap();
    let first = "ended on request: this is of the first ";
    let table: [Row<'_>; 4] = [
        (&["trace", "show", "big.twc", "--jsonl", "a"], writes, &[2], first, &["a"]),
        (&["trace", "export", "big.twc", "--as", "csv", "-o", "b"], writes, &[2], REQUEST, &["b"]),
        (&["trace", "cut", "big.twc", "-o", "c"], writes, &[2], first, &["c"]),
        (&["trace", "merge", "big.twc", "-o", "d"], writes, &[2], first, &["d"]),
    ];
    all_are_ended(&host, &table);
    // A part of a capture is a capture.
    for part in ["c", "d"] {
        let said = host.timewire(&["trace", "info", part, "--json"]).done().json();
        let events = said["events"].as_u64().unwrap();
        assert!(events > 0 && events < 1_200_000, "{events} events in {part}");
    }

    // One that goes on coming, from a pipe, and of which nothing has come.
    host.tool("mkfifo pipe");
    let pipe = host.scratch().path().join("pipe");
    let info = ["trace", "info", "pipe"];
    let show = ["trace", "show", "pipe"];
    let export = ["trace", "export", "pipe", "--as", "csv"];
    let cases: [(&[&str], usize, &str); 4] = [
        (&info, 100_000, first),
        (&info, 0, "ended on request; nothing was written"),
        (&show, 0, "ended on request; nothing was written"),
        (&export, 100_000, "ended on request; nothing was written"),
    ];
    for (words, bytes, says) in &cases {
        let bytes = *bytes;
        for way in WAYS {
            let (over, is_over) = mpsc::channel::<()>();
            let (written, is_written) = mpsc::channel::<()>();
            let (pipe, part) = (pipe.clone(), big[..bytes].to_vec());
            let writer = std::thread::spawn(move || {
                let mut pipe = File::options().write(true).open(pipe).unwrap();
                // More than a pipe holds, so that some of it was read then.
                pipe.write_all(&part).unwrap();
                written.send(()).unwrap();
                let _ = is_over.recv();
            });
            let running = host.spawn_in("", &[&["setsid", TIMEWIRE], *words].concat());
            let has_come = std::cell::Cell::new(false);
            let waits = || {
                has_come.set(has_come.get() || is_written.try_recv().is_ok());
                has_come.get() && hears(&host)
            };
            let said = end(running, words, waits, way);
            drop(over);
            writer.join().unwrap();
            assert_eq!(said.code, Some(2), "{way:?} {words:?}: {said:?}");
            assert!(said.stderr.contains(says), "{way:?} {words:?}: {said:?}");
        }
    }
}

/// Commands with nothing to keep, which wait for a file that never comes.
#[test]
fn t3_what_has_nothing_to_keep_ends_at_once() {
    let Some(host) = Host::start() else { return };
    host.tool("mkdir array");
    host.tool("mkfifo array/array.json");
    let network = "timewire: 1\nkind: network\nname: n\nduration: 10ms\n\
                   stations: [{ name: a }, { name: b }]\nlinks: [{ between: [a, b] }]\n\
         streams:\n- { name: s, talker: a, listeners: b, class: 7, size: 59B, \
         scheduled: true, max_latency: 1ms, kind: cyclic, period: 1ms }\n";
    host.scratch().write("n.yaml", network);
    host.timewire(&["sim", "n.yaml", "--out", "run"]).done();
    host.tool("rm run/simulation.json");
    host.tool("mkfifo run/simulation.json");
    // Agents are looked for on links.
    host.tool("ip link add av0 address 02:00:00:00:00:01 type veth peer av1");
    host.tool("ip link set av0 up");
    host.tool("ip link set av1 up");
    let is_ready = || {
        let shown = host.tool("ip -6 address show dev av0");
        shown.contains("fe80") && !shown.contains("tentative")
    };
    wait_until("the link has an address", is_ready);
    let words = ["measure", "receive", "--rate", "1000", "--for", "50ms", "--out", "whole"];
    let whole = host.timewire(&words);
    assert!(whole.code.is_some_and(|code| code < 2), "{whole:?}");
    let table: [Row<'_>; 6] = [
        (&["report", "run"], hears, &[2], REQUEST, &[]),
        (&["compare", "run", "run"], hears, &[2], REQUEST, &[]),
        (&["run", "array", "--merge", "--dry-run"], hears, &[2], REQUEST, &[]),
        (&["run", "array", "--merge", "--out", "merged"], hears, &[2], REQUEST, &[]),
        (&["agent", "find", "--for", "600s", "--dir", "keys"], hears, &[2], REQUEST, &[]),
        (&["agent", "pair", "--listen", "127.0.0.1:0", "--dir", "keys"], hears, &[2], REQUEST, &[]),
    ];
    all_are_ended(&host, &table);
    // It goes on until it is ended.
    let serves: Row<'_> = (&["report", "whole", "--serve", "127.0.0.1:0"], hears, &[0], "", &[]);
    all_are_ended(&host, &[serves]);
}

#[test]
fn t3_what_goes_on_until_it_is_ended_ends_with_what_it_found() {
    let Some(host) = Host::start() else { return };
    host.tool("ip link add av0 type veth peer av1");
    for interface in ["av0", "av1"] {
        host.tool(&format!("ip link set {interface} up"));
    }
    host.scratch().write("groups.yaml", GROUPS);
    let tone = [&WAVE_HEAD[..], &[0; 96_000]].concat();
    fs::write(host.scratch().path().join("tone.wav"), tone).unwrap();
    host.scratch().write("frames", &"123#DEADBEEF\n".repeat(1_000_000));
    let talks = |what: &'static [&'static str]| {
        [&["avtp"], what, &["--interface", "av0", "--stream", "7"]].concat()
    };
    let listens = |what: &'static [&'static str]| {
        [&["avtp"], what, &["--interface", "av1", "--stream", "02:00:00:00:00:01/7"]].concat()
    };
    let (talk, crf) = (talks(&["talk", "tone.wav", "--loop"]), talks(&["crf", "talk"]));
    let can = talks(&["can", "talk", "frames"]);
    let (heard, followed) = (listens(&["listen", "--out", "got.wav"]), listens(&["crf", "listen"]));
    let lines = listens(&["can", "listen"]);
    let serve = ["agent", "serve", "--socket", "agent", "--dir", "keys"];
    let then = "then ended on request";
    let table: [Row<'_>; 11] = [
        (&["top", "lo", "--interval", "200ms"], hears, &[0], "", &[]),
        (&talk, hears, &[0, 1], then, &[]),
        (&crf, hears, &[0, 1], then, &[]),
        (&can, hears, &[0, 1], then, &[]),
        // No stream came.
        (&heard, hears, &[1], REQUEST, &[]),
        (&followed, hears, &[1], REQUEST, &[]),
        (&lines, hears, &[1], REQUEST, &[]),
        (&["group", "start", "groups.yaml"], hears, &[0], "", &[]),
        (&serve, hears, &[0], "", &[]),
        (&["receive", "show", "--watch", "10ms"], hears, &[0], "", &[]),
        (&["trace", "record", "-o", "got.twc", "--force"], hears, &[0, 1], "", &["got.twc"]),
    ];
    all_are_ended(&host, &table);
}

const GROUPS: &str = "timewire: 1\nkind: network\nname: x\n\
                      stations: [{name: alpha, host: {groups: {name: g, policy: priority, \
     highest: 40, members: [{is: {kind: process, pid: 1}, priority: 1}]}}}]\n";

/// 16 bits, 48 kHz, one channel, one second.
const WAVE_HEAD: [u8; 44] = *b"RIFF\x24\x77\x01\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\
    \x80\xbb\x00\x00\x00\x77\x01\x00\x02\x00\x10\x00data\x00\x77\x01\x00";

#[test]
fn t3_a_mac_in_the_foreground_ends_with_its_station_restored() {
    let Some(segment) = Segment::start() else { return };
    let (host, file) = (&segment.host, &segment.file);
    for way in WAYS {
        let words = ["tdm", "start", "phy0", "--foreground", "--clock", "one-host"];
        let names = ["--file", file, "--station", "alpha", "--name", "alpha"];
        let words = [&words[..], &names].concat();
        let running = host.spawn_in("", &[&["setsid", TIMEWIRE], &words[..]].concat());
        let answers = || host.timewire(&["tdm", "show", "--name", "alpha"]).code == Some(0);
        let said = end(running, &words, answers, way);
        assert_eq!(said.code, Some(0), "{way:?}: {said:?}");
        host.is_clean();
    }
}

#[test]
fn t3_a_task_of_an_array_keeps_its_runs() {
    let Some(host) = Host::start() else { return };
    host.scratch().write("e.yaml", EXPERIMENT);
    host.timewire(&["run", "e.yaml", "--array", "slurm", "--out", "array"]).done();
    let state = format!("TIMEWIRE_STATE_DIR={}", host.scratch().join("state"));
    for way in WAYS {
        let words = ["run", "array", "--task", "0"];
        let all = [&["setsid", "env", &state, TIMEWIRE], &words[..]].concat();
        let runs = || !host.processes_with("600").is_empty();
        let said = end(host.spawn_in("", &all), &words, runs, way);
        assert_eq!(said.code, Some(2), "{way:?}: {said:?}");
        assert!(said.stderr.contains(REQUEST), "{way:?}: {said:?}");
        wait_until("its program is gone", || !runs());
    }
}

/// One station whose program takes long.
const EXPERIMENT: &str = "timewire: 1\nkind: network\nname: long\n\
    experiment: {timing: {lease: 2s, resend: 100ms, lead: 500ms, phase: 60s}}\n\
    stations: [{name: here, phases: {run: [{run: [sleep, '600'], name: s}]}}]\n";

/// A machine that goes on.
#[test]
fn t4_a_machine_ends_with_its_command() {
    let Some(host) = Host::start() else { return };
    for place in ["uml", "qemu"] {
        let there = host.timewire(&["lab", "exec", "--in", place, "--", "true"]);
        if there.code != Some(0) {
            eprintln!("SKIP: no kernel for {place} here: {}", there.stderr);
            continue;
        }
        for way in WAYS {
            host.tool_words("", &["sh", "-c", "rm -f begun *.stdout"]);
            let script = "echo one; echo two > begun; while :; do sleep 100; done";
            let words = ["lab", "exec", "--in", place, "--writable", ".", "--", "sh", "-c", script];
            let begun: Condition = |host| {
                let said = |file: &String| file.ends_with(".stdout");
                let mut said = host.scratch().list().into_iter().filter(said);
                let said =
                    said.any(|file| fs::read(host.scratch().join(&file)).unwrap() == b"one\n");
                said && fs::read(host.scratch().path().join("begun")).is_ok_and(|it| !it.is_empty())
            };
            let said = interrupted(&host, &words, begun, way);
            assert_eq!(said.code, Some(2), "{way:?} {place}: {said:?}");
            assert!(said.stderr.contains(REQUEST), "{way:?} {place}: {said:?}");
            assert_eq!(said.stdout, "one\n", "{way:?} {place}");
            let kept = fs::read_to_string(host.scratch().path().join("begun")).unwrap();
            assert_eq!(kept, "two\n", "{way:?} {place}");
            wait_until("no machine runs", || {
                !host.processes().iter().any(|it| it.command.contains("/kernels/"))
            });
        }
        match place {
            "uml" => segment_is_kept(&host),
            _ => boot_is_no_run(&host),
        }
    }
}

/// While an emulated machine boots there is nothing to go on with.
fn boot_is_no_run(host: &Host) {
    host.scratch().write("tiny.yaml", &Tiny { name: "tiny", cases: PLAIN_CASE, more: "" }.text());
    for way in WAYS {
        let words = ["run", "tiny.yaml", "--on", "lab:qemu", "--out", "qemu"];
        let boots: Condition =
            |host| host.processes().iter().any(|it| it.command.contains("qemu-system"));
        let said = interrupted(host, &words, boots, way);
        assert_eq!(said.code, Some(2), "{way:?}: {said:?}");
        assert!(said.stderr.contains("; nothing was recorded\n"), "{way:?}: {said:?}");
        assert!(!host.scratch().path().join("qemu").exists(), "{way:?}");
        wait_until("no machine runs", || !boots(host));
    }
}

fn segment_is_kept(host: &Host) {
    let text = "timewire: 1\nkind: network\nname: one\nstations: [a]\nprograms: [{name: own, \
        station: a, command: \"echo one; mkdir begun; while :; do :; done\"}]\n";
    host.scratch().write("one.yaml", text);
    for way in WAYS {
        host.tool("rm -rf out");
        let words = ["run", "--on", "lab:uml", "one.yaml", "--out", "out"];
        let begun: Condition = |host| host.scratch().path().join("out/a/begun").exists();
        let said = interrupted(host, &words, begun, way);
        assert_eq!(said.code, Some(2), "{way:?}: {said:?}");
        assert!(said.stdout.contains(REQUEST), "{way:?}: {said:?}");
        let kept = fs::read_to_string(host.scratch().path().join("out/a/stdout")).unwrap();
        assert_eq!(kept, "one\n");
        let summary = host.scratch().path().join("out/summary.json");
        assert!(fs::read_to_string(summary).unwrap().contains("\"ended_early\": true"));
        wait_until("no machine runs", || {
            !host.processes().iter().any(|it| it.command.contains("/kernels/"))
        });
    }
}

/// With a tool that never comes to an end.
#[test]
fn t3_a_kernel_that_is_being_made_is_taken_back() {
    let Some(host) = Host::start() else { return };
    host.tool("mkdir bin cache");
    let tool = "#!/bin/sh\nsleep 1234 &\nwait\n";
    for name in ["apt-get", "apt-cache"] {
        host.scratch().write(&format!("bin/{name}"), tool);
        host.tool(&format!("chmod +x bin/{name}"));
    }
    let path = format!("PATH={}:{}", host.scratch().join("bin"), env!("PATH"));
    let cache = format!("TIMEWIRE_CACHE={}", host.scratch().join("cache"));
    for words in [["lab", "uml"], ["lab", "qemu"]] {
        for (signal, to) in WAYS {
            let all = [&["setsid", "env", &path, &cache, TIMEWIRE], &words[..]].concat();
            let mut running = host.spawn_in("", &all);
            let fetches = || !host.processes_with("1234").is_empty();
            wait_until("it fetches", || fetches() || running.has_ended());
            if running.has_ended() && running.stderr().contains("missing here") {
                eprintln!("SKIP: {}", running.stderr());
                return;
            }
            let said = end(running, &words, fetches, (signal, to));
            assert_eq!(said.code, Some(2), "{signal} {to:?} {words:?}: {said:?}");
            assert!(said.stderr.contains(REQUEST), "{signal} {to:?} {words:?}: {said:?}");
            wait_until("no tool runs", || host.processes_with("1234").is_empty());
            let kernels = support::list(&host.scratch().path().join("cache/kernels"));
            assert_eq!(kernels, [""; 0], "{words:?}");
        }
    }
}

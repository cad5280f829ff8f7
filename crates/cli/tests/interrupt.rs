// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C in a terminal, which goes to all processes of the foreground at once: every command that
//! takes long keeps what there is, says so in the same words, ends with its documented code, and
//! leaves nothing. A table over those commands, each for SIGINT and SIGTERM.
//!
//! Not here: what a single process does with a signal (the tests of each command).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;
use support::{BOTH_CASES, Host, Said, TIMEWIRE, Tiny, run, wait_until};

/// Frames that an interface of a namespace has sent.
fn sent(host: &Host, netns: &str, interface: &str) -> u64 {
    let words = ["ip", "-s", "-j", "link", "show", interface];
    let said = run(&mut host.command(netns, &words)).stdout;
    let links: Value = serde_json::from_str(&said).unwrap_or_default();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap_or(0)
}

/// Frames between the stations of a measurement.
fn sent_on_bench(host: &Host) -> u64 {
    let names = host.list("/run/netns");
    let benches = names.iter().filter(|name| name.starts_with("twbench-"));
    benches.map(|name| sent(host, name, "eth0")).sum()
}

/// What is waited for before the signal.
type Condition = fn(&Host) -> bool;

/// A command, what is waited for, its exit codes, what it says and which files it leaves in `out`.
type Row<'a> = (&'a [&'a str], Condition, &'a [i32], &'a str, &'a [&'a str]);

const REQUEST: &str = "ended on request";

/// The command in a session of its own, as a terminal has it, ended with all its processes.
fn interrupted(host: &Host, words: &[&str], condition: Condition, signal: &str) -> Said {
    let mut running = host.spawn_in("", &[&["setsid", TIMEWIRE], words].concat());
    wait_until("it is under way", || condition(host) || running.has_ended());
    assert!(!running.has_ended(), "{words:?} ended by itself: {:?}", running.end());
    let group = format!("-{}", running.pid());
    let done = Command::new("kill").args([&format!("-{signal}"), "--", &group]).status();
    assert!(done.unwrap().success(), "{words:?}: no group {group}");
    running.end()
}

#[test]
fn t3_every_long_command_keeps_what_there_is() {
    let Some(host) = Host::start() else { return };
    let file = host.scratch().write(
        "tiny.yaml",
        &Tiny { name: "tiny", cases: BOTH_CASES, more: "" }.text().replace("200ms", "600s"),
    );
    let on_bench: Condition = |host| sent_on_bench(host) > 100;
    let on_record: Condition = |host| {
        host.scratch().path().join("out/traffic.json").exists() && sent(host, "", "lo") > 100
    };
    let launch = |how| ["measure", "launch", "--how", how, "--cycle", "1ms", "--count", "600000"];
    let (plain, mac) = (launch("plain"), launch("mac"));
    let table: [Row<'_>; 7] = [
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
        (
            &["run", &file],
            |host| {
                let cases = host.scratch().path().join("out/cases");
                let cases = fs::read_dir(cases).into_iter().flatten().flatten();
                cases
                    .flat_map(|case| fs::read_dir(case.path()).into_iter().flatten().flatten())
                    .any(|file| file.path().extension().is_some_and(|e| e == "twr"))
            },
            &[2],
            REQUEST,
            &["run.json"],
        ),
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
        for signal in ["INT", "TERM"] {
            let out = host.scratch().path().join("out");
            let _ = fs::remove_dir_all(&out);
            let directory = out.display().to_string();
            let mut all = words.to_vec();
            if !files.is_empty() {
                all.extend(["--out", &directory]);
            }
            let said = interrupted(&host, &all, condition, signal);
            let is_right = said.code.is_some_and(|code| codes.contains(&code));
            assert!(is_right, "{signal} {words:?}: {said:?}");
            let told = said.stdout.clone() + &said.stderr;
            assert!(told.contains(says), "{signal} {words:?}: {said:?}");
            for file in files {
                assert!(out.join(file).exists(), "{signal} {words:?}: no {file}: {said:?}");
            }
            wait_until("its stations are gone", || {
                host.list("/run/netns").iter().all(|name| !name.starts_with("tw"))
            });
            let helpers = || host.processes().iter().filter(|process| process.is_ours()).count();
            wait_until("nothing but the talker runs", || helpers() == 1);
        }
    }
}

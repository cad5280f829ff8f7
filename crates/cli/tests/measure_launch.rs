// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire measure` on this kernel: what is measured where something is missing, and what is left
//! when it ends, however it does.

use std::fs;

use crate::support;
use crate::support::{Host, timewire, wait_until};
use serde_json::Value;

/// Whether this kernel has the discipline.
fn has_etf(host: &Host) -> bool {
    let try_it = "ip link add t0 numtxqueues 2 type dummy && tc qdisc add dev t0 root etf clockid \
                  CLOCK_TAI delta 1000; code=$?; ip link del t0; exit $code";
    support::run(&mut host.command("", &["sh", "-c", try_it])).code == Some(0)
}

fn benches(host: &Host) -> Vec<String> {
    host.list("/run/netns").into_iter().filter(|name| name.starts_with("twbench-")).collect()
}

#[test]
fn t3_ways_that_work_are_measured_and_others_are_named() {
    let Some(host) = Host::start() else { return };
    let out = host.scratch().join("run");
    let said = host.timewire(&[
        "measure",
        "launch",
        "--count",
        "60",
        "--repeats",
        "2",
        "--cycle",
        "1ms",
        "--json",
        "--out",
        &out,
    ]);
    let measured = said.json();
    assert_eq!(measured["schema"], "timewire.measure-launch/1");
    let column = |way: &str| -> Option<Value> {
        let columns = measured["columns"].as_array().unwrap();
        columns.iter().find(|column| column["way"] == way).cloned()
    };
    for way in ["plain", "mac"] {
        let column = column(way).unwrap();
        assert_eq!(column["shown"], "peer", "{column}");
        let counts = &column["counts"];
        assert_eq!((&counts["planned"], &counts["sent"]), (&60.into(), &60.into()), "{column}");
        let points = column["points"].as_array().unwrap();
        let peer = points.iter().find(|point| point["point"] == "peer").unwrap();
        let timestamped = peer["errors"]["count"].as_u64().unwrap();
        assert_eq!(timestamped + peer["not_timestamped"].as_u64().unwrap(), 60, "{peer}");
        // Nothing leaves before its time.
        assert!(peer["errors"]["min_ns"].as_i64().unwrap() >= 0, "{peer}");
        assert_eq!(peer["repeats"].as_array().unwrap().len(), 2);
    }
    assert!(measured["ratios"].as_array().unwrap().iter().any(|ratio| ratio["to"] == "mac"));
    if !has_etf(&host) {
        assert_eq!(column("etf"), None);
        let absent = &measured["absent"][0];
        assert_eq!((&absent["way"], &absent["unsupported"]), (&"etf".into(), &true.into()));
        assert!(absent["why"].as_str().unwrap().contains("lacks a queueing discipline"));
        let only = host.timewire(&["measure", "launch", "--how", "etf", "--count", "10"]);
        assert_eq!(only.code, Some(4), "{only:?}");
        assert!(only.stdout.contains("\netf: not measured: this kernel lacks"), "{only:?}");
    }
    let frames = fs::read_to_string(host.see(&format!("{out}/frames.csv"))).unwrap();
    let of_plain = frames.lines().filter(|line| line.starts_with("plain,1000000,")).count();
    assert_eq!(of_plain, 60, "{frames}");
    let text = fs::read_to_string(host.see(&format!("{out}/launch.txt"))).unwrap();
    assert!(text.starts_with("launch error, timestamp less launch time, in ns\n"), "{text}");
    let saved: Value =
        serde_json::from_slice(&fs::read(host.see(&format!("{out}/launch.json"))).unwrap())
            .unwrap();
    assert_eq!(saved, measured);
    host.timewire(&["measure", "launch", "--count", "10", "--how", "plain", "--out", &out])
        .failed(2, &format!("error: {out} is not empty: name another directory\n"));
    assert_eq!(benches(&host), [""; 0]);
    host.is_clean();
}

#[test]
fn t3_a_request_to_end_keeps_what_was_measured() {
    let Some(host) = Host::start() else { return };
    let arguments =
        ["measure", "launch", "--how", "plain", "--cycle", "1ms", "--count", "600000", "--json"];
    let running = host.spawn(&arguments);
    wait_until("the pair is there", || !benches(&host).is_empty());
    wait_until("frames were sent", || {
        let name = benches(&host).first().cloned().unwrap_or_default();
        let line = ["ip", "-s", "-j", "link", "show", "eth0"];
        let said = support::run(&mut host.command(&name, &line)).stdout;
        let links: Value = serde_json::from_str(&said).unwrap_or_default();
        links[0]["stats64"]["tx"]["packets"].as_u64() > Some(50)
    });
    running.signal("INT");
    let said = running.end();
    let measured = said.json();
    assert_eq!((said.code, &measured["ended_early"]), (Some(2), &true.into()));
    let counts = &measured["columns"][0]["counts"];
    let (sent, unsent) = (counts["sent"].as_u64().unwrap(), counts["unsent"].as_u64().unwrap());
    assert!(sent > 50 && sent + unsent == 120_000, "{counts}");
    wait_until("the pair is gone", || benches(&host).is_empty());
    host.is_clean();
}

#[test]
fn t3_killed_it_leaves_nothing() {
    let Some(host) = Host::start() else { return };
    let running = host.spawn(&["measure", "launch", "--how", "mac", "--count", "600000"]);
    wait_until("the MAC runs", || !host.processes_with("--foreground").is_empty());
    running.signal("KILL");
    running.end();
    wait_until("the pair is gone", || benches(&host).is_empty());
    host.is_clean();
}

#[test]
fn t0_wrong_desired_are_named() {
    let refused = |arguments: &[&str], why: &str| {
        let said = timewire(&[&["measure", "launch"], arguments].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(why), "{said:?}");
    };
    refused(&["--cycle", "1us"], "a cycle of 1us is too short: at least 10us");
    refused(&["--size", "59B"], "frames of 59 bytes are not 60 to 1514");
    refused(&["--count", "3"], "3 frames in 5 repeats");
    refused(&["--delta", "11ms"], "a delta of 11ms is not 0ns to 10ms");
    refused(&["--socket-priority", "16"], "`16` is no socket priority, 0 to 15");
    refused(&["--interface", "no-such-if0", "--how", "plain"], "no-such-if0");
    refused(&["--interface", "lo", "--at", "peer"], "--peer");
    refused(&["--cycle", "250"], "250");
    refused(&["--limit", "p98=1us"], "times are min, max, pk-pk");
    refused(&["--limit", "missed=1us"], "missed=0");
    refused(&["--every", "1ms"], "--gates or --host");
    refused(&["--gates", "S 1 1ms", "--how", "plain"], "cannot be used with");
    refused(&["--gates", "S 1"], "`S 1` is no entry such as `S 1 300us`");
    refused(&["--gates", "S 0 1ms"], "--gates");
    refused(&["--gates", "S 1 1ms", "--interface", "lo"], "--whole-interface");
    refused(&["--gates", "S 1 1ms", "--limit", "max=1us"], "opening-max");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace record` beyond tracepoints: sockets of Linux 6.1, transmit timestamps, and what
//! is told where functions may not be entered.

use crate::support::{Host, TIMEWIRE, timewire};
use serde_json::Value as Json;

#[test]
fn t3_what_cannot_be_entered_is_missing_and_the_rest_is_recorded() {
    let Some(host) = Host::start() else { return };
    let record = |words: &[&str]| {
        let base = ["trace", "record", "--force", "--out", "a.twc", "--for", "10ms", "--no-marks"];
        host.timewire(&[&base[..], words].concat())
    };
    let said = record(&["--transmit-timestamps"]);
    if said.code == Some(4) {
        return eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
    }
    let header = |host: &Host| {
        host.timewire(&["trace", "info", "a.twc", "--json"]).done().json()["header"].take()
    };
    let found = header(&host);
    let hooks = found["hooks"].as_array().unwrap();
    assert!(hooks.contains(&"device-queue".into()), "{found}");
    // Either it is watched, and the header says how; or it is not, and the header says why.
    let levels = found["meta"]["levels"].as_str().unwrap_or("");
    match found["missing"]["transmit-timestamp"].as_str() {
        None => assert!(levels.contains("transmit-timestamp "), "{found}"),
        Some(why) => {
            assert!(why.contains("fentry") && why.contains("kprobe"), "{why}");
            assert!(!levels.contains("transmit-timestamp"), "{found}");
        }
    }
    // With tracepoints alone nothing else is tried.
    record(&["--transmit-timestamps", "--level", "tracepoint"]);
    let found = header(&host);
    let why = "it has no tracepoint";
    assert_eq!(
        (&found["missing"]["transmit-timestamp"], &found["meta"]["levels"]),
        (&why.into(), &Json::Null)
    );
    let said = record(&["--level", "uprobe"]);
    assert_eq!(said.code, Some(2));
    let what = "`uprobe` is no level: auto, tracepoint, fentry or kprobe";
    assert!(said.stderr.contains(what), "{}", said.stderr);
}

/// A hundred messages between two stations of the emulated machine, and what a trace says of them.
fn traced(machine: &[&str], script: &str, record: &str, talk: &str) -> Option<(Json, Vec<Json>)> {
    if std::env::var_os("TIMEWIRE_SLOW").is_none() {
        eprintln!("SKIP: slow: it boots an emulated machine; TIMEWIRE_SLOW=1 runs it");
        return None;
    }
    let script = format!(
        "set -e; cd /tmp; ip netns add far
         {script}
         ip link set eth0 up; ip -n far link set eth1 up
         ip addr add 10.0.0.1/24 dev eth0; ip -n far addr add 10.0.0.2/24 dev eth1
         until ip netns exec far grep -q 1 /sys/class/net/eth1/carrier; do sleep 0.1; done
         until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done
         ip netns exec far {TIMEWIRE} listen 10.0.0.2:7301 --for 60s >/tmp/heard 2>/tmp/said &
         until grep -q listening /tmp/said; do sleep 0.1; done
         {TIMEWIRE} trace record {record} --station near=/proc/self/ns/net --station far \
             --filter 'udp port 7301' -o a.twc -- \
             {TIMEWIRE} talk 10.0.0.2:7301 --cycle 5ms --tolerance 20s --count 100 {talk} \
             >/tmp/talked
         {TIMEWIRE} trace info a.twc --json | tr -d '\n'; echo
         {TIMEWIRE} trace show a.twc --jsonl a.jsonl >/tmp/shown; cat a.jsonl"
    );
    let words = [&["lab", "exec", "--in", "qemu"], machine, &["--", "sh", "-c", &script]].concat();
    let said = timewire(&words);
    if said.stderr.contains("lab qemu") {
        eprintln!("SKIP: no kernel for the emulated machine; `timewire lab qemu`");
        return None;
    }
    let said = said.done();
    let mut lines = said.stdout.lines().map(|line| line.parse().unwrap());
    let info: Json = lines.next().unwrap();
    Some((info, lines.collect()))
}

const PAIR: &str = "ip link add eth0 type veth peer name eth1 netns far";

/// Whole ways, from the message's marker into the program that reads it.
fn are_whole(packet_paths: &[Json]) {
    assert_eq!(packet_paths.len(), 100);
    for packet_path in packet_paths {
        let whole = (&packet_path["status"], &packet_path["outcome"]);
        assert_eq!(whole, (&"complete".into(), &"received".into()), "{packet_path}");
        let stages = packet_path["stages"].as_array().unwrap();
        let sum: i64 = stages.iter().map(|stage| stage["ns"].as_i64().unwrap()).sum();
        assert_eq!(packet_path["end_to_end_ns"], sum, "{packet_path}");
        let has = |name: &str| stages.iter().any(|stage| stage["stage"] == name);
        assert!(["qdisc", "softirq", "stack"].into_iter().all(has), "{packet_path}");
    }
}

#[test]
fn t4_qemu_linux_6_1_tells_of_sockets_by_their_functions() {
    for level in ["fentry", "kprobe"] {
        let record = format!("--level {level}");
        let Some((info, packet_paths)) = traced(&["--kernel", "6.1"], PAIR, &record, "") else {
            return;
        };
        let header = &info["header"];
        let levels = ["socket-send", "socket-queue", "socket-receive"];
        let levels = levels.map(|hook| format!("{hook} {level}")).join(", ");
        assert_eq!(header["meta"]["levels"], levels);
        assert_eq!(header["missing"], Json::Object(serde_json::Map::new()));
        are_whole(&packet_paths);
    }
}

#[test]
fn t4_qemu_a_sender_is_told_that_its_frame_has_left() {
    // In software, by the driver of a virtual pair; then by a NIC, with its own clock.
    let talk = "--timestamps software";
    let Some((info, packet_paths)) = traced(&[], PAIR, "--transmit-timestamps", talk) else {
        return;
    };
    assert_eq!(info["header"]["meta"]["levels"], "transmit-timestamp fentry");
    are_whole(&packet_paths);
    for packet_path in &packet_paths {
        let timestamps = packet_path["transmit_timestamps"].as_array().unwrap();
        assert_eq!((timestamps.len(), &timestamps[0]["nic_ns"]), (1, &Json::Null), "{packet_path}");
        assert_eq!(timestamps[0]["station"], "near", "{packet_path}");
    }
    let nics = "ip link set eth1 netns far";
    let record = "--transmit-timestamps --level kprobe";
    let talk = "--timestamps software,hardware --interface eth0";
    // A driver frees what it has sent in words that another Linux has for a drop.
    for kernel in ["6.12", "6.1"] {
        let machine = ["--kernel", kernel, "--nics", "2"];
        let Some((_, packet_paths)) = traced(&machine, nics, record, talk) else { return };
        are_whole(&packet_paths);
        are_timestamped_by_the_nic(&packet_paths);
    }
}

fn are_timestamped_by_the_nic(packet_paths: &[Json]) {
    let mut before = 0;
    for packet_path in packet_paths {
        let timestamps = packet_path["transmit_timestamps"].as_array().unwrap();
        let nic: Vec<i64> =
            timestamps.iter().filter_map(|timestamp| timestamp["nic_ns"].as_i64()).collect();
        assert_eq!((nic.len(), timestamps.len()), (1, 2), "{packet_path}");
        // The cycle is 5 ms; the NIC's clock goes its own way.
        assert!(nic[0] > before, "{packet_path}");
        before = nic[0];
        let told = timestamps.iter().map(|timestamp| timestamp["told_ns"].as_i64().unwrap());
        assert!(told.min() >= packet_path["from_ns"].as_i64(), "{packet_path}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire trace record --xdp`: frames that drivers show, between two stations of this kernel.

use std::fs;

use crate::support::{Host, Running, TIMEWIRE, timewire, wait_until};
use serde_json::Value as Json;

/// Two stations that see each other.
fn stations() -> Option<Host> {
    let host = Host::start()?;
    for line in [
        "ip netns add alpha",
        "ip netns add beta",
        "ip -n alpha link add eth0 address 02:00:00:00:00:01 type veth \
         peer name eth0 address 02:00:00:00:00:02 netns beta",
        "ip -n alpha address add 10.9.0.1/24 dev eth0",
        "ip -n beta address add 10.9.0.2/24 dev eth0",
        "ip -n alpha link set eth0 up",
        "ip -n beta link set eth0 up",
        "ip -n alpha neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0",
    ] {
        host.tool(line);
    }
    wait_until("the carrier is noticed", || {
        let shown = host.tool("ip -n alpha -details link show dev eth0");
        shown.contains("state UP") && !shown.contains("qdisc noop")
    });
    Some(host)
}

const RECORD: [&str; 7] = ["trace", "record", "--xdp", "--station", "alpha", "--station", "beta"];

/// Whether the kernel can do it; says so if not.
fn can_watch(host: &Host) -> bool {
    let said = host.timewire(&[&RECORD[..], &["--out", "try.twc", "--for", "10ms"]].concat());
    if said.code == Some(4) {
        eprintln!("SKIP: no tracing on this kernel: {}", said.stderr.trim());
        return false;
    }
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    let info = header(host, "try.twc");
    if let Some(why) = info["missing"]["xdp"].as_str() {
        eprintln!("SKIP: {why}");
        return false;
    }
    true
}

/// The header of a capture.
fn header(host: &Host, file: &str) -> Json {
    host.timewire(&["trace", "info", file, "--json"]).done().json()["header"].take()
}

/// The number of the program on a station's interface.
fn program(host: &Host, station: &str) -> Option<u64> {
    let links = host.tool(&format!("ip -n {station} -json link show dev eth0"));
    let links: Json = links.parse().unwrap();
    links[0]["xdp"]["prog"]["id"].as_u64()
}

/// A recorder that watches, until it is ended.
fn recorder(host: &Host, file: &str) -> Running {
    let words = [&[TIMEWIRE][..], &RECORD, &["--filter", "udp port 7999", "--out", file]].concat();
    let recorder = host.spawn_in("", &words);
    wait_until("it watches", || {
        ["alpha", "beta"].iter().all(|station| program(host, station).is_some())
    });
    recorder
}

#[test]
fn t3_the_drivers_part_of_every_packet_path_is_told_and_all_parts_sum_to_its_length() {
    let Some(host) = stations() else { return };
    if !can_watch(&host) {
        return;
    }
    let listener = host.spawn_in("beta", &[TIMEWIRE, "listen", "10.9.0.2:7201", "--for", "60s"]);
    wait_until("it listens", || listener.stderr().contains("listening"));
    let talk = ["talk", "10.9.0.2:7201", "--cycle", "2ms", "--tolerance", "20s", "--count", "200"];
    let command = [&["--", "ip", "netns", "exec", "alpha", TIMEWIRE][..], &talk].concat();
    let more = ["--filter", "udp port 7201", "--out", "here.twc", "--json"];
    let said = host.timewire(&[&RECORD[..], &more, &command].concat()).done();
    listener.signal("INT");
    listener.end();
    let last: Json = said.stdout.lines().last().unwrap().parse().unwrap();
    assert_eq!((&last["lost"], &last["hooks"]["xdp"]["written"]), (&0.into(), &200.into()));
    // The talker's timestamps come in buffers that frames had before they were copied.
    assert_eq!(last["hooks"]["drop"]["written"], 0, "{last}");
    let show = ["trace", "show", "here.twc", "--json", "--csv", "a.csv", "--jsonl", "a.jsonl"];
    let said = host.timewire(&show).done().json();
    let packet_paths = said["packet_paths"].as_array().unwrap();
    assert_eq!(
        (packet_paths.len(), &packet_paths[0]["count"]),
        (1, &200.into()),
        "{packet_paths:?}"
    );
    assert_eq!(packet_paths[0]["status"], "complete");
    let lines = fs::read_to_string(host.scratch().path().join("a.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 200);
    for line in lines.lines() {
        let packet_path: Json = line.parse().unwrap();
        let stages = packet_path["stages"].as_array().unwrap();
        let sum: i64 = stages.iter().map(|stage| stage["ns"].as_i64().unwrap()).sum();
        assert_eq!(packet_path["end_to_end_ns"], sum, "{packet_path}");
        let place = |name: &str| stages.iter().position(|stage| stage["stage"] == name);
        let driver = place("driver-receive").unwrap_or_else(|| panic!("{packet_path}"));
        assert_eq!(
            (&stages[driver]["station"], &stages[driver]["hop"]),
            (&"beta".into(), &1.into())
        );
        assert_eq!(place("softirq"), Some(driver + 1), "{packet_path}");
        let before = stages[driver - 1]["stage"].as_str().unwrap();
        assert!(before.ends_with("wire"), "{packet_path}");
    }
    // Of what it came to, nothing is beside the other stages.
    let csv = fs::read_to_string(host.scratch().path().join("a.csv")).unwrap();
    assert!(csv.lines().skip(1).all(|line| line.contains("driver-receive")), "{csv}");
    assert!(!csv.lines().next().unwrap().contains("driver-receive"));
    // The loopbacks cannot be watched; that is said. Nothing stays on the others.
    let header = header(&host, "here.twc");
    assert!(header["hooks"].as_array().unwrap().contains(&"xdp".into()), "{header}");
    for station in ["alpha", "beta"] {
        assert_eq!(header["missing"][format!("xdp at {station}/lo")], "its driver has no XDP");
        assert_eq!(program(&host, station), None);
    }
}

#[test]
fn t3_a_program_that_is_there_stays_and_the_interface_is_named() {
    let Some(host) = stations() else { return };
    if !can_watch(&host) {
        return;
    }
    let first = recorder(&host, "first.twc");
    let before = ["alpha", "beta"].map(|station| program(&host, station).unwrap());
    host.timewire(&[&RECORD[..], &["--out", "second.twc", "--for", "50ms"]].concat());
    let header = header(&host, "second.twc");
    for (station, number) in ["alpha", "beta"].into_iter().zip(before) {
        let expected = format!("program {number} (tw_xdp) is there already");
        assert_eq!(header["missing"][format!("xdp at {station}/eth0")], expected);
        assert_eq!(program(&host, station), Some(number));
    }
    assert!(!header["hooks"].as_array().unwrap().contains(&"xdp".into()), "{header}");
    first.signal("INT");
    first.end().done();
}

#[test]
fn t3_a_recorder_that_is_killed_leaves_no_program() {
    let Some(host) = stations() else { return };
    if !can_watch(&host) {
        return;
    }
    let killed = recorder(&host, "here.twc");
    killed.signal("KILL");
    killed.end();
    wait_until("the interfaces are as they were", || {
        ["alpha", "beta"].iter().all(|station| program(&host, station).is_none())
    });
}

#[test]
fn t3_without_being_asked_for_no_driver_is_looked_at() {
    let Some(host) = stations() else { return };
    if !can_watch(&host) {
        return;
    }
    let words = RECORD.iter().filter(|word| **word != "--xdp");
    let words: Vec<&str> = [TIMEWIRE].iter().chain(words).copied().collect();
    let more = ["--filter", "udp port 7998", "--out", "here.twc"];
    let recorder = host.spawn_in("", &[&words[..], &more].concat());
    wait_until("it records", || {
        fs::metadata(host.scratch().path().join("here.twc")).is_ok_and(|file| file.len() > 100)
    });
    assert_eq!(["alpha", "beta"].map(|station| program(&host, station)), [None, None]);
    recorder.signal("INT");
    recorder.end().done();
    let header = header(&host, "here.twc");
    assert!(!header["hooks"].as_array().unwrap().contains(&"xdp".into()), "{header}");
    assert_eq!(header["missing"], Json::Object(serde_json::Map::new()));
}

/// A NIC's driver in the emulated machine: the 82576 resets its link for a program, and the first
/// message goes when it is up again.
#[test]
fn t4_qemu_the_driver_of_a_nic_has_its_part_of_every_packet_path() {
    if std::env::var_os("TIMEWIRE_SLOW").is_none() {
        return eprintln!("SKIP: slow: it boots an emulated machine; TIMEWIRE_SLOW=1 runs it");
    }
    // The programs that come reset the NICs. The first messages after that now and then have no
    // end, or two (the book's limitations): they are not what this is about.
    let script = format!(
        "set -e; cd /tmp; ip netns add far; ip link set eth1 netns far
         cat >talk.sh <<'END'
         until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done
         until ip netns exec far grep -q 1 /sys/class/net/eth1/carrier; do sleep 0.1; done
         sleep 3
         exec {TIMEWIRE} talk 10.0.0.2:7201 --cycle 5ms --tolerance 20s --count 100
END
         ip link set eth0 up; ip -n far link set eth1 up
         ip addr add 10.0.0.1/24 dev eth0; ip -n far addr add 10.0.0.2/24 dev eth1
         until ip netns exec far grep -q 1 /sys/class/net/eth1/carrier; do sleep 0.1; done
         until grep -q 1 /sys/class/net/eth0/carrier; do sleep 0.1; done
         ip netns exec far {TIMEWIRE} listen 10.0.0.2:7201 --for 60s >/tmp/heard 2>/tmp/said &
         until grep -q listening /tmp/said; do sleep 0.1; done
         {TIMEWIRE} trace record --xdp --station near=/proc/self/ns/net --station far \
             --filter 'udp port 7201' -o a.twc -- sh /tmp/talk.sh >/tmp/talked
         {TIMEWIRE} trace info a.twc --json | tr -d '\n'; echo
         {TIMEWIRE} trace show a.twc --jsonl a.jsonl >/tmp/shown; cat a.jsonl"
    );
    let said = timewire(&["lab", "exec", "--in", "qemu", "--nics", "2", "--", "sh", "-c", &script]);
    if said.stderr.contains("lab qemu") {
        return eprintln!("SKIP: no kernel for the emulated machine; `timewire lab qemu`");
    }
    let said = said.done();
    let lines: Vec<Json> = said.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let (info, packet_paths) = lines.split_first().unwrap();
    let missing = info["header"]["missing"].as_object().unwrap();
    assert!(missing.keys().all(|name| !name.contains("/eth")), "{missing:?}");
    let is_whole = |packet_path: &&Json| {
        (packet_path["status"].as_str(), packet_path["outcome"].as_str())
            == (Some("complete"), Some("received"))
    };
    let odd: Vec<&Json> =
        packet_paths.iter().filter(|packet_path| !is_whole(packet_path)).collect();
    assert!(odd.is_empty(), "{odd:#?}\nlost: {}\n{}", info["lost"], said.stderr);
    assert_eq!(packet_paths.len(), 100);
    for packet_path in packet_paths {
        let stages = packet_path["stages"].as_array().unwrap();
        let sum: i64 = stages.iter().map(|stage| stage["ns"].as_i64().unwrap()).sum();
        assert_eq!(packet_path["end_to_end_ns"], sum, "{packet_path}");
        let names: Vec<&str> =
            stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        let wire = names.iter().position(|name| name.ends_with("wire")).unwrap();
        assert_eq!(names[wire + 1..wire + 3], ["driver-receive", "softirq"], "{packet_path}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire top`: one look and looks again and again, as text and as JSON.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{Segment, TIMEWIRE, timewire};

#[test]
fn t1_one_look() {
    let said = timewire(&["top", "lo", "--once"]).done();
    for text in ["clock: ", "interface ", "lo  ", "real-time threads: "] {
        assert!(said.stdout.contains(text), "{said:?}");
    }
    assert!(!said.stdout.contains('\u{1b}'), "{said:?}");
    let json = timewire(&["top", "lo", "--once", "--json"]).done();
    assert_eq!(json.stdout.lines().count(), 1, "{json:?}");
    let look = json.json();
    assert_eq!(look["schema"], "timewire.top/1");
    assert_eq!(look["interfaces"][0]["name"], "lo");
    assert!(look["interfaces"][0]["counters"]["rx_packets"].is_u64(), "{look}");
    for key in ["clocks", "macs", "programs", "threads", "notes"] {
        assert!(look[key].is_array(), "{key}: {look}");
    }
}

#[test]
fn t1_what_cannot_be_looked_at_is_said() {
    let said = timewire(&["top", "--interval", "1ms"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("--interval 1ms is too short"), "{said:?}");
    let said = timewire(&["top", "no-such", "--once"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains("no-such"), "{said:?}");
}

#[test]
fn t1_looks_go_on_until_they_are_ended() {
    for (json, first) in [(false, "clock: "), (true, "{\"schema\":\"timewire.top/1\"")] {
        let mut command = Command::new(TIMEWIRE);
        command.args(["top", "lo", "--interval", "200ms"]).stdout(Stdio::piped());
        if json {
            command.arg("--json");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begins = |line: &String| line.starts_with(first);
        let looks = lines.by_ref().map(Result::unwrap).filter(begins).take(3).count();
        assert_eq!(looks, 3, "{json}");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        // Nobody waits for a full pipe.
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{json}");
    }
}

#[test]
fn t3_a_mac_is_seen_with_its_slots_queues_and_threads() {
    let Some(Segment { host, file }) = Segment::start() else { return };
    let words = ["tdm", "start", "phy0", "--file", &file, "--station", "alpha"];
    host.timewire(&[&words[..], &["--clock", "one-host"]].concat()).done();
    let shown = host.timewire(&["top", "--once"]).done().stdout;
    for text in [
        "MAC `phy0`: station alpha on phy0, ",
        "\n  cycle 1ms, 1 of 2 slots: 0ns for 450us\n",
        "\n  queue ",
        "\n  missed slots ",
        "\nphy0 ",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let look = host.timewire(&["top", "phy0", "--once", "--json"]).done().json();
    let mac = &look["macs"][0];
    assert_eq!((&mac["name"], &mac["station"]), (&"phy0".into(), &"alpha".into()));
    assert_eq!(mac["schedule"], host.timewire(&["tdm", "show", "--json"]).json()["schedule"]);
    let programs = look["programs"].as_array().unwrap();
    let is_mac = |it: &&serde_json::Value| it["verb"] == "tdm" && it["pid"] == mac["pid"];
    assert_eq!(programs.iter().filter(is_mac).count(), 1, "{look}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `timewire plan --render` writes, put before a kernel: taken by `timewire apply`, and line
//! by line by `tc`; what the kernel then shows, put before `timewire plan --check`; and a planned
//! network on hosts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use timewire_base::BitsPerSecond;
use timewire_lab::fixture::Fixture;
use timewire_lab::trial::Trial;

use super::station::{Station, file};
use super::us;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_planned_gates_and_launch_times_are_taken", planned_files),
    Trial::new("t4_what_the_kernel_shows_of_a_plan_holds", shown_plan),
    Trial::new("t4_a_network_runs_on_hosts_that_become_bridges", network_on_hosts).memory(1_024),
];

fn network() -> PathBuf {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks");
    networks.join("planned-cell.network.yaml")
}

fn rendered() -> PathBuf {
    let file = network();
    let dir = PathBuf::from(format!("/tmp/planned-{}", std::process::id()));
    let words = ["plan", file.to_str().unwrap(), "--render", dir.to_str().unwrap()];
    Station::machine().timewire(&words).well();
    dir
}

fn planned_files() {
    let dir = rendered();
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").station("c").station("d").station("e");
    // As many interfaces as the bridge has ports.
    fixture.link("a", "b").link("a", "c").link("a", "d").link("a", "e");
    let bench = fixture.build().unwrap();
    let station = Station::of(&bench, "a");
    for node in ["plc-1", "plc-2", "west"] {
        station.with(&dir.join(format!("{node}.host.yaml")), || ());
        println!("{node}: taken");
    }
    // The same by hand.
    let lines = fs::read_to_string(dir.join("west.tc")).unwrap();
    for line in lines.lines() {
        station.run("sh", &["-c", line]).well();
    }
    println!("{lines}");
    let none: [String; 0] = [];
    assert_eq!(station.differences(&dir.join("west.host.yaml"), "eth0"), none);
}

/// What a kernel itself prints of every node's gates, held against the streams.
fn shown_plan() {
    let dir = rendered();
    let mut fixture = Fixture::new();
    fixture.station("a").station("b").station("c").station("d").station("e");
    fixture.link("a", "b").link("a", "c").link("a", "d").link("a", "e");
    let bench = fixture.build().unwrap();
    let station = Station::of(&bench, "a");
    let configured = dir.join("configured");
    fs::create_dir(&configured).unwrap();
    let mut nodes = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".launch.csv") {
            fs::copy(&path, configured.join(name)).unwrap();
        } else if let Some(node) = name.strip_suffix(".host.yaml") {
            nodes.push((node.to_owned(), path));
        }
    }
    nodes.sort();
    for (node, path) in &nodes {
        station.with(path, || {
            let shown = station.run("tc", &["-j", "qdisc", "show"]).well();
            fs::write(configured.join(format!("{node}.tc.json")), shown).unwrap();
        });
        println!("{node}: shown");
    }
    let (file, dir) = (network(), configured.to_str().unwrap().to_owned());
    let check = || Station::machine().timewire(&["plan", file.to_str().unwrap(), "--check", &dir]);
    let told = check();
    println!("{told:?}");
    assert_eq!(told.code, 0, "{told:?}");
    // The gates of another bridge shut the frames out.
    fs::copy(configured.join("east.tc.json"), configured.join("west.tc.json")).unwrap();
    assert_eq!(check().code, 1);
}

/// Two stations and two bridges, planned, with files beside.
const PAIR: &str = "
timewire: 1
kind: network
name: pair
duration: 100ms
sync_error: 1us
stations:
  - { name: a, device: { interval_min: 5us } }
  - { name: b, device: { interval_min: 5us } }
bridges:
  - { name: left, forward: { kind: uniform, min: 0us, max: 1us }, device: { interval_min: 5us } }
  - { name: right, forward: { kind: uniform, min: 0us, max: 1us }, device: { interval_min: 5us } }
links:
  - { between: [a, left], delay: 1us }
  - { between: [left, right], delay: 1us }
  - { between: [right, b], delay: 1us }
streams:
  - { name: there, talker: a, listeners: b, class: 7, size: 64B,
      kind: cyclic, period: 1ms, scheduled: true, max_latency: 200us }
  - { name: back, talker: b, listeners: a, class: 7, size: 64B,
      kind: cyclic, period: 1ms, scheduled: true, max_latency: 200us }
  - { name: files, talker: a, listeners: b, size: 1472B, kind: flood, rate: 20Mbit }
";

/// The same compile step for hosts: agents make Linux bridges of hosts that are none, and leave
/// everything as it was.
fn network_on_hosts() {
    let mut fixture = Fixture::new();
    fixture.station("a").station("left").station("right").station("b");
    let rate = BitsPerSecond::new(100_000_000).unwrap();
    for (one, other) in [("a", "left"), ("left", "right"), ("right", "b")] {
        fixture.wire(one, other, rate, us(1));
    }
    let bench = fixture.build().unwrap();
    let agent = |node: &str| {
        let path = bench.netns(node);
        format!("'netns:{}'", path.file_name().unwrap().to_str().unwrap())
    };
    let hosts = file(&format!(
        "timewire: 1\nkind: hosts\nclock: one-host\nstations:\n\
         - {{ name: a, agent: {}, interface: eth0 }}\n\
         - {{ name: b, agent: {}, interface: eth0 }}\n\
         - {{ name: left, agent: {}, \
         links: [{{ to: a, interface: eth0 }}, {{ to: right, interface: eth1 }}] }}\n\
         - {{ name: right, agent: {}, \
         links: [{{ to: left, interface: eth0 }}, {{ to: b, interface: eth1 }}] }}\n",
        agent("a"),
        agent("b"),
        agent("left"),
        agent("right")
    ));
    let nodes = ["a", "b", "left", "right"].map(|node| Station::of(&bench, node));
    let before = nodes.each_ref().map(Station::snapshot);
    // The files of a machine are those of the host, which agents do not write to.
    Station::machine().run("mount", &["-t", "tmpfs", "none", "/var/lib"]).well();
    let (network, out) = (file(PAIR), format!("{}.run", hosts.display()));
    let words = |more: &'static str| -> Vec<String> {
        let words = ["run", network.to_str().unwrap(), "--on", hosts.to_str().unwrap(), "--out"];
        words.into_iter().chain([out.as_str(), more]).map(str::to_owned).collect()
    };
    let words = words("--json");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // What somebody else has put on an interface stays, and the run does not begin.
    for (node, ours, says) in [
        (&nodes[0], "tc qdisc add dev eth0 root handle 7: pfifo", "queueing discipline of its own"),
        (&nodes[3], "ip link add own0 type bridge", "eth1 is a port of own0"),
    ] {
        let run = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            node.run(words[0], &words[1..]).well()
        };
        run(ours);
        if ours.ends_with("bridge") {
            run("ip link set eth1 master own0");
        }
        let occupied = nodes.each_ref().map(Station::snapshot);
        let said = Station::machine().timewire(&words);
        assert_eq!(said.code, 2, "{said:?}");
        assert!((said.out + &said.err).contains(says), "{says}");
        assert_eq!(nodes.each_ref().map(Station::snapshot), occupied, "{says}");
        fs::remove_dir_all(&out).unwrap();
        match ours.ends_with("bridge") {
            true => run("ip link del own0"),
            false => run("tc qdisc del dev eth0 root"),
        };
    }
    let doctor = ["doctor", network.to_str().unwrap(), "--on", hosts.to_str().unwrap()];
    let said = Station::machine().timewire(&doctor);
    println!("{said:?}");
    assert!([0, 1].contains(&said.code) && said.out.starts_with("pair on 4 hosts\n"), "{said:?}");
    let said = Station::machine().timewire(&words);
    println!("{said:?}");
    let summary: Json = serde_json::from_str(&said.well()).unwrap();
    assert_eq!(summary["verdict"], "pass");
    let findings = summary["findings"].as_array().unwrap();
    let passed: Vec<_> = findings.iter().filter(|it| it["verdict"] == "pass").collect();
    assert_eq!(passed.len(), 2, "{findings:?}");
    assert!(passed.iter().all(|it| it["measured"].as_str().unwrap().starts_with("100 of 100 ")));
    assert_eq!(nodes.each_ref().map(Station::snapshot), before);
}

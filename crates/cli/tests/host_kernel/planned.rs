// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `timewire plan --render` writes, put before a kernel: taken by `timewire apply`, and line
//! by line by `tc`; and what the kernel then shows, put before `timewire plan --check`.
//!
//! Not here: that the plan holds (`tests/plan_file.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use timewire_lab::rig::Rig;
use timewire_lab::trial::Trial;

use super::station::Station;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_planned_gates_and_launch_times_are_taken", planned_files),
    Trial::new("t4_what_the_kernel_shows_of_a_plan_holds", shown_plan),
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
    let mut rig = Rig::new();
    rig.station("a").station("b").station("c").station("d").station("e");
    // As many interfaces as the bridge has ports.
    rig.link("a", "b").link("a", "c").link("a", "d").link("a", "e");
    let bench = rig.build().unwrap();
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
    let mut rig = Rig::new();
    rig.station("a").station("b").station("c").station("d").station("e");
    rig.link("a", "b").link("a", "c").link("a", "d").link("a", "e");
    let bench = rig.build().unwrap();
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

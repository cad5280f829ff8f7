// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `timewire plan --render` writes, put before a kernel: taken by `timewire apply`, and line
//! by line by `tc`.
//!
//! Not here: that the plan holds (`tests/plan_file.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use timewire_lab::rig::Rig;
use timewire_lab::trial::Trial;

use super::station::Station;

pub const TRIALS: &[Trial] =
    &[Trial::new("t4_planned_gates_and_launch_times_are_taken", planned_files)];

fn rendered() -> PathBuf {
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/networks");
    let file = networks.join("planned-cell.network.yaml");
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

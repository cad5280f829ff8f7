// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What linuxptp is started with: each wish of `clock/*.yaml` gives the text of `clock/*.txt`.
//! `UPDATE_GOLDEN=1 cargo test -p timewire-host --test clock_config` rewrites those.
//!
//! Not here: whether linuxptp takes them (`ptp4l.rs`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use timewire_host::clock::config::{ConfigError, Place, plan};
use timewire_sched::scenario::host::{ClockWish, HostFile};
use timewire_sys::phc::StampAbilities;

fn wish(text: &str) -> ClockWish {
    let file = HostFile::parse("a.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
    file.host.clock.unwrap()
}

fn card(phc: u32) -> StampAbilities {
    StampAbilities { software: true, hardware: true, phc: Some(phc) }
}

const VETH: StampAbilities = StampAbilities { software: true, hardware: false, phc: None };

/// Cards named `eth` have clocks, others have none; two ports share one.
fn place(wish: &ClockWish, major_version: u32) -> Place {
    let stamps = wish.interfaces.iter().map(|interface| match interface.as_str() {
        "eth0" | "eth1" => card(0),
        "eth2" => card(1),
        _ => VETH,
    });
    Place { stamps: stamps.collect(), major_version, directory: PathBuf::from("/run/t/clock/a") }
}

#[test]
fn t1_each_wish_gets_its_configuration() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clock");
    let mut files: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 5);
    let mut different = Vec::new();
    for path in files {
        let wish = wish(&fs::read_to_string(&path).unwrap());
        let version =
            if path.file_stem().unwrap().to_str().unwrap().ends_with("4") { 4 } else { 3 };
        let plan = plan(&wish, &place(&wish, version)).unwrap();
        let mut text = format!("hardware stamps: {} ({})\n", plan.hardware, plan.why);
        let _ = writeln!(text, "steers: {:?}", plan.steers);
        for daemon in &plan.daemons {
            let _ = writeln!(text, "\n$ {} {}", daemon.program, daemon.arguments.join(" "));
            let _ = write!(text, "# {}\n{}", daemon.file.display(), daemon.text);
        }
        let golden = path.with_extension("txt");
        if std::env::var("UPDATE_GOLDEN").is_ok() {
            fs::write(&golden, &text).unwrap();
        }
        if fs::read_to_string(&golden).unwrap_or_default() != text {
            different.push(format!("--- {}\n{text}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn t0_what_interfaces_cannot_do_is_refused() {
    let file = |clock: &str| wish(&format!("timewire: 1\nname: a\nhost: {{clock: {clock}}}\n"));
    let refused = |clock: &str| {
        let wish = file(clock);
        plan(&wish, &place(&wish, 3)).unwrap_err()
    };
    let error = refused("{interfaces: [eth0, veth0], timestamps: hardware}");
    assert!(
        matches!(&error, ConfigError::NoHardware { interface } if interface.as_str() == "veth0")
    );
    let error = refused("{interfaces: [veth0], daemons: [ptp4l, phc2sys]}");
    assert_eq!(error.to_string(), "phc2sys steers the clock of a card, and veth0 has none");
    // Its `free_running` came with linuxptp 4; before, the card would be steered.
    let compares = "{interfaces: [eth0], daemons: [ptp4l, phc2sys], adjust: false}";
    let error = refused(compares);
    assert_eq!(error, ConfigError::SteersAlways { major_version: 3 });
    let wish4 = file(compares);
    let newer = plan(&wish4, &place(&wish4, 4)).unwrap();
    assert!(newer.steers.is_empty());
    assert!(newer.daemons.iter().all(|daemon| daemon.text.contains("free_running")), "{newer:?}");
    let wish = file("{interfaces: [veth0]}");
    let mut place = place(&wish, 3);
    place.stamps[0].software = false;
    assert!(matches!(plan(&wish, &place).unwrap_err(), ConfigError::NoStamps { .. }));
}

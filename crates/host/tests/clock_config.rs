// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What linuxptp is started with: each desired configuration of `clock/*.yaml` gives the text of
//! `clock/*.txt`. `UPDATE_GOLDEN=1 cargo test -p timewire-host --test all clock_config::` rewrites
//! those.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use timewire_host::clock::config::{ConfigError, HostAbilities, plan};
use timewire_model::scenario::host::{DesiredClock, HostSettings};
use timewire_sys::phc::TimestampAbilities;
use timewire_tsn::file::ParseFile;

fn desired(text: &str) -> DesiredClock {
    let file = HostSettings::parse("a.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
    file.host.clock.unwrap()
}

fn nic(phc: u32) -> TimestampAbilities {
    TimestampAbilities { software: true, hardware: true, phc: Some(phc) }
}

const VETH: TimestampAbilities = TimestampAbilities { software: true, hardware: false, phc: None };

/// NICs named `eth` have clocks, others have none; two ports share one.
fn place(desired: &DesiredClock, major_version: u32) -> HostAbilities {
    let timestamps = desired.interfaces.iter().map(|interface| match interface.as_str() {
        "eth0" | "eth1" => nic(0),
        "eth2" => nic(1),
        _ => VETH,
    });
    HostAbilities {
        timestamps: timestamps.collect(),
        major_version,
        directory: PathBuf::from("/run/t/clock/a"),
    }
}

#[test]
fn t1_each_desired_gets_its_configuration() {
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
        let desired = desired(&fs::read_to_string(&path).unwrap());
        let version =
            if path.file_stem().unwrap().to_str().unwrap().ends_with("4") { 4 } else { 3 };
        let plan = plan(&desired, &place(&desired, version)).unwrap();
        let mut text = format!("hardware timestamps: {} ({})\n", plan.hardware, plan.why);
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
    let file = |clock: &str| {
        desired(&format!(
            "timewire: 1\nkind: network\nname: a\n\
             stations: [{{name: alpha, host: {{clock: {clock}}}}}]\n"
        ))
    };
    let refused = |clock: &str| {
        let desired = file(clock);
        plan(&desired, &place(&desired, 3)).unwrap_err()
    };
    let error = refused("{interfaces: [eth0, veth0], timestamps: hardware}");
    assert!(
        matches!(&error, ConfigError::NoHardware { interface } if interface.as_str() == "veth0")
    );
    let error = refused("{interfaces: [veth0], daemons: [ptp4l, phc2sys]}");
    assert_eq!(error.to_string(), "phc2sys steers the clock of a NIC, and veth0 has none");
    // Its `free_running` came with linuxptp 4; before, the NIC would be steered.
    let compares = "{interfaces: [eth0], daemons: [ptp4l, phc2sys], adjust: false}";
    let error = refused(compares);
    assert_eq!(error, ConfigError::SteersAlways { major_version: 3 });
    let desired4 = file(compares);
    let newer = plan(&desired4, &place(&desired4, 4)).unwrap();
    assert!(newer.steers.is_empty());
    assert!(newer.daemons.iter().all(|daemon| daemon.text.contains("free_running")), "{newer:?}");
    let desired = file("{interfaces: [veth0]}");
    let mut place = place(&desired, 3);
    place.timestamps[0].software = false;
    assert!(matches!(plan(&desired, &place).unwrap_err(), ConfigError::NoTimestamps { .. }));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong scenarios and host settings, and what is told about them: `bad/x.yaml` gives exactly
//! the text of `bad/x.stderr`; the same for `bad_host`, `bad_clock` and `bad_groups`.
//! `UPDATE_GOLDEN=1 cargo test -p timewire-tsn` rewrites those texts; read each as someone who
//! does not know the code.
//!
//! Not here: good files (`shipped.rs`, `hosts.rs`).
#![expect(clippy::disallowed_methods, reason = "golden files are read and written by the test")]

use std::path::{Path, PathBuf};

use timewire_model::scenario::host::{ClockRole, HostSettings};
use timewire_model::scenario::{Scenario, ScenarioErrors};
use timewire_tsn::file::ParseFile;

fn bad_files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(directory);
    let entries = std::fs::read_dir(directory)
        .expect("the directory of wrong files")
        .map(|entry| entry.expect("an entry of it").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    files
}

fn check(files: Vec<PathBuf>, parse: impl Fn(&str, &str) -> Option<ScenarioErrors>) {
    let mut different = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let errors = parse(name, &text);
        let told = errors.map_or_else(|| "no error\n".to_owned(), |errors| format!("{errors}\n"));
        let golden = path.with_extension("stderr");
        if std::env::var("UPDATE_GOLDEN").is_ok() {
            std::fs::write(&golden, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if told != expected || told == "no error\n" {
            different.push(format!("--- {name}: expected\n{expected}--- told\n{told}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn t1_each_wrong_file_gets_its_message() {
    let files = bad_files("bad");
    assert!(files.len() >= 30, "only {} wrong files", files.len());
    check(files, |name, text| Scenario::parse(name, text).err());
}

#[test]
fn t1_each_wrong_host_gets_its_message() {
    for (directory, least) in [("bad_host", 80), ("bad_clock", 8), ("bad_groups", 20)] {
        let files = bad_files(directory);
        assert!(files.len() >= least, "only {} wrong files in {directory}", files.len());
        check(files, |name, text| HostSettings::parse(name, text).err());
    }
}

#[test]
fn t0_a_clock_has_its_defaults_and_survives_writing() {
    let text = "timewire: 1\nkind: network\nname: a\n\
                stations: [{name: alpha, host: {clock: \
                {interfaces: [eth0], role: transmitter}}}]\n";
    let file = HostSettings::parse("a.yaml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let clock = file.host.clock.clone().expect("a clock");
    assert_eq!(clock.role, ClockRole::Transmitter);
    assert_eq!((clock.priority1(), clock.log_sync_interval(), clock.adjust), (64, -3, true));
    let written = serde_json::to_string(&file).unwrap();
    let again = HostSettings::parse("a.json", &written).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(again, file);
}

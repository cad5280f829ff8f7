// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The networks with phases that are shipped, and the JSON Schema beside them.
#![expect(clippy::disallowed_methods, reason = "committed files are read and written by the test")]

use std::fs;
use std::path::{Path, PathBuf};

use timewire_model::scenario::NothingFurther;
use timewire_model::scenario::hosts_file::{HostsFile, hosts_schema};
use timewire_model::scenario::network::{NetworkCases, NetworkFile};
use timewire_model::scenario::orchestrated::Orchestrated;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The networks with phases with their names, and the hosts file.
fn shipped() -> (Vec<(String, String)>, HostsFile) {
    let mut files = Vec::new();
    let mut hosts = None;
    for entry in fs::read_dir(repository().join("scenarios/experiments")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // What an experiment puts onto its stations is in a directory of its own.
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if name == "hosts.yaml" {
            hosts = Some(HostsFile::parse(&name, &text).unwrap_or_else(|e| panic!("{e}")));
        } else {
            files.push((name, text));
        }
    }
    files.sort();
    (files, hosts.expect("a hosts file"))
}

fn parse(name: &str, text: &str) -> Result<NetworkFile, String> {
    let file = NetworkCases::parse_without_streams(&NothingFurther, name, text);
    file.map(|it| it.written).map_err(|errors| errors.to_string())
}

#[test]
fn t1_shipped_experiments_are_good_have_checks_and_find_their_stations() {
    let (files, hosts) = shipped();
    assert_eq!(files.len(), 6);
    for (name, text) in files {
        let file =
            Orchestrated::of(&parse(&name, &text).unwrap_or_else(|errors| panic!("{errors}")));
        assert_eq!(name, format!("{}.yaml", file.name));
        let json = serde_json::to_string_pretty(&file).unwrap();
        assert_eq!(Orchestrated::parse("again", &json).as_ref(), Ok(&file), "{json}");
        let network = file.network.is_some();
        for station in file.stations.iter().filter(|_| !network) {
            assert!(hosts.station(&station.name).is_some(), "{name}: {}", station.name);
        }
        assert!(!file.checks.is_empty(), "{name} can not fail");
        // Its head says what it shows and where that is from.
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        for word in ["# Shows:", "# Source:", "# Takes:"] {
            assert!(head.iter().any(|line| line.starts_with(word)), "{name} has no `{word}`");
        }
        // The book has a row for it.
        let page = fs::read_to_string(repository().join("docs/src/how-to/experiments.md")).unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not on the page");
    }
}

#[test]
fn t1_the_json_schema_of_hosts_is_fresh() {
    let path = repository().join("docs/schema/hosts.schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, hosts_schema()).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == hosts_schema(), "UPDATE_GOLDEN=1 cargo test -p timewire-model");
}

/// The words of the sources of programs that begin with `TIMEWIRE_` and are text.
fn own_variables() -> Vec<String> {
    let mut found = Vec::new();
    let mut rest: Vec<PathBuf> = fs::read_dir(repository().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    while let Some(path) = rest.pop() {
        if path.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        // Tests have their own.
        if path.extension().is_none_or(|of| of != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.contains("env!(")) {
            let after = line.split("\"TIMEWIRE_").skip(1);
            let words = after.filter_map(|rest| rest.split_once('"')).map(|(word, _)| word);
            found.extend(words.filter(|word| !word.contains('{')).map(str::to_lowercase));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn t1_no_variable_of_an_experiment_is_a_setting_of_timewire() {
    let own = own_variables();
    assert!(own.contains(&"cache".to_owned()) && own.len() > 5, "{own:?}");
    for name in own {
        let text = format!(
            "timewire: 1\nkind: network\nname: e\n\
             experiment: {{variables: [{{name: {name}, values: [a]}}]}}\n\
             stations: [{{name: s, phases: {{run: [{{snapshot: a}}]}}}}]\n"
        );
        let errors = parse("e", &text).unwrap_err();
        let variable = format!("TIMEWIRE_{}", name.to_uppercase());
        assert!(errors.contains(&variable) && errors.contains("another name"), "{name}: {errors}");
    }
}

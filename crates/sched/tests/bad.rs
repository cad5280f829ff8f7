// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong scenario files and what the user is told about them: `bad/x.yaml` gives exactly the text
//! of `bad/x.stderr`. `UPDATE_GOLDEN=1 cargo test -p timewire-sched` rewrites those texts; read
//! each as someone who does not know the code.
//!
//! Not here: good files (`shipped.rs`).
#![expect(clippy::disallowed_methods, reason = "golden files are read and written by the test")]

use std::path::{Path, PathBuf};

use timewire_sched::scenario::Scenario;

fn bad_files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let entries = std::fs::read_dir(directory)
        .expect("the directory of wrong files")
        .map(|entry| entry.expect("an entry of it").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    files
}

#[test]
fn t1_each_wrong_file_gets_its_message() {
    let files = bad_files();
    assert!(files.len() >= 30, "only {} wrong files", files.len());
    let mut different = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let errors = Scenario::parse(name, &text).err();
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

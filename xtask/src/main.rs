// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chores of the workspace: `cargo xtask tidy | test | fuzz | bench | bench-gate | lab-stress |
//! sbom`.
//!
//! Not here: what `make` and `.ci/run` call around it (`Makefile`, `scripts/setup.sh`).
#![forbid(unsafe_code)]

mod bench;
mod command;
mod fuzz;
mod processes;
mod sbom;
mod skip;
mod test_output;
mod test_run;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB
  tidy        check the rules of the repository (also a test of this crate)
  test        format, lints, licences, advisories, all tests; ends with the totals
  fuzz [--seconds N] [--within N] [TARGET...]  every reader of something external against
              made-up inputs, a minute each (needs a nightly compiler and cargo-fuzz)
  bench       every benchmark, then the gate
  bench-gate  instructions per frame, planned stream and simulated hop, against their bounds
              (needs valgrind)
  lab-stress N  the tests in the laboratory's kernel, N times each with all processors busy: every
              run must give the same timestamps
  sbom PACKAGE [DISTRIBUTION/LIBRARY@VERSION...]  what a package is made of, with the libraries that
              were put into it, as JSON of CycloneDX 1.5; timewire, libtimewire-dev,
              timewire-static or timewire-python";

fn main() -> ExitCode {
    let verbs: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match verbs.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(&root()),
        ["test"] => test_run::run(&root()),
        ["fuzz", ref arguments @ ..] => fuzz::run(&root(), arguments),
        ["bench"] => bench::all(&root()).and_then(|()| bench::gate(&root())),
        ["bench-gate"] => bench::gate(&root()),
        ["lab-stress", times] => lab_stress(&root(), times),
        ["sbom", package, ref libraries @ ..] => sbom::run(&root(), package, libraries),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// **Errors**: a test failed, or once wrote something else than before.
fn lab_stress(root: &Path, times: &str) -> Result<(), String> {
    if times.parse::<u32>().map_or(true, |times| times == 0) {
        return Err(format!("`{times}` is no number of runs\n{USAGE}"));
    }
    let mut test = command::cargo(root, &["test", "-p", "timewire-lab", "--test", "kernel"]);
    test.env("TIMEWIRE_LAB_REPEAT", times).env("TIMEWIRE_LAB_LOAD", "1");
    // These compare what tools print, and have no timestamps.
    let without_timestamps = ["t4_a_snapshot_", "t4_host_files_", "t4_a_taprio_with_children_"];
    test.arg("--").args(without_timestamps.iter().flat_map(|name| ["--skip", name]));
    command::succeed(&mut test)
}

/// The top of the repository. Cargo names this crate's directory when it runs it; a path kept from
/// building would be wrong after the repository has moved.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| "xtask".into(), PathBuf::from);
    here.join("..")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chores of the workspace: `cargo xtask tidy | test | bench | bench-gate`.
//!
//! Not here: what `make` and `.ci/run` call around it (`Makefile`, `scripts/setup.sh`).
#![forbid(unsafe_code)]

mod bench;
mod command;
mod skip;
mod test_output;
mod test_run;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB
  tidy        check the rules of the repository (also a test of this crate)
  test        format, lints, licences, advisories, all tests; ends with the totals
  bench       every benchmark, then the gate
  bench-gate  instructions per frame of the MAC against their bound (needs valgrind)";

fn main() -> ExitCode {
    let verbs: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match verbs.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(&root()),
        ["test"] => test_run::run(&root()),
        ["bench"] => bench::all(&root()).and_then(|()| bench::gate(&root())),
        ["bench-gate"] => bench::gate(&root()),
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

/// The top of the repository. Cargo names this crate's directory when it runs it; a path kept from
/// building would be wrong after the repository has moved.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| "xtask".into(), PathBuf::from);
    here.join("..")
}

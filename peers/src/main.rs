// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timewire beside the tools of others that do the same: `cargo peers frames | plans | sim`.
//!
//! Not here: its own benchmarks (`cargo xtask bench`).
#![forbid(unsafe_code)]

#[path = "../../xtask/src/command.rs"]
mod command;
mod fetch;
mod frames;
mod measure;
mod planning;
mod sim;
mod touched;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo peers VERB
  frames [--rounds N] [--json]  CPU time and instructions per frame beside isochron and
              xdp-trafficgen, which are fetched; as root
  plans [--limit 60s] [--ours 5s] [--quick] [--json]  plans beside those of tsnkit and OR-Tools,
              which are fetched into the cache
  sim [--quick] [--json]  CPU time per frame and hop of the simulator beside ns-3, which is fetched
              from PyPI into the cache";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["frames", ref arguments @ ..] => frames::run(&root(), arguments),
        ["plans", ref arguments @ ..] => planning::run(&root(), arguments),
        ["sim", ref arguments @ ..] => sim::run(&root(), arguments),
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

/// The top of the repository; cargo names this crate's directory when it runs it.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    here.map_or_else(|| "peers".into(), PathBuf::from).join("..")
}

/// The program as the workspace builds it.
///
/// **Errors**: cargo does not say where it builds.
fn timewire(root: &Path) -> Result<PathBuf, String> {
    let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let text = command::output_of(&mut command::cargo(root, &metadata))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("metadata: {e}"))?;
    let target = metadata["target_directory"].as_str().ok_or("metadata: no target directory")?;
    Ok(Path::new(target).join("release/timewire"))
}

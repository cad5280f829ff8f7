// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The benchmarks of the workspace, and the gate: how many instructions the MAC spends on a frame,
//! the planner on a stream and the simulator on a hop, counted by valgrind, against the bounds of
//! `crates/*/benches/instructions.txt`. Counts do not depend on how busy the machine is; wall times
//! are shown by the benchmarks and judged by nobody.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{self, cargo, exists};
use crate::skip::{Runner, Skip, SkipList};

/// A program that is counted: `PROGRAM COUNT NAME`.
struct Gated {
    package: &'static str,
    program: &'static str,
    bounds: &'static str,
    /// What is counted by its first argument.
    each: &'static str,
    /// That of the two runs; the difference leaves out start and end of the program.
    few: u64,
    many: u64,
}

const GATED: [Gated; 3] = [
    Gated {
        package: "timewire-tsn",
        program: "mac_instructions",
        bounds: "crates/tsn/benches/instructions.txt",
        each: "frame",
        few: 20_000,
        many: 220_000,
    },
    Gated {
        package: "timewire-plan",
        program: "plan_instructions",
        bounds: "crates/plan/benches/instructions.txt",
        each: "stream",
        few: 500,
        many: 2_000,
    },
    Gated {
        package: "timewire-sim",
        program: "sim_instructions",
        bounds: "crates/sim/benches/instructions.txt",
        each: "hop",
        few: 100_000,
        many: 400_000,
    },
];

/// Runs every benchmark but the gated ones.
///
/// **Errors**: one fails.
pub fn all(root: &Path) -> Result<(), String> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata = command::output_of(&mut cargo(root, &metadata))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| format!("metadata: {e}"))?;
    for (package, bench) in bench_targets(&metadata) {
        if GATED.iter().all(|gated| gated.program != bench) {
            println!("== {package}: {bench}");
            let run = ["bench", "--quiet", "--package", &package, "--bench", &bench];
            command::succeed(&mut cargo(root, &run))?;
        }
    }
    Ok(())
}

/// Counts, prints and judges.
///
/// **Errors**: more instructions than the bound, or a count that could not be taken.
pub fn gate(root: &Path) -> Result<(), String> {
    if !exists("valgrind") {
        let reason = "valgrind is not installed; run scripts/setup.sh bench".to_owned();
        let skip = Skip { name: "bench-gate".to_owned(), reason };
        println!("{skip}");
        let allowed = SkipList::load(root)?.allows(Runner::here(), &skip);
        let fatal = Runner::here() == Runner::Ci && !allowed;
        return if fatal { Err("bench-gate may not be skipped here".to_owned()) } else { Ok(()) };
    }
    let mut exceeded = Vec::new();
    for gated in &GATED {
        exceeded.extend(gated.exceeded(root)?);
    }
    if exceeded.is_empty() {
        Ok(())
    } else {
        Err(format!("more instructions than the bound: {}", exceeded.join(", ")))
    }
}

impl Gated {
    /// Counts and prints; which workloads take more than their bound.
    fn exceeded(&self, root: &Path) -> Result<Vec<String>, String> {
        let file = self.bounds;
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let bounds = parse_bounds(file, &text)?;
        let program = self.build(root)?;
        let title = format!("instructions per {}", self.each);
        println!("{title:<32} {:>12} {:>12}", "counted", "bound");
        let mut exceeded = Vec::new();
        for (name, bound) in bounds {
            let few = count(&program, self.few, &name)?;
            let many = count(&program, self.many, &name)?;
            let each = many.saturating_sub(few).div_ceil(self.many - self.few);
            println!("{name:<32} {each:>12} {bound:>12}");
            if each == 0 {
                let program = self.program;
                return Err(format!("{name}: none counted; does {program} use its argument?"));
            }
            if each > bound {
                exceeded.push(name);
            }
        }
        Ok(exceeded)
    }

    fn build(&self, root: &Path) -> Result<PathBuf, String> {
        let which = ["--package", self.package, "--bench", self.program, "--no-run"];
        let mut command = cargo(root, &["bench", "--quiet"]);
        let messages = command::output_of(command.args(which).arg("--message-format=json"))?;
        let program = self.program;
        let found = executable(&messages, program);
        found.ok_or_else(|| format!("cargo named no executable for {program}"))
    }
}

fn bench_targets(metadata: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            if is_bench(target)
                && let (Some(package), Some(bench)) =
                    (package["name"].as_str(), target["name"].as_str())
            {
                found.push((package.to_owned(), bench.to_owned()));
            }
        }
    }
    found
}

fn is_bench(target: &Value) -> bool {
    target["kind"].as_array().into_iter().flatten().any(|kind| kind == "bench")
}

/// `NAME BOUND` per line; `#` starts a comment.
fn parse_bounds(file: &str, text: &str) -> Result<Vec<(String, u64)>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let bounds: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, bound] => {
                let bound = bound.parse().map_err(|_| format!("{file}: `{line}`: no count"))?;
                Ok((name.to_owned(), bound))
            }
            _ => Err(format!("{file}: `{line}` is not `NAME BOUND`")),
        })
        .collect::<Result<_, String>>()?;
    if bounds.is_empty() { Err(format!("{file}: no bound in it")) } else { Ok(bounds) }
}

/// The executable in cargo's messages (one JSON object per line).
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut ours = messages.filter(|m| m["target"]["name"] == program && is_bench(&m["target"]));
    ours.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Instructions of one run.
fn count(program: &Path, times: u64, name: &str) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(program).arg(times.to_string()).arg(name);
    let output = valgrind.output().map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match collected(&said) {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(format!("{}: {}\n{said}", command::line_of(&valgrind), output.status)),
    }
}

/// `==123== Collected : 456`
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_bounds_are_read_and_nonsense_is_refused() {
        let bounds =
            parse_bounds("f", "# per frame\nplain 900\n\nfull_queues 1200 # worst\n").unwrap();
        assert_eq!(bounds, [("plain".to_owned(), 900), ("full_queues".to_owned(), 1_200)]);
        assert!(parse_bounds("f", "").is_err());
        assert!(parse_bounds("f", "plain many").is_err());
        assert!(parse_bounds("f", "plain 1 2").is_err());
    }

    #[test]
    fn t0_the_count_and_the_executable_are_found() {
        let said = "==7== Callgrind\n==7== Events    : Ir\n==7== Collected : 216563\n==7== \n";
        assert_eq!(collected(said), Some(216_563));
        assert_eq!(collected("==7== Events : Ir"), None);
        let target = r#"{"name":"mac_instructions","kind":["bench"]}"#;
        let built = format!(r#"{{"target":{target},"executable":"/t/m-1"}}"#);
        let messages = format!("{built}\n{{\"reason\":\"build-finished\"}}\n");
        assert_eq!(executable(&messages, "mac_instructions"), Some(PathBuf::from("/t/m-1")));
        assert_eq!(executable(&messages, "another"), None);
    }

    #[test]
    fn t0_bench_targets_are_listed_from_metadata() {
        let metadata = serde_json::json!({ "packages": [{ "name": "p", "targets": [
            { "name": "lib", "kind": ["lib"] }, { "name": "b", "kind": ["bench"] }] }] });
        assert_eq!(bench_targets(&metadata), [("p".to_owned(), "b".to_owned())]);
    }
}

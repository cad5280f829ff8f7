// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask fuzz`: builds the targets of `fuzz/` with the nightly compiler, writes their
//! examples, and runs one after the other, with bounds on memory and on the time for an input.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::command;

const USAGE: &str = "\
usage: cargo xtask fuzz [--seconds N] [--within N] [TARGET...]
  --seconds  each target for so long at most, 60 when it is not said
  --within   all of it, the build too; what has no time left is skipped";
/// For a target, unless it is said. **Units**: s.
const SECONDS: u64 = 60;
/// Below it, a target only reads its examples. **Units**: s.
const FEWEST: u64 = 3;
const TRIPLE: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    seconds: u64,
    within: Option<u64>,
    named: Vec<&'a str>,
}

/// What came of a target.
struct Ran {
    target: String,
    seconds: u64,
    inputs: u64,
    /// The end of what it said, when it found something.
    finding: Option<String>,
}

/// **Errors**: no nightly compiler or no cargo-fuzz, the build fails, or a target found something.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let started = Instant::now();
    let Asked { seconds, within, named } = asked(arguments)?;
    let left = || within.map(|all| all.saturating_sub(started.elapsed().as_secs()));
    let all = targets(root)?;
    if let Some(unknown) = named.iter().find(|name| !all.contains(&(**name).to_owned())) {
        return Err(format!("there is no target `{unknown}`; there are {}", all.join(", ")));
    }
    let wanted: Vec<String> = match named.is_empty() {
        true => all,
        false => named.iter().map(|name| (*name).to_owned()).collect(),
    };
    let place = root.join("target/fuzz");
    let Some(programs) = build(root, &place, left())? else {
        println!("SKIP: fuzzing: no time is left for it after its build");
        return Ok(());
    };
    let seeds = place.join("seeds");
    command::succeed(Command::new(programs.join("seeds")).arg(&seeds))?;
    dictionary(root, &place.join("words.dict"))?;
    let mut ran = Vec::new();
    for (target, behind) in wanted.iter().zip((1..=wanted.len() as u64).rev()) {
        let share = left().map_or(seconds, |left| seconds.min(left / behind));
        if share < FEWEST {
            println!("SKIP: fuzzing {target}: no time is left");
            continue;
        }
        let one = fuzz(&programs, &place, target, share)?;
        let Ran { target, seconds, inputs, finding } = &one;
        let what = if finding.is_some() { "FOUND SOMETHING" } else { "nothing found" };
        println!("{target:<16} {seconds:>5} s {inputs:>10} inputs  {what}");
        ran.push(one);
    }
    let sum = |of: fn(&Ran) -> u64| ran.iter().map(of).sum::<u64>();
    println!("{} targets, {} s, {} inputs", ran.len(), sum(|it| it.seconds), sum(|it| it.inputs));
    let found =
        ran.iter().filter_map(|it| Some(format!("{}: {}", it.target, it.finding.as_ref()?)));
    let found: Vec<String> = found.collect();
    if found.is_empty() { Ok(()) } else { Err(found.join("\n\n")) }
}

fn asked<'a>(arguments: &[&'a str]) -> Result<Asked<'a>, String> {
    let mut asked = Asked { seconds: SECONDS, within: None, named: Vec::new() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|text| text.parse::<u64>().ok());
            number.filter(|number| *number > 0).ok_or_else(|| USAGE.to_owned())
        };
        match *word {
            "--seconds" => asked.seconds = number()?,
            "--within" => asked.within = Some(number()?),
            word if word.starts_with('-') => return Err(USAGE.to_owned()),
            word => asked.named.push(word),
        }
    }
    Ok(asked)
}

/// The names of the targets, in the order of their files.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let place = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let names = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
    Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Builds all; where the programs are, or `None` when it took too long.
fn build(root: &Path, place: &Path, left: Option<u64>) -> Result<Option<PathBuf>, String> {
    let into = place.join("build");
    let mut build = Command::new("timeout");
    // Without an end where none is asked for.
    build.arg(left.unwrap_or(0).to_string()).current_dir(root);
    build.args(["rustup", "run", "nightly", "cargo", "fuzz", "build", "--target-dir"]);
    build.arg(&into);
    // Those of the toolchain that runs this.
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        build.env_remove(name);
    }
    let status = build.status().map_err(|e| format!("{}: {e}", command::line_of(&build)))?;
    match status.code() {
        Some(0) => Ok(Some(into.join(TRIPLE).join("release"))),
        Some(TIMED_OUT) => Ok(None),
        _ => Err(format!(
            "{}: {status}\nfuzzing needs a nightly compiler and cargo-fuzz: scripts/setup.sh ci",
            command::line_of(&build)
        )),
    }
}

/// What `timeout` ends with.
const TIMED_OUT: i32 = 124;

/// Words that inputs are made of: all keys of our files.
fn dictionary(root: &Path, file: &Path) -> Result<(), String> {
    let schemas = root.join("docs/schema");
    let entries = fs::read_dir(&schemas).map_err(|e| format!("{}: {e}", schemas.display()))?;
    let mut words = BTreeSet::new();
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        for word in text.split('"') {
            let is_key = word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '-');
            if is_key && (3..30).contains(&word.len()) {
                words.insert(format!("\"{word}\"\n"));
            }
        }
    }
    fs::write(file, words.into_iter().collect::<String>()).map_err(|e| e.to_string())
}

fn fuzz(programs: &Path, place: &Path, target: &str, seconds: u64) -> Result<Ran, String> {
    let (corpus, found) = (place.join("corpus").join(target), place.join("found").join(target));
    for directory in [&corpus, &found] {
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    let mut run = Command::new(programs.join(target));
    run.args(["-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-timeout=60", "-detect_leaks=0"]);
    run.args(["-print_final_stats=1", "-max_len=16384", "-verbosity=1"]);
    run.arg(format!("-max_total_time={seconds}"));
    run.arg(format!("-artifact_prefix={}/", found.display()));
    run.arg(format!("-dict={}", place.join("words.dict").display()));
    run.arg(&corpus).arg(place.join("seeds").join(target));
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let child = run.spawn().map_err(|e| format!("{target}: {e}"))?;
    let scratch = format!("/dev/shm/timewire-fuzz-{}", child.id());
    let ended = child.wait_with_output().map_err(|e| format!("{target}: {e}"))?;
    // Not there when the target needs no files.
    let _ = fs::remove_dir_all(scratch);
    let said = String::from_utf8_lossy(&ended.stderr);
    let inputs = said
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok());
    let finding = (!ended.status.success()).then(|| {
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    });
    let seconds = started.elapsed().as_secs();
    Ok(Ran { target: target.to_owned(), seconds, inputs: inputs.unwrap_or(0), finding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_every_target_is_a_program_of_the_manifest_and_has_examples() {
        let root = crate::root();
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let seeds = fs::read_to_string(root.join("fuzz/src/bin/seeds.rs")).unwrap();
        for target in targets(&root).unwrap() {
            let path = format!("path = \"fuzz_targets/{target}.rs\"");
            assert!(manifest.contains(&path), "{target} is not in fuzz/Cargo.toml");
            assert!(seeds.contains(&format!("(\"{target}\", ")), "{target} has no examples");
        }
    }

    #[test]
    fn t0_what_is_asked() {
        let some = Asked { seconds: 5, within: Some(9), named: vec!["yang"] };
        assert_eq!(asked(&["--seconds", "5", "--within", "9", "yang"]), Ok(some));
        assert_eq!(asked(&[]), Ok(Asked { seconds: 60, within: None, named: vec![] }));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--within", "x"], &["--fast"]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test run: format, lints, licences, advisories, then every test of the workspace. Each check
//! counts as one; the last line is `N passed, N failed, N skipped`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::command::{self, cargo, exists, watched};
use crate::processes::{self, Process};
use crate::skip::{Runner, Skip, SkipList};
use crate::test_output::TestOutput;

/// A test program that tells of no test for so long hangs.
const SILENCE: Duration = Duration::from_secs(360);

/// Runs everything, whatever fails on the way.
///
/// **Errors**: something failed, or was skipped that may not be skipped here.
pub fn run(root: &Path) -> Result<(), String> {
    let allowed = SkipList::load(root)?;
    let mut tally = Tally::default();
    tally.add("format", command::succeed(&mut cargo(root, &["fmt", "--all", "--check"])));
    let format = ["fmt", "--manifest-path", "peers/Cargo.toml", "--check"];
    tally.add("format of peers", command::succeed(&mut cargo(root, &format)));
    tally.add("lints", lints(root, &["--workspace"]));
    tally.add("lints of peers", lints(root, &PEERS));
    tally.add("licences", licences(root));
    advisories(root, &mut tally);
    tests(root, &mut tally);
    tally.finish(&allowed, Runner::here())
}

/// The workspace of its own, of which cargo is told apart.
const PEERS: [&str; 4] = ["--manifest-path", "peers/Cargo.toml", "--target-dir", "target/peers"];

#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failures: Vec<String>,
    failed_tests: u64,
    /// Tests that failed beside others and passed alone.
    second: Vec<String>,
    skips: Vec<Skip>,
}

impl Tally {
    fn add(&mut self, name: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                println!("ok: {name}");
                self.passed += 1;
            }
            Err(why) => {
                println!("FAILED: {name}: {why}");
                self.failures.push(name.to_owned());
            }
        }
    }

    /// Prints the totals.
    fn finish(mut self, allowed: &SkipList, runner: Runner) -> Result<(), String> {
        println!();
        for skip in &self.skips {
            if allowed.allows(runner, skip) {
                println!("{skip}");
            } else {
                println!("{skip} (not in xtask/skips.txt)");
                if runner == Runner::Ci {
                    self.failures.push(format!("{} may not be skipped here", skip.name));
                }
            }
        }
        for name in &self.second {
            println!("SECOND: {name}: failed beside other tests, passed alone");
        }
        for failure in &self.failures {
            println!("FAILED: {failure}");
        }
        let failures = u64::try_from(self.failures.len()).unwrap_or(u64::MAX);
        let failed = self.failed_tests.saturating_add(failures);
        println!("{} passed, {failed} failed, {} skipped", self.passed, self.skips.len());
        if failed == 0 { Ok(()) } else { Err("the test run failed".to_owned()) }
    }
}

fn lints(root: &Path, of: &[&str]) -> Result<(), String> {
    let mut clippy = watched(root, &["clippy", "--all-targets"]);
    command::succeed(clippy.args(of).args(["--", "--deny", "warnings"]))
}

fn licences(root: &Path) -> Result<(), String> {
    if !exists("cargo-deny") {
        return Err("cargo-deny is not installed; run scripts/setup.sh test".to_owned());
    }
    let check = ["deny", "--log-level", "error", "check", "licenses", "bans", "sources"];
    command::succeed(&mut cargo(root, &check))
}

/// Known vulnerabilities of the dependencies; their list lives on the network.
fn advisories(root: &Path, tally: &mut Tally) {
    if command::output_of(&mut cargo(root, &["deny", "fetch", "db"])).is_err() {
        let reason = "the advisory database cannot be fetched from here".to_owned();
        tally.skips.push(Skip { name: "advisories".to_owned(), reason });
        return;
    }
    let check = ["deny", "--log-level", "error", "check", "--disable-fetch", "advisories"];
    tally.add("advisories", command::succeed(&mut cargo(root, &check)));
}

fn tests(root: &Path, tally: &mut Tally) {
    // Built first and apart, so that its messages and those of the tests do not mix.
    let mut build = watched(root, &["test", "--workspace", "--no-run"]);
    let built = command::succeed(&mut build);
    let compiles = built.is_ok();
    tally.add("build of the tests", built);
    if compiles && let Err(why) = run_tests(root, tally, &["--workspace"]) {
        tally.add("test programs", Err(why));
    }
    // Built apart, too: to those who wait for a test, a build is silence.
    let mut build = watched(root, &["test", "--no-run"]);
    tally.add("build of the tests of peers", command::succeed(build.args(PEERS)));
    if let Err(why) = run_tests(root, tally, &PEERS) {
        tally.add("test programs of peers", Err(why));
    }
}

/// All tests of these packages. Where a few on a kernel fail, those run a second time, alone; each
/// that passes then is told and counted as passed.
fn run_tests(root: &Path, tally: &mut Tally, of: &[&str]) -> Result<(), String> {
    let mut first = run_programs(root, of, &[])?;
    tally.passed += first.output.passed();
    tally.failed_tests += first.output.failed;
    if let Some(names) = first.output.again() {
        println!("\nsecond run, alone, of: {}", names.join(", "));
        let mut alone = vec!["--test-threads=1", "--exact"];
        alone.extend(names.iter().map(String::as_str));
        let second = run_programs(root, &[of, &["--lib", "--bins", "--tests"]].concat(), &alone)?;
        let failed = &second.output.failures;
        let passed = names.iter().filter(|name| !failed.contains(name)).cloned();
        let passed: Vec<String> = if second.is_told() { passed.collect() } else { Vec::new() };
        let mended = u64::try_from(passed.len()).unwrap_or(u64::MAX).min(second.output.passed());
        tally.passed += mended;
        tally.failed_tests = tally.failed_tests.saturating_sub(mended);
        tally.second.extend(passed);
    }
    tally.skips.append(&mut first.output.skips);
    tally.failures.append(&mut first.hangs);
    // A test program that crashes prints no totals, so the exit status counts as well.
    if first.is_told() { Ok(()) } else { Err(format!("cargo test: {}", first.status)) }
}

/// What a run of test programs said, and how it ended.
struct ProgramsRun {
    output: TestOutput,
    /// Programs that were killed, with the tests they were at.
    hangs: Vec<String>,
    status: ExitStatus,
}

impl ProgramsRun {
    /// Whether its failures are among those that were told.
    fn is_told(&self) -> bool {
        self.status.success() || self.output.failed > 0
    }
}

fn run_programs(root: &Path, of: &[&str], to_tests: &[&str]) -> Result<ProgramsRun, String> {
    let mut command = cargo(root, &["test", "--no-fail-fast"]);
    command.args(of).args(["--", "--show-output"]).args(to_tests).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cargo test: {error}"))?;
    let stdout = child.stdout.take().expect("invariant: standard output was piped");
    let (to_here, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n');
        lines.for_each(|line| drop(to_here.send(line)));
    });
    let (mut output, mut hangs, mut was_silent) = (TestOutput::default(), Vec::new(), false);
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                was_silent = false;
                let line = line.map_err(|error| format!("cargo test: {error}"))?;
                if let Some(shown) = output.on(&String::from_utf8_lossy(&line)) {
                    println!("{shown}");
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                hangs.extend(end_what_hangs(child.id(), was_silent, &output));
                was_silent = true;
                // Without it nobody but a process that was left holds the output.
                if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    Ok(ProgramsRun { output, hangs, status })
}

/// Ends what keeps test programs from telling anything. First what their tests started:
/// those fail then, and others go on. The second time the programs, with what to say of it; cargo
/// goes on with the next.
fn end_what_hangs(cargo: u32, again: bool, output: &TestOutput) -> Option<String> {
    let hanging = processes::below(cargo);
    println!("no test has ended for {} minutes; what there is:", SILENCE.as_secs() / 60);
    hanging.iter().for_each(|process| println!("  {process}"));
    let is_program = |process: &Process| process.parent == cargo;
    let (programs, started): (Vec<_>, Vec<_>) = hanging.into_iter().partition(is_program);
    processes::kill(&started);
    if !again && !started.is_empty() {
        return None;
    }
    processes::kill(&programs);
    Some(format!("hangs: {}", output.running().join(", ")))
}

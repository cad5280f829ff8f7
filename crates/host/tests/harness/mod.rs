// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small test harness with its own main function, for tests that start their own executable
//! again: as a watchdog, or in a role such as a process that is going to be killed. All tests of a
//! file run one after the other in a mount namespace of their own with an empty `/run`, so that
//! they see nobody else's journals and namespaces, and leave nothing.
//!
//! Not here: tests that need none of this (the standard harness runs them).
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use timewire_host::watchdog::WATCHDOG_VERB;
use timewire_host::watchdog_main;
use timewire_sys::namespace::{self, Namespace, Process};

/// A test: its name and its function.
pub type Test = (&'static str, fn());

/// What this executable can be started as: its name, and its function of the arguments.
pub type RoleOf = (&'static str, fn(&[String]));

/// Runs this process as what it was started for: watchdog, role, or the tests.
pub fn main(tests: &[Test], roles: &[RoleOf]) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.split_first() {
        Some((verb, [journal])) if verb == WATCHDOG_VERB => match watchdog_main(Path::new(journal))
        {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("watchdog: {error}");
                ExitCode::from(3)
            }
        },
        Some((verb, [role, rest @ ..])) if verb == "role" => {
            let (_, run) = roles.iter().find(|(name, _)| name == role).expect("a known role");
            run(rest);
            ExitCode::SUCCESS
        }
        _ => run_tests(tests, &arguments),
    }
}

fn run_tests(tests: &[Test], arguments: &[String]) -> ExitCode {
    let filters: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let tests = tests.iter().filter(|(name, _)| chosen(name));
    if arguments.iter().any(|argument| argument == "--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let tests: Vec<_> = tests.collect();
    if let Err(why) = isolate() {
        println!("\nsuccesses:\n");
        for (name, _) in &tests {
            println!("---- {name} stdout ----\nSKIP: {why}\n");
        }
        return result(tests.len(), 0);
    }
    let mut failed = 0;
    for (name, test) in &tests {
        let outcome = panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(outcome.is_err());
    }
    result(tests.len() - failed, failed)
}

/// The closing line of the standard harness, by which tests are counted.
fn result(passed: usize, failed: usize) -> ExitCode {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn isolate() -> Result<(), String> {
    if namespace::effective_user() != 0 {
        return Err("needs root".into());
    }
    namespace::unshare(&[Namespace::Mount])
        .and_then(|()| namespace::make_mounts_private())
        .and_then(|()| namespace::mount_tmpfs(Path::new("/run")))
        .map_err(|error| format!("no mount namespace: {error}"))
}

/// Waits until a condition holds; panics with its name after a long while.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        // A thread that owns scheduling groups goes before their members; it has to sleep.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// This executable in a role: it talks by lines, and lives until it is told or killed.
pub struct Role {
    pub child: Child,
    pub stdin: ChildStdin,
    pub stdout: BufReader<ChildStdout>,
}

impl Role {
    pub fn start(role: &str, arguments: &[&str]) -> Role {
        Role::spawn(Command::new("/proc/self/exe").arg("role").arg(role).args(arguments))
    }

    pub fn spawn(command: &mut Command) -> Role {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Role { child, stdin, stdout }
    }

    /// The next line it says; empty when it has ended.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself: its stdin closes.
    pub fn end(self) {
        let Role { mut child, stdin, .. } = self;
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}

/// In a role: waits until the other side tells a line; `None` when it closes.
pub fn hear_line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// The watchdog of an undo log.
pub fn watchdog_of(journal: &str) -> Option<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut watchdogs = pids.filter(|pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        words.contains(&WATCHDOG_VERB.as_bytes()) && words.contains(&journal.as_bytes())
    });
    watchdogs.next().and_then(|pid| Process::of(pid).ok()).filter(|process| process.is_alive())
}

/// A path of this name that no other test run uses; below `/run`, which is ours.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(format!("/run/{name}-{}", std::process::id()))
}

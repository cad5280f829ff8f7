// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes below one, from `/proc`, for a test program that hangs, and their end.

use std::fmt;
use std::fs;
use std::process::Command;

/// A process, and what it waits for.
#[derive(Debug)]
pub struct Process {
    id: u32,
    /// The one that started it, or who has it since that one ended.
    pub parent: u32,
    /// `proc_pid_stat(5)`: `S` sleeps, `R` runs, `D` is in the kernel, `Z` has ended.
    state: char,
    /// The function of the kernel in which it sleeps, where that is told.
    waits_in: String,
    command: String,
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { id, parent, state, waits_in, command } = self;
        write!(out, "{id} (of {parent}) {state} {waits_in} {command}")
    }
}

impl Process {
    /// `None`: it has ended meanwhile.
    fn read(id: u32) -> Option<Process> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}"));
        let stat = file("stat").ok()?;
        // `ID (NAME) STATE PARENT ...`; the name may have anything in it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let waits_in = file("wchan").unwrap_or_default();
        let command = file("cmdline").unwrap_or_default().replace('\0', " ");
        Some(Process { id, parent, state, waits_in, command: command.chars().take(160).collect() })
    }
}

/// All processes below this one, parents first.
pub fn below(top: u32) -> Vec<Process> {
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let ids = names.filter_map(|name| name.to_str()?.parse().ok());
    let mut others: Vec<Process> = ids.filter_map(Process::read).collect();
    let (mut found, mut parents) = (Vec::new(), vec![top]);
    while let Some(parent) = parents.pop() {
        for child in others.extract_if(.., |process| process.parent == parent) {
            parents.push(child.id);
            found.push(child);
        }
    }
    found
}

/// Ends them at once, parents first.
pub fn kill(processes: &[Process]) {
    let ids = processes.iter().map(|process| process.id.to_string());
    let words = ids.fold("kill -KILL".to_owned(), |words, id| words + " " + &id);
    if processes.is_empty() {
        return;
    }
    // Those that have ended meanwhile are no error.
    let _ = Command::new("sh").args(["-c", &words]).status();
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn t0_the_processes_below_one_are_found_and_ended() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000; true"]).stdin(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let of_shell =
            |found: &[Process]| found.iter().any(|it| it.command.starts_with("sleep 1000"));
        while !of_shell(&below(shell.id())) {
            std::thread::yield_now();
        }
        let mine = below(std::process::id());
        assert!(mine.iter().any(|it| it.id == shell.id()), "{mine:?}");
        let line = below(shell.id())[0].to_string();
        assert!(
            line.contains(&format!("(of {}) ", shell.id())) && line.ends_with("sleep 1000 "),
            "{line}"
        );
        kill(&below(shell.id()));
        // The sleep is gone, and the shell went on to its end.
        assert!(shell.wait().unwrap().success());
    }
}

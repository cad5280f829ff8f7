// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that somebody asks to end: with Ctrl-C in a terminal, which goes to all processes of
//! the foreground, and each by itself.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::{Host, Running, Said, TIMEWIRE, wait_until};

/// What is waited for before the signal.
pub type Condition = fn(&Host) -> bool;

/// To whom a signal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The whole process group, as from a terminal.
    Group,
    /// The command alone, as from a service manager.
    Alone,
}

/// Signals, and to whom they go.
pub const WAYS: [(&str, To); 3] = [("INT", To::Group), ("TERM", To::Group), ("TERM", To::Alone)];

/// The command in a session of its own, as a terminal has it, ended with a signal.
#[track_caller]
pub fn interrupted(
    host: &Host,
    words: &[&str],
    condition: Condition,
    (signal, to): (&str, To),
) -> Said {
    let running = host.spawn_in("", &[&["setsid", TIMEWIRE], words].concat());
    end(running, words, || condition(host), (signal, to))
}

/// Signals a command that leads a session, once a condition holds; what it said.
#[track_caller]
pub fn end(
    mut running: Running,
    words: &[&str],
    condition: impl Fn() -> bool,
    (signal, to): (&str, To),
) -> Said {
    wait_until(&format!("{words:?} is under way"), || condition() || running.has_ended());
    assert!(!running.has_ended(), "{words:?} ended by itself: {:?}", running.end());
    let whom = match to {
        To::Group => format!("-{}", running.pid()),
        To::Alone => running.pid().to_string(),
    };
    let done = Command::new("kill").args([&format!("-{signal}"), "--", &whom]).status();
    assert!(done.expect("a command of every host").success(), "{words:?}: nobody is {whom}");
    running.end()
}

/// Whether a command of ours looks at signals itself.
pub fn hears(host: &Host) -> bool {
    hearing(host, 0)
}

/// Whether the one with this word on its command line does.
pub fn hears_as(host: &Host, word: &str) -> bool {
    host.processes_with(word).iter().any(|process| hears_by_itself(process.pid))
}

/// Whether one does, and has worked for a while since: what it computes is seen nowhere else.
pub fn computes(host: &Host) -> bool {
    hearing(host, 30)
}

fn hearing(host: &Host, least_ticks: u64) -> bool {
    host.processes().iter().filter(|process| process.command.starts_with(TIMEWIRE)).any(|process| {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{}/{file}", process.pid)).unwrap_or_default()
        };
        // After the name, which is in parentheses: user and system time of all threads, in ticks.
        let stat = read("stat");
        let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        hears_by_itself(process.pid) && ticks >= least_ticks
    })
}

/// Whether a process has blocked SIGINT, the second signal, to wait for it.
fn hears_by_itself(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & 2 != 0)
}

/// Every verb that has none below it, as the manual has them.
pub fn leaves(scratch: &super::Scratch) -> BTreeSet<String> {
    let directory = scratch.join("manual");
    super::timewire(&["man", "--into", &directory]).done();
    let mut pages = super::list(directory.as_ref());
    pages.retain(|page| page != "timewire.1");
    let names: Vec<_> = pages
        .iter()
        .filter_map(|page| page.strip_prefix("timewire-")?.strip_suffix(".1"))
        .collect();
    let has_more = |name: &str| names.iter().any(|it| it.starts_with(&format!("{name}-")));
    names.iter().filter(|name| !has_more(name)).map(|name| name.replace('-', " ")).collect()
}

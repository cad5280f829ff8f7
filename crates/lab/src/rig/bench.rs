// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network that was made: running things on it, looking at its disciplines, taking it down.
//!
//! Not here: traffic (`traffic`).

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU16, Ordering};

use timewire_base::{Instant, Tai};
use timewire_host::tool::{self, Tool, netns_path};
use timewire_sys::clock;

use super::spec::Rig;
use crate::LabError;
use crate::ns::{self, OnParentDeath};

/// A network that is there. Dropping it takes it down; of a killed process its namespaces stay.
#[derive(Debug)]
pub struct Bench {
    pub(super) rig: Rig,
    prefix: String,
    runs: AtomicU16,
}

impl Bench {
    pub(super) fn of(rig: Rig, prefix: String) -> Bench {
        Bench { rig, prefix, runs: AtomicU16::new(0) }
    }

    /// A whole second of TAI, at least one second from now.
    pub fn soon(&self) -> Instant<Tai> {
        let now = clock::now::<Tai>().as_ns();
        Instant::from_ns((now.div_euclid(SECOND) + 2) * SECOND)
    }

    /// The namespace of a node.
    ///
    /// **Panics** when there is no such node.
    pub fn netns(&self, node: &str) -> PathBuf {
        netns_path(&self.netns_name(self.node(node)))
    }

    /// The interface of one node towards another, in the first one's namespace.
    ///
    /// **Panics** when there is no such node or link.
    pub fn interface(&self, on: &str, towards: &str) -> String {
        let found = self.rig.interface(self.node(on), self.node(towards));
        found.unwrap_or_else(|| panic!("{on} has no link to {towards}"))
    }

    /// Runs a `tc` command line at a node; `DEV` stands for the interface towards the other.
    ///
    /// **Errors**: the kernel refuses.
    pub fn tc(&self, on: &str, towards: &str, line: &str) -> Result<(), LabError> {
        let line = line.replace("DEV", &self.interface(on, towards));
        Ok(tool::batch(Tool::Tc, Some(&self.netns_name(self.node(on))), &[line])?)
    }

    /// The disciplines of an interface with their counters.
    ///
    /// **Errors**: `tc` fails.
    pub fn disciplines(&self, on: &str, towards: &str) -> Result<Vec<Discipline>, LabError> {
        let (netns, dev) = (self.netns_name(self.node(on)), self.interface(on, towards));
        // Not as JSON: that of taprio is none in older versions of tc.
        let text = tool::run(Tool::Tc, &["-n", &netns, "-s", "qdisc", "show", "dev", &dev])?;
        Ok(Discipline::parse(&text))
    }

    /// The counters of all disciplines of a kind on an interface, added up.
    ///
    /// **Errors**: as [`Bench::disciplines`].
    pub fn counted(&self, on: &str, towards: &str, kind: &str) -> Result<Discipline, LabError> {
        let mut sum = Discipline { kind: kind.to_owned(), ..Discipline::default() };
        for one in self.disciplines(on, towards)?.into_iter().filter(|one| one.kind == kind) {
            sum.sent += one.sent;
            sum.dropped += one.dropped;
            sum.waiting += one.waiting;
        }
        Ok(sum)
    }

    /// Starts a program at a node.
    ///
    /// **Errors**: it cannot be started.
    pub fn spawn(&self, on: &str, command: Command) -> Result<Child, LabError> {
        ns::spawn(&self.netns(on), command, OnParentDeath::Kill)
    }

    /// Sleeps until an instant: exact in virtual time.
    pub fn sleep_until(&self, at: Instant<Tai>) {
        clock::sleep_until(at);
    }

    /// The number of a new run of flows.
    pub(super) fn next_run(&self) -> u16 {
        self.runs.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn node(&self, name: &str) -> usize {
        let found = self.rig.nodes.iter().position(|node| node.name == name);
        found.unwrap_or_else(|| panic!("the rig has no node {name}"))
    }

    pub(super) fn netns_name(&self, node: usize) -> String {
        format!("{}-{}", self.prefix, self.rig.nodes[node].name)
    }

    /// No node can be called so: a node's name has no dot.
    pub(super) fn wire_name(&self, link: usize) -> String {
        format!("{}.wire-{link}", self.prefix)
    }

    pub(super) fn namespaces(&self) -> Vec<String> {
        let nodes = (0..self.rig.nodes.len()).map(|node| self.netns_name(node));
        let links = self.rig.links.iter().enumerate();
        let wires = links.filter(|(_, link)| self.rig.has_wire(link));
        nodes.chain(wires.map(|(at, _)| self.wire_name(at))).collect()
    }
}

/// A discipline, counting frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discipline {
    /// Such as `taprio`.
    pub kind: String,
    /// The place it has: `root`, or the parent's class such as `100:1`.
    pub parent: String,
    /// Frames that it let go.
    pub sent: u64,
    /// Frames that it dropped.
    pub dropped: u64,
    /// Frames that it holds.
    pub waiting: u64,
}

impl Discipline {
    /// From what `tc -s qdisc show` writes.
    fn parse(text: &str) -> Vec<Discipline> {
        let mut found: Vec<Discipline> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| {
                let digits = words.get(at)?.trim_end_matches(|c: char| !c.is_ascii_digit());
                digits.parse::<u64>().ok()
            };
            match (words.as_slice(), found.last_mut()) {
                (["qdisc", kind, _, place, rest @ ..], _) => {
                    let parent = if *place == "parent" { rest.first() } else { Some(place) };
                    found.push(Discipline {
                        kind: (*kind).to_owned(),
                        parent: parent.copied().unwrap_or_default().to_owned(),
                        ..Discipline::default()
                    });
                }
                (["Sent", ..], Some(last)) => {
                    last.sent = number(3).unwrap_or(0);
                    last.dropped = number(6).unwrap_or(0);
                }
                (["backlog", ..], Some(last)) => last.waiting = number(2).unwrap_or(0),
                _ => {}
            }
        }
        found
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let there = self.namespaces().into_iter().filter(|name| netns_path(name).exists());
        let lines: Vec<_> = there.map(|name| format!("netns del {name}")).collect();
        if let Err(error) = tool::batch(Tool::Ip, None, &lines) {
            eprintln!("timewire: {error}");
        }
    }
}

const SECOND: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_counters_are_read_from_the_words_of_tc() {
        let text = "\
qdisc taprio 8001: root refcnt 9 tc 2 map 0 1 0 0
queues offset 0 count 1 offset 1 count 1
clockid TAI base-time 0 cycle-time 640000 cycle-time-extension 0
\tindex 0 cmd S gatemask 0x2 interval 320000

 Sent 1000 bytes 10 pkt (dropped 3, overlimits 2 requeues 0)
 backlog 300b 4p requeues 0
qdisc pfifo 0: parent 8001:8 limit 1000p
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
";
        let [taprio, pfifo] = Discipline::parse(text).try_into().unwrap();
        let expected = Discipline {
            kind: "taprio".to_owned(),
            parent: "root".to_owned(),
            sent: 10,
            dropped: 3,
            waiting: 4,
        };
        assert_eq!(taprio, expected);
        assert_eq!((pfifo.kind.as_str(), pfifo.parent.as_str()), ("pfifo", "8001:8"));
    }
}

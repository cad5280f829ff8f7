// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a model does: for each member its threads, how long they ran and waited for a processor,
//! and how well its windows were kept.

use std::fs;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_sys::clock;

use super::hold::Held;
use super::model::Model;
use super::supervisor::Kept;
use super::{POLL_INTERVAL, cgroup};

/// The `schema` field of a [`ModelStatus`].
pub const STATUS_SCHEMA: &str = "timewire.group-status/1";

/// The `--json` form of `group show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelStatus {
    /// Format and version.
    pub schema: String,
    /// The process that keeps the model.
    pub pid: u32,
    /// How members are followed to what they start.
    pub follow: String,
    /// Whether the clock that windows are kept by is synchronised.
    pub clock: String,
    /// What the host refused or lacks.
    pub notes: Vec<String>,
    /// The tree, in its order.
    pub rows: Vec<RowStatus>,
}

/// A line of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "snake_case")]
pub enum RowStatus {
    /// A group, as in `group check --json`.
    Group {
        /// Everything about it.
        group: Json,
    },
    /// A member.
    Member(Box<MemberStatus>),
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// What was asked for it, as in `group check --json`.
    pub asked: Json,
    /// Its processes that run, with those they have started.
    pub processes: Vec<u32>,
    /// How many threads they have.
    pub threads: u64,
    /// How long those threads have run, ns; none where the kernel does not count it.
    pub run_ns: Option<u64>,
    /// How long they have waited for a processor, ns.
    pub wait_ns: Option<u64>,
    /// How often they were given a processor.
    pub slices: Option<u64>,
    /// How often they gave it up, or had to.
    pub switches: u64,
    /// How well its windows were kept.
    pub kept: Option<Kept>,
}

impl Model {
    /// How it does now.
    pub fn status(&self) -> ModelStatus {
        let of_plan = self.plan.iter().flat_map(|plan| plan.notes.iter().cloned());
        let mut notes: Vec<String> = of_plan.chain(self.troubles.iter().cloned()).collect();
        for note in self.held.iter().flat_map(|held| &held.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let report = self.plan.as_ref().map(|plan| serde_json::to_value(plan.report()));
        let report = report.and_then(Result::ok).unwrap_or_default();
        let rows = report["rows"].as_array().cloned().unwrap_or_default();
        let kept = self.supervisor.kept();
        let rows = rows.into_iter().map(|row| {
            if row["row"] == "group" {
                return RowStatus::Group { group: row };
            }
            let key = row["key"].as_str().unwrap_or_default().to_owned();
            let its: Vec<&Held> = self.held.iter().filter(|held| held.key == key).collect();
            let kept = kept.iter().find(|(other, _)| *other == key).map(|(_, kept)| *kept);
            RowStatus::Member(Box::new(member(row, &its, kept)))
        });
        let follow = match cgroup::mount() {
            Some(mount) => format!("control groups below {}", mount.display()),
            None => format!("a look at all processes every {} ms", POLL_INTERVAL.as_millis()),
        };
        let clock = match clock::discipline() {
            Ok(discipline) if discipline.synchronised => {
                format!("synchronised, largest error {}", discipline.max_error)
            }
            Ok(_) => "not synchronised: windows are those of this host alone".to_owned(),
            Err(error) => format!("unknown: {error}"),
        };
        ModelStatus {
            schema: STATUS_SCHEMA.to_owned(),
            pid: std::process::id(),
            follow,
            clock,
            notes,
            rows: rows.collect(),
        }
    }
}

fn member(asked: Json, held: &[&Held], kept: Option<Kept>) -> MemberStatus {
    let threads: Vec<(u32, u32)> = held.iter().flat_map(|held| held.threads()).collect();
    let mut status = MemberStatus {
        asked,
        processes: held.iter().flat_map(|held| held.processes()).collect(),
        threads: threads.len() as u64,
        run_ns: None,
        wait_ns: None,
        slices: None,
        switches: 0,
        kept,
    };
    for (pid, tid) in threads {
        let task = format!("/proc/{pid}/task/{tid}");
        if let Ok(text) = fs::read_to_string(format!("{task}/schedstat"))
            && let Some([run, wait, slices]) = schedstat(&text)
        {
            for (sum, value) in [
                (&mut status.run_ns, run),
                (&mut status.wait_ns, wait),
                (&mut status.slices, slices),
            ] {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
        let text = fs::read_to_string(format!("{task}/status")).unwrap_or_default();
        status.switches = status.switches.saturating_add(switches(&text));
    }
    status
}

/// Time on a processor, time waiting for one, and how often (linux v6.12
/// `fs/proc/base.c:proc_pid_schedstat`). A kernel that does not count says zeros.
fn schedstat(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let all = [numbers.next()??, numbers.next()??, numbers.next()??];
    (all != [0, 0, 0]).then_some(all)
}

/// Both kinds of context switches of a thread.
fn switches(status: &str) -> u64 {
    let of_line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches").then(|| value.trim().parse::<u64>().ok())?
    };
    status.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_the_kernel_counts_is_read() {
        assert_eq!(schedstat("1200 34 5\n"), Some([1200, 34, 5]));
        assert_eq!(schedstat("0 0 0\n"), None);
        assert_eq!(schedstat(""), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), 15);
    }
}

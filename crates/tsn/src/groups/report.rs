// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan of groups for people and for programs.

use std::fmt;

use serde::Serialize;
use timewire_base::CyclicWindows;

use super::{Assignment, GroupPlan, PlannedGroup, Row, Scheduling};
use timewire_model::scenario::host::{CpuList, GroupPolicy};

/// The `schema` field of a [`PlanReport`].
pub const PLAN_SCHEMA: &str = "timewire.group-plan/1";

/// The `--json` form of `group check`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Format and version.
    pub schema: &'static str,
    /// Real-time priority of the thread that opens and closes windows.
    pub supervisor_priority: u8,
    /// The tree, in its order.
    pub rows: Vec<RowReport>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A line of the tree.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "row", rename_all = "snake_case")]
pub enum RowReport {
    /// A group.
    Group {
        /// How deep it stands.
        depth: usize,
        /// Its name.
        name: String,
        /// How one of its members is chosen.
        policy: &'static str,
        /// Lowest and highest real-time priority of its members.
        priorities: Option<(u8, u8)>,
        /// Where they may run.
        cpus: Option<String>,
        /// Its cycle, ns.
        cycle_ns: Option<i64>,
        /// What Linux guarantees.
        guarantee: String,
    },
    /// A member.
    Member(MemberReport),
}

/// What is asked of the host for a member.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MemberReport {
    /// How deep it stands.
    pub depth: usize,
    /// Where in the file.
    pub key: String,
    /// What it is, in words.
    pub member: String,
    /// `SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE`.
    pub policy: &'static str,
    /// Its real-time priority.
    pub priority: Option<u8>,
    /// Its reservation, ns: runtime, deadline, period.
    pub reservation_ns: Option<(i64, i64, i64)>,
    /// Where it may run.
    pub cpus: Option<String>,
    /// When it may run.
    pub windows: Option<CyclicWindows>,
}

impl GroupPlan {
    /// As data.
    pub fn report(&self) -> PlanReport {
        let row = |row: &Row| match row {
            Row::Group(group) => RowReport::Group {
                depth: group.depth,
                name: group.name.clone(),
                policy: group.policy.word(),
                priorities: group.priorities,
                cpus: group.cpus.as_ref().map(CpuList::to_string),
                cycle_ns: group.cycle.map(|cycle| cycle.as_ns()),
                guarantee: group.guarantee.clone(),
            },
            Row::Member(member) => RowReport::Member(member.report()),
        };
        PlanReport {
            schema: PLAN_SCHEMA,
            supervisor_priority: self.supervisor_priority,
            rows: self.rows.iter().map(row).collect(),
            notes: self.notes.clone(),
        }
    }
}

impl Assignment {
    /// As data.
    pub fn report(&self) -> MemberReport {
        MemberReport {
            depth: self.depth,
            key: self.key.clone(),
            member: self.member.to_string(),
            policy: self.scheduling.policy(),
            priority: self.scheduling.priority(),
            reservation_ns: self.scheduling.reservation_ns(),
            cpus: self.cpus.as_ref().map(CpuList::to_string),
            windows: self.windows.clone(),
        }
    }
}

impl Scheduling {
    /// The kernel's name of the policy.
    pub fn policy(self) -> &'static str {
        match self {
            Scheduling::Fifo { .. } => "SCHED_FIFO",
            Scheduling::RoundRobin { .. } => "SCHED_RR",
            Scheduling::Deadline { .. } => "SCHED_DEADLINE",
        }
    }

    /// The real-time priority, of those that have one.
    pub fn priority(self) -> Option<u8> {
        match self {
            Scheduling::Fifo { priority } | Scheduling::RoundRobin { priority } => Some(priority),
            Scheduling::Deadline { .. } => None,
        }
    }

    fn reservation_ns(self) -> Option<(i64, i64, i64)> {
        match self {
            Scheduling::Deadline { runtime, deadline, period } => {
                Some((runtime.as_ns(), deadline.as_ns(), period.as_ns()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduling::Fifo { priority } | Scheduling::RoundRobin { priority } => {
                write!(f, "{} {priority}", self.policy())
            }
            Scheduling::Deadline { runtime, deadline, period } => {
                write!(f, "{} {runtime} by {deadline} every {period}", self.policy())
            }
        }
    }
}

/// The tree with what is asked for each member, and what holds for each group.
impl fmt::Display for GroupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            match row {
                Row::Group(group) => writeln!(f, "{group}")?,
                Row::Member(member) => writeln!(f, "{member}")?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl fmt::Display for PlannedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = "  ".repeat(self.depth);
        write!(f, "{indent}{} ({}", self.name, self.policy.word())?;
        if let Some(cycle) = self.cycle {
            write!(f, ", cycle {cycle}")?;
        }
        match self.priorities {
            Some((lowest, highest)) if lowest == highest => write!(f, ", priority {highest}")?,
            Some((lowest, highest)) => write!(f, ", priorities {highest} to {lowest}")?,
            None => {}
        }
        if let Some(cpus) = &self.cpus {
            write!(f, ", CPUs {cpus}")?;
        }
        write!(f, ")\n{indent}  | {}", self.guarantee)
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = format!("{}{}", "  ".repeat(self.depth), self.member);
        write!(f, "{member:<40} {}", self.scheduling)?;
        if let Some(windows) = &self.windows {
            write!(f, ", windows")?;
            for (i, window) in windows.windows().iter().enumerate() {
                if i == SHOWN_WINDOWS {
                    write!(f, " and {} more", windows.windows().len() - i)?;
                    break;
                }
                write!(f, " {}+{}", window.offset, window.length)?;
            }
            write!(f, " of {}", windows.cycle())?;
        }
        Ok(())
    }
}

/// What Linux makes of a policy, honestly.
pub(super) fn guarantee(policy: GroupPolicy, cpus: Option<&CpuList>) -> &'static str {
    let one_cpu = cpus.is_some_and(|cpus| cpus.iter().count() == 1);
    match (policy, one_cpu) {
        (GroupPolicy::Sequential, true) => {
            "descending real-time priorities: on its one CPU, the first member that can run, runs"
        }
        (GroupPolicy::Sequential, false) => {
            "descending real-time priorities: of the members that can run, the first run, as many \
             as there are CPUs"
        }
        (GroupPolicy::Priority, true) => {
            "a real-time priority for each number: on its one CPU, the lowest number that can run, \
             runs; equal ones in the order in which they became able to"
        }
        (GroupPolicy::Priority, false) => {
            "a real-time priority for each number: of the members that can run, the lowest numbers \
             run, as many as there are CPUs; equal ones in the order in which they became able to"
        }
        (GroupPolicy::RoundRobin, _) => {
            "SCHED_RR at one priority: threads, not processes, take turns, each for the quantum of \
             the kernel (kernel.sched_rr_timeslice_ms), on each CPU by itself"
        }
        (GroupPolicy::Tdm, _) => {
            "stopped outside of its windows: late at either end by the wake-up of the supervisor \
             and the time that a thread needs to reach the end of a system call"
        }
        (GroupPolicy::Deadline, _) => {
            "SCHED_DEADLINE: the kernel admits a reservation or refuses it; who wants more than \
             its runtime waits for its next period; threads and processes it starts have none"
        }
    }
}

/// Most windows of a member that a line names.
const SHOWN_WINDOWS: usize = 4;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Linux makes of a tree of groups: for each member the policy, priority, reservation and
//! windows that together give the order which the tree asks for, and in words what that
//! guarantees. What Linux cannot do is an error that says why.
//!
//! Real-time priorities are the one order that Linux keeps among all threads of a processor. So a
//! tree is laid out over them: a `sequential` group gives its members descending ranges, a
//! `priority` group one range to each number, a `round_robin` group one number to all, and in a
//! `tdm` group all members have the same range, since only one of them runs at a time.
//!
//! Not here: reading the tree from a file (`scenario::host`), finding the threads and giving them
//! all this (`timewire-host`).

mod report;
mod windows;

pub use report::{MemberReport, PLAN_SCHEMA, PlanReport, RowReport};

use timewire_base::{CyclicWindows, Instant, Span};

use timewire_model::scenario::host::{CpuList, Group, GroupPolicy, Member, MemberKind};

/// What a plan depends on, apart from the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// How many CPUs are online; `None` is unknown.
    pub cpus: Option<u32>,
    /// How much of each CPU reservations may have, parts per million; `None` is unknown or without
    /// bound (`sched_rt_runtime_us` of `sched_rt_period_us`).
    pub reservable_ppm: Option<u64>,
    /// Whether real-time threads may keep all others from a CPU for ever
    /// (`sched_rt_runtime_us` is -1).
    pub is_unbounded: bool,
    /// Interfaces that threads poll, by name, with the real-time priority of those threads; 0 is
    /// none.
    pub polled: Vec<(String, u8)>,
}

impl Facts {
    /// Nothing is known: only what no host can do is an error.
    pub fn unknown() -> Facts {
        Facts { cpus: None, reservable_ppm: None, is_unbounded: false, polled: Vec::new() }
    }

    /// A host with so many CPUs, of which reservations may have so much.
    pub fn of(cpus: u32, reservable_ppm: Option<u64>) -> Facts {
        Facts { cpus: Some(cpus), reservable_ppm, ..Facts::unknown() }
    }
}

/// How the threads of a member are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// `SCHED_FIFO`: until it sleeps, or a higher priority can run.
    Fifo {
        /// 1 to 99, higher goes first.
        priority: u8,
    },
    /// `SCHED_RR`: as FIFO, but after a quantum the next of the same priority goes on.
    RoundRobin {
        /// 1 to 99, higher goes first.
        priority: u8,
    },
    /// `SCHED_DEADLINE`.
    Deadline {
        /// Time of a processor in each period.
        runtime: Span,
        /// By when after its period began it has had it.
        deadline: Span,
        /// The period.
        period: Span,
    },
}

/// The lowest and highest number of a range of real-time priorities.
pub type PriorityRange = (u8, u8);

/// What is asked of the host for one member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assignment {
    /// Where it stands, from the outermost group on: `.members[2].is`.
    pub key: String,
    /// The group it is in.
    pub group: String,
    /// How deep it stands; the members of the outermost group have 1.
    pub depth: usize,
    /// What it is; never a group.
    pub member: MemberKind,
    /// How its threads are scheduled.
    pub scheduling: Scheduling,
    /// Where they may run; `None` leaves that as it is.
    pub cpus: Option<CpuList>,
    /// When they may run; `None` is always.
    pub windows: Option<CyclicWindows>,
}

/// A group as it is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedGroup {
    /// Its name.
    pub name: String,
    /// How deep it stands; the outermost has 0.
    pub depth: usize,
    /// How one of its members is chosen.
    pub policy: GroupPolicy,
    /// The priorities of its members; none when it has none that use them.
    pub priorities: Option<PriorityRange>,
    /// Where its members may run.
    pub cpus: Option<CpuList>,
    /// Its cycle, with `policy: tdm`.
    pub cycle: Option<Span>,
    /// What Linux really guarantees for it.
    pub guarantee: String,
}

/// A line of the tree: a group, which stands before its members, or a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A group.
    Group(PlannedGroup),
    /// A member that is no group.
    Member(Assignment),
}

/// A tree as it is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupPlan {
    /// The tree, in its order.
    pub rows: Vec<Row>,
    /// The real-time priority of the thread that opens and closes windows: above all members.
    pub supervisor_priority: u8,
    /// What can go wrong on a host with these facts, for the user to know.
    pub notes: Vec<String>,
}

/// Something that Linux cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupError {
    /// Where in the tree, from the outermost group on: `.members[2].is`; empty is the group
    /// itself.
    pub key: String,
    /// What cannot be done, and why.
    pub why: String,
    /// What else would.
    hint: &'static str,
}

impl GroupError {
    /// What the user can do about it; empty when nothing is known.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

impl std::fmt::Display for GroupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "groups{}: {}", self.key, self.why)
    }
}

impl std::error::Error for GroupError {}

impl GroupPlan {
    /// Lays out a tree.
    ///
    /// **Errors**: the first thing in it that Linux, or a host with these facts, cannot do.
    pub fn new(top: &Group, facts: &Facts) -> Result<GroupPlan, GroupError> {
        let highest = top.highest.map_or(HIGHEST, |highest| to_u8(highest.get()));
        let needed = levels(top);
        if needed > usize::from(highest) {
            return Err(GroupError {
                key: String::new(),
                why: format!(
                    "the order of the tree needs {needed} real-time priorities, and there are \
                     {highest} from `highest` down"
                ),
                hint: "members of one `round_robin` group share a priority; so do those with one \
                       number in a `priority` group",
            });
        }
        let around = Around { depth: 0, cpus: None, windows: None, first: true };
        let mut rows = Vec::new();
        group(&mut rows, "", top, highest, &around)?;
        let plan = GroupPlan { rows, supervisor_priority: highest + 1, notes: Vec::new() };
        plan.admit(facts)?;
        Ok(GroupPlan { notes: plan.cautions(facts), ..plan })
    }

    /// What one member that never sleeps would do to the host.
    fn cautions(&self, facts: &Facts) -> Vec<String> {
        let mut notes = Vec::new();
        // Polling is no member that could spin, whatever its priority.
        let polls = |member: &Assignment| match &member.member {
            MemberKind::Napi(napi) => Some(napi.interface.to_string()),
            _ => None,
        };
        let priority = |member: &Assignment| member.scheduling.priority();
        let highest = self.members().filter(|member| polls(member).is_none());
        let Some(highest) = highest.filter_map(priority).max() else { return notes };
        let of_plan = self.members().filter_map(|member| polls(member).zip(priority(member)));
        let mut polled: std::collections::BTreeMap<String, u8> =
            facts.polled.iter().cloned().collect();
        polled.extend(of_plan);
        for (interface, threads) in polled.into_iter().filter(|(_, own)| *own < highest) {
            notes.push(format!(
                "the threads that poll {interface} (priority {threads}) go after members with \
                 priority {highest}: one of those that never sleeps on their CPU stops the \
                 interface, and every change of network settings waits for it"
            ));
        }
        if facts.is_unbounded {
            notes.push(
                "kernel.sched_rt_runtime_us is -1: a member that never sleeps keeps ordinary \
                 programs from its CPUs for ever"
                    .to_owned(),
            );
        }
        notes
    }

    /// The members, in the order of the tree.
    pub fn members(&self) -> impl Iterator<Item = &Assignment> {
        self.rows.iter().filter_map(|row| match row {
            Row::Member(member) => Some(member),
            Row::Group(_) => None,
        })
    }

    /// The admission test of the kernel (linux v6.12 `kernel/sched/deadline.c:__dl_overflow`), for
    /// reservations of one thread each and nobody else's.
    fn admit(&self, facts: &Facts) -> Result<(), GroupError> {
        let (Some(cpus), Some(share_ppm)) = (facts.cpus, facts.reservable_ppm) else {
            return Ok(());
        };
        let mut wanted_ppm = 0_u128;
        for member in self.members() {
            let Scheduling::Deadline { runtime, period, .. } = member.scheduling else {
                continue;
            };
            let ns = |span: Span| u128::try_from(span.as_ns()).unwrap_or(0);
            wanted_ppm += (ns(runtime) * 1_000_000).div_ceil(ns(period).max(1));
            let there_ppm = u128::from(share_ppm) * u128::from(cpus);
            if wanted_ppm > there_ppm {
                return Err(GroupError {
                    key: member.key.clone(),
                    why: format!(
                        "with this one the reservations need {} of a processor, and the kernel \
                         admits {} on {cpus}",
                        percent(wanted_ppm),
                        percent(there_ppm),
                    ),
                    hint: "shorter runtimes, longer periods, or more CPUs; \
                           kernel.sched_rt_runtime_us says how much is admitted",
                });
            }
        }
        Ok(())
    }
}

fn percent(ppm: u128) -> String {
    format!("{}.{}%", ppm / 10_000, ppm % 10_000 / 1_000)
}

/// What the groups around a member say about it.
#[derive(Clone)]
struct Around {
    depth: usize,
    cpus: Option<CpuList>,
    windows: Option<CyclicWindows>,
    /// Whether nothing of the tree goes before it.
    first: bool,
}

/// How many real-time priorities a group needs.
fn levels(group: &Group) -> usize {
    let of_member = |member: &Member| match &member.is {
        MemberKind::Group(sub) => levels(&sub.group),
        _ => 1,
    };
    match group.policy {
        GroupPolicy::Sequential => group.members.iter().map(of_member).sum(),
        GroupPolicy::Priority => by_number(group)
            .iter()
            .map(|(_, members)| members.iter().map(|(_, m)| of_member(m)).max().unwrap_or(0))
            .sum(),
        GroupPolicy::RoundRobin => group.members.len().min(1),
        GroupPolicy::Tdm => group.members.iter().map(of_member).max().unwrap_or(0),
        GroupPolicy::Deadline => 0,
    }
}

/// The members of a `priority` group by their numbers, the lowest first.
fn by_number(group: &Group) -> Vec<(u64, Vec<(usize, &Member)>)> {
    let mut members: Vec<(u64, usize, &Member)> = group
        .members
        .iter()
        .enumerate()
        .map(|(i, member)| (member.priority.map_or(u64::MAX, |number| number.get()), i, member))
        .collect();
    members.sort_by_key(|(number, i, _)| (*number, *i));
    let same = members.chunk_by(|a, b| a.0 == b.0);
    same.map(|list| (list[0].0, list.iter().map(|(_, i, m)| (*i, *m)).collect())).collect()
}

/// Lays out a group below `highest`; the rows of its members follow its own.
fn group(
    rows: &mut Vec<Row>,
    key: &str,
    group: &Group,
    highest: u8,
    around: &Around,
) -> Result<(), GroupError> {
    let refuse = |key: String, why: String, hint| Err(GroupError { key, why, hint });
    if group.policy == GroupPolicy::Deadline {
        deadline_group_can_be(key, group, around)?;
    }
    let count = levels(group);
    let lowest = usize::from(highest) + 1 - count.max(1);
    let priorities = (count > 0).then(|| (to_u8(lowest as u64), highest));
    let cpus = group.cpus.clone().or_else(|| around.cpus.clone());
    rows.push(Row::Group(PlannedGroup {
        name: group.name.to_string(),
        depth: around.depth,
        policy: group.policy,
        priorities,
        cpus: cpus.clone(),
        cycle: group.cycle,
        guarantee: report::guarantee(group.policy, cpus.as_ref()).to_owned(),
    }));
    let mut places = places(group, highest);
    // Rows stand in the order of the file, whatever the order of the priorities.
    places.sort_by_key(|place| place.index);
    for place in places {
        let member = &group.members[place.index];
        let at = format!("{key}.members[{}].is", place.index);
        let windows = match group.policy {
            GroupPolicy::Tdm => Some(own_windows(&at, group, member, around)?),
            _ => around.windows.clone(),
        };
        let inner = Around {
            depth: around.depth + 1,
            cpus: cpus.clone(),
            windows,
            first: around.first && place.first,
        };
        if let MemberKind::Group(sub) = &member.is {
            if group.policy == GroupPolicy::RoundRobin {
                let why = format!(
                    "group `{}` cannot take turns: Linux goes round among the threads of one \
                     priority, not among groups",
                    sub.group.name
                );
                let hint = "put its members here, or use a `tdm` group for turns of fixed length";
                return refuse(at, why, hint);
            }
            if place.shared && levels(&sub.group) > 0 {
                let why = format!(
                    "group `{}` shares its number with others: its members have priorities of \
                     their own, so they cannot all be equal to another member",
                    sub.group.name
                );
                return refuse(at, why, "give the group a number of its own");
            }
            self::group(rows, &format!("{at}.group"), &sub.group, place.highest, &inner)?;
            continue;
        }
        can_be_in(&at, group, member, &inner)?;
        rows.push(Row::Member(Assignment {
            key: at,
            group: group.name.to_string(),
            depth: inner.depth,
            member: member.is.clone(),
            scheduling: scheduling(group.policy, member, place.highest),
            cpus: inner.cpus,
            windows: inner.windows,
        }));
    }
    Ok(())
}

/// Where a member stands among the priorities of its group.
struct PriorityRank {
    index: usize,
    highest: u8,
    /// Nothing of the group goes before it.
    first: bool,
    /// Others have the same.
    shared: bool,
}

fn places(group: &Group, highest: u8) -> Vec<PriorityRank> {
    let sub_levels = |member: &Member| match &member.is {
        MemberKind::Group(sub) => levels(&sub.group),
        _ => 1,
    };
    let mut next = usize::from(highest);
    let mut places = Vec::new();
    match group.policy {
        GroupPolicy::Sequential => {
            for (index, member) in group.members.iter().enumerate() {
                let first = next == usize::from(highest);
                places.push(PriorityRank {
                    index,
                    highest: to_u8(next as u64),
                    first,
                    shared: false,
                });
                next -= sub_levels(member);
            }
        }
        GroupPolicy::Priority => {
            for (_, members) in by_number(group) {
                let first = next == usize::from(highest);
                let shared = members.len() > 1;
                for (index, _) in &members {
                    let highest = to_u8(next as u64);
                    places.push(PriorityRank {
                        index: *index,
                        highest,
                        first: first && !shared,
                        shared,
                    });
                }
                next -= members.iter().map(|(_, m)| sub_levels(m)).max().unwrap_or(0);
            }
        }
        GroupPolicy::RoundRobin | GroupPolicy::Tdm | GroupPolicy::Deadline => {
            for index in 0..group.members.len() {
                places.push(PriorityRank { index, highest, first: false, shared: false });
            }
        }
    }
    places
}

fn scheduling(policy: GroupPolicy, member: &Member, priority: u8) -> Scheduling {
    match (policy, member.runtime, member.period) {
        (GroupPolicy::Deadline, Some(runtime), Some(period)) => {
            let deadline = member.deadline.unwrap_or(period);
            Scheduling::Deadline { runtime, deadline, period }
        }
        (GroupPolicy::RoundRobin, ..) => Scheduling::RoundRobin { priority },
        _ => Scheduling::Fifo { priority },
    }
}

/// A window of a `tdm` group, within those of the group itself.
fn own_windows(
    at: &str,
    group: &Group,
    member: &Member,
    around: &Around,
) -> Result<CyclicWindows, GroupError> {
    let refuse = |why: String, hint| GroupError { key: at.to_owned(), why, hint };
    let whole = |span: Option<Span>| span.unwrap_or(Span::ZERO);
    let window =
        timewire_base::Window { offset: whole(member.offset), length: whole(member.length) };
    let own = CyclicWindows::new(Instant::from_ns(0), whole(group.cycle), vec![window])
        .map_err(|error| refuse(error.to_string(), ""))?;
    let Some(outer) = &around.windows else {
        return Ok(own);
    };
    let both = windows::intersection(outer, &own)
        .map_err(|why| refuse(why, "choose cycles of which one is a multiple of the other"))?;
    if both.windows().is_empty() {
        let why = format!(
            "{} never runs: its windows lie outside those of the group around it",
            member.is
        );
        return Err(refuse(why, "both cycles begin at whole multiples on the TAI scale"));
    }
    Ok(both)
}

/// Whether a reservation can stand here.
fn deadline_group_can_be(key: &str, group: &Group, around: &Around) -> Result<(), GroupError> {
    let refuse = |why: &str, hint| {
        let why = format!("group `{}` {why}", group.name);
        Err(GroupError { key: key.to_owned(), why, hint })
    };
    if around.windows.is_some() {
        return refuse(
            "cannot have windows: a reservation has its own periods, and what it misses outside \
             of a window is lost",
            "give the reservation the window's length as runtime and the cycle as period",
        );
    }
    if !around.first {
        return refuse(
            "cannot come after others: Linux lets reservations (SCHED_DEADLINE) go before every \
             real-time priority",
            "make it the first member, in every group around it",
        );
    }
    if group.cpus.is_some() || around.cpus.is_some() {
        return refuse(
            "cannot have `cpus`: Linux refuses SCHED_DEADLINE to a thread that may not use all \
             CPUs of its scheduling domain",
            "remove `cpus` there; an exclusive cpuset of one's own makes a domain",
        );
    }
    Ok(())
}

/// Whether a group can have such a member.
fn can_be_in(at: &str, group: &Group, member: &Member, inner: &Around) -> Result<(), GroupError> {
    let refuse = |why: String, hint| Err(GroupError { key: at.to_owned(), why, hint });
    let of_kernel = matches!(
        member.is,
        MemberKind::Napi(_) | MemberKind::Interrupt(_) | MemberKind::Softirq(_)
    );
    if of_kernel && inner.windows.is_some() {
        let why = format!("{} cannot have a window: Linux cannot stop such threads", member.is);
        let hint = "gates of the transmit queues keep frames in their slots (`transmit.gates`)";
        return refuse(why, hint);
    }
    if of_kernel && group.policy == GroupPolicy::Deadline {
        let why = format!("{} cannot have a reservation", member.is);
        return refuse(why, "Linux gives SCHED_DEADLINE to no thread that is bound to a CPU");
    }
    let threads = matches!(&member.is, MemberKind::Process(process) if process.thread.is_some());
    if threads && inner.windows.is_some() {
        let why = "a window holds for a whole process, not for one of its threads".to_owned();
        return refuse(why, "remove `thread`, or put it into a group without windows");
    }
    Ok(())
}

/// A number that was checked to be a priority.
fn to_u8(number: u64) -> u8 {
    u8::try_from(number).expect("invariant: a real-time priority is at most 99")
}

/// Below the threads of Timewire's MAC (80), above those of interrupts (50).
const HIGHEST: u8 = 60;

#[cfg(test)]
mod tests;

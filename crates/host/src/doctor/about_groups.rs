// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What groups of host settings do to the threads that receive: a member that never sleeps keeps
//! every thread below it from running.

use std::collections::BTreeSet;

use timewire_base::IfName;
use timewire_model::scenario::host::{CpuList, DesiredHost, MemberKind, SchedulingPolicy};
use timewire_tsn::groups::{Assignment, Facts, GroupPlan, Scheduling};

use super::finding::{Check, Finding, State};
use crate::snapshot::Snapshot;
use crate::snapshot::model::{CpuSet, InterfaceSettings, Word};

/// For each interface that threads poll: whether they can run beside the members above them.
pub(super) fn polling(snapshot: &Snapshot, desired: &DesiredHost) -> Vec<Finding> {
    // What cannot be laid out is refused when it is applied.
    let plan = desired.groups.as_ref().and_then(|top| GroupPlan::new(top, &Facts::unknown()).ok());
    let Some(plan) = plan else { return Vec::new() };
    let online: BTreeSet<u32> = snapshot
        .settings
        .host
        .cpus
        .online
        .known()
        .map(|cpus| cpus.iter().collect())
        .unwrap_or_default();
    let interfaces = &snapshot.settings.interfaces;
    let found = interfaces.iter().filter_map(|(name, settings)| {
        let threads = Threads::of(name, settings, desired, &plan)?;
        Some(threads.beside(&plan, &online).of(name))
    });
    found.collect()
}

/// The threads that poll an interface, as they will be.
struct Threads<'a> {
    name: &'a IfName,
    level: u8,
    /// `None` is all.
    cpus: Option<BTreeSet<u32>>,
}

impl<'a> Threads<'a> {
    /// Those of an interface; `None` when none poll it.
    fn of(
        name: &'a IfName,
        settings: &InterfaceSettings,
        desired: &DesiredHost,
        plan: &GroupPlan,
    ) -> Option<Threads<'a>> {
        let is_it =
            |one: &&Assignment| matches!(&one.member, MemberKind::Napi(n) if n.interface == *name);
        let set = |cpus: &CpuList| cpus.iter().collect::<BTreeSet<u32>>();
        if let Some(member) = plan.members().find(is_it) {
            let cpus = member.cpus.as_ref().map(set);
            return Some(Threads { name, level: level(member.scheduling), cpus });
        }
        let napi = desired.interfaces.iter().find(|one| one.name == *name);
        let napi = napi.and_then(|interface| interface.napi.as_ref());
        let threaded = settings.napi.threaded.known();
        let now = threaded.is_some_and(|word| *word != Word::Switch(false));
        if !napi.and_then(|napi| napi.threaded).unwrap_or(now) {
            return None;
        }
        let there = settings.napi.instances.known().map_or(&[][..], Vec::as_slice);
        let there: Vec<_> = there.iter().filter_map(|poll| poll.thread.known()).collect();
        let asked = napi.and_then(|napi| napi.scheduling.as_ref()).map(|scheduling| {
            let priority = scheduling.priority.map_or(0, |priority| priority.get());
            let real_time = scheduling.policy != SchedulingPolicy::Other;
            if real_time { u8::try_from(priority).unwrap_or(u8::MAX) } else { 0 }
        });
        let lowest = there.iter().map(|thread| u8::try_from(thread.priority).unwrap_or(0)).min();
        let cpus = napi.and_then(|napi| napi.cpus.as_ref()).map(set).or_else(|| {
            let all = there.iter().flat_map(|thread| CpuSet::iter(&thread.cpus));
            (!there.is_empty()).then(|| all.collect())
        });
        Some(Threads { name, level: asked.or(lowest).unwrap_or(0), cpus })
    }

    /// Whether a CPU is left to them by the members above.
    fn beside(&self, plan: &GroupPlan, online: &BTreeSet<u32>) -> Finding {
        let id = Check::GroupsPolling;
        let own = format!("its NAPI threads have {}", words(self.level));
        let above: Vec<_> = plan
            .members()
            .filter(|one| matches!(one.member, MemberKind::Process(_) | MemberKind::Program(_)))
            .filter(|one| level(one.scheduling) > self.level)
            .collect();
        let taken = above.iter().flat_map(|one| match &one.cpus {
            Some(cpus) => cpus.iter().collect(),
            None => online.clone(),
        });
        let taken: BTreeSet<u32> = taken.collect();
        let highest = above.iter().max_by_key(|one| level(one.scheduling));
        let Some(highest) = highest else {
            return Finding::ok(id, format!("{own}, and no program is above them"));
        };
        let left = self.cpus.as_ref().unwrap_or(online);
        let member = format!("{} has {}", highest.member, words(level(highest.scheduling)));
        if left.iter().any(|cpu| online.contains(cpu) && !taken.contains(cpu)) {
            return Finding::ok(id, format!("{own}, {member}; they have a CPU without it"));
        }
        Finding::new(id, State::Degraded, format!("{own}, and {member}"))
            .mended_by(format!(
                "`{{ is: {{ kind: napi, interface: {} }} }}` before it in `groups`",
                self.name
            ))
            .mended_by("`cpus` in `groups` that leave them one")
    }
}

/// Who goes before whom; a reservation goes before every priority.
fn level(scheduling: Scheduling) -> u8 {
    match scheduling {
        Scheduling::Fifo { priority } | Scheduling::RoundRobin { priority } => priority,
        Scheduling::Deadline { .. } => RESERVATION,
    }
}

/// Above all priorities.
const RESERVATION: u8 = 100;

fn words(level: u8) -> String {
    match level {
        0 => "no real-time priority".to_owned(),
        RESERVATION => "a reservation".to_owned(),
        priority => format!("the real-time priority {priority}"),
    }
}

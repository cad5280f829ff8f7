// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the keys of a tree of groups.

use timewire_base::Span;

use super::groups::{Group, GroupPolicy, Member, MemberKind, ProcessMember};
use super::value::CpuList;
use crate::scenario::FurtherChecks;
use crate::scenario::item::Reader;
use crate::scenario::value::Text;

/// How deep groups may stand in groups.
const DEEPEST: usize = 6;
/// Most members of all groups together.
const MAX_MEMBERS: usize = 512;
/// The kernel refuses shorter ones (linux v6.12 `kernel/sched/deadline.c:__checkparam_dl`).
const SHORTEST_RUNTIME: Span = Span::from_ns(1024);

/// Compares the values of a tree of groups with each other.
pub(super) fn check(path: &str, top: &Group, further: &dyn FurtherChecks, reader: &mut Reader) {
    let before = reader.problems.len();
    let mut check = Check { reader, names: Vec::new(), leaves: Vec::new() };
    check.group(path, top, 1, None);
    if check.leaves.len() > MAX_MEMBERS {
        let message = format!("{} members are more than {MAX_MEMBERS}", check.leaves.len());
        check.reader.fail_at(path, message, "");
    }
    check.twice();
    if reader.problems.len() > before {
        return;
    }
    if let Some(refused) = further.groups(top) {
        reader.fail_at(&format!("{path}{}", refused.key), refused.message, &refused.hint);
    }
}

struct Check<'a, 'g> {
    reader: &'a mut Reader,
    names: Vec<&'g str>,
    leaves: Vec<(String, &'g MemberKind)>,
}

impl<'g> Check<'_, 'g> {
    fn group(&mut self, path: &str, group: &'g Group, depth: usize, cpus: Option<&CpuList>) {
        let name = group.name.as_str();
        if self.names.contains(&name) {
            let hint = "give each group a name of its own; members are added by it";
            self.fail(path, "name", format!("a group `{name}` is there before"), hint);
        }
        self.names.push(name);
        if depth > DEEPEST {
            let message = format!("groups stand in groups more than {DEEPEST} deep");
            self.reader.fail_at(path, message, "");
            return;
        }
        if depth > 1 && group.highest.is_some() {
            let hint = "remove it, or write it in the outermost group";
            self.fail(path, "highest", "only the outermost group has it".into(), hint);
        }
        self.cpus(path, group, cpus);
        let cpus = group.cpus.as_ref().or(cpus);
        self.cycle(path, group);
        let mut windows: Vec<(Span, Span, usize)> = Vec::new();
        for (i, member) in group.members.iter().enumerate() {
            let at = format!("{path}.members[{i}]");
            self.keys_of_policy(&at, group.policy, member);
            self.values(&at, group, member, i, &mut windows);
            match &member.is {
                MemberKind::Group(sub) => {
                    self.group(&format!("{at}.is.group"), &sub.group, depth + 1, cpus);
                }
                leaf => self.leaf(at, leaf, group.policy, cpus),
            }
        }
    }

    fn cpus(&mut self, path: &str, group: &Group, around: Option<&CpuList>) {
        let (Some(own), Some(around)) = (&group.cpus, around) else {
            return;
        };
        let outside: Vec<String> = own
            .iter()
            .filter(|cpu| !around.iter().any(|other| other == *cpu))
            .map(|cpu| cpu.to_string())
            .collect();
        if !outside.is_empty() {
            let message =
                format!("CPU {} is none of the group around it ({around})", outside.join(", "));
            self.fail(path, "cpus", message, "a group can only have CPUs of the group around it");
        }
    }

    fn cycle(&mut self, path: &str, group: &Group) {
        match (group.policy, group.cycle) {
            (GroupPolicy::Tdm, None) => {
                let hint = "cycle: its length, such as 10ms";
                self.fail(path, "cycle", "a group with `policy: tdm` needs a cycle".into(), hint);
            }
            (GroupPolicy::Tdm, Some(Span::ZERO)) => {
                self.fail(path, "cycle", "a cycle of 0ns has no length".into(), "");
            }
            (GroupPolicy::Tdm, Some(_)) | (_, None) => {}
            (policy, Some(_)) => {
                let message = format!("a group with `policy: {}` has no cycle", policy.word());
                self.fail(path, "cycle", message, "remove it, or write `policy: tdm`");
            }
        }
    }

    /// Which keys a member must have and may have, by the policy of its group.
    fn keys_of_policy(&mut self, at: &str, policy: GroupPolicy, member: &Member) {
        use GroupPolicy::{Deadline, Priority, Tdm};
        let keys = [
            ("priority", member.priority.is_some(), Priority, true),
            ("offset", member.offset.is_some(), Tdm, true),
            ("length", member.length.is_some(), Tdm, true),
            ("runtime", member.runtime.is_some(), Deadline, true),
            ("deadline", member.deadline.is_some(), Deadline, false),
            ("period", member.period.is_some(), Deadline, true),
        ];
        for (key, given, of, needed) in keys {
            if given && policy != of {
                let message = format!("a member of a `{}` group has no {key}", policy.word());
                let hint = format!("only members of a `{}` group have one", of.word());
                self.fail(at, key, message, &hint);
            }
            if !given && needed && policy == of {
                let message = format!("a member of a `{}` group needs `{key}`", policy.word());
                self.fail(at, key, message, "");
            }
        }
    }

    fn values(
        &mut self,
        at: &str,
        group: &Group,
        member: &Member,
        index: usize,
        windows: &mut Vec<(Span, Span, usize)>,
    ) {
        if let (GroupPolicy::Tdm, Some(cycle), Some(offset), Some(length)) =
            (group.policy, group.cycle, member.offset, member.length)
        {
            let end = offset.checked_add(length).unwrap_or(Span::MAX);
            if length == Span::ZERO {
                self.fail(at, "length", "a window of 0ns has no length".into(), "");
            } else if end > cycle {
                let message =
                    format!("the window at {offset} ends at {end}, after the cycle of {cycle}");
                self.fail(at, "length", message, "");
            } else if let Some((start, stop, other)) =
                windows.iter().find(|(start, stop, _)| *start < end && offset < *stop)
            {
                let message = format!(
                    "the window from {offset} to {end} overlaps that of members[{other}], from \
                     {start} to {stop}"
                );
                let hint = "only one member of a `tdm` group runs at a time";
                self.fail(at, "offset", message, hint);
            } else {
                windows.push((offset, end, index));
            }
        }
        if let (GroupPolicy::Deadline, Some(runtime), Some(period)) =
            (group.policy, member.runtime, member.period)
        {
            let deadline = member.deadline.unwrap_or(period);
            if runtime < SHORTEST_RUNTIME {
                let message = format!("a runtime of {runtime} is too short");
                self.fail(at, "runtime", message, "the kernel takes 1024ns at least");
            }
            if runtime > deadline {
                let message = format!("{runtime} of a processor cannot be had within {deadline}");
                self.fail(at, "runtime", message, "runtime <= deadline <= period");
            }
            if deadline > period {
                let message = format!("the deadline of {deadline} is after the period of {period}");
                self.fail(at, "deadline", message, "runtime <= deadline <= period");
            }
        }
    }

    fn leaf(
        &mut self,
        at: String,
        leaf: &'g MemberKind,
        policy: GroupPolicy,
        cpus: Option<&CpuList>,
    ) {
        match leaf {
            MemberKind::Process(process) => self.process(&at, process, policy),
            MemberKind::Program(program) => {
                if program.run.first().is_none_or(|word| word.as_str().is_empty()) {
                    let hint = "write `run: [program, argument, ...]`";
                    self.fail(&at, "is.run", "there is no program".into(), hint);
                }
            }
            MemberKind::Softirq(softirq) => {
                let cpu = softirq.cpu.get();
                if let Some(cpus) = cpus.filter(|c| !c.iter().any(|c| u64::from(c) == cpu)) {
                    let message = format!(
                        "the softirq thread of CPU {cpu} runs there alone, and the group has the \
                         CPUs {cpus}"
                    );
                    self.fail(&at, "is.cpu", message, "add the CPU to the group's, or move it");
                }
            }
            MemberKind::Napi(_) | MemberKind::Interrupt(_) | MemberKind::Group(_) => {}
        }
        self.leaves.push((at, leaf));
    }

    fn process(&mut self, at: &str, process: &ProcessMember, policy: GroupPolicy) {
        match (&process.pid, &process.comm) {
            (Some(_), Some(_)) => {
                let message = "`pid` and `comm` both say which process".to_owned();
                self.fail(at, "is.comm", message, "write one of them");
            }
            (None, None) => {
                let hint = "write `pid: its number` or `comm: its name`";
                self.fail(at, "is", "it does not say which process".into(), hint);
            }
            _ => {}
        }
        let names = [("is.comm", &process.comm), ("is.thread", &process.thread)];
        for (key, name) in names.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?))) {
            if name.as_str().is_empty() || name.as_str().len() > LONGEST_COMM {
                let message = format!("`{name}` is no name: 1 to {LONGEST_COMM} bytes");
                self.fail(at, key, message, "the kernel cuts names off there");
            }
        }
        if policy == GroupPolicy::Tdm && process.thread.is_some() {
            let hint = "remove `thread`, or put the thread into a group without windows";
            let message = "a window holds for a whole process, not for one of its threads";
            self.fail(at, "is.thread", message.into(), hint);
        }
    }

    /// Nobody can be scheduled in two ways.
    fn twice(&mut self) {
        let leaves = std::mem::take(&mut self.leaves);
        for (i, (at, leaf)) in leaves.iter().enumerate() {
            let before = leaves[..i].iter().find(|(_, other)| same(leaf, other));
            if let Some((other, _)) = before {
                let message = format!("{leaf} is a member before, at {other}");
                self.reader.fail_at(&format!("{at}.is"), message, "remove one of the two");
            }
        }
    }

    fn fail(&mut self, path: &str, key: &str, message: String, hint: &str) {
        self.reader.fail_at(&format!("{path}.{key}"), message, hint);
    }
}

/// Whether two members speak of the same threads, as far as the file says. Programs never do: each
/// entry starts one.
fn same(a: &MemberKind, b: &MemberKind) -> bool {
    let whole_or_same = |a: &Option<Text>, b: &Option<Text>| match (a, b) {
        (Some(a), Some(b)) => a == b,
        // A part of a process may be elsewhere than the rest of it, but not before it is said
        // which.
        _ => a.is_none() && b.is_none(),
    };
    match (a, b) {
        (MemberKind::Process(a), MemberKind::Process(b)) => {
            (a.pid, &a.comm) == (b.pid, &b.comm) && whole_or_same(&a.thread, &b.thread)
        }
        (MemberKind::Napi(a), MemberKind::Napi(b)) => a == b,
        (MemberKind::Interrupt(a), MemberKind::Interrupt(b)) => a == b,
        (MemberKind::Softirq(a), MemberKind::Softirq(b)) => a == b,
        _ => false,
    }
}

/// `TASK_COMM_LEN` less the end.
const LONGEST_COMM: usize = 15;

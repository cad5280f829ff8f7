// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs before whom: a tree of groups of processes and threads.

use std::fmt;

use serde_json::{Value as Json, json};
use timewire_base::{IfName, Span};

use super::value::CpuList;
use crate::scenario::item::{Item, Reader};
use crate::scenario::record::{choice, kinds, record};
use crate::scenario::tree::Node;
use crate::scenario::value::{Count, Name, Text};

record! {
    /// A group of processes, threads and other groups.
    pub struct Group {
        /// Its name.
        name: Name,
        /// How one of its members is chosen.
        policy: GroupPolicy,
        /// The CPUs of all its members.
        cpus: Option<CpuList>,
        /// Only in the outermost group: the real-time priority that its first member gets; all
        /// others are below. Without it, 60: below Timewire's own threads.
        highest: Option<Count<1, 98>>,
        /// With `policy: tdm`: length of the cycle, which begins at whole multiples on the TAI
        /// scale.
        cycle: Option<Span>,
        /// Its members, in their order.
        members: Vec<Member>,
    }
}

choice! {
    /// How one of the members of a group is chosen.
    pub enum GroupPolicy {
        /// The first in the list that can run.
        Sequential = "sequential",
        /// The one with the lowest number that can run; members may share a number.
        Priority = "priority",
        /// One after the other.
        RoundRobin = "round_robin",
        /// Each in its window of a cycle, and only then.
        Tdm = "tdm",
        /// Each has so much time of a processor in each period.
        Deadline = "deadline",
    }
}

impl Group {
    /// The groups in it, itself first, each before its own members.
    pub fn all(&self) -> Vec<&Group> {
        let mut found = vec![self];
        for member in &self.members {
            if let MemberKind::Group(sub) = &member.is {
                found.extend(sub.group.all());
            }
        }
        found
    }
}

record! {
    /// A member of a group.
    pub struct Member {
        /// What it is.
        is: MemberKind,
        /// In a group with `policy: priority`: its number; lower goes first.
        priority: Option<Count<1, 32>>,
        /// In a group with `policy: tdm`: start of its window in the cycle.
        offset: Option<Span>,
        /// In a group with `policy: tdm`: length of its window.
        length: Option<Span>,
        /// In a group with `policy: deadline`: its time of a processor in each period.
        runtime: Option<Span>,
        /// In a group with `policy: deadline`: by when after its period began it has had it;
        /// without it, the period.
        deadline: Option<Span>,
        /// In a group with `policy: deadline`.
        period: Option<Span>,
    }
}

kinds! {
    /// What a member of a group is.
    pub enum MemberKind by "kind" {
        /// A running process with all its threads.
        Process(ProcessMember) = "process",
        /// A program that is started with the groups, and ends with them.
        Program(ProgramMember) = "program",
        /// Threads that poll an interface (threaded NAPI).
        Napi(NapiMember) = "napi",
        /// Threads of an interface's interrupts.
        Interrupt(NapiMember) = "interrupt",
        /// The softirq thread of a CPU.
        Softirq(SoftirqMember) = "softirq",
        /// Another group.
        Group(SubGroup) = "group",
    }
}

record! {
    /// A running process, or some.
    pub struct ProcessMember {
        /// Its number.
        pid: Option<Count<1, 4194304>>,
        /// Its name, as in `/proc/PID/comm`; all processes that have it when the groups start.
        comm: Option<Text>,
        /// Only its threads of this name.
        thread: Option<Text>,
    }
}

record! {
    /// A program that is started.
    pub struct ProgramMember {
        /// The program and its arguments.
        run: Vec<Text>,
    }
}

record! {
    /// An interface.
    pub struct NapiMember {
        /// Its name.
        interface: IfName,
    }
}

record! {
    /// A CPU.
    pub struct SoftirqMember {
        /// Its number.
        cpu: Count<0, 8191>,
    }
}

record! {
    /// A group as a member of another.
    pub struct SubGroup {
        /// The group.
        group: Box<Group>,
    }
}

/// What it is, in words: `process 12`, `the program ./control`.
impl fmt::Display for MemberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberKind::Process(ProcessMember { pid, comm, thread }) => {
                if let Some(thread) = thread {
                    write!(f, "threads `{thread}` of ")?;
                }
                match (pid, comm) {
                    (Some(pid), _) => write!(f, "process {}", pid.get()),
                    (None, Some(comm)) => write!(f, "processes `{comm}`"),
                    (None, None) => f.write_str("no process"),
                }
            }
            MemberKind::Program(program) => {
                let words: Vec<&str> = program.run.iter().map(Text::as_str).collect();
                write!(f, "program `{}`", words.join(" "))
            }
            MemberKind::Napi(napi) => write!(f, "NAPI threads of {}", napi.interface),
            MemberKind::Interrupt(nic) => write!(f, "interrupts of {}", nic.interface),
            MemberKind::Softirq(softirq) => {
                write!(f, "softirq thread of CPU {}", softirq.cpu.get())
            }
            MemberKind::Group(sub) => write!(f, "group `{}`", sub.group.name),
        }
    }
}

/// Boxed, because groups are members of groups.
impl Item for Box<Group> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        Group::read(node, reader).map(Box::new)
    }
    fn emit(&self) -> Option<Json> {
        self.as_ref().emit()
    }
    fn schema() -> Json {
        json!({"$ref": "#/$defs/group"})
    }
}

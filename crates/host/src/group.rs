// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The priority group: processes whose threads run with real-time priority as long as they are
//! members, and get back exactly what they had when they leave, or when the owner of the group
//! dies.
//!
//! A thread that a member starts while it is one inherits the priority; when the member leaves,
//! such a thread gets what the process' main thread had.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::Write as _;
use std::sync::Arc;

use timewire_sys::namespace::Process;
use timewire_sys::scheduler::RtPriority;
use timewire_tsn::groups::Scheduling;

use crate::HostError;
use crate::groups::{Given, Held};
use crate::journal::Journal;

/// The number of a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u32);

impl MemberId {
    /// The member that the user calls by this number; whether there is one, [`Group::remove`] says.
    pub fn new(number: u32) -> MemberId {
        MemberId(number)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the group.
    pub id: MemberId,
    /// The process.
    pub process: Process,
    /// How many threads were given the priority.
    pub threads: usize,
}

/// Processes with real-time priority. Dropping the group removes all members.
#[derive(Debug)]
pub struct Group {
    journal: Arc<Journal>,
    priority: RtPriority,
    members: BTreeMap<MemberId, (Member, Held)>,
    next: u32,
}

impl Group {
    /// An empty group whose members get `SCHED_FIFO` at this priority.
    pub fn new(journal: Arc<Journal>, priority: RtPriority) -> Group {
        Group { journal, priority, members: BTreeMap::new(), next: 1 }
    }

    /// Makes a process a member: all its threads get the group's priority and, when `cpus` is
    /// given, may run on these CPUs alone.
    ///
    /// **Errors**: no such process, this process itself, a member already, or the kernel refuses
    /// (needs `CAP_SYS_NICE`). The process is as it was then.
    pub fn add(&mut self, pid: u32, cpus: Option<&[u32]>) -> Result<MemberId, HostError> {
        self.drop_the_dead()?;
        if pid == std::process::id() {
            return Err(HostError::OwnProcess { pid });
        }
        let process = Process::of(pid).map_err(|error| no_process(pid, error))?;
        if !process.is_alive() {
            return Err(HostError::NoProcess { pid });
        }
        if let Some((member, _)) = self.members.values().find(|(m, _)| m.process == process) {
            return Err(HostError::AlreadyMember { pid, member: member.id.0 });
        }
        let priority = self.priority.get();
        let scheduling = Scheduling::Fifo { priority };
        let given = Given { scheduling, cpus: cpus.map(<[u32]>::to_vec), windowed: false };
        let held = Held::join_alone(&self.journal, process, given)?;
        let id = MemberId(self.next);
        self.next += 1;
        let member = Member { id, process, threads: held.threads_at_start() };
        self.members.insert(id, (member, held));
        Ok(id)
    }

    /// Makes a member leave: its threads get back what they had. The next member gets a new number.
    ///
    /// **Errors**: no such member, or the kernel refuses; it stays a member then.
    pub fn remove(&mut self, id: MemberId) -> Result<(), HostError> {
        let Some((_, held)) = self.members.get_mut(&id) else {
            let members = self.members.keys().map(|id| id.0).collect();
            return Err(HostError::NoMember { member: id.0, members });
        };
        held.leave(&self.journal)?;
        self.members.remove(&id);
        Ok(())
    }

    /// The members that are alive, by number.
    ///
    /// **Errors**: the journal cannot be written.
    pub fn members(&mut self) -> Result<Vec<Member>, HostError> {
        self.drop_the_dead()?;
        Ok(self.members.values().map(|(member, _)| *member).collect())
    }

    /// Forgets members that have ended.
    fn drop_the_dead(&mut self) -> Result<(), HostError> {
        let dead: Vec<MemberId> = self
            .members
            .values()
            .filter(|(member, _)| !member.process.is_alive())
            .map(|(member, _)| member.id)
            .collect();
        for id in dead {
            if let Some((_, mut held)) = self.members.remove(&id) {
                held.leave(&self.journal)?;
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (member, held) in self.members.values_mut() {
            if let Err(error) = held.leave(&self.journal) {
                let _ = writeln!(std::io::stderr(), "timewire: member {}: {error}", member.id);
            }
        }
    }
}

fn no_process(pid: u32, error: io::Error) -> HostError {
    match error.kind() {
        io::ErrorKind::NotFound => HostError::NoProcess { pid },
        _ => HostError::Scheduling { what: "read the start time", pid, source: error },
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The priority group: processes whose threads run with real-time priority as long as they are
//! members, and get back exactly what they had when they leave, or when the owner of the group
//! dies.
//!
//! A thread that a member starts while it is one inherits the priority; when the member leaves,
//! such a thread gets what the process' main thread had.
//!
//! Not here: the priority of Timewire's own threads (`timewire-path`).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::Write as _;
use std::sync::Arc;

use timewire_sys::namespace::Process;
use timewire_sys::scheduler::{self, Attributes, RtPriority};

use crate::journal::{EntryId, Journal};
use crate::scheduling::{self, ROUNDS, SavedThread};
use crate::{HostError, Undo};

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
    members: BTreeMap<MemberId, (Member, EntryId)>,
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
        let mut joining = Joining { group: self, process, cpus, saved: Vec::new(), entry: None };
        let result = joining.join();
        let Joining { saved, entry, .. } = joining;
        let Some(entry) = entry else {
            return Err(result.err().unwrap_or(HostError::NoProcess { pid }));
        };
        if let Err(error) = result {
            self.journal.undo(entry)?;
            return Err(error);
        }
        let id = MemberId(self.next);
        self.next += 1;
        self.members.insert(id, (Member { id, process, threads: saved.len() }, entry));
        Ok(id)
    }

    /// Makes a member leave: its threads get back what they had. The next member gets a new number.
    ///
    /// **Errors**: no such member, or the kernel refuses; it stays a member then.
    pub fn remove(&mut self, id: MemberId) -> Result<(), HostError> {
        let Some(&(_, entry)) = self.members.get(&id) else {
            let members = self.members.keys().map(|id| id.0).collect();
            return Err(HostError::NoMember { member: id.0, members });
        };
        self.journal.undo(entry)?;
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
            if let Some((_, entry)) = self.members.remove(&id) {
                self.journal.forget(entry)?;
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (member, entry) in self.members.values() {
            if let Err(error) = self.journal.undo(*entry) {
                let _ = writeln!(std::io::stderr(), "timewire: member {}: {error}", member.id);
            }
        }
    }
}

/// A process on its way into the group.
struct Joining<'a> {
    group: &'a Group,
    process: Process,
    cpus: Option<&'a [u32]>,
    saved: Vec<SavedThread>,
    entry: Option<EntryId>,
}

impl Joining<'_> {
    /// Gives the priority to all threads, also to those born while this runs.
    fn join(&mut self) -> Result<(), HostError> {
        for _ in 0..ROUNDS {
            let new = self.new_threads().map_err(|e| self.refused("read the scheduling", e))?;
            if new.is_empty() {
                break;
            }
            self.saved.extend(new.iter().cloned());
            self.record()?;
            for thread in &new {
                self.give(thread).map_err(|e| self.refused("change the scheduling", e))?;
            }
        }
        Ok(())
    }

    /// Threads that are not known yet and have not inherited the priority from one that is.
    fn new_threads(&self) -> io::Result<Vec<SavedThread>> {
        let first_round = self.saved.is_empty();
        let mut new = Vec::new();
        for tid in scheduling::threads(self.process)? {
            let Some(thread) = SavedThread::of(self.process, tid)? else {
                continue;
            };
            let known = self
                .saved
                .iter()
                .any(|s| (s.tid, s.start_ticks) == (thread.tid, thread.start_ticks));
            let inherited = !first_round && thread.attributes.is_fifo(self.group.priority);
            if !known && !inherited {
                new.push(thread);
            }
        }
        Ok(new)
    }

    /// One entry holds all threads, so a longer list takes the place of a shorter one.
    fn record(&mut self) -> Result<(), HostError> {
        let longer = self.group.journal.record(Undo::RestoreScheduling {
            pid: self.process.pid,
            start_ticks: self.process.start_ticks,
            given: self.group.priority.get(),
            threads: self.saved.clone(),
        })?;
        match self.entry.replace(longer) {
            Some(shorter) => self.group.journal.forget(shorter),
            None => Ok(()),
        }
    }

    fn give(&self, thread: &SavedThread) -> io::Result<()> {
        let wanted = Attributes::fifo(self.group.priority).with_reset_on_fork(thread.attributes);
        let set = || {
            scheduler::set_attributes(thread.tid, &wanted)?;
            match self.cpus {
                Some(cpus) => scheduler::set_affinity(thread.tid, cpus),
                None => Ok(()),
            }
        };
        scheduling::gone_is_none(set()).map(drop)
    }

    fn refused(&self, what: &'static str, source: io::Error) -> HostError {
        HostError::Scheduling { what, pid: self.process.pid, source }
    }
}

fn no_process(pid: u32, error: io::Error) -> HostError {
    match error.kind() {
        io::ErrorKind::NotFound => HostError::NoProcess { pid },
        _ => HostError::Scheduling { what: "read the start time", pid, source: error },
    }
}

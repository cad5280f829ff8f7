// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a member of a group is let go.

use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_sys::namespace::Process;
use timewire_sys::scheduler::Attributes;

use super::cgroup::{self, MemberCgroup};
use crate::HostError;
use crate::journal::{Inverse, Kind};
use crate::scheduling::{self, SavedThread};

/// What gives a member back what it had. Also done for what it has started since, which gets what
/// the first thread had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "release_member")]
pub struct Release {
    /// The process.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// Its control group as a member.
    pub place: Option<MemberCgroup>,
    /// Whether it is stopped and continued by signals.
    pub signals: bool,
    /// The policies and priorities that it had as a member, by which what it has started since is
    /// known.
    pub given: Vec<(u32, u32)>,
    /// What its threads had; the first one's is for those that were born later.
    pub threads: Vec<SavedThread>,
}

impl Release {
    pub(crate) fn process(&self) -> Process {
        Process { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Whether a thread has what it can only have inherited as one of this member.
    pub(crate) fn has_inherited(&self, now: &Attributes) -> bool {
        !now.resets_on_fork() && self.given.contains(&(now.policy, now.rt_priority))
    }

    fn restore(&self, process: Process) -> Result<(), HostError> {
        scheduling::restore(process, |now| self.has_inherited(now), &self.threads)
    }
}

/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<Release>(&["release_member"]);

impl Inverse for Release {
    /// What fails keeps nothing of the rest from being done.
    fn undo(&self) -> Result<(), HostError> {
        let process = self.process();
        let mut result = self.restore(process);
        if let Some(place) = &self.place {
            // Restored before they go on, or they would run unwatched with what they were given.
            let before = |pid: u32| {
                let restored = match Process::of(pid) {
                    Ok(other) if other == process => self.restore(process),
                    Ok(child) => self.restore(child),
                    Err(_) => Ok(()),
                };
                if result.is_ok() {
                    result = restored;
                }
            };
            let left = place.leave(before);
            let what = format!("leave the control group {}", place.own.display());
            result = result.and(left.map_err(|e| HostError::kernel(what, e)));
        }
        if self.signals {
            let what = || format!("continue process {}", self.pid);
            let went_on = process.go_on().map_err(|e| HostError::kernel(what(), e));
            result = result.and(went_on);
        }
        result
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release process {} from its group", self.pid)
    }
}

/// Stops or continues a member with all it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Cgroup(MemberCgroup),
    Signals(Process),
}

impl Gate {
    pub(crate) fn set(&self, open: bool) -> std::io::Result<()> {
        match self {
            Gate::Cgroup(place) => cgroup::freeze(&place.own, !open),
            Gate::Signals(process) if open => process.go_on(),
            Gate::Signals(process) => process.stop(),
        }
    }

    /// Whether somebody runs although it is closed.
    pub(crate) fn is_leaking(&self) -> bool {
        match self {
            Gate::Cgroup(place) => cgroup::is_running(&place.own),
            Gate::Signals(process) => process.is_alive() && !process.is_stopped(),
        }
    }
}

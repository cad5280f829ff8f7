// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the measuring thread runs and how urgent it is.

use timewire_sys::scheduler::{self, Attributes, RtPriority};

use super::TrafficError;

/// What the measuring thread is to have; without anything it stays as it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSpec {
    /// The CPUs it may run on.
    pub cpus: Option<Vec<u32>>,
    /// Its priority by SCHED_FIFO, 1 to 99; with it all memory of the process is locked.
    pub fifo: Option<RtPriority>,
}

impl ThreadSpec {
    /// Gives it to the calling thread; returns what works less well, in words.
    ///
    /// **Errors**: no such CPU; no privilege for the priority.
    pub(super) fn enter(&self) -> Result<Vec<String>, TrafficError> {
        let mut notes = Vec::new();
        if let Some(cpus) = &self.cpus {
            let list = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let what = format!("run on CPU {list}");
            scheduler::set_affinity(0, cpus).map_err(TrafficError::system(&what))?;
        }
        if let Some(priority) = self.fifo {
            let what = format!("run with SCHED_FIFO {}; it needs CAP_SYS_NICE", priority.get());
            scheduler::set_attributes(0, &Attributes::fifo(priority))
                .map_err(TrafficError::system(&what))?;
            if let Err(error) = scheduler::lock_memory() {
                notes.push(format!(
                    "memory is not locked ({error}): a page fault can take time; it needs \
                     CAP_IPC_LOCK"
                ));
            }
        }
        Ok(notes)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saving and restoring the scheduling of all threads of a process; threads of the kernel and CPUs.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use timewire_base::FileError;
use timewire_model::scenario::host::CpuList;
use timewire_sys::namespace::{self, Process};
use timewire_sys::scheduler::{self, Attributes};

use crate::HostError;

/// What one thread had before its scheduling was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedThread {
    /// The thread.
    pub tid: u32,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// Policy and all its parameters.
    #[serde(with = "AttributesFields")]
    pub attributes: Attributes,
    /// The CPUs it could run on, ascending.
    pub affinity: Vec<u32>,
}

/// The fields of [`Attributes`], as a journal keeps them.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Attributes")]
struct AttributesFields {
    policy: u32,
    flags: u64,
    nice: i32,
    rt_priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl SavedThread {
    /// Reads what a thread has now; `None` when it is gone.
    pub(crate) fn of(process: Process, tid: u32) -> io::Result<Option<SavedThread>> {
        gone_is_none((|| {
            Ok(SavedThread {
                tid,
                start_ticks: thread_start(process, tid)?,
                attributes: scheduler::attributes(tid)?,
                affinity: scheduler::affinity(tid)?,
            })
        })())
    }

    /// Gives a thread this scheduling; gone is fine.
    fn give_to(&self, tid: u32) -> io::Result<()> {
        let set = || {
            // Affinity first: a deadline is only admitted on the CPUs it had.
            if scheduler::affinity(tid)? != self.affinity {
                scheduler::set_affinity(tid, &self.affinity)?;
            }
            if scheduler::attributes(tid)? != self.attributes {
                scheduler::set_attributes(tid, &self.attributes)?;
            }
            Ok(())
        };
        gone_is_none(set()).map(drop)
    }
}

/// The numbers of all threads of a process, the leader first; empty when it is gone.
pub(crate) fn threads(process: Process) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(format!("/proc/{}/task", process.pid)) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut tids = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => {
                tids.extend(entry.file_name().to_str().and_then(|t| t.parse::<u32>().ok()))
            }
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    tids.sort_by_key(|&tid| (tid != process.pid, tid));
    Ok(tids)
}

/// The threads of the kernel whose names begin so: name and number, by name.
pub(crate) fn kernel_threads(prefix: &str) -> Vec<(String, u32)> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |tid: u32| {
        let name = fs::read_to_string(format!("/proc/{tid}/comm")).ok()?;
        let name = name.trim_end_matches('\n');
        // What is called alike in user space has a command line.
        let is_kernel = || fs::read(format!("/proc/{tid}/cmdline")).is_ok_and(|it| it.is_empty());
        (name.starts_with(prefix) && is_kernel()).then(|| (name.to_owned(), tid))
    };
    let mut found: Vec<(String, u32)> = numbers.filter_map(named).collect();
    // A process that ends has no command line either.
    found.retain(|(_, tid)| Process::of(*tid).is_ok_and(Process::is_alive));
    found.sort();
    found
}

/// The CPUs that are on line.
pub(crate) fn online_cpus() -> Result<CpuList, HostError> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    CpuList::parse(text.trim()).map_err(|why| FileError::content(path, why).into())
}

/// Gives the threads of a process what they had. Threads that were born later and have inherited
/// what it was given meanwhile get what the first saved thread had.
///
/// **Errors**: the kernel refuses; the other threads are restored all the same.
pub(crate) fn restore(
    process: Process,
    has_inherited: impl Fn(&Attributes) -> bool,
    saved: &[SavedThread],
) -> Result<(), HostError> {
    if !process.is_alive() {
        return Ok(());
    }
    let mut refused = None;
    // A thread that still has the priority can give birth to another one that has it; once all
    // known ones are restored, only those born meanwhile are left, so this ends soon.
    for _ in 0..ROUNDS {
        let mut inherited = 0;
        for tid in threads(process).map_err(|e| not_restored(process, e))? {
            let own = saved.iter().find(|thread| {
                thread.tid == tid && thread_start(process, tid).ok() == Some(thread.start_ticks)
            });
            let result = match (own, saved.first()) {
                (Some(own), _) => own.give_to(tid),
                (None, Some(first))
                    if scheduler::attributes(tid).is_ok_and(|now| has_inherited(&now)) =>
                {
                    inherited += 1;
                    first.give_to(tid)
                }
                _ => Ok(()),
            };
            refused = refused.or(result.err());
        }
        if inherited == 0 || refused.is_some() {
            break;
        }
    }
    refused.map_or(Ok(()), |error| Err(not_restored(process, error)))
}

/// `None` for the errors that mean that the thread has ended.
pub(crate) fn gone_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

fn thread_start(process: Process, tid: u32) -> io::Result<u64> {
    namespace::start_ticks(&PathBuf::from(format!("/proc/{}/task/{tid}/stat", process.pid)))
}

fn not_restored(process: Process, source: io::Error) -> HostError {
    HostError::Scheduling { what: "restore the scheduling", pid: process.pid, source }
}

const ESRCH: i32 = 3;
/// Rounds of looking for threads born meanwhile; a process that outruns this many forks on purpose.
pub(crate) const ROUNDS: usize = 64;

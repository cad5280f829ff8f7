// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is meant by a member of a tree: processes by number or name, threads by name, threads of the
//! kernel for an interface or a CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;

use timewire_base::IfName;
use timewire_model::scenario::host::{MemberKind, ProcessMember};
use timewire_sys::namespace::{self, Process};
use timewire_sys::scheduler;

use crate::doctor::scratch;
use crate::{HostError, apply, scheduling};

/// Somebody who is made a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A process with all its threads, and what it starts.
    Process(Process),
    /// One thread.
    Thread { process: Process, tid: u32, start_ticks: u64 },
    /// A program that was started.
    Program { run: Vec<String>, process: Process },
    /// Threads that poll an interface.
    Napi(IfName),
    /// Interrupts of an interface.
    Interrupt(IfName),
    /// The softirq thread of a CPU.
    Softirq(u64),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Process(process) => write!(f, "process {}", process.pid),
            Who::Thread { process, tid, .. } => {
                write!(f, "thread {tid} of process {}", process.pid)
            }
            Who::Program { run, process } => {
                write!(f, "program `{}` (process {})", run.join(" "), process.pid)
            }
            Who::Napi(interface) => write!(f, "NAPI threads of {interface}"),
            Who::Interrupt(interface) => write!(f, "interrupts of {interface}"),
            Who::Softirq(cpu) => write!(f, "softirq thread of CPU {cpu}"),
        }
    }
}

/// Somebody who is to be a member, or is to be started for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    There(Who),
    Program(Vec<String>),
}

/// Who a member is now.
///
/// **Errors**: there is nobody.
pub(crate) fn resolve(member: &MemberKind) -> Result<Vec<Wanted>, HostError> {
    let one = |who| Ok(vec![Wanted::There(who)]);
    match member {
        MemberKind::Process(process) => {
            Ok(processes(process)?.into_iter().map(Wanted::There).collect())
        }
        MemberKind::Program(program) => {
            let run: Vec<String> = program.run.iter().map(|word| word.to_string()).collect();
            program_exists(&run)?;
            Ok(vec![Wanted::Program(run)])
        }
        MemberKind::Napi(napi) => {
            interface_exists(&napi.interface)?;
            one(Who::Napi(napi.interface.clone()))
        }
        MemberKind::Interrupt(nic) => {
            interface_exists(&nic.interface)?;
            one(Who::Interrupt(nic.interface.clone()))
        }
        MemberKind::Softirq(softirq) => one(Who::Softirq(softirq.cpu.get())),
        MemberKind::Group(_) => Ok(Vec::new()),
    }
}

fn processes(member: &ProcessMember) -> Result<Vec<Who>, HostError> {
    let found = match (&member.pid, &member.comm) {
        (Some(pid), _) => {
            let pid = u32::try_from(pid.get()).expect("invariant: a PID has 22 bits");
            let process = Process::of(pid).map_err(|_| HostError::NoProcess { pid })?;
            if !process.is_alive() {
                return Err(HostError::NoProcess { pid });
            }
            vec![process]
        }
        (None, Some(comm)) => by_name(comm.as_str()),
        (None, None) => Vec::new(),
    };
    let Some(name) = &member.thread else {
        if found.is_empty() {
            let what = member.comm.as_ref().map_or("", |comm| comm.as_str());
            return Err(HostError::NobodyThere { what: format!("no process is called `{what}`") });
        }
        return Ok(found.into_iter().map(Who::Process).collect());
    };
    let threads: Vec<Who> =
        found.iter().flat_map(|process| threads_called(*process, name.as_str())).collect();
    if threads.is_empty() {
        let what = format!("no thread of it is called `{name}`");
        return Err(HostError::NobodyThere { what });
    }
    Ok(threads)
}

fn threads_called(process: Process, name: &str) -> Vec<Who> {
    let tids = scheduling::threads(process).unwrap_or_default();
    let with_name = tids.into_iter().filter(|tid| {
        let comm = fs::read_to_string(format!("/proc/{}/task/{tid}/comm", process.pid));
        comm.is_ok_and(|comm| comm.trim_end_matches('\n') == name)
    });
    let whole = |tid: u32| {
        let stat = format!("/proc/{}/task/{tid}/stat", process.pid);
        let start_ticks = namespace::start_ticks(stat.as_ref()).ok()?;
        Some(Who::Thread { process, tid, start_ticks })
    };
    with_name.filter_map(whole).collect()
}

/// The processes of this name that run, but for threads of the kernel.
fn by_name(name: &str) -> Vec<Process> {
    let is_meant = |process: &Process| {
        let comm = fs::read_to_string(format!("/proc/{}/comm", process.pid));
        comm.is_ok_and(|comm| comm.trim_end_matches('\n') == name)
            && !is_of_kernel(process.pid)
            && process.is_alive()
    };
    all_processes().filter(is_meant).collect()
}

/// A thread of the kernel has no program. A process that ends has none either, but is no member.
fn is_of_kernel(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
        && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
}

pub(crate) fn all_processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| Process::of(pid).ok())
}

/// What these have started, and what that has started, as far as the chain of parents is whole.
pub(crate) fn descendants(of: &BTreeSet<u32>) -> Vec<Process> {
    let all: Vec<(Process, u32)> =
        all_processes().filter_map(|process| Some((process, process.parent()?))).collect();
    let mut known = of.clone();
    let mut found = Vec::new();
    loop {
        let new: Vec<Process> = all
            .iter()
            .filter(|(process, parent)| known.contains(parent) && !known.contains(&process.pid))
            .map(|(process, _)| *process)
            .collect();
        if new.is_empty() {
            return found;
        }
        known.extend(new.iter().map(|process| process.pid));
        found.extend(new);
    }
}

/// Threads of the kernel whose name is this.
pub(crate) fn kernel_threads(name: &str) -> Vec<Process> {
    let found = scheduling::kernel_threads(name).into_iter();
    running(found.filter(|(found, _)| found == name))
}

/// The threads that poll an interface.
///
/// **Errors**: they cannot be told from those of another.
pub(crate) fn napi_threads(interface: &IfName) -> Result<Vec<Process>, HostError> {
    Ok(running(apply::napi_threads(interface)?))
}

/// Those that have not ended meanwhile.
fn running(threads: impl IntoIterator<Item = (String, u32)>) -> Vec<Process> {
    threads.into_iter().filter_map(|(_, tid)| Process::of(tid).ok()).collect()
}

/// Interfaces with threads that poll them, and the lowest real-time priority of those; 0 is none.
/// Those of other network namespaces are among them, since they share the CPUs; not those that a
/// doctor tries for a moment.
pub(crate) fn polled() -> Vec<(String, u8)> {
    let mut found: BTreeMap<String, u8> = BTreeMap::new();
    for (name, tid) in scheduling::kernel_threads("napi/") {
        let Some((interface, _)) = name["napi/".len()..].rsplit_once('-') else { continue };
        if scratch::NAMES.contains(&interface) {
            continue;
        }
        let Ok(now) = scheduler::attributes(tid) else { continue };
        let priority = u8::try_from(now.rt_priority).unwrap_or(u8::MAX);
        let lowest = found.entry(interface.to_owned()).or_insert(priority);
        *lowest = priority.min(*lowest);
    }
    found.into_iter().collect()
}

/// The numbers of an interface's interrupts.
pub(crate) fn interrupts(interface: &IfName) -> Vec<u32> {
    let listed = fs::read_dir(format!("/sys/class/net/{interface}/device/msi_irqs"));
    let listed = listed.into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    if numbers.is_empty() {
        let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        numbers = numbers_of(&text, interface.as_str());
    }
    numbers.retain(|number| fs::exists(format!("/proc/irq/{number}")).unwrap_or(false));
    numbers.sort_unstable();
    numbers
}

/// The lines of `/proc/interrupts` that name the interface, or a queue of it as `eth0-rx-0`.
fn numbers_of(text: &str, interface: &str) -> Vec<u32> {
    let is_its = |word: &str| {
        let word = word.trim_end_matches(',');
        word == interface
            || word.strip_prefix(interface).is_some_and(|rest| rest.starts_with(['-', ':', '@']))
    };
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            rest.split_whitespace().any(is_its).then(|| number.trim().parse().ok())?
        })
        .collect()
}

/// The threads of these interrupts: `irq/24-eth0`.
pub(crate) fn interrupt_threads(numbers: &[u32]) -> Vec<Process> {
    let threads = |number: &u32| scheduling::kernel_threads(&format!("irq/{number}-"));
    running(numbers.iter().flat_map(threads))
}

fn interface_exists(interface: &IfName) -> Result<(), HostError> {
    if fs::exists(format!("/sys/class/net/{interface}")).unwrap_or(false) {
        return Ok(());
    }
    Err(HostError::NobodyThere { what: format!("there is no interface {interface}") })
}

/// So that a program which is not there is known before anything is changed.
fn program_exists(run: &[String]) -> Result<(), HostError> {
    use std::os::unix::fs::PermissionsExt;
    let name = run.first().map_or("", String::as_str);
    let can_run = |path: &std::path::Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let there = if name.contains('/') {
        can_run(name.as_ref())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| can_run(&directory.join(name)))
    };
    if there {
        return Ok(());
    }
    Err(HostError::NobodyThere { what: format!("there is no program `{name}`") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_interrupts_are_found_by_the_name_of_the_interface() {
        let text = "           CPU0       CPU1\n  24:  1  0  PCI-MSI 1-edge  eth0\n  25:  0  0  \
                    PCI-MSI 2-edge  eth0-rx-0\n  26:  0  0  PCI-MSI 3-edge  eth01\n  27:  0  0  \
                    IO-APIC  uhci, eth0\nNMI:  0  0  Non-maskable interrupts\n";
        assert_eq!(numbers_of(text, "eth0"), [24, 25, 27]);
        assert_eq!(numbers_of(text, "eth9"), [0_u32; 0]);
    }

    #[test]
    fn t0_missing_programs_are_known_before() {
        program_exists(&["sh".to_owned()]).unwrap();
        for bad in ["no-such-program", "/proc/self/status", "/", ""] {
            let error = program_exists(&[bad.to_owned()]).unwrap_err().to_string();
            assert_eq!(error, format!("there is no program `{bad}`"));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive priority as it is now.

use serde::Serialize;
use timewire_base::IfName;
use timewire_bpf::receive::ClassCounter;
use timewire_bpf::receive::resident::Resident;
use timewire_host::tool::{self, Tool};
use timewire_model::scenario::host::{Destination, NORMAL, Receive};

use super::{AttachedInterface, ReceiveError, own_netns, plan, threads};

/// Receive priority of an interface.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveStatus {
    /// Name and version of this format.
    pub schema: &'static str,
    /// The interface; its number when it is gone.
    pub interface: String,
    /// `native` or `generic`; absent when the program is attached no more.
    pub mode: Option<String>,
    /// The number of the program.
    pub program: u32,
    /// The program that was there before, and is given what goes up at once.
    pub chained: Option<OtherProgram>,
    /// Where AF_XDP sockets are registered, by queue.
    pub sockets: String,
    /// Frames lost on the way to sockets; absent when not counted.
    pub lost_to_sockets: Option<u64>,
    /// The classes in the order in which they are tried, then normal frames.
    pub classes: Vec<ClassStatus>,
    /// The rules as host settings have them.
    pub receive: Receive,
}

/// A program that is not ours.
#[derive(Clone, Debug, Serialize)]
pub struct OtherProgram {
    /// Its number.
    pub program: u32,
    /// Its name.
    pub name: String,
}

/// A class of frames, and what became of them since it is there.
#[derive(Clone, Debug, Serialize)]
pub struct ClassStatus {
    /// Its name; `normal` for frames without a class.
    pub name: String,
    /// Its priority; none of normal frames.
    pub priority: Option<u8>,
    /// `kernel`, `socket` or `threads`.
    pub to: &'static str,
    /// The threads, of `to: threads`.
    pub threads: Vec<ThreadStatus>,
    /// All frames.
    pub frames: u64,
    /// Their bytes, without the check sequence.
    pub bytes: u64,
    /// Went up the stack at once.
    pub to_kernel: u64,
    /// Went to a socket.
    pub to_socket: u64,
    /// Went to a thread.
    pub to_threads: u64,
    /// Were left to the program that was there before.
    pub to_other_program: u64,
    /// Were to go to a socket or a thread that is not there, and went up at once.
    pub turned: u64,
    /// Lost on the way to a thread: its queue was full; absent when not counted, or not to threads.
    pub lost: Option<u64>,
    /// By the CPU that received them; CPUs without frames are left out.
    pub by_cpu: Vec<CpuCounter>,
}

/// What a CPU has received.
#[derive(Clone, Debug, Serialize)]
pub struct CpuCounter {
    /// The CPU.
    pub cpu: usize,
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A thread that takes frames further.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadStatus {
    /// Its CPU.
    pub cpu: u32,
    /// Its number, if it can be seen from here.
    pub tid: Option<u32>,
    /// How it is scheduled, such as `fifo 49`; absent when it cannot be seen.
    pub scheduling: Option<String>,
}

/// Receive priority of one interface, or of all in this network namespace, by their numbers.
///
/// **Errors**: it is not on the interface asked for; the kernel cannot be asked.
pub fn show(interface: Option<&IfName>) -> Result<Vec<ReceiveStatus>, ReceiveError> {
    if let Some(interface) = interface {
        let place = AttachedInterface::of(interface)?;
        place.is_there()?;
        return Ok(vec![of(&place.directory(), interface.to_string(), place.index)?]);
    }
    if !super::is_mounted()? {
        return Ok(Vec::new());
    }
    let netns = own_netns()?.to_string();
    let mut indices: Vec<u32> = super::entries(&super::home())?
        .into_iter()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (of, index) = name.to_str()?.split_once('-')?;
            (of == netns).then(|| index.parse().ok()).flatten()
        })
        .collect();
    indices.sort_unstable();
    let names = interface_names()?;
    let one = |index: u32| {
        let name = names.iter().find(|(number, _)| *number == index);
        let name = name.map_or_else(|| format!("#{index} (gone)"), |(_, name)| name.clone());
        of(&super::home().join(format!("{netns}-{index}")), name, index)
    };
    indices.into_iter().map(one).collect()
}

fn interface_names() -> Result<Vec<(u32, String)>, ReceiveError> {
    let text = tool::run(Tool::Ip, &["-j", "link"])?;
    let links: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let links = links.as_array().cloned().unwrap_or_default();
    let pair = |link: &serde_json::Value| {
        let index = u32::try_from(link["ifindex"].as_u64()?).ok()?;
        Some((index, link["ifname"].as_str()?.to_owned()))
    };
    Ok(links.iter().filter_map(pair).collect())
}

fn of(
    directory: &std::path::Path,
    interface: String,
    index: u32,
) -> Result<ReceiveStatus, ReceiveError> {
    let failed = ReceiveError::Map;
    let resident = Resident::open(directory).map_err(failed)?;
    let in_force = plan::in_force(&resident).map_err(failed)?;
    let found = threads::find();
    let normal = (
        NORMAL.to_owned(),
        None,
        match in_force.desired.normal_cpus {
            Some(_) => Destination::Threads,
            None => Destination::Kernel,
        },
    );
    let classes = in_force
        .desired
        .in_order()
        .into_iter()
        .map(|class| (class.name.as_str().to_owned(), Some(class.priority.get()), class.to));
    let all = std::iter::once(normal).chain(classes).zip(&in_force.places);
    let mut statuses = Vec::new();
    for ((name, priority, to), (slot, lane)) in all {
        let lane = (to == Destination::Threads).then_some(*lane);
        let by_cpu = resident.counter(*slot).map_err(failed)?;
        let (threads, lost) = match lane {
            Some(lane) => {
                (threads_of(&resident, lane, &found)?, resident.lost(Some(lane)).map_err(failed)?)
            }
            None => (Vec::new(), None),
        };
        let sum: ClassCounter = by_cpu.iter().copied().sum();
        let by_cpu = by_cpu.iter().enumerate().filter(|(_, counter)| counter.frames > 0);
        statuses.push(ClassStatus {
            name,
            priority,
            to: match to {
                Destination::Kernel => "kernel",
                Destination::Socket => "socket",
                Destination::Threads => "threads",
            },
            threads,
            frames: sum.frames,
            bytes: sum.bytes,
            to_kernel: sum.kernel,
            to_socket: sum.socket,
            to_threads: sum.threads,
            to_other_program: sum.chained,
            turned: sum.turned,
            lost,
            by_cpu: by_cpu
                .map(|(cpu, it)| CpuCounter { cpu, frames: it.frames, bytes: it.bytes })
                .collect(),
        });
    }
    statuses.rotate_left(1);
    let attached = resident.attached(index).unwrap_or_default();
    let chained = resident.chained().map_err(failed)?;
    Ok(ReceiveStatus {
        schema: "timewire.receive/1",
        interface,
        mode: attached.and_then(|it| it.mode).map(|mode| mode.to_string()),
        program: resident.program().map_err(failed)?,
        chained: chained.map(|(program, name)| OtherProgram { program, name }),
        sockets: directory.join("sockets").display().to_string(),
        lost_to_sockets: resident.lost(None).map_err(failed)?,
        classes: statuses,
        receive: in_force.desired,
    })
}

fn threads_of(
    resident: &Resident,
    lane: u8,
    found: &std::collections::BTreeMap<String, u32>,
) -> Result<Vec<ThreadStatus>, ReceiveError> {
    let map = resident.lane_number(lane).map_err(ReceiveError::Map)?;
    let cpus = resident.threads(lane).map_err(ReceiveError::Map)?;
    let status = |cpu| {
        let tid = found.get(&threads::name_of(cpu, map)).copied();
        ThreadStatus { cpu, tid, scheduling: tid.and_then(threads::describe) }
    };
    Ok(cpus.into_iter().map(status).collect())
}

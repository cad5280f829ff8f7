// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's threads that take frames further: finding and scheduling them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use timewire_bpf::receive::resident::Resident;
use timewire_model::scenario::host::SchedulingPolicy;
use timewire_sys::scheduler::{self, Attributes};

use super::ReceiveError;
use super::plan::Plan;

/// How long a new thread may take to appear.
const APPEARS: Duration = Duration::from_secs(2);

/// The name that the kernel gives a thread.
pub(super) fn name_of(cpu: u32, map: u32) -> String {
    format!("cpumap/{cpu}/map:{map}")
}

/// Numbers of the kernel's threads by name, as far as this process sees them.
pub(super) fn find() -> BTreeMap<String, u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let named = numbers.filter_map(|number| {
        let name = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
        Some((name.trim_end().to_owned(), number))
    });
    named.filter(|(name, _)| name.starts_with("cpumap/")).collect()
}

/// Schedules all threads as planned. Threads that are to have what every thread has are left out
/// where they cannot be seen.
pub(super) fn schedule(resident: &Resident, plan: &Plan) -> Result<(), ReceiveError> {
    let mut threads = find();
    for ((lane, cpu), (policy, priority)) in &plan.threads {
        let map = resident.lane_number(*lane).map_err(ReceiveError::Map)?;
        let name = name_of(*cpu, map);
        let give_up = Instant::now() + APPEARS;
        let is_plain = *policy == SchedulingPolicy::Other;
        while !threads.contains_key(&name) && !is_plain && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
            threads = find();
        }
        match threads.get(&name) {
            None if is_plain => {}
            None => return Err(ReceiveError::NoThread { name }),
            Some(tid) => give(*tid, *policy, *priority)
                .map_err(|source| ReceiveError::Scheduling { name, source })?,
        }
    }
    Ok(())
}

fn give(tid: u32, policy: SchedulingPolicy, priority: u8) -> io::Result<()> {
    let before = scheduler::attributes(tid)?;
    let wanted = Attributes {
        policy: match policy {
            SchedulingPolicy::Other => OTHER,
            SchedulingPolicy::Fifo => FIFO,
            SchedulingPolicy::RoundRobin => ROUND_ROBIN,
        },
        rt_priority: priority.into(),
        ..Attributes::default()
    };
    if (before.policy, before.rt_priority) == (wanted.policy, wanted.rt_priority) {
        return Ok(());
    }
    scheduler::set_attributes(tid, &wanted)
}

/// How a thread is scheduled, as the file says it.
pub(super) fn describe(tid: u32) -> Option<String> {
    let Attributes { policy, rt_priority, nice, .. } = scheduler::attributes(tid).ok()?;
    Some(match policy {
        FIFO => format!("fifo {rt_priority}"),
        ROUND_ROBIN => format!("rr {rt_priority}"),
        OTHER if nice == 0 => "other".to_owned(),
        OTHER => format!("other, nice {nice}"),
        policy => format!("policy {policy}"),
    })
}

const OTHER: u32 = 0;
const FIFO: u32 = 1;
const ROUND_ROBIN: u32 = 2;

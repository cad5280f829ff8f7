// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classifies received frames by port: priority at once, the rest by a deferred thread
//! (`receive.bpf.c`).
//!
//! Not here: the same rule on the transmit side (`timewire-mac`).

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use timewire_base::{Port, Priority};

use crate::{AttachMode, BpfError, Link, attach, load, map_of, program_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));
const PROGRAM: &str = "receive";

/// Most ports one list can name; the size of the inner map.
pub const MAX_RULES: u32 = 64;
const FOREIGN: u32 = 33;
const NOT_DEFERRED: u32 = 34;
const REAL_TIME: u32 = 35;
/// Frames that can wait for the deferred thread.
const DEFER_QUEUE: u32 = 2_048;

/// What the program is told before it is loaded; mirrors `struct tw_settings`.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Index of the interface that carries the station's addresses.
    pub stack_interface: u32,
    /// CPU of the deferred thread.
    pub defer_cpu: u32,
    /// The station's address; unicast frames to others are dropped, as a card's filter would.
    pub address: [u8; 6],
}

impl Settings {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.stack_interface.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.defer_cpu.to_ne_bytes());
        bytes[8..14].copy_from_slice(&self.address);
        bytes
    }
}

/// Frames per class since the program was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Without priority.
    pub normal: u64,
    /// By priority; index 0 is priority 1.
    pub by_priority: [u64; 32],
    /// Unicast to other stations, dropped.
    pub foreign: u64,
    /// Normal frames that could not be deferred and went up at once.
    pub not_deferred: u64,
    /// Frames lost on the way to the stack's interface, as far as they can be counted; always 0 in
    /// the kernel, which drops deferred frames silently when more than its queue wait.
    pub lost: u64,
}

/// The programs, attached to a station's link.
#[derive(Debug)]
pub struct Receive {
    programs: Programs,
    mode: AttachMode,
    _to_stack: Link,
    _classify: Link,
}

impl Receive {
    /// Loads both programs and attaches them to the link.
    ///
    /// **Errors**: no privilege; the driver does not know the mode; the kernel is older than 6.6
    /// (no tcx).
    pub fn attach(
        interface: u32,
        mode: AttachMode,
        settings: Settings,
    ) -> Result<Receive, BpfError> {
        let programs = Programs::load(settings)?;
        let failed = |source| BpfError::Attach { program: PROGRAM, interface, source };
        // First the way to the stack, then the classifier, so that no frame is classified into a
        // road that is not there yet.
        let program = program_of(&programs.0, "tw_to_stack");
        let to_stack = attach::tcx_ingress(program.as_fd(), interface).map_err(failed)?;
        let program = program_of(&programs.0, "tw_classify");
        let classify = attach::xdp(program.as_fd(), interface, mode).map_err(failed)?;
        Ok(Receive { programs, mode, _to_stack: to_stack, _classify: classify })
    }

    /// How the classifier is attached.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Replaces the list in one step; an empty list defers nothing.
    ///
    /// **Panics** with more than [`MAX_RULES`] rules; the list's own type refuses that earlier.
    pub fn set_rules(&self, list: &[(Port, Priority)]) -> Result<(), BpfError> {
        self.programs.set_rules(list)
    }

    /// A handle that counts frames with a priority, whomever they are for.
    pub fn real_time_counter(&self) -> Result<RealTimeCounter, BpfError> {
        MapHandle::try_from(&map_of(&self.programs.0, "counters"))
            .map(RealTimeCounter)
            .map_err(|source| BpfError::Map { map: "counters", source })
    }

    /// Reads the counters, summed over all CPUs.
    pub fn counters(&self) -> Result<ReceiveCounters, BpfError> {
        self.programs.counters()
    }
}

/// The loaded programs with their maps, attached or not.
#[derive(Debug)]
struct Programs(libbpf_rs::Object);

impl Programs {
    fn load(settings: Settings) -> Result<Programs, BpfError> {
        let object = load(PROGRAM, OBJECT, |open| {
            // The kernel refuses a CPUMAP with more entries than it can have CPUs.
            let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(1);
            for mut map in open.maps_mut() {
                if map.name() == "defer" {
                    map.set_max_entries(cpus)?;
                }
                if map.name().to_string_lossy().ends_with(".rodata") {
                    let data = map.initial_value_mut().expect("invariant: rodata has a value");
                    data[..16].copy_from_slice(&settings.bytes());
                }
            }
            Ok(())
        })?;
        let mut value = [0; 8];
        value[..4].copy_from_slice(&DEFER_QUEUE.to_ne_bytes());
        map_of(&object, "defer")
            .update(&settings.defer_cpu.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|source| BpfError::Map { map: "defer", source })?;
        Ok(Programs(object))
    }

    fn set_rules(&self, list: &[(Port, Priority)]) -> Result<(), BpfError> {
        assert!(list.len() <= MAX_RULES as usize, "at most {MAX_RULES} ports");
        let rules = map_of(&self.0, "rules");
        let failed = |source| BpfError::Map { map: "rules", source };
        let first = 0_u32.to_ne_bytes();
        if list.is_empty() {
            return match rules.delete(&first) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            };
        }
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut options: bpf_map_create_opts = unsafe { std::mem::zeroed() };
        options.sz = size_t::try_from(size_of_val(&options)).expect("invariant: small");
        let inner = MapHandle::create(MapType::Hash, Some("tw_rules"), 2, 1, MAX_RULES, &options)
            .map_err(failed)?;
        for (port, priority) in list {
            inner
                .update(&port.get().to_ne_bytes(), &[priority.get()], MapFlags::ANY)
                .map_err(failed)?;
        }
        let inner = u32::try_from(inner.as_fd().as_raw_fd()).expect("invariant: open");
        rules.update(&first, &inner.to_ne_bytes(), MapFlags::ANY).map_err(failed)
    }

    fn counters(&self) -> Result<ReceiveCounters, BpfError> {
        let map = map_of(&self.0, "counters");
        let read = |which| sum_over_cpus(&map, which);
        let mut by_priority = [0; 32];
        for (index, counter) in by_priority.iter_mut().enumerate() {
            *counter = read(u32::try_from(index).expect("invariant: below 32") + 1)?;
        }
        Ok(ReceiveCounters {
            normal: read(0)?,
            by_priority,
            foreign: read(FOREIGN)?,
            not_deferred: read(NOT_DEFERRED)?,
            lost: 0,
        })
    }
}

/// Counts frames with a priority that the link showed, also those for other stations.
#[derive(Debug)]
pub struct RealTimeCounter(MapHandle);

impl RealTimeCounter {
    /// The count since the program was attached.
    pub fn read(&self) -> Result<u64, BpfError> {
        sum_over_cpus(&self.0, REAL_TIME)
    }
}

fn sum_over_cpus(map: &impl MapCore, which: u32) -> Result<u64, BpfError> {
    let per_cpu = map
        .lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| BpfError::Map { map: "counters", source })?;
    let values = per_cpu.into_iter().flatten();
    Ok(values.filter_map(|bytes| bytes.try_into().ok().map(u64::from_ne_bytes)).sum())
}

#[cfg(test)]
mod tests;

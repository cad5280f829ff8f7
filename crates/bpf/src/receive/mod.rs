// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells received frames apart by rules (`receive.bpf.c`), in two uses: of a station's MAC, for a
//! process and by port alone (here), and of an interface, for longer and by any field
//! ([`resident`]).
//!
//! Not here: the same rule on the transmit side (`timewire-tsn`).

mod program;
pub mod resident;
pub mod rules;

use std::os::fd::AsFd;

use libbpf_rs::MapHandle;
use timewire_base::{Port, Priority};

use crate::losses::Losses;
use crate::{AttachMode, BpfError, Link, attach, map_of, program_of};

pub use program::ClassCounter;
use program::{
    PROGRAM, ProgramSettings, Programs, SLOT_FOREIGN, SLOT_REAL_TIME, add_thread, read_counter,
    replace_rules,
};
use rules::{Class, FrameMatch, Rules, Target};

/// Most ports one list can name.
pub const MAX_RULES: u32 = 64;
/// Both ends of each port are compared.
const _: () = assert!(2 * MAX_RULES as usize <= rules::MAX_COMPARISONS);

/// What the program is told before it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Index of the interface that carries the station's addresses.
    pub stack_interface: u32,
    /// CPU of the deferred thread.
    pub defer_cpu: u32,
    /// The station's address; unicast frames to others are dropped, as a NIC's filter would.
    pub address: [u8; 6],
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
    /// Deferred frames lost on the way to the stack's interface, because more waited than their
    /// queue holds; `None` where the kernel does not tell.
    pub lost: Option<u64>,
}

/// The programs, attached to a station's link.
#[derive(Debug)]
pub struct Receive {
    programs: StationPrograms,
    mode: AttachMode,
    losses: Option<Losses>,
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
        let programs = StationPrograms::load(settings)?;
        // Receiving is worth more than counting what it loses.
        let losses = Losses::attach(&[map_of(&programs.programs.0, "lane_0").as_fd()]).ok();
        let failed = |source| BpfError::Attach { program: PROGRAM, interface, source };
        // First the way to the stack, then the classifier, so that no frame is classified into a
        // map that is not there yet.
        let program = program_of(&programs.programs.0, "tw_to_stack");
        let to_stack = attach::tcx_ingress(program.as_fd(), interface).map_err(failed)?;
        let program = program_of(&programs.programs.0, "tw_classify");
        let classify = attach::xdp(program.as_fd(), interface, mode).map_err(failed)?;
        Ok(Receive { programs, mode, losses, _to_stack: to_stack, _classify: classify })
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
        MapHandle::try_from(&map_of(&self.programs.programs.0, "counters"))
            .map(RealTimeCounter)
            .map_err(|source| BpfError::Map { map: "counters", source })
    }

    /// Reads the counters, summed over all CPUs.
    pub fn counters(&self) -> Result<ReceiveCounters, BpfError> {
        let lost = self.losses.as_ref().map(|losses| losses.lost(0)).transpose()?;
        Ok(ReceiveCounters { lost, ..self.programs.counters()? })
    }
}

/// The programs of a station's MAC.
#[derive(Debug)]
struct StationPrograms {
    programs: Programs,
    defer_cpu: u32,
}

impl StationPrograms {
    fn load(settings: Settings) -> Result<StationPrograms, BpfError> {
        let Settings { stack_interface, defer_cpu, address } = settings;
        let told = ProgramSettings {
            stack_interface,
            only_for: Some(address),
            ..ProgramSettings::default()
        };
        let programs = Programs::load(told)?;
        add_thread(&map_of(&programs.0, "lane_0"), defer_cpu)?;
        Ok(StationPrograms { programs, defer_cpu })
    }

    fn set_rules(&self, list: &[(Port, Priority)]) -> Result<(), BpfError> {
        assert!(list.len() <= MAX_RULES as usize, "at most {MAX_RULES} ports");
        replace_rules(&map_of(&self.programs.0, "rules"), &station_rules(list, self.defer_cpu))
    }

    fn counters(&self) -> Result<ReceiveCounters, BpfError> {
        let map = map_of(&self.programs.0, "counters");
        let read = |slot| Ok(read_counter(&map, slot)?.into_iter().sum::<ClassCounter>());
        let mut by_priority = [0; 32];
        for (slot, counter) in (1..).zip(by_priority.iter_mut()) {
            *counter = read(slot)?.frames;
        }
        let normal = read(0)?;
        Ok(ReceiveCounters {
            normal: normal.frames,
            by_priority,
            foreign: read(SLOT_FOREIGN)?.frames,
            not_deferred: normal.turned,
            lost: None,
        })
    }
}

/// A station's list: the port a frame goes to counts before the one it comes from; the class of a
/// priority has its number.
fn station_rules(list: &[(Port, Priority)], defer_cpu: u32) -> Rules {
    let normal = match list {
        [] => Target::Kernel,
        _ => Target::Threads { lane: 0, cpus: vec![defer_cpu] },
    };
    let with_priority = (1..=32).map(|slot| Class { slot, target: Target::Kernel });
    let to = |port| FrameMatch { to_port: Some(port), ..FrameMatch::default() };
    let from = |port| FrameMatch { from_port: Some(port), ..FrameMatch::default() };
    let pair = |of: fn(u16) -> FrameMatch| {
        move |(port, priority): &(Port, Priority)| (usize::from(priority.get()), of(port.get()))
    };
    Rules {
        classes: std::iter::once(Class { slot: 0, target: normal }).chain(with_priority).collect(),
        matches: list.iter().map(pair(to)).chain(list.iter().map(pair(from))).collect(),
        text: String::new(),
    }
}

/// Counts frames with a priority that the link showed, also those for other stations.
#[derive(Debug)]
pub struct RealTimeCounter(MapHandle);

impl RealTimeCounter {
    /// The count since the program was attached.
    pub fn read(&self) -> Result<u64, BpfError> {
        Ok(read_counter(&self.0, SLOT_REAL_TIME)?.iter().map(|counter| counter.frames).sum())
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;

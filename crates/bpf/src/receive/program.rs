// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receive program in the kernel: loading it, and its maps.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys::{bpf_map_create_opts, size_t};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::rules::{BLOCK, LANES, Rules};
use crate::{BpfError, load, map_of};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));
pub(super) const PROGRAM: &str = "receive";
/// Counter slots that are no class'.
pub(super) const SLOT_FOREIGN: u32 = 70;
pub(super) const SLOT_REAL_TIME: u32 = 71;
/// Frames that can wait for a thread.
const THREAD_QUEUE: u32 = 2_048;

/// Names of the maps of threads, by lane.
pub(super) const LANE_MAPS: [&str; 8] =
    ["lane_0", "lane_1", "lane_2", "lane_3", "lane_4", "lane_5", "lane_6", "lane_7"];
const _: () = assert!(LANE_MAPS.len() == LANES as usize);

/// What the program is told before it is loaded; mirrors `struct tw_settings`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramSettings {
    /// Index of the interface that carries the addresses; for the program behind.
    pub(super) stack_interface: u32,
    /// Unicast frames to others than this are dropped; `None` drops none.
    pub(super) only_for: Option<[u8; 6]>,
    /// Whether another program decides on what goes up at once.
    pub(super) is_chained: bool,
    /// Whether it takes frames of which parts lie in other buffers.
    pub(super) takes_fragments: bool,
}

impl ProgramSettings {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.stack_interface.to_ne_bytes());
        bytes[4..10].copy_from_slice(&self.only_for.unwrap_or_default());
        (bytes[10], bytes[11]) = (self.only_for.is_some().into(), self.is_chained.into());
        bytes
    }
}

/// What became of the frames of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounter {
    /// All.
    pub frames: u64,
    /// **Units**: bytes of frames, without the check sequence.
    pub bytes: u64,
    /// Went up the stack at once.
    pub kernel: u64,
    /// Went to a socket.
    pub socket: u64,
    /// Went to a thread.
    pub threads: u64,
    /// Were left to another program.
    pub chained: u64,
    /// Were to go to a socket or a thread that is not there; they are among `kernel` or `chained`.
    pub turned: u64,
}

impl ClassCounter {
    /// The mirror of `struct tw_counter`; `None` for a value of another length.
    fn decode(bytes: &[u8]) -> Option<ClassCounter> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes))
            .collect();
        let [frames, bytes, kernel, socket, threads, chained, turned] = words[..] else {
            return None;
        };
        Some(ClassCounter { frames, bytes, kernel, socket, threads, chained, turned })
    }
}

impl std::iter::Sum for ClassCounter {
    fn sum<I: Iterator<Item = ClassCounter>>(all: I) -> ClassCounter {
        all.fold(ClassCounter::default(), |sum, one| ClassCounter {
            frames: sum.frames + one.frames,
            bytes: sum.bytes + one.bytes,
            kernel: sum.kernel + one.kernel,
            socket: sum.socket + one.socket,
            threads: sum.threads + one.threads,
            chained: sum.chained + one.chained,
            turned: sum.turned + one.turned,
        })
    }
}

/// The loaded programs with their maps, attached or not.
#[derive(Debug)]
pub(super) struct Programs(pub(super) libbpf_rs::Object);

impl Programs {
    /// Loads them with rules that take every frame up at once.
    pub(super) fn load(settings: ProgramSettings) -> Result<Programs, BpfError> {
        let object = load(PROGRAM, OBJECT, |open| {
            // The kernel refuses a CPUMAP with more entries than it can have CPUs.
            let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(1);
            for mut map in open.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                if LANE_MAPS.contains(&name.as_str()) {
                    map.set_max_entries(cpus)?;
                }
                if name.ends_with(".rodata") {
                    let data = map.initial_value_mut().expect("invariant: rodata has a value");
                    data[..12].copy_from_slice(&settings.bytes());
                }
            }
            for mut program in open.progs_mut() {
                if program.name() == "tw_classify" && settings.takes_fragments {
                    program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
                }
                if program.name() == "tw_to_stack" && settings.stack_interface == 0 {
                    program.set_autoload(false);
                }
            }
            Ok(())
        })?;
        let programs = Programs(object);
        replace_rules(&map_of(&programs.0, "rules"), &Rules::none())?;
        Ok(programs)
    }
}

/// Puts other rules into force: frames before are judged by the old ones alone, frames after by the
/// new ones alone, and when this returns no frame is judged by the old ones any more.
pub(super) fn replace_rules(map: &impl MapCore, rules: &Rules) -> Result<(), BpfError> {
    let failed = |source| BpfError::Map { map: "rules", source };
    let block = rules.encode().map_err(BpfError::TooMany)?;
    // SAFETY: all-zero is valid for this struct of integers and null pointers.
    let mut options: bpf_map_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_t::try_from(size_of_val(&options)).expect("invariant: small");
    let size = u32::try_from(BLOCK).expect("invariant: small");
    let inner = MapHandle::create(MapType::Array, Some("tw_rule_block"), 4, size, 1, &options)
        .map_err(failed)?;
    let first = 0_u32.to_ne_bytes();
    inner.update(&first, &block, MapFlags::ANY).map_err(failed)?;
    map.update(&first, &number_of(inner.as_fd()), MapFlags::ANY).map_err(failed)
}

/// The block of rules that is in force.
pub(super) fn read_rules(map: &impl MapCore) -> Result<Vec<u8>, BpfError> {
    let failed = |source| BpfError::Map { map: "rules", source };
    let first = 0_u32.to_ne_bytes();
    let id = map.lookup(&first, MapFlags::ANY).map_err(failed)?;
    let id = id.and_then(|id| id.try_into().ok().map(u32::from_ne_bytes)).unwrap_or(0);
    let block = MapHandle::from_map_id(id).map_err(failed)?;
    Ok(block.lookup(&first, MapFlags::ANY).map_err(failed)?.unwrap_or_default())
}

/// The counters of a class, by CPU.
pub(super) fn read_counter(map: &impl MapCore, slot: u32) -> Result<Vec<ClassCounter>, BpfError> {
    let per_cpu = map
        .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| BpfError::Map { map: "counters", source })?;
    let values = per_cpu.into_iter().flatten();
    Ok(values.filter_map(|bytes| ClassCounter::decode(&bytes)).collect())
}

/// Makes a thread on a CPU; one that is there stays.
pub(super) fn add_thread(lane: &impl MapCore, cpu: u32) -> Result<(), BpfError> {
    if has_thread(lane, cpu)? {
        return Ok(());
    }
    let mut value = [0; 8];
    value[..4].copy_from_slice(&THREAD_QUEUE.to_ne_bytes());
    lane.update(&cpu.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|source| BpfError::Thread { cpu, source })
}

/// Whether there is a thread on a CPU.
pub(super) fn has_thread(lane: &impl MapCore, cpu: u32) -> Result<bool, BpfError> {
    let value = lane
        .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| BpfError::Thread { cpu, source })?;
    // The size of its queue; 0 means that there is none.
    Ok(value.is_some_and(|value| value[..4] != [0; 4]))
}

/// A descriptor as a map's value.
pub(super) fn number_of(fd: BorrowedFd<'_>) -> [u8; 4] {
    u32::try_from(fd.as_raw_fd()).expect("invariant: open").to_ne_bytes()
}

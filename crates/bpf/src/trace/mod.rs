// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets are on their way through the kernel: programs at its tracepoints, their loader,
//! and the rings that they write events to (`trace.bpf.c`). Where a kernel has no tracepoint, at
//! functions of it (`levels`). Where it is asked for, drivers show frames to an XDP program, too.
//!
//! Not here: the events (`timewire_capture::event`), who writes them into a file
//! (`timewire-runner`).

mod learned;
mod levels;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::{Link, MapCore, MapFlags};
use timewire_capture::capture::HookCount;
use timewire_capture::event::{EVENT_BYTES, Hook};
use timewire_sys::trace_ring::TraceRings;

use crate::{AttachMode, BpfError, attach, load, map_of, objects, program_of};

use levels::{CALLS, Choice, PROBES, describes};

pub use learned::{Flow, Interval};
pub use levels::{Level, Levels};
pub use settings::{Mode, Settings};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));
const PROGRAM: &str = "trace";

/// The program of [`Hook::Xdp`], and the function of the kernel that it needs (Linux 6.2).
const XDP: &str = "tw_xdp";
const XDP_NEEDS: &str = "bpf_cast_to_kern_ctx";
/// Linux `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;

/// Words of a CPU's value: the mirror of `struct tw_cpu`.
const CPU_WORDS: usize = 224;
const SCATTERED: usize = 9;
const EVICTED: usize = 10;
const SEEN: usize = 16;
/// From one kind of counter to the next.
const HOOKS: usize = 24;

/// What befell packets that are followed, beside what is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Packets whose content does not lie together, so that its hash is not that of other hosts.
    pub scattered: u64,
    /// Packets that were no longer followed since the table had no room.
    pub evicted: u64,
}

/// The programs, attached; they are gone with this.
#[derive(Debug)]
pub struct Tracer {
    links: Vec<Link>,
    interfaces: Vec<attach::Link>,
    object: libbpf_rs::Object,
    rings: TraceRings,
    hooks: Vec<Hook>,
    levels: BTreeMap<Hook, Level>,
    programs: BTreeMap<Hook, BTreeSet<&'static str>>,
    missing: BTreeMap<String, String>,
    has_xdp: bool,
}

/// The hooks that have a program of the kernel's own. [`Hook::Xdp`] has one, too
/// ([`Tracer::watch`]); the others are written by somebody else.
pub fn hooks() -> impl Iterator<Item = Hook> {
    Hook::ALL.into_iter().filter(|hook| PROBES.iter().any(|probe| probe.hook == *hook))
}

impl Tracer {
    /// Loads the programs and attaches them: from then on events come. A hook that the kernel does
    /// not have is left out, and told by [`Tracer::missing`]. Levels beyond tracepoints that it
    /// refuses are left out as a whole.
    ///
    /// **Errors**: no privilege; a kernel without BTF ([`BpfError::is_unsupported`]).
    pub fn open(settings: &Settings) -> Result<Tracer, BpfError> {
        libbpf_rs::set_print(None);
        let types = Btf::from_vmlinux().map_err(|source| BpfError::NoTypes { source })?;
        let mut refused = BTreeMap::new();
        loop {
            let has = |level, at: &str| describes(&types, level, at);
            let choice = Choice::new(&settings.hooks, settings.levels, &refused, &has);
            let error = match Tracer::load(settings, &choice, &types)
                .and_then(|tracer| tracer.attach(&choice))
            {
                Ok(tracer) => return Ok(tracer),
                Err(error) => error,
            };
            let at = match error {
                BpfError::Hook { at, .. } => Some(at),
                _ => None,
            };
            let Some(level) = choice.blamed(at) else { return Err(error) };
            refused.insert(level, format!("the kernel refuses {}: {error}", level.name()));
        }
    }

    fn attach(mut self, choice: &Choice) -> Result<Tracer, BpfError> {
        // Those where a packet is seen first come last, so that what is seen first is seen whole.
        for hook in self.hooks.clone().into_iter().rev() {
            for probe in choice.probes(hook) {
                let mut programs = self.object.progs_mut();
                let program = programs
                    .find(|found| found.name() == probe.program)
                    .expect("invariant: the object we embed has the program");
                let link = match probe.level {
                    Level::Tracepoint | Level::Fentry => program.attach_trace(),
                    Level::Kprobe => program.attach_kprobe(probe.ends, probe.at),
                };
                let failed = |source| BpfError::Hook { at: probe.at, source };
                self.links.push(link.map_err(failed)?);
            }
        }
        Ok(self)
    }

    fn load(settings: &Settings, choice: &Choice, types: &Btf<'_>) -> Result<Tracer, BpfError> {
        let (levels, mut missing) = (choice.levels.clone(), choice.missing.clone());
        let asked = settings.hooks.contains(&Hook::Xdp);
        let has_xdp = asked && types.type_by_name::<Func<'_>>(XDP_NEEDS).is_some();
        if asked && !has_xdp {
            let why = format!("this kernel has no `{XDP_NEEDS}`");
            missing.insert(Hook::Xdp.name().to_owned(), why);
        }
        let hooks: Vec<Hook> = levels.keys().copied().collect();
        let used =
            |name: &str| hooks.iter().any(|&h| choice.probes(h).any(|it| it.program == name));
        let has_calls = levels.values().any(|level| *level == Level::Kprobe);
        let failed = |source| BpfError::Map { map: "cpus", source };
        let count = libbpf_rs::num_possible_cpus().map_err(failed)?;
        let cpus = u32::try_from(count).expect("invariant: CPUs have u32 numbers");
        let encoded = settings.encode();
        let object = load(PROGRAM, OBJECT, |open| {
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                let wanted = match PROBES.iter().any(|probe| probe.program == name) {
                    true => used(&name),
                    false if name == XDP => has_xdp,
                    false => settings.answers(),
                };
                program.set_autoload(wanted);
            }
            for mut map in open.maps_mut() {
                match map.name().to_string_lossy().as_ref() {
                    "cpus" => map.set_max_entries(cpus)?,
                    "rings" => map.set_max_entries(settings.ring_entries(cpus))?,
                    "followed" => map.set_max_entries(settings.sets())?,
                    "times" if settings.mode == Mode::Histograms => {
                        map.set_max_entries(settings.sets())?;
                    }
                    "question" => map.set_autocreate(settings.answers())?,
                    CALLS => map.set_autocreate(has_calls)?,
                    name if name.ends_with(".rodata") => {
                        let data = map.initial_value_mut().expect("invariant: rodata has a value");
                        data[..encoded.len()].copy_from_slice(&encoded);
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        let rings = TraceRings::map(
            map_of(&object, "cpus").as_fd(),
            map_of(&object, "rings").as_fd(),
            count,
            CPU_WORDS * 8,
            settings.slots(),
        )
        .map_err(|source| BpfError::Ring { source })?;
        let stations = map_of(&object, "stations");
        for (slot, namespace, station) in settings.station_slots()? {
            let value = [namespace.to_ne_bytes(), station.to_ne_bytes()].concat();
            stations
                .update(&slot.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(|source| BpfError::Map { map: "stations", source })?;
        }
        let programs = |hook: &Hook| (*hook, choice.probes(*hook).map(|it| it.program).collect());
        let programs = hooks.iter().map(programs).collect();
        let (links, interfaces) = (Vec::new(), Vec::new());
        Ok(Tracer { links, interfaces, object, rings, hooks, levels, programs, missing, has_xdp })
    }

    /// Whether there is a program for [`Tracer::watch`]: it was asked for ([`Hook::Xdp`] among the
    /// hooks of the settings), and this kernel can have it.
    pub fn has_xdp(&self) -> bool {
        self.has_xdp
    }

    /// Has the driver of an interface of the caller's network namespace show its frames: from then
    /// on there are events of [`Hook::Xdp`], until this is stopped or its process ends. An
    /// interface that cannot be watched is left as it is; `Some` says why.
    ///
    /// Only in the driver: in the stack, where every interface can have a program, it would be
    /// called behind `netif_receive_skb`, and packets would be copied for it.
    ///
    /// **Errors**: no privilege.
    ///
    /// **Panics** without [`Tracer::has_xdp`].
    pub fn watch(&mut self, interface: u32) -> Result<Option<String>, BpfError> {
        assert!(self.has_xdp, "there is a program");
        let program = program_of(&self.object, XDP);
        let source = match attach::xdp(program.as_fd(), interface, AttachMode::Native) {
            Ok(link) => {
                self.interfaces.push(link);
                if let Err(place) = self.hooks.binary_search(&Hook::Xdp) {
                    self.hooks.insert(place, Hook::Xdp);
                }
                return Ok(None);
            }
            Err(source) => source,
        };
        let taken =
            matches!(source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists);
        Ok(Some(match objects::attached(interface) {
            Ok(Some(other)) if taken => {
                format!("program {} ({}) is there already", other.program, other.name)
            }
            _ if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(BpfError::Attach { program: PROGRAM, interface, source });
            }
            _ if source.raw_os_error() == Some(NOT_SUPPORTED) => "its driver has no XDP".to_owned(),
            _ => format!("its driver refused the program: {source}"),
        }))
    }

    /// What is watched, by the order of the hooks' numbers; [`Hook::Xdp`] where an interface is.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// How each of these is watched; not [`Hook::Xdp`].
    pub fn levels(&self) -> &BTreeMap<Hook, Level> {
        &self.levels
    }

    /// What should have been watched and is not: names of hooks, or `hook at function` where other
    /// functions of the hook are watched, and why.
    pub fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    /// Takes the events that are there now, CPU by CPU, each CPU's in the order in which they were
    /// begun; tells how many. The slices are of the rings themselves: nothing is copied.
    pub fn drain(&mut self, take: &mut dyn FnMut(&[[u8; EVENT_BYTES]])) -> usize {
        (0..self.rings.cpus()).map(|cpu| self.rings.drain(cpu, take)).sum()
    }

    /// Takes the programs off: no further events come. Those that are there can still be drained.
    pub fn stop(&mut self) {
        self.interfaces.clear();
        self.links.clear();
    }

    /// How often each hook was reached, and what became of its events, over all CPUs.
    ///
    /// **Errors**: the kernel does not tell how often it left a program out.
    pub fn counts(&self) -> Result<BTreeMap<Hook, HookCount>, BpfError> {
        let count = |hook: &Hook| {
            let number = usize::from(hook.number());
            let sum = |kind: usize| self.sum(SEEN + kind * HOOKS + number);
            let misses = |name| {
                objects::recursion_misses(program_of(&self.object, name).as_fd())
                    .map_err(|source| BpfError::Ring { source })
            };
            let missed = match self.programs.get(hook) {
                Some(programs) => programs.iter().copied().map(misses).sum::<Result<u64, _>>()?,
                None => misses(XDP)?,
            };
            let lost = sum(3) + missed;
            Ok((*hook, HookCount { seen: sum(0) + missed, written: sum(2), lost }))
        };
        self.hooks.iter().map(count).collect()
    }

    /// At how many packets (or other things) that were asked for each hook was reached: also when
    /// no events are written.
    pub fn matched(&self) -> BTreeMap<Hook, u64> {
        let sum = |hook: &Hook| self.sum(SEEN + HOOKS + usize::from(hook.number()));
        self.hooks.iter().map(|hook| (*hook, sum(hook))).collect()
    }

    /// What befell packets that are followed.
    pub fn troubles(&self) -> Troubles {
        Troubles { scattered: self.sum(SCATTERED), evicted: self.sum(EVICTED) }
    }

    fn sum(&self, word: usize) -> u64 {
        (0..self.rings.cpus()).map(|cpu| self.rings.word(cpu, word)).sum()
    }
}

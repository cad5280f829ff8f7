// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets are on their way through the kernel: programs at its tracepoints, their loader,
//! and the rings that they write events to (`trace.bpf.c`). Tracepoints suffice: no function of the
//! kernel is changed, so kernels that refuse that are traced as well. Where it is asked for,
//! drivers show frames to an XDP program, too.
//!
//! Not here: the events (`timewire_trace::event`), who writes them into a file (`timewire-ctl`).

mod learned;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{Link, MapCore, MapFlags};
use timewire_sys::trace_ring::TraceRings;
use timewire_trace::capture::HookCount;
use timewire_trace::event::{EVENT_BYTES, Hook};

use crate::{AttachMode, BpfError, attach, load, map_of, objects, program_of};

pub use learned::{Flow, Interval};
pub use settings::{Mode, Settings};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));
const PROGRAM: &str = "trace";

/// The hooks that have a program: it, and its tracepoint.
const PROBES: [(Hook, &str, &str); 20] = [
    (Hook::SocketSend, "tw_socket_send", "sock_send_length"),
    (Hook::DeviceQueue, "tw_device_queue", "net_dev_queue"),
    (Hook::QdiscEnqueue, "tw_qdisc_enqueue", "qdisc_enqueue"),
    (Hook::QdiscDequeue, "tw_qdisc_dequeue", "qdisc_dequeue"),
    (Hook::DriverStart, "tw_driver_start", "net_dev_start_xmit"),
    (Hook::DriverDone, "tw_driver_done", "net_dev_xmit"),
    (Hook::ReceiveQueue, "tw_receive_queue", "netif_rx"),
    (Hook::NapiReceive, "tw_napi_receive", "napi_gro_receive_entry"),
    (Hook::StackReceive, "tw_stack_receive", "netif_receive_skb"),
    (Hook::SocketQueue, "tw_socket_queue", "sk_data_ready"),
    (Hook::Waking, "tw_waking", "sched_waking"),
    (Hook::SwitchIn, "tw_switch_in", "sched_switch"),
    (Hook::SocketReceive, "tw_socket_receive", "sock_recv_length"),
    (Hook::Drop, "tw_drop", "kfree_skb"),
    (Hook::IrqEntry, "tw_irq_entry", "irq_handler_entry"),
    (Hook::IrqExit, "tw_irq_exit", "irq_handler_exit"),
    (Hook::SoftirqEntry, "tw_softirq_entry", "softirq_entry"),
    (Hook::SoftirqExit, "tw_softirq_exit", "softirq_exit"),
    (Hook::NapiPoll, "tw_napi_poll", "napi_poll"),
    (Hook::SendEnter, "tw_send_enter", "sys_enter"),
];

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
    missing: BTreeMap<String, String>,
    has_xdp: bool,
}

/// The hooks that have a tracepoint. [`Hook::Xdp`] has a program, too ([`Tracer::watch`]); the
/// others are written by somebody else.
pub fn hooks() -> impl Iterator<Item = Hook> {
    PROBES.iter().map(|(hook, _, _)| *hook)
}

impl Tracer {
    /// Loads the programs and attaches them: from then on events come. A hook that the kernel does
    /// not have is left out, and told by [`Tracer::missing`].
    ///
    /// **Errors**: no privilege; a kernel without BTF ([`BpfError::is_unsupported`]).
    pub fn open(settings: &Settings) -> Result<Tracer, BpfError> {
        let mut tracer = Tracer::load(settings)?;
        // Those where a packet is seen first come last, so that what is seen first is seen whole.
        for hook in tracer.hooks.clone().into_iter().rev() {
            let probe = PROBES.iter().find(|probe| probe.0 == hook);
            let (_, program, tracepoint) = probe.expect("invariant: a hook with a program");
            let link = tracer
                .object
                .progs_mut()
                .find(|found| found.name() == *program)
                .expect("invariant: the object we embed has the program")
                .attach_trace()
                .map_err(|source| BpfError::Hook { tracepoint, source })?;
            tracer.links.push(link);
        }
        Ok(tracer)
    }

    fn load(settings: &Settings) -> Result<Tracer, BpfError> {
        let (hooks, missing) = available(&settings.hooks)?;
        let asked = settings.hooks.contains(&Hook::Xdp);
        let has_xdp = asked && !missing.contains_key(Hook::Xdp.name());
        let failed = |source| BpfError::Map { map: "cpus", source };
        let count = libbpf_rs::num_possible_cpus().map_err(failed)?;
        let cpus = u32::try_from(count).expect("invariant: CPUs have u32 numbers");
        let encoded = settings.encode();
        let object = load(PROGRAM, OBJECT, |open| {
            for mut program in open.progs_mut() {
                let hook = PROBES.iter().find(|probe| program.name() == probe.1);
                let wanted = match hook {
                    Some(probe) => hooks.contains(&probe.0),
                    None if program.name() == XDP => has_xdp,
                    None => settings.answers(),
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
        let (links, interfaces) = (Vec::new(), Vec::new());
        Ok(Tracer { links, interfaces, object, rings, hooks, missing, has_xdp })
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

    /// What should have been watched and is not: names of hooks, and why.
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
            let missed =
                objects::recursion_misses(program_of(&self.object, program(*hook)).as_fd())
                    .map_err(|source| BpfError::Ring { source })?;
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

fn program(hook: Hook) -> &'static str {
    if hook == Hook::Xdp {
        return XDP;
    }
    let probe = PROBES.iter().find(|probe| probe.0 == hook);
    probe.expect("invariant: a hook with a program").1
}

/// The wanted hooks that this kernel has, in order, and why the others are missing.
fn available(wanted: &[Hook]) -> Result<(Vec<Hook>, BTreeMap<String, String>), BpfError> {
    libbpf_rs::set_print(None);
    let types = Btf::from_vmlinux().map_err(|source| BpfError::NoTypes { source })?;
    let mut hooks = Vec::new();
    let mut missing = BTreeMap::new();
    for hook in Hook::ALL.into_iter().filter(|hook| wanted.contains(hook)) {
        let Some((_, _, tracepoint)) = PROBES.iter().find(|probe| probe.0 == hook) else {
            continue;
        };
        let name = format!("btf_trace_{tracepoint}");
        if types.type_by_name::<Typedef<'_>>(&name).is_some() {
            hooks.push(hook);
        } else {
            let why = format!("this kernel has no tracepoint `{tracepoint}`");
            missing.insert(hook.name().to_owned(), why);
        }
    }
    if wanted.contains(&Hook::Xdp) && types.type_by_name::<Func<'_>>(XDP_NEEDS).is_none() {
        let why = format!("this kernel has no `{XDP_NEEDS}`");
        missing.insert(Hook::Xdp.name().to_owned(), why);
    }
    Ok((hooks, missing))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which program watches a hook: tracepoints where the kernel has them; beyond that the entries and
//! ends of functions (fentry, fexit), or breakpoints in them (kprobe).
//!
//! | level | needs | of Linux |
//! | --- | --- | --- |
//! | tracepoint | nothing beyond BTF | sockets from 6.3 on, all others 5.15 |
//! | fentry | `CONFIG_FUNCTION_TRACER`, no lockdown | 5.5 (x86), 6.0 (arm64) |
//! | kprobe | `CONFIG_KPROBES`, no lockdown | any |

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use timewire_capture::event::Hook;

/// How a hook is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// By the kernel's tracepoint.
    Tracepoint,
    /// At the entry or the end of a function (fentry, fexit).
    Fentry,
    /// By a breakpoint in a function (kprobe, kretprobe).
    Kprobe,
}

impl Level {
    const ALL: [Level; 3] = [Level::Tracepoint, Level::Fentry, Level::Kprobe];

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Tracepoint => "tracepoint",
            Level::Fentry => "fentry",
            Level::Kprobe => "kprobe",
        }
    }
}

/// Which levels may be used for hooks that have several; the others have tracepoints only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Levels {
    /// The first that this kernel has.
    #[default]
    Auto,
    /// This one.
    Only(Level),
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Levels, String> {
        let level = Level::ALL.into_iter().find(|level| level.name() == text);
        match (text, level) {
            ("auto", _) => Ok(Levels::Auto),
            (_, Some(level)) => Ok(Levels::Only(level)),
            _ => Err(format!("`{text}` is no level: auto, tracepoint, fentry or kprobe")),
        }
    }
}

/// A program, and where it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub hook: Hook,
    pub level: Level,
    pub program: &'static str,
    /// The tracepoint or the function.
    pub at: &'static str,
    /// Whether it is the end of a function, of a kprobe.
    pub ends: bool,
}

const fn tracepoint(hook: Hook, program: &'static str, at: &'static str) -> Probe {
    Probe { hook, level: Level::Tracepoint, program, at, ends: false }
}

const fn fentry(hook: Hook, program: &'static str, at: &'static str) -> Probe {
    Probe { hook, level: Level::Fentry, program, at, ends: false }
}

const fn kprobe(hook: Hook, program: &'static str, at: &'static str) -> Probe {
    Probe { hook, level: Level::Kprobe, program, at, ends: false }
}

const fn kretprobe(hook: Hook, program: &'static str, at: &'static str) -> Probe {
    Probe { hook, level: Level::Kprobe, program, at, ends: true }
}

/// Each program, the tracepoints first.
pub(super) const PROBES: [Probe; 42] = [
    tracepoint(Hook::SocketSend, "tw_socket_send", "sock_send_length"),
    tracepoint(Hook::DeviceQueue, "tw_device_queue", "net_dev_queue"),
    tracepoint(Hook::QdiscEnqueue, "tw_qdisc_enqueue", "qdisc_enqueue"),
    tracepoint(Hook::QdiscDequeue, "tw_qdisc_dequeue", "qdisc_dequeue"),
    tracepoint(Hook::DriverStart, "tw_driver_start", "net_dev_start_xmit"),
    tracepoint(Hook::DriverDone, "tw_driver_done", "net_dev_xmit"),
    tracepoint(Hook::ReceiveQueue, "tw_receive_queue", "netif_rx"),
    tracepoint(Hook::NapiReceive, "tw_napi_receive", "napi_gro_receive_entry"),
    tracepoint(Hook::StackReceive, "tw_stack_receive", "netif_receive_skb"),
    tracepoint(Hook::SocketQueue, "tw_socket_queue", "sk_data_ready"),
    tracepoint(Hook::Waking, "tw_waking", "sched_waking"),
    tracepoint(Hook::SwitchIn, "tw_switch_in", "sched_switch"),
    tracepoint(Hook::SocketReceive, "tw_socket_receive", "sock_recv_length"),
    tracepoint(Hook::Drop, "tw_drop", "kfree_skb"),
    tracepoint(Hook::IrqEntry, "tw_irq_entry", "irq_handler_entry"),
    tracepoint(Hook::IrqExit, "tw_irq_exit", "irq_handler_exit"),
    tracepoint(Hook::SoftirqEntry, "tw_softirq_entry", "softirq_entry"),
    tracepoint(Hook::SoftirqExit, "tw_softirq_exit", "softirq_exit"),
    tracepoint(Hook::NapiPoll, "tw_napi_poll", "napi_poll"),
    tracepoint(Hook::SendEnter, "tw_send_enter", "sys_enter"),
    fentry(Hook::SocketQueue, "tw_queue_entry", "sock_def_readable"),
    fentry(Hook::SocketSend, "tw_send_inet", "inet_sendmsg"),
    fentry(Hook::SocketSend, "tw_send_inet6", "inet6_sendmsg"),
    fentry(Hook::SocketSend, "tw_send_packet", "packet_sendmsg"),
    fentry(Hook::SocketReceive, "tw_receive_inet", "inet_recvmsg"),
    fentry(Hook::SocketReceive, "tw_receive_inet6", "inet6_recvmsg"),
    fentry(Hook::SocketReceive, "tw_receive_packet", "packet_recvmsg"),
    fentry(Hook::TransmitTimestamp, "tw_timestamp_entry", "__skb_tstamp_tx"),
    kprobe(Hook::SocketQueue, "tw_queue_probe", "sock_def_readable"),
    kprobe(Hook::SocketSend, "tw_send_probe", "inet_sendmsg"),
    kprobe(Hook::SocketSend, "tw_send_probe", "inet6_sendmsg"),
    kprobe(Hook::SocketSend, "tw_send_probe", "packet_sendmsg"),
    kretprobe(Hook::SocketSend, "tw_send_return", "inet_sendmsg"),
    kretprobe(Hook::SocketSend, "tw_send_return", "inet6_sendmsg"),
    kretprobe(Hook::SocketSend, "tw_send_return", "packet_sendmsg"),
    kprobe(Hook::SocketReceive, "tw_receive_probe", "inet_recvmsg"),
    kprobe(Hook::SocketReceive, "tw_receive_probe", "inet6_recvmsg"),
    kprobe(Hook::SocketReceive, "tw_receive_probe", "packet_recvmsg"),
    kretprobe(Hook::SocketReceive, "tw_receive_return", "inet_recvmsg"),
    kretprobe(Hook::SocketReceive, "tw_receive_return", "inet6_recvmsg"),
    kretprobe(Hook::SocketReceive, "tw_receive_return", "packet_recvmsg"),
    kprobe(Hook::TransmitTimestamp, "tw_timestamp_probe", "__skb_tstamp_tx"),
];

/// The map that only breakpoints use.
pub(super) const CALLS: &str = "calls";

/// Programs of a hook at a level.
pub(super) fn probes(hook: Hook, level: Level) -> impl Iterator<Item = &'static Probe> {
    PROBES.iter().filter(move |probe| (probe.hook, probe.level) == (hook, level))
}

/// What is watched, and how; and why the rest is not.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub levels: BTreeMap<Hook, Level>,
    pub missing: BTreeMap<String, String>,
    /// Functions of these hooks that the kernel was built without: a family of sockets.
    pub absent: BTreeSet<&'static str>,
}

impl Choice {
    /// Of the wanted hooks those that this kernel describes, at levels that it has not refused.
    /// `has` tells whether it has a tracepoint or, beyond tracepoints, a function of that name.
    pub fn new(
        wanted: &[Hook],
        levels: Levels,
        refused: &BTreeMap<Level, String>,
        has: &dyn Fn(Level, &str) -> bool,
    ) -> Choice {
        let mut choice = Choice::default();
        for hook in Hook::ALL.into_iter().filter(|hook| wanted.contains(hook)) {
            let all = || Level::ALL.into_iter().filter(|&level| probes(hook, level).count() > 0);
            let several = all().count() > 1 || all().all(|level| level != Level::Tracepoint);
            let mut why = Vec::new();
            for level in all() {
                let asked = match levels {
                    Levels::Only(only) if several => only == level,
                    Levels::Only(_) | Levels::Auto => true,
                };
                if !asked {
                    continue;
                }
                match refused.get(&level).cloned().or_else(|| lacks(hook, level, has)) {
                    None => {
                        choice.take(hook, level, has);
                        break;
                    }
                    Some(reason) => why.push(reason),
                }
            }
            if !choice.levels.contains_key(&hook) && all().next().is_some() {
                if why.is_empty() {
                    let Levels::Only(level) = levels else { continue };
                    why.push(format!("it has no {}", level.name()));
                }
                choice.missing.insert(hook.name().to_owned(), why.join("; "));
            }
        }
        choice
    }

    fn take(&mut self, hook: Hook, level: Level, has: &dyn Fn(Level, &str) -> bool) {
        self.levels.insert(hook, level);
        for probe in probes(hook, level).filter(|probe| !has(level, probe.at)) {
            self.absent.insert(probe.at);
            let name = format!("{} at {}", hook.name(), probe.at);
            self.missing.insert(name, without(level, probe.at));
        }
    }

    /// The programs of a hook that are used, and where.
    pub fn probes(&self, hook: Hook) -> impl Iterator<Item = &'static Probe> {
        let level = self.levels.get(&hook).copied();
        let all = level.into_iter().flat_map(move |level| probes(hook, level));
        all.filter(|probe| !self.absent.contains(probe.at))
    }

    /// The level that is to blame for what the kernel refused: that of the place, or of all that
    /// were loaded the first beyond tracepoints.
    pub fn blamed(&self, at: Option<&str>) -> Option<Level> {
        let beyond = |level: &Level| *level != Level::Tracepoint;
        match at {
            Some(at) => {
                let hooks = || self.levels.keys().flat_map(|&hook| self.probes(hook));
                hooks().find(|probe| probe.at == at).map(|probe| probe.level).filter(beyond)
            }
            None => self.levels.values().copied().filter(beyond).min(),
        }
    }
}

/// Whether a kernel has that tracepoint, or has that function built in.
pub(super) fn describes(types: &Btf<'_>, level: Level, at: &str) -> bool {
    match level {
        Level::Tracepoint => {
            types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{at}")).is_some()
        }
        Level::Fentry | Level::Kprobe => types.type_by_name::<Func<'_>>(at).is_some(),
    }
}

/// Why a kernel cannot have a hook at that level: it has none of the places.
fn lacks(hook: Hook, level: Level, has: &dyn Fn(Level, &str) -> bool) -> Option<String> {
    let first = probes(hook, level).next()?.at;
    let has_one = probes(hook, level).any(|probe| has(level, probe.at));
    (!has_one).then(|| without(level, first))
}

fn without(level: Level, at: &str) -> String {
    match level {
        Level::Tracepoint => format!("this kernel has no tracepoint `{at}`"),
        Level::Fentry | Level::Kprobe => format!("this kernel has no function `{at}` built in"),
    }
}

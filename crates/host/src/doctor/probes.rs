// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was found out about a kernel by trying: a value that is written beside a snapshot and read
//! again.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use timewire_base::IfName;

use crate::snapshot::source::{Redacting, Source};

/// The `schema` of [`Probes`].
pub const PROBES_SCHEMA: &str = "timewire.probes/1";

/// Everything that was tried on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    /// [`PROBES_SCHEMA`].
    pub schema: String,
    /// The kernel's release.
    pub kernel: String,
    /// Whether it was tried with the host's own privilege or in a user namespace.
    pub privilege: Tried,
    /// What was tried, and how it went.
    pub results: BTreeMap<Probe, ProbeOutcome>,
    /// How late sleeping threads woke up, here and then: no promise.
    pub wake_ups: Vec<WakeUps>,
    /// The clocks of NICs.
    pub hardware_clocks: Vec<HardwareClockProbe>,
    /// What NICs were asked to do themselves, `taprio`, `etf` or `cbs`, by interface. Only those
    /// that were named to be tried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub offloads: BTreeMap<IfName, BTreeMap<String, ProbeOutcome>>,
    /// Modules that the kernel loaded by itself because something was tried; they stay loaded.
    pub modules_loaded: Vec<String>,
}

impl Probes {
    /// Without what tells one host from others of its kind: addresses, as in the answers of the
    /// host that are redacted so, and directories that are not of the system.
    #[must_use]
    pub fn redacted<S: Source>(self, redacting: &Redacting<S>) -> Probes {
        let text = |text: String| without_directories(&redacting.text(&text));
        let of = |outcome: ProbeOutcome| outcome.with_text(text);
        let clocks = self.hardware_clocks.into_iter().map(|clock| HardwareClockProbe {
            name: text(clock.name),
            read: of(clock.read),
            ..clock
        });
        let offloads = self.offloads.into_iter().map(|(interface, tried)| {
            let tried = tried.into_iter().map(|(what, outcome)| (what, of(outcome))).collect();
            (redacting.name(&interface), tried)
        });
        Probes {
            results: self
                .results
                .into_iter()
                .map(|(probe, outcome)| (probe, of(outcome)))
                .collect(),
            hardware_clocks: clocks.collect(),
            offloads: offloads.collect(),
            ..self
        }
    }

    /// How one of them went; untried when it is not there, as in a file of an earlier version.
    pub fn of(&self, probe: Probe) -> ProbeOutcome {
        let never = || ProbeOutcome::Untried { why: "it was not tried".to_owned() };
        self.results.get(&probe).cloned().unwrap_or_else(never)
    }

    /// Whether it works.
    pub fn works(&self, probe: Probe) -> bool {
        self.of(probe).works()
    }
}

/// A path elsewhere than in the directories of the system becomes `.../` and its last name: its
/// others name people and services.
fn without_directories(text: &str) -> String {
    let short = |word: &str| {
        let of_system = SYSTEM_DIRECTORIES.iter().any(|directory| word.starts_with(directory));
        match word.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
            Some((_, last)) if !of_system => format!(".../{last}"),
            _ => word.to_owned(),
        }
    };
    text.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

const SYSTEM_DIRECTORIES: [&str; 7] =
    ["/usr/", "/bin/", "/sbin/", "/sys/", "/proc/", "/dev/", "/run/"];

/// With which privilege things were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tried {
    /// With the host's own.
    Root,
    /// As root of a user namespace: networks of its own, but no real-time scheduling and no eBPF.
    UserNamespace,
    /// With none: most things could not be tried.
    Nobody,
}

/// How a try went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// It was done, and what could be read back was right.
    Works {
        /// What was seen.
        found: String,
    },
    /// The kernel or the machine does not have it.
    Absent {
        /// What the kernel or the tool said.
        said: String,
    },
    /// It was refused for want of privilege.
    Forbidden {
        /// What the kernel or the tool said.
        said: String,
    },
    /// It could not be tried.
    Untried {
        /// Why not.
        why: String,
    },
}

impl ProbeOutcome {
    /// Whether it works.
    pub fn works(&self) -> bool {
        matches!(self, ProbeOutcome::Works { .. })
    }

    fn with_text(self, make: impl Fn(String) -> String) -> ProbeOutcome {
        match self {
            ProbeOutcome::Works { found } => ProbeOutcome::Works { found: make(found) },
            ProbeOutcome::Absent { said } => ProbeOutcome::Absent { said: make(said) },
            ProbeOutcome::Forbidden { said } => ProbeOutcome::Forbidden { said: make(said) },
            ProbeOutcome::Untried { why } => ProbeOutcome::Untried { why: make(why) },
        }
    }

    /// The words beside it.
    pub fn text(&self) -> &str {
        match self {
            ProbeOutcome::Works { found } => found,
            ProbeOutcome::Absent { said } | ProbeOutcome::Forbidden { said } => said,
            ProbeOutcome::Untried { why } => why,
        }
    }
}

/// How late sleeping threads woke up.
///
/// **Units**: nanoseconds after the time that was slept until, of one clock reading each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUps {
    /// `other` or `fifo`.
    pub policy: String,
    /// How many sleeps.
    pub samples: u32,
    /// Half of them were at most so late.
    pub p50_ns: i64,
    /// 99 of 100 were at most so late.
    pub p99_ns: i64,
    /// The latest.
    pub max_ns: i64,
}

/// The clock of a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareClockProbe {
    /// Its number: `/dev/ptpN`.
    pub index: u32,
    /// What its driver calls it.
    pub name: String,
    /// Opening and reading it.
    pub read: ProbeOutcome,
    /// Whether it can be read in one moment with the system's clock, in hardware.
    pub cross_timestamps: bool,
    /// Inputs that it timestamps, such as a pulse per second.
    pub external_timestamps: u32,
    /// The shortest time that a reading took between two of the system's clock. **Units**:
    /// nanoseconds.
    pub reading_window_ns: Option<i64>,
}

macro_rules! probes {
    ($($(#[doc = $doc:literal])* $variant:ident = $id:literal,)*) => {
        /// One thing that is tried. Its words are what is tried, for people.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Probe {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Probe {
            /// All, in the order in which they are shown.
            pub const ALL: &[Probe] = &[$(Probe::$variant),*];

            /// Its stable name.
            pub fn id(self) -> &'static str {
                match self {
                    $(Probe::$variant => $id,)*
                }
            }

            /// What is tried.
            pub fn what(self) -> &'static str {
                match self {
                    $(Probe::$variant => concat!($($doc),*).trim_ascii(),)*
                }
            }
        }
    };
}

probes! {
    /// An interface pair with four queues in a namespace of its own
    Scratch = "scratch",
    /// Traffic classes with queues of their own (`mqprio`)
    Mqprio = "qdisc.mqprio",
    /// Gates by the kernel's timers (`taprio`)
    Taprio = "qdisc.taprio",
    /// Gates by launch times (`taprio flags 0x1`)
    TaprioTxtimeAssist = "qdisc.taprio-txtime-assist",
    /// Launch times (`etf`)
    Etf = "qdisc.etf",
    /// The credit-based shaper (`cbs`)
    Cbs = "qdisc.cbs",
    /// Fair queueing, which paces on the monotonic clock (`fq`)
    Fq = "qdisc.fq",
    /// Delay and loss for experiments (`netem`)
    Netem = "qdisc.netem",
    /// A rate for experiments (`tbf`)
    Tbf = "qdisc.tbf",
    /// Strict priority of classes behind a rate (`prio`)
    Prio = "qdisc.prio",
    /// A bridge that forwards by VLAN (`vlan_filtering`)
    BridgeVlan = "bridge.vlan",
    /// Filters that give frames a priority and copy them (`flower`, `matchall`)
    Filters = "filter.flower",
    /// A VLAN interface with maps of priorities
    Vlan = "vlan",
    /// Packet sockets, there and back
    PacketSocket = "socket.packet",
    /// Launch times of a socket on the clock TAI
    LaunchTimes = "socket.txtime",
    /// Timestamps of sent messages in software
    TransmitTimestamps = "socket.tx-timestamps",
    /// Timestamps of received messages in software
    ReceiveTimestamps = "socket.rx-timestamps",
    /// Busy polling of a socket
    BusyPoll = "socket.busy-poll",
    /// XDP in the driver
    XdpNative = "xdp.native",
    /// XDP in the generic layer
    XdpGeneric = "xdp.generic",
    /// Receive timestamps of the NIC in XDP
    XdpReceiveTimestamps = "xdp.rx-timestamps",
    /// AF_XDP with XDP in the driver, there and back
    XskNative = "xsk.native",
    /// AF_XDP with XDP in the generic layer, there and back
    XskGeneric = "xsk.generic",
    /// AF_XDP without a system call for every frame
    XskNeedWakeup = "xsk.need-wakeup",
    /// AF_XDP without a copy, on a virtual interface
    XskZeroCopy = "xsk.zero-copy",
    /// Threads on chosen CPUs that take frames over (CPUMAP)
    CpuMap = "bpf.cpumap",
    /// Programs of traffic control, attached by link (tcx)
    Tcx = "bpf.tcx",
    /// Programs on tracepoints, and a ring buffer to hear from them
    Tracing = "bpf.tracing",
    /// The kernel's types for programs (BTF)
    Btf = "bpf.btf",
    /// The file system of programs
    BpfFileSystem = "bpf.filesystem",
    /// A thread for the polling of each queue
    ThreadedNapi = "napi.threaded",
    /// CPUs for received packets (RPS)
    Rps = "queue.rps",
    /// Queues for sending CPUs (XPS)
    Xps = "queue.xps",
    /// SCHED_FIFO
    Fifo = "sched.fifo",
    /// SCHED_RR
    RoundRobin = "sched.rr",
    /// SCHED_DEADLINE
    Deadline = "sched.deadline",
    /// Locking memory
    LockMemory = "memory.lock",
    /// Asking that idle CPUs wake up at once
    WakeAtOnce = "cpu.wake-at-once",
    /// CPU sets of control groups
    CpuSets = "cgroup.cpuset",
    /// Stopping and continuing a control group
    Freezer = "cgroup.freezer",
    /// Timers of high resolution on the clock TAI
    Timers = "clock.timers",
    /// The tool `ip`
    ToolIp = "tool.ip",
    /// The tool `tc`
    ToolTc = "tool.tc",
    /// The tool `ethtool`
    ToolEthtool = "tool.ethtool",
    /// The daemon `ptp4l`
    ToolPtp4l = "tool.ptp4l",
    /// The daemon `phc2sys`
    ToolPhc2sys = "tool.phc2sys",
    /// The daemon `ts2phc`
    ToolTs2phc = "tool.ts2phc",
}

impl Probe {
    /// The one of this name.
    pub fn by_id(id: &str) -> Option<Probe> {
        Probe::ALL.iter().copied().find(|probe| probe.id() == id)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Probe {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for Probe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        Probe::by_id(&id).ok_or_else(|| serde::de::Error::custom(format!("no probe is `{id}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_probes_have_names_of_their_own() {
        for probe in Probe::ALL {
            assert_eq!(Probe::by_id(probe.id()), Some(*probe));
            assert!(!probe.what().is_empty() && !probe.what().ends_with('.'), "{probe}");
        }
    }

    #[test]
    fn t0_what_was_tried_can_be_given_away() {
        let works = |found: &str| ProbeOutcome::Works { found: found.to_owned() };
        let probes = Probes {
            schema: PROBES_SCHEMA.to_owned(),
            kernel: "6.12".to_owned(),
            privilege: Tried::Root,
            results: BTreeMap::from([
                (Probe::ToolIp, works("/usr/sbin/ip")),
                (Probe::ToolPtp4l, works("/home/alice/bin/ptp4l")),
                (Probe::Vlan, ProbeOutcome::Absent { said: "no enx525400abcdef here".to_owned() }),
            ]),
            wake_ups: Vec::new(),
            hardware_clocks: vec![HardwareClockProbe {
                index: 0,
                name: "525400abcdef".to_owned(),
                read: works("it was read"),
                cross_timestamps: false,
                external_timestamps: 0,
                reading_window_ns: None,
            }],
            offloads: BTreeMap::from([(IfName::new("enx525400abcdef").unwrap(), BTreeMap::new())]),
            modules_loaded: Vec::new(),
        };
        let redacted = probes.redacted(&Redacting::new(crate::snapshot::source::Live));
        assert_eq!(redacted.of(Probe::ToolIp).text(), "/usr/sbin/ip");
        assert_eq!(redacted.of(Probe::ToolPtp4l).text(), ".../ptp4l");
        assert_eq!(redacted.of(Probe::Vlan).text(), "no enx020000000001 here");
        assert_eq!(redacted.hardware_clocks[0].name, "020000000001");
        assert_eq!(redacted.offloads.keys().next().unwrap().as_str(), "enx020000000001");
    }

    #[test]
    fn t0_results_are_read_as_they_were_written() {
        let found = || "x".to_owned();
        let probes = Probes {
            schema: PROBES_SCHEMA.to_owned(),
            kernel: "6.12".to_owned(),
            privilege: Tried::UserNamespace,
            results: BTreeMap::from([
                (Probe::Cbs, ProbeOutcome::Works { found: found() }),
                (Probe::Etf, ProbeOutcome::Absent { said: found() }),
            ]),
            wake_ups: Vec::new(),
            hardware_clocks: Vec::new(),
            offloads: BTreeMap::new(),
            modules_loaded: Vec::new(),
        };
        let text = serde_json::to_string(&probes).unwrap();
        assert_eq!(serde_json::from_str::<Probes>(&text).unwrap(), probes);
        assert!(text.contains(r#""qdisc.cbs":{"state":"works","found":"x"}"#), "{text}");
        assert!(probes.works(Probe::Cbs) && !probes.works(Probe::Etf));
        assert_eq!(probes.of(Probe::Fq).text(), "it was not tried");
    }
}

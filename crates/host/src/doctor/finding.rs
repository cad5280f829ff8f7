// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a judgement consists of: findings with stable names, the backends, the accuracy class.

use std::fmt;

use serde::{Serialize, Serializer};
use timewire_base::{IfName, Span, StationName};
use timewire_tsn::backend::{SlotPromise, TransmitBackend};

use super::class::AccuracyClass;

/// The `schema` of [`Diagnosis`].
pub const DOCTOR_SCHEMA: &str = "timewire.doctor/1";

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Nothing that was asked about needs it; what is known is told.
    NotAsked,
    /// It works less exactly than it could, or works after a command that is named.
    Degraded,
    /// It is needed and cannot be had on this kernel or with this NIC.
    Missing,
}

impl State {
    /// The word in output.
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::NotAsked => "not asked",
            State::Degraded => "degraded",
            State::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its stable name.
    pub id: Check,
    /// The interface that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<IfName>,
    /// Which part of what was asked about needs it, where that is not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_by: Option<String>,
    /// How it is.
    pub state: State,
    /// What was seen.
    pub found: String,
    /// Why it matters; empty when all is well.
    pub why: &'static str,
    /// The commands or settings that mend it, in their order; never empty where it is not well.
    pub mend: Vec<String>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(id: Check, found: impl Into<String>) -> Finding {
        Finding::new(id, State::Ok, found)
    }

    pub(super) fn new(id: Check, state: State, found: impl Into<String>) -> Finding {
        let why = if state == State::Ok { "" } else { id.why() };
        let found = found.into();
        Finding { id, interface: None, needed_by: None, state, found, why, mend: Vec::new() }
    }

    /// With a command or setting that mends it; of no use when all is well.
    pub(super) fn mended_by(mut self, command: impl Into<String>) -> Finding {
        if self.state != State::Ok {
            self.mend.push(command.into());
        }
        self
    }

    pub(super) fn mended_by_all(self, commands: Vec<String>) -> Finding {
        commands.into_iter().fold(self, Finding::mended_by)
    }

    pub(super) fn of(mut self, interface: &IfName) -> Finding {
        self.interface = Some(interface.clone());
        self
    }

    pub(super) fn needed_by(mut self, what: impl Into<String>) -> Finding {
        self.needed_by = Some(what.into());
        self
    }
}

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// The host in general.
    Host,
    /// An interface.
    Interface {
        /// Which.
        name: IfName,
    },
    /// Host settings.
    HostSettings {
        /// Its name.
        name: String,
    },
    /// A scenario.
    Scenario {
        /// Its name.
        name: String,
        /// Where it would run.
        #[serde(flatten)]
        place: RunSite,
    },
}

/// Where a scenario would run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum RunSite {
    /// All of it in the local laboratory.
    Laboratory {
        /// The options that judge this host as one of the stations instead.
        this_host: String,
    },
    /// One station of it on this host.
    Station {
        /// Which.
        station: StationName,
        /// On this interface.
        interface: IfName,
    },
}

/// A way to carry a schedule out. Their order is that of how exact they are, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendVariant {
    /// Gates in the NIC.
    TaprioOffload,
    /// Launch times in the NIC.
    EtfOffload,
    /// Gates by the kernel's timers.
    Taprio,
    /// Gates as launch times that the kernel keeps.
    TaprioAssist,
    /// Timewire's MAC over AF_XDP in the driver.
    MacNative,
    /// Timewire's MAC over AF_XDP in the generic layer.
    MacGeneric,
    /// Timewire's MAC over packet sockets.
    MacPacket,
    /// Launch times that the kernel keeps.
    Etf,
    /// The credit-based shaper.
    Cbs,
    /// Traffic classes with queues of their own.
    Mqprio,
}

impl BackendVariant {
    /// All of them, the best first: in the order of their backends
    /// ([`TransmitBackend::BY_PREFERENCE`]), and of one backend, what the NIC does before what the
    /// kernel does. What keeps every frame in its slot goes before what keeps only those of real
    /// time, however exactly.
    pub const BY_PREFERENCE: [BackendVariant; 10] = [
        BackendVariant::TaprioOffload,
        BackendVariant::Taprio,
        BackendVariant::TaprioAssist,
        BackendVariant::MacNative,
        BackendVariant::MacGeneric,
        BackendVariant::MacPacket,
        BackendVariant::EtfOffload,
        BackendVariant::Etf,
        BackendVariant::Cbs,
        BackendVariant::Mqprio,
    ];

    /// The backend that it is a way of; `None` for one that carries no schedule out.
    pub fn backend(self) -> Option<TransmitBackend> {
        Some(match self {
            BackendVariant::TaprioOffload | BackendVariant::Taprio => TransmitBackend::Taprio,
            BackendVariant::TaprioAssist => TransmitBackend::TaprioAssist,
            BackendVariant::MacNative | BackendVariant::MacGeneric | BackendVariant::MacPacket => {
                TransmitBackend::Mac
            }
            BackendVariant::EtfOffload | BackendVariant::Etf => TransmitBackend::Etf,
            BackendVariant::Cbs => TransmitBackend::Cbs,
            BackendVariant::Mqprio => return None,
        })
    }

    /// The name in output.
    pub fn word(self) -> &'static str {
        match self {
            BackendVariant::TaprioOffload => "taprio-offload",
            BackendVariant::EtfOffload => "etf-offload",
            BackendVariant::Taprio => "taprio",
            BackendVariant::TaprioAssist => "taprio-assist",
            BackendVariant::MacNative => "mac-af_xdp_native",
            BackendVariant::MacGeneric => "mac-af_xdp_generic",
            BackendVariant::MacPacket => "mac-af_packet",
            BackendVariant::Etf => "etf",
            BackendVariant::Cbs => "cbs",
            BackendVariant::Mqprio => "mqprio",
        }
    }

    /// Whether it keeps slots, at least those of real-time frames.
    pub fn keeps_slots(self) -> bool {
        self.backend().is_some_and(|backend| backend.slots() != SlotPromise::None)
    }

    /// Whether the NIC does it.
    pub fn is_in_the_nic(self) -> bool {
        matches!(self, BackendVariant::TaprioOffload | BackendVariant::EtfOffload)
    }

    /// Whether a thread of Timewire does it.
    pub fn is_mac(self) -> bool {
        matches!(
            self,
            BackendVariant::MacNative | BackendVariant::MacGeneric | BackendVariant::MacPacket
        )
    }
}

impl fmt::Display for BackendVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for BackendVariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Whether a variant is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendFinding {
    /// Which.
    pub backend: BackendVariant,
    /// Whether it can be had here.
    pub possible: bool,
    /// Why it can or cannot, or why another is better.
    pub why: String,
}

/// How exact it will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accuracy {
    /// The class.
    pub class: AccuracyClass,
    /// What it means.
    pub meaning: &'static str,
    /// How late a frame has to be allowed to be; `None` when there is no bound.
    #[serde(rename = "allowance_ns")]
    pub allowance: Option<Span>,
    /// What makes it no better.
    pub dominated_by: String,
}

/// Whether it can run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Yes, and nothing is to be said.
    Yes,
    /// Yes, less exactly than could be, or after a command that is named.
    YesBut,
    /// No: something that is needed cannot be had here.
    No,
}

/// The whole judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// [`DOCTOR_SCHEMA`].
    pub schema: &'static str,
    /// What was asked about.
    pub subject: Subject,
    /// Whether it can run here.
    pub verdict: Verdict,
    /// The backend that would be taken; `None` when nothing needs one, or none can be had.
    pub backend: Option<BackendVariant>,
    /// Every backend, the best first; empty when nothing needs one.
    pub backends: Vec<BackendFinding>,
    /// How exact it will be.
    pub accuracy: Accuracy,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// What is missing: with any of it, nothing of what was asked about can run.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.state == State::Missing)
    }

    /// What is worse than it could be for a part of what was asked about.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        let degraded = self.findings.iter().filter(|finding| finding.state == State::Degraded);
        degraded.filter(|finding| finding.needed_by.is_some())
    }

    /// The exit code: 0 all is well, 1 degraded or a command is needed first, 4 something needed is
    /// missing here.
    pub fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Yes => 0,
            Verdict::YesBut => 1,
            Verdict::No => 4,
        }
    }
}

macro_rules! checks {
    ($($(#[doc = $doc:literal])* $variant:ident = $id:literal, $why:literal;)*) => {
        /// What is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Check {
            /// All of them.
            pub const ALL: &[Check] = &[$(Check::$variant),*];

            /// Its stable name.
            pub fn id(self) -> &'static str {
                match self {
                    $(Check::$variant => $id,)*
                }
            }

            /// What is looked at.
            pub fn what(self) -> &'static str {
                match self {
                    $(Check::$variant => concat!($($doc),*).trim_ascii(),)*
                }
            }

            /// Why it matters.
            pub fn why(self) -> &'static str {
                match self {
                    $(Check::$variant => $why,)*
                }
            }
        }
    };
}

checks! {
    /// Root, or the capabilities that stand for it
    Privilege = "privilege",
        "interfaces, real-time scheduling and eBPF need it";
    /// The tools of the distribution that make and change interfaces
    Tools = "tools",
        "Timewire changes interfaces with them";
    /// The mode of a kernel that was locked down
    Lockdown = "kernel.lockdown",
        "a kernel that is locked down refuses tracing";
    /// Whether the kernel can be interrupted nearly everywhere
    Preemption = "kernel.preemption",
        "a kernel that cannot be interrupted keeps a real-time thread waiting";
    /// How many CPUs there are
    CpuCount = "cpu.count",
        "a thread that waits for its moment shares its CPU with everything else";
    /// CPUs that the scheduler leaves alone
    CpuIsolated = "cpu.isolated",
        "other programs, interrupts and the tick disturb the thread that sends";
    /// Whether a hypervisor can stop the CPUs
    CpuVirtual = "cpu.virtual",
        "the host of a virtual machine can stop any of its threads at any time";
    /// Who sets the frequency of the CPUs
    CpuGovernor = "cpu.governor",
        "a CPU that was slowed down takes longer for each frame, and time to get fast again";
    /// How deep idle CPUs sleep
    CpuIdle = "cpu.idle",
        "a CPU that sleeps deeply wakes up late";
    /// Whether two threads share a core
    CpuSmt = "cpu.smt",
        "the other thread of the core takes computing time away at any moment";
    /// Real-time scheduling
    SchedulingFifo = "scheduling.fifo",
        "without it any program can run before the thread that has to send";
    /// Reservations of computing time
    SchedulingDeadline = "scheduling.deadline",
        "a group with deadlines is carried out with them";
    /// How much of the time real-time threads may run
    SchedulingThrottling = "scheduling.throttling",
        "real-time threads that use it up are stopped";
    /// CPU sets of control groups
    CpuSets = "scheduling.cpusets",
        "members of a group are kept on their CPUs by them";
    /// Locking memory
    MemoryLock = "memory.lock",
        "a page that has to be fetched first makes a frame late";
    /// Timers
    ClockTimers = "clock.timers",
        "slots are kept by sleeping until they begin";
    /// What the system's clock is read from
    ClockSource = "clock.source",
        "the clock is read for every frame, and this source is slow to read";
    /// TAI - UTC in the kernel
    ClockTai = "clock.tai-offset",
        "cycles begin on the scale TAI, and hosts that disagree on it disagree on the slots";
    /// Whether something keeps the clock on time
    ClockSynchronised = "clock.synchronised",
        "hosts whose clocks drift apart send in each other's slots; one host alone needs none";
    /// The daemons that keep clocks on time
    ClockTools = "clock.tools",
        "clocks of hosts and NICs are kept on time by them";
    /// The error of the clock beside half the guard
    ClockError = "clock.error",
        "the clocks of two stations can be apart by the errors of both, and the guard is between";
    /// How late threads woke up here just now
    WakeUps = "clock.wake-ups",
        "a wake-up that is later than the schedule allows makes a frame late";
    /// Whether the interface is there
    Link = "link",
        "nothing can be set on an interface that is not there";
    /// Whether it is up and connected
    LinkUp = "link.up",
        "nothing is sent or received through it";
    /// Its rate
    LinkRate = "link.rate",
        "slots are computed from the rate of the link";
    /// Full duplex
    LinkDuplex = "link.duplex",
        "with half duplex a frame waits until the other end is silent";
    /// The longest packet
    LinkMtu = "link.mtu",
        "longer messages are cut into several frames";
    /// How many queues it has
    LinkQueues = "link.queues",
        "each traffic class has queues of its own";
    /// Whether the link sleeps between frames (Energy Efficient Ethernet)
    LinkEee = "link.eee",
        "a link that sleeps takes tens of microseconds to wake up for a frame";
    /// How long the NIC waits before it tells of frames
    LinkCoalescing = "link.coalescing",
        "received frames, and timestamps of sent ones, wait for so long";
    /// Rings
    LinkRings = "link.rings",
        "rings cannot be made longer than the NIC has them";
    /// Offloads by name
    LinkFeatures = "link.features",
        "an offload that the driver has not, or has fixed, cannot be set";
    /// Whether the NIC takes the VLAN tag off
    LinkVlanTag = "link.vlan-tag",
        "a program in the driver does not see a tag that the NIC has taken off";
    /// The clock of the NIC
    LinkClock = "link.phc",
        "what the NIC does at a time, it does by its own clock";
    /// What the NIC timestamps
    LinkTimestamps = "link.timestamps",
        "timestamps of the NIC are exact; those of the kernel are late by what it does before";
    /// Rules in the NIC that put frames into queues
    LinkSteering = "link.steering",
        "frames are put into a queue by the NIC only with such rules";
    /// Frame preemption of the link
    LinkPreemption = "link.preemption",
        "a frame can be interrupted only where the NIC can";
    /// An XDP program of someone else
    LinkXdp = "link.xdp",
        "an interface has one XDP program, and this one is in the way";
    /// Queueing disciplines of someone else
    LinkQdisc = "link.qdisc",
        "it is replaced, and restored afterwards";
    /// Whether the way to other networks is through it
    LinkRoute = "link.route",
        "a schedule on it can cut you off from this host";
    /// How the kernel polls it
    LinkNapi = "link.napi",
        "polling can be given a priority only when a thread of its own does it";
    /// CPUs for its queues
    LinkQueueCpus = "link.queue-cpus",
        "queues can be given CPUs only where the kernel has several of both";
    /// VLAN interfaces
    LinkVlan = "link.vlan",
        "priorities are put into VLAN tags, and read from them, by such interfaces";
    /// Traffic classes
    QdiscMqprio = "qdisc.mqprio",
        "traffic classes have queues of their own by this discipline";
    /// Gates
    QdiscTaprio = "qdisc.taprio",
        "gates open and close by this discipline";
    /// Gates in the NIC
    QdiscTaprioOffload = "qdisc.taprio-offload",
        "the NIC opens and closes the gates itself";
    /// Launch times
    QdiscEtf = "qdisc.etf",
        "frames are held until their launch time by this discipline";
    /// Launch times in the NIC
    QdiscEtfOffload = "qdisc.etf-offload",
        "the NIC holds each frame until its launch time";
    /// The credit-based shaper
    QdiscCbs = "qdisc.cbs",
        "the rate of a class is kept by this discipline";
    /// The credit-based shaper in the NIC
    QdiscCbsOffload = "qdisc.cbs-offload",
        "the NIC keeps the rate of a class";
    /// XDP
    Xdp = "xdp",
        "received frames are told apart by a program before the stack";
    /// Deferring frames to other CPUs
    CpuMap = "xdp.cpumap",
        "frames without priority wait in threads on other CPUs";
    /// Programs of traffic control
    Tcx = "xdp.tcx",
        "frames are handed on to the stack by such a program";
    /// Packets that the laboratory's segment delays
    LabNetem = "laboratory.netem",
        "a segment with a length is made with this discipline";
    /// The rate of the laboratory's segment
    LabTbf = "laboratory.tbf",
        "the segment has its rate by this discipline";
    /// Whether there is a CPU for each station of the laboratory
    LabCpus = "laboratory.cpus",
        "stations that share a CPU make each other late";
    /// A backend for the schedule
    Backend = "schedule.backend",
        "somebody has to keep the slots";
    /// The guard between slots
    Guard = "schedule.guard",
        "a frame that is later than the guard is in the slot of another station";
    /// The time that the MAC waits without sleeping
    Spin = "schedule.spin",
        "a thread that wakes up later than this misses the start of its slot";
    /// The time from the decision to send to the link
    Margin = "schedule.margin",
        "a frame that takes longer than this from the decision to the link ends after its slot";
    /// How long before its launch time a frame is handed over
    LaunchDelta = "schedule.launch-delta",
        "a frame that is handed over after its launch time is dropped";
    /// The length of a gate that the kernel's timers can keep
    Gates = "schedule.gates",
        "a gate shorter than the error of the kernel's timers is a matter of luck";
    /// Whether the threads that receive can run beside the groups
    GroupsPolling = "groups.polling",
        "a member that never sleeps keeps threads below it from running, and frames wait for them";
    /// Sysctls
    Sysctl = "sysctl",
        "a setting that the kernel has not cannot be set";
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the doctor would take is what a run takes.
    #[test]
    fn t0_variants_are_in_the_order_of_their_backends() {
        let backends =
            BackendVariant::BY_PREFERENCE.into_iter().filter_map(BackendVariant::backend);
        let mut backends: Vec<TransmitBackend> = backends.collect();
        backends.dedup();
        assert_eq!(backends, TransmitBackend::BY_PREFERENCE);
        let mut all = BackendVariant::BY_PREFERENCE;
        all.sort();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "each is there once");
        let keeps_none = |variant: &BackendVariant| !variant.keeps_slots();
        assert!(BackendVariant::BY_PREFERENCE.is_sorted_by_key(keeps_none));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host: kernel, CPUs, clocks, scheduling, rights, tools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::{CpuSet, PtpClock, Reading, ThreadScheduling};

/// What was set on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSettings {
    /// The kernel.
    pub kernel: Kernel,
    /// The CPUs.
    pub cpus: Cpus,
    /// The system clock.
    pub clock: ClockSettings,
    /// PTP hardware clocks, by their index: `/dev/ptp0` is 0.
    pub ptp: Reading<BTreeMap<u32, PtpClock>>,
    /// Real-time scheduling.
    pub scheduling: SchedulingSettings,
    /// Threads of the kernel that serve softirqs, by name: `ksoftirqd/0`.
    pub softirq_threads: Reading<BTreeMap<String, ThreadScheduling>>,
    /// Kernel parameters by their name with dots, as they read; those of interfaces are there.
    pub sysctls: BTreeMap<String, Reading<String>>,
    /// What the process that read this may do.
    pub privilege: Privilege,
    /// Programs that Timewire runs, with what they say about their version.
    pub tools: BTreeMap<String, Reading<String>>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// `6.1.0-18-amd64`.
    pub release: Reading<String>,
    /// `#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1`.
    pub version: Reading<String>,
    /// `x86_64`.
    pub machine: Reading<String>,
    /// How it preempts.
    pub preemption: Preemption,
    /// The mode of `PREEMPT_DYNAMIC`: `none`, `voluntary`, `full` or `lazy`.
    pub preemption_mode: Reading<String>,
    /// Its parameters.
    pub command_line: Reading<Vec<String>>,
    /// Options of its configuration that matter here, without `CONFIG_`: `y`, `m`, a value, or `n`
    /// for those that are not set.
    pub config: Reading<BTreeMap<String, String>>,
    /// `none`, `integrity` or `confidentiality`.
    pub lockdown: Reading<String>,
    /// Whether its time is virtual, as in the laboratory.
    pub virtual_time: bool,
}

/// How a kernel preempts what it does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    /// `PREEMPT_RT`: nearly everywhere.
    Rt,
    /// `PREEMPT_DYNAMIC`: one of the others, chosen at boot.
    Dynamic,
    /// `PREEMPT`: outside critical sections.
    Full,
    /// `PREEMPT_LAZY`: as full for real-time tasks.
    Lazy,
    /// At explicit points, or never; the version does not tell which.
    None,
    /// The version could not be read.
    Unknown,
}

/// The CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// What they are called.
    pub model: Reading<String>,
    /// Those that run.
    pub online: Reading<CpuSet>,
    /// Those that can be there.
    pub possible: Reading<CpuSet>,
    /// Those that the scheduler leaves alone (`isolcpus`).
    pub isolated: Reading<CpuSet>,
    /// Those without a tick while they run one task.
    pub nohz_full: Reading<CpuSet>,
    /// Whether one core runs several threads: `on`, `off`, `forceoff`, `notsupported`.
    pub smt: Reading<String>,
    /// Whether a hypervisor can stop them.
    pub virtual_machine: Reading<bool>,
    /// What puts them to sleep.
    pub idle_driver: Reading<String>,
    /// What chooses how deep they sleep.
    pub idle_governor: Reading<String>,
    /// Each that is online.
    pub each: BTreeMap<u32, Cpu>,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its package.
    pub package: Reading<i64>,
    /// Its core in the package.
    pub core: Reading<i64>,
    /// Threads of the same core, itself included.
    pub siblings: Reading<CpuSet>,
    /// What sets its frequency.
    pub frequency_driver: Reading<String>,
    /// What chooses its frequency.
    pub governor: Reading<String>,
    /// The least frequency it may have.
    pub frequency_min_khz: Reading<u64>,
    /// The highest frequency it may have.
    pub frequency_max_khz: Reading<u64>,
    /// Preference between speed and energy (`intel_pstate`, `amd_pstate`).
    pub energy_preference: Reading<String>,
    /// How long it may take to wake up, microseconds; `n/a` is none at all, 0 is no bound.
    pub resume_latency_us: Reading<String>,
    /// How it can sleep, the lightest first.
    pub idle_states: Reading<Vec<IdleState>>,
}

/// A state in which a CPU sleeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleState {
    /// `C1E`.
    pub name: String,
    /// How long waking up from it takes.
    pub latency_us: u64,
    /// How long it must last to save energy.
    pub residency_us: u64,
    /// Whether it is switched off.
    pub disabled: bool,
}

/// The system clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSettings {
    /// `tsc`, `kvm-clock`, ...
    pub source: Reading<String>,
    /// What it could be.
    pub available_sources: Reading<Vec<String>>,
    /// TAI - UTC in the kernel: 0 until someone sets it, 37 s since 2017.
    #[serde(rename = "tai_offset_ns")]
    pub tai_offset: Reading<Span>,
    /// How late timers of this process may be put together with others; new processes inherit it.
    #[serde(rename = "timer_slack_ns")]
    pub timer_slack: Reading<Span>,
}

impl ClockSettings {
    /// Whether its source is read without asking a device or a hypervisor; `None` when nobody
    /// knows the source.
    pub fn reads_fast(&self) -> Option<bool> {
        const FAST: [&str; 5] = [
            "tsc",
            "kvm-clock",
            "hyperv_clocksource_tsc_page",
            "arch_sys_counter",
            "riscv_clocksource",
        ];
        self.source.known().map(|source| FAST.contains(&source.as_str()))
    }
}

/// Real-time scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingSettings {
    /// How much of the period real-time threads may run; `None` is all of it.
    #[serde(rename = "rt_runtime_ns")]
    pub rt_runtime: Reading<Option<Span>>,
    /// The period.
    #[serde(rename = "rt_period_ns")]
    pub rt_period: Reading<Span>,
    /// The shortest period of a deadline reservation.
    #[serde(rename = "deadline_period_min_ns")]
    pub deadline_period_min: Reading<Span>,
    /// The longest period of a deadline reservation.
    #[serde(rename = "deadline_period_max_ns")]
    pub deadline_period_max: Reading<Span>,
    /// The slice of `SCHED_RR`.
    #[serde(rename = "rr_slice_ns")]
    pub rr_slice: Reading<Span>,
    /// What the control group of this process may run real-time threads, of each period; absent
    /// where groups have no such budget.
    #[serde(rename = "group_rt_runtime_ns")]
    pub group_rt_runtime: Reading<Span>,
    /// Memory that may be locked, bytes; `None` is all of it.
    pub locked_memory_bytes: Reading<Option<u64>>,
    /// Highest real-time priority without `CAP_SYS_NICE`; 0 is none.
    pub rt_priority_limit: Reading<Option<u64>>,
}

/// Rights of the process that read the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privilege {
    /// Effective capabilities that Timewire has a use for, by their names.
    pub capabilities: Reading<Vec<String>>,
    /// Those of them that are not held.
    pub missing: Reading<Vec<String>>,
    /// Whether this is the host's first user namespace.
    pub initial_user_namespace: Reading<bool>,
    /// Effective user.
    pub user: u32,
}

/// What came of a host's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// When the snapshot was taken, nanoseconds since 1970 UTC.
    pub taken_utc_ns: i64,
    /// What the kernel knows about the system clock.
    pub clock: Reading<ClockState>,
    /// Running programs that set clocks, by name: `ptp4l`, `chronyd`, ...
    pub clock_programs: Reading<Vec<String>>,
    /// How long CPUs may take to wake up, by all requests together (`/dev/cpu_dma_latency`).
    pub cpu_dma_latency_us: Reading<i64>,
}

/// What the kernel knows about the system clock (`adjtimex`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// Whether some program keeps it synchronised.
    pub synchronised: bool,
    /// The largest error, estimated.
    #[serde(rename = "max_error_ns")]
    pub max_error: Span,
    /// The error, estimated.
    #[serde(rename = "estimated_error_ns")]
    pub estimated_error: Span,
    /// What is still to be corrected.
    #[serde(rename = "offset_ns")]
    pub offset: Span,
    /// Correction of the frequency, parts in 10^9, rounded towards zero.
    pub frequency_ppb: i64,
}

/// What a host counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounters {
    /// Receiving, by CPU.
    pub softnet: Reading<BTreeMap<u32, Softnet>>,
}

/// What one CPU did to receive (`/proc/net/softnet_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softnet {
    /// Frames.
    pub processed: u64,
    /// Frames that found its backlog full.
    pub dropped: u64,
    /// Times it stopped with work left, because `netdev_budget` was used up.
    pub squeezed: u64,
}

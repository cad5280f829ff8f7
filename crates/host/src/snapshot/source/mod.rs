// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a snapshot is read from: this host, or what was once read from another. A source only
//! answers; it changes nothing.
//!
//! Not here: what is asked for (`read`).

mod config;
mod live;
mod merge;
mod record;
mod redact;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Reading;
use super::model::{MacMerge, MacMergeState};

pub(crate) use live::KERNEL_THREADS_UNSEEN;
pub use live::{Live, in_network, with_own_sysfs};
pub use record::{Record, Recording};
pub use redact::Redacting;

/// Something that a host's files, tools and system calls can be asked for.
pub trait Source {
    /// The text of a file, without white space at its end.
    fn read(&self, path: &str) -> Reading<String>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> Reading<Vec<String>>;

    /// Where a symbolic link leads.
    fn link(&self, path: &str) -> Reading<String>;

    /// What a program says, run to its end.
    fn run(&self, words: &[&str]) -> Reading<Output>;

    /// What the kernel answers where neither a file nor a tool does.
    fn ask(&self, question: Question<'_>) -> Reading<Value>;
}

impl<S: Source + ?Sized> Source for &S {
    fn read(&self, path: &str) -> Reading<String> {
        (**self).read(path)
    }
    fn list(&self, path: &str) -> Reading<Vec<String>> {
        (**self).list(path)
    }
    fn link(&self, path: &str) -> Reading<String> {
        (**self).link(path)
    }
    fn run(&self, words: &[&str]) -> Reading<Output> {
        (**self).run(words)
    }
    fn ask(&self, question: Question<'_>) -> Reading<Value> {
        (**self).ask(question)
    }
}

/// What a program that ran said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, without white space at its end.
    pub stdout: String,
    /// Standard error, without white space at its end.
    pub stderr: String,
}

/// A question to the kernel. Each answer is a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// What time it is, nanoseconds since 1970 UTC.
    Now,
    /// What it knows about the system clock: a [`super::model::ClockState`] and `tai_offset_ns`.
    Clock,
    /// Microseconds of `/dev/cpu_dma_latency`, whose content is no text.
    CpuDmaLatency,
    /// Options of the kernel's configuration that matter for timing, without `CONFIG_`.
    KernelConfig,
    /// Threads of the kernel that serve interrupts, polls and softirqs: a list of [`KernelThread`].
    KernelThreads,
    /// Names of running programs that set clocks.
    ClockPrograms,
    /// Effective user.
    User,
    /// What an interface timestamps: `{"tx": 0, "rx": 0}`, the numbers of `HWTSTAMP_...`.
    TimestampFilters(&'a str),
    /// The instances that poll an interface: a list of [`Poll`].
    Polls(&'a str),
    /// `tcx` programs of an interface: `{"ingress": [...], "egress": [...]}` with `id` and `name`.
    TcxPrograms(&'a str),
    /// The MAC merge layer of an interface, which `ethtool` before 6.3 does not know: a [`Merge`].
    MacMerge(&'a str),
    /// Whether a PTP hardware clock can be read together with the system clock in hardware.
    CrossTimestamps(u32),
}

impl Question<'_> {
    /// Its name in a record.
    pub fn name(&self) -> String {
        match self {
            Question::Now => "now".to_owned(),
            Question::Clock => "clock".to_owned(),
            Question::CpuDmaLatency => "cpu-dma-latency".to_owned(),
            Question::KernelConfig => "kernel-config".to_owned(),
            Question::KernelThreads => "kernel-threads".to_owned(),
            Question::ClockPrograms => "clock-programs".to_owned(),
            Question::User => "user".to_owned(),
            Question::TimestampFilters(interface) => format!("timestamp-filters {interface}"),
            Question::Polls(interface) => format!("polls {interface}"),
            Question::TcxPrograms(interface) => format!("tcx-programs {interface}"),
            Question::MacMerge(interface) => format!("mac-merge {interface}"),
            Question::CrossTimestamps(index) => format!("cross-timestamps {index}"),
        }
    }
}

/// A thread of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelThread {
    /// Its number.
    pub pid: u32,
    /// Its name, cut to 15 bytes by the kernel: `napi/eth0-8193`.
    pub name: String,
    /// The number of its policy.
    pub policy: u32,
    /// Real-time priority.
    pub priority: u32,
    /// Niceness.
    pub nice: i32,
    /// Where it may run.
    pub cpus: String,
}

/// What netlink's family `netdev` says about an instance that polls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    /// Its number.
    pub id: u32,
    /// The number of its interrupt.
    pub irq: Option<u32>,
    /// Its thread.
    pub pid: Option<u32>,
    /// Its own setting.
    pub defer_hard_irqs: Option<u64>,
    /// Its own setting.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Its own setting.
    pub irq_suspend_timeout_ns: Option<u64>,
    /// Receive queues.
    pub rx_queues: Vec<u32>,
    /// Transmit queues.
    pub tx_queues: Vec<u32>,
}

/// What netlink's family `ethtool` says about the MAC merge layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// What was set.
    pub settings: MacMerge,
    /// What came of it.
    pub state: MacMergeState,
    /// What was counted, by the names of IEEE 802.3 clause 30.14.
    pub counters: BTreeMap<String, u64>,
}

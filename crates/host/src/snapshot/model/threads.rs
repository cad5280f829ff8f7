// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who serves an interface: interrupts, what polls, the threads of both, and the CPUs of its
//! queues.
//!
//! Numbers that the kernel gives anew (of interrupts, of polls, of processes) are state; settings
//! go by names and queues.

use serde::{Deserialize, Serialize};
use timewire_base::Span;

use super::{CpuSet, Reading, Word};

/// How a thread of the kernel is scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadScheduling {
    /// The policy.
    pub policy: Policy,
    /// Real-time priority, 1 to 99; 0 without.
    pub priority: u32,
    /// Niceness; 0 for real-time policies.
    pub nice: i32,
    /// Where it may run.
    pub cpus: CpuSet,
}

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `SCHED_OTHER`.
    Other,
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    Rr,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_DEADLINE`.
    Deadline,
    /// `SCHED_EXT`.
    Ext,
}

/// An interrupt of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// What its driver calls it: `eth0-TxRx-0`.
    pub name: String,
    /// Where it may be served.
    pub affinity: Reading<CpuSet>,
    /// The thread that serves it, where interrupts have threads.
    pub thread: Reading<ThreadScheduling>,
}

/// What the kernel made of an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqState {
    /// Its number, as in `/proc/irq`.
    pub number: u32,
    /// As in the settings.
    pub name: String,
    /// Where it is served.
    pub effective_affinity: Reading<CpuSet>,
    /// Its thread.
    pub thread_pid: Option<u32>,
}

/// How the kernel polls an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Napi {
    /// Whether threads poll, one for each instance; kernels since 6.17 also have `busy-poll`, which
    /// never waits for an interrupt.
    pub threaded: Reading<Word>,
    /// Empty polls before interrupts are enabled again.
    pub defer_hard_irqs: Reading<u64>,
    /// How long frames may wait to be joined, and the time between those polls.
    #[serde(rename = "gro_flush_timeout_ns")]
    pub gro_flush_timeout: Reading<Span>,
    /// Each poll, in the order of its queues.
    pub instances: Reading<Vec<NapiInstance>>,
}

/// One poll of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiInstance {
    /// Receive queues that it polls.
    pub rx_queues: Vec<u32>,
    /// Transmit queues that it polls.
    pub tx_queues: Vec<u32>,
    /// The name of its interrupt.
    pub irq: Option<String>,
    /// Its own setting, in kernels that have one (6.13).
    pub defer_hard_irqs: Option<u64>,
    /// Its own setting, in kernels that have one (6.13).
    #[serde(rename = "gro_flush_timeout_ns")]
    pub gro_flush_timeout: Option<Span>,
    /// How long interrupts stay off while a program polls (6.13).
    #[serde(rename = "irq_suspend_timeout_ns")]
    pub irq_suspend_timeout: Option<Span>,
    /// Its thread; absent where no thread polls.
    pub thread: Reading<ThreadScheduling>,
}

/// What the kernel made of a poll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiInstanceState {
    /// Its number.
    pub id: u32,
    /// The number of its interrupt.
    pub irq: Option<u32>,
    /// Its thread.
    pub thread_pid: Option<u32>,
}

/// A receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxQueue {
    /// CPUs that go on with its frames; none is the one that took them from the NIC.
    pub rps_cpus: Reading<CpuSet>,
    /// Flows that are remembered to find the CPU of their program.
    pub rps_flows: Reading<u64>,
}

/// A transmit queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxQueue {
    /// CPUs that use it.
    pub xps_cpus: Reading<CpuSet>,
    /// Receive queues whose flows use it, as a mask.
    pub xps_rxqs: Reading<String>,
    /// Its rate, Mbit/s; 0 is no limit.
    pub max_rate_mbps: Reading<u64>,
    /// Its traffic class.
    pub traffic_class: Reading<String>,
}

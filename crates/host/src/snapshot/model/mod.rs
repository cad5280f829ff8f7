// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value: what a host is like as far as timing depends on it.
//!
//! It has three parts. Equal *settings* before and after are what undoing a change promises.
//! *State* is what the world makes of the settings, such as the speed of a link; it changes by
//! itself. *Counters* only grow. What cannot be had says why ([`Reading`]).
//!
//! Not here: where the values are read from (`read`), judgements about them (`facts`).

mod host;
mod interface;
mod nic;
mod threads;
mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;

pub use super::cpus::CpuSet;
pub use super::reading::Reading;
pub use host::{
    ClockSettings, ClockState, Cpu, Cpus, HostCounters, HostSettings, HostState, IdleState, Kernel,
    Preemption, Privilege, SchedulingSettings, Softnet,
};
pub use interface::{
    AddressState, InterfaceCounters, InterfaceSettings, InterfaceState, Vlan, VlanMapping,
};
pub use nic::{
    Bounded, Channels, Coalescing, Driver, EnergyEfficient, Feature, LinkModes, MacMerge,
    MacMergeState, NtupleRule, Pause, PtpClock, Rings, RxTxFilters, Timestamping, Word,
};
pub use threads::{
    Irq, IrqState, Napi, NapiInstance, NapiInstanceState, Policy, RxQueue, ThreadScheduling,
    TxQueue,
};
pub use traffic::{Bpf, BpfProgram, GatedCredit, QdiscCounters, QdiscSettings, QdiscState};

/// The format and its version. Fields may be added under the same version; readers leave fields
/// alone that they do not know.
pub const SCHEMA: &str = "timewire.snapshot/1";

/// A host and its interfaces at one moment, as one network namespace shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// Program and version that read it.
    pub tool: String,
    /// What was set, by people or by what the host is made of.
    pub settings: Settings,
    /// What came of it; changes by itself.
    pub state: State,
    /// What was counted.
    pub counters: Counters,
}

/// What was set. Two snapshots around a change that was undone have equal settings, to the byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Of the host.
    pub host: HostSettings,
    /// Of each interface.
    pub interfaces: BTreeMap<IfName, InterfaceSettings>,
}

/// What came of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Of the host.
    pub host: HostState,
    /// Of each interface.
    pub interfaces: BTreeMap<IfName, InterfaceState>,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By the host.
    pub host: HostCounters,
    /// By each interface.
    pub interfaces: BTreeMap<IfName, InterfaceCounters>,
}

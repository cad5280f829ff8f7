// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interface.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Bpf, Channels, Coalescing, Driver, EnergyEfficient, Feature, GatedCredit, Irq, IrqState,
    LinkModes, MacMerge, MacMergeState, Napi, NapiInstanceState, NtupleRule, Pause, QdiscCounters,
    QdiscSettings, QdiscState, Reading, Rings, RxQueue, RxTxFilters, Timestamping, TxQueue,
};

/// What was set on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSettings {
    /// Kind of a virtual one: `veth`, `vlan`, `bridge`; `None` for a NIC.
    pub kind: Option<String>,
    /// The kind of link: `ether`, `loopback`.
    pub link_type: String,
    /// Who drives it.
    pub driver: Reading<Driver>,
    /// Its address.
    pub mac: Option<String>,
    /// Whether it is up, as far as it was told.
    pub up: bool,
    /// Its flags that someone set: `PROMISC`, `NOARP`, ...
    pub flags: Vec<String>,
    /// Longest payload, bytes.
    pub mtu: u64,
    /// Length of the queue that some disciplines take from it, frames.
    pub tx_queue_length: Option<u64>,
    /// Transmit queues it was made with.
    pub tx_queues: Option<u64>,
    /// Receive queues it was made with.
    pub rx_queues: Option<u64>,
    /// The interface below it, or the other end of a pair, where that is in this namespace.
    pub lower: Option<String>,
    /// The bridge or bond that it is part of.
    pub upper: Option<String>,
    /// Of a VLAN sub-interface.
    pub vlan: Option<Vlan>,
    /// Queueing disciplines, the root first, then by their parents.
    pub qdiscs: Reading<Vec<QdiscSettings>>,
    /// Classes that were made by hand, as `tc -j` gives them.
    pub classes: Reading<Vec<Value>>,
    /// Filters of the root, of ingress and of egress, as `tc -j` gives them.
    pub filters: Reading<BTreeMap<String, Vec<Value>>>,
    /// Programs on the way of a frame.
    pub bpf: Bpf,
    /// What the link may be.
    pub link: Reading<LinkModes>,
    /// Offloads.
    pub features: Reading<BTreeMap<String, Feature>>,
    /// The driver's own switches.
    pub private_flags: Reading<BTreeMap<String, bool>>,
    /// Queues.
    pub channels: Reading<Channels>,
    /// Rings.
    pub rings: Reading<Rings>,
    /// How long interrupts wait, by name: `rx-usecs`, ...
    pub coalescing: Reading<Coalescing>,
    /// Pause frames.
    pub pause: Reading<Pause>,
    /// Energy-Efficient Ethernet.
    pub eee: Reading<EnergyEfficient>,
    /// Frame preemption of the link.
    pub mac_merge: Reading<MacMerge>,
    /// What it can timestamp.
    pub timestamping: Reading<Timestamping>,
    /// What it timestamps.
    pub timestamp_filters: Reading<RxTxFilters>,
    /// Rules that put received frames into queues.
    pub ntuple: Reading<Vec<NtupleRule>>,
    /// Receive queue of each place of the hash's table.
    pub rss: Reading<Vec<u32>>,
    /// Interrupts, in the order of their numbers.
    pub irqs: Reading<Vec<Irq>>,
    /// How it is polled.
    pub napi: Napi,
    /// Receive queues, from 0.
    pub rx: Reading<Vec<RxQueue>>,
    /// Transmit queues, from 0.
    pub tx: Reading<Vec<TxQueue>>,
    /// Addresses with the length of their prefix, sorted.
    pub addresses: Reading<Vec<String>>,
    /// Routes through it, in the words of `ip route`, sorted.
    pub routes: Reading<Vec<String>>,
    /// Its own kernel parameters, as they read.
    pub sysctls: BTreeMap<String, Reading<String>>,
}

/// A VLAN sub-interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlan {
    /// VLAN.
    pub id: u32,
    /// `802.1Q` or `802.1ad`.
    pub protocol: String,
    /// `REORDER_HDR`, ...
    pub flags: Vec<String>,
    /// PCP of sent frames by their priority; others have 0.
    pub egress: Vec<VlanMapping>,
    /// Priority of received frames by their PCP; others have 0.
    pub ingress: Vec<VlanMapping>,
}

/// A pair of a VLAN map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VlanMapping {
    /// Egress: the priority; ingress: the PCP.
    pub from: u32,
    /// Egress: the PCP; ingress: the priority.
    pub to: u32,
}

/// What came of an interface's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Its number.
    pub index: u32,
    /// `UP`, `DOWN`, `LOWERLAYERDOWN`, ...
    pub operstate: String,
    /// Whether the other end is there.
    pub carrier: bool,
    /// Of the link, Mbit/s.
    pub speed_mbps: Option<u64>,
    /// `Full`, `Half`.
    pub duplex: Option<String>,
    /// Whether the link sleeps when it is idle.
    pub eee_active: Option<bool>,
    /// Frame preemption of the link.
    pub mac_merge: Option<MacMergeState>,
    /// What the four disciplines for time-sensitive traffic do.
    pub qdiscs: Vec<QdiscState>,
    /// What classes with credit carry behind gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gated_credit: Vec<GatedCredit>,
    /// Interrupts, in the order of the settings.
    pub irqs: Vec<IrqState>,
    /// Polls, in the order of the settings.
    pub napi: Vec<NapiInstanceState>,
    /// Addresses that are not yet, or no longer, used.
    pub addresses: Vec<AddressState>,
}

/// An address that is not simply there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressState {
    /// The address with the length of its prefix.
    pub address: String,
    /// `tentative`, `dadfailed`, `deprecated`.
    pub flags: Vec<String>,
}

/// What an interface counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// By the kernel: `rx_packets`, `tx_bytes`, `rx_dropped`, ...
    pub link: Reading<BTreeMap<String, u64>>,
    /// By the driver, in its own names.
    pub driver: Reading<BTreeMap<String, i64>>,
    /// By the queueing disciplines.
    pub qdiscs: Reading<Vec<QdiscCounters>>,
    /// By the MAC merge layer.
    pub mac_merge: Reading<BTreeMap<String, u64>>,
    /// Interrupts by name, then by CPU.
    pub irqs: BTreeMap<String, BTreeMap<u32, u64>>,
}

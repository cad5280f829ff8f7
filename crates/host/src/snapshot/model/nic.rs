// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a NIC can do and how it is set, as `ethtool` tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Reading;

/// A setting whose kind depends on its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// On or off.
    Switch(bool),
    /// A number.
    Number(i64),
    /// Anything else.
    Text(String),
}

impl Word {
    /// The number, when it is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Word::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is on, when it is a switch.
    pub fn switch(&self) -> Option<bool> {
        match self {
            Word::Switch(on) => Some(*on),
            _ => None,
        }
    }
}

/// Who drives a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// `igc`, `veth`.
    pub name: String,
    /// Its version; that of the kernel where it has none.
    pub version: String,
    /// Of the NIC.
    pub firmware: String,
    /// Where the NIC is, such as `0000:01:00.0`.
    pub bus: String,
}

/// What a link may be, and whether it finds out by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkModes {
    /// What the NIC can, such as `1000baseT/Full`.
    pub supported: Vec<String>,
    /// What it offers to the other end.
    pub advertised: Vec<String>,
    /// Whether both ends agree on a mode; `None` when the driver does not say.
    pub autonegotiation: Option<bool>,
    /// `Twisted Pair`, `FIBRE`.
    pub port: Option<String>,
}

/// An offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    /// Whether it is on.
    pub on: bool,
    /// Whether it cannot be changed; `None` for one that stands for several others.
    pub fixed: Option<bool>,
    /// What was asked for; `None` for one that stands for several others.
    pub requested: Option<bool>,
}

/// A number and the most it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounded {
    /// What it is.
    pub now: u64,
    /// The most it can be; `None` when the driver does not say.
    pub most: Option<u64>,
}

/// Rings of a NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Frames that they hold, by the kind of ring: `rx`, `rx-mini`, `rx-jumbo`, `tx`.
    pub frames: BTreeMap<String, Bounded>,
    /// What else there is to set, by the names of `ethtool`: `tx-push`, `rx-buf-len`, ...
    pub options: BTreeMap<String, Word>,
}

/// How many queues; `None` is for a kind of queue that the NIC has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// For receiving only.
    pub rx: Option<Bounded>,
    /// For sending only.
    pub tx: Option<Bounded>,
    /// For neither.
    pub other: Option<Bounded>,
    /// For both.
    pub combined: Option<Bounded>,
}

/// Energy-Efficient Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyEfficient {
    /// Whether it may be used.
    pub enabled: bool,
    /// Whether sending puts the link to sleep; `None` when it never does.
    pub tx_lpi: Option<bool>,
    /// How long the link is idle before, microseconds.
    pub tx_lpi_timer_us: Option<u64>,
    /// What is offered to the other end.
    pub advertised: Vec<String>,
}

/// Pause frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether both ends agree on them.
    pub autonegotiate: Option<bool>,
    /// Whether received ones are obeyed.
    pub rx: Option<bool>,
    /// Whether they are sent.
    pub tx: Option<bool>,
}

/// The MAC merge layer (IEEE 802.3 clause 99).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacMerge {
    /// Whether preemptible frames are taken.
    pub pmac_enabled: bool,
    /// Whether this end may preempt.
    pub tx_enabled: bool,
    /// Shortest fragment but the last that is sent, without its checksum.
    pub tx_min_fragment_bytes: Option<u64>,
    /// Shortest one that is taken.
    pub rx_min_fragment_bytes: Option<u64>,
    /// Whether the other end is asked first.
    pub verify_enabled: Option<bool>,
    /// How long its answer may take, milliseconds.
    pub verify_time_ms: Option<u64>,
    /// The longest that can be set.
    pub max_verify_time_ms: Option<u64>,
}

/// What came of the settings of the MAC merge layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacMergeState {
    /// Whether this end preempts.
    pub tx_active: bool,
    /// `DISABLED`, `INITIAL`, `VERIFYING`, `SUCCEEDED`, `FAILED`.
    pub verify_status: Option<String>,
}

/// What a NIC can timestamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timestamping {
    /// `hardware-transmit`, `software-receive`, ...
    pub capabilities: Vec<String>,
    /// The PTP hardware clock of the timestamps; `None` without one.
    pub phc: Option<u32>,
    /// `off`, `on`, `onestep-sync`, ...
    pub tx_modes: Vec<String>,
    /// `none`, `all`, `ptpv2-event`, ...
    pub rx_filters: Vec<String>,
}

/// What a NIC timestamps now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxTxFilters {
    /// `off`, `on`, ...
    pub tx: String,
    /// `none`, `all`, ...
    pub rx: String,
}

/// A PTP hardware clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtpClock {
    /// What its driver calls it.
    pub name: String,
    /// The largest correction of its frequency, parts in 10^9.
    pub max_adjustment_ppb: u64,
    /// Alarms.
    pub alarms: u64,
    /// Inputs that timestamp a pulse.
    pub external_timestamps: u64,
    /// Outputs that repeat a pulse.
    pub periodic_outputs: u64,
    /// Pins whose function can be chosen.
    pub pins: u64,
    /// Whether it gives the kernel a pulse each second.
    pub pulse_per_second: bool,
    /// Whether it can be read together with the system clock in hardware.
    pub cross_timestamps: Reading<bool>,
    /// The interface it belongs to, where that is known.
    pub interface: Option<String>,
}

/// A rule by which the NIC puts received frames into queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtupleRule {
    /// Its place in the table.
    pub location: u32,
    /// What it looks at and what it does, as `ethtool` prints it.
    pub fields: BTreeMap<String, String>,
}

/// How long interrupts of a NIC wait. Kept by name because each driver knows its own few:
/// `rx-usecs` and the like.
pub type Coalescing = BTreeMap<String, Word>;

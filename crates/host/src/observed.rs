// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The observed configuration of a host, as far as an experiment may change it, and the drift
//! between two observations: each thing that differs, in words. What changes by itself (counters,
//! neighbours that were learned, leases of addresses, load) is not part of it.
//!
//! Not here: what the values mean for timing (`snapshot`), undoing a change (`journal`, `apply`).

mod drift;
mod read;

use std::collections::{BTreeMap, BTreeSet};

pub use drift::Drift;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The configuration of a host and of the network namespace of the process that observed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Which start of the host it is about.
    boot: String,
    /// The settings of a snapshot, without those of the process that read them.
    settings: Value,
    /// Kernel parameters below `net`, `kernel` and `vm`, by their path below `/proc/sys`; of a
    /// long one its length and a checksum.
    sysctls: BTreeMap<String, String>,
    /// What of the network belongs to no interface, by its kind: rules, routes without an
    /// interface, neighbours that were given by hand, named namespaces.
    network: BTreeMap<String, BTreeSet<String>>,
    /// How threads are scheduled, of the processes of this network namespace.
    threads: BTreeMap<String, Thread>,
    /// Processes that have changed this host and are to undo it, with what for.
    owners: BTreeMap<String, String>,
    /// What is applied as a transaction: its name.
    applied: Option<String>,
    /// What could not be read, and why: a check of it is not possible.
    unknown: BTreeMap<String, String>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    name: String,
    scheduling: String,
}

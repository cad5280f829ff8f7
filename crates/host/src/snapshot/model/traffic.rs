// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands between the stack and the card: queueing disciplines, programs.
//!
//! Not here: the words of the four disciplines for time-sensitive traffic (`timewire-sched`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use timewire_sched::qdisc::Qdisc;

use super::Reading;

/// A queueing discipline as it was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscSettings {
    /// Which: `mq`, `taprio`, ...
    pub kind: String,
    /// Its name, `100:`; `0:` is one that the kernel put there by itself.
    pub handle: String,
    /// `root`, `ingress`, `clsact`, or the class that it is in.
    pub parent: String,
    /// The words of `tc` that make one of the four disciplines for time-sensitive traffic, from its
    /// kind on; `None` for others.
    pub words: Option<String>,
    /// The options of any other, as `tc -j -d` gives them.
    pub options: Option<Value>,
    /// Everything else that `tc` says and that is no counter: `stab`, `offloaded`.
    pub more: BTreeMap<String, Value>,
}

impl QdiscSettings {
    /// The discipline; `None` when it is none of the four.
    pub fn qdisc(&self) -> Option<Qdisc> {
        self.words.as_deref().and_then(|words| words.parse().ok())
    }
}

/// What a discipline of the four does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscState {
    /// As in the settings.
    pub kind: String,
    /// As in the settings.
    pub handle: String,
    /// As in the settings.
    pub parent: String,
    /// Its options as `tc -j` gives them: of `taprio`, the schedule that runs, and in `admin` the
    /// one that waits.
    pub options: Value,
}

/// What a discipline counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscCounters {
    /// As in the settings.
    pub kind: String,
    /// As in the settings.
    pub handle: String,
    /// As in the settings.
    pub parent: String,
    /// By the names of `tc`: `bytes`, `packets`, `drops`, `overlimits`, `qlen`, ...
    pub counters: BTreeMap<String, Value>,
}

/// Programs on the way of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bpf {
    /// Before the kernel has made a buffer of it.
    pub xdp: Reading<Vec<BpfProgram>>,
    /// At ingress, in their order.
    pub tcx_ingress: Reading<Vec<BpfProgram>>,
    /// At egress, in their order.
    pub tcx_egress: Reading<Vec<BpfProgram>>,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BpfProgram {
    /// Its number in the kernel.
    pub id: u32,
    /// Its name, where that can be read.
    pub name: Option<String>,
    /// Of XDP: `driver`, `generic` or `offloaded`.
    pub mode: Option<String>,
}

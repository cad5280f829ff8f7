// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands between the stack and the NIC: queueing disciplines, programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use timewire_tsn::qdisc::{GatedRate, Qdisc};

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

/// A class with credit behind a gate, and what it carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatedCredit {
    /// The traffic class.
    pub class: u8,
    /// Where its `cbs` is: `100:2`.
    pub parent: String,
    /// Its rates.
    #[serde(flatten)]
    pub rate: GatedRate,
}

impl GatedCredit {
    /// Those of an interface, by its disciplines and where each stands: `root`, `100:2`.
    pub fn of<'a>(qdiscs: impl Iterator<Item = (&'a str, Option<Qdisc>)>) -> Vec<GatedCredit> {
        let all: Vec<_> = qdiscs.collect();
        let root = all.iter().find(|(parent, _)| *parent == "root");
        let Some((_, Some(Qdisc::Taprio(taprio)))) = root else { return Vec::new() };
        let gated = all.iter().filter_map(|(parent, qdisc)| {
            let Some(Qdisc::Cbs(cbs)) = qdisc else { return None };
            let (_, minor) = parent.split_once(':')?;
            let minor = u16::from_str_radix(minor, 16).ok()?;
            let (class, rate) = GatedRate::of_cbs(taprio, minor, cbs)?;
            Some(GatedCredit { class: class.get(), parent: (*parent).to_owned(), rate })
        });
        gated.collect()
    }
}

impl fmt::Display for GatedCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class {} ({}): {}", self.class, self.parent, self.rate)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// By the disciplines of an interface: the class that is found, and its rates in kbit/s.
    #[test]
    fn t0_credit_behind_the_gates_of_an_interface_is_found() {
        const GATES: &str = "taprio num_tc 2 map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 1@2 \
                             base-time 0 sched-entry S 1 300000 sched-entry S 2 100000 clockid \
                             CLOCK_TAI";
        const OPEN: &str = "taprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 3@0 \
                            base-time 0 sched-entry S 1 300000 clockid CLOCK_TAI";
        const CREDIT: &str = "cbs idleslope 20000 sendslope -980000 hicredit 0 locredit 0";
        type Qdiscs = &'static [(&'static str, &'static str)];
        type Found = &'static [(u8, u64, u64)];
        let cases: &[(Qdiscs, Found)] = &[
            (&[("root", GATES)], &[]),
            (&[("root", CREDIT)], &[]),
            (&[("root", GATES), ("100:1", CREDIT)], &[(0, 20_000, 15_000)]),
            (&[("root", GATES), ("100:2", CREDIT)], &[(0, 20_000, 15_000)]),
            (&[("root", GATES), ("100:3", CREDIT)], &[(1, 20_000, 5_000)]),
            (
                &[("100:3", CREDIT), ("root", GATES), ("100:1", CREDIT)],
                &[(1, 20_000, 5_000), (0, 20_000, 15_000)],
            ),
            // A queue of no class, one that is none, and a gate that is never shut.
            (&[("root", GATES), ("100:4", CREDIT)], &[]),
            (&[("root", GATES), ("100:0", CREDIT), ("100:x", CREDIT), ("x", CREDIT)], &[]),
            (&[("root", OPEN), ("100:1", CREDIT)], &[]),
            (&[("root", "mq"), ("100:1", CREDIT)], &[]),
        ];
        for (qdiscs, expected) in cases {
            let each = qdiscs.iter().map(|(parent, words)| (*parent, words.parse().ok()));
            let found: Vec<_> = GatedCredit::of(each)
                .iter()
                .map(|one| {
                    (one.class, one.rate.standard_bps / 1_000, one.rate.linux_least_bps / 1_000)
                })
                .collect();
            assert_eq!(&found, expected, "{qdiscs:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Linux takes of a tree and the reader of the file would not expect.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use timewire_base::Span;

use super::build::queue_of;
use super::{QdiscNode, QdiscTree};
use crate::qdisc::{Doubt, PortLimits, Qdisc, QdiscPosition};
use timewire_model::scenario::host::{DesiredCredit, GateMode, Transmit};

/// Something that works, and perhaps not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// A discipline has settings that make little sense.
    Doubt {
        /// Where it stands.
        place: QdiscPosition,
        /// What is odd.
        doubt: Doubt,
    },
    /// Each queue of a class gets the whole of what the class reserves.
    ReservedTwice {
        /// Which class.
        class: usize,
        /// How many queues it has.
        queues: usize,
    },
    /// A queue between those of the classes belongs to none.
    UnusedQueue {
        /// Which queue.
        queue: u32,
    },
    /// Frames can reach the NIC after the launch time that they were given.
    LateForLaunch {
        /// Which class.
        class: usize,
        /// How long before its launch time a frame is taken.
        delta: Span,
        /// How long before its launch time it was queued.
        delay: Span,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Doubt { place, doubt } => write!(f, "{place}: {doubt}"),
            Warning::ReservedTwice { class, queues } => write!(
                f,
                "class {class} has {queues} queues, and each of them may send at the rate that the \
                 class reserves: give it one, or name one as the shaper's `queue`"
            ),
            Warning::UnusedQueue { queue } => {
                write!(f, "queue {queue} is of no class: nothing is ever sent through it")
            }
            Warning::LateForLaunch { class, delta, delay } => write!(
                f,
                "class {class}: the launch times' delta of {delta} is not less than the gates' \
                 txtime_delay of {delay}: frames can be late for their launch time"
            ),
        }
    }
}

/// The doubts about the desired configuration itself.
pub(super) fn of(desired: &Transmit, root: &QdiscNode, children: &[QdiscNode]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for node in std::iter::once(root).chain(children) {
        let place = node.place();
        warnings
            .extend(node.qdisc().doubts().into_iter().map(|doubt| Warning::Doubt { place, doubt }));
    }
    for (class, wanted) in desired.classes.iter().enumerate() {
        let Some(range) = wanted.queues else { continue };
        let all = u32::from(range.offset.get())..range.end();
        let shaped = |node: &&QdiscNode| {
            let queue = queue_of(node.place()).map(u32::from);
            matches!(node.qdisc(), Qdisc::Cbs(_)) && queue.is_some_and(|queue| all.contains(&queue))
        };
        let queues = children.iter().filter(shaped).count();
        let reserves = wanted.shaper.as_ref();
        let reserves =
            reserves.is_some_and(|shaper| matches!(shaper.credit, DesiredCredit::Reservation(_)));
        if reserves && queues > 1 {
            warnings.push(Warning::ReservedTwice { class, queues });
        }
        let gates = desired.gates.as_ref().filter(|gates| gates.mode == GateMode::TxtimeAssist);
        if let (Some(gates), Some(launch)) = (gates, &wanted.launch_time) {
            let (delta, delay) = (launch.delta, gates.txtime_delay.unwrap_or(Span::ZERO));
            if delta >= delay {
                warnings.push(Warning::LateForLaunch { class, delta, delay });
            }
        }
    }
    let ranges = desired.classes.iter().filter_map(|class| class.queues);
    let used: BTreeSet<u32> =
        ranges.flat_map(|range| u32::from(range.offset.get())..range.end()).collect();
    let end = used.last().copied().unwrap_or(0);
    let unused = (0..end).filter(|queue| !used.contains(queue));
    warnings.extend(unused.map(|queue| Warning::UnusedQueue { queue }));
    warnings
}

impl QdiscTree {
    /// What works on every interface, and perhaps not as expected.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What works on this interface, and perhaps not as expected.
    pub fn warnings_on(&self, limits: &PortLimits) -> Vec<Warning> {
        let of = |node: &QdiscNode| {
            let place = node.place();
            let doubts = limits.doubts(node.qdisc());
            doubts.into_iter().map(move |doubt| Warning::Doubt { place, doubt })
        };
        self.warnings.iter().cloned().chain(self.nodes().flat_map(of)).collect()
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a plan can be rendered, without rendering it: what no limit of the search excludes is
//! said with the plan.

use std::collections::BTreeMap;

use timewire_base::Span;
use timewire_model::scenario::network::NetworkFile;
use timewire_tsn::qdisc::MAX_SHOWN_ENTRIES;

use super::render::{Node, RenderError};
use super::{FileProblem, SHORTEST, ends};
use crate::model::{LinkId, Plan, PortGates, bytes_time};

/// The longest cycle of host settings, and of `taprio`.
///
/// **Source**: `linux v6.12 net/sched/sch_taprio.c:parse_taprio_schedule`.
pub(super) const CYCLE_MAX: Span = Span::from_ns(2_147_483_647);

/// Why [`super::render`] would refuse this plan; `None`: it would not.
pub fn unrendered(file: &NetworkFile, given: &FileProblem, plan: &Plan) -> Option<RenderError> {
    let gates: BTreeMap<LinkId, &PortGates> =
        plan.gates.iter().map(|gates| (gates.link, gates)).collect();
    let sent = || plan.admitted.iter().flat_map(|admission| &admission.transmissions);
    if let Some(sent) = sent().find(|sent| sent.queue == 0) {
        return Some(RenderError::one_queue(ends(file, sent.link).0));
    }
    for node in Node::all(file, given, plan) {
        if let Err(error) = node.exclusive() {
            return Some(error);
        }
        for (_, link, far) in node.ports() {
            let Some(gates) = gates.get(&link) else { continue };
            let least = bytes_time(given.problem.network().link(link).rate, SHORTEST);
            let (_, states) = node.turned(gates);
            let shortest = states.iter().map(|(_, lasts)| *lasts).min().unwrap_or(least);
            if shortest < least && !node.device.offload {
                return Some(node.short(far, shortest, least));
            }
            let refused = |why: String| {
                let node = node.name.to_string();
                Some(RenderError::Refused { node, why: format!("port to {far}: {why}") })
            };
            if states.len() > MAX_SHOWN_ENTRIES {
                let count = states.len();
                return refused(format!(
                    "{count} entries, and the kernel shows a list of {MAX_SHOWN_ENTRIES}; write \
                     `device: {{gate_entries: {MAX_SHOWN_ENTRIES}}}`"
                ));
            }
            if gates.cycle > CYCLE_MAX {
                let cycle = gates.cycle;
                return refused(format!(
                    "a cycle of {cycle}, and the kernel takes {CYCLE_MAX}; write periods with a \
                     shorter common multiple"
                ));
            }
        }
    }
    across(file, given, plan, &gates)
}

/// The first frame whose launch time the gates do not take.
fn across(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
    gates: &BTreeMap<LinkId, &PortGates>,
) -> Option<RenderError> {
    let nodes: BTreeMap<_, _> =
        Node::all(file, given, plan).map(|node| (node.name.clone(), node)).collect();
    let limits = |link: LinkId| {
        let network = given.problem.network();
        &network.node(network.link(link).from).limits
    };
    for admission in &plan.admitted {
        let stream = given.problem.stream(admission.stream);
        for sent in &admission.transmissions {
            let is_own = given.problem.network().link(sent.link).from == stream.talker;
            let Some(gates) = gates.get(&sent.link).filter(|_| is_own) else { continue };
            if !limits(sent.link).launch_time {
                continue;
            }
            let Some(node) = nodes.get(ends(file, sent.link).0) else { continue };
            let Some(launch) = node.launch_of(sent.start) else { continue };
            if let Err(error) = node.fits_into(stream, launch, gates) {
                return Some(error);
            }
        }
    }
    None
}

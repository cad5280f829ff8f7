// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time that is kept free on every link, for frames that come at instants of their own: nothing
//! planned is on a link then, and no gate is open for it.

use super::finding::Findings;
use super::{Finding, Rule, Sent, greatest_common_divisor};
use crate::model::{Plan, Problem};

/// Looks at each transmission in all its intervals, and at each window in all cycles.
pub(super) fn check(problem: &Problem, plan: &Plan, sent: &[Sent], findings: &mut Findings<'_>) {
    let Some(reserve) = problem.network().options().reserve else { return };
    let (every, lasts) = (reserve.every.as_ns(), reserve.lasts.as_ns());
    // Over all its turns, what repeats after `turn` comes at each multiple of the divisor from its
    // start on.
    let meets = |start: i64, length: i64, turn: i64| {
        let step = greatest_common_divisor(turn, every);
        let at = start.rem_euclid(step);
        at < lasts || at + length > step
    };
    for here in sent.iter().filter(|it| it.interval > 0) {
        // From the earliest that it can be sent until the end of its turn.
        if meets(here.start - here.early, here.occupancy + here.early, here.interval) {
            let finding = Finding::of(Rule::Reserve).link(here.link).streams(&[here.stream]);
            findings.add(finding.frame(here.frame).at(here.start.rem_euclid(every)));
        }
    }
    for gates in plan.gates.iter().filter(|gates| gates.cycle.as_ns() > 0) {
        for window in &gates.windows {
            let (start, length) = (window.start.as_ns(), (window.end - window.start).as_ns());
            if meets(start, length, gates.cycle.as_ns()) {
                findings.add(Finding::of(Rule::Reserve).link(gates.link).at(start));
            }
        }
    }
}

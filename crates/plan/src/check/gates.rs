// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gates of each port: whether they let out exactly what is sent, and whether the port can
//! have them.

use std::collections::BTreeSet;

use super::finding::Findings;
use super::links::{Gates, Links};
use super::{Finding, Rule, Sent};
use crate::model::{DeviceLimits, GateWindow, LinkId, NodeId, Plan, PortGates, Problem, Role};

/// Judges the gates of every port, and gives those that can be used to `links`.
pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    sent: &[Sent],
    links: &mut Links,
    findings: &mut Findings<'_>,
) {
    let network = problem.network();
    for gates in &plan.gates {
        let Some(link) = network.links().get(gates.link.index()) else {
            findings.add(Finding::of(Rule::UnknownLink).link(gates.link));
            continue;
        };
        let on_link = &mut links.links[gates.link.index()];
        let limits = &network.node(link.from).limits;
        let none = limits.gate_entries == Some(0);
        if none || on_link.gates.is_some() || on_link.instances.is_empty() {
            findings.add(Finding::of(Rule::GatesUnexpected).link(gates.link));
            continue;
        }
        let cycle = gates.cycle.as_ns();
        if !on_link.widen(cycle) {
            let finding = Finding::of(Rule::PortCycle).link(gates.link);
            findings.add(finding.found(cycle, on_link.cycle));
            continue;
        }
        if !windows(gates, limits.queues, findings) {
            continue;
        }
        on_link.gates = Some(Gates { cycle, open: open(&gates.windows, limits.queues) });
        spare(gates, on_link, sent, findings);
        device(gates, limits, findings);
    }
    together(problem, plan, links, findings);
    for (index, link) in links.links.iter().enumerate() {
        let id = LinkId::from_index(index);
        let Some(gates) = &link.gates else {
            let node = network.node(network.link(id).from);
            let launched = node.role == Role::EndStation && node.limits.launch_time;
            if !link.instances.is_empty() && node.limits.gate_entries != Some(0) && !launched {
                findings.add(Finding::of(Rule::GatesMissing).link(id));
            }
            continue;
        };
        for (number, instance) in link.instances.iter().enumerate() {
            if findings.is_over_at(number) {
                return;
            }
            let here = &sent[instance.place];
            if !gates.covers(here.queue, instance.start, here.occupancy) {
                let finding = Finding::of(Rule::GateShut).link(id).streams(&[here.stream]);
                findings.add(finding.frame(here.frame).at(instance.start));
            }
        }
    }
}

/// In order, within the cycle, without overlap.
fn windows(gates: &PortGates, queues: u8, findings: &mut Findings<'_>) -> bool {
    let mut until = 0;
    for window in &gates.windows {
        let (start, end) = (window.start.as_ns(), window.end.as_ns());
        if start < until || end <= start || end > gates.cycle.as_ns() {
            findings.add(Finding::of(Rule::GateWindows).link(gates.link).at(start));
            return false;
        }
        if window.queue >= queues {
            let finding = Finding::of(Rule::Queue).link(gates.link).at(start);
            findings.add(finding.found(window.queue.into(), queues.into()));
            return false;
        }
        until = end;
    }
    true
}

fn open(windows: &[GateWindow], queues: u8) -> Vec<Vec<(i64, i64)>> {
    let mut open: Vec<Vec<(i64, i64)>> = vec![Vec::new(); usize::from(queues)];
    for window in windows {
        let (start, end) = (window.start.as_ns(), window.end.as_ns());
        let open = &mut open[usize::from(window.queue)];
        match open.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => open.push((start, end)),
        }
    }
    open
}

/// The time within windows that nobody uses is what is declared.
fn spare(
    gates: &PortGates,
    link: &super::links::OnLink,
    sent: &[Sent],
    findings: &mut Findings<'_>,
) {
    let open: i64 = gates.windows.iter().map(|it| (it.end - it.start).as_ns()).sum();
    let used: i128 = link.instances.iter().map(|it| i128::from(sent[it.place].occupancy)).sum();
    let spare = i64::try_from(i128::from(open) - used).unwrap_or(i64::MIN);
    if spare != gates.spare.as_ns() {
        let finding = Finding::of(Rule::GateSpare).link(gates.link);
        findings.add(finding.found(gates.spare.as_ns(), spare));
    }
}

/// One entry of a gate control list.
struct Entry {
    start: i64,
    length: i64,
    queue: Option<u8>,
}

/// The windows, and the time between them.
fn entries(gates: &PortGates) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut until = 0;
    for window in &gates.windows {
        let (start, end) = (window.start.as_ns(), window.end.as_ns());
        if start > until {
            entries.push(Entry { start: until, length: start - until, queue: None });
        }
        match entries.last_mut() {
            Some(last) if last.queue == Some(window.queue) => last.length += end - start,
            _ => entries.push(Entry { start, length: end - start, queue: Some(window.queue) }),
        }
        until = end;
    }
    let rest = gates.cycle.as_ns() - until;
    if rest > 0 {
        entries.push(Entry { start: until, length: rest, queue: None });
    }
    entries
}

fn device(gates: &PortGates, limits: &DeviceLimits, findings: &mut Findings<'_>) {
    let list = entries(gates);
    let finding = |rule| Finding::of(rule).link(gates.link);
    let longest = limits.interval_max.map_or(i64::MAX, |most| most.as_ns());
    // What is longer than an entry can be takes several.
    let count: i64 = list.iter().map(|it| (it.length - 1) / longest + 1).sum();
    if count != i64::from(gates.entries) {
        findings.add(finding(Rule::GateCount).found(gates.entries.into(), count));
    }
    if let Some(most) = limits.gate_entries.map(i64::from).filter(|most| count > *most) {
        findings.add(finding(Rule::GateEntries).found(count, most));
    }
    let (least, grain) = (limits.interval_min.as_ns(), limits.granularity.as_ns());
    for entry in &list {
        if entry.length < least && list.len() > 1 {
            let finding = finding(Rule::IntervalShort).at(entry.start);
            findings.add(finding.found(entry.length, least));
        }
        if entry.start % grain != 0 {
            let finding = finding(Rule::Granularity).at(entry.start);
            findings.add(finding.found(entry.start, grain));
        }
    }
    if let Some(most) = limits.cycle_max.filter(|most| gates.cycle > *most) {
        findings.add(finding(Rule::CycleLong).found(gates.cycle.as_ns(), most.as_ns()));
    }
    if gates.cycle.as_ns() % grain != 0 {
        let cycle = gates.cycle.as_ns();
        findings.add(finding(Rule::Granularity).at(cycle).found(cycle, grain));
    }
    if let Some(most) = limits.openings {
        openings(gates, &list, most, findings);
    }
}

/// Whether two ports of a device whose ports may not do so change gates at the same instant.
fn together(problem: &Problem, plan: &Plan, links: &Links, findings: &mut Findings<'_>) {
    let network = problem.network();
    let mut before: Vec<(NodeId, i64, Vec<i64>)> = Vec::new();
    for gates in &plan.gates {
        let usable = links.links.get(gates.link.index()).is_some_and(|link| link.gates.is_some());
        let Some(link) = network.links().get(gates.link.index()).filter(|_| usable) else {
            continue;
        };
        if !network.node(link.from).limits.changes_apart {
            continue;
        }
        let cycle = gates.cycle.as_ns();
        let changes = changes(gates);
        for (_, other, others) in before.iter().filter(|(node, ..)| *node == link.from) {
            // Two instants meet in some cycle when they are apart by a multiple of this.
            let meets = common_divisor(cycle, *other);
            let taken: BTreeSet<i64> = others.iter().map(|at| at % meets).collect();
            if let Some(at) = changes.iter().find(|at| taken.contains(&(*at % meets))) {
                findings.add(Finding::of(Rule::Together).link(gates.link).at(*at));
            }
        }
        before.push((link.from, cycle, changes));
    }
}

/// When gates change in a cycle, at its turn as well.
fn changes(gates: &PortGates) -> Vec<i64> {
    let list = entries(gates);
    let before = |index: usize| &list[index.checked_sub(1).unwrap_or(list.len() - 1)];
    let changes = |(index, entry): &(usize, &Entry)| before(*index).queue != entry.queue;
    list.iter().enumerate().filter(changes).map(|(_, entry)| entry.start).collect()
}

fn common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// How often each queue opens: from shut to open, the turn of the cycle included. Those of others
/// open in each gap between windows.
fn openings(gates: &PortGates, list: &[Entry], most: u32, findings: &mut Findings<'_>) {
    let mut counts = [0_u32; 257];
    for (index, entry) in list.iter().enumerate() {
        let before = index.checked_sub(1).unwrap_or(list.len() - 1);
        if list[before].queue != entry.queue || list.len() == 1 {
            counts[entry.queue.map_or(256, usize::from)] += 1;
        }
    }
    for count in counts.into_iter().filter(|count| *count > most) {
        let finding = Finding::of(Rule::Openings).link(gates.link);
        findings.add(finding.found(count.into(), most.into()));
    }
}

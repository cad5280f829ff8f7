// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who has an answer, and whether each way is a tree from the talker to all listeners.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Findings;
use super::{Finding, Rule, Sent};
use crate::model::{Admission, LinkId, NodeId, Plan, Problem, Role, Route, Stream, StreamId};

/// No start is later; sums of times stay far below 63 bits.
const LATEST_NS: i64 = 4_000_000_000_000_000;

/// All transmissions of admitted streams that exist, each after the same frame on the link before.
pub(super) fn derive(problem: &Problem, plan: &Plan, findings: &mut Findings<'_>) -> Vec<Sent> {
    answers(problem, plan, findings);
    let cycle = plan.cycle.as_ns();
    let mut sent = Vec::new();
    for admission in &plan.admitted {
        let Some(stream) = problem.streams().get(admission.stream.index()) else { continue };
        let interval = stream.interval.as_ns();
        if cycle <= 0 || cycle % interval != 0 {
            let finding = Finding::of(Rule::Cycle).streams(&[admission.stream]);
            findings.add(finding.found(cycle, interval));
        }
        Tree { problem, stream, id: admission.stream, findings }.derive(admission, &mut sent);
    }
    sent
}

fn answers(problem: &Problem, plan: &Plan, findings: &mut Findings<'_>) {
    let mut count = vec![0_u32; problem.streams().len()];
    let admitted = plan.admitted.iter().map(|admission| admission.stream);
    for stream in admitted.chain(plan.refused.iter().map(|refusal| refusal.stream)) {
        match count.get_mut(stream.index()) {
            Some(count) => *count += 1,
            None => findings.add(Finding::of(Rule::UnknownStream).streams(&[stream])),
        }
    }
    for (index, count) in count.into_iter().enumerate() {
        let rule = match count {
            0 => Rule::StreamMissing,
            1 => continue,
            _ => Rule::StreamTwice,
        };
        findings.add(Finding::of(rule).streams(&[StreamId::from_index(index)]));
    }
}

struct Tree<'a, 'b> {
    problem: &'a Problem,
    stream: &'a Stream,
    id: StreamId,
    findings: &'a mut Findings<'b>,
}

impl Tree<'_, '_> {
    fn derive(&mut self, admission: &Admission, sent: &mut Vec<Sent>) {
        let mut used = BTreeSet::new();
        for copy in 0..self.stream.copies {
            let links = self.frames(admission, copy, sent);
            if links.is_empty() {
                self.findings.add(Finding::of(Rule::CopyMissing).streams(&[self.id]));
                continue;
            }
            self.tree(&links, sent);
            self.given(copy, &links);
            for (link, _) in &links {
                if !used.insert(*link) {
                    self.add(Rule::CopiesShare, *link);
                }
            }
        }
        for other in &admission.transmissions {
            if other.copy >= self.stream.copies {
                let finding = Finding::of(Rule::UnknownFrame).streams(&[self.id]).link(other.link);
                let (found, bound) = (i64::from(other.copy), i64::from(self.stream.copies));
                self.findings.add(finding.found(found, bound));
            }
        }
    }

    fn add(&mut self, rule: Rule, link: LinkId) {
        self.findings.add(Finding::of(rule).streams(&[self.id]).link(link));
    }

    /// The links of a copy in the order of the plan, each with the places of its frames.
    fn frames(
        &mut self,
        admission: &Admission,
        copy: u8,
        sent: &mut Vec<Sent>,
    ) -> Vec<(LinkId, Vec<usize>)> {
        let mut places: BTreeMap<LinkId, usize> = BTreeMap::new();
        let mut links: Vec<(LinkId, Vec<usize>)> = Vec::new();
        let mut seen = BTreeSet::new();
        for planned in admission.transmissions.iter().filter(|planned| planned.copy == copy) {
            let network = self.problem.network();
            let Some(link) = network.links().get(planned.link.index()) else {
                self.add(Rule::UnknownLink, planned.link);
                continue;
            };
            let start = planned.start.as_ns();
            let finding = Finding::of(Rule::StartRange).streams(&[self.id]).link(planned.link);
            if !(0..=LATEST_NS).contains(&start) {
                self.findings.add(finding.frame(planned.frame).at(start));
                continue;
            }
            if planned.frame >= self.stream.frames {
                let (found, bound) = (i64::from(planned.frame), i64::from(self.stream.frames));
                let finding = Finding { rule: Rule::UnknownFrame, ..finding };
                self.findings.add(finding.found(found, bound));
                continue;
            }
            let queues = network.node(link.from).limits.queues;
            if planned.queue >= queues {
                let finding = Finding { rule: Rule::Queue, ..finding };
                self.findings.add(finding.found(planned.queue.into(), queues.into()));
            }
            let place = *places.entry(planned.link).or_insert_with(|| {
                links.push((planned.link, Vec::new()));
                links.len() - 1
            });
            let frames = &mut links[place].1;
            if !seen.insert((planned.link, planned.frame)) {
                self.add(Rule::FrameTwice, planned.link);
                continue;
            }
            frames.push(sent.len());
            sent.push(Sent {
                stream: self.id,
                link: planned.link,
                frame: planned.frame,
                copy,
                queue: planned.queue,
                start,
                occupancy: super::times::occupancy(network, planned.link, self.stream),
                length: super::times::length(network, planned.link, self.stream),
                interval: self.stream.interval.as_ns(),
                before: None,
                wait: 0,
                early: 0,
            });
        }
        for (link, frames) in &mut links {
            frames.sort_by_key(|place| sent[*place].frame);
            if frames.len() != usize::try_from(self.stream.frames).unwrap_or(usize::MAX) {
                self.findings.add(Finding::of(Rule::FrameMissing).streams(&[self.id]).link(*link));
            }
        }
        links
    }

    /// Each link continues the way; the frames learn where they were before.
    fn tree(&mut self, links: &[(LinkId, Vec<usize>)], sent: &mut [Sent]) {
        let network = self.problem.network();
        // By node: by which of the links it is reached.
        let mut reached: BTreeMap<NodeId, Option<usize>> =
            BTreeMap::from([(self.stream.talker, None)]);
        let mut goes_on = vec![false; links.len()];
        for (place, (id, frames)) in links.iter().enumerate() {
            let link = network.link(*id);
            let before = reached.get(&link.from).copied();
            let station = network.node(link.from).role == Role::EndStation;
            let new = !reached.contains_key(&link.to);
            if before.is_none() || (station && link.from != self.stream.talker) || !new {
                self.add(Rule::Path, *id);
            }
            if new {
                reached.insert(link.to, Some(place));
            }
            let Some(Some(before)) = before else { continue };
            goes_on[before] = true;
            for frame in frames {
                let number = sent[*frame].frame;
                let same = links[before].1.binary_search_by_key(&number, |it| sent[*it].frame);
                sent[*frame].before = same.ok().map(|index| links[before].1[index]);
            }
        }
        for (place, (id, _)) in links.iter().enumerate() {
            if !goes_on[place] && !self.stream.listeners.contains(&network.link(*id).to) {
                self.add(Rule::UselessLink, *id);
            }
        }
        for listener in &self.stream.listeners {
            if !reached.contains_key(listener) {
                self.findings.add(Finding::of(Rule::ListenerMissed).streams(&[self.id]));
            }
        }
    }

    fn given(&mut self, copy: u8, links: &[(LinkId, Vec<usize>)]) {
        let Route::Given(trees) = &self.stream.route else { return };
        let right: Option<BTreeSet<LinkId>> =
            trees.get(usize::from(copy)).map(|tree| tree.iter().copied().collect());
        let used: BTreeSet<LinkId> = links.iter().map(|(link, _)| *link).collect();
        if right.as_ref() != Some(&used) {
            self.findings.add(Finding::of(Rule::RouteDiffers).streams(&[self.id]));
        }
    }
}

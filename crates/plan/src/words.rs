// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan says, in words: reasons, and figures that people ask for first.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::Span;

use crate::model::{
    CasePart, Certificate, LinkId, PackingCase, Plan, Problem, Refusal, Route, StreamId,
};

/// Refusals with their ports: what asks for many of them looks through the links once.
#[derive(Debug)]
pub struct Refusals<'a> {
    problem: &'a Problem,
    /// By node: the links that leave it.
    leaving: Vec<Vec<LinkId>>,
}

impl<'a> Refusals<'a> {
    /// Of this problem.
    pub fn of(problem: &'a Problem) -> Refusals<'a> {
        let network = problem.network();
        let mut leaving = vec![Vec::new(); network.nodes().len()];
        for (index, link) in network.links().iter().enumerate() {
            leaving[link.from.index()].push(LinkId::from_index(index));
        }
        Refusals { problem, leaving }
    }

    /// The names of the ports that a refusal is about: each sends on this link. Where the cause is
    /// at no port, those on the stream's route, or its talker's.
    pub fn ports(&self, refusal: &Refusal) -> Vec<&'a str> {
        let stream = self.problem.stream(refusal.stream);
        let given = || match &stream.route {
            Route::Given(trees) => trees.concat(),
            Route::Free => Vec::new(),
        };
        let mut ports = match &refusal.certificate {
            Certificate::MinimumLatency { path, .. } | Certificate::Jitter { path, .. } => {
                path.clone()
            }
            Certificate::Window { link, .. }
            | Certificate::LinkLoad { link, .. }
            | Certificate::PairConflict { link, .. }
            | Certificate::Clique { link, .. }
            | Certificate::Packing { link, .. }
            | Certificate::GateLimit { link, .. } => vec![*link],
            Certificate::Cases { parts, .. } => {
                let own = parts.iter().filter(|part| part.stream == refusal.stream);
                own.flat_map(|part| part.links.clone()).collect()
            }
            Certificate::NoInstant { .. } => Vec::new(),
            Certificate::NoPath { .. }
            | Certificate::Solver { .. }
            | Certificate::Kept { .. }
            | Certificate::NotFound { .. } => given(),
        };
        if ports.is_empty() {
            ports.clone_from(&self.leaving[stream.talker.index()]);
        }
        let mut seen = BTreeSet::new();
        ports.retain(|link| seen.insert(*link));
        let network = self.problem.network();
        ports.into_iter().map(|link| network.link(link).name.as_str()).collect()
    }

    /// Port, class and cause.
    pub fn text(&self, refusal: &Refusal) -> String {
        let class = self.problem.stream(refusal.stream).priority;
        let why = reason(self.problem, &refusal.certificate);
        match some(&self.ports(refusal)) {
            ports if ports.is_empty() => format!("class {class}: {why}"),
            ports => format!("{ports} class {class}: {why}"),
        }
    }
}

/// Why a stream is rejected, as a sentence.
pub fn reason(problem: &Problem, certificate: &Certificate) -> String {
    let network = problem.network();
    let link = |id: &LinkId| network.link(*id).name.as_str();
    let node = |id: &crate::model::NodeId| network.node(*id).name.as_str();
    let port = |id: &LinkId| {
        let device = network.node(network.link(*id).from).limits.device;
        let device = device.map_or_else(String::new, |device| format!(" ({device})"));
        format!("the port of {}{device}", link(id))
    };
    match certificate {
        Certificate::NoPath { listener, copies: 1 } => {
            format!("there is no way to {}", node(listener))
        }
        Certificate::NoPath { listener, copies } => {
            format!("there are no {copies} ways to {} that share no link", node(listener))
        }
        Certificate::NoInstant { node: talker } => format!(
            "{}{} has neither gates nor launch times, so it cannot send at an instant",
            node(talker),
            match network.node(*talker).limits.device {
                Some(device) => format!(" ({device})"),
                None => String::new(),
            }
        ),
        Certificate::MinimumLatency { listener, path, needed, allowed } => format!(
            "alone in the network it needs {needed} to {} over {} links; it may take {allowed}",
            node(listener),
            path.len()
        ),
        Certificate::Jitter { listener, path, parts, needed, allowed, proof } => {
            let hops = path.iter().zip(parts).filter(|(_, part)| **part > Span::ZERO);
            let hop = |id: &LinkId| node(&network.link(*id).from);
            let each: Vec<String> = hops.map(|(id, part)| format!("{} {part}", hop(id))).collect();
            let least = if *proof { " at least" } else { "" };
            let more = if *proof { "" } else { "; this is no proof" };
            format!(
                "its latency to {} differs by {needed}{least}, of {}, since no gate holds it back \
                 there; it may differ by {allowed}{more}",
                node(listener),
                each.join(" and ")
            )
        }
        Certificate::Window { link: at, needed, available } => format!(
            "its frames occupy {}, which it cannot avoid, for {needed}; its interval is \
             {available}",
            link(at)
        ),
        Certificate::LinkLoad { link: at, streams, needed, cycle } => format!(
            "{} streams, none of which can avoid {}, need it for {needed} in each {cycle}",
            streams.len(),
            link(at)
        ),
        Certificate::PairConflict { link: at, other, needed, divisor } => format!(
            "it meets {} on {}, which neither can avoid: a frame of each takes {needed}, and the \
             greatest common divisor of their intervals is {divisor}",
            problem.stream(*other).name,
            link(at)
        ),
        Certificate::Clique { link: at, streams, needed, divisor } => format!(
            "{} streams, none of which can avoid {}, meet in pairs: a frame of each takes {needed} \
             together, and there is room for {divisor}",
            streams.len(),
            link(at)
        ),
        Certificate::Cases { parts, tree } => cases(problem, parts, tree.len()),
        Certificate::Packing { link: at, bin, streams, tree, .. } => format!(
            "{} streams, none of which can avoid {}, do not fit into it: each frame of theirs lies \
             between two of one that comes every {bin}{}",
            streams.len(),
            link(at),
            match tree.iter().filter(|case| !matches!(case, PackingCase::Split { .. })).count() {
                0 | 1 => String::new(),
                cases => format!(", and there is no room in {cases} cases of between which"),
            }
        ),
        Certificate::Solver { statement } => statement.clone(),
        Certificate::GateLimit { link: at, needed: Certificate::TOO_LONG, .. } => format!(
            "the gates of {} would repeat after a longer cycle than it can have; this is no proof",
            port(at)
        ),
        Certificate::GateLimit { link: at, needed: Certificate::NOT_FREE, .. } => format!(
            "the gates of {} would be open for planned frames in the time that `reserve` keeps \
             free; this is no proof",
            port(at)
        ),
        Certificate::GateLimit { link: at, needed, allowed } => format!(
            "{} would need {needed} gate entries, and {allowed} is the most; this is no proof",
            port(at)
        ),
        Certificate::Kept { needed: Some(needed), allowed } => format!(
            "there is room for it only when kept streams move, {needed} by what was found; \
             {allowed} may; this is no proof"
        ),
        Certificate::Kept { needed: None, allowed } => format!(
            "no reservation was found beside the kept streams, of which {allowed} may move; this \
             is no proof that there is none"
        ),
        Certificate::NotFound { tried } => {
            format!(
                "no reservation was found in {tried} steps; this is no proof that there is none"
            )
        }
    }
}

/// How many streams or links a proof by cases names in words.
const NAMED: usize = 6;

fn some(names: &[&str]) -> String {
    match names.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

/// A tree with so many entries has one more end than splits.
fn cases(problem: &Problem, parts: &[CasePart], entries: usize) -> String {
    let streams: Vec<&str> =
        parts.iter().map(|part| problem.stream(part.stream).name.as_str()).collect();
    let mut shared: BTreeMap<LinkId, usize> = BTreeMap::new();
    for link in parts.iter().flat_map(|part| &part.links) {
        *shared.entry(*link).or_insert(0) += 1;
    }
    let mut links: Vec<(usize, LinkId)> =
        shared.into_iter().filter(|(_, count)| *count > 1).map(|(link, n)| (n, link)).collect();
    links.sort_by_key(|(count, link)| (std::cmp::Reverse(*count), *link));
    let links: Vec<&str> =
        links.iter().map(|(_, link)| problem.network().link(*link).name.as_str()).collect();
    let cases = match entries.div_ceil(2) {
        1 => String::new(),
        cases => format!(" in each of {cases} cases of who goes first"),
    };
    format!(
        "{} streams ({}) meet on links that they cannot avoid ({}), however they start{cases}; \
         one of them needs another interval, length or way",
        parts.len(),
        some(&streams),
        some(&links),
    )
}

/// From the start at the talker until a stream's message is whole at the last listener; `None` for
/// one that is not admitted.
pub fn latency(problem: &Problem, plan: &Plan, id: StreamId) -> Option<Span> {
    let place = plan.admitted.binary_search_by_key(&id, |admission| admission.stream).ok()?;
    let stream = problem.stream(id);
    let network = problem.network();
    let sent = &plan.admitted[place].transmissions;
    let first = sent.iter().filter(|s| network.link(s.link).from == stream.talker);
    let first = first.map(|s| s.start).min()?;
    let last = sent.iter().filter(|s| stream.listeners.contains(&network.link(s.link).to));
    let end = last.map(|s| {
        s.start + network.occupancy(s.link, stream.length_bytes) + network.link(s.link).propagation
    });
    Some(end.max()? - first)
}

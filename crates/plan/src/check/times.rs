// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When each frame is there, at the earliest and at the latest, and what that makes of messages.

use std::collections::BTreeMap;

use super::finding::Findings;
use super::{Finding, Rule, Sent};
use crate::model::{Forwarding, LinkId, Network, Plan, Problem, Role, Stream, StreamId};

/// No transmission counts for more: it is longer than any interval, and sums of many still fit.
const LONGEST_NS: i64 = 8_000_000_000_000;

/// How long so many bytes need, rounded up to a nanosecond.
pub(super) fn duration(bits_per_second: u64, bytes: u32) -> i64 {
    let bits_ns = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = u128::from(bits_per_second);
    let whole = bits_ns / rate + u128::from(!bits_ns.is_multiple_of(rate));
    i64::try_from(whole).unwrap_or(LONGEST_NS).min(LONGEST_NS)
}

/// How long a frame of the stream is on the link.
pub(super) fn length(network: &Network, link: LinkId, stream: &Stream) -> i64 {
    let bytes = stream.length_bytes.saturating_add(network.options().overhead_bytes);
    duration(network.link(link).rate.get(), bytes)
}

/// What a plan keeps a link for: the frame, and what clocks may take away of a window.
pub(super) fn occupancy(network: &Network, link: LinkId, stream: &Stream) -> i64 {
    let length = length(network, link, stream);
    let correction = network.node(network.link(link).from).correction.as_ns();
    let occupied = length.saturating_add(slower(network, length));
    occupied.saturating_add(correction).min(LONGEST_NS)
}

/// By how much more a transmitter may take than the clock of gates shows, rounded up.
fn slower(network: &Network, length: i64) -> i64 {
    let all = i128::from(length) * i128::from(network.options().rate_error_ppm);
    let slower = all / 1_000_000 + i128::from(all % 1_000_000 > 0);
    i64::try_from(slower).unwrap_or(LONGEST_NS).min(LONGEST_NS)
}

/// From a frame's start on a link until it can start on the next one, at the latest.
pub(super) fn forwarding(network: &Network, from: LinkId, to: LinkId, stream: &Stream) -> i64 {
    let (incoming, outgoing) = (network.link(from), network.link(to));
    let node = network.node(outgoing.from);
    let whole = occupancy(network, from, stream);
    let received = match node.forwarding {
        Forwarding::CutThrough { header_bytes } if incoming.rate == outgoing.rate => {
            let header = duration(incoming.rate.get(), header_bytes);
            whole.min(header + slower(network, header))
        }
        _ => whole,
    };
    let rest = incoming.propagation + node.processing_max + network.options().sync_error;
    received + rest.as_ns()
}

/// By link: the least by which a frame's start on it differs, whatever is planned. A port with
/// gates can hold each frame back; one without starts it when it is there or when the frame before
/// it has left, which differs by as much as any that came to the same node.
pub(super) fn vagueness(network: &Network) -> Vec<i64> {
    let sync = network.options().sync_error.as_ns();
    let mut least = vec![0_i64; network.links().len()];
    let mut comes: Vec<Vec<usize>> = vec![Vec::new(); network.nodes().len()];
    for (index, link) in network.links().iter().enumerate() {
        comes[link.to.index()].push(index);
    }
    // Each round is a bound; without end they rise only where no station's frames come.
    for _ in network.nodes() {
        let mut rose = false;
        for index in 0..least.len() {
            let from = network.links()[index].from;
            let node = network.node(from);
            if node.role == Role::EndStation || node.limits.gate_entries != Some(0) {
                continue;
            }
            let own = (node.processing_max - node.processing_min).as_ns() + 2 * sync;
            let before = comes[from.index()].iter().map(|link| least[*link]).min();
            let bound = own.saturating_add(before.unwrap_or(0)).min(LONGEST_NS);
            rose |= bound > least[index];
            least[index] = least[index].max(bound);
        }
        if !rose {
            break;
        }
    }
    least
}

/// Each frame starts when it has been received and processed, after the one before it.
pub(super) fn causality(problem: &Problem, sent: &mut [Sent], findings: &mut Findings<'_>) {
    let network = problem.network();
    let sync = network.options().sync_error.as_ns();
    for place in 0..sent.len() {
        let here = &sent[place];
        if here.frame > 0 {
            frame_order(sent, place, findings);
        }
        let Some(before) = here.before.map(|before| &sent[before]) else {
            let talker = network.node(network.link(here.link).from);
            let is_launched = talker.limits.launch_time || talker.role != Role::EndStation;
            sent[place].wait = if is_launched { 0 } else { talker.early.as_ns() };
            continue;
        };
        let stream = problem.stream(here.stream);
        let ready = before.start + forwarding(network, before.link, here.link, stream);
        let node = network.node(network.link(here.link).from);
        if here.start < ready {
            let finding = Finding::of(Rule::Causality).streams(&[here.stream]).link(here.link);
            let finding = finding.frame(here.frame).at(here.start);
            findings.add(finding.found(here.start, ready));
        }
        let vague = (node.processing_max - node.processing_min).as_ns() + 2 * sync;
        let margin = before.occupancy - before.length;
        sent[place].wait = (sent[place].start - ready).max(0) + vague + margin;
    }
}

/// The frame before it on the same link has left.
fn frame_order(sent: &[Sent], place: usize, findings: &mut Findings<'_>) {
    let here = &sent[place];
    let same = |other: &&Sent| {
        (other.stream, other.copy, other.link) == (here.stream, here.copy, here.link)
            && other.frame + 1 == here.frame
    };
    // Frames of a link stand together in the plan; a plan that scatters them is searched far.
    let window = sent[..place].iter().rev().take_while(|other| other.stream == here.stream);
    let after = sent[place + 1..].iter().take_while(|other| other.stream == here.stream);
    let Some(before) = window.chain(after).find(same) else { return };
    if here.start < before.end() {
        let finding = Finding::of(Rule::FrameOrder).streams(&[here.stream]).link(here.link);
        findings.add(finding.frame(here.frame).at(here.start).found(here.start, before.end()));
    }
}

/// Later than any start, and differences with it still fit.
const NEVER: i64 = i64::MAX / 2;

/// What a message is at its ends.
struct Message {
    first: i64,
    /// By copy and listener's node: when its last frame is whole, and how much earlier that can be.
    whole: BTreeMap<(u8, u32), (i64, i64)>,
}

/// Release, latency and jitter of each stream.
pub(super) fn messages(problem: &Problem, plan: &Plan, sent: &[Sent], findings: &mut Findings<'_>) {
    let network = problem.network();
    let mut messages: BTreeMap<StreamId, Message> = BTreeMap::new();
    for here in sent {
        let link = network.link(here.link);
        let stream = problem.stream(here.stream);
        let message = messages
            .entry(here.stream)
            .or_insert_with(|| Message { first: NEVER, whole: BTreeMap::new() });
        if here.before.is_none() && link.from == stream.talker {
            if here.frame == 0 {
                message.first = message.first.min(here.start);
                release(problem, here, findings);
            }
            launch(problem, plan, here, findings);
        }
        if stream.listeners.contains(&link.to) {
            let whole = here.end() + link.propagation.as_ns();
            let known = message.whole.entry((here.copy, link.to.0)).or_insert((whole, here.early));
            *known = (known.0.max(whole), known.1.max(here.early));
        }
    }
    for (id, message) in messages {
        let stream = problem.stream(id);
        for (whole, early) in message.whole.values() {
            let latency = whole - message.first;
            if latency > stream.latency_max.as_ns() {
                let finding = Finding::of(Rule::Latency).streams(&[id]).at(*whole);
                findings.add(finding.found(latency, stream.latency_max.as_ns()));
            }
            if let Some(most) = stream.jitter_max.filter(|most| *early > most.as_ns()) {
                let finding = Finding::of(Rule::Jitter).streams(&[id]).at(*whole);
                findings.add(finding.found(*early, most.as_ns()));
            }
        }
    }
}

fn release(problem: &Problem, here: &Sent, findings: &mut Findings<'_>) {
    let stream = problem.stream(here.stream);
    let (earliest, latest) = (stream.release.earliest.as_ns(), stream.release_latest().as_ns());
    let bound = here.start.clamp(earliest, latest);
    if here.start != bound {
        let finding = Finding::of(Rule::Release).streams(&[here.stream]).link(here.link);
        findings.add(finding.at(here.start).found(here.start, bound));
    }
}

/// The talker can start at an instant: with a gate or with a launch time.
fn launch(problem: &Problem, plan: &Plan, here: &Sent, findings: &mut Findings<'_>) {
    let network = problem.network();
    let limits = &network.node(network.link(here.link).from).limits;
    if limits.launch_time || limits.gate_entries != Some(0) {
        return;
    }
    let gates = plan.gates.iter().any(|gates| gates.link == here.link);
    if !gates {
        let finding = Finding::of(Rule::LaunchTime).streams(&[here.stream]).link(here.link);
        findings.add(finding.frame(here.frame).at(here.start));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a message looks like on its way when nothing makes it wait: when it is on each link, from
//! its start at the talker.

use timewire_base::Span;

use crate::model::{Forwarding, LinkId, Network, Stream};

/// A stretch of time in which a message needs a link for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub link: LinkId,
    /// From the message's start.
    pub start: i64,
    pub length: i64,
}

/// One frame on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub link: LinkId,
    pub frame: u32,
    pub copy: u8,
    pub start: i64,
}

/// A message on its trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// One tree for each copy.
    pub trees: Vec<Vec<LinkId>>,
    pub stretches: Vec<Stretch>,
    /// Until it is whole everywhere.
    pub latency: i64,
    /// By how much it may be early.
    pub early: i64,
}

/// A link of a tree while the shape is made.
struct Hop {
    link: LinkId,
    /// Of the first frame, and of the others.
    start: i64,
    more: Vec<i64>,
    /// How long a frame occupies the link.
    busy: i64,
    /// What of that is its margin.
    margin: i64,
    /// How much before its start a frame may be there.
    arrives: i64,
    /// How much before its start a frame may be on the way, since nothing holds it back.
    early: i64,
}

impl Hop {
    fn starts(&self) -> impl Iterator<Item = i64> + '_ {
        std::iter::once(self.start).chain(self.more.iter().copied())
    }

    fn last(&self) -> i64 {
        self.more.last().copied().unwrap_or(self.start)
    }
}

impl Shape {
    /// The shape of a stream on these trees, each link after the one before it.
    pub fn new(network: &Network, stream: &Stream, trees: Vec<Vec<LinkId>>) -> Shape {
        let mut shape = Shape { trees, stretches: Vec::new(), latency: 0, early: 0 };
        for tree in &shape.trees {
            let hops = hops(network, stream, tree);
            for hop in &hops {
                let link = network.link(hop.link);
                if stream.listeners.contains(&link.to) {
                    let whole = hop.last() + hop.busy + link.propagation.as_ns();
                    shape.latency = shape.latency.max(whole);
                    shape.early = shape.early.max(hop.early);
                }
            }
            add_stretches(&hops, &mut shape.stretches);
        }
        shape
    }

    /// Every frame on every link, in the order of a plan.
    pub fn sent(&self, network: &Network, stream: &Stream) -> Vec<Sent> {
        let mut all = Vec::new();
        for (copy, tree) in self.trees.iter().enumerate() {
            let copy = u8::try_from(copy).unwrap_or(u8::MAX);
            for hop in hops(network, stream, tree) {
                for (frame, start) in hop.starts().enumerate() {
                    let frame = u32::try_from(frame).unwrap_or(u32::MAX);
                    all.push(Sent { link: hop.link, frame, copy, start });
                }
            }
        }
        all
    }

    /// Whether the stream may take it.
    pub fn is_allowed(&self, stream: &Stream) -> bool {
        let mut links = self.stretches.chunk_by(|a, b| a.link == b.link);
        let alone = links.all(|all| {
            // It must not meet the stream's own next message.
            let end = all.last().map_or(0, |last| last.start + last.length);
            end - all[0].start <= stream.interval.as_ns()
        });
        alone
            && self.latency <= stream.latency_max.as_ns()
            && stream.jitter_max.is_none_or(|most| self.early <= most.as_ns())
    }
}

/// From a frame's start on a link until it may start on the next one.
pub fn step(network: &Network, stream: &Stream, link: LinkId, next: LinkId) -> i64 {
    let whole = network.occupancy(link, stream.length_bytes).as_ns();
    step_after(network, whole, link, next)
}

/// The same of a frame that occupies the link for so long.
fn step_after(network: &Network, whole: i64, link: LinkId, next: LinkId) -> i64 {
    let here = network.link(link);
    let node = network.node(here.to);
    let until = match node.forwarding {
        Forwarding::CutThrough { header_bytes } if here.rate == network.link(next).rate => {
            network.header_time(link, header_bytes).as_ns().min(whole)
        }
        _ => whole,
    };
    let processing = node.processing_max + network.options().sync_error;
    until + here.propagation.as_ns() + processing.as_ns()
}

/// How much earlier than reckoned a frame may be there after a node.
pub fn uncertainty(network: &Network, stream: &Stream, link: LinkId) -> i64 {
    least_uncertainty(network, link) + network.margin(link, stream.length_bytes).as_ns()
}

/// The same, of whatever frame.
pub fn least_uncertainty(network: &Network, link: LinkId) -> i64 {
    let node = network.node(network.link(link).to);
    let sync = network.options().sync_error.as_ns();
    (node.processing_max - node.processing_min).as_ns() + 2 * sync
}

/// Whether the port opens its gates for each frame alone, so that none goes early. A port with
/// limits may have to open for several at once.
pub fn is_exact(network: &Network, link: LinkId) -> bool {
    let limits = &network.node(network.link(link).from).limits;
    let free = limits.gate_entries.is_none() && limits.openings.is_none();
    free && limits.interval_min.as_ns() <= 1
        && limits.granularity.as_ns() == 1
        && !limits.changes_apart
}

/// How much before its start a frame may be at its talker's port, where it could go then: in what
/// others leave of their windows.
fn talker_early(network: &Network, link: LinkId) -> i64 {
    let node = network.node(network.link(link).from);
    if node.early == Span::ZERO || node.limits.launch_time {
        return 0;
    }
    let has_margin = network.margin(link, 0) > Span::ZERO;
    if has_margin || !is_exact(network, link) { node.early.as_ns() } else { 0 }
}

/// The queue of a frame of this class at the port.
pub fn queue(network: &Network, link: LinkId, priority: u8) -> u8 {
    let last = network.node(network.link(link).from).limits.queues.saturating_sub(1);
    if is_exact(network, link) { priority.min(last) } else { last }
}

fn hops(network: &Network, stream: &Stream, tree: &[LinkId]) -> Vec<Hop> {
    let mut hops: Vec<Hop> = Vec::with_capacity(tree.len());
    for &link in tree {
        let from = network.link(link).from;
        let (sent, margin) = network.kept(link, stream.length_bytes);
        let (busy, margin) = ((sent + margin).as_ns(), margin.as_ns());
        let before = hops.iter().rfind(|hop| network.link(hop.link).to == from);
        let after = before.map_or(0, |hop| step_after(network, hop.busy, hop.link, link));
        let start = before.map_or(0, |hop| hop.start + after);
        let arrives = match before {
            Some(hop) => hop.early + hop.margin + least_uncertainty(network, hop.link),
            None => talker_early(network, link),
        };
        let is_exact = is_exact(network, link);
        let mut early = if is_exact { 0 } else { arrives };
        let (mut more, mut sooner) = (Vec::new(), early);
        for frame in 1..usize::try_from(stream.frames).unwrap_or(1) {
            let follows = more.last().unwrap_or(&start) + busy;
            let there = before.map_or(follows, |hop| hop.more[frame - 1] + after);
            // It goes when the frame before it has, if it is there, in the same window or in what
            // that leaves.
            let is_apart = is_exact && there > follows && margin < busy - margin;
            let after_other = sooner.saturating_add(margin + (there - follows).max(0));
            let waits = (follows - there).max(0);
            sooner = if is_apart { 0 } else { after_other.min(arrives.saturating_add(waits)) };
            early = early.max(sooner);
            more.push(there.max(follows));
        }
        hops.push(Hop { link, start, more, busy, margin, arrives, early });
    }
    hops
}

/// The time that each link is needed, widened by what may be early: a frame that waits for its gate
/// must not find another's open, and one that is not held back is on the link before its start.
fn add_stretches(hops: &[Hop], all: &mut Vec<Stretch>) {
    for hop in hops {
        let first = all.len();
        for start in hop.starts() {
            let (start, end) = (start - hop.arrives, start + hop.busy);
            match all[first..].last_mut() {
                Some(last) if last.start + last.length >= start => {
                    last.length = end - last.start;
                }
                _ => all.push(Stretch { link: hop.link, start, length: end - start }),
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a message looks like on its way when nothing makes it wait: when it is on each link, from
//! its start at the talker.
//!
//! Not here: the start ([`super::table`]).

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
    starts: Vec<i64>,
    /// How much before its start a frame may be on the way, since nothing holds it back.
    early: i64,
}

impl Shape {
    /// The shape of a stream on these trees, each link after the one before it.
    pub fn new(network: &Network, stream: &Stream, trees: Vec<Vec<LinkId>>) -> Shape {
        let mut shape = Shape { trees, stretches: Vec::new(), latency: 0, early: 0 };
        for tree in &shape.trees {
            for hop in hops(network, stream, tree) {
                let whole = hop.starts.last().copied().unwrap_or(0)
                    + network.occupancy(hop.link, stream.length_bytes).as_ns()
                    + network.link(hop.link).propagation.as_ns();
                let to = network.link(hop.link).to;
                if stream.listeners.contains(&to) {
                    shape.latency = shape.latency.max(whole);
                    shape.early = shape.early.max(hop.early);
                }
            }
        }
        shape.stretches = stretches(network, stream, &shape.trees);
        shape
    }

    /// Every frame on every link, in the order of a plan.
    pub fn sent(&self, network: &Network, stream: &Stream) -> Vec<Sent> {
        let mut all = Vec::new();
        for (copy, tree) in self.trees.iter().enumerate() {
            let copy = u8::try_from(copy).unwrap_or(u8::MAX);
            for hop in hops(network, stream, tree) {
                for (frame, start) in hop.starts.iter().enumerate() {
                    let frame = u32::try_from(frame).unwrap_or(u32::MAX);
                    all.push(Sent { link: hop.link, frame, copy, start: *start });
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
    let here = network.link(link);
    let node = network.node(here.to);
    let whole = network.occupancy(link, stream.length_bytes).as_ns();
    let until = match node.forwarding {
        Forwarding::CutThrough { header_bytes } if here.rate == network.link(next).rate => {
            crate::model::bytes_time(here.rate, header_bytes).as_ns().min(whole)
        }
        _ => whole,
    };
    let processing = node.processing_max + network.options().sync_error;
    until + here.propagation.as_ns() + processing.as_ns()
}

/// How much earlier than reckoned a frame may be there after a node.
fn uncertainty(network: &Network, link: LinkId) -> i64 {
    let node = network.node(network.link(link).to);
    let sync = network.options().sync_error.as_ns();
    (node.processing_max - node.processing_min).as_ns() + 2 * sync
}

/// Whether the port opens its gates for each frame alone, so that none goes early. A port with
/// limits may have to open for several at once.
pub fn is_exact(network: &Network, link: LinkId) -> bool {
    let limits = &network.node(network.link(link).from).limits;
    let free = limits.gate_entries.is_none() && limits.openings.is_none();
    free && limits.interval_min.as_ns() <= 1 && limits.granularity.as_ns() == 1
}

fn hops(network: &Network, stream: &Stream, tree: &[LinkId]) -> Vec<Hop> {
    let frames = usize::try_from(stream.frames).unwrap_or(1);
    let mut hops: Vec<Hop> = Vec::with_capacity(tree.len());
    for &link in tree {
        let from = network.link(link).from;
        let busy = network.occupancy(link, stream.length_bytes).as_ns();
        let before = hops.iter().rfind(|hop| network.link(hop.link).to == from);
        let mut starts: Vec<i64> = Vec::with_capacity(frames);
        for frame in 0..frames {
            let there =
                before.map_or(0, |hop| hop.starts[frame] + step(network, stream, hop.link, link));
            let free = starts.last().map_or(there, |last| last + busy);
            starts.push(there.max(free));
        }
        let arrives = before.map_or(0, |hop| hop.early + uncertainty(network, hop.link));
        let early = if is_exact(network, link) { 0 } else { arrives };
        hops.push(Hop { link, starts, early });
    }
    hops
}

/// The time that each link is needed, widened by what may be early: a frame that waits for its gate
/// must not find another's open, and one that is not held back is on the link before its start.
fn stretches(network: &Network, stream: &Stream, trees: &[Vec<LinkId>]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for tree in trees {
        let hops = hops(network, stream, tree);
        for hop in &hops {
            let busy = network.occupancy(hop.link, stream.length_bytes).as_ns();
            let from = network.link(hop.link).from;
            let before = hops.iter().rfind(|other| network.link(other.link).to == from);
            let arrives = before.map_or(0, |other| other.early + uncertainty(network, other.link));
            // What is ahead of the start, because it is there and nothing holds it.
            let ahead = arrives.max(hop.early);
            let first = all.len();
            for start in &hop.starts {
                let (start, end) = (start - ahead, start + busy);
                match all[first..].last_mut() {
                    Some(last) if last.start + last.length >= start => {
                        last.length = end - last.start;
                    }
                    _ => all.push(Stretch { link: hop.link, start, length: end - start }),
                }
            }
        }
    }
    all
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of what an analysis keeps, whatever its events are, and the count of what they left out.

use std::collections::BTreeMap;

use super::follow::PacketPaths;
use super::node::{NodeRef, Parent};
use super::{ClockMap, Observer, PacketPath, PathOutcome, Why};

/// How much is kept at most. What has no room is left out, counted by its name
/// ([`Counts::left_out`](super::Counts::left_out)), and makes its packet path
/// [`Lossy`](super::Status::Lossy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Packets on their way, with those whose packet paths wait to come out.
    pub packets: usize,
    /// Points of all of them.
    pub points: usize,
    /// Points of one packet path.
    pub packet_path_points: usize,
    /// Events that wait for earlier ones.
    pub waiting: usize,
    /// Frames that a driver has shown and the stack does not have yet.
    pub arrivals: usize,
    /// Sockets, and threads, of each capture.
    pub endpoints: usize,
    /// Messages in the queues of all sockets.
    pub messages: usize,
    /// Intervals of loss of each capture.
    pub losses: usize,
    /// Tags on their way through a chain, and points that its markers are looked up by.
    pub tags: usize,
    /// Interrupts, deferred work and polls of all CPUs.
    pub spans: usize,
}

impl Default for Bounds {
    /// About 1 GiB when all are reached at once.
    fn default() -> Bounds {
        Bounds {
            packets: 1 << 18,
            points: 1 << 22,
            packet_path_points: 1 << 10,
            waiting: 1 << 20,
            arrivals: 1 << 18,
            endpoints: 1 << 16,
            messages: 1 << 20,
            losses: 1 << 16,
            tags: 1 << 18,
            spans: 1 << 20,
        }
    }
}

/// What was left out, by its name.
pub type LeftOut = BTreeMap<&'static str, u64>;

/// Names of what is left out.
pub(super) mod left {
    pub const PACKETS: &str = "packets on their way";
    pub const POINTS: &str = "events of packet paths that are too long";
    pub const ARRIVALS: &str = "frames shown by drivers";
    pub const SOCKETS: &str = "sockets";
    pub const THREADS: &str = "threads";
    pub const MESSAGES: &str = "messages in sockets";
    pub const TAGS: &str = "tags of chains";
    pub const STAGES: &str = "stages without a row";
    pub const SPANS: &str = "interrupts and polls of CPUs";
    pub const REASONS: &str = "reasons of drops";
    pub const UNTIMED: &str = "packet paths between clocks whose difference is not known";
    pub const STEPS: &str = "names and steps of clocks";
}

/// Most reasons of drops that are counted apart.
const MAX_REASONS: usize = 1_024;
/// More transmitters before a packet are not looked for.
const LONGEST_LINE: usize = 1_024;

impl<C: ClockMap> PacketPaths<C> {
    pub(super) fn leave_out(&mut self, what: &'static str, count: usize) {
        if count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            *self.counts.left_out.entry(what).or_default() += count;
        }
    }

    /// Counts a packet path that ended with a drop.
    pub(super) fn count_drop(&mut self, packet_path: &PacketPath) {
        let PathOutcome::Dropped { reason } = packet_path.outcome else { return };
        let capture = packet_path.points.last().map_or(0, |point| usize::from(point.capture));
        let drops = &mut self.counts.drops;
        if drops.len() < MAX_REASONS || drops.contains_key(&(capture, reason)) {
            *drops.entry((capture, reason)).or_default() += 1;
        } else {
            self.leave_out(left::REASONS, 1);
        }
    }

    #[cfg(test)]
    pub(super) fn held_arrivals(&self) -> usize {
        self.arrivals.len()
    }

    /// Sets the parent, unless the parent comes from the child: events of one packet that two
    /// captures have, or clocks that are wrong, can seem to say so.
    pub(super) fn adopt(&mut self, child: NodeRef, parent: NodeRef, upto: usize) {
        let mut next = Some(parent);
        for _ in 0..LONGEST_LINE {
            let Some(node) = next else {
                self.nodes.set_parent(child, parent, upto);
                return;
            };
            if node == child {
                break;
            }
            next = match self.nodes[node].parent {
                Parent::At(above, _) => Some(above),
                _ => None,
            };
        }
        let own = &mut self.nodes[child];
        own.parent = Parent::None;
        own.why.get_or_insert(Why::Circle);
    }

    /// Ends the oldest packets while there are too many, and forgets what belongs to none.
    pub(super) fn make_room(&mut self, out: &mut impl Observer) {
        let bounds = self.settings.bounds;
        let mut ended = 0;
        while self.nodes.count() > bounds.packets || self.nodes.held_points() > bounds.points {
            let Some(counted) = self.hurry(out) else { break };
            ended += usize::from(counted);
        }
        self.leave_out(left::PACKETS, ended);
        let packets = self.nodes.count();
        let many = |count: usize| count > 2 * packets + 4_096;
        let nodes = &self.nodes;
        if many(self.live.len()) {
            let open = |node: NodeRef| nodes.get(node).is_some_and(|found| found.ended.is_none());
            self.live.retain(|_, node| open(*node));
        }
        if many(self.births.len()) {
            self.births.retain(|(_, node)| nodes.get(*node).is_some());
        }
        if many(self.moving.len()) {
            self.moving.retain(|(_, node, points)| {
                let found = nodes.get(*node).filter(|found| found.ended.is_none());
                found.is_some_and(|found| found.points.len() == *points)
            });
        }
    }

    /// Has the next packet come out before its time; whether it was cut short by that.
    fn hurry(&mut self, out: &mut impl Observer) -> Option<bool> {
        if let Some((_, node)) = self.done.pop_front() {
            let undecided = self.nodes[node].parent == Parent::Open;
            self.nodes[node].why.get_or_insert(Why::LeftOut);
            if undecided {
                self.decide(node);
            }
            self.give(node, out);
            return Some(true);
        }
        let node = self.nodes.oldest()?;
        self.nodes[node].why.get_or_insert(Why::LeftOut);
        self.end_where_it_is(node);
        Some(false)
    }

    /// Keeps tables of sockets and threads within their bounds.
    pub(super) fn bound_tables(&mut self) {
        let bounds = self.settings.bounds;
        let (now, window) = (self.passed, self.settings.window_ns);
        let recent = now.saturating_sub(window);
        let (mut threads, mut sockets, mut messages) = (0, 0, 0);
        let queued: usize = self.captures.iter().map(super::follow::Capture::messages).sum();
        for capture in &mut self.captures {
            let before = (capture.threads.len(), capture.sockets.len());
            if before.0 > bounds.endpoints {
                capture.threads.retain(|_, thread| thread.touched >= recent);
                if capture.threads.len() > bounds.endpoints {
                    capture.threads.clear();
                }
            }
            let full = queued > bounds.messages;
            if before.1 > bounds.endpoints || full {
                let held = capture.messages();
                capture.sockets.retain(|_, socket| socket.forget(recent));
                if full || capture.sockets.len() > bounds.endpoints {
                    capture.sockets.clear();
                }
                // What is forgotten is not believed to be empty.
                capture.sockets_lost.add(now, now);
                messages += held - capture.messages();
            }
            threads += before.0 - capture.threads.len();
            sockets += before.1 - capture.sockets.len();
            for lost in [&mut capture.lost, &mut capture.sockets_lost] {
                if lost.len() > bounds.losses {
                    lost.halve();
                }
            }
        }
        self.leave_out(left::THREADS, threads);
        self.leave_out(left::SOCKETS, sockets);
        self.leave_out(left::MESSAGES, messages);
    }
}

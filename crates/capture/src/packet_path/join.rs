// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Joins buffers to packets: copies on a station, transmissions over a wire; then the packet path
//! comes out.
//!
//! A packet that came by a wire waits for the whole window before its transmission is chosen, so
//! that every other that could be meant has been seen.

use super::follow::PacketPaths;
use super::node::{NodeRef, Parent};
use super::stage::{RECEIVE, STACK_RECEIVE, rank, stages_of};
use super::{
    ClockMap, Observer, PacketPath, PathOutcome, Point, Port, Rule, Settings, Status, Why,
};
use crate::event::{Event, Hook};

/// What a copy was made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Copied {
    /// This one.
    From(NodeRef, usize, Rule),
    /// One of several.
    OneOf(u8),
    /// Nothing that was seen.
    Unknown,
}

/// More transmissions with one tag are not looked at.
pub(super) const LOOKED_AT: usize = 1_024;

/// A transmission that may be the one.
#[derive(Clone, Copy, Debug)]
struct Sent {
    node: NodeRef,
    at: Point,
}

impl<C: ClockMap> PacketPaths<C> {
    /// What a buffer that appears in the middle of the stack is a copy of.
    pub(super) fn copied_from(&mut self, point: &Point, event: &Event) -> Copied {
        if event.tag == 0 {
            return Copied::Unknown;
        }
        let down = matches!(
            event.hook,
            Hook::DeviceQueue | Hook::QdiscEnqueue | Hook::QdiscDequeue | Hook::DriverStart
        );
        let cpu = self.cpu(point);
        let recent = [cpu.last.filter(|_| !down), cpu.stack];
        for (node, points) in recent.into_iter().flatten() {
            let Some(found) = self.nodes.get(node) else { continue };
            let at = found.points.get(points - 1);
            let here = at.is_some_and(|at| at.station == point.station);
            if here && found.tag == event.tag {
                return Copied::From(node, points, Rule::Copy);
            }
        }
        self.copied_by_tag(point, event, down)
    }

    /// The only packet of the station with the tag, at the same interface if any is.
    fn copied_by_tag(&self, point: &Point, event: &Event, down: bool) -> Copied {
        let oldest = point.at_ns.saturating_sub(self.settings.window_ns);
        let fits = |p: &&Point| {
            let up = rank(p.hook).is_some_and(|rank| rank == RECEIVE || rank == STACK_RECEIVE);
            p.capture == point.capture
                && p.station == point.station
                && p.at_ns >= oldest
                && !matches!(p.hook, Hook::Marker | Hook::SendEnter | Hook::DriverDone)
                && (up || (!down && rank(p.hook).is_some_and(|rank| rank < RECEIVE)))
        };
        let mut near: Vec<(NodeRef, usize)> = Vec::new();
        let mut far: Vec<(NodeRef, usize)> = Vec::new();
        for (index, node) in self.nodes.with_tag(event.tag).enumerate() {
            if index >= LOOKED_AT {
                return Copied::OneOf(u8::MAX);
            }
            let points = &self.nodes[node].points;
            let Some(index) = points.iter().rposition(|p| fits(&p)) else { continue };
            far.push((node, index + 1));
            let same = |p: &Point| fits(&p) && p.interface == point.interface;
            if let (false, Some(index)) = (down, points.iter().rposition(same)) {
                near.push((node, index + 1));
            }
        }
        let found = if near.is_empty() { far } else { near };
        match found[..] {
            [] => Copied::Unknown,
            [(node, points)] => Copied::From(node, points, Rule::CopyByTag),
            _ => Copied::OneOf(u8::try_from(found.len()).unwrap_or(u8::MAX)),
        }
    }

    pub(super) fn copy(&mut self, node: NodeRef, copied: Copied) -> Rule {
        match copied {
            Copied::From(parent, points, rule) => {
                self.adopt(node, parent, points);
                rule
            }
            Copied::OneOf(candidates) => {
                self.nodes[node].why = Some(Why::Copies { candidates });
                Rule::First
            }
            Copied::Unknown => Rule::First,
        }
    }

    /// Which transmission a packet is that came by a wire.
    pub(super) fn decide(&mut self, node: NodeRef) {
        let Some(&received) = self.undecided(node) else { return };
        let tag = self.nodes[node].tag;
        let many = self.nodes.with_tag(tag).nth(LOOKED_AT).is_some();
        let rivals = if many { Vec::new() } else { self.rivals(node, &received) };
        let found = self.transmissions(node, &received);
        self.nodes[node].parent = Parent::None;
        let Some((free, heard)) = found else {
            self.nodes[node].why = Some(Why::Transmissions { candidates: u8::MAX });
            return;
        };
        match free[..] {
            [] if heard => self.nodes[node].why = Some(Why::ReceivedTwice),
            [] => {}
            [sent] => {
                // Others that can only be the same transmission: it was received twice.
                let only = |&&(rival, at): &&(NodeRef, Point)| {
                    let free = self.transmissions(rival, &at).map(|found| found.0);
                    free.is_some_and(|free| matches!(free[..], [one] if one.node == sent.node))
                };
                let twice: Vec<NodeRef> =
                    rivals.iter().take_while(only).map(|rival| rival.0).collect();
                if twice.is_empty() {
                    self.join(node, sent, self.tag_rule(node));
                } else {
                    for twice in twice.into_iter().chain([node]) {
                        self.nodes[twice].parent = Parent::None;
                        self.nodes[twice].why = Some(Why::ReceivedTwice);
                    }
                }
            }
            _ => {
                let all = [(node, received)].into_iter().chain(rivals).collect::<Vec<_>>();
                match self.in_order(tag, &all) {
                    Some(pairs) => {
                        for (node, sent) in pairs {
                            self.join(node, sent, Rule::Order);
                        }
                    }
                    None => {
                        let candidates = u8::try_from(free.len()).unwrap_or(u8::MAX);
                        self.nodes[node].why = Some(Why::Transmissions { candidates });
                    }
                }
            }
        }
    }

    fn tag_rule(&self, node: NodeRef) -> Rule {
        if self.nodes[node].tagged { Rule::Tag } else { Rule::Content }
    }

    fn join(&mut self, node: NodeRef, sent: Sent, rule: Rule) {
        let port = self.nodes[node].points[0].port();
        self.nodes[node].points[0].rule = rule;
        self.nodes[sent.node].heard.push(port);
        let points = self.nodes[sent.node].points.len();
        self.adopt(node, sent.node, points);
    }

    /// The reception of a node whose transmission is not decided.
    fn undecided(&self, node: NodeRef) -> Option<&Point> {
        let found = self.nodes.get(node).filter(|found| found.parent == Parent::Open)?;
        found.points.first()
    }

    /// Other packets with the tag that came to the same port since, in their order.
    fn rivals(&self, node: NodeRef, received: &Point) -> Vec<(NodeRef, Point)> {
        let all = self.nodes.with_tag(self.nodes[node].tag);
        let others = all.filter(|&other| other != node);
        let port = received.port();
        let mut rivals: Vec<(NodeRef, Point)> = others
            .filter_map(|other| Some((other, *self.undecided(other)?)))
            .filter(|(_, at)| at.port() == port)
            .collect();
        rivals.sort_by_key(|(_, at)| at.at_ns);
        rivals
    }

    /// Transmissions that a reception can be and that its port has not had yet; and whether there
    /// is one that it has had. `None` when too many packets have the tag.
    fn transmissions(&self, node: NodeRef, received: &Point) -> Option<(Vec<Sent>, bool)> {
        let (mut free, mut heard) = (Vec::new(), false);
        let own = &self.nodes[node];
        for (index, other) in self.nodes.with_tag(own.tag).enumerate() {
            if index >= LOOKED_AT {
                return None;
            }
            let found = &self.nodes[other];
            let watched = self.captures[usize::from(found.capture)].watches(Hook::DriverStart);
            let Some(sent) = found.transmission(watched) else { continue };
            let may = other != node
                && found.tagged == own.tagged
                && reaches(&self.settings, sent, received);
            let had = found.heard.len() >= LOOKED_AT || found.heard.contains(&received.port());
            if may && had {
                heard = true;
            } else if may {
                free.push(Sent { node: other, at: *sent });
            }
        }
        free.sort_by_key(|sent| sent.at.at_ns);
        Some((free, heard))
    }

    /// As many were sent from one queue of a port as one CPU received at another, since the last
    /// quiet instant: one after the other. A queue is a lock and a ring; it keeps the order.
    fn in_order(&self, tag: u64, received: &[(NodeRef, Point)]) -> Option<Vec<(NodeRef, Sent)>> {
        let port = received.first()?.1.port();
        let mut all: Vec<Sent> = Vec::new();
        for other in self.nodes.with_tag(tag).take(2 * LOOKED_AT) {
            let found = &self.nodes[other];
            let watched = self.captures[usize::from(found.capture)].watches(Hook::DriverStart);
            let Some(&at) = found.transmission(watched) else { continue };
            let here = received.iter().any(|&(node, _)| node == other);
            if !here && at.port() != port && !found.heard.contains(&port) {
                all.push(Sent { node: other, at });
            }
        }
        all.sort_by_key(|sent| sent.at.at_ns);
        let oldest = received.first()?.1.at_ns.saturating_sub(self.settings.window_ns);
        all.retain(|sent| sent.at.at_ns >= oldest);
        let from = all.first()?.at;
        let one_queue = all.iter().all(|sent| {
            sent.at.hook == Hook::DriverStart
                && (sent.at.port(), sent.at.aux) == (from.port(), from.aux)
        });
        if all.len() + received.len() > LOOKED_AT || !one_queue {
            return None;
        }
        for (index, (_, last)) in received.iter().enumerate() {
            let before = all.iter().filter(|sent| may_precede(&sent.at, last)).count();
            if before < index + 1 {
                return None;
            }
            if before == index + 1 {
                let pairs = received.iter().zip(&all).take(before);
                let good = pairs.clone().all(|((_, at), sent)| {
                    at.cpu == received[0].1.cpu && reaches(&self.settings, &sent.at, at)
                });
                return good.then(|| pairs.map(|(&(node, _), &sent)| (node, sent)).collect());
            }
        }
        None
    }

    /// A packet path comes out, unless others go on where the node ends.
    pub(super) fn give(&mut self, node: NodeRef, out: &mut impl Observer) {
        let found = &self.nodes[node];
        let leaf = !(found.children && found.forked_at >= found.points.len());
        if leaf {
            let mut packet_path = std::mem::replace(&mut self.scratch, super::follow::empty());
            self.assemble(node, &mut packet_path);
            let key = (packet_path.status, packet_path.outcome.name());
            *self.counts.packet_paths.entry(key).or_default() += 1;
            self.count_drop(&packet_path);
            out.packet_path(&packet_path);
            packet_path.number += 1;
            self.scratch = packet_path;
        }
        self.nodes[node].closed = true;
        self.nodes.release(node);
    }

    fn assemble(&self, node: NodeRef, packet_path: &mut PacketPath) {
        let own = &self.nodes[node];
        (packet_path.tag, packet_path.tagged) = (own.tag, own.tagged);
        packet_path.outcome = own.ended.unwrap_or(PathOutcome::Unseen);
        // From the end to the beginning; then turned round.
        packet_path.points.clear();
        packet_path.timestamps.clear();
        let mut why: Option<Why> = None;
        let (mut next, mut upto) = (Some(node), own.points.len());
        let most = self.settings.bounds.packet_path_points;
        while let Some(current) = next.take() {
            if packet_path.points.len() >= most {
                why = why.max(Some(Why::LeftOut));
                break;
            }
            let found = &self.nodes[current];
            why = match (why, found.why) {
                (Some(a), Some(b)) if a.status() >= b.status() => Some(a),
                (a, None) => a,
                (_, b) => b,
            };
            for point in found.points[..upto.min(found.points.len())].iter().rev() {
                let later = packet_path.points.last();
                // The driver came back after the frame was at the next station.
                let late = |next: &Point| point.at_ns > next.at_ns;
                let driver = point.hook == Hook::DriverDone && later.is_some_and(late);
                let call = point.hook == Hook::SendEnter && !found.call_checked;
                if !driver && !call && packet_path.points.len() < most {
                    packet_path.points.push(*point);
                }
            }
            packet_path.timestamps.extend(found.timestamps.iter().rev());
            if let Parent::At(parent, points) = found.parent {
                (next, upto) = (Some(parent), points);
            }
        }
        packet_path.points.reverse();
        packet_path.timestamps.reverse();
        // Without the send call the marker stands for it.
        let second = (packet_path.points.first().map(|p| p.hook), packet_path.points.get_mut(1));
        if let (Some(Hook::Marker), Some(point)) = second {
            point.rule = Rule::Marker;
        }
        if let Some(point) = packet_path.points.first_mut() {
            point.rule = Rule::First;
        }
        if why.is_none_or(|why| why.status() == Status::Lossy) && self.lost_around(packet_path) {
            why = Some(Why::Lost);
        }
        packet_path.why = why;
        packet_path.status = why.map_or(Status::Complete, Why::status);
        stages_of(&packet_path.points, &mut packet_path.stages);
    }

    /// Whether events were lost that could be of this packet path, its ends included.
    fn lost_around(&self, packet_path: &PacketPath) -> bool {
        let window = self.settings.window_ns;
        let from = packet_path.from_ns().saturating_sub(window);
        let to = packet_path.to_ns().saturating_add(window);
        let begins = packet_path
            .points
            .first()
            .is_some_and(|p| matches!(p.hook, Hook::Marker | Hook::SendEnter | Hook::DeviceQueue));
        let ends =
            matches!(packet_path.outcome, PathOutcome::Received | PathOutcome::Dropped { .. });
        (0_u8..).zip(&self.captures).any(|(number, capture)| {
            let concerned =
                !begins || !ends || packet_path.points.iter().any(|p| p.capture == number);
            concerned && capture.lost.overlap(from, to)
        })
    }
}

/// Whether a transmission can have been before an instant.
fn may_precede(sent: &Point, received: &Point) -> bool {
    sent.at_ns.saturating_sub(bound(sent, received)) <= received.at_ns
}

fn bound(a: &Point, b: &Point) -> i64 {
    let apart = a.capture != b.capture;
    if apart { i64::from(a.bound_ns) + i64::from(b.bound_ns) } else { 0 }
}

/// Whether a frame that was sent there can have come here.
fn reaches(settings: &Settings, sent: &Point, received: &Point) -> bool {
    let (from, to): (Port, Port) = (sent.port(), received.port());
    let latest = sent.at_ns.saturating_add(settings.window_ns);
    let segments = (settings.segments.get(&from), settings.segments.get(&to));
    let wired = segments.0 == segments.1;
    from != to
        && wired
        && may_precede(sent, received)
        && received.at_ns <= latest.saturating_add(bound(sent, received))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes: a packet in one buffer. A node begins at its parent's point (a copy, another host) or
//! anew; the way of a packet is the way through its parents.

use std::collections::VecDeque;

use super::identity::{Map, at};
use super::{PathOutcome, Point, Port, Why};
use crate::event::{Event, Flags, Hook};

/// A node, if it is still that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct NodeRef {
    slot: u32,
    generation: u32,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Parent {
    /// It begins by itself.
    #[default]
    None,
    /// It came by a wire; which transmission it is will be decided.
    Open,
    /// After so many points of another.
    At(NodeRef, usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    generation: u32,
    used: bool,
    pub capture: u8,
    pub tagged: bool,
    /// The socket that sent it is known to be that of the send call.
    pub call_checked: bool,
    /// Its end is known; it waits for what decides its beginning.
    pub ended: Option<PathOutcome>,
    /// Others begin at it.
    pub children: bool,
    /// So many points it had when the last of them began.
    pub forked_at: usize,
    /// It has come out, or will not.
    pub closed: bool,
    pub why: Option<Why>,
    pub tag: u64,
    pub object: u64,
    /// The socket in whose queue it is.
    pub socket: u64,
    /// The socket that sent it. Where a wire is a call, both are known before that call ends.
    pub sender: u64,
    pub parent: Parent,
    pub points: Vec<Point>,
    /// When its sender was told that it has left.
    pub timestamps: Vec<Point>,
    /// Ports at which its transmission was received.
    pub heard: Vec<Port>,
    refs: u32,
    next: Option<u32>,
    previous: Option<u32>,
}

impl Node {
    /// The last point that is more than a detail.
    pub fn last(&self) -> Option<&Point> {
        self.points.last()
    }

    /// Its transmission: the point at which it left a station by a driver, when it was not seen
    /// in this buffer after that.
    pub fn transmission(&self, driver_watched: bool) -> Option<&Point> {
        let mut back = self.points.iter().rev();
        let last = back.next()?;
        match last.hook {
            Hook::DriverDone => back.find(|point| point.hook == Hook::DriverStart).or(Some(last)),
            Hook::DriverStart => Some(last),
            Hook::DeviceQueue | Hook::QdiscEnqueue | Hook::QdiscDequeue if !driver_watched => {
                Some(last)
            }
            _ => None,
        }
    }
}

/// A place that is free keeps room for so many points.
const SHRUNK_ABOVE: usize = 64;

/// All nodes, and those of each tag.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    slots: Vec<Node>,
    free: Vec<u32>,
    tags: Map<u64, u32>,
    /// In the order in which they began, with some that are gone.
    order: VecDeque<NodeRef>,
    /// Points and timestamps of all.
    held: usize,
    /// Points that had no room in their packet path.
    pub refused: usize,
    /// Most nodes that were there at once.
    pub most: usize,
}

impl Nodes {
    pub fn add(&mut self, capture: u8, event: &Event) -> NodeRef {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Node::default());
            u32::try_from(self.slots.len() - 1).expect("invariant: fewer than 2^32 packets")
        });
        let node = &mut self.slots[at(slot)];
        let (mut points, mut timestamps, mut heard) = (
            std::mem::take(&mut node.points),
            std::mem::take(&mut node.timestamps),
            std::mem::take(&mut node.heard),
        );
        points.clear();
        timestamps.clear();
        heard.clear();
        let generation = node.generation.wrapping_add(1);
        *node = Node {
            generation,
            used: true,
            capture,
            object: event.object,
            points,
            timestamps,
            heard,
            ..Node::default()
        };
        self.most = self.most.max(self.count());
        if self.order.len() > 2 * self.count() + 4_096 {
            let slots = &self.slots;
            let same = |node: &NodeRef| {
                let found = &slots[at(node.slot)];
                found.used && found.generation == node.generation
            };
            self.order.retain(same);
        }
        self.order.push_back(NodeRef { slot, generation });
        let found = NodeRef { slot, generation };
        self.set_tag(found, event);
        found
    }

    /// Gives a node the tag of an event when it has none yet.
    pub fn set_tag(&mut self, node: NodeRef, event: &Event) {
        if event.tag == 0 || self[node].tag != 0 {
            return;
        }
        let head = self.tags.insert(event.tag, node.slot);
        if let Some(head) = head {
            self.slots[at(head)].previous = Some(node.slot);
        }
        let own = &mut self.slots[at(node.slot)];
        own.tag = event.tag;
        own.tagged = event.flags.has(Flags::TAGGED);
        own.next = head;
    }

    pub fn get(&self, node: NodeRef) -> Option<&Node> {
        let found = &self.slots[at(node.slot)];
        (found.used && found.generation == node.generation).then_some(found)
    }

    /// Nodes with a tag, the youngest first.
    pub fn with_tag(&self, tag: u64) -> impl Iterator<Item = NodeRef> {
        let mut next = if tag == 0 { None } else { self.tags.get(&tag).copied() };
        std::iter::from_fn(move || {
            let slot = next?;
            let node = &self.slots[at(slot)];
            next = node.next;
            Some(NodeRef { slot, generation: node.generation })
        })
    }

    /// Sets the parent, which stays as long as its child.
    pub fn set_parent(&mut self, child: NodeRef, parent: NodeRef, upto: usize) {
        let node = &mut self[parent];
        node.refs += 1;
        node.children = true;
        node.forked_at = node.forked_at.max(upto);
        self[child].parent = Parent::At(parent, upto);
    }

    /// Adds a point, at most so many to a node; whether there was room.
    pub fn push(&mut self, node: NodeRef, point: Point, most: usize) -> bool {
        let points = &mut self[node].points;
        let room = points.len() < most;
        if room {
            points.push(point);
            self.held += 1;
        } else {
            self[node].why = Some(Why::LeftOut);
            self.refused += 1;
        }
        room
    }

    /// Takes the last point back.
    pub fn pop(&mut self, node: NodeRef) {
        if self[node].points.pop().is_some() {
            self.held -= 1;
        }
    }

    /// Adds a timestamp of a transmission; for each interface one of the driver and one of the NIC.
    pub fn timestamp(&mut self, node: NodeRef, timestamp: Point) {
        let timestamps = &mut self[node].timestamps;
        let clock = |point: &Point| (point.port(), point.aux == 0);
        if timestamps.iter().all(|before| clock(before) != clock(&timestamp)) {
            timestamps.push(timestamp);
            self.held += 1;
        }
    }

    /// Points and timestamps of all.
    pub fn held_points(&self) -> usize {
        self.held
    }

    /// The oldest whose end is not known.
    pub fn oldest(&mut self) -> Option<NodeRef> {
        loop {
            let node = self.order.pop_front()?;
            if self.get(node).is_some_and(|found| found.ended.is_none() && !found.closed) {
                return Some(node);
            }
        }
    }

    /// Frees a closed node and those that were kept for it alone.
    pub fn release(&mut self, node: NodeRef) {
        let mut next = Some(node);
        while let Some(node) = next.take() {
            let own = &mut self[node];
            if !own.closed || own.refs > 0 {
                return;
            }
            own.used = false;
            let held = own.points.len() + own.timestamps.len();
            if own.points.capacity() > SHRUNK_ABOVE {
                own.points = Vec::new();
            }
            if own.heard.capacity() > SHRUNK_ABOVE {
                own.heard = Vec::new();
            }
            let (tag, before, after) = (own.tag, own.previous, own.next);
            if let Parent::At(parent, _) = own.parent {
                self[parent].refs -= 1;
                next = Some(parent);
            }
            self.held -= held;
            if let Some(after) = after {
                self.slots[at(after)].previous = before;
            }
            match (before, after) {
                (Some(before), _) => self.slots[at(before)].next = after,
                (None, Some(after)) if tag != 0 => {
                    self.tags.insert(tag, after);
                }
                (None, None) if tag != 0 => {
                    self.tags.remove(&tag);
                }
                _ => {}
            }
            self.free.push(node.slot);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether any is left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len() && self.tags.is_empty()
    }

    /// Nodes that have not come out.
    pub fn open(&self) -> Vec<NodeRef> {
        let open = self.slots.iter().enumerate().filter(|(_, node)| node.used && !node.closed);
        let slot = |index| u32::try_from(index).expect("invariant: fewer than 2^32 packets");
        open.map(|(index, node)| NodeRef { slot: slot(index), generation: node.generation })
            .collect()
    }
}

impl std::ops::Index<NodeRef> for Nodes {
    type Output = Node;
    fn index(&self, node: NodeRef) -> &Node {
        self.get(node).expect("invariant: the node is kept")
    }
}

impl std::ops::IndexMut<NodeRef> for Nodes {
    fn index_mut(&mut self, node: NodeRef) -> &mut Node {
        let found = &mut self.slots[at(node.slot)];
        assert!(found.used && found.generation == node.generation, "the node is kept");
        found
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways of a stream of a file, by the simulator's rule.

use std::collections::{BTreeMap, VecDeque};

use timewire_model::scenario::network::{NetStream, NetworkFile};

use super::node_id;
use crate::model::{LinkId, NodeId};

/// The links to all listeners of a stream, each behind the one before it. `None`: there is no way
/// to one of them.
pub fn of_stream(file: &NetworkFile, stream: &NetStream) -> Option<Vec<LinkId>> {
    let listeners: Vec<NodeId> =
        stream.listeners.all().iter().map(|to| node_id(file, to)).collect();
    tree(file, node_id(file, &stream.talker), &listeners)
}

/// As [`of_stream`], of a stream that the file does not have.
pub fn tree(file: &NetworkFile, talker: NodeId, listeners: &[NodeId]) -> Option<Vec<LinkId>> {
    let mut links = Vec::new();
    for listener in listeners {
        for link in way(file, talker, *listener)? {
            if !links.contains(&link) {
                links.push(link);
            }
        }
    }
    Some(links)
}

/// The fewest hops; of several such ways the one whose links come first. `None`: there is none.
fn way(file: &NetworkFile, from: NodeId, to: NodeId) -> Option<Vec<LinkId>> {
    let mut neighbours: BTreeMap<NodeId, Vec<(LinkId, NodeId)>> = BTreeMap::new();
    for (index, link) in file.links.iter().enumerate() {
        let ends = [node_id(file, &link.between[0]), node_id(file, &link.between[1])];
        for end in 0..2 {
            let id = LinkId::from_index(2 * index + end);
            neighbours.entry(ends[end]).or_default().push((id, ends[1 - end]));
        }
    }
    let mut reached: BTreeMap<NodeId, (LinkId, NodeId)> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(node) = next.pop_front() {
        for (link, other) in neighbours.get(&node).into_iter().flatten() {
            if *other != from && !reached.contains_key(other) {
                reached.insert(*other, (*link, node));
                next.push_back(*other);
            }
        }
    }
    let (mut way, mut node) = (Vec::new(), to);
    while node != from {
        let (link, before) = *reached.get(&node)?;
        way.push(link);
        node = before;
    }
    way.reverse();
    (!way.is_empty()).then_some(way)
}

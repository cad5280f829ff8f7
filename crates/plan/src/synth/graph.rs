// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways through the network. Only bridges forward, and no way goes through an end station.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::model::{LinkId, Network, NodeId, Role};

/// Neighbours, and distances that were asked for before.
#[derive(Clone, Debug)]
pub struct Graph {
    out: Vec<Vec<(LinkId, usize)>>,
    into: Vec<Vec<(LinkId, usize)>>,
    forwards: Vec<bool>,
    /// By node: how many links from it to the node asked for, over bridges.
    hops: BTreeMap<usize, Vec<u16>>,
    only: Vec<bool>,
}

const FAR: u16 = u16::MAX;

impl Graph {
    pub fn new(network: &Network) -> Graph {
        let nodes = network.nodes().len();
        let mut out = vec![Vec::new(); nodes];
        let mut into = vec![Vec::new(); nodes];
        for (index, link) in network.links().iter().enumerate() {
            let id = LinkId::from_index(index);
            out[link.from.index()].push((id, link.to.index()));
            into[link.to.index()].push((id, link.from.index()));
        }
        let forwards = network.nodes().iter().map(|node| node.role == Role::Bridge).collect();
        let mut graph = Graph { out, into, forwards, hops: BTreeMap::new(), only: Vec::new() };
        graph.only = super::cut::only_ways(network, &graph.out);
        graph
    }

    /// Links that leave a node.
    pub fn leaving(&self, node: NodeId) -> &[(LinkId, usize)] {
        &self.out[node.index()]
    }

    /// Whether whoever goes over this link cannot avoid it: without it and its way back the
    /// network is in two parts. It holds for ways whose ends have one link out and one in.
    pub fn is_only_way(&self, link: LinkId) -> bool {
        self.only[link.index()]
    }

    /// Whether a node has one way out and one in.
    pub fn is_single(&self, node: NodeId) -> bool {
        self.out[node.index()].len() == 1 && self.into[node.index()].len() == 1
    }

    /// Who is asked for in the place of a listener: the bridge before it, if there is only one.
    fn anchor(&self, node: usize) -> (usize, Option<LinkId>) {
        match self.into[node].as_slice() {
            [(link, from)] if self.forwards[*from] => (*from, Some(*link)),
            _ => (node, None),
        }
    }

    fn distances(&mut self, target: usize) -> &[u16] {
        let (into, forwards) = (&self.into, &self.forwards);
        self.hops.entry(target).or_insert_with(|| {
            let mut hops = vec![FAR; into.len()];
            hops[target] = 0;
            let mut wave = vec![target];
            let mut next = Vec::new();
            let mut distance = 0;
            while !wave.is_empty() && distance + 1 < FAR {
                distance += 1;
                for node in wave.drain(..) {
                    for &(_, from) in &into[node] {
                        if hops[from] == FAR {
                            hops[from] = distance;
                            if forwards[from] {
                                next.push(from);
                            }
                        }
                    }
                }
                std::mem::swap(&mut wave, &mut next);
            }
            hops
        })
    }

    /// A way with the fewest links; among these the one that prefers little of the `price` of a
    /// link at each step.
    pub fn short(
        &mut self,
        from: NodeId,
        to: NodeId,
        price: &mut dyn FnMut(LinkId) -> i64,
    ) -> Option<Vec<LinkId>> {
        let (anchor, last) = self.anchor(to.index());
        self.distances(anchor);
        let hops = &self.hops[&anchor];
        let mut node = from.index();
        let mut way = Vec::with_capacity(usize::from(hops[node].min(64)) + 1);
        if hops[node] == FAR {
            return None;
        }
        while node != anchor {
            let mut best: Option<(i64, LinkId, usize)> = None;
            for &(link, to) in &self.out[node] {
                if (self.forwards[to] || to == anchor) && hops[to] < hops[node] {
                    let price = price(link);
                    if best.is_none_or(|(least, ..)| price < least) {
                        best = Some((price, link, to));
                    }
                }
            }
            let (_, link, to) = best?;
            way.push(link);
            node = to;
        }
        way.extend(last);
        Some(way)
    }

    /// The cheapest tree extension: from any of `from`, where the way may begin, to `to`, with a
    /// cost of at least 1 for each link; a link whose cost is `None` is shut.
    pub fn cheapest(
        &self,
        from: &[usize],
        to: usize,
        cost: &mut dyn FnMut(LinkId) -> Option<i64>,
    ) -> Option<(i64, Vec<LinkId>)> {
        let mut best = vec![i64::MAX; self.out.len()];
        let mut came: Vec<Option<(LinkId, usize)>> = vec![None; self.out.len()];
        let mut heap = BinaryHeap::new();
        for &node in from {
            best[node] = 0;
            heap.push(Reverse((0, node)));
        }
        while let Some(Reverse((sum, node))) = heap.pop() {
            if sum > best[node] {
                continue;
            }
            if node == to {
                break;
            }
            for &(link, next) in &self.out[node] {
                if !(self.forwards[next] || next == to) {
                    continue;
                }
                let Some(price) = cost(link) else { continue };
                let sum = sum.saturating_add(price.max(1));
                if sum < best[next] {
                    best[next] = sum;
                    came[next] = Some((link, node));
                    heap.push(Reverse((sum, next)));
                }
            }
        }
        if best[to] == i64::MAX {
            return None;
        }
        let mut way = Vec::new();
        let mut node = to;
        while let Some((link, before)) = came[node] {
            way.push(link);
            node = before;
        }
        way.reverse();
        Some((best[to], way))
    }

    /// A tree from a talker to all listeners, one after the other, each from the nearest part of
    /// what is there.
    pub fn tree(
        &self,
        talker: NodeId,
        listeners: &[NodeId],
        network: &Network,
        cost: &mut dyn FnMut(LinkId) -> Option<i64>,
    ) -> Option<Vec<LinkId>> {
        let mut reached = vec![talker.index()];
        let mut tree = Vec::new();
        for listener in listeners {
            let (_, way) = self.cheapest(&reached, listener.index(), cost)?;
            for link in way {
                tree.push(link);
                let to = network.link(link).to.index();
                if self.forwards[to] {
                    reached.push(to);
                }
            }
        }
        Some(tree)
    }

    /// As many ways as asked for that share no link; fewer when there are no more. Each round
    /// finds a way that may take back links of earlier ways (Ford and Fulkerson).
    pub fn disjoint(&self, from: NodeId, to: NodeId, count: usize) -> Vec<Vec<LinkId>> {
        let mut used = std::collections::BTreeSet::new();
        let mut found = 0;
        while found < count && self.augment(from.index(), to.index(), &mut used) {
            found += 1;
        }
        let mut ways = Vec::new();
        for _ in 0..found {
            let shut = |link: LinkId| used.contains(&link).then_some(1);
            let Some((_, way)) = self.cheapest(&[from.index()], to.index(), &mut { shut }) else {
                break;
            };
            for link in &way {
                used.remove(link);
            }
            ways.push(way);
        }
        ways
    }

    fn augment(
        &self,
        from: usize,
        to: usize,
        used: &mut std::collections::BTreeSet<LinkId>,
    ) -> bool {
        let mut came: Vec<Option<(LinkId, usize, bool)>> = vec![None; self.out.len()];
        let mut wave = std::collections::VecDeque::from([from]);
        while let Some(node) = wave.pop_front() {
            let forth = self.out[node].iter().filter(|(link, _)| !used.contains(link));
            let back = self.into[node].iter().filter(|(link, _)| used.contains(link));
            let all = forth.map(|&(l, n)| (l, n, true)).chain(back.map(|&(l, n)| (l, n, false)));
            for (link, next, is_forth) in all {
                let open = self.forwards[next] || next == to;
                if next != from && open && came[next].is_none() {
                    came[next] = Some((link, node, is_forth));
                    wave.push_back(next);
                }
            }
        }
        let mut node = to;
        while let Some((link, before, is_forth)) = came[node] {
            if is_forth {
                used.insert(link);
            } else {
                used.remove(&link);
            }
            node = before;
        }
        node == from
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links that cannot be avoided: the bridges, in the words of graphs, of the network. An end
//! station with several links forwards nothing, so each of its links ends in a point of its own.

use std::collections::BTreeMap;

use crate::model::{LinkId, Network, Role};

/// By link: whether everything between its two sides goes over it (Tarjan, "A note on finding the
/// bridges of a graph", 1974; here without recursion).
pub fn only_ways(network: &Network, out: &[Vec<(LinkId, usize)>]) -> Vec<bool> {
    // Undirected pairs of nodes, with how many links each has in either direction.
    let mut pairs: BTreeMap<(usize, usize), (u32, u32)> = BTreeMap::new();
    for link in network.links() {
        let (a, b) = (link.from.index(), link.to.index());
        let pair = pairs.entry((a.min(b), a.max(b))).or_default();
        if a < b { pair.0 += 1 } else { pair.1 += 1 }
    }
    let single = |a: usize, b: usize| {
        pairs.get(&(a.min(b), a.max(b))).is_some_and(|&(forth, back)| forth <= 1 && back <= 1)
    };
    let mut search = Search::new(network, out);
    for node in 0..out.len() {
        search.from(node);
    }
    let is_only = |from: usize, to: usize| {
        let leaf = search.station[from] || search.station[to];
        let (above, below) = if search.parent[to] == Some(from) { (from, to) } else { (to, from) };
        let tree_edge = search.parent[below] == Some(above);
        single(from, to) && (leaf || (tree_edge && search.low[below] > search.number[above]))
    };
    network.links().iter().map(|link| is_only(link.from.index(), link.to.index())).collect()
}

struct Search {
    neighbours: Vec<Vec<usize>>,
    station: Vec<bool>,
    number: Vec<usize>,
    low: Vec<usize>,
    parent: Vec<Option<usize>>,
    count: usize,
}

impl Search {
    fn new(network: &Network, out: &[Vec<(LinkId, usize)>]) -> Search {
        let nodes = out.len();
        let station: Vec<bool> =
            network.nodes().iter().map(|node| node.role == Role::EndStation).collect();
        let mut neighbours = vec![Vec::new(); nodes];
        for (from, links) in out.iter().enumerate() {
            for &(_, to) in links {
                if !station[from] && !station[to] {
                    neighbours[from].push(to);
                    neighbours[to].push(from);
                }
            }
        }
        for list in &mut neighbours {
            list.sort_unstable();
            list.dedup();
        }
        let (number, low) = (vec![0; nodes], vec![0; nodes]);
        Search { neighbours, station, number, low, parent: vec![None; nodes], count: 0 }
    }

    fn from(&mut self, root: usize) {
        if self.number[root] != 0 || self.station[root] {
            return;
        }
        let mut stack = vec![(root, 0)];
        self.enter(root);
        while let Some((node, at)) = stack.last_mut() {
            let node = *node;
            let Some(&next) = self.neighbours[node].get(*at) else {
                stack.pop();
                if let Some(parent) = self.parent[node] {
                    self.low[parent] = self.low[parent].min(self.low[node]);
                }
                continue;
            };
            *at += 1;
            if self.number[next] == 0 {
                self.parent[next] = Some(node);
                self.enter(next);
                stack.push((next, 0));
            } else if self.parent[node] != Some(next) {
                self.low[node] = self.low[node].min(self.number[next]);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.count += 1;
        (self.number[node], self.low[node]) = (self.count, self.count);
    }
}

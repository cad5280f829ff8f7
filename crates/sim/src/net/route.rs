// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way of each stream: the fewest hops, and of several such ways the one whose ports come
//! first.

use std::collections::{BTreeMap, VecDeque};

use super::describe::{NetError, Network, PortIndex};
use super::frame::{Frame, slot};
use super::tree::Tree;

/// The ports of every way, one after the other. Streams between the same two nodes share theirs.
#[derive(Debug, Default)]
pub(super) struct Routes {
    hops: Vec<Hop>,
    /// Where each stream's hops begin, and how many there are.
    ways: Vec<(u32, u32)>,
    /// Of those with several listeners.
    pub trees: BTreeMap<usize, Tree>,
}

/// A port on the way of a stream. Behind its link the way may end; where ways of several listeners
/// end, their tree says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop(u32);

impl Hop {
    const LAST: u32 = 1 << 31;

    pub fn port(self) -> u32 {
        self.0 & !Hop::LAST
    }

    pub fn is_last(self) -> bool {
        self.0 & Hop::LAST != 0
    }
}

const _: () = assert!(Network::MAX_THINGS < 1 << 31, "a port leaves a bit of its number free");

/// From each node: the port taken, the node it leads to.
type Neighbours = Vec<Vec<(u32, u32)>>;

impl Routes {
    pub fn of(network: &Network) -> Result<Routes, NetError> {
        let neighbours = neighbours(network);
        let mut routes = Routes::default();
        // Streams of one talker share a search.
        let mut by_talker: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, stream) in network.streams.iter().enumerate() {
            by_talker.entry(stream.from).or_default().push(number);
        }
        routes.ways = vec![(0, 0); network.streams.len()];
        let mut kept: BTreeMap<(usize, usize), (u32, u32)> = BTreeMap::new();
        for (from, streams) in by_talker {
            let reached = search(&neighbours, index(from));
            for number in streams {
                let ends = (from, network.streams[number].to);
                let is_alone = !network.more_listeners.contains_key(&number);
                if let Some(way) = kept.get(&ends)
                    && is_alone
                {
                    routes.ways[number] = *way;
                    continue;
                }
                let to_each = network.listeners(number).map(|to| {
                    let way = way(&reached, index(from), index(to));
                    way.ok_or(NetError::NoRoute { stream: number, from, to })
                });
                let mut to_each = to_each.collect::<Result<Vec<_>, _>>()?;
                let way = match to_each.len() {
                    1 => to_each.remove(0),
                    _ => {
                        let listeners = network.listeners(number).map(index).collect();
                        let (tree, ports) = Tree::of(&to_each, listeners)?;
                        routes.trees.insert(number, tree);
                        ports
                    }
                };
                let (what, count, max) = ("hops of a stream", way.len(), Network::MAX_HOPS);
                if count > max {
                    return Err(NetError::TooMany { what, count, max });
                }
                let kept_at = (index(routes.hops.len()), index(count));
                routes.hops.extend(way.into_iter().map(Hop));
                if let Some(Hop(last)) = routes.hops.last_mut() {
                    *last |= Hop::LAST;
                }
                routes.ways[number] = kept_at;
                if is_alone {
                    kept.insert(ends, kept_at);
                }
            }
        }
        Ok(routes)
    }

    /// How many hops a stream has.
    pub fn hops_of(&self, stream: u32) -> u32 {
        self.ways[slot(stream)].1
    }

    /// The place of its first hop among all.
    pub fn first(&self, stream: u32) -> u32 {
        self.ways[slot(stream)].0
    }

    /// A hop by its place among all.
    pub fn hop(&self, at: u32) -> Hop {
        self.hops[usize::try_from(at).expect("invariant: 32 bits fit a place")]
    }

    /// The place of a frame among the hops of its stream.
    pub fn place(&self, frame: &Frame) -> u8 {
        let place = frame.at - self.first(frame.stream);
        u8::try_from(place).expect("invariant: the hops of a stream were counted")
    }

    /// A frame at another place among the hops of its stream.
    pub fn moved(&self, frame: Frame, place: u8) -> Frame {
        Frame { at: self.first(frame.stream) + u32::from(place), ..frame }
    }

    /// The ports of each stream.
    pub fn ways(&self) -> Vec<Vec<PortIndex>> {
        let each = self.ways.iter().map(|(first, count)| {
            let from = slot(*first);
            self.hops[from..from + slot(*count)]
                .iter()
                .map(|hop| PortIndex(slot(hop.port())))
                .collect()
        });
        each.collect()
    }
}

pub(super) fn index(number: usize) -> u32 {
    u32::try_from(number).expect("invariant: a network has fewer than 2^32 things")
}

fn neighbours(network: &Network) -> Neighbours {
    let mut lists: Neighbours = vec![Vec::new(); network.nodes.len()];
    for (link, spec) in network.links.iter().enumerate() {
        for end in 0..2 {
            let port = network.link_port(link, end).0;
            lists[spec.ends[end].0].push((index(port), index(spec.ends[1 - end].0)));
        }
    }
    for (medium, spec) in network.media.iter().enumerate() {
        for (place, (node, _)) in spec.stations.iter().enumerate() {
            let port = network.medium_port(medium, place).0;
            for (other, _) in spec.stations.iter().filter(|(other, _)| other != node) {
                lists[*node].push((index(port), index(*other)));
            }
        }
    }
    lists
}

/// For each node, the port and the node before it on the way from `from`.
fn search(neighbours: &Neighbours, from: u32) -> Vec<Option<(u32, u32)>> {
    let mut reached: Vec<Option<(u32, u32)>> = vec![None; neighbours.len()];
    let mut next = VecDeque::from([from]);
    while let Some(node) = next.pop_front() {
        let Some(list) = usize::try_from(node).ok().and_then(|node| neighbours.get(node)) else {
            continue;
        };
        for (port, other) in list {
            let place = usize::try_from(*other).unwrap_or(usize::MAX);
            if *other != from
                && let Some(slot) = reached.get_mut(place)
                && slot.is_none()
            {
                *slot = Some((*port, node));
                next.push_back(*other);
            }
        }
    }
    reached
}

fn way(reached: &[Option<(u32, u32)>], from: u32, to: u32) -> Option<Vec<u32>> {
    let mut way = Vec::new();
    let mut node = to;
    while node != from {
        let (port, before) = (*reached.get(usize::try_from(node).ok()?)?)?;
        way.push(port);
        node = before;
    }
    way.reverse();
    (!way.is_empty()).then_some(way)
}

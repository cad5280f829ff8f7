// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stream is rejected: conditions that no plan can avoid, each for links on which the
//! streams meet whatever their ways.

use timewire_base::Span;

use super::Planner;
use super::shape::{Shape, is_exact, least_uncertainty, uncertainty};
use super::table::{Item, divisor};
use crate::model::{Certificate, LinkId, Network, NodeId, Role, Route, Stream, StreamId};

/// What the streams so far need of links that they cannot avoid.
#[derive(Clone, Debug)]
pub struct Triage {
    links: Vec<Forced>,
}

#[derive(Clone, Debug, Default)]
struct Forced {
    /// Busy time in the problem's cycle.
    time: i128,
    streams: Vec<usize>,
    /// By class: the longest frame, and whose.
    longest: Vec<(usize, i64, usize)>,
}

impl Triage {
    pub fn new(links: usize) -> Triage {
        Triage { links: vec![Forced::default(); links] }
    }

    /// Counts a stream, if there is room for it beside those before it.
    ///
    /// **Errors**: there is none; it is not counted.
    pub fn admit(&mut self, planner: &Planner, id: usize) -> Result<(), Certificate> {
        let links = planner.unavoidable(id);
        let class = planner.seats[id].class;
        for &link in &links {
            let forced = &self.links[link.index()];
            let frame = planner.frame(id, link);
            for &(other, length, whose) in &forced.longest {
                let common = planner.table.divisor(class, other);
                if frame + length > common {
                    return Err(pair(link, whose, frame + length, common));
                }
            }
            if forced.time + planner.time(id, link) > cycle(planner) {
                return Err(load(planner, link, forced.streams.iter().copied().chain([id])));
            }
        }
        for &link in &links {
            let frame = planner.frame(id, link);
            let forced = &mut self.links[link.index()];
            forced.time += planner.time(id, link);
            forced.streams.push(id);
            match forced.longest.iter_mut().find(|(other, ..)| *other == class) {
                Some(longest) if longest.1 >= frame => {}
                Some(longest) => *longest = (class, frame, id),
                None => forced.longest.push((class, frame, id)),
            }
        }
        Ok(())
    }
}

fn cycle(planner: &Planner) -> i128 {
    i128::from(planner.problem.cycle().as_ns())
}

fn pair(link: LinkId, other: usize, needed: i64, divisor: i64) -> Certificate {
    let other = StreamId::from_index(other);
    let (needed, divisor) = (Span::from_ns(needed), Span::from_ns(divisor));
    Certificate::PairConflict { link, other, needed, divisor }
}

fn load(planner: &Planner, link: LinkId, streams: impl Iterator<Item = usize>) -> Certificate {
    let streams: Vec<usize> = streams.collect();
    let interval = |id: usize| planner.stream(id).interval.as_ns();
    let cycle = streams.iter().fold(1, |sum, id| sum / divisor(sum, interval(*id)) * interval(*id));
    let turns = |id: usize| cycle / interval(id) * i64::from(planner.stream(id).frames);
    let needed = streams.iter().map(|&id| planner.frame(id, link) * turns(id)).sum();
    Certificate::LinkLoad {
        link,
        streams: streams.into_iter().map(StreamId::from_index).collect(),
        needed: Span::from_ns(needed),
        cycle: Span::from_ns(cycle),
    }
}

/// The links of a tree that lead to a node.
fn way(network: &Network, tree: &[LinkId], to: NodeId) -> Vec<LinkId> {
    let (mut path, mut at) = (Vec::new(), to);
    while let Some(link) = tree.iter().find(|link| network.link(**link).to == at) {
        path.push(*link);
        at = network.link(*link).from;
    }
    path.reverse();
    path
}

/// By link of a way: how much earlier than planned its port lets frames go than the one before, as
/// far as no port after it holds them back.
fn parts(network: &Network, stream: &Stream, path: &[LinkId]) -> Vec<i64> {
    let mut parts = vec![0; path.len()];
    for place in 1..path.len() {
        if is_exact(network, path[place]) {
            parts[..place].fill(0);
        } else {
            parts[place] = uncertainty(network, stream, path[place - 1]);
        }
    }
    parts
}

/// The most ports without gates in a row that are gone back over.
const MAX_HOPS: u32 = 16;

/// By link: how much the start of any frame on it differs at least. Its port has no gates, nor have
/// those before it, from wherever frames come.
fn unheld(network: &Network) -> Vec<i64> {
    let mut least = vec![0; network.links().len()];
    for _ in 0..MAX_HOPS {
        // By node: the least that comes to it, with what the node adds.
        let mut comes: Vec<Option<i64>> = vec![None; network.nodes().len()];
        for (index, link) in network.links().iter().enumerate() {
            let there = least[index] + least_uncertainty(network, LinkId::from_index(index));
            let known = &mut comes[link.to.index()];
            *known = Some(known.map_or(there, |known| known.min(there)));
        }
        let before = least.clone();
        for (least, link) in least.iter_mut().zip(network.links()) {
            let node = network.node(link.from);
            if node.role == Role::Bridge && node.limits.gate_entries == Some(0) {
                *least = comes[link.from.index()].unwrap_or(0);
            }
        }
        if least == before {
            break;
        }
    }
    least
}

/// Streams on one link among which a clique is looked for.
const MAX_CLIQUE_STREAMS: usize = 400;

impl Planner {
    /// How long a frame of a stream occupies a link.
    fn frame(&self, id: usize, link: LinkId) -> i64 {
        self.problem.network().occupancy(link, self.stream(id).length_bytes).as_ns()
    }

    /// How long a stream occupies a link in the problem's cycle.
    fn time(&self, id: usize, link: LinkId) -> i128 {
        let stream = self.stream(id);
        let turns = cycle(self) / i128::from(stream.interval.as_ns());
        i128::from(self.frame(id, link)) * i128::from(stream.frames) * turns
    }

    /// That a shape differs by more than the stream may, and what each port adds.
    pub(super) fn vague(&self, id: usize, shape: &Shape) -> Option<Certificate> {
        let (network, stream) = (self.problem.network(), self.stream(id));
        let allowed = stream.jitter_max.filter(|most| shape.early > most.as_ns())?;
        let ways = shape.trees.iter().flat_map(|tree| {
            stream.listeners.iter().map(move |listener| (*listener, way(network, tree, *listener)))
        });
        let (listener, path, mut parts) = ways
            .map(|(listener, path)| {
                let parts = parts(network, stream, &path);
                (listener, path, parts)
            })
            .max_by_key(|(.., parts)| parts.iter().sum::<i64>())?;
        let last = (0..network.links().len()).map(LinkId::from_index).filter(|link| {
            let given = match &stream.route {
                Route::Free => true,
                Route::Given(trees) => trees.iter().any(|tree| tree.contains(link)),
            };
            given && network.link(*link).to == listener
        });
        let unheld = unheld(network);
        let least = last.map(|link| unheld[link.index()]).min().unwrap_or(0);
        let proof = least > allowed.as_ns();
        if proof {
            // Of what the ports of this way add, the last ones make up what no way avoids.
            let mut left = least;
            for part in parts.iter_mut().rev() {
                *part = left.min(*part);
                left -= *part;
            }
        }
        let needed = Span::from_ns(parts.iter().sum());
        let parts = parts.into_iter().map(Span::from_ns).collect();
        Some(Certificate::Jitter { listener, path, parts, needed, allowed, proof })
    }

    /// Why a stream is rejected beside those who have one.
    pub(super) fn explain(&self, id: usize) -> Certificate {
        let class = self.seats[id].class;
        for link in self.unavoidable(id) {
            let mut others: Vec<usize> =
                self.table.items(link.index()).iter().filter_map(Item::owner).collect();
            others.sort_unstable();
            others.dedup();
            others.retain(|other| self.unavoidable(*other).contains(&link));
            let frame = self.frame(id, link);
            for &other in &others {
                let common = self.table.divisor(class, self.seats[other].class);
                let needed = frame + self.frame(other, link);
                if needed > common {
                    return pair(link, other, needed, common);
                }
            }
            let time: i128 = others.iter().chain([&id]).map(|id| self.time(*id, link)).sum();
            if time > cycle(self) {
                return load(self, link, others.into_iter().chain([id]));
            }
            if let Some(found) = self.clique(id, link, &others) {
                return found;
            }
        }
        Certificate::NotFound { tried: self.table.work }
    }

    /// Streams of which every two meet modulo one number, with more frames than fit into it.
    fn clique(&self, id: usize, link: LinkId, others: &[usize]) -> Option<Certificate> {
        if others.len() > MAX_CLIQUE_STREAMS {
            return None;
        }
        let common =
            |a: usize, b: usize| self.table.divisor(self.seats[a].class, self.seats[b].class);
        let mut moduli: Vec<i64> = others.iter().map(|other| common(id, *other)).collect();
        moduli.sort_unstable();
        moduli.dedup();
        let mut longest = others.to_vec();
        longest.sort_by_key(|other| std::cmp::Reverse(self.frame(*other, link)));
        for modulus in moduli {
            let mut members = vec![id];
            let mut needed = self.frame(id, link);
            for &other in &longest {
                if members.iter().all(|member| modulus % common(*member, other) == 0) {
                    needed += self.frame(other, link);
                    members.push(other);
                }
            }
            if needed > modulus {
                members.sort_unstable();
                return Some(Certificate::Clique {
                    link,
                    streams: members.into_iter().map(StreamId::from_index).collect(),
                    needed: Span::from_ns(needed),
                    divisor: Span::from_ns(modulus),
                });
            }
        }
        None
    }
}

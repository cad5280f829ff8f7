// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stream has no place: conditions that no plan can avoid, each for links on which the
//! streams meet whatever their ways.
//!
//! Not here: ways that are too long ([`super::route`]).

use timewire_base::Span;

use super::Planner;
use super::table::divisor;
use crate::model::{Certificate, LinkId, StreamId};

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

/// Streams on one link among which a clique is looked for.
const MOST: usize = 400;

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

    /// Why a stream has no place beside those who have one.
    pub(super) fn explain(&self, id: usize) -> Certificate {
        let class = self.seats[id].class;
        for link in self.unavoidable(id) {
            let mut others: Vec<usize> = self
                .table
                .items(link.index())
                .iter()
                .filter_map(|item| usize::try_from(item.stream).ok())
                .collect();
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
        if others.len() > MOST {
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for streams: the first one, others when it is full, and the reason when there is none.

use timewire_base::Span;

use super::reason::Triage;
use super::shape::{self, Shape};
use super::{Planner, share};
use crate::model::{Certificate, LinkId, NodeId, Route, Stream};

impl Planner {
    /// Gives a stream its first way, and looks whether it can be admitted at all, beside those of
    /// the triage.
    pub(super) fn find_way(
        &mut self,
        id: usize,
        triage: Option<&mut Triage>,
    ) -> Result<(), Certificate> {
        self.check_instants(id)?;
        let shape = self.first_way(id)?;
        self.set_way(id, Some(shape));
        self.check_links(id, self.unavoidable(id))?;
        triage.map_or(Ok(()), |triage| triage.admit(self, id))
    }

    fn check_instants(&self, id: usize) -> Result<(), Certificate> {
        let node = self.stream(id).talker;
        let limits = &self.problem.network().node(node).limits;
        if limits.gate_entries == Some(0) && !limits.launch_time {
            return Err(Certificate::NoInstant { node });
        }
        Ok(())
    }

    /// A message that is longer than its interval on a link that it cannot avoid.
    fn check_links(&self, id: usize, unavoidable: Vec<LinkId>) -> Result<(), Certificate> {
        let stream = self.stream(id);
        let network = self.problem.network();
        for link in unavoidable {
            let needed =
                network.occupancy(link, stream.length_bytes).as_ns() * i64::from(stream.frames);
            if needed > stream.interval.as_ns() {
                let (needed, available) = (Span::from_ns(needed), stream.interval);
                return Err(Certificate::Window { link, needed, available });
            }
        }
        Ok(())
    }

    fn first_way(&mut self, id: usize) -> Result<Shape, Certificate> {
        let stream = &self.problem.streams()[id];
        let network = self.problem.network();
        if let Route::Given(trees) = &stream.route {
            let shape = Shape::new(network, stream, trees.clone());
            return self.allowed(id, shape);
        }
        let trees = match (stream.listeners.as_slice(), stream.copies) {
            ([listener], 1) => {
                let load = &self.load;
                let mut price = |link: LinkId| load[link.index()];
                self.graph.short(stream.talker, *listener, &mut price).map(|way| vec![way])
            }
            _ => self.trees(id, &mut |_| 0),
        };
        let Some(trees) = trees else { return Err(self.no_way(id)) };
        let shape = Shape::new(network, &self.problem.streams()[id], trees);
        if shape.is_allowed(&self.problem.streams()[id]) {
            return Ok(shape);
        }
        let quickest = self.quick_trees(id).unwrap_or_default();
        let shape = Shape::new(self.problem.network(), self.stream(id), quickest);
        self.allowed(id, shape)
    }

    /// **Errors**: the shape takes too long.
    fn allowed(&self, id: usize, shape: Shape) -> Result<Shape, Certificate> {
        let stream = self.stream(id);
        if shape.is_allowed(stream) {
            return Ok(shape);
        }
        for listener in &stream.listeners {
            let (needed, path) = self.least(id, *listener);
            if needed > stream.latency_max.as_ns() {
                let (needed, allowed) = (Span::from_ns(needed), stream.latency_max);
                return Err(Certificate::MinimumLatency {
                    listener: *listener,
                    path,
                    needed,
                    allowed,
                });
            }
        }
        self.check_links(id, self.only_ways(id, &shape))?;
        Err(self.vague(id, &shape).unwrap_or(Certificate::NotFound { tried: self.table.work }))
    }

    /// The least time in which a listener can have the whole message: its first frame on the
    /// quickest way, and all frames one after the other on the quickest last link of any way.
    fn least(&self, id: usize, listener: NodeId) -> (i64, Vec<LinkId>) {
        let stream = self.stream(id);
        let network = self.problem.network();
        let given = match &stream.route {
            Route::Given(trees) => Some(trees.iter().flatten().copied().collect::<Vec<_>>()),
            Route::Free => None,
        };
        let mut cost = |link: LinkId| {
            let open = given.as_ref().is_none_or(|links| links.contains(&link));
            open.then(|| self.least_step(stream, link, listener))
        };
        let from = [stream.talker.index()];
        let (sum, path) =
            self.graph.cheapest(&from, listener.index(), &mut cost).unwrap_or_default();
        let last = (0..network.links().len()).map(LinkId::from_index).filter(|id| {
            let open = given.as_ref().is_none_or(|links| links.contains(id));
            open && network.link(*id).to == listener
        });
        let frame = last.map(|id| network.occupancy(id, stream.length_bytes).as_ns()).min();
        (sum + frame.unwrap_or(0) * i64::from(stream.frames - 1), path)
    }

    /// From the start on a link until the start on any next one, or the end at the listener.
    fn least_step(&self, stream: &Stream, link: LinkId, listener: NodeId) -> i64 {
        let network = self.problem.network();
        let to = network.link(link).to;
        if to == listener {
            let whole = network.occupancy(link, stream.length_bytes);
            return (whole + network.link(link).propagation).as_ns();
        }
        let next = self.graph.leaving(to).iter().map(|(next, _)| *next);
        next.map(|next| shape::step(network, stream, link, next)).min().unwrap_or(i64::MAX / 4)
    }

    fn no_way(&self, id: usize) -> Certificate {
        let stream = self.stream(id);
        let copies = stream.copies;
        for &listener in &stream.listeners {
            let ways = self.graph.disjoint(stream.talker, listener, usize::from(copies));
            if ways.len() < usize::from(copies) {
                return Certificate::NoPath { listener, copies };
            }
        }
        Certificate::NotFound { tried: self.table.work }
    }

    /// Trees of the quickest ways.
    fn quick_trees(&self, id: usize) -> Option<Vec<Vec<LinkId>>> {
        let stream = self.stream(id);
        let mut shut = std::collections::BTreeSet::new();
        let mut trees = Vec::new();
        for _ in 0..stream.copies {
            let mut cost = |link: LinkId| {
                let open = !shut.contains(&link);
                open.then(|| self.least_step(stream, link, NodeId(u32::MAX)).min(1 << 40))
            };
            let network = self.problem.network();
            let tree = self.graph.tree(stream.talker, &stream.listeners, network, &mut cost)?;
            shut.extend(tree.iter().copied());
            trees.push(tree);
        }
        Some(trees)
    }

    /// One tree for each copy, with prices for load and what is added to each link's.
    fn trees(&self, id: usize, extra: &mut dyn FnMut(LinkId) -> i64) -> Option<Vec<Vec<LinkId>>> {
        let stream = self.stream(id);
        let network = self.problem.network();
        if let ([listener], 2..) = (stream.listeners.as_slice(), stream.copies) {
            let copies = usize::from(stream.copies);
            let ways = self.graph.disjoint(stream.talker, *listener, copies);
            return (ways.len() == copies).then_some(ways);
        }
        let mut shut = std::collections::BTreeSet::new();
        let mut trees = Vec::new();
        for _ in 0..stream.copies {
            let mut cost = |link: LinkId| {
                if shut.contains(&link) {
                    return None;
                }
                let load = self.load[link.index()] + share(network, stream, link);
                Some(1000 + (load >> 10) + extra(link))
            };
            let tree = self.graph.tree(stream.talker, &stream.listeners, network, &mut cost)?;
            shut.extend(tree.iter().copied());
            trees.push(tree);
        }
        Some(trees)
    }

    /// A way that differs by chance from the one before and avoids load; `None` when there is no
    /// other. Ways with the fewest links are found much quicker than others, so in a large network
    /// the others are seldom looked for.
    pub(super) fn another_way(&mut self, id: usize) -> Option<Shape> {
        if matches!(self.stream(id).route, Route::Given(_)) {
            return None;
        }
        let turns = if self.seats.len() > 5_000 { 64 } else { 2 };
        let single = self.stream(id).listeners.len() == 1 && self.stream(id).copies == 1;
        let trees = if single && self.random.below(turns) != 0 {
            self.another_short(id)
        } else {
            self.another_long(id)
        }?;
        let same = |shape: &Shape| shape.trees == trees;
        if self.seats[id].shape.as_ref().is_some_and(same) {
            return None;
        }
        let shape = Shape::new(self.problem.network(), self.stream(id), trees);
        shape.is_allowed(self.stream(id)).then_some(shape)
    }

    fn another_short(&mut self, id: usize) -> Option<Vec<Vec<LinkId>>> {
        let stream = &self.problem.streams()[id];
        let (load, random) = (&self.load, &mut self.random);
        let mut price = |link: LinkId| {
            load[link.index()] / 2 + i64::try_from(random.below(1 << 20)).unwrap_or(0)
        };
        self.table.work += 8;
        let listener = *stream.listeners.first()?;
        self.graph.short(stream.talker, listener, &mut price).map(|way| vec![way])
    }

    fn another_long(&mut self, id: usize) -> Option<Vec<Vec<LinkId>>> {
        let mut random = self.random.clone();
        let mut prices = std::collections::BTreeMap::new();
        let mut extra = |link: LinkId| {
            *prices.entry(link).or_insert_with(|| i64::try_from(random.below(1500)).unwrap_or(0))
        };
        let trees = self.trees(id, &mut extra);
        self.random.next();
        self.table.work += 256;
        trees
    }

    /// The links of a stream that it has on every way.
    pub(super) fn unavoidable(&self, id: usize) -> Vec<LinkId> {
        let stream = self.stream(id);
        if let Route::Given(trees) = &stream.route {
            return trees.iter().flatten().copied().collect();
        }
        self.seats[id].shape.as_ref().map_or_else(Vec::new, |shape| self.only_ways(id, shape))
    }

    /// Those links of a shape without which there is no way.
    fn only_ways(&self, id: usize, shape: &Shape) -> Vec<LinkId> {
        let stream = self.stream(id);
        let ends = stream.listeners.iter().chain([&stream.talker]);
        if !ends.into_iter().all(|node| self.graph.is_single(*node)) {
            return Vec::new();
        }
        let links = shape.trees.iter().flatten().copied();
        links.filter(|link| self.graph.is_only_way(*link)).collect()
    }
}

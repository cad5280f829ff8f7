// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding a plan: each message goes at its first free instant without waiting on its way, short
//! intervals first; for one that fits nowhere the cheapest others are moved, and those that are
//! moved often become dear.
//!
//! The search reads no clock. It counts its work, and asks its caller whether to go on; the same
//! problem, options and work give the same plan.
//!
//! Not here: whether a plan is right.

mod beside;
mod cut;
mod exact;
mod gates;
mod graph;
mod line;
mod online;
mod reason;
mod repair;
mod route;
mod shape;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use timewire_base::{Sequence, Span};

use crate::model::{
    Admission, Certificate, LinkId, Plan, Problem, Refusal, Reserve, Stream, StreamId, Transmission,
};
use shape::Stretch;

pub(crate) use beside::Unseated;
pub(crate) use gates::{Repeated, gate_limit as gate_limit_of, port as gates_of_port};
pub(crate) use graph::Graph;
pub use online::Change;
pub(crate) use shape::{Shape, queue as queue_of};
pub(crate) use table::Table;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// For all choices by chance.
    pub seed: u64,
    /// How many ways are tried for a stream whose first one is full.
    pub routes: usize,
}

impl Default for Options {
    /// Seed 0, four ways.
    fn default() -> Self {
        Options { seed: 0, routes: 4 }
    }
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Streams with a place.
    pub placed: usize,
    /// Streams that still look for one.
    pub waiting: usize,
    /// Steps so far.
    pub work: u64,
    /// Whether streams are moved for those that wait. It is the part of the search that may take
    /// as long as it is allowed to.
    pub is_moving: bool,
}

/// How long to search.
pub struct Budget<'a> {
    /// The most steps. One is the effort of looking once into the busy time of a link. Deciding
    /// small cores for those that are rejected may take a quarter more, but no more than 2^23, and
    /// packing full links the same, but no more than 2^25.
    pub work: u64,
    /// Asked every some thousand steps and every few streams. `false` ends the part that the
    /// search is in: moving streams, or all of the rest when it is in another.
    pub go_on: &'a mut dyn FnMut(&Progress) -> bool,
}

/// How many may wait for a proof to be asked of each before the search.
const MAX_OPEN_PROOFS: usize = 32;

/// Steps between two questions.
const ASK: u64 = 1 << 14;

/// Streams between two questions, where no step is counted.
const ASK_STREAMS: usize = 16;

/// Steps of moving without ever fewer that wait, before small cores are decided.
const SEARCH_STEPS: u64 = 1 << 21;

/// A stream that has a way, and perhaps a start.
#[derive(Clone, Debug)]
struct Seat {
    class: usize,
    shape: Option<Shape>,
    start: Option<i64>,
    reason: Option<Certificate>,
}

/// A problem and where its streams are so far.
#[derive(Clone, Debug)]
pub struct Planner {
    problem: Problem,
    options: Options,
    graph: Graph,
    table: Table,
    seats: Vec<Seat>,
    /// By link: its share that is taken, in 2^20ths.
    load: Vec<i64>,
    /// By stream: what it costs to move it.
    weights: Vec<u64>,
    random: Sequence,
    /// No stream has more frames.
    most_frames: i64,
    placed: usize,
    asked: u64,
    /// Whether all of the search was ended.
    ended: bool,
}

impl Planner {
    /// A planner that has placed nothing.
    pub fn new(problem: Problem, options: Options) -> Planner {
        let links = problem.network().links().len();
        let mut table = Table::new(links);
        if let Some(Reserve { every, lasts }) = problem.network().options().reserve {
            let class = table.class(every.as_ns());
            for link in (0..links).map(LinkId::from_index) {
                let free = Stretch { link, start: 0, length: lasts.as_ns() };
                table.put(table::NOBODY, class, 0, &[free]);
            }
        }
        let mut seats = Vec::with_capacity(problem.streams().len());
        for stream in problem.streams() {
            let class = table.class(stream.interval.as_ns());
            seats.push(Seat { class, shape: None, start: None, reason: None });
        }
        Planner {
            graph: Graph::new(problem.network()),
            table,
            load: vec![0; links],
            weights: vec![1; seats.len()],
            seats,
            random: Sequence::new(options.seed),
            most_frames: most_frames(problem.streams()),
            placed: 0,
            asked: 0,
            ended: false,
            problem,
            options,
        }
    }

    /// What is planned.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Steps so far.
    pub fn work(&self) -> u64 {
        self.table.work
    }

    /// By link: the share that placed streams take. **Units**: millionths.
    pub fn link_loads(&self) -> Vec<u64> {
        let mut loads = vec![0i64; self.load.len()];
        for (id, seat) in self.seats.iter().enumerate() {
            let (Some(shape), Some(_)) = (&seat.shape, seat.start) else { continue };
            for link in shape.trees.iter().flatten() {
                loads[link.index()] += share(self.problem.network(), self.stream(id), *link);
            }
        }
        let millionths = |load: i64| u64::try_from((i128::from(load) * 1_000_000) >> 20);
        loads.into_iter().map(|load| millionths(load).unwrap_or(u64::MAX)).collect()
    }

    /// Gives every stream a place, or a reason; whether the budget ended it while some still looked
    /// for a place.
    pub fn run(&mut self, budget: &mut Budget) -> bool {
        let order = self.order();
        let mut by_priority = order.clone();
        let rank = |id: &usize| std::cmp::Reverse(self.problem.streams()[*id].priority);
        by_priority.sort_by_key(rank);
        let mut triage = reason::Triage::new(self.load.len());
        self.ended = false;
        for (number, id) in by_priority.into_iter().enumerate() {
            if self.is_ended(number, budget) {
                break;
            }
            if let Err(reason) = self.find_way(id, Some(&mut triage)) {
                self.seats[id].reason = Some(reason);
            }
        }
        let mut waiting = Vec::new();
        self.begin();
        for (number, id) in order.into_iter().enumerate() {
            if self.seats[id].reason.is_some() {
                continue;
            }
            let is_ended = self.is_ended(number, budget) || self.seats[id].shape.is_none();
            if is_ended || (!self.fit(id) && !self.fit_elsewhere(id)) {
                waiting.push(id);
            }
        }
        self.table.end();
        let mut ended = self.ended;
        let mut left = waiting;
        if !ended {
            self.refuse(&mut left);
            (left, ended) = self.find_rest(left, budget);
        }
        self.settle(left);
        self.keep_gate_limits();
        ended
    }

    /// Tells the table that streams come by interval, how many, and which frames are the shortest.
    fn begin(&mut self) {
        let network = self.problem.network();
        let shortest = self.problem.streams().iter().map(|stream| stream.length_bytes).min();
        let mut expected = vec![0; self.load.len()];
        for stretch in self.seats.iter().filter_map(|seat| seat.shape.as_ref()) {
            for stretch in &stretch.stretches {
                expected[stretch.link.index()] += 1;
            }
        }
        let least = |link| network.occupancy(LinkId::from_index(link), shortest.unwrap_or(0));
        let expected = expected.into_iter().enumerate();
        self.table.begin(expected.map(|(link, expected)| (expected, least(link).as_ns())));
    }

    /// Places for those that found none at once: by moving others, then by deciding small cores,
    /// and by moving again as long as a proof is missing; who is left, and whether the budget ended
    /// it.
    fn find_rest(&mut self, waiting: Vec<usize>, budget: &mut Budget) -> (Vec<usize>, bool) {
        let mut left = self.repair(waiting, budget, SEARCH_STEPS.min(budget.work / 2));
        let mut is_least = left.is_empty();
        for last in [false, true] {
            if !is_least {
                left = self.decide(left, budget.work / 8, budget);
                is_least = self.is_least(&left);
            }
            if self.ended {
                break;
            }
            if !is_least && !last {
                left = self.repair(left, budget, u64::MAX);
                is_least = left.is_empty();
            }
        }
        (left, !is_least)
    }

    /// Refuses all that wait, if it is certain that moving others would place no more: each has a
    /// proof, and no two proofs name the same stream, so that each costs one stream its place.
    /// Where many wait, looking at each is dear, and the search begins.
    fn refuse(&mut self, waiting: &mut Vec<usize>) {
        if waiting.len() > MAX_OPEN_PROOFS {
            return;
        }
        let mut named = BTreeSet::new();
        let mut reasons = Vec::new();
        for &id in waiting.iter() {
            let reason = self.explain(id);
            let mut others = reason.others();
            others.retain(|other| other.index() != id);
            if !reason.is_proof() || others.into_iter().any(|other| !named.insert(other)) {
                return;
            }
            reasons.push(reason);
        }
        for (id, reason) in waiting.drain(..).zip(reasons) {
            self.seats[id].reason = Some(reason);
        }
    }

    /// All streams in the order in which they are placed.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.seats.len()).collect();
        self.sort(&mut order);
        order
    }

    /// Short intervals first, then what occupies its links longest.
    fn sort(&self, order: &mut [usize]) {
        let streams = self.problem.streams();
        let bytes = |s: &Stream| u64::from(s.length_bytes) * u64::from(s.frames);
        order.sort_by_key(|&id| (streams[id].interval, std::cmp::Reverse(bytes(&streams[id])), id));
    }

    fn stream(&self, id: usize) -> &Stream {
        &self.problem.streams()[id]
    }

    /// Starts of a stream that are looked at.
    fn window(&self, id: usize) -> (i64, i64) {
        let stream = self.stream(id);
        (stream.release.earliest.as_ns(), stream.release_latest().as_ns())
    }

    /// Places a stream on its way at the first instant at which it fits, if there is one.
    fn fit(&mut self, id: usize) -> bool {
        let (from, until) = self.window(id);
        let seat = &self.seats[id];
        let Some(shape) = &seat.shape else { return false };
        let found = self.table.fit(seat.class, &shape.stretches, from, until);
        if let Some(start) = found {
            self.put(id, start);
        }
        found.is_some()
    }

    fn put(&mut self, id: usize, start: i64) {
        let seat = &mut self.seats[id];
        let shape = seat.shape.as_ref().expect("invariant: who is placed has a way");
        let number = u32::try_from(id).expect("invariant: streams count in 32 bits");
        self.table.put(number, seat.class, start, &shape.stretches);
        (seat.start, seat.reason) = (Some(start), None);
        self.placed += 1;
    }

    fn take(&mut self, id: usize) {
        let seat = &mut self.seats[id];
        let shape = seat.shape.as_ref().expect("invariant: who is placed has a way");
        let number = u32::try_from(id).expect("invariant: streams count in 32 bits");
        self.table.take(number, &shape.stretches);
        seat.start = None;
        self.placed -= 1;
    }

    /// Gives a stream another way; it is not placed.
    fn set_way(&mut self, id: usize, shape: Option<Shape>) {
        let stream = &self.problem.streams()[id];
        let network = self.problem.network();
        for (old, sign) in [(&self.seats[id].shape, -1), (&shape, 1)] {
            for link in old.iter().flat_map(|shape| shape.trees.iter().flatten()) {
                self.load[link.index()] += sign * share(network, stream, *link);
            }
        }
        self.seats[id].shape = shape;
    }

    /// Other ways for a stream whose own is full.
    fn fit_elsewhere(&mut self, id: usize) -> bool {
        let own = self.seats[id].shape.clone();
        for _ in 1..self.options.routes {
            let Some(shape) = self.another_way(id) else { continue };
            self.set_way(id, Some(shape));
            if self.fit(id) {
                return true;
            }
        }
        self.set_way(id, own);
        false
    }

    fn progress(&self, waiting: usize, is_moving: bool) -> Progress {
        Progress { placed: self.placed, waiting, work: self.table.work, is_moving }
    }

    /// Whether all of the search is to end, which is asked once in a while.
    fn is_ended(&mut self, number: usize, budget: &mut Budget) -> bool {
        if !self.ended && number.is_multiple_of(ASK_STREAMS) {
            let waiting = self.seats.len() - self.placed;
            self.ended = !(budget.go_on)(&self.progress(waiting, false));
        }
        self.ended
    }

    /// Whether the search goes on.
    fn may_go_on(&mut self, waiting: usize, budget: &mut Budget) -> bool {
        if self.table.work >= budget.work {
            return false;
        }
        if self.table.work < self.asked + ASK {
            return true;
        }
        self.asked = self.table.work;
        (budget.go_on)(&self.progress(waiting, true))
    }

    /// Moves streams until all that wait are admitted, the budget is used, or for so many steps
    /// there were never fewer; who is left.
    fn repair(&mut self, waiting: Vec<usize>, budget: &mut Budget, timeout: u64) -> Vec<usize> {
        let mut sweep = repair::Sweep::default();
        let mut queue = VecDeque::from(waiting);
        let mut best = Best { waiting: queue.iter().copied().collect(), before: BTreeMap::new() };
        let mut since = self.table.work;
        // Those who would need time that is kept free.
        let mut never = Vec::new();
        while !queue.is_empty()
            && self.table.work - since < timeout
            && self.may_go_on(queue.len(), budget)
        {
            let pick = self.random.below(queue.len());
            queue.swap(0, pick);
            let Some(id) = queue.pop_front() else { break };
            best.keep(id, &self.seats);
            let wants_other = self.options.routes > 1 && self.random.below(2) == 0;
            if let Some(shape) = wants_other.then(|| self.another_way(id)).flatten() {
                self.set_way(id, Some(shape));
            }
            let offer = self.offer(id, &mut sweep);
            if offer.price >= repair::NEVER {
                never.push(id);
                continue;
            }
            for &other in &offer.evicted {
                best.keep(other, &self.seats);
                self.take(other);
                queue.push_back(other);
            }
            self.put(id, offer.start);
            if !offer.evicted.is_empty() {
                self.weights[id] += 1;
            }
            if queue.len() + never.len() < best.waiting.len() {
                let waiting = queue.iter().chain(&never).copied().collect();
                best = Best { waiting, before: BTreeMap::new() };
                since = self.table.work;
            }
        }
        self.restore(best)
    }

    fn offer(&mut self, id: usize, sweep: &mut repair::Sweep) -> repair::Offer {
        let window = self.window(id);
        let seat = &self.seats[id];
        let shape = seat.shape.as_ref().expect("invariant: who waits has a way");
        let (class, stretches) = (seat.class, &shape.stretches);
        let (weights, random) = (&self.weights, &mut self.random);
        sweep.cheapest(&mut self.table, class, stretches, window, weights, random)
    }

    /// The steps of an offer, about.
    fn effort(&self, id: usize) -> u64 {
        let (from, until) = self.window(id);
        let seat = &self.seats[id];
        let stretches = seat.shape.iter().flat_map(|shape| &shape.stretches);
        repair::effort(&self.table, seat.class, stretches, until - from)
    }

    /// Restores everything as it was when the fewest waited; who they were.
    fn restore(&mut self, best: Best) -> Vec<usize> {
        for &id in best.before.keys() {
            if self.seats[id].start.is_some() {
                self.take(id);
            }
        }
        for (id, seat) in best.before {
            self.set_way(id, seat.shape);
            if let Some(start) = seat.start {
                self.put(id, start);
            }
        }
        best.waiting
    }

    /// Gives reasons to those who are left, and a last try to those whose reason names one that has
    /// no place itself.
    fn settle(&mut self, left: Vec<usize>) {
        for id in left {
            let reason = &mut self.seats[id].reason;
            if !reason.as_ref().is_some_and(Certificate::is_proof) {
                *reason = Some(Certificate::NotFound { tried: self.table.work });
            }
        }
        let open: Vec<usize> = (0..self.seats.len())
            .filter(|&id| self.seats[id].start.is_none() && self.is_shaky(id))
            .collect();
        // Reasons take long, and nobody waits for them any more.
        let open = if self.ended { Vec::new() } else { open };
        let (mut refused, before) = (Vec::new(), self.placed);
        for id in open {
            let has_way = self.seats[id].shape.is_some();
            if !has_way || (!self.fit(id) && !self.fit_elsewhere(id)) {
                self.seats[id].reason = Some(self.explain(id));
                refused.push(id);
            }
        }
        for id in refused {
            // Others have a place since then.
            if self.placed > before && self.is_shaky(id) {
                self.seats[id].reason = Some(self.explain(id));
            }
        }
    }

    /// Whether a reason is none, or needs others to be admitted.
    fn is_shaky(&self, id: usize) -> bool {
        let reason = &self.seats[id].reason;
        let no_proof = reason.as_ref().is_none_or(|reason| {
            matches!(reason, Certificate::NotFound { .. } | Certificate::GateLimit { .. })
        });
        no_proof || self.names_refused(id)
    }

    /// Whether a reason needs others to be admitted that are not.
    fn names_refused(&self, id: usize) -> bool {
        let others = self.seats[id].reason.as_ref().map(Certificate::others).unwrap_or_default();
        others.iter().any(|s| s.index() != id && self.seats[s.index()].start.is_none())
    }

    /// Who has which place.
    pub fn plan(&mut self) -> Plan {
        let mut plan = Plan { cycle: self.problem.cycle(), ..Plan::default() };
        for (index, seat) in self.seats.iter().enumerate() {
            let id = StreamId::from_index(index);
            match (&seat.shape, seat.start) {
                (Some(shape), Some(start)) => {
                    let transmissions = self.transmissions(id, shape, start);
                    plan.admitted.push(Admission { stream: id, transmissions });
                }
                _ => {
                    let none = Certificate::NotFound { tried: self.table.work };
                    let reason = seat.reason.clone().filter(|_| !self.names_refused(index));
                    let certificate = reason.unwrap_or(none);
                    plan.refused.push(Refusal { stream: id, certificate });
                }
            }
        }
        plan.gates = self.gates();
        plan
    }

    fn transmissions(&self, id: StreamId, shape: &Shape, start: i64) -> Vec<Transmission> {
        let (network, stream) = (self.problem.network(), self.problem.stream(id));
        let sent = shape.sent(network, stream).into_iter();
        sent.map(|sent| Transmission {
            link: sent.link,
            frame: sent.frame,
            copy: sent.copy,
            queue: shape::queue(network, sent.link, stream.priority),
            start: Span::from_ns(start + sent.start),
        })
        .collect()
    }
}

fn most_frames(streams: &[Stream]) -> i64 {
    streams.iter().map(|stream| i64::from(stream.frames)).max().unwrap_or(1)
}

/// When the fewest waited: who, and the seats of those who were moved since.
struct Best {
    waiting: Vec<usize>,
    before: BTreeMap<usize, Seat>,
}

impl Best {
    fn keep(&mut self, id: usize, seats: &[Seat]) {
        self.before.entry(id).or_insert_with(|| seats[id].clone());
    }
}

/// The share of a link that a stream takes, in 2^20ths, rounded up.
pub(crate) fn share(network: &crate::model::Network, stream: &Stream, link: LinkId) -> i64 {
    let busy = network.occupancy(link, stream.length_bytes).as_ns() * i64::from(stream.frames);
    let interval = stream.interval.as_ns();
    let share = match busy.checked_mul(1 << 20) {
        Some(busy) => busy / interval,
        None => i64::try_from((i128::from(busy) << 20) / i128::from(interval)).unwrap_or(i64::MAX),
    };
    share.min(1 << 40) + 1
}

/// A plan for a problem, with a budget of work.
pub fn plan(problem: Problem, options: Options, work: u64) -> Plan {
    let mut planner = Planner::new(problem, options);
    planner.run(&mut Budget { work, go_on: &mut |_| true });
    planner.plan()
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of every queue and stream of a network, queue by queue in the order of dependence;
//! where there is none, `circle`.
//!
//! **Source**: total flow analysis with the shaping of input links: Mifdaoui, Leydier: Beyond the
//! Accuracy-Complexity Tradeoffs of Compositional Analyses using Network Calculus (2017);
//! regulators that cost no delay: Le Boudec: A Theory of Traffic Regulators for Deterministic
//! Networks (2018).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use timewire_base::{BitsPerSecond, Span};

use super::port::{INTERRUPTION_BITS, Load, Queue, slope};
use super::{
    BoundsError, Cause, NetworkBounds, NoBound, PortClass, PortScheme, QueueBound, Selection,
    StreamBound, class_of,
};
use crate::calculus::{Arrival, Ratio};
use crate::model::{Forwarding, LinkId, Network, NodeId, Problem, Role, Stream, StreamId};

/// A stream and the links that it goes over: a tree, each link after the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whose.
    pub stream: StreamId,
    /// From the talker outwards.
    pub links: Vec<LinkId>,
    /// Frames that can come together: those of a message, and of messages that are late; fewer
    /// than those of a message are as many.
    pub together: u32,
}

/// One stream on one link.
pub(super) struct Hop {
    route: usize,
    link: LinkId,
    queue: usize,
    before: Option<usize>,
    frame_bits: u64,
    rate_bps: u64,
    pub(super) source_bits: u64,
    /// When it comes here; `None` until that is known, and for ever if it has no bound.
    pub(super) burst_bits: Option<u64>,
    /// Until it has left, from the talker: at most and at least.
    latest: Option<i64>,
    soonest: i64,
}

pub(super) struct Work<'a> {
    network: &'a Network,
    schemes: &'a [PortScheme],
    pub(super) hops: Vec<Hop>,
    /// By link and class: hops.
    pub(super) queues: Vec<Vec<usize>>,
    pub(super) loads: Vec<[Load; 8]>,
    pub(super) delays: Vec<Option<i64>>,
    pub(super) done: Vec<bool>,
    /// By queue: the queue with the cause, and the cause, where there is no bound.
    pub(super) without: Vec<Option<(usize, Arc<Cause>)>>,
    bounds: NetworkBounds,
}

/// Which port and class a queue is.
pub(super) fn port_class(queue: usize) -> PortClass {
    let class = u8::try_from(queue % 8).expect("invariant: a remainder of 8");
    PortClass { link: LinkId::from_index(queue / 8), class }
}

/// Bounds every stream that has a route, beside all others that have one, with each port's scheme.
/// What is scheduled has none: its gates take the time ([`super::ClassGates::beside`]).
///
/// **Errors**: schemes or routes that do not fit the network, settings that have no bound.
pub fn bound(
    problem: &Problem,
    routes: &[Route],
    schemes: &[PortScheme],
) -> Result<NetworkBounds, BoundsError> {
    let network = problem.network();
    let links = network.links().len();
    if schemes.len() != links {
        return Err(BoundsError::Schemes { schemes: schemes.len(), links });
    }
    let mut work = Work {
        network,
        schemes,
        hops: Vec::new(),
        queues: vec![Vec::new(); links * 8],
        loads: (0..links).map(|_| Default::default()).collect(),
        delays: vec![None; links * 8],
        done: vec![false; links * 8],
        without: vec![None; links * 8],
        bounds: NetworkBounds::default(),
    };
    for (index, route) in routes.iter().enumerate() {
        work.lay(problem, index, route)?;
    }
    work.run()?;
    work.finish(problem, routes);
    Ok(work.bounds)
}

fn frame_bits(network: &Network, stream: &Stream) -> u64 {
    u64::from(stream.length_bytes.saturating_add(network.options().overhead_bytes)) * 8
}

/// How long so many bits take, rounded down or up.
fn time(bits: u64, rate: BitsPerSecond, up: bool) -> i64 {
    let (bits, rate) = (u128::from(bits) * 1_000_000_000, u128::from(rate.get()));
    let time = if up { bits.div_ceil(rate) } else { bits / rate };
    i64::try_from(time).unwrap_or(i64::MAX / 4)
}

impl Work<'_> {
    fn lay(&mut self, problem: &Problem, index: usize, route: &Route) -> Result<(), BoundsError> {
        let unknown = |link| BoundsError::Route { stream: route.stream, link };
        let stream = problem.streams().get(route.stream.index()).ok_or(unknown(LinkId(0)))?;
        let bits = frame_bits(self.network, stream);
        let message = bits * u64::from(stream.frames);
        let per_second = u128::from(message) * 1_000_000_000;
        let interval = u128::from(stream.interval.as_ns().unsigned_abs());
        let rate_bps = u64::try_from(per_second.div_ceil(interval)).unwrap_or(u64::MAX);
        let mut reached: BTreeMap<NodeId, Option<usize>> = BTreeMap::from([(stream.talker, None)]);
        for id in &route.links {
            let link = self.network.links().get(id.index()).ok_or(unknown(*id))?;
            let before = *reached.get(&link.from).ok_or(unknown(*id))?;
            let node = self.network.node(link.from);
            let stops = node.role == Role::EndStation && before.is_some();
            if stops || reached.insert(link.to, Some(self.hops.len())).is_some() {
                return Err(unknown(*id));
            }
            let class = usize::from(class_of(stream.priority, node.limits.queues));
            let queue = id.index() * 8 + class;
            self.queues[queue].push(self.hops.len());
            let load = &mut self.loads[id.index()][class];
            load.longest_bits = load.longest_bits.max(bits);
            load.arrival = Some(Arrival::nothing());
            self.hops.push(Hop {
                route: index,
                link: *id,
                queue,
                before,
                frame_bits: bits,
                rate_bps,
                source_bits: message.max(bits * u64::from(route.together)),
                burst_bits: None,
                latest: None,
                soonest: 0,
            });
        }
        Ok(())
    }

    /// Of two queues of a port.
    fn goes_before(&self, one: usize, other: usize) -> bool {
        self.schemes[one / 8].goes_before(port_class(one).class, port_class(other).class)
    }

    fn selection(&self, queue: usize) -> Selection {
        self.schemes[queue / 8].classes[queue % 8]
    }

    /// Each used queue after those that feed it, and after the higher ones of its port.
    fn run(&mut self) -> Result<(), BoundsError> {
        let count = self.queues.len();
        let mut feeds: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut waits = vec![0_u32; count];
        for hop in &self.hops {
            let Some(before) = hop.before else { continue };
            // A regulator brings each stream back to what it was: the burst is known.
            if self.selection(hop.queue) != Selection::Regulated {
                feeds[self.hops[before].queue].push(hop.queue);
            }
        }
        for queue in (0..count).filter(|queue| !self.queues[*queue].is_empty()) {
            let same = queue / 8 * 8..queue / 8 * 8 + 8;
            let behind =
                |other: &usize| !self.queues[*other].is_empty() && self.goes_before(queue, *other);
            feeds[queue].extend(same.filter(behind));
        }
        for fed in &mut feeds {
            fed.sort_unstable();
            fed.dedup();
            for queue in fed.iter() {
                waits[*queue] += 1;
            }
        }
        let used = |queue: &usize| !self.queues[*queue].is_empty();
        let mut open: Vec<usize> =
            (0..count).filter(used).filter(|queue| waits[*queue] == 0).collect();
        while let Some(queue) = open.pop() {
            self.queue(queue).map_err(|error| error.at(port_class(queue)))?;
            for next in &feeds[queue] {
                waits[*next] -= 1;
                if waits[*next] == 0 {
                    open.push(*next);
                }
            }
        }
        if !self.settle()? {
            self.circles(&feeds);
        }
        Ok(())
    }

    /// Each queue that was not done is in a circle of dependence that came to no rest, or behind
    /// one: back from it, each time to one that was not done, until a queue comes again.
    fn circles(&mut self, feeds: &[Vec<usize>]) {
        let open = |queue: &usize| !self.queues[*queue].is_empty() && !self.done[*queue];
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        for queue in (0..feeds.len()).filter(open) {
            for fed in feeds[queue].iter().filter(|fed| open(fed)) {
                before.entry(*fed).or_insert(queue);
            }
        }
        for queue in (0..feeds.len()).filter(|queue| before.contains_key(queue)) {
            let mut walk: Vec<usize> = Vec::new();
            let mut walked = BTreeSet::new();
            let mut at = queue;
            while self.without[at].is_none() && walked.insert(at) {
                walk.push(at);
                at = before[&at];
            }
            let found = self.without[at].clone().unwrap_or_else(|| {
                let start = walk.iter().position(|queue| *queue == at).unwrap_or(0);
                let mut circle = walk[start..].to_vec();
                circle.reverse();
                let least = (0..circle.len()).min_by_key(|place| circle[*place]).unwrap_or(0);
                circle.rotate_left(least);
                let queues = circle.iter().map(|queue| port_class(*queue)).collect();
                (circle[0], Arc::new(Cause::Circular { queues }))
            });
            for queue in walk {
                self.without[queue] = Some(found.clone());
            }
        }
    }

    /// What comes to the queue, what it is served with, and what follows.
    pub(super) fn queue(&mut self, queue: usize) -> Result<(), BoundsError> {
        self.done[queue] = true;
        let (link, class) = (queue / 8, queue % 8);
        if let Some(cause) = self.arrive(queue) {
            self.without[queue] = Some(cause);
            return Ok(());
        }
        let (plain, interrupting) =
            (self.arrival(queue, 0)?, self.arrival(queue, INTERRUPTION_BITS)?);
        let load = &mut self.loads[link][class];
        (load.arrival, load.interrupting) = (Some(plain.clone()), Some(interrupting));
        let id = LinkId::from_index(link);
        let served = Queue {
            link: id,
            class: u8::try_from(class).expect("invariant: a remainder of 8"),
            rate: self.network.link(id).rate,
            overhead_bytes: self.network.options().overhead_bytes,
            scheme: &self.schemes[link],
            loads: &self.loads[link],
        };
        let Some(service) = served.service()? else {
            let before = (link * 8..link * 8 + 8).filter(|it| self.goes_before(*it, queue));
            let mut higher = before.filter_map(|it| self.without[it].clone());
            self.without[queue] = higher.next().or(Some((queue, Arc::new(Cause::TooLarge))));
            return Ok(());
        };
        let (delay, backlog) = (plain.delay(&service)?, plain.backlog(&service)?);
        let (Some(delay), Some(backlog)) = (delay, backlog) else {
            self.without[queue] = Some((queue, Arc::new(served.shortage(&plain, &service)?)));
            return Ok(());
        };
        self.delays[queue] = i64::try_from(delay.ceil()).ok();
        self.loads[link][class].backlog_bits = u64::try_from(backlog.ceil()).ok();
        if self.delays[queue].is_none() || self.loads[link][class].backlog_bits.is_none() {
            self.delays[queue] = None;
            self.without[queue] = Some((queue, Arc::new(Cause::TooLarge)));
        }
        Ok(())
    }

    /// Each stream's burst as it comes to the queue; or why one of them is without bound.
    fn arrive(&mut self, queue: usize) -> Option<(usize, Arc<Cause>)> {
        let regulated = self.selection(queue) == Selection::Regulated;
        for index in self.queues[queue].clone() {
            let hop = &self.hops[index];
            let burst = match hop.before {
                None => Some(hop.source_bits),
                Some(_) if regulated => Some(hop.source_bits),
                Some(before) => self.after(before, hop),
            };
            if burst.is_none() {
                let before = hop.before.map(|before| self.hops[before].queue);
                let known = before.and_then(|before| self.without[before].clone());
                return Some(known.unwrap_or_else(|| (queue, Arc::new(Cause::TooLarge))));
            }
            self.hops[index].burst_bits = burst;
        }
        None
    }

    fn no_bound(&self, queue: usize) -> Option<NoBound> {
        let (origin, cause) = self.without[queue].clone()?;
        Some(NoBound { first: port_class(queue), origin: port_class(origin), cause })
    }

    /// The burst with which a stream leaves a queue and comes to the next: what its rate brings in
    /// the time by which the delay can differ comes on top.
    fn after(&self, before: usize, hop: &Hop) -> Option<u64> {
        let hop_before = &self.hops[before];
        let delay = self.delays[hop_before.queue]?;
        let node = self.network.node(self.network.link(hop.link).from);
        let processing = (node.processing_max - node.processing_min).as_ns();
        let least = self.least(hop_before, node.forwarding);
        let differs = u128::try_from(delay - least + processing).unwrap_or(0);
        let more = (differs * u128::from(hop.rate_bps)).div_ceil(1_000_000_000);
        hop_before.burst_bits?.checked_add(u64::try_from(more).ok()?)
    }

    /// The least time on a link until a bridge can forward the frame.
    fn least(&self, hop: &Hop, forwarding: Forwarding) -> i64 {
        match forwarding {
            Forwarding::StoreAndForward => {
                time(hop.frame_bits, self.network.link(hop.link).rate, false)
            }
            Forwarding::CutThrough { .. } => 0,
        }
    }

    /// Everything that comes: by input link, no more than the link carries. `extra` bits are added
    /// to each frame.
    fn arrival(&self, queue: usize, extra: u64) -> Result<Arrival, BoundsError> {
        let regulated = self.selection(queue) == Selection::Regulated;
        let mut groups: BTreeMap<Option<LinkId>, (u64, u64, u64)> = BTreeMap::new();
        for hop in self.queues[queue].iter().map(|index| &self.hops[*index]) {
            let from = hop.before.map(|before| self.hops[before].link);
            let (burst, rate, longest) = groups.entry(from).or_default();
            let grown = |amount: u64| {
                let more = u128::from(amount) * u128::from(extra);
                let more = u64::try_from(more.div_ceil(u128::from(hop.frame_bits.max(1))));
                amount.saturating_add(more.unwrap_or(u64::MAX))
            };
            *burst = burst.saturating_add(grown(hop.burst_bits.unwrap_or(u64::MAX)));
            *rate = rate.saturating_add(grown(hop.rate_bps));
            *longest = (*longest).max(hop.frame_bits);
        }
        let mut whole = Arrival::nothing();
        for (from, (burst, rate, longest)) in groups {
            let mut limits = vec![(slope(rate)?, Ratio::from(burst))];
            if let Some(from) = from.filter(|_| !regulated && extra == 0) {
                let (link, to) = (self.network.link(from), self.network.link(from).to);
                let node = self.network.node(to);
                let shifted = (node.processing_max - node.processing_min).as_ns();
                let bits = slope(link.rate.get())?.times(Ratio::whole(shifted.into()))?.ceil();
                // A frame that is forwarded before it is whole counts as whole before it is there.
                let cut = !matches!(node.forwarding, Forwarding::StoreAndForward);
                let longest = if cut { 2 * longest } else { longest };
                let burst = Ratio::from(longest).plus(Ratio::whole(bits))?;
                limits.push((slope(link.rate.get())?, burst));
            }
            whole = whole.plus(&Arrival::buckets(&limits)?)?;
        }
        Ok(whole)
    }

    fn finish(&mut self, problem: &Problem, routes: &[Route]) {
        let queues = 0..self.queues.len();
        for queue in queues.filter(|queue| !self.queues[*queue].is_empty()) {
            let PortClass { link, class } = port_class(queue);
            let bits = self.loads[queue / 8][queue % 8].backlog_bits;
            self.bounds.queues.push(QueueBound {
                link,
                class,
                delay: self.delays[queue].map(Span::from_ns),
                backlog_bytes: bits.map(|bits| bits.div_ceil(8)),
                without: self.no_bound(queue),
            });
        }
        let mut ends: Vec<(Option<i64>, i64)> = vec![(Some(0), i64::MAX); routes.len()];
        for index in 0..self.hops.len() {
            self.pass(problem, routes, index, &mut ends);
        }
        let mut without: Vec<Option<NoBound>> = vec![None; routes.len()];
        for hop in &self.hops {
            if without[hop.route].is_none() {
                without[hop.route] = self.no_bound(hop.queue);
            }
        }
        for ((route, (latest, soonest)), without) in routes.iter().zip(ends).zip(without) {
            self.bounds.streams.push(StreamBound {
                stream: route.stream,
                without: without.filter(|_| latest.is_none()),
                latency: latest.map(Span::from_ns),
                jitter: latest.map(|latest| Span::from_ns((latest - soonest).max(0))),
            });
        }
    }

    /// The extremes of a stream's time until the end of a link.
    fn pass(
        &mut self,
        problem: &Problem,
        routes: &[Route],
        index: usize,
        ends: &mut [(Option<i64>, i64)],
    ) {
        let hop = &self.hops[index];
        let link = self.network.link(hop.link);
        let stream = problem.stream(routes[hop.route].stream);
        let sent = time(hop.frame_bits, link.rate, false);
        let (mut latest, mut soonest) = (self.delays[hop.queue], 0);
        if let Some(before) = hop.before.map(|before| &self.hops[before]) {
            let node = self.network.node(link.from);
            // Until the frame is forwarded it may be under way on the link before.
            let early = match node.forwarding {
                Forwarding::StoreAndForward => 0,
                Forwarding::CutThrough { .. } => {
                    time(before.frame_bits, self.network.link(before.link).rate, true)
                }
            };
            soonest = (before.soonest + node.processing_min.as_ns() - early).max(0);
            let wait = before.latest.map(|latest| latest + node.processing_max.as_ns());
            latest = latest.zip(wait).map(|(here, wait)| here + wait);
        }
        let travels = link.propagation.as_ns();
        let (latest, soonest) = (latest.map(|latest| latest + travels), soonest + sent + travels);
        if stream.listeners.contains(&link.to) {
            // The first frame of a message does not wait for the others.
            let end = &mut ends[hop.route];
            end.0 = end.0.zip(latest).map(|(known, latest)| known.max(latest));
            end.1 = end.1.min(soonest);
        }
        let hop = &mut self.hops[index];
        (hop.latest, hop.soonest) = (latest, soonest);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each stream is promised at each listener, and what follows for a measurement at a place.

use timewire_base::{Span, StationName};
use timewire_model::scenario::AtMost;
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::{NetStream, NetTraffic, StreamLimit};
use timewire_plan::file;
use timewire_plan::model::LinkId;

use super::{Compiler, GAP_BITS, Planned, Site, class, whole_us};
use crate::network::{Promise, PromisedBy, PromisedLimit};

/// What the messages of a chain take, from its first to a stream.
struct Chain {
    /// All of them, at least.
    least: Span,
    /// By how much those before the stream are later in this place than planned.
    late: Span,
}

impl Compiler<'_> {
    pub(super) fn promises(&self, routes: &[Vec<LinkId>]) -> Vec<Promise> {
        let Planned { case, given: problem, plan } = self.planned;
        let given = &case.file;
        let bounds = file::bounds_on_linux(given, problem, plan).unwrap_or_default();
        let mut promises = Vec::new();
        for (number, (stream, route)) in self.file.streams.iter().zip(routes).enumerate() {
            let index = given.streams.iter().position(|own| own.name == stream.name);
            let bound = bounds.iter().find(|bound| Some(bound.stream) == index);
            let bound = bound.and_then(|it| it.bound.as_ref().ok()).map(|(latency, _)| *latency);
            for to in stream.listeners.all() {
                let path = self.path(route, &stream.talker, to);
                promises.push(self.promise((number, stream), (routes, to, &path), bound));
            }
        }
        promises
    }

    fn promise(
        &self,
        (number, stream): (usize, &NetStream),
        (routes, to, path): (&[Vec<LinkId>], &StationName, &[LinkId]),
        bound: Option<Span>,
    ) -> Promise {
        let limits: Vec<PromisedLimit> = self.limits_of(stream).collect();
        let is_flood = matches!(stream.traffic, NetTraffic::Flood(_));
        let (by, latency) = match (self.planned_latency(stream, to), bound) {
            (Some(planned), _) => (PromisedBy::Plan, Some(planned)),
            (None, Some(bound)) if !is_flood => (PromisedBy::Bound, Some(bound)),
            _ if !is_flood || !limits.is_empty() => (PromisedBy::Limits, None),
            _ => (PromisedBy::Load, None),
        };
        let launch_delta = stream.launch.map(|_| self.etf_delta(stream));
        // Virtual links between hosts take no time.
        let takes_time = matches!(self.site, Site::Laboratory) || !self.is_virtual();
        let chain = self.chain(number, routes, path);
        let physical = if takes_time { chain.least } else { Span::ZERO };
        let planned = latency.filter(|_| by == PromisedBy::Plan);
        // What leaves at a launch time can be earlier at a window that is wider than its frame.
        let held = planned.filter(|_| launch_delta.is_none() && takes_time);
        let at_least = held.map_or(physical, |latency| physical.max(latency - self.error.early()));
        // Only a gate holds what was handed over before.
        let is_held = launch_delta.is_none() && planned.is_some();
        let late = self.late(path, is_held) + chain.late;
        let several = stream.listeners.all().len() > 1;
        let interface = |link: Option<&LinkId>, node: &StationName| {
            link.map(|link| self.interface(node, link.index() / 2)).unwrap_or_default()
        };
        let (messages, tail) = self.expected(stream);
        Promise {
            name: if several { format!("{}>{to}", stream.name) } else { stream.name.to_string() },
            stream: u16::try_from(number + 1).unwrap_or(u16::MAX),
            from: stream.talker.to_string(),
            from_interface: interface(path.first(), &stream.talker),
            program: self.program_of(stream, routes),
            to: to.to_string(),
            to_interface: interface(path.last(), to),
            class: class(stream),
            by,
            messages,
            tail,
            launch_delta,
            latency,
            at_least,
            at_most: latency.map(|latency| latency + late),
            limits,
        }
    }

    /// By how much later a message arrives in this place than in the network that was planned.
    fn late(&self, path: &[LinkId], is_held: bool) -> Span {
        let rounded = path.iter().fold(Span::ZERO, |sum, link| {
            let delay = self.file.links[link.index() / 2].delay;
            let rounded = match self.site {
                Site::Laboratory => whole_us(delay),
                Site::Hosts(_) => delay,
            };
            sum + rounded - delay
        });
        self.error.late(path.len(), is_held) + rounded
    }

    /// What the messages before those of a stream take, where its latency counts from the first.
    fn chain(&self, number: usize, routes: &[Vec<LinkId>], path: &[LinkId]) -> Chain {
        let mut stream = &self.file.streams[number];
        let mut chain = Chain { least: self.least(stream, path), late: Span::ZERO };
        while let NetTraffic::After(it) = &stream.traffic
            && it.from_start
            && let Some((number, before)) = self.named(it.follows.as_str())
        {
            let path = self.path(&routes[number], &before.talker, &stream.talker);
            chain.least += self.least(before, &path) + it.work.range().0;
            // It counts from the start of the first, not from when that was handed over.
            chain.late += self.late(&path, false);
            stream = before;
        }
        chain
    }

    /// The file's own limits; those that say what the plan promises are the promise.
    fn limits_of(&self, stream: &NetStream) -> impl Iterator<Item = PromisedLimit> {
        let limits = self.planned.case.file.all_limits().into_iter();
        let limit = |limit: StreamLimit| PromisedLimit {
            metric: limit.metric.word().to_owned(),
            at_most: self.limit_here(&limit, stream).to_string(),
            id: limit.id,
        };
        limits.filter(|it| it.stream == stream.name).map(limit)
    }

    /// A limit of a latency counts from the release; a stream with launch times is measured from
    /// those, and so is a chain that begins with one.
    fn limit_here(&self, limit: &StreamLimit, stream: &NetStream) -> AtMost {
        let is_latency =
            matches!(limit.metric, Metric::LatencyMax | Metric::LatencyP99 | Metric::LatencyMean);
        match (limit.at_most, self.file.counts_from(stream).launch) {
            (AtMost::Time(span), Some(launch)) if is_latency => {
                AtMost::Time((span - launch).max(Span::ZERO))
            }
            (at_most, _) => at_most,
        }
    }

    /// From the start of a message at the talker until its last frame has passed the listener's
    /// link, as planned.
    fn planned_latency(&self, stream: &NetStream, to: &StationName) -> Option<Span> {
        let id = self.admission(stream)?;
        let Planned { given, plan, .. } = self.planned;
        let network = given.problem.network();
        let wanted = given.problem.stream(id);
        let admission = plan.admitted.iter().find(|it| it.stream == id)?;
        let sent = || admission.transmissions.iter().filter(|sent| sent.copy == 0);
        let first = sent().filter(|it| network.link(it.link).from == wanted.talker);
        let first = first.map(|it| it.start).min()?;
        let last = sent().filter(|it| *self.ends(it.link).1 == *to);
        let end = last.map(|it| {
            let link = network.link(it.link);
            it.start + network.occupancy(it.link, wanted.length_bytes) + link.propagation
        });
        // Of several frames each is handed over in its own window.
        let spread = sent().filter(|it| network.link(it.link).from == wanted.talker);
        let spread = spread.map(|it| it.start).max()? - first;
        Some(end.max()? - first - spread)
    }

    /// The time of one frame on its links, each after the one before. A link of the laboratory
    /// delivers a frame when the gap behind it has passed, any other before.
    fn least(&self, stream: &NetStream, path: &[LinkId]) -> Span {
        let frame = stream.frame_len().wire_len();
        let one = |link: &LinkId| {
            let link = &self.file.links[link.index() / 2];
            link.rate.duration_of(frame) + link.delay
        };
        let whole = path.iter().map(one).fold(Span::ZERO, |sum, one| sum + one);
        match path.last() {
            Some(last) if !self.is_virtual() => {
                let rate = self.file.links[last.index() / 2].rate.get();
                let gap = GAP_BITS * 1_000_000_000 / rate + 1;
                whole - Span::from_ns(i64::try_from(gap).unwrap_or(i64::MAX))
            }
            _ => whole,
        }
    }
}

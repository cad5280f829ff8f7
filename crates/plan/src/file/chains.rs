// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that wait for others: how often their messages come, how late those can be, and what a
//! whole chain takes.
//!
//! A message of such a stream leaves when another one has arrived, so it is late by as much as the
//! latency of that one differs, and by what the station needs. How much latencies differ depends on
//! all that is late, so bounds and lateness are computed in turn until they fit each other, from no
//! lateness up: what fits then is never exceeded, by induction over the first message that would.
//!
//! **Source**: K. Tindell, J. Clark, Holistic schedulability analysis for distributed hard
//! real-time systems, 1994, for the turns; 802.1Q knows no such streams.

use timewire_base::{Span, StationName};
use timewire_model::scenario::network::{NetDelay, NetStation, NetStream, NetTraffic, NetworkFile};

use super::rest::{RestBound, Unbounded, of_stream};
use super::{FileProblem, route};
use crate::model::{LinkId, Plan, StreamId};

/// Most turns until bounds and lateness fit each other.
pub(super) const TURNS: usize = 200;

/// A file with its plan, and the bounds of streams so far.
#[derive(Clone, Copy)]
pub(super) struct Chains<'a> {
    pub(super) file: &'a NetworkFile,
    pub(super) given: &'a FileProblem,
    pub(super) plan: &'a Plan,
}

/// A latency, and how much it can differ.
type Times = (Span, Span);

impl Chains<'_> {
    /// How late a message of each stream can be at most, beside what its own station adds, by what
    /// is bounded: nothing, of streams that follow none. Or why that has no end: a stream follows
    /// one that has no bound.
    pub(super) fn lateness(&self, bounds: &[RestBound]) -> Vec<Result<Span, Unbounded>> {
        self.file.streams.iter().map(|stream| self.late(stream, bounds)).collect()
    }

    fn late(&self, stream: &NetStream, bounds: &[RestBound]) -> Result<Span, Unbounded> {
        let mut late = Span::ZERO;
        for (before, after) in self.steps(stream)? {
            let (_, differs) = self.own(before, after, bounds)?;
            let jitter = match &before.traffic {
                NetTraffic::Cyclic(it) => self.range(stream, Some(&it.jitter))?,
                _ => (Span::ZERO, Span::ZERO),
            };
            let send = self.range(stream, self.station(&before.talker).map(|it| &it.send))?;
            let parts = [self.answering(after)?, jitter, send];
            late = parts.iter().fold(late + differs, |sum, (least, most)| sum + (*most - *least));
        }
        Ok(late)
    }

    /// The bound of each stream with those before it in its chain, where its latency counts from
    /// the start of that.
    pub(super) fn whole(&self, bounds: &[RestBound]) -> Vec<RestBound> {
        let whole = |own: &RestBound| {
            let (mut latency, mut differs) = own.bound.clone()?;
            let mut stream = &self.file.streams[own.stream];
            while let NetTraffic::After(it) = &stream.traffic
                && it.from_start
                && let Some(before) = self.file.followed(stream)
            {
                let (most, jitter) = self.own(before, stream, bounds)?;
                let send = self.range(stream, self.station(&stream.talker).map(|it| &it.send))?;
                let parts = [self.answering(stream)?, send];
                latency = parts.iter().fold(latency + most, |sum, (_, most)| sum + *most);
                differs = parts.iter().fold(differs + jitter, |sum, (a, b)| sum + (*b - *a));
                stream = before;
            }
            Ok((latency, differs))
        };
        bounds.iter().map(|own| RestBound { bound: whole(own), ..own.clone() }).collect()
    }

    /// Each step of the chain that ends with a stream: what is followed, and what follows it.
    fn steps<'s>(
        &'s self,
        stream: &'s NetStream,
    ) -> Result<Vec<(&'s NetStream, &'s NetStream)>, Unbounded> {
        let mut steps = Vec::new();
        let mut after = stream;
        while let NetTraffic::After(_) = &after.traffic {
            let before = self.file.followed(after);
            let before = before.filter(|_| steps.len() < self.file.streams.len());
            let before = before.ok_or_else(|| no(self.file, stream, "it follows itself"))?;
            steps.push((before, after));
            after = before;
        }
        Ok(steps)
    }

    /// The latency of a stream up to who follows it.
    fn own(
        &self,
        stream: &NetStream,
        after: &NetStream,
        bounds: &[RestBound],
    ) -> Result<Times, Unbounded> {
        if stream.scheduled {
            let planned = self.planned(stream, &after.talker);
            let text = format!("it follows {}, which is in no plan", stream.name);
            return planned.ok_or_else(|| no(self.file, after, &text));
        }
        let place = self.file.streams.iter().position(|it| it.name == stream.name);
        let own = bounds.iter().find(|it| Some(it.stream) == place).map(|it| &it.bound);
        match own {
            Some(Ok(times)) => Ok(*times),
            other => {
                let why = other.and_then(|it| it.as_ref().err());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                let text = format!("it follows {}, which has no bound{why}", stream.name);
                Err(no(self.file, after, &text))
            }
        }
    }

    /// A planned latency up to a listener; it can differ by all but the time on the links.
    fn planned(&self, stream: &NetStream, to: &StationName) -> Option<Times> {
        let streams = self.given.problem.streams().iter();
        let id = streams.clone().position(|own| own.name == stream.name.as_str())?;
        let admission = self.plan.admitted.iter().find(|it| it.stream.index() == id)?;
        let network = self.given.problem.network();
        let wanted = self.given.problem.stream(StreamId::from_index(id));
        let first = admission.transmissions.iter().map(|it| it.start).min()?;
        let to = super::node_id(self.file, to);
        let ends = admission.transmissions.iter().filter(|it| network.link(it.link).to == to);
        let end = ends.map(|it| {
            let link = network.link(it.link);
            it.start + network.occupancy(it.link, wanted.length_bytes) + link.propagation
        });
        let latency = end.max()? - first;
        Some((latency, (latency - least(self.file, stream)).max(Span::ZERO)))
    }

    /// What a station needs from a message to that which follows it, at least and at most.
    fn answering(&self, after: &NetStream) -> Result<Times, Unbounded> {
        let NetTraffic::After(it) = &after.traffic else { return Ok((Span::ZERO, Span::ZERO)) };
        let receive = self.range(after, self.station(&after.talker).map(|it| &it.receive))?;
        let work = self.range(after, Some(&it.work))?;
        Ok((receive.0 + work.0, receive.1 + work.1))
    }

    /// The least and the most of a time that may differ.
    fn range(&self, stream: &NetStream, delay: Option<&NetDelay>) -> Result<Times, Unbounded> {
        let (least, most) = delay.map_or((Span::ZERO, Some(Span::ZERO)), NetDelay::range);
        let most = most.ok_or_else(|| no(self.file, stream, FOR_EVER))?;
        Ok((least, most))
    }

    fn station(&self, name: &StationName) -> Option<&NetStation> {
        self.file.stations.iter().find(|it| it.name == *name)
    }
}

/// The stream that begins a chain: all others have as many messages.
///
/// **Errors**: it goes round.
pub(super) fn source<'f>(
    file: &'f NetworkFile,
    stream: &'f NetStream,
) -> Result<&'f NetStream, Unbounded> {
    let mut first = stream;
    for _ in 0..=file.streams.len() {
        match file.followed(first) {
            Some(before) => first = before,
            None => return Ok(first),
        }
    }
    Err(no(file, stream, "it follows itself"))
}

/// The least time between two requests: the next one goes after the answer, or after the timeout.
pub(super) fn between_requests(file: &NetworkFile, stream: &NetStream) -> Option<Span> {
    let NetTraffic::Request(it) = &stream.traffic else { return None };
    let mut there_and_back = least(file, stream);
    let mut answer = file.streams.iter().find(|other| other.name == it.answer)?;
    for _ in 0..=file.streams.len() {
        let NetTraffic::After(step) = &answer.traffic else { break };
        there_and_back = there_and_back + least(file, answer) + step.work.range().0;
        answer = file.followed(answer)?;
        if answer.name == stream.name {
            return Some(it.timeout.min(it.think.range().0 + there_and_back));
        }
    }
    // Answers that nobody asks for.
    Some(it.timeout.min(it.think.range().0))
}

/// The time of a frame on its links; of a stream with several listeners, on the first. Where a
/// bridge cuts through, its times on two links overlap, and that on the last is all that is sure.
fn least(file: &NetworkFile, stream: &NetStream) -> Span {
    let links: Vec<LinkId> = route::of_stream(file, stream).unwrap_or_default();
    let count = if stream.listeners.all().len() > 1 { 1 } else { links.len() };
    let cuts_through = file.bridges.iter().any(|it| it.cut_through.is_some());
    let one = |(place, link): (usize, &LinkId)| {
        let link = &file.links[link.index() / 2];
        let is_whole = !cuts_through || place + 1 == links.len();
        let whole = link.rate.duration_of(stream.frame_len().wire_len());
        link.delay + if is_whole { whole } else { Span::ZERO }
    };
    let times = links.iter().enumerate().take(count).map(one);
    times.fold(Span::ZERO, |sum, one| sum + one)
}

pub(super) fn no(file: &NetworkFile, stream: &NetStream, what: &str) -> Unbounded {
    of_stream(file, stream, "source", format!("nothing bounds {}: {what}", stream.name))
}

const FOR_EVER: &str = "its messages can be late for ever";

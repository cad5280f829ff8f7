// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds for the streams of a file that are not scheduled.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use timewire_base::{BitsPerSecond, Span};
use timewire_model::scenario::network::{
    NetCbsRules, NetDelay, NetGates, NetStream, NetTraffic, NetworkFile,
};
use timewire_tsn::port::EXPRESS_WAIT_BYTES;

use super::chains::{self, Chains, TURNS};
use super::{FileProblem, base_stream, ends, link_name, network, ports_of, route};
use crate::bounds::{
    BoundsError, ClassGates, ClassWindow, NoBound, PortScheme, Route, Selection, bound,
};
use crate::model::{LinkId, MAX_FRAMES, Plan, Problem, Role, Stream, StreamId, bytes_time};

/// What a stream that is not scheduled never exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestBound {
    /// Its place in the file.
    pub stream: usize,
    /// From a message's arrival at the talker's port until its last bit is at the listener, and how
    /// much that can differ; or why there is no bound.
    pub bound: Result<(Span, Span), Unbounded>,
}

/// Why a stream has no bound, or none of them has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{port} class {class}: {text}")]
pub struct Unbounded {
    /// The port with the cause: the link that it sends on, or the segment.
    pub port: String,
    /// The traffic class there.
    pub class: u8,
    /// One word for it.
    pub cause: &'static str,
    /// The cause as a sentence.
    pub text: String,
}

/// Bounds for all streams that are not scheduled, beside those of a plan.
///
/// **Errors**: something in the file for which there are none; it would hurt all others as well.
pub fn bounds(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
) -> Result<Vec<RestBound>, Unbounded> {
    bounds_by(file, given, plan, behind_gates)
}

/// The same where kernels count the credit: behind a gate a class of Linux may have the open part
/// of its rate only.
///
/// **Errors**: as [`bounds`].
pub fn bounds_on_linux(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
) -> Result<Vec<RestBound>, Unbounded> {
    bounds_by(file, given, plan, |_, _| ())
}

fn bounds_by(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
    credit: fn(&mut PortScheme, BitsPerSecond),
) -> Result<Vec<RestBound>, Unbounded> {
    let rest = |(index, stream): (usize, &NetStream)| (!stream.scheduled).then_some(index);
    let places: Vec<usize> = file.streams.iter().enumerate().filter_map(rest).collect();
    let Some(first) = places.first().map(|place| &file.streams[*place]) else {
        return Ok(Vec::new());
    };
    if !file.segments.is_empty() || file.schedule.is_some() {
        let why = "there are no bounds for shared segments".to_owned();
        return Err(of_stream(file, first, "segment", why));
    }
    let chains = Chains { file, given, plan };
    let mut sources = Sources { late: vec![Span::ZERO; file.streams.len()], ..Sources::default() };
    // Each stream that is later at each turn has no bound in the end.
    for _ in 0..=file.streams.len() {
        let mut later = BTreeSet::new();
        for _ in 0..TURNS {
            let found = with_sources(chains, &places, &mut sources, credit)?;
            later = sources.take(chains.lateness(&found));
            if later.is_empty() {
                return Ok(chains.whole(&found));
            }
        }
        for place in later {
            let why = "streams that wait for each other are later at each turn".to_owned();
            let why = of_stream(file, &file.streams[place], "source", why);
            sources.unknown.entry(place).or_insert(why);
        }
    }
    let why = "streams that wait for each other are later at each turn".to_owned();
    Err(of_stream(file, first, "source", why))
}

/// The longest frame that a link takes, of a stream of which nobody knows the lengths.
///
/// **Units**: bytes, without preamble and gap.
const LONGEST: u32 = 9_022;

/// What is known of what streams send, by their places in the file.
#[derive(Default)]
struct Sources {
    /// How late messages are at most, beside what their own station adds.
    late: Vec<Span>,
    /// Streams that may send anything.
    unknown: BTreeMap<usize, Unbounded>,
}

impl Sources {
    /// Takes how late streams are; those of which more is to be expected now.
    fn take(&mut self, lateness: Vec<Result<Span, Unbounded>>) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        for (place, late) in lateness.into_iter().enumerate() {
            if self.unknown.contains_key(&place) {
                continue;
            }
            match late {
                Ok(late) if late > self.late[place] => self.late[place] = late,
                Ok(_) => continue,
                Err(why) => drop(self.unknown.insert(place, why)),
            }
            changed.insert(place);
        }
        changed
    }

    /// What a stream sends, and how many frames can come together. Of one that may send anything,
    /// more than any link carries: its class and those below it have no bound where it goes, and
    /// those above wait for its longest frame only.
    fn arrival(&mut self, file: &NetworkFile, place: usize, route: &[LinkId]) -> (Stream, u32) {
        let stream = &file.streams[place];
        if !self.unknown.contains_key(&place) {
            match arrival(file, stream, self.late[place]) {
                Ok(known) => return known,
                Err(why) => drop(self.unknown.insert(place, why)),
            }
        }
        let rates = route.iter().map(|link| file.links[ends(file, *link).2].rate);
        let times = rates.map(|rate| rate.duration_of(stream.frame_len().wire_len()).as_ns());
        let interval = Span::from_ns((times.min().unwrap_or(2) / 2).max(1));
        let mut made = base_stream(file, stream, interval);
        if stream.size.is_none() {
            made.length_bytes = LONGEST;
        }
        (made, 1)
    }

    /// Why a stream has no bound: a stream that may send anything goes before its queue, or
    /// through it, or the queue says so itself.
    fn cause(
        &self,
        problem: &Problem,
        (places, routes): (&[usize], &[Route]),
        why: &NoBound,
    ) -> Unbounded {
        let found = cause(problem, why, why.cause.describe(problem));
        let is_load = matches!(found.cause, "overload" | "too_large" | "circular");
        let goes_there = |route: &Route| {
            let class = problem.stream(route.stream).priority;
            route.links.contains(&why.origin.link) && class >= why.origin.class
        };
        let all = places.iter().zip(routes).filter(|(_, route)| is_load && goes_there(route));
        match all.filter_map(|(place, _)| self.unknown.get(place)).next() {
            Some(unknown) => {
                Unbounded { cause: unknown.cause, ..cause(problem, why, unknown.text.clone()) }
            }
            None => found,
        }
    }
}

/// The bounds with what is known of the sources.
fn with_sources(
    Chains { file, given, plan }: Chains<'_>,
    places: &[usize],
    sources: &mut Sources,
    credit: fn(&mut PortScheme, BitsPerSecond),
) -> Result<Vec<RestBound>, Unbounded> {
    let Some(first) = places.first().map(|place| &file.streams[*place]) else {
        return Ok(Vec::new());
    };
    let failed = |why: &dyn std::fmt::Display| of_stream(file, first, "network", why.to_string());
    let network = network(file).map_err(|why| failed(&why))?;
    let mut problem = Problem::new(network, Vec::new()).map_err(|why| failed(&why))?;
    let mut routes = Vec::new();
    for place in places {
        let stream = &file.streams[*place];
        let no = |why: &dyn std::fmt::Display| of_stream(file, stream, "route", why.to_string());
        let links = route::of_stream(file, stream);
        let links = links.ok_or_else(|| no(&format!("{} has no route", stream.name)))?;
        let (made, together) = sources.arrival(file, *place, &links);
        let id = problem.add_unscheduled(made).map_err(|why| no(&why))?;
        routes.push(Route { stream: id, links, together });
    }
    for (stream, link) in without_gates(given, plan)? {
        let stream = given.problem.stream(stream).clone();
        let stream = problem.add_unscheduled(stream).map_err(|why| failed(&why))?;
        routes.push(Route { stream, links: vec![link], together: 0 });
    }
    let links = (0..2 * file.links.len()).map(LinkId::from_index);
    let scheme = |link: LinkId| {
        let mut scheme = scheme(file, plan, link)?;
        credit(&mut scheme, file.links[ends(file, link).2].rate);
        Ok(scheme)
    };
    let schemes = links.map(scheme).collect::<Result<Vec<_>, _>>()?;
    let found = bound(&problem, &routes, &schemes);
    let found = found.map_err(|why| settings(&problem, &why).unwrap_or_else(|| failed(&why)))?;
    let rows = places.iter().zip(found.streams);
    let span = Span::ZERO;
    Ok(rows
        .map(|(place, own)| RestBound {
            stream: *place,
            bound: match (sources.unknown.get(place), own.without) {
                (Some(why), _) => Err(why.clone()),
                (None, Some(why)) => Err(sources.cause(&problem, (places, &routes), &why)),
                (None, None) => Ok((own.latency.unwrap_or(span), own.jitter.unwrap_or(span))),
            },
        })
        .collect())
}

/// Something about a stream, at the port of its talker.
pub(super) fn of_stream(
    file: &NetworkFile,
    stream: &NetStream,
    cause: &'static str,
    text: String,
) -> Unbounded {
    let links = route::of_stream(file, stream).unwrap_or_default();
    let port = links.first().map(|link| link_name(file, *link)).or_else(|| {
        let mut segments = file.segments.iter();
        let segment = segments.find(|segment| segment.stations.contains(&stream.talker))?;
        Some(format!("{}>{}", stream.talker, segment.name))
    });
    let port = port.unwrap_or_else(|| stream.talker.to_string());
    Unbounded { port, class: u8::try_from(stream.class.get()).unwrap_or(7), cause, text }
}

/// Settings of a queue that have no bound.
fn settings(problem: &Problem, why: &BoundsError) -> Option<Unbounded> {
    let queue = why.queue(problem)?;
    let port = problem.network().links().get(queue.link.index())?.name.clone();
    let text = match why {
        BoundsError::At { error, .. } => error.describe(problem),
        other => other.describe(problem),
    };
    let cause = if matches!(why, BoundsError::Route { .. }) { "route" } else { "settings" };
    Some(Unbounded { port, class: queue.class, cause, text })
}

/// A cause with this sentence.
fn cause(problem: &Problem, why: &NoBound, mut text: String) -> Unbounded {
    let port = problem.network().link(why.origin.link).name.clone();
    if why.first != why.origin {
        text = format!("{text}; {} depends on it", why.first.describe(problem));
    }
    Unbounded { port, class: why.origin.class, cause: why.cause.kind(), text }
}

/// Planned streams and the ports of their talkers that have no gates for them: there they go before
/// others, and no gate says when.
///
/// **Errors**: a bridge without gates, to which planned frames come as early or late as others made
/// them.
fn without_gates(given: &FileProblem, plan: &Plan) -> Result<Vec<(StreamId, LinkId)>, Unbounded> {
    let network = given.problem.network();
    let mut found = Vec::new();
    for admission in &plan.admitted {
        for sent in admission.transmissions.iter().filter(|sent| sent.frame == 0) {
            if plan.gates.iter().any(|gates| gates.link == sent.link) {
                continue;
            }
            let node = network.node(network.link(sent.link).from);
            if node.role == Role::Bridge {
                return Err(Unbounded {
                    port: network.link(sent.link).name.clone(),
                    class: given.problem.stream(admission.stream).priority,
                    cause: "no_gates",
                    text: format!("{} has no gates, and planned frames go through it", node.name),
                });
            }
            found.push((admission.stream, sent.link));
        }
    }
    Ok(found)
}

/// What a stream sends at most, which can be so late beside what its own station adds: so many
/// frames in each interval, and how many can come together.
fn arrival(file: &NetworkFile, stream: &NetStream, late: Span) -> Result<(Stream, u32), Unbounded> {
    let no = |what: &str| chains::no(file, stream, what);
    if stream.launch.is_some() {
        return Err(no("it has launch times"));
    }
    let source = chains::source(file, stream)?;
    let (interval, frames, jitter) = match &source.traffic {
        NetTraffic::Cyclic(it) => (it.period, it.burst.get(), Some(&it.jitter)),
        NetTraffic::Sporadic(it) => (it.gap.range().0, 1, None),
        NetTraffic::Flood(it) => {
            // What follows a flood has as many messages, of its own length.
            let one = it.rate.duration_of(source.frame_len().wire_len());
            let frames = i64::try_from(it.burst.get()).unwrap_or(i64::MAX);
            let interval = one.checked_mul(frames).ok_or_else(|| no("it is too slow"))?;
            (interval, it.burst.get(), None)
        }
        NetTraffic::Request(_) => {
            (chains::between_requests(file, source).unwrap_or(Span::ZERO), 1, None)
        }
        NetTraffic::After(_) => return Err(no("it follows itself")),
        NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_) => {
            return Err(no("programs on a segment send it"));
        }
        NetTraffic::Replay(_) => return Err(no("it is a replay")),
    };
    if interval <= Span::ZERO {
        return Err(no("there is no least time between two messages"));
    }
    let varies = |delay: &NetDelay| delay.range().1.map(|most| most - delay.range().0);
    let send = file.stations.iter().find(|station| station.name == stream.talker);
    let send = send.map_or(Some(Span::ZERO), |station| varies(&station.send));
    // That of the first of a chain is a part of how late the others are.
    let jitter = jitter.filter(|_| !matches!(stream.traffic, NetTraffic::After(_)));
    let own = jitter.map_or(Some(Span::ZERO), varies).zip(send).map(|(a, b)| a + b);
    let late = own.map(|own| own + late);
    let late = late.ok_or_else(|| no("its messages can be late for ever"))?;
    // Whoever is late comes together with those after it.
    let pile = late.as_ns().div_euclid(interval.as_ns()) + i64::from(late > Span::ZERO);
    let pile = u64::try_from(pile).unwrap_or(u64::MAX).saturating_add(1);
    let together = frames.saturating_mul(pile);
    if together > u64::from(MAX_FRAMES) {
        return Err(no(&format!("{together} frames can come at once, more than {MAX_FRAMES}")));
    }
    if let Some(ats) = &stream.ats {
        // What conforms is not delayed by its shapers (IEEE 802.1Q-2022, 8.6.11); anything else is.
        let bytes = u64::from(stream.frame_len().wire_len().get());
        let bits = u128::from(bytes) * 8 * u128::from(frames) * 1_000_000_000;
        let shaped = u128::from(ats.rate.get()) * interval.as_ns().unsigned_abs() as u128;
        if bytes.saturating_mul(together) > u64::from(ats.burst.get()) || bits > shaped {
            return Err(no("it can send more than its `ats` lets through, and waits for that"));
        }
    }
    let mut made = base_stream(file, stream, interval);
    made.frames = u32::try_from(frames).unwrap_or(u32::MAX);
    Ok((made, u32::try_from(together).unwrap_or(u32::MAX)))
}

/// How the port that sends on a link chooses.
fn scheme(file: &NetworkFile, plan: &Plan, link: LinkId) -> Result<PortScheme, Unbounded> {
    let (own, _, index) = ends(file, link);
    let hold_advance = bytes_time(file.links[index].rate, EXPRESS_WAIT_BYTES);
    let mut scheme = PortScheme { hold_advance, ..PortScheme::default() };
    let place = |class: u64| usize::try_from(class).unwrap_or(7).min(7);
    for port in ports_of(file, link) {
        if let Some(gates) = &port.gates {
            scheme.gates = Some(windows(gates));
        }
        for credit in &port.cbs {
            if credit.rules == NetCbsRules::Linux {
                let class = u8::try_from(credit.class.get()).unwrap_or(7);
                let text = format!("{own} counts credit as Linux does");
                let port = link_name(file, link);
                return Err(Unbounded { port, class, cause: "linux_credit", text });
            }
            let idle_slope: BitsPerSecond = credit.idle_slope;
            scheme.classes[place(credit.class.get())] = Selection::Credit { idle_slope };
        }
        for class in &port.ats {
            scheme.classes[place(class.get())] = Selection::Regulated;
        }
        for class in &port.preemptable {
            scheme.preemptable |= 1 << place(class.get());
        }
        scheme.hold_advance = port.hold_advance.unwrap_or(scheme.hold_advance);
    }
    if let Some(gates) = plan.gates.iter().find(|gates| gates.link == link) {
        scheme.gates = Some(ClassGates::beside(gates));
    }
    Ok(scheme)
}

/// Credit grows faster while the gate of its class is open, so that the class has what it reserves
/// over a cycle. One that grows as fast as the port sends keeps no frame waiting.
///
/// **Source**: IEEE 802.1Q-2022, 8.6.8.2.
fn behind_gates(scheme: &mut PortScheme, rate: BitsPerSecond) {
    let Some(gates) = &scheme.gates else { return };
    let cycle = u128::try_from(gates.cycle.as_ns()).unwrap_or(0);
    for (class, selection) in scheme.classes.iter_mut().enumerate() {
        let Selection::Credit { idle_slope } = selection else { continue };
        let windows = gates.windows.iter().filter(|window| window.open >> class & 1 == 1);
        let open = windows.fold(Span::ZERO, |sum, window| sum + (window.end - window.start));
        let Ok(open @ 1..) = u128::try_from(open.as_ns()) else { continue };
        let slope = u128::from(idle_slope.get()) * cycle / open;
        let slope = u64::try_from(slope).ok().and_then(BitsPerSecond::new);
        *selection = match slope.filter(|slope| *slope < rate) {
            Some(idle_slope) => Selection::Credit { idle_slope },
            None => Selection::Strict,
        };
    }
}

fn windows(gates: &NetGates) -> ClassGates {
    let total = gates.entries.iter().fold(Span::ZERO, |sum, entry| sum + entry.interval);
    let cycle = gates.cycle_time.unwrap_or(total);
    let (mut windows, mut start) = (Vec::new(), Span::ZERO);
    for (index, entry) in gates.entries.iter().enumerate() {
        let last = index + 1 == gates.entries.len();
        let end = if last { cycle } else { start + entry.interval };
        let open = entry.open.iter().fold(0, |mask, class| mask | 1 << class.get().min(7));
        windows.push(ClassWindow { start, end, open, hold: entry.hold });
        start = end;
    }
    ClassGates { cycle, windows }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that users ask a network for, in the network of a file: which stations they are between,
//! what they want of a plan, and what the users are told of it.
//!
//! An interface is found by its address among those of the file's stations, or else by a station of
//! its name. Users count latency from the start of the interval when the talker knows the time. So
//! the latest start is one from which the message is still in time.
//!
//! **Source**: IEEE 802.1Q-2022 clauses 46.2.3 and 46.2.5 with Table 46-15, as 802.1Qdj-2024 has
//! them in `ieee802-dot1q-cnc-config`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use timewire_base::Span;
use timewire_model::scenario::network::NetworkFile;
use timewire_tsn::file::without_streams;

use super::{FileProblem, node_id, problem, route};
use crate::exchange::{Uni, UniInterface, UniStream};
use crate::model::{
    Arrival, Certificate, Forwarding, LinkId, MAX_FRAMES, Network, NodeId, Plan, Release, Role,
    Route, Stream, StreamId,
};

/// Ethernet around a payload: addresses, type and check sequence; and a tag. **Units**: bytes.
const FRAMING: u32 = 18;
const TAG: u32 = 4;
/// Payloads of Ethernet, shortest and longest. **Units**: bytes.
const PAYLOAD: (u32, u32) = (46, 1_500);
/// What the file counts to a frame besides its message and the check sequence: Ethernet, IPv4 and
/// UDP. **Units**: bytes.
const HEADERS: u32 = 42;
const CHECK: u32 = 4;
/// The most redundant copies of a stream.
const MAX_COPIES: u8 = 4;
/// The latency of a stream that asks for none.
const ANY: Span = Span::from_secs(1_000);

/// Why a stream was not even given to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniRefusal {
    /// Of Table 46-15.
    pub code: u8,
    /// In words.
    pub why: String,
}

/// A file with the streams that users ask for.
#[derive(Clone, Debug)]
pub struct UniPlaced {
    /// The file with those streams in it that it can express: no redundancy.
    pub file: NetworkFile,
    /// All streams with a place.
    pub given: FileProblem,
    /// By stream of the request.
    pub placed: Vec<Result<StreamId, UniRefusal>>,
}

/// What is wrong with the request in this network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream {stream}: {what}\n  remedy: {remedy}")]
pub struct UniError {
    /// Which stream of the request.
    pub stream: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

/// The name of a stream in files and results: that of the network file take no colons.
pub fn uni_name(id: &str) -> String {
    let plain = id.to_ascii_lowercase().replace('-', "");
    format!("s-{}", plain.replace(':', "-"))
}

/// Puts the streams of a request into a network.
///
/// **Errors**: an interface that is none of the network's; numbers beyond what is planned; a class
/// that something that is rejected has.
pub fn with_uni(file: &NetworkFile, uni: &Uni) -> Result<UniPlaced, UniError> {
    let wrong = |stream: &UniStream, what: String, remedy: &str| UniError {
        stream: stream.id.clone(),
        what,
        remedy: remedy.to_owned(),
    };
    let first = &uni.streams[0];
    let mut given =
        problem(file).map_err(|error| wrong(first, error.to_string(), "another network"))?;
    let mut merged = file.to_json();
    let mut streams = merged["streams"].as_array().cloned().unwrap_or_default();
    let stations = Stations::new(file);
    // Those that a file cannot express are only held against its rules.
    let mut extra = Vec::new();
    let mut placed = Vec::new();
    for asked in &uni.streams {
        let made = match stations.stream(&given, asked)? {
            Ok(made) => made,
            Err(refusal) => {
                placed.push(Err(refusal));
                continue;
            }
        };
        let remedy = "see the bounds of a stream in the book";
        let (entry, whole) = (expressed(file, &made, asked.tagged), made.copies == 1);
        let id =
            given.problem.add(made).map_err(|error| wrong(asked, error.to_string(), remedy))?;
        given.streams.push(whole.then_some(streams.len()));
        if whole {
            streams.push(entry)
        } else {
            extra.push(entry)
        }
        placed.push(Ok(id));
    }
    let count = streams.len();
    streams.append(&mut extra);
    merged["streams"] = Value::Array(streams);
    let text = merged.to_string();
    let file = without_streams("the network with the streams in it", &text);
    let file = file.map_err(|errors| {
        let what = "the network cannot have the streams".to_owned();
        wrong(first, what, &errors.to_string())
    })?;
    let mut file = file.base;
    file.streams.truncate(count);
    Ok(UniPlaced { file, given, placed })
}

/// The stream as a file has it, but for redundancy.
fn expressed(file: &NetworkFile, made: &Stream, tagged: bool) -> Value {
    let around = HEADERS + CHECK + if tagged { TAG } else { 0 };
    let station = |id: NodeId| file.stations[id.index()].name.as_str();
    let to = made.listeners.iter().map(|id| station(*id));
    json!({
        "name": made.name,
        "talker": station(made.talker),
        "listeners": to.collect::<Vec<&str>>(),
        "class": made.priority,
        "tagged": tagged,
        "size": format!("{}B", made.length_bytes - around),
        "period": made.interval.to_string(),
        "scheduled": true,
        "max_latency": made.latency_max.to_string(),
    })
}

/// Stations by what users call them.
struct Stations<'a> {
    file: &'a NetworkFile,
    macs: BTreeMap<String, NodeId>,
}

impl Stations<'_> {
    fn new(file: &NetworkFile) -> Stations<'_> {
        let mut macs = BTreeMap::new();
        for station in &file.stations {
            for mac in &station.mac {
                macs.insert(mac.to_string(), node_id(file, &station.name));
            }
        }
        Stations { file, macs }
    }

    /// The one station of all these interfaces.
    fn find(&self, asked: &UniStream, all: &[UniInterface]) -> Result<NodeId, UniError> {
        let wrong = |what: String, remedy: &str| UniError {
            stream: asked.id.clone(),
            what,
            remedy: remedy.to_owned(),
        };
        let mut found: Option<NodeId> = None;
        for interface in all {
            let by_mac = self.macs.get(&interface.mac.to_ascii_lowercase().replace('-', ":"));
            let named = || {
                let is_it =
                    |name: &timewire_base::StationName| name.as_str() == interface.name.as_str();
                let station = self.file.stations.iter().find(|station| is_it(&station.name));
                station.map(|station| node_id(self.file, &station.name))
            };
            let station = by_mac.copied().or_else(named).ok_or_else(|| {
                let what = format!(
                    "the interface with mac-address `{}` and interface-name `{}` is of no station",
                    interface.mac, interface.name
                );
                let remedy = "give a station of the network file this `mac`, or call the interface \
                              as a station";
                wrong(what, remedy)
            })?;
            if found.is_some_and(|found| found != station) {
                let what = "its interfaces are of several stations".to_owned();
                return Err(wrong(what, "one station as talker, and one in each listener"));
            }
            found = Some(station);
        }
        found.ok_or_else(|| wrong("it has no interface".to_owned(), "name one"))
    }

    fn stream(
        &self,
        given: &FileProblem,
        asked: &UniStream,
    ) -> Result<Result<Stream, UniRefusal>, UniError> {
        let talker = self.find(asked, &asked.talker)?;
        let mut listeners = Vec::new();
        for listener in &asked.listeners {
            listeners.push(self.find(asked, &listener.interfaces)?);
        }
        if asked.frame_size > PAYLOAD.1 {
            let why = format!("frames with {} bytes of payload do not go", asked.frame_size);
            return Ok(Err(UniRefusal { code: TOO_LARGE, why }));
        }
        if asked.trees > MAX_COPIES || asked.frames > MAX_FRAMES {
            let why = format!(
                "{} trees and {} frames in an interval; at most {MAX_COPIES} and {MAX_FRAMES}",
                asked.trees, asked.frames
            );
            return Ok(Err(UniRefusal { code: NO_RESOURCES, why }));
        }
        let tag = if asked.tagged { TAG } else { 0 };
        let length = asked.frame_size.max(PAYLOAD.0) + FRAMING + tag;
        let mut made = Stream::new(uni_name(&asked.id), talker, talker, asked.interval, length);
        made.listeners = listeners;
        made.frames = asked.frames;
        made.priority = asked.priority.unwrap_or(7);
        made.copies = asked.trees;
        if made.copies == 1
            && let Some(tree) = route::tree(self.file, talker, &made.listeners)
        {
            made.route = Route::Given(vec![tree]);
        }
        Ok(times(given.problem.network(), asked, made))
    }
}

/// When it may start, and how long it may take from there.
fn times(network: &Network, asked: &UniStream, mut made: Stream) -> Result<Stream, UniRefusal> {
    let listeners = asked.listeners.iter().filter_map(|listener| listener.latency_max);
    let wanted = listeners.chain(asked.latency_max).min();
    let last = asked.interval - Span::from_ns(1);
    let late = |why: String| UniRefusal { code: LATENCY, why };
    let Some(aware) = asked.time_aware else {
        made.arrival = Arrival::Sporadic;
        // Its message can have missed its turn just before.
        made.latency_max = wanted.map_or(ANY, |wanted| wanted - asked.interval);
        if made.latency_max <= Span::ZERO {
            return Err(late(format!(
                "its talker keeps to no time, so a message waits up to {} for its turn",
                asked.interval
            )));
        }
        return Ok(made);
    };
    // Told to begin at an instant, it begins up to its jitter later; by then the frame is there.
    let earliest = aware.earliest + aware.jitter;
    let latest = aware.latest.map_or(last, |latest| (latest + aware.jitter).min(last));
    made.release = Release { earliest, latest: Some(latest) };
    if earliest > last {
        return Err(late(format!("it begins {earliest} after its interval of {}", asked.interval)));
    }
    let Some(wanted) = wanted else {
        made.latency_max = ANY;
        return Ok(made);
    };
    if wanted <= earliest {
        return Err(late(format!("it begins at {earliest} and is to be there by {wanted}")));
    }
    let (until, span) = match alone(network, &made) {
        Some(alone) => (wanted - alone, wanted - earliest),
        // Its ways are not known yet: half of the time for the start, half for the way.
        None => {
            let half = Span::from_ns((wanted - earliest).as_ns() / 2);
            (earliest + half, wanted - earliest - half)
        }
    };
    made.latency_max = span.max(Span::from_ns(1));
    made.release.latest = Some(latest.min(until).max(earliest));
    Ok(made)
}

/// From the start of its message until it is whole at the last listener when nothing is in its way;
/// `None`: its ways are not given.
fn alone(network: &Network, stream: &Stream) -> Option<Span> {
    let Route::Given(trees) = &stream.route else { return None };
    let mut there: BTreeMap<NodeId, (Span, LinkId, Span)> = BTreeMap::new();
    let mut most = Span::ZERO;
    for id in trees.iter().flatten() {
        let link = network.link(*id);
        let busy = network.occupancy(*id, stream.length_bytes);
        let (start, slowest) = match there.get(&link.from) {
            Some((start, before, slowest)) => {
                (*start + step(network, stream, *before, *id), busy.max(*slowest))
            }
            None => (Span::ZERO, busy),
        };
        there.insert(link.to, (start, *id, slowest));
        if stream.listeners.contains(&link.to) {
            let others = i64::from(stream.frames.saturating_sub(1));
            let others = slowest.checked_mul(others).unwrap_or(ANY);
            most = most.max(start + busy + link.propagation + others);
        }
    }
    Some(most)
}

fn step(network: &Network, stream: &Stream, from: LinkId, to: LinkId) -> Span {
    let (incoming, node) = (network.link(from), network.node(network.link(from).to));
    let whole = network.occupancy(from, stream.length_bytes);
    let until = match node.forwarding {
        Forwarding::CutThrough { header_bytes } if incoming.rate == network.link(to).rate => {
            network.header_time(from, header_bytes).min(whole)
        }
        _ => whole,
    };
    until + incoming.propagation + node.processing_max + network.options().sync_error
}

// Codes of Table 46-15.
const NO_BANDWIDTH: u8 = 1;
const NO_RESOURCES: u8 = 2;
const NO_CLASS_BANDWIDTH: u8 = 3;
const NOT_CAPABLE: u8 = 8;
const TOO_LARGE: u8 = 14;
const LATENCY: u8 = 21;

/// The failure code of Table 46-15 that comes nearest to a reason.
pub fn failure_code(certificate: &Certificate) -> u8 {
    match certificate {
        Certificate::MinimumLatency { .. } => LATENCY,
        Certificate::Window { .. } | Certificate::LinkLoad { .. } => NO_BANDWIDTH,
        Certificate::PairConflict { .. }
        | Certificate::Clique { .. }
        | Certificate::Packing { .. }
        | Certificate::Cases { .. } => NO_CLASS_BANDWIDTH,
        Certificate::NoInstant { .. } => NOT_CAPABLE,
        Certificate::NoPath { .. }
        | Certificate::Jitter { .. }
        | Certificate::Solver { .. }
        | Certificate::GateLimit { .. }
        | Certificate::Kept { .. }
        | Certificate::NotFound { .. } => NO_RESOURCES,
    }
}

impl UniPlaced {
    /// The code of a stream of the request; 0: it is admitted.
    pub fn code(&self, plan: &Plan, index: usize) -> u8 {
        match &self.placed[index] {
            Err(refusal) => refusal.code,
            Ok(id) => {
                let refused = plan.refused.iter().find(|refusal| refusal.stream == *id);
                refused.map_or(0, |refusal| failure_code(&refusal.certificate))
            }
        }
    }

    /// What the users are told, as instance data of the module they asked with.
    pub fn status(&self, uni: &Uni, plan: &Plan) -> Value {
        let mut domains: Vec<Value> = Vec::new();
        for (index, asked) in uni.streams.iter().enumerate() {
            let status = self.stream_status(asked, plan, index);
            let domain = entry(&mut domains, "domain-id", &asked.domain, "cuc");
            let cuc = entry(domain, "cuc-id", &asked.cuc, "stream");
            cuc.push(status);
        }
        json!({"ieee802-dot1q-cnc-config:cnc-config": {"domain": domains}})
    }

    fn stream_status(&self, asked: &UniStream, plan: &Plan, index: usize) -> Value {
        let code = self.code(plan, index);
        let mut told = asked.asked.clone();
        let id = self.placed[index].as_ref().ok().filter(|_| code == 0);
        let times = id.and_then(|id| self.times(asked, plan, *id));
        clear(&mut told);
        if let Some((start, arrivals)) = &times {
            told["talker"]["accumulated-latency"] = latency(arrivals.values().max());
            if let Some(aware) = asked.time_aware {
                let offset = json!([{
                    "index": 0,
                    "time-aware-offset": (*start - aware.jitter).as_ns(),
                }]);
                let list: Vec<Value> = asked.talker.iter().map(|it| named(it, &offset)).collect();
                told["talker"]["interface-configuration"] = json!({"interface-list": list});
            }
        }
        for place in 0..asked.listeners.len() {
            if let (Some(id), Some((_, arrivals))) = (id, &times) {
                let node = self.given.problem.stream(*id).listeners[place];
                told["listener"][place]["accumulated-latency"] = latency(arrivals.get(&node));
            }
        }
        // Which of the listeners could have been served is not looked for.
        let word = if code == 0 { "ready" } else { "failed" };
        told["stream-status"] = json!("planned");
        told["status-info"] = json!({
            "talker-status": word,
            "listener-status": word,
            "failure-code": code,
        });
        told
    }

    /// The start at the talker, and by listener until when the message takes: from the start of the
    /// interval, or without a time of the talker from when it is there at the latest.
    fn times(
        &self,
        asked: &UniStream,
        plan: &Plan,
        id: StreamId,
    ) -> Option<(Span, BTreeMap<NodeId, Span>)> {
        let network = self.given.problem.network();
        let stream = self.given.problem.stream(id);
        let admission = plan.admitted.iter().find(|admission| admission.stream == id)?;
        let talks = |link: LinkId| network.link(link).from == stream.talker;
        let sent = admission.transmissions.iter();
        let start = sent.clone().filter(|sent| talks(sent.link)).map(|sent| sent.start).min()?;
        let since = match asked.time_aware {
            Some(_) => Span::ZERO,
            None => start - asked.interval,
        };
        let mut arrivals: BTreeMap<NodeId, Span> = BTreeMap::new();
        for sent in sent {
            let link = network.link(sent.link);
            if network.node(link.to).role == Role::EndStation {
                let busy = network.occupancy(sent.link, stream.length_bytes);
                let whole = sent.start + busy + link.propagation - since;
                let known = arrivals.entry(link.to).or_insert(whole);
                *known = whole.max(*known);
            }
        }
        Some((start, arrivals))
    }
}

/// Takes out what another answer said, and completes the keys of interfaces.
fn clear(told: &mut Value) {
    let remove = |of: &mut Value, names: &[&str]| {
        let Some(map) = of.as_object_mut() else { return };
        names.iter().for_each(|name| drop(map.remove(*name)));
    };
    remove(told, &["failed-interfaces"]);
    let mut ends: Vec<&mut Value> = Vec::new();
    for (name, end) in told.as_object_mut().into_iter().flatten() {
        match (name.as_str(), end) {
            ("talker", talker) => ends.push(talker),
            ("listener", Value::Array(listeners)) => ends.extend(listeners),
            _ => {}
        }
    }
    for end in ends {
        remove(end, &["accumulated-latency", "interface-configuration"]);
        let interfaces = end.get_mut("end-station-interfaces").and_then(Value::as_array_mut);
        for interface in interfaces.into_iter().flatten() {
            for key in ["mac-address", "interface-name"] {
                if interface.get(key).is_none() {
                    interface[key] = json!("");
                }
            }
        }
    }
}

/// A number of 32 bits.
fn latency(latency: Option<&Span>) -> Value {
    let ns = latency.map_or(0, |latency| latency.as_ns());
    json!(u32::try_from(ns).unwrap_or(u32::MAX))
}

fn named(interface: &UniInterface, configuration: &Value) -> Value {
    json!({
        "mac-address": interface.mac,
        "interface-name": interface.name,
        "config-list": configuration,
    })
}

/// The list below the entry of this key, which is made when it is not there.
fn entry<'a>(list: &'a mut Vec<Value>, key: &str, id: &str, below: &str) -> &'a mut Vec<Value> {
    let place = list.iter().position(|value| value[key] == id).unwrap_or(list.len());
    if place == list.len() {
        list.push(json!({key: id, below: []}));
    }
    list[place][below].as_array_mut().expect("invariant: it was made with a list")
}

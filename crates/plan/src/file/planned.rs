// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file with its plan in it: gates at its ports, offsets and launch times of its streams, and
//! limits that say what the plan promises. A simulator takes it as any other file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use timewire_base::Span;
use timewire_model::scenario::ScenarioErrors;
use timewire_model::scenario::network::{NetStation, NetStream, NetworkFile};
use timewire_tsn::file::without_streams;
use timewire_tsn::port::EXPRESS_WAIT_BYTES;

use super::{FileProblem, ends, ports_of};
use crate::model::{Admission, LinkId, Plan, PortGates, Stream};

/// The file with the plan in it. Left out are streams that are not admitted, with limits
/// and faults of theirs, and those that a file cannot express. Messages of sporadic streams come in
/// every interval. Where a port has planned classes in one queue, all planned streams have one.
///
/// **Errors**: something else in the file refers to a stream that was left out.
pub fn planned(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
) -> Result<NetworkFile, ScenarioErrors> {
    with_classes(file, given, plan, &Classes::of(given, plan))
}

/// The same with the classes of the file at every port, as devices have them.
pub(super) fn by_class(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
) -> Result<NetworkFile, ScenarioErrors> {
    let classes = Classes { together: None, ..Classes::of(given, plan) };
    with_classes(file, given, plan, &classes)
}

fn with_classes(
    file: &NetworkFile,
    given: &FileProblem,
    plan: &Plan,
    classes: &Classes,
) -> Result<NetworkFile, ScenarioErrors> {
    let mut json = file.to_json();
    let left_out: BTreeSet<&str> =
        plan.refused.iter().map(|it| given.problem.stream(it.stream).name.as_str()).collect();
    let mut ports: Vec<Value> = json["ports"].as_array().cloned().unwrap_or_default();
    for gates in &plan.gates {
        let (own, far, _) = ends(file, gates.link);
        let mut port = json!({"of": [own.as_str()], "to": far.as_str()});
        let advance = hold_advance(file, given, gates.link);
        if let Some(advance) = advance {
            port["hold_advance"] = json!(advance.to_string());
        }
        let entries = entries(gates, plan, given, (classes, advance.is_some()));
        port["gates"] = json!({"cycle_time": gates.cycle.to_string(), "entries": entries});
        ports.push(port);
    }
    let mut limits = json["limits"].as_array().cloned().unwrap_or_default();
    for admission in &plan.admitted {
        let Some(index) = given.streams[admission.stream.index()] else { continue };
        let (stream, wanted) = (&file.streams[index], given.problem.stream(admission.stream));
        let talker = file.stations.iter().find(|station| station.name == stream.talker);
        let talker = talker.expect("invariant: a checked file has planned streams of stations");
        let lead = lead(talker);
        put(&mut json["streams"][index], talker, wanted, admission);
        let class = classes.together.unwrap_or(stream.class.get());
        json["streams"][index]["class"] = json!(class);
        if talker.device.launch_time.is_some() {
            let launch = json!([class]);
            ports.push(json!({"of": [stream.talker.as_str()], "launch": launch}));
        }
        limits.extend(promises(file, stream, wanted, lead));
    }
    let about = |value: &Value| {
        let name = value["stream"].as_str().unwrap_or_default();
        left_out.contains(name)
    };
    limits.retain(|limit| !about(limit));
    for (key, what) in [("faults", "stream"), ("streams", "name")] {
        if let Some(list) = json[key].as_array_mut() {
            list.retain(|it| !left_out.contains(it[what].as_str().unwrap_or_default()));
        }
    }
    (json["ports"], json["limits"]) = (Value::Array(ports), Value::Array(limits));
    json["tolerance"] = json!(file.tolerance.max(file.sync_error).to_string());
    without_streams("the planned network", &json.to_string()).map(|planned| planned.base)
}

/// How long before a window preemptable frames hold back, where a port has such: as the file says,
/// and as long as one takes that is too short to be cut.
fn hold_advance(file: &NetworkFile, given: &FileProblem, link: LinkId) -> Option<Span> {
    let ports = ports_of(file, link).filter(|port| !port.preemptable.is_empty());
    let told = ports.map(|port| port.hold_advance.unwrap_or(Span::ZERO)).max()?;
    Some(told.max(given.problem.network().header_time(link, EXPRESS_WAIT_BYTES)))
}

/// How long before its start a message is released.
fn lead(talker: &NetStation) -> Span {
    let send = talker.send.range().1.unwrap_or(Span::ZERO);
    send + talker.device.launch_time.unwrap_or(Span::ZERO)
}

/// The classes of all planned streams.
struct Classes {
    all: BTreeSet<u64>,
    /// The one that all of them have, where a port has several in one queue: they leave that in the
    /// order in which they come.
    together: Option<u64>,
}

impl Classes {
    fn of(given: &FileProblem, plan: &Plan) -> Classes {
        let all: BTreeSet<u64> =
            given.problem.streams().iter().map(|stream| stream.priority.into()).collect();
        let mut queues = plan.gates.iter().flat_map(|gates| queues(plan, given, gates.link));
        let is_shared = queues.any(|(_, classes)| classes.len() > 1);
        Classes { together: all.last().copied().filter(|_| is_shared), all }
    }
}

/// The classes of the streams in each planned queue of a port.
pub(super) fn queues(
    plan: &Plan,
    given: &FileProblem,
    link: LinkId,
) -> BTreeMap<u8, BTreeSet<u64>> {
    let mut queues: BTreeMap<u8, BTreeSet<u64>> = BTreeMap::new();
    for admission in &plan.admitted {
        let class = given.problem.stream(admission.stream).priority;
        for sent in admission.transmissions.iter().filter(|sent| sent.link == link) {
            queues.entry(sent.queue).or_default().insert(class.into());
        }
    }
    queues
}

/// States of a port's gates: each window for its queue, the time between for all that is not
/// planned.
pub(super) fn states(gates: &PortGates) -> Vec<(Option<u8>, Span)> {
    let (mut states, mut until) = (Vec::new(), Span::ZERO);
    for window in &gates.windows {
        if window.start > until {
            states.push((None, window.start - until));
        }
        states.push((Some(window.queue), window.end - window.start));
        until = window.end;
    }
    if until < gates.cycle {
        states.push((None, gates.cycle - until));
    }
    states
}

fn entries(
    gates: &PortGates,
    plan: &Plan,
    given: &FileProblem,
    (planned, holds): (&Classes, bool),
) -> Vec<Value> {
    let queues = queues(plan, given, gates.link);
    let rest: Vec<u64> = (0..8).filter(|class| !planned.all.contains(class)).collect();
    let open = |queue: Option<u8>| match (queue, planned.together) {
        (Some(_), Some(class)) => vec![class],
        (Some(queue), None) => queues.get(&queue).into_iter().flatten().copied().collect(),
        (None, _) => rest.clone(),
    };
    let states = states(gates).into_iter();
    let entry = |(queue, interval): (Option<u8>, Span)| {
        let hold = holds && queue.is_some();
        json!({"open": open(queue), "interval": interval.to_string(), "hold": hold})
    };
    states.map(entry).collect()
}

/// When the stream's messages are released, and their launch times.
fn put(json: &mut Value, talker: &NetStation, wanted: &Stream, admission: &Admission) {
    let first = &admission.transmissions[0];
    let next = admission.transmissions.get(1).filter(|next| next.link == first.link);
    let spacing = next.map_or(Span::ZERO, |next| next.start - first.start);
    let release = (first.start - lead(talker)).as_ns().rem_euclid(wanted.interval.as_ns());
    let Some(keys) = json.as_object_mut() else { return };
    for asked in ["scheduled", "max_latency", "max_jitter", "gap", "jitter"] {
        keys.remove(asked);
    }
    let released = [
        ("kind", json!("cyclic")),
        ("period", json!(wanted.interval.to_string())),
        ("offset", json!(Span::from_ns(release).to_string())),
        ("burst", json!(wanted.frames)),
        ("spacing", json!(spacing.to_string())),
    ];
    keys.extend(released.map(|(key, value)| (key.to_owned(), value)));
    if talker.device.launch_time.is_some() {
        keys.insert("launch".to_owned(), json!(lead(talker).to_string()));
    }
}

/// Limits with which the simulation holds the plan to its word.
fn promises(file: &NetworkFile, stream: &NetStream, wanted: &Stream, lead: Span) -> Vec<Value> {
    let name = stream.name.as_str();
    let listeners = file.stations.iter().filter(|station| stream.listeners.contains(&station.name));
    let ranges: Vec<_> = listeners.map(|station| station.receive.range()).collect();
    let least = ranges.iter().map(|range| range.0).min().unwrap_or(Span::ZERO);
    let most = ranges.iter().map(|range| range.1).collect::<Option<Vec<_>>>();
    let most = most.and_then(|most| most.into_iter().max());
    let limit = |metric: &str, at_most: String| {
        let id = format!("planned-{metric}-{name}").replace('_', "-");
        json!({"id": id, "metric": metric, "stream": name, "at_most": at_most})
    };
    let mut limits =
        vec![limit("lost", "0%".to_owned()), limit("outside-windows", "0%".to_owned())];
    if let Some(most) = most {
        let sync = file.sync_error + file.sync_error;
        let latency = lead + wanted.latency_max + most + sync;
        limits.push(limit("latency-max", latency.to_string()));
        if let Some(jitter) = wanted.jitter_max.filter(|_| wanted.frames == 1) {
            let jitter = jitter + (most - least) + sync;
            limits.push(limit("jitter", jitter.to_string()));
        }
    }
    limits
}

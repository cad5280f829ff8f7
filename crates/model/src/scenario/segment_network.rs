// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of one segment as the scenario that programs, MACs and kernels carry out: its cases
//! have slots or none, what carries them out, priorities or none. Classes become priorities, and
//! limits follow from the streams.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use timewire_base::{Instant, Priority, Span, StationName};

use super::cyclic::{Cyclic, Sporadic};
use super::from_streams::Wanted;
use super::item::Reader;
use super::model::{
    Case, CaseBackend, Experiment, Flood, LimitRule, Metric, ReferenceRule, Release,
    RequestResponse, Scenario, Segment, Station, Stream,
};
use super::network::{
    NetAccess, NetDelay, NetPipeline, NetSchedule, NetStation, NetStream, NetTraffic, NetworkCase,
    NetworkCases, NetworkFile,
};
use super::pipeline::Pipeline;
use super::record::default_value;
use super::several::Several;
use super::value::{Count, Name, Text};
use super::variants::Variant;
use crate::tdm::{Slot, TdmSchedule};

/// What checks of a scenario have to know of its file.
pub(super) struct Origin {
    /// What the slots are to follow from.
    pub wanted: Option<Wanted>,
    /// Whether the slots are to stand in the order of the pipelines.
    pub is_along_pipelines: bool,
    /// Of each case, whether it changes the schedule of the file.
    changes: Vec<bool>,
}

impl Origin {
    /// Where a key of the schedule of a case stands.
    pub fn key_of_case(&self, case: usize, key: &str) -> String {
        match self.changes.get(case) {
            Some(true) => format!("experiment.cases[{case}].change"),
            _ => format!("schedule.{key}"),
        }
    }
}

/// The scenario; `None` after telling what kernels do not do.
pub(super) fn scenario(network: &NetworkCases, reader: &mut Reader) -> Option<(Scenario, Origin)> {
    let before = reader.problems.len();
    let file = &network.base;
    let segment = segment(file, reader);
    for (key, is_there, what) in [
        ("ports", !file.ports.is_empty(), "ports of stations on a segment follow from `schedule`"),
        ("faults", !file.faults.is_empty(), "only the simulator makes faults"),
    ] {
        if is_there {
            reader.fail_at(key, what.to_owned(), SIMULATE);
        }
    }
    if network.cases.iter().any(|it| it.variant != Variant::default()) {
        let message = "on a segment kernels run no variables and repeats".to_owned();
        let hint = "write files that include this one, which one run takes, too";
        reader.fail_at("experiment", message, hint);
    }
    let has_cycle = network.cases.iter().any(|it| it.file.schedule.is_some());
    let mut streams = Vec::new();
    for (i, of_file) in file.streams.iter().enumerate() {
        let loads = loads_of(network, |file| file.streams.iter().any(|it| it.name == of_file.name));
        let at = format!("streams[{i}]");
        if let NetTraffic::Pipeline(NetPipeline { period: None, .. }) = &of_file.traffic
            && !has_cycle
        {
            let message = "without a `schedule` there is no cycle in which a stimulus is made";
            reader.fail_at(&format!("{at}.period"), message.to_owned(), "write the `period`");
        }
        streams.extend(stream(of_file, loads, &at, reader));
    }
    let mut programs = file.programs.clone();
    for program in &mut programs {
        let is_there = |file: &NetworkFile| file.programs.iter().any(|it| it.name == program.name);
        program.loads = loads_of(network, is_there);
    }
    measured(file, reader);
    let limits = limits(network, reader);
    let (cases, schedule) = cases(network, reader);
    let changes = network.cases.chunk_by(|one, next| one.case == next.case);
    let changes = changes.map(|case| case.iter().any(|it| it.file.schedule != file.schedule));
    let origin = Origin {
        wanted: schedule.as_ref().and_then(|it| it.wanted.clone()),
        is_along_pipelines: schedule.as_ref().is_some_and(|it| it.is_along_pipelines),
        changes: changes.collect(),
    };
    let has_schedule = schedule.is_some();
    let schedule = schedule.map(|it| it.slots).or_else(|| unused(&file.stations));
    if reader.problems.len() > before {
        // The simulator of networks takes what has no key of programs.
        if let Some(key) = network.key_of_programs() {
            let hint = format!("remove it, or `{key}`, and simulate the network: `--on sim`");
            let simulated = reader.problems.iter_mut().filter(|it| it.hint == SIMULATE);
            simulated.for_each(|problem| problem.hint.clone_from(&hint));
        }
        return None;
    }
    let mut loads: Vec<Name> = Vec::new();
    for load in network.cases.iter().filter_map(|it| Name::new(&it.load)) {
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    let quick = network.cases.iter().find_map(|it| it.quick_duration);
    let scenario = Scenario {
        name: file.name.clone(),
        description: file.description.clone(),
        // Of a network, the time that is not counted is a part of it.
        duration: file.duration - file.warm_up,
        warm_up: file.warm_up,
        seed: file.seed,
        segments: vec![segment?],
        stations: file.stations.iter().map(station).collect(),
        schedule: schedule?,
        has_schedule,
        // As queues of simulated stations.
        mac: file.mac.clone().unwrap_or_else(|| default_value("{ queue_frames: 1000 }")),
        queues: file.queues.clone(),
        streams,
        programs,
        experiment: Experiment {
            quick_duration: quick.map(|quick| quick - file.warm_up),
            loads,
            cases,
        },
        published: file.published.clone(),
        limits,
    };
    Some((scenario, origin))
}

impl Scenario {
    /// Its file with all that follows from the rest: addresses, ports, slots.
    pub fn filled_into(&self, file: &NetworkFile) -> NetworkFile {
        let mut filled = file.clone();
        for (station, own) in filled.stations.iter_mut().zip(&self.stations) {
            station.address = own.address;
        }
        for (stream, own) in filled.streams.iter_mut().zip(&self.streams) {
            stream.port = Some(own.port());
        }
        if let Some(schedule) = &mut filled.schedule {
            *schedule = schedule.with_slots(self.schedule.clone());
        }
        filled.mac = Some(self.mac.clone());
        filled
    }
}

/// Some stream is measured, and written limits are of such.
fn measured(file: &NetworkFile, reader: &mut Reader) {
    let is_flood = |it: &&NetStream| matches!(it.traffic, NetTraffic::Flood(_));
    if file.streams.iter().all(|it| is_flood(&it)) {
        let message = "floods are load, and not measured on kernels".to_owned();
        reader.fail_at("streams", message, "add a stream with a `period` or a `gap`");
    }
    for (i, limit) in file.limits.iter().enumerate() {
        let mut floods = file.streams.iter().filter(is_flood);
        if let Some(flood) = floods.find(|it| limit.streams().contains(&it.name)) {
            let message = format!("`{}` is a flood, which is not measured on kernels", flood.name);
            reader.fail_at(&format!("limits[{i}].stream"), message, SIMULATE);
        }
    }
}

/// The loads of an experiment in which something is; `None` means all.
fn loads_of(network: &NetworkCases, is_in: impl Fn(&NetworkFile) -> bool) -> Option<Vec<Name>> {
    let is_with = |with: &&NetworkCase| is_in(&with.file);
    let with: BTreeSet<&str> =
        network.cases.iter().filter(is_with).map(|it| it.load.as_str()).collect();
    let all: BTreeSet<&str> = network.cases.iter().map(|it| it.load.as_str()).collect();
    (with != all).then(|| with.into_iter().filter_map(Name::new).collect())
}

/// The cases, and the schedule of those that have slots. A case of a scenario has slots or none,
/// and priorities or none; all else is the same.
fn cases(network: &NetworkCases, reader: &mut Reader) -> (Vec<Case>, Option<NetSchedule>) {
    let file = &network.base;
    let mut cases: Vec<Case> = Vec::new();
    let mut schedule = file.schedule.clone();
    // By case: one network for each load.
    for (at, loads) in network.cases.chunk_by(|one, next| one.case == next.case).enumerate() {
        let own_schedule = loads.iter().find_map(|it| it.file.schedule.as_ref());
        // The file under the load of each.
        let wanted: Vec<NetworkFile> = loads
            .iter()
            .map(|it| network.written.under(None, Name::new(&it.load).as_ref()))
            .collect();
        let pairs = || loads.iter().map(|it| &it.file).zip(&wanted);
        let other = pairs().find_map(|(own, wanted)| {
            first_difference(
                "",
                &without_changes(own).to_json(),
                &without_changes(wanted).to_json(),
            )
        });
        let classes = |file: &NetworkFile| -> Vec<u64> {
            file.streams.iter().map(|it| it.class.get()).collect()
        };
        let is_as_written = pairs().all(|(own, wanted)| classes(own) == classes(wanted));
        let has_no_class = loads.iter().flat_map(|it| classes(&it.file)).all(|class| class == 0);
        let has_none = has_no_class && loads.iter().all(|it| !it.file.has_queues());
        let has_queues_as_written = loads.iter().all(|it| it.file.queues == file.queues);
        let wrong = match (other, own_schedule) {
            (Some(other), _) => format!("{CHANGES}, not `{other}`"),
            (None, Some(own)) if schedule.as_ref().is_some_and(|it| !has_same_slots(it, own)) => {
                "on a segment all cases that have a `schedule` have the same slots".to_owned()
            }
            _ if !(has_none || is_as_written && has_queues_as_written) => {
                "on a segment the classes and `queues` of a case are those of the file, or there \
                 are none: all classes are 0"
                    .to_owned()
            }
            _ => String::new(),
        };
        if !wrong.is_empty() {
            let hint = "write files of their own for other networks, which one run takes, too";
            reader.fail_at(&format!("experiment.cases[{at}].change"), wrong, hint);
        }
        schedule = schedule.or_else(|| own_schedule.cloned());
        let first = loads.first().expect("invariant: a chunk is not empty");
        cases.extend(Name::new(&first.case).map(|name| Case {
            name,
            title: match first.title.as_str() {
                "" => Text::of(&file.name),
                title => Text::like(title),
            },
            backend: own_schedule.map_or(CaseBackend::None, |it| it.by.backend()),
            priorities: own_schedule.is_some() && !has_none,
            release: own_schedule.map_or(Release::Free, |it| it.release),
            lead: own_schedule.and_then(|it| it.lead),
        }));
    }
    (cases, schedule)
}

/// Whether schedules differ in nothing but what carries them out, and when programs send.
fn has_same_slots(one: &NetSchedule, other: &NetSchedule) -> bool {
    let NetSchedule { by, release, lead, .. } = other;
    *other == NetSchedule { by: *by, release: *release, lead: *lead, ..one.clone() }
}

/// The first key whose values differ.
fn first_difference(key: &str, one: &Json, other: &Json) -> Option<String> {
    match (one, other) {
        _ if one == other => None,
        (Json::Object(own), Json::Object(other)) => {
            let keys: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
            keys.into_iter().find_map(|name| {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                match (own.get(name), other.get(name)) {
                    (Some(own), Some(other)) => first_difference(&key, own, other),
                    _ => Some(key),
                }
            })
        }
        (Json::Array(own), Json::Array(other)) if own.len() == other.len() => {
            let mut pairs = own.iter().zip(other).enumerate();
            pairs.find_map(|(i, (own, other))| first_difference(&format!("{key}[{i}]"), own, other))
        }
        _ => Some(key.to_owned()),
    }
}

/// A network without all that cases of a scenario differ in.
fn without_changes(file: &NetworkFile) -> NetworkFile {
    let mut rest = NetworkFile { schedule: None, limits: Vec::new(), ..file.clone() };
    rest.queues = default_value("{}");
    for stream in &mut rest.streams {
        stream.class = Count::clamped(0);
        (stream.max_latency, stream.max_jitter, stream.max_loss) = (None, None, None);
    }
    rest
}

/// What the cases of a segment differ in.
const CHANGES: &str =
    "on a segment a case changes `schedule`, `queues`, and classes and limits of streams";
/// What helps where kernels cannot.
const SIMULATE: &str = "remove it, or simulate the network: `--on sim`";

fn segment(file: &NetworkFile, reader: &mut Reader) -> Option<Segment> {
    let [segment] = file.segments.as_slice() else {
        let message = format!("here are {} segments, not one", file.segments.len());
        reader.fail_at("segments", message, "simulate the network: `--on sim`");
        return None;
    };
    let at = |key: &str| format!("segments[0].{key}");
    let is_on = |station: &&NetStation| !segment.stations.contains(&station.name);
    if let Some(other) = file.stations.iter().find(is_on) {
        let message = format!("`{}` is not on the segment", other.name);
        reader.fail_at(&at("stations"), message, "write all stations, or leave the key out");
    }
    if segment.access == NetAccess::Token {
        let message = "kernels pass no token".to_owned();
        reader.fail_at(&at("access"), message, SIMULATE);
    }
    if segment.loss.0 > 0 {
        reader.fail_at(&at("loss"), "only the simulator loses frames".to_owned(), SIMULATE);
    }
    if segment.corruption.0 > 0 {
        let message = "only the simulator damages frames".to_owned();
        reader.fail_at(&at("corruption"), message, SIMULATE);
    }
    let name = Name::new(segment.name.as_str());
    if name.is_none() {
        let message = format!("`{}` begins with no letter", segment.name);
        reader.fail_at(&at("name"), message, "give it a name of letters, digits, `-` and `_`");
    }
    Some(Segment {
        name: name?,
        rate: segment.rate,
        // Kernels delay by whole microseconds.
        delay: Span::from_us(segment.delay.as_ns() / 1_000),
    })
}

fn station(station: &NetStation) -> Station {
    let NetStation { name, address, host, .. } = station.clone();
    Station { name, address, host }
}

fn stream(
    stream: &NetStream,
    loads: Option<Vec<Name>>,
    at: &str,
    reader: &mut Reader,
) -> Option<Stream> {
    let before = reader.problems.len();
    let mut refuse = |key: &str, message: &str, hint: &str| {
        reader.fail_at(&format!("{at}.{key}"), message.to_owned(), hint);
    };
    if stream.scheduled {
        let hint = "give its talker a slot in `schedule`";
        refuse("scheduled", "plans are of bridged networks", hint);
    }
    if stream.launch.is_some() {
        refuse("launch", "stations on a segment send in slots, not at launch times", SIMULATE);
    }
    if stream.is_tagged() {
        refuse("tagged", "no bridge is there to read the tag, and the MAC adds none", SIMULATE);
    }
    if stream.ats.is_some() {
        refuse("ats", "no bridge is there to shape it", SIMULATE);
    }
    let is_pipeline = matches!(stream.traffic, NetTraffic::Pipeline(_));
    if stream.listeners.all().len() > 1 && !is_pipeline {
        refuse("listeners", "a talker sends to one station", "write a stream for each listener");
    }
    let class = stream.class.get();
    match &stream.traffic {
        NetTraffic::Cyclic(it) => {
            if it.jitter != NetDelay::Fixed(Span::ZERO) {
                refuse("jitter", "a talker sends when it is due", SIMULATE);
            }
            if it.burst.get() > 1 {
                let hint = "write a stream for each of its messages, with its `offset`";
                refuse("burst", "a talker sends one message in a period", hint);
            }
        }
        NetTraffic::Flood(_) if class > 0 => {
            refuse("class", "a flood is load, and goes after all others", "leave it out");
        }
        NetTraffic::Flood(_)
            if stream.max_latency.or(stream.max_jitter).is_some() || stream.max_loss.is_some() =>
        {
            let key = match (stream.max_latency, stream.max_jitter) {
                (Some(_), _) => "max_latency",
                (None, Some(_)) => "max_jitter",
                (None, None) => "max_loss",
            };
            refuse(key, "a flood is load, and is not measured on kernels", SIMULATE);
        }
        NetTraffic::Flood(_) if stream.deadline.is_some() => {
            refuse("deadline", "a flood is load, and is not measured on kernels", "leave it out");
        }
        NetTraffic::Pipeline(_) if stream.deadline.or(stream.max_latency).is_none() => {
            let hint = "write how long it takes at most: a cycle for each station is usual";
            refuse("deadline", "a pipeline needs a `deadline` or a `max_latency`", hint);
        }
        NetTraffic::Sporadic(_) | NetTraffic::Flood(_) => {}
        NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_) => {}
        NetTraffic::Request(_) | NetTraffic::After(_) => {
            let hint = "write `kind: request-response`, or simulate the network: `--on sim`";
            refuse("kind", "answers are no stream of their own on kernels", hint);
        }
        NetTraffic::Replay(_) => refuse("kind", "a talker replays no capture", SIMULATE),
    }
    let size = stream.size.filter(|_| reader.problems.len() == before)?;
    let (name, talker) = (stream.name.clone(), stream.talker.clone());
    let listeners = stream.listeners.all().first()?.clone();
    // The most urgent class is 7, and the most urgent priority 1.
    let priority = (class > 0).then(|| Priority::new(8 - class).ok()).flatten();
    let (port, deadline) = (stream.port, stream.deadline.or(stream.max_latency));
    Some(match stream.traffic.clone() {
        NetTraffic::RequestResponse(it) => Stream::RequestResponse(RequestResponse {
            name,
            talker,
            listeners,
            size,
            priority,
            port,
            deadline: deadline.unwrap_or(it.timeout),
            timeout: it.timeout,
            loads,
        }),
        NetTraffic::Pipeline(it) => {
            let further = stream.listeners.all().iter().cloned();
            Stream::Pipeline(Pipeline {
                name,
                stations: std::iter::once(talker).chain(further).collect(),
                components: it.components,
                compute: it.compute,
                size,
                priority,
                port,
                period: it.period,
                deadline: deadline?,
                loads,
            })
        }
        NetTraffic::Cyclic(it) => Stream::Cyclic(Cyclic {
            name,
            talker,
            listeners,
            size,
            period: it.period,
            offset: it.offset,
            priority,
            port,
            deadline,
            loads,
        }),
        NetTraffic::Sporadic(it) => Stream::Sporadic(Sporadic {
            name,
            talker,
            listeners,
            size,
            gap: it.gap,
            priority,
            port,
            deadline,
            loads,
        }),
        NetTraffic::Flood(it) => {
            let burst = Count::clamped(it.burst.get());
            let rate = it.rate;
            Stream::Flood(Flood { name, talker, listeners, size, port, rate, burst, loads })
        }
        NetTraffic::Request(_) | NetTraffic::After(_) | NetTraffic::Replay(_) => return None,
    })
}

/// Those that are written, and those that follow from the streams.
fn limits(network: &NetworkCases, reader: &mut Reader) -> Vec<LimitRule> {
    // Where the simulator of networks has no part, rules are judged by the names that they have.
    let runs_programs = network.key_of_programs().is_some();
    let mut rules = Vec::new();
    for (i, rule) in network.written.limits.iter().enumerate() {
        if rule.metric == Metric::OutsideWindows {
            let message = "`outside-windows` is of planned windows".to_owned();
            let hint = "write `outside-slots`, which is of slots";
            reader.fail_at(&format!("limits[{i}].metric"), message, hint);
        }
    }
    for rule in network.written.limits.iter().filter(|_| runs_programs) {
        rules.push(LimitRule {
            id: rule.id.clone(),
            metric: rule.metric,
            stream: rule.stream.clone(),
            case: rule.case.clone(),
            load: rule.load.clone(),
            at_most: rule.at_most,
            relative_to: rule.relative_to.clone(),
        });
    }
    for one in &network.cases {
        let limits = match runs_programs {
            true => one.file.limits_of_streams(),
            false => one.file.all_limits(),
        };
        for limit in limits {
            let id = match network.cases.len() {
                1 => Name::new(&limit.id),
                _ => Name::of_limit(&one.case, &one.load, &limit.id),
            };
            let Some(id) = id else {
                too_long(&network.base, &limit.id, &limit.stream, reader);
                continue;
            };
            rules.push(LimitRule {
                id,
                metric: limit.metric,
                stream: Several::of(vec![limit.stream]),
                case: Name::new(&one.case).and_then(|it| Several::of(vec![it])),
                load: Name::new(&one.load).and_then(|it| Several::of(vec![it])),
                at_most: limit.at_most,
                relative_to: None,
            });
        }
    }
    for limit in network.relative.iter().filter(|_| !runs_programs) {
        let Some(id) = Name::new(&limit.id) else {
            too_long(&network.base, &limit.id, &limit.stream, reader);
            continue;
        };
        let to = ReferenceRule { case: Name::new(&limit.to_case), load: Name::new(&limit.to_load) };
        rules.push(LimitRule {
            id,
            metric: limit.metric,
            stream: Several::of(vec![limit.stream.clone()]),
            case: Name::new(&limit.case).and_then(|it| Several::of(vec![it])),
            load: Name::new(&limit.load).and_then(|it| Several::of(vec![it])),
            at_most: limit.at_most,
            relative_to: Some(to),
        });
    }
    rules
}

/// Says once that a limit has no name that results could have.
fn too_long(file: &NetworkFile, id: &str, stream: &Name, reader: &mut Reader) {
    let at = file.streams.iter().position(|it| it.name == *stream).unwrap_or(0);
    let key = format!("streams[{at}].name");
    if !reader.problems.iter().any(|it| it.key == key) {
        let message = format!("the limit `{id}` that follows has too long a name");
        reader.fail_at(&key, message, "make the name shorter");
    }
}

/// Slots for a scenario that has no case with slots; `None` of no stations, which have no streams.
fn unused(stations: &[NetStation]) -> Option<TdmSchedule> {
    let transmit = Span::from_us(100);
    let slot = |(number, station): (i64, &StationName)| {
        let offset = transmit.checked_mul(number).unwrap_or(Span::MAX);
        Slot { station: station.clone(), offset, transmit, guard: Span::ZERO }
    };
    let names = stations.iter().map(|it| &it.name);
    let slots: Vec<Slot> = (0_i64..).zip(names).map(slot).collect();
    let count = i64::try_from(slots.len()).ok()?;
    TdmSchedule::new(Instant::from_ns(0), transmit.checked_mul(count)?, slots).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{AtMost, NothingFurther};

    fn read(text: &str) -> Scenario {
        let read = Scenario::parse_with(&NothingFurther, "x.yaml", text);
        read.unwrap_or_else(|errors| panic!("{errors}"))
    }

    const TEXT: &str = "timewire: 1\nkind: network\nname: x\nduration: 2s\nwarm_up: 500ms\n\
        seed: 9\nsegments: [{ rate: 10Mbit, delay: 2500ns }]\nstations: [a, b]\nstreams:\n\
        - { name: s, talker: a, listeners: b, size: 64B, period: 1ms, offset: 3us, class: 7,\n\
        \x20   max_latency: 4ms, max_jitter: 1ms, max_loss: 1% }\n\
        - { name: t, talker: b, listeners: a, size: 64B, kind: sporadic, gap: 5ms }\n\
        - { name: u, talker: b, listeners: a, size: 64B, kind: flood, rate: 1Mbit, burst: 3 }\n\
        limits: [{ id: mean, metric: latency-mean, stream: [s, t], at_most: 2ms }]\n";

    #[test]
    fn t0_a_network_of_one_segment_is_one_case() {
        let scenario = read(TEXT);
        let [case] = scenario.experiment.cases.as_slice() else { panic!("{scenario:?}") };
        assert_eq!((case.name.as_str(), case.backend), ("network", CaseBackend::None));
        assert_eq!(scenario.experiment.loads[0].as_str(), "all");
        // What is not counted is a part of the time of a network.
        assert_eq!((scenario.duration, scenario.seed.get()), (Span::from_ms(1_500), 9));
        assert_eq!(scenario.segment().delay, Span::from_us(2));
        let [Stream::Cyclic(s), Stream::Sporadic(t), Stream::Flood(u)] = &scenario.streams[..]
        else {
            panic!("{scenario:?}")
        };
        assert_eq!((s.period, s.offset), (Span::from_ms(1), Span::from_us(3)));
        assert_eq!((s.priority.unwrap().get(), s.deadline), (1, Some(Span::from_ms(4))));
        assert_eq!((t.priority, t.deadline, u.burst.get()), (None, None, 3));
        let limits: Vec<_> = scenario.limits();
        let told: Vec<_> = limits.iter().map(|it| (it.id.as_str(), it.metric.word())).collect();
        assert_eq!(
            told,
            [
                ("mean-s", "latency-mean"),
                ("mean-t", "latency-mean"),
                ("s-latency", "latency-max"),
                ("s-jitter", "jitter"),
                ("s-lost", "lost"),
            ]
        );
        assert_eq!(limits[3].at_most, AtMost::Time(Span::from_ms(1)));
        // Its file is written with all that follows, and that is the same again.
        let file = NetworkCases::parse_with(&NothingFurther, "x", TEXT).unwrap().written;
        let mut again = read(&scenario.filled_into(&file).to_json().to_string());
        // With the ports that are written, its limits are of programs, and have the same names.
        assert_eq!(again.limits().len(), limits.len());
        again.limits.clone_from(&scenario.limits);
        assert_eq!(again, scenario);
    }

    #[test]
    fn t0_with_a_schedule_its_case_has_slots_and_classes_are_priorities() {
        let slots = "schedule: { kind: tdm, transmit: 400us, slots: [a, b] }\nstreams:";
        let scenario = read(&TEXT.replace("streams:", slots));
        let case = &scenario.experiment.cases[0];
        assert!(case.backend == CaseBackend::Mac && case.priorities);
        assert_eq!(scenario.schedule.slots()[1].offset, Span::from_us(400));
        assert_eq!(scenario.mac.queue_frames.get(), 1_000);
        let mac = "mac: { spin: 90us }\nstreams:";
        let own = read(&TEXT.replace("streams:", slots).replace("streams:", mac));
        assert_eq!((own.mac.spin, own.mac.queue_frames.get()), (Span::from_us(90), 64));
        let without = TEXT.replace("streams:", slots).replace(", class: 7", "");
        assert!(!read(&without).experiment.cases[0].priorities);
    }

    const CASES: &str = "timewire: 1\nkind: network\nname: x\nduration: 2s\nwarm_up: 500ms\n\
        segments: [{ rate: 10Mbit }]\nstations: [a, b]\n\
        schedule: { kind: tdm, transmit: 2ms, slots: [a, b] }\nstreams:\n\
        - { name: s, talker: a, listeners: b, size: 64B, period: 9ms, class: 7,\n\
        \x20   max_latency: 9ms }\n\
        - { name: u, talker: b, listeners: a, size: 64B, kind: flood, rate: 1Mbit,\n\
        \x20   loads: [busy] }\n\
        experiment:\n  quick_duration: 1s\n  loads: [alone, busy]\n  cases:\n\
        \x20 - { name: plain, change: { schedule: null } }\n\
        \x20 - { name: slots, change: { streams: { s: { class: 0, max_latency: null } } } }\n\
        \x20 - { name: both, title: Both }\n\
        limits: [{ id: helps, metric: latency-p99, stream: s, case: both, load: busy,\n\
        \x20   relative_to: { case: slots }, at_most: 0.5 }]\n";

    #[test]
    fn t0_cases_have_slots_and_priorities_as_their_networks_have() {
        let scenario = read(CASES);
        let cases = scenario.experiment.cases.iter();
        let cases: Vec<_> =
            cases.map(|it| (it.title.as_str(), it.backend.word(), it.priorities)).collect();
        assert_eq!(
            cases,
            [("plain", "none", false), ("slots", "mac", false), ("Both", "mac", true)]
        );
        assert_eq!(scenario.experiment.quick_duration, Some(Span::from_ms(500)));
        let loads = |stream: &Stream| stream.loads().map(<[Name]>::len);
        assert_eq!(scenario.streams.iter().map(loads).collect::<Vec<_>>(), [None, Some(1)]);
        let limits: Vec<String> = scenario.limits().into_iter().map(|it| it.id).collect();
        let own = ["plain/alone", "plain/busy", "both/alone", "both/busy"];
        let own = own.map(|place| format!("{place}/s-latency"));
        assert_eq!(limits, [&own[..], &["helps".to_owned()]].concat());
    }

    #[test]
    fn t0_cases_that_change_something_else_are_told() {
        let told = |change: &str| {
            let text = CASES.replace("schedule: null", change);
            let errors = Scenario::parse_with(&NothingFurther, "x.yaml", &text).unwrap_err();
            let [error] = errors.errors.as_slice() else { panic!("{errors}") };
            assert_eq!(error.key, "experiment.cases[0].change");
            error.message.clone()
        };
        let other = CHANGES;
        assert_eq!(told("duration: 3s"), format!("{other}, not `duration`"));
        let period = told("streams: { s: { period: 5ms } }");
        assert_eq!(period, format!("{other}, not `streams[0].period`"));
        assert_eq!(told("streams: { u: null }"), format!("{other}, not `streams`"));
        let slots = "schedule: { slots: [b, a] }";
        let same = "on a segment all cases that have a `schedule` have the same slots";
        assert_eq!(told(slots), same);
        let class = "on a segment the classes and `queues` of a case are those of the file, or \
            there are none: all classes are 0";
        assert_eq!(told("streams: { s: { class: 3 } }"), class);
    }

    /// A class that is taken out of one load only is no class of the case's others.
    #[test]
    fn t0_classes_of_a_case_are_the_same_in_all_its_loads() {
        let second = "- { name: t, talker: b, listeners: a, size: 64B, period: 9ms, class: 5,\n\
            \x20   loads: [busy] }\n- { name: u,";
        let text = CASES.replace("- { name: u,", second);
        let text = text.replacen("class: 7,\n", "class: 7, loads: [alone],\n", 1);
        let text = text.split("limits:").next().unwrap();
        let errors = Scenario::parse_with(&NothingFurther, "x.yaml", text).unwrap_err();
        let told: Vec<_> = errors.errors.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(told, ["experiment.cases[1].change"], "{errors}");
    }

    #[test]
    fn t0_what_cannot_be_named_or_numbered_is_told() {
        let told = |text: &str| {
            let errors = Scenario::parse_with(&NothingFurther, "x.yaml", text).unwrap_err();
            errors.errors.iter().map(|it| it.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(told(&TEXT.replace("[{ rate", "[{ name: 1st, rate")), ["segments[0].name"]);
        let many: Vec<String> = (0..300).map(|n| format!("s{n}")).collect();
        let many = format!("stations: [a, b, {}]", many.join(", "));
        assert_eq!(told(&TEXT.replace("stations: [a, b]", &many)), ["stations[254]"]);
    }
}

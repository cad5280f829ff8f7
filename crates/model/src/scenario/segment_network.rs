// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of one segment without an experiment as the scenario that carries it out on kernels:
//! one case, with TDM where the file has a schedule. Classes become priorities, and limits follow
//! from the streams.

use timewire_base::{Instant, Priority, Span, StationName};

use super::cyclic::{Cyclic, Sporadic};
use super::item::Reader;
use super::model::{
    Case, CaseBackend, Experiment, Flood, LimitRule, Metric, Release, Scenario, Segment, Station,
    Stream,
};
use super::network::{
    NetAccess, NetDelay, NetMetric, NetStation, NetStream, NetTraffic, NetworkFile,
};
use super::network_cases::{ONLY_CASE, ONLY_LOAD};
use super::record::default_value;
use super::several::Several;
use super::tree::{Node, Value};
use super::value::{Count, Name, Text};
use crate::tdm::{Slot, TdmSchedule};

/// Whether a text is such a network, and no scenario.
pub(super) fn is_one(root: &Node) -> bool {
    let Value::Map(entries) = &root.value else { return false };
    let has = |name: &str| entries.iter().any(|(key, _)| key.text == name);
    has("segments") && !OF_OTHERS.iter().any(|key| has(key))
}

/// Keys of a scenario, and of a network with links.
const OF_OTHERS: [&str; 6] = ["experiment", "mac", "queues", "published", "links", "bridges"];

/// The scenario; `None` after telling what kernels do not do.
pub(super) fn scenario(file: &NetworkFile, reader: &mut Reader) -> Option<Scenario> {
    let before = reader.problems.len();
    let segment = segment(file, reader);
    for (key, is_there, what) in [
        ("ports", !file.ports.is_empty(), "ports of stations on a segment follow from `schedule`"),
        ("faults", !file.faults.is_empty(), "only the simulator makes faults"),
    ] {
        if is_there {
            reader.fail_at(key, what.to_owned(), SIMULATE);
        }
    }
    let mut streams = Vec::new();
    for (i, of_file) in file.streams.iter().enumerate() {
        streams.extend(stream(of_file, &format!("streams[{i}]"), reader));
    }
    let limits = limits(file, reader);
    let schedule = file.schedule.clone().or_else(|| unused(&file.stations));
    if reader.problems.len() > before {
        return None;
    }
    let has_classes = file.streams.iter().any(|it| it.class.get() > 0);
    let case = Case {
        name: Name::new(ONLY_CASE)?,
        title: Text::of(&file.name),
        backend: if file.schedule.is_some() { CaseBackend::Mac } else { CaseBackend::None },
        priorities: has_classes && file.schedule.is_some(),
        release: Release::Free,
        lead: None,
    };
    let loads = vec![Name::new(ONLY_LOAD)?];
    Some(Scenario {
        timewire: file.timewire,
        kind: file.kind,
        name: file.name.clone(),
        description: file.description.clone(),
        // Of a network, the time that is not counted is a part of it.
        duration: file.duration - file.warm_up,
        warm_up: file.warm_up,
        seed: file.seed,
        segments: vec![segment?],
        stations: file.stations.iter().map(station).collect(),
        schedule: schedule?,
        mac: default_value("{}"),
        queues: default_value("{}"),
        streams,
        programs: file.programs.clone(),
        experiment: Experiment { quick_duration: None, loads, cases: vec![case] },
        published: None,
        limits,
    })
}

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
    Some(Segment {
        name: Name::new(segment.name.as_str())?,
        rate: segment.rate,
        // Kernels delay by whole microseconds.
        delay: Span::from_us(segment.delay.as_ns() / 1_000),
    })
}

fn station(station: &NetStation) -> Station {
    Station { name: station.name.clone(), address: None, host: station.host.clone() }
}

fn stream(stream: &NetStream, at: &str, reader: &mut Reader) -> Option<Stream> {
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
    if stream.ats.is_some() {
        refuse("ats", "no bridge is there to shape it", SIMULATE);
    }
    if stream.listeners.all().len() > 1 {
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
        NetTraffic::Sporadic(_) | NetTraffic::Flood(_) => {}
        NetTraffic::Request(_) | NetTraffic::After(_) => {
            let hint = "write one stream of `kind: request-response`, and an `experiment` with \
                        `backend`s; or simulate the network: `--on sim`";
            refuse("kind", "answers are no stream of their own on kernels", hint);
        }
        NetTraffic::Replay(_) => refuse("kind", "a talker replays no capture", SIMULATE),
    }
    let size = stream.size.filter(|_| reader.problems.len() == before)?;
    let (name, talker) = (stream.name.clone(), stream.talker.clone());
    let listeners = stream.listeners.all().first()?.clone();
    // The most urgent class is 7, and the most urgent priority 1.
    let priority = (class > 0).then(|| Priority::new(8 - class).ok()).flatten();
    let (port, deadline, loads) = (None, stream.max_latency, None);
    Some(match stream.traffic.clone() {
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
        NetTraffic::Sporadic(it) => {
            let gap = it.gap;
            let (of, to) = (talker, listeners);
            Stream::Sporadic(Sporadic {
                name,
                talker: of,
                listeners: to,
                size,
                gap,
                priority,
                port,
                deadline,
                loads,
            })
        }
        NetTraffic::Flood(it) => {
            let burst = Count::clamped(it.burst.get());
            let rate = it.rate;
            Stream::Flood(Flood { name, talker, listeners, size, port, rate, burst, loads })
        }
        NetTraffic::Request(_) | NetTraffic::After(_) | NetTraffic::Replay(_) => return None,
    })
}

/// Those that are written, and those that follow from the streams.
fn limits(file: &NetworkFile, reader: &mut Reader) -> Vec<LimitRule> {
    for (i, limit) in file.limits.iter().enumerate() {
        if limit.metric == NetMetric::OutsideWindows {
            let message = "`outside-windows` is of planned windows".to_owned();
            let hint = "write `metric: outside-slots` in a file with an `experiment`";
            reader.fail_at(&format!("limits[{i}].metric"), message, hint);
        }
    }
    let mut rules = Vec::new();
    for limit in file.all_limits() {
        let Some(id) = Name::new(&limit.id) else {
            let message = format!("the limit `{}` that follows has too long a name", limit.id);
            let at = file.streams.iter().position(|it| it.name == limit.stream).unwrap_or(0);
            reader.fail_at(&format!("streams[{at}].name"), message, "make the name shorter");
            continue;
        };
        rules.extend(metric(limit.metric).map(|metric| LimitRule {
            id,
            metric,
            stream: Several::of(vec![limit.stream]),
            case: None,
            load: None,
            at_most: limit.at_most,
            relative_to: None,
        }));
    }
    rules
}

fn metric(metric: NetMetric) -> Option<Metric> {
    Some(match metric {
        NetMetric::LatencyMax => Metric::LatencyMax,
        NetMetric::LatencyP99 => Metric::LatencyP99,
        NetMetric::LatencyMean => Metric::LatencyMean,
        NetMetric::Jitter => Metric::Jitter,
        NetMetric::Lost => Metric::Lost,
        NetMetric::OutsideWindows => return None,
    })
}

/// Slots for a scenario that has no case with slots.
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
        // It is written as a scenario, and that is the same again.
        let written = serde_json::to_string(&scenario).unwrap();
        assert_eq!(read(&written), scenario);
    }

    #[test]
    fn t0_with_a_schedule_its_case_has_slots_and_classes_are_priorities() {
        let slots = "schedule: { kind: tdm, transmit: 400us, slots: [a, b] }\nstreams:";
        let scenario = read(&TEXT.replace("streams:", slots));
        let case = &scenario.experiment.cases[0];
        assert!(case.backend == CaseBackend::Mac && case.priorities);
        assert_eq!(scenario.schedule.slots()[1].offset, Span::from_us(400));
        let without = TEXT.replace("streams:", slots).replace(", class: 7", "");
        assert!(!read(&without).experiment.cases[0].priorities);
    }

    #[test]
    fn t0_what_has_keys_of_a_scenario_is_one() {
        let is_one = |text: &str| is_one(&crate::scenario::tree::parse(text).unwrap());
        assert!(is_one("segments: 1"));
        for text in ["segments: 1\nexperiment: 1", "segments: 1\nlinks: 1", "stations: 1", "[1]"] {
            assert!(!is_one(text), "{text}");
        }
    }
}

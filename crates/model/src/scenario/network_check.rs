// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the keys of a network file: names that exist, once; things that go
//! together.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use timewire_base::{BitsPerSecond, Span, StationName, parse_span};

use super::check_cases::each_once;
use super::check_limits::{check_bound, check_metric};
use super::further::FurtherChecks;
use super::host;
use super::item::Reader;
use super::network::{
    NetCbsRules, NetDelay, NetDrawn, NetFault, NetGates, NetLink, NetPort, NetRecorded, NetStream,
    NetTraffic, NetworkFile,
};
use super::programs::{check_loads, check_words};
use super::several::Several;
use super::suggest::{did_you_mean, listed};
use super::value::{AtMost, Name};

/// Longest simulation that a file can ask for.
const LONGEST: Span = Span::from_secs(86_400);
/// Longest message: a jumbo frame.
const LONGEST_MESSAGE: u32 = 8_958;

struct Checker<'a> {
    file: &'a NetworkFile,
    nodes: Vec<&'a str>,
    streams: Vec<&'a str>,
}

pub(super) fn check(file: &NetworkFile, further: &dyn FurtherChecks, reader: &mut Reader) {
    let stations = file.stations.iter().map(|station| station.name.as_str());
    let bridges = file.bridges.iter().map(|bridge| bridge.name.as_str());
    let checker = Checker {
        file,
        nodes: stations.chain(bridges).collect(),
        streams: file.streams.iter().map(|stream| stream.name.as_str()).collect(),
    };
    if file.duration == Span::ZERO || file.duration > LONGEST {
        let message = format!("{} is no duration: it is above zero, at most a day", file.duration);
        reader.fail_at("duration", message, "");
    }
    if file.warm_up >= file.duration && file.duration > Span::ZERO {
        let message = format!("nothing is counted in {} after {}", file.duration, file.warm_up);
        reader.fail_at("warm_up", message, "write a time below the duration");
    }
    if file.mac.is_some() && file.segments.is_empty() {
        let message = "there is no segment on which stations have slots".to_owned();
        reader.fail_at("mac", message, "remove it, or write `segments` and a `schedule`");
    }
    bounded("", &file.to_json(), reader);
    checker.names(reader);
    checker.links(reader);
    checker.ports(reader);
    checker.streams(reader);
    checker.programs(reader);
    checker.faults(reader);
    checker.limits(reader);
    for (i, station) in file.stations.iter().enumerate() {
        if let Some(desired) = &station.host {
            host::check(&format!("stations[{i}].host"), desired, further, reader);
        }
    }
}

impl Checker<'_> {
    fn names(&self, reader: &mut Reader) {
        let mut macs = BTreeSet::new();
        for (i, station) in self.file.stations.iter().enumerate() {
            for mac in &station.mac {
                let at = format!("stations[{i}].mac");
                if !macs.insert(*mac) {
                    let message = format!("{mac} is the address of another NIC");
                    reader.fail_at(&at, message, "give each NIC its own");
                }
                if !mac.is_of_one_station() {
                    let message = format!("{mac} is no address of a single station");
                    reader.fail_at(&at, message, "write one such as 02:00:00:00:00:01");
                }
            }
        }
        let mut seen: BTreeMap<&str, String> = BTreeMap::new();
        let nodes = (self.file.stations.iter().enumerate())
            .map(|(i, station)| (format!("stations[{i}].name"), station.name.as_str()));
        let bridges = (self.file.bridges.iter().enumerate())
            .map(|(i, bridge)| (format!("bridges[{i}].name"), bridge.name.as_str()));
        let segments = (self.file.segments.iter().enumerate())
            .map(|(i, segment)| (format!("segments[{i}].name"), segment.name.as_str()));
        for (key, name) in nodes.chain(bridges).chain(segments) {
            twice(reader, &mut seen, key, name);
        }
        let mut seen = BTreeMap::new();
        for (i, stream) in self.file.streams.iter().enumerate() {
            twice(reader, &mut seen, format!("streams[{i}].name"), stream.name.as_str());
        }
        let derived: Vec<_> = self.file.streams.iter().flat_map(NetStream::limits).collect();
        let mut seen = BTreeMap::new();
        for (i, limit) in self.file.limits.iter().enumerate() {
            twice(reader, &mut seen, format!("limits[{i}].id"), limit.id.as_str());
            if derived.iter().any(|other| other.id == limit.id.as_str()) {
                let message = format!("`{}` is the limit of a stream of that name", limit.id);
                reader.fail_at(&format!("limits[{i}].id"), message, "give it another name");
            }
        }
        if let Some(schedule) = &self.file.schedule {
            let written = schedule.slots.slots().iter().filter(|_| schedule.wanted.is_none());
            for (i, slot) in written.enumerate() {
                self.node(reader, &format!("schedule.slots[{i}].station"), &slot.station);
            }
            for (i, station) in schedule.wanted_stations().iter().enumerate() {
                let key = format!("schedule.from_streams.stations[{i}]");
                self.node(reader, &key, station);
            }
        }
    }

    fn links(&self, reader: &mut Reader) {
        for (i, link) in self.file.links.iter().enumerate() {
            let key = format!("links[{i}].between");
            if !pair(reader, &key, &link.between) {
                continue;
            }
            link.between.iter().for_each(|name| self.node(reader, &key, name));
            let is_same =
                |other: &NetLink| link.between.iter().all(|it| other.between.contains(it));
            if let Some(j) = self.file.links[..i].iter().position(is_same) {
                let message = format!("links[{j}] is between these two as well");
                reader.fail_at(
                    &key,
                    message,
                    "two nodes have one link; put a bridge into the other",
                );
            }
        }
        for (i, segment) in self.file.segments.iter().enumerate() {
            let key = format!("segments[{i}].stations");
            if segment.stations.len() < 2 {
                let message = "a segment has two stations or more".to_owned();
                reader.fail_at(&key, message, "name them");
            }
            segment.stations.iter().for_each(|name| self.node(reader, &key, name));
        }
        let stations = self.file.stations.iter().enumerate();
        let delays = stations.flat_map(|(i, station)| {
            let key = |what: &str| format!("stations[{i}].{what}");
            [(key("send"), &station.send), (key("receive"), &station.receive)]
        });
        let bridges = self.file.bridges.iter().enumerate();
        let forward = bridges.map(|(i, bridge)| (format!("bridges[{i}].forward"), &bridge.forward));
        for (key, drawn) in delays.chain(forward) {
            delay(reader, &key, drawn);
        }
        let clocks = (self.file.stations.iter().enumerate())
            .map(|(i, station)| (format!("stations[{i}].clock"), &station.clock));
        let bridges = (self.file.bridges.iter().enumerate())
            .map(|(i, bridge)| (format!("bridges[{i}].clock"), &bridge.clock));
        for (key, clock) in clocks.chain(bridges) {
            if clock.sync.as_ref().is_some_and(|sync| sync.interval < Span::from_us(10)) {
                let message = "a clock is not corrected so often".to_owned();
                reader.fail_at(&format!("{key}.sync.interval"), message, "write 10us or more");
            }
            if clock.wander.0 < 0 {
                let message = "a clock wanders either way".to_owned();
                reader.fail_at(&format!("{key}.wander"), message, "write it without the sign");
            }
        }
    }

    /// Whether something is at the other end of a port of a node.
    fn faces(&self, node: &StationName, to: &StationName) -> bool {
        let link = self
            .file
            .links
            .iter()
            .any(|link| node != to && link.between.contains(node) && link.between.contains(to));
        let segment = self.file.segments.iter();
        link || segment
            .filter(|segment| segment.name == *to)
            .any(|segment| segment.stations.contains(node))
    }

    fn port(&self, reader: &mut Reader, key: &str, node: &StationName, to: &StationName) {
        if !self.faces(node, to) {
            let message = format!("{node} has no port to {to}");
            reader.fail_at(key, message, "name the other end of a link, or a segment");
        }
    }

    fn ports(&self, reader: &mut Reader) {
        for (i, port) in self.file.ports.iter().enumerate() {
            let at = format!("ports[{i}]");
            if port.of.is_empty() {
                let message = "whose ports are like this?".to_owned();
                reader.fail_at(&format!("{at}.of"), message, "name a station or bridge");
            }
            for node in &port.of {
                self.node(reader, &format!("{at}.of"), node);
                if let Some(to) = &port.to {
                    self.port(reader, &format!("{at}.to"), node, to);
                }
            }
            if let Some(list) = &port.gates {
                gates(reader, &format!("{at}.gates"), list);
            }
            if let Some(both) = port.ats.iter().find(|class| port.launch.contains(class)) {
                let message = format!("class {} is in `ats` too", both.get());
                reader.fail_at(&format!("{at}.launch"), message, "name it in one of the two");
            }
            self.idle_slopes(reader, &at, port);
            for (j, credit) in port.cbs.iter().enumerate() {
                let both = credit.hi_credit.is_some() && credit.lo_credit.is_some();
                let neither = credit.hi_credit.is_none() && credit.lo_credit.is_none();
                let right = match credit.rules {
                    NetCbsRules::Linux => both,
                    NetCbsRules::Standard => neither,
                };
                if !right {
                    let message =
                        "`hi_credit` and `lo_credit` go with `rules: linux`, both of them"
                            .to_owned();
                    reader.fail_at(&format!("{at}.cbs[{j}].rules"), message, "");
                }
            }
        }
    }

    /// The classes of a port cannot have more than its rate. One of several ports may be slower: it
    /// shapes nothing then.
    fn idle_slopes(&self, reader: &mut Reader, at: &str, port: &NetPort) {
        let all = port.cbs.iter().map(|cbs| cbs.idle_slope.get()).fold(0, u64::saturating_add);
        let of = |node: &StationName| port.of.contains(node);
        let to = |name: &StationName| port.to.as_ref().is_none_or(|to| to == name);
        let links = self.file.links.iter().filter(|link| {
            let ends = link.between.iter();
            ends.clone().any(|one| of(one) && ends.clone().any(|other| one != other && to(other)))
        });
        let segments = self.file.segments.iter();
        let segments = segments.filter(|it| to(&it.name) && it.stations.iter().any(of));
        let rates = links.map(|it| it.rate).chain(segments.map(|it| it.rate));
        if let Some(rate) = rates.max().filter(|rate| all > rate.get()) {
            let all =
                BitsPerSecond::new(all).map_or_else(|| "more".to_owned(), |it| it.to_string());
            let message = format!("the idle slopes are {all} together, and the port has {rate}");
            reader.fail_at(&format!("{at}.cbs"), message, "leave something to the other classes");
        }
    }

    fn streams(&self, reader: &mut Reader) {
        for (i, stream) in self.file.streams.iter().enumerate() {
            let at = |key: &str| format!("streams[{i}].{key}");
            self.node(reader, &at("talker"), &stream.talker);
            self.listeners(reader, &at("listeners"), stream);
            size(reader, &at("size"), stream);
            if matches!(stream.traffic, NetTraffic::Replay(_)) && stream.is_tagged() {
                let message = "its frames have the tags that were captured".to_owned();
                reader.fail_at(&at("tagged"), message, "leave it out");
            }
            if stream.max_loss.is_some_and(|most| !matches!(most, AtMost::Share(_))) {
                let message = "what is lost is a share of all messages".to_owned();
                reader.fail_at(&at("max_loss"), message, "write a share such as 0.1%");
            }
            self.timed(reader, i, stream);
            match &stream.traffic {
                NetTraffic::Cyclic(cyclic) => {
                    delay(reader, &at("jitter"), &cyclic.jitter);
                    takes_time(reader, &at("period"), cyclic.period);
                }
                NetTraffic::Sporadic(sporadic) => {
                    gap(reader, &at("gap"), &sporadic.gap);
                }
                NetTraffic::Flood(_) => {}
                NetTraffic::Request(request) => {
                    takes_time(reader, &at("timeout"), request.timeout);
                    delay(reader, &at("think"), &request.think);
                    let key = at("answer");
                    self.follows(reader, &key, &request.answer, &stream.talker);
                    self.answers(reader, &key, &request.answer, &stream.name);
                }
                NetTraffic::After(after) => {
                    delay(reader, &at("work"), &after.work);
                    let key = at("follows");
                    self.follows(reader, &key, &after.follows, &stream.talker);
                    self.begins(reader, &key, i);
                }
                NetTraffic::RequestResponse(_) | NetTraffic::Pipeline(_) => {}
                NetTraffic::Replay(replay) => {
                    if replay.file.as_str().is_empty() {
                        let message = "there is no file without a name".to_owned();
                        let key = at("file");
                        reader.fail_at(&key, message, "name a capture, beside this file");
                    }
                }
            }
        }
    }

    fn listeners(&self, reader: &mut Reader, key: &str, stream: &NetStream) {
        let all = stream.listeners.all();
        if all.is_empty() {
            reader.fail_at(key, "nobody listens".to_owned(), "name at least one station");
        }
        for (i, name) in all.iter().enumerate() {
            self.node(reader, key, name);
            if *name == stream.talker {
                let message = "it ends where it starts".to_owned();
                reader.fail_at(key, message, "name another station");
            }
            if all[..i].contains(name) {
                let message = format!("{name} is there twice");
                reader.fail_at(key, message, "name each listener once");
            }
        }
    }

    /// Times of frames mean nothing to a port that sends as they come.
    fn timed(&self, reader: &mut Reader, i: usize, stream: &NetStream) {
        let class = stream.class.get();
        let keeps = |port: &NetPort, launch: bool| {
            let mut classes = port.ats.iter().chain(port.launch.iter().filter(|_| launch));
            classes.any(|it| it.get() == class)
        };
        let launches = |port: &NetPort| port.of.contains(&stream.talker) && keeps(port, true);
        if stream.launch.is_some() && !self.file.ports.iter().any(launches) {
            let message =
                format!("no port of {} keeps launch times of class {class}", stream.talker);
            let hint = format!("add `{{ of: [{}], launch: [{class}] }}` to `ports`", stream.talker);
            reader.fail_at(&format!("streams[{i}].launch"), message, &hint);
        }
        if stream.ats.is_some() && !self.file.ports.iter().any(|port| keeps(port, false)) {
            let message = format!("no port shapes class {class} asynchronously");
            let hint = format!("name the bridges on its way in `ports`, with `ats: [{class}]`");
            reader.fail_at(&format!("streams[{i}].ats"), message, &hint);
        }
    }

    /// Only the message that follows a request, at the end of a chain perhaps, has its number.
    fn answers(&self, reader: &mut Reader, key: &str, answer: &Name, request: &Name) {
        let named = |name: &Name| self.file.streams.iter().find(|it| it.name == *name);
        let mut at = named(answer);
        if at.is_none() {
            return;
        }
        for _ in 0..=self.file.streams.len() {
            at = at.and_then(|it| self.file.followed(it));
            if at.is_some_and(|it| it.name == *request) {
                return;
            }
        }
        let message = format!("no message of {answer} follows one of {request}");
        let hint =
            format!("name a stream `kind: after, follows: {request}`, or a chain's last one");
        reader.fail_at(key, message, &hint);
    }

    /// The other stream has to arrive where this one starts.
    fn follows(&self, reader: &mut Reader, key: &str, name: &Name, from: &StationName) {
        if !self.stream(reader, key, name) {
            return;
        }
        let arrives = self.file.streams.iter().find(|stream| stream.name == *name);
        if let Some(other) = arrives.filter(|other| !other.listeners.contains(from)) {
            let message =
                format!("{name} arrives at {}, and this starts at {from}", other.listeners);
            reader.fail_at(key, message, "name a stream that arrives where this one starts");
        }
    }

    /// Streams that follow each other in a circle never begin; the first of them says so.
    fn begins(&self, reader: &mut Reader, key: &str, first: usize) {
        let all = &self.file.streams;
        let (mut circle, mut at) = (vec![first], first);
        while let NetTraffic::After(after) = &all[at].traffic {
            let Some(next) = all.iter().position(|it| it.name == after.follows) else { return };
            if next == first {
                let names: Vec<&str> = circle.iter().map(|it| all[*it].name.as_str()).collect();
                let message = match names[..] {
                    [own] => format!("{own} follows itself, and never begins"),
                    _ => format!("{} follow each other, and never begin", names.join(", ")),
                };
                return reader.fail_at(
                    key,
                    message,
                    "let one of them begin, such as with a period",
                );
            }
            if next < first || circle.contains(&next) {
                return;
            }
            circle.push(next);
            at = next;
        }
    }

    fn faults(&self, reader: &mut Reader) {
        for (i, fault) in self.file.faults.iter().enumerate() {
            let at = |key: &str| format!("faults[{i}].{key}");
            match fault {
                NetFault::Loss(share) | NetFault::Corruption(share) => {
                    self.link(reader, &at("link"), &share.link);
                }
                NetFault::LinkDown(down) => self.link(reader, &at("link"), &down.link),
                NetFault::Babble(babble) => {
                    self.stream(reader, &at("stream"), &babble.stream);
                    let replays = self.file.streams.iter().any(|stream| {
                        let replay = matches!(stream.traffic, NetTraffic::Replay(_));
                        stream.name == babble.stream && replay
                    });
                    if replays {
                        let message = format!("{} is a replay", babble.stream);
                        let hint = "its frames are those of the capture; name another stream";
                        reader.fail_at(&at("stream"), message, hint);
                    }
                }
                NetFault::Late(late) => {
                    self.stream(reader, &at("stream"), &late.stream);
                }
                NetFault::Restart(restart) => self.node(reader, &at("node"), &restart.node),
                NetFault::ClockStep(step) => self.node(reader, &at("node"), &step.node),
                NetFault::ClockDrift(drift) => {
                    self.node(reader, &at("node"), &drift.node);
                    let same = |other: &NetFault| match other {
                        NetFault::ClockDrift(it) => (&it.node, it.at) == (&drift.node, drift.at),
                        _ => false,
                    };
                    if self.file.faults[..i].iter().any(same) {
                        let message = format!("{} changes its rate then already", drift.node);
                        reader.fail_at(&at("at"), message, "write one change for an instant");
                    }
                }
                NetFault::MasterLost(_) => {}
                NetFault::Gates(change) => {
                    self.port(reader, &at("to"), &change.node, &change.to);
                    if let Some(list) = &change.gates {
                        gates(reader, &at("gates"), list);
                    }
                }
            }
        }
    }

    fn limits(&self, reader: &mut Reader) {
        let names: Vec<Name> = self.file.streams.iter().flat_map(NetStream::result_names).collect();
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        for (i, limit) in self.file.limits.iter().enumerate() {
            let key = format!("limits[{i}].stream");
            each_once(reader, &key, limit.stream.as_ref().map(Several::all));
            for (key, stream) in limit.stream.iter().flat_map(|it| it.keyed(&key)) {
                known(reader, &key, "stream", stream.as_str(), &names);
            }
            check_metric(reader, &format!("limits[{i}]"), limit);
            check_bound(reader, &format!("limits[{i}]"), limit);
        }
    }

    fn link(&self, reader: &mut Reader, key: &str, ends: &[StationName]) {
        let known = |link: &super::network::NetLink| ends.iter().all(|e| link.between.contains(e));
        if pair(reader, key, ends) && !self.file.links.iter().any(known) {
            let message = format!("there is no link between {} and {}", ends[0], ends[1]);
            reader.fail_at(key, message, "name the ends of a link");
        }
    }

    fn programs(&self, reader: &mut Reader) {
        check_words(&self.file.programs, reader);
        for (i, program) in self.file.programs.iter().enumerate() {
            let at = format!("programs[{i}]");
            let stations = self.file.stations.iter().map(|it| it.name.as_str());
            let station = program.station.as_str();
            reader.known_name(&format!("{at}.station"), "station", station, stations);
            if let Some(experiment) = &self.file.experiment {
                check_loads(&experiment.loads, reader, &at, program);
            }
            for (n, name) in program.streams.iter().enumerate() {
                let key = format!("{at}.streams[{n}]");
                let Some(stream) = self.file.streams.iter().find(|it| it.name == *name) else {
                    self.stream(reader, &key, name);
                    continue;
                };
                if stream.talker != program.station && !stream.listeners.contains(&program.station)
                {
                    let message = format!("`{name}` neither begins nor ends at `{station}`");
                    reader.fail_at(&key, message, "name streams of the program's station");
                }
            }
        }
    }

    fn node(&self, reader: &mut Reader, key: &str, name: &StationName) {
        known(reader, key, "station or bridge", name.as_str(), &self.nodes);
    }

    fn stream(&self, reader: &mut Reader, key: &str, name: &Name) -> bool {
        known(reader, key, "stream", name.as_str(), &self.streams)
    }
}

/// No time of the file is longer than a simulation can be, wherever it stands.
fn bounded(path: &str, value: &Json, reader: &mut Reader) {
    match value {
        Json::Object(keys) => {
            // Host settings are not simulated: gates have base times that count from 1970. Words of
            // programs are no times.
            for (key, value) in keys.iter().filter(|it| *it.0 != "host" && *it.0 != "programs") {
                let dot = if path.is_empty() { "" } else { "." };
                bounded(&format!("{path}{dot}{key}"), value, reader);
            }
        }
        Json::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                bounded(&format!("{path}[{i}]"), item, reader);
            }
        }
        // The base of a schedule counts from 1970, and the description is for people.
        Json::String(_) if ["schedule.base_time", "description", "duration"].contains(&path) => {}
        Json::String(text) => {
            if let Ok(span) = parse_span(text)
                && (span > LONGEST || span < -LONGEST)
            {
                let message = format!("{span} is longer than a day, and so than any simulation");
                reader.fail_at(path, message, "write a shorter time");
            }
        }
        _ => {}
    }
}

fn known(reader: &mut Reader, key: &str, what: &str, name: &str, all: &[&str]) -> bool {
    let is = all.contains(&name);
    if !is {
        let meant = did_you_mean(name, all.iter().copied());
        let hint = match all.len() {
            0 => "there is none".to_owned(),
            1..=20 => format!("there are {}", listed(all.iter().copied())),
            count => format!("there are {count}"),
        };
        reader.fail_at(key, format!("there is no {what} `{name}`{meant}"), &hint);
    }
    is
}

/// A stream has messages of one length, or frames as they were captured.
fn size(reader: &mut Reader, key: &str, stream: &NetStream) {
    let replay = matches!(stream.traffic, NetTraffic::Replay(_));
    match stream.size {
        None if !replay => {
            let message = "how long are its messages?".to_owned();
            reader.fail_at(key, message, "write their UDP payload, such as `size: 64B`");
        }
        Some(_) if replay => {
            let message = "its frames are as long as they were captured".to_owned();
            reader.fail_at(key, message, "leave it out");
        }
        Some(length) if length.get() > LONGEST_MESSAGE => {
            let message = format!("{length} is longer than a jumbo frame takes");
            reader.fail_at(key, message, &format!("at most {LONGEST_MESSAGE}B"));
        }
        _ => {}
    }
}

fn twice<'a>(
    reader: &mut Reader,
    seen: &mut BTreeMap<&'a str, String>,
    key: String,
    name: &'a str,
) {
    if let Some(first) = seen.get(name) {
        reader.fail_at(&key, format!("`{name}` is the name of {first}"), "give it another name");
    } else {
        seen.insert(name, key);
    }
}

fn pair(reader: &mut Reader, key: &str, ends: &[StationName]) -> bool {
    let right = ends.len() == 2 && ends[0] != ends[1];
    if !right {
        let message = match ends {
            [one, _] => format!("a link of `{one}` with itself"),
            _ => format!("a link has two ends, not {}", ends.len()),
        };
        reader.fail_at(key, message, "name two different ones, such as [alpha, bridge]");
    }
    right
}

fn takes_time(reader: &mut Reader, key: &str, span: Span) {
    if span == Span::ZERO {
        reader.fail_at(key, "it takes time".to_owned(), "write a time above zero, such as 1ms");
    }
}

/// A gap between messages: as any delay, and at times above zero.
pub(super) fn gap(reader: &mut Reader, key: &str, gap: &NetDelay) {
    delay(reader, key, gap);
    takes_time(reader, key, gap.range().1.unwrap_or(Span::MAX));
}

fn delay(reader: &mut Reader, key: &str, delay: &NetDelay) {
    match delay {
        NetDelay::Drawn(NetDrawn::Uniform(uniform)) if uniform.min > uniform.max => {
            let message = format!("{} is more than {}", uniform.min, uniform.max);
            reader.fail_at(&format!("{key}.min"), message, "write the lesser first");
        }
        NetDelay::Drawn(NetDrawn::Empirical(measured)) if measured.times.is_empty() => {
            let message = "there is no time".to_owned();
            reader.fail_at(&format!("{key}.times"), message, "write at least one");
        }
        NetDelay::Drawn(NetDrawn::Recorded(it)) => recorded(reader, key, it),
        _ => {}
    }
}

fn recorded(reader: &mut Reader, key: &str, recorded: &NetRecorded) {
    let csv = recorded.file.as_str().ends_with(".csv");
    let mut fail = |what: &str, message: &str, hint: &str| {
        reader.fail_at(&format!("{key}.{what}"), message.to_owned(), hint);
    };
    match (csv, &recorded.column, &recorded.flow) {
        (true, None, _) => {
            let message = "which column has the times?";
            fail("column", message, "write `column` with the name in the first line of the file");
        }
        (true, _, Some(_)) => fail("flow", "a CSV file has no flows", "leave it out"),
        (false, Some(_), _) => {
            fail("column", "only a file that ends in .csv has columns", "leave it out");
        }
        _ => {}
    }
}

fn gates(reader: &mut Reader, key: &str, list: &NetGates) {
    let mut total = Span::ZERO;
    for (i, entry) in list.entries.iter().enumerate() {
        takes_time(reader, &format!("{key}.entries[{i}].interval"), entry.interval);
        total = total.checked_add(entry.interval).unwrap_or(Span::MAX);
    }
    if list.entries.is_empty() {
        let message = "there is no state".to_owned();
        reader.fail_at(&format!("{key}.entries"), message, "write at least one");
    }
    let cycle = list.cycle_time.unwrap_or(total);
    if total > cycle || cycle > Span::from_secs(1_000) {
        let message = format!("the states together are {total}, and the cycle is {cycle}");
        reader.fail_at(&format!("{key}.cycle_time"), message, "a cycle is as long, at most 1000s");
    }
}

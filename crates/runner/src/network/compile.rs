// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compile step: from a network file and its plan to an experiment for kernels. Pure: the same
//! file gives the same experiment.
//!
//! Each stream has a VLAN and a group address of its own. The VLAN's members are the ports of its
//! route, so bridges forward it there and nowhere else, whatever links there are.

mod obstacles;
mod promises;
mod replies;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use timewire_base::wire::MacAddress;
use timewire_base::{BitsPerSecond, FrameLen, IfName, Span, StationName, parse_span};
use timewire_model::scenario::hosts_file::{HostsClock, HostsFile};
use timewire_model::scenario::network::{
    NetGates, NetPort, NetStream, NetTraffic, NetworkCase, NetworkFile,
};
use timewire_model::scenario::phases::NodePhases;
use timewire_plan::file::{self, FileProblem};
use timewire_plan::model::{LinkId, Plan, StreamId};

use super::port::{Port, TAG_BYTES};
use super::reply::PRIORITY;
use super::{COMPILED_SCHEMA, Compiled, LaunchError};
use crate::experiment::connection::{ConnectedBridge, ConnectedInterface, Connection};
use crate::host_part::{self, HostPart};

/// A network file, what of it is planned, and its plan, which rejects no stream.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// The network.
    pub case: &'a NetworkCase,
    /// Its problem.
    pub given: &'a FileProblem,
    /// The plan.
    pub plan: &'a Plan,
}

/// Why a place cannot carry a file out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What of the file.
    pub what: String,
    /// What the place lacks, or what would do.
    pub why: String,
}

/// Where the stations and bridges are.
#[derive(Clone, Copy, Debug)]
pub enum Site<'a> {
    /// Namespaces of a kernel of the laboratory.
    Laboratory,
    /// The hosts of this file.
    Hosts(&'a HostsFile),
}

/// The file as an experiment at a place.
///
/// **Errors**: what that place cannot do, all of it.
pub fn compile(
    planned: Planned<'_>,
    site: Site<'_>,
    error: &LaunchError,
) -> Result<Compiled, Vec<Obstacle>> {
    let with_plan = file::planned(&planned.case.file, planned.given, planned.plan);
    let with_plan = with_plan
        .map_err(|errors| vec![obstacle("the plan", format!("it makes no network: {errors}"))])?;
    let compiler = Compiler { planned, file: &with_plan, site, error };
    let mut obstacles = compiler.obstacles();
    let routes: Vec<Vec<LinkId>> =
        with_plan.streams.iter().map(|stream| compiler.route(stream)).collect();
    for (stream, route) in with_plan.streams.iter().zip(&routes) {
        if route.is_empty() && with_plan.segments.is_empty() {
            let what = format!("stream {}", stream.name);
            obstacles.push(obstacle(&what, "no link leads to its listener".to_owned()));
        }
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    Ok(compiler.experiment(&routes, compiler.ports(&routes)))
}

fn obstacle(what: &str, why: String) -> Obstacle {
    Obstacle { what: what.to_owned(), why }
}

struct Compiler<'a> {
    planned: Planned<'a>,
    /// The file with the plan in it.
    file: &'a NetworkFile,
    site: Site<'a>,
    error: &'a LaunchError,
}

/// Adds what a node does by itself in each phase: while the links are there and everybody listens.
fn add_own(node: &mut Json, phases: &NodePhases) {
    let texts = phases.to_json();
    for (name, phase) in phases.all().into_iter().filter(|(_, phase)| !phase.steps.is_empty()) {
        let mut own = texts[name]["steps"].as_array().cloned().unwrap_or_default();
        // What begins and ends others has no time of its own to begin.
        if phase.after > Span::ZERO {
            let ns = phase.after.as_ns();
            let seconds = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            own.insert(
                0,
                json!({"run": ["sleep", seconds], "name": format!("until-{name}"),
                "timeout": (phase.after + Span::from_secs(60)).to_string()}),
            );
        }
        let steps = &mut node["phases"][name]["steps"];
        let others = steps.as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_ending = ["close", "report", "teardown"].contains(&name);
        let all = if is_ending { [own, others] } else { [others, own] };
        *steps = Json::Array(all.concat());
    }
}

/// How long a node may take for a phase: all of its steps, one after the other.
fn longest_phase(node: &Json) -> Span {
    let steps = |phase: &Json| -> Span {
        let steps = phase["steps"].as_array().into_iter().flatten();
        // Steps without a time have a minute.
        let timeout = |step: &Json| step["timeout"].as_str().and_then(|it| parse_span(it).ok());
        let each = steps.map(|step| timeout(step).unwrap_or(Span::from_secs(60)));
        each.fold(Span::ZERO, |all, one| all.checked_add(one).unwrap_or(DAY).min(DAY))
    };
    let phases = node["phases"].as_object().into_iter().flat_map(|phases| phases.values());
    phases.map(steps).max().unwrap_or(Span::ZERO)
}

/// What a node's interfaces have, by their names.
#[derive(Clone, Debug, Default)]
struct Setup {
    /// Disciplines, as `tc qdisc replace dev INTERFACE` takes them.
    qdiscs: BTreeMap<String, Vec<String>>,
    /// VLANs of streams, of the ports of a bridge.
    vlans: BTreeMap<String, Vec<u16>>,
}

/// Of each node, by its name.
type Setups = BTreeMap<String, Setup>;

impl Compiler<'_> {
    fn admission(&self, stream: &NetStream) -> Option<StreamId> {
        let streams = self.planned.given.problem.streams().iter();
        let id = streams.clone().position(|own| own.name == stream.name.as_str())?;
        let id = StreamId::from_index(id);
        self.planned.plan.admitted.iter().any(|it| it.stream == id).then_some(id)
    }

    /// The links of a stream, each as it is sent on; of the plan, where it has a reservation.
    fn route(&self, stream: &NetStream) -> Vec<LinkId> {
        let Some(id) = self.admission(stream) else {
            return file::route_of(self.file, stream).unwrap_or_default();
        };
        let mut links = Vec::new();
        let admitted = self.planned.plan.admitted.iter().filter(|it| it.stream == id);
        for sent in admitted.flat_map(|it| &it.transmissions) {
            if sent.copy == 0 && !links.contains(&sent.link) {
                links.push(sent.link);
            }
        }
        links
    }

    fn ends(&self, link: LinkId) -> (&StationName, &StationName, usize) {
        let (place, end) = (link.index() / 2, link.index() % 2);
        let between = &self.file.links[place].between;
        (&between[end], &between[1 - end], place)
    }

    /// Whether interfaces have no rate of their own: namespaces of one kernel.
    fn is_virtual(&self) -> bool {
        match self.site {
            Site::Laboratory => true,
            Site::Hosts(hosts) => hosts.clock == HostsClock::OneHost,
        }
    }

    /// The interface of a node on a link; in the laboratory numbered in the order of its links.
    fn interface(&self, node: &StationName, link: usize) -> String {
        if let Site::Hosts(hosts) = self.site {
            let ends = &self.file.links[link].between;
            let far = if ends[0] == *node { &ends[1] } else { &ends[0] };
            return hosts.interface(node, far).map(ToString::to_string).unwrap_or_default();
        }
        let before = self.file.links[..link].iter().filter(|it| it.between.contains(node));
        format!("eth{}", before.count())
    }

    /// The links from the talker to a listener, in their order.
    fn path(&self, route: &[LinkId], from: &StationName, to: &StationName) -> Vec<LinkId> {
        let mut path = Vec::new();
        let mut at = to;
        while at != from {
            let Some(link) = route.iter().find(|link| self.ends(**link).1 == at) else {
                return Vec::new();
            };
            path.push(*link);
            at = self.ends(*link).0;
        }
        path.reverse();
        path
    }

    /// Queueing disciplines of every egress port.
    fn ports(&self, routes: &[Vec<LinkId>]) -> Setups {
        let mut setups = Setups::new();
        for link in (0..2 * self.file.links.len()).map(LinkId::from_index) {
            let (own, far, place) = self.ends(link);
            let device = self.interface(own, place);
            let mut port = Port {
                rate: self.file.links[place].rate,
                is_virtual: self.is_virtual(),
                is_bridge: self.file.bridges.iter().any(|it| it.name == *own),
                classes: BTreeSet::new(),
                longest: FrameLen::new(ETHERNET_BYTES).expect("invariant: a header is a frame"),
                floods: BTreeSet::new(),
                gates: self.gates(own, far),
                credit: self.credit(own, far),
                launch: BTreeMap::new(),
                held: BTreeSet::new(),
            };
            for (stream, route) in self.file.streams.iter().zip(routes) {
                if !route.contains(&link) {
                    continue;
                }
                let class = class(stream);
                port.classes.insert(class);
                port.longest = port.longest.max(stream.frame_len());
                if matches!(stream.traffic, NetTraffic::Flood(_)) {
                    port.floods.insert(class);
                }
                if stream.launch.is_some() && stream.talker == *own {
                    port.launch.insert(class, self.etf_delta(stream));
                    if self.admission(stream).is_some() {
                        port.held.insert(class);
                    }
                }
            }
            // Where nothing leaves, nothing is to be shaped.
            if port.classes.is_empty() {
                continue;
            }
            port.credit.retain(|class, _| port.classes.contains(class));
            let own = setups.entry(own.to_string()).or_default();
            own.qdiscs.insert(device, port.commands());
        }
        setups
    }

    /// What the file says of a port, in its order.
    fn settings(&self, own: &StationName, far: &StationName) -> Vec<&NetPort> {
        let is_this =
            |port: &&NetPort| port.of.contains(own) && port.to.as_ref().is_none_or(|to| to == far);
        self.file.ports.iter().filter(is_this).collect()
    }

    /// The last list that names the port, as the simulator takes it.
    fn gates(&self, own: &StationName, far: &StationName) -> Option<&NetGates> {
        self.settings(own, far).into_iter().rev().find_map(|port| port.gates.as_ref())
    }

    fn credit(&self, own: &StationName, far: &StationName) -> BTreeMap<u8, BitsPerSecond> {
        let all = self.settings(own, far).into_iter().flat_map(|port| &port.cbs);
        all.map(|it| (u8::try_from(it.class.get()).unwrap_or(7), it.idle_slope)).collect()
    }

    /// How long before its launch time a talker's `etf` sends a frame of this stream.
    fn etf_delta(&self, stream: &NetStream) -> Span {
        let talker = self.file.stations.iter().find(|it| it.name == stream.talker);
        talker.and_then(|it| it.device.launch_time).unwrap_or(ETF_DELTA)
    }

    fn experiment(&self, routes: &[Vec<LinkId>], mut setups: Setups) -> Compiled {
        for (number, route) in routes.iter().enumerate() {
            self.members(number, route, &mut setups);
        }
        let mut files = BTreeMap::new();
        let mut stations = Vec::new();
        for station in &self.file.stations {
            stations.push(self.station(&station.name, routes, &setups, &mut files));
        }
        for bridge in &self.file.bridges {
            let setup = setups.get(bridge.name.as_str()).cloned().unwrap_or_default();
            let mut made = json!({"name": bridge.name.as_str()});
            let steps = self.setup(&bridge.name, &setup, &mut made, &mut files);
            made["phases"]["setup"] = json!({"steps": steps});
            bridge.phases.iter().for_each(|it| add_own(&mut made, it));
            stations.push(made);
        }
        let links: Vec<Json> = self.file.links.iter().map(link).collect();
        let bridges: Vec<&str> = self.file.bridges.iter().map(|it| it.name.as_str()).collect();
        let phase = stations.iter().map(longest_phase).max().unwrap_or(Span::ZERO);
        let mut experiment = json!({
            "name": self.file.name.as_str(),
            "description": self.file.description.as_str(),
            "timing": {"phase": phase.max(PHASE).to_string()},
            "stations": stations,
            "checks": self.file.to_json()["checks"],
        });
        // Steps and files that are put have the values, too.
        let values = self.planned.case.variant.values.iter();
        let values = values.map(|(name, value)| json!({"name": name.as_str(), "values": [value]}));
        experiment["variables"] = values.collect();
        if matches!(self.site, Site::Laboratory) {
            experiment["network"] = json!({"bridges": bridges, "links": links});
        }
        Compiled {
            schema: COMPILED_SCHEMA.to_owned(),
            network: self.file.name.to_string(),
            case: self.planned.case.case.clone(),
            title: self.planned.case.title.clone(),
            load: self.planned.case.load.clone(),
            description: self.file.description.to_string(),
            launch_error: self.error.clone(),
            notes: self.notes(),
            traced: false,
            promises: self.promises(routes),
            experiment,
            files,
        }
    }

    /// The interfaces of a node.
    fn interfaces(&self, node: &StationName) -> Vec<String> {
        let links = self.file.links.iter().enumerate();
        let own = links.filter(|(_, link)| link.between.contains(node));
        own.map(|(link, _)| self.interface(node, link)).collect()
    }

    /// The steps that give a node what it is to have; none where that is nothing. In the
    /// laboratory, which is gone afterwards, a script. On hosts a program that holds it, with an
    /// undo log: whatever happens to the run, the agent takes it back.
    fn setup(
        &self,
        node: &StationName,
        setup: &Setup,
        station: &mut Json,
        files: &mut BTreeMap<String, String>,
    ) -> Vec<Json> {
        let is_bridge = self.file.bridges.iter().any(|it| it.name == *node);
        let interfaces = self.interfaces(node);
        if matches!(self.site, Site::Hosts(_)) {
            let connection = connection(&interfaces, setup, is_bridge);
            let Some(connection) = connection else { return Vec::new() };
            let (file, from) = (CONNECTION, format!("{node}/{CONNECTION}"));
            files.insert(from.clone(), connection);
            station["phases"]["teardown"] = json!({"steps": [{"stop": "connection"}]});
            return vec![
                json!({"put": file, "from": from}),
                json!({"start": ["timewire", "__connection", file], "name": "connection"}),
                json!({"run": ["timewire", "__connection", file, "--wait"],
                       "name": "connection-begun"}),
            ];
        }
        let mut lines = Vec::new();
        if is_bridge {
            lines.extend(interfaces.iter().map(|it| format!("bridge vlan del dev {it} vid 1")));
        }
        for (device, qdiscs) in &setup.qdiscs {
            lines.extend(qdiscs.iter().map(|it| format!("tc qdisc replace dev {device} {it}")));
        }
        for (port, vlans) in &setup.vlans {
            lines.extend(vlans.iter().map(|it| format!("bridge vlan add dev {port} vid {it}")));
        }
        if lines.is_empty() {
            return Vec::new();
        }
        let from = format!("{node}/{SETUP}");
        files.insert(from.clone(), lines.join("\n") + "\n");
        vec![
            json!({"put": SETUP, "from": from}),
            json!({"run": ["sh", "-e", SETUP], "name": "setup"}),
        ]
    }

    /// The steps that apply a station's host settings; the agent takes them back.
    fn host_settings(&self, name: &StationName, files: &mut BTreeMap<String, String>) -> Vec<Json> {
        let station = self.file.stations.iter().find(|it| it.name == *name);
        let host = station.and_then(|it| it.host.as_ref());
        let Some(host) = host.filter(|_| matches!(self.site, Site::Hosts(_))) else {
            return Vec::new();
        };
        let HostPart { settings, groups } = host_part::parts(&self.file.name, name, host);
        let mut steps = Vec::new();
        if let Some(settings) = settings {
            let from = format!("{name}/host.yaml");
            files.insert(from.clone(), settings + "\n");
            steps.push(json!({"apply": from}));
        }
        if let Some(groups) = groups {
            let from = format!("{name}/{}", host_part::GROUPS);
            files.insert(from.clone(), groups + "\n");
            let words = |words: &[&'static str]| [&["timewire"], words].concat();
            let (grouped, tries) = (host_part::GROUPED, host_part::TRIES);
            steps.push(json!({"put": host_part::GROUPS, "from": from}));
            steps.push(json!({"start": words(&host_part::START), "name": grouped}));
            steps.push(json!({"run": words(&host_part::ASK), "name": format!("{grouped}-begun"),
                              "retries": tries, "pause": "100ms"}));
        }
        steps
    }

    /// The ports of bridges that are members of a stream's VLAN.
    fn members(&self, number: usize, route: &[LinkId], setups: &mut Setups) {
        let is_bridge = |name: &StationName| self.file.bridges.iter().any(|it| it.name == *name);
        for link in route {
            let (from, to, place) = self.ends(*link);
            for node in [from, to].into_iter().filter(|node| is_bridge(node)) {
                let port = self.interface(node, place);
                let own = setups.entry(node.to_string()).or_default();
                own.vlans.entry(port).or_default().push(vid(number));
            }
        }
    }

    fn station(
        &self,
        name: &StationName,
        routes: &[Vec<LinkId>],
        setups: &Setups,
        files: &mut BTreeMap<String, String>,
    ) -> Json {
        // By interface: what is sent there, and whether something arrives there.
        let mut talks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut hears: BTreeSet<String> = BTreeSet::new();
        for (number, (stream, route)) in self.file.streams.iter().zip(routes).enumerate() {
            for link in route {
                let (from, to, place) = self.ends(*link);
                let is_talked =
                    matches!(stream.traffic, NetTraffic::Cyclic(_) | NetTraffic::Flood(_));
                if from == name && stream.talker == *name && is_talked {
                    talks.entry(self.interface(name, place)).or_default().push(number);
                }
                if to == name && stream.listeners.contains(name) {
                    hears.insert(self.interface(name, place));
                }
            }
        }
        let mut station = json!({"name": name.as_str()});
        let setup = setups.get(name.as_str()).cloned().unwrap_or_default();
        let mut steps = self.host_settings(name, files);
        let has_groups = steps.iter().any(|step| step["name"] == host_part::GROUPED);
        steps.extend(self.setup(name, &setup, &mut station, files));
        if has_groups && let Some(last) = station["phases"]["teardown"]["steps"].as_array_mut() {
            last.push(json!({"stop": host_part::GROUPED}));
        }
        let (mut open, mut run, mut finish, mut close) = (vec![], vec![], vec![], vec![]);
        for interface in &hears {
            let name = format!("listen-{interface}");
            open.push(json!({
                "start": ["timewire", "listen", "--interface", interface, "--over", "frames",
                    "--ethertype", "0x88b5", "--until", "kernel", "--timestamps", "software",
                    "--every", "60s", "--out", format!("heard-{interface}"), "--json"],
                "name": name, "accept": [1],
            }));
            close.push(json!({"stop": name, "accept": [1]}));
            close.push(keep(&format!("heard-{interface}/listener.twr"), &name));
        }
        if !hears.is_empty() {
            open.push(json!({"run": ["sleep", "1"], "name": "ready"}));
            close.insert(0, json!({"run": ["sleep", "1"], "name": "settled"}));
        }
        // The answer to the last request is waited for.
        let answered = self.file.streams.iter().filter_map(|stream| match &stream.traffic {
            NetTraffic::Request(it) => Some(it.timeout),
            _ => None,
        });
        let answered = answered.max().unwrap_or(Span::ZERO);
        let timeout = (self.file.duration + answered + Span::from_secs(60)).to_string();
        let senders = self.senders(name, routes);
        let own = talks.len() + senders.values().filter(|it| it.end.is_some()).count();
        let node = self.file.stations.iter().find(|it| it.name == *name);
        let own_phases = node.and_then(|it| it.phases.as_ref());
        // What a station does by itself is done while its programs send.
        let is_alone = own == 1 && own_phases.is_none_or(|it| it.run.steps.is_empty());
        let mut during = |program: &str, words: Json| {
            let verb = if is_alone { "run" } else { "start" };
            run.push(json!({verb: words, "name": program, "accept": [1], "timeout": timeout}));
            if !is_alone {
                finish.push(json!({"wait": program, "timeout": timeout}));
            }
        };
        for (program, sender) in senders {
            let (file, from) = (format!("{program}.json"), format!("{name}/{program}.json"));
            steps.push(json!({"put": file, "from": from}));
            let text = serde_json::to_string(&sender);
            files.insert(from, text.expect("invariant: it has only text keys") + "\n");
            let words = json!(["timewire", "__reply", file]);
            if sender.end.is_some() {
                during(&program, words);
            } else {
                open.insert(0, json!({"start": words, "name": program}));
                close.push(json!({"stop": program}));
            }
        }
        for (interface, numbers) in &talks {
            let words = ["timewire", "talk", "--interface", interface, "--over", "frames", "--rt"];
            let mut words: Vec<String> = words.map(str::to_owned).into();
            words.extend([PRIORITY.to_string(), "--spin".to_owned(), "0us".to_owned()]);
            words.push("--json".to_owned());
            words.extend(numbers.iter().map(|number| format!("--stream={}", self.talked(*number))));
            during(&format!("talk-{interface}"), json!(words));
        }
        let phases =
            [("setup", steps), ("open", open), ("run", run), ("finish", finish), ("close", close)];
        for (phase, steps) in phases.into_iter().filter(|(_, steps)| !steps.is_empty()) {
            station["phases"][phase] = json!({"steps": steps});
        }
        own_phases.iter().for_each(|it| add_own(&mut station, it));
        station
    }

    /// A stream as a talker takes it.
    fn talked(&self, number: usize) -> String {
        let stream = &self.file.streams[number];
        let Release { cycle, offset, per_cycle, spacing } = self.release(stream);
        let (id, class) = (number + 1, class(stream));
        let mut text = format!(
            "{id}:to={},cycle={cycle},offset={offset},size={}B,count={},priority={class},\
             vlan={}:{class}",
            group(number),
            Self::size(stream),
            self.messages(stream) + self.tail(stream),
            vid(number),
        );
        if per_cycle > 1 {
            text += &format!(",per_cycle={per_cycle},spacing={spacing}");
        }
        if stream.launch.is_some() {
            text += &format!(",launch={}", self.launch_lead(stream));
        }
        text
    }

    /// What follows the EtherType of a stream's frames, which all have a VLAN tag here: with it
    /// they are as long as planned.
    ///
    /// **Units**: bytes.
    fn size(stream: &NetStream) -> u32 {
        stream.frame_len().get() - ETHERNET_BYTES - TAG_BYTES
    }

    /// How long before its launch time a message is handed over.
    fn launch_lead(&self, stream: &NetStream) -> Span {
        self.etf_delta(stream) + stream.launch.unwrap_or(Span::ZERO).max(LAUNCH_LEAD)
    }

    /// When a talker hands a stream's messages over; of one with launch times, those.
    fn release(&self, stream: &NetStream) -> Release {
        let talker = self.file.stations.iter().find(|it| it.name == stream.talker);
        let send = talker.and_then(|it| it.send.range().1).unwrap_or(Span::ZERO);
        match &stream.traffic {
            NetTraffic::Cyclic(it) => {
                let planned = self.admission(stream).is_some();
                let due = it.offset + send;
                let at = match (stream.launch, planned) {
                    // `etf` sends a frame its delta before the launch time that it is given.
                    (Some(launch), _) => it.offset + launch + self.etf_delta(stream),
                    (None, true) => due - self.error.lead,
                    (None, false) => due,
                };
                let offset = Span::from_ns(at.as_ns().rem_euclid(it.period.as_ns()));
                let (per_cycle, spacing) = (it.burst.get(), it.spacing);
                Release { cycle: it.period, offset, per_cycle, spacing }
            }
            NetTraffic::Flood(it) => {
                let one = it.rate.duration_of(stream.frame_len().wire_len());
                let frames = i64::try_from(it.burst.get()).unwrap_or(1);
                let cycle = one.checked_mul(frames).unwrap_or(Span::MAX);
                let (per_cycle, spacing) = (it.burst.get(), Span::ZERO);
                Release { cycle, offset: Span::ZERO, per_cycle, spacing }
            }
            _ => unreachable!("invariant: no talker has it"),
        }
    }

    /// Messages of a talker beyond those that are judged.
    fn tail(&self, stream: &NetStream) -> u64 {
        let Release { cycle, per_cycle, .. } = self.release(stream);
        let cycles = TAIL.as_ns() / cycle.as_ns().max(1) + 1;
        u64::try_from(cycles).unwrap_or(1).saturating_mul(per_cycle)
    }

    /// Messages of a talker that are judged.
    fn messages(&self, stream: &NetStream) -> u64 {
        let Release { cycle, per_cycle, .. } = self.release(stream);
        let cycles = self.file.duration.as_ns() / cycle.as_ns().max(1);
        u64::try_from(cycles).unwrap_or(0).max(1).saturating_mul(per_cycle)
    }

    /// How many messages of a stream are judged, and how many come after those; of requests and
    /// what follows them, nobody knows.
    fn expected(&self, stream: &NetStream) -> (Option<u64>, u64) {
        let first = self.first_of(stream);
        match &first.traffic {
            NetTraffic::Cyclic(_) | NetTraffic::Flood(_) => {
                (Some(self.messages(first)), self.tail(first))
            }
            NetTraffic::Sporadic(_) => {
                let number = self.file.streams.iter().position(|it| it.name == first.name);
                let times = self.times_of(number.unwrap_or_default(), first);
                (u64::try_from(times.len()).ok(), 0)
            }
            _ => (None, 0),
        }
    }
}

/// When messages are due.
struct Release {
    cycle: Span,
    offset: Span,
    per_cycle: u64,
    spacing: Span,
}

fn class(stream: &NetStream) -> u8 {
    u8::try_from(stream.class.get()).unwrap_or(7)
}

/// The VLAN of a stream.
fn vid(number: usize) -> u16 {
    u16::try_from(FIRST_VID + number).unwrap_or(u16::MAX)
}

/// The group address of a stream: locally administered.
fn group(number: usize) -> MacAddress {
    let [high, low] = u16::try_from(number + 1).unwrap_or(u16::MAX).to_be_bytes();
    MacAddress([0x03, 0x77, 0, 0, high, low])
}

/// Links of the laboratory have no finer delay.
fn whole_us(delay: Span) -> Span {
    Span::from_us((delay.as_ns() + 999).div_euclid(1_000))
}

fn link(link: &timewire_model::scenario::network::NetLink) -> Json {
    let between: Vec<&str> = link.between.iter().map(StationName::as_str).collect();
    let rate = format!("{}bit", link.rate.get());
    json!({"between": between, "rate": rate, "delay": whole_us(link.delay).to_string()})
}

/// Makes the records of a program some of its station.
fn keep(records: &str, program: &str) -> Json {
    json!({"run": ["mv", records, format!("{program}.twr")], "name": format!("keep-{program}")})
}

/// What a host is to have, as its file; `None` where that is nothing.
fn connection(interfaces: &[String], setup: &Setup, is_bridge: bool) -> Option<String> {
    let name = |text: &str| IfName::new(text).ok();
    let own = interfaces.iter().filter_map(|interface| {
        let qdiscs = setup.qdiscs.get(interface).cloned().unwrap_or_default();
        Some(ConnectedInterface { interface: name(interface)?, address: None, qdiscs, alone: true })
    });
    let ports = interfaces
        .iter()
        .filter_map(|port| Some((name(port)?, setup.vlans.get(port).cloned().unwrap_or_default())));
    let bridge = ConnectedBridge { name: name(BRIDGE)?, ports: ports.collect() };
    let interfaces: Vec<ConnectedInterface> = own.collect();
    if interfaces.is_empty() {
        return None;
    }
    let connection = Connection { interfaces, bridge: is_bridge.then_some(bridge) };
    serde_json::to_string_pretty(&connection).ok().map(|text| text + "\n")
}

/// No phase takes longer.
const DAY: Span = Span::from_secs(86_400);
/// How long a phase may take at least.
const PHASE: Span = Span::from_secs(300);
/// The file of what a host is to have.
pub(super) const CONNECTION: &str = "connection.json";
/// The same of a node of the laboratory.
pub(super) const SETUP: &str = "setup.sh";
/// How long talkers go on after the last message that is judged.
const TAIL: Span = Span::from_ms(20);
/// The first VLAN of a stream.
const FIRST_VID: usize = 10;
/// Streams that have a VLAN each.
const MAX_STREAMS: usize = 4_000;
/// What a bridge of streams is called on hosts.
const BRIDGE: &str = "timewire0";
/// Header of a frame. **Units**: bytes.
const ETHERNET_BYTES: u32 = 14;
/// The gap between frames. **Units**: bits.
const GAP_BITS: u64 = 96;
/// How long before its launch time `etf` sends a frame where the file does not say.
const ETF_DELTA: Span = Span::from_us(20);
/// How long before `etf` needs it a message is handed over.
const LAUNCH_LEAD: Span = Span::from_us(100);

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `doctor FILE --on HOSTS`, and the first phase of each run on hosts: whether the hosts of a hosts
//! file can be the stations and bridges of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use timewire_agent::sweep::own_agent_directory;
use timewire_base::{IfName, Span, StationName};
use timewire_model::scenario::host::DesiredHost;
use timewire_model::scenario::hosts_file::{AgentAddress, HostsClock, HostsFile};
use timewire_model::scenario::network::NetworkCase;
use timewire_model::scenario::{Case, CaseBackend, FileKind, Scenario};
use timewire_runner::experiment::{
    self, HostJudged, InterfaceAddresses, JudgeHosts, Progress, Script,
};
use timewire_runner::host_part;
use timewire_runner::network::{Compiled, Obstacle};
use timewire_tsn::backend::{Asked, TransmitBackend};
use timewire_tsn::file::ParseFile;

use super::Doctor;
use crate::output::{self, ProgressLine};
use crate::{input, network, place, sim};

const NOTHING: &str = "nothing was judged";

pub(super) fn run(args: &Doctor, hosts: &Path) -> anyhow::Result<ExitCode> {
    let Some(what) = args.what.as_deref().filter(|what| Path::new(what).is_file()) else {
        bail!("--on with a hosts file is about a network file; name that as well");
    };
    if args.station.is_some() || args.interface.is_some() || args.try_offload.is_some() {
        bail!("the hosts file says which host is which station: leave out all options but --on");
    }
    let what = Path::new(what);
    let (file, _) = place::hosts(hosts, NOTHING)?;
    let is_network = |text: String| FileKind::of(&text) == Some(FileKind::Network);
    if input::text(what).is_ok_and(is_network) {
        let (name, cases) = network::compiled_for(what, hosts, NOTHING)?;
        return tell(&Preflight::of_network(name, &cases, &file), args);
    }
    let (scenario, text) = input::read(what, FileKind::Segment, NOTHING, Scenario::parse)?;
    let scripts = [Script::new(scenario, text, sim::directory_of(what))?];
    tell(&Preflight::of_scripts(&scripts, RunOptions::default(), &file), args)
}

/// Asks all hosts and prints what they say.
fn tell(preflight: &Preflight<'_>, args: &Doctor) -> anyhow::Result<ExitCode> {
    let mut line = ProgressLine::new();
    line.tell(&Progress::Step(format!("asking the hosts of {}", preflight.name)));
    let told = preflight.ask();
    line.clear();
    let told = told?;
    let code = told.iter().map(Told::exit_code).max_by_key(|code| worse(*code)).unwrap_or(0);
    if args.json {
        let stations: Vec<Json> = told.iter().map(Told::json).collect();
        output::json(&json!({
            "schema": "timewire.doctor-hosts/1", "name": preflight.name, "stations": stations,
        }))?;
    } else {
        output::print(&text_of(&preflight.name, &told, args.all))?;
    }
    Ok(ExitCode::from(code))
}

/// A directory for what the hosts say, which is read at once.
fn scratch() -> anyhow::Result<tempfile::TempDir> {
    let named = tempfile::Builder::new().prefix("timewire-doctor-").tempdir();
    named.context("cannot make a directory")
}

/// Options of a run that hosts must be able to carry out.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The backend of cases that Timewire's MAC carries out.
    pub backend: Option<Asked>,
    /// Captures of all stations.
    pub trace: bool,
}

/// What all hosts of an experiment are asked before it begins.
pub struct Preflight<'a> {
    name: String,
    /// Stations, bridges and observers, with the probes of what each is to have.
    nodes: Vec<(StationName, BTreeSet<String>)>,
    /// The interfaces that the host settings of stations name.
    settings: BTreeMap<StationName, BTreeSet<IfName>>,
    /// The scenarios whose stations they are; without any, each judges itself as a host.
    scripts: &'a [Script],
    options: RunOptions,
    hosts: &'a HostsFile,
}

impl<'a> Preflight<'a> {
    /// Of scenarios.
    pub fn of_scripts(
        scripts: &'a [Script],
        options: RunOptions,
        hosts: &'a HostsFile,
    ) -> Preflight<'a> {
        let names: Vec<&str> = scripts.iter().map(|it| it.scenario.name.as_str()).collect();
        let stations = scripts.iter().flat_map(|it| &it.scenario.stations).map(|it| &it.name);
        let mut known = BTreeSet::new();
        let nodes = stations.chain(hosts.observers.iter().map(|it| &it.name));
        let nodes = nodes.filter(|name| known.insert(*name));
        let nodes = nodes.map(|name| (name.clone(), BTreeSet::new())).collect();
        let stations = scripts.iter().flat_map(|it| &it.scenario.stations);
        let settings = interfaces_of(stations.map(|it| (&it.name, it.host.as_ref())));
        Preflight { name: names.join(", "), nodes, settings, scripts, options, hosts }
    }

    /// Of all cases of a network.
    pub fn of_network(
        name: String,
        cases: &[(NetworkCase, Compiled)],
        hosts: &'a HostsFile,
    ) -> Preflight<'a> {
        let mut nodes: BTreeMap<StationName, BTreeSet<String>> = BTreeMap::new();
        for (case, compiled) in cases {
            let stations = case.file.stations.iter().map(|it| &it.name);
            for node in stations.chain(case.file.bridges.iter().map(|it| &it.name)) {
                let own = compiled.disciplines(node.as_str()).into_iter();
                let own = own.map(|kind| format!("qdisc.{kind}"));
                nodes.entry(node.clone()).or_default().extend(own);
            }
            for bridge in &case.file.bridges {
                nodes.entry(bridge.name.clone()).or_default().insert("bridge.vlan".to_owned());
            }
        }
        let nodes = nodes.into_iter().collect();
        let stations = cases.iter().flat_map(|(case, _)| &case.file.stations);
        let settings = interfaces_of(stations.map(|it| (&it.name, it.host.as_ref())));
        let trace = cases.iter().any(|(_, compiled)| compiled.traced);
        let options = RunOptions { backend: None, trace };
        Preflight { name, nodes, settings, scripts: &[], options, hosts }
    }

    /// All hosts at the same time.
    ///
    /// **Errors**: as for [`experiment::judge_hosts`].
    fn ask(&self) -> anyhow::Result<Vec<Told>> {
        crate::apply::recover()?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let directory = scratch()?;
        let judged = experiment::judge_hosts(&JudgeHosts {
            name: &self.name.replace(", ", "-"),
            nodes: self.nodes.iter().map(|(name, _)| name.clone()).collect(),
            scripts: self.scripts.iter().collect(),
            hosts: self.hosts,
            keys: own_agent_directory(),
            program,
            directory: directory.path(),
        })?;
        Ok(judged.into_iter().flat_map(|judged| self.told(judged)).collect())
    }

    /// What one host said, of each scenario that has it.
    fn told(&self, HostJudged { station, said, interfaces }: HostJudged) -> Vec<Told> {
        let said = match said {
            Ok(said) => said,
            Err(why) => return vec![Told::of(&station, Err(why), self.hosts)],
        };
        let scripts = self.scripts.iter().filter(|it| it.scenario.station(&station).is_some());
        let scripts: Vec<Option<&Script>> = match scripts.map(Some).collect::<Vec<_>>() {
            none if none.is_empty() => vec![None],
            some => some,
        };
        let each = said.into_iter().zip(scripts).map(|(said, script)| {
            let mut told = Told::of(&station, Ok(said), self.hosts);
            if let Ok((report, _)) = &mut told.said {
                let probes = self.nodes.iter().filter(|(name, _)| *name == station);
                probes.for_each(|(_, probes)| report.needs(probes));
                match script {
                    Some(script) => {
                        report.needs_of(&script.scenario, self.options);
                        report.beside.extend(clock_and_guard(&script.scenario, self.hosts));
                    }
                    None => {
                        report.needs_interfaces(self.hosts, &station, &interfaces);
                        report.needs_tracing(self.options);
                    }
                }
                if let Some(named) = self.settings.get(&station) {
                    report.needs_named(named.iter(), &interfaces);
                }
                if !told.observes {
                    report.beside.extend(control_link(self.hosts, &station, &interfaces));
                }
            }
            told
        });
        each.collect()
    }

    /// The host settings of stations that the run has a use of its own for.
    pub fn settings_in_the_way(&self) -> Vec<Obstacle> {
        let all = self.scripts.iter().flat_map(|script| {
            let of_kernel =
                matches!(self.options.backend, Some(Asked::Only(asked)) if asked.is_kernels());
            let mut cases = script.scenario.experiment.cases.iter();
            let has_mac = !of_kernel && cases.any(|case| case.backend == CaseBackend::Mac);
            let stations = script.scenario.stations.iter();
            let with_host = stations.filter_map(|it| Some((&it.name, it.host.as_ref()?)));
            with_host.flat_map(move |(name, host)| {
                let interface = self.hosts.station(name).and_then(|it| it.interface.clone());
                host_part::in_the_way(name, host, interface.as_slice(), has_mac)
            })
        });
        all.collect()
    }

    /// What stands in the way of a run, as far as the hosts say; the first phase of each.
    ///
    /// **Errors**: some hosts cannot be asked; all of them are named.
    pub fn obstacles(&self) -> anyhow::Result<Vec<Obstacle>> {
        let told = self.ask()?;
        let silent = told.iter().filter_map(|it| Some((it, it.said.as_ref().err()?)));
        let silent: Vec<String> =
            silent.map(|(it, why)| format!("{} ({}): {why}", it.node(), it.agent)).collect();
        if !silent.is_empty() {
            let (count, all) = (silent.len(), told.len());
            bail!(
                "{count} of {all} hosts cannot be asked; nothing was run\n  {}",
                silent.join("\n  ")
            );
        }
        let mut obstacles = self.settings_in_the_way();
        let mut degraded = BTreeSet::new();
        for it in &told {
            let Ok((report, _)) = &it.said else { continue };
            let missing = report.found("missing");
            // What is lacking says it in fewer words.
            let said = |it: &&Found| it.id == BACKEND && !report.lacks.is_empty();
            let missing = missing.filter(|it| report.verdict == "no" && !said(it));
            let missing = missing.map(Found::in_a_line);
            obstacles.extend(
                missing
                    .chain(report.lacks.iter().cloned())
                    .map(|why| Obstacle { what: it.node(), why }),
            );
            if report.has("degraded") {
                degraded.insert(it.station.as_str());
            }
        }
        if obstacles.is_empty() && !degraded.is_empty() {
            let names: Vec<&str> = degraded.into_iter().collect();
            say!(
                "note: degraded: {}; `timewire doctor FILE --on HOSTS` says why",
                names.join(", ")
            );
        }
        Ok(obstacles)
    }
}

/// The interfaces that host settings name, by station.
fn interfaces_of<'a>(
    stations: impl Iterator<Item = (&'a StationName, Option<&'a DesiredHost>)>,
) -> BTreeMap<StationName, BTreeSet<IfName>> {
    let mut all: BTreeMap<StationName, BTreeSet<IfName>> = BTreeMap::new();
    for (name, host) in stations {
        let named = host.into_iter().flat_map(|host| &host.interfaces).map(|it| it.name.clone());
        all.entry(name.clone()).or_default().extend(named);
    }
    all
}

/// The backends of the kernel that cases of a scenario have.
fn kernel_backends(scenario: &Scenario, asked: Option<Asked>) -> BTreeSet<&'static str> {
    let cases = scenario.experiment.cases.iter().map(|case| match (case.backend, asked) {
        (CaseBackend::Mac, Some(Asked::Only(backend))) => backend.case_backend(),
        (backend, _) => backend,
    });
    let backends =
        cases.filter(|it| TransmitBackend::of_case(*it).is_some_and(|it| it.is_kernels()));
    backends.map(CaseBackend::word).collect()
}

/// Which exit code counts when stations have different ones: something that is missing is known,
/// and who cannot be asked is worse than who is degraded.
const fn worse(code: u8) -> u8 {
    match code {
        4 => 3,
        2 => 2,
        other => other,
    }
}

/// Where the clocks of two stations, each with the error that is allowed, can be apart by more than
/// is between their slots.
fn clock_and_guard(scenario: &Scenario, hosts: &HostsFile) -> Option<Found> {
    let has_slots = |case: &Case| !matches!(case.backend, CaseBackend::None | CaseBackend::Cbs);
    if hosts.clock != HostsClock::Synchronised || !scenario.experiment.cases.iter().any(has_slots) {
        return None;
    }
    let guard = scenario.schedule.slots().iter().map(|slot| slot.guard).min()?;
    let (error, half) = (hosts.max_clock_error, Span::from_ns(guard.as_ns() / 2));
    (error > half).then(|| Found {
        id: "clock.guard".to_owned(),
        state: "degraded".to_owned(),
        interface: None,
        needed_by: None,
        found: format!(
            "max_clock_error: {error} is more than half the guard of {guard} of {}",
            scenario.name
        ),
        why: "two stations whose clocks are off by that send in each other's slots".to_owned(),
        mend: vec![format!(
            "max_clock_error: {half} in the hosts file, or guards of {}",
            Span::from_ns(error.as_ns().saturating_mul(2))
        )],
    })
}

/// Where the agent is reached over an interface that the experiment has.
fn control_link(
    hosts: &HostsFile,
    node: &StationName,
    interfaces: &InterfaceAddresses,
) -> Option<Found> {
    let host = hosts.station(node)?;
    let at = match &host.agent {
        AgentAddress::Tls(at) => at.clone(),
        AgentAddress::Ssh(at) => format!("{}:22", at.rsplit('@').next().unwrap_or(at)),
        AgentAddress::Unix(_) | AgentAddress::Netns(_) | AgentAddress::Local => return None,
    };
    let reached: Vec<String> = at.to_socket_addrs().ok()?.map(|it| it.ip().to_string()).collect();
    let of_links = host.links.iter().map(|link| &link.interface);
    let of_experiment = host.interface.iter().chain(of_links);
    let (interface, address) = of_experiment
        .filter_map(|it| interfaces.get_key_value(it))
        .find_map(|(name, all)| Some((name, all.iter().find(|it| reached.contains(it))?)))?;
    Some(Found {
        id: "control.link".to_owned(),
        state: "degraded".to_owned(),
        interface: Some(interface.to_string()),
        needed_by: None,
        found: format!("its agent is reached at {address}, on the network of the experiment"),
        why: "commands, records and the experiment's frames wait for each other".to_owned(),
        mend: vec!["an address of another interface as `agent` in the hosts file".to_owned()],
    })
}

/// What a station said.
struct Told {
    station: String,
    /// It takes no part.
    observes: bool,
    interface: String,
    agent: String,
    said: Result<(Report, Json), String>,
}

/// The part of a report of `doctor` that is told here.
#[derive(Debug, Deserialize)]
struct Report {
    verdict: String,
    backend: Option<String>,
    backends: Vec<Variant>,
    findings: Vec<Found>,
    probes: Probes,
    /// What this experiment needs and the host has not.
    #[serde(skip)]
    lacks: Vec<String>,
    /// What only the hosts file and the experiment together show.
    #[serde(skip)]
    beside: Vec<Found>,
}

/// A backend, as it is taken on one kind of NIC.
#[derive(Debug, Deserialize)]
struct Variant {
    backend: String,
    possible: bool,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Probes {
    results: BTreeMap<String, Tried>,
}

#[derive(Debug, Deserialize)]
struct Tried {
    state: String,
    #[serde(default)]
    said: String,
}

impl Tried {
    fn is_lacking(&self) -> bool {
        self.state == "absent" || self.state == "forbidden"
    }
}

/// What tracing needs of a kernel.
const TRACING: [&str; 2] = ["bpf.btf", "bpf.tracing"];

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Found {
    id: String,
    state: String,
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    needed_by: Option<String>,
    found: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    mend: Vec<String>,
}

impl Found {
    fn in_a_line(&self) -> String {
        let Found { id, interface, found, mend, .. } = self;
        let interface = interface.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let mend = mend.first().map_or_else(String::new, |mend| format!("; mend: {mend}"));
        format!("{id}{interface}: {found}{mend}")
    }
}

/// What the doctor says of the backend of a schedule.
const BACKEND: &str = "schedule.backend";
/// What stations with one clock need not have.
const OF_SEVERAL_CLOCKS: [&str; 3] = ["clock.synchronised", "clock.error", "clock.tai-offset"];

impl Told {
    fn of(node: &StationName, said: Result<String, String>, hosts: &HostsFile) -> Told {
        let host = hosts.station(node);
        let observes = host.is_none();
        let interface = host.and_then(|host| host.interface.as_ref());
        let said = said.and_then(|said| {
            let whole: Json = serde_json::from_str(&said).map_err(|error| error.to_string())?;
            let mut report: Report = serde_json::from_value(whole.clone())
                .map_err(|error| format!("its doctor is of another version: {error}"))?;
            if hosts.clock == HostsClock::OneHost {
                report.findings.retain(|it| !OF_SEVERAL_CLOCKS.contains(&it.id.as_str()));
            }
            if observes {
                // It needs no schedule, and the common clock alone.
                report.findings.retain(|it| OF_SEVERAL_CLOCKS.contains(&it.id.as_str()));
                "yes".clone_into(&mut report.verdict);
            }
            Ok((report, whole))
        });
        Told {
            station: node.to_string(),
            observes,
            interface: interface.map(ToString::to_string).unwrap_or_default(),
            agent: hosts.agent(node).map(ToString::to_string).unwrap_or_default(),
            said,
        }
    }

    /// In a message.
    fn node(&self) -> String {
        let what = if self.observes { "observer" } else { "station" };
        format!("{what} {}", self.station)
    }

    fn exit_code(&self) -> u8 {
        match self.said.as_ref().map(|(report, _)| report) {
            Err(_) => 2,
            Ok(report) if !report.can_take_part() => 4,
            Ok(report) => u8::from(report.has("degraded")),
        }
    }

    fn json(&self) -> Json {
        let Told { station, observes, interface, agent, said } = self;
        let (report, lacks, beside, why) = match said {
            Ok((report, whole)) => {
                (whole.clone(), json!(report.lacks), json!(report.beside), Json::Null)
            }
            Err(why) => (Json::Null, json!([]), json!([]), json!(why)),
        };
        json!({"station": station, "observes": observes, "interface": interface, "agent": agent,
               "why": why, "lacks": lacks, "findings": beside, "report": report})
    }
}

impl Report {
    fn can_take_part(&self) -> bool {
        self.verdict != "no" && self.lacks.is_empty()
    }

    /// Notes which of these probes failed.
    fn needs(&mut self, probes: &BTreeSet<String>) {
        for probe in probes {
            let tried = self.probes.results.get(probe);
            if let Some(tried) = tried.filter(|it| it.is_lacking()) {
                let what = match probe.strip_prefix("qdisc.") {
                    Some(kind) => format!("queueing discipline {kind}"),
                    None => probe.clone(),
                };
                self.lacks.push(format!("{what}: {}", tried.said));
            }
        }
    }

    /// Notes which interfaces that the hosts file names are not there.
    fn needs_interfaces(
        &mut self,
        hosts: &HostsFile,
        node: &StationName,
        there: &InterfaceAddresses,
    ) {
        let host = hosts.station(node).into_iter();
        let links = host.clone().flat_map(|it| it.links.iter().map(|link| &link.interface));
        let observer = hosts.observers.iter().filter(|it| it.name == *node);
        let named = host.filter_map(|it| it.interface.as_ref()).chain(links);
        let named = named.chain(observer.flat_map(|it| &it.interfaces));
        self.needs_named(named, there);
    }

    /// Notes which of these interfaces are not there.
    fn needs_named<'a>(
        &mut self,
        named: impl Iterator<Item = &'a IfName>,
        there: &InterfaceAddresses,
    ) {
        let absent = named.filter(|it| !there.is_empty() && !there.contains_key(*it));
        let known: Vec<&str> = there.keys().map(IfName::as_str).collect();
        let lacks = absent.map(|it| format!("no interface {it}: there are {}", known.join(", ")));
        self.lacks.extend(lacks);
    }

    /// Notes what of a scenario the kernel cannot do.
    fn needs_of(&mut self, scenario: &Scenario, asked: RunOptions) {
        let backends = kernel_backends(scenario, asked.backend);
        let lacks = backends.iter().filter_map(|backend| self.why_not(backend));
        let lacks: Vec<String> = lacks.collect();
        self.lacks.extend(lacks);
        self.needs_tracing(asked);
    }

    fn needs_tracing(&mut self, asked: RunOptions) {
        let untraced = self.why_untraced().filter(|_| asked.trace);
        self.lacks.extend(untraced);
    }

    /// Why a backend cannot be had, if it cannot.
    fn why_not(&self, backend: &str) -> Option<String> {
        let offload = format!("{backend}-offload");
        let own =
            || self.backends.iter().filter(|it| it.backend == backend || it.backend == offload);
        let why = own().next_back().map_or("its doctor does not know it", |it| it.why.as_str());
        (!own().any(|it| it.possible)).then(|| format!("{backend}: {why}"))
    }

    /// Why nothing can be traced, if it cannot.
    fn why_untraced(&self) -> Option<String> {
        let tried = TRACING.iter().filter_map(|name| self.probes.results.get(*name));
        let absent = tried.into_iter().find(|it| it.is_lacking());
        absent.map(|it| format!("--trace: {}", it.said))
    }

    fn found(&self, state: &str) -> impl Iterator<Item = &Found> {
        self.findings.iter().chain(&self.beside).filter(move |it| it.state == state)
    }

    fn has(&self, state: &str) -> bool {
        self.found(state).next().is_some()
    }
}

/// A line for each station, then what is missing and what is degraded, with the stations of which
/// it is true.
fn text_of(name: &str, told: &[Told], all: bool) -> String {
    let mut text = format!("{name} on {} hosts\n", told.len());
    let width = told.iter().map(|it| it.station.len()).max().unwrap_or(0);
    for it in told {
        let Told { station, observes, interface, agent, said } = it;
        let how = match said {
            Err(why) => format!("cannot be asked: {why}"),
            Ok((report, _)) if !report.can_take_part() => match observes {
                true => "cannot observe".to_owned(),
                false => "cannot take part".to_owned(),
            },
            Ok(_) if *observes => "can observe".to_owned(),
            Ok((report, _)) => {
                let backend = report.backend.as_deref().unwrap_or("no backend");
                let but = if report.has("degraded") { ", degraded" } else { "" };
                format!("can take part, {backend}{but}")
            }
        };
        let of = if interface.is_empty() { String::new() } else { format!("{interface} of ") };
        let _ = writeln!(text, "  {station:<width$}  {of}{agent}: {how}");
    }
    let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for it in told {
        // Where the doctor says no, it says why below.
        let Ok((report, _)) = &it.said else { continue };
        for why in report.lacks.iter().filter(|_| report.verdict != "no") {
            lacking.entry(why).or_default().push(&it.station);
        }
    }
    if !lacking.is_empty() {
        let _ = writeln!(text, "not supported");
    }
    for (why, stations) in lacking {
        let _ = writeln!(text, "  {}: {why}", stations.join(", "));
    }
    let states: &[&str] =
        if all { &["missing", "degraded", "ok", "not_asked"] } else { &["missing", "degraded"] };
    for state in states {
        section(&mut text, told, state);
    }
    text
}

fn section(text: &mut String, told: &[Told], state: &str) {
    let mut found: Vec<(Found, Vec<&str>)> = Vec::new();
    for it in told {
        let Ok((report, _)) = &it.said else { continue };
        for finding in report.found(state) {
            match found.iter_mut().find(|(other, _)| other == finding) {
                Some((_, stations)) => stations.push(&it.station),
                None => found.push((finding.clone(), vec![&it.station])),
            }
        }
    }
    if !found.is_empty() {
        let _ = writeln!(text, "{}", state.replace('_', " "));
    }
    let asked = told.iter().filter(|it| it.said.is_ok()).count();
    for (Found { id, interface, needed_by, found, why, mend, .. }, stations) in found {
        let of = match stations.len() {
            count if count == asked && asked > 1 => "all".to_owned(),
            _ => stations.join(", "),
        };
        let interface = interface.map_or_else(String::new, |name| format!(" {name}"));
        let part = needed_by.map_or_else(String::new, |part| format!(", for {part}"));
        let _ = writeln!(text, "  {of}: {id}{interface}{part}: {found}");
        if !why.is_empty() {
            let _ = writeln!(text, "      why:  {why}");
        }
        for mend in mend {
            let _ = writeln!(text, "      mend: {mend}");
        }
    }
}

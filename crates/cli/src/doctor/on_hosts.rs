// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `doctor FILE --on HOSTS`, and the first phase of each run on hosts: whether the hosts of a hosts
//! file can be the stations and bridges of a network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use timewire_agent::sweep::own_agent_directory;
use timewire_base::{IfName, StationName};
use timewire_model::scenario::hosts_file::{HostsClock, HostsFile};
use timewire_model::scenario::network::NetworkCase;
use timewire_model::scenario::{CaseBackend, FileKind, Scenario};
use timewire_runner::experiment::{self, HostJudged, JudgeHosts, Progress, Script};
use timewire_runner::network::{Compiled, Obstacle};
use timewire_tsn::backend::{Asked, TransmitBackend};
use timewire_tsn::file::ParseFile;

use super::Doctor;
use crate::output::{self, ProgressLine};
use crate::{input, network, place};

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
    let is_network =
        fs::read_to_string(what).is_ok_and(|text| FileKind::of(&text) == Some(FileKind::Network));
    if is_network {
        let (name, cases) = network::compiled_for(what, hosts, NOTHING)?;
        return tell(&Preflight::of_network(name, &cases, &file), args);
    }
    let (scenario, text) = input::read(what, FileKind::Scenario, NOTHING, Scenario::parse)?;
    let script = Script { scenario, text };
    tell(&Preflight::of_scripts(&[script], RunOptions::default(), &file), args)
}

/// Asks all hosts and prints what they say.
fn tell(preflight: &Preflight<'_>, args: &Doctor) -> anyhow::Result<ExitCode> {
    let mut line = ProgressLine::new();
    line.tell(&Progress::Step(format!("asking the hosts of {}", preflight.name())));
    let told = preflight.ask();
    line.clear();
    let told = told?;
    let code = told.iter().map(Told::exit_code).max_by_key(|code| worse(*code)).unwrap_or(0);
    if args.json {
        let stations: Vec<Json> = told.iter().map(Told::json).collect();
        output::json(&json!({
            "schema": "timewire.doctor-hosts/1", "name": preflight.name(), "stations": stations,
        }))?;
    } else {
        output::print(&text_of(&preflight.name(), &told, args.all))?;
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
    /// The backend of cases with `backend: mac`.
    pub backend: Option<Asked>,
    /// Captures of all stations.
    pub trace: bool,
}

/// A station or bridge, and the probes of what it is to have.
type Node = (StationName, BTreeSet<String>);

/// What hosts are to be: the stations of a scenario, or the nodes of a network.
struct Subject<'a> {
    name: String,
    nodes: Vec<Node>,
    /// The scenario whose stations they are; without it, each judges itself as a host.
    script: Option<&'a Script>,
}

/// What all hosts of an experiment are asked before it begins.
pub struct Preflight<'a> {
    subjects: Vec<Subject<'a>>,
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
        let subject = |script: &'a Script| {
            let stations = script.scenario.stations.iter();
            Subject {
                name: script.scenario.name.to_string(),
                nodes: stations.map(|it| (it.name.clone(), BTreeSet::new())).collect(),
                script: Some(script),
            }
        };
        Preflight { subjects: scripts.iter().map(subject).collect(), options, hosts }
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
        let subject = Subject { name, nodes: nodes.into_iter().collect(), script: None };
        Preflight { subjects: vec![subject], options: RunOptions::default(), hosts }
    }

    fn name(&self) -> String {
        let names: Vec<&str> = self.subjects.iter().map(|it| it.name.as_str()).collect();
        names.join(", ")
    }

    /// All hosts of a subject at the same time.
    ///
    /// **Errors**: as for [`experiment::judge_hosts`].
    fn ask(&self) -> anyhow::Result<Vec<Told>> {
        crate::apply::recover()?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut all = Vec::new();
        for Subject { name, nodes, script } in &self.subjects {
            let directory = scratch()?;
            let judged = experiment::judge_hosts(&JudgeHosts {
                name,
                nodes: nodes.iter().map(|(name, _)| name.clone()).collect(),
                script: *script,
                hosts: self.hosts,
                keys: own_agent_directory(),
                program: program.clone(),
                directory: directory.path(),
            })?;
            for (judged, (node, probes)) in judged.into_iter().zip(nodes) {
                let there = judged.interfaces.clone();
                let mut told = Told::of(judged, self.hosts);
                if let Ok((report, _)) = &mut told.said {
                    report.needs(probes);
                    match script {
                        Some(script) => report.needs_of(&script.scenario, self.options),
                        None => report.needs_interfaces(self.hosts, node, &there),
                    }
                }
                all.push(told);
            }
        }
        Ok(all)
    }

    /// What stands in the way of a run, as far as the hosts say; the first phase of each.
    ///
    /// **Errors**: some hosts cannot be asked; all of them are named.
    pub fn obstacles(&self) -> anyhow::Result<Vec<Obstacle>> {
        let told = self.ask()?;
        let silent = told.iter().filter_map(|it| Some((it, it.said.as_ref().err()?)));
        let silent: Vec<String> = silent
            .map(|(it, why)| format!("station {} ({}): {why}", it.station, it.agent))
            .collect();
        if !silent.is_empty() {
            let (count, all) = (silent.len(), told.len());
            bail!(
                "{count} of {all} hosts cannot be asked; nothing was run\n  {}",
                silent.join("\n  ")
            );
        }
        let mut obstacles = Vec::new();
        let mut degraded = BTreeSet::new();
        for it in &told {
            let Ok((report, _)) = &it.said else { continue };
            let missing = report.findings.iter().filter(|it| it.state == "missing");
            // What is lacking says it in fewer words.
            let said = |it: &&Found| it.id == BACKEND && !report.lacks.is_empty();
            let missing = missing.filter(|it| report.verdict == "no" && !said(it));
            let missing = missing.map(Found::in_a_line);
            obstacles.extend(
                missing
                    .chain(report.lacks.iter().cloned())
                    .map(|why| Obstacle { what: format!("station {}", it.station), why }),
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

/// What a station said.
struct Told {
    station: String,
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

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
    fn of(HostJudged { station, said, .. }: HostJudged, hosts: &HostsFile) -> Told {
        let host = hosts.station(&station);
        let interface = host.and_then(|host| host.interface.as_ref());
        let said = said.and_then(|said| {
            let whole: Json = serde_json::from_str(&said).map_err(|error| error.to_string())?;
            let mut report: Report = serde_json::from_value(whole.clone())
                .map_err(|error| format!("its doctor is of another version: {error}"))?;
            if hosts.clock == HostsClock::OneHost {
                report.findings.retain(|it| !OF_SEVERAL_CLOCKS.contains(&it.id.as_str()));
            }
            Ok((report, whole))
        });
        Told {
            station: station.to_string(),
            interface: interface.map(ToString::to_string).unwrap_or_default(),
            agent: hosts.agent(&station).map(ToString::to_string).unwrap_or_default(),
            said,
        }
    }

    fn exit_code(&self) -> u8 {
        match self.said.as_ref().map(|(report, _)| report) {
            Err(_) => 2,
            Ok(report) if !report.can_take_part() => 4,
            Ok(report) => u8::from(report.has("degraded")),
        }
    }

    fn json(&self) -> Json {
        let Told { station, interface, agent, said } = self;
        let (report, lacks, why) = match said {
            Ok((report, whole)) => (whole.clone(), json!(report.lacks), Json::Null),
            Err(why) => (Json::Null, json!([]), json!(why)),
        };
        json!({"station": station, "interface": interface, "agent": agent, "why": why,
               "lacks": lacks, "report": report})
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
    fn needs_interfaces(&mut self, hosts: &HostsFile, node: &StationName, there: &[IfName]) {
        let host = hosts.station(node).into_iter();
        let links = host.clone().flat_map(|it| it.links.iter().map(|link| &link.interface));
        let named = host.filter_map(|it| it.interface.as_ref()).chain(links);
        let absent = named.filter(|it| !there.is_empty() && !there.contains(it));
        let known: Vec<&str> = there.iter().map(IfName::as_str).collect();
        let lacks = absent.map(|it| format!("no interface {it}: there are {}", known.join(", ")));
        self.lacks.extend(lacks.collect::<Vec<_>>());
    }

    /// Notes what of a scenario the kernel cannot do.
    fn needs_of(&mut self, scenario: &Scenario, asked: RunOptions) {
        let backends = kernel_backends(scenario, asked.backend);
        let lacks = backends.iter().filter_map(|backend| self.why_not(backend));
        let untraced = self.why_untraced().filter(|_| asked.trace);
        let lacks: Vec<String> = lacks.chain(untraced).collect();
        self.lacks.extend(lacks);
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

    fn has(&self, state: &str) -> bool {
        self.findings.iter().any(|it| it.state == state)
    }
}

/// A line for each station, then what is missing and what is degraded, with the stations of which
/// it is true.
fn text_of(name: &str, told: &[Told], all: bool) -> String {
    let mut text = format!("{name} on {} hosts\n", told.len());
    let width = told.iter().map(|it| it.station.len()).max().unwrap_or(0);
    for it in told {
        let Told { station, interface, agent, said } = it;
        let how = match said {
            Err(why) => format!("cannot be asked: {why}"),
            Ok((report, _)) if !report.can_take_part() => "cannot take part".to_owned(),
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
        for finding in report.findings.iter().filter(|it| it.state == state) {
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A case of a scenario as a plan for agents: what each station does in which phase. Stations get
//! their connection and their MAC in `open`, the programs begin at the common start of `run`.

use std::collections::{BTreeMap, BTreeSet};

use timewire_agent::protocol::{
    ExperimentId, FailureKind, Part, Phase, Plan, Program, RecordName, Retry, StationPlan, Step,
    Task, Timing, WordName,
};
use timewire_agent::sweep::put_in_pieces;
use timewire_base::{IfName, Span, StationName};
use timewire_model::scenario::hosts_file::{HostsClock, HostsFile};
use timewire_sys::marker::{self, RunPlace};
use timewire_tsn::backend::{TransmitBackend, station_qdiscs};

use super::connection::{ConnectedInterface, Connection};
use super::participants::{Participants, Role, step_of};
use super::station_trace::StationTrace;
use super::tracing::filter_text;
use super::{Run, Script};
use crate::RunnerError;
use crate::error::invalid;
use crate::host_part::{self, HostPart};
use crate::program::Program as RoleProgram;

/// How a MAC is before and after the programs: the names of the programs that ask it.
pub(super) const MAC_BEFORE: &str = "mac-before";
pub(super) const MAC_AFTER: &str = "mac-after";
/// The records with what a host was like, by their moments.
pub(super) const SNAPSHOTS: [&str; 2] = ["before", "after"];

/// One case under one load, for hosts.
pub(super) struct HostCase<'a> {
    pub(super) script: &'a Script,
    pub(super) run: &'a Run<'a>,
    pub(super) hosts: &'a HostsFile,
    /// Their times count from the common start.
    pub(super) participants: &'a Participants,
    /// The name of a station's MAC.
    pub(super) instance: &'a dyn Fn(&StationName) -> String,
    /// What the agents call it; used once only.
    pub(super) experiment: String,
    /// Whether hosts are looked at after it.
    pub(super) is_last: bool,
    /// Whether each station is traced.
    pub(super) is_traced: bool,
}

/// Exit codes of `doctor` that are no failure: degraded, and something is missing.
const JUDGED: [u8; 2] = [1, 4];

/// As what hosts judge themselves.
#[derive(Clone, Debug)]
pub(super) enum Judged<'a> {
    /// They do not.
    Not,
    /// In general.
    AsHost,
    /// As stations of each of the scenarios with these texts.
    AsStation(Vec<&'a str>),
}

/// The program that judges a host for the scenario of this number.
pub(super) fn doctor(number: usize) -> String {
    format!("doctor-{number}")
}

/// A plan to look at all hosts before the first case: they can be reached and used, and what they
/// are like.
pub(super) fn look(
    stations: &[StationName],
    hosts: &HostsFile,
    experiment: &str,
    judged: &Judged<'_>,
) -> Result<Plan, RunnerError> {
    let of = |name: &StationName| {
        let mut steps = Steps::default();
        steps.snapshot(Phase::Setup, SNAPSHOTS[0])?;
        let interface = hosts.station(name).and_then(|host| host.interface.as_ref());
        match (judged, interface) {
            (Judged::AsStation(texts), Some(interface)) => {
                for (number, text) in texts.iter().enumerate() {
                    let file = format!("{number}-{SCENARIO}");
                    steps.put(&file, (*text).to_owned())?;
                    let of = [&file, "--station", name.as_str(), "--interface", interface.as_str()];
                    steps.judge(number, &of)?;
                }
            }
            (Judged::AsHost, _) => steps.judge(0, &[])?,
            (Judged::Not | Judged::AsStation(_), _) => {}
        }
        Ok(StationPlan { name: name.clone(), parts: steps.parts })
    };
    let observers = hosts.observers.iter().map(|it| &it.name);
    let stations = stations.iter().chain(observers).map(of);
    let stations = stations.collect::<Result<_, RunnerError>>()?;
    checked(experiment, hosts, (Span::ZERO, Timing::default().step), stations)
}

fn checked(
    experiment: &str,
    hosts: &HostsFile,
    (duration, step): (Span, Span),
    stations: Vec<StationPlan>,
) -> Result<Plan, RunnerError> {
    let phases = BTreeMap::from([(Phase::Finish, duration + Timing::PHASE)]);
    let mut timing = Timing { phases, step, ..Timing::default() };
    if hosts.clock == HostsClock::OneHost {
        // Nothing depends on what the exchanges with a busy host say.
        timing.clock_within = Span::from_secs(1);
    }
    let experiment = ExperimentId::new(&experiment.replace('_', "-")).map_err(invalid)?;
    let plan = Plan { experiment, timing, stations };
    plan.check().map_err(invalid)?;
    Ok(plan)
}

/// The plan of a case.
///
/// **Errors**: it is too large, or a name cannot be.
pub(super) fn plan(case: &HostCase<'_>) -> Result<Plan, RunnerError> {
    let mut stations = Vec::new();
    for station in &case.script.scenario.stations {
        let interface = case.hosts.station(&station.name).and_then(|it| it.interface.clone());
        let interface = interface
            .ok_or_else(|| invalid(format!("station `{}` has no interface", station.name)))?;
        stations.push(case.station(&station.name, &interface)?);
    }
    for observer in &case.hosts.observers {
        stations.push(case.observer(&observer.name)?);
    }
    let step = step_of(&case.script.scenario);
    checked(&case.experiment, case.hosts, (case.duration(), step), stations)
}

/// The name of a program by that of a role.
pub(super) fn word(role: &str) -> Result<WordName, RunnerError> {
    WordName::new(&role.replace('_', "-")).map_err(invalid)
}

/// What a host does, by phase.
#[derive(Default)]
struct Steps {
    parts: BTreeMap<Phase, Part>,
    /// Of all programs.
    environment: BTreeMap<String, String>,
}

impl Steps {
    fn add(&mut self, phase: Phase, task: Task, timeout: Span) {
        let step = Step { task, timeout, retry: Retry::default() };
        self.parts.entry(phase).or_default().steps.push(step);
    }

    fn put(&mut self, name: &str, text: String) -> Result<(), RunnerError> {
        let name = RecordName::new(name).map_err(invalid)?;
        self.add(Phase::Setup, Task::Put { name, text }, STEP);
        Ok(())
    }

    fn snapshot(&mut self, phase: Phase, moment: &str) -> Result<(), RunnerError> {
        let name = RecordName::new(&format!("{moment}.json")).map_err(invalid)?;
        self.add(phase, Task::Snapshot { name }, STEP);
        Ok(())
    }

    /// Applies host settings, which the agent takes back.
    fn host(&mut self, part: HostPart) -> Result<(), RunnerError> {
        if let Some(host) = part.settings {
            self.add(Phase::Setup, Task::Apply { host }, STEP);
        }
        let Some(groups) = part.groups else { return Ok(()) };
        self.put(host_part::GROUPS, groups)?;
        let start = self.program(host_part::GROUPED, &host_part::START)?;
        self.add(Phase::Setup, Task::Start(start), STEP);
        let begun = format!("{}-begun", host_part::GROUPED);
        let task = Task::Run(self.program(&begun, &host_part::ASK)?);
        let (times, pause) = (host_part::TRIES, Span::from_ms(100));
        let retry = Retry { times, pause, after: BTreeSet::from([FailureKind::Exited]) };
        self.parts.entry(Phase::Setup).or_default().steps.push(Step { task, timeout: STEP, retry });
        let name = WordName::new(host_part::GROUPED).map_err(invalid)?;
        self.add(Phase::Teardown, Task::Stop { name }, STEP);
        Ok(())
    }

    /// Has the host judge itself, as this.
    fn judge(&mut self, number: usize, what: &[&str]) -> Result<(), RunnerError> {
        let words = [&["doctor"], what, &["--json"]].concat();
        let program = self.program(&doctor(number), &words)?;
        let judge = Program { accept: JUDGED.to_vec(), ..program };
        self.add(Phase::Setup, Task::Run(judge), STEP);
        Ok(())
    }

    /// Runs this program, which ends by itself.
    fn run(&mut self, phase: Phase, name: &str, words: &[&str]) -> Result<(), RunnerError> {
        self.add(phase, Task::Run(self.program(name, words)?), STEP);
        Ok(())
    }

    /// Has programs of roles begin at the common start, and waits for them.
    fn roles<'a>(
        &mut self,
        roles: impl Iterator<Item = &'a Role>,
        files: &BTreeMap<String, Vec<u8>>,
        timeout: Span,
    ) -> Result<(), RunnerError> {
        for role in roles {
            if let RoleProgram::Own(own) = &role.file.program {
                for file in &own.files {
                    let bytes = files.get(file).map(Vec::as_slice).unwrap_or_default();
                    let path = own.directory.join(file).display().to_string();
                    let name = RecordName::new(&path).map_err(invalid)?;
                    let tasks = put_in_pieces(&name, bytes)?.into_iter();
                    tasks.for_each(|task| self.add(Phase::Setup, task, STEP));
                }
            }
            let file = format!("{}.json", role.name);
            self.put(&file, serde_json::to_string_pretty(&role.file).map_err(invalid)?)?;
            let name = word(&role.name)?;
            let words = ["__program", &file, "--from-start"];
            self.add(Phase::Run, Task::Start(self.program(name.as_str(), &words)?), STEP);
            self.add(Phase::Finish, Task::Wait { name }, timeout);
        }
        Ok(())
    }

    /// Has a program hold what is in a file, from `open` to `close`.
    fn hold(&mut self, name: &str, verb: &str, file: &str) -> Result<(), RunnerError> {
        let program = self.program(name, &[verb, file])?;
        self.add(Phase::Open, Task::Start(program), STEP);
        self.run(Phase::Open, &format!("{name}-begun"), &[verb, file, "--wait"])
    }

    /// Ends such a program.
    fn let_go(&mut self, name: &str) -> Result<(), RunnerError> {
        let name = WordName::new(name).map_err(invalid)?;
        self.add(Phase::Close, Task::Stop { name }, STEP);
        Ok(())
    }

    fn program(&self, name: &str, words: &[&str]) -> Result<Program, RunnerError> {
        let words = std::iter::once("timewire").chain(words.iter().copied());
        Ok(Program {
            name: WordName::new(name).map_err(invalid)?,
            command: words.map(str::to_owned).collect(),
            environment: self.environment.clone(),
            accept: Vec::new(),
        })
    }
}

/// How long a step may take that is not about the traffic.
const STEP: Span = Span::from_secs(30);
const SCENARIO: &str = "scenario.yaml";
const CONNECTION: &str = "connection.json";
const TRACE: &str = "trace.json";
/// The programs that hold them.
const CONNECTED: &str = "connection";
const TRACED: &str = "trace";

impl HostCase<'_> {
    fn duration(&self) -> Span {
        self.participants.times.over - timewire_base::Instant::from_ns(0)
    }

    fn roles_of(&self, name: Option<&StationName>) -> impl Iterator<Item = &Role> {
        self.participants.roles.iter().filter(move |role| role.station.as_ref() == name)
    }

    fn station(&self, name: &StationName, interface: &IfName) -> Result<StationPlan, RunnerError> {
        let mut steps = Steps::default();
        let scenario = &self.script.scenario;
        if let Some(host) = scenario.station(name).and_then(|it| it.host.as_ref()) {
            steps.host(host_part::parts(&scenario.name, name, host))?;
        }
        if self.is_last {
            steps.snapshot(Phase::Report, SNAPSHOTS[1])?;
        }
        if self.is_traced {
            self.trace(name, interface, &mut steps)?;
        }
        match TransmitBackend::of_case(self.run.case.backend) {
            Some(TransmitBackend::Mac) => self.mac(name, interface, &mut steps)?,
            backend => self.connection(name, interface, backend, &mut steps)?,
        }
        if self.is_traced {
            steps.let_go(TRACED)?;
        }
        let roles = self.roles_of(Some(name));
        steps.roles(roles, &self.script.files, self.duration() + STEP)?;
        Ok(StationPlan { name: name.clone(), parts: steps.parts })
    }

    fn observer(&self, name: &StationName) -> Result<StationPlan, RunnerError> {
        let mut steps = Steps::default();
        let own = self.roles_of(None).filter(|role| role.name == name.as_str());
        steps.roles(own, &self.script.files, self.duration() + STEP)?;
        Ok(StationPlan { name: name.clone(), parts: steps.parts })
    }

    fn mac(
        &self,
        name: &StationName,
        interface: &IfName,
        steps: &mut Steps,
    ) -> Result<(), RunnerError> {
        let instance = (self.instance)(name);
        let address = self.address(name)?;
        let max_error = self.hosts.max_clock_error.to_string();
        steps.put(SCENARIO, self.script.text.clone())?;
        let mut words = vec!["tdm", "start", interface.as_str(), "--file", SCENARIO];
        words.extend(["--station", name.as_str(), "--name", &instance]);
        words.extend(["--address", &address, "--move-addresses", "--wait", MAC_WAIT]);
        words.extend(["--clock", self.hosts.clock.word()]);
        if self.hosts.clock == HostsClock::Synchronised {
            words.extend(["--max-clock-error", &max_error]);
        }
        if !self.run.case.priorities {
            words.push("--no-priorities");
        }
        let ask = ["tdm", "show", "--json", "--name", &instance];
        steps.run(Phase::Open, "mac-start", &words)?;
        steps.run(Phase::Open, MAC_BEFORE, &ask)?;
        steps.run(Phase::Close, MAC_AFTER, &ask)?;
        steps.run(Phase::Close, "mac-stop", &["tdm", "stop", "--name", &instance])
    }

    /// The address on the interface, with the disciplines of the backend where there is one.
    fn connection(
        &self,
        name: &StationName,
        interface: &IfName,
        backend: Option<TransmitBackend>,
        steps: &mut Steps,
    ) -> Result<(), RunnerError> {
        let scenario = &self.script.scenario;
        let has_slot = scenario.stations_with_slots().any(|station| station.name == *name);
        let qdiscs = match backend.filter(|_| has_slot) {
            Some(backend) => station_qdiscs(scenario, name, backend).map_err(invalid)?,
            None => Vec::new(),
        };
        let address = self.address(name)?;
        let own = ConnectedInterface {
            interface: interface.clone(),
            address: Some(address),
            qdiscs,
            alone: false,
        };
        let connection = Connection { interfaces: vec![own], bridge: None };
        steps.put(CONNECTION, serde_json::to_string_pretty(&connection).map_err(invalid)?)?;
        steps.hold(CONNECTED, "__connection", CONNECTION)?;
        steps.let_go(CONNECTED)
    }

    /// The capture of the station, from before its MAC until after it; its programs put their marks
    /// where only this capture reads them.
    fn trace(
        &self,
        name: &StationName,
        interface: &IfName,
        steps: &mut Steps,
    ) -> Result<(), RunnerError> {
        let markers = RunPlace::path_of(&format!("{}-{name}", self.experiment));
        let trace = StationTrace {
            station: name.clone(),
            interfaces: vec![interface.clone()],
            case: self.run.id.clone(),
            filter: filter_text(&self.script.scenario, self.run.load),
        };
        steps.put(TRACE, serde_json::to_string_pretty(&trace).map_err(invalid)?)?;
        steps.environment.insert(marker::VARIABLE.to_owned(), markers.display().to_string());
        steps.hold(TRACED, "__trace", TRACE)
    }

    fn address(&self, name: &StationName) -> Result<String, RunnerError> {
        let station = self.script.scenario.station(name);
        let station = station.ok_or_else(|| invalid(format!("there is no station `{name}`")))?;
        Ok(station.address().to_string())
    }
}

/// How long a MAC may take until its frames can leave.
const MAC_WAIT: &str = "5s";

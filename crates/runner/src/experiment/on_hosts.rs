// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment of a scenario on hosts with agents: each case under each load is compiled to a
//! plan of what every station does in which phase (`compile`), orchestrated, and its records are
//! brought into the run directory, as those of the laboratory are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use timewire_agent::controller::{Connect, Orchestrator, OrchestratorEvent, record_path};
use timewire_agent::protocol::controller::End;
use timewire_agent::protocol::{Plan, Record, RecordName, Restored};
use timewire_agent::sweep::Reach;
use timewire_base::wire::MacAddress;
use timewire_base::{FileError, IfName, Instant, Span, StationName, Utc};
use timewire_capture::summary::{Fact, FactLevel};
use timewire_datapath::control::Status;
use timewire_datapath::observe::ObservedPort;
use timewire_host::snapshot::Snapshot;
use timewire_host::snapshot::model::InterfaceSettings;
use timewire_model::scenario::CaseBackend;
use timewire_model::scenario::hosts_file::{HostsFile, ObserverSpec};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_tsn::backend::Asked;

use super::clock_bound::clock_bound;
use super::compile::{self, HostCase, Judged, MAC_AFTER, MAC_BEFORE, SNAPSHOTS};
use super::participants::{Observer, Participants, ParticipantsOf, Role, Times, step_of};
use super::stage::{difference, mac_facts, merged, timestamp_bound};
use super::{
    Progress, Run, Script, add_facts, begin, case_meta, check_backends, end_requested, host_fact,
    runs_of,
};
use super::{numbered, tracing};
use crate::RunnerError;
use crate::error::invalid;
use crate::rundir::{Destination, RunDir, RunEnd};
use timewire_datapath::files::read_json;

/// How to run on hosts.
#[derive(Clone, Debug)]
pub struct HostsOptions {
    /// Title of the run.
    pub title: String,
    /// Where it goes.
    pub into: Destination,
    /// Use the scenarios' `quick_duration`.
    pub quick: bool,
    /// This program, to be started as agents of this host.
    pub program: PathBuf,
    /// Which backend the cases of Timewire's MAC get in its place.
    pub backend: Option<Asked>,
    /// Where the stations are.
    pub hosts: HostsFile,
    /// The text of that file, kept in the run directory.
    pub hosts_text: String,
    /// This host's key and peers.
    pub keys: PathBuf,
    /// The clocks of the stations are at most so far apart, as the user says.
    pub clock_error: Option<Span>,
    /// Take a capture of the measured streams at each station.
    pub trace: bool,
}

/// Runs all scenarios on the hosts of a file, one after the other, into one run directory.
///
/// **Errors**: a station is in no hosts file or has no interface there; a station cannot take part;
/// a program failed; a host was left changed; someone asked to end. What was recorded until then is
/// kept, and the hosts are as they were, unless the error says otherwise.
pub fn run_on_hosts(
    scripts: &[Script],
    options: &HostsOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunDir, RunnerError> {
    // Before any thread or child: all of them leave the signals to us.
    let requests = EndRequests::new().map_err(|error| invalid(format!("signals: {error}")))?;
    let scripts = with_backend(scripts, options.backend)?;
    check_hosts(&scripts, &options.hosts)?;
    let started: Instant<Utc> = clock::now();
    let about = (started, agent_facts(&options.hosts));
    let (directory, mut meta) = begin(&scripts, &options.title, &options.into, about)?;
    directory.write_text("hosts.yaml", &options.hosts_text)?;
    let has_ended =
        |script: &&Script| runs_of(&script.scenario).iter().all(|run| directory.has_ended(&run.id));
    for script in scripts.iter().filter(|script| !has_ended(script)) {
        let names = script.scenario.stations.iter().map(|station| &station.name);
        let observers = options.hosts.observers.iter().map(|observer| &observer.name);
        let (keys, own) = (&options.keys, options.program.clone());
        let reach =
            Reach::new(names.chain(observers), &options.hosts, keys, own, directory.path())?;
        let mut place = Place {
            cases: Cases { script, options, started, addresses: Vec::new() },
            directory: &directory,
            connect: Arc::new(reach),
            requests: &requests,
        };
        progress(Progress::Step(format!("looking at the hosts of {}", script.scenario.name)));
        let found = place.look(progress)?.into_iter();
        let new: Vec<_> = found.filter(|fact| !meta.environment.contains(fact)).collect();
        meta.environment.extend(new);
        directory.write_meta(&meta)?;
        for (index, run) in runs_of(&script.scenario).iter().enumerate() {
            let at = meta.cases.iter().position(|case| *case == run.id).unwrap_or(index);
            let (number, of) = (at + 1, meta.cases.len());
            if directory.has_ended(&run.id) {
                continue;
            }
            progress(Progress::Case { number, of, id: run.id.clone() });
            let facts = place.perform(run, index, progress)?;
            add_facts(&directory, &mut meta, facts)?;
        }
    }
    let elapsed = clock::now::<Utc>() - started;
    directory.write_end(&RunEnd { elapsed_ns: elapsed })?;
    Ok(directory)
}

/// What a host says of itself.
#[derive(Clone, Debug)]
pub struct HostJudged {
    /// The station.
    pub station: StationName,
    /// What `timewire doctor` said there, as JSON: of the host, or of each scenario that has the
    /// station, in their order. Or why it said nothing.
    pub said: Result<Vec<String>, String>,
    /// The interfaces that it has, with their addresses.
    pub interfaces: InterfaceAddresses,
}

/// Interfaces, and the addresses of each without the length of their prefix.
pub type InterfaceAddresses = BTreeMap<IfName, Vec<String>>;

/// Hosts that are to judge themselves.
#[derive(Clone, Debug)]
pub struct JudgeHosts<'a> {
    /// Name of the scenarios or of the network.
    pub name: &'a str,
    /// Stations, bridges and observers.
    pub nodes: Vec<StationName>,
    /// The scenarios whose stations they are to be; one that is in none judges itself as a host.
    pub scripts: Vec<&'a Script>,
    /// Where they are.
    pub hosts: &'a HostsFile,
    /// Where this controller's keys are.
    pub keys: PathBuf,
    /// This program, which agents on this host are started with.
    pub program: PathBuf,
    /// Where records go.
    pub directory: &'a Path,
}

/// Has each host judge itself, all at the same time and each alone, so that nobody waits for one
/// that cannot be reached. Nothing is changed.
///
/// **Errors**: a station is in no hosts file or has no interface there; someone asked to end.
pub fn judge_hosts(asked: &JudgeHosts<'_>) -> Result<Vec<HostJudged>, RunnerError> {
    let requests = EndRequests::new().map_err(|error| invalid(format!("signals: {error}")))?;
    check_hosts(asked.scripts.iter().copied(), asked.hosts)?;
    let JudgeHosts { nodes, hosts, keys, program, directory, .. } = asked;
    let reach = Reach::new(nodes.iter(), hosts, keys, program.clone(), directory)?;
    let reach: Arc<dyn Connect> = Arc::new(reach);
    let is_over = AtomicBool::new(false);
    let is_asked = || {
        if requests.take() {
            is_over.store(true, Ordering::Relaxed);
        }
        is_over.load(Ordering::Relaxed)
    };
    let judged = thread::scope(|scope| {
        let judges: Vec<_> = nodes
            .iter()
            .map(|station| {
                let (reach, is_asked) = (&reach, &is_asked);
                let said = scope.spawn(move || judge_host(asked, station, reach, is_asked));
                (station.clone(), said)
            })
            .collect();
        let ended = |(station, said): (StationName, thread::ScopedJoinHandle<'_, _>)| {
            let why = "the thread that asks panicked";
            let panicked = || (Err(why.to_owned()), BTreeMap::new());
            let (said, interfaces) = said.join().unwrap_or_else(|_| panicked());
            HostJudged { station, said, interfaces }
        };
        judges.into_iter().map(ended).collect()
    });
    if is_over.load(Ordering::Relaxed) {
        return Err(invalid("ended on request"));
    }
    Ok(judged)
}

/// What one host says of itself.
fn judge_host(
    asked: &JudgeHosts<'_>,
    station: &StationName,
    reach: &Arc<dyn Connect>,
    is_asked: &(dyn Fn() -> bool + Sync),
) -> Looked {
    let looked = look_at(asked, station, reach, is_asked);
    looked.unwrap_or_else(|why| (Err(why), BTreeMap::new()))
}

/// What it says, and its interfaces.
type Looked = (Result<Vec<String>, String>, InterfaceAddresses);

fn look_at(
    asked: &JudgeHosts<'_>,
    station: &StationName,
    reach: &Arc<dyn Connect>,
    is_asked: &(dyn Fn() -> bool + Sync),
) -> Result<Looked, String> {
    let words = |error: RunnerError| error.to_string();
    let tag = clock::now::<Utc>().as_ns();
    let experiment = format!("{}-{station}-{tag:x}", asked.name);
    let alone = asked.hosts.with_station(station);
    let names = std::slice::from_ref(station);
    let scripts = asked.scripts.iter().filter(|it| it.scenario.station(station).is_some());
    let texts: Vec<&str> = scripts.map(|script| script.text.as_str()).collect();
    let count = texts.len().max(1);
    let judged = if texts.is_empty() { Judged::AsHost } else { Judged::AsStation(texts) };
    let plan = compile::look(names, &alone, &experiment, &judged).map_err(words)?;
    let place = asked.directory.join(station.as_str());
    let orchestrator = Orchestrator::open(&place, plan).map_err(|error| error.to_string())?;
    let end = orchestrator.run(reach, &mut || is_asked(), &mut |_| {});
    let end = end.map_err(|error| error.to_string())?;
    let failures: Vec<String> = end.failures.iter().map(ToString::to_string).collect();
    let records = Records { place, end };
    let read = |name: String| fs::read_to_string(records.path(station, &name)).ok();
    let said = (0..count).map(|number| read(format!("{}.out", compile::doctor(number))));
    let said: Option<Vec<String>> = said.map(|said| said.filter(|it| !it.is_empty())).collect();
    let said = said.ok_or_else(|| match failures.is_empty() {
        true => "it said nothing".to_owned(),
        false => failures.join("; "),
    });
    let text = read(format!("{}.json", SNAPSHOTS[0]));
    let snapshot = text.and_then(|text| Snapshot::parse(&text).ok());
    let interfaces = snapshot.map(|it| it.settings.interfaces).unwrap_or_default();
    Ok((said, interfaces.into_iter().map(|(name, it)| (name, addresses_of(&it))).collect()))
}

/// Without the length of their prefix.
fn addresses_of(interface: &InterfaceSettings) -> Vec<String> {
    let all = interface.addresses.known().into_iter().flatten();
    all.map(|it| it.split('/').next().unwrap_or_default().to_owned()).collect()
}

/// What the stations would do in each case of the scenarios, by the case's name.
///
/// **Errors**: as [`run_on_hosts`], as far as nobody is asked.
pub fn plans_on_hosts(
    scripts: &[Script],
    options: &HostsOptions,
) -> Result<BTreeMap<String, Plan>, RunnerError> {
    let scripts = with_backend(scripts, options.backend)?;
    check_hosts(&scripts, &options.hosts)?;
    let mut plans = BTreeMap::new();
    for script in &scripts {
        let cases = Cases { script, options, started: Instant::from_ns(0), addresses: Vec::new() };
        for (index, run) in runs_of(&script.scenario).iter().enumerate() {
            plans.insert(run.id.clone(), cases.compile(run, index)?.1);
        }
    }
    Ok(plans)
}

/// The scenarios with the backend that was asked for.
fn with_backend(scripts: &[Script], asked: Option<Asked>) -> Result<Vec<Script>, RunnerError> {
    check_backends(scripts, asked)?;
    let mut scripts = scripts.to_vec();
    match asked {
        None => {}
        Some(Asked::Auto) => {
            let why = "on hosts a backend is not tried before it is used: name one in place of \
                       `--backend auto`";
            return Err(RunnerError::Invalid(why.to_owned()));
        }
        Some(Asked::Only(backend)) => {
            let cases = scripts.iter_mut().flat_map(|it| &mut it.scenario.experiment.cases);
            for case in cases.filter(|case| case.backend == CaseBackend::Mac) {
                case.backend = backend.case_backend();
            }
        }
    }
    Ok(scripts)
}

/// Whether the file has all that the scenarios need.
///
/// **Errors**: the first station that it has not, or not whole.
fn check_hosts<'a>(
    scripts: impl IntoIterator<Item = &'a Script>,
    hosts: &HostsFile,
) -> Result<(), RunnerError> {
    for Script { scenario, .. } in scripts {
        for station in &scenario.stations {
            let name = &station.name;
            let why = match hosts.station(name) {
                None => format!("the hosts file has no station `{name}`, which {}", scenario.name),
                Some(host) if host.interface.is_none() => {
                    format!(
                        "station `{name}` has no `interface` in the hosts file; {}",
                        scenario.name
                    )
                }
                Some(_) => continue,
            };
            return Err(RunnerError::Invalid(format!("{why} needs")));
        }
        let named = |name: &StationName| scenario.station(name).is_some();
        if let Some(observer) = hosts.observers.iter().find(|it| named(&it.name)) {
            return Err(RunnerError::Invalid(format!(
                "observer `{}` of the hosts file has the name of a station of {}: give it another",
                observer.name, scenario.name
            )));
        }
    }
    Ok(())
}

fn agent_facts(hosts: &HostsFile) -> Vec<Fact> {
    let stations = hosts.stations.iter().map(|it| (&it.name, &it.agent, "station"));
    let observers = hosts.observers.iter().map(|it| (&it.name, &it.agent, "observer"));
    let fact = |(name, agent, kind): (&StationName, _, _)| Fact {
        area: format!("{kind} {name}"),
        name: "agent".to_owned(),
        value: format!("{agent}"),
        level: FactLevel::Ok,
    };
    let mut facts: Vec<Fact> = stations.chain(observers).map(fact).collect();
    if hosts.observers.is_empty() {
        facts.push(Fact {
            area: "segment".to_owned(),
            name: "observer".to_owned(),
            value: "the hosts file has none: frames outside slots are not counted".to_owned(),
            level: FactLevel::Degraded,
        });
    }
    facts
}

/// The cases of one scenario.
struct Cases<'a> {
    script: &'a Script,
    options: &'a HostsOptions,
    /// Tells this run from any other.
    started: Instant<Utc>,
    /// Of the stations, in their order, once they are known.
    addresses: Vec<MacAddress>,
}

impl Cases<'_> {
    /// Who takes part in the case of this number, and what the hosts do.
    fn compile(&self, run: &Run<'_>, index: usize) -> Result<(Participants, Plan), RunnerError> {
        let scenario = &self.script.scenario;
        let duration = scenario.measured_for(self.options.quick);
        let tag = self.tag();
        let instance = |station: &StationName| format!("{}-{station}-{tag}", scenario.name);
        let participants = Participants::of(&ParticipantsOf {
            scenario,
            case: run.case,
            load: run.load,
            id: &run.id,
            times: Times::starting(
                Instant::from_ns(0),
                step_of(scenario),
                (scenario.warm_up, duration),
            ),
            directory: Path::new(""),
            observers: self.observers(),
            runs_programs: true,
            instance: &instance,
        })?;
        let last = scenario.experiment.cases.len() * scenario.experiment.loads.len();
        let plan = compile::plan(&HostCase {
            script: self.script,
            run,
            hosts: &self.options.hosts,
            participants: &participants,
            instance: &instance,
            experiment: format!("{}-{tag}-{index:04}", scenario.name),
            is_last: index + 1 == last,
            is_traced: self.options.trace,
        })?;
        Ok((participants, plan))
    }

    fn tag(&self) -> String {
        format!("{:x}", self.started.as_ns())
    }

    fn observers(&self) -> Vec<Observer> {
        let port =
            |interface: &IfName| ObservedPort { interface: interface.clone(), station: None };
        let of = |it: &ObserverSpec| Observer {
            name: it.name.to_string(),
            ports: it.interfaces.iter().map(port).collect(),
            addresses: self.addresses.clone(),
        };
        self.options.hosts.observers.iter().map(of).collect()
    }
}

/// One scenario on its hosts.
struct Place<'a> {
    cases: Cases<'a>,
    directory: &'a RunDir,
    connect: Arc<dyn Connect>,
    requests: &'a EndRequests,
}

impl Place<'_> {
    /// Performs a case and brings its records into the run directory; what the run stands on.
    fn perform(
        &self,
        run: &Run<'_>,
        index: usize,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Fact>, RunnerError> {
        let (participants, plan) = self.cases.compile(run, index)?;
        let (records, is_asked) = self.orchestrate(&run.id, plan, progress)?;
        self.keep_logs(run, &participants, &records)?;
        if is_asked {
            return Err(end_requested(self.directory));
        }
        failures(&records.end)?;
        let mut facts = not_compared(&records.end);
        facts.extend(self.bring(run, &participants, &records)?);
        Ok(facts)
    }

    /// Has a plan carried out; the records, and whether somebody asked to end.
    fn orchestrate(
        &self,
        id: &str,
        plan: Plan,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Records, bool), RunnerError> {
        let place = self.directory.agents_path(id);
        let orchestrator = Orchestrator::open(&place, plan)?;
        let mut asked = false;
        let mut is_asked = || {
            asked |= self.requests.take();
            asked
        };
        let mut tell = |event| progress(Progress::Step(in_words(id, &event)));
        let end = orchestrator.run(&self.connect, &mut is_asked, &mut tell)?;
        Ok((Records { place, end }, asked))
    }

    /// Looks at all hosts: which addresses the stations have, and what they are like.
    fn look(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Fact>, RunnerError> {
        let Cases { script: Script { scenario, .. }, options, .. } = &self.cases;
        let names: Vec<StationName> =
            scenario.stations.iter().map(|station| station.name.clone()).collect();
        let experiment = format!("{}-{}-hosts", scenario.name, self.cases.tag());
        let plan = compile::look(&names, &options.hosts, &experiment, &Judged::Not)?;
        let (records, is_asked) =
            self.orchestrate(&format!("{}/hosts", scenario.name), plan, progress)?;
        if is_asked {
            return Err(end_requested(self.directory));
        }
        failures(&records.end)?;
        let (mut addresses, mut facts) = (Vec::new(), Vec::new());
        for name in &names {
            let before = self.keep_snapshot(&records, name, SNAPSHOTS[0])?;
            let before = before.ok_or_else(|| invalid(format!("{name} was not looked at")))?;
            let host = options.hosts.station(name).and_then(|host| host.interface.as_ref());
            addresses.push(address_of(&before, name, host)?);
            let found = before.facts().into_iter().map(host_fact);
            facts.push((name.to_string(), found.collect()));
        }
        self.cases.addresses = addresses;
        Ok(merged(facts))
    }

    /// Brings what a host was like into the run directory, where it was looked at.
    fn keep_snapshot(
        &self,
        records: &Records,
        station: &StationName,
        moment: &str,
    ) -> Result<Option<Snapshot>, RunnerError> {
        let path = records.path(station, &format!("{moment}.json"));
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        let scenario = &self.cases.script.scenario.name;
        self.directory.write_text(&format!("hosts/{scenario}.{station}.{moment}.json"), &text)?;
        let found = Snapshot::parse(&text).map_err(|why| FileError::content(path, why))?;
        Ok(Some(found))
    }

    /// Keeps what programs said, of those that said something.
    fn keep_logs(
        &self,
        run: &Run<'_>,
        participants: &Participants,
        records: &Records,
    ) -> Result<(), RunnerError> {
        for role in &participants.roles {
            let said = |kind: &str| -> Result<Vec<u8>, RunnerError> {
                let name = format!("{}.{kind}", compile::word(&role.name)?);
                Ok(fs::read(records.path(&host_of(role), &name)).unwrap_or_default())
            };
            let mut said = [said("out")?, said("err")?].concat();
            if !said.is_empty() {
                let to = self.directory.log_path(&format!("{} {}", run.id, role.name));
                said.truncate(MAX_LOG);
                fs::write(&to, said).map_err(RunnerError::file("write", &to))?;
            }
        }
        Ok(())
    }

    /// Brings the records of a case into the run directory, and says what the case was.
    fn bring(
        &self,
        run: &Run<'_>,
        participants: &Participants,
        records: &Records,
    ) -> Result<Vec<Fact>, RunnerError> {
        let Cases { script: Script { scenario, .. }, options, .. } = &self.cases;
        let case = self.directory.case_path(&run.id);
        fs::create_dir_all(&case).map_err(RunnerError::file("create", &case))?;
        for role in &participants.roles {
            for name in
                [format!("{}.twr", role.name), format!("{}{}", role.name, crate::program::DROPS)]
            {
                let from = records.path(&host_of(role), &name);
                if from.exists() {
                    let to = case.join(&name);
                    fs::copy(&from, &to).map_err(RunnerError::file("write", &to))?;
                }
            }
        }
        let mut traces = Vec::new();
        for station in scenario.stations.iter().filter(|_| options.trace) {
            let name = format!("trace.{}.twc", station.name);
            let (from, to) = (records.path(&station.name, tracing::FILE), case.join(&name));
            fs::copy(&from, &to).map_err(RunnerError::file("write", &to))?;
            traces.push(name);
        }
        let start = records.end.starts.first();
        let start = start.ok_or_else(|| invalid(format!("{}: no station started", run.id)))?;
        let since = start.at - Instant::from_ns(0);
        let mut meta = case_meta(scenario, run, participants)?;
        meta.traces = traces;
        meta.from_ns = participants.times.from.saturating_add(since);
        meta.to_ns = participants.times.to.saturating_add(since);
        let clocks = clock_bound(start, options.hosts.clock, options.clock_error)?;
        let mut facts = vec![clocks.fact()];
        facts.extend(numbered::number(participants, run.case, &case, clocks.bound_ns)?);
        meta.clock_bound = Some(clocks);
        if run.case.backend == CaseBackend::Mac {
            let statuses = |name: &str| -> Result<Vec<Status>, RunnerError> {
                let path = |station: &StationName| records.path(station, &format!("{name}.out"));
                let of = |station: &StationName| Ok(read_json(&path(station))?);
                scenario.stations.iter().map(|station| of(&station.name)).collect()
            };
            let (before, after) = (statuses(MAC_BEFORE)?, statuses(MAC_AFTER)?);
            meta.macs = before.iter().zip(&after).map(|(a, b)| difference(a, b)).collect();
            meta.timestamp_bound = timestamp_bound(&after);
            facts.extend(mac_facts(scenario, &after));
        }
        meta.ended = true;
        self.directory.write_case(&run.id, &meta)?;
        for station in &scenario.stations {
            self.keep_snapshot(records, &station.name, SNAPSHOTS[1])?;
        }
        Ok(facts)
    }
}

/// How much of what a program said is kept. **Units**: bytes.
const MAX_LOG: usize = 16 << 20;

/// Where the program of a role runs.
fn host_of(role: &Role) -> StationName {
    role.station.clone().unwrap_or_else(|| {
        StationName::new(&role.name).expect("invariant: an observer is called as its host is")
    })
}

/// The address of a station's interface.
fn address_of(
    snapshot: &Snapshot,
    station: &StationName,
    interface: Option<&IfName>,
) -> Result<MacAddress, RunnerError> {
    let all = &snapshot.settings.interfaces;
    let wanted =
        interface.ok_or_else(|| invalid(format!("station `{station}` has no interface")))?;
    let Some(found) = all.get(wanted) else {
        let known: Vec<&str> = all.keys().map(IfName::as_str).collect();
        return Err(invalid(format!(
            "station `{station}` has no interface {wanted}, which the hosts file names; it has {}",
            known.join(", ")
        )));
    };
    let address = found.mac.as_ref().and_then(|address| address.parse().ok());
    address
        .ok_or_else(|| invalid(format!("{wanted} of station `{station}` is no Ethernet interface")))
}

/// The records of a plan, as the stations left them.
struct Records {
    place: PathBuf,
    end: End,
}

impl Records {
    fn path(&self, station: &StationName, name: &str) -> PathBuf {
        let kept = self.end.stations.get(station).into_iter().flat_map(|end| &end.records);
        let found: Option<&RecordName> =
            kept.map(|Record { name, .. }| name).find(|kept| kept.as_str() == name);
        match found {
            Some(record) => record_path(&self.place, station, record),
            // Of no such record, as the file itself will say.
            None => self.place.join("records").join(station.as_str()).join(name),
        }
    }
}

fn in_words(id: &str, event: &OrchestratorEvent) -> String {
    match event {
        OrchestratorEvent::Phase(phase) => format!("{id}: {phase}"),
        OrchestratorEvent::Failed(failure) => format!("{id}: failed: {failure}"),
        OrchestratorEvent::Unreached { station, why } => {
            format!("{id}: {station} cannot be reached: {why}")
        }
    }
}

/// What of hosts could not be compared with what it was before: it may be changed.
fn not_compared(end: &End) -> Vec<Fact> {
    let restored =
        end.stations.iter().filter_map(|(name, end)| Some((name, end.restored.as_ref()?)));
    let restored = restored.filter(|(_, restored)| !restored.not_compared.is_empty());
    let fact = |(name, restored): (&StationName, &Restored)| Fact {
        area: format!("station {name}"),
        name: "not compared with before".to_owned(),
        value: restored.not_compared.join("; "),
        level: FactLevel::Missing,
    };
    restored.map(fact).collect()
}

/// What went wrong, the hosts that are left changed first.
fn failures(end: &End) -> Result<(), RunnerError> {
    let restored =
        end.stations.iter().filter_map(|(name, end)| Some((name, end.restored.as_ref()?)));
    let left: BTreeMap<String, Vec<String>> = restored
        .filter(|(_, restored)| !restored.left.is_empty())
        .map(|(name, restored)| (name.to_string(), restored.left.clone()))
        .collect();
    if !left.is_empty() {
        return Err(RunnerError::HostsLeftChanged { left });
    }
    if end.failures.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> = end.failures.iter().map(ToString::to_string).collect();
    Err(RunnerError::Stations { failures })
}

#[cfg(test)]
mod tests {
    use timewire_agent::protocol::ExperimentId;
    use timewire_agent::protocol::controller::StationEnd;

    use super::*;

    fn end(restored: Restored) -> End {
        let station = StationEnd { restored: Some(restored), records: vec![], missing: vec![] };
        End {
            experiment: ExperimentId::new("e").unwrap(),
            failures: Vec::new(),
            starts: Vec::new(),
            stations: [(StationName::new("alpha").unwrap(), station)].into(),
        }
    }

    #[test]
    fn t0_a_host_that_is_left_changed_is_an_error_and_one_not_compared_is_told() {
        let words = |text: &str| vec![text.to_owned()];
        assert!(failures(&end(Restored::default())).is_ok());
        let error = failures(&end(Restored { left: words("mtu"), not_compared: vec![] }));
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "left changed: alpha: mtu");
        assert_eq!(timewire_base::Failure::exit_code(&error), 3);
        let unsure = end(Restored { left: vec![], not_compared: words("receive priority") });
        assert!(failures(&unsure).is_ok());
        let [fact] = <[Fact; 1]>::try_from(not_compared(&unsure)).unwrap();
        assert_eq!((fact.area.as_str(), fact.level), ("station alpha", FactLevel::Missing));
        assert_eq!(not_compared(&end(Restored::default())), []);
    }
}

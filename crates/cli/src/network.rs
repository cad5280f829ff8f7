// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` with a network file: planned, compiled for a place, carried out there, and judged stream
//! by stream.
//!
//! Not here: the compile step and the judge (`timewire_runner::network`), plans alone (`plan`), the
//! simulator alone (`sim`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use timewire_agent::controller::Connect;
use timewire_agent::sweep::{self, Marks, Reach};
use timewire_base::{Span, StationName, Utc, Verdict};
use timewire_capture::summary::Summary;
use timewire_host::doctor::Probe;
use timewire_lab::privilege;
use timewire_model::scenario::hosts_file::{HostsClock, HostsFile};
use timewire_model::scenario::network::{NetworkCase, NetworkCases};
use timewire_plan::file::{self, FileProblem};
use timewire_plan::model::Plan;
use timewire_plan::synth::{Budget, Options, Planner};
use timewire_plan::words::Refusals;
use timewire_runner::network::{
    self, Begun, Compiled, LaboratoryTrace, LaunchError, Obstacle, Planned, Site,
};
use timewire_runner::rundir::{Destination, RunDir, RunEnd, RunLock, RunRequest};
use timewire_runner::{RunnerError, host_part};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_tsn::file::ParseFile;

use crate::compare::{self, Baseline};
use crate::doctor::on_hosts::Preflight;
use crate::ending::{Ending, WORDS};
use crate::experiment::{self, Run, same_name};
use crate::input;
use crate::machine::RunMachine;
use crate::output;
use crate::place::{self, Place, Where};
use crate::sim::{self, SimCase};
use crate::stations::laboratory::{Laboratory, Of};
use crate::stations::{self, laboratory};

/// Exit code 0: every stream was as promised; 1: one was not, or has no reservation; 4: the place
/// cannot carry the network out.
pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    args.refuse_options_of_scenarios("network files", true)?;
    // The simulator has a use for the seed by itself.
    let seed = args.limits.seed.filter(|_| args.place.on != Place::Sim);
    let limits = compare::Limits { seed, ..args.limits };
    if args.baseline.is_none() {
        limits.refuse()?;
    }
    args.place.check()?;
    if args.place.record_for.is_some() {
        return record(&args.directory("")?);
    }
    let files = read(args)?;
    let names: Vec<&str> = files.iter().map(|it| it.network.base.name.as_str()).collect();
    let name = names.join(", ");
    let ids = files.iter().flat_map(|it| it.network.cases.iter().map(NetworkCase::id));
    let baseline = args.baseline.as_deref().map(|path| Baseline::open(path, limits, ids));
    let baseline = baseline.transpose()?;
    let ending = Ending::new()?;
    let Some(plans) = planned(files.iter().map(|it| &it.network), &ending)? else {
        return Ok(ExitCode::from(1));
    };
    let beside = files.iter().filter(|it| it.names_files());
    let beside = beside.map(|it| (it.network.base.name.to_string(), it.beside.clone()));
    let request = args.request(beside.collect());
    let texts = files.iter().map(|it| (it.network.base.name.to_string(), it.text.as_str()));
    let texts: Vec<(String, &str)> = texts.collect();
    if args.place.on == Place::Sim {
        if args.trace {
            let why =
                "the simulator's is `timewire sim FILE --out DIR --trace`; `run` traces kernels";
            let obstacle = Obstacle { what: "--trace".to_owned(), why: why.to_owned() };
            return place::refuse(&name, &args.place, &[obstacle], args.output.json);
        }
        let stations = files.iter().flat_map(|it| &it.network.base.stations);
        let stations = stations.map(|it| (&it.name, it.host.as_ref()));
        host_part::not_applied(stations).iter().for_each(|it| say!("note: {it}"));
        let mut cases = Vec::new();
        for (file, plans) in files.iter().zip(&plans) {
            let of_file = with_plans(file, plans)?;
            sim::check_cases(&file.path, &of_file)?;
            cases.extend(of_file);
        }
        if args.dry_run {
            return show_networks(&cases, args.output.json);
        }
        let told = (args.limits.seed, args.output.json);
        let into = Destination {
            directory: args.directory(names[0])?,
            request: Some(request),
            resumes: args.resumed.is_some(),
        };
        let code = sim::run_cases(&into, (&cases, &texts), told, &ending)?;
        let Some(baseline) = baseline.filter(|_| !ending.is_asked()) else { return Ok(code) };
        let directory = RunDir::open(&into.directory)?;
        let summary = directory.summarise()?;
        return Ok(match baseline.judge(&directory, summary, args.output.json)? {
            ExitCode::SUCCESS => code,
            worse => worse,
        });
    }
    let networks: Vec<NetworkCase> =
        files.iter().flat_map(|it| &it.network.cases).cloned().collect();
    let mut cases = match compiled(&networks, &plans.concat(), &args.place)? {
        Ok(cases) => cases,
        Err(obstacles) => {
            return place::refuse(&name, &args.place, &obstacles, args.output.json);
        }
    };
    if args.trace {
        if let Some(obstacle) = place::no_trace(&args.place.on) {
            return place::refuse(&name, &args.place, &[obstacle], args.output.json);
        }
        let hosts = match &args.place.on {
            Place::Hosts(path) => Some(place::hosts(path, "nothing was run")?.0),
            _ => None,
        };
        for (case, compiled) in &mut cases {
            compiled.trace(&case.file, hosts.as_ref().map_or(Site::Laboratory, Site::Hosts))?;
        }
    }
    for (case, compiled) in &mut cases {
        let of = files.iter().find(|it| it.network.base.name == case.file.name);
        let beside = of.map_or(Path::new("."), |it| &*it.beside);
        compiled.take_files(&case.file, beside)?;
        // A mistake in what stations do is told before the first of them does anything.
        let name = &case.file.name;
        sweep::trials(&compiled.script()?, "0")
            .with_context(|| format!("{name} cannot be carried out; nothing was run"))?;
    }
    if args.place.on == Place::Lab {
        // Before the first thread: a user namespace can only be entered by a process with one.
        privilege::enter()?;
        crate::apply::recover()?;
        // Talkers have a real-time policy.
        let disciplines = disciplines(&cases).into_iter();
        let probes = disciplines.filter_map(|kind| Probe::by_id(&format!("qdisc.{kind}")));
        let mut obstacles = laboratory::lacking(probes.chain([Probe::Fifo]).collect())?;
        if let Some(Err(why)) = args.trace.then(network::can_be_traced) {
            obstacles.push(Obstacle { what: "--trace".to_owned(), why: why.to_string() });
        }
        if !obstacles.is_empty() {
            return place::refuse(&name, &args.place, &obstacles, args.output.json);
        }
    }
    if args.dry_run {
        return show_compiled(&cases, args.output.json);
    }
    if let Some(run) = &args.resumed {
        // Before agents are asked, which say less clearly that somebody has them.
        drop(RunLock::take(run)?);
    }
    if let Place::Hosts(path) = &args.place.on {
        let (hosts, _) = place::hosts(path, "nothing was run")?;
        let obstacles = Preflight::of_network(name.clone(), &cases, &hosts).obstacles()?;
        if !obstacles.is_empty() {
            return place::refuse(&name, &args.place, &obstacles, args.output.json);
        }
    }
    let into = args.directory(names[0])?;
    let (directory, cases) = match args.resumed {
        Some(_) => network::resume(&into, &cases)?,
        None => (begin(args, &into, (&cases, texts), request)?, cases),
    };
    let code = match &args.place.on {
        Place::Hosts(path) => {
            let hosts = place::hosts(path, "nothing was run")?.0;
            let keys = sweep::own_agent_directory();
            Some(carry_out_all(&directory, &cases, &mut |compiled, into| {
                carry_out(compiled, into, (&hosts, &keys), None)
            })?)
        }
        Place::Lab => Some(carry_out_all(&directory, &cases, &mut |compiled, into| {
            in_laboratory(compiled, into, Of::ThisKernel)
        })?),
        _ => {
            // It records into the run directory.
            let machine = RunMachine::find(&args.place)?;
            let command = experiment::inner_command(directory.path(), &machine.described())?;
            machine.run(command, directory.path())?
        }
    };
    // A case that did not come to its end has no `case.json`.
    let is_kept = |case: &NetworkCase| directory.case(&case.id()).is_ok();
    let elapsed = cases.iter().fold(Span::ZERO, |all, (case, _)| all + case.file.duration);
    let elapsed_ns = cases.iter().all(|(case, _)| is_kept(case)).then_some(elapsed);
    match (code, elapsed_ns) {
        (Some(0 | 1), Some(elapsed_ns)) => directory.write_end(&RunEnd { elapsed_ns })?,
        (None, _) => {
            return Err(RunnerError::EndRequested { path: directory.path().to_owned() }.into());
        }
        (Some(code), _) => {
            let ended = cases.iter().filter(|(case, _)| is_kept(case)).cloned();
            let ended: CompiledCases = ended.collect();
            if !ended.is_empty() {
                tell(&directory, &ended, args.output.json)?;
            }
            let what = directory.path().display();
            say!("  what was recorded until then is kept in {what}");
            say!("  hint: `timewire run --continue {what}` goes on with it");
            return Ok(ExitCode::from(code.max(2)));
        }
    }
    let summary = tell(&directory, &cases, args.output.json)?;
    let mut is_well = summary.verdict == Verdict::Pass && code == Some(0);
    if let Some(baseline) = baseline {
        is_well &= baseline.judge(&directory, summary, args.output.json)? == ExitCode::SUCCESS;
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// A network file that is run.
struct Given {
    path: PathBuf,
    /// Where the files are that it names.
    beside: PathBuf,
    network: NetworkCases,
    text: String,
}

impl Given {
    /// Whether it names files: captures that are replayed, times that were recorded.
    fn names_files(&self) -> bool {
        let mut all = self.network.cases.iter();
        all.any(|case| case.file.has_phases() || names_a_file(&case.file.to_json()))
    }
}

/// `file` is the key of nothing else in a network.
fn names_a_file(json: &Json) -> bool {
    match json {
        Json::Object(keys) => {
            keys.get("file").is_some_and(Json::is_string) || keys.values().any(names_a_file)
        }
        Json::Array(all) => all.iter().any(names_a_file),
        _ => false,
    }
}

/// The files; each has a name of its own, by which its results are kept.
fn read(args: &Run) -> anyhow::Result<Vec<Given>> {
    let mut files: Vec<Given> = Vec::new();
    for path in &args.files {
        let (mut network, text) =
            input::read_network(path, "nothing was run", NetworkCases::parse)?;
        if args.quick {
            quicken(&mut network).with_context(|| path.display().to_string())?;
        }
        let name = &network.base.name;
        if let Some(other) = files.iter().find(|it| it.network.base.name == *name) {
            return Err(same_name(path, name.as_str(), &other.path));
        }
        let beside = args.beside(name.as_str(), path)?;
        files.push(Given { path: path.clone(), beside, network, text });
    }
    Ok(files)
}

/// Makes the run directory.
fn begin(
    args: &Run,
    into: &Path,
    (cases, files): (&CompiledCases, Vec<(String, &str)>),
    request: RunRequest,
) -> anyhow::Result<RunDir> {
    let directory = RunDir::create(into)?;
    let place = match &args.place.on {
        Place::Hosts(path) => {
            directory.write_text("hosts.yaml", &place::hosts(path, "nothing was run")?.1)?;
            format!("the hosts of {}", path.display())
        }
        Place::Lab => {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease");
            let release = release.context("cannot read the release of this kernel")?;
            format!("Linux {}, namespaces of this kernel", release.trim())
        }
        _ => RunMachine::find(&args.place)?.described(),
    };
    let started_utc_ns = clock::now::<Utc>().as_ns();
    network::begin(&directory, &Begun { files, cases, place: &place, started_utc_ns, request })?;
    Ok(directory)
}

/// Gives all networks the duration of a quick run.
fn quicken(network: &mut NetworkCases) -> anyhow::Result<()> {
    for case in &mut network.cases {
        case.file.duration = case.quick_duration.context(experiment::NO_QUICK)?;
    }
    Ok(())
}

/// Prints what came of every stream.
fn tell(
    directory: &RunDir,
    cases: &[(NetworkCase, Compiled)],
    json: bool,
) -> anyhow::Result<Summary> {
    let (summary, report) = experiment::conclude(directory)?;
    if json {
        output::json(&summary)?;
        return Ok(summary);
    }
    let mut told: Vec<String> = Vec::new();
    for (case, compiled) in cases {
        let rows = network::judge::rows(directory, &case.id(), compiled)?;
        output::print(&network::table(compiled, &rows))?;
        for line in network::conditions(compiled) {
            if !told.contains(&line) {
                told.push(line);
            }
        }
    }
    told.iter().try_for_each(|line| output::print(&format!("{line}\n")).map(drop))?;
    for (case, compiled) in cases {
        let label = if cases.len() == 1 { case.file.name.to_string() } else { case.id() };
        for found in network::judge::checks(directory, &case.id(), &label, compiled)? {
            experiment::tell_finding(&found)?;
        }
    }
    output::print(&timewire_report::traced_table(&summary))?;
    experiment::tell_relative(directory, &summary)?;
    output::print(&format!("verdict: {}\n", summary.verdict.word()))?;
    output::print(&format!("report:  {}\n", report.display()))?;
    Ok(summary)
}

/// A network's problem, and its plan.
type PlanOf = (FileProblem, Plan);

/// The plan of each network of each file; `None`, after saying why, where a stream is rejected.
fn planned<'a>(
    files: impl Iterator<Item = &'a NetworkCases>,
    ending: &Ending,
) -> anyhow::Result<Option<Vec<Vec<PlanOf>>>> {
    let mut plans = Vec::new();
    let mut is_rejected = false;
    let files: Vec<&NetworkCases> = files.collect();
    for network in &files {
        let (of_file, rejected) = planned_file(network, files.len() > 1, ending)?;
        plans.push(of_file);
        is_rejected |= rejected;
    }
    if is_rejected {
        say!("  host: unchanged; nothing was run");
        return Ok(None);
    }
    Ok(Some(plans))
}

/// The same of a file, which messages name if it is one of several; and whether a stream is
/// rejected.
fn planned_file(
    network: &NetworkCases,
    is_named: bool,
    ending: &Ending,
) -> anyhow::Result<(Vec<PlanOf>, bool)> {
    let mut plans = Vec::new();
    let mut is_rejected = false;
    for case in &network.cases {
        let place = match (is_named, network.has_experiment) {
            (false, false) => String::new(),
            (false, true) => format!(" in {}/{}", case.case, case.load),
            (true, false) => format!(" in {}", case.file.name),
            (true, true) => format!(" in {}", case.id()),
        };
        let given = file::problem(&case.file).with_context(|| {
            format!("{} cannot be planned{place}; nothing was run", case.file.name)
        })?;
        let mut planner = Planner::new(given.problem.clone(), Options::default());
        let mut go_on = |_: &timewire_plan::synth::Progress| !ending.is_asked();
        planner.run(&mut Budget { work: PLAN_STEPS, go_on: &mut go_on });
        if ending.is_asked() {
            bail!("{WORDS}; nothing was run");
        }
        let plan: Plan = planner.plan();
        if !plan.refused.is_empty() {
            let refusals = Refusals::of(&given.problem);
            for refusal in &plan.refused {
                let name = &given.problem.stream(refusal.stream).name;
                say!("rejected{place}: {name}: {}", refusals.text(refusal));
            }
            is_rejected = true;
        }
        plans.push((given, plan));
    }
    Ok((plans, is_rejected))
}

/// The queueing disciplines of all nodes of all cases.
fn disciplines(cases: &CompiledCases) -> BTreeSet<String> {
    let of = |(case, compiled): &(NetworkCase, Compiled)| {
        let stations = case.file.stations.iter().map(|it| it.name.clone());
        let nodes = stations.chain(case.file.bridges.iter().map(|it| it.name.clone()));
        let nodes: Vec<StationName> = nodes.collect();
        nodes.into_iter().flat_map(|node| compiled.disciplines(node.as_str())).collect::<Vec<_>>()
    };
    cases.iter().flat_map(of).collect()
}

/// Prints the compiled experiments; as JSON, a list of them.
fn show_compiled(cases: &[(NetworkCase, Compiled)], json: bool) -> anyhow::Result<ExitCode> {
    let all: Vec<&Compiled> = cases.iter().map(|(_, compiled)| compiled).collect();
    if json {
        return output::json(&all);
    }
    let texts: Vec<String> = all.iter().map(|it| network::described(it)).collect();
    output::print(&texts.join("\n"))
}

/// Prints the networks that would be simulated; as JSON, a list of them.
fn show_networks(cases: &[SimCase], json: bool) -> anyhow::Result<ExitCode> {
    let all: Vec<_> = cases.iter().map(|it| it.case.file.to_json()).collect();
    if json {
        return output::json(&all);
    }
    for (SimCase { case, .. }, json) in cases.iter().zip(&all) {
        if cases.len() > 1 {
            output::print(&format!("# {}\n", case.id()))?;
        }
        output::json(json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The networks of a file with their plans in them: the promises are limits there.
fn with_plans(of: &Given, plans: &[PlanOf]) -> anyhow::Result<Vec<SimCase>> {
    let planned = of.network.cases.iter().zip(plans).map(|(case, (given, plan))| {
        let file = match case.file.streams.iter().any(|stream| stream.scheduled) {
            false => case.file.clone(),
            true => file::planned(&case.file, given, plan)?,
        };
        let case = NetworkCase { file, ..case.clone() };
        Ok(SimCase { case, beside: of.beside.clone() })
    });
    planned.collect()
}

/// Each network, and what it becomes at its place.
type CompiledCases = Vec<(NetworkCase, Compiled)>;

/// What each network becomes at its place, or what stands in the way there.
fn compiled(
    cases: &[NetworkCase],
    plans: &[PlanOf],
    place: &Where,
) -> anyhow::Result<Result<CompiledCases, Vec<Obstacle>>> {
    let hosts;
    let mut site = Site::Laboratory;
    let error = match &place.on {
        Place::LabUml => LaunchError::lab_uml(),
        Place::LabQemu => LaunchError::lab_qemu(),
        Place::Lab => LaunchError::lab(),
        Place::Sim => bail!("the simulator takes networks as they are"),
        Place::Hosts(path) => {
            hosts = place::hosts(path, "nothing was run")?.0;
            let of_file = match hosts.clock {
                HostsClock::OneHost => Span::ZERO,
                HostsClock::Synchronised | HostsClock::Watched => {
                    let error = hosts.max_clock_error;
                    error.checked_mul(2).unwrap_or(Span::MAX)
                }
            };
            site = Site::Hosts(&hosts);
            let apart = place.clock_error.unwrap_or(of_file);
            LaunchError::hosts(path.display().to_string(), apart)
        }
    };
    let mut obstacles: Vec<Obstacle> = Vec::new();
    let mut all = Vec::new();
    for (case, (given, plan)) in cases.iter().zip(plans) {
        match network::compile(Planned { case, given, plan }, site, &error) {
            Ok(compiled) => all.push((case.clone(), compiled)),
            Err(more) => {
                let new = more.into_iter().filter(|it| !obstacles.contains(it));
                obstacles.extend(new.collect::<Vec<_>>());
            }
        }
    }
    Ok(if obstacles.is_empty() { Ok(all) } else { Err(obstacles) })
}

/// A network file compiled for the hosts of a hosts file: its name, and each of its networks.
///
/// **Errors**: a file is wrong, a stream is rejected, or hosts cannot carry it out.
pub fn compiled_for(
    path: &Path,
    hosts: &Path,
    nothing: &'static str,
) -> anyhow::Result<(String, CompiledCases)> {
    let (network, _) = input::read_network(path, nothing, NetworkCases::parse)?;
    let name = network.base.name.to_string();
    let plans = planned(std::iter::once(&network), &Ending::new()?)?;
    let plans = plans.with_context(|| format!("{name} has rejected streams"))?;
    let place = Where::hosts(hosts);
    match compiled(&network.cases, &plans.concat(), &place)? {
        Ok(cases) => Ok((name, cases)),
        Err(obstacles) => {
            let all = obstacles.iter().map(|it| format!("{}: {}", it.what, it.why));
            let all: Vec<String> = all.collect();
            bail!("{name} is not supported on {}: {}", hosts.display(), all.join("; "))
        }
    }
}

/// In the machine: makes the network of each case and carries its experiment out.
fn record(directory: &Path) -> anyhow::Result<ExitCode> {
    let directory = RunDir::open(directory)?;
    let all = directory.meta()?.cases.into_iter().map(|id| network::begun(&directory, &id));
    let all = all.collect::<Result<CompiledCases, _>>()?;
    let code = carry_out_all(&directory, &all, &mut |compiled, into| {
        in_laboratory(compiled, into, Of::Machine)
    })?;
    Ok(ExitCode::from(code))
}

/// Carries out one case in its directory.
type CarryOut<'a> = dyn FnMut(&Compiled, &Path) -> anyhow::Result<CarriedOut> + 'a;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CarriedOut {
    /// Its exit code.
    code: u8,
    /// Others can be carried out all the same: something failed in this one alone.
    goes_on: bool,
}

/// Carries the cases out, one after the other; the largest of their exit codes. The records of each
/// are some of the run as soon as it has ended.
fn carry_out_all(
    directory: &RunDir,
    all: &[(NetworkCase, Compiled)],
    carry_out: &mut CarryOut<'_>,
) -> anyhow::Result<u8> {
    let mut worst = 0;
    for (number, (case, compiled)) in (1..).zip(all) {
        let id = case.id();
        if directory.has_ended(&id) {
            continue;
        }
        if all.len() > 1 {
            say!("{number} of {}: {id}", all.len());
        }
        let ended = carry_out(compiled, &directory.case_path(&id))?;
        worst = worst.max(ended.code);
        network::keep(directory, case, compiled)?;
        if !ended.goes_on {
            break;
        }
    }
    Ok(worst)
}

/// Makes the network of one case and carries its experiment out.
fn in_laboratory(compiled: &Compiled, into: &Path, of: Of) -> anyhow::Result<CarriedOut> {
    let made = laboratory::build(&compiled.script()?.file, of, true)?;
    carry_out(compiled, into, (&made.hosts, made.agents()), Some(&made))
}

/// Carries the experiment out on hosts, which may be nodes of a laboratory; the end of that alone.
fn carry_out(
    compiled: &Compiled,
    directory: &Path,
    (hosts, keys): (&HostsFile, &Path),
    made: Option<&Laboratory>,
) -> anyhow::Result<CarriedOut> {
    let mut script = compiled.script()?;
    script.clock_error = Some(compiled.launch_error.clock).filter(|clock| *clock > Span::ZERO);
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let into = directory.join(network::EXPERIMENT);
    let mut reach = Reach::new(stations::names_of(&script.file), hosts, keys, program, &into)?;
    if made.is_some() {
        reach = reach.disposable();
    }
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let begin = |made: &Laboratory| LaboratoryTrace::start(compiled, made.namespaces(), directory);
    let trace = made.filter(|_| compiled.traced).map(begin).transpose()?;
    script.marks = match &trace {
        Some(trace) => Some(trace.marks()),
        None => compiled.traced.then_some(Marks::OfStation),
    };
    let connect: Arc<dyn Connect> = Arc::new(reach);
    let mut is_asked = || requests.take();
    let outcome = sweep::run(&script, &into, &connect, &mut is_asked, &mut stations::tell)?;
    trace.map_or(Ok(()), LaboratoryTrace::finish)?;
    // Limits are told with those of the streams.
    let is_compared = outcome.results.iter().all(|it| it.not_compared.is_empty());
    if outcome.exit_code() > 1 || !is_compared {
        say_text!("{}", stations::table(&outcome, &into));
    }
    let code = outcome.exit_code();
    // What keeps one from its begin keeps the others, too.
    let failures = || outcome.results.iter().flat_map(|it| &it.failures);
    let is_whole = outcome.results.len() == outcome.trials;
    let has_begun = !failures().any(|why| why.starts_with("preflight"));
    let is_asked = requests.take() || failures().any(|why| why.contains(WORDS));
    let goes_on = code < 2 || code == 2 && is_whole && has_begun && !is_asked;
    Ok(CarriedOut { code, goes_on })
}

/// The most steps of the search for a schedule: the same file has the same plan everywhere.
const PLAN_STEPS: u64 = 50_000_000;

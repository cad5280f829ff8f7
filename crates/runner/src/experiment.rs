// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the experiment of a scenario in the local laboratory, or on hosts with agents (`on_hosts`):
//! for each case under each load the programs of all stations run between two instants, and what
//! they recorded is kept. In the laboratory the stations are built first.
//!
//! Not here: what comes of the records (`rundir`).

mod backend;
mod clock_bound;
mod compile;
pub mod connection;
pub mod held;
mod hosts;
mod numbered;
mod on_hosts;
mod on_sim;
mod participants;
mod probe;
mod stage;
pub mod station_trace;
pub(crate) mod tracing;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use timewire_agent::sweep::file_beside;
use timewire_base::wire::MacAddress;
use timewire_base::{Instant, Span, Utc};
use timewire_capture::summary::{Fact, FactLevel, Published, SlotPromise, StreamClass};
use timewire_host::snapshot;
use timewire_lab::{Lab, Pacing};
use timewire_model::scenario::{Case, CaseBackend, Name, Release, Scenario};
use timewire_sys::clock;
use timewire_sys::event::EndRequests;
use timewire_tsn::backend::{Asked, TransmitBackend, check_backend};

use crate::RunnerError;
use crate::own_program;
use crate::rundir::{CaseMeta, Destination, Moment, RunDir, RunEnd, RunMeta, StreamMeta};
pub use on_hosts::{
    HostJudged, HostsOptions, InterfaceAddresses, JudgeHosts, judge_hosts, plans_on_hosts,
    run_on_hosts,
};
pub use on_sim::{SimOptions, check_on_sim, run_on_sim};
use participants::Participants;
use stage::Stage;
use timewire_datapath::sync::RunSync;

/// One scenario with the text it was read from.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it says.
    pub scenario: Scenario,
    /// The text, kept in the run directory.
    pub text: String,
    /// What is in the files that its programs need, by their names; kept there, too.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Script {
    /// A scenario with the files that its programs need, which are in a directory.
    ///
    /// **Errors**: one of them is not there, elsewhere, or has more than 4 MiB.
    pub fn new(scenario: Scenario, text: String, beside: &Path) -> Result<Script, RunnerError> {
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        let mut files = BTreeMap::new();
        for file in scenario.programs.iter().flat_map(|program| &program.files) {
            files.insert(file.to_string(), file_beside(beside, file.as_str())?);
        }
        Ok(Script { scenario, text, files })
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Title of the run.
    pub title: String,
    /// Where it goes.
    pub into: Destination,
    /// Use the scenarios' `quick_duration`.
    pub quick: bool,
    /// This program, to be started as the experiment's parts.
    pub program: PathBuf,
    /// How the laboratory was entered, for the record.
    pub privilege: String,
    /// Which backend the cases of Timewire's MAC get in its place.
    pub backend: Option<Asked>,
    /// Take a capture of each case.
    pub trace: bool,
}

/// What a run tells while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something is being set up.
    Step(String),
    /// A case begins.
    Case {
        /// Which one, from 1.
        number: usize,
        /// Of how many.
        of: usize,
        /// `SCENARIO/CASE/LOAD`.
        id: String,
    },
}

/// One case under one load.
struct Run<'a> {
    case: &'a Case,
    load: &'a Name,
    id: String,
}

fn runs_of(scenario: &Scenario) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    for case in &scenario.experiment.cases {
        for load in &scenario.experiment.loads {
            let id = format!("{}/{}/{load}", scenario.name, case.name);
            runs.push(Run { case, load, id });
        }
    }
    runs
}

/// Runs all scenarios, one after the other, into one run directory.
///
/// **Errors**: the directory is in use, the laboratory cannot be built, a program failed, or
/// someone asked to end; a backend is asked for that [`check_backends`] refuses, or that does not
/// work here. What was recorded until then is kept, and the laboratory is taken down.
pub fn run(
    scripts: &[Script],
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunDir, RunnerError> {
    // Before any thread or child: all of them leave the signals to us.
    let requests = EndRequests::new()
        .map_err(|error| RunnerError::Invalid(format!("cannot wait for signals: {error}")))?;
    check_backends(scripts, options.backend)?;
    if options.trace {
        tracing::check()?;
    }
    let started: Instant<Utc> = clock::now();
    let environment = environment(&options.privilege);
    let (directory, meta) = begin(scripts, &options.title, &options.into, (started, environment))?;
    run_all(scripts, options, progress, &requests, &directory, meta).map_err(|error| {
        // A terminal asks all programs of the run to end, and one of them may have been faster.
        if requests.take() { end_requested(&directory) } else { error }
    })?;
    let elapsed = clock::now::<Utc>() - started;
    directory.write_end(&RunEnd { elapsed_ns: elapsed })?;
    Ok(directory)
}

/// Makes the run directory of scenarios, or takes up the run that is in it.
fn begin(
    scripts: &[Script],
    title: &str,
    into: &Destination,
    (started, environment): (Instant<Utc>, Vec<Fact>),
) -> Result<(RunDir, RunMeta), RunnerError> {
    let runs = scripts.iter().flat_map(|script| runs_of(&script.scenario));
    let cases: Vec<String> = runs.map(|run| run.id).collect();
    if into.resumes {
        let (directory, mut meta) = RunDir::resume(&into.directory, &cases)?;
        let new = environment.into_iter().filter(|fact| !meta.environment.contains(fact));
        let new: Vec<Fact> = new.collect();
        meta.environment.extend(new);
        return Ok((directory, meta));
    }
    let directory = RunDir::create(&into.directory)?;
    let mut meta = RunMeta::new(title.to_owned(), started.as_ns());
    meta.cases = cases;
    meta.request = into.request.clone();
    for script in scripts {
        meta.scenarios.push(script.scenario.name.to_string());
        let path = directory.scenario_path(script.scenario.name.as_str());
        std::fs::write(&path, &script.text).map_err(RunnerError::file("write", &path))?;
        let kept = directory.files_path(script.scenario.name.as_str());
        own_program::write_files(&kept, &script.files)?;
    }
    meta.environment = environment;
    directory.write_meta(&meta)?;
    Ok((directory, meta))
}

/// Whether a backend that is asked for has something to carry in each scenario, and can carry it:
/// what is known before a kernel is asked.
///
/// **Errors**: a scenario leaves no case open, or has a schedule or streams that the backend cannot
/// carry.
pub fn check_backends(scripts: &[Script], asked: Option<Asked>) -> Result<(), RunnerError> {
    let Some(asked) = asked else { return Ok(()) };
    for Script { scenario, .. } in scripts {
        let name = &scenario.name;
        if scenario.experiment.cases.iter().all(|case| case.backend != CaseBackend::Mac) {
            return Err(RunnerError::Invalid(format!(
                "--backend is for cases that Timewire's MAC carries out, and {name} has none"
            )));
        }
        if let Asked::Only(backend) = asked {
            check_backend(scenario, backend).map_err(|error| {
                RunnerError::Invalid(format!(
                    "the backend {backend}, which --backend asks for, cannot carry {name}: {error}"
                ))
            })?;
        }
    }
    Ok(())
}

fn end_requested(directory: &RunDir) -> RunnerError {
    RunnerError::EndRequested { path: directory.path().to_owned() }
}

fn run_all(
    scripts: &[Script],
    options: &Options,
    progress: &mut dyn FnMut(Progress),
    requests: &EndRequests,
    directory: &RunDir,
    mut meta: RunMeta,
) -> Result<(), RunnerError> {
    let of = meta.cases.len();
    let mut number = 0;
    // All stations of the local laboratory are on one kernel and share its clocks.
    let names = scripts.iter().flat_map(|script| &script.scenario.stations);
    let names: BTreeSet<String> = names.map(|station| station.name.to_string()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let sync = RefCell::new(RunSync::begin(&directory.sync_path(), &names)?);
    for script in scripts {
        let is_left = runs_of(&script.scenario).iter().any(|run| !directory.has_ended(&run.id));
        if !is_left {
            number += runs_of(&script.scenario).len();
            continue;
        }
        let lab = build_lab(&script.scenario, options, progress)?;
        let resolved = backend::resolve(&script.scenario, options.backend, &lab, progress)?;
        let scenario = &resolved.scenario;
        hosts::save(directory, scenario, &lab, Moment::Before)?;
        let fact = pacing_fact(scenario, &lab);
        if !meta.environment.contains(&fact) {
            meta.environment.push(fact);
        }
        let choice = resolved.choice.iter().filter(|it| !meta.backends.contains(it));
        let choice: Vec<_> = choice.cloned().collect();
        meta.backends.extend(choice);
        directory.write_meta(&meta)?;
        let mut stage = Stage::new(&resolved, &lab, directory, options, &sync)?;
        for run in runs_of(scenario) {
            number += 1;
            if directory.has_ended(&run.id) {
                continue;
            }
            if requests.take() {
                return Err(end_requested(directory));
            }
            let facts = stage.prepare(run.case, progress)?;
            add_facts(directory, &mut meta, facts)?;
            progress(Progress::Case { number, of, id: run.id.clone() });
            let facts = run_case(&mut stage, &run, requests)?;
            add_facts(directory, &mut meta, facts)?;
        }
        stage.close()?;
        hosts::save(directory, scenario, &lab, Moment::After)?;
        lab.destroy()?;
    }
    sync.borrow_mut().end();
    Ok(())
}

/// Adds what a run stands on; what is known already, such as of stations that are connected once
/// more, is not told again.
fn add_facts(directory: &RunDir, meta: &mut RunMeta, facts: Vec<Fact>) -> Result<(), RunnerError> {
    let new: Vec<_> = facts.into_iter().filter(|fact| !meta.environment.contains(fact)).collect();
    if new.is_empty() {
        return Ok(());
    }
    meta.environment.extend(new);
    directory.write_meta(meta)
}

fn build_lab(
    scenario: &Scenario,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Lab, RunnerError> {
    let stations =
        (1_u8..).zip(&scenario.stations).map(|(number, station)| timewire_lab::StationSpec {
            name: station.name.clone(),
            mac: MacAddress([0x02, 0x54, 0x57, 0, 0, number]),
        });
    let of_kernel = |case: &Case| {
        TransmitBackend::of_case(case.backend).is_some_and(TransmitBackend::is_kernels)
    };
    let classes = options.backend.is_some_and(|asked| asked != Asked::Only(TransmitBackend::Mac))
        || scenario.experiment.cases.iter().any(of_kernel);
    let spec = timewire_lab::LabSpec {
        stations: stations.collect(),
        rate: scenario.segment().rate,
        delay: scenario.segment().delay,
        // The kernel's backends have a queue for the real-time class.
        queues: if classes { 2 } else { 1 },
    };
    Ok(Lab::create(&spec, &mut |step| progress(Progress::Step(step.to_owned())))?)
}

fn run_case(
    stage: &mut Stage<'_>,
    run: &Run<'_>,
    requests: &EndRequests,
) -> Result<Vec<Fact>, RunnerError> {
    let tracing = stage.trace(run.load, &run.id)?;
    let participants = stage.participants(run.case, run.load, &run.id)?;
    let mut meta = case_meta(stage.scenario(), run, &participants)?;
    meta.traces = stage.traces().then(|| tracing::FILE.to_owned()).into_iter().collect();
    stage.directory().write_case(&run.id, &meta)?;
    let counted = stage.perform(run.case, &participants, tracing, requests)?;
    meta.macs = counted.macs;
    meta.timestamp_bound = counted.timestamp_bound;
    let place = stage.directory().case_path(&run.id);
    // One kernel, one clock.
    let facts = numbered::number(&participants, run.case, &place, Span::ZERO)?;
    meta.ended = true;
    stage.directory().write_case(&run.id, &meta)?;
    Ok(facts)
}

/// What a case is before it has run.
fn case_meta(
    scenario: &Scenario,
    run: &Run<'_>,
    participants: &Participants,
) -> Result<CaseMeta, RunnerError> {
    let measured: Vec<_> = scenario.measured_in(run.load).collect();
    let backend = backend::of_case(run.case.backend);
    let sizes: BTreeSet<u32> = measured.iter().map(|stream| stream.size.get()).collect();
    let has_slots = scenario.experiment.cases.iter().any(|it| it.backend != CaseBackend::None);
    let periods = measured.iter().filter_map(|stream| stream.period);
    Ok(CaseMeta {
        scenario: scenario.name.to_string(),
        case: run.case.name.to_string(),
        title: run.case.title.to_string(),
        load: run.load.to_string(),
        message_bytes: sizes.first().copied().filter(|_| sizes.len() == 1).unwrap_or(0),
        tdm: backend.as_ref().is_some_and(|backend| backend.slots != SlotPromise::None),
        backend,
        reserved: backend::reserved(scenario, run.case.backend)?,
        schedule: has_slots.then(|| scenario.schedule.clone()),
        // Where nothing has slots, the figures are of periods.
        cycle_ns: periods.max().or(Some(Span::from_ms(1))).filter(|_| !has_slots),
        rate: scenario.segment().rate,
        published: published(scenario, run.case),
        streams: measured
            .iter()
            .map(|stream| StreamMeta {
                name: stream.name.to_string(),
                class: match stream.class {
                    timewire_model::scenario::StreamClass::RealTime => StreamClass::RealTime,
                    timewire_model::scenario::StreamClass::BestEffort => StreamClass::BestEffort,
                },
                deadline_ns: stream.deadline,
                port: stream.way.port(),
                numbered: None,
                // A user's program may have another one than the file says.
                period_ns: stream.period.filter(|_| scenario.is_cyclic_of_ours(&stream.name)),
            })
            .collect(),
        endpoints: participants.endpoints(),
        observers: participants.observers(),
        from_ns: participants.times.from,
        to_ns: participants.times.to,
        until_kernel: false,
        macs: Vec::new(),
        timestamp_bound: None,
        clock_bound: None,
        traces: Vec::new(),
        ended: false,
    })
}

/// The published figure, in the cases it is about: TDM, and programs that send when they like.
fn published(scenario: &Scenario, case: &Case) -> Option<Published> {
    let about = case.backend != CaseBackend::None && case.release == Release::Free;
    scenario.published.as_ref().filter(|_| about).map(|published| Published {
        source: published.source.to_string(),
        transfer_mean_ns: published.latency_mean.as_ns(),
        transmit_mean_ns: published.transmit_mean.map(Span::as_ns),
        receive_mean_ns: published.receive_mean.map(Span::as_ns),
    })
}

/// How exactly the segment has its rate.
fn pacing_fact(scenario: &Scenario, lab: &Lab) -> Fact {
    let (value, level) = match lab.pacing() {
        Pacing::Netem => ("netem: frame by frame", FactLevel::Ok),
        Pacing::Tbf => {
            ("tbf: the mean rate, two frames may follow without a gap", FactLevel::Degraded)
        }
    };
    Fact {
        area: format!("segment of {}", scenario.name),
        name: "rate".to_owned(),
        value: value.to_owned(),
        level,
    }
}

fn environment(privilege: &str) -> Vec<Fact> {
    let mut facts = vec![Fact {
        area: "privilege".to_owned(),
        name: "laboratory".to_owned(),
        value: privilege.to_owned(),
        level: FactLevel::Ok,
    }];
    facts.extend(snapshot::facts().into_iter().map(host_fact));
    facts
}

/// What a host is like, as a run stands on it.
fn host_fact(fact: snapshot::Fact) -> Fact {
    Fact {
        area: fact.area.to_owned(),
        name: fact.name.to_owned(),
        value: fact.value,
        level: match fact.level {
            snapshot::Level::Ok => FactLevel::Ok,
            snapshot::Level::Degraded => FactLevel::Degraded,
            snapshot::Level::Missing => FactLevel::Missing,
        },
    }
}

/// A directory for a run that nobody named: `runs/TIME-NAME` below the current one, with a number
/// behind it where that is there.
pub fn default_directory(name: &str, below: &Path) -> PathBuf {
    let seconds = clock::now::<Utc>().as_ns().div_euclid(1_000_000_000);
    free(&below.join("runs"), &format!("{}-{name}", utc_text(seconds)))
}

/// The first of `NAME`, `NAME-2`, `NAME-3` and so on that is not there.
fn free(below: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number: u32| below.join(format!("{name}-{number}")));
    let mut all = std::iter::once(below.join(name)).chain(numbered);
    all.find(|path| !path.exists()).unwrap_or_else(|| below.join(name))
}

/// Seconds since 1970 as `20261121T093000Z`, by the days-to-civil rule of the Gregorian calendar.
fn utc_text(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years that start in March make the leap day the last one; eras of 400 years repeat.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Time between starting the programs and the first message: enough for all of them to be there.
const START_AHEAD: Span = Span::from_ms(250);
/// Time after the last message for what is still under way.
const DRAIN: Span = Span::from_ms(150);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_runs_that_begin_in_one_second_have_directories_of_their_own() {
        let below = tempfile::tempdir().unwrap();
        for name in ["x", "x-2", "x-3"] {
            let free = free(below.path(), "x");
            assert_eq!(free, below.path().join(name));
            std::fs::create_dir(free).unwrap();
        }
    }

    #[test]
    fn t0_dates_are_those_of_the_calendar() {
        let cases = [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_767_225_599, "20251231T235959Z"),
            (1_795_253_400, "20261121T093000Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(utc_text(seconds), text);
        }
    }
}

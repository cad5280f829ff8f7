// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiment of a scenario in the simulator: the participants of each case, which are those of
//! the other places, become programs of simulated stations (`compile`), and what these timestamp is
//! recorded as theirs is. Nothing of this host is in it: the same scenarios and seed give the same
//! bytes.

mod compile;

use std::fs;
use std::path::Path;

use timewire_base::drops::{Candidate, Cause, DropCause};
use timewire_base::{Instant, Span};
use timewire_capture::record::{Record, TimestampPoint};
use timewire_capture::summary::{BackendChoice, Fact, FactLevel, ProgramDrops};
use timewire_datapath::files::write_json;
use timewire_datapath::observe::ObservedPort;
use timewire_datapath::station::mac_summary;
use timewire_model::scenario::CaseBackend;
use timewire_sim::stations::{self, Outcome, Point, Seen, Stations};
use timewire_sys::event::EndRequests;
use timewire_tsn::backend::{Asked, TransmitBackend, Tried, check_backend, choose};

use super::participants::{Observer, Participants, ParticipantsOf, Times, step_of};
use super::{
    Progress, Run, Script, backend, begin, case_meta, check_backends, end_requested, runs_of,
};
use crate::RunnerError;
use crate::error::invalid;
use crate::program::{DROPS, Program};
use crate::rundir::{Destination, RunDir, RunEnd};
use crate::simulation::{RecordWriter, simulated_clock};

/// How to run in the simulator.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Title of the run.
    pub title: String,
    /// Where it goes.
    pub into: Destination,
    /// Use the scenarios' `quick_duration`.
    pub quick: bool,
    /// Which backend the cases of Timewire's MAC get in its place.
    pub backend: Option<Asked>,
    /// When programs begin follows from it.
    pub seed: u64,
}

/// Whether the simulator can do all that the scenarios ask for.
///
/// **Errors**: the first thing that it cannot.
pub fn check_on_sim(scripts: &[Script], options: &SimOptions) -> Result<(), RunnerError> {
    let (scripts, _) = resolved(scripts, options.backend)?;
    for script in &scripts {
        for run in runs_of(&script.scenario) {
            compile::stations(&case(script, &run, options, Path::new(""))?)?;
        }
    }
    Ok(())
}

/// Runs all scenarios in the simulator, one after the other, into one run directory.
///
/// **Errors**: the directory is in use; the simulator cannot do something; someone asked to end.
/// What was recorded until then is kept.
pub fn run_on_sim(
    scripts: &[Script],
    options: &SimOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunDir, RunnerError> {
    let requests = EndRequests::new().map_err(|error| invalid(format!("signals: {error}")))?;
    check_on_sim(scripts, options)?;
    let (scripts, choices) = resolved(scripts, options.backend)?;
    // The time of this host is no part of the run.
    let about = (Instant::from_ns(0), facts(&scripts, options.seed));
    let (directory, mut meta) = begin(&scripts, &options.title, &options.into, about)?;
    meta.backends = choices;
    directory.write_meta(&meta)?;
    let (mut number, of, mut elapsed_ns) = (0, meta.cases.len(), Span::ZERO);
    for script in &scripts {
        for run in &runs_of(&script.scenario) {
            number += 1;
            progress(Progress::Case { number, of, id: run.id.clone() });
            let path = directory.case_path(&run.id);
            fs::create_dir_all(&path).map_err(RunnerError::file("create", &path))?;
            let case = case(script, run, options, &path)?;
            let lasts = case.participants.times.over - Instant::from_ns(0);
            elapsed_ns = elapsed_ns.checked_add(lasts).unwrap_or(Span::MAX);
            if directory.has_ended(&run.id) {
                continue;
            }
            if !case.simulate(&directory, run, &requests)? {
                return Err(end_requested(&directory));
            }
        }
    }
    directory.write_end(&RunEnd { elapsed_ns })?;
    Ok(directory)
}

/// The scenarios with the backend that was asked for, and what is told of the choice.
///
/// **Errors**: a backend cannot carry a scenario.
fn resolved(
    scripts: &[Script],
    asked: Option<Asked>,
) -> Result<(Vec<Script>, Vec<BackendChoice>), RunnerError> {
    check_backends(scripts, asked)?;
    let (mut scripts, mut choices) = (scripts.to_vec(), Vec::new());
    for Script { scenario, .. } in &mut scripts {
        if let Some(asked) = asked {
            // The simulator has all of them: only what they are to carry can be in the way.
            let tried = TransmitBackend::BY_PREFERENCE.map(|backend| {
                let carried = check_backend(scenario, backend);
                (backend, carried.map_or_else(|e| Tried::Fails(e.to_string()), |()| Tried::Works))
            });
            let choice = choose(asked, &tried).map_err(|none| RunnerError::NoBackend {
                what: format!("no backend can carry {}", scenario.name),
                why: none.to_string(),
                missing: false,
            })?;
            choices.push(backend::told(scenario, asked, &choice));
            let cases = scenario.experiment.cases.iter_mut();
            for case in cases.filter(|case| case.backend == CaseBackend::Mac) {
                case.backend = choice.backend.case_backend();
            }
        }
        for case in &scenario.experiment.cases {
            let Some(backend) = TransmitBackend::of_case(case.backend) else { continue };
            check_backend(scenario, backend).map_err(|error| {
                invalid(format!("{backend} cannot carry {}: {error}", scenario.name))
            })?;
        }
    }
    Ok((scripts, choices))
}

/// What the run stands on.
fn facts(scripts: &[Script], seed: u64) -> Vec<Fact> {
    let fact = |area: &str, name: &str, value: &str| Fact {
        area: area.to_owned(),
        name: name.to_owned(),
        value: value.to_owned(),
        level: FactLevel::Ok,
    };
    let mut facts = vec![
        fact("simulator", "how", "hosts, kernels and NICs take no time, clocks are right"),
        fact("simulator", "seed", &seed.to_string()),
        fact(
            "simulator",
            "not measured",
            "receive (-): it is the time that a receiving host takes",
        ),
    ];
    for Script { scenario, .. } in scripts {
        if !scenario.programs.is_empty() {
            let names: Vec<_> = scenario.programs.iter().map(|it| it.name.to_string()).collect();
            let value = "simulated: messages of the size and period that their streams say";
            facts.push(fact(&format!("programs of {}", scenario.name), &names.join(", "), value));
        }
        let mut used = Vec::new();
        for backend in
            scenario.experiment.cases.iter().map(|it| TransmitBackend::of_case(it.backend))
        {
            let Some(backend) = backend.filter(|it| !used.contains(it)) else { continue };
            used.push(backend);
            let name = &scenario.name;
            let area = match backend {
                TransmitBackend::Mac => format!("MACs of {name}"),
                backend => format!("backend {backend} of {name}"),
            };
            facts.push(fact(&area, "transmit", compile::transmits(backend)));
        }
    }
    facts
}

/// One case under one load, for the simulator.
struct SimCase<'a> {
    script: &'a Script,
    run: &'a Run<'a>,
    participants: Participants,
    seed: u64,
}

fn case<'a>(
    script: &'a Script,
    run: &'a Run<'a>,
    options: &SimOptions,
    directory: &Path,
) -> Result<SimCase<'a>, RunnerError> {
    let scenario = &script.scenario;
    let duration = scenario.measured_for(options.quick);
    // The segment itself says which station a frame is of.
    let ports: Vec<ObservedPort> = Vec::new();
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
        directory,
        observers: vec![Observer { name: "hub".to_owned(), ports, addresses: Vec::new() }],
        runs_programs: false,
        instance: &|station| station.to_string(),
    })?;
    Ok(SimCase { script, run, participants, seed: options.seed })
}

impl SimCase<'_> {
    /// Simulates it and records it; whether it came to its end.
    fn simulate(
        &self,
        directory: &RunDir,
        run: &Run<'_>,
        requests: &EndRequests,
    ) -> Result<bool, RunnerError> {
        let scenario = &self.script.scenario;
        let mut meta = case_meta(scenario, run, &self.participants)?;
        directory.write_case(&run.id, &meta)?;
        let stations = compile::stations(self)?;
        let mut recording = Recording::create(self)?;
        let outcome = recording.run(&stations, requests)?;
        recording.finish()?;
        let Some(outcome) = outcome else { return Ok(false) };
        let queues = compile::queues(scenario, run.case)?;
        let macs = scenario.stations.iter().zip(&outcome.macs).filter_map(|(station, counters)| {
            Some(mac_summary(&station.name, "simulated", queues, counters.as_ref()?))
        });
        meta.macs = macs.collect();
        self.write_drops(&directory.case_path(&run.id), &outcome)?;
        meta.ended = true;
        directory.write_case(&run.id, &meta)?;
        Ok(true)
    }

    /// Why messages of programs did not leave, as the programs of the other places write it.
    fn write_drops(&self, directory: &Path, outcome: &Outcome) -> Result<(), RunnerError> {
        for (role, frames) in compile::programs(&self.participants).zip(&outcome.not_taken) {
            if *frames == 0 {
                continue;
            }
            let candidates = vec![Candidate::bare(Cause::QueueFull)];
            let cause = DropCause { frames: *frames, candidates, not_counted: None };
            let drops = ProgramDrops { program: role.name.clone(), drop_causes: vec![cause] };
            write_json(&directory.join(format!("{}{DROPS}", role.name)), &drops)?;
        }
        Ok(())
    }
}

/// The record files of a case.
struct Recording {
    /// Of each program that has some, and the station's number in it.
    programs: Vec<Option<(RecordWriter, u8)>>,
    segment: Option<RecordWriter>,
    /// Of each program, the flow of its frames in the observer's file.
    flows: Vec<u16>,
    failed: Option<RunnerError>,
}

impl Recording {
    fn create(case: &SimCase<'_>) -> Result<Recording, RunnerError> {
        let writer = |records: &crate::program::Records| {
            let mut header = records.header.clone();
            header.clocks = vec![simulated_clock()];
            RecordWriter::create(records.path.clone(), &header)
        };
        let mut programs = Vec::new();
        let mut segment = None;
        for role in &case.participants.roles {
            match &role.file.program {
                Program::Client { task, records, .. }
                | Program::Server { task, records, .. }
                | Program::Talker { task, records, .. }
                | Program::Listener { task, records, .. }
                | Program::Pipeline { task, records, .. } => {
                    programs.push(Some((writer(records)?, task.station)));
                }
                Program::Monitor { .. }
                | Program::Own(_)
                | Program::Flood { .. }
                | Program::Sink { .. } => programs.push(None),
                Program::Observer { records, .. } => segment = Some(writer(records)?),
            }
        }
        let flows = compile::observed_flows(&case.participants);
        Ok(Recording { programs, segment, flows, failed: None })
    }

    fn run(
        &mut self,
        stations: &Stations,
        requests: &EndRequests,
    ) -> Result<Option<Outcome>, RunnerError> {
        let mut sink = |seen: &Seen| self.seen(seen);
        stations::run(stations, &|| requests.take(), &mut sink).map_err(invalid)
    }

    fn seen(&mut self, seen: &Seen) {
        if self.failed.is_some() {
            return;
        }
        let record = |at: Instant<_>, point, (flow, seq), station| Record {
            at_ns: at.as_ns(),
            seq,
            frame_len: 0,
            point,
            station,
            flow,
            flags: 0,
            clock: 0,
        };
        let written = match *seen {
            Seen::Program { program, point, flow, seq, at } => {
                let Some((writer, station)) = &mut self.programs[program] else { return };
                let point = match point {
                    Point::Send => TimestampPoint::Send,
                    Point::Scheduled => TimestampPoint::Scheduled,
                    Point::NotTaken => TimestampPoint::NotTaken,
                    Point::LaunchRefused => TimestampPoint::LaunchRefused,
                    Point::Receive => TimestampPoint::Receive,
                };
                writer.push(&record(at, point, (flow, seq), *station))
            }
            Seen::Segment { station, program, seq, frame, at } => {
                let Some(writer) = &mut self.segment else { return };
                let station = u8::try_from(station).unwrap_or(u8::MAX);
                let flow = (self.flows[program], seq);
                let frame_len = u16::try_from(frame.get()).unwrap_or(u16::MAX);
                let seen = record(at, TimestampPoint::Segment, flow, station);
                writer.push(&Record { frame_len, ..seen })
            }
        };
        self.failed = written.err();
    }

    fn finish(self) -> Result<(), RunnerError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let programs = self.programs.into_iter().flatten().map(|(writer, _)| writer);
        programs.chain(self.segment).try_for_each(RecordWriter::finish)
    }
}

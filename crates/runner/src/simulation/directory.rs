// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run directory of a simulation: the same files as those of a real run, so that `report`,
//! `compare` and `trace` read it. Nothing of the host is in it: the same file and seed give the
//! same bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rundir::{CaseMeta, RunDir, RunEnd, RunMeta, RunRequest, SIMULATION, StreamMeta};
use timewire_base::{Instant, Span};
use timewire_capture::summary::{Fact, FactLevel, StreamClass};
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::{NetTraffic, NetworkCase, NetworkFile};
use timewire_model::scenario::{AtMost, ByteCount};
use timewire_sim::net::{Network, Observer, Seen, Simulation};

use crate::RunnerError;
use crate::error::{Context as _, invalid};
use crate::network::title;

use super::Report;
use super::events::Events;
use super::names::Rows;
use super::ports::Loads;
use super::records::Records;
use super::runs::Cut;

/// The name of the capture of a case.
const CAPTURE: &str = "trace.twc";
/// What a simulated case is called.
const CASE: &str = "simulated";

/// The directory of a simulation.
pub struct Directory {
    run: RunDir,
    meta: RunMeta,
    traced: Option<BTreeSet<usize>>,
    /// Of the runs that have ended.
    loads: Mutex<Loads>,
}

/// One of its runs, which is written.
pub struct Recording {
    id: String,
    case: CaseMeta,
    sinks: Arc<Mutex<Sinks>>,
    is_broken_off: bool,
}

struct Sinks {
    records: Option<Records>,
    events: Option<Events>,
    loads: Loads,
}

/// What the simulation tells.
struct DirectorySink(Arc<Mutex<Sinks>>);

impl Observer for DirectorySink {
    fn seen(&mut self, seen: &Seen) {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.loads.seen(seen);
        if let Some(records) = &mut sinks.records {
            records.seen(seen);
        }
        if let Some(events) = &mut sinks.events {
            events.seen(seen);
        }
    }
}

/// Which streams have their frames traced: all of them, or those that are named.
///
/// **Errors**: there is no such stream.
pub fn traced(file: &NetworkFile, names: &[String]) -> Result<BTreeSet<usize>, RunnerError> {
    if names.is_empty() {
        return Ok((0..file.streams.len()).collect());
    }
    let place = |name: &String| {
        let found = file.streams.iter().position(|stream| stream.name.as_str() == name);
        found.with_context(|| {
            let all: Vec<&str> = file.streams.iter().map(|stream| stream.name.as_str()).collect();
            let there = match all.len() {
                0..=20 => format!("there are {}", all.join(", ")),
                count => format!("there are {count}"),
            };
            format!("there is no stream `{name}` to trace; {there}")
        })
    };
    names.iter().map(place).collect()
}

impl Recording {
    /// The run was stopped at this time: nothing is recorded after it.
    pub fn broken_off(&mut self, at: Span) {
        self.is_broken_off = true;
        self.case.to_ns = Instant::from_ns(at.as_ns());
        self.case.from_ns = self.case.from_ns.min(self.case.to_ns);
    }
}

impl Directory {
    /// Makes a directory for the runs of a network, whose text is kept.
    ///
    /// **Errors**: it is there and not empty, or cannot be written.
    pub fn create(
        path: &Path,
        (file, text): (&NetworkFile, &str),
        (seed, runs): (u64, u32),
        traced: Option<BTreeSet<usize>>,
    ) -> Result<Directory, RunnerError> {
        let here = std::env::current_dir().context("the current directory is gone")?;
        let run = RunDir::create(&here.join(path))?;
        let name = file.name.to_string();
        let mut meta = RunMeta::new(title(file, std::slice::from_ref(&name)), 0);
        meta.cases = (1..=runs).map(|run| RunName::numbered(run, seed).id(&name)).collect();
        meta.environment = environment(file, seed, runs);
        write_network(&run, &name, text)?;
        meta.networks = vec![name];
        run.write_meta(&meta)?;
        Ok(Directory { run, meta, traced, loads: Mutex::default() })
    }

    /// Makes a directory for the networks of files, each of which is run once; the texts of the
    /// files are kept, by name. Without a seed each has its own.
    ///
    /// **Errors**: as [`Directory::create`].
    pub fn of_cases(
        path: &Path,
        (cases, files): (&[NetworkCase], &[(String, &str)]),
        seed: Option<u64>,
        request: Option<RunRequest>,
    ) -> Result<Directory, RunnerError> {
        let first_case = cases.first().context("a network file has a network")?;
        let first = &first_case.file;
        let (_, text) = files.first().context("a network is of a file")?;
        let of_first = (first_case.seed(seed), 1);
        let mut directory = Directory::create(path, (first, text), of_first, None)?;
        directory.meta.cases = cases.iter().map(NetworkCase::id).collect();
        directory.meta.networks = files.iter().map(|(name, _)| name.clone()).collect();
        directory.meta.title = title(first, &directory.meta.networks);
        for (name, text) in files {
            write_network(&directory.run, name, text)?;
        }
        let known = &mut directory.meta.environment;
        for fact in cases.iter().flat_map(|case| environment(&case.file, case.seed(seed), 1)) {
            match known.iter_mut().find(|it| (&it.area, &it.name) == (&fact.area, &fact.name)) {
                Some(same) if same.value.split(", ").any(|it| it == fact.value) => {}
                Some(other) => other.value += &format!(", {}", fact.value),
                None => known.push(fact),
            }
        }
        for case in cases {
            let path = directory.run.case_path(&case.id());
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            directory.run.write_network(&case.id(), &case.file)?;
        }
        directory.meta.request = request;
        directory.run.write_meta(&directory.meta)?;
        Ok(directory)
    }

    /// Goes on with the cases of a run in its directory.
    ///
    /// **Errors**: as [`RunDir::resume`].
    pub fn resume(path: &Path, cases: &[NetworkCase]) -> Result<Directory, RunnerError> {
        let ids: Vec<String> = cases.iter().map(NetworkCase::id).collect();
        let (run, meta) = RunDir::resume(path, &ids)?;
        Ok(Directory { run, meta, traced: None, loads: Mutex::default() })
    }

    /// Whether a case came to its end before.
    pub fn has_ended(&self, case: &NetworkCase) -> bool {
        self.run.has_ended(&case.id())
    }

    /// Begins a run: what the simulation tells is written.
    ///
    /// **Errors**: a file cannot be written, or cannot name so much.
    pub fn record(
        &self,
        (file, network): (&NetworkFile, &Network),
        name: &RunName,
        simulation: &mut Simulation,
    ) -> Result<Recording, RunnerError> {
        let id = name.id(file.name.as_str());
        let path = self.run.case_path(&id);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let rows = Rows::of(file, network);
        let records = Records::create(&path, &id, &rows)?;
        let events = match &self.traced {
            None => None,
            Some(wanted) => {
                let capture = path.join(CAPTURE);
                let out = File::create(&capture)
                    .with_context(|| format!("cannot create {}", capture.display()))?;
                Some(Events::create(out, (network, &rows), (wanted, &id))?)
            }
        };
        let case = case(file, name, (&rows, &records), events.is_some())?;
        self.run.write_case(&id, &case)?;
        let sinks =
            Arc::new(Mutex::new(Sinks { records: Some(records), events, loads: Loads::default() }));
        simulation.observe(Box::new(DirectorySink(Arc::clone(&sinks))));
        Ok(Recording { id, case, sinks, is_broken_off: false })
    }

    /// Closes the files of a run that has ended.
    ///
    /// **Errors**: something could not be written, now or earlier.
    pub fn recorded(&self, mut recording: Recording) -> Result<(), RunnerError> {
        let mut sinks = recording.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).add(&sinks.loads);
        if let Some(records) = sinks.records.take() {
            records.finish()?;
        }
        if let Some(events) = sinks.events.take() {
            let path = self.run.case_path(&recording.id).join(CAPTURE);
            events.finish().with_context(|| format!("cannot write {}", path.display()))?;
        }
        drop(sinks);
        recording.case.ended = !recording.is_broken_off;
        self.run.write_case(&recording.id, &recording.case)
    }

    /// What came of a case is written.
    ///
    /// **Errors**: a file cannot be written.
    pub fn finish_case(&self, case: &NetworkCase, report: &Report) -> Result<(), RunnerError> {
        let path = self.run.case_path(&case.id()).join(SIMULATION);
        let text = format!("{}\n", serde_json::to_string_pretty(report).map_err(invalid)?);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// All cases have run, or those before a request to end; together they took so long. Gives the
    /// directory.
    ///
    /// **Errors**: a file cannot be written.
    pub fn finish_cases(
        mut self,
        cases: &[NetworkCase],
        (elapsed_ns, ended): (Span, Option<String>),
    ) -> Result<RunDir, RunnerError> {
        if let Some(value) = ended {
            self.say_ended(value)?;
        }
        // What ports carry differs from case to case.
        if let [only] = cases {
            let loads = self.loads.into_inner().unwrap_or_else(PoisonError::into_inner);
            loads.write(&self.run, &only.file, elapsed_ns)?;
        }
        self.run.write_end(&RunEnd { elapsed_ns })?;
        Ok(self.run)
    }

    /// What came of the runs is written; of those that did not end before the request, nothing
    /// stays. Gives the directory.
    ///
    /// **Errors**: a file cannot be written or read again.
    pub fn finish(
        mut self,
        file: &NetworkFile,
        report: &Report,
        cut: Option<&Cut>,
    ) -> Result<RunDir, RunnerError> {
        if let Some(cut) = cut {
            self.keep_only(cut)?;
        }
        let text = format!("{}\n", serde_json::to_string_pretty(report).map_err(invalid)?);
        self.run.write_text(SIMULATION, &text)?;
        let runs = i64::try_from(self.meta.cases.len()).unwrap_or(i64::MAX);
        let of_one = cut.and_then(|cut| cut.at).unwrap_or(file.duration);
        let elapsed_ns = of_one.checked_mul(runs).unwrap_or(Span::MAX);
        let loads = self.loads.into_inner().unwrap_or_else(PoisonError::into_inner);
        loads.write(&self.run, file, elapsed_ns)?;
        self.run.write_end(&RunEnd { elapsed_ns })?;
        Ok(self.run)
    }

    /// Leaves the runs that there is something of, and says so.
    fn keep_only(&mut self, cut: &Cut) -> Result<(), RunnerError> {
        let wanted = std::mem::take(&mut self.meta.cases);
        let count = wanted.len();
        for (id, number) in wanted.into_iter().zip(0..) {
            if cut.runs.contains(&number) {
                self.meta.cases.push(id);
                continue;
            }
            let path = self.run.case_path(&id);
            match fs::remove_dir_all(&path) {
                // Not begun.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.with_context(|| format!("cannot remove {}", path.display()))?,
            }
        }
        let value = match cut.at {
            Some(at) => format!("on request, when the first of {count} runs was at {at}"),
            None => format!("on request, when {} of {count} runs had ended", cut.runs.len()),
        };
        self.say_ended(value)
    }

    fn say_ended(&mut self, value: String) -> Result<(), RunnerError> {
        let level = FactLevel::Degraded;
        let (area, name) = ("simulation".to_owned(), "ended".to_owned());
        self.meta.environment.push(Fact { area, name, value, level });
        self.run.write_meta(&self.meta)
    }
}

fn write_network(run: &RunDir, name: &str, text: &str) -> Result<(), RunnerError> {
    let path = run.network_path(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What a run is called in results.
#[derive(Clone, Debug)]
pub struct RunName {
    case: String,
    load: String,
    title: String,
}

impl RunName {
    /// The run with this number, from 1, and this seed.
    pub fn numbered(number: u32, seed: u64) -> RunName {
        let (case, load) = (CASE.to_owned(), format!("run-{number}"));
        RunName { case, load, title: format!("simulated, seed {seed}") }
    }

    /// The run of a case.
    pub fn of(case: &NetworkCase, seed: u64) -> RunName {
        let title = match case.title.as_str() {
            "" => format!("simulated, seed {seed}"),
            title => title.to_owned(),
        };
        RunName { case: case.case.clone(), load: case.load.clone(), title }
    }

    fn id(&self, network: &str) -> String {
        format!("{network}/{}/{}", self.case, self.load)
    }
}

/// What the run stood on: nothing of a host.
fn environment(file: &NetworkFile, seed: u64, runs: u32) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact {
        area: "simulation".to_owned(),
        name: name.to_owned(),
        value,
        level: FactLevel::Ok,
    };
    let last = seed.wrapping_add(u64::from(runs.saturating_sub(1)));
    let seeds = if runs == 1 { seed.to_string() } else { format!("{seed} to {last}") };
    vec![
        fact("how", "simulated; no kernel, NIC or clock of a host had a part in it".to_owned()),
        fact("network", file.name.to_string()),
        fact("duration", file.duration.to_string()),
        fact("seed", seeds),
    ]
}

fn case(
    file: &NetworkFile,
    name: &RunName,
    (rows, records): (&Rows, &Records),
    traced: bool,
) -> Result<CaseMeta, RunnerError> {
    let at = |span: Span| Instant::from_ns(span.as_ns());
    let mut lengths: Vec<u32> =
        file.streams.iter().map(|it| it.size.map_or(0, ByteCount::get)).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let rates = file.links.iter().map(|link| link.rate);
    let rate = rates.chain(file.segments.iter().map(|segment| segment.rate)).next();
    let streams = rows.all().iter().map(|row| {
        let (class, deadline_ns) = promised(file, row.stream);
        StreamMeta {
            name: row.name.clone(),
            class,
            deadline_ns,
            port: None,
            numbered: None,
            period_ns: None,
        }
    });
    Ok(CaseMeta {
        scenario: file.name.to_string(),
        case: name.case.clone(),
        title: name.title.clone(),
        load: name.load.clone(),
        message_bytes: if let [one] = lengths[..] { one } else { 0 },
        tdm: file.schedule.is_some(),
        backend: None,
        reserved: Vec::new(),
        schedule: file.schedule.as_ref().map(|it| it.slots.clone()),
        cycle_ns: Some(cycle(file)),
        rate: rate.context("a network without a link has no way for a stream")?,
        published: None,
        streams: streams.collect(),
        endpoints: records.files(),
        observers: Vec::new(),
        from_ns: at(file.warm_up),
        to_ns: at(file.duration),
        until_kernel: false,
        macs: Vec::new(),
        timestamp_bound: None,
        clock_bound: None,
        traces: traced.then(|| CAPTURE.to_owned()).into_iter().collect(),
        ended: false,
    })
}

/// A stream that something is promised about is real time; a limit of its largest latency is its
/// deadline.
fn promised(file: &NetworkFile, stream: usize) -> (StreamClass, Span) {
    let Some(stream) = file.streams.get(stream) else {
        return (StreamClass::BestEffort, Span::ZERO);
    };
    let limits: Vec<_> =
        file.all_limits().into_iter().filter(|limit| limit.stream == stream.name).collect();
    let deadlines = limits.iter().filter_map(|limit| match (limit.metric, &limit.at_most) {
        (Metric::LatencyMax, AtMost::Time(span)) => Some(*span),
        _ => None,
    });
    let urgent = stream.class.get() > 0 || stream.scheduled || !limits.is_empty();
    let class = if urgent { StreamClass::RealTime } else { StreamClass::BestEffort };
    (class, deadlines.min().unwrap_or(Span::ZERO))
}

/// What drawings are divided by: the longest cycle of gates, or period of a stream.
fn cycle(file: &NetworkFile) -> Span {
    let gates = file.ports.iter().filter_map(|port| port.gates.as_ref());
    let gates = gates.map(|list| {
        let states = list.entries.iter().map(|entry| entry.interval);
        list.cycle_time.unwrap_or_else(|| states.fold(Span::ZERO, |sum, lasts| sum + lasts))
    });
    let periods = file.streams.iter().filter_map(|stream| match &stream.traffic {
        NetTraffic::Cyclic(cyclic) => Some(cyclic.period),
        _ => None,
    });
    gates.max().or(periods.max()).unwrap_or(Span::from_ms(1))
}

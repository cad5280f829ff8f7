// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run directory: everything a run was told and everything it timestamped, from which its
//! summary is computed, as often as one likes.
//!
//! ```text
//! run.json                       what the run is, and what it stood on
//! NAME.scenario.yaml             each scenario, as it was read
//! NAME.network.yaml              or each network that was simulated, or run on kernels
//! simulation.json                of `sim`: what came of all its runs together
//! cases/SCENARIO.CASE.LOAD/      one directory for each case under one load:
//!     case.json                    what it was told, and the counters of its MACs
//!     network.json                 of a network file: its network
//!     simulation.json              and what came of its simulation
//!     compiled.json  experiment/   or the experiment that it became, and what stations recorded
//!     *.twr                        the records of each program
//!     trace.twc, trace.html        the capture, where the run was traced, and what it shows; on
//!                                  hosts one of each, `trace.STATION.twc`
//! hosts/SCENARIO.STATION.before.json, .after.json
//!                                what the host and each station's interfaces were like
//! hosts.yaml  agents/            where the stations were, and what their agents kept, case by case
//! logs/  files/SCENARIO/         what programs said, and the files that a user's need
//! sync.jsonl                     how the clocks were through the run
//! end.json                       written last: the run came to its end
//! ports.json                     what each port of a simulated network sent
//! summary.json  report.html      computed from all of the above
//! comparison.json  .html         with --baseline: this run against the other
//! ```
//!
//! Not here: the bytes of a record file (`timewire_capture::record`).

mod compare;
mod dropped;
mod limits;
mod resumed;
mod simulated;
mod traced;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, FileError, Instant, Port, Span, Tai, Verdict};
use timewire_capture::analyse::{
    AnalyseError, Analysis, CaseInput, ReservedInput, StreamInput, TimestampBound, analyse,
};
use timewire_capture::judge::{Bound, LimitInput, Metric, judge, verdict};
use timewire_capture::record::RecordFile;
use timewire_capture::series::StreamTimeSeries;
use timewire_capture::summary::{
    BackendChoice, BackendSummary, CaseSummary, Fact, FactLevel, Finding, MacSummary, Published,
    SUMMARY_SCHEMA, SlotShape, StreamClass, Summary,
};
use timewire_datapath::files::{self, read_json, write_json, write_whole};
use timewire_host::snapshot::Snapshot;
use timewire_model::scenario::network::{NetworkCases, NetworkFile, RelativeLimit, StreamLimit};
use timewire_model::scenario::{self, Scenario};
use timewire_model::tdm::TdmSchedule;

use timewire_capture::sync::{self, ClockSeries, SyncLine, SyncSummary, summarise};
use timewire_tsn::file::ParseFile;

pub use compare::HostsBefore;
pub use resumed::{Destination, RunLock, RunRequest};
pub use simulated::{Judged, SIMULATION, SIMULATION_SCHEMA};
pub use traced::NumberedMeta;

use crate::{RunnerError, network};

/// The network of a case, in its directory.
const NETWORK: &str = "network.json";
const RUN_SCHEMA: &str = "timewire.run/1";

/// What a run is; `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunMeta {
    /// Format and version.
    pub schema: String,
    /// Program and version that ran it.
    pub tool: String,
    /// Title for people.
    pub title: String,
    /// When it started, nanoseconds since 1970 UTC.
    pub started_utc_ns: i64,
    /// Names of the scenarios, in order.
    pub scenarios: Vec<String>,
    /// Names of the networks, in order, where there are some: there is no scenario then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// The cases that are to run, `SCENARIO/CASE/LOAD`, in order.
    pub cases: Vec<String>,
    /// What the run stands on.
    pub environment: Vec<Fact>,
    /// Which backends were taken, where the user left or forced the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendChoice>,
    /// What was asked for, so that the run can go on; absent where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RunRequest>,
}

impl RunMeta {
    /// A run that starts now.
    pub fn new(title: String, started_utc_ns: i64) -> RunMeta {
        RunMeta {
            schema: RUN_SCHEMA.to_owned(),
            tool: concat!("timewire ", env!("CARGO_PKG_VERSION")).to_owned(),
            title,
            started_utc_ns,
            scenarios: Vec::new(),
            networks: Vec::new(),
            cases: Vec::new(),
            environment: Vec::new(),
            backends: Vec::new(),
            request: None,
        }
    }
}

/// How a run ended; `end.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEnd {
    /// How long it took.
    pub elapsed_ns: Span,
}

/// One case under one load; `case.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseMeta {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the case.
    pub case: String,
    /// Its title.
    pub title: String,
    /// Name of the load.
    pub load: String,
    /// Payload of a measured message, bytes; 0 where messages differ in length.
    pub message_bytes: u32,
    /// Whether slots are in force.
    pub tdm: bool,
    /// Who carries the schedule out; absent for plain Ethernet.
    #[serde(default)]
    pub backend: Option<BackendSummary>,
    /// What the real-time classes of the stations reserve, where the backend is about that.
    #[serde(default)]
    pub reserved: Vec<ReservedMeta>,
    /// The schedule; a network that was simulated may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TdmSchedule>,
    /// Without a schedule: the cycle that drawings are divided by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_ns: Option<Span>,
    /// Rate of the segment.
    pub rate: BitsPerSecond,
    /// Figure published for this case.
    pub published: Option<Published>,
    /// The measured streams.
    pub streams: Vec<StreamMeta>,
    /// Record files of the programs, relative to the case's directory.
    pub endpoints: Vec<String>,
    /// Record files of the observers.
    pub observers: Vec<String>,
    /// The measured interval.
    pub from_ns: Instant<Tai>,
    /// Its end.
    pub to_ns: Instant<Tai>,
    /// Messages have arrived once the kernel of their listener has them.
    #[serde(default)]
    pub until_kernel: bool,
    /// Counters of the MACs over the case; empty until it has ended.
    pub macs: Vec<MacSummary>,
    /// Bound of the segment's timestamps; absent until the case has ended, and without MACs.
    pub timestamp_bound: Option<TimestampBoundMeta>,
    /// How far the clocks of the stations are apart at most; absent where they share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound: Option<ClockBoundMeta>,
    /// The captures, relative to the case's directory: one of all stations, or of each host one;
    /// absent where none was wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<String>,
    /// Whether the case came to its end.
    #[serde(default)]
    pub ended: bool,
}

impl CaseMeta {
    /// The cycle of its schedule, or the one that drawings are divided by.
    pub fn cycle(&self) -> Span {
        let of_schedule = self.schedule.as_ref().map(TdmSchedule::cycle);
        of_schedule.or(self.cycle_ns).unwrap_or(Span::ZERO)
    }
}

/// One measured stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamMeta {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: StreamClass,
    /// Its deadline; 0: none.
    pub deadline_ns: Span,
    /// Where its messages go; absent where it has none of its own, and in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// How its messages are known, where these have the number of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbered: Option<NumberedMeta>,
    /// Its period, where each message that is due is to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<Span>,
}

/// What one station's real-time class reserves.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedMeta {
    /// The station.
    pub station: String,
    /// The rate on the wire.
    pub rate: BitsPerSecond,
    /// What it may send at once. **Units**: bits.
    pub burst_bits: u64,
}

/// How far the clocks of stations are apart at most.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockBoundMeta {
    /// The bound.
    pub bound_ns: Span,
    /// How it is known, for people.
    pub by: String,
}

impl ClockBoundMeta {
    /// The same as something that a run stands on.
    pub fn fact(&self) -> Fact {
        Fact {
            area: "clocks".to_owned(),
            name: "of the stations".to_owned(),
            value: format!("at most {} apart, {}", self.bound_ns, self.by),
            level: FactLevel::Ok,
        }
    }
}

/// How late the segment's timestamps can be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampBoundMeta {
    /// 99.9th percentile.
    pub p999_ns: Span,
    /// Maximum.
    pub max_ns: Span,
}

/// For drawing: transfer times over time, by case.
pub type TimeSeriesByCase = BTreeMap<String, Vec<StreamTimeSeries>>;

/// When a host was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The stations are there, and nothing has run.
    Before,
    /// Everything has run, and the stations are about to go.
    After,
}

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Of who runs in it.
    _lock: Option<Arc<RunLock>>,
}

impl RunDir {
    /// Makes a new one.
    ///
    /// **Errors**: as [`files::empty_directory`].
    pub fn create(path: &Path) -> Result<RunDir, RunnerError> {
        let path = files::empty_directory(path)?;
        let lock = RunLock::take(&path)?;
        let directory = RunDir { path, _lock: Some(Arc::new(lock)) };
        for part in ["cases", "hosts", "logs"] {
            let part = directory.path.join(part);
            fs::create_dir(&part).map_err(RunnerError::file("create", &part))?;
        }
        Ok(directory)
    }

    /// Opens an existing one.
    ///
    /// **Errors**: it has no `run.json`.
    pub fn open(path: &Path) -> Result<RunDir, RunnerError> {
        let directory = RunDir { path: path.to_owned(), _lock: None };
        if !path.join("run.json").is_file() {
            let why = match (path.is_dir(), path.exists()) {
                (true, _) => "it has no file run.json",
                (_, true) => "it is a file",
                _ => "no such directory",
            };
            let why =
                format!("{why}, so it is no run directory of `timewire run`, `sim` or `demo`");
            return Err(FileError::content(path, why).into());
        }
        directory.meta()?;
        Ok(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a case `SCENARIO/CASE/LOAD`.
    pub fn case_path(&self, id: &str) -> PathBuf {
        self.path.join("cases").join(id.replace('/', "."))
    }

    /// Where a program's words go.
    pub fn log_path(&self, what: &str) -> PathBuf {
        self.path.join("logs").join(format!("{}.log", what.replace(['/', ' '], ".")))
    }

    /// The record of the clocks.
    pub fn sync_path(&self) -> PathBuf {
        self.path.join("sync.jsonl")
    }

    /// The text of a scenario.
    pub fn scenario_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.scenario.yaml"))
    }

    /// The text of the network that was simulated.
    pub fn network_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.network.yaml"))
    }

    /// What the run is.
    pub fn meta(&self) -> Result<RunMeta, RunnerError> {
        /// Read first: another version may have other fields.
        #[derive(Deserialize)]
        struct Versioned {
            schema: String,
        }
        let path = self.path.join("run.json");
        let Versioned { schema } = read_json(&path)?;
        if schema != RUN_SCHEMA {
            let why = format!(
                "it is of version `{schema}`, and this program reads `{RUN_SCHEMA}`: use the \
                 program that wrote it"
            );
            return Err(FileError::content(path, why).into());
        }
        Ok(read_json(&path)?)
    }

    /// Writes what the run is.
    pub fn write_meta(&self, meta: &RunMeta) -> Result<(), RunnerError> {
        Ok(write_json(&self.path.join("run.json"), meta)?)
    }

    /// Writes what a case was told, or, once it has ended, what its MACs counted.
    pub fn write_case(&self, id: &str, case: &CaseMeta) -> Result<(), RunnerError> {
        Ok(write_json(&self.case_path(id).join("case.json"), case)?)
    }

    /// Writes the network of a case.
    pub fn write_network(&self, id: &str, file: &NetworkFile) -> Result<(), RunnerError> {
        Ok(write_json(&self.case_path(id).join(NETWORK), &file.to_json())?)
    }

    /// Keeps what the host and a station's interfaces were like.
    pub fn write_host(
        &self,
        scenario: &str,
        station: &str,
        moment: Moment,
        snapshot: &Snapshot,
    ) -> Result<(), RunnerError> {
        let moment = match moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        let name = format!("hosts/{scenario}.{station}.{moment}.json");
        self.write_text(&name, &snapshot.to_text()).map(drop)
    }

    /// Says that the run came to its end.
    pub fn write_end(&self, end: &RunEnd) -> Result<(), RunnerError> {
        Ok(write_json(&self.path.join("end.json"), end)?)
    }

    /// What a case was told, and what its MACs counted.
    ///
    /// **Errors**: it has not begun, or the file does not hold what it should.
    pub fn case(&self, id: &str) -> Result<CaseMeta, RunnerError> {
        Ok(read_json(&self.case_path(id).join("case.json"))?)
    }

    /// Writes a file of text, whole or not at all.
    pub fn write_text(&self, name: &str, text: &str) -> Result<PathBuf, RunnerError> {
        let path = self.path.join(name);
        write_whole(&path, text.as_bytes())?;
        Ok(path)
    }

    /// Computes the summary from everything else in the directory.
    ///
    /// A run that was cut short has a summary too: of the cases that it finished.
    ///
    /// **Errors**: a file is missing or does not hold what it should.
    pub fn summarise(&self) -> Result<Summary, RunnerError> {
        self.evaluate().map(|(summary, _)| summary)
    }

    /// The same, and for drawing the time series of the first streams of each case, by its id.
    ///
    /// **Errors**: as [`RunDir::summarise`].
    pub fn evaluate(&self) -> Result<(Summary, TimeSeriesByCase), RunnerError> {
        let meta = self.meta()?;
        let end: Option<RunEnd> = read_json_if_there(&self.path.join("end.json"))?;
        let mut cases = Vec::new();
        let mut notes = Vec::new();
        let mut series = TimeSeriesByCase::new();
        for id in &meta.cases {
            let path = self.case_path(id).join("case.json");
            let Some(case) = read_json_if_there::<CaseMeta>(&path)? else {
                notes.push(did_not_run(id));
                continue;
            };
            notes.extend(self.missing_records(id, &case));
            let traced = traced::of_case(self, id, &case);
            let clock_bound = case.clock_bound.as_ref().map(|bound| bound.bound_ns.as_ns());
            let analysis = self.analyse(id, case)?;
            let mut summary = analysis.case;
            summary.clock_bound_ns = clock_bound;
            notes.extend(analysis.notes);
            summary.drop_causes = dropped::of_case(&self.case_path(id))?;
            notes.extend(dropped::notes(id, &summary.drop_causes));
            series.insert(id.clone(), analysis.series);
            match traced {
                Ok(traced) => summary.traced = traced,
                Err(note) => notes.push(note),
            }
            cases.push(summary);
        }
        let mut findings = self.network_findings(&meta, &mut cases)?;
        findings.extend(judge(&self.limits()?, &cases));
        limits::give(&mut cases, &self.all_limits()?);
        // Nobody knows how a run that was cut short would have ended.
        let verdict = match (end.is_some(), verdict(&findings)) {
            (false, Verdict::Pass) => Verdict::Inconclusive,
            (_, found) => found,
        };
        findings.extend(notes);
        let summary = Summary {
            schema: SUMMARY_SCHEMA.to_owned(),
            tool: meta.tool,
            title: meta.title,
            started_utc_ns: meta.started_utc_ns,
            elapsed_ns: end.as_ref().map_or(0, |end| end.elapsed_ns.as_ns()),
            complete: end.is_some(),
            environment: meta.environment,
            backends: meta.backends,
            sync: self.read_sync()?,
            cases,
            findings,
            verdict,
        };
        Ok((summary, series))
    }

    /// What is found of the cases of a network, each by itself; figures that are in no record are
    /// put into the summaries.
    fn network_findings(
        &self,
        meta: &RunMeta,
        cases: &mut [CaseSummary],
    ) -> Result<Vec<Finding>, RunnerError> {
        let Some(name) = meta.networks.first() else { return Ok(Vec::new()) };
        if !meta.cases.iter().any(|id| self.case_path(id).join(NETWORK).exists()) {
            return simulated::findings(self.path(), name);
        }
        let mut findings = Vec::new();
        for id in &meta.cases {
            let path = self.case_path(id);
            let label = if meta.cases.len() == 1 { name } else { id };
            let summary = cases.iter_mut().find(|case| case.id == *id);
            match summary {
                Some(summary) if path.join(network::COMPILED).exists() => {
                    let judged = network::judge::JudgedCase::of(self, id, label)?;
                    judged.fill(summary);
                    findings.extend(judged.findings);
                }
                Some(_) => findings.extend(simulated::findings(&path, label)?),
                None => findings.push(simulated::cut_short(label)),
            }
        }
        Ok(findings)
    }

    /// The network of a case.
    ///
    /// **Errors**: it is missing, or does not hold what it should.
    pub fn network(&self, id: &str) -> Result<NetworkFile, RunnerError> {
        let path = self.case_path(id).join(NETWORK);
        let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
        NetworkFile::parse(&path.to_string_lossy(), &text).map_err(|errors| {
            FileError::content(path, format!("it is no network\n{errors}")).into()
        })
    }

    /// All limits that findings of the run are of, also those that are judged case by case.
    ///
    /// **Errors**: as [`RunDir::limits`].
    pub fn all_limits(&self) -> Result<Vec<LimitInput>, RunnerError> {
        let mut limits = self.limits()?;
        let meta = self.meta()?;
        for id in meta.cases.iter().filter(|id| self.case_path(id).join(NETWORK).exists()) {
            let mut names = id.splitn(3, '/');
            let mut name = || names.next().unwrap_or_default().to_owned();
            let (scenario, case, load) = (name(), name(), name());
            let of_case = |limit: StreamLimit| {
                let bound = match limit.at_most {
                    scenario::AtMost::Time(span) => Bound::Time(span),
                    scenario::AtMost::Share(ppm) => Bound::Share(of_million(ppm.get())),
                    scenario::AtMost::Ratio(_) => return None,
                };
                Some(LimitInput {
                    id: match meta.cases.len() {
                        1 => limit.id,
                        _ => format!("{case}/{load}/{}", limit.id),
                    },
                    scenario: scenario.clone(),
                    case: case.clone(),
                    load: load.clone(),
                    stream: Some(limit.stream.to_string()),
                    metric: Metric::from_name(limit.metric.word())?,
                    bound,
                })
            };
            limits.extend(self.network(id)?.all_limits().into_iter().filter_map(of_case));
        }
        Ok(limits)
    }

    /// The limits of its scenarios; of a network, those that look at two of its cases.
    ///
    /// **Errors**: a scenario is missing, or does not hold what it should.
    pub fn limits(&self) -> Result<Vec<LimitInput>, RunnerError> {
        let meta = self.meta()?;
        let mut limits = Vec::new();
        for name in &meta.scenarios {
            limits.extend(limits_of(&self.read_scenario(name)?));
        }
        for name in &meta.networks {
            let path = self.network_path(name);
            let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
            let network =
                NetworkCases::parse(&path.to_string_lossy(), &text).map_err(|errors| {
                    FileError::content(path, format!("it is no network file\n{errors}"))
                })?;
            let relative = network.relative.iter().map(|limit| relative_limit(name, limit));
            let is_there = |limit: &LimitInput| {
                let id = format!("{name}/{}/{}", limit.case, limit.load);
                meta.cases.contains(&id)
            };
            limits.extend(relative.filter(is_there));
        }
        Ok(limits)
    }

    fn read_scenario(&self, name: &str) -> Result<Scenario, RunnerError> {
        let path = self.scenario_path(name);
        let text = fs::read_to_string(&path).map_err(RunnerError::file("read", &path))?;
        Scenario::parse(&path.to_string_lossy(), &text).map_err(|errors| {
            FileError::content(path, format!("it is no scenario\n{errors}")).into()
        })
    }

    /// What the record of the clocks comes to; older runs have none.
    fn read_sync(&self) -> Result<Option<SyncSummary>, RunnerError> {
        Ok(self.sync_lines()?.map(|lines| summarise(&lines)))
    }

    /// How the clocks went; nothing where there is no record of them.
    ///
    /// **Errors**: it does not hold what it should.
    pub fn clock_series(&self) -> Result<Vec<ClockSeries>, RunnerError> {
        Ok(self.sync_lines()?.map_or_else(Vec::new, |lines| sync::series(&lines)))
    }

    fn sync_lines(&self) -> Result<Option<Vec<SyncLine>>, RunnerError> {
        let path = self.sync_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RunnerError::file("read", &path)(error)),
        };
        let lines = SyncLine::read(&text);
        Ok(Some(lines.map_err(|error| FileError::content(path, error))?))
    }

    fn missing_records(&self, id: &str, case: &CaseMeta) -> Option<Finding> {
        let directory = self.case_path(id);
        let names = case.endpoints.iter().chain(&case.observers);
        let missing: Vec<&str> =
            names.filter(|name| !has_begun(&directory.join(name))).map(String::as_str).collect();
        let note = "its figures do not have what these programs timestamped".to_owned();
        (!missing.is_empty()).then(|| Finding {
            id: "records-missing".to_owned(),
            verdict: None,
            limit: String::new(),
            measured: format!("{id} has no {}", missing.join(", ")),
            note,
        })
    }

    fn analyse(&self, id: &str, case: CaseMeta) -> Result<Analysis, RunnerError> {
        analyse(self.input(id, case)?).map_err(|error| self.unfit(id, &error))
    }

    /// A case that cannot be analysed.
    fn unfit(&self, id: &str, error: &AnalyseError) -> RunnerError {
        FileError::content(self.case_path(id).join("case.json"), error).into()
    }

    /// Everything that was told and timestamped of a case.
    fn input(&self, id: &str, case: CaseMeta) -> Result<CaseInput, RunnerError> {
        let directory = self.case_path(id);
        let (schedule, cycle) = (case.schedule.as_ref(), case.cycle());
        let read = |names: &[String]| -> Result<Vec<RecordFile>, RunnerError> {
            // A run that was killed may have cases whose programs had not all begun
            // (`missing_records` says so).
            let paths = names.iter().map(|name| directory.join(name));
            paths.filter(|path| has_begun(path)).map(|path| read_records(&path)).collect()
        };
        Ok(CaseInput {
            scenario: case.scenario,
            case: case.case,
            title: case.title,
            load: case.load,
            message_bytes: case.message_bytes,
            tdm: case.tdm,
            backend: case.backend,
            reserved: case
                .reserved
                .into_iter()
                .map(|reserved| ReservedInput {
                    station: reserved.station,
                    rate: reserved.rate,
                    burst_bits: reserved.burst_bits,
                })
                .collect(),
            base_time: schedule.map_or(Instant::from_ns(0), TdmSchedule::base_time),
            cycle,
            slots: schedule.map_or_else(Vec::new, slot_shapes),
            rate: case.rate,
            published: case.published,
            streams: case
                .streams
                .into_iter()
                .map(|stream| StreamInput {
                    name: stream.name,
                    class: stream.class,
                    deadline: stream.deadline_ns,
                    period: stream.period_ns,
                })
                .collect(),
            from: case.from_ns,
            to: case.to_ns,
            until_kernel: case.until_kernel,
            endpoints: read(&case.endpoints)?,
            observers: read(&case.observers)?,
            macs: case.macs,
            timestamp_bound: case
                .timestamp_bound
                .map(|bound| TimestampBound { p999: bound.p999_ns, max: bound.max_ns }),
        })
    }
}

fn did_not_run(id: &str) -> Finding {
    Finding {
        id: "case-missing".to_owned(),
        verdict: None,
        limit: String::new(),
        measured: format!("{id} did not run"),
        note: "the run was cut short before it".to_owned(),
    }
}

fn slot_shapes(schedule: &TdmSchedule) -> Vec<SlotShape> {
    let shape = |slot: &timewire_model::tdm::Slot| SlotShape {
        station: slot.station.to_string(),
        offset_ns: slot.offset.as_ns(),
        transmit_ns: slot.transmit.as_ns(),
        guard_ns: slot.guard.as_ns(),
    };
    schedule.slots().iter().map(shape).collect()
}

/// The limits of a scenario as the judge takes them.
fn limits_of(scenario: &Scenario) -> Vec<LimitInput> {
    let convert = |limit: scenario::Limit| LimitInput {
        id: limit.id,
        scenario: scenario.name.to_string(),
        case: limit.case.to_string(),
        load: limit.load.to_string(),
        stream: limit.stream.as_ref().map(ToString::to_string),
        metric: Metric::from_name(limit.metric.word())
            .expect("invariant: every metric of a scenario is one of the judge's"),
        bound: match (limit.at_most, &limit.relative_to) {
            (scenario::AtMost::Time(span), _) => Bound::Time(span),
            (scenario::AtMost::Share(ppm), _) => Bound::Share(of_million(ppm.get())),
            (scenario::AtMost::Ratio(ppm), Some(to)) => Bound::Ratio {
                to_case: to.case.to_string(),
                to_load: to.load.to_string(),
                at_most: of_million(ppm.get()),
            },
            (scenario::AtMost::Ratio(ppm), None) => Bound::Share(of_million(ppm.get())),
        },
    };
    scenario.limits().into_iter().map(convert).collect()
}

/// A limit of a network that looks at two of its cases, as the judge takes it.
fn relative_limit(network: &str, limit: &RelativeLimit) -> LimitInput {
    LimitInput {
        id: limit.id.clone(),
        scenario: network.to_owned(),
        case: limit.case.clone(),
        load: limit.load.clone(),
        stream: Some(limit.stream.to_string()),
        metric: Metric::from_name(limit.metric.word())
            .expect("invariant: every metric of two cases is one of the judge's"),
        bound: Bound::Ratio {
            to_case: limit.to_case.clone(),
            to_load: limit.to_load.clone(),
            at_most: match limit.at_most {
                scenario::AtMost::Ratio(ppm) | scenario::AtMost::Share(ppm) => {
                    of_million(ppm.get())
                }
                scenario::AtMost::Time(_) => unreachable!("invariant: a ratio was checked"),
            },
        },
    }
}

fn of_million(ppm: u64) -> f64 {
    let ppm = u32::try_from(ppm).unwrap_or(u32::MAX);
    f64::from(ppm) / 1e6
}

/// Whether a program has written to its file of records: one that is ended as it opens the file
/// leaves an empty one.
fn has_begun(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

fn read_records(path: &Path) -> Result<RecordFile, RunnerError> {
    let bytes = fs::read(path).map_err(RunnerError::file("read", path))?;
    RecordFile::decode(&bytes)
        .map_err(|source| RunnerError::Records { path: path.to_owned(), source })
}

fn read_json_if_there<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RunnerError> {
    if path.exists() { Ok(Some(read_json(path)?)) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_judge_knows_every_metric_of_a_scenario() {
        let schema = scenario::network::network_schema();
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
        let metrics =
            &schema["else"]["properties"]["limits"]["items"]["properties"]["metric"]["oneOf"];
        let words: Vec<_> = metrics.as_array().unwrap().iter().map(|m| &m["const"]).collect();
        assert!(words.len() > 20, "{words:?}");
        for word in words.into_iter().filter(|it| *it != "outside-windows") {
            assert!(Metric::from_name(word.as_str().unwrap()).is_some(), "{word}");
        }
    }
}

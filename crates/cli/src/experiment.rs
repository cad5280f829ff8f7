// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `demo` and `run` with scenarios.

mod derived;
mod on_hosts;
mod on_sim;
pub mod resumed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use timewire_base::{CyclicWindows, Verdict};
use timewire_capture::summary::{Fact, FactLevel, Finding, Summary};
use timewire_host::doctor::Diagnosis;
use timewire_lab::privilege::{self, Privilege};
use timewire_model::scenario::network::NetworkCases;
use timewire_model::scenario::{FileKind, Scenario, bundle};
use timewire_report::{Extras, LongPacketPath, TableOptions};
use timewire_runner::RunnerError;
use timewire_runner::experiment::{self, Options, Script};
use timewire_runner::host_part;
use timewire_runner::network::segment;
use timewire_runner::rundir::{CaseMeta, Destination, RunDir, RunLock, RunRequest};
use timewire_tsn::backend::{Asked, TransmitBackend};
use timewire_tsn::file::ParseFile;

use crate::compare::{self, Baseline};
use crate::doctor;
use crate::input;
use crate::machine::RunMachine;
use crate::output::{self, ProgressLine};
use crate::place::{self, Place, Where};
use crate::sim;
use crate::stations::array::ArrayOptions;
use crate::trace::{self, OfRun};

#[derive(Debug, Args)]
pub struct Demo {
    /// 64-byte messages only, one second for each case
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub place: Where,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct Run {
    /// Network files (YAML or JSON)
    #[arg(required_unless_present = "resumed", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Go on with the run in this directory, as it was asked for: its cases that came to their end
    /// stay, the others run
    #[arg(
        long = "continue",
        value_name = "DIR",
        conflicts_with_all = [
            "files", "out", "on", "clock_error", "kernel", "time", "quick", "dry_run", "backend",
            "trace", "seed", "array", "task", "merge",
        ]
    )]
    pub resumed: Option<PathBuf>,
    /// Where the files are that a network names, by its name, when that is not where its own file
    /// is.
    #[arg(skip)]
    pub beside: BTreeMap<String, PathBuf>,
    /// Use the quick_duration of the experiments
    #[arg(long)]
    pub quick: bool,
    /// Check the files and print the schedules; run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Who carries the schedule out where `schedule` leaves it to Timewire's MAC [default: mac]
    #[arg(long, value_enum, value_name = "BACKEND")]
    pub backend: Option<BackendChoice>,
    /// Trace the messages of each case into a capture; costs each of them some microseconds
    #[arg(long)]
    pub trace: bool,
    /// A run directory: hold the run against it, as `compare` does; what is worse is exit code 1
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    #[command(flatten)]
    pub limits: compare::Limits,
    #[command(flatten)]
    pub place: Where,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub array: ArrayOptions,
}

impl Run {
    /// Whether one of its files is of this kind.
    pub fn has(&self, kind: FileKind) -> bool {
        self.texts().any(|text| FileKind::of(&text) == Some(kind.clone()))
    }

    /// Whether one of its files is a network that is more than one segment.
    pub fn has_links(&self) -> bool {
        self.has(FileKind::Network)
    }

    /// Whether its files are run as networks. In the simulator those of one segment are, too,
    /// unless their stations run programs.
    pub fn has_networks(&self) -> bool {
        let runs_programs = |text: String| {
            NetworkCases::parse("", &text).is_ok_and(|it| it.key_of_programs().is_some())
        };
        let is_segment = || self.has(FileKind::Segment) && !self.texts().any(runs_programs);
        self.has_links() || *self.place.here() == Place::Sim && is_segment()
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(|file| input::text(file).ok())
    }

    /// What is asked for, for a run that goes on later; `beside` is where the files are that a
    /// network names, by its name.
    pub fn request(&self, beside: BTreeMap<String, PathBuf>) -> RunRequest {
        RunRequest { beside, ..self.request_on(&self.place) }
    }

    /// What is asked for in this one of several places.
    pub fn request_in(&self, place: &Place) -> RunRequest {
        self.request_on(&self.place.with(place))
    }

    fn request_on(&self, at: &Where) -> RunRequest {
        let (place, mut options) = at.words();
        let mut add = |name: &str| options.push(name.to_owned());
        if self.quick {
            add("--quick");
        }
        if self.trace {
            add("--trace");
        }
        if let Some(backend) = self.backend.and_then(|backend| backend.to_possible_value()) {
            add("--backend");
            add(backend.get_name());
        }
        if let Some(seed) = self.limits.seed.filter(|_| at.on == Place::Sim) {
            add("--seed");
            add(&seed.to_string());
        }
        RunRequest { place, options, beside: BTreeMap::new() }
    }

    /// Where its results go; `name` is a part of the path where none was given.
    ///
    /// **Errors**: the current directory is gone.
    pub fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        directory(self.resumed.as_ref().or(self.output.out.as_ref()), name)
    }

    /// Whether no option is given that files of another kind have no use for.
    ///
    /// **Errors**: the first that is.
    pub fn refuse_options_of_scenarios(
        &self,
        files: &str,
        has_streams: bool,
    ) -> anyhow::Result<()> {
        let given = [
            ("--continue", self.resumed.is_some() && !has_streams),
            ("--quick", self.quick && !has_streams),
            ("--trace", self.trace && !has_streams),
            ("--backend", self.backend.is_some()),
            ("--baseline", self.baseline.is_some() && !has_streams),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some(("--backend", _)) => anyhow::bail!(
                "--backend is for networks of one segment on kernels, not for {files}"
            ),
            Some((option, _)) => {
                anyhow::bail!("{option} is for networks with streams, not for {files}")
            }
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// The best one that works there, found by trying; the result says why
    Auto,
    /// Timewire's own MAC: every frame in its slot
    Mac,
    /// Gates of the kernel: every frame in its slot
    Taprio,
    /// Gates of the kernel as launch times: every frame in its slot
    TaprioAssist,
    /// A launch time for each real-time frame; best effort at any time
    Etf,
    /// No slots: real time shaped to its reserved rate
    Cbs,
}

impl BackendChoice {
    /// What the experiment is asked.
    pub fn asked(self) -> Asked {
        match self {
            BackendChoice::Auto => Asked::Auto,
            BackendChoice::Mac => Asked::Only(TransmitBackend::Mac),
            BackendChoice::Taprio => Asked::Only(TransmitBackend::Taprio),
            BackendChoice::TaprioAssist => Asked::Only(TransmitBackend::TaprioAssist),
            BackendChoice::Etf => Asked::Only(TransmitBackend::Etf),
            BackendChoice::Cbs => Asked::Only(TransmitBackend::Cbs),
        }
    }
}

#[derive(Debug, Args)]
pub struct Output {
    /// The run directory; it must be empty or not exist [default: runs/TIME-NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// A file of the demo: its name and its text.
macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../scenarios/", $name)))
    };
}

/// The files of each network of the demo, the one that includes the others last.
const DEMO: [&[(&str, &str)]; 3] = [
    &[file!("tdm-64.yaml")],
    &[file!("tdm-64.yaml"), file!("messages/256.yaml"), file!("tdm-256.yaml")],
    &[file!("tdm-64.yaml"), file!("messages/1472.yaml"), file!("tdm-1472.yaml")],
];

/// The same with both backends, where the kernel has taprio.
const DEMO_OF_BOTH: [&[(&str, &str)]; 3] = [
    &[file!("tdm-64.yaml"), file!("taprio-64.yaml")],
    &[
        file!("tdm-64.yaml"),
        file!("taprio-64.yaml"),
        file!("messages/256.yaml"),
        file!("taprio-256.yaml"),
    ],
    &[
        file!("tdm-64.yaml"),
        file!("taprio-64.yaml"),
        file!("messages/1472.yaml"),
        file!("taprio-1472.yaml"),
    ],
];

pub fn demo(args: &Demo) -> anyhow::Result<ExitCode> {
    let of_both = args.place.on == Place::LabUml;
    let all = if of_both { &DEMO_OF_BOTH } else { &DEMO };
    let count = if args.quick { 1 } else { all.len() };
    let scripts = all[..count].iter().map(|files| parse(files));
    let scripts = scripts.collect::<anyhow::Result<Vec<_>>>()?;
    let title = "TDM on a shared segment: end-to-end transfer".to_owned();
    let (name, quick) = ("demo", args.quick);
    let (place, mut options) = args.place.words();
    options.extend(quick.then(|| "--quick".to_owned()));
    let request = Some(RunRequest { place, options, beside: BTreeMap::new() });
    let directory = directory(args.output.out.as_ref(), name)?;
    let into = Destination { directory, request, resumes: false };
    let what = What { title, name, quick, ..What::new(into) };
    perform(&scripts, what, &args.place, args.output.json)
}

/// The directory that was named, or one for a run of this name.
fn directory(named: Option<&PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    Ok(match named {
        Some(directory) => here.join(directory),
        None => experiment::default_directory(name, &here),
    })
}

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let mut scripts: Vec<Script> = Vec::new();
    for file in &args.files {
        let (scenario, text) =
            input::read(file, FileKind::Segment, "nothing was run", Scenario::parse)?;
        let beside = match &args.resumed {
            Some(run) => run.join("files").join(scenario.name.as_str()),
            None => sim::directory_of(file).to_owned(),
        };
        if args.place.record_for.is_none() {
            let network = NetworkCases::parse(&file.to_string_lossy(), &text)?;
            anyhow::ensure!(
                !args.quick || network.cases.iter().all(|case| case.quick_duration.is_some()),
                "{}: {NO_QUICK}",
                file.display()
            );
            segment::notes(&network.base).iter().for_each(|it| say!("note: {it}"));
        }
        let script = Script::new(scenario, text, &beside)?;
        let name = &script.scenario.name;
        if let Some(at) = scripts.iter().position(|other| other.scenario.name == *name) {
            return Err(same_name(file, name.as_str(), &args.files[at]));
        }
        scripts.push(script);
    }
    if args.baseline.is_none() && args.place.record_for.is_none() {
        // The simulator has a use for the seed by itself.
        let seed = args.limits.seed.filter(|_| args.place.on != Place::Sim);
        compare::Limits { seed, ..args.limits }.refuse()?;
    }
    let backend = args.backend.map(BackendChoice::asked);
    // Before a directory is made, a kernel is started, or a dry run says that all is well.
    experiment::check_backends(&scripts, backend)?;
    // The process that only records for another leaves this to it.
    let baseline = match (&args.baseline, &args.place.record_for) {
        (Some(path), None) => Some(Baseline::open(path, args.limits, compare::cases_of(&scripts))?),
        _ => None,
    };
    if args.dry_run {
        return dry_run(&scripts, backend, args);
    }
    let names: Vec<_> = scripts.iter().map(|script| script.scenario.name.to_string()).collect();
    let title = match scripts.as_slice() {
        [only] if !only.scenario.description.as_str().is_empty() => {
            only.scenario.description.to_string()
        }
        _ => names.join(", "),
    };
    let (quick, trace, seed) = (args.quick, args.trace, args.limits.seed);
    if let Some(obstacle) = place::no_trace(&args.place.on).filter(|_| trace) {
        return place::refuse(&names[0], &args.place, &[obstacle], args.output.json);
    }
    let directory = args.directory(&names[0])?;
    let into = Destination {
        directory,
        request: Some(args.request(BTreeMap::new())),
        resumes: args.resumed.is_some(),
    };
    let what = What { title, name: &names[0], quick, backend, trace, baseline, seed, into };
    perform(&scripts, what, &args.place, args.output.json)
}

/// Why there is no quick run.
pub const NO_QUICK: &str = "--quick is for experiments that say how long a quick run is: add \
                            `quick_duration` to `experiment`, or leave --quick out";

/// What is wrong with two files of one name.
pub fn same_name(file: &Path, name: &str, other: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: its `name: {name}` is that of {} too; results are kept by name, so each file needs \
         its own",
        file.display(),
        other.display()
    )
}

fn parse(files: &[(&str, &str)]) -> anyhow::Result<Script> {
    let (name, text) = files.last().context("a network of the demo has a file")?;
    let text = match files.len() {
        1 => (*text).to_owned(),
        _ => bundle(files.iter().copied()),
    };
    Ok(Script { scenario: Scenario::parse(name, &text)?, text, files: BTreeMap::new() })
}

fn dry_run(scripts: &[Script], backend: Option<Asked>, args: &Run) -> anyhow::Result<ExitCode> {
    args.place.check()?;
    let refusal = match &args.place.on {
        Place::Lab => refusal(scripts, backend)?,
        // Of these, the first has what all backends need; the command in the second looks itself.
        Place::LabUml | Place::LabQemu => None,
        Place::Sim => {
            let (quick, trace) = (args.quick, args.trace);
            let what = What { quick, trace, backend, ..What::new(nowhere()) };
            on_sim::check(scripts, &what)?;
            None
        }
        Place::Hosts(path) => {
            let hosts = place::hosts(path, "nothing was run")?;
            let (quick, trace) = (args.quick, args.trace);
            let what = What { backend, quick, trace, ..What::new(nowhere()) };
            return on_hosts::dry_run(scripts, &what, hosts, &args.place, args.output.json);
        }
    };
    match refusal {
        Some(diagnosis) if args.output.json => doctor::refuse(&diagnosis, NOTHING_RUN, true),
        Some(diagnosis) => {
            derived::show(scripts, false)?;
            doctor::refuse(&diagnosis, NOTHING_RUN, false)
        }
        None => derived::show(scripts, args.output.json),
    }
}

/// Of what is only looked at.
fn nowhere() -> Destination {
    Destination::new(PathBuf::new())
}

/// What the doctor says of the first scenario that cannot run in the laboratory of this kernel.
fn refusal(scripts: &[Script], backend: Option<Asked>) -> anyhow::Result<Option<Diagnosis>> {
    doctor::refusal_of_scenarios(scripts.iter().map(|script| &script.scenario), backend)
}

const NOTHING_RUN: &str = "unchanged; nothing was run";

/// What is performed of the scenarios, and as what.
struct What<'a> {
    title: String,
    name: &'a str,
    quick: bool,
    backend: Option<Asked>,
    trace: bool,
    baseline: Option<Baseline>,
    seed: Option<u64>,
    into: Destination,
}

impl What<'_> {
    fn new(into: Destination) -> Self {
        What {
            title: String::new(),
            name: "",
            quick: false,
            backend: None,
            trace: false,
            baseline: None,
            seed: None,
            into,
        }
    }
}

/// What of host settings is not done in a place.
fn tell_host_settings(scripts: &[Script], place: &Where) {
    let stations = scripts.iter().flat_map(|it| &it.scenario.stations);
    let stations = stations.map(|it| (&it.name, it.host.as_ref()));
    let note = match place.on {
        Place::Hosts(_) => host_part::clocks_by_hand(stations),
        _ => host_part::not_applied(stations),
    };
    // The process that only records for another leaves this to it.
    note.into_iter().filter(|_| place.record_for.is_none()).for_each(|it| say!("note: {it}"));
}

fn perform(
    scripts: &[Script],
    what: What<'_>,
    place: &Where,
    json: bool,
) -> anyhow::Result<ExitCode> {
    place.check()?;
    tell_host_settings(scripts, place);
    match place.here() {
        Place::Lab => {}
        Place::LabUml | Place::LabQemu => {
            return in_machine(place, &what.into, what.baseline, json);
        }
        Place::Sim => return on_sim::run(scripts, what, json),
        Place::Hosts(path) => {
            let hosts = place::hosts(path, "nothing was run")?;
            return on_hosts::run(scripts, what, hosts, place, json);
        }
    }
    let What { title, quick, backend, trace, baseline, into, .. } = what;
    let program: PathBuf =
        std::env::current_exe().context("cannot find the path of this program")?;
    // Before the first thread: a user namespace can only be entered by a process with one.
    let privilege = privilege::enter()?;
    crate::apply::recover()?;
    // The laboratory's own kernel has what all backends need.
    if (place.record_for.is_none() || place.on == Place::LabQemu)
        && let Some(diagnosis) = refusal(scripts, backend)?
    {
        return doctor::refuse(&diagnosis, NOTHING_RUN, json);
    }
    let laboratory = match (&place.record_for, privilege) {
        (Some(machine), _) => machine.clone(),
        (None, Privilege::Full) => "root".to_owned(),
        (None, Privilege::UserNamespace) => {
            "user namespace: no real-time scheduling, no eBPF".to_owned()
        }
    };
    let options = Options { title, into, quick, program, privilege: laboratory, backend, trace };
    let mut line = ProgressLine::of_long_work();
    let result = experiment::run(scripts, &options, &mut |progress| line.tell(&progress));
    if place.record_for.is_none() {
        line.line("computing the summary");
    }
    let directory = match result {
        Ok(directory) => directory,
        Err(error) => {
            line.clear();
            return Err(error.into());
        }
    };
    line.clear();
    match place.record_for {
        Some(_) => Ok(ExitCode::SUCCESS),
        None => finish(&directory, baseline, json),
    }
}

/// Runs this same command in a machine of the laboratory, which records into the run directory, and
/// computes the rest here.
fn in_machine(
    place: &Where,
    into: &Destination,
    baseline: Option<Baseline>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let machine = RunMachine::find(place)?;
    let is_new = !into.directory.exists();
    let directory = match into.resumes {
        true => RunDir::open(&into.directory)?.path().canonicalize()?,
        false => timewire_datapath::files::empty_directory(&into.directory)?,
    };
    // The machine cannot hold it for us.
    let _lock = RunLock::take(&directory)?;
    let command = inner_command(&directory, &machine.described())?;
    match machine.run(command, &directory)? {
        // It was booting; a directory with nothing in it is no run.
        None if std::fs::read_dir(&directory).is_ok_and(|mut all| all.next().is_none()) => {
            if is_new {
                // One that somebody uses meanwhile stays.
                let _ = std::fs::remove_dir(&directory);
            }
            anyhow::bail!("{}; nothing was recorded", crate::ending::WORDS)
        }
        None => Err(RunnerError::EndRequested { path: directory }.into()),
        Some(0) => finish(&RunDir::open(&directory)?, baseline, json),
        Some(code) => Ok(ExitCode::from(code)),
    }
}

/// What was asked of this process, for the one in the machine.
pub fn inner_command(directory: &Path, machine: &str) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = vec![program.display().to_string()];
    let mut words = std::env::args().skip(1);
    let mut into = "--out";
    while let Some(word) = words.next() {
        if word == "--continue" || word.starts_with("--continue=") {
            into = "--continue";
        }
        // These are about this process; each has a value, beside it or behind it.
        let own = ["--out", "--continue", "--baseline"];
        if own.contains(&word.as_str()) {
            words.next();
        } else if word != "--json" && !own.iter().any(|own| word.starts_with(&format!("{own}="))) {
            command.push(word);
        }
    }
    command.extend([into.to_owned(), directory.display().to_string()]);
    command.extend(["--record-for".to_owned(), machine.to_owned()]);
    Ok(command)
}

/// Computes everything from the records, writes it beside them and prints it.
fn finish(directory: &RunDir, baseline: Option<Baseline>, json: bool) -> anyhow::Result<ExitCode> {
    let (summary, report) = conclude(directory)?;
    let code = tell(&summary, &report, json)?;
    match baseline {
        None => Ok(code),
        Some(baseline) => match baseline.judge(directory, summary, json)? {
            ExitCode::SUCCESS => Ok(code),
            worse => Ok(worse),
        },
    }
}

/// Prints what was computed.
pub fn tell(summary: &Summary, report: &Path, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(summary)?;
    } else {
        let options = TableOptions { colour: output::wants_colour(), ..TableOptions::default() };
        output::print(&timewire_report::table(summary, options))?;
        output::print(&stood_on(summary))?;
        output::print(&format!("report:  {}\n", report.display()))?;
    }
    Ok(exit_code(summary))
}

/// Computes everything from the records and writes it beside them: the summary, and where the
/// report is.
pub fn conclude(directory: &RunDir) -> anyhow::Result<(Summary, PathBuf)> {
    let (summary, series) = directory.evaluate()?;
    let extras = Extras {
        series,
        clocks: directory.clock_series()?,
        topology: timewire_runner::simulation::topology(directory)?,
        longest: pages(directory, &summary)?,
    };
    directory.write_text("summary.json", &summary.to_json())?;
    let page = timewire_report::html_with(&summary, &extras);
    let report = directory.write_text("report.html", &page)?;
    Ok((summary, report))
}

/// Writes the page of each capture; the longest packet paths of each case.
fn pages(
    directory: &RunDir,
    summary: &Summary,
) -> anyhow::Result<BTreeMap<String, Vec<LongPacketPath>>> {
    let mut found = BTreeMap::new();
    for case in &summary.cases {
        let Some(traced) = &case.traced else { continue };
        let title = format!("{}: {}, {}", case.scenario, case.title, case.load);
        let captures = traced.captures.iter().map(|it| directory.path().join(it)).collect();
        let of_run = of_run(captures, &directory.case(&case.id)?);
        let (page, longest) = trace::run_page(&title, of_run)?;
        directory.write_text(&traced.page, &page)?;
        found.insert(case.id.clone(), longest);
    }
    Ok(found)
}

/// When stations may send in a case.
fn windows_of(case: &CaseMeta) -> BTreeMap<String, CyclicWindows> {
    match (case.tdm, &case.schedule) {
        (true, Some(schedule)) => trace::windows_of(schedule),
        _ => BTreeMap::new(),
    }
}

/// The captures of a case, with what is known of it.
fn of_run(captures: Vec<PathBuf>, case: &CaseMeta) -> OfRun {
    let bound = case.clock_bound.as_ref();
    let clock_error_ns = bound.map(|bound| bound.bound_ns.as_ns().unsigned_abs());
    OfRun { captures, windows: windows_of(case), clock_error_ns }
}

/// The captures of the case in a directory `cases/NAME` of a run; only the files where no more is
/// known.
pub fn captures_of_case(directory: &Path, name: &str, captures: Vec<PathBuf>) -> OfRun {
    let run = RunDir::open(directory).ok();
    match run.and_then(|run| run.case(name).ok()) {
        Some(case) => of_run(captures, &case),
        None => OfRun { captures, ..OfRun::default() },
    }
}

/// How the frames were carried, and what the host did not have.
fn stood_on(summary: &Summary) -> String {
    let mut text = String::new();
    for Fact { area, name, value, level } in &summary.environment {
        if *level != FactLevel::Ok && area == "segment" {
            text += &format!("{name} of the {area}: {value}\n");
        } else if *level == FactLevel::Missing
            || ["MACs of ", "programs of ", "stream "].iter().any(|it| area.starts_with(it))
            || ["clocks", "simulator"].contains(&area.as_str())
        {
            text += &format!("{area}: {name}: {value}\n");
        }
    }
    text
}

/// Prints the limits that look at two cases.
pub fn tell_relative(directory: &RunDir, summary: &Summary) -> anyhow::Result<()> {
    for limit in directory.limits()? {
        let id = format!("{}/{}", limit.scenario, limit.id);
        let found = summary.findings.iter().find(|finding| finding.id == id);
        found.map_or(Ok(()), tell_finding)?;
    }
    Ok(())
}

/// Prints a finding that has a verdict.
pub fn tell_finding(found: &Finding) -> anyhow::Result<()> {
    let Some(verdict) = found.verdict else { return Ok(()) };
    output::print(&format!("{} {}: {}\n", verdict.label(), found.id, found.limit))?;
    let note = if found.note.is_empty() { String::new() } else { format!("; {}", found.note) };
    output::print(&format!("  {}{note}\n", found.measured)).map(drop)
}

pub fn exit_code(summary: &Summary) -> ExitCode {
    ExitCode::from(u8::from(summary.verdict != Verdict::Pass))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sim`: will the traffic of a network hold?
//!
//! Not here: the simulation (`timewire-sim`), the file (`timewire-model`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use timewire_base::{Span, Verdict};
use timewire_model::scenario::ScenarioErrors;
use timewire_model::scenario::network::{NetworkCase, NetworkCases, NetworkFile};
use timewire_runner::rundir::Destination;
use timewire_runner::simulation::{self, Directory, Runs};
use timewire_sim::net::{StreamSpec, Traffic};
use timewire_tsn::file::ParseFile;

use crate::ending::{CODE, Ending, WORDS};
use crate::experiment;
use crate::input;
use crate::output::{self, ProgressLine};

pub use simulation::Report;

/// Which network, and how often.
#[derive(Debug, Args)]
pub struct Sim {
    /// The file of the network (YAML or JSON, `kind: network`)
    file: PathBuf,
    /// Of a file with an experiment, the network of this case under this load [default: the file as
    /// it stands]
    #[arg(long, value_name = "CASE/LOAD")]
    case: Option<String>,
    /// Everything that is random follows from it [default: the file's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// So many runs, with this seed and the ones after it, together
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    runs: u32,
    /// Search the phases of the cyclic streams that hurt most, in so many trials [default: 200]
    #[arg(
        long,
        value_name = "TRIALS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "200",
        conflicts_with = "runs",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    worst: Option<u32>,
    /// Write a run directory, as `run` does, for `report`, `compare` and `trace`: records of all
    /// messages, and what came of them; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --out: also a capture of what happened to each frame at each port, of these streams
    /// [default: all]
    #[arg(
        long,
        value_name = "STREAM,...",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        requires = "out"
    )]
    trace: Option<Vec<String>>,
    /// So many runs at the same time [default: one for each processor]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "worst",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    jobs: Option<u16>,
    /// Keep what finished runs gave in this file; if it is there, go on after those
    #[arg(long, value_name = "FILE", conflicts_with_all = ["worst", "out"])]
    checkpoint: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Exit code 0: all limits hold; 1: one does not, or is inconclusive; 2: it was ended on request.
pub fn run(args: &Sim) -> anyhow::Result<ExitCode> {
    let (file, text) = read(&args.file, "nothing was simulated", args.case.as_deref())?;
    run_file(args, (&file, &text), &Ending::new()?)
}

/// Whether all networks of a file can be simulated, before the first is.
///
/// **Errors**: the first that cannot, with its case.
pub fn check_cases(path: &Path, cases: &[SimCase]) -> anyhow::Result<()> {
    if let Some(first) = cases.first() {
        tell_programs(&first.case.file);
    }
    for SimCase { case, beside } in cases {
        let context = || match cases.len() {
            1 => format!("nothing was run: {}", path.display()),
            _ => format!("nothing was run: {}: in {}/{}", path.display(), case.case, case.load),
        };
        let (network, _) = simulation::network(&case.file, beside).with_context(context)?;
        simulation::check(&case.file, &network).with_context(context)?;
    }
    Ok(())
}

/// A network that is to be simulated, and where the files are that it names.
#[derive(Clone, Debug)]
pub struct SimCase {
    pub case: NetworkCase,
    pub beside: PathBuf,
}

/// Exit code as that of `sim`: each network once, kept in one run directory with the files of these
/// names and texts.
pub fn run_cases(
    into: &Destination,
    (cases, files): (&[SimCase], &[(String, &str)]),
    (seed, json): (Option<u64>, bool),
    ending: &Ending,
) -> anyhow::Result<ExitCode> {
    let networks: Vec<NetworkCase> = cases.iter().map(|it| it.case.clone()).collect();
    let directory = match into.resumes {
        true => Directory::resume(&into.directory, &networks)?,
        false => {
            let (out, request) = (&into.directory, into.request.clone());
            Directory::of_cases(out, (&networks, files), seed, request)?
        }
    };
    let mut tables = String::new();
    let (mut elapsed, mut ended, mut is_good) = (Span::ZERO, None, true);
    let mut progress = ProgressLine::of_long_work();
    for (number, SimCase { case, beside }) in (1..).zip(cases) {
        let file = &case.file;
        // What the ports of the only case sent is known to who simulates it.
        if cases.len() > 1 && directory.has_ended(case) {
            elapsed += file.duration;
            continue;
        }
        let (mut network, unread) = simulation::network(file, beside)?;
        unread.iter().for_each(|what| say!("note: {what}"));
        network.seed = case.seed(seed);
        let runs = Runs {
            runs: 1,
            jobs: 1,
            checkpoint: None,
            directory: Some((file, &directory, Some(case))),
            is_asked_to_end: &|| ending.is_asked(),
            network,
        };
        let told = runs.run(&mut |text| match cases.len() {
            1 => progress.line_of(text),
            all => progress.line_of(|| format!("{number} of {all}: {}: {}", case.id(), text())),
        });
        progress.clear();
        let ran = told.map_err(|failed| failed.named(file))?;
        let mut report = Report::of(file, case.seed(seed), 1, &ran.outcome);
        ran.cut.iter().for_each(|cut| report.cut(cut, 1));
        report.not_read(unread);
        directory.finish_case(case, &report)?;
        is_good &= report.is_good();
        if cases.len() > 1 {
            let title = if case.title.is_empty() { &case.case } else { &case.title };
            tables += &format!("{}: {title}, {}\n", file.name, case.load);
        }
        tables += &report.table();
        if let Some(cut) = ran.cut {
            let at = cut.at.unwrap_or(file.duration);
            elapsed += at;
            let of = cases.len();
            ended = Some(format!("on request, when {number} of {of} simulations was at {at}"));
            break;
        }
        elapsed += file.duration;
    }
    let is_cut = ended.is_some();
    let directory = directory.finish_cases(&networks, (elapsed, ended))?;
    let (summary, report) = experiment::conclude(&directory)?;
    if json {
        output::json(&summary)?;
    } else {
        output::print(&tables)?;
        experiment::tell_relative(&directory, &summary)?;
        output::print(&format!("verdict: {}\n", summary.verdict.word()))?;
        output::print(&format!("report:  {}\n", report.display()))?;
    }
    let is_good = is_good && summary.verdict == Verdict::Pass;
    Ok(ExitCode::from(if is_cut { CODE } else { u8::from(!is_good) }))
}

/// That programs are not simulated.
fn tell_programs(file: &NetworkFile) {
    if !file.programs.is_empty() {
        say!("note: no program is simulated; the streams are, as the file has them");
    }
    if file.has_phases() {
        say!("note: the simulator does nothing of `phases`, and judges no `checks`");
    }
}

fn run_file(
    args: &Sim,
    (file, text): (&NetworkFile, &str),
    ending: &Ending,
) -> anyhow::Result<ExitCode> {
    let (mut network, unread) = simulation::network(file, directory_of(&args.file))?;
    unread.iter().for_each(|what| say!("note: {what}"));
    tell_programs(file);
    network.seed = args.seed.unwrap_or(network.seed);
    let seed = network.seed;
    let is_cyclic = |stream: &StreamSpec| matches!(stream.traffic, Traffic::Cyclic { .. });
    anyhow::ensure!(
        args.worst.is_none() || network.streams.iter().any(is_cyclic),
        "{}: no stream is released in periods, so there are no phases to search; leave out --worst",
        args.file.display()
    );
    let is_asked_to_end = &|| ending.is_asked();
    let mut progress = ProgressLine::of_long_work();
    let mut found = None;
    if let Some(trials) = args.worst {
        let told = simulation::worst((file, &mut network), trials, is_asked_to_end, &mut |text| {
            progress.line_of(text);
        });
        progress.clear();
        found =
            Some(told?.with_context(|| format!("{WORDS} in the first trial: nothing is known"))?);
    }
    let is_cut = found.as_ref().is_some_and(Report::is_cut);
    let directory = if is_cut { None } else { directory(args, (file, text), seed)? };
    if let (true, Some(out)) = (is_cut, &args.out) {
        say!("note: {WORDS} in the search, so nothing was written to {}", out.display());
    }
    let mut cut = None;
    let mut report = match (found, &directory) {
        (Some(report), None) => report,
        (found, directory) => {
            let jobs = args.jobs.map_or_else(processors, usize::from);
            let checkpoint = args.checkpoint.as_deref();
            let directory = directory.as_ref().map(|directory| (file, directory, None));
            let runs =
                Runs { network, runs: args.runs, jobs, checkpoint, directory, is_asked_to_end };
            let told = runs.run(&mut |text| progress.line_of(text));
            progress.clear();
            let ran = told.map_err(|failed| failed.named(file))?;
            let mut report =
                found.unwrap_or_else(|| Report::of(file, seed, args.runs, &ran.outcome));
            ran.cut.iter().for_each(|cut| report.cut(cut, args.runs));
            cut = ran.cut;
            report
        }
    };
    report.not_read(unread);
    let written = match directory {
        Some(directory) => {
            let directory = directory.finish(file, &report, cut.as_ref())?;
            Some(experiment::conclude(&directory)?.1)
        }
        None => None,
    };
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&report.table())?;
        if let Some(report) = written {
            output::print(&format!("report:  {}\n", report.display()))?;
        }
    }
    Ok(ExitCode::from(if report.is_cut() { CODE } else { u8::from(!report.is_good()) }))
}

/// The network of a file, and the text of the file; `what` is said to be not done when it is none.
///
/// **Errors**: the file is no network file, or it has no such case.
pub fn read(
    path: &Path,
    what: &'static str,
    case: Option<&str>,
) -> anyhow::Result<(NetworkFile, String)> {
    read_as(path, what, case, NetworkCases::parse)
}

/// What makes a file of a name and a text.
type Parse = fn(&str, &str) -> Result<NetworkCases, ScenarioErrors>;

/// As [`read`], for those who want another rule of the reader.
pub fn read_as(
    path: &Path,
    what: &'static str,
    case: Option<&str>,
    parse: Parse,
) -> anyhow::Result<(NetworkFile, String)> {
    let (network, text) = input::read_network(path, what, parse)?;
    Ok((of_case(network, case)?, text))
}

/// The network of a case, `CASE/LOAD`; without it, the file as it stands.
fn of_case(network: NetworkCases, case: Option<&str>) -> anyhow::Result<NetworkFile> {
    let Some(wanted) = case else {
        if network.has_experiment {
            let is_varied = network.cases.iter().any(|it| !it.variant.values.is_empty());
            let with = if is_varied { " with the first value of each variable" } else { "" };
            say!(
                "note: this is the file as it stands{with}; --case has the cases of its experiment"
            );
        }
        return Ok(network.base);
    };
    anyhow::ensure!(
        network.has_experiment,
        "--case {wanted}: the file has no `experiment`; leave --case out"
    );
    let name = |case: &NetworkCase| format!("{}/{}", case.case, case.load);
    let names: Vec<String> = network.cases.iter().map(name).collect();
    let found = network.cases.into_iter().find(|case| name(case) == wanted);
    let found = found
        .with_context(|| format!("there is no case `{wanted}`; there are {}", names.join(", ")))?;
    if found.file.streams.iter().any(|stream| stream.scheduled) {
        say!("note: scheduled streams have no plan here; `plan --simulate` and `run --on sim` do");
    }
    Ok(found.file)
}

/// The directory that was asked for; nothing is made for streams that are not there.
fn directory(
    args: &Sim,
    (file, text): (&NetworkFile, &str),
    seed: u64,
) -> anyhow::Result<Option<Directory>> {
    let Some(path) = &args.out else { return Ok(None) };
    let traced = args.trace.as_ref().map(|names| simulation::traced(file, names)).transpose()?;
    Ok(Some(Directory::create(path, (file, text), (seed, args.runs), traced)?))
}

/// Where the files are that a file names.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// One run of a file with its own seed; `beside` is where the files are that it names.
pub fn simulate(file: &NetworkFile, beside: &Path, ending: &Ending) -> anyhow::Result<Report> {
    let mut progress = ProgressLine::of_long_work();
    let told = simulation::simulate(file, beside, &|| ending.is_asked(), &mut |text| {
        progress.line_of(text);
    });
    progress.clear();
    let (report, unread) = told?;
    unread.iter().for_each(|what| say!("note: {what}"));
    Ok(report)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

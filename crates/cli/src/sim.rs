// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sim`: will the traffic of a network hold?
//!
//! Not here: the simulation (`timewire-sim`), the file (`timewire-sched`).

mod build;
mod directory;
mod events;
mod names;
mod ports;
mod recorded;
mod records;
mod replay;
mod runs;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use timewire_sched::scenario::network::{NetMetric, NetworkFile};
use timewire_sched::scenario::{AtMost, FileKind, ScenarioErrors};
use timewire_sim::net::{Network, Outcome, PhaseSearch, StreamResult, StreamSpec, Traffic};

use crate::ending::{CODE, Ending, WORDS};
use crate::experiment;
use crate::input;
use crate::output::{self, ProgressLine};
use directory::Directory;
use runs::{Failed, Ran, Runs};
use show::Worst;

pub use ports::topology;
pub use show::Report;

/// Which network, and how often.
#[derive(Debug, Args)]
pub struct Sim {
    /// The file of the network (YAML or JSON, `kind: network`)
    file: PathBuf,
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
    let (file, text) = read(&args.file, "nothing was simulated")?;
    let (mut network, unread) = build::network(&file, directory_of(&args.file))?;
    unread.iter().for_each(|what| say!("note: {what}"));
    network.seed = args.seed.unwrap_or(network.seed);
    let seed = network.seed;
    let is_cyclic = |stream: &StreamSpec| matches!(stream.traffic, Traffic::Cyclic { .. });
    anyhow::ensure!(
        args.worst.is_none() || network.streams.iter().any(is_cyclic),
        "{}: no stream is released in periods, so there are no phases to search; leave out --worst",
        args.file.display()
    );
    let ending = Ending::new()?;
    let mut progress = ProgressLine::new();
    let mut found = None;
    if let Some(trials) = args.worst {
        let told = worst((&file, &mut network), trials, &ending, &mut progress);
        progress.clear();
        let told = told.map_err(|error| named(&file, &error))?;
        found =
            Some(told.with_context(|| format!("{WORDS} in the first trial: nothing is known"))?);
    }
    let is_cut = found.as_ref().is_some_and(Report::is_cut);
    let directory = if is_cut { None } else { directory(args, (&file, &text), seed)? };
    if let (true, Some(out)) = (is_cut, &args.out) {
        say!("note: {WORDS} in the search, so nothing was written to {}", out.display());
    }
    let mut cut = None;
    let mut report = match (found, &directory) {
        (Some(report), None) => report,
        (found, directory) => {
            let jobs = args.jobs.map_or_else(processors, usize::from);
            let checkpoint = args.checkpoint.as_deref();
            let directory = directory.as_ref().map(|directory| (&file, directory));
            let ending = &ending;
            let runs = Runs { network, runs: args.runs, jobs, checkpoint, directory, ending };
            let told = runs.run(&mut progress);
            progress.clear();
            let ran = told.map_err(|failed| failed.named(&file))?;
            let mut report =
                found.unwrap_or_else(|| Report::of(&file, seed, args.runs, &ran.outcome));
            ran.cut.iter().for_each(|cut| report.cut(cut, args.runs));
            cut = ran.cut;
            report
        }
    };
    report.not_read(unread);
    let written = match directory {
        Some(directory) => {
            let directory = directory.finish(&file, &report, cut.as_ref())?;
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

/// The file of a network, and its text; `what` is said to be not done when it is none.
pub fn read(path: &Path, what: &'static str) -> anyhow::Result<(NetworkFile, String)> {
    read_as(path, what, NetworkFile::parse)
}

/// What makes a file of a name and a text.
type Parse = fn(&str, &str) -> Result<NetworkFile, ScenarioErrors>;

/// As [`read`], for those who want another rule of the reader.
pub fn read_as(
    path: &Path,
    what: &'static str,
    parse: Parse,
) -> anyhow::Result<(NetworkFile, String)> {
    input::read(path, FileKind::Network, what, parse)
}

/// The directory that was asked for; nothing is made for streams that are not there.
fn directory(
    args: &Sim,
    (file, text): (&NetworkFile, &str),
    seed: u64,
) -> anyhow::Result<Option<Directory>> {
    let Some(path) = &args.out else { return Ok(None) };
    let traced = args.trace.as_ref().map(|names| directory::traced(file, names)).transpose()?;
    Directory::create(path, (file, text), (seed, args.runs), traced).map(Some)
}

/// Where the files are that a file names.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// One run of a file with its own seed; `beside` is where the files are that it names.
pub fn simulate(file: &NetworkFile, beside: &Path, ending: &Ending) -> anyhow::Result<Report> {
    let (network, unread) = build::network(file, beside)?;
    let seed = network.seed;
    let mut progress = ProgressLine::new();
    let runs = Runs { network, runs: 1, jobs: 1, checkpoint: None, directory: None, ending };
    let told = runs.run(&mut progress);
    progress.clear();
    let Ran { outcome, cut } = told.map_err(|failed| failed.named(file))?;
    let mut report = Report::of(file, seed, 1, &outcome);
    cut.iter().for_each(|cut| report.cut(cut, 1));
    unread.iter().for_each(|what| say!("note: {what}"));
    report.not_read(unread);
    Ok(report)
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

type Told<T> = Result<T, timewire_sim::net::NetError>;

/// An error of the simulator, with the names of the file.
fn named(file: &NetworkFile, error: &timewire_sim::net::NetError) -> anyhow::Error {
    match error {
        timewire_sim::net::NetError::NoRoute { stream, to, .. } => {
            let stream = &file.streams[*stream];
            let (name, from) = (&stream.name, &stream.from);
            let stations = file.stations.iter().map(|station| &station.name);
            let mut nodes = stations.chain(file.bridges.iter().map(|bridge| &bridge.name));
            let to = nodes.nth(*to).map_or("", |name| name.as_str());
            anyhow::anyhow!(
                "stream {name}: no link or segment leads from {from} to {to}; add one between \
                 them, or between bridges on the way"
            )
        }
        error => anyhow::anyhow!("{error}"),
    }
}

impl Failed {
    fn named(self, file: &NetworkFile) -> anyhow::Error {
        match self {
            Failed::Network(error) => named(file, &error),
            Failed::File(error) => error,
        }
    }
}

/// The worst phases that are found; the network has them afterwards. `None` when it was ended in
/// the first trial.
fn worst(
    (file, network): (&NetworkFile, &mut Network),
    trials: u32,
    ending: &Ending,
    progress: &mut ProgressLine,
) -> Told<Option<Report>> {
    let seed = network.seed;
    let mut search = PhaseSearch::new(network.clone(), seed);
    let score = |outcome: &Outcome| badness(file, outcome);
    let mut found = None;
    for trial in 0..trials {
        progress.line_of(|| format!("trial {} of {trials}", trial + 1));
        found = search.step(score, || !ending.is_asked())?.cloned();
        if ending.is_asked() {
            break;
        }
    }
    let Some(found) = found else { return Ok(None) };
    for (number, phase) in &found.offsets {
        if let Traffic::Cyclic { offset, .. } = &mut network.streams[*number].traffic {
            *offset = *phase;
        }
    }
    let mut report = Report::of(file, seed, 1, &found.outcome);
    let name = |(number, offset): &(usize, timewire_base::Span)| {
        (file.streams[*number].name.to_string(), offset.as_ns())
    };
    let offsets_ns = found.offsets.iter().map(name).collect();
    report.worst = Some(Worst { trials: search.tried(), offsets_ns });
    if search.tried() < trials {
        report.cut_search(trials);
    }
    Ok(Some(report))
}

/// The largest latency, or difference of latencies, in millionths of its limit; without limits, the
/// largest latency there is.
fn badness(file: &NetworkFile, outcome: &Outcome) -> u64 {
    let longest = |result: &StreamResult| result.latencies.max_ps().unwrap_or(0);
    let differ = |result: &StreamResult| longest(result) - result.latencies.min_ps().unwrap_or(0);
    let limits = file.limits.iter().filter_map(|limit| {
        let place = file.streams.iter().position(|stream| stream.name == limit.stream)?;
        let results = show::results(outcome, place).iter();
        let ps = match limit.metric {
            NetMetric::LatencyMax => results.map(longest).max()?,
            NetMetric::Jitter => results.map(differ).max()?,
            _ => return None,
        };
        let AtMost::Time(bound) = &limit.at_most else { return None };
        Some(ps.saturating_mul(1_000) / u64::try_from(bound.as_ns()).ok()?.max(1))
    });
    let all = outcome.streams.iter().map(longest).max();
    limits.max().or(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use timewire_sim::net::Simulation;

    use super::*;

    #[test]
    fn t2_phases_are_as_bad_as_what_is_limited() {
        let file = |limits: &str| {
            let text = "timewire: 1\nkind: network\nname: two\nduration: 10ms\n\
                stations: [{ name: a }, { name: b }]\nlinks: [{ between: [a, b] }]\n\
                streams:\n- { name: s, from: a, to: b, message: 59B, \
                traffic: { kind: cyclic, period: 1ms } }\nlimits:\n";
            NetworkFile::parse("x", &format!("{text}{limits}")).unwrap()
        };
        let bad = |limits: &str| {
            let file = file(limits);
            let network = build::network(&file, Path::new("")).unwrap().0;
            badness(&file, &Simulation::run(&network).unwrap())
        };
        // 113 bytes at 80 ns and 500 ns of delay, always the same.
        let latency = "- { id: l, metric: latency_max, stream: s, at_most: 1ms }\n";
        let jitter = "- { id: j, metric: jitter, stream: s, at_most: 1ns }\n";
        assert_eq!(bad(latency), 9_540);
        assert_eq!(bad(jitter), 0);
        assert_eq!(bad(&format!("{jitter}{latency}")), 9_540);
        assert_eq!(bad("- { id: m, metric: latency_mean, stream: s, at_most: 1ms }\n"), 9_540_000);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` with a network of phases alone: on hosts that have agents, or in the laboratory.
//!
//! Not here: what is done (`timewire_agent::sweep`), scenarios (`experiment`).

pub mod array;
pub mod laboratory;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::json;
use timewire_agent::controller::{Connect, OrchestratorEvent};
use timewire_agent::sweep::{
    self, Progress, Reach, Script, StartResult, Summary, TrialResult, own_agent_directory,
};
use timewire_base::{Span, StationName, Verdict};
use timewire_lab::privilege;
use timewire_model::scenario::FileKind;
use timewire_model::scenario::hosts_file::HostsFile;
use timewire_model::scenario::orchestrated::Orchestrated;
use timewire_runner::RunnerError;
use timewire_runner::experiment;
use timewire_sys::event::EndRequests;
use timewire_tsn::file;

use crate::experiment::Run;
use crate::place::{Place, Where};
use crate::{input, output, place};

use self::laboratory::Of;

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("one network with phases alone at a time; {} were given", args.files.len());
    };
    args.refuse_options_of_scenarios("networks with phases alone", false)?;
    args.limits.refuse()?;
    let place = &args.place;
    place.check()?;
    if *place.here() == Place::Sim {
        return Err(RunnerError::Unsupported {
            what: format!("--on sim cannot run the experiment of {}", path.display()),
            why: "its stations run programs of their own, which the simulator does not have; it \
                  runs networks (`timewire run`, `timewire sim`)"
                .to_owned(),
        }
        .into());
    }
    let mut script = script(path, "nothing was run")?;
    script.clock_error = place.clock_error;
    // Without a hosts file its network is made in this kernel.
    let is_lab = *place.here() == Place::Lab && script.file.network.is_some();
    let is_here = is_lab && place.record_for.is_none();
    if is_here {
        // Before the first thread: a user namespace can only be entered by a process with one.
        privilege::enter()?;
        crate::apply::recover()?;
        let obstacles = laboratory::lacking(Vec::new())?;
        if !obstacles.is_empty() {
            return place::refuse(script.file.name.as_str(), place, &obstacles, args.output.json);
        }
    }
    if args.dry_run {
        return dry_run(&script, args.output.json);
    }
    let here = std::env::current_dir().context("the current directory is gone")?;
    let directory = match &args.output.out {
        Some(directory) => here.join(directory),
        None => experiment::default_directory(script.file.name.as_str(), &here),
    };
    if matches!(place.here(), Place::LabUml | Place::LabQemu) {
        laboratory::network(&script.file)?;
        return laboratory::in_machine(args, &directory);
    }
    // It stays as long as the experiment goes on.
    let of = if is_here { Of::ThisKernel } else { Of::Machine };
    let made = is_lab.then(|| laboratory::build(&script.file, of, false)).transpose()?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let names = names_of(&script.file);
    let reach = match &made {
        Some(made) => {
            Reach::new(names, &made.hosts, made.agents(), program, &directory)?.disposable()
        }
        None => {
            let hosts = read_hosts(place, path)?;
            Reach::new(names, &hosts, &own_agent_directory(), program, &directory)?
        }
    };
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let connect: Arc<dyn Connect> = Arc::new(reach);
    let mut is_asked = || requests.take();
    let summary = sweep::run(&script, &directory, &connect, &mut is_asked, &mut tell)?;
    show(&summary, &directory, args.output.json)?;
    Ok(ExitCode::from(summary.exit_code()))
}

/// What stations do in the network file at this path; `what` is not done when it is none.
pub fn script(path: &Path, what: &'static str) -> anyhow::Result<Script> {
    let (network, text) = input::read(path, FileKind::Steps, what, file::without_streams)?;
    if !network.written.has_steps_alone() {
        let kind = FileKind::of(&text).unwrap_or(FileKind::Network);
        if kind == FileKind::Steps {
            bail!("{}: its stations have `phases` without steps; {what}", path.display());
        }
        return Err(input::other_kind(path, &kind, &FileKind::Steps.to_string()));
    }
    let beside = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(Script::new(Orchestrated::of(&network.written), beside))
}

/// The stations of an experiment.
pub fn names_of(file: &Orchestrated) -> impl Iterator<Item = &StationName> {
    file.stations.iter().map(|station| &station.name)
}

/// Prints what came of an experiment.
pub fn show(summary: &Summary, directory: &Path, json: bool) -> anyhow::Result<ExitCode> {
    if json { output::json(summary) } else { output::print(&table(summary, directory)) }
}

fn read_hosts(on: &Where, path: &Path) -> anyhow::Result<HostsFile> {
    let Place::Hosts(at) = &on.on else {
        bail!(
            "{} has no `links`, so its stations are on hosts: name with --on the hosts file that \
             says where",
            path.display()
        );
    };
    Ok(place::hosts(at, "nothing was run")?.0)
}

/// Says how an experiment goes on.
pub fn tell(progress: Progress) {
    match progress {
        Progress::Trial { number, of, values } => {
            let values: Vec<String> = values.iter().map(|(k, v)| format!("{k}={v}")).collect();
            say!("[{number}/{of}] {}", values.join(" "));
        }
        Progress::Event(OrchestratorEvent::Phase(phase)) => say!("  {phase}"),
        Progress::Event(OrchestratorEvent::Failed(failure)) => say!("  failed: {failure}"),
        Progress::Event(OrchestratorEvent::Unreached { station, why }) => {
            say!("  {station} cannot be reached: {why}");
        }
    }
}

fn dry_run(script: &Script, json: bool) -> anyhow::Result<ExitCode> {
    let all = sweep::trials(script, "0")?;
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|p| json!({"number": p.number, "repeat": p.repeat, "values": p.values}))
            .collect();
        let all = json!({"schema": "timewire.trials/1", "trials": rows});
        return output::json(&all);
    }
    let mut text = format!("{}: {} trials, in this order\n", script.file.name, all.len());
    for trial in &all {
        let values: Vec<String> = trial.values.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let _ = writeln!(text, "  {}  {}", trial.name(), values.join(" "));
    }
    output::print(&text)
}

/// What came of an experiment, for people.
pub fn table(summary: &Summary, directory: &Path) -> String {
    let mut text = String::new();
    for result in &summary.results {
        let TrialResult { number, values, failures, starts, left, .. } = result;
        let TrialResult { not_compared, unasked, checks, .. } = result;
        let values: Vec<String> = values.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
        let (fail, unsure) = (count(Verdict::Fail), count(Verdict::Inconclusive));
        let how = match (failures.len(), fail, unsure) {
            (0, 0, 0) => "pass".to_owned(),
            (0, 0, unsure) => format!("{unsure} limits inconclusive"),
            (0, fail, _) => format!("{fail} limits fail"),
            (failures, ..) => format!("{failures} failures"),
        };
        let _ = writeln!(text, "{number:04}  {how:<16}  {}", values.join(" "));
        for failure in failures {
            let _ = writeln!(text, "      failed: {failure}");
        }
        for start in starts {
            // Of many trials the stations are in the summary's file.
            text += &start_lines(start, summary.trials == 1);
        }
        for check in checks {
            let number = check.number.map_or_else(|| "none".to_owned(), |n| n.to_string());
            let why =
                if check.why.is_empty() { String::new() } else { format!(" ({})", check.why) };
            let _ = writeln!(text, "      {} {}: {number}{why}", check.verdict.label(), check.of);
        }
        for (station, left) in left {
            let _ = writeln!(text, "      {station} is left changed: {}", left.join("; "));
        }
        for (station, what) in not_compared {
            let _ = writeln!(text, "      {station}: not compared: {}", what.join("; "));
        }
        for station in unasked {
            let _ = writeln!(
                text,
                "      {station} could not be asked: it restores its host when its lease ends"
            );
        }
    }
    let done = summary.results.len();
    let _ = writeln!(text, "{done} of {} trials are done", summary.trials);
    let _ = writeln!(text, "results: {}", directory.join("summary.json").display());
    text
}

/// How far apart the stations of a start were; and each, when all are asked for.
fn start_lines(start: &StartResult, with_stations: bool) -> String {
    let span = |ns: Option<i64>| {
        ns.map_or_else(|| "unknown".to_owned(), |ns| Span::from_ns(ns).to_string())
    };
    let StartResult { started, late, unknown, .. } = start;
    let mut text = format!("      start: {started} stations");
    if start.min_ns.is_some() {
        let _ = write!(
            text,
            ", after the instant by min {}, median {}, max {}; spread {}, with the clocks at \
             most {}",
            span(start.min_ns),
            span(start.median_ns),
            span(start.max_ns),
            span(start.spread_ns),
            span(start.spread_within_ns)
        );
    }
    if *late > 0 {
        let _ = write!(text, "; {late} late");
    }
    if *unknown > 0 {
        let _ = write!(text, "; {unknown} unknown");
    }
    text.push('\n');
    let title = ["station", "planned (TAI)", "actual (TAI)", "difference", "clock", "error"];
    let mut rows = vec![title.map(str::to_owned)];
    for (name, station) in &start.stations {
        // One that was late is told of in any case.
        if !with_stations && station.state != "late" {
            continue;
        }
        let actual = station.actual_ns.map_or_else(|| "unknown".to_owned(), instant);
        let difference = match station.state {
            "late" => format!("late: {}", span(station.difference_ns)),
            _ => span(station.difference_ns),
        };
        let (offset, error) = (span(station.clock_offset_ns), span(station.clock_error_ns));
        rows.push([name.clone(), instant(station.planned_ns), actual, difference, offset, error]);
    }
    if rows.len() == 1 {
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for row in &rows {
        let cells =
            row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        let _ = writeln!(text, "        {}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

/// An instant in seconds.
fn instant(ns: i64) -> String {
    format!("{}.{:09}", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use timewire_agent::sweep::StationStartResult;

    use super::*;

    #[test]
    fn t0_starts_are_told_for_people() {
        let station = |state, actual_ns, difference_ns, clock: Option<i64>| StationStartResult {
            state,
            planned_ns: 1_000_000_000,
            actual_ns,
            difference_ns,
            clock_offset_ns: clock,
            clock_error_ns: clock,
        };
        let start = StartResult {
            at_ns: 1_000_000_000,
            started: 1,
            late: 1,
            unknown: 1,
            min_ns: Some(2_000),
            median_ns: Some(2_000),
            max_ns: Some(2_000),
            spread_ns: Some(0),
            spread_within_ns: None,
            stations: [
                ("a".to_owned(), station("started", Some(1_000_002_000), Some(2_000), Some(40))),
                ("bb".to_owned(), station("late", Some(4_000_000_000), Some(3_000_000_000), None)),
                ("c".to_owned(), station("unknown", None, None, None)),
            ]
            .into(),
        };
        let expected = "      start: 1 stations, after the instant by min 2us, median 2us, \
                        max 2us; spread 0ns, with the clocks at most unknown; 1 late; 1 unknown
        station  planned (TAI)  actual (TAI)  difference    clock    error
        a          1.000000000   1.000002000         2us     40ns     40ns
        bb         1.000000000   4.000000000    late: 3s  unknown  unknown
        c          1.000000000       unknown     unknown  unknown  unknown
";
        assert_eq!(start_lines(&start, true), expected);
        let short = start_lines(&start, false);
        assert!(short.contains("bb ") && !short.contains("a  "), "{short}");
    }
}

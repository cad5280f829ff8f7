// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --map`: an experiment on stations that have agents.
//!
//! Not here: what is done (`timewire_ctl::campaign`), scenarios (`experiment`).

mod laboratory;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::json;
use timewire_ctl::campaign::{
    self, PerformanceResult, Progress, Reach, Script, Summary, own_agent_directory,
};
use timewire_ctl::conductor::{Connect, Told};
use timewire_ctl::experiment;
use timewire_sched::scenario::experiment_file::{ExperimentFile, StationMap};
use timewire_sys::event::EndRequests;

use crate::args::{Laboratory, Run};
use crate::output;

/// Whether the files are experiments on stations.
pub fn are_meant(args: &Run) -> bool {
    let is_meant =
        |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| ExperimentFile::is_meant(&text));
    args.map.is_some() || args.files.iter().any(is_meant)
}

pub fn run(args: &Run) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("one experiment file at a time; {} were given", args.files.len());
    };
    if args.quick || args.trace || args.carrier.is_some() {
        bail!("--quick, --trace and --carrier are for scenarios, not for experiment files");
    }
    let text = read(path)?;
    let file = ExperimentFile::parse(&path.to_string_lossy(), &text).map_err(|errors| {
        eprintln!("{errors}");
        anyhow::anyhow!("{} is not an experiment file; nothing was run", path.display())
    })?;
    let beside = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let script = Script { file, text, beside };
    if args.dry_run {
        return dry_run(&script, args.output.json);
    }
    let here = std::env::current_dir().context("the current directory is gone")?;
    let directory = match &args.output.out {
        Some(directory) => here.join(directory),
        None => experiment::default_directory(script.file.name.as_str(), &here),
    };
    let place = &args.place;
    if place.lab == Laboratory::Uml {
        if args.map.is_some() {
            bail!("--map is for stations that are there; --lab uml makes them");
        }
        laboratory::network(&script.file)?;
        return laboratory::in_machine(args, &directory);
    }
    if place.kernel.is_some() || place.time.is_some() {
        bail!("--kernel and --time are for `--lab uml`; the stations' kernels are as they are");
    }
    // It stays as long as the experiment goes on.
    let (_bench, map, keys) = if place.record_for.is_some() {
        let (bench, map) = laboratory::build(&script.file)?;
        (Some(bench), map, laboratory::agents())
    } else {
        (None, read_map(args, &script.file, path)?, own_agent_directory())
    };
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let reach = Reach::new(&script.file, &map, &keys, program)?;
    // Before any thread: all of them leave the signals to us.
    let requests = EndRequests::new().context("cannot wait for signals")?;
    let connect: Arc<dyn Connect> = Arc::new(reach);
    let mut is_asked = || requests.take();
    let summary = campaign::run(&script, &directory, &connect, &mut is_asked, &mut tell)?;
    if args.output.json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&summary)?))?;
    } else {
        output::print(&table(&summary, &directory))?;
    }
    Ok(ExitCode::from(summary.exit_code()))
}

fn read_map(args: &Run, file: &ExperimentFile, path: &Path) -> anyhow::Result<StationMap> {
    let Some(map) = &args.map else {
        let lab = if file.network.is_some() { ", or have them made with --lab uml" } else { "" };
        bail!(
            "{} is an experiment on stations: say with --map FILE where they are{lab}",
            path.display()
        );
    };
    StationMap::parse(&map.to_string_lossy(), &read(map)?).map_err(|errors| {
        eprintln!("{errors}");
        anyhow::anyhow!("there is no map of the stations; nothing was run")
    })
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn tell(progress: Progress) {
    match progress {
        Progress::Performance { number, of, values } => {
            let values: Vec<String> = values.iter().map(|(k, v)| format!("{k}={v}")).collect();
            eprintln!("[{number}/{of}] {}", values.join(" "));
        }
        Progress::Told(Told::Phase(phase)) => eprintln!("  {phase}"),
        Progress::Told(Told::Failed(failure)) => eprintln!("  failed: {failure}"),
        Progress::Told(Told::Unreached { station, why }) => {
            eprintln!("  {station} cannot be reached: {why}");
        }
    }
}

fn dry_run(script: &Script, json: bool) -> anyhow::Result<ExitCode> {
    let all = campaign::performances(script, "0")?;
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|p| json!({"number": p.number, "repeat": p.repeat, "values": p.values}))
            .collect();
        let all = json!({"schema": "timewire.performances/1", "performances": rows});
        return output::print(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text = format!("{}: {} performances, in this order\n", script.file.name, all.len());
    for performance in &all {
        let values: Vec<String> =
            performance.values.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let _ = writeln!(text, "  {}  {}", performance.name(), values.join(" "));
    }
    output::print(&text)
}

fn table(summary: &Summary, directory: &Path) -> String {
    let mut text = String::new();
    for PerformanceResult { number, values, failures, left, unasked, checks, .. } in
        &summary.results
    {
        let values: Vec<String> = values.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let misses = checks.iter().filter(|check| !check.ok).count();
        let how = match (failures.len(), misses) {
            (0, 0) => "ok".to_owned(),
            (0, misses) => format!("{misses} limits missed"),
            (failures, _) => format!("{failures} failures"),
        };
        let _ = writeln!(text, "{number:04}  {how:<16}  {}", values.join(" "));
        for failure in failures {
            let _ = writeln!(text, "      failed: {failure}");
        }
        for check in checks {
            let number = check.number.map_or_else(|| "none".to_owned(), |n| n.to_string());
            let state = if check.ok { "ok" } else { check.why.as_str() };
            let _ = writeln!(text, "      {}: {number} ({state})", check.of);
        }
        for (station, left) in left {
            let _ = writeln!(text, "      {station} is left changed: {}", left.join("; "));
        }
        for station in unasked {
            let _ = writeln!(
                text,
                "      {station} could not be asked: it puts its host back when its lease ends"
            );
        }
    }
    let done = summary.results.len();
    let _ = writeln!(text, "{done} of {} performances are done", summary.performances);
    let _ = writeln!(text, "results: {}", directory.join("summary.json").display());
    text
}

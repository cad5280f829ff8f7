// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment carried out: every combination of its variables, as often as it says, in
//! random order, each into a directory of its own; what was done already is not done again.
//!
//! Not here: one trial (`controller`), the file's keys (`timewire_model`).

pub mod array;
mod compile;
mod reach;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::Plan;
use crate::protocol::controller::End;
use serde::{Deserialize, Serialize};
use timewire_base::{FileError, Span, Utc};
use timewire_model::scenario::orchestrated::Orchestrated;
use timewire_sys::{clock, file};

use crate::controller::{Connect, Orchestrator, OrchestratorEvent};
use crate::station::ledger::replace;
pub use compile::{Trial, file_beside, put_in_pieces, trials};
pub use reach::{CLOCK_ERROR, Reach, own_agent_directory};
use timewire_datapath::DatapathError;
pub use verdict::{CheckResult, StartResult, StationStartResult, Summary, TrialResult};

/// The experiment, as it was read.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it says.
    pub file: Orchestrated,
    /// As it is kept in the run directory.
    pub text: String,
    /// Where files that it names are.
    pub beside: PathBuf,
    /// Files that it names and that are in no directory: what was compiled with it.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The clocks of its stations are at most so far apart, as the user says; its programs know it
    /// by [`CLOCK_ERROR`].
    pub clock_error: Option<Span>,
    /// Where its programs put their marks, when these are to be in a capture.
    pub marks: Option<Marks>,
}

/// Where programs put their marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marks {
    /// In this directory.
    In(PathBuf),
    /// In one of each station, which a program that it starts makes.
    OfStation,
}

impl Script {
    /// An experiment whose files are in a directory.
    pub fn new(file: Orchestrated, beside: PathBuf) -> Script {
        let text = serde_json::to_string_pretty(&file);
        let text = text.expect("invariant: JSON with text keys can be written") + "\n";
        Script { file, text, beside, files: BTreeMap::new(), clock_error: None, marks: None }
    }
}

/// What is told while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A trial begins.
    Trial {
        /// Which one of those that are still to be done, from 1.
        number: usize,
        /// Of how many.
        of: usize,
        /// The values of the variables.
        values: BTreeMap<String, String>,
    },
    /// Something of the trial.
    Event(OrchestratorEvent),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    schema: String,
    /// Tells the trials of this run from those of any other.
    run: String,
}

const SCHEMA: &str = "timewire.sweep/1";
/// The file of the experiment in its run directory.
const TEXT: &str = "experiment.json";
/// Which run it is.
const RUN: &str = "sweep.json";
const END: &str = "end.json";

/// Carries the experiment out into a directory, or goes on where it was interrupted.
///
/// **Errors**: the directory is of another experiment; a plan cannot be carried out; a journal
/// cannot be written. `is_asked_to_end` ends the trial that goes on, and begins no other.
pub fn run(
    script: &Script,
    directory: &Path,
    connect: &Arc<dyn Connect>,
    is_asked_to_end: &mut dyn FnMut() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<Summary, DatapathError> {
    let sweep = open(script, directory)?;
    let all = trials(script, &sweep.run)?;
    let path = |trial: &Trial| directory.join(trial.name());
    let mut ends = BTreeMap::new();
    let mut open = Vec::new();
    for trial in &all {
        match read_end(&path(trial).join(END))? {
            Some(end) => drop(ends.insert(trial.number, end)),
            None => open.push(trial),
        }
    }
    let of = open.len();
    let mut asked = false;
    for (index, trial) in open.into_iter().enumerate() {
        if asked {
            break;
        }
        let values = trial.values.clone();
        tell(Progress::Trial { number: index + 1, of, values });
        let place = path(trial);
        let mut is_asked = || {
            asked |= is_asked_to_end();
            asked
        };
        let plan = trial.plan.clone();
        let end = run_plan(&place, plan, connect, &mut is_asked, tell)?;
        ends.insert(trial.number, end);
    }
    let summary = Summary::of(script, directory, &all, &ends);
    write_json(&directory.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Orchestrates one trial to its end, which is written beside its records.
fn run_plan(
    place: &Path,
    plan: Plan,
    connect: &Arc<dyn Connect>,
    is_asked_to_end: &mut dyn FnMut() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<End, DatapathError> {
    let orchestrator = Orchestrator::open(place, plan)?;
    let end =
        orchestrator.run(connect, is_asked_to_end, &mut |told| tell(Progress::Event(told)))?;
    write_json(&place.join(END), &end)?;
    Ok(end)
}

/// What tells the trials of a run that begins now from those of any other run.
fn new_run() -> String {
    format!("{:016x}", clock::now::<Utc>().as_ns())
}

fn open(script: &Script, directory: &Path) -> Result<Sweep, DatapathError> {
    let (text_path, path) = (directory.join(TEXT), directory.join(RUN));
    fs::create_dir_all(directory).map_err(DatapathError::file("create", directory))?;
    if is_new(directory)? {
        // Agents remember the names of trials: two runs never have the same.
        let sweep = Sweep { schema: SCHEMA.to_owned(), run: new_run() };
        replace(&text_path, script.text.as_bytes())?;
        write_json(&path, &sweep)?;
        return Ok(sweep);
    }
    let wrong = |why: String| DatapathError::from(FileError::content(directory, why));
    let read = |path: &Path| fs::read_to_string(path).map_err(DatapathError::file("read", path));
    if !path.exists() {
        return Err(wrong("it is not empty, and no run of an experiment".to_owned()));
    }
    if read(&text_path)? != script.text {
        return Err(wrong(format!("it is a run of another text; see its {TEXT}")));
    }
    let sweep: Sweep =
        serde_json::from_str(&read(&path)?).map_err(|error| wrong(error.to_string()))?;
    if sweep.schema != SCHEMA {
        return Err(wrong(format!("its schema is {}, not {SCHEMA}", sweep.schema)));
    }
    Ok(sweep)
}

/// Whether nothing is in the directory, or what a run leaves that is killed in its first moment.
fn is_new(directory: &Path) -> Result<bool, DatapathError> {
    let known = [TEXT, RUN].map(|name| file::unfinished(&directory.join(name)));
    let is_known = |path: &Path| path == directory.join(TEXT) || known.iter().any(|it| it == path);
    let mut entries = fs::read_dir(directory).map_err(DatapathError::file("read", directory))?;
    Ok(entries.all(|entry| entry.is_ok_and(|entry| is_known(&entry.path()))))
}

fn read_end(path: &Path) -> Result<Option<End>, DatapathError> {
    match fs::read(path) {
        Ok(bytes) => {
            let wrong = |why| DatapathError::from(FileError::content(path, why));
            serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DatapathError::file("read", path)(error)),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), DatapathError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|error| FileError::content(path, error))?;
    bytes.push(b'\n');
    replace(path, &bytes)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment file carried out: every combination of its variables, as often as it says, in
//! random order, each into a directory of its own; what was done already is not done again.
//!
//! Not here: one performance (`conductor`), the file's keys (`timewire_sched`).

pub mod array;
mod compile;
mod reach;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use timewire_base::{Span, Utc};
use timewire_conduct::Plan;
use timewire_conduct::controller::End;
use timewire_sched::scenario::experiment_file::ExperimentFile;
use timewire_sys::clock;

use crate::CtlError;
use crate::agent::ledger::replace;
use crate::conductor::{Conductor, Connect, Told};
pub use compile::{Performance, performances};
pub use reach::{CLOCK_ERROR, Reach, own_agent_directory};
pub use verdict::{CheckResult, PerformanceResult, StartResult, StationStartResult, Summary};

/// The experiment, as it was read.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it says.
    pub file: ExperimentFile,
    /// The text.
    pub text: String,
    /// Where files that it names are.
    pub beside: PathBuf,
    /// The clocks of its stations are at most so far apart, as the user says; its programs know it
    /// by [`CLOCK_ERROR`].
    pub clock_error: Option<Span>,
}

/// What is told while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A performance begins.
    Performance {
        /// Which one of those that are still to be done, from 1.
        number: usize,
        /// Of how many.
        of: usize,
        /// The values of the variables.
        values: BTreeMap<String, String>,
    },
    /// Something of the performance.
    Told(Told),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Campaign {
    schema: String,
    /// Tells the performances of this run from those of any other.
    run: String,
}

const SCHEMA: &str = "timewire.campaign/1";
/// The file of the experiment in its run directory.
const TEXT: &str = "experiment.yaml";
const END: &str = "end.json";

/// Carries the experiment out into a directory, or goes on where it was interrupted.
///
/// **Errors**: the directory is of another experiment; a plan cannot be carried out; a journal
/// cannot be written. `is_asked_to_end` ends the performance that goes on, and begins no other.
pub fn run(
    script: &Script,
    directory: &Path,
    connect: &Arc<dyn Connect>,
    is_asked_to_end: &mut dyn FnMut() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<Summary, CtlError> {
    let campaign = open(script, directory)?;
    let all = performances(script, &campaign.run)?;
    let path = |performance: &Performance| directory.join(performance.name());
    let mut ends = BTreeMap::new();
    let mut open = Vec::new();
    for performance in &all {
        match read_end(&path(performance).join(END))? {
            Some(end) => drop(ends.insert(performance.number, end)),
            None => open.push(performance),
        }
    }
    let of = open.len();
    let mut asked = false;
    for (index, performance) in open.into_iter().enumerate() {
        if asked {
            break;
        }
        let values = performance.values.clone();
        tell(Progress::Performance { number: index + 1, of, values });
        let place = path(performance);
        let mut is_asked = || {
            asked |= is_asked_to_end();
            asked
        };
        let plan = performance.plan.clone();
        let end = conduct(&place, plan, connect, &mut is_asked, tell)?;
        ends.insert(performance.number, end);
    }
    let summary = Summary::of(script, directory, &all, &ends);
    write_json(&directory.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Conducts one performance to its end, which is written beside its records.
fn conduct(
    place: &Path,
    plan: Plan,
    connect: &Arc<dyn Connect>,
    is_asked_to_end: &mut dyn FnMut() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<End, CtlError> {
    let conductor = Conductor::open(place, plan)?;
    let end = conductor.run(connect, is_asked_to_end, &mut |told| tell(Progress::Told(told)))?;
    write_json(&place.join(END), &end)?;
    Ok(end)
}

/// What tells the performances of a run that begins now from those of any other run.
fn new_run() -> String {
    format!("{:016x}", clock::now::<Utc>().as_ns())
}

fn open(script: &Script, directory: &Path) -> Result<Campaign, CtlError> {
    let (text_path, path) = (directory.join(TEXT), directory.join("campaign.json"));
    fs::create_dir_all(directory).map_err(CtlError::file("create", directory))?;
    if is_new(directory)? {
        // Agents remember the names of performances: two runs never have the same.
        let campaign = Campaign { schema: SCHEMA.to_owned(), run: new_run() };
        replace(&text_path, script.text.as_bytes())?;
        write_json(&path, &campaign)?;
        return Ok(campaign);
    }
    let wrong = |why: String| CtlError::Content { path: directory.to_owned(), why };
    let read = |path: &Path| fs::read_to_string(path).map_err(CtlError::file("read", path));
    if !path.exists() {
        return Err(wrong("it is not empty, and no run of an experiment file".to_owned()));
    }
    if read(&text_path)? != script.text {
        return Err(wrong(format!("it is a run of another text; see its {TEXT}")));
    }
    let campaign: Campaign =
        serde_json::from_str(&read(&path)?).map_err(|error| wrong(error.to_string()))?;
    if campaign.schema != SCHEMA {
        return Err(wrong(format!("its schema is {}, not {SCHEMA}", campaign.schema)));
    }
    Ok(campaign)
}

/// Whether nothing is in the directory, or what a run leaves that is killed in its first moment.
fn is_new(directory: &Path) -> Result<bool, CtlError> {
    let known = [TEXT, "experiment.new", "campaign.new"];
    let mut entries = fs::read_dir(directory).map_err(CtlError::file("read", directory))?;
    Ok(entries
        .all(|entry| entry.is_ok_and(|entry| known.iter().any(|name| entry.file_name() == *name))))
}

fn read_end(path: &Path) -> Result<Option<End>, CtlError> {
    match fs::read(path) {
        Ok(bytes) => {
            let wrong = |why| CtlError::Content { path: path.to_owned(), why };
            serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(error.to_string()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CtlError::file("read", path)(error)),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CtlError> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|error| CtlError::Content { path: path.to_owned(), why: error.to_string() })?;
    bytes.push(b'\n');
    replace(path, &bytes)
}

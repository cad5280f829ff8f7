// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which trials of an array are done, and the run directory that one run of the experiment
//! would have left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::protocol::controller::End;
use serde::Serialize;

use super::super::{END, SCHEMA as SWEEP, Summary, Sweep, TEXT, Trial, read_end, write_json};
use super::task::{SHARD, Shard};
use super::{Array, VERSION, reserve};
use crate::controller::record_path;
use crate::station::ledger::replace;
use timewire_datapath::DatapathError;

/// A directory that cannot be taken as a share, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Which.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What there is of an array.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    schema: &'static str,
    /// The name of the experiment.
    pub name: String,
    /// How many trials there are.
    pub trials: usize,
    /// By how many tasks.
    pub tasks: usize,
    /// Those that are done, by their numbers.
    pub done: Vec<usize>,
    /// Those that failed, with the first failure.
    pub failed: BTreeMap<usize, String>,
    /// Those that are not there, or were not ended.
    pub missing: Vec<usize>,
    /// The same trial twice.
    pub doubles: Vec<Damage>,
    /// Of another array, another Timewire, or none at all.
    pub foreign: Vec<Damage>,
    /// Records that are not what their station told of; their trials are missing.
    pub damaged: Vec<Damage>,
    /// The tasks that would do what failed or is missing.
    pub again: Vec<usize>,
    /// The command that runs them; none when there is nothing to do.
    pub command: Option<String>,
    #[serde(skip)]
    found: BTreeMap<usize, Found>,
}

#[derive(Clone, Debug)]
struct Found {
    place: PathBuf,
    end: End,
}

impl Survey {
    /// Whether all was done, and nothing has to be told.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.failed.is_empty() && self.is_clear()
    }

    /// Whether there is nothing that is not of this array, or twice.
    pub fn is_clear(&self) -> bool {
        self.doubles.is_empty() && self.foreign.is_empty() && self.damaged.is_empty()
    }
}

/// Looks what there is of an array in directories of shares.
///
/// **Errors**: one cannot be read.
pub fn survey(array: &Array, shards: &[PathBuf]) -> Result<Survey, DatapathError> {
    let mut looked = Looked::default();
    for directory in shards {
        // A note beside the shares is no share.
        for path in entries(directory)?.into_iter().filter(|path| path.is_dir()) {
            looked.shard(array, &path)?;
        }
    }
    let Looked { found, doubles, foreign, damaged } = looked;
    let head = &array.head;
    let (mut done, mut failed, mut missing) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut again = BTreeSet::new();
    for task in 0..head.tasks {
        for Trial { number, .. } in array.share(task)? {
            match found.get(number).map(|found| found.end.failures.first()) {
                Some(None) => {
                    done.push(*number);
                    continue;
                }
                Some(Some(failure)) => drop(failed.insert(*number, failure.to_string())),
                None => missing.push(*number),
            }
            again.insert(task);
        }
    }
    done.sort_unstable();
    missing.sort_unstable();
    let again: Vec<usize> = again.into_iter().collect();
    Ok(Survey {
        schema: "timewire.array-status/1",
        name: head.name.clone(),
        trials: head.trials,
        tasks: head.tasks,
        done,
        failed,
        missing,
        doubles,
        foreign,
        damaged,
        command: (!again.is_empty()).then(|| array.again(&again)),
        again,
        found,
    })
}

/// What is in a directory, in order; none where it does not exist.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, DatapathError> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(DatapathError::file("read", directory))?,
    };
    let mut paths = Vec::new();
    for entry in read {
        paths.push(entry.map_err(DatapathError::file("read", directory))?.path());
    }
    paths.sort();
    Ok(paths)
}

#[derive(Default)]
struct Looked {
    found: BTreeMap<usize, Found>,
    doubles: Vec<Damage>,
    foreign: Vec<Damage>,
    damaged: Vec<Damage>,
}

impl Looked {
    fn shard(&mut self, array: &Array, path: &Path) -> Result<(), DatapathError> {
        let shard = fs::read(path.join(SHARD)).ok();
        let shard = shard.and_then(|bytes| serde_json::from_slice::<Shard>(&bytes).ok());
        let why = match &shard {
            None => Some("it is no share of an array".to_owned()),
            Some(shard) if shard.timewire != VERSION => {
                Some(format!("it is of Timewire {}, and this is {VERSION}", shard.timewire))
            }
            Some(shard) if shard.array != array.identity => {
                Some("it is of another array".to_owned())
            }
            Some(shard) if shard.task >= array.head.tasks => {
                Some(format!("the array has no task {}", shard.task))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            self.foreign.push(Damage { path: path.to_owned(), why });
            return Ok(());
        }
        let share = shard.map(|shard| array.share(shard.task)).transpose()?;
        for trial in share.into_iter().flatten() {
            self.trial(trial, path.join(trial.name()));
        }
        Ok(())
    }

    fn trial(&mut self, trial: &Trial, place: PathBuf) {
        let end = match read_end(&place.join(END)) {
            Ok(None) => return,
            Ok(Some(end)) => end,
            Err(error) => {
                self.damaged.push(Damage { path: place.join(END), why: error.to_string() });
                return;
            }
        };
        if let Some(damage) = damage(&place, &end) {
            self.damaged.push(damage);
            return;
        }
        match self.found.get(&trial.number) {
            None => drop(self.found.insert(trial.number, Found { place, end })),
            Some(first) => {
                let why = format!("it is at {} too; remove one of both", first.place.display());
                self.doubles.push(Damage { path: place, why });
            }
        }
    }
}

/// The first record that is not as its station told.
fn damage(place: &Path, end: &End) -> Option<Damage> {
    for (station, told) in &end.stations {
        for record in &told.records {
            let path = record_path(place, station, &record.name);
            let found = File::open(&path).and_then(|mut file| crate::links::digest(&mut file));
            let why = match found {
                Ok(digest) if digest == record.digest => continue,
                Ok(_) => "it is not what the station recorded".to_owned(),
                Err(error) => error.to_string(),
            };
            return Some(Damage { path, why });
        }
    }
    None
}

/// Joins what was found into a run directory, which must be empty or not exist. It can be judged as
/// any other, and what is missing in it can be performed by a run with its hosts file.
///
/// **Errors**: a file cannot be copied.
pub fn merge(array: &Array, survey: &Survey, directory: &Path) -> Result<Summary, DatapathError> {
    reserve(directory)?;
    replace(&directory.join(TEXT), array.script.text.as_bytes())?;
    let mut ends = BTreeMap::new();
    for trial in &array.trials {
        let Some(found) = survey.found.get(&trial.number) else { continue };
        copy(&found.place, &directory.join(trial.name()))?;
        ends.insert(trial.number, found.end.clone());
    }
    let sweep = Sweep { schema: SWEEP.to_owned(), run: array.head.run.clone() };
    write_json(&directory.join("sweep.json"), &sweep)?;
    let summary = Summary::of(&array.script, directory, &array.trials, &ends);
    write_json(&directory.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Copies files and directories, and nothing that leads elsewhere.
fn copy(from: &Path, to: &Path) -> Result<(), DatapathError> {
    fs::create_dir(to).map_err(DatapathError::file("create", to))?;
    for path in entries(from)? {
        let Some(name) = path.file_name() else { continue };
        let kind =
            fs::symlink_metadata(&path).map_err(DatapathError::file("read", &path))?.file_type();
        let to = to.join(name);
        if kind.is_dir() {
            copy(&path, &to)?;
        } else if kind.is_file() {
            fs::copy(&path, &to).map_err(DatapathError::file("copy", &path))?;
        }
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One task of an array: its share of the trials, into a run directory of its own. However
//! often it is begun, killed and begun again, what is done stays, and what is not is done anew.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::controller::End;
use crate::protocol::{ExperimentId, Plan};
use serde::{Deserialize, Serialize};
use timewire_sys::namespace;

use super::super::{
    END, Progress, SCHEMA as SWEEP, Summary, Sweep, TEXT, Trial, read_end, run_plan, write_json,
};
use super::{Array, invalid, say};
use crate::controller::Connect;
use crate::station::ledger::replace;
use timewire_datapath::DatapathError;

pub(super) const SHARD: &str = "shard.json";
/// What was tried before, by trial and attempt.
const ASIDE: &str = "aside";

/// What a shard says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shard {
    pub schema: String,
    /// The identity of its array.
    pub array: String,
    /// Of which Timewire it is.
    pub timewire: String,
    pub task: usize,
}

impl Shard {
    pub fn of(array: &Array, task: usize) -> Shard {
        Shard {
            schema: "timewire.shard/1".to_owned(),
            array: array.identity.clone(),
            timewire: super::VERSION.to_owned(),
            task,
        }
    }
}

/// Where the share of a task is.
pub fn place(shards: &Path, task: usize) -> PathBuf {
    shards.join(format!("{task:04}"))
}

/// Performs what a task has to do and what is not done. `is_asked_to_end` ends the trial that
/// goes on, and begins no other; begun again, the task performs that one anew.
///
/// **Errors**: there is no such task; another process performs it; its directory is of another
/// array, or cannot be written.
pub fn perform(
    array: &Array,
    task: usize,
    shards: &Path,
    connect: &Arc<dyn Connect>,
    is_asked_to_end: &mut dyn FnMut() -> bool,
    tell: &mut dyn FnMut(Progress),
) -> Result<Summary, DatapathError> {
    let share = array.share(task)?;
    let directory = place(shards, task);
    fs::create_dir_all(&directory).map_err(DatapathError::file("create", &directory))?;
    let _lock = lock(&directory, task)?;
    let other = "it is of another array; remove the directory, or name another with --shards";
    say(&directory.join(SHARD), &Shard::of(array, task), other)?;
    let sweep = Sweep { schema: SWEEP.to_owned(), run: array.head.run.clone() };
    say(&directory.join("sweep.json"), &sweep, other)?;
    replace(&directory.join(TEXT), array.script.text.as_bytes())?;
    let mut ends = BTreeMap::new();
    let mut asked = false;
    for (index, trial) in share.iter().enumerate() {
        let place = directory.join(trial.name());
        let found = read_end(&place.join(END))?;
        if let Some(end) = &found
            && (end.failures.is_empty() || asked)
        {
            ends.insert(trial.number, end.clone());
            continue;
        }
        if asked {
            continue;
        }
        let values = trial.values.clone();
        tell(Progress::Trial { number: index + 1, of: share.len(), values });
        let mut is_asked = || {
            asked |= is_asked_to_end();
            asked
        };
        let attempt = Attempt { directory: &directory, trial, connect };
        let end = attempt.whole(found.is_some(), &mut is_asked, tell)?;
        ends.insert(trial.number, end);
    }
    let summary = Summary::of(&array.script, &directory, share, &ends);
    write_json(&directory.join("summary.json"), &summary)?;
    Ok(summary)
}

/// Engines may start a task twice.
fn lock(directory: &Path, task: usize) -> Result<File, DatapathError> {
    let path = directory.join("lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(&path);
    let file = file.map_err(DatapathError::file("open", &path))?;
    if !namespace::try_lock(&file).map_err(DatapathError::file("lock", &path))? {
        return Err(invalid(format!(
            "{}: another process performs task {task} now",
            directory.display()
        )));
    }
    Ok(file)
}

/// A trial that is not done.
struct Attempt<'a> {
    directory: &'a Path,
    trial: &'a Trial,
    connect: &'a Arc<dyn Connect>,
}

impl Attempt<'_> {
    /// Performs it; one that failed or was interrupted before is set aside.
    fn whole(
        &self,
        has_failed: bool,
        is_asked: &mut dyn FnMut() -> bool,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<End, DatapathError> {
        let place = self.directory.join(self.trial.name());
        let run_plan =
            |plan, is_asked: &mut dyn FnMut() -> bool, tell: &mut dyn FnMut(Progress)| {
                run_plan(&place, plan, self.connect, is_asked, tell)
            };
        if has_failed {
            self.set_aside(&place)?;
        } else if place.exists() {
            // It is brought to its end first, so that its stations are as before.
            let end = run_plan(self.plan()?, is_asked, tell)?;
            if end.failures.is_empty() || is_asked() {
                return Ok(end);
            }
            self.set_aside(&place)?;
        }
        run_plan(self.plan()?, is_asked, tell)
    }

    /// What stations do; agents know what was tried before by its name, and do it once.
    fn plan(&self) -> Result<Plan, DatapathError> {
        let mut plan = self.trial.plan.clone();
        match self.tried() {
            0 => {}
            tried => {
                let name = format!("{}-{}", plan.experiment, tried + 1);
                plan.experiment = ExperimentId::new(&name).map_err(invalid)?;
            }
        }
        Ok(plan)
    }

    fn tried(&self) -> usize {
        (1..).take_while(|attempt| self.aside(*attempt).exists()).count()
    }

    fn aside(&self, attempt: usize) -> PathBuf {
        self.directory.join(ASIDE).join(format!("{}-{attempt}", self.trial.name()))
    }

    fn set_aside(&self, place: &Path) -> Result<(), DatapathError> {
        let aside = self.directory.join(ASIDE);
        fs::create_dir_all(&aside).map_err(DatapathError::file("create", &aside))?;
        let to = self.aside(self.tried() + 1);
        fs::rename(place, &to).map_err(DatapathError::file("rename", place))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run that goes on in its directory: what it was asked for, which of its cases came to their
//! end, and what is cleared away of the others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_base::FileError;
use timewire_sys::namespace;

use super::{NETWORK, RunDir, RunMeta, SIMULATION};
use crate::{RunnerError, network};

/// What a run was asked for, in words of the command line; a part of `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The place: `lab`, `lab:uml` or `sim`; `hosts` for those of the `hosts.yaml` beside it.
    pub place: String,
    /// The options that say how it runs, such as `--quick`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Where the files are that a network names, by its name; of those that name some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, PathBuf>,
}

/// Where a run goes.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The run directory.
    pub directory: PathBuf,
    /// What was asked for; absent where nobody can ask for it again.
    pub request: Option<RunRequest>,
    /// Whether a run goes on in this directory; else it must not exist, or be empty.
    pub resumes: bool,
}

impl RunRequest {
    /// The place that is the hosts of the `hosts.yaml` in the run directory.
    pub const HOSTS: &str = "hosts";
}

impl Destination {
    /// A new run.
    pub fn new(directory: PathBuf) -> Destination {
        Destination { directory, request: None, resumes: false }
    }
}

/// Says that somebody runs in a directory, as long as it lives: what is there of cases that did not
/// come to their end is his.
#[derive(Debug)]
pub struct RunLock {
    _directory: File,
}

impl RunLock {
    /// **Errors**: somebody else has it.
    pub fn take(path: &Path) -> Result<RunLock, RunnerError> {
        let directory = File::open(path).map_err(RunnerError::file("open", path))?;
        // What a killed process has just started may hold it for a moment.
        for _ in 0..TRIES {
            if namespace::try_lock(&directory).map_err(RunnerError::file("lock", path))? {
                return Ok(RunLock { _directory: directory });
            }
            thread::sleep(PAUSE);
        }
        let why = "another process runs in it; nothing was run".to_owned();
        Err(FileError::content(path, why).into())
    }
}

const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What a simulation says of a request to end it; it is no longer so when it goes on.
const ENDED: (&str, &str) = ("simulation", "ended");

impl RunDir {
    /// Whether a case came to its end, with all that its summary is computed from.
    pub fn has_ended(&self, id: &str) -> bool {
        let path = self.case_path(id);
        let is_whole = !path.join(NETWORK).exists()
            || path.join(network::COMPILED).exists()
            || path.join(SIMULATION).exists();
        is_whole && self.case(id).is_ok_and(|case| case.ended)
    }

    /// Goes on with a run of these cases: what is there of those that did not come to their end is
    /// removed, as if they had not begun.
    ///
    /// **Errors**: another process runs in it; it has other cases; it came to its end; something
    /// cannot be removed.
    pub fn resume(path: &Path, cases: &[String]) -> Result<(RunDir, RunMeta), RunnerError> {
        let path = &fs::canonicalize(path).map_err(RunnerError::file("find", path))?;
        let mut directory = RunDir::open(path)?;
        directory._lock = Some(Arc::new(RunLock::take(path)?));
        let mut meta = directory.meta()?;
        if meta.cases != cases {
            let why = format!("its cases are {}, not {}", meta.cases.join(", "), cases.join(", "));
            return Err(FileError::content(path, why).into());
        }
        directory.check_unfinished()?;
        remove(&directory.path().join("end.json"))?;
        for id in meta.cases.iter().filter(|id| !directory.has_ended(id)) {
            directory.clear(id)?;
        }
        for name in &meta.scenarios {
            remove(&directory.agents_path(&format!("{name}/hosts")))?;
        }
        meta.environment.retain(|fact| (fact.area.as_str(), fact.name.as_str()) != ENDED);
        directory.write_meta(&meta)?;
        Ok((directory, meta))
    }

    /// Whether something is left to do.
    ///
    /// **Errors**: the run came to its end.
    pub fn check_unfinished(&self) -> Result<(), RunnerError> {
        let meta = self.meta()?;
        let has_end = self.path().join("end.json").exists();
        if has_end && meta.cases.iter().all(|id| self.has_ended(id)) {
            let why = "all its cases came to their end, so there is nothing to go on with; \
                       `timewire report` shows it";
            return Err(FileError::content(self.path(), why).into());
        }
        Ok(())
    }

    /// The directory of the files that a scenario's programs need.
    pub fn files_path(&self, scenario: &str) -> PathBuf {
        self.path.join("files").join(scenario)
    }

    /// What agents kept of a case.
    pub fn agents_path(&self, id: &str) -> PathBuf {
        self.path().join("agents").join(id.replace('/', "."))
    }

    /// Removes what there is of a case, but what it was told before it began.
    fn clear(&self, id: &str) -> Result<(), RunnerError> {
        remove(&self.agents_path(id))?;
        let path = self.case_path(id);
        let told = [NETWORK, network::COMPILED];
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(RunnerError::file("read", &path))?,
        };
        for entry in entries {
            let entry = entry.map_err(RunnerError::file("read", &path))?;
            if !told.iter().any(|name| entry.file_name() == *name) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Removes a file or a directory with all that is in it; nothing where there is none.
fn remove(path: &Path) -> Result<(), RunnerError> {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
    let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(RunnerError::file("remove", path)),
    }
}

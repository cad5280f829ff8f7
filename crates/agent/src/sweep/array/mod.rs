// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment as an array of tasks for an engine that the user has: job arrays of Slurm,
//! Indexed Jobs of Kubernetes. A directory has all that a task needs; each task performs its share
//! into a directory of its own, and the shares are joined to what one run would have left.
//!
//! Not here: when and where a task runs. The engine decides that, and is never called from here.

mod kubernetes;
mod merge;
mod slurm;
mod task;
mod yaml;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use timewire_base::FileError;
use timewire_model::scenario::hosts_file::{AgentAddress, HostsFile};
use timewire_model::scenario::orchestrated::Orchestrated;

use super::compile::{self, invalid};
use super::reach::no_host;
use super::{Script, TEXT, Trial, new_run, trials};
use crate::station::ledger::replace;
use timewire_datapath::DatapathError;

pub use kubernetes::Kubernetes;
pub use merge::{Damage, Survey, merge, survey};
pub use slurm::Slurm;
pub use task::{perform, place};

/// Of which Timewire arrays and shares are: results of another may be others.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const SCHEMA: &str = "timewire.array/1";
const ARRAY: &str = "array.json";
const POINTS: &str = "points.json";
const HOSTS: &str = "hosts.yaml";
const FILES: &str = "files";
/// Slurm's largest index is 1000 unless its administrator chose another.
const MAX_BY_DEFAULT: usize = 1_000;

/// Whose tasks these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Slurm.
    Slurm,
    /// Kubernetes.
    Kubernetes,
}

/// What `array.json` says: everything on which the results depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    schema: String,
    /// Of which Timewire it is.
    timewire: String,
    /// The name of the experiment.
    pub name: String,
    /// Tells its trials from those of any other array and run.
    run: String,
    /// Whose tasks these are.
    pub engine: Engine,
    /// How many trials there are.
    pub trials: usize,
    /// How many tasks perform them.
    pub tasks: usize,
    /// The SHA-256 of every file that a task reads.
    digests: BTreeMap<String, String>,
}

/// What an array is made for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A job array.
    Slurm(Slurm),
    /// An Indexed Job.
    Kubernetes(Kubernetes),
}

/// How an experiment is divided.
#[derive(Clone, Debug)]
pub struct Spec {
    /// So many tasks; none for one of each trial, up to 1000.
    pub tasks: Option<usize>,
    /// So many of them at the same time at most.
    pub at_once: Option<usize>,
    /// For which engine.
    pub target: Target,
}

/// An array, read and found to be whole.
#[derive(Clone, Debug)]
pub struct Array {
    directory: PathBuf,
    /// What its head says.
    pub head: Head,
    /// The SHA-256 of its head, and so what it is known by.
    pub identity: String,
    /// The experiment.
    pub script: Script,
    /// Where its stations are.
    pub hosts: HostsFile,
    /// All trials, in their order.
    pub trials: Vec<Trial>,
}

/// An array whose directory is not made yet.
#[derive(Debug)]
pub struct Prepared {
    /// What its head will say.
    pub head: Head,
    /// The head as it is written.
    text: String,
    inputs: BTreeMap<String, Vec<u8>>,
    scripts: Vec<EngineFile>,
}

/// Divides an experiment into tasks; nothing is written. Without a hosts file every station is the
/// machine on which a task runs.
///
/// **Errors**: the experiment cannot be performed as a whole; its stations cannot be shared by
/// tasks; a request cannot be.
pub fn prepare(
    script: &Script,
    hosts: Option<(&HostsFile, &str)>,
    spec: &Spec,
) -> Result<Prepared, DatapathError> {
    let run = new_run();
    let all = trials(script, &run)?;
    let tasks = spec.tasks.unwrap_or(MAX_BY_DEFAULT).min(all.len());
    let at_once = spec.at_once.unwrap_or(tasks);
    if tasks == 0 || at_once == 0 {
        return Err(invalid("no tasks would be run; 1 or more would be right"));
    }
    let hosts = match hosts {
        Some((hosts, text)) => {
            can_be_shared(&script.file, hosts, at_once)?;
            text.to_owned()
        }
        None => HostsFile::text_of(
            script.file.stations.iter().map(|it| (&it.name, &AgentAddress::Local)),
        ),
    };
    let inputs = inputs(script, hosts, &all, tasks)?;
    let head = Head {
        schema: SCHEMA.to_owned(),
        timewire: VERSION.to_owned(),
        name: script.file.name.to_string(),
        run,
        engine: match &spec.target {
            Target::Slurm(_) => Engine::Slurm,
            Target::Kubernetes(_) => Engine::Kubernetes,
        },
        trials: all.len(),
        tasks,
        digests: inputs.iter().map(|(name, bytes)| (name.clone(), digest(bytes))).collect(),
    };
    let text = serde_json::to_string_pretty(&head).map_err(invalid)? + "\n";
    let scripts = match &spec.target {
        Target::Slurm(slurm) => slurm.scripts(&head, at_once)?,
        Target::Kubernetes(kubernetes) => {
            let identity = digest(text.as_bytes());
            let mut seen = inputs.clone();
            seen.insert(ARRAY.to_owned(), text.clone().into_bytes());
            // It is for people, and large.
            seen.remove(POINTS);
            vec![kubernetes.job(&head, &identity, at_once, &seen)?]
        }
    };
    Ok(Prepared { head, text, inputs, scripts })
}

impl Prepared {
    /// Makes the directory of the array, which must be empty or not exist.
    ///
    /// **Errors**: the directory cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Array, DatapathError> {
        reserve(directory)?;
        for (name, bytes) in &self.inputs {
            write(directory, name, bytes, false)?;
        }
        for script in &self.scripts {
            write(directory, script.name, script.text.as_bytes(), script.is_program)?;
        }
        // Last: without it this is no array.
        write(directory, ARRAY, self.text.as_bytes(), false)?;
        open(directory)
    }
}

/// The files that tasks read, and the one for people.
fn inputs(
    script: &Script,
    hosts: String,
    all: &[Trial],
    tasks: usize,
) -> Result<BTreeMap<String, Vec<u8>>, DatapathError> {
    let mut inputs = BTreeMap::from([
        (TEXT.to_owned(), script.text.as_bytes().to_vec()),
        (HOSTS.to_owned(), hosts.into_bytes()),
        (POINTS.to_owned(), points(script, all, tasks)?.into_bytes()),
    ]);
    let files = compile::files(script)?;
    inputs.extend(files.into_iter().map(|(name, bytes)| (format!("{FILES}/{name}"), bytes)));
    Ok(inputs)
}

fn digest(mut bytes: &[u8]) -> String {
    crate::links::digest(&mut bytes).expect("invariant: bytes in memory can be read")
}

/// A file for the engine.
#[derive(Debug)]
struct EngineFile {
    name: &'static str,
    text: String,
    is_program: bool,
}

fn write(
    directory: &Path,
    name: &str,
    bytes: &[u8],
    is_program: bool,
) -> Result<(), DatapathError> {
    let path = directory.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(DatapathError::file("create", parent))?;
    }
    fs::write(&path, bytes).map_err(DatapathError::file("write", &path))?;
    if is_program {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, mode)
            .map_err(DatapathError::file("make a program of", &path))?;
    }
    Ok(())
}

/// Makes a directory that is empty.
fn reserve(directory: &Path) -> Result<(), DatapathError> {
    fs::create_dir_all(directory).map_err(DatapathError::file("create", directory))?;
    let mut entries = fs::read_dir(directory).map_err(DatapathError::file("read", directory))?;
    if entries.next().is_some() {
        let why = "it is not empty; name a directory that is, or that does not exist".to_owned();
        return Err(FileError::content(directory, why).into());
    }
    Ok(())
}

/// Two tasks at the same time would disturb each other on a station that both use.
fn can_be_shared(
    file: &Orchestrated,
    hosts: &HostsFile,
    at_once: usize,
) -> Result<(), DatapathError> {
    for station in &file.stations {
        let agent = hosts.agent(&station.name).ok_or_else(|| no_host(&station.name))?;
        let is_one = matches!(agent, AgentAddress::Tls(_) | AgentAddress::Ssh(_));
        if is_one && at_once > 1 {
            return Err(invalid(format!(
                "station `{}` is {agent}, the same for all tasks, and {at_once} of them would \
                 use it at the same time: give tasks stations of their own (`local`), or let one \
                 run at a time with --at-once 1",
                station.name
            )));
        }
    }
    Ok(())
}

/// Which trials a task does, as places in their order: as even as can be.
pub fn share(trials: usize, tasks: usize, task: usize) -> Range<usize> {
    let at = |task: usize| task * trials / tasks.max(1);
    at(task)..at(task + 1)
}

/// What the indices stand for, for people and other programs.
fn points(script: &Script, all: &[Trial], tasks: usize) -> Result<String, DatapathError> {
    let mut rows = Vec::new();
    for task in 0..tasks {
        for it in &all[share(all.len(), tasks, task)] {
            rows.push(json!({
                "task": task, "number": it.number, "repeat": it.repeat, "values": it.values,
            }));
        }
    }
    let all: Json = json!({
        "schema": "timewire.array-points/1", "name": script.file.name.as_str(), "points": rows,
    });
    Ok(serde_json::to_string_pretty(&all).map_err(invalid)? + "\n")
}

/// Opens an array: what a task would read is what it was made of.
///
/// **Errors**: it is no array; it is of another Timewire; a file was changed.
pub fn open(directory: &Path) -> Result<Array, DatapathError> {
    let path = directory.join(ARRAY);
    let wrong = |path: &Path, why: String| DatapathError::from(FileError::content(path, why));
    let read = |path: &Path| fs::read(path).map_err(DatapathError::file("read", path));
    let bytes = read(&path)?;
    let version = |key: &str| {
        let all: Json = serde_json::from_slice(&bytes).ok()?;
        Some(all.get(key)?.as_str()?.to_owned())
    };
    if version("schema").as_deref() != Some(SCHEMA) {
        let schema = version("schema").unwrap_or_else(|| "missing".to_owned());
        return Err(wrong(&path, format!("its schema is {schema}, not {SCHEMA}")));
    }
    if version("timewire").as_deref() != Some(VERSION) {
        let other = version("timewire").unwrap_or_else(|| "unknown".to_owned());
        return Err(wrong(
            &path,
            format!(
                "the array is of Timewire {other}, and this is {VERSION}: let all tasks and the \
                 merge be done by the same, or make the array anew"
            ),
        ));
    }
    let head: Head =
        serde_json::from_slice(&bytes).map_err(|error| wrong(&path, error.to_string()))?;
    for (name, expected) in &head.digests {
        // Only people read it, and engines do not carry it to where tasks run.
        let path = directory.join(name);
        if name == POINTS && !path.exists() {
            continue;
        }
        if digest(&read(&path)?) != *expected {
            let why = "it is not what the array was made with: make the array anew".to_owned();
            return Err(wrong(&path, why));
        }
    }
    let text = |name: &str| {
        let path = directory.join(name);
        String::from_utf8(read(&path)?).map_err(|error| wrong(&path, error.to_string()))
    };
    let (experiment, hosts) = (text(TEXT)?, text(HOSTS)?);
    let file = Orchestrated::parse(TEXT, &experiment).map_err(invalid)?;
    let hosts = HostsFile::parse(HOSTS, &hosts).map_err(invalid)?;
    let script = Script { text: experiment, ..Script::new(file, directory.join(FILES)) };
    let trials = trials(&script, &head.run)?;
    let points = points(&script, &trials, head.tasks)?;
    let expected = head.digests.get(POINTS);
    if expected != Some(&digest(points.as_bytes())) || head.trials != trials.len() {
        let why = "this Timewire finds other trials: make the array anew".to_owned();
        return Err(wrong(&path, why));
    }
    let identity = digest(&bytes);
    Ok(Array { directory: directory.to_owned(), head, identity, script, hosts, trials })
}

impl Engine {
    /// The file in the directory of an array that submits its tasks.
    pub fn submits(self) -> &'static str {
        match self {
            Engine::Slurm => slurm::SUBMIT,
            Engine::Kubernetes => kubernetes::JOB,
        }
    }
}

impl Array {
    /// Whether this directory is one of an array, whole or not.
    pub fn is_at(directory: &Path) -> bool {
        directory.join(ARRAY).exists()
    }

    /// Where shares are, unless the user says otherwise.
    pub fn shards(&self) -> PathBuf {
        self.directory.join("shards")
    }

    /// What a task performs.
    ///
    /// **Errors**: there is no such task.
    pub fn share(&self, task: usize) -> Result<&[Trial], DatapathError> {
        let Head { trials, tasks, .. } = self.head;
        if task >= tasks {
            return Err(invalid(format!(
                "there is no task {task}: the array has the tasks 0 to {}",
                tasks.saturating_sub(1)
            )));
        }
        Ok(&self.trials[share(trials, tasks, task)])
    }

    /// The command that runs these tasks again.
    pub fn again(&self, tasks: &[usize]) -> String {
        match self.head.engine {
            Engine::Slurm => slurm::again(&self.directory, tasks),
            Engine::Kubernetes => kubernetes::again(&self.directory),
        }
    }
}

/// Replaces what a shell could take for more than a word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a file that says what it belongs to, or finds that it says so.
fn say(path: &Path, value: &impl Serialize, other: &str) -> Result<(), DatapathError> {
    let bytes = serde_json::to_string_pretty(value).map_err(invalid)? + "\n";
    match fs::read(path) {
        Ok(found) if found == bytes.as_bytes() => Ok(()),
        Ok(_) => Err(FileError::content(path, other).into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            replace(path, bytes.as_bytes())
        }
        Err(error) => Err(DatapathError::file("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;

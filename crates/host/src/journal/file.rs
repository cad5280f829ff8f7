// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of an undo log: lines of JSON, each on disk before what it tells of is done.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use timewire_sys::namespace::{self, Process};

use super::inverse::{self, Inverse, Kind};
use super::place::{boot_id, own_netns};
use crate::HostError;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    schema: String,
    /// What for: `the laboratory of 4 stations`.
    pub title: String,
    /// Which boot of the host it is about.
    pub boot: String,
    /// The number of its owner's network namespace, which another can have when this one is gone.
    pub netns: u64,
    /// The number that no other has, where the kernel tells it.
    #[serde(default)]
    cookie: Option<u64>,
    pid: u32,
    start_ticks: u64,
}

impl Head {
    fn here(title: &str) -> Result<Head, HostError> {
        let owner = Process::this().map_err(|e| HostError::kernel("read /proc/self/stat", e))?;
        Ok(Head {
            schema: SCHEMA.to_owned(),
            title: title.to_owned(),
            boot: boot_id()?,
            netns: own_netns()?,
            cookie: own_cookie()?,
            pid: owner.pid,
            start_ticks: owner.start_ticks,
        })
    }

    /// The process that changes what is in the log.
    pub fn owner(&self) -> Process {
        Process { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Whether what it is about is gone: the host was started again, or the network namespace of
    /// the calling thread is another one of the same number.
    pub fn is_gone(&self) -> Result<bool, HostError> {
        let is_another = self.cookie.is_some() && self.cookie != own_cookie()?;
        Ok(self.boot != boot_id()? || is_another)
    }
}

fn own_cookie() -> Result<Option<u64>, HostError> {
    namespace::network_cookie().map_err(|e| HostError::kernel("ask for the network namespace", e))
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Journal(Head),
    /// A change that is made, or about to be.
    Open { id: u64, undo: Json },
    /// What more there is to know of it.
    Note { id: u64, note: Json },
    /// It is undone, or was not made after all.
    Closed { id: u64 },
}

/// An undo log that is being written.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub path: PathBuf,
    file: File,
}

impl LogFile {
    /// Starts one.
    ///
    /// **Errors**: there is one already, or it cannot be written.
    pub fn create(path: PathBuf, title: &str) -> Result<LogFile, HostError> {
        let head = Head::here(title)?;
        let created = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let file = created.map_err(|e| HostError::file("create", &path, e))?;
        let log = LogFile { path, file };
        let begin = || {
            log.append(&Line::Journal(head))?;
            // The name of the file must be on disk as well.
            let dir = log.path.parent().unwrap_or(Path::new("."));
            let synced = File::open(dir).and_then(|dir| dir.sync_all());
            synced.map_err(|e| HostError::file("sync", dir, e))
        };
        begin().inspect_err(|_| drop(log.remove()))?;
        Ok(log)
    }

    /// Goes on with one that was found.
    ///
    /// **Errors**: it cannot be written.
    pub fn open(path: &Path) -> Result<LogFile, HostError> {
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|e| HostError::file("open", path, e))?;
        // A line that was cut short must not spoil the next one.
        let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        if complete < text.len() {
            let length = u64::try_from(complete).unwrap_or(0);
            file.set_len(length).map_err(|e| HostError::file("write", path, e))?;
        }
        Ok(LogFile { path: path.to_path_buf(), file })
    }

    /// Appends a line; it is on disk when this returns.
    pub fn append(&self, line: &Line) -> Result<(), HostError> {
        let mut text = serde_json::to_string(line).expect("invariant: a line has only text keys");
        text.push('\n');
        let error = |e| HostError::file("write", &self.path, e);
        let length = self.file.metadata().map_err(error)?.len();
        let mut file = &self.file;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line must not spoil the next one.
            let _ = self.file.set_len(length);
        }
        written.map_err(error)
    }

    /// Whether it is still the file of this name: whoever carries a log out removes it.
    pub fn is_current(&self) -> bool {
        is_current(&self.file, &self.path).unwrap_or(false)
    }

    /// Removes it.
    ///
    /// **Errors**: it stays.
    pub fn remove(&self) -> Result<(), HostError> {
        fs::remove_file(&self.path).map_err(|e| HostError::file("remove", &self.path, e))
    }
}

/// Whether a file is the one of this name.
pub(crate) fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|now| now.ino() == ours.ino() && now.dev() == ours.dev()))
}

/// What a log says.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// None when its owner was killed before it had written anything.
    pub head: Option<Head>,
    /// What is to be undone.
    pub open: BTreeMap<u64, Box<dyn Inverse>>,
}

/// Reads a log.
///
/// **Errors**: it cannot be read, or has a line that is none or is of none of these kinds.
pub(crate) fn read(path: &Path, kinds: &[Kind]) -> Result<Content, HostError> {
    let mut content = Content::default();
    lines(path, |line| {
        match line {
            Line::Journal(head) => content.head = Some(head),
            Line::Open { id, undo } => {
                let undo = inverse::read(undo, kinds).map_err(|e| e.to_string())?;
                content.open.insert(id, undo);
            }
            Line::Note { id, note } => {
                let change = content.open.get_mut(&id).ok_or("a note of no change")?;
                change.take_note(note).map_err(|e| e.to_string())?;
            }
            Line::Closed { id } => drop(content.open.remove(&id)),
        }
        Ok(true)
    })?;
    Ok(content)
}

/// Reads the first line of a log; `None` when it has none yet.
pub(crate) fn read_head(path: &Path) -> Result<Option<Head>, HostError> {
    let mut found = None;
    lines(path, |line| {
        if let Line::Journal(head) = line {
            found = Some(head);
        }
        Ok(false)
    })?;
    Ok(found)
}

/// Calls for each line until it says false.
fn lines(path: &Path, mut each: impl FnMut(Line) -> Result<bool, String>) -> Result<(), HostError> {
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    // A last line without its end was being written when the owner died: its change was not made.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in complete.lines().enumerate() {
        let damaged = |why: String| HostError::Journal { path: path.into(), line: index + 1, why };
        let line: Line = serde_json::from_str(line).map_err(|e| damaged(e.to_string()))?;
        match &line {
            Line::Journal(Head { schema, .. }) if schema != SCHEMA => {
                return Err(damaged(format!("it is of version `{schema}`, not `{SCHEMA}`")));
            }
            Line::Journal(_) if index == 0 => {}
            Line::Journal(_) => return Err(damaged("a second head".to_owned())),
            _ if index == 0 => return Err(damaged("it has no head".to_owned())),
            _ => {}
        }
        if !each(line).map_err(damaged)? {
            break;
        }
    }
    Ok(())
}

const SCHEMA: &str = "timewire.journal/1";

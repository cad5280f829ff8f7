// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where transactions are recorded: one record for each network namespace, JSON lines that are on
//! disk before what they tell is done; and the lock that keeps two transactions apart.
//!
//! Not here: what an entry means (`transaction`), who carries a record out (`keeper`).

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timewire_sys::namespace::{self, Process};

use super::keeper::Title;
use super::setting::Difference;
use super::transaction::{Entry, Log, Story};
use crate::HostError;
use crate::journal::{boot_id, own_netns, runtime_dir};

/// The directory of records and the network namespace they are about.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    netns: u64,
    cookie: Option<u64>,
    boot: String,
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The format of the file.
    pub schema: String,
    /// The name of what is applied.
    pub name: String,
    /// The file it came from.
    pub file: String,
    /// Which boot of the host it is about.
    pub boot: String,
    /// The number of the network namespace, which another can have when this one is gone.
    pub netns: u64,
    /// The number that no other has, where the kernel tells it.
    #[serde(default)]
    pub cookie: Option<u64>,
    /// The process that applied it.
    pub pid: u32,
    /// When that started, clock ticks since boot.
    pub start_ticks: u64,
    /// What the file wishes besides, and what starts it.
    pub by_hand: Vec<String>,
    /// Whether it is taken back when that process ends.
    #[serde(default)]
    pub held: bool,
}

impl Head {
    /// The process that applied it.
    pub fn owner(&self) -> Process {
        Process { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first.
    Record(Head),
    /// All others.
    Entry(Entry),
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// What it is about.
    pub head: Head,
    /// What happened.
    pub story: Story,
    /// Whether anything was written after the head.
    pub has_begun: bool,
}

/// How the last transaction ended that is not in force any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// What was applied.
    pub name: String,
    /// How it ended, in words.
    pub how: String,
    /// Seconds since 1970.
    pub at: u64,
    /// What is not as it was.
    pub left: Vec<Difference>,
}

impl Store {
    /// The store of the calling thread's network namespace: `$TIMEWIRE_STATE_DIR`, or
    /// `/var/lib/timewire`; for an ordinary user, and where that cannot be written, the directory
    /// that lives as long as the host is up.
    ///
    /// **Errors**: no directory can be used, or it is someone else's.
    pub fn open() -> Result<Store, HostError> {
        let (netns, boot) = (own_netns()?, boot_id()?);
        let cookie = namespace::network_cookie()
            .map_err(|e| HostError::kernel("ask for the network namespace", e))?;
        let dir = match env::var_os("TIMEWIRE_STATE_DIR").filter(|dir| !dir.is_empty()) {
            Some(dir) => make(PathBuf::from(dir))?,
            None if namespace::effective_user() == 0 => {
                match writable(PathBuf::from("/var/lib/timewire")) {
                    // The second is what an ordinary user's machine of the laboratory says: that
                    // user is root in it, and the files are those of the host.
                    Err(HostError::File { source, .. })
                        if matches!(
                            source.kind(),
                            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                        ) =>
                    {
                        make(runtime_dir()?)?
                    }
                    result => result?,
                }
            }
            None => make(runtime_dir()?)?,
        };
        let dir = make(dir.join("applied"))?;
        Ok(Store { dir, netns, cookie, boot })
    }

    fn path(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{}{what}", self.netns))
    }

    /// The record's file, whether or not it is there.
    pub fn record_path(&self) -> PathBuf {
        self.path(".jsonl")
    }

    /// What the process that keeps a record says.
    pub fn log_path(&self) -> PathBuf {
        self.path(".log")
    }

    /// Takes the lock.
    ///
    /// **Errors**: another process has it, and which.
    pub fn lock(&self) -> Result<Lock, HostError> {
        let path = self.path(".lock");
        let error = |what| move |e| HostError::file(what, self.path(".lock"), e);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(error("open"))?;
        let mut patience = PATIENCE;
        while !namespace::try_lock(&file).map_err(error("lock"))? {
            let mut text = String::new();
            file.rewind().map_err(error("read"))?;
            file.read_to_string(&mut text).map_err(error("read"))?;
            let pid = text.trim().parse().unwrap_or(0);
            // A tool that dies with its process holds the lock a moment longer.
            let is_alive = Process::of(pid).is_ok_and(Process::is_alive);
            if is_alive || patience == 0 {
                return Err(HostError::Busy { pid });
            }
            patience -= 1;
            thread::sleep(MOMENT);
        }
        // The number is only for a message: a full disk must not keep a host from being put back.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Lock { _file: file })
    }

    /// The record of this namespace; `None` when nothing is applied.
    ///
    /// **Errors**: it cannot be read, or is no record.
    pub fn load(&self) -> Result<Option<Saved>, HostError> {
        let own = self.record_path();
        if own.exists() {
            return load(&own).map(Some);
        }
        // The namespace of the host itself can have another number after a reboot, and no other
        // namespace outlives one.
        let first = fs::metadata("/proc/1/ns/net").is_ok_and(|file| file.ino() == self.netns);
        if !first {
            return Ok(None);
        }
        let listing = fs::read_dir(&self.dir).map_err(|e| HostError::file("list", &self.dir, e))?;
        let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")) {
            // A damaged record of another namespace says nothing about this one.
            let Ok(saved) = load(path) else { continue };
            if saved.head.boot != self.boot {
                return Ok(Some(saved));
            }
        }
        Ok(None)
    }

    /// Whether what a record is about is gone: the host was started again, or the namespace is
    /// another one of the same number.
    pub fn is_gone(&self, saved: &Saved) -> bool {
        let another = |cookie: u64| self.cookie.is_some_and(|own| own != cookie);
        saved.head.boot != self.boot || saved.head.cookie.is_some_and(another)
    }

    /// Whether what was applied is taken back unless it is confirmed.
    pub fn waits(&self, saved: &Saved) -> bool {
        let story = &saved.story;
        story.confirm_by_ns.is_some() && story.undoing.is_none() && !self.is_gone(saved)
    }

    /// Starts a record.
    ///
    /// **Errors**: there is one already, or it cannot be written.
    pub fn begin(&self, title: &Title<'_>, held: bool) -> Result<Record, HostError> {
        let owner = Process::this().map_err(|e| HostError::kernel("read /proc/self/stat", e))?;
        let head = Head {
            schema: SCHEMA.to_owned(),
            name: title.name.to_owned(),
            file: title.file.to_owned(),
            boot: self.boot.clone(),
            netns: self.netns,
            cookie: self.cookie,
            pid: owner.pid,
            start_ticks: owner.start_ticks,
            by_hand: title.by_hand.to_vec(),
            held,
        };
        // A record without its head would be none, and in the way of all others: it gets its name
        // when it has one.
        let (path, new) = (self.record_path(), self.path(".new"));
        let created =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let file = created.map_err(|e| HostError::file("create", &new, e))?;
        Record { path: new.clone(), file }.line(&Line::Record(head))?;
        // Unlike a renaming this fails when there is a record.
        fs::hard_link(&new, &path).map_err(|e| HostError::file("create", &path, e))?;
        fs::remove_file(&new).map_err(|e| HostError::file("remove", &new, e))?;
        let record = Record::reopen(&path)?;
        // The name of the file must be on disk as well.
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|e| HostError::file("sync", &self.dir, e))?;
        Ok(record)
    }

    /// Says how the last transaction ended.
    pub fn end(&self, ending: &Ending) {
        let text = serde_json::to_string(ending).expect("invariant: it has only text keys");
        // Nobody depends on it.
        let _ = fs::write(self.path(".last"), text + "\n");
    }

    /// How the last transaction ended, when that is known.
    pub fn ending(&self) -> Option<Ending> {
        serde_json::from_str(&fs::read_to_string(self.path(".last")).ok()?).ok()
    }
}

/// The lock of a store, as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A record that is being written.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Goes on with a record that was found.
    ///
    /// **Errors**: it cannot be written.
    pub fn reopen(path: &Path) -> Result<Record, HostError> {
        let file = OpenOptions::new().append(true).open(path);
        let mut file = file.map_err(|e| HostError::file("open", path, e))?;
        // A line that was cut short must not spoil the next one.
        let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
        if !text.is_empty() && !text.ends_with('\n') {
            let complete = text.rfind('\n').map_or(0, |end| end + 1);
            let length = u64::try_from(complete).unwrap_or(0);
            file.set_len(length).map_err(|e| HostError::file("write", path, e))?;
            file.flush().map_err(|e| HostError::file("write", path, e))?;
        }
        Ok(Record { path: path.to_path_buf(), file })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    ///
    /// **Errors**: the file stays.
    pub fn remove(self) -> Result<(), HostError> {
        fs::remove_file(&self.path).map_err(|e| HostError::file("remove", &self.path, e))
    }

    fn line(&mut self, line: &Line) -> Result<(), HostError> {
        let mut text = serde_json::to_string(line).expect("invariant: a line has only text keys");
        text.push('\n');
        let error = |e| HostError::file("write", &self.path, e);
        let length = self.file.metadata().map_err(error)?.len();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // Half a line must not spoil the next one.
            let _ = self.file.set_len(length);
        }
        written.map_err(error)
    }
}

impl Log for Record {
    fn append(&mut self, entry: &Entry) -> Result<(), HostError> {
        self.line(&Line::Entry(entry.clone()))
    }
}

/// Reads a record.
///
/// **Errors**: it cannot be read, or is damaged before its last line.
pub fn load(path: &Path) -> Result<Saved, HostError> {
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    // A last line without its end was being written when its owner died: what it tells of was not
    // done.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let (mut head, mut story, mut has_begun) = (None, Story::default(), false);
    for (index, line) in complete.lines().enumerate() {
        let damaged = |why: String| HostError::Journal { path: path.into(), line: index + 1, why };
        match serde_json::from_str(line).map_err(|e| damaged(e.to_string()))? {
            Line::Record(found) if found.schema != SCHEMA => {
                return Err(damaged(format!(
                    "it is of version `{}`, not `{SCHEMA}`",
                    found.schema
                )));
            }
            Line::Record(found) => head = Some(found),
            Line::Entry(entry) => {
                has_begun = true;
                story.take(entry);
            }
        }
    }
    let missing =
        || HostError::Journal { path: path.into(), line: 1, why: "it has no head".into() };
    let head = head.ok_or_else(missing)?;
    Ok(Saved { path: path.to_path_buf(), head, story, has_begun })
}

/// Makes a directory and tries whether files can be made in it: it can be there, and read only.
fn writable(dir: PathBuf) -> Result<PathBuf, HostError> {
    let dir = make(dir)?;
    let path = dir.join(format!(".{}", std::process::id()));
    let error = |e| HostError::file("write", &path, e);
    OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(error)?;
    fs::remove_file(&path).map_err(error)?;
    Ok(dir)
}

/// A directory that only its owner can change.
fn make(dir: PathBuf) -> Result<PathBuf, HostError> {
    match DirBuilder::new().mode(0o700).recursive(true).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(HostError::file("create", &dir, error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&dir).map_err(|e| HostError::file("use", &dir, e))?;
    let (owner, user) = (found.uid(), namespace::effective_user());
    if owner != user || !found.is_dir() {
        return Err(HostError::ForeignDir { path: dir, owner, user });
    }
    Ok(dir)
}

const SCHEMA: &str = "timewire.applied/1";
/// How often the lock of a dead process is tried.
const PATIENCE: u32 = 200;
/// How long between two attempts.
const MOMENT: Duration = Duration::from_millis(5);

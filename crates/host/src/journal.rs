// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undo journal: what takes each change back, on disk before the change is made. One journal
//! belongs to one process, which its file name says; its lines are JSON, appended and synced.
//!
//! The normal end is [`Journal::finish`]; dropping a journal does the same. When the process is
//! killed, its guardian does it (`guardian`); when that is killed too, [`recover`] of the next
//! start.
//!
//! Not here: what an undo does (`Undo`), the process that waits (`guardian`).

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use timewire_sys::namespace::{self, Namespace, Process};

use crate::guardian::Guardian;
use crate::{HostError, Undo};

/// The journal of this process. Share it behind an `Arc`.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    next: u64,
    open: BTreeMap<u64, Undo>,
    /// Taken when the journal is finished.
    guardian: Option<Guardian>,
}

/// One entry of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(u64);

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first line.
    Journal { schema: String, title: String, boot: String, netns: u64 },
    /// A change that is made, or about to be.
    Open { id: u64, undo: Undo },
    /// It is undone, or was not made after all.
    Closed { id: u64 },
}

impl Journal {
    /// Starts a journal and its guardian. The title says what for: `the laboratory of 4 stations`.
    ///
    /// The guardian stays in the network namespace of the calling thread and keeps that alive; so
    /// call this outside the namespaces that are to go away.
    ///
    /// **Errors**: no directory for it, or the guardian does not start. Nothing is left then.
    pub fn begin(title: &str) -> Result<Journal, HostError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = journal_dir()?;
        let owner = Process::this().map_err(|e| HostError::kernel("read /proc/self/stat", e))?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{}-{}-{count}.jsonl", owner.pid, owner.start_ticks));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| HostError::file("create", &path, e))?;
        let (schema, boot, netns) = (SCHEMA.to_owned(), boot_id()?, own_netns()?);
        let line = Line::Journal { schema, title: title.to_owned(), boot, netns };
        let started = append(&file, &path, &line).and_then(|()| Guardian::start(&path));
        let guardian = match started {
            Ok(guardian) => Some(guardian),
            Err(error) => {
                let _ = fs::remove_file(&path);
                return Err(error);
            }
        };
        let state = State { file, next: 1, open: BTreeMap::new(), guardian };
        Ok(Journal { path, state: Mutex::new(state) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records how to undo a change that is made next. It is on disk when this returns.
    ///
    /// **Errors**: the file cannot be written; do not make the change then.
    pub fn record(&self, undo: Undo) -> Result<EntryId, HostError> {
        let mut state = self.state();
        let id = state.next;
        append(&state.file, &self.path, &Line::Open { id, undo: undo.clone() })?;
        state.next += 1;
        state.open.insert(id, undo);
        Ok(EntryId(id))
    }

    /// Undoes one change now. An entry that is closed already is left alone.
    ///
    /// **Errors**: it cannot be undone; the entry stays open.
    pub fn undo(&self, id: EntryId) -> Result<(), HostError> {
        let mut state = self.state();
        let Some(undo) = state.open.get(&id.0) else {
            return Ok(());
        };
        undo.carry_out()?;
        state.close(id.0, &self.path)
    }

    /// Closes an entry whose change was not made, or is superseded by another entry.
    ///
    /// **Errors**: the file cannot be written.
    pub fn forget(&self, id: EntryId) -> Result<(), HostError> {
        self.state().close(id.0, &self.path)
    }

    /// Undoes everything that is open, the latest first, and removes the journal.
    ///
    /// **Errors**: `NotUndone` lists what could not be undone; the journal stays for [`recover`].
    pub fn finish(self) -> Result<(), HostError> {
        self.end()
    }

    fn end(&self) -> Result<(), HostError> {
        let mut state = self.state();
        let Some(guardian) = state.guardian.take() else {
            return Ok(());
        };
        let (_, failures) = undo_all(&state.open);
        if !failures.is_empty() {
            guardian.dismiss();
            return Err(HostError::NotUndone { path: self.path.clone(), failures });
        }
        // The file goes first: if this process is killed here, the guardian finds nothing to do.
        let removed = fs::remove_file(&self.path);
        guardian.dismiss();
        removed.map_err(|e| HostError::file("remove", &self.path, e))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep the host from being put back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, id: u64, path: &Path) -> Result<(), HostError> {
        if self.open.remove(&id).is_some() {
            append(&self.file, path, &Line::Closed { id })?;
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            let _ = writeln!(io::stderr(), "timewire: {error}");
        }
    }
}

/// What was left behind by a process that is dead, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// The process that had made it.
    pub owner: u32,
    /// What it was doing.
    pub title: String,
    /// What was undone, the latest change first.
    pub undone: Vec<String>,
    /// What could not be undone, with the reason; the journal stays.
    pub failures: Vec<String>,
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leftovers { owner, title, undone, failures } = self;
        write!(f, "process {owner} ({title}) ended without cleaning up; ")?;
        match undone.as_slice() {
            [] => write!(f, "nothing was left to undo")?,
            steps => write!(f, "done now: {}", steps.join(", "))?,
        }
        if failures.is_empty() { Ok(()) } else { write!(f, "; NOT done: {}", failures.join(", ")) }
    }
}

/// Finds the journals whose owner and guardian are both dead, and carries them out. Call it at the
/// start of every program that changes the host.
///
/// A damaged journal is not touched; it is among the failures.
///
/// **Errors**: the directory cannot be used.
pub fn recover() -> Result<Vec<Leftovers>, HostError> {
    let dir = journal_dir()?;
    let listing = fs::read_dir(&dir).map_err(|e| HostError::file("list", &dir, e))?;
    let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let Some(owner) = owner_of(&path) else {
            continue;
        };
        if owner.is_alive() {
            continue;
        }
        found.extend(carry_out_journal(&path).unwrap_or_else(|error| {
            // One damaged journal must not keep the others from being carried out.
            let title = "unknown work".to_owned();
            let failures = vec![error.to_string()];
            Some(Leftovers { owner: owner.pid, title, undone: Vec::new(), failures })
        }));
    }
    Ok(found)
}

/// The living processes that have a journal about this network namespace, as `process N`, each with
/// what for.
///
/// **Errors**: the directory cannot be used.
pub(crate) fn owners(netns: u64) -> Result<BTreeMap<String, String>, HostError> {
    let dir = match journal_dir() {
        // Nothing can be journaled without one.
        Err(HostError::NoRuntimeDir) => return Ok(BTreeMap::new()),
        dir => dir?,
    };
    let listing = fs::read_dir(&dir).map_err(|e| HostError::file("list", &dir, e))?;
    let mut found = BTreeMap::new();
    for path in listing.flatten().map(|entry| entry.path()) {
        let Some(owner) = owner_of(&path).filter(|owner| owner.is_alive()) else { continue };
        // One that is gone meanwhile, or not begun yet, is of a process that is still at it.
        let Ok(content) = read(&path) else { continue };
        if content.netns == netns && owner.pid != std::process::id() {
            found.insert(format!("process {}", owner.pid), content.title);
        }
    }
    Ok(found)
}

/// Whether a process has a journal, and so something to undo.
pub fn is_owner(process: Process) -> bool {
    let listing = journal_dir().ok().and_then(|dir| fs::read_dir(dir).ok());
    let mut paths = listing.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.any(|path| owner_of(&path) == Some(process))
}

/// Waits until what a process has changed is undone that has ended; does it when nobody is at it.
///
/// **Errors**: `NotUndone`: something could not be undone, or not for so long; its journal stays.
pub fn finish_of_dead(owner: Process, patience: Duration) -> Result<(), HostError> {
    let give_up = Instant::now() + patience;
    let dir = journal_dir()?;
    loop {
        let listing = fs::read_dir(&dir).map_err(|e| HostError::file("list", &dir, e))?;
        let mut paths = listing.flatten().map(|entry| entry.path());
        let Some(path) = paths.find(|path| owner_of(path) == Some(owner)) else { return Ok(()) };
        let failures = match carry_out_journal(&path) {
            Ok(found) => found.map(|found| found.failures).unwrap_or_default(),
            Err(error) => vec![error.to_string()],
        };
        if !failures.is_empty() {
            return Err(HostError::NotUndone { path, failures });
        }
        if Instant::now() > give_up {
            let failures = vec!["another process has not finished with it".to_owned()];
            return Err(HostError::NotUndone { path, failures });
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Undoes what a journal has open and removes it. `None` when someone else is at it or was.
pub(crate) fn carry_out_journal(path: &Path) -> Result<Option<Leftovers>, HostError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HostError::file("open", path, error)),
    };
    if !lock_if_current(&file, path)? {
        return Ok(None);
    }
    in_namespace_of(&read(path)?, || carry_out_locked(path))?.map(Some)
}

/// Runs `work` where the journal's owner was: interfaces of other network namespaces may have the
/// same names. When that namespace is gone, so is what was in it, and an empty one takes its place.
fn in_namespace_of<T: Send>(
    journal: &Content,
    work: impl FnOnce() -> T + Send,
) -> Result<T, HostError> {
    if journal.boot != boot_id()? || journal.netns == own_netns()? {
        return Ok(work());
    }
    let file = find_netns(journal.netns);
    let enter = || match &file {
        Some(file) => namespace::enter_network(file.as_fd()),
        None => namespace::unshare(&[Namespace::Network]),
    };
    let inside = || enter().map(|()| work());
    let result = std::thread::scope(|scope| scope.spawn(inside).join());
    match result {
        Ok(result) => {
            result.map_err(|e| HostError::kernel("enter the network namespace of a journal", e))
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The network namespace of that number, by its name or by a process in it.
fn find_netns(number: u64) -> Option<File> {
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.map(|entry| entry.path());
    let of_processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_processes = of_processes.map(|entry| entry.path().join("ns/net"));
    let mut files = named.chain(of_processes);
    let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.ino() == number);
    files.find(is_it).and_then(|path| File::open(path).ok())
}

/// The number of the calling thread's network namespace.
pub(crate) fn own_netns() -> Result<u64, HostError> {
    let path = Path::new("/proc/thread-self/ns/net");
    fs::metadata(path).map(|file| file.ino()).map_err(|e| HostError::file("read", path, e))
}

/// Takes the lock of a journal; whether it was free and the file is still the one at this path.
pub(crate) fn lock_if_current(file: &File, path: &Path) -> Result<bool, HostError> {
    let error = |e| HostError::file("lock", path, e);
    if !namespace::try_lock(file).map_err(error)? {
        return Ok(false);
    }
    let ours = file.metadata().map_err(error)?;
    Ok(fs::metadata(path).is_ok_and(|now| now.ino() == ours.ino() && now.dev() == ours.dev()))
}

/// As [`carry_out_journal`], by whoever holds the lock.
pub(crate) fn carry_out_locked(path: &Path) -> Result<Leftovers, HostError> {
    let Content { title, boot, mut open, .. } = read(path)?;
    if boot != boot_id()? {
        open.retain(|_, undo| undo.outlives_a_reboot());
    }
    let (undone, failures) = undo_all(&open);
    if failures.is_empty() {
        fs::remove_file(path).map_err(|e| HostError::file("remove", path, e))?;
    }
    let owner = owner_of(path).map_or(0, |process| process.pid);
    Ok(Leftovers { owner, title, undone, failures })
}

/// Carries out all, the latest first; what was undone, and what failed, with the reason.
fn undo_all(open: &BTreeMap<u64, Undo>) -> (Vec<String>, Vec<String>) {
    let (mut undone, mut failures) = (Vec::new(), Vec::new());
    for undo in open.values().rev() {
        match undo.carry_out() {
            Ok(()) => undone.push(undo.to_string()),
            Err(error) => failures.push(format!("{undo}: {error}")),
        }
    }
    (undone, failures)
}

/// What a journal says.
#[derive(Debug, Default)]
struct Content {
    title: String,
    boot: String,
    /// The number of its owner's network namespace.
    netns: u64,
    open: BTreeMap<u64, Undo>,
}

fn read(path: &Path) -> Result<Content, HostError> {
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    let mut content = Content::default();
    // A last line without its end was being written when the owner died: its change was not made.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in complete.lines().enumerate() {
        let damaged = |why: String| HostError::Journal { path: path.into(), line: index + 1, why };
        match serde_json::from_str(line).map_err(|e| damaged(e.to_string()))? {
            Line::Journal { schema, .. } if schema != SCHEMA => {
                return Err(damaged(format!("it is of version `{schema}`, not `{SCHEMA}`")));
            }
            Line::Journal { title, boot, netns, .. } => {
                content = Content { title, boot, netns, open: BTreeMap::new() };
            }
            Line::Open { id, undo } => drop(content.open.insert(id, undo)),
            Line::Closed { id } => drop(content.open.remove(&id)),
        }
    }
    Ok(content)
}

fn append(mut file: &File, path: &Path, line: &Line) -> Result<(), HostError> {
    let mut text = serde_json::to_string(line).expect("invariant: a line has only string keys");
    text.push('\n');
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_data())
        .map_err(|e| HostError::file("write", path, e))
}

/// The process that a journal's file name speaks of.
pub(crate) fn owner_of(path: &Path) -> Option<Process> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.split('-');
    let (pid, start_ticks) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Process { pid, start_ticks })
}

/// The directory for what lives no longer than the host is up: `/run/timewire` for root, else
/// `$XDG_RUNTIME_DIR/timewire`.
///
/// **Errors**: an ordinary user without `XDG_RUNTIME_DIR`.
pub fn runtime_dir() -> Result<PathBuf, HostError> {
    if namespace::effective_user() == 0 {
        return Ok(PathBuf::from("/run/timewire"));
    }
    let base = env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute());
    base.map(|dir| PathBuf::from(dir).join("timewire")).ok_or(HostError::NoRuntimeDir)
}

fn journal_dir() -> Result<PathBuf, HostError> {
    let runtime = runtime_dir()?;
    let dir = runtime.join("journal");
    for (dir, mode) in [(&runtime, 0o755), (&dir, 0o700)] {
        match DirBuilder::new().mode(mode).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(HostError::file("create", dir, error));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(dir).map_err(|e| HostError::file("use", dir, e))?;
        let (owner, user) = (found.uid(), namespace::effective_user());
        if owner != user || !found.is_dir() {
            return Err(HostError::ForeignDir { path: dir.clone(), owner, user });
        }
    }
    Ok(dir)
}

pub(crate) fn boot_id() -> Result<String, HostError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    Ok(text.trim().to_owned())
}

const SCHEMA: &str = "timewire.journal/1";

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, text: &str) -> PathBuf {
        let path = env::temp_dir().join(format!("timewire-{}-{name}.jsonl", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    const HEAD: &str = concat!(
        r#"{"journal":{"schema":"timewire.journal/1","title":"a test","boot":"b","#,
        r#""netns":7}}"#,
        "\n"
    );

    #[test]
    fn t0_what_is_closed_or_cut_short_is_not_undone() {
        let entry = |id: u32| {
            format!(r#"{{"open":{{"id":{id},"undo":{{"kind":"remove_file","path":"/{id}"}}}}}}"#)
        };
        let text = format!("{HEAD}{}\n{}\n", entry(1), entry(2));
        let text = format!("{text}{{\"closed\":{{\"id\":1}}}}\n{}", entry(3));
        let path = write("read", &text);
        let content = read(&path).unwrap();
        let Content { title, boot, netns, .. } = &content;
        assert_eq!((title.as_str(), boot.as_str(), *netns), ("a test", "b", 7));
        let rest: Vec<_> = content.open.values().map(Undo::to_string).collect();
        assert_eq!(rest, ["remove /2"]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn t0_a_damaged_journal_is_refused_with_its_line() {
        let cases = [
            ("garbage", format!("{HEAD}garbage\n"), "line 2: expected value"),
            ("version", HEAD.replace("/1", "/9"), "line 1: it is of version `timewire.journal/9`"),
        ];
        for (name, text, message) in cases {
            let path = write(name, &text);
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            fs::remove_file(path).unwrap();
        }
        let empty = write("empty", "");
        assert!(read(&empty).unwrap().open.is_empty());
        fs::remove_file(empty).unwrap();
    }

    #[test]
    fn t0_after_a_reboot_only_files_are_left_to_undo() {
        let this = Process::this().unwrap();
        let kill = Undo::KillProcess { pid: this.pid, start_ticks: this.start_ticks };
        let link =
            Undo::DeleteLink { netns: None, name: timewire_base::IfName::new("lo").unwrap() };
        let lines = [(1, kill), (2, link)]
            .map(|(id, undo)| serde_json::to_string(&Line::Open { id, undo }).unwrap());
        let path = write("boot", &format!("{HEAD}{}\n", lines.join("\n")));
        let done = carry_out_journal(&path).unwrap().unwrap();
        assert_eq!((done.undone.len(), done.failures.len()), (0, 0));
        assert!(!path.exists());
    }

    #[test]
    fn t0_only_journals_have_an_owner() {
        let owner = Process { pid: 12, start_ticks: 345 };
        assert_eq!(owner_of(Path::new("/run/12-345-0.jsonl")), Some(owner));
        for other in ["12.jsonl", "a-b-c.jsonl", "12-345-0.txt", ".jsonl"] {
            assert_eq!(owner_of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn t0_leftovers_read_as_a_sentence() {
        let some = Leftovers {
            owner: 12,
            title: "a test".into(),
            undone: vec!["remove /2".into()],
            failures: vec!["remove /1: why".into()],
        };
        assert_eq!(
            some.to_string(),
            "process 12 (a test) ended without cleaning up; done now: remove /2; \
             NOT done: remove /1: why"
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undo log: what takes each change of the host back, on disk before the change is made, and
//! the watchdog process that carries it out when the process that made the changes dies. There is
//! one for all changes; it knows none of them: a feature records its [`Inverse`], and whoever
//! reads a log back says which kinds there are (`recovery`).
//!
//! The normal end is [`Journal::finish`]; dropping a journal does the same. When the process is
//! killed, its watchdog does it; when that is killed too, the next start of the program.

mod file;
mod inverse;
mod place;
mod rollback;
pub mod watchdog;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value as Json;
use timewire_sys::namespace::Process;

use self::place::log_of;
use self::rollback::{undo_all, undo_one};
use self::watchdog::Watchdog;
use crate::HostError;

pub(crate) use file::{Content, Head, Line, LogFile, read};
#[cfg(test)]
pub(crate) use inverse::read as read_inverse;
pub use inverse::{Due, Inverse};
pub(crate) use inverse::{Kind, Note};
pub use place::{LogLock, is_owner, runtime_dir};
pub(crate) use place::{
    abandoned, boot_id, holder, is_our_dir, make_dir, own_netns, owners, process_log_dir, try_lock,
};
pub use rollback::Leftovers;
pub(crate) use rollback::{carry_out, carry_out_locked};

/// An undo log of this process. Share it behind an `Arc`.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: LogFile,
    next: u64,
    open: BTreeMap<u64, Box<dyn Inverse>>,
    /// Taken when the journal is finished.
    watchdog: Option<Watchdog>,
}

/// One entry of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(u64);

impl Journal {
    /// Starts a journal and its watchdog. The title says what for: `the laboratory of 4 stations`.
    ///
    /// The watchdog stays in the network namespace of the calling thread and keeps that alive; so
    /// call this outside the namespaces that are to go away.
    ///
    /// **Errors**: no directory for it, or the watchdog does not start. Nothing is left then.
    pub fn begin(title: &str) -> Result<Journal, HostError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let owner = Process::this().map_err(|e| HostError::kernel("read /proc/self/stat", e))?;
        let name = log_of(owner, COUNT.fetch_add(1, Ordering::Relaxed));
        Journal::begin_at(process_log_dir()?.join(name), title, None)
    }

    /// The same in a file of another name, for changes that can outlive this process. What the
    /// watchdog says goes to the file `said`.
    ///
    /// **Errors**: as there; the file is there already.
    pub(crate) fn begin_at(
        path: PathBuf,
        title: &str,
        said: Option<&Path>,
    ) -> Result<Journal, HostError> {
        let mut watchdog = Watchdog::start(&path, said)?;
        let file = match LogFile::create(path.clone(), title) {
            Ok(file) => file,
            Err(error) => {
                watchdog.dismiss();
                return Err(error);
            }
        };
        watchdog.begin().inspect_err(|_| drop(file.remove()))?;
        let state = State { file, next: 1, open: BTreeMap::new(), watchdog: Some(watchdog) };
        Ok(Journal { path, state: Mutex::new(state) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records how to undo a change that is made next. It is on disk when this returns.
    ///
    /// **Errors**: the file cannot be written; do not make the change then.
    pub fn record(&self, undo: impl Inverse + Serialize) -> Result<EntryId, HostError> {
        let mut state = self.state();
        let id = state.next;
        let json = serde_json::to_value(&undo).expect("invariant: it has only text keys");
        state.file.append(&Line::Open { id, undo: json })?;
        state.next += 1;
        state.open.insert(id, Box::new(undo));
        Ok(EntryId(id))
    }

    /// Records more about a change. It is on disk when this returns.
    ///
    /// **Errors**: the file cannot be written.
    pub(crate) fn note(&self, id: EntryId, note: Json) -> Result<(), HostError> {
        let mut state = self.state();
        state.file.append(&Line::Note { id: id.0, note: note.clone() })?;
        let undo = state.open.get_mut(&id.0).expect("invariant: only open changes have notes");
        undo.take_note(note).expect("invariant: a change understands its own notes");
        Ok(())
    }

    /// Undoes one change now. An entry that is closed already is left alone.
    ///
    /// **Errors**: it cannot be undone; the entry stays open.
    pub fn undo(&self, id: EntryId) -> Result<(), HostError> {
        let mut state = self.state();
        let State { file, open, .. } = &mut *state;
        let Some(undo) = open.get_mut(&id.0) else { return Ok(()) };
        undo_one(file, id.0, undo)?;
        state.close(id)
    }

    /// Closes an entry whose change was not made, or is superseded by another entry.
    ///
    /// **Errors**: the file cannot be written.
    pub fn forget(&self, id: EntryId) -> Result<(), HostError> {
        self.state().close(id)
    }

    /// Undoes everything that is open, the latest first, and removes the journal.
    ///
    /// **Errors**: `NotUndone` lists what could not be undone; the journal stays for `recovery`.
    pub fn finish(self) -> Result<(), HostError> {
        self.end()
    }

    /// Leaves everything that is open: what ends at a time is undone by the watchdog then.
    pub(crate) fn leave(self) {
        let mut state = self.state();
        let Some(watchdog) = state.watchdog.take() else { return };
        if state.open.values().all(|undo| undo.due(true) == Due::Never) {
            watchdog.dismiss();
        }
    }

    fn end(&self) -> Result<(), HostError> {
        let mut state = self.state();
        let Some(watchdog) = state.watchdog.take() else { return Ok(()) };
        let State { file, open, .. } = &mut *state;
        // One that is not there any more was carried out by someone else.
        let result = file.is_current().then(|| undo_all(file, open).1).map(|failures| {
            // The file goes first: if this process is killed here, the watchdog finds nothing.
            if failures.is_empty() {
                return file.remove();
            }
            Err(HostError::NotUndone { path: self.path.clone(), failures })
        });
        watchdog.dismiss();
        result.unwrap_or(Ok(()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep the host from being restored.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, id: EntryId) -> Result<(), HostError> {
        if self.open.remove(&id.0).is_some() {
            self.file.append(&Line::Closed { id: id.0 })?;
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

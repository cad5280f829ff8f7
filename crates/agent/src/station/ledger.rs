// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal of one side of an experiment as a file: appended and synced, cut where a killed
//! writer left half a line, and held by one process.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::protocol::journal::{self, Side};
use serde::Serialize;
use serde::de::DeserializeOwned;
use timewire_base::FileError;
use timewire_sys::file::{self, Access};
use timewire_sys::namespace;

use timewire_datapath::DatapathError;

/// A journal that this process writes.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    /// Held as long as the ledger is; a file of its own, since the journal's may be replaced.
    _lock: File,
}

impl Ledger {
    /// Opens or makes the journal, and reads what is in it. `shorten` may leave out entries, which
    /// are then gone from the file too.
    ///
    /// **Errors**: another process has it; it is damaged.
    pub fn open<E: DeserializeOwned + Serialize>(
        path: &Path,
        side: Side,
        shorten: fn(Vec<E>) -> Vec<E>,
    ) -> Result<(Ledger, Vec<E>), DatapathError> {
        let lock_path = path.with_extension("lock");
        let lock = new_or_old(&lock_path).map_err(DatapathError::file("open", &lock_path))?;
        if !namespace::try_lock(&lock).map_err(DatapathError::file("lock", &lock_path))? {
            return Err(DatapathError::Invalid(format!(
                "{}: another process uses this journal",
                path.display()
            )));
        }
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(DatapathError::file("read", path)(error)),
        };
        let reading =
            journal::read(side, &bytes).map_err(|error| FileError::content(path, error))?;
        let count = reading.entries.len();
        let entries = shorten(reading.entries);
        if entries.len() < count || reading.whole < bytes.len() || reading.whole == 0 {
            rewrite(path, side, &entries)?;
        }
        let file = new_or_old(path).map_err(DatapathError::file("open", path))?;
        Ok((Ledger { path: path.to_owned(), file, _lock: lock }, entries))
    }

    /// Writes an entry; it is on disk when this returns.
    ///
    /// **Errors**: the disk is full, or gone.
    pub fn append(&mut self, entry: &impl Serialize) -> Result<(), DatapathError> {
        let written = self.file.write_all(&journal::line(entry));
        let synced = written.and_then(|()| self.file.sync_data());
        synced.map_err(DatapathError::file("write", &self.path))
    }
}

fn new_or_old(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Replaces the journal by one with these entries, at once.
fn rewrite<E: Serialize>(path: &Path, side: Side, entries: &[E]) -> Result<(), DatapathError> {
    let mut bytes = journal::header(side);
    entries.iter().for_each(|entry| bytes.extend(journal::line(entry)));
    replace(path, &bytes)
}

/// Writes a file beside, syncs it, and gives it its name, so that the name never has half of it.
///
/// **Errors**: the directory cannot be written.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), DatapathError> {
    file::replace_synced(path, bytes, Access::Owner).map_err(DatapathError::file("write", path))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where it is kept what is applied: an undo log for each network namespace, that outlives the
//! process that applied it and a reboot; the lock that keeps two transactions apart; how the last
//! one ended.

use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use timewire_sys::namespace;

use super::setting::Difference;
use crate::HostError;
use crate::journal::{LogLock, holder, is_our_dir, make_dir, own_netns, runtime_dir, try_lock};

/// The directory of the logs and the network namespace they are about.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    netns: u64,
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
        let mut bases = bases()?.into_iter().peekable();
        loop {
            let base = bases.next().ok_or(HostError::NoRuntimeDir)?;
            match make_dir(base, 0o700).and_then(writable) {
                // What an ordinary user's machine of the laboratory says: that user is root in it,
                // and the files are those of the host.
                Err(HostError::File(error))
                    if bases.peek().is_some()
                        && matches!(
                            error.kind(),
                            Some(
                                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
                            )
                        ) => {}
                base => {
                    let dir = make_dir(base?.join(APPLIED), 0o700)?;
                    return Ok(Store { dir, netns: own_netns()? });
                }
            }
        }
    }

    /// The logs of the calling thread's network namespace, in all places where one can be. Nothing
    /// is made for this; what is someone else's is left out.
    pub(super) fn logs() -> Vec<PathBuf> {
        let Ok(netns) = own_netns() else { return Vec::new() };
        let dirs = bases().unwrap_or_default().into_iter().map(|base| base.join(APPLIED));
        let stores = dirs.filter(|dir| is_our_dir(dir)).map(|dir| Store { dir, netns }.log_path());
        stores.filter(|path| path.exists()).collect()
    }

    fn path(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{}{what}", self.netns))
    }

    /// The undo log, whether or not it is there.
    pub fn log_path(&self) -> PathBuf {
        self.path(".jsonl")
    }

    /// What its watchdog says: that outlives the terminal, so it does not speak there.
    pub(super) fn said_path(&self) -> PathBuf {
        self.path(".log")
    }

    /// Other logs that can be about this network namespace: that of the host itself can have
    /// another number after a reboot, and no other namespace outlives one.
    pub(super) fn other_logs(&self) -> Result<Vec<PathBuf>, HostError> {
        if !fs::metadata("/proc/1/ns/net").is_ok_and(|file| file.ino() == self.netns) {
            return Ok(Vec::new());
        }
        let listing = fs::read_dir(&self.dir).map_err(|e| HostError::file("list", &self.dir, e))?;
        let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        Ok(paths)
    }

    /// Takes the lock.
    ///
    /// **Errors**: another process has it, and which.
    pub fn lock(&self) -> Result<LogLock, HostError> {
        let path = self.log_path();
        let busy = || HostError::Busy { pid: holder(&path).unwrap_or(0) };
        try_lock(&path)?.ok_or_else(busy)
    }

    /// Says how the last transaction ended.
    pub(super) fn end(&self, name: &str, how: &str, left: &[Difference]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = now.map_or(0, |since| since.as_secs());
        let (name, how) = (name.to_owned(), how.to_owned());
        let ending = Ending { name, how, at, left: left.to_vec() };
        let text = serde_json::to_string(&ending).expect("invariant: it has only text keys");
        // Nobody depends on it.
        let _ = fs::write(self.path(".last"), text + "\n");
    }

    /// How the last transaction ended, when that is known.
    pub(super) fn ending(&self) -> Option<Ending> {
        serde_json::from_str(&fs::read_to_string(self.path(".last")).ok()?).ok()
    }
}

/// Where the directory of the logs can be, the best first.
fn bases() -> Result<Vec<PathBuf>, HostError> {
    if let Some(dir) = env::var_os("TIMEWIRE_STATE_DIR").filter(|dir| !dir.is_empty()) {
        return Ok(vec![PathBuf::from(dir)]);
    }
    let runtime = runtime_dir()?;
    Ok(match namespace::effective_user() {
        0 => vec![PathBuf::from("/var/lib/timewire"), runtime],
        _ => vec![runtime],
    })
}

/// Tries whether files can be made in a directory: it can be there, and read only.
fn writable(dir: PathBuf) -> Result<PathBuf, HostError> {
    let path = dir.join(format!(".{}", std::process::id()));
    let error = |e| HostError::file("write", &path, e);
    OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(error)?;
    fs::remove_file(&path).map_err(error)?;
    Ok(dir)
}

/// The directory of the logs, in one of those.
const APPLIED: &str = "applied";

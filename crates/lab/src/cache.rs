// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where laboratory kernels and downloaded packages are kept between runs: outside the repository,
//! named by what they were made from. Everything in it can be deleted at any time; it is made anew.
//!
//! ```text
//! $TIMEWIRE_CACHE, or $XDG_CACHE_HOME/timewire, or ~/.cache/timewire
//!   apt/                the package lists of a scratch package state
//!   kernels/NAME/       one laboratory kernel each, complete
//!   work-PID-N/         something that is being made
//! ```

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use timewire_sys::namespace;

use crate::{LabError, tools};

/// The cache's directory; it is made when it is not there.
///
/// **Errors**: nobody says where it could be, or it cannot be made.
pub fn root() -> Result<PathBuf, LabError> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let root = choose(variable("TIMEWIRE_CACHE"), variable("XDG_CACHE_HOME"), variable("HOME"));
    let root = root.ok_or_else(|| LabError::Cache {
        why: "none of TIMEWIRE_CACHE, XDG_CACHE_HOME and HOME is set".to_owned(),
    })?;
    if !root.is_absolute() {
        let why = format!("{} is no absolute path", root.display());
        return Err(LabError::Cache { why });
    }
    fs::create_dir_all(&root).map_err(LabError::file("create", &root))?;
    Ok(root)
}

fn choose(own: Option<OsString>, xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    own.map(PathBuf::from)
        .or_else(|| xdg.map(|dir| PathBuf::from(dir).join("timewire")))
        .or_else(|| home.map(|dir| PathBuf::from(dir).join(".cache/timewire")))
}

/// The directory of finished kernels.
///
/// **Errors**: as [`root`].
pub fn kernels() -> Result<PathBuf, LabError> {
    let dir = root()?.join("kernels");
    fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
    Ok(dir)
}

/// A directory to make something in. It goes when this does; what is finished is moved out of it.
///
/// Its owner holds a lock on it, by which others know that it is in use: numbers of processes are
/// not the same in every container that shares the directory above.
#[derive(Debug)]
pub struct Work {
    path: PathBuf,
    _lock: File,
}

impl Work {
    /// Makes one, and removes those of processes that are gone.
    ///
    /// **Errors**: as [`root`].
    pub fn begin() -> Result<Work, LabError> {
        let root = root()?;
        Work::below(&root, "work")
    }

    /// Makes one below another directory, which others use too, and removes those of this prefix
    /// whose owners are gone.
    ///
    /// **Errors**: it cannot be made.
    pub(crate) fn below(directory: &Path, prefix: &str) -> Result<Work, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_dead(directory, prefix)?;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("{prefix}-{}-{count}", std::process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(LabError::file("create", &path))?,
            }
            // Who removes the dead may have taken it for one of them before it was locked.
            if let Some(lock) = lock_of(&path).filter(|_| path.exists()) {
                return Ok(Work { path, _lock: lock });
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The lock of a directory, if nobody has it.
fn lock_of(path: &Path) -> Option<File> {
    let directory = File::open(path).ok()?;
    namespace::try_lock(&directory).is_ok_and(|free| free).then_some(directory)
}

fn remove_dead(root: &Path, prefix: &str) -> Result<(), LabError> {
    for entry in fs::read_dir(root).map_err(LabError::file("read", root))?.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
        if ours.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            && let Some(_lock) = lock_of(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Holds a lock of the cache: one at a time makes a kernel or changes the package lists.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for it; tells when it has to.
    ///
    /// **Errors**: as [`root`].
    pub fn take(name: &str, progress: &mut dyn FnMut(&str)) -> Result<Lock, LabError> {
        let path = root()?.join(format!("{name}.lock"));
        let file = File::create(&path).map_err(LabError::file("create", &path))?;
        let failed = LabError::file("lock", &path);
        let mut told = false;
        loop {
            if tools::is_ended() {
                return Err(LabError::EndRequested);
            }
            match namespace::try_lock(&file) {
                Ok(true) => return Ok(Lock { _file: file }),
                Ok(false) if !told => {
                    told = true;
                    progress("waiting for another process that makes a laboratory kernel");
                }
                Ok(false) => {}
                Err(error) => return Err(failed(error)),
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A number that changes with every byte of these texts: FNV-1a, 64 bits, as 16 hexadecimal digits.
pub fn fingerprint(texts: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_cache_is_where_the_user_says() {
        let os = |text: &str| Some(OsString::from(text));
        assert_eq!(choose(os("/c"), os("/x"), os("/h")), Some(PathBuf::from("/c")));
        assert_eq!(choose(None, os("/x"), os("/h")), Some(PathBuf::from("/x/timewire")));
        assert_eq!(choose(None, None, os("/h")), Some(PathBuf::from("/h/.cache/timewire")));
        assert_eq!(choose(None, None, None), None);
    }

    #[test]
    fn t0_fingerprints_differ_with_content_and_borders() {
        assert_eq!(fingerprint(&["a"]), fingerprint(&["a"]));
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_ne!(fingerprint(&["a"]), fingerprint(&["a", ""]));
        assert_eq!(fingerprint(&[]).len(), 16);
    }

    #[test]
    fn t0_only_what_nobody_holds_is_removed() {
        let below = env::temp_dir().join(format!("timewire-cache-{}", std::process::id()));
        fs::create_dir(&below).unwrap();
        let held = Work::below(&below, "work").unwrap();
        let dead = below.join("work-1-0");
        let others = ["work", "work-", "work-x", "other-1-0"].map(|name| below.join(name));
        fs::create_dir(&dead).unwrap();
        others.iter().for_each(|path| fs::create_dir(path).unwrap());
        let second = Work::below(&below, "work").unwrap();
        assert!(held.path().is_dir() && second.path().is_dir() && !dead.exists());
        assert!(others.iter().all(|path| path.is_dir()));
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists() && second.path().is_dir());
        drop(second);
        fs::remove_dir_all(&below).unwrap();
    }
}

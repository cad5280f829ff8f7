// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where rings are: directories that only those can write whose rings are believed, and files in
//! them that no link leads elsewhere. Who writes a ring holds a lock on its first byte and who
//! reads it one on its second, so that both are known to live, or not, whatever their numbers are
//! in which namespace.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::now_ns;
use crate::namespace::{effective_user, user_in_words};
use crate::socket::check;

/// The variable that names a directory for rings, or is `off`.
pub const VARIABLE: &str = "TIMEWIRE_MARKERS";
pub(super) const SHARED: &str = "/dev/shm";
const OF_USER: &str = "timewire-markers-";
const OF_RUN: &str = "timewire-run-";
/// A file with a lock on it while somebody listens.
pub(super) const LISTENING: &str = ".listening";
/// The same for the rings of all users; of root.
pub(super) const LISTENING_TO_ALL: &str = "timewire-markers.listening";
pub(super) const SUFFIX: &str = ".ring";

/// What of a file is locked: its first byte by who writes, its second by who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    Reader,
}

/// How it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Shared,
    Alone,
}

/// What the environment wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spec {
    Off,
    At(PathBuf),
    Usual,
}

impl Spec {
    /// A program that runs with more rights than its caller's does not look.
    pub(super) fn of_environment() -> Spec {
        // SAFETY: getauxval() takes a number and gives one.
        let is_raised = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        match std::env::var_os(VARIABLE) {
            Some(path) if !is_raised && path == "off" => Spec::Off,
            Some(path) if !is_raised && !path.is_empty() => Spec::At(path.into()),
            _ => Spec::Usual,
        }
    }
}

/// The usual directory of a user.
pub(super) fn of_user(user: u32) -> PathBuf {
    Path::new(SHARED).join(format!("{OF_USER}{user}"))
}

/// A directory for the rings of one run of programs, which nobody else reads: a ring has one
/// reader. It is gone with this, or, when its process is killed, with the next one.
#[derive(Debug)]
pub struct RunPlace {
    path: PathBuf,
    /// Locked while the run lives.
    _life: File,
}

/// The file of a run's directory that is locked.
const LIFE: &str = ".run";

impl RunPlace {
    /// A directory that no other run has, for [`VARIABLE`].
    ///
    /// **Errors**: it cannot be made.
    pub fn new() -> io::Result<RunPlace> {
        RunPlace::at(&RunPlace::path_of(&format!("{}-{}", std::process::id(), now_ns())))
    }

    /// Where the directory of a run of this name is, before it is made.
    pub fn path_of(name: &str) -> PathBuf {
        Path::new(SHARED).join(format!("{OF_RUN}{name}"))
    }

    /// The directory at such a path.
    ///
    /// **Errors**: it cannot be made, or is there.
    pub fn at(path: &Path) -> io::Result<RunPlace> {
        remove_left();
        let path = path.to_owned();
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let life = File::create(path.join(LIFE))?;
        hold(&life, Role::Writer, Hold::Alone)?;
        Ok(RunPlace { path, _life: life })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunPlace {
    fn drop(&mut self) {
        // What stays, the next run removes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of runs that were killed. What cannot be removed is somebody else's.
fn remove_left() {
    let Ok(entries) = fs::read_dir(SHARED) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(OF_RUN)) {
            continue;
        }
        // A run that is just beginning has no such file for a moment: its directory stays.
        let Ok(life) = fs::OpenOptions::new().write(true).open(entry.path().join(LIFE)) else {
            continue;
        };
        if hold(&life, Role::Writer, Hold::Alone).is_ok_and(|free| free) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whose usual directory has this name.
pub(super) fn user_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(OF_USER)?;
    number.parse().ok().filter(|user: &u32| user.to_string() == number)
}

/// A directory that was looked at and is kept open: what stands at its path later is not asked.
#[derive(Debug)]
pub(super) struct Directory {
    file: File,
}

impl Directory {
    /// Opens the directory, and makes it, for its user alone, when it is missing and may be.
    ///
    /// **Errors**: it is a link or no directory; it belongs to neither `owner` nor root; others may
    /// take away files of it.
    pub(super) fn open(path: &Path, owner: u32, make: bool) -> io::Result<Directory> {
        if make {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        let about = file.metadata()?;
        if about.uid() != owner && about.uid() != 0 {
            let why = format!("it belongs to {}, not to user {owner}", user_in_words(about.uid()));
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if about.mode() & 0o022 != 0 && about.mode() & 0o1000 == 0 {
            let why = "other users may remove files of it: chmod go-w, or +t";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Directory { file })
    }

    fn open_at(&self, name: &str, flags: i32) -> io::Result<File> {
        let name = c_name(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let (directory, mode): (i32, libc::mode_t) = (self.file.as_raw_fd(), 0o600);
        // SAFETY: a live descriptor, a text that ends with a zero and lives through the call, and
        // the mode that goes with O_CREAT.
        let fd = check(unsafe { libc::openat(directory, name.as_ptr(), flags, mode) })?;
        // SAFETY: the descriptor is new and nobody else owns it.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens a file that is there. Only the directory's own files: a link leads to an error.
    pub(super) fn existing(&self, name: &str, to_write: bool) -> io::Result<File> {
        self.open_at(name, if to_write { libc::O_RDWR } else { libc::O_RDONLY })
    }

    /// Makes a file for its user alone.
    ///
    /// **Errors**: it is there.
    pub(super) fn make(&self, name: &str) -> io::Result<File> {
        self.open_at(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: a live descriptor, and a text that ends with a zero and lives through the call.
        check(unsafe { libc::unlinkat(self.file.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
    }

    /// Names in it; at most so many are looked at.
    pub(super) fn names(&self, most: usize) -> io::Result<Vec<String>> {
        let listed = fs::read_dir(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let names = listed.take(most).flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.into_string().ok()).collect())
    }

    /// Names of rings in it.
    pub(super) fn rings(&self, most: usize) -> Vec<String> {
        let mut names = self.names(most).unwrap_or_default();
        names.retain(|name| name.ends_with(SUFFIX));
        names
    }

    /// Says that somebody listens, until the file is dropped.
    ///
    /// **Errors**: the file cannot be had.
    pub(super) fn listen(&self, name: &str) -> io::Result<File> {
        let own = effective_user();
        let may_be = |file: &File| {
            file.metadata().is_ok_and(|it| it.is_file() && [0, own].contains(&it.uid()))
        };
        let file = match self.existing(name, false) {
            Ok(file) if may_be(&file) => file,
            _ => {
                // Of somebody else, who has no business here, or a link.
                let _ = self.remove(name);
                match self.make(name) {
                    // Another listener was a moment earlier.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        self.existing(name, false)?
                    }
                    made => made?,
                }
            }
        };
        // Writers of other users look, too; there is nothing in it.
        // SAFETY: a live descriptor and an integer.
        let _ = unsafe { libc::fchmod(file.as_raw_fd(), 0o644) };
        hold(&file, Role::Writer, Hold::Shared)?;
        Ok(file)
    }

    /// Whether somebody listens who may.
    pub(super) fn is_listened_to(&self, name: &str, who: &[u32]) -> bool {
        let Ok(file) = self.existing(name, false) else { return false };
        let counts = file.metadata().is_ok_and(|it| it.is_file() && who.contains(&it.uid()));
        counts && is_held(&file, Role::Writer)
    }
}

/// Takes a lock that goes with this opening of the file, so also when the process is killed;
/// whether it was free. **Source**: Linux' open file description locks.
pub(super) fn hold(file: &File, role: Role, how: Hold) -> io::Result<bool> {
    let mut lock = range(role, how);
    // SAFETY: a live descriptor and a lock that lives through the call.
    match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether another opening of the file holds it.
pub(super) fn is_held(file: &File, role: Role) -> bool {
    let mut lock = range(role, Hold::Alone);
    // SAFETY: a live descriptor and a lock that lives through the call, which fills it in.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && lock.l_type != short(libc::F_UNLCK)
}

fn range(role: Role, how: Hold) -> libc::flock {
    // SAFETY: all-zero is a valid flock (plain integers); OFD locks want a process number of 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = short(match how {
        Hold::Shared => libc::F_RDLCK,
        Hold::Alone => libc::F_WRLCK,
    });
    lock.l_whence = short(libc::SEEK_SET);
    lock.l_start = match role {
        Role::Writer => 0,
        Role::Reader => 1,
    };
    lock.l_len = 1;
    lock
}

fn short(value: i32) -> libc::c_short {
    libc::c_short::try_from(value).expect("invariant: a small constant")
}

fn c_name(name: &str) -> io::Result<CString> {
    let is_plain = !name.is_empty() && !name.contains('/');
    let name = std::ffi::OsStr::new(name).as_bytes();
    CString::new(name).ok().filter(|_| is_plain).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where undo logs are, whose they are, and who may carry them out.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use timewire_sys::namespace::{self, Namespace, Process};

use super::file::{Head, is_current, read_head};
use crate::HostError;

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

/// The directory of the logs that belong to a process.
pub(crate) fn process_log_dir() -> Result<PathBuf, HostError> {
    let dir = make_dir(runtime_dir()?, 0o755)?;
    make_dir(dir.join(PROCESSES), 0o700)
}

/// Makes a directory that only its owner can change.
///
/// **Errors**: it cannot be made, or is someone else's.
pub(crate) fn make_dir(dir: PathBuf, mode: u32) -> Result<PathBuf, HostError> {
    match DirBuilder::new().mode(mode).recursive(true).create(&dir) {
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

/// The name of the log of a process that has several.
pub(crate) fn log_of(owner: Process, number: u32) -> String {
    format!("{}-{}-{number}.jsonl", owner.pid, owner.start_ticks)
}

/// The process that a log belongs to, by its name; `None` of one that can outlive its process.
pub(crate) fn owner_of(path: &Path) -> Option<Process> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.split('-');
    let (pid, start_ticks) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Process { pid, start_ticks })
}

/// Whether there is such a directory, and ours: what is in it can be trusted.
pub(crate) fn is_our_dir(dir: &Path) -> bool {
    let user = namespace::effective_user();
    fs::symlink_metadata(dir).is_ok_and(|dir| dir.is_dir() && dir.uid() == user)
}

/// The logs of processes, with these.
fn process_logs() -> Result<Vec<(Process, PathBuf)>, HostError> {
    let dir = runtime_dir()?.join(PROCESSES);
    if !is_our_dir(&dir) {
        return Ok(Vec::new());
    }
    let listing = fs::read_dir(&dir).map_err(|e| HostError::file("list", &dir, e))?;
    let mut paths: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.into_iter().filter_map(|path| Some((owner_of(&path)?, path))).collect())
}

/// The logs of processes that are dead, with these.
///
/// **Errors**: the directory cannot be used.
pub(crate) fn abandoned() -> Result<Vec<(Process, PathBuf)>, HostError> {
    let logs = process_logs()?.into_iter();
    Ok(logs.filter(|(owner, _)| !owner.is_alive()).collect())
}

/// The living processes that have a log about this network namespace, as `process N`, each with
/// what for.
///
/// **Errors**: the directory cannot be used.
pub(crate) fn owners(netns: u64) -> Result<BTreeMap<String, String>, HostError> {
    let logs = match process_logs() {
        // There are none without a directory.
        Err(HostError::NoRuntimeDir) => return Ok(BTreeMap::new()),
        logs => logs?,
    };
    let others = logs.into_iter().filter(|(it, _)| it.is_alive() && it.pid != std::process::id());
    // One that is gone meanwhile, or not begun yet, is of a process that is still at it.
    let heads = others.filter_map(|(owner, path)| Some((owner, read_head(&path).ok()??)));
    let here = heads.filter(|(_, head)| head.netns == netns);
    Ok(here.map(|(owner, head)| (format!("process {}", owner.pid), head.title)).collect())
}

/// Whether a process has a log, and so something to undo.
pub fn is_owner(process: Process) -> bool {
    process_logs().is_ok_and(|logs| logs.iter().any(|(owner, _)| *owner == process))
}

/// The right to carry a log out, as long as it lives.
#[derive(Debug)]
pub struct LogLock {
    _file: File,
}

/// Takes the lock of a log: of a process, the file itself, which its watchdog holds all its life;
/// of one that outlives its process, a file beside it with the number of whoever changes what is
/// in it. `None` when another process has it, or the log is gone.
pub(crate) fn try_lock(path: &Path) -> Result<Option<LogLock>, HostError> {
    let is_beside = owner_of(path).is_none();
    let lock = if is_beside { path.with_extension("lock") } else { path.to_path_buf() };
    let error = |e| HostError::file("lock", &lock, e);
    let opened =
        OpenOptions::new().read(true).write(true).create(is_beside).mode(0o600).open(&lock);
    let mut file = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(error)?,
    };
    let mut tries = MAX_TRIES;
    while !namespace::try_lock(&file).map_err(error)? {
        // A tool that dies with its process holds the lock a moment longer.
        let is_alive = |pid| Process::of(pid).is_ok_and(Process::is_alive);
        if !is_beside || tries == 0 || holder(path).is_some_and(is_alive) {
            return Ok(None);
        }
        tries -= 1;
        thread::sleep(MOMENT);
    }
    if !is_current(&file, &lock).map_err(error)? {
        return Ok(None);
    }
    if is_beside {
        // Only for a message: a full disk must not keep a host from being restored.
        let _ = file.set_len(0);
        let _ = writeln!(file, "{}", std::process::id());
    }
    Ok(Some(LogLock { _file: file }))
}

/// The process that has, or had, the lock of a log that outlives its process.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    fs::read_to_string(path.with_extension("lock")).ok()?.trim().parse().ok()
}

/// Runs `work` where the owner of a log was: interfaces of other network namespaces may have the
/// same names. When that namespace is gone, so is what was in it, and an empty one takes its place.
pub(crate) fn in_namespace_of<T: Send>(
    head: &Head,
    work: impl FnOnce() -> T + Send,
) -> Result<T, HostError> {
    if head.boot != boot_id()? || head.netns == own_netns()? {
        return Ok(work());
    }
    let file = find_netns(head.netns);
    let enter = || match &file {
        Some(file) => namespace::enter_network(file.as_fd()),
        None => namespace::unshare(&[Namespace::Network]),
    };
    let inside = || enter().map(|()| work());
    let result = thread::scope(|scope| scope.spawn(inside).join());
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

/// Which boot of the host this is.
pub(crate) fn boot_id() -> Result<String, HostError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|e| HostError::file("read", path, e))?;
    Ok(text.trim().to_owned())
}

/// How often the lock of a dead process is tried.
const MAX_TRIES: u32 = 200;
/// How long between two attempts.
const MOMENT: Duration = Duration::from_millis(5);
/// The directory of the logs of processes.
const PROCESSES: &str = "journal";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_logs_of_processes_have_an_owner() {
        let owner = Process { pid: 12, start_ticks: 345 };
        assert_eq!(log_of(owner, 0), "12-345-0.jsonl");
        assert_eq!(owner_of(Path::new("/run/12-345-0.jsonl")), Some(owner));
        for other in ["12.jsonl", "a-b-c.jsonl", "12-345-0.txt", ".jsonl"] {
            assert_eq!(owner_of(Path::new(other)), None, "{other}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names in the BPF file system, which keep programs without a process, and the XDP program of an
//! interface, as far as undoing needs them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use timewire_base::IfName;
use timewire_sys::{machine, namespace};

use crate::HostError;
use crate::journal::{Inverse, Journal, Kind, runtime_dir};
use crate::tool::{self, Tool};

/// Undoes a change of the BPF file system, or of what is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BpfUndo {
    /// Removes a directory of names in the BPF file system with all that is in it, and those above
    /// it that are empty then; what nobody else holds, goes.
    RemovePins {
        /// Absolute path, with at least two directories below the mount.
        path: PathBuf,
    },
    /// Puts the XDP program back that another took the place of, if that is there still.
    RestoreXdp {
        /// The interface, in the namespace of the process that undoes.
        interface: IfName,
        /// Where it runs, as `ip link` says it: `xdpdrv` or `xdpgeneric`.
        mode: String,
        /// The number of the program that took its place.
        taken_by: u32,
        /// The name of the former program in the BPF file system.
        former: PathBuf,
    },
    /// Takes a mount away if nothing is in it, and then the file that says that it is ours.
    UnmountEmpty {
        /// Absolute path.
        path: PathBuf,
        /// The file.
        marker: PathBuf,
    },
}

/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<BpfUndo>(&["remove_pins", "restore_xdp", "unmount_empty"]);

impl Inverse for BpfUndo {
    fn undo(&self) -> Result<(), HostError> {
        match self {
            BpfUndo::RemovePins { path } => {
                remove(path).map_err(|e| HostError::file("remove", path, e))
            }
            BpfUndo::RestoreXdp { interface, mode, taken_by, former } => {
                restore_xdp(interface, mode, *taken_by, former)
            }
            BpfUndo::UnmountEmpty { path, marker } => {
                unmount_empty(path, marker).map_err(|e| HostError::file("unmount", path, e))
            }
        }
    }
}

impl fmt::Display for BpfUndo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BpfUndo::RemovePins { path } => write!(f, "remove {} with its names", path.display()),
            BpfUndo::RestoreXdp { interface, .. } => {
                write!(f, "give {interface} its XDP program back")
            }
            BpfUndo::UnmountEmpty { path, .. } => write!(f, "unmount {}", path.display()),
        }
    }
}

/// Where the BPF file system is by convention.
pub const BPF_MOUNT: &str = "/sys/fs/bpf";

/// The marker of a mount that was made here, in the directory of what lives until a reboot.
const MARKER: &str = "bpffs-is-ours";
/// How long until a lock is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Whether this process has a mount table of its own, which ends with it, as under `ip netns exec`:
/// what is mounted there nobody else sees, and nothing of it stays. Where the table of the first
/// process cannot be asked for, that of the parent tells: it goes on after a command.
pub fn mounts_are_private() -> bool {
    let table = |process: &str| {
        let of = fs::metadata(format!("/proc/{process}/ns/mnt")).ok()?;
        Some((of.dev(), of.ino()))
    };
    let lasting = table("1").or_else(|| table(&parent_id().to_string()));
    matches!((lasting, table("self")), (Some(lasting), Some(ours)) if lasting != ours)
}

/// The right to change what is in the BPF file system, and to take that away: one process at a
/// time has it, until it drops this.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

/// Makes sure that the BPF file system is mounted, and takes its lock; `None` when others hold that
/// for so long. Who gives up later calls [`unmount_if_unused`] without the lock: whoever waited
/// may have found it mounted.
///
/// **Errors**: needs CAP_SYS_ADMIN; the kernel has none.
pub fn mount(journal: &Journal, timeout: Duration) -> Result<Option<Lock>, HostError> {
    let (path, marker) = (PathBuf::from(BPF_MOUNT), marker()?);
    let give_up = Instant::now() + timeout;
    let mut is_recorded = false;
    let mut record = || match std::mem::replace(&mut is_recorded, true) {
        true => Ok(()),
        false => {
            let undo = BpfUndo::UnmountEmpty { path: path.clone(), marker: marker.clone() };
            journal.record(undo).map(drop)
        }
    };
    loop {
        // The lock of the directory below, as long as nothing is mounted.
        let Some(lock) = lock_until(give_up)? else { return Ok(None) };
        if is_mounted()? {
            if exists(&marker)? {
                record()?;
            }
            return Ok(Some(lock));
        }
        record()?;
        fs::write(&marker, "").map_err(|e| HostError::file("write", &marker, e))?;
        machine::mount("bpf", &path, "mode=0700", true)
            .map_err(|e| HostError::file("mount", &path, e))?;
    }
}

/// Takes the lock of the BPF file system that is mounted, or of the directory where it would be;
/// `None` when others hold it for so long.
///
/// **Errors**: this process may not open it.
pub fn lock(timeout: Duration) -> Result<Option<Lock>, HostError> {
    lock_until(Instant::now() + timeout)
}

fn lock_until(give_up: Instant) -> Result<Option<Lock>, HostError> {
    loop {
        if let Some(lock) = try_lock().map_err(|e| HostError::file("lock", BPF_MOUNT, e))? {
            return Ok(Some(lock));
        }
        if Instant::now() > give_up {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The lock, unless somebody has it or the mount has changed meanwhile.
fn try_lock() -> io::Result<Option<Lock>> {
    let directory = File::open(BPF_MOUNT)?;
    if !namespace::try_lock(&directory)? {
        return Ok(None);
    }
    let (ours, now) = (directory.metadata()?, fs::metadata(BPF_MOUNT)?);
    let is_it = (ours.dev(), ours.ino()) == (now.dev(), now.ino());
    Ok(is_it.then_some(Lock { _directory: directory }))
}

/// Whether the BPF file system is at [`BPF_MOUNT`]: one that another mount hides is of no use.
///
/// **Errors**: this process may not look.
pub fn is_mounted() -> Result<bool, HostError> {
    let path = Path::new(BPF_MOUNT);
    match namespace::is_bpf_file_system(path) {
        // A kernel without BPF has no such directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map_err(|e| HostError::file("look at", path, e)),
    }
}

/// Takes the mount away if it is ours and empty and nobody has its lock: see
/// [`BpfUndo::UnmountEmpty`].
///
/// **Errors**: the mount cannot be taken away.
pub fn unmount_if_unused() -> Result<(), HostError> {
    let path = PathBuf::from(BPF_MOUNT);
    BpfUndo::UnmountEmpty { path, marker: marker()? }.undo()
}

fn marker() -> Result<PathBuf, HostError> {
    Ok(runtime_dir()?.join(MARKER))
}

/// See [`BpfUndo::RemovePins`].
fn remove(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return remove_empty_above(path),
        other => other?,
    };
    for entry in entries {
        let entry = entry?.path();
        match fs::remove_file(&entry) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::remove_dir(path)?;
    remove_empty_above(path)
}

/// The two directories above, as long as they are empty.
fn remove_empty_above(path: &Path) -> io::Result<()> {
    for above in path.ancestors().skip(1).take(2) {
        match fs::remove_dir(above) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
                ) => {}
            other => other?,
        }
    }
    Ok(())
}

/// See [`BpfUndo::RestoreXdp`].
fn restore_xdp(
    interface: &IfName,
    mode: &str,
    taken_by: u32,
    former: &Path,
) -> Result<(), HostError> {
    // Gone with the rest when all went well.
    if !former.exists() {
        return Ok(());
    }
    let name = interface.as_str();
    let text = match tool::run(Tool::Ip, &["-j", "link", "show", "dev", name]) {
        Err(HostError::ToolFailed { stderr, .. }) if stderr.contains("does not exist") => {
            return Ok(());
        }
        other => other?,
    };
    let links: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    if links[0]["xdp"]["prog"]["id"].as_u64() != Some(u64::from(taken_by)) {
        return Ok(());
    }
    let former = former.display().to_string();
    let words = ["-force", "link", "set", "dev", name, mode, "pinned", &former];
    tool::run(Tool::Ip, &words).map(drop)
}

/// See [`BpfUndo::UnmountEmpty`]. Whoever has the lock is about to use it, or does this afterwards.
fn unmount_empty(path: &Path, marker: &Path) -> io::Result<()> {
    // A mount, and then what is below, where nothing is left but the marker to be removed. Without
    // its lock, that could be the marker of a mount to come.
    for _ in 0..2 {
        if !marker.try_exists()? {
            return Ok(());
        }
        let Some(_lock) = gone_is_none(try_lock())?.flatten() else { return Ok(()) };
        if gone_is_none(namespace::is_bpf_file_system(path))? != Some(true) {
            return gone_is_none(fs::remove_file(marker)).map(drop);
        }
        // The kernel itself puts names with a dot there.
        let is_used = |entry: &fs::DirEntry| !entry.file_name().to_string_lossy().contains('.');
        if fs::read_dir(path)?.flatten().any(|entry| is_used(&entry)) {
            return Ok(());
        }
        namespace::unmount(path)?;
    }
    Ok(())
}

fn gone_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn exists(path: &Path) -> Result<bool, HostError> {
    path.try_exists().map_err(|e| HostError::file("look at", path, e))
}

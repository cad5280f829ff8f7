// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What undoes a change, as a value. Carrying one out twice is the same as once: what is gone
//! already counts as undone.
//!
//! Not here: when they are carried out (`journal`, `guardian`).

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;
use timewire_sys::namespace::{self, Process};
use timewire_sys::phc::CardClock;
use timewire_sys::steering::{self, Steered};

use crate::groups::Release;
use crate::scheduling::{self, SavedThread};
use crate::tool::{self, Tool, netns_path};
use crate::{HostError, pins, stamping};

/// One action that takes one change back.
///
/// Who records a deletion makes sure first that the thing does not exist yet: what someone else
/// made is not ours to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Undo {
    /// Deletes an interface (and with it the other end, if it is a pair).
    DeleteLink {
        /// Named namespace it is in; none is the one of the process that undoes.
        netns: Option<String>,
        /// The interface.
        name: IfName,
    },
    /// Deletes a named network namespace; what is in it goes with the last process that uses it.
    DeleteNetns {
        /// The name.
        name: String,
    },
    /// Removes a file.
    RemoveFile {
        /// Absolute path.
        path: PathBuf,
    },
    /// Removes an empty directory.
    RemoveDir {
        /// Absolute path.
        path: PathBuf,
    },
    /// Gives an interface an address back.
    AddAddress {
        /// Named namespace it is in; none is the one of the process that undoes.
        netns: Option<String>,
        /// The interface.
        interface: IfName,
        /// Address and prefix length, as `10.77.0.1/24`.
        address: String,
    },
    /// Gives an interface a route back.
    AddRoute {
        /// The interface, in the namespace of the process that undoes.
        interface: IfName,
        /// The route as `ip route` takes it: `default via 10.77.0.254 metric 100`; the default
        /// route of IPv6 is `::/0`.
        route: String,
    },
    /// Takes an interface down again.
    SetLinkDown {
        /// The interface, in the namespace of the process that undoes.
        name: IfName,
    },
    /// Takes the queueing discipline at the root of an interface away, which gives it the one that
    /// the kernel puts there by itself.
    DeleteRootQdisc {
        /// The interface, in the namespace of the process that undoes.
        interface: IfName,
    },
    /// Gives a setting of the kernel, a file under `/proc/sys` or `/sys`, its former value.
    WriteSetting {
        /// Absolute path.
        path: PathBuf,
        /// The value.
        value: String,
    },
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
    /// Kills a process that should not outlive its owner.
    KillProcess {
        /// Its number.
        pid: u32,
        /// When it started, clock ticks since boot; tells it from a later one of the same number.
        start_ticks: u64,
    },
    /// Lets a clock go as fast as it went before a daemon steered it. What the daemon stepped it by
    /// stays: the time before was not better, and time has passed since.
    RestoreSteering {
        /// The number of a card's clock; `None` is the system's.
        card: Option<u32>,
        /// Parts per million times 65536; `None` when none of our daemons steered it, because
        /// whoever did may have changed it since.
        frequency: Option<i64>,
        /// TAI - UTC that the kernel had; only of the system's clock.
        tai_offset_s: Option<i32>,
        /// Whether a daemon kept it synchronised; only of the system's clock.
        synchronised: Option<bool>,
    },
    /// Lets a card stamp what it stamped before, if it still stamps what it was told to: whoever
    /// told it something else since, needs that.
    RestoreStampFilters {
        /// The interface, in the namespace of the process that undoes.
        interface: IfName,
        /// What it stamped of sent frames, and what it was told to: `HWTSTAMP_TX_...`.
        tx: [i32; 2],
        /// The same of received frames: `HWTSTAMP_FILTER_...`.
        rx: [i32; 2],
    },
    /// Gives the threads of a process the scheduling they had.
    RestoreScheduling {
        /// The process.
        pid: u32,
        /// When it started, clock ticks since boot.
        start_ticks: u64,
        /// The `SCHED_FIFO` priority its threads were given.
        given: u8,
        /// What each thread had; the first one's is for threads that were born later.
        threads: Vec<SavedThread>,
    },
    /// Lets a member of a scheduling group go: what it had, where it was.
    ReleaseMember(Release),
}

impl Undo {
    /// Does it. Gone already is fine.
    ///
    /// **Errors**: the kernel or a tool refuses.
    pub fn carry_out(&self) -> Result<(), HostError> {
        match self {
            Undo::DeleteLink { netns, name } => delete_link(netns.as_deref(), name),
            Undo::DeleteNetns { name } => delete_netns(name),
            Undo::RemoveFile { path } => {
                gone_is_fine(fs::remove_file(path)).map_err(|e| HostError::file("remove", path, e))
            }
            Undo::RemoveDir { path } => {
                gone_is_fine(fs::remove_dir(path)).map_err(|e| HostError::file("remove", path, e))
            }
            Undo::AddAddress { netns, interface, address } => {
                add_address(netns.as_deref(), interface, address)
            }
            Undo::AddRoute { interface, route } => {
                // Appended, since the same route through another interface can still be there.
                let line = format!("route append {route} dev {interface}");
                let result = tool::batch(Tool::Ip, None, &[line]);
                unless_it_says(unless_it_says(result, "File exists"), "Cannot find device")
            }
            Undo::SetLinkDown { name } => {
                let line = format!("link set {name} down");
                unless_it_says(tool::batch(Tool::Ip, None, &[line]), "Cannot find device")
            }
            Undo::DeleteRootQdisc { interface } => {
                let line = format!("qdisc del dev {interface} root");
                let result = tool::batch(Tool::Tc, None, &[line]);
                let result = unless_it_says(result, "handle of zero");
                unless_it_says(unless_it_says(result, "No such file"), "Cannot find device")
            }
            Undo::WriteSetting { path, value } => {
                gone_is_fine(fs::write(path, value)).map_err(|e| HostError::file("write", path, e))
            }
            Undo::RemovePins { path } => {
                pins::remove(path).map_err(|e| HostError::file("remove", path, e))
            }
            Undo::RestoreXdp { interface, mode, taken_by, former } => {
                pins::restore_xdp(interface, mode, *taken_by, former)
            }
            Undo::UnmountEmpty { path, marker } => {
                pins::unmount_empty(path, marker).map_err(|e| HostError::file("unmount", path, e))
            }
            Undo::KillProcess { pid, start_ticks } => {
                let process = Process { pid: *pid, start_ticks: *start_ticks };
                process.kill().map_err(|e| HostError::kernel(format!("kill process {pid}"), e))
            }
            Undo::RestoreSteering { card, frequency, tai_offset_s, synchronised } => {
                restore_steering(*card, *frequency, *tai_offset_s, *synchronised)
                    .map_err(|e| HostError::kernel(self.to_string(), e))
            }
            Undo::RestoreStampFilters { interface, tx, rx } => {
                stamping::restore(interface, *tx, *rx)
                    .map_err(|e| HostError::kernel(self.to_string(), e))
            }
            Undo::RestoreScheduling { pid, start_ticks, given, threads } => {
                let process = Process { pid: *pid, start_ticks: *start_ticks };
                scheduling::restore(process, *given, threads)
            }
            Undo::ReleaseMember(release) => release.carry_out(),
        }
    }

    /// Whether it is about files. Processes, interfaces and settings of the kernel are made anew by
    /// a reboot; what has the same name then is not what was changed.
    pub(crate) fn outlives_a_reboot(&self) -> bool {
        matches!(self, Undo::RemoveFile { .. } | Undo::RemoveDir { .. })
    }
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |netns: &Option<String>| match netns {
            Some(netns) => format!(" in {netns}"),
            None => String::new(),
        };
        match self {
            Undo::DeleteLink { netns, name } => {
                write!(f, "delete interface {name}{}", place(netns))
            }
            Undo::DeleteNetns { name } => write!(f, "delete network namespace {name}"),
            Undo::RemoveFile { path } => write!(f, "remove {}", path.display()),
            Undo::RemoveDir { path } => write!(f, "remove directory {}", path.display()),
            Undo::AddAddress { netns, interface, address } => {
                write!(f, "give {interface}{} its address {address} back", place(netns))
            }
            Undo::AddRoute { interface, route } => {
                write!(f, "give {interface} its route `{route}` back")
            }
            Undo::SetLinkDown { name } => write!(f, "set interface {name} down"),
            Undo::DeleteRootQdisc { interface } => {
                write!(f, "take the queueing discipline of {interface} away")
            }
            Undo::WriteSetting { path, value } => {
                write!(f, "set {} back to {value}", path.display())
            }
            Undo::RemovePins { path } => write!(f, "remove {} with its names", path.display()),
            Undo::RestoreXdp { interface, .. } => {
                write!(f, "give {interface} its XDP program back")
            }
            Undo::UnmountEmpty { path, .. } => write!(f, "unmount {}", path.display()),
            Undo::KillProcess { pid, .. } => write!(f, "end process {pid}"),
            Undo::RestoreSteering { card: None, frequency: None, .. } => {
                f.write_str("give the kernel its TAI - UTC back")
            }
            Undo::RestoreSteering { card: None, .. } => {
                f.write_str("let the system's clock go as before")
            }
            Undo::RestoreSteering { card: Some(number), .. } => {
                write!(f, "let the clock /dev/ptp{number} go as before")
            }
            Undo::RestoreStampFilters { interface, .. } => {
                write!(f, "let the card of {interface} stamp what it stamped before")
            }
            Undo::RestoreScheduling { pid, .. } => {
                write!(f, "restore the scheduling of process {pid}")
            }
            Undo::ReleaseMember(release) => {
                write!(f, "release process {} from its group", release.pid)
            }
        }
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A card that is gone is as it was.
fn restore_steering(
    card: Option<u32>,
    frequency: Option<i64>,
    tai_offset_s: Option<i32>,
    synchronised: Option<bool>,
) -> io::Result<()> {
    let set = |clock: Steered<'_>| {
        frequency.map_or(Ok(()), |frequency| steering::set_frequency(clock, frequency))
    };
    let Some(number) = card else {
        set(Steered::System)?;
        if let Some(seconds) = tai_offset_s
            && steering::steering(Steered::System)?.tai_offset_s != seconds
        {
            steering::set_tai_offset(seconds)?;
        }
        return synchronised.map_or(Ok(()), steering::set_synchronised);
    };
    match CardClock::open(number) {
        Ok(clock) => set(Steered::Card(clock.device())),
        Err(error) => gone_is_fine(Err(error)),
    }
}

/// The same two steps as `ip netns del`, without a process for each.
fn delete_netns(name: &str) -> Result<(), HostError> {
    let what = || format!("delete network namespace {name}");
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "this is no name");
        return Err(HostError::kernel(what(), source));
    }
    let path = netns_path(name);
    match namespace::unmount(&path) {
        Ok(()) => {}
        // InvalidInput: a file without a mount, left when making the namespace was cut short.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(HostError::kernel(what(), e)),
    }
    gone_is_fine(fs::remove_file(&path)).map_err(|e| HostError::kernel(what(), e))
}

fn delete_link(netns: Option<&str>, name: &IfName) -> Result<(), HostError> {
    if netns.is_some_and(|netns| !netns_path(netns).exists()) {
        return Ok(());
    }
    let result = tool::batch(Tool::Ip, netns, &[format!("link del dev {name}")]);
    unless_it_says(result, "Cannot find device")
}

fn add_address(netns: Option<&str>, interface: &IfName, address: &str) -> Result<(), HostError> {
    if netns.is_some_and(|netns| !netns_path(netns).exists()) {
        return Ok(());
    }
    let line = format!("addr add {address} dev {interface}");
    let result = tool::batch(Tool::Ip, netns, &[line]);
    // Linux 6 has words of its own for an address that is there.
    let result = unless_it_says(unless_it_says(result, "File exists"), "already assigned");
    unless_it_says(result, "Cannot find device")
}

/// A failure with this message means that there is nothing left to do.
fn unless_it_says(result: Result<(), HostError>, message: &str) -> Result<(), HostError> {
    match result {
        Err(HostError::ToolFailed { stderr, .. }) if stderr.contains(message) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_how_fast_a_clock_went_is_put_back_only_when_it_was_written_down() {
        let text = r#"{"kind": "restore_steering", "card": null, "frequency": FREQUENCY,
            "tai_offset_s": 37, "synchronised": null}"#;
        let undo = |frequency| -> Undo {
            serde_json::from_str(&text.replace("FREQUENCY", frequency)).unwrap()
        };
        assert_eq!(undo("7").to_string(), "let the system's clock go as before");
        assert_eq!(undo("null").to_string(), "give the kernel its TAI - UTC back");
        // Nothing was written down, so nothing is asked of the kernel, with any rights.
        restore_steering(None, None, None, None).unwrap();
    }

    #[test]
    fn t0_undo_survives_json() {
        let link = Undo::DeleteLink { netns: Some("n".into()), name: IfName::new("tw0").unwrap() };
        let text = serde_json::to_string(&link).unwrap();
        assert_eq!(text, r#"{"kind":"delete_link","netns":"n","name":"tw0"}"#);
        assert_eq!(serde_json::from_str::<Undo>(&text).unwrap(), link);
        assert_eq!(link.to_string(), "delete interface tw0 in n");
    }

    #[test]
    fn t0_what_is_gone_is_undone() {
        let path = std::env::temp_dir().join(format!("timewire-undo-{}", std::process::id()));
        let (file, dir) = (path.join("file"), path.clone());
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "x").unwrap();
        let remove_dir = Undo::RemoveDir { path: dir };
        assert!(remove_dir.carry_out().unwrap_err().to_string().starts_with("cannot remove"));
        for undo in [Undo::RemoveFile { path: file }, remove_dir] {
            undo.carry_out().unwrap();
            undo.carry_out().unwrap();
        }
        assert!(!path.exists());
        for undo in [
            Undo::DeleteNetns { name: "no-such-namespace".into() },
            Undo::DeleteLink {
                netns: Some("no-such-namespace".into()),
                name: IfName::new("x").unwrap(),
            },
            Undo::KillProcess { pid: std::process::id(), start_ticks: 1 },
            Undo::RestoreScheduling { pid: 1, start_ticks: 9, given: 1, threads: Vec::new() },
        ] {
            undo.carry_out().unwrap();
        }
    }

    #[test]
    fn t0_a_namespace_name_cannot_leave_its_directory() {
        for name in ["", ".", "..", "../x", "/etc/passwd"] {
            assert!(Undo::DeleteNetns { name: name.into() }.carry_out().is_err(), "{name}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What undoes the changes that belong to no feature: of interfaces, network namespaces, files and
//! processes.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use timewire_base::IfName;
use timewire_sys::namespace::{self, Process};

use crate::HostError;
use crate::expiry::{Expiry, Uptime};
use crate::journal::{Inverse, Kind};
use crate::tool::{self, Tool, netns_path};

/// One action that takes one change back.
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
        /// Address and prefix length with all that it had, as `10.77.0.1/24 brd 10.77.0.255`.
        address: String,
        /// When it ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expiry: Option<Expiry>,
    },
    /// Takes an address away from an interface.
    DeleteAddress {
        /// The interface, in the namespace of the process that undoes.
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
    /// Takes the discipline `clsact` of an interface away, with its filters.
    DeleteClsact {
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
    /// Kills a process that should not outlive its owner.
    KillProcess {
        /// Its number.
        pid: u32,
        /// When it started, clock ticks since boot; tells it from a later one of the same number.
        start_ticks: u64,
    },
}

/// Of undo logs.
pub(crate) const KIND: Kind = Kind::of::<Undo>(&[
    "delete_link",
    "delete_netns",
    "remove_file",
    "remove_dir",
    "add_address",
    "delete_address",
    "add_route",
    "set_link_down",
    "delete_root_qdisc",
    "delete_clsact",
    "write_setting",
    "kill_process",
]);

impl Inverse for Undo {
    fn undo(&self) -> Result<(), HostError> {
        match self {
            Undo::DeleteLink { netns, name } => delete_link(netns.as_deref(), name),
            Undo::DeleteNetns { name } => delete_netns(name),
            Undo::RemoveFile { path } => {
                gone_is_fine(fs::remove_file(path)).map_err(|e| HostError::file("remove", path, e))
            }
            Undo::RemoveDir { path } => {
                gone_is_fine(fs::remove_dir(path)).map_err(|e| HostError::file("remove", path, e))
            }
            Undo::AddAddress { netns, interface, address, expiry } => {
                let times = expiry.map(|expiry| expiry.words(Uptime::now()));
                match times {
                    // It would have ended by now.
                    Some(None) => Ok(()),
                    Some(Some(times)) => {
                        add_address(netns.as_deref(), interface, &format!("{address}{times}"))
                    }
                    None => add_address(netns.as_deref(), interface, address),
                }
            }
            Undo::DeleteAddress { interface, address } => {
                let line = format!("addr del {address} dev {interface}");
                let result = tool::batch(Tool::Ip, None, &[line]);
                let result = unless_it_says(result, "Cannot assign requested address");
                let result = unless_it_says(result, "Address not found");
                unless_it_says(result, "Cannot find device")
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
            Undo::DeleteClsact { interface } => {
                let line = format!("qdisc del dev {interface} clsact");
                let result = tool::batch(Tool::Tc, None, &[line]);
                let result = unless_it_says(result, "Invalid handle");
                unless_it_says(unless_it_says(result, "No such file"), "Cannot find device")
            }
            Undo::WriteSetting { path, value } => {
                gone_is_fine(fs::write(path, value)).map_err(|e| HostError::file("write", path, e))
            }
            Undo::KillProcess { pid, start_ticks } => {
                let process = Process { pid: *pid, start_ticks: *start_ticks };
                process.kill().map_err(|e| HostError::kernel(format!("kill process {pid}"), e))
            }
        }
    }

    fn outlives_a_reboot(&self) -> bool {
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
            Undo::AddAddress { netns, interface, address, .. } => {
                write!(f, "give {interface}{} its address {address} back", place(netns))
            }
            Undo::DeleteAddress { interface, address } => {
                write!(f, "take the address {address} of {interface} away")
            }
            Undo::AddRoute { interface, route } => {
                write!(f, "give {interface} its route `{route}` back")
            }
            Undo::SetLinkDown { name } => write!(f, "set interface {name} down"),
            Undo::DeleteRootQdisc { interface } => {
                write!(f, "take the queueing discipline of {interface} away")
            }
            Undo::DeleteClsact { interface } => {
                write!(f, "take the discipline clsact of {interface} away")
            }
            Undo::WriteSetting { path, value } => {
                write!(f, "set {} back to {value}", path.display())
            }
            Undo::KillProcess { pid, .. } => write!(f, "end process {pid}"),
        }
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
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
        assert!(remove_dir.undo().unwrap_err().to_string().starts_with("cannot remove"));
        for undo in [Undo::RemoveFile { path: file }, remove_dir] {
            undo.undo().unwrap();
            undo.undo().unwrap();
        }
        assert!(!path.exists());
        for undo in [
            Undo::DeleteNetns { name: "no-such-namespace".into() },
            Undo::DeleteLink {
                netns: Some("no-such-namespace".into()),
                name: IfName::new("x").unwrap(),
            },
            Undo::KillProcess { pid: std::process::id(), start_ticks: 1 },
        ] {
            undo.undo().unwrap();
        }
    }

    #[test]
    fn t0_a_namespace_name_cannot_leave_its_directory() {
        for name in ["", ".", "..", "../x", "/etc/passwd"] {
            assert!(Undo::DeleteNetns { name: name.into() }.undo().is_err(), "{name}");
        }
    }
}

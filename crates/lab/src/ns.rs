// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doing something inside a network namespace while the caller stays outside.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use timewire_sys::namespace;

pub use timewire_sys::namespace::OnParentDeath;

use crate::LabError;

/// Runs a closure on a thread of its own inside a network namespace. Sockets it opens stay in that
/// namespace for good; processes it starts are in it too, but see [`spawn`] for those that are to
/// die with their parent.
///
/// **Errors**: the namespace cannot be entered; the closure has not run then.
///
/// **Panics** when the closure does.
pub fn in_namespace<T: Send>(netns: &Path, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    let file = open(netns)?;
    let inside = || namespace::enter_network(file.as_fd()).map(|()| work());
    let result = thread::scope(|scope| scope.spawn(inside).join());
    match result {
        Ok(result) => result.map_err(|e| failed("enter", netns, e)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// In the namespace of the calling thread, whether interfaces to come have IPv6: then with the
/// address that they are given and without asking for a router. Without, neighbour discovery and
/// multicast reports do not appear on the segment.
///
/// **Errors**: a setting cannot be written. A kernel without IPv6 needs none.
pub fn set_ipv6(wanted: bool) -> io::Result<()> {
    let settings: &[(&str, &str)] = if wanted {
        &[("addr_gen_mode", "1"), ("accept_ra", "0"), ("router_solicitations", "0")]
    } else {
        &[("disable_ipv6", "1")]
    };
    for scope in ["all", "default"] {
        for (setting, value) in settings {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/{setting}");
            if Path::new(&path).exists() {
                fs::write(path, value)?;
            }
        }
    }
    Ok(())
}

/// Starts a child inside a network namespace.
///
/// With [`OnParentDeath::Kill`] it dies with the calling *thread*; start it from one that lives as
/// long as the child should.
///
/// **Errors**: the namespace cannot be entered or the program not be started.
pub fn spawn(
    netns: &Path,
    command: Command,
    on_parent_death: OnParentDeath,
) -> Result<Child, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = open(netns)?;
    namespace::spawn(command, Some(&file), on_parent_death)
        .map_err(|e| failed(&format!("start {program} in"), netns, e))
}

fn open(netns: &Path) -> Result<File, LabError> {
    File::open(netns).map_err(|e| failed("open", netns, e))
}

fn failed(what: &str, netns: &Path, source: io::Error) -> LabError {
    LabError::Namespace { what: format!("{what} network namespace {}", netns.display()), source }
}

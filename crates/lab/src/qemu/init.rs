// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first process of an emulated machine, until the host's files are its root: it loads modules,
//! mounts the host's files over 9p, and becomes the first process of [`crate::guest`].

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use timewire_sys::machine;

use crate::guest;

/// The argument that tells a program that it is the first process of an emulated machine.
pub const VERB: &str = "__qemu-init";
/// Where the archive has the list of the modules, in the order of loading.
pub const MODULES: &str = "/modules.order";
/// Where it has what comes next.
pub const NEXT: &str = "/next.json";
/// Directories that the archive has to have.
pub const DIRECTORIES: [&str; 4] = ["dev", "proc", "sys", "host"];
/// The tag of the host's files.
pub const HOST: &str = "host";
/// Writing here ends the emulator with an exit code of its own.
pub const EXIT_PORT: u64 = 0xf4;

/// What the first process becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// A program that begins with [`crate::enter_guest`], by its path on the host.
    pub program: PathBuf,
    /// The file of its job, by its path on the host.
    pub job: PathBuf,
    /// Whether the host's files become the root; else it stays as it is.
    pub on_host_files: bool,
}

/// Whether this process was started as the first of an emulated machine.
pub fn is_first_process(arguments: &[String]) -> bool {
    matches!(arguments, [_, verb, ..] if verb == VERB) && std::process::id() == 1
}

/// Does what is to be done, and never returns.
pub fn main() -> ! {
    let Err((what, error)) = become_next();
    eprintln!("timewire: the machine cannot {what}: {error}");
    let port = File::options().write(true).open("/dev/port");
    if let Ok(mut port) = port
        && port.seek(SeekFrom::Start(EXIT_PORT)).is_ok()
    {
        let _ = port.write_all(&[1]);
    }
    // Without that port the kernel panics when its first process ends, and the machine with it.
    std::process::exit(1)
}

type Step<T> = Result<T, (String, io::Error)>;

/// Says what was being done when something fails.
fn step<T>(what: impl Into<String>, result: io::Result<T>) -> Step<T> {
    result.map_err(|error| (what.into(), error))
}

fn become_next() -> Step<Infallible> {
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        let mounted = machine::mount(kind, Path::new(target), "", true);
        step(format!("mount {kind} on {target}"), mounted)?;
    }
    let text = step("read what comes next", fs::read(NEXT))?;
    let next = serde_json::from_slice(&text).map_err(io::Error::from);
    let next: Next = step("understand what comes next", next)?;
    load_modules()?;
    if next.on_host_files {
        let mounted = machine::mount_from("9p", HOST, Path::new("/host"), HOST_OPTIONS, false);
        step("mount the host's files", mounted)?;
        step("make them the root", machine::change_root(Path::new("/host")))?;
    }
    let error = Command::new(&next.program).arg(guest::INIT_VERB).arg(&next.job).exec();
    Err((format!("start {}", next.program.display()), error))
}

fn load_modules() -> Step<()> {
    let order = step("read the list of modules", fs::read_to_string(MODULES))?;
    for name in order.lines() {
        let path = format!("/modules/{name}");
        let file = step(format!("open {path}"), File::open(&path))?;
        // A machine without it is a machine all the same; what needs it says so.
        if let Err(error) = machine::load_module(&file, false) {
            eprintln!("timewire: no module {name}: {error}");
        }
        // It takes up the machine's memory.
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

/// What was read once is kept: the host's files do not change for a machine.
const HOST_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_only_the_first_process_is_a_machines() {
        let arguments = ["x", VERB].map(str::to_owned);
        assert!(!is_first_process(&arguments));
        assert!(!is_first_process(&[]));
    }
}

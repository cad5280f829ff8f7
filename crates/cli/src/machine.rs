// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of the laboratory that has the stations of a run: this same command goes on in it,
//! and records into the run directory.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use timewire_lab::uml::{Kernel, Time};
use timewire_lab::{LabError, qemu};

use crate::ending::Ending;
use crate::lab;
use crate::output;
use crate::place::{Place, Where};

/// Enough for four stations with their buffers.
const MEMORY_MIB: u32 = 1_024;

/// A machine that does not run yet.
pub enum RunMachine {
    /// User-Mode Linux.
    Uml(Kernel, Time),
    /// An emulated machine.
    Qemu(qemu::Kernel),
}

impl RunMachine {
    /// The one of a place.
    ///
    /// **Errors**: its kernel is not there.
    pub fn find(place: &Where) -> anyhow::Result<RunMachine> {
        if place.on == Place::LabQemu {
            return Ok(RunMachine::Qemu(qemu::Kernel::find(place.kernel.as_deref())?));
        }
        let kernel = Kernel::find(place.kernel.as_deref())?;
        let time = lab::time_for(place.time, &kernel);
        Ok(RunMachine::Uml(kernel, time))
    }

    /// Its kernel, and how time passes.
    pub fn described(&self) -> String {
        let of = |release: &str, package: &str, version: &str, configuration: &str, time: &str| {
            format!("Linux {release} ({package} {version}, configuration {configuration}), {time}")
        };
        match self {
            RunMachine::Uml(kernel, time) => {
                let about = kernel.about();
                let time = match time {
                    Time::Wall => "at wall speed",
                    _ => "in virtual time",
                };
                let (package, version) = (&about.package, &about.package_version);
                of(&about.release, package, version, &about.configuration, time)
            }
            RunMachine::Qemu(kernel) => {
                let about = kernel.about();
                let time = "emulated, a nanosecond for each instruction";
                let (package, version) = (&about.package, &about.package_version);
                of(&about.release, package, version, &about.configuration, time)
            }
        }
    }

    /// Runs a command that may write into a directory; its exit code, of which there is none when
    /// somebody asked this process to end before: the machine ends with it, and records stay.
    ///
    /// **Errors**: the machine failed.
    pub fn run(self, command: Vec<String>, directory: &Path) -> anyhow::Result<Option<u8>> {
        let ending = Ending::new()?;
        let shown = if io::stderr().is_terminal() { "1" } else { "0" };
        let progress = (output::PROGRESS.to_owned(), shown.to_owned());
        let connection = lab::to_our_descriptors(Vec::new())?;
        let writable = vec![directory.to_owned()];
        let finished = match self {
            RunMachine::Uml(kernel, time) => {
                let mut machine = lab::machine_like_this(command, time)?;
                machine.environment.push(progress);
                machine.writable = writable;
                machine.memory_mib = MEMORY_MIB;
                machine.connection = connection;
                lab::run_until_asked(machine, &kernel, &ending)
            }
            RunMachine::Qemu(kernel) => {
                let mut machine = lab::emulated_like_this(command)?;
                machine.environment.push(progress);
                machine.writable = writable;
                machine.memory_mib = MEMORY_MIB;
                machine.connection = connection;
                machine.run_while(&kernel, &mut || !ending.is_asked()).map_err(Into::into)
            }
        };
        match finished {
            Ok(finished) => Ok(Some(finished.outcome.code)),
            Err(error) => match error.downcast_ref() {
                Some(LabError::EndRequested) => Ok(None),
                _ => Err(error),
            },
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inside the machine: each definition with the commands that the model prints, and where that
//! comes to another end than it describes, as it stands; in a network namespace of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use regex::RegexBuilder;
use serde::{Deserialize, Serialize};
use timewire_sys::namespace::{self, Namespace};
use timewire_tsn::qdisc::{Qdisc, QdiscCommand, ShownQdisc, Taprio, TaprioOptions};

use crate::definition::{Definition, Reading, Step, instead, read_all, reading};

/// What came of a definition.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ran {
    /// Which one.
    pub id: String,
    /// With the commands that the model prints.
    pub rendered: Came,
    /// As it stands; not run when the other came to the end that the definition describes.
    pub original: Option<Came>,
}

/// What came of it one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// It ran.
    Ended {
        /// The command's exit code; `None` when the model refused it, and nothing ran.
        code: Option<i32>,
        /// How often the pattern was there afterwards.
        matches: usize,
    },
    /// Something before the command failed.
    Failed(String),
    /// What `tc -j` shows afterwards is read as something else than was set.
    Misread(String),
    /// A program that it needs is not there.
    Skipped(String),
}

impl Came {
    /// Whether it is what the definition describes.
    pub fn fits(&self, definition: &Definition) -> bool {
        let (code, matches) = (Some(definition.exit), definition.count);
        *self == Came::Ended { code, matches }
    }
}

/// Runs all definitions and prints a [`Ran`] per line.
pub fn main(tc_testing: &Path) {
    for definition in read_all(tc_testing) {
        let rendered = run(&definition, tc_testing, true);
        let fits = rendered.fits(&definition);
        let original = (!fits).then(|| run(&definition, tc_testing, false));
        let ran = Ran { id: definition.id, rendered, original };
        println!("{}", serde_json::to_string(&ran).expect("plain values"));
    }
}

/// Where commands are run.
pub struct GuestDirectory<'a> {
    /// The working directory.
    pub directory: &'a Path,
}

impl GuestDirectory<'_> {
    /// Runs a line.
    pub fn shell(&self, line: &str) -> Output {
        let shell = Command::new("sh").args(["-c", line]).current_dir(self.directory).output();
        shell.expect("a shell")
    }

    /// Whether the kernel has, by `tc -j`, what the command has set.
    pub fn reads_back(&self, command: &QdiscCommand) -> Result<(), String> {
        let Some(set) = command.qdisc() else { return Ok(()) };
        let output = self.shell(&format!("tc -j -d qdisc show dev {}", command.device()));
        let shown = ShownQdisc::parse(&said(&output)).map_err(|error| error.to_string())?;
        let found = shown.iter().find(|shown| {
            shown.kind == set.kind().as_str()
                && (shown.place == command.place() || command.handle() == shown.handle)
        });
        let found = found.and_then(ShownQdisc::configured).ok_or("it is not shown")?;
        // The kernel fills in a cycle-time that was not given.
        if whole(found.clone()) == whole(set.clone()) {
            return Ok(());
        }
        Err(format!("set {set}; shown {found}"))
    }

    fn steps(&self, steps: &[Step], rendered: bool) -> Result<(), String> {
        for step in steps {
            let line = if rendered { instead(&step.line) } else { Some(step.line.clone()) };
            let Some(line) = line else { continue };
            let output = self.shell(&line);
            if !output.status.code().is_some_and(|code| step.codes.contains(&code)) {
                return Err(format!("`{line}`: {}", said(&output).trim()));
            }
        }
        Ok(())
    }
}

/// What the kernel's own test program takes for the output of a command.
fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !errors.is_empty() {
        return errors.into_owned();
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// In a network namespace that nothing else is in; the one before goes with this one's coming.
fn run(definition: &Definition, directory: &Path, rendered: bool) -> Came {
    let place = GuestDirectory { directory };
    if let Some(line) = &definition.depends_on {
        let output = place.shell(line);
        if !output.status.success() {
            return Came::Skipped(format!("`{line}`: {}", said(&output).trim()));
        }
    }
    namespace::unshare(&[Namespace::Network]).expect("a network namespace");
    let output = place.shell("ip link add dummy1 up type dummy");
    let came = if output.status.success() {
        part(definition, &place, rendered)
    } else {
        Came::Failed(format!("a dummy interface: {}", said(&output).trim()))
    };
    // Fails when the definition has taken its device away itself.
    let _ = fs::write("/sys/bus/netdevsim/del_device", "1");
    came
}

fn part(definition: &Definition, place: &GuestDirectory<'_>, rendered: bool) -> Came {
    if let Err(why) = place.steps(&definition.setup, rendered) {
        return Came::Failed(format!("setup: {why}"));
    }
    let read = reading(&definition.command);
    let line = match &read {
        Reading::Rendered(command) if rendered => Some(command.to_string()),
        Reading::Refused(_) if rendered => None,
        _ => Some(definition.command.clone()),
    };
    let code = line.map(|line| place.shell(&line).status.code().unwrap_or(-1));
    if let (Reading::Rendered(command), Some(0), true) = (&read, code, rendered)
        && let Err(why) = place.reads_back(command)
    {
        return Came::Misread(why);
    }
    let shown = said(&place.shell(&definition.verify));
    let matches = RegexBuilder::new(&definition.pattern)
        .dot_matches_new_line(true)
        .multi_line(true)
        .build()
        .map_or(usize::MAX, |pattern| pattern.find_iter(&shown).count());
    if let Err(why) = place.steps(&definition.teardown, rendered) {
        return Came::Failed(format!("teardown: {why}"));
    }
    Came::Ended { code, matches }
}

fn whole(qdisc: Qdisc) -> Qdisc {
    let Qdisc::Taprio(taprio) = &qdisc else { return qdisc };
    let options = TaprioOptions { cycle_time: taprio.cycle(), ..taprio.options().clone() };
    Taprio::new(options).map_or(qdisc, Qdisc::Taprio)
}

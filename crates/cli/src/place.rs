// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--on`: the place with the stations of an experiment.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use serde_json::json;
use timewire_base::Span;
use timewire_model::scenario::FileKind;
use timewire_model::scenario::hosts_file::HostsFile;
use timewire_runner::network::Obstacle;
use timewire_runner::rundir::RunRequest;

use crate::lab::LabTime;
use crate::traffic::parse_time;
use crate::{input, output};

/// Where an experiment runs.
#[derive(Debug, Args)]
pub struct Where {
    /// Where the stations are: `lab` (network namespaces on this kernel), `lab:uml` (a kernel of
    /// its own with all queueing disciplines, in virtual time: exact and repeatable), `lab:qemu`
    /// (the distribution's kernel in an emulated machine, where computing takes time), `sim` (the
    /// simulator: hosts that take no time, without privileges and in a moment), or a hosts file,
    /// which names agents [default: `lab`; `lab:uml` for networks with links and for programs
    /// without streams]
    ///
    /// Of `run` several, one after the other: the results are in one directory, and side by side.
    #[arg(long = "on", id = "on", value_name = "PLACE", value_parser = parse_place)]
    given: Vec<Place>,
    /// The same, or the default.
    #[arg(skip)]
    pub on: Place,
    /// With a hosts file: the clocks of its stations are at most so far apart; programs of `phases`
    /// have it in TIMEWIRE_CLOCK_ERROR
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub clock_error: Option<Span>,
    /// With lab:uml or lab:qemu: the kernel series, such as 6.1 [default: 6.12, or the newest that
    /// is there]
    #[arg(long, value_name = "SERIES")]
    pub kernel: Option<String>,
    /// With lab:uml: how time passes
    #[arg(long, value_enum)]
    pub time: Option<LabTime>,
    /// Only record; another process computes the rest
    #[arg(long, hide = true, value_name = "MACHINE")]
    pub record_for: Option<String>,
}

impl Where {
    /// The hosts of this file, and no other option.
    pub fn hosts(path: &Path) -> Where {
        let on = Place::Hosts(path.to_owned());
        let given = vec![on.clone()];
        Where { given, on, clock_error: None, kernel: None, time: None, record_for: None }
    }

    /// Takes the place that was asked for, or else this one.
    pub fn settle(&mut self, default: Place) {
        self.on = self.given.first().cloned().unwrap_or(default);
    }

    /// All places that were asked for.
    pub fn all(&self) -> &[Place] {
        &self.given
    }

    /// Whether at most one place is asked for.
    ///
    /// **Errors**: there are several.
    pub fn refuse_several(&self, what: &str) -> anyhow::Result<()> {
        anyhow::ensure!(self.given.len() < 2, "{what} runs in one place: write one `--on`");
        Ok(())
    }

    /// The same with one of the places, and the options that are for it.
    pub fn with(&self, place: &Place) -> Where {
        let is_machine = matches!(place, Place::LabUml | Place::LabQemu);
        Where {
            given: vec![place.clone()],
            on: place.clone(),
            clock_error: self.clock_error.filter(|_| matches!(place, Place::Hosts(_))),
            kernel: self.kernel.clone().filter(|_| is_machine),
            time: self.time.filter(|_| *place == Place::LabUml),
            record_for: None,
        }
    }

    /// Where this process has the stations: one that records for another is in its laboratory.
    pub fn here(&self) -> &Place {
        if self.record_for.is_some() { &Place::Lab } else { &self.on }
    }

    /// The words of the command line that name the place of a run, for one that goes on.
    pub fn words(&self) -> (String, Vec<String>) {
        let place = word(&self.on);
        let mut options = Vec::new();
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        if let Some(error) = self.clock_error {
            add("--clock-error", error.to_string());
        }
        if let Some(kernel) = &self.kernel {
            add("--kernel", kernel.clone());
        }
        if let Some(time) = self.time.and_then(|time| time.to_possible_value()) {
            add("--time", time.get_name().to_owned());
        }
        (place.to_owned(), options)
    }

    /// Whether its options are for its place.
    ///
    /// **Errors**: one is not.
    pub fn check(&self) -> anyhow::Result<()> {
        let is_machine = matches!(self.on, Place::LabUml | Place::LabQemu);
        if !is_machine && self.kernel.is_some() {
            anyhow::bail!(
                "--kernel is for `--on lab:uml` and `--on lab:qemu`; other kernels are as they are"
            );
        }
        if self.on != Place::LabUml && self.time.is_some() {
            anyhow::bail!("--time is for `--on lab:uml`; elsewhere time passes as it does");
        }
        if self.clock_error.is_some() && !matches!(self.on, Place::Hosts(_)) {
            anyhow::bail!(
                "--clock-error is for hosts; the stations of a laboratory and of a simulation \
                 share a clock"
            );
        }
        Ok(())
    }
}

/// A place with stations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Network namespaces on this kernel, at its own speed.
    #[default]
    Lab,
    /// A kernel of its own with all queueing disciplines, in virtual time.
    LabUml,
    /// The distribution's kernel in an emulated machine, in which each instruction takes time.
    LabQemu,
    /// The simulator.
    Sim,
    /// The hosts of this file.
    Hosts(PathBuf),
}

fn parse_place(text: &str) -> Result<Place, String> {
    match text {
        "lab" => Ok(Place::Lab),
        "lab:uml" => Ok(Place::LabUml),
        "lab:qemu" => Ok(Place::LabQemu),
        "sim" => Ok(Place::Sim),
        _ if text.is_empty() || text.starts_with("lab:") => {
            Err("a place is `lab`, `lab:uml`, `lab:qemu`, `sim` or the path of a hosts file"
                .to_owned())
        }
        word if !word.contains(['.', '/']) && !Path::new(word).exists() => Err(format!(
            "there is no file `{word}`, and a place is `lab`, `lab:uml`, `lab:qemu`, `sim` or the \
             path of a hosts file"
        )),
        path => Ok(Place::Hosts(PathBuf::from(path))),
    }
}

/// The word for a place.
pub fn word(place: &Place) -> &'static str {
    match place {
        Place::Lab => "lab",
        Place::LabUml => "lab:uml",
        Place::LabQemu => "lab:qemu",
        Place::Sim => "sim",
        Place::Hosts(_) => RunRequest::HOSTS,
    }
}

/// Says what a place cannot do for the file of this name; exit code 4.
pub fn refuse(
    name: &str,
    place: &Where,
    obstacles: &[Obstacle],
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let place = match &place.on {
        Place::Hosts(path) => path.display().to_string(),
        place => word(place).to_owned(),
    };
    refuse_on(name, &place, obstacles, is_json)
}

/// As [`refuse`], with the name of the place.
pub fn refuse_on(
    name: &str,
    place: &str,
    obstacles: &[Obstacle],
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    if is_json {
        let each = obstacles.iter().map(|it| json!({"what": it.what, "why": it.why}));
        let each: Vec<_> = each.collect();
        output::json(&json!({"schema": "timewire.not-supported/1", "not_supported": each}))?;
    }
    for Obstacle { what, why } in obstacles {
        say!("error: {name}: not supported on {place}: {what}: {why}");
    }
    say!("  host: unchanged; nothing was run");
    Ok(ExitCode::from(4))
}

/// Why nothing can be traced there, as far as that is known before it is begun.
pub fn no_trace(place: &Place) -> Option<Obstacle> {
    (*place == Place::LabUml).then(|| Obstacle {
        what: "--trace".to_owned(),
        why: "its kernel does not describe its types (BTF); `--on lab:qemu` has one that does"
            .to_owned(),
    })
}

/// A hosts file with its text.
pub type Hosts = (HostsFile, String);

/// The hosts file at this path; `nothing` is what is not done when it is none.
pub fn hosts(path: &Path, nothing: &'static str) -> anyhow::Result<Hosts> {
    input::read(path, FileKind::Hosts, nothing, HostsFile::parse)
}

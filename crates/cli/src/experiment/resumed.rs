// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --continue`: what a run was asked for, from its directory, as if it were typed again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use timewire_runner::rundir::{RunDir, RunRequest};

use super::Run;
use crate::args::{Command, Request};
use crate::sim;

/// What the directory of a run by phases alone has.
const EXPERIMENT: &str = "experiment.json";

/// The run as it was asked for, with what is asked of its results now.
///
/// **Errors**: there is no run directory, or none of a run that can go on.
pub fn asked(args: Run) -> anyhow::Result<Run> {
    let path = args.resumed.context("invariant: it is asked of a run that goes on")?;
    anyhow::ensure!(
        !path.join(EXPERIMENT).is_file(),
        "{}: it is of a network with phases alone; the command that it began with goes on with it",
        path.display()
    );
    let directory = RunDir::open(&path)?;
    let meta = directory.meta()?;
    directory.check_unfinished()?;
    if args.place.record_for.is_none() {
        let ended = meta.cases.iter().filter(|id| directory.has_ended(id)).count();
        say!("going on after {ended} of {} cases", meta.cases.len());
    }
    let request = meta.request.with_context(|| {
        format!(
            "{}: it does not say what was asked for, so it cannot go on; those of `timewire run` \
             and `demo` do",
            path.display()
        )
    })?;
    let scenarios = meta.scenarios.iter().map(|name| directory.scenario_path(name));
    let files = scenarios.chain(meta.networks.iter().map(|name| directory.network_path(name)));
    let files: Vec<PathBuf> = files.collect();
    let place = match request.place.as_str() {
        RunRequest::HOSTS => directory.path().join("hosts.yaml").display().to_string(),
        place => place.to_owned(),
    };
    let mut words: Vec<String> = ["timewire", "run", "--on"].map(str::to_owned).to_vec();
    words.push(place);
    words.extend(request.options);
    words.extend(files.iter().map(|file| file.display().to_string()));
    let parsed = Request::try_parse_from(&words).with_context(|| {
        format!("{}: what its run.json says was asked for is nothing to ask", path.display())
    })?;
    let Command::Run(mut run) = parsed.command else {
        bail!("{}: what its run.json says was asked for is no run", path.display());
    };
    run.place.record_for = args.place.record_for;
    run.output = args.output;
    run.baseline = args.baseline;
    run.limits.tolerance = args.limits.tolerance;
    run.limits.share_tolerance = args.limits.share_tolerance;
    run.limits.confidence = args.limits.confidence;
    run.beside = request.beside;
    run.resumed = Some(path);
    Ok(run)
}

impl Run {
    /// Where the files are that the network of this name, whose file is at this path, names.
    ///
    /// **Errors**: there is no such directory.
    pub fn beside(&self, network: &str, path: &Path) -> anyhow::Result<PathBuf> {
        let kept = self.beside.get(network).map(PathBuf::as_path);
        let beside = Path::new(".").join(kept.unwrap_or_else(|| sim::directory_of(path)));
        beside.canonicalize().with_context(|| format!("cannot find {}", beside.display()))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` and `demo` with scenarios in the simulator.

use std::process::ExitCode;

use timewire_runner::RunnerError;
use timewire_runner::experiment::{self, Script, SimOptions};

use super::{What, finish};
use crate::output::ProgressLine;

/// Runs the scenarios there, and concludes.
pub(super) fn run(scripts: &[Script], what: What<'_>, json: bool) -> anyhow::Result<ExitCode> {
    check(scripts, &what)?;
    let mut line = ProgressLine::of_long_work();
    let options = options(&what);
    let result = experiment::run_on_sim(scripts, &options, &mut |progress| line.tell(&progress));
    line.clear();
    finish(&result?, what.baseline, json)
}

/// Whether the simulator can do what is asked for.
///
/// **Errors**: the first thing that it cannot.
pub(super) fn check(scripts: &[Script], what: &What<'_>) -> anyhow::Result<()> {
    if what.trace {
        return Err(RunnerError::Unsupported {
            what: "--trace is not for --on sim".to_owned(),
            why: "a capture shows where hosts spend their time, and simulated ones take none; \
                  trace in a laboratory (--on lab, --on lab:uml)"
                .to_owned(),
        }
        .into());
    }
    Ok(experiment::check_on_sim(scripts, &options(what))?)
}

fn options(what: &What<'_>) -> SimOptions {
    SimOptions {
        title: what.title.clone(),
        into: what.into.clone(),
        quick: what.quick,
        backend: what.backend,
        seed: what.seed.unwrap_or(DEFAULT_SEED),
    }
}

const DEFAULT_SEED: u64 = 1;

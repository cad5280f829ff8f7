// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run` and `demo` with scenarios on the hosts of a hosts file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use timewire_agent::protocol::Plan;
use timewire_agent::sweep::own_agent_directory;
use timewire_runner::experiment::{self, HostsOptions, Progress, Script};

use super::{What, derived, finish};
use crate::doctor::on_hosts::{Preflight, RunOptions};
use crate::output::{self, ProgressLine};
use crate::place::{self, Hosts, Where};

/// Runs the scenarios there, and concludes.
pub(super) fn run(
    scripts: &[Script],
    what: What<'_>,
    hosts: Hosts,
    place: &Where,
    json: bool,
) -> anyhow::Result<ExitCode> {
    crate::apply::recover()?;
    let options = options(&what, hosts, place)?;
    let wanted = RunOptions { backend: what.backend, trace: what.trace };
    let mut line = ProgressLine::of_long_work();
    line.tell(&Progress::Step("asking the hosts".to_owned()));
    let obstacles = Preflight::of_scripts(scripts, wanted, &options.hosts).obstacles();
    line.clear();
    let obstacles = obstacles?;
    if !obstacles.is_empty() {
        return place::refuse(what.name, place, &obstacles, json);
    }
    let result = experiment::run_on_hosts(scripts, &options, &mut |progress| line.tell(&progress));
    line.clear();
    finish(&result?, what.baseline, json)
}

/// Prints what the hosts would do.
pub(super) fn dry_run(
    scripts: &[Script],
    what: &What<'_>,
    hosts: Hosts,
    place: &Where,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let options = options(what, hosts, place)?;
    let wanted = RunOptions { backend: what.backend, trace: what.trace };
    let obstacles = Preflight::of_scripts(scripts, wanted, &options.hosts).settings_in_the_way();
    if !obstacles.is_empty() {
        return place::refuse(what.name, place, &obstacles, json);
    }
    let plans = experiment::plans_on_hosts(scripts, &options)?;
    if json {
        return output::json(&json!({"schema": "timewire.plans/1", "cases": plans}));
    }
    derived::show(scripts, false)?;
    output::print(&in_words(&plans))
}

fn options(
    what: &What<'_>,
    (hosts, hosts_text): Hosts,
    place: &Where,
) -> anyhow::Result<HostsOptions> {
    Ok(HostsOptions {
        title: what.title.clone(),
        into: what.into.clone(),
        quick: what.quick,
        program: std::env::current_exe().context("cannot find the path of this program")?,
        backend: what.backend,
        hosts,
        hosts_text,
        keys: own_agent_directory(),
        clock_error: place.clock_error,
        trace: what.trace,
    })
}

/// The steps of each station, phase by phase.
fn in_words(plans: &BTreeMap<String, Plan>) -> String {
    let mut text = String::new();
    for (case, plan) in plans {
        let _ = writeln!(text, "{case}");
        for station in &plan.stations {
            let _ = writeln!(text, "  {}", station.name);
            for (phase, part) in &station.parts {
                let titles: Vec<String> = part.steps.iter().map(|it| it.task.title()).collect();
                let _ = writeln!(text, "    {phase:<8} {}", titles.join(", "));
            }
        }
    }
    text
}

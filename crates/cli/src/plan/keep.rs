// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan --keep`: the reservations of an earlier plan, and what differs from them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use timewire_base::Span;
use timewire_plan::keep::{Change, Changes, KeepError, Replan, Reservations};
use timewire_plan::model::{Plan, Problem};
use timewire_plan::synth::{Budget, Options, Planner};

use crate::ending::{Ending, WORDS};

/// A plan that was made before.
pub struct Earlier {
    path: PathBuf,
    reservations: Reservations,
}

impl Earlier {
    /// **Errors**: it cannot be read, is no file of reservations, or is of another network.
    pub fn read(path: &Path, network: &str) -> anyhow::Result<Earlier> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let reservations = Reservations::read(&name, &text)?;
        anyhow::ensure!(
            reservations.network == network,
            "{name}:1: this is a plan of the network {}, and not of {network}\n  remedy: --keep \
             takes a plan of the same network; after a change of its name, write the new one there",
            reservations.network
        );
        Ok(Earlier { path: path.to_owned(), reservations })
    }

    /// The reservations that are kept, checked.
    pub fn replan(
        &self,
        problem: Problem,
        options: Options,
        ending: &Ending,
    ) -> Result<Replan<'_>, KeepError> {
        Replan::new(problem, options, &self.reservations, &mut || !ending.is_asked())
    }

    fn begin(
        &self,
        problem: Problem,
        options: Options,
        ending: &Ending,
    ) -> anyhow::Result<Replan<'_>> {
        self.replan(problem, options, ending).map_err(|why| match why {
            KeepError::Ended => anyhow::anyhow!("{WORDS}; nothing was written"),
            why => anyhow::anyhow!(
                "{}: its reservations do not hold: {why}\n  remedy: take the lines of these \
                 streams out, and they are planned anew; or plan without --keep",
                self.path.display()
            ),
        })
    }
}

/// A search, beside an earlier plan or from nothing.
pub enum Search<'a> {
    /// From nothing.
    Anew(Box<Planner>),
    /// Beside an earlier plan, of which at most so many streams are moved.
    Beside(Box<Replan<'a>>, usize),
}

impl<'a> Search<'a> {
    pub fn new(
        problem: Problem,
        options: Options,
        earlier: Option<&'a Earlier>,
        moves: usize,
        ending: &Ending,
    ) -> anyhow::Result<Search<'a>> {
        Ok(match earlier {
            None => Search::Anew(Box::new(Planner::new(problem, options))),
            Some(earlier) => {
                Search::Beside(Box::new(earlier.begin(problem, options, ending)?), moves)
            }
        })
    }

    /// Whether the budget ended it while some streams still waited.
    pub fn run(&mut self, budget: &mut Budget) -> bool {
        match self {
            Search::Anew(planner) => planner.run(budget),
            Search::Beside(replan, moves) => replan.run(*moves, budget),
        }
    }

    pub fn planner(&mut self) -> &mut Planner {
        match self {
            Search::Anew(planner) => planner,
            Search::Beside(replan, _) => replan.planner(),
        }
    }

    /// What differs from the earlier plan.
    pub fn changes(&self, plan: &Plan) -> Option<Changes> {
        match self {
            Search::Anew(_) => None,
            Search::Beside(replan, _) => Some(replan.changes_to(plan)),
        }
    }

    pub fn into_planner(self) -> Planner {
        match self {
            Search::Anew(planner) => *planner,
            Search::Beside(replan, _) => replan.into_planner(),
        }
    }
}

/// Time of the processor, by what it was for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Files.
    pub read: Duration,
    /// The earlier plan is checked, and its streams are seated.
    pub seat: Duration,
    /// The plan is checked.
    pub check: Duration,
}

/// The most streams or ports of a list that are named.
const NAMED: usize = 8;

/// What has to be deployed.
pub fn text(changes: &Changes, times: &Times, search: Duration) -> String {
    let Changes { added, changed, kept, moved, ports: other, removed } = changes;
    let mut text = format!(
        "{kept} kept, {} moved, {} added, {} changed, {} removed\n",
        moved.len(),
        added.len(),
        changed.len(),
        removed.len()
    );
    for (list, what) in
        [(moved, "moved"), (added, "added"), (changed, "changed"), (removed, "removed")]
    {
        for change in list.iter().take(NAMED) {
            let _ = writeln!(text, "  {what} {}", line(change));
        }
        if list.len() > NAMED {
            let more = list.len() - NAMED;
            let _ = writeln!(text, "  and {more} more {what}; --json has all");
        }
    }
    if !other.is_empty() {
        let named = other.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = other.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "gates differ at {} ports: {named}{more}", other.len());
    }
    let _ = writeln!(
        text,
        "CPU: {} to read, {} to check the earlier plan, {} to search, {} to check the plan",
        ms(times.read),
        ms(times.seat),
        ms(search),
        ms(times.check)
    );
    text
}

/// A stream with its old and its new start at the talker, and how it differs.
fn line(change: &Change) -> String {
    let first = |starts: Option<Span>| starts.map_or("none".to_owned(), |start| start.to_string());
    let old = change.old.as_ref().and_then(|old| old.first());
    let new = change.new.as_ref().and_then(|new| new.first());
    let paths = |starts: &Option<timewire_plan::keep::Starts>| {
        let ways = starts.iter().flat_map(|starts| &starts.0);
        ways.map(|way| way.iter().map(|(link, _)| link.clone()).collect()).collect()
    };
    let (old_path, new_path): (Vec<Vec<String>>, Vec<Vec<String>>) =
        (paths(&change.old), paths(&change.new));
    let is_other = change.old.is_some() && change.new.is_some() && old_path != new_path;
    let path = if is_other { ", another path" } else { "" };
    let differences = match change.differences.as_slice() {
        [] => String::new(),
        some => format!(" ({})", some.join(", ")),
    };
    format!("{}: start {} -> {}{path}{differences}", change.name, first(old), first(new))
}

fn ms(time: Duration) -> String {
    format!("{}.{:03} ms", time.as_millis(), time.subsec_micros() % 1_000)
}

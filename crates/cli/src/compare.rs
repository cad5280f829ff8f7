// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `compare`, and `--baseline` of `run`: two run directories side by side; with `--places`, runs in
//! different places.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use timewire_base::Verdict;
use timewire_capture::summary::Summary;
use timewire_report::compare::{self, Changed, Comparison, Hosts, Overall, Rules, Side};
use timewire_report::places::{self, PlaceRun};
use timewire_runner::experiment::Script;
use timewire_runner::rundir::{HostsBefore, RunDir};

use crate::new_file::NewFile;
use crate::{ending, in_places, output};

#[derive(Debug, Args)]
pub struct Compare {
    /// The run directory that the other is held against, and the one that is judged; with --places,
    /// two or more run directories, or one of a run in several places
    #[arg(required = true, num_args = 1.., value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Runs of the same networks in different places (simulator, laboratory, hosts) side by side:
    /// figures of each stream, and the verdict of each limit in each place
    #[arg(long)]
    pub places: bool,
    #[command(flatten)]
    pub limits: Limits,
    /// Print every metric, not only what is better or worse
    #[arg(long, conflicts_with = "places")]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page to a file: with intervals and distributions, or with --places a picture of each
    /// case
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What makes a difference, and how sure it has to be.
#[derive(Clone, Copy, Debug, Args)]
pub struct Limits {
    /// Times that differ by at most this are the same [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub tolerance: Option<f64>,
    /// Shares of messages or frames that differ by at most this, in points, are the same [default:
    /// 0.1%]
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub share_tolerance: Option<f64>,
    /// How sure all verdicts together are [default: 99%]
    #[arg(long, value_name = "SHARE", value_parser = confidence)]
    pub confidence: Option<f64>,
    /// What everything that is random follows from: the intervals, and with `run --on sim` when
    /// programs begin [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl Limits {
    fn rules(self) -> Rules {
        let default = Rules::default();
        Rules {
            tolerance: self.tolerance.unwrap_or(default.tolerance),
            share_tolerance: self.share_tolerance.unwrap_or(default.share_tolerance),
            confidence: self.confidence.unwrap_or(default.confidence),
            seed: self.seed.unwrap_or(default.seed),
        }
    }

    /// The first that is given.
    fn given(self) -> Option<&'static str> {
        let Limits { tolerance, share_tolerance, confidence, seed } = self;
        let given = [
            ("--tolerance", tolerance.is_some()),
            ("--share-tolerance", share_tolerance.is_some()),
            ("--confidence", confidence.is_some()),
            ("--seed", seed.is_some()),
        ];
        given.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }

    /// **Errors**: one is given, though nothing is compared.
    pub fn refuse(self) -> anyhow::Result<()> {
        match self.given() {
            Some(name) => {
                anyhow::bail!("{name} is for a comparison; name the run with --baseline DIR")
            }
            None => Ok(()),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim_end);
    let value = number.and_then(|number| number.parse::<f64>().ok());
    let value = value.filter(|value| (0.0..=1_000.0).contains(value));
    let example = || "a share is in per cent, from 0% to 1000%, such as 5% or 0.1%".to_owned();
    value.map(|percent| percent / 100.0).ok_or_else(example)
}

fn confidence(text: &str) -> Result<f64, String> {
    let sure = percent(text).ok().filter(|sure| (0.5..=0.999_999).contains(sure));
    sure.ok_or_else(|| "it is in per cent, from 50% to 99.9999%, such as 99%".to_owned())
}

pub fn run(args: &Compare) -> anyhow::Result<ExitCode> {
    ending::exit_on_request()?;
    if args.places {
        return side_by_side(args);
    }
    let [a, b] = args.runs.as_slice() else {
        let count = args.runs.len();
        anyhow::bail!(
            "compare holds one run against another, and {count} were given; --places takes more"
        );
    };
    let [a, b] = [a, b].map(|path| -> anyhow::Result<_> {
        let directory = RunDir::open(path)?;
        let summary = directory.summarise()?;
        Ok((directory, summary))
    });
    let (a, b) = (a?, b?);
    let (comparison, a, b) = of(a, b, args.limits)?;
    if let Some(path) = &args.html {
        let page = compare::html(&comparison, &a, &b);
        NewFile::write_whole(path, &page)?;
    }
    if args.json {
        output::json(&comparison)?;
    } else {
        output::print(&compare::table(&comparison, args.all, output::wants_colour()))?;
        if let Some(path) = &args.html {
            output::print(&format!("page:    {}\n", path.display()))?;
        }
    }
    Ok(exit_code(&comparison))
}

/// Runs in different places. A limit that does not pass somewhere is exit code 1.
fn side_by_side(args: &Compare) -> anyhow::Result<ExitCode> {
    if let Some(name) = args.limits.given() {
        anyhow::bail!("{name} is not for --places, where the limits of the networks decide");
    }
    let mut runs = Vec::new();
    for path in &args.runs {
        match in_places::is_at(path) {
            true => runs.extend(in_places::runs(path)?),
            false => runs.push(path.clone()),
        }
    }
    of_places(&runs, args.html.as_deref(), args.json).map(ExitCode::from)
}

/// Prints runs in different places side by side, and writes the page; the exit code.
///
/// **Errors**: one is no run, or they have no case in common.
pub fn of_places(runs: &[PathBuf], html: Option<&Path>, json: bool) -> anyhow::Result<u8> {
    let read = |path: &PathBuf| -> anyhow::Result<_> {
        let run = RunDir::open(path)?;
        let (summary, limits) = (run.summarise()?, run.all_limits()?);
        Ok(PlaceRun { directory: path.display().to_string(), summary, limits })
    };
    let runs = runs.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let found = places::places(&runs);
    if !found.has_common_case() {
        let of = |run: &PlaceRun| {
            let ids: Vec<String> = run.summary.cases.iter().map(|case| case.id.clone()).collect();
            format!("{} has {}", run.directory, listed(&ids))
        };
        let all: Vec<String> = runs.iter().map(of).collect();
        anyhow::bail!("the runs have no case in common: {}", all.join(", "));
    }
    if let Some(path) = html {
        NewFile::write_whole(path, &places::places_html(&found))?;
    }
    if json {
        output::json(&found)?;
    } else {
        output::print(&places::places_table(&found, output::wants_colour()))?;
        if let Some(path) = html {
            output::print(&format!("page:    {}\n", path.display()))?;
        }
    }
    Ok(u8::from(found.verdict != Verdict::Pass))
}

/// A run that others are held against.
pub struct Baseline {
    directory: RunDir,
    limits: Limits,
}

impl Baseline {
    /// Opens it before anything is run.
    ///
    /// **Errors**: it is no run directory, or has none of these cases.
    pub fn open(
        path: &Path,
        limits: Limits,
        mut cases: impl Iterator<Item = String>,
    ) -> anyhow::Result<Baseline> {
        let directory = RunDir::open(path)?;
        let there = directory.meta()?.cases;
        if !cases.any(|id| there.contains(&id)) {
            anyhow::bail!(
                "the baseline {} has no case of these networks; it has {}",
                path.display(),
                listed(&there)
            );
        }
        Ok(Baseline { directory, limits })
    }

    /// Holds a run against it, keeps what comes of it in the run's directory and prints it.
    pub fn judge(self, run: &RunDir, summary: Summary, json: bool) -> anyhow::Result<ExitCode> {
        let of_baseline = self.directory.summarise()?;
        let (comparison, a, b) =
            of((self.directory, of_baseline), (run.clone(), summary), self.limits)?;
        run.write_text("comparison.json", &comparison.to_json())?;
        let page = run.write_text("comparison.html", &compare::html(&comparison, &a, &b))?;
        if !json {
            let text = compare::table(&comparison, false, output::wants_colour());
            output::print(&format!(
                "\nagainst the baseline:\n{text}page:    {}\n",
                page.display()
            ))?;
        }
        Ok(exit_code(&comparison))
    }
}

/// The cases of scenarios.
pub fn cases_of(scripts: &[Script]) -> impl Iterator<Item = String> {
    scripts.iter().flat_map(|script| {
        let (name, experiment) = (&script.scenario.name, &script.scenario.experiment);
        experiment.cases.iter().flat_map(move |case| {
            experiment.loads.iter().map(move |load| format!("{name}/{}/{load}", case.name))
        })
    })
}

fn exit_code(comparison: &Comparison) -> ExitCode {
    ExitCode::from(u8::from(comparison.verdict == Overall::Worse))
}

fn of(
    (directory_a, summary_a): (RunDir, Summary),
    (directory_b, summary_b): (RunDir, Summary),
    limits: Limits,
) -> anyhow::Result<(Comparison, Side, Side)> {
    let hosts = hosts(&directory_a.hosts_before()?, &directory_b.hosts_before()?);
    let (a, b) = (side(&directory_a, summary_a)?, side(&directory_b, summary_b)?);
    let comparison = compare::compare(&a, &b, hosts, limits.rules());
    if comparison.cases.is_empty() {
        let ids = |side: &Side| {
            listed(&side.cases.iter().map(|case| case.id.clone()).collect::<Vec<_>>())
        };
        anyhow::bail!(
            "the runs have no case in common: {} has {}, {} has {}",
            a.directory,
            ids(&a),
            b.directory,
            ids(&b)
        );
    }
    Ok((comparison, a, b))
}

fn side(directory: &RunDir, summary: Summary) -> anyhow::Result<Side> {
    Ok(Side {
        directory: directory.path().display().to_string(),
        summary,
        cases: directory.series()?,
        scenarios: directory.scenario_texts()?,
    })
}

fn listed(ids: &[String]) -> String {
    match ids {
        [] => "none".to_owned(),
        [first, .., last] if ids.len() > 4 => {
            format!("{} cases from {first} to {last}", ids.len())
        }
        _ => ids.join(", "),
    }
}

/// The path of a setting, what it was and what it is.
type Change = (String, Option<String>, Option<String>);

/// What the snapshots that both runs have say, each difference once with all its stations.
fn hosts(a: &HostsBefore, b: &HostsBefore) -> Hosts {
    let mut found = Hosts::default();
    let mut places: BTreeMap<Change, Vec<&str>> = BTreeMap::new();
    for (name, of_a) in a {
        let Some(of_b) = b.get(name) else { continue };
        match (of_a, of_b) {
            (Ok(of_a), Ok(of_b)) => {
                found.compared += 1;
                for difference in of_a.settings.differences(&of_b.settings) {
                    let [was, is] = [difference.before, difference.after]
                        .map(|value| value.map(|value| value.to_string()));
                    places.entry((difference.path, was, is)).or_default().push(name);
                }
            }
            (Err(why), _) => found.unreadable.push(format!("A: snapshot {name}: {why}")),
            (_, Err(why)) => found.unreadable.push(format!("B: snapshot {name}: {why}")),
        }
    }
    let changed =
        |((name, a, b), places): (_, Vec<&str>)| Changed { area: places.join(", "), name, a, b };
    found.changes = places.into_iter().map(changed).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_shares_need_their_sign() {
        assert_eq!(percent("5%").map(f64::to_bits), Ok(0.05_f64.to_bits()));
        assert_eq!(percent("0.1 %").map(f64::to_bits), Ok(0.001_f64.to_bits()));
        for wrong in ["5", "", "%", "-1%", "NaN%", "inf%", "1001%", "five%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        assert!(confidence("99%").is_ok());
        for wrong in ["49%", "100%", "99", "99.99999%"] {
            assert!(confidence(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn t0_few_cases_are_named_and_many_are_counted() {
        let of = |n: usize| listed(&(0..n).map(|at| at.to_string()).collect::<Vec<_>>());
        assert_eq!((of(0), of(3)), ("none".to_owned(), "0, 1, 2".to_owned()));
        assert_eq!(of(9), "9 cases from 0 to 8");
    }
}

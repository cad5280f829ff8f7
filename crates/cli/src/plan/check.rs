// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan --check`: what is configured already, held against the streams.
//!
//! Not here: judging it (`timewire-plan`).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};
use timewire_plan::check::{Finding, Report, Rule, check};
use timewire_plan::exchange::{TsnkitTables, read_tsnkit_result};
use timewire_plan::file;
use timewire_plan::model::Problem;
use timewire_plan::words;

use super::{PlanArgs, file::OwnFile};
use crate::output;

/// What `--json` prints.
const SCHEMA: &str = "timewire.plan-check/1";
/// The most contradictions that are shown to people.
const SHOWN: usize = 50;

/// Everything that was found.
struct Found {
    problem: Problem,
    report: Report,
    /// Contradictions that no rule of the checker has.
    notes: Vec<String>,
    /// What could not be looked at.
    open: Vec<String>,
    files: Vec<String>,
}

/// Exit code 0: nothing contradicts the streams; 1: something does.
pub fn run(args: &PlanArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let found = match &args.file {
        Some(file) => directory(&OwnFile::read(file, args.streams.as_deref())?, path)?,
        None => tables(args, path)?,
    };
    match args.json {
        true => output::json(&found.json())?,
        false => output::print(&found.text())?,
    };
    Ok(ExitCode::from(u8::from(!found.is_good())))
}

/// The tables `PREFIX-GCL.csv` and the others.
fn tables(args: &PlanArgs, prefix: &Path) -> anyhow::Result<Found> {
    let problem = super::read(args)?;
    let name = |end: &str| format!("{}{end}", prefix.display());
    let load = |end: &str| {
        let name = name(end);
        let bytes = fs::read(&name).with_context(|| format!("cannot read {name}"))?;
        anyhow::Ok((name, bytes))
    };
    let all = ["-GCL.csv", "-OFFSET.csv", "-QUEUE.csv", "-ROUTE.csv"].map(load);
    let [gcl, offset, queue, route] = all;
    let (gcl, offset, queue, route) = (gcl?, offset?, queue?, route?);
    let delay = Path::new(&name("-DELAY.csv")).exists().then(|| load("-DELAY.csv")).transpose()?;
    fn part((name, bytes): &(String, Vec<u8>)) -> (&str, &[u8]) {
        (name, bytes)
    }
    let tables = TsnkitTables {
        gcl: part(&gcl),
        offset: part(&offset),
        queue: part(&queue),
        route: part(&route),
        delay: delay.as_ref().map(part),
    };
    let result = read_tsnkit_result(&problem, &tables)?;
    let mut report = check(&result.problem, &result.plan)?;
    // The tables do not say how many entries and how much spare time there is.
    report.findings.retain(|it| !matches!(it.rule, Rule::GateSpare | Rule::GateCount));
    let (mut notes, mut open) = (Vec::new(), Vec::new());
    for (stream, claimed) in &result.delays {
        let found = words::latency(&result.problem, &result.plan, *stream);
        if let Some(found) = found.filter(|found| found != claimed) {
            let name = &result.problem.stream(*stream).name;
            notes.push(format!("stream {name} takes {found}; the table of delays has {claimed}"));
        }
    }
    if delay.is_none() {
        open.push("there is no table of delays".to_owned());
    }
    let files = [Some(gcl), Some(offset), Some(queue), Some(route), delay];
    let files = files.into_iter().flatten().map(|(name, _)| name).collect();
    Ok(Found { problem: result.problem, report, notes, open, files })
}

/// The configurations of the nodes of a network.
fn directory(own: &OwnFile, path: &Path) -> anyhow::Result<Found> {
    let mut files = Vec::new();
    let listed = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in listed {
        let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if file::is_configuration(&name) {
            let bytes = fs::read(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            files.push((name, bytes));
        }
    }
    anyhow::ensure!(
        !files.is_empty(),
        "{} has no NAME.tc.json, NAME.yang.json, NAME.host.yaml or NAME.launch.csv of a station \
         or bridge",
        path.display()
    );
    files.sort();
    let held = own.hold(&files)?;
    let problem = own.problem();
    let names = |all: &[timewire_plan::model::StreamId]| {
        let names: Vec<&str> =
            all.iter().take(8).map(|id| problem.stream(*id).name.as_str()).collect();
        let more = if all.len() > names.len() { ", ..." } else { "" };
        format!("{}{more}", names.join(", "))
    };
    let mut open = Vec::new();
    let (starts, ways) = (&held.configured.without_starts, &held.configured.without_way);
    if !starts.is_empty() {
        open.push(format!(
            "{} streams have no starts in a launch table ({}): for each was looked whether it has \
             some by itself with which the gates let it arrive in time; not whether two meet, nor \
             its jitter",
            starts.len(),
            names(starts)
        ));
    }
    if !ways.is_empty() {
        open.push(format!(
            "{} redundant streams were not looked at, since nothing says which ways they take ({})",
            ways.len(),
            names(ways)
        ));
    }
    Ok(Found {
        report: held.configured.report,
        notes: held.notes,
        open,
        files: held.files,
        problem,
    })
}

impl Found {
    fn is_good(&self) -> bool {
        self.report.findings.is_empty() && self.notes.is_empty()
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} streams, {} files, {} transmissions gone through\n",
            self.problem.streams().len(),
            self.files.len(),
            self.report.instances
        );
        let findings = self.report.findings.iter().map(|it| it.describe(&self.problem));
        let all: Vec<String> = findings.chain(self.notes.iter().cloned()).collect();
        for line in all.iter().take(SHOWN) {
            let _ = writeln!(text, "  {line}");
        }
        let hidden = all.len().saturating_sub(SHOWN);
        let more = u64::try_from(hidden).unwrap_or(u64::MAX).saturating_add(self.report.left_out);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
        for line in &self.open {
            let _ = writeln!(text, "not checked: {line}");
        }
        let verdict = match self.is_good() {
            true => "nothing contradicts the streams",
            false => "the configuration does not hold",
        };
        let _ = writeln!(text, "{verdict}");
        text
    }

    fn json(&self) -> Value {
        let link = |finding: &Finding| {
            let link = finding.link?;
            self.problem.network().links().get(link.index()).map(|link| link.name.clone())
        };
        let streams = |finding: &Finding| -> Vec<String> {
            let all = finding.streams.iter();
            let known = all.filter_map(|id| self.problem.streams().get(id.index()));
            known.map(|stream| stream.name.clone()).collect()
        };
        let row = |finding: &Finding| {
            json!({
                "rule": finding.rule,
                "text": finding.describe(&self.problem),
                "link": link(finding),
                "streams": streams(finding),
                "frame": finding.frame,
                "at_ns": finding.at,
                "found": finding.found,
                "bound": finding.bound,
            })
        };
        json!({
            "schema": SCHEMA,
            "good": self.is_good(),
            "findings": self.report.findings.iter().map(row).collect::<Vec<Value>>(),
            "left_out": self.report.left_out,
            "notes": self.notes,
            "not_checked": self.open,
            "files": self.files,
            "transmissions": self.report.instances,
        })
    }
}

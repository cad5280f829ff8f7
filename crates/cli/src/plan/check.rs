// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plan --check`: what is configured already, held against the streams.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};
use timewire_base::Verdict;
use timewire_model::unread::Unread;
use timewire_plan::check::{Finding, Report, Rule, check_while};
use timewire_plan::exchange::{TsnkitTables, read_tsnkit_result};
use timewire_plan::file::{self, FileUnread};
use timewire_plan::keep::{Change, KeepError};
use timewire_plan::model::Problem;
use timewire_plan::synth::Options;
use timewire_plan::words;

use super::{PlanArgs, file::OwnFile, keep::Earlier};
use crate::ending::{CODE, Ending, WORDS};
use crate::output;

/// What `--json` prints.
const SCHEMA: &str = "timewire.plan-check/2";
/// The most contradictions that are shown to people.
const SHOWN: usize = 50;

/// Everything that was found.
struct Found {
    problem: Problem,
    report: Report,
    /// Contradictions that no rule of the checker has.
    notes: Vec<String>,
    /// What was not looked at, and need not be for a verdict on the rest.
    not_checked: Vec<String>,
    /// What was read and not interpreted.
    unread: Vec<FileUnread>,
    /// Why else nothing can be said for sure.
    open: Vec<String>,
    /// What was taken for something that no file tells.
    taken: Vec<String>,
    files: Vec<String>,
    /// Whether it was ended before all was looked at.
    ended_early: bool,
}

/// Exit code 0: nothing contradicts the streams; 1: something does, or may; 2: it was ended on
/// request.
pub fn run(args: &PlanArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let (mut found, network) = match &args.file {
        Some(file) => {
            let (case, streams) = (args.case.as_deref(), args.streams.as_deref());
            let own = OwnFile::read(file, case, streams)?;
            (directory(&own, path)?, own.name().to_owned())
        }
        None => (tables(args, path)?, super::table_name(args)),
    };
    if let Some(plan) = &args.keep {
        found.hold_plan(plan, &network)?;
    }
    match args.json {
        true => output::json(&found.json())?,
        false => output::print(&found.text())?,
    };
    if found.ended_early {
        return Ok(ExitCode::from(CODE));
    }
    Ok(ExitCode::from(u8::from(found.verdict() != Verdict::Pass)))
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
    let ending = Ending::new()?;
    let mut report = check_while(&result.problem, &result.plan, &mut || !ending.is_asked())?;
    // The tables do not say how many entries and how much spare time there is.
    report.findings.retain(|it| !matches!(it.rule, Rule::GateSpare | Rule::GateCount));
    let (mut notes, mut not_checked) = (Vec::new(), Vec::new());
    for (stream, claimed) in &result.delays {
        let found = words::latency(&result.problem, &result.plan, *stream);
        if let Some(found) = found.filter(|found| found != claimed) {
            let name = &result.problem.stream(*stream).name;
            notes.push(format!("stream {name} takes {found}; the table of delays has {claimed}"));
        }
    }
    if delay.is_none() {
        not_checked.push("there is no table of delays".to_owned());
    }
    let files = [Some(gcl), Some(offset), Some(queue), Some(route), delay];
    let files = files.into_iter().flatten().map(|(name, _)| name).collect();
    let problem = result.problem;
    let (unread, open, taken) = (Vec::new(), Vec::new(), Vec::new());
    let ended_early = report.ended_early;
    Ok(Found { problem, report, notes, not_checked, unread, open, taken, files, ended_early })
}

/// The configurations of the nodes of a network.
fn directory(own: &OwnFile, path: &Path) -> anyhow::Result<Found> {
    let (files, others) = listed(path)?;
    let ending = Ending::new()?;
    let held = own.hold(&files, &mut || !ending.is_asked())?;
    let problem = own.problem();
    let names = |all: &[timewire_plan::model::StreamId]| {
        let names: Vec<&str> =
            all.iter().take(8).map(|id| problem.stream(*id).name.as_str()).collect();
        let more = if all.len() > names.len() { ", ..." } else { "" };
        format!("{}{more}", names.join(", "))
    };
    let (mut not_checked, mut open) = (Vec::new(), held.open);
    let (starts, ways) = (&held.configured.without_starts, &held.configured.without_way);
    if !starts.is_empty() {
        not_checked.push(format!(
            "{} streams have no starts in a launch table ({}): for each was looked whether it has \
             some by itself with which the gates let it arrive in time; not whether two meet, nor \
             its jitter",
            starts.len(),
            names(starts)
        ));
    }
    if !held.configured.undecided.is_empty() {
        let undecided = &held.configured.undecided;
        open.push(format!(
            "{} of them have too many starts to look at each, and none that was looked at is in \
             time ({})",
            undecided.len(),
            names(undecided)
        ));
    }
    if !ways.is_empty() {
        open.push(format!(
            "{} redundant streams were not looked at, since nothing says which ways they take ({})",
            ways.len(),
            names(ways)
        ));
    }
    let mut unread = held.unread;
    unread.extend(others.into_iter().map(|file| FileUnread {
        file,
        unread: Unread::at("the whole file, of no name that is read"),
    }));
    Ok(Found {
        ended_early: held.configured.report.ended_early,
        report: held.configured.report,
        notes: held.notes,
        not_checked,
        unread,
        open,
        taken: held.taken,
        files: held.files,
        problem,
    })
}

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// The configurations in a directory, and the names of what is none.
fn listed(path: &Path) -> anyhow::Result<(Files, Vec<String>)> {
    let (mut files, mut others) = (Vec::new(), Vec::new());
    let listed = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in listed {
        let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if file::is_configuration(&name) {
            let bytes = fs::read(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            files.push((name, bytes));
        } else if !(file::is_rendered_beside(&name) || name.starts_with('.')) {
            others.push(name);
        }
    }
    anyhow::ensure!(
        !files.is_empty(),
        "{} has no NAME.tc.json, NAME.yang.json, NAME.yang.xml, NAME.host.yaml or NAME.launch.csv \
         of a station or bridge",
        path.display()
    );
    files.sort();
    others.sort();
    Ok((files, others))
}

impl Found {
    /// What contradicts the streams in the reservations of a plan.
    fn hold_plan(&mut self, path: &Path, network: &str) -> anyhow::Result<()> {
        let name = path.display().to_string();
        let earlier = Earlier::read(path, network)?;
        self.files.push(name.clone());
        let ending = Ending::new()?;
        let (problem, options) = (self.problem.clone(), Options::default());
        let mut replan = match earlier.replan(problem, options, &ending) {
            Err(KeepError::Ended) => {
                self.ended_early = true;
                return Ok(());
            }
            Err(why) => {
                self.notes.push(format!("{name}: {why}"));
                return Ok(());
            }
            Ok(replan) => replan,
        };
        let changes = replan.changes();
        for Change { name: stream, differences, .. } in &changes.changed {
            let other = differences.join(", ");
            self.notes.push(format!("{name}: stream {stream} is another one now: {other}"));
        }
        let known = changes.kept + changes.changed.len();
        match self.problem.streams().len() - known {
            0 => {}
            none => self.not_checked.push(format!("{name} has no reservation for {none} streams")),
        }
        match changes.removed.len() {
            0 => {}
            gone => self.not_checked.push(format!("{name} has {gone} streams that are gone")),
        }
        Ok(())
    }

    fn verdict(&self) -> Verdict {
        let is_clean = self.report.findings.is_empty() && self.notes.is_empty();
        let is_clear = self.unread.is_empty() && self.open.is_empty() && !self.ended_early;
        match (is_clean, is_clear) {
            (false, _) => Verdict::Fail,
            (true, false) => Verdict::Inconclusive,
            (true, true) => Verdict::Pass,
        }
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
        for unread in self.unread.iter().take(SHOWN) {
            let _ = writeln!(text, "not interpreted: {unread}");
        }
        let hidden = self.unread.len().saturating_sub(SHOWN);
        if hidden > 0 {
            let _ = writeln!(text, "not interpreted: and {hidden} more; --json has all");
        }
        for line in &self.open {
            let _ = writeln!(text, "undecided: {line}");
        }
        for line in self.taken.iter().chain(&self.not_checked) {
            let _ = writeln!(text, "not checked: {line}");
        }
        if self.ended_early {
            let _ = writeln!(text, "{WORDS}: this is what was found until then");
        }
        let verdict = match self.verdict() {
            Verdict::Pass => "PASS: nothing contradicts the streams",
            Verdict::Fail => "FAIL: the configuration does not hold",
            Verdict::Inconclusive => {
                "INCONCLUSIVE: nothing that was judged contradicts the streams; what was not may"
            }
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
            "verdict": self.verdict(),
            "findings": self.report.findings.iter().map(row).collect::<Vec<Value>>(),
            "left_out": self.report.left_out,
            "ended_early": self.ended_early,
            "notes": self.notes,
            "not_interpreted": self.unread,
            "undecided": self.open,
            "not_checked": self.taken.iter().chain(&self.not_checked).collect::<Vec<_>>(),
            "files": self.files,
            "transmissions": self.report.instances,
        })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report`: what any run came to that left a directory, as a page, as text and as JSON.
//!
//! Not here: reading the directory (`timewire_runner::reports`), drawing (`timewire-report`).

mod other;
mod serve;
mod times;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use timewire_base::Verdict;
use timewire_report::run_report::{
    RunReport, Table, run_report_html, run_report_markdown, summary_markdown,
};
use timewire_runner::reports::Kind;
use timewire_runner::rundir::RunDir;

use crate::ending;
use crate::experiment;
use crate::new_file::NewFile;
use crate::output;
use serve::Address;
use times::Times;

#[derive(Debug, Args)]
pub struct Report {
    /// The directory of a run: of `run`, `demo`, `sim`, `talk`, `listen`, `measure` or `lab
    /// segment`
    pub directory: PathBuf,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print verdict, limits and key numbers as Markdown instead of tables
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Serve the report, and its traces for Perfetto, to this machine's browsers until ended
    /// [default: 127.0.0.1:9001, from where Perfetto can fetch]
    #[arg(
        long, value_name = "ADDRESS:PORT", num_args = 0..=1,
        default_missing_value = "127.0.0.1:9001",
        conflicts_with_all = ["json", "markdown"]
    )]
    pub serve: Option<Address>,
    #[command(flatten)]
    pub times: Times,
}

/// The name of the page in the directory.
const PAGE: &str = "report.html";

pub fn run(args: &Report) -> anyhow::Result<ExitCode> {
    if args.serve.is_none() {
        ending::exit_on_request()?;
    }
    let directory = &args.directory;
    let kind = Kind::of(directory);
    if kind.is_none()
        && let Some(what) = other::of(directory)
    {
        bail!("{} is no directory of a run: {what}", directory.display());
    }
    let files = args.times.files(directory, kind)?;
    let Some(kind) = kind else {
        // It says what is missing.
        let directory = RunDir::open(directory)?;
        let (summary, report) = experiment::conclude(&directory)?;
        files.into_iter().try_for_each(NewFile::finish)?;
        if let Some(address) = &args.serve {
            return serve::run(&directory_of(&report), address);
        }
        if args.markdown {
            output::print(&summary_markdown(&summary))?;
            return Ok(experiment::exit_code(&summary));
        }
        return experiment::tell(&summary, &report, args.json);
    };
    let report = kind.report(directory)?;
    let page = directory.join(PAGE);
    NewFile::write_whole(&page, &run_report_html(&report))?;
    files.into_iter().try_for_each(NewFile::finish)?;
    if let Some(address) = &args.serve {
        return serve::run(directory, address);
    }
    if args.json {
        output::json(&report)?;
    } else if args.markdown {
        output::print(&run_report_markdown(&report))?;
    } else {
        output::print(&text(&report, &page))?;
    }
    Ok(ExitCode::from(u8::from(report.verdict.is_some_and(|verdict| verdict != Verdict::Pass))))
}

fn directory_of(page: &Path) -> PathBuf {
    page.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// For a terminal: verdict last, where it stops.
fn text(report: &RunReport, page: &Path) -> String {
    let mut out = String::new();
    for table in report.sections.iter().flat_map(|section| &section.tables) {
        out += &aligned(table);
    }
    for finding in &report.findings {
        let word = finding.verdict.map_or("NOTE", Verdict::label);
        let said = [&finding.limit, &finding.measured, &finding.note];
        let said: Vec<&str> =
            said.into_iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        out += &format!("{word} {}\n", plain(&said.join(": ")));
    }
    if !report.complete {
        out += "NOTE the run was cut short; the figures cover what was recorded until then\n";
    }
    let verdict = report.verdict.map_or("none", Verdict::label);
    let why = plain(report.why.trim_end_matches('.'));
    out += &format!("report:  {}\nverdict: {verdict} ({why})\n", page.display());
    out
}

/// Names and what they are to the left, numbers to the right.
fn aligned(table: &Table) -> String {
    let rows = || std::iter::once(&table.head).chain(&table.rows);
    let columns = rows().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = format!("{}\n", plain(&table.caption));
    for row in rows() {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = plain(cell);
            match at < table.words.max(1) {
                true => line += &format!("  {cell:<width$}"),
                false => line += &format!("  {cell:>width$}"),
            }
        }
        out += line.trim_end();
        out.push('\n');
    }
    out.push('\n');
    out
}

/// Text that cannot steer the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

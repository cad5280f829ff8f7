// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report`: what any run came to that left a directory, as a page, as text and as JSON.
//!
//! Not here: experiments and simulations (`experiment`), drawing (`timewire-report`).

mod campaign;
mod launch;
mod other;
mod paths;
mod segment;
mod serve;
mod times;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use timewire_ctl::drops::DropCause;
use timewire_ctl::rundir::RunDir;
use timewire_report::sheet::{
    SHEET_SCHEMA, Sheet, Standing, Table, sheet_html, sheet_markdown, summary_markdown,
};
use timewire_trace::summary::{Fact, FactLevel, Finding, Outcome};

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
    let sheet = kind.sheet(directory)?;
    let page = directory.join(PAGE);
    NewFile::write_whole(&page, &sheet_html(&sheet))?;
    files.into_iter().try_for_each(NewFile::finish)?;
    if let Some(address) = &args.serve {
        return serve::run(directory, address);
    }
    if args.json {
        output::json(&sheet)?;
    } else if args.markdown {
        output::print(&sheet_markdown(&sheet))?;
    } else {
        output::print(&text(&sheet, &page))?;
    }
    Ok(ExitCode::from(u8::from(sheet.verdict == Standing::Fail)))
}

fn directory_of(page: &Path) -> PathBuf {
    page.parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Which kind of run left a directory, other than experiments and simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Campaign,
    Traffic,
    Launch,
    Gates,
    Receive,
    Path,
    Segment,
}

impl Kind {
    /// By the files that are there.
    fn of(directory: &Path) -> Option<Kind> {
        let kinds = [
            ("campaign.json", Kind::Campaign),
            ("traffic.json", Kind::Traffic),
            ("launch.json", Kind::Launch),
            ("gates.json", Kind::Gates),
            ("receive.json", Kind::Receive),
            ("path.json", Kind::Path),
            ("segment.yaml", Kind::Segment),
        ];
        let there = |name: &str| directory.join(name).is_file();
        kinds.into_iter().find(|(name, _)| there(name)).map(|(_, kind)| kind)
    }

    fn sheet(self, directory: &Path) -> anyhow::Result<Sheet> {
        match self {
            Kind::Campaign => campaign::experiment(directory),
            Kind::Segment => segment::sheet(directory),
            Kind::Traffic => traffic::sheet(directory),
            Kind::Launch => launch::launch(directory),
            Kind::Gates => launch::gates(directory),
            Kind::Receive => paths::receive(directory),
            Kind::Path => paths::path(directory),
        }
    }
}

/// A sheet without anything in it.
fn empty(kind: &'static str, title: String) -> Sheet {
    Sheet {
        schema: SHEET_SCHEMA,
        kind,
        title,
        verdict: Standing::Measured,
        why: String::new(),
        complete: true,
        facts: Vec::new(),
        findings: Vec::new(),
        sections: Vec::new(),
        environment: Vec::new(),
    }
}

/// Reads a file of a directory.
fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> anyhow::Result<T> {
    let path = directory.join(name);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} does not hold what it should", path.display()))
}

/// Reads a file of a directory whose format is `schema`.
fn read_versioned(directory: &Path, name: &str, schema: &str) -> anyhow::Result<Json> {
    let found: Json = read(directory, name)?;
    match found.get("schema").and_then(Json::as_str) {
        Some(of) if of == schema => Ok(found),
        of => bail!(
            "{} is of version `{}`, and this program reads `{schema}`: use the program that wrote \
             it",
            directory.join(name).display(),
            of.unwrap_or("none")
        ),
    }
}

/// A text in a value; empty where there is none.
fn words(value: &Json, pointer: &str) -> String {
    match value.pointer(pointer) {
        Some(Json::String(text)) => text.clone(),
        None | Some(Json::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// A count in a value; 0 where there is none.
fn count(value: &Json, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Json::as_u64).unwrap_or(0)
}

/// The rows of a list in a value.
fn list<'a>(value: &'a Json, pointer: &str) -> &'a [Json] {
    value.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// Microseconds to the nanosecond.
fn us(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:03}", ns / 1_000, ns % 1_000)
}

/// A limit, and what it came to.
fn judged(id: &str, limit: String, measured: String, kept: bool) -> Finding {
    let outcome = if kept { Outcome::Kept } else { Outcome::Missed };
    Finding { id: id.to_owned(), outcome, limit, measured, note: String::new() }
}

/// Something to be known that is no limit.
fn note(id: &str, measured: String) -> Finding {
    let (outcome, limit) = (Outcome::Note, String::new());
    Finding { id: id.to_owned(), outcome, limit, measured, note: String::new() }
}

fn fact(area: &str, name: &str, value: String) -> Fact {
    Fact { area: area.to_owned(), name: name.to_owned(), value, level: FactLevel::Ok }
}

/// For a terminal: verdict last, where it stops.
fn text(sheet: &Sheet, page: &Path) -> String {
    let mut out = String::new();
    for table in sheet.sections.iter().flat_map(|section| &section.tables) {
        out += &aligned(table);
    }
    for finding in &sheet.findings {
        let word = match finding.outcome {
            Outcome::Kept => "kept",
            Outcome::Missed => "MISSED",
            Outcome::NotJudged => "NOT JUDGED",
            Outcome::Note => "note",
        };
        let said = [&finding.limit, &finding.measured, &finding.note];
        let said: Vec<&str> =
            said.into_iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        out += &format!("{word}: {}\n", plain(&said.join(": ")));
    }
    if !sheet.complete {
        out += "note: the run was cut short; the figures cover what was recorded until then\n";
    }
    let verdict = match sheet.verdict {
        Standing::Pass => "PASS",
        Standing::Fail => "FAIL",
        Standing::Measured => "none",
    };
    let why = plain(sheet.why.trim_end_matches('.'));
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

/// Why messages did not leave, of the list of an object.
fn drop_causes(sheet: &mut Sheet, found: &Json, of: &str) {
    for cause in list(found, "/drop_causes") {
        let told = serde_json::from_value::<DropCause>(cause.clone());
        let told = told.map_or_else(|_| format!("not understood: {cause}"), |it| it.to_string());
        let of = if of.is_empty() { String::new() } else { format!("{of}: ") };
        sheet.findings.push(note("drop_causes", format!("{of}{told}")));
    }
}

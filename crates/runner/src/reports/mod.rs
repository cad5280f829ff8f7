// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run came to that is no experiment: streams talked and listened to, measurements, kernels
//! on a segment, sweeps; from the directory that it left.
//!
//! Not here: experiments and simulations (`rundir`), drawing (`timewire-report`).

mod launch;
mod paths;
mod segment;
mod sweep;
mod traffic;

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use timewire_base::Verdict;
use timewire_capture::summary::{Fact, FactLevel, Finding};
use timewire_datapath::drops::DropCause;
use timewire_report::hdr::HdrSeries;
use timewire_report::run_report::{RUN_REPORT_SCHEMA, RunReport};

use crate::RunnerError;
use crate::error::Context as _;
use crate::rundir::RunDir;

/// Which kind of run left a directory, other than experiments and simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A network with phases alone, over its variables.
    Sweep,
    /// `talk` or `listen`.
    Traffic,
    /// `measure launch`.
    Launch,
    /// `measure gates`.
    Gates,
    /// `measure receive`.
    Receive,
    /// `measure path`.
    Path,
    /// `run` of programs on kernels of their own.
    Segment,
}

impl Kind {
    /// By the files that are there.
    pub fn of(directory: &Path) -> Option<Kind> {
        let kinds = [
            ("sweep.json", Kind::Sweep),
            ("traffic.json", Kind::Traffic),
            ("launch.json", Kind::Launch),
            ("gates.json", Kind::Gates),
            ("receive.json", Kind::Receive),
            ("path.json", Kind::Path),
            ("segment.jsonl", Kind::Segment),
        ];
        let there = |name: &str| directory.join(name).is_file();
        kinds.into_iter().find(|(name, _)| there(name)).map(|(_, kind)| kind)
    }

    /// What it came to.
    ///
    /// **Errors**: a file is missing or does not hold what it should.
    pub fn report(self, directory: &Path) -> Result<RunReport, RunnerError> {
        match self {
            Kind::Sweep => sweep::experiment(directory),
            Kind::Segment => segment::report(directory),
            Kind::Traffic => traffic::report(directory),
            Kind::Launch => launch::launch(directory),
            Kind::Gates => launch::gates(directory),
            Kind::Receive => paths::receive(directory),
            Kind::Path => paths::path(directory),
        }
    }
}

/// The times of the messages of a run, as series, and what they are of; `kind` is that of
/// [`Kind::of`]. `None` where a run keeps no times of single messages.
///
/// **Errors**: a file is missing or does not hold what it should.
pub fn times(
    directory: &Path,
    kind: Option<Kind>,
) -> Result<Option<(String, Vec<HdrSeries>)>, RunnerError> {
    Ok(match kind {
        None => Some(of_run(&RunDir::open(directory)?)?),
        Some(Kind::Traffic) => Some(traffic::times(directory)?),
        Some(Kind::Segment) => Some(segment::times(directory)?),
        Some(_) => None,
    })
}

fn of_run(directory: &RunDir) -> Result<(String, Vec<HdrSeries>), RunnerError> {
    let mut series = Vec::new();
    for case in directory.transfers()? {
        for stream in case.streams {
            let name = format!("{}/{}", case.id, stream.name);
            series.push(HdrSeries::new(name, case.from_ns, stream.messages));
        }
    }
    Ok(("transfer, Send to Receive".to_owned(), series))
}

/// A report without anything in it.
fn empty(kind: &'static str, title: String) -> RunReport {
    RunReport {
        schema: RUN_REPORT_SCHEMA,
        kind,
        title,
        verdict: None,
        why: String::new(),
        complete: true,
        facts: Vec::new(),
        findings: Vec::new(),
        sections: Vec::new(),
        environment: Vec::new(),
    }
}

/// Reads a file of a directory.
fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<T, RunnerError> {
    let path = directory.join(name);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} does not hold what it should", path.display()))
}

/// Reads a file of a directory whose format is `schema`.
fn read_versioned(directory: &Path, name: &str, schema: &str) -> Result<Json, RunnerError> {
    let found: Json = read(directory, name)?;
    match found.get("schema").and_then(Json::as_str) {
        Some(of) if of == schema => Ok(found),
        of => Err(RunnerError::Invalid(format!(
            "{} is of version `{}`, and this program reads `{schema}`: use the program that wrote \
             it",
            directory.join(name).display(),
            of.unwrap_or("none")
        ))),
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
fn judged(id: &str, limit: String, measured: String, verdict: impl Into<Verdict>) -> Finding {
    let verdict = Some(verdict.into());
    Finding { id: id.to_owned(), verdict, limit, measured, note: String::new() }
}

/// Something to be known that is no limit.
fn note(id: &str, measured: String) -> Finding {
    let (verdict, limit) = (None, String::new());
    Finding { id: id.to_owned(), verdict, limit, measured, note: String::new() }
}

fn fact(area: &str, name: &str, value: String) -> Fact {
    Fact { area: area.to_owned(), name: name.to_owned(), value, level: FactLevel::Ok }
}

/// Why messages did not leave, of the list of an object.
fn drop_causes(report: &mut RunReport, found: &Json, of: &str) {
    for cause in list(found, "/drop_causes") {
        let told = serde_json::from_value::<DropCause>(cause.clone());
        let told = told.map_or_else(|_| format!("not understood: {cause}"), |it| it.to_string());
        let of = if of.is_empty() { String::new() } else { format!("{of}: ") };
        report.findings.push(note("drop_causes", format!("{of}{told}")));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A compiled network and what came of it, for people.

use std::fmt::Write as _;

use serde_json::Value as Json;
use timewire_base::{Span, Verdict};

use super::judge::{Row, micros};
use super::{Compiled, Promise};

/// The compiled experiment: promises, and what each node does.
pub fn described(compiled: &Compiled) -> String {
    let mut text = format!("{}: {} streams\n", name(compiled), compiled.promises.len());
    let _ = writeln!(text, "{}", compiled.launch_error.text());
    for note in &compiled.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let head = ["stream", "from", "to", "class", "messages", "promise", "by", "least", "limit"];
    let row = |it: &Promise| {
        [
            it.name.clone(),
            format!("{} {}", it.from, it.from_interface),
            format!("{} {}", it.to, it.to_interface),
            it.class.to_string(),
            it.messages.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            time(it.latency),
            it.by.word().to_owned(),
            micros(it.at_least),
            time(it.limit()),
        ]
    };
    text += &columns(head, compiled.promises.iter().map(row));
    let stations = compiled.experiment["stations"].as_array();
    for station in stations.into_iter().flatten() {
        let name = station["name"].as_str().unwrap_or_default();
        let _ = writeln!(text, "{name}:");
        for phase in ["setup", "open", "run", "finish", "close"] {
            let steps = station["phases"][phase]["steps"].as_array();
            for step in steps.into_iter().flatten() {
                text += &step_text(phase, step, compiled);
            }
        }
    }
    text
}

/// A step of a phase; of a file that is put, what is in it.
fn step_text(phase: &str, step: &Json, compiled: &Compiled) -> String {
    if let Some(from) = step["from"].as_str() {
        let mut text = format!("  {phase}: {} is\n", step["put"].as_str().unwrap_or_default());
        for line in compiled.files.get(from).map_or("", String::as_str).lines() {
            let _ = writeln!(text, "    {line}");
        }
        return text;
    }
    if let Some(from) = step["apply"].as_str() {
        let mut text = format!("  {phase}: apply\n");
        for line in compiled.files.get(from).map_or("", String::as_str).lines() {
            let _ = writeln!(text, "    {line}");
        }
        return text;
    }
    for verb in ["run", "start", "wait", "stop"] {
        let what = match &step[verb] {
            Json::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Json::as_str).collect();
                words.join(" ")
            }
            Json::String(name) => name.clone(),
            _ => continue,
        };
        return format!("  {phase}: {verb} {what}\n");
    }
    String::new()
}

/// Every stream with its promise and what was measured, and what is wrong.
pub fn table(compiled: &Compiled, rows: &[Row]) -> String {
    let mut text = format!("{} on {}\n", name(compiled), compiled.launch_error.place);
    let head = [
        "stream", "promise", "by", "limit", "min", "p50", "p99", "max", "heard", "lost", "verdict",
    ];
    let row = |row: &Row| {
        let latency = row.measured.latency.as_ref();
        let of = |ns: Option<i64>| time(ns.map(Span::from_ns));
        [
            row.promise.name.clone(),
            time(row.promise.latency),
            row.promise.by.word().to_owned(),
            time(row.promise.limit()),
            of(latency.map(|it| it.min_ns)),
            of(latency.map(|it| it.p50_ns)),
            of(latency.map(|it| it.p99_ns)),
            of(latency.map(|it| it.max_ns)),
            row.measured.received.to_string(),
            row.measured.lost.to_string(),
            row.verdict.map_or_else(|| "-".to_owned(), |verdict| verdict.word().to_owned()),
        ]
    };
    text += &columns(head, rows.iter().map(row));
    for row in rows.iter().filter(|row| row.measured.timeouts > 0) {
        let _ =
            writeln!(text, "{}: {} requests timed out", row.promise.name, row.measured.timeouts);
    }
    for row in rows.iter().filter(|row| row.verdict.is_some_and(|it| it != Verdict::Pass)) {
        let _ = writeln!(text, "{}: {}", row.promise.name, row.why.join("; "));
    }
    text
}

/// What a table stands on, line by line.
pub fn conditions(compiled: &Compiled) -> Vec<String> {
    let notes = compiled.notes.iter().map(|note| format!("note: {note}"));
    [compiled.launch_error.text()].into_iter().chain(notes).collect()
}

/// The network, with its case and load where it has several.
fn name(compiled: &Compiled) -> String {
    let Compiled { network, title, load, .. } = compiled;
    match title.as_str() {
        "" => network.clone(),
        title => format!("{network}: {title}, {load}"),
    }
}

fn time(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), micros)
}

/// A table: the first column to the left, the others to the right.
fn columns<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells =
            row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

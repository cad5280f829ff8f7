// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment on stations came to, and what several kernels on a segment did.
//!
//! Not here: what is in the records of stations.

use std::path::Path;

use anyhow::bail;
use serde_json::Value as Json;
use timewire_report::sheet::{SPREAD_HEAD, Section, Sheet, Spread, Table};
use timewire_trace::summary::{Finding, Outcome};

use super::{count, empty, fact, judged, list, read_versioned, words};

/// An experiment on stations.
pub fn experiment(directory: &Path) -> anyhow::Result<Sheet> {
    if !directory.join("summary.json").is_file() {
        bail!(
            "{} has no summary.json: the experiment was interrupted before its end; `timewire run` \
             with the same --out goes on with it",
            directory.display()
        );
    }
    let found = read_versioned(directory, "summary.json", "timewire.experiment/1")?;
    let mut sheet = empty("run", format!("{}: performances on stations", words(&found, "/name")));
    let results = list(&found, "/results");
    let all = count(&found, "/performances");
    let done = u64::try_from(results.len()).unwrap_or(u64::MAX);
    sheet.complete = done == all;
    sheet.facts = vec![
        ("Performances".to_owned(), format!("{done} of {all} done")),
        ("Directory".to_owned(), directory.display().to_string()),
    ];
    let mut table =
        Table::new("Performances", 2, &["number", "values", "failures", "limits missed", "starts"]);
    let mut skews: Vec<i64> = Vec::new();
    let mut starts = starts_table();
    let mut failed = 0_u64;
    for result in results {
        let number = format!("{:04}", count(result, "/number"));
        findings(&mut sheet.findings, result, &number);
        let failures = list(result, "/failures").len();
        failed += u64::from(failures > 0);
        let missed = list(result, "/checks").iter().filter(|check| !is_ok(check)).count();
        let common = list(result, "/starts");
        table.rows.push(vec![
            number.clone(),
            values(result),
            failures.to_string(),
            missed.to_string(),
            common.len().to_string(),
        ]);
        for start in common {
            let stations = start.get("stations").and_then(Json::as_object);
            for (name, station) in stations.into_iter().flatten() {
                let difference = station.get("difference_ns").and_then(Json::as_i64);
                if words(station, "/state") == "started" {
                    skews.extend(difference);
                }
                let us = |key: &str| in_us(station, key);
                starts.rows.push(vec![
                    number.clone(),
                    name.clone(),
                    words(station, "/state"),
                    us("difference_ns"),
                    us("clock_offset_ns"),
                    us("clock_error_ns"),
                ]);
            }
        }
    }
    sheet.sections.push(Section {
        title: "Performances".to_owned(),
        tables: vec![table],
        ..Section::default()
    });
    let mut section = Section {
        title: "Common starts".to_owned(),
        intro: "Actual less planned start of each station, by its own clock.".to_owned(),
        ..Section::default()
    };
    if let Some(spread) = Spread::of("all stations", skews) {
        let mut table = Table::new("Differences, µs", 1, &SPREAD_HEAD);
        table.rows.push(spread.row());
        section.tables.push(table);
        section.drawings.push(timewire_report::sheet::Drawing::Spreads {
            what: "Start differences".to_owned(),
            spreads: vec![spread],
        });
    }
    if !starts.rows.is_empty() {
        section.tables.push(starts);
        sheet.sections.push(section);
    }
    let missing = all.saturating_sub(done);
    sheet.judge(match (failed, missing) {
        (0, 0) => None,
        (0, missing) => Some(format!("{missing} of {all} performances are not done.")),
        (failed, _) => Some(format!("{failed} of {done} performances failed.")),
    });
    sheet.environment = vec![fact("experiment", "file", "experiment.yaml".to_owned())];
    Ok(sheet)
}

fn starts_table() -> Table {
    let head = ["performance", "station", "state", "difference", "clock", "clock error"];
    Table::new("Starts of stations, µs", 3, &head)
}

fn is_ok(check: &Json) -> bool {
    check.get("ok").and_then(Json::as_bool).unwrap_or(false)
}

fn values(result: &Json) -> String {
    let values = result.get("values").and_then(Json::as_object);
    let one = |(name, value): (&String, &Json)| format!("{name}={}", words(value, ""));
    let all: Vec<String> = values.into_iter().flatten().map(one).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(" ") }
}

/// Failures, hosts that were left changed, and limits of one performance.
fn findings(out: &mut Vec<Finding>, result: &Json, number: &str) {
    for failure in list(result, "/failures") {
        out.push(judged(number, "nothing fails".to_owned(), words(failure, ""), false));
    }
    let left = result.get("left").and_then(Json::as_object);
    for (station, what) in left.into_iter().flatten() {
        let what: Vec<String> = list(what, "").iter().map(|it| words(it, "")).collect();
        let limit = format!("{station} is put back");
        out.push(judged(number, limit, what.join("; "), false));
    }
    for station in list(result, "/unasked") {
        out.push(Finding {
            id: number.to_owned(),
            outcome: Outcome::NotJudged,
            limit: format!("{} is put back", words(station, "")),
            measured: "it could not be asked".to_owned(),
            note: "it puts its host back when its lease ends".to_owned(),
        });
    }
    for check in list(result, "/checks") {
        let (least, most) = (words(check, "/at_least"), words(check, "/at_most"));
        let mut limit = words(check, "/of");
        if !least.is_empty() {
            limit += &format!(" at least {least}");
        }
        if !most.is_empty() {
            limit += &format!(" at most {most}");
        }
        let number_is = words(check, "/number");
        let measured = if number_is.is_empty() { "no number".to_owned() } else { number_is };
        let mut finding = judged(number, limit, measured, is_ok(check));
        finding.note = words(check, "/why");
        out.push(finding);
    }
}

fn in_us(value: &Json, key: &str) -> String {
    match value.get(key).and_then(Json::as_i64) {
        Some(ns) => super::us(ns),
        None => "–".to_owned(),
    }
}

/// Several kernels on a simulated segment.
pub fn segment(directory: &Path) -> anyhow::Result<Sheet> {
    let found: Json = super::read(directory, "summary.json")?;
    let mut sheet = empty("lab segment", "Kernels on a simulated segment".to_owned());
    let ns = |key: &str| i64::try_from(count(&found, key)).unwrap_or(i64::MAX);
    sheet.facts = vec![
        ("Kernel".to_owned(), words(&found, "/kernel")),
        ("Simulated".to_owned(), format!("{} µs", super::us(ns("/simulated_ns")))),
        ("Frames over links".to_owned(), count(&found, "/passages").to_string()),
    ];
    let head = ["station", "exit", "sent", "found busy", "received", "lost"];
    let mut table = Table::new("Stations, frames", 1, &head);
    for station in list(&found, "/stations") {
        let lost = ["/lost", "/no_buffer", "/queue_full"].map(|key| count(station, key));
        let code = match station.get("exit_code").and_then(Json::as_u64) {
            Some(code) => code.to_string(),
            None => "ended".to_owned(),
        };
        let name = words(station, "/name");
        let limit = format!("the command of {name} ends well");
        sheet.findings.push(judged(&name, limit, format!("exit code {code}"), code == "0"));
        table.rows.push(vec![
            name,
            code,
            count(station, "/frames_sent").to_string(),
            count(station, "/found_busy").to_string(),
            count(station, "/frames_received").to_string(),
            lost.iter().sum::<u64>().to_string(),
        ]);
    }
    let title = "Stations".to_owned();
    sheet.sections = vec![Section { title, tables: vec![table], ..Section::default() }];
    sheet.environment =
        vec![fact("laboratory", "how", "kernels in virtual time on one host".to_owned())];
    sheet.judge(None);
    Ok(sheet)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment on stations came to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;
use timewire_base::Verdict;
use timewire_capture::summary::Finding;
use timewire_model::scenario::orchestrated::Orchestrated;
use timewire_model::scenario::phases::Variable;
use timewire_report::run_report::{
    Drawing, NumberRow, RunReport, SPREAD_HEAD, Section, Spread, Table,
};

use crate::RunnerError;

use super::{count, empty, fact, judged, list, read_versioned, words};

/// An experiment on stations.
pub fn experiment(directory: &Path) -> Result<RunReport, RunnerError> {
    if !directory.join("summary.json").is_file() {
        return Err(RunnerError::Invalid(format!(
            "{} has no summary.json: the experiment was interrupted before its end; `timewire run` \
             with the same --out goes on with it",
            directory.display()
        )));
    }
    let found = read_versioned(directory, "summary.json", "timewire.experiment/1")?;
    let mut report = empty("run", format!("{}: trials on stations", words(&found, "/name")));
    let results = list(&found, "/results");
    let all = count(&found, "/trials");
    let done = u64::try_from(results.len()).unwrap_or(u64::MAX);
    report.complete = done == all;
    report.facts = vec![
        ("Trials".to_owned(), format!("{done} of {all} done")),
        ("Directory".to_owned(), directory.display().to_string()),
    ];
    let mut table =
        Table::new("Trials", 2, &["number", "values", "failures", "not passed", "starts"]);
    let mut skews: Vec<i64> = Vec::new();
    let mut starts = starts_table();
    let mut failed = 0_u64;
    for result in results {
        let number = format!("{:04}", count(result, "/number"));
        findings(&mut report.findings, result, &number);
        let failures = list(result, "/failures").len();
        failed += u64::from(failures > 0);
        let not_passed =
            list(result, "/checks").iter().filter(|check| verdict(check) != Verdict::Pass).count();
        let common = list(result, "/starts");
        table.rows.push(vec![
            number.clone(),
            values(result),
            failures.to_string(),
            not_passed.to_string(),
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
    report.sections.push(Section {
        title: "Trials".to_owned(),
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
        section
            .drawings
            .push(Drawing::Spreads { what: "Start differences".to_owned(), spreads: vec![spread] });
    }
    if !starts.rows.is_empty() {
        section.tables.push(starts);
        report.sections.push(section);
    }
    if let Some(checked) = checked(results, &variables(directory)) {
        report.sections.insert(0, checked);
    }
    let missing = all.saturating_sub(done);
    report.judge(match (failed, missing) {
        (0, 0) => None,
        (0, missing) => Some(format!("{missing} of {all} trials are not done.")),
        (failed, _) => Some(format!("{failed} of {done} trials failed.")),
    });
    report.environment = vec![fact("experiment", "file", "experiment.json".to_owned())];
    Ok(report)
}

/// Rows of a table and a drawing at most. With more, and where each has one number only, the
/// variable with the most values is not told apart.
const MAX_ROWS: usize = 24;

/// The names of the variables and their values, in the order of the file; none when it cannot be
/// read any more.
fn variables(directory: &Path) -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(directory.join("experiment.json")).unwrap_or_default();
    let Ok(file) = Orchestrated::parse("experiment.json", &text) else { return Vec::new() };
    let variables = file.variables.iter();
    let values = |it: &Variable| it.values.iter().map(ToString::to_string).collect();
    variables.map(|it| (it.name.to_string(), values(it))).collect()
}

/// A limit and the numbers that it was held against, by the values of the variables.
struct Checked {
    of: String,
    limits: [Option<f64>; 2],
    numbers: Vec<(Vec<String>, f64, Verdict)>,
}

/// What was checked, group by group, in a table and a drawing for each limit.
fn checked(results: &[Json], variables: &[(String, Vec<String>)]) -> Option<Section> {
    let mut all: Vec<Checked> = Vec::new();
    let mut names: Vec<String> = variables.iter().map(|(name, _)| name.clone()).collect();
    let varied = results.iter().filter_map(|it| it.get("values")?.as_object()).flatten();
    for (name, _) in varied {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    for result in results {
        let values = names.iter().map(|name| words(result, &format!("/values/{name}"))).collect();
        let values: Vec<String> = values;
        for check in list(result, "/checks") {
            let Some(number) = check.get("number").and_then(Json::as_f64) else { continue };
            let of = words(check, "/of");
            let limits = ["/at_least", "/at_most"].map(|key| limit(check, key));
            let found = all.iter().position(|it| it.of == of && it.limits == limits);
            let at = found.unwrap_or_else(|| {
                all.push(Checked { of, limits, numbers: Vec::new() });
                all.len() - 1
            });
            all[at].numbers.push((values.clone(), number, verdict(check)));
        }
    }
    let head = ["values", "n", "min", "median", "max", "fail"];
    let mut section = Section { title: "What was checked".to_owned(), ..Section::default() };
    section.intro = "The number of each trial that a limit was set for, by the values of the \
                     variables."
        .to_owned();
    for one in &all {
        let groups = grouped(&names, variables, &one.numbers);
        let mut table = Table::new(&one.name(), 1, &head);
        let mut rows = Vec::new();
        for (name, numbers) in groups {
            let values: Vec<f64> = numbers.iter().map(|number| number.0).collect();
            let fail = numbers.iter().filter(|number| number.1 == Verdict::Fail).count();
            let row = NumberRow { name, values };
            let least = row.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = row.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let numbers = [least, row.median().unwrap_or(least), most].map(|it| it.to_string());
            let [least, median, most] = numbers;
            let n = row.values.len().to_string();
            table.rows.push(vec![row.name.clone(), n, least, median, most, fail.to_string()]);
            rows.push(row);
        }
        section.tables.push(table);
        let (what, limits) = (one.name(), one.limits);
        section.drawings.push(Drawing::Numbers { what, limits, rows });
    }
    (!all.is_empty()).then_some(section)
}

impl Checked {
    fn name(&self) -> String {
        let mut name = self.of.clone();
        for (limit, words) in self.limits.iter().zip(["at least", "at most"]) {
            name += &limit.map(|limit| format!(", {words} {limit}")).unwrap_or_default();
        }
        name
    }
}

fn limit(check: &Json, key: &str) -> Option<f64> {
    words(check, key).parse().ok().filter(|it: &f64| it.is_finite())
}

/// Numbers in groups of the same values, in the order of the file; variables that would make too
/// many groups are not told apart.
fn grouped(
    names: &[String],
    variables: &[(String, Vec<String>)],
    numbers: &[(Vec<String>, f64, Verdict)],
) -> Vec<(String, Vec<(f64, Verdict)>)> {
    let place = |at: usize, value: &str| {
        let of_file = variables.get(at).and_then(|(_, all)| all.iter().position(|it| it == value));
        (of_file.unwrap_or(usize::MAX), value.len())
    };
    let distinct = |at: usize| numbers.iter().map(|it| &it.0[at]).collect::<BTreeSet<_>>().len();
    let mut told: Vec<usize> = (0..names.len()).filter(|at| distinct(*at) > 1).collect();
    loop {
        let mut groups = BTreeMap::new();
        for (values, number, verdict) in numbers {
            let of = |at: &usize| (place(*at, &values[*at]), values[*at].clone());
            let key: Vec<_> = told.iter().map(of).collect();
            groups.entry(key).or_insert_with(Vec::new).push((*number, *verdict));
        }
        let says_something = groups.len() < numbers.len() || told.len() < 2;
        if told.is_empty() || (groups.len() <= MAX_ROWS && says_something) {
            let name = |key: &[((usize, usize), String)]| {
                let one =
                    |(at, value): (&usize, &(_, String))| format!("{}={}", names[*at], value.1);
                let all: Vec<String> = told.iter().zip(key).map(one).collect();
                if all.is_empty() { "all".to_owned() } else { all.join(" ") }
            };
            return groups.into_iter().map(|(key, all)| (name(&key), all)).collect();
        }
        let most = told.iter().copied().max_by_key(|at| distinct(*at));
        told.retain(|at| Some(*at) != most);
    }
}

fn starts_table() -> Table {
    let head = ["trial", "station", "state", "difference", "clock", "clock error"];
    Table::new("Starts of stations, µs", 3, &head)
}

fn verdict(check: &Json) -> Verdict {
    let verdict = check.get("verdict").and_then(|it| Verdict::deserialize(it).ok());
    verdict.unwrap_or(Verdict::Inconclusive)
}

fn values(result: &Json) -> String {
    let values = result.get("values").and_then(Json::as_object);
    let one = |(name, value): (&String, &Json)| format!("{name}={}", words(value, ""));
    let all: Vec<String> = values.into_iter().flatten().map(one).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(" ") }
}

/// Failures, hosts that were left changed, and limits of one trial.
fn findings(out: &mut Vec<Finding>, result: &Json, number: &str) {
    for failure in list(result, "/failures") {
        out.push(judged(number, "nothing fails".to_owned(), words(failure, ""), false));
    }
    let left = result.get("left").and_then(Json::as_object);
    for (station, what) in left.into_iter().flatten() {
        let what: Vec<String> = list(what, "").iter().map(|it| words(it, "")).collect();
        let limit = format!("{station} is restored");
        out.push(judged(number, limit, what.join("; "), false));
    }
    let not_compared = result.get("not_compared").and_then(Json::as_object);
    for (station, what) in not_compared.into_iter().flatten() {
        for what in list(what, "") {
            out.push(Finding {
                id: number.to_owned(),
                verdict: Some(Verdict::Inconclusive),
                limit: format!("{station} is restored"),
                measured: format!("not compared: {}", words(what, "")),
                note: "it is not known whether it is as it was".to_owned(),
            });
        }
    }
    for station in list(result, "/unasked") {
        out.push(Finding {
            id: number.to_owned(),
            verdict: Some(Verdict::Inconclusive),
            limit: format!("{} is restored", words(station, "")),
            measured: "it could not be asked".to_owned(),
            note: "it restores its host when its lease ends".to_owned(),
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
        let number_is = check.get("number").and_then(Json::as_f64);
        let number_is = number_is.map(|number| number.to_string()).unwrap_or_default();
        let measured = if number_is.is_empty() { "no number".to_owned() } else { number_is };
        let mut finding = judged(number, limit, measured, verdict(check));
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

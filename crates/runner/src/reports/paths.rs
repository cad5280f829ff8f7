// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of the receive path or of the whole path came to.

use std::path::Path;

use serde_json::Value as Json;
use timewire_capture::series::TimeSeries;
use timewire_report::run_report::{Drawing, RunReport, SPREAD_HEAD, Section, Spread, Table};
use timewire_stats::HistogramSummary;

use crate::RunnerError;
use crate::error::invalid;

use super::{count, drop_causes, empty, fact, judged, list, note, read_versioned, words};

/// The receive path.
pub fn receive(directory: &Path) -> Result<RunReport, RunnerError> {
    let found = read_versioned(directory, "receive.json", "timewire.measure-receive/1")?;
    let mut report = empty(
        "measure receive",
        format!("How long received frames take to the program: {}", words(&found, "/place")),
    );
    report.complete = found.get("ended_early").and_then(Json::as_bool) != Some(true);
    let thresholds = match list(&found, "/thresholds_ns") {
        [first, second] => first.as_i64().zip(second.as_i64()).map(|(one, two)| [one, two]),
        _ => None,
    };
    report.facts = vec![
        ("Place".to_owned(), words(&found, "/place")),
        ("Messages".to_owned(), format!("{} bytes", words(&found, "/payload_bytes"))),
        ("Rounds".to_owned(), words(&found, "/repeats")),
    ];
    let head = ["", "rate", "sent", "received", "lost", "dropped", "reordered", "duplicate"];
    let mut counts = Table::new("Messages", 1, &head);
    let mut sections = Vec::new();
    for combination in list(&found, "/combinations") {
        let name = words(combination, "/name");
        let lost = count(combination, "/lost");
        let limit = format!("{name} loses nothing");
        report.findings.push(judged("lost", limit, format!("{lost} lost"), lost == 0));
        if count(combination, "/received") == 0 && report.complete {
            let limit = format!("{name} receives something");
            report.findings.push(judged("received", limit, "nothing came".to_owned(), false));
        }
        drop_causes(&mut report, combination, &name);
        for refused in list(combination, "/refused") {
            report.findings.push(note("refused", format!("{name}: {}", words(refused, ""))));
        }
        let of = |key| {
            let value = words(combination, key);
            if value.is_empty() { "–".to_owned() } else { value }
        };
        let keys = ["/rate", "/sent", "/received", "/lost", "/dropped", "/reordered", "/duplicate"];
        counts.rows.push([vec![name.clone()], keys.map(of).to_vec()].concat());
        sections.push(combination_section(combination, name, thresholds)?);
    }
    let title = "Messages".to_owned();
    report.sections.push(Section { title, tables: vec![counts], ..Section::default() });
    report.sections.extend(sections);
    report.environment = vec![fact("measurement", "place", words(&found, "/place"))];
    report.judge(None);
    Ok(report)
}

fn combination_section(
    combination: &Json,
    name: String,
    thresholds: Option<[i64; 2]>,
) -> Result<Section, RunnerError> {
    let mut section =
        Section { title: name.clone(), intro: words(combination, "/mode"), ..Section::default() };
    let mut spreads = Vec::new();
    for stage in list(combination, "/stages") {
        let Some(all) = stage.get("all") else { continue };
        let counted: HistogramSummary = serde_json::from_value(all.clone()).map_err(invalid)?;
        spreads.extend(Spread::of_counted(&words(stage, "/stage"), &counted));
    }
    add(&mut section, "Time in each stage", spreads);
    // In the order of the messages; an instant is a message's number here.
    for (part, key) in [("driver", "driver_ns"), ("stack", "stack_ns"), ("complete", "complete_ns")]
    {
        let points: Vec<(i64, i64)> = list(combination, "/points")
            .iter()
            .filter_map(|point| Some((point.get("seq")?.as_i64()?, point.get(key)?.as_i64()?)))
            .collect();
        if let Some(series) = TimeSeries::of(points.into_iter(), thresholds) {
            let (what, series) = (format!("{part}, message by message"), Box::new(series));
            section.drawings.push(Drawing::Numbered { what, name: name.clone(), series });
        }
    }
    Ok(section)
}

fn add(section: &mut Section, what: &str, spreads: Vec<Spread>) {
    if spreads.is_empty() {
        return;
    }
    let mut table = Table::new(&format!("{what}, µs"), 1, &SPREAD_HEAD);
    table.rows = spreads.iter().map(Spread::row).collect();
    section.tables.push(table);
    section.drawings.push(Drawing::Spreads { what: what.to_owned(), spreads });
}

/// The whole path.
pub fn path(directory: &Path) -> Result<RunReport, RunnerError> {
    let found = read_versioned(directory, "path.json", "timewire.measure-path/1")?;
    let round = found.get("round_trip").and_then(Json::as_bool) == Some(true);
    let trip = if round { "there and back" } else { "one way" };
    let title = format!("How long messages take, {trip} to {}", words(&found, "/to"));
    let mut report = empty("measure path", title);
    report.complete = found.get("ended_early").and_then(Json::as_bool) != Some(true);
    let rate = words(&found, "/full_rate");
    report.facts = vec![
        ("Over".to_owned(), format!("{} {}", words(&found, "/over"), words(&found, "/wait"))),
        ("Messages".to_owned(), format!("{} bytes", words(&found, "/payload_bytes"))),
        (
            "Full rate".to_owned(),
            if rate.is_empty() { "none".to_owned() } else { format!("{rate}/s") },
        ),
    ];
    let steps = list(&found, "/steps");
    let head = ["load", "rate", "planned", "sent", "received", "lost"];
    let mut trials = Table::new("Trials, the search first", 1, &head);
    for (trial, load) in list(&found, "/search")
        .iter()
        .map(|trial| (trial, "search".to_owned()))
        .chain(steps.iter().map(|step| (step, format!("{} %", count(step, "/load")))))
    {
        let (sent, received) = (count(trial, "/sent"), count(trial, "/received"));
        let of = ["/rate", "/planned"].map(|key| count(trial, key).to_string());
        let lost = sent.saturating_sub(received);
        let rest = [sent, received, lost].map(|count| count.to_string());
        drop_causes(&mut report, trial, &load);
        trials.rows.push([vec![load], of.to_vec(), rest.to_vec()].concat());
    }
    let title = "Trials".to_owned();
    report.sections.push(Section { title, tables: vec![trials], ..Section::default() });
    for step in steps {
        let lost = count(step, "/sent").saturating_sub(count(step, "/received"));
        let name = format!("{} % of the full rate", count(step, "/load"));
        let limit = format!("nothing is lost at {name}");
        report.findings.push(judged("lost", limit, format!("{lost} lost"), lost == 0));
        let mut spreads = Vec::new();
        for stage in list(step, "/stages") {
            let Some(times) = stage.get("times") else { continue };
            let counted: HistogramSummary =
                serde_json::from_value(times.clone()).map_err(invalid)?;
            spreads.extend(Spread::of_counted(&words(stage, "/stage"), &counted));
        }
        // The whole comes last in the file and first on the page.
        let last = spreads.len().min(1);
        spreads.rotate_right(last);
        let mut section = Section { title: name, ..Section::default() };
        add(&mut section, "Time in each stage", spreads);
        report.sections.push(section);
    }
    let why = words(&found, "/nic/why");
    if !why.is_empty() && words(&found, "/to") != "bench" {
        report.findings.push(note("nic", format!("no times from the NIC: {why}")));
    }
    report.environment = vec![fact("measurement", "to", words(&found, "/to"))];
    report.judge(steps.is_empty().then(|| "Every rate lost something.".to_owned()));
    Ok(report)
}

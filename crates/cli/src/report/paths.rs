// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of the receive path or of the whole path came to.
//!
//! Not here: measuring (`timewire_ctl::measure`).

use std::path::Path;

use serde_json::Value as Json;
use timewire_report::sheet::{Drawing, SPREAD_HEAD, Section, Sheet, Spread, Table};
use timewire_trace::course::Course;
use timewire_trace::stream::histogram::HistogramSummary;

use super::{count, drop_causes, empty, fact, judged, list, note, read_versioned, words};

/// The receive path.
pub fn receive(directory: &Path) -> anyhow::Result<Sheet> {
    let found = read_versioned(directory, "receive.json", "timewire.measure-receive/1")?;
    let mut sheet = empty(
        "measure receive",
        format!("How long received frames take to the program: {}", words(&found, "/place")),
    );
    sheet.complete = found.get("ended_early").and_then(Json::as_bool) != Some(true);
    let thresholds = match list(&found, "/thresholds_ns") {
        [first, second] => first.as_i64().zip(second.as_i64()).map(|(one, two)| [one, two]),
        _ => None,
    };
    sheet.facts = vec![
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
        sheet.findings.push(judged("lost", limit, format!("{lost} lost"), lost == 0));
        if count(combination, "/received") == 0 && sheet.complete {
            let limit = format!("{name} receives something");
            sheet.findings.push(judged("received", limit, "nothing came".to_owned(), false));
        }
        drop_causes(&mut sheet, combination, &name);
        for refused in list(combination, "/refused") {
            sheet.findings.push(note("refused", format!("{name}: {}", words(refused, ""))));
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
    sheet.sections.push(Section { title, tables: vec![counts], ..Section::default() });
    sheet.sections.extend(sections);
    sheet.environment = vec![fact("measurement", "place", words(&found, "/place"))];
    sheet.judge(None);
    Ok(sheet)
}

fn combination_section(
    combination: &Json,
    name: String,
    thresholds: Option<[i64; 2]>,
) -> anyhow::Result<Section> {
    let mut section =
        Section { title: name.clone(), intro: words(combination, "/mode"), ..Section::default() };
    let mut spreads = Vec::new();
    for stage in list(combination, "/stages") {
        let Some(all) = stage.get("all") else { continue };
        let counted: HistogramSummary = serde_json::from_value(all.clone())?;
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
        if let Some(course) = Course::of(points.into_iter(), thresholds) {
            let (what, course) = (format!("{part}, message by message"), Box::new(course));
            section.drawings.push(Drawing::Numbered { what, name: name.clone(), course });
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
pub fn path(directory: &Path) -> anyhow::Result<Sheet> {
    let found = read_versioned(directory, "path.json", "timewire.measure-path/1")?;
    let round = found.get("round_trip").and_then(Json::as_bool) == Some(true);
    let trip = if round { "there and back" } else { "one way" };
    let title = format!("How long messages take, {trip} to {}", words(&found, "/to"));
    let mut sheet = empty("measure path", title);
    sheet.complete = found.get("ended_early").and_then(Json::as_bool) != Some(true);
    let rate = words(&found, "/full_rate");
    sheet.facts = vec![
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
        drop_causes(&mut sheet, trial, &load);
        trials.rows.push([vec![load], of.to_vec(), rest.to_vec()].concat());
    }
    let title = "Trials".to_owned();
    sheet.sections.push(Section { title, tables: vec![trials], ..Section::default() });
    for step in steps {
        let lost = count(step, "/sent").saturating_sub(count(step, "/received"));
        let name = format!("{} % of the full rate", count(step, "/load"));
        let limit = format!("nothing is lost at {name}");
        sheet.findings.push(judged("lost", limit, format!("{lost} lost"), lost == 0));
        let mut spreads = Vec::new();
        for stage in list(step, "/stages") {
            let Some(times) = stage.get("times") else { continue };
            let counted: HistogramSummary = serde_json::from_value(times.clone())?;
            spreads.extend(Spread::of_counted(&words(stage, "/stage"), &counted));
        }
        // The whole comes last in the file and first on the page.
        let last = spreads.len().min(1);
        spreads.rotate_right(last);
        let mut section = Section { title: name, ..Section::default() };
        add(&mut section, "Time in each stage", spreads);
        sheet.sections.push(section);
    }
    let why = words(&found, "/card/why");
    if !why.is_empty() && words(&found, "/to") != "bench" {
        sheet.findings.push(note("card", format!("no times from the card: {why}")));
    }
    sheet.environment = vec![fact("measurement", "to", words(&found, "/to"))];
    sheet.judge(steps.is_empty().then(|| "Every rate lost something.".to_owned()));
    Ok(sheet)
}

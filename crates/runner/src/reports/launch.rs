// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of launch times or gates came to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use timewire_base::Span;
use timewire_capture::series::TimeSeries;
use timewire_report::run_report::{Drawing, Lane, RunReport, SPREAD_HEAD, Section, Spread, Table};

use crate::RunnerError;
use crate::error::Context as _;
use crate::measure::Report as _;
use crate::measure::launch::gates::result::Measured as Gates;
use crate::measure::launch::result::{Conclusion, Conditions, Measured as Launch};

use super::{empty, fact, judged, note, read};

/// Launch times.
pub fn launch(directory: &Path) -> Result<RunReport, RunnerError> {
    let found: Launch = read(directory, "launch.json")?;
    let mut report = begin("How exactly frames leave", &found.conditions, &found.scheduling);
    report.facts.extend([
        ("Frames".to_owned(), format!("{} bytes", found.frame_bytes)),
        ("Repeats".to_owned(), found.repeats.to_string()),
    ]);
    conclude(&mut report, &found.conclusion);
    for absent in &found.absent {
        report.findings.push(note("absent", format!("{}: {}", absent.way, absent.reason.why)));
    }
    let head = ["way", "planned", "sent", "not taken", "invalid", "missed", "unsent"];
    for column in &found.columns {
        for cause in &column.drop_causes {
            report.findings.push(note("drop_causes", format!("{}: {cause}", column.name())));
        }
    }
    let mut counts = Table::new("Frames", 1, &head);
    for column in &found.columns {
        let c = &column.counts;
        let of = [c.planned, c.sent, c.not_taken, c.invalid, c.missed, c.unsent];
        let row = of.map(|count| count.to_string());
        counts.rows.push([vec![column.name()], row.to_vec()].concat());
    }
    let shown: BTreeMap<String, String> =
        found.columns.iter().map(|it| (it.name(), it.shown.to_string())).collect();
    let errors = launch_errors(directory, &shown)?;
    let mut section = Section {
        title: "Launch errors".to_owned(),
        intro:
            "Timestamp less launch time, by the timestamp point that the result shows of each way."
                .to_owned(),
        tables: vec![counts],
        ..Section::default()
    };
    let ordered: Vec<(String, Vec<(i64, i64)>)> = found
        .columns
        .iter()
        .filter_map(|it| Some((it.name(), errors.get(&it.name())?.clone())))
        .collect();
    add_spreads(&mut section, "Launch errors", &ordered);
    report.sections.push(section);
    if !found.ratios.is_empty() {
        let head = ["of", "to", "figure", "smallest", "median", "largest"];
        let mut table = Table::new("Ratios, repeat by repeat", 3, &head);
        for ratio in &found.ratios {
            let cycle = Span::from_ns(ratio.cycle_ns);
            table.rows.push(vec![
                format!("{} @ {cycle}", ratio.of),
                ratio.to.to_string(),
                format!("{:?}", ratio.figure),
                format!("{:.2}", ratio.smallest),
                format!("{:.2}", ratio.median),
                format!("{:.2}", ratio.largest),
            ]);
        }
        let title = "How much more exact".to_owned();
        report.sections.push(Section { title, tables: vec![table], ..Section::default() });
    }
    let bad = found.has_findings();
    report.judge(
        bad.then(|| "Frames were lost to their launch times, or could not be compared.".to_owned()),
    );
    Ok(report)
}

/// Tables and figures of several lists of `(instant, value)`.
fn add_spreads(section: &mut Section, what: &str, lists: &[(String, Vec<(i64, i64)>)]) {
    let values = |points: &[(i64, i64)]| points.iter().map(|point| point.1).collect();
    let spreads: Vec<Spread> =
        lists.iter().filter_map(|(name, points)| Spread::of(name, values(points))).collect();
    if spreads.is_empty() {
        return;
    }
    let mut table = Table::new(&format!("{what}, µs"), 1, &SPREAD_HEAD);
    table.rows = spreads.iter().map(Spread::row).collect();
    section.tables.push(table);
    section.drawings.push(Drawing::Spreads { what: what.to_owned(), spreads });
    for (name, points) in lists {
        if let Some(series) = TimeSeries::of(points.iter().copied(), None) {
            let (what, name, series) = (what.to_owned(), name.clone(), Box::new(series));
            section.drawings.push(Drawing::TimeSeries { what, name, series });
        }
    }
}

fn begin(title: &str, conditions: &Conditions, scheduling: &str) -> RunReport {
    let Conditions { kernel, place, virtual_time, .. } = conditions;
    let time =
        if *virtual_time { "virtual: nothing takes time but waiting" } else { "of the host" };
    let mut report = empty("measure launch", title.to_owned());
    report.facts = vec![("Between".to_owned(), place.clone())];
    report.environment = vec![
        fact("kernel", "release", kernel.clone()),
        fact("kernel", "time", time.to_owned()),
        fact("sender", "scheduling", scheduling.to_owned()),
    ];
    report
}

fn conclude(report: &mut RunReport, conclusion: &Conclusion) {
    report.complete = !conclusion.ended_early;
    for limit in &conclusion.limits {
        let found = limit.found.map_or("not measured".to_owned(), |found| found.to_string());
        let text = format!("{} of {}: {} allowed", limit.figure, limit.of, limit.bound);
        report.findings.push(judged(&limit.figure, text, found, limit.verdict));
    }
    conclusion.notes.iter().for_each(|text| report.findings.push(note("note", text.clone())));
}

/// Lines of `frames.csv` by the names of its columns.
fn rows(
    directory: &Path,
    mut each: impl FnMut(&dyn Fn(&str) -> Option<String>) -> Option<()>,
) -> Result<(), RunnerError> {
    let path = directory.join("frames.csv");
    let shown = || format!("cannot read {}", path.display());
    let mut lines = BufReader::new(File::open(&path).with_context(shown)?).lines();
    let Some(head) = lines.next().transpose().with_context(shown)? else { return Ok(()) };
    let head: Vec<&str> = head.split(',').collect();
    for line in lines {
        let line = line.with_context(shown)?;
        let cells: Vec<&str> = line.split(',').collect();
        let of = |name: &str| {
            let at = head.iter().position(|column| *column == name)?;
            cells.get(at).map(|cell| (*cell).to_owned())
        };
        // What has no timestamp has no error.
        let _ = each(&of);
    }
    Ok(())
}

fn launch_errors(
    directory: &Path,
    shown: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Vec<(i64, i64)>>, RunnerError> {
    let mut found: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    rows(directory, |of| {
        let ns = |name: &str| of(name)?.parse::<i64>().ok();
        let name = format!("{} @ {}", of("way")?, Span::from_ns(ns("cycle_ns")?));
        let timestamp = if shown.get(&name)? == "peer" { "peer_ns" } else { "sender_ns" };
        let (launch, at) = (ns("launch_ns")?, ns(timestamp)?);
        found.entry(name).or_default().push((launch, at.saturating_sub(launch)));
        Some(())
    })?;
    Ok(found)
}

/// Gates.
pub fn gates(directory: &Path) -> Result<RunReport, RunnerError> {
    let found: Gates = read(directory, "gates.json")?;
    let mut report = begin("How frames keep to their gates", &found.conditions, &found.scheduling);
    for cause in &found.drop_causes {
        report.findings.push(note("drop_causes", cause.to_string()));
    }
    report.facts.extend([
        ("Gates".to_owned(), found.schedule.mode.clone()),
        ("Cycle".to_owned(), Span::from_ns(found.schedule.cycle_ns).to_string()),
        ("Frames".to_owned(), format!("{} bytes", found.frame_bytes)),
    ]);
    conclude(&mut report, &found.conclusion);
    let mut table = Table::new("Frames", 1, &["class", "sent", "timestamped", "inside", "outside"]);
    for class in &found.classes {
        let name = format!("class {}", class.class);
        let Some(at) = class.at_shown() else { continue };
        let limit = format!("no frame of {name} leaves while its gate is closed");
        let outside = at.outside();
        let measured = format!("{outside} of {}", at.timestamped);
        report.findings.push(judged(&name, limit, measured, at.timestamped > 0 && outside == 0));
        let of = [class.counts.sent, at.timestamped, at.inside, outside];
        table.rows.push([vec![name], of.map(|count| count.to_string()).to_vec()].concat());
    }
    let mut section = Section {
        title: "Frames and their windows".to_owned(),
        tables: vec![table],
        ..Section::default()
    };
    let lanes = gate_lanes(directory, &found)?;
    section.drawings.push(Drawing::Phase {
        what: "Frames".to_owned(),
        cycle_ns: found.schedule.cycle_ns,
        lanes,
    });
    report.sections.push(section);
    let absent = found.absent.as_ref().map(|absent| absent.why.clone());
    report.judge(
        absent.or_else(|| found.has_findings().then(|| "A class could not be judged.".to_owned())),
    );
    Ok(report)
}

/// Bins of a cycle.
const BINS: i64 = 300;

fn gate_lanes(directory: &Path, found: &Gates) -> Result<Vec<Lane>, RunnerError> {
    let cycle = found.schedule.cycle_ns.max(1);
    let bin_ns = (cycle / BINS).max(1);
    let bins = usize::try_from(cycle / bin_ns + 1).unwrap_or(1);
    let mut lanes: BTreeMap<u8, Lane> = BTreeMap::new();
    for class in &found.classes {
        let mut windows = Vec::new();
        for window in &class.windows {
            // One that goes over the end of the cycle is at both of its ends.
            let from = window.offset.as_ns();
            let to = from.saturating_add(window.length.as_ns());
            windows.push((from, to.min(cycle)));
            if to > cycle {
                windows.push((0, to - cycle));
            }
        }
        let name = format!("class {}", class.class);
        lanes.insert(class.class, Lane { name, bin_ns, counts: vec![0; bins], windows });
    }
    rows(directory, |of| {
        let class: u8 = of("class")?.parse().ok()?;
        let at = found.classes.iter().find(|it| it.class == class)?;
        let timestamp = if at.shown.to_string() == "peer" { "peer_ns" } else { "sender_ns" };
        let ns: i64 = of(timestamp)?.parse().ok()?;
        let phase = (ns - found.schedule.base_time_ns).rem_euclid(cycle);
        let bin = usize::try_from(phase / bin_ns).ok()?;
        *lanes.get_mut(&class)?.counts.get_mut(bin)? += 1;
        Some(())
    })?;
    Ok(lanes.into_values().collect())
}

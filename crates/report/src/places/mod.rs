// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of one scenario in different places side by side: the figures of each stream, the verdict
//! of each limit, and where the places disagree.
//!
//! Not here: whether two runs of one place differ by more than chance
//! ([`compare`](crate::compare)).

mod page;

use std::collections::BTreeSet;

use serde::Serialize;
use timewire_base::Verdict;
use timewire_capture::judge::{LimitInput, Metric, Statistic};
use timewire_capture::summary::{CaseSummary, Finding, StreamPromise, StreamSummary, Summary};

use crate::terminal::{BAD, GOOD, UNSURE, painted, plain};
use crate::text::{began, put, us};

pub use page::places_html;

/// The `schema` field that this version writes.
pub const PLACES_SCHEMA: &str = "timewire.places/1";

/// One of the runs.
#[derive(Clone, Debug)]
pub struct PlaceRun {
    /// Its directory, as it was named.
    pub directory: String,
    /// What it came to.
    pub summary: Summary,
    /// The limits of its scenarios.
    pub limits: Vec<LimitInput>,
}

/// Runs side by side.
///
/// **Shape**: every list of figures or verdicts has one entry for each run, in their order; `null`
/// where a run does not have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Places {
    /// Format and version, [`PLACES_SCHEMA`].
    pub schema: &'static str,
    /// The runs.
    pub runs: Vec<Place>,
    /// Each stream of each case.
    pub streams: Vec<StreamRow>,
    /// Each limit.
    pub limits: Vec<LimitRow>,
    /// Over all limits of all runs.
    pub verdict: Verdict,
}

/// Where a run was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// `sim`, `lab`, `lab:uml`, `lab:qemu` or `hosts`; with a number from the second run there on.
    pub place: String,
    /// Its directory.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// When it started, nanoseconds since 1970 UTC; 0 of a simulation.
    pub started_utc_ns: i64,
    /// Whether it came to its end.
    pub complete: bool,
    /// Over its own limits.
    pub verdict: Verdict,
}

/// One stream in one case under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamRow {
    /// `SCENARIO/CASE/LOAD`.
    pub case: String,
    /// The stream.
    pub stream: String,
    /// In each run.
    pub figures: Vec<Option<Figures>>,
}

/// What a stream came to in one place.
///
/// **Units**: nanoseconds; `None` where nothing was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Messages received.
    pub received: u64,
    /// Median of the transfer times.
    pub p50_ns: Option<i64>,
    /// Their 99th percentile.
    pub p99_ns: Option<i64>,
    /// The longest.
    pub max_ns: Option<i64>,
    /// Messages lost.
    pub lost: u64,
    /// Frames of the case outside slots; `None` without slots.
    pub outside_slots: Option<u64>,
    /// What it was promised there; `None` where nothing was.
    pub promise: Option<StreamPromise>,
    /// Metrics of it that are beyond their limit, as limits name them.
    pub beyond: Vec<String>,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitRow {
    /// `SCENARIO/LIMIT`.
    pub id: String,
    /// What it says.
    pub limit: String,
    /// In each run.
    pub judged: Vec<Option<Judged>>,
    /// Whether the runs that have it disagree.
    pub differs: bool,
}

/// What a limit came to in one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// What was measured, in words.
    pub measured: String,
    /// What else there is to say.
    pub note: String,
}

/// Where a run was, as its environment says.
fn place_of(summary: &Summary) -> &'static str {
    let facts = || summary.environment.iter();
    let laboratory = facts().find(|it| it.area == "privilege" && it.name == "laboratory");
    let network = facts().find(|it| it.area == "network" && it.name == "place");
    let laboratory = laboratory.or(network);
    if facts().any(|it| ["simulator", "simulation"].contains(&it.area.as_str())) {
        "sim"
    } else if facts().any(|it| it.name == "agent" && it.area.starts_with("station "))
        || network.is_some_and(|it| it.value.starts_with("the hosts of "))
    {
        "hosts"
    } else if laboratory.is_some_and(|it| it.value.starts_with("Linux ")) {
        match laboratory.is_some_and(|it| it.value.contains(", emulated")) {
            true => "lab:qemu",
            false => "lab:uml",
        }
    } else {
        "lab"
    }
}

/// Puts runs side by side.
pub fn places(runs: &[PlaceRun]) -> Places {
    let mut named: Vec<Place> = Vec::new();
    for run in runs {
        let place = place_of(&run.summary);
        let before = runs[..named.len()].iter();
        let count = before.filter(|other| place_of(&other.summary) == place).count();
        named.push(Place {
            place: if count == 0 { place.to_owned() } else { format!("{place} {}", count + 1) },
            directory: run.directory.clone(),
            title: run.summary.title.clone(),
            started_utc_ns: run.summary.started_utc_ns,
            complete: run.summary.complete,
            verdict: run.summary.verdict,
        });
    }
    let verdict = Verdict::over(runs.iter().map(|run| run.summary.verdict));
    Places {
        schema: PLACES_SCHEMA,
        runs: named,
        streams: stream_rows(runs),
        limits: limit_rows(runs),
        verdict,
    }
}

/// What all runs have, each once, in the order of the first that has it.
fn once<'a, T: Ord + Clone + 'a>(
    all: impl Iterator<Item = T> + 'a,
) -> impl Iterator<Item = T> + 'a {
    let mut seen = BTreeSet::new();
    all.filter(move |it| seen.insert(it.clone()))
}

fn stream_rows(runs: &[PlaceRun]) -> Vec<StreamRow> {
    let of_case = |case: &CaseSummary| {
        let id = case.id.clone();
        let names = case.streams.iter().map(move |stream| (id.clone(), stream.name.clone()));
        names.collect::<Vec<_>>()
    };
    let all = runs.iter().flat_map(|run| run.summary.cases.iter().flat_map(of_case));
    let row = |(case, stream): (String, String)| {
        let figures = runs.iter().map(|run| figures(run, &case, &stream)).collect();
        StreamRow { case, stream, figures }
    };
    once(all).map(row).collect()
}

fn figures(run: &PlaceRun, case: &str, stream: &str) -> Option<Figures> {
    let case = run.summary.cases.iter().find(|it| it.id == case)?;
    let stream: &StreamSummary = case.streams.iter().find(|it| it.name == stream)?;
    let transfer = stream.transfer.as_ref();
    Some(Figures {
        received: stream.received,
        p50_ns: transfer.map(|it| it.p50_ns),
        p99_ns: transfer.map(|it| it.p99_ns),
        max_ns: transfer.map(|it| it.max_ns),
        lost: stream.lost,
        outside_slots: case.tdm.then_some(case.wire.outside_slots),
        promise: stream.promise.clone(),
        beyond: beyond(run, case, stream),
    })
}

/// Metrics of a stream and its case whose limit fails.
fn beyond(run: &PlaceRun, case: &CaseSummary, stream: &StreamSummary) -> Vec<String> {
    let is_about = |limit: &&LimitInput| {
        let of_stream = limit.stream.as_ref().is_none_or(|name| *name == stream.name);
        let of_case = (&limit.scenario, &limit.case, &limit.load);
        of_stream && of_case == (&case.scenario, &case.case, &case.load)
    };
    let fails = |limit: &&LimitInput| {
        let id = format!("{}/{}", limit.scenario, limit.id);
        let found = run.summary.findings.iter().find(|finding| finding.id == id);
        found.is_some_and(|finding| finding.verdict == Some(Verdict::Fail))
    };
    let limits = run.limits.iter().filter(is_about).filter(fails);
    let promised = stream.promise.as_ref().zip(stream.transfer.as_ref());
    let is_late = promised.is_some_and(|(promise, took)| took.max_ns > promise.limit_ns);
    let late = is_late.then_some(Metric::Latency(Statistic::Max).name());
    once(limits.map(|limit| limit.metric.name()).chain(late)).collect()
}

fn limit_rows(runs: &[PlaceRun]) -> Vec<LimitRow> {
    let findings = |run: &PlaceRun| -> Vec<Finding> {
        run.summary.findings.iter().filter(|it| it.verdict.is_some()).cloned().collect()
    };
    let of_runs: Vec<Vec<Finding>> = runs.iter().map(findings).collect();
    let ids = once(of_runs.iter().flatten().map(|finding| finding.id.as_str()));
    let row = |id: &str| {
        let found = || of_runs.iter().map(|of| of.iter().find(|finding| finding.id == id));
        let judged = |finding: Option<&Finding>| {
            let finding = finding?;
            let (measured, note) = (finding.measured.clone(), finding.note.clone());
            Some(Judged { verdict: finding.verdict?, measured, note })
        };
        let judged: Vec<Option<Judged>> = found().map(judged).collect();
        let mut verdicts = judged.iter().flatten().map(|it| it.verdict);
        let first = verdicts.next();
        let differs = verdicts.any(|verdict| Some(verdict) != first);
        let limit = found().flatten().map(|finding| finding.limit.clone()).next();
        LimitRow { id: id.to_owned(), limit: limit.unwrap_or_default(), judged, differs }
    };
    ids.map(row).collect()
}

impl Places {
    /// Whether all runs have a case in common.
    pub fn has_common_case(&self) -> bool {
        self.streams.iter().any(|row| row.figures.iter().all(Option::is_some))
    }
}

/// The columns of figures: their head, the metric of their limit, and what is in them.
type Column = (&'static str, Option<Metric>, fn(&Figures) -> Option<String>);

const COLUMNS: [Column; 8] = [
    ("promise", None, |it| {
        let promise = it.promise.as_ref()?;
        Some(format!("{} {}", us(promise.latency_ns?), promise.by))
    }),
    ("limit", None, |it| Some(us(it.promise.as_ref()?.limit_ns))),
    ("n", None, |it| Some(it.received.to_string())),
    ("p50", Some(Metric::Latency(Statistic::P50)), |it| Some(us(it.p50_ns?))),
    ("p99", Some(Metric::Latency(Statistic::P99)), |it| Some(us(it.p99_ns?))),
    ("max", Some(Metric::Latency(Statistic::Max)), |it| Some(us(it.max_ns?))),
    ("lost", Some(Metric::Lost), |it| Some(it.lost.to_string())),
    ("outside slots", Some(Metric::OutsideSlots), |it| Some(it.outside_slots?.to_string())),
];

/// Columns that are there only where something is promised.
const PROMISED: [&str; 2] = ["promise", "limit"];

/// The runs as plain text, ending with a line feed.
///
/// **Units**: times are microseconds.
pub fn places_table(places: &Places, colour: bool) -> String {
    let mut out = String::new();
    for run in &places.runs {
        let cut = if run.complete { "" } else { ", cut short" };
        let (directory, title) = (plain(&run.directory), plain(&run.title));
        put!(
            &mut out,
            "{}: {directory} ({title}, {}{cut})\n",
            run.place,
            began(run.started_utc_ns)
        );
    }
    out.push_str(
        "\ntransfer Send->Receive, times in us; ! is beyond its limit, - was not measured\n",
    );
    let figures = || places.streams.iter().flat_map(|row| row.figures.iter().flatten());
    let columns: Vec<&Column> = match figures().any(|it| it.promise.is_some()) {
        true => COLUMNS.iter().collect(),
        false => COLUMNS.iter().filter(|it| !PROMISED.contains(&it.0)).collect(),
    };
    let mut rows = vec![head(&["case", "stream", "place"], columns.iter().map(|it| it.0))];
    for row in &places.streams {
        for (at, (run, figures)) in places.runs.iter().zip(&row.figures).enumerate() {
            let names =
                if at == 0 { [plain(&row.case), plain(&row.stream)] } else { Default::default() };
            let mut line: Vec<String> = names.into_iter().chain([run.place.clone()]).collect();
            line.extend(columns.iter().map(|column| cell(column, figures.as_ref())));
            rows.push(line);
        }
    }
    lines(&mut out, &rows, 3);
    out.push('\n');
    if !places.limits.is_empty() {
        limits(&mut out, places, colour);
    }
    let (word, code) = label(places.verdict);
    let differ = places.limits.iter().filter(|row| row.differs).count();
    let (runs, all) = (places.runs.len(), places.limits.len());
    let word = painted(word, code, colour);
    put!(
        &mut out,
        "verdict: {word} ({runs} places, {differ} of {all} limits differ between them)\n"
    );
    out
}

fn cell((_, metric, text): &Column, figures: Option<&Figures>) -> String {
    let Some(figures) = figures else { return "-".to_owned() };
    let is_beyond = metric.is_some_and(|metric| figures.beyond.contains(&metric.name()));
    let mark = if is_beyond { "!" } else { "" };
    text(figures).map_or_else(|| "-".to_owned(), |text| format!("{mark}{text}"))
}

fn head<'a>(names: &[&'a str], more: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.iter().copied().chain(more).map(str::to_owned).collect()
}

/// Each limit with the verdict of each place, and what was measured where it does not pass.
fn limits(out: &mut String, places: &Places, colour: bool) {
    let names = places.runs.iter().map(|run| run.place.as_str());
    let mut rows = vec![head(&["limit"], names.chain([""]))];
    for row in &places.limits {
        let word = |it: &Option<Judged>| it.as_ref().map_or("-", |it| it.verdict.word()).to_owned();
        let mut line = vec![plain(&row.id)];
        line.extend(row.judged.iter().map(word));
        line.push(if row.differs { "differs" } else { "" }.to_owned());
        rows.push(line);
    }
    lines(out, &rows, usize::MAX);
    out.push('\n');
    for row in &places.limits {
        for (run, judged) in places.runs.iter().zip(&row.judged) {
            let Some(judged) = judged.as_ref().filter(|it| it.verdict != Verdict::Pass) else {
                continue;
            };
            let (word, code) = label(judged.verdict);
            let (word, id) = (painted(word, code, colour), plain(&row.id));
            let (measured, limit) = (plain(&judged.measured), plain(&row.limit));
            put!(out, "{word} {id} in {}: {measured} (limit {limit})\n", run.place);
            if !judged.note.is_empty() {
                put!(out, "     {}\n", plain(&judged.note));
            }
        }
    }
}

fn label(verdict: Verdict) -> (&'static str, &'static str) {
    let code = match verdict {
        Verdict::Pass => GOOD,
        Verdict::Fail => BAD,
        Verdict::Inconclusive => UNSURE,
    };
    (verdict.label(), code)
}

/// Rows of cells under each other; the first columns hold text, the others end at the right.
fn lines(out: &mut String, rows: &[Vec<String>], text_columns: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (at, (text, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - text.chars().count());
            let gap = if at == 0 { "" } else { "  " };
            match at < text_columns {
                true => put!(&mut line, "{gap}{text}{pad}"),
                false => put!(&mut line, "{gap}{pad}{text}"),
            }
        }
        put!(out, "{}\n", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use timewire_base::Span;
    use timewire_capture::judge::Bound;

    use super::*;

    fn distribution(ns: i64) -> serde_json::Value {
        let mut text = serde_json::to_value(timewire_stats::Distribution::of(
            vec![ns; 200],
            timewire_stats::Bins::covering(Span::from_us(100), Span::from_us(20)),
        ))
        .unwrap();
        text["max_ns"] = json!(ns + 1_000);
        text
    }

    /// A run with one stream in one case: its transfer times, and whether they are within 50 us.
    fn run(directory: &str, (area, name, value): (&str, &str, &str), ns: i64) -> PlaceRun {
        let verdict = if ns <= 50_000 { "pass" } else { "fail" };
        let summary = json!({
            "schema": "timewire.summary/1", "tool": "timewire 0.1.0", "title": "first",
            "started_utc_ns": 0, "elapsed_ns": 1, "complete": true,
            "environment": [{ "area": area, "name": name, "value": value, "level": "ok" }],
            "cases": [{
                "id": "s/tdm/alone", "scenario": "s", "case": "tdm", "title": "TDM",
                "load": "alone", "message_bytes": 64, "cycle_ns": 1_000_000, "tdm": true,
                "slots": [], "published": null, "macs": [],
                "streams": [{
                    "name": "control", "class": "real_time", "sent": 201, "received": 200,
                    "lost": 1, "late": 0, "deadline_ns": 0, "transfer": distribution(ns),
                    "transfer_request": null, "transfer_response": null, "slot_wait": null,
                    "receive": null,
                }],
                "wire": {
                    "frames": 10, "outside_slots": 2, "in_guard": 0, "worst_outside_ns": 5,
                    "unobserved": 0, "timestamp_bound_p999_ns": null,
                    "timestamp_bound_max_ns": null, "phases": [],
                },
            }],
            "findings": [{
                "id": "s/fast", "verdict": verdict, "limit": "p50 is at most 50us",
                "measured": format!("p50 is {ns}ns"), "note": "",
            }],
            "verdict": verdict,
        });
        let limit = LimitInput {
            id: "fast".to_owned(),
            scenario: "s".to_owned(),
            case: "tdm".to_owned(),
            load: "alone".to_owned(),
            stream: Some("control".to_owned()),
            metric: Metric::Latency(Statistic::P50),
            bound: Bound::Time(Span::from_us(50)),
        };
        PlaceRun {
            directory: directory.to_owned(),
            summary: serde_json::from_value(summary).unwrap(),
            limits: vec![limit],
        }
    }

    const SIM: (&str, &str, &str) = ("simulator", "seed", "1");
    const HOSTS: (&str, &str, &str) = ("station alpha", "agent", "local");
    const UML: (&str, &str, &str) = ("privilege", "laboratory", "Linux 6.12 (uml)");
    const LAB: (&str, &str, &str) = ("privilege", "laboratory", "root");

    #[test]
    fn t0_places_are_side_by_side_and_what_is_beyond_its_limit_is_marked() {
        let found = places(&[run("a", SIM, 20_000), run("b", LAB, 60_000), run("c", LAB, 40_000)]);
        let names: Vec<&str> = found.runs.iter().map(|run| run.place.as_str()).collect();
        assert_eq!(names, ["sim", "lab", "lab 2"]);
        assert_eq!((found.verdict, found.limits[0].differs), (Verdict::Fail, true));
        assert!(found.has_common_case());
        let text = places_table(&found, false);
        let expected = "\
case         stream   place    n    p50   p99   max  lost  outside slots
s/tdm/alone  control  sim    200   20.0  20.0  21.0     1              2
                      lab    200  !60.0  60.0  61.0     1              2
                      lab 2  200   40.0  40.0  41.0     1              2

limit   sim   lab   lab 2
s/fast  pass  fail  pass   differs

FAIL s/fast in lab: p50 is 60000ns (limit p50 is at most 50us)
verdict: FAIL (3 places, 1 of 1 limits differ between them)
";
        assert!(text.ends_with(expected), "{text}");
        let page = places_html(&found);
        assert!(page.contains("<b>FAIL</b> <span>1 of 1 limits differ between them</span>"));
        // Of each place a bar and a row; the one beyond its limit is marked in the table.
        assert_eq!(
            (page.matches("<circle class=\"f s").count(), page.matches(" ✕</td>").count()),
            (3, 1)
        );
        assert!(page.contains("<td><b class=\"bad\">fail</b><br>p50 is 60000ns</td>"), "{page}");
    }

    #[test]
    fn t0_what_a_place_does_not_have_is_shown_as_such() {
        let mut other = run("b", HOSTS, 20_000);
        other.summary.cases[0].id = "s/other/alone".to_owned();
        other.summary.findings.clear();
        let found = places(&[run("a", UML, 20_000), other]);
        let names: Vec<&str> = found.runs.iter().map(|run| run.place.as_str()).collect();
        assert_eq!(names, ["lab:uml", "hosts"]);
        let emulated = "Linux 6.12 (linux-image), emulated, a nanosecond for each instruction";
        let emulated = places(&[run("a", ("privilege", "laboratory", emulated), 20_000)]);
        assert_eq!(emulated.runs[0].place, "lab:qemu");
        assert!(!found.has_common_case());
        assert_eq!(found.streams.len(), 2);
        assert_eq!(found.streams[1].figures[0], None);
        assert_eq!((found.limits[0].judged[1].clone(), found.limits[0].differs), (None, false));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a talker or a listener did, from what it counted and each timestamp of each message.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value as Json;
use timewire_base::Verdict;
use timewire_capture::record::{RecordFile, TimestampPoint};
use timewire_capture::series::TimeSeries;
use timewire_capture::summary::{Fact, Finding};
use timewire_datapath::streams::expect::Expectations;
use timewire_datapath::streams::listen::{LISTEN_SCHEMA, ListenSnapshot};
use timewire_report::hdr::HdrSeries;
use timewire_report::run_report::{Drawing, Lane, RunReport, SPREAD_HEAD, Section, Spread, Table};

use crate::RunnerError;
use crate::error::Context as _;

use super::{count, drop_causes, empty, fact, judged, list, note, read, read_versioned, us, words};

/// Streams of which figures are made; tables have them all.
const DRAWN: usize = 4;

/// What the directory holds.
pub fn report(directory: &Path) -> Result<RunReport, RunnerError> {
    let told = read_versioned(directory, "traffic.json", "timewire.traffic/1")?;
    let mut report = match words(&told, "/role").as_str() {
        "talk" => talk(directory)?,
        "listen" => listen(directory, &told)?,
        other => {
            return Err(RunnerError::Invalid(format!(
                "{} is of a `{other}`",
                directory.join("traffic.json").display()
            )));
        }
    };
    let arguments: Vec<String> =
        list(&told, "/told/arguments").iter().map(|word| words(word, "")).collect();
    report.facts.push(("Command".to_owned(), arguments.join(" ")));
    report.facts.push(("Tool".to_owned(), words(&told, "/tool")));
    report.environment = environment(directory)?;
    Ok(report)
}

/// The times of each stream's messages, and what they are from and to.
pub fn times(directory: &Path) -> Result<(String, Vec<HdrSeries>), RunnerError> {
    let told = read_versioned(directory, "traffic.json", "timewire.traffic/1")?;
    let (records, what, from, to) = match words(&told, "/role").as_str() {
        "talk" => (
            Records::read(directory, "talker.twr")?,
            "lateness",
            TimestampPoint::Scheduled,
            TimestampPoint::Send,
        ),
        "listen" => {
            let mut records = Records::read(directory, "listener.twr")?;
            let from = records.first_point();
            let had = records.has(TimestampPoint::Receive);
            records.keep_of_known_clocks(heard_in(directory)?.as_ref());
            if had && !records.has(TimestampPoint::Receive) {
                let why = "the times of messages are differences of the talker's clock and the \
                           listener's, and how far they are apart is not known: state it when you \
                           listen, such as --clock-error 5us";
                return Err(RunnerError::Invalid(why.to_owned()));
            }
            (records, "transfer", from, TimestampPoint::Receive)
        }
        other => {
            return Err(RunnerError::Invalid(format!(
                "{} is of a `{other}`",
                directory.join("traffic.json").display()
            )));
        }
    };
    let mut found: BTreeMap<u16, Vec<(i64, Option<i64>)>> = BTreeMap::new();
    for ((flow, _), message) in records.between(from, to) {
        found.entry(flow).or_default().push(message);
    }
    let begin = found.values().flatten().map(|message| message.0).min().unwrap_or(0);
    let series = found.into_iter().map(|(flow, messages)| {
        HdrSeries::new(format!("stream/{}", records.name(flow)), begin, messages)
    });
    Ok((format!("{what}, {} to {}", from.name(), to.name()), series.collect()))
}

fn talk(directory: &Path) -> Result<RunReport, RunnerError> {
    let mut report = empty("talk", "What a talker sent".to_owned());
    report.complete = directory.join("report.json").is_file();
    if report.complete {
        let found = read_versioned(directory, "report.json", "timewire.talk/1")?;
        counted(&mut report, &found);
    }
    let records = Records::read(directory, "talker.twr")?;
    let mut section = Section {
        title: "Each message".to_owned(),
        intro: "From the time that a message was due to each timestamp of the host.".to_owned(),
        ..Section::default()
    };
    for (point, what) in [
        (TimestampPoint::Send, "Handed over after due"),
        (TimestampPoint::TxSw, "Left the kernel after due"),
    ] {
        records.add(&mut section, what, (TimestampPoint::Scheduled, point), None);
    }
    if !section.drawings.is_empty() {
        report.sections.push(section);
    }
    records.note_losses(&mut report);
    let why = (!report.complete).then(|| "It was ended before it counted.".to_owned());
    report.judge(why);
    Ok(report)
}

fn seconds(ns: i64) -> String {
    let ms = ns.max(0) / 1_000_000;
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

/// What a talker counted: everything that is not zero and should be is a limit that fails.
fn counted(report: &mut RunReport, found: &Json) {
    let elapsed = found.get("elapsed_ns").and_then(Json::as_i64).unwrap_or(0);
    report.facts = vec![("Took".to_owned(), seconds(elapsed))];
    report.complete = found.get("ended_early").and_then(Json::as_bool) != Some(true);
    let troubles = [
        ("skipped_woke_late", "the thread wakes in time"),
        ("skipped_overran", "the thread is done in time"),
        ("expired", "a message is sent before it expires"),
        ("not_taken", "the kernel takes every message"),
        ("refused", "no message is refused"),
        ("past_deadline", "no message is sent late"),
        ("launch_invalid", "launch times are valid"),
        ("launch_missed", "launch times are met"),
        ("timestamps_missing", "every timestamp comes back"),
    ];
    for (key, limit) in troubles {
        let many = count(found, &format!("/total/{key}"));
        if many > 0 {
            let measured = format!("{many} of {}", count(found, "/total/planned"));
            report.findings.push(judged(key, limit.to_owned(), measured, false));
        }
    }
    drop_causes(report, found, "");
    let (planned, sent) = (count(found, "/total/planned"), count(found, "/total/sent"));
    let limit = "every message that was planned is sent".to_owned();
    report.findings.push(judged("sent", limit, format!("{sent} of {planned}"), sent == planned));
    let lost = count(found, "/lost_reports");
    if lost > 0 {
        let limit = "every report about a message is read".to_owned();
        report.findings.push(judged("lost_reports", limit, format!("{lost} lost"), false));
    }
    let head = ["stream", "to", "planned", "sent", "n", "min", "p50", "p99", "max"];
    let mut table = Table::new("Streams; lateness of messages in µs", 2, &head);
    for stream in list(found, "/streams") {
        let time = |key: &str| {
            let ns = stream.pointer(&format!("/lateness/{key}")).and_then(Json::as_i64);
            ns.map_or("–".to_owned(), us)
        };
        table.rows.push(vec![
            words(stream, "/stream"),
            words(stream, "/to"),
            words(stream, "/planned"),
            words(stream, "/sent"),
            words(stream, "/lateness/count"),
            time("min_ns"),
            time("p50_ns"),
            time("p99_ns"),
            time("max_ns"),
        ]);
    }
    let title = "Streams".to_owned();
    report.sections.push(Section { title, tables: vec![table], ..Section::default() });
}

fn listen(directory: &Path, told: &Json) -> Result<RunReport, RunnerError> {
    let mut report = empty("listen", "What a listener heard".to_owned());
    report.complete = directory.join("report.json").is_file();
    let records = Records::read(directory, "listener.twr")?;
    let mut cut = None;
    let heard = heard_in(directory)?;
    if let Some(heard) = &heard {
        report.facts = vec![
            ("From".to_owned(), heard.source.clone()),
            ("How".to_owned(), heard.mode.clone()),
            ("For".to_owned(), seconds(heard.elapsed_ns)),
        ];
        limits(&mut report, told, heard)?;
        streams(&mut report, heard);
    } else {
        cut = Some("It was ended before it counted.".to_owned());
    }
    let mut section = Section {
        title: "Each message".to_owned(),
        intro:
            "Transfer is from when the message says that it was sent, by the clock of its talker; \
                of streams whose clock error is not known it is not shown."
                .to_owned(),
        ..Section::default()
    };
    let mut known = records.clone();
    known.keep_of_known_clocks(heard.as_ref());
    known.add(&mut section, "Transfer", (records.first_point(), TimestampPoint::Receive), None);
    records.add(
        &mut section,
        "From the kernel's timestamp",
        (TimestampPoint::RxSw, TimestampPoint::Receive),
        None,
    );
    if !section.drawings.is_empty() {
        report.sections.push(section);
    }
    records.note_losses(&mut report);
    report.judge(cut);
    Ok(report)
}

/// What a listener counted, if it came to that.
fn heard_in(directory: &Path) -> Result<Option<ListenSnapshot>, RunnerError> {
    if !directory.join("report.json").is_file() {
        return Ok(None);
    }
    read_versioned(directory, "report.json", LISTEN_SCHEMA)?;
    read(directory, "report.json").map(Some)
}

/// The limits of `--expect`.
fn limits(report: &mut RunReport, told: &Json, heard: &ListenSnapshot) -> Result<(), RunnerError> {
    let mut words_of = list(told, "/told/arguments").iter().filter_map(Json::as_str);
    while let Some(word) = words_of.next() {
        let limits = match word.strip_prefix("--expect") {
            Some("") => words_of.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        let Some(limits) = limits else { continue };
        let limits: Expectations = limits
            .parse()
            .map_err(RunnerError::Invalid)
            .context("traffic.json has limits that are none")?;
        for limit in &limits.0 {
            let one = limit.judge(heard);
            report.findings.push(judged("expect", one.limit, one.found, one.verdict));
        }
    }
    for clash in heard.clashes() {
        report.findings.push(note("clash", clash));
    }
    for other in &heard.not_understood {
        report.findings.push(note("not_understood", other.describe()));
    }
    for why in &heard.inconclusive {
        let verdict = Some(Verdict::Inconclusive);
        report.findings.push(Finding {
            verdict,
            limit: "all heard".to_owned(),
            ..note("inconclusive", why.clone())
        });
    }
    for (many, what) in [
        (heard.dropped, "messages lost between kernel and program"),
        (heard.no_room, "messages of more streams than are told apart"),
        (heard.other_queues.unwrap_or(0), "frames on receive queues that were not heard"),
        (heard.not_timestamped, "messages without a timestamp of NIC, driver or kernel"),
        (heard.others, "messages without a header of ours"),
    ] {
        if many > 0 {
            report.findings.push(note("seen", format!("{many} {what}")));
        }
    }
    Ok(())
}

fn streams(report: &mut RunReport, heard: &ListenSnapshot) {
    let head = [
        "stream",
        "received",
        "lost",
        "skipped",
        "open",
        "duplicate",
        "reordered",
        "restarts",
        "rate/s",
    ];
    let mut counts = Table::new("Messages", 1, &head);
    let (mut between, mut gaps, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
    let mut unknown = Vec::new();
    let mut cycle_ns = 0;
    for stream in &heard.streams {
        let (name, seen) = (format!("stream {}", stream.name()), &stream.seen);
        let s = &seen.sequence;
        let of = [s.received, s.lost, s.open, s.duplicate, s.reordered, s.restarts];
        let rate = seen.total_rate.as_ref().map(|rate| format!("{:.1}", rate.frames_per_s));
        let mut row = vec![name.clone()];
        row.extend(of.map(|count| count.to_string()));
        let skipped = seen.skipped.map_or_else(|| "–".to_owned(), |count| count.to_string());
        row.insert(3, skipped);
        row.push(rate.unwrap_or_else(|| "–".to_owned()));
        counts.rows.push(row);
        match (&seen.between, stream.clock.error_ns) {
            (Some(times), Some(error_ns)) => {
                let name = if error_ns > 0 {
                    format!("{name}, ±{} µs", us(error_ns))
                } else {
                    name.clone()
                };
                between.extend(Spread::of_counted(&name, times));
            }
            _ => unknown
                .push(note("clock", format!("latency of {name}: {}", stream.clock.describe()))),
        }
        gaps.extend(Spread::of_counted(&name, &seen.inter_arrival));
        if let Some(phase) = &seen.phase {
            let bins = i64::try_from(phase.counts.len().max(1)).unwrap_or(1);
            let bin_ns = (phase.cycle_time_ns / bins).max(1);
            cycle_ns = phase.cycle_time_ns;
            let (counts, windows) = (phase.counts.clone(), Vec::new());
            lanes.push(Lane { name, bin_ns, counts, windows });
        }
    }
    let mut section = Section { title: "Streams".to_owned(), ..Section::default() };
    section.tables.push(counts);
    let mut ways: Vec<Spread> = Vec::new();
    for way in &heard.ways {
        let name = format!("{} to {}", way.from_point, way.to_point);
        match &way.between {
            Some(times) => ways.extend(Spread::of_counted(&name, times)),
            None => unknown.push(note("clock", format!("{name}: {}", way.clock.describe()))),
        }
    }
    for (what, spreads) in [
        ("Time on the way", between),
        ("From one to the next", gaps),
        ("Ways through this host", ways),
    ] {
        if spreads.is_empty() {
            continue;
        }
        let mut table = Table::new(&format!("{what}, µs"), 1, &SPREAD_HEAD);
        table.rows = spreads.iter().map(Spread::row).collect();
        section.tables.push(table);
        section.drawings.push(Drawing::Spreads { what: what.to_owned(), spreads });
    }
    if !lanes.is_empty() {
        let what = "Arrivals".to_owned();
        section.drawings.push(Drawing::Phase { what, cycle_ns, lanes });
    }
    report.findings.extend(unknown);
    report.sections.push(section);
}

/// Timestamps of messages.
#[derive(Clone)]
struct Records {
    file: Option<RecordFile>,
}

impl Records {
    fn read(directory: &Path, name: &str) -> Result<Records, RunnerError> {
        let path = directory.join(name);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        if bytes.is_empty() {
            return Ok(Records { file: None });
        }
        let file = RecordFile::decode(&bytes)
            .with_context(|| format!("{} does not hold what it should", path.display()))?;
        Ok(Records { file: Some(file) })
    }

    /// Leaves out the messages of streams whose talkers' clocks are not known to be close to the
    /// listener's; of a listener that was ended before it counted, by what it was told.
    fn keep_of_known_clocks(&mut self, heard: Option<&ListenSnapshot>) {
        let Some(file) = &mut self.file else { return };
        let is_stated = |clock: u8| {
            let clock = file.header.clocks.get(usize::from(clock));
            clock.is_some_and(|clock| clock.error_bound.as_ns() < i64::MAX)
        };
        let talkers = file
            .records
            .iter()
            .filter(|it| matches!(it.point, TimestampPoint::Send | TimestampPoint::Scheduled));
        let stated: BTreeSet<u16> =
            talkers.filter(|it| is_stated(it.clock)).map(|it| it.flow).collect();
        let known: BTreeSet<u16> = match heard {
            None => stated,
            Some(heard) => {
                let known = heard.streams.iter().filter(|it| it.clock.error_ns.is_some());
                known.map(|it| it.flow).collect()
            }
        };
        file.records.retain(|record| known.contains(&record.flow));
    }

    fn has(&self, point: TimestampPoint) -> bool {
        self.file.iter().flat_map(|file| &file.records).any(|record| record.point == point)
    }

    /// Of each message, by flow and number, when it was at one timestamp point, and how long it
    /// took to another if it came there. **Units**: nanoseconds.
    fn between(
        &self,
        from: TimestampPoint,
        to: TimestampPoint,
    ) -> BTreeMap<(u16, u32), (i64, Option<i64>)> {
        let records = || self.file.iter().flat_map(|file| &file.records);
        let mut found = BTreeMap::new();
        for record in records().filter(|record| record.point == from) {
            found.entry((record.flow, record.seq)).or_insert((record.at_ns, None));
        }
        for record in records().filter(|record| record.point == to) {
            // A further timestamp of the same message does not count.
            if let Some((at, took)) = found.get_mut(&(record.flow, record.seq)) {
                took.get_or_insert(record.at_ns.saturating_sub(*at));
            }
        }
        found
    }

    /// The stream's name, or its number where it has none.
    fn name(&self, flow: u16) -> String {
        let flows = self.file.as_ref().map_or(&[][..], |file| &file.header.flows);
        flows.get(usize::from(flow)).cloned().unwrap_or_else(|| flow.to_string())
    }

    /// The timestamp point at which a listener's messages begin.
    fn first_point(&self) -> TimestampPoint {
        if self.has(TimestampPoint::Send) {
            TimestampPoint::Send
        } else {
            TimestampPoint::Scheduled
        }
    }

    /// Of the first streams, how long messages took from one timestamp point to another.
    fn add(
        &self,
        section: &mut Section,
        what: &str,
        (from, to): (TimestampPoint, TimestampPoint),
        thresholds: Option<[i64; 2]>,
    ) {
        let mut found: BTreeMap<u16, Vec<(i64, i64)>> = BTreeMap::new();
        for ((flow, _), (at, took)) in self.between(from, to) {
            // What has no second timestamp is not drawn.
            if let Some(took) = took {
                found.entry(flow).or_default().push((at, took));
            }
        }
        let name = |flow| format!("stream {}", self.name(flow));
        let spreads: Vec<Spread> = found
            .iter()
            .take(DRAWN)
            .filter_map(|(flow, points)| {
                Spread::of(&name(*flow), points.iter().map(|point| point.1).collect())
            })
            .collect();
        if spreads.is_empty() {
            return;
        }
        let caption = match found.len() > DRAWN {
            true => format!("{what}, µs, of the first {DRAWN} streams"),
            false => format!("{what}, µs"),
        };
        let mut table = Table::new(&caption, 1, &SPREAD_HEAD);
        table.rows = spreads.iter().map(Spread::row).collect();
        section.tables.push(table);
        section.drawings.push(Drawing::Spreads { what: what.to_owned(), spreads });
        for (flow, points) in found.iter().take(DRAWN) {
            if let Some(series) = TimeSeries::of(points.iter().copied(), thresholds) {
                let (what, name, series) = (what.to_owned(), name(*flow), Box::new(series));
                section.drawings.push(Drawing::TimeSeries { what, name, series });
            }
        }
    }

    fn note_losses(&self, report: &mut RunReport) {
        let Some(file) = &self.file else {
            report.findings.push(note("records", "there are no timestamps of messages".to_owned()));
            return;
        };
        let damaged = file.corrupt_blocks;
        for (many, what) in
            [(file.lost, "timestamps were lost"), (damaged, "blocks of timestamps are damaged")]
        {
            if many > 0 {
                report.findings.push(note("records", format!("{many} {what}")));
            }
        }
    }
}

/// The host, as it was before.
fn environment(directory: &Path) -> Result<Vec<Fact>, RunnerError> {
    if !directory.join("host.before.json").is_file() {
        return Ok(Vec::new());
    }
    let found: Json = read(directory, "host.before.json")?;
    let mut facts = Vec::new();
    for (area, name, pointer) in [
        ("kernel", "release", "/settings/host/kernel/release"),
        ("kernel", "version", "/settings/host/kernel/version"),
        ("kernel", "machine", "/settings/host/kernel/machine"),
        ("kernel", "preemption", "/settings/host/kernel/preemption"),
        ("clock", "source", "/settings/host/clock/source"),
        ("processor", "model", "/settings/host/cpus/model"),
    ] {
        if let Some(Json::String(value)) = found.pointer(pointer) {
            facts.push(fact(area, name, value.clone()));
        }
    }
    Ok(facts)
}

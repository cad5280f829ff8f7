// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What several kernels on a simulated segment did: their commands, the frames on each link, and
//! how long each frame took from when it was ready.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;
use timewire_base::BitsPerSecond;
use timewire_capture::series::TimeSeries;
use timewire_model::scenario::network::{NetFault, NetworkFile};
use timewire_report::hdr::HdrSeries;
use timewire_report::run_report::{Drawing, RunReport, SPREAD_HEAD, Section, Spread, Table};
use timewire_tsn::file;

use crate::error::Context as _;
use crate::{RunnerError, kernels};

use super::{count, empty, fact, judged, list, read_versioned, words};

const SUMMARY: &str = "summary.json";
const FRAMES: &str = "segment.jsonl";
const FRAMES_SCHEMA: &str = "timewire.segment-trace/1";
/// Drawings of values over time, one for each sender; more would only repeat themselves.
const MAX_SERIES: usize = 6;

/// A line of the file of frames.
#[derive(Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
enum SegmentLine {
    Segment(Header),
    Frame(Frame),
}

#[derive(Deserialize)]
struct Header {
    schema: String,
    kind: String,
    rate_bps: u64,
    delay_ns: i64,
    epoch_tai_ns: i64,
    stations: Vec<String>,
}

#[derive(Deserialize)]
struct Frame {
    link: String,
    from: String,
    ready_ps: i64,
    start_ps: i64,
    end_ps: i64,
    found_busy_with: Option<String>,
    length: u64,
}

/// All frames of a run.
struct Frames {
    header: Header,
    all: Vec<Frame>,
}

impl Frames {
    /// **Errors**: the file is missing, or is of another version; a last line that was cut short is
    /// none.
    fn read(directory: &Path) -> Result<Frames, RunnerError> {
        let path = directory.join(FRAMES);
        let of_path = || format!("cannot read {}", path.display());
        let mut lines = BufReader::new(File::open(&path).with_context(of_path)?).lines();
        let first = lines.next().transpose().with_context(of_path)?.unwrap_or_default();
        let header = match serde_json::from_str(&first) {
            Ok(SegmentLine::Segment(header)) if header.schema == FRAMES_SCHEMA => header,
            _ => {
                return Err(RunnerError::Invalid(format!(
                    "{} does not begin as `{FRAMES_SCHEMA}` does",
                    path.display()
                )));
            }
        };
        let mut all = Vec::new();
        let mut lines = lines.peekable();
        while let Some(line) = lines.next() {
            let line = line.with_context(of_path)?;
            match serde_json::from_str(&line) {
                Ok(SegmentLine::Frame(frame)) => all.push(frame),
                Err(_) if lines.peek().is_none() => {}
                Ok(SegmentLine::Segment(_)) | Err(_) => {
                    return Err(RunnerError::Invalid(format!(
                        "{}: line {} is no frame",
                        path.display(),
                        all.len() + 2
                    )));
                }
            }
        }
        Ok(Frames { header, all })
    }

    /// By link and sender: the instant at which each frame was ready, and how long it took from
    /// there to its last bit. **Units**: nanoseconds since the start, rounded down.
    fn times(&self) -> BTreeMap<String, Vec<(i64, i64)>> {
        let mut times: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for Frame { link, from, ready_ps, end_ps, .. } in &self.all {
            let name = match link.as_str() == "hub" {
                true => from.clone(),
                false => format!("{link} from {from}"),
            };
            let took = end_ps.saturating_sub(*ready_ps).div_euclid(PS);
            times.entry(name).or_default().push((ready_ps.div_euclid(PS), took));
        }
        times
    }
}

/// Picoseconds in a nanosecond.
const PS: i64 = 1_000;

/// The times of [`Frames::times`] as series, by the clock of the simulation.
pub(super) fn times(directory: &Path) -> Result<(String, Vec<HdrSeries>), RunnerError> {
    let frames = Frames::read(directory)?;
    let epoch = frames.header.epoch_tai_ns;
    let series = |(name, times): (String, Vec<(i64, i64)>)| {
        let of_epoch = |(at, took): (i64, i64)| (epoch.saturating_add(at), Some(took));
        HdrSeries::new(name, epoch, times.into_iter().map(of_epoch).collect())
    };
    let all = frames.times().into_iter().map(series).collect();
    Ok(("frame on a link, ready to last bit".to_owned(), all))
}

pub(super) fn report(directory: &Path) -> Result<RunReport, RunnerError> {
    let frames = Frames::read(directory)?;
    let summary = match directory.join(SUMMARY).is_file() {
        true => Some(read_versioned(directory, SUMMARY, "timewire.segment-summary/1")?),
        false => None,
    };
    let file = fs::read_to_string(directory.join("network.yaml")).ok();
    let file = file.and_then(|text| file::without_streams("network.yaml", &text).ok());
    let file = file.map(|cases| cases.base);
    let title = match &file {
        Some(file) if file.description.as_str().is_empty() => file.name.to_string(),
        Some(file) => format!("{}: {}", file.name, file.description),
        None => "Kernels on a simulated segment".to_owned(),
    };
    let mut report = empty("run", title);
    report.complete = summary.as_ref().is_some_and(|summary| !was_ended(summary));
    facts(&mut report, &frames, summary.as_ref(), file.as_ref());
    match &summary {
        Some(summary) => stations(&mut report, directory, summary, file.as_ref()),
        None => {
            let title = "Stations".to_owned();
            let intro = format!("They were {}.", frames.header.stations.join(", "));
            report.sections.push(Section { title, intro, ..Section::default() });
        }
    }
    report.sections.push(links(&frames, summary.as_ref()));
    report.sections.extend(took(&frames));
    if let Some(file) = &file {
        report.sections.push(clocks(file, &frames.header.kind));
    }
    let kernel = summary.as_ref().map(|summary| format!("Linux {}", words(summary, "/kernel")));
    report.environment = vec![
        fact("laboratory", "how", "kernels in virtual time on one host".to_owned()),
        fact("laboratory", "computing", "takes no time".to_owned()),
    ];
    report.environment.extend(kernel.map(|kernel| fact("laboratory", "kernel", kernel)));
    report.judge(match &summary {
        None => Some("The run did not come to its end: there is no summary.json.".to_owned()),
        Some(summary) if was_ended(summary) => {
            Some("The run was ended on request; this is what there was until then.".to_owned())
        }
        Some(_) => None,
    });
    Ok(report)
}

/// Whether it was ended on request.
fn was_ended(summary: &Json) -> bool {
    summary["ended_early"] == true
}

fn facts(
    report: &mut RunReport,
    frames: &Frames,
    summary: Option<&Json>,
    file: Option<&NetworkFile>,
) {
    let Header { kind, rate_bps, delay_ns, .. } = &frames.header;
    let rate = BitsPerSecond::new(*rate_bps).map_or("no rate".to_owned(), |it| it.to_string());
    let mut segment = format!("{kind}, {rate}, {} µs from end to end", super::us(*delay_ns));
    if let Some(loss_ppb) = file.map(|file| kernels::loss(file).0).filter(|ppb| *ppb > 0) {
        segment += &format!(", loses {}", decimal(i64::from(loss_ppb), 10_000_000, "%"));
    }
    report.facts.push(("Segment".to_owned(), segment));
    if let Some(summary) = summary {
        let seconds = |key: &str| seconds(count(summary, key));
        report.facts.push(("Simulated".to_owned(), seconds("/simulated_ns")));
        report.facts.push(("Took".to_owned(), format!("{} of the host", seconds("/host_ns"))));
    }
    report.facts.push(("Frames over links".to_owned(), frames.all.len().to_string()));
}

/// To the millisecond, rounded down.
fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000)
}

fn stations(report: &mut RunReport, directory: &Path, summary: &Json, file: Option<&NetworkFile>) {
    let head = ["station", "exit", "sent", "found busy", "received", "lost"];
    let mut table = Table::new("Stations, frames", 1, &head);
    for station in list(summary, "/stations") {
        let lost = ["/lost", "/no_buffer", "/queue_full"].map(|key| count(station, key));
        let code = station.get("exit_code").and_then(Json::as_u64);
        let name = words(station, "/name");
        let ends = code == Some(0) || code.is_none() && !was_ended(summary);
        let measured = match (code, file.map(|file| file.duration)) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(duration)) => format!("it was ended by the duration of {duration}"),
            (None, None) => "it was ended".to_owned(),
        };
        let limit = format!("the program of {name} does not fail");
        let mut finding = judged(&name, limit, measured, ends);
        if !ends {
            finding.note = last_words(&directory.join(&name).join("stderr"));
        }
        // One that was ended with the laboratory has not come to an end of its own.
        if code.is_some() || !was_ended(summary) {
            report.findings.push(finding);
        }
        table.rows.push(vec![
            name,
            code.map_or("ended".to_owned(), |code| code.to_string()),
            count(station, "/frames_sent").to_string(),
            count(station, "/found_busy").to_string(),
            count(station, "/frames_received").to_string(),
            lost.iter().sum::<u64>().to_string(),
        ]);
    }
    report.sections.push(Section {
        title: "Stations".to_owned(),
        intro: "Found busy: the frame found one of another station on the medium. Lost: it was \
                sent to this station and did not get into it. What each command printed is in the \
                directory of its station."
            .to_owned(),
        tables: vec![table],
        ..Section::default()
    });
}

/// The last line that a command wrote to stderr.
fn last_words(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let shown: String = last.trim().chars().take(200).collect();
    if shown.is_empty() { shown } else { format!("its last words: {shown}") }
}

/// What each link carried, and whom frames waited for.
fn links(frames: &Frames, summary: Option<&Json>) -> Section {
    #[derive(Default)]
    struct Link {
        frames: u64,
        bytes: u64,
        busy_ps: i64,
    }
    let mut links: BTreeMap<&str, Link> = BTreeMap::new();
    let mut met: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    let mut end_ps = 0;
    for frame in &frames.all {
        let link = links.entry(&frame.link).or_default();
        link.frames += 1;
        link.bytes += frame.length;
        link.busy_ps = link.busy_ps.saturating_add(frame.end_ps.saturating_sub(frame.start_ps));
        end_ps = end_ps.max(frame.end_ps);
        if let Some(other) = frame.found_busy_with.as_deref() {
            let waited = frame.start_ps.saturating_sub(frame.ready_ps).div_euclid(PS);
            met.entry((&frame.from, other)).or_default().push(waited);
        }
    }
    let all_ps = summary.map(|summary| count(summary, "/simulated_ns").saturating_mul(1_000));
    let all_ps = all_ps.and_then(|ps| i64::try_from(ps).ok()).unwrap_or(end_ps).max(1);
    let mut table = Table::new("Links", 1, &["link", "frames", "bytes", "busy"]);
    for (name, link) in links {
        // Hundredths of a percent, rounded down.
        let share = i128::from(link.busy_ps) * 10_000 / i128::from(all_ps);
        let busy = match share {
            0 => "below 0.01 %".to_owned(),
            _ => format!("{}.{:02} %", share / 100, share % 100),
        };
        let row = [name.to_owned(), link.frames.to_string(), link.bytes.to_string(), busy];
        table.rows.push(row.to_vec());
    }
    let head = ["frame of", "behind one of", "n", "min", "p50", "p99", "max"];
    let mut behind = Table::new("Frames that waited, µs until their first bit", 2, &head);
    for ((from, other), waits) in met {
        let Some(spread) = Spread::of(from, waits) else { continue };
        let n = &spread.numbers;
        let mut row = vec![from.to_owned(), other.to_owned(), n.count.to_string()];
        row.extend([n.min_ns, n.p50_ns, n.p99_ns, n.max_ns].map(super::us));
        behind.rows.push(row);
    }
    let mut section = Section { title: "Links".to_owned(), ..Section::default() };
    section.intro = match table.rows.is_empty() {
        true => "No frame was on a link.".to_owned(),
        false => "Bytes without preamble and check sequence; busy from the first bit to the last, \
                  as a share of what was simulated."
            .to_owned(),
    };
    section.tables.extend([table, behind].into_iter().filter(|table| !table.rows.is_empty()));
    section
}

/// How long frames took.
fn took(frames: &Frames) -> Option<Section> {
    let times = frames.times();
    let values = |times: &[(i64, i64)]| times.iter().map(|time| time.1).collect();
    let spreads: Vec<Spread> =
        times.iter().filter_map(|(name, times)| Spread::of(name, values(times))).collect();
    if spreads.is_empty() {
        return None;
    }
    let mut table = Table::new("Ready to last bit, µs", 1, &SPREAD_HEAD);
    table.rows.extend(spreads.iter().map(Spread::row));
    let what = "Ready to last bit".to_owned();
    let mut drawings = vec![Drawing::Spreads { what: what.clone(), spreads }];
    for (name, times) in times.into_iter().take(MAX_SERIES) {
        if let Some(series) = TimeSeries::of(times.into_iter(), None) {
            drawings.push(Drawing::TimeSeries {
                what: what.clone(),
                name,
                series: Box::new(series),
            });
        }
    }
    let title = "Frames".to_owned();
    let intro = "From when a frame could have started, had the link been free, to its last bit: \
                 the wait and the sending."
        .to_owned();
    Some(Section { title, intro, tables: vec![table], drawings })
}

/// What the file says of the stations' clocks.
fn clocks(file: &NetworkFile, kind: &str) -> Section {
    let head = ["station", "address", "offset", "drift", "later"];
    let mut table = Table::new("Clocks of the stations, as the file has them", 5, &head);
    for (number, station) in file.stations.iter().enumerate() {
        let later = file.faults.iter().filter_map(|fault| match fault {
            NetFault::ClockDrift(it) if it.node == station.name => {
                Some(format!("{} from {} on", drift(it.drift.0), it.at))
            }
            _ => None,
        });
        let later: Vec<String> = later.collect();
        table.rows.push(vec![
            station.name.to_string(),
            kernels::address(number).to_string(),
            station.clock.offset.0.to_string(),
            drift(station.clock.drift.0),
            if later.is_empty() { "–".to_owned() } else { later.join(", ") },
        ]);
    }
    Section {
        title: "Clocks".to_owned(),
        intro: format!(
            "Offset: how far the clock is ahead at the start; drift: how much too fast it goes. \
             The {kind} goes by the simulated time, which has no error."
        ),
        tables: vec![table],
        ..Section::default()
    }
}

fn drift(ppb: i32) -> String {
    decimal(i64::from(ppb), 1_000, " ppm")
}

/// A value in units of so many, without zeros at the end.
fn decimal(value: i64, unit: u64, name: &str) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let digits = usize::try_from(unit.ilog10()).unwrap_or(0);
    let part = format!("{:0digits$}", value % unit);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{part}{name}", value / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_shares_and_drifts_are_written_without_zeros_at_the_end() {
        assert_eq!(drift(20_000), "20 ppm");
        assert_eq!(drift(-150), "-0.15 ppm");
        assert_eq!(decimal(12_500_000, 10_000_000, "%"), "1.25%");
        assert_eq!(decimal(0, 10_000_000, "%"), "0%");
    }
}

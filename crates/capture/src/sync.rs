// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the clocks were through a run: a file of lines of JSON, a header first, then samples and
//! events, and what they come to.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The `schema` field of the header.
pub const SYNC_SCHEMA: &str = "timewire.sync/1";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum SyncLine {
    /// The first.
    Sync(SyncHeader),
    /// A look at the clocks.
    Sample(SyncSample),
    /// Something happened.
    Event(SyncEvent),
}

/// What the file is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncHeader {
    /// Format and version.
    pub schema: String,
    /// Whose clocks: a kernel, by its boot.
    pub kernel: String,
    /// The stations that share them; empty when a single host was watched.
    pub stations: Vec<String>,
}

/// A look at the clocks of one kernel. The clock that nobody steers, `CLOCK_MONOTONIC_RAW`, says
/// when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncSample {
    /// When.
    pub raw_ns: i64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC_RAW`.
    pub realtime_ahead_ns: i64,
    /// At most so far is the former from right.
    pub realtime_error_ns: i64,
    /// `CLOCK_TAI` less `CLOCK_REALTIME`, that the kernel has, in seconds.
    pub tai_offset_s: i32,
    /// Whether the kernel takes its clock for synchronised.
    pub synchronised: bool,
    /// How much it is made to go faster, parts per billion.
    pub frequency_ppb: i64,
    /// The bound of the clock's error that the kernel reports.
    pub max_error_ns: i64,
    /// The error that the kernel reports.
    pub estimated_error_ns: i64,
    /// The clocks of NICs.
    pub nics: Vec<NicSample>,
    /// How far the clock is from the one that gives the time, where a `ptp4l` says so.
    pub ptp: Option<PtpSample>,
}

/// The clock of a NIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NicSample {
    /// Its number, of `/dev/ptpN`.
    pub phc: u32,
    /// It less `CLOCK_REALTIME`.
    pub ahead_ns: i64,
    /// At most so far is the former from right.
    pub error_ns: i64,
    /// How they were compared: `precise`, `extended` or `read`.
    pub by: String,
}

/// What `ptp4l` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PtpSample {
    /// The system's clock less the one that gives the time, by way of the NIC if there is one,
    /// also when this host gives it itself; `None` when it neither follows nor gives, and when the
    /// NIC's clock cannot be read.
    pub offset_ns: Option<i64>,
    /// The error of the way by the NIC, 0 without one; the error of PTP itself nobody knows.
    pub error_ns: i64,
    /// The clock that gives the time.
    pub giver: String,
    /// What its ports do.
    pub ports: Vec<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncEvent {
    /// When, as in [`SyncSample`].
    pub raw_ns: i64,
    /// What: `locked`, `lost`, `daemon_ended`, `daemon_started`, `ended`.
    pub what: String,
    /// More, in words.
    pub why: String,
}

/// What the samples and events come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncSummary {
    /// How many samples there are.
    pub samples: u64,
    /// The longest time between two.
    pub longest_gap_ns: i64,
    /// The largest offset from the clock that gives the time, without its sign; `None` without a
    /// `ptp4l` that follows or gives one.
    pub max_offset_ns: Option<i64>,
    /// The error of comparing that the same sample has.
    pub max_offset_error_ns: Option<i64>,
    /// How much faster than the clock that nobody steers `CLOCK_REALTIME` went, parts per billion,
    /// from the first sample to the last; `None` with less than two.
    pub rate_ppb: Option<i64>,
    /// The farthest that a sample is off the straight line from the first to the last: steps and
    /// changes of rate.
    pub max_deviation_ns: i64,
    /// At most so far is the former from right.
    pub deviation_error_ns: i64,
    /// Samples in which the kernel did not take its clock for synchronised.
    pub unsynchronised: u64,
    /// Values of TAI - UTC that the kernel had, each once, in the order in which they came.
    pub tai_offsets_s: Vec<i32>,
    /// When the clock was not on time after it had been, and a guard said so.
    pub lost: Vec<LostInterval>,
}

/// A time in which the clock was not on time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostInterval {
    /// From when, as in [`SyncSample`].
    pub from_raw_ns: i64,
    /// For how long; `None` when the file ends before it does.
    pub for_ns: Option<i64>,
    /// Why.
    pub why: String,
}

/// Text that is no file of clocks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SyncError {
    /// A line that is none of its lines.
    #[error("line {line}: {why}")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl SyncLine {
    /// The line, with its end.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string(self);
        text.expect("invariant: text, numbers and lists are always JSON") + "\n"
    }

    /// Reads a file. A last line without its end was being written, and is left out.
    ///
    /// **Errors**: a line that is none, or no header of this version first.
    pub fn read(text: &str) -> Result<Vec<SyncLine>, SyncError> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(whole.lines()) {
            let wrong = |why: String| SyncError::Line { line: number, why };
            let line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            match (number, &line) {
                (1, SyncLine::Sync(header)) if header.schema == SYNC_SCHEMA => {}
                (1, SyncLine::Sync(header)) => {
                    let found = &header.schema;
                    return Err(wrong(format!("it is of version `{found}`, not `{SYNC_SCHEMA}`")));
                }
                (1, _) => return Err(wrong("it is no header".to_owned())),
                (_, SyncLine::Sync(_)) => return Err(wrong("it is a second header".to_owned())),
                _ => {}
            }
            lines.push(line);
        }
        Ok(lines)
    }
}

/// What the lines of a file come to.
pub fn summarise(lines: &[SyncLine]) -> SyncSummary {
    let mut summary = SyncSummary::default();
    let samples: Vec<&SyncSample> = lines
        .iter()
        .filter_map(|line| if let SyncLine::Sample(sample) = line { Some(sample) } else { None })
        .collect();
    for sample in &samples {
        summary.samples += 1;
        summary.unsynchronised += u64::from(!sample.synchronised);
        if summary.tai_offsets_s.last() != Some(&sample.tai_offset_s) {
            summary.tai_offsets_s.push(sample.tai_offset_s);
        }
        if let Some(ptp) = &sample.ptp
            && let Some(offset) = ptp.offset_ns.map(i64::saturating_abs)
            && summary.max_offset_ns.is_none_or(|max| offset > max)
        {
            summary.max_offset_ns = Some(offset);
            summary.max_offset_error_ns = Some(ptp.error_ns);
        }
    }
    for pair in samples.windows(2) {
        let gap = pair[1].raw_ns.saturating_sub(pair[0].raw_ns);
        summary.longest_gap_ns = summary.longest_gap_ns.max(gap);
    }
    straightness(&samples, &mut summary);
    for line in lines {
        let SyncLine::Event(event) = line else { continue };
        let open = summary.lost.last_mut().filter(|lost| lost.for_ns.is_none());
        match (event.what.as_str(), open) {
            ("lost", None) => summary.lost.push(LostInterval {
                from_raw_ns: event.raw_ns,
                for_ns: None,
                why: event.why.clone(),
            }),
            ("locked", Some(lost)) => {
                lost.for_ns = Some(event.raw_ns.saturating_sub(lost.from_raw_ns));
            }
            _ => {}
        }
    }
    summary
}

/// How the clock went against the one that nobody steers.
fn straightness(samples: &[&SyncSample], summary: &mut SyncSummary) {
    let [first, .., last] = samples else { return };
    let wide = |sample: &SyncSample| i128::from(sample.realtime_ahead_ns);
    let time = i128::from(last.raw_ns) - i128::from(first.raw_ns);
    if time <= 0 {
        return;
    }
    let gained = wide(last) - wide(first);
    let narrow = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
    summary.rate_ppb = Some(narrow(gained * 1_000_000_000 / time));
    for (sample, off) in off_the_line(samples) {
        let off = off.saturating_abs();
        if off >= summary.max_deviation_ns {
            summary.max_deviation_ns = off;
            // Of the sample itself, and of the two that the line is drawn by.
            let ends = first.realtime_error_ns.max(last.realtime_error_ns);
            summary.deviation_error_ns = sample.realtime_error_ns.saturating_add(ends);
        }
    }
}

/// How one clock went against another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSeries {
    /// Which is held against which.
    pub name: String,
    /// Since the first sample of the file, and by how much the one is ahead. **Units**:
    /// nanoseconds.
    pub points: Vec<(i64, i64)>,
}

/// How the clocks went through the file: against the one that gives the time where a `ptp4l` says
/// so, against a straight line otherwise; and those of NICs against the system's.
pub fn series(lines: &[SyncLine]) -> Vec<ClockSeries> {
    let samples: Vec<&SyncSample> = lines
        .iter()
        .filter_map(|line| if let SyncLine::Sample(sample) = line { Some(sample) } else { None })
        .collect();
    let Some(first) = samples.first() else { return Vec::new() };
    let since = |sample: &SyncSample| sample.raw_ns.saturating_sub(first.raw_ns);
    let followed: Vec<(i64, i64)> = samples
        .iter()
        .filter_map(|sample| Some((since(sample), sample.ptp.as_ref()?.offset_ns?)))
        .collect();
    let mut found = match followed.is_empty() {
        false => {
            let name = "system clock less the giver of the time".to_owned();
            vec![ClockSeries { name, points: followed }]
        }
        true => {
            let name = "system clock less a straight line through its run".to_owned();
            let points = off_the_line(&samples);
            let points = points.into_iter().map(|(sample, off)| (since(sample), off)).collect();
            vec![ClockSeries { name, points }]
        }
    };
    let mut nics: std::collections::BTreeMap<u32, Vec<(i64, i64)>> = Default::default();
    for sample in &samples {
        for nic in &sample.nics {
            nics.entry(nic.phc).or_default().push((since(sample), nic.ahead_ns));
        }
    }
    found.extend(nics.into_iter().map(|(phc, points)| ClockSeries {
        name: format!("NIC clock ptp{phc} less system clock"),
        points,
    }));
    found.retain(|series| series.points.len() > 1);
    found
}

/// How far each sample is off the straight line from the first to the last.
fn off_the_line<'a>(samples: &[&'a SyncSample]) -> Vec<(&'a SyncSample, i64)> {
    let [first, .., last] = samples else { return Vec::new() };
    let wide = |sample: &SyncSample| i128::from(sample.realtime_ahead_ns);
    let time = i128::from(last.raw_ns) - i128::from(first.raw_ns);
    if time <= 0 {
        return Vec::new();
    }
    let gained = wide(last) - wide(first);
    let off = |sample: &SyncSample| {
        let since = i128::from(sample.raw_ns) - i128::from(first.raw_ns);
        let off = wide(sample) - (wide(first) + gained * since / time);
        i64::try_from(off).unwrap_or(i64::MAX)
    };
    samples.iter().map(|sample| (*sample, off(sample))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_clocks_go_against_the_giver_or_against_a_straight_line() {
        let followed =
            [header(), sample(5, 0, Some(-40)), event(6, "lost"), sample(25, 9, Some(3))];
        let found = series(&followed);
        assert_eq!(found.len(), 1);
        assert!(found[0].name.ends_with("the giver of the time"), "{found:?}");
        assert_eq!(found[0].points, [(0, -40), (20, 3)]);
        let alone = [header(), sample(0, 0, None), sample(10, 30, None), sample(20, 40, None)];
        let found = series(&alone);
        assert_eq!(found[0].points, [(0, 0), (10, 10), (20, 0)]);
        assert_eq!(series(&[header(), sample(0, 0, None)]), []);
        assert_eq!(series(&[]), []);
        let mut with_nic = alone.to_vec();
        for (line, ahead_ns) in with_nic[1..].iter_mut().zip([7, 8, 9]) {
            let SyncLine::Sample(sample) = line else { continue };
            let by = "precise".to_owned();
            sample.nics.push(NicSample { phc: 2, ahead_ns, error_ns: 1, by });
        }
        let found = series(&with_nic);
        assert_eq!(found[1].name, "NIC clock ptp2 less system clock");
        assert_eq!(found[1].points, [(0, 7), (10, 8), (20, 9)]);
    }

    fn sample(raw_ns: i64, realtime_ahead_ns: i64, offset_ns: Option<i64>) -> SyncLine {
        SyncLine::Sample(SyncSample {
            raw_ns,
            realtime_ahead_ns,
            realtime_error_ns: 10,
            tai_offset_s: 37,
            synchronised: offset_ns.is_some(),
            frequency_ppb: 0,
            max_error_ns: 0,
            estimated_error_ns: 0,
            nics: Vec::new(),
            ptp: offset_ns.map(|offset| PtpSample {
                offset_ns: Some(offset),
                error_ns: 3,
                giver: "a".to_owned(),
                ports: Vec::new(),
            }),
        })
    }

    fn event(raw_ns: i64, what: &str) -> SyncLine {
        let why = "a cable".to_owned();
        SyncLine::Event(SyncEvent { raw_ns, what: what.to_owned(), why })
    }

    fn header() -> SyncLine {
        SyncLine::Sync(SyncHeader {
            schema: SYNC_SCHEMA.to_owned(),
            kernel: "b".to_owned(),
            stations: Vec::new(),
        })
    }

    #[test]
    fn t0_samples_and_events_come_to_a_summary() {
        let lines = [
            header(),
            event(0, "locked"),
            sample(1_000_000_000, 500, Some(-40)),
            sample(2_000_000_000, 520, Some(30)),
            event(2_500_000_000, "lost"),
            event(2_600_000_000, "lost"),
            // Twenty in every second, and a step of 100 that is taken back.
            sample(4_000_000_000, 660, None),
            event(4_500_000_000, "locked"),
            sample(5_000_000_000, 580, Some(5)),
            event(6_000_000_000, "lost"),
        ];
        let summary = summarise(&lines);
        assert_eq!((summary.samples, summary.longest_gap_ns), (4, 2_000_000_000));
        assert_eq!((summary.max_offset_ns, summary.max_offset_error_ns), (Some(40), Some(3)));
        assert_eq!((summary.rate_ppb, summary.max_deviation_ns), (Some(20), 100));
        assert_eq!((summary.deviation_error_ns, summary.unsynchronised), (20, 1));
        assert_eq!(summary.tai_offsets_s, [37]);
        let lost: Vec<_> = summary.lost.iter().map(|l| (l.from_raw_ns, l.for_ns)).collect();
        assert_eq!(lost, [(2_500_000_000, Some(2_000_000_000)), (6_000_000_000, None)]);
    }

    #[test]
    fn t0_lines_survive_and_others_are_refused_with_their_number() {
        let lines = [header(), sample(1, 2, Some(3)), sample(1, 2, None), event(4, "lost")];
        let text: String = lines.iter().map(SyncLine::to_text).collect();
        assert_eq!(SyncLine::read(&text).unwrap(), lines);
        let cut = &text[..text.len() - 2];
        assert_eq!(SyncLine::read(cut).unwrap(), lines[..3]);
        assert_eq!(summarise(&SyncLine::read("").unwrap()), SyncSummary::default());
        for (bad, message) in [
            (event(1, "lost").to_text(), "line 1: it is no header"),
            (header().to_text() + &header().to_text(), "line 2: it is a second header"),
            (header().to_text().replace("sync/1", "sync/9"), "line 1: it is of version"),
            (header().to_text() + "{}\n", "line 2: missing field `type`"),
        ] {
            let error = SyncLine::read(&bad).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of launch times comes to: from the frames of each run to columns of a table,
//! and the ratios between them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use timewire_base::{Span, Verdict};
use timewire_datapath::drops::DropCause;
use timewire_stats::{Statistics, median};
use timewire_sys::clock;

use super::super::run::Report;
use super::limit::{self, Checked, FIGURES, Limit, Names};
use super::{Endpoints, LaunchMethod, TimestampPoint, cell};

/// The format of [`Measured`] as JSON.
pub const SCHEMA: &str = "timewire.measure-launch/1";

/// What became of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It was never written for the kernel: the measurement ended before.
    #[default]
    Unsent,
    /// The kernel took it.
    Sent,
    /// The kernel did not take it; why is told for the whole column.
    NotTaken,
    /// The discipline refused its launch time, mostly because that was past.
    Invalid,
    /// The discipline held it until its launch time was past.
    Missed,
}

impl Fate {
    /// As files have it.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Unsent => "unsent",
            Fate::Sent => "sent",
            Fate::NotTaken => "not_taken",
            Fate::Invalid => "invalid",
            Fate::Missed => "missed",
        }
    }
}

/// One frame of a run. **Units**: nanoseconds of TAI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was to leave.
    pub launch_ns: i64,
    /// When it was written for the kernel.
    pub sent_ns: i64,
    /// The timestamp of the sender's side, of the clock that the run names.
    pub sender_ns: Option<i64>,
    /// The kernel's timestamp where it arrived.
    pub peer_ns: Option<i64>,
    /// What became of it.
    pub fate: Fate,
}

/// The frames of one way and cycle, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    /// How they got their times.
    pub way: LaunchMethod,
    /// From one launch time to the next.
    pub cycle: Span,
    /// Which repeat, counted from 0.
    pub repeat: u32,
    /// Where the sender's side timestamped; `None` where it does not.
    pub sender: Option<TimestampPoint>,
    /// Whether the frames have timestamps of the peer.
    pub has_peer: bool,
    /// The NIC's clock against the kernel's TAI, before and after; only of its timestamps.
    pub nic: Option<NicClockSeen>,
    /// The frames, in their order.
    pub samples: Vec<Sample>,
    /// Why frames did not leave.
    pub drop_causes: Vec<DropCause>,
}

/// How a NIC's clock was related to TAI over a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicClockSeen {
    /// Its device.
    pub device: String,
    /// How far it was ahead of TAI at most, in either direction, with the error of looking.
    pub most_ns: i64,
}

/// How far a NIC's clock may be from TAI for its timestamps to be compared with launch times.
pub const NIC_LIMIT: Span = Span::from_us(10);

/// A timestamp point, and whose clock timestamped there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointClock {
    /// Where.
    pub point: TimestampPoint,
    /// Whose clock timestamped, which is compared with `CLOCK_TAI`.
    pub clock: String,
    /// Why the two cannot be compared; nothing else is there then.
    pub incomparable: Option<String>,
    /// Of a NIC's clock: how far from TAI at most, with the error of looking.
    pub clock_within_ns: Option<i64>,
}

impl PointClock {
    pub(super) fn of(point: TimestampPoint, nic: Option<&NicClockSeen>) -> PointClock {
        let (clock, incomparable, clock_within_ns) = match (point, nic) {
            (TimestampPoint::TxSoftware | TimestampPoint::Peer, _) => {
                ("CLOCK_TAI".to_owned(), None, None)
            }
            (TimestampPoint::TxHardware, None) => {
                let why = "the NIC's clock cannot be read".to_owned();
                ("the NIC's".to_owned(), Some(why), None)
            }
            (TimestampPoint::TxHardware, Some(NicClockSeen { device, most_ns })) => {
                let most = Span::from_ns(*most_ns);
                let why = (most > NIC_LIMIT).then(|| {
                    format!(
                        "{device} is up to {most} from CLOCK_TAI, more than {NIC_LIMIT}: \
                         synchronise them first (phc2sys, or `timewire clock start`)"
                    )
                });
                (device.clone(), why, Some(*most_ns))
            }
        };
        PointClock { point, clock, incomparable, clock_within_ns }
    }
}

/// Launch errors: timestamp less launch time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Their statistics.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Largest less smallest. **Units**: nanoseconds.
    pub peak_to_peak_ns: i64,
}

impl Errors {
    /// `None` of no value.
    pub fn of(values: Vec<i64>) -> Option<Errors> {
        let statistics = Statistics::of(values)?;
        Some(Errors { statistics, peak_to_peak_ns: statistics.peak_to_peak_ns() })
    }
}

impl Deref for Errors {
    type Target = Statistics;

    fn deref(&self) -> &Statistics {
        &self.statistics
    }
}

/// Launch errors by the timestamps of one timestamp point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtPoint {
    /// Whose clock's.
    #[serde(flatten)]
    pub by: PointClock,
    /// Of all repeats together; `None` without any timestamp.
    pub errors: Option<Errors>,
    /// Of each repeat.
    pub repeats: Vec<Option<Errors>>,
    /// Frames that left, as far as is known, and have no timestamp.
    pub not_timestamped: u64,
}

/// What became of the frames of a column. They add up: `planned = sent + not_taken + invalid +
/// missed + unsent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Launch times.
    pub planned: u64,
    /// Sent, and not dropped by the discipline.
    pub sent: u64,
    /// Not taken by the kernel.
    pub not_taken: u64,
    /// Dropped when they came to the discipline.
    pub invalid: u64,
    /// Dropped by the discipline when their time was over.
    pub missed: u64,
    /// Not sent because the measurement was ended.
    pub unsent: u64,
}

impl Counts {
    pub(super) fn add(&mut self, fate: Fate) {
        self.planned += 1;
        *match fate {
            Fate::Sent => &mut self.sent,
            Fate::NotTaken => &mut self.not_taken,
            Fate::Invalid => &mut self.invalid,
            Fate::Missed => &mut self.missed,
            Fate::Unsent => &mut self.unsent,
        } += 1;
    }
}

/// One column of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// How the frames got their times.
    pub way: LaunchMethod,
    /// From one launch time to the next.
    pub cycle_ns: i64,
    /// The discipline's delta.
    pub delta_ns: Option<i64>,
    /// How long before its launch time a frame was given to the kernel, or to the MAC.
    pub lead_ns: Option<i64>,
    /// What became of the frames.
    pub counts: Counts,
    /// Why frames did not leave, with the queueing discipline that dropped them.
    #[serde(default)]
    pub drop_causes: Vec<DropCause>,
    /// The timestamp point that the table shows.
    pub shown: TimestampPoint,
    /// Launch errors at every timestamp point that there is.
    pub points: Vec<AtPoint>,
}

impl Column {
    /// The timestamp point that the table shows; `None` where its frames have no such timestamp.
    pub fn at_shown(&self) -> Option<&AtPoint> {
        self.points.iter().find(|at| at.by.point == self.shown)
    }

    /// What the table calls it.
    pub fn name(&self) -> String {
        format!("{} @ {}", self.way, Span::from_ns(self.cycle_ns))
    }

    fn figures(&self) -> Vec<(String, i64)> {
        let at = self.at_shown();
        let errors = at.and_then(|at| at.errors.as_ref()).map(limit::figures);
        let times = errors.into_iter().flat_map(|values| FIGURES.into_iter().zip(values));
        let mut counts = vec![
            ("missed", self.counts.missed),
            ("invalid", self.counts.invalid),
            ("not-taken", self.counts.not_taken),
        ];
        counts.extend(at.map(|at| ("not-timestamped", at.not_timestamped)));
        let counts = counts.into_iter();
        let counts = counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX)));
        times.chain(counts).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// What limits can be set for.
pub(super) fn names() -> Names {
    let counts = ["missed", "invalid", "not-taken", "not-timestamped"].map(str::to_owned).to_vec();
    Names { times: FIGURES.map(str::to_owned).to_vec(), counts }
}

/// Holds the limits against every column.
pub(super) fn checked(limits: &[Limit], columns: &[Column]) -> Vec<Checked> {
    let of = |column: &Column| limit::check(limits, &column.name(), &column.figures());
    columns.iter().flat_map(of).collect()
}

/// How much larger one way's error is than another's, repeat by repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The way above the line.
    pub of: LaunchMethod,
    /// The way below.
    pub to: LaunchMethod,
    /// The cycle of both.
    pub cycle_ns: i64,
    /// The timestamp point of both.
    pub point: TimestampPoint,
    /// Of which figure.
    pub figure: Figure,
    /// How many repeats have both.
    pub repeats: usize,
    /// Smallest, median and largest of the repeats' ratios.
    pub smallest: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub largest: f64,
}

/// A figure that a constant part of the error, such as the delta, does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Largest less smallest.
    PeakToPeak,
    /// Standard deviation.
    Stddev,
}

/// Something that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// What.
    pub way: LaunchMethod,
    /// Why.
    #[serde(flatten)]
    pub reason: Unavailable,
}

/// Why something could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unavailable {
    /// What is missing, and what would be right.
    pub why: String,
    /// Whether another kernel, driver or NIC would have it.
    pub unsupported: bool,
}

/// A trial of the search for the smallest delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The delta tried.
    pub delta_ns: i64,
    /// With so many frames.
    pub frames: u64,
    /// Dropped because their time was over when the timer came.
    pub missed: u64,
    /// Refused because they came too late to the discipline, which no delta mends.
    pub invalid: u64,
}

/// What the search for the smallest delta found. It speaks of its own frames only: under another
/// load, or for longer, more can be needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallestDelta {
    /// The smallest that missed no frame, also in the longer run; `None` when none did up to the
    /// largest tried.
    pub delta_ns: Option<i64>,
    /// Frames of the longer run.
    pub confirmed_by: u64,
    /// Of which cycles: a delta must serve all of them.
    pub cycles_ns: Vec<i64>,
    /// All that was tried, in order.
    pub trials: Vec<Trial>,
}

/// Where and on what something was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// The format.
    pub schema: String,
    /// The release of the kernel.
    pub kernel: String,
    /// Between which stations.
    pub place: String,
    /// Whether the kernel's time is virtual: then nothing takes time but waiting.
    pub virtual_time: bool,
}

impl Conditions {
    pub(super) fn now(schema: &str, place: &Endpoints) -> Conditions {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Conditions {
            schema: schema.to_owned(),
            kernel: release.trim().to_owned(),
            place: place.to_string(),
            virtual_time: clock::is_virtual(),
        }
    }
}

/// What is said of all that was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The limits that were set, of each column.
    pub limits: Vec<Checked>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Whether it was ended before all was measured.
    pub ended_early: bool,
}

impl Conclusion {
    pub(super) fn has_findings(&self) -> bool {
        self.limits.iter().any(|one| one.verdict != Verdict::Pass)
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Where.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// **Units**: bytes with Ethernet header, without check sequence.
    pub frame_bytes: u32,
    /// How often each column was run, the columns taking turns.
    pub repeats: u32,
    /// How the sender ran.
    pub scheduling: String,
    /// One for each way and cycle, ways together.
    pub columns: Vec<Column>,
    /// What could not be measured.
    pub absent: Vec<Absent>,
    /// Ratios of plain to each other way.
    pub ratios: Vec<Ratio>,
    /// The search for the smallest delta, if it was asked for.
    pub smallest_delta: Option<SmallestDelta>,
    /// Limits and notes.
    #[serde(flatten)]
    pub conclusion: Conclusion,
    /// Every frame, which the JSON has not.
    #[serde(skip)]
    pub shots: Vec<Shot>,
}

impl Report for Measured {
    const NAME: &'static str = "launch";
    const FRAMES: Option<&str> =
        Some("way,cycle_ns,repeat,seq,launch_ns,sent_ns,sender_ns,peer_ns,fate");

    fn text(&self) -> String {
        super::text::text(self)
    }

    fn ended_early(&self) -> bool {
        self.conclusion.ended_early
    }

    fn absent(&self) -> Option<bool> {
        let is_unsupported = || self.absent.iter().any(|absent| absent.reason.unsupported);
        self.columns.is_empty().then(is_unsupported)
    }

    /// Whether frames were lost to their launch times, a column could not be compared, or a limit
    /// does not pass.
    fn has_findings(&self) -> bool {
        let is_bad = |column: &Column| {
            let lost = column.counts.invalid + column.counts.missed;
            lost > 0 || column.at_shown().is_none_or(|at| at.errors.is_none())
        };
        self.conclusion.has_findings() || self.columns.iter().any(is_bad)
    }

    fn keep(&mut self, notes: &mut Vec<String>) {
        self.conclusion.notes.append(notes);
    }

    fn write_frames(&self, out: &mut dyn Write) -> io::Result<()> {
        for Shot { way, cycle, repeat, samples, .. } in &self.shots {
            let cycle = cycle.as_ns();
            for (seq, sample) in samples.iter().enumerate() {
                let Sample { launch_ns, sent_ns, sender_ns, peer_ns, fate } = *sample;
                let (sender, peer, fate) = (cell(sender_ns), cell(peer_ns), fate.word());
                write!(out, "{way},{cycle},{repeat},{seq},")?;
                writeln!(out, "{launch_ns},{sent_ns},{sender},{peer},{fate}")?;
            }
        }
        Ok(())
    }
}

/// What of a column is known besides its frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// The discipline's delta.
    pub delta: Option<Span>,
    /// How long before.
    pub lead: Option<Span>,
}

/// Puts the runs together: cycles in the order that they first come in, the ways of each together.
pub fn columns(
    shots: &[Shot],
    facts: &dyn Fn(LaunchMethod, Span) -> Facts,
    show: Show,
) -> Vec<Column> {
    let mut kinds: Vec<(LaunchMethod, Span)> = Vec::new();
    for shot in shots {
        if !kinds.contains(&(shot.way, shot.cycle)) {
            kinds.push((shot.way, shot.cycle));
        }
    }
    let mut cycles: Vec<Span> = Vec::new();
    for (_, cycle) in &kinds {
        if !cycles.contains(cycle) {
            cycles.push(*cycle);
        }
    }
    kinds.sort_by_key(|(way, cycle)| (cycles.iter().position(|one| one == cycle), *way));
    let column = |(way, cycle): (LaunchMethod, Span)| {
        let of: Vec<&Shot> =
            shots.iter().filter(|shot| shot.way == way && shot.cycle == cycle).collect();
        let Facts { delta, lead } = facts(way, cycle);
        let points = points(&of);
        Column {
            way,
            cycle_ns: cycle.as_ns(),
            delta_ns: delta.map(Span::as_ns),
            lead_ns: lead.map(Span::as_ns),
            counts: counts(&of),
            drop_causes: drop_causes(&of),
            shown: shown(show, &points),
            points,
        }
    };
    kinds.into_iter().map(column).collect()
}

/// Which timestamp point the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// This one.
    Only(TimestampPoint),
    /// The peer for all, so that all can be compared.
    Peer,
    /// The best of the sender's side.
    Sender,
}

fn shown(show: Show, points: &[AtPoint]) -> TimestampPoint {
    match show {
        Show::Only(point) => point,
        Show::Peer => TimestampPoint::Peer,
        Show::Sender => points.first().map_or(TimestampPoint::TxSoftware, |at| at.by.point),
    }
}

fn drop_causes(shots: &[&Shot]) -> Vec<DropCause> {
    let mut all = Vec::new();
    shots.iter().for_each(|shot| DropCause::merge(&mut all, &shot.drop_causes));
    all
}

fn counts(shots: &[&Shot]) -> Counts {
    let mut counts = Counts::default();
    for sample in shots.iter().flat_map(|shot| &shot.samples) {
        counts.add(sample.fate);
    }
    counts
}

/// The sender's side first.
fn points(shots: &[&Shot]) -> Vec<AtPoint> {
    let mut points = Vec::new();
    if let Some(point) = shots.iter().find_map(|shot| shot.sender) {
        points.push(at_point(point, shots, |sample| sample.sender_ns));
    }
    if shots.iter().any(|shot| shot.has_peer) {
        points.push(at_point(TimestampPoint::Peer, shots, |sample| sample.peer_ns));
    }
    points
}

fn at_point(
    point: TimestampPoint,
    shots: &[&Shot],
    timestamp: fn(&Sample) -> Option<i64>,
) -> AtPoint {
    let nic = shots.iter().filter_map(|shot| shot.nic.as_ref()).max_by_key(|nic| nic.most_ns);
    let by = PointClock::of(point, nic);
    let values = |shot: &Shot| -> Vec<i64> {
        let of = |sample: &Sample| Some(timestamp(sample)?.saturating_sub(sample.launch_ns));
        shot.samples.iter().filter_map(of).collect()
    };
    let compared = by.incomparable.is_none();
    let repeats: Vec<Option<Errors>> = match compared {
        true => shots.iter().map(|shot| Errors::of(values(shot))).collect(),
        false => Vec::new(),
    };
    let all = shots.iter().filter(|_| compared).flat_map(|shot| values(shot)).collect();
    let not_timestamped = shots.iter().flat_map(|shot| &shot.samples);
    let not_timestamped = not_timestamped
        .filter(|sample| sample.fate == Fate::Sent && timestamp(sample).is_none())
        .count();
    AtPoint {
        by,
        errors: Errors::of(all),
        repeats,
        not_timestamped: u64::try_from(not_timestamped).unwrap_or(u64::MAX),
    }
}

/// Plain above every other way of the same cycle, at the timestamp points that both have and that
/// can be compared.
pub fn ratios(columns: &[Column]) -> Vec<Ratio> {
    let mut found = Vec::new();
    let plain: BTreeMap<i64, &Column> = columns
        .iter()
        .filter(|column| column.way == LaunchMethod::Plain)
        .map(|column| (column.cycle_ns, column))
        .collect();
    for column in columns.iter().filter(|column| column.way != LaunchMethod::Plain) {
        let Some(plain) = plain.get(&column.cycle_ns) else { continue };
        for (above, below) in plain.points.iter().flat_map(|above| {
            column
                .points
                .iter()
                .filter(|below| below.by.point == above.by.point)
                .map(move |b| (above, b))
        }) {
            for figure in [Figure::PeakToPeak, Figure::Stddev] {
                found.extend(ratio(column, above, below, figure));
            }
        }
    }
    found
}

fn ratio(column: &Column, above: &AtPoint, below: &AtPoint, figure: Figure) -> Option<Ratio> {
    let value = |errors: &Errors| match figure {
        #[expect(clippy::cast_precision_loss, reason = "statistics: spans of less than a month")]
        Figure::PeakToPeak => errors.peak_to_peak_ns as f64,
        Figure::Stddev => errors.stddev_ns,
    };
    let pairs = above.repeats.iter().zip(&below.repeats);
    let mut all: Vec<f64> = pairs
        .filter_map(|(above, below)| Some((value(above.as_ref()?), value(below.as_ref()?))))
        .filter(|(_, below)| *below > 0.0)
        .map(|(above, below)| above / below)
        .collect();
    all.sort_by(f64::total_cmp);
    Some(Ratio {
        of: LaunchMethod::Plain,
        to: column.way,
        cycle_ns: column.cycle_ns,
        point: above.by.point,
        figure,
        repeats: all.len(),
        smallest: *all.first()?,
        median: median(&all)?,
        largest: *all.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shot(way: LaunchMethod, repeat: u32, errors: &[i64]) -> Shot {
        let sample = |(seq, &error): (i64, &i64)| Sample {
            launch_ns: seq * 1_000,
            sent_ns: seq * 1_000 - 100,
            sender_ns: Some(seq * 1_000 + error),
            peer_ns: Some(seq * 1_000 + error + 7),
            fate: Fate::Sent,
        };
        Shot {
            way,
            cycle: Span::from_us(1),
            repeat,
            sender: Some(TimestampPoint::TxSoftware),
            has_peer: true,
            nic: None,
            samples: (0..).zip(errors).map(sample).collect(),
            drop_causes: Vec::new(),
        }
    }

    #[test]
    fn t0_columns_have_all_repeats_and_every_frame_has_one_fate() {
        let mut second = shot(LaunchMethod::Etf, 1, &[-90, -80, -70, -60]);
        second.samples[1] = Sample { fate: Fate::Missed, sender_ns: None, ..second.samples[1] };
        second.samples[2] = Sample { fate: Fate::Sent, sender_ns: None, ..second.samples[2] };
        second.samples[3].fate = Fate::Unsent;
        let shots =
            [shot(LaunchMethod::Etf, 0, &[-100, -50]), shot(LaunchMethod::Plain, 0, &[3]), second];
        let facts = |way, _| Facts {
            delta: (way == LaunchMethod::Etf).then_some(Span::from_ns(100)),
            lead: None,
        };
        let columns = columns(&shots, &facts, Show::Sender);
        assert_eq!(
            columns.iter().map(|c| c.way).collect::<Vec<_>>(),
            [LaunchMethod::Plain, LaunchMethod::Etf]
        );
        let etf = &columns[1];
        let counts = Counts { planned: 6, sent: 4, missed: 1, unsent: 1, ..Counts::default() };
        assert_eq!(
            (etf.delta_ns, etf.shown, etf.counts),
            (Some(100), TimestampPoint::TxSoftware, counts)
        );
        let at = etf.at_shown().unwrap();
        let errors = at.errors.as_ref().unwrap();
        assert_eq!((errors.count, errors.min_ns, errors.max_ns), (4, -100, -50));
        assert_eq!(
            (at.not_timestamped, at.repeats.len(), at.by.clock.as_str()),
            (1, 2, "CLOCK_TAI")
        );
        let peer = &etf.points[1];
        assert_eq!(
            (peer.by.point, peer.errors.as_ref().unwrap().min_ns),
            (TimestampPoint::Peer, -93)
        );
    }

    #[test]
    fn t0_ratios_are_of_repeats_and_not_changed_by_a_constant() {
        let shots = [
            shot(LaunchMethod::Plain, 0, &[0, 40]),
            shot(LaunchMethod::Etf, 0, &[-1_000, -990]),
            shot(LaunchMethod::Plain, 1, &[0, 90]),
            shot(LaunchMethod::Etf, 1, &[-1_000, -970]),
            shot(LaunchMethod::Plain, 2, &[0, 20]),
            shot(LaunchMethod::Etf, 2, &[-1_000, -980]),
        ];
        let columns = columns(&shots, &|_, _| Facts::default(), Show::Peer);
        let ratios = ratios(&columns);
        let of = |point, figure| {
            let found: Vec<_> =
                ratios.iter().filter(|r| r.point == point && r.figure == figure).collect();
            let [one] = found[..] else { panic!("{ratios:?}") };
            (one.repeats, one.smallest, one.median, one.largest)
        };
        assert_eq!(of(TimestampPoint::TxSoftware, Figure::PeakToPeak), (3, 1.0, 3.0, 4.0));
        assert_eq!(of(TimestampPoint::Peer, Figure::PeakToPeak), (3, 1.0, 3.0, 4.0));
        assert_eq!(columns[0].shown, TimestampPoint::Peer);
    }

    #[test]
    fn t0_a_nic_whose_clock_runs_free_is_not_compared() {
        let of = |nic: Option<NicClockSeen>| {
            let one = Shot {
                sender: Some(TimestampPoint::TxHardware),
                nic,
                ..shot(LaunchMethod::Plain, 0, &[5])
            };
            columns(&[one], &|_, _| Facts::default(), Show::Sender).remove(0)
        };
        let seen = |most_ns| Some(NicClockSeen { device: "/dev/ptp3".to_owned(), most_ns });
        let good = of(seen(9_000));
        let at = good.at_shown().unwrap();
        assert_eq!((at.by.clock.as_str(), at.by.clock_within_ns), ("/dev/ptp3", Some(9_000)));
        assert_eq!(at.errors.as_ref().map(|e| e.count), Some(1));
        for nic in [seen(10_001), None] {
            let free = of(nic);
            let at = free.at_shown().unwrap();
            assert!(at.by.incomparable.is_some() && at.errors.is_none(), "{at:?}");
            // The peer's timestamps are of the kernel's clock all the same.
            assert!(free.points[1].errors.is_some());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of launch times comes to: from the frames of each run to columns of a table,
//! and the ratios between them.
//!
//! Not here: sending frames (`shot`), the table as text (`text`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timewire_base::Span;
use timewire_trace::stats::{Bins, Distribution};

use super::limit::{self, Checked, FIGURES, Limit, Names};
use super::{Tap, Way};
use crate::drops::DropCause;

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
    /// The stamp of the sender's side, of the clock that the run names.
    pub sender_ns: Option<i64>,
    /// The kernel's stamp where it arrived.
    pub peer_ns: Option<i64>,
    /// What became of it.
    pub fate: Fate,
}

/// The frames of one way and cycle, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    /// How they got their times.
    pub way: Way,
    /// From one launch time to the next.
    pub cycle: Span,
    /// Which repeat, counted from 0.
    pub repeat: u32,
    /// Where the sender's side stamped; `None` where it does not.
    pub sender: Option<Tap>,
    /// Whether the frames have stamps of the peer.
    pub has_peer: bool,
    /// The card's clock against the kernel's TAI, before and after; only of its stamps.
    pub card: Option<CardClockSeen>,
    /// The frames, in their order.
    pub samples: Vec<Sample>,
    /// Why frames did not leave.
    pub drop_causes: Vec<DropCause>,
}

/// How a card's clock was related to TAI over a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardClockSeen {
    /// Its device.
    pub device: String,
    /// How far it was ahead of TAI at most, in either direction, with the error of looking.
    pub most_ns: i64,
}

/// How far a card's clock may be from TAI for its stamps to be compared with launch times.
pub const CARD_LIMIT: Span = Span::from_us(10);

/// The distribution of launch errors: stamp less launch time.
///
/// **Units**: nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// How many.
    pub count: u64,
    /// Smallest.
    pub min_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Largest less smallest.
    pub peak_to_peak_ns: i64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation of the sample.
    pub stddev_ns: f64,
    /// Median.
    pub p50_ns: i64,
    /// 90 % (nearest rank).
    pub p90_ns: i64,
    /// 99 %.
    pub p99_ns: i64,
    /// 99.9 %.
    pub p999_ns: i64,
}

impl Errors {
    /// `None` of no value.
    pub fn of(values: Vec<i64>) -> Option<Errors> {
        let found = Distribution::of(values, Bins::covering(Span::ZERO, Span::from_us(1)))?;
        Some(Errors {
            count: found.count,
            min_ns: found.min_ns,
            max_ns: found.max_ns,
            peak_to_peak_ns: found.peak_to_peak_ns,
            mean_ns: found.mean_ns,
            stddev_ns: found.stddev_ns,
            p50_ns: found.p50_ns,
            p90_ns: found.p90_ns,
            p99_ns: found.p99_ns,
            p999_ns: found.p999_ns,
        })
    }
}

/// Launch errors by the stamps of one tap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtTap {
    /// Where.
    pub tap: Tap,
    /// Whose clock stamped, against which the launch times of `CLOCK_TAI` are held.
    pub clock: String,
    /// Why the two cannot be compared; there are no errors then.
    pub incomparable: Option<String>,
    /// Of a card's clock: how far from TAI at most, with the error of looking.
    pub clock_within_ns: Option<i64>,
    /// Of all repeats together; `None` without any stamp.
    pub errors: Option<Errors>,
    /// Of each repeat.
    pub repeats: Vec<Option<Errors>>,
    /// Frames that left, as far as is known, and have no stamp.
    pub unstamped: u64,
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
    pub way: Way,
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
    /// The tap that the table shows.
    pub shown: Tap,
    /// Launch errors at every tap that there is.
    pub taps: Vec<AtTap>,
}

impl Column {
    /// The tap that the table shows; `None` where its frames have no such stamp.
    pub fn at_shown(&self) -> Option<&AtTap> {
        self.taps.iter().find(|at| at.tap == self.shown)
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
        counts.extend(at.map(|at| ("unstamped", at.unstamped)));
        let counts = counts.into_iter();
        let counts = counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX)));
        times.chain(counts).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// What limits can be set for.
pub(super) fn names() -> Names {
    let counts = ["missed", "invalid", "not-taken", "unstamped"].map(str::to_owned).to_vec();
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
    pub of: Way,
    /// The way below.
    pub to: Way,
    /// The cycle of both.
    pub cycle_ns: i64,
    /// The tap of both.
    pub tap: Tap,
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
    pub way: Way,
    /// What is missing, and what would be right.
    pub why: String,
    /// Whether another kernel, driver or card would have it.
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

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The format.
    pub schema: String,
    /// The release of the kernel.
    pub kernel: String,
    /// Between which stations.
    pub place: String,
    /// Whether the kernel's time is virtual: then nothing takes time but waiting.
    pub virtual_time: bool,
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
    /// The limits that were set, of each column.
    pub limits: Vec<Checked>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Whether it was ended before all was measured.
    pub ended_early: bool,
}

impl Measured {
    /// Whether frames were lost to their launch times, a column could not be compared, or a limit
    /// was missed.
    pub fn has_findings(&self) -> bool {
        let missed = self.limits.iter().any(|one| !one.kept);
        let is_bad = |column: &Column| {
            let lost = column.counts.invalid + column.counts.missed;
            lost > 0 || column.at_shown().is_none_or(|at| at.errors.is_none())
        };
        missed || self.columns.iter().any(is_bad)
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
pub fn columns(shots: &[Shot], facts: &dyn Fn(Way, Span) -> Facts, show: Show) -> Vec<Column> {
    let mut kinds: Vec<(Way, Span)> = Vec::new();
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
    let column = |(way, cycle): (Way, Span)| {
        let of: Vec<&Shot> =
            shots.iter().filter(|shot| shot.way == way && shot.cycle == cycle).collect();
        let Facts { delta, lead } = facts(way, cycle);
        let taps = taps(&of);
        Column {
            way,
            cycle_ns: cycle.as_ns(),
            delta_ns: delta.map(Span::as_ns),
            lead_ns: lead.map(Span::as_ns),
            counts: counts(&of),
            drop_causes: drop_causes(&of),
            shown: shown(show, &taps),
            taps,
        }
    };
    kinds.into_iter().map(column).collect()
}

/// Which tap the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// This one.
    Only(Tap),
    /// The peer for all, so that all can be compared.
    Peer,
    /// The best of the sender's side.
    Sender,
}

fn shown(show: Show, taps: &[AtTap]) -> Tap {
    match show {
        Show::Only(tap) => tap,
        Show::Peer => Tap::Peer,
        Show::Sender => taps.first().map_or(Tap::TxSoftware, |at| at.tap),
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
fn taps(shots: &[&Shot]) -> Vec<AtTap> {
    let mut taps = Vec::new();
    if let Some(tap) = shots.iter().find_map(|shot| shot.sender) {
        taps.push(at_tap(tap, shots, |sample| sample.sender_ns));
    }
    if shots.iter().any(|shot| shot.has_peer) {
        taps.push(at_tap(Tap::Peer, shots, |sample| sample.peer_ns));
    }
    taps
}

fn at_tap(tap: Tap, shots: &[&Shot], stamp: fn(&Sample) -> Option<i64>) -> AtTap {
    let card = shots.iter().filter_map(|shot| shot.card.as_ref()).max_by_key(|card| card.most_ns);
    let card = card.filter(|_| tap == Tap::TxHardware);
    let clock = match (tap, card) {
        (Tap::TxHardware, Some(card)) => card.device.clone(),
        (Tap::TxHardware, None) => "the card's".to_owned(),
        _ => "CLOCK_TAI".to_owned(),
    };
    let incomparable = match (tap, card) {
        (Tap::TxHardware, None) => Some("the card's clock cannot be read".to_owned()),
        (Tap::TxHardware, Some(card)) if card.most_ns > CARD_LIMIT.as_ns() => Some(format!(
            "{} is up to {} from CLOCK_TAI, more than {CARD_LIMIT}: synchronise them first \
             (phc2sys, or `timewire clock start`)",
            card.device,
            Span::from_ns(card.most_ns)
        )),
        _ => None,
    };
    let values = |shot: &Shot| -> Vec<i64> {
        let of = |sample: &Sample| Some(stamp(sample)?.saturating_sub(sample.launch_ns));
        shot.samples.iter().filter_map(of).collect()
    };
    let compared = incomparable.is_none();
    let repeats: Vec<Option<Errors>> = match compared {
        true => shots.iter().map(|shot| Errors::of(values(shot))).collect(),
        false => Vec::new(),
    };
    let all = shots.iter().filter(|_| compared).flat_map(|shot| values(shot)).collect();
    let unstamped = shots.iter().flat_map(|shot| &shot.samples);
    let unstamped =
        unstamped.filter(|sample| sample.fate == Fate::Sent && stamp(sample).is_none()).count();
    AtTap {
        tap,
        clock,
        incomparable,
        clock_within_ns: card.map(|card| card.most_ns),
        errors: Errors::of(all),
        repeats,
        unstamped: u64::try_from(unstamped).unwrap_or(u64::MAX),
    }
}

/// Plain above every other way of the same cycle, at the taps that both have and that can be
/// compared.
pub fn ratios(columns: &[Column]) -> Vec<Ratio> {
    let mut found = Vec::new();
    let plain: BTreeMap<i64, &Column> = columns
        .iter()
        .filter(|column| column.way == Way::Plain)
        .map(|column| (column.cycle_ns, column))
        .collect();
    for column in columns.iter().filter(|column| column.way != Way::Plain) {
        let Some(plain) = plain.get(&column.cycle_ns) else { continue };
        for (above, below) in plain.taps.iter().flat_map(|above| {
            column.taps.iter().filter(|below| below.tap == above.tap).map(move |b| (above, b))
        }) {
            for figure in [Figure::PeakToPeak, Figure::Stddev] {
                found.extend(ratio(column, above, below, figure));
            }
        }
    }
    found
}

fn ratio(column: &Column, above: &AtTap, below: &AtTap, figure: Figure) -> Option<Ratio> {
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
        of: Way::Plain,
        to: column.way,
        cycle_ns: column.cycle_ns,
        tap: above.tap,
        figure,
        repeats: all.len(),
        smallest: *all.first()?,
        median: all[(all.len() - 1) / 2],
        largest: *all.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shot(way: Way, repeat: u32, errors: &[i64]) -> Shot {
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
            sender: Some(Tap::TxSoftware),
            has_peer: true,
            card: None,
            samples: (0..).zip(errors).map(sample).collect(),
            drop_causes: Vec::new(),
        }
    }

    #[test]
    fn t0_columns_have_all_repeats_and_every_frame_has_one_fate() {
        let mut second = shot(Way::Etf, 1, &[-90, -80, -70, -60]);
        second.samples[1] = Sample { fate: Fate::Missed, sender_ns: None, ..second.samples[1] };
        second.samples[2] = Sample { fate: Fate::Sent, sender_ns: None, ..second.samples[2] };
        second.samples[3].fate = Fate::Unsent;
        let shots = [shot(Way::Etf, 0, &[-100, -50]), shot(Way::Plain, 0, &[3]), second];
        let facts =
            |way, _| Facts { delta: (way == Way::Etf).then_some(Span::from_ns(100)), lead: None };
        let columns = columns(&shots, &facts, Show::Sender);
        assert_eq!(columns.iter().map(|c| c.way).collect::<Vec<_>>(), [Way::Plain, Way::Etf]);
        let etf = &columns[1];
        let counts = Counts { planned: 6, sent: 4, missed: 1, unsent: 1, ..Counts::default() };
        assert_eq!((etf.delta_ns, etf.shown, etf.counts), (Some(100), Tap::TxSoftware, counts));
        let at = etf.at_shown().unwrap();
        let errors = at.errors.as_ref().unwrap();
        assert_eq!((errors.count, errors.min_ns, errors.max_ns), (4, -100, -50));
        assert_eq!((at.unstamped, at.repeats.len(), at.clock.as_str()), (1, 2, "CLOCK_TAI"));
        let peer = &etf.taps[1];
        assert_eq!((peer.tap, peer.errors.as_ref().unwrap().min_ns), (Tap::Peer, -93));
    }

    #[test]
    fn t0_ratios_are_of_repeats_and_not_changed_by_a_constant() {
        let shots = [
            shot(Way::Plain, 0, &[0, 40]),
            shot(Way::Etf, 0, &[-1_000, -990]),
            shot(Way::Plain, 1, &[0, 90]),
            shot(Way::Etf, 1, &[-1_000, -970]),
            shot(Way::Plain, 2, &[0, 20]),
            shot(Way::Etf, 2, &[-1_000, -980]),
        ];
        let columns = columns(&shots, &|_, _| Facts::default(), Show::Peer);
        let ratios = ratios(&columns);
        let of = |tap, figure| {
            let found: Vec<_> =
                ratios.iter().filter(|r| r.tap == tap && r.figure == figure).collect();
            let [one] = found[..] else { panic!("{ratios:?}") };
            (one.repeats, one.smallest, one.median, one.largest)
        };
        assert_eq!(of(Tap::TxSoftware, Figure::PeakToPeak), (3, 1.0, 3.0, 4.0));
        assert_eq!(of(Tap::Peer, Figure::PeakToPeak), (3, 1.0, 3.0, 4.0));
        assert_eq!(columns[0].shown, Tap::Peer);
    }

    #[test]
    fn t0_a_card_whose_clock_runs_free_is_not_compared() {
        let of = |card: Option<CardClockSeen>| {
            let one = Shot { sender: Some(Tap::TxHardware), card, ..shot(Way::Plain, 0, &[5]) };
            columns(&[one], &|_, _| Facts::default(), Show::Sender).remove(0)
        };
        let seen = |most_ns| Some(CardClockSeen { device: "/dev/ptp3".to_owned(), most_ns });
        let good = of(seen(9_000));
        let at = good.at_shown().unwrap();
        assert_eq!((at.clock.as_str(), at.clock_within_ns), ("/dev/ptp3", Some(9_000)));
        assert_eq!(at.errors.as_ref().map(|e| e.count), Some(1));
        for card in [seen(10_001), None] {
            let free = of(card);
            let at = free.at_shown().unwrap();
            assert!(at.incomparable.is_some() && at.errors.is_none(), "{at:?}");
            // The peer's stamps are of the kernel's clock all the same.
            assert!(free.taps[1].errors.is_some());
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement of the receive path says: for each combination its counts and how long each
//! stage took, over all repeats and in each, and its ratio to the one that it is compared with.
//!
//! A ratio is taken within each repeat, where both were measured one after the other; the median of
//! these is told, with the smallest and the largest.

use std::collections::BTreeMap;

use serde::Serialize;
use timewire_base::Span;
use timewire_stats::{HistogramSummary, LogHistogram, Statistics, median};

use super::ReceiveSpec;
use super::plan::{Combination, Dimension};
use super::round::Round;
use super::sample::{Part, Sample, Stage, statistics, thinned};
use crate::measure::nic_clock::NicTimestamps;
use timewire_datapath::drops::DropCause;

/// The `schema` field.
pub const RECEIVE_SCHEMA: &str = "timewire.measure-receive/1";

/// A measurement.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveReport {
    /// Format and version.
    pub schema: &'static str,
    /// `bench`, or the interface.
    pub place: String,
    /// **Units**: bytes of a message of the bench.
    pub payload_bytes: usize,
    /// Rounds of each combination that were to be.
    pub repeats: usize,
    /// Whether it was asked to end before its time.
    pub ended_early: bool,
    /// What is compared.
    pub compare: Option<Dimension>,
    /// Good up to the first, bad beyond the second.
    pub thresholds_ns: [i64; 2],
    /// In the order of [`super::plan::Variety::combinations`].
    pub combinations: Vec<CombinationReport>,
}

/// One combination. Counts are of all repeats together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CombinationReport {
    /// All of it, in words.
    pub name: String,
    /// The source.
    pub over: String,
    /// How it waits.
    pub wait: String,
    /// Frames per second; `null` when others send.
    pub rate: Option<u32>,
    /// Settings by name.
    pub settings: BTreeMap<String, String>,
    /// How frames were received, in words.
    pub mode: String,
    /// What was tried before and did not work.
    pub refused: Vec<String>,
    /// Rounds that were made.
    pub rounds: usize,
    /// Messages that the bench's talker sent; `null` when others send.
    pub sent: Option<u64>,
    /// Messages that the kernel did not take from the talker.
    pub not_sent: u64,
    /// Why.
    pub drop_causes: Vec<DropCause>,
    /// Messages that came, each once.
    pub received: u64,
    /// Sent and not received; when others send, numbers that are missing between others.
    pub lost: u64,
    /// Messages that came again.
    pub duplicate: u64,
    /// Messages that came after one with a higher number.
    pub reordered: u64,
    /// Frames that the kernel dropped since the receiver was too slow.
    pub dropped: u64,
    /// Frames on receive queues that were not heard: the combination is inconclusive.
    pub other_queues: u64,
    /// Frames that did not belong to the stream.
    pub foreign: u64,
    /// Messages that came while a spinning real-time receiver rested, and are in no statistics.
    pub during_rest: u64,
    /// Messages without a timestamp of kernel or driver.
    pub not_timestamped: u64,
    /// Messages beyond those that are kept, in no statistics.
    pub not_kept: u64,
    /// Frames that other packet sockets read.
    pub read_by_others: u64,
    /// About the NIC's timestamps, of the last round.
    pub nic: NicTimestamps,
    /// How late the talker sent, of the worst round. **Units**: nanoseconds.
    pub talker_late_most_ns: Option<i64>,
    /// Each stage that any message had.
    pub stages: Vec<StageReport>,
    /// Of so many neighbours one point stands for the slowest.
    pub messages_per_point: usize,
    /// Messages for a picture, of the first round.
    pub points: Vec<Point>,
}

/// A stage of a combination.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// Its two ends.
    pub stage: &'static str,
    /// `driver`, `stack` or `complete`.
    pub part: &'static str,
    /// Over all rounds.
    pub all: HistogramSummary,
    /// Each round, exactly.
    pub rounds: Vec<RoundReport>,
    /// Compared with the reference; `null` for the reference itself.
    pub ratio: Option<RatioReport>,
    #[serde(skip)]
    which: Option<Stage>,
}

/// A stage in one round.
///
/// **Units**: nanoseconds; percentiles by nearest rank, exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// Which repeat, from 0.
    pub repeat: usize,
    /// Its messages.
    #[serde(flatten)]
    pub statistics: Statistics,
}

/// How a stage compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioReport {
    /// The combination that it is compared with.
    pub to: String,
    /// The stage there.
    pub stage: &'static str,
    /// Of the medians.
    pub p50: Ratio,
    /// Of the 99th percentiles.
    pub p99: Ratio,
}

/// A ratio over the repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Repeats that have it.
    pub repeats: usize,
}

/// One message of a picture: how long it took in each part. `null` where that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Its number.
    pub seq: u32,
    /// To the first timestamp in the kernel.
    pub driver_ns: Option<i64>,
    /// From there to the program.
    pub stack_ns: Option<i64>,
    /// All.
    pub complete_ns: Option<i64>,
}

impl Point {
    fn of(sample: &Sample) -> Point {
        let [driver_ns, stack_ns, complete_ns] =
            super::sample::parts(sample).map(|part| part.map(Span::as_ns));
        Point { seq: sample.seq, driver_ns, stack_ns, complete_ns }
    }
}

impl Ratio {
    /// Of pairs of one repeat each; `None` without any, or when what is divided by is never above
    /// zero.
    pub fn of(pairs: impl Iterator<Item = (i64, i64)>) -> Option<Ratio> {
        let divide = |(one, other): (i64, i64)| (other > 0).then(|| as_f64(one) / as_f64(other));
        let mut ratios: Vec<f64> = pairs.filter_map(divide).collect();
        ratios.sort_by(f64::total_cmp);
        let (&min, &max) = (ratios.first()?, ratios.last()?);
        let median = median(&ratios)?;
        Some(Ratio { median, min, max, repeats: ratios.len() })
    }
}

impl StageReport {
    /// The part that it is.
    pub fn is_part(&self, part: Part) -> bool {
        self.which.is_some_and(|stage| stage.part() == part)
    }
}

/// Gathers rounds into a report.
#[derive(Debug)]
pub(super) struct Reporter<'a> {
    spec: &'a ReceiveSpec,
    combinations: &'a [Combination],
    ended_early: bool,
    gathered: Vec<Gathered>,
}

#[derive(Debug)]
struct Gathered {
    report: CombinationReport,
    pooled: BTreeMap<Stage, LogHistogram>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(spec: &'a ReceiveSpec, combinations: &'a [Combination]) -> Reporter<'a> {
        let gathered = combinations.iter().map(Gathered::new).collect();
        Reporter { spec, combinations, ended_early: false, gathered }
    }

    /// The next round of a combination, by its number.
    pub(super) fn add(&mut self, at: usize, round: Round) {
        self.ended_early |= round.ended_early;
        self.gathered[at].add(round, self.spec.points);
    }

    pub(super) fn finish(self) -> ReceiveReport {
        let dimension =
            self.spec.compare.clone().or_else(|| self.spec.variety.dimensions().into_iter().next());
        let mut reports: Vec<_> = self.gathered.into_iter().map(Gathered::finish).collect();
        if let Some(dimension) = &dimension {
            for (at, of) in self.combinations.iter().enumerate() {
                let reference = self.spec.variety.reference(of, dimension);
                let index = self.combinations.iter().position(|it| *it == reference);
                let index = index.expect("invariant: the reference is a combination");
                if index != at {
                    let ratios = ratios(&reports[at], &reports[index]);
                    for (stage, ratio) in reports[at].stages.iter_mut().zip(ratios) {
                        stage.ratio = ratio;
                    }
                }
            }
        }
        ReceiveReport {
            schema: RECEIVE_SCHEMA,
            place: match &self.spec.place {
                super::PlaceSpec::Bench => "bench".to_owned(),
                super::PlaceSpec::Interface { name, .. } => name.to_string(),
            },
            payload_bytes: self.spec.payload,
            repeats: self.spec.repeats,
            ended_early: self.ended_early,
            compare: dimension,
            thresholds_ns: self.spec.thresholds.map(Span::as_ns),
            combinations: reports,
        }
    }
}

/// Of each stage of one combination, in their order.
fn ratios(of: &CombinationReport, to: &CombinationReport) -> Vec<Option<RatioReport>> {
    let ratio = |stage: &StageReport| {
        let which = stage.which?;
        // The same stage, or else the same part from the same beginning.
        let same = |other: &&StageReport| other.which == stage.which;
        let alike = |other: &&StageReport| other.which.is_some_and(|it| it.is_like(which));
        let other = to.stages.iter().find(same).or_else(|| to.stages.iter().find(alike))?;
        let pairs = |get: fn(&RoundReport) -> i64| {
            let both = stage.rounds.iter().filter_map(move |one| {
                let other = other.rounds.iter().find(|it| it.repeat == one.repeat)?;
                Some((get(one), get(other)))
            });
            Ratio::of(both)
        };
        Some(RatioReport {
            to: to.name.clone(),
            stage: other.stage,
            p50: pairs(|round| round.statistics.p50_ns)?,
            p99: pairs(|round| round.statistics.p99_ns)?,
        })
    };
    of.stages.iter().map(ratio).collect()
}

impl Stage {
    /// Whether it is the same part of the way and begins at the same end.
    fn is_like(self, other: Stage) -> bool {
        let begin = |stage: Stage| stage.name().split("->").next() == Some("hardware");
        self.part() == other.part() && begin(self) == begin(other)
    }
}

impl Gathered {
    fn new(of: &Combination) -> Gathered {
        let settings = of.settings.iter().map(|it| (it.key().to_owned(), it.to_string())).collect();
        let report = CombinationReport {
            name: of.to_string(),
            over: of.over.to_string(),
            wait: of.wait.to_string(),
            rate: of.rate,
            settings,
            ..CombinationReport::default()
        };
        Gathered { report, pooled: BTreeMap::new() }
    }

    fn add(&mut self, round: Round, points: usize) {
        let report = &mut self.report;
        let repeat = report.rounds;
        report.rounds += 1;
        report.mode = round.mode;
        report.refused = round.refused;
        DropCause::merge(&mut report.drop_causes, &round.drop_causes);
        report.received += round.sequence.received;
        report.lost += match &round.talker {
            Some(talker) => {
                let counters = &talker.counters;
                report.not_sent += counters.not_taken + counters.refused;
                *report.sent.get_or_insert(0) += counters.sent;
                let late = talker.lateness.max_ns;
                report.talker_late_most_ns = report.talker_late_most_ns.max(Some(late));
                counters.sent.saturating_sub(round.sequence.received)
            }
            None => round.sequence.lost,
        };
        report.duplicate += round.sequence.duplicate;
        report.reordered += round.sequence.reordered;
        report.dropped += round.dropped;
        report.other_queues += round.other_queues;
        report.foreign += round.foreign;
        report.during_rest += round.rested;
        report.not_timestamped += round.not_timestamped;
        report.not_kept += round.not_kept;
        report.read_by_others += round.others_read;
        report.nic = round.nic;
        for stage in Stage::ALL {
            let Some(statistics) = statistics(&round.samples, stage) else { continue };
            let told = RoundReport { repeat, statistics };
            let pooled = self.pooled.entry(stage).or_default();
            round.samples.iter().filter_map(|it| stage.of(it)).for_each(|it| pooled.record(it));
            match report.stages.iter_mut().find(|it| it.which == Some(stage)) {
                Some(known) => known.rounds.push(told),
                None => report.stages.push(StageReport {
                    stage: stage.name(),
                    part: stage.part().name(),
                    all: LogHistogram::new().summary(),
                    rounds: vec![told],
                    ratio: None,
                    which: Some(stage),
                }),
            }
        }
        if repeat == 0 {
            let (run, thin) = thinned(&round.samples, points);
            report.messages_per_point = run;
            report.points = thin.iter().map(Point::of).collect();
        }
    }

    fn finish(mut self) -> CombinationReport {
        self.report.stages.sort_by_key(|stage| stage.which);
        for stage in &mut self.report.stages {
            if let Some(pooled) = stage.which.and_then(|which| self.pooled.get(&which)) {
                stage.all = pooled.summary();
            }
        }
        self.report
    }
}

#[expect(clippy::cast_precision_loss, reason = "ratios: 16 digits are finer than any clock")]
fn as_f64(ns: i64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use timewire_capture::stream::sequence::SequenceCounts;

    use super::super::plan::{Policy, Variety};
    use super::super::{PlaceSpec, ReceiveSpec};
    use super::*;

    fn spec() -> ReceiveSpec {
        ReceiveSpec {
            timestamps: timewire_datapath::NicTimestamping::AsItIs,
            place: PlaceSpec::Bench,
            variety: Variety {
                over: vec!["udp".parse().unwrap(), "xdp".parse().unwrap()],
                wait: vec!["block".parse().unwrap()],
                rate: vec![Some(1_000)],
                sweeps: Vec::new(),
            },
            count: Some(4),
            duration: None,
            repeats: 3,
            payload: 64,
            compare: None,
            thresholds: [Span::from_us(2), Span::from_us(5)],
            points: 100,
            max_clock_error: Span::from_us(1),
            talker_cpu: None,
            talker_policy: Policy::Other,
        }
    }

    /// Four messages of which each took so long from its timestamp to the program.
    fn round(is_xdp: bool, times: [i64; 4]) -> Round {
        let sample = |(seq, time): (u32, i64)| {
            let timestamp = Some(1_000 * i64::from(seq) + 40);
            let (driver, kernel) = if is_xdp { (timestamp, None) } else { (None, timestamp) };
            let send = Some(1_000 * i64::from(seq));
            let user = 1_000 * i64::from(seq) + 40 + time;
            Sample { seq, send, hardware: None, driver, kernel, user }
        };
        Round {
            sequence: SequenceCounts { received: 4, ..SequenceCounts::default() },
            foreign: 1,
            samples: (0..).zip(times).map(sample).collect(),
            ..Round::default()
        }
    }

    #[test]
    fn t0_rounds_are_gathered_and_compared_within_a_repeat() {
        let spec = spec();
        let combinations = spec.variety.combinations();
        let mut reporter = Reporter::new(&spec, &combinations);
        for factor in [1, 2, 10] {
            reporter.add(0, round(false, [100, 200, 300, 400].map(|time| time * factor)));
            reporter.add(1, round(true, [50, 50, 100, 600].map(|time| time * factor)));
        }
        let report = reporter.finish();
        assert_eq!((report.compare, report.combinations.len()), (Some(Dimension::Over), 2));
        let [udp, xdp] = &report.combinations[..] else { panic!() };
        assert_eq!((udp.rounds, udp.received, udp.foreign), (3, 12, 3));
        let names =
            |of: &CombinationReport| of.stages.iter().map(|it| it.stage).collect::<Vec<_>>();
        assert_eq!(names(udp), ["send->kernel", "kernel->user", "send->user"]);
        assert_eq!(names(xdp), ["send->driver", "driver->user", "send->user"]);
        let stack = &udp.stages[1];
        assert_eq!((stack.all.count, stack.all.min_ns, stack.all.max_ns), (12, 100, 4_000));
        assert_eq!(
            stack.rounds.iter().map(|it| it.statistics.p50_ns).collect::<Vec<_>>(),
            [200, 400, 2_000]
        );
        assert_eq!(stack.ratio, None);
        // Each is a quarter of the other's median and half as much again of its slowest.
        let ratio = xdp.stages[1].ratio.as_ref().unwrap();
        assert_eq!((ratio.to.as_str(), ratio.stage), ("udp block 1000/s", "kernel->user"));
        assert_eq!(ratio.p50, Ratio { median: 0.25, min: 0.25, max: 0.25, repeats: 3 });
        assert_eq!(ratio.p99, Ratio { median: 1.5, min: 1.5, max: 1.5, repeats: 3 });
        assert_eq!(xdp.stages[0].ratio.as_ref().unwrap().stage, "send->kernel");
        assert_eq!(xdp.points.len(), 4);
        let first =
            Point { seq: 0, driver_ns: Some(40), stack_ns: Some(50), complete_ns: Some(90) };
        assert_eq!(xdp.points[0], first);
    }

    #[test]
    fn t0_a_ratio_has_median_and_spread() {
        let of = |pairs: &[(i64, i64)]| Ratio::of(pairs.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(5, 0)]), None);
        let even = of(&[(4, 2), (1, 2), (9, 3), (8, 8)]).unwrap();
        assert_eq!(even, Ratio { median: 1.0, min: 0.5, max: 3.0, repeats: 4 });
        let one = of(&[(3, 2), (7, 0)]).unwrap();
        assert_eq!(one, Ratio { median: 1.5, min: 1.5, max: 1.5, repeats: 1 });
    }
}

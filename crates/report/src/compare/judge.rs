// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the series of both runs to a verdict for each metric.
//!
//! In two steps: how sure each interval has to be follows from how many there are.

use timewire_capture::analyse::{CaseSeries, StreamSeries};

use super::interval::{self, Interval, Share};
use super::model::{Figure, Kind, MetricComparison, Rules, Verdict};
use super::number::{count, f64_of};
use super::random::Random;
use super::resample::{Estimate, Estimates, FIGURES, estimates, independent};

/// A metric with all that its interval is made of.
pub(super) struct Prepared {
    metric: MetricComparison,
    evidence: Evidence,
}

enum Evidence {
    Times(Estimate, Estimate),
    Shares(Share, Share),
    /// The series are the same, value by value, and so is the run.
    Equal,
    /// There is none, and `why` says so.
    None(&'static str),
    /// It is only shown.
    Shown,
}

impl Prepared {
    /// Whether it needs an interval.
    pub fn has_interval(&self) -> bool {
        matches!(self.evidence, Evidence::Times(..) | Evidence::Shares(..))
    }

    /// With its interval, each side of which is left with this probability.
    pub fn judged(self, side: f64, rules: &Rules) -> MetricComparison {
        let Prepared { mut metric, evidence } = self;
        match evidence {
            Evidence::Equal => {
                let times = metric.kind == Kind::Time && metric.a.value.is_some_and(|a| a > 0.0);
                metric.ratio = times.then(|| Interval::exactly(1.0));
                metric.difference = Some(Interval::exactly(0.0));
                (metric.verdict, metric.why) = (Verdict::Same, "the very same values".to_owned());
            }
            Evidence::Times(a, b) => {
                metric.ratio = interval::ratio(&a, &b, side);
                metric.difference = Some(interval::difference(&a, &b, side));
                match metric.ratio {
                    Some(ratio) => metric.verdict = of_ratio(ratio, rules.tolerance),
                    None => metric.why = "not all values are above zero".to_owned(),
                }
            }
            Evidence::Shares(a, b) => {
                let difference = interval::share_difference(a, b, side);
                metric.difference = Some(difference);
                metric.verdict = of_difference(difference, rules.share_tolerance);
            }
            Evidence::None(why) => metric.why = why.to_owned(),
            Evidence::Shown => metric.verdict = Verdict::Shown,
        }
        metric
    }
}

fn of_ratio(ratio: Interval, tolerance: f64) -> Verdict {
    let (least, most) = (1.0 / (1.0 + tolerance), 1.0 + tolerance);
    within(ratio, least, most)
}

fn of_difference(difference: Interval, tolerance: f64) -> Verdict {
    within(difference, -tolerance, tolerance)
}

fn within(found: Interval, least: f64, most: f64) -> Verdict {
    if found.low >= least && found.high <= most {
        Verdict::Same
    } else if found.low > most {
        Verdict::Worse
    } else if found.high < least {
        Verdict::Better
    } else {
        Verdict::Inconclusive
    }
}

/// Every metric of a case that both runs have; the names of streams that only one has. Without
/// `whole` records, what was not recorded would be counted as lost.
pub(super) fn case(
    a: &CaseSeries,
    b: &CaseSeries,
    seed: u64,
    whole: bool,
) -> (Vec<Prepared>, Vec<String>) {
    let mut found = Vec::new();
    let mut not_in_both = Vec::new();
    for of_a in &a.streams {
        match b.streams.iter().find(|stream| stream.name == of_a.name) {
            Some(of_b) => stream(&mut found, &a.id, (of_a, of_b), seed),
            None => not_in_both.push(format!("{} is only in A", of_a.name)),
        }
    }
    let new = b.streams.iter().filter(|of_b| a.streams.iter().all(|of_a| of_a.name != of_b.name));
    not_in_both.extend(new.map(|stream| format!("{} is only in B", stream.name)));
    if let (Some(of_a), Some(of_b)) = (&a.outside, &b.outside) {
        let mut outside = share(None, "outside-slots", (of_a, of_b), a == b);
        if a.unobserved > 0 || b.unobserved > 0 {
            outside.evidence = Evidence::None("frames were not observed");
        }
        found.push(outside);
    }
    for share in found.iter_mut().filter(|it| !whole && it.metric.kind == Kind::Share) {
        share.evidence = Evidence::None("records are not complete");
    }
    (found, not_in_both)
}

fn stream(found: &mut Vec<Prepared>, id: &str, (a, b): (&StreamSeries, &StreamSeries), seed: u64) {
    let series = [
        ("latency", &a.transfer, &b.transfer),
        ("slot-wait", &a.slot_wait, &b.slot_wait),
        ("receive", &a.receive, &b.receive),
    ];
    for (what, of_a, of_b) in series {
        if of_a.is_empty() && of_b.is_empty() {
            continue;
        }
        let place = format!("{id}/{}/{what}", a.name);
        found.extend(times((&a.name, what), (of_a, of_b), (seed, &place)));
    }
    let equal = a == b;
    // Where nobody skipped anything there is nothing to compare.
    if a.skipped.contains(&true) || b.skipped.contains(&true) {
        found.push(share(Some(&a.name), "skipped", (&a.skipped, &b.skipped), equal));
    }
    found.push(share(Some(&a.name), "lost", (&a.lost, &b.lost), equal));
    found.push(share(Some(&a.name), "late", (&a.late, &b.late), equal));
}

/// Median, 99th percentile, mean and maximum of times.
pub(super) fn times(
    (stream, what): (&str, &str),
    (a, b): (&[i64], &[i64]),
    (seed, place): (u64, &str),
) -> Vec<Prepared> {
    let take = |series: &[i64], side: &str| {
        estimates(series, &mut Random::new(seed, &format!("{place}/{side}")))
    };
    let (of_a, of_b) = (take(a, "a"), take(b, "b"));
    let equal = a == b;
    let figure = |of: &Estimates, series: &[i64], at: usize| Figure {
        value: of.values.map(|values| values[at]),
        count: count(series.len()),
        block: of.block,
    };
    let metric = |name: &str, a: Figure, b: Figure, evidence| Prepared {
        metric: MetricComparison {
            stream: Some(stream.to_owned()),
            metric: format!("{what}-{name}"),
            kind: Kind::Time,
            a,
            b,
            ratio: None,
            difference: None,
            verdict: Verdict::Inconclusive,
            why: String::new(),
        },
        evidence,
    };
    let names: [&str; FIGURES] = ["p50", "p99", "mean"];
    let mut found = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let evidence = match (of_a.figures[at], of_b.figures[at]) {
            _ if equal => Evidence::Equal,
            (Ok(a), Ok(b)) => Evidence::Times(a, b),
            (Err(why), _) | (_, Err(why)) => Evidence::None(why),
        };
        found.push(metric(name, figure(&of_a, a, at), figure(&of_b, b, at), evidence));
    }
    let max = |series: &[i64]| Figure {
        value: series.iter().max().map(|&max| max as f64),
        count: count(series.len()),
        block: None,
    };
    found.push(metric("max", max(a), max(b), Evidence::Shown));
    found
}

/// A share of messages or frames. It takes more than the same of them for two runs to be `equal`:
/// that both lost none of as many says no more than their number.
fn share(stream: Option<&str>, name: &str, (a, b): (&[bool], &[bool]), equal: bool) -> Prepared {
    let of = |series: &[bool]| f64_of(series.iter().filter(|&&is| is).count());
    let figure = |series: &[bool]| Figure {
        value: (!series.is_empty()).then(|| of(series) / f64_of(series.len())),
        count: count(series.len()),
        block: None,
    };
    let (of_a, of_b) = (figure(a), figure(b));
    let evidence = match (of_a.value, of_b.value) {
        (Some(share_a), Some(share_b)) if !equal => match (independent(a), independent(b)) {
            (Ok(n_a), Ok(n_b)) => {
                // None of one run may come in bursts too, as far as the other tells.
                let part = (n_a / f64_of(a.len())).min(n_b / f64_of(b.len()));
                let of = |share, len| Share { share, of: part * f64_of(len) };
                Evidence::Shares(of(share_a, a.len()), of(share_b, b.len()))
            }
            (Err(why), _) | (_, Err(why)) => Evidence::None(why),
        },
        (Some(_), Some(_)) => Evidence::Equal,
        _ => Evidence::None("no values"),
    };
    Prepared {
        metric: MetricComparison {
            stream: stream.map(str::to_owned),
            metric: name.to_owned(),
            kind: Kind::Share,
            a: of_a,
            b: of_b,
            ratio: None,
            difference: None,
            verdict: Verdict::Inconclusive,
            why: String::new(),
        },
        evidence,
    }
}

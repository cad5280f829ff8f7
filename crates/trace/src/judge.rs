// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From limits and measured cases to findings and the verdict.
//!
//! A limit without enough data is not judged, and that is no pass: a percentile needs so many
//! values that one of them can lie beyond it, and frames that nobody observed prove nothing.
//!
//! Not here: how limits are written in a scenario (`timewire-sched`), the numbers (`analyse`).

mod text;

use timewire_base::Span;

use crate::stats::Distribution;
use crate::summary::{
    CaseSummary, Finding, LaunchSummary, Outcome, SlotPromise, StreamSummary, Verdict,
};
use text::{percent, share, time, up};

/// A bound on one measured number.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitInput {
    /// Stable short name, which becomes the finding's.
    pub id: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the case.
    pub case: String,
    /// Name of the load.
    pub load: String,
    /// Name of the stream; not needed for metrics of the segment.
    pub stream: Option<String>,
    /// What is bounded.
    pub metric: Metric,
    /// By what.
    pub bound: Bound,
}

/// The most that a metric may be. The bound itself is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// A time.
    Time(Span),
    /// A share of all, 0 to 1.
    Share(f64),
    /// A multiple of the same metric of the same stream in another case of the same scenario.
    Ratio {
        /// Name of the other case.
        to_case: String,
        /// Name of its load.
        to_load: String,
        /// The most that this metric may be of the other.
        at_most: f64,
    },
}

/// A measured number that can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// `transfer_*`: end-to-end transfer time of a stream.
    Transfer(Statistic),
    /// `slot_wait_*`: transmit side with the wait for the slot.
    SlotWait(Statistic),
    /// `receive_*`: receive processing.
    Receive(Statistic),
    /// `lost`: share of the messages sent that were never received.
    Lost,
    /// `late`: share of the messages sent that were received after the deadline.
    Late,
    /// `outside_slots`: share of the frames of all stations outside their slots.
    OutsideSlots,
    /// `outside_slots_real_time`: the same of the frames of real-time streams.
    OutsideSlotsRealTime,
    /// `outside_rate`: share of the real-time frames beyond the reserved rate of their station.
    OutsideRate,
    /// `launch_refused`: share of the messages sent that were dropped because of their launch time.
    LaunchRefused,
    /// `launch_error_max`: longest time from the instant a frame was launched for to the segment.
    LaunchErrorMax,
}

/// Which figure of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Smallest.
    Min,
    /// Median.
    P50,
    /// 90 %.
    P90,
    /// 99 %.
    P99,
    /// 99.9 %.
    P999,
    /// Largest.
    Max,
    /// Arithmetic mean.
    Mean,
}

impl Metric {
    /// Reads the name in a scenario: `transfer_p99`, `slot_wait_mean`, `lost`, ...; `None` when
    /// there is no such metric.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::all().find(|metric| metric.name() == name)
    }

    /// The name in a scenario.
    pub fn name(self) -> String {
        match self {
            Metric::Transfer(statistic) => format!("transfer_{}", statistic.name()),
            Metric::SlotWait(statistic) => format!("slot_wait_{}", statistic.name()),
            Metric::Receive(statistic) => format!("receive_{}", statistic.name()),
            Metric::Lost => "lost".to_owned(),
            Metric::Late => "late".to_owned(),
            Metric::OutsideSlots => "outside_slots".to_owned(),
            Metric::OutsideSlotsRealTime => "outside_slots_real_time".to_owned(),
            Metric::OutsideRate => "outside_rate".to_owned(),
            Metric::LaunchRefused => "launch_refused".to_owned(),
            Metric::LaunchErrorMax => "launch_error_max".to_owned(),
        }
    }

    /// Every metric.
    pub fn all() -> impl Iterator<Item = Metric> {
        let of_time = [Metric::Transfer, Metric::SlotWait, Metric::Receive];
        let times = of_time.into_iter().flat_map(|metric| Statistic::ALL.map(metric));
        let of_segment = [Metric::OutsideSlots, Metric::OutsideSlotsRealTime, Metric::OutsideRate];
        let of_launch = [Metric::LaunchRefused, Metric::LaunchErrorMax];
        times.chain([Metric::Lost, Metric::Late]).chain(of_segment).chain(of_launch)
    }
}

impl Statistic {
    /// Every statistic.
    pub const ALL: [Statistic; 7] = [
        Statistic::Min,
        Statistic::P50,
        Statistic::P90,
        Statistic::P99,
        Statistic::P999,
        Statistic::Max,
        Statistic::Mean,
    ];

    /// The name used in a scenario and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Statistic::Min => "min",
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
            Statistic::P999 => "p999",
            Statistic::Max => "max",
            Statistic::Mean => "mean",
        }
    }

    /// Fewest values it can be judged by: percentile `q` needs 1 / (1 - q), so that one value can
    /// lie beyond it.
    pub const fn fewest(self) -> u64 {
        match self {
            Statistic::Min | Statistic::Max | Statistic::Mean => 1,
            Statistic::P50 => 2,
            Statistic::P90 => 10,
            Statistic::P99 => 100,
            Statistic::P999 => 1_000,
        }
    }

    fn of_ns(self, distribution: &Distribution) -> f64 {
        let whole_ns = match self {
            Statistic::Min => distribution.min_ns,
            Statistic::P50 => distribution.p50_ns,
            Statistic::P90 => distribution.p90_ns,
            Statistic::P99 => distribution.p99_ns,
            Statistic::P999 => distribution.p999_ns,
            Statistic::Max => distribution.max_ns,
            Statistic::Mean => return distribution.mean_ns,
        };
        exact_f64(whole_ns)
    }
}

/// Judges every limit, in the order given.
pub fn judge(limits: &[LimitInput], cases: &[CaseSummary]) -> Vec<Finding> {
    limits.iter().map(|limit| judge_one(limit, cases)).collect()
}

/// The verdict over all findings: fail when a limit was missed or could not be judged.
pub fn verdict(findings: &[Finding]) -> Verdict {
    let bad = |finding: &Finding| matches!(finding.outcome, Outcome::Missed | Outcome::NotJudged);
    if findings.iter().any(bad) { Verdict::Fail } else { Verdict::Pass }
}

/// One measured number and what it stands on.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    value: Value,
    /// What makes it weaker than it looks; empty when nothing does.
    caveat: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Time {
        ns: f64,
    },
    /// `unknown` more may belong to `part` and to `whole`.
    Share {
        part: u64,
        whole: u64,
        unknown: u64,
    },
}

impl Value {
    fn as_f64(self) -> f64 {
        match self {
            Value::Time { ns } => ns,
            Value::Share { part, whole, .. } => count_f64(part) / count_f64(whole),
        }
    }

    /// As bad as it can be, with everything unknown counted against it.
    fn worst(self) -> f64 {
        match self {
            Value::Time { ns } => ns,
            Value::Share { part, whole, unknown } => {
                count_f64(part.saturating_add(unknown)) / count_f64(whole.saturating_add(unknown))
            }
        }
    }

    /// As low as it can be, with everything unknown counted for it.
    fn best(self) -> f64 {
        match self {
            Value::Time { ns } => ns,
            Value::Share { part, whole, unknown } => {
                count_f64(part) / count_f64(whole.saturating_add(unknown))
            }
        }
    }

    fn text(self) -> String {
        match self {
            Value::Time { ns } => time(ns),
            Value::Share { part, whole, .. } => share(part, whole),
        }
    }
}

/// Why a limit cannot be judged.
struct NotJudged(String);

fn judge_one(limit: &LimitInput, cases: &[CaseSummary]) -> Finding {
    let what = describe(limit.metric, limit.stream.as_deref());
    let place = format!("{}/{}", limit.case, limit.load);
    let at_most = match &limit.bound {
        Bound::Time(span) => time(exact_f64(span.as_ns())),
        Bound::Share(share) => percent(*share),
        Bound::Ratio { to_case, to_load, at_most } => {
            format!("{} of {to_case}/{to_load}", up(*at_most, 4))
        }
    };
    let limit_text = format!("{what} in {}/{place} is at most {at_most}", limit.scenario);
    let finding = |outcome, measured: String, note| Finding {
        id: format!("{}/{}", limit.scenario, limit.id),
        outcome,
        limit: limit_text.clone(),
        measured,
        note,
    };
    let here = match measure(limit, &limit.case, &limit.load, cases) {
        Ok(measured) => measured,
        Err(NotJudged(why)) => return finding(Outcome::NotJudged, "not enough data".into(), why),
    };
    let measured = format!("{what} is {} in {place}", here.value.text());
    match compare(limit, here.value, cases) {
        Ok(Comparison { outcome, beside, caveat }) => {
            let notes: Vec<String> =
                [here.caveat, caveat].into_iter().filter(|note| !note.is_empty()).collect();
            finding(outcome, measured + &beside, notes.join("; "))
        }
        Err(NotJudged(why)) => finding(Outcome::NotJudged, measured, why),
    }
}

struct Comparison {
    outcome: Outcome,
    /// The other side of a ratio, in words.
    beside: String,
    /// What makes the other side weaker than it looks.
    caveat: String,
}

fn compare(
    limit: &LimitInput,
    here: Value,
    cases: &[CaseSummary],
) -> Result<Comparison, NotJudged> {
    let against = |most: f64| Comparison {
        outcome: outcome(here, most, most),
        beside: String::new(),
        caveat: String::new(),
    };
    match (&limit.bound, here) {
        (Bound::Time(span), Value::Time { .. }) => Ok(against(exact_f64(span.as_ns()))),
        (Bound::Share(share), Value::Share { .. }) => Ok(against(*share)),
        (Bound::Ratio { to_case, to_load, at_most }, _) => {
            let there = measure(limit, to_case, to_load, cases)?;
            let base = there.value.as_f64();
            let side = format!("{} in {to_case}/{to_load}", there.value.text());
            let beside = match there.value {
                _ if base > 0.0 => format!(", {} of {side}", up(here.as_f64() / base, 2)),
                Value::Share { .. } => format!(", beside {side}"),
                Value::Time { .. } => {
                    return Err(NotJudged(format!("there is no ratio to {side}")));
                }
            };
            let outcome = outcome(here, at_most * base, at_most * there.value.best());
            Ok(Comparison { outcome, beside, caveat: there.caveat })
        }
        (Bound::Time(_), _) => Err(NotJudged("a share cannot be bounded by a time".to_owned())),
        (Bound::Share(_), _) => Err(NotJudged("a time cannot be bounded by a share".to_owned())),
    }
}

/// Kept only when even the worst that the value can be is within the least that the bound can be.
fn outcome(value: Value, most: f64, surely: f64) -> Outcome {
    if value.worst() <= surely {
        Outcome::Kept
    } else if value.as_f64() <= most {
        Outcome::NotJudged
    } else {
        Outcome::Missed
    }
}

fn describe(metric: Metric, stream: Option<&str>) -> String {
    let of = stream.map_or_else(String::new, |stream| format!(" of {stream}"));
    match metric {
        Metric::Transfer(statistic) => format!("transfer {}{of}", statistic.name()),
        Metric::SlotWait(statistic) => format!("slot wait {}{of}", statistic.name()),
        Metric::Receive(statistic) => format!("receive {}{of}", statistic.name()),
        Metric::Lost => format!("share of messages lost{of}"),
        Metric::Late => format!("share of messages late{of}"),
        Metric::OutsideSlots => "share of frames outside slots".to_owned(),
        Metric::OutsideSlotsRealTime => "share of real-time frames outside slots".to_owned(),
        Metric::OutsideRate => "share of real-time frames outside the reserved rate".to_owned(),
        Metric::LaunchRefused => format!("share of launch times not kept{of}"),
        Metric::LaunchErrorMax => format!("launch error max{of}"),
    }
}

fn measure(
    limit: &LimitInput,
    case: &str,
    load: &str,
    cases: &[CaseSummary],
) -> Result<Measured, NotJudged> {
    let wanted =
        |c: &&CaseSummary| c.scenario == limit.scenario && c.case == case && c.load == load;
    let found = cases
        .iter()
        .find(wanted)
        .ok_or_else(|| NotJudged(format!("{}/{case}/{load} was not measured", limit.scenario)))?;
    match limit.metric {
        Metric::OutsideSlots => {
            let wire = &found.wire;
            frames_outside(found, wire.outside_slots, wire.frames)
        }
        Metric::OutsideSlotsRealTime => {
            let wire = &found.wire;
            frames_outside(found, wire.real_time_outside_slots, wire.real_time_frames)
        }
        Metric::OutsideRate => frames_over(found),
        Metric::LaunchRefused => {
            let stream = stream(limit, found)?;
            launch(stream, found)?;
            let dropped = |s: &StreamSummary| s.launch.as_ref().map_or(0, |l| l.refused + l.missed);
            messages(dropped, stream, found)
        }
        Metric::LaunchErrorMax => {
            let stream = stream(limit, found)?;
            let error = launch(stream, found)?.error.as_ref();
            time_of(Statistic::Max, error, "launch error", stream, found)
        }
        Metric::Transfer(statistic) => {
            let stream = stream(limit, found)?;
            time_of(statistic, stream.transfer.as_ref(), "transfer", stream, found)
        }
        Metric::SlotWait(statistic) => {
            let stream = stream(limit, found)?;
            time_of(statistic, stream.slot_wait.as_ref(), "slot wait", stream, found)
        }
        Metric::Receive(statistic) => {
            let stream = stream(limit, found)?;
            time_of(statistic, stream.receive.as_ref(), "receive", stream, found)
        }
        Metric::Lost => messages(|stream| stream.lost, stream(limit, found)?, found),
        Metric::Late => messages(|stream| stream.late, stream(limit, found)?, found),
    }
}

fn stream<'a>(limit: &LimitInput, case: &'a CaseSummary) -> Result<&'a StreamSummary, NotJudged> {
    let Some(name) = limit.stream.as_deref() else {
        return Err(NotJudged(format!("{} needs the name of a stream", limit.metric.name())));
    };
    let found = case.streams.iter().find(|stream| stream.name == name);
    found.ok_or_else(|| NotJudged(format!("{} has no stream {name}", case.id)))
}

fn time_of(
    statistic: Statistic,
    distribution: Option<&Distribution>,
    what: &str,
    stream: &StreamSummary,
    case: &CaseSummary,
) -> Result<Measured, NotJudged> {
    let count = distribution.map_or(0, |distribution| distribution.count);
    match distribution {
        Some(distribution) if count >= statistic.fewest() => {
            let caveat = if stream.lost == 0 {
                String::new()
            } else {
                let (lost, sent) = (stream.lost, stream.sent);
                format!("{lost} of {sent} messages in {} were lost and have no time", case.id)
            };
            let value = Value::Time { ns: statistic.of_ns(distribution) };
            Ok(Measured { value, caveat })
        }
        _ => Err(NotJudged(format!(
            "{} of {what} of {} in {} needs at least {} values and has {}",
            statistic.name(),
            stream.name,
            case.id,
            statistic.fewest(),
            count,
        ))),
    }
}

fn messages(
    part: impl Fn(&StreamSummary) -> u64,
    stream: &StreamSummary,
    case: &CaseSummary,
) -> Result<Measured, NotJudged> {
    if stream.sent == 0 {
        return Err(NotJudged(format!("no message of {} was sent in {}", stream.name, case.id)));
    }
    // What was not sent could have been lost or late.
    let (part, unknown) = (part(stream), stream.skipped);
    let value = Value::Share { part, whole: stream.sent, unknown };
    let caveat = match unknown {
        0 => String::new(),
        count => {
            format!("{count} messages in {} were skipped: the kernel did not take them", case.id)
        }
    };
    Ok(Measured { value, caveat })
}

fn launch<'a>(
    stream: &'a StreamSummary,
    case: &CaseSummary,
) -> Result<&'a LaunchSummary, NotJudged> {
    let found = stream.launch.as_ref();
    found.ok_or_else(|| NotJudged(format!("{} has no launch times in {}", stream.name, case.id)))
}

fn frames_outside(case: &CaseSummary, part: u64, whole: u64) -> Result<Measured, NotJudged> {
    if let Some(carrier) = case.carrier.as_ref().filter(|c| c.slots == SlotPromise::None) {
        let name = &carrier.name;
        return Err(NotJudged(format!("the carrier {name} of {} has no slots", case.id)));
    }
    if case.slots.is_empty() {
        return Err(NotJudged(format!("{} has no slots", case.id)));
    }
    of_frames(case, part, whole)
}

fn frames_over(case: &CaseSummary) -> Result<Measured, NotJudged> {
    if case.reserved.is_empty() {
        return Err(NotJudged(format!("no rate is reserved in {}", case.id)));
    }
    let part = case.reserved.iter().map(|reserved| reserved.outside_rate).sum();
    of_frames(case, part, case.reserved.iter().map(|reserved| reserved.frames).sum())
}

/// A share of frames on the segment, of which some may not have been observed.
fn of_frames(case: &CaseSummary, part: u64, whole: u64) -> Result<Measured, NotJudged> {
    if whole == 0 {
        return Err(NotJudged(format!("no frame was observed in {}", case.id)));
    }
    let unknown = case.wire.unobserved;
    let caveat = match unknown {
        0 => String::new(),
        _ => format!("up to {} frames in {} were not observed", unknown, case.id),
    };
    Ok(Measured { value: Value::Share { part, whole, unknown }, caveat })
}

#[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are 104 days")]
fn exact_f64(ns: i64) -> f64 {
    ns as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53 are exact")]
fn count_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;

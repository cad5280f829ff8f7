// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From limits and measured cases to findings and the verdict.
//!
//! A limit without enough data is inconclusive, and that is no pass: a percentile needs so many
//! values that one of them can lie beyond it, and frames that nobody observed prove nothing.
//!
//! Not here: how limits are written in a scenario (`timewire-model`), the numbers (`analyse`).

mod text;

use timewire_base::{Span, Verdict};

use crate::summary::{CaseSummary, Finding, LaunchSummary, SlotPromise, StreamSummary};
use text::{percent, share, time, up};
use timewire_stats::{Distribution, Statistics};

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
    /// `latency-*`: latency of a stream.
    Latency(Statistic),
    /// `jitter`: longest latency of a stream less the shortest.
    Jitter,
    /// `slot-wait-*`: transmit side with the wait for the slot.
    SlotWait(Statistic),
    /// `receive-*`: receive processing.
    Receive(Statistic),
    /// `lost`: share of the messages sent that were never received.
    Lost,
    /// `late`: share of the messages sent that were received after the deadline.
    Late,
    /// `outside-slots`: share of the frames of all stations outside their slots.
    OutsideSlots,
    /// `outside-slots-real-time`: the same of the frames of real-time streams.
    OutsideSlotsRealTime,
    /// `outside-rate`: share of the real-time frames beyond the reserved rate of their station.
    OutsideRate,
    /// `launch-refused`: share of the messages sent that were dropped because of their launch time.
    LaunchRefused,
    /// `launch-error-max`: longest time from the instant a frame was launched for to the segment.
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
    /// Reads the name in a scenario: `latency-p99`, `slot-wait-mean`, `lost`, ...; `None` when
    /// there is no such metric.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::all().find(|metric| metric.name() == name)
    }

    /// The name in a scenario.
    pub fn name(self) -> String {
        match self {
            Metric::Latency(statistic) => format!("latency-{}", statistic.name()),
            Metric::SlotWait(statistic) => format!("slot-wait-{}", statistic.name()),
            Metric::Receive(statistic) => format!("receive-{}", statistic.name()),
            Metric::Jitter => "jitter".to_owned(),
            Metric::Lost => "lost".to_owned(),
            Metric::Late => "late".to_owned(),
            Metric::OutsideSlots => "outside-slots".to_owned(),
            Metric::OutsideSlotsRealTime => "outside-slots-real-time".to_owned(),
            Metric::OutsideRate => "outside-rate".to_owned(),
            Metric::LaunchRefused => "launch-refused".to_owned(),
            Metric::LaunchErrorMax => "launch-error-max".to_owned(),
        }
    }

    /// Every metric.
    pub fn all() -> impl Iterator<Item = Metric> {
        let of_time = [Metric::Latency, Metric::SlotWait, Metric::Receive];
        let times = of_time.into_iter().flat_map(|metric| Statistic::ALL.map(metric));
        let of_segment = [Metric::OutsideSlots, Metric::OutsideSlotsRealTime, Metric::OutsideRate];
        let of_launch = [Metric::LaunchRefused, Metric::LaunchErrorMax];
        times.chain([Metric::Jitter, Metric::Lost, Metric::Late]).chain(of_segment).chain(of_launch)
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

    /// Its value. **Units**: nanoseconds.
    pub fn of_ns(self, statistics: &Statistics) -> f64 {
        let whole_ns = match self {
            Statistic::Min => statistics.min_ns,
            Statistic::P50 => statistics.p50_ns,
            Statistic::P90 => statistics.p90_ns,
            Statistic::P99 => statistics.p99_ns,
            Statistic::P999 => statistics.p999_ns,
            Statistic::Max => statistics.max_ns,
            Statistic::Mean => return statistics.mean_ns,
        };
        exact_f64(whole_ns)
    }
}

/// Judges every limit, in the order given.
pub fn judge(limits: &[LimitInput], cases: &[CaseSummary]) -> Vec<Finding> {
    limits.iter().map(|limit| judge_one(limit, cases)).collect()
}

/// The verdict over all findings.
pub fn verdict(findings: &[Finding]) -> Verdict {
    Verdict::over(findings.iter().filter_map(|finding| finding.verdict))
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
    /// The true one is at most `error_ns` from it.
    Time { ns: f64, error_ns: f64 },
    /// `unknown` more may belong to `part` and to `whole`.
    Share { part: u64, whole: u64, unknown: u64 },
}

impl Value {
    fn as_f64(self) -> f64 {
        match self {
            Value::Time { ns, .. } => ns,
            Value::Share { part, whole, .. } => count_f64(part) / count_f64(whole),
        }
    }

    /// As bad as it can be, with everything unknown counted against it.
    fn worst(self) -> f64 {
        match self {
            Value::Time { ns, error_ns } => ns + error_ns,
            Value::Share { part, whole, unknown } => {
                count_f64(part.saturating_add(unknown)) / count_f64(whole.saturating_add(unknown))
            }
        }
    }

    /// As low as it can be, with everything unknown counted for it.
    fn best(self) -> f64 {
        match self {
            Value::Time { ns, error_ns } => (ns - error_ns).max(0.0),
            Value::Share { part, whole, unknown } => {
                count_f64(part) / count_f64(whole.saturating_add(unknown))
            }
        }
    }

    fn text(self) -> String {
        match self {
            Value::Time { ns, error_ns } if error_ns > 0.0 => {
                format!("{} within {}", time(ns), time(error_ns))
            }
            Value::Time { ns, .. } => time(ns),
            Value::Share { part, whole, .. } => share(part, whole),
        }
    }
}

/// Why a limit cannot be judged.
struct Undecided(String);

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
    let finding = |verdict, measured: String, note| Finding {
        id: format!("{}/{}", limit.scenario, limit.id),
        verdict: Some(verdict),
        limit: limit_text.clone(),
        measured,
        note,
    };
    let here = match measure(limit, &limit.case, &limit.load, cases) {
        Ok(measured) => measured,
        Err(Undecided(why)) => {
            return finding(Verdict::Inconclusive, "not enough data".into(), why);
        }
    };
    let measured = format!("{what} is {} in {place}", here.value.text());
    match compare(limit, here.value, cases) {
        Ok(Comparison { verdict, beside, caveat }) => {
            let notes: Vec<String> =
                [here.caveat, caveat].into_iter().filter(|note| !note.is_empty()).collect();
            finding(verdict, measured + &beside, notes.join("; "))
        }
        Err(Undecided(why)) => finding(Verdict::Inconclusive, measured, why),
    }
}

struct Comparison {
    verdict: Verdict,
    /// The other side of a ratio, in words.
    beside: String,
    /// What makes the other side weaker than it looks.
    caveat: String,
}

fn compare(
    limit: &LimitInput,
    here: Value,
    cases: &[CaseSummary],
) -> Result<Comparison, Undecided> {
    let against = |most: f64| Comparison {
        verdict: within(here, Largest { least: most, likely: most, most }),
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
                    return Err(Undecided(format!("there is no ratio to {side}")));
                }
            };
            let largest = Largest {
                least: at_most * there.value.best(),
                likely: at_most * base,
                most: at_most * there.value.worst(),
            };
            let verdict = within(here, largest);
            Ok(Comparison { verdict, beside, caveat: there.caveat })
        }
        (Bound::Time(_), _) => Err(Undecided("a share cannot be bounded by a time".to_owned())),
        (Bound::Share(_), _) => Err(Undecided("a time cannot be bounded by a share".to_owned())),
    }
}

/// The largest good value, where it is a multiple of another that is not known exactly.
struct Largest {
    least: f64,
    likely: f64,
    most: f64,
}

/// Pass only when even the worst that the value can be is within the least that the bound can be.
/// A time fails only when even the best that it can be is beyond.
fn within(value: Value, largest: Largest) -> Verdict {
    let may_be_good = match value {
        Value::Time { .. } => value.best() <= largest.most,
        Value::Share { .. } => value.as_f64() <= largest.likely,
    };
    match may_be_good {
        _ if value.worst() <= largest.least => Verdict::Pass,
        true => Verdict::Inconclusive,
        false => Verdict::Fail,
    }
}

fn describe(metric: Metric, stream: Option<&str>) -> String {
    let of = stream.map_or_else(String::new, |stream| format!(" of {stream}"));
    match metric {
        Metric::Latency(statistic) => format!("latency {}{of}", statistic.name()),
        Metric::SlotWait(statistic) => format!("slot wait {}{of}", statistic.name()),
        Metric::Receive(statistic) => format!("receive {}{of}", statistic.name()),
        Metric::Jitter => format!("jitter{of}"),
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
) -> Result<Measured, Undecided> {
    let wanted =
        |c: &&CaseSummary| c.scenario == limit.scenario && c.case == case && c.load == load;
    let found = cases
        .iter()
        .find(wanted)
        .ok_or_else(|| Undecided(format!("{}/{case}/{load} was not measured", limit.scenario)))?;
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
        Metric::Latency(statistic) => {
            let stream = stream(limit, found)?;
            time_of(statistic, stream.transfer.as_ref(), "latency", stream, found)
        }
        Metric::Jitter => {
            let stream = stream(limit, found)?;
            jitter(stream.transfer.as_ref(), stream, found)
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

fn stream<'a>(limit: &LimitInput, case: &'a CaseSummary) -> Result<&'a StreamSummary, Undecided> {
    let Some(name) = limit.stream.as_deref() else {
        return Err(Undecided(format!("{} needs the name of a stream", limit.metric.name())));
    };
    let found = case.streams.iter().find(|stream| stream.name == name);
    found.ok_or_else(|| Undecided(format!("{} has no stream {name}", case.id)))
}

fn time_of(
    statistic: Statistic,
    distribution: Option<&Distribution>,
    what: &str,
    stream: &StreamSummary,
    case: &CaseSummary,
) -> Result<Measured, Undecided> {
    let count = distribution.map_or(0, |distribution| distribution.count);
    match distribution {
        Some(distribution) if count >= statistic.fewest() => {
            let caveat = if stream.lost == 0 {
                String::new()
            } else {
                let (lost, sent) = (stream.lost, stream.sent);
                format!("{lost} of {sent} messages in {} were lost and have no time", case.id)
            };
            // The receive side alone is told by one clock.
            let clocks = case.clock_bound_ns.filter(|_| what != "receive").unwrap_or(0);
            let value =
                Value::Time { ns: statistic.of_ns(distribution), error_ns: exact_f64(clocks) };
            Ok(Measured { value, caveat })
        }
        _ => Err(Undecided(format!(
            "{} of {what} of {} in {} needs at least {} values and has {}",
            statistic.name(),
            stream.name,
            case.id,
            statistic.fewest(),
            count,
        ))),
    }
}

/// The longest latency less the shortest.
fn jitter(
    latency: Option<&Distribution>,
    stream: &StreamSummary,
    case: &CaseSummary,
) -> Result<Measured, Undecided> {
    let of = |statistic| time_of(statistic, latency, "latency", stream, case);
    let (least, most) = (of(Statistic::Min)?, of(Statistic::Max)?);
    let (Value::Time { ns: least, .. }, Value::Time { ns: most, error_ns }) =
        (least.value, most.value)
    else {
        return Err(Undecided("a latency is a time".to_owned()));
    };
    // Clocks can move apart from the one to the other.
    let value = Value::Time { ns: most - least, error_ns: 2.0 * error_ns };
    Ok(Measured { value, caveat: of(Statistic::Max)?.caveat })
}

fn messages(
    part: impl Fn(&StreamSummary) -> u64,
    stream: &StreamSummary,
    case: &CaseSummary,
) -> Result<Measured, Undecided> {
    if stream.sent == 0 {
        return Err(Undecided(format!("no message of {} was sent in {}", stream.name, case.id)));
    }
    // What was not sent could have been lost or late.
    let (part, unknown) = (part(stream), stream.skipped);
    let value = Value::Share { part, whole: stream.sent, unknown };
    let caveat = match unknown {
        0 => String::new(),
        count => {
            format!(
                "{count} messages in {} were skipped: they were due, and the talker woke up too \
                 late or the kernel did not take them",
                case.id
            )
        }
    };
    Ok(Measured { value, caveat })
}

fn launch<'a>(
    stream: &'a StreamSummary,
    case: &CaseSummary,
) -> Result<&'a LaunchSummary, Undecided> {
    let found = stream.launch.as_ref();
    found.ok_or_else(|| Undecided(format!("{} has no launch times in {}", stream.name, case.id)))
}

fn frames_outside(case: &CaseSummary, part: u64, whole: u64) -> Result<Measured, Undecided> {
    if let Some(backend) = case.backend.as_ref().filter(|c| c.slots == SlotPromise::None) {
        let name = &backend.name;
        return Err(Undecided(format!("the backend {name} of {} has no slots", case.id)));
    }
    if case.slots.is_empty() {
        return Err(Undecided(format!("{} has no slots", case.id)));
    }
    of_frames(case, part, whole)
}

fn frames_over(case: &CaseSummary) -> Result<Measured, Undecided> {
    if case.reserved.is_empty() {
        return Err(Undecided(format!("no rate is reserved in {}", case.id)));
    }
    let part = case.reserved.iter().map(|reserved| reserved.outside_rate).sum();
    of_frames(case, part, case.reserved.iter().map(|reserved| reserved.frames).sum())
}

/// A share of frames on the segment, of which some may not have been observed.
fn of_frames(case: &CaseSummary, part: u64, whole: u64) -> Result<Measured, Undecided> {
    if whole == 0 {
        return Err(Undecided(format!("no frame was observed in {}", case.id)));
    }
    let unknown = case.wire.unobserved;
    let mut caveats = Vec::new();
    if unknown > 0 {
        caveats.push(format!("up to {} frames in {} were not observed", unknown, case.id));
    }
    if let Some(bound) = case.clock_bound_ns.filter(|bound| *bound > 0) {
        caveats.push(format!(
            "the observer's clock and those of the stations are within {}",
            time(exact_f64(bound))
        ));
    }
    let caveat = caveats.join("; ");
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

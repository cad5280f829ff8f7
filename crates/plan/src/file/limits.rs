// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file asks of streams that have no place in the schedule, held against their bounds.
//!
//! Not here: the bounds (`rest`), what a simulation makes of the limits (`timewire-sim`).

use serde::Serialize;
use timewire_base::Span;
use timewire_sched::scenario::AtMost;
use timewire_sched::scenario::network::{NetLimit, NetMetric, NetStream, NetworkFile};

use super::{RestBound, Unbounded};

/// What is known of a limit before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitVerdict {
    /// The bound is within it.
    Pass,
    /// There is no bound, or one above it: it may be kept all the same.
    Inconclusive,
    /// In the long run frames do not get through.
    Fail,
}

impl LimitVerdict {
    /// The word in output.
    pub fn word(self) -> &'static str {
        match self {
            LimitVerdict::Pass => "pass",
            LimitVerdict::Inconclusive => "inconclusive",
            LimitVerdict::Fail => "fail",
        }
    }
}

/// A limit of a stream without a place, and its bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JudgedLimit {
    /// Its name in the file.
    pub id: String,
    /// What it limits.
    pub metric: &'static str,
    /// The stream.
    pub stream: String,
    /// The largest good value, as in the file.
    pub at_most: String,
    /// What is never exceeded, with what software at both ends and clocks add.
    #[serde(rename = "bound_ns")]
    pub bound: Option<Span>,
    /// What follows.
    pub verdict: LimitVerdict,
    /// Why it does not pass.
    pub why: Option<String>,
}

impl JudgedLimit {
    /// A line about it.
    pub fn text(&self) -> String {
        let JudgedLimit { id, metric, stream, at_most, .. } = self;
        let verdict = self.verdict.word();
        let bound = self.bound.map(|bound| format!(", and never exceeds {bound}"));
        let why = self.why.as_ref().map(|why| format!(": {why}"));
        format!(
            "{verdict:<12} {id}: {metric} of {stream} is to be at most {at_most}{}{}",
            bound.unwrap_or_default(),
            why.unwrap_or_default()
        )
    }
}

/// The limits of a file about streams without a place. A stream without a limit asks for nothing.
/// Percentiles, means and shares are there only where a bound, or that there is none, settles them:
/// they say nothing of a single message.
pub fn judged_limits(
    file: &NetworkFile,
    bounds: Result<&[RestBound], &Unbounded>,
) -> Vec<JudgedLimit> {
    let judged = file.limits.iter().filter_map(|limit| {
        let index = file.streams.iter().position(|stream| stream.name == limit.stream)?;
        let stream = &file.streams[index];
        if stream.place.is_some() {
            return None;
        }
        let own = match bounds {
            Ok(bounds) => bounds.iter().find(|bound| bound.stream == index)?.bound.as_ref(),
            Err(why) => Err(why),
        };
        judge(file, limit, stream, own.copied())
    });
    judged.collect()
}

fn judge(
    file: &NetworkFile,
    limit: &NetLimit,
    stream: &NetStream,
    bound: Result<(Span, Span), &Unbounded>,
) -> Option<JudgedLimit> {
    let told = |bound, verdict, why| JudgedLimit {
        id: limit.id.to_string(),
        metric: limit.metric.word(),
        stream: stream.name.to_string(),
        at_most: limit.at_most.to_string(),
        bound,
        verdict,
        why,
    };
    let (latency, jitter) = match bound {
        Ok(bound) => bound,
        Err(why) => {
            let verdict = match why.cause {
                "overload" | "shut" | "no_window" => LimitVerdict::Fail,
                _ => LimitVerdict::Inconclusive,
            };
            let counts = match limit.metric {
                NetMetric::OutsideWindows => false,
                metric => is_of_each(metric) || verdict == LimitVerdict::Fail,
            };
            return counts.then(|| told(None, verdict, Some(format!("no bound: {why}"))));
        }
    };
    let AtMost::Time(most) = limit.at_most else { return None };
    let settled = |judged: JudgedLimit| {
        let counts = is_of_each(limit.metric) || judged.verdict == LimitVerdict::Pass;
        counts.then_some(judged)
    };
    let Some((least, longest)) = at_ends(file, stream) else {
        let why = "software at one of its ends can take any time".to_owned();
        return settled(told(None, LimitVerdict::Inconclusive, Some(why)));
    };
    let sync = file.sync_error + file.sync_error;
    let never_above = match limit.metric {
        NetMetric::Jitter => jitter.checked_add(longest - least + sync),
        _ => latency.checked_add(longest + sync),
    };
    settled(match never_above {
        Some(bound) if bound <= most => told(Some(bound), LimitVerdict::Pass, None),
        bound => {
            let why = "the bound is above the limit, which may be kept all the same".to_owned();
            told(bound, LimitVerdict::Inconclusive, Some(why))
        }
    })
}

/// Whether every message is to keep it.
fn is_of_each(metric: NetMetric) -> bool {
    matches!(metric, NetMetric::LatencyMax | NetMetric::Jitter)
}

/// What software at the talker and at a listener takes, at least and at most, together.
fn at_ends(file: &NetworkFile, stream: &NetStream) -> Option<(Span, Span)> {
    let stations = || file.stations.iter();
    let talker = stations().find(|station| station.name == stream.from);
    let send = talker.map_or((Span::ZERO, Some(Span::ZERO)), |station| station.send.range());
    let listeners = stations().filter(|station| stream.to.contains(&station.name));
    let ranges: Vec<_> = listeners.map(|station| station.receive.range()).collect();
    let least = ranges.iter().map(|range| range.0).min().unwrap_or(Span::ZERO);
    let most = ranges.iter().map(|range| range.1).collect::<Option<Vec<_>>>()?;
    let most = most.into_iter().max().unwrap_or(Span::ZERO);
    Some((send.0.checked_add(least)?, send.1?.checked_add(most)?))
}

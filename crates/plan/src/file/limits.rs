// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file asks of streams that are not scheduled, held against their bounds.

use serde::Serialize;
use timewire_base::{Span, Verdict};
use timewire_model::scenario::AtMost;
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::{NetStream, NetworkFile, StreamLimit};

use super::{RestBound, Unbounded};

/// A limit of a stream that is not scheduled, and its bound.
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
    /// What is known before anything is sent: pass when the bound is within the limit, fail when
    /// frames do not get through in the long run.
    pub verdict: Verdict,
    /// Why it does not pass.
    pub why: Option<String>,
}

impl JudgedLimit {
    /// A line about it.
    pub fn text(&self) -> String {
        let JudgedLimit { id, metric, stream, at_most, .. } = self;
        let verdict = self.verdict.label();
        let bound = self.bound.map(|bound| format!(", and never exceeds {bound}"));
        let why = self.why.as_ref().map(|why| format!(": {why}"));
        format!(
            "{verdict} {id}: {metric} of {stream} is to be at most {at_most}{}{}",
            bound.unwrap_or_default(),
            why.unwrap_or_default()
        )
    }
}

/// The limits of a file about streams that are not scheduled. A stream without a limit asks for
/// nothing. Percentiles, means and shares are there only where a bound, or that there is none,
/// settles them: they say nothing of a single message.
pub fn judged_limits(
    file: &NetworkFile,
    bounds: Result<&[RestBound], &Unbounded>,
) -> Vec<JudgedLimit> {
    let judged = file.all_limits().into_iter().filter_map(|limit| {
        let index = file.streams.iter().position(|stream| stream.name == limit.stream)?;
        let stream = &file.streams[index];
        if stream.scheduled {
            return None;
        }
        let own = match bounds {
            Ok(bounds) => bounds.iter().find(|bound| bound.stream == index)?.bound.as_ref(),
            Err(why) => Err(why),
        };
        judge(file, &limit, stream, own.copied())
    });
    judged.collect()
}

fn judge(
    file: &NetworkFile,
    limit: &StreamLimit,
    stream: &NetStream,
    bound: Result<(Span, Span), &Unbounded>,
) -> Option<JudgedLimit> {
    let told = |bound, verdict, why| JudgedLimit {
        id: limit.id.clone(),
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
                "overload" | "shut" | "no_window" => Verdict::Fail,
                _ => Verdict::Inconclusive,
            };
            let counts = match limit.metric {
                Metric::OutsideWindows => false,
                metric => is_of_each(metric) || verdict == Verdict::Fail,
            };
            return counts.then(|| told(None, verdict, Some(format!("no bound: {why}"))));
        }
    };
    let AtMost::Time(most) = limit.at_most else { return None };
    let settled = |judged: JudgedLimit| {
        let counts = is_of_each(limit.metric) || judged.verdict == Verdict::Pass;
        counts.then_some(judged)
    };
    let Some((least, longest)) = at_ends(file, stream) else {
        let why = "software at one of its ends can take any time".to_owned();
        return settled(told(None, Verdict::Inconclusive, Some(why)));
    };
    let sync = file.sync_error + file.sync_error;
    let never_above = match limit.metric {
        Metric::Jitter => jitter.checked_add(longest - least + sync),
        _ => latency.checked_add(longest + sync),
    };
    settled(match never_above {
        Some(bound) if bound <= most => told(Some(bound), Verdict::Pass, None),
        bound => {
            let why = "the bound is above the limit, which may hold all the same".to_owned();
            told(bound, Verdict::Inconclusive, Some(why))
        }
    })
}

/// Whether every message is to keep it.
fn is_of_each(metric: Metric) -> bool {
    matches!(metric, Metric::LatencyMax | Metric::Jitter)
}

/// What software at the talker, or at that of the start of its chain, and at a listener takes, at
/// least and at most, together.
fn at_ends(file: &NetworkFile, stream: &NetStream) -> Option<(Span, Span)> {
    let stations = || file.stations.iter();
    let talker = &file.counts_from(stream).talker;
    let talker = stations().find(|station| station.name == *talker);
    let send = talker.map_or((Span::ZERO, Some(Span::ZERO)), |station| station.send.range());
    let listeners = stations().filter(|station| stream.listeners.contains(&station.name));
    let ranges: Vec<_> = listeners.map(|station| station.receive.range()).collect();
    let least = ranges.iter().map(|range| range.0).min().unwrap_or(Span::ZERO);
    let most = ranges.iter().map(|range| range.1).collect::<Option<Vec<_>>>()?;
    let most = most.into_iter().max().unwrap_or(Span::ZERO);
    Some((send.0.checked_add(least)?, send.1?.checked_add(most)?))
}

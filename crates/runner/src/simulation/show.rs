// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a simulation says: for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::rundir::{Judged, SIMULATION_SCHEMA};
use serde::Serialize;
use timewire_base::{Span, Verdict};
use timewire_model::scenario::AtMost;
use timewire_model::scenario::Metric;
use timewire_model::scenario::network::{NetworkFile, StreamLimit};
use timewire_plan::file::{GatedClass, gated_classes, gated_text};
use timewire_sim::net::{LostBy, SimOutcome, StreamResult};

use super::ENDED_ON_REQUEST;
use super::runs::Cut;

/// What is printed as JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    name: String,
    seed: u64,
    runs: u32,
    duration_ns: i64,
    /// Latencies of messages released before are not counted, all else is.
    warm_up_ns: i64,
    /// Set when it was ended on request: what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_early: Option<Wanted>,
    /// With `--worst`: how many phases were tried, and which were the worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    streams: Vec<Stream>,
    limits: Vec<Judged>,
    events: u64,
    hops: u64,
    collisions: u64,
    violations: Vec<String>,
    /// What of replayed captures was not read. Limits are inconclusive then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inconclusive: Vec<String>,
    /// What classes with credit carry behind gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gated_credit: Vec<GatedClass>,
}

/// What was asked for, where it was ended on request before.
#[derive(Debug, Serialize)]
pub struct Wanted {
    /// The number of runs; with `--worst`, of trials.
    pub runs: u32,
    pub duration_ns: i64,
}

/// The worst phases that a search found.
#[derive(Debug, Serialize)]
pub struct Worst {
    /// Trials of the search.
    pub trials: u32,
    /// Offset of each cyclic stream in its period.
    pub offsets_ns: BTreeMap<String, i64>,
}

#[derive(Debug, Serialize)]
struct Stream {
    name: String,
    sent: u64,
    delivered: u64,
    in_flight: u64,
    lost: BTreeMap<&'static str, u64>,
    outside_windows: u64,
    timeouts: u64,
    latency: Option<Latency>,
    /// Where several listen: each of them. The stream is then all of them together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listeners: Vec<Stream>,
}

#[derive(Debug, Serialize)]
struct Latency {
    count: u64,
    min_ps: u64,
    mean_ps: u64,
    p50_ps: u64,
    p99_ps: u64,
    max_ps: u64,
    jitter_ps: u64,
}

impl Report {
    /// Of the outcome of so many runs, the first with this seed.
    pub fn of(file: &NetworkFile, seed: u64, runs: u32, outcome: &SimOutcome) -> Report {
        let named = file.streams.iter().enumerate();
        let streams = named.map(|(place, stream)| {
            let mut row = Stream::of(stream.name.as_str(), &outcome.streams[place]);
            let several = outcome.listeners.get(&place).into_iter().flatten();
            let each = stream.listeners.all().iter().zip(several);
            row.listeners = each.map(|(name, result)| Stream::of(name.as_str(), result)).collect();
            row
        });
        let streams: Vec<Stream> = streams.collect();
        let all_limits = file.all_limits();
        let limits = all_limits.iter().map(|limit| {
            let place = file.streams.iter().position(|stream| stream.name == limit.stream);
            // A transmission outside its window is of no listener alone.
            let all = || place.and_then(|place| outcome.streams.get(place));
            match limit.metric {
                Metric::OutsideWindows => judge(limit, all().map_or(&[], std::slice::from_ref)),
                _ => judge(limit, place.map_or(&[], |place| results(outcome, place))),
            }
        });
        Report {
            schema: SIMULATION_SCHEMA,
            name: file.name.to_string(),
            seed,
            runs,
            duration_ns: file.duration.as_ns(),
            warm_up_ns: file.warm_up.as_ns(),
            ended_early: None,
            worst: None,
            limits: limits.collect(),
            streams,
            events: outcome.events,
            hops: outcome.hops,
            collisions: outcome.collisions,
            gated_credit: gated_classes(file),
            inconclusive: Vec::new(),
            violations: outcome
                .violations
                .iter()
                .map(|violation| format!("{}: {}", violation.at, violation.what))
                .collect(),
        }
    }

    /// It was ended on request: what it is of, and what was wanted.
    pub fn cut(&mut self, cut: &Cut, wanted: u32) {
        self.ended_early = Some(Wanted { runs: wanted, duration_ns: self.duration_ns });
        self.runs = u32::try_from(cut.runs.len()).unwrap_or(u32::MAX);
        if let Some(at) = cut.at {
            self.duration_ns = at.as_ns();
        }
    }

    /// The search was ended on request before so many trials.
    pub fn cut_search(&mut self, wanted: u32) {
        self.ended_early = Some(Wanted { runs: wanted, duration_ns: self.duration_ns });
    }

    /// Whether it was ended on request.
    pub fn is_cut(&self) -> bool {
        self.ended_early.is_some()
    }

    /// What it is of, where it was ended.
    fn cut_line(&self) -> Option<String> {
        let wanted = self.ended_early.as_ref()?;
        let (whole, part) = (Span::from_ns(wanted.duration_ns), Span::from_ns(self.duration_ns));
        let what = match &self.worst {
            Some(worst) => format!("{} of {} phases were tried", worst.trials, wanted.runs),
            None if part < whole => {
                format!("the first of {} runs was at {part} of {whole}", wanted.runs)
            }
            None => format!("{} of {} runs had ended", self.runs, wanted.runs),
        };
        Some(format!("{ENDED_ON_REQUEST}: {what}; limits are judged by that alone\n"))
    }

    /// What of replayed captures was not read: the traffic was another, perhaps.
    pub fn not_read(&mut self, what: Vec<String>) {
        self.inconclusive = what;
    }

    /// Whether all limits hold, for traffic that was read whole, and the simulator made no mistake.
    pub fn is_good(&self) -> bool {
        let is_known = self.inconclusive.is_empty() || self.limits.is_empty();
        is_known
            && self.violations.is_empty()
            && self.limits.iter().all(|limit| limit.verdict == Verdict::Pass)
    }

    /// In one line, how many limits pass; then those that do not.
    pub fn limits_in_short(&self) -> String {
        let bad = self.limits.iter().filter(|it| it.verdict != Verdict::Pass);
        let bad: Vec<String> = bad.map(|it| format!("{}\n", it.text())).collect();
        let all = self.limits.len();
        format!("{} of {all} limits pass\n{}", all - bad.len(), bad.concat())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, &Stream)> = Vec::new();
        for stream in &self.streams {
            rows.push((stream.name.clone(), stream));
            let each = stream.listeners.iter();
            rows.extend(each.map(|to| (format!("{}>{}", stream.name, to.name), to)));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(6);
        let mut text = format!(
            "{:<width$} {:>9} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8} {:>8}\n",
            "stream", "messages", "min", "p50", "p99", "max", "jitter", "lost", "outside"
        );
        for (name, stream) in &rows {
            text += &stream.row(name, width);
        }
        for (name, stream) in rows.iter().filter(|(_, s)| !s.lost.is_empty() || s.timeouts > 0) {
            let mut reasons: Vec<String> =
                stream.lost.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            if stream.timeouts > 0 {
                reasons.push(format!("{} requests timed out", stream.timeouts));
            }
            let _ = writeln!(text, "{name}: {}", reasons.join(", "));
        }
        text.push_str(&gated_text(&self.gated_credit));
        if let Some(worst) = &self.worst {
            let _ = writeln!(text, "worst of {} phases, by offset:", worst.trials);
            for (name, ns) in &worst.offsets_ns {
                let _ = writeln!(text, "  {name}: {}", Span::from_ns(*ns));
            }
        }
        let collisions = match self.collisions {
            0 => String::new(),
            count => format!(", {count} collisions"),
        };
        let _ = writeln!(
            text,
            "{} of seed {}, {}: {} events, {} transmissions{collisions}",
            if self.runs == 1 { "one run".to_owned() } else { format!("{} runs", self.runs) },
            self.seed,
            Span::from_ns(self.duration_ns),
            self.events,
            self.hops
        );
        for limit in &self.limits {
            let _ = writeln!(text, "{}", limit.text());
        }
        for what in self.inconclusive.iter().filter(|_| !self.limits.is_empty()) {
            let _ = writeln!(text, "INCONCLUSIVE: {what}; limits are judged without it");
        }
        text += &self.cut_line().unwrap_or_default();
        for violation in &self.violations {
            let _ = writeln!(text, "MISTAKE of the simulator at {violation}");
        }
        text
    }
}

impl Stream {
    fn of(name: &str, result: &StreamResult) -> Stream {
        let lost = LostBy::ALL.iter().zip(result.lost).filter(|(_, count)| *count > 0);
        Stream {
            name: name.to_owned(),
            sent: result.sent,
            delivered: result.delivered,
            in_flight: result.in_flight,
            lost: lost.map(|(by, count)| (by.name(), count)).collect(),
            outside_windows: result.outside_windows,
            timeouts: result.timeouts,
            latency: Latency::of(result),
            listeners: Vec::new(),
        }
    }

    fn row(&self, name: &str, width: usize) -> String {
        let times = match &self.latency {
            Some(it) => {
                [it.min_ps, it.p50_ps, it.p99_ps, it.max_ps, it.jitter_ps].map(microseconds)
            }
            None => [const { String::new() }; 5].map(|_| "-".to_owned()),
        };
        let [min, p50, p99, max, jitter] = times;
        let lost: u64 = self.lost.values().sum();
        format!(
            "{name:<width$} {:>9} {min:>11} {p50:>11} {p99:>11} {max:>11} {jitter:>11} {lost:>8} \
             {:>8}\n",
            self.sent, self.outside_windows
        )
    }
}

impl Latency {
    fn of(result: &StreamResult) -> Option<Latency> {
        let latencies = &result.latencies;
        let (min_ps, max_ps) = (latencies.min_ps()?, latencies.max_ps()?);
        Some(Latency {
            count: latencies.count(),
            min_ps,
            mean_ps: latencies.mean_ps()?,
            p50_ps: latencies.at_ppm(500_000)?,
            p99_ps: latencies.at_ppm(990_000)?,
            max_ps,
            jitter_ps: max_ps - min_ps,
        })
    }
}

/// What became of a stream at each of its listeners.
pub fn results(outcome: &SimOutcome, stream: usize) -> &[StreamResult] {
    match outcome.listeners.get(&stream) {
        Some(several) => several,
        None => outcome.streams.get(stream).map_or(&[], std::slice::from_ref),
    }
}

/// Of several listeners, the worst is judged. Windows are of the stream as a whole.
fn judge(limit: &StreamLimit, results: &[StreamResult]) -> Judged {
    let each = results.iter().map(|result| measure(limit, result));
    // What was not measured is worst, then what fails, then what is most.
    let worst = each.max_by_key(|it| (it.text.is_none(), it.is_above, it.value));
    let within = worst.as_ref().and_then(|worst| worst.text.as_ref().map(|_| !worst.is_above));
    let measured = worst.and_then(|worst| worst.text);
    Judged {
        id: limit.id.to_string(),
        metric: limit.metric.word().to_owned(),
        stream: limit.stream.to_string(),
        at_most: limit.at_most.to_string(),
        measured,
        verdict: within.into(),
    }
}

/// What a limit is about, at one listener.
struct Measured {
    text: Option<String>,
    is_above: bool,
    value: u64,
}

fn measure(limit: &StreamLimit, result: &StreamResult) -> Measured {
    match &limit.at_most {
        AtMost::Time(bound) => {
            let time = Latency::of(result).map(|latency| match limit.metric {
                Metric::LatencyMax => latency.max_ps,
                Metric::LatencyP99 => latency.p99_ps,
                Metric::LatencyMean => latency.mean_ps,
                _ => latency.jitter_ps,
            });
            let bound = u64::try_from(bound.as_ns()).unwrap_or(0).saturating_mul(1_000);
            let is_above = time.is_some_and(|time| time > bound);
            Measured { text: time.map(microseconds), is_above, value: time.unwrap_or(0) }
        }
        AtMost::Share(share) => {
            let value = match limit.metric {
                Metric::Lost => result.lost_total(),
                _ => result.outside_windows,
            };
            // Of nothing there is no share.
            let text = (result.sent > 0).then(|| format!("{value} of {}", result.sent));
            let is_above = text.is_some() && !share.allows(value, result.sent);
            Measured { text, is_above, value }
        }
        AtMost::Ratio(_) => Measured { text: None, is_above: false, value: 0 },
    }
}

/// With the nanoseconds, rounded up: a limit that is exceeded by less fails.
fn microseconds(ps: u64) -> String {
    let ns = ps.div_ceil(1_000);
    format!("{}.{:03}us", ns / 1_000, ns % 1_000)
}

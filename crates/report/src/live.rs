// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace shows while it runs: losses first, how often each hook was reached, how long each
//! stage took in the last moment and since the start, and the slowest journey with its reason. A
//! table that can be redrawn, or one line where nothing can be.
//!
//! Not here: the terminal (`timewire-cli`), where events come from (`timewire-ctl`).

use std::collections::BTreeMap;

use timewire_base::Span;
use timewire_trace::capture::HookCount;
use timewire_trace::journey::worst::Judged;
use timewire_trace::journey::{Journey, Observer, Outcome, Parts, Status};
use timewire_trace::stream::histogram::{HistogramSummary, LogHistogram};

use crate::journeys::{aligned, plain};
use crate::text::{count_f64, put, us_exact};

/// The room that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRoom {
    /// Columns of the terminal.
    pub columns: usize,
    /// Its lines; `None` for no end.
    pub lines: Option<usize>,
}

/// A trace at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveSnapshot {
    /// Since the start.
    pub elapsed: Span,
    /// Since the snapshot before: what "last" is of.
    pub interval: Span,
    /// Each hook: since the start, and since the snapshot before.
    pub hooks: Vec<(String, HookCount, HookCount)>,
    /// Journeys since the start, and since the snapshot before.
    pub journeys: (u64, u64),
    /// Of those since the start, what is not complete or was dropped.
    pub lossy: u64,
    /// As [`LiveSnapshot::lossy`].
    pub ambiguous: u64,
    /// As [`LiveSnapshot::lossy`].
    pub dropped: u64,
    /// Each stage in the order of a packet's way, then from end to end: in the last moment, and
    /// since the start; of complete journeys that were received.
    pub stages: Vec<(String, HistogramSummary, HistogramSummary)>,
    /// The reason of the slowest journey since the start.
    pub slowest: Option<String>,
}

/// The whole view, ending with a line feed.
///
/// **Units**: all times are microseconds.
pub fn view(now: &LiveSnapshot, room: LiveRoom) -> String {
    let mut out = losses(now);
    put!(&mut out, "{}\n\n", totals(now));
    let seconds = seconds(now.interval);
    let mut hooks = vec![["hook", "seen/s", "written", "lost", "lost now"].map(str::to_owned)];
    for (name, total, last) in &now.hooks {
        let rate = count_f64(last.seen) / seconds;
        let lost = [total.lost.to_string(), last.lost.to_string()];
        let [all, latest] = lost;
        hooks.push([plain(name), format!("{rate:.0}"), total.written.to_string(), all, latest]);
    }
    let mut stages = vec![
        ["stage", "last n", "p50", "p99", "max", "all n", "p50", "p99", "max"].map(str::to_owned),
    ];
    for (name, last, total) in &now.stages {
        let [a, b, c, d] = figures(last);
        let [e, f, g, h] = figures(total);
        stages.push([plain(name), a, b, c, d, e, f, g, h]);
    }
    out += &aligned(&stages);
    out.push('\n');
    if let Some(slowest) = &now.slowest {
        put!(&mut out, "slowest: {}\n\n", plain(slowest));
    }
    out += &aligned(&hooks);
    cut(&out, room)
}

fn figures(times: &HistogramSummary) -> [String; 4] {
    match times.count {
        0 => ["0".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()],
        count => [
            count.to_string(),
            us_exact(times.p50_ns),
            us_exact(times.p99_ns),
            us_exact(times.max_ns),
        ],
    }
}

/// One line for where nothing can be redrawn; ending with a line feed, losses first.
pub fn line(now: &LiveSnapshot) -> String {
    let mut out = format!("{:.1}s ", seconds(now.elapsed));
    let lost: u64 = now.hooks.iter().map(|(_, _, last)| last.lost).sum();
    if lost > 0 {
        put!(&mut out, "{lost} events lost, ");
    }
    let rate = count_f64(now.journeys.1) / seconds(now.interval);
    put!(&mut out, "{} journeys, {rate:.0}/s", now.journeys.1);
    let end = now.stages.last().filter(|(_, last, _)| last.count > 0);
    if let Some((name, last, _)) = end {
        let [_, p50, p99, max] = figures(last);
        put!(&mut out, ", {} p50 {p50}us p99 {p99}us max {max}us", plain(name));
    }
    let stages = now.stages.split_last().map_or(&[][..], |(_, stages)| stages);
    let largest = stages.iter().filter(|(_, last, _)| last.count > 0).max_by_key(|it| it.1.p99_ns);
    if let Some((name, last, _)) = largest {
        put!(&mut out, ", most of it {} p99 {}us", plain(name), us_exact(last.p99_ns));
    }
    out.push('\n');
    out
}

fn losses(now: &LiveSnapshot) -> String {
    let lost = now.hooks.iter().filter(|(_, total, _)| total.lost > 0);
    let lines: Vec<String> = lost
        .map(|(name, total, _)| {
            let all = total.lost.saturating_add(total.written);
            format!("LOST {} of {all} events of {}\n", total.lost, plain(name))
        })
        .collect();
    if lines.is_empty() { "no event was lost\n".to_owned() } else { lines.concat() }
}

fn totals(now: &LiveSnapshot) -> String {
    let mut out = format!("{:.1}s: {} journeys", seconds(now.elapsed), now.journeys.0);
    let others = [(now.lossy, "lossy"), (now.ambiguous, "ambiguous"), (now.dropped, "dropped")];
    for (count, word) in others.into_iter().filter(|(count, _)| *count > 0) {
        put!(&mut out, ", {count} {word}");
    }
    let rate = count_f64(now.journeys.1) / seconds(now.interval);
    put!(&mut out, "; last {:.1}s: {}, {rate:.0}/s", seconds(now.interval), now.journeys.1);
    out
}

/// At least a nanosecond, so that rates are finite.
fn seconds(span: Span) -> f64 {
    crate::text::as_f64(span.as_ns().max(1)) / 1e9
}

/// What a terminal does not wrap nor scroll; the last line says when something is left out.
fn cut(text: &str, room: LiveRoom) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let most = room.lines.unwrap_or(usize::MAX).max(2);
    let short = |line: &&str| line.chars().take(room.columns).collect::<String>() + "\n";
    if lines.len() <= most {
        return lines.iter().map(short).collect();
    }
    let kept: String = lines[..most - 1].iter().map(short).collect();
    let left_out = format!("and {} lines more", lines.len() - most + 1);
    kept + &short(&left_out.as_str())
}

/// Makes snapshots of what passes; an [`Observer`] of the analysis. Memory is that of a histogram
/// for each stage.
#[derive(Clone, Debug, Default)]
pub struct LiveMeter {
    stages: BTreeMap<Parts, (LogHistogram, LogHistogram)>,
    whole: (LogHistogram, LogHistogram),
    journeys: (u64, u64),
    lossy: u64,
    ambiguous: u64,
    dropped: u64,
    hooks: BTreeMap<String, HookCount>,
    before: Span,
}

impl Observer for LiveMeter {
    fn journey(&mut self, journey: &Journey) {
        self.journeys.0 += 1;
        self.journeys.1 += 1;
        match journey.status {
            Status::Complete => {}
            Status::Lossy => self.lossy += 1,
            Status::Ambiguous => self.ambiguous += 1,
        }
        if matches!(journey.outcome, Outcome::Dropped { .. }) {
            self.dropped += 1;
        }
        if journey.status != Status::Complete || journey.outcome != Outcome::Received {
            return;
        }
        for stage in &journey.stages {
            let (last, total) = self.stages.entry(stage.parts).or_default();
            last.record(Span::from_ns(stage.ns));
            total.record(Span::from_ns(stage.ns));
        }
        let time = Span::from_ns(journey.end_to_end_ns());
        self.whole.0.record(time);
        self.whole.1.record(time);
    }
}

impl LiveMeter {
    /// What there is now, so long after the start, and begins anew with what is last. `hooks` are
    /// the counts since the start; `slowest` is the first of the analysis' longest journeys.
    pub fn snapshot(
        &mut self,
        elapsed: Span,
        hooks: &BTreeMap<String, HookCount>,
        slowest: Option<&Judged>,
    ) -> LiveSnapshot {
        let take = |last: &mut LogHistogram, total: &LogHistogram| {
            (std::mem::take(last).summary(), total.summary())
        };
        let mut stages = Vec::new();
        for (parts, (last, total)) in &mut self.stages {
            let (last, total) = take(last, total);
            stages.push((parts.name(), last, total));
        }
        let (last, total) = take(&mut self.whole.0, &self.whole.1);
        stages.push(("end-to-end".to_owned(), last, total));
        let since = |name: &String, now: &HookCount| {
            let before = self.hooks.get(name).copied().unwrap_or_default();
            HookCount {
                seen: now.seen.saturating_sub(before.seen),
                written: now.written.saturating_sub(before.written),
                lost: now.lost.saturating_sub(before.lost),
            }
        };
        let counted =
            hooks.iter().map(|(name, now)| (name.clone(), *now, since(name, now))).collect();
        let snapshot = LiveSnapshot {
            elapsed,
            interval: elapsed - self.before,
            hooks: counted,
            journeys: self.journeys,
            lossy: self.lossy,
            ambiguous: self.ambiguous,
            dropped: self.dropped,
            stages,
            slowest: slowest.map(|it| format!("journey {}: {}", it.journey.number, it.sentence)),
        };
        self.hooks.clone_from(hooks);
        self.before = elapsed;
        self.journeys.1 = 0;
        snapshot
    }
}

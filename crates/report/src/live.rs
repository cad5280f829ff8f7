// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace shows while it runs: losses first, how often each hook was reached, how long each
//! stage took in the last moment and since the start, and the slowest packet path with its reason.
//! A table that can be redrawn, or one line where nothing can be.

use std::collections::BTreeMap;

use timewire_base::Span;
use timewire_capture::capture::{CaptureHeader, HookCount};
use timewire_capture::event::Event;
use timewire_capture::packet_path::worst::Judged;
use timewire_capture::packet_path::{Observer, PacketPath, Parts, PathOutcome, Point, Status};
use timewire_stats::{HistogramSummary, LogHistogram};

use crate::packet_paths::{aligned, plain};
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
    /// Events that were recorded and are not in this view: since the start, and since the
    /// snapshot before.
    pub not_shown: (u64, u64),
    /// Packet paths since the start, and since the snapshot before.
    pub packet_paths: (u64, u64),
    /// Of those since the start, what is not complete or was dropped.
    pub lossy: u64,
    /// As [`LiveSnapshot::lossy`].
    pub ambiguous: u64,
    /// As [`LiveSnapshot::lossy`].
    pub dropped: u64,
    /// Each stage in the order of a packet's way: in the last moment, and since the start; of
    /// complete packet paths that a program received or a driver sent. Then from end to end, of
    /// those that a program received.
    pub stages: Vec<(String, HistogramSummary, HistogramSummary)>,
    /// Stations in the order of their numbers.
    pub stations: Vec<LiveStation>,
    /// The reason of the slowest packet path since the start.
    pub slowest: Option<String>,
}

/// A station since the snapshot before.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveStation {
    /// Its name.
    pub name: String,
    /// Events at it.
    pub events: u64,
    /// Packet paths that ended there because a program received the packet.
    pub received: u64,
    /// Those that ended there otherwise: dropped, sent to where nobody looks, not seen again.
    pub others: u64,
    /// From end to end, of complete packet paths that a program received there.
    pub times: HistogramSummary,
    /// The reason of the slowest packet path that ended there.
    pub slowest: Option<String>,
}

/// The whole view, ending with a line feed.
///
/// **Units**: all times are microseconds.
pub fn view(now: &LiveSnapshot, room: LiveRoom) -> String {
    let mut out = losses(now);
    put!(&mut out, "{}\n", totals(now));
    for station in &now.stations {
        if let Some(slowest) = &station.slowest {
            let text = format!("slowest now at {}: {}", plain(&station.name), plain(slowest));
            out += &wrapped(&text, room.columns);
        }
    }
    let is_told = |it: &LiveStation| it.slowest.is_some() && it.slowest == now.slowest;
    if let Some(slowest) = now.slowest.as_ref().filter(|_| !now.stations.iter().any(is_told)) {
        out += &wrapped(&format!("slowest of all: {}", plain(slowest)), room.columns);
    }
    let seconds = seconds(now.interval);
    let mut stages = vec![
        ["stage", "last n", "p50", "p99", "max", "all n", "p50", "p99", "max"].map(str::to_owned),
    ];
    for (name, last, total) in &now.stages {
        let [a, b, c, d] = figures(last);
        let [e, f, g, h] = figures(total);
        stages.push([plain(name), a, b, c, d, e, f, g, h]);
    }
    put!(&mut out, "\n{}\n", aligned(&stages));
    let mut stations =
        vec![["station", "events/s", "received", "others", "p50", "p99", "max"].map(str::to_owned)];
    for station in &now.stations {
        let rate = format!("{:.0}", count_f64(station.events) / seconds);
        let [_, p50, p99, max] = figures(&station.times);
        let [received, others] = [station.received, station.others].map(|n| n.to_string());
        stations.push([plain(&station.name), rate, received, others, p50, p99, max]);
    }
    put!(&mut out, "{}\n", aligned(&stations));
    let mut hooks = vec![["hook", "seen/s", "written", "lost", "lost now"].map(str::to_owned)];
    for (name, total, last) in &now.hooks {
        let rate = count_f64(last.seen) / seconds;
        let lost = [total.lost.to_string(), last.lost.to_string()];
        let [all, latest] = lost;
        hooks.push([plain(name), format!("{rate:.0}"), total.written.to_string(), all, latest]);
    }
    out += &aligned(&hooks);
    cut(&out, room)
}

/// What there was from the start to the end: without what was last.
///
/// **Units**: as [`view`].
pub fn whole(now: &LiveSnapshot) -> String {
    let mut out = losses(now);
    put!(&mut out, "{}\n", since_start(now));
    if let Some(slowest) = &now.slowest {
        put!(&mut out, "slowest of all: {}\n", plain(slowest));
    }
    let mut stages = vec![["stage", "n", "p50", "p99", "max"].map(str::to_owned)];
    for (name, _, total) in &now.stages {
        let [count, p50, p99, max] = figures(total);
        stages.push([plain(name), count, p50, p99, max]);
    }
    put!(&mut out, "\n{}\n", aligned(&stages));
    out
}

/// A sentence over several lines, the later ones indented.
fn wrapped(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            out.push_str("\n  ");
            used = 2;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out.push('\n');
    out
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
    if now.not_shown.1 > 0 {
        put!(&mut out, "{} events not shown, ", now.not_shown.1);
    }
    let rate = count_f64(now.packet_paths.1) / seconds(now.interval);
    put!(
        &mut out,
        "{:.0} events/s, {} packet paths, {rate:.0}/s",
        event_rate(now),
        now.packet_paths.1
    );
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
    let mut out = if lines.is_empty() { "no event was lost\n".to_owned() } else { lines.concat() };
    if let (all @ 1.., last) = now.not_shown {
        put!(&mut out, "NOT SHOWN {all} events, {last} of them now: filter, or keep one of more\n");
    }
    out
}

/// Events that were written, in a second.
fn event_rate(now: &LiveSnapshot) -> f64 {
    let written: u64 = now.hooks.iter().map(|(_, _, last)| last.written).sum();
    count_f64(written) / seconds(now.interval)
}

fn since_start(now: &LiveSnapshot) -> String {
    let mut out = format!("{:.1}s: {} packet paths", seconds(now.elapsed), now.packet_paths.0);
    let others = [(now.lossy, "lossy"), (now.ambiguous, "ambiguous"), (now.dropped, "dropped")];
    for (count, word) in others.into_iter().filter(|(count, _)| *count > 0) {
        put!(&mut out, ", {count} {word}");
    }
    out
}

fn totals(now: &LiveSnapshot) -> String {
    let mut out = since_start(now);
    let rate = count_f64(now.packet_paths.1) / seconds(now.interval);
    let (last, events) = (seconds(now.interval), event_rate(now));
    put!(&mut out, "; last {last:.1}s: {}, {rate:.0}/s, {events:.0} events/s", now.packet_paths.1);
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

/// What a snapshot is made of, beside what passed.
#[derive(Clone, Copy, Debug)]
pub struct LiveInput<'a> {
    /// Since the start.
    pub elapsed: Span,
    /// How often each hook was reached since the start.
    pub hooks: &'a BTreeMap<String, HookCount>,
    /// Events since the start that did not pass here.
    pub not_shown: u64,
    /// The first of the analysis' longest packet paths.
    pub slowest: Option<&'a Judged>,
    /// The longest of each capture and station since the snapshot before.
    pub of_stations: &'a BTreeMap<(u8, u8), Judged>,
}

/// Makes snapshots of what passes; an [`Observer`] of the analysis. Memory is that of a histogram
/// for each stage and each station.
#[derive(Clone, Debug, Default)]
pub struct LiveMeter {
    stages: BTreeMap<Parts, (LogHistogram, LogHistogram)>,
    whole: (LogHistogram, LogHistogram),
    stations: BTreeMap<(u8, u8), Meter>,
    packet_paths: (u64, u64),
    lossy: u64,
    ambiguous: u64,
    dropped: u64,
    not_shown: u64,
    hooks: BTreeMap<String, HookCount>,
    before: Span,
}

#[derive(Clone, Debug, Default)]
struct Meter {
    name: Option<String>,
    events: u64,
    received: u64,
    others: u64,
    times: LogHistogram,
}

impl Observer for LiveMeter {
    fn event(&mut self, _: usize, point: &Point, _: &Event) {
        self.stations.entry((point.capture, point.station)).or_default().events += 1;
    }

    fn packet_path(&mut self, packet_path: &PacketPath) {
        self.packet_paths.0 += 1;
        self.packet_paths.1 += 1;
        match packet_path.status {
            Status::Complete => {}
            Status::Lossy => self.lossy += 1,
            Status::Ambiguous => self.ambiguous += 1,
        }
        if matches!(packet_path.outcome, PathOutcome::Dropped { .. }) {
            self.dropped += 1;
        }
        let received = packet_path.outcome == PathOutcome::Received;
        let is_complete = packet_path.status == Status::Complete;
        let time = Span::from_ns(packet_path.end_to_end_ns());
        if let Some(end) = packet_path.points.last() {
            let station = self.stations.entry((end.capture, end.station)).or_default();
            let ended = if received { &mut station.received } else { &mut station.others };
            *ended += 1;
            if is_complete && received {
                station.times.record(time);
            }
        }
        if !is_complete || !(received || packet_path.outcome == PathOutcome::Sent) {
            return;
        }
        for stage in &packet_path.stages {
            let (last, total) = self.stages.entry(stage.parts).or_default();
            last.record(Span::from_ns(stage.ns));
            total.record(Span::from_ns(stage.ns));
        }
        if received {
            self.whole.0.record(time);
            self.whole.1.record(time);
        }
    }
}

impl LiveMeter {
    /// The stations of a capture, by their numbers.
    pub fn header(&mut self, capture: u8, header: &CaptureHeader) {
        for (station, number) in header.stations.iter().zip(0_u8..) {
            let found = self.stations.entry((capture, number)).or_default();
            found.name = Some(station.name.clone());
        }
    }

    /// What there is now; begins anew with what is last.
    pub fn snapshot(&mut self, input: &LiveInput<'_>) -> LiveSnapshot {
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
        let said = |it: &Judged| format!("packet path {}: {}", it.packet_path.number, it.sentence);
        let mut stations = Vec::new();
        for (place, meter) in &mut self.stations {
            let name = meter.name.clone();
            let last = std::mem::replace(meter, Meter { name, ..Meter::default() });
            stations.push(LiveStation {
                name: last.name.unwrap_or_else(|| "elsewhere".to_owned()),
                events: last.events,
                received: last.received,
                others: last.others,
                times: last.times.summary(),
                slowest: input.of_stations.get(place).map(said),
            });
        }
        let since = |name: &String, now: &HookCount| {
            let before = self.hooks.get(name).copied().unwrap_or_default();
            HookCount {
                seen: now.seen.saturating_sub(before.seen),
                written: now.written.saturating_sub(before.written),
                lost: now.lost.saturating_sub(before.lost),
            }
        };
        let hooks = input.hooks.iter();
        let counted = hooks.map(|(name, now)| (name.clone(), *now, since(name, now))).collect();
        let snapshot = LiveSnapshot {
            elapsed: input.elapsed,
            interval: input.elapsed - self.before,
            hooks: counted,
            not_shown: (input.not_shown, input.not_shown.saturating_sub(self.not_shown)),
            packet_paths: self.packet_paths,
            lossy: self.lossy,
            ambiguous: self.ambiguous,
            dropped: self.dropped,
            stages,
            stations,
            slowest: input.slowest.map(said),
        };
        self.hooks.clone_from(input.hooks);
        self.not_shown = input.not_shown;
        self.before = input.elapsed;
        self.packet_paths.1 = 0;
        snapshot
    }
}

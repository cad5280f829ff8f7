// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a stage took so long, as far as events prove it; otherwise `not seen`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use timewire_base::{CyclicWindows, Instant, Phase};

use super::clash::{self, Clash};
use super::context::{Busy, Context, Kind};
use super::table::ratio;
use super::{ClockMap, PacketPath, Parts, Point, Stage};
use crate::capture::{CaptureHeader, ClockSample, Note};
use crate::event::{Event, Hook};
use crate::kernel::softirq;

/// What made a stage long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "culprit", rename_all = "kebab-case")]
pub enum Culprit {
    /// The station's windows were closed for most of it.
    Gate {
        /// So long.
        closed_ns: i64,
    },
    /// Other frames were in the queueing discipline when it came.
    Frames {
        /// So many.
        frames: u64,
        /// The discipline's handle.
        handle: u32,
    },
    /// Another thread had the CPU until the reader got it.
    Thread {
        /// Its number.
        thread: u32,
        /// The CPU.
        cpu: u16,
    },
    /// The CPU was idle, and the reader ran late after it had been woken.
    LateWakeUp {
        /// The CPU.
        cpu: u16,
    },
    /// The CPU received other frames before this one.
    OtherFrames {
        /// So many.
        frames: u64,
        /// The CPU.
        cpu: u16,
    },
    /// Handlers of interrupts ran for most of it.
    Interrupts {
        /// The one that took most.
        interrupt: u64,
        /// All together.
        ns: i64,
        /// The CPU.
        cpu: u16,
    },
    /// Deferred work of interrupts ran for most of it.
    Softirqs {
        /// The kind that took most; 3 is to receive.
        kind: u64,
        /// All together.
        ns: i64,
        /// The CPU.
        cpu: u16,
    },
    /// The clock that opens gates was stepped.
    ClockStep {
        /// By how much.
        ns: i64,
    },
    /// Nothing that was seen explains it.
    NotSeen,
}

/// The largest stage of a packet path and what made it long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the stage; `None` when there is none.
    pub stage: Option<usize>,
    /// What made it long.
    pub culprit: Culprit,
}

/// What the notes of captures tell, for sentences and reasons.
#[derive(Clone, Debug, Default)]
pub struct Known {
    threads: BTreeMap<(usize, u32), String>,
    headers: BTreeMap<usize, CaptureHeader>,
    qdiscs: BTreeMap<(usize, u32), String>,
    flows: BTreeMap<u32, String>,
    /// Flows that had another name before: two that have one hash.
    shared: BTreeMap<u32, BTreeSet<String>>,
    pub(super) points: BTreeMap<(usize, u64), String>,
    samples: BTreeMap<usize, ClockSample>,
    /// Steps of the clock: between two instants of the capture, by how much.
    steps: Vec<(usize, u64, u64, i64)>,
    left_out: usize,
    /// When each station may send.
    pub schedule: BTreeMap<(usize, u8), CyclicWindows>,
}

/// A clock that is steered goes at most so much faster or slower; what is more is a step.
///
/// **Units**: parts per million. **Source**: linux v6.12 include/linux/timex.h:MAXFREQ (500 ppm),
/// and as much again of `adjtime`.
const STEERED_PPM: u128 = 1_000;

/// Most names of a kind, and most steps of clocks, that are kept at all.
const MAX_HELD: usize = 1 << 18;
/// Most flows with several names, and most names of one.
const MAX_SHARED: usize = 64;
/// Most names of a kind that one who forgets keeps.
const MAX_NAMES: usize = 16_384;
/// Most steps of clocks that one who forgets keeps.
const MAX_STEPS: usize = 1_024;

impl Known {
    /// A capture's header.
    pub fn header(&mut self, capture: usize, header: &CaptureHeader) {
        self.headers.insert(capture, header.clone());
    }

    /// A capture's note.
    pub fn learn(&mut self, capture: usize, note: &Note) {
        let held = [self.threads.len(), self.flows.len(), self.points.len(), self.qdiscs.len()];
        if held.iter().any(|&held| held >= MAX_HELD) {
            self.left_out += self.clear();
        }
        match note {
            Note::Thread { thread, name } => {
                self.threads.insert((capture, *thread), name.clone());
            }
            Note::Point { point, name, .. } => {
                self.points.insert((capture, *point), name.clone());
            }
            Note::Flow { flow, name } => {
                let before = self.flows.insert(*flow, name.clone());
                let Some(before) = before.filter(|before| before != name) else { return };
                if self.shared.len() < MAX_SHARED || self.shared.contains_key(flow) {
                    let names = self.shared.entry(*flow).or_default();
                    if names.len() < MAX_SHARED {
                        names.extend([before, name.clone()]);
                    }
                }
            }
            Note::Qdisc { handle, kind, .. } => {
                self.qdiscs.insert((capture, *handle), kind.clone());
            }
            Note::Clocks(sample) => self.sample(capture, *sample),
            Note::Losses(_) | Note::Counter { .. } | Note::Histogram { .. } => {}
        }
    }

    fn clear(&mut self) -> usize {
        let held = self.held() + self.qdiscs.len() - self.steps.len();
        self.threads.clear();
        self.flows.clear();
        self.points.clear();
        self.qdiscs.clear();
        held
    }

    /// Names and steps that had no room.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Forgets names when there are very many: numbers are shown instead.
    pub(super) fn forget(&mut self) {
        let many = |count: usize| count > MAX_NAMES;
        if many(self.threads.len()) {
            self.threads.clear();
        }
        if many(self.flows.len()) {
            self.flows.clear();
        }
        if many(self.points.len()) {
            self.points.clear();
        }
        let old = self.steps.len().saturating_sub(MAX_STEPS);
        self.steps.drain(..old);
    }

    /// How many names and steps of clocks there are.
    pub(super) fn held(&self) -> usize {
        self.threads.len() + self.flows.len() + self.points.len() + self.steps.len()
    }

    fn sample(&mut self, capture: usize, now: ClockSample) {
        let Some(before) = self.samples.insert(capture, now) else { return };
        let tai = |sample: &ClockSample| {
            i128::from(sample.realtime_ahead_ns) + i128::from(sample.tai_ahead_ns)
        };
        let change = tai(&now) - tai(&before);
        let apart = now.monotonic_ns.saturating_sub(before.monotonic_ns);
        let steered = u128::from(apart) * STEERED_PPM / 1_000_000;
        let allowed = steered + u128::from(before.error_ns) + u128::from(now.error_ns);
        if change.unsigned_abs() > allowed {
            let by = i64::try_from(change).unwrap_or(if change < 0 { i64::MIN } else { i64::MAX });
            if self.steps.len() >= MAX_HELD {
                self.left_out += self.steps.drain(..MAX_HELD / 2).count();
            }
            self.steps.push((capture, before.monotonic_ns, now.monotonic_ns, by));
        }
    }

    /// A station's name, or its number; what is of none says so.
    pub fn station(&self, capture: usize, station: u8) -> String {
        if station == Event::NO_STATION {
            return "no station".to_owned();
        }
        let header = self.headers.get(&capture);
        let found = header.and_then(|header| header.stations.get(usize::from(station)));
        found.map_or_else(|| format!("station {capture}.{station}"), |found| found.name.clone())
    }

    fn place(&self, point: &Point) -> String {
        let station = self.station(usize::from(point.capture), point.station);
        let header = self.headers.get(&usize::from(point.capture));
        let found = header.and_then(|header| header.stations.get(usize::from(point.station)));
        let interface = found.and_then(|found| found.interfaces.get(&point.interface));
        interface.map_or(station.clone(), |interface| format!("{station}/{interface}"))
    }

    /// A flow in words, or its number.
    pub fn flow(&self, flow: u32) -> String {
        self.flows.get(&flow).cloned().unwrap_or_else(|| format!("flow {flow:08x}"))
    }

    /// Streams that have one number, or one hash; and how many more such there are.
    pub fn clashes(&self) -> (Vec<Clash>, usize) {
        clash::clashes(self.flows.values().map(String::as_str), &self.shared)
    }

    /// The reason of a drop in words.
    pub fn reason(&self, capture: usize, reason: u64) -> String {
        match self.headers.get(&capture) {
            Some(header) => header.reason(reason),
            None => CaptureHeader::default().reason(reason),
        }
    }

    /// Whether the capture has a name for the reason of a drop.
    pub fn has_reason(&self, capture: usize, reason: u64) -> bool {
        self.headers.get(&capture).is_some_and(|header| header.reason_name(reason).is_some())
    }

    fn interrupt(&self, capture: u8, interrupt: u64) -> String {
        let header = self.headers.get(&usize::from(capture));
        header.map_or_else(|| interrupt.to_string(), |header| header.interrupt(interrupt))
    }

    fn thread(&self, capture: u8, thread: u32) -> String {
        match self.threads.get(&(usize::from(capture), thread)) {
            Some(name) => format!("thread {thread} ({name})"),
            None => format!("thread {thread}"),
        }
    }

    fn step_during(&self, from: &Point, to: &Point) -> Option<i64> {
        let during = |&&(capture, begin, end, _): &&(usize, u64, u64, i64)| {
            capture == usize::from(from.capture) && begin <= to.raw_ns && end >= from.raw_ns
        };
        self.steps.iter().find(during).map(|step| step.3)
    }
}

/// Names the largest stage of a packet path and what made it long.
pub(super) fn judge(
    packet_path: &PacketPath,
    known: &Known,
    context: &Context,
    clocks: &impl ClockMap,
) -> Verdict {
    // Of equals the first.
    let by_time =
        |a: &(usize, &Stage), b: &(usize, &Stage)| a.1.ns.cmp(&b.1.ns).then(b.0.cmp(&a.0));
    let Some((index, stage)) = packet_path.stages.iter().enumerate().max_by(by_time) else {
        return Verdict { stage: None, culprit: Culprit::NotSeen };
    };
    let points = &packet_path.points[stage.from..=stage.to];
    let culprit = [
        queueing(stage, points, known, clocks),
        wake_up(stage, points, context),
        receiving(stage, points, context),
        busy(stage, points, context),
    ];
    let culprit = culprit.into_iter().flatten().next().unwrap_or(Culprit::NotSeen);
    Verdict { stage: Some(index), culprit }
}

/// Gates, a step of the clock that drives them, frames before it.
fn queueing(
    stage: &Stage,
    points: &[Point],
    known: &Known,
    clocks: &impl ClockMap,
) -> Option<Culprit> {
    if !stage.parts.has(Parts::QDISC) {
        return None;
    }
    let (from, to) = (points.first()?, points.last()?);
    let capture = usize::from(from.capture);
    if let (Some(windows), true) =
        (known.schedule.get(&(capture, from.station)), from.capture == to.capture)
    {
        if let Some(ns) = known.step_during(from, to) {
            return Some(Culprit::ClockStep { ns });
        }
        let tai = |point: &Point| clocks.to_tai(capture, point.raw_ns);
        if let (Some(from), Some(to)) = (tai(from), tai(to)) {
            let closed_ns = closed(windows, from, to);
            if closed_ns >= stage.ns - closed_ns && closed_ns > 0 {
                return Some(Culprit::Gate { closed_ns });
            }
        }
    }
    let entered = points.iter().filter(|point| point.hook == Hook::QdiscEnqueue);
    let most = entered.max_by_key(|point| point.aux & u64::from(u32::MAX))?;
    let frames = most.aux & u64::from(u32::MAX);
    let handle = u32::try_from(most.aux >> 32).expect("invariant: 32 bits are left");
    (frames > 0).then_some(Culprit::Frames { frames, handle })
}

/// How much of `[from, to)` lies outside the windows.
fn closed(windows: &CyclicWindows, from: i64, to: i64) -> i64 {
    let length = to.saturating_sub(from).max(0);
    let cycle = windows.cycle().as_ns();
    let in_cycle: i64 = windows.windows().iter().map(|window| window.length.as_ns()).sum();
    let whole = length / cycle;
    let end = from.saturating_add(length % cycle);
    let (mut open, mut at) = (whole.saturating_mul(in_cycle), from);
    while at < end {
        let next = match windows.phase(Instant::from_ns(at)) {
            Some(Phase::Inside { end: close, .. }) => {
                open += close.as_ns().min(end) - at;
                close
            }
            Some(Phase::Before { start, .. }) => start,
            None => break,
        };
        at = next.as_ns();
    }
    length - open
}

/// Who had the CPU while the reader was ready.
fn wake_up(stage: &Stage, points: &[Point], context: &Context) -> Option<Culprit> {
    if !stage.parts.has(Parts::WAKE_UP) {
        return None;
    }
    let running = points.iter().find(|point| point.hook == Hook::SwitchIn)?;
    if let Some(found) = busy_on(running, stage.ns, points, context) {
        return Some(found);
    }
    let thread = u32::try_from(running.aux).unwrap_or(u32::MAX);
    let woken = points.iter().any(|point| point.hook == Hook::Waking);
    match thread {
        0 if woken => Some(Culprit::LateWakeUp { cpu: running.cpu }),
        0 => None,
        _ if thread == running.thread => None,
        _ => Some(Culprit::Thread { thread, cpu: running.cpu }),
    }
}

/// Other frames that the CPU received before this one.
fn receiving(stage: &Stage, points: &[Point], context: &Context) -> Option<Culprit> {
    if !stage.parts.has(Parts::SOFTIRQ) {
        return None;
    }
    let queued =
        points.iter().find(|point| matches!(point.hook, Hook::ReceiveQueue | Hook::NapiReceive))?;
    let taken = points.iter().find(|point| point.hook == Hook::StackReceive)?;
    if queued.cpu != taken.cpu || queued.capture != taken.capture {
        return None;
    }
    let counted = taken.aux.saturating_sub(queued.aux);
    let frames = if counted > 0 { counted } else { polled(queued, taken, context) };
    (frames > 0).then_some(Culprit::OtherFrames { frames, cpu: taken.cpu })
}

/// Frames of polls that ended in between: all before this one's.
fn polled(from: &Point, to: &Point, context: &Context) -> u64 {
    let spans = context.during((to.capture, to.cpu), (from.at_ns, to.at_ns)).unwrap_or_default();
    spans.iter().filter(|span| span.kind == Kind::Poll).map(|span| span.what).sum()
}

/// Interrupts on the CPU that the packet was to be handled by.
fn busy(stage: &Stage, points: &[Point], context: &Context) -> Option<Culprit> {
    if stage.parts.has(Parts::WIRE) && points.first()?.capture != points.last()?.capture {
        return None;
    }
    busy_on(points.last()?, stage.ns, points, context)
}

fn busy_on(at: &Point, ns: i64, points: &[Point], context: &Context) -> Option<Culprit> {
    let interval = (points.first()?.at_ns, points.last()?.at_ns);
    let spans = context.during((at.capture, at.cpu), interval)?;
    let of = |kind: Kind| -> (i64, u64) {
        let spans: Vec<&Busy> = spans.iter().filter(|span| span.kind == kind).collect();
        let mut each = BTreeMap::<u64, i64>::new();
        for span in &spans {
            *each.entry(span.what).or_default() += span.to - span.from;
        }
        let most = each.iter().max_by_key(|&(&what, &ns)| (ns, std::cmp::Reverse(what)));
        (each.values().sum(), most.map_or(0, |(&what, _)| what))
    };
    let (handlers, interrupt) = of(Kind::Interrupt);
    if handlers > 0 && handlers >= ns - handlers {
        return Some(Culprit::Interrupts { interrupt, ns: handlers, cpu: at.cpu });
    }
    // The packet's own softirq is no other's work: it lasts beyond the stage.
    let whole = spans
        .iter()
        .any(|span| span.kind == Kind::Softirq && span.from <= interval.0 && span.to >= interval.1);
    let (deferred, kind) = of(Kind::Softirq);
    (!whole && deferred > 0 && deferred >= ns - deferred).then_some(Culprit::Softirqs {
        kind,
        ns: deferred,
        cpu: at.cpu,
    })
}

/// The verdict in one sentence, with the names that are known.
pub(super) fn sentence(packet_path: &PacketPath, verdict: &Verdict, known: &Known) -> String {
    let total = packet_path.end_to_end_ns();
    let Some(stage) = verdict.stage.and_then(|index| packet_path.stages.get(index)) else {
        return format!("{} in all: not seen", us(total));
    };
    let (from, to) = (&packet_path.points[stage.from], &packet_path.points[stage.to]);
    let place = match (known.place(from), known.place(to)) {
        (a, b) if stage.parts.has(Parts::WIRE) && a != b => format!("from {a} to {b}"),
        (_, b) => format!("at {b}"),
    };
    let share = ratio(i128::from(stage.ns), i128::from(total)) * 100.0;
    let why = match verdict.culprit {
        Culprit::Gate { closed_ns } => format!("its gates were closed for {}", us(closed_ns)),
        Culprit::Frames { frames, handle } => {
            let kind = known.qdiscs.get(&(usize::from(from.capture), handle));
            let kind = kind.map_or("the queueing discipline", String::as_str);
            format!("{frames} other frames were in {kind} {:x}: when it came", handle >> 16)
        }
        Culprit::Thread { thread, cpu } => {
            format!("{} had CPU {cpu}", known.thread(to.capture, thread))
        }
        Culprit::LateWakeUp { cpu } => {
            format!("CPU {cpu} was idle, and the reader ran late after it was woken")
        }
        Culprit::OtherFrames { frames, cpu } => {
            format!("CPU {cpu} received {frames} other frames before it")
        }
        Culprit::Interrupts { interrupt, ns, cpu } => {
            let interrupt = known.interrupt(to.capture, interrupt);
            format!("interrupt handlers ran for {} on CPU {cpu}, most {interrupt}", us(ns))
        }
        Culprit::Softirqs { kind, ns, cpu } => {
            let kind = softirq(kind);
            format!("deferred work ran for {} on CPU {cpu}, most {kind}", us(ns))
        }
        Culprit::ClockStep { ns } => format!("the clock was stepped by {}", us(ns)),
        Culprit::NotSeen => "not seen".to_owned(),
    };
    let name = stage.parts.name();
    format!("{} of {} ({share:.1} %) were {name} {place}: {why}", us(stage.ns), us(total))
}

/// Microseconds, to the nanosecond.
fn us(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03} us", ns / 1_000, ns % 1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use timewire_base::{Span, Window};

    use super::*;

    proptest! {
        /// second method: every nanosecond by itself.
        #[test]
        fn t0_closed_time_agrees_with_counting(
            list in proptest::collection::vec((0_i64..40, 1_i64..10), 0..4),
            from in -200_i64..200,
            length in 0_i64..300,
        ) {
            let windows = list.iter().map(|&(offset, length)| Window {
                offset: Span::from_ns(offset),
                length: Span::from_ns(length),
            });
            let cycle = Span::from_ns(50);
            let made = CyclicWindows::new(Instant::from_ns(7), cycle, windows.collect());
            let Ok(windows) = made else { return Ok(()) };
            let open = |ns: &i64| {
                matches!(windows.phase(Instant::from_ns(*ns)), Some(Phase::Inside { .. }))
            };
            let counted = (from..from + length).filter(|ns| !open(ns)).count();
            prop_assert_eq!(closed(&windows, from, from + length), i64::try_from(counted).unwrap());
        }
    }
}

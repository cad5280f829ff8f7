// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine against a second one that knows no better than to try every nanosecond. The model is
//! small in scale (a link of 1 Tbit/s, cycles of some 100 ns), so that it can: after every call it
//! checks what left, that nothing else should have left instead, and that nothing could leave
//! before the next call that the machine asks for.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use timewire_base::{BitsPerSecond, CyclicWindows, FrameLen, Instant, Priority, Span, Tai, Window};
use timewire_tsn::{Actions, Config, DropReason, Event, Machine, Mode, Next, QueueIndex, QueueSet};

const LONG_AGO: i64 = -1_000_000_000;
const NEVER: i64 = 1_000_000_000;
/// Number of the default queue in the model; others are known by their priority.
const DEFAULT: u64 = 33;

/// Windows as plain numbers.
#[derive(Clone, Debug)]
struct Cycle {
    base: i64,
    length: i64,
    windows: Vec<(i64, i64)>,
}

impl Cycle {
    fn build(&self) -> CyclicWindows {
        let windows = self.windows.iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        CyclicWindows::new(at(self.base), Span::from_ns(self.length), windows.collect()).unwrap()
    }

    /// Start and end of the window that an instant lies in.
    fn window_at(&self, t: i64) -> Option<(i64, i64)> {
        let phase = (t - self.base).rem_euclid(self.length);
        let inside = |&&(offset, length): &&(i64, i64)| offset <= phase && phase < offset + length;
        let &(offset, length) = self.windows.iter().find(inside)?;
        Some((t - phase + offset, t - phase + offset + length))
    }

    fn longest(&self) -> i64 {
        self.windows.iter().map(|w| w.1).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    id: u32,
    duration: i64,
}

#[derive(Clone, Debug, Default)]
struct Count {
    arrived: u64,
    released: u64,
    full: u64,
    oversize: u64,
}

struct Model {
    config: Config,
    idle_after: Option<i64>,
    active: Option<Cycle>,
    pending: Option<(Option<Cycle>, i64)>,
    synchronised: bool,
    seen: i64,
    last: Option<i64>,
    line_free: i64,
    queues: BTreeMap<u64, VecDeque<Frame>>,
    counts: BTreeMap<u64, Count>,
    /// The last window that prioritised frames used, and how long.
    used: (i64, i64),
    missed: u64,
    steps_back: u64,
    changes: u64,
}

impl Model {
    fn new(config: Config, active: Option<Cycle>) -> Model {
        let idle_after = match config.mode {
            Mode::Tdm => None,
            Mode::Hybrid { idle_after } => Some(idle_after.as_ns()),
        };
        Model {
            config,
            idle_after,
            active,
            pending: None,
            synchronised: false,
            seen: 0,
            last: None,
            line_free: LONG_AGO,
            queues: BTreeMap::new(),
            counts: BTreeMap::new(),
            used: (LONG_AGO, 0),
            missed: 0,
            steps_back: 0,
            changes: 0,
        }
    }

    fn heads(&self) -> Vec<(u64, Frame)> {
        self.queues.iter().filter_map(|(&q, fifo)| Some((q, *fifo.front()?))).collect()
    }

    fn change_time(&self) -> i64 {
        self.pending.as_ref().map_or(NEVER, |pending| pending.1)
    }

    /// The windows in effect at an instant, now or later.
    fn cycle_at(&self, t: i64) -> Option<&Cycle> {
        match &self.pending {
            Some((cycle, change_time)) if t >= *change_time => cycle.as_ref(),
            _ => self.active.as_ref(),
        }
    }

    fn bound(&self, t: i64) -> bool {
        let real_time_waits = self.heads().iter().any(|&(queue, _)| queue != DEFAULT);
        self.idle_after.is_none_or(|idle_after| {
            (self.synchronised && real_time_waits) || t < self.seen + idle_after
        })
    }

    fn oversize(&self, queue: u64, duration: i64, t: i64) -> bool {
        (queue != DEFAULT || self.bound(t))
            && self
                .cycle_at(t)
                .is_some_and(|cycle| duration + self.config.margin.as_ns() > cycle.longest())
    }

    /// Whether a frame could be released at an instant, priorities and share aside.
    fn can_go(&self, queue: u64, frame: Frame, t: i64) -> bool {
        let start = t.max(self.line_free);
        if start - t > self.config.ahead.as_ns() {
            return false;
        }
        let end = start + frame.duration + self.config.margin.as_ns();
        let change_time = self.change_time();
        if t < change_time && end > change_time {
            return false;
        }
        match self.cycle_at(t) {
            Some(cycle) if queue != DEFAULT || self.bound(t) => {
                self.synchronised
                    && cycle.window_at(start).is_some_and(|(_, window_end)| end <= window_end)
            }
            Some(_) | None => true,
        }
    }

    fn anything_can_go(&self, t: i64) -> bool {
        self.heads().iter().any(|&(queue, frame)| self.can_go(queue, frame, t))
    }

    /// Whether the share keeps this prioritised frame from leaving.
    fn share_holds(&self, frame: Frame, t: i64) -> bool {
        let start = t.max(self.line_free);
        let best_effort = self.queues.get(&DEFAULT).and_then(|fifo| fifo.front());
        let best_effort_can_go = best_effort.is_some_and(|&frame| self.can_go(DEFAULT, frame, t));
        let share = self.config.best_effort_share.as_ns();
        let Some(window) = self.cycle_at(t).and_then(|cycle| cycle.window_at(start)) else {
            return false;
        };
        let used = if self.used.0 == window.0 { self.used.1 } else { 0 };
        share > 0
            && best_effort_can_go
            && used > 0
            && used + frame.duration > window.1 - window.0 - share
    }

    /// What follows from the time, before the event.
    fn notice_time(&mut self, t: i64) -> Option<CyclicWindows> {
        let last = self.last.replace(t).unwrap_or_else(|| {
            self.seen = t;
            t
        });
        if t < last {
            self.steps_back += 1;
            self.line_free = t + (self.line_free - last).max(0);
            self.seen = self.seen.min(t);
        }
        for start in last + 1..=t {
            // The windows in effect at the start held until the change, or hold still.
            let held_until = if start < self.change_time() { self.change_time().min(t) } else { t };
            self.missed += u64::from(self.missed_window(start, held_until));
        }
        if self.change_time() > t {
            return None;
        }
        self.changes += 1;
        self.used = (LONG_AGO, 0);
        let (cycle, _) = self.pending.take().unwrap();
        let retired = std::mem::replace(&mut self.active, cycle);
        retired.map(|cycle| cycle.build())
    }

    /// Whether a window starts at `start` that a waiting frame could have used, and could not any
    /// more at `until`.
    fn missed_window(&self, start: i64, until: i64) -> bool {
        let Some(shortest) = self.heads().iter().map(|(_, frame)| frame.duration).min() else {
            return false;
        };
        let window = self.cycle_at(start).and_then(|cycle| cycle.window_at(start));
        window.is_some_and(|(window_start, end)| {
            let last_chance = end - shortest - self.config.margin.as_ns();
            self.synchronised
                && self.bound(until)
                && window_start == start
                && (start.max(self.line_free)..until).contains(&last_chance)
        })
    }

    fn set_windows(&mut self, cycle: Option<Cycle>, t: i64, not_before: i64) {
        let mut change_time = t.max(not_before).max(self.line_free + self.config.margin.as_ns());
        if let Some(cycle) = cycle.as_ref().or(self.active.as_ref()) {
            while (change_time - cycle.base).rem_euclid(cycle.length) != 0 {
                change_time += 1;
            }
        }
        self.pending = Some((cycle, change_time));
    }

    /// Judges what the machine did at `t`, and does the same.
    fn judge(&mut self, t: i64, actions: &Actions<u32>) -> Result<(), TestCaseError> {
        if let Some(id) = actions.transmit {
            self.judge_release(t, id)?;
        } else if actions.next != Next::Now {
            prop_assert!(!self.anything_can_go(t), "idle at {t} although a frame could go");
        } else {
            prop_assert!(actions.dropped.is_some() || self.change_time() <= t, "asks for nothing");
        }
        match actions.next {
            Next::Now => {}
            Next::At(next) => {
                let next = next.as_ns();
                prop_assert!(next > t && next <= self.change_time());
                // Nobody looks further than this.
                for between in t + 1..next.min(t + 1_000) {
                    prop_assert!(!self.anything_can_go(between), "sleeps through {between}");
                }
            }
            Next::WhenFrameArrives => {
                prop_assert!(self.pending.is_none());
                for later in t + 1..t + 500 {
                    prop_assert!(!self.anything_can_go(later), "sleeps through {later}");
                }
            }
        }
        Ok(())
    }

    fn judge_release(&mut self, t: i64, id: u32) -> Result<(), TestCaseError> {
        let heads = self.heads();
        let found = heads.iter().find(|(_, frame)| frame.id == id);
        let &(queue, frame) = found.ok_or_else(|| TestCaseError::fail("not first in a queue"))?;
        prop_assert!(self.can_go(queue, frame, t), "{frame:?} of {queue} must not leave at {t}");
        for &(other, waiting) in heads.iter().filter(|(other, _)| *other < queue) {
            if self.can_go(other, waiting, t) {
                prop_assert!(queue == DEFAULT, "{other} is more urgent than {queue}");
                prop_assert!(self.share_holds(waiting, t), "{other} before best effort");
                // The one that is held back is the most urgent that could go.
                break;
            }
            prop_assert!(!self.oversize(other, waiting.duration, t), "{other} is blocked for ever");
        }
        if queue != DEFAULT {
            prop_assert!(!self.share_holds(frame, t), "{queue} takes the best-effort share");
        }
        let start = t.max(self.line_free);
        if let Some((window, _)) = self.cycle_at(t).and_then(|cycle| cycle.window_at(start))
            && queue != DEFAULT
        {
            let before = if self.used.0 == window { self.used.1 } else { 0 };
            self.used = (window, before + frame.duration);
        }
        self.line_free = start + frame.duration;
        self.queues.entry(queue).or_default().pop_front();
        self.counts.entry(queue).or_default().released += 1;
        Ok(())
    }

    /// Judges a dropped frame that waited.
    fn judge_drop_of_head(&mut self, t: i64, id: u32) -> Result<(), TestCaseError> {
        let heads = self.heads();
        let found = heads.iter().find(|(_, frame)| frame.id == id);
        let &(queue, frame) = found.ok_or_else(|| TestCaseError::fail("not first in a queue"))?;
        prop_assert!(self.oversize(queue, frame.duration, t));
        self.queues.entry(queue).or_default().pop_front();
        self.counts.entry(queue).or_default().oversize += 1;
        Ok(())
    }

    fn compare(&self, machine: &Machine<u32>) -> Result<(), TestCaseError> {
        let counters = machine.counters();
        for queue in (1..=32).chain([DEFAULT]) {
            let count = self.counts.get(&queue).cloned().unwrap_or_default();
            let depth = self.queues.get(&queue).map_or(0, VecDeque::len) as u64;
            let ours = counters.queue(index_of(queue));
            prop_assert_eq!(ours.arrived, count.arrived);
            prop_assert_eq!(ours.released, count.released);
            prop_assert_eq!(ours.dropped_full, count.full);
            prop_assert_eq!(ours.dropped_oversize, count.oversize);
            prop_assert_eq!(ours.depth, depth);
            prop_assert_eq!(count.arrived, count.released + count.full + count.oversize + depth);
            prop_assert!(depth <= self.config.queue_capacity as u64);
            prop_assert!((depth..=self.config.queue_capacity as u64).contains(&ours.high_water));
        }
        prop_assert_eq!(counters.missed_windows, self.missed);
        prop_assert_eq!(counters.clock_steps_back, self.steps_back);
        prop_assert_eq!(counters.schedule_changes, self.changes);
        prop_assert_eq!(machine.windows().cloned(), self.active.as_ref().map(Cycle::build));
        let pending = machine.pending().map(|p| (p.windows.clone(), p.config_change_time.as_ns()));
        let expected = self.pending.as_ref().map(|(c, t)| (c.as_ref().map(Cycle::build), *t));
        prop_assert_eq!(pending, expected);
        if self.line_free > LONG_AGO {
            prop_assert_eq!(machine.line_free_at().as_ns(), self.line_free);
        }
        Ok(())
    }
}

/// What the caller does next, and when.
#[derive(Clone, Debug)]
struct Step {
    when: When,
    what: What,
}

#[derive(Clone, Debug)]
enum When {
    /// So long after the last call; negative is a clock that stepped back.
    After(i64),
    /// When the machine asked to be called, and so much later.
    AsAsked(i64),
}

#[derive(Clone, Debug)]
enum What {
    Arrive { queue: u64, bytes: u32 },
    Tick,
    SetWindows { cycle: Option<Cycle>, not_before: i64 },
    ClockSync(bool),
    RealTimeSeen,
    Replace(Vec<u64>),
}

fn at(ns: i64) -> Instant<Tai> {
    Instant::from_ns(ns)
}

fn set_of(priorities: &[u64]) -> QueueSet {
    let priorities: Vec<_> = priorities.iter().map(|&p| Priority::new(p).unwrap()).collect();
    QueueSet::new(&priorities).unwrap()
}

fn index_of(queue: u64) -> QueueIndex {
    if queue == DEFAULT {
        QueueIndex::DEFAULT
    } else {
        set_of(&[queue]).queue_for(Priority::new(queue).ok())
    }
}

fn play(config: Config, cycle: Option<Cycle>, steps: &[Step]) -> Result<(), TestCaseError> {
    let windows = cycle.as_ref().map(Cycle::build);
    let mut set = vec![1, 2, 5, 32];
    let mut machine = Machine::new(config, windows, set_of(&set)).unwrap();
    let mut model = Model::new(config, cycle);
    let mut now = 1_000;
    let mut asked = Next::WhenFrameArrives;
    for (id, step) in (0_u32..).zip(steps) {
        now = match (step.when.clone(), asked) {
            (When::AsAsked(late), Next::At(at)) if at.as_ns() < now + 5_000 => at.as_ns() + late,
            (When::AsAsked(late), _) => now + late,
            (When::After(gap), _) => now + gap,
        };
        let mut retired = model.notice_time(now);
        let event = match step.what.clone() {
            What::Arrive { queue, bytes } => Event::Arrive {
                frame: id,
                length: FrameLen::new(bytes).unwrap(),
                queue: index_of(queue),
            },
            What::Tick => Event::Tick,
            What::SetWindows { cycle, not_before } => {
                let replaced = model.pending.take().and_then(|(cycle, _)| cycle);
                retired = retired.or(replaced.map(|cycle| cycle.build()));
                model.set_windows(cycle.clone(), now, now + not_before);
                Event::SetWindows {
                    windows: cycle.map(|c| c.build()),
                    not_before: at(now + not_before),
                }
            }
            What::ClockSync(synchronised) => {
                model.synchronised = synchronised;
                Event::ClockSync(synchronised)
            }
            What::RealTimeSeen => {
                model.seen = now;
                Event::RealTimeSeen
            }
            What::Replace(priorities) => {
                set = priorities;
                machine.replace_queues(set_of(&set));
                Event::Tick
            }
        };
        let actions = machine.on(at(now), event);
        prop_assert_eq!(&actions.retired, &retired);
        if let What::Arrive { queue, bytes } = step.what {
            let queue = if set.contains(&queue) { queue } else { DEFAULT };
            arrive(&mut model, now, queue, Frame { id, duration: duration(bytes) }, &actions)?;
        } else if let Some((dropped, reason)) = actions.dropped {
            prop_assert_eq!(reason, DropReason::Oversize);
            model.judge_drop_of_head(now, dropped)?;
        }
        model.judge(now, &actions)?;
        model.compare(&machine)?;
        asked = settle(&mut machine, &mut model, now, actions.next)?;
    }
    Ok(())
}

/// Calls again as long as the machine asks for it at once, and not for ever.
fn settle(
    machine: &mut Machine<u32>,
    model: &mut Model,
    now: i64,
    mut next: Next,
) -> Result<Next, TestCaseError> {
    let mut timeout = 100;
    while next == Next::Now {
        timeout -= 1;
        prop_assert!(timeout > 0, "asks to be called for ever");
        let retired = model.notice_time(now);
        let actions = machine.on(at(now), Event::Tick);
        prop_assert_eq!(&actions.retired, &retired);
        if let Some((dropped, reason)) = actions.dropped {
            prop_assert_eq!(reason, DropReason::Oversize);
            model.judge_drop_of_head(now, dropped)?;
        }
        model.judge(now, &actions)?;
        model.compare(machine)?;
        next = actions.next;
    }
    Ok(next)
}

fn arrive(
    model: &mut Model,
    t: i64,
    queue: u64,
    frame: Frame,
    actions: &Actions<u32>,
) -> Result<(), TestCaseError> {
    if queue != DEFAULT {
        model.seen = t;
    }
    let full = model.queues.get(&queue).map_or(0, VecDeque::len) == model.config.queue_capacity;
    let oversize = model.oversize(queue, frame.duration, t);
    let count = model.counts.entry(queue).or_default();
    count.arrived += 1;
    if oversize {
        count.oversize += 1;
        prop_assert_eq!(actions.dropped, Some((frame.id, DropReason::Oversize)));
    } else if full {
        count.full += 1;
        prop_assert_eq!(actions.dropped, Some((frame.id, DropReason::Full)));
    } else {
        model.queues.entry(queue).or_default().push_back(frame);
        if let Some((id, _)) = actions.dropped {
            model.judge_drop_of_head(t, id)?;
        }
    }
    Ok(())
}

/// At 1 Tbit/s, rounded up: padding, check sequence, preamble and gap included.
fn duration(bytes: u32) -> i64 {
    ((i64::from(bytes.max(60)) + 24) * 8 + 999) / 1_000
}

fn cycles() -> impl Strategy<Value = Cycle> {
    let parts = proptest::collection::vec((0_i64..30, 1_i64..40), 0..4);
    (parts, 0_i64..40, -500_i64..500).prop_map(|(parts, rest, base)| {
        let mut windows = Vec::new();
        let mut offset = 0;
        for (gap, length) in parts {
            // Every third pair of windows touches.
            offset += if gap % 3 == 0 { 0 } else { gap };
            windows.push((offset, length));
            offset += length;
        }
        Cycle { base, length: offset + rest + 1, windows }
    })
}

fn configs() -> impl Strategy<Value = Config> {
    let mode = prop_oneof![
        Just(Mode::Tdm),
        (0_i64..150).prop_map(|ns| Mode::Hybrid { idle_after: Span::from_ns(ns) }),
    ];
    let ahead = prop_oneof![Just(0_i64), 0_i64..30];
    let share = prop_oneof![Just(0_i64), 1_i64..30];
    (0_i64..4, ahead, mode, share, 1_usize..6).prop_map(
        |(margin, ahead, mode, share, queue_capacity)| Config {
            rate: BitsPerSecond::new(1_000_000_000_000).unwrap(),
            margin: Span::from_ns(margin),
            ahead: Span::from_ns(ahead),
            mode,
            best_effort_share: Span::from_ns(share),
            queue_capacity,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let when = prop_oneof![
        6 => Just(When::AsAsked(0)),
        2 => (0_i64..20).prop_map(When::AsAsked),
        1 => (0_i64..300).prop_map(When::AsAsked),
        6 => (0_i64..15).prop_map(When::After),
        1 => (-60_i64..0).prop_map(When::After),
    ];
    let queue = prop_oneof![Just(1_u64), Just(2), Just(5), Just(32), Just(7), Just(DEFAULT)];
    let what = prop_oneof![
        10 => (queue, 1_u32..4_500).prop_map(|(queue, bytes)| What::Arrive { queue, bytes }),
        10 => Just(What::Tick),
        1 => (proptest::option::weighted(0.8, cycles()), -50_i64..200)
            .prop_map(|(cycle, not_before)| What::SetWindows { cycle, not_before }),
        2 => proptest::bool::weighted(0.8).prop_map(What::ClockSync),
        1 => Just(What::RealTimeSeen),
        1 => proptest::sample::subsequence(vec![1, 2, 5, 7, 32], 0..5).prop_map(What::Replace),
    ];
    let step = (when, what).prop_map(|(when, what)| Step { when, what });
    proptest::collection::vec(step, 1..120).prop_map(|mut steps| {
        // Most runs are of a synchronised station.
        steps.insert(0, Step { when: When::After(0), what: What::ClockSync(true) });
        steps
    })
}

fn many_cases() -> ProptestConfig {
    ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn t0_the_machine_does_what_brute_force_does(
        config in configs(),
        cycle in proptest::option::weighted(0.9, cycles()),
        steps in steps(),
    ) {
        play(config, cycle, &steps)?;
    }

    /// Anywhere on the time scale, with any jumps, it neither panics nor loses count nor spins.
    #[test]
    fn t0_extreme_instants_neither_panic_nor_wedge(
        config in configs(),
        cycle in proptest::option::weighted(0.9, cycles()),
        calls in proptest::collection::vec((any::<i64>(), 0_i64..3, 0_u8..6), 1..40),
    ) {
        let queue = index_of(2);
        let windows = cycle.as_ref().map(Cycle::build);
        let mut machine = Machine::new(config, windows.clone(), set_of(&[2])).unwrap();
        let _ = machine.on(at(0), Event::ClockSync(true));
        for (ns, from_edge, kind) in calls {
            let now = at(match kind {
                0 => i64::MAX - from_edge,
                1 => i64::MIN + from_edge,
                _ => ns,
            });
            let event = match kind {
                0..=3 => Event::Arrive { frame: 7_u32, length: FrameLen::new(64).unwrap(), queue },
                4 => Event::SetWindows { windows: windows.clone(), not_before: at(ns) },
                _ => Event::Tick,
            };
            let mut actions = machine.on(now, event);
            for _ in 0..100 {
                if actions.next != Next::Now {
                    break;
                }
                actions = machine.on(now, Event::Tick);
            }
            prop_assert!(actions.next != Next::Now);
            let total = machine.counters().total();
            let gone = total.released + total.dropped_full + total.dropped_oversize;
            prop_assert_eq!(total.arrived, gone + total.depth);
        }
    }
}

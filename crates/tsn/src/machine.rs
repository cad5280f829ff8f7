// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine itself: which frame leaves when.

use timewire_base::{CyclicWindows, FrameLen, Instant, Span, Tai};

use crate::queue::{Queues, Waiting};
use crate::selection::tdm::{END_OF_TIME, Opening, START_OF_TIME, StationWindows, span_between};
use crate::selection::{Choice, Held, select};
use crate::{Config, Counters, MacError, Mode, Pending, QueueIndex, QueueSet};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<F> {
    /// A frame wants to leave.
    Arrive {
        /// The caller's handle of the frame; comes back in [`Actions`] exactly once.
        frame: F,
        /// Its length, from which follows how long the line will be busy.
        length: FrameLen,
        /// Its queue. One that is not in the set (any more) means the default queue.
        queue: QueueIndex,
    },
    /// Nothing but time passed.
    Tick,
    /// Other windows, or `None` for no windows: then frames leave at once.
    ///
    /// Hitless: the present windows hold until the [config change time](Pending), and no frame is
    /// on the line across it. That is the first cycle start of the new windows (of the present ones
    /// when there are no new ones) at or after `now`, `not_before`, and the end of what is already
    /// handed to the device with its margin. So the stations of a segment agree on it as long as
    /// each hears of the change before `not_before` by at least the margin, the advance and its
    /// longest frame; [`Machine::pending`] shows what came of it. A change that is still pending is
    /// replaced.
    SetWindows {
        /// The windows to come.
        windows: Option<CyclicWindows>,
        /// Earliest time of the change.
        not_before: Instant<Tai>,
    },
    /// Whether the clock is synchronised; a machine starts as if it were not.
    ///
    /// Without synchronisation nobody knows whose window it is, so nothing leaves that is bound to
    /// one, prioritised or not. The frames that carry the synchronisation itself must therefore not
    /// depend on this machine.
    ClockSync(bool),
    /// Real-time traffic of another station was observed; see [`Mode::Hybrid`].
    RealTimeSeen,
}

/// What to do now: at most one frame per call, so that the clock is read again before every frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a frame that is not transmitted is lost without a counter"]
pub struct Actions<F> {
    /// The frame to hand to the device at once.
    pub transmit: Option<F>,
    /// A frame that will never be transmitted.
    pub dropped: Option<(F, DropReason)>,
    /// Windows no longer needed, to be freed where freeing memory does no harm.
    pub retired: Option<CyclicWindows>,
    /// When to call again.
    pub next: Next,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Its queue was full.
    Full,
    /// It fits no window of this station, not even an empty one.
    Oversize,
}

/// When to call with [`Event::Tick`] unless another event comes first. An earlier or later call
/// does no harm, and may find nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this instant, after the `now` of the call.
    At(Instant<Tai>),
    /// Not before another event.
    WhenFrameArrives,
    /// At once, with the clock read again.
    Now,
}

/// The transmission machine of one station. `F` is the caller's handle of a frame, copied and never
/// looked into.
///
/// A frame is released at `now` when its start, `max(now, line free)`, is at most
/// [`Config::ahead`] away, lies in a window, and start + margin + duration is no later than the end
/// of that window. Windows that touch are still separate windows.
///
/// **Order.** Queues are asked the most urgent first, and the first frame of a queue stands for the
/// queue. Where it does not fit the rest of the window, the next queue is asked: what leaves then
/// ends inside this window, and the longer, more urgent frame could not start before the next one
/// anyway. So a frame leaves before a more urgent one only when that does not fit what remains of
/// the window, or, for a best-effort frame, when [`Config::best_effort_share`] says so.
///
/// **Too long.** A frame that, with the margin, is longer than every window is dropped when it
/// arrives, or, when the windows have changed under it, once it is first in its queue. Best-effort
/// frames of [`Mode::Hybrid`] are bound by this only while they are bound to windows.
///
/// **Clock.** `now` must be read for each call. A step back is noticed and counted, and what is
/// left on the line is carried over to the new time; a step forward looks like a late call.
pub struct Machine<F> {
    config: Config,
    windows: StationWindows,
    queues: Queues<F>,
    set: QueueSet,
    synchronised: bool,
    /// `now` of the last call, `None` before the first.
    last_call: Option<Instant<Tai>>,
    /// When the line has carried everything released so far, without margin.
    line_free_at: Instant<Tai>,
    /// When real-time traffic was last known to exist.
    real_time_seen: Instant<Tai>,
    /// Start of the window that `real_time_used` is about.
    used_window: Instant<Tai>,
    /// Line time that prioritised frames took of that window.
    real_time_used: Span,
    counters: Counters,
}

/// Until when a frame that starts now may stay on the line.
struct Until {
    /// For prioritised frames; `None` when they may not start.
    real_time: Option<Instant<Tai>>,
    /// For best-effort frames.
    best_effort: Option<Instant<Tai>>,
    /// Whether best-effort frames are bound to windows.
    bound: bool,
}

impl<F: Copy> Machine<F> {
    /// A machine without frames and without synchronisation. With `windows: None`, frames leave at
    /// once, the most urgent first, as fast as the link takes them.
    ///
    /// Everything that the machine will ever need is allocated here. The memory is reserved but not
    /// touched: a real-time caller has it locked.
    ///
    /// **Errors**: a negative or too long time, or a queue capacity out of bounds.
    pub fn new(
        config: Config,
        windows: Option<CyclicWindows>,
        queues: QueueSet,
    ) -> Result<Machine<F>, MacError> {
        config.check()?;
        Ok(Machine {
            config,
            windows: StationWindows::new(windows),
            queues: Queues::new(config.queue_capacity),
            set: queues,
            synchronised: false,
            last_call: None,
            line_free_at: START_OF_TIME,
            real_time_seen: START_OF_TIME,
            used_window: START_OF_TIME,
            real_time_used: Span::ZERO,
            counters: Counters::new(),
        })
    }

    /// Takes an event and says what to do. Any event may release a frame.
    pub fn on(&mut self, now: Instant<Tai>, event: Event<F>) -> Actions<F> {
        let mut actions =
            Actions { transmit: None, dropped: None, retired: None, next: Next::WhenFrameArrives };
        self.notice_time(now, &mut actions);
        match event {
            Event::Tick => {}
            Event::Arrive { frame, length, queue } => {
                let reason = self.arrive(now, frame, length, queue);
                actions.dropped = reason.map(|reason| (frame, reason));
            }
            Event::SetWindows { windows, not_before } => {
                let line_clear = self.line_free_at.saturating_add(self.config.margin);
                // One call retires one thing at most: had a change just taken effect, none would be
                // left to replace.
                let replaced = self.windows.change(windows, now.max(not_before).max(line_clear));
                actions.retired = actions.retired.take().or(replaced);
            }
            Event::ClockSync(synchronised) => self.clock_sync(now, synchronised),
            Event::RealTimeSeen => self.real_time_seen = now,
        }
        actions.next = self.serve(now, &mut actions);
        actions
    }

    /// Replaces the set of queues at run time. No frame moves and none is lost: a queue that is no
    /// longer in the set takes no more frames (they go to the default queue) and keeps its priority
    /// until the frames that wait in it have left.
    pub fn replace_queues(&mut self, queues: QueueSet) {
        self.set = queues;
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the machine was built with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The queues that take frames.
    pub fn queues(&self) -> QueueSet {
        self.set
    }

    /// The windows in effect.
    pub fn windows(&self) -> Option<&CyclicWindows> {
        self.windows.windows()
    }

    /// The change of windows to come.
    pub fn pending(&self) -> Option<&Pending> {
        self.windows.pending()
    }

    /// Whether the machine was told that the clock is synchronised.
    pub fn is_synchronised(&self) -> bool {
        self.synchronised
    }

    /// When the line has carried everything released so far, at the link's rate and without margin.
    /// Right after a frame was released: when that frame ends.
    pub fn line_free_at(&self) -> Instant<Tai> {
        self.line_free_at
    }

    /// Everything that follows from the time alone: steps back, missed windows, a change that is
    /// due.
    fn notice_time(&mut self, now: Instant<Tai>, actions: &mut Actions<F>) {
        let last = self.last_call.replace(now).unwrap_or_else(|| {
            self.real_time_seen = now;
            now
        });
        if now < last {
            self.counters.clock_steps_back += 1;
            let left = span_between(last, self.line_free_at).max(Span::ZERO);
            self.line_free_at = now.saturating_add(left);
            self.real_time_seen = self.real_time_seen.min(now);
        }
        let change_time = self.windows.change_time();
        self.count_missed(last, now.min(change_time));
        if change_time <= now && self.windows.pending().is_some() {
            actions.retired = self.windows.take_effect();
            self.counters.schedule_changes += 1;
            self.used_window = START_OF_TIME;
            let just_before = change_time.saturating_add(Span::from_ns(-1));
            self.count_missed(last.max(just_before), now);
        }
    }

    /// Counts the windows that waiting frames could have used after the call `last`, had there been
    /// one before `now`.
    fn count_missed(&mut self, last: Instant<Tai>, now: Instant<Tai>) {
        if self.queues.is_empty() || !self.synchronised || self.windows.is_quiet(last, now) {
            return;
        }
        if self.is_bound(now)
            && let Some(shortest) = self.queues.heads().map(|(_, head)| head.duration).min()
        {
            let need = shortest + self.config.margin;
            let missed = self.windows.missed(last, now, self.line_free_at, need);
            // Saturates: a clock that jumps by years passes over any number of windows.
            self.counters.missed_windows = self.counters.missed_windows.saturating_add(missed);
        }
    }

    fn arrive(
        &mut self,
        now: Instant<Tai>,
        frame: F,
        length: FrameLen,
        queue: QueueIndex,
    ) -> Option<DropReason> {
        let queue = self.set.or_default(queue);
        if !queue.is_default() {
            self.real_time_seen = now;
        }
        let bound = self.is_bound(now);
        let duration = self.config.rate.duration_of(length.wire_len());
        let counters = self.counters.queue_mut(queue);
        counters.arrived += 1;
        if self.is_oversize(queue, duration, bound) {
            self.counters.queue_mut(queue).dropped_oversize += 1;
            return Some(DropReason::Oversize);
        }
        if !self.queues.push(queue, Waiting { frame, duration }) {
            self.counters.queue_mut(queue).dropped_full += 1;
            return Some(DropReason::Full);
        }
        let counters = self.counters.queue_mut(queue);
        counters.depth += 1;
        counters.high_water = counters.high_water.max(counters.depth);
        if !self.synchronised && self.needs_window(queue, bound) {
            self.counters.held_unsynchronised += 1;
        }
        None
    }

    fn clock_sync(&mut self, now: Instant<Tai>, synchronised: bool) {
        if self.synchronised && !synchronised {
            self.synchronised = false;
            let bound = self.is_bound(now);
            let held = self.queues.heads().map(|(queue, _)| queue);
            let held = held.filter(|&queue| self.needs_window(queue, bound));
            self.counters.held_unsynchronised +=
                held.map(|queue| self.counters.queue(queue).depth).sum::<u64>();
        }
        self.synchronised = synchronised;
    }

    /// Whether best-effort frames are bound to windows; see [`Mode`].
    fn is_bound(&self, now: Instant<Tai>) -> bool {
        match self.config.mode {
            Mode::Tdm => true,
            Mode::Hybrid { idle_after } => {
                (self.synchronised && self.queues.has_real_time())
                    || now < self.real_time_seen.saturating_add(idle_after)
            }
        }
    }

    fn needs_window(&self, queue: QueueIndex, bound: bool) -> bool {
        self.windows.windows().is_some() && (bound || !queue.is_default())
    }

    fn is_oversize(&self, queue: QueueIndex, duration: Span, bound: bool) -> bool {
        duration + self.config.margin > self.windows.longest() && self.needs_window(queue, bound)
    }

    /// Releases or drops one frame where it can, and says when to look again.
    fn serve(&mut self, now: Instant<Tai>, actions: &mut Actions<F>) -> Next {
        let change_time = self.windows.change_time();
        if self.queues.is_empty() {
            return wake(now, change_time);
        }
        let start = now.max(self.line_free_at);
        if span_between(now, start) > self.config.ahead {
            return wake(now, self.line_hungry_at());
        }
        if start >= change_time {
            // The change takes effect with the next call; until then nothing is judged.
            return wake(now, change_time);
        }
        let opening = self.windows.look(start);
        let until = self.until(now, opening, change_time);
        match self.choose(start, opening, &until) {
            Choice::Send(queue) => {
                actions.transmit = self.release(queue, start, opening);
                if self.queues.is_empty() {
                    wake(now, change_time)
                } else {
                    wake(now, self.line_hungry_at())
                }
            }
            Choice::NeverFits(queue) => {
                if actions.dropped.is_none() {
                    actions.dropped = self.drop_head(queue);
                }
                Next::Now
            }
            Choice::Wait(()) => self.wait(now, opening, &until, change_time),
        }
    }

    /// Until when a frame that starts in `opening` may be on the line. Nothing crosses a change.
    fn until(&self, now: Instant<Tai>, opening: Opening, change_time: Instant<Tai>) -> Until {
        let bound = self.is_bound(now);
        let real_time = match opening {
            Opening::Always => Some(change_time),
            Opening::Inside { end, .. } if self.synchronised => Some(end.min(change_time)),
            Opening::Inside { .. } | Opening::Before { .. } | Opening::Never => None,
        };
        Until { real_time, best_effort: if bound { real_time } else { Some(change_time) }, bound }
    }

    fn choose(
        &self,
        start: Instant<Tai>,
        opening: Opening,
        until: &Until,
    ) -> Choice<QueueIndex, ()> {
        let heads = self.queues.heads().map(|(queue, head)| (queue, head.duration));
        let may_go = |(queue, duration): (QueueIndex, Span)| {
            let end = if queue.is_default() { until.best_effort } else { until.real_time };
            if self.fits(start, duration, end) {
                Ok(())
            } else if self.is_oversize(queue, duration, until.bound) {
                Err(Held::NeverFits)
            } else {
                Err(Held::Until(()))
            }
        };
        match select(heads, may_go) {
            Choice::Send((queue, duration)) => {
                let yields = !queue.is_default()
                    && self.leaves_share(start, duration, opening, until.best_effort);
                Choice::Send(if yields { QueueIndex::DEFAULT } else { queue })
            }
            Choice::NeverFits((queue, _)) => Choice::NeverFits(queue),
            Choice::Wait(()) => Choice::Wait(()),
        }
    }

    /// The one rule that keeps frames inside their windows.
    fn fits(&self, start: Instant<Tai>, duration: Span, end: Option<Instant<Tai>>) -> bool {
        end.is_some_and(|end| duration + self.config.margin <= span_between(start, end))
    }

    /// Whether a prioritised frame leaves the line to the waiting best-effort frame, because the
    /// share says so and that frame can use it.
    fn leaves_share(
        &self,
        start: Instant<Tai>,
        duration: Span,
        opening: Opening,
        end: Option<Instant<Tai>>,
    ) -> bool {
        let Opening::Inside { start: window, end: window_end } = opening else {
            return false;
        };
        let most = span_between(window, window_end) - self.config.best_effort_share;
        // The first prioritised frame finds another window used, and may go.
        self.config.best_effort_share > Span::ZERO
            && self.used_window == window
            && self.real_time_used_with(duration) > most
            && self
                .queues
                .head(QueueIndex::DEFAULT)
                .is_some_and(|head| self.fits(start, head.duration, end))
    }

    fn real_time_used_with(&self, duration: Span) -> Span {
        self.real_time_used.checked_add(duration).unwrap_or(Span::MAX)
    }

    fn release(&mut self, queue: QueueIndex, start: Instant<Tai>, opening: Opening) -> Option<F> {
        let Waiting { frame, duration } = self.queues.pop(queue)?;
        self.line_free_at = start.saturating_add(duration);
        if let Opening::Inside { start: window, .. } = opening
            && !queue.is_default()
        {
            if self.used_window != window {
                self.used_window = window;
                self.real_time_used = Span::ZERO;
            }
            self.real_time_used = self.real_time_used_with(duration);
        }
        let counters = self.counters.queue_mut(queue);
        counters.released += 1;
        counters.depth -= 1;
        Some(frame)
    }

    fn drop_head(&mut self, queue: QueueIndex) -> Option<(F, DropReason)> {
        let Waiting { frame, .. } = self.queues.pop(queue)?;
        let counters = self.counters.queue_mut(queue);
        counters.dropped_oversize += 1;
        counters.depth -= 1;
        Some((frame, DropReason::Oversize))
    }

    /// When a frame that cannot leave now may be able to.
    fn wait(
        &self,
        now: Instant<Tai>,
        opening: Opening,
        until: &Until,
        change_time: Instant<Tai>,
    ) -> Next {
        let window = match opening {
            Opening::Before { start } if self.synchronised => start,
            Opening::Inside { end, .. } if self.synchronised => self.windows.next_start(end),
            _ => END_OF_TIME,
        };
        let idle = match self.config.mode {
            Mode::Hybrid { idle_after }
                if until.bound && self.queues.head(QueueIndex::DEFAULT).is_some() =>
            {
                let idle = self.real_time_seen.saturating_add(idle_after);
                if idle > now { idle } else { END_OF_TIME }
            }
            Mode::Hybrid { .. } | Mode::Tdm => END_OF_TIME,
        };
        wake(now, window.min(idle).min(change_time))
    }

    /// When the device may take the next frame.
    fn line_hungry_at(&self) -> Instant<Tai> {
        self.line_free_at.saturating_add(-self.config.ahead)
    }
}

/// Calls again at an instant; the end of time means never.
fn wake(now: Instant<Tai>, at: Instant<Tai>) -> Next {
    if at == END_OF_TIME {
        Next::WhenFrameArrives
    } else if at <= now {
        Next::Now
    } else {
        Next::At(at)
    }
}

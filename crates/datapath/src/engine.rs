// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time thread around the machine: takes frames in, asks the machine, sends what it
//! releases, and waits exactly as long as it says. The clock is read anew before every frame, so a
//! thread that was held up sends nothing it should not: it waits for the next slot.
//!
//! Nothing is allocated and no lock is waited for once it runs.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use timewire_base::drops::Heard;
use timewire_base::{CyclicWindows, FrameLen, Instant, Mono, Phase, Span, Tai};
use timewire_stats::LogHistogram;
use timewire_sys::{Frame, clock, event};
use timewire_tsn::{Actions, Event, MacError, Machine, Next, PortRules, QueueIndex, QueueSet};

use crate::egress::Sent;
use crate::mac::{Answer, ClockRule, Command, Mailbox, PortList, Report};
use crate::marks::FrameMarks;
use crate::now;
use crate::receive::{LOOKED_AT, RealTimeProbe};
use crate::socket::MacSockets;

/// Frames taken in at a time.
const BATCH: usize = 64;
/// The longest sleep: a change of the running MAC waits no longer.
const POLL_INTERVAL: Span = Span::from_ms(10);
/// How far TAI and the monotonic clock can stray from each other during the longest sleep.
const STRAY: Span = Span::from_us(20);
/// How often the clock's own state is read.
const CLOCK_LOOK: Span = Span::from_ms(100);
/// In hybrid mode, how often the link is asked for real-time traffic; also the longest wait then.
const PROBE_LOOK: Span = Span::from_ms(1);
/// Send calls up to this long have bins of their own.
const LONGEST_CALL: Span = Span::from_ms(1);

/// Transmit priorities by port, and the queues for them.
#[derive(Clone, Debug)]
pub(crate) struct SendList {
    pub(crate) rules: PortRules,
    pub(crate) queues: QueueSet,
}

impl SendList {
    pub(crate) fn new(list: &PortList) -> Result<SendList, MacError> {
        let rules = list.rules()?;
        let queues = rules.queue_set();
        Ok(SendList { rules, queues })
    }
}

/// What the thread sees that the machine cannot.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Frames lost before the queues, in the kernel's buffer.
    pub ingress_dropped: u64,
    /// Frames the device did not take when they were due, and that were lost: why.
    pub not_sent: Heard,
    /// Frames the device did not take when they were due, and that went with the next one (AF_XDP).
    pub sent_late: u64,
    /// How long the call took that put a frame on the link, the clock read before it included: the
    /// timestamp of the segment is at most this much later than the release.
    pub calls: LogHistogram,
    /// Whether the clock is on time.
    pub on_time: bool,
    /// How often it was and then was not any more.
    pub sync_losses: u64,
}

impl Observation {
    fn new() -> Observation {
        Observation {
            ingress_dropped: 0,
            not_sent: Heard::default(),
            sent_late: 0,
            calls: LogHistogram::up_to(LONGEST_CALL),
            on_time: false,
            sync_losses: 0,
        }
    }
}

/// Everything the thread owns.
pub(crate) struct Engine {
    machine: Machine<Frame>,
    list: Box<SendList>,
    socket: MacSockets,
    spin: Span,
    clock: ClockRule,
    keep_open: bool,
    next_clock_look: Instant<Tai>,
    /// Until when the clock is on time, by the word of somebody who watches it.
    on_time_until: Option<Instant<Mono>>,
    /// In hybrid mode: whether real-time traffic of others exists.
    probe: Option<RealTimeProbe>,
    next_probe: Instant<Tai>,
    real_time_seen: u64,
    mailbox: Arc<Mailbox>,
    wake: Arc<event::Wake>,
    free: Vec<u32>,
    got: Vec<Frame>,
    /// The same, with their queues and in which order they came.
    arrived: Vec<(QueueIndex, u32, Frame)>,
    observed: Observation,
    marks: FrameMarks,
    /// Windows to be freed by the next asker.
    retired: Option<CyclicWindows>,
}

impl Engine {
    /// For the calling thread, which is the one that runs it.
    pub(crate) fn new(
        machine: Machine<Frame>,
        list: SendList,
        mut socket: MacSockets,
        spin: Span,
        (rule, keep_open): (ClockRule, bool),
        probe: Option<RealTimeProbe>,
        (mailbox, wake): (Arc<Mailbox>, Arc<event::Wake>),
    ) -> io::Result<Engine> {
        // Before anybody is told that the MAC runs, and so before the first frame can come.
        let mut free = (0..socket.memory.count()).collect();
        socket.ingress.offer(&mut free);
        Ok(Engine {
            machine,
            list: Box::new(list),
            socket,
            // Where a sleep ends exactly, spinning only makes time pass.
            spin: if clock::is_virtual() { Span::ZERO } else { spin },
            clock: rule,
            keep_open,
            next_clock_look: Instant::from_ns(0),
            on_time_until: None,
            probe,
            next_probe: Instant::from_ns(0),
            real_time_seen: 0,
            mailbox,
            wake,
            free,
            got: Vec::with_capacity(BATCH),
            arrived: Vec::with_capacity(BATCH),
            observed: Observation::new(),
            marks: FrameMarks::open()?,
            retired: None,
        })
    }

    /// Runs until stopped.
    ///
    /// **Errors**: the socket type failed for good (the interface went away), in words.
    pub(crate) fn run(mut self) -> Result<(), String> {
        if self.clock == ClockRule::OneHost {
            self.on_time(true);
        }
        while !self.mailbox.stop.load(Ordering::Acquire) {
            self.look_at_mailbox();
            self.look_at_clock();
            self.look_for_real_time();
            self.take_in()?;
            let next = self.release();
            self.wait(next)?;
        }
        Ok(())
    }

    /// Takes frames of the local stack into the queues.
    fn take_in(&mut self) -> Result<usize, String> {
        let MacSockets { memory, ingress, egress, .. } = &mut self.socket;
        egress.reclaim(&mut self.free);
        let count = ingress
            .receive(memory, &mut self.free, &mut self.got)
            .map_err(|error| format!("cannot read from the stack's interface: {error}"))?;
        for (order, frame) in (0_u32..).zip(self.got.drain(..)) {
            let mut bytes = [0; LOOKED_AT];
            let length = self.socket.memory.copy_prefix(frame, &mut bytes);
            let priority =
                self.list.rules.classify_captured(&bytes[..length], frame.len() as usize);
            self.arrived.push((self.list.queues.queue_for(priority), order, frame));
        }
        // Frames that are taken in at one time have waited together: while the window is open, the
        // first one told of may be gone before the next.
        self.arrived.sort_unstable_by_key(|(queue, order, _)| (*queue, *order));
        for index in 0..self.arrived.len() {
            let (queue, _, frame) = self.arrived[index];
            let length = FrameLen::new(frame.len()).expect("invariant: a frame fits its buffer");
            self.tell(Event::Arrive { frame, length, queue });
        }
        self.arrived.clear();
        Ok(count)
    }

    /// Lets the machine release frames, one per reading of the clock, until it says to wait.
    fn release(&mut self) -> Next {
        loop {
            // Somebody's word ends between two frames, too.
            if self.clock == ClockRule::Watched {
                self.look_at_clock();
            }
            let next = self.tell(Event::Tick);
            if next != Next::Now {
                return next;
            }
        }
    }

    /// Tells the machine what happened, with the clock read now, and does what it answers.
    fn tell(&mut self, event: Event<Frame>) -> Next {
        let at = now();
        let actions = self.machine.on(at, event);
        let (next, released) = (actions.next, actions.transmit.is_some());
        self.carry_out(actions);
        if released {
            self.observed.calls.record(now() - at);
        }
        next
    }

    fn carry_out(&mut self, actions: Actions<Frame>) {
        if actions.retired.is_some() {
            self.retired = actions.retired;
        }
        if let Some((frame, _)) = actions.dropped {
            self.recycle(frame);
        }
        if let Some(frame) = actions.transmit {
            let at = self.marks.before();
            let sent = self.socket.egress.send(&self.socket.memory, frame);
            if !matches!(sent, Sent::Refused(_)) {
                self.marks.sent(at, &self.socket.memory, frame);
            }
            match sent {
                Sent::Refused(errno) => self.observed.not_sent.not_taken(errno),
                Sent::Late => self.observed.sent_late += 1,
                Sent::OnItsWay | Sent::Gone => {}
            }
            if matches!(sent, Sent::Refused(_) | Sent::Gone) {
                self.recycle(frame);
            }
        }
    }

    fn recycle(&mut self, frame: Frame) {
        let buffer = self.socket.memory.buffer_of(frame);
        debug_assert!(self.free.len() < self.free.capacity());
        self.free.push(buffer);
    }

    fn wait(&mut self, next: Next) -> Result<(), String> {
        let at = now();
        match (next, self.machine.windows().and_then(|windows| windows.phase(at))) {
            (Next::Now, _) => Ok(()),
            (Next::At(until), _) => self.wait_until(until),
            // Nothing waits, the window is open: the next frame may go when it comes.
            (Next::WhenFrameArrives, Some(Phase::Inside { end, .. })) => self.wait_for_frame(end),
            // Nothing waits, the window is shut: no use in waking before it opens, unless best
            // effort is not bound to it.
            (Next::WhenFrameArrives, Some(Phase::Before { start, .. })) if self.probe.is_some() => {
                self.wait_for_frame(start)
            }
            (Next::WhenFrameArrives, Some(Phase::Before { start, .. })) => self.wait_until(start),
            (Next::WhenFrameArrives, None) => self.wait_for_frame(at + self.look()),
        }
    }

    /// Waits in the kernel for a frame or a request.
    fn wait_for_frame(&mut self, until: Instant<Tai>) -> Result<(), String> {
        let left = (until - now()).min(self.look());
        if left > Span::ZERO {
            let fds = [self.socket.ingress.as_fd(), self.wake.as_fd()];
            event::wait_readable(&fds, Some(left))
                .map_err(|error| format!("cannot wait for frames: {error}"))?;
        }
        Ok(())
    }

    /// Sleeps to a little before, then spins and takes frames in, so that what comes at the last
    /// moment is there when the window opens.
    fn wait_until(&mut self, until: Instant<Tai>) -> Result<(), String> {
        let doze = until - self.spin;
        let at = now();
        if doze > at {
            // On the clock that never steps: a step back of TAI must not make the sleep longer.
            clock::sleep_until(clock::now::<Mono>() + (doze - at).min(self.look()));
            if doze - at > self.look() {
                return Ok(());
            }
        }
        // What is farther away than the spin is so because the clock stepped back meanwhile.
        loop {
            let left = until - now();
            if left <= Span::ZERO || left > self.spin + STRAY {
                return Ok(());
            }
            self.take_in()?;
            std::hint::spin_loop();
        }
    }

    fn look_at_clock(&mut self) {
        let max_error = match self.clock {
            ClockRule::OneHost => return,
            ClockRule::Watched => {
                let until = self.on_time_until;
                return self.on_time(until.is_some_and(|until| clock::now::<Mono>() < until));
            }
            ClockRule::Synchronised { max_error } => max_error,
        };
        let at = now();
        // Also after the clock stepped back.
        if at < self.next_clock_look && self.next_clock_look - at <= CLOCK_LOOK {
            return;
        }
        self.next_clock_look = at + CLOCK_LOOK;
        let good = clock::discipline()
            .is_ok_and(|state| state.synchronised && state.max_error <= max_error);
        self.on_time(good);
    }

    /// Tells the machine when the clock has become on time, or is no more.
    fn on_time(&mut self, good: bool) {
        if good == self.observed.on_time {
            return;
        }
        self.observed.on_time = good;
        self.observed.sync_losses += u64::from(!good);
        if good || !self.keep_open {
            self.tell(Event::ClockSync(good));
        }
    }

    fn look_for_real_time(&mut self) {
        let Some(probe) = &self.probe else { return };
        let at = now();
        if at < self.next_probe && self.next_probe - at <= PROBE_LOOK {
            return;
        }
        self.next_probe = at + PROBE_LOOK;
        let seen = probe.read();
        if seen != self.real_time_seen {
            self.real_time_seen = seen;
            self.tell(Event::RealTimeSeen);
        }
    }

    /// The longest wait.
    fn look(&self) -> Span {
        if self.probe.is_some() { PROBE_LOOK } else { POLL_INTERVAL }
    }

    fn look_at_mailbox(&mut self) {
        if !self.mailbox.asked.load(Ordering::Acquire) {
            return;
        }
        let mailbox = Arc::clone(&self.mailbox);
        let Ok(mut exchange) = mailbox.slot.try_lock() else {
            return;
        };
        self.wake.clear();
        self.mailbox.asked.store(false, Ordering::Release);
        let Some(command) = exchange.command.take() else {
            return;
        };
        let answer = match command {
            Command::SetWindows { windows, not_before } => {
                self.tell(Event::SetWindows { windows, not_before });
                Answer::Done
            }
            Command::SetSend(mut list) => {
                self.machine.replace_queues(list.queues);
                std::mem::swap(&mut self.list, &mut list);
                Answer::Replaced(list)
            }
            Command::OnTime(until) => {
                self.on_time_until = until;
                Answer::Done
            }
            Command::Report => {
                // The one command that allocates: asked for by a person, between two slots.
                self.observed.ingress_dropped = self.socket.ingress.dropped().unwrap_or(0);
                Answer::Status(Box::new(Report {
                    counters: self.machine.counters().clone(),
                    observed: self.observed.clone(),
                    windows: self.machine.windows().cloned(),
                    pending: self.machine.pending().cloned(),
                }))
            }
        };
        exchange.retired = self.retired.take();
        exchange.answer = Some(answer);
    }
}

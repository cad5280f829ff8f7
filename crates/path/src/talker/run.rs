// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a talker, over any port and any clock.
//!
//! Not here: which frame is due (`timetable`), opening ports (`crate::transmit`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::{clock, event};
use timewire_trace::stream::histogram::LogHistogram;

use super::fill::{Draft, Filled};
use super::header::Template;
use super::ledger::{Ledger, Stamped};
use super::live::LiveCounters;
use super::post::{Bell, PostBox};
use super::report::{StampFaults, StreamCounters, StreamReport, TalkerReport};
use super::timetable::{Due, Miss, Plan, Sleep, Timetable};
use super::{StreamEvent, StreamEventKind, StreamSpec};
use crate::probe::Probe;
use crate::transmit::{LaunchRefusal, NotSent, Sent, Transmitter, TxReport, TxTaps};

/// The longest sleep, after which it is looked whether to stop.
const LOOK: Span = Span::from_ms(20);
/// Before a frame is due there must be so much time to read what came back.
const READING: Span = Span::from_us(20);
/// Rounds after which it is read all the same.
const ROUNDS: u32 = 16;
/// How often a port is read that has nothing to tell but errors.
const RARELY: Span = Span::from_ms(100);
/// Frames after which everything is flushed, though more are due: as many as one call takes.
const ROUND: u32 = 32;
/// How long after a launch time its refusal may still come.
const AFTER_LAUNCH: Span = Span::from_ms(5);
/// Up to which how late something was is told by bins.
const LATEST: Span = Span::from_secs(1);
/// How long to wait for the last stamps, unless it is said.
const LAST: Span = Span::from_ms(50);

/// What a run calls.
pub(crate) struct Hooks<'a> {
    /// Whether to stop.
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// Writes what a message of a cycle carries; without, zeros.
    pub(crate) fill: Option<&'a mut dyn FnMut(Draft<'_>) -> Filled>,
    /// Hears of each message.
    pub(crate) on: &'a mut dyn FnMut(StreamEvent),
}

/// What the loop needs of a port.
pub(crate) trait Port {
    fn message_buffer(&mut self, length: usize) -> Option<&mut [u8]>;
    fn send(
        &mut self,
        length: usize,
        to: Option<SocketAddr>,
        launch: Option<Instant<Tai>>,
    ) -> Result<Sent, NotSent>;
    fn flush(&mut self) -> u32;
    fn reports(&mut self, on: &mut dyn FnMut(TxReport)) -> io::Result<()>;
    fn has_reports(&self) -> bool;
    fn taps(&self) -> TxTaps;
    fn stamps_per_message(&self) -> u32;
    fn lost_reports(&self) -> u64;
}

impl Port for Transmitter {
    fn message_buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        Transmitter::message_buffer(self, length)
    }
    fn send(
        &mut self,
        length: usize,
        to: Option<SocketAddr>,
        launch: Option<Instant<Tai>>,
    ) -> Result<Sent, NotSent> {
        Transmitter::send(self, length, to, launch)
    }
    fn flush(&mut self) -> u32 {
        Transmitter::flush(self)
    }
    fn reports(&mut self, on: &mut dyn FnMut(TxReport)) -> io::Result<()> {
        Transmitter::reports(self, on)
    }
    fn has_reports(&self) -> bool {
        Transmitter::has_reports(self)
    }
    fn taps(&self) -> TxTaps {
        Transmitter::taps(self)
    }
    fn stamps_per_message(&self) -> u32 {
        Transmitter::stamps_per_message(self)
    }
    fn lost_reports(&self) -> u64 {
        Transmitter::lost_reports(self)
    }
}

/// What the loop needs of a clock.
pub(crate) trait Clock {
    fn now(&self) -> Instant<Tai>;
    /// Waits until a time, or shorter when a message was posted; returns when its sleep was to end
    /// and when it did, if it slept so long.
    fn wait(&mut self, until: Instant<Tai>, posted: bool) -> Option<(Instant<Tai>, Instant<Tai>)>;
}

/// TAI of this host, sleeping and spinning.
#[derive(Debug)]
pub(crate) struct SystemClock {
    pub(crate) spin: Span,
    bell: Arc<Bell>,
}

impl SystemClock {
    pub(crate) fn new(bell: Arc<Bell>) -> SystemClock {
        SystemClock { spin: Span::from_us(60), bell }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant<Tai> {
        clock::now()
    }

    fn wait(&mut self, until: Instant<Tai>, posted: bool) -> Option<(Instant<Tai>, Instant<Tai>)> {
        // In virtual time a sleep ends exactly, and spinning only makes time pass.
        let spin = if clock::is_virtual() { Span::ZERO } else { self.spin };
        let target = until - spin;
        if posted {
            let left = Span::from_ns(target.as_ns() - clock::now::<Tai>().as_ns());
            // It fails for no reason that sleeping shorter would not show.
            let woken = left > Span::ZERO
                && event::wait_readable(&[self.bell.wake.as_fd()], Some(left)).unwrap_or(true);
            if woken {
                self.bell.wake.clear();
                return None;
            }
        } else {
            clock::sleep_until(target);
        }
        let woke = clock::now::<Tai>();
        while clock::now::<Tai>() < until {
            std::hint::spin_loop();
        }
        Some((target, woke))
    }
}

/// A stream as the loop knows it.
#[derive(Debug)]
pub(crate) struct Line {
    number: u16,
    port: usize,
    template: Template,
    to: Option<SocketAddr>,
    payload: usize,
    plain: bool,
    launch_lead: Option<Span>,
    /// After it was filled it may be past its deadline.
    deadline: Span,
    send_late: bool,
    seq: u32,
    counters: StreamCounters,
    lateness: LogHistogram,
    latest: Span,
}

impl Line {
    pub(crate) fn new(
        spec: &StreamSpec,
        plan: &Plan,
        template: Template,
        to: Option<SocketAddr>,
    ) -> Line {
        Line {
            number: spec.number,
            port: spec.port,
            template,
            to,
            payload: spec.payload,
            plain: spec.plain,
            launch_lead: spec.launch_lead,
            deadline: plan.deadline,
            send_late: plan.send_late,
            seq: 0,
            counters: StreamCounters::default(),
            lateness: LogHistogram::up_to(LATEST),
            latest: Span::ZERO,
        }
    }

    /// With the stamps that have not come back.
    fn counters(&self, per_message: u32) -> StreamCounters {
        let expected = self.counters.sent * u64::from(per_message);
        let stamps_missing = expected.saturating_sub(self.counters.stamps);
        StreamCounters { stamps_missing, ..self.counters }
    }

    /// The number of the next message.
    fn next_seq(&mut self) -> u32 {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        seq
    }

    /// Where the content of the next message is written, behind the headers of its frame; without a
    /// buffer it is counted.
    fn message<'a>(
        &mut self,
        ports: &'a mut [impl Port],
        content: usize,
        seq: u32,
    ) -> Option<&'a mut [u8]> {
        let buffer = ports[self.port].message_buffer(self.template.total(content));
        self.counters.not_taken += u64::from(buffer.is_none());
        Some(self.template.write(buffer?, content, seq))
    }
}

/// A message whose time has come.
#[derive(Clone, Copy, Debug)]
struct Instance {
    /// The place of its stream.
    stream: usize,
    due: Instant<Tai>,
    /// When it is written.
    now: Instant<Tai>,
    /// Whether its deadline has passed.
    late: bool,
}

/// Everything but the clock and the timetable.
#[derive(Debug)]
pub(crate) struct Engine<P> {
    ports: Vec<P>,
    ledgers: Vec<Ledger>,
    /// When each port was read last.
    read: Vec<Instant<Tai>>,
    lines: Vec<Line>,
    /// The line of each number of a stream.
    by_number: Vec<u32>,
    posts: PostBox,
    wake_lateness: LogHistogram,
    busy_rounds: u64,
    rounds_unread: u32,
    delayed: u64,
    other_errors: u64,
    unknown_reports: u64,
    last_launch: Option<Instant<Tai>>,
    live: Option<Arc<LiveCounters>>,
    last_wait: Span,
}

impl<P: Port> Engine<P> {
    pub(crate) fn new(ports: Vec<P>, lines: Vec<Line>, posts: PostBox) -> Engine<P> {
        let most = lines.iter().map(|line| usize::from(line.number)).max().unwrap_or(0);
        let mut by_number = vec![u32::MAX; most + 1];
        for (index, line) in (0..).zip(&lines) {
            by_number[usize::from(line.number)] = index;
        }
        let ledger = |(index, port): (usize, &P)| {
            let here = lines.iter().filter(|line| line.port == index);
            let ahead = here.filter_map(|line| line.launch_lead).max();
            Ledger::new(0, port.taps(), ahead.unwrap_or(Span::ZERO).max(Span::ZERO))
        };
        Engine {
            ledgers: ports.iter().enumerate().map(ledger).collect(),
            read: vec![Instant::from_ns(0); ports.len()],
            ports,
            lines,
            by_number,
            posts,
            wake_lateness: LogHistogram::up_to(LATEST),
            busy_rounds: 0,
            rounds_unread: 0,
            delayed: 0,
            other_errors: 0,
            unknown_reports: 0,
            last_launch: None,
            live: None,
            last_wait: LAST,
        }
    }

    pub(crate) fn set_last_wait(&mut self, wait: Span) {
        self.last_wait = wait;
    }

    /// Where the counters are stored from now on after each change.
    pub(crate) fn live(&mut self) -> Arc<LiveCounters> {
        let numbers = self.lines.iter().map(|line| line.number);
        let live = self.live.get_or_insert_with(|| Arc::new(LiveCounters::new(numbers)));
        let live = Arc::clone(live);
        (0..self.lines.len()).for_each(|index| self.publish(index));
        live
    }

    fn publish(&self, index: usize) {
        if let Some(live) = &self.live {
            let line = &self.lines[index];
            live.store(index, &self.counters(line), line.latest);
        }
    }

    fn counters(&self, line: &Line) -> StreamCounters {
        line.counters(self.ports[line.port].stamps_per_message())
    }

    pub(crate) fn ports(&self) -> &[P] {
        &self.ports
    }

    pub(crate) fn run(
        &mut self,
        table: &mut Timetable,
        clock: &mut impl Clock,
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_>,
    ) -> io::Result<()> {
        let has_posts = self.posts.has_posters();
        let mut sleep = Sleep { from: clock.now(), until: clock.now() };
        while !(hooks.stop)() {
            let now = clock.now();
            let due = table.next_due();
            let due = due.filter(|due| end.is_none_or(|end| *due < end));
            let is_over = end.is_some_and(|end| now >= end);
            if due.is_none() && (is_over || !has_posts) {
                break;
            }
            let until = due.unwrap_or(now + LOOK).min(now + LOOK);
            if until > now {
                if !has_posts || self.posts.may_sleep() {
                    sleep.from = now;
                    let slept = clock.wait(until, has_posts);
                    if let Some((target, woke)) = slept.filter(|_| due == Some(until))
                        && target > now
                    {
                        self.wake_lateness.record(Span::from_ns(woke.as_ns() - target.as_ns()));
                    }
                    sleep.until = clock.now();
                }
            } else {
                self.busy_rounds += 1;
            }
            self.send_due(table, clock, sleep, end, hooks);
            self.send_posted(clock, hooks);
            for port in &mut self.ports {
                self.delayed += u64::from(port.flush());
            }
            self.read_some(table.next_due(), clock.now(), hooks.on)?;
        }
        // What is dropped because of its launch time is told when that has come.
        let tells = self.last_launch.map_or(clock.now(), |launch| launch + AFTER_LAUNCH);
        let last = tells.max(clock.now() + self.last_wait);
        while (self.misses_stamps() || clock.now() < tells) && clock.now() < last {
            let until = clock.now() + Span::from_ms(1);
            clock.wait(until, false);
            self.read_all(clock.now(), hooks.on)?;
        }
        self.read_all(clock.now(), hooks.on)
    }

    fn send_due(
        &mut self,
        table: &mut Timetable,
        clock: &impl Clock,
        sleep: Sleep,
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_>,
    ) {
        let mut now = clock.now();
        let is_before_end = |due| end.is_none_or(|end| due < end);
        for _ in 0..ROUND {
            if !table.next_due().is_some_and(is_before_end) {
                break;
            }
            match table.take(now, sleep) {
                None => break,
                Some(Due::Skip { stream, frames, why }) => {
                    let line = &mut self.lines[stream];
                    let (number, seq) = (line.number, line.seq);
                    line.counters.planned += frames;
                    // The numbers of what was left out are missing at the listener: it counts them
                    // as lost, which they are to its program.
                    line.seq = line.seq.wrapping_add(wrap(frames));
                    match why {
                        Miss::WokeLate => line.counters.skipped_woke_late += frames,
                        Miss::Overran => line.counters.skipped_overran += frames,
                    }
                    self.publish(stream);
                    let what = StreamEventKind::Skipped { messages: frames };
                    (hooks.on)(StreamEvent { stream: number, seq, what });
                }
                Some(Due::Send { stream, due, late }) => {
                    self.send_cyclic(clock, Instance { stream, due, now, late }, hooks);
                    now = clock.now();
                }
            }
        }
    }

    fn send_posted(&mut self, clock: &impl Clock, hooks: &mut Hooks<'_>) {
        for _ in 0..ROUND {
            let Some(post) = self.posts.take() else { return };
            let (stream, now) = (post.stream, clock.now());
            let line = &mut self.lines[stream];
            line.counters.planned += 1;
            if post.deadline.is_some_and(|deadline| now > deadline) {
                line.counters.expired += 1;
            } else {
                let seq = line.next_seq();
                if let Some(message) = line.message(&mut self.ports, post.length, seq) {
                    message.copy_from_slice(&post.buffer[..post.length]);
                    let instance = Instance { stream, due: now, now, late: false };
                    self.push(instance, seq, post.length, None, hooks);
                }
            }
            self.publish(stream);
            self.posts.give_back(post);
        }
    }

    /// Sends the message of a cycle: its header and what fills it.
    fn send_cyclic(&mut self, clock: &impl Clock, mut it: Instance, hooks: &mut Hooks<'_>) {
        let line = &mut self.lines[it.stream];
        line.counters.planned += 1;
        let seq = line.next_seq();
        let launch = line.launch_lead.map(|lead| it.due + lead);
        let (number, length, is_plain) = (line.number, line.payload, line.plain);
        if let Some(message) = line.message(&mut self.ports, length, seq) {
            let (header, payload) = message.split_at_mut(if is_plain { 0 } else { Probe::LEN });
            payload.fill(0);
            let mut left_out = None;
            if let Some(fill) = &mut hooks.fill {
                let draft = Draft { stream: number, seq, due: it.due, launch, payload };
                let filled = fill(draft);
                it.now = clock.now();
                it.late = it.now > it.due.saturating_add(line.deadline);
                left_out = match filled {
                    Filled::LeaveOut => Some(&mut line.counters.not_filled),
                    Filled::Send if it.late && !line.send_late => {
                        Some(&mut line.counters.skipped_overran)
                    }
                    Filled::Send => None,
                };
            }
            if let Some(counter) = left_out {
                // The buffer is lent again for the next message.
                *counter += 1;
                let what = StreamEventKind::Skipped { messages: 1 };
                (hooks.on)(StreamEvent { stream: number, seq, what });
            } else {
                if !is_plain {
                    let (time, is_launch) = (launch.unwrap_or(it.now), launch.is_some());
                    Probe { stream: number, seq, time, is_launch }.write(header);
                }
                self.push(it, seq, length, launch, hooks);
            }
        }
        self.publish(it.stream);
    }

    /// Lets the message that was written go with the next flush.
    fn push(
        &mut self,
        Instance { stream, due, now, late }: Instance,
        seq: u32,
        content: usize,
        launch: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_>,
    ) {
        let line = &mut self.lines[stream];
        match self.ports[line.port].send(line.template.total(content), line.to, launch) {
            Ok(Sent { id }) => {
                self.ledgers[line.port].note(id, (line.number, seq), launch, now);
                line.counters.sent += 1;
                self.last_launch = self.last_launch.max(launch);
                line.counters.past_deadline += u64::from(late);
                let lateness = Span::from_ns(now.as_ns() - due.as_ns());
                line.lateness.record(lateness);
                line.latest = line.latest.max(lateness);
                let what = StreamEventKind::Sent { due, at: now, launch };
                (hooks.on)(StreamEvent { stream: line.number, seq, what });
            }
            Err(NotSent::Full) => line.counters.not_taken += 1,
            Err(NotSent::Refused(_)) => line.counters.refused += 1,
        }
    }

    /// Reads what came back, if there is time before the next frame is due.
    fn read_some(
        &mut self,
        next: Option<Instant<Tai>>,
        now: Instant<Tai>,
        on: &mut dyn FnMut(StreamEvent),
    ) -> io::Result<()> {
        let has_time = next.is_none_or(|next| next > now + READING);
        if !has_time && self.rounds_unread < ROUNDS {
            self.rounds_unread += 1;
            return Ok(());
        }
        self.rounds_unread = 0;
        for index in 0..self.ports.len() {
            if self.ports[index].has_reports() || now >= self.read[index] + RARELY {
                self.read_port(index, now, on)?;
            }
        }
        Ok(())
    }

    fn read_all(&mut self, now: Instant<Tai>, on: &mut dyn FnMut(StreamEvent)) -> io::Result<()> {
        (0..self.ports.len()).try_for_each(|index| self.read_port(index, now, on))
    }

    fn read_port(
        &mut self,
        index: usize,
        now: Instant<Tai>,
        on: &mut dyn FnMut(StreamEvent),
    ) -> io::Result<()> {
        self.read[index] = now;
        let Engine { ports, ledgers, lines, by_number, live, .. } = self;
        let (other_errors, unknown_reports) = (&mut self.other_errors, &mut self.unknown_reports);
        let ledger = &mut ledgers[index];
        let per_message = ports[index].stamps_per_message();
        ports[index].reports(&mut |report| {
            let (entry, what) = match report {
                TxReport::Stamp { id, tap, at } => {
                    let entry = match ledger.stamped(id, tap, at) {
                        Stamped::First(entry) => Some(entry),
                        Stamped::Again => return,
                        Stamped::Unknown => None,
                    };
                    (entry, StreamEventKind::Stamp { tap, at })
                }
                TxReport::NotTaken { id, error } => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    (ledger.not_taken(id), StreamEventKind::NotTaken { errno })
                }
                TxReport::LaunchRefused { why, launch } => {
                    (ledger.refused(launch), StreamEventKind::LaunchRefused { why, launch })
                }
                TxReport::Other { .. } => {
                    *other_errors += 1;
                    return;
                }
            };
            let Some(entry) = entry else {
                *unknown_reports += 1;
                return;
            };
            let place = by_number[usize::from(entry.stream)];
            let place = usize::try_from(place).expect("invariant: u32 fits usize");
            let line = &mut lines[place];
            let counters = &mut line.counters;
            if let StreamEventKind::LaunchRefused { .. } = what
                && entry.not_taken
            {
                // The call that sent it failed because of its launch time, which is told only now.
                counters.sent += 1;
                counters.not_taken = counters.not_taken.saturating_sub(1);
                counters.stamps += u64::from(entry.stamps);
            }
            count(counters, what);
            if let StreamEventKind::NotTaken { .. } = what {
                // Those of the way that it got before it was dropped.
                counters.stamps = counters.stamps.saturating_sub(entry.stamps.into());
            }
            if let Some(live) = live {
                live.store(place, &line.counters(per_message), line.latest);
            }
            on(StreamEvent { stream: entry.stream, seq: entry.seq, what });
        })?;
        ledger.expire(now);
        Ok(())
    }

    fn misses_stamps(&self) -> bool {
        self.lines.iter().any(|line| self.counters(line).stamps_missing > 0)
    }

    pub(crate) fn report(&self) -> TalkerReport {
        let stream = |line: &Line| StreamReport {
            stream: line.number,
            counters: self.counters(line),
            lateness: line.lateness.summary(),
        };
        let mut stamp_faults = StampFaults::default();
        for ledger in &self.ledgers {
            stamp_faults.add(ledger.faults());
        }
        TalkerReport {
            streams: self.lines.iter().map(stream).collect(),
            wake_lateness: self.wake_lateness.summary(),
            busy_rounds: self.busy_rounds,
            delayed: self.delayed,
            other_errors: self.other_errors,
            stamp_faults,
            unknown_reports: self.unknown_reports,
            lost_reports: self.ports.iter().map(Port::lost_reports).sum(),
        }
    }
}

fn count(counters: &mut StreamCounters, what: StreamEventKind) {
    match what {
        StreamEventKind::Sent { .. } | StreamEventKind::Skipped { .. } => {}
        StreamEventKind::Stamp { .. } => counters.stamps += 1,
        StreamEventKind::NotTaken { errno } => {
            counters.sent -= 1;
            if FULL.contains(&errno) {
                counters.not_taken += 1;
            } else {
                counters.refused += 1;
            }
        }
        StreamEventKind::LaunchRefused { why: LaunchRefusal::Invalid, .. } => {
            counters.launch_invalid += 1;
        }
        StreamEventKind::LaunchRefused { why: LaunchRefusal::Missed, .. } => {
            counters.launch_missed += 1;
        }
    }
}

/// `EAGAIN`, `EBUSY`, `ENOBUFS`: a queue or a buffer is full.
const FULL: [i32; 3] = [11, 16, 105];

/// A sequence number goes on by so many.
fn wrap(frames: u64) -> u32 {
    u32::try_from(frames & u64::from(u32::MAX)).expect("invariant: masked to 32 bits")
}

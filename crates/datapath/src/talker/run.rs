// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a talker, over any port and any clock.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use timewire_base::{Instant, Span, Tai};
use timewire_stats::{BatchedHistogram, LogHistogram};
use timewire_sys::outbox::ANEW;

use super::fill::{Draft, Filled};
use super::header::Template;
use super::hear::PortReports;
use super::ledger::Ledger;
use super::live::LiveCounters;
use super::post::PostBox;
use super::report::{StreamCounters, StreamReport, TalkerReport, TimestampFaults};
use super::timetable::{Cadence, Due, Miss, Plan, Sleep, Timetable};
use super::wait::Clock;
use super::{StreamEvent, StreamEventKind, StreamSpec};
use crate::probe::Probe;
use crate::transmit::{Again, Hear, NotSent, Sent, Transmitter, TxPoints};

/// The longest sleep, after which it is looked whether to stop.
pub(super) const POLL_INTERVAL: Span = Span::from_ms(20);
/// Before a frame is due there must be so much time to read what came back.
const READING: Span = Span::from_us(20);
/// Rounds after which it is read all the same.
const ROUNDS: u32 = 16;
/// How often a port is read that has nothing to tell but errors and refused launch times.
const IDLE_POLL_INTERVAL: Span = Span::from_ms(100);
/// How often another thread is told the counters, at least, while frames follow each other soon.
pub(super) const TELL: Span = Span::from_ms(50);
/// How long timestamps wait to be read, at most, unless there is no time for it.
const REPORT_INTERVAL: Span = Span::from_ms(20);
/// Messages whose timestamps are read with one call.
const REPORT_BATCH: u32 = 8;
/// Messages with a launch time after which it is read whether one was refused: the socket has room
/// for a few hundred.
const LAUNCH_BATCH: u32 = 64;
/// Frames after which everything is flushed, though more are due: as many as one call takes.
const ROUND: u32 = 32;
/// How long after a launch time its refusal may still come.
const AFTER_LAUNCH: Span = Span::from_ms(5);
/// Up to which how late something was is told by bins.
const LATEST: Span = Span::from_secs(1);
/// How long to wait for the last timestamps, unless it is said.
const LAST: Span = Span::from_ms(50);

/// What a run calls.
pub(crate) struct Hooks<'a, F: FnMut(StreamEvent) + ?Sized> {
    /// Whether to stop.
    pub(crate) stop: Stop<'a>,
    /// Writes what a message of a cycle carries; without, zeros.
    pub(crate) fill: Option<&'a mut dyn FnMut(Draft<'_>) -> Filled>,
    /// Hears of each message.
    pub(crate) on: &'a mut F,
}

/// Who says whether to stop.
#[derive(Clone, Copy)]
pub(crate) enum Stop<'a> {
    /// Another thread.
    Flag(&'a AtomicBool),
    /// Whoever is asked.
    Asked(&'a dyn Fn() -> bool),
}

impl Stop<'_> {
    #[inline]
    pub(super) fn is_wanted(self) -> bool {
        match self {
            Stop::Flag(flag) => flag.load(Ordering::Relaxed),
            Stop::Asked(ask) => ask(),
        }
    }
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
    /// Whether a message can be sent at once, again and again.
    fn can_send_again(&self) -> bool;
    fn again<'a>(&'a mut self, message: &'a mut [u8], anew: usize) -> impl SendAgain;
    fn tell(&mut self, to: &mut impl Hear) -> io::Result<()>;
    fn has_reports(&self) -> bool;
    fn points(&self) -> TxPoints;
    fn timestamps_per_message(&self) -> u32;
    fn lost_reports(&self) -> u64;
}

/// A message that a port sends again and again.
pub(crate) trait SendAgain {
    /// The message, to be changed.
    fn message(&mut self) -> &mut [u8];
    /// Changes the bytes that are others each time.
    fn renew(&mut self, bytes: [u8; ANEW]);
    fn send(&mut self, launch: Option<Instant<Tai>>) -> Result<Sent, NotSent>;
    /// Whether anything is known that the reports of its port will tell.
    fn has_news(&self) -> bool;
}

impl SendAgain for Again<'_> {
    fn message(&mut self) -> &mut [u8] {
        Again::message(self)
    }
    #[inline(always)]
    fn renew(&mut self, bytes: [u8; ANEW]) {
        Again::renew(self, bytes);
    }
    // Once in the loop of a stream that is alone.
    #[inline(always)]
    fn send(&mut self, launch: Option<Instant<Tai>>) -> Result<Sent, NotSent> {
        Again::send(self, launch)
    }
    #[inline]
    fn has_news(&self) -> bool {
        Again::has_news(self)
    }
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
    #[inline]
    fn can_send_again(&self) -> bool {
        Transmitter::can_send_again(self)
    }
    fn again<'a>(&'a mut self, message: &'a mut [u8], anew: usize) -> impl SendAgain {
        Transmitter::again(self, message, anew)
    }
    fn tell(&mut self, to: &mut impl Hear) -> io::Result<()> {
        Transmitter::tell(self, to)
    }
    fn has_reports(&self) -> bool {
        Transmitter::has_reports(self)
    }
    fn points(&self) -> TxPoints {
        Transmitter::points(self)
    }
    fn timestamps_per_message(&self) -> u32 {
        Transmitter::timestamps_per_message(self)
    }
    fn lost_reports(&self) -> u64 {
        Transmitter::lost_reports(self)
    }
}

/// A stream as the loop knows it.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(super) number: u16,
    port: usize,
    pub(super) template: Template,
    /// What all of its messages have in common; nothing of a stream that is posted.
    pub(super) image: Box<[u8]>,
    pub(super) to: Option<SocketAddr>,
    pub(super) payload: usize,
    pub(super) plain: bool,
    pub(super) launch_lead: Option<Span>,
    /// After it was filled it may be past its deadline.
    pub(super) deadline: Span,
    pub(super) send_late: bool,
    pub(super) seq: u32,
    /// Numbers of messages that were not sent, which later messages say.
    pub(super) not_sent: u32,
    /// Whether they do: they are long enough, and nobody else writes there.
    says_not_sent: bool,
    pub(super) counters: StreamCounters,
    pub(super) lateness: BatchedHistogram,
    /// When its counters were told last, of those who tell them from time to time.
    pub(super) told: Instant<Tai>,
}

impl StreamState {
    pub(crate) fn new(
        spec: &StreamSpec,
        plan: &Plan,
        template: Template,
        to: Option<SocketAddr>,
    ) -> StreamState {
        StreamState {
            number: spec.number,
            port: spec.port,
            image: match plan.cadence {
                Cadence::Posted => Box::default(),
                Cadence::Cycle { .. } | Cadence::Slots { .. } => template.image(spec.payload),
            },
            template,
            to,
            payload: spec.payload,
            plain: spec.plain,
            launch_lead: spec.launch_lead,
            deadline: plan.deadline,
            send_late: plan.send_late,
            seq: 0,
            not_sent: 0,
            says_not_sent: !spec.plain
                && spec.payload >= Probe::LEN_SKIPPED
                && template.content().is_some(),
            counters: StreamCounters::default(),
            lateness: BatchedHistogram::up_to(LATEST),
            told: Instant::from_ns(0),
        }
    }

    pub(super) fn latest(&mut self) -> Span {
        latest(self.lateness.settle())
    }

    /// With the timestamps that have not come back.
    pub(super) fn counters(&self, per_message: u32) -> StreamCounters {
        let expected = self.counters.sent * u64::from(per_message);
        let timestamps_missing = expected.saturating_sub(self.counters.timestamps);
        StreamCounters { timestamps_missing, ..self.counters }
    }

    /// What the next message says of those that were not sent.
    #[inline]
    pub(super) fn skipped(&self) -> Option<u32> {
        self.says_not_sent.then_some(self.not_sent)
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
        self.not_sent = self.not_sent.wrapping_add(u32::from(buffer.is_none()));
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

/// What is known of what a port tells.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) ledger: Ledger,
    /// When it was read last.
    pub(super) read: Instant<Tai>,
    /// Messages since then.
    pub(super) unread: u32,
    /// Whether a message's timestamps, or what became of its launch time, may come.
    pub(super) expects: bool,
    /// It is read after so many messages, or so much time.
    pub(super) pace: (u32, Span),
}

/// Everything but the clock and the timetable.
#[derive(Debug)]
pub(crate) struct Engine<P> {
    pub(super) ports: Vec<P>,
    /// Of each port.
    pub(super) watches: Vec<Watch>,
    pub(super) lines: Vec<StreamState>,
    /// The line of each number of a stream.
    by_number: Vec<u32>,
    posts: PostBox,
    pub(super) wake_lateness: BatchedHistogram,
    /// Of the frames of a stream that is alone which were written as the thread woke for them: how
    /// late they were is how late it woke.
    pub(super) woken: LogHistogram,
    pub(super) busy_rounds: u64,
    rounds_unread: u32,
    delayed: u64,
    other_errors: u64,
    unknown_reports: u64,
    pub(super) last_launch: Option<Instant<Tai>>,
    pub(super) live: Option<Arc<LiveCounters>>,
    last_wait: Span,
}

impl<P: Port> Engine<P> {
    pub(crate) fn new(ports: Vec<P>, lines: Vec<StreamState>, posts: PostBox) -> Engine<P> {
        let most = lines.iter().map(|line| usize::from(line.number)).max().unwrap_or(0);
        let mut by_number = vec![u32::MAX; most + 1];
        for (index, line) in (0..).zip(&lines) {
            by_number[usize::from(line.number)] = index;
        }
        let watch = |(index, port): (usize, &P)| {
            let here = lines.iter().filter(|line| line.port == index);
            let ahead = here.filter_map(|line| line.launch_lead).max();
            let ledger = Ledger::new(0, port.points(), ahead.unwrap_or(Span::ZERO).max(Span::ZERO));
            let pace = match (port.timestamps_per_message(), port.has_reports()) {
                (1.., _) => (REPORT_BATCH, REPORT_INTERVAL),
                (0, true) => (LAUNCH_BATCH, IDLE_POLL_INTERVAL),
                (0, false) => (u32::MAX, IDLE_POLL_INTERVAL),
            };
            let expects = port.has_reports();
            Watch { ledger, read: Instant::from_ns(0), unread: 0, expects, pace }
        };
        Engine {
            watches: ports.iter().enumerate().map(watch).collect(),
            ports,
            lines,
            by_number,
            posts,
            wake_lateness: BatchedHistogram::up_to(LATEST),
            woken: LogHistogram::up_to(LATEST),
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

    /// Where the counters are stored from now on.
    pub(crate) fn live(&mut self) -> Arc<LiveCounters> {
        let numbers = self.lines.iter().map(|line| line.number);
        let live = self.live.get_or_insert_with(|| Arc::new(LiveCounters::new(numbers)));
        let live = Arc::clone(live);
        (0..self.lines.len()).for_each(|index| self.publish(index));
        live
    }

    #[inline]
    pub(super) fn publish(&mut self, index: usize) {
        if self.live.is_some() {
            self.store(index);
        }
    }

    /// As [`Engine::publish`], if that was not done just before.
    #[inline]
    pub(super) fn publish_again(&mut self, index: usize, now: Instant<Tai>) {
        if now >= self.lines[index].told.saturating_add(TELL) {
            self.lines[index].told = now;
            self.publish(index);
        }
    }

    #[inline(never)]
    fn store(&mut self, index: usize) {
        let Engine { live: Some(live), lines, ports, woken, .. } = self else { return };
        let line = &mut lines[index];
        let per_message = ports[line.port].timestamps_per_message();
        let latest = line.latest().max(latest(woken));
        live.store(index, &line.counters(per_message), latest);
    }

    fn counters(&self, line: &StreamState) -> StreamCounters {
        line.counters(self.ports[line.port].timestamps_per_message())
    }

    pub(crate) fn ports(&self) -> &[P] {
        &self.ports
    }

    pub(crate) fn run<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        table: &mut Timetable,
        clock: &mut impl Clock,
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_, F>,
    ) -> io::Result<()> {
        let has_posts = self.posts.has_posters();
        // A clock is read after each wake-up and after each sending, and nowhere else.
        let mut now = clock.now();
        let mut sleep = Sleep { from: now, until: now };
        while !hooks.stop.is_wanted() {
            let mut is_awake = false;
            if !has_posts && hooks.fill.is_none() {
                (now, is_awake) = self.run_lone(table, clock, (now, &mut sleep), end, hooks)?;
                if hooks.stop.is_wanted() {
                    break;
                }
            }
            let due = table.next_due().filter(|due| end.is_none_or(|end| *due < end));
            let is_over = end.is_some_and(|end| now >= end);
            if due.is_none() && (is_over || !has_posts) {
                break;
            }
            let look = now + POLL_INTERVAL;
            let until = due.unwrap_or(look).min(look);
            if is_awake {
                // It has slept for what is due now.
            } else if until > now {
                if !has_posts || self.posts.may_sleep() {
                    sleep.from = now;
                    let woken = clock.wait(now, until, has_posts);
                    if let Some((target, woke)) = woken.slept
                        && due == Some(until)
                        && target > now
                    {
                        self.wake_lateness.record(woke - target);
                    }
                    now = woken.now;
                    sleep.until = now;
                }
            } else {
                self.busy_rounds += 1;
            }
            self.send_due(table, clock, (now, sleep), end, hooks);
            if has_posts {
                self.send_posted(clock, hooks);
            }
            for port in &mut self.ports {
                self.delayed += u64::from(port.flush());
            }
            now = clock.now();
            if self.read_some(table.next_due(), now, hooks.on)? {
                now = clock.now();
            }
        }
        let read = self.read_last(clock, hooks.on);
        self.wake_lateness.settle();
        for line in &mut self.lines {
            line.lateness.settle();
        }
        read
    }

    /// Waits for what has not come back yet.
    fn read_last<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        clock: &mut impl Clock,
        on: &mut F,
    ) -> io::Result<()> {
        let mut now = clock.now();
        // What is dropped because of its launch time is told when that has come.
        let tells = self.last_launch.map_or(now, |launch| launch + AFTER_LAUNCH);
        let last = tells.max(now + self.last_wait);
        while (self.misses_timestamps() || now < tells) && now < last {
            now = clock.wait(now, now + Span::from_ms(1), false).now;
            self.read_all(now, on)?;
        }
        self.read_all(now, on)
    }

    #[inline]
    fn send_due<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        table: &mut Timetable,
        clock: &impl Clock,
        (mut now, sleep): (Instant<Tai>, Sleep),
        end: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_, F>,
    ) {
        let is_due = |table: &Timetable, now| {
            table.next_due().is_some_and(|due| due <= now && end.is_none_or(|end| due < end))
        };
        for _ in 0..ROUND {
            if !is_due(table, now) {
                break;
            }
            match table.take(now, sleep) {
                None => break,
                Some(Due::Skip { stream, frames, why }) => self.skip(stream, frames, why, hooks),
                Some(Due::Send { stream, due, late }) => {
                    self.send_cyclic(clock, Instance { stream, due, now, late }, hooks);
                    // One that became due meanwhile has its turn in the next round.
                    if is_due(table, now) {
                        now = clock.now();
                    }
                }
            }
        }
    }

    fn skip<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        stream: usize,
        frames: u64,
        why: Miss,
        hooks: &mut Hooks<'_, F>,
    ) {
        let line = &mut self.lines[stream];
        let (number, seq) = (line.number, line.seq);
        line.counters.planned += frames;
        // The numbers of what was left out are missing at the listener; the next message says how
        // many of them were not sent.
        line.seq = line.seq.wrapping_add(wrap(frames));
        line.not_sent = line.not_sent.wrapping_add(wrap(frames));
        match why {
            Miss::WokeLate => line.counters.skipped_woke_late += frames,
            Miss::Overran => line.counters.skipped_overran += frames,
        }
        self.publish(stream);
        let what = StreamEventKind::Skipped { messages: frames };
        (hooks.on)(StreamEvent { stream: number, seq, what });
    }

    fn send_posted<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        clock: &impl Clock,
        hooks: &mut Hooks<'_, F>,
    ) {
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
    #[inline]
    fn send_cyclic<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        clock: &impl Clock,
        mut it: Instance,
        hooks: &mut Hooks<'_, F>,
    ) {
        let line = &mut self.lines[it.stream];
        line.counters.planned += 1;
        let seq = line.next_seq();
        let launch = line.launch_lead.map(|lead| it.due + lead);
        let (number, length) = (line.number, line.payload);
        let Some(buffer) = self.ports[line.port].message_buffer(line.image.len()) else {
            line.counters.not_taken += 1;
            line.not_sent = line.not_sent.wrapping_add(1);
            return self.publish(it.stream);
        };
        buffer.copy_from_slice(&line.image);
        let message = line.template.number(buffer, length, seq);
        let mut left_out = None;
        if let Some(fill) = &mut hooks.fill {
            let payload = &mut message[if line.plain { 0 } else { Probe::LEN }..];
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
            line.not_sent = line.not_sent.wrapping_add(1);
            let what = StreamEventKind::Skipped { messages: 1 };
            (hooks.on)(StreamEvent { stream: number, seq, what });
        } else {
            if !line.plain {
                let (time, is_launch) = (launch.unwrap_or(it.now), launch.is_some());
                // What a program fills begins where that would stand.
                let skipped = line.skipped().filter(|_| hooks.fill.is_none());
                Probe { stream: number, seq, time, is_launch, skipped }.write(message);
            }
            self.push(it, seq, length, launch, hooks);
        }
        self.publish(it.stream);
    }

    /// Lets the message that was written go with the next flush.
    #[inline]
    fn push<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        Instance { stream, due, now, late }: Instance,
        seq: u32,
        content: usize,
        launch: Option<Instant<Tai>>,
        hooks: &mut Hooks<'_, F>,
    ) {
        let line = &mut self.lines[stream];
        match self.ports[line.port].send(line.template.total(content), line.to, launch) {
            Ok(Sent { id }) => {
                let watch = &mut self.watches[line.port];
                watch.unread += 1;
                watch.ledger.note(id, (line.number, seq), launch, now);
                line.counters.sent += 1;
                if launch > self.last_launch {
                    self.last_launch = launch;
                }
                line.counters.past_deadline += u64::from(late);
                line.lateness.record(now - due);
                let what = StreamEventKind::Sent { due, at: now, launch };
                (hooks.on)(StreamEvent { stream: line.number, seq, what });
            }
            Err(why) => {
                line.not_sent = line.not_sent.wrapping_add(1);
                match why {
                    NotSent::Full => line.counters.not_taken += 1,
                    NotSent::Refused(_) => line.counters.refused += 1,
                }
            }
        }
    }

    /// Reads what came back, if there is enough of it and time before the next frame is due;
    /// whether it did.
    #[inline]
    pub(super) fn read_some<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        next: Option<Instant<Tai>>,
        now: Instant<Tai>,
        on: &mut F,
    ) -> io::Result<bool> {
        let has_time = next.is_none_or(|next| next > now + READING);
        if !has_time && self.rounds_unread < ROUNDS {
            self.rounds_unread += 1;
            return Ok(false);
        }
        self.rounds_unread = 0;
        let mut has_read = false;
        for index in 0..self.watches.len() {
            let Watch { read, unread, pace: (messages, wait), .. } = &self.watches[index];
            if unread >= messages || now >= *read + *wait {
                // Whoever waits for long tells all before.
                let is_busy = next.is_some_and(|next| next <= now + POLL_INTERVAL);
                self.read_port(index, (now, is_busy), on)?;
                has_read = true;
            }
        }
        Ok(has_read)
    }

    fn read_all<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        now: Instant<Tai>,
        on: &mut F,
    ) -> io::Result<()> {
        (0..self.ports.len()).try_for_each(|index| self.read_port(index, (now, false), on))
    }

    fn read_port<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        index: usize,
        (now, is_busy): (Instant<Tai>, bool),
        on: &mut F,
    ) -> io::Result<()> {
        let Engine { ports, watches, lines, by_number, live, .. } = self;
        let watch = &mut watches[index];
        (watch.read, watch.unread) = (now, 0);
        let mut ears = PortReports {
            per_message: ports[index].timestamps_per_message(),
            ledger: &mut watch.ledger,
            lines,
            by_number,
            live: live.as_deref(),
            last: None,
            other_errors: &mut self.other_errors,
            unknown_reports: &mut self.unknown_reports,
            on,
        };
        ports[index].tell(&mut ears)?;
        let last = ears.last;
        self.watches[index].ledger.expire(now);
        match last {
            // One that is alone comes by again soon; of another, more may never be told.
            Some(place) if is_busy && self.lines.len() == 1 => self.publish_again(place, now),
            Some(place) => self.publish(place),
            None => {}
        }
        Ok(())
    }

    fn misses_timestamps(&self) -> bool {
        self.lines.iter().any(|line| self.counters(line).timestamps_missing > 0)
    }

    pub(crate) fn report(&self) -> TalkerReport {
        // Those of a stream that is alone, and of none otherwise.
        let woken = &self.woken;
        let with_woken = |all: &BatchedHistogram| {
            let mut all = all.settled().clone();
            all.merge(woken);
            all.summary()
        };
        let stream = |line: &StreamState| StreamReport {
            stream: line.number,
            counters: self.counters(line),
            lateness: with_woken(&line.lateness),
        };
        let mut timestamp_faults = TimestampFaults::default();
        for watch in &self.watches {
            timestamp_faults.add(watch.ledger.faults());
        }
        TalkerReport {
            streams: self.lines.iter().map(stream).collect(),
            wake_lateness: with_woken(&self.wake_lateness),
            busy_rounds: self.busy_rounds,
            delayed: self.delayed,
            other_errors: self.other_errors,
            timestamp_faults,
            unknown_reports: self.unknown_reports,
            lost_reports: self.ports.iter().map(Port::lost_reports).sum(),
        }
    }
}

/// The largest time above zero.
fn latest(lateness: &LogHistogram) -> Span {
    lateness.range().map_or(Span::ZERO, |(_, latest)| latest.max(Span::ZERO))
}

/// A sequence number goes on by so many.
fn wrap(frames: u64) -> u32 {
    u32::try_from(frames & u64::from(u32::MAX)).expect("invariant: masked to 32 bits")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop on a clock and a port of the test's own: what is sent, in which order, what is left out
//! and counted.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use super::run::{Engine, Port, SendAgain, Stop, StreamState};
use super::wait::{Bare, Clock, Woken};
use timewire_sys::outbox::ANEW;

use super::*;
use crate::transmit::{Hear, NotSent, Sent, TxReport};

/// Time that only waiting and sending spend.
#[derive(Clone)]
struct TestClock {
    now: Rc<Cell<i64>>,
    /// How late each sleep ends, in turn; none when they are used up.
    late: Vec<i64>,
}

impl Clock for TestClock {
    fn now(&self) -> Instant<Tai> {
        Instant::from_ns(self.now.get())
    }

    fn wait(&mut self, _: Instant<Tai>, until: Instant<Tai>, _: bool) -> Woken {
        let woke = until + Span::from_ns(self.late.pop().unwrap_or(0));
        self.now.set(woke.as_ns().max(self.now.get()));
        Woken { now: self.now(), slept: Some((until, woke)) }
    }

    fn bare(&mut self) -> impl Bare {
        self
    }
}

impl Bare for &mut TestClock {
    fn now(&self) -> Instant<Tai> {
        Clock::now(*self)
    }

    fn sleep(&mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken {
        self.wait(now, until, false)
    }
}

/// A port that keeps what was sent, and takes so long for each message.
struct TestPort {
    now: Rc<Cell<i64>>,
    cost: i64,
    buffer: Vec<u8>,
    next: u32,
    /// Messages it takes until the next flush.
    room: usize,
    waiting: usize,
    refuse: fn(u32) -> bool,
    refused: Vec<u32>,
    sent: Vec<(i64, Probe, usize)>,
    bytes: Vec<Vec<u8>>,
}

impl Port for TestPort {
    fn message_buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        (self.waiting < self.room).then(|| &mut self.buffer[..length])
    }

    fn send(
        &mut self,
        length: usize,
        _: Option<SocketAddr>,
        _: Option<Instant<Tai>>,
    ) -> Result<Sent, NotSent> {
        self.now.set(self.now.get() + self.cost);
        self.waiting += 1;
        let id = self.next;
        self.next += 1;
        if (self.refuse)(id) {
            self.refused.push(id);
        } else {
            self.bytes.push(self.buffer[..length].to_vec());
            // One that is plain has none.
            let time = Instant::from_ns(-1);
            let none = Probe { stream: u16::MAX, seq: 0, time, is_launch: false, skipped: None };
            let probe = Probe::parse(&self.buffer[..length]).unwrap_or(none);
            self.sent.push((self.now.get(), probe, length));
        }
        Ok(Sent { id })
    }

    fn flush(&mut self) -> u32 {
        self.waiting = 0;
        0
    }

    fn can_send_again(&self) -> bool {
        self.room == usize::MAX && self.waiting == 0
    }

    fn again<'a>(&'a mut self, message: &'a mut [u8], anew: usize) -> impl SendAgain {
        TestAgain { port: self, message, anew }
    }

    fn tell(&mut self, to: &mut impl Hear) -> io::Result<()> {
        for id in self.refused.drain(..) {
            to.report(TxReport::NotTaken { id, error: io::Error::from_raw_os_error(105) });
        }
        Ok(())
    }

    fn has_reports(&self) -> bool {
        true
    }

    fn points(&self) -> crate::transmit::TxPoints {
        crate::transmit::TxPoints::default()
    }

    fn timestamps_per_message(&self) -> u32 {
        0
    }

    fn lost_reports(&self) -> u64 {
        0
    }
}

struct TestAgain<'a> {
    port: &'a mut TestPort,
    message: &'a mut [u8],
    anew: usize,
}

impl SendAgain for TestAgain<'_> {
    fn message(&mut self) -> &mut [u8] {
        self.message
    }

    fn renew(&mut self, bytes: [u8; ANEW]) {
        self.message[self.anew..self.anew + ANEW].copy_from_slice(&bytes);
    }

    fn send(&mut self, launch: Option<Instant<Tai>>) -> Result<Sent, NotSent> {
        let length = self.message.len();
        self.port.buffer[..length].copy_from_slice(self.message);
        let sent = self.port.send(length, None, launch);
        self.port.flush();
        sent
    }

    fn has_news(&self) -> bool {
        !self.port.refused.is_empty()
    }
}

fn us(us: i64) -> Span {
    Span::from_us(us)
}

fn spec(number: u16, offset: i64, cycle: i64) -> StreamSpec {
    let cadence = Cadence::Cycle { start: Instant::from_ns(0), cycle: us(cycle) };
    let spec = StreamSpec::new(number, Destination::Port, cadence, 40);
    StreamSpec { offset: us(offset), ..spec }
}

/// What a run of so many microseconds sent, as time, stream and number, and what it counted.
struct Run {
    sent: Vec<(i64, u16, u32)>,
    /// The messages themselves.
    bytes: Vec<Vec<u8>>,
    report: TalkerReport,
}

fn run(specs: &[StreamSpec], cost: i64, late: &[i64], change: impl Fn(&mut TestPort)) -> Run {
    run_with(specs, cost, late, change, |_| None)
}

/// The same with a filler, which is given the clock.
fn run_with(
    specs: &[StreamSpec],
    cost: i64,
    late: &[i64],
    change: impl Fn(&mut TestPort),
    filler: impl FnOnce(Rc<Cell<i64>>) -> Option<Box<dyn FnMut(Draft<'_>) -> Filled>>,
) -> Run {
    let now = Rc::new(Cell::new(-1_000));
    let mut filler = filler(Rc::clone(&now));
    let mut port = TestPort {
        now: Rc::clone(&now),
        cost,
        buffer: vec![0xee; 64],
        next: 0,
        room: usize::MAX,
        waiting: 0,
        refuse: |_| false,
        refused: Vec::new(),
        sent: Vec::new(),
        bytes: Vec::new(),
    };
    change(&mut port);
    let plans: Vec<_> = specs.iter().map(|spec| plan_of(spec).unwrap()).collect();
    let lines = specs.iter().zip(&plans);
    let lines =
        lines.map(|(spec, plan)| StreamState::new(spec, plan, Template::NONE, None)).collect();
    let posts = PostBox::new(specs.len(), 0).unwrap();
    let mut clock = TestClock { now, late: late.iter().rev().copied().collect() };
    let mut table = Timetable::new(plans, clock.now());
    let mut engine = Engine::new(vec![port], lines, posts);
    let end = Some(Instant::from_ns(1_000_000));
    let live = engine.live();
    let mut skipped = 0;
    let on = &mut |event: StreamEvent| {
        if let StreamEventKind::Skipped { messages } = event.what {
            skipped += messages;
        }
    };
    let fill = filler.as_deref_mut().map(|fill| fill as &mut dyn FnMut(Draft<'_>) -> Filled);
    let mut hooks = Hooks { stop: Stop::Asked(&|| false), fill, on };
    engine.run(&mut table, &mut clock, end, &mut hooks).unwrap();
    let report = engine.report();
    let mut told = 0;
    for StreamReport { stream, counters, lateness } in &report.streams {
        told += counters.skipped_woke_late + counters.skipped_overran + counters.not_filled;
        // What another thread would have seen is the same.
        let latest = Span::from_ns(lateness.max_ns);
        assert_eq!(live.of(*stream), Some((*counters, latest)), "{stream}");
    }
    assert_eq!(skipped, told);
    let sent = engine.ports()[0].sent.iter();
    let sent = sent.map(|(at, probe, _)| (at / 1_000, probe.stream, probe.seq)).collect();
    let bytes = engine.ports()[0].bytes.clone();
    Run { sent, bytes, report }
}

fn adds_up(report: &TalkerReport) {
    for StreamReport { stream, counters: c, .. } in &report.streams {
        let skipped = c.skipped_woke_late + c.skipped_overran + c.expired + c.not_filled;
        assert_eq!(c.planned, c.sent + skipped + c.not_taken + c.refused, "{stream}: {c:?}");
    }
}

#[test]
fn t0_several_streams_and_frames_are_sent_on_time_and_in_order() {
    let burst = StreamSpec { frames: 3, cycles: Some(2), ..spec(7, 100, 500) };
    let ran = run(&[spec(3, 0, 250), burst], 0, &[], |_| ());
    let expected = [
        (0, 3, 0),
        (100, 7, 0),
        (100, 7, 1),
        (100, 7, 2),
        (250, 3, 1),
        (500, 3, 2),
        (600, 7, 3),
        (600, 7, 4),
        (600, 7, 5),
        (750, 3, 3),
    ];
    assert_eq!(ran.sent, expected);
    adds_up(&ran.report);
    assert_eq!(ran.report.wake_lateness.max_ns, 0);
}

#[test]
fn t0_a_late_wake_up_is_told_from_an_overrun() {
    // The second sleep, until 100, ends at 350: 100 and 200 are over their deadline of a cycle.
    let ran = run(&[spec(1, 0, 100)], 0, &[0, 250_000], |_| ());
    let counters = ran.report.streams[0].counters;
    assert_eq!((counters.skipped_woke_late, counters.skipped_overran), (2, 0));
    assert_eq!(ran.sent[..3], [(0, 1, 0), (350, 1, 3), (400, 1, 4)]);
    assert_eq!(ran.report.wake_lateness.max_ns, 250_000);
    adds_up(&ran.report);
    // Ten streams of 30 us each in cycles of 100 us.
    let specs: Vec<_> = (0..10).map(|number| spec(number, 0, 100)).collect();
    let ran = run(&specs, 30_000, &[], |_| ());
    adds_up(&ran.report);
    let total = |of: fn(&StreamCounters) -> u64| -> u64 {
        ran.report.streams.iter().map(|stream| of(&stream.counters)).sum()
    };
    assert_eq!(total(|counters| counters.skipped_woke_late), 0);
    let (sent, over) = (total(|c| c.sent), total(|c| c.skipped_overran));
    assert!((30..40).contains(&sent) && sent + over >= 90, "{sent} sent, {over} not");
    assert!(ran.report.busy_rounds > 0);
}

#[test]
fn t0_late_frames_are_sent_and_counted_if_that_is_wanted() {
    let late = StreamSpec { send_late: true, deadline: Some(us(20)), ..spec(1, 0, 100) };
    let ran = run(&[late], 0, &[0, 250_000], |_| ());
    let counters = ran.report.streams[0].counters;
    assert_eq!((counters.planned, counters.sent, counters.past_deadline), (10, 10, 3));
    assert_eq!(ran.sent[..5], [(0, 1, 0), (350, 1, 1), (350, 1, 2), (350, 1, 3), (400, 1, 4)]);
}

#[test]
fn t0_what_the_port_does_not_take_is_counted() {
    let burst = StreamSpec { frames: 4, cycles: Some(5), ..spec(1, 0, 100) };
    let ran = run(std::slice::from_ref(&burst), 0, &[], |port| port.room = 3);
    let counters = ran.report.streams[0].counters;
    assert_eq!((counters.planned, counters.sent, counters.not_taken), (20, 15, 5));
    adds_up(&ran.report);
    let ran = run(&[burst], 0, &[], |port| port.refuse = |id| id % 5 == 0);
    let counters = ran.report.streams[0].counters;
    assert_eq!((counters.planned, counters.sent, counters.not_taken), (20, 16, 4));
    adds_up(&ran.report);
}

#[test]
fn t0_what_becomes_known_of_a_stream_while_another_goes_on_is_told() {
    // Of the first one it is known only when it has long ended; `run` looks what was told.
    let once = StreamSpec { cycles: Some(1), ..spec(4, 0, 1_000) };
    let ran = run(&[once, spec(5, 5, 10)], 0, &[], |port| port.refuse = |id| id == 0);
    let counters = ran.report.streams.iter().map(|stream| stream.counters);
    let told: Vec<_> = counters.map(|it| (it.planned, it.sent, it.not_taken)).collect();
    assert_eq!(told, [(1, 0, 1), (100, 100, 0)]);
}

#[test]
fn t0_a_program_fills_each_message_just_before_it_is_sent_and_may_leave_it_out() {
    let specs = [
        StreamSpec { frames: 2, spacing: us(10), ..spec(3, 50, 250) },
        StreamSpec { plain: true, payload: 4, launch_lead: Some(us(20)), ..spec(4, 60, 500) },
    ];
    let drafts = Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = Rc::clone(&drafts);
    let ran = run_with(
        &specs,
        0,
        &[],
        |_| (),
        |now| {
            Some(Box::new(move |draft: Draft<'_>| {
                assert!(draft.payload.iter().all(|byte| *byte == 0), "{draft:?}");
                let launch = draft.launch.map(|launch| launch.as_ns() / 1_000);
                let due = draft.due.as_ns() / 1_000;
                seen.borrow_mut().push((draft.stream, draft.seq, due, launch));
                assert_eq!(now.get(), draft.due.as_ns());
                draft.payload[0] = 0xa0 + u8::try_from(draft.seq).unwrap();
                *draft.payload.last_mut().unwrap() = 0x77;
                let is_third = draft.stream == 3 && draft.seq == 2;
                if is_third { Filled::LeaveOut } else { Filled::Send }
            }))
        },
    );
    let first = [(4, 0, 40, Some(60)), (3, 0, 50, None), (3, 1, 60, None), (3, 2, 300, None)];
    assert_eq!(drafts.borrow()[..4], first);
    assert_eq!(drafts.borrow().len(), 10);
    // Plain: the four bytes of the program and no others.
    assert_eq!(ran.bytes[0], [0xa0, 0, 0, 0x77]);
    let probe = Probe::parse(&ran.bytes[1]).unwrap();
    assert_eq!((probe.stream, probe.seq, probe.time.as_ns()), (3, 0, 50_000));
    assert_eq!((ran.bytes[1][Probe::LEN], ran.bytes[1][39], ran.bytes[1].len()), (0xa0, 0x77, 40));
    // The number of the one that was left out is missing.
    let numbers: Vec<_> = ran.sent.iter().filter(|sent| sent.1 == 3).map(|sent| sent.2).collect();
    assert_eq!(numbers, [0, 1, 3, 4, 5, 6, 7]);
    let counters = [0, 1].map(|at: usize| ran.report.streams[at].counters);
    assert_eq!((counters[0].sent, counters[0].not_filled, counters[1].sent), (7, 1, 2));
    adds_up(&ran.report);
}

#[test]
fn t0_a_message_that_took_until_after_its_deadline_to_fill_is_not_sent() {
    let slow = |send_late| {
        let spec = StreamSpec { deadline: Some(us(20)), send_late, ..spec(1, 0, 100) };
        run_with(
            &[spec],
            0,
            &[],
            |_| (),
            |now| {
                Some(Box::new(move |draft: Draft<'_>| {
                    // Exactly at its deadline the first one is not late.
                    now.set(now.get() + if draft.seq == 0 { 20_000 } else { 20_001 });
                    Filled::Send
                }))
            },
        )
    };
    let counters = slow(false).report.streams[0].counters;
    assert_eq!((counters.sent, counters.skipped_overran, counters.past_deadline), (1, 9, 0));
    let ran = slow(true);
    let counters = ran.report.streams[0].counters;
    assert_eq!((counters.sent, counters.skipped_overran, counters.past_deadline), (10, 0, 9));
    // How late it was is told with the time that it took to fill.
    assert_eq!(ran.report.streams[0].lateness.min_ns, 20_000);
    assert_eq!(ran.sent[1].0, 120);
    adds_up(&ran.report);
}

#[test]
fn t0_messages_carry_their_launch_time_or_when_they_were_sent() {
    let specs = [
        StreamSpec { launch_lead: Some(us(300)), ..spec(1, 350, 1_000) },
        StreamSpec { payload: Probe::LEN, ..spec(2, 60, 1_000) },
    ];
    let now = |port: &mut TestPort| port.cost = 1_000;
    let ran = run(&specs, 1_000, &[], now);
    // Stream 1 is due 300 us before its launch time, and each message takes 1 us.
    assert_eq!(ran.sent, [(51, 1, 0), (61, 2, 0)]);
}

#[test]
fn t0_streams_that_cannot_be_are_refused_in_words() {
    let why = |spec: StreamSpec| plan_of(&spec).unwrap_err().to_string();
    assert_eq!(why(spec(4, 0, 0)), "stream 4: its cycle must be longer than zero");
    let wide = StreamSpec { frames: 3, spacing: us(50), ..spec(4, 0, 100) };
    assert_eq!(why(wide), "stream 4: its frames with their spacing must fit into the cycle");
    let posted = StreamSpec { cadence: Cadence::Posted, launch_lead: Some(us(1)), ..spec(4, 0, 1) };
    assert_eq!(why(posted), "stream 4: a stream that is posted has no launch times");
}

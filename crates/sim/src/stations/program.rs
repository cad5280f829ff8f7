// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs: each does one thing after the other, as the process of its name does on a host
//! (`timewire_datapath::traffic`, `timewire_datapath::pipeline`), and computing is all that takes
//! it time. A message that comes while it waits for something else stays in its socket.

use std::collections::VecDeque;

use timewire_base::{CyclicWindows, FrameLen, Instant, Span, Tai};
use timewire_tsn::{DueTimes, LaunchTimes, QueueIndex};

use super::describe::{Job, Pace, PipelineStep, ProgramSpec};
use super::transmit::Taken;
use super::{Flight, Point, Simulation, Timer, time_of};

/// How often a flood looks for what is due, and how long a client waits that finds the queue full.
const TICK: Span = Span::from_ms(1);
/// Flows of a stream with answers; a cyclic one has the first alone.
const REQUEST: u16 = 0;
const RESPONSE: u16 = 1;
/// The flow of a whole pipeline.
const WHOLE: u16 = 0;

/// A program that runs.
pub(super) struct Program {
    spec: ProgramSpec,
    state: State,
    /// Which wait its timer is for; timers of earlier waits mean nothing.
    wait: u64,
    /// The number of its next message.
    seq: u32,
    /// The last slot that it was woken for.
    last_slot: Option<Instant<Tai>>,
    launch: Option<(LaunchTimes, Span)>,
    /// A talker: when its messages are due.
    due: Option<DueTimes>,
    socket: VecDeque<Flight>,
    /// A flood: messages so far.
    sent: u64,
    not_taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For an instant, and then it does this.
    Waits(Then),
    /// For a message.
    Listens,
    /// For the response of this number, or the end of its patience.
    AwaitsResponse(u32),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Begin,
    NextRequest,
    Request,
    Due,
    Talk,
    Answer { seq: u32, to: usize },
    Stimulus,
    Compute,
    HasComputed { seq: u32 },
    HandOn { seq: u32 },
    FloodTick,
}

impl Program {
    pub(super) fn new(spec: &ProgramSpec) -> Program {
        Program {
            state: State::Ended,
            wait: 0,
            seq: 0,
            last_slot: None,
            launch: spec.launch.clone(),
            due: match &spec.job {
                Job::Talker { due, .. } => Some(due.clone()),
                _ => None,
            },
            socket: VecDeque::new(),
            sent: 0,
            not_taken: 0,
            spec: spec.clone(),
        }
    }

    pub(super) fn station(&self) -> usize {
        self.spec.station
    }

    pub(super) fn frame(&self) -> FrameLen {
        self.spec.frame
    }

    pub(super) fn queue(&self) -> QueueIndex {
        self.spec.queue
    }

    pub(super) fn class(&self) -> usize {
        self.spec.class
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.spec.queue != QueueIndex::DEFAULT
    }

    pub(super) fn not_taken(&self) -> u64 {
        self.not_taken
    }

    fn pipeline(&self) -> Option<&PipelineStep> {
        match &self.spec.job {
            Job::Pipeline(step) => Some(step),
            _ => None,
        }
    }

    fn pace(&self) -> &Pace {
        match &self.spec.job {
            Job::Client { pace, .. } | Job::Server { pace, .. } | Job::Talker { pace, .. } => pace,
            Job::Pipeline(step) => &step.pace,
            Job::Listener { .. } | Job::Flood { .. } | Job::Sink => &Pace::Closed,
        }
    }

    /// When its pace lets it go on.
    fn paced(&mut self, now: Instant<Tai>) -> Instant<Tai> {
        match self.pace().clone() {
            Pace::Closed => now,
            Pace::Every(period) => next_multiple(now, period),
            Pace::Windows { windows, lead } => {
                let Some(due) = next_release(&windows, lead, now, self.last_slot) else {
                    return now;
                };
                self.last_slot = Some(due.saturating_add(lead));
                due
            }
        }
    }
}

/// The first multiple of a period strictly after an instant.
fn next_multiple(now: Instant<Tai>, period: Span) -> Instant<Tai> {
    let since = now.as_ns().rem_euclid(period.as_ns().max(1));
    now.saturating_add(period).saturating_add(-Span::from_ns(since))
}

/// The first release *at or after* now, for a slot strictly after the last one.
fn next_release(
    windows: &CyclicWindows,
    lead: Span,
    now: Instant<Tai>,
    last: Option<Instant<Tai>>,
) -> Option<Instant<Tai>> {
    let after_last = last.map(|last| last.saturating_add(Span::from_ns(1)));
    let from = now.saturating_add(lead);
    let from = after_last.map_or(from, |after| after.max(from));
    Some(windows.next_start_at_or_after(from)?.saturating_add(-lead))
}

impl Simulation<'_> {
    pub(super) fn begin_program(&mut self, program: usize) {
        let own = &mut self.programs[program];
        let starts = match &own.spec.job {
            Job::Client { .. } | Job::Talker { .. } | Job::Flood { .. } => true,
            Job::Pipeline(step) => step.period.is_some(),
            Job::Server { .. } | Job::Listener { .. } => false,
            Job::Sink => return,
        };
        let start = own.spec.start;
        match starts {
            true => self.wait(program, start, Then::Begin),
            false => own.state = State::Listens,
        }
    }

    /// A message is in the socket of a program.
    pub(super) fn arrives(&mut self, flight: Flight) {
        let to = flight.to;
        let own = &mut self.programs[to];
        if let Job::Sink = own.spec.job {
            return;
        }
        own.socket.push_back(flight);
        self.read(to);
    }

    pub(super) fn program_goes_on(&mut self, program: usize, wait: u64) {
        let own = &self.programs[program];
        if own.wait != wait {
            return;
        }
        match own.state {
            State::Waits(then) => self.go_on(program, then),
            // Without a response.
            State::AwaitsResponse(_) => self.go_on(program, Then::NextRequest),
            State::Listens | State::Ended => {}
        }
    }

    fn wait(&mut self, program: usize, until: Instant<Tai>, then: Then) {
        self.programs[program].state = State::Waits(then);
        self.set_timer(program, until);
    }

    fn set_timer(&mut self, program: usize, at: Instant<Tai>) {
        let own = &mut self.programs[program];
        own.wait += 1;
        let wait = own.wait;
        self.agenda.at(time_of(at).max(self.now), Timer::Program(program, wait));
    }

    /// Waits as the pace says.
    fn pace(&mut self, program: usize, then: Then) {
        let now = self.tai();
        match self.programs[program].paced(now) {
            due if due <= now => self.go_on(program, then),
            due => self.wait(program, due, then),
        }
    }

    fn go_on(&mut self, program: usize, then: Then) {
        match then {
            Then::Begin => match &self.programs[program].spec.job {
                Job::Client { .. } => self.pace(program, Then::Request),
                Job::Talker { .. } => self.next_message(program),
                Job::Pipeline(_) => self.next_stimulus(program),
                Job::Flood { .. } => self.flood(program),
                Job::Server { .. } | Job::Listener { .. } | Job::Sink => {}
            },
            Then::Due => self.pace(program, Then::Talk),
            Then::Talk => self.talk(program),
            Then::NextRequest => self.pace(program, Then::Request),
            Then::Request => self.request(program),
            Then::Answer { seq, to } => {
                self.send(program, to, (RESPONSE, seq));
                self.listen(program);
            }
            Then::Stimulus => {
                let is_paced = self.programs[program].pipeline().is_some_and(|it| it.is_paced);
                match is_paced {
                    true => self.pace(program, Then::Compute),
                    false => self.go_on(program, Then::Compute),
                }
            }
            Then::Compute => {
                if self.has_ended(program) {
                    return;
                }
                let seq = self.number(program);
                let now = self.tai();
                self.told(program, Point::Send, (WHOLE, seq), now);
                self.compute(program, seq);
            }
            Then::HasComputed { seq } => self.has_computed(program, seq),
            Then::HandOn { seq } => self.hand_on(program, seq),
            Then::FloodTick => self.flood(program),
        }
    }

    /// Nothing begins from the end on.
    fn has_ended(&mut self, program: usize) -> bool {
        let now = self.tai();
        let own = &mut self.programs[program];
        let is_over = now >= own.spec.end;
        if is_over {
            own.state = State::Ended;
        }
        is_over
    }

    fn number(&mut self, program: usize) -> u32 {
        let own = &mut self.programs[program];
        let seq = own.seq;
        own.seq = seq.wrapping_add(1);
        seq
    }

    fn listen(&mut self, program: usize) {
        self.programs[program].state = State::Listens;
        self.read(program);
    }

    /// Takes messages from the socket, as long as it is for messages that the program waits.
    fn read(&mut self, program: usize) {
        loop {
            let own = &mut self.programs[program];
            if !matches!(own.state, State::Listens | State::AwaitsResponse(_)) {
                return;
            }
            let Some(flight) = own.socket.pop_front() else { return };
            self.has_message(program, flight);
        }
    }

    fn has_message(&mut self, program: usize, message: Flight) {
        let now = self.tai();
        let Flight { flow, seq, program: from, .. } = message;
        let own = &mut self.programs[program];
        let until = match &own.spec.job {
            Job::Server { until, .. }
            | Job::Listener { until }
            | Job::Pipeline(PipelineStep { until, .. }) => Some(*until),
            _ => None,
        };
        if until.is_some_and(|until| now >= until) {
            own.state = State::Ended;
            return;
        }
        let state = own.state;
        let is_server = matches!(own.spec.job, Job::Server { .. });
        let is_listener = matches!(own.spec.job, Job::Listener { .. });
        self.told(program, Point::Receive, (flow, seq), now);
        match state {
            State::AwaitsResponse(awaited) if awaited == seq => {
                self.go_on(program, Then::NextRequest);
            }
            State::Listens if is_server => self.pace(program, Then::Answer { seq, to: from }),
            State::Listens if !is_listener => self.compute(program, seq),
            _ => {}
        }
    }

    fn request(&mut self, program: usize) {
        if self.has_ended(program) {
            return;
        }
        let Job::Client { to, timeout, .. } = self.programs[program].spec.job else { return };
        let seq = self.number(program);
        let now = self.tai();
        if !self.send(program, to, (REQUEST, seq)) {
            return self.wait(program, now.saturating_add(TICK), Then::NextRequest);
        }
        self.programs[program].state = State::AwaitsResponse(seq);
        self.set_timer(program, now.saturating_add(timeout));
        self.read(program);
    }

    fn next_message(&mut self, program: usize) {
        let now = self.tai();
        let due = self.programs[program].due.as_mut().and_then(|due| due.next(now));
        match due {
            Some(due) => self.wait(program, due.max(now), Then::Due),
            None => self.programs[program].state = State::Ended,
        }
    }

    fn talk(&mut self, program: usize) {
        if self.has_ended(program) {
            return;
        }
        let Job::Talker { to, .. } = self.programs[program].spec.job else { return };
        let seq = self.number(program);
        self.send(program, to, (REQUEST, seq));
        self.next_message(program);
    }

    fn next_stimulus(&mut self, program: usize) {
        let now = self.tai();
        let period = self.programs[program].pipeline().and_then(|step| step.period);
        if let Some(period) = period {
            self.wait(program, next_multiple(now, period), Then::Stimulus);
        }
    }

    fn compute(&mut self, program: usize, seq: u32) {
        let takes = self.programs[program].pipeline().map_or(Span::ZERO, |step| step.compute);
        let then = Then::HasComputed { seq };
        match takes > Span::ZERO {
            true => self.wait(program, self.tai().saturating_add(takes), then),
            false => self.go_on(program, then),
        }
    }

    fn has_computed(&mut self, program: usize, seq: u32) {
        let Some(step) = self.programs[program].pipeline() else { return };
        let (is_last, is_paced) = (step.to.is_none(), step.is_paced);
        match (is_last, is_paced) {
            (true, _) => {
                let now = self.tai();
                self.told(program, Point::Receive, (WHOLE, seq), now);
                self.listen(program);
            }
            (false, true) => self.hand_on(program, seq),
            (false, false) => self.pace(program, Then::HandOn { seq }),
        }
    }

    fn hand_on(&mut self, program: usize, seq: u32) {
        let Some(step) = self.programs[program].pipeline() else { return };
        let (to, flow, makes) = (step.to, step.place + 1, step.period.is_some());
        if let Some(to) = to {
            self.send(program, to, (flow, seq));
        }
        match makes {
            true => self.next_stimulus(program),
            false => self.listen(program),
        }
    }

    fn flood(&mut self, program: usize) {
        if self.has_ended(program) {
            return;
        }
        let now = self.tai();
        let own = &self.programs[program];
        let Job::Flood { to, rate, burst } = own.spec.job else { return };
        let elapsed = u128::try_from((now - own.spec.start).as_ns()).unwrap_or(0);
        let per_message = u64::from(own.spec.frame.wire_len().get()) * 8;
        let bits = elapsed * u128::from(rate.get()) / 1_000_000_000;
        let bursts = bits / u128::from((per_message * burst).max(1));
        let due = u64::try_from(bursts).unwrap_or(u64::MAX).saturating_mul(burst);
        while self.programs[program].sent < due {
            self.programs[program].sent += 1;
            self.flood_with(program, to);
        }
        self.wait(program, now.saturating_add(TICK), Then::FloodTick);
    }

    /// One message that nobody measures.
    fn flood_with(&mut self, program: usize, to: usize) {
        let flight = Flight { program, to, flow: 0, seq: 0 };
        let station = self.programs[program].station();
        if self.transmit(station, flight, None) == Taken::Full {
            self.programs[program].not_taken += 1;
        }
    }

    /// Hands a message over; whether it was taken.
    fn send(&mut self, program: usize, to: usize, (flow, seq): (u16, u32)) -> bool {
        let now = self.tai();
        self.told(program, Point::Send, (flow, seq), now);
        let own = &mut self.programs[program];
        let station = own.station();
        let launch = match &mut own.launch {
            None => None,
            Some((times, busy)) => times.next(now, *busy),
        };
        if let Some(at) = launch {
            self.told(program, Point::Scheduled, (flow, seq), at);
        }
        let flight = Flight { program, to, flow, seq };
        match self.transmit(station, flight, launch) {
            Taken::Yes => true,
            Taken::Full => {
                self.programs[program].not_taken += 1;
                self.told(program, Point::NotTaken, (flow, seq), now);
                false
            }
            Taken::Late => {
                let at = launch.unwrap_or(now);
                self.told(program, Point::LaunchRefused, (flow, seq), at);
                true
            }
        }
    }
}

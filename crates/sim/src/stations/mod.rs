// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stations on one segment and the programs that run on them: what `timewire run` measures, on
//! hosts that need no time of their own.
//!
//! A program hands its message to the transmit side of its station at the instant at which it
//! decides to, and has one at the instant of its last bit. The transmit side is Timewire's own MAC
//! (the same [`Machine`] that carries a schedule out on a host), or ports with gates, launch times
//! and credit ([`Port`]), or nothing. The segment is a [`Segment`]: a frame that finds it busy
//! waits, in the order in which frames came.
//!
//! All clocks are right, and nothing is random: what differs from seed to seed is in the
//! description, such as when a program begins. The same description gives the same timestamps.
//!
//! Not here: whole networks with bridges, clocks and faults ([`net`](crate::net)).
//!
//! [`Machine`]: timewire_tsn::Machine
//! [`Port`]: timewire_tsn::port::Port

mod describe;
mod program;
#[cfg(test)]
mod tests;
mod transmit;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use timewire_base::{FrameLen, Instant, Tai};
use timewire_tsn::Counters;

use crate::segment::{Event as OnSegment, Segment};
use crate::{PortIndex, SimTime};

pub use describe::{
    Job, MacSpec, Pace, PipelineStep, PortsSpec, ProgramSpec, Stations, StationsError, TransmitSpec,
};
use program::Program;
use transmit::Transmit;

/// What a timestamp of a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The program hands the message over.
    Send,
    /// The launch time that the program gives it.
    Scheduled,
    /// The transmit side did not take it: its queue is full.
    NotTaken,
    /// The queue with launch times refused it; the timestamp is the launch time.
    LaunchRefused,
    /// The program has the message.
    Receive,
}

/// Something that is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A timestamp of a program.
    Program {
        /// Its number.
        program: usize,
        /// What it is about.
        point: Point,
        /// The flow of the message, as the program's own records number it.
        flow: u16,
        /// The number of the message.
        seq: u32,
        /// When.
        at: Instant<Tai>,
    },
    /// A frame came to the segment.
    Segment {
        /// The station that sent it.
        station: usize,
        /// The program.
        program: usize,
        /// The number of the message.
        seq: u32,
        /// Its length.
        frame: FrameLen,
        /// When.
        at: Instant<Tai>,
    },
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of each station, what its MAC counted; `None` of one without.
    pub macs: Vec<Option<Counters>>,
    /// Of each program, the messages that the transmit side did not take.
    pub not_taken: Vec<u64>,
    /// Events that were handled.
    pub events: u64,
}

/// A frame that is somewhere: whoever has it has all of it, so nothing is kept of those that have
/// arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    program: usize,
    /// The program that it goes to.
    to: usize,
    /// As the receiver numbers it.
    flow: u16,
    seq: u32,
}

/// Something that happens by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A message is at a program.
    Arrives(Flight),
    /// A program waits until now: its number, and which wait it is.
    Program(usize, u64),
    /// A transmit side is to look again: the station, and which of its lines.
    Transmit(usize, usize),
}

/// What is to happen, in the order of time, then as it was planned.
#[derive(Default)]
struct Agenda {
    entries: BinaryHeap<Reverse<(SimTime, u64, Timer)>>,
    planned: u64,
}

impl Agenda {
    fn at(&mut self, time: SimTime, timer: Timer) {
        self.planned += 1;
        self.entries.push(Reverse((time, self.planned, timer)));
    }

    fn next(&self) -> Option<SimTime> {
        self.entries.peek().map(|Reverse((time, ..))| *time)
    }
}

/// Who is told; called in the order of time.
pub type Sink<'a> = dyn FnMut(&Seen) + 'a;

struct Simulation<'a> {
    now: SimTime,
    agenda: Agenda,
    segment: Segment,
    /// In the order of the numbers that the segment gives them.
    on_segment: VecDeque<Flight>,
    /// The number of the first of those.
    first_on_segment: u64,
    stations: Vec<Transmit>,
    programs: Vec<Program>,
    sink: &'a mut Sink<'a>,
    events: u64,
}

/// Runs the stations to their end. `is_asked_to_end` is asked now and then; what was told until
/// then stays, and nothing is returned.
///
/// **Errors**: a description that cannot be.
pub fn run<'a>(
    stations: &Stations,
    is_asked_to_end: &dyn Fn() -> bool,
    sink: &'a mut Sink<'a>,
) -> Result<Option<Outcome>, StationsError> {
    const EVENTS: u64 = 10_000;
    stations.check()?;
    let until = time_of(stations.until);
    let count = stations.stations.len();
    let mut simulation = Simulation {
        now: SimTime::START,
        agenda: Agenda::default(),
        segment: Segment::new(stations.segment, count),
        on_segment: VecDeque::new(),
        first_on_segment: 1,
        stations: stations.stations.iter().map(Transmit::new).collect::<Result<_, _>>()?,
        programs: stations.programs.iter().map(Program::new).collect(),
        sink,
        events: 0,
    };
    simulation.begin();
    while let Some(next) = simulation.next().filter(|next| *next <= until) {
        simulation.now = next;
        simulation.step();
        simulation.events += 1;
        if simulation.events.is_multiple_of(EVENTS) && is_asked_to_end() {
            return Ok(None);
        }
    }
    Ok(Some(Outcome {
        macs: simulation.stations.iter().map(Transmit::counters).collect(),
        not_taken: simulation.programs.iter().map(Program::not_taken).collect(),
        events: simulation.events,
    }))
}

/// The instant of a simulation whose start is that of TAI.
fn time_of(at: Instant<Tai>) -> SimTime {
    SimTime::from_ns(u64::try_from(at.as_ns()).unwrap_or(0))
}

impl Simulation<'_> {
    /// Programs see whole nanoseconds, and things happen to them at such.
    fn tai(&self) -> Instant<Tai> {
        self.now.tai_floor(Instant::from_ns(0))
    }

    fn begin(&mut self) {
        for station in 0..self.stations.len() {
            self.begin_transmit(station);
        }
        for program in 0..self.programs.len() {
            self.begin_program(program);
        }
    }

    fn next(&self) -> Option<SimTime> {
        let times = self.agenda.next().into_iter().chain(self.segment.next());
        times.min()
    }

    /// What happens now, the segment first: a frame that has arrived is there for everybody.
    fn step(&mut self) {
        if self.segment.next() == Some(self.now) {
            let actions = self.segment.on(self.now, OnSegment::Due);
            return self.delivered(&actions.deliveries);
        }
        let Some(Reverse((_, _, timer))) = self.agenda.entries.pop() else { return };
        match timer {
            Timer::Arrives(flight) => self.arrives(flight),
            Timer::Program(program, wait) => self.program_goes_on(program, wait),
            Timer::Transmit(station, line) => self.look_again(station, line),
        }
    }

    fn delivered(&mut self, deliveries: &[crate::Delivery]) {
        for delivery in deliveries {
            // Frames pass one after another: those before it are at all stations.
            while self.first_on_segment < delivery.number && self.on_segment.len() > 1 {
                self.on_segment.pop_front();
                self.first_on_segment += 1;
            }
            let place = delivery.number.checked_sub(self.first_on_segment);
            let place = place.and_then(|place| usize::try_from(place).ok());
            let Some(flight) = place.and_then(|place| self.on_segment.get(place)).copied() else {
                continue;
            };
            let Flight { program, to, .. } = flight;
            if self.programs[program].is_urgent() {
                self.heard_real_time(delivery.port.0);
            }
            if self.programs[to].station() == delivery.port.0 {
                // The last bit may come between two nanoseconds.
                let ns = self.now.as_ps().div_ceil(1_000);
                self.agenda.at(SimTime::from_ns(ns), Timer::Arrives(flight));
            }
        }
    }

    /// A frame comes to the segment.
    fn put_on_segment(&mut self, station: usize, flight: Flight) {
        let Flight { program, seq, .. } = flight;
        let frame = self.programs[program].frame();
        let at = self.tai();
        (self.sink)(&Seen::Segment { station, program, seq, frame, at });
        self.on_segment.push_back(flight);
        let bytes = vec![0; usize::try_from(frame.get()).unwrap_or(0)];
        let event = OnSegment::Send { port: PortIndex(station), tag: 0, frame: bytes };
        let actions = self.segment.on(self.now, event);
        // What was due at this instant has been taken before.
        self.delivered(&actions.deliveries);
    }

    fn told(&mut self, program: usize, point: Point, (flow, seq): (u16, u32), at: Instant<Tai>) {
        (self.sink)(&Seen::Program { program, point, flow, seq, at });
    }
}

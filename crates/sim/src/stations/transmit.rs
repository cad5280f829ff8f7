// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transmit side of a station: which of its frames comes to the segment when.

use timewire_base::{Instant, Tai};
use timewire_tsn::port::{Now, Offered, Port, Ps, Refused, Wake};
use timewire_tsn::{Actions, Counters, Event, Machine, Next};

use super::describe::{StationsError, TransmitSpec};
use super::{Flight, Simulation, Timer, time_of};
use crate::SimTime;

/// A transmit side that runs.
pub(super) enum Transmit {
    Direct,
    Mac { machine: Box<Machine<Flight>>, wake: SimTime },
    Ports(Vec<Line>),
}

pub(super) struct Line {
    port: Port<Flight>,
    wake: SimTime,
}

/// What became of a frame that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits or is on the segment; or the MAC dropped it, and has counted that.
    Yes,
    /// The queue is full.
    Full,
    /// It came after its launch time.
    Late,
}

impl Transmit {
    pub(super) fn new(spec: &TransmitSpec) -> Result<Transmit, StationsError> {
        Ok(match spec {
            TransmitSpec::Direct => Transmit::Direct,
            TransmitSpec::Mac(mac) => {
                let machine = Machine::new(mac.config, Some(mac.windows.clone()), mac.queues)?;
                Transmit::Mac { machine: Box::new(machine), wake: SimTime::MAX }
            }
            TransmitSpec::Ports(ports) => {
                let line = |config| Line { port: Port::new(config), wake: SimTime::MAX };
                Transmit::Ports(ports.lines.iter().map(line).collect())
            }
        })
    }

    pub(super) fn counters(&self) -> Option<Counters> {
        match self {
            Transmit::Mac { machine, .. } => Some(machine.counters().clone()),
            Transmit::Direct | Transmit::Ports(_) => None,
        }
    }
}

impl Simulation<'_> {
    /// The clock of every MAC is right from the start on.
    pub(super) fn begin_transmit(&mut self, station: usize) {
        if let Transmit::Mac { .. } = self.stations[station] {
            self.tell_mac(station, Event::ClockSync(true));
        }
    }

    /// A frame of a station, by its number; its launch time, where it has one.
    pub(super) fn transmit(
        &mut self,
        station: usize,
        flight: Flight,
        launch: Option<Instant<Tai>>,
    ) -> Taken {
        let program = &self.programs[flight.program];
        let (length, queue, class) = (program.frame(), program.queue(), program.class());
        match &mut self.stations[station] {
            Transmit::Direct => {
                self.put_on_segment(station, flight);
                Taken::Yes
            }
            Transmit::Mac { .. } => {
                self.tell_mac(station, Event::Arrive { frame: flight, length, queue });
                Taken::Yes
            }
            Transmit::Ports(lines) => {
                let line = class.min(lines.len() - 1);
                let not_before = launch.map_or(Ps::ZERO, |at| instant_ps(time_of(at)));
                let wire_bytes = length.wire_len().get();
                let offered = Offered { item: flight, class, wire_bytes, not_before };
                let taken = lines[line].port.offer(clocks(self.now), offered);
                match taken {
                    Ok(()) => {
                        self.poll(station, line);
                        Taken::Yes
                    }
                    Err(Refused::Late) => Taken::Late,
                    Err(Refused::Full | Refused::NeverFits) => Taken::Full,
                }
            }
        }
    }

    /// A station hears a frame of real time that another one sent.
    pub(super) fn heard_real_time(&mut self, station: usize) {
        if let Transmit::Mac { .. } = self.stations[station] {
            self.tell_mac(station, Event::RealTimeSeen);
        }
    }

    pub(super) fn look_again(&mut self, station: usize, line: usize) {
        let wake = match &mut self.stations[station] {
            Transmit::Mac { wake, .. } => wake,
            Transmit::Ports(lines) => &mut lines[line].wake,
            Transmit::Direct => return,
        };
        // It has looked since, and waits for another instant.
        if *wake != self.now {
            return;
        }
        *wake = SimTime::MAX;
        match self.stations[station] {
            Transmit::Mac { .. } => self.tell_mac(station, Event::Tick),
            Transmit::Ports(_) => self.poll(station, line),
            Transmit::Direct => {}
        }
    }

    fn tell_mac(&mut self, station: usize, mut event: Event<Flight>) {
        let now = self.tai();
        loop {
            let Transmit::Mac { machine, .. } = &mut self.stations[station] else { return };
            let Actions { transmit, next, .. } = machine.on(now, event);
            if let Some(flight) = transmit {
                self.put_on_segment(station, flight);
            }
            match next {
                Next::At(at) => return self.wake(station, 0, time_of(at)),
                Next::WhenFrameArrives => return,
                Next::Now => event = Event::Tick,
            }
        }
    }

    fn poll(&mut self, station: usize, line: usize) {
        loop {
            let Transmit::Ports(lines) = &mut self.stations[station] else { return };
            let polled = lines[line].port.poll(clocks(self.now));
            if let Some(started) = polled.started {
                self.put_on_segment(station, started.item);
            }
            // One that fits no window any more; gates do not change here.
            if polled.dropped.is_some() {
                continue;
            }
            return match polled.wake {
                Wake::NEVER => {}
                Wake { truth, local } => self.wake(station, line, time_at(truth.min(local))),
            };
        }
    }

    fn wake(&mut self, station: usize, line: usize, at: SimTime) {
        let at = at.max(self.now);
        let wake = match &mut self.stations[station] {
            Transmit::Mac { wake, .. } => wake,
            Transmit::Ports(lines) => &mut lines[line].wake,
            Transmit::Direct => return,
        };
        if at < *wake {
            *wake = at;
            self.agenda.at(at, Timer::Transmit(station, line));
        }
    }
}

fn instant_ps(at: SimTime) -> Ps {
    Ps::new(i64::try_from(at.as_ps()).expect("invariant: a simulation is shorter than 106 days"))
}

fn time_at(at: Ps) -> SimTime {
    SimTime::from_ps(u64::try_from(at.get()).unwrap_or(0))
}

/// The clock of a station is right.
fn clocks(now: SimTime) -> Now {
    let now = instant_ps(now);
    Now { truth: now, local: now }
}

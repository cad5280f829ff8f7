// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop between the kernels and the machines that decide: it lets one kernel run, hears what it
//! does until it waits, performs what the network does, and interrupts kernels.
//!
//! A kernel is interrupted only while it waits, so an interrupt never meets it in the middle of
//! something, at a moment that would depend on the host.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant as HostInstant;

use timewire_base::Span;
use timewire_sim::{
    Actions, Event, LocalNs, Message, Participant, PortIndex, Segment, SimTime, TimeMaster, Turn,
};
use timewire_sys::event::EndRequests;
use timewire_sys::vhost::which_readable;

use super::calendar::{Calendar, is_end};
use super::station::{Did, POLL_INTERVAL, Station, StationPlatform};
use super::trace::Trace;
use super::{KernelStation, SUMMARY_SCHEMA, SegmentLab, StationSummary, Summary};
use crate::LabError;

/// After the duration, for programs to end by themselves; who has not is killed.
const EXIT_TIMEOUT: Span = Span::from_ms(500);

pub struct Driver<'a> {
    lab: &'a SegmentLab,
    kernel: String,
    master: TimeMaster,
    segment: Segment,
    stations: Vec<Seat>,
    trace: Trace,
    out: PathBuf,
    started: HostInstant,
    end: Option<&'a EndRequests>,
    /// Whether somebody asked it to end.
    is_asked: bool,
}

/// A station, until it has ended.
enum Seat {
    Taken(Box<Station>),
    /// Its exit code, and for how many frames its driver had no buffer.
    Left(Option<u8>, u64),
}

impl<'a> Driver<'a> {
    /// Starts all kernels and waits until each has asked to begin.
    pub fn start(
        lab: &'a SegmentLab,
        place: &StationPlatform<'_>,
        end: Option<&'a EndRequests>,
    ) -> Result<Driver<'a>, LabError> {
        let started = HostInstant::now();
        let path = place.scratch.join("time");
        let door = UnixListener::bind(&path).map_err(LabError::file("listen on", &path))?;
        let start = |number| Station::start(number, lab, place);
        let stations = (0..lab.stations.len()).map(start).collect::<Result<Vec<_>, _>>()?;
        let clocks = lab.stations.iter().map(|station| station.clock.clone()).collect();
        let mut driver = Driver {
            lab,
            kernel: place.kernel.about().release.clone(),
            master: TimeMaster::new(lab.epoch, clocks),
            segment: Segment::new(lab.segment, lab.stations.len()),
            stations: stations.into_iter().map(|s| Seat::Taken(Box::new(s))).collect(),
            trace: Trace::create(lab, place.out)?,
            out: place.out.to_owned(),
            started,
            end,
            is_asked: false,
        };
        while !driver.master.is_complete() {
            if driver.is_asked() {
                return Err(LabError::EndRequested);
            }
            driver.welcome(&door)?;
        }
        Ok(driver)
    }

    /// Lets one kernel introduce itself to the master of time.
    fn welcome(&mut self, door: &UnixListener) -> Result<(), LabError> {
        let absent = LabError::file("hear", Path::new("a kernel's time-travel socket"));
        while !which_readable(&[door.as_fd()], Some(POLL_INTERVAL)).map_err(&absent)?[0] {
            for number in 0..self.stations.len() {
                if self.has_ended(number)? {
                    return Err(self.failed(number, "its kernel ended before it had begun"));
                }
            }
            if self.is_asked() {
                return Err(LabError::EndRequested);
            }
            if self.started.elapsed() > self.lab.timeout {
                return Err(LabError::Guest {
                    why: "a kernel did not begin".to_owned(),
                    log: String::new(),
                });
            }
        }
        let (stream, _) = door.accept().map_err(&absent)?;
        let mut calendar = Calendar::new(stream);
        let heard = calendar.hear().map_err(&absent)?;
        let number = heard.and_then(|h| usize::try_from(h.identity).ok());
        let known = number.filter(|number| *number < self.stations.len());
        let (Some(heard), Some(number)) = (heard, known) else {
            return Err(LabError::Guest {
                why: "something else than a kernel of this laboratory spoke".to_owned(),
                log: String::new(),
            });
        };
        let Some(Message::Start) = heard.message else {
            return Err(self.failed(number, "it did not ask to begin"));
        };
        self.tell_master(number, Message::Start)?;
        let station = self.station(number);
        station.calendar = Some(calendar);
        station.start_sequence = heard.sequence;
        Ok(())
    }

    /// Runs the laboratory to its end, or until somebody asks for that.
    pub fn run(mut self) -> Result<Summary, LabError> {
        let limit = self.lab.duration.map(|span| SimTime::START.plus(span).plus(EXIT_TIMEOUT));
        while !self.is_asked() {
            let event = [self.segment.next(), limit].into_iter().flatten().min();
            match self.master.next(event) {
                Turn::Network(now) if limit.is_some_and(|limit| limit <= now) => break,
                Turn::Network(now) => self.network(now)?,
                Turn::Begin(Participant(number)) => {
                    let sequence = self.station(number).start_sequence;
                    self.with(number, |station| station.calendar()?.begin(sequence))?;
                    self.serve(number, limit)?;
                }
                Turn::Run { who: Participant(number), time, free_until } => {
                    let until = Some(free_until).filter(|until| *until > time);
                    self.with(number, |station| station.calendar()?.run(time, until))?;
                    self.serve(number, limit)?;
                }
                Turn::Asleep => {
                    let why = "all stations sleep for ever; give a duration".to_owned();
                    return Err(LabError::Guest { why, log: String::new() });
                }
                Turn::Over => break,
            }
        }
        self.finish()
    }

    /// Whether somebody asked the laboratory to end, now or earlier.
    fn is_asked(&mut self) -> bool {
        self.is_asked |= self.end.is_some_and(EndRequests::take);
        self.is_asked
    }

    /// Hears a running kernel until it waits or has ended, or the laboratory is to end.
    fn serve(&mut self, number: usize, limit: Option<SimTime>) -> Result<(), LabError> {
        let who = Participant(number);
        let mut silent_since = None;
        while self.master.running() == Some(who) {
            let ready = self.with(number, |station| {
                let time = station.calendar.as_ref().map(AsFd::as_fd);
                let time = time.ok_or(io::ErrorKind::NotConnected)?;
                which_readable(&[station.driver_side(), time], Some(POLL_INTERVAL))
            })?;
            match ready[..] {
                [true, _] => {
                    silent_since = None;
                    self.hear_driver(number, limit)?;
                }
                [_, true] => {
                    silent_since = None;
                    self.hear_time(number)?;
                }
                _ if self.has_ended(number)? => self.leave(number)?,
                _ => {
                    if self.is_asked() {
                        return Ok(());
                    }
                    let since = *silent_since.get_or_insert_with(HostInstant::now);
                    if since.elapsed() > self.lab.timeout {
                        let why = "it computes without ever waiting, for longer than the timeout \
                                   of the laboratory; a program that spins must look at the clock";
                        return Err(self.failed(number, why));
                    }
                }
            }
        }
        Ok(())
    }

    fn hear_time(&mut self, number: usize) -> Result<(), LabError> {
        let heard = self.with(number, |station| station.calendar()?.hear())?;
        let Some(heard) = heard else { return self.leave(number) };
        let answer = match heard.message {
            Some(message) => self.tell_master(number, message)?,
            None => Some(LocalNs(0)),
        };
        match answer {
            Some(time) => {
                self.with(number, |station| station.calendar()?.acknowledge(heard.sequence, time))
            }
            None => Err(self.failed(number, "it began twice")),
        }
    }

    fn tell_master(
        &mut self,
        number: usize,
        message: Message,
    ) -> Result<Option<LocalNs>, LabError> {
        let answer = self.master.on(Participant(number), message);
        answer.map_err(|error| self.failed(number, &error.to_string()))
    }

    fn hear_driver(&mut self, number: usize, limit: Option<SimTime>) -> Result<(), LabError> {
        let Did::Kicked(frames) = self.with(number, Station::hear_driver)? else {
            return Ok(());
        };
        for (tag, frame) in frames {
            let event = Event::Send { port: PortIndex(number), tag, frame };
            let actions = self.segment.on(self.master.now(), event);
            self.perform(actions)?;
        }
        // Before the kernel goes on it must know when the network will have done something.
        let event = [self.segment.next(), limit].into_iter().flatten().min();
        if let Some((_, until)) = self.master.narrowed(event) {
            self.with(number, |station| station.calendar()?.free_until(until))?;
        }
        self.with(number, Station::acknowledge)
    }

    /// An event of the network, while all kernels wait.
    fn network(&mut self, now: SimTime) -> Result<(), LabError> {
        let actions = self.segment.on(now, Event::Due);
        self.perform(actions)?;
        for number in 0..self.stations.len() {
            if self.master.is_waiting(Participant(number)) {
                self.interrupt(number)?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, actions: Actions) -> Result<(), LabError> {
        for passage in &actions.passages {
            self.trace.frame(passage)?;
        }
        for (port, tag) in actions.sent {
            if let Seat::Taken(_) = self.stations[port.0] {
                self.with(port.0, |station| station.nic.sent(tag))?;
            }
        }
        for delivery in actions.deliveries {
            if let Seat::Taken(_) = self.stations[delivery.port.0] {
                self.with(delivery.port.0, |station| {
                    let taken = station.nic.arrived(&delivery.frame)?;
                    station.no_buffer += u64::from(!taken);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Tells a waiting kernel about the buffers that were given back to it.
    fn interrupt(&mut self, number: usize) -> Result<(), LabError> {
        let queues = match &mut self.stations[number] {
            Seat::Taken(station) => station.nic.take_calls(),
            Seat::Left(..) => return Ok(()),
        };
        for queue in queues {
            self.with(number, |station| match station.call_line() {
                Some(line) => line.call(queue),
                None => Err(io::Error::other("a ring without a line for interrupts")),
            })?;
            loop {
                let ready = self.with(number, |station| {
                    let sides = station.interrupted_sides().ok_or(io::ErrorKind::NotConnected)?;
                    which_readable(&sides, Some(Span::from_secs(30)))
                })?;
                match ready[..] {
                    // The kernel asks for the time before it answers.
                    [true, _] => self.hear_time(number)?,
                    [_, true] => break,
                    _ => return Err(self.failed(number, "it does not take an interrupt")),
                }
                if let Seat::Left(..) = self.stations[number] {
                    return Err(self.failed(number, "it ended during an interrupt"));
                }
            }
            self.with(number, |station| match station.call_line() {
                Some(line) => line.answer(),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    fn station(&mut self, number: usize) -> &mut Station {
        match &mut self.stations[number] {
            Seat::Taken(station) => station,
            Seat::Left(..) => panic!("invariant: who runs has not left"),
        }
    }

    /// Does something with a station; what goes wrong is told with its name and last words.
    fn with<T>(
        &mut self,
        number: usize,
        what: impl FnOnce(&mut Station) -> io::Result<T>,
    ) -> Result<T, LabError> {
        let Seat::Taken(station) = &mut self.stations[number] else {
            panic!("invariant: who runs has not left")
        };
        what(station).map_err(|error| {
            // A kernel that has gone leaves the better reason behind.
            if is_end(&error)
                && let Err(reason) = self.leave(number)
            {
                return reason;
            }
            self.failed(number, &error.to_string())
        })
    }

    fn name(&self, number: usize) -> &KernelStation {
        &self.lab.stations[number]
    }

    fn failed(&self, number: usize, why: &str) -> LabError {
        let log = match &self.stations[number] {
            Seat::Taken(station) => station.machine.kernel_log(),
            Seat::Left(..) => String::new(),
        };
        LabError::Guest { why: format!("station {}: {why}", self.name(number).name), log }
    }

    fn has_ended(&mut self, number: usize) -> Result<bool, LabError> {
        match &mut self.stations[number] {
            Seat::Taken(station) => station.machine.has_ended(),
            Seat::Left(..) => Ok(true),
        }
    }

    /// A kernel has ended by itself: what its command left behind is kept.
    fn leave(&mut self, number: usize) -> Result<(), LabError> {
        self.master.gone(Participant(number));
        let seat = mem::replace(&mut self.stations[number], Seat::Left(None, 0));
        let Seat::Taken(station) = seat else { return Ok(()) };
        let Station { machine, no_buffer, .. } = *station;
        let name = &self.name(number).name;
        let finished = machine.wait().map_err(|error| match error {
            LabError::Guest { why, log } => {
                LabError::Guest { why: format!("station {name}: {why}"), log }
            }
            LabError::OutOfMemory { mib, program, .. } => {
                LabError::OutOfMemory { machine: format!("station {name}"), mib, program }
            }
            other => other,
        })?;
        // What `timeout` says about a program that it has asked to end, or killed a tenth of a
        // second after that. One that is killed before was killed by somebody else.
        let end = self.lab.duration.map(|duration| (self.lab.epoch + duration).as_ns());
        let is_over = end.is_some_and(|end| match finished.outcome.code {
            124 => true,
            137 => finished.outcome.ended_ns >= end,
            _ => false,
        });
        let code = Some(finished.outcome.code).filter(|_| !is_over);
        self.stations[number] = Seat::Left(code, no_buffer);
        Ok(())
    }

    /// Ends who still runs, and sums up.
    fn finish(mut self) -> Result<Summary, LabError> {
        self.trace.finish()?;
        let mut stations = Vec::new();
        for (number, seat) in self.stations.iter().enumerate() {
            let (exit_code, no_buffer) = match seat {
                Seat::Taken(station) => (None, station.no_buffer),
                Seat::Left(code, no_buffer) => (*code, *no_buffer),
            };
            let seen = self.segment.counters(PortIndex(number));
            let directory = self.out.join(self.name(number).name.as_str());
            stations.push(StationSummary {
                name: self.name(number).name.clone(),
                exit_code,
                output: directory.join("stdout"),
                errors: directory.join("stderr"),
                frames_sent: seen.sent,
                found_busy: seen.found_busy,
                frames_received: seen.delivered,
                no_buffer,
                lost: seen.lost,
                queue_full: seen.queue_full,
            });
        }
        let host_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Summary {
            schema: SUMMARY_SCHEMA,
            kernel: self.kernel,
            simulated_ns: self.master.now().as_ns_floor(),
            host_ns,
            passages: self.trace.count(),
            ended_early: self.is_asked,
            stations,
        })
    }
}

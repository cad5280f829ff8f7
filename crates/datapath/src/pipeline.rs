// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program of one station of a pipeline: it gets a stimulus, computes with it in some steps,
//! and hands it on to the next station as a message. The source makes the stimulus, the sink ends
//! it.
//!
//! It says what it does with marks: [`START_CYCLE`] and its fellows.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};
use timewire_base::drops::Heard;
use timewire_base::{Instant, Mono, Port, Span, Tai};
use timewire_capture::marker::udp_flow;
use timewire_capture::record::TimestampPoint;
use timewire_sys::clock;
use timewire_sys::marker::{self, Markers, Point};
use timewire_sys::udp::TimestampedUdp;

use crate::message::{seq_of, timestamp};
use crate::now;
use crate::record::Recorder;
use crate::traffic::{POLL_INTERVAL, Pace, Sender, Task, Timestamper, message_buffer};

/// Point: a component begins to compute. Value: its number on its station, from 1.
pub const START_CYCLE: &str = "START_CYCLE";
/// Point: a component has computed. Value: its number.
pub const END_CYCLE: &str = "END_CYCLE";
/// Point: a component hands the stimulus to the next one of its station. Value: its number.
pub const STIMULUS_SENT: &str = "STIMULUS_SENT";
/// Point: a component gets it from the one before it. Value: its number.
pub const STIMULUS_RECD: &str = "STIMULUS_RECD";
/// Point: just before the stimulus is sent to the next station. Value: the port it goes to.
pub const REMOTE_STIMULUS_SENT: &str = "REMOTE_STIMULUS_SENT";
/// Point: the stimulus has been read from the station before. Value: the port it came to.
pub const REMOTE_STIMULUS_RECD: &str = "REMOTE_STIMULUS_RECD";

/// Flow of the record file for the whole pipeline; those of its connections follow.
pub const WHOLE: u16 = 0;

/// What the program of one station is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its place in the pipeline, 0 for the source.
    pub place: u16,
    /// Where stimuli come from; the source makes its own.
    pub from: Source,
    /// Where they go; the sink ends them.
    pub to: Option<Next>,
    /// Components, 1 at least.
    pub components: u64,
    /// How long each computes.
    pub compute: Span,
    /// The source: `pace` says when it may begin to compute, and what it made leaves at once.
    #[serde(default)]
    pub is_paced: bool,
}

/// Where a station has its stimuli from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It makes one at each whole multiple of this time (TAI).
    Own(Span),
    /// From the station before, which sends to this port.
    Port(Port),
}

/// The next station.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// Its address.
    pub address: Ipv4Addr,
    /// Where it receives.
    pub port: Port,
}

/// Runs one station of a pipeline. The source makes stimuli from the task's start to its end; the
/// others go on until `drain` after it, so that the last ones get through. `pace` says when a
/// message may leave.
///
/// **Errors**: a socket cannot be made, or sending fails for another reason than a full queue.
pub fn pipeline(
    task: &Task,
    step: &Step,
    pace: Pace,
    drain: Span,
    recorder: &Recorder,
) -> io::Result<Heard> {
    let sender = step.to.as_ref().map(|_| Sender::new(task, 0)).transpose()?;
    let mut worker = Worker {
        step,
        marks: Marks::new(step, task, sender.as_ref())?,
        sender,
        pace,
        message: message_buffer(task),
        timestamper: Timestamper::new(recorder, task.station),
    };
    match step.from {
        Source::Own(period) => worker.make(task, Pace::Every(period))?,
        Source::Port(port) => {
            let socket = task.socket(port.get())?;
            worker.forward(&socket, task.end + drain)?;
        }
    }
    Ok(worker.sender.map_or_else(Heard::default, |sender| sender.heard()))
}

struct Worker<'a> {
    step: &'a Step,
    sender: Option<Sender>,
    pace: Pace,
    message: Vec<u8>,
    timestamper: Timestamper<'a>,
    marks: Marks,
}

impl Worker<'_> {
    fn make(&mut self, task: &Task, mut period: Pace) -> io::Result<()> {
        clock::sleep_until(task.start);
        for seq in 0_u32.. {
            period.wait();
            if self.step.is_paced {
                self.pace.wait();
            }
            let at = now();
            if at >= task.end {
                break;
            }
            self.timestamper.record(at, TimestampPoint::Send, WHOLE, seq);
            self.compute(seq);
            self.hand_on(seq)?;
        }
        self.take_refusals()
    }

    fn forward(&mut self, socket: &TimestampedUdp, until: Instant<Tai>) -> io::Result<()> {
        let mut into = [0; 2_048];
        socket.set_timeout(POLL_INTERVAL)?;
        loop {
            let message = socket.receive(&mut into)?;
            let at = now();
            self.take_refusals()?;
            if at >= until {
                return Ok(());
            }
            let Some(message) = message else { continue };
            let Some(seq) = seq_of(&into[..message.length]) else { continue };
            self.marks.received(message.from, seq);
            self.timestamper.received(at, &message, self.step.place, seq);
            self.compute(seq);
            if self.sender.is_some() {
                self.hand_on(seq)?;
            } else {
                self.timestamper.record(now(), TimestampPoint::Receive, WHOLE, seq);
            }
        }
    }

    /// The components of this station, one after the other.
    fn compute(&self, seq: u32) {
        for component in 1..=self.step.components {
            self.marks.of_own(self.marks.start, seq, component);
            busy_for(self.step.compute);
            self.marks.of_own(self.marks.end, seq, component);
            if component < self.step.components {
                self.marks.of_own(self.marks.sent, seq, component);
                self.marks.of_own(self.marks.received, seq, component + 1);
            }
        }
    }

    fn hand_on(&mut self, seq: u32) -> io::Result<()> {
        let (Some(sender), Some(next)) = (&mut self.sender, &self.step.to) else { return Ok(()) };
        let to = SocketAddrV4::new(next.address, next.port.get());
        let flow = self.step.place + 1;
        timestamp(&mut self.message, seq);
        if !self.step.is_paced {
            self.pace.wait();
        }
        self.timestamper.record(now(), TimestampPoint::Send, flow, seq);
        self.marks.sends(seq);
        // One that the stack does not take is recorded as such.
        sender.send(&self.message, to, (flow, seq), &self.timestamper)?;
        Ok(())
    }

    fn take_refusals(&mut self) -> io::Result<()> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        sender.take_refusals(self.step.place + 1, &self.timestamper)
    }
}

/// Keeps the CPU for so long. Also where time is virtual: reading it makes it pass there.
fn busy_for(time: Span) {
    let until = clock::now::<Mono>() + time;
    while time > Span::ZERO && clock::now::<Mono>() < until {
        std::hint::spin_loop();
    }
}

/// The points, and the upper halves of the tags; a load each when nobody listens.
struct Marks {
    markers: Markers,
    start: Point,
    end: Point,
    sent: Point,
    received: Point,
    remote_sent: Point,
    remote_received: Point,
    /// Where stimuli arrive.
    own: Option<SocketAddr>,
    /// Of what is sent, and the port it goes to.
    to: Option<(u32, u16)>,
    /// Of what was received, and from whom.
    from: Option<(SocketAddr, u32)>,
}

impl Marks {
    fn new(step: &Step, task: &Task, sender: Option<&Sender>) -> io::Result<Marks> {
        let markers = Markers::open_or_off();
        let point = |name| markers.point(name);
        let to = match (&step.to, sender) {
            (Some(next), Some(sender)) => {
                let to = SocketAddr::from((next.address, next.port.get()));
                Some((udp_flow(sender.local_address()?, to), next.port.get()))
            }
            _ => None,
        };
        let own = match step.from {
            Source::Own(_) => None,
            Source::Port(port) => Some(SocketAddr::from((task.address, port.get()))),
        };
        Ok(Marks {
            start: point(START_CYCLE)?,
            end: point(END_CYCLE)?,
            sent: point(STIMULUS_SENT)?,
            received: point(STIMULUS_RECD)?,
            remote_sent: point(REMOTE_STIMULUS_SENT)?,
            remote_received: point(REMOTE_STIMULUS_RECD)?,
            own,
            to,
            from: None,
            markers,
        })
    }

    /// Within the station a stimulus has the tag of the message that brought it; at the source, of
    /// the one that takes it away.
    fn of_own(&self, point: Point, seq: u32, component: u64) {
        if self.markers.is_listened_to() {
            let flow = self.from.map(|(_, flow)| flow).or(self.to.map(|(flow, _)| flow));
            self.markers.mark(point, marker::tag(flow.unwrap_or(0), seq), component);
        }
    }

    fn sends(&self, seq: u32) {
        if let (true, Some((flow, port))) = (self.markers.is_listened_to(), self.to) {
            self.markers.mark(self.remote_sent, marker::tag(flow, seq), port.into());
        }
    }

    fn received(&mut self, from: SocketAddr, seq: u32) {
        let Some(own) = self.own else { return };
        let flow = match self.from {
            Some((known, flow)) if known == from => flow,
            _ => udp_flow(from, own),
        };
        self.from = Some((from, flow));
        self.markers.mark(self.remote_received, marker::tag(flow, seq), own.port().into());
    }
}

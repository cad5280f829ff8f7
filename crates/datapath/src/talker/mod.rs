// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many streams from one thread: each frame is sent when it is due in its stream's cycle, just
//! before its station's slot, or when a program posts it; through any of the ports of `transmit`.
//!
//! ```text
//! sleep until shortly before the next frame is due, spin until it is
//! for each frame that is due:   skip it if it is too late, else write it into a buffer of its
//!                               port, or have the program write it there
//! flush each port               one system call for up to 32 frames
//! read what comes back          of some messages at once, unless the next frame is due already
//! ```
//!
//! Once it runs, the thread allocates nothing and takes no lock. What it leaves out is counted with
//! the reason.
//!
//! Not here: the ports (`transmit`), giving the thread its priority (`timewire-host`, `group`),
//! receiving (`listen`).

mod fill;
mod header;
mod hear;
mod ledger;
mod live;
mod lone;
mod post;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod timetable;
mod wait;

use std::io;
use std::net::SocketAddr;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::clock;

use crate::probe::Probe;
use crate::transmit::{LaunchRefusal, PortError, TimestampTime, TransmitOptions, Transmitter};
use crate::transmit::{Transport, TxPoint};

use post::PostBox;
use run::{Engine, Hooks, Stop, StreamState};
use timetable::{Plan, Timetable};
use wait::SystemClock;

pub use fill::{Draft, Filled};
pub(crate) use header::Template;
pub use header::{FrameContent, FrameHeader, VlanTag};
pub use live::LiveCounters;
pub use post::{PostError, Poster};
pub use report::{StreamCounters, StreamReport, TalkerReport, TimestampFaults};
pub use timetable::Cadence;

/// One stream.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// Its number, which its messages carry: 0 to [`Probe::MAX_STREAM`].
    pub number: u16,
    /// Which of the talker's ports it goes through, counted from 0.
    pub port: usize,
    /// Where it goes.
    pub to: Destination,
    /// When its messages are due.
    pub cadence: Cadence,
    /// How long after each time of the cadence.
    pub offset: Span,
    /// Frames in each cycle.
    pub frames: u32,
    /// Between the frames of a cycle; zero sends them together.
    pub spacing: Span,
    /// **Units**: bytes of payload (UDP) or after the frame's header, [`Probe::LEN`] or more unless
    /// it is plain. Of a stream that is posted, the most.
    pub payload: usize,
    /// Its messages have no header of [`Probe`]: all of the payload is what fills it. Listeners do
    /// not know them. What is posted is always so.
    pub plain: bool,
    /// Cycles after which it ends; `None` for no end.
    pub cycles: Option<u64>,
    /// The time that a message is due is its launch time: it is given to the kernel so much
    /// earlier. Not for streams that are posted.
    pub launch_lead: Option<Span>,
    /// How late a frame may be given to the kernel; `None` for one cycle (or one millisecond).
    pub deadline: Option<Span>,
    /// Frames past their deadline are sent and counted, not left out.
    pub send_late: bool,
    /// Messages that can wait of a stream that is posted.
    pub depth: usize,
}

impl StreamSpec {
    /// A stream of one frame in each cycle, due at its start, without end.
    pub fn new(number: u16, to: Destination, cadence: Cadence, payload: usize) -> StreamSpec {
        StreamSpec {
            number,
            port: 0,
            to,
            cadence,
            offset: Span::ZERO,
            frames: 1,
            spacing: Span::ZERO,
            payload,
            plain: false,
            cycles: None,
            launch_lead: None,
            deadline: None,
            send_late: false,
            depth: 16,
        }
    }
}

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The destination of its UDP port.
    Port,
    /// An address, through a UDP port without destination.
    Udp(SocketAddr),
    /// With this header, through a port for whole frames.
    Frame(FrameHeader),
}

/// What became known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// The number of its stream.
    pub stream: u16,
    /// Its sequence number there.
    pub seq: u32,
    /// What.
    pub what: StreamEventKind,
}

/// What became known of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEventKind {
    /// It was written for the kernel.
    Sent {
        /// When it was due, or posted.
        due: Instant<Tai>,
        /// When it was written.
        at: Instant<Tai>,
        /// Its launch time.
        launch: Option<Instant<Tai>>,
    },
    /// It passed a timestamp point.
    Timestamp {
        /// Which.
        point: TxPoint,
        /// When.
        at: TimestampTime,
    },
    /// The kernel did not take it.
    NotTaken {
        /// Why: the error's number.
        errno: i32,
    },
    /// The queueing discipline dropped it because of its launch time.
    LaunchRefused {
        /// Why.
        why: LaunchRefusal,
        /// The launch time that it had.
        launch: Instant<Tai>,
    },
    /// This message and those after it were left out: they would have been too late, or were not
    /// filled.
    Skipped {
        /// How many.
        messages: u64,
    },
}

/// Why a talker cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TalkerError {
    /// A port could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A stream that cannot be.
    #[error("stream {stream}: {why}")]
    Stream {
        /// Its number.
        stream: u16,
        /// Why, and what would be right.
        why: String,
    },
    /// The thread or its event could not be had, or a port's reports not be read.
    #[error("the talker: {0}")]
    Io(#[from] io::Error),
}

/// The sender of many streams.
#[derive(Debug)]
pub struct Talker {
    engine: Engine<Transmitter>,
    clock: SystemClock,
    plans: Vec<Plan>,
    posters: Vec<(u16, Option<Poster>)>,
}

impl Talker {
    /// Opens the ports and makes everything ready for the streams.
    ///
    /// **Errors**: a port that cannot be opened, a stream that fits none, or that cannot be.
    pub fn new(
        ports: &[(Transport, TransmitOptions)],
        streams: &[StreamSpec],
    ) -> Result<Talker, TalkerError> {
        let mut open = Vec::with_capacity(ports.len());
        for (transport, options) in ports {
            open.push(Transmitter::open(transport, options)?);
        }
        let buffers =
            streams.iter().filter(|one| one.cadence == Cadence::Posted).map(|one| one.depth).sum();
        let mut posts = PostBox::new(streams.len(), buffers)?;
        let (mut lines, mut plans, mut posters) = (Vec::new(), Vec::new(), Vec::new());
        for (index, spec) in streams.iter().enumerate() {
            if streams[..index].iter().any(|other| other.number == spec.number) {
                return Err(bad(spec, "another stream has this number"));
            }
            let (template, to) = way_of(spec, ports, &open)?;
            let plan = plan_of(spec)?;
            lines.push(StreamState::new(spec, &plan, template, to));
            plans.push(plan);
            let is_posted = spec.cadence == Cadence::Posted;
            let poster = is_posted.then(|| posts.poster(index, spec.depth, spec.payload));
            posters.push((spec.number, poster));
        }
        let clock = SystemClock::new(std::sync::Arc::clone(&posts.bell));
        Ok(Talker { engine: Engine::new(open, lines, posts), clock, plans, posters })
    }

    /// The ports, to see what was chosen for each.
    pub fn ports(&self) -> &[Transmitter] {
        self.engine.ports()
    }

    /// The poster of a stream that is posted; `None` for any other, or when it was taken already.
    pub fn poster(&mut self, stream: u16) -> Option<Poster> {
        self.posters.iter_mut().find(|(number, _)| *number == stream)?.1.take()
    }

    /// How long before a frame is due the thread stops sleeping and spins: more makes it exact, and
    /// takes CPU time. 60 microseconds unless set; a thread that is not to spin has zero.
    pub fn set_spin(&mut self, spin: Span) {
        self.clock.set_spin(spin);
    }

    /// How long it waits for the last timestamps: 50 milliseconds unless set. More is needed where
    /// frames are held that have no launch time, as by a closed gate.
    pub fn set_last_wait(&mut self, wait: Span) {
        self.engine.set_last_wait(wait);
    }

    /// Sends what is due before `end`, until `stop` says so or all streams have ended; then waits
    /// for the timestamps that are missing, but not long. `on` hears of each message; it must
    /// be quick.
    ///
    /// Takes the calling thread's timer slack away, which lets a sleep end 50 us late.
    ///
    /// **Errors**: a port's error queue cannot be read.
    pub fn run<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        stop: &std::sync::atomic::AtomicBool,
        end: Option<Instant<Tai>>,
        on: &mut F,
    ) -> Result<(), TalkerError> {
        self.run_hooks(end, Hooks { stop: Stop::Flag(stop), fill: None, on })
    }

    /// As [`Talker::run`], with what each message carries: `fill` is called for each one of a cycle
    /// or slot just before it is sent, in this thread. A message that it fills until after its
    /// deadline is left out as one that the thread was too busy for. `stop` is asked each round, at
    /// least every 20 milliseconds.
    ///
    /// **Errors**: as [`Talker::run`].
    pub fn run_filled<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        stop: &dyn Fn() -> bool,
        end: Option<Instant<Tai>>,
        fill: &mut dyn FnMut(Draft<'_>) -> Filled,
        on: &mut F,
    ) -> Result<(), TalkerError> {
        self.run_hooks(end, Hooks { stop: Stop::Asked(stop), fill: Some(fill), on })
    }

    fn run_hooks<F: FnMut(StreamEvent) + ?Sized>(
        &mut self,
        end: Option<Instant<Tai>>,
        mut hooks: Hooks<'_, F>,
    ) -> Result<(), TalkerError> {
        // Where it is refused, spinning makes up for it.
        let _ = clock::set_timer_slack(Span::from_ns(1));
        let mut table = Timetable::new(self.plans.clone(), clock::now());
        self.engine.run(&mut table, &mut self.clock, end, &mut hooks)?;
        Ok(())
    }

    /// The counters as they are at any moment, for another thread while this one runs.
    pub fn live(&mut self) -> std::sync::Arc<LiveCounters> {
        self.engine.live()
    }

    /// What it did so far.
    pub fn report(&self) -> TalkerReport {
        self.engine.report()
    }
}

fn bad(spec: &StreamSpec, why: impl Into<String>) -> TalkerError {
    TalkerError::Stream { stream: spec.number, why: why.into() }
}

fn plan_of(spec: &StreamSpec) -> Result<Plan, TalkerError> {
    let lead = spec.launch_lead.unwrap_or(Span::ZERO);
    let shift = spec.offset - lead;
    let (cadence, deadline) = match &spec.cadence {
        Cadence::Cycle { start, cycle } => {
            if *cycle <= Span::ZERO {
                return Err(bad(spec, "its cycle must be longer than zero"));
            }
            let burst = spec.spacing.checked_mul(i64::from(spec.frames));
            if spec.spacing.is_negative() || burst.is_none_or(|burst| burst > *cycle) {
                return Err(bad(spec, "its frames with their spacing must fit into the cycle"));
            }
            (Cadence::Cycle { start: *start + shift, cycle: *cycle }, *cycle)
        }
        Cadence::Slots { windows, lead } => {
            let cycle = windows.cycle();
            (Cadence::Slots { windows: windows.clone(), lead: *lead - shift }, cycle)
        }
        Cadence::Posted => {
            if spec.launch_lead.is_some() {
                return Err(bad(spec, "a stream that is posted has no launch times"));
            }
            (Cadence::Posted, Span::from_ms(1))
        }
    };
    Ok(Plan {
        cadence,
        frames: spec.frames,
        spacing: spec.spacing,
        cycles: spec.cycles,
        deadline: spec.deadline.unwrap_or(deadline),
        send_late: spec.send_late,
    })
}

/// What stands before its messages, and where they go.
fn way_of(
    spec: &StreamSpec,
    ports: &[(Transport, TransmitOptions)],
    open: &[Transmitter],
) -> Result<(Template, Option<SocketAddr>), TalkerError> {
    if spec.number > Probe::MAX_STREAM {
        return Err(bad(spec, format!("its number must be at most {}", Probe::MAX_STREAM)));
    }
    let (Some((transport, options)), Some(port)) = (ports.get(spec.port), open.get(spec.port))
    else {
        return Err(bad(spec, format!("there is no port {}", spec.port)));
    };
    if spec.launch_lead.is_some() && options.launch.is_none() {
        return Err(bad(spec, "its port was opened without launch times"));
    }
    if spec.cadence != Cadence::Posted && !spec.plain && spec.payload < Probe::LEN {
        return Err(bad(spec, format!("its payload must have at least {} bytes", Probe::LEN)));
    }
    let (template, to) = match (transport, spec.to) {
        (Transport::Udp { to: Some(_), .. }, Destination::Port) => (Template::NONE, None),
        (Transport::Udp { to: None, from, .. }, Destination::Udp(to)) => {
            if from.is_ipv4() != to.is_ipv4() {
                return Err(bad(spec, format!("{to} is not of the family of its port's {from}")));
            }
            (Template::NONE, Some(to))
        }
        (Transport::Udp { to, .. }, _) => {
            let why = if to.is_some() {
                "its port has a destination already"
            } else {
                "its port wants the address that it goes to"
            };
            return Err(bad(spec, why));
        }
        (_, Destination::Frame(header)) => {
            if header.vlan.is_some_and(|tag| tag.vid > 4_094 || tag.pcp > 7) {
                return Err(bad(spec, "a VLAN has a number up to 4094 and a PCP up to 7"));
            }
            let is_ptp = matches!(header.content, FrameContent::Ptp { .. });
            if is_ptp && matches!(spec.cadence, Cadence::Posted) {
                return Err(bad(spec, "what is posted is not wrapped into PTP messages"));
            }
            (Template::new(&header, port.address().unwrap_or_default()), None)
        }
        _ => return Err(bad(spec, "its port sends whole frames and wants their header")),
    };
    if template.total(spec.payload) > port.longest() {
        let longest = port.longest();
        return Err(bad(spec, format!("its messages exceed the port's longest, {longest} bytes")));
    }
    Ok((template, to))
}

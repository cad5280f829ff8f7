// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stations and programs as they are given to the simulator. Everything has a number: its place in
//! its list.

use thiserror::Error;
use timewire_base::{BitsPerSecond, CyclicWindows, FrameLen, Instant, Span, Tai};
use timewire_tsn::port::{CLASSES, PortConfig};
use timewire_tsn::{Config, DueTimes, LaunchTimes, MacError, QueueIndex, QueueSet};

use crate::segment::SegmentConfig;

/// Stations on a segment, and their programs.
#[derive(Clone, Debug)]
pub struct Stations {
    /// What they share.
    pub segment: SegmentConfig,
    /// How each sends.
    pub stations: Vec<TransmitSpec>,
    /// What runs on them.
    pub programs: Vec<ProgramSpec>,
    /// When it ends.
    pub until: Instant<Tai>,
}

/// The transmit side of a station.
#[derive(Clone, Debug)]
pub enum TransmitSpec {
    /// Frames come to the segment as programs send them.
    Direct,
    /// Timewire's own MAC.
    Mac(MacSpec),
    /// Ports.
    Ports(PortsSpec),
}

/// A MAC.
#[derive(Clone, Debug)]
pub struct MacSpec {
    /// What it is told once.
    pub config: Config,
    /// Its windows.
    pub windows: CyclicWindows,
    /// Its queues.
    pub queues: QueueSet,
}

/// Ports, as queueing disciplines are.
#[derive(Clone, Debug)]
pub struct PortsSpec {
    /// One port for all classes, or one for each class: then no class waits for another.
    pub lines: Vec<PortConfig>,
}

/// A program of a station.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Its station.
    pub station: usize,
    /// It sends nothing before this,
    pub start: Instant<Tai>,
    /// and nothing from this on but answers.
    pub end: Instant<Tai>,
    /// The class of its messages in ports.
    pub class: usize,
    /// Their queue in a MAC.
    pub queue: QueueIndex,
    /// Their length.
    pub frame: FrameLen,
    /// Launch times of its messages, and how long one is on the link; without, they have none.
    pub launch: Option<(LaunchTimes, Span)>,
    /// What it does.
    pub job: Job,
}

/// What a program does. The flow of a message is numbered as in its receiver's records.
#[derive(Clone, Debug)]
pub enum Job {
    /// Sends a request (flow 0) to a server and waits for its response (flow 1), over and over.
    Client {
        /// The server.
        to: usize,
        /// When it sends.
        pace: Pace,
        /// Without a response the next request goes after this.
        timeout: Span,
    },
    /// Answers each request (flow 0) with a response (flow 1).
    Server {
        /// When it answers.
        pace: Pace,
        /// Until when it does.
        until: Instant<Tai>,
    },
    /// Sends a message (flow 0) whenever one is due.
    Talker {
        /// The listener.
        to: usize,
        /// When messages are due.
        due: DueTimes,
        /// When they leave.
        pace: Pace,
    },
    /// Takes the messages of a talker.
    Listener {
        /// Until when it does.
        until: Instant<Tai>,
    },
    /// One station of a pipeline.
    Pipeline(PipelineStep),
    /// Sends messages at a rate, looking once in a millisecond for what is due.
    Flood {
        /// The receiver.
        to: usize,
        /// Of the link that they take.
        rate: BitsPerSecond,
        /// How many are sent at once.
        burst: u64,
    },
    /// Takes what comes.
    Sink,
}

/// One station of a pipeline: computes with each stimulus and hands it on. Flow 0 is the whole
/// pipeline, flow `n` its message from place `n - 1` to place `n`.
#[derive(Clone, Debug)]
pub struct PipelineStep {
    /// Its place, 0 for the source.
    pub place: u16,
    /// The source: it makes a stimulus at each whole multiple of this.
    pub period: Option<Span>,
    /// The program that it hands on to; the last one ends the stimulus.
    pub to: Option<usize>,
    /// How long it computes.
    pub compute: Span,
    /// When a message leaves; or when a computation may begin,
    pub pace: Pace,
    /// if this is set.
    pub is_paced: bool,
    /// Until when it goes on.
    pub until: Instant<Tai>,
}

/// When a program sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as it can.
    Closed,
    /// At whole multiples of this, at most one message each.
    Every(Span),
    /// So long before its station's next window, once for each.
    Windows {
        /// The windows.
        windows: CyclicWindows,
        /// How long before.
        lead: Span,
    },
}

/// Stations that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StationsError {
    /// A number that nothing has.
    #[error("{what} {number} does not exist: there are {count}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The number.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// A MAC that cannot be.
    #[error(transparent)]
    Mac(#[from] MacError),
    /// Ports without a line.
    #[error("station {station} has no line")]
    NoLine {
        /// The station.
        station: usize,
    },
    /// Longer than a simulation takes.
    #[error("a simulation until {until} is longer than {max}")]
    TooLong {
        /// What was asked for, from the start.
        until: Span,
        /// The bound.
        max: Span,
    },
}

impl Job {
    /// The program that its messages go to first.
    pub(super) fn to(&self) -> Option<usize> {
        match self {
            Job::Client { to, .. } | Job::Talker { to, .. } | Job::Flood { to, .. } => Some(*to),
            Job::Pipeline(step) => step.to,
            Job::Server { .. } | Job::Listener { .. } | Job::Sink => None,
        }
    }
}

impl Stations {
    /// The longest simulation: sums of many times fit 64 bits.
    pub const LONGEST: Span = Span::from_secs(86_400);

    /// Whether everything that it names exists.
    pub(super) fn check(&self) -> Result<(), StationsError> {
        let known = |what, number: usize, count| match number < count {
            true => Ok(()),
            false => Err(StationsError::Unknown { what, number, count }),
        };
        let until = Span::from_ns(self.until.as_ns());
        if until > Self::LONGEST {
            return Err(StationsError::TooLong { until, max: Self::LONGEST });
        }
        for (station, spec) in self.stations.iter().enumerate() {
            match spec {
                TransmitSpec::Ports(ports) if ports.lines.is_empty() => {
                    return Err(StationsError::NoLine { station });
                }
                _ => {}
            }
        }
        for program in &self.programs {
            known("station", program.station, self.stations.len())?;
            known("class", program.class, CLASSES)?;
            if let Some(to) = program.job.to() {
                known("program", to, self.programs.len())?;
            }
        }
        Ok(())
    }
}

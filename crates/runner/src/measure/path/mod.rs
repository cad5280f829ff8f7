// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long messages take from program to program: one way and there and back, with every point on
//! the way that anything timestamps, at shares of the largest rate at which nothing is lost.
//!
//! The rate is searched as RFC 2544, 26.1 does, and the latency at a rate is measured as 26.2 says,
//! but with every message of a trial instead of one, and with trials as long as asked for.
//!
//! Not here: what a user types (`timewire-cli`).

pub mod points;
mod reflect;
pub mod search;
mod text;
mod trial;

use std::net::SocketAddr;

use serde::Serialize;
use timewire_base::{IfName, Span};
use timewire_datapath::listen::{ReceiveOptions, Receiver, Source, UdpPlace};
use timewire_datapath::probe::Probe;
use timewire_datapath::transmit::{TransmitOptions, Transmitter, Transport};
use timewire_host::timestamping::Timestamped;
use timewire_sys::event::EndRequests;

use super::exchange::messages_in;
use super::nic_clock::NicTimestamps;
use super::receive::plan::{Over, Waiting};
use super::run::{EndpointSetup, Measurement, Session};
use crate::RunnerError;
use points::{FarClock, StageSummary, stages};
use search::{Search, share_of};
use timewire_datapath::NicTimestamping;
use timewire_datapath::drops::{AnswerCounts, DropCause, Heard, QdiscCounts, causes};
use trial::Trial;

/// The `schema` field.
pub const PATH_SCHEMA: &str = "timewire.measure-path/1";
/// The `schema` field of who answers.
pub const ANSWER_SCHEMA: &str = "timewire.measure-path-answers/1";
/// The UDP port of the measurement; answers go to the next one.
pub const PORT: u16 = 15_100;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// Who reflects; without, the bench.
    pub to: Option<SocketAddr>,
    /// The interface to it, whose NIC's timestamps are used.
    pub interface: Option<IfName>,
    /// Sources; of the bench any, else UDP.
    pub over: Over,
    /// How receivers wait.
    pub wait: Waiting,
    /// Whether messages come back.
    pub reflect: bool,
    /// The port of the talker; answers go to the next one.
    pub port: u16,
    /// **Units**: bytes of a message in UDP.
    pub payload: usize,
    /// The rate that is 100 %; without, it is searched.
    pub rate: Option<u32>,
    /// Where the search begins.
    pub most: u32,
    /// How well it is known in the end. **Units**: percent.
    pub resolution: u32,
    /// Shares of it at which latencies are measured. **Units**: percent.
    pub loads: Vec<u32>,
    /// How long a trial takes.
    pub trial: Span,
    /// How close the clock of the other end is, if that is known.
    pub far_clock_error: Option<Span>,
    /// How well the NIC's clock must be known for its timestamps to be used.
    pub max_clock_error: Span,
    /// Whether the NIC's timestamps are used.
    pub timestamps: NicTimestamping,
}

/// A measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Format and version.
    pub schema: &'static str,
    /// `bench`, or who reflected.
    pub to: String,
    /// The source.
    pub over: String,
    /// How receivers waited.
    pub wait: String,
    /// Whether messages came back.
    pub round_trip: bool,
    /// **Units**: bytes.
    pub payload_bytes: usize,
    /// What is known of the clock of the other end.
    pub far_clock: FarClockReport,
    /// About the NIC's timestamps, of the last trial.
    pub nic: NicTimestamps,
    /// The rate that is 100 %; `null` when every rate lost something.
    pub full_rate: Option<u32>,
    /// Whether it was searched for, not given.
    pub searched: bool,
    /// What was tried to find it.
    pub search: Vec<TrialReport>,
    /// At each load.
    pub steps: Vec<StepReport>,
    /// Whether it was asked to end before its time.
    pub ended_early: bool,
}

/// The clock of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FarClockReport {
    /// Both ends are on this host.
    Same,
    /// Times between the ends are wrong by so much at most. **Units**: nanoseconds.
    Within(i64),
    /// Times between the ends are not told.
    Foreign,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrialReport {
    /// Frames per second.
    pub rate: u32,
    /// Messages that were to be sent.
    pub planned: u64,
    /// Messages that the kernel took.
    pub sent: u64,
    /// Messages that came to the end of the way.
    pub received: u64,
    /// Whether the talker sent as fast as it was to, to a hundredth.
    pub kept_pace: bool,
    /// Why messages did not leave.
    pub drop_causes: Vec<DropCause>,
}

impl TrialReport {
    /// Whether nothing was lost at the rate that was to be.
    fn lost_nothing(&self) -> bool {
        self.kept_pace && self.sent == self.planned && self.received == self.sent
    }

    /// Messages that were sent and did not come.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

/// The latency at one load.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// **Units**: percent of the full rate.
    pub load: u32,
    /// Counts.
    #[serde(flatten)]
    pub trial: TrialReport,
    /// Timestamps of the talker that did not come.
    pub timestamps_missing: u64,
    /// What lies between the points, and the whole.
    pub stages: Vec<StageSummary>,
}

impl PathSpec {
    /// Messages of a trial.
    fn count(&self, rate: u32) -> u64 {
        messages_in(self.trial, rate)
    }

    /// What is known without a trial.
    fn report(&self, far_clock: FarClockReport) -> PathReport {
        PathReport {
            schema: PATH_SCHEMA,
            to: self.to.map_or_else(|| "bench".to_owned(), |to| to.to_string()),
            over: self.over.to_string(),
            wait: self.wait.to_string(),
            round_trip: self.reflect,
            payload_bytes: self.payload,
            far_clock,
            nic: NicTimestamps::default(),
            full_rate: self.rate,
            searched: self.rate.is_none(),
            search: Vec::new(),
            steps: Vec::new(),
            ended_early: false,
        }
    }
}

impl Measurement for PathSpec {
    type Report = PathReport;

    fn check(&self) -> Result<(), RunnerError> {
        let wrong = |why: String| Err(RunnerError::Invalid(why));
        if self.to.is_some() && self.over != Over::Udp {
            return wrong(format!("{} is for the bench; to others it is udp", self.over));
        }
        if self.to.is_some() && !self.reflect {
            return wrong("a message to another host must come back: add --reflect".to_owned());
        }
        if self.interface.is_none() && self.timestamps == NicTimestamping::Told {
            return wrong("timestamps of a NIC need --to and --interface: which NIC".to_owned());
        }
        if self.interface.is_some() && self.to.is_none() {
            return wrong("an interface goes with an address: the bench has its own".to_owned());
        }
        let shortest = if self.reflect { reflect::SHORTEST } else { Probe::LEN };
        if !(shortest..=1_472).contains(&self.payload) {
            return wrong(format!("a message has {shortest} to 1472 bytes here"));
        }
        if self.loads.is_empty() || self.loads.iter().any(|load| !(1..=200).contains(load)) {
            return wrong("a load is 1 to 200 percent of the full rate".to_owned());
        }
        if self.trial <= Span::ZERO || self.most == 0 || self.rate == Some(0) {
            return wrong("a trial takes some time, and a rate is at least 1".to_owned());
        }
        let top = self.rate.unwrap_or(self.most);
        let loads = self.loads.iter().map(|load| share_of(top, *load)).max().unwrap_or(0);
        if loads.max(top) > 5_000_000 || self.count(loads.max(top)) > trial::MAX_MESSAGES {
            let most = trial::MAX_MESSAGES;
            return wrong(format!("a trial of more than {most} messages is too long"));
        }
        Ok(())
    }

    fn endpoints(&self, session: &mut Session<'_>) -> Result<EndpointSetup, RunnerError> {
        match self.to {
            None => EndpointSetup::bench(1, &mut |text| session.notes.push(text.to_owned())),
            Some(_) => Ok(EndpointSetup::interface(self.interface.as_ref())),
        }
    }

    fn timestamped(&self, _: &EndpointSetup) -> Timestamped {
        let is_told = self.timestamps == NicTimestamping::Told;
        Timestamped { sent: is_told, received: is_told }
    }

    fn measure(
        &self,
        endpoints: &EndpointSetup,
        session: &mut Session<'_>,
    ) -> Result<PathReport, RunnerError> {
        let (far_clock, far) = match (endpoints.pair(), self.far_clock_error) {
            (Some(_), _) => (FarClockReport::Same, FarClock::Comparable),
            (None, Some(error)) => (FarClockReport::Within(error.as_ns()), FarClock::Comparable),
            (None, None) => (FarClockReport::Foreign, FarClock::Foreign),
        };
        let mut report = self.report(far_clock);
        let attempt = |rate: u32, points: bool| -> Result<Trial, RunnerError> {
            trial::run(self, endpoints, rate, self.count(rate), points, &session.ends)
        };
        if self.rate.is_none() {
            let mut search = Search::new(self.most, self.resolution);
            while let Some(rate) = search.next().filter(|_| !report.ended_early) {
                (session.tell)(&format!("search: {rate}/s"));
                let trial = attempt(rate, false)?;
                report.ended_early |= trial.ended_early;
                search.tried(rate, trial.report.lost_nothing());
                report.search.push(trial.report);
            }
            report.full_rate = search.found();
        }
        for &load in &self.loads {
            let Some(rate) = report.full_rate.map(|full| share_of(full, load)) else { break };
            if report.ended_early {
                break;
            }
            (session.tell)(&format!("{load} %: {rate}/s"));
            let trial = attempt(rate, true)?;
            report.ended_early |= trial.ended_early;
            report.steps.push(StepReport {
                load,
                trial: trial.report,
                timestamps_missing: trial.timestamps_missing,
                stages: stages(&trial.passages, far),
            });
            report.nic = trial.nic;
        }
        Ok(report)
    }
}

/// What one answered that others measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    /// Format and version.
    pub schema: String,
    /// What became of its answers.
    #[serde(flatten)]
    pub answers: AnswerCounts,
}

/// Answers the messages of others until it is asked to end; how many it answered, and why other
/// answers did not leave.
///
/// **Errors**: the address cannot be used, or receiving fails.
pub fn reflect_for_others(
    bind: SocketAddr,
    device: Option<IfName>,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<Answered, RunnerError> {
    let (mut heard, before) = (Heard::default(), QdiscCounts::now());
    let ends = EndRequests::new().map_err(|error| RunnerError::kernel("block signals", error))?;
    let source = Source::Udp(UdpPlace { bind, device: device.clone(), group: None });
    let mut receiver = Receiver::open(&source, &ReceiveOptions::default())?;
    let from = SocketAddr::new(bind.ip(), 0);
    let interface = device.as_ref().map(ToString::to_string);
    let transport = Transport::Udp { from, to: None, device };
    let mut back = Transmitter::open(&transport, &TransmitOptions::default())?;
    let bound = receiver
        .local_address()
        .map_err(|error| RunnerError::kernel("tell the own address", error))?;
    ready(bound.unwrap_or(bind));
    let mut came = 0;
    while !ends.take() {
        came += trial::turn(&mut receiver, &mut back, false, &mut heard)?;
    }
    let not_sent = heard.total();
    let drop_causes = causes(&[(TransmitOptions::default().socket(interface), heard)], &before);
    Ok(Answered {
        schema: ANSWER_SCHEMA.to_owned(),
        answers: AnswerCounts { sent: came.saturating_sub(not_sent), not_sent, drop_causes },
    })
}

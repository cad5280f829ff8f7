// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long received frames take: from the NIC, or the sending program, to the kernel, and from
//! the driver or the kernel to the program; for every source and way to wait, at several rates, and
//! in different worlds. All combinations are measured in turn, again and again, so that what
//! changes with time touches all of them.
//!
//! ```text
//! for each repeat:  for each combination, beginning one later each time:
//!     make its world, send and receive, take the world back
//! ```
//!
//! Not here: what a user types (`timewire-cli`).

pub mod plan;
pub mod report;
mod round;
pub mod sample;
mod text;
mod world;

use timewire_base::{IfName, Span};
use timewire_datapath::NicTimestamping;
use timewire_datapath::probe::Probe;
use timewire_host::timestamping::Timestamped;

use super::run::{EndpointSetup, Measurement, Session, order};
use crate::RunnerError;
use plan::{Dimension, Policy, Variety};
use report::{ReceiveReport, Reporter};

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct ReceiveSpec {
    /// Where.
    pub place: PlaceSpec,
    /// What is varied.
    pub variety: Variety,
    /// Messages of a round.
    pub count: Option<u64>,
    /// How long a round takes.
    pub duration: Option<Span>,
    /// Rounds of each combination.
    pub repeats: usize,
    /// **Units**: bytes of each message of the bench, in UDP.
    pub payload: usize,
    /// Which dimension is compared; without, the first that has several values.
    pub compare: Option<Dimension>,
    /// Up to the first is good, beyond the second bad.
    pub thresholds: [Span; 2],
    /// Points of the picture for each combination.
    pub points: usize,
    /// How well the NIC's clock must be known for its timestamps to be used.
    pub max_clock_error: Span,
    /// Whether the NIC's timestamps are used.
    pub timestamps: NicTimestamping,
    /// The CPU of the talker.
    pub talker_cpu: Option<u32>,
    /// How the talker is scheduled.
    pub talker_policy: Policy,
}

/// Where it is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// Between two stations in namespaces, with a talker of its own.
    Bench,
    /// On an interface of this host, to which others send.
    Interface {
        /// Its name.
        name: IfName,
        /// The UDP port that they send to.
        port: u16,
        /// The receive queue that AF_XDP takes; all with `None`.
        queue: Option<u32>,
    },
}

impl ReceiveSpec {
    /// The UDP port that others send to.
    fn port(&self) -> Option<u16> {
        match self.place {
            PlaceSpec::Bench => None,
            PlaceSpec::Interface { port, .. } => Some(port),
        }
    }

    /// The receive queue that AF_XDP takes.
    fn queue(&self) -> Option<u32> {
        match self.place {
            PlaceSpec::Bench => None,
            PlaceSpec::Interface { queue, .. } => queue,
        }
    }
}

impl Measurement for ReceiveSpec {
    type Report = ReceiveReport;

    fn check(&self) -> Result<(), RunnerError> {
        let wrong = |why: &str| Err(RunnerError::Invalid(why.to_owned()));
        self.variety.check().map_err(RunnerError::Invalid)?;
        if self.count.is_none() && self.duration.is_none() {
            return wrong("a round needs an end: a count or a time");
        }
        if self.count == Some(0) || self.duration.is_some_and(|it| it <= Span::ZERO) {
            return wrong("a round needs more than nothing");
        }
        if self.repeats == 0 {
            return wrong("a combination is measured at least once");
        }
        if self.place == PlaceSpec::Bench && self.timestamps == NicTimestamping::Told {
            return wrong("the bench's interfaces have no NIC that could timestamp: --interface");
        }
        if !(Probe::LEN..=1_472).contains(&self.payload) {
            return Err(RunnerError::Invalid(format!(
                "a message has {} to 1472 bytes",
                Probe::LEN
            )));
        }
        if self.thresholds[0] <= Span::ZERO || self.thresholds[0] >= self.thresholds[1] {
            return wrong("the thresholds must be above zero and ascend");
        }
        let rates = self.variety.rate.iter();
        match (&self.place, rates.clone().all(Option::is_some), rates.clone().any(Option::is_some))
        {
            (PlaceSpec::Bench, false, _) => return wrong("the bench's talker needs a rate"),
            (PlaceSpec::Interface { .. }, _, true) => {
                return wrong("others send to the interface, at the rate that they like");
            }
            _ => {}
        }
        if rates.flatten().any(|rate| !(1..=5_000_000).contains(rate)) {
            return wrong("a rate is 1 to 5000000 frames per second");
        }
        if let Some(dimension) = &self.compare
            && !self.variety.dimensions().contains(dimension)
        {
            return Err(RunnerError::Invalid(format!(
                "{dimension} has one value only: nothing to compare"
            )));
        }
        let longest =
            self.variety.combinations().iter().filter_map(|of| round::count_of(self, of)).max();
        if let Some(messages) = longest.filter(|it| *it > round::MAX_KEPT) {
            return Err(RunnerError::Invalid(format!(
                "a round of {messages} messages is too long, at most {}: repeat shorter ones",
                round::MAX_KEPT
            )));
        }
        Ok(())
    }

    fn endpoints(&self, session: &mut Session<'_>) -> Result<EndpointSetup, RunnerError> {
        match &self.place {
            PlaceSpec::Bench => {
                EndpointSetup::bench(1, &mut |text| session.notes.push(text.to_owned()))
            }
            PlaceSpec::Interface { name, .. } => {
                timewire_sys::interface_index(name).map_err(|error| {
                    RunnerError::kernel(format!("find the interface {name}"), error)
                })?;
                Ok(EndpointSetup::interface(Some(name)))
            }
        }
    }

    fn timestamped(&self, _: &EndpointSetup) -> Timestamped {
        Timestamped { sent: false, received: self.timestamps == NicTimestamping::Told }
    }

    fn measure(
        &self,
        endpoints: &EndpointSetup,
        session: &mut Session<'_>,
    ) -> Result<ReceiveReport, RunnerError> {
        let combinations = self.variety.combinations();
        let mut reporter = Reporter::new(self, &combinations);
        let of = combinations.len() * self.repeats;
        let mut number = 0;
        for repeat in 0..self.repeats {
            for at in order(combinations.len(), repeat) {
                number += 1;
                (session.tell)(&format!("[{number}/{of}] {}", combinations[at]));
                let round = round::run(self, endpoints, &combinations[at], &session.ends)?;
                let ended_early = round.ended_early;
                reporter.add(at, round);
                if ended_early {
                    return Ok(reporter.finish());
                }
            }
        }
        Ok(reporter.finish())
    }
}

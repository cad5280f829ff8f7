// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long received frames take: from the card, or the sending program, to the kernel, and from
//! the driver or the kernel to the program; for every source and way to wait, at several rates, and
//! in different worlds. All combinations are measured in turn, again and again, so that what
//! changes with time touches all of them.
//!
//! ```text
//! for each repeat:  for each combination, beginning one later each time:
//!     make its world, send and receive, take the world back
//! ```
//!
//! Not here: what a user types and reads (`timewire-cli`), the picture (`timewire-report`).

pub mod plan;
pub mod report;
mod round;
pub mod sample;
mod world;

use std::sync::{Arc, OnceLock};

use timewire_base::{IfName, Span};
use timewire_host::HostError;
use timewire_host::journal::Journal;
use timewire_host::stamping::Stamped;
use timewire_lab::LabError;
use timewire_path::listen::FrameFilter;
use timewire_path::probe::Probe;
use timewire_sys::event::EndRequests;

use super::MeasureError;
use super::bench::{End, Pair, PairSpec};
use super::card_clock::Look;
use crate::{CardStamping, stamping};
use plan::{Dimension, Policy, Variety, order};
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
    /// How well the card's clock must be known for its stamps to be used.
    pub max_clock_error: Span,
    /// Whether the card's stamps are used.
    pub stamps: CardStamping,
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

/// Where it is measured, ready for it.
#[derive(Debug)]
enum Place {
    Bench(Pair),
    Interface { name: IfName, port: u16, queue: Option<u32>, journal: OnceLock<Arc<Journal>> },
}

impl Place {
    fn make(spec: &PlaceSpec, progress: &mut dyn FnMut(&str)) -> Result<Place, MeasureError> {
        Ok(match spec {
            PlaceSpec::Bench => {
                Place::Bench(Pair::create(PairSpec { queues: 1, ipv6: false }, progress)?)
            }
            PlaceSpec::Interface { name, port, queue } => {
                timewire_sys::interface_index(name).map_err(|error| {
                    MeasureError::kernel(format!("find the interface {name}"), error)
                })?;
                let (name, port, queue) = (name.clone(), *port, *queue);
                Place::Interface { name, port, queue, journal: OnceLock::new() }
            }
        })
    }

    /// Runs something where frames are received, on a thread of its own.
    fn receiving<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match self {
            Place::Bench(pair) => pair.inside(End::B, work),
            Place::Interface { .. } => {
                let joined = std::thread::scope(|scope| scope.spawn(work).join());
                joined.or_else(|panic| std::panic::resume_unwind(panic))
            }
        }
    }

    fn interface(&self) -> IfName {
        match self {
            Place::Bench(pair) => pair.interface(),
            Place::Interface { name, .. } => name.clone(),
        }
    }

    fn port(&self) -> Option<u16> {
        match self {
            Place::Bench(_) => None,
            Place::Interface { port, .. } => Some(*port),
        }
    }

    fn queue(&self) -> Option<u32> {
        match self {
            Place::Bench(_) => None,
            Place::Interface { queue, .. } => *queue,
        }
    }

    /// What AF_XDP takes: what it takes does not reach the stack, so of an interface only what is
    /// sent to the port.
    fn xdp(&self, filter: FrameFilter) -> FrameFilter {
        FrameFilter { udp_port: filter.udp_port.or(self.port()), ..filter }
    }

    /// How the card's clock stands now.
    fn card(&self) -> Result<Look, String> {
        match self {
            Place::Bench(_) => Err("the bench's interfaces have no clock".to_owned()),
            Place::Interface { name, .. } => round::card_of(name),
        }
    }

    fn journal(&self) -> Result<&Journal, HostError> {
        match self {
            Place::Bench(pair) => Ok(pair.journal()),
            Place::Interface { journal, .. } => {
                if let Some(journal) = journal.get() {
                    return Ok(journal);
                }
                let new = Arc::new(Journal::begin("settings of a measurement")?);
                Ok(journal.get_or_init(|| new))
            }
        }
    }
}

impl ReceiveSpec {
    /// Checks what no type can.
    ///
    /// **Errors**: in words, with what would be right.
    pub fn check(&self) -> Result<(), MeasureError> {
        let wrong = |why: &str| Err(MeasureError::Invalid(why.to_owned()));
        self.variety.check().map_err(MeasureError::Invalid)?;
        if self.count.is_none() && self.duration.is_none() {
            return wrong("a round needs an end: a count or a time");
        }
        if self.count == Some(0) || self.duration.is_some_and(|it| it <= Span::ZERO) {
            return wrong("a round needs more than nothing");
        }
        if self.repeats == 0 {
            return wrong("a combination is measured at least once");
        }
        if self.place == PlaceSpec::Bench && self.stamps == CardStamping::Told {
            return wrong("the bench's interfaces have no card that could stamp: --interface");
        }
        if !(Probe::LEN..=1_472).contains(&self.payload) {
            return Err(MeasureError::Invalid(format!(
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
            return Err(MeasureError::Invalid(format!(
                "{dimension} has one value only: nothing to compare"
            )));
        }
        let longest = self.variety.combinations().iter().filter_map(|of| self.kept(of)).max();
        if let Some(messages) = longest.filter(|it| *it > round::MOST_KEPT) {
            return Err(MeasureError::Invalid(format!(
                "a round of {messages} messages is too long, at most {}: repeat shorter ones",
                round::MOST_KEPT
            )));
        }
        Ok(())
    }

    fn kept(&self, of: &plan::Combination) -> Option<u64> {
        round::count_of(self, of)
    }
}

/// What a measurement is doing.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which round of all, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// The combination, in words.
    pub what: String,
}

/// Measures. When it is asked to end, it tells what it has.
///
/// **Errors**: what cannot be measured; the host is as it was, or the error says otherwise.
pub fn measure(
    spec: &ReceiveSpec,
    progress: &mut dyn FnMut(&Step),
    note: &mut dyn FnMut(&str),
) -> Result<ReceiveReport, MeasureError> {
    spec.check()?;
    // Before anything is made: from here on it ends by itself when it is asked to.
    let ends = EndRequests::new().map_err(|error| MeasureError::kernel("block signals", error))?;
    let place = Place::make(&spec.place, note)?;
    let card = match (&place, spec.stamps) {
        (Place::Interface { name, .. }, CardStamping::Told) => {
            let mut notes = Vec::new();
            let wanted = Stamped { sent: false, received: true };
            let card = stamping::begin(Some(name), wanted, &mut notes)?;
            notes.iter().for_each(|text| note(text));
            card
        }
        _ => None,
    };
    let combinations = spec.variety.combinations();
    let mut reporter = Reporter::new(spec, &combinations);
    let of = combinations.len() * spec.repeats;
    let mut number = 0;
    'all: for repeat in 0..spec.repeats {
        for at in order(combinations.len(), repeat) {
            number += 1;
            progress(&Step { number, of, what: combinations[at].to_string() });
            let round = round::run(spec, &place, &combinations[at], &ends)?;
            let ended_early = round.ended_early;
            reporter.add(at, round);
            if ended_early {
                break 'all;
            }
        }
    }
    if let Some(text) = stamping::end(card)? {
        note(&text);
    }
    if let Place::Bench(pair) = place {
        pair.destroy()?;
    }
    Ok(reporter.finish())
}

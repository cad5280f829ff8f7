// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds for traffic without a schedule: the latency, jitter and backlog that streams never
//! exceed under strict priority, credit-based shaping, asynchronous shaping, gates and preemption.
//!
//! Class by class and link by link in the order of dependence, with total flow analysis: what a
//! stream's frames can wait on a link makes its burst on the next one; in circles of dependence,
//! until all fit each other. Whole numbers, each rounded
//! towards the safe side: rates up to bit/s, bursts up to bits, delays up to nanoseconds.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.8 and Annex L; RFC 9320; the papers named at the functions.
//!
//! Not here: scheduled traffic ([`crate::check`]); exact fractions ([`crate::calculus`]).

mod cause;
mod circle;
mod credit;
mod network;
mod port;

pub use cause::{Cause, NoBound, PortClass};
pub use credit::{CreditBound, CreditClass, credit_bounds};
pub use network::{Route, bound};
pub use port::{ClassGates, ClassWindow, PortScheme, Selection};

use timewire_base::{BitsPerSecond, Span};

use crate::calculus::CalculusError;
use crate::model::{LinkId, Problem, Role, StreamId};

/// Why nothing was bounded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundsError {
    /// There is a scheme for each link, or there is none.
    #[error("{schemes} schemes for {links} links: give one for each")]
    Schemes {
        /// How many were given.
        schemes: usize,
        /// How many links there are.
        links: usize,
    },
    /// A route that names what is not there, or does not go on from the talker.
    #[error("stream {stream:?}: link {link:?} does not continue its way")]
    Route {
        /// Whose.
        stream: StreamId,
        /// Which link.
        link: LinkId,
    },
    /// Credit-based classes reserve a port or more.
    #[error("{reserved} bit/s are reserved by credit of a link of {rate}: some must be left")]
    Reserved {
        /// Together.
        reserved: u64,
        /// The link's rate.
        rate: BitsPerSecond,
    },
    /// A class by strict priority between two with credit: no bound of theirs covers it.
    #[error("link {link:?}: class {class} has strict priority between classes with credit")]
    Between {
        /// Which port.
        link: LinkId,
        /// Which class.
        class: u8,
    },
    /// Windows that are empty, out of order, or beyond the cycle.
    #[error("link {link:?}: gate windows must be in order, not empty and within the cycle")]
    Gates {
        /// Which port.
        link: LinkId,
    },
    /// A number that does not fit.
    #[error("{0}")]
    Calculus(#[from] CalculusError),
    /// Something at one queue for which there is no bound.
    #[error("link {:?}, class {}: {error}", at.link, at.class)]
    At {
        /// Which queue.
        at: PortClass,
        /// What.
        error: Box<BoundsError>,
    },
}

impl BoundsError {
    /// The same with the names of the problem.
    pub fn describe(&self, problem: &Problem) -> String {
        let network = problem.network();
        let name = |link: &LinkId| {
            let known = network.links().get(link.index());
            known.map_or_else(|| format!("#{}", link.0), |link| link.name.clone())
        };
        match self {
            BoundsError::Route { stream, link } => {
                let known = problem.streams().get(stream.index());
                let whose = known.map_or_else(|| format!("#{}", stream.0), |it| it.name.clone());
                let from = network.links().get(link.index()).map(|link| network.node(link.from));
                match from.filter(|node| node.role == Role::EndStation) {
                    Some(node) => format!("{whose} goes through the station {}", node.name),
                    None => format!("the way of {whose} does not go on over {}", name(link)),
                }
            }
            BoundsError::Between { link, class } => format!(
                "at {}, class {class} has strict priority between classes with credit",
                name(link)
            ),
            BoundsError::Gates { .. } => {
                "its gates are not in order, empty or beyond the cycle".to_owned()
            }
            BoundsError::Reserved { reserved, rate } => format!(
                "classes with credit reserve {reserved} bit/s of {rate}, and some must be left"
            ),
            BoundsError::At { at, error } => {
                format!("{}: {}", at.describe(problem), error.describe(problem))
            }
            other => other.to_string(),
        }
    }

    /// At which queue it is, where it is at one.
    pub fn queue(&self, problem: &Problem) -> Option<PortClass> {
        match self {
            BoundsError::At { at, .. } => Some(*at),
            BoundsError::Between { link, class } => Some(PortClass { link: *link, class: *class }),
            BoundsError::Route { stream, link } => {
                let stream = problem.streams().get(stream.index())?;
                Some(PortClass { link: *link, class: stream.priority })
            }
            _ => None,
        }
    }

    fn at(self, at: PortClass) -> BoundsError {
        match self {
            BoundsError::At { .. } | BoundsError::Between { .. } => self,
            other => BoundsError::At { at, error: Box::new(other) },
        }
    }
}

/// What a stream never exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBound {
    /// Whose.
    pub stream: StreamId,
    /// From the arrival of a message's first bit at the talker's port until its last bit is at the
    /// last listener; `None`: no bound was found.
    pub latency: Option<Span>,
    /// How much the latency can differ, from any frame to any other, also of one message.
    pub jitter: Option<Span>,
    /// Why there is none.
    pub without: Option<NoBound>,
}

/// What waits in a queue at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBound {
    /// The port that sends on this link.
    pub link: LinkId,
    /// The traffic class.
    pub class: u8,
    /// From a frame's arrival in the queue until it has left; `None`: without bound.
    pub delay: Option<Span>,
    /// With everything around the frames. **Units**: bytes.
    pub backlog_bytes: Option<u64>,
    /// Why there is no bound.
    pub without: Option<NoBound>,
}

/// Bounds of a whole network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkBounds {
    /// By route, in the order given.
    pub streams: Vec<StreamBound>,
    /// By link and class, of those that are used.
    pub queues: Vec<QueueBound>,
}

/// The traffic class of a priority on a port with so many queues.
pub fn class_of(priority: u8, queues: u8) -> u8 {
    priority.min(queues.saturating_sub(1))
}

#[cfg(test)]
mod tests;

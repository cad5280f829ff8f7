// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network calculus: bounds of delay and backlog that no sequence of arrivals exceeds.
//!
//! Not here: bounds for a network's own ports and queues (`crate::bounds`).

mod curve;
mod ratio;
mod servers;

pub use curve::{Arrival, Service};
pub use ratio::Ratio;
pub use servers::{Bounds, Flow, Observed, Order, Servers};

use thiserror::Error;

/// Why no bound was computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CalculusError {
    /// An exact result has more than 127 bits.
    #[error("a number is beyond 127 bits: state rates and bursts in coarser units")]
    Overflow,
    /// A denominator, or a rate to divide by, is zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A rate, burst or latency below zero.
    #[error("a rate, burst or latency is negative")]
    Negative,
    /// A curve without a line.
    #[error("a curve needs at least one bucket or guarantee")]
    Empty,
    /// A path without a server, with one that does not exist, or with one twice.
    #[error(
        "flow {flow}: server {server} is unknown or comes twice on its path, or the path is empty"
    )]
    Path {
        /// The flow's index.
        flow: usize,
        /// The server's index.
        server: usize,
    },
    /// The output of these servers depends on itself.
    #[error(
        "servers {servers:?} depend on each other in a circle: there is no order to bound them in"
    )]
    Cycle {
        /// Their indices.
        servers: Vec<usize>,
    },
    /// The method is for one bucket per flow and one guarantee per server.
    #[error("this method needs one bucket per flow and one rate and latency per server")]
    ManyLines,
}

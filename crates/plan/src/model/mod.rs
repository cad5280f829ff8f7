// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is planned, and what a plan says. The words of this module are all that the planner and
//! those who judge its plans share.
//!
//! **A transmission** of a frame of `length_bytes` on a link occupies it for
//! `ceil((length_bytes + overhead_bytes) * 8 / rate)` and a margin for clocks from its start
//! ([`Network::occupancy`], [`Network::margin`]). The frame is whole at the other end one
//! propagation after the occupancy ends; the overhead counts as part of it.
//!
//! **Forwarding.** A frame may start on the next link when it is whole (store and forward) or when
//! `header_bytes` of it are there (cut-through; only when both links have the same rate, else it
//! is stored), then `processing_max` later, and the network's `sync_error` after that. It is there
//! `processing_max - processing_min + 2 * sync_error` and the margin earlier than that at the
//! earliest.
//!
//! **A message** of a stream is its `frames` of one interval. Its latency is from the start of its
//! first frame at the talker until its last frame is whole at the last listener. All starts of a
//! plan are relative to the stream's interval and repeat with it; they may lie beyond its end.
//!
//! Not here: finding a plan.

mod cases;
mod error;
mod network;
mod plan;
mod stream;

pub use cases::{CasePart, PackingCase, Split};
pub use error::ModelError;
pub use network::{
    DeviceLimits, Forwarding, Link, LinkId, Network, NetworkOptions, Node, NodeId, Reserve, Role,
};
pub(crate) use network::{MAX_BYTES, bytes_time};
pub use plan::{
    Admission, Certificate, GateWindow, Plan, PortGates, Refusal, Transmission, greatest_divisor,
};
pub(crate) use stream::MAX_FRAMES;
pub use stream::{Arrival, Problem, Release, Route, Stream, StreamId};

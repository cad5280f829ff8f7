// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of stations and bridges as a simulation of discrete events: will the traffic hold,
//! without hardware, and what when something goes wrong?
//!
//! [`Network`] says what there is; [`Simulation`] runs it, in parts if wanted, and answers with an
//! [`SimOutcome`]. Ports are those of `timewire-tsn`. The same network and seed give the same
//! outcome, to the last bit, on every machine. While it runs it checks itself: a link carries one
//! frame at a time, frames keep their windows, and every frame that was sent has arrived, is lost
//! for a counted reason, or is on its way.
//!
//! Memory grows with the frames on their way, not with time, and those are at most
//! [`Network::MAX_IN_FLIGHT`]: of latencies 64 MiB are kept, and more are counted in buckets.
//!
//! Not here: kernels of stations ([`TimeMaster`](crate::TimeMaster)), files and names
//! (`timewire-model`), what a schedule should be.

mod app;
mod clock;
mod delay;
mod describe;
mod engine;
mod fault;
mod frame;
mod medium;
mod memory;
mod noted;
mod observe;
mod ports;
mod queue;
mod replay;
mod route;
mod stats;
mod tree;
mod worst;

pub use clock::{ClockSpec, SyncSpec};
pub use delay::Delay;
pub use describe::{
    Access, Fault, FaultKind, LinkSpec, MediumSpec, NetError, Network, NodeSpec, PortIndex,
    StreamSpec, Traffic, plain_port,
};
pub use engine::Simulation;
pub use observe::{Observer, Seen, What};
pub use replay::{FullReplay, Replay};
pub use stats::{Latencies, LostBy, SimOutcome, StreamResult, Violation};
pub use worst::{PhaseSearch, Trial};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated network and the master of its time, as values: they are told what happened, and
//! answer with what to do. No clock is read, nothing is random that has no seed, and the same
//! events in the same order give the same answers.
//!
//! - [`SimTime`]: simulated time, in picoseconds, so that the bits of every usual rate and the
//!   nanoseconds of a drifting clock have exact instants.
//! - [`StationClock`]: what a station's clock reads at an instant, and when it will read a value.
//! - [`TimeMaster`]: who may run next, until when, among kernels that share simulated time.
//! - [`Segment`]: a hub or a switch with links of a rate and a delay.
//! - [`stations`]: hosts on a segment and their programs, as `timewire run` measures them.
//! - [`net`]: whole networks with stations and bridges of their own, and what goes wrong in them.
//!
//! Not here: the kernels and their sockets (`timewire-lab`), how a station queues its frames
//! (`timewire-tsn`, or a real kernel).
#![forbid(unsafe_code)]

mod clock;
mod master;
pub mod net;
mod segment;
pub mod stations;
mod time;

pub use clock::{ClockError, StationClock};
pub use master::{LocalNs, Message, Participant, TimeError, TimeMaster, Turn};
pub use segment::{
    Actions, Delivery, Event, Link, Loss, Passage, PortCounters, PortIndex, Segment, SegmentConfig,
    SegmentKind,
};
pub use time::SimTime;

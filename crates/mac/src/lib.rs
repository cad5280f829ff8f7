// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transmission machine of one station: strict-priority queues behind the station's windows of
//! a repeating cycle. The real-time data path and the simulator drive the same machine.
//!
//! A [`Machine`] is a value. It is told what happened ([`Event`]) and what time it is, and answers
//! with what to do now ([`Actions`]) and when to call again ([`Next`]). It reads no clock and, once
//! built, neither allocates nor frees.
//!
//! What it keeps, whenever it is called:
//!
//! 1. A frame starts inside a window and, with the margin, ends inside the same one at the link's
//!    rate. A late call costs capacity, never somebody else's window.
//! 2. Frames of one queue leave in the order in which they came.
//! 3. Of the frames that fit the rest of the window, the one of the most urgent queue leaves first
//!    ([`Machine`] says what that means for shorter frames of lower queues).
//! 4. `arrived = released + dropped + depth` in every queue, after every call.
//!
//! [`port`] has the same for one port with the eight queues of the standard: gates, credit, launch
//! times, asynchronous shaping, preemption.
//!
//! [`PortRules`] says which frame belongs to which queue. [`SyncGuard`] says whether the clock is
//! on time, without which no window is open.
//!
//! Not here: how windows are planned (`timewire-sched`), clocks, sockets and threads
//! (`timewire-path`).
#![forbid(unsafe_code)]

mod classify;
mod config;
mod counters;
mod error;
mod gate;
mod guard;
mod launch;
mod machine;
pub mod port;
mod queue;

pub use classify::{PortRules, Ports, ports_of};
pub use config::{Config, Mode};
pub use counters::{Counters, QueueCounters};
pub use error::MacError;
pub use gate::Pending;
pub use guard::{Change, GuardActions, GuardLimits, Heard, Loss, SyncGuard};
pub use launch::LaunchTimes;
pub use machine::{Actions, DropReason, Event, Machine, Next};
pub use queue::{QueueIndex, QueueSet};

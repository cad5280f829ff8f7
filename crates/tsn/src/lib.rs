// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What IEEE 802.1Q and Linux make of a description: the machines that select the next frame, and
//! the queueing disciplines and scheduling of Linux for the same.
//!
//! The transmission machine of one station has strict-priority queues behind the station's windows
//! of a repeating cycle. A [`Machine`] is a value. It is told what happened ([`Event`]) and what
//! time it is, and answers with what to do now ([`Actions`]) and when to call again ([`Next`]). It
//! reads no clock and, once built, neither allocates nor frees.
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
//! times, asynchronous shaping, preemption. Simulated networks are made of it. Both select the next
//! frame by the same code, `selection`.
//!
//! [`PortRules`] says which frame belongs to which queue. [`SyncGuard`] says whether the clock is
//! on time, without which no window is open.
//!
//! Of Linux there are: [`qdisc`], the queueing disciplines as `tc` takes them; [`desired`], the
//! tree of them for the transmit side of a host; [`backend`], who carries out a TDM schedule;
//! [`groups`], the policies and priorities for a tree of groups; [`drops`], why a frame was not
//! sent. [`mod@file`] reads scenario and network files with all of these checks.
//!
//! Not here: the files' keys and the schedule (`timewire-model`), clocks, sockets and threads
//! (`timewire-datapath`), running `tc` (`timewire-host`).
#![forbid(unsafe_code)]

pub mod backend;
mod classify;
mod config;
mod counters;
pub mod desired;
pub mod drops;
mod error;
pub mod file;
pub mod groups;
mod guard;
mod launch;
mod machine;
pub mod port;
pub mod qdisc;
mod queue;
mod selection;
mod time;

pub use classify::PortRules;
pub use config::{Config, Mode};
pub use counters::{Counters, QueueCounters};
pub use error::MacError;
pub use guard::{Change, GuardActions, GuardLimits, Heard, Loss, SyncGuard};
pub use launch::{DueTimes, LaunchTimes};
pub use machine::{Actions, DropReason, Event, Machine, Next};
pub use queue::{QueueIndex, QueueSet};
pub use selection::tdm::Pending;

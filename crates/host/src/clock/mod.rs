// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a host and those who keep it: what linuxptp is started with, what it says over its
//! management socket, who else would steer the same clock, and TAI - UTC.
//!
//! Not here: starting and watching daemons, closing slots (`timewire-datapath`); whether the clock
//! is on time (`timewire_tsn::SyncGuard`).

pub mod client;
pub mod config;
pub mod dataset;
pub mod leap;
pub mod management;
pub mod rivals;
pub mod waiting;

pub(crate) mod steering;
mod wire;

pub use steering::RestoreSteering;

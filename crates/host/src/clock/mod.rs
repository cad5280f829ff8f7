// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a host and those who keep it: what linuxptp is started with, what it says over its
//! management socket, who else would steer the same clock, and TAI - UTC.
//!
//! Not here: starting and watching daemons, closing slots (`timewire-ctl`); whether the clock is on
//! time (`timewire_mac::SyncGuard`).

pub mod client;
pub mod config;
pub mod dataset;
pub mod leap;
pub mod management;
pub mod rivals;
pub mod waiting;

mod wire;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data path of a station with real frames through real interfaces, for each carrier.
//!
//! Not here: several stations on a segment (`timewire-lab`, `timewire-ctl`), exact release times,
//! which no test of a busy host can promise (`timewire-mac` has them in virtual time).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod carriers;
mod receive;
mod station;
mod transmit;

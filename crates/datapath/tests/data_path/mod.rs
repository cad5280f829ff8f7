// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data path of a station with real frames through real interfaces, for each socket type.
//!
//! Not here: several stations on a segment (`timewire-lab`, `timewire-runner`), exact release
//! times, which no test of a busy host can promise (`timewire-tsn` has them in virtual time).

mod receive;
mod sockets;
mod transmit;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Audio, video, clock and control streams of IEEE 1722-2016: the packets, the media that they
//! carry, and the machines that talk and listen.
//!
//! Everything here is a value or a machine that is told the time. A talker is asked for its next
//! packet and answers with bytes and launch time; a listener is given packets and asked what is to
//! be presented by now. Once made, neither allocates. The same input gives the same output.
//!
//! * [`pdu`]: packets to and from bytes.
//! * [`media`]: audio and video files to and from samples and NAL units.
//! * [`stream`]: talkers and listeners.
//! * [`AvtpTime`], [`ClockRecovery`]: times and rates.
//! * [`Reservation`], [`AafPacking`]: what a stream needs of a link.
//!
//! Not here: sockets, interfaces and clocks (`timewire-datapath`, `timewire-sys`); the shaper of a
//! reserved class (`timewire-tsn`); discovery and connection management (IEEE 1722.1).
#![forbid(unsafe_code)]

mod bytes;
mod error;
pub mod media;
pub mod pdu;
mod recovery;
mod reservation;
mod sequence;
pub mod stream;
mod time;

pub use error::AvtpError;
pub use recovery::ClockRecovery;
pub use reservation::{AafPacking, Pcp, Reservation, SrClass, TSpec, VlanId};
pub use sequence::{Sequence, SequenceOrder};
pub use time::{AvtpTime, Cadence, MAX_TRANSIT, Ppb};

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs on one station: its MAC on a real interface and the socket that commands it,
//! talkers and listeners with every timestamp there is, receive priority, process groups and
//! linuxptp kept in force, the observer of a segment, and the release of a program just before its
//! slot.
//!
//! Not here: experiments (`timewire-runner`), the rules by which frames are released
//! (`timewire-tsn`), what the records come to (`timewire-capture`).

pub mod avtp;
pub mod clock;
pub mod control;
pub mod drops;
mod egress;
mod engine;
mod error;
pub mod files;
pub mod groups;
pub mod heard;
pub mod http;
pub mod listen;
pub mod mac;
pub mod marks;
mod message;
pub mod monitor;
pub mod observe;
pub mod pipeline;
pub mod probe;
pub mod ptp_frame;
mod realtime;
mod receive;
pub mod receive_priority;
pub mod record;
pub mod release;
pub mod reply;
mod socket;
pub mod station;
pub mod streams;
pub mod sync;
pub mod talker;
pub mod timestamping;
pub mod top;
pub mod traffic;
pub mod transmit;
mod xdp_mode;

pub use error::DatapathError;
pub use message::MIN_MESSAGE;
pub use socket::SocketChoice;
pub use sync::ptp_offset;
pub use timestamping::NicTimestamping;
pub use timewire_capture::marker::udp_flow;

use timewire_capture::record::ClockInfo;

/// The clocks of every record file written here: one, TAI of this host's kernel.
///
/// Timestamps of one kernel are compared with each other only, so their error is that of reading
/// the clock: its granularity.
pub fn clocks() -> Vec<ClockInfo> {
    vec![ClockInfo { name: "TAI".to_owned(), error_bound: timewire_base::Span::from_ns(1) }]
}

/// A kernel receive timestamp (UTC) as TAI.
fn kernel_timestamp_as_tai(
    timestamp: timewire_base::Instant<timewire_base::Utc>,
    offset: timewire_base::Span,
) -> timewire_base::Instant<timewire_base::Tai> {
    timewire_base::Instant::from_ns(timestamp.as_ns()).saturating_add(offset)
}

/// TAI now.
pub(crate) fn now() -> timewire_base::Instant<timewire_base::Tai> {
    timewire_sys::clock::now()
}

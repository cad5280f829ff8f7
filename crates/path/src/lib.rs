// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that move frames and take stamps: a station's MAC on a real interface, the programs
//! that talk and listen, receiving with every stamp there is, the observer of a segment, and the
//! release of a program just before its slot.
//!
//! Not here: making interfaces (`timewire-ctl`, `timewire-lab`), the rules by which frames are
//! released (`timewire-mac`), what the records come to (`timewire-trace`).

mod carrier;
mod engine;
pub mod heard;
pub mod listen;
pub mod mac;
pub mod marks;
mod message;
pub mod observe;
pub mod pipeline;
pub mod probe;
pub mod ptp_frame;
mod realtime;
mod receive;
pub mod record;
pub mod release;
pub mod talker;
pub mod traffic;
pub mod transmit;
mod xdp_mode;

pub use carrier::CarrierChoice;
pub use message::MIN_MESSAGE;
pub use timewire_trace::marker::udp_flow;

use timewire_sys::clock;
use timewire_trace::record::ClockInfo;

/// The clocks of every record file written here: one, TAI of this host's kernel.
///
/// Stamps of one kernel are compared with each other only, so their error is that of reading the
/// clock: its granularity.
pub fn clocks() -> Vec<ClockInfo> {
    vec![ClockInfo { name: "TAI".to_owned(), error_bound: timewire_base::Span::from_ns(1) }]
}

/// A kernel receive stamp (UTC) as TAI.
fn kernel_stamp_as_tai(
    stamp: timewire_base::Instant<timewire_base::Utc>,
    offset: timewire_base::Span,
) -> timewire_base::Instant<timewire_base::Tai> {
    timewire_base::Instant::from_ns(stamp.as_ns()).saturating_add(offset)
}

/// TAI now.
pub(crate) fn now() -> timewire_base::Instant<timewire_base::Tai> {
    clock::now()
}

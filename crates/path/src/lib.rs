// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that move frames and take stamps: a station's MAC on a real interface, the programs
//! that talk and listen, the observer of a segment, and the release of a program just before its
//! slot.
//!
//! Not here: making interfaces (`timewire-ctl`, `timewire-lab`), the rules by which frames are
//! released (`timewire-mac`), what the records come to (`timewire-trace`).

mod carrier;
mod engine;
pub mod mac;
mod message;
pub mod observe;
mod realtime;
mod receive;
pub mod record;
pub mod release;
pub mod traffic;

pub use carrier::CarrierChoice;
pub use message::MIN_MESSAGE;

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

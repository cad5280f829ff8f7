// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libtimewire`: what a control program that is not written in Rust needs of Timewire. Time and
//! slots, sending with launch times and by timetable, receiving with every timestamp,
//! and the header by which messages are known.
//!
//! What each function does, its units and errors, and the rules for threads stand in
//! `include/timewire.h`; a test holds the two together. Every function keeps three rules: a panic
//! becomes an error code and never crosses into the caller, a wrong argument is an error and never
//! a crash as far as that can be seen from here, and nothing is allocated between opening and
//! closing.
//!
//! Not here: the work itself (`timewire-datapath`, `timewire-model`); why this is a crate
//! (`docs/src/adr/0018-c-library.md`).

mod address;
mod beside;
mod clock;
mod error;
mod handle;
mod marker;
mod probe;
mod raw;
mod receive;
mod slots;
mod stream;
mod talker;
mod transmit;

pub use address::{Address, tw_address_format, tw_address_parse};
pub use clock::{tw_now, tw_sleep_until};
pub use error::{tw_exit_code, tw_last_errno, tw_last_error};
pub use marker::{
    tw_marker_close, tw_marker_count, tw_marker_counter, tw_marker_flow, tw_marker_histogram,
    tw_marker_mark, tw_marker_observe, tw_marker_open, tw_marker_point,
};
pub use probe::{Probe, tw_probe_parse, tw_probe_write};
pub use receive::{
    Arrival, ArrivalFn, Filter, ReceiverConfig, tw_receiver_address, tw_receiver_close,
    tw_receiver_drops, tw_receiver_fd, tw_receiver_mode, tw_receiver_open,
    tw_receiver_other_queues, tw_receiver_receive, tw_receiver_take,
};
pub use slots::{
    Window, tw_slots_close, tw_slots_make, tw_slots_next, tw_slots_open, tw_slots_parse,
    tw_slots_wait,
};
pub use stream::{StreamConfig, StreamCounters};
pub use talker::{
    Fill, FillFn, TalkerConfig, tw_talker_close, tw_talker_counters, tw_talker_drop_causes,
    tw_talker_mode, tw_talker_open, tw_talker_run, tw_talker_stop,
};
pub use transmit::{
    Report, ReportFn, TransmitterConfig, tw_transmitter_buffer, tw_transmitter_close,
    tw_transmitter_drop_causes, tw_transmitter_fd, tw_transmitter_flush,
    tw_transmitter_hardware_address, tw_transmitter_longest, tw_transmitter_lost_reports,
    tw_transmitter_mode, tw_transmitter_open, tw_transmitter_reports, tw_transmitter_send,
    tw_transmitter_send_copy,
};

use std::ffi::{CStr, c_char};

/// The version of the library as text that never goes away.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    const TEXT: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("invariant: one zero at the end"),
        };
    TEXT.as_ptr()
}

/// The version of the binary interface, `TW_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tw_abi_version() -> u32 {
    const VERSION: u32 = match u32::from_str_radix(env!("TIMEWIRE_ABI_VERSION"), 10) {
        Ok(version) => version,
        Err(_) => panic!("TW_ABI_VERSION is a decimal number"),
    };
    VERSION
}

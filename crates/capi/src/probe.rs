// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header by which a listener knows the messages of a stream.

use std::ffi::c_int;

use timewire_base::Instant;
use timewire_datapath::probe;

use crate::error::{Failed, guard};
use crate::raw;

/// `tw_probe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probe {
    /// `sizeof(tw_probe)`.
    pub size: u32,
    /// The sequence number in the stream.
    pub seq: u32,
    /// **Units**: nanoseconds of TAI.
    pub time_ns: i64,
    /// The stream.
    pub stream: u32,
    /// Whether the time is a launch time: 0 or 1.
    pub is_launch: u32,
    /// Messages of the stream before this one that were not sent, if `has_skipped`; wraps.
    pub skipped: u32,
    /// Whether the talker says how many it skipped: 0 or 1.
    pub has_skipped: u32,
}

// SAFETY: `repr(C)`, integers without padding between or behind them (asserted), the size first.
unsafe impl raw::Sized32 for Probe {
    const FIRST: usize = 32;
    const NAME: &'static str = "tw_probe";
}
const _: () = assert!(size_of::<Probe>() == 32);

/// Writes the header to the start of a message.
///
/// # Safety
/// `message` is null or writable for `length` bytes; `probe` is null or as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_probe_write(
    message: *mut u8,
    length: usize,
    probe: *const Probe,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (message, probe) =
            unsafe { (raw::slice_mut(message, length, "the message")?, raw::structure(probe)?) };
        raw::only(probe.has_skipped, 1, "has_skipped")?;
        let (needed, skipped) = match probe.has_skipped {
            0 => (probe::Probe::LEN, None),
            _ => (probe::Probe::LEN_SKIPPED, Some(probe.skipped)),
        };
        if message.len() < needed {
            return Err(Failed::usage(format_args!(
                "a message of {length} bytes has no room for the header of {needed}"
            )));
        }
        let stream = u16::try_from(probe.stream).ok().filter(|it| *it <= probe::Probe::MAX_STREAM);
        let Some(stream) = stream else {
            return Err(Failed::usage(format_args!(
                "stream {}: the highest is {}",
                probe.stream,
                probe::Probe::MAX_STREAM
            )));
        };
        raw::only(probe.is_launch, 1, "is_launch")?;
        let time = Instant::from_ns(probe.time_ns);
        let is_launch = probe.is_launch == 1;
        probe::Probe { stream, seq: probe.seq, time, is_launch, skipped }.write(message);
        Ok(0)
    })
}

/// Reads the header at the start of a message: 1 if there is one, else 0.
///
/// # Safety
/// `message` is null or readable for `length` bytes; `probe` is null or as its size says, and
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_probe_parse(
    message: *const u8,
    length: usize,
    probe: *mut Probe,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let message = unsafe { raw::slice(message, length, "the message")? };
        // SAFETY: as before; only its size is used.
        let size = unsafe { raw::structure(probe)? }.size;
        let Some(found) = probe::Probe::parse(message) else { return Ok(0) };
        let found = Probe {
            size,
            seq: found.seq,
            time_ns: found.time.as_ns(),
            stream: found.stream.into(),
            is_launch: found.is_launch.into(),
            skipped: found.skipped.unwrap_or(0),
            has_skipped: found.skipped.is_some().into(),
        };
        // SAFETY: it is not null and has at least the first version's size, which is all of ours;
        // of any alignment.
        unsafe { probe.write_unaligned(found) };
        Ok(1)
    })
}

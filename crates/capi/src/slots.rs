// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slots of a station: from a file, from what a running MAC says of itself, or by hand; and
//! waiting for the next one.

use std::ffi::{c_char, c_int};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use timewire_base::{CyclicWindows, Instant, Span, StationName};
use timewire_datapath::release::SlotTimer;
use timewire_model::scenario::{IncludeError, with_included};
use timewire_model::tdm::TdmSchedule;
use timewire_tsn::file;

use crate::error::{Answer, Failed, guard};
use crate::handle::{self, Handle, Kind};
use crate::raw;

/// `tw_window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// Start in the cycle. **Units**: nanoseconds.
    pub offset_ns: i64,
    /// **Units**: nanoseconds.
    pub length_ns: i64,
}

/// What a slots handle names.
pub(crate) struct OpenSlots {
    timer: SlotTimer,
    windows: CyclicWindows,
    lead: Span,
}

impl Kind for OpenSlots {
    const NAME: &'static str = "slots";
}

impl OpenSlots {
    /// **Errors**: no slots, or a lead that is not within a cycle.
    fn new(windows: CyclicWindows, lead_ns: i64) -> Result<OpenSlots, Failed> {
        if windows.windows().is_empty() {
            return Err(Failed::usage("there are no slots of this station to wait for"));
        }
        let lead = Span::from_ns(lead_ns);
        if lead.is_negative() || lead > windows.cycle() {
            return Err(Failed::usage(format_args!(
                "a lead of {lead_ns} ns: it is 0 to one cycle, {}",
                windows.cycle()
            )));
        }
        let timer = SlotTimer::new(windows.clone(), lead);
        Ok(OpenSlots { timer, windows, lead })
    }
}

/// The start of every status that a MAC gives: its schema.
const STATUS: &str = "timewire.tdm-status/";

/// What of a MAC's status is of interest.
#[derive(Deserialize)]
struct Status {
    schema: String,
    schedule: Option<TdmSchedule>,
    windows: Option<CyclicWindows>,
}

/// **Errors**: the text is neither a status nor a sound network, or has no such station.
fn windows_in(name: &str, text: &str, station: Option<&str>) -> Result<CyclicWindows, Failed> {
    let station = station.map(StationName::new).transpose().map_err(Failed::usage)?;
    if text.trim_start().starts_with('{') && text.contains(STATUS) {
        let status: Status = serde_json::from_str(text)
            .map_err(|error| Failed::usage(format_args!("{name}: {error}")))?;
        if !status.schema.starts_with(STATUS) {
            return Err(Failed::usage(format_args!("{name}: its schema is {}", status.schema)));
        }
        let windows = match (&station, status.schedule) {
            (None, _) => status.windows,
            (Some(station), Some(schedule)) => Some(schedule.windows_of(station)),
            (Some(_), None) => None,
        };
        return windows.ok_or_else(|| {
            Failed::usage(format_args!("{name}: the MAC has no schedule, so there are no slots"))
        });
    }
    let scenario = file::with_slots(name, text).map_err(Failed::usage)?;
    let Some(station) = station else {
        return Err(Failed::usage(format_args!("{name} is a network: say which station")));
    };
    if scenario.station(&station).is_none() {
        return Err(Failed::usage(format_args!("{name} has no station `{station}`")));
    }
    Ok(scenario.schedule.windows_of(&station))
}

/// Reads the slots of a station from a file.
///
/// # Safety
/// `path` and `station` are null or end with a zero; `slots` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_slots_open(
    path: *const c_char,
    station: *const c_char,
    lead_ns: i64,
    slots: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (path, station, to) = unsafe {
            (
                raw::text(path, "the path")?,
                raw::maybe_text(station, "the station")?,
                raw::target(slots, "the room for the handle")?,
            )
        };
        let text = with_included(Path::new(path), &mut |path| fs::read_to_string(path));
        let text = text.map_err(|error| match error {
            IncludeError::Read(error) => Failed::system(path, &error),
            IncludeError::Wrong(errors) => Failed::usage(errors),
        })?;
        *to = handle::keep(OpenSlots::new(windows_in(path, &text, station)?, lead_ns)?)?;
        Ok(0)
    })
}

/// Reads the slots of a station from a text.
///
/// # Safety
/// `text` and `station` are null or end with a zero; `slots` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_slots_parse(
    text: *const c_char,
    station: *const c_char,
    lead_ns: i64,
    slots: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (text, station, to) = unsafe {
            (
                raw::text(text, "the text")?,
                raw::maybe_text(station, "the station")?,
                raw::target(slots, "the room for the handle")?,
            )
        };
        *to = handle::keep(OpenSlots::new(windows_in("the text", text, station)?, lead_ns)?)?;
        Ok(0)
    })
}

/// Makes slots of numbers.
///
/// # Safety
/// `windows` is null or readable for `count` windows; `slots` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_slots_make(
    base_time_ns: i64,
    cycle_ns: i64,
    windows: *const Window,
    count: usize,
    lead_ns: i64,
    slots: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (windows, to) = unsafe {
            (
                raw::slice(windows, count, "the windows")?,
                raw::target(slots, "the room for the handle")?,
            )
        };
        let one = |window: &Window| timewire_base::Window {
            offset: Span::from_ns(window.offset_ns),
            length: Span::from_ns(window.length_ns),
        };
        let windows = windows.iter().map(one).collect();
        let base_time = Instant::from_ns(base_time_ns);
        let windows = CyclicWindows::new(base_time, Span::from_ns(cycle_ns), windows)
            .map_err(Failed::usage)?;
        *to = handle::keep(OpenSlots::new(windows, lead_ns)?)?;
        Ok(0)
    })
}

/// When the next slot starts, at or after a time.
///
/// # Safety
/// `slot_ns` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_slots_next(slots: Handle, from_ns: i64, slot_ns: *mut i64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(slot_ns, "the room for the time")? };
        handle::with(slots, |slots: &mut OpenSlots| {
            let next = slots.windows.next_start_at_or_after(Instant::from_ns(from_ns));
            *to = next.expect("invariant: there is a window").as_ns();
            Ok(0)
        })
    })
}

/// Waits until the lead before the next slot.
///
/// # Safety
/// `slot_ns` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_slots_wait(slots: Handle, slot_ns: *mut i64) -> c_int {
    guard(|| {
        handle::with(slots, |slots: &mut OpenSlots| -> Answer {
            let due = slots.timer.wait().expect("invariant: there is a window");
            if !slot_ns.is_null() {
                // SAFETY: not null, and writable, says the caller.
                unsafe { slot_ns.write((due + slots.lead).as_ns()) };
            }
            Ok(0)
        })
    })
}

/// Ends slots.
#[unsafe(no_mangle)]
pub extern "C" fn tw_slots_close(slots: Handle) -> c_int {
    guard(|| handle::close::<OpenSlots>(slots, || ()))
}

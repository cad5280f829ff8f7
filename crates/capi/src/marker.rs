// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks. A ring belongs to the thread that opened it, and is kept by that thread: what another one
//! opened is none here, and what a thread forgot to close ends with it.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};

use timewire_datapath::udp_flow;
use timewire_sys::marker::{Counter, Histogram, Markers, Point, RawMarkers};

use crate::address::Address;
use crate::error::{Answer, Failed, guard};
use crate::raw;

thread_local! {
    #[expect(clippy::vec_box, reason = "C has their addresses, which stay when the list grows")]
    static OWN: RefCell<Vec<Box<Markers>>> = const { RefCell::new(Vec::new()) };
}

/// Does something with this thread's rings.
///
/// **Errors**: the thread is ending.
fn own(body: impl FnOnce(&mut Vec<Box<Markers>>) -> Answer) -> Answer {
    OWN.try_with(|own| body(&mut own.borrow_mut()))
        .unwrap_or_else(|_| Err(Failed::usage("the thread is ending")))
}

fn not_one() -> Failed {
    Failed::usage("this marker is closed, or another thread's, or was never one")
}

/// Names something; null has everything.
fn named(
    marker: *const RawMarkers,
    name: *const c_char,
    body: impl FnOnce(&Markers, &str) -> std::io::Result<u16>,
) -> c_int {
    guard(|| {
        // SAFETY: the caller of each of the functions below promises it.
        let name = unsafe { raw::text(name, "the name")? };
        if marker.is_null() {
            return Ok(0);
        }
        own(|all| {
            let found = all.iter().find(|it| std::ptr::eq(it.raw(), marker));
            let number = body(found.ok_or_else(not_one)?, name).map_err(Failed::usage)?;
            Ok(number.into())
        })
    })
}

/// Opens the ring of the calling thread.
///
/// # Safety
/// `marker` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_open(records: u32, marker: *mut *const RawMarkers) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise is the one that this asks for.
        let to = unsafe { raw::target(marker, "the room for the marker")? };
        *to = std::ptr::null();
        let records = if records == 0 { Markers::USUAL } else { records };
        let markers = Markers::open(records).map_err(|error| Failed::system("open", &error))?;
        if !markers.is_open() {
            return Ok(0);
        }
        own(|all| {
            // Its address stays when the list grows.
            let markers = Box::new(markers);
            *to = markers.raw();
            all.push(markers);
            Ok(0)
        })
    })
}

/// Names a point.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_point(marker: *const RawMarkers, name: *const c_char) -> c_int {
    named(marker, name, |markers, name| markers.point(name).map(Point::number))
}

/// Names a counter.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_counter(
    marker: *const RawMarkers,
    name: *const c_char,
) -> c_int {
    named(marker, name, |markers, name| markers.counter(name).map(Counter::number))
}

/// Names a histogram.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_histogram(
    marker: *const RawMarkers,
    name: *const c_char,
) -> c_int {
    named(marker, name, |markers, name| markers.histogram(name).map(Histogram::number))
}

/// The upper half of the tags of what goes from one UDP socket to another.
///
/// # Safety
/// `from` and `to` are null or addresses; `flow` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_flow(
    from: *const Address,
    to: *const Address,
    flow: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (from, to, flow) = unsafe {
            (
                raw::slice(from, 1, "the address it is from")?,
                raw::slice(to, 1, "the address it goes to")?,
                raw::target(flow, "the room for the flow")?,
            )
        };
        *flow = udp_flow(from[0].to_socket_address()?, to[0].to_socket_address()?);
        Ok(0)
    })
}

/// `tw_mark()`.
///
/// # Safety
/// `marker` is null or open, and this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_mark(
    marker: *const RawMarkers,
    point: c_int,
    tag: u64,
    value: u64,
) {
    // SAFETY: the caller's promise.
    if let Some(marker) = unsafe { marker.as_ref() } {
        let point = u16::try_from(point).map_or(Point::NONE, Point::from_number);
        marker.mark(point, tag, value);
    }
}

/// `tw_count()`.
///
/// # Safety
/// `marker` is null or open, and this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_count(marker: *const RawMarkers, counter: c_int, more: u64) {
    // SAFETY: the caller's promise.
    if let (Some(marker), Ok(counter)) = (unsafe { marker.as_ref() }, u16::try_from(counter)) {
        marker.count(Counter::from_number(counter), more);
    }
}

/// `tw_observe()`.
///
/// # Safety
/// `marker` is null or open, and this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_observe(
    marker: *const RawMarkers,
    histogram: c_int,
    value: u64,
) {
    // SAFETY: the caller's promise.
    if let (Some(marker), Ok(number)) = (unsafe { marker.as_ref() }, u16::try_from(histogram)) {
        marker.observe(Histogram::from_number(number), value);
    }
}

/// Ends it.
///
/// # Safety
/// None is needed: what is not this thread's is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_marker_close(marker: *const RawMarkers) -> c_int {
    guard(|| {
        if marker.is_null() {
            return Ok(0);
        }
        own(|all| {
            let at =
                all.iter().position(|it| std::ptr::eq(it.raw(), marker)).ok_or_else(not_one)?;
            drop(all.swap_remove(at));
            Ok(0)
        })
    })
}

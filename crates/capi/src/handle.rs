// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles: names of open objects. A handle looks like a pointer to C and is none: it is a place in
//! a table and how often that place was used. So a handle that was closed, was never one, or is of
//! another kind is an error; and so is using one that is in use, by another thread or by the
//! callback that it calls.
//!
//! Looking it up takes no system call and never waits.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::error::{Answer, Code, Failed};

/// What a handle can name.
pub(crate) trait Kind: Any + Send {
    /// What it is called in errors.
    const NAME: &'static str;
}

/// A handle as it crosses the border; never followed.
pub(crate) type Handle = *mut std::ffi::c_void;

struct HandleSlot {
    /// How often the place was used: a handle of an earlier use is not one any more.
    uses: usize,
    object: Option<Box<dyn Any + Send>>,
}

/// Objects that can be open at a time.
pub(crate) const PLACES: usize = 1_024;
/// Bits of a handle that are the place, counted from 1.
const PLACE_BITS: u32 = 12;
const USES: usize = usize::MAX >> PLACE_BITS;
/// A bit that no handle has.
pub(crate) const FREE_BIT: usize = 1 << (PLACE_BITS - 1);
const _: () = assert!(PLACES < FREE_BIT);

static TABLE: [Mutex<HandleSlot>; PLACES] =
    [const { Mutex::new(HandleSlot { uses: 0, object: None }) }; PLACES];

/// Whether a place has an object, or is about to. To look for a free one locks none that another
/// thread uses: its call would find the object in use.
static TAKEN: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];

/// Gives an object a handle.
///
/// **Errors**: too many are open.
pub(crate) fn keep<K: Kind>(object: K) -> Result<Handle, Failed> {
    for (index, (place, taken)) in TABLE.iter().zip(&TAKEN).enumerate() {
        if taken.swap(true, Ordering::AcqRel) {
            continue;
        }
        // Only a handle of an earlier use can lock it now, for as long as it takes to see that.
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.uses = place.uses.wrapping_add(1) & USES;
        place.object = Some(Box::new(object));
        let name = place.uses << PLACE_BITS | (index + 1);
        return Ok(std::ptr::without_provenance_mut(name));
    }
    Err(Failed::with(Code::Full, 0, format_args!("{PLACES} objects are open: close some")))
}

/// The place in the table that a handle names, whatever is there.
pub(crate) fn place_of(handle: Handle) -> Option<usize> {
    let place = (handle.addr() & ((1 << PLACE_BITS) - 1)).checked_sub(1)?;
    (place < PLACES).then_some(place)
}

fn find<K: Kind>(handle: Handle) -> Result<(&'static Mutex<HandleSlot>, usize), Failed> {
    let place = place_of(handle).and_then(|place| TABLE.get(place));
    let place = place.ok_or_else(|| not_one::<K>(handle))?;
    Ok((place, handle.addr() >> PLACE_BITS))
}

/// What is wrong with a handle that names nothing of this kind.
pub(crate) fn not_one<K: Kind>(handle: Handle) -> Failed {
    if handle.is_null() {
        return Failed::usage(format_args!("the {} is NULL", K::NAME));
    }
    stale::<K>()
}

fn stale<K: Kind>() -> Failed {
    Failed::usage(format_args!("this {} is closed, or was never one", K::NAME))
}

fn busy<K: Kind>() -> Failed {
    Failed::usage(format_args!(
        "this {} is in use: by another thread, or by the call whose callback this is",
        K::NAME
    ))
}

/// Does something with the object of a handle.
///
/// **Errors**: the handle is null, closed, of another kind, or in use.
pub(crate) fn with<K: Kind>(handle: Handle, body: impl FnOnce(&mut K) -> Answer) -> Answer {
    let (place, uses) = find::<K>(handle)?;
    let mut place = match place.try_lock() {
        Ok(place) => place,
        Err(TryLockError::WouldBlock) => return Err(busy::<K>()),
        Err(TryLockError::Poisoned(_)) => {
            return Err(Failed::with(
                Code::Internal,
                0,
                format_args!("this {} met a defect before: close it", K::NAME),
            ));
        }
    };
    if place.uses != uses {
        return Err(stale::<K>());
    }
    let object = place.object.as_mut().and_then(|object| object.downcast_mut::<K>());
    body(object.ok_or_else(stale::<K>)?)
}

/// Ends an object; its handle is none from then on. Null is nothing to close. `before` is called
/// when it is certain that it ends, and before another one can have its place.
///
/// **Errors**: the handle is closed already, of another kind, or in use.
pub(crate) fn close<K: Kind>(handle: Handle, before: impl FnOnce()) -> Answer {
    if handle.is_null() {
        return Ok(0);
    }
    let (place, uses) = find::<K>(handle)?;
    let mut locked = match place.try_lock() {
        Ok(locked) => locked,
        Err(TryLockError::WouldBlock) => return Err(busy::<K>()),
        Err(TryLockError::Poisoned(poisoned)) => {
            place.clear_poison();
            poisoned.into_inner()
        }
    };
    let is_this =
        locked.uses == uses && locked.object.as_ref().is_some_and(|object| object.is::<K>());
    if !is_this {
        return Err(stale::<K>());
    }
    before();
    let object = locked.object.take();
    drop(locked);
    if let Some(taken) = place_of(handle).and_then(|place| TAKEN.get(place)) {
        taken.store(false, Ordering::Release);
    }
    drop(object);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::guard;
    use crate::slots::{OpenSlots, Window, tw_slots_close, tw_slots_make};

    fn open() -> Handle {
        let (window, mut slots) = (Window { offset_ns: 0, length_ns: 1 }, std::ptr::null_mut());
        // SAFETY: one window and a place for the handle.
        assert_eq!(unsafe { tw_slots_make(0, 9, &raw const window, 1, 0, &raw mut slots) }, 0);
        slots
    }

    fn use_it(slots: Handle, panics: bool) -> i32 {
        guard(|| {
            with(slots, |_: &mut OpenSlots| {
                assert!(!panics, "a defect made by a test");
                Ok(3)
            })
        })
    }

    #[test]
    fn t0_what_met_a_defect_refuses_all_but_being_closed() {
        let (broken, other) = (open(), open());
        assert_eq!(use_it(broken, false), 3);
        assert_eq!([true, false, false].map(|panics| use_it(broken, panics)), [-5; 3]);
        assert_eq!(use_it(other, false), 3);
        assert_eq!(tw_slots_close(broken), 0);
        assert_eq!((use_it(broken, false), tw_slots_close(broken)), (-1, -1));
        // Its place is used again, and the old handle is not the new one.
        let new = open();
        assert_eq!((use_it(new, false), use_it(broken, false)), (3, -1));
        assert_eq!([tw_slots_close(new), tw_slots_close(other)], [0; 2]);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the caller's pointers point to. Every pointer is checked for null here, every structure
//! with a size for that size.
//!
//! **Structures that grow.** A structure of the caller begins with its size as the caller's header
//! has it. A larger one is of a later header: what this library does not know must be zero, or it
//! is an error, since something was asked for that would not be done. A smaller one than the first
//! version had is an error; what a structure lacks of a later version counts as zero.

use std::ffi::{CStr, c_char};

use crate::error::{Code, Failed};

/// A structure that begins with its own size and may be all zero.
///
/// # Safety
/// It is `repr(C)`, has no padding, is valid with any bytes, and its first field is the `u32` size.
pub(crate) unsafe trait Sized32: Copy {
    /// The size of its first version.
    const FIRST: usize;
    /// Its name in C.
    const NAME: &'static str;
}

/// Reads a structure of the caller.
///
/// **Errors**: null, smaller than its first version, or with something this library does not know.
///
/// # Safety
/// It is null, or readable for as many bytes as its first four say, if these are at least its first
/// version's size.
pub(crate) unsafe fn structure<T: Sized32>(from: *const T) -> Result<T, Failed> {
    let name = T::NAME;
    if from.is_null() {
        return Err(Failed::usage(format_args!("the {name} is NULL")));
    }
    let bytes = from.cast::<u8>();
    // SAFETY: the caller says that its first four bytes are readable; of any alignment.
    let size = unsafe { from.cast::<u32>().read_unaligned() };
    let size = size_of_caller::<T>(size)?;
    for at in size_of::<T>()..size {
        // SAFETY: `at` is below `size`, for which the caller says it is readable.
        if unsafe { bytes.add(at).read() } != 0 {
            return Err(Failed::with(
                Code::Unsupported,
                0,
                format_args!(
                    "the {name} asks for something that this library is too old for (byte {at})"
                ),
            ));
        }
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: source readable for `size` bytes, target writable for its own size, and no overlap
    // with a local; then all of `value` is initialised, and valid with any bytes (`Sized32`).
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes,
            value.as_mut_ptr().cast::<u8>(),
            size.min(size_of::<T>()),
        );
        Ok(value.assume_init())
    }
}

/// Reads an array of structures of the caller, which are all of one size.
///
/// **Errors**: none or more than `most`, and as [`structure`] for each of them.
///
/// # Safety
/// It is null, or each of its structures is as [`structure`] asks for, right behind the other.
pub(crate) unsafe fn structures<T: Sized32>(
    from: *const T,
    count: u32,
    most: usize,
) -> Result<Vec<T>, Failed> {
    let name = T::NAME;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || count > most {
        return Err(Failed::usage(format_args!("{count} of {name}: it takes 1 to {most}")));
    }
    if from.is_null() {
        return Err(Failed::usage(format_args!("the array of {name} is NULL")));
    }
    // SAFETY: not null, and its first four bytes are readable, says the caller.
    let size = unsafe { from.cast::<u32>().read_unaligned() };
    let step = usize::try_from(size).unwrap_or(usize::MAX);
    let mut values = Vec::with_capacity(count);
    for at in 0..count {
        // The first one's size was found sound before the second is looked for.
        let one = from.cast::<u8>().wrapping_add(step.wrapping_mul(at)).cast::<T>();
        // SAFETY: the caller's promise.
        let own = unsafe { one.cast::<u32>().read_unaligned() };
        if own != size {
            return Err(Failed::usage(format_args!(
                "the size field of {name} {at} is {own}, of the first {size}: all have \
                 sizeof({name})"
            )));
        }
        // SAFETY: the caller's promise.
        values.push(unsafe { structure(one)? });
    }
    Ok(values)
}

/// How many bytes of a structure the caller has room for: as many as its size field says.
///
/// **Errors**: null, or smaller than its first version.
///
/// # Safety
/// It is null, or its first four bytes are readable.
pub(crate) unsafe fn room_for<T: Sized32>(to: *const T) -> Result<usize, Failed> {
    if to.is_null() {
        return Err(Failed::usage(format_args!("the {} is NULL", T::NAME)));
    }
    // SAFETY: the caller says that its first four bytes are readable; of any alignment.
    let size = unsafe { to.cast::<u32>().read_unaligned() };
    size_of_caller::<T>(size)
}

/// Gives a structure to the caller: as much of it as there is room for, zeros where the caller's is
/// larger. Its size field stays the caller's.
///
/// # Safety
/// It is writable for as many bytes as [`room_for`] said.
pub(crate) unsafe fn give<T: Sized32>(value: &T, to: *mut T, room: usize) {
    let (to, from) = (to.cast::<u8>(), std::ptr::from_ref(value).cast::<u8>());
    let both = room.min(size_of::<T>());
    // SAFETY: both have so many bytes, the caller's begins with the size, which is left as it is;
    // they do not overlap, since `value` is ours.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(4), to.add(4), both - 4);
        to.add(both).write_bytes(0, room - both);
    }
}

/// **Errors**: no structure of this kind has this size.
fn size_of_caller<T: Sized32>(size: u32) -> Result<usize, Failed> {
    let (name, size) = (T::NAME, usize::try_from(size).unwrap_or(usize::MAX));
    if (T::FIRST..=4_096).contains(&size) {
        return Ok(size);
    }
    Err(Failed::usage(format_args!(
        "the size field of the {name} is {size}: set it to sizeof({name}), which is {}",
        size_of::<T>()
    )))
}

/// Reads a text that may be missing.
///
/// **Errors**: it is not UTF-8.
///
/// # Safety
/// It is null, or ends with a zero and does not change while `'a` lasts.
pub(crate) unsafe fn maybe_text<'a>(
    text: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failed> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller says it ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Failed::usage(format_args!("{what} is not UTF-8")))?;
    Ok(Some(text))
}

/// Reads a text.
///
/// **Errors**: it is null or not UTF-8.
///
/// # Safety
/// As [`maybe_text`].
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failed> {
    // SAFETY: the caller keeps the same promise.
    unsafe { maybe_text(text, what)? }.ok_or_else(|| null(what))
}

/// Where the caller wants an answer.
///
/// **Errors**: it is null.
///
/// # Safety
/// It is null, or aligned, initialised, writable, and nobody else's while `'a` lasts.
pub(crate) unsafe fn target<'a, T>(to: *mut T, what: &str) -> Result<&'a mut T, Failed> {
    // SAFETY: the caller keeps what `as_mut` asks for.
    unsafe { to.as_mut() }.ok_or_else(|| null(what))
}

/// What the caller lets us read; empty for no bytes, also at null.
///
/// **Errors**: it is null with a length.
///
/// # Safety
/// It is null, or readable for that many values that do not change while `'a` lasts.
pub(crate) unsafe fn slice<'a, T: Copy>(
    from: *const T,
    length: usize,
    what: &str,
) -> Result<&'a [T], Failed> {
    match (length, from.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null(what)),
        // SAFETY: not null, and readable for so many, says the caller.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(from, fits::<T>(length)?) }),
    }
}

/// What the caller lets us write; it is not read.
///
/// **Errors**: it is null with a length.
///
/// # Safety
/// It is null, or writable for that many bytes that nobody else uses while `'a` lasts, and
/// initialised.
pub(crate) unsafe fn slice_mut<'a>(
    to: *mut u8,
    length: usize,
    what: &str,
) -> Result<&'a mut [u8], Failed> {
    match (length, to.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(null(what)),
        // SAFETY: not null, and writable for so many, says the caller.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts_mut(to, fits::<u8>(length)?) }),
    }
}

/// More than any object can have is a negative number that became a length.
fn fits<T>(length: usize) -> Result<usize, Failed> {
    match length.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(length),
        _ => Err(Failed::usage(format_args!("{length} is no length"))),
    }
}

fn null(what: &str) -> Failed {
    Failed::usage(format_args!("{what} is NULL"))
}

/// Copies a text to the caller, cut between characters if there is too little room, with a zero at
/// its end; returns how long the whole text is, without the zero.
///
/// **Errors**: it is null with room.
///
/// # Safety
/// As [`slice_mut`].
pub(crate) unsafe fn give_text(text: &str, to: *mut c_char, room: usize) -> crate::error::Answer {
    // SAFETY: the caller keeps what `slice_mut` asks for.
    let to = unsafe { slice_mut(to.cast(), room, "the room for the text")? };
    if let Some(last) = to.len().checked_sub(1) {
        let mut count = text.len().min(last);
        while !text.is_char_boundary(count) {
            count -= 1;
        }
        to[..count].copy_from_slice(&text.as_bytes()[..count]);
        to[count] = 0;
    }
    crate::error::count(text.len())
}

/// The bits that are set and mean nothing.
///
/// **Errors**: there are some.
pub(crate) fn only(bits: u32, known: u32, what: &str) -> Result<(), Failed> {
    match bits & !known {
        0 => Ok(()),
        unknown => Err(Failed::usage(format_args!("{what} has unknown bits 0x{unknown:x}"))),
    }
}

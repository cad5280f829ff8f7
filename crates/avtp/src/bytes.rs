// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields at offsets, in network order, with errors that name them.

use crate::AvtpError;

/// A view of bytes whose every access is checked.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// `length` bytes from `offset`.
    pub fn slice(
        self,
        field: &'static str,
        offset: usize,
        length: usize,
    ) -> Result<&'a [u8], AvtpError> {
        let rest = self.0.get(offset..).unwrap_or_default();
        rest.get(..length).ok_or(AvtpError::Truncated {
            field,
            offset,
            needed: length,
            have: rest.len(),
        })
    }

    /// An array of bytes from `offset`.
    pub fn array<const N: usize>(
        self,
        field: &'static str,
        offset: usize,
    ) -> Result<[u8; N], AvtpError> {
        let slice = self.slice(field, offset, N)?;
        Ok(slice.try_into().expect("invariant: the slice has N bytes"))
    }

    pub fn u8(self, field: &'static str, offset: usize) -> Result<u8, AvtpError> {
        self.array::<1>(field, offset).map(|[byte]| byte)
    }

    pub fn u16(self, field: &'static str, offset: usize) -> Result<u16, AvtpError> {
        self.array(field, offset).map(u16::from_be_bytes)
    }

    pub fn u32(self, field: &'static str, offset: usize) -> Result<u32, AvtpError> {
        self.array(field, offset).map(u32::from_be_bytes)
    }

    pub fn u64(self, field: &'static str, offset: usize) -> Result<u64, AvtpError> {
        self.array(field, offset).map(u64::from_be_bytes)
    }
}

/// The first `needed` bytes of the place to write to, all zero.
pub(crate) fn room(out: &mut [u8], needed: usize) -> Result<&mut [u8], AvtpError> {
    let room = out.len();
    let out = out.get_mut(..needed).ok_or(AvtpError::NoRoom { needed, room })?;
    out.fill(0);
    Ok(out)
}

/// Puts `bytes` at `offset`; the room was asked for before.
pub(crate) fn put(out: &mut [u8], offset: usize, bytes: &[u8]) {
    out[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// A length as a field that holds at most `most`.
pub(crate) fn length16(
    field: &'static str,
    length: usize,
    right: &'static str,
) -> Result<u16, AvtpError> {
    u16::try_from(length).map_err(|_| AvtpError::Value { field, value: wide(length), right })
}

/// A length or an index as 64 bits.
pub(crate) fn wide(n: usize) -> u64 {
    u64::try_from(n).expect("invariant: lengths have at most 64 bits")
}

/// `value` when `fits`, and otherwise the error that says what would be right.
pub(crate) fn check(
    field: &'static str,
    value: impl Into<u64>,
    fits: bool,
    right: &'static str,
) -> Result<(), AvtpError> {
    let value = value.into();
    if fits { Ok(()) } else { Err(AvtpError::Value { field, value, right }) }
}

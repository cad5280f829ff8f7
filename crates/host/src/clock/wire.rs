// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading and writing the integers of a message, big-endian unless said otherwise.

/// What is left of the bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reading<'a> {
        Reading(bytes)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn i8(&mut self) -> Option<i8> {
        self.take().map(i8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }
}

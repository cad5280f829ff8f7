// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps from addresses, threads and tags: a fast hash that is the same in every run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose order is never looked at.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiply and fold, once for each word. Keys are not chosen by an adversary who could gain more
/// than a slow analysis of his own capture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // The two halves of the product: high bits depend on all low ones and the reverse.
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        let folded = (product >> 64) ^ (product & u128::from(u64::MAX));
        self.0 = u64::try_from(folded).expect("invariant: both halves have 64 bits");
    }
}

/// The tag that a program knows of a message with the header of a stream: the stream and the
/// number in it. The packet's tag has a hash of its addresses above them
/// ([`crate::identity::identify`]).
pub(super) const fn own_tag(tag: u64) -> u64 {
    tag & 0x0000_7fff_ffff_ffff
}

/// An index of 32 bits.
pub(super) fn at(index: u32) -> usize {
    usize::try_from(index).expect("invariant: an index of 32 bits")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts as numbers of statistics, and back.

/// For statistics: exact below 2^53.
pub(super) fn f64_of(count: usize) -> f64 {
    count as f64
}

/// The whole part of a number that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn whole(value: f64) -> usize {
    value as usize
}

/// A length as a count of 64 bits.
pub(super) fn count(len: usize) -> u64 {
    u64::try_from(len).expect("invariant: a length fits 64 bits")
}

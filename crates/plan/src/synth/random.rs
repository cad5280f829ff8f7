// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that look random and are the same for the same seed (SplitMix64: Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", 2014).
//!
//! Not here: anything that must not be guessed.

/// A sequence of 64-bit numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        let number = (u128::from(self.next()) * u128::from(bound)) >> 64;
        usize::try_from(number).unwrap_or(0)
    }
}

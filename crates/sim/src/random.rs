// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A seeded sequence of numbers, for loss.
//!
//! Not here: anything that needs secrecy.

/// SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, every seed a full sequence.
#[derive(Clone, Debug)]
pub struct Sequence(u64);

impl Sequence {
    pub fn new(seed: u64) -> Sequence {
        Sequence(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in `numerator` of `denominator` cases.
    pub fn happens(&mut self, numerator: u32, denominator: u32) -> bool {
        let scaled = (u128::from(self.next()) * u128::from(denominator)) >> 64;
        scaled < u128::from(numerator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_sequence_is_the_published_one() {
        let mut sequence = Sequence::new(1_234_567);
        assert_eq!(sequence.next(), 6_457_827_717_110_365_317);
        assert_eq!(sequence.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn t0_a_share_is_met() {
        let mut sequence = Sequence::new(7);
        let happened = (0..100_000).filter(|_| sequence.happens(1, 10)).count();
        assert!((9_700..10_300).contains(&happened), "{happened} of 100000");
        assert!(!(0..1_000).any(|_| sequence.happens(0, 10)));
        assert!((0..1_000).all(|_| sequence.happens(10, 10)));
    }
}

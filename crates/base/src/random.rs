// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that look random and are the same for the same seed.

/// SplitMix64: 64 bits of state, every seed a full sequence.
///
/// **Source**: Steele, Lea and Flood: Fast splittable pseudorandom number generators (2014).
#[derive(Clone, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Sequence {
        Sequence(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each equally likely but for 2^-64 of it; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        let number = (u128::from(self.next()) * u128::from(bound)) >> 64;
        usize::try_from(number).unwrap_or(0)
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
    fn t0_every_place_comes_equally_often() {
        let mut sequence = Sequence::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[sequence.below(10)] += 1;
        }
        // Four standard deviations of a share of a tenth are 380.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 380), "{counts:?}");
        assert_eq!(sequence.below(0), 0);
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

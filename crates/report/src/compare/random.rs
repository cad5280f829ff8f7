// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that look random and follow from a seed alone.
//!
//! Not here: what is drawn with them (`resample`).

/// SplitMix64.
///
/// **Source**: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// A generator of its own for each name, however many others there are.
    pub fn new(seed: u64, name: &str) -> Random {
        // FNV-1a.
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(seed ^ name.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A place in a list of this length, each equally likely but for less than 2^-32 of it.
    pub fn below(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("invariant: a length fits 64 bits");
        let high = (u128::from(self.next()) * u128::from(len)) >> 64;
        usize::try_from(high).expect("invariant: it is below the length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_seed_and_the_name_decide_everything() {
        let draw = |seed, name| {
            let mut random = Random::new(seed, name);
            (0..8).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
    }

    #[test]
    fn t0_every_place_comes_equally_often() {
        let mut random = Random::new(7, "places");
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10)] += 1;
        }
        // Four standard deviations of a share of a tenth are 380.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 380), "{counts:?}");
    }
}

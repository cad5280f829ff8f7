// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that look random and follow from a seed alone.

use timewire_base::Sequence;

/// A sequence of its own for each name.
#[derive(Clone, Debug)]
pub(super) struct Random(Sequence);

impl Random {
    /// The same for the same seed and name, however many others there are.
    pub fn new(seed: u64, name: &str) -> Random {
        // FNV-1a.
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(Sequence::new(seed ^ name.bytes().fold(0xcbf2_9ce4_8422_2325, fold)))
    }

    /// A place in a list of this length.
    pub fn below(&mut self, len: usize) -> usize {
        self.0.below(len)
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
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packet paths are shown when there are more than there is room for: half the room for the
//! longest, a quarter for those nearest to a threshold, the rest for any, by a seed.

use std::collections::{BTreeMap, BTreeSet};

use timewire_capture::packet_path::PacketPath;

/// Keeps packet paths in bounded memory: at most so many of each kind.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    most: usize,
    seed: u64,
    thresholds_ns: Vec<i64>,
    longest: BTreeSet<(i64, u64)>,
    near: BTreeSet<(u64, u64)>,
    any: BTreeSet<(u64, u64)>,
    kept: BTreeMap<u64, (PacketPath, u8)>,
    pub seen: u64,
}

impl Picker {
    pub fn new(most: usize, seed: u64, thresholds_ns: Vec<i64>) -> Picker {
        Picker {
            most,
            seed,
            thresholds_ns,
            longest: BTreeSet::new(),
            near: BTreeSet::new(),
            any: BTreeSet::new(),
            kept: BTreeMap::new(),
            seen: 0,
        }
    }

    pub fn add(&mut self, packet_path: &PacketPath) {
        self.seen += 1;
        let (number, length) = (packet_path.number, packet_path.end_to_end_ns());
        let mut uses = 0;
        let mut gone = Vec::new();
        self.any.insert((mixed(self.seed ^ number), number));
        uses += 1;
        if self.any.len() > self.most {
            gone.extend(self.any.pop_last().map(|(_, number)| number));
        }
        self.longest.insert((length, u64::MAX - number));
        uses += 1;
        if self.longest.len() > self.most / 2 {
            gone.extend(self.longest.pop_first().map(|(_, inverse)| u64::MAX - inverse));
        }
        if let Some(apart) = self.thresholds_ns.iter().map(|limit| length.abs_diff(*limit)).min() {
            self.near.insert((apart, number));
            uses += 1;
            if self.near.len() > self.most / 4 {
                gone.extend(self.near.pop_last().map(|(_, number)| number));
            }
        }
        // Its own places may be among those that are gone; then it is not copied.
        let own = gone.iter().filter(|&&one| one == number).count();
        if own < usize::from(uses) {
            self.kept.insert(number, (packet_path.clone(), uses));
        }
        for number in gone {
            if let Some((_, uses)) = self.kept.get_mut(&number) {
                *uses -= 1;
                if *uses == 0 {
                    self.kept.remove(&number);
                }
            }
        }
    }

    /// Intervals of what is kept so far.
    pub fn spans(&self) -> impl Iterator<Item = (i64, i64)> {
        self.kept.values().map(|(packet_path, _)| (packet_path.from_ns(), packet_path.to_ns()))
    }

    /// Those that are shown, by their numbers.
    pub fn finish(mut self) -> Vec<PacketPath> {
        let longest = self.longest.iter().map(|&(_, inverse)| u64::MAX - inverse);
        let mut chosen: BTreeSet<u64> = longest.collect();
        chosen.extend(self.near.iter().map(|&(_, number)| number));
        for &(_, number) in &self.any {
            if chosen.len() >= self.most {
                break;
            }
            chosen.insert(number);
        }
        let taken = chosen.iter().filter_map(|number| self.kept.remove(number));
        taken.map(|(packet_path, _)| packet_path).collect()
    }
}

/// A number that looks random and is the same for the same seed.
///
/// **Source**: the finaliser of splitmix64, S. Vigna, public domain.
pub(super) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::packet_path;
    use super::*;

    fn picked(most: usize, seed: u64, order: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut picker = Picker::new(most, seed, vec![5_000]);
        for number in order {
            // Each length once, in an order of its own.
            let length = i64::try_from(number * 37 % 1_009).unwrap() * 10;
            picker.add(&packet_path(number, &[0, length]));
            assert!(picker.kept.len() <= 2 * most, "{}", picker.kept.len());
        }
        picker.finish().iter().map(|packet_path| packet_path.number).collect()
    }

    #[test]
    fn t0_the_longest_the_near_and_some_are_kept() {
        let found = picked(100, 1, 0..1_009);
        assert_eq!(found.len(), 100);
        let length = |number: &u64| number * 37 % 1_009 * 10;
        for number in 0..1_009 {
            let wanted = length(&number) > 9_580 || length(&number).abs_diff(5_000) < 120;
            assert!(!wanted || found.contains(&number), "{number}: {}", length(&number));
        }
        assert_eq!(found, picked(100, 1, (0..1_009).rev()), "the order does not matter");
        assert_ne!(found, picked(100, 2, 0..1_009), "the seed does");
    }

    #[test]
    fn t0_all_are_kept_where_there_is_room() {
        assert_eq!(picked(100, 1, 0..100), (0..100).collect::<Vec<u64>>());
    }
}

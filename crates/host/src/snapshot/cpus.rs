// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs, as the kernel writes them: lists and masks.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of CPUs; it may be empty. Reads and prints as the kernel does: `0-2,5`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// The kernel has at most this many CPUs (linux v6.12 `arch/x86/Kconfig:NR_CPUS_RANGE_END`).
const MAX_CPUS: u32 = 8192;

impl CpuSet {
    /// Reads a mask such as `00000000,0000000f`: 32 CPUs a group, the last group has the first.
    ///
    /// **Errors**: a group is no hexadecimal number of 32 bits; more CPUs than Linux can have.
    pub fn of_mask(text: &str) -> Result<CpuSet, String> {
        let mut cpus = BTreeSet::new();
        for (group, word) in (0_u32..).zip(text.trim().rsplit(',')) {
            let bits = u32::from_str_radix(word, 16);
            let bits = bits.map_err(|_| format!("`{text}` is no mask of CPUs"))?;
            if group >= MAX_CPUS / 32 {
                return Err(format!("a mask of more than {MAX_CPUS} CPUs"));
            }
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| group * 32 + bit));
        }
        Ok(CpuSet(cpus))
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether all its CPUs are in the other.
    pub fn is_within(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuSet, String> {
        let wrong = || format!("`{text}` is no list of CPUs, such as 0-2,5");
        let mut cpus = BTreeSet::new();
        // `(null)` is what the kernel prints of an empty `nohz_full`.
        if text.trim().is_empty() || text.trim() == "(null)" {
            return Ok(CpuSet(cpus));
        }
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MAX_CPUS {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(CpuSet(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().collect();
        let range = |range: &[u32]| match range {
            [first, .., last] => format!("{first}-{last}"),
            other => other.iter().map(u32::to_string).collect(),
        };
        let ranges = cpus.chunk_by(|a, b| a + 1 == *b).map(range);
        f.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = String;
    fn try_from(text: String) -> Result<CpuSet, String> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t0_lists_and_masks_are_those_of_the_kernel() {
        for (text, written) in [("0-2,5\n", "0-2,5"), ("", ""), ("(null)", ""), ("3,1", "1,3")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), written);
        }
        for bad in ["x", "2-1", "0-9999", "1,,2", "-"] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad}");
        }
        for (mask, list) in [("3", "0-1"), ("00000001,80000000", "31-32"), ("00,00", "")] {
            assert_eq!(CpuSet::of_mask(mask).unwrap().to_string(), list);
        }
        assert!(CpuSet::of_mask("g").is_err());
        assert!(CpuSet::of_mask("").is_err());
    }

    proptest! {
        #[test]
        fn t0_sets_read_back(cpus in prop::collection::btree_set(0_u32..8192, 0..40)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn t0_no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::of_mask(&text);
        }
    }
}

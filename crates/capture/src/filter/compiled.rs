// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A filter as a plain struct: what a program in the kernel evaluates on each frame.
//!
//! What is known of a frame is first put into 16 numbers ([`Keys`]). A [`Test`] compares one or two
//! of them, or two others in their place; up to 16 tests are made once each, and their outcomes are
//! the bits of a number. A [`Conjunction`] asks for bits that are set and bits that are not; the
//! filter holds when any of up to 8 conjunctions does. Every step is the same few operations for
//! every filter, so that a program in the kernel has no branches by kind of test.
//!
//! **Shape** of [`Match`], native byte order, no padding (`repr(C)`): 840 bytes.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | how many tests, u32 |
//! | 4..8 | how many conjunctions, u32; 0 for a filter that holds for nothing |
//! | 8..72 | 8 conjunctions of two u32: bits that are all set; bits that are all clear |
//! | 72..840 | 16 tests of 48 bytes |
//!
//! | bytes of a test | what |
//! | --- | --- |
//! | 0..8 | mask, u64 |
//! | 8..16 | least, u64 |
//! | 16..24 | span, u64: `(words[word] & mask) - least`, wrapping, is at most this |
//! | 24..32 | mask of the word that follows, u64; 0 when it does not matter |
//! | 32..40 | value, u64: `words[word + 1] & mask2` is this |
//! | 40..42 | kinds, u16: bits of [`kind`]; the frame's is one of them |
//! | 42 | word, u8: 0 to 14 |
//! | 43 | other, u8: the word to try when the first does not hold; the same as `word` for none |
//! | 44..48 | zero |

/// Most tests of a filter.
pub const MAX_TESTS: usize = 16;
/// Most conjunctions of a filter.
pub const MAX_CONJUNCTIONS: usize = 8;
/// Numbers that are known of a frame.
pub const KEY_WORDS: usize = 16;

/// What a frame is, as a bit.
pub mod kind {
    /// IPv4 (EtherType 0x0800) with a whole header.
    pub const IPV4: u16 = 1;
    /// ARP (0x0806) with a whole header.
    pub const ARP: u16 = 2;
    /// Reverse ARP (0x8035) with a whole header.
    pub const RARP: u16 = 4;
    /// IPv6 (0x86dd) with a whole header.
    pub const IPV6: u16 = 8;
    /// Anything else.
    pub const OTHER: u16 = 16;
    /// IPv4 or IPv6.
    pub const IP: u16 = IPV4 | IPV6;
    /// Every kind.
    pub const ANY: u16 = 31;
}

/// Which word of [`Keys`] has what.
pub mod word {
    /// Source address: IPv6, upper 64 bits; 0 for the others.
    pub const SOURCE: u8 = 0;
    /// Source address: IPv6, lower 64 bits; IPv4 and the sender's of ARP in the lower 32; else 0.
    pub const SOURCE_LOW: u8 = 1;
    /// Destination address, as [`SOURCE`].
    pub const DESTINATION: u8 = 2;
    /// Destination address, as [`SOURCE_LOW`]; the target's of ARP.
    pub const DESTINATION_LOW: u8 = 3;
    /// Bits 0 to 15 the source port, 16 to 23 the protocol of IP, bit 24 set when there are ports.
    pub const SOURCE_PORT: u8 = 4;
    /// As [`SOURCE_PORT`], with the destination port.
    pub const DESTINATION_PORT: u8 = 5;
    /// Bits 0 to 47 the destination MAC address, the first octet uppermost; 48 to 63 the EtherType
    /// behind all VLAN tags, or the length of a frame that has none.
    pub const ETHER_DESTINATION: u8 = 6;
    /// Bits 0 to 47 the source MAC address. Of the outermost VLAN tag: bits 48 to 59 the VLAN, 60
    /// to 62 the priority code point; bit 63 is set when there is a tag.
    pub const ETHER_SOURCE: u8 = 7;
    /// Who the frame belongs to: the thread in the lower 32 bits, its process in the upper; 0 when
    /// that is not known.
    pub const PROCESS: u8 = 8;
    /// The name of that thread: its first 8 bytes as they stand in memory, 0 after its end.
    pub const PROCESS_NAME: u8 = 9;
    /// The other 8 bytes.
    pub const PROCESS_NAME_END: u8 = 10;
    /// The name of the interface, as [`PROCESS_NAME`].
    pub const INTERFACE: u8 = 11;
    /// The other 8 bytes.
    pub const INTERFACE_END: u8 = 12;
    // 13 to 15 are 0.

    /// The bit of [`SOURCE_PORT`] and [`DESTINATION_PORT`] that says that there are ports: the
    /// protocol is TCP, UDP or SCTP, directly behind the IP header; of IPv4 the fragment is the
    /// first.
    pub const HAS_PORTS: u64 = 1 << 24;
    /// The bit of [`ETHER_SOURCE`] that says that there is a VLAN tag.
    pub const TAGGED: u64 = 1 << 63;
    /// The bits of a MAC address.
    pub const MAC: u64 = (1 << 48) - 1;
}

/// What is known of a frame, as numbers ([`word`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Keys {
    /// The numbers.
    pub words: [u64; KEY_WORDS],
    /// What it is: one bit of [`kind`].
    pub kind: u16,
}

/// A comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct Test {
    /// Which bits of the word matter.
    pub mask: u64,
    /// The least of them that holds.
    pub least: u64,
    /// So much more than it may they be.
    pub span: u64,
    /// Which bits of the word that follows matter.
    pub next_mask: u64,
    /// What they are.
    pub next_value: u64,
    /// Kinds of frames for which it can hold.
    pub kinds: u16,
    /// Which word.
    pub word: u8,
    /// Which word instead.
    pub other: u8,
    /// Zero.
    pub unused: u32,
}

/// Outcomes of tests, by bits: test 0 is bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Conjunction {
    /// Tests that must hold.
    pub all: u32,
    /// Tests that must not.
    pub none: u32,
}

/// A filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Match {
    /// How many of the tests there are.
    pub test_count: u32,
    /// How many of the conjunctions there are.
    pub conjunction_count: u32,
    /// Any of them.
    pub conjunctions: [Conjunction; MAX_CONJUNCTIONS],
    /// The comparisons.
    pub tests: [Test; MAX_TESTS],
}

const _: () = assert!(size_of::<Test>() == 48);
const _: () = assert!(size_of::<Match>() == 840);

impl Test {
    /// Whether it holds.
    pub fn holds(&self, keys: &Keys) -> bool {
        self.kinds & keys.kind != 0 && (self.at(self.word, keys) || self.at(self.other, keys))
    }

    fn at(&self, word: u8, keys: &Keys) -> bool {
        let word = usize::from(word);
        let (first, next) = (keys.words[word], keys.words[word + 1]);
        (first & self.mask).wrapping_sub(self.least) <= self.span
            && next & self.next_mask == self.next_value
    }
}

impl Match {
    /// Holds for every frame.
    pub const ALL: Match = Match {
        test_count: 0,
        conjunction_count: 1,
        conjunctions: [Conjunction { all: 0, none: 0 }; MAX_CONJUNCTIONS],
        tests: [Test {
            mask: 0,
            least: 0,
            span: 0,
            next_mask: 0,
            next_value: 0,
            kinds: 0,
            word: 0,
            other: 0,
            unused: 0,
        }; MAX_TESTS],
    };

    /// The tests.
    pub fn tests(&self) -> &[Test] {
        let count = usize::try_from(self.test_count).unwrap_or(MAX_TESTS);
        &self.tests[..count.min(MAX_TESTS)]
    }

    /// The conjunctions.
    pub fn conjunctions(&self) -> &[Conjunction] {
        let count = usize::try_from(self.conjunction_count).unwrap_or(MAX_CONJUNCTIONS);
        &self.conjunctions[..count.min(MAX_CONJUNCTIONS)]
    }

    /// Whether the filter holds: the reference of the programs in the kernel.
    pub fn holds(&self, keys: &Keys) -> bool {
        let mut outcome = 0_u32;
        for (bit, test) in self.tests().iter().enumerate() {
            outcome |= u32::from(test.holds(keys)) << bit;
        }
        self.conjunctions().iter().any(|c| outcome & c.all == c.all && outcome & c.none == 0)
    }
}

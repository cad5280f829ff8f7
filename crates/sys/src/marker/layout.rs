// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a ring of marks, and reading them from a file that nobody vouches for: whatever
//! stands there, the answer is a value or `None`.
//!
//! The page `docs/src/reference/markers.md` has the same as a table; `timewire_mark.h` writes it.

/// How a file begins; the last of its header to be written.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"TWmarks1");
pub(super) const VERSION: u32 = 1;
/// **Units**: bytes.
pub(super) const RECORD: usize = 32;

// Offsets in the file, in bytes. What different parties write is on different cache lines, and
// those two apart, since processors fetch them in pairs.
pub(super) const AT_VERSION: usize = 8;
pub(super) const AT_RECORD: usize = 12;
pub(super) const AT_CAPACITY: usize = 16;
pub(super) const AT_PROCESS: usize = 20;
pub(super) const AT_THREAD: usize = 24;
pub(super) const AT_OPENED: usize = 32;
pub(super) const AT_NAME: usize = 40;
pub(super) const AT_LISTENING: usize = 128;
pub(super) const AT_READ: usize = 256;
pub(super) const AT_WRITTEN: usize = 384;
pub(super) const AT_LOST: usize = 392;
pub(super) const AT_POINTS: usize = 400;
pub(super) const AT_TABLE: usize = 4_096;
pub(super) const AT_VALUES: usize = 8_192;
pub(super) const AT_RECORDS: usize = 16_384;

/// Bytes of the header that say what the file is.
pub(super) const HEAD: usize = 64;
/// Bytes of the name of a thread.
pub(super) const THREAD_NAME: usize = 16;
/// Points of a ring at most.
pub(super) const POINTS: usize = 64;
/// **Units**: bytes of a point in the table.
pub(super) const POINT: usize = 64;
/// Where the name is in a point, and its room.
pub(super) const POINT_NAME: usize = 16;
pub(super) const NAME_ROOM: usize = 47;
/// Words of 64 bits for counters and histograms.
pub(super) const WORDS: usize = (AT_RECORDS - AT_VALUES) / 8;
/// A histogram: the value zero, then values of 1 to 64 bits, then the sum.
pub(super) const BUCKETS: usize = 65;
pub(super) const HISTOGRAM_WORDS: usize = BUCKETS + 1;

pub(super) const FEWEST: u32 = 64;
pub(super) const MAX_SLOTS: u32 = 1 << 20;

/// What a point is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mark,
    Counter,
    Histogram,
}

impl Kind {
    pub(super) fn number(self) -> u8 {
        match self {
            Kind::Mark => 1,
            Kind::Counter => 2,
            Kind::Histogram => 3,
        }
    }

    fn from_number(number: u8) -> Option<Kind> {
        [Kind::Mark, Kind::Counter, Kind::Histogram].into_iter().find(|it| it.number() == number)
    }

    /// How many words it has for its values.
    pub(super) fn words(self) -> usize {
        match self {
            Kind::Mark => 0,
            Kind::Counter => 1,
            Kind::Histogram => HISTOGRAM_WORDS,
        }
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(*four.expect("invariant: the offset is in the bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(<[u8]>::first_chunk);
    u64::from_le_bytes(*eight.expect("invariant: the offset is in the bytes"))
}

/// What a ring says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) capacity: u32,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) opened_ns: u64,
    pub(super) name: String,
}

impl Head {
    /// **Units**: bytes of the whole file.
    pub(super) fn file_bytes(&self) -> u64 {
        file_bytes(self.capacity)
    }

    pub(super) fn to_bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        for (at, value) in [
            (AT_VERSION, VERSION),
            (AT_RECORD, u32::try_from(RECORD).expect("invariant: 32")),
            (AT_CAPACITY, self.capacity),
            (AT_PROCESS, self.process),
            (AT_THREAD, self.thread),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[AT_OPENED..AT_OPENED + 8].copy_from_slice(&self.opened_ns.to_le_bytes());
        let name = self.name.as_bytes();
        let length = name.len().min(THREAD_NAME);
        bytes[AT_NAME..AT_NAME + length].copy_from_slice(&name[..length]);
        bytes
    }

    /// `None` for anything that this version does not read.
    pub(super) fn from_bytes(bytes: &[u8; HEAD]) -> Option<Head> {
        let capacity = u32_at(bytes, AT_CAPACITY);
        let fits = u64_at(bytes, 0) == MAGIC
            && u32_at(bytes, AT_VERSION) == VERSION
            && usize::try_from(u32_at(bytes, AT_RECORD)).ok()? == RECORD
            && capacity.is_power_of_two()
            && (FEWEST..=MAX_SLOTS).contains(&capacity);
        fits.then(|| Head {
            capacity,
            process: u32_at(bytes, AT_PROCESS),
            thread: u32_at(bytes, AT_THREAD),
            opened_ns: u64_at(bytes, AT_OPENED),
            name: text(&bytes[AT_NAME..AT_NAME + THREAD_NAME]),
        })
    }
}

/// **Units**: bytes of the file of a ring.
pub(super) fn file_bytes(capacity: u32) -> u64 {
    u64::from(capacity) * RECORD as u64 + AT_RECORDS as u64
}

/// A name up to its first zero, with everything that could disturb a terminal or a file replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether a point may be called so.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_ROOM).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// An entry of the table of points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) slot: u16,
    pub(super) name: String,
}

impl Entry {
    pub(super) fn to_bytes(&self) -> [u8; POINT] {
        let mut bytes = [0; POINT];
        bytes[0] = self.kind.number();
        bytes[2..4].copy_from_slice(&self.slot.to_le_bytes());
        let name = self.name.as_bytes();
        bytes[POINT_NAME..POINT_NAME + name.len()].copy_from_slice(name);
        bytes
    }

    /// `None` for a kind that is unknown, a name that is none, values outside their room.
    pub(super) fn from_bytes(bytes: &[u8; POINT]) -> Option<Entry> {
        let kind = Kind::from_number(bytes[0])?;
        let slot = u16::from_le_bytes([bytes[2], bytes[3]]);
        let name = text(&bytes[POINT_NAME..POINT_NAME + NAME_ROOM]);
        let is_sound = !name.is_empty() && usize::from(slot) + kind.words() <= WORDS;
        is_sound.then_some(Entry { kind, slot, name })
    }
}

/// A record as it stands in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) at_ns: u64,
    pub(super) tag: u64,
    pub(super) value: u64,
    pub(super) point: u16,
    pub(super) lap: u16,
    pub(super) cpu: u16,
}

impl Record {
    /// **Panics** when there are fewer bytes than a record has.
    pub(super) fn from_bytes(bytes: &[u8]) -> Record {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Record {
            at_ns: u64_at(bytes, 0),
            tag: u64_at(bytes, 8),
            value: u64_at(bytes, 16),
            point: half(24),
            lap: half(26),
            cpu: half(28),
        }
    }
}

/// What the record with this number has as its lap: a record of another round is not taken for it.
pub(super) fn lap(index: u64, capacity: u32) -> u16 {
    let lap = (index >> capacity.trailing_zeros()).wrapping_add(1) & u64::from(u16::MAX);
    u16::try_from(lap).expect("invariant: masked to 16 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn t0_a_head_is_read_as_it_was_written(
            (bits, process, thread) in (6_u32..=20, any::<u32>(), any::<u32>()),
            opened_ns in any::<u64>(),
            name in "[a-z]{0,16}",
        ) {
            let head = Head { capacity: 1 << bits, process, thread, opened_ns, name };
            prop_assert_eq!(Head::from_bytes(&head.to_bytes()), Some(head));
        }

        #[test]
        fn t0_one_wrong_byte_of_what_is_checked_is_seen(at in 0_usize..20, bit in 0_u8..8) {
            let head =
                Head { capacity: 64, process: 1, thread: 2, opened_ns: 3, name: String::new() };
            let mut bytes = head.to_bytes();
            bytes[at] ^= 1 << bit;
            let read = Head::from_bytes(&bytes);
            prop_assert!(read.is_none_or(|read| read.capacity != 64), "byte {}", at);
        }

        #[test]
        fn t0_a_point_is_read_as_it_was_written(
            kind in 1_u8..=3, slot in 0_u16..900, name in "[ -~äß]{1,23}",
        ) {
            let kind = Kind::from_number(kind).unwrap();
            let entry = Entry { kind, slot, name };
            prop_assert!(is_name(&entry.name));
            prop_assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry));
        }

        #[test]
        fn t0_any_bytes_are_a_sound_point_or_none(
            bytes in proptest::collection::vec(any::<u8>(), POINT), kind in 0_u8..5,
        ) {
            let mut bytes: [u8; POINT] = bytes.try_into().unwrap();
            bytes[0] = kind;
            if let Some(entry) = Entry::from_bytes(&bytes) {
                prop_assert!(usize::from(entry.slot) + entry.kind.words() <= WORDS);
                prop_assert!(!entry.name.is_empty() && !entry.name.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn t0_laps_tell_rounds_apart() {
        assert_eq!([0, 63, 64, 127, 128].map(|index| lap(index, 64)), [1, 1, 2, 2, 3]);
        assert_eq!(lap(65_535 * 64, 64), 0);
        assert_eq!(lap(65_536 * 64, 64), 1);
        assert_eq!(lap(u64::MAX, 64), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of what notes make a reader's user keep: names, values and samples of clocks. A file can
//! have any number of them.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::Note;

/// Most names and values of one capture.
const MAX_KEYS: usize = 1 << 18;
/// **Units**: bytes of names and values of one capture, at most.
const MAX_BYTES: usize = 64 << 20;
/// Most samples of clocks: those of twelve days at one a second.
const MAX_CLOCKS: usize = 1 << 20;
/// **Units**: bytes; a note that is longer counts each time, since it can take the place of a
/// shorter one.
const NOTE_BYTES: usize = 256;

type Same = BuildHasherDefault<DefaultHasher>;

/// What was admitted so far.
#[derive(Debug, Default)]
pub(super) struct NoteBounds {
    keys: HashSet<u64, Same>,
    bytes: usize,
    clocks: usize,
}

impl NoteBounds {
    /// Whether there is room for a note.
    pub fn admits(&mut self, note: &Note) -> bool {
        let hash = |what: (u8, u64, u64, &str)| Same::default().hash_one(what);
        let (key, bytes) = match note {
            Note::Thread { thread, name } => (hash((1, (*thread).into(), 0, "")), name.len()),
            Note::Point { point, name, .. } => (hash((2, *point, 0, "")), name.len()),
            Note::Flow { flow, name } => (hash((3, (*flow).into(), 0, "")), name.len()),
            Note::Qdisc { station, interface, handle, kind } => {
                let place = u64::from(*station) << 32 | u64::from(*interface);
                (hash((4, place, (*handle).into(), "")), kind.len())
            }
            Note::Counter { process, thread, name, .. } => {
                (hash((5, (*process).into(), (*thread).into(), name)), name.len())
            }
            Note::Histogram { process, thread, name, buckets, .. } => {
                let key = hash((6, (*process).into(), (*thread).into(), name));
                (key, name.len() + 8 * buckets.len())
            }
            Note::Clocks(_) => {
                self.clocks += 1;
                return self.clocks <= MAX_CLOCKS;
            }
            // Only the last one is kept.
            Note::Losses(_) => return true,
        };
        let is_new = !self.keys.contains(&key);
        if is_new && self.keys.len() >= MAX_KEYS {
            return false;
        }
        if is_new || bytes > NOTE_BYTES {
            let all = self.bytes.saturating_add(bytes);
            if all > MAX_BYTES {
                return false;
            }
            self.bytes = all;
            self.keys.insert(key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_names_without_end_are_not_kept() {
        let mut bounds = NoteBounds::default();
        let note = |thread: u32, length: usize| Note::Thread { thread, name: "x".repeat(length) };
        let admitted = (0..300_000).filter(|&thread| bounds.admits(&note(thread, 8))).count();
        assert_eq!(admitted, MAX_KEYS);
        // What is known goes on; a long one in its place counts.
        assert!((0..1_000_000).all(|_| bounds.admits(&note(5, 8))));
        let long = (0..1_000).filter(|_| bounds.admits(&note(5, 1 << 20))).count();
        assert!(long < 64, "{long}");
    }

    #[test]
    fn t0_every_kind_has_a_bound_of_its_own_names() {
        let name = String::new;
        let kinds: [fn(u64, String) -> Note; 5] = [
            |n, name| Note::Point { point: n, name, process: 0 },
            |n, name| Note::Flow { flow: u32::try_from(n).unwrap(), name },
            |n, kind| Note::Qdisc {
                station: 0,
                interface: 1,
                handle: u32::try_from(n).unwrap(),
                kind,
            },
            |n, name| Note::Counter {
                at_ns: 0,
                process: u32::try_from(n).unwrap(),
                thread: 0,
                name,
                value: 0,
            },
            |n, name| Note::Histogram {
                at_ns: 0,
                process: 0,
                thread: u32::try_from(n).unwrap(),
                name,
                buckets: Vec::new(),
                sum: 0,
            },
        ];
        for kind in kinds {
            let mut bounds = NoteBounds::default();
            let many = u64::try_from(MAX_KEYS).unwrap() + 10;
            let admitted = (0..many).filter(|&n| bounds.admits(&kind(n, name()))).count();
            assert_eq!(admitted, MAX_KEYS);
        }
    }
}

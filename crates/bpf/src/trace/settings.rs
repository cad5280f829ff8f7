// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of the programs, and its form for them.

use std::hash::{BuildHasher, RandomState};

use timewire_capture::event::{Event, Hook};
use timewire_capture::filter::{Match, Test, word};
use timewire_capture::identity::TagPlace;
use timewire_sys::trace_ring::{RECORD_BYTES, SENDING_CALLS};

use super::levels::Levels;
use crate::BpfError;

/// What is kept of what the programs see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Each event.
    #[default]
    Events,
    /// How often each hook was reached; no events.
    Counters,
    /// The former, and how long packets took from one hook to the next; no events.
    Histograms,
}

/// What is asked of the programs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to look.
    pub hooks: Vec<Hook>,
    /// At which levels.
    pub levels: Levels,
    /// At which packets.
    pub filter: Match,
    /// What to keep.
    pub mode: Mode,
    /// Of how many packets one is kept, with its whole way; 1 for all.
    pub keep_one_of: u32,
    /// Where the user's own tag lies.
    pub tag: Option<TagPlace>,
    /// The network namespaces (`st_ino`) of the stations, by their numbers.
    pub stations: Vec<u64>,
    /// **Units**: bytes for the events of each CPU; more is used where this is no power of two
    /// times the size of an event.
    pub ring_bytes: usize,
    /// How many packets can be under way.
    pub packets: u32,
}

impl Default for Settings {
    /// Every packet, at every hook but interrupts, polls and system calls.
    fn default() -> Settings {
        let hooks = super::hooks().filter(|hook| *hook <= Hook::Drop);
        Settings {
            hooks: hooks.collect(),
            levels: Levels::Auto,
            filter: Match::ALL,
            mode: Mode::Events,
            keep_one_of: 1,
            tag: None,
            stations: Vec::new(),
            ring_bytes: 16 << 20,
            packets: 1 << 16,
        }
    }
}

/// Slots of the map of stations: the mirror of `TW_STATIONS`.
const STATIONS: u32 = 1024;
/// **Units**: bytes of `struct tw_settings`.
const ENCODED: usize = 912;
/// Fewest slots of a ring: more than are kept free.
const FEWEST_SLOTS: usize = 1024;

impl Settings {
    /// Slots of one CPU's ring.
    pub(super) fn slots(&self) -> usize {
        if self.mode != Mode::Events {
            return FEWEST_SLOTS;
        }
        let slots = self.ring_bytes.div_ceil(RECORD_BYTES).next_power_of_two();
        slots.clamp(FEWEST_SLOTS, 1 << 24)
    }

    pub(super) fn ring_entries(&self, cpus: u32) -> u32 {
        small(self.slots()).saturating_mul(cpus)
    }

    /// Sets of four packets.
    pub(super) fn sets(&self) -> u32 {
        (self.packets.clamp(64, 1 << 24) / 4).next_power_of_two()
    }

    /// Whether the program that answers a test's questions is there.
    pub(super) fn answers(&self) -> bool {
        cfg!(test)
    }

    /// Where the stations stand in the map: slot, namespace, number.
    ///
    /// **Errors**: more stations than there can be.
    pub(super) fn station_slots(&self) -> Result<Vec<(u32, u32, u32)>, BpfError> {
        let mut slots: Vec<(u32, u32, u32)> = Vec::new();
        for (number, namespace) in (0_u32..).zip(&self.stations) {
            let namespace = u32::try_from(*namespace).unwrap_or(u32::MAX);
            let free = (0..4)
                .map(|n| namespace.wrapping_add(n) % STATIONS)
                .find(|slot| slots.iter().all(|taken| taken.0 != *slot));
            let (Some(slot), true) = (free, number < u32::from(Event::NO_STATION)) else {
                return Err(BpfError::TooManyStations { stations: self.stations.len() });
            };
            slots.push((slot, namespace, number));
        }
        Ok(slots)
    }

    /// The mirror of `struct tw_settings`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENCODED);
        encode_match(&self.filter, &mut bytes);
        let random = || RandomState::new().hash_one(0);
        for word in [random(), random() | 1, random() | 1] {
            bytes.extend(word.to_ne_bytes());
        }
        let mode = match self.mode {
            Mode::Events => 0_u32,
            Mode::Counters => 1,
            Mode::Histograms => 2,
        };
        let stations = small(self.stations.len());
        for word in [mode, self.keep_one_of.max(1), small(self.slots()), self.sets(), stations] {
            bytes.extend(word.to_ne_bytes());
        }
        let tag = self.tag.unwrap_or(TagPlace { offset: 0, width: 0, big_endian: false });
        let asks = |words: std::ops::RangeInclusive<u8>| {
            self.filter.tests().iter().any(|test| asks_for(test, &words))
        };
        let strict = cfg!(any(target_arch = "x86_64", target_arch = "s390x"));
        bytes.extend(tag.offset.to_ne_bytes());
        bytes.extend([tag.width, u8::from(tag.big_endian)]);
        bytes.extend([
            u8::from(asks(word::PROCESS_NAME..=word::PROCESS_NAME_END)),
            u8::from(asks(word::PROCESS..=word::PROCESS)),
            u8::from(asks(word::INTERFACE..=word::INTERFACE_END)),
            u8::from(strict),
        ]);
        for number in sending_calls() {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.resize(ENCODED, 0);
        bytes
    }
}

/// Whether a test looks at one of these words.
fn asks_for(test: &Test, words: &std::ops::RangeInclusive<u8>) -> bool {
    [test.word, test.other].into_iter().any(|word| {
        (test.mask != 0 && words.contains(&word))
            || (test.next_mask != 0 && words.contains(&(word + 1)))
    })
}

/// The numbers of the system calls that send: `sendto`, `sendmsg`, `sendmmsg`, `write`.
fn sending_calls() -> [u32; 4] {
    SENDING_CALLS.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn encode_match(filter: &Match, bytes: &mut Vec<u8>) {
    bytes.extend(filter.test_count.to_ne_bytes());
    bytes.extend(filter.conjunction_count.to_ne_bytes());
    for conjunction in &filter.conjunctions {
        bytes.extend(conjunction.all.to_ne_bytes());
        bytes.extend(conjunction.none.to_ne_bytes());
    }
    for test in &filter.tests {
        for number in [test.mask, test.least, test.span, test.next_mask, test.next_value] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(test.kinds.to_ne_bytes());
        bytes.extend([test.word, test.other]);
        bytes.extend(test.unused.to_ne_bytes());
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("invariant: the limits are small")
}

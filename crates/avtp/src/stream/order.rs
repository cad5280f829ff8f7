// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets in the order of their numbers, each until its presentation time.

use timewire_base::{Instant, Span, Tai};

use super::{Late, Received, StreamCounters};
use crate::bytes::{check, wide};
use crate::{AvtpError, Sequence, SequenceOrder};

#[derive(Clone, Copy, Debug)]
struct Slot {
    used: bool,
    time: Instant<Tai>,
    marker: bool,
    length: usize,
}

/// Room for packets that wait; allocated once.
#[derive(Clone, Debug)]
pub(super) struct Order {
    sequence: Sequence,
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    slot_bytes: usize,
    late: Late,
    waiting: usize,
    /// The number that is presented next.
    next: Option<i64>,
    /// Missing packets before `next` that are not reported yet.
    skipped: u64,
    begun: bool,
    /// The time of the packet with the highest number.
    latest: Option<Instant<Tai>>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Gap { packets: u64, at: Instant<Tai> },
    Packet { time: Instant<Tai>, marker: bool },
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub index: i64,
    pub time: Option<Instant<Tai>>,
    pub marker: bool,
    pub payload: &'a [u8],
}

/// The most packets that wait; a number says no more.
const MAX_WAITING: usize = 4096;
/// The most memory for them.
const MAX_BYTES: usize = 1 << 28;

impl Order {
    pub fn new(capacity: usize, slot_bytes: usize, late: Late) -> Result<Order, AvtpError> {
        let fits = (1..=MAX_WAITING).contains(&capacity);
        check("packets that wait", wide(capacity), fits, "1 to 4096")?;
        let total = capacity.saturating_mul(slot_bytes);
        check("bytes that wait", wide(total), total <= MAX_BYTES, "at most 256 MiB")?;
        let slot = Slot { used: false, time: Instant::from_ns(0), marker: false, length: 0 };
        Ok(Order {
            sequence: Sequence::new(),
            slots: vec![slot; capacity],
            bytes: vec![0; total],
            slot_bytes,
            late,
            waiting: 0,
            next: None,
            skipped: 0,
            begun: false,
            latest: None,
        })
    }

    /// The number of a packet; one that lies behind by its number and ahead by its own time is
    /// 256 further.
    pub fn index_of(&self, number: u8, time: Option<Instant<Tai>>) -> i64 {
        let index = self.sequence.index_of(number);
        match (self.sequence.highest(), time, self.latest) {
            (Some(highest), Some(time), Some(latest)) if index <= highest && time > latest => {
                index + 256
            }
            _ => index,
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    fn at(&self, index: i64) -> usize {
        let capacity = i64::try_from(self.slots.len()).expect("invariant: at most 4096");
        usize::try_from(index.rem_euclid(capacity)).expect("invariant: below the capacity")
    }

    pub fn insert(
        &mut self,
        now: Instant<Tai>,
        arrival: Arrival<'_>,
        counters: &mut StreamCounters,
    ) -> Received {
        let Arrival { index, time, marker, payload } = arrival;
        let place = self.sequence.note(index);
        match place {
            SequenceOrder::Duplicate => {
                counters.duplicates += 1;
                return Received::Duplicate;
            }
            SequenceOrder::Behind => counters.reordered += 1,
            SequenceOrder::First | SequenceOrder::Next | SequenceOrder::Ahead { .. } => {
                self.latest = time
            }
        }
        let capacity = wide(self.slots.len());
        let highest = self.sequence.highest().unwrap_or(index);
        let next = *self.next.get_or_insert(index);
        let mut given_up = false;
        if index < next {
            // Before anything was presented, the stream may turn out to have begun earlier.
            given_up = self.begun || highest.abs_diff(index) >= capacity;
            if !given_up {
                self.next = Some(index);
            }
        }
        let overdue = time.is_some_and(|time| time < now);
        counters.late += u64::from(given_up || overdue);
        if given_up || overdue && self.late == Late::Discard {
            counters.discarded += 1;
            return Received::Late;
        }
        if payload.len() > self.slot_bytes {
            counters.discarded += 1;
            return Received::TooLong;
        }
        let next = self.next.unwrap_or(index);
        let ahead = index.abs_diff(next);
        if ahead >= capacity {
            if self.waiting > 0 {
                counters.discarded += 1;
                return Received::TooFar;
            }
            self.skipped += ahead;
            self.next = Some(index);
            self.begun = true;
        }
        let at = self.at(index);
        let time = time.unwrap_or(now);
        self.slots[at] = Slot { used: true, time, marker, length: payload.len() };
        let start = at * self.slot_bytes;
        self.bytes[start..start + payload.len()].copy_from_slice(payload);
        self.waiting += 1;
        Received::Kept
    }

    /// The first packet that waits, and how many are missing before it.
    fn first(&self) -> Option<(i64, Slot, u64)> {
        let next = self.next.filter(|_| self.waiting > 0)?;
        let capacity = i64::try_from(self.slots.len()).expect("invariant: at most 4096");
        let index = (next..next + capacity).find(|index| self.slots[self.at(*index)].used)?;
        Some((index, self.slots[self.at(index)], self.skipped + index.abs_diff(next)))
    }

    /// What is due by now. Missing packets are due `early(missing)` before the packet after them.
    pub fn due(&self, now: Instant<Tai>, early: impl Fn(u64) -> Span) -> Option<Due> {
        let (_, slot, missing) = self.first()?;
        let (at, due) = if missing > 0 {
            let at = Instant::from_ns(slot.time.as_ns().saturating_sub(early(missing).as_ns()));
            (at, Due::Gap { packets: missing, at })
        } else {
            (slot.time, Due::Packet { time: slot.time, marker: slot.marker })
        };
        (at <= now).then_some(due)
    }

    /// Passes over the missing packets that [`Order::due`] reported.
    pub fn pass_gap(&mut self, counters: &mut StreamCounters) {
        if let Some((index, _, missing)) = self.first() {
            counters.lost += missing;
            self.next = Some(index);
            self.skipped = 0;
            self.begun = true;
        }
    }

    /// Takes the packet that [`Order::due`] reported.
    pub fn take(&mut self, counters: &mut StreamCounters) -> &[u8] {
        let Some((index, slot, _)) = self.first() else { return &[] };
        let at = self.at(index);
        self.slots[at].used = false;
        self.waiting -= 1;
        self.next = Some(index + 1);
        self.begun = true;
        counters.presented += 1;
        let start = at * self.slot_bytes;
        &self.bytes[start..start + slot.length]
    }

    /// When something is due at the earliest.
    pub fn next_time(&self, early: impl Fn(u64) -> Span) -> Option<Instant<Tai>> {
        let (_, slot, missing) = self.first()?;
        let early = if missing > 0 { early(missing) } else { Span::ZERO };
        Some(Instant::from_ns(slot.time.as_ns().saturating_sub(early.as_ns())))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TDM schedule of a shared segment: which station may send when, in a cycle that repeats for
//! ever. A [`TdmSchedule`] cannot exist with slots that overlap or leave the cycle.
//!
//! ```text
//! base_time                                                    base_time + cycle
//! |<-- transmit -->|<- guard ->|<-- transmit -->|<- guard ->|  ...  |
//! |<---------- slot ---------->|<---------- slot --------->|       |
//! ```
//!
//! Not here: asking whether an instant lies in a slot (`CyclicWindows` of `timewire-base`), the
//! file a schedule is read from (`scenario`).

mod order;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::{
    BitsPerSecond, CyclicWindows, FrameLen, Instant, Span, StationName, Tai, Window,
};

/// Slots that make no schedule. `index` counts in the list that was given, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TdmError {
    /// The cycle has no length.
    #[error("a cycle of {cycle} has no length")]
    EmptyCycle {
        /// What was given.
        cycle: Span,
    },
    /// Nobody may ever send.
    #[error("a schedule without slots lets nobody send")]
    NoSlots,
    /// A slot in which nothing can be sent.
    #[error("a slot that transmits for {transmit} can carry nothing")]
    EmptySlot {
        /// Which slot.
        index: usize,
        /// What was given.
        transmit: Span,
    },
    /// A slot that starts before its cycle.
    #[error("a slot at {offset} starts before the cycle")]
    BeforeCycle {
        /// Which slot.
        index: usize,
        /// What was given.
        offset: Span,
    },
    /// A guard time that would reach back into the slot.
    #[error("a guard of {guard} is negative")]
    NegativeGuard {
        /// Which slot.
        index: usize,
        /// What was given.
        guard: Span,
    },
    /// A slot, its guard included, that ends after the cycle.
    #[error("the slot of `{station}` ends at {end} with its guard, after the cycle of {cycle}")]
    BeyondCycle {
        /// Which slot.
        index: usize,
        /// Whose slot.
        station: StationName,
        /// End of its guard in the cycle; saturates.
        end: Span,
        /// The cycle.
        cycle: Span,
    },
    /// Two slots share time.
    #[error(
        "the slot of `{station}` starts at {offset}, before the slot of `{earlier}` ends at {end} \
         with its guard"
    )]
    Overlap {
        /// Which slot: the one that starts later.
        index: usize,
        /// Whose slot.
        station: StationName,
        /// Its start in the cycle.
        offset: Span,
        /// Whose slot it runs into.
        earlier: StationName,
        /// Where that one ends, its guard included.
        end: Span,
    },
    /// More slots of one station than a machine without allocation keeps.
    #[error("`{station}` has {count} slots, more than the {max} that a station can have")]
    TooMany {
        /// Whose slots.
        station: StationName,
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
}

/// One slot of the cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Whose slot it is.
    pub station: StationName,
    /// Start, from the start of the cycle.
    #[serde(rename = "offset_ns")]
    pub offset: Span,
    /// How long the station's frames may be on the link.
    #[serde(rename = "transmit_ns")]
    pub transmit: Span,
    /// Silence after that, in which nobody may send: it takes up the error of the clocks.
    #[serde(rename = "guard_ns")]
    pub guard: Span,
}

impl Slot {
    /// Where the slot ends in the cycle, its guard included; `None` beyond 292 years.
    fn checked_end(&self) -> Option<Span> {
        self.offset.checked_add(self.transmit)?.checked_add(self.guard)
    }
}

/// The slots of all stations in one cycle.
///
/// **Shape**: at least one slot; sorted by offset, disjoint with their guards, all inside the
/// cycle; a station has none, one or several (at most [`CyclicWindows::MAX_WINDOWS`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct TdmSchedule {
    base_time: Instant<Tai>,
    cycle: Span,
    slots: Vec<Slot>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    base_time_ns: Instant<Tai>,
    cycle_ns: Span,
    slots: Vec<Slot>,
}

impl TryFrom<Unchecked> for TdmSchedule {
    type Error = TdmError;
    fn try_from(raw: Unchecked) -> Result<Self, TdmError> {
        TdmSchedule::new(raw.base_time_ns, raw.cycle_ns, raw.slots)
    }
}

impl From<TdmSchedule> for Unchecked {
    fn from(checked: TdmSchedule) -> Unchecked {
        Unchecked { base_time_ns: checked.base_time, cycle_ns: checked.cycle, slots: checked.slots }
    }
}

impl TdmSchedule {
    /// Checks the slots and sorts them by offset.
    ///
    /// **Errors**: the first of [`TdmSchedule::problems`].
    pub fn new(
        base_time: Instant<Tai>,
        cycle: Span,
        mut slots: Vec<Slot>,
    ) -> Result<TdmSchedule, TdmError> {
        match Self::problems(cycle, &slots).into_iter().next() {
            Some(problem) => Err(problem),
            None => {
                slots.sort_by_key(|slot| slot.offset);
                Ok(TdmSchedule { base_time, cycle, slots })
            }
        }
    }

    /// Everything that keeps these slots from being a schedule; nothing when they are one.
    ///
    /// Slots are searched for overlaps only when each of them is sound by itself.
    pub fn problems(cycle: Span, slots: &[Slot]) -> Vec<TdmError> {
        if cycle <= Span::ZERO {
            return vec![TdmError::EmptyCycle { cycle }];
        }
        if slots.is_empty() {
            return vec![TdmError::NoSlots];
        }
        let mut problems: Vec<TdmError> = slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| problem_of_slot(index, slot, cycle))
            .collect();
        if problems.is_empty() {
            problems = overlaps(slots);
        }
        problems.extend(too_many(slots));
        problems
    }

    /// When a cycle starts; all others start whole cycles before or after it.
    pub fn base_time(&self) -> Instant<Tai> {
        self.base_time
    }

    /// The length of the cycle.
    pub fn cycle(&self) -> Span {
        self.cycle
    }

    /// The slots, sorted by offset.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// When frames of this station may be on the link; no windows for a station without a slot.
    pub fn windows_of(&self, station: &StationName) -> CyclicWindows {
        self.windows(station, |slot| slot.transmit)
    }

    /// As [`TdmSchedule::windows_of`], each window with the guard after it.
    pub fn slots_of(&self, station: &StationName) -> CyclicWindows {
        self.windows(station, |slot| slot.transmit + slot.guard)
    }

    fn windows(&self, station: &StationName, length: fn(&Slot) -> Span) -> CyclicWindows {
        let windows = self
            .slots
            .iter()
            .filter(|slot| slot.station == *station)
            .map(|slot| Window { offset: slot.offset, length: length(slot) })
            .collect();
        CyclicWindows::new(self.base_time, self.cycle, windows)
            .expect("invariant: the slots of a schedule are disjoint and inside its cycle")
    }

    /// The longest frame that some slot of this station carries at this rate, from the first bit of
    /// the preamble to the end of the gap. `None` when no frame fits or the station has no slot.
    pub fn largest_frame(&self, station: &StationName, rate: BitsPerSecond) -> Option<FrameLen> {
        let slots = self.slots.iter().filter(|slot| slot.station == *station);
        let longest = slots.map(|slot| slot.transmit).max()?;
        let wire_bytes = rate.bytes_in_floor(longest);
        let bytes = wire_bytes.checked_sub(u64::from(OVERHEAD_BYTES))?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(LONGEST_FRAME_BYTES);
        (bytes >= SHORTEST_FRAME_BYTES).then(|| {
            FrameLen::new(bytes).expect("invariant: at most 65 535 bytes, the bound of a frame")
        })
    }
}

/// Check sequence, preamble, start delimiter and gap: what `FrameLen::wire_len` adds.
const OVERHEAD_BYTES: u32 = 4 + 8 + 12;
/// A shorter frame is padded to this, so what cannot carry it carries nothing.
const SHORTEST_FRAME_BYTES: u32 = 60;
const LONGEST_FRAME_BYTES: u32 = 65_535;

fn problem_of_slot(index: usize, slot: &Slot, cycle: Span) -> Option<TdmError> {
    let &Slot { offset, transmit, guard, .. } = slot;
    if offset.is_negative() {
        return Some(TdmError::BeforeCycle { index, offset });
    }
    if transmit <= Span::ZERO {
        return Some(TdmError::EmptySlot { index, transmit });
    }
    if guard.is_negative() {
        return Some(TdmError::NegativeGuard { index, guard });
    }
    let end = slot.checked_end().unwrap_or(Span::MAX);
    let station = slot.station.clone();
    (end > cycle).then_some(TdmError::BeyondCycle { index, station, end, cycle })
}

/// Each slot that starts before an earlier one has ended.
fn overlaps(slots: &[Slot]) -> Vec<TdmError> {
    let mut order: Vec<(usize, &Slot)> = slots.iter().enumerate().collect();
    order.sort_by_key(|(_, slot)| slot.offset);
    let mut problems = Vec::new();
    let mut last: Option<(&Slot, Span)> = None;
    for (index, slot) in order {
        let end = slot.checked_end().unwrap_or(Span::MAX);
        if let Some((earlier, earlier_end)) = last
            && slot.offset < earlier_end
        {
            problems.push(TdmError::Overlap {
                index,
                station: slot.station.clone(),
                offset: slot.offset,
                earlier: earlier.station.clone(),
                end: earlier_end,
            });
        }
        if last.is_none_or(|(_, earlier_end)| end > earlier_end) {
            last = Some((slot, end));
        }
    }
    problems
}

fn too_many(slots: &[Slot]) -> Option<TdmError> {
    let mut names: Vec<&StationName> = slots.iter().map(|slot| &slot.station).collect();
    names.sort();
    let max = CyclicWindows::MAX_WINDOWS;
    let group = names.chunk_by(|a, b| a == b).find(|group| group.len() > max)?;
    Some(TdmError::TooMany { station: group[0].clone(), count: group.len(), max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> StationName {
        StationName::new(text).unwrap()
    }

    fn slot(station: &str, offset: i64, transmit: i64, guard: i64) -> Slot {
        Slot {
            station: name(station),
            offset: Span::from_us(offset),
            transmit: Span::from_us(transmit),
            guard: Span::from_us(guard),
        }
    }

    fn schedule(cycle: i64, slots: &[Slot]) -> Result<TdmSchedule, TdmError> {
        TdmSchedule::new(Instant::from_ns(0), Span::from_us(cycle), slots.to_vec())
    }

    fn fast() -> BitsPerSecond {
        BitsPerSecond::new(100_000_000).unwrap()
    }

    #[test]
    fn t0_windows_are_without_the_guard_and_slots_with_it() {
        let s = schedule(520, &[slot("b", 260, 220, 40), slot("a", 0, 220, 40)]).unwrap();
        assert_eq!(s.slots()[0].station, name("a"), "sorted by offset");
        let window = |offset, length| {
            vec![Window { offset: Span::from_us(offset), length: Span::from_us(length) }]
        };
        assert_eq!(s.windows_of(&name("b")).windows(), window(260, 220));
        assert_eq!(s.slots_of(&name("b")).windows(), window(260, 260));
        assert!(s.windows_of(&name("c")).windows().is_empty());
    }

    #[test]
    fn t0_a_station_may_have_several_slots() {
        let s = schedule(100, &[slot("a", 0, 20, 5), slot("b", 25, 20, 5), slot("a", 50, 30, 5)]);
        let s = s.unwrap();
        assert_eq!(s.windows_of(&name("a")).windows().len(), 2);
        // 30 us at 100 Mbit/s are 375 bytes on the wire.
        assert_eq!(s.largest_frame(&name("a"), fast()), Some(FrameLen::new(351).unwrap()));
        assert_eq!(s.largest_frame(&name("c"), fast()), None);
    }

    #[test]
    fn t0_impossible_schedules_are_refused() {
        let cases: [(i64, &[Slot], &str); 8] = [
            (0, &[], "a cycle of 0ns has no length"),
            (10, &[], "a schedule without slots lets nobody send"),
            (10, &[slot("a", 0, 0, 1)], "a slot that transmits for 0ns can carry nothing"),
            (10, &[slot("a", -1, 2, 1)], "a slot at -1us starts before the cycle"),
            (10, &[slot("a", 0, 2, -1)], "a guard of -1us is negative"),
            (
                10,
                &[slot("a", 0, 9, 2)],
                "the slot of `a` ends at 11us with its guard, after the cycle of 10us",
            ),
            (
                10,
                &[slot("b", 3, 2, 0), slot("a", 0, 3, 1)],
                "the slot of `b` starts at 3us, before the slot of `a` ends at 4us with its guard",
            ),
            (
                100,
                &[slot("a", 0, 50, 0), slot("b", 10, 5, 0), slot("c", 20, 5, 0)],
                "the slot of `b` starts at 10us, before the slot of `a` ends at 50us \
                 with its guard",
            ),
        ];
        for (cycle, slots, message) in cases {
            assert_eq!(schedule(cycle, slots).unwrap_err().to_string(), message);
        }
        let many: Vec<Slot> = (0..257).map(|i| slot("a", i, 1, 0)).collect();
        assert!(matches!(schedule(1_000, &many), Err(TdmError::TooMany { count: 257, .. })));
    }

    #[test]
    fn t0_all_problems_are_reported_at_once() {
        let slots = [slot("a", 0, 50, 0), slot("b", 10, 5, 0), slot("c", 20, 5, 0)];
        assert_eq!(TdmSchedule::problems(Span::from_us(100), &slots).len(), 2);
        let slots = [slot("a", 0, 0, 0), slot("b", -1, 5, 0)];
        assert_eq!(TdmSchedule::problems(Span::from_us(100), &slots).len(), 2);
    }

    #[test]
    fn t0_a_schedule_survives_json_and_json_is_checked() {
        let s = schedule(520, &[slot("a", 0, 220, 40), slot("b", 260, 220, 40)]).unwrap();
        let text = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<TdmSchedule>(&text).unwrap(), s);
        let bad = text.replace("\"offset_ns\":260000", "\"offset_ns\":1");
        assert_ne!(bad, text);
        assert!(serde_json::from_str::<TdmSchedule>(&bad).is_err());
    }

    proptest! {
        /// second method: mark every microsecond of the cycle by hand.
        #[test]
        fn t0_a_schedule_exists_exactly_when_no_microsecond_has_two_owners(
            raw in proptest::collection::vec((0_i64..40, 1_i64..8, 0_i64..4), 1..6),
            cycle in 1_i64..50,
        ) {
            let slots = raw.iter().map(|&(offset, length, guard)| slot("a", offset, length, guard));
            let slots: Vec<Slot> = slots.collect();
            let mut owners = [0_u8; 64];
            for &(offset, transmit, guard) in &raw {
                for us in offset..offset + transmit + guard {
                    owners[usize::try_from(us).unwrap()] += 1;
                }
            }
            let cycle_end = usize::try_from(cycle).unwrap();
            let alone = |(us, &n): (usize, &u8)| n == 0 || (n == 1 && us < cycle_end);
            let sound = owners.iter().enumerate().all(alone);
            prop_assert_eq!(schedule(cycle, &slots).is_ok(), sound);
        }

        #[test]
        fn t0_the_largest_frame_fits_and_the_next_does_not(
            ns in 1_i64..10_000_000,
            mbit in 1_u64..10_000,
        ) {
            let rate = BitsPerSecond::new(mbit * 1_000_000).unwrap();
            let span = Span::from_ns(ns);
            let slots = vec![Slot {
                station: name("a"), offset: Span::ZERO, transmit: span, guard: Span::ZERO,
            }];
            let s = TdmSchedule::new(Instant::from_ns(0), span, slots).unwrap();
            let needs = |bytes| rate.duration_of(FrameLen::new(bytes).unwrap().wire_len());
            match s.largest_frame(&name("a"), rate) {
                None => prop_assert!(needs(60) > span),
                Some(frame) => {
                    prop_assert!(needs(frame.get()) <= span);
                    prop_assert!(frame.get() == 65_535 || needs(frame.get() + 1) > span);
                }
            }
        }

        #[test]
        fn t0_extreme_slots_are_refused_without_panic(
            offset in any::<i64>(),
            transmit in any::<i64>(),
            guard in any::<i64>(),
            cycle in any::<i64>(),
        ) {
            let slots = vec![Slot {
                station: name("a"),
                offset: Span::from_ns(offset),
                transmit: Span::from_ns(transmit),
                guard: Span::from_ns(guard),
            }];
            let _ = TdmSchedule::new(Instant::from_ns(0), Span::from_ns(cycle), slots);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the sequence numbers of a stream say: lost, twice, out of order, begun anew.

use serde::{Deserialize, Serialize};

/// How much is remembered, and what is believed of a leap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// So many numbers, down from the highest, may still come. A power of two from 64 to 65536.
    pub window: u32,
    /// A number so far ahead of the highest is still of the same life of the sender, and what lies
    /// between is a gap. From `window` to 2^31 - 1.
    pub leap: u32,
}

impl Default for SequenceLimits {
    fn default() -> SequenceLimits {
        SequenceLimits { window: 1_024, leap: 1 << 20 }
    }
}

/// What an arrival was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The highest so far.
    Ahead {
        /// How many numbers it left out.
        gap: u32,
    },
    /// It fills a gap.
    Reordered {
        /// How many messages overtook it, by RFC 4737: arrivals from the first with a higher
        /// number on.
        extent: u64,
    },
    /// It had come before.
    Duplicate,
    /// Outside window and leap; the next arrival will tell what of.
    Stray,
    /// The sender began anew.
    Restarted,
}

/// Exact counts. Every arrival is one of `received`, `duplicate` and `stray`.
///
/// **Units**: messages, numbers. **Source** of `reordered` and extent: RFC 4737, 3.3 and 4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceCounts {
    /// Messages, each number once.
    pub received: u64,
    /// Numbers that did not come while they were in the window.
    pub lost: u64,
    /// Numbers in the window that have not come yet: neither lost nor received.
    pub open: u64,
    /// Arrivals of a number that was there.
    pub duplicate: u64,
    /// Of the received, those that came after one with a higher number.
    pub reordered: u64,
    /// The largest extent of a reordered one.
    pub largest_extent: u64,
    /// The longest run of numbers that were lost one after the other.
    pub longest_gap: u64,
    /// Arrivals far from the others that no further one confirmed.
    pub stray: u64,
    /// How often the sender began anew.
    pub restarts: u64,
}

/// Watches 32-bit numbers that count up by one and wrap. All memory is allocated at construction;
/// an arrival costs as many steps as it leaves numbers out, at most the window.
///
/// A restart is noticed in two ways: two arrivals in succession, both outside window and leap, of
/// which the second continues the first (as RFC 3550, A.1); or [`SequenceWatch::REPEATS`] arrivals
/// in succession, all duplicates, each continuing the last (a sender that began anew within the
/// window). A network that delivers so many messages in a block twice is taken for the latter.
#[derive(Clone, Debug)]
pub struct SequenceWatch {
    limits: SequenceLimits,
    /// By number modulo the window: [`HERE`], [`BEFORE`], or the arrival that opened the gap.
    slots: Box<[u64]>,
    life: Option<Life>,
    /// Lost numbers in a row, the last of them just out of the window.
    run: u64,
    stray: Option<u32>,
    repeat: Option<(u32, u32)>,
    counts: SequenceCounts,
    /// Numbers that the sender says it did not use, of which the gap has not come.
    unplaced: u64,
    skipped: u64,
}

/// From one start of the sender to the next.
#[derive(Clone, Copy, Debug)]
struct Life {
    highest: u32,
    lowest: u32,
    /// How many messages had been received before it.
    began: u64,
}

/// The number has come.
const HERE: u64 = u64::MAX;
/// The number is lower than any of this life.
const BEFORE: u64 = u64::MAX - 1;
/// The sender did not use the number.
const SKIPPED: u64 = u64::MAX - 2;

impl SequenceWatch {
    /// So many duplicates in succession, each continuing the last, are a restart.
    pub const REPEATS: u32 = 8;

    /// A watch that has seen nothing.
    ///
    /// **Panics** when the limits are outside their bounds.
    pub fn new(limits: SequenceLimits) -> SequenceWatch {
        let SequenceLimits { window, leap } = limits;
        let fits = window.is_power_of_two() && (64..=65_536).contains(&window);
        assert!(fits, "a window is a power of two from 64 to 65536, not {window}");
        assert!((window..1 << 31).contains(&leap), "a leap is from the window to 2^31 - 1");
        let len = usize::try_from(window).expect("invariant: 17 bits fit");
        SequenceWatch {
            limits,
            slots: vec![BEFORE; len].into_boxed_slice(),
            life: None,
            run: 0,
            stray: None,
            repeat: None,
            counts: SequenceCounts::default(),
            unplaced: 0,
            skipped: 0,
        }
    }

    /// The next message says that the sender did not use so many numbers before it: of the gap
    /// before that message the last ones.
    pub(super) fn said_skipped(&mut self, numbers: u32) {
        self.unplaced += u64::from(numbers);
    }

    /// Numbers that the sender did not use; they are neither lost nor open.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// A message with this number came.
    #[inline]
    pub fn arrived(&mut self, number: u32) -> Arrived {
        if let Some(life) = &mut self.life
            && life.highest.wrapping_add(1) == number
        {
            life.highest = number;
            self.advance_by_one(number);
            return Arrived::Ahead { gap: 0 };
        }
        self.arrived_elsewhere(number)
    }

    /// The next number came, as nearly all do.
    #[inline]
    fn advance_by_one(&mut self, number: u32) {
        // That of the number which leaves the window, too.
        let place = self.place(number);
        match std::mem::replace(&mut self.slots[place], HERE) {
            HERE | BEFORE | SKIPPED => self.run = 0,
            _ => self.lose(1),
        }
        self.counts.received += 1;
        (self.stray, self.repeat) = (None, None);
    }

    /// Takes messages as far as each has the number after the one before, as nearly all have;
    /// returns how many those are, at most the window. As [`SequenceWatch::arrived`] of each.
    pub(super) fn arrived_in_order(&mut self, numbers: &[u32]) -> usize {
        let Some(life) = &mut self.life else { return 0 };
        let before = life.highest;
        let numbers = &numbers[..numbers.len().min(self.slots.len())];
        // All of them, or as far as it goes.
        let (mut differ, mut next) = (0, before.wrapping_add(1));
        for &number in numbers {
            differ |= number ^ next;
            next = next.wrapping_add(1);
        }
        if differ != 0 {
            next = before.wrapping_add(1);
            for &number in numbers {
                if number != next {
                    break;
                }
                next = next.wrapping_add(1);
            }
        }
        life.highest = next.wrapping_sub(1);
        let length = usize::try_from(life.highest.wrapping_sub(before));
        let length = length.expect("invariant: at most the window");
        if length == 0 {
            return 0;
        }
        // Those of the numbers that leave the window, too; behind the last one is the first.
        let start = self.place(before.wrapping_add(1));
        let end = self.slots.len().min(start + length);
        self.enter(start..end);
        self.enter(0..length - (end - start));
        self.counts.received += u64::try_from(length).expect("invariant: a length fits 64 bits");
        (self.stray, self.repeat) = (None, None);
        length
    }

    /// The numbers of these slots leave the window, and the next ones there have come.
    #[inline]
    fn enter(&mut self, slots: std::ops::Range<usize>) {
        let slots = &mut self.slots[slots];
        // Of numbers that came, or were before the first, all bits are set but perhaps the lowest.
        if slots.iter().fold(HERE, |all, &slot| all & slot) >= BEFORE {
            if !slots.is_empty() {
                self.run = 0;
            }
            slots.fill(HERE);
            return;
        }
        let mut longest = self.counts.longest_gap;
        for slot in slots {
            match std::mem::replace(slot, HERE) {
                HERE | BEFORE | SKIPPED => self.run = 0,
                _ => {
                    self.counts.lost += 1;
                    self.run += 1;
                    longest = longest.max(self.run);
                }
            }
        }
        self.counts.longest_gap = longest;
    }

    fn arrived_elsewhere(&mut self, number: u32) -> Arrived {
        let Some(life) = self.life else {
            self.begin(number);
            return Arrived::Ahead { gap: 0 };
        };
        let ahead = number.wrapping_sub(life.highest);
        let behind = life.highest.wrapping_sub(number);
        if (1..=self.limits.leap).contains(&ahead) {
            self.advance(life, number, ahead);
            Arrived::Ahead { gap: ahead - 1 }
        } else if behind >= self.limits.window {
            self.outside(number)
        } else if self.slots[self.place(number)] == HERE {
            self.again(number)
        } else {
            self.fill(life, number)
        }
    }

    /// The counts now.
    pub fn counts(&self) -> SequenceCounts {
        let open = self.slots.iter().filter(|&&slot| slot < SKIPPED).count();
        SequenceCounts {
            open: u64::try_from(open).expect("invariant: a length fits 64 bits"),
            ..self.counts
        }
    }

    /// Nothing more is awaited: what is open is lost. What comes after this is a new life, and not
    /// counted as a restart.
    pub fn finish(&mut self) -> SequenceCounts {
        if let Some(life) = self.life.take() {
            for back in (0..self.limits.window).rev() {
                self.leave(life.highest.wrapping_sub(back));
            }
        }
        (self.run, self.stray, self.repeat) = (0, None, None);
        self.unplaced = 0;
        self.counts()
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        // A power of two.
        usize::try_from(number & (self.limits.window - 1)).expect("invariant: 16 bits fit")
    }

    fn begin(&mut self, number: u32) {
        self.slots.fill(BEFORE);
        self.life = Some(Life { highest: number, lowest: number, began: self.counts.received });
        self.receive(number);
    }

    fn receive(&mut self, number: u32) {
        let place = self.place(number);
        self.slots[place] = HERE;
        self.counts.received += 1;
        (self.stray, self.repeat) = (None, None);
    }

    fn advance(&mut self, life: Life, number: u32, ahead: u32) {
        let window = self.limits.window;
        let opened = self.counts.received;
        for step in 1..=ahead.min(window) {
            let new = life.highest.wrapping_add(step);
            self.leave(new.wrapping_sub(window));
            let place = self.place(new);
            self.slots[place] = opened;
        }
        // Those right before the message were skipped last; a gap may be longer than the window.
        let mut back = 1;
        while self.unplaced > 0 && back < ahead.min(window) {
            let place = self.place(number.wrapping_sub(back));
            self.slots[place] = SKIPPED;
            self.skip_one();
            back += 1;
        }
        let beyond = u64::from(ahead.saturating_sub(window));
        let unused = self.unplaced.min(beyond);
        self.unplaced -= unused;
        self.skipped += unused;
        self.lose(beyond - unused);
        self.life = Some(Life { highest: number, ..life });
        self.receive(number);
    }

    /// A number leaves the window.
    fn leave(&mut self, number: u32) {
        let place = self.place(number);
        match std::mem::replace(&mut self.slots[place], BEFORE) {
            HERE | BEFORE | SKIPPED => self.run = 0,
            _ => self.lose(1),
        }
    }

    fn skip_one(&mut self) {
        self.unplaced -= 1;
        self.skipped += 1;
    }

    /// A number came that was taken for one that the sender did not use: it was the one before that
    /// has not come.
    fn was_used(&mut self, number: u32) {
        self.skipped -= 1;
        self.unplaced += 1;
        for back in 1..self.limits.window {
            let place = self.place(number.wrapping_sub(back));
            match self.slots[place] {
                SKIPPED => {}
                HERE | BEFORE => {}
                _ => {
                    self.slots[place] = SKIPPED;
                    return self.skip_one();
                }
            }
        }
        if self.counts.lost > 0 {
            self.counts.lost -= 1;
            self.skip_one();
        }
    }

    fn lose(&mut self, numbers: u64) {
        self.counts.lost += numbers;
        self.run += numbers;
        self.counts.longest_gap = self.counts.longest_gap.max(self.run);
    }

    fn fill(&mut self, mut life: Life, number: u32) -> Arrived {
        let slot = self.slots[self.place(number)];
        let overtaken = match slot {
            BEFORE => life.began,
            // Which arrival left it out is not known any more: the last one did at least.
            SKIPPED => {
                self.was_used(number);
                self.counts.received - 1
            }
            arrival => arrival,
        };
        if slot == BEFORE {
            // The life began earlier than was seen: what lies between is a gap, too.
            for between in 1..life.lowest.wrapping_sub(number) {
                let place = self.place(number.wrapping_add(between));
                self.slots[place] = life.began;
            }
            life.lowest = number;
            self.life = Some(life);
        }
        let extent = self.counts.received - overtaken;
        self.counts.reordered += 1;
        self.counts.largest_extent = self.counts.largest_extent.max(extent);
        self.receive(number);
        Arrived::Reordered { extent }
    }

    fn again(&mut self, number: u32) -> Arrived {
        self.counts.duplicate += 1;
        self.stray = None;
        let length = match self.repeat {
            Some((last, length)) if last.wrapping_add(1) == number => length + 1,
            _ => 1,
        };
        self.repeat = Some((number, length));
        if length < Self::REPEATS {
            return Arrived::Duplicate;
        }
        self.counts.duplicate -= u64::from(Self::REPEATS);
        self.restart(number, Self::REPEATS)
    }

    fn outside(&mut self, number: u32) -> Arrived {
        self.repeat = None;
        if self.stray == Some(number.wrapping_sub(1)) {
            self.counts.stray -= 1;
            return self.restart(number, 2);
        }
        self.stray = Some(number);
        self.counts.stray += 1;
        Arrived::Stray
    }

    /// The last so many arrivals, up to this number, were the first of a new life.
    fn restart(&mut self, number: u32, arrivals: u32) -> Arrived {
        self.finish();
        self.counts.restarts += 1;
        for back in (0..arrivals).rev() {
            self.arrived(number.wrapping_sub(back));
        }
        Arrived::Restarted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: SequenceLimits = SequenceLimits { window: 64, leap: 1_000 };

    fn after(numbers: impl IntoIterator<Item = u32>) -> SequenceCounts {
        let mut watch = SequenceWatch::new(LIMITS);
        numbers.into_iter().for_each(|number| {
            watch.arrived(number);
        });
        watch.finish()
    }

    fn counts(received: u64) -> SequenceCounts {
        SequenceCounts { received, ..SequenceCounts::default() }
    }

    #[test]
    fn t0_named_histories_of_numbers() {
        let lost =
            |received, lost, longest_gap| SequenceCounts { lost, longest_gap, ..counts(received) };
        let late = |received, reordered, largest_extent| SequenceCounts {
            reordered,
            largest_extent,
            ..counts(received)
        };
        let restart = |received| SequenceCounts { restarts: 1, ..counts(received) };
        let end = u32::MAX;
        let cases: [(&str, Vec<u32>, SequenceCounts); 17] = [
            ("nothing", vec![], counts(0)),
            ("in order", (5..1_005).collect(), counts(1_000)),
            ("wrap", vec![end - 1, end, 0, 1], counts(4)),
            ("one lost", vec![1, 2, 4, 5], lost(4, 1, 1)),
            ("runs lost", vec![1, 4, 5, 9, 10, 12], lost(6, 6, 3)),
            ("lost across the wrap", vec![end - 2, 2], lost(2, 4, 4)),
            ("more lost than the window", vec![0, 501, 503], lost(3, 501, 500)),
            ("swapped", vec![1, 3, 2, 4], late(4, 1, 1)),
            // RFC 4737, 4.2: 2 is overtaken by 3, 4 and 5, whatever came twice between.
            ("overtaken by three", vec![1, 3, 4, 5, 2], late(5, 1, 3)),
            ("backwards", vec![4, 3, 2, 1], late(4, 3, 3)),
            ("swapped at the start", vec![3, 1, 2], late(3, 2, 2)),
            (
                "start with a gap",
                vec![9, 6],
                SequenceCounts { lost: 2, longest_gap: 2, ..late(2, 1, 1) },
            ),
            ("twice", vec![1, 1, 2, 2, 3], SequenceCounts { duplicate: 2, ..counts(3) }),
            ("a stray", vec![1, 2, 70_000, 3], SequenceCounts { stray: 1, ..counts(3) }),
            ("restart far away", (5_000..5_010).chain(0..10).collect(), restart(20)),
            ("restart in the window", (0..20).chain(0..20).collect(), restart(40)),
            ("leap too far", vec![0, 1, 2_000, 2_001], restart(4)),
        ];
        for (name, numbers, expected) in cases {
            assert_eq!(after(numbers.clone()), expected, "{name}");
            // The same, moved so that the wrap lies within.
            let moved = numbers.iter().map(|number| number.wrapping_sub(2));
            assert_eq!(after(moved), expected, "{name}, moved");
        }
    }

    #[test]
    fn t0_a_gap_is_open_until_it_leaves_the_window() {
        let mut watch = SequenceWatch::new(LIMITS);
        watch.arrived(0);
        assert_eq!(watch.arrived(2), Arrived::Ahead { gap: 1 });
        for number in 3..65 {
            watch.arrived(number);
            assert_eq!((watch.counts().open, watch.counts().lost), (1, 0));
        }
        watch.arrived(65);
        assert_eq!((watch.counts().open, watch.counts().lost), (0, 1));
        assert_eq!(watch.arrived(1), Arrived::Stray, "too late to fill it");
        assert_eq!(watch.arrived(2), Arrived::Duplicate);
        let all = SequenceCounts { lost: 1, longest_gap: 1, stray: 1, duplicate: 1, ..counts(65) };
        assert_eq!(watch.counts(), all);
        assert_eq!(watch.arrived(u32::MAX - 9), Arrived::Stray);
        assert_eq!(watch.arrived(u32::MAX - 8), Arrived::Restarted, "two in succession");
        assert_eq!(watch.counts(), SequenceCounts { restarts: 1, received: 67, ..all });
    }

    /// Remembers every arrival of a life, and computes from the definitions.
    #[derive(Default)]
    struct Naive {
        life: Vec<i64>,
        seen: BTreeSet<i64>,
        counts: SequenceCounts,
    }

    impl Naive {
        /// Numbers from the lowest to `upto` that did not come, and the longest run of them.
        fn close(&mut self, upto: i64) -> (u64, u64) {
            let lowest = self.seen.first().copied().unwrap_or(upto + 1);
            let (mut lost, mut run, mut longest) = (0, 0, 0);
            for number in lowest..=upto {
                run = if self.seen.contains(&number) { 0 } else { run + 1 };
                lost += u64::from(run > 0);
                longest = longest.max(run);
            }
            (lost, longest)
        }

        fn arrived(&mut self, number: i64) -> bool {
            let highest = self.seen.last().copied().unwrap_or(number);
            if number > highest + 1_000 || number <= highest - 64 {
                return false;
            }
            if self.seen.contains(&number) {
                self.counts.duplicate += 1;
                return true;
            }
            if let Some(first) = self.life.iter().position(|&other| other > number) {
                let extent = u64::try_from(self.life.len() - first).unwrap();
                self.counts.reordered += 1;
                self.counts.largest_extent = self.counts.largest_extent.max(extent);
            }
            self.life.push(number);
            self.seen.insert(number);
            self.counts.received += 1;
            true
        }
    }

    proptest! {
        #[test]
        fn t0_many_in_order_are_each(
            steps in proptest::collection::vec(
                (1_usize..200, prop_oneof![
                    4 => 1_u32..5, 2 => 5_u32..80, 1 => 80_u32..2_000, 3 => (1_u32..200)
                        .prop_map(u32::wrapping_neg), 1 => any::<u32>(),
                ]),
                1..40,
            ),
            start in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX],
            ends in any::<u8>(),
        ) {
            let (mut each, mut batched) = (SequenceWatch::new(LIMITS), SequenceWatch::new(LIMITS));
            let mut next = start;
            for (nth, (length, step)) in steps.into_iter().enumerate() {
                let numbers: Vec<u32> =
                    (0..length).map(|n| next.wrapping_add(u32::try_from(n).unwrap())).collect();
                for &number in &numbers {
                    each.arrived(number);
                }
                let mut rest = &numbers[..];
                while let [first, others @ ..] = rest {
                    rest = match batched.arrived_in_order(rest) {
                        0 => {
                            batched.arrived(*first);
                            others
                        }
                        taken => &rest[taken..],
                    };
                }
                prop_assert_eq!(batched.counts(), each.counts());
                if nth == usize::from(ends) {
                    prop_assert_eq!(batched.finish(), each.finish());
                }
                next = numbers[length - 1].wrapping_add(step);
            }
            prop_assert_eq!(batched.finish(), each.finish());
        }

        #[test]
        fn t0_agrees_with_the_definitions(
            steps in proptest::collection::vec(
                prop_oneof![6 => 1_i64..4, 3 => -70_i64..1, 1 => 4_i64..200],
                1..100,
            ),
            start in any::<u32>(),
        ) {
            let mut watch = SequenceWatch::new(LIMITS);
            let mut naive = Naive::default();
            let mut number = 0_i64;
            for step in steps {
                let highest = naive.seen.last().copied().unwrap_or(0);
                number = if step > 0 { highest + step } else { highest.min(number.max(0)) + step };
                let wire = u32::try_from((number + i64::from(start)).rem_euclid(1 << 32)).unwrap();
                if naive.arrived(number) {
                    watch.arrived(wire);
                }
                let highest = naive.seen.last().copied().unwrap_or(0);
                let (lost, longest_gap) = naive.close(highest - 64);
                let all = naive.close(highest).0;
                let expected =
                    SequenceCounts { lost, longest_gap, open: all - lost, ..naive.counts };
                prop_assert_eq!(watch.counts(), expected);
            }
            let highest = naive.seen.last().copied().unwrap_or(0);
            let (lost, longest_gap) = naive.close(highest);
            prop_assert_eq!(
                watch.finish(),
                SequenceCounts { lost, longest_gap, ..naive.counts }
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sequence numbers of eight bits as numbers that do not wrap.

/// What a packet's number says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceOrder {
    /// The first of the stream.
    First,
    /// The one after the last.
    Next,
    /// After packets that have not come.
    Ahead {
        /// How many.
        missing: u64,
    },
    /// One that was missing.
    Behind,
    /// One that was here before.
    Duplicate,
}

/// Numbers the packets of a stream.
///
/// A number is taken for the nearest to the highest so far, 127 before it to 128 after it: of more
/// than 127 packets lost at a stretch the count is wrong unless timestamps tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    highest: Option<i64>,
    /// Bit n: whether the packet n before the highest was here.
    seen: u128,
    lowest: i64,
    noted: u64,
}

/// Where numbering starts: far from zero, so that packets before the first have numbers too.
const ORIGIN: i64 = 1 << 32;

impl Sequence {
    /// No packet yet.
    pub const fn new() -> Sequence {
        Sequence { highest: None, seen: 0, lowest: 0, noted: 0 }
    }

    /// The highest number so far.
    pub fn highest(&self) -> Option<i64> {
        self.highest
    }

    /// The number of a packet whose low eight bits are these, without noting it.
    pub fn index_of(&self, number: u8) -> i64 {
        let Some(highest) = self.highest else { return ORIGIN + i64::from(number) };
        let ahead = (i64::from(number) - highest).rem_euclid(256);
        highest + if ahead > 128 { ahead - 256 } else { ahead }
    }

    /// How many numbers between the lowest and the highest have not come.
    pub fn missing(&self) -> u64 {
        let Some(highest) = self.highest else { return 0 };
        let span = highest.abs_diff(self.lowest).saturating_add(1);
        span.saturating_sub(self.noted)
    }

    /// Notes the packet with this number.
    pub fn note(&mut self, index: i64) -> SequenceOrder {
        let place = self.place(index);
        if place != SequenceOrder::Duplicate {
            self.noted += 1;
            let first = place == SequenceOrder::First;
            self.lowest = if first { index } else { self.lowest.min(index) };
        }
        place
    }

    fn place(&mut self, index: i64) -> SequenceOrder {
        let Some(highest) = self.highest else {
            (self.highest, self.seen) = (Some(index), 1);
            return SequenceOrder::First;
        };
        let ahead = index - highest;
        if ahead > 0 {
            let shifted = u32::try_from(ahead).ok().and_then(|n| self.seen.checked_shl(n));
            self.seen = shifted.unwrap_or(0) | 1;
            self.highest = Some(index);
            let missing = u64::try_from(ahead - 1).expect("invariant: ahead");
            return if missing == 0 {
                SequenceOrder::Next
            } else {
                SequenceOrder::Ahead { missing }
            };
        }
        let bit = u32::try_from(-ahead).ok().and_then(|n| 1_u128.checked_shl(n)).unwrap_or(0);
        if self.seen & bit != 0 {
            return SequenceOrder::Duplicate;
        }
        self.seen |= bit;
        SequenceOrder::Behind
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous traffic shaping: a time from which a frame may go, given to it when it arrives.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.5.6 and 8.6.11.

use timewire_base::{BitsPerSecond, Span};

use crate::time::Ps;

/// What a stream may send: a rate, and a burst at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncLimits {
    /// Committed information rate.
    pub rate: BitsPerSecond,
    /// Committed burst size. **Units**: bytes on the link.
    pub burst_bytes: u32,
    /// A frame that would wait longer than this is discarded.
    pub max_residence: Span,
}

/// The scheduler of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncShaper {
    limits: AsyncLimits,
    empty_to_full: Ps,
    bucket_empty: Ps,
}

/// What the streams of one group (from one port, of one class) have in common: none of their
/// frames overtakes another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncGroup {
    eligible: Ps,
}

impl AsyncShaper {
    /// A scheduler with a full bucket at the start of time.
    pub fn new(limits: AsyncLimits) -> AsyncShaper {
        // A bucket that takes a fortnight to fill is as good as one that takes longer.
        let empty_to_full = Ps::of_bytes(limits.burst_bytes, limits.rate).min(Ps::new(1 << 60));
        // Full since long before any frame can arrive.
        let bucket_empty = Ps::new(-(1 << 61));
        AsyncShaper { limits, empty_to_full, bucket_empty }
    }

    /// The time from which a frame may go that arrives now; `None` when it is to be discarded,
    /// and then nothing has changed.
    pub fn eligible(&mut self, group: &mut AsyncGroup, arrival: Ps, wire_bytes: u32) -> Option<Ps> {
        let recovery = Ps::of_bytes(wire_bytes, self.limits.rate);
        let scheduler = self.bucket_empty + recovery;
        let full = self.bucket_empty + self.empty_to_full;
        let eligible = arrival.max(group.eligible).max(scheduler);
        if eligible > arrival.saturating_add(Ps::from_span(self.limits.max_residence)) {
            return None;
        }
        group.eligible = eligible;
        self.bucket_empty = if eligible < full { scheduler } else { scheduler + (eligible - full) };
        Some(eligible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: i64) -> Ps {
        Ps::from_span(Span::from_us(us))
    }

    fn shaper(burst_bytes: u32) -> AsyncShaper {
        // 100 bytes in 100 us.
        let rate = BitsPerSecond::new(8_000_000).unwrap();
        AsyncShaper::new(AsyncLimits { rate, burst_bytes, max_residence: Span::from_us(250) })
    }

    #[test]
    fn t0_a_burst_goes_at_once_and_the_rest_by_the_rate() {
        let (mut shaper, mut group) = (shaper(200), AsyncGroup::default());
        let mut at = |now| shaper.eligible(&mut group, us(now), 100);
        assert_eq!((at(1_000), at(1_000)), (Some(us(1_000)), Some(us(1_000))), "the burst");
        assert_eq!((at(1_000), at(1_000)), (Some(us(1_100)), Some(us(1_200))), "the rate");
        assert_eq!(at(1_000), None, "300 us would be more than the 250 us of residence");
        assert_eq!(at(1_050), Some(us(1_300)), "what is discarded costs nothing");
        assert_eq!((at(9_000), at(9_000)), (Some(us(9_000)), Some(us(9_000))), "full again");
        assert_eq!(at(9_000), Some(us(9_100)));
    }

    #[test]
    fn t0_no_frame_overtakes_in_its_group() {
        let (mut one, mut other, mut group) = (shaper(100), shaper(100), AsyncGroup::default());
        assert_eq!(one.eligible(&mut group, us(0), 100), Some(us(0)));
        assert_eq!(one.eligible(&mut group, us(0), 100), Some(us(100)));
        assert_eq!(other.eligible(&mut group, us(10), 100), Some(us(100)), "behind the other");
    }
}

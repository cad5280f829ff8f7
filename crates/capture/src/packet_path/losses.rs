// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When events of a capture were lost.

use crate::event::Hook;

/// Events of a hook that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which hook.
    pub hook: Hook,
    /// Not before.
    ///
    /// **Units**: ns of the capture's clock.
    pub from_ns: u64,
    /// Not after.
    ///
    /// **Units**: ns of the capture's clock.
    pub to_ns: u64,
    /// How many.
    pub events: u64,
}

impl Loss {
    /// Whether an event of this hook can be one of a packet path.
    pub(super) fn concerns_packet_paths(&self) -> bool {
        use Hook::{IrqEntry, IrqExit, NapiPoll, SoftirqEntry, SoftirqExit, TransmitTimestamp};
        let beside = [IrqEntry, IrqExit, SoftirqEntry, SoftirqExit, NapiPoll, TransmitTimestamp];
        !beside.contains(&self.hook)
    }

    /// Whether it makes the order in sockets uncertain.
    pub(super) fn concerns_sockets(&self) -> bool {
        matches!(self.hook, Hook::SocketQueue | Hook::SocketReceive | Hook::Drop)
    }
}

/// Intervals `[from, to]` of the common scale, ascending and apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals(Vec<(i64, i64)>);

impl Intervals {
    pub(super) fn add(&mut self, from: i64, to: i64) {
        let start = self.0.partition_point(|&(_, end)| end < from);
        let end = self.0.partition_point(|&(begin, _)| begin <= to);
        let (mut low, mut high) = (from, to);
        if let Some(&(begin, _)) = self.0[start..end].first() {
            low = low.min(begin);
        }
        if let Some(&(_, last)) = self.0[start..end].last() {
            high = high.max(last);
        }
        self.0.splice(start..end, [(low, high)]);
    }

    /// Makes one of all that lie before: more is taken for lost then, never less.
    pub(super) fn coarsen(&mut self, before: i64) {
        let old = self.0.partition_point(|&(_, end)| end < before);
        if let (Some(&(from, _)), Some(&(_, to)), 2..) = (self.0.first(), self.0[..old].last(), old)
        {
            self.0.splice(..old, [(from, to)]);
        }
    }

    /// Makes one of the earlier half: more is taken for lost then, never less.
    pub(super) fn halve(&mut self) {
        if let Some(&(middle, _)) = self.0.get(self.0.len() / 2) {
            self.coarsen(middle);
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether any has a point of `[from, to]`.
    pub(super) fn overlap(&self, from: i64, to: i64) -> bool {
        let next = self.0.partition_point(|&(_, end)| end < from);
        self.0.get(next).is_some_and(|&(begin, _)| begin <= to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn t0_intervals_agree_with_a_list(
            list in proptest::collection::vec((0_i64..200, 0_i64..20), 0..20),
            asked in proptest::collection::vec((0_i64..220, 0_i64..20), 1..20),
        ) {
            let mut intervals = Intervals::default();
            list.iter().for_each(|&(from, length)| intervals.add(from, from + length));
            prop_assert!(intervals.0.windows(2).all(|two| two[0].1 < two[1].0));
            let mut coarse = intervals.clone();
            coarse.coarsen(100);
            prop_assert!(coarse.0.iter().filter(|&&(_, end)| end < 100).count() <= 1);
            for (from, length) in asked {
                let to = from + length;
                let naive = list.iter().any(|&(begin, len)| begin <= to && begin + len >= from);
                prop_assert_eq!(intervals.overlap(from, to), naive);
                prop_assert!(coarse.overlap(from, to) || !naive);
                prop_assert!(from < 100 || coarse.overlap(from, to) == naive);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to happen, in its order: a radix heap, which takes a constant number of moves for each
//! event however many there are, because time never goes back.
//!
//! Not here: what the events mean (`engine.rs`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something at an instant. At the same instant the lower key goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    /// **Units**: picoseconds since the start.
    pub time: u64,
    /// Kind, object and number: a total order that depends on nothing but the simulation.
    pub key: u64,
    pub arg: u32,
}

#[derive(Debug)]
pub(super) struct EventQueue {
    /// The instant of the events in `current`; nothing earlier can come.
    last: u64,
    current: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bucket `n` has the events whose time differs from `last` in bit `n` at the highest.
    buckets: Vec<Vec<Event>>,
    filled: u64,
}

impl EventQueue {
    pub fn new() -> EventQueue {
        let buckets = (0..64).map(|_| Vec::new()).collect();
        EventQueue { last: 0, current: BinaryHeap::new(), buckets, filled: 0 }
    }

    /// **Panics** when the event is before the last one that was taken.
    pub fn push(&mut self, event: Event) {
        assert!(event.time >= self.last, "an event lies in the past");
        if event.time == self.last {
            self.current.push(Reverse((event.key, event.arg)));
        } else {
            let bit = 63 - (event.time ^ self.last).leading_zeros();
            self.filled |= 1 << bit;
            self.buckets[usize::try_from(bit).unwrap_or(63)].push(event);
        }
    }

    /// Whether something else happens at the instant of the event that was taken last.
    pub fn more_now(&self) -> bool {
        !self.current.is_empty()
    }

    /// The next event, unless it is later than `until`.
    pub fn pop(&mut self, until: u64) -> Option<Event> {
        if self.current.is_empty() {
            self.refill(until)?;
        }
        let Reverse((key, arg)) = self.current.pop()?;
        Some(Event { time: self.last, key, arg })
    }

    fn refill(&mut self, until: u64) -> Option<()> {
        if self.filled == 0 {
            return None;
        }
        let bit = self.filled.trailing_zeros();
        let index = usize::try_from(bit).unwrap_or(63);
        let earliest = self.buckets[index].iter().map(|event| event.time).min()?;
        if earliest > until {
            return None;
        }
        self.last = earliest;
        self.filled &= !(1 << bit);
        let mut bucket = std::mem::take(&mut self.buckets[index]);
        for event in bucket.drain(..) {
            self.push(event);
        }
        // Its memory is used again.
        self.buckets[index] = bucket;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn t0_events_come_in_the_order_of_time_and_key(
            first in proptest::collection::vec((0..50_u64, 0..9_u64), 0..60),
            later in proptest::collection::vec((0..500_000_u64, 0..9_u64), 0..60),
        ) {
            let mut queue = EventQueue::new();
            let event = |(time, key), arg| Event { time, key, arg };
            let mut all = Vec::new();
            for (arg, part) in (0..).zip(&first) {
                queue.push(event(*part, arg));
                all.push(event(*part, arg));
            }
            let mut later = later.iter();
            let mut taken = Vec::new();
            while let Some(now) = queue.pop(u64::MAX) {
                taken.push(now);
                // Each event causes another, at once or later.
                if let Some((after, key)) = later.next() {
                    // At the same instant, a cause is not before its effect in any other way.
                    let key = key + if *after == 0 { now.key } else { 0 };
                    let arg = 1_000 + u32::try_from(all.len()).unwrap();
                    let next = Event { time: now.time + after, key, arg };
                    queue.push(next);
                    all.push(next);
                }
            }
            all.sort_unstable();
            prop_assert_eq!(taken, all);
        }
    }

    #[test]
    fn t0_what_is_too_late_stays() {
        let mut queue = EventQueue::new();
        queue.push(Event { time: 10, key: 0, arg: 0 });
        assert_eq!(queue.pop(9), None);
        assert!(queue.pop(10).is_some() && !queue.more_now() && queue.pop(u64::MAX).is_none());
    }
}

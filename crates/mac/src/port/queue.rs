// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of a class: by arrival, or by a time that each frame has.
//!
//! Not here: when its first frame may go (`mod.rs`).

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::time::Ps;

/// A frame that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub item: T,
    /// Bytes on the link, with preamble, check sequence and gap.
    pub wire_bytes: u32,
    /// Not before this, by the clock of the station.
    pub not_before: Ps,
}

#[derive(Clone, Debug)]
pub(super) enum Queue<T> {
    Arrival(VecDeque<Entry<T>>),
    Timed { heap: BinaryHeap<Timed<T>>, arrived: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Timed<T> {
    entry: Entry<T>,
    number: u64,
}

impl<T> Timed<T> {
    fn key(&self) -> (Ps, u64) {
        (self.entry.not_before, self.number)
    }
}

impl<T> PartialEq for Timed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<T> Eq for Timed<T> {}
impl<T> PartialOrd for Timed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
/// The earliest is the greatest, as a heap has it on top.
impl<T> Ord for Timed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T: Copy> Queue<T> {
    pub fn new(timed: bool) -> Queue<T> {
        if timed {
            Queue::Timed { heap: BinaryHeap::new(), arrived: 0 }
        } else {
            Queue::Arrival(VecDeque::new())
        }
    }

    pub fn push(&mut self, entry: Entry<T>) {
        match self {
            Queue::Arrival(list) => list.push_back(entry),
            Queue::Timed { heap, arrived } => {
                heap.push(Timed { entry, number: *arrived });
                *arrived += 1;
            }
        }
    }

    pub fn first(&self) -> Option<&Entry<T>> {
        match self {
            Queue::Arrival(list) => list.front(),
            Queue::Timed { heap, .. } => heap.peek().map(|timed| &timed.entry),
        }
    }

    pub fn pop(&mut self) -> Option<Entry<T>> {
        match self {
            Queue::Arrival(list) => list.pop_front(),
            Queue::Timed { heap, .. } => heap.pop().map(|timed| timed.entry),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Queue::Arrival(list) => list.len(),
            Queue::Timed { heap, .. } => heap.len(),
        }
    }
}

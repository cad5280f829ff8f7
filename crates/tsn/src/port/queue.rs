// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues of classes: by arrival, or by a time that each frame has.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::CLASSES;
use crate::time::Ps;

/// The queues by arrival of all classes of a port: lists in one place of memory, whose entries are
/// used again, the last one first. A port that keeps few frames touches few lines of a cache.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Lines<T> {
    /// The last frame of each class that has one; it leads to the first.
    last: [u32; CLASSES],
    entries: Vec<QueueEntry<T>>,
    free: u32,
    /// How many frames of each class there are.
    counts: [u32; CLASSES],
}

#[derive(Clone, Copy, Debug)]
struct QueueEntry<T> {
    item: T,
    wire_bytes: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl<T: Copy> Lines<T> {
    pub fn new() -> Lines<T> {
        Lines { last: [NONE; CLASSES], entries: Vec::new(), free: NONE, counts: [0; CLASSES] }
    }

    pub fn push(&mut self, class: usize, item: T, wire_bytes: u32) {
        let own = match self.free {
            NONE => {
                self.entries.push(QueueEntry { item, wire_bytes, next: NONE });
                u32::try_from(self.entries.len() - 1).expect("invariant: fewer than 2^32 wait")
            }
            free => {
                self.free = self.entries[place(free)].next;
                self.entries[place(free)] = QueueEntry { item, wire_bytes, next: NONE };
                free
            }
        };
        let first = match self.last[class] {
            NONE => own,
            last => std::mem::replace(&mut self.entries[place(last)].next, own),
        };
        self.entries[place(own)].next = first;
        self.last[class] = own;
        self.counts[class] += 1;
    }

    /// How long the first frame of a class is.
    pub fn first(&self, class: usize) -> Option<u32> {
        let last = self.last[class];
        if last == NONE {
            return None;
        }
        let first = self.entries[place(last)].next;
        Some(self.entries[place(first)].wire_bytes)
    }

    /// The first frame of a class, its length, and whether it was the only one.
    pub fn pop(&mut self, class: usize) -> Option<(T, u32, bool)> {
        let last = self.last[class];
        if last == NONE {
            return None;
        }
        let first = self.entries[place(last)].next;
        let taken = self.entries[place(first)];
        if first == last {
            self.last[class] = NONE;
        } else {
            self.entries[place(last)].next = taken.next;
        }
        self.entries[place(first)].next = self.free;
        self.free = first;
        self.counts[class] -= 1;
        Some((taken.item, taken.wire_bytes, first == last))
    }

    /// Of all classes.
    pub fn len(&self) -> usize {
        place(self.counts.iter().sum())
    }

    /// Of one class.
    pub fn count(&self, class: usize) -> u32 {
        self.counts[class]
    }
}

fn place(number: u32) -> usize {
    usize::try_from(number).expect("invariant: 32 bits fit a place")
}

/// A frame that waits for its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub item: T,
    /// Bytes on the link, with preamble, check sequence and gap.
    pub wire_bytes: u32,
    /// Not before this, by the clock of the station.
    pub not_before: Ps,
}

/// A queue by times; frames of one time in the order of their arrival.
#[derive(Clone, Debug)]
pub(super) struct TimedQueue<T> {
    heap: BinaryHeap<Timed<T>>,
    arrived: u64,
}

#[derive(Clone, Debug)]
struct Timed<T> {
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

impl<T: Copy> TimedQueue<T> {
    pub fn new() -> TimedQueue<T> {
        TimedQueue { heap: BinaryHeap::new(), arrived: 0 }
    }

    pub fn push(&mut self, entry: Entry<T>) {
        self.heap.push(Timed { entry, number: self.arrived });
        self.arrived += 1;
    }

    pub fn first(&self) -> Option<&Entry<T>> {
        self.heap.peek().map(|timed| &timed.entry)
    }

    pub fn pop(&mut self) -> Option<Entry<T>> {
        self.heap.pop().map(|timed| timed.entry)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues: one for each priority and the default queue behind them all.
//!
//! Storage for all 33 exists from the start, and a queue's place follows from its priority alone.
//! So an index never comes to mean another queue when the set of queues changes, no frame has to
//! move, and nothing is allocated.

use std::collections::VecDeque;

use timewire_base::{Priority, Span};

use crate::MacError;

/// One queue of a machine: that of a priority, or the default queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIndex(u8);

impl QueueIndex {
    /// Where everything without a priority goes: served last, bound to windows like the rest.
    pub const DEFAULT: QueueIndex = QueueIndex(Priority::MAX);
    /// How many queues there can be: one for each priority, and the default queue.
    pub const COUNT: usize = Priority::MAX as usize + 1;

    /// Every queue there can be, the most urgent first, the default queue last.
    pub fn all() -> impl Iterator<Item = QueueIndex> {
        (0..=Self::DEFAULT.0).map(QueueIndex)
    }

    fn of(priority: Priority) -> QueueIndex {
        QueueIndex(priority.get() - 1)
    }

    /// The priority of the queue; `None` for the default queue.
    pub fn priority(self) -> Option<Priority> {
        Priority::new(u64::from(self.0) + 1).ok()
    }

    pub(crate) fn is_default(self) -> bool {
        self == Self::DEFAULT
    }

    pub(crate) fn as_usize(self) -> usize {
        usize::from(self.0)
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Which prioritised queues a machine has, apart from the default queue, which it always has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet {
    /// Bit `p - 1` for priority `p`.
    priorities: u64,
}

impl QueueSet {
    /// One queue for each priority listed, in any order.
    ///
    /// **Errors**: a priority listed twice.
    pub fn new(priorities: &[Priority]) -> Result<QueueSet, MacError> {
        let mut set = QueueSet::default();
        for &priority in priorities {
            if set.index_of(priority).is_some() {
                return Err(MacError::DuplicatePriority { priority });
            }
            set.insert(priority);
        }
        Ok(set)
    }

    /// The queue of a priority; `None` when the set has no such queue.
    pub fn index_of(self, priority: Priority) -> Option<QueueIndex> {
        let index = QueueIndex::of(priority);
        (self.priorities & index.bit() != 0).then_some(index)
    }

    /// Where a classified frame goes: the queue of its priority, or the default queue when it has
    /// none or the set has no such queue.
    pub fn queue_for(self, priority: Option<Priority>) -> QueueIndex {
        priority.and_then(|p| self.index_of(p)).unwrap_or(QueueIndex::DEFAULT)
    }

    /// The priorities of the set, the most urgent first.
    pub fn priorities(self) -> impl Iterator<Item = Priority> {
        Bits(self.priorities).filter_map(QueueIndex::priority)
    }

    /// How many prioritised queues there are; the default queue is not counted.
    pub fn len(self) -> usize {
        Bits(self.priorities).count()
    }

    /// Whether there is only the default queue.
    pub fn is_empty(self) -> bool {
        self.priorities == 0
    }

    pub(crate) fn insert(&mut self, priority: Priority) {
        self.priorities |= QueueIndex::of(priority).bit();
    }

    /// The queue itself while it is in the set, else the default queue.
    pub(crate) fn or_default(self, queue: QueueIndex) -> QueueIndex {
        if self.priorities & queue.bit() != 0 { queue } else { QueueIndex::DEFAULT }
    }
}

/// A frame that waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<F> {
    pub(crate) frame: F,
    /// How long the line will be busy with it, without the margin.
    pub(crate) duration: Span,
}

/// The bounded FIFOs of all queues.
pub(crate) struct Queues<F> {
    fifos: Vec<VecDeque<Waiting<F>>>,
    capacity: usize,
    /// The bit of every queue that is not empty.
    occupied: u64,
}

impl<F: Copy> Queues<F> {
    pub(crate) fn new(capacity: usize) -> Queues<F> {
        let fifos = (0..QueueIndex::COUNT).map(|_| VecDeque::with_capacity(capacity)).collect();
        Queues { fifos, capacity, occupied: 0 }
    }

    /// Whether there was room.
    pub(crate) fn push(&mut self, queue: QueueIndex, waiting: Waiting<F>) -> bool {
        let fifo = &mut self.fifos[queue.as_usize()];
        if fifo.len() >= self.capacity {
            return false;
        }
        fifo.push_back(waiting);
        self.occupied |= queue.bit();
        true
    }

    pub(crate) fn pop(&mut self, queue: QueueIndex) -> Option<Waiting<F>> {
        let fifo = &mut self.fifos[queue.as_usize()];
        let head = fifo.pop_front();
        if fifo.is_empty() {
            self.occupied &= !queue.bit();
        }
        head
    }

    pub(crate) fn head(&self, queue: QueueIndex) -> Option<&Waiting<F>> {
        self.fifos[queue.as_usize()].front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Whether a prioritised frame waits.
    pub(crate) fn has_real_time(&self) -> bool {
        self.occupied & !QueueIndex::DEFAULT.bit() != 0
    }

    /// The first frame of every queue that has one, the most urgent queue first.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (QueueIndex, &Waiting<F>)> {
        Bits(self.occupied).filter_map(|queue| Some((queue, self.head(queue)?)))
    }
}

/// The queues whose bits are set, the most urgent first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = QueueIndex;
    fn next(&mut self) -> Option<QueueIndex> {
        if self.0 == 0 {
            return None;
        }
        let lowest = u8::try_from(self.0.trailing_zeros()).ok()?;
        self.0 &= self.0 - 1;
        Some(QueueIndex(lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(n: u64) -> Priority {
        Priority::new(n).unwrap()
    }

    #[test]
    fn t0_a_set_knows_its_queues() {
        let set = QueueSet::new(&[priority(32), priority(4), priority(1)]).unwrap();
        assert_eq!(set.priorities().map(Priority::get).collect::<Vec<_>>(), [1, 4, 32]);
        assert_eq!(set.len(), 3);
        assert!(!set.is_empty() && QueueSet::default().is_empty());
        assert!(set.index_of(priority(1)) < set.index_of(priority(4)));
        assert!(set.index_of(priority(32)).unwrap() < QueueIndex::DEFAULT);
        assert_eq!(set.index_of(priority(2)), None);
        assert_eq!(set.queue_for(Some(priority(2))), QueueIndex::DEFAULT);
        assert_eq!(set.queue_for(None), QueueIndex::DEFAULT);
        assert_eq!(set.queue_for(Some(priority(4))).priority(), Some(priority(4)));
        assert_eq!(QueueIndex::DEFAULT.priority(), None);
        assert_eq!(
            QueueSet::new(&[priority(4), priority(4)]).unwrap_err().to_string(),
            "priority 4 is given to two queues: each queue needs its own"
        );
    }

    #[test]
    fn t0_queues_are_bounded_and_first_in_first_out() {
        let mut queues = Queues::new(2);
        let waiting = |frame| Waiting { frame, duration: Span::ZERO };
        let queue = QueueIndex::of(priority(32));
        assert!(queues.is_empty());
        assert!(queues.push(queue, waiting(1)) && queues.push(queue, waiting(2)));
        assert!(!queues.push(queue, waiting(3)));
        assert!(queues.push(QueueIndex::DEFAULT, waiting(4)));
        assert!(queues.has_real_time());
        assert_eq!(queues.heads().map(|(_, w)| w.frame).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(queues.pop(queue).unwrap().frame, 1);
        assert_eq!(queues.pop(queue).unwrap().frame, 2);
        assert!(queues.pop(queue).is_none());
        assert!(!queues.has_real_time() && !queues.is_empty());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way of a frame to its transmit queue, as `mqprio` and `taprio` share it: socket priority to
//! traffic class, traffic class to a range of queues.

use std::fmt;

use serde::Serialize;
use timewire_base::{SocketPriority, TrafficClass, TxQueue};

use super::words::{Words, integer, value};
use super::{QdiscError, QueueRange};

/// How many socket priorities, and how many traffic classes at most, Linux tells apart.
pub(super) const PRIORITIES: usize = 16;

/// The tables from socket priority to traffic class to transmit queues.
///
/// **Shape**: one class for each of 16 priorities, each below the number of classes; a range of at
/// least one queue for each class, or no range at all (the device chooses, `mqprio` with `hw 1`).
///
/// **Source**: `linux v6.12 net/sched/sch_mqprio_lib.c:mqprio_validate_qopt`,
/// `mqprio_validate_queue_counts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficClasses {
    count: u8,
    map: [TrafficClass; PRIORITIES],
    queues: Vec<QueueRange>,
}

impl TrafficClasses {
    /// Checks the tables. `queues` is one range for each class, or empty.
    ///
    /// **Errors**: not 1 to 16 classes; a priority that goes to a class beyond them; too few or too
    /// many ranges; a range without a queue. Ranges may overlap here: who forbids it asks
    /// [`TrafficClasses::overlap`].
    pub fn new(
        count: u64,
        map: [TrafficClass; PRIORITIES],
        queues: Vec<QueueRange>,
    ) -> Result<TrafficClasses, QdiscError> {
        let count = match u8::try_from(count) {
            Ok(count @ 1..=16) => count,
            _ => return Err(QdiscError::ClassCount { count }),
        };
        for (priority, class) in map.iter().enumerate() {
            if class.get() >= count {
                return Err(QdiscError::MapBeyond { priority, class: class.get(), count });
            }
        }
        if !queues.is_empty() && queues.len() != usize::from(count) {
            return Err(QdiscError::QueueCount { given: queues.len(), count });
        }
        if let Some(class) = queues.iter().position(|range| range.count == 0) {
            return Err(QdiscError::NoQueue { class });
        }
        Ok(TrafficClasses { count, map, queues })
    }

    /// How many classes there are, 1 to 16.
    #[doc(alias = "num_tc")]
    pub fn count(&self) -> u8 {
        self.count
    }

    /// The class of each socket priority.
    pub fn map(&self) -> &[TrafficClass; PRIORITIES] {
        &self.map
    }

    /// The class of a socket priority.
    pub fn class_of(&self, priority: SocketPriority) -> TrafficClass {
        self.map[priority.index()]
    }

    /// The queues of each class; none when the device chooses.
    pub fn queues(&self) -> &[QueueRange] {
        &self.queues
    }

    /// The queues of a class; `None` when the device chooses or there is no such class.
    pub fn queues_of(&self, class: TrafficClass) -> Option<QueueRange> {
        self.queues.get(class.index()).copied()
    }

    /// The same map with these queues: one range for each class, or none.
    ///
    /// **Errors**: as those of [`TrafficClasses::new`].
    pub fn with_queues(&self, queues: Vec<QueueRange>) -> Result<TrafficClasses, QdiscError> {
        TrafficClasses::new(u64::from(self.count), self.map, queues)
    }

    /// The first two classes that share a queue.
    pub fn overlap(&self) -> Option<QdiscError> {
        for (first, a) in self.queues.iter().enumerate() {
            for (second, b) in self.queues.iter().enumerate().skip(first + 1) {
                if a.overlaps(*b) {
                    let (a, b) = (a.to_string(), b.to_string());
                    return Some(QdiscError::QueueOverlap { first, a, second, b });
                }
            }
        }
        None
    }
}

/// The number after `num_tc`.
pub(super) fn parse_count(words: &mut Words<'_>) -> Result<u64, QdiscError> {
    let count = words.decimal("num_tc", 0, 255)?;
    Ok(u64::try_from(count).expect("invariant: read as 0 to 255"))
}

/// The classes after `map`; priorities without one go to class 0, as `tc` has it.
pub(super) fn parse_map(words: &mut Words<'_>) -> Result<[TrafficClass; PRIORITIES], QdiscError> {
    let first = TrafficClass::new(0)?;
    let given = words.run("map", PRIORITIES, "socket priorities", |word| {
        let class = integer(word, 10)?;
        let class = u64::try_from(class).map_err(|_| value("map", word, "a traffic class"));
        Some(class.and_then(|class| Ok(TrafficClass::new(class)?)))
    })?;
    let mut map = [first; PRIORITIES];
    map[..given.len()].copy_from_slice(&given);
    Ok(map)
}

/// The ranges after `queues`.
pub(super) fn parse_queues(words: &mut Words<'_>) -> Result<Vec<QueueRange>, QdiscError> {
    words.run("queues", PRIORITIES, "traffic classes", |word| {
        let (count, offset) = word.split_once('@')?;
        let number = |text| integer(text, 10).and_then(|n| u16::try_from(n).ok());
        Some(match (number(count), number(offset)) {
            (Some(count), Some(offset)) => TxQueue::new(u64::from(offset))
                .map(|offset| QueueRange { count, offset })
                .map_err(QdiscError::from),
            _ => Err(value("queues", word, "COUNT@OFFSET, such as 2@4, each at most 65535")),
        })
    })
}

/// Prints `num_tc N map ... queues ...`.
impl fmt::Display for TrafficClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "num_tc {} map", self.count)?;
        for class in &self.map {
            write!(f, " {class}")?;
        }
        if !self.queues.is_empty() {
            write!(f, " queues")?;
        }
        self.queues.iter().try_for_each(|range| write!(f, " {range}"))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine counts. Nothing is lost, held or missed without a number here.

use crate::QueueIndex;

/// The counters of one queue.
///
/// **Units**: frames. After every call `arrived = released + dropped_full + dropped_oversize +
/// depth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames that came, kept or not.
    pub arrived: u64,
    /// Frames handed to the caller for transmission.
    pub released: u64,
    /// Frames that found the queue full.
    pub dropped_full: u64,
    /// Frames longer than every window, on arrival or after the windows changed.
    pub dropped_oversize: u64,
    /// Frames waiting now.
    pub depth: u64,
    /// Most frames that ever waited at once.
    pub high_water: u64,
}

/// The counters of a machine, since it was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    queues: [QueueCounters; QueueIndex::COUNT],
    /// Windows that started while frames bound to windows were waiting, and in which no call came
    /// in time to send the shortest of those first in their queues. All windows that one late call
    /// slept through count; windows too short for that frame do not.
    pub missed_windows: u64,
    /// Frames that had to wait because the clock was not synchronised: those that arrived meanwhile
    /// and those that waited when it was lost.
    pub held_unsynchronised: u64,
    /// Changes of the windows that took effect.
    pub schedule_changes: u64,
    /// Calls whose `now` was before that of the call before.
    pub clock_steps_back: u64,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            queues: [QueueCounters::default(); QueueIndex::COUNT],
            missed_windows: 0,
            held_unsynchronised: 0,
            schedule_changes: 0,
            clock_steps_back: 0,
        }
    }

    /// The counters of one queue. They stay when the queue leaves the set.
    pub fn queue(&self, queue: QueueIndex) -> &QueueCounters {
        &self.queues[queue.as_usize()]
    }

    pub(crate) fn queue_mut(&mut self, queue: QueueIndex) -> &mut QueueCounters {
        &mut self.queues[queue.as_usize()]
    }

    /// The sums over all queues; `high_water` is the largest of any one.
    pub fn total(&self) -> QueueCounters {
        self.queues.iter().fold(QueueCounters::default(), |sum, queue| QueueCounters {
            arrived: sum.arrived + queue.arrived,
            released: sum.released + queue.released,
            dropped_full: sum.dropped_full + queue.dropped_full,
            dropped_oversize: sum.dropped_oversize + queue.dropped_oversize,
            depth: sum.depth + queue.depth,
            high_water: sum.high_water.max(queue.high_water),
        })
    }
}

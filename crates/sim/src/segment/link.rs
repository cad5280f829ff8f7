// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One link in one direction: which frame is on it when.

use std::collections::VecDeque;

use timewire_base::BitsPerSecond;

use super::PortIndex;
use crate::SimTime;

/// Shortest frame without check sequence. **Units**: bytes.
pub const MIN_FRAME: usize = 60;
/// Preamble with start delimiter, and check sequence. **Units**: bytes.
const AROUND: usize = 8 + 4;
/// Between two frames. **Units**: bytes.
const GAP: usize = 12;

/// When a frame is on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub start: SimTime,
    pub end: SimTime,
    pub found_busy_with: Option<PortIndex>,
}

/// First come, first served.
#[derive(Clone, Debug)]
pub struct FifoLink {
    rate: BitsPerSecond,
    /// From when on another frame may start.
    free: SimTime,
    /// Frames that are on it or will be, each with the end of the gap after it.
    occupied: VecDeque<(PortIndex, SimTime)>,
}

impl FifoLink {
    pub fn new(rate: BitsPerSecond) -> FifoLink {
        FifoLink { rate, free: SimTime::START, occupied: VecDeque::new() }
    }

    /// Puts a frame behind all others.
    pub fn occupy(&mut self, ready: SimTime, port: PortIndex, frame_bytes: usize) -> Slot {
        self.forget(ready);
        let found_busy_with = self.occupied.front().map(|(port, _)| *port);
        let start = self.free.max(ready);
        let end = start.plus_ps(self.duration_ps(frame_bytes.max(MIN_FRAME) + AROUND));
        self.free = end.plus_ps(self.duration_ps(GAP));
        self.occupied.push_back((port, self.free));
        Slot { start, end, found_busy_with }
    }

    /// How many frames are on it or wait for it.
    pub fn waiting(&mut self, now: SimTime) -> usize {
        self.forget(now);
        self.occupied.len()
    }

    fn forget(&mut self, now: SimTime) {
        while self.occupied.front().is_some_and(|(_, until)| *until <= now) {
            self.occupied.pop_front();
        }
    }

    /// How long so many bytes take, rounded up to a picosecond.
    fn duration_ps(&self, bytes: usize) -> u64 {
        let bits = u128::try_from(bytes).expect("invariant: 128 bits hold any length") * 8;
        let ps = (bits * 1_000_000_000_000).div_ceil(u128::from(self.rate.get()));
        u64::try_from(ps).expect("invariant: 64 KiB at 1 kbit/s are nine minutes")
    }
}

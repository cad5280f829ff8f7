// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that a driver has shown and the stack does not have yet. They have no buffer to be known
//! by, so the tag must do: a frame belongs to a reception at the same interface when it is the only
//! one with the tag on its way there. Where there were two at once, neither is taken for one or the
//! other.

use std::collections::VecDeque;

use super::Point;
use super::identity::Map;
use crate::event::Hook;

/// Capture, station, interface, tag.
type Key = (u8, u8, u32, u64);

fn key(point: &Point, tag: u64) -> Key {
    (point.capture, point.station, point.interface, tag)
}

/// Frames with one tag on their way up from one driver.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The first of them, and when the last was seen.
    first: Point,
    last_ns: i64,
    /// So many were not received yet.
    count: u32,
    /// There was more than one at once.
    is_doubtful: bool,
}

/// All of them. Nobody waits longer than the window.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    open: Map<Key, Arrival>,
    order: VecDeque<(i64, Key)>,
    left_out: usize,
}

impl Arrivals {
    /// A driver has shown a frame. Frames come in the order of time.
    /// At most so many are kept.
    pub fn seen(&mut self, point: &Point, tag: u64, window_ns: i64, most: usize) {
        let now = point.at_ns;
        while let Some(&(at, key)) = self.order.front() {
            let waits = at.saturating_add(window_ns) >= now;
            if waits && self.order.len() < most.max(1) {
                break;
            }
            self.left_out += usize::from(waits);
            self.order.pop_front();
            if self.open.get(&key).is_some_and(|arrival| arrival.last_ns <= at) {
                self.open.remove(&key);
            }
        }
        let key = key(point, tag);
        self.order.push_back((now, key));
        let fresh = Arrival { first: *point, last_ns: now, count: 0, is_doubtful: false };
        let arrival = self.open.entry(key).or_insert(fresh);
        arrival.is_doubtful |= arrival.count > 0;
        arrival.count = arrival.count.saturating_add(1);
        arrival.last_ns = now;
    }

    /// The stack has received a packet there: the frame that it was, if that is certain. To be
    /// asked at the first receive hook of a packet at an interface.
    pub fn received(&mut self, point: &Point, tag: u64, window_ns: i64) -> Option<Point> {
        if self.open.is_empty() {
            return None;
        }
        let key = key(point, tag);
        let arrival = self.open.get_mut(&key)?;
        if arrival.last_ns.saturating_add(window_ns) < point.at_ns {
            self.open.remove(&key);
            return None;
        }
        // It may have been received before, in a buffer that it was copied from. A driver that
        // hands it up here does so on the spot.
        let elsewhere = arrival.is_doubtful || arrival.first.cpu != point.cpu;
        if point.hook == Hook::StackReceive && elsewhere {
            return None;
        }
        arrival.count -= 1;
        let found = *arrival;
        if found.count == 0 {
            self.open.remove(&key);
        }
        (!found.is_doubtful).then_some(found.first)
    }

    /// How many had no room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// How many frames are kept in mind.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

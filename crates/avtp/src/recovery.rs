// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate of a clock from the times of its events.

use timewire_base::{Instant, Tai};

use crate::time::since;
use crate::{AvtpError, Cadence, Ppb};

/// Fits a line through the last timestamps of a clock (least squares) and compares its slope with
/// the nominal period. Computes in whole numbers: the same timestamps give the same rate.
#[derive(Clone, Debug)]
pub struct ClockRecovery {
    cadence: Cadence,
    /// Number and time of events, a ring.
    window: Vec<(i64, Instant<Tai>)>,
    capacity: usize,
    oldest: usize,
}

/// The most timestamps kept.
const MAX_WINDOW: usize = 1024;
/// The most events between the first and the last.
const MAX_EVENTS: i64 = 1 << 20;
/// The longest time between the first and the last, 36 minutes.
const MAX_TIME_NS: i64 = 1 << 41;

impl ClockRecovery {
    /// Judges by the last `window` timestamps, 2 to 1024, of a clock with this nominal cadence.
    /// Allocates all that it will ever need.
    ///
    /// **Errors**: another window.
    pub fn new(cadence: Cadence, window: usize) -> Result<ClockRecovery, AvtpError> {
        if !(2..=MAX_WINDOW).contains(&window) {
            let (value, most) = (crate::bytes::wide(window), crate::bytes::wide(MAX_WINDOW));
            return Err(AvtpError::Range { field: "window", value, least: 2, most });
        }
        Ok(ClockRecovery {
            cadence,
            window: Vec::with_capacity(window),
            capacity: window,
            oldest: 0,
        })
    }

    /// Forgets all timestamps.
    pub fn clear(&mut self) {
        self.window.clear();
        self.oldest = 0;
    }

    /// Takes the time of event number `event`. Events may be missing; one that is not later than
    /// the last, in number and in time, or too far from the first starts the window anew.
    pub fn push(&mut self, event: i64, at: Instant<Tai>) {
        if let (Some(&(first, start)), Some(&(last, end))) = (self.first(), self.last()) {
            let near = event > last
                && at > end
                && event.saturating_sub(first) <= MAX_EVENTS
                && since(at, start).as_ns() <= MAX_TIME_NS;
            if !near {
                self.clear();
            }
        }
        if self.window.len() < self.capacity {
            self.window.push((event, at));
        } else {
            self.window[self.oldest] = (event, at);
            self.oldest = (self.oldest + 1) % self.capacity;
        }
    }

    fn first(&self) -> Option<&(i64, Instant<Tai>)> {
        self.window.get(self.oldest)
    }

    fn last(&self) -> Option<&(i64, Instant<Tai>)> {
        let length = self.window.len();
        self.window.get((self.oldest + length.checked_sub(1)?) % length)
    }

    /// How many timestamps the rate is judged by.
    pub fn count(&self) -> usize {
        self.window.len()
    }

    /// How much faster than nominal the clock ran over the window, rounded toward zero. `None` with
    /// fewer than two timestamps, and for a clock at no more than half or at double the rate or
    /// more.
    pub fn rate(&self) -> Option<Ppb> {
        let &(first, start) = self.first()?;
        let n = i128::from(crate::bytes::wide(self.window.len()));
        let (mut x, mut y, mut xx, mut xy) = (0, 0, 0, 0);
        for &(event, at) in &self.window {
            let (dx, dy) = (i128::from(event - first), i128::from(since(at, start).as_ns()));
            (x, y, xx, xy) = (x + dx, y + dy, xx + dx * dx, xy + dx * dy);
        }
        // The slope, in nanoseconds an event; below 2^81 and 2^60.
        let (ns, events) = (n * xy - x * y, n * xx - x * x);
        if ns <= 0 || events <= 0 {
            return None;
        }
        let (numerator, denominator) = self.cadence.period_ns();
        let nominal = i128::from(numerator).checked_mul(events)?;
        let found = i128::from(denominator).checked_mul(ns)?;
        let mut rest = nominal - found;
        if rest.abs() >= found || found >= 2 * nominal {
            return None;
        }
        // The fraction digit by digit: the product with 10^9 would not fit.
        let mut ppb = 0;
        for _ in 0..9 {
            let digit = rest.checked_mul(10)?;
            ppb = ppb * 10 + digit / found;
            rest = digit % found;
        }
        i64::try_from(ppb).ok().map(Ppb::new)
    }
}

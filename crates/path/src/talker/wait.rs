// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a talker: reading it, and waiting for a time.
//!
//! Not here: what is done then (`run`).

use std::os::fd::AsFd;
use std::sync::Arc;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::{clock, event};

use super::post::Bell;

/// What the loop needs of a clock.
pub(crate) trait Clock {
    fn now(&self) -> Instant<Tai>;
    /// Waits until a time, which is after `now`, or shorter when a message was posted.
    fn wait(&mut self, now: Instant<Tai>, until: Instant<Tai>, posted: bool) -> Woken;
    /// As [`Clock::wait`], where none is posted.
    fn sleep(&mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken;
}

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    /// When.
    pub(crate) now: Instant<Tai>,
    /// When its sleep was to end and when it did, if it slept so long.
    pub(crate) slept: Option<(Instant<Tai>, Instant<Tai>)>,
}

/// TAI of this host, sleeping and spinning.
#[derive(Debug)]
pub(crate) struct SystemClock {
    spin: Span,
    bell: Arc<Bell>,
}

impl SystemClock {
    pub(crate) fn new(bell: Arc<Bell>) -> SystemClock {
        let mut clock = SystemClock { spin: Span::ZERO, bell };
        clock.set_spin(Span::from_us(60));
        clock
    }

    pub(crate) fn set_spin(&mut self, spin: Span) {
        // In virtual time a sleep ends exactly, and spinning only makes time pass.
        self.spin = if clock::is_virtual() { Span::ZERO } else { spin };
    }
}

impl SystemClock {
    /// As [`Clock::sleep`], for those who do more than that.
    #[inline(never)]
    fn rest(&mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken {
        self.sleep(now, until)
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant<Tai> {
        clock::now()
    }

    fn wait(&mut self, now: Instant<Tai>, until: Instant<Tai>, posted: bool) -> Woken {
        let left = Span::from_ns(until.as_ns() - self.spin.as_ns() - now.as_ns());
        if posted && left > Span::ZERO {
            // It fails for no reason that sleeping shorter would not show.
            let woken = event::wait_readable(&[self.bell.wake.as_fd()], Some(left)).unwrap_or(true);
            if woken {
                self.bell.wake.clear();
                return Woken { now: clock::now(), slept: None };
            }
            let now = clock::now();
            return Woken { slept: Some((until - self.spin, now)), ..self.rest(now, until) };
        }
        self.rest(now, until)
    }

    // Between two frames nothing else is done, and what it returns fits no register.
    #[inline(always)]
    fn sleep(&mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken {
        let target = Instant::from_ns(until.as_ns() - self.spin.as_ns());
        let mut woke = now;
        if target > now {
            clock::sleep_until(target);
            woke = clock::now();
        }
        let mut now = woke;
        while now < until {
            std::hint::spin_loop();
            now = clock::now();
        }
        Woken { now, slept: Some((target, woke)) }
    }
}

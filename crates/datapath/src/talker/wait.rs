// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a talker: reading it, and waiting for a time.

use std::os::fd::AsFd;
use std::sync::Arc;

use timewire_base::{Instant, Span, Tai};
use timewire_sys::clock::{self, Reader};
use timewire_sys::event;

use super::post::Bell;

/// What the loop needs of a clock.
pub(crate) trait Clock {
    fn now(&self) -> Instant<Tai>;
    /// Waits until a time, which is after `now`, or shorter when a message was posted.
    fn wait(&mut self, now: Instant<Tai>, until: Instant<Tai>, posted: bool) -> Woken;
    /// The same clock for a loop where none is posted.
    fn bare(&mut self) -> impl Bare;
}

/// A clock that a loop has with what else it needs, and not where a thread with cold caches has to
/// go for it.
pub(crate) trait Bare {
    fn now(&self) -> Instant<Tai>;
    /// Waits until a time, which is after `now`.
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
    hand: Hand,
    bell: Arc<Bell>,
}

#[derive(Clone, Copy, Debug)]
struct Hand {
    spin: Span,
    reader: Reader<Tai>,
}

impl SystemClock {
    pub(crate) fn new(bell: Arc<Bell>) -> SystemClock {
        let hand = Hand { spin: Span::ZERO, reader: Reader::new() };
        let mut clock = SystemClock { hand, bell };
        clock.set_spin(Span::from_us(60));
        clock
    }

    pub(crate) fn set_spin(&mut self, spin: Span) {
        // In virtual time a sleep ends exactly, and spinning only makes time pass.
        self.hand.spin = if clock::is_virtual() { Span::ZERO } else { spin };
    }
}

impl Hand {
    /// As [`Bare::sleep`], for those who do more than that.
    #[inline(never)]
    fn rest(mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken {
        self.sleep(now, until)
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant<Tai> {
        self.hand.reader.now()
    }

    fn wait(&mut self, now: Instant<Tai>, until: Instant<Tai>, posted: bool) -> Woken {
        let Hand { spin, reader } = self.hand;
        let left = Span::from_ns(until.as_ns() - spin.as_ns() - now.as_ns());
        if posted && left > Span::ZERO {
            // It fails for no reason that sleeping shorter would not show.
            let woken = event::wait_readable(&[self.bell.wake.as_fd()], Some(left)).unwrap_or(true);
            if woken {
                self.bell.wake.clear();
                return Woken { now: reader.now(), slept: None };
            }
            let now = reader.now();
            return Woken { slept: Some((until - spin, now)), ..self.hand.rest(now, until) };
        }
        self.hand.rest(now, until)
    }

    #[inline]
    fn bare(&mut self) -> impl Bare {
        self.hand
    }
}

impl Bare for Hand {
    #[inline(always)]
    fn now(&self) -> Instant<Tai> {
        self.reader.now()
    }

    // Between two frames nothing else is done, and what it returns fits no register.
    #[inline(always)]
    fn sleep(&mut self, now: Instant<Tai>, until: Instant<Tai>) -> Woken {
        let target = Instant::from_ns(until.as_ns() - self.spin.as_ns());
        let mut woke = now;
        if target > now {
            clock::sleep_until(target);
            woke = self.reader.now();
        }
        let mut now = woke;
        while now < until {
            std::hint::spin_loop();
            now = self.reader.now();
        }
        Woken { now, slept: Some((target, woke)) }
    }
}

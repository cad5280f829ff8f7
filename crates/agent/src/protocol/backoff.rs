// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long after a failure something is tried again: each failure in a row doubles it, up to a
//! limit, so that what cannot work costs next to nothing.

use timewire_base::Span;

/// Failures in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

/// After the first failure.
const FIRST: Span = Span::from_ms(200);
/// After many.
const MAX_DELAY: Span = Span::from_secs(5);

impl Backoff {
    /// It failed: how long until it is tried again.
    pub fn failed(&mut self) -> Span {
        let doubled = FIRST.as_ns().saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        Span::from_ns(doubled).min(MAX_DELAY)
    }

    /// It worked: the next failure is a first one.
    pub fn worked(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_never_works_is_tried_seldom_and_what_worked_soon_again() {
        let mut backoff = Backoff::default();
        let (mut at, mut tries) = (0, 0);
        while at < Span::from_secs(60).as_ns() {
            tries += 1;
            at += backoff.failed().as_ns();
        }
        assert!((10..=20).contains(&tries), "{tries} tries in a minute");
        assert_eq!(backoff.failed(), MAX_DELAY);
        backoff.worked();
        assert_eq!(backoff.failed(), FIRST);
    }
}

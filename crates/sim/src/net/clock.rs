// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a station of the network: an oscillator that drifts and wanders, and what
//! synchronisation makes of it.

use timewire_base::{Sequence, Span};

use super::delay::{below, normal, ps};

/// How a clock goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSpec {
    /// How far it is ahead at the start.
    pub offset: Span,
    /// How much it gains. **Units**: parts per billion, at most 10^8 either way.
    pub drift_ppb: i32,
    /// How much its rate changes at most, either way, in each interval. **Units**: parts per
    /// billion.
    pub wander_ppb: u32,
    /// How it is set right; without it, nobody does.
    pub sync: Option<SyncSpec>,
}

/// How a clock is set right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSpec {
    /// How often. Above zero.
    pub interval: Span,
    /// What remains of the error then, as a standard deviation; at most three times as much.
    pub error: Span,
    /// A constant part of it: the way of a beacon that nobody measures.
    pub bias: Span,
    /// Its rate is corrected too (as a servo of PTP does), not only its time (as a beacon does).
    pub rate: bool,
}

/// What a clock reads: `offset` ahead at `since`, and gaining since then.
#[derive(Clone, Debug)]
pub(super) struct NetClock {
    pub spec: ClockSpec,
    offset: i64,
    rate_ppb: i64,
    since: u64,
    random: Sequence,
}

const BILLION: i128 = 1_000_000_000;
/// How often a clock that nobody sets wanders.
const WANDER: u64 = 100_000_000_000;

impl NetClock {
    pub fn new(spec: ClockSpec, random: Sequence) -> NetClock {
        let offset = spec.offset.as_ns().saturating_mul(1_000);
        NetClock { spec, offset, rate_ppb: spec.drift_ppb.into(), since: 0, random }
    }

    /// **Units**: picoseconds, of both.
    pub fn local(&self, truth: u64) -> i64 {
        let base = i64::try_from(truth).expect("invariant: a simulation is shorter than 106 days");
        if self.rate_ppb == 0 {
            return base + self.offset;
        }
        let run = i128::from(truth.saturating_sub(self.since)) * i128::from(self.rate_ppb);
        base + self.offset + i64::try_from(run.div_euclid(BILLION)).unwrap_or(0)
    }

    /// The first instant from `from` on at which the clock reads `local` or more, as it goes now.
    pub fn truth(&self, local: i64, from: u64) -> u64 {
        let since = i128::from(self.since);
        let ahead = i128::from(local) - i128::from(self.offset) - since;
        let run = if self.rate_ppb == 0 {
            ahead
        } else {
            let rate = BILLION + i128::from(self.rate_ppb);
            (ahead * BILLION).div_euclid(rate) + i128::from((ahead * BILLION).rem_euclid(rate) > 0)
        };
        u64::try_from((since + run).max(i128::from(from))).unwrap_or(u64::MAX)
    }

    /// How long from one correction, or change of its rate, to the next; `None` when there is none.
    pub fn interval(&self) -> Option<u64> {
        match self.spec.sync {
            Some(sync) => Some(ps(sync.interval).max(1)),
            None => (self.spec.wander_ppb > 0).then_some(WANDER),
        }
    }

    /// The clock is corrected, or goes on by itself when the master is lost.
    pub fn tick(&mut self, now: u64, master_lost: bool) {
        let wander = i64::from(self.spec.wander_ppb);
        let step = below(self.random.next(), u64::from(self.spec.wander_ppb) * 2 + 1);
        let step = i64::try_from(step).unwrap_or(0) - wander;
        let heard = self.spec.sync.filter(|_| !master_lost);
        match heard {
            Some(sync) => {
                let deviation = ps(sync.error);
                let most = i64::try_from(deviation.saturating_mul(3)).unwrap_or(i64::MAX);
                let error = normal(&mut self.random, deviation).clamp(-most, most);
                self.offset = error.saturating_sub(sync.bias.as_ns().saturating_mul(1_000));
                let rate = if sync.rate { 0 } else { self.rate_ppb };
                self.rate_ppb = bounded(rate + step);
            }
            None => {
                self.rebase(now);
                self.rate_ppb = bounded(self.rate_ppb + step);
            }
        }
        self.since = now;
    }

    /// The clock jumps.
    pub fn step(&mut self, now: u64, by: Span) {
        self.rebase(now);
        self.offset = self.offset.saturating_add(by.as_ns().saturating_mul(1_000));
    }

    /// The clock goes at another rate.
    pub fn drift(&mut self, now: u64, ppb: i32) {
        self.rebase(now);
        self.rate_ppb = bounded(ppb.into());
    }

    fn rebase(&mut self, now: u64) {
        let base = i64::try_from(now).expect("invariant: a simulation is shorter than 106 days");
        (self.offset, self.since) = (self.local(now) - base, now);
    }
}

fn bounded(ppb: i64) -> i64 {
    ppb.clamp(-100_000_000, 100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clock(spec: ClockSpec) -> NetClock {
        NetClock::new(spec, Sequence::new(5))
    }

    #[test]
    fn t0_corrections_bound_the_error_and_their_loss_does_not() {
        let sync = SyncSpec {
            interval: Span::from_ms(10),
            error: Span::from_ns(100),
            bias: Span::ZERO,
            rate: false,
        };
        let spec = ClockSpec { drift_ppb: 50_000, sync: Some(sync), ..ClockSpec::default() };
        let mut clock = clock(spec);
        let ms = 1_000_000_000;
        for tick in 1..100 {
            clock.tick(tick * 10 * ms, false);
            let end = (tick + 1) * 10 * ms;
            let error = clock.local(end) - i64::try_from(end).unwrap();
            assert!((200_000..=800_000).contains(&error), "500 ns of drift, 300 ns: {error}");
        }
        for tick in 100..200 {
            clock.tick(tick * 10 * ms, true);
        }
        let error = clock.local(2_000 * ms) - 2_000 * 1_000_000_000;
        assert!(error > 50_000_000, "a second without master: {error} ps");
        clock.step(2_000 * ms, Span::from_us(-7));
        assert_eq!(clock.local(2_000 * ms) - 2_000 * 1_000_000_000, error - 7_000_000);
    }

    proptest! {
        #[test]
        fn t0_a_reading_is_reached_and_not_before(
            drift in -100_000_000..=100_000_000_i32, offset in -1_000_000..1_000_000_i64,
            local in 0..10_000_000_000_000_i64,
        ) {
            let spec = ClockSpec {
                offset: Span::from_ns(offset), drift_ppb: drift, ..ClockSpec::default()
            };
            let clock = clock(spec);
            let at = clock.truth(local, 0);
            prop_assert!(clock.local(at) >= local);
            prop_assert!(at == 0 || clock.local(at - 1) < local);
        }
    }
}

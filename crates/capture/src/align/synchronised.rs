// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host whose clock is synchronised: its own clock against TAI, by samples of both.

use super::Ahead;
use crate::capture::ClockSample;

/// The samples of one host.
///
/// `CLOCK_REALTIME` and `CLOCK_MONOTONIC` are steered as one (linux v6.12
/// `kernel/time/timekeeping.c`), so what is between them changes by steps alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synchronised {
    samples: Vec<ClockSample>,
}

impl Synchronised {
    /// Takes the samples, in any order.
    pub fn new(mut samples: Vec<ClockSample>) -> Synchronised {
        samples.sort_by_key(|sample| sample.monotonic_ns);
        Synchronised { samples }
    }

    /// How far TAI is ahead of `CLOCK_MONOTONIC` at that time of the latter, and how far that can
    /// be from the time of the clock that gives it; `None` outside the samples, where a sample next
    /// to it says nothing of synchronisation, and where the clock was stepped in between.
    pub fn at(&self, monotonic_ns: u64) -> Option<Ahead> {
        let after = self.samples.partition_point(|sample| sample.monotonic_ns < monotonic_ns);
        let after_sample = self.samples.get(after)?;
        let before = match after.checked_sub(1) {
            Some(before) => &self.samples[before],
            None if after_sample.monotonic_ns == monotonic_ns => after_sample,
            None => return None,
        };
        let (one, two) = (known(before)?, known(after_sample)?);
        let steps = one.0.abs_diff(two.0) > before.error_ns.saturating_add(after_sample.error_ns);
        if steps {
            return None;
        }
        let ns = Ahead::between(one.0.min(two.0), one.0.max(two.0));
        Some(Ahead { ns: ns.ns, bound_ns: one.1.max(two.1).saturating_add(ns.bound_ns) })
    }

    /// As [`Synchronised::at`], at that time of TAI.
    pub fn at_tai(&self, tai_ns: u64) -> Option<Ahead> {
        // TAI of each sample, which a step backwards may bring out of order: the first that fits.
        let tai = |sample: &ClockSample| sample.monotonic_ns.checked_add_signed(whole(sample)?);
        let fits = |pair: &&[ClockSample]| match (tai(&pair[0]), tai(&pair[1])) {
            (Some(from), Some(to)) => (from..=to).contains(&tai_ns),
            _ => false,
        };
        let pair = self.samples.windows(2).find(fits)?;
        let guess = tai_ns.checked_add_signed(whole(&pair[0])?.checked_neg()?)?;
        self.at(guess.clamp(pair[0].monotonic_ns, pair[1].monotonic_ns))
    }

    /// What the nearest sample says, of synchronised clocks or not, with the largest bound there
    /// is; `None` without samples.
    pub fn nearest(&self, monotonic_ns: u64) -> Option<Ahead> {
        let apart = |sample: &&ClockSample| sample.monotonic_ns.abs_diff(monotonic_ns);
        let ns = whole(self.samples.iter().min_by_key(apart)?)?;
        Some(Ahead { ns, bound_ns: u64::MAX })
    }

    /// The largest bound of a sample; `None` when no sample says anything of synchronisation.
    pub fn largest_bound(&self) -> Option<u64> {
        self.samples.iter().filter_map(known).map(|(_, bound)| bound).max()
    }

    /// The times of `CLOCK_MONOTONIC` between two samples of which the clock was stepped.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.samples.windows(2).filter_map(|pair| {
            let apart = whole(&pair[0])?.abs_diff(whole(&pair[1])?);
            let forgiven = pair[0].error_ns.saturating_add(pair[1].error_ns);
            (apart > forgiven).then_some((pair[0].monotonic_ns, pair[1].monotonic_ns))
        })
    }
}

fn whole(sample: &ClockSample) -> Option<i64> {
    sample.realtime_ahead_ns.checked_add(sample.tai_ahead_ns)
}

/// TAI less the clock, and its bound.
fn known(sample: &ClockSample) -> Option<(i64, u64)> {
    let bound = sample.error_ns.checked_add(sample.offset_ns?.unsigned_abs())?;
    Some((whole(sample)?, bound))
}

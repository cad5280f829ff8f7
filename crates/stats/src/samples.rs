// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that are kept one by one while there is room for them, and only counted from then on.

use serde::{Deserialize, Serialize};

use crate::histogram::{bin_of, bounds, negated};
use crate::rank::rank;

/// Values of any unit, also negative ones. Their number, smallest, largest and mean are exact;
/// percentiles are while all values are kept, then told as the largest value of a bin that is at
/// most a 128th of the values in it wide. A bin without a value takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// As they came.
    kept: Vec<i64>,
    room: usize,
    /// Ascending, each with its count; empty while all are kept.
    bins: Vec<(i16, u32)>,
    count: u64,
    range: Option<(i64, i64)>,
    sum: i128,
}

/// Bins of an octave.
const OCTAVE: u64 = 128;

impl Samples {
    /// None yet; so many are kept one by one.
    pub fn with_room(room: usize) -> Samples {
        Samples { room, ..Samples::default() }
    }

    /// Whether each is known, and with that every percentile exactly.
    pub fn is_exact(&self) -> bool {
        self.bins.is_empty()
    }

    /// By how much of itself a percentile is too large at most.
    pub fn percentile_error(&self) -> f64 {
        if self.is_exact() { 0.0 } else { 1.0 / 128.0 }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest and the largest; `None` of none.
    pub fn range(&self) -> Option<(i64, i64)> {
        self.range
    }

    /// The mean, rounded down; `None` of none.
    pub fn mean(&self) -> Option<i64> {
        let count = i128::from(self.count);
        i64::try_from(self.sum.checked_div_euclid(count)?).ok()
    }

    /// The value that at least `ppm` millionths of all do not exceed (nearest rank), not less than
    /// that and too large by at most [`Samples::percentile_error`] of itself; `None` of none.
    pub fn percentile(&self, ppm: u32) -> Option<i64> {
        let (min, max) = self.range?;
        let rank = rank(self.count, ppm);
        if self.is_exact() {
            let place = usize::try_from(rank - 1).ok()?;
            return Some(*self.kept.clone().select_nth_unstable(place).1);
        }
        let mut below = 0;
        let reached = self.bins.iter().find(|(_, count)| {
            below += u64::from(*count);
            below >= rank
        });
        reached.map(|(bin, _)| end_of(*bin).clamp(min, max))
    }

    /// Takes all that another has.
    pub fn merge(&mut self, other: &Samples) {
        let Some((low, high)) = other.range else { return };
        let (min, max) = self.range.unwrap_or((low, high));
        self.range = Some((min.min(low), max.max(high)));
        self.sum += other.sum;
        self.count += other.count;
        self.room = self.room.max(other.room);
        other.kept.iter().for_each(|value| self.keep(*value));
        if !other.is_exact() {
            self.count_kept();
        }
        for (bin, count) in &other.bins {
            self.count_in(*bin, *count);
        }
    }

    /// Keeps it, too, or only counts all from now on.
    fn keep(&mut self, value: i64) {
        if self.is_exact() && self.kept.len() < self.room {
            self.kept.push(value);
        } else {
            self.count_kept();
            self.count_in(signed_bin_of(value), 1);
        }
    }

    fn count_kept(&mut self) {
        for value in std::mem::take(&mut self.kept) {
            self.count_in(signed_bin_of(value), 1);
        }
    }

    fn count_in(&mut self, bin: i16, count: u32) {
        match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.bins[at].1 = self.bins[at].1.saturating_add(count),
            Err(at) => self.bins.insert(at, (bin, count)),
        }
    }
}

impl Extend<i64> for Samples {
    fn extend<T: IntoIterator<Item = i64>>(&mut self, values: T) {
        for value in values {
            let (min, max) = self.range.unwrap_or((value, value));
            self.range = Some((min.min(value), max.max(value)));
            self.sum += i128::from(value);
            self.count += 1;
            self.keep(value);
        }
    }
}

/// The bin of the magnitude; of a value below zero less than zero.
fn signed_bin_of(value: i64) -> i16 {
    let bin = i16::try_from(bin_of::<OCTAVE>(value.unsigned_abs()));
    let bin = bin.expect("invariant: below 8000");
    if value < 0 { -bin } else { bin }
}

/// The largest value of a bin.
fn end_of(bin: i16) -> i64 {
    let (from, to) = bounds::<OCTAVE>(bin.unsigned_abs().into());
    if bin < 0 { negated(from) } else { i64::try_from(to).unwrap_or(i64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = i64> {
        prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -300_i64..300,
            (0_u32..62, any::<i64>()).prop_map(|(shift, value)| value >> shift),
        ]
    }

    #[test]
    fn t0_of_nothing_nothing_is_said() {
        let empty = Samples::with_room(1);
        assert_eq!((empty.count(), empty.range(), empty.mean()), (0, None, None));
        assert_eq!((empty.percentile(500_000), empty.is_exact()), (None, true));
    }

    proptest! {
        #[test]
        fn t0_percentiles_are_exact_while_there_is_room_and_then_within_a_step(
            values in proptest::collection::vec(value(), 1..300),
            ppm in 1..1_000_000_u32, room in 0..400_usize,
        ) {
            let mut samples = Samples::with_room(room);
            samples.extend(values.iter().copied());
            prop_assert_eq!(samples.is_exact(), values.len() <= room);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let ppm_of = values.len() * usize::try_from(ppm).unwrap();
            let exact = i128::from(sorted[ppm_of.div_ceil(1_000_000).max(1) - 1]);
            let said = i128::from(samples.percentile(ppm).unwrap());
            let step = if samples.is_exact() { 0 } else { exact.abs() / 128 };
            prop_assert!(said >= exact && said <= exact + step, "{said} {exact}");
            prop_assert_eq!(samples.range(), Some((sorted[0], sorted[sorted.len() - 1])));
            let sum = values.iter().map(|value| i128::from(*value)).sum::<i128>();
            let mean = sum.div_euclid(i128::try_from(values.len()).unwrap());
            prop_assert_eq!(samples.mean().map(i128::from), Some(mean));
            let (mut one, mut two) = (Samples::with_room(room), Samples::with_room(room));
            for (n, value) in values.iter().enumerate() {
                if n % 2 == 0 { one.extend([*value]) } else { two.extend([*value]) }
            }
            one.merge(&two);
            one.kept.sort_unstable();
            samples.kept.sort_unstable();
            prop_assert_eq!(one, samples);
        }
    }
}

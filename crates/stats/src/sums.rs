// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact sums of times and of their squares, so that mean and deviation depend neither on the order
//! of the times nor on how they were merged.

/// Sums of 64-bit values; nothing is rounded before the last division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    count: u64,
    sum: i128,
    squares: Wide,
}

/// What a few values are, known from one pass that takes several of them at a time. It says of
/// values from 0 to 2^28, which nearly all are, and of others that they are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Few {
    /// All bits that any of them has.
    bits: u64,
    sum: u64,
    squares: u64,
    /// Negative if any of them is outside of the bounds.
    outside: i64,
    count: usize,
}

impl Few {
    /// Squares of so small values are below 2^56, and so many of them fit 64 bits.
    const BITS: u32 = 28;
    const MAX_SQUARES: usize = 256;
    /// What is added to values of both signs, so that they are small if they are near zero.
    pub(crate) const MIDDLE: i64 = 1 << (Few::BITS - 1);

    /// With what is to be known of them: whether they lie in these bounds, both included.
    #[inline]
    pub(crate) fn of(values: &[i64], (min, max): (i64, i64)) -> Few {
        // A small value less a bound overflows only if that is negative, which says `outside`.
        let mut few = Few { bits: 0, sum: 0, squares: 0, outside: max, count: values.len() };
        for &value in values {
            few.outside |= value.wrapping_sub(min) | max.wrapping_sub(value);
            let value = value.cast_unsigned();
            // A product of 32 bits each, of which there are instructions for several.
            let low = value & u64::from(u32::MAX);
            few.bits |= value;
            few.sum = few.sum.wrapping_add(value);
            few.squares = few.squares.wrapping_add(low.wrapping_mul(low));
        }
        few
    }

    #[inline]
    fn count(&self) -> u64 {
        u64::try_from(self.count).expect("invariant: a length fits 64 bits")
    }

    #[inline]
    pub(crate) fn are_small(&self) -> bool {
        self.bits >> Few::BITS == 0 && self.count <= Few::MAX_SQUARES
    }

    /// Whether it is known that all values lie within the bounds.
    #[inline]
    pub(crate) fn are_within(&self) -> bool {
        self.are_small() && self.outside >= 0
    }
}

impl Sums {
    #[inline]
    pub(crate) fn add(&mut self, value: i64) {
        let magnitude = u128::from(value.unsigned_abs());
        self.count += 1;
        // A count of 64 bits fits before these do not.
        self.sum = self.sum.wrapping_add(i128::from(value));
        let (low, carry) = self.squares.low.overflowing_add(magnitude * magnitude);
        self.squares.low = low;
        if carry {
            self.squares.high += 1;
        }
    }

    /// As [`Sums::add`] of each of the values, which are small.
    #[inline]
    pub(crate) fn add_all(&mut self, few: &Few) {
        debug_assert!(few.are_small(), "sums of large values do not fit");
        self.count += few.count();
        self.sum = self.sum.wrapping_add(few.sum.into());
        self.squares = self.squares.plus(Wide { high: 0, low: few.squares.into() });
    }

    /// As [`Sums::add_all`] of values each of which is [`Few::MIDDLE`] less than those.
    #[inline]
    pub(crate) fn add_moved(&mut self, few: &Few) {
        debug_assert!(few.are_small(), "sums of large values do not fit");
        let middle = u128::from(Few::MIDDLE.unsigned_abs());
        let (count, sum) = (u128::from(few.count()), u128::from(few.sum));
        self.count += few.count();
        self.sum = self.sum.wrapping_add_unsigned(sum).wrapping_sub_unsigned(count * middle);
        // The square of each, (v - m)^2, is v^2 + m^2 - 2 v m.
        let squares = u128::from(few.squares) + count * middle * middle - 2 * middle * sum;
        self.squares = self.squares.plus(Wide { high: 0, low: squares });
    }

    /// As [`Sums::add`] of each.
    #[inline(never)]
    pub(crate) fn add_large(&mut self, values: &[i64]) {
        let (mut sum, mut low, mut carries) = (self.sum, self.squares.low, 0_u64);
        for &value in values {
            let magnitude = u128::from(value.unsigned_abs());
            sum = sum.wrapping_add(i128::from(value));
            let carry;
            (low, carry) = low.overflowing_add(magnitude.wrapping_mul(magnitude));
            carries = carries.wrapping_add(u64::from(carry));
        }
        self.count += u64::try_from(values.len()).expect("invariant: a length fits 64 bits");
        self.sum = sum;
        self.squares = Wide { high: self.squares.high + u128::from(carries), low };
    }

    pub(crate) fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares = self.squares.plus(other.squares);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// 0 of nothing.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { signed_f64(self.sum) / as_f64(self.count.into()) }
    }

    /// Of the sample (n - 1); 0 for fewer than two.
    pub(crate) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n * (sum of squares) - (sum) * (sum), which is n * (n - 1) variances.
        let n = u128::from(self.count);
        let high = Wide { high: n * self.squares.high, low: 0 };
        let scaled = Wide::product(n, self.squares.low).plus(high);
        let sum = self.sum.unsigned_abs();
        let spread = scaled.minus(Wide::product(sum, sum));
        (spread.as_f64() / as_f64(n) / as_f64(n - 1)).sqrt()
    }
}

/// 256 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wide {
    high: u128,
    low: u128,
}

const HALF: u128 = 1 << 64;

impl Wide {
    fn product(a: u128, b: u128) -> Wide {
        let (a1, a0, b1, b0) = (a / HALF, a % HALF, b / HALF, b % HALF);
        let low = a0 * b0;
        let middle = a1 * b0 + low / HALF;
        let other = a0 * b1 + middle % HALF;
        Wide {
            high: a1 * b1 + middle / HALF + other / HALF,
            low: (other % HALF) * HALF + low % HALF,
        }
    }

    fn plus(self, other: Wide) -> Wide {
        let (low, carry) = self.low.overflowing_add(other.low);
        Wide { high: self.high + other.high + u128::from(carry), low }
    }

    fn minus(self, other: Wide) -> Wide {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Wide { high: self.high - other.high - u128::from(borrow), low }
    }

    fn as_f64(self) -> f64 {
        as_f64(self.high) * as_f64(HALF) * as_f64(HALF) + as_f64(self.low)
    }
}

#[expect(clippy::cast_precision_loss, reason = "statistics: one rounding to 53 bits")]
pub(crate) fn as_f64(value: u128) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "statistics: one rounding to 53 bits")]
fn signed_f64(value: i128) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(values: &[i64]) -> Sums {
        let mut sums = Sums::default();
        values.iter().for_each(|&value| sums.add(value));
        sums
    }

    #[test]
    fn t0_large_values_of_small_spread_keep_it() {
        let base = i64::MAX - 10;
        let far = sums(&[base, base + 4, base + 8]);
        assert!((far.deviation() - 4.0).abs() < 1e-12, "{}", far.deviation());
        let ends = sums(&[i64::MIN, i64::MAX]);
        assert!((ends.mean() + 0.5).abs() < 1e-12);
        assert!((ends.deviation() / 2_f64.powi(63) - 2_f64.sqrt()).abs() < 1e-12);
        assert_eq!((sums(&[]).mean().to_bits(), sums(&[3]).deviation().to_bits()), (0, 0));
        let mut many = sums(&[i64::MIN; 64]);
        for _ in 0..50 {
            many.merge(&many.clone());
        }
        assert_eq!(many.deviation().to_bits(), 0, "2^56 times the smallest");
    }

    proptest! {
        #[test]
        fn t0_products_of_256_bits_obey_the_laws(a: u128, b: u128, c: u64) {
            let c = u128::from(c);
            let one = Wide { high: 0, low: a };
            prop_assert_eq!(Wide::product(a, 1), one);
            prop_assert_eq!(Wide::product(a, b), Wide::product(b, a));
            prop_assert_eq!(Wide::product(a, HALF), Wide { high: a >> 64, low: a << 64 });
            let (a, b) = (a >> 1, b >> 1);
            let sum = Wide::product(a, c).plus(Wide::product(b, c));
            prop_assert_eq!(Wide::product(a + b, c), sum);
            prop_assert_eq!(sum.minus(Wide::product(b, c)), Wide::product(a, c));
        }

        #[test]
        fn t0_many_at_once_are_each(
            values in proptest::collection::vec((0_u32..64, any::<i64>()), 0..300),
            shift in 0_u32..64,
            bounds in (0_u32..64, any::<i64>(), 0_u32..64, any::<i64>()),
        ) {
            // Of all sizes, and all as small as one wants.
            let any = values.iter().map(|(shift, value)| value >> shift);
            let small = values.iter().map(|(_, value)| (value & i64::MAX) >> shift);
            let near = values.iter().map(|(_, value)| value >> shift);
            let (min, max) = (bounds.1 >> bounds.0, bounds.3 >> bounds.2);
            for values in [any.collect::<Vec<i64>>(), small.collect(), near.collect()] {
                let few = Few::of(&values, (min, max));
                let mut at_once = sums(&[7]);
                match few.are_small() {
                    true => at_once.add_all(&few),
                    false => at_once.add_large(&values),
                }
                prop_assert_eq!(at_once, sums(&[&[7], &values[..]].concat()));
                let moved = values.iter().map(|value| value.wrapping_add(Few::MIDDLE));
                let few_moved = Few::of(&moved.collect::<Vec<_>>(), (0, 0));
                if few_moved.are_small() {
                    let mut at_once = sums(&[7]);
                    at_once.add_moved(&few_moved);
                    prop_assert_eq!(at_once, sums(&[&[7], &values[..]].concat()));
                }
                let are_within = values.iter().all(|value| (min..=max).contains(value));
                prop_assert!(are_within || !few.are_within());
                let is_told = few.are_small() && max >= 0 && min > i64::MIN >> 1;
                prop_assert!(!is_told || are_within == few.are_within());
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact sums of times and of their squares, so that mean and deviation depend neither on the order
//! of the times nor on how they were merged.
//!
//! Not here: bins ([`super::histogram`]).

/// Sums of 64-bit values; nothing is rounded before the last division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    count: u64,
    sum: i128,
    squares: Wide,
}

/// Sums of a few values that are not negative and small; of others it is known that they are none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SmallSums {
    /// All bits that any of them has.
    bits: u64,
    sum: u64,
    squares: u64,
}

impl SmallSums {
    /// Squares of values below 2^28 are below 2^56, and so many of them fit 64 bits.
    const BITS: u32 = 28;
    const MOST: usize = 256;

    #[inline]
    pub(super) fn add(&mut self, value: i64) {
        let value = u64::from_ne_bytes(value.to_ne_bytes());
        self.bits |= value;
        self.sum = self.sum.wrapping_add(value);
        self.squares = self.squares.wrapping_add(value.wrapping_mul(value));
    }

    /// The sum and the sum of the squares of so many values, if all were small.
    fn of(self, count: usize) -> Option<(u64, u64)> {
        let are_small = self.bits >> Self::BITS == 0 && count <= Self::MOST;
        are_small.then_some((self.sum, self.squares))
    }
}

impl Sums {
    #[inline]
    pub(super) fn add(&mut self, value: i64) {
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

    /// As [`Sums::add`] of each; with their sums, if they are small.
    pub(super) fn add_all(&mut self, values: &[i64], small: SmallSums) {
        if let Some((sum, squares)) = small.of(values.len()) {
            self.count += u64::try_from(values.len()).expect("invariant: a length fits 64 bits");
            self.sum = self.sum.wrapping_add(sum.into());
            self.squares = self.squares.plus(Wide { high: 0, low: squares.into() });
            return;
        }
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

    pub(super) fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares = self.squares.plus(other.squares);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// 0 of nothing.
    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { signed_f64(self.sum) / as_f64(self.count.into()) }
    }

    /// Of the sample (n - 1); 0 for fewer than two.
    pub(super) fn deviation(&self) -> f64 {
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
pub(super) fn as_f64(value: u128) -> f64 {
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
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fractions of 128-bit integers, exact or an error: no result is ever rounded or wrapped.

use std::cmp::Ordering;
use std::fmt;

use super::CalculusError;

/// An exact fraction in lowest terms, its denominator positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    num: i128,
    den: i128,
}

impl Ratio {
    /// Nothing.
    pub const ZERO: Ratio = Ratio { num: 0, den: 1 };

    /// `num / den`.
    ///
    /// **Errors**: a denominator of zero, or a number beyond 127 bits.
    pub fn new(num: i128, den: i128) -> Result<Ratio, CalculusError> {
        if den == 0 {
            return Err(CalculusError::DivisionByZero);
        }
        let common = gcd(num.unsigned_abs(), den.unsigned_abs());
        let common = i128::try_from(common).map_err(|_| CalculusError::Overflow)?;
        let sign = if den < 0 { -1 } else { 1 };
        let num = (num / common).checked_mul(sign).ok_or(CalculusError::Overflow)?;
        let den = (den / common).checked_mul(sign).ok_or(CalculusError::Overflow)?;
        Ok(Ratio { num, den })
    }

    /// A whole number.
    pub const fn whole(num: i128) -> Ratio {
        Ratio { num, den: 1 }
    }

    /// The numerator in lowest terms, which bears the sign.
    pub const fn numerator(self) -> i128 {
        self.num
    }

    /// The denominator in lowest terms, positive.
    pub const fn denominator(self) -> i128 {
        self.den
    }

    /// The sum.
    ///
    /// **Errors**: a number beyond 127 bits.
    pub fn plus(self, other: Ratio) -> Result<Ratio, CalculusError> {
        if self.den == other.den {
            let num = self.num.checked_add(other.num).ok_or(CalculusError::Overflow)?;
            return Ratio::new(num, self.den);
        }
        let sum = || {
            let left = self.num.checked_mul(other.den)?;
            let right = other.num.checked_mul(self.den)?;
            Some((left.checked_add(right)?, self.den.checked_mul(other.den)?))
        };
        let (num, den) = sum().ok_or(CalculusError::Overflow)?;
        Ratio::new(num, den)
    }

    /// The difference.
    ///
    /// **Errors**: a number beyond 127 bits.
    pub fn minus(self, other: Ratio) -> Result<Ratio, CalculusError> {
        let num = other.num.checked_neg().ok_or(CalculusError::Overflow)?;
        self.plus(Ratio { num, den: other.den })
    }

    /// The product.
    ///
    /// **Errors**: a number beyond 127 bits.
    pub fn times(self, other: Ratio) -> Result<Ratio, CalculusError> {
        // Reduced crosswise first, so that only what must be large is.
        let left = Ratio::new(self.num, other.den)?;
        let right = Ratio::new(other.num, self.den)?;
        let num = left.num.checked_mul(right.num).ok_or(CalculusError::Overflow)?;
        let den = left.den.checked_mul(right.den).ok_or(CalculusError::Overflow)?;
        Ok(Ratio { num, den })
    }

    /// The quotient.
    ///
    /// **Errors**: a divisor of zero, or a number beyond 127 bits.
    pub fn over(self, other: Ratio) -> Result<Ratio, CalculusError> {
        self.times(Ratio::new(other.den, other.num)?)
    }

    /// The smallest whole number that is not less.
    pub fn ceil(self) -> i128 {
        let floor = self.num.div_euclid(self.den);
        if self.num.rem_euclid(self.den) == 0 { floor } else { floor + 1 }
    }

    /// The greatest whole number that is not more.
    pub fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }

    /// Less than nothing.
    pub const fn is_negative(self) -> bool {
        self.num < 0
    }
}

impl Ord for Ratio {
    /// By continued fractions where products would not fit: it cannot overflow.
    fn cmp(&self, other: &Ratio) -> Ordering {
        if let (Some(left), Some(right)) =
            (self.num.checked_mul(other.den), other.num.checked_mul(self.den))
        {
            return left.cmp(&right);
        }
        let (mut a, mut b, mut turned) = (*self, *other, false);
        loop {
            let order = a.floor().cmp(&b.floor());
            let order = if turned { order.reverse() } else { order };
            let (rest_a, rest_b) = (a.num.rem_euclid(a.den), b.num.rem_euclid(b.den));
            if order != Ordering::Equal {
                return order;
            }
            if rest_a == 0 || rest_b == 0 {
                let order = rest_a.signum().cmp(&rest_b.signum());
                return if turned { order.reverse() } else { order };
            }
            (a, b) = (Ratio { num: a.den, den: rest_a }, Ratio { num: b.den, den: rest_b });
            turned = !turned;
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<u64> for Ratio {
    fn from(whole: u64) -> Ratio {
        Ratio::whole(i128::from(whole))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.den == 1 {
            write!(f, "{}", self.num)
        } else {
            write!(f, "{}/{}", self.num, self.den)
        }
    }
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Never zero: the denominator is not.
fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(num: i128, den: i128) -> Ratio {
        Ratio::new(num, den).unwrap()
    }

    #[test]
    fn t0_lowest_terms_and_rounding() {
        assert_eq!(ratio(6, -4), ratio(-3, 2));
        assert_eq!((ratio(-3, 2).ceil(), ratio(-3, 2).floor()), (-1, -2));
        assert_eq!((ratio(4, 2).ceil(), ratio(4, 2).floor()), (2, 2));
        assert_eq!(ratio(-3, 2).to_string(), "-3/2");
        assert_eq!(Ratio::new(1, 0), Err(CalculusError::DivisionByZero));
        assert_eq!(Ratio::ZERO.over(Ratio::ZERO), Err(CalculusError::DivisionByZero));
    }

    #[test]
    fn t0_overflow_is_an_error() {
        let big = Ratio::whole(i128::MAX);
        assert_eq!(big.plus(Ratio::whole(1)), Err(CalculusError::Overflow));
        assert_eq!(big.times(big), Err(CalculusError::Overflow));
        assert_eq!(big.times(ratio(1, i128::MAX)), Ok(Ratio::whole(1)));
    }

    #[test]
    fn t0_order_of_numbers_whose_products_do_not_fit() {
        let (a, b) = (ratio(i128::MAX, i128::MAX - 1), ratio(i128::MAX - 1, i128::MAX - 2));
        assert_eq!((a.cmp(&b), b.cmp(&a)), (Ordering::Less, Ordering::Greater));
        assert!(ratio(-i128::MAX, 2) < a);
        assert_eq!(a.cmp(&a), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn t0_laws_of_fields(
            a in -999_i128..999, b in 1_i128..99, c in -999_i128..999, d in 1_i128..99,
        ) {
            let (x, y) = (ratio(a, b), ratio(c, d));
            prop_assert_eq!(x.plus(y).unwrap().minus(y).unwrap(), x);
            prop_assert_eq!(x.cmp(&y), (a * d).cmp(&(c * b)));
            if c != 0 {
                prop_assert_eq!(x.times(y).unwrap().over(y).unwrap(), x);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit of any number of shaped classes.
//!
//! **Source**: IEEE 802.1Q-2022, 34.3.1 and Annex L for two classes; for more: Azua, Boyer:
//! Complete modelling of AVB in Network Calculus Framework (RTNS 2014), as corrected for lower
//! classes by Daigmorte, Boyer, Zhao: Modelling in network calculus a TSN architecture (2018).

use timewire_base::BitsPerSecond;

use super::BoundsError;
use crate::calculus::Ratio;

/// A class with credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditClass {
    /// The rate that it reserves.
    pub idle_slope: BitsPerSecond,
    /// Its longest frame with everything around it. **Units**: bits.
    pub longest_bits: u64,
}

/// The extremes of a class's credit, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditBound {
    /// The most. **Units**: bits.
    pub hi_credit: Ratio,
    /// The least. **Units**: bits, negative.
    pub lo_credit: Ratio,
    /// The longest wait of the class while it has credit. **Units**: bits sent by others at the
    /// rate of the port.
    pub(super) wait_bits: Ratio,
}

/// Credit of each class of a port, from the highest class down; `lower_bits` is the longest frame
/// of any class below all of them, or of those below each that have no credit.
///
/// While a class waits the port sends at its whole rate: a frame from below, then what higher
/// classes may from credit gained meanwhile, until each of them has none.
///
/// **Errors**: classes that reserve the whole port; numbers beyond 127 bits.
pub fn credit_bounds(
    port: BitsPerSecond,
    classes: &[CreditClass],
    lower_bits: u64,
) -> Result<Vec<CreditBound>, BoundsError> {
    let reserved =
        classes.iter().fold(0_u64, |sum, class| sum.saturating_add(class.idle_slope.get()));
    if reserved >= port.get() {
        return Err(BoundsError::Reserved { reserved, rate: port });
    }
    let rate = Ratio::from(port.get());
    let (mut left, mut debts, mut bounds) = (rate, Ratio::ZERO, Vec::new());
    for (index, class) in classes.iter().enumerate() {
        let below = classes[index + 1..].iter().map(|class| class.longest_bits);
        let lower = below.fold(lower_bits, u64::max);
        let idle = Ratio::from(class.idle_slope.get());
        // So long the port is busy with others, counted in bits at its rate.
        let wait_bits = debts.plus(Ratio::from(lower))?.times(rate)?.over(left)?;
        let hi_credit = wait_bits.times(idle)?.over(rate)?;
        let longest = Ratio::from(class.longest_bits);
        let debt = longest.times(rate.minus(idle)?)?.over(rate)?;
        let lo_credit = Ratio::ZERO.minus(debt)?;
        bounds.push(CreditBound { hi_credit, lo_credit, wait_bits });
        (left, debts) = (left.minus(idle)?, debts.plus(debt)?);
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_base::FrameLen;
    use timewire_tsn::qdisc::{CreditShaper, ReservedClass};

    fn mbit(mbit: u64) -> BitsPerSecond {
        BitsPerSecond::new(mbit * 1_000_000).unwrap()
    }

    fn class(idle_slope: BitsPerSecond, bytes: u64) -> CreditClass {
        CreditClass { idle_slope, longest_bits: bytes * 8 }
    }

    fn bytes(bits: Ratio) -> Ratio {
        bits.over(Ratio::whole(8)).unwrap()
    }

    #[test]
    fn t0_published_credits() {
        let one = credit_bounds(mbit(1_000), &[class(mbit(20), 1_500)], 12_000).unwrap();
        assert_eq!(bytes(one[0].hi_credit), Ratio::whole(30));
        assert_eq!(bytes(one[0].lo_credit), Ratio::whole(-1_470));
        let kbit = |kbit: u64| BitsPerSecond::new(kbit * 1_000).unwrap();
        let both = [class(kbit(98_688), 1_542), class(kbit(3_648), 114)];
        let two = credit_bounds(mbit(1_000), &both, 1_542 * 8).unwrap();
        let round = |bits| (bytes(bits).ceil(), bytes(bits).floor());
        assert_eq!(round(two[0].hi_credit).0, 153);
        assert_eq!(round(two[0].lo_credit), (-1_389, -1_390));
        assert_eq!(round(two[1].hi_credit).0, 12);
        assert_eq!(round(two[1].lo_credit), (-113, -114));
    }

    /// The burst of class A lasts as long as its credit: 1156.5 bytes, and not the 771 of one frame
    /// of each.
    #[test]
    fn t0_class_b_waits_for_the_burst_of_class_a() {
        let both = [class(mbit(50), 1_542), class(mbit(25), 1_542)];
        let two = credit_bounds(mbit(100), &both, 1_542 * 8).unwrap();
        assert_eq!(bytes(two[1].hi_credit), Ratio::new(2_313, 2).unwrap());
    }

    #[test]
    fn t0_a_full_port_is_refused() {
        let all = class(mbit(60), 300);
        let error = credit_bounds(mbit(100), &[all, all], 0).unwrap_err();
        assert_eq!(error, BoundsError::Reserved { reserved: 120_000_000, rate: mbit(100) });
    }

    /// second method: the calculator of the classes A and B that writes the words of `tc`.
    #[test]
    fn t0_two_classes_agree_with_the_shaper_of_tc() {
        let wire = |bytes: u32| FrameLen::new(bytes - 24).unwrap().wire_len();
        for (a, b, long_a, long_b, lower) in [
            (75, 20, 1_542, 300, 1_542),
            (1, 1, 84, 84, 2_000),
            (33, 7, 900, 1_200, 1_542),
            (600, 390, 84, 1_542, 84),
        ] {
            let longest_of = |bytes: u32| u64::from(bytes);
            let both = [class(mbit(a), longest_of(long_a)), class(mbit(b), longest_of(long_b))];
            let below = long_b.max(lower);
            let ours = credit_bounds(mbit(1_000), &both, u64::from(lower) * 8).unwrap();
            let reserved = |idle, longest| ReservedClass { idle_slope: mbit(idle), longest };
            let (top, low) = (reserved(a, wire(long_a)), reserved(b, wire(long_b)));
            let theirs = [
                CreditShaper::class_a(mbit(1_000), top, wire(below)).unwrap(),
                CreditShaper::class_b(mbit(1_000), low, top, wire(lower)).unwrap(),
            ];
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_eq!(ours.lo_credit.floor(), theirs.lo_credit_bits());
                assert_eq!(ours.hi_credit.ceil(), theirs.hi_credit_bits());
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a credit-based shaper carries behind gates: the standard scales the idle slope by the cycle
//! over the open time, Linux' `cbs` knows no gates.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.8.2; `linux v6.12 net/sched/sch_cbs.c:cbs_dequeue_soft`.
//!
//! Not here: credit itself ([`super::CreditShaper`]).

use std::fmt;

use serde::Serialize;
use timewire_base::{BitsPerSecond, Span};

/// The rates of a class with credit behind a gate, in the long run and with frames always waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GatedRate {
    /// The idle slope that is set. **Units**: bit/s.
    pub reserved_bps: u64,
    /// By IEEE 802.1Q: what is reserved, but no more than the open gate passes. **Units**: bit/s.
    pub standard_bps: u64,
    /// By Linux, about: credit grows by the idle slope that is set, and while the gate is shut no
    /// higher than hiCredit. **Units**: bit/s.
    pub linux_bps: u64,
    /// How much of the cycle the gate is open. **Units**: millionths.
    pub open_ppm: u64,
}

impl GatedRate {
    /// `states` are those of the class's gate in a cycle, whether it is open and how long; `None`
    /// where it is never shut.
    pub fn of(
        reserved: BitsPerSecond,
        port: BitsPerSecond,
        hi_credit_bits: u64,
        states: &[(bool, Span)],
    ) -> Option<GatedRate> {
        let length = |state: &(bool, Span)| u128::try_from(state.1.as_ns()).unwrap_or(0);
        let cycle: u128 = states.iter().map(length).sum();
        let open: u128 = states.iter().filter(|state| state.0).map(length).sum();
        if cycle == 0 || open == cycle {
            return None;
        }
        let rate = u128::from(reserved.get());
        let passes = u128::from(port.get()) * open / cycle;
        // From an open state on, so that a shut time over the turn of the cycle is one.
        let start = states.iter().position(|state| state.0).unwrap_or(0);
        let (mut shut, mut kept) = (0, 0);
        let hi = u128::from(hi_credit_bits) * 1_000_000_000;
        for state in states[start..].iter().chain(&states[..start]).chain([&(true, Span::ZERO)]) {
            if state.0 {
                kept += (rate * shut).min(hi);
                shut = 0;
            } else {
                shut += length(state);
            }
        }
        let bps = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
        Some(GatedRate {
            reserved_bps: reserved.get(),
            standard_bps: bps(rate.min(passes)),
            linux_bps: bps(((rate * open + kept) / cycle).min(passes)),
            open_ppm: bps(open * 1_000_000 / cycle),
        })
    }
}

impl fmt::Display for GatedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bps: u64| format!("{}.{:03} Mbit/s", bps / 1_000_000, bps / 1_000 % 1_000);
        write!(
            f,
            "credit of {} behind a gate that is open for {}.{} % of the cycle carries {}",
            mbit(self.reserved_bps),
            self.open_ppm / 10_000,
            self.open_ppm / 1_000 % 10,
            mbit(self.standard_bps)
        )?;
        if self.linux_bps == self.standard_bps {
            return f.write_str(", by IEEE 802.1Q and with Linux");
        }
        write!(f, " by IEEE 802.1Q, and about {} with Linux", mbit(self.linux_bps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_standard_and_linux_differ_behind_gates() {
        let mbit = |mbit: u64| BitsPerSecond::new(mbit * 1_000_000).unwrap();
        let of = |rate, hi: u64, states: &[(bool, i64)]| {
            let states: Vec<_> =
                states.iter().map(|(open, us)| (*open, Span::from_us(*us))).collect();
            let found = GatedRate::of(mbit(rate), mbit(100), hi * 8, &states);
            found.map(|it| (it.standard_bps / 1_000, it.linux_bps / 1_000))
        };
        // A quarter open: 20 Mbit/s by the standard, 5 with Linux that keeps no credit.
        assert_eq!(of(20, 0, &[(true, 250), (false, 750)]), Some((20_000, 5_000)));
        // Half open, and a shut time over the turn of the cycle is one shut time of 1 ms.
        let turned = [(false, 400), (true, 1_000), (false, 600)];
        assert_eq!(of(50, 0, &turned), Some((50_000, 25_000)));
        assert_eq!(of(50, 625, &turned), of(50, 625, &[(true, 1_000), (false, 1_000)]));
        assert_eq!(of(50, 625, &turned), Some((50_000, 27_500)));
        // Enough hiCredit for a whole shut time gives all of it.
        assert_eq!(of(50, 100_000, &turned), Some((50_000, 50_000)));
        // No more than the gate passes.
        assert_eq!(of(50, 0, &[(true, 100), (false, 900)]), Some((10_000, 5_000)));
        assert_eq!(of(50, 0, &[(false, 900)]), Some((0, 0)));
        assert_eq!(of(50, 0, &[(true, 100), (true, 900)]), None);
    }
}

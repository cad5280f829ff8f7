// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a credit-based shaper carries behind gates: the standard scales the idle slope by the cycle
//! over the open time, Linux' `cbs` knows no gates.
//!
//! **Source**: IEEE 802.1Q-2022, 8.6.8.2; `linux v6.12 net/sched/sch_cbs.c:cbs_dequeue_soft`, which
//! the laboratory's kernel is held to (`crates/lab/tests/kernel/cbs.rs`).

use std::fmt;

use serde::{Deserialize, Serialize};
use timewire_base::{BitsPerSecond, Span, TrafficClass};

use super::{Cbs, GateControlEntry, QueueRange, Taprio};

/// The rates of a class with credit behind a gate, in the long run and with frames always waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatedRate {
    /// The idle slope that is set. **Units**: bit/s.
    pub reserved_bps: u64,
    /// By IEEE 802.1Q: what is reserved, but no more than the open gate passes. **Units**: bit/s.
    pub standard_bps: u64,
    /// With Linux, at least about this: credit grows by the idle slope that is set, and what would
    /// grow while the gate is shut is lost. **Units**: bit/s.
    pub linux_least_bps: u64,
    /// With Linux, at most this: a shut gate finds loCredit, and credit grows to hiCredit
    /// meanwhile. Where between depends on how many frames fit an open gate. **Units**: bit/s.
    pub linux_most_bps: u64,
    /// How much of the cycle the gate is open. **Units**: millionths.
    pub open_ppm: u64,
}

/// How far credit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditRange {
    /// hiCredit. **Units**: bits.
    pub hi_bits: u64,
    /// loCredit without its sign. **Units**: bits.
    pub lo_bits: u64,
}

impl CreditRange {
    /// Of a `cbs`; a sign that is not that of its bound is none.
    pub fn of_bytes(hi: i64, lo: i64) -> CreditRange {
        let bits = |bytes: i64| u64::try_from(bytes).unwrap_or(0).saturating_mul(8);
        CreditRange { hi_bits: bits(hi), lo_bits: bits(lo.saturating_neg()) }
    }

    /// As Annex L of IEEE 802.1Q has them: what grows during one frame of another class, and what
    /// one frame of the class costs.
    ///
    /// **Units**: bytes on the link.
    pub fn of_frames(
        reserved: BitsPerSecond,
        port: BitsPerSecond,
        interference: u64,
        frame: u64,
    ) -> CreditRange {
        let port = port.get().max(1);
        let share = |bytes: u64, of: u64| {
            let bits = (u128::from(bytes) * 8 * u128::from(of)).div_ceil(u128::from(port));
            u64::try_from(bits).unwrap_or(u64::MAX)
        };
        CreditRange {
            hi_bits: share(interference, reserved.get()),
            lo_bits: share(frame, port.saturating_sub(reserved.get())),
        }
    }
}

impl GatedRate {
    /// `states` are those of the class's gate in a cycle, whether it is open and how long; `None`
    /// where it is never shut.
    pub fn of(
        reserved: BitsPerSecond,
        port: BitsPerSecond,
        credit: CreditRange,
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
        let range = u128::from(credit.hi_bits) + u128::from(credit.lo_bits);
        let range = range * 1_000_000_000;
        for state in states[start..].iter().chain(&states[..start]).chain([&(true, Span::ZERO)]) {
            if state.0 {
                kept += (rate * shut).min(range);
                shut = 0;
            } else {
                shut += length(state);
            }
        }
        let bps = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
        Some(GatedRate {
            reserved_bps: reserved.get(),
            standard_bps: bps(rate.min(passes)),
            linux_least_bps: bps((rate * open / cycle).min(passes)),
            linux_most_bps: bps(((rate * open + kept) / cycle).min(passes)),
            open_ppm: bps(open * 1_000_000 / cycle),
        })
    }
}

impl GatedRate {
    /// Of a `cbs` in a class of `taprio`, which has one for each transmit queue, from 1 on; with
    /// the traffic class that has this queue. `None` where its gate is never shut, or nothing
    /// says which class it is.
    pub fn of_cbs(taprio: &Taprio, minor: u16, cbs: &Cbs) -> Option<(TrafficClass, GatedRate)> {
        let options = taprio.options();
        let classes = options.classes.as_ref()?;
        let queue = u32::from(minor).checked_sub(1)?;
        let has =
            |range: &QueueRange| (u32::from(range.offset.get())..range.end()).contains(&queue);
        let class = classes.queues().iter().position(has)?;
        let class = TrafficClass::new(u64::try_from(class).ok()?).ok()?;
        let open = |entry: &GateControlEntry| entry.gate_states.is_open(class);
        let states: Vec<_> =
            options.entries.iter().map(|entry| (open(entry), entry.interval)).collect();
        let bps = |kbit: i64| BitsPerSecond::new(u64::try_from(kbit).ok()?.checked_mul(1_000)?);
        let idle = i64::from(cbs.idle_slope_kbit);
        let (rate, port) = (bps(idle)?, bps(idle - i64::from(cbs.send_slope_kbit))?);
        let range = CreditRange::of_bytes(cbs.hi_credit_bytes.into(), cbs.lo_credit_bytes.into());
        Some((class, GatedRate::of(rate, port, range, &states)?))
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
        let (least, most) = (self.linux_least_bps, self.linux_most_bps);
        match (least == self.standard_bps, least == most) {
            (true, true) => f.write_str(", by IEEE 802.1Q and with Linux"),
            (false, true) => write!(f, " by IEEE 802.1Q, and {} with Linux", mbit(least)),
            (_, false) => write!(
                f,
                " by IEEE 802.1Q, and {}.{:03} to {} with Linux",
                least / 1_000_000,
                least / 1_000 % 1_000,
                mbit(most)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_standard_and_linux_differ_behind_gates() {
        let mbit = |mbit: u64| BitsPerSecond::new(mbit * 1_000_000).unwrap();
        let of = |rate, (hi, lo): (i64, i64), states: &[(bool, i64)]| {
            let states: Vec<_> =
                states.iter().map(|(open, us)| (*open, Span::from_us(*us))).collect();
            let range = CreditRange::of_bytes(hi, lo);
            let found = GatedRate::of(mbit(rate), mbit(100), range, &states);
            let kbit = |bps: u64| bps / 1_000;
            found.map(|it| {
                (kbit(it.standard_bps), kbit(it.linux_least_bps), kbit(it.linux_most_bps))
            })
        };
        // A quarter open: 20 Mbit/s by the standard, 5 with Linux that keeps no credit.
        let quarter = [(true, 250), (false, 750)];
        assert_eq!(of(20, (0, 0), &quarter), Some((20_000, 5_000, 5_000)));
        // 250 bytes more in each cycle.
        assert_eq!(of(20, (0, -250), &quarter), Some((20_000, 5_000, 7_000)));
        assert_eq!(of(20, (150, -100), &quarter), Some((20_000, 5_000, 7_000)));
        // Half open, and a shut time over the turn of the cycle is one shut time of 1 ms.
        let turned = [(false, 400), (true, 1_000), (false, 600)];
        assert_eq!(of(50, (0, 0), &turned), Some((50_000, 25_000, 25_000)));
        let straight = [(true, 1_000), (false, 1_000)];
        assert_eq!(of(50, (625, 0), &turned), of(50, (625, 0), &straight));
        assert_eq!(of(50, (625, 0), &turned), Some((50_000, 25_000, 27_500)));
        // Credit for a whole shut time gives all of it.
        assert_eq!(of(50, (100_000, 0), &turned), Some((50_000, 25_000, 50_000)));
        // No more than the gate passes.
        assert_eq!(of(50, (0, 0), &[(true, 100), (false, 900)]), Some((10_000, 5_000, 5_000)));
        assert_eq!(of(50, (0, 0), &[(false, 900)]), Some((0, 0, 0)));
        assert_eq!(of(50, (0, 0), &[(true, 100), (true, 900)]), None);
    }

    #[test]
    fn t0_rates_behind_gates_are_told_in_the_fewest_words() {
        let rate = |standard_bps, linux_least_bps, linux_most_bps| GatedRate {
            reserved_bps: 50_000_000,
            standard_bps,
            linux_least_bps,
            linux_most_bps,
            open_ppm: 500_000,
        };
        let begin = "credit of 50.000 Mbit/s behind a gate that is open for 50.0 % of the cycle \
                     carries";
        for (rate, end) in [
            (rate(0, 0, 0), "0.000 Mbit/s, by IEEE 802.1Q and with Linux"),
            (
                rate(50_000_000, 25_000_000, 25_000_000),
                "50.000 Mbit/s by IEEE 802.1Q, and 25.000 Mbit/s with Linux",
            ),
            (
                rate(50_000_000, 25_000_000, 32_800_000),
                "50.000 Mbit/s by IEEE 802.1Q, and 25.000 to 32.800 Mbit/s with Linux",
            ),
        ] {
            assert_eq!(rate.to_string(), format!("{begin} {end}"));
        }
    }

    #[test]
    fn t0_credit_of_frames_is_that_of_the_standard() {
        let mbit = |mbit: u64| BitsPerSecond::new(mbit * 1_000_000).unwrap();
        let range = CreditRange::of_frames(mbit(20), mbit(100), 1_542, 346);
        // 1542 and 346 bytes at 20 and 80 % of the port.
        assert_eq!(range, CreditRange { hi_bits: 2_468, lo_bits: 2_215 });
    }
}

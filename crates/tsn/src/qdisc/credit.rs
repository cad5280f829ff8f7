// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four numbers of the credit-based shaper from what its class needs.
//!
//! **Source**: IEEE 802.1Q-2018, 34.3.1 and Annex L: `sendSlope` is the reserved rate less the
//! rate of the port; `hiCredit` is what credit grows by while everything that may be sent before
//! the class is sent; `loCredit` is what its longest frame costs.

use thiserror::Error;
use timewire_base::{BitsPerSecond, Span, WireLen};

use super::Cbs;

/// A class that cannot be shaped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreditError {
    /// The classes reserve the whole port, or more.
    #[error("{reserved} bit/s are reserved of a port of {port}: some of it must be left")]
    PortFull {
        /// What the classes reserve together.
        reserved: u64,
        /// The rate of the port.
        port: BitsPerSecond,
    },
    /// Streams that need more than any rate that can be written.
    #[error("the streams need {bits_per_second} bit/s, which no port has")]
    Rate {
        /// What they need.
        bits_per_second: u64,
    },
    /// A credit or slope that 32 bits do not hold.
    #[error("{name} {value} does not fit the 32 bits of tc")]
    Range {
        /// Which of the four.
        name: &'static str,
        /// Its value in the unit of `tc`.
        value: i128,
    },
}

/// What a class reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedClass {
    /// The rate that it reserves.
    #[doc(alias = "idleSlope")]
    pub idle_slope: BitsPerSecond,
    /// Its longest frame.
    #[doc(alias = "maxFrameSize")]
    pub longest: WireLen,
}

/// One stream of a class: so many frames in each of the class's intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedStream {
    /// Its longest frame.
    #[doc(alias = "MaxFrameSize")]
    pub longest: WireLen,
    /// How many of them.
    #[doc(alias = "MaxIntervalFrames")]
    pub frames: u32,
}

/// The interval that the streams of class A are counted in: 125 us.
#[doc(alias = "classMeasurementInterval")]
pub const CLASS_A_INTERVAL: Span = Span::from_us(125);
/// The interval that the streams of class B are counted in: 250 us.
#[doc(alias = "classMeasurementInterval")]
pub const CLASS_B_INTERVAL: Span = Span::from_us(250);

/// The rate that these streams need, rounded up to a whole bit per second.
///
/// **Errors**: none at all, or more than a rate can be.
///
/// **Panics** when the interval is not positive.
pub fn rate_of_streams_ceil(
    streams: &[ReservedStream],
    interval: Span,
) -> Result<BitsPerSecond, CreditError> {
    let ns = u128::try_from(interval.as_ns()).unwrap_or(0);
    assert!(ns > 0, "an interval has a length");
    let bits: u128 = streams
        .iter()
        .map(|stream| u128::from(stream.longest.get()) * u128::from(stream.frames) * 8)
        .sum();
    let bits_per_second = u64::try_from((bits * 1_000_000_000).div_ceil(ns)).unwrap_or(u64::MAX);
    BitsPerSecond::new(bits_per_second).ok_or(CreditError::Rate { bits_per_second })
}

/// The four numbers of one class, exact in bits but for what a bit cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditShaper {
    idle_slope: BitsPerSecond,
    port: BitsPerSecond,
    hi_credit_bits: i128,
    lo_credit_bits: i128,
}

impl CreditShaper {
    /// Class A: nothing but one frame of a lower class, `interfering`, can be sent before it.
    ///
    /// **Errors**: a class that reserves the whole port.
    pub fn class_a(
        port: BitsPerSecond,
        class: ReservedClass,
        interfering: WireLen,
    ) -> Result<CreditShaper, CreditError> {
        check_room(port, &[class])?;
        let ahead = Ratio { num: bits(interfering), den: rate(port) };
        Ok(CreditShaper::of(port, class, ahead))
    }

    /// Class B: one frame of a lower class, `interfering`, can be sent before it, and then what
    /// class A sends from the credit that it gained meanwhile, and a last frame of class A.
    ///
    /// **Errors**: classes that reserve the whole port.
    pub fn class_b(
        port: BitsPerSecond,
        class: ReservedClass,
        class_a: ReservedClass,
        interfering: WireLen,
    ) -> Result<CreditShaper, CreditError> {
        check_room(port, &[class, class_a])?;
        // While A works its credit off, the port sends at its rate and A's credit falls at
        // `port - idle`: the frame and the burst together last `interfering / (port - idle)`.
        let burst = Ratio { num: bits(interfering), den: rate(port) - rate(class_a.idle_slope) };
        let last = Ratio { num: bits(class_a.longest), den: rate(port) };
        let ahead =
            Ratio { num: burst.num * last.den + last.num * burst.den, den: burst.den * last.den };
        Ok(CreditShaper::of(port, class, ahead))
    }

    /// `ahead` is how long the class can wait, in seconds.
    fn of(port: BitsPerSecond, class: ReservedClass, ahead: Ratio) -> CreditShaper {
        let idle = rate(class.idle_slope);
        let longest = bits(class.longest);
        CreditShaper {
            idle_slope: class.idle_slope,
            port,
            hi_credit_bits: ceil(ahead.num * idle, ahead.den),
            lo_credit_bits: -ceil(longest * (rate(port) - idle), rate(port)),
        }
    }

    /// How fast credit grows while a frame waits.
    #[doc(alias = "idleSlope")]
    pub fn idle_slope(&self) -> BitsPerSecond {
        self.idle_slope
    }

    /// How fast credit changes while a frame is sent.
    ///
    /// **Units**: bit/s, negative.
    #[doc(alias = "sendSlope")]
    pub fn send_slope_bps(&self) -> i64 {
        let slope = rate(self.idle_slope) - rate(self.port);
        i64::try_from(slope).expect("invariant: a rate is at most 10 Tbit/s")
    }

    /// The most credit, rounded up.
    ///
    /// **Units**: bits.
    #[doc(alias = "hiCredit")]
    pub fn hi_credit_bits(&self) -> i128 {
        self.hi_credit_bits
    }

    /// The least credit, rounded down.
    ///
    /// **Units**: bits, negative.
    #[doc(alias = "loCredit")]
    pub fn lo_credit_bits(&self) -> i128 {
        self.lo_credit_bits
    }

    /// In the units of `tc`: `idleslope` rounded up to kbit/s, `sendslope` the same less the port's
    /// rate (so that their difference is the rate exactly), `hicredit` up and `locredit` down to
    /// whole bytes. So the class never gets less than it reserved, and no debt is forgiven.
    ///
    /// The port's rate counts in whole kbit/s, rounded down.
    ///
    /// **Errors**: a number that 32 bits do not hold, as of ports beyond 2 Tbit/s.
    pub fn to_cbs_kbit_and_bytes(&self, offload: bool) -> Result<Cbs, CreditError> {
        let idle = ceil(rate(self.idle_slope), 1_000);
        let send = idle - rate(self.port) / 1_000;
        let hi = ceil(self.hi_credit_bits, 8);
        let lo = -ceil(-self.lo_credit_bits, 8);
        let fit = |name, value: i128| {
            i32::try_from(value).map_err(|_| CreditError::Range { name, value })
        };
        Ok(Cbs {
            idle_slope_kbit: fit("idleslope", idle)?,
            send_slope_kbit: fit("sendslope", send)?,
            hi_credit_bytes: fit("hicredit", hi)?,
            lo_credit_bytes: fit("locredit", lo)?,
            offload,
        })
    }
}

/// Both positive.
struct Ratio {
    num: i128,
    den: i128,
}

/// Towards more; for numbers that are not negative.
fn ceil(num: i128, den: i128) -> i128 {
    (num + den - 1).div_euclid(den)
}

fn bits(length: WireLen) -> i128 {
    i128::from(length.get()) * 8
}

fn rate(rate: BitsPerSecond) -> i128 {
    i128::from(rate.get())
}

fn check_room(port: BitsPerSecond, classes: &[ReservedClass]) -> Result<(), CreditError> {
    let reserved = classes.iter().map(|class| class.idle_slope.get()).sum();
    if reserved >= port.get() { Err(CreditError::PortFull { reserved, port }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use timewire_base::FrameLen;

    fn wire(bytes: u32) -> WireLen {
        FrameLen::new(bytes - 24).unwrap().wire_len()
    }

    fn mbit(mbit: u64) -> BitsPerSecond {
        BitsPerSecond::new(mbit * 1_000_000).unwrap()
    }

    fn class(rate: BitsPerSecond, longest: u32) -> ReservedClass {
        ReservedClass { idle_slope: rate, longest: wire(longest) }
    }

    #[test]
    fn t0_the_published_example_of_20_mbit_on_a_gigabit() {
        let shaper = CreditShaper::class_a(mbit(1_000), class(mbit(20), 1_500), wire(1_500));
        let cbs = shaper.unwrap().to_cbs_kbit_and_bytes(true).unwrap();
        assert_eq!(
            cbs.to_string(),
            "cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470 offload 1"
        );
    }

    #[test]
    fn t0_the_example_of_the_manual_of_tc_cbs() {
        // 8000 frames of 1542 bytes a second. The manual rounds locredit towards zero: -1389.
        let stream = ReservedStream { longest: wire(1_542), frames: 1 };
        let rate = rate_of_streams_ceil(&[stream], CLASS_A_INTERVAL).unwrap();
        assert_eq!(rate.get(), 98_688_000);
        let shaper = CreditShaper::class_a(mbit(1_000), class(rate, 1_542), wire(1_542)).unwrap();
        let cbs = shaper.to_cbs_kbit_and_bytes(false).unwrap();
        assert_eq!(
            cbs.to_string(),
            "cbs idleslope 98688 sendslope -901312 hicredit 153 locredit -1390"
        );
    }

    #[test]
    fn t0_class_b_waits_for_class_a_as_well() {
        let (a, b) = (class(mbit(25), 300), class(mbit(20), 500));
        let shaper = CreditShaper::class_b(mbit(100), b, a, wire(1_500)).unwrap();
        // 12000 bit / 75 Mbit/s = 160 us, 2400 bit / 100 Mbit/s = 24 us; 184 us at 20 Mbit/s.
        assert_eq!(shaper.hi_credit_bits(), 3_680);
        assert_eq!(shaper.lo_credit_bits(), -3_200);
        assert_eq!(shaper.send_slope_bps(), -80_000_000);
    }

    #[test]
    fn t0_a_full_port_is_refused() {
        let all = class(mbit(60), 300);
        let error = CreditShaper::class_b(mbit(100), all, all, wire(1_500)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "120000000 bit/s are reserved of a port of 100Mbit: some of it must be left"
        );
        assert!(rate_of_streams_ceil(&[], CLASS_B_INTERVAL).is_err());
    }

    proptest! {
        /// second method: class A starts to send when one frame of a lower class has been sent, and
        /// goes on while it has credit; class B waits all that time. Steps of whole frames can only
        /// be shorter than what the formula allows.
        #[test]
        fn t0_no_sequence_of_frames_exceeds_the_credit_of_class_b(
            a_mbit in 1_u64..60, b_mbit in 1_u64..30,
            a_frame in 84_u32..1_542, interfering in 84_u32..1_542,
            frames in proptest::collection::vec(84_u32..1_542, 1..60),
        ) {
            let port = mbit(100);
            let a = class(mbit(a_mbit), a_frame);
            let b = class(mbit(b_mbit), 300);
            let shaper = CreditShaper::class_b(port, b, a, wire(interfering)).unwrap();
            // Everything in bits times 100, so that Mbit/s of 100 divide without rest.
            let mut waited = i128::from(interfering) * 8 * 100;
            let mut credit = i128::from(interfering) * 8 * i128::from(a_mbit);
            for frame in frames {
                if credit < 0 {
                    break;
                }
                let sent = i128::from(frame.min(a_frame)) * 8;
                waited += sent * 100;
                credit -= sent * (100 - i128::from(a_mbit));
            }
            prop_assert!(waited * i128::from(b_mbit) <= shaper.hi_credit_bits() * 100 * 100);
        }

        #[test]
        fn t0_slopes_differ_by_the_rate_of_the_port(
            kbit in 1_u64..900_000, longest in 84_u32..2_000, interfering in 84_u32..2_000,
        ) {
            let rate = BitsPerSecond::new(kbit * 1_000 - 1).unwrap();
            let a = class(rate, longest);
            let shaper = CreditShaper::class_a(mbit(1_000), a, wire(interfering)).unwrap();
            let cbs = shaper.to_cbs_kbit_and_bytes(false).unwrap();
            prop_assert_eq!(cbs.idle_slope_kbit - cbs.send_slope_kbit, 1_000_000);
            prop_assert!(i64::from(cbs.idle_slope_kbit) * 1_000 >= 1_000);
            prop_assert!(i128::from(cbs.hi_credit_bytes) * 8 >= shaper.hi_credit_bits());
            prop_assert!(i128::from(cbs.lo_credit_bytes) * 8 <= shaper.lo_credit_bits());
            prop_assert!(-cbs.lo_credit_bytes <= i32::try_from(longest).unwrap());
        }
    }
}

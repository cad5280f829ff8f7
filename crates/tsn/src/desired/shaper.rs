// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of a credit-based shaper from a desired configuration.

use timewire_base::{BitsPerSecond, FrameLen, WireLen};

use super::build::Wrong;
use crate::qdisc::{Cbs, CreditError, CreditShaper, ReservedClass};
use timewire_model::scenario::ByteCount;
use timewire_model::scenario::host::{DesiredCredit, Integer, Reservation, Shaper, Slopes};

pub(super) fn cbs(key: &str, shaper: &Shaper, wrong: &mut Wrong) -> Option<Cbs> {
    let key = format!("{key}.credit");
    match &shaper.credit {
        DesiredCredit::Reservation(desired) => reserved(&key, desired, shaper.offload, wrong),
        DesiredCredit::Slopes(desired) => slopes(&key, desired, shaper.offload, wrong),
    }
}

fn reserved(key: &str, desired: &Reservation, offload: bool, wrong: &mut Wrong) -> Option<Cbs> {
    let frame = wire(&format!("{key}.frame"), desired.frame, wrong);
    let interference = wire(&format!("{key}.interference"), desired.interference, wrong);
    let above = match (desired.above_rate, desired.above_frame) {
        (None, None) => None,
        (Some(rate), Some(frame)) => {
            let longest = wire(&format!("{key}.above_frame"), frame, wrong)?;
            Some(ReservedClass { idle_slope: rate, longest })
        }
        (rate, _) => {
            let (given, missing) = match rate {
                Some(_) => ("above_rate", "above_frame"),
                None => ("above_frame", "above_rate"),
            };
            let message = format!("`{given}` is there without `{missing}`");
            let hint = "class B needs both of class A; class A has neither";
            wrong.add(&format!("{key}.{given}"), message, hint);
            return None;
        }
    };
    let (longest, interference) = (frame?, interference?);
    let class = ReservedClass { idle_slope: desired.rate, longest };
    let shaper = match above {
        None => CreditShaper::class_a(desired.port, class, interference),
        Some(above) => CreditShaper::class_b(desired.port, class, above, interference),
    };
    let cbs = shaper.and_then(|shaper| shaper.to_cbs_kbit_and_bytes(offload));
    let refused = |error: CreditError| {
        let hint = match error {
            CreditError::PortFull { .. } => "write the rate of the link as `port`, or reserve less",
            _ => "",
        };
        wrong.add(&format!("{key}.rate"), error.to_string(), hint);
    };
    cbs.map_err(refused).ok()
}

/// Preamble, check sequence and gap: on the link, and not counted by Linux.
const AROUND: u32 = 24;

fn wire(key: &str, bytes: ByteCount, wrong: &mut Wrong) -> Option<WireLen> {
    let bytes = bytes.get();
    let frame = bytes.checked_sub(AROUND).and_then(|frame| FrameLen::new(frame).ok());
    let wire = frame.map(FrameLen::wire_len).filter(|wire| wire.get() == bytes);
    if wire.is_none() {
        let message = format!("{bytes}B is no length of a frame on the link");
        let hint = "count header, check sequence, preamble and gap: 84B to 65559B, 1542B for a \
                    tagged frame of 1500B";
        wrong.add(key, message, hint);
    }
    wire
}

fn slopes(key: &str, desired: &Slopes, offload: bool, wrong: &mut Wrong) -> Option<Cbs> {
    let before = wrong.0.len();
    let mut kbit = |field: &str, rate: BitsPerSecond| {
        if !rate.get().is_multiple_of(1_000) {
            let message = format!("{rate} is no whole number of kbit/s, in which tc counts");
            wrong.add(&format!("{key}.{field}"), message, "round it");
        }
        i64::try_from(rate.get() / 1_000).expect("invariant: a rate is at most 10 Tbit/s")
    };
    let (idle, port) = (kbit("idle_slope", desired.idle_slope), kbit("port", desired.port));
    if desired.idle_slope >= desired.port {
        let message =
            format!("{} are not less than the port's {}", desired.idle_slope, desired.port);
        wrong.add(&format!("{key}.idle_slope"), message, "sending must cost credit: reserve less");
    }
    let Integer(hi) = desired.hi_credit;
    let Integer(lo) = desired.lo_credit;
    if hi < 0 {
        wrong.add(&format!("{key}.hi_credit"), format!("{hi} is negative"), "write 0 or more");
    }
    if lo > 0 {
        let message = format!("{lo} is positive");
        wrong.add(&format!("{key}.lo_credit"), message, "write 0 or less, such as -1470");
    }
    let mut fit = |field: &str, value: i64| {
        let fits = i32::try_from(value);
        if fits.is_err() {
            let message = format!("{value} does not fit the 32 bits of tc");
            wrong.add(&format!("{key}.{field}"), message, "");
        }
        fits.unwrap_or(0)
    };
    let cbs = Cbs {
        idle_slope_kbit: fit("idle_slope", idle),
        send_slope_kbit: fit("port", idle - port),
        hi_credit_bytes: fit("hi_credit", hi),
        lo_credit_bytes: fit("lo_credit", lo),
        offload,
    };
    (wrong.0.len() == before).then_some(cbs)
}

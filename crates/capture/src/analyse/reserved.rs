// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the real-time frames of each station kept to its reserved rate and burst.
//!
//! A frame is outside the rate when, of what was sent since any earlier moment, more was sent than
//! the rate times that time and the burst: a bucket that fills at the rate up to the burst, and of
//! which each frame takes its length on the wire. A byte of each is not counted: the kernel's `cbs`
//! counts credit in whole bytes, and forgives what is left of one
//! (linux v6.12 `net/sched/sch_cbs.c:credits_from_len`).

use timewire_base::FrameLen;

use super::{CaseInput, ReservedInput};
use crate::record::TimestampPoint;
use crate::summary::ReservedSummary;

/// **Units**: bytes of each frame.
const FORGIVEN: u32 = 1;
/// The bucket is counted in bits times this, so that a nanosecond fills it by a whole number.
const NS: i128 = 1_000_000_000;

pub(super) fn summarise(input: &CaseInput) -> Vec<ReservedSummary> {
    input.reserved.iter().map(|reserved| of_station(input, reserved)).collect()
}

fn of_station(input: &CaseInput, reserved: &ReservedInput) -> ReservedSummary {
    let mut frames = Vec::new();
    for file in &input.observers {
        let real_time = input.real_time_flows(file);
        let of_class = |flow: u16| real_time.get(usize::from(flow)).copied().unwrap_or(false);
        for record in file.records.iter().filter(|record| record.point == TimestampPoint::Segment) {
            let name = file.header.stations.get(usize::from(record.station));
            let ours = name == Some(&reserved.station) && of_class(record.flow);
            if ours && input.measures(record.at_ns) {
                frames.push((record.at_ns, record.frame_len));
            }
        }
    }
    frames.sort_unstable();
    let full = i128::from(reserved.burst_bits) * NS;
    let rate = i128::from(reserved.rate.get());
    let (mut bucket, mut last, mut outside) = (full, i64::MIN, 0);
    for &(at, length) in &frames {
        let since = i128::from(at) - i128::from(last);
        bucket = full.min(bucket + since * rate);
        last = at;
        let length = FrameLen::new(u32::from(length)).expect("invariant: 16 bits");
        let takes = i128::from(length.wire_len().get() - FORGIVEN) * 8 * NS;
        // One that came too early took nothing that was its due, and is not held against others.
        match takes <= bucket {
            true => bucket -= takes,
            false => outside += 1,
        }
    }
    ReservedSummary {
        station: reserved.station.clone(),
        rate_bps: reserved.rate.get(),
        burst_bits: reserved.burst_bits,
        frames: u64::try_from(frames.len()).expect("invariant: a length fits 64 bits"),
        outside_rate: outside,
    }
}

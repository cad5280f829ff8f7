// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the clocks of a file make windows longer by.

use timewire_base::Span;
use timewire_model::scenario::network::{NetClock, NetworkFile};

/// By how much a transmitter's rate may be off. **Units**: millionths.
///
/// **Source**: IEEE 802.3-2022, 24.1.4.2 and others: 100 ppm either way.
const TRANSMITTER_PPM: u32 = 100;
/// By how much a clock may go wrong of which the file does not say more. **Units**: millionths.
///
/// **Source**: IEEE 802.1AS-2020, B.1.1: 100 ppm either way.
const CLOCK_PPM: u32 = 100;
/// The error that remains after a correction is at most so many standard deviations, as the
/// simulator has it.
const DEVIATIONS: i64 = 3;

/// By how much the rates of transmitters and of the clocks of gates differ at most.
pub(super) fn rate_error_ppm(file: &NetworkFile) -> u32 {
    let stations = file.stations.iter().map(|it| &it.clock);
    let clocks = stations.chain(file.bridges.iter().map(|it| &it.clock));
    let worst = clocks.map(|clock| rate_ppb(clock).div_ceil(1_000)).max().unwrap_or(0);
    TRANSMITTER_PPM + CLOCK_PPM.max(u32::try_from(worst).unwrap_or(u32::MAX / 2))
}

/// How far a clock jumps at most when it is set right: what it went wrong since the last time, and
/// from one end of the error that remains to the other.
pub(super) fn correction(clock: &NetClock) -> Span {
    let Some(sync) = &clock.sync else { return Span::ZERO };
    let wrong = i128::from(sync.interval.as_ns()) * i128::from(rate_ppb(clock));
    let wrong = i64::try_from(wrong.unsigned_abs().div_ceil(1_000_000_000)).unwrap_or(i64::MAX);
    let error = sync.error.checked_mul(2 * DEVIATIONS).unwrap_or(Span::MAX);
    error.checked_add(Span::from_ns(wrong)).unwrap_or(Span::MAX)
}

/// **Units**: billionths.
fn rate_ppb(clock: &NetClock) -> u64 {
    let drift = u64::from(clock.drift.0.unsigned_abs());
    drift + u64::from(clock.wander.0.unsigned_abs())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the clocks of a file make windows longer by, and which of them are too wrong for a plan.

use timewire_base::{Span, StationName};
use timewire_model::scenario::network::{NetClock, NetSyncKind, NetworkFile};

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
    let error = sync.error.checked_mul(2 * DEVIATIONS).unwrap_or(Span::MAX);
    error.checked_add(gone(sync.interval, rate_ppb(clock))).unwrap_or(Span::MAX)
}

/// Nodes whose clocks can be further from the right time than a plan allows, which is half of
/// `sync_error`, and how far.
pub fn clocks_beyond(file: &NetworkFile) -> Vec<(&StationName, Span)> {
    let stations = file.stations.iter().map(|it| (&it.name, &it.clock));
    let all = stations.chain(file.bridges.iter().map(|it| (&it.name, &it.clock)));
    let allowed = Span::from_ns(file.sync_error.as_ns() / 2);
    let worst = all.map(|(name, clock)| (name, furthest(clock, file.duration)));
    worst.filter(|(_, wrong)| *wrong > allowed).collect()
}

/// How far a clock is from the right time at most.
fn furthest(clock: &NetClock, duration: Span) -> Span {
    let offset = clock.offset.0.max(-clock.offset.0);
    let sum = |parts: [Span; 3]| {
        parts.into_iter().try_fold(Span::ZERO, Span::checked_add).unwrap_or(Span::MAX)
    };
    let Some(sync) = &clock.sync else {
        return sum([offset, gone(duration, rate_ppb(clock)), Span::ZERO]);
    };
    let first = gone(sync.interval, rate_ppb(clock));
    let later = match sync.by {
        // Its rate is set right, too.
        NetSyncKind::Ptp => gone(sync.interval, u64::from(clock.wander.0.unsigned_abs())),
        NetSyncKind::Beacon => first,
    };
    let remains = sync.error.checked_mul(DEVIATIONS).unwrap_or(Span::MAX);
    let bias = sync.bias.max(-sync.bias);
    sum([offset, first, Span::ZERO]).max(sum([remains, bias, later]))
}

/// What a clock goes wrong in so much time, rounded up.
fn gone(time: Span, rate_ppb: u64) -> Span {
    let wrong = u128::from(time.as_ns().unsigned_abs()) * u128::from(rate_ppb);
    Span::from_ns(i64::try_from(wrong.div_ceil(1_000_000_000)).unwrap_or(i64::MAX))
}

/// **Units**: billionths.
fn rate_ppb(clock: &NetClock) -> u64 {
    let drift = u64::from(clock.drift.0.unsigned_abs());
    drift + u64::from(clock.wander.0.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use timewire_tsn::file::ParseFile;

    use super::*;

    #[test]
    fn t0_clocks_that_a_plan_does_not_allow_are_named_with_how_far() {
        let far = |sync_error: &str, clock: &str| {
            let text = format!(
                "timewire: 1\nkind: network\nname: n\nduration: 2s\nsync_error: {sync_error}\n\
                 stations: [{{ name: a, clock: {{ {clock} }} }}, b]\nbridges: [br]\n\
                 links: [[a, br], [b, br]]\nstreams:\n\
                 - {{ name: s, talker: a, listeners: b, class: 7, size: 64B, period: 1ms, \
                 scheduled: true }}\n"
            );
            let file = NetworkFile::parse("n", &text).unwrap_or_else(|it| panic!("{it}"));
            let all = clocks_beyond(&file);
            all.iter().map(|(name, far)| (name.to_string(), far.as_ns())).collect::<Vec<_>>()
        };
        let cases = [
            ("offset: -501ns", 501),
            ("drift: 1ppm", 2_000),
            ("offset: 400ns, drift: -20ppm, sync: { interval: 10ms, error: 10ns }", 600),
            ("drift: 1ppm, sync: { interval: 10ms, error: 200ns }", 600),
            ("drift: 1ppm, sync: { by: beacon, interval: 10ms, error: 200ns, bias: 300ns }", 910),
        ];
        for (clock, wrong) in cases {
            assert_eq!(far("1us", clock), [("a".to_owned(), wrong)], "{clock}");
            assert_eq!(far("4us", clock), [], "{clock}");
        }
        assert_eq!(far("1us", "offset: 500ns"), []);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a stream's times are distributed: exact for millions of them, in bins beyond; and how long
//! before their presentation times packets come, as far as the clocks of talker and listener tell.

use crate::listen::StreamSource;
use serde::{Deserialize, Serialize};
use timewire_base::wire::MacAddress;
use timewire_base::{IfName, Span};
use timewire_stats::Samples;

use crate::streams::clocks::{ClockBound, Clocks};

/// How many times are kept one by one: 32 MiB.
const MAX_MARGINS: usize = 1 << 22;

/// Times that are gathered.
#[derive(Clone, Debug)]
pub struct Times(Samples);

impl Default for Times {
    fn default() -> Times {
        Times(Samples::with_room(MAX_MARGINS))
    }
}

/// How times are distributed.
///
/// **Units**: nanoseconds. Percentiles are by nearest rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimesSummary {
    /// How many.
    pub count: u64,
    /// Smallest.
    pub min_ns: i64,
    /// 1 %.
    pub p01_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 99 %.
    pub p99_ns: i64,
    /// Largest.
    pub max_ns: i64,
    /// Bound of the relative error of percentiles; 0 up to 4 194 304 times.
    pub percentile_error: f64,
}

impl Times {
    /// Takes one.
    pub fn record(&mut self, time: Span) {
        self.0.extend([time.as_ns()]);
    }

    /// How they are distributed; `None` when there are none.
    pub fn summary(&self) -> Option<TimesSummary> {
        let (min_ns, max_ns) = self.0.range()?;
        Some(TimesSummary {
            count: self.0.count(),
            min_ns,
            p01_ns: self.0.percentile(10_000)?,
            p50_ns: self.0.percentile(500_000)?,
            p99_ns: self.0.percentile(990_000)?,
            max_ns,
            percentile_error: self.0.percentile_error(),
        })
    }
}

/// Packets that came after their presentation time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateCount {
    /// By more than the clock error.
    pub at_least: u64,
    /// These, and those that the clock error leaves open.
    pub at_most: u64,
}

/// How the packets of a stream came, by the clocks of talker and listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeliness {
    /// How far the two clocks are apart.
    pub clock: ClockBound,
    /// Packets that were late; `null` where the clock error is not known.
    pub late: Option<LateCount>,
    /// Presentation time less arrival at the kernel, of every packet with a presentation time and
    /// no duplicates; negative for those that came too late. `null` where the clock error is not
    /// known, or no packet had such a time.
    pub margin: Option<TimesSummary>,
}

/// Gathers how the packets of a stream come.
#[derive(Debug)]
pub(super) struct Margins {
    clocks: Clocks,
    clock: ClockBound,
    heard: bool,
    times: Times,
    late: LateCount,
}

impl Margins {
    /// On an interface, with what is said of the clocks.
    pub fn new(interface: &IfName, stated: Option<Span>) -> Margins {
        Margins {
            clocks: Clocks::of_frames(interface, stated),
            clock: ClockBound::stated(stated),
            heard: false,
            times: Times::default(),
            late: LateCount::default(),
        }
    }

    /// How far the clock of the one talker is from this host's.
    pub fn clock_of(&mut self, source: MacAddress) -> &ClockBound {
        if !self.heard {
            self.clock = self.clocks.of(StreamSource::Frames(source));
            self.heard = true;
        }
        &self.clock
    }

    /// Takes how long before its presentation time a packet of the one talker came.
    pub fn record(&mut self, source: MacAddress, margin: Span) {
        self.clock_of(source);
        self.times.record(margin);
        let error = self.clock.error_ns.unwrap_or_default();
        self.late.at_least += u64::from(margin.as_ns() < error.saturating_neg());
        self.late.at_most += u64::from(margin.as_ns() < error);
    }

    /// What is to be told.
    pub fn told(&self) -> Timeliness {
        let known = self.clock.error_ns.is_some();
        Timeliness {
            clock: self.clock.clone(),
            late: known.then_some(self.late),
            margin: self.times.summary().filter(|_| known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_times_are_summed_up() {
        assert_eq!(Times::default().summary(), None);
        let mut times = Times::default();
        (1..=1_000).rev().for_each(|n| times.record(Span::from_us(n - 10)));
        let told = times.summary().unwrap();
        let values = (told.count, told.min_ns, told.p01_ns, told.p50_ns, told.p99_ns, told.max_ns);
        assert_eq!(values, (1_000, -9_000, 0, 490_000, 980_000, 990_000));
        assert!(told.percentile_error < f64::EPSILON);
    }

    #[test]
    fn t0_what_the_clocks_do_not_tell_is_not_told() {
        let lo = IfName::new("lo").unwrap();
        let eth = IfName::new("nosuch0").unwrap();
        for (interface, stated, late) in [
            (&lo, None, Some((2, 2))),
            (&eth, None, None),
            (&eth, Some(Span::from_ns(10)), Some((1, 3))),
            (&eth, Some(Span::from_ms(1)), Some((0, 4))),
        ] {
            let mut margins = Margins::new(interface, stated);
            for ns in [-11, -10, 9, 10] {
                margins.record(MacAddress([2, 0, 0, 0, 0xfe, 0xfe]), Span::from_ns(ns));
            }
            let told = margins.told();
            assert_eq!(told.late.map(|late| (late.at_least, late.at_most)), late, "{told:?}");
            assert_eq!(told.margin.is_some(), late.is_some());
            assert_eq!(told.clock.reason.is_none(), late.is_some());
        }
        assert_eq!(Margins::new(&eth, None).told().margin, None);
    }
}

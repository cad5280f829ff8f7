// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A common start: when the stations were to start, when each did by its own clock, and how far
//! that is from each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timewire_base::{Instant, Span, StationName, Tai};
use timewire_stats::median;

use crate::protocol::clock::ClockBound;

/// A common start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The instant.
    pub at: Instant<Tai>,
    /// How far each station's clock was from the controller's.
    pub clocks: BTreeMap<StationName, ClockBound>,
    /// When each station started.
    #[serde(default)]
    pub stations: BTreeMap<StationName, StationStart>,
}

/// When a station started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationStart {
    /// When it was to: the common instant and what it begins after that.
    pub planned: Instant<Tai>,
    /// What became of it.
    pub actual: ActualStart,
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ActualStart {
    /// The station has not told.
    Unknown,
    /// It started at this instant of its own clock.
    Started(Instant<Tai>),
    /// The order came at this instant of its own clock, which was too late: it did not start.
    Late(Instant<Tai>),
}

impl StationStart {
    /// How long after the planned instant it started or, where it was late, the order came.
    pub fn difference(&self) -> Option<Span> {
        match self.actual {
            ActualStart::Unknown => None,
            ActualStart::Started(at) | ActualStart::Late(at) => Some(after(self.planned, at)),
        }
    }
}

/// How far apart the stations of a start were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartSkew {
    /// How many stations started.
    pub started: usize,
    /// How many got the order too late.
    pub late: usize,
    /// Of how many nothing is known.
    pub unknown: usize,
    /// Of those that started, by their own clocks; none when none did.
    pub differences: Option<Differences>,
}

/// Differences of actual from planned instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences {
    /// The smallest.
    pub min: Span,
    /// The one in the middle, of an even number the lower one.
    pub median: Span,
    /// The largest.
    pub max: Span,
    /// Largest minus smallest, each by its own clock.
    pub spread: Span,
    /// The two that are furthest apart are at most so far, with what is known of the clocks; none
    /// when a clock is not known.
    pub spread_within: Option<Span>,
}

impl Start {
    /// Plans a start of these stations, each so long after the common instant.
    pub(super) fn planned(
        at: Instant<Tai>,
        clocks: &BTreeMap<StationName, ClockBound>,
        after: impl Fn(&StationName) -> Span,
    ) -> Start {
        let planned = |name: &StationName| StationStart {
            planned: at.saturating_add(after(name)),
            actual: ActualStart::Unknown,
        };
        let stations = clocks.keys().map(|name| (name.clone(), planned(name))).collect();
        Start { at, clocks: clocks.clone(), stations }
    }

    /// How far apart the stations were.
    pub fn skew(&self) -> StartSkew {
        let of = |wanted: fn(&ActualStart) -> bool| {
            self.stations.values().filter(|station| wanted(&station.actual)).count()
        };
        StartSkew {
            started: of(|actual| matches!(actual, ActualStart::Started(_))),
            late: of(|actual| matches!(actual, ActualStart::Late(_))),
            unknown: of(|actual| matches!(actual, ActualStart::Unknown)),
            differences: self.differences(),
        }
    }

    fn differences(&self) -> Option<Differences> {
        let mut all = Vec::new();
        // The earliest and the latest that each may have been, by the controller's clock.
        let mut bounds = Vec::new();
        for (name, station) in &self.stations {
            let ActualStart::Started(at) = station.actual else { continue };
            let difference = after(station.planned, at).as_ns();
            all.push(difference);
            bounds.push(self.clocks.get(name).map(|ClockBound { offset, error }| {
                let middle = difference.saturating_sub(offset.as_ns());
                let error = error.as_ns();
                (middle.saturating_sub(error), middle.saturating_add(error))
            }));
        }
        all.sort_unstable();
        let (min, max) = (*all.first()?, *all.last()?);
        let bounds: Option<Vec<(i64, i64)>> = bounds.into_iter().collect();
        let within = bounds.and_then(|bounds| {
            let earliest = bounds.iter().map(|(earliest, _)| *earliest).min()?;
            let latest = bounds.iter().map(|(_, latest)| *latest).max()?;
            Some(Span::from_ns(latest.saturating_sub(earliest)))
        });
        Some(Differences {
            min: Span::from_ns(min),
            median: Span::from_ns(median(&all)?),
            max: Span::from_ns(max),
            spread: Span::from_ns(max.saturating_sub(min)),
            spread_within: within,
        })
    }
}

/// Instants are told by stations, whose clocks may read anything.
fn after(planned: Instant<Tai>, at: Instant<Tai>) -> Span {
    Span::from_ns(at.as_ns().saturating_sub(planned.as_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> StationName {
        StationName::new(&format!("s{number}")).unwrap()
    }

    /// Stations that were to start at 1000 ns: when they did, clocks' offset and error.
    fn start(stations: &[(ActualStart, i64, i64)]) -> Start {
        let at = Instant::from_ns(1_000);
        let bound = |(number, (_, offset, error)): (usize, &(ActualStart, i64, i64))| {
            let (offset, error) = (Span::from_ns(*offset), Span::from_ns(*error));
            (name(number), ClockBound { offset, error })
        };
        let clocks = stations.iter().enumerate().map(bound).collect();
        let mut start = Start::planned(at, &clocks, |_| Span::ZERO);
        for (number, (actual, _, _)) in stations.iter().enumerate() {
            start.stations.get_mut(&name(number)).unwrap().actual = *actual;
        }
        start
    }

    fn at(ns: i64) -> ActualStart {
        ActualStart::Started(Instant::from_ns(ns))
    }

    #[test]
    fn t0_differences_are_those_of_stations_that_started() {
        let late = ActualStart::Late(Instant::from_ns(9_000));
        let start = start(&[
            (at(1_010), 0, 5),
            (late, 0, 0),
            (at(1_003), 4, 1),
            (ActualStart::Unknown, 0, 0),
            (at(1_040), -2, 3),
            (at(1_005), 0, 0),
        ]);
        let skew = start.skew();
        assert_eq!((skew.started, skew.late, skew.unknown), (4, 1, 1));
        assert_eq!(start.stations[&name(1)].difference(), Some(Span::from_ns(8_000)));
        assert_eq!(start.stations[&name(3)].difference(), None);
        let ns = Span::from_ns;
        let expected = Differences {
            min: ns(3),
            median: ns(5),
            max: ns(40),
            spread: ns(37),
            // From 3 - 4 - 1 to 40 + 2 + 3.
            spread_within: Some(ns(47)),
        };
        assert_eq!(skew.differences, Some(expected));
    }

    #[test]
    fn t0_without_a_clock_nothing_is_promised_of_all() {
        let mut one = start(&[(at(1_001), 0, 5)]);
        one.clocks.clear();
        let found = one.skew().differences.unwrap();
        assert_eq!(
            (found.median, found.spread, found.spread_within),
            (Span::from_ns(1), Span::ZERO, None)
        );
        assert_eq!(start(&[(ActualStart::Unknown, 0, 0)]).skew().differences, None);
        let old = r#"{"at":5,"clocks":{}}"#;
        assert!(serde_json::from_str::<Start>(old).unwrap().stations.is_empty());
    }
}

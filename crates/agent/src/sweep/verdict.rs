// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of an experiment: how each trial ended, and its numbers against their limits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::protocol::RecordName;
use crate::protocol::controller::{ActualStart, Differences, End, Start, StartSkew, StationStart};
use serde::Serialize;
use serde_json::Value as Json;
use timewire_base::{Span, StationName, Verdict};
use timewire_model::scenario::phases::CheckSpec;

use super::compile::record_of_check;
use super::{Script, Trial};
use crate::controller::record_path;

/// What came of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The format.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// How many trials there are.
    pub trials: usize,
    /// How many ended, and with what; those that were not done are not here.
    pub results: Vec<TrialResult>,
}

/// What came of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct TrialResult {
    /// Its number, which is the name of its directory.
    pub number: usize,
    /// Which repetition, from 1.
    pub repeat: u64,
    /// The values of the variables.
    pub values: BTreeMap<String, String>,
    /// What failed; empty when all was done.
    pub failures: Vec<String>,
    /// When the stations started, for each order of them.
    pub starts: Vec<StartResult>,
    /// Stations that were left changed, or that could not be asked.
    pub left: BTreeMap<String, Vec<String>>,
    /// What stations could not compare with what it was before, and why: it may be changed.
    pub not_compared: BTreeMap<String, Vec<String>>,
    /// Stations that could not be asked whether their host is back.
    pub unasked: Vec<String>,
    /// The limits.
    pub checks: Vec<CheckResult>,
}

/// A common start. All times are in nanoseconds; instants are of TAI.
#[derive(Clone, Debug, Serialize)]
pub struct StartResult {
    /// The common instant.
    pub at_ns: i64,
    /// How many stations started.
    pub started: usize,
    /// How many got the order after their instant, and did not start.
    pub late: usize,
    /// How many have not told.
    pub unknown: usize,
    /// The smallest difference of an actual from its planned start.
    pub min_ns: Option<i64>,
    /// The median difference.
    pub median_ns: Option<i64>,
    /// The largest difference.
    pub max_ns: Option<i64>,
    /// Largest minus smallest difference, each by the clock of its station.
    pub spread_ns: Option<i64>,
    /// All starts are within so long, the errors of the clocks included; none when a clock is not
    /// known.
    pub spread_within_ns: Option<i64>,
    /// Each station, in the order of their names.
    pub stations: BTreeMap<String, StationStartResult>,
}

/// The start of a station.
#[derive(Clone, Debug, Serialize)]
pub struct StationStartResult {
    /// `started`, `late` or `unknown`.
    pub state: &'static str,
    /// When it was to start.
    pub planned_ns: i64,
    /// When it did, by its clock; where it was late, when the order came.
    pub actual_ns: Option<i64>,
    /// Actual minus planned.
    pub difference_ns: Option<i64>,
    /// Its clock minus the controller's.
    pub clock_offset_ns: Option<i64>,
    /// The true offset is at most this far from it.
    pub clock_error_ns: Option<i64>,
}

/// A number and its limits.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// Where it is from: station, record and place in it.
    pub of: String,
    /// The number; none when it could not be found.
    pub number: Option<f64>,
    /// At least this.
    pub at_least: Option<String>,
    /// At most this.
    pub at_most: Option<String>,
    /// Whether it is within; inconclusive without a number.
    pub verdict: Verdict,
    /// What is wrong, for people; empty when nothing is.
    pub why: String,
}

impl Summary {
    pub(super) fn of(
        script: &Script,
        directory: &Path,
        all: &[Trial],
        ends: &BTreeMap<usize, End>,
    ) -> Summary {
        let mut results: Vec<TrialResult> = all
            .iter()
            .filter_map(|trial| {
                let end = ends.get(&trial.number)?;
                Some(result(script, &directory.join(trial.name()), trial, end))
            })
            .collect();
        results.sort_by_key(|result| result.number);
        Summary {
            schema: "timewire.experiment/1".to_owned(),
            name: script.file.name.to_string(),
            trials: all.len(),
            results,
        }
    }

    /// 0: all was done, and all numbers are within their limits; 1: not all are, or it is
    /// not known of all of a host whether it is as it was; 2: something
    /// failed or was not done; 3: a host was left changed.
    pub fn exit_code(&self) -> u8 {
        let is_left = self.results.iter().any(|result| !result.left.is_empty());
        let has_failed = self.results.iter().any(|result| !result.failures.is_empty());
        let misses =
            self.results.iter().flat_map(|r| &r.checks).any(|check| check.verdict != Verdict::Pass);
        let is_unknown = self.results.iter().any(|result| !result.not_compared.is_empty());
        match () {
            () if is_left => 3,
            () if has_failed || self.results.len() < self.trials => 2,
            () if misses || is_unknown => 1,
            () => 0,
        }
    }
}

fn result(script: &Script, place: &Path, trial: &Trial, end: &End) -> TrialResult {
    let (mut left, mut not_compared) = (BTreeMap::new(), BTreeMap::new());
    let mut unasked = Vec::new();
    for (station, told) in &end.stations {
        let Some(told) = &told.restored else {
            unasked.push(station.to_string());
            continue;
        };
        for (what, of_all) in [(&told.left, &mut left), (&told.not_compared, &mut not_compared)] {
            if !what.is_empty() {
                of_all.insert(station.to_string(), what.clone());
            }
        }
    }
    // Numbers of a trial that failed say nothing.
    let is_whole = end.failures.is_empty();
    let specs = script.file.checks.iter().filter(|_| is_whole);
    let values = specs.flat_map(|spec| spec.value.all().iter().map(move |value| (spec, value)));
    let mut checks: Vec<CheckResult> =
        values.map(|(spec, value)| check(spec, value.as_str(), script, trial, place)).collect();
    if let Some(limit) = script.file.timing.start_within.filter(|_| is_whole) {
        checks.extend(end.starts.iter().map(|start| check_start(start, limit)));
    }
    TrialResult {
        number: trial.number,
        repeat: trial.repeat,
        values: trial.values.clone(),
        failures: end.failures.iter().map(ToString::to_string).collect(),
        starts: end.starts.iter().map(StartResult::of).collect(),
        left,
        not_compared,
        unasked,
        checks,
    }
}

impl StartResult {
    fn of(start: &Start) -> StartResult {
        let StartSkew { started, late, unknown, differences } = start.skew();
        let of = |what: fn(&Differences) -> Span| differences.as_ref().map(|d| what(d).as_ns());
        let station = |(name, told): (&StationName, &StationStart)| {
            let clock = start.clocks.get(name);
            let (state, actual) = match told.actual {
                ActualStart::Unknown => ("unknown", None),
                ActualStart::Started(at) => ("started", Some(at.as_ns())),
                ActualStart::Late(at) => ("late", Some(at.as_ns())),
            };
            let result = StationStartResult {
                state,
                planned_ns: told.planned.as_ns(),
                actual_ns: actual,
                difference_ns: told.difference().map(Span::as_ns),
                clock_offset_ns: clock.map(|bound| bound.offset.as_ns()),
                clock_error_ns: clock.map(|bound| bound.error.as_ns()),
            };
            (name.to_string(), result)
        };
        StartResult {
            at_ns: start.at.as_ns(),
            started,
            late,
            unknown,
            min_ns: of(|d| d.min),
            median_ns: of(|d| d.median),
            max_ns: of(|d| d.max),
            spread_ns: of(|d| d.spread),
            spread_within_ns: differences.and_then(|d| d.spread_within).map(Span::as_ns),
            stations: start.stations.iter().map(station).collect(),
        }
    }
}

/// Whether all stations started within so long of their planned instants.
fn check_start(start: &Start, limit: Span) -> CheckResult {
    let skew = start.skew();
    let furthest = skew.differences.map(|d| {
        let (min, max) = (d.min.as_ns().saturating_abs(), d.max.as_ns().saturating_abs());
        Span::from_ns(min.max(max))
    });
    let (verdict, why) = match furthest {
        _ if skew.late > 0 => {
            (Verdict::Fail, format!("{} stations got the order too late", skew.late))
        }
        Some(furthest) if furthest > limit => (Verdict::Fail, "too large".to_owned()),
        _ if skew.unknown > 0 => {
            (Verdict::Inconclusive, format!("of {} stations it is not known", skew.unknown))
        }
        _ => (Verdict::Pass, String::new()),
    };
    CheckResult {
        of: "largest difference of a start, in us".to_owned(),
        number: furthest.map(Span::as_us_f64),
        at_least: None,
        at_most: Some(limit.as_us_f64().to_string()),
        verdict,
        why,
    }
}

fn check(
    spec: &CheckSpec,
    value: &str,
    script: &Script,
    trial: &Trial,
    place: &Path,
) -> CheckResult {
    let record = record_of_check(script, &trial.values, spec);
    let record = record.map_err(|error| error.to_string());
    let shown = record.as_ref().map_or_else(|_| spec.record.to_string(), ToString::to_string);
    let numbers = record.and_then(|record| numbers(&spec.station, value, &record, place));
    let limit = |text: &timewire_model::scenario::Word| text.as_str().parse::<f64>().ok();
    let (least, most) =
        (spec.at_least.as_ref().and_then(limit), spec.at_most.as_ref().and_then(limit));
    let fail = |number: f64, why: &str| (Some(number), Verdict::Fail, why.to_owned());
    // Of several, the one that is furthest to the side that is limited.
    let (number, verdict, why) = match numbers {
        Err(why) => (None, Verdict::Inconclusive, why),
        Ok((min, _)) if least.is_some_and(|least| min < least) => fail(min, "too small"),
        Ok((_, max)) if most.is_some_and(|most| max > most) => fail(max, "too large"),
        Ok((min, max)) => {
            (Some(if most.is_some() { max } else { min }), Verdict::Pass, String::new())
        }
    };
    CheckResult {
        of: format!("{} {shown} {value}", spec.station).trim_end().to_owned(),
        number,
        at_least: spec.at_least.as_ref().map(ToString::to_string),
        at_most: spec.at_most.as_ref().map(ToString::to_string),
        verdict,
        why,
    }
}

/// The least and the largest of the numbers at a place of a record.
fn numbers(
    station: &StationName,
    value: &str,
    record: &RecordName,
    place: &Path,
) -> Result<(f64, f64), String> {
    let path = record_path(place, station, record);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    // The whole record, or its last line where it has many.
    let json: Json = serde_json::from_str(&text)
        .or_else(|_| serde_json::from_str(text.lines().last().unwrap_or_default()))
        .map_err(|error| format!("{}: no JSON: {error}", path.display()))?;
    let found = all_at(&json, value).into_iter();
    let numbers: Option<Vec<f64>> = found.map(|it| it.and_then(Json::as_f64)).collect();
    match numbers.as_deref() {
        None | Some([]) => Err(format!("no number at {value}")),
        Some([first, rest @ ..]) => {
            Ok(rest.iter().fold((*first, *first), |(min, max), it| (min.min(*it), max.max(*it))))
        }
    }
}

/// What is at a JSON pointer, of which `*` stands for every entry of a list or group; nothing where
/// an entry does not have it.
fn all_at<'j>(json: &'j Json, pointer: &str) -> Vec<Option<&'j Json>> {
    let is_whole = |at: &usize| matches!(pointer.as_bytes().get(at + 2), None | Some(b'/'));
    let star = pointer.match_indices("/*").map(|(at, _)| at).find(is_whole);
    let Some((before, after)) = star.map(|at| (&pointer[..at], &pointer[at + 2..])) else {
        return vec![json.pointer(pointer)];
    };
    let below: Vec<&Json> = match json.pointer(before) {
        Some(Json::Array(all)) => all.iter().collect(),
        Some(Json::Object(all)) => all.values().collect(),
        _ => Vec::new(),
    };
    below.into_iter().flat_map(|it| all_at(it, after)).collect()
}

#[cfg(test)]
mod tests {
    use crate::protocol::ClockBound;
    use timewire_base::{Instant, Tai};

    use super::*;

    #[test]
    fn t0_a_place_of_a_record_may_stand_for_several() {
        let json = serde_json::json!({"a": [{"n": 3}, {"n": -1}], "b": {"x": 2, "*": 5}});
        let numbers = |at: &str| {
            let found = all_at(&json, at).into_iter();
            found.map(|it| it.and_then(Json::as_i64)).collect::<Vec<_>>()
        };
        assert_eq!(numbers("/a/*/n"), [Some(3), Some(-1)]);
        assert_eq!(numbers("/a/1/n"), [Some(-1)]);
        assert_eq!(numbers("/b/*"), [Some(5), Some(2)]);
        assert_eq!(numbers("/b/*x"), [None]);
        assert_eq!(numbers("/a/*/m"), [None, None]);
        assert!(numbers("/c/*").is_empty());
    }

    #[test]
    fn t0_starts_are_told_with_their_clocks_and_held_against_a_limit() {
        let name = |text: &str| StationName::new(text).unwrap();
        let ns = |ns| Instant::<Tai>::from_ns(ns);
        let of = |actual| StationStart { planned: ns(5_000), actual };
        let clock = ClockBound { offset: Span::from_ns(-40), error: Span::from_ns(7) };
        let mut start = Start {
            at: ns(5_000),
            clocks: [(name("a"), clock), (name("b"), clock)].into(),
            stations: [
                (name("a"), of(ActualStart::Started(ns(4_100)))),
                (name("b"), of(ActualStart::Started(ns(5_600)))),
            ]
            .into(),
        };
        let told = StartResult::of(&start);
        let all = (told.min_ns, told.median_ns, told.max_ns, told.spread_ns);
        assert_eq!(all, (Some(-900), Some(-900), Some(600), Some(1_500)));
        // The same offset moves both; each may be 7 ns further out.
        assert_eq!((told.spread_within_ns, told.unknown), (Some(1_514), 0));
        let a = &told.stations["a"];
        assert_eq!((a.state, a.actual_ns, a.difference_ns), ("started", Some(4_100), Some(-900)));
        assert_eq!((a.clock_offset_ns, a.clock_error_ns), (Some(-40), Some(7)));
        // One that is early counts as one that is as much late.
        let checked = check_start(&start, Span::from_ns(899));
        assert_eq!((checked.verdict, checked.number), (Verdict::Fail, Some(0.9)));
        assert_eq!(check_start(&start, Span::from_ns(900)).verdict, Verdict::Pass);
        let _ = start.stations.insert(name("b"), of(ActualStart::Late(ns(9_000))));
        let checked = check_start(&start, Span::from_secs(1));
        assert_eq!(checked.why, "1 stations got the order too late");
        let late = StartResult::of(&start);
        assert_eq!((late.late, late.stations["b"].difference_ns), (1, Some(4_000)));
        let _ = start.stations.insert(name("b"), of(ActualStart::Unknown));
        assert_eq!(check_start(&start, Span::from_secs(1)).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn t0_the_worst_counts() {
        let result = TrialResult {
            number: 1,
            repeat: 1,
            values: BTreeMap::new(),
            failures: Vec::new(),
            starts: Vec::new(),
            left: BTreeMap::new(),
            not_compared: BTreeMap::new(),
            unasked: Vec::new(),
            checks: Vec::new(),
        };
        let of = |results: Vec<TrialResult>| Summary {
            schema: String::new(),
            name: String::new(),
            trials: 1,
            results,
        };
        assert_eq!(of(vec![result.clone()]).exit_code(), 0);
        assert_eq!(of(Vec::new()).exit_code(), 2);
        let mut bad = result.clone();
        bad.checks.push(CheckResult {
            of: String::new(),
            number: Some(2.0),
            at_least: None,
            at_most: Some("1".to_owned()),
            verdict: Verdict::Fail,
            why: "too large".to_owned(),
        });
        assert_eq!(of(vec![bad.clone()]).exit_code(), 1);
        bad.failures.push("run: s: `x` failed".to_owned());
        assert_eq!(of(vec![bad.clone()]).exit_code(), 2);
        bad.left.insert("s".to_owned(), vec!["sysctl".to_owned()]);
        assert_eq!(of(vec![bad]).exit_code(), 3);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of an experiment: how each performance ended, and its numbers against their limits.
//!
//! Not here: what is in the records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use timewire_conduct::RecordName;
use timewire_conduct::controller::End;
use timewire_sched::scenario::experiment_file::CheckWish;

use super::compile::record_of_check;
use super::{Performance, Script};
use crate::conductor::record_path;

/// What came of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The format.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// How many performances there are.
    pub performances: usize,
    /// How many ended, and with what; those that were not done are not here.
    pub results: Vec<PerformanceResult>,
}

/// What came of a performance.
#[derive(Clone, Debug, Serialize)]
pub struct PerformanceResult {
    /// Its number, which is the name of its directory.
    pub number: usize,
    /// Which repetition, from 1.
    pub repeat: u64,
    /// The values of the variables.
    pub values: BTreeMap<String, String>,
    /// What failed; empty when all was done.
    pub failures: Vec<String>,
    /// Stations that were left changed, or that could not be asked.
    pub left: BTreeMap<String, Vec<String>>,
    /// Stations that could not be asked whether their host is back.
    pub unasked: Vec<String>,
    /// The limits.
    pub checks: Vec<CheckResult>,
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
    /// Whether it is within.
    pub ok: bool,
    /// What is wrong, for people; empty when nothing is.
    pub why: String,
}

impl Summary {
    pub(super) fn of(
        script: &Script,
        directory: &Path,
        all: &[Performance],
        ends: &BTreeMap<usize, End>,
    ) -> Summary {
        let mut results: Vec<PerformanceResult> = all
            .iter()
            .filter_map(|performance| {
                let end = ends.get(&performance.number)?;
                Some(result(script, &directory.join(performance.name()), performance, end))
            })
            .collect();
        results.sort_by_key(|result| result.number);
        Summary {
            schema: "timewire.experiment/1".to_owned(),
            name: script.file.name.to_string(),
            performances: all.len(),
            results,
        }
    }

    /// 0: all was done, and all numbers are within their limits; 1: not all are; 2: something
    /// failed or was not done; 3: a host was left changed.
    pub fn exit_code(&self) -> u8 {
        let is_left = self.results.iter().any(|result| !result.left.is_empty());
        let has_failed = self.results.iter().any(|result| !result.failures.is_empty());
        let misses = self.results.iter().flat_map(|r| &r.checks).any(|check| !check.ok);
        match () {
            () if is_left => 3,
            () if has_failed || self.results.len() < self.performances => 2,
            () if misses => 1,
            () => 0,
        }
    }
}

fn result(
    script: &Script,
    place: &Path,
    performance: &Performance,
    end: &End,
) -> PerformanceResult {
    let mut left = BTreeMap::new();
    let mut unasked = Vec::new();
    for (station, told) in &end.stations {
        match &told.left {
            None => unasked.push(station.to_string()),
            Some(some) if !some.is_empty() => drop(left.insert(station.to_string(), some.clone())),
            Some(_) => {}
        }
    }
    // Numbers of a performance that failed say nothing.
    let wishes = script.file.checks.iter().filter(|_| end.failures.is_empty());
    PerformanceResult {
        number: performance.number,
        repeat: performance.repeat,
        values: performance.values.clone(),
        failures: end.failures.iter().map(ToString::to_string).collect(),
        left,
        unasked,
        checks: wishes.map(|wish| check(wish, script, performance, place)).collect(),
    }
}

fn check(
    wish: &CheckWish,
    script: &Script,
    performance: &Performance,
    place: &Path,
) -> CheckResult {
    let record = record_of_check(script, &performance.values, wish);
    let record = record.map_err(|error| error.to_string());
    let shown = record.as_ref().map_or_else(|_| wish.record.to_string(), ToString::to_string);
    let number = record.and_then(|record| number(wish, &record, place));
    let limit = |text: &timewire_sched::scenario::Word| text.as_str().parse::<f64>().ok();
    let (least, most) =
        (wish.at_least.as_ref().and_then(limit), wish.at_most.as_ref().and_then(limit));
    let why = match &number {
        Err(why) => why.clone(),
        Ok(number) if least.is_some_and(|least| *number < least) => "too small".to_owned(),
        Ok(number) if most.is_some_and(|most| *number > most) => "too large".to_owned(),
        Ok(_) => String::new(),
    };
    CheckResult {
        of: format!("{} {shown} {}", wish.station, wish.value),
        number: number.ok(),
        at_least: wish.at_least.as_ref().map(ToString::to_string),
        at_most: wish.at_most.as_ref().map(ToString::to_string),
        ok: why.is_empty(),
        why,
    }
}

fn number(wish: &CheckWish, record: &RecordName, place: &Path) -> Result<f64, String> {
    let path = record_path(place, &wish.station, record);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    // The whole record, or its last line where it has many.
    let json: Json = serde_json::from_str(&text)
        .or_else(|_| serde_json::from_str(text.lines().last().unwrap_or_default()))
        .map_err(|error| format!("{}: no JSON: {error}", path.display()))?;
    let value = json.pointer(wish.value.as_str());
    value.and_then(Json::as_f64).ok_or_else(|| format!("no number at {}", wish.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_worst_counts() {
        let result = PerformanceResult {
            number: 1,
            repeat: 1,
            values: BTreeMap::new(),
            failures: Vec::new(),
            left: BTreeMap::new(),
            unasked: Vec::new(),
            checks: Vec::new(),
        };
        let of = |results: Vec<PerformanceResult>| Summary {
            schema: String::new(),
            name: String::new(),
            performances: 1,
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
            ok: false,
            why: "too large".to_owned(),
        });
        assert_eq!(of(vec![bad.clone()]).exit_code(), 1);
        bad.failures.push("run: s: `x` failed".to_owned());
        assert_eq!(of(vec![bad.clone()]).exit_code(), 2);
        bad.left.insert("s".to_owned(), vec!["sysctl".to_owned()]);
        assert_eq!(of(vec![bad]).exit_code(), 3);
    }
}

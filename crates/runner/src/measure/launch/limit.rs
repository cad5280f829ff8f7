// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits that a user sets for figures of a measurement, and what they came to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use timewire_base::{Span, Verdict, parse_span};
use timewire_stats::Statistics;

use super::result::Errors;
use crate::RunnerError;

/// At most so much, or, of a smallest value, at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The figure.
    pub figure: String,
    /// What it may be.
    pub bound: Bound,
}

/// What a figure may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A time.
    Time(Span),
    /// A number of frames.
    Count(u64),
}

impl Bound {
    fn value(self) -> i64 {
        match self {
            Bound::Time(span) => span.as_ns(),
            Bound::Count(count) => i64::try_from(count).unwrap_or(i64::MAX),
        }
    }
}

/// `FIGURE=VALUE`: a time with its unit, or a number of frames.
impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let Some((figure, value)) = text.split_once('=') else {
            return Err(format!("`{text}` is no FIGURE=VALUE, such as pk-pk=2us or missed=0"));
        };
        let bound = match value.parse() {
            Ok(count) => Bound::Count(count),
            Err(_) => Bound::Time(parse_span(value).map_err(|error| error.to_string())?),
        };
        Ok(Limit { figure: figure.to_owned(), bound })
    }
}

/// A limit held against one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// The column.
    pub of: String,
    /// The figure.
    pub figure: String,
    /// What it may be. **Units**: nanoseconds or frames.
    pub bound: i64,
    /// What it is, fractions rounded up; `None` when nothing was measured, which is inconclusive.
    pub found: Option<i64>,
    /// What it came to.
    pub verdict: Verdict,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found.map_or("not measured".to_owned(), |found| found.to_string());
        let way = if is_smallest(&self.figure) { "at least" } else { "at most" };
        let verdict = self.verdict.label();
        let Checked { of, figure, bound, .. } = self;
        write!(f, "{verdict} limit: {figure} of {of} is {found}, {way} {bound} allowed")
    }
}

fn is_smallest(figure: &str) -> bool {
    figure == "min" || figure.ends_with("-min")
}

/// The names of figures: times first, then numbers of frames.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) times: Vec<String>,
    pub(super) counts: Vec<String>,
}

impl Names {
    /// **Errors**: a figure that is not there, or a bound that is not of its kind.
    pub(super) fn check(&self, limits: &[Limit]) -> Result<(), RunnerError> {
        for Limit { figure, bound } in limits {
            let (is_time, is_count) = (self.times.contains(figure), self.counts.contains(figure));
            let why = match bound {
                Bound::Time(_) if is_time => continue,
                Bound::Count(_) if is_count => continue,
                Bound::Time(_) if is_count => {
                    format!("the limit of {figure} is a number of frames, such as {figure}=0")
                }
                Bound::Count(_) if is_time => {
                    format!("the limit of {figure} is a time, such as {figure}=2us")
                }
                _ => format!(
                    "there is no figure `{figure}`: times are {}; numbers of frames are {}",
                    self.times.join(", "),
                    self.counts.join(", ")
                ),
            };
            return Err(RunnerError::Invalid(why));
        }
        Ok(())
    }
}

/// Holds limits against the figures of a column; what is not among them was not measured.
pub(super) fn check(limits: &[Limit], of: &str, figures: &[(String, i64)]) -> Vec<Checked> {
    let one = |limit: &Limit| {
        let found = figures.iter().find(|(name, _)| *name == limit.figure).map(|(_, value)| *value);
        let bound = limit.bound.value();
        let is_within = |found: i64| match is_smallest(&limit.figure) {
            true => found >= bound,
            false => found <= bound,
        };
        let figure = limit.figure.clone();
        let verdict = found.map(is_within).into();
        Checked { of: of.to_owned(), figure, bound, found, verdict }
    };
    limits.iter().map(one).collect()
}

/// The figures of a distribution, and what they are called in limits.
pub(super) const FIGURES: [&str; 9] =
    ["min", "max", "pk-pk", "mean", "stddev", "p50", "p90", "p99", "p99.9"];

/// In the order of [`FIGURES`].
pub(super) fn figures(errors: &Errors) -> [i64; 9] {
    let Statistics { min_ns, max_ns, p50_ns, p90_ns, p99_ns, p999_ns, .. } = **errors;
    let (mean, stddev) = (up(errors.mean_ns), up(errors.stddev_ns));
    [min_ns, max_ns, errors.peak_to_peak_ns, mean, stddev, p50_ns, p90_ns, p99_ns, p999_ns]
}

#[expect(clippy::cast_possible_truncation, reason = "a time in nanoseconds: far below 2^63")]
fn up(ns: f64) -> i64 {
    ns.ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap()
    }

    #[test]
    fn t0_limits_pass_up_to_their_bound_and_are_inconclusive_without_a_figure() {
        let limits = ["max=2us", "max=2001ns", "min=-3us", "min=-2us", "missed=0", "p99=1s"];
        let limits: Vec<Limit> = limits.iter().map(|text| limit(text)).collect();
        let figures = [("max", 2_001), ("min", -2_500), ("missed", 0)];
        let figures: Vec<_> =
            figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let checked = check(&limits, "etf", &figures);
        let verdicts: Vec<Verdict> = checked.iter().map(|one| one.verdict).collect();
        let known = [false, true, true, false, true].map(|is| Some(is).into());
        assert_eq!(verdicts, [&known[..], &[Verdict::Inconclusive]].concat());
        let told = check(&limits[..1], "etf @ 1ms", &figures)[0].to_string();
        assert_eq!(told, "FAIL limit: max of etf @ 1ms is 2001, at most 2000 allowed");
    }

    #[test]
    fn t0_figures_that_are_not_there_are_named() {
        let names = Names { times: vec!["max".to_owned()], counts: vec!["lost".to_owned()] };
        let why = |text: &str| names.check(&[limit(text)]).unwrap_err().to_string();
        assert!(names.check(&[limit("max=1us"), limit("lost=3")]).is_ok());
        assert!(why("max=3").contains("max=2us") && why("lost=1us").contains("lost=0"));
        assert!(why("p98=1us").contains("times are max; numbers of frames are lost"));
        assert!("max".parse::<Limit>().is_err() && "max=3 potatoes".parse::<Limit>().is_err());
    }

    #[test]
    fn t0_means_are_rounded_up() {
        let errors = Errors::of(vec![1, 2, 2]).unwrap();
        assert_eq!(figures(&errors)[..6], [1, 2, 1, 2, 1, 2]);
    }
}

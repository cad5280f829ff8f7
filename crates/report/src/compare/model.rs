// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a comparison of two runs says: the value behind its table, its page and its JSON.

use serde::Serialize;

use super::interval::Interval;

/// The `schema` field of a comparison this version writes.
pub const COMPARISON_SCHEMA: &str = "timewire.comparison/1";

/// What is asked of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Times whose ratio is within 1 / (1 + this) and 1 + this are the same. **Units**: share, 0 to
    /// 1.
    pub tolerance: f64,
    /// Shares that differ by at most this are the same. **Units**: share of all, 0 to 1.
    pub share_tolerance: f64,
    /// How sure all verdicts together are. **Units**: probability, 0 to 1.
    pub confidence: f64,
    /// What the resamples follow from.
    pub seed: u64,
}

impl Default for Rules {
    /// 5 % of times, a thousandth of all messages, 99 % sure.
    fn default() -> Rules {
        Rules { tolerance: 0.05, share_tolerance: 0.001, confidence: 0.99, seed: 1 }
    }
}

/// Two runs side by side.
///
/// **Units**: times are nanoseconds, shares 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Format and version, [`COMPARISON_SCHEMA`].
    pub schema: &'static str,
    /// The run that the other is held against.
    pub a: Run,
    /// The run that is judged.
    pub b: Run,
    /// What was asked.
    pub rules: Rules,
    /// Intervals in the whole comparison: each is as sure as makes all of them together as sure as
    /// asked (Bonferroni).
    pub intervals: usize,
    /// Resamples for each interval of a time.
    pub resamples: usize,
    /// Facts that the runs stood on and that are not the same.
    pub environment: Vec<Changed>,
    /// Settings of the hosts before the runs that are not the same.
    pub hosts: Hosts,
    /// Scenarios of the same name with different text.
    pub scenarios: Vec<ScenarioChange>,
    /// Cases that only A has, `SCENARIO/CASE/LOAD`.
    pub only_in_a: Vec<String>,
    /// Cases that only B has.
    pub only_in_b: Vec<String>,
    /// What both have, in the order of A.
    pub cases: Vec<CaseComparison>,
    /// How many metrics came out how.
    pub counts: Counts,
    /// Over all metrics.
    pub verdict: Overall,
}

/// One of the two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Where it is, as it was named.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// The program that ran it.
    pub tool: String,
    /// When it started, nanoseconds since 1970 UTC.
    pub started_utc_ns: i64,
    /// Whether it came to its end.
    pub complete: bool,
}

/// Something that is not the same in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// What it is about.
    pub area: String,
    /// What was looked at.
    pub name: String,
    /// In A; `None` where it is only in B.
    pub a: Option<String>,
    /// In B; `None` where it is only in A.
    pub b: Option<String>,
}

/// What snapshots of the hosts say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// Snapshots that both runs have, and that were held against each other.
    pub compared: usize,
    /// What is not the same.
    pub changes: Vec<Changed>,
    /// Why a snapshot could not be read.
    pub unreadable: Vec<String>,
}

/// The same scenario with another text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScenarioChange {
    /// Its name.
    pub scenario: String,
    /// The lines that only A has, after `-`, and that only B has, after `+`.
    pub lines: Vec<String>,
}

/// One case under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseComparison {
    /// `SCENARIO/CASE/LOAD`.
    pub id: String,
    /// Title of the case and its load, for people.
    pub title: String,
    /// Streams that only one of the runs has.
    pub not_in_both: Vec<String>,
    /// What is missing of the records of one of the runs; shares are inconclusive then.
    pub incomplete: Vec<String>,
    /// Everything that was compared.
    pub metrics: Vec<MetricComparison>,
}

/// One metric of one stream, or of the segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The stream; `None` for frames on the segment.
    pub stream: Option<String>,
    /// Its name, as a limit in a scenario has it.
    pub metric: String,
    /// Whether it is a time or a share.
    pub kind: Kind,
    /// In A.
    pub a: Figure,
    /// In B.
    pub b: Figure,
    /// B over A, for times.
    pub ratio: Option<Interval>,
    /// B less A.
    pub difference: Option<Interval>,
    /// How B came out.
    pub verdict: Verdict,
    /// Why, where the interval does not say it; else empty.
    pub why: String,
}

/// What kind of number a metric is. Of both, less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nanoseconds.
    Time,
    /// A share of all, 0 to 1.
    Share,
}

/// A metric of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The value; `None` where nothing was recorded.
    pub value: Option<f64>,
    /// Of how many.
    pub count: u64,
    /// Values that a resample kept together; of a share, absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
}

/// How a metric of B is against that of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Less by more than the tolerance, with all of the interval.
    Better,
    /// More by more than the tolerance, with all of the interval.
    Worse,
    /// Within the tolerance with all of the interval.
    Same,
    /// None of these can be said.
    Inconclusive,
    /// No verdict: it has no interval.
    Shown,
}

/// How many metrics came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// See [`Verdict::Better`].
    pub better: usize,
    /// See [`Verdict::Worse`].
    pub worse: usize,
    /// See [`Verdict::Same`].
    pub same: usize,
    /// See [`Verdict::Inconclusive`].
    pub inconclusive: usize,
}

/// How run B is against run A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    /// Something is worse.
    Worse,
    /// Nothing is worse, something is better.
    Better,
    /// Everything is the same.
    Same,
    /// Nothing is worse or better, and not everything is known to be the same.
    Inconclusive,
}

impl Counts {
    /// Of all of them.
    pub fn overall(self) -> Overall {
        match self {
            Counts { worse: 1.., .. } => Overall::Worse,
            Counts { better: 1.., .. } => Overall::Better,
            Counts { inconclusive: 0, .. } => Overall::Same,
            _ => Overall::Inconclusive,
        }
    }

    pub(super) fn take(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Better => self.better += 1,
            Verdict::Worse => self.worse += 1,
            Verdict::Same => self.same += 1,
            Verdict::Inconclusive => self.inconclusive += 1,
            Verdict::Shown => {}
        }
    }
}

impl Verdict {
    /// In a word or two.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Shown => "shown",
        }
    }
}

impl Overall {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Overall::Worse => "WORSE",
            Overall::Better => "BETTER",
            Overall::Same => "SAME",
            Overall::Inconclusive => "INCONCLUSIVE",
        }
    }
}

impl Comparison {
    /// As JSON text: indented, keys in a fixed order, a newline at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("invariant: text, numbers and lists are always JSON");
        text.push('\n');
        text
    }
}

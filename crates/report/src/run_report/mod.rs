// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What any run came to that is no experiment: a talker, a listener, a measurement, a sweep. The
//! verdict and why, then tables and figures of whatever it measured. One value gives the page, the
//! text for a merge request and the JSON.
//!
//! Not here: experiments and simulations, which have cases (`page`); reading a directory
//! (`timewire-cli`).

mod markdown;
mod page;

use std::collections::BTreeMap;

use serde::Serialize;
use timewire_base::{Span, Verdict};
use timewire_capture::series::TimeSeries;
use timewire_capture::summary::{Fact, Finding};
use timewire_capture::sync::ClockSeries;
use timewire_stats::{Bins, Distribution, HistogramBin, HistogramSummary, median};

use crate::group::passes;

pub use markdown::{of_run_report as run_report_markdown, of_summary as summary_markdown};
pub use page::html as run_report_html;

/// The `schema` field.
pub const RUN_REPORT_SCHEMA: &str = "timewire.report/1";

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Format and version.
    pub schema: &'static str,
    /// Which kind of run: `talk`, `listen`, `measure launch` and so on.
    pub kind: &'static str,
    /// For people.
    pub title: String,
    /// Over all limits, fail also when something failed; `None` without limits and failures.
    pub verdict: Option<Verdict>,
    /// Why, in one sentence.
    pub why: String,
    /// Whether it came to its end.
    pub complete: bool,
    /// What it was, name and value.
    pub facts: Vec<(String, String)>,
    /// Limits, and what else is to be said.
    pub findings: Vec<Finding>,
    /// What was measured.
    pub sections: Vec<Section>,
    /// What it stood on.
    pub environment: Vec<Fact>,
}

impl RunReport {
    /// Fail when a limit fails or `failed` says so, else inconclusive when a limit is, else pass.
    pub fn judge(&mut self, failed: Option<String>) {
        let verdicts: Vec<Verdict> = self.findings.iter().filter_map(|it| it.verdict).collect();
        let limits = verdicts.len();
        let passing = verdicts.iter().filter(|one| **one == Verdict::Pass).count();
        let over = Verdict::over(verdicts);
        let decides = |it: &&Finding| it.verdict == Some(over) && over != Verdict::Pass;
        (self.verdict, self.why) = match (self.findings.iter().find(decides), failed) {
            (_, Some(why)) if over != Verdict::Fail => (Some(Verdict::Fail), why),
            (Some(first), _) => {
                let said = if first.measured.is_empty() { &first.note } else { &first.measured };
                let why = format!("{}; {}: {said}.", passes(passing, limits), first.limit);
                (Some(over), why)
            }
            (None, _) if limits == 0 => (None, "No limits were set.".to_owned()),
            (None, _) => (Some(Verdict::Pass), passes(passing, limits) + "."),
        };
    }

    /// As JSON, with its end of line.
    ///
    /// **Errors**: never, of numbers and text.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// A part of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// A sentence below it; may be empty.
    pub intro: String,
    /// Tables.
    pub tables: Vec<Table>,
    /// Drawings; they have no place in JSON.
    #[serde(skip)]
    pub drawings: Vec<Drawing>,
}

/// A table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows; the first cell names the row.
    pub rows: Vec<Vec<String>>,
    /// Columns from the left whose cells are words.
    pub words: usize,
}

impl Table {
    /// Without rows.
    pub fn new(caption: &str, words: usize, head: &[&str]) -> Table {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Table { caption: caption.to_owned(), head, rows: Vec::new(), words }
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Histograms, the tail and the percentile curve of the same values.
    Spreads {
        /// What the values are.
        what: String,
        /// One line each.
        spreads: Vec<Spread>,
    },
    /// Values over time.
    TimeSeries {
        /// What the values are.
        what: String,
        /// Whose they are.
        name: String,
        /// The values.
        series: Box<TimeSeries>,
    },
    /// Values by the numbers of their messages: instants are numbers.
    Numbered {
        /// What the values are.
        what: String,
        /// Whose they are.
        name: String,
        /// The values.
        series: Box<TimeSeries>,
    },
    /// Clocks over time.
    Clock(ClockSeries),
    /// Where in a cycle something was.
    Phase {
        /// What was there.
        what: String,
        /// Length of the cycle. **Units**: nanoseconds.
        cycle_ns: i64,
        /// One lane each.
        lanes: Vec<Lane>,
    },
    /// Numbers without a unit, each for itself.
    Numbers {
        /// What the numbers are.
        what: String,
        /// They should be at least and at most this.
        limits: [Option<f64>; 2],
        /// One row each.
        rows: Vec<NumberRow>,
    },
}

/// A row of numbers.
#[derive(Clone, Debug, Default)]
pub struct NumberRow {
    /// Its name.
    pub name: String,
    /// The numbers in any order.
    pub values: Vec<f64>,
}

impl NumberRow {
    /// The one in the middle, of an even count the lower one; `None` of nothing.
    pub fn median(&self) -> Option<f64> {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        median(&values)
    }
}

/// A lane of a cycle.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Width of a bin. **Units**: nanoseconds.
    pub bin_ns: i64,
    /// From the begin of the cycle.
    pub counts: Vec<u64>,
    /// When it may have something: from and to. **Units**: nanoseconds in the cycle.
    pub windows: Vec<(i64, i64)>,
}

/// How values are spread.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Whose values.
    pub name: String,
    /// The numbers; its own histogram is not drawn.
    pub numbers: Distribution,
    /// Bins in ascending order.
    pub bins: Vec<HistogramBin>,
    /// Values beyond the last bin.
    pub beyond: u64,
    /// Whether bins are of equal ratios.
    pub log: bool,
}

/// Bins of equal width that are made of values.
const BINS: i64 = 140;

impl Spread {
    /// Of values in nanoseconds, which may be below zero; `None` of nothing.
    pub fn of(name: &str, values: Vec<i64>) -> Option<Spread> {
        let none = Bins::covering(Span::ZERO, Span::from_ns(1));
        let numbers = Distribution::of(values.clone(), none)?;
        let (from, to) = (numbers.min_ns, numbers.p999_ns);
        let width = ((to.saturating_sub(from)) / BINS).saturating_add(1);
        let mut counts = vec![0_u64; usize::try_from(BINS).unwrap_or(0)];
        let mut beyond = 0;
        for value in values {
            let at = usize::try_from(value.saturating_sub(from) / width).unwrap_or(usize::MAX);
            match counts.get_mut(at) {
                Some(count) => *count += 1,
                None => beyond += 1,
            }
        }
        let starts = (0..).map(|at: i64| from.saturating_add(at.saturating_mul(width)));
        let bins = starts.zip(counts).map(|(from_ns, count)| {
            let to_ns = from_ns.saturating_add(width);
            HistogramBin { from_ns, to_ns, count }
        });
        let bins = bins.filter(|bin| bin.count > 0).collect();
        Some(Spread { name: name.to_owned(), numbers, bins, beyond, log: false })
    }

    /// Of what is left of values that were counted in bins; `None` of nothing.
    pub fn of_counted(name: &str, counted: &HistogramSummary) -> Option<Spread> {
        if counted.count == 0 || counted.bins.is_empty() {
            return None;
        }
        let within = |at: i64| at.min(counted.max_ns).max(counted.min_ns);
        let cdf = counted.cumulative().map(|(share, at)| (share, within(at))).collect();
        let none = Bins::covering(Span::ZERO, Span::from_ns(1));
        let histogram = Distribution::of(vec![counted.min_ns], none)?.histogram;
        let numbers = Distribution {
            statistics: counted.statistics,
            peak_to_peak_ns: counted.peak_to_peak_ns(),
            histogram,
            cdf,
        };
        let bins = counted.bins.clone();
        Some(Spread { name: name.to_owned(), numbers, bins, beyond: 0, log: true })
    }

    /// Its numbers as a row of a table with [`SPREAD_HEAD`]. **Units**: microseconds.
    pub fn row(&self) -> Vec<String> {
        let n = &self.numbers;
        let times = [n.min_ns, n.p50_ns, n.p90_ns, n.p99_ns, n.p999_ns, n.max_ns];
        let mut row = vec![self.name.clone(), n.count.to_string()];
        row.extend(times.map(crate::text::us_exact));
        row.push(crate::text::us_exact(n.peak_to_peak_ns));
        row.extend([n.mean_ns, n.stddev_ns].map(|ns| format!("{:.3}", ns / 1e3)));
        row
    }
}

/// Columns of [`Spread::row`].
pub const SPREAD_HEAD: [&str; 11] =
    ["", "n", "min", "p50", "p90", "p99", "p99.9", "max", "pk-pk", "mean", "stddev"];

/// So many limits with the same words that pass are shown one by one.
const ONE_BY_ONE: usize = 3;

/// The findings to be shown: where a limit passes many times, a single one for all of them, which
/// says how many they are, and of numbers from where to where they go.
fn folded(findings: &[Finding]) -> Vec<Finding> {
    let mut shown: Vec<Finding> = Vec::new();
    let mut folds: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    let can_be = |it: &Finding| it.verdict == Some(Verdict::Pass) && it.note.is_empty();
    for finding in findings.iter().filter(|it| can_be(it)) {
        folds.entry(&finding.limit).or_default().push(finding);
    }
    folds.retain(|_, fold| fold.len() > ONE_BY_ONE);
    for finding in findings {
        match folds.get(finding.limit.as_str()).filter(|_| can_be(finding)) {
            None => shown.push(finding.clone()),
            // The place of the first is that of all.
            Some(fold) if std::ptr::eq(fold[0], finding) => shown.push(fold_of(fold)),
            Some(_) => {}
        }
    }
    shown
}

/// One for several, of which there is one at least.
fn fold_of(all: &[&Finding]) -> Finding {
    let (first, last) = (all[0], all[all.len() - 1]);
    let number =
        |it: &&Finding| it.measured.parse::<f64>().ok().map(|ok| (ok, it.measured.clone()));
    let mut numbers: Vec<_> = all.iter().filter_map(number).collect();
    numbers.sort_by(|one, two| one.0.total_cmp(&two.0));
    let measured = match &numbers[..] {
        [(_, least), .., (_, most)] if numbers.len() == all.len() => format!("{least} to {most}"),
        _ if all.iter().all(|it| it.measured == first.measured) => first.measured.clone(),
        _ => "each otherwise".to_owned(),
    };
    let id = format!("{} of them: {} to {}", all.len(), first.id, last.id);
    Finding { id, measured, ..first.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Option<Verdict>) -> Finding {
        Finding {
            id: "a".to_owned(),
            verdict,
            limit: "p99 below 5us".to_owned(),
            measured: "7us".to_owned(),
            note: String::new(),
        }
    }

    #[test]
    fn t0_limits_that_pass_many_times_are_shown_as_one() {
        let of = |id: u32, verdict, measured: &str| Finding {
            id: format!("{id:04}"),
            measured: measured.to_owned(),
            ..finding(verdict)
        };
        let (pass, fail) = (Some(Verdict::Pass), Some(Verdict::Fail));
        let mut all: Vec<_> = [30, 4, 100].map(|it| of(it, pass, &it.to_string())).into();
        assert_eq!(folded(&all), all, "three are few");
        all.insert(1, of(7, fail, "7"));
        all.push(of(8, pass, "8.5"));
        all.push(Finding { note: "why".to_owned(), ..of(9, pass, "9") });
        let shown = folded(&all);
        let said: Vec<_> = shown.iter().map(|it| [it.id.as_str(), &it.measured]).collect();
        let whole = ["4 of them: 0030 to 0008", "4 to 100"];
        assert_eq!(said, [whole, ["0007", "7"], ["0009", "9"]]);
        assert!(shown[0].verdict == pass && shown[0].limit == all[0].limit);
        // What is no number is the same or is not told.
        let others = |last| folded(&["x", "x", "x", last].map(|it| of(1, pass, it)))[0].clone();
        assert_eq!((&*others("x").measured, &*others("5").measured), ("x", "each otherwise"));
    }

    fn report(findings: Vec<Finding>) -> RunReport {
        RunReport {
            schema: RUN_REPORT_SCHEMA,
            kind: "talk",
            title: "a talker".to_owned(),
            verdict: None,
            why: String::new(),
            complete: true,
            facts: Vec::new(),
            findings,
            sections: Vec::new(),
            environment: Vec::new(),
        }
    }

    #[test]
    fn t0_the_verdict_follows_from_limits_and_failures() {
        let of = |findings, failed: Option<&str>| {
            let mut report = report(findings);
            report.judge(failed.map(str::to_owned));
            (report.verdict, report.why)
        };
        assert_eq!(of(vec![], None), (None, "No limits were set.".to_owned()));
        assert_eq!(of(vec![finding(None)], None).0, None);
        assert_eq!(of(vec![finding(Some(Verdict::Pass))], None).1, "1 of 1 limit passes.");
        assert_eq!(of(vec![], Some("two failed.")).0, Some(Verdict::Fail));
        let unsure = vec![finding(Some(Verdict::Inconclusive)), finding(Some(Verdict::Pass))];
        assert_eq!(of(unsure.clone(), None).0, Some(Verdict::Inconclusive));
        assert_eq!(of(unsure, Some("two failed.")).0, Some(Verdict::Fail));
        let both = vec![finding(Some(Verdict::Pass)), finding(Some(Verdict::Fail))];
        let (verdict, why) = of(both, None);
        assert_eq!(verdict, Some(Verdict::Fail));
        assert_eq!(why, "1 of 2 limits passes; p99 below 5us: 7us.");
    }

    #[test]
    fn t0_spreads_have_all_values_also_below_zero() {
        assert!(Spread::of("a", Vec::new()).is_none());
        let spread = Spread::of("a", (-500..=500).collect()).unwrap();
        let counted: u64 = spread.bins.iter().map(|bin| bin.count).sum();
        assert_eq!(counted + spread.beyond, 1_001);
        assert!(spread.bins[0].from_ns == -500 && spread.bins.iter().all(|bin| bin.count > 0));
        assert_eq!(spread.row().len(), SPREAD_HEAD.len());
        let same = Spread::of("b", vec![7; 9]).unwrap();
        assert_eq!((same.bins.len(), same.beyond), (1, 0));
        let far = Spread::of("c", vec![i64::MIN, 0, i64::MAX]).unwrap();
        assert_eq!(far.numbers.count, 3);
    }

    #[test]
    fn t0_what_was_counted_in_bins_keeps_its_numbers() {
        let mut histogram = timewire_stats::LogHistogram::new();
        (1..=1_000).for_each(|us| histogram.record(Span::from_us(us)));
        let spread = Spread::of_counted("a", &histogram.summary()).unwrap();
        assert_eq!((spread.numbers.min_ns, spread.numbers.max_ns), (1_000, 1_000_000));
        assert_eq!(spread.numbers.cdf.last().map(|last| last.1), Some(1_000_000));
        let empty = timewire_stats::LogHistogram::new();
        assert!(Spread::of_counted("a", &empty.summary()).is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A comparison as plain text: what is not the same around the runs, then what is not the same of
//! them, then the verdict.

use super::model::{
    CaseComparison, Changed, Comparison, Figure, Kind, MetricComparison, Overall, Verdict,
};
use super::number::whole;
use crate::terminal::{BAD, GOOD, UNSURE, painted, plain};
use crate::text::{began, put, us_f64};

/// Changes that are printed of each kind; the page and the JSON have all.
const MAX_CHANGES: usize = 20;

/// The text, ending with a line feed; `all` prints the metrics that are the same or inconclusive,
/// too.
///
/// **Units**: times are microseconds.
pub fn table(comparison: &Comparison, all: bool, colour: bool) -> String {
    let mut out = String::new();
    for (name, run) in [("A", &comparison.a), ("B", &comparison.b)] {
        let cut = if run.complete { "" } else { ", cut short" };
        let (directory, title) = (plain(&run.directory), plain(&run.title));
        put!(&mut out, "{name}: {directory} ({title}, {}{cut})\n", began(run.started_utc_ns));
    }
    out.push('\n');
    around(&mut out, comparison);
    for case in &comparison.cases {
        case_lines(&mut out, case, all, colour);
    }
    let code = match comparison.verdict {
        Overall::Worse => BAD,
        Overall::Better | Overall::Same => GOOD,
        Overall::Inconclusive => UNSURE,
    };
    put!(
        &mut out,
        "verdict: {} ({})\n",
        painted(comparison.verdict.word(), code, colour),
        tally(comparison)
    );
    out
}

/// How many metrics came out how, and at what level.
pub(super) fn tally(comparison: &Comparison) -> String {
    let counts = comparison.counts;
    format!(
        "{} worse, {} better, {} same, {} inconclusive; tolerance {}, of shares {}; all together \
         {} sure",
        counts.worse,
        counts.better,
        counts.same,
        counts.inconclusive,
        percent(comparison.rules.tolerance),
        percent(comparison.rules.share_tolerance),
        percent(comparison.rules.confidence)
    )
}

/// What is not the same of what the runs stood on and were asked.
fn around(out: &mut String, comparison: &Comparison) {
    changes(out, "environment", &comparison.environment);
    changes(out, "host", &comparison.hosts.changes);
    for why in &comparison.hosts.unreadable {
        put!(out, "note: {}\n", plain(why));
    }
    for change in &comparison.scenarios {
        put!(out, "scenario {} is not the same:\n", plain(&change.scenario));
        for line in change.lines.iter().take(MAX_CHANGES) {
            put!(out, "  {}\n", plain(line));
        }
        more(out, change.lines.len());
    }
    for (name, cases) in [("A", &comparison.only_in_a), ("B", &comparison.only_in_b)] {
        for case in cases {
            put!(out, "only in {name}: {}\n", plain(case));
        }
    }
}

fn changes(out: &mut String, what: &str, list: &[Changed]) {
    for change in list.iter().take(MAX_CHANGES) {
        put!(
            out,
            "{what} differs: {}: {}: {} -> {}\n",
            plain(&change.area),
            plain(&change.name),
            side(change.a.as_deref()),
            side(change.b.as_deref())
        );
    }
    more(out, list.len());
}

fn side(value: Option<&str>) -> String {
    value.map_or("nothing".to_owned(), plain)
}

fn more(out: &mut String, len: usize) {
    if len > MAX_CHANGES {
        put!(out, "  and {} more: see --json or --html\n", len - MAX_CHANGES);
    }
}

fn case_lines(out: &mut String, case: &CaseComparison, all: bool, colour: bool) {
    let of = |verdict| case.metrics.iter().filter(|metric| metric.verdict == verdict).count();
    put!(
        out,
        "{} ({}): {} worse, {} better, {} same, {} inconclusive\n",
        plain(&case.id),
        plain(&case.title),
        of(Verdict::Worse),
        of(Verdict::Better),
        of(Verdict::Same),
        of(Verdict::Inconclusive)
    );
    for stream in &case.not_in_both {
        put!(out, "  stream {}\n", plain(stream));
    }
    for what in &case.incomplete {
        put!(out, "  records are not complete: {}\n", plain(what));
    }
    for metric in &case.metrics {
        if all || matches!(metric.verdict, Verdict::Worse | Verdict::Better) {
            metric_line(out, metric, colour);
        }
    }
}

fn metric_line(out: &mut String, metric: &MetricComparison, colour: bool) {
    let code = match metric.verdict {
        Verdict::Worse => BAD,
        Verdict::Better | Verdict::Same => GOOD,
        Verdict::Inconclusive | Verdict::Shown => UNSURE,
    };
    let word = painted(&format!("{:<12}", metric.verdict.word()), code, colour);
    let stream = metric.stream.as_deref().map_or("segment".to_owned(), plain);
    let unit = if metric.kind == Kind::Time { " µs" } else { "" };
    put!(
        out,
        "  {word} {:<14} {:<16} {:>10} -> {:>10}{unit}",
        stream,
        plain(&metric.metric),
        figure(metric.kind, metric.a),
        figure(metric.kind, metric.b)
    );
    if let Some(text) = change(metric) {
        put!(out, "  {text}");
    }
    if !metric.why.is_empty() {
        put!(out, "  ({})", plain(&metric.why));
    }
    out.push('\n');
}

/// A value of one run, without its unit where that is microseconds.
pub(super) fn figure(kind: Kind, figure: Figure) -> String {
    match (kind, figure.value) {
        (_, None) => "–".to_owned(),
        (Kind::Time, Some(ns)) => us_f64(ns),
        (Kind::Share, Some(share)) => percent(share),
    }
}

/// By how much B is more, with its interval: of a time as a share of A, of a share in points.
pub(super) fn change(metric: &MetricComparison) -> Option<String> {
    match (metric.kind, metric.ratio, metric.difference) {
        (Kind::Time, Some(ratio), _) => {
            let more = |ratio: f64| signed((ratio - 1.0) * 100.0);
            let (low, high) = (more(ratio.low), more(ratio.high));
            Some(format!("{} % [{low}, {high}]", more(ratio.value)))
        }
        (Kind::Share, _, Some(by)) => {
            let point = |share: f64| signed(share * 100.0);
            Some(format!("{} points [{}, {}]", point(by.value), point(by.low), point(by.high)))
        }
        _ => None,
    }
}

fn signed(value: f64) -> String {
    match value {
        _ if value.abs() >= 1e4 => format!("{value:+.1e}"),
        _ if value.abs() < 5e-4 => "0".to_owned(),
        _ if value.abs() < 0.1 => format!("{value:+.3}"),
        _ => format!("{value:+.1}"),
    }
}

/// A share in per cent, as short as it can be and never rounded to nothing or to all.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let tenths = percent * 10.0;
    let at_all = share > 0.0 && share < 1.0;
    match percent {
        _ if percent >= 0.1 && (tenths - tenths.round()).abs() < 1e-6 => {
            let tenths = whole(tenths.round());
            match tenths % 10 {
                0 => format!("{} %", tenths / 10),
                rest => format!("{}.{rest} %", tenths / 10),
            }
        }
        _ if at_all && percent < 1e-3 => "<0.001 %".to_owned(),
        _ if at_all && percent > 99.999 => ">99.999 %".to_owned(),
        _ if at_all => format!("{percent:.3} %"),
        _ => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_percentages_are_short_and_never_nothing() {
        let cases = [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (0.05, "5 %"),
            (0.001, "0.1 %"),
            (0.125, "12.5 %"),
            (0.000_2, "0.020 %"),
            (1e-9, "<0.001 %"),
            (0.999_999_9, ">99.999 %"),
            (0.123_456, "12.346 %"),
        ];
        for (share, want) in cases {
            assert_eq!(percent(share), want, "{share}");
        }
    }

    #[test]
    fn t0_changes_have_a_sign() {
        let cases =
            [(5.04, "+5.0"), (-0.04, "-0.040"), (0.0001, "0"), (-12.34, "-12.3"), (2e6, "+2.0e6")];
        for (value, want) in cases {
            assert_eq!(signed(value), want, "{value}");
        }
    }
}

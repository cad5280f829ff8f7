// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A comparison as one self-contained HTML file, in the style of the report.

use timewire_capture::summary::{CaseSummary, Summary};

use super::Side;
use super::model::{CaseComparison, Changed, Comparison, Kind, MetricComparison, Overall, Verdict};
use super::table::{change, figure, percent, tally};
use crate::figure::{self, TailLine, Xy};
use crate::page::head;
use crate::text::{Escaped, began, put};

/// Height of the figures.
const TAIL_HEIGHT: f64 = 260.0;

/// The page; the same comparison and runs give the same bytes. Nothing in it is fetched.
pub fn html(comparison: &Comparison, a: &Side, b: &Side) -> String {
    let mut out = String::with_capacity(1 << 18);
    let title = format!("{} against {}", comparison.b.title, comparison.a.title);
    head(&mut out, comparison.verdict.word(), &title);
    banner(&mut out, comparison);
    out.push_str(
        "<nav aria-label=\"Sections\"><a href=\"#around\">What is not the same around the runs</a> \
         <a href=\"#changed\">Worse and better</a> <a href=\"#cases\">Cases</a> \
         <a href=\"#guide\">How to read</a></nav>\n<main>\n",
    );
    around(&mut out, comparison);
    changed(&mut out, comparison);
    out.push_str("<section aria-labelledby=\"cases\">\n<h2 id=\"cases\">Cases</h2>\n");
    for (at, case) in comparison.cases.iter().enumerate() {
        case_section(&mut out, at + 1, case, comparison, (&a.summary, &b.summary));
    }
    out.push_str("</section>\n");
    guide(&mut out, comparison);
    put!(
        &mut out,
        "</main>\n<footer><p>Every figure is computed from the records of both runs; the intervals \
         follow from the seed {}. <code>timewire compare --json</code> ({}) has the \
         numbers.</p></footer>\n</body>\n</html>\n",
        comparison.rules.seed,
        Escaped(comparison.schema)
    );
    out
}

fn banner(out: &mut String, comparison: &Comparison) {
    let class = match comparison.verdict {
        Overall::Worse => "fail",
        Overall::Better | Overall::Same => "pass",
        Overall::Inconclusive => "open",
    };
    put!(
        out,
        "<header>\n<h1>Two runs side by side</h1>\n<p class=\"verdict {class}\"><b>{}</b> \
         <span>{}</span></p>\n<dl class=\"facts\">",
        comparison.verdict.word(),
        Escaped(&tally(comparison))
    );
    for (name, run) in [("A", &comparison.a), ("B", &comparison.b)] {
        put!(
            out,
            "<div><dt>{name}</dt><dd>{}<br><code>{}</code><br>{}, {}{}</dd></div>",
            Escaped(&run.title),
            Escaped(&run.directory),
            began(run.started_utc_ns),
            Escaped(&run.tool),
            if run.complete { "" } else { ", cut short" }
        );
    }
    out.push_str("</dl>\n</header>\n");
}

fn around(out: &mut String, comparison: &Comparison) {
    out.push_str(
        "<section aria-labelledby=\"around\">\n\
         <h2 id=\"around\">What is not the same around the runs</h2>\n",
    );
    changes(out, "What the runs stood on", &comparison.environment);
    let hosts = &comparison.hosts;
    let caption = format!("Settings before the runs, of {} snapshots", hosts.compared);
    changes(out, &caption, &hosts.changes);
    for why in &hosts.unreadable {
        put!(out, "<p>{}</p>\n", Escaped(why));
    }
    for change in &comparison.scenarios {
        let lines = change.lines.join("\n");
        let (name, lines) = (Escaped(&change.scenario), Escaped(&lines));
        put!(out, "<h3>The scenario {name}</h3>\n<pre class=\"scroll\">{lines}</pre>\n");
    }
    for (name, cases) in [("A", &comparison.only_in_a), ("B", &comparison.only_in_b)] {
        if !cases.is_empty() {
            put!(out, "<p>Only in {name}: {}.</p>\n", Escaped(&cases.join(", ")));
        }
    }
    let nothing = comparison.environment.is_empty()
        && hosts.changes.is_empty()
        && comparison.scenarios.is_empty()
        && comparison.only_in_a.is_empty()
        && comparison.only_in_b.is_empty();
    if nothing {
        out.push_str("<p>Nothing that was recorded.</p>\n");
    }
    out.push_str("</section>\n");
}

fn changes(out: &mut String, caption: &str, list: &[Changed]) {
    if list.is_empty() {
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\
         <caption>{0}</caption>\n<thead><tr><th scope=\"col\">Where</th>\
         <th scope=\"col\">What</th><th scope=\"col\">A</th><th scope=\"col\">B</th></tr></thead>\n\
         <tbody>",
        Escaped(caption)
    );
    for change in list {
        put!(
            out,
            "<tr><td>{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
            Escaped(&change.area),
            Escaped(&change.name),
            Escaped(change.a.as_deref().unwrap_or("–")),
            Escaped(change.b.as_deref().unwrap_or("–"))
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// What is worse, then what is better, of all cases.
fn changed(out: &mut String, comparison: &Comparison) {
    out.push_str(
        "<section aria-labelledby=\"changed\">\n<h2 id=\"changed\">Worse and better</h2>\n",
    );
    let counts = comparison.counts;
    if counts.worse == 0 && counts.better == 0 {
        out.push_str("<p>Nothing is known to be worse or better.</p>\n</section>\n");
        return;
    }
    table_head(out, "Worse and better", "Case and stream");
    for wanted in [Verdict::Worse, Verdict::Better] {
        for case in &comparison.cases {
            for metric in case.metrics.iter().filter(|metric| metric.verdict == wanted) {
                let name = format!("{}: {}", case.id, stream_of(metric));
                row(out, &name, metric, comparison);
            }
        }
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn stream_of(metric: &MetricComparison) -> &str {
    metric.stream.as_deref().unwrap_or("segment")
}

fn table_head(out: &mut String, label: &str, first: &str) {
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Metrics, {}\">\
         <table class=\"numbers\">\n<caption>Times in µs. Change: of times in per cent of A, of \
         shares in points, with its interval.</caption>\n<thead><tr><th scope=\"col\">{first}</th>\
         <th scope=\"col\" class=\"w\">Metric</th><th scope=\"col\">A</th><th scope=\"col\">of</th>\
         <th scope=\"col\">B</th><th scope=\"col\">of</th><th scope=\"col\">Change</th>\
         <th scope=\"col\" class=\"w\">Interval</th><th scope=\"col\" class=\"w\">Verdict</th>\
         </tr></thead>\n<tbody>",
        Escaped(label)
    );
}

fn case_section(
    out: &mut String,
    number: usize,
    case: &CaseComparison,
    comparison: &Comparison,
    (a, b): (&Summary, &Summary),
) {
    put!(
        out,
        "<details open><summary><h4>{}</h4> <span><code>{}</code></span></summary>\n",
        Escaped(&case.title),
        Escaped(&case.id)
    );
    for stream in &case.not_in_both {
        put!(out, "<p>The stream {}.</p>\n", Escaped(stream));
    }
    for what in &case.incomplete {
        put!(out, "<p>Records are not complete: {}.</p>\n", Escaped(what));
    }
    table_head(out, &case.id, "Stream");
    for metric in &case.metrics {
        row(out, stream_of(metric), metric, comparison);
    }
    out.push_str("</tbody></table></div>\n<div class=\"figures\">\n");
    let of = |summary: &'_ Summary| summary.cases.iter().position(|it| it.id == case.id);
    if let (Some(in_a), Some(in_b)) = (of(a), of(b)) {
        tails(out, number, &a.cases[in_a], &b.cases[in_b]);
    }
    out.push_str("</div>\n</details>\n");
}

fn row(out: &mut String, name: &str, metric: &MetricComparison, comparison: &Comparison) {
    let (class, shape) = match metric.verdict {
        Verdict::Better => ("good", "▼"),
        Verdict::Same => ("good", "="),
        Verdict::Worse => ("bad", "▲"),
        Verdict::Inconclusive => ("open", "?"),
        Verdict::Shown => ("zero", "–"),
    };
    put!(
        out,
        "<tr><th scope=\"row\">{}</th><td class=\"w\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{}</td><td class=\"w\">",
        Escaped(name),
        Escaped(&metric.metric),
        figure(metric.kind, metric.a),
        metric.a.count,
        figure(metric.kind, metric.b),
        metric.b.count,
        Escaped(&change(metric).unwrap_or_default())
    );
    interval(out, metric, comparison);
    put!(
        out,
        "</td><td class=\"w {class}\"><span class=\"mark\" aria-hidden=\"true\">{shape}</span>{}",
        metric.verdict.word()
    );
    if !metric.why.is_empty() {
        put!(out, " <span class=\"source\">{}</span>", Escaped(&metric.why));
    }
    out.push_str("</td></tr>\n");
}

/// Width of a drawn interval; its middle is no change.
const WIDTH: f64 = 200.0;
/// Tolerances from the middle to each end.
const REACH: f64 = 5.0;

/// The interval over the tolerance; what is farther than the drawing sits at its ends.
fn interval(out: &mut String, metric: &MetricComparison, comparison: &Comparison) {
    let rules = &comparison.rules;
    let (found, tolerance) = match (metric.kind, metric.ratio, metric.difference) {
        (Kind::Time, Some(ratio), _) => {
            let tolerance = (1.0 + rules.tolerance).ln();
            ([ratio.low, ratio.value, ratio.high].map(f64::ln), tolerance)
        }
        (Kind::Share, _, Some(by)) => ([by.low, by.value, by.high], rules.share_tolerance),
        _ => return,
    };
    // Without a tolerance a hundredth is the measure.
    let unit = if tolerance > 0.0 { tolerance } else { 0.01 };
    let place = |value: f64| {
        let at = (value / unit).clamp(-REACH, REACH) / REACH;
        (1.0 + at) * (WIDTH / 2.0 - 4.0) + 4.0
    };
    let [low, value, high] = found.map(place);
    let band = (place(-tolerance), place(tolerance));
    let class = match metric.verdict {
        Verdict::Worse => "alarm",
        Verdict::Better | Verdict::Same => "s3",
        Verdict::Inconclusive | Verdict::Shown => "s5",
    };
    put!(
        out,
        "<svg width=\"{WIDTH}\" height=\"16\" viewBox=\"0 0 {WIDTH} 16\" role=\"img\">\
         <title>{}</title><rect class=\"f s1 shade\" x=\"{}\" y=\"0\" width=\"{}\" height=\"16\"/>\
         <path class=\"axis\" d=\"M{} 0V16\"/>\
         <path class=\"line {class}\" d=\"M{} 8H{}M{} 4V12M{} 4V12\"/>\
         <circle class=\"f {class}\" cx=\"{}\" cy=\"8\" r=\"3.5\"/></svg>",
        Escaped(&change(metric).unwrap_or_default()),
        Xy(band.0),
        Xy((band.1 - band.0).max(0.0)),
        Xy(place(0.0)),
        Xy(low),
        Xy(high),
        Xy(low),
        Xy(high),
        Xy(value)
    );
}

/// The transfer times of each stream of both runs over each other.
fn tails(out: &mut String, number: usize, a: &CaseSummary, b: &CaseSummary) {
    for (at, stream) in a.streams.iter().enumerate() {
        let other = b.streams.iter().find(|other| other.name == stream.name);
        let in_b = other.and_then(|other| other.transfer.as_ref());
        let Some((of_a, of_b)) = stream.transfer.as_ref().zip(in_b) else { continue };
        let line = |class: &str, name: &str, transfer| TailLine {
            class: class.to_owned(),
            name: name.to_owned(),
            transfer,
        };
        let lines = [line("line s1", "A", of_a), line("line s2 dashed", "B", of_b)];
        let title = format!("Transfer times of {} in A and B: {}", stream.name, a.id);
        let id = format!("c{number}-s{at}");
        let Some(svg) = figure::tail(&id, &title, &lines, b.cycle_ns, TAIL_HEIGHT) else {
            continue;
        };
        put!(
            out,
            "<figure>{svg}<figcaption><b>{}.</b> Share of messages that arrived within a time; \
             from 90 % down, each grid line leaves a tenth of the one above. \
             <i class=\"key line s1\"></i>A <i class=\"key line s2 dashed\"></i>B</figcaption>\
             </figure>\n",
            Escaped(&stream.name)
        );
    }
}

fn guide(out: &mut String, comparison: &Comparison) {
    let rules = &comparison.rules;
    put!(
        out,
        "<section aria-labelledby=\"guide\">\n<h2 id=\"guide\">How to read</h2>\n\
         <dl class=\"guide\">\n\
         <div><dt>worse, better</dt><dd>All of the interval lies beyond the tolerance: {} for \
         times, {} for shares of messages or frames. The tolerance is the shaded \
         band.</dd></div>\n\
         <div><dt>same</dt><dd>All of the interval lies within the tolerance.</dd></div>\n\
         <div><dt>inconclusive</dt><dd>Neither: the runs are too short to say it, or too much \
         varies within them.</dd></div>\n\
         <div><dt>interval</dt><dd>Of times by a bootstrap of blocks, {} resamples; of shares by \
         score intervals, with fewer messages counted where they come in bursts. The {} intervals \
         of this page are all right together with {} probability. They tell how a run like these \
         would vary by chance; what changes from one run to the next for other reasons, such as \
         another load on the host, they cannot know.</dd></div>\n</dl>\n</section>\n",
        percent(rules.tolerance),
        percent(rules.share_tolerance),
        comparison.resamples,
        comparison.intervals,
        percent(rules.confidence)
    );
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page: verdict first, then why, then the figures and numbers it stands on.

use timewire_base::Verdict;
use timewire_capture::series::TimeSeries;
use timewire_capture::summary::{Fact, FactLevel, Finding, Summary};
use timewire_capture::sync::{ClockSeries, SyncSummary};

use crate::extras::Extras;
use crate::group::{Scenario, by_weight, distinct, plural, scenarios, tally};
use crate::text::{Escaped, as_f64, began, digits, put, share, us_exact, us_whole};
use crate::{backend, case, figure, network, scenario};

const STYLE: &str = include_str!("style.css");

/// The report of a run as one self-contained HTML file.
///
/// The same summary gives the same bytes. Nothing in the file is fetched: its own content security
/// policy forbids it.
pub fn html(summary: &Summary) -> String {
    html_with(summary, &Extras::default())
}

/// The same with what is known beside the numbers.
pub fn html_with(summary: &Summary, extras: &Extras) -> String {
    let mut out = String::with_capacity(1 << 19);
    head(&mut out, summary.verdict.label(), &summary.title);
    banner(&mut out, summary);
    let scenarios = scenarios(summary);
    navigation(&mut out, &scenarios, extras);
    out.push_str("<main>\n");
    findings(&mut out, &tally(&summary.findings), &summary.findings);
    backend::section(&mut out, summary);
    scenario::published_table(&mut out, &scenarios);
    if let Some(topology) = &extras.topology {
        network::section(&mut out, topology);
    }
    for (at, one) in scenarios.iter().enumerate() {
        scenario::section(&mut out, at + 1, one);
    }
    case::section(&mut out, &scenarios, extras);
    clocks(&mut out, summary.sync.as_ref(), &extras.clocks);
    environment(&mut out, &summary.environment);
    guide(&mut out);
    out.push_str("</main>\n");
    footer(&mut out, summary);
    out.push_str("</body>\n</html>\n");
    out
}

/// The head of a page: its title begins with what the run came to.
pub(crate) fn head(out: &mut String, word: &str, title: &str) {
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}",
        word,
        Escaped(title),
        figure::DEFS
    );
}

/// Class and shape of a verdict: shapes differ without their colour, too.
pub(crate) fn banner_of(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Pass => {
            ("pass", "<circle cx=\"12\" cy=\"12\" r=\"10\"/><path d=\"M7 12.5l3.5 3.5 6.5-8\"/>")
        }
        Verdict::Fail => {
            ("fail", "<path d=\"M8 2h8l6 6v8l-6 6H8l-6-6V8z\"/><path d=\"M8 8l8 8M16 8l-8 8\"/>")
        }
        Verdict::Inconclusive => (
            "open",
            "<circle cx=\"12\" cy=\"12\" r=\"10\"/>\
             <path d=\"M9 9a3 3 0 1 1 4 3l-1 1v2M12 18v.5\"/>",
        ),
    }
}

fn banner(out: &mut String, summary: &Summary) {
    let (class, shape) = banner_of(summary.verdict);
    let word = summary.verdict.label();
    put!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"verdict {class}\"><svg role=\"img\" \
         viewBox=\"0 0 24 24\"><title>{word}</title>{shape}</svg><b>{word}</b> \
         <span>{}</span></p>\n",
        Escaped(&summary.title),
        tally(&summary.findings)
    );
    if !summary.complete {
        out.push_str(
            "<p class=\"cut\"><b>Cut short.</b> The run did not come to its end; the figures cover \
             what was recorded until then.</p>\n",
        );
    }
    let state = if summary.complete { "complete" } else { "cut short" };
    let elapsed = as_f64(summary.elapsed_ns) / 1e9;
    put!(
        out,
        "<dl class=\"facts\"><div><dt>Started</dt><dd>{}</dd></div><div><dt>Took</dt>\
         <dd>{elapsed:.1} s, {state}</dd></div><div><dt>Measured</dt><dd>{} {}</dd></div>\
         <div><dt>Tool</dt><dd>{}</dd></div></dl>\n</header>\n",
        began(summary.started_utc_ns),
        summary.cases.len(),
        plural(summary.cases.len(), "case"),
        Escaped(&summary.tool)
    );
}

fn navigation(out: &mut String, scenarios: &[Scenario<'_>], extras: &Extras) {
    out.push_str("<nav aria-label=\"Sections\"><a href=\"#findings\">Findings</a>");
    if scenario::any_published(scenarios) {
        out.push_str(" <a href=\"#published\">Published and measured</a>");
    }
    if extras.topology.is_some() {
        out.push_str(" <a href=\"#network\">Network</a>");
    }
    for (at, one) in scenarios.iter().enumerate() {
        put!(out, " <a href=\"#scenario-{}\">{}</a>", at + 1, Escaped(&one.title("µs")));
    }
    out.push_str(" <a href=\"#cases\">Cases</a>");
    if !extras.clocks.is_empty() {
        out.push_str(" <a href=\"#clocks\">Clocks</a>");
    }
    out.push_str(
        " <a href=\"#environment\">Environment</a> <a href=\"#guide\">How to read</a></nav>\n",
    );
}

/// Findings, the ones that decide first, and how many of which kind there are.
pub(crate) fn findings(out: &mut String, tally: &str, findings: &[Finding]) {
    out.push_str("<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n");
    if findings.is_empty() {
        out.push_str("<p>No limits were set for this run.</p>\n</section>\n");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Findings\">\
         <table class=\"findings\" role=\"table\">\n\
         <caption>{}. What fails stands first.</caption>\n\
         <thead role=\"rowgroup\"><tr role=\"row\">\
         <th scope=\"col\" role=\"columnheader\">Verdict</th>\
         <th scope=\"col\" role=\"columnheader\">Limit</th>\
         <th scope=\"col\" role=\"columnheader\">Measured</th>\
         <th scope=\"col\" role=\"columnheader\">Note</th></tr></thead>\n\
         <tbody role=\"rowgroup\">\n",
        sentence(tally)
    );
    for finding in by_weight(findings) {
        finding_row(out, finding);
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// Roles are given in full because a narrow page shows the cells of a row under each other, and a
/// browser then no longer takes them for cells by itself.
fn finding_row(out: &mut String, finding: &Finding) {
    let (class, shape, word) = match finding.verdict {
        Some(Verdict::Pass) => ("good", "✓", "pass"),
        Some(Verdict::Fail) => ("bad", "✕", "fail"),
        Some(Verdict::Inconclusive) => ("open", "?", "inconclusive"),
        None => ("note", "–", "note"),
    };
    put!(
        out,
        "<tr role=\"row\"><td role=\"cell\" class=\"{class}\">\
         <span class=\"mark\" aria-hidden=\"true\">{shape}</span>{word}</td>\
         <th scope=\"row\" role=\"rowheader\">{}<code>{}</code></th><td role=\"cell\">{}</td>\
         <td role=\"cell\">{}</td></tr>\n",
        Escaped(&finding.limit),
        Escaped(&finding.id),
        Escaped(&finding.measured),
        Escaped(&finding.note)
    );
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// How the clocks went.
fn clocks(out: &mut String, sync: Option<&SyncSummary>, series: &[ClockSeries]) {
    if series.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"clocks\">\n<h2 id=\"clocks\">Clocks</h2>\n");
    if let Some(sync) = sync {
        put!(out, "<p>{} samples", digits(sync.samples));
        if let Some(most) = sync.max_offset_ns {
            let error = sync.max_offset_error_ns.unwrap_or(0);
            put!(out, "; at most {} µs from the giver, known to {error} ns", us_exact(most));
        }
        put!(out, "; {} not synchronised", digits(sync.unsynchronised));
        match sync.lost.len() {
            0 => out.push_str(".</p>\n"),
            times => put!(out, "; not on time {times} {}.</p>\n", plural(times, "time")),
        }
    }
    out.push_str("<div class=\"figures\">\n");
    for (at, series) in series.iter().enumerate() {
        if let Some(svg) = figure::clock(&format!("clock-{}", at + 1), series) {
            clock_figure(out, &svg, series);
        }
    }
    out.push_str("</div>\n</section>\n");
}

/// A clock over time, with its caption.
pub(crate) fn clock_figure(out: &mut String, svg: &str, series: &ClockSeries) {
    put!(
        out,
        "<figure>{svg}<figcaption><b>{}.</b></figcaption></figure>\n",
        Escaped(&sentence(&series.name))
    );
}

/// Values over time, with their caption.
pub(crate) fn series_figure(out: &mut String, svg: &str, caption: &str, series: &TimeSeries) {
    put!(out, "<figure>{svg}<figcaption><b>{}</b>", Escaped(caption));
    if let Some([first, second]) = series.thresholds_ns {
        let count = series.count();
        let [good, open, bad] = series.counts.map(|of_class| share(of_class, count));
        let (first, second) = (us_whole(first), us_whole(second));
        put!(
            out,
            " <i class=\"key f v-good\"></i>up to {first} µs: {good}, \
             <i class=\"key f v-open\"></i>up to {second} µs: {open}, \
             <i class=\"key f v-bad\"></i>above: {bad}"
        );
    }
    out.push_str("</figcaption></figure>\n");
}

/// What a run stood on.
pub(crate) fn environment(out: &mut String, facts: &[Fact]) {
    out.push_str(
        "<section aria-labelledby=\"environment\">\n<h2 id=\"environment\">Environment</h2>\n",
    );
    let count = |level| facts.iter().filter(|f| f.level == level).count();
    put!(
        out,
        "<p>What the run stood on: {} as it should be, {} degraded, {} missing.</p>\n\
         <div class=\"areas\">\n",
        count(FactLevel::Ok),
        count(FactLevel::Degraded),
        count(FactLevel::Missing)
    );
    for area in distinct(facts.iter().map(|f| f.area.as_str())) {
        put!(
            out,
            "<table class=\"env\"><caption>{}</caption><thead><tr><th scope=\"col\">What</th>\
             <th scope=\"col\">Found</th><th scope=\"col\">State</th></tr></thead>\n<tbody>",
            Escaped(area)
        );
        for fact in facts.iter().filter(|f| f.area == area) {
            let (class, shape, word) = match fact.level {
                FactLevel::Ok => ("good", "✓", "ok"),
                FactLevel::Degraded => ("open", "▲", "degraded"),
                FactLevel::Missing => ("bad", "✕", "missing"),
            };
            put!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"{class}\">\
                 <span class=\"mark\" aria-hidden=\"true\">{shape}</span>{word}</td></tr>\n",
                Escaped(&fact.name),
                Escaped(&fact.value)
            );
        }
        out.push_str("</tbody></table>\n");
    }
    out.push_str("</div>\n</section>\n");
}

fn guide(out: &mut String) {
    out.push_str(
        "<section aria-labelledby=\"guide\">\n<h2 id=\"guide\">How to read</h2>\n\
         <dl class=\"guide\">\n",
    );
    for (term, meaning) in GUIDE {
        put!(out, "<div><dt>{term}</dt><dd>{meaning}</dd></div>\n");
    }
    out.push_str("</dl>\n</section>\n");
}

/// Terms and what they mean; markup on purpose, nothing here comes from a run.
const GUIDE: [(&str, &str); 13] = [
    (
        "transfer",
        "<code>Send → Receive</code>: from the moment before the sending program calls the \
         kernel to the moment the receiving program has the message; in networks with links, its \
         kernel.",
    ),
    (
        "slot wait",
        "<code>Send → Segment</code>: the transmit side, up to the first moment the frame is on \
         the segment. Most of it is the wait for the station's slot.",
    ),
    (
        "receive",
        "<code>RxSw → Receive</code>: from the kernel's receive timestamp to the receiving \
            program.",
    ),
    (
        "p50, p90, p99, p99.9",
        "Percentiles by nearest rank: the smallest measured value that at least this share of all \
         messages did not exceed. Never interpolated, never of bins.",
    ),
    ("pk-pk", "Peak to peak: the largest value minus the smallest."),
    ("stddev", "Standard deviation of the sample (n − 1)."),
    (
        "skipped",
        "Messages that were due and not sent: the kernel did not take them, or the talker woke up \
         too late.",
    ),
    ("lost", "Messages sent and never received."),
    (
        "late",
        "Messages received after the stream's deadline. They are counted in every percentile.",
    ),
    (
        "outside slots",
        "Frames on the segment outside their own station's slot and its guard time, judged by a \
         timestamp on the segment's side.",
    ),
    (
        "bound",
        "How much later than the release of a frame the segment's timestamp can be. A frame \
            reported \
         outside by less than this may have been inside.",
    ),
    (
        "published",
        "The mean that the source of the experiment reports for its own hardware. It shows the \
         shape to expect, not a limit.",
    ),
    (
        "best effort",
        "Traffic without a deadline that shares the stations and the segment with the real-time \
         stream.",
    ),
];

fn footer(out: &mut String, summary: &Summary) {
    let streams = summary.cases.iter().flat_map(|c| &c.streams);
    let messages: u64 = streams.map(|s| s.sent).sum();
    let frames: u64 = summary.cases.iter().map(|c| c.wire.frames).sum();
    put!(
        out,
        "<footer><p>{} messages sent, {} frames seen on the segment. Every figure is computed from \
         the run's records; <code>summary.json</code> ({}) holds the numbers of this \
         page.</p></footer>\n",
        digits(messages),
        digits(frames),
        Escaped(&summary.schema)
    );
}

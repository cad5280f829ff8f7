// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page: verdict first, then why, then the figures and numbers it stands on.
//!
//! Not here: the sections of scenarios (`scenario`) and cases (`case`).

use timewire_trace::summary::{FactLevel, Finding, Outcome, Summary, Verdict};

use crate::group::{Scenario, by_weight, distinct, plural, scenarios, tally, verdict_word};
use crate::text::{Escaped, as_f64, began, grouped, put};
use crate::{carrier, case, figure, scenario};

const STYLE: &str = include_str!("style.css");

/// The report of a run as one self-contained HTML file.
///
/// The same summary gives the same bytes. Nothing in the file is fetched: its own content security
/// policy forbids it.
pub fn html(summary: &Summary) -> String {
    let mut out = String::with_capacity(1 << 19);
    head(&mut out, summary);
    banner(&mut out, summary);
    let scenarios = scenarios(summary);
    navigation(&mut out, &scenarios);
    out.push_str("<main>\n");
    findings(&mut out, summary);
    carrier::section(&mut out, summary);
    scenario::published_table(&mut out, &scenarios);
    for (at, one) in scenarios.iter().enumerate() {
        scenario::section(&mut out, at + 1, one);
    }
    case::section(&mut out, &scenarios);
    environment(&mut out, summary);
    guide(&mut out);
    out.push_str("</main>\n");
    footer(&mut out, summary);
    out.push_str("</body>\n</html>\n");
    out
}

fn head(out: &mut String, summary: &Summary) {
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}",
        verdict_word(summary.verdict),
        Escaped(&summary.title),
        figure::DEFS
    );
}

fn banner(out: &mut String, summary: &Summary) {
    let (class, shape) = match summary.verdict {
        Verdict::Pass => {
            ("pass", "<circle cx=\"12\" cy=\"12\" r=\"10\"/><path d=\"M7 12.5l3.5 3.5 6.5-8\"/>")
        }
        Verdict::Fail => {
            ("fail", "<path d=\"M8 2h8l6 6v8l-6 6H8l-6-6V8z\"/><path d=\"M8 8l8 8M16 8l-8 8\"/>")
        }
    };
    let word = verdict_word(summary.verdict);
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

fn navigation(out: &mut String, scenarios: &[Scenario<'_>]) {
    out.push_str("<nav aria-label=\"Sections\"><a href=\"#findings\">Findings</a>");
    if scenario::any_published(scenarios) {
        out.push_str(" <a href=\"#published\">Published and measured</a>");
    }
    for (at, one) in scenarios.iter().enumerate() {
        put!(out, " <a href=\"#scenario-{}\">{}</a>", at + 1, Escaped(&one.title("µs")));
    }
    out.push_str(
        " <a href=\"#cases\">Cases</a> <a href=\"#environment\">Environment</a> \
         <a href=\"#guide\">How to read</a></nav>\n",
    );
}

fn findings(out: &mut String, summary: &Summary) {
    out.push_str("<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Findings</h2>\n");
    if summary.findings.is_empty() {
        out.push_str("<p>No limits were set for this run.</p>\n</section>\n");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Findings\">\
         <table class=\"findings\" role=\"table\">\n\
         <caption>{}. What was missed stands first.</caption>\n\
         <thead role=\"rowgroup\"><tr role=\"row\">\
         <th scope=\"col\" role=\"columnheader\">Outcome</th>\
         <th scope=\"col\" role=\"columnheader\">Limit</th>\
         <th scope=\"col\" role=\"columnheader\">Measured</th>\
         <th scope=\"col\" role=\"columnheader\">Note</th></tr></thead>\n\
         <tbody role=\"rowgroup\">\n",
        sentence(&tally(&summary.findings))
    );
    for finding in by_weight(&summary.findings) {
        finding_row(out, finding);
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// Roles are given in full because a narrow page shows the cells of a row under each other, and a
/// browser then no longer takes them for cells by itself.
fn finding_row(out: &mut String, finding: &Finding) {
    let (class, shape, word) = match finding.outcome {
        Outcome::Kept => ("good", "✓", "kept"),
        Outcome::Missed => ("bad", "✕", "missed"),
        Outcome::NotJudged => ("open", "?", "not judged"),
        Outcome::Note => ("note", "–", "note"),
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

fn environment(out: &mut String, summary: &Summary) {
    out.push_str(
        "<section aria-labelledby=\"environment\">\n<h2 id=\"environment\">Environment</h2>\n",
    );
    let count = |level| summary.environment.iter().filter(|f| f.level == level).count();
    put!(
        out,
        "<p>What the run stood on: {} as it should be, {} degraded, {} missing.</p>\n\
         <div class=\"areas\">\n",
        count(FactLevel::Ok),
        count(FactLevel::Degraded),
        count(FactLevel::Missing)
    );
    for area in distinct(summary.environment.iter().map(|f| f.area.as_str())) {
        put!(
            out,
            "<table class=\"env\"><caption>{}</caption><thead><tr><th scope=\"col\">What</th>\
             <th scope=\"col\">Found</th><th scope=\"col\">State</th></tr></thead>\n<tbody>",
            Escaped(area)
        );
        for fact in summary.environment.iter().filter(|f| f.area == area) {
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
const GUIDE: [(&str, &str); 12] = [
    (
        "transfer",
        "<code>Send → Receive</code>: from the moment before the sending program calls the \
         kernel to the moment the receiving program has the message.",
    ),
    (
        "slot wait",
        "<code>Send → Segment</code>: the transmit side, up to the first moment the frame is on \
         the segment. Most of it is the wait for the station's slot.",
    ),
    (
        "receive",
        "<code>RxSw → Receive</code>: from the kernel's receive stamp to the receiving program.",
    ),
    (
        "p50, p90, p99, p99.9",
        "Percentiles by nearest rank: the smallest measured value that at least this share of all \
         messages did not exceed. Never interpolated, never of bins.",
    ),
    ("pk-pk", "Peak to peak: the largest value minus the smallest."),
    ("stddev", "Standard deviation of the sample (n − 1)."),
    ("lost", "Messages sent and never received."),
    (
        "late",
        "Messages received after the stream's deadline. They are counted in every percentile.",
    ),
    (
        "outside slots",
        "Frames on the segment outside their own station's slot and its guard time, judged by a \
         stamp on the segment's side.",
    ),
    (
        "bound",
        "How much later than the release of a frame the segment's stamp can be. A frame reported \
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
        grouped(messages),
        grouped(frames),
        Escaped(&summary.schema)
    );
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs in several places as one self-contained HTML file, in the style of the report.

use timewire_base::Verdict;
use timewire_capture::judge::{Metric, Statistic};

use super::{Figures, Judged, LimitRow, Places, StreamRow};
use crate::figure::{self, RangeBar, RangeRow};
use crate::page::{banner_of, head};
use crate::text::{Escaped, began, put, us};

/// The page; the same runs give the same bytes. Nothing in it is fetched.
pub fn places_html(places: &Places) -> String {
    let mut out = String::with_capacity(1 << 17);
    let names: Vec<&str> = places.runs.iter().map(|run| run.place.as_str()).collect();
    head(&mut out, places.verdict.label(), &names.join(", "));
    banner(&mut out, places);
    out.push_str(
        "<nav aria-label=\"Sections\"><a href=\"#streams\">Streams</a> \
         <a href=\"#limits\">Limits</a></nav>\n<main>\n",
    );
    streams(&mut out, places);
    limits(&mut out, places);
    put!(
        &mut out,
        "</main>\n<footer><p><code>timewire compare --places --json</code> ({}) has the \
         numbers.</p></footer>\n</body>\n</html>\n",
        Escaped(places.schema)
    );
    out
}

fn banner(out: &mut String, places: &Places) {
    let (class, shape) = banner_of(places.verdict);
    let word = places.verdict.label();
    let differ = places.limits.iter().filter(|row| row.differs).count();
    put!(
        out,
        "<header>\n<h1>The same in {} places</h1>\n<p class=\"verdict {class}\"><svg role=\"img\" \
         viewBox=\"0 0 24 24\"><title>{word}</title>{shape}</svg><b>{word}</b> <span>{differ} of \
         {} limits differ between them</span></p>\n<dl class=\"facts\">",
        places.runs.len(),
        places.limits.len()
    );
    for run in &places.runs {
        put!(
            out,
            "<div><dt>{}</dt><dd>{}<br><code>{}</code><br>{}, {}{}</dd></div>",
            Escaped(&run.place),
            Escaped(&run.title),
            Escaped(&run.directory),
            began(run.started_utc_ns),
            run.verdict.word(),
            if run.complete { "" } else { ", cut short" }
        );
    }
    out.push_str("</dl>\n</header>\n");
}

/// Of each case a figure and a table.
fn streams(out: &mut String, places: &Places) {
    out.push_str("<section aria-labelledby=\"streams\">\n<h2 id=\"streams\">Streams</h2>\n");
    out.push_str(
        "<p>A dot is the median, the bar goes to the longest latency, with a tick at the 99th \
         percentile. A shade goes from the promise to a line at the limit: the promise \
         with the launch error of the place. What is beyond a limit is in the colour of an \
         alarm.</p>\n",
    );
    let mut cases: Vec<&str> = Vec::new();
    for row in &places.streams {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    for (at, case) in cases.into_iter().enumerate() {
        let rows: Vec<&StreamRow> = places.streams.iter().filter(|row| row.case == case).collect();
        put!(out, "<h3>{}</h3>\n<div class=\"figures\">\n", Escaped(case));
        let names: Vec<String> = places.runs.iter().map(|run| run.place.clone()).collect();
        let ranges: Vec<RangeRow> = rows.iter().map(|row| ranges_of(row)).collect();
        let title = format!("Latencies of {case} in each place");
        if let Some(svg) = figure::ranges(&format!("case-{}", at + 1), &title, &names, &ranges) {
            put!(out, "<figure>{svg}</figure>\n");
        }
        table(out, places, case, &rows);
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}

fn is_beyond(figures: &Figures, statistic: Statistic) -> bool {
    figures.beyond.contains(&Metric::Latency(statistic).name())
}

fn ranges_of(row: &StreamRow) -> RangeRow {
    let bar = |figures: &Option<Figures>| {
        let figures = figures.as_ref()?;
        let promise = figures.promise.as_ref();
        Some(RangeBar {
            p50_ns: figures.p50_ns?,
            p99_ns: figures.p99_ns?,
            max_ns: figures.max_ns?,
            promised_ns: promise.map(|it| (it.latency_ns.unwrap_or(it.limit_ns), it.limit_ns)),
            is_beyond: is_beyond(figures, Statistic::Max),
        })
    };
    RangeRow { name: row.stream.clone(), bars: row.figures.iter().map(bar).collect() }
}

fn table(out: &mut String, places: &Places, case: &str, rows: &[&StreamRow]) {
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\
         <table class=\"numbers\">\n<caption>Times in µs.</caption>\n<thead><tr>\
         <th scope=\"col\">Stream</th><th scope=\"col\" class=\"w\">Place</th>\
         <th scope=\"col\">Promise</th><th scope=\"col\" class=\"w\">by</th>\
         <th scope=\"col\">Limit</th><th scope=\"col\">n</th><th scope=\"col\">p50</th>\
         <th scope=\"col\">p99</th><th scope=\"col\">max</th><th scope=\"col\">lost</th></tr>\
         </thead>\n<tbody>",
        Escaped(case)
    );
    for row in rows {
        for (run, figures) in places.runs.iter().zip(&row.figures) {
            put!(
                out,
                "<tr><th scope=\"row\">{}</th><td class=\"w\">{}</td>",
                Escaped(&row.stream),
                Escaped(&run.place)
            );
            match figures {
                None => out.push_str("<td colspan=\"8\">not measured</td></tr>\n"),
                Some(figures) => cells(out, figures),
            }
        }
    }
    out.push_str("</tbody></table></div>\n");
}

fn cells(out: &mut String, figures: &Figures) {
    let time = |ns: Option<i64>| ns.map_or_else(|| "–".to_owned(), us);
    let promise = figures.promise.as_ref();
    put!(
        out,
        "<td>{}</td><td class=\"w\">{}</td><td>{}</td><td>{}</td>",
        time(promise.and_then(|it| it.latency_ns)),
        Escaped(promise.map_or("", |it| it.by.as_str())),
        time(promise.map(|it| it.limit_ns)),
        figures.received
    );
    for (ns, statistic) in [
        (figures.p50_ns, Statistic::P50),
        (figures.p99_ns, Statistic::P99),
        (figures.max_ns, Statistic::Max),
    ] {
        match is_beyond(figures, statistic) {
            true => put!(out, "<td class=\"bad\">{} ✕</td>", time(ns)),
            false => put!(out, "<td>{}</td>", time(ns)),
        }
    }
    put!(out, "<td>{}</td></tr>\n", figures.lost);
}

/// Each limit in each place; what does not pass with what was measured.
fn limits(out: &mut String, places: &Places) {
    out.push_str("<section aria-labelledby=\"limits\">\n<h2 id=\"limits\">Limits</h2>\n");
    if places.limits.is_empty() {
        out.push_str("<p>No limits were set.</p>\n</section>\n");
        return;
    }
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Limits\">\
         <table>\n<thead><tr><th scope=\"col\">Limit</th>",
    );
    for run in &places.runs {
        put!(out, "<th scope=\"col\">{}</th>", Escaped(&run.place));
    }
    out.push_str("</tr></thead>\n<tbody>");
    for row in &places.limits {
        limit(out, row);
    }
    out.push_str("</tbody></table></div>\n</section>\n");
}

fn limit(out: &mut String, row: &LimitRow) {
    put!(
        out,
        "<tr><th scope=\"row\">{}<br><code>{}</code></th>",
        Escaped(&row.limit),
        Escaped(&row.id)
    );
    for judged in &row.judged {
        let Some(Judged { verdict, measured, .. }) = judged else {
            out.push_str("<td class=\"zero\">–</td>");
            continue;
        };
        let class = match verdict {
            Verdict::Pass => "good",
            Verdict::Fail => "bad",
            Verdict::Inconclusive => "open",
        };
        put!(out, "<td><b class=\"{class}\">{}</b><br>{}</td>", verdict.word(), Escaped(measured));
    }
    out.push_str("</tr>\n");
}

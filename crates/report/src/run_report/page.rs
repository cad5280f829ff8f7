// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of a report: verdict first, then why, what was found, what was measured, and on what.

use timewire_base::Verdict;

use super::{Drawing, Lane, RunReport, Section, Spread, Table, folded};
use crate::figure::{self, TailLine};
use crate::group::tally;
use crate::page;
use crate::text::{Escaped, put, share};

/// Height of tails and percentile curves.
const HEIGHT: f64 = 300.0;
/// Lines over each other that can be told apart, and lanes and histograms under each other.
const MAX_LINES: usize = 6;
/// Lines differ without their colour, too.
const LINES: [&str; MAX_LINES] = [
    "line s1",
    "line s2 dashed",
    "line s3 dots",
    "line s4 dashdot",
    "line s5 dashed",
    "line s6 dots",
];

/// The report as one self-contained HTML file. The same report gives the same bytes.
pub fn html(report: &RunReport) -> String {
    let mut out = String::with_capacity(1 << 17);
    let word = word(report.verdict);
    page::head(&mut out, word, &report.title);
    banner(&mut out, report);
    out.push_str("<nav aria-label=\"Sections\"><a href=\"#findings\">Findings</a>");
    for (at, section) in report.sections.iter().enumerate() {
        put!(&mut out, " <a href=\"#part-{}\">{}</a>", at + 1, Escaped(&section.title));
    }
    out.push_str(" <a href=\"#environment\">Environment</a></nav>\n<main>\n");
    page::findings(&mut out, &tally(&report.findings), &folded(&report.findings));
    for (at, part) in report.sections.iter().enumerate() {
        section(&mut out, at + 1, part);
    }
    page::environment(&mut out, &report.environment);
    put!(
        &mut out,
        "</main>\n<footer><p>Times are percentiles by nearest rank where every value was kept, and \
         off by at most a 64th where they were counted in bins. Made by {} ({}).</p></footer>\n\
         </body>\n</html>\n",
        concat!("timewire ", env!("CARGO_PKG_VERSION")),
        report.schema
    );
    out
}

pub(super) fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("MEASURED", Verdict::label)
}

fn banner(out: &mut String, report: &RunReport) {
    let (class, shape) = match report.verdict {
        Some(verdict) => page::banner_of(verdict),
        None => {
            ("open", "<circle cx=\"12\" cy=\"12\" r=\"10\"/><path d=\"M6 15h3V9h3v6h3V7h3v8\"/>")
        }
    };
    let word = word(report.verdict);
    put!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"verdict {class}\"><svg role=\"img\" \
         viewBox=\"0 0 24 24\"><title>{word}</title>{shape}</svg><b>{word}</b> \
         <span>{}</span></p>\n",
        Escaped(&report.title),
        Escaped(&report.why)
    );
    if !report.complete {
        out.push_str(
            "<p class=\"cut\"><b>Cut short.</b> The run did not come to its end; the figures cover \
             what was recorded until then.</p>\n",
        );
    }
    put!(out, "<dl class=\"facts\"><div><dt>Run</dt><dd>{}</dd></div>", report.kind);
    for (name, value) in &report.facts {
        put!(out, "<div><dt>{}</dt><dd>{}</dd></div>", Escaped(name), Escaped(value));
    }
    out.push_str("</dl>\n</header>\n");
}

fn section(out: &mut String, number: usize, section: &Section) {
    put!(
        out,
        "<section aria-labelledby=\"part-{number}\">\n<h2 id=\"part-{number}\">{}</h2>\n",
        Escaped(&section.title)
    );
    if !section.intro.is_empty() {
        put!(out, "<p>{}</p>\n", Escaped(&section.intro));
    }
    if !section.drawings.is_empty() {
        out.push_str("<div class=\"figures\">\n");
        for (at, one) in section.drawings.iter().enumerate() {
            drawing(out, &format!("p{number}-{}", at + 1), one);
        }
        out.push_str("</div>\n");
    }
    section.tables.iter().for_each(|one| table(out, one));
    out.push_str("</section>\n");
}

fn table(out: &mut String, table: &Table) {
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\
         <table class=\"numbers\">\n<caption>{}</caption>\n<thead><tr>",
        Escaped(&table.caption),
        Escaped(&table.caption)
    );
    let class = |at: usize| if at > 0 && at < table.words { " class=\"w\"" } else { "" };
    for (at, name) in table.head.iter().enumerate() {
        put!(out, "<th scope=\"col\"{}>{}</th>", class(at), Escaped(name));
    }
    out.push_str("</tr></thead>\n<tbody>");
    for row in &table.rows {
        out.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            match at {
                0 => put!(out, "<th scope=\"row\">{}</th>", Escaped(cell)),
                _ => put!(out, "<td{}>{}</td>", class(at), Escaped(cell)),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn drawing(out: &mut String, id: &str, drawing: &Drawing) {
    match drawing {
        Drawing::Spreads { what, spreads } => of_spreads(out, id, what, spreads),
        Drawing::TimeSeries { what, name, series } => {
            let title = format!("{what} over time: {name}");
            let svg = figure::series(id, &title, what, series);
            page::series_figure(out, &svg, &format!("{what} over time: {name}."), series);
        }
        Drawing::Numbered { what, name, series } => {
            let title = format!("{what}: {name}");
            let svg = figure::numbered(id, &title, what, series);
            page::series_figure(out, &svg, &format!("{title}."), series);
        }
        Drawing::Clock(series) => {
            if let Some(svg) = figure::clock(id, series) {
                page::clock_figure(out, &svg, series);
            }
        }
        Drawing::Phase { what, cycle_ns, lanes } => phase(out, id, what, *cycle_ns, lanes),
        Drawing::Numbers { what, limits, rows } => {
            if let Some(svg) = figure::numbers(id, what, *limits, rows) {
                let limit = match limits.iter().any(Option::is_some) {
                    true => " Dashed: the limit.",
                    false => "",
                };
                put!(
                    out,
                    "<figure>{svg}<figcaption><b>{}.</b> Each number is a dot; the bar is their \
                     median.{limit}</figcaption></figure>\n",
                    Escaped(what)
                );
            }
        }
    }
}

fn of_spreads<'a>(out: &mut String, id: &str, what: &str, spreads: &'a [Spread]) {
    let shown = &spreads[..spreads.len().min(MAX_LINES)];
    let Some(svg) = figure::spread(&format!("{id}-s"), &format!("{what}: histograms"), shown)
    else {
        return;
    };
    put!(
        out,
        "<figure>{svg}<figcaption><b>{}.</b> How often, log scale{}.</figcaption></figure>\n",
        Escaped(what),
        if spreads.len() > MAX_LINES { "; the first six" } else { "" }
    );
    let line = |(at, spread): (usize, &'a Spread)| {
        let Spread { name, numbers, .. } = spread;
        TailLine {
            class: LINES[at % LINES.len()].to_owned(),
            name: name.clone(),
            transfer: numbers,
        }
    };
    let lines: Vec<TailLine<'_>> = shown.iter().enumerate().map(line).collect();
    let keys = lines.iter().map(|line| {
        let class = &line.class;
        format!(" <i class=\"key {class}\"></i>{}", Escaped(&line.name))
    });
    let keys: String = keys.collect();
    let title = format!("{what}: tail");
    if let Some(svg) = figure::tail(&format!("{id}-t"), &title, &lines, 0, HEIGHT) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Tail.</b> Share of values within a time; each grid line \
             from 90 % down leaves a tenth of the one above. Times below 0.1 µs stand at the left \
             edge.{keys}</figcaption></figure>\n"
        );
    }
    let title = format!("{what}: percentiles");
    if let Some(svg) = figure::percentiles(&format!("{id}-p"), &title, &lines, HEIGHT) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Percentiles.</b> The time within which a share \
             lies.{keys}</figcaption></figure>\n"
        );
    }
}

fn phase(out: &mut String, id: &str, what: &str, cycle_ns: i64, lanes: &[Lane]) {
    let shown = &lanes[..lanes.len().min(MAX_LINES)];
    if let Some(svg) = figure::lanes(id, &format!("{what} in the cycle"), cycle_ns, shown) {
        let counted = |lane: &Lane| lane.counts.iter().sum::<u64>();
        let all: u64 = lanes.iter().map(counted).sum();
        let drawn: u64 = shown.iter().map(counted).sum();
        let rest = match drawn == all {
            true => String::new(),
            false => format!(" The first six: {} of all.", share(drawn, all)),
        };
        let windows = match shown.iter().any(|lane| !lane.windows.is_empty()) {
            true => " Shaded: when it may be there.",
            false => "",
        };
        put!(
            out,
            "<figure>{svg}<figcaption><b>{} in the cycle</b>, log \
             height.{windows}{rest}</figcaption></figure>\n",
            Escaped(what)
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of traced messages went: transmit side, link, receive side, beside the published
//! figures, as text and as HTML.
//!
//! Not here: the timeline of a capture (`timeline`).

use timewire_trace::stats::Distribution;
use timewire_trace::summary::{CaseSummary, ProcessingSummary, Published, TracedSummary};

use crate::group::{Scenario, distinct};
use crate::text::{Escaped, put, us, us_f64};

/// A stream of a case with its capture.
type Row<'a> = (&'a CaseSummary, &'a TracedSummary, &'a ProcessingSummary);

fn rows<'a>(scenario: &Scenario<'a>) -> Vec<Row<'a>> {
    let of_case = |&(_, case): &(usize, &'a CaseSummary)| {
        let traced = case.traced.iter();
        traced.flat_map(move |traced| traced.streams.iter().map(move |it| (case, traced, it)))
    };
    scenario.cases.iter().flat_map(of_case).collect()
}

/// What the parts are, and what told of the driver.
fn meaning(rows: &[Row<'_>]) -> String {
    let driver = distinct(rows.iter().flat_map(|(_, _, it)| it.driver.iter().map(String::as_str)));
    format!(
        "transmit: program to driver ({}); link: driver to the receiver's stack; receive: stack to \
         program",
        driver.join(" or ")
    )
}

/// The four parts, in the order of the columns.
fn parts(row: &ProcessingSummary) -> [Option<&Distribution>; 4] {
    [&row.transmit, &row.link, &row.receive, &row.transfer].map(Option::as_ref)
}

const PARTS: [&str; 4] = ["transmit", "link", "receive", "end to end"];

fn published_means(published: &Published) -> [Option<i64>; 4] {
    let Published { transmit_mean_ns, receive_mean_ns, transfer_mean_ns, .. } = *published;
    [transmit_mean_ns, None, receive_mean_ns, Some(transfer_mean_ns)]
}

/// The published figures of the scenario, where they tell the parts.
fn published<'a>(scenario: &Scenario<'a>) -> Option<&'a Published> {
    let all = scenario.cases.iter().filter_map(|(_, case)| case.published.as_ref());
    all.into_iter().find(|it| it.transmit_mean_ns.is_some() || it.receive_mean_ns.is_some())
}

/// Messages that have figures, of those sent; what the others lack.
fn joined(row: &ProcessingSummary) -> (u64, String) {
    let whole = row.sent.saturating_sub(row.incomplete).saturating_sub(row.ambiguous);
    let mut why = Vec::new();
    for (count, word) in [(row.incomplete, "incomplete"), (row.ambiguous, "ambiguous")] {
        if count > 0 {
            why.push(format!("{count} {word}"));
        }
    }
    (whole, why.join(", "))
}

/// The lines below the table of a scenario; nothing where it was not traced.
pub(crate) fn text(out: &mut String, scenario: &Scenario<'_>, plain: fn(&str) -> String) {
    let rows = rows(scenario);
    if rows.is_empty() {
        return;
    }
    put!(out, "\ntraced messages, all times in us; {}\n", plain(&meaning(&rows)));
    for (case, traced, _) in &rows {
        if traced.lost > 0 {
            let place = plain(&format!("{}/{}", case.case, case.load));
            put!(out, "{} events were LOST in {place}\n", traced.lost);
        }
    }
    let name = |(case, _, it): &Row<'_>| plain(&format!("{}: {}", case.case, it.stream));
    let names = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).max(9);
    let loads = rows.iter().map(|(case, ..)| plain(&case.load).chars().count());
    let loads = loads.max().unwrap_or(0).max(4);
    let mut heads = format!("{:names$} {:loads$} {:>6}", "", "", "");
    let mut columns = format!("{:names$} {:loads$} {:>6}", "case", "load", "n");
    for part in PARTS {
        put!(&mut heads, "  {part:>23}");
        put!(&mut columns, "  {:>7} {:>7} {:>7}", "mean", "p50", "p99");
    }
    put!(out, "{heads}\n{columns}\n");
    for row in &rows {
        let (case, _, found) = row;
        let (whole, why) = joined(found);
        put!(out, "{:names$} {:loads$} {whole:>6}", name(row), plain(&case.load));
        for part in parts(found) {
            match part {
                Some(part) => put!(
                    out,
                    "  {:>7} {:>7} {:>7}",
                    us_f64(part.mean_ns),
                    us(part.p50_ns),
                    us(part.p99_ns)
                ),
                None => put!(out, "  {:>7} {:>7} {:>7}", "-", "-", "-"),
            }
        }
        if !why.is_empty() {
            put!(out, "  {why}");
        }
        out.push('\n');
    }
    if let Some(published) = published(scenario) {
        put!(out, "{:names$} {:loads$} {:>6}", "published", "", "");
        for mean in published_means(published) {
            let mean = mean.map_or("-".to_owned(), us);
            put!(out, "  {mean:>7} {:>7} {:>7}", "", "");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    let pages = distinct(rows.iter().map(|(_, traced, _)| traced.page.as_str()));
    if let [first, ..] = pages[..] {
        put!(out, "over time: {} pages in the run directory, such as {first}\n", pages.len());
    }
}

/// The table of a scenario; nothing where it was not traced.
pub(crate) fn section(out: &mut String, scenario: &Scenario<'_>) {
    let rows = rows(scenario);
    if rows.is_empty() {
        return;
    }
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Traced messages, {}\">\
         <table class=\"numbers\">\n<caption>Traced messages. Times in µs; {}.",
        Escaped(&scenario.title("µs")),
        Escaped(&meaning(&rows))
    );
    let lost: u64 = scenario.cases.iter().filter_map(|(_, c)| Some(c.traced.as_ref()?.lost)).sum();
    match lost {
        0 => out.push_str(" No event was lost."),
        lost => put!(out, " <b>{lost} events were lost.</b>"),
    }
    out.push_str(
        "</caption>\n<thead><tr><th scope=\"col\" rowspan=\"2\">Case</th>\
         <th scope=\"col\" rowspan=\"2\" class=\"w\">Load</th>\
         <th scope=\"col\" rowspan=\"2\" class=\"w\">Stream</th>\
         <th scope=\"colgroup\" colspan=\"3\" class=\"g\">Messages</th>",
    );
    for part in PARTS {
        put!(out, "<th scope=\"colgroup\" colspan=\"3\" class=\"g\">{part}</th>");
    }
    out.push_str(
        "<th scope=\"col\" rowspan=\"2\" class=\"w g\">Over time</th></tr>\n<tr>\
         <th scope=\"col\" class=\"g\">joined</th><th scope=\"col\">incomplete</th>\
         <th scope=\"col\">ambiguous</th>",
    );
    for _ in PARTS {
        out.push_str(
            "<th scope=\"col\" class=\"g\">mean</th><th scope=\"col\">p50</th>\
             <th scope=\"col\">p99</th>",
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (case, traced, found) in &rows {
        let (whole, _) = joined(found);
        put!(
            out,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"w\">{}</td>\
             <td class=\"w\">{}</td><td class=\"g\">{whole}</td>",
            Escaped(&case.title),
            Escaped(&case.load),
            Escaped(&found.stream)
        );
        for count in [found.incomplete, found.ambiguous] {
            let weight = if count == 0 { "zero" } else { "some" };
            put!(out, "<td class=\"{weight}\">{count}</td>");
        }
        for part in parts(found) {
            match part {
                Some(part) => put!(
                    out,
                    "<td class=\"g key-figure\">{}</td><td>{}</td><td>{}</td>",
                    us_f64(part.mean_ns),
                    us(part.p50_ns),
                    us(part.p99_ns)
                ),
                None => out.push_str("<td class=\"g\">–</td><td>–</td><td>–</td>"),
            }
        }
        let page = Escaped(&traced.page);
        put!(out, "<td class=\"w g\"><a href=\"{page}\">timeline</a></td></tr>\n");
    }
    if let Some(published) = published(scenario) {
        out.push_str(
            "<tr><th scope=\"row\" class=\"name\">Published</th><td class=\"w\">–</td>\
             <td class=\"w\">–</td><td class=\"g\">–</td><td>–</td><td>–</td>",
        );
        for mean in published_means(published) {
            let mean = mean.map_or("–".to_owned(), us);
            put!(out, "<td class=\"g key-figure\">{mean}</td><td>–</td><td>–</td>");
        }
        out.push_str("<td class=\"w g\">–</td></tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

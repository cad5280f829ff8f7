// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of traced messages went: transmit side, link, receive side, beside the published
//! figures, as text and as HTML.

use timewire_capture::summary::{CaseSummary, ProcessingSummary, Published, TracedSummary};
use timewire_stats::Distribution;

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
    let driver = match driver.join(" or ") {
        none if none.is_empty() => none,
        points => format!(" ({points})"),
    };
    format!(
        "transmit: program to driver{driver}; link: driver to the receiver's stack; receive: stack \
         to program"
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
        match pages.len() {
            1 => put!(out, "drawn: {first} in the run directory\n"),
            many => put!(out, "drawn: {many} pages in the run directory, such as {first}\n"),
        }
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
        "<th scope=\"col\" rowspan=\"2\" class=\"w g\">Drawn</th></tr>\n<tr>\
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
        put!(out, "<td class=\"w g\"><a href=\"{page}\">packet paths</a></td></tr>\n");
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

#[cfg(test)]
mod tests {
    use timewire_base::Span;
    use timewire_capture::summary::{Summary, TracedSummary};
    use timewire_stats::Bins;

    use super::*;
    use crate::group::scenarios;

    /// The small sample, its first case traced: two messages joined, one incomplete, three events
    /// lost.
    fn sample() -> Summary {
        let text = include_str!("../tests/fixtures/small.json");
        let mut summary = Summary::from_json(text).unwrap();
        let of = |us: [i64; 2]| {
            let bins = Bins::covering(Span::from_us(500), Span::from_us(2));
            Distribution::of(us.map(|us| us * 1_000).to_vec(), bins)
        };
        let case = &mut summary.cases[0];
        case.published = Some(Published {
            source: "somebody".to_owned(),
            transfer_mean_ns: 537_000,
            transmit_mean_ns: Some(492_000),
            receive_mean_ns: None,
        });
        case.traced = Some(TracedSummary {
            captures: vec!["cases/a/trace.twc".to_owned()],
            page: "cases/<a>/trace.html".to_owned(),
            lost: 3,
            streams: vec![ProcessingSummary {
                stream: "line-1".to_owned(),
                sent: 3,
                incomplete: 1,
                ambiguous: 0,
                driver: vec!["mac.transmit".to_owned()],
                transmit: of([100, 300]),
                link: of([5, 7]),
                receive: of([40, 60]),
                transfer: of([145, 367]),
            }],
        });
        summary
    }

    #[test]
    fn t0_parts_stand_beside_what_is_published_and_losses_come_first() {
        let summary = sample();
        let mut out = String::new();
        text(&mut out, &scenarios(&summary)[0], str::to_owned);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[1].contains("program to driver (mac.transmit)"), "{out}");
        assert!(lines[2].starts_with("3 events were LOST in "), "{out}");
        let row = lines.iter().find(|line| line.contains(": line-1")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let of = words.iter().position(|word| *word == "2").unwrap();
        let figures = ["2", "200.0", "100.0", "300.0", "6.0", "5.0", "7.0", "50.0", "40.0", "60.0"];
        assert_eq!(words[of..of + figures.len()], figures, "{out}");
        assert!(row.ends_with("256.0   145.0   367.0  1 incomplete"), "{out}");
        let published = lines.iter().find(|line| line.starts_with("published ")).unwrap();
        let means: Vec<&str> = published.split_whitespace().skip(1).collect();
        assert_eq!(means, ["492.0", "-", "-", "537.0"]);
    }

    #[test]
    fn t0_the_table_leads_to_the_page() {
        let summary = sample();
        let mut out = String::new();
        section(&mut out, &scenarios(&summary)[0]);
        assert!(out.contains("<b>3 events were lost.</b>"), "{out}");
        assert!(out.contains("href=\"cases/&lt;a&gt;/trace.html\""), "{out}");
        assert!(out.contains("<td class=\"some\">1</td><td class=\"zero\">0</td>"), "{out}");
    }

    #[test]
    fn t0_what_was_not_traced_is_not_spoken_of() {
        let mut summary = sample();
        summary.cases.iter_mut().for_each(|case| case.traced = None);
        let mut out = String::new();
        text(&mut out, &scenarios(&summary)[0], str::to_owned);
        section(&mut out, &scenarios(&summary)[0]);
        assert_eq!(out, "");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a page shows beside the numbers of its summary, and the pages and texts of runs that are no
//! experiments: same bytes, nothing of a run taken for markup, figures with words.

use crate::run_report_sample::report;
use timewire_capture::series::{StreamTimeSeries, TimeSeries};
use timewire_capture::summary::Summary;
use timewire_capture::sync::ClockSeries;
use timewire_report::run_report::{
    RUN_REPORT_SCHEMA, SPREAD_HEAD, run_report_html, run_report_markdown,
};
use timewire_report::{
    Carried, Extras, LongPacketPath, Topology, TopologyKind, TopologyLink, TopologyNode, html,
    html_with, summary_markdown,
};

const HOSTILE: &str = "<script>alert('x')</script>\"|*\u{1b}[2J";

fn small() -> Summary {
    serde_json::from_str(include_str!("fixtures/small.json")).unwrap()
}

/// All of it, with this text wherever there is one.
fn extras(summary: &Summary, text: &str) -> Extras {
    let case = &summary.cases[0];
    let stream = &case.streams[0];
    let values = (0..1_000_i64).map(|at| (at * 1_000_000, 90_000 + at % 7 * 1_000));
    let late = values.chain([(500_000_500, 9_000_000)]);
    let transfer = TimeSeries::of(late, Some([1_000_000, 2_000_000])).unwrap();
    let series = StreamTimeSeries { name: stream.name.clone(), class: stream.class, transfer };
    let node = |kind| TopologyNode { name: text.to_owned(), kind };
    let carried = Some([Carried { frames: 7, share: 0.8 }, Carried::default()]);
    Extras {
        series: [(case.id.clone(), vec![series])].into(),
        clocks: vec![ClockSeries {
            name: text.to_owned(),
            points: (0..2_000).map(|at| (at * 500_000_000, at % 11 - 5)).collect(),
        }],
        topology: Some(Topology {
            nodes: [TopologyKind::Station, TopologyKind::Bridge, TopologyKind::Segment]
                .map(node)
                .to_vec(),
            links: vec![
                TopologyLink { ends: [0, 1], rate_bps: 100_000_000, carried },
                TopologyLink { ends: [1, 2], rate_bps: 100_000_000, carried: None },
            ],
        }),
        longest: [(
            case.id.clone(),
            vec![LongPacketPath {
                flow: text.to_owned(),
                end_to_end_ns: 3_000,
                sentence: text.to_owned(),
                stages: vec![(text.to_owned(), 0, 1_000), ("wire".to_owned(), 1_000, 2_000)],
            }],
        )]
        .into(),
    }
}

/// What every page keeps to.
fn keeps(page: &str) {
    for word in ["http:", "https:", "<script", "@import", "\u{1b}", "NaN"] {
        assert!(!page.contains(word), "`{word}` on the page");
    }
    for tag in page.split('<').skip(1).filter_map(|t| t.split_once('>')).map(|(tag, _)| tag) {
        assert!(tag.matches('"').count() % 2 == 0, "<{tag}>");
    }
    for svg in page.split("<svg ").skip(1) {
        let (svg, _) = svg.split_once("</svg>").unwrap();
        assert!(svg.contains("role=\"img\"") && svg.contains("<title"), "{svg:.80}");
    }
    for table in page.split("<table").skip(1) {
        let (table, _) = table.split_once("</table>").unwrap();
        assert!(table.contains("<caption>") && !table.contains("<th>"), "{table:.80}");
    }
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|t| t.split('"').next()).collect();
    let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "ids are unique");
    for target in page.split("href=\"#").skip(1).filter_map(|t| t.split('"').next()) {
        assert!(ids.contains(&target), "#{target} leads nowhere");
    }
}

#[test]
fn t1_extras_have_their_figures_and_without_them_there_are_none() {
    let summary = small();
    let page = html_with(&summary, &extras(&summary, "a name"));
    keeps(&page);
    for text in [
        "id=\"network\"",
        "80 %</text>",
        "Links, the busiest first",
        "id=\"clocks\"",
        "2000 samples in 999.5 s",
        "by its Send.",
        "above: 0.100 %",
        "The longest packet paths",
        "wire 2.00 µs. ",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page, html_with(&summary, &extras(&summary, "a name")), "the same bytes");
    let without = html(&summary);
    for text in ["id=\"network\"", "id=\"clocks\"", "by its Send.", "The longest packet paths"] {
        assert!(!without.contains(text), "{text}");
    }
    keeps(&html_with(&summary, &extras(&summary, HOSTILE)));
}

#[test]
fn t1_many_values_take_the_room_of_few() {
    let random = |at: i64| (at.wrapping_mul(0x1d87_2b41) >> 7).rem_euclid(4_000_000) + 1_000;
    let series = |count: i64| TimeSeries::of((0..count).map(|at| (at, random(at))), None).unwrap();
    let page = |count| {
        let summary = small();
        let mut extras = extras(&summary, "a");
        extras.series.values_mut().for_each(|all| all[0].transfer = series(count));
        html_with(&summary, &extras).len()
    };
    let (few, many) = (page(10_000), page(2_000_000));
    assert!(many < few + 100_000 && many < 500_000, "{few} and {many} bytes");
}

#[test]
fn t1_pages_of_run_reports_keep_what_reports_keep() {
    for text in ["a name", HOSTILE] {
        let page = run_report_html(&report(text));
        keeps(&page);
        assert_eq!(page, run_report_html(&report(text)), "the same bytes");
        assert!(page.contains("<b>FAIL</b>") && page.contains("Cut short."));
        assert_eq!(page.matches("<figure>").count(), 7, "{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&report(HOSTILE).to_json().unwrap()).unwrap();
    assert_eq!((&json["schema"], &json["verdict"]), (&RUN_REPORT_SCHEMA.into(), &"fail".into()));
    assert_eq!(json["sections"][0]["tables"][0]["rows"].as_array().map(Vec::len), Some(2));
}

#[test]
fn t1_markdown_has_the_verdict_first_and_no_markup_of_a_run() {
    let text = run_report_markdown(&report(HOSTILE));
    assert!(!text.contains("<script") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("\\|\\*") && text.contains("| **fail** |"), "{text}");
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let bars = row.replace("\\|", "").matches('|').count();
        assert!([5, SPREAD_HEAD.len() + 1].contains(&bars), "{row}");
    }
    let text = summary_markdown(&small());
    assert!(text.lines().nth(2).unwrap().starts_with("**"), "{text}");
    assert!(text.contains("Transfer times of real time"), "{text}");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page and the tables against recorded text, and what every page keeps to: same bytes, nothing
//! fetched, nothing of a run taken for markup, figures with words, light.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::sample;
use timewire_capture::summary::{
    BackendChoice, BackendSummary, LaunchSummary, PassedOver, ReservedSummary, SlotPromise, Summary,
};
use timewire_report::{TableOptions, html, table};

const STYLE: &str = include_str!("../src/style.css");

fn small() -> Summary {
    serde_json::from_str(include_str!("fixtures/small.json")).unwrap()
}

/// Compares with a recorded file; with `TIMEWIRE_BLESS` set, records instead.
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    if std::env::var_os("TIMEWIRE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    let line = want.lines().zip(text.lines()).position(|(a, b)| a != b);
    let at = line.unwrap_or_else(|| want.lines().count().min(text.lines().count()));
    assert!(
        want == text,
        "{name} differs from line {}:\nrecorded: {}\nnow:      {}\n(TIMEWIRE_BLESS=1 records anew)",
        at + 1,
        want.lines().nth(at).unwrap_or("<end>"),
        text.lines().nth(at).unwrap_or("<end>"),
    );
}

#[test]
fn t1_table_at_full_width() {
    golden("small.table.txt", &table(&small(), TableOptions::default()));
}

/// The small run with backends of the kernel, one chosen and one with something to say.
fn with_backends() -> Summary {
    let mut summary = small();
    let backend = |name: &str, slots| {
        let promise = format!("what {name} <promises>");
        Some(BackendSummary { name: name.to_owned(), slots, promise })
    };
    summary.backends = vec![BackendChoice {
        scenario: "small".to_owned(),
        asked: "auto".to_owned(),
        chosen: "etf".to_owned(),
        why: "it is the best that works here".to_owned(),
        lacks: "it is not <all> it promises".to_owned(),
        passed_over: vec![PassedOver {
            backend: "taprio".to_owned(),
            why: "the kernel refuses <it>".to_owned(),
        }],
    }];
    let first = &mut summary.cases[1];
    first.backend = backend("etf", SlotPromise::RealTime);
    (first.wire.real_time_frames, first.wire.real_time_outside_slots) = (100, 1);
    let error = first.streams[0].transfer.clone();
    first.streams[0].launch = Some(LaunchSummary { launched: 100, refused: 1, missed: 2, error });
    let second = &mut summary.cases[2];
    second.tdm = false;
    second.backend = backend("cbs", SlotPromise::None);
    second.reserved = vec![ReservedSummary {
        station: "alpha".to_owned(),
        rate_bps: 1_250_000,
        burst_bits: 1_042,
        frames: 100,
        outside_rate: 3,
    }];
    summary
}

#[test]
fn t1_backends_and_the_choice_among_them_are_told() {
    let summary = with_backends();
    golden("backends.table.txt", &table(&summary, TableOptions::default()));
    let page = html(&summary);
    let tell = [
        "<h2 id=\"backends\">Backends</h2>",
        "backend of small: etf, because it is the best that works here (--backend auto); but it is \
         not &lt;all&gt; it promises.",
        "<th scope=\"row\">taprio</th><td>the kernel refuses &lt;it&gt;</td>",
        "<dt>SocketType</dt><dd>etf: what etf &lt;promises&gt;</dd>",
        "<dt>Of real time, outside</dt><dd>1 (1.0 %)</dd>",
        "100 given, 1 refused, 2 missed",
        "<dt>Rate of alpha</dt><dd>1.250 Mbit/s and a burst of 1042 bit reserved; 3 of 100",
    ];
    for text in tell {
        assert!(page.contains(text), "{text}");
    }
    assert!(!html(&small()).contains("id=\"backends\""));
}

#[test]
fn t1_table_for_a_narrow_terminal_with_colour() {
    let text = table(&small(), TableOptions { width: 72, colour: true });
    golden("small.table-72-colour.txt", &text);
}

#[test]
fn t1_table_never_exceeds_the_width_it_was_given() {
    let summary = sample::summary();
    for width in [60, 72, 80, 100, 120, 132, 160, 200] {
        let text = table(&summary, TableOptions { width, colour: false });
        let rows = text.lines().filter(|l| l.starts_with("tdm") || l.starts_with("---"));
        let widest = rows.map(|l| l.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} columns where {width} were asked for");
    }
}

#[test]
fn t1_page_of_a_small_run() {
    let page = html(&small());
    assert!(page.contains(STYLE), "the page carries its style sheet");
    // The style sheet has a file of its own; here it would only drown the structure.
    golden("small.html", &page.replace(STYLE, "/* style.css */\n"));
}

#[test]
fn t1_same_summary_same_bytes() {
    let (one, two) = (sample::summary(), sample::summary());
    assert_eq!(html(&one), html(&two));
    let options = TableOptions { width: 160, colour: true };
    assert_eq!(table(&one, options), table(&two, options));
}

#[test]
fn t1_text_of_a_run_is_never_markup() {
    let hostile = "<script>alert('x')</script>\"\u{1b}[2J";
    let mut summary = small();
    summary.title = hostile.into();
    summary.tool = hostile.into();
    summary.schema = hostile.into();
    for fact in &mut summary.environment {
        (fact.area, fact.name, fact.value) = (hostile.into(), hostile.into(), hostile.into());
    }
    for finding in &mut summary.findings {
        (finding.id, finding.limit) = (hostile.into(), hostile.into());
        (finding.measured, finding.note) = (hostile.into(), hostile.into());
    }
    for case in &mut summary.cases {
        (case.id, case.scenario) = (hostile.into(), hostile.into());
        (case.case, case.title, case.load) = (hostile.into(), hostile.into(), hostile.into());
        case.slots.iter_mut().for_each(|s| s.station = hostile.into());
        case.published.iter_mut().for_each(|p| p.source = hostile.into());
        case.streams.iter_mut().for_each(|s| s.name = hostile.into());
        case.wire.phases.iter_mut().for_each(|p| p.station = hostile.into());
        for mac in &mut case.macs {
            (mac.station, mac.socket) = (hostile.into(), hostile.into());
            mac.queues.iter_mut().for_each(|q| q.name = hostile.into());
        }
    }
    let page = html(&summary);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;"));
    // Attribute values end where they should: outside of tags no stray quote breaks the count.
    for tag in page.split('<').skip(1).filter_map(|t| t.split_once('>')).map(|(tag, _)| tag) {
        assert!(tag.matches('"').count() % 2 == 0, "<{tag}>");
    }
    let text = table(&summary, TableOptions::default());
    assert!(!text.contains('\u{1b}') && text.contains("alert('x')"));
}

#[test]
fn t1_nothing_is_fetched() {
    let page = html(&sample::summary());
    for word in ["http:", "https:", "//", "@import", "<script", "<link rel=\"stylesheet"] {
        assert!(!page.contains(word), "`{word}` on the page");
    }
    for attribute in ["src=\"", "href=\"", "url("] {
        for target in page.split(attribute).skip(1) {
            let inside = target.starts_with('#') || target.starts_with("data:,");
            assert!(inside, "{attribute}{}", target.chars().take(40).collect::<String>());
        }
    }
}

#[test]
fn t1_figures_tables_and_headings_speak_for_themselves() {
    let page = html(&sample::summary());
    for svg in page.split("<svg ").skip(1) {
        let (svg, _) = svg.split_once("</svg>").unwrap();
        assert!(svg.starts_with("role=\"img\"") || svg.contains(" role=\"img\""), "{svg:.80}");
        let title = svg.split_once("<title").and_then(|(_, t)| t.split_once("</title>")).unwrap();
        assert!(!title.0.is_empty());
    }
    for table in page.split("<table").skip(1) {
        let (table, _) = table.split_once("</table>").unwrap();
        assert!(table.contains("<caption>"), "{table:.80}");
        assert!(table.split("<th ").skip(1).all(|th| th.starts_with("scope=\"")), "{table:.200}");
        assert!(!table.contains("<th>"));
    }
    let mut level = 0;
    for tag in page.split("<h").skip(1) {
        let Some(next) = tag.chars().next().and_then(|c| c.to_digit(10)) else {
            continue;
        };
        assert!(next <= level + 1, "h{next} after h{level}");
        level = next;
    }
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|t| t.split('"').next()).collect();
    let unique: BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "ids are unique");
    for target in page.split("href=\"#").skip(1).filter_map(|t| t.split('"').next()) {
        assert!(ids.contains(&target), "#{target} leads nowhere");
    }
}

#[test]
fn t1_a_full_run_stays_light() {
    let bytes = html(&sample::summary()).len();
    assert!(bytes < 700_000, "{bytes} bytes");
}

#[test]
fn t1_a_run_without_any_data_still_has_a_page() {
    let mut summary = small();
    for case in &mut summary.cases {
        case.wire.phases.clear();
        for stream in &mut case.streams {
            (stream.transfer, stream.slot_wait, stream.receive) = (None, None, None);
        }
    }
    assert!(html(&summary).contains("No message was received in any case."));
    assert!(table(&summary, TableOptions::default()).contains("verdict: FAIL"));
    summary.cases.clear();
    summary.findings.clear();
    summary.environment.clear();
    assert!(html(&summary).contains("No limits were set"));
    assert_eq!(
        table(&summary, TableOptions::default()),
        "note: the run was cut short; the figures cover what was recorded until then\n\
         verdict: FAIL (no limits were set)\n"
    );
}

/// Text colours reach 4.5:1 and marks of figures 3:1 on the ground, in both schemes.
#[test]
fn t1_colours_have_contrast() {
    let light = STYLE.split("@media").next().unwrap();
    let dark = STYLE.split("prefers-color-scheme: dark").nth(1).unwrap();
    for (scheme, style) in [("light", light), ("dark", dark)] {
        let colour = |name: &str| {
            let (_, value) = style.split_once(&format!("--{name}: #")).unwrap();
            luminance(&value[..6])
        };
        let texts = ["text", "dim", "good", "bad", "open", "focus"].map(|n| (n, 4.5));
        let marks = ["s1", "s2", "s3", "s4", "s5", "s6", "axis"].map(|n| (n, 3.0));
        for (name, least) in texts.into_iter().chain(marks) {
            for ground in ["ground", "raised"] {
                let (a, b) = (colour(name), colour(ground));
                let ratio = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(ratio >= least, "{scheme}: --{name} on --{ground} is {ratio:.2}:1");
            }
        }
    }
}

/// Relative luminance as WCAG 2 defines it.
fn luminance(hex: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A whole comparison: what it holds against each other, what its text and its page keep to.

use std::collections::BTreeMap;

use crate::sample;
use timewire_capture::analyse::{CaseSeries, StreamSeries};
use timewire_capture::summary::{Finding, StreamClass};
use timewire_report::compare::synthetic::Latencies;
use timewire_report::compare::{
    Changed, Comparison, Hosts, Overall, Rules, Side, Verdict, compare, html, table,
};

const CASE: &str = "transfer-64/tdm/flood";

/// A run of one case; `lost` and `outside` of a thousand messages and frames are.
fn side(directory: &str, (seed, factor): (u64, f64), lost: usize, outside: usize) -> Side {
    let mut source = Latencies::new(seed, 0.5);
    let mut summary = sample::summary();
    summary.cases.retain(|case| case.id == CASE);
    let spread = |of: usize| (0..6_000).map(|at| at * 7_919 % 1_000 < of).collect::<Vec<_>>();
    let stream = StreamSeries {
        name: "control".to_owned(),
        class: StreamClass::RealTime,
        transfer: source.take(6_000, factor),
        slot_wait: source.take(6_000, factor),
        receive: Vec::new(),
        skipped: spread(0),
        lost: spread(lost),
        late: spread(0),
    };
    Side {
        directory: directory.to_owned(),
        summary,
        cases: vec![CaseSeries {
            id: CASE.to_owned(),
            streams: vec![stream],
            outside: Some(spread(outside)),
            unobserved: 0,
        }],
        scenarios: BTreeMap::from([("transfer-64".to_owned(), "cycle: 1ms\n".to_owned())]),
    }
}

fn against(a: &Side, b: &Side) -> Comparison {
    compare(a, b, Hosts::default(), Rules::default())
}

fn verdict(comparison: &Comparison, name: &str) -> Verdict {
    let metrics = &comparison.cases[0].metrics;
    metrics.iter().find(|metric| metric.metric == name).unwrap().verdict
}

#[test]
fn t1_a_run_is_the_same_as_itself() {
    let a = side("a", (1, 1.0), 3, 0);
    let found = against(&a, &a);
    assert_eq!(found.verdict, Overall::Same);
    assert_eq!((found.counts.worse, found.counts.better, found.counts.inconclusive), (0, 0, 0));
    assert!(found.environment.is_empty() && found.scenarios.is_empty());
    assert!(table(&found, true, false).contains("(the very same values)"));
    assert!(html(&found, &a, &a).contains("<p>Nothing that was recorded.</p>"));
}

#[test]
fn t1_what_was_skipped_is_a_count_of_its_own() {
    let a = side("a", (1, 1.0), 0, 0);
    let mut b = side("b", (1, 1.0), 0, 0);
    let has = |found: &Comparison| found.cases[0].metrics.iter().any(|it| it.metric == "skipped");
    assert!(!has(&against(&a, &a)));
    b.cases[0].streams[0].skipped = (0..6_000).map(|at| at * 7_919 % 1_000 < 30).collect();
    let found = against(&a, &b);
    assert!(has(&found));
    assert_eq!(verdict(&found, "skipped"), Verdict::Worse);
    assert_ne!(verdict(&found, "lost"), Verdict::Worse);
    assert!(table(&found, true, false).contains("skipped"));
}

#[test]
fn t1_each_kind_of_metric_can_be_worse_and_better() {
    let a = side("a", (1, 1.0), 2, 1);
    let b = side("b", (2, 1.5), 30, 40);
    let found = against(&a, &b);
    assert_eq!(found.verdict, Overall::Worse);
    let names = ["latency-p50", "latency-mean", "slot-wait-p50", "lost", "outside-slots"];
    for name in names {
        assert_eq!(verdict(&found, name), Verdict::Worse, "{name}: {found:?}");
        assert_eq!(verdict(&against(&b, &a), name), Verdict::Better, "{name}");
    }
    // None late of 6000 messages each.
    assert_eq!(verdict(&found, "late"), Verdict::Inconclusive);
    assert_eq!(verdict(&found, "latency-max"), Verdict::Shown);
    assert_eq!(against(&b, &a).verdict, Overall::Better);
    // A metric without any value is not there; one interval for each that is judged by one.
    assert!(found.cases[0].metrics.iter().all(|metric| !metric.metric.starts_with("receive")));
    assert_eq!(found.intervals, 9);
    let text = table(&found, false, false);
    assert!(
        text.contains("\n  worse        control        lost                  0.2 % ->"),
        "{text}"
    );
    assert!(text.contains("\nverdict: WORSE ("), "{text}");
}

/// One message more or less does not make a verdict.
#[test]
fn t1_that_neither_run_lost_any_says_as_much_as_their_length() {
    let a = side("a", (1, 1.0), 0, 0);
    let mut b = side("b", (2, 1.0), 0, 0);
    let mut verdicts = |share_tolerance| {
        let mut found = Vec::new();
        for _ in 0..2 {
            let rules = Rules { share_tolerance, ..Rules::default() };
            let compared = compare(&a, &b, Hosts::default(), rules);
            found.extend(["lost", "outside-slots"].map(|name| verdict(&compared, name)));
            b.cases[0].streams[0].lost.push(false);
            b.cases[0].outside.as_mut().unwrap().push(false);
        }
        found
    };
    assert_eq!(verdicts(0.001), [Verdict::Inconclusive; 4]);
    assert_eq!(verdicts(0.01), [Verdict::Same; 4]);
}

#[test]
fn t1_frames_that_nobody_observed_prove_nothing() {
    let a = side("a", (1, 1.0), 0, 0);
    let mut b = side("b", (2, 1.0), 0, 40);
    b.cases[0].unobserved = 1;
    assert_eq!(verdict(&against(&a, &b), "outside-slots"), Verdict::Inconclusive);
}

/// A message whose timestamp was given up is not lost.
#[test]
fn t1_incomplete_records_are_told_and_no_share_is_judged_by_them() {
    let a = side("a", (1, 1.0), 0, 0);
    let mut b = side("b", (2, 1.5), 30, 40);
    let note = |id: &str, measured: String| Finding {
        id: id.to_owned(),
        verdict: None,
        limit: String::new(),
        measured,
        note: String::new(),
    };
    b.summary.findings = vec![
        note("timestamps-lost", format!("{CASE}: 30 timestamps given up by hub")),
        note("timestamps-lost", format!("{CASE}-2: 7 timestamps of another case")),
        note("timestamps-repeated", format!("{CASE}: 3 more")),
    ];
    let found = against(&a, &b);
    assert_eq!(found.cases[0].incomplete, ["B: 30 timestamps given up by hub"]);
    for name in ["lost", "late", "outside-slots"] {
        assert_eq!(verdict(&found, name), Verdict::Inconclusive, "{name}");
    }
    assert_eq!(verdict(&found, "latency-p50"), Verdict::Worse);
    // What a program had timestamped when it was killed may not be in its file.
    b.summary.findings = vec![note("records-open", format!("{CASE}: 1 record file not closed"))];
    let cut = against(&a, &b);
    assert_eq!(cut.cases[0].incomplete, ["B: 1 record file not closed"]);
    assert_eq!(verdict(&cut, "lost"), Verdict::Inconclusive);
    let told = "\n  records are not complete: B: 30 timestamps given up by hub\n";
    assert!(table(&found, false, false).contains(told));
    assert!(html(&found, &a, &b).contains("Records are not complete: B: 30 timestamps"));
}

#[test]
fn t1_what_is_not_the_same_around_the_runs_is_told() {
    let a = side("a", (1, 1.0), 0, 0);
    let mut b = a.clone();
    b.summary.environment[0].value = "another <b>".to_owned();
    let gone = b.summary.environment.pop().unwrap();
    b.scenarios.insert("transfer-64".to_owned(), "cycle: 2ms\n".to_owned());
    b.cases.push(CaseSeries { id: "new/tdm/alone".to_owned(), ..b.cases[0].clone() });
    let mut stream = b.cases[0].streams[0].clone();
    stream.name = "extra".to_owned();
    b.cases[0].streams.push(stream);
    let setting = Changed {
        area: "s.alpha".to_owned(),
        name: "host.governor".to_owned(),
        a: Some("1".to_owned()),
        b: None,
    };
    let hosts = Hosts { compared: 1, changes: vec![setting], unreadable: Vec::new() };
    let found = compare(&a, &b, hosts, Rules::default());
    assert_eq!(found.environment.len(), 2);
    assert_eq!(found.environment[0].b.as_deref(), Some("another <b>"));
    assert_eq!((&found.environment[1].name, &found.environment[1].b), (&gone.name, &None));
    assert_eq!(found.scenarios[0].lines, ["- cycle: 1ms", "+ cycle: 2ms"]);
    assert_eq!(
        (found.only_in_a.len(), found.only_in_b.as_slice()),
        (0, &["new/tdm/alone".into()][..])
    );
    assert_eq!(found.cases[0].not_in_both, ["extra is only in B"]);
    let (text, page) = (table(&found, false, false), html(&found, &a, &b));
    for line in [
        "host differs: s.alpha: host.governor: 1 -> nothing\n",
        "\n  - cycle: 1ms\n  + cycle: 2ms\n",
        "\nonly in B: new/tdm/alone\n",
        "\n  stream extra is only in B\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(page.contains("another &lt;b&gt;") && !page.contains("another <b>"), "it is escaped");
}

#[test]
fn t1_the_page_is_the_same_every_time_and_fetches_nothing() {
    let (a, b) = (side("a", (1, 1.0), 2, 1), side("b", (2, 1.5), 30, 40));
    let found = against(&a, &b);
    let page = html(&found, &a, &b);
    assert_eq!(page, html(&against(&a, &b), &a, &b));
    assert_eq!(found.to_json(), against(&a, &b).to_json());
    for word in ["http://", "https://", "<script", "NaN", "inf"] {
        let own = page.replace("interval", "").replace("information", "");
        assert!(!own.contains(word), "{word}");
    }
    for tag in ["section", "table", "tr", "td", "th", "svg", "figure", "details", "div", "main"] {
        let open =
            page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(page.contains("<title>WORSE: "));
    assert!(page.matches("<figure>").count() >= 1, "distributions over each other");
}

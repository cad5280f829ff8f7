// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report with one of everything. It measures nothing; it is for looking at pages and for tests.

use timewire_base::Verdict;
use timewire_capture::series::TimeSeries;
use timewire_capture::summary::Finding;
use timewire_capture::sync::ClockSeries;
use timewire_report::run_report::{
    Drawing, Lane, RUN_REPORT_SCHEMA, RunReport, SPREAD_HEAD, Section, Spread, Table,
};

/// With this text wherever there is one.
pub fn report(text: &str) -> RunReport {
    let spread = |name: &str, from: i64| Spread::of(name, (from..from + 3_000).collect()).unwrap();
    let mut table = Table::new(text, 1, &SPREAD_HEAD);
    let spreads = vec![spread(text, -500), spread("two", 900)];
    table.rows = spreads.iter().map(Spread::row).collect();
    let series = TimeSeries::of((0..99).map(|at| (at * 7, at)), None).map(Box::new).unwrap();
    let lane = Lane {
        name: text.to_owned(),
        bin_ns: 10_000,
        counts: vec![1, 0, 5, 900],
        windows: vec![(0, 15_000)],
    };
    let of = |text: &str| text.to_owned();
    let drawings = vec![
        Drawing::Spreads { what: of(text), spreads },
        Drawing::TimeSeries { what: of(text), name: of(text), series: series.clone() },
        Drawing::Numbered { what: of(text), name: of(text), series },
        Drawing::Clock(ClockSeries { name: of(text), points: vec![(0, 1), (9, -4)] }),
        Drawing::Phase { what: of(text), cycle_ns: 40_000, lanes: vec![lane] },
    ];
    let section = Section { title: of(text), intro: of(text), tables: vec![table], drawings };
    let mut report = RunReport {
        schema: RUN_REPORT_SCHEMA,
        kind: "talk",
        title: of(text),
        verdict: None,
        why: String::new(),
        complete: false,
        facts: vec![(of(text), of(text))],
        findings: vec![Finding {
            id: of(text),
            verdict: Some(Verdict::Fail),
            limit: of(text),
            measured: of(text),
            note: of(text),
        }],
        sections: vec![section],
        environment: Vec::new(),
    };
    report.judge(None);
    report
}

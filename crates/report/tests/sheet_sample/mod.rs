// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sheet with one of everything. It measures nothing; it is for looking at pages and for tests.

use timewire_report::sheet::{
    Drawing, Lane, SHEET_SCHEMA, SPREAD_HEAD, Section, Sheet, Spread, Standing, Table,
};
use timewire_trace::course::Course;
use timewire_trace::summary::{Finding, Outcome};
use timewire_trace::sync::ClockCourse;

/// With this text wherever there is one.
pub fn sheet(text: &str) -> Sheet {
    let spread = |name: &str, from: i64| Spread::of(name, (from..from + 3_000).collect()).unwrap();
    let mut table = Table::new(text, 1, &SPREAD_HEAD);
    let spreads = vec![spread(text, -500), spread("two", 900)];
    table.rows = spreads.iter().map(Spread::row).collect();
    let course = Course::of((0..99).map(|at| (at * 7, at)), None).map(Box::new).unwrap();
    let lane = Lane {
        name: text.to_owned(),
        bin_ns: 10_000,
        counts: vec![1, 0, 5, 900],
        windows: vec![(0, 15_000)],
    };
    let of = |text: &str| text.to_owned();
    let drawings = vec![
        Drawing::Spreads { what: of(text), spreads },
        Drawing::Course { what: of(text), name: of(text), course: course.clone() },
        Drawing::Numbered { what: of(text), name: of(text), course },
        Drawing::Clock(ClockCourse { name: of(text), points: vec![(0, 1), (9, -4)] }),
        Drawing::Phase { what: of(text), cycle_ns: 40_000, lanes: vec![lane] },
    ];
    let section = Section { title: of(text), intro: of(text), tables: vec![table], drawings };
    let mut sheet = Sheet {
        schema: SHEET_SCHEMA,
        kind: "talk",
        title: of(text),
        verdict: Standing::Measured,
        why: String::new(),
        complete: false,
        facts: vec![(of(text), of(text))],
        findings: vec![Finding {
            id: of(text),
            outcome: Outcome::Missed,
            limit: of(text),
            measured: of(text),
            note: of(text),
        }],
        sections: vec![section],
        environment: Vec::new(),
    };
    sheet.judge(None);
    sheet
}

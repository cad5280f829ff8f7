// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run came to as Markdown, short enough for a comment on a change: verdict, limits, the
//! key numbers.

use timewire_base::Verdict;
use timewire_capture::summary::{Finding, StreamClass, Summary};

use super::page::word;
use super::{RunReport, Table, folded};
use crate::group::{by_weight, tally};
use crate::text::{put, us, us_f64};

/// Rows of a table that are shown; a report has them all.
const ROWS: usize = 30;

/// The summary of an experiment or a simulation.
pub fn of_summary(summary: &Summary) -> String {
    let mut out = String::new();
    let (verdict, why) = (summary.verdict.label(), tally(&summary.findings));
    put!(&mut out, "## {}\n\n**{verdict}**: {why}\n", cell(&summary.title));
    if !summary.complete {
        out.push_str("\nThe run was cut short; the figures cover what was recorded until then.\n");
    }
    findings(&mut out, &summary.findings);
    let streams = || summary.cases.iter().flat_map(|case| &case.streams);
    let has_skipped = streams().any(|it| it.class == StreamClass::RealTime && it.skipped > 0);
    let mut head =
        vec!["case", "stream", "sent", "lost", "late", "p50", "p99", "p99.9", "max", "outside"];
    if has_skipped {
        head.insert(3, "skipped");
    }
    let mut table = Table::new("Transfer times of real time, µs", 2, &head);
    for case in &summary.cases {
        for stream in case.streams.iter().filter(|it| it.class == StreamClass::RealTime) {
            let mut row = vec![case.id.clone(), stream.name.clone()];
            row.extend([stream.sent, stream.lost, stream.late].map(|count| count.to_string()));
            if has_skipped {
                row.insert(3, stream.skipped.to_string());
            }
            match &stream.transfer {
                Some(t) => row.extend([t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(us)),
                None => row.extend(["–"; 4].map(str::to_owned)),
            }
            row.push(match case.tdm {
                true => case.wire.outside_slots.to_string(),
                false => "–".to_owned(),
            });
            table.rows.push(row);
        }
    }
    write(&mut out, &table);
    if let Some(sync) = &summary.sync {
        let ns = |ns: i64| us_f64(ns as f64);
        match sync.max_offset_ns {
            Some(most) => put!(&mut out, "\nClocks: at most {} µs from the giver.\n", ns(most)),
            None => put!(
                &mut out,
                "\nClocks: at most {} µs off a straight line.\n",
                ns(sync.max_deviation_ns)
            ),
        }
    }
    put!(&mut out, "\n<sub>{}</sub>\n", cell(&summary.tool));
    out
}

/// A report.
pub fn of_run_report(report: &RunReport) -> String {
    let mut out = String::new();
    let verdict = word(report.verdict);
    put!(&mut out, "## {}\n\n**{verdict}**: {}\n", cell(&report.title), cell(&report.why));
    if !report.complete {
        out.push_str("\nThe run was cut short; the figures cover what was recorded until then.\n");
    }
    findings(&mut out, &folded(&report.findings));
    for table in report.sections.iter().flat_map(|section| &section.tables) {
        write(&mut out, table);
    }
    put!(
        &mut out,
        "\n<sub>{}, {}</sub>\n",
        report.kind,
        concat!("timewire ", env!("CARGO_PKG_VERSION"))
    );
    out
}

fn findings(out: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    let mut table = Table::new("Findings", 4, &["", "limit", "measured", "note"]);
    for finding in by_weight(findings) {
        let verdict = match finding.verdict {
            Some(Verdict::Pass) => "pass".to_owned(),
            Some(verdict) => format!("**{verdict}**"),
            None => "note".to_owned(),
        };
        let said = [&finding.limit, &finding.measured, &finding.note].map(String::clone);
        table.rows.push([vec![verdict], said.to_vec()].concat());
    }
    write(out, &table);
}

fn write(out: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    put!(out, "\n{}\n\n|", cell(&table.caption));
    for name in &table.head {
        put!(out, " {} |", cell(name));
    }
    out.push_str("\n|");
    for at in 0..table.head.len() {
        out.push_str(if at < table.words.max(1) { " --- |" } else { " ---: |" });
    }
    out.push('\n');
    for row in table.rows.iter().take(ROWS) {
        out.push('|');
        for text in row {
            // A verdict is bold on purpose; everything else is text.
            let bold = text.strip_prefix("**").and_then(|text| text.strip_suffix("**"));
            match bold.filter(|text| ["fail", "inconclusive"].contains(text)) {
                Some(text) => put!(out, " **{text}** |"),
                None => put!(out, " {} |", cell(text)),
            }
        }
        out.push('\n');
    }
    if table.rows.len() > ROWS {
        put!(out, "\n{} more rows are in the report.\n", table.rows.len() - ROWS);
    }
}

/// Text in a cell or a line: nothing in it is markup.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push(' '),
            c if crate::text::is_unprintable(c) => out.push('\u{fffd}'),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

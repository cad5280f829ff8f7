// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary as plain tables: one per scenario, then every limit, then the verdict.

use timewire_base::Verdict;
use timewire_capture::summary::{
    BackendChoice, CaseSummary, Finding, StreamClass, StreamSummary, Summary,
};
use timewire_stats::Distribution;

use crate::backend::{choice_text, launches, reserved_text};
use crate::group::{Scenario, by_weight, distinct, is_of_messages, row_name, scenarios, tally};
use crate::text::{is_unprintable, put, us, us_f64};
use crate::traced;

/// How a table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Columns of the terminal. Too narrow for all figures, the less telling ones are left out and
    /// named; at least the case with its load, p50, p99 and lost stay.
    pub width: usize,
    /// Whether outcomes are coloured with ANSI sequences; the words say the same without.
    pub colour: bool,
}

impl Default for TableOptions {
    /// 160 columns, no colour.
    fn default() -> TableOptions {
        TableOptions { width: 160, colour: false }
    }
}

/// Where the time of traced messages went, by case; empty where none were traced.
///
/// **Units**: all times are microseconds.
pub fn traced_table(summary: &Summary) -> String {
    let mut out = String::new();
    scenarios(summary).iter().for_each(|scenario| traced::text(&mut out, scenario, plain));
    out
}

/// The tables, findings and verdict of a run, ending with a line feed.
///
/// **Units**: all times are microseconds.
pub fn table(summary: &Summary, options: TableOptions) -> String {
    let mut out = String::new();
    for scenario in scenarios(summary) {
        scenario_table(&mut out, &scenario, options.width);
        backends(&mut out, &scenario);
        traced::text(&mut out, &scenario, plain);
        out.push('\n');
    }
    for choice in &summary.backends {
        choice_lines(&mut out, choice);
    }
    let published = summary.cases.iter().filter_map(|c| c.published.as_ref());
    for source in distinct(published.map(|p| p.source.as_str())) {
        put!(&mut out, "published: {}\n\n", plain(source));
    }
    for finding in by_weight(&summary.findings) {
        finding_line(&mut out, finding, options.colour);
    }
    if !summary.complete {
        out.push_str(
            "note: the run was cut short; the figures cover what was recorded until then\n",
        );
    }
    let word = painted(summary.verdict.label(), code_of(summary.verdict), options.colour);
    put!(&mut out, "verdict: {word} ({})\n", tally(&summary.findings));
    out
}

/// Who carried the schedule out, what that promises, and what became of it beside the slots.
fn backends(out: &mut String, scenario: &Scenario<'_>) {
    let cases = || scenario.cases.iter().map(|(_, case)| *case);
    for backend in distinct(cases().filter_map(|case| case.backend.as_ref())) {
        let of = cases().filter(|case| case.backend.as_ref() == Some(backend));
        let names = distinct(of.map(|case| case.case.as_str())).join(", ");
        let (name, promise) = (plain(&backend.name), plain(&backend.promise));
        put!(out, "backend {name} ({}): {promise}\n", plain(&names));
    }
    for case in cases() {
        let place = || plain(&format!("{}/{}", case.case, case.load));
        for (stream, launch) in launches(case) {
            put!(out, "launch times of {}, {}: {}\n", plain(&stream.name), place(), launch);
        }
        for stream in case.streams.iter().filter(|stream| stream.skipped > 0) {
            let (name, count) = (plain(&stream.name), stream.skipped);
            put!(out, "skipped by {name}, {}: {count} messages were not sent\n", place());
        }
        for reserved in &case.reserved {
            let text = reserved_text(reserved);
            put!(out, "rate of {}, {}: {text}\n", plain(&reserved.station), place());
        }
    }
}

fn choice_lines(out: &mut String, choice: &BackendChoice) {
    put!(out, "{}\n", plain(&choice_text(choice)));
    for passed in &choice.passed_over {
        put!(out, "     not {}: {}\n", plain(&passed.backend), plain(&passed.why));
    }
    out.push('\n');
}

/// ANSI codes of a verdict: bold and green, red, yellow.
pub(crate) const GOOD: &str = "1;32";
pub(crate) const BAD: &str = "1;31";
pub(crate) const UNSURE: &str = "1;33";

fn code_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => GOOD,
        Verdict::Fail => BAD,
        Verdict::Inconclusive => UNSURE,
    }
}

pub(crate) fn painted(word: &str, code: &str, colour: bool) -> String {
    if colour { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
}

fn finding_line(out: &mut String, finding: &Finding, colour: bool) {
    let (word, code) = match finding.verdict {
        Some(verdict) => (verdict.label(), code_of(verdict)),
        None => ("NOTE", "1"),
    };
    let word = painted(word, code, colour);
    put!(out, "{word} {}: {}", plain(&finding.id), plain(&finding.measured));
    // A limit that passes speaks for itself; what was promised matters where it does not pass.
    if !finding.limit.is_empty() && finding.verdict != Some(Verdict::Pass) {
        put!(out, " (limit {})", plain(&finding.limit));
    }
    out.push('\n');
    if !finding.note.is_empty() && finding.verdict != Some(Verdict::Pass) {
        put!(out, "     {}\n", plain(&finding.note));
    }
}

/// Text that cannot steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) || c == '\n' { '?' } else { c }).collect()
}

/// What a column holds, and how soon it is given up when room is short (0: never).
struct Column {
    head: [&'static str; 2],
    give_up: u8,
    cell: fn(&CaseSummary, &StreamSummary) -> Option<String>,
}

fn of(stream: &StreamSummary, figure: fn(&Distribution) -> i64) -> Option<String> {
    Some(us(figure(stream.transfer.as_ref()?)))
}

fn median(stage: Option<&Distribution>) -> Option<String> {
    Some(us(stage?.p50_ns))
}

const COLUMNS: [Column; 18] = [
    Column {
        head: ["", "case"],
        give_up: 0,
        cell: |case, stream| Some(plain(&row_name(&case.case, case, stream))),
    },
    Column { head: ["", "load"], give_up: 0, cell: |case, _| Some(plain(&case.load)) },
    Column {
        head: ["", "n"],
        give_up: 4,
        cell: |_, s| Some(s.transfer.as_ref().map_or(0, |t| t.count).to_string()),
    },
    Column { head: ["", "min"], give_up: 9, cell: |_, s| of(s, |t| t.min_ns) },
    Column { head: ["", "p50"], give_up: 0, cell: |_, s| of(s, |t| t.p50_ns) },
    Column { head: ["", "p90"], give_up: 10, cell: |_, s| of(s, |t| t.p90_ns) },
    Column { head: ["", "p99"], give_up: 0, cell: |_, s| of(s, |t| t.p99_ns) },
    Column { head: ["", "p99.9"], give_up: 3, cell: |_, s| of(s, |t| t.p999_ns) },
    Column { head: ["", "max"], give_up: 1, cell: |_, s| of(s, |t| t.max_ns) },
    Column { head: ["", "pk-pk"], give_up: 12, cell: |_, s| of(s, |t| t.peak_to_peak_ns) },
    Column {
        head: ["", "mean"],
        give_up: 5,
        cell: |_, s| Some(us_f64(s.transfer.as_ref()?.mean_ns)),
    },
    Column {
        head: ["", "stddev"],
        give_up: 11,
        cell: |_, s| Some(us_f64(s.transfer.as_ref()?.stddev_ns)),
    },
    Column { head: ["", "lost"], give_up: 0, cell: |_, s| Some(s.lost.to_string()) },
    Column { head: ["", "late"], give_up: 1, cell: |_, s| Some(s.late.to_string()) },
    Column {
        head: ["outside", "slots"],
        give_up: 2,
        cell: |case, _| case.tdm.then(|| case.wire.outside_slots.to_string()),
    },
    Column { head: ["slot wait", "p50"], give_up: 7, cell: |_, s| median(s.slot_wait.as_ref()) },
    Column { head: ["receive", "p50"], give_up: 8, cell: |_, s| median(s.receive.as_ref()) },
    Column {
        head: ["published", "mean"],
        give_up: 6,
        cell: |case, stream| {
            let published = case.published.as_ref().filter(|_| is_of_messages(stream));
            Some(us(published?.transfer_mean_ns))
        },
    },
];

/// The last column, which only runs with a published figure have.
const PUBLISHED: usize = COLUMNS.len() - 1;
/// Columns that hold text and start at the left.
const TEXT_COLUMNS: usize = 2;

fn scenario_table(out: &mut String, scenario: &Scenario<'_>, width: usize) {
    let rows = scenario.told();
    let is_real_time = rows.iter().all(|(_, stream)| stream.class == StreamClass::RealTime);
    put!(
        out,
        "{} ({}); {}transfer Send->Receive, all times in us\n",
        scenario.title("us"),
        plain(scenario.name),
        if is_real_time { "real time, " } else { "" }
    );
    if rows.is_empty() {
        out.push_str("no measured stream\n");
        return;
    }
    let has_names = scenario.cases.len() == 1 && rows.len() > 1;
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(case, stream)| {
            let cells = COLUMNS.iter().map(|c| (c.cell)(case, stream));
            let mut cells: Vec<String> = cells.map(|it| it.unwrap_or_else(|| "-".into())).collect();
            if has_names {
                cells[0] = plain(&format!("{}: {}", case.case, stream.name));
            }
            cells
        })
        .collect();
    let widths: Vec<usize> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let heads = column.head.iter().map(|h| h.len());
            let texts = cells.iter().map(|row| row[at].chars().count());
            heads.chain(texts).max().unwrap_or(0)
        })
        .collect();
    let is_published = rows.iter().any(|(case, _)| case.published.is_some());
    let shown = if is_published { COLUMNS.len() } else { PUBLISHED };
    let (kept, gap) = fit(&widths[..shown], width);
    let line = |texts: &[&str]| {
        let mut line = String::new();
        for &at in &kept {
            let (text, width) = (texts[at], widths[at]);
            let pad = " ".repeat(width - text.chars().count());
            let space = if line.is_empty() { "" } else { gap };
            match at < TEXT_COLUMNS {
                true => put!(&mut line, "{space}{text}{pad}"),
                false => put!(&mut line, "{space}{pad}{text}"),
            }
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    if kept.iter().any(|&at| !COLUMNS[at].head[0].is_empty()) {
        out.push_str(&line(&COLUMNS.each_ref().map(|c| c.head[0])));
    }
    out.push_str(&line(&COLUMNS.each_ref().map(|c| c.head[1])));
    let rule = kept.iter().map(|&at| "-".repeat(widths[at])).collect::<Vec<_>>().join(gap);
    put!(out, "{rule}\n");
    for row in &cells {
        out.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    left_out(out, shown, &kept);
}

/// The columns that fit, and the space between them.
fn fit(widths: &[usize], room: usize) -> (Vec<usize>, &'static str) {
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    loop {
        let figures: usize = kept.iter().map(|&at| widths[at]).sum();
        let gaps = kept.len() - 1;
        if figures + 2 * gaps <= room {
            return (kept, "  ");
        }
        let next = kept.iter().copied().max_by_key(|&at| COLUMNS[at].give_up);
        let next = next.filter(|&at| COLUMNS[at].give_up > 0);
        match next {
            Some(_) if figures + gaps <= room => return (kept, " "),
            Some(given_up) => kept.retain(|&at| at != given_up),
            None => return (kept, " "),
        }
    }
}

fn left_out(out: &mut String, shown: usize, kept: &[usize]) {
    let left_out: Vec<&str> = (0..shown)
        .filter(|at| !kept.contains(at))
        .map(|at| match COLUMNS[at].head[0] {
            "" => COLUMNS[at].head[1],
            head => head,
        })
        .collect();
    if !left_out.is_empty() {
        put!(out, "left out for want of room: {}\n", left_out.join(", "));
    }
}

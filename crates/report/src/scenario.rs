// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One scenario: how its cases compare, as figures and as tables, and all scenarios beside the
//! published figures.

use timewire_capture::summary::{CaseSummary, StreamClass, StreamSummary};
use timewire_stats::Distribution;

use crate::figure::{self, TailLine};
use crate::group::{Scenario, distinct, is_of_messages, real_time, row_name};
use crate::text::{Escaped, as_f64, put, share, us, us_f64, us_whole};
use crate::traced;

/// Line styles that the style sheet has for cases drawn over each other.
const LINES: usize = 6;

/// The section of one scenario; `number` counts from 1.
pub(crate) fn section(out: &mut String, number: usize, scenario: &Scenario<'_>) {
    put!(
        out,
        "<section aria-labelledby=\"scenario-{number}\">\n<h2 id=\"scenario-{number}\">{} \
         <small>{}</small></h2>\n<div class=\"figures\">\n",
        Escaped(&scenario.title("µs")),
        Escaped(scenario.name)
    );
    figures(out, number, scenario);
    out.push_str("</div>\n");
    table(out, scenario, StreamClass::RealTime);
    table(out, scenario, StreamClass::BestEffort);
    traced::section(out, scenario);
    out.push_str("</section>\n");
}

fn figures(out: &mut String, number: usize, scenario: &Scenario<'_>) {
    let Some((strip, height)) = figure::strip(&format!("s{number}-strip"), scenario) else {
        out.push_str("<p>No message was received in any case.</p>\n");
        return;
    };
    put!(
        out,
        "<figure>{strip}<figcaption><b>All cases.</b> Thin line: smallest to largest; bar: median \
         (tall mark) to 99 %; short marks: 99.9 % and largest. \
         <i class=\"key f rt\"></i>real time, \
         <i class=\"key f be\"></i>best effort{}.</figcaption></figure>\n",
        if scenario.cases.iter().any(|(_, c)| c.published.is_some()) {
            ", <i class=\"key diamond\"></i>published mean"
        } else {
            ""
        }
    );
    let load = scenario.last_load();
    let drawn: Vec<(&CaseSummary, &Distribution)> = scenario
        .cases
        .iter()
        .filter(|(_, case)| case.load == load)
        .filter_map(|(_, case)| Some((*case, real_time(case)?)))
        .collect();
    let style = |at: usize| format!("line c{}", at % LINES + 1);
    let lines: Vec<TailLine<'_>> = drawn
        .iter()
        .enumerate()
        .map(|(at, (case, transfer))| TailLine {
            class: style(at),
            name: case.title.clone(),
            transfer,
        })
        .collect();
    let title = format!("Tail of real-time transfer times, {load}: {}", scenario.title("µs"));
    let cycle = scenario.cases[0].1.cycle_ns;
    let id = format!("s{number}-tail");
    if let Some(svg) = figure::tail(&id, &title, &lines, cycle, height) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Tail of the real-time stream, {}.</b>",
            Escaped(load)
        );
        for (at, (case, _)) in drawn.iter().enumerate() {
            put!(out, " <i class=\"key {}\"></i>{}", style(at), Escaped(&case.title));
            out.push(if at + 1 < drawn.len() { ',' } else { '.' });
        }
        out.push_str("</figcaption></figure>\n");
    }
}

fn table(out: &mut String, scenario: &Scenario<'_>, class: StreamClass) {
    let rows = scenario.streams(class);
    if rows.is_empty() {
        return;
    }
    let deadlines = distinct(rows.iter().map(|(_, s)| s.deadline_ns).filter(|d| *d > 0));
    let deadlines: Vec<String> = deadlines.into_iter().map(us_whole).collect();
    let real_time = class == StreamClass::RealTime;
    let name = if real_time { "Real-time stream" } else { "Best-effort streams" };
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}, {}\">\
         <table class=\"numbers{}\">\n<caption>{name}. Times in µs",
        Escaped(&scenario.title("µs")),
        if real_time { " real-time" } else { "" }
    );
    if !deadlines.is_empty() {
        put!(out, "; late: after {} µs", deadlines.join(" or "));
    }
    out.push_str(".</caption>\n");
    table_head(out, real_time);
    let names: Vec<String> = rows
        .iter()
        .map(|(c, s)| match real_time {
            true => row_name(&c.title, c, s),
            false => c.title.clone(),
        })
        .collect();
    for (at, (case, stream)) in rows.into_iter().enumerate() {
        out.push_str("<tr>");
        if at == 0 || names[at] != names[at - 1] {
            let alike = names[at..].iter().take_while(|name| **name == names[at]).count();
            name_cell(out, &names[at], alike);
        }
        put!(out, "<td class=\"w\">{}</td>", Escaped(&case.load));
        if !real_time {
            put!(out, "<td class=\"w\">{}</td>", Escaped(&stream.name));
        }
        distribution_cells(out, stream.transfer.as_ref());
        count_cell(out, "g", stream.lost);
        match stream.deadline_ns {
            1.. => count_cell(out, "", stream.late),
            _ => out.push_str("<td>–</td>"),
        }
        if real_time {
            wire_cells(out, case);
            stage_cells(out, stream);
            let published = case.published.as_ref().filter(|_| is_of_messages(stream));
            let published = published.map(|p| us(p.transfer_mean_ns));
            put!(out, "<td class=\"g\">{}</td>", published.as_deref().unwrap_or("–"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// The name of a case, once for all its loads.
fn name_cell(out: &mut String, name: &str, rows: usize) {
    let name = Escaped(name);
    match rows {
        1 => put!(out, "<th scope=\"row\" class=\"name\">{name}</th>"),
        _ => put!(out, "<th scope=\"rowgroup\" rowspan=\"{rows}\" class=\"name\">{name}</th>"),
    }
}

fn table_head(out: &mut String, real_time: bool) {
    out.push_str(
        "<thead><tr><th scope=\"col\" rowspan=\"2\">Case</th><th scope=\"col\" rowspan=\"2\" \
         class=\"w\">Load</th>",
    );
    if !real_time {
        out.push_str("<th scope=\"col\" rowspan=\"2\" class=\"w\">Stream</th>");
    }
    out.push_str(
        "<th scope=\"colgroup\" colspan=\"10\" class=\"g\">Transfer, Send → Receive</th>\
         <th scope=\"colgroup\" colspan=\"2\" class=\"g\">Messages</th>",
    );
    if real_time {
        out.push_str(
            "<th scope=\"colgroup\" colspan=\"3\" class=\"g\">Frames outside slots</th>\
             <th scope=\"colgroup\" colspan=\"2\" class=\"g\">Slot wait</th>\
             <th scope=\"colgroup\" colspan=\"2\" class=\"g\">Receive</th>\
             <th scope=\"colgroup\" class=\"g\">Published</th>",
        );
    }
    out.push_str("</tr>\n<tr>");
    let mut columns = vec![
        "g:count", "min", "p50", "p90", "p99", "p99.9", "max", "pk-pk", "mean", "stddev", "g:lost",
        "late",
    ];
    if real_time {
        columns.extend(["g:count", "share", "bound", "g:p50", "p99", "g:p50", "p99", "g:mean"]);
    }
    for column in columns {
        match column.strip_prefix("g:") {
            Some(name) => put!(out, "<th scope=\"col\" class=\"g\">{name}</th>"),
            None => put!(out, "<th scope=\"col\">{column}</th>"),
        }
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

fn distribution_cells(out: &mut String, transfer: Option<&Distribution>) {
    let Some(t) = transfer else {
        out.push_str("<td class=\"g\">0</td>");
        out.push_str(&"<td>–</td>".repeat(9));
        return;
    };
    put!(out, "<td class=\"g\">{}</td>", t.count);
    for (class, ns) in [
        ("", t.min_ns),
        (" class=\"key-figure\"", t.p50_ns),
        ("", t.p90_ns),
        (" class=\"key-figure\"", t.p99_ns),
        ("", t.p999_ns),
        ("", t.max_ns),
        ("", t.peak_to_peak_ns),
    ] {
        put!(out, "<td{class}>{}</td>", us(ns));
    }
    put!(out, "<td>{}</td><td>{}</td>", us_f64(t.mean_ns), us_f64(t.stddev_ns));
}

/// A count that should be zero: quiet when it is, strong when it is not.
fn count_cell(out: &mut String, class: &str, count: u64) {
    let weight = if count == 0 { "zero" } else { "some" };
    put!(
        out,
        "<td class=\"{class}{}{weight}\">{count}</td>",
        if class.is_empty() { "" } else { " " }
    );
}

fn wire_cells(out: &mut String, case: &CaseSummary) {
    if !case.tdm {
        out.push_str("<td class=\"g\">–</td><td>–</td><td>–</td>");
        return;
    }
    let wire = &case.wire;
    count_cell(out, "g", wire.outside_slots);
    let bound = wire.timestamp_bound_p999_ns.map(us);
    put!(
        out,
        "<td>{}</td><td>{}</td>",
        Escaped(&share(wire.outside_slots, wire.frames)),
        bound.as_deref().unwrap_or("–")
    );
}

fn stage_cells(out: &mut String, stream: &StreamSummary) {
    for stage in [&stream.slot_wait, &stream.receive] {
        match stage {
            Some(s) => {
                put!(out, "<td class=\"g\">{}</td><td>{}</td>", us(s.p50_ns), us(s.p99_ns));
            }
            None => out.push_str("<td class=\"g\">–</td><td>–</td>"),
        }
    }
}

/// Whether any case has a published figure.
pub(crate) fn any_published(scenarios: &[Scenario<'_>]) -> bool {
    scenarios.iter().flat_map(|s| &s.cases).any(|(_, case)| case.published.is_some())
}

/// The published figure of every scenario beside the measured ones; nothing when none is given.
pub(crate) fn published_table(out: &mut String, scenarios: &[Scenario<'_>]) {
    if !any_published(scenarios) {
        return;
    }
    let all = || scenarios.iter().flat_map(|s| s.cases.iter().map(|(_, case)| *case));
    let columns: Vec<&CaseSummary> = distinct(all().filter(|c| c.tdm).map(|c| c.case.as_str()))
        .into_iter()
        .filter_map(|name| all().find(|c| c.case == name))
        .collect();
    out.push_str(
        "<section aria-labelledby=\"published\">\n\
         <h2 id=\"published\">Published and measured</h2>\n<div class=\"scroll\" tabindex=\"0\" \
         role=\"region\" aria-label=\"Published and measured\"><table class=\"numbers\">\n\
         <caption>Real-time transfer in µs, and as a share of the cycle.</caption>\n<thead><tr>\
         <th scope=\"col\" rowspan=\"2\">Message</th><th scope=\"col\" rowspan=\"2\">Cycle</th>\
         <th scope=\"col\" rowspan=\"2\" class=\"w\">Load</th>\
         <th scope=\"colgroup\" colspan=\"2\" class=\"g\">Published</th>",
    );
    for case in &columns {
        let title = Escaped(&case.title);
        put!(out, "<th scope=\"colgroup\" colspan=\"3\" class=\"g\">{title}</th>");
    }
    out.push_str(
        "</tr>\n<tr><th scope=\"col\" class=\"g\">mean</th><th scope=\"col\">of cycle</th>",
    );
    for _ in &columns {
        out.push_str(
            "<th scope=\"col\" class=\"g\">mean</th><th scope=\"col\">of cycle</th>\
             <th scope=\"col\">p50</th>",
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for scenario in scenarios {
        for load in distinct(scenario.cases.iter().map(|(_, c)| c.load.as_str())) {
            published_row(out, scenario, load, &columns);
        }
    }
    out.push_str("</tbody>\n</table></div>\n");
    for source in distinct(all().filter_map(|c| Some(c.published.as_ref()?.source.as_str()))) {
        put!(
            out,
            "<p class=\"source\">Published: {}.</p>\n",
            Escaped(source.trim_end_matches('.'))
        );
    }
    out.push_str("</section>\n");
}

fn published_row(out: &mut String, scenario: &Scenario<'_>, load: &str, columns: &[&CaseSummary]) {
    let of_load = || scenario.cases.iter().map(|(_, c)| *c).filter(|c| c.load == load);
    let cycle_ns = scenario.cases[0].1.cycle_ns;
    let of_cycle = |ns: f64| match cycle_ns {
        1.. => format!("{:.2}", ns / as_f64(cycle_ns)),
        _ => "–".to_owned(),
    };
    put!(
        out,
        "<tr><th scope=\"row\">{} B</th><td>{}</td><td class=\"w\">{}</td>",
        scenario.cases[0].1.message_bytes,
        us_whole(cycle_ns),
        Escaped(load)
    );
    match of_load().find_map(|c| c.published.as_ref()) {
        Some(p) => put!(
            out,
            "<td class=\"g key-figure\">{}</td><td>{}</td>",
            us(p.transfer_mean_ns),
            of_cycle(as_f64(p.transfer_mean_ns))
        ),
        None => out.push_str("<td class=\"g\">–</td><td>–</td>"),
    }
    for column in columns {
        match of_load().find(|c| c.case == column.case).and_then(real_time) {
            Some(t) => put!(
                out,
                "<td class=\"g key-figure\">{}</td><td>{}</td><td>{}</td>",
                us_f64(t.mean_ns),
                of_cycle(t.mean_ns),
                us(t.p50_ns)
            ),
            None => out.push_str("<td class=\"g\">–</td><td>–</td><td>–</td>"),
        }
    }
    out.push_str("</tr>\n");
}

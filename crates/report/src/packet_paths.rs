// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets spent their time, as tables: of each stage how long it took and its share, then
//! the longest packet paths one by one with the reason for each. As a page, where these are drawn,
//! and as text for a terminal. What was lost stands first in both.

use timewire_capture::packet_path::table::{END_TO_END, Row, Scope};
use timewire_capture::packet_path::worst::Judged;
use timewire_capture::packet_path::{Counts, PacketPath, PathOutcome, Status};

use crate::figure::Xy;
use crate::page::head;
use crate::text::{Escaped, duration, is_unprintable, put, us_exact};
use crate::timeline::{Names, TimelineInput, picture, rows};

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct PacketPathsInput<'a> {
    /// How many packet paths there were, of which kinds.
    pub counts: &'a Counts,
    /// The tables' rows.
    pub rows: &'a [Row],
    /// The longest packet paths, descending.
    pub longest: &'a [Judged],
    /// Names and losses.
    pub names: &'a Names,
}

/// The head of both: what was lost, then how many packet paths are of which kind.
fn said(input: &PacketPathsInput<'_>) -> Vec<String> {
    let mut lines = input.names.losses();
    let counts = input.counts;
    if counts.late > 0 {
        lines.push(format!("{} events came too late to be put in order", counts.late));
    }
    if counts.unmatched_receives > 0 {
        let without = counts.unmatched_receives;
        lines.push(format!("{without} messages were received whose packets were not seen"));
    }
    for (what, count) in &counts.left_out {
        lines.push(format!("left out: {count} {what}"));
    }
    if lines.is_empty() {
        lines.push("no event was lost".to_owned());
    }
    let all: u64 = counts.packet_paths.values().sum();
    let of = |wanted: Status| -> u64 {
        let these = counts.packet_paths.iter().filter(|((status, _), _)| *status == wanted);
        these.map(|(_, count)| count).sum()
    };
    let statuses = [Status::Complete, Status::Lossy, Status::Ambiguous];
    let statuses = statuses.map(|status| format!("{} {}", of(status), status.name()));
    let mut outcomes = std::collections::BTreeMap::<&str, u64>::new();
    for ((_, outcome), count) in &counts.packet_paths {
        *outcomes.entry(outcome).or_default() += count;
    }
    let outcomes: Vec<String> =
        outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let (events, statuses) = (counts.events, statuses.join(", "));
    lines.push(format!(
        "{all} packet paths of {events} events: {statuses}; {}",
        outcomes.join(", ")
    ));
    let mut drops = std::collections::BTreeMap::<String, u64>::new();
    for ((capture, reason), count) in &counts.drops {
        *drops.entry(input.names.reason(*capture, *reason)).or_default() += count;
    }
    if !drops.is_empty() {
        let each = drops.iter().map(|(reason, count)| format!("{count} {reason}"));
        lines.push(format!("dropped: {}", each.collect::<Vec<_>>().join(", ")));
    }
    lines
}

fn scope_name(scope: Scope, names: &Names) -> String {
    match scope {
        Scope::All => "all packet paths".to_owned(),
        Scope::Flow(flow) => names.flow(flow),
        Scope::OtherFlows => "other flows".to_owned(),
        Scope::Hop(hop, capture, station) => {
            let capture = usize::from(capture);
            let (host, station) = (names.host(capture), names.station(capture, station));
            let place = match station.as_str() {
                "" => format!("{host}, no station"),
                station if station == host => host,
                station => format!("{host} / {station}"),
            };
            format!("hop {hop} at {place}")
        }
    }
}

/// Rows of one scope together.
fn scopes(rows: &[Row]) -> Vec<&[Row]> {
    rows.chunk_by(|one, two| one.scope == two.scope).collect()
}

const HEAD: [&str; 11] =
    ["stage", "n", "min", "p50", "p90", "p99", "p99.9", "max", "mean", "share %", "bound"];

fn cells(row: &Row) -> [String; 11] {
    let times = &row.times;
    let bound = match row.bound_ns {
        0 => "-".to_owned(),
        ns => us_exact(i64::try_from(ns).unwrap_or(i64::MAX)),
    };
    [
        row.stage.clone(),
        times.count.to_string(),
        us_exact(times.min_ns),
        us_exact(times.p50_ns),
        us_exact(times.p90_ns),
        us_exact(times.p99_ns),
        us_exact(times.p999_ns),
        us_exact(times.max_ns),
        format!("{:.3}", times.mean_ns / 1e3),
        format!("{:.1}", row.share * 100.0),
        bound,
    ]
}

/// Tables and the longest packet paths as text, ending with a line feed.
///
/// **Units**: all times are microseconds, if nothing else is said.
pub fn text(input: &PacketPathsInput<'_>) -> String {
    let mut out = String::new();
    for line in said(input) {
        put!(&mut out, "{}\n", plain(&line));
    }
    for rows in scopes(input.rows) {
        let Some(first) = rows.first() else { continue };
        put!(&mut out, "\n{}, us\n", plain(&scope_name(first.scope, input.names)));
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(rows.iter().map(cells));
        out += &aligned(&lines);
    }
    if !input.longest.is_empty() {
        out += "\nthe longest\n";
    }
    for judged in input.longest {
        let packet_path = &judged.packet_path;
        let flow = input.names.flow(packet_path.flow());
        put!(
            &mut out,
            "packet path {}, {}, {}: {}\n",
            packet_path.number,
            plain(&flow),
            state(packet_path, input.names),
            plain(&judged.sentence)
        );
        let stages = packet_path.stages.iter().map(|stage| {
            let bound =
                if stage.bound_ns > 0 { format!("+-{}", stage.bound_ns) } else { String::new() };
            format!("{} {}{bound}", stage.parts.name(), stage.ns)
        });
        put!(&mut out, "  ns: {}\n", stages.collect::<Vec<_>>().join(", "));
    }
    out
}

fn state(packet_path: &PacketPath, names: &Names) -> String {
    let why = packet_path.why.map_or(String::new(), |why| format!(" ({why})"));
    let outcome = match packet_path.outcome {
        PathOutcome::Dropped { reason } => {
            let capture = packet_path.points.last().map_or(0, |point| usize::from(point.capture));
            format!("dropped: {}", names.reason(capture, reason))
        }
        other => other.name().to_owned(),
    };
    format!("{}{why}, {outcome}", packet_path.status.name())
}

/// Columns: the first to the left, the others to the right.
pub(crate) fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for line in lines {
        for (at, (cell, width)) in line.iter().zip(widths).enumerate() {
            match at {
                0 => put!(&mut out, "{cell:<width$}"),
                _ => put!(&mut out, "  {cell:>width$}"),
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// Text that cannot steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) || c == '\n' { '?' } else { c }).collect()
}

/// Tables, and the longest packet paths drawn, as one HTML file that fetches nothing and has no
/// script. `drawn` was given the same longest ones; `notes` stand behind what was lost.
///
/// The same input gives the same bytes.
pub fn page(input: &PacketPathsInput<'_>, drawn: &TimelineInput, notes: &str) -> String {
    let mut out = String::with_capacity(1 << 17);
    head(&mut out, "Packet paths", &drawn.title);
    put!(&mut out, "<header><h1>{}</h1></header>\n<main>\n", Escaped(&drawn.title));
    out += &section(input, drawn, notes);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// The same as a section of a page with the report's style.
fn section(input: &PacketPathsInput<'_>, drawn: &TimelineInput, notes: &str) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"packet_paths\">\n\
         <h2 id=\"packet_paths\">Packet paths</h2>\n<ul>",
    );
    let lines = said(input).into_iter().chain(notes.lines().map(str::to_owned));
    for line in lines.chain(drawn.clashes.iter().cloned()) {
        put!(&mut out, "<li>{}</li>", Escaped(&line));
    }
    out.push_str("</ul>\n");
    for (at, rows) in scopes(input.rows).into_iter().enumerate() {
        let Some(first) = rows.first() else { continue };
        let name = scope_name(first.scope, input.names);
        // All packet paths are read; flows and hops are looked up.
        if at == 0 {
            table(&mut out, &name, rows);
            continue;
        }
        put!(&mut out, "<details><summary><h4>{}</h4></summary>\n", Escaped(&name));
        table(&mut out, &name, rows);
        out.push_str("</details>\n");
    }
    longest(&mut out, input, drawn);
    out.push_str("</section>\n");
    out
}

/// The longest packet paths, each on the lines that it passes.
fn longest(out: &mut String, input: &PacketPathsInput<'_>, drawn: &TimelineInput) {
    out.push_str("<h3>The longest</h3>\n");
    if input.longest.is_empty() {
        out.push_str("<p>No packet path is of those that were asked for.</p>\n");
        return;
    }
    put!(out, "<p class=\"source\">Drawn from: {}.</p>\n", Escaped(&drawn.extent.join("; ")));
    let unsure = drawn.hosts.iter().filter(|host| host.bound_ns > 0);
    for host in unsure {
        let bound = duration(i64::try_from(host.bound_ns).unwrap_or(i64::MAX));
        put!(
            out,
            "<p class=\"source\">Instants of {} are compared with those of other hosts within \
             {bound}: a bar around the end of each stage.</p>\n",
            Escaped(&host.name)
        );
    }
    let rows = rows(&drawn.intervals, drawn.lanes.len());
    for judged in input.longest {
        let number = judged.packet_path.number;
        let found = drawn.packet_paths.binary_search_by_key(&number, |flow| flow.number);
        let Some(flow) = found.ok().map(|at| &drawn.packet_paths[at]) else { continue };
        let svg = picture(drawn, &rows, flow, &format!("packet-path-{number}"));
        put!(
            out,
            "<figure class=\"way\"><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Packet path {number}\">{svg}</div>\n<figcaption><b>Packet path \
             {number}</b>, {}, {}. {}</figcaption></figure>\n",
            Escaped(&flow.flow),
            Escaped(&state(&judged.packet_path, input.names)),
            Escaped(&judged.sentence)
        );
    }
}

fn table(out: &mut String, name: &str, rows: &[Row]) {
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\
         <table class=\"numbers\"><caption>{}, µs</caption><thead><tr>",
        Escaped(name),
        Escaped(name)
    );
    for head in HEAD {
        put!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>");
    for row in rows {
        let [stage, figures @ .., share, bound] = cells(row);
        put!(out, "<tr><th scope=\"row\">{}</th>", Escaped(&stage));
        for figure in figures {
            put!(out, "<td>{figure}</td>");
        }
        let wide = (row.share.clamp(0.0, 1.0)) * 60.0;
        let bar = match row.stage == END_TO_END {
            true => String::new(),
            false => format!(
                "<svg aria-hidden=\"true\" width=\"60\" height=\"9\" viewBox=\"0 0 60 9\">\
                 <rect class=\"bar f s1\" x=\"0\" y=\"0\" width=\"{}\" height=\"9\"/></svg> ",
                Xy(wide)
            ),
        };
        put!(out, "<td>{bar}{share}</td><td>{bound}</td></tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_capture::event::Event;

    #[test]
    fn t0_a_hop_is_at_a_host_and_a_station_if_it_has_one() {
        let name = |station| scope_name(Scope::Hop(1, 0, station), &Names::default());
        assert_eq!(name(2), "hop 1 at host 0 / station 2");
        assert_eq!(name(Event::NO_STATION), "hop 1 at host 0, no station");
    }
}

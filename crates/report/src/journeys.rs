// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets spent their time, as tables: of each stage how long it took and its share, then
//! the longest journeys one by one with the reason for each. As a section of a page, and as text
//! for a terminal. What was lost stands first in both.
//!
//! Not here: the tables' numbers and the reasons (`timewire_trace::journey`), events over time
//! ([`crate::timeline`]).

use timewire_trace::journey::table::{END_TO_END, Row, Scope};
use timewire_trace::journey::worst::Judged;
use timewire_trace::journey::{Counts, Journey, Outcome, Status};

use crate::figure::Xy;
use crate::text::{Escaped, as_f64, is_unprintable, put, us_exact};
use crate::timeline::{Names, duration};

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub struct JourneysInput<'a> {
    /// How many journeys there were, of which kinds.
    pub counts: &'a Counts,
    /// The tables' rows.
    pub rows: &'a [Row],
    /// The longest journeys, descending.
    pub longest: &'a [Judged],
    /// Names and losses.
    pub names: &'a Names,
}

/// The head of both: what was lost, then how many journeys are of which kind.
fn said(input: &JourneysInput<'_>) -> Vec<String> {
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
    let all: u64 = counts.journeys.values().sum();
    let of = |wanted: Status| -> u64 {
        let these = counts.journeys.iter().filter(|((status, _), _)| *status == wanted);
        these.map(|(_, count)| count).sum()
    };
    let statuses = [Status::Complete, Status::Lossy, Status::Ambiguous];
    let statuses = statuses.map(|status| format!("{} {}", of(status), status.name()));
    let mut outcomes = std::collections::BTreeMap::<&str, u64>::new();
    for ((_, outcome), count) in &counts.journeys {
        *outcomes.entry(outcome).or_default() += count;
    }
    let outcomes: Vec<String> =
        outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let (events, statuses) = (counts.events, statuses.join(", "));
    lines.push(format!("{all} journeys of {events} events: {statuses}; {}", outcomes.join(", ")));
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
        Scope::All => "all journeys".to_owned(),
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

/// Tables and the longest journeys as text, ending with a line feed.
///
/// **Units**: all times are microseconds, if nothing else is said.
pub fn text(input: &JourneysInput<'_>) -> String {
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
        let journey = &judged.journey;
        let flow = input.names.flow(journey.flow());
        put!(
            &mut out,
            "journey {}, {}, {}: {}\n",
            journey.number,
            plain(&flow),
            state(journey, input.names),
            plain(&judged.sentence)
        );
        let stages = journey.stages.iter().map(|stage| {
            let bound =
                if stage.bound_ns > 0 { format!("+-{}", stage.bound_ns) } else { String::new() };
            format!("{} {}{bound}", stage.parts.name(), stage.ns)
        });
        put!(&mut out, "  ns: {}\n", stages.collect::<Vec<_>>().join(", "));
    }
    out
}

fn state(journey: &Journey, names: &Names) -> String {
    let why = journey.why.map_or(String::new(), |why| format!(" ({why})"));
    let outcome = match journey.outcome {
        Outcome::Dropped { reason } => {
            let capture = journey.points.last().map_or(0, |point| usize::from(point.capture));
            format!("dropped: {}", names.reason(capture, reason))
        }
        other => other.name().to_owned(),
    };
    format!("{}{why}, {outcome}", journey.status.name())
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

/// Tables and the longest journeys as a section of a page with the report's style.
pub fn section(input: &JourneysInput<'_>) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"journeys\">\n<h2 id=\"journeys\">Journeys</h2>\n<ul>",
    );
    for line in said(input) {
        put!(&mut out, "<li>{}</li>", Escaped(&line));
    }
    out.push_str("</ul>\n");
    for (at, rows) in scopes(input.rows).into_iter().enumerate() {
        let Some(first) = rows.first() else { continue };
        let name = scope_name(first.scope, input.names);
        // All journeys are read; flows and hops are looked up.
        if at == 0 {
            table(&mut out, &name, rows);
            continue;
        }
        put!(&mut out, "<details><summary><h4>{}</h4></summary>\n", Escaped(&name));
        table(&mut out, &name, rows);
        out.push_str("</details>\n");
    }
    if !input.longest.is_empty() {
        out.push_str("<h3>The longest</h3>\n");
    }
    for (at, judged) in input.longest.iter().enumerate() {
        let flow = input.names.flow(judged.journey.flow());
        put!(&mut out, "<figure>{}", waterfall(judged, at));
        put!(
            &mut out,
            "<figcaption><b>Journey {}</b>, {}, {}. {}</figcaption></figure>\n",
            judged.journey.number,
            Escaped(&flow),
            Escaped(&state(&judged.journey, input.names)),
            Escaped(&judged.sentence)
        );
    }
    out.push_str("</section>\n");
    out
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

/// The stages of a journey below each other, each where it lies in time.
fn waterfall(judged: &Judged, number: usize) -> String {
    const WIDTH: f64 = 560.0;
    const LEFT: f64 = 150.0;
    const RIGHT: f64 = 480.0;
    const ROW: f64 = 18.0;
    let journey = &judged.journey;
    let (from, length) = (journey.from_ns(), as_f64(journey.end_to_end_ns().max(1)));
    let x = |at: i64| (LEFT + as_f64(at - from) / length * (RIGHT - LEFT)).clamp(LEFT, RIGHT);
    let mut rows = String::new();
    let mut words = String::new();
    let mut y = 2.0;
    for (index, stage) in journey.stages.iter().enumerate() {
        let (begin, end) = (journey.points[stage.from].at_ns, journey.points[stage.to].at_ns);
        let (left, right) = (x(begin), x(end.max(begin)));
        let name = match stage.hop {
            0 => stage.parts.name(),
            hop => format!("{} (hop {hop})", stage.parts.name()),
        };
        let class = if judged.verdict.stage == Some(index) { "alarm" } else { "s1" };
        let bound = match stage.bound_ns {
            0 => String::new(),
            ns => format!(" ±{ns} ns"),
        };
        let time = duration(stage.ns);
        put!(
            &mut rows,
            "<text x=\"0\" y=\"{}\">{}</text><rect class=\"bar f {class}\" x=\"{}\" y=\"{}\" \
             width=\"{}\" height=\"{}\"/><text class=\"dim\" x=\"{}\" \
             y=\"{}\">{time}{bound}</text>",
            Xy(y + 12.0),
            Escaped(&name),
            Xy(left),
            Xy(y + 2.0),
            Xy((right - left).max(1.0)),
            Xy(ROW - 5.0),
            Xy(right + 5.0),
            Xy(y + 12.0)
        );
        put!(&mut words, "{name} {time}{bound}. ");
        y += ROW;
    }
    let id = format!("journey-{number}");
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {WIDTH} {}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">Stages of journey {}, {} from end to end</title>\
         <desc id=\"{id}-d\">{}</desc>{rows}</svg>\n",
        Xy(y + 4.0),
        journey.number,
        duration(journey.end_to_end_ns()),
        Escaped(&words)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use timewire_trace::event::Event;

    #[test]
    fn t0_a_hop_is_at_a_host_and_a_station_if_it_has_one() {
        let name = |station| scope_name(Scope::Hop(1, 0, station), &Names::default());
        assert_eq!(name(2), "hop 1 at host 0 / station 2");
        assert_eq!(name(Event::NO_STATION), "hop 1 at host 0, no station");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each case in detail: its figures, what the segment saw, and the counters of every MAC.

use timewire_capture::summary::{CaseSummary, MacSummary, SlotPromise, StreamClass, StreamSummary};

use crate::backend::{launches, reserved_text};
use crate::extras::{Extras, LongPacketPath};
use crate::figure::{self, TailLine};
use crate::group::{Scenario, drawn, stream_name};
use crate::page::series_figure;
use crate::text::{Escaped, digits, put, share, us, us_whole};

/// Height of the tail figure, as high as a histogram of two streams.
const TAIL_HEIGHT: f64 = 300.0;

/// All cases, folded; the ones of the first scenario under its last load are open.
pub(crate) fn section(out: &mut String, scenarios: &[Scenario<'_>], extras: &Extras) {
    out.push_str("<section aria-labelledby=\"cases\">\n<h2 id=\"cases\">Cases</h2>\n");
    for (number, scenario) in scenarios.iter().enumerate() {
        put!(out, "<h3>{}</h3>\n", Escaped(&scenario.title("µs")));
        for (at, case) in &scenario.cases {
            let open = number == 0 && case.load == scenario.last_load();
            details(out, at + 1, (case, open), extras);
        }
    }
    out.push_str("</section>\n");
}

fn details(out: &mut String, number: usize, (case, open): (&CaseSummary, bool), extras: &Extras) {
    let heading = format!("{}, {}", case.title, case.load);
    put!(
        out,
        "<details id=\"case-{number}\"{}><summary><h4>{}</h4> <span>{}</span></summary>\n\
         <div class=\"figures\">\n",
        if open { " open" } else { "" },
        Escaped(&heading),
        gist(case)
    );
    figures(out, number, &heading, case);
    series(out, number, &heading, (case, extras));
    wire(out, case);
    out.push_str("</div>\n");
    longest(out, number, extras.longest.get(&case.id).map_or(&[], Vec::as_slice));
    if !case.macs.is_empty() {
        macs(out, &heading, &case.macs);
    }
    out.push_str("</details>\n");
}

/// What the case came to, in one line beside its name.
fn gist(case: &CaseSummary) -> String {
    let mut text = String::new();
    if let Some(t) = crate::group::real_time(case) {
        put!(&mut text, "p50 {}, p99 {}, max {} µs", us(t.p50_ns), us(t.p99_ns), us(t.max_ns));
    } else {
        text.push_str("nothing received");
    }
    let of_class = || case.streams.iter().filter(|s| s.class == StreamClass::RealTime);
    let (lost, late): (u64, u64) =
        (of_class().map(|s| s.lost).sum(), of_class().map(|s| s.late).sum());
    let skipped: u64 = of_class().map(|s| s.skipped).sum();
    if skipped > 0 {
        put!(&mut text, "; skipped {skipped}");
    }
    put!(&mut text, "; lost {lost}, late {late}");
    if case.tdm {
        put!(&mut text, ", outside slots {}", case.wire.outside_slots);
    }
    text
}

fn figures(out: &mut String, number: usize, heading: &str, case: &CaseSummary) {
    if let Some(svg) = figure::histogram(&format!("c{number}-hist"), heading, case) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Transfer time.</b> Share of each stream's messages \
             per bin, log scale; dashed: whole cycles.</figcaption></figure>\n"
        );
    }
    let drawn = drawn(case);
    let style = |stream: &StreamSummary| match stream.class {
        StreamClass::RealTime => "line rt",
        StreamClass::BestEffort => "line be dashed",
    };
    let lines: Vec<TailLine<'_>> = drawn
        .iter()
        .map(|&(stream, transfer)| TailLine {
            class: style(stream).to_owned(),
            name: stream_name(stream),
            transfer,
        })
        .collect();
    let title = format!("Tail of transfer times: {heading}");
    let id = format!("c{number}-tail");
    if let Some(svg) = figure::tail(&id, &title, &lines, case.cycle_ns, TAIL_HEIGHT) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Tail.</b> Share of messages that arrived within a time; \
             from 90 % down, each grid line leaves a tenth of the one above."
        );
        for (stream, _) in &drawn {
            let (style, name) = (style(stream), stream_name(stream));
            put!(out, " <i class=\"key {style}\"></i>{}", Escaped(&name));
        }
        out.push_str("</figcaption></figure>\n");
    }
    let title = format!("Percentiles of transfer times: {heading}");
    let id = format!("c{number}-percentiles");
    if let Some(svg) = figure::percentiles(&id, &title, &lines, TAIL_HEIGHT) {
        put!(
            out,
            "<figure>{svg}<figcaption><b>Percentiles.</b> The time within which a share of \
             messages arrived; each nine has the same room.</figcaption></figure>\n"
        );
    }
    if let Some(svg) = figure::phase(&format!("c{number}-phase"), heading, case) {
        let slots = match case.tdm {
            true => {
                "Shaded: the station's own slot; hatched: guard time; \
                     <i class=\"key f alarm\"></i>outside both."
            }
            false => "No slots in force.",
        };
        put!(
            out,
            "<figure>{svg}<figcaption><b>Arrival phase.</b> Frames of each station on the \
             segment by place in the cycle, log height. {slots}</figcaption></figure>\n"
        );
    }
}

/// Transfer times over time, of the streams that the other figures show.
fn series(out: &mut String, number: usize, heading: &str, (case, extras): (&CaseSummary, &Extras)) {
    let known = extras.series.get(&case.id).map_or(&[][..], Vec::as_slice);
    for (at, (stream, _)) in drawn(case).into_iter().enumerate() {
        let Some(found) = known.iter().find(|it| it.name == stream.name) else { continue };
        let name = stream_name(stream);
        let title = format!("Transfer times of {name} over time: {heading}");
        let id = format!("c{number}-series-{}", at + 1);
        let svg = figure::series(&id, &title, "transfer time", &found.transfer);
        let caption = format!("Each message of {name}, by its Send.");
        series_figure(out, &svg, &caption, &found.transfer);
    }
}

/// The longest packet paths of the case's capture, stage by stage.
fn longest(out: &mut String, number: usize, packet_paths: &[LongPacketPath]) {
    if packet_paths.is_empty() {
        return;
    }
    out.push_str("<h5>The longest packet paths</h5>\n<div class=\"figures\">\n");
    for (at, packet_path) in packet_paths.iter().enumerate() {
        let svg = figure::stages(&format!("c{number}-packet-path-{}", at + 1), packet_path);
        put!(
            out,
            "<figure>{svg}<figcaption><b>{}, {} µs.</b> {}</figcaption></figure>\n",
            Escaped(&packet_path.flow),
            us(packet_path.end_to_end_ns),
            Escaped(&packet_path.sentence)
        );
    }
    out.push_str("</div>\n");
}

fn wire(out: &mut String, case: &CaseSummary) {
    let wire = &case.wire;
    out.push_str("<dl class=\"wire\">\n");
    let mut row = |term: &str, value: String| {
        put!(out, "<div><dt>{term}</dt><dd>{}</dd></div>\n", Escaped(&value));
    };
    if let Some(backend) = &case.backend {
        row("SocketType", format!("{}: {}", backend.name, backend.promise));
    }
    row("Frames on the segment", digits(wire.frames));
    if case.tdm {
        let part = share(wire.outside_slots, wire.frames);
        row("Outside their slot", format!("{} ({part})", digits(wire.outside_slots)));
        if case.backend.as_ref().is_some_and(|c| c.slots == SlotPromise::RealTime) {
            let (outside, frames) = (wire.real_time_outside_slots, wire.real_time_frames);
            let part = share(outside, frames);
            row("Of real time, outside", format!("{} ({part})", digits(outside)));
        }
        if wire.outside_slots > 0 {
            row("Farthest outside", format!("{} µs", us(wire.worst_outside_ns)));
        }
        let part = share(wire.in_guard, wire.frames);
        row("In guard time", format!("{} ({part})", digits(wire.in_guard)));
        row("Bound of the timestamp", bound(case));
    }
    row("Not observed", digits(wire.unobserved));
    for (stream, text) in launches(case) {
        row(&Escaped(&format!("Launch times of {}", stream.name)).to_string(), text);
    }
    for reserved in &case.reserved {
        let term = format!("Rate of {}", reserved.station);
        row(&Escaped(&term).to_string(), reserved_text(reserved));
    }
    for stream in &case.streams {
        let late = match stream.deadline_ns {
            1.. => format!(
                ", {} late (after {} µs)",
                digits(stream.late),
                us_whole(stream.deadline_ns)
            ),
            _ => String::new(),
        };
        let skipped = match stream.skipped {
            0 => String::new(),
            count => format!("{} skipped, ", digits(count)),
        };
        let counts = format!(
            "{} sent, {} received, {skipped}{} lost{late}",
            digits(stream.sent),
            digits(stream.received),
            digits(stream.lost)
        );
        row(&Escaped(&stream_name(stream)).to_string(), counts);
    }
    out.push_str("</dl>\n");
}

/// How late the segment's timestamp can be, so how far the count of frames outside can be trusted.
fn bound(case: &CaseSummary) -> String {
    match (case.wire.timestamp_bound_p999_ns, case.wire.timestamp_bound_max_ns) {
        (Some(p999), Some(max)) => format!("{} µs (p99.9), {} µs (max)", us(p999), us(max)),
        (Some(p999), None) => format!("{} µs (p99.9)", us(p999)),
        (None, Some(max)) => format!("{} µs (max)", us(max)),
        (None, None) => "not measured".to_owned(),
    }
}

fn macs(out: &mut String, heading: &str, macs: &[MacSummary]) {
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"MAC counters, {}\">\
         <table class=\"numbers\">\n\
         <caption>Counters of each station's MAC, in frames.</caption>\n<thead><tr>\
         <th scope=\"col\">Station</th><th scope=\"col\" class=\"w\">SocketType</th>\
         <th scope=\"col\">released</th><th scope=\"col\">missed slots</th>\
         <th scope=\"col\">dropped at ingress</th><th scope=\"col\" class=\"w g\">Queue</th>\
         <th scope=\"col\">arrived</th><th scope=\"col\">released</th>\
         <th scope=\"col\">dropped, full</th><th scope=\"col\">dropped, too long</th>\
         </tr></thead>\n",
        Escaped(heading)
    );
    for mac in macs {
        out.push_str("<tbody>");
        let rows = mac.queues.len().max(1);
        put!(
            out,
            "<tr class=\"first\"><th scope=\"rowgroup\" rowspan=\"{rows}\">{}</th>\
             <td class=\"w\" rowspan=\"{rows}\">{}</td><td rowspan=\"{rows}\">{}</td>",
            Escaped(&mac.station),
            Escaped(&mac.socket),
            mac.released
        );
        for count in [mac.missed_slots, mac.ingress_dropped] {
            put!(out, "<td rowspan=\"{rows}\" class=\"{}\">{count}</td>", weight(count));
        }
        if mac.queues.is_empty() {
            out.push_str("<td class=\"w g\" colspan=\"5\">–</td>");
        }
        for (at, queue) in mac.queues.iter().enumerate() {
            if at > 0 {
                out.push_str("</tr>\n<tr>");
            }
            put!(
                out,
                "<td class=\"w g\">{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td>\
                 <td class=\"{}\">{}</td>",
                Escaped(&queue.name),
                queue.arrived,
                queue.released,
                weight(queue.dropped_full),
                queue.dropped_full,
                weight(queue.dropped_oversize),
                queue.dropped_oversize
            );
        }
        out.push_str("</tr></tbody>\n");
    }
    out.push_str("</table></div>\n");
}

fn weight(count: u64) -> &'static str {
    if count == 0 { "zero" } else { "some" }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timeline as a page, and as a section of another page.
//!
//! Without a script, it is a picture of the worst journey's window; with it, a picture that can be
//! moved, over data that stand in the page as arrays. Nothing is fetched.
//!
//! Not here: the picture (`picture`), how it is moved (`view.js`).

use super::picture::{duration, picture};
use super::{Flow, TimelineInput, rows};
use crate::base64::{base64_f64, base64_u32};
use crate::figure;
use crate::text::{Escaped, as_f64, is_unprintable, put};

const STYLE: &str = include_str!("../style.css");
const VIEW_STYLE: &str = include_str!("view.css");
const SCRIPT: &str = include_str!("view.js");

/// How it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// The window shown first, of the common scale; `None` for that of the longest journey.
    ///
    /// **Units**: ns.
    pub window_ns: Option<(i64, i64)>,
    /// Journeys in the list beside the picture, longest first.
    pub listed: usize,
    /// What `id`s of elements begin with; apart where a page has several timelines.
    pub id: String,
}

impl Default for TimelineOptions {
    fn default() -> TimelineOptions {
        TimelineOptions { window_ns: None, listed: 20, id: "timeline".to_owned() }
    }
}

/// The timeline as one self-contained HTML file.
///
/// The same timeline gives the same bytes.
pub fn page(input: &TimelineInput, options: &TimelineOptions) -> String {
    let mut out = String::with_capacity(1 << 18);
    put!(
        &mut out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n{}<header><h1>{}</h1></header>\n<main>\n",
        Escaped(&input.title),
        figure::DEFS,
        Escaped(&input.title)
    );
    out += &section(input, options);
    out += "</main>\n</body>\n</html>\n";
    out
}

/// The timeline as a section of a page that has the report's style and whose content security
/// policy lets its script run.
pub fn section(input: &TimelineInput, options: &TimelineOptions) -> String {
    let id = Escaped(&options.id);
    let mut out = String::new();
    put!(
        &mut out,
        "<section class=\"timeline\" aria-labelledby=\"{id}\">\n<style>\n{VIEW_STYLE}</style>\n\
         <h2 id=\"{id}\">Timeline</h2>\n"
    );
    said_first(&mut out, input);
    let longest = input.longest_first();
    let placed = rows(&input.intervals, input.lanes.len());
    let whole = input.span_ns().unwrap_or((0, 1));
    let chosen = longest.first().copied().filter(|_| options.window_ns.is_none());
    let window = options.window_ns.unwrap_or_else(|| chosen.map_or(whole, around));
    let window = (window.0, window.1.max(window.0.saturating_add(10)));
    let places = (placed.0.as_slice(), placed.1.as_slice());
    let still = picture(input, places, window, chosen, &options.id);
    put!(&mut out, "<div class=\"still\">\n{still}</div>\n");
    tools(&mut out, input);
    list(&mut out, input, &longest, options.listed);
    bounds(&mut out, input);
    put!(&mut out, "<script type=\"application/json\">");
    data(&mut out, input, &placed, window, chosen, longest.first().copied());
    put!(&mut out, "</script>\n<script>\n{SCRIPT}</script>\n</section>\n");
    out
}

/// The window of a journey, with some room.
fn around(flow: &Flow) -> (i64, i64) {
    let times = || flow.steps.iter().map(|step| step.1);
    let (from, to) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let margin = (i128::from(to) - i128::from(from)) * 3 / 20;
    let margin = i64::try_from(margin).unwrap_or(i64::MAX).max(50);
    (from.saturating_sub(margin), to.saturating_add(margin))
}

fn said_first(out: &mut String, input: &TimelineInput) {
    if input.losses.is_empty() {
        out.push_str("<p class=\"lossless\">No event was lost.</p>\n");
    } else {
        out.push_str("<ul class=\"losses bad\">");
        for loss in &input.losses {
            put!(out, "<li>{}</li>", Escaped(loss));
        }
        out.push_str("</ul>\n");
    }
    for clash in &input.clashes {
        put!(out, "<p class=\"bad\">{}</p>\n", Escaped(clash));
    }
    put!(out, "<p class=\"source\">Shown: {}.</p>\n", Escaped(&input.extent.join("; ")));
}

fn tools(out: &mut String, input: &TimelineInput) {
    const TOOLS: [(&str, &str, &str); 9] = [
        ("Home", "All", "show everything"),
        ("w", "Worst", "choose the longest journey"),
        ("f", "Frame", "show the chosen journey"),
        ("ArrowUp", "Previous", "choose the journey before"),
        ("ArrowDown", "Next", "choose the journey after"),
        ("ArrowLeft", "←", "earlier"),
        ("ArrowRight", "→", "later"),
        ("+", "+", "zoom in"),
        ("-", "−", "zoom out"),
    ];
    out.push_str("<div class=\"tools\" role=\"toolbar\" aria-label=\"Move the timeline\">");
    for (key, text, about) in TOOLS {
        put!(
            out,
            "<button type=\"button\" data-key=\"{key}\" title=\"{about}\" \
             aria-label=\"{about}\">{text}</button>"
        );
    }
    put!(
        out,
        "</div>\n<p class=\"said\" aria-live=\"polite\"></p>\n\
         <canvas tabindex=\"0\" role=\"img\" aria-label=\"Timeline of {}; arrow keys move it and \
         choose journeys, plus and minus zoom, Home shows all, w the longest journey, f the chosen \
         one, Escape none\"></canvas>\n\
         <p class=\"tools keys\">Drag to move, double-click or + and − to zoom, with the focus \
         also the wheel; ← → move, ↑ ↓ choose journeys, Home shows all, w the longest, \
         f the chosen one, Escape none. A click chooses the journey of a stage or event.</p>\n",
        Escaped(&input.title)
    );
}

fn list(out: &mut String, input: &TimelineInput, longest: &[&Flow], listed: usize) {
    let listed = longest.len().min(listed);
    if listed == 0 {
        return;
    }
    put!(out, "<h3>The longest journeys</h3>\n<ol class=\"longest\">\n");
    for flow in &longest[..listed] {
        let place = input.journeys.iter().position(|one| one.number == flow.number).unwrap_or(0);
        let bound = match flow.bound_ns {
            0 => String::new(),
            ns => format!(" ±{}", duration(i64::try_from(ns).unwrap_or(i64::MAX))),
        };
        put!(
            out,
            "<li><button type=\"button\" data-journey=\"{place}\">journey {}</button> {}{bound}, \
             {}, {}{}{}</li>\n",
            flow.number,
            duration(flow.length_ns),
            Escaped(&flow.flow),
            Escaped(&flow.state),
            if flow.sentence.is_empty() { "" } else { ". " },
            Escaped(&flow.sentence)
        );
    }
    out.push_str("</ol>\n");
}

fn bounds(out: &mut String, input: &TimelineInput) {
    let unsure = input.hosts.iter().filter(|host| host.bound_ns > 0);
    let line = |host: &super::HostView| {
        let bound = duration(i64::try_from(host.bound_ns).unwrap_or(i64::MAX));
        format!("{} within {bound}", host.name)
    };
    let lines: Vec<String> = unsure.map(line).collect();
    let text = match lines.is_empty() {
        true => "All events are of one clock.".to_owned(),
        false => format!(
            "Instants compared with those of another host are right: {}. The chosen journey shows \
             it as a bar around each event.",
            lines.join(", ")
        ),
    };
    put!(out, "<p class=\"source\">{}</p>\n", Escaped(&text));
}

/// A text in JSON inside a page: nothing in it ends the script element.
struct Json<'a>(&'a str);

impl std::fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str(" ")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(c))?,
                c if is_unprintable(c) => f.write_str("\\ufffd")?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

fn data(
    out: &mut String,
    input: &TimelineInput,
    (placed, counted): &(Vec<usize>, Vec<usize>),
    window: (i64, i64),
    chosen: Option<&Flow>,
    worst: Option<&Flow>,
) {
    let (from, to) = input.span_ns().unwrap_or((0, 1));
    // Instants since the first: doubles hold them exactly for 104 days.
    let since = |ns: i64| as_f64(ns.saturating_sub(from));
    let size = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let place = |number: Option<u64>| {
        let found =
            number.and_then(|it| input.journeys.binary_search_by_key(&it, |one| one.number).ok());
        found.map_or(0, |place| size(place) + 1)
    };
    let index = |flow: Option<&Flow>| match place(flow.map(|flow| flow.number)) {
        0 => "-1".to_owned(),
        place => (place - 1).to_string(),
    };
    put!(
        out,
        "{{\"from\":0,\"to\":{},\"view\":[{},{}],\"chosen\":{},\"worst\":{},\"hosts\":[",
        since(to),
        since(window.0),
        since(window.1),
        index(chosen),
        index(worst)
    );
    let comma = |at: usize| if at == 0 { "" } else { "," };
    for (at, host) in input.hosts.iter().enumerate() {
        put!(out, "{}{{\"n\":{},\"b\":{}}}", comma(at), Json(&host.name), host.bound_ns);
    }
    put!(out, "],\n\"lanes\":[");
    for (at, (lane, rows)) in input.lanes.iter().zip(counted).enumerate() {
        let (host, rows) = (lane.host, *rows);
        let (station, name) = (Json(&lane.station), Json(&lane.name));
        let comma = comma(at);
        put!(out, "{comma}{{\"h\":{host},\"s\":{station},\"n\":{name},\"r\":{rows}}}");
    }
    put!(out, "],\n\"names\":[");
    for (at, name) in input.names.iter().enumerate() {
        put!(out, "{}{}", comma(at), Json(name));
    }
    put!(out, "],\n\"flows\":[");
    let mut first = 0;
    for (at, flow) in input.journeys.iter().enumerate() {
        put!(
            out,
            "{}{{\"i\":{},\"s\":{},\"f\":{},\"t\":{},\"b\":{},\"w\":{},\"a\":{first},\"c\":{}}}",
            comma(at),
            flow.number,
            Json(&flow.state),
            Json(&flow.flow),
            flow.length_ns,
            flow.bound_ns,
            Json(&flow.sentence),
            flow.steps.len()
        );
        first += flow.steps.len();
    }
    let steps = || input.journeys.iter().flat_map(|flow| &flow.steps);
    put!(
        out,
        "],\n\"steps\":{{\"at\":\"{}\",\"lane\":\"{}\"}}",
        base64_f64(steps().map(|step| since(step.1))),
        base64_u32(steps().map(|step| size(step.0)))
    );
    put!(
        out,
        ",\n\"marks\":{{\"at\":\"{}\",\"lane\":\"{}\",\"j\":\"{}\"}}",
        base64_f64(input.events.iter().map(|mark| since(mark.at_ns))),
        base64_u32(input.events.iter().map(|mark| size(mark.lane))),
        base64_u32(input.events.iter().map(|mark| place(mark.journey)))
    );
    put!(
        out,
        ",\n\"ivs\":{{\"from\":\"{}\",\"to\":\"{}\",\"lane\":\"{}\",\"name\":\"{}\",\"j\":\"{}\",\
         \"row\":\"{}\"}}",
        base64_f64(input.intervals.iter().map(|it| since(it.from_ns))),
        base64_f64(input.intervals.iter().map(|it| since(it.to_ns.max(it.from_ns)))),
        base64_u32(input.intervals.iter().map(|it| size(it.lane))),
        base64_u32(input.intervals.iter().map(|it| size(it.name))),
        base64_u32(input.intervals.iter().map(|it| place(it.journey))),
        base64_u32(placed.iter().map(|row| size(*row)))
    );
    put!(
        out,
        ",\n\"bands\":{{\"from\":\"{}\",\"to\":\"{}\",\"lane\":\"{}\"}}",
        base64_f64(input.bands.iter().map(|band| since(band.from_ns))),
        base64_f64(input.bands.iter().map(|band| since(band.to_ns))),
        base64_u32(input.bands.iter().map(|band| size(band.lane)))
    );
    put!(
        out,
        ",\n\"counts\":{{\"at\":\"{}\",\"lane\":\"{}\",\"value\":\"{}\"}}}}",
        base64_f64(input.counts.iter().map(|count| since(count.at_ns))),
        base64_u32(input.counts.iter().map(|count| size(count.lane))),
        base64_u32(input.counts.iter().map(|count| count.value))
    );
}

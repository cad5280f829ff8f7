// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who carried the schedule out, in words: the same on the page and in the terminal.

use timewire_capture::summary::{
    BackendChoice, CaseSummary, ReservedSummary, StreamSummary, Summary,
};

use crate::text::{Escaped, count_f64, put, us};

/// What was taken for one scenario, and why.
pub(crate) fn choice_text(choice: &BackendChoice) -> String {
    let BackendChoice { scenario, asked, chosen, why, lacks, .. } = choice;
    let mut text = format!("backend of {scenario}: {chosen}, because {why} (--backend {asked})");
    if !lacks.is_empty() {
        put!(&mut text, "; but {lacks}");
    }
    text
}

/// The streams of a case that had launch times, each with what became of them.
pub(crate) fn launches(case: &CaseSummary) -> Vec<(&StreamSummary, String)> {
    let text = |stream: &StreamSummary| {
        let launch = stream.launch.as_ref()?;
        let mut text = format!(
            "{} given, {} refused, {} missed",
            launch.launched, launch.refused, launch.missed
        );
        if let Some(error) = &launch.error {
            let [min, p50, max] = [error.min_ns, error.p50_ns, error.max_ns].map(us);
            put!(&mut text, "; on the segment {min} to {max} us after them, p50 {p50}");
        }
        Some(text)
    };
    case.streams.iter().filter_map(|stream| Some((stream, text(stream)?))).collect()
}

/// What a station reserved, and whether it kept to it.
pub(crate) fn reserved_text(reserved: &ReservedSummary) -> String {
    let ReservedSummary { rate_bps, burst_bits, frames, outside_rate, .. } = reserved;
    let mbit = count_f64(*rate_bps) / 1e6;
    format!(
        "{mbit:.3} Mbit/s and a burst of {burst_bits} bit reserved; {outside_rate} of {frames} \
         real-time frames beyond"
    )
}

/// The choices of the run; nothing where there were none.
pub(crate) fn section(out: &mut String, summary: &Summary) {
    if summary.backends.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"backends\">\n<h2 id=\"backends\">Backends</h2>\n");
    for choice in &summary.backends {
        put!(out, "<p>{}.</p>\n", Escaped(&choice_text(choice)));
        if choice.passed_over.is_empty() {
            continue;
        }
        out.push_str(
            "<table class=\"env\"><caption>Passed over</caption><thead><tr><th scope=\"col\">\
             SocketType</th><th scope=\"col\">Why</th></tr></thead>\n<tbody>",
        );
        for passed in &choice.passed_over {
            let (backend, why) = (Escaped(&passed.backend), Escaped(&passed.why));
            put!(out, "<tr><th scope=\"row\">{backend}</th><td>{why}</td></tr>\n");
        }
        out.push_str("</tbody></table>\n");
    }
    out.push_str("</section>\n");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of a run: its drawing, and what each direction of each link carried.

use crate::extras::{Topology, TopologyLink};
use crate::figure;
use crate::text::{Escaped, count_f64, digits, put};

/// Links in the table; of more, the busiest.
const ROWS: usize = 40;

/// The section.
pub(crate) fn section(out: &mut String, network: &Topology) {
    out.push_str("<section aria-labelledby=\"network\">\n<h2 id=\"network\">Network</h2>\n");
    match figure::topology("topology", "The network", network) {
        Some(svg) => put!(
            out,
            "<figure>{svg}<figcaption><b>The network.</b> <i class=\"key f s1\"></i>station, \
             <i class=\"key f s3\"></i>bridge, <i class=\"key f s5\"></i>segment. A link is as \
             wide as its busier direction was busy.</figcaption></figure>\n"
        ),
        None => put!(
            out,
            "<p>It has {} nodes and {} links; a drawing shows at most {} nodes.</p>\n",
            network.nodes.len(),
            network.links.len(),
            figure::MAX_DRAWN
        ),
    }
    let mut known: Vec<&TopologyLink> =
        network.links.iter().filter(|link| link.carried.is_some()).collect();
    if !known.is_empty() {
        // Stable: links that were as busy as each other stay in the order of the file.
        let busy = |link: &TopologyLink| figure::busiest(link).unwrap_or(0.0);
        known.sort_by(|one, two| busy(two).total_cmp(&busy(one)));
        table(out, network, &known);
    }
    out.push_str("</section>\n");
}

fn table(out: &mut String, network: &Topology, links: &[&TopologyLink]) {
    let caption = match links.len() {
        0..=ROWS => "Links, the busiest first".to_owned(),
        count => format!("The {ROWS} busiest of {count} links"),
    };
    put!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Links\">\
         <table class=\"numbers\">\n<caption>{caption}.</caption>\n<thead><tr>\
         <th scope=\"col\">From</th><th scope=\"col\" class=\"w\">To</th>\
         <th scope=\"col\">Mbit/s</th><th scope=\"col\" class=\"g\">frames</th>\
         <th scope=\"col\">busy</th><th scope=\"col\" class=\"g\">frames back</th>\
         <th scope=\"col\">busy back</th></tr></thead>\n<tbody>"
    );
    for link in links.iter().take(ROWS) {
        let name = |end: usize| network.nodes.get(end).map_or("", |node| node.name.as_str());
        let [from, to] = link.ends.map(name);
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"w\">{}</td><td>{}</td>",
            Escaped(from),
            Escaped(to),
            count_f64(link.rate_bps) / 1e6
        );
        for carried in link.carried.iter().flatten() {
            put!(
                out,
                "<td class=\"g\">{}</td><td class=\"key-figure\">{}</td>",
                digits(carried.frames),
                Escaped(&figure::percent(carried.share))
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drawing of a plan: a line for each link, a box for each transmission, time from left to right.

use std::fmt::Write as _;

use crate::model::{LinkId, Plan, Problem, StreamId};

/// The most boxes of a drawing; more are no help to anybody.
const MAX_BOXES: i64 = 20_000;
/// The most links of a drawing.
const MAX_LINKS: usize = 200;
const LEFT: i64 = 160;
const WIDTH: i64 = 1200;
const ROW: i64 = 22;
const COLOURS: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#004488"];

/// A plan, or the part of it that concerns one stream's links, as SVG over one cycle.
///
/// **Errors**: there are too many links or transmissions to draw; how many.
pub fn svg(problem: &Problem, plan: &Plan, only: Option<StreamId>) -> Result<String, String> {
    let mut links: Vec<LinkId> = Vec::new();
    for admission in &plan.admitted {
        if only.is_none_or(|stream| stream == admission.stream) {
            links.extend(admission.transmissions.iter().map(|sent| sent.link));
        }
    }
    links.sort_unstable();
    links.dedup();
    if links.len() > MAX_LINKS {
        return Err(format!("{} links; at most {MAX_LINKS} can be drawn", links.len()));
    }
    let boxes = boxes(problem, plan, &links)?;
    let rows = i64::try_from(links.len()).unwrap_or(0);
    let (width, height) = (LEFT + WIDTH + 20, (rows + 2) * ROW);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" \
         height=\"{height}\" fill=\"white\"/>\n"
    );
    for (row, link) in links.iter().enumerate() {
        let y = i64::try_from(row).unwrap_or(0) * ROW;
        let name = escaped(&problem.network().link(*link).name);
        // Text goes into memory, which does not fail.
        let _ = writeln!(
            text,
            "<text x=\"4\" y=\"{}\">{name}</text><line x1=\"{LEFT}\" x2=\"{}\" y1=\"{}\" \
             y2=\"{}\" stroke=\"#cccccc\"/>",
            y + 15,
            LEFT + WIDTH,
            y + ROW - 2,
            y + ROW - 2
        );
    }
    text.push_str(&boxes);
    let cycle = plan.cycle;
    let y = rows * ROW + 15;
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{y}\">0</text><text x=\"{}\" y=\"{y}\" \
         text-anchor=\"end\">{cycle}</text>\n</svg>",
        LEFT + WIDTH
    );
    Ok(text)
}

fn boxes(problem: &Problem, plan: &Plan, links: &[LinkId]) -> Result<String, String> {
    let cycle = plan.cycle.as_ns();
    let place = |ns: i64| {
        // Hundredths of a unit, so that the drawing has no floats.
        let hundredths = i128::from(ns) * i128::from(WIDTH) * 100 / i128::from(cycle.max(1));
        i64::try_from(hundredths).unwrap_or(0)
    };
    let point = |hundredths: i64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let (mut text, mut count) = (String::new(), 0);
    for admission in &plan.admitted {
        let stream = problem.stream(admission.stream);
        let colour = COLOURS[admission.stream.index() % COLOURS.len()];
        let name = escaped(&stream.name);
        let turns = cycle / stream.interval.as_ns();
        for sent in &admission.transmissions {
            let Ok(row) = links.binary_search(&sent.link) else { continue };
            count += turns;
            if count > MAX_BOXES {
                return Err(format!("more than {MAX_BOXES} transmissions in a cycle"));
            }
            let y = i64::try_from(row).unwrap_or(0) * ROW + 2;
            let busy = problem.network().occupancy(sent.link, stream.length_bytes).as_ns();
            for turn in 0..turns {
                let start = (sent.start.as_ns() + turn * stream.interval.as_ns()).rem_euclid(cycle);
                let end = (start + busy).min(cycle);
                let (x, wide) = (place(start), (place(end) - place(start)).max(30));
                let _ = writeln!(
                    text,
                    "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{colour}\">\
                     <title>{name}, frame {} at {}ns</title></rect>",
                    point(x + LEFT * 100),
                    point(wide),
                    ROW - 5,
                    sent.frame,
                    start
                );
            }
        }
    }
    Ok(text)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Recipe, Topology};
    use crate::synth::{Options, plan};

    #[test]
    fn t0_a_drawing_has_each_transmission_or_is_refused() {
        let problem = Recipe::new(Topology::Line(3), 1, 5, 1).problem().unwrap();
        let plan = plan(problem.clone(), Options::default(), 1000);
        let drawn = svg(&problem, &plan, None).unwrap();
        let turns = |a: &crate::model::Admission| {
            let turns = problem.cycle().as_ns() / problem.stream(a.stream).interval.as_ns();
            usize::try_from(turns).unwrap() * a.transmissions.len()
        };
        let all: usize = plan.admitted.iter().map(turns).sum();
        assert_eq!(drawn.matches("<title>").count(), all);
        let one = svg(&problem, &plan, Some(StreamId(0))).unwrap();
        assert!(one.matches("<text").count() < drawn.matches("<text").count());
        assert!(one.contains("<title>s0, frame 0 at "));

        let problem = Recipe::new(Topology::Torus(8, 8), 2, 2000, 1).problem().unwrap();
        let plan = crate::synth::plan(problem.clone(), Options::default(), 1_000_000);
        let said = svg(&problem, &plan, None).unwrap_err();
        assert!(said.ends_with("links; at most 200 can be drawn"), "{said}");
    }

    #[test]
    fn t0_names_are_text() {
        assert_eq!(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}

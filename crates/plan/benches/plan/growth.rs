// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How planning grows: eight times twice as many streams, on networks in proportion, as a table and
//! as a drawing with logarithmic axes.

use std::fmt::Write as _;

use timewire_base::Span;
use timewire_plan::generate::{Recipe, Topology};

use crate::run;

/// Streams, rows and columns of a torus with 100 streams for each bridge, pods of a fat tree.
const SIZES: [(usize, (usize, usize), usize); 8] = [
    (1_250, (4, 3), 2),
    (2_500, (5, 5), 4),
    (5_000, (7, 7), 8),
    (10_000, (10, 10), 16),
    (20_000, (14, 14), 32),
    (40_000, (20, 20), 64),
    (80_000, (28, 28), 128),
    (160_000, (40, 40), 256),
];
/// Runs of which the quickest counts.
const RUNS: usize = 3;

struct Point {
    streams: f64,
    seconds: f64,
}

/// Prints the table; draws it into a file, if one is named.
pub fn growth(file: Option<&str>) {
    println!(
        "| network | bridges | streams | placed | links of a way | CPU s | us per stream | steps \
         per stream |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let torus = SIZES.map(|(streams, (w, h), _)| point("torus", Topology::Torus(w, h), 4, streams));
    let fat = SIZES.map(|(streams, _, pods)| {
        point("fat tree", Topology::FatTree { pods, width: 4, cores: 5 }, 8, streams)
    });
    if let Some(file) = file {
        std::fs::write(file, svg(&torus, &fat)).expect("a place for the drawing");
    }
}

fn point(name: &str, topology: Topology, stations: usize, streams: usize) -> Point {
    let mut recipe = Recipe::new(topology, stations, streams, 1);
    recipe.lengths = (64, 200);
    recipe.intervals = [1, 2, 4, 8].map(Span::from_ms).to_vec();
    let problem = recipe.problem().expect("a recipe that works");
    let mut outcome = run(problem.clone(), 20.0, 0);
    for _ in 1..RUNS {
        outcome.seconds = outcome.seconds.min(run(problem.clone(), 20.0, 0).seconds);
    }
    let plan = outcome.planner.plan();
    let links: usize = plan.admitted.iter().map(|stream| stream.transmissions.len()).sum();
    let nodes = problem.network().nodes().iter();
    let bridges = nodes.filter(|node| node.name.starts_with('b')).count();
    let per_stream = |all: f64| all / streams as f64;
    println!(
        "| {name} | {bridges} | {streams} | {} | {:.1} | {:.3} | {:.1} | {:.0} |",
        outcome.placed,
        per_stream(links as f64),
        outcome.seconds,
        per_stream(outcome.seconds * 1e6),
        per_stream(outcome.planner.work() as f64),
    );
    Point { streams: streams as f64, seconds: outcome.seconds }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;
/// Powers of ten at the ends of the axes.
const STREAMS: (f64, f64) = (3.0, 5.5);
const SECONDS: (f64, f64) = (-3.0, 1.5);

const STYLE: &str = "\
text{font:13px sans-serif;fill:#222}.paper{fill:#fff}.grid{stroke:#ddd}.guide{stroke:#888;\
stroke-dasharray:4 4}.torus{stroke:#205493;fill:#205493}.fat{stroke:#a13d00;fill:#a13d00}\
polyline{fill:none!important;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.paper{fill:#1c1c1c}.grid{stroke:#444}\
.torus{stroke:#7fb2f0;fill:#7fb2f0}.fat{stroke:#f2a35e;fill:#f2a35e}}";

fn place((least, most): (f64, f64), value: f64, from: f64, to: f64) -> f64 {
    from + (value.log10() - least) / (most - least) * (to - from)
}

fn x(streams: f64) -> f64 {
    place(STREAMS, streams, LEFT, WIDTH - RIGHT)
}

fn y(seconds: f64) -> f64 {
    place(SECONDS, seconds, HEIGHT - BOTTOM, TOP)
}

/// The drawing. Its colours are those of the reader's scheme, on a ground of its own.
fn svg(torus: &[Point], fat: &[Point]) -> String {
    let ends = |points: &[Point]| match points {
        [first, .., last] => format!("{:.3} s to {:.2} s", first.seconds, last.seconds),
        _ => String::new(),
    };
    let mut text = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
         <!-- Drawn by the benchmark `plan` of timewire-plan, mode `growth`. -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"t d\">\n<title id=\"t\">CPU time of planning</title>\n\
         <desc id=\"d\">Both axes are logarithmic. From {} to {} streams, networks in proportion: \
         on a torus from {}, on a fat tree from {}. A dashed line grows like the number of \
         streams.</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        torus.first().map_or(0.0, |point| point.streams),
        torus.last().map_or(0.0, |point| point.streams),
        ends(torus),
        ends(fat),
    );
    axes(&mut text);
    if let Some(first) = fat.first() {
        let until = 10f64.powf(STREAMS.1);
        let above = y(first.seconds * until / first.streams);
        // Text goes into memory, which does not fail.
        let _ = writeln!(
            text,
            "<line class=\"guide\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{above:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">in proportion</text>",
            x(first.streams),
            y(first.seconds),
            x(until),
            x(until) + 4.0,
            above + 4.0,
        );
    }
    for (name, class, points) in [("torus", "torus", torus), ("fat tree", "fat", fat)] {
        let mut line = String::new();
        for point in points {
            let (x, y) = (x(point.streams), y(point.seconds));
            let _ = write!(line, "{x:.1},{y:.1} ");
            let _ = writeln!(
                text,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{name}, {} \
                 streams: {:.3} s</title></circle>",
                point.streams, point.seconds
            );
        }
        let _ = writeln!(text, "<polyline class=\"{class}\" points=\"{}\"/>", line.trim_end());
        if let Some(last) = points.last() {
            let (x, y) = (x(last.streams) + 8.0, y(last.seconds) - 6.0);
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }
    text.push_str("</svg>\n");
    text
}

fn axes(text: &mut String) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, name) in [(1e3, "1 000"), (1e4, "10 000"), (1e5, "100 000")] {
        let x = x(value);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            bottom + 18.0
        );
    }
    for (value, name) in
        [(1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "100 ms"), (1.0, "1 s"), (10.0, "10 s")]
    {
        let y = y(value);
        let _ = writeln!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">streams</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0
    );
}

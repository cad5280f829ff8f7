// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as inline SVG. Colours are classes of the style sheet, so that they follow the light or
//! dark scheme; every figure has a title and a description in words.
//!
//! Not here: which figures a page shows (`scenario`, `case`).

mod axis;
mod clock;
mod histogram;
mod lanes;
mod numbers;
mod percentiles;
mod phase;
mod ranges;
mod series;
mod spread;
mod stages;
mod strip;
mod tail;
mod topology;

pub(crate) use clock::clock;
pub(crate) use histogram::histogram;
pub(crate) use lanes::lanes;
pub(crate) use numbers::numbers;
pub(crate) use percentiles::percentiles;
pub(crate) use phase::phase;
pub(crate) use ranges::{RangeBar, RangeRow, ranges};
pub(crate) use series::{numbered, series};
pub(crate) use spread::spread;
pub(crate) use stages::stages;
pub(crate) use strip::strip;
pub(crate) use tail::{TailLine, tail};
pub(crate) use topology::{MAX_NODES as MAX_DRAWN, busiest, percent, topology};

use axis::Axis;

use crate::text::{Escaped, put};

/// Width of every figure in its own units; the page scales it.
const WIDTH: f64 = 560.0;
/// Left edge of plots that have labels on the vertical axis; fits `99.99 %` at phone size.
const LEFT: f64 = 66.0;
/// Right edge of every plot.
const RIGHT: f64 = WIDTH - 14.0;
/// Height of tick labels and axis label under a plot, at phone size.
const FOOT: f64 = 44.0;

/// The parts that figures share by reference; stands once on the page.
pub(crate) const DEFS: &str = "<svg class=\"defs\" role=\"img\" aria-hidden=\"true\" width=\"0\" \
    height=\"0\"><title>Patterns the figures use</title><defs><pattern id=\"guard\" width=\"5\" \
    height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <path class=\"hatch\" d=\"M0 0V5\"/></pattern></defs></svg>\n";

/// One figure while it is drawn.
struct Svg {
    out: String,
}

impl Svg {
    fn open(id: &str, title: &str, description: &str, height: f64) -> Svg {
        let mut out = String::new();
        put!(
            &mut out,
            "<svg role=\"img\" viewBox=\"0 0 {} {}\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            Xy(WIDTH),
            Xy(height),
            Escaped(title),
            Escaped(description),
        );
        Svg { out }
    }

    fn close(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    fn path(&mut self, class: &str, d: &str) {
        put!(&mut self.out, "<path class=\"{class}\" d=\"{d}\"/>");
    }

    fn rect(&mut self, class: &str, (x0, x1): (f64, f64), (y0, y1): (f64, f64)) {
        let (w, h) = (Xy(x1 - x0), Xy(y1 - y0));
        let (x, y) = (Xy(x0), Xy(y0));
        put!(
            &mut self.out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/>"
        );
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y) = (Xy(x), Xy(y));
        put!(&mut self.out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", Escaped(text));
    }

    /// Vertical grid lines with labels below, and what the axis counts.
    fn x_axis(&mut self, axis: &Axis, (top, bottom): (f64, f64), label: &str) {
        let mut grid = String::new();
        for tick in axis.ticks() {
            put!(&mut grid, "M{} {}V{}", Xy(axis.at(tick.value)), Xy(top), Xy(bottom));
            if let Some(text) = tick.label {
                let x = axis.at(tick.value);
                let end = x > RIGHT - 12.0;
                self.text(if end { "e" } else { "m" }, x, bottom + 16.0, &text);
            }
        }
        self.path("grid", &grid);
        self.path("axis", &format!("M{} {}H{}", Xy(axis.from), Xy(bottom), Xy(axis.to)));
        self.text("m dim", (axis.from + axis.to) / 2.0, bottom + 36.0, label);
    }

    /// Horizontal grid lines with labels left of them.
    fn y_axis(&mut self, ticks: &[(f64, String)], (left, right): (f64, f64)) {
        let mut grid = String::new();
        for (y, label) in ticks {
            put!(&mut grid, "M{} {}H{}", Xy(left), Xy(*y), Xy(right));
            self.text("e", left - 6.0, y + 4.0, label);
        }
        self.path("grid", &grid);
    }

    /// Dashed verticals at the first `most` whole cycles, labelled where there is room.
    fn cycles(&mut self, axis: &Axis, most: u32, cycle_ns: f64, (top, bottom): (f64, f64)) {
        let mut lines = String::new();
        let mut labelled = f64::NEG_INFINITY;
        for n in 1..=most {
            let x = axis.at(cycle_ns * f64::from(n));
            if cycle_ns <= 0.0 || cycle_ns * f64::from(n) > axis.hi {
                break;
            }
            put!(&mut lines, "M{} {}V{}", Xy(x), Xy(top), Xy(bottom));
            let text = if n == 1 { "1 cycle".to_owned() } else { n.to_string() };
            if x - labelled > 48.0 {
                labelled = x;
                self.text(if x > RIGHT - 24.0 { "e dim" } else { "m dim" }, x, top - 5.0, &text);
            }
        }
        self.path("cycle", &lines);
    }
}

/// A coordinate with one decimal, `.0` left out: keeps the page small.
pub(crate) struct Xy(pub f64);

impl std::fmt::Display for Xy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.1}", self.0);
        let text = text.strip_suffix(".0").unwrap_or(&text);
        f.write_str(if text == "-0" { "0" } else { text })
    }
}

/// The outline of bars side by side, from `(left, right, top)` of each, as a closed area.
fn step_area(bars: impl IntoIterator<Item = (f64, f64, f64)>, base: f64) -> String {
    let mut d = String::new();
    let mut pen: Option<(f64, f64)> = None;
    for (left, right, top) in bars {
        let at_base = top >= base - 0.05;
        pen = match pen {
            Some((x, y)) if (x - left).abs() < 0.05 && !at_base => {
                if (y - top).abs() >= 0.05 {
                    put!(&mut d, "H{}V{}", Xy(left), Xy(top));
                }
                Some((right, top))
            }
            Some((x, _)) => {
                put!(&mut d, "H{}V{}Z", Xy(x), Xy(base));
                if at_base { None } else { Some(start_bar(&mut d, left, right, top, base)) }
            }
            None if at_base => None,
            None => Some(start_bar(&mut d, left, right, top, base)),
        };
    }
    if let Some((x, _)) = pen {
        put!(&mut d, "H{}V{}Z", Xy(x), Xy(base));
    }
    d
}

fn start_bar(d: &mut String, left: f64, right: f64, top: f64, base: f64) -> (f64, f64) {
    put!(d, "M{} {}V{}", Xy(left), Xy(base), Xy(top));
    (right, top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_bars_become_closed_areas() {
        let bars = [(0.0, 2.0, 5.0), (2.0, 4.0, 5.0), (4.0, 6.0, 3.0), (6.0, 8.0, 10.0)];
        assert_eq!(step_area(bars, 10.0), "M0 10V5H4V3H6V10Z");
        let apart = [(0.0, 1.0, 5.0), (3.0, 4.0, 5.0)];
        assert_eq!(step_area(apart, 10.0), "M0 10V5H1V10ZM3 10V5H4V10Z");
        assert_eq!(step_area([], 10.0), "");
    }

    #[test]
    fn t0_coordinates_are_short() {
        assert_eq!(Xy(3.0).to_string(), "3");
        assert_eq!(Xy(3.25).to_string(), "3.2");
        assert_eq!(Xy(-0.01).to_string(), "0");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time within which a share of all values lies, for every share: the axis of shares gives each
//! further nine the same room, the axis of times has equal steps, so that a knee is where it is.

use super::axis::Axis;
use super::tail::TailLine;
use super::{FOOT, LEFT, RIGHT, Svg, Xy};
use crate::text::{as_f64, count_f64, put, us};

const TOP: f64 = 14.0;

/// The figure, `height` units high; `None` without any line.
pub(crate) fn percentiles(
    id: &str,
    title: &str,
    lines: &[TailLine<'_>],
    height: f64,
) -> Option<String> {
    let least = lines.iter().map(|l| l.transfer.min_ns).min()?;
    let most = lines.iter().map(|l| l.transfer.max_ns).max()?;
    let count = lines.iter().map(|l| l.transfer.count).max()?.max(1);
    let mut svg = Svg::open(id, title, &description(lines), height);
    let bottom = height - FOOT;
    let floor = 10_f64.powf((1.0 / count_f64(count)).log10().floor()).clamp(1e-6, 1e-2);
    // The rest beyond a share falls towards the right.
    let x = Axis::log((floor, 1.0), (RIGHT, LEFT));
    let y = Axis::linear((as_f64(least.min(0)), as_f64(most)), (bottom, TOP));
    let ticks = y.ticks().into_iter().filter_map(|tick| Some((y.at(tick.value), tick.label?)));
    svg.y_axis(&ticks.collect::<Vec<_>>(), (LEFT, RIGHT));
    let mut grid = String::new();
    for (rest, label) in SHARES {
        if rest >= floor * 0.999 {
            put!(&mut grid, "M{} {TOP}V{}", Xy(x.at(rest)), Xy(bottom));
            let class = if x.at(rest) > RIGHT - 12.0 { "e" } else { "m" };
            svg.text(class, x.at(rest), bottom + 16.0, label);
        }
    }
    svg.path("grid", &grid);
    svg.path("axis", &format!("M{LEFT} {}H{RIGHT}", Xy(bottom)));
    svg.text("m dim", (LEFT + RIGHT) / 2.0, bottom + 36.0, "percentile; time upwards, µs");
    for line in lines {
        let mut pen = (x.at(1.0), y.at(as_f64(line.transfer.min_ns)));
        let mut d = format!("M{} {}", Xy(pen.0), Xy(pen.1));
        for &(share, ns) in &line.transfer.cdf {
            // The last value has all below it: it stands at the end of the axis.
            let next = (x.at((1.0 - share).max(floor)), y.at(as_f64(ns)));
            if (next.0 - pen.0).abs() >= 0.3 || (next.1 - pen.1).abs() >= 0.3 {
                put!(&mut d, "L{} {}", Xy(next.0), Xy(next.1));
                pen = next;
            }
        }
        svg.path(&line.class, &d);
    }
    Some(svg.close())
}

/// The rest beyond a percentile, and what it is called.
const SHARES: [(f64, &str); 7] = [
    (0.5, "50"),
    (0.1, "90"),
    (0.01, "99"),
    (1e-3, "99.9"),
    (1e-4, "99.99"),
    (1e-5, "99.999"),
    (1e-6, "99.9999"),
];

fn description(lines: &[TailLine<'_>]) -> String {
    let one = |l: &TailLine<'_>| {
        let t = l.transfer;
        let (p90, p999, max) = (us(t.p90_ns), us(t.p999_ns), us(t.max_ns));
        format!("{}: 90 % within {p90} µs, 99.9 % within {p999}, all within {max}.", l.name)
    };
    lines.iter().map(one).collect::<Vec<_>>().join(" ")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How values are spread, as histograms under each other on one axis.

use super::axis::Axis;
use super::{FOOT, LEFT, RIGHT, Svg, step_area};
use crate::run_report::Spread;
use crate::text::{as_f64, count_f64, digits, share, us};

const TOP: f64 = 22.0;
const PANEL: f64 = 84.0;
const GAP: f64 = 26.0;
/// Colours that the style sheet has.
const COLOURS: usize = 6;

/// The figure; `None` of nothing.
pub(crate) fn spread(id: &str, title: &str, spreads: &[Spread]) -> Option<String> {
    let bins = || spreads.iter().flat_map(|spread| &spread.bins);
    let least = bins().map(|bin| bin.from_ns).min()?;
    let most = bins().map(|bin| bin.to_ns).max()?;
    let top = |at: usize| TOP + count_f64(at as u64) * (PANEL + GAP);
    let height = top(spreads.len()) - GAP + FOOT;
    let mut svg = Svg::open(id, title, &description(spreads), height);
    let log = least >= 0 && spreads.iter().all(|spread| spread.log);
    let x = match log {
        true => Axis::log_time(as_f64(least), as_f64(most), (LEFT, RIGHT)),
        false => Axis::linear((as_f64(least), as_f64(most)), (LEFT, RIGHT)),
    };
    let label = if log { "time, µs (log)" } else { "time, µs" };
    svg.x_axis(&x, (TOP, height - FOOT), label);
    for (at, spread) in spreads.iter().enumerate() {
        let (top, bottom) = (top(at), top(at) + PANEL);
        let most = spread.bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
        let y = Axis::log((0.5, count_f64(most).max(2.0)), (bottom, top));
        svg.y_axis(&[(y.at(count_f64(most)), digits(most))], (LEFT, RIGHT));
        let bars = spread.bins.iter().filter(|bin| bin.count > 0).map(|bin| {
            let (left, right) = (x.at(as_f64(bin.from_ns)), x.at(as_f64(bin.to_ns)));
            // What is there is visible, however narrow its bin.
            (left, right.max(left + 0.6), y.at(count_f64(bin.count)).min(bottom - 1.5))
        });
        svg.path(&format!("f s{}", at % COLOURS + 1), &step_area(bars, bottom));
        svg.path("axis", &format!("M{LEFT} {bottom}H{RIGHT}"));
        svg.text("e halo", RIGHT - 4.0, top + 4.0, &spread.name);
        if spread.beyond > 0 {
            let (part, max) = (share(spread.beyond, spread.numbers.count), spread.numbers.max_ns);
            let text = format!("{part} beyond, up to {}", us(max));
            svg.text("e back", RIGHT - 4.0, top + 20.0, &text);
        }
    }
    Some(svg.close())
}

fn description(spreads: &[Spread]) -> String {
    let one = |spread: &Spread| {
        let numbers = &spread.numbers;
        format!(
            "{}: {} values from {} to {} µs, median {}, 99 % within {}.",
            spread.name,
            digits(numbers.count),
            us(numbers.min_ns),
            us(numbers.max_ns),
            us(numbers.p50_ns),
            us(numbers.p99_ns)
        )
    };
    spreads.iter().map(one).collect::<Vec<_>>().join(" ")
}

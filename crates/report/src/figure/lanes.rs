// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a cycle something was, a lane for each of those that it was of, with the windows in
//! which it may be there.

use super::axis::Axis;
use super::{FOOT, RIGHT, Svg, Xy, step_area};
use crate::run_report::Lane;
use crate::text::{as_f64, count_f64, digits, put, us_whole};

const TOP: f64 = 2.0;
const LABEL: f64 = 19.0;
const LANE: f64 = 34.0;
const LEFT: f64 = 14.0;
/// Colours that the style sheet has.
const COLOURS: usize = 6;

/// The figure; `None` of nothing.
pub(crate) fn lanes(id: &str, title: &str, cycle_ns: i64, lanes: &[Lane]) -> Option<String> {
    if cycle_ns <= 0 || lanes.iter().all(|lane| lane.counts.iter().all(|count| *count == 0)) {
        return None;
    }
    let bottom = TOP + count_f64(lanes.len() as u64) * (LABEL + LANE);
    let mut svg = Svg::open(id, title, &description(cycle_ns, lanes), bottom + FOOT);
    let x = Axis::linear((0.0, as_f64(cycle_ns)), (LEFT, RIGHT));
    svg.x_axis(&x, (TOP + LABEL, bottom), "time in the cycle, µs");
    for (at, lane) in lanes.iter().enumerate() {
        let top = TOP + LABEL + count_f64(at as u64) * (LABEL + LANE);
        let (base, colour) = (top + LANE, at % COLOURS + 1);
        for (from, to) in &lane.windows {
            let ends = (x.at(as_f64(*from)), x.at(as_f64(*to)));
            svg.rect(&format!("shade f s{colour}"), ends, (top, base));
        }
        let most = lane.counts.iter().copied().max().unwrap_or(0).max(2);
        let y = Axis::log((0.5, count_f64(most)), (base, top + 1.0));
        let bars = lane.counts.iter().enumerate().map(|(at, &count)| {
            let left = as_f64(lane.bin_ns) * count_f64(at as u64);
            let height = if count == 0 { base } else { y.at(count_f64(count)) };
            (x.at(left), x.at(left + as_f64(lane.bin_ns)), height)
        });
        svg.path(&format!("f s{colour}"), &step_area(bars, base));
        svg.path("axis", &format!("M{LEFT} {}H{RIGHT}", Xy(base)));
        svg.text("halo", LEFT, top - 5.0, &lane.name);
        let count = digits(lane.counts.iter().sum());
        svg.text("e dim back", RIGHT, top - 5.0, &count);
    }
    Some(svg.close())
}

fn description(cycle_ns: i64, lanes: &[Lane]) -> String {
    let mut text = format!("Cycle of {} µs.", us_whole(cycle_ns));
    for lane in lanes {
        put!(&mut text, " {}: {}", lane.name, digits(lane.counts.iter().sum()));
        for (from, to) in &lane.windows {
            put!(&mut text, ", window {} to {} µs", us_whole(*from), us_whole(*to));
        }
        text.push('.');
    }
    text
}

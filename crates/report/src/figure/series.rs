// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values over time: each where and when it was, coloured by two thresholds. What the grid has is
//! drawn as it is, so ten million values take the room of a few thousand.

use timewire_capture::series::TimeSeries;

use super::axis::Axis;
use super::{FOOT, LEFT, RIGHT, Svg, Xy};
use crate::text::{as_f64, count_f64, digits, put, share, us, us_whole};

const TOP: f64 = 14.0;
const HEIGHT: f64 = 240.0;
/// Classes of the style sheet for good, between the thresholds and bad values.
const CLASSES: [&str; 3] = ["v-good", "v-open", "v-bad"];

/// The figure of one time series; `what` is the name of its values.
pub(crate) fn series(id: &str, title: &str, what: &str, series: &TimeSeries) -> String {
    let (mut svg, bottom) = values(id, title, series);
    times(&mut svg, series.to_ns.saturating_sub(series.from_ns), bottom, what);
    svg.close()
}

/// The same with the numbers of messages in place of instants.
pub(crate) fn numbered(id: &str, title: &str, what: &str, series: &TimeSeries) -> String {
    let (mut svg, bottom) = values(id, title, series);
    let ends = [series.from_ns, series.to_ns].map(as_f64);
    // An axis has its labels in thousandths of its values.
    let x = Axis::linear((ends[0] * 1e3, ends[1] * 1e3), (LEFT, RIGHT));
    svg.x_axis(&x, (bottom, bottom), &format!("number of the message; upwards: {what}, µs"));
    svg.close()
}

fn values(id: &str, title: &str, series: &TimeSeries) -> (Svg, f64) {
    let mut svg = Svg::open(id, title, &description(series), HEIGHT);
    let bottom = HEIGHT - FOOT;
    let (least, most) = (as_f64(series.least_ns), as_f64(series.most_ns));
    let y = match series.log {
        true => Axis::log((least, most), (bottom, TOP)),
        false => Axis::linear((least, most), (bottom, TOP)),
    };
    let ticks = y.ticks().into_iter().filter_map(|tick| Some((y.at(tick.value), tick.label?)));
    svg.y_axis(&apart(ticks.collect()), (LEFT, RIGHT));
    let columns = count_f64(TimeSeries::COLUMNS as u64);
    let (wide, high) =
        ((RIGHT - LEFT) / columns, (bottom - TOP) / count_f64(TimeSeries::ROWS as u64));
    for (class, name) in CLASSES.iter().enumerate() {
        let name = if series.thresholds_ns.is_none() { "v-plain" } else { name };
        let mut d = String::new();
        for (row, from, to) in series.runs(class) {
            let at = bottom - (count_f64(row as u64) + 0.5) * high;
            let (left, long) =
                (count_f64(from as u64) * wide, count_f64((to - from) as u64) * wide);
            put!(&mut d, "M{} {}h{}", Xy(LEFT + left), Xy(at), Xy(long));
        }
        if !d.is_empty() {
            svg.path(name, &d);
        }
    }
    for (at, class) in series.thresholds_ns.into_iter().flatten().zip(["v-open", "v-bad"]) {
        if as_f64(at) > least && as_f64(at) < most {
            let d = format!("M{LEFT} {}H{RIGHT}", Xy(y.at(as_f64(at))));
            svg.path(&format!("limit {class}"), &d);
        }
    }
    (svg, bottom)
}

/// Ticks that do not stand on each other; the upper of two stays.
fn apart(mut ticks: Vec<(f64, String)>) -> Vec<(f64, String)> {
    ticks.sort_by(|one, two| one.0.total_cmp(&two.0));
    let mut last = f64::NEG_INFINITY;
    ticks.retain(|(y, _)| {
        let stays = y - last >= 14.0;
        if stays {
            last = *y;
        }
        stays
    });
    ticks
}

/// The axis of time below.
pub(super) fn times(svg: &mut Svg, long_ns: i64, bottom: f64, what: &str) {
    let (unit, ns) = match long_ns {
        ..10_000_000 => ("µs", 1e3),
        10_000_000..10_000_000_000 => ("ms", 1e6),
        10_000_000_000..=7_200_000_000_000 => ("s", 1e9),
        _ => ("h", 3.6e12),
    };
    // An axis has its labels in thousandths of its values.
    let x = Axis::linear((0.0, as_f64(long_ns) / ns * 1e3), (LEFT, RIGHT));
    svg.x_axis(&x, (bottom, bottom), &format!("time since the first, {unit}; upwards: {what}, µs"));
}

fn description(series: &TimeSeries) -> String {
    let (least, most) = (us(series.least_ns), us(series.most_ns));
    let count = series.count();
    let mut text = format!("{} values from {least} to {most} µs.", digits(count));
    if let Some([first, second]) = series.thresholds_ns {
        let [_, open, bad] = series.counts;
        let (first, second) = (us_whole(first), us_whole(second));
        put!(
            &mut text,
            " {} above {first} µs, {} of them above {second} µs.",
            share(open + bad, count),
            share(bad, count)
        );
    }
    text
}

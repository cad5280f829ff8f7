// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a clock went against another over time.

use timewire_capture::sync::ClockSeries;

use super::axis::Axis;
use super::series::times;
use super::{FOOT, LEFT, RIGHT, Svg, Xy};
use crate::text::{as_f64, put, us_exact};

const TOP: f64 = 14.0;
const HEIGHT: f64 = 190.0;
/// Places side by side; in each, only the extremes of more samples are drawn.
const PLACES: i64 = 400;

/// The figure; `None` of less than two samples.
pub(crate) fn clock(id: &str, series: &ClockSeries) -> Option<String> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    let long = last.0.checked_sub(first.0).filter(|long| *long > 0)?;
    let least = series.points.iter().map(|point| point.1).min()?;
    let most = series.points.iter().map(|point| point.1).max()?;
    let description = format!(
        "{} samples in {:.1} s, from {} to {} µs.",
        series.points.len(),
        as_f64(long) / 1e9,
        us_exact(least),
        us_exact(most)
    );
    let mut svg = Svg::open(id, &series.name, &description, HEIGHT);
    let bottom = HEIGHT - FOOT;
    // A nanosecond is the least that clocks tell.
    let room = ((as_f64(most) - as_f64(least)) * 0.06).max(1.0);
    let y = Axis::linear((as_f64(least) - room, as_f64(most) + room), (bottom, TOP));
    let ticks = [least, most].map(|ns| (y.at(as_f64(ns)), us_exact(ns)));
    let mut ticks = ticks.to_vec();
    ticks.dedup_by(|one, two| (one.0 - two.0).abs() < 14.0);
    if least < 0 && most > 0 && ticks.iter().all(|(at, _)| (at - y.at(0.0)).abs() > 14.0) {
        ticks.push((y.at(0.0), "0".to_owned()));
    }
    svg.y_axis(&ticks, (LEFT, RIGHT));
    let x = Axis::linear((0.0, as_f64(long)), (LEFT, RIGHT));
    let mut d = String::new();
    let since = |at: i64| at.saturating_sub(first.0);
    let place = |at: i64| i128::from(since(at)) * i128::from(PLACES) / i128::from(long);
    for chunk in series.points.chunk_by(|one, two| place(one.0) == place(two.0)) {
        let low = chunk.iter().min_by_key(|point| point.1)?;
        let high = chunk.iter().max_by_key(|point| point.1)?;
        let ends = if low.0 <= high.0 { [low, high] } else { [high, low] };
        let ends = if low == high { &ends[..1] } else { &ends[..] };
        for (at, ns) in ends {
            let pen = if d.is_empty() { 'M' } else { 'L' };
            put!(&mut d, "{pen}{} {}", Xy(x.at(as_f64(since(*at)))), Xy(y.at(as_f64(*ns))));
        }
    }
    svg.path("line s1", &d);
    times(&mut svg, long, bottom, "ahead by");
    Some(svg.close())
}

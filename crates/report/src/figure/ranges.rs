// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What streams came to in several places, under each other on one axis of time: median, 99th
//! percentile and longest, beside what was promised.

use super::axis::Axis;
use super::{FOOT, RIGHT, Svg, Xy};
use crate::text::{as_f64, count_f64, put, us};

const TOP: f64 = 22.0;
/// Names of streams stand above their bars.
const NAME: f64 = 20.0;
const BAR: f64 = 15.0;
const GAP: f64 = 10.0;
/// Places stand left of their bars.
const LEFT: f64 = 92.0;
/// Colours that the style sheet has.
const COLOURS: usize = 6;

/// A stream, and what it came to in each place.
pub(crate) struct RangeRow {
    pub name: String,
    pub bars: Vec<Option<RangeBar>>,
}

/// What a stream came to in one place. **Units**: nanoseconds.
pub(crate) struct RangeBar {
    pub p50_ns: i64,
    pub p99_ns: i64,
    pub max_ns: i64,
    /// The promised latency, and the same with the launch error of the place.
    pub promised_ns: Option<(i64, i64)>,
    /// The longest is beyond a limit.
    pub is_beyond: bool,
}

/// The figure; `None` where nothing was measured.
pub(crate) fn ranges(
    id: &str,
    title: &str,
    places: &[String],
    rows: &[RangeRow],
) -> Option<String> {
    let bars = || rows.iter().flat_map(|row| row.bars.iter().flatten());
    let limits = || bars().filter_map(|bar| bar.promised_ns);
    let least = bars().map(|bar| bar.p50_ns).chain(limits().map(|it| it.0)).min()?;
    let most = bars().map(|bar| bar.max_ns).chain(limits().map(|it| it.1)).max()?;
    let of_row = NAME + BAR * count_f64(places.len() as u64) + GAP;
    let height = TOP + of_row * count_f64(rows.len() as u64) + FOOT;
    let mut svg = Svg::open(id, title, &description(places, rows), height);
    let x = Axis::log_time(as_f64(least), as_f64(most), (LEFT, RIGHT));
    svg.x_axis(&x, (TOP, height - FOOT), "latency, µs (log)");
    for (at, row) in rows.iter().enumerate() {
        let top = TOP + of_row * count_f64(at as u64);
        svg.text("halo", 2.0, top + 13.0, &row.name);
        for (place, (name, bar)) in places.iter().zip(&row.bars).enumerate() {
            let y = top + NAME + BAR * (count_f64(place as u64) + 0.5);
            svg.text("e dim", LEFT - 8.0, y + 4.0, name);
            if let Some(bar) = bar {
                drawn(&mut svg, &x, y, bar, place);
            }
        }
    }
    Some(svg.close())
}

fn drawn(svg: &mut Svg, x: &Axis, y: f64, bar: &RangeBar, place: usize) {
    let at = |ns: i64| x.at(as_f64(ns));
    let class = match bar.is_beyond {
        true => "alarm".to_owned(),
        false => format!("s{}", place % COLOURS + 1),
    };
    if let Some((promised, limit)) = bar.promised_ns {
        let (promised, limit) = (at(promised), at(limit));
        let (top, bottom) = (y - BAR / 2.0 + 1.5, y + BAR / 2.0 - 1.5);
        svg.rect("f v-plain shade", (promised, limit.max(promised + 1.0)), (top, bottom));
        let d = format!("M{} {}V{}", Xy(limit), Xy(top), Xy(bottom));
        svg.path("edge edge-1 v-bad", &d);
    }
    let (p50, p99, max) = (at(bar.p50_ns), at(bar.p99_ns), at(bar.max_ns));
    let mut d = format!("M{} {}H{}", Xy(p50), Xy(y), Xy(max.max(p50 + 0.6)));
    put!(&mut d, "M{} {}V{}", Xy(p99), Xy(y - 3.0), Xy(y + 3.0));
    put!(&mut d, "M{} {}V{}", Xy(max), Xy(y - 5.0), Xy(y + 5.0));
    svg.path(&format!("line {class}"), &d);
    put!(
        &mut svg.out,
        "<circle class=\"f {class}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>",
        Xy(p50),
        Xy(y)
    );
}

fn description(places: &[String], rows: &[RangeRow]) -> String {
    let one = |name: &str, bar: &RangeBar| {
        let limit = bar.promised_ns.map_or_else(String::new, |(promised, limit)| {
            let beyond = if bar.is_beyond { ", which it exceeds" } else { "" };
            format!(", promised {} µs, limit {}{beyond}", us(promised), us(limit))
        });
        let RangeBar { p50_ns, p99_ns, max_ns, .. } = *bar;
        let (p50, p99, max) = (us(p50_ns), us(p99_ns), us(max_ns));
        format!("{name}: median {p50} µs, 99 % within {p99}, longest {max}{limit}.")
    };
    let of_row = |row: &RangeRow| {
        let bars = places.iter().zip(&row.bars);
        let bars = bars.filter_map(|(name, bar)| Some(one(name, bar.as_ref()?)));
        format!("{}: {}", row.name, bars.collect::<Vec<_>>().join(" "))
    };
    rows.iter().map(of_row).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_bar_is_where_its_figures_are_and_beyond_its_limit_in_another_colour() {
        let bar = |max_ns, promised_ns, is_beyond| {
            Some(RangeBar { p50_ns: 10_000, p99_ns: 20_000, max_ns, promised_ns, is_beyond })
        };
        let places = ["sim".to_owned(), "lab".to_owned()];
        let rows = [
            RangeRow { name: "a<b".to_owned(), bars: vec![bar(50_000, None, false), None] },
            RangeRow {
                name: "c".to_owned(),
                bars: vec![None, bar(90_000, Some((40_000, 60_000)), true)],
            },
        ];
        let svg = ranges("r", "Ranges", &places, &rows).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<circle class=\"f alarm\"").count(), 1);
        assert_eq!(svg.matches("class=\"edge edge-1 v-bad\"").count(), 1);
        assert!(svg.contains("a&lt;b: sim: median 10.0 µs"), "{svg}");
        assert!(svg.contains("limit 60.0, which it exceeds"), "{svg}");
        // The median stands left of the longest, on the axis of all.
        let x: Vec<f64> = svg
            .split("<path class=\"line ")
            .skip(1)
            .map(|path| {
                let d = path.split("d=\"M").nth(1).unwrap();
                d.split(' ').next().unwrap().parse().unwrap()
            })
            .collect();
        assert_eq!(x.len(), 2);
        assert!((x[0] - x[1]).abs() < 0.01 && x[0] >= LEFT, "{x:?}");
        assert!(ranges("r", "", &places, &[]).is_none());
    }
}

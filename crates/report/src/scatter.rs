// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A picture of messages one by one: how long each took in three parts of its way, coloured by two
//! thresholds. One SVG file that needs nothing else; the same input gives the same bytes.
//!
//! ```text
//! name of a row   [ driver ]  [ stack ]  [ complete ]     time upwards, by powers of ten
//! ```

use crate::text::{Escaped, put, share};

/// The picture.
#[derive(Clone, Debug)]
pub struct Scatter<'a> {
    /// Above it.
    pub title: &'a str,
    /// Green below the first, yellow up to the second, red above. **Units**: nanoseconds.
    pub thresholds_ns: [i64; 2],
    /// The names of the three columns.
    pub columns: [&'a str; 3],
    /// From the top.
    pub rows: &'a [ScatterRow],
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct ScatterRow {
    /// Its name.
    pub name: String,
    /// Of each column: message number and nanoseconds, in the order of the messages.
    pub points: [Vec<(u32, i64)>; 3],
}

const PANEL: (i64, i64) = (360, 130);
const LEFT: i64 = 60;
const TOP: i64 = 64;
const ROW: i64 = 184;
const GAP: i64 = 20;
const COLOURS: [&str; 3] = ["#1b7f3b", "#d99a00", "#c4282d"];

impl Scatter<'_> {
    /// The file.
    pub fn svg(&self) -> String {
        let (low, high) = self.decades();
        let width = LEFT + 3 * (PANEL.0 + GAP);
        let rows = i64::try_from(self.rows.len()).unwrap_or(0);
        let height = TOP + rows * ROW + 10;
        let mut out = String::new();
        put!(
            &mut out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
            Escaped(self.title)
        );
        let [first, second] = self.thresholds_ns.map(duration);
        let words =
            [format!("below {first}"), format!("{first} to {second}"), format!("above {second}")];
        for ((x, colour), words) in (0..).map(|at| LEFT + at * 150).zip(COLOURS).zip(words) {
            put!(
                &mut out,
                "<circle cx=\"{}\" cy=\"36\" r=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"40\">{words}</text>\n",
                x + 4,
                x + 12
            );
        }
        for (y, row) in (0..).map(|at| TOP + at * ROW).zip(self.rows) {
            put!(&mut out, "<text x=\"{LEFT}\" y=\"{y}\">{}</text>\n", Escaped(&row.name));
            for (at, (column, points)) in (0..).zip(self.columns.iter().zip(&row.points)) {
                let corner = (LEFT + at * (PANEL.0 + GAP), y + 24);
                self.panel(&mut out, corner, (low, high), column, points);
            }
        }
        out += "</svg>\n";
        out
    }

    /// The powers of ten of nanoseconds that hold every point and both thresholds.
    fn decades(&self) -> (u32, u32) {
        let all = self.rows.iter().flat_map(|row| &row.points).flatten().map(|point| point.1);
        let all = all.chain(self.thresholds_ns).filter(|ns| *ns > 0);
        let log = |ns: i64| ns.max(1).ilog10();
        let (low, high) = all.fold((u32::MAX, 0), |(low, high), ns| {
            (low.min(log(ns)), high.max(log(ns) + u32::from(10_i64.pow(log(ns)) < ns)))
        });
        (low.min(high), high.max(low.saturating_add(1)))
    }

    fn panel(
        &self,
        out: &mut String,
        (left, top): (i64, i64),
        (low, high): (u32, u32),
        column: &str,
        points: &[(u32, i64)],
    ) {
        let (width, height) = PANEL;
        let level = |ns: i64| {
            let share = (log10(ns) - f64::from(low)) / f64::from(high - low);
            tenths(top + height) - round(share.clamp(0.0, 1.0) * float(tenths(height)))
        };
        put!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
             fill=\"none\" stroke=\"#999\"/>\n"
        );
        for decade in low..=high {
            let (y, ns) = (Tenths(level(10_i64.saturating_pow(decade))), 10_i64.pow(decade));
            put!(
                out,
                "<path d=\"M{left} {y}h{width}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n",
                left - 4,
                if left == LEFT { duration(ns) } else { String::new() }
            );
        }
        let classes = [0, 1, 2].map(|class| {
            let own = points.iter().filter(|point| self.class_of(point.1) == class);
            own.copied().collect::<Vec<_>>()
        });
        let first = points.first().map_or(0, |point| i64::from(point.0));
        let last = points.last().map_or(1, |point| i64::from(point.0));
        for (colour, points) in COLOURS.iter().zip(&classes) {
            if points.is_empty() {
                continue;
            }
            put!(
                out,
                "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.4\" \
                 stroke-linecap=\"round\" d=\""
            );
            for (seq, ns) in points {
                let along = i64::from(*seq).saturating_sub(first) * tenths(width);
                let x = tenths(left) + (along / (last - first).max(1)).clamp(0, tenths(width));
                put!(out, "M{} {}h0", Tenths(x), Tenths(level(*ns)));
            }
            *out += "\"/>\n";
        }
        let total = u64::try_from(points.len()).unwrap_or(0);
        let told = classes.map(|own| share(u64::try_from(own.len()).unwrap_or(0), total));
        let text = match total {
            0 => format!("{column}: no timestamps"),
            _ => format!("{column}: {} | {} | {}", told[0], told[1], told[2]),
        };
        put!(out, "<text x=\"{left}\" y=\"{}\">{}</text>\n", top - 6, Escaped(&text));
    }

    fn class_of(&self, ns: i64) -> usize {
        let [first, second] = self.thresholds_ns;
        usize::from(ns >= first) + usize::from(ns > second)
    }
}

/// A coordinate in tenths of a pixel.
struct Tenths(i64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

fn tenths(pixels: i64) -> i64 {
    pixels * 10
}

fn duration(ns: i64) -> String {
    match ns {
        ..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} us", crate::text::us_whole(ns)),
        1_000_000..=999_999_999 => format!("{} ms", crate::text::us_whole(ns / 1_000)),
        _ => format!("{} s", crate::text::us_whole(ns / 1_000_000)),
    }
}

fn log10(ns: i64) -> f64 {
    float(ns.max(1)).log10()
}

/// For drawing: finer than a tenth of a pixel.
fn float(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "for drawing: numbers of pixels")]
fn round(number: f64) -> i64 {
    number.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<ScatterRow> {
        let column = |ns: [i64; 4]| (10..).zip(ns).collect();
        vec![ScatterRow {
            name: "udp <block>".to_owned(),
            points: [column([900, 1_000, 1_100, 90]), column([2_000, 5_000, 5_001, -3]), vec![]],
        }]
    }

    fn scatter(rows: &[ScatterRow]) -> String {
        Scatter {
            title: "messages & times",
            thresholds_ns: [2_000, 5_000],
            columns: ["driver", "stack", "complete"],
            rows,
        }
        .svg()
    }

    #[test]
    fn t0_points_have_their_class_and_all_are_drawn() {
        let svg = scatter(&rows());
        assert_eq!(svg, scatter(&rows()), "the same bytes");
        assert!(svg.contains("driver: 100 % | 0 % | 0 %"), "{svg}");
        // At the first threshold it is not below it; at the second not above.
        assert!(svg.contains("stack: 25.0 % | 50.0 % | 25.0 %"), "{svg}");
        assert!(svg.contains("complete: no timestamps"), "{svg}");
        assert!(svg.contains("messages &amp; times") && svg.contains("udp &lt;block&gt;"));
        assert_eq!(svg.matches("h0").count(), 8);
        // From 10 ns to 10 us: the smallest has 90 ns, the largest 5001.
        for decade in ["10 ns", "100 ns", "1 us", "10 us"] {
            assert!(svg.contains(&format!(">{decade}</text>")), "{decade}");
        }
        assert!(!svg.contains("100 us"));
    }

    #[test]
    fn t0_no_rows_and_one_point_are_drawn_too() {
        assert!(scatter(&[]).ends_with("</svg>\n"));
        let one = [ScatterRow { name: String::new(), points: [vec![(7, 1_000)], vec![], vec![]] }];
        assert_eq!(scatter(&one).matches("h0").count(), 1);
        // It stands at the left edge of its panel.
        assert!(scatter(&one).contains("M60.0 "));
    }
}

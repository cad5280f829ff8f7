// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers without a unit of their own, a row for each group: every one as a dot, the median as a
//! bar, and the limits that they should keep.

use super::axis::Axis;
use super::{FOOT, RIGHT, Svg, Xy};
use crate::run_report::NumberRow;
use crate::text::{Escaped, count_f64, put};

const TOP: f64 = 4.0;
const LEFT: f64 = 14.0;
const LABEL: f64 = 19.0;
const STRIP: f64 = 15.0;
/// Dots of a row at most; of more, every so many is drawn, and the ends.
const DOTS: usize = 200;

/// The figure; `None` of nothing.
pub(crate) fn numbers(
    id: &str,
    title: &str,
    [least, most]: [Option<f64>; 2],
    rows: &[NumberRow],
) -> Option<String> {
    let all = || rows.iter().flat_map(|row| &row.values).chain(&least).chain(&most).copied();
    let lo = all().fold(f64::INFINITY, f64::min).min(0.0);
    let hi = all().fold(f64::NEG_INFINITY, f64::max).max(0.0);
    if rows.iter().all(|row| row.values.is_empty()) || !(lo.is_finite() && hi.is_finite()) {
        return None;
    }
    let bottom = TOP + count_f64(rows.len() as u64) * (LABEL + STRIP);
    let mut svg = Svg::open(id, title, &description([least, most], rows), bottom + FOOT);
    let (factor, unit) = unit(hi.max(-lo));
    // An axis has its labels in thousandths of its values.
    let scale = 1e3 / factor;
    let x = Axis::linear((lo * scale, hi * scale), (LEFT, RIGHT));
    svg.x_axis(&x, (TOP, bottom), unit);
    for limit in [least, most].into_iter().flatten() {
        let line = format!("M{} {TOP}V{}", Xy(x.at(limit * scale)), Xy(bottom));
        svg.path("limit v-bad", &line);
    }
    let is_kept =
        |value: f64| least.is_none_or(|it| value >= it) && most.is_none_or(|it| value <= it);
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + count_f64(at as u64) * (LABEL + STRIP) + LABEL + STRIP / 2.0;
        svg.text("s halo", LEFT, y - STRIP / 2.0 - 4.0, &row.name);
        let mut values = row.values.clone();
        values.sort_by(f64::total_cmp);
        let step = values.len().div_ceil(DOTS).max(1);
        let last = values.len().saturating_sub(1);
        put!(&mut svg.out, "<g><title>{}</title>", Escaped(&one(row)));
        for (at, value) in values.iter().enumerate() {
            if at % step == 0 || at == last {
                let (class, x) =
                    (if is_kept(*value) { "s1" } else { "v-bad" }, x.at(value * scale));
                let (x, y) = (Xy(x), Xy(y));
                put!(
                    &mut svg.out,
                    "<circle class=\"bar f {class}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>"
                );
            }
        }
        if let Some(median) = row.median() {
            let x = Xy(x.at(median * scale));
            svg.path("mark l s2", &format!("M{x} {}v{STRIP}", Xy(y - STRIP / 2.0)));
        }
        svg.out.push_str("</g>");
    }
    Some(svg.close())
}

/// What numbers up to this one are counted in, and how that is written.
fn unit(most: f64) -> (f64, &'static str) {
    let units = [
        (1e12, "10¹²"),
        (1e9, "10⁹"),
        (1e6, "10⁶"),
        (1e3, "10³"),
        (1.0, ""),
        (1e-3, "10⁻³"),
        (1e-6, "10⁻⁶"),
    ];
    let fits = |unit: &&(f64, &str)| most >= 3.0 * unit.0;
    units.iter().find(fits).copied().unwrap_or(if most > 0.0 {
        (1e-9, "10⁻⁹")
    } else {
        (1.0, "")
    })
}

fn description([least, most]: [Option<f64>; 2], rows: &[NumberRow]) -> String {
    let mut text: Vec<String> = rows.iter().map(one).collect();
    text.extend(least.map(|limit| format!("At least {limit}.")));
    text.extend(most.map(|limit| format!("At most {limit}.")));
    text.join(" ")
}

fn one(row: &NumberRow) -> String {
    let ends = row.values.iter().copied();
    let (lo, hi) =
        (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(f64::NEG_INFINITY, f64::max));
    match row.median() {
        Some(median) => {
            format!("{}: {} from {lo} to {hi}, median {median}.", row.name, row.values.len())
        }
        None => format!("{}: none.", row.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_every_number_has_a_dot_and_those_beyond_a_limit_another_colour() {
        let row = |name: &str, values: &[f64]| NumberRow {
            name: name.to_owned(),
            values: values.to_vec(),
        };
        let rows = [row("gap=1ms", &[4e9, 2e9, 9e9]), row("gap=4ms", &[])];
        let svg = numbers("n", "t", [None, Some(5e9)], &rows).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("bar f v-bad").count(), 1);
        assert!(svg.contains("gap=1ms: 3 from 2000000000 to 9000000000, median 4000000000."));
        assert!(svg.contains(">10⁹<") && svg.contains("gap=4ms: none. At most 5000000000."));
        assert!(numbers("n", "t", [None; 2], &rows[1..]).is_none());
        let many: Vec<f64> = (0..10_000).map(f64::from).collect();
        let svg = numbers("n", "t", [None; 2], &[row("", &many)]).unwrap();
        assert_eq!(svg.matches("<circle").count(), DOTS + 1);
        let none = numbers("n", "t", [None; 2], &[row("", &[0.0, 0.0])]).unwrap();
        assert!(!none.contains("NaN") && !none.contains("inf"));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All cases of one scenario side by side: for each the range, the span from median to 99 % and the
//! 99.9 % mark of its streams, on one log axis.

use timewire_capture::summary::{CaseSummary, StreamClass};
use timewire_stats::Distribution;

use super::axis::Axis;
use super::{FOOT, RIGHT, Svg, Xy};
use crate::group::{Scenario, drawn, stream_name};
use crate::text::{Escaped, as_f64, count_f64, put, us};

const TOP: f64 = 20.0;
const LEFT: f64 = 14.0;
const LABEL: f64 = 19.0;
const STRIP: f64 = 15.0;
const GAP: f64 = 5.0;

/// The figure with its height; `None` when nothing was received.
pub(crate) fn strip(id: &str, scenario: &Scenario<'_>) -> Option<(String, f64)> {
    let all = || scenario.cases.iter().flat_map(|(_, case)| drawn(case)).map(|(_, d)| d);
    let lo = all().map(|d| d.min_ns).min()?;
    let hi = all().map(|d| d.max_ns).max()?;
    let strips = all().count();
    let height = TOP
        + count_f64(scenario.cases.len() as u64) * (LABEL + GAP)
        + count_f64(strips as u64) * STRIP
        + FOOT;
    let title = format!("Transfer times of all cases: {}", scenario.title("µs"));
    let mut svg = Svg::open(id, &title, &description(scenario), height);
    let x = Axis::log_time(as_f64(lo), as_f64(hi), (LEFT, RIGHT));
    let bottom = height - FOOT;
    svg.x_axis(&x, (TOP, bottom), "transfer time, µs (log)");
    svg.cycles(&x, 2, as_f64(scenario.cases[0].1.cycle_ns), (TOP - 4.0, bottom));
    let mut y = TOP;
    for (_, case) in &scenario.cases {
        y += LABEL;
        svg.text("s halo", LEFT, y - 4.0, &format!("{}, {}", case.title, case.load));
        for (stream, transfer) in drawn(case) {
            let name = stream_name(stream);
            one(&mut svg, &x, y + STRIP / 2.0, stream.class, &name, transfer);
            if stream.class == StreamClass::RealTime {
                published(&mut svg, &x, y + STRIP / 2.0, case);
            }
            y += STRIP;
        }
        y += GAP;
    }
    Some((svg.close(), height))
}

fn one(svg: &mut Svg, x: &Axis, y: f64, class: StreamClass, name: &str, t: &Distribution) {
    let colour = if class == StreamClass::RealTime { "rt" } else { "be" };
    let at = |ns: i64| x.at(as_f64(ns));
    put!(&mut svg.out, "<g><title>{}: {}</title>", Escaped(name), values(t));
    svg.path(
        &format!("range l {colour}"),
        &format!("M{} {}H{}", Xy(at(t.min_ns)), Xy(y), Xy(at(t.max_ns))),
    );
    let bar = (at(t.p50_ns), at(t.p99_ns).max(at(t.p50_ns) + 1.0));
    svg.rect(&format!("bar f {colour}"), bar, (y - 3.5, y + 3.5));
    let mut marks = format!("M{} {}v13", Xy(at(t.p50_ns)), Xy(y - 6.5));
    for ns in [t.p999_ns, t.max_ns] {
        put!(&mut marks, "M{} {}v7", Xy(at(ns)), Xy(y - 3.5));
    }
    svg.path(&format!("mark l {colour}"), &marks);
    svg.out.push_str("</g>");
}

fn published(svg: &mut Svg, x: &Axis, y: f64, case: &CaseSummary) {
    if let Some(published) = &case.published {
        let at = x.at(as_f64(published.transfer_mean_ns));
        let mean = us(published.transfer_mean_ns);
        put!(&mut svg.out, "<g><title>published mean: {mean} µs</title>");
        svg.path("published", &format!("M{} {}l5 5l-5 5l-5-5z", Xy(at), Xy(y - 5.0)));
        svg.out.push_str("</g>");
    }
}

fn values(t: &Distribution) -> String {
    format!(
        "median {} µs, 99 % within {}, 99.9 % within {}, from {} to {}",
        us(t.p50_ns),
        us(t.p99_ns),
        us(t.p999_ns),
        us(t.min_ns),
        us(t.max_ns)
    )
}

fn description(scenario: &Scenario<'_>) -> String {
    let mut text = String::new();
    for (_, case) in &scenario.cases {
        for (stream, transfer) in drawn(case) {
            let (name, values) = (stream_name(stream), values(transfer));
            put!(&mut text, "{}, {}, {name}: {values}. ", case.title, case.load);
        }
    }
    text
}

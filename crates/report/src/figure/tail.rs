// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tail of transfer times: how large a share takes longer than a time, both on log axes, so
//! that one message in ten thousand is as visible as the median.

use timewire_stats::Distribution;

use super::axis::Axis;
use super::{FOOT, LEFT, RIGHT, Svg, Xy};
use crate::text::{as_f64, count_f64, put, us};

const TOP: f64 = 22.0;

/// One line of the figure.
pub(crate) struct TailLine<'a> {
    /// Class of the style sheet that gives it colour and dashes.
    pub class: String,
    /// What it is, for the description.
    pub name: String,
    /// The times.
    pub transfer: &'a Distribution,
}

/// The figure, `height` units high; `None` without any line.
pub(crate) fn tail(
    id: &str,
    title: &str,
    lines: &[TailLine<'_>],
    cycle_ns: i64,
    height: f64,
) -> Option<String> {
    let lo = lines.iter().map(|l| l.transfer.min_ns).min()?;
    let hi = lines.iter().map(|l| l.transfer.max_ns).max()?;
    let most = lines.iter().map(|l| l.transfer.count).max()?.max(1);
    let mut svg = Svg::open(id, title, &description(lines), height);
    let bottom = height - FOOT;
    let x = Axis::log_time(as_f64(lo), as_f64(hi), (LEFT, RIGHT));
    let floor = 10_f64.powf((1.0 / count_f64(most)).log10().floor()).clamp(1e-5, 1e-3);
    // Larger shares are nearer to the top: the tail falls to the lower right.
    let y = Axis::log((floor, 1.0), (bottom, TOP));
    let mut ticks = Vec::new();
    for (above, label) in
        [(0.5, "50 %"), (0.1, "90 %"), (0.01, "99 %"), (1e-3, "99.9 %"), (1e-4, "99.99 %")]
    {
        if above >= floor {
            ticks.push((y.at(above), label.to_owned()));
        }
    }
    svg.y_axis(&ticks, (LEFT, RIGHT));
    svg.cycles(&x, 2, as_f64(cycle_ns), (TOP - 4.0, bottom));
    svg.x_axis(&x, (TOP, bottom), "time, µs (log); share of all within it");
    for line in lines {
        svg.path(&line.class, &steps(line.transfer, &x, &y));
    }
    Some(svg.close())
}

/// The share still on its way, as steps from `cdf`; ends where the last message has arrived.
fn steps(transfer: &Distribution, x: &Axis, y: &Axis) -> String {
    let mut pen = (x.at(as_f64(transfer.min_ns)), y.at(1.0));
    let mut d = format!("M{} {}", Xy(pen.0), Xy(pen.1));
    for &(share, ns) in &transfer.cdf {
        let next = (x.at(as_f64(ns)), y.at(1.0 - share));
        if next.0 - pen.0 >= 0.3 {
            put!(&mut d, "H{}", Xy(next.0));
            pen.0 = next.0;
        }
        if next.1 - pen.1 >= 0.3 {
            put!(&mut d, "V{}", Xy(next.1));
            pen.1 = next.1;
        }
    }
    d
}

fn description(lines: &[TailLine<'_>]) -> String {
    let one = |l: &TailLine<'_>| {
        let t = l.transfer;
        let (p50, p99, p999) = (us(t.p50_ns), us(t.p99_ns), us(t.p999_ns));
        format!("{}: 50 % within {p50} µs, 99 % within {p99}, 99.9 % within {p999}.", l.name)
    };
    lines.iter().map(one).collect::<Vec<_>>().join(" ")
}

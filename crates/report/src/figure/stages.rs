// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages of one packet path below each other, each where it lies in time.

use super::{RIGHT, Svg, Xy};
use crate::extras::LongPacketPath;
use crate::text::{as_f64, duration, put};

const LEFT: f64 = 150.0;
const ROW: f64 = 18.0;
/// Room for a time at the right of its bar.
const TIME: f64 = 70.0;

/// The figure.
pub(crate) fn stages(id: &str, packet_path: &LongPacketPath) -> String {
    let title = format!("Stages of a packet path of {}", duration(packet_path.end_to_end_ns));
    let mut words = String::new();
    for (name, _, ns) in &packet_path.stages {
        put!(&mut words, "{name} {}. ", duration(*ns));
    }
    let height = as_f64(i64::try_from(packet_path.stages.len()).unwrap_or(0)) * ROW + 6.0;
    let mut svg = Svg::open(id, &title, &words, height);
    let whole = as_f64(packet_path.end_to_end_ns.max(1));
    let x = |ns: i64| (LEFT + as_f64(ns) / whole * (RIGHT - TIME - LEFT)).clamp(LEFT, RIGHT - TIME);
    let longest = packet_path.stages.iter().map(|stage| stage.2).max();
    let mut y = 2.0;
    for (name, from, ns) in &packet_path.stages {
        let class = if Some(*ns) == longest { "bar f alarm" } else { "bar f s1" };
        let (left, right) = (x(*from), x(from.saturating_add(*ns)));
        svg.text("", 0.0, y + 12.0, name);
        svg.rect(class, (left, right.max(left + 1.0)), (y + 2.0, y + ROW - 3.0));
        put!(
            &mut svg.out,
            "<text class=\"dim\" x=\"{}\" y=\"{}\">{}</text>",
            Xy(right + 5.0),
            Xy(y + 12.0),
            duration(*ns)
        );
        y += ROW;
    }
    svg.close()
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfer times of each stream of a case as histograms under each other on the same axes, with
//! the boundaries of the cycle.

use timewire_capture::summary::{CaseSummary, StreamClass, StreamSummary};
use timewire_stats::Distribution;

use super::axis::Axis;
use super::{FOOT, LEFT, RIGHT, Svg, step_area};
use crate::group::{drawn, stream_name};
use crate::text::{as_f64, count_f64, digits, share, us, us_whole};

const TOP: f64 = 22.0;
/// Height of a panel, and of the only one.
const PANEL: f64 = 104.0;
const SOLE_PANEL: f64 = 2.0 * PANEL + GAP;
const GAP: f64 = 26.0;
/// Bins drawn at most; more would be finer than the eye.
const BINS: i64 = 120;

/// The figure; `None` when nothing was received.
pub(crate) fn histogram(id: &str, heading: &str, case: &CaseSummary) -> Option<String> {
    let drawn = drawn(case);
    if drawn.is_empty() {
        return None;
    }
    let bins = Bins::common(&drawn, case.cycle_ns);
    let title = format!("Transfer times: {heading}");
    let panel_height = if drawn.len() == 1 { SOLE_PANEL } else { PANEL };
    let top = |at: usize| TOP + count_f64(at as u64) * (panel_height + GAP);
    let height = top(drawn.len()) - GAP + FOOT;
    let mut svg = Svg::open(id, &title, &description(&drawn), height);
    let x = Axis::linear((0.0, as_f64(bins.end_ns())), (LEFT, RIGHT));
    let floor = y_floor(&drawn);
    let bottom = height - FOOT;
    let label = format!("transfer time, µs (bins of {})", us_whole(bins.width_ns));
    svg.x_axis(&x, (TOP, bottom), &label);
    for (at, (stream, transfer)) in drawn.iter().enumerate() {
        panel(
            &mut svg,
            &x,
            (top(at), top(at) + panel_height),
            floor,
            &bins,
            stream.class,
            transfer,
        );
    }
    svg.cycles(&x, 4, as_f64(case.cycle_ns), (TOP - 4.0, bottom));
    for (at, (stream, transfer)) in drawn.iter().enumerate() {
        labels(&mut svg, top(at), &bins, stream, transfer);
    }
    Some(svg.close())
}

fn panel(
    svg: &mut Svg,
    x: &Axis,
    (top, bottom): (f64, f64),
    floor: f64,
    bins: &Bins,
    class: StreamClass,
    transfer: &Distribution,
) {
    let y = Axis::log((floor, 1.0), (bottom, top));
    let mut ticks = Vec::new();
    for (value, label) in [(1.0, "100 %"), (0.1, "10 %"), (0.01, "1 %"), (0.001, "0.1 %")] {
        if value >= floor {
            ticks.push((y.at(value), label.to_owned()));
        }
    }
    svg.y_axis(&ticks, (LEFT, RIGHT));
    let counts = bins.regroup(transfer);
    let total = count_f64(transfer.count.max(1));
    let bars = counts.iter().enumerate().map(|(at, &count)| {
        let left = as_f64(bins.width_ns) * count_f64(at as u64);
        let part = count_f64(count) / total;
        // A bin with anything in it is visible, even at the floor of the axis.
        let height = if count == 0 { bottom } else { y.at(part).min(bottom - 1.5) };
        (x.at(left), x.at(left + as_f64(bins.width_ns)), height)
    });
    let class = if class == StreamClass::RealTime { "f rt" } else { "f be" };
    svg.path(class, &step_area(bars, bottom));
    svg.path("axis", &format!("M{LEFT} {bottom}H{RIGHT}"));
}

/// Whose times a panel shows, and what it cannot show.
fn labels(svg: &mut Svg, top: f64, bins: &Bins, stream: &StreamSummary, transfer: &Distribution) {
    let label = stream_name(stream);
    svg.text("e halo", RIGHT - 4.0, top + 14.0, &label);
    let shown: u64 = bins.regroup(transfer).iter().sum();
    let histogram = &transfer.histogram;
    let from_zero = histogram.counts.iter().sum::<u64>() + histogram.beyond;
    let beyond = from_zero.saturating_sub(shown);
    if beyond > 0 {
        let (part, max) = (share(beyond, transfer.count), us(transfer.max_ns));
        svg.text("e back", RIGHT - 4.0, top + 32.0, &format!("{part} beyond, up to {max}"));
    }
    // Two clocks that disagree: such a time is in the percentiles, but in no bin.
    if from_zero < transfer.count {
        let text = format!("{} below zero", share(transfer.count - from_zero, transfer.count));
        svg.text("e back", RIGHT - 4.0, top + 50.0, &text);
    }
}

/// The bins that all panels share: a multiple of the summary's bins, up to a whole cycle.
struct Bins {
    width_ns: i64,
    count: i64,
}

impl Bins {
    fn common(drawn: &[(&StreamSummary, &Distribution)], cycle_ns: i64) -> Bins {
        let cycle = cycle_ns.max(1);
        let wanted = drawn.iter().map(|(s, d)| match s.class {
            StreamClass::RealTime => d.p999_ns,
            StreamClass::BestEffort => d.p90_ns,
        });
        let cycles = wanted.max().unwrap_or(0).div_euclid(cycle) + 1;
        let covers = |d: &Distribution| {
            let bins = i64::try_from(d.histogram.counts.len()).unwrap_or(i64::MAX);
            d.histogram.bin_ns.saturating_mul(bins)
        };
        let known = drawn.iter().map(|(_, d)| covers(d)).max().unwrap_or(0).max(1);
        let end = cycles.clamp(2, 4).saturating_mul(cycle).min(known);
        let fine = drawn.iter().map(|(_, d)| d.histogram.bin_ns).max().unwrap_or(1).max(1);
        let width_ns = fine * ((end / fine + BINS - 1) / BINS).max(1);
        Bins { width_ns, count: end / width_ns + i64::from(end % width_ns != 0) }
    }

    fn end_ns(&self) -> i64 {
        self.width_ns * self.count
    }

    /// The counts of a distribution in these bins; what lies beyond the last is left out.
    fn regroup(&self, transfer: &Distribution) -> Vec<u64> {
        let mut counts = vec![0_u64; usize::try_from(self.count).unwrap_or(0)];
        let mut start_ns = 0_i64;
        for &count in &transfer.histogram.counts {
            let at = usize::try_from(start_ns / self.width_ns).unwrap_or(usize::MAX);
            let Some(bin) = counts.get_mut(at) else { break };
            *bin += count;
            start_ns += transfer.histogram.bin_ns.max(1);
        }
        counts
    }
}

/// The decade below one message of the largest stream, at least 1 %, at most 0.01 %.
fn y_floor(drawn: &[(&StreamSummary, &Distribution)]) -> f64 {
    let most = drawn.iter().map(|(_, d)| d.count).max().unwrap_or(1).max(1);
    10_f64.powf((1.0 / count_f64(most)).log10().floor()).clamp(1e-4, 1e-2)
}

fn description(drawn: &[(&StreamSummary, &Distribution)]) -> String {
    let one = |(s, d): &(&StreamSummary, &Distribution)| {
        let (p50, p99, max) = (us(d.p50_ns), us(d.p99_ns), us(d.max_ns));
        format!(
            "{}: {} messages, median {p50} µs, 99 % within {p99} µs, largest {max} µs.",
            stream_name(s),
            digits(d.count)
        )
    };
    drawn.iter().map(one).collect::<Vec<_>>().join(" ")
}

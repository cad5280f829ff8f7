// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in the cycle the frames of each station were on the segment: one lane per station, its
//! slot shaded and its guard time hatched, so that a frame in a foreign slot stands out.

use timewire_capture::summary::{CaseSummary, PhaseHistogram, SlotShape};

use super::axis::Axis;
use super::{FOOT, RIGHT, Svg, Xy, step_area};
use crate::text::{as_f64, count_f64, digits, put, us_whole};

const TOP: f64 = 2.0;
const LABEL: f64 = 19.0;
const LANE: f64 = 34.0;
const LEFT: f64 = 14.0;
/// Bins drawn at most per lane.
const BINS: i64 = 300;
/// Colours that the style sheet has for stations.
const COLOURS: usize = 6;

/// The figure; `None` when the segment saw no frame or there is no cycle.
pub(crate) fn phase(id: &str, heading: &str, case: &CaseSummary) -> Option<String> {
    let lanes = &case.wire.phases;
    let most = lanes.iter().flat_map(|p| p.counts.iter().copied()).max().unwrap_or(0);
    if most == 0 || case.cycle_ns <= 0 {
        return None;
    }
    let slots: &[SlotShape] = if case.tdm { &case.slots } else { &[] };
    let title = format!("Frames of all stations in the cycle: {heading}");
    let bottom = TOP + count_f64(lanes.len() as u64) * (LABEL + LANE);
    let mut svg = Svg::open(id, &title, &description(case), bottom + FOOT);
    let x = Axis::linear((0.0, as_f64(case.cycle_ns)), (LEFT, RIGHT));
    svg.x_axis(&x, (TOP + LABEL, bottom), "time in the cycle, µs");
    let mut starts = String::new();
    for slot in slots {
        put!(&mut starts, "M{} {}V{}", Xy(x.at(as_f64(slot.offset_ns))), TOP + LABEL, Xy(bottom));
    }
    svg.path("slot", &starts);
    for (at, lane) in lanes.iter().enumerate() {
        let top = TOP + LABEL + count_f64(at as u64) * (LABEL + LANE);
        let own: Vec<&SlotShape> = slots.iter().filter(|s| s.station == lane.station).collect();
        shade(&mut svg, &x, (top, top + LANE), &own, at % COLOURS + 1);
        bars(&mut svg, &x, (top, top + LANE), lane, case, at % COLOURS + 1);
        svg.path("axis", &format!("M{LEFT} {}H{RIGHT}", Xy(top + LANE)));
        svg.text("s halo", LEFT, top - 5.0, &lane.station);
        let frames: u64 = lane.counts.iter().sum();
        svg.text("e dim back", RIGHT, top - 5.0, &format!("{} frames", digits(frames)));
    }
    Some(svg.close())
}

fn shade(svg: &mut Svg, x: &Axis, lane: (f64, f64), own: &[&SlotShape], colour: usize) {
    for slot in own {
        let start = as_f64(slot.offset_ns);
        let end = as_f64(slot.offset_ns + slot.transmit_ns);
        let silent = as_f64(slot.offset_ns + slot.transmit_ns + slot.guard_ns);
        svg.rect(&format!("shade f s{colour}"), (x.at(start), x.at(end)), lane);
        svg.rect("guard", (x.at(end), x.at(silent)), lane);
    }
}

fn bars(
    svg: &mut Svg,
    x: &Axis,
    (top, bottom): (f64, f64),
    lane: &PhaseHistogram,
    case: &CaseSummary,
    colour: usize,
) {
    let bin_ns = lane.bin_ns.max(1);
    let group = ((case.cycle_ns / bin_ns).saturating_add(BINS - 1) / BINS).max(1);
    let width = bin_ns.saturating_mul(group);
    let drawn = usize::try_from(case.cycle_ns / width + 1).unwrap_or(1);
    let (mut inside, mut outside) = (vec![0_u64; drawn], vec![0_u64; drawn]);
    let mut start = 0_i64;
    for &count in &lane.counts {
        let at = usize::try_from(start / width).unwrap_or(0).min(drawn - 1);
        let end = start.saturating_add(bin_ns);
        let own = !case.tdm || in_own_slot(case, &lane.station, start, end);
        if own {
            inside[at] += count
        } else {
            outside[at] += count
        }
        start = end;
    }
    let most = inside.iter().chain(&outside).copied().max().unwrap_or(0).max(2);
    let y = Axis::log((0.5, count_f64(most)), (bottom, top + 1.0));
    for (counts, class) in [(inside, format!("f s{colour}")), (outside, "f alarm".to_owned())] {
        let bars = counts.iter().enumerate().map(|(at, &count)| {
            let left = as_f64(width) * count_f64(at as u64);
            let height = if count == 0 { bottom } else { y.at(count_f64(count)) };
            (x.at(left), x.at(left + as_f64(width)), height)
        });
        let d = step_area(bars, bottom);
        if !d.is_empty() {
            svg.path(&class, &d);
        }
    }
}

/// Whether any of `[start, end)` is in a slot of the station, its guard time included.
fn in_own_slot(case: &CaseSummary, station: &str, start: i64, end: i64) -> bool {
    case.slots.iter().filter(|s| s.station == station).any(|slot| {
        let silent = slot.offset_ns + slot.transmit_ns + slot.guard_ns;
        // A slot may run over the end of the cycle and go on at its start.
        [0, case.cycle_ns].iter().any(|turn| start + turn < silent && end + turn > slot.offset_ns)
    })
}

fn description(case: &CaseSummary) -> String {
    let wire = &case.wire;
    if !case.tdm {
        return format!("{} frames, no slots in force.", digits(wire.frames));
    }
    let mut text = format!(
        "{} frames, {} outside their station's slot, {} in guard time. Slots:",
        digits(wire.frames),
        digits(wire.outside_slots),
        digits(wire.in_guard)
    );
    for slot in &case.slots {
        let (from, to) = (slot.offset_ns, slot.offset_ns + slot.transmit_ns);
        put!(&mut text, " {} {} to {} µs;", slot.station, us_whole(from), us_whole(to));
    }
    text
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the frames of all stations lay in the cycle, as the segment saw them.
//!
//! A frame occupies the segment in `[timestamp, timestamp + duration)`, the duration being that of
//! its length on the wire at the segment's rate (of the shortest frame, when the length is not
//! known).
//!
//! - **Outside**: some instant of it lies in no slot of its station. A slot is its transmit window
//!   and the guard time after it; slots of one station that touch count as one.
//! - **In guard**: not outside, but some instant of it lies in no transmit window of its station.

use std::collections::{BTreeMap, BTreeSet};

use timewire_base::{CyclicWindows, FrameLen, Instant, Phase, Span, Tai, Window};

use super::{AnalyseError, CaseInput, Notes};
use crate::record::{RECORDS_PER_BLOCK, Record, RecordFile, TimestampPoint};
use crate::summary::{PhaseHistogram, SlotShape, WireSummary};

/// Width of a bin of the phase histograms.
const PHASE_BIN: Span = Span::from_us(10);
/// More bins than this no drawing can show.
const MAX_BINS: i64 = 10_000;
/// Stations without a slot whose frames have a phase histogram, at most.
const MAX_HISTOGRAMS: usize = 256;

pub(super) fn summarise(input: &CaseInput, notes: &mut Notes) -> Result<WireSummary, AnalyseError> {
    let mut stations = stations(input)?;
    let mut room = MAX_HISTOGRAMS;
    for file in &input.observers {
        let real_time = input.real_time_flows(file);
        for record in file.records.iter().filter(|record| record.point == TimestampPoint::Segment) {
            let name = file.header.stations.get(usize::from(record.station));
            let station = name.and_then(|name| stations.get_mut(name));
            if let (Some(station), true) = (station, input.measures(record.at_ns)) {
                let flow = real_time.get(usize::from(record.flow));
                station.has_histogram(input.cycle, &mut room);
                station.take(input, record, flow.copied().unwrap_or(false));
            }
        }
    }
    let unheard = unheard(input, notes);
    let unobserved = input.observers.iter().map(unobserved).chain([unheard]);
    let mut summary = WireSummary {
        frames: 0,
        outside_slots: 0,
        real_time_frames: 0,
        real_time_outside_slots: 0,
        in_guard: 0,
        worst_outside_ns: 0,
        unobserved: unobserved.fold(0, u64::saturating_add),
        timestamp_bound_p999_ns: input.timestamp_bound.map(|bound| bound.p999.as_ns()),
        timestamp_bound_max_ns: input.timestamp_bound.map(|bound| bound.max.as_ns()),
        phases: Vec::new(),
    };
    let mut without_histogram = 0;
    for (name, mut station) in stations {
        if !station.has_slot() {
            if station.frames == 0 {
                continue;
            }
            let what = format!("frames of {name}, which has no slot");
            let why = "every frame of a station without a slot is outside the slots";
            notes.count(station.outside, "frames-without-slot", &what, why);
        }
        summary.frames += station.frames;
        summary.outside_slots += station.outside;
        summary.real_time_frames += station.real_time;
        summary.real_time_outside_slots += station.real_time_outside;
        summary.in_guard += station.in_guard;
        summary.worst_outside_ns = summary.worst_outside_ns.max(station.worst_outside_ns);
        if station.has_slot() {
            station.has_histogram(input.cycle, &mut room);
        } else if station.phases.is_empty() {
            without_histogram += 1;
            continue;
        }
        summary.phases.push(PhaseHistogram {
            station: name.clone(),
            bin_ns: phase_bin(input.cycle).as_ns(),
            counts: station.phases,
        });
    }
    let what = "stations without a slot have no phase histogram";
    let why = "only the first 256 such stations have one; the frames of all are counted";
    notes.count(without_histogram, "phases-left-out", what, why);
    Ok(summary)
}

/// Frames of stations of which the observers heard none, though their MACs released some: an
/// observer that is no part of the segment hears a part of it only.
fn unheard(input: &CaseInput, notes: &mut Notes) -> u64 {
    if input.observers.is_empty() {
        return 0;
    }
    let mut heard = BTreeSet::new();
    for file in &input.observers {
        let seen = file.records.iter().filter(|it| it.point == TimestampPoint::Segment);
        heard.extend(seen.filter_map(|it| file.header.stations.get(usize::from(it.station))));
    }
    let silent = input.macs.iter().filter(|mac| mac.released > 0 && !heard.contains(&mac.station));
    silent.fold(0, |sum, mac| {
        let what = format!("frames that the MAC of {} released were not observed", mac.station);
        let why = "the observers hear no frame of this station: they hear a part of the segment";
        notes.count(mac.released, "station-not-observed", &what, why);
        sum.saturating_add(mac.released)
    })
}

/// Every station that has a slot or was observed.
fn stations(input: &CaseInput) -> Result<BTreeMap<&String, Station>, AnalyseError> {
    let mut stations = BTreeMap::new();
    let with_slot = input.slots.iter().map(|slot| &slot.station);
    let observed = input.observers.iter().flat_map(|file| &file.header.stations);
    for name in with_slot.chain(observed) {
        if !stations.contains_key(name) {
            stations.insert(name, Station::new(input, name)?);
        }
    }
    Ok(stations)
}

/// For each frame of the measured interval, by the time of its timestamp, whether it was outside
/// its station's slots; of all, or of those of real-time streams.
pub(super) fn outside(input: &CaseInput, real_time_only: bool) -> Result<Vec<bool>, AnalyseError> {
    let stations = stations(input)?;
    let mut found = Vec::new();
    for file in &input.observers {
        let real_time = input.real_time_flows(file);
        for record in file.records.iter().filter(|record| record.point == TimestampPoint::Segment) {
            let name = file.header.stations.get(usize::from(record.station));
            let station = name.and_then(|name| stations.get(name));
            let counts = !real_time_only
                || real_time.get(usize::from(record.flow)).copied().unwrap_or(false);
            if let (Some(station), true) = (station, counts && input.measures(record.at_ns)) {
                let (start, end) = on_segment(input, record);
                let outside = first_uncovered(&station.slot, start, end).is_some();
                found.push((record.at_ns, outside));
            }
        }
    }
    found.sort_by_key(|&(at_ns, _)| at_ns);
    Ok(found.into_iter().map(|(_, outside)| outside).collect())
}

/// When the frame is on the segment.
fn on_segment(input: &CaseInput, record: &Record) -> (Instant<Tai>, Instant<Tai>) {
    let start = Instant::from_ns(record.at_ns);
    let len = FrameLen::new(u32::from(record.frame_len));
    let len = len.expect("invariant: every 16-bit length is a frame's");
    (start, start.saturating_add(input.rate.duration_of(len.wire_len())))
}

/// Frames that the writer may have seen and did not record: every torn block may have been full.
pub(super) fn unobserved(file: &RecordFile) -> u64 {
    let per_block = u64::try_from(RECORDS_PER_BLOCK).expect("invariant: 127 fits 64 bits");
    let torn = file.corrupt_blocks.saturating_mul(per_block);
    file.lost.saturating_add(torn).saturating_add(file.unknown_records)
}

/// The frames of one station, and the windows they are compared with.
struct Station {
    slot: CyclicWindows,
    transmit: CyclicWindows,
    frames: u64,
    outside: u64,
    real_time: u64,
    real_time_outside: u64,
    in_guard: u64,
    worst_outside_ns: i64,
    phases: Vec<u64>,
}

impl Station {
    fn new(input: &CaseInput, name: &str) -> Result<Station, AnalyseError> {
        let windows = |length: fn(&SlotShape) -> i64| {
            let slots = input.slots.iter().filter(|slot| slot.station == name);
            let windows = slots.map(|slot| Window {
                offset: Span::from_ns(slot.offset_ns),
                length: Span::from_ns(length(slot)),
            });
            CyclicWindows::new(input.base_time, input.cycle, windows.collect())
                .map_err(|source| AnalyseError::Slots { station: name.to_owned(), source })
        };
        Ok(Station {
            slot: windows(|slot| slot.transmit_ns.saturating_add(slot.guard_ns))?,
            transmit: windows(|slot| slot.transmit_ns)?,
            frames: 0,
            outside: 0,
            real_time: 0,
            real_time_outside: 0,
            in_guard: 0,
            worst_outside_ns: 0,
            phases: Vec::new(),
        })
    }

    fn has_slot(&self) -> bool {
        !self.slot.windows().is_empty()
    }

    /// From now on there is a phase histogram: made for the first frame, so that names alone take
    /// no room; of a station without a slot if there is room for one more.
    fn has_histogram(&mut self, cycle: Span, room: &mut usize) {
        if self.phases.is_empty() && (self.has_slot() || *room > 0) {
            *room -= usize::from(!self.has_slot());
            self.phases = vec![0; phase_bins(cycle)];
        }
    }

    fn take(&mut self, input: &CaseInput, record: &Record, real_time: bool) {
        let (start, end) = on_segment(input, record);
        let phase = self.slot.offset_in_cycle(start).as_ns() / phase_bin(input.cycle).as_ns();
        let bin =
            usize::try_from(phase).expect("invariant: an offset in the cycle is not negative");
        if let Some(count) = self.phases.get_mut(bin) {
            *count += 1;
        }
        self.frames += 1;
        self.real_time += u64::from(real_time);
        if input.slots.is_empty() {
            return;
        }
        if let Some(uncovered) = first_uncovered(&self.slot, start, end) {
            self.outside += 1;
            self.real_time_outside += u64::from(real_time);
            let ns = outside_ns(&self.slot, start, end, uncovered);
            self.worst_outside_ns = self.worst_outside_ns.max(ns);
        } else if first_uncovered(&self.transmit, start, end).is_some() {
            self.in_guard += 1;
        }
    }
}

/// The first instant of `[start, end)` that lies in no window.
fn first_uncovered(
    windows: &CyclicWindows,
    start: Instant<Tai>,
    end: Instant<Tai>,
) -> Option<Instant<Tai>> {
    let mut at = start;
    while at < end {
        match windows.phase(at) {
            Some(Phase::Inside { end, .. }) => at = end,
            _ => return Some(at),
        }
    }
    None
}

/// By how much the frame in `[start, end)` would have had to be earlier or later, whichever is
/// less, `uncovered` being its first instant outside the windows. 0 when there are no windows.
fn outside_ns(
    windows: &CyclicWindows,
    start: Instant<Tai>,
    end: Instant<Tai>,
    uncovered: Instant<Tai>,
) -> i64 {
    let Some(next) = windows.next_start_at_or_after(uncovered) else {
        return 0;
    };
    let later = next.as_ns().saturating_sub(start.as_ns());
    let over_the_end = end.as_ns().saturating_sub(uncovered.as_ns());
    let earlier = over_the_end.saturating_add(since_window(windows, uncovered).as_ns());
    later.min(earlier)
}

/// How long before an instant outside all windows the last one ended.
///
/// **Panics** when there are no windows.
fn since_window(windows: &CyclicWindows, at: Instant<Tai>) -> Span {
    let offset = windows.offset_in_cycle(at);
    let mut ends = windows.windows().iter().rev().map(|window| window.offset + window.length);
    let last = ends.clone().next().expect("invariant: the caller found a window");
    match ends.find(|&end| end <= offset) {
        Some(end) => offset - end,
        None => windows.cycle() - last + offset,
    }
}

/// A bin of the phase histogram: [`PHASE_BIN`], or wider for a cycle of more than [`MAX_BINS`]
/// such.
fn phase_bin(cycle: Span) -> Span {
    PHASE_BIN.max(Span::from_ns(cycle.as_ns() / MAX_BINS))
}

/// How many bins cover the cycle; the last may reach beyond its end.
fn phase_bins(cycle: Span) -> usize {
    let bins = cycle.as_ns().unsigned_abs().div_ceil(phase_bin(cycle).as_ns().unsigned_abs());
    usize::try_from(bins).expect("invariant: a cycle has at most MAX_BINS + 1 bins")
}

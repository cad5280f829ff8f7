// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the analysis of a case.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timewire_base::{FrameLen, WireLen};

use super::*;
use crate::record::{Record, RecordHeader, TimestampPoint};
use crate::summary::StreamSummary;
use timewire_stats::Distribution;

const US: i64 = 1_000;

/// Two stations with a slot of 220 us and 40 us guard each, in a cycle of 600 us.
fn input() -> CaseInput {
    CaseInput {
        scenario: "first".to_owned(),
        case: "tdm".to_owned(),
        title: "TDM".to_owned(),
        load: "alone".to_owned(),
        message_bytes: 64,
        tdm: true,
        backend: None,
        reserved: Vec::new(),
        base_time: Instant::from_ns(0),
        cycle: Span::from_us(600),
        slots: vec![slot("beta", 260, 220, 40), slot("alpha", 0, 220, 40)],
        rate: BitsPerSecond::new(100_000_000).unwrap(),
        published: None,
        streams: vec![StreamInput {
            period: None,
            name: "control".to_owned(),
            class: StreamClass::RealTime,
            deadline: Span::from_us(500),
        }],
        from: Instant::from_ns(6_000 * US),
        to: Instant::from_ns(60_000 * US),
        until_kernel: false,
        endpoints: Vec::new(),
        observers: Vec::new(),
        macs: Vec::new(),
        timestamp_bound: Some(TimestampBound { p999: Span::from_us(3), max: Span::from_us(9) }),
    }
}

fn slot(station: &str, offset_us: i64, transmit_us: i64, guard_us: i64) -> SlotShape {
    SlotShape {
        station: station.to_owned(),
        offset_ns: offset_us * US,
        transmit_ns: transmit_us * US,
        guard_ns: guard_us * US,
    }
}

/// `(point, flow, seq, time in us)`; the stations are alpha, beta and the flows request, response.
fn file(timestamps: &[(TimestampPoint, u16, u32, i64)]) -> RecordFile {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    let record = |&(point, flow, seq, at_us): &(TimestampPoint, u16, u32, i64)| Record {
        at_ns: at_us * US,
        seq,
        frame_len: 106,
        point,
        station: u8::from(flow == 1),
        flow,
        flags: 0,
        clock: 0,
    };
    RecordFile {
        header: RecordHeader {
            writer: "writer".to_owned(),
            case: "first/tdm/alone".to_owned(),
            clocks: Vec::new(),
            stations: names(&["alpha", "beta", "gamma"]),
            flows: names(&["control.request", "control.response", "flood"]),
            meta: BTreeMap::new(),
        },
        records: timestamps.iter().map(record).collect(),
        lost: 0,
        corrupt_blocks: 0,
        unknown_records: 0,
        clean_end: true,
    }
}

/// Frames of one station: `(time in ns, bytes)`.
fn frames(station: u8, list: &[(i64, u16)]) -> RecordFile {
    let mut file = file(&[]);
    file.records.extend(list.iter().map(|&(at_ns, frame_len)| Record {
        at_ns,
        seq: 0,
        frame_len,
        point: TimestampPoint::Segment,
        station,
        flow: Record::NO_FLOW,
        flags: 0,
        clock: 0,
    }));
    file
}

fn stream(analysis: &Analysis) -> &StreamSummary {
    &analysis.case.streams[0]
}

fn range(distribution: &Option<Distribution>) -> Option<(u64, i64, i64)> {
    let d = distribution.as_ref()?;
    Some((d.count, d.min_ns / US, d.max_ns / US))
}

fn note_ids(analysis: &Analysis) -> Vec<&str> {
    analysis.notes.iter().map(|note| note.id.as_str()).collect()
}

#[test]
fn t0_requests_and_responses_come_together_from_their_files() {
    use TimestampPoint::{Receive, RxSw, Segment, Send};
    let mut input = input();
    input.endpoints = vec![
        // The client: the first request is of the warm-up, the last after the end; 4 is lost.
        file(&[
            (Send, 0, 1, 5_999),
            (Send, 0, 2, 6_000),
            (Send, 0, 3, 7_000),
            (Send, 0, 4, 8_000),
            (Send, 0, 5, 60_000),
            (RxSw, 1, 2, 6_880),
            (Receive, 1, 2, 6_900),
        ]),
        // The server: its response to 3 never arrives, the request 2 is timestamped twice.
        file(&[
            (RxSw, 0, 1, 6_150),
            (Receive, 0, 1, 6_160),
            (RxSw, 0, 2, 6_180),
            (Receive, 0, 2, 6_200),
            (Receive, 0, 2, 6_201),
            (RxSw, 0, 3, 7_495),
            (Receive, 0, 3, 7_501),
            (Send, 1, 2, 6_300),
            (Send, 1, 3, 7_600),
            (Receive, 0, 77, 9_000),
        ]),
    ];
    input.observers = vec![file(&[(Segment, 0, 2, 6_010), (Segment, 1, 2, 6_860)])];
    let taken = series(input.clone()).unwrap();
    let analysis = analyse(input).unwrap();
    assert_series(&taken, &analysis);
    let control = stream(&analysis);
    assert_eq!((control.sent, control.received, control.lost), (5, 3, 2));
    assert_eq!((control.late, control.deadline_ns), (2, 500 * US));
    assert_eq!(range(&control.transfer), Some((3, 200, 600)));
    assert_eq!(range(&control.transfer_request), Some((2, 200, 501)));
    assert_eq!(range(&control.transfer_response), Some((1, 600, 600)));
    assert_eq!(range(&control.slot_wait), Some((2, 10, 560)));
    assert_eq!(range(&control.receive), Some((3, 6, 20)));
    let transfer = control.transfer.as_ref().unwrap();
    assert_eq!((transfer.histogram.bin_ns, transfer.histogram.counts.len()), (20 * US, 120));
    assert_eq!(note_ids(&analysis), ["timestamps-repeated", "received-not-sent"]);
    assert_eq!(
        analysis.notes[0].measured,
        "first/tdm/alone: 1 more Receive timestamps of control.request than messages"
    );
    assert!(analysis.notes.iter().all(|note| note.verdict.is_none()));
    let wire = &analysis.case.wire;
    assert_eq!((wire.frames, wire.outside_slots, wire.in_guard), (2, 0, 0));
    assert_eq!(
        (wire.timestamp_bound_p999_ns, wire.timestamp_bound_max_ns),
        (Some(3_000), Some(9_000))
    );
}

/// What is told value by value is what is told as a whole.
fn assert_series(taken: &CaseSeries, analysis: &Analysis) {
    let (series, whole) = (&taken.streams[0], stream(analysis));
    assert_eq!((taken.id.as_str(), taken.unobserved), ("first/tdm/alone", 0));
    let sorted = |values: &[i64]| {
        let mut values = values.to_vec();
        values.sort_unstable();
        values.iter().map(|ns| ns / US).collect::<Vec<_>>()
    };
    assert_eq!(sorted(&series.transfer), [200, 501, 600]);
    assert_eq!(sorted(&series.slot_wait), [10, 560]);
    assert_eq!(series.receive.len(), 3);
    let count = |list: &[bool]| u64::try_from(list.iter().filter(|&&is| is).count()).unwrap();
    assert_eq!((count(&series.lost), count(&series.late)), (whole.lost, whole.late));
    assert_eq!(u64::try_from(series.lost.len()).unwrap(), whole.sent);
    assert_eq!(taken.outside, Some(vec![false, false]));
}

#[test]
fn t0_series_are_in_the_order_of_time_and_of_promised_slots_only() {
    let mut input = input();
    let late = frames(0, &[(6_300 * US, 60), (6_000 * US, 60)]);
    input.observers = vec![late, frames(1, &[(6_260 * US, 60)])];
    input.endpoints = vec![file(&[
        (TimestampPoint::Send, 1, 1, 7_000),
        (TimestampPoint::Receive, 1, 1, 7_100),
        (TimestampPoint::Send, 0, 1, 8_000),
        (TimestampPoint::Send, 0, 2, 6_500),
        (TimestampPoint::Receive, 0, 2, 7_200),
    ])];
    let taken = series(input.clone()).unwrap();
    let control = &taken.streams[0];
    assert_eq!(control.transfer, [700 * US, 100 * US]);
    assert_eq!(control.lost, [false, false, true]);
    assert_eq!(control.late, [true, false, false]);
    assert_eq!(taken.outside, Some(vec![false, false, true]));
    let backend = |slots| BackendSummary { name: String::new(), slots, promise: String::new() };
    input.backend = Some(backend(crate::summary::SlotPromise::RealTime));
    assert_eq!(series(input.clone()).unwrap().outside, Some(Vec::new()));
    input.backend = Some(backend(crate::summary::SlotPromise::None));
    assert_eq!(series(input.clone()).unwrap().outside, None);
    (input.backend, input.tdm) = (None, false);
    assert_eq!(series(input).unwrap().outside, None);
}

#[test]
fn t0_a_one_way_stream_has_no_requests() {
    let mut input = input();
    input.streams[0].name = "flood".to_owned();
    input.endpoints =
        vec![file(&[(TimestampPoint::Send, 2, 1, 7_000), (TimestampPoint::Receive, 2, 1, 7_040)])];
    let analysis = analyse(input).unwrap();
    let flood = stream(&analysis);
    assert_eq!(range(&flood.transfer), Some((1, 40, 40)));
    assert_eq!((&flood.transfer_request, &flood.transfer_response), (&None, &None));
    assert_eq!(analysis.notes, []);
}

#[test]
fn t0_messages_may_have_arrived_once_the_kernel_has_them() {
    let points =
        [(TimestampPoint::Send, 0), (TimestampPoint::RxSw, 40), (TimestampPoint::Receive, 90)];
    let mut all: Vec<_> = points.map(|(point, at)| (point, 2, 1, 7_000 + at)).into();
    // The program has not read the second.
    all.extend(points[..2].iter().map(|&(point, at)| (point, 2, 2, 8_000 + at)));
    let of = |until_kernel| {
        let mut input = CaseInput { until_kernel, endpoints: vec![file(&all)], ..input() };
        input.streams[0].name = "flood".to_owned();
        let analysis = analyse(input).unwrap();
        let found = stream(&analysis);
        (found.received, range(&found.transfer), found.receive.is_some())
    };
    assert_eq!(of(false), (1, Some((1, 90, 90)), true));
    assert_eq!(of(true), (2, Some((2, 40, 40)), false));
}

#[test]
fn t0_records_that_do_not_fit_are_noted_and_never_fatal() {
    let mut input = input();
    let mut odd =
        file(&[(TimestampPoint::Receive, 0, 1, 7_000), (TimestampPoint::Send, 0, 1, 7_001)]);
    (odd.lost, odd.corrupt_blocks, odd.unknown_records, odd.clean_end) = (3, 2, 1, false);
    let mut extreme = frames(9, &[(i64::MAX, 60), (i64::MIN, 60)]);
    extreme.records.extend(frames(0, &[(i64::MAX, 65_535), (i64::MIN, 0)]).records);
    extreme.records.extend(file(&[(TimestampPoint::Send, 7, 1, 7_000)]).records);
    input.observers = vec![odd.clone(), extreme];
    input.endpoints = vec![odd.clone()];
    (input.from, input.to) = (Instant::from_ns(i64::MIN), Instant::from_ns(i64::MAX));
    let analysis = analyse(input).unwrap();
    assert_eq!(analysis.case.wire.unobserved, 3 + 2 * 127 + 1);
    assert_eq!(range(&stream(&analysis).transfer), Some((1, -1, -1)));
    let per_file = ["timestamps-lost", "records-damaged", "records-unknown", "records-open"];
    let mut wanted = [per_file, per_file].concat();
    wanted.extend(["timestamps-repeated", "timestamps-repeated", "clocks-disagree"]);
    assert_eq!(note_ids(&analysis), wanted);
    odd.lost = u64::MAX;
    let mut countless = self::input();
    countless.observers = vec![odd.clone(), odd];
    assert_eq!(analyse(countless).unwrap().case.wire.unobserved, u64::MAX);
}

#[test]
fn t0_frames_of_a_station_that_no_observer_hears_are_unobserved() {
    let mac = |station: &str, released| MacSummary {
        station: station.to_owned(),
        socket: "af_packet".to_owned(),
        released,
        missed_slots: 0,
        ingress_dropped: 0,
        queues: Vec::new(),
    };
    let mut input = input();
    // Of alpha there is a frame, though not in the measured interval; gamma has sent nothing.
    input.observers = vec![frames(0, &[(1, 64)])];
    input.macs = vec![mac("alpha", 7), mac("beta", 5), mac("gamma", 0)];
    let analysis = analyse(input).unwrap();
    assert_eq!(analysis.case.wire.unobserved, 5);
    let note = analysis.notes.iter().find(|note| note.id == "station-not-observed").unwrap();
    assert!(note.measured.ends_with("5 frames that the MAC of beta released were not observed"));
}

#[test]
fn t0_slots_that_cannot_be_are_an_error() {
    let mut input = input();
    input.slots.push(slot("alpha", 590, 20, 0));
    assert_eq!(
        analyse(input).unwrap_err().to_string(),
        "the slots of alpha cannot be: the window at 590us ends at 610us, after the cycle of 600us"
    );
}

/// `(outside, in guard, worst outside in ns)` of one frame of a station.
fn one_frame(slots: &[SlotShape], station: u8, at_ns: i64, bytes: u16) -> (u64, u64, i64) {
    let mut input = input();
    input.slots = slots.to_vec();
    input.from = Instant::from_ns(0);
    input.observers = vec![frames(station, &[(6_000 * US + at_ns, bytes)])];
    let wire = analyse(input).unwrap().case.wire;
    assert_eq!(wire.frames, 1);
    (wire.outside_slots, wire.in_guard, wire.worst_outside_ns)
}

#[test]
fn t0_frames_at_the_edges_of_their_slot() {
    let slots = input().slots;
    // 60 bytes are 84 on the wire: 6 720 ns at 100 Mbit/s. Alpha: [0, 220), guard to 260 us.
    let cases = [
        (0, (0, 0, 0)),
        (220_000 - 6_720, (0, 0, 0)),
        (220_000 - 6_719, (0, 1, 0)),
        (220_000, (0, 1, 0)),
        (260_000 - 6_720, (0, 1, 0)),
        (260_000 - 6_719, (1, 0, 1)),
        (259_999, (1, 0, 6_719)),
        (260_000, (1, 0, 6_720)),
        (-1, (1, 0, 1)),
        (-100_000, (1, 0, 100_000)),
        (-300_000, (1, 0, 46_720)),
    ];
    for (at_ns, wanted) in cases {
        assert_eq!(one_frame(&slots, 0, at_ns, 60), wanted, "at {at_ns}ns");
    }
    // The same instants belong to the other station.
    assert_eq!(one_frame(&slots, 1, 260_000, 60), (0, 0, 0));
    assert_eq!(one_frame(&slots, 1, 0, 60), (1, 0, 86_720));
    // A frame of unknown length is taken for the shortest.
    assert_eq!(one_frame(&slots, 0, 220_000 - 6_720, 0), (0, 0, 0));
}

#[test]
fn t0_slots_of_one_station_that_touch_count_as_one() {
    let touching = [slot("alpha", 0, 100, 0), slot("alpha", 100, 100, 20)];
    assert_eq!(one_frame(&touching, 0, 97_000, 60), (0, 0, 0));
    let around = [slot("alpha", 0, 100, 0), slot("alpha", 500, 100, 0)];
    assert_eq!(one_frame(&around, 0, -3_000, 60), (0, 0, 0));
    let guarded = [slot("alpha", 0, 80, 20), slot("alpha", 100, 100, 0)];
    assert_eq!(one_frame(&guarded, 0, 97_000, 60), (0, 1, 0));
    let always = [slot("alpha", 0, 600, 0)];
    assert_eq!(one_frame(&always, 0, 123_456, 1_514), (0, 0, 0));
}

#[test]
fn t0_stations_without_a_slot_and_cases_without_slots() {
    let mut input = input();
    input.observers = vec![frames(2, &[(6_005 * US, 60), (6_007 * US, 60)])];
    let analysis = analyse(input.clone()).unwrap();
    let wire = &analysis.case.wire;
    assert_eq!((wire.frames, wire.outside_slots, wire.worst_outside_ns), (2, 2, 0));
    assert_eq!(note_ids(&analysis), ["frames-without-slot"]);
    input.slots.clear();
    let analysis = analyse(input).unwrap();
    let wire = &analysis.case.wire;
    assert_eq!((wire.frames, wire.outside_slots, wire.phases.len()), (2, 0, 1));
    assert_eq!(note_ids(&analysis), [""; 0]);
}

#[test]
fn t0_phases_are_binned_by_station_within_the_interval() {
    let mut input = input();
    let at = [5_999, 6_000, 6_009, 6_010, 6_599, 6_600, 59_999, 60_000].map(|us| (us * US, 60));
    input.observers = vec![frames(0, &at)];
    let wire = analyse(input).unwrap().case.wire;
    let stations: Vec<&str> = wire.phases.iter().map(|p| p.station.as_str()).collect();
    assert_eq!(stations, ["alpha", "beta"]);
    let alpha = &wire.phases[0];
    assert_eq!((alpha.bin_ns, alpha.counts.len(), wire.frames), (10 * US, 60, 6));
    let filled: Vec<_> = (0..).zip(&alpha.counts).filter(|&(_, &n)| n > 0).collect();
    assert_eq!(filled, [(0, &3), (1, &1), (59, &2)]);
}

proptest! {
    /// second method: every nanosecond of the frame looked up in a painted cycle.
    #[test]
    fn t0_slots_agree_with_brute_force(
        raw in proptest::collection::vec((0_i64..300, 1_i64..60, 0_i64..30), 1..4),
        at in -700_i64..700,
        bytes in 0_u16..400,
    ) {
        let cycle = 300_usize;
        let mut input = input();
        input.cycle = Span::from_ns(300);
        input.rate = BitsPerSecond::new(40_000_000_000).unwrap();
        let mut paint = vec![b'.'; cycle];
        input.slots.clear();
        for &(offset, transmit, guard) in &raw {
            let mut shape = slot("alpha", 0, 0, 0);
            (shape.offset_ns, shape.transmit_ns, shape.guard_ns) = (offset, transmit, guard);
            let from = usize::try_from(offset).unwrap();
            let middle = from + usize::try_from(transmit).unwrap();
            let to = middle + usize::try_from(guard).unwrap();
            let free = to <= cycle && paint[from..to].iter().all(|&c| c == b'.');
            if free {
                paint[from..middle].fill(b't');
                paint[middle..to].fill(b'g');
                input.slots.push(shape);
            }
        }
        prop_assume!(!input.slots.is_empty());
        let start = 6_000 * US + at;
        input.observers = vec![frames(0, &[(start, bytes)])];
        let wire_len: WireLen = FrameLen::new(u32::from(bytes)).unwrap().wire_len();
        let length = input.rate.duration_of(wire_len).as_ns();
        let color = |ns: i64| paint[usize::try_from(ns.rem_euclid(300)).unwrap()];
        let inside = |from: i64| (from..from + length).all(|ns| color(ns) != b'.');
        let outside = !inside(start);
        let guard = !outside && (start..start + length).any(|ns| color(ns) == b'g');
        (input.from, input.to) = (Instant::from_ns(0), Instant::from_ns(60_000 * US));
        let wire = analyse(input).unwrap().case.wire;
        prop_assert_eq!(wire.outside_slots, u64::from(outside));
        prop_assert_eq!(wire.in_guard, u64::from(guard));
        prop_assert_eq!(wire.worst_outside_ns > 0, outside);
        // Where the frame fits anywhere near, the distance is that to the nearest such place.
        let nearest = (0..300).find(|&by| inside(start - by) || inside(start + by));
        if let Some(by) = nearest {
            prop_assert!(wire.worst_outside_ns <= by, "{} > {by}", wire.worst_outside_ns);
        }
    }

    #[test]
    fn t0_the_order_of_files_and_records_does_not_matter(
        timestamps in proptest::collection::vec(
            (0..14_usize, 0..3_u16, 0..6_u32, 5_990_i64..6_700),
            0..60,
        ),
        cut in 0..60_usize,
    ) {
        let timestamps: Vec<_> =
            timestamps
                .into_iter()
                .map(|(p, f, seq, at)| (TimestampPoint::ALL[p], f, seq, at))
                .collect();
        let cut = cut.min(timestamps.len());
        let mut one = input();
        one.endpoints = vec![file(&timestamps)];
        one.observers = vec![file(&timestamps)];
        let mut two = input();
        two.endpoints = vec![file(&timestamps[cut..]), file(&timestamps[..cut])];
        two.observers = vec![file(&timestamps.iter().rev().copied().collect::<Vec<_>>())];
        prop_assert_eq!(analyse(one).unwrap(), analyse(two).unwrap());
    }
}

#[test]
fn t0_frames_outside_slots_are_counted_by_class() {
    // Alpha's slot is the first 220 us of 600 us. Flow 2 is nobody's measured stream.
    let timestamps = [
        (TimestampPoint::Segment, 0, 1, 6_000),
        (TimestampPoint::Segment, 0, 2, 6_300),
        (TimestampPoint::Segment, 2, 0, 6_310),
        (TimestampPoint::Segment, 2, 0, 6_320),
    ];
    let case = analyse(CaseInput { observers: vec![file(&timestamps)], ..input() }).unwrap().case;
    assert_eq!((case.wire.frames, case.wire.outside_slots), (4, 3));
    assert_eq!((case.wire.real_time_frames, case.wire.real_time_outside_slots), (2, 1));
}

#[test]
fn t0_launch_times_are_compared_with_the_segment_and_refusals_are_counted() {
    let timestamps = [
        (TimestampPoint::Send, 0, 1, 6_000),
        (TimestampPoint::Scheduled, 0, 1, 6_100),
        (TimestampPoint::Send, 0, 2, 7_000),
        (TimestampPoint::Scheduled, 0, 2, 7_200),
        (TimestampPoint::LaunchMissed, 0, 2, 7_300),
        (TimestampPoint::Send, 0, 3, 8_000),
        (TimestampPoint::Scheduled, 0, 3, 8_100),
        (TimestampPoint::LaunchRefused, 0, 3, 8_200),
        // Before the measured interval.
        (TimestampPoint::Send, 0, 4, 5_000),
        (TimestampPoint::Scheduled, 0, 4, 5_100),
        (TimestampPoint::LaunchMissed, 0, 4, 5_200),
    ];
    let seen = [(TimestampPoint::Segment, 0, 1, 6_103)];
    let files =
        CaseInput { endpoints: vec![file(&timestamps)], observers: vec![file(&seen)], ..input() };
    let case = analyse(files).unwrap().case;
    let launch = case.streams[0].launch.as_ref().unwrap();
    assert_eq!((launch.launched, launch.refused, launch.missed), (3, 1, 1));
    let error = launch.error.as_ref().unwrap();
    assert_eq!((error.count, error.min_ns, error.max_ns), (1, 3_000, 3_000));
    assert_eq!(analyse(input()).unwrap().case.streams[0].launch, None);
}

#[test]
fn t0_messages_that_were_due_and_not_sent_are_skipped() {
    let timestamps = [(TimestampPoint::Send, 0, 1, 7_000), (TimestampPoint::Send, 0, 2, 16_000)];
    let skipped = |period_us: i64| {
        let mut input = CaseInput { endpoints: vec![file(&timestamps)], ..input() };
        input.streams[0].period = Some(Span::from_us(period_us));
        stream(&analyse(input).unwrap()).skipped
    };
    // 54 ms are counted: six periods of 9 ms, and one message can be on either side of an end.
    assert_eq!([skipped(9_000), skipped(18_000), skipped(0)], [3, 0, 0]);
}

#[test]
fn t0_what_the_kernel_did_not_take_is_skipped_and_not_lost() {
    let timestamps = [
        (TimestampPoint::Send, 0, 1, 6_000),
        (TimestampPoint::Receive, 0, 1, 6_100),
        (TimestampPoint::Send, 0, 2, 7_000),
        (TimestampPoint::NotTaken, 0, 2, 7_001),
        (TimestampPoint::Send, 0, 3, 8_000),
        // Before the measured interval.
        (TimestampPoint::Send, 0, 4, 5_000),
        (TimestampPoint::NotTaken, 0, 4, 5_001),
    ];
    let files = || CaseInput { endpoints: vec![file(&timestamps)], ..input() };
    let analysis = analyse(files()).unwrap();
    let counts = |s: &StreamSummary| (s.sent, s.skipped, s.received, s.lost);
    assert_eq!(counts(stream(&analysis)), (2, 1, 1, 1));
    let series = &series(files()).unwrap().streams[0];
    assert_eq!(
        (&series.skipped[..], &series.lost[..]),
        (&[false, true, false][..], &[false, true][..])
    );
}

#[test]
fn t0_a_reserved_rate_is_kept_in_every_interval() {
    // 129 bytes of each frame count, 1032 bits: one each 1032 us, and one at once.
    let reserved = vec![ReservedInput {
        station: "alpha".to_owned(),
        rate: BitsPerSecond::new(1_000_000).unwrap(),
        burst_bits: 1_040,
    }];
    let outside = |times_us: &[i64]| {
        let timestamps: Vec<_> =
            (0..).zip(times_us).map(|(n, &at)| (TimestampPoint::Segment, 0, n, at)).collect();
        let observers = vec![file(&timestamps)];
        let case = analyse(CaseInput { observers, reserved: reserved.clone(), ..input() });
        let [alpha] = &case.unwrap().case.reserved[..] else { panic!() };
        assert_eq!(alpha.frames, u64::try_from(times_us.len()).unwrap());
        alpha.outside_rate
    };
    let steady: Vec<_> = (0..50).map(|n| 6_000 + n * 1_032).collect();
    assert_eq!(outside(&steady), 0);
    // 8 us early once is the difference of burst and frame; a second time there is none left.
    assert_eq!(outside(&[6_000, 7_024]), 0);
    assert_eq!(outside(&[6_000, 7_024, 8_048]), 1);
    assert_eq!(outside(&[6_000, 6_000]), 1);
    // What was not used for a long time is not saved beyond the burst.
    assert_eq!(outside(&[6_000, 40_000, 40_001, 40_002]), 2);
    // Best effort and other stations have nothing to do with it.
    let timestamps =
        [(TimestampPoint::Segment, 1, 1, 6_000), (TimestampPoint::Segment, 2, 1, 6_000)];
    let observers = vec![file(&timestamps)];
    let case = analyse(CaseInput { observers, reserved, ..input() }).unwrap().case;
    assert_eq!((case.reserved[0].frames, case.reserved[0].outside_rate), (0, 0));
}

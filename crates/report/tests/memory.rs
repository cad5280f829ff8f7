// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports, comparisons and timelines need memory in proportion to what they are of, whatever the
//! numbers, times and names: no axis, bin or window makes more of itself than can be seen.

use std::collections::BTreeMap;

use timewire_base::{CyclicWindows, Instant, Span, Window};
use timewire_capture::analyse::{CaseSeries, StreamSeries};
use timewire_capture::capture::{CaptureHeader, HookCount, Note, Station};
use timewire_capture::event::{Event, Flags, Hook};
use timewire_capture::packet_path::culprit::{Culprit, Verdict};
use timewire_capture::packet_path::worst::Judged;
use timewire_capture::packet_path::{
    ClockMap, Common, Counts, Observer, OneClock, PacketPath, Parts, PathOutcome, Point, Rule,
    Stage, Status,
};
use timewire_capture::series::TimeSeries;
use timewire_capture::summary::{PhaseHistogram, StreamClass, Summary};
use timewire_capture::sync::ClockSeries;
use timewire_report::compare::{self, Hosts, Rules, Side, compare};
use timewire_report::hdr::{HdrLog, HdrSeries};
use timewire_report::packet_paths::{PacketPathsInput, page};
use timewire_report::run_report::{
    Drawing, Lane, NumberRow, RunReport, Section, Spread, run_report_html,
};
use timewire_report::timeline::{Gather, GatherOptions, Names};
use timewire_report::{html, perfetto};

use crate::counting::{memory_of, mixed};
use crate::sample;

/// Bytes of a record, of which a message has two at least, and of an event in a capture.
const RECORD: u64 = 32;
const EVENT: u64 = 44;

type Times = fn(u64) -> i64;

/// Times that would make bins, ticks or ranks explode.
const TIMES: [(&str, Times); 8] = [
    ("any", |n| mixed(n).cast_signed()),
    ("the ends", |n| if n % 2 == 0 { i64::MIN } else { i64::MAX }),
    ("far from zero and close together", |n| 1_800_000_000_000_000_000 + (n % 300).cast_signed()),
    ("below zero, close together", |n| -1_800_000_000_000_000_000 + (n % 300).cast_signed()),
    ("all the same", |_| i64::MAX),
    ("all zero", |_| 0),
    ("one far away", |n| if n == 0 { i64::MAX } else { n.cast_signed() }),
    ("powers of two", |n| 1 << (n % 63)),
];

fn series(times: Times, messages: u64) -> CaseSeries {
    let all = || (0..messages).map(times).collect::<Vec<i64>>();
    let shares = |of: u64| (0..messages).map(|n| mixed(n) % 1_000 < of).collect::<Vec<bool>>();
    let stream = StreamSeries {
        name: "any".to_owned(),
        class: StreamClass::RealTime,
        transfer: all(),
        slot_wait: all(),
        receive: all(),
        skipped: shares(0),
        lost: shares(10),
        late: shares(500),
    };
    let id = "transfer-64/tdm/flood".to_owned();
    CaseSeries { id, streams: vec![stream], outside: Some(shares(3)), unobserved: 0 }
}

fn side(summary: &Summary, times: Times, messages: u64) -> Side {
    let summary = summary.clone();
    let cases = vec![series(times, messages)];
    Side { directory: "a".to_owned(), summary, cases, scenarios: BTreeMap::new() }
}

#[test]
fn t0_a_comparison_needs_memory_in_proportion_to_the_records() {
    let mut summary = sample::summary();
    summary.cases.truncate(4);
    for (what, times) in TIMES {
        let needed = |messages: u64| {
            let run = || {
                let [a, b] = [0, 1].map(|more| side(&summary, times, messages + more));
                let found = compare(&a, &b, Hosts::default(), Rules::default());
                compare::html(&found, &a, &b).len() + compare::table(&found, true, false).len()
            };
            memory_of(run).0
        };
        let (once, twice) = (needed(6_000), needed(18_000));
        // Four records a message and side.
        let bytes = 2 * 4 * RECORD * 12_000;
        assert!(twice <= once + bytes, "{what}: {once} bytes, then {twice} for {bytes} more");
        assert!(once < 6_000_000, "{what}: {once} bytes");
    }
}

fn report(drawings: Vec<Drawing>) -> RunReport {
    let section = Section { title: "any".to_owned(), drawings, ..Section::default() };
    RunReport {
        schema: "timewire.report/1",
        kind: "listen",
        title: "any".to_owned(),
        verdict: None,
        why: String::new(),
        complete: true,
        facts: Vec::new(),
        findings: Vec::new(),
        sections: vec![section],
        environment: Vec::new(),
    }
}

/// All drawings of some values over some instants.
fn drawn(at: Times, value: Times, count: u64) -> Vec<Drawing> {
    let points = || (0..count).map(|n| (at(n), value(n + 1)));
    let (what, name) = ("any".to_owned(), "any".to_owned());
    let values = || points().map(|point| point.1);
    let rows =
        vec![NumberRow { name: name.clone(), values: values().map(|ns| ns as f64).collect() }];
    let mut found = vec![
        Drawing::Spreads {
            what: what.clone(),
            spreads: Spread::of("any", values().collect()).into_iter().collect(),
        },
        Drawing::Numbers { what: what.clone(), limits: [Some(f64::MIN), None], rows },
    ];
    for thresholds in [None, Some([i64::MIN, i64::MAX])] {
        let series = || Box::new(TimeSeries::of(points(), thresholds).unwrap());
        let (what, name) = (what.clone(), name.clone());
        found.push(Drawing::TimeSeries {
            what: what.clone(),
            name: name.clone(),
            series: series(),
        });
        found.push(Drawing::Numbered { what, name, series: series() });
    }
    let lane = |bin_ns: i64| Lane {
        name: name.clone(),
        bin_ns,
        counts: vec![1; 9],
        windows: vec![(value(0), value(1))],
    };
    let lanes = vec![lane(1), lane(i64::MAX / 2)];
    found.push(Drawing::Clock(ClockSeries { name: name.clone(), points: points().collect() }));
    found.push(Drawing::Phase { what, cycle_ns: at(0).max(1), lanes });
    found
}

#[test]
fn t0_a_drawing_is_as_large_whatever_the_times() {
    for (of_instants, at) in TIMES {
        for (of_values, value) in TIMES {
            let needed = |count: u64| {
                let run = || run_report_html(&report(drawn(at, value, count))).len();
                memory_of(run)
            };
            let ((once, small), (twice, large)) = (needed(500), needed(2_000));
            // Values are held some times over. Clocks that go back and forth are drawn as they go.
            let most = once + 1_500 * 240;
            assert!(twice <= most, "{of_instants}, {of_values}: {once} bytes, then {twice}");
            assert!(large < small + 150_000 && large < 500_000, "{of_instants}, {of_values}");
        }
    }
}

#[test]
fn t0_a_report_draws_lanes_of_any_bins() {
    let page = |bins: [i64; 2], cycle_ns: i64| {
        let mut summary = sample::summary();
        for case in &mut summary.cases {
            let one = |bin_ns: i64| PhaseHistogram {
                station: "any".to_owned(),
                bin_ns,
                counts: vec![5; 100],
            };
            case.wire.phases = bins.map(one).to_vec();
            case.cycle_ns = cycle_ns;
        }
        memory_of(|| html(&summary).len()).0
    };
    let usual = page([10_000, 10_000], 1_000_000);
    for bins in [[1, i64::MAX], [1, 1], [i64::MAX, i64::MAX], [i64::MIN, 0]] {
        for cycle_ns in [1, 1_000_000, i64::MAX] {
            let needed = page(bins, cycle_ns);
            assert!(needed < 2 * usual, "{bins:?}, {cycle_ns}: {needed} bytes, usual {usual}");
        }
    }
}

#[test]
fn t0_a_log_of_histograms_holds_its_times_and_lines_only() {
    for (what, times) in TIMES {
        let needed = |messages: u64| {
            let run = || {
                let all = (0..messages).map(|n| (times(n), Some(times(n + 1))));
                let series = vec![HdrSeries::new("any".to_owned(), 0, all.collect())];
                let interval = Span::from_ns(i64::MAX / 50);
                let log = HdrLog { what: String::new(), interval, series };
                assert!(log.lines() <= 101);
                log.write(&mut std::io::sink()).unwrap();
            };
            memory_of(run).0
        };
        let (once, twice) = (needed(1_000), needed(3_000));
        let most = once + 4 * RECORD * 2_000;
        assert!(twice <= most, "{what}: {once} bytes, then {twice}");
        assert!(twice < 4_000_000, "{what}: {twice} bytes");
    }
}

fn event(at_ns: u64, hook: Hook, aux: u64, object: u64) -> Event {
    let (tag, interface, thread, cpu, length, station) = (0, 2, 10, 0, 0, 0);
    let flags = Flags::default();
    Event { at_ns, object, tag, aux, interface, thread, cpu, flags, length, hook, station }
}

fn point(event: &Event) -> Point {
    Point {
        at_ns: i64::try_from(event.at_ns).unwrap_or(i64::MAX),
        raw_ns: event.at_ns,
        aux: event.aux,
        bound_ns: 0,
        interface: event.interface,
        thread: event.thread,
        length: 0,
        cpu: event.cpu,
        hook: event.hook,
        station: 0,
        capture: 0,
        rule: Rule::First,
    }
}

/// A packet path from one instant to another.
fn packet_path(number: u64, from: u64, to: u64) -> PacketPath {
    let points = [(from, Hook::SendEnter), (to, Hook::DriverStart)];
    let points = points.map(|(at, hook)| point(&event(at, hook, 0, 0))).to_vec();
    let stage = Stage {
        parts: Parts::SEND,
        hop: 0,
        from: 0,
        to: 1,
        ns: points[1].at_ns.saturating_sub(points[0].at_ns),
        bound_ns: 0,
        rule: Rule::Object,
    };
    PacketPath {
        number,
        tag: number,
        tagged: true,
        status: Status::Complete,
        why: None,
        outcome: PathOutcome::Dropped { reason: 3 },
        points,
        stages: vec![stage],
        timestamps: Vec::new(),
    }
}

fn low(n: u64) -> u32 {
    u32::from_le_bytes(*n.to_le_bytes().first_chunk().unwrap())
}

/// Tells a timeline the `n`th thing.
type Feed = fn(&mut Gather, u64);

fn other(gather: &mut Gather, event: Event) {
    gather.event(0, &point(&event), &event);
}

const KINDS: [(&str, Feed); 8] = [
    ("packet paths far apart", |gather, n| {
        let from = mixed(n) % (1 << 62);
        gather.packet_path(&packet_path(n, from, from + mixed(n + 1) % (1 << 62)));
    }),
    ("packet paths at one time", |gather, n| gather.packet_path(&packet_path(n, 5, 5 + n))),
    ("any marker", |gather, n| other(gather, event(mixed(n) / 4, Hook::Marker, 0, mixed(n)))),
    ("any queue", |gather, n| {
        let event = event(n, Hook::QdiscEnqueue, mixed(n), 0);
        other(gather, Event { interface: low(mixed(n + 1)), ..event });
    }),
    ("any interrupt of any CPU", |gather, n| {
        let cpu = u16::from_le_bytes(*mixed(n / 2).to_le_bytes().first_chunk().unwrap());
        let hook = if n % 2 == 0 { Hook::IrqEntry } else { Hook::IrqExit };
        other(gather, Event { cpu, ..event(n, hook, mixed(n / 2), 0) });
    }),
    ("one interrupt of a long name", |gather, n| {
        let hook = if n % 2 == 0 { Hook::IrqEntry } else { Hook::IrqExit };
        other(gather, event(n, hook, 33, 0));
    }),
    ("interrupts that overlap", |gather, n| {
        let hook = if n % 2 == 0 { Hook::IrqEntry } else { Hook::IrqExit };
        let at = if n % 2 == 0 { 0 } else { u64::MAX / 2 };
        other(gather, event(at, hook, n, 0));
    }),
    ("polls and queues of long names", |gather, n| {
        other(gather, event(n, Hook::NapiPoll, n << 32, 0));
        other(gather, event(n, Hook::QdiscDequeue, n << 32, 0));
    }),
];

/// One clock, which is TAI.
struct OneScale;

impl ClockMap for OneScale {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        OneClock.to_common(capture, at_ns)
    }
    fn to_tai(&self, _: usize, at_ns: u64) -> Option<i64> {
        i64::try_from(at_ns).ok()
    }
}

/// Names as long as 20 000 letters, and windows of a station each microsecond.
fn gather(options: GatherOptions) -> Gather {
    let long = || "n".repeat(20_000);
    let mut gather = Gather::new(options);
    let station = Station { name: long(), namespace: 1, interfaces: BTreeMap::from([(2, long())]) };
    let meta = BTreeMap::from([
        (CaptureHeader::interrupt_key(33), long()),
        (CaptureHeader::reason_key(3), long()),
    ]);
    let (host, stations) = (long(), vec![station]);
    gather.names().header(0, &CaptureHeader { host, stations, meta, ..CaptureHeader::default() });
    gather.names().note(0, &Note::Flow { flow: 0, name: long() });
    gather.names().note(0, &Note::Thread { thread: 10, name: long() });
    let lost = HookCount { seen: 9, written: 3, lost: 6 };
    let losses = (0..2_000).map(|n| (format!("hook {n}"), lost)).collect();
    gather.names().note(0, &Note::Losses(losses));
    let window = Window { offset: Span::from_ns(200), length: Span::from_ns(100) };
    let windows = CyclicWindows::new(Instant::from_ns(0), Span::from_us(1), vec![window]);
    gather.schedule(0, 0, windows.unwrap());
    gather
}

/// Memory of a Perfetto file and of a page of so many things, with a packet path drawn in whose
/// time they all are.
fn timeline(told: Feed, count: u64, options: &GatherOptions) -> u64 {
    let packet_path = packet_path(u64::MAX - 1, 0, u64::MAX / 2);
    let verdict = Verdict { stage: Some(0), culprit: Culprit::NotSeen };
    let longest = [Judged { packet_path, verdict, sentence: "it is long".to_owned() }];
    let run = || {
        let mut gather = gather(options.clone());
        (0..count).for_each(|n| told(&mut gather, n));
        let input = gather.finish("any", &longest, &OneScale);
        assert_eq!(input.losses.len(), 101);
        let file = perfetto::file(&input).len();
        let (counts, names) = (Counts::default(), Names::default());
        let tables =
            PacketPathsInput { counts: &counts, rows: &[], longest: &longest, names: &names };
        (file, page(&tables, &input, "").len())
    };
    memory_of(run).0
}

#[test]
fn t0_a_timeline_needs_memory_in_proportion_to_the_events() {
    const FACTOR: u64 = 40;
    let options = GatherOptions { bands: 1_000, ..GatherOptions::default() };
    for (what, told) in KINDS {
        let (once, twice) = (timeline(told, 1_000, &options), timeline(told, 3_000, &options));
        // A packet path has two events here.
        let bytes = 2 * 2 * 1_000 * EVENT;
        assert!(twice <= once + FACTOR * bytes, "{what}: {once} bytes, then {twice}");
    }
}

#[test]
fn t0_a_timeline_that_is_full_needs_no_more_memory() {
    let options =
        GatherOptions { packet_paths: 200, others: 500, bands: 100, ..GatherOptions::default() };
    for (what, told) in KINDS {
        let (once, more) = (timeline(told, 2_000, &options), timeline(told, 8_000, &options));
        assert!(more <= once + once / 5, "{what}: {once} bytes, then {more}");
    }
}

/// Events that are years apart have more windows between them than can be counted one by one.
#[test]
fn t0_windows_without_room_are_counted_and_not_made() {
    let windows = |bands: usize| {
        let mut gather = gather(GatherOptions { bands, ..GatherOptions::default() });
        gather.packet_path(&packet_path(0, 1_250, 3_000_000_000_000_000_250));
        let input = gather.finish("any", &[], &OneScale);
        let extent = input.extent.join("; ");
        let told = extent.split_once("without ").unwrap().1.split(' ').next().unwrap();
        (input.bands.len(), told.parse::<u64>().unwrap())
    };
    // From a cycle before the first event to one after the last.
    let all = 3_000_000_000_000_002;
    for bands in [0, 1, 50] {
        let (shown, left_out) = windows(bands);
        assert_eq!(shown, bands);
        assert_eq!(u64::try_from(shown).unwrap() + left_out, all);
    }
}

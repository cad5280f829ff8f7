// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables, the worst packet paths and their reasons, chains.

use std::collections::BTreeMap;

use timewire_base::{CyclicWindows, Instant, Span, Window};

use super::*;
use crate::capture::{ClockSample, Note, Station};
use crate::packet_path::analysis::{Analysis, Wanted};
use crate::packet_path::chain::{Chain, ChainPoint};
use crate::packet_path::culprit::Culprit;
use crate::packet_path::table::{END_TO_END, Filter, Row, Scope};
use crate::packet_path::worst::Keep;
use Hook::*;

/// TAI is 1 s ahead.
struct Tai;

impl ClockMap for Tai {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        OneClock.to_common(capture, at_ns)
    }
    fn to_tai(&self, _: usize, at_ns: u64) -> Option<i64> {
        Some(i64::try_from(at_ns).unwrap() + 1_000_000_000)
    }
}

fn wanted() -> Wanted {
    Wanted { settings: settings(), ..Wanted::default() }
}

fn analysis(wanted: Wanted) -> Analysis<Tai> {
    let mut analysis = Analysis::new(vec![CaptureInfo::all()], Tai, wanted);
    let station = |name: &str, interfaces: &[(u32, &str)]| Station {
        name: name.to_owned(),
        namespace: 0,
        interfaces: interfaces.iter().map(|&(n, name)| (n, name.to_owned())).collect(),
    };
    let stations = vec![station("h1", &[(2, "eth0")]), station("h2", &[(3, "eth1")])];
    analysis.header(0, &CaptureHeader { stations, ..CaptureHeader::default() });
    for note in [
        Note::Thread { thread: 30, name: "stress".to_owned() },
        Note::Point { point: 7, name: "sample".to_owned(), process: 1 },
        Note::Point { point: 8, name: "actuate".to_owned(), process: 2 },
        Note::Qdisc { station: 0, interface: 2, handle: 1 << 16, kind: "pfifo".to_owned() },
    ] {
        analysis.note(0, &note);
    }
    analysis
}

/// The whole packet path with one event later, and all after it.
fn late(hook: Hook, by: u64) -> Vec<Event> {
    let mut events = whole();
    let index = events.iter().rposition(|event| event.hook == hook).unwrap();
    events[index..].iter_mut().for_each(|event| event.at_ns += by);
    events
}

fn reason(mut analysis: Analysis<Tai>, events: &[Event]) -> (Culprit, String) {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at_ns);
    events.iter().for_each(|event| analysis.event(0, event, &mut Vec::new()));
    analysis.finish(&mut Vec::new());
    let worst = analysis.longest()[0].clone();
    (worst.verdict.culprit, worst.sentence)
}

#[test]
fn t0_frames_before_it_and_closed_gates() {
    let events = late(QdiscDequeue, 9_000);
    let (culprit, sentence) = reason(analysis(wanted()), &events);
    assert_eq!(culprit, Culprit::Frames { frames: 3, handle: 1 << 16 });
    assert_eq!(
        sentence,
        "9.800 us of 11.900 us (82.4 %) were qdisc at h1/eth0: 3 other frames were in pfifo 1: \
         when it came"
    );
    // Open from 11.100 us on, when it was sent; and from 1.200 us to 2.000 us.
    let windows = |offsets: &[(i64, i64)]| {
        let windows = offsets.iter().map(|&(offset, length)| Window {
            offset: Span::from_ns(offset),
            length: Span::from_ns(length),
        });
        let base = Instant::from_ns(1_000_000_000);
        CyclicWindows::new(base, Span::from_us(100), windows.collect()).unwrap()
    };
    let mut gated = analysis(wanted());
    gated.schedule(0, 0, windows(&[(1_200, 800), (11_050, 500)]));
    let (culprit, sentence) = reason(gated, &events);
    assert_eq!(culprit, Culprit::Gate { closed_ns: 9_050 });
    assert!(sentence.ends_with("h1/eth0: its gates were closed for 9.050 us"), "{sentence}");
    let mut open = analysis(wanted());
    open.schedule(0, 0, windows(&[(0, 100_000)]));
    assert_eq!(reason(open, &events).0, Culprit::Frames { frames: 3, handle: 1 << 16 });
    // The clock that drives the gates was stepped meanwhile.
    let mut stepped = analysis(wanted());
    stepped.schedule(0, 0, windows(&[(1_200, 800), (11_050, 500)]));
    for (monotonic_ns, realtime_ahead_ns) in [(500, 0), (4_000, -9_000)] {
        let sample = ClockSample {
            monotonic_ns,
            realtime_ahead_ns,
            tai_ahead_ns: 0,
            error_ns: 20,
            offset_ns: None,
        };
        stepped.note(0, &Note::Clocks(sample));
    }
    assert_eq!(reason(stepped, &events).0, Culprit::ClockStep { ns: -9_000 });
}

#[test]
fn t0_who_had_the_cpu_of_the_reader() {
    let events = late(SwitchIn, 9_000);
    let (culprit, sentence) = reason(analysis(wanted()), &events);
    assert_eq!(culprit, Culprit::Thread { thread: 30, cpu: 2 });
    assert!(sentence.ends_with("wake-up at h2: thread 30 (stress) had CPU 2"), "{sentence}");
    let mut idle = events.clone();
    idle[12].aux = 0;
    assert_eq!(reason(analysis(wanted()), &idle).0, Culprit::LateWakeUp { cpu: 2 });
    let mut interrupted = events.clone();
    interrupted.push(ev(3_200, IrqEntry, 0, 0).aux(24).cpu(2));
    interrupted.push(ev(11_000, IrqExit, 0, 0).aux(24).cpu(2));
    let irq = Culprit::Interrupts { interrupt: 24, ns: 7_800, cpu: 2 };
    assert_eq!(reason(analysis(wanted()), &interrupted).0, irq);
    let mut deferred = events;
    deferred.push(ev(3_200, SoftirqEntry, 0, 0).aux(3).cpu(2));
    deferred.push(ev(11_000, SoftirqExit, 0, 0).aux(3).cpu(2));
    let softirq = Culprit::Softirqs { kind: 3, ns: 7_800, cpu: 2 };
    assert_eq!(reason(analysis(wanted()), &deferred).0, softirq);
}

#[test]
fn t0_frames_that_a_cpu_received_before_it() {
    let events = late(StackReceive, 9_000);
    let others = Culprit::OtherFrames { frames: 4, cpu: 1 };
    assert_eq!(reason(analysis(wanted()), &events).0, others);
    // Without the counters: what the polls that ended meanwhile say.
    let mut uncounted = events;
    uncounted[8].aux = 0;
    uncounted[9].aux = 0;
    assert_eq!(reason(analysis(wanted()), &uncounted).0, Culprit::NotSeen);
    uncounted.push(ev(5_000, NapiPoll, 0, 0).aux((64 << 32) | 64).cpu(1));
    let polled = Culprit::OtherFrames { frames: 64, cpu: 1 };
    assert_eq!(reason(analysis(wanted()), &uncounted).0, polled);
}

#[test]
fn t0_what_no_event_proves_is_not_seen() {
    let (culprit, sentence) = reason(analysis(wanted()), &late(ReceiveQueue, 9_000));
    assert_eq!(culprit, Culprit::NotSeen);
    let expected = "9.250 us of 11.900 us (77.7 %) were wire from h1/eth0 to h2/eth1: not seen";
    assert_eq!(sentence, expected);
}

/// Whole packet paths 100 us apart, the n-th longer by n us in the qdisc.
fn many(count: u64) -> Vec<Event> {
    let mut all = Vec::new();
    for n in 0..count {
        let flow = (n % 2 + 1) << 32;
        for event in late(QdiscDequeue, n * 1_000) {
            let tag = if event.tag == 0 { 0 } else { flow + n };
            all.push(Event { at_ns: event.at_ns + n * 100_000, tag, ..event });
        }
    }
    all
}

fn run(wanted: Wanted, events: &[Event]) -> Analysis<Tai> {
    let mut analysis = analysis(wanted);
    events.iter().for_each(|event| analysis.event(0, event, &mut Vec::new()));
    analysis.finish(&mut Vec::new());
    analysis
}

fn row(rows: &[Row], scope: Scope, stage: &str) -> Row {
    rows.iter().find(|row| row.scope == scope && row.stage == stage).unwrap().clone()
}

#[test]
fn t0_tables_by_stage_flow_and_hop() {
    let rows = run(wanted(), &many(10)).rows();
    let all = row(&rows, Scope::All, END_TO_END);
    assert_eq!((all.times.count, all.times.min_ns, all.times.max_ns), (10, 2_900, 11_900));
    let qdisc = row(&rows, Scope::All, "qdisc");
    assert_eq!((qdisc.times.count, qdisc.times.min_ns, qdisc.times.max_ns), (10, 800, 9_800));
    assert!((qdisc.times.mean_ns - 5_300.0).abs() < 1e-9);
    assert!((qdisc.share - 5_300.0 / 7_400.0).abs() < 1e-12);
    let of_flow = row(&rows, Scope::Flow(2), "qdisc");
    assert_eq!((of_flow.times.count, of_flow.times.min_ns), (5, 1_800));
    let hop = row(&rows, Scope::Hop(1, 0, 1), "softirq");
    assert_eq!((hop.times.count, hop.times.p50_ns), (10, 500));
    let shares: f64 = rows
        .iter()
        .filter(|row| row.scope == Scope::All && row.stage != END_TO_END)
        .map(|row| row.share)
        .sum();
    assert!((shares - 1.0).abs() < 1e-12);
    let few = run(Wanted { flows: 1, ..wanted() }, &many(10)).rows();
    assert_eq!(row(&few, Scope::OtherFlows, END_TO_END).times.count, 5);
}

#[test]
fn t0_filters_and_the_worst() {
    let count = |filter: Filter| {
        let rows = run(Wanted { filter, ..wanted() }, &many(10)).rows();
        rows.first().map_or(0, |row| row.times.count)
    };
    let all = Filter::default;
    assert_eq!(count(Filter { flows: [1].into(), ..all() }), 5);
    assert_eq!(count(Filter { from_ns: 201_000, to_ns: 501_000, ..all() }), 3);
    assert_eq!(count(Filter { stations: [(0, 1)].into(), ..all() }), 10);
    assert_eq!(count(Filter { stations: [(0, 4)].into(), ..all() }), 0);
    let longer = Some((Parts::QDISC, Span::from_ns(6_800)));
    assert_eq!(count(Filter { longer, ..all() }), 3);
    let keep = Keep { longest: 3, above_ns: Some(5_900), above: 2, ..Keep::default() };
    let analysis = run(Wanted { keep, ..wanted() }, &many(10));
    let worst = analysis.worst();
    let times = |list: &[crate::packet_path::worst::Judged]| -> Vec<i64> {
        list.iter().map(|judged| judged.packet_path.end_to_end_ns()).collect()
    };
    assert_eq!(times(worst.longest()), [11_900, 10_900, 9_900]);
    assert_eq!((times(worst.above()), worst.count_above()), (vec![6_900, 7_900], 6));
    let received = (Status::Complete, PathOutcome::Received.name());
    assert_eq!(analysis.counts().packet_paths[&received], 10);
}

fn chain(points: &[&str], deadline_ns: i64) -> Wanted {
    let points: Vec<ChainPoint> = points.iter().map(|text| text.parse().unwrap()).collect();
    let deadline = Some(Span::from_ns(deadline_ns));
    let chains = vec![Chain { name: "pipeline".to_owned(), points, deadline }];
    Wanted { chains, ..wanted() }
}

#[test]
fn t0_a_chain_of_markers_and_hooks() {
    let points = ["h1.sample", "driver-start", "h2.stack-receive", "h2.actuate"];
    let report = run(chain(&points, 6_900), &many(10)).chains().remove(0);
    assert_eq!((report.complete, report.missed, report.ambiguous, report.lossy), (10, 5, 0, 0));
    assert_eq!(report.parts.len(), 4);
    let ends: Vec<(i64, i64)> =
        report.parts.iter().map(|part| (part.times.min_ns, part.times.max_ns)).collect();
    assert_eq!(ends, [(1_100, 10_100), (800, 800), (1_000, 1_000), (2_900, 11_900)]);
    assert!((report.parts[3].share - 1.0).abs() < 1e-12);
    assert!((report.parts[1].share - 800.0 / 7_400.0).abs() < 1e-12);
    // At another station nothing passes.
    let report = run(chain(&["h2.sample", "h2.actuate"], 1), &many(3)).chains().remove(0);
    assert_eq!((report.complete, &report.unfinished), (0, &[("h2.sample".to_owned(), 3)].into()));
}

#[test]
fn t0_a_chain_that_is_broken_twice_or_lossy() {
    let points = ["h1.sample", "h2.actuate"];
    let mut broken = many(3);
    broken.retain(|event| !(event.hook == Marker && event.object == 8 && event.at_ns < 100_000));
    let twice = broken.iter().rfind(|e| e.hook == Marker && e.object == 7).copied().unwrap();
    broken.push(Event { at_ns: twice.at_ns + 6_000, ..twice });
    let report = run(chain(&points, 1), &broken).chains().remove(0);
    assert_eq!((report.complete, report.ambiguous, report.missed), (1, 1, 1));
    let missing: BTreeMap<String, u64> = [("h2.actuate".to_owned(), 1)].into();
    assert_eq!(report.unfinished, missing);
    let mut lossy = analysis(chain(&points, 1));
    lossy.lose(0, Loss { hook: Marker, from_ns: 100_000, to_ns: 101_000, events: 1 });
    many(3).iter().for_each(|event| lossy.event(0, event, &mut Vec::new()));
    lossy.finish(&mut Vec::new());
    let report = lossy.chains().remove(0);
    assert_eq!((report.complete, report.lossy), (2, 1));
    assert!(".x".parse::<ChainPoint>().is_err() && "".parse::<ChainPoint>().is_err());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages made by hand, whole and with every fault.

use super::*;
use crate::capture::{ClockSample, Station};
use crate::event::Flags;

const SENDER: u8 = 0;
const RECEIVER: u8 = 1;
const OTHER: u8 = 2;
/// The capture's clock at TAI 0.
const BOOT: u64 = 1_000_000;

fn header() -> CaptureHeader {
    let station = |name: &str| Station {
        name: name.to_owned(),
        namespace: 1,
        interfaces: BTreeMap::from([(2, "phy0".to_owned()), (4, "tw0".to_owned())]),
    };
    let stations = ["a", "b", "c"].map(station).to_vec();
    let meta = BTreeMap::from([(LINK.to_owned(), "phy0".to_owned())]);
    CaptureHeader { stations, meta, ..CaptureHeader::default() }
}

fn processing() -> Processing {
    let wanted = Wanted {
        streams: [(15_001, "line-1"), (15_002, "line-2")]
            .map(|(port, name)| (Known::Port(port), name.to_owned()))
            .into(),
        from: Instant::from_ns(0),
        to: Instant::from_ns(1_000_000),
        cycle: Span::from_us(100),
    };
    let mut processing = Processing::new(wanted);
    processing.header(0, &header());
    let names = ["REMOTE_STIMULUS_SENT", "REMOTE_STIMULUS_RECD", "mac.transmit", "START_CYCLE"];
    for (name, point) in names.into_iter().zip(1..) {
        processing.note(0, &Note::Point { point, process: 1, name: name.to_owned() });
    }
    processing.note(
        0,
        &Note::Clocks(ClockSample {
            monotonic_ns: 5,
            realtime_ahead_ns: -1_000_000 - 37_000_000_000,
            tai_ahead_ns: 37_000_000_000,
            error_ns: 0,
            offset_ns: None,
        }),
    );
    processing
}

fn event(hook: Hook, station: u8, tag: u64, at_ns: u64) -> Event {
    Event {
        at_ns: BOOT + at_ns,
        object: 77,
        tag,
        aux: 0,
        interface: 2,
        thread: 1,
        cpu: 0,
        flags: Flags::default(),
        length: 0,
        hook,
        station,
    }
}

fn mark(point: u64, station: u8, tag: u64, at_ns: u64) -> Event {
    let aux = if point == 3 { 52 } else { 15_001 };
    Event { object: point, aux, ..event(Hook::Marker, station, tag, at_ns) }
}

/// A message that is 40us on the transmit side, 5us on the link and 7us on the receive side.
fn message(tag: u64, at: u64) -> Vec<Event> {
    vec![
        mark(1, SENDER, tag, at),
        mark(4, SENDER, tag, at),
        Event { interface: 4, ..event(Hook::DriverStart, SENDER, tag, at + 1_000) },
        event(Hook::DriverStart, SENDER, tag, at + 40_000),
        event(Hook::StackReceive, OTHER, tag, at + 44_000),
        event(Hook::StackReceive, RECEIVER, tag, at + 45_000),
        Event { interface: 4, ..event(Hook::StackReceive, RECEIVER, tag, at + 46_000) },
        mark(2, RECEIVER, tag, at + 52_000),
    ]
}

fn figures(events: &[Event]) -> ProcessingSummary {
    let mut processing = processing();
    let at = |event: &Event| i64::try_from(event.at_ns).unwrap();
    events.iter().for_each(|event| processing.event(0, at(event), event));
    let traced = processing.finish(vec!["trace.twc".to_owned()], "trace.html".to_owned());
    assert_eq!(traced.streams[1].sent, 0);
    traced.streams[0].clone()
}

fn means(figures: &ProcessingSummary) -> [Option<f64>; 4] {
    let parts = [&figures.transmit, &figures.link, &figures.receive, &figures.transfer];
    parts.map(|part| part.as_ref().map(|part| part.mean_ns))
}

#[test]
fn t0_each_part_is_from_point_to_point() {
    let mut events: Vec<Event> = (1..=4).flat_map(|tag| message(tag, tag * 1_000)).collect();
    // Marks and events of the kernel come in no order.
    events.reverse();
    let found = figures(&events);
    assert_eq!((found.sent, found.incomplete, found.ambiguous), (4, 0, 0));
    assert_eq!(found.driver, ["driver-start"]);
    assert_eq!(means(&found), [40_000.0, 5_000.0, 7_000.0, 52_000.0].map(Some));
    assert_eq!(found.transfer.unwrap().count, 4);
}

#[test]
fn t0_the_mark_of_a_mac_is_its_driver() {
    let mut events = message(9, 0);
    events.retain(|event| event.hook != Hook::DriverStart || event.interface == 4);
    assert_eq!(figures(&events).incomplete, 1);
    events.push(mark(3, SENDER, 9, 30_000));
    // Of another station's MAC, such as one that passes it on.
    events.push(mark(3, OTHER, 9, 35_000));
    let found = figures(&events);
    assert_eq!(found.driver, ["mac.transmit"]);
    assert_eq!(means(&found), [30_000.0, 15_000.0, 7_000.0, 52_000.0].map(Some));
}

#[test]
fn t0_what_cannot_be_joined_is_told_and_has_no_figures() {
    let whole = message(9, 0);
    for missing in [0, 3, 7] {
        let mut events = whole.clone();
        events.remove(missing);
        let found = figures(&events);
        assert_eq!((found.sent, found.incomplete, found.ambiguous), (1, 1, 0), "{missing}");
        assert_eq!(means(&found), [None; 4]);
    }
    let with = |event: Event| {
        let mut events = whole.clone();
        events.push(event);
        figures(&events)
    };
    for twice in [
        mark(1, SENDER, 9, 3),
        mark(2, RECEIVER, 9, 60_000),
        mark(2, OTHER, 9, 60_000),
        event(Hook::DriverStart, SENDER, 9, 41_000),
        // Received before it was sent.
        event(Hook::StackReceive, RECEIVER, 9, 2),
    ] {
        let found = with(twice);
        assert_eq!((found.sent, found.ambiguous, means(&found)), (1, 1, [None; 4]), "{twice:?}");
    }
}

#[test]
fn t0_only_messages_of_the_measured_interval_count() {
    let events: Vec<Event> = [(1, 0), (2, 999_999), (3, 1_000_000)]
        .into_iter()
        .flat_map(|(t, at)| message(t, at))
        .collect();
    assert_eq!(figures(&events).sent, 2);
    // A station that the capture does not know is none of the run.
    let strange = Event { station: Event::NO_STATION, ..mark(1, SENDER, 5, 7) };
    assert_eq!(figures(&[strange]).sent, 0);
}

#[test]
fn t0_numbered_messages_are_measured_at_each_listener() {
    let known = |listener: &str| Known::Number { stream: 3, listener: listener.to_owned() };
    let wanted = Wanted {
        streams: ["b", "c"]
            .map(|listener| (known(listener), format!("state at {listener}")))
            .into(),
        from: Instant::from_ns(0),
        to: Instant::from_ns(1_000_000),
        cycle: Span::from_us(100),
    };
    let mut processing = Processing::new(wanted);
    let meta = BTreeMap::from([(LINK.to_owned(), "phy0 tw0".to_owned())]);
    processing.header(0, &CaptureHeader { meta, ..header() });
    for (name, point) in ["talk.send", "listen.received"].into_iter().zip(1..) {
        processing.note(0, &Note::Point { point, process: 1, name: name.to_owned() });
    }
    let packet = |tag: u64| 0xbead_0003 << 32 | tag;
    for seq in 1..=2 {
        // Marks do not know the addresses; their values are lateness and length.
        let mark =
            |point, station, at| Event { aux: 60, ..mark(point, station, 3 << 32 | seq, at) };
        let mut all = vec![
            mark(1, SENDER, 0),
            // It leaves by its second interface.
            Event { interface: 4, ..event(Hook::DriverStart, SENDER, packet(seq), 30_000) },
            event(Hook::StackReceive, RECEIVER, packet(seq), 50_000),
            mark(2, RECEIVER, 51_000),
        ];
        // The second did not get to the other listener.
        if seq == 1 {
            all.push(event(Hook::StackReceive, OTHER, packet(seq), 70_000));
            all.push(mark(2, OTHER, 72_000));
        }
        for event in all {
            processing.event(0, i64::try_from(event.at_ns).unwrap(), &event);
        }
    }
    let found = processing.finish(Vec::new(), String::new()).streams;
    assert_eq!(found[0].stream, "state at b");
    let counts = |of: &ProcessingSummary| (of.sent, of.incomplete, of.ambiguous);
    assert_eq!((counts(&found[0]), counts(&found[1])), ((2, 0, 0), (2, 1, 0)));
    assert_eq!(means(&found[0]), [30_000.0, 20_000.0, 1_000.0, 51_000.0].map(Some));
    assert_eq!(means(&found[1]), [30_000.0, 40_000.0, 2_000.0, 72_000.0].map(Some));
}

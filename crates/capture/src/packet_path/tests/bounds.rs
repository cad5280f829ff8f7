// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whatever the events are, an analysis keeps no more than its bounds allow, ends, and tells what
//! it left out.

use proptest::prelude::*;

use super::super::analysis::{Analysis, Wanted};
use super::*;

const SMALL: Bounds = Bounds {
    packets: 40,
    points: 300,
    packet_path_points: 16,
    waiting: 64,
    arrivals: 16,
    endpoints: 16,
    messages: 64,
    losses: 16,
    tags: 16,
    spans: 64,
};

/// Clocks that put the captures at random around each other, with a bound that lets one packet
/// seem to be before and after another.
struct Loose;

impl ClockMap for Loose {
    fn to_common(&self, capture: usize, at_ns: u64) -> Common {
        let ns = i64::try_from(at_ns % (1 << 60)).unwrap() + i64::try_from(capture).unwrap() * 7;
        Common { ns, bound_ns: 500 }
    }
}

/// Few values or any: few make everything meet, any make tables grow.
fn number(few: u64, any: bool) -> BoxedStrategy<u64> {
    if any { proptest::num::u64::ANY.boxed() } else { (0..few).boxed() }
}

fn event(any: bool) -> impl Strategy<Value = (usize, Event)> {
    let place = (0_usize..3, 0_u8..3, number(3, any), number(3, any));
    let what = (0..Hook::ALL.len(), number(6, any), number(4, any), number(6, any));
    let when = (0_u64..300, 0_u16..4, number(8, false));
    (place, what, when).prop_map(|(place, what, when)| {
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        let event = ev(when.0, Hook::ALL[what.0], what.1, what.2).aux(what.3).cpu(when.1);
        let flags = Flags(u16::try_from(when.2).unwrap());
        (place.0, event.on(place.1, low(place.2)).by(low(place.3)).flag(flags))
    })
}

/// The events as they are, or each of them also in the next capture: a kernel captured twice.
fn stream() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let some = any::<bool>().prop_flat_map(|any| proptest::collection::vec(event(any), 1..1_500));
    (some, any::<bool>(), 0_u64..4).prop_map(|(mut events, twice, pace)| {
        let mut now = 0;
        for (_, event) in &mut events {
            now += pace * 40;
            event.at_ns += now;
        }
        let each = events.iter().flat_map(|&(capture, event)| {
            let copy = (capture + 1) % 3;
            let twin = Event { at_ns: event.at_ns + 3, object: event.object ^ 0x5555, ..event };
            [Some((capture, event)), twice.then_some((copy, twin))]
        });
        each.flatten().collect()
    })
}

fn bounded(events: &[(usize, Event)], bounds: Bounds) -> (Vec<PacketPath>, Counts) {
    let settings = Settings { bounds, ..settings() };
    let wanted = Wanted { settings, flows: 4, ..Wanted::default() };
    let mut analysis = Analysis::new(vec![CaptureInfo::all(); 3], Loose, wanted);
    let mut out = Vec::new();
    for (capture, event) in events {
        analysis.event(*capture, event, &mut out);
        let held = analysis.held();
        assert!(held.packets <= bounds.packets + bounds.arrivals + 1, "{held:?}");
        assert!(held.events <= bounds.waiting + 1, "{held:?}");
        // Tables are looked at every 1 024 events.
        assert!(held.sockets.max(held.threads) <= 3 * (bounds.endpoints + 1_024), "{held:?}");
    }
    analysis.finish(&mut out);
    assert_eq!(analysis.held().packets - analysis.held_arrivals(), 0);
    for packet_path in &out {
        assert!(packet_path.points.len() <= bounds.packet_path_points, "{packet_path:?}");
        assert!(packet_path.timestamps.len() <= bounds.packet_path_points * bounds.packets);
    }
    (out, analysis.counts())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn t0_any_events_end_within_the_bounds(events in stream()) {
        let (out, counts) = bounded(&events, SMALL);
        // What was cut short is never told as complete.
        let cut = out.iter().filter(|packet_path| packet_path.why == Some(Why::LeftOut));
        prop_assert!(cut.clone().all(|packet_path| packet_path.status == Status::Lossy));
        prop_assert!(cut.count() == 0 || !counts.left_out.is_empty(), "{counts:?}");
        // With room for all nothing is left out.
        let (_, counts) = bounded(&events, Bounds::default());
        prop_assert!(counts.left_out.is_empty(), "{counts:?}");
    }
}

/// Two captures of bridges that send one packet to each other for ever: each reception can be the
/// transmission of the other.
#[test]
fn t0_a_circle_of_receptions_is_no_packet_path_without_end() {
    use Hook::*;
    let mut events = Vec::new();
    for capture in [0, 1] {
        let at = 100 + u64::try_from(capture).unwrap() * 3;
        let object = 0x10;
        events.push((capture, ev(at, ReceiveQueue, object, 5).on(0, 2)));
        events.push((capture, ev(at + 10, DriverStart, object, 5).on(0, 3)));
    }
    let (out, counts) = bounded(&events, Bounds::default());
    assert_eq!(counts.packet_paths.values().sum::<u64>(), u64::try_from(out.len()).unwrap());
    let circles = out.iter().filter(|packet_path| packet_path.why == Some(Why::Circle));
    assert_eq!(circles.count(), 1, "{out:#?}");
    assert!(out.iter().all(|packet_path| packet_path.points.len() <= 4), "{out:#?}");
}

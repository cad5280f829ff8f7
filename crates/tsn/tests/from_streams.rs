// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slots that follow from the streams of a network.

use proptest::prelude::*;
use timewire_base::{Span, StationName};
use timewire_model::scenario::Scenario;
use timewire_tsn::file::ParseFile;

use super::shipped::text;

fn parse(text: &str) -> Scenario {
    Scenario::parse("scenario", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn station(name: &str) -> StationName {
    StationName::new(name).unwrap()
}

/// Message, cycle, frames of a message on the link.
const PUBLISHED: [(u32, i64, i64); 3] =
    [(64, 1_040, 10_400), (256, 1_200, 25_760), (1_472, 1_920, 123_040)];

#[test]
fn t1_the_published_cycles_follow_from_the_streams() {
    for (message, cycle_us, busy_ns) in PUBLISHED {
        let text_of_planned = text(&format!("streams-{message}.yaml"));
        assert!(text_of_planned.contains("slots: null"), "{text_of_planned}");
        let planned = parse(&text_of_planned);
        let written = parse(&text(&format!("tdm-{message}.yaml")));
        assert_eq!(planned.schedule.cycle(), Span::from_us(cycle_us));
        assert_eq!(planned.schedule, written.schedule);
        assert_eq!(planned.streams, written.streams);
        let need = planned.need_of(&station("gamma"));
        assert_eq!((need.frames, need.busy), (2, Span::from_ns(2 * busy_ns)));
        assert_eq!(planned.need_of(&station("beta")).frames, 0);
        let json = super::any_text::written(&text_of_planned, &planned).to_string();
        assert!(json.contains("slots"), "{json}");
        assert_eq!(parse(&json), planned, "written with its slots");
    }
}

/// How far `start`, which is fitted, can be from what the files have.
#[test]
fn t1_one_start_gives_all_three_cycles_and_has_little_room() {
    let all = |start: &str| {
        PUBLISHED.iter().all(|(message, cycle_us, _)| {
            let text = text(&format!("streams-{message}.yaml"));
            let text = text.replace("start: 186us", &format!("start: {start}"));
            assert!(text.contains(start));
            parse(&text).schedule.cycle() == Span::from_us(*cycle_us)
        })
    };
    for (start, good) in [
        ("183480ns", false),
        ("183481ns", true),
        ("184us", true),
        ("188us", true),
        ("188920ns", true),
        ("188921ns", false),
    ] {
        assert_eq!(all(start), good, "{start}");
    }
}

fn small(schedule: &str, mac: &str, traffic: &str) -> String {
    format!(
        "timewire: 1
name: small
kind: network
segments: [{{ rate: 100Mbit }}]
stations:
  - {{ name: a, address: 10.77.0.1/24 }}
  - {{ name: b, address: 10.77.0.2/24 }}
  - {{ name: c, address: 10.77.0.3/24 }}
  - {{ name: d, address: 10.77.0.4/24 }}
schedule: {{ kind: tdm, guard: 10us, {schedule} }}
mac: {{ launch_delta: 1us, spin: 0us, {mac} }}
queues: {{ send: [{{ port: 1000, priority: 1 }}, {{ port: 1001, priority: 1 }}] }}
streams:
{traffic}
duration: 3300ms
warm_up: 300ms
experiment:
  loads: [alone, load]
  cases: [{{ name: tdm, title: TDM }}]
"
    )
}

const PIPELINE: &str = "  - { name: p, kind: pipeline, talker: d, listeners: [c, b, a], \
                        port: 2000, size: 64B, deadline: 1ms";

fn lengths(scenario: &Scenario) -> Vec<(&str, i64)> {
    let slots = scenario.schedule.slots().iter();
    slots.map(|slot| (slot.station.as_str(), slot.transmit.as_ns())).collect()
}

#[test]
fn t0_slots_made_from_streams_stand_along_a_pipeline() {
    let traffic = format!("{PIPELINE} }}");
    let planned =
        parse(&small("order: along-pipelines, from_streams: {}", "margin: 5us", &traffic));
    // A message of 64 bytes is on the link for 10.4us; the last station sends none.
    let each = 16_000;
    assert_eq!(lengths(&planned), [("b", each), ("d", each), ("c", each)]);
    // Of all orders that begin with `b`, its own: what `d` hands on is at `b` within a cycle.
    let as_written = parse(&small("from_streams: {}", "margin: 5us", &traffic));
    assert_eq!(lengths(&as_written), [("b", each), ("c", each), ("d", each)]);
    let first = "order: along-pipelines, from_streams: { stations: [d, b, c] }";
    let first = parse(&small(first, "", &traffic));
    assert_eq!(lengths(&first), [("d", each), ("c", each), ("b", each)]);
    assert_eq!(first.schedule.cycle(), Span::from_us(3 * 26));
    // The last message has left before the cycle ends that the first one left in.
    let last = first.schedule.slots().last().unwrap();
    assert!(last.offset + last.transmit < first.schedule.cycle());
}

#[test]
fn t0_a_pipeline_that_comes_more_often_than_the_cycle_has_more_room() {
    let traffic = format!("{PIPELINE}, period: 60us }}");
    let planned = parse(&small("from_streams: { step: 1ns }", "", &traffic));
    // With one message in each slot the cycle is 76.2us, in which two can come; with two it is
    // 107.4us, in which two can come.
    assert_eq!(lengths(&planned), [("b", 25_800), ("c", 25_800), ("d", 25_800)]);
    assert_eq!(planned.schedule.cycle(), Span::from_ns(107_400));
    let longer = "cycle_time: 170us, from_streams: { step: 1ns }";
    let longer = parse(&small(longer, "", &traffic));
    assert_eq!(lengths(&longer)[0], ("b", 36_200), "three come in 170us");
    assert_eq!(longer.schedule.cycle(), Span::from_us(170), "as the file says");
}

#[test]
fn t0_the_load_with_the_most_decides_and_a_share_is_kept() {
    let traffic = "  - { name: x, kind: request-response, talker: a, listeners: b, port: 1000, \
                     size: 64B, class: 7, deadline: 1ms, timeout: 100ms }
  - { name: y, kind: request-response, talker: a, listeners: c, port: 1001, size: 256B, \
      class: 7, deadline: 1ms, timeout: 100ms, loads: [alone] }
  - { name: z, kind: request-response, talker: a, listeners: c, port: 3000, size: 64B, \
      deadline: 1ms, timeout: 100ms, loads: [load] }
  - { name: f, kind: flood, talker: d, listeners: a, port: 4000, size: 1472B, rate: 1Mbit }";
    let planned = parse(&small("from_streams: { step: 1ns }", "margin: 0us", traffic));
    // 10.4us and 25.76us alone, 10.4us twice under load; of a flood, one frame.
    let expected = [("a", 36_160), ("b", 10_400), ("c", 25_760), ("d", 123_040)];
    assert_eq!(lengths(&planned), expected);
    let mac = "margin: 0us, best_effort_share: 30us";
    let shared = parse(&small("from_streams: { step: 1ns, start: 2us }", mac, traffic));
    let expected = [("a", 68_160), ("b", 42_400), ("c", 57_760), ("d", 125_040)];
    assert_eq!(lengths(&shared), expected);
    let equal = "from_streams: { equal: true, step: 10us, stations: [d, b, a, c] }";
    let equal = parse(&small(equal, "margin: 0us", traffic));
    let each = 130_000;
    assert_eq!(lengths(&equal), [("d", each), ("b", each), ("a", each), ("c", each)]);
    // What a slot needs to start does not come on top of a flood's frame.
    let start = "from_streams: { equal: true, start: 50us, step: 1ns }";
    let start = parse(&small(start, "margin: 0us", traffic));
    assert!(lengths(&start).iter().all(|(_, length)| *length == 123_040));
}

proptest! {
    /// second method: the frames of each slot are counted again from the text's numbers.
    #[test]
    fn t0_each_slot_is_as_long_as_its_frames_and_less_than_a_step_longer(
        messages in proptest::collection::vec((8_u32..1472, 0_usize..4, 1_usize..4), 1..6),
        start in 0_i64..200, step in 1_i64..50, margin in 0_i64..20,
    ) {
        let names = ["a", "b", "c", "d"];
        let mut busy = [0_i64; 4];
        let mut traffic = String::new();
        for (i, (message, from, way)) in messages.iter().enumerate() {
            let to = (from + way) % 4;
            let (client, server) = (names[*from], names[to]);
            traffic += &format!(
                "  - {{ name: s{i}, kind: request-response, talker: {client}, listeners: {server}, \
                 port: {}, size: {message}B, deadline: 1ms, \
                 timeout: 100ms }}\n", 5000 + i
            );
            // Headers of UDP, IP and Ethernet; at least 60 bytes; sequence, preamble and gap; 80 ns
            // each.
            let wire = i64::from((message + 8 + 20 + 14).max(60) + 4 + 8 + 12) * 80;
            busy[*from] += wire;
            busy[to] += wire;
        }
        let schedule = format!("from_streams: {{ start: {start}us, step: {step}us }}");
        let planned = parse(&small(&schedule, &format!("margin: {margin}us"), &traffic));
        let mut at = 0;
        let mut slots = planned.schedule.slots().iter();
        for (name, busy) in names.iter().zip(busy).filter(|it| it.1 > 0) {
            let slot = slots.next().unwrap();
            prop_assert_eq!((slot.station.as_str(), slot.offset.as_ns()), (*name, at));
            let least = (start + margin) * 1_000 + busy;
            let length = slot.transmit.as_ns();
            prop_assert!((least..least + step * 1_000).contains(&length), "{least} {length}");
            prop_assert_eq!(length % (step * 1_000), 0);
            at += length + 10_000;
        }
        prop_assert!(slots.next().is_none());
        prop_assert_eq!(planned.schedule.cycle().as_ns(), at);
    }
}

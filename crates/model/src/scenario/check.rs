// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold between the values of a scenario: names that exist, messages that fit their slot,
//! ports that belong to one stream, cases that can be run, streams that can be measured.

use std::collections::HashMap;
use std::hash::Hash;

use timewire_base::{FrameLen, SduLen, Span};

use super::check_limits::check_limits;
use super::cyclic::{check_cyclic, check_sporadic};
use super::further::FurtherChecks;
use super::item::Reader;
use super::model::{Case, CaseBackend, MacMode, Release, Scenario, Segment, Stream};
use super::pipeline::check_pipeline;
use super::programs::check_programs;
use super::segment_network::Origin;

/// Finds what is wrong between the values, all of it.
pub(super) fn check(
    scenario: &Scenario,
    origin: &Origin,
    further: &dyn FurtherChecks,
    reader: &mut Reader,
) {
    check_segment(scenario, reader);
    check_stations(scenario, reader);
    check_mac(scenario, reader);
    check_queues(scenario, reader);
    check_traffic(scenario, origin, reader);
    check_programs(scenario, reader);
    check_experiment(scenario, origin, further, reader);
    check_limits(scenario, reader);
}

fn check_stations(scenario: &Scenario, reader: &mut Reader) {
    let stations = &scenario.stations;
    let addresses = stations.iter().map(|station| station.address().address());
    repeated(addresses, |i, first, address| {
        let message = format!("{address} is the address of `{}` already", stations[first].name);
        reader.fail_at(&format!("stations[{i}].address"), message, "give it another address");
    });
    let Some(first) = stations.first() else {
        return;
    };
    let (network, bits) = (first.address().network(), first.address().prefix_bits());
    for (i, station) in stations.iter().enumerate() {
        let address = station.address();
        if (address.network(), address.prefix_bits()) != (network, bits) {
            let name = &first.name;
            let message = format!("{address} is not in the subnet {network}/{bits} of `{name}`");
            let hint = "all stations share one subnet, with a prefix of one length";
            reader.fail_at(&format!("stations[{i}].address"), message, hint);
        }
    }
}

fn check_segment(scenario: &Scenario, reader: &mut Reader) {
    let delay = scenario.segment().delay;
    if delay > Segment::MAX_DELAY {
        let message = format!("{delay} is no delay of a link");
        let hint = format!("write at most {}: 100m of cable take 0.5us", Segment::MAX_DELAY);
        reader.fail_at("segments[0].delay", message, &hint);
    }
}

fn check_mac(scenario: &Scenario, reader: &mut Reader) {
    let mac = &scenario.mac;
    let slots = scenario.schedule.slots();
    let transmit = slots.iter().map(|slot| slot.transmit).min().unwrap_or(Span::MAX);
    let guard = slots.iter().map(|slot| slot.guard).min().unwrap_or(Span::MAX);
    for (key, value) in [("best_effort_share", mac.best_effort_share), ("margin", mac.margin)] {
        if value >= transmit {
            let message = format!("{value} leaves nothing of the shortest slot, {transmit}");
            reader.fail_at(&format!("mac.{key}"), message, "make it shorter than that slot");
        }
    }
    if mac.ahead > guard {
        let message = format!("{} is longer than the shortest guard, {guard}", mac.ahead);
        let hint = "a frame handed over that early could meet the slot before";
        reader.fail_at("mac.ahead", message, hint);
    }
    if mac.launch_delta >= scenario.schedule.cycle() {
        let message = format!("{} is a whole cycle or more", mac.launch_delta);
        let hint = "it is the time by which a timer may be late: 100us is usual";
        reader.fail_at("mac.launch_delta", message, hint);
    }
    if mac.spin > scenario.schedule.cycle() {
        let message = format!("{} is longer than the cycle", mac.spin);
        reader.fail_at("mac.spin", message, "the thread would never sleep: 60us is usual");
    }
    if mac.mode == MacMode::Hybrid && mac.hybrid_idle_after == Span::ZERO {
        let message = "after no time at all the schedule would never be in force".into();
        reader.fail_at("mac.hybrid_idle_after", message, "write a few cycles at least");
    }
}

fn check_queues(scenario: &Scenario, reader: &mut Reader) {
    let queues = &scenario.queues;
    for (list, entries) in [("send", &queues.send), ("recv", &queues.recv)] {
        repeated(entries.iter().map(|entry| entry.port), |i, first, port| {
            let number = port.get();
            let earlier = entries[first].priority.get();
            let message = format!("the port {number} has the priority {earlier} already");
            let hint = format!("it is first listed in queues.{list}[{first}]: remove one of them");
            reader.fail_at(&format!("queues.{list}[{i}].port"), message, &hint);
        });
    }
    let (count, different) = (queues.transmit_queues(), queues.different_priorities());
    if count < different {
        let message = format!("a count of {count} is too few for {different} different priorities");
        let hint = "write at least as many, or leave `count` out";
        reader.fail_at("queues.count", message, hint);
    }
}

fn check_traffic(scenario: &Scenario, origin: &Origin, reader: &mut Reader) {
    let streams = &scenario.streams;
    let ports = streams.iter().enumerate();
    let ports: Vec<_> =
        ports.flat_map(|(i, s)| s.ports().into_iter().map(move |p| (i, p))).collect();
    repeated(ports.iter().map(|(_, port)| *port), |n, first, port| {
        let (i, other) = (ports[n].0, streams[ports[first].0].name());
        let message = format!("the stream `{other}` has the port {} already", port.get());
        let hint = match &streams[i] {
            Stream::Pipeline(_) => "a pipeline has as many ports, from `port` on, as connections",
            _ => "give each stream its own port",
        };
        reader.fail_at(&format!("streams[{i}].port"), message, hint);
    });
    for (i, stream) in streams.iter().enumerate() {
        let at = format!("streams[{i}]");
        check_stream(scenario, reader, &at, stream);
        check_message(scenario, origin, reader, (&at, stream));
    }
}

fn check_stream(scenario: &Scenario, reader: &mut Reader, at: &str, stream: &Stream) {
    match stream {
        Stream::RequestResponse(s) => {
            if s.deadline == Span::ZERO {
                let message = "a deadline of 0ns is missed by every message".into();
                reader.fail_at(&format!("{at}.deadline"), message, "one cycle is usual");
            } else if s.timeout < s.deadline {
                let message =
                    format!("the timeout {} is before the deadline {}", s.timeout, s.deadline);
                let hint = "a message is lost only when it is long overdue";
                reader.fail_at(&format!("{at}.timeout"), message, hint);
            }
        }
        Stream::Cyclic(s) => check_cyclic(reader, at, s),
        Stream::Sporadic(s) => check_sporadic(reader, at, s),
        Stream::Pipeline(s) => {
            check_pipeline(scenario, reader, at, s);
        }
        Stream::Flood(s) => {
            if s.rate > scenario.segment().rate {
                let message = format!(
                    "{} is more than the link carries, {}",
                    s.rate,
                    scenario.segment().rate
                );
                let hint = "a little more than one slot carries is enough to fill the queue";
                reader.fail_at(&format!("{at}.rate"), message, hint);
            }
        }
    }
}

/// A message must fit one frame, and that frame a slot of each station that sends it.
fn check_message(
    scenario: &Scenario,
    origin: &Origin,
    reader: &mut Reader,
    (at, stream): (&str, &Stream),
) {
    let message = stream.size();
    if message.get() > LARGEST_MESSAGE {
        let text = format!("a message of {message} does not fit one frame");
        let hint = format!(
            "write at most {LARGEST_MESSAGE}B: a frame carries 1500B, of which 28B are the headers \
             of IP and UDP"
        );
        reader.fail_at(&format!("{at}.size"), text, &hint);
        return;
    }
    let is_numbered = match stream {
        Stream::Flood(_) => false,
        Stream::Cyclic(stream) => !scenario.is_of_program(stream),
        Stream::RequestResponse(_) | Stream::Sporadic(_) | Stream::Pipeline(_) => true,
    };
    if is_numbered && message.get() < Stream::SMALLEST_MEASURED {
        let text = format!("a message of {message} has no room for its number");
        let hint = format!("write at least {}B", Stream::SMALLEST_MEASURED);
        reader.fail_at(&format!("{at}.size"), text, &hint);
        return;
    }
    if scenario.experiment.cases.iter().all(|case| case.backend == CaseBackend::None) {
        return;
    }
    let frame = frame_of(message.get());
    let busy = scenario.segment().rate.duration_of(frame.wire_len());
    let needed = busy + scenario.mac.margin;
    for (key, station) in stream.senders() {
        if scenario.station(station).is_none() {
            continue;
        }
        let slots = scenario.schedule.slots().iter();
        let longest = slots.filter(|slot| slot.station == *station).map(|slot| slot.transmit).max();
        match longest {
            None => {
                let text = format!("`{station}` sends, but has no slot in the schedule");
                let hint = match origin.wanted {
                    Some(_) => format!("add `{station}` to `from_streams.stations`"),
                    None => format!("add `- {{ station: {station}, transmit: ... }}` to the slots"),
                };
                reader.fail_at(&format!("{at}.{key}"), text, &hint);
            }
            // A margin that leaves nothing of the slot is an error of its own.
            Some(longest) if longest < needed && scenario.mac.margin < longest => {
                let text = format!(
                    "a message of {message} needs {} at {}, but the longest slot of `{station}` \
                     transmits for {longest}",
                    in_us(needed),
                    scenario.segment().rate
                );
                let hint = format!(
                    "make the slot longer or the message shorter: {} on the link (frame of \
                     {frame}, preamble, check sequence, gap) and the margin of {}",
                    in_us(busy),
                    scenario.mac.margin
                );
                reader.fail_at(&format!("{at}.size"), text, &hint);
            }
            Some(_) => {}
        }
    }
}

/// `122.28us`: odd nanoseconds are hard to read.
fn in_us(span: Span) -> String {
    let (us, ns) = (span.as_ns() / 1_000, span.as_ns() % 1_000);
    let digits = format!("{us}.{ns:03}");
    format!("{}us", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The frame that carries a message over IPv4 and UDP.
pub(super) fn frame_of(message: u32) -> FrameLen {
    let packet = SduLen::new(message + IP_UDP_HEADERS);
    packet.expect("invariant: a message that fits one frame was checked before").frame_len()
}

/// Headers of IPv4 without options and of UDP, bytes.
const IP_UDP_HEADERS: u32 = 20 + 8;
/// Longest message in one frame of 1500 bytes of payload.
pub(super) const LARGEST_MESSAGE: u32 = 1_500 - IP_UDP_HEADERS;

fn check_experiment(
    scenario: &Scenario,
    origin: &Origin,
    further: &dyn FurtherChecks,
    reader: &mut Reader,
) {
    let experiment = &scenario.experiment;
    let cycle = scenario.schedule.cycle();
    let full = scenario.duration;
    let quick = experiment.quick_duration.unwrap_or(full);
    let has_slots = experiment.cases.iter().any(|case| case.backend != CaseBackend::None);
    for (key, value) in [("duration", full), ("experiment.quick_duration", quick)] {
        // The same as the full run it is told once.
        if has_slots && value < cycle && (key == "duration" || quick != full) {
            let message = format!("the {value} that count are shorter than one cycle, {cycle}");
            reader.fail_at(key, message, "a few seconds are usual");
        }
    }
    for (i, case) in experiment.cases.iter().enumerate() {
        check_case(case, cycle, reader, |key| origin.key_of_case(i, key));
        if let Some((message, hint)) = releases_nothing(scenario, case) {
            reader.fail_at(&origin.key_of_case(i, "release"), message.to_owned(), hint);
        }
        if let Some(why) = further.case(scenario, case) {
            let hint = match experiment.cases.len() {
                1 => "make the slots longer, or write another `by`",
                _ => "make the slots longer, or remove the case",
            };
            reader.fail_at(&origin.key_of_case(i, "by"), why, hint);
        }
    }
}

/// Why no program waits for a slot, where one is to.
fn releases_nothing(scenario: &Scenario, case: &Case) -> Option<(&'static str, &'static str)> {
    let mut streams = scenario.streams.iter();
    let is_urgent = streams.clone().any(|stream| stream.priority().is_some());
    let is_pipeline = streams.any(|stream| matches!(stream, Stream::Pipeline(_)));
    match case.release {
        Release::Aligned | Release::Planned if !is_urgent => Some((
            "no stream has a class above 0, so no program waits for its slot",
            "give one a class",
        )),
        Release::Planned if !is_pipeline => {
            Some(("no pipeline begins for the slot of its source", "write `release: aligned`"))
        }
        Release::Aligned | Release::Planned | Release::Free => None,
    }
}

fn check_case(case: &Case, cycle: Span, reader: &mut Reader, at: impl Fn(&str) -> String) {
    match (case.release, case.lead) {
        (Release::Aligned | Release::Planned, None) => {
            let message = "a release just before the slot needs a `lead`".into();
            let hint = "add `lead: 40us`: how long before its slot the client wakes up";
            reader.fail_at(&at("release"), message, hint);
        }
        (Release::Aligned | Release::Planned, Some(lead)) if lead >= cycle => {
            let message = format!("a lead of {lead} is a whole cycle or more");
            let hint = "it is the time the program needs before its slot: 40us is usual";
            reader.fail_at(&at("lead"), message, hint);
        }
        (Release::Free, Some(lead)) => {
            let message =
                format!("a lead of {lead} means nothing where programs send when they can");
            let hint = "remove `lead`, or add `release: aligned`";
            reader.fail_at(&at("lead"), message, hint);
        }
        (Release::Aligned | Release::Planned, Some(_)) | (Release::Free, None) => {}
    }
}

/// Calls `found(index, index of the first, item)` for each item that was there before.
fn repeated<T: Eq + Hash + Copy>(
    items: impl Iterator<Item = T>,
    mut found: impl FnMut(usize, usize, T),
) {
    let mut seen = HashMap::new();
    for (i, item) in items.enumerate() {
        match seen.get(&item) {
            Some(&first) => found(i, first, item),
            None => {
                seen.insert(item, i);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file need not write, since it follows from the rest: addresses of stations, ports of
//! streams, queues of streams with a priority.

use std::collections::BTreeSet;

use timewire_base::Port;

use super::item::Reader;
use super::model::{PortPriority, Scenario, Stream};
use super::value::Ipv4Prefix;

/// Derives what is not written; whether the rest of the file can be looked at.
pub(super) fn derive(scenario: &mut Scenario, reader: &mut Reader) -> bool {
    let before = reader.problems.len();
    addresses(scenario, reader);
    ports(scenario, reader);
    if reader.problems.len() > before {
        return false;
    }
    queues(scenario, reader);
    true
}

fn addresses(scenario: &mut Scenario, reader: &mut Reader) {
    let stations = &mut scenario.stations;
    let without = stations.iter().position(|station| station.address.is_none());
    let Some(without) = without else { return };
    if let Some(other) = stations.iter().find(|station| station.address.is_some()) {
        let (name, other) = (&stations[without].name, &other.name);
        let message = format!("`{name}` has no address, but `{other}` has one");
        let hint = "write an address for each station, or for none";
        reader.fail_at(&format!("stations[{without}]"), message, hint);
        return;
    }
    for (number, station) in (1_u32..).zip(stations) {
        station.address = Ipv4Prefix::parse(&format!("10.77.0.{number}/24")).ok();
        if station.address.is_none() {
            let message = format!("there is no address 10.77.0.{number}");
            let hint = "write the addresses, in a larger subnet";
            return reader.fail_at(&format!("stations[{}]", number - 1), message, hint);
        }
    }
}

/// The first port that is given to a stream that writes none.
const FIRST_PORT: u16 = 15_001;

fn ports(scenario: &mut Scenario, reader: &mut Reader) {
    let written = scenario.streams.iter().flat_map(Stream::ports);
    let mut taken: BTreeSet<u16> = written.map(Port::get).collect();
    for (i, stream) in scenario.streams.iter_mut().enumerate() {
        let (port, count) = match stream {
            Stream::RequestResponse(stream) => (&mut stream.port, 1),
            Stream::Cyclic(stream) => (&mut stream.port, 1),
            Stream::Sporadic(stream) => (&mut stream.port, 1),
            Stream::Flood(stream) => (&mut stream.port, 1),
            Stream::Pipeline(stream) => {
                (&mut stream.port, stream.stations.len().saturating_sub(1).max(1))
            }
        };
        if port.is_some() {
            continue;
        }
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let is_free = |first: &u16| {
            let last = first.checked_add(count - 1);
            last.is_some_and(|last| (*first..=last).all(|port| !taken.contains(&port)))
        };
        let first = (FIRST_PORT..=u16::MAX).find(is_free);
        let Some(first) = first else {
            let message = format!("no {count} ports from {FIRST_PORT} on are free");
            return reader.fail_at(&format!("streams[{i}]"), message, "write its `port`");
        };
        taken.extend(first..=first + (count - 1));
        *port = Port::new(first.into()).ok();
    }
}

fn queues(scenario: &mut Scenario, reader: &mut Reader) {
    let written = scenario.queues.clone();
    for (i, stream) in scenario.streams.iter().enumerate() {
        let Some(priority) = stream.priority() else { continue };
        let queues = &mut scenario.queues;
        let lists =
            [("send", &mut queues.send, &written.send), ("recv", &mut queues.recv, &written.recv)];
        for (list, entries, written) in lists {
            for port in stream.ports() {
                // A port of two streams is told elsewhere.
                let is_derived = !written.iter().any(|entry| entry.port == port);
                let found = entries.iter().find(|entry| entry.port == port);
                match found.map(|entry| entry.priority) {
                    None => entries.push(PortPriority { port, priority }),
                    Some(other) if other == priority || is_derived => {}
                    Some(other) => {
                        let (port, other) = (port.get(), other.get());
                        let message =
                            format!("its port {port} has the priority {other} in queues.{list}");
                        let hint = "write the priority of a stream here alone";
                        return reader.fail_at(&format!("streams[{i}].class"), message, hint);
                    }
                }
            }
        }
    }
}

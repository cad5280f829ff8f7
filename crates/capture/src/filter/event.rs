// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a filter says of an event in a capture, where there are no frames any more.
//!
//! Addresses, protocol and ports are those of the event's flow, by its name ([`FlowFacts`]): where
//! a flow has none, or an event no flow, the filter may not know. `interface`, `station`, `hook`,
//! `cpu`, `tag` and `flow` are of the event itself; `process` is the thread that ran.

use std::collections::BTreeMap;
use std::net::IpAddr;

use timewire_base::wire::MacAddress;

use super::compiled::kind;
use super::expr::{Expr, OfEvent, Primitive};
use super::frame::Facts;
use super::{Filter, value};
use crate::capture::{CaptureHeader, Names};
use crate::event::Event;

/// A filter over the events of one capture.
#[derive(Clone, Debug)]
pub struct EventFilter<'a> {
    expr: &'a Expr,
    header: &'a CaptureHeader,
    names: &'a Names,
    flows: BTreeMap<u32, FlowFacts>,
}

/// What the name of a flow says of its frames.
///
/// Names are `UDP 10.0.0.1:7000 > 10.0.0.2:7001`, with `TCP`, `SCTP` or `IP 50` for other protocols
/// and `[fd00::1]` for addresses of IPv6; and for frames without IP their EtherType and MAC
/// addresses, `0x88f7 02:00:00:00:00:01 > 01:1b:19:00:00:00`. Before it may stand `stream 3, `, or
/// anything else that ends in a comma and a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFacts {
    facts: Facts,
    /// The MAC addresses are known, and the IP addresses are not.
    ethernet: bool,
}

impl FlowFacts {
    /// What is known. The MAC addresses of a flow of IP are not: they are zero.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Reads the name of a flow; `None` for one that says nothing of frames.
    pub fn of_name(name: &str) -> Option<FlowFacts> {
        let name = name.rsplit(", ").next().unwrap_or(name);
        let mut words = name.split(' ');
        let mut facts = Facts {
            ether_destination: MacAddress([0; 6]),
            ether_source: MacAddress([0; 6]),
            ether_type: 0,
            vlan: None,
            kind: kind::OTHER,
            addresses: None,
            protocol: None,
            ports: None,
            owner: None,
            interface: String::new(),
        };
        let first = words.next()?;
        facts.protocol = match first {
            "TCP" => Some(6),
            "UDP" => Some(17),
            "SCTP" => Some(132),
            "IP" => Some(value::protocol(words.next()?)?),
            _ => None,
        };
        let (from, arrow, to) = (words.next()?, words.next()?, words.next()?);
        if arrow != ">" || words.next().is_some() {
            return None;
        }
        if facts.protocol.is_none() {
            let ether_type = value::number(first.strip_prefix("0x").map(|_| first)?, 0xffff)?;
            facts.ether_type = u16::try_from(ether_type).ok()?;
            facts.ether_source = value::mac(from)?;
            facts.ether_destination = value::mac(to)?;
            facts.kind = match facts.ether_type {
                0x0806 => kind::ARP,
                0x8035 => kind::RARP,
                _ => kind::OTHER,
            };
            return Some(FlowFacts { facts, ethernet: true });
        }
        let (source, source_port) = endpoint(from)?;
        let (destination, destination_port) = endpoint(to)?;
        facts.addresses = Some((source, destination));
        facts.ports = source_port.zip(destination_port);
        (facts.kind, facts.ether_type) =
            if source.is_ipv4() { (kind::IPV4, 0x0800) } else { (kind::IPV6, 0x86dd) };
        Some(FlowFacts { facts, ethernet: false })
    }

    fn holds(&self, primitive: &Primitive) -> Option<bool> {
        let known = match primitive {
            Primitive::Kinds(_) | Primitive::EtherType(_) => true,
            Primitive::Protocol { .. } => true,
            Primitive::Ports { .. } => self.ethernet || self.facts.ports.is_some(),
            // ARP has addresses that its flow does not have.
            Primitive::Net { .. } => !self.ethernet || self.facts.kind == kind::OTHER,
            Primitive::Mac { .. } | Primitive::Multicast => self.ethernet,
            _ => false,
        };
        known.then(|| primitive.holds(&self.facts))
    }
}

/// An address, and its port when it has one.
fn endpoint(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let port = |text: &str| value::ports(text, false).map(|(port, _)| port);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let address = IpAddr::V6(address.parse().ok()?);
        return match rest.strip_prefix(':') {
            Some(rest) => Some((address, Some(port(rest)?))),
            None => rest.is_empty().then_some((address, None)),
        };
    }
    match text.split_once(':') {
        Some((address, rest)) => Some((IpAddr::V4(address.parse().ok()?), Some(port(rest)?))),
        None => Some((IpAddr::V4(text.parse().ok()?), None)),
    }
}

impl Filter {
    /// The filter over the events of a capture, whose notes are known.
    pub fn of_events<'a>(&'a self, header: &'a CaptureHeader, names: &'a Names) -> EventFilter<'a> {
        let named = names.flows.iter();
        let flows = named.filter_map(|(flow, name)| Some((*flow, FlowFacts::of_name(name)?)));
        EventFilter { expr: &self.expr, header, names, flows: flows.collect() }
    }
}

impl EventFilter<'_> {
    /// Whether the filter holds for an event; `None` when that is not known.
    pub fn holds(&self, event: &Event) -> Option<bool> {
        self.expr(self.expr, event)
    }

    fn expr(&self, expr: &Expr, event: &Event) -> Option<bool> {
        match expr {
            Expr::All => Some(true),
            Expr::Is(_, primitive) => self.primitive(primitive, event),
            Expr::Not(inner) => self.expr(inner, event).map(|holds| !holds),
            Expr::And(_, left, right) => {
                joined(false, self.expr(left, event), || self.expr(right, event))
            }
            Expr::Or(_, left, right) => {
                joined(true, self.expr(left, event), || self.expr(right, event))
            }
        }
    }

    fn primitive(&self, primitive: &Primitive, event: &Event) -> Option<bool> {
        match primitive {
            Primitive::Process(number) => Some(event.thread == *number),
            Primitive::ProcessName(name) => {
                self.names.threads.get(&event.thread).map(|known| known == name)
            }
            Primitive::Interface(name) => {
                let station = self.header.stations.get(usize::from(event.station));
                let known = station.and_then(|station| station.interfaces.get(&event.interface));
                if event.interface == 0 { Some(false) } else { known.map(|known| known == name) }
            }
            Primitive::OfEvent(of_event) => Some(self.of_event(of_event, event)),
            _ => self.flow(event).and_then(|flow| flow.holds(primitive)),
        }
    }

    fn flow(&self, event: &Event) -> Option<&FlowFacts> {
        if event.tag == 0 { None } else { self.flows.get(&event.flow()) }
    }

    fn of_event(&self, of_event: &OfEvent, event: &Event) -> bool {
        match of_event {
            OfEvent::Tag(tag) => event.tag == *tag,
            OfEvent::Flow(flow) => event.tag != 0 && event.flow() == *flow,
            OfEvent::FlowName(part) => {
                let name = self.names.flows.get(&event.flow()).filter(|_| event.tag != 0);
                name.is_some_and(|name| name.contains(part))
            }
            OfEvent::Hook(hook) => event.hook == *hook,
            OfEvent::Station(name) => self
                .header
                .stations
                .get(usize::from(event.station))
                .is_some_and(|station| station.name == *name),
            OfEvent::Cpu(cpu) => event.cpu == *cpu,
        }
    }
}

/// Two outcomes, one of which may decide alone.
fn joined(decides: bool, left: Option<bool>, right: impl FnOnce() -> Option<bool>) -> Option<bool> {
    if left == Some(decides) {
        return left;
    }
    match (left, right()) {
        (_, Some(right)) if right == decides => Some(decides),
        (Some(_), Some(_)) => Some(!decides),
        _ => None,
    }
}

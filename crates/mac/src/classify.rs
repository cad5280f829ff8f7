// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which priority a frame has, by the UDP or TCP port it goes to or comes from.
//!
//! The parser takes Ethernet with up to two VLAN tags, IPv4 with options, and IPv6 with hop-by-hop,
//! routing and destination options. It allocates nothing and fails open: a frame that is a
//! fragment, cut short, deeper nested or in any way doubtful has no priority and goes to the
//! default queue.
//!
//! Not here: the queues (`queue`), classification before the kernel's stack (`timewire-bpf`).

use std::ops::Range;

use timewire_base::{Port, Priority};

use crate::{MacError, QueueSet};

/// A list of ports and their priorities: that of transmission (`send`) or of reception (`recv`).
///
/// Several ports may share a priority, and with it a queue.
///
/// **Shape**: sorted by port, each port once, at most [`PortRules::MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRules {
    /// Apart from the priorities, so that a look-up stays within two cache lines.
    ports: Vec<u16>,
    priorities: Vec<Priority>,
}

impl PortRules {
    /// Most rules in a list.
    pub const MAX: usize = 64;

    /// Checks a list in any order. `queues` is how many prioritised queues the caller asks for, the
    /// default queue not counted; there must be one for each priority that the rules name. More are
    /// accepted, and not made, since no frame could ever come to them. No queues and no rules put
    /// everything into the default queue.
    ///
    /// **Errors**: a port listed twice, even with the same priority; too many rules; more than 32
    /// queues; fewer queues than priorities named.
    pub fn new(queues: usize, rules: &[(Port, Priority)]) -> Result<PortRules, MacError> {
        if rules.len() > Self::MAX {
            return Err(MacError::TooManyRules { count: rules.len(), max: Self::MAX });
        }
        let max = usize::from(Priority::MAX);
        if queues > max {
            return Err(MacError::TooManyQueues { queues, max });
        }
        let mut sorted = rules.to_vec();
        sorted.sort_by_key(|&(port, _)| port); // stable: of two rules the earlier stays first
        for pair in sorted.windows(2) {
            let ((port, first), (other, second)) = (pair[0], pair[1]);
            if port == other {
                return Err(MacError::DuplicatePort { port: port.get(), first, second });
            }
        }
        let rules = PortRules {
            ports: sorted.iter().map(|&(port, _)| port.get()).collect(),
            priorities: sorted.iter().map(|&(_, priority)| priority).collect(),
        };
        let priorities = rules.queue_set().len();
        if queues < priorities {
            return Err(MacError::TooFewQueues { queues, priorities });
        }
        Ok(rules)
    }

    /// One queue for each priority that the rules name.
    pub fn queue_set(&self) -> QueueSet {
        let mut set = QueueSet::default();
        for &priority in &self.priorities {
            set.insert(priority);
        }
        set
    }

    /// The rules, sorted by port.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (u16, Priority)> {
        self.ports.iter().copied().zip(self.priorities.iter().copied())
    }

    /// The priority of a frame as Linux sees it (from the destination address, without the check
    /// sequence): that of the port it goes to, else that of the port it comes from, so that the
    /// answers of a server count as well. `None` for everything else: the default queue.
    pub fn classify(&self, frame: &[u8]) -> Option<Priority> {
        self.classify_captured(frame, frame.len())
    }

    /// As [`PortRules::classify`], of a frame of `length` bytes of which only the first are at
    /// hand.
    pub fn classify_captured(&self, captured: &[u8], length: usize) -> Option<Priority> {
        if self.ports.is_empty() {
            return None;
        }
        let Ports { source, destination, .. } = ports_of(captured, length)?;
        self.priority_of(destination).or_else(|| self.priority_of(source))
    }

    fn priority_of(&self, port: u16) -> Option<Priority> {
        let index = self.ports.binary_search(&port).ok()?;
        self.priorities.get(index).copied()
    }
}

const ETHERTYPE_AT: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
const VLAN_TAG: usize = 4;
const MAX_VLAN_TAGS: usize = 2;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

const IPV4_HEADER: usize = 20;
/// More fragments, and the offset: zero both in a packet that is whole.
const IPV4_FRAGMENT: u16 = 0x3fff;

const IPV6_HEADER: usize = 40;
const IPV6_HOP_BY_HOP: u8 = 0;
const IPV6_ROUTING: u8 = 43;
const IPV6_DESTINATION_OPTIONS: u8 = 60;
const MAX_IPV6_EXTENSIONS: usize = 4;

/// The ports of a UDP or TCP packet that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Where in the frame the content starts: behind the UDP header, or behind a TCP header without
    /// options. It may lie beyond what was captured.
    pub content_at: usize,
}

/// Finds the ports of a frame of `length` bytes (without the check sequence), of which only the
/// first are at hand. `None` for every frame that has none, is a fragment or is in doubt.
pub fn ports_of(captured: &[u8], length: usize) -> Option<Ports> {
    let mut at = ETHERTYPE_AT;
    let mut ethertype = be16(captured, at)?;
    for _ in 0..MAX_VLAN_TAGS {
        if ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_SERVICE_VLAN {
            at += VLAN_TAG;
            ethertype = be16(captured, at)?;
        }
    }
    let packet = captured.get(at + 2..)?;
    let (protocol, segment) = match ethertype {
        ETHERTYPE_IPV4 => ipv4(packet)?,
        ETHERTYPE_IPV6 => ipv6(packet)?,
        _ => return None,
    };
    let header = match protocol {
        PROTOCOL_TCP => TCP_HEADER,
        PROTOCOL_UDP => UDP_HEADER,
        _ => return None,
    };
    if at + 2 + segment.end > length || segment.start + header > segment.end {
        return None;
    }
    Some(Ports {
        source: be16(packet, segment.start)?,
        destination: be16(packet, segment.start + 2)?,
        content_at: at + 2 + segment.start + header,
    })
}

/// Protocol of an IPv4 packet that is no fragment, and where its content lies.
fn ipv4(packet: &[u8]) -> Option<(u8, Range<usize>)> {
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header < IPV4_HEADER || be16(packet, 6)? & IPV4_FRAGMENT != 0 {
        return None;
    }
    let total = usize::from(be16(packet, 2)?);
    Some((*packet.get(9)?, header..total))
}

/// Protocol of an IPv6 packet behind its extension headers, and where its content lies.
fn ipv6(packet: &[u8]) -> Option<(u8, Range<usize>)> {
    if *packet.first()? >> 4 != 6 {
        return None;
    }
    let end = IPV6_HEADER + usize::from(be16(packet, 4)?);
    let mut protocol = *packet.get(6)?;
    let mut start = IPV6_HEADER;
    for _ in 0..MAX_IPV6_EXTENSIONS {
        if !matches!(protocol, IPV6_HOP_BY_HOP | IPV6_ROUTING | IPV6_DESTINATION_OPTIONS) {
            break;
        }
        protocol = *packet.get(start)?;
        start += (usize::from(*packet.get(start + 1)?) + 1) * 8;
    }
    Some((protocol, start..end))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A filter as it is meant: primitives, and how they are joined; what it says of a frame.

use std::fmt;
use std::net::IpAddr;

use timewire_base::wire::MacAddress;

use super::compiled::kind;
use super::frame::Facts;
use crate::event::Hook;

/// A filter, with the places of its parts in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Everything.
    All,
    /// A condition, and where its text starts.
    Is(usize, Primitive),
    /// The opposite.
    Not(Box<Expr>),
    /// Both; and where the word that joins them stands.
    And(usize, Box<Expr>, Box<Expr>),
    /// One at least.
    Or(usize, Box<Expr>, Box<Expr>),
}

/// Which of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// One of them at least.
    Either,
    /// Both of them.
    Both,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// The frame is of one of the kinds: bits of [`kind`].
    Kinds(u16),
    /// The protocol of IP.
    Protocol {
        /// Bits of [`kind`].
        kinds: u16,
        /// Its number.
        protocol: u8,
    },
    /// Addresses within a network; of a host, within that of one address.
    Net {
        /// Bits of [`kind`].
        kinds: u16,
        /// Which address.
        side: Side,
        /// The network; zero behind its prefix.
        address: IpAddr,
        /// **Units**: bits.
        prefix: u8,
    },
    /// Ports within a range.
    Ports {
        /// Bits of [`kind`].
        kinds: u16,
        /// Of this protocol only.
        protocol: Option<u8>,
        /// Which port.
        side: Side,
        /// The first.
        least: u16,
        /// The last.
        most: u16,
    },
    /// The EtherType behind VLAN tags.
    EtherType(u16),
    /// A MAC address.
    Mac {
        /// Which.
        side: Side,
        /// The address.
        address: MacAddress,
    },
    /// The destination MAC address is that of a group.
    Multicast,
    /// The outermost VLAN tag, or any tag.
    Vlan(Option<u16>),
    /// The priority code point of the outermost tag.
    Pcp(u8),
    /// Number of the thread or of its process.
    Process(u32),
    /// Name of the thread.
    ProcessName(String),
    /// Name of the interface.
    Interface(String),
    /// Of events only.
    OfEvent(OfEvent),
}

/// A condition that a frame does not show and an event does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfEvent {
    /// Its tag.
    Tag(u64),
    /// The upper half of its tag.
    Flow(u32),
    /// The name of its flow has this in it.
    FlowName(String),
    /// Where it was seen.
    Hook(Hook),
    /// The name of its station.
    Station(String),
    /// On which CPU.
    Cpu(u16),
}

impl Expr {
    /// Whether it holds for a frame; what only events have holds for none.
    pub fn holds(&self, frame: &Facts) -> bool {
        match self {
            Expr::All => true,
            Expr::Is(_, primitive) => primitive.holds(frame),
            Expr::Not(inner) => !inner.holds(frame),
            Expr::And(_, left, right) => left.holds(frame) && right.holds(frame),
            Expr::Or(_, left, right) => left.holds(frame) || right.holds(frame),
        }
    }
}

impl Side {
    fn holds<T: Copy>(self, pair: (T, T), is: impl Fn(T) -> bool) -> bool {
        match self {
            Side::Source => is(pair.0),
            Side::Destination => is(pair.1),
            Side::Either => is(pair.0) || is(pair.1),
            Side::Both => is(pair.0) && is(pair.1),
        }
    }
}

impl Primitive {
    /// Whether it holds for a frame.
    pub fn holds(&self, frame: &Facts) -> bool {
        match self {
            Primitive::Kinds(kinds) => kinds & frame.kind != 0,
            Primitive::Protocol { kinds, protocol } => {
                kinds & frame.kind != 0 && frame.protocol == Some(*protocol)
            }
            Primitive::Net { kinds, side, address, prefix } => {
                let within = |candidate| within(*address, *prefix, candidate);
                kinds & frame.kind != 0
                    && frame.addresses.is_some_and(|pair| side.holds(pair, within))
            }
            Primitive::Ports { kinds, protocol, side, least, most } => {
                let within = |port: u16| (*least..=*most).contains(&port);
                kinds & frame.kind != 0
                    && (protocol.is_none() || frame.protocol == *protocol)
                    && frame.ports.is_some_and(|pair| side.holds(pair, within))
            }
            Primitive::EtherType(ether_type) => frame.ether_type == *ether_type,
            Primitive::Mac { side, address } => {
                let pair = (frame.ether_source, frame.ether_destination);
                side.holds(pair, |candidate| candidate == *address)
            }
            Primitive::Multicast => frame.ether_destination.is_group(),
            Primitive::Vlan(None) => frame.vlan.is_some(),
            Primitive::Vlan(Some(id)) => frame.vlan.is_some_and(|tag| tag.id == *id),
            Primitive::Pcp(pcp) => frame.vlan.is_some_and(|tag| tag.pcp == *pcp),
            Primitive::Process(number) => frame
                .owner
                .as_ref()
                .is_some_and(|owner| owner.process == *number || owner.thread == *number),
            Primitive::ProcessName(name) => {
                frame.owner.as_ref().is_some_and(|owner| owner.name == *name)
            }
            Primitive::Interface(name) => frame.interface == *name,
            Primitive::OfEvent(_) => false,
        }
    }
}

fn within(net: IpAddr, prefix: u8, candidate: IpAddr) -> bool {
    let cut = |bits: u128, of: u8| {
        let free = u32::from(of.saturating_sub(prefix));
        bits.checked_shr(free).unwrap_or(0)
    };
    match (net, candidate) {
        (IpAddr::V4(net), IpAddr::V4(candidate)) => {
            let bits = |address| cut(u128::from(u32::from(address)), 32);
            bits(net) == bits(candidate)
        }
        (IpAddr::V6(net), IpAddr::V6(candidate)) => {
            let bits = |address| cut(u128::from(address), 128);
            bits(net) == bits(candidate)
        }
        _ => false,
    }
}

/// The filter, written in full: it reads back to the same.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::All => Ok(()),
            Expr::Is(_, primitive) => primitive.fmt(f),
            Expr::Not(inner) => write!(f, "not {}", Operand(inner)),
            Expr::And(_, left, right) => write!(f, "{left} and {}", Operand(right)),
            Expr::Or(_, left, right) => write!(f, "{left} or {}", Operand(right)),
        }
    }
}

/// In parentheses where they are needed: `and` and `or` bind equally and from the left. So no text
/// is nested deeper than the one that was read.
struct Operand<'a>(&'a Expr);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::And(..) | Expr::Or(..) => write!(f, "({})", self.0),
            _ => self.0.fmt(f),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Source => "src ",
            Side::Destination => "dst ",
            Side::Either => "",
            Side::Both => "src and dst ",
        })
    }
}

fn kinds_prefix(kinds: u16) -> &'static str {
    match kinds {
        kind::IPV4 => "ip ",
        kind::IPV6 => "ip6 ",
        kind::ARP => "arp ",
        kind::RARP => "rarp ",
        _ => "",
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Kinds(kinds) => f.write_str(kinds_prefix(*kinds).trim_end()),
            Primitive::Protocol { kinds, protocol } => {
                write!(f, "{}proto {protocol}", kinds_prefix(*kinds))
            }
            Primitive::Net { kinds, side, address, prefix } => {
                write!(f, "{}{side}net {address}/{prefix}", kinds_prefix(*kinds))
            }
            Primitive::Ports { kinds, protocol, side, least, most } => {
                let of = match protocol {
                    Some(6) => "tcp ",
                    Some(17) => "udp ",
                    Some(132) => "sctp ",
                    _ => kinds_prefix(*kinds),
                };
                write!(f, "{of}{side}portrange {least}-{most}")
            }
            Primitive::EtherType(ether_type) => write!(f, "ether proto {ether_type:#06x}"),
            Primitive::Mac { side, address } => write!(f, "ether {side}host {address}"),
            Primitive::Multicast => f.write_str("ether multicast"),
            Primitive::Vlan(None) => f.write_str("vlan"),
            Primitive::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Primitive::Pcp(pcp) => write!(f, "pcp {pcp}"),
            Primitive::Process(number) => write!(f, "process {number}"),
            Primitive::ProcessName(name) => write!(f, "process \"{name}\""),
            Primitive::Interface(name) => write!(f, "interface \"{name}\""),
            Primitive::OfEvent(of_event) => of_event.fmt(f),
        }
    }
}

impl fmt::Display for OfEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfEvent::Tag(tag) => write!(f, "tag {tag:#018x}"),
            OfEvent::Flow(flow) => write!(f, "flow {flow:#010x}"),
            OfEvent::FlowName(name) => write!(f, "flow \"{name}\""),
            OfEvent::Hook(hook) => write!(f, "hook {}", hook.name()),
            OfEvent::Station(name) => write!(f, "station \"{name}\""),
            OfEvent::Cpu(cpu) => write!(f, "cpu {cpu}"),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of a frame: Ethernet, VLAN tags, IPv4 and IPv6, and the ports of UDP and TCP. This
//! is the one place where frames are read; what looks at them in the kernel has the same rules in C
//! (`parse.bpf.h` of `timewire-bpf`).
//!
//! Rules:
//! - Tags are those of IEEE 802.1Q, 0x8100 and 0x88a8, and at most two are looked behind. VLAN and
//!   priority are those of the outer one. The EtherType of a third tag is one like any other.
//! - What a frame says of itself is believed only as far as it can be true. A fragment, a packet
//!   that says that it is longer than its frame or shorter than its headers, another version, or
//!   more than four extension headers: such a packet has addresses, and no ports.
//! - Padding behind a packet is no part of it, nor is what is behind the end of a UDP message.
//!
//! Nothing is allocated, and no bytes make it panic.
//!
//! **Source**: IEEE 802.3-2018, 3.2; IEEE 802.1Q-2018, 9.5 and 9.6; RFC 791, 3.1; RFC 8200, 3 and
//! 4; RFC 768; RFC 9293, 3.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::MacAddress;

/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// A customer VLAN tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// A service VLAN tag.
pub const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
/// Tags that are looked behind.
pub const MAX_VLAN_TAGS: usize = 2;

/// A frame from its destination address on, without the check sequence, behind its tags.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    tci: Option<u16>,
    ethertype: u16,
    at: usize,
    is_cut: bool,
}

/// The header of an IP packet, as it stands there: all its bytes are there, and nothing else is
/// checked.
#[derive(Clone, Copy, Debug)]
pub enum IpHeader<'a> {
    /// IPv4, without options.
    V4(&'a [u8; IPV4_HEADER]),
    /// IPv6, without extension headers.
    V6(&'a [u8; IPV6_HEADER]),
}

/// The ports of a UDP or TCP packet that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Whether it is UDP.
    pub is_udp: bool,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Where in the frame the header of UDP or TCP is.
    pub at: usize,
    /// Where in the frame the content starts: behind the UDP header, or behind a TCP header without
    /// options. It may lie beyond what was captured.
    pub content_at: usize,
    /// Where in the frame the packet ends; padding may follow.
    pub end: usize,
}

/// A UDP message that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    /// Who sends it.
    pub source: SocketAddr,
    /// Who is to get it.
    pub destination: SocketAddr,
    /// What it carries.
    pub content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// `None` for fewer than the 14 bytes of addresses and EtherType. Of a longer frame the first
    /// bytes will do.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let [.., high, low] = *bytes.first_chunk::<ETHERNET>()?;
        let ethertype = u16::from_be_bytes([high, low]);
        let frame = Frame { bytes, tci: None, ethertype, at: ETHERNET, is_cut: false };
        Some(if is_tag(ethertype) { frame.behind_tags() } else { frame })
    }

    fn behind_tags(mut self) -> Frame<'a> {
        for _ in 0..MAX_VLAN_TAGS {
            if !is_tag(self.ethertype) {
                break;
            }
            let Some(&[a, b, c, d]) = chunk(self.bytes, self.at) else {
                self.is_cut = true;
                break;
            };
            self.tci = self.tci.or(Some(u16::from_be_bytes([a, b])));
            self.ethertype = u16::from_be_bytes([c, d]);
            self.at += VLAN_TAG;
        }
        self
    }

    /// To whom.
    pub fn destination(&self) -> MacAddress {
        MacAddress(*chunk(self.bytes, 0).expect("invariant: a whole header"))
    }

    /// From whom.
    pub fn source(&self) -> MacAddress {
        MacAddress(*chunk(self.bytes, 6).expect("invariant: a whole header"))
    }

    /// The VLAN identifier of the outer tag; 0 for a tag that has a priority only.
    pub fn vid(&self) -> Option<u16> {
        self.tci.map(|tci| tci & 0x0fff)
    }

    /// The priority code point of the outer tag.
    pub fn pcp(&self) -> Option<u8> {
        let [high, _] = self.tci?.to_be_bytes();
        Some(high >> 5)
    }

    /// The EtherType, or the length in its place; `None` when the frame ends within a tag.
    #[inline]
    pub fn ethertype(&self) -> Option<u16> {
        (!self.is_cut).then_some(self.ethertype)
    }

    /// The same; of a frame that ends within a tag the type of that tag.
    pub fn last_type(&self) -> u16 {
        self.ethertype
    }

    /// Where in the frame is what is behind the EtherType.
    pub fn payload_at(&self) -> usize {
        self.at
    }

    /// What is behind the EtherType, with padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The header of IP, when it is all there.
    #[inline]
    pub fn ip(&self) -> Option<IpHeader<'a>> {
        let packet = self.payload();
        match self.ethertype {
            ETHERTYPE_IPV4 => packet.first_chunk().map(IpHeader::V4),
            ETHERTYPE_IPV6 => packet.first_chunk().map(IpHeader::V6),
            _ => None,
        }
    }

    /// The ports of a frame that is `length` bytes long, of which only the first may be at hand.
    /// `None` for every frame that has none, is a fragment or is in doubt.
    #[inline]
    pub fn ports(&self, length: usize) -> Option<Ports> {
        let packet = self.payload();
        let (protocol, start, end) = match self.ethertype {
            ETHERTYPE_IPV4 => IpHeader::V4(packet.first_chunk()?).content(packet)?,
            ETHERTYPE_IPV6 => IpHeader::V6(packet.first_chunk()?).content(packet)?,
            _ => return None,
        };
        let header = match protocol {
            PROTOCOL_TCP => TCP_HEADER,
            PROTOCOL_UDP => UDP_HEADER,
            _ => return None,
        };
        if self.at + end > length || start + header > end {
            return None;
        }
        let &[a, b, c, d] = chunk(packet, start)?;
        Some(Ports {
            is_udp: protocol == PROTOCOL_UDP,
            source: u16::from_be_bytes([a, b]),
            destination: u16::from_be_bytes([c, d]),
            at: self.at + start,
            content_at: self.at + start + header,
            end: self.at + end,
        })
    }

    /// Protocol and ports as `tcpdump` looks for them, which believes more and looks less far: the
    /// protocol that the header names (of an IPv6 fragment, what is fragmented), and of TCP, UDP
    /// and SCTP the ports right behind that header, also in the first of several fragments.
    pub fn named_ports(&self) -> Option<(u8, Option<(u16, u16)>)> {
        let (ip, packet) = (self.ip()?, self.payload());
        let mut protocol = ip.protocol();
        let fragmented = match ip {
            IpHeader::V4(_) => ip.fragment().1 & IPV4_OFFSET != 0,
            IpHeader::V6(_) if protocol == FRAGMENT => {
                let header: Option<&[u8; 8]> = chunk(packet, IPV6_HEADER);
                protocol = header.map_or(protocol, |header| header[0]);
                header.is_some()
            }
            IpHeader::V6(_) => false,
        };
        let has_ports = matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP | PROTOCOL_SCTP);
        let ports = chunk(packet, ip.header_length()).filter(|_| has_ports && !fragmented);
        let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
        Some((protocol, ports.map(|&[a, b, c, d]| (pair(a, b), pair(c, d)))))
    }

    /// The UDP message in a whole frame.
    #[inline]
    pub fn udp(&self) -> Option<Udp<'a>> {
        self.udp_of(self.bytes.len())
    }

    /// The same of a frame that is `length` bytes long, of which only the first may be at hand: so
    /// much of the message as is there.
    #[inline]
    pub fn udp_of(&self, length: usize) -> Option<Udp<'a>> {
        let ports = self.ports(length).filter(|ports| ports.is_udp)?;
        let (source, destination) = self.ip()?.addresses();
        Some(Udp {
            source: SocketAddr::new(source, ports.source),
            destination: SocketAddr::new(destination, ports.destination),
            content: self.udp_content(&ports)?,
        })
    }

    /// What a whole frame carries for a program: the content of UDP, else all that is behind the
    /// EtherType. `None` for IP without UDP, and where headers are in doubt.
    #[inline]
    pub fn content(&self) -> Option<&'a [u8]> {
        self.content_of(self.bytes.len())
    }

    /// The same of a frame that is `length` bytes long, of which only the first may be at hand: so
    /// much of the content as is there.
    #[inline]
    pub fn content_of(&self, length: usize) -> Option<&'a [u8]> {
        match self.ethertype {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => {
                let ports = self.ports(length).filter(|ports| ports.is_udp)?;
                self.udp_content(&ports)
            }
            _ if self.is_cut => None,
            _ => Some(self.payload()),
        }
    }

    /// As long as UDP says; `None` when that is less than its header or more than the packet.
    fn udp_content(&self, ports: &Ports) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_be_bytes(*chunk(self.bytes, ports.at + 4)?));
        let end = ports.at + length;
        let there = end.min(self.bytes.len());
        self.bytes.get(ports.content_at..there).filter(|_| end <= ports.end)
    }
}

impl IpHeader<'_> {
    /// Source and destination.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        match self {
            &IpHeader::V4(&[.., a, b, c, d, e, f, g, h]) => {
                (Ipv4Addr::new(a, b, c, d).into(), Ipv4Addr::new(e, f, g, h).into())
            }
            IpHeader::V6(header) => {
                let address = |at: usize| {
                    let octets: [u8; 16] =
                        *chunk(&header[..], at).expect("invariant: a whole header");
                    Ipv6Addr::from(octets).into()
                };
                (address(8), address(24))
            }
        }
    }

    /// Where in the header the source is, and how long an address: the destination follows.
    pub fn addresses_at(&self) -> (usize, usize) {
        match self {
            IpHeader::V4(_) => (12, 4),
            IpHeader::V6(_) => (8, 16),
        }
    }

    /// The protocol, or the first extension header.
    pub fn protocol(&self) -> u8 {
        match self {
            IpHeader::V4(header) => header[9],
            IpHeader::V6(header) => header[6],
        }
    }

    /// How long it says that it is, with options. **Units**: bytes.
    pub fn header_length(&self) -> usize {
        match self {
            IpHeader::V4(header) => usize::from(header[0] & 0x0f) * 4,
            IpHeader::V6(_) => IPV6_HEADER,
        }
    }

    /// The length of the packet in IPv4, of what is behind the header in IPv6. **Units**: bytes.
    pub fn length_field(&self) -> u16 {
        match self {
            IpHeader::V4(header) => u16::from_be_bytes([header[2], header[3]]),
            IpHeader::V6(header) => u16::from_be_bytes([header[4], header[5]]),
        }
    }

    /// Of IPv4: its number, and whether more fragments follow (0x2000) with the place of this one.
    /// All 0 in IPv6, where another header has them.
    pub fn fragment(&self) -> (u16, u16) {
        match self {
            IpHeader::V4(header) => (
                u16::from_be_bytes([header[4], header[5]]),
                u16::from_be_bytes([header[6], header[7]]) & IPV4_FRAGMENT,
            ),
            IpHeader::V6(_) => (0, 0),
        }
    }

    /// What protocol a packet has that is no fragment, and where what it carries starts and ends.
    #[inline]
    fn content(&self, packet: &[u8]) -> Option<(u8, usize, usize)> {
        match self {
            IpHeader::V4(header) => {
                let start = self.header_length();
                if header[0] >> 4 != 4 || start < IPV4_HEADER || self.fragment().1 != 0 {
                    return None;
                }
                Some((header[9], start, usize::from(self.length_field())))
            }
            IpHeader::V6(header) => {
                if header[0] >> 4 != 6 {
                    return None;
                }
                let (mut protocol, mut start) = (header[6], IPV6_HEADER);
                for _ in 0..MAX_IPV6_EXTENSIONS {
                    if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
                        break;
                    }
                    let &[next, length] = chunk(packet, start)?;
                    (protocol, start) = (next, start + (usize::from(length) + 1) * 8);
                }
                Some((protocol, start, IPV6_HEADER + usize::from(self.length_field())))
            }
        }
    }
}

/// Whether it is the type of a tag.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN)
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_SCTP: u8 = 132;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

const IPV4_HEADER: usize = 20;
/// More fragments, and the offset: zero both in a packet that is whole.
const IPV4_FRAGMENT: u16 = 0x3fff;
const IPV4_OFFSET: u16 = 0x1fff;

const IPV6_HEADER: usize = 40;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
const MAX_IPV6_EXTENSIONS: usize = 4;

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a filter looks at in a frame, as values with types, and as the numbers of [`Keys`].
//!
//! **Source**: IEEE 802.3 3.2 (frame), IEEE 802.1Q 9.5 and 9.6 (tags), RFC 791 3.1, RFC 8200 3 and
//! 4.5, RFC 826.

use std::net::{IpAddr, Ipv4Addr};

use timewire_base::wire::{Frame, IpHeader, MacAddress};

use super::compiled::{KEY_WORDS, Keys, kind, word};

/// What is known of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// To whom.
    pub ether_destination: MacAddress,
    /// From whom.
    pub ether_source: MacAddress,
    /// Behind two tags at most; of a frame that has none its length.
    pub ether_type: u16,
    /// Of the outermost tag.
    pub vlan: Option<VlanTag>,
    /// One bit of [`kind`].
    pub kind: u16,
    /// Source and destination, of IP, and of ARP for IPv4.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Of IP; of a fragment of IPv6 that of what is fragmented.
    pub protocol: Option<u8>,
    /// Source and destination, of TCP, UDP and SCTP that stand directly behind the IP header.
    pub ports: Option<(u16, u16)>,
    /// Whose it is, when that is known.
    pub owner: Option<Owner>,
    /// Name of the interface; empty when it is not known.
    pub interface: String,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The VLAN, 0 to 4095; 0 for none, with a priority only.
    pub id: u16,
    /// Priority code point, 0 to 7.
    pub pcp: u8,
}

/// The thread that sends or receives a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number of its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
}

impl Facts {
    /// Of a frame from its destination address on, without the check sequence. `None` for fewer
    /// than 14 bytes: no filter holds for them.
    pub fn of_frame(frame: &[u8]) -> Option<Facts> {
        let headers = Frame::parse(frame)?;
        let mut facts = Facts {
            ether_destination: headers.destination(),
            ether_source: headers.source(),
            ether_type: headers.last_type(),
            vlan: headers.vid().zip(headers.pcp()).map(|(id, pcp)| VlanTag { id, pcp }),
            kind: kind::OTHER,
            addresses: None,
            protocol: None,
            ports: None,
            owner: None,
            interface: String::new(),
        };
        if let Some(ip) = headers.ip() {
            facts.kind = if matches!(ip, IpHeader::V4(_)) { kind::IPV4 } else { kind::IPV6 };
            facts.addresses = Some(ip.addresses());
            let (protocol, ports) = headers.named_ports().unzip();
            (facts.protocol, facts.ports) = (protocol, ports.flatten());
        }
        match (headers.last_type(), headers.payload().first_chunk()) {
            (0x0806, Some(packet)) => facts.read_arp(kind::ARP, packet),
            (0x8035, Some(packet)) => facts.read_arp(kind::RARP, packet),
            _ => {}
        }
        Some(facts)
    }

    /// With whose it is, and of which interface.
    #[must_use]
    pub fn with(mut self, owner: Option<Owner>, interface: &str) -> Facts {
        self.owner = owner;
        self.interface = interface.to_owned();
        self
    }

    fn read_arp(&mut self, kind: u16, packet: &[u8; 28]) {
        let [.., a, b, c, d, _, _, _, _, _, _, e, f, g, h] = *packet;
        self.kind = kind;
        self.addresses = Some((Ipv4Addr::new(a, b, c, d).into(), Ipv4Addr::new(e, f, g, h).into()));
    }

    /// The same, as a program in the kernel has it.
    pub fn keys(&self) -> Keys {
        let mut words = [0; KEY_WORDS];
        let mut set = |at: u8, value: u64| words[usize::from(at)] = value;
        if let Some((source, destination)) = self.addresses {
            let (high, low) = halves(source);
            set(word::SOURCE, high);
            set(word::SOURCE_LOW, low);
            let (high, low) = halves(destination);
            set(word::DESTINATION, high);
            set(word::DESTINATION_LOW, low);
        }
        let protocol = u64::from(self.protocol.unwrap_or(0)) << 16;
        let port = |port: u16| word::HAS_PORTS | u64::from(port);
        set(word::SOURCE_PORT, protocol | self.ports.map_or(0, |ports| port(ports.0)));
        set(word::DESTINATION_PORT, protocol | self.ports.map_or(0, |ports| port(ports.1)));
        set(
            word::ETHER_DESTINATION,
            mac_bits(self.ether_destination) | u64::from(self.ether_type) << 48,
        );
        let tag = self
            .vlan
            .map_or(0, |tag| word::TAGGED | u64::from(tag.pcp) << 60 | u64::from(tag.id) << 48);
        set(word::ETHER_SOURCE, mac_bits(self.ether_source) | tag);
        if let Some(owner) = &self.owner {
            set(word::PROCESS, u64::from(owner.process) << 32 | u64::from(owner.thread));
            let [start, end] = name_words(&owner.name);
            set(word::PROCESS_NAME, start);
            set(word::PROCESS_NAME_END, end);
        }
        let [start, end] = name_words(&self.interface);
        set(word::INTERFACE, start);
        set(word::INTERFACE_END, end);
        Keys { words, kind: self.kind }
    }
}

/// An address as two words: upper, lower.
pub(super) fn halves(address: IpAddr) -> (u64, u64) {
    match address {
        IpAddr::V4(address) => (0, u64::from(u32::from(address))),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let half = |at: usize| {
                let half = octets[at..].first_chunk();
                u64::from_be_bytes(*half.expect("invariant: 16 octets have two halves"))
            };
            (half(0), half(8))
        }
    }
}

/// A MAC address as a number, the first octet uppermost.
pub(super) fn mac_bits(address: MacAddress) -> u64 {
    address.0.iter().fold(0, |bits, &octet| bits << 8 | u64::from(octet))
}

/// A name of the kernel: its first 15 bytes as they stand in memory, and zeros.
pub(super) fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0; 16];
    for (byte, given) in bytes[..15].iter_mut().zip(name.bytes()) {
        *byte = given;
    }
    let half = |at: usize| {
        let half = bytes[at..].first_chunk();
        u64::from_ne_bytes(*half.expect("invariant: 16 bytes have two halves"))
    };
    [half(0), half(8)]
}

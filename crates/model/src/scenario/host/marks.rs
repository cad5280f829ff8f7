// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Socket priorities for frames of programs that set none themselves.

use timewire_base::Port;
use timewire_base::wire::MacAddress;

use super::address::{AddressPrefix, EtherType};
use crate::scenario::item::Reader;
use crate::scenario::record::{choice, record};
use crate::scenario::value::Count;

record! {
    /// Gives frames a socket priority on their way out, before they are put into a class. The first
    /// mark that fits counts.
    pub struct Mark {
        /// The socket priority they get.
        priority: Count<0, 15>,
        /// What is in the IP packet: UDP or TCP. Needed with ports.
        protocol: Option<MarkProtocol>,
        /// Port that they go to.
        to_port: Option<Port>,
        /// Port that they come from.
        from_port: Option<Port>,
        /// IPv4 or IPv6 address that they go to, or a prefix such as `10.77.0.0/24`.
        to_address: Option<AddressPrefix>,
        /// IPv4 or IPv6 address that they come from, or a prefix.
        from_address: Option<AddressPrefix>,
        /// Differentiated services code point.
        dscp: Option<Count<0, 63>>,
        /// EtherType of frames without an IP packet, such as `0x22f0`.
        ethertype: Option<EtherType>,
        /// Address of the NIC that they go to.
        destination: Option<MacAddress>,
    }
}

choice! {
    /// What is in an IP packet.
    pub enum MarkProtocol {
        /// UDP.
        Udp = "udp",
        /// TCP.
        Tcp = "tcp",
    }
}

/// The IP version of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpVersion {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

impl AddressPrefix {
    /// The IP version.
    pub fn version(self) -> IpVersion {
        if self.address().is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }
}

/// Checks the marks of an interface.
pub(super) fn check(path: &str, marks: &[Mark], reader: &mut Reader) {
    if marks.len() > MAX_MARKS {
        let message = format!("{} marks are more than {MAX_MARKS}", marks.len());
        reader.fail_at(path, message, "join them by prefixes, or set the priority in the program");
    }
    for (i, mark) in marks.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let addresses = [mark.to_address, mark.from_address];
        let versions: Vec<IpVersion> =
            addresses.into_iter().flatten().map(AddressPrefix::version).collect();
        if versions.windows(2).any(|pair| pair[0] != pair[1]) {
            let message = "one address is of IPv4, the other of IPv6".to_owned();
            reader.fail_at(&path, message, "no packet has both; write two marks");
        }
        let ports = mark.to_port.is_some() || mark.from_port.is_some();
        if ports && mark.protocol.is_none() {
            let hint = "add `protocol: udp` or `protocol: tcp`";
            reader.fail_at(&path, "a port without a protocol".to_owned(), hint);
        }
        let ip = mark.protocol.is_some() || !versions.is_empty() || mark.dscp.is_some();
        match mark.ethertype.map(EtherType::get) {
            Some(0x0800) if ip && versions.first() != Some(&IpVersion::V6) => {}
            Some(0x86dd) if ip && versions.first() != Some(&IpVersion::V4) => {}
            Some(number) if ip => {
                let message = format!("a frame of {number:#06x} has no such IP packet");
                reader.fail_at(&format!("{path}.ethertype"), message, "write two marks");
            }
            _ => {}
        }
        if !ip && mark.ethertype.is_none() && mark.destination.is_none() && i + 1 < marks.len() {
            let message = "this mark fits every frame, and more follow".to_owned();
            reader.fail_at(&path, message, "write it last");
        }
    }
}

/// Most marks of an interface; `tc` takes each of them apart.
const MAX_MARKS: usize = 256;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What frames are told apart by: addresses, EtherTypes, streams.

use std::fmt;
use std::net::IpAddr;

use serde_json::{Value as Json, json};
use timewire_base::wire::MacAddress;

use crate::scenario::item::{Item, Reader};
use crate::scenario::tree::Node;

/// An IP address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    address: IpAddr,
    bits: u8,
}

/// The identifier of a stream (IEEE 802.1Q, IEEE 1722).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(pub u64);

impl AddressPrefix {
    /// The address; bits behind the prefix are 0.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Length of the prefix, at most 32 or 128 bits.
    pub fn bits(self) -> u8 {
        self.bits
    }

    fn parse(text: &str) -> Result<AddressPrefix, String> {
        let refused = || format!("`{text}` is no IP address or prefix, such as 10.77.0.0/24");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => longest,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                bits.parse().map_err(|_| refused())?
            }
            Some(_) => return Err(refused()),
        };
        if bits > longest {
            return Err(format!("`{text}` has the prefix /{bits}: it goes to /{longest}"));
        }
        let network = match address {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::from((it.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::from((it.to_bits() & mask).to_be_bytes())
            }
        };
        if network != address {
            return Err(format!(
                "`{text}` has bits behind its prefix: the network is {network}/{bits}"
            ));
        }
        Ok(AddressPrefix { address, bits })
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits {
            bits if bits == longest => write!(f, "{}", self.address),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

impl Item for AddressPrefix {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "an IP address or prefix", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9a-fA-F.:]+(/[0-9]{1,3})?$"})
    }
}

/// An EtherType of a protocol that Ethernet carries. Prints as `0x88f7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(u16);

impl EtherType {
    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Reads `0x88f7`.
    ///
    /// **Errors**: a sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<EtherType, String> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()) && d.len() <= 4);
        let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        match number {
            None => Err(format!("`{text}` is no EtherType, such as 0x88f7")),
            Some(number) if number < 0x600 => {
                Err(format!("{number:#06x} is a length, no EtherType: those begin with 0x0600"))
            }
            Some(number) if TAGS.contains(&number) => {
                Err(format!("{number:#06x} is a VLAN tag, and the EtherType is behind it"))
            }
            Some(number) => Ok(EtherType(number)),
        }
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl Item for EtherType {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "an EtherType such as 0x88f7", "", EtherType::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        let pattern = "^0x(0[6-9a-fA-F]|[1-9a-fA-F][0-9a-fA-F])[0-9a-fA-F]{2}$";
        json!({"type": "string", "pattern": pattern})
    }
}

/// EtherTypes of VLAN tags.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

impl Item for MacAddress {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let hint = "put it in quotes when it has digits only";
        reader.checked(node, "an address such as 02:00:00:00:00:01", hint, str::parse::<Self>)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"})
    }
}

impl StreamId {
    fn parse(text: &str) -> Result<StreamId, String> {
        // As 802.1Q prints it, as 1722 does, or plain.
        let digits: String = text.chars().filter(|c| *c != '-' && *c != ':').collect();
        let number = u64::from_str_radix(&digits, 16).ok();
        let is_whole = digits.len() == 16 && is_hex(&digits);
        number.filter(|_| is_whole).map(StreamId).ok_or_else(|| {
            format!("`{text}` is no stream: 16 hexadecimal digits, 00-11-22-33-44-55:00-01")
        })
    }
}

impl Item for StreamId {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.checked(node, "a stream of 16 hexadecimal digits", "", Self::parse)
    }
    fn emit(&self) -> Option<Json> {
        Some(json!(format!("{:016x}", self.0)))
    }
    fn schema() -> Json {
        json!({"type": "string", "pattern": "^([0-9a-fA-F][:-]?){16}$"})
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

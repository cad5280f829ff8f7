// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values in a filter: numbers, addresses, networks, ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use timewire_base::wire::MacAddress;

/// A number in decimal, or in hexadecimal with `0x`, up to a bound.
pub(super) fn number(text: &str, most: u32) -> Option<u32> {
    number64(text).and_then(|number| u32::try_from(number).ok()).filter(|&number| number <= most)
}

/// As [`number`], of 64 bits.
pub(super) fn number64(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let all = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    all.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A port, or two.
pub(super) fn ports(text: &str, range: bool) -> Option<(u16, u16)> {
    let port = |text: &str| number(text, 0xffff).and_then(|port| u16::try_from(port).ok());
    if !range {
        return port(text).map(|port| (port, port));
    }
    let (least, most) = text.split_once('-')?;
    port(least).zip(port(most)).filter(|(least, most)| least <= most)
}

/// A protocol of IP: its number, or one of some names.
pub(super) fn protocol(text: &str) -> Option<u8> {
    match text.trim_start_matches('\\') {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp6" => Some(58),
        "sctp" => Some(132),
        text => number(text, 255).and_then(|number| u8::try_from(number).ok()),
    }
}

/// A MAC address: six octets in hexadecimal, of one digit or two, with `:` or `-`
/// between them, as tcpdump takes it.
pub(super) fn mac(text: &str) -> Option<MacAddress> {
    let octets = text.split([':', '-']);
    let pairs = octets.map(|digits| match digits.len() {
        1 => format!("0{digits}"),
        _ => digits.to_owned(),
    });
    pairs.collect::<Vec<_>>().join(":").parse().ok()
}

/// What an address is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// That of a host.
    Host,
    /// A network.
    Net,
    /// A network when it has a prefix.
    HostOrNet,
}

/// An address and its prefix; else what is wrong and what would be right.
pub(super) fn net(text: &str, wanted: Wanted) -> Result<(IpAddr, u8), (String, String)> {
    let wrong = |right: &str| (format!("`{text}` is not right here"), right.to_owned());
    let (digits, prefix) = match text.split_once('/') {
        Some(_) if wanted == Wanted::Host => {
            return Err((format!("`{text}` is a network"), format!("`net {text}`")));
        }
        Some((digits, prefix)) => (digits, Some(prefix)),
        None => (text, None),
    };
    let (address, most) = match (digits.parse::<Ipv6Addr>(), ipv4(digits)) {
        (Ok(address), _) => (IpAddr::V6(address), 128),
        (_, Some((address, most))) if most == 32 || wanted == Wanted::Net || prefix.is_some() => {
            (IpAddr::V4(address), most)
        }
        _ => {
            let names = "an address, such as 10.0.0.1 or fd00::1; names of hosts are not looked up";
            return Err(wrong(names));
        }
    };
    let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => most,
        Some(prefix) => number(prefix, u32::from(longest))
            .and_then(|prefix| u8::try_from(prefix).ok())
            .ok_or_else(|| wrong(&format!("a prefix of 0 to {longest} bits")))?,
    };
    let first = first_of(address, prefix);
    if first != address {
        let what = format!("`{text}` has bits behind its prefix");
        return Err((what, format!("`{first}/{prefix}`")));
    }
    Ok((address, prefix))
}

/// An IPv4 address of one to four parts, and the bits that its parts have.
fn ipv4(text: &str) -> Option<(Ipv4Addr, u8)> {
    let mut octets = [0; 4];
    let mut bits = 0;
    for part in text.split('.') {
        let digits = (1..=3).contains(&part.len()) && part.chars().all(|c| c.is_ascii_digit());
        let octet = digits.then(|| part.parse().ok()).flatten()?;
        *octets.get_mut(usize::from(bits / 8))? = octet;
        bits += 8;
    }
    Some((Ipv4Addr::from(octets), bits))
}

/// The address with zeros behind the prefix.
fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(u32::from(32 - prefix.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(u32::from(128 - prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP to everybody on a link, over IPv6.

use std::io;
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::{check, set_option, size_of_u32, socket};

/// A socket on a port that others on this machine may have as well: each gets what is sent to a
/// group that it joined.
pub fn shared_udp(port: u16) -> io::Result<UdpSocket> {
    let fd = socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
    let one: libc::c_int = 1;
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &one)?;
    set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &one)?;
    // SAFETY: all-zero is a valid sockaddr_in6 (plain integers), and stands for any address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    address.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).expect("invariant: 10");
    address.sin6_port = port.to_be();
    let length = size_of_u32::<libc::sockaddr_in6>();
    // SAFETY: `address` is a sockaddr_in6 of `length` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(UdpSocket::from(fd))
}

/// An interface with an address of IPv6 that counts on its link alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLocal {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// The address.
    pub address: Ipv6Addr,
}

/// Those of the calling thread's network namespace, in the order of the kernel; none without IPv6.
pub fn link_locals() -> Vec<LinkLocal> {
    // A kernel without IPv6 has no such file.
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    text.lines().filter_map(parse_address).collect()
}

/// A line of `if_inet6` (linux v6.12 `net/ipv6/addrconf.c:if6_seq_show`), of link-local addresses
/// that can be used already.
fn parse_address(line: &str) -> Option<LinkLocal> {
    const LINK: u32 = 0x20;
    const TENTATIVE: u32 = 0x40;
    let mut parts = line.split_ascii_whitespace();
    let address = u128::from_str_radix(parts.next()?, 16).ok()?;
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (index, _prefix, scope, flags) = (number()?, number()?, number()?, number()?);
    let name = parts.next()?.to_owned();
    let usable = scope == LINK && flags & TENTATIVE == 0;
    usable.then(|| LinkLocal { name, index, address: address.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_interfaces_with_usable_link_local_addresses_are_told() {
        let line = "fe8000000000000000fc00fffe00000a 04 40 20 80     eth0";
        let found = parse_address(line).unwrap();
        assert_eq!((found.name.as_str(), found.index), ("eth0", 4));
        assert_eq!(found.address, "fe80::fc:ff:fe00:a".parse::<Ipv6Addr>().unwrap());
        let others = [
            "00000000000000000000000000000001 01 80 10 80       lo",
            "fe8000000000000000fc00fffe00000a 04 40 20 c0     eth0",
            "fe80 04",
            "",
        ];
        assert!(others.iter().all(|line| parse_address(line).is_none()));
    }

    #[test]
    fn t0_a_port_is_shared() {
        let one = shared_udp(0).unwrap();
        shared_udp(one.local_addr().unwrap().port()).unwrap();
    }
}

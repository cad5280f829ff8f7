// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address of a UDP socket, without the system's own structures, which differ in every
//! language.

use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::error::{Answer, Failed, guard};
use crate::raw;

/// `tw_address`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// 4 or 6; 0 for no address.
    pub family: u16,
    /// In the host's order.
    pub port: u16,
    /// The interface of a link-local IPv6 address; else 0.
    pub scope: u32,
    /// In the order of the network; IPv4 in the first four, the others zero.
    pub bytes: [u8; 16],
}
const _: () = assert!(size_of::<Address>() == 24);

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        let mut bytes = [0; 16];
        let (family, scope) = match address {
            SocketAddr::V4(v4) => {
                bytes[..4].copy_from_slice(&v4.ip().octets());
                (4, 0)
            }
            SocketAddr::V6(v6) => {
                bytes = v6.ip().octets();
                (6, v6.scope_id())
            }
        };
        Address { family, port: address.port(), scope, bytes }
    }
}

impl Address {
    /// **Errors**: it is of no family.
    pub(crate) fn to_socket_address(self) -> Result<SocketAddr, Failed> {
        match self.family {
            4 => {
                let [a, b, c, d, ..] = self.bytes;
                Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), self.port))
            }
            6 => {
                let ip = Ipv6Addr::from(self.bytes);
                Ok(SocketAddrV6::new(ip, self.port, 0, self.scope).into())
            }
            other => Err(Failed::usage(format_args!(
                "the family of the address is {other}: it is 4 or 6"
            ))),
        }
    }
}

/// Reads `192.0.2.7:9000` or `[2001:db8::7]:9000`.
pub(crate) fn parse(text: &str, what: &str) -> Result<SocketAddr, Failed> {
    text.parse().map_err(|_| {
        Failed::usage(format_args!(
            "{what} `{text}` is no address: write 192.0.2.7:9000 or [2001:db8::7]:9000"
        ))
    })
}

/// Reads an address and port.
///
/// # Safety
/// `text` is null or ends with a zero; `address` is null or an address that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_address_parse(text: *const c_char, address: *mut Address) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those that these ask for.
        let (text, to) = unsafe {
            (raw::text(text, "the text")?, raw::target(address, "the room for the address")?)
        };
        *to = parse(text, "the text")?.into();
        Ok(0)
    })
}

/// Writes an address and port as text.
///
/// # Safety
/// `address` is null or an address; `text` is null or writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_address_format(
    address: *const Address,
    text: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| -> Answer {
        // SAFETY: the caller's promise is the one that this asks for.
        let from = unsafe { raw::slice(address, 1, "the address")? };
        let line = from[0].to_socket_address()?.to_string();
        // SAFETY: the same.
        unsafe { raw::give_text(&line, text, room) }
    })
}

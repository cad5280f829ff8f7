// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking families of generic netlink, which have names: `netdev`, `ethtool`. Only questions; no
//! answer changes anything.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::netlink::Attributes;
use crate::socket::{check_len, set_option, socket};

/// Attributes of an answer: kind without flags, and value.
pub type Answer = Vec<(u16, Vec<u8>)>;

/// A family of this kernel.
#[derive(Debug)]
pub struct Family {
    socket: OwnedFd,
    id: u16,
}

impl Family {
    /// Finds one by its name.
    ///
    /// **Errors**: `NotFound` when this kernel has no such family.
    pub fn find(name: &str) -> io::Result<Family> {
        let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
        let one: libc::c_int = 1;
        set_option(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, &one)?;
        let mut family = Family { socket: fd, id: CONTROL };
        let mut asked = Attributes::new();
        asked.put(FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        let answers = family.ask(GET_FAMILY, false, &asked)?;
        let id = answers.iter().flatten().find(|(kind, _)| *kind == FAMILY_ID);
        let id = id.and_then(|(_, value)| Some(u16::from_ne_bytes(value[..].try_into().ok()?)));
        family.id = id.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        Ok(family)
    }

    /// Asks for one object, or with `all` for every one that the attributes choose.
    ///
    /// **Errors**: `Unsupported` when the kernel or the object's driver has no answer.
    pub fn ask(&self, command: u8, all: bool, asked: &Attributes) -> io::Result<Vec<Answer>> {
        let flags = REQUEST | if all { DUMP } else { ACKNOWLEDGE };
        // The header of a generic message: command, version, two bytes of nothing.
        let body = [&[command, 1, 0, 0], asked.as_bytes()].concat();
        let length = u32::try_from(HEADER + body.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(self.id.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        let (fd, bytes) = (self.socket.as_raw_fd(), message.len());
        // SAFETY: `message` is readable for its length.
        check_len(unsafe { libc::send(fd, message.as_ptr().cast(), bytes, 0) })?;
        let mut answers = Vec::new();
        let mut buffer = vec![0_u8; 65_536];
        loop {
            // SAFETY: `buffer` is writable for its length.
            let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            let got = check_len(got)?;
            if take(&buffer[..got], &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Takes the messages of one datagram; whether the last one was there.
fn take(mut datagram: &[u8], answers: &mut Vec<Answer>) -> io::Result<bool> {
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "a netlink message that is cut off");
    while !datagram.is_empty() {
        let field = |at: usize| -> Option<[u8; 4]> { datagram.get(at..at + 4)?.try_into().ok() };
        let length = u32::from_ne_bytes(field(0).ok_or_else(cut)?);
        let length = usize::try_from(length).map_err(|_| cut())?;
        let kind = field(4).ok_or_else(cut)?;
        let message = datagram.get(..length).filter(|m| m.len() >= HEADER).ok_or_else(cut)?;
        match u16::from_ne_bytes([kind[0], kind[1]]) {
            DONE | ERROR => {
                let errno = message.get(HEADER..HEADER + 4).and_then(|b| b.try_into().ok());
                return match errno.map_or(0, |bytes| -i32::from_ne_bytes(bytes)) {
                    0 => Ok(true),
                    errno => Err(io::Error::from_raw_os_error(errno)),
                };
            }
            _ => answers.push(attributes(message.get(HEADER + 4..).unwrap_or_default())),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The attributes of a message, or of an attribute that is made of others. What is cut off is left
/// out.
pub fn attributes(mut bytes: &[u8]) -> Answer {
    let mut found = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = bytes.get(4..length) else { break };
        found.push((u16::from_ne_bytes([c, d]) & KIND, value.to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

// From linux v6.12 include/uapi/linux/netlink.h and genetlink.h.
const HEADER: usize = 16;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const KIND: u16 = 0x3fff;
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_families_are_found_by_name() {
        // Every kernel with generic netlink has its own control family.
        let control = Family::find("nlctrl").unwrap();
        assert_eq!(control.id, CONTROL);
        let all = control.ask(GET_FAMILY, true, &Attributes::new()).unwrap();
        assert!(all.iter().flatten().any(|(kind, v)| *kind == FAMILY_NAME && v == b"nlctrl\0"));
        let missing = Family::find("no-such-family").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn t0_cut_messages_are_refused_and_cut_attributes_left_out() {
        let mut answers = Vec::new();
        assert!(take(&[1, 2, 3], &mut answers).is_err());
        assert!(take(&[200, 0, 0, 0, 0, 0, 0, 0], &mut answers).is_err());
        assert!(answers.is_empty());
        let mut written = Attributes::new();
        written.put(3, b"ab").put(4, b"c");
        let whole = attributes(written.as_bytes());
        assert_eq!(whole, [(3, b"ab".to_vec()), (4, b"c".to_vec())]);
        assert_eq!(attributes(&written.as_bytes()[..12]), whole[..1]);
    }
}

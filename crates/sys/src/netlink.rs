// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request to the kernel's routing sockets, for what the tools of a distribution do not know
//! yet; and the attributes that such a request is made of.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::socket::{check_len, set_option, socket};

/// Attributes, one after the other, each padded to four bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// None.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// Adds one.
    ///
    /// **Panics** when it is longer than an attribute can be, 65 531 bytes.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Attributes {
        let length = u16::try_from(value.len() + 4).expect("an attribute has at most 65 531 bytes");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds one that is made of others.
    ///
    /// **Panics** as [`Attributes::put`].
    pub fn nest(&mut self, kind: u16, inner: &Attributes) -> &mut Attributes {
        self.put(kind | NESTED, &inner.0)
    }

    /// As they are in a message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why a request was not carried out.
#[derive(Debug)]
pub enum RequestError {
    /// It could not be sent, or its answer not be read.
    Io(io::Error),
    /// The kernel refuses.
    Refused {
        /// The error's number; some are private to the kernel.
        errno: i32,
        /// What it says about it.
        text: Option<String>,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Io(error) => write!(f, "a routing request failed: {error}"),
            RequestError::Refused { errno, text: None } => write!(f, "errno {errno}"),
            RequestError::Refused { errno, text: Some(text) } => write!(f, "errno {errno}: {text}"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Asks the kernel of the caller's network namespace to do something, and waits until it has.
/// `kind` is a message type such as `RTM_NEWQDISC`, `flags` are those beside request and
/// acknowledgement, `body` is what follows the message's header.
///
/// **Errors**: the kernel refuses; changes need `CAP_NET_ADMIN`.
pub fn request(kind: u16, flags: u16, body: &[u8]) -> Result<(), RequestError> {
    let answer = exchange(kind, flags, body).map_err(RequestError::Io)?;
    match interpret(&answer) {
        Some(Ok(())) => Ok(()),
        Some(Err(refused)) => Err(refused),
        None => Err(RequestError::Io(io::Error::other("the answer is no acknowledgement"))),
    }
}

fn exchange(kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let one: libc::c_int = 1;
    set_option(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, &one)?;
    set_option(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &one)?;
    let too_long = || io::Error::from_raw_os_error(libc::EMSGSIZE);
    let length = u32::try_from(HEADER + body.len()).map_err(|_| too_long())?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags | REQUEST | ACKNOWLEDGE).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    // SAFETY: `message` is readable for its length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    check_len(sent)?;
    let mut answer = vec![0; 8_192];
    // SAFETY: `answer` is writable for its length.
    let got = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    answer.truncate(check_len(got)?);
    Ok(answer)
}

/// What an acknowledgement says; `None` when it is none.
fn interpret(answer: &[u8]) -> Option<Result<(), RequestError>> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let flags = u16::from_ne_bytes(answer.get(6..8)?.try_into().ok()?);
    if kind != ERROR {
        return None;
    }
    let errno = -i32::from_ne_bytes(answer.get(HEADER..HEADER + 4)?.try_into().ok()?);
    if errno == 0 {
        return Some(Ok(()));
    }
    // The error, the header of the request, and attributes.
    let has_text = flags & HAS_ATTRIBUTES != 0;
    let attributes = answer.get(HEADER + 4 + HEADER..).filter(|_| has_text).unwrap_or_default();
    Some(Err(RequestError::Refused { errno, text: text_of(attributes) }))
}

fn text_of(mut attributes: &[u8]) -> Option<String> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind == TEXT {
            return Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

// From linux v6.12 include/uapi/linux/netlink.h.
const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const ERROR: u16 = 2;
const HAS_ATTRIBUTES: u16 = 0x200;
const TEXT: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_attributes_are_padded_and_nested() {
        let mut inner = Attributes::new();
        inner.put(1, b"a").put(2, &7_u32.to_ne_bytes());
        let mut all = Attributes::new();
        all.nest(3, &inner);
        let mut expected = Vec::new();
        for number in [20_u16, 0x8003, 5, 1] {
            expected.extend(number.to_ne_bytes());
        }
        expected.extend(b"a\0\0\0");
        expected.extend([8_u16, 2].map(u16::to_ne_bytes).concat());
        expected.extend(7_u32.to_ne_bytes());
        assert_eq!(all.as_bytes(), expected);
    }

    #[test]
    fn t0_the_kernel_refuses_with_a_number() {
        // RTM_GETLINK of an interface that is not there: an ifinfomsg with its index.
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        match request(18, 0, &body) {
            Err(RequestError::Refused { errno, .. }) => assert_eq!(errno, libc::ENODEV),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn t0_the_words_of_a_refusal_are_found() {
        let mut attributes = Attributes::new();
        attributes.put(2, &[0; 4]).put(TEXT, b"Invalid clockid\0");
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[6..8].copy_from_slice(&HAS_ATTRIBUTES.to_ne_bytes());
        answer.extend((-22_i32).to_ne_bytes());
        answer.extend([0; HEADER]);
        answer.extend(attributes.as_bytes());
        let refused = interpret(&answer).unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "errno 22: Invalid clockid");
    }
}

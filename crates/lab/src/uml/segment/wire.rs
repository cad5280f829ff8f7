// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of vhost-user, as far as `linux v6.12 arch/um/drivers/virtio_uml.c` sends and takes
//! them.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use timewire_sys::vhost::receive_with_descriptors;

use super::calendar::is_end;

/// The requests, by their numbers (`arch/um/drivers/vhost_user.h`).
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_SLAVE_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const VRING_KICK: u32 = 35;
}

/// Of a device: buffers were given back.
const VRING_CALL: u32 = 4;

const VERSION: u32 = 1;
const FLAG_REPLY: u32 = 4;
const FLAG_NEED_REPLY: u32 = 8;
const HEADER_BYTES: usize = 12;
/// No request of the driver is longer.
const MAX_PAYLOAD: usize = 4_096;

/// What the driver asks.
#[derive(Debug)]
pub struct Asked {
    pub request: u32,
    /// Whether it waits until the device has done it.
    pub wants_reply: bool,
    pub payload: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Asked {
    /// The number in the payload's first eight bytes.
    pub fn number(&self) -> io::Result<u64> {
        self.field::<8>(0).map(u64::from_le_bytes)
    }

    /// The number in four bytes of the payload.
    pub fn word(&self, at: usize) -> io::Result<u32> {
        self.field::<4>(at).map(u32::from_le_bytes)
    }

    /// The number in eight bytes of the payload.
    pub fn long(&self, at: usize) -> io::Result<u64> {
        self.field::<8>(at).map(u64::from_le_bytes)
    }

    fn field<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let bytes = self.payload.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| invalid(format!("request {} is too short", self.request)))
    }
}

/// The driver's line to its device.
#[derive(Debug)]
pub struct DeviceConnection(UnixStream);

impl DeviceConnection {
    pub fn new(stream: UnixStream) -> DeviceConnection {
        DeviceConnection(stream)
    }

    /// The next request; `None` when the driver has gone.
    pub fn ask(&mut self) -> io::Result<Option<Asked>> {
        let mut header = [0; HEADER_BYTES];
        let (got, descriptors) = match receive_with_descriptors(self.0.as_fd(), &mut header) {
            Ok((0, _)) => return Ok(None),
            Ok(received) => received,
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.0.read_exact(&mut header[got..])?;
        let [r0, r1, r2, r3, f0, f1, f2, f3, s0, s1, s2, s3] = header;
        let flags = u32::from_le_bytes([f0, f1, f2, f3]);
        let size = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
        if flags & 3 != VERSION || size > MAX_PAYLOAD {
            return Err(invalid(format!("a header with flags {flags:#x} and {size} bytes")));
        }
        let mut payload = vec![0; size];
        self.0.read_exact(&mut payload)?;
        let request = u32::from_le_bytes([r0, r1, r2, r3]);
        let wants_reply = flags & FLAG_NEED_REPLY != 0;
        Ok(Some(Asked { request, wants_reply, payload, descriptors }))
    }

    /// Answers a request.
    pub fn answer(&mut self, request: u32, payload: &[u8]) -> io::Result<()> {
        self.0.write_all(&encode(request, VERSION | FLAG_REPLY, payload))
    }
}

impl AsFd for DeviceConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The device's line to its driver.
#[derive(Debug)]
pub struct CallLine(UnixStream);

impl CallLine {
    pub fn new(descriptor: OwnedFd) -> CallLine {
        CallLine(UnixStream::from(descriptor))
    }

    /// Says that buffers of a queue were given back; the driver answers.
    pub fn call(&mut self, queue: u32) -> io::Result<()> {
        let mut payload = queue.to_le_bytes().to_vec();
        payload.extend([0; 4]);
        self.0.write_all(&encode(VRING_CALL, VERSION | FLAG_NEED_REPLY, &payload))
    }

    /// The driver's answer to [`CallLine::call`].
    ///
    /// **Errors**: it refuses, or has gone.
    pub fn answer(&mut self) -> io::Result<()> {
        let mut bytes = [0; HEADER_BYTES + 8];
        self.0.read_exact(&mut bytes)?;
        match bytes[HEADER_BYTES..] {
            [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
            _ => Err(invalid("the driver refuses an interrupt".to_owned())),
        }
    }
}

impl AsFd for CallLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn encode(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("invariant: payloads are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for word in [request, flags, size] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// A message that breaks the protocol.
pub fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_requests_are_read_with_their_payload() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut line = DeviceConnection::new(ours);
        theirs.write_all(&encode(request::VRING_KICK, 9, &[3, 0, 0, 0, 0, 0, 0, 0])).unwrap();
        let asked = line.ask().unwrap().unwrap();
        assert_eq!((asked.request, asked.wants_reply), (request::VRING_KICK, true));
        assert_eq!((asked.word(0).unwrap(), asked.number().unwrap()), (3, 3));
        assert!(asked.long(1).is_err());
        line.answer(asked.request, &[1; 8]).unwrap();
        let mut bytes = [0; 20];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..12], [35, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0]);
        theirs.write_all(&encode(1, 2, &[])).unwrap();
        assert!(line.ask().is_err());
        drop(theirs);
        assert!(line.ask().unwrap().is_none());
    }

    #[test]
    fn t0_calls_are_answered() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut line = CallLine::new(ours.into());
        line.call(2).unwrap();
        let mut bytes = [0; 20];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..16], [4, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0]);
        theirs.write_all(&encode(4, 5, &[0; 8])).unwrap();
        line.answer().unwrap();
        theirs.write_all(&encode(4, 5, &[1; 8])).unwrap();
        assert!(line.answer().is_err());
    }
}

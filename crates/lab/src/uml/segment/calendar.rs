// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One kernel's line to the master of time: the messages of the external time-travel protocol
//! (`linux v6.12 include/uapi/linux/um_timetravel.h`), 16 bytes each, every one acknowledged.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use timewire_sim::{LocalNs, Message};
use timewire_sys::vhost::send_with_descriptors;

const ACK: u32 = 0;
const START: u32 = 1;
const REQUEST: u32 = 2;
const WAIT_BIT: u32 = 3;
const GET: u32 = 4;
const UPDATE: u32 = 5;
const RUN: u32 = 6;
const FREE_UNTIL: u32 = 7;
const GET_TIME_OF_DAY: u32 = 8;
const BROADCAST: u32 = 9;

/// What a kernel said, and the number under which it waits for the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// `None`: a broadcast, which nobody here listens to.
    pub message: Option<Message>,
    /// Repeated in the acknowledgement.
    pub sequence: u32,
    /// Of [`Message::Start`]: who it is.
    pub identity: u64,
}

/// The line.
#[derive(Debug)]
pub struct Calendar {
    stream: UnixStream,
    sequence: u32,
}

impl Calendar {
    pub fn new(stream: UnixStream) -> Calendar {
        Calendar { stream, sequence: 0 }
    }

    /// What the kernel says next; `None` when it has ended.
    pub fn hear(&mut self) -> io::Result<Option<Heard>> {
        let Some((operation, sequence, time)) = self.receive()? else { return Ok(None) };
        let message = match operation {
            START => Some(Message::Start),
            REQUEST => Some(Message::Request(LocalNs(time))),
            WAIT_BIT => Some(Message::Wait),
            GET => Some(Message::Get),
            UPDATE => Some(Message::Update(LocalNs(time))),
            GET_TIME_OF_DAY => Some(Message::GetTimeOfDay),
            BROADCAST => None,
            other => return Err(unexpected(other)),
        };
        Ok(Some(Heard { message, sequence, identity: time }))
    }

    /// Acknowledges.
    pub fn acknowledge(&mut self, sequence: u32, time: LocalNs) -> io::Result<()> {
        self.stream.write_all(&encode(ACK, sequence, time.0))
    }

    /// Acknowledges the start, and so lets the kernel boot.
    ///
    /// The kernel looks for two descriptors beside this acknowledgement, and uses what happens to
    /// be on its stack when there are none (`linux v6.12 arch/um/kernel/time.c:
    /// time_travel_handle_message`). It gets two that it cannot map as shared memory, so it goes on
    /// with messages.
    pub fn begin(&mut self, sequence: u32) -> io::Result<()> {
        let nothing = File::open("/dev/null")?;
        let bytes = encode(ACK, sequence, 0);
        let both = [nothing.as_fd(), nothing.as_fd()];
        let sent = send_with_descriptors(self.stream.as_fd(), &bytes, &both)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Lets the kernel run at a time it asked for, and move its time by itself before another.
    pub fn run(&mut self, time: LocalNs, free_until: Option<LocalNs>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(32);
        let free = free_until.map(|until| (FREE_UNTIL, until));
        let messages = free.into_iter().chain([(RUN, time)]);
        let mut count = 0;
        for (operation, time) in messages {
            count += 1;
            bytes.extend(encode(operation, self.sequence.wrapping_add(count), time.0));
        }
        // In one piece: the kernel wakes once.
        self.stream.write_all(&bytes)?;
        (0..count).try_for_each(|_| self.acknowledged())
    }

    /// Lets a running kernel move its time by itself before the given one.
    pub fn free_until(&mut self, time: LocalNs) -> io::Result<()> {
        self.stream.write_all(&encode(FREE_UNTIL, self.sequence.wrapping_add(1), time.0))?;
        self.acknowledged()
    }

    fn acknowledged(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        match self.receive()? {
            Some((ACK, sequence, _)) if sequence == self.sequence => Ok(()),
            Some((other, _, _)) => Err(unexpected(other)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn receive(&mut self) -> io::Result<Option<(u32, u32, u64)>> {
        let mut bytes = [0; 16];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let [o0, o1, o2, o3, s0, s1, s2, s3, time @ ..] = bytes;
        let operation = u32::from_le_bytes([o0, o1, o2, o3]);
        let sequence = u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(Some((operation, sequence, u64::from_le_bytes(time))))
    }
}

impl AsFd for Calendar {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether an error says that the other side has gone.
pub fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn encode(operation: u32, sequence: u32, time: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&operation.to_le_bytes());
    bytes[4..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..].copy_from_slice(&time.to_le_bytes());
    bytes
}

fn unexpected(operation: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("message {operation} of the time-travel protocol, out of turn"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_messages_are_heard_and_answered() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut calendar = Calendar::new(ours);
        theirs.write_all(&encode(REQUEST, 7, 500)).unwrap();
        let heard = calendar.hear().unwrap().unwrap();
        assert_eq!(heard.message, Some(Message::Request(LocalNs(500))));
        calendar.acknowledge(heard.sequence, LocalNs(3)).unwrap();
        let mut bytes = [0; 16];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, encode(ACK, 7, 3));
        theirs.write_all(&encode(ACK, 1, 0)).unwrap();
        calendar.run(LocalNs(500), None).unwrap();
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, encode(RUN, 1, 500));
        theirs.write_all(&[encode(ACK, 2, 0), encode(ACK, 3, 0)].concat()).unwrap();
        calendar.run(LocalNs(600), Some(LocalNs(900))).unwrap();
        for expected in [encode(FREE_UNTIL, 2, 900), encode(RUN, 3, 600)] {
            theirs.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, expected);
        }
        theirs.write_all(&encode(WAIT_BIT, 8, 0)).unwrap();
        assert!(calendar.free_until(LocalNs(700)).is_err());
        drop(theirs);
        assert_eq!(calendar.hear().unwrap(), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message that is kept, to be sent at once, again and again: of what goes with it, only the
//! values are written anew.
//!
//! Not here: messages that wait for a flush (`super`).

use std::io;
use std::os::fd::AsFd;

use super::{Counted, Ids, Outbox, Outgoing};
use crate::direct;
use crate::messages::Shared;

/// Bytes of a kept message that are others each time it is sent.
pub const ANEW: usize = 12;

/// The message, and what the first header is made for.
pub(super) struct Kept {
    /// At least [`ANEW`] bytes.
    memory: Shared<[u8]>,
    length: usize,
    /// Where the bytes begin that are others each time: [`ANEW`] bytes before the end of the
    /// memory at the latest.
    anew: usize,
    ready: Ready,
}

// SAFETY: plain bytes, not tied to a thread.
unsafe impl Send for Kept {}

/// What the kernel can be told of the kept message without making a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// Not known, or its number has to be noted after each.
    Not,
    /// Nothing, and so no header is needed.
    Bytes,
    /// As below, the first header has room for it.
    Launch,
    Id,
    LaunchAndId,
}

impl Kept {
    pub(super) fn new(longest: usize) -> Kept {
        let memory = Shared::new(vec![0; longest.max(ANEW)].into_boxed_slice());
        Kept { memory, length: 0, anew: 0, ready: Ready::Not }
    }

    /// The first header is made for another message.
    #[inline]
    pub(super) fn forget_header(&mut self) {
        self.ready = Ready::Not;
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        // SAFETY: it has so many bytes (`Outbox::keep`), of plain memory, and lives as long as
        // `self`, by which alone they are changed.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is exclusively borrowed, and the kernel reads only during
        // a call, for which it is borrowed as well.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), self.length) }
    }

    #[inline(always)]
    fn renew(&mut self, bytes: [u8; ANEW]) {
        // SAFETY: `anew` is so many bytes before the end of the memory, or more; else as in
        // `bytes_mut`.
        unsafe {
            self.memory.as_ptr().cast::<u8>().add(self.anew).cast::<[u8; ANEW]>().write(bytes)
        }
    }
}

impl Outbox {
    /// Keeps a message for [`Outbox::send_kept`]; where the bytes begin that are others each time.
    ///
    /// **Panics** when it is longer than a buffer, or there are fewer than [`ANEW`] bytes from
    /// there on in one.
    pub fn keep(&mut self, message: &[u8], anew: usize) {
        let kept = &mut self.kept;
        let room = kept.memory.len();
        assert!(message.len() <= self.longest, "{} bytes exceed a buffer", message.len());
        assert!(anew <= room - ANEW, "no {ANEW} bytes from {anew} on in {room}");
        if kept.length != message.len() {
            kept.ready = Ready::Not;
        }
        (kept.length, kept.anew) = (message.len(), anew);
        kept.bytes_mut().copy_from_slice(message);
    }

    /// The message that is kept, to be changed.
    pub fn kept(&mut self) -> &mut [u8] {
        self.kept.bytes_mut()
    }

    /// Sends the message that is kept at once, past those that wait and without waiting for room;
    /// before, changes the bytes that are others each time, if it is given them. An error that an
    /// earlier message left on the socket (ICMP) does not hinder it.
    ///
    /// **Errors**: it was not taken.
    #[inline(always)]
    pub fn send_kept(
        &mut self,
        anew: Option<[u8; ANEW]>,
        id: u32,
        launch_ns: Option<i64>,
    ) -> io::Result<()> {
        if let Some(bytes) = anew {
            self.kept.renew(bytes);
        }
        let result = match (launch_ns, self.kept.ready) {
            (None, Ready::Bytes) => direct::send(self.fd.as_fd(), self.kept.bytes()),
            (Some(launch), Ready::Launch) => {
                self.room.rewrite(Some(launch), None);
                // SAFETY: the first header leads to the bytes that are kept.
                unsafe { self.send_first() }
            }
            (None, Ready::Id) => {
                self.room.rewrite(None, Some(id));
                // SAFETY: as above.
                unsafe { self.send_first() }
            }
            (Some(launch), Ready::LaunchAndId) => {
                self.room.rewrite(Some(launch), Some(id));
                // SAFETY: as above.
                unsafe { self.send_first() }
            }
            _ => return self.send_kept_anew(id, launch_ns, None),
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => self.send_kept_anew(id, launch_ns, Some(error)),
        }
    }

    /// # Safety
    /// The first header leads to bytes that are readable during the call.
    #[inline(always)]
    unsafe fn send_first(&self) -> io::Result<usize> {
        // SAFETY: the caller vouches for the bytes; control messages are our own, and the kernel
        // only reads all of them.
        unsafe { direct::send_message(self.fd.as_fd(), &raw const self.room.headers[0].msg_hdr) }
    }

    /// With a header that is made for it.
    fn send_kept_once(&mut self, id: u32, launch_ns: Option<i64>) -> io::Result<usize> {
        let is_told = matches!(self.ids, Ids::Told { .. });
        self.kept.forget_header();
        if launch_ns.is_none() && !is_told {
            return direct::send(self.fd.as_fd(), self.kept.bytes());
        }
        let message = Outgoing { length: self.kept.length, id, to: None, launch_ns };
        self.room.point(0, self.kept.bytes(), &message, is_told);
        // SAFETY: the header was just pointed to the bytes.
        unsafe { self.send_first() }
    }

    /// Sends it until it is known what becomes of it, as [`Outbox::flush`] has it: after this
    /// error, or for the first time.
    #[cold]
    fn send_kept_anew(
        &mut self,
        id: u32,
        launch_ns: Option<i64>,
        mut before: Option<io::Error>,
    ) -> io::Result<()> {
        let mut is_repeated = false;
        loop {
            let result = match before.take() {
                None => self.send_kept_once(id, launch_ns),
                Some(error) => Err(error),
            };
            let error = match result {
                Ok(_) => {
                    self.kept.ready = match (&mut self.ids, launch_ns) {
                        (Ids::Unnamed, None) => Ready::Bytes,
                        (Ids::Unnamed, Some(_)) => Ready::Launch,
                        (Ids::Told { proven }, launch_ns) => {
                            *proven = true;
                            if launch_ns.is_none() { Ready::Id } else { Ready::LaunchAndId }
                        }
                        (Ids::Counted(counted), _) => {
                            counted.note(id);
                            Ready::Not
                        }
                    };
                    return Ok(());
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            let errno = error.raw_os_error();
            let is_untold = matches!(self.ids, Ids::Told { proven: false });
            let is_own = matches!(errno, Some(libc::EAGAIN | libc::ENOBUFS | libc::EPERM));
            if errno == Some(libc::EINVAL) && is_untold {
                // Linux before 6.13 does not know the control message.
                self.ids = Ids::Counted(Counted::new());
            } else if is_own || is_repeated {
                // The discipline dropped it, after it was counted.
                if let (Ids::Counted(counted), Some(libc::ENOBUFS)) = (&mut self.ids, errno) {
                    counted.note(id);
                }
                return Err(error);
            } else {
                is_repeated = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::super::{LaunchClock, Treatment};
    use super::*;
    use crate::error_queue::{Report, ReportReader, TxTap};
    use crate::talk::LaunchMode;

    fn pair(treatment: Treatment) -> (UdpSocket, Outbox) {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (from, to) = ("127.0.0.1:0".parse().unwrap(), listener.local_addr().unwrap());
        let outbox = Outbox::udp(from, Some(to), None, 64, treatment).unwrap();
        (listener, outbox)
    }

    #[test]
    fn t0_a_message_that_is_kept_goes_as_it_was_changed_last() {
        let (listener, mut outbox) = pair(Treatment::default());
        let mut bytes = [0; 64];
        let mut received = || {
            let length = listener.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        outbox.keep(b"<............>", 1);
        for id in 0..3 {
            outbox.send_kept(Some(*b"twelve bytes"), id, None).unwrap();
            assert_eq!(received(), "<twelve bytes>");
        }
        outbox.kept()[0] = b'(';
        outbox.send_kept(None, 3, None).unwrap();
        assert_eq!(received(), "(twelve bytes>");
        // Another one, shorter than what is changed otherwise.
        outbox.keep(b"short", 0);
        outbox.send_kept(None, 4, None).unwrap();
        assert_eq!(received(), "short");
        // In turns with those that wait.
        outbox.buffer().unwrap()[..7].copy_from_slice(b"waiting");
        outbox.push(Outgoing { length: 7, id: 5, to: None, launch_ns: None });
        outbox.send_kept(None, 6, None).unwrap();
        outbox.flush(&mut |id, error| panic!("{id}: {error}"));
        assert_eq!([received(), received()], ["short", "waiting"]);
    }

    #[test]
    fn t0_a_message_that_is_kept_is_named_told_or_counted() {
        for counted in [false, true] {
            let (listener, mut outbox) = pair(Treatment::default());
            outbox.stamp(&[TxTap::Send]).unwrap();
            if counted {
                outbox.ids = Ids::Counted(Counted::new());
            }
            outbox.keep(b"kept", 0);
            for id in [70, 7, 700] {
                outbox.send_kept(None, id, None).unwrap();
                // One that waits has the first header, too.
                outbox.buffer().unwrap()[..4].copy_from_slice(b"sent");
                outbox.push(Outgoing { length: 4, id: id + 1, to: None, launch_ns: None });
                outbox.flush(&mut |id, error| panic!("{id}: {error}"));
                outbox.send_kept(None, id + 2, None).unwrap();
            }
            let mut bytes = [0; 64];
            for expected in [b"kept", b"sent", b"kept"].into_iter().cycle().take(9) {
                let length = listener.recv(&mut bytes).unwrap();
                assert_eq!(bytes[..length], *expected);
            }
            let (mut reader, mut seen) = (ReportReader::default(), Vec::new());
            while seen.len() < 9 {
                let on = &mut |report| match report {
                    Report::Stamped { message, .. } => seen.push(message),
                    other => panic!("{other:?}"),
                };
                reader.read(outbox.as_fd(), on).unwrap();
            }
            let ids: Vec<_> = seen.iter().map(|message| outbox.id_of(*message)).collect();
            assert_eq!(ids, [70, 71, 72, 7, 8, 9, 700, 701, 702], "counted {counted}");
        }
    }

    #[test]
    fn t0_a_message_that_is_kept_may_have_a_launch_time_and_have_none() {
        let launch = Some((LaunchClock::Mono, LaunchMode { deadline: false, report: false }));
        let (listener, mut outbox) = pair(Treatment { launch, ..Treatment::default() });
        outbox.keep(b"kept", 0);
        let mut bytes = [0; 64];
        for launch_ns in [None, Some(1), Some(2), None, None, Some(3)] {
            outbox.send_kept(None, 0, launch_ns).unwrap();
            assert_eq!(listener.recv(&mut bytes).unwrap(), 4);
            assert_eq!(bytes[..4], *b"kept");
        }
    }
}

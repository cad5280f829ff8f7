// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A message that is sent at once, again and again. A thread that wakes for each finds its caches
//! cold, so that sending touches what is here and the message, and none of what an outbox has else.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::{CONTROL, Control, Counted, HEADER, Ids, Outbox, SCM_TS_OPT_ID, put};
use crate::direct;
use crate::talk::SO_TXTIME;

/// Bytes of a message that are others each time it is sent.
pub const ANEW: usize = 12;

/// The message, and what the kernel is told with it; [`Outbox::again`].
pub struct Again<'a> {
    fd: BorrowedFd<'a>,
    message: &'a mut [u8],
    /// Where the bytes begin that are others each time.
    anew: usize,
    naming: Naming,
    ids: &'a mut Ids,
    header: Header,
}

/// What the kernel is told with a message, ready but for values.
struct Header {
    whole: libc::msghdr,
    bytes: libc::iovec,
    control: Control,
    /// Whether it has a launch time, and a number.
    has: [bool; 2],
}

/// How the kernel gets to know the message's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// Not at all.
    None,
    /// It is told.
    Told,
    /// It counts, or it is not known yet whether it can be told.
    Otherwise,
}

impl Naming {
    fn of(ids: &Ids) -> Naming {
        match ids {
            Ids::Unnamed => Naming::None,
            Ids::Told { proven: true } => Naming::Told,
            Ids::Told { proven: false } | Ids::Counted(_) => Naming::Otherwise,
        }
    }
}

impl Outbox {
    /// For a message that is sent again and again; where the bytes begin that [`Again::renew`]
    /// writes.
    ///
    /// **Panics** when it is longer than a buffer.
    pub fn again<'a>(&'a mut self, message: &'a mut [u8], anew: usize) -> Again<'a> {
        assert!(message.len() <= self.longest, "{} bytes exceed a buffer", message.len());
        let naming = Naming::of(&self.ids);
        let header = Header::new();
        Again { fd: self.fd.as_fd(), message, anew, naming, ids: &mut self.ids, header }
    }
}

impl Header {
    fn new() -> Header {
        Header {
            // SAFETY: all-zero is a valid header, of no name: null pointers and plain integers.
            whole: unsafe { std::mem::zeroed() },
            bytes: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            control: Control([0; CONTROL]),
            has: [false; 2],
        }
    }

    /// Of these bytes, which are the same each time, with these values; to be used before `self`
    /// moves. Where all is comes anew only with a first message and after a move.
    #[inline(always)]
    fn with(
        &mut self,
        bytes: &mut [u8],
        launch_ns: Option<i64>,
        id: Option<u32>,
    ) -> *const libc::msghdr {
        let has = [launch_ns.is_some(), id.is_some()];
        if self.has != has || self.whole.msg_iov != &raw mut self.bytes {
            self.make(bytes, has);
        }
        let mut at = HEADER;
        if let Some(launch) = launch_ns {
            self.control.0[at..at + 8].copy_from_slice(&launch.to_ne_bytes());
            at += 8 + HEADER;
        }
        if let Some(id) = id {
            self.control.0[at..at + 4].copy_from_slice(&id.to_ne_bytes());
        }
        &raw const self.whole
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self, bytes: &mut [u8], [has_launch, has_id]: [bool; 2]) {
        let mut used = 0;
        if has_launch {
            used += put(&mut self.control.0, used, SO_TXTIME, &[0; 8]);
        }
        if has_id {
            used += put(&mut self.control.0, used, SCM_TS_OPT_ID, &[0; 4]);
        }
        self.bytes = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        (self.whole.msg_iov, self.whole.msg_iovlen) = (&raw mut self.bytes, 1);
        self.whole.msg_control = (&raw mut self.control).cast();
        self.whole.msg_controllen = used;
        self.has = [has_launch, has_id];
    }
}

impl Again<'_> {
    /// The message, to be changed.
    pub fn message(&mut self) -> &mut [u8] {
        self.message
    }

    /// Changes the bytes that are others each time.
    ///
    /// **Panics** when the message has no room for them.
    #[inline(always)]
    pub fn renew(&mut self, bytes: [u8; ANEW]) {
        self.message[self.anew..][..ANEW].copy_from_slice(&bytes);
    }

    /// Sends the message at once, past those that wait and without waiting for room. An error that
    /// an earlier message left on the socket (ICMP) does not hinder it.
    ///
    /// **Errors**: it was not taken.
    #[inline(always)]
    pub fn send(&mut self, id: u32, launch_ns: Option<i64>) -> io::Result<()> {
        let result = match self.naming {
            Naming::None if launch_ns.is_none() => direct::send(self.fd, self.message),
            Naming::None => self.send_with(launch_ns, None),
            Naming::Told => self.send_with(launch_ns, Some(id)),
            Naming::Otherwise => return self.send_carefully(id, launch_ns, None),
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => self.send_carefully(id, launch_ns, Some(error)),
        }
    }

    #[inline(always)]
    fn send_with(&mut self, launch_ns: Option<i64>, id: Option<u32>) -> io::Result<usize> {
        let header = self.header.with(self.message, launch_ns, id);
        // SAFETY: the header leads to itself and to the message, which are borrowed by `self` and
        // so do not move during the call; the kernel only reads them.
        unsafe { direct::send_message(self.fd, header) }
    }

    /// Sends it once, as is known so far.
    fn send_once(&mut self, id: u32, launch_ns: Option<i64>) -> io::Result<usize> {
        match &self.ids {
            Ids::Told { .. } => self.send_with(launch_ns, Some(id)),
            _ if launch_ns.is_some() => self.send_with(launch_ns, None),
            _ => direct::send(self.fd, self.message),
        }
    }

    /// Sends it until it is known what becomes of it, as [`Outbox::flush`] has it: after this
    /// error, or for the first time.
    #[cold]
    #[inline(never)]
    fn send_carefully(
        &mut self,
        id: u32,
        launch_ns: Option<i64>,
        mut before: Option<io::Error>,
    ) -> io::Result<()> {
        let mut is_repeated = false;
        loop {
            let result = match before.take() {
                None => self.send_once(id, launch_ns),
                Some(error) => Err(error),
            };
            let error = match result {
                Ok(_) => {
                    match &mut self.ids {
                        Ids::Unnamed => {}
                        Ids::Told { proven } => *proven = true,
                        Ids::Counted(counted) => counted.note(id),
                    }
                    self.naming = Naming::of(self.ids);
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
                *self.ids = Ids::Counted(Counted::new());
            } else if is_own || is_repeated {
                // The discipline dropped it, after it was counted.
                if let (Ids::Counted(counted), Some(libc::ENOBUFS)) = (&mut *self.ids, errno) {
                    counted.note(id);
                }
                return Err(error);
            } else {
                is_repeated = true;
            }
        }
    }
}

impl fmt::Debug for Again<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").field("fd", &self.fd).field("naming", &self.naming).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::super::{LaunchClock, Outgoing, Treatment};
    use super::*;
    use crate::error_queue::{Report, ReportReader, TxPoint};
    use crate::talk::LaunchMode;

    fn pair(treatment: Treatment) -> (UdpSocket, Outbox) {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (from, to) = ("127.0.0.1:0".parse().unwrap(), listener.local_addr().unwrap());
        let outbox = Outbox::udp(from, Some(to), None, 64, treatment).unwrap();
        (listener, outbox)
    }

    #[test]
    fn t0_a_message_goes_again_as_it_was_changed_last() {
        let (listener, mut outbox) = pair(Treatment::default());
        let mut bytes = [0; 64];
        let mut received = || {
            let length = listener.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let mut message = *b"<............>";
        let mut again = outbox.again(&mut message, 1);
        for id in 0..3 {
            again.renew(*b"twelve bytes");
            again.send(id, None).unwrap();
            assert_eq!(received(), "<twelve bytes>");
        }
        again.message()[0] = b'(';
        again.send(3, None).unwrap();
        assert_eq!(received(), "(twelve bytes>");
        // Past those that wait.
        outbox.buffer().unwrap()[..7].copy_from_slice(b"waiting");
        outbox.push(Outgoing { length: 7, id: 5, to: None, launch_ns: None });
        let mut short = *b"short";
        outbox.again(&mut short, 0).send(6, None).unwrap();
        outbox.flush(&mut |id, error| panic!("{id}: {error}"));
        assert_eq!([received(), received()], ["short", "waiting"]);
    }

    #[test]
    fn t0_a_message_that_goes_again_is_named_told_or_counted() {
        for counted in [false, true] {
            let (listener, mut outbox) = pair(Treatment::default());
            outbox.timestamp(&[TxPoint::Send]).unwrap();
            if counted {
                outbox.ids = Ids::Counted(Counted::new());
            }
            let mut message = *b"kept";
            for id in [70, 7, 700] {
                outbox.again(&mut message, 0).send(id, None).unwrap();
                outbox.buffer().unwrap()[..4].copy_from_slice(b"sent");
                outbox.push(Outgoing { length: 4, id: id + 1, to: None, launch_ns: None });
                outbox.flush(&mut |id, error| panic!("{id}: {error}"));
                let mut again = outbox.again(&mut message, 0);
                again.send(id + 2, None).unwrap();
                again.send(id + 3, None).unwrap();
            }
            let mut bytes = [0; 64];
            for expected in [b"kept", b"sent", b"kept", b"kept"].into_iter().cycle().take(12) {
                let length = listener.recv(&mut bytes).unwrap();
                assert_eq!(bytes[..length], *expected);
            }
            let (mut reader, mut seen) = (ReportReader::default(), Vec::new());
            while seen.len() < 12 {
                let on = &mut |report| match report {
                    Report::Timestamped { message, .. } => seen.push(message),
                    other => panic!("{other:?}"),
                };
                reader.read(outbox.as_fd(), on).unwrap();
            }
            let ids: Vec<_> = seen.iter().map(|message| outbox.id_of(*message)).collect();
            let expected = [70, 71, 72, 73, 7, 8, 9, 10, 700, 701, 702, 703];
            assert_eq!(ids, expected, "counted {counted}");
        }
    }

    #[test]
    fn t0_a_message_that_goes_again_may_have_a_launch_time_and_have_none() {
        let launch = Some((LaunchClock::Mono, LaunchMode { deadline: false, report: false }));
        let (listener, mut outbox) = pair(Treatment { launch, ..Treatment::default() });
        let mut message = *b"kept";
        let mut again = outbox.again(&mut message, 0);
        let mut bytes = [0; 64];
        for launch_ns in [None, Some(1), Some(2), None, None, Some(3)] {
            again.send(0, launch_ns).unwrap();
            assert_eq!(listener.recv(&mut bytes).unwrap(), 4);
            assert_eq!(bytes[..4], *b"kept");
        }
    }
}

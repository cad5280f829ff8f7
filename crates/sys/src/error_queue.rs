// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a sending socket hears back from the kernel: software stamps of its messages on their way
//! down, and messages that were dropped because of their launch time.
//!
//! Not here: sending (`talk`), receive stamps (`udp`, `packet`), hardware stamps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::socket::{check_len, set_option};

/// Where on its way a message is stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TxTap {
    /// Before the queueing discipline.
    Sched,
    /// As it is handed to the interface.
    Send,
    /// TCP only: when the other side has acknowledged its last byte.
    Acknowledged,
}

impl TxTap {
    /// From linux v6.12 `include/uapi/linux/net_tstamp.h`.
    fn flag(self) -> u32 {
        match self {
            TxTap::Sched => libc::SOF_TIMESTAMPING_TX_SCHED,
            TxTap::Send => libc::SOF_TIMESTAMPING_TX_SOFTWARE,
            TxTap::Acknowledged => libc::SOF_TIMESTAMPING_TX_ACK,
        }
    }

    /// From linux v6.12 `include/uapi/linux/errqueue.h:SCM_TSTAMP_*`.
    fn from_info(info: u32) -> Option<TxTap> {
        match info {
            0 => Some(TxTap::Send),
            1 => Some(TxTap::Sched),
            2 => Some(TxTap::Acknowledged),
            _ => None,
        }
    }
}

/// Why a queueing discipline dropped a message that had a launch time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchRefusal {
    /// At its arrival there: the launch time was past, or before that of a message sent already,
    /// or the socket has another clock or mode than the discipline.
    Invalid,
    /// It waited there until its launch time was over.
    Missed,
}

/// One entry of a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A message passed a tap.
    Stamped {
        /// Which one.
        tap: TxTap,
        /// Which message: datagrams are counted from 0; a TCP message is named by its last byte.
        message: u32,
        /// When.
        at: Instant<Utc>,
    },
    /// A message was dropped because of its launch time.
    Refused {
        /// Why.
        why: LaunchRefusal,
        /// The launch time that it had. **Units**: nanoseconds of the socket's launch clock.
        launch_ns: i64,
    },
    /// Something else, such as an ICMP message.
    Other {
        /// The error's number.
        errno: u32,
        /// Who says so: linux v6.12 `include/uapi/linux/errqueue.h:SO_EE_ORIGIN_*`.
        origin: u8,
    },
}

/// Has the kernel stamp every message of a socket at these taps. Datagrams are counted from 0 at
/// the first call.
///
/// **Errors**: the socket's kind has no stamps.
pub fn stamp_messages(fd: BorrowedFd<'_>, taps: &[TxTap]) -> io::Result<()> {
    let report = libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    let flags = taps.iter().fold(report, |flags, tap| flags | tap.flag());
    set_option(fd, libc::SOL_SOCKET, SO_TIMESTAMPING, &flags)
}

/// Takes the oldest entry of a socket's error queue; never waits. A wait for the socket
/// ([`crate::event::wait_readable`]) ends when there is one.
///
/// **Errors**: as `recvmsg`.
pub fn take(fd: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    let mut control = [0_u64; CONTROL / 8];
    let mut payload = [0_u8; 64];
    // SAFETY: all-zero is a valid msghdr: null pointers and plain integers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut iovec = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to `payload` and `control`, both alive and exclusively ours.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    match check_len(got) {
        Ok(_) => Ok(Some(report_of(&header))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// `struct sock_extended_err` of linux v6.12 `include/uapi/linux/errqueue.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ExtendedError {
    errno: u32,
    origin: u8,
    kind: u8,
    code: u8,
    pad: u8,
    info: u32,
    data: u32,
}

const _: () = assert!(size_of::<ExtendedError>() == 16);

fn report_of(header: &libc::msghdr) -> Report {
    let (mut error, mut stamp) = (None, None);
    // SAFETY: the kernel filled the header; its control pointer and length describe a live buffer.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: FIRSTHDR and NXTHDR return only headers that lie whole in the buffer.
        let (level, kind, data) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
        match (level, kind) {
            (libc::SOL_SOCKET, SO_TIMESTAMPING) => {
                // SAFETY: the kernel put three timespecs there; the first is the software stamp.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                stamp = Some(from_timespec(&time));
            }
            (libc::SOL_IP, libc::IP_RECVERR)
            | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            | (libc::SOL_PACKET, PACKET_TX_TIMESTAMP) => {
                // SAFETY: the kernel put a sock_extended_err there, of plain integers.
                error = Some(unsafe { data.cast::<ExtendedError>().read_unaligned() });
            }
            _ => {}
        }
        // SAFETY: `message` came from FIRSTHDR or NXTHDR on this header.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    match error {
        Some(error) => interpret(&error, stamp),
        None => Report::Other { errno: 0, origin: 0 },
    }
}

fn interpret(error: &ExtendedError, stamp: Option<Instant<Utc>>) -> Report {
    let other = Report::Other { errno: error.errno, origin: error.origin };
    match (error.origin, error.code, stamp) {
        (SO_EE_ORIGIN_TIMESTAMPING, _, Some(at)) => match TxTap::from_info(error.info) {
            Some(tap) => Report::Stamped { tap, message: error.data, at },
            None => other,
        },
        (SO_EE_ORIGIN_TXTIME, SO_EE_CODE_TXTIME_INVALID_PARAM, _) => {
            Report::Refused { why: LaunchRefusal::Invalid, launch_ns: launch_ns(error) }
        }
        (SO_EE_ORIGIN_TXTIME, SO_EE_CODE_TXTIME_MISSED, _) => {
            Report::Refused { why: LaunchRefusal::Missed, launch_ns: launch_ns(error) }
        }
        _ => other,
    }
}

/// The high half is in `data`, the low one in `info`
/// (linux v6.12 `net/sched/sch_etf.c:report_sock_error`).
fn launch_ns(error: &ExtendedError) -> i64 {
    let ns = u64::from(error.data) << 32 | u64::from(error.info);
    i64::from_ne_bytes(ns.to_ne_bytes())
}

const CONTROL: usize = 256;
const SO_TIMESTAMPING: libc::c_int = libc::SO_TIMESTAMPING;
// From linux v6.12 include/uapi/linux/{if_packet,errqueue}.h.
const PACKET_TX_TIMESTAMP: libc::c_int = 16;
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
const SO_EE_ORIGIN_TXTIME: u8 = 6;
const SO_EE_CODE_TXTIME_INVALID_PARAM: u8 = 1;
const SO_EE_CODE_TXTIME_MISSED: u8 = 2;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;
    use crate::event::wait_readable;

    fn next(fd: BorrowedFd<'_>) -> Report {
        loop {
            if let Some(report) = take(fd).unwrap() {
                return report;
            }
            wait_readable(&[fd], None).unwrap();
        }
    }

    #[test]
    fn t0_datagrams_are_stamped_and_counted() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        stamp_messages(from.as_fd(), &[TxTap::Sched, TxTap::Send]).unwrap();
        assert_eq!(take(from.as_fd()).unwrap(), None);
        let before = crate::clock::now::<Utc>();
        for number in 0..2 {
            from.send(b"x").unwrap();
            let mut stamps = [next(from.as_fd()), next(from.as_fd())];
            stamps.sort_by_key(|report| match report {
                Report::Stamped { tap, .. } => Some(*tap),
                _ => None,
            });
            let [sched, send] = stamps.map(|report| match report {
                Report::Stamped { tap, message, at } => (tap, message, at),
                other => panic!("{other:?}"),
            });
            assert_eq!(
                (sched.0, sched.1, send.0, send.1),
                (TxTap::Sched, number, TxTap::Send, number)
            );
            assert!(before <= sched.2 && sched.2 <= send.2);
        }
    }

    #[test]
    fn t0_an_acknowledged_message_is_named_by_its_last_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to, _) = listener.accept().unwrap();
        stamp_messages(from.as_fd(), &[TxTap::Acknowledged]).unwrap();
        from.write_all(b"four").unwrap();
        to.read_exact(&mut [0; 4]).unwrap();
        let report = next(from.as_fd());
        let named = matches!(report, Report::Stamped { tap: TxTap::Acknowledged, message: 3, .. });
        assert!(named, "{report:?}");
    }

    #[test]
    fn t0_a_refusal_has_the_launch_time() {
        let launch: i64 = 0x1234_5678_9abc_def0;
        let error = |code| ExtendedError {
            errno: 125,
            origin: SO_EE_ORIGIN_TXTIME,
            kind: 0,
            code,
            pad: 0,
            info: 0x9abc_def0,
            data: 0x1234_5678,
        };
        for (code, why) in [(1, LaunchRefusal::Invalid), (2, LaunchRefusal::Missed)] {
            let report = interpret(&error(code), None);
            assert_eq!(report, Report::Refused { why, launch_ns: launch });
        }
        assert_eq!(interpret(&error(3), None), Report::Other { errno: 125, origin: 6 });
    }
}

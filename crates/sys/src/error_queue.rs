// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a sending socket hears back from the kernel: timestamps of its messages on their way down
//! and of the NIC, and messages that were dropped because of their launch time.

use std::io;
use std::os::fd::BorrowedFd;

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::direct;
use crate::messages::{Plain, control_of, each_control, value_of};
use crate::socket::set_option;

/// Where on its way a message is timestamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TxPoint {
    /// Before the queueing discipline.
    Sched,
    /// As it is handed to the interface.
    Send,
    /// By the NIC, as it leaves.
    Hardware,
    /// TCP only: when the other side has acknowledged its last byte.
    Acknowledged,
}

/// The time of a timestamp, and whose clock that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxTime {
    /// This kernel's clock.
    System(Instant<Utc>),
    /// The NIC's own clock. **Units**: nanoseconds, mostly TAI since 1970.
    Nic {
        /// What it read.
        ns: i64,
    },
}

impl TxPoint {
    /// From linux v6.12 `include/uapi/linux/net_tstamp.h`.
    fn flag(self) -> u32 {
        match self {
            TxPoint::Sched => libc::SOF_TIMESTAMPING_TX_SCHED,
            TxPoint::Send => libc::SOF_TIMESTAMPING_TX_SOFTWARE,
            // A software timestamp comes as well, if that is asked for.
            TxPoint::Hardware => {
                libc::SOF_TIMESTAMPING_TX_HARDWARE
                    | libc::SOF_TIMESTAMPING_RAW_HARDWARE
                    | libc::SOF_TIMESTAMPING_OPT_TX_SWHW
            }
            TxPoint::Acknowledged => libc::SOF_TIMESTAMPING_TX_ACK,
        }
    }

    /// From linux v6.12 `include/uapi/linux/errqueue.h:SCM_TSTAMP_*`.
    fn from_info(info: u32) -> Option<TxPoint> {
        match info {
            0 => Some(TxPoint::Send),
            1 => Some(TxPoint::Sched),
            2 => Some(TxPoint::Acknowledged),
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
    /// A message passed a timestamp point.
    Timestamped {
        /// Which one.
        point: TxPoint,
        /// Which message: datagrams are counted from 0; a TCP message is named by its last byte.
        message: u32,
        /// When.
        at: TxTime,
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

/// Has the kernel timestamp every message of a socket at these timestamp points. Datagrams are
/// counted from 0 at the first call.
///
/// **Errors**: the socket's kind has no timestamps.
pub fn timestamp_messages(fd: BorrowedFd<'_>, points: &[TxPoint]) -> io::Result<()> {
    let report = libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    let flags = points.iter().fold(report, |flags, point| flags | point.flag());
    set_option(fd, libc::SOL_SOCKET, SO_TIMESTAMPING, &flags)
}

/// Takes the oldest entry of a socket's error queue; never waits. A wait for the socket
/// ([`crate::event::wait_readable`]) ends when there is one.
///
/// **Errors**: as `recvmsg`.
pub fn take(fd: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    let mut room = Room::EMPTY;
    // SAFETY: all-zero is a valid mmsghdr: null pointers and plain integers.
    let mut header: [libc::mmsghdr; 1] = unsafe { std::mem::zeroed() };
    header[0].msg_hdr.msg_control = room.0.as_mut_ptr().cast();
    header[0].msg_hdr.msg_controllen = CONTROL;
    let mut found = None;
    // SAFETY: the header points to a room of CONTROL bytes, alive and exclusively ours.
    unsafe { read(fd, &mut header, &mut |report| found = Some(report))? };
    Ok(found)
}

/// Takes many entries with one system call; keeps the room for them, and the headers that lead to
/// it.
pub struct ReportReader {
    headers: Vec<libc::mmsghdr>,
    /// Only for the headers to point to.
    _rooms: Vec<Room>,
}

// SAFETY: the pointers in the headers lead to the rooms, which go with them and which nobody else
// reaches.
unsafe impl Send for ReportReader {}

impl std::fmt::Debug for ReportReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReportReader")
    }
}

impl Default for ReportReader {
    fn default() -> ReportReader {
        let mut rooms = vec![Room::EMPTY; BATCH];
        // No room for bytes: with `OPT_TSONLY` there are none, and those of others are not wanted.
        // SAFETY: all-zero is a valid mmsghdr: null pointers and plain integers.
        let mut headers: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; BATCH];
        for (header, room) in headers.iter_mut().zip(&mut rooms) {
            header.msg_hdr.msg_control = room.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL;
        }
        ReportReader { headers, _rooms: rooms }
    }
}

impl ReportReader {
    /// Takes what is in a socket's error queue now, oldest first, up to [`BATCH`] entries; never
    /// waits and never allocates. Returns how many there were.
    ///
    /// **Errors**: as `recvmmsg`.
    #[inline]
    pub fn read<F: FnMut(Report) + ?Sized>(
        &mut self,
        fd: BorrowedFd<'_>,
        on: &mut F,
    ) -> io::Result<usize> {
        // SAFETY: the headers point to our rooms, which live as long and do not move: a vector's
        // memory stays where it is.
        unsafe { read(fd, &mut self.headers, on) }
    }
}

/// Most entries that one call takes.
pub const BATCH: usize = 32;

/// Room for the control messages of one entry, aligned as their headers want.
#[derive(Clone, Copy, Debug)]
struct Room([u64; CONTROL / 8]);

impl Room {
    const EMPTY: Room = Room([0; CONTROL / 8]);
}

/// Leaves the headers as they were.
///
/// # Safety
/// Each header points to CONTROL writable bytes that nobody else uses, asks for no bytes and no
/// name, and is otherwise zero.
#[inline]
unsafe fn read<F: FnMut(Report) + ?Sized>(
    fd: BorrowedFd<'_>,
    headers: &mut [libc::mmsghdr],
    on: &mut F,
) -> io::Result<usize> {
    let room = libc::c_uint::try_from(headers.len()).expect("invariant: at most BATCH");
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the caller vouches for the headers, of which there are so many.
    match unsafe { direct::receive_messages(fd, headers.as_mut_ptr(), room, flags) } {
        Ok(got) => {
            for header in &mut headers[..got] {
                // SAFETY: the kernel filled the header, which describes a live buffer.
                let report = unsafe { report_of(&header.msg_hdr) };
                header.msg_hdr.msg_controllen = CONTROL;
                on(report);
            }
            Ok(got)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
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

// SAFETY: of integers.
unsafe impl Plain for ExtendedError {}

/// The two control messages of nearly all entries, one behind the other, in the order in which the
/// kernel writes them (linux v6.12 `net/core/sock.c:sock_recv_errqueue`, with what
/// `net/ipv4/ip_sockglue.c:ip_recv_error` has).
#[repr(C)]
#[derive(Clone, Copy)]
struct Timestamped {
    first: ControlHeader,
    times: [libc::timespec; 3],
    second: ControlHeader,
    error: ExtendedError,
}

/// `struct cmsghdr`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct ControlHeader {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
}

const _: () = assert!(size_of::<Timestamped>() == 96 && size_of::<ControlHeader>() == 16);

// SAFETY: of integers.
unsafe impl Plain for Timestamped {}

impl Timestamped {
    #[inline]
    fn is_one(&self) -> bool {
        const TIMES: ControlHeader =
            ControlHeader { length: 64, level: libc::SOL_SOCKET, kind: SO_TIMESTAMPING };
        self.first == TIMES
            && self.second.length >= 32
            && matches!(
                (self.second.level, self.second.kind),
                (libc::SOL_PACKET, PACKET_TX_TIMESTAMP)
                    | (libc::SOL_IP, libc::IP_RECVERR)
                    | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            )
    }
}

/// # Safety
/// The header's control pointer and length describe a live buffer that the kernel has filled.
#[inline(always)]
unsafe fn report_of(header: &libc::msghdr) -> Report {
    // SAFETY: the caller vouches for the buffer.
    let buffer = unsafe { control_of(header) };
    match value_of::<Timestamped>(buffer).filter(Timestamped::is_one) {
        Some(timestamped) => interpret(&timestamped.error, timestamp_of(&timestamped.times)),
        None => report_of_any(buffer),
    }
}

/// What control messages in any order say.
#[cold]
fn report_of_any(buffer: &[u8]) -> Report {
    let (mut error, mut timestamp) = (None, None);
    each_control(buffer, |level, kind, data| match (level, kind) {
        (libc::SOL_SOCKET, SO_TIMESTAMPING) => {
            timestamp =
                value_of::<[libc::timespec; 3]>(data).and_then(|times| timestamp_of(&times));
        }
        (libc::SOL_IP, libc::IP_RECVERR)
        | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        | (libc::SOL_PACKET, PACKET_TX_TIMESTAMP) => error = value_of::<ExtendedError>(data),
        _ => {}
    });
    match error {
        Some(error) => interpret(&error, timestamp),
        None => Report::Other { errno: 0, origin: 0 },
    }
}

/// Of three times the first is the kernel's, the last the NIC's; one of them is not zero.
#[inline]
fn timestamp_of(times: &[libc::timespec; 3]) -> Option<TxTime> {
    let is_set = |time: &libc::timespec| time.tv_sec != 0 || time.tv_nsec != 0;
    if is_set(&times[2]) {
        let ns = from_timespec::<Utc>(&times[2]).as_ns();
        return Some(TxTime::Nic { ns });
    }
    is_set(&times[0]).then(|| TxTime::System(from_timespec(&times[0])))
}

#[inline]
fn interpret(error: &ExtendedError, timestamp: Option<TxTime>) -> Report {
    let other = Report::Other { errno: error.errno, origin: error.origin };
    match (error.origin, error.code, timestamp) {
        (SO_EE_ORIGIN_TIMESTAMPING, _, Some(at)) => {
            let point = match (TxPoint::from_info(error.info), at) {
                (Some(TxPoint::Send), TxTime::Nic { .. }) => Some(TxPoint::Hardware),
                (point, _) => point,
            };
            match point {
                Some(point) => Report::Timestamped { point, message: error.data, at },
                None => other,
            }
        }
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
    fn t0_datagrams_are_timestamped_and_counted() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        timestamp_messages(from.as_fd(), &[TxPoint::Sched, TxPoint::Send]).unwrap();
        assert_eq!(take(from.as_fd()).unwrap(), None);
        let before = crate::clock::now::<Utc>();
        for number in 0..2 {
            from.send(b"x").unwrap();
            let mut timestamps = [next(from.as_fd()), next(from.as_fd())];
            timestamps.sort_by_key(|report| match report {
                Report::Timestamped { point, .. } => Some(*point),
                _ => None,
            });
            let [sched, send] = timestamps.map(|report| match report {
                Report::Timestamped { point, message, at: TxTime::System(at) } => {
                    (point, message, at)
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(
                (sched.0, sched.1, send.0, send.1),
                (TxPoint::Sched, number, TxPoint::Send, number)
            );
            assert!(before <= sched.2 && sched.2 <= send.2);
        }
    }

    #[test]
    fn t0_an_acknowledged_message_is_named_by_its_last_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to, _) = listener.accept().unwrap();
        timestamp_messages(from.as_fd(), &[TxPoint::Acknowledged]).unwrap();
        from.write_all(b"four").unwrap();
        to.read_exact(&mut [0; 4]).unwrap();
        let report = next(from.as_fd());
        let named =
            matches!(report, Report::Timestamped { point: TxPoint::Acknowledged, message: 3, .. });
        assert!(named, "{report:?}");
    }

    #[test]
    fn t0_many_reports_are_taken_at_once_and_in_order() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        timestamp_messages(from.as_fd(), &[TxPoint::Send]).unwrap();
        let count: usize = 3 * BATCH / 2;
        for _ in 0..count {
            from.send(b"x").unwrap();
        }
        let (mut reader, mut seen) = (ReportReader::default(), Vec::new());
        while seen.len() < count {
            reader.read(from.as_fd(), &mut |report| seen.push(report)).unwrap();
        }
        for (number, report) in (0..).zip(&seen) {
            let is_it = matches!(report, Report::Timestamped { message, .. } if *message == number);
            assert!(is_it, "{report:?}");
        }
        assert_eq!(reader.read(from.as_fd(), &mut |_| ()).unwrap(), 0);
    }

    #[test]
    fn t0_a_timestamp_names_its_clock() {
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let none = time(0, 0);
        let error = ExtendedError {
            errno: 42,
            origin: SO_EE_ORIGIN_TIMESTAMPING,
            kind: 0,
            code: 0,
            pad: 0,
            info: 0,
            data: 7,
        };
        let system = interpret(&error, timestamp_of(&[time(1, 5), none, none]));
        let at = TxTime::System(Instant::from_ns(1_000_000_005));
        assert_eq!(system, Report::Timestamped { point: TxPoint::Send, message: 7, at });
        let nic = interpret(&error, timestamp_of(&[none, none, time(2, 6)]));
        let at = TxTime::Nic { ns: 2_000_000_006 };
        assert_eq!(nic, Report::Timestamped { point: TxPoint::Hardware, message: 7, at });
        let none = interpret(&error, timestamp_of(&[none; 3]));
        assert_eq!(none, Report::Other { errno: 42, origin: SO_EE_ORIGIN_TIMESTAMPING });
    }

    #[test]
    fn t0_usual_entries_are_read_as_any_other() {
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let header = |length, level, kind| ControlHeader { length, level, kind };
        let error = ExtendedError {
            errno: 42,
            origin: SO_EE_ORIGIN_TIMESTAMPING,
            kind: 0,
            code: 0,
            pad: 0,
            info: 1,
            data: 7,
        };
        let kinds = [
            (libc::SOL_PACKET, PACKET_TX_TIMESTAMP, 32),
            (libc::SOL_IP, libc::IP_RECVERR, 48),
            (libc::SOL_IPV6, libc::IPV6_RECVERR, 60),
        ];
        for (level, kind, length) in kinds {
            for times in [[time(1, 5), time(0, 0), time(0, 0)], [time(0, 0); 3]] {
                let first = header(64, libc::SOL_SOCKET, SO_TIMESTAMPING);
                let second = header(length, level, kind);
                let entry = Timestamped { first, times, second, error };
                // SAFETY: of integers without padding, it is readable as so many bytes.
                let bytes: [u8; 96] = unsafe { std::mem::transmute(entry) };
                // The address of who complains follows, of UDP.
                let mut room = [[0_u64; 4], [0; 4], [0; 4], [0; 4]].concat();
                let control: Vec<u8> = bytes.iter().copied().chain([0; 32]).collect();
                for (word, chunk) in room.iter_mut().zip(control.chunks_exact(8)) {
                    *word = u64::from_ne_bytes(chunk.try_into().unwrap());
                }
                // SAFETY: all-zero is a valid msghdr: null pointers and plain integers.
                let mut filled: libc::msghdr = unsafe { std::mem::zeroed() };
                filled.msg_control = room.as_mut_ptr().cast();
                filled.msg_controllen = 64 + length.next_multiple_of(8);
                assert!(entry.is_one());
                // SAFETY: the header describes `room`.
                let report = unsafe { report_of(&filled) };
                assert_eq!(report, report_of_any(&control[..filled.msg_controllen]));
                let is_timestamp = matches!(report, Report::Timestamped { message: 7, .. });
                assert_eq!(is_timestamp, times[0].tv_sec == 1, "{report:?}");
            }
        }
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

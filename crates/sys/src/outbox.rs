// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending many messages with one system call: a socket for UDP or for whole frames, whose messages
//! are written into buffers of its own, each with a number, and with a destination and a launch
//! time if they have one, and go together with [`Outbox::flush`]. One that is much like the one
//! before is sent at once (`again`).
//!
//! What comes back names a message by that number, once timestamps were asked for
//! ([`Outbox::timestamp`]): on Linux 6.13 and later the kernel is told it with each message
//! (`SCM_TS_OPT_ID`), before that its own count is followed.
//!
//! Not here: what comes back (`error_queue`), one message at a time (`talk`), memory shared with
//! the kernel (`packet_ring`, `xsk_talk`).

mod again;

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use timewire_base::{IfName, Mono, SocketPriority, Tai};

use crate::direct;
use crate::error_queue::{TxPoint, timestamp_messages};
use crate::socket::{bind_packet, set_option, size_of_u32, socket};
use crate::talk::{LaunchMode, SO_TXTIME, enable_launch};

pub use again::{ANEW, Again};

/// Messages that can wait for [`Outbox::flush`].
pub const BATCH: usize = 32;

/// The clock that launch times are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchClock {
    /// `CLOCK_TAI`: `etf` and `taprio` want it, `fq` takes it since Linux 6.11.
    #[default]
    Tai,
    /// `CLOCK_MONOTONIC`: `fq`.
    Mono,
}

/// How the messages of a socket are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// `SO_PRIORITY`: the traffic class, through the discipline's map.
    pub priority: Option<SocketPriority>,
    /// The byte of the IP header that has DSCP and ECN (`IP_TOS`, `IPV6_TCLASS`); no meaning for
    /// whole frames.
    pub traffic_class: Option<u8>,
    /// Whether messages can have a launch time, of which clock, and how it is meant.
    pub launch: Option<(LaunchClock, LaunchMode)>,
    /// Bytes that may wait in the kernel; `None` leaves the system's choice.
    pub buffer_bytes: Option<u32>,
    /// Whole frames go to the driver without the queueing discipline.
    pub qdisc_bypass: bool,
}

/// One message that waits for [`Outbox::flush`].
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// **Units**: bytes, at the start of the buffer.
    pub length: usize,
    /// By which reports name it.
    pub id: u32,
    /// Where it goes, if the socket is not connected.
    pub to: Option<SocketAddr>,
    /// **Units**: nanoseconds of the socket's launch clock.
    pub launch_ns: Option<i64>,
}

/// A socket with buffers for the messages of one flush.
pub struct Outbox {
    fd: OwnedFd,
    longest: usize,
    bytes: Box<[u8]>,
    waiting: usize,
    messages: Box<[Outgoing; BATCH]>,
    room: Box<Room>,
    ids: Ids,
}

/// How the kernel's names of messages become ours.
#[derive(Clone, Debug)]
pub(crate) enum Ids {
    /// It names none: no timestamps were asked for.
    Unnamed,
    /// It is told ours with each message. `proven` when it has taken one.
    Told { proven: bool },
    /// It counts.
    Counted(Counted),
}

/// The numbers of the messages that the kernel counted last.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    ids: Box<[u32; REMEMBERED]>,
    next: u32,
}

/// Messages whose numbers are remembered; a report comes within milliseconds.
const REMEMBERED: usize = 8_192;

impl Counted {
    pub(crate) fn new() -> Counted {
        Counted { ids: Box::new([0; REMEMBERED]), next: 0 }
    }

    fn slot(count: u32) -> usize {
        usize::try_from(count).expect("invariant: u32 fits usize") % REMEMBERED
    }

    /// The kernel has counted this message.
    pub(crate) fn note(&mut self, id: u32) {
        self.ids[Self::slot(self.next)] = id;
        self.next = self.next.wrapping_add(1);
    }

    /// Our number of the message that the kernel gave this one.
    pub(crate) fn id_of(&self, count: u32) -> u32 {
        self.ids[Self::slot(count)]
    }
}

impl Outbox {
    /// A UDP socket bound to an address, and to an interface if one is given; connected if `to` is
    /// given. Its error queue has ICMP errors too. `longest` is that of a message in bytes.
    ///
    /// **Errors**: the address is not of this host; `EPERM` for a priority above 6, an interface or
    /// launch times of TAI without `CAP_NET_ADMIN` (and `CAP_NET_RAW` for the interface before
    /// Linux 5.7).
    pub fn udp(
        from: SocketAddr,
        to: Option<SocketAddr>,
        device: Option<&IfName>,
        longest: usize,
        treatment: Treatment,
    ) -> io::Result<Outbox> {
        let udp = UdpSocket::bind(from)?;
        if let Some(device) = device {
            bind_to_device(udp.as_fd(), device)?;
        }
        let yes: libc::c_int = 1;
        let (level, errors, class) = match from {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, libc::IPV6_TCLASS),
        };
        set_option(udp.as_fd(), level, errors, &yes)?;
        // Before the priority, which it changes.
        if let Some(value) = treatment.traffic_class {
            set_option(udp.as_fd(), level, class, &libc::c_int::from(value))?;
        }
        if let Some(to) = to {
            udp.connect(to)?;
        }
        Self::with(udp.into(), longest, treatment)
    }

    /// A socket for whole frames on an interface of the caller's network namespace. `longest` is
    /// that of a frame in bytes.
    ///
    /// **Errors**: `EPERM` without `CAP_NET_RAW`, or as for UDP.
    pub fn frames(interface: u32, longest: usize, treatment: Treatment) -> io::Result<Outbox> {
        // Protocol 0: it receives nothing.
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        if treatment.qdisc_bypass {
            let yes: libc::c_int = 1;
            set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &yes)?;
        }
        bind_packet(fd.as_fd(), interface, 0)?;
        Self::with(fd, longest, treatment)
    }

    fn with(fd: OwnedFd, longest: usize, treatment: Treatment) -> io::Result<Outbox> {
        treat(fd.as_fd(), treatment)?;
        let none = Outgoing { length: 0, id: 0, to: None, launch_ns: None };
        Ok(Outbox {
            fd,
            longest,
            bytes: vec![0; longest * BATCH].into_boxed_slice(),
            waiting: 0,
            messages: Box::new([none; BATCH]),
            room: Box::new(Room::new()),
            ids: Ids::Unnamed,
        })
    }

    /// Has the kernel timestamp every message at these timestamp points, and name it with its
    /// timestamps.
    ///
    /// **Errors**: the socket's kind has no timestamps.
    pub fn timestamp(&mut self, points: &[TxPoint]) -> io::Result<()> {
        timestamp_messages(self.fd.as_fd(), points)?;
        self.ids = Ids::Told { proven: false };
        Ok(())
    }

    /// Whether there is a buffer for one more message.
    #[inline]
    pub fn has_buffer(&self) -> bool {
        self.waiting < BATCH
    }

    /// The buffer of the next message; `None` while as many wait as one flush takes.
    #[inline]
    pub fn buffer(&mut self) -> Option<&mut [u8]> {
        if !self.has_buffer() {
            return None;
        }
        let start = self.waiting * self.longest;
        Some(&mut self.bytes[start..start + self.longest])
    }

    /// Puts the message that was written into [`Outbox::buffer`] behind the others.
    ///
    /// **Panics** when as many wait as one flush takes, or it is longer than a buffer.
    #[inline]
    pub fn push(&mut self, message: Outgoing) {
        assert!(self.waiting < BATCH, "{BATCH} messages wait for a flush");
        assert!(message.length <= self.longest, "{} bytes exceed a buffer", message.length);
        self.messages[self.waiting] = message;
        self.waiting += 1;
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends what waits, in order, without waiting for room. A message that was not taken is told
    /// and not sent later; those behind it are sent. An error that an earlier message left on the
    /// socket (ICMP) costs no message.
    pub fn flush(&mut self, refused: &mut dyn FnMut(u32, io::Error)) {
        if self.waiting == 0 {
            return;
        }
        let (mut at, mut repeated) = (0, None);
        while at < self.waiting {
            match self.send_from(at) {
                Ok(sent) => {
                    match &mut self.ids {
                        Ids::Unnamed => {}
                        Ids::Told { proven } => *proven = true,
                        Ids::Counted(counted) => {
                            let taken = &self.messages[at..at + sent];
                            taken.iter().for_each(|message| counted.note(message.id));
                        }
                    }
                    at += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let errno = error.raw_os_error();
                    let is_untold = matches!(self.ids, Ids::Told { proven: false });
                    if errno == Some(libc::EINVAL) && is_untold {
                        // Linux before 6.13 does not know the control message.
                        self.ids = Ids::Counted(Counted::new());
                        continue;
                    }
                    let is_own = matches!(errno, Some(libc::EAGAIN | libc::ENOBUFS | libc::EPERM));
                    if !is_own && repeated != Some(at) {
                        repeated = Some(at);
                        continue;
                    }
                    let id = self.messages[at].id;
                    // The discipline dropped it, after it was counted.
                    if let (Ids::Counted(counted), Some(libc::ENOBUFS)) = (&mut self.ids, errno) {
                        counted.note(id);
                    }
                    refused(id, error);
                    at += 1;
                }
            }
        }
        self.waiting = 0;
    }

    /// Our number of the message that a report names.
    #[inline]
    pub fn id_of(&self, message: u32) -> u32 {
        match &self.ids {
            Ids::Unnamed | Ids::Told { .. } => message,
            Ids::Counted(counted) => counted.id_of(message),
        }
    }

    fn send_from(&mut self, first: usize) -> io::Result<usize> {
        if self.waiting - first == 1 {
            return self.send_last();
        }
        let tell = matches!(self.ids, Ids::Told { .. });
        for index in first..self.waiting {
            let message = self.messages[index];
            let start = index * self.longest;
            let bytes = &self.bytes[start..start + message.length];
            self.room.point(index, bytes, &message, tell);
        }
        let count = libc::c_uint::try_from(self.waiting - first).expect("invariant: at most BATCH");
        // SAFETY: the headers `first..waiting` were just pointed to our own buffers, names and
        // control messages, which do not move during the call and which the kernel only reads.
        unsafe {
            let headers = self.room.headers.as_mut_ptr().add(first);
            direct::send_messages(self.fd.as_fd(), headers, count)
        }
    }

    /// The last of those that wait: mostly the only one.
    fn send_last(&mut self) -> io::Result<usize> {
        let index = self.waiting - 1;
        let message = &self.messages[index];
        let start = index * self.longest;
        let bytes = &self.bytes[start..start + message.length];
        let tell = matches!(self.ids, Ids::Told { .. });
        if !tell && message.to.is_none() && message.launch_ns.is_none() {
            return direct::send(self.fd.as_fd(), bytes).map(|_| 1);
        }
        self.room.point(index, bytes, message, tell);
        let header = &raw const self.room.headers[index].msg_hdr;
        // SAFETY: the header was just pointed to our own buffer, name and control messages, which
        // do not move during the call and which the kernel only reads.
        unsafe { direct::send_message(self.fd.as_fd(), header) }.map(|_| 1)
    }
}

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("fd", &self.fd).field("ids", &self.ids).finish()
    }
}

/// Sets what sockets of all kinds have.
pub(crate) fn treat(fd: BorrowedFd<'_>, treatment: Treatment) -> io::Result<()> {
    if let Some(priority) = treatment.priority {
        let value = libc::c_int::from(priority.get());
        set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, &value)?;
    }
    match treatment.launch {
        Some((LaunchClock::Tai, mode)) => enable_launch::<Tai>(fd, mode)?,
        Some((LaunchClock::Mono, mode)) => enable_launch::<Mono>(fd, mode)?,
        None => {}
    }
    if let Some(bytes) = treatment.buffer_bytes {
        let forced = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
        if forced.is_err() {
            set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes)?;
        }
    }
    Ok(())
}

fn bind_to_device(fd: BorrowedFd<'_>, device: &IfName) -> io::Result<()> {
    let mut name = [0_u8; libc::IFNAMSIZ];
    name[..device.as_str().len()].copy_from_slice(device.as_str().as_bytes());
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)
}

/// What `sendmmsg` works on, kept from call to call.
struct Room {
    iovecs: [libc::iovec; BATCH],
    headers: [libc::mmsghdr; BATCH],
    names: [Name; BATCH],
    control: [Control; BATCH],
}

// SAFETY: the pointers in it are written anew before each call that reads them, and lead to the
// room itself and to the buffers of the same outbox.
unsafe impl Send for Room {}

/// An address of either family.
#[repr(C)]
#[derive(Clone, Copy)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Room for a launch time and a number, aligned as their headers want.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

impl Room {
    fn new() -> Room {
        // SAFETY: all-zero is valid for all four: null pointers, plain integers and bytes.
        unsafe { std::mem::zeroed() }
    }

    fn point(&mut self, index: usize, bytes: &[u8], message: &Outgoing, tell: bool) {
        // The kernel only reads it.
        let base = bytes.as_ptr().cast_mut().cast();
        self.iovecs[index] = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = &raw mut self.iovecs[index];
        header.msg_iovlen = 1;
        header.msg_name = std::ptr::null_mut();
        header.msg_namelen = 0;
        if let Some(to) = message.to {
            header.msg_namelen = write_name(&mut self.names[index], to);
            header.msg_name = (&raw mut self.names[index]).cast();
        }
        let control = &mut self.control[index].0;
        let mut used = 0;
        if let Some(launch) = message.launch_ns {
            used += put(control, used, SO_TXTIME, &launch.to_ne_bytes());
        }
        if tell {
            used += put(control, used, SCM_TS_OPT_ID, &message.id.to_ne_bytes());
        }
        header.msg_controllen = used;
        header.msg_control =
            if used == 0 { std::ptr::null_mut() } else { control.as_mut_ptr().cast() };
    }
}

/// Writes one control message of the socket level; returns how much room it took.
#[inline]
pub(crate) fn put(control: &mut [u8], at: usize, kind: libc::c_int, value: &[u8]) -> usize {
    let length = HEADER + value.len();
    let to = &mut control[at..];
    // `struct cmsghdr`: length, level, type.
    to[..8].copy_from_slice(&length.to_ne_bytes());
    to[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    to[12..16].copy_from_slice(&kind.to_ne_bytes());
    to[HEADER..length].copy_from_slice(value);
    length.next_multiple_of(8)
}

fn write_name(name: &mut Name, to: SocketAddr) -> libc::socklen_t {
    let family = |family: libc::c_int| {
        libc::sa_family_t::try_from(family).expect("invariant: families are small")
    };
    match to {
        SocketAddr::V4(to) => {
            name.v4 = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
                sin_zero: [0; 8],
            };
            size_of_u32::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            name.v6 = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: to.port().to_be(),
                sin6_flowinfo: to.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
                sin6_scope_id: to.scope_id(),
            };
            size_of_u32::<libc::sockaddr_in6>()
        }
    }
}

const HEADER: usize = 16;
const CONTROL: usize = 48;
const _: () = assert!(size_of::<libc::cmsghdr>() == HEADER);
// SAFETY: CMSG_SPACE() only computes.
const _: () = assert!(unsafe { libc::CMSG_SPACE(8) + libc::CMSG_SPACE(4) } as usize == CONTROL);
/// From linux v6.13 `include/uapi/asm-generic/socket.h`.
const SCM_TS_OPT_ID: libc::c_int = 81;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error_queue::{self, Report, ReportReader};

    fn put_message(outbox: &mut Outbox, id: u32, to: Option<SocketAddr>) {
        let text = format!("message {id}");
        outbox.buffer().unwrap()[..text.len()].copy_from_slice(text.as_bytes());
        outbox.push(Outgoing { length: text.len(), id, to, launch_ns: None });
    }

    fn any(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn listener(at: &str) -> Option<UdpSocket> {
        let Ok(listener) = UdpSocket::bind(at) else {
            eprintln!("SKIP: no {at} on this host");
            return None;
        };
        listener.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Some(listener)
    }

    #[test]
    fn t0_one_flush_sends_to_several_destinations_in_order() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Some((a, b)) = listener(at).zip(listener(at)) else { continue };
            let to = [&a, &b].map(|one| one.local_addr().unwrap());
            let mut outbox = Outbox::udp(any(at), None, None, 64, Treatment::default()).unwrap();
            for round in 0..3 {
                for id in 0..6 {
                    put_message(&mut outbox, round * 6 + id, Some(to[usize::from(id % 2 == 1)]));
                }
                outbox.flush(&mut |id, error| panic!("{id}: {error}"));
            }
            let mut bytes = [0; 64];
            for id in 0..18 {
                let length = [&a, &b][id % 2].recv(&mut bytes).unwrap();
                assert_eq!(bytes[..length], *format!("message {id}").as_bytes());
            }
        }
    }

    #[test]
    fn t0_timestamps_name_the_message_told_or_counted() {
        let listener = listener("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        for counted in [false, true] {
            let from = any("127.0.0.1:0");
            let mut outbox = Outbox::udp(from, Some(to), None, 64, Treatment::default()).unwrap();
            outbox.timestamp(&[TxPoint::Send]).unwrap();
            if counted {
                outbox.ids = Ids::Counted(Counted::new());
            }
            for id in [70, 7, 700] {
                put_message(&mut outbox, id, None);
            }
            outbox.flush(&mut |id, error| panic!("{id}: {error}"));
            let (mut reader, mut seen) = (ReportReader::default(), Vec::new());
            while seen.len() < 3 {
                let on = &mut |report| match report {
                    Report::Timestamped { message, .. } => seen.push(message),
                    other => panic!("{other:?}"),
                };
                reader.read(outbox.as_fd(), on).unwrap();
            }
            let ids: Vec<_> = seen.iter().map(|message| outbox.id_of(*message)).collect();
            assert_eq!(ids, [70, 7, 700], "counted {counted}, seen {seen:?}");
            if counted {
                assert_eq!(seen, [0, 1, 2]);
            }
        }
    }

    #[test]
    fn t0_an_icmp_error_costs_no_message_and_is_told() {
        // A port that nobody has any more.
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let there = listener("127.0.0.1:0").unwrap();
        let to = there.local_addr().unwrap();
        let from = any("127.0.0.1:0");
        let mut outbox = Outbox::udp(from, None, None, 64, Treatment::default()).unwrap();
        for id in 0..5 {
            put_message(&mut outbox, 2 * id, Some(gone));
            put_message(&mut outbox, 2 * id + 1, Some(to));
        }
        outbox.flush(&mut |id, error| panic!("{id}: {error}"));
        let mut bytes = [0; 64];
        for id in 0..5 {
            let length = there.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *format!("message {}", 2 * id + 1).as_bytes());
        }
        let mut unreachable = 0;
        while unreachable < 5 {
            match error_queue::take(outbox.as_fd()).unwrap() {
                Some(Report::Other { errno, origin: 2 }) => {
                    assert_eq!(i32::try_from(errno).unwrap(), libc::ECONNREFUSED);
                    unreachable += 1;
                }
                other => assert_eq!(other, None),
            }
        }
    }

    #[test]
    fn t0_what_is_refused_is_told_and_the_others_are_sent() {
        let there = listener("127.0.0.1:0").unwrap();
        let to = there.local_addr().unwrap();
        let from = any("127.0.0.1:0");
        let mut outbox = Outbox::udp(from, None, None, 64, Treatment::default()).unwrap();
        put_message(&mut outbox, 1, Some(to));
        // An address of the other family.
        put_message(&mut outbox, 2, Some(any("[2001:db8::1]:9")));
        put_message(&mut outbox, 3, Some(to));
        let mut refused = Vec::new();
        outbox.flush(&mut |id, error| refused.push((id, error.raw_os_error())));
        assert_eq!(refused, [(2, Some(libc::EAFNOSUPPORT))]);
        let mut bytes = [0; 64];
        for id in [1, 3] {
            let length = there.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *format!("message {id}").as_bytes());
        }
        assert_eq!(outbox.waiting(), 0);
    }

    #[test]
    fn t0_as_many_messages_wait_as_one_flush_takes() {
        let there = listener("127.0.0.1:0").unwrap();
        let to = there.local_addr().unwrap();
        let from = any("127.0.0.1:0");
        let mut outbox = Outbox::udp(from, Some(to), None, 64, Treatment::default()).unwrap();
        for id in 0..u32::try_from(BATCH).unwrap() {
            put_message(&mut outbox, id, None);
        }
        assert!(outbox.buffer().is_none());
        outbox.flush(&mut |id, error| panic!("{id}: {error}"));
        assert!(outbox.buffer().is_some());
    }
}

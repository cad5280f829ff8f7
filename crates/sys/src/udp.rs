// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP sockets whose received messages carry the kernel's receive timestamp, and whose sent
//! messages can have a launch time.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use timewire_base::{Instant, SocketPriority, Span, Tai, Utc};

use crate::messages::Extras;
use crate::socket::{check_len, set_option};
use crate::talk::{Control, LaunchMode, enable_launch};

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Length in bytes.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// When the kernel received it, before any deferral in its stack.
    pub timestamp: Option<Instant<Utc>>,
}

/// A UDP socket with receive timestamps (IPv4).
#[derive(Debug)]
pub struct TimestampedUdp(UdpSocket, Cell<bool>);

impl TimestampedUdp {
    /// Binds a socket and asks for timestamps, and for the errors of sending: without `IP_RECVERR`
    /// the kernel tells of no frame that a queueing discipline drops (linux v6.12
    /// `net/ipv4/udp.c:udp_send_skb`).
    pub fn bind(address: SocketAddrV4) -> io::Result<TimestampedUdp> {
        let socket = UdpSocket::bind(address)?;
        let one: libc::c_int = 1;
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, &one)?;
        Ok(TimestampedUdp(socket, Cell::new(false)))
    }

    /// The address that it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Sets the socket priority of what is sent, by which queueing disciplines tell classes apart.
    ///
    /// **Errors**: more than 6 needs `CAP_NET_ADMIN`.
    pub fn set_priority(&self, priority: SocketPriority) -> io::Result<()> {
        let value = libc::c_int::from(priority.get());
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &value)
    }

    /// Sends one message, also where the kernel tells of an earlier one in its place.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.told(|| self.0.send_to(bytes, to).map(drop))
    }

    /// Lets messages have a launch time of TAI ([`TimestampedUdp::send_at`]).
    ///
    /// **Errors**: `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_launch(&self, mode: LaunchMode) -> io::Result<()> {
        enable_launch::<Tai>(self.as_fd(), mode)
    }

    /// Sends one message with a launch time.
    ///
    /// **Errors**: `EINVAL` without [`TimestampedUdp::set_launch`].
    pub fn send_at(&self, bytes: &[u8], to: SocketAddrV4, launch: Instant<Tai>) -> io::Result<()> {
        let mut control = Control::new();
        let mut name = libc::sockaddr_in {
            sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("invariant: 2"),
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let iovec =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all-zero is a valid msghdr: null pointers and plain integers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = (&raw const iovec).cast_mut();
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = crate::socket::size_of_u32::<libc::sockaddr_in>();
        control.write(&mut header, launch.as_ns());
        self.told(|| {
            // SAFETY: the header points to `bytes` and `name`, which the kernel only reads, and to
            // `control`; all live until the call returns.
            let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const header, 0) };
            check_len(sent).map(drop)
        })
    }

    /// Sends. An error that an earlier message brought is told in place of sending, once: it is
    /// remembered, since it is in the error queue, too, and the message is sent again. One that
    /// comes each time is of this message: there is no way to its destination.
    ///
    /// **Source**: linux v6.12 `net/core/sock.c:sock_alloc_send_pskb` (`sock_error`).
    fn told(&self, send: impl Fn() -> io::Result<()>) -> io::Result<()> {
        told(send, || self.1.set(true))
    }

    /// Whether the error queue has errors of earlier messages, once.
    pub fn takes_errors(&self) -> bool {
        self.1.replace(false)
    }

    /// How long [`TimestampedUdp::receive`] waits.
    pub fn set_timeout(&self, timeout: Span) -> io::Result<()> {
        let ns = u64::try_from(timeout.as_ns()).unwrap_or(0).max(1_000);
        self.0.set_read_timeout(Some(Duration::from_nanos(ns)))
    }

    /// Receives one message; `None` when the time is over, or an earlier message brought an error.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = [0_u64; 8];
        // SAFETY: all-zero is valid for these structs: null pointers and plain integers.
        let (mut name, mut header): (libc::sockaddr_in, libc::msghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut iovec = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        header.msg_iov = &raw mut iovec;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = crate::socket::size_of_u32::<libc::sockaddr_in>();
        // SAFETY: the header points to `into`, `control` and `name`, all alive and exclusively
        // ours.
        let got = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0) };
        let length = match check_len(got) {
            Ok(length) => length,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => Ok(None),
                    _ if is_of_earlier(&error) => {
                        self.1.set(true);
                        Ok(None)
                    }
                    _ => Err(error),
                };
            }
        };
        let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
        let from = SocketAddr::from((address, u16::from_be(name.sin_port)));
        // SAFETY: the kernel filled the header; its control pointer and length describe `control`.
        let extras = unsafe { Extras::of(&header) };
        Ok(Some(Received { length, from, timestamp: extras.timestamp }))
    }
}

/// Sends a message with a socket that receives, and tells what became of it. Without `IP_RECVERR`
/// the kernel tells of no frame that a queueing discipline drops; with it, a message that nobody
/// takes at its destination makes a later call fail. So it is set while the message is sent.
///
/// **Errors**: of the send call; `ENOBUFS` where a queueing discipline dropped it.
///
/// **Source**: linux v6.12 `net/ipv4/udp.c:udp_send_skb, __udp4_lib_err`,
/// `net/ipv4/ip_sockglue.c:do_ip_setsockopt` (`IP_RECVERR`).
pub fn answer(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    let is_ipv4 = match to {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(to) => to.ip().to_ipv4_mapped().is_some(),
    };
    let (level, option) = match is_ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let set = |on: libc::c_int| set_option(socket.as_fd(), level, option, &on);
    set(1)?;
    let sent = told(|| socket.send_to(bytes, to), || ());
    // This empties the error queue; what came of an earlier answer meanwhile is taken back, too.
    set(0)?;
    socket.take_error()?;
    sent.map(drop)
}

/// Sends, and again after each error of an earlier message.
fn told<T>(send: impl Fn() -> io::Result<T>, of_earlier: impl Fn()) -> io::Result<T> {
    for _ in 0..TOLD_AT_ONCE {
        match send() {
            Err(error) if is_of_earlier(&error) => of_earlier(),
            result => return result,
        }
    }
    send()
}

/// Most errors of earlier messages that come while one is sent.
const TOLD_AT_ONCE: u32 = 3;

/// Whether an ICMP message said so of an earlier message.
fn is_of_earlier(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

impl AsFd for TimestampedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_launch_time_needs_a_socket_that_can_have_one() {
        let bind = || TimestampedUdp::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (a, b) = (bind(), bind());
        let SocketAddr::V4(to) = b.0.local_addr().unwrap() else { panic!("bound to IPv4") };
        let launch = crate::clock::now::<Tai>();
        let refused = a.send_at(b"then", to, launch).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        match a.set_launch(LaunchMode { deadline: false, report: true }) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("SKIP: needs CAP_NET_ADMIN");
                return;
            }
            other => other.unwrap(),
        }
        // The loopback interface has no discipline that would wait for it.
        a.send_at(b"then", to, launch).unwrap();
        let mut into = [0; 16];
        assert_eq!(b.receive(&mut into).unwrap().unwrap().length, 4);
    }

    #[test]
    fn t0_a_message_is_sent_though_an_earlier_one_was_refused() {
        let bind = || TimestampedUdp::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (a, gone) = (bind(), bind());
        let nobody = gone.0.local_addr().unwrap();
        drop(gone);
        // On loopback the answer is there when the call returns.
        a.send_to(b"one", nobody).unwrap();
        assert!(!a.takes_errors());
        let b = bind();
        a.send_to(b"two", b.0.local_addr().unwrap()).unwrap();
        assert!(a.takes_errors());
        let mut into = [0; 16];
        assert_eq!(b.receive(&mut into).unwrap().unwrap().length, 3);
        assert_eq!(&into[..3], b"two");
    }

    #[test]
    fn t0_a_message_on_loopback_has_a_timestamp_and_a_sender() {
        let bind = || TimestampedUdp::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (a, b) = (bind(), bind());
        let before = crate::clock::now::<Utc>();
        a.send_to(b"ping", b.0.local_addr().unwrap()).unwrap();
        let mut into = [0; 16];
        let got = b.receive(&mut into).unwrap().unwrap();
        assert_eq!((got.length, got.from), (4, a.0.local_addr().unwrap()));
        assert!(got.timestamp.unwrap() >= before);
        b.set_timeout(Span::from_ms(1)).unwrap();
        assert!(b.receive(&mut into).unwrap().is_none());
    }
}

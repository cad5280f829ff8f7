// SPDX-License-Identifier: Apache-2.0 OR MIT
//! UDP sockets whose received messages carry the kernel's receive stamp.
//!
//! Not here: hardware stamps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use timewire_base::{Instant, SocketPriority, Span, Utc};

use crate::clock::from_timespec;
use crate::socket::{check_len, set_option};

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Length in bytes.
    pub length: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// When the kernel received it, before any deferral in its stack.
    pub stamp: Option<Instant<Utc>>,
}

/// A UDP socket with receive stamps (IPv4).
#[derive(Debug)]
pub struct StampedUdp(UdpSocket);

impl StampedUdp {
    /// Binds a socket and asks for stamps.
    pub fn bind(address: SocketAddrV4) -> io::Result<StampedUdp> {
        let socket = UdpSocket::bind(address)?;
        let one: libc::c_int = 1;
        set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        Ok(StampedUdp(socket))
    }

    /// Sets the socket priority of what is sent, by which queueing disciplines tell classes apart.
    ///
    /// **Errors**: more than 6 needs `CAP_NET_ADMIN`.
    pub fn set_priority(&self, priority: SocketPriority) -> io::Result<()> {
        let value = libc::c_int::from(priority.get());
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &value)
    }

    /// Sends one message.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(bytes, to).map(drop)
    }

    /// How long [`StampedUdp::receive`] waits.
    pub fn set_timeout(&self, timeout: Span) -> io::Result<()> {
        let ns = u64::try_from(timeout.as_ns()).unwrap_or(0).max(1_000);
        self.0.set_read_timeout(Some(Duration::from_nanos(ns)))
    }

    /// Receives one message; `None` when the time is over.
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
                    _ => Err(error),
                };
            }
        };
        let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
        let from = SocketAddr::from((address, u16::from_be(name.sin_port)));
        Ok(Some(Received { length, from, stamp: stamp_of(&header) }))
    }
}

fn stamp_of(header: &libc::msghdr) -> Option<Instant<Utc>> {
    // SAFETY: the kernel filled the header; its control pointer and length describe a live buffer.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: FIRSTHDR and NXTHDR return only headers that lie whole in the buffer.
        let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: the kernel put a timespec there; reads of any alignment are fine.
            let time =
                unsafe { libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned() };
            return Some(from_timespec(&time));
        }
        // SAFETY: `message` came from FIRSTHDR or NXTHDR on this header.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    None
}

impl AsFd for StampedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_message_on_loopback_has_a_stamp_and_a_sender() {
        let bind = || StampedUdp::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (a, b) = (bind(), bind());
        let before = crate::clock::now::<Utc>();
        a.send_to(b"ping", b.0.local_addr().unwrap()).unwrap();
        let mut into = [0; 16];
        let got = b.receive(&mut into).unwrap().unwrap();
        assert_eq!((got.length, got.from), (4, a.0.local_addr().unwrap()));
        assert!(got.stamp.unwrap() >= before);
        b.set_timeout(Span::from_ms(1)).unwrap();
        assert!(b.receive(&mut into).unwrap().is_none());
    }
}

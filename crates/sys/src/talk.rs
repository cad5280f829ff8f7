// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that send with a priority and, per message, a launch time. Their messages go through the
//! queueing discipline of the interface, unlike those of `packet` and `xsk`.
//!
//! A launch time is obeyed by the disciplines `etf` and `fq`, checked by `taprio`, and ignored by
//! all others.

use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use timewire_base::{Instant, Tai};

use crate::clock::KernelClock;
use crate::socket::{bind_packet, check_len, set_option, socket};

/// How a socket's messages are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TalkOptions {
    /// `SO_PRIORITY`: the traffic class, through the discipline's map. Above 6 it needs
    /// `CAP_NET_ADMIN`.
    pub priority: u32,
    /// Whether messages can have a launch time, and how it is meant.
    pub launch: Option<LaunchMode>,
}

/// How launch times are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchMode {
    /// The launch time is the latest moment, not the exact one; `etf` must have the same mode.
    pub deadline: bool,
    /// Dropped messages come back as [`crate::error_queue::Report::Refused`].
    pub report: bool,
}

/// A sending socket whose launch times are of this clock: `etf` wants [`Tai`], `fq` wants
/// [`timewire_base::Mono`].
#[derive(Debug)]
pub struct TalkSocket<S: KernelClock = Tai> {
    fd: OwnedFd,
    clock: PhantomData<S>,
}

impl<S: KernelClock> TalkSocket<S> {
    /// A UDP socket from one address to another, of the same family.
    ///
    /// **Errors**: the address is not of this host, there is no route, or as for the options.
    pub fn udp(from: SocketAddr, to: SocketAddr, options: TalkOptions) -> io::Result<Self> {
        let udp = UdpSocket::bind(from)?;
        udp.connect(to)?;
        Self::with_options(udp.into(), options)
    }

    /// A socket for whole frames on an interface of the caller's network namespace.
    ///
    /// **Errors**: `EPERM` without `CAP_NET_RAW`, or as for the options.
    pub fn frames(interface: u32, options: TalkOptions) -> io::Result<Self> {
        // Protocol 0: it receives nothing.
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        bind_packet(fd.as_fd(), interface, 0)?;
        Self::with_options(fd, options)
    }

    /// **Errors**: `EPERM` for a launch clock other than the monotonic one, or a priority above 6,
    /// without `CAP_NET_ADMIN`.
    fn with_options(fd: OwnedFd, options: TalkOptions) -> io::Result<Self> {
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &options.priority)?;
        if let Some(mode) = options.launch {
            enable_launch::<S>(fd.as_fd(), mode)?;
        }
        Ok(TalkSocket { fd, clock: PhantomData })
    }

    /// Sends one message: a UDP payload, or a whole frame without check sequence.
    ///
    /// **Errors**: `ENOBUFS` when the discipline dropped it at once; `EINVAL` for a launch time on
    /// a socket that was opened without.
    pub fn send(&self, bytes: &[u8], launch: Option<Instant<S>>) -> io::Result<()> {
        let mut control = Control::new();
        let iovec =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: all-zero is a valid msghdr: null pointers and plain integers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = (&raw const iovec).cast_mut();
        header.msg_iovlen = 1;
        if let Some(launch) = launch {
            control.write(&mut header, launch.as_ns());
        }
        // SAFETY: the header points to `bytes`, which the kernel only reads, and to `control`; both
        // live until the call returns.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, 0) };
        check_len(sent).map(drop)
    }
}

impl<S: KernelClock> AsFd for TalkSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lets the messages of a socket have launch times.
pub(crate) fn enable_launch<S: KernelClock>(
    fd: BorrowedFd<'_>,
    mode: LaunchMode,
) -> io::Result<()> {
    let deadline = if mode.deadline { libc::SOF_TXTIME_DEADLINE_MODE } else { 0 };
    let report = if mode.report { libc::SOF_TXTIME_REPORT_ERRORS } else { 0 };
    let txtime = TxTime { clock: S::ID, flags: deadline | report };
    set_option(fd, libc::SOL_SOCKET, SO_TXTIME, &txtime)
}

/// `struct sock_txtime` of linux v6.12 `include/uapi/linux/net_tstamp.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TxTime {
    clock: libc::clockid_t,
    flags: u32,
}

const _: () = assert!(size_of::<TxTime>() == 8);

/// Room for one control message of 8 bytes, aligned as its header wants.
#[repr(align(8))]
pub(crate) struct Control([u8; CONTROL]);

impl Control {
    pub(crate) fn new() -> Control {
        Control([0; CONTROL])
    }

    /// Puts a launch time into it, and it into the header; it must live as long as the header is
    /// used.
    pub(crate) fn write(&mut self, header: &mut libc::msghdr, launch_ns: i64) {
        header.msg_control = self.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL;
        let size = libc::c_uint::try_from(size_of::<i64>()).expect("invariant: 8");
        // SAFETY: the header's control buffer is ours, aligned, and has room for exactly one
        // message of 8 bytes (asserted below), so that FIRSTHDR is not null and DATA lies in it.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = SO_TXTIME;
            (*message).cmsg_len = libc::CMSG_LEN(size).try_into().expect("invariant: 24");
            libc::CMSG_DATA(message).cast::<i64>().write_unaligned(launch_ns);
        }
    }
}

const CONTROL: usize = 24;
// SAFETY: CMSG_SPACE() only computes.
const _: () = assert!(unsafe { libc::CMSG_SPACE(8) } as usize == CONTROL);
/// From linux v6.12 `include/uapi/asm-generic/socket.h`; also the type of the control message.
pub(crate) const SO_TXTIME: libc::c_int = 61;

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use timewire_base::{Mono, Span};

    use super::*;
    use crate::clock;

    #[test]
    fn t0_a_launch_time_of_the_monotonic_clock_needs_no_privilege() {
        for ip in ["127.0.0.1:0".parse().unwrap(), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
            let Ok(to) = UdpSocket::bind(ip) else {
                eprintln!("SKIP: no {ip} on this host");
                continue;
            };
            to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mode = LaunchMode { deadline: false, report: true };
            let options = TalkOptions { priority: 3, launch: Some(mode) };
            let from = TalkSocket::<Mono>::udp(ip, to.local_addr().unwrap(), options).unwrap();
            from.send(b"now", None).unwrap();
            from.send(b"then", Some(clock::now::<Mono>() + Span::from_us(1))).unwrap();
            let mut bytes = [0; 8];
            assert_eq!((to.recv(&mut bytes).unwrap(), &bytes[..3]), (3, &b"now"[..]));
            assert_eq!((to.recv(&mut bytes).unwrap(), &bytes[..4]), (4, &b"then"[..]));
        }
    }

    #[test]
    fn t0_a_launch_time_on_a_socket_without_is_refused() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ip = "127.0.0.1:0".parse().unwrap();
        let options = TalkOptions::default();
        let from = TalkSocket::<Mono>::udp(ip, to.local_addr().unwrap(), options).unwrap();
        let refused = from.send(b"then", Some(clock::now::<Mono>())).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}

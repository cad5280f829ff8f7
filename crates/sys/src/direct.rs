// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that a loop makes once for each message, past the C library: around each call
//! that may wait, that looks whether the thread is to be cancelled, which no thread here is, and
//! that takes several times as many instructions as the call itself.
//!
//! Not here: what is called now and then (`socket`), reading clocks (`clock`), for which the C
//! library needs no system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A count, or the error that the call left.
#[inline]
fn count(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends bytes on a connected or bound socket, without waiting; returns how many.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let none = std::ptr::null::<libc::sockaddr>();
    // SAFETY: the kernel reads `bytes` during the call only; no address is given.
    count(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            none,
            0,
        )
    })
}

/// Sends one message without waiting; returns how many bytes.
///
/// # Safety
/// All that the header points to is readable during the call.
#[inline]
pub(crate) unsafe fn send_message(
    fd: BorrowedFd<'_>,
    header: *const libc::msghdr,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for the header.
    count(unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), header, libc::MSG_DONTWAIT) })
}

/// Sends so many messages without waiting; returns how many were taken.
///
/// # Safety
/// There are so many headers, and all that they point to is readable during the call.
pub(crate) unsafe fn send_messages(
    fd: BorrowedFd<'_>,
    headers: *mut libc::mmsghdr,
    room: libc::c_uint,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for the headers.
    count(unsafe {
        libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), headers, room, libc::MSG_DONTWAIT)
    })
}

/// Receives at most so many messages, without a time limit of the call's own; returns how many.
///
/// # Safety
/// There are so many headers, and all that they point to is writable during the call and used by
/// nobody else.
#[inline]
pub(crate) unsafe fn receive_messages(
    fd: BorrowedFd<'_>,
    headers: *mut libc::mmsghdr,
    room: libc::c_uint,
    flags: libc::c_int,
) -> io::Result<usize> {
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: the caller vouches for the headers; no timeout is given.
    count(unsafe { libc::syscall(libc::SYS_recvmmsg, fd.as_raw_fd(), headers, room, flags, none) })
}

/// Sleeps until a clock shows this; whether it did, and was not woken by a signal.
#[inline]
pub(crate) fn sleep_until(clock: libc::clockid_t, time: &libc::timespec) -> bool {
    let time = std::ptr::from_ref(time);
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: `time` is a valid timespec; with TIMER_ABSTIME the kernel ignores the remainder, so
    // a null pointer is allowed.
    let result =
        unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, libc::TIMER_ABSTIME, time, none) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)
}

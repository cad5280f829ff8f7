// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system calls that a loop makes once for each message, past the C library: around each call
//! that may wait, that looks whether the thread is to be cancelled, which no thread here is, and
//! that takes several times as many instructions as the call itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// What the kernel takes and gives in a register.
type Word = usize;

/// Makes a system call, with zeros for the arguments that it does not have. What it gives is a
/// count, or the negative number of an error.
///
/// # Safety
/// As of the system call with this number.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn call(number: libc::c_long, arguments: [Word; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the registers are those of the x86-64 ABI of Linux
    // (`Documentation/arch/x86/entry_64.rst`, syscall(2)): the kernel changes no others than these
    // three, and no stack. The caller vouches for what the arguments point to.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As above, by the C library.
///
/// # Safety
/// As of the system call with this number.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn call(number: libc::c_long, arguments: [Word; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return -isize::try_from(errno).unwrap_or(1);
    }
    isize::try_from(result).unwrap_or(isize::MAX)
}

/// A count, or the error that the call gave.
#[inline]
fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| error(result))
}

#[cold]
fn error(result: isize) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))
}

/// A file descriptor, flags: of an argument that is a C `int` the kernel reads the lower half.
#[inline]
fn word(value: libc::c_int) -> Word {
    of(u32::from_ne_bytes(value.to_ne_bytes()))
}

#[inline]
fn of(value: u32) -> Word {
    Word::try_from(value).expect("invariant: u32 fits usize")
}

#[inline]
fn number_of(fd: BorrowedFd<'_>) -> Word {
    let fd: RawFd = fd.as_raw_fd();
    word(fd)
}

/// Sends bytes on a connected or bound socket, without waiting; returns how many.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let start = bytes.as_ptr().expose_provenance();
    let arguments = [number_of(fd), start, bytes.len(), word(libc::MSG_DONTWAIT), 0, 0];
    // SAFETY: the kernel reads `bytes` during the call only; no address is given.
    count(unsafe { call(libc::SYS_sendto, arguments) })
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
    let header = header.expose_provenance();
    let arguments = [number_of(fd), header, word(libc::MSG_DONTWAIT), 0, 0, 0];
    // SAFETY: the caller vouches for the header.
    count(unsafe { call(libc::SYS_sendmsg, arguments) })
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
    let headers = headers.expose_provenance();
    let arguments = [number_of(fd), headers, of(room), word(libc::MSG_DONTWAIT), 0, 0];
    // SAFETY: the caller vouches for the headers.
    count(unsafe { call(libc::SYS_sendmmsg, arguments) })
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
    let headers = headers.expose_provenance();
    let arguments = [number_of(fd), headers, of(room), word(flags), 0, 0];
    // SAFETY: the caller vouches for the headers; no timeout is given.
    count(unsafe { call(libc::SYS_recvmmsg, arguments) })
}

/// Sleeps until a clock shows this; whether it did, and was not woken by a signal.
#[inline]
pub(crate) fn sleep_until(clock: libc::clockid_t, time: &libc::timespec) -> bool {
    let time = std::ptr::from_ref(time).expose_provenance();
    let arguments = [word(clock), word(libc::TIMER_ABSTIME), time, 0, 0, 0];
    // SAFETY: `time` is a valid timespec; with TIMER_ABSTIME the kernel ignores the remainder, so
    // a null pointer is allowed.
    let result = unsafe { call(libc::SYS_clock_nanosleep, arguments) };
    i32::try_from(result) != Ok(-libc::EINTR)
}

/// Reads a clock into what is there for it; whether there is such a clock.
///
/// # Safety
/// There is room for a timespec.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[inline]
pub(crate) unsafe fn read_clock(clock: libc::clockid_t, time: *mut libc::timespec) -> bool {
    let time = time.expose_provenance();
    // SAFETY: the caller vouches for the room, which the call fills.
    unsafe { call(libc::SYS_clock_gettime, [word(clock), time, 0, 0, 0, 0]) == 0 }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for one of several descriptors, and waking a waiting thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use timewire_base::Span;

use crate::clock::to_timespec;
use crate::socket::{check, check_len};

/// Wakes a thread that waits in [`wait_readable`].
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// A new one, not set.
    pub fn new() -> io::Result<Wake> {
        // SAFETY: eventfd() has no preconditions.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor is new and nobody else owns it.
        Ok(Wake(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets it. Setting it twice before it is cleared is once.
    pub fn set(&self) -> io::Result<()> {
        let one = 1_u64;
        // SAFETY: eight readable bytes, as an eventfd wants.
        check_len(unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) }).map(drop)
    }

    /// Clears it; whether it was set.
    pub fn clear(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: eight writable bytes, as an eventfd wants.
        check_len(unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) }).is_ok()
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The requests to end that a person or a service manager makes: SIGINT, SIGTERM and SIGHUP, as a
/// descriptor that becomes readable. From its creation on they no longer end the process by
/// themselves; threads started later inherit that, and so do children until they are told
/// otherwise.
#[derive(Debug)]
pub struct EndRequests(OwnedFd);

impl EndRequests {
    /// Blocks the signals for the calling thread and those it starts from now on.
    pub fn new() -> io::Result<EndRequests> {
        // SAFETY: all-zero is a valid sigset_t to start from, and sigemptyset makes it an empty
        // set; the signal numbers are constants; a null old set is allowed.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
            check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?
        };
        // SAFETY: the descriptor is new and nobody else owns it.
        Ok(EndRequests(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether one came since the last call.
    pub fn take(&self) -> bool {
        // SAFETY: all-zero is a valid signalfd_siginfo (plain integers).
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is writable for its size.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info)) };
        check_len(got).is_ok()
    }
}

impl AsFd for EndRequests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Several descriptors as one that is readable while one of them is.
#[derive(Debug)]
pub struct AnyReadable(OwnedFd);

impl AnyReadable {
    /// Of these; one that is closed is no longer looked at.
    ///
    /// **Errors**: `EMFILE` or `ENOSPC` when there are too many descriptors.
    pub fn of<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<AnyReadable> {
        // SAFETY: epoll_create1() has no preconditions.
        let all = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else owns it.
        let all = unsafe { OwnedFd::from_raw_fd(all) };
        let events = libc::EPOLLIN.cast_unsigned();
        for fd in fds {
            let mut event = libc::epoll_event { events, u64: 0 };
            let (all, fd) = (all.as_raw_fd(), fd.as_raw_fd());
            // SAFETY: both descriptors are open, and `event` lives until the call returns.
            check(unsafe { libc::epoll_ctl(all, libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        }
        Ok(AnyReadable(all))
    }
}

impl AsFd for AnyReadable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable or the time is over; `None` waits for ever.
///
/// Returns whether any is readable; a signal counts as not. At most 8 descriptors.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Span>) -> io::Result<bool> {
    wait(fds, libc::POLLIN, timeout)
}

/// Waits until a descriptor takes what is written, or its reader has gone, or the time is over;
/// `None` waits for ever. Returns as [`wait_readable`].
pub fn wait_writable(fd: BorrowedFd<'_>, timeout: Option<Span>) -> io::Result<bool> {
    wait(&[fd], libc::POLLOUT, timeout)
}

fn wait(fds: &[BorrowedFd<'_>], events: libc::c_short, timeout: Option<Span>) -> io::Result<bool> {
    const MAX_EVENTS: usize = 8;
    assert!(fds.len() <= MAX_EVENTS, "at most {MAX_EVENTS} descriptors");
    let mut list = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_EVENTS];
    for (entry, fd) in list.iter_mut().zip(fds) {
        entry.fd = fd.as_raw_fd();
        entry.events = events;
    }
    let time = timeout.map(|span| to_timespec(span.as_ns()));
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = libc::nfds_t::try_from(fds.len()).expect("invariant: at most 8");
    // SAFETY: `list` holds more than `count` entries; `time` is null or points to a timespec that
    // lives until the call returns; no signal mask is given.
    let ready = unsafe { libc::ppoll(list.as_mut_ptr(), count, time, std::ptr::null()) };
    match check(ready) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_full_pipe_is_not_writable_until_it_is_read() {
        use std::io::{Read, Write};
        let (mut reader, mut writer) = io::pipe().unwrap();
        let now = Some(Span::ZERO);
        assert!(wait_writable(writer.as_fd(), now).unwrap());
        // A pipe takes a page as a whole or not at all.
        let page = [0; 4_096];
        while wait_writable(writer.as_fd(), now).unwrap() {
            writer.write_all(&page).unwrap();
        }
        reader.read_exact(&mut [0; 4_096]).unwrap();
        assert!(wait_writable(writer.as_fd(), None).unwrap());
    }

    #[test]
    fn t0_any_of_several_makes_one_readable() {
        let wakes: Vec<Wake> = (0..20).map(|_| Wake::new().unwrap()).collect();
        let any = AnyReadable::of(wakes.iter().map(AsFd::as_fd)).unwrap();
        for wake in &wakes {
            assert!(!wait_readable(&[any.as_fd()], Some(Span::ZERO)).unwrap());
            wake.set().unwrap();
            assert!(wait_readable(&[any.as_fd()], None).unwrap());
            assert!(wake.clear());
        }
    }

    #[test]
    fn t0_a_wake_is_seen_once() {
        let wake = Wake::new().unwrap();
        assert!(!wait_readable(&[wake.as_fd()], Some(Span::ZERO)).unwrap());
        wake.set().unwrap();
        wake.set().unwrap();
        assert!(wait_readable(&[wake.as_fd()], None).unwrap());
        assert!(wake.clear());
        assert!(!wake.clear());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls that are made to see whether the kernel takes them. None leaves anything behind.

use std::io;
use std::os::fd::AsFd;

use timewire_base::Span;

use crate::busy_poll::BusyPoll;
use crate::clock::KernelClock;
use crate::socket::{check, socket};

/// Asks for busy polling on a socket of its own: for `us` microseconds at most, and before
/// interrupts.
///
/// **Errors**: `EPERM` without `CAP_NET_ADMIN`; `ENOPROTOOPT` when the kernel cannot.
pub fn busy_poll(us: u32) -> io::Result<()> {
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    BusyPoll { microseconds: us, budget: None, prefer: true }.set(any.as_fd())
}

/// Locks so much fresh memory, and lets it go.
///
/// **Units**: bytes.
///
/// **Errors**: `ENOMEM` beyond `RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`, `EPERM` with a limit of 0.
pub fn lock_memory(bytes: usize) -> io::Result<()> {
    // SAFETY: an anonymous private mapping with no address hint has no preconditions.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is ours and of this size.
    let locked = check(unsafe { libc::mlock(base, bytes) });
    // SAFETY: mapped above with this size; nobody has a reference into it. It unlocks as well.
    unsafe { libc::munmap(base, bytes) };
    locked.map(drop)
}

/// The resolution that the kernel states for a clock; 1 ns where it has high resolution timers.
///
/// **Errors**: the kernel lacks the clock.
pub fn resolution<S: KernelClock>() -> io::Result<Span> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in.
    check(unsafe { libc::clock_getres(S::ID, &raw mut time) })?;
    Ok(Span::from_ns(time.tv_sec * 1_000_000_000 + time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use timewire_base::{Mono, Tai};

    use super::*;

    #[test]
    fn t0_little_memory_can_be_locked_and_too_much_cannot() {
        lock_memory(4_096).unwrap();
        assert!(lock_memory(usize::MAX / 2).is_err());
    }

    #[test]
    fn t0_clocks_state_a_resolution() {
        for resolution in [resolution::<Tai>().unwrap(), resolution::<Mono>().unwrap()] {
            assert!(resolution.as_ns() >= 1 && resolution <= Span::from_ms(100), "{resolution}");
        }
    }
}

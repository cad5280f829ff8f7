// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading clocks, sleeping on them, and what the kernel knows about their accuracy.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use timewire_base::{Instant, Mono, Scale, Span, Tai, Utc};

use crate::direct;

/// A time scale that the kernel has a clock for.
pub trait KernelClock: Scale {
    /// The clock's number.
    const ID: libc::clockid_t;
}

impl KernelClock for Tai {
    const ID: libc::clockid_t = libc::CLOCK_TAI;
}
impl KernelClock for Mono {
    const ID: libc::clockid_t = libc::CLOCK_MONOTONIC;
}
impl KernelClock for Utc {
    const ID: libc::clockid_t = libc::CLOCK_REALTIME;
}

/// The clock's reading now.
///
/// **Panics** when the kernel lacks the clock; all three exist since Linux 3.10.
#[inline]
pub fn now<S: KernelClock>() -> Instant<S> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in; the clock number is a constant.
    let result = unsafe { libc::clock_gettime(S::ID, &raw mut time) };
    if result != 0 {
        no_clock(S::NAME);
    }
    from_timespec(&time)
}

#[cold]
fn no_clock(name: &str) -> ! {
    panic!("clock_gettime({name}) failed: {}", io::Error::last_os_error())
}

/// What the kernel's code for reading clocks is (vdso(7)).
type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// Reads a clock as [`now`] does, for a thread that wakes for little more than that: past the C
/// library, whose ways to the kernel's code are in four pages that nothing else of it touches.
pub struct Reader<S> {
    get: GetTime,
    scale: PhantomData<S>,
}

impl<S> Clone for Reader<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Reader<S> {}

impl<S: KernelClock> Reader<S> {
    /// Of the clock of this scale.
    pub fn new() -> Reader<S> {
        static GET: OnceLock<GetTime> = OnceLock::new();
        Reader { get: *GET.get_or_init(kernels_own), scale: PhantomData }
    }

    /// The clock's reading now.
    ///
    /// **Panics** as [`now`].
    #[inline(always)]
    pub fn now(self) -> Instant<S> {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: as in `now`: all three that it may be take the same.
        if unsafe { (self.get)(S::ID, time.as_mut_ptr()) } != 0 {
            no_clock(S::NAME);
        }
        // SAFETY: where it gave 0 it wrote both (clock_gettime(2)).
        from_timespec(unsafe { time.assume_init_ref() })
    }
}

impl<S: KernelClock> Default for Reader<S> {
    fn default() -> Reader<S> {
        Reader::new()
    }
}

impl<S: KernelClock> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&S::NAME).finish()
    }
}

/// The kernel's code in this process; a system call where there is none, the C library's function
/// where it is not found.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn kernels_own() -> GetTime {
    unsafe extern "C" fn call(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
        // SAFETY: the caller gives room for a timespec.
        i32::from(!unsafe { direct::read_clock(clock, time) })
    }
    // SAFETY: getauxval() takes a number and gives one.
    if unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } == 0 {
        return call;
    }
    // SAFETY: the strings end with a zero; with RTLD_NOLOAD nothing is loaded, and what is there
    // already, the kernel's own object, is never unloaded.
    let found = unsafe {
        let object = libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if object.is_null() {
            return libc::clock_gettime;
        }
        libc::dlvsym(object, c"__vdso_clock_gettime".as_ptr(), c"LINUX_2.6".as_ptr())
    };
    if found.is_null() {
        return libc::clock_gettime;
    }
    // SAFETY: this symbol is such a function (linux v6.12
    // `arch/x86/entry/vdso/vclock_gettime.c:__vdso_clock_gettime`).
    unsafe { std::mem::transmute::<*mut libc::c_void, GetTime>(found) }
}

/// As above, by the C library.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn kernels_own() -> GetTime {
    libc::clock_gettime
}

/// How long the calling thread has had a CPU (`CLOCK_THREAD_CPUTIME_ID`), with the interrupts that
/// the kernel served meanwhile.
pub fn thread_time() -> Span {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill in; the clock number is a constant.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every Linux has the clock of a thread");
    Span::from_ns(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// An instant from the kernel's `timespec`.
#[inline]
pub(crate) fn from_timespec<S: Scale>(time: &libc::timespec) -> Instant<S> {
    Instant::from_ns(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// Splits a span into seconds and nanoseconds; a negative one becomes zero.
#[inline]
pub(crate) fn to_timespec(ns: i64) -> libc::timespec {
    let ns = ns.max(0);
    libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
}

/// Sleeps until the clock reads `until`; returns at once when that has passed. Restarts after a
/// signal.
#[inline]
pub fn sleep_until<S: KernelClock>(until: Instant<S>) {
    let time = to_timespec(until.as_ns());
    while !direct::sleep_until(S::ID, &time) {}
}

/// How far TAI is ahead of UTC in this kernel: 0 until someone sets it (37 s since 2017).
///
/// Kernel receive timestamps are UTC; adding this makes them TAI.
pub fn tai_offset() -> Span {
    // Two reads a moment apart; the offset is whole seconds, so rounding removes the moment.
    let utc = now::<Utc>().as_ns();
    let tai = now::<Tai>().as_ns();
    let seconds = (tai - utc + 500_000_000).div_euclid(1_000_000_000);
    Span::from_secs(seconds)
}

/// What the kernel's clock discipline says about itself (`adjtimex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Whether some daemon keeps the clock synchronised (`STA_UNSYNC` is clear).
    pub synchronised: bool,
    /// The kernel's estimate of the largest error.
    pub max_error: Span,
    /// The kernel's estimate of the error.
    pub estimated_error: Span,
    /// What is still to be corrected.
    pub offset: Span,
    /// Correction of the frequency, parts in 10^9, rounded towards zero.
    pub frequency_ppb: i64,
    /// How far TAI is ahead of UTC in this kernel.
    pub tai_offset: Span,
}

/// Reads the clock discipline; changes nothing.
pub fn discipline() -> io::Result<Discipline> {
    // SAFETY: all-zero is a valid timex (plain integers), and modes 0 makes the call read-only.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `timex` is valid and exclusively ours for the duration of the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Discipline {
        synchronised: timex.status & libc::STA_UNSYNC == 0,
        max_error: Span::from_us(timex.maxerror),
        estimated_error: Span::from_us(timex.esterror),
        offset: if timex.status & libc::STA_NANO == 0 {
            Span::from_us(timex.offset)
        } else {
            Span::from_ns(timex.offset)
        },
        // Parts in 10^6, shifted by 16 bits.
        frequency_ppb: timex.freq * 1_000 / 65_536,
        tai_offset: Span::from_secs(timex.tai.into()),
    })
}

/// Whether this kernel's time is virtual: computing takes none, and a sleep ends exactly. To spin
/// on the clock there only makes time pass, 256 ns with every look
/// (linux v6.12 `arch/um/kernel/time.c:timer_read`).
pub fn is_virtual() -> bool {
    static VIRTUAL: OnceLock<bool> = OnceLock::new();
    *VIRTUAL.get_or_init(|| {
        let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
        line_makes_virtual(&line)
    })
}

/// As [`is_virtual`], of a kernel that was started with this command line.
pub fn line_makes_virtual(command_line: &str) -> bool {
    command_line.split_ascii_whitespace().any(|word| word.starts_with("time-travel="))
}

/// Sets this thread's timer slack, so that its sleeps end as exactly as the kernel can.
pub fn set_timer_slack(slack: Span) -> io::Result<()> {
    let ns = libc::c_ulong::try_from(slack.as_ns()).unwrap_or(1).max(1);
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches only this thread.
    match unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_sleep_never_ends_early() {
        let until = now::<Tai>() + Span::from_us(200);
        sleep_until(until);
        assert!(now::<Tai>() >= until);
        sleep_until(Instant::<Tai>::from_ns(0));
    }

    #[test]
    fn t0_a_reader_reads_the_same_clock() {
        let reader = Reader::<Tai>::new();
        for _ in 0..1_000 {
            let (before, between, after) = (now::<Tai>(), reader.now(), now::<Tai>());
            assert!(before <= between && between <= after, "{before:?} {between:?} {after:?}");
        }
    }

    #[test]
    fn t0_tai_offset_is_whole_seconds() {
        let offset = tai_offset();
        assert_eq!(offset.as_ns() % 1_000_000_000, 0);
        let utc_as_tai = now::<Utc>().as_ns() + offset.as_ns();
        assert!((now::<Tai>().as_ns() - utc_as_tai).abs() < 1_000_000_000);
    }
}

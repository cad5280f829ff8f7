// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the kernel schedules a thread: reading and setting its policy with all parameters, the CPUs
//! it may run on, locked memory, and the wake-up latency of the CPUs.
//!
//! Utilisation clamps are never touched: the kernel keeps them through a change of policy that does
//! not name them.

use std::fs::File;
use std::io::{self, Write};

use timewire_base::Span;

use crate::socket::check;

/// A real-time priority of `SCHED_FIFO` and `SCHED_RR`.
///
/// **Units**: 1 (least urgent) to 99 (most urgent), the kernel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RtPriority(u8);

impl RtPriority {
    /// `None` unless 1 to 99.
    pub const fn new(number: u8) -> Option<RtPriority> {
        if number >= 1 && number <= 99 { Some(RtPriority(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Everything `sched_getattr` says about a thread's scheduling, utilisation clamps apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `SCHED_OTHER` 0, `SCHED_FIFO` 1, `SCHED_RR` 2, `SCHED_BATCH` 3, `SCHED_IDLE` 5,
    /// `SCHED_DEADLINE` 6.
    pub policy: u32,
    /// `SCHED_FLAG_*`, such as reset-on-fork.
    pub flags: u64,
    /// Niceness, -20 to 19; only for the policies that have one.
    pub nice: i32,
    /// 1 to 99 for `SCHED_FIFO` and `SCHED_RR`, else 0.
    pub rt_priority: u32,
    /// Budget of `SCHED_DEADLINE`, or the slice of a fair policy. **Units**: ns.
    pub runtime_ns: u64,
    /// Relative deadline of `SCHED_DEADLINE`. **Units**: ns.
    pub deadline_ns: u64,
    /// Period of `SCHED_DEADLINE`. **Units**: ns.
    pub period_ns: u64,
}

impl Attributes {
    /// `SCHED_FIFO` at this priority.
    pub fn fifo(priority: RtPriority) -> Attributes {
        Attributes { policy: FIFO, rt_priority: priority.get().into(), ..Attributes::default() }
    }

    /// `SCHED_RR` at this priority.
    pub fn round_robin(priority: RtPriority) -> Attributes {
        Attributes { policy: RR, rt_priority: priority.get().into(), ..Attributes::default() }
    }

    /// `SCHED_DEADLINE`. What the thread starts is scheduled as usual: the kernel lets it start
    /// nothing else.
    ///
    /// **Panics** for a negative time.
    pub fn deadline(runtime: Span, deadline: Span, period: Span) -> Attributes {
        let ns = |span: Span| u64::try_from(span.as_ns()).expect("invariant: not negative");
        Attributes {
            policy: DEADLINE,
            flags: RESET_ON_FORK,
            runtime_ns: ns(runtime),
            deadline_ns: ns(deadline),
            period_ns: ns(period),
            ..Attributes::default()
        }
    }

    /// These, so that nothing the thread starts inherits them.
    #[must_use]
    pub fn not_inherited(self) -> Attributes {
        Attributes { flags: self.flags | RESET_ON_FORK, ..self }
    }

    /// Whether what the thread starts is scheduled as usual.
    pub fn resets_on_fork(self) -> bool {
        self.flags & RESET_ON_FORK != 0
    }

    /// Whether this is `SCHED_DEADLINE`.
    pub fn is_deadline(self) -> bool {
        self.policy == DEADLINE
    }

    /// These, with the reset-on-fork flag that `of` has.
    #[must_use]
    pub fn with_reset_on_fork(self, of: Attributes) -> Attributes {
        Attributes { flags: self.flags & !RESET_ON_FORK | of.flags & RESET_ON_FORK, ..self }
    }

    /// Whether this is `SCHED_FIFO` at this priority.
    pub fn is_fifo(self, priority: RtPriority) -> bool {
        self.policy == FIFO && self.rt_priority == u32::from(priority.get())
    }
}

/// Reads a thread's attributes; 0 is the calling thread.
///
/// **Errors**: `ESRCH` when there is no such thread.
pub fn attributes(tid: u32) -> io::Result<Attributes> {
    let tid = pid_t(tid)?;
    // SAFETY: all-zero is a valid sched_attr (plain integers).
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attr` is writable for the size given, and flags 0 is valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            libc::c_long::from(tid),
            &raw mut attr,
            ATTR_SIZE,
            0 as libc::c_long,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Attributes {
        policy: attr.sched_policy,
        flags: attr.sched_flags,
        nice: attr.sched_nice,
        rt_priority: attr.sched_priority,
        runtime_ns: attr.sched_runtime,
        deadline_ns: attr.sched_deadline,
        period_ns: attr.sched_period,
    })
}

/// Sets a thread's attributes; 0 is the calling thread.
///
/// **Errors**: `ESRCH` when there is no such thread; `EPERM` without `CAP_SYS_NICE` (or a fitting
/// `RLIMIT_RTPRIO`), or when its control group has no real-time budget; `EBUSY` when a deadline
/// cannot be admitted.
pub fn set_attributes(tid: u32, wanted: &Attributes) -> io::Result<()> {
    let tid = pid_t(tid)?;
    // SAFETY: all-zero is a valid sched_attr (plain integers).
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    attr.size = ATTR_SIZE;
    attr.sched_policy = wanted.policy;
    attr.sched_flags = wanted.flags;
    attr.sched_nice = wanted.nice;
    attr.sched_priority = wanted.rt_priority;
    attr.sched_runtime = wanted.runtime_ns;
    attr.sched_deadline = wanted.deadline_ns;
    attr.sched_period = wanted.period_ns;
    // SAFETY: `attr` is readable for the size it names, and flags 0 is valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            libc::c_long::from(tid),
            &raw const attr,
            0 as libc::c_long,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The CPUs a thread may run on, ascending; 0 is the calling thread.
///
/// **Errors**: `ESRCH` when there is no such thread.
pub fn affinity(tid: u32) -> io::Result<Vec<u32>> {
    let tid = pid_t(tid)?;
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: `mask` is writable for its size, which is a multiple of the kernel's word.
    check(unsafe { libc::sched_getaffinity(tid, size_of_val(&mask), mask.as_mut_ptr().cast()) })?;
    let cpus = (0_u32..).zip(mask).flat_map(|(word, bits)| {
        (0..u64::BITS).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit)
    });
    Ok(cpus.collect())
}

/// Restricts a thread to these CPUs; 0 is the calling thread.
///
/// **Errors**: `ESRCH` when there is no such thread; `EINVAL` when none of the CPUs exists; `EPERM`
/// without `CAP_SYS_NICE` on another user's thread.
pub fn set_affinity(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let tid = pid_t(tid)?;
    let mut mask = [0_u64; MASK_WORDS];
    for &cpu in cpus {
        let word = usize::try_from(cpu / 64).ok().and_then(|index| mask.get_mut(index));
        let word = word.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}"))
        })?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: `mask` is readable for its size.
    check(unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) })
        .map(drop)
}

/// The calling thread's number, as `/proc/PID/task` names it.
pub fn thread_id() -> u32 {
    // SAFETY: gettid() has no preconditions and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Keeps all memory of the process, present and future, in RAM.
///
/// **Errors**: `ENOMEM` or `EPERM` without `CAP_IPC_LOCK` or a sufficient `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: mlockall() takes an integer and changes no contents.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) }).map(drop)
}

/// The soft limit on locked memory; `None` is unlimited.
///
/// **Units**: bytes.
pub fn locked_memory_limit() -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid and exclusively ours for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) })?;
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

/// A standing request that idle CPUs wake up at once; dropping it withdraws it.
#[derive(Debug)]
pub struct WakeAtOnce {
    _device: File,
}

impl WakeAtOnce {
    /// Asks for it.
    ///
    /// **Errors**: `PermissionDenied` without write access to `/dev/cpu_dma_latency`; `NotFound` on
    /// a kernel without it.
    pub fn request() -> io::Result<WakeAtOnce> {
        let mut device = File::options().write(true).open("/dev/cpu_dma_latency")?;
        device.write_all(&0_i32.to_ne_bytes())?;
        Ok(WakeAtOnce { _device: device })
    }
}

fn pid_t(tid: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
}

const FIFO: u32 = libc::SCHED_FIFO.unsigned_abs();
const RR: u32 = libc::SCHED_RR.unsigned_abs();
const DEADLINE: u32 = libc::SCHED_DEADLINE.unsigned_abs();
const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs() as u64;
/// The first version of the structure, 48 bytes: the one without utilisation clamps.
const ATTR_SIZE: u32 = 48;
/// Room for 8192 CPUs.
const MASK_WORDS: usize = 128;
const _: () = assert!(size_of::<libc::sched_attr>() >= 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_own_attributes_can_be_set_to_what_they_are() {
        let before = attributes(0).unwrap();
        set_attributes(0, &before).unwrap();
        assert_eq!(attributes(thread_id()).unwrap(), before);
    }

    #[test]
    fn t0_affinity_is_set_and_restored() {
        let all = affinity(0).unwrap();
        assert!(!all.is_empty());
        set_affinity(0, &all[..1]).unwrap();
        assert_eq!(affinity(0).unwrap(), all[..1]);
        set_affinity(0, &all).unwrap();
        assert_eq!(affinity(0).unwrap(), all);
        assert_eq!(set_affinity(0, &[9_999]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn t0_a_priority_is_1_to_99() {
        assert_eq!((RtPriority::new(0), RtPriority::new(100)), (None, None));
        let fifo = Attributes::fifo(RtPriority::new(99).unwrap());
        assert!(fifo.is_fifo(RtPriority::new(99).unwrap()));
        assert!(!fifo.is_fifo(RtPriority::new(1).unwrap()));
        let forked = Attributes { flags: 1, ..Attributes::default() };
        assert_eq!(fifo.with_reset_on_fork(forked).flags, 1);
        assert!(fifo.not_inherited().resets_on_fork() && !fifo.resets_on_fork());
        assert_eq!(Attributes::round_robin(RtPriority::new(7).unwrap()).policy, 2);
        let reserved = Attributes::deadline(Span::from_us(1), Span::from_us(2), Span::from_us(3));
        assert_eq!(
            (reserved.runtime_ns, reserved.deadline_ns, reserved.period_ns),
            (1_000, 2_000, 3_000)
        );
        assert!(reserved.is_deadline() && reserved.resets_on_fork());
    }

    #[test]
    fn t0_wake_ups_at_once_can_be_asked_for() {
        match WakeAtOnce::request() {
            Ok(request) => drop(request),
            Err(error) => eprintln!("SKIP: /dev/cpu_dma_latency: {error}"),
        }
        locked_memory_limit().unwrap();
    }

    #[test]
    fn t0_no_such_thread_is_said() {
        assert_eq!(attributes(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(affinity(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}

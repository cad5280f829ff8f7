// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces, mounts, and processes as the kernel keeps them: entering a network namespace,
//! starting a child in one, telling a process from a later one with the same number, signals that
//! cannot hit the wrong process, sessions, capabilities, file locks.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::ptr;

use crate::randomness::{self, Randomness};
use crate::socket::check;

/// A kind of namespace that a process can leave behind with [`unshare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Users, groups and capabilities. Needs a single-threaded process, and no capability.
    User,
    /// Interfaces, addresses, sockets.
    Network,
    /// The mount table.
    Mount,
}

impl Namespace {
    fn flag(self) -> libc::c_int {
        match self {
            Namespace::User => libc::CLONE_NEWUSER,
            Namespace::Network => libc::CLONE_NEWNET,
            Namespace::Mount => libc::CLONE_NEWNS,
        }
    }
}

/// Moves the calling thread into new namespaces of these kinds.
///
/// **Errors**: needs `CAP_SYS_ADMIN`, unless `User` is among them; `User` fails with `EINVAL` when
/// the process has several threads, with `EPERM` or `ENOSPC` when the host forbids user namespaces.
pub fn unshare(kinds: &[Namespace]) -> io::Result<()> {
    let flags = kinds.iter().fold(0, |flags, kind| flags | kind.flag());
    // SAFETY: unshare() takes one integer. It changes what names mean to this thread, no memory.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread, and nobody else, into a network namespace.
///
/// **Errors**: needs `CAP_SYS_ADMIN` here and in the namespace's user namespace; `EINVAL` when the
/// file is no network namespace.
pub fn enter_network(netns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns() takes a live descriptor and an integer, and touches only the calling thread.
    check(unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// What becomes of a child when the thread that started it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnParentDeath {
    /// It lives on.
    LiveOn,
    /// The kernel kills it, even when the parent was killed itself. Beware: the *thread* that
    /// starts the child counts as its parent, so start it from a thread that lives as long as it
    /// should.
    Kill,
}

/// Starts a child, inside a network namespace when one is given; the caller stays where it is.
///
/// One that dies with the caller is a helper, and has a process group of its own: Ctrl-C in a
/// terminal is for the caller, who ends it when it is no longer needed.
///
/// **Errors**: as [`enter_network`], and those of [`Command::spawn`].
pub fn spawn(
    mut command: Command,
    netns: Option<&File>,
    on_parent_death: OnParentDeath,
) -> io::Result<Child> {
    let netns = netns.map(|file| file.as_fd().try_clone_to_owned()).transpose()?;
    let parent = std::process::id();
    if on_parent_death == OnParentDeath::Kill {
        command.process_group(0);
    }
    prepared(command, move || {
        if let Some(netns) = &netns {
            enter_network(netns.as_fd())?;
        }
        match on_parent_death {
            OnParentDeath::LiveOn => Ok(()),
            OnParentDeath::Kill => die_with_parent(parent),
        }
    })
}

/// Starts a child as the first process of a new process namespace: the kernel ends whatever it has
/// started together with it, in whichever session or group that is. It dies with the calling
/// thread, and is in the caller's process group. Further children of the caller are no longer
/// possible once it has ended.
///
/// **Errors**: needs `CAP_SYS_ADMIN`; those of [`Command::spawn`].
pub fn spawn_first_process(command: Command) -> io::Result<Child> {
    // SAFETY: unshare() takes one integer. It changes where later children are, no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
    prepared(command, ask_to_die)
}

/// Starts a child that finds these descriptors open under these numbers, runs on this CPU only when
/// one is given, and dies with the calling thread. Its addresses are the same in every run: how
/// much memory a kernel has that runs as a program depends on where its parts are.
///
/// It has a session of its own: Ctrl-C in the caller's terminal is for the caller, and a terminal
/// that it is given is no controlling terminal of it, so that no access stops it (`SIGTTOU`).
///
/// **Errors**: those of [`Command::spawn`]; a number that another of the descriptors has now; no
/// way to keep the host's randomness from it.
pub fn spawn_machine(
    command: Command,
    descriptors: Vec<(OwnedFd, i32)>,
    cpu: Option<u32>,
    randomness: Randomness,
) -> io::Result<Child> {
    let parent = std::process::id();
    prepared(command, move || {
        // SAFETY: setsid() has no preconditions; a new child leads no group, so it cannot fail.
        check(unsafe { libc::setsid() })?;
        if let Some(cpu) = cpu {
            crate::scheduler::set_affinity(0, &[cpu])?;
        }
        for (descriptor, number) in &descriptors {
            // SAFETY: dup2() takes two integers; whatever had the number in this child is closed,
            // and nothing in it relies on a descriptor any more before the exec.
            check(unsafe { libc::dup2(descriptor.as_raw_fd(), *number) })?;
        }
        if randomness == Randomness::None {
            randomness::refuse()?;
        }
        let fixed = libc::c_ulong::from(libc::ADDR_NO_RANDOMIZE.unsigned_abs());
        // SAFETY: personality() takes one integer, which counts from the next exec on.
        check(unsafe { libc::personality(fixed) })?;
        die_with_parent(parent)
    })
}

/// Starts a child that does this before its program runs; only system calls, nothing else.
pub(crate) fn prepared(
    mut command: Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Child> {
    // SAFETY: between fork and exec the closures of this crate make only system calls (setns,
    // setsid, dup2, prctl, getppid, personality, sched_setaffinity, sigprocmask) that are
    // async-signal-safe; they allocate nothing, take no lock, and their errors are raw OS errors.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Has the kernel kill the calling process when its parent thread ends, or ends before the call.
pub(crate) fn die_with_parent(parent: u32) -> io::Result<()> {
    ask_to_die()?;
    // SAFETY: getppid() has no preconditions and cannot fail.
    let now = unsafe { libc::getppid() };
    if u32::try_from(now) == Ok(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Has the kernel kill the calling process when its parent thread ends from now on.
fn ask_to_die() -> io::Result<()> {
    let kill = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    // SAFETY: PR_SET_PDEATHSIG takes one integer and touches only this process.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, kill, 0, 0, 0) }).map(drop)
}

/// One process and no later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started. **Units**: clock ticks since boot, as field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

impl Process {
    /// The process that now has this number; zombies count.
    ///
    /// **Errors**: `NotFound` when there is none.
    pub fn of(pid: u32) -> io::Result<Process> {
        Ok(Process { pid, start_ticks: start_ticks(Path::new(&format!("/proc/{pid}/stat")))? })
    }

    /// The calling process.
    pub fn this() -> io::Result<Process> {
        Process::of(std::process::id())
    }

    /// Whether it still runs. A zombie, which only waits for its parent, does not; a process whose
    /// main thread alone has ended does.
    pub fn is_alive(self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return false;
        };
        let ended = matches!(stat_field(&stat, 3), Some("Z" | "X")) && !self.has_other_threads();
        !ended && parse_start_ticks(&stat) == Some(self.start_ticks)
    }

    fn has_other_threads(self) -> bool {
        fs::read_dir(format!("/proc/{}/task", self.pid)).is_ok_and(|threads| threads.count() > 1)
    }

    /// Kills it with `SIGKILL`; gone already is fine. Never hits a later process of the same
    /// number.
    ///
    /// **Errors**: `PermissionDenied` without `CAP_KILL` on another user's process.
    pub fn kill(self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Asks it to end, with `SIGTERM`; gone already is fine. Never hits a later process of the same
    /// number.
    ///
    /// **Errors**: `PermissionDenied` without `CAP_KILL` on another user's process.
    pub fn ask_to_end(self) -> io::Result<()> {
        self.signal(libc::SIGTERM)
    }

    /// Stops it with `SIGSTOP`; gone already is fine. Its parent sees that.
    ///
    /// **Errors**: as [`Process::kill`].
    pub fn stop(self) -> io::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on with `SIGCONT`; gone already is fine.
    ///
    /// **Errors**: as [`Process::kill`].
    pub fn go_on(self) -> io::Result<()> {
        self.signal(libc::SIGCONT)
    }

    /// Whether it is stopped, by a signal or a debugger.
    pub fn is_stopped(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        matches!(stat_field(&stat, 3), Some("T" | "t"))
    }

    /// The number of its parent; `None` when it is gone.
    pub fn parent(self) -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        stat_field(&stat, 4)?.parse().ok()
    }

    fn signal(self, signal: libc::c_int) -> io::Result<()> {
        let pid = libc::c_long::from(self.pid);
        // SAFETY: pidfd_open() takes two integers; flags 0 is valid.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0 as libc::c_long) };
        let Ok(fd) = libc::c_int::try_from(fd) else {
            return Err(io::Error::other("pidfd"));
        };
        if fd < 0 {
            return gone_is_fine(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if !self.is_alive() {
            return Ok(());
        }
        let signal = libc::c_long::from(signal);
        let no_info = ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is a live pidfd, a null siginfo means "as kill() would", flags are
        // 0.
        let result = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, no_info, 0)
        };
        if result < 0 { gone_is_fine(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn gone_is_fine(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// The start time in a `stat` file of a process or of one of its threads.
///
/// **Units**: clock ticks since boot.
///
/// **Errors**: `NotFound` when the process or thread is gone.
pub fn start_ticks(stat: &Path) -> io::Result<u64> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "no such process or thread");
    let text = fs::read_to_string(stat).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => gone(),
        _ => error,
    })?;
    parse_start_ticks(&text).ok_or_else(|| io::Error::other("a stat file without field 22"))
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    stat_field(stat, 22)?.parse().ok()
}

/// Field `number` (from 1, at least 3) of a `stat` line. The name in field 2 may hold anything.
fn stat_field(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)
}

/// Makes the calling process the leader of a new session, without a terminal.
///
/// **Errors**: `EPERM` when it leads a process group already.
pub fn new_session() -> io::Result<()> {
    // SAFETY: setsid() has no preconditions.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Ignores the signals that ask a process to end: `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`.
pub fn ignore_requests_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: SIG_IGN installs no handler code; all four signals may be ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The number of the calling thread's network namespace that no other has as long as the host is
/// up, unlike that of its file; `None` before Linux 5.14.
///
/// **Errors**: no socket can be opened.
pub fn network_cookie() -> io::Result<Option<u64>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of_val(&cookie)).map_err(io::Error::other)?;
    // SAFETY: `cookie` is writable for `length` bytes, and both live until the call returns.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match check(result) {
        Ok(_) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `linux v6.12 include/uapi/asm-generic/socket.h`.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// A user in words: `user 1000`; one that this user namespace does not have, all of which the
/// kernel shows as the same number, as that.
///
/// **Source**: `linux v6.12 Documentation/admin-guide/sysctl/fs.rst`, `overflowuid`.
pub fn user_in_words(user: u32) -> String {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if overflow.trim().parse() == Ok(user) && !has_user(&map, user) {
        return "a user outside this user namespace".to_owned();
    }
    format!("user {user}")
}

/// Whether a user is one of a `uid_map`; each line is first inside, first outside, how many.
fn has_user(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let [first, _, count] = numbers[..] else { return false };
        (first..first.saturating_add(count)).contains(&u64::from(user))
    })
}

/// The effective user of the calling process.
pub fn effective_user() -> u32 {
    // SAFETY: geteuid() has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group of the calling process.
pub fn effective_group() -> u32 {
    // SAFETY: getegid() has no preconditions and cannot fail.
    unsafe { libc::getegid() }
}

/// One capability that Timewire asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Interfaces, queueing disciplines, addresses.
    NetAdmin,
    /// `AF_PACKET` and `AF_XDP` sockets.
    NetRaw,
    /// Locking memory beyond the limit.
    IpcLock,
    /// Namespaces and mounts.
    SysAdmin,
    /// Real-time scheduling, and other processes' scheduling.
    SysNice,
    /// Loading BPF programs.
    Bpf,
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 6] = [
        Capability::NetAdmin,
        Capability::NetRaw,
        Capability::IpcLock,
        Capability::SysAdmin,
        Capability::SysNice,
        Capability::Bpf,
    ];

    /// As the kernel's documentation writes it.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Bpf => "CAP_BPF",
        }
    }

    /// Its bit, from `linux v6.12 include/uapi/linux/capability.h`.
    pub fn bit(self) -> u32 {
        match self {
            Capability::NetAdmin => 12,
            Capability::NetRaw => 13,
            Capability::IpcLock => 14,
            Capability::SysAdmin => 21,
            Capability::SysNice => 23,
            Capability::Bpf => 39,
        }
    }
}

/// The effective capabilities of a process, in its own user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Those of the calling process.
    pub fn of_this_process() -> io::Result<Capabilities> {
        let status = fs::read_to_string("/proc/self/status")?;
        parse_effective(&status).ok_or_else(|| io::Error::other("/proc/self/status has no CapEff"))
    }

    /// Whether this one is among them.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability.bit()) != 0
    }
}

fn parse_effective(status: &str) -> Option<Capabilities> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok().map(Capabilities)
}

/// Cuts the caller's mount table off from all others: later mounts are seen here alone.
///
/// **Errors**: needs `CAP_SYS_ADMIN` over the mount namespace.
pub fn make_mounts_private() -> io::Result<()> {
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Mounts an empty file system in memory over a directory.
///
/// **Errors**: as [`make_mounts_private`]; `NotFound` without the directory.
pub fn mount_tmpfs(target: &Path) -> io::Result<()> {
    mount(Some(Path::new("tmpfs")), target, Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)
}

/// Mounts what the kernel tells about devices over a directory: of interfaces, those of the
/// caller's network namespace.
///
/// **Errors**: as [`mount_tmpfs`].
pub fn mount_sysfs(target: &Path) -> io::Result<()> {
    mount(Some(Path::new("sysfs")), target, Some(c"sysfs"), libc::MS_NOSUID | libc::MS_NODEV)
}

/// Shows a directory, with what is mounted below it, at a second place.
///
/// **Errors**: as [`mount_tmpfs`].
pub fn bind_mount(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, None, libc::MS_BIND | libc::MS_REC)
}

/// Takes a mount away at once; who still uses it keeps it until done.
///
/// **Errors**: `InvalidInput` when nothing is mounted there, `NotFound` without the path.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: `target` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Whether what is at this path now, and not hidden by another mount, is a BPF file system.
///
/// **Errors**: `NotFound` without the path, `PermissionDenied` without a way to it.
pub fn is_bpf_file_system(path: &Path) -> io::Result<bool> {
    let path = c_path(path)?;
    // SAFETY: all-zero is valid for this struct of integers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a NUL-terminated string and `found` a struct of ours; both outlive the
    // call.
    check(unsafe { libc::statfs(path.as_ptr(), &raw mut found) })?;
    Ok(found.f_type == libc::BPF_FS_MAGIC)
}

fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let source = source.map(c_path).transpose()?;
    let target = c_path(target)?;
    let source = source.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: every pointer is null (which mount() accepts for source, type and data) or a
    // NUL-terminated string that outlives the call.
    check(unsafe { libc::mount(source, target.as_ptr(), kind, flags, ptr::null()) }).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path with a NUL byte"))
}

/// Tries to take the exclusive lock of an open file; whether it was free. The lock goes with the
/// last descriptor of this opening, so also when the process is killed; a child that is being
/// started holds a copy of the descriptor until its exec.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock() takes a live descriptor and an integer.
    match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_user_outside_the_namespace_is_no_number() {
        assert!(has_user("         0          0 4294967295\n", 65_534));
        assert!(has_user("0 1000 1\n1 100000 65536\n", 65_534));
        assert!(!has_user("         0       1000          1\n", 65_534));
        assert!(!has_user("", 65_534));
        assert_eq!(user_in_words(7), "user 7");
    }

    #[test]
    fn t0_a_stat_line_is_read_past_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 123456 99 1";
        assert_eq!(stat_field(stat, 3), Some("S"));
        assert_eq!(parse_start_ticks(stat), Some(123_456));
        assert_eq!(parse_start_ticks("7 (x) S 1"), None);
    }

    #[test]
    fn t0_capabilities_are_read_from_the_status_file() {
        let some = parse_effective("Name:\tx\nCapEff:\t0000000000201000\n").unwrap();
        assert!(some.has(Capability::NetAdmin) && some.has(Capability::SysAdmin));
        assert!(!some.has(Capability::SysNice));
        assert_eq!(parse_effective("CapEff:\tzz\n"), None);
        assert!(Capabilities::of_this_process().is_ok());
    }

    #[test]
    fn t0_a_process_is_itself_and_no_other() {
        let this = Process::this().unwrap();
        assert!(this.is_alive());
        let other = Process { start_ticks: this.start_ticks + 1, ..this };
        assert!(!other.is_alive());
        other.kill().unwrap();
        assert_eq!(Process::of(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn t0_a_killed_child_is_dead_before_it_is_reaped() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        process.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        process.kill().unwrap();
    }

    #[test]
    fn t0_a_file_is_locked_once_per_opening() {
        let path = std::env::temp_dir().join(format!("timewire-lock-{}", std::process::id()));
        let (one, two) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        assert!(try_lock(&one).unwrap());
        assert!(!try_lock(&two).unwrap());
        drop(one);
        // A child of another test holds a copy of the descriptor between its fork and its exec.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !try_lock(&two).unwrap() {
            assert!(std::time::Instant::now() < deadline, "the lock outlived its file");
            std::thread::yield_now();
        }
        fs::remove_file(&path).unwrap();
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the first process of a machine does for all others: mounts, the loopback interface, kernel
//! modules, terminals, its clock, and switching the machine off.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use timewire_base::{Instant, Utc};

use crate::socket::{check, socket};

/// Mounts a file system of this kind. `data` is what the kind understands: for `hostfs` the
/// directory of the host.
///
/// **Errors**: needs `CAP_SYS_ADMIN`; `ENODEV` when the kernel does not have the kind.
pub fn mount(kind: &str, target: &Path, data: &str, writable: bool) -> io::Result<()> {
    mount_from(kind, kind, target, data, writable)
}

/// Mounts a file system of this kind from a source that the kind knows by this name, such as the
/// tag of a `9p` directory.
///
/// **Errors**: as [`mount`]; `NotFound` when there is no such source.
pub fn mount_from(
    kind: &str,
    source: &str,
    target: &Path,
    data: &str,
    writable: bool,
) -> io::Result<()> {
    let (kind, data) = (c_string(kind.as_bytes())?, c_string(data.as_bytes())?);
    let target = c_string(target.as_os_str().as_bytes())?;
    let source = c_string(source.as_bytes())?;
    let flags = if writable { 0 } else { libc::MS_RDONLY };
    // SAFETY: all four pointers are NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    };
    check(result).map(drop)
}

/// Makes a directory the root of the calling process and of its children to come.
///
/// **Errors**: needs `CAP_SYS_CHROOT`.
pub fn change_root(root: &Path) -> io::Result<()> {
    std::os::unix::fs::chroot(root)?;
    std::env::set_current_dir("/")
}

/// Sets the machine's clock. All of the machine's clocks but the monotonic one jump with it, so
/// this is for machines that exist for an experiment.
///
/// **Errors**: needs `CAP_SYS_TIME`.
pub fn set_clock(to: Instant<Utc>) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: to.as_ns().div_euclid(1_000_000_000),
        tv_nsec: to.as_ns().rem_euclid(1_000_000_000),
    };
    // SAFETY: `time` is a valid timespec that outlives the call.
    check(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) }).map(drop)
}

/// Sets how far TAI is ahead of UTC on the machine.
///
/// **Errors**: needs `CAP_SYS_TIME`.
pub fn set_tai_offset(seconds: i32) -> io::Result<()> {
    // SAFETY: all-zero is a valid timex (plain integers).
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    timex.modes = libc::ADJ_TAI;
    timex.constant = seconds.into();
    // SAFETY: `timex` is valid and exclusively ours for the duration of the call.
    check(unsafe { libc::adjtimex(&raw mut timex) }).map(drop)
}

/// Loads a kernel module from a file; one that is there already is fine.
///
/// **Errors**: needs `CAP_SYS_MODULE`; `ENOENT` when a symbol is missing because another module
/// must come first.
pub fn load_module(file: &File, compressed: bool) -> io::Result<()> {
    // From linux v6.12 include/uapi/linux/module.h.
    const MODULE_INIT_COMPRESSED_FILE: libc::c_int = 4;
    let flags = if compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    // SAFETY: finit_module() takes a live descriptor, a NUL-terminated string and an integer.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), flags) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            error => Err(error),
        },
    }
}

/// Switches the loopback interface of the caller's network namespace on.
///
/// **Errors**: needs `CAP_NET_ADMIN`.
pub fn loopback_up() -> io::Result<()> {
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: all-zero is a valid ifreq (plain integers and arrays of them).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = libc::c_char::try_from(*from).expect("invariant: ASCII");
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("invariant: low bits");
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which is ours.
    check(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }).map(drop)
}

/// Has a terminal pass every byte as it is.
///
/// **Errors**: it is no terminal.
pub fn raw_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    let fd = terminal.as_raw_fd();
    // SAFETY: all-zero is a valid termios (plain integers and arrays of them).
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: `settings` is writable and ours.
    check(unsafe { libc::tcgetattr(fd, &raw mut settings) })?;
    // SAFETY: cfmakeraw() only changes the struct.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    // SAFETY: `settings` is a valid termios that the kernel reads.
    check(unsafe { libc::tcsetattr(fd, libc::TCSANOW, &raw const settings) }).map(drop)
}

/// Waits until everything that was written to a terminal has left it.
///
/// **Errors**: it is no terminal.
pub fn drain_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: tcdrain() takes a live descriptor.
    check(unsafe { libc::tcdrain(terminal.as_raw_fd()) }).map(drop)
}

/// A terminal's settings, restored when this goes out of scope.
#[derive(Debug)]
pub struct TerminalSettings {
    terminal: File,
    settings: libc::termios,
}

impl TerminalSettings {
    /// Remembers them and makes the terminal pass every byte as it is.
    ///
    /// **Errors**: it is no terminal.
    pub fn make_raw(terminal: BorrowedFd<'_>) -> io::Result<TerminalSettings> {
        // SAFETY: all-zero is a valid termios (plain integers and arrays of them).
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `settings` is writable and ours.
        check(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) })?;
        let terminal = File::from(terminal.try_clone_to_owned()?);
        raw_terminal(terminal.as_fd())?;
        Ok(TerminalSettings { terminal, settings })
    }
}

impl Drop for TerminalSettings {
    fn drop(&mut self) {
        let fd = self.terminal.as_raw_fd();
        // SAFETY: the settings came from tcgetattr(). Without a terminal nothing is to be restored.
        unsafe { libc::tcsetattr(fd, libc::TCSANOW, &raw const self.settings) };
    }
}

/// Starts a child as the leader of a session whose terminal is its standard input.
///
/// **Errors**: those of [`Command::spawn`]; standard input is no terminal.
pub fn spawn_on_terminal(mut command: Command) -> io::Result<Child> {
    let prepare = || {
        // SAFETY: setsid() has no preconditions.
        check(unsafe { libc::setsid() })?;
        // SAFETY: TIOCSCTTY takes an integer; descriptor 0 is the child's standard input.
        check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }).map(drop)
    };
    // SAFETY: between fork and exec only setsid and ioctl are called, which are async-signal-safe.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Gives the kernel's random numbers a beginning, and says that it is random enough: with the same
/// one they are the same in every run, and nobody waits for better.
///
/// **Errors**: needs `CAP_SYS_ADMIN`.
pub fn seed_random(seed: [u8; 32]) -> io::Result<()> {
    /// As `struct rand_pool_info` of linux v6.12 `include/uapi/linux/random.h`.
    #[repr(C)]
    struct Pool {
        entropy_bits: libc::c_int,
        bytes: libc::c_int,
        buffer: [u8; 32],
    }
    const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
    let pool = Pool { entropy_bits: 256, bytes: 32, buffer: seed };
    let device = File::options().write(true).open("/dev/random")?;
    // SAFETY: RNDADDENTROPY reads a struct rand_pool_info with as many bytes behind it as it says.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const pool) }).map(drop)
}

/// Switches the machine off; what was written is on disk before. Only for the first process of a
/// machine.
///
/// **Errors**: needs `CAP_SYS_BOOT`.
pub fn power_off() -> io::Error {
    // SAFETY: sync() has no preconditions.
    unsafe { libc::sync() };
    // SAFETY: reboot() takes one integer; nothing of this process is needed any more.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    io::Error::last_os_error()
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "text with a NUL byte"))
}

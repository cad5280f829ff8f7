// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children that lead a process group of their own: starting them, waiting for their end without
//! giving their number free, and signals to all of their group.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::namespace::{die_with_parent, prepared};
use crate::socket::check;

/// What a group is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSignal {
    /// To end: `SIGTERM`.
    End,
    /// To be gone: `SIGKILL`.
    Kill,
}

/// Starts a child that leads a group of its own, dies with the calling *thread*, and takes all
/// signals, whichever the caller has blocked to wait for.
///
/// **Errors**: those of [`Command::spawn`].
pub fn spawn_leader(mut command: Command) -> io::Result<Child> {
    let parent = std::process::id();
    command.process_group(0);
    prepared(command, move || {
        // SAFETY: all-zero is a valid sigset_t to start from, and sigemptyset makes it an empty
        // set; a null old set is allowed.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()))?;
        }
        die_with_parent(parent)
    })
}

/// Waits until a child has ended, and leaves it to be waited for: until then no other process or
/// group has its number.
///
/// **Errors**: `ECHILD` when it is no child of the caller, or was waited for.
pub fn wait_for_end(child: u32) -> io::Result<()> {
    // SAFETY: all-zero is a valid siginfo_t (plain integers).
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `info` is writable for its size and lives until the call returns.
        let result = unsafe {
            libc::waitid(libc::P_PID, child, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Signals all processes of the group that a child leads. Only for a child that was not waited for:
/// another group could have its number afterwards. A group without a process is fine.
///
/// **Errors**: `EPERM` when it may not be signalled.
pub fn signal_group(leader: u32, signal: GroupSignal) -> io::Result<()> {
    let group = libc::pid_t::try_from(leader).map_err(io::Error::other)?;
    let number = match signal {
        GroupSignal::End => libc::SIGTERM,
        GroupSignal::Kill => libc::SIGKILL,
    };
    // SAFETY: kill() takes two integers; a group is its leader's number, negative.
    match check(unsafe { libc::kill(-group, number) }) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::event::EndRequests;

    #[test]
    fn t3_a_group_ends_with_its_signal_and_its_leader_can_still_be_waited_for() {
        let _blocks_signals = EndRequests::new().unwrap();
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "sleep 100 & wait"]);
        let mut child = spawn_leader(sleep).unwrap();
        signal_group(child.id(), GroupSignal::End).unwrap();
        wait_for_end(child.id()).unwrap();
        wait_for_end(child.id()).unwrap();
        signal_group(child.id(), GroupSignal::End).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(wait_for_end(child.id()).is_err());
    }
}

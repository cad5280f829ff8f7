// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is at the other end of a local socket.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use crate::socket::get_option;

/// The process that connected, or listened, as the kernel saw it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its effective user.
    pub user: u32,
    /// Its number; 0 when it is in another namespace of processes.
    pub pid: u32,
}

/// Asks the kernel who is at the other end.
pub fn peer_of(stream: &UnixStream) -> io::Result<PeerProcess> {
    let none = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let found = get_option(stream.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, none)?;
    Ok(PeerProcess { user: found.uid, pid: u32::try_from(found.pid).unwrap_or(0) })
}

/// The effective user of this process.
pub fn effective_user() -> u32 {
    // SAFETY: geteuid() has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer_of(&one).unwrap();
        assert_eq!(peer, PeerProcess { user: effective_user(), pid: std::process::id() });
    }
}

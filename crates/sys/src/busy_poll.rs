// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Busy polling: a socket makes the kernel look at the NIC's queue instead of waiting for its
//! interrupt. One type for sockets that send and for those that receive.

use std::io;
use std::os::fd::BorrowedFd;

use crate::socket::{get_option, set_option};

/// How the kernel is to look at the device by itself while a socket is asked (`SO_BUSY_POLL`,
/// linux v6.12 `Documentation/networking/napi.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call looks before it sleeps. **Units**: microseconds, at least 1.
    pub microseconds: u32,
    /// Most frames that one look may take; `None` leaves the kernel's own (8).
    pub budget: Option<u16>,
    /// Polling goes before the interrupt's own work (`SO_PREFER_BUSY_POLL`). It defers interrupts
    /// only with `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface.
    pub prefer: bool,
}

impl BusyPoll {
    /// Sets it for a socket.
    ///
    /// **Errors**: `EPERM` for more than the system's values without CAP_NET_ADMIN; `ENOPROTOOPT`
    /// when the kernel is older than 5.11 and more than a time is asked for.
    ///
    /// **Source**: linux v6.12 `net/core/sock.c:sk_setsockopt`.
    pub fn set(self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let set = |name, value: libc::c_int| set_option(fd, libc::SOL_SOCKET, name, &value);
        let most = libc::c_int::MAX;
        set(libc::SO_BUSY_POLL, libc::c_int::try_from(self.microseconds.max(1)).unwrap_or(most))?;
        if self.prefer {
            set(SO_PREFER_BUSY_POLL, 1)?;
        }
        match self.budget {
            Some(budget) => set(SO_BUSY_POLL_BUDGET, budget.into()),
            None => Ok(()),
        }
    }

    /// What a socket has, told by the kernel: `None` when it does not poll. The budget is not told
    /// by any kernel, so it is `None` here.
    ///
    /// **Errors**: `ENOPROTOOPT` when the kernel is built without busy polling, or older than 5.11.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Option<BusyPoll>> {
        let get = |name| get_option(fd, libc::SOL_SOCKET, name, 0 as libc::c_int);
        let microseconds = get(libc::SO_BUSY_POLL)?.unsigned_abs();
        let prefer = get(SO_PREFER_BUSY_POLL)? != 0;
        Ok((microseconds > 0).then_some(BusyPoll { microseconds, budget: None, prefer }))
    }
}

/// From linux v6.12 `include/uapi/asm-generic/socket.h`.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn t3_a_socket_tells_what_it_was_told() {
        let wanted = [
            BusyPoll { microseconds: 70, budget: Some(16), prefer: true },
            BusyPoll { microseconds: 30, budget: None, prefer: false },
        ];
        for wanted in wanted {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            assert_eq!(BusyPoll::of(socket.as_fd()).unwrap(), None);
            if let Err(error) = wanted.set(socket.as_fd()) {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                return eprintln!("SKIP: busy polling needs CAP_NET_ADMIN: {error}");
            }
            let told = BusyPoll::of(socket.as_fd()).unwrap();
            assert_eq!(told, Some(BusyPoll { budget: None, ..wanted }));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every socket here needs: making one, setting options, finding an interface.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use timewire_base::IfName;

/// The result of a call that returns -1 and sets `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The result of a call that returns a byte count, or -1 and sets `errno`.
pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A new socket, closed on exec.
pub(crate) fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    // SAFETY: socket() has no preconditions.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The size of a type as the kernel takes it.
pub(crate) fn size_of_u32<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("invariant: option structs are small")
}

/// Sets a socket option from a plain C value.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is a live reference to `size_of::<T>()` readable bytes.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of_u32::<T>(),
        )
    };
    check(result).map(drop)
}

/// Reads a socket option into a plain C value of integers, for which any bytes are valid.
pub(crate) fn get_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = size_of_u32::<T>();
    // SAFETY: `value` is writable for `length` bytes, and the kernel writes at most that many.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    check(result).map(|_| value)
}

/// Binds an AF_PACKET socket to an interface, to receive frames of a protocol; of none with 0.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_ll (plain integers).
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).expect("invariant: 17");
    address.sll_ifindex =
        libc::c_int::try_from(interface).expect("invariant: an index is positive");
    address.sll_protocol = protocol.to_be();
    let length = size_of_u32::<libc::sockaddr_ll>();
    // SAFETY: `address` is a valid sockaddr_ll of `length` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// The index of an interface in the caller's network namespace.
///
/// **Errors**: `NotFound` when there is none of that name.
pub fn interface_index(name: &IfName) -> io::Result<u32> {
    let text = CString::new(name.as_str()).expect("invariant: an interface name has no NUL");
    // SAFETY: `text` is a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"))),
        index => Ok(index),
    }
}

/// The interfaces of one network namespace, seen from wherever the caller goes later.
#[derive(Debug)]
pub struct Interfaces(OwnedFd);

impl Interfaces {
    /// Those of the caller's network namespace.
    pub fn here() -> io::Result<Interfaces> {
        socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0).map(Interfaces)
    }

    /// Whether there is one with this index now. Not when it was moved to another namespace.
    pub fn has(&self, index: u32) -> bool {
        // SAFETY: all-zero is a valid ifreq (plain integers and arrays of them).
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex =
            libc::c_int::try_from(index).expect("invariant: an index is positive");
        // SAFETY: SIOCGIFNAME reads the index of an ifreq and writes its name; `request` is ours.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) };
        check(result).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_interfaces_are_known_by_index() {
        let lo = interface_index(&IfName::new("lo").unwrap()).unwrap();
        let here = Interfaces::here().unwrap();
        assert!(here.has(lo));
        assert!(!here.has(i32::MAX.unsigned_abs()));
    }
}

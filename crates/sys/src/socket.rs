// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every socket here needs: making one, setting options, finding an interface.

use std::ffi::{CStr, CString};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use timewire_base::IfName;
use timewire_base::wire::MacAddress;

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

/// Connects to a local socket, waiting so long at most for a server that takes nobody.
///
/// **Errors**: `WouldBlock` then; `ENOENT`, `ECONNREFUSED` when there is no server.
pub fn connect_local(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?);
    // The kernel bounds connecting by this, too (linux v6.12 `af_unix.c:unix_stream_connect`).
    stream.set_write_timeout(Some(timeout))?;
    // SAFETY: all-zero is a valid sockaddr_un (plain integers).
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).expect("invariant: 1");
    let bytes = path.as_os_str().as_bytes();
    // The last one stays zero.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let length = size_of_u32::<libc::sockaddr_un>();
    // SAFETY: `address` is a sockaddr_un of `length` bytes, and its path ends with a zero.
    let result =
        unsafe { libc::connect(stream.as_fd().as_raw_fd(), (&raw const address).cast(), length) };
    check(result).map(|_| stream)
}

/// Asks for so large a receive buffer; the kernel grants less without CAP_NET_ADMIN.
pub(crate) fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // FORCE goes past the administrator's limit and needs CAP_NET_ADMIN in the first user
    // namespace; without it the plain option gives as much as the limit allows.
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
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
        0 => {
            let there = interface_names().join(", ");
            let why = format!("there is no interface {name}; there are {there}");
            Err(io::Error::new(io::ErrorKind::NotFound, why))
        }
        index => Ok(index),
    }
}

/// The index of the interface in the caller's network namespace that has an IPv4 address.
///
/// **Errors**: `NotFound` when none has it.
pub fn interface_with_address(address: Ipv4Addr) -> io::Result<u32> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `list` is a place for one pointer.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut index = None;
    let mut next = list;
    while index.is_none() && !next.is_null() {
        // SAFETY: the list is the kernel library's until it is freed below, and `next` is one of
        // its entries.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: an entry's address that is not null has a family, and is a `sockaddr_in` where
        // that is AF_INET; it need not be aligned as one.
        let found = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    Some(ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>()))
                }
                _ => None,
            }
        };
        if found.is_some_and(|it| it.sin_addr.s_addr.to_ne_bytes() == address.octets()) {
            // SAFETY: the name is a NUL-terminated string of the list.
            index = Some(unsafe { libc::if_nametoindex(entry.ifa_name) });
        }
    }
    // SAFETY: the list is from `getifaddrs`, and nothing of it is used from here on.
    unsafe { libc::freeifaddrs(list) };
    index.filter(|index| *index != 0).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("no interface has the address {address}"))
    })
}

/// The names of all interfaces in the caller's network namespace, in the kernel's order.
fn interface_names() -> Vec<String> {
    // SAFETY: if_nameindex() has no preconditions; null is an error.
    let list = unsafe { libc::if_nameindex() };
    let mut names = Vec::new();
    if list.is_null() {
        return names;
    }
    // SAFETY: the list ends with an entry whose index is 0; each before has a name that ends with a
    // zero, and all live until the list is given back, which happens once, after its last use.
    unsafe {
        let mut at = list;
        while (*at).if_index != 0 {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    names
}

/// What a sender must know of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Its own address.
    pub address: MacAddress,
    /// The longest payload of a frame, its MTU. **Units**: bytes.
    pub payload: u32,
}

/// The address and the MTU of an interface in the caller's network namespace.
///
/// **Errors**: `NotFound` when there is none of that name.
pub fn sending_of(name: &IfName) -> io::Result<Sending> {
    interface_index(name)?;
    let fd = socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
    // SAFETY: all-zero is a valid ifreq (plain integers and arrays of them).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_str().bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: SIOCGIFHWADDR reads the name of an ifreq and writes its address; `request` is ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: the call succeeded, so the union holds the address, of plain integers.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
    let address = MacAddress(std::array::from_fn(|at| data[at].to_ne_bytes()[0]));
    // SAFETY: SIOCGIFMTU reads the name, which is still there, and writes the MTU.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the call succeeded, so the union holds the MTU, a plain integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(Sending { address, payload: mtu.unsigned_abs() })
}

/// The link-layer addresses of all interfaces in the caller's network namespace, but for those that
/// are all zero, as of loopback.
pub fn own_link_addresses() -> Vec<MacAddress> {
    let names = interface_names().into_iter().filter_map(|name| name.parse::<IfName>().ok());
    let addresses = names.filter_map(|name| Some(sending_of(&name).ok()?.address));
    addresses.filter(|address| address.0 != [0; 6]).collect()
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
    use std::os::unix::net::UnixListener;

    #[test]
    fn t0_interfaces_are_known_by_index() {
        let lo = interface_index(&IfName::new("lo").unwrap()).unwrap();
        let here = Interfaces::here().unwrap();
        assert!(here.has(lo));
        assert!(!here.has(i32::MAX.unsigned_abs()));
    }

    #[test]
    fn t0_a_server_that_takes_nobody_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("timewire-local-{}", std::process::id()));
        let timeout = Duration::from_millis(5);
        let missing = connect_local(&path, timeout).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect_local(&path, timeout) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        let refused = connect_local(&path, timeout).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        let long = Path::new("/").join("x".repeat(200));
        assert_eq!(connect_local(&long, timeout).unwrap_err().raw_os_error(), Some(36));
    }

    #[test]
    fn t0_the_loopback_interface_has_no_address_and_a_long_payload() {
        let lo = sending_of(&IfName::new("lo").unwrap()).unwrap();
        assert_eq!(lo.address, MacAddress([0; 6]));
        assert!(lo.payload > 1_280, "{lo:?}");
        let none = sending_of(&IfName::new("none0").unwrap()).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}

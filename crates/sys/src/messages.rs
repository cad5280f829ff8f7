// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes beside a received message: stamps, the VLAN tag that the kernel has taken off; and
//! taking many messages with one call.
//!
//! Not here: where the bytes go (`packet`, `udp`, `receive`).

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::direct;
use crate::socket::size_of_u32;

/// Messages taken per system call.
pub(crate) const BATCH: usize = 32;
/// Room for the control messages of one frame: VLAN tag, three stamps, the card's number.
const CONTROL: usize = 256;

/// What the kernel says beside a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// The outer VLAN tag as on the link.
    pub(crate) vlan: Option<[u8; 4]>,
    /// When the kernel received it.
    pub(crate) stamp: Option<Instant<Utc>>,
    /// When the card did, nanoseconds of its clock.
    pub(crate) hardware_ns: Option<i64>,
}

impl Extras {
    /// Reads the control messages of a header that a receiving call has filled.
    ///
    /// # Safety
    /// The header's control pointer and length describe a live buffer that the kernel has filled.
    #[inline]
    pub(crate) unsafe fn of(header: &libc::msghdr) -> Extras {
        let mut extras = Extras::default();
        // SAFETY: the caller vouches for the buffer.
        let buffer = unsafe { control_of(header) };
        each_control(buffer, |level, kind, data| match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                let Some([software, _, hardware]) = value_of::<[libc::timespec; 3]>(data) else {
                    return;
                };
                let is_set = |time: &libc::timespec| time.tv_sec != 0 || time.tv_nsec != 0;
                extras.stamp = is_set(&software).then(|| from_timespec(&software));
                extras.hardware_ns =
                    is_set(&hardware).then(|| from_timespec::<Utc>(&hardware).as_ns());
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                if let Some(aux) = value_of::<libc::tpacket_auxdata>(data) {
                    extras.vlan = tag_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                extras.stamp = value_of::<libc::timespec>(data).map(|time| from_timespec(&time));
            }
            _ => {}
        });
        extras
    }
}

/// The control messages that the kernel has written.
///
/// # Safety
/// The header's control pointer and length describe a live buffer that the kernel has filled.
#[inline]
pub(crate) unsafe fn control_of(header: &libc::msghdr) -> &[u8] {
    if header.msg_controllen < HEADER {
        return &[];
    }
    // SAFETY: the caller vouches for pointer and length, and the kernel has written so much.
    unsafe { std::slice::from_raw_parts(header.msg_control.cast(), header.msg_controllen) }
}

/// Level, kind and content of each control message.
#[inline]
pub(crate) fn each_control(mut rest: &[u8], mut on: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
    // `struct cmsghdr`: length with itself, level, type; the next one is at a multiple of 8.
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, k0, k1, k2, k3] = *header;
        let length = usize::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let Some(data) = rest.get(HEADER..length) else { return };
        let level = libc::c_int::from_ne_bytes([l0, l1, l2, l3]);
        on(level, libc::c_int::from_ne_bytes([k0, k1, k2, k3]), data);
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
}

/// The content of a control message; `None` when it is shorter.
#[inline]
pub(crate) fn value_of<T: Plain>(data: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes, any bytes are a value of a plain type, and reads of any
    // alignment are fine.
    (data.len() >= size_of::<T>()).then(|| unsafe { data.as_ptr().cast::<T>().read_unaligned() })
}

/// A type of which any bytes are a value.
///
/// # Safety
/// It consists of integers.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: of integers.
unsafe impl Plain for libc::timespec {}
// SAFETY: of integers.
unsafe impl Plain for [libc::timespec; 3] {}
// SAFETY: of integers.
unsafe impl Plain for libc::tpacket_auxdata {}

const HEADER: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER == 16 && size_of::<usize>() == 8);

/// The tag as on the link, from what the kernel says of it.
#[inline]
pub(crate) fn tag_of(status: u32, tci: u16, tpid: u16) -> Option<[u8; 4]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { tpid } else { 0x8100 }.to_be_bytes();
    let [c, d] = tci.to_be_bytes();
    Some([a, b, c, d])
}

/// The arrays `recvmmsg` works on. Kept from call to call: clearing them takes longer than the
/// call.
pub(crate) struct Batch {
    iovecs: [libc::iovec; BATCH],
    headers: [libc::mmsghdr; BATCH],
    control: [[u64; CONTROL / 8]; BATCH],
    names: [libc::sockaddr_in6; BATCH],
}

// SAFETY: the pointers in it are written anew by each user before the call that reads them, and
// lead to the batch itself or to memory that the user of that call vouches for.
unsafe impl Send for Batch {}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch")
    }
}

impl Batch {
    pub(crate) fn new() -> Box<Batch> {
        // SAFETY: all-zero is valid for all four: null pointers and plain integers.
        Box::new(unsafe { std::mem::zeroed() })
    }

    /// Where the bytes of a message go.
    pub(crate) fn point(&mut self, slot: usize, to: *mut u8, length: usize) {
        self.iovecs[slot] = libc::iovec { iov_base: to.cast(), iov_len: length };
    }

    /// Takes what waits, at most `room` messages; returns how many came. With `names`, who sent a
    /// message is asked for as well.
    ///
    /// # Safety
    /// The first `room` entries must point to memory that is writable for their length and that
    /// nobody else touches during the call.
    pub(crate) unsafe fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
        names: bool,
    ) -> io::Result<usize> {
        // SAFETY: the caller vouches for the entries.
        match unsafe { self.take(fd, room, names, libc::MSG_DONTWAIT) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// As [`Batch::receive`]; waits for the first message, if none is there, for as long as the
    /// socket's `SO_RCVTIMEO` says. None came when there was a signal.
    ///
    /// **Errors**: `WouldBlock` when that is over.
    ///
    /// # Safety
    /// As of [`Batch::receive`].
    pub(crate) unsafe fn await_first(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
        names: bool,
    ) -> io::Result<usize> {
        // SAFETY: the caller vouches for the entries.
        unsafe { self.take(fd, room, names, libc::MSG_WAITFORONE) }
    }

    #[inline]
    unsafe fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
        names: bool,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        let entries = self.headers[..room].iter_mut().zip(&mut self.iovecs);
        for ((entry, iovec), control) in entries.zip(&mut self.control) {
            let header = &mut entry.msg_hdr;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = CONTROL;
        }
        if names {
            for (entry, name) in self.headers[..room].iter_mut().zip(&mut self.names) {
                entry.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
                entry.msg_hdr.msg_namelen = size_of_u32::<libc::sockaddr_in6>();
            }
        }
        let count = libc::c_uint::try_from(room).expect("invariant: at most BATCH");
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the headers point to our own iovecs, control buffers and names, which do not move
        // during the call, and these to memory the caller vouches for.
        match unsafe { direct::receive_messages(fd, headers, count, flags | libc::MSG_TRUNC) } {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The full length of a received message, also of one that was cut.
    #[inline]
    pub(crate) fn length(&self, slot: usize) -> u32 {
        self.headers[slot].msg_len
    }

    /// What came beside a received message.
    #[inline]
    pub(crate) fn extras(&self, slot: usize) -> Extras {
        // SAFETY: the kernel filled the header in `receive`; its control pointer and length
        // describe our own buffer, which has not moved: the batch is boxed.
        unsafe { Extras::of(&self.headers[slot].msg_hdr) }
    }

    /// Who sent a received message; only after [`Batch::receive`] with names.
    pub(crate) fn sender(&self, slot: usize) -> Option<SocketAddr> {
        address_of(&self.names[slot])
    }
}

/// An address as the kernel has written it, into room for the longer of the two kinds.
pub(crate) fn address_of(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_in is shorter, no more aligned, and of plain integers.
            let name = unsafe { std::ptr::from_ref(name).cast::<libc::sockaddr_in>().read() };
            let address = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::from((address, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            let flow = u32::from_be(name.sin6_flowinfo);
            Some(SocketAddrV6::new(address, port, flow, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_tag_without_its_type_is_a_customer_tag() {
        assert_eq!(tag_of(0, 7, 0x88a8), None);
        let valid = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tag_of(valid, 0xa007, 0), Some([0x81, 0x00, 0xa0, 0x07]));
        let typed = valid | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(tag_of(typed, 0xa007, 0x88a8), Some([0x88, 0xa8, 0xa0, 0x07]));
    }

    #[test]
    fn t0_senders_of_both_families_are_read() {
        // SAFETY: all-zero is valid for these structs of plain integers.
        let (mut six, mut four): (libc::sockaddr_in6, libc::sockaddr_in) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        assert_eq!(address_of(&six), None);
        six.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).unwrap();
        six.sin6_port = 9_u16.to_be();
        six.sin6_addr.s6_addr[15] = 1;
        assert_eq!(address_of(&six).unwrap().to_string(), "[::1]:9");
        four.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap();
        four.sin_port = 10_u16.to_be();
        four.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
        // SAFETY: the target is longer, and both are plain integers.
        unsafe { (&raw mut six).cast::<libc::sockaddr_in>().write(four) };
        assert_eq!(address_of(&six).unwrap().to_string(), "127.0.0.1:10");
    }
}

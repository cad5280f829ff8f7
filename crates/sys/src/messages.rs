// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes beside a received message: stamps, the VLAN tag that the kernel has taken off; and
//! taking many messages with one call.
//!
//! Not here: where the bytes go (`packet`, `udp`, `receive`).

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::socket::{check, size_of_u32};

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
    pub(crate) unsafe fn of(header: &libc::msghdr) -> Extras {
        let mut extras = Extras::default();
        // SAFETY: the caller vouches for the buffer.
        let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !message.is_null() {
            // SAFETY: FIRSTHDR and NXTHDR return only headers that lie whole in the buffer.
            let (level, kind, data) =
                unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
            if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
                // SAFETY: the kernel put a tpacket_auxdata there; reads of any alignment are fine.
                let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                extras.vlan = tag_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
            } else if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
                // SAFETY: the kernel put a timespec there; reads of any alignment are fine.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                extras.stamp = Some(from_timespec(&time));
            } else if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING {
                // SAFETY: the kernel put three timespecs there; reads of any alignment are fine.
                let times = unsafe { data.cast::<[libc::timespec; 3]>().read_unaligned() };
                let [software, _, hardware] = times.map(|it| from_timespec::<Utc>(&it).as_ns());
                extras.stamp = Some(software).filter(|it| *it != 0).map(Instant::from_ns);
                extras.hardware_ns = Some(hardware).filter(|it| *it != 0);
            }
            // SAFETY: `message` came from FIRSTHDR or NXTHDR on this header.
            message = unsafe { libc::CMSG_NXTHDR(header, message) };
        }
        extras
    }
}

/// The tag as on the link, from what the kernel says of it.
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
        for slot in 0..room {
            let header = &mut self.headers[slot].msg_hdr;
            header.msg_iov = &raw mut self.iovecs[slot];
            header.msg_iovlen = 1;
            header.msg_control = self.control[slot].as_mut_ptr().cast();
            header.msg_controllen = CONTROL;
            if names {
                header.msg_name = (&raw mut self.names[slot]).cast();
                header.msg_namelen = size_of_u32::<libc::sockaddr_in6>();
            }
        }
        if room == 0 {
            return Ok(0);
        }
        let count = libc::c_uint::try_from(room).expect("invariant: at most BATCH");
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the headers point to our own iovecs, control buffers and names, which do not move
        // during the call, and these to memory the caller vouches for; no timeout is given.
        let got = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                flags,
                std::ptr::null_mut(),
            )
        };
        match check(got) {
            Ok(count) => Ok(usize::try_from(count).expect("invariant: not negative")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The full length of a received message, also of one that was cut.
    pub(crate) fn length(&self, slot: usize) -> u32 {
        self.headers[slot].msg_len
    }

    /// What came beside a received message.
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes beside a received message: timestamps, the VLAN tag that the kernel has taken off;
//! and taking many messages with one call.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::direct;
use crate::socket::size_of_u32;

/// Messages taken per system call.
pub(crate) const BATCH: usize = 32;
/// Room for the control messages of one frame: VLAN tag, three timestamps, the NIC's number.
const CONTROL: usize = 256;

/// What the kernel says beside a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// The outer VLAN tag as on the link.
    pub(crate) vlan: Option<[u8; 4]>,
    /// When the kernel received it.
    pub(crate) timestamp: Option<Instant<Utc>>,
    /// When the NIC did, nanoseconds of its clock.
    pub(crate) hardware_ns: Option<i64>,
}

impl Extras {
    /// Reads the control messages of a header that a receiving call has filled.
    ///
    /// # Safety
    /// The header's control pointer and length describe a live buffer that the kernel has filled.
    #[inline(always)]
    pub(crate) unsafe fn of(header: &libc::msghdr) -> Extras {
        // SAFETY: the caller vouches for the buffer.
        let buffer = unsafe { control_of(header) };
        Extras::usual(buffer).unwrap_or_else(|| Extras::any(buffer))
    }

    /// Of control messages in the order in which a kernel writes them nearly always: the
    /// timestamps, then what a packet socket tells. `None` of any other.
    #[inline(always)]
    fn usual(buffer: &[u8]) -> Option<Extras> {
        let timestamped = value_of::<Timestamped>(buffer)?;
        let rest = buffer.get(size_of::<Timestamped>()..)?;
        if timestamped.header != Timestamped::HEADER {
            return None;
        }
        let vlan = match rest.len() {
            0 => None,
            PacketControl::SPACE => {
                let PacketControl { header, aux } = value_of(rest)?;
                if header != PacketControl::HEADER {
                    return None;
                }
                tag_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid)
            }
            _ => return None,
        };
        let mut extras = Extras { vlan, ..Extras::default() };
        extras.take_timestamps(&timestamped.times);
        Some(extras)
    }

    /// Of any control messages.
    #[inline(never)]
    fn any(buffer: &[u8]) -> Extras {
        let mut extras = Extras::default();
        each_control(buffer, |level, kind, data| match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                if let Some(times) = value_of::<[libc::timespec; 3]>(data) {
                    extras.take_timestamps(&times);
                }
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                if let Some(aux) = value_of::<libc::tpacket_auxdata>(data) {
                    extras.vlan = tag_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                extras.timestamp =
                    value_of::<libc::timespec>(data).map(|time| from_timespec(&time));
            }
            _ => {}
        });
        extras
    }

    /// Of the three times the first is the kernel's, the last the NIC's; 0 is none.
    #[inline]
    fn take_timestamps(&mut self, [software, _, hardware]: &[libc::timespec; 3]) {
        let is_set = |time: &libc::timespec| time.tv_sec | time.tv_nsec != 0;
        self.timestamp = is_set(software).then(|| from_timespec(software));
        self.hardware_ns = is_set(hardware).then(|| from_timespec::<Utc>(hardware).as_ns());
    }
}

/// A control message with timestamps.
#[derive(Clone, Copy)]
#[repr(C)]
struct Timestamped {
    header: [u64; 2],
    times: [libc::timespec; 3],
}

impl Timestamped {
    const HEADER: [u64; 2] =
        control_header(size_of::<Timestamped>(), libc::SOL_SOCKET, libc::SCM_TIMESTAMPING);
}

/// A control message with what a packet socket tells.
#[derive(Clone, Copy)]
#[repr(C)]
struct PacketControl {
    header: [u64; 2],
    aux: libc::tpacket_auxdata,
}

impl PacketControl {
    const HEADER: [u64; 2] =
        control_header(PacketControl::LEN, libc::SOL_PACKET, libc::PACKET_AUXDATA);
    /// Without what makes it a multiple of 8.
    const LEN: usize = HEADER + size_of::<libc::tpacket_auxdata>();
    const SPACE: usize = PacketControl::LEN.next_multiple_of(8);
}

const _: () =
    assert!(size_of::<Timestamped>() == 64 && size_of::<PacketControl>() <= PacketControl::SPACE);

/// `struct cmsghdr` as two words: the length with itself; level and type.
const fn control_header(length: usize, level: libc::c_int, kind: libc::c_int) -> [u64; 2] {
    let ([a, b, c, d], [e, f, g, h]) = (level.to_ne_bytes(), kind.to_ne_bytes());
    [u64::from_ne_bytes(length.to_ne_bytes()), u64::from_ne_bytes([a, b, c, d, e, f, g, h])]
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
// SAFETY: of integers.
unsafe impl Plain for Timestamped {}
// SAFETY: of integers.
unsafe impl Plain for PacketControl {}

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

/// The arrays `recvmmsg` works on, and what leads from one to the other. All of it is written once;
/// who reads a message restores what the kernel has written over ([`Batch::read`]).
pub(crate) struct Batch {
    arrays: Shared<Arrays>,
    /// Length of an address that is asked for; 0 for none.
    name_length: libc::socklen_t,
}

struct Arrays {
    iovecs: [libc::iovec; BATCH],
    headers: [libc::mmsghdr; BATCH],
    control: [[u64; CONTROL / 8]; BATCH],
    names: [libc::sockaddr_in6; BATCH],
}

// SAFETY: the pointers in it lead to itself, which does not move, or to memory that who calls
// `receive` vouches for; none is tied to a thread.
unsafe impl Send for Batch {}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch")
    }
}

impl Batch {
    /// With `names`, who sent a message is asked for as well.
    pub(crate) fn new(names: bool) -> Batch {
        // SAFETY: all-zero is valid for all four: null pointers and plain integers.
        let arrays = Shared::new(Box::new(unsafe { std::mem::zeroed::<Arrays>() }));
        let name_length = if names { size_of_u32::<libc::sockaddr_in6>() } else { 0 };
        let at = arrays.as_ptr();
        for slot in 0..BATCH {
            // SAFETY: the arrays are alive and nobody else uses them; only pointers into them are
            // made, and they do not move as long as those are used.
            unsafe {
                let header = &raw mut (*at).headers[slot].msg_hdr;
                (*header).msg_iov = &raw mut (*at).iovecs[slot];
                (*header).msg_iovlen = 1;
                (*header).msg_control = (&raw mut (*at).control[slot]).cast();
                (*header).msg_controllen = CONTROL;
                if names {
                    (*header).msg_name = (&raw mut (*at).names[slot]).cast();
                    (*header).msg_namelen = name_length;
                }
            }
        }
        Batch { arrays, name_length }
    }

    /// Where the bytes of a message go.
    pub(crate) fn point(&mut self, slot: usize, to: *mut u8, length: usize) {
        let iovec = libc::iovec { iov_base: to.cast(), iov_len: length };
        // SAFETY: the arrays are alive, and no reference into them is.
        unsafe { (*self.arrays.as_ptr()).iovecs[slot] = iovec };
    }

    /// Takes what waits, at most `room` messages; returns how many came. Each of them has to be
    /// read before the next call.
    ///
    /// # Safety
    /// The first `room` entries must point to memory that is writable for their length and that
    /// nobody else touches during the call.
    pub(crate) unsafe fn receive(&mut self, fd: BorrowedFd<'_>, room: usize) -> io::Result<usize> {
        // SAFETY: the caller vouches for the entries.
        match unsafe { self.take(fd, room, libc::MSG_DONTWAIT) } {
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
    #[inline]
    pub(crate) unsafe fn await_first(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
    ) -> io::Result<usize> {
        // SAFETY: the caller vouches for the entries.
        unsafe { self.take(fd, room, libc::MSG_WAITFORONE) }
    }

    #[inline]
    unsafe fn take(
        &mut self,
        fd: BorrowedFd<'_>,
        room: usize,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let room = room.min(BATCH);
        if room == 0 {
            return Ok(0);
        }
        let count = libc::c_uint::try_from(room).expect("invariant: at most BATCH");
        // SAFETY: the arrays are alive, and no reference into them is.
        let headers = unsafe { (&raw mut (*self.arrays.as_ptr()).headers).cast() };
        // SAFETY: the headers point to our own iovecs, control buffers and names, which do not
        // move, and these to memory the caller vouches for.
        match unsafe { direct::receive_messages(fd, headers, count, flags | libc::MSG_TRUNC) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    /// The full length of a received message, also of one that was cut.
    #[inline]
    pub(crate) fn length(&self, slot: usize) -> u32 {
        // SAFETY: the arrays are alive, and the kernel writes to them only during a call, for which
        // the batch is exclusively borrowed.
        unsafe { (*self.arrays.as_ptr()).headers[slot].msg_len }
    }

    /// What came beside a received message, once after it came; makes room for the next one.
    #[inline(always)]
    pub(crate) fn read(&mut self, slot: usize) -> Extras {
        // SAFETY: as of `length`, and no other reference to the header is alive.
        let header = unsafe { &mut (*self.arrays.as_ptr()).headers[slot].msg_hdr };
        // SAFETY: the kernel filled the header in `receive`, or it has been restored and describes
        // what was there before; its control pointer and length describe our own buffer, which does
        // not move.
        let extras = unsafe { Extras::of(header) };
        header.msg_controllen = CONTROL;
        header.msg_namelen = self.name_length;
        extras
    }

    /// Who sent a received message; only of a batch with names.
    pub(crate) fn sender(&self, slot: usize) -> Option<SocketAddr> {
        // SAFETY: as of `length`.
        address_of(unsafe { &(*self.arrays.as_ptr()).names[slot] })
    }
}

/// Memory on the heap that pointers elsewhere lead to, as those that the kernel is given: it does
/// not move, and no box claims it for itself.
pub(crate) struct Shared<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> Shared<T> {
    pub(crate) fn new(memory: Box<T>) -> Shared<T> {
        Shared(NonNull::from(Box::leak(memory)))
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: it comes from a box, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
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

    /// A control message as the kernel writes it.
    fn control(level: libc::c_int, kind: libc::c_int, content: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + content.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn words<const N: usize>(words: [i64; N]) -> Vec<u8> {
        words.map(i64::to_ne_bytes).concat()
    }

    /// Status, lengths, tag.
    fn told(status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut content = [status, 60, 60].map(u32::to_ne_bytes).concat();
        content.extend([0, 14, tci, tpid].map(u16::to_ne_bytes).concat());
        control(libc::SOL_PACKET, libc::PACKET_AUXDATA, &content)
    }

    fn timestamps(times: [i64; 6]) -> Vec<u8> {
        control(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &words(times))
    }

    #[test]
    fn t0_control_messages_say_the_same_in_the_usual_order_and_in_any() {
        let tagged = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let kernel = Some(Instant::from_ns(1_000_000_002));
        let vlan = Some([0x88, 0xa8, 0xa0, 0x07]);
        for (times, timestamp, hardware_ns) in [
            ([0; 6], None, None),
            ([1, 2, 0, 0, 0, 0], kernel, None),
            ([0, 0, 0, 0, 0, 5], None, Some(5)),
            ([1, 2, 0, 0, 3, 4], kernel, Some(3_000_000_004)),
        ] {
            let timestamps = timestamps(times);
            for (told, vlan) in [
                (Vec::new(), None),
                (told(0, 0xa007, 0x88a8), None),
                (told(tagged, 0xa007, 0x88a8), vlan),
            ] {
                let expected = Extras { vlan, timestamp, hardware_ns };
                let usual = [&timestamps[..], &told].concat();
                assert_eq!(Extras::usual(&usual), Some(expected));
                let other = control(libc::SOL_SOCKET, 99, &[1; 20]);
                for order in [[&timestamps, &told, &other], [&told, &timestamps, &other]] {
                    assert_eq!(Extras::any(&order.map(|part| &part[..]).concat()), expected);
                }
                assert_eq!(Extras::usual(&[&usual[..], &other].concat()), None);
                if !told.is_empty() {
                    assert_eq!(Extras::usual(&[&told[..], &timestamps].concat()), None);
                }
            }
        }
        let alone = control(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &words([1, 2]));
        assert_eq!(Extras::usual(&alone), None);
        assert_eq!(Extras::any(&alone), Extras { timestamp: kernel, ..Extras::default() });
    }

    #[test]
    fn t0_what_is_changed_of_usual_control_messages_is_seen_or_they_are_none() {
        let tagged = libc::TP_STATUS_VLAN_VALID;
        let usual = [timestamps([1, 2, 0, 0, 3, 4]), told(tagged, 7, 0)].concat();
        for length in 0..usual.len() {
            let cut = &usual[..length];
            assert!(Extras::usual(cut).is_none_or(|it| it == Extras::any(cut)), "{length}");
        }
        // But the upper halves of times, which have bounds.
        for at in (0..usual.len()).filter(|at| !(16..64).contains(at) || at % 8 < 4) {
            let mut other = usual.clone();
            other[at] ^= 1;
            let read = Extras::usual(&other);
            assert!(read.is_none_or(|it| it == Extras::any(&other)), "byte {at}");
            let is_header = (0..16).contains(&at) || (64..80).contains(&at);
            assert_eq!(read.is_none(), is_header, "byte {at}");
        }
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

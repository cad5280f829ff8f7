// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets: whole frames in and out of one interface, past the queueing discipline.
//! Needs CAP_NET_RAW in the network namespace's user namespace.
//!
//! The kernel takes an outer VLAN tag off a received frame and hands it over apart
//! (linux v6.12 `net/core/dev.c:__netif_receive_skb_core`); it is put back here.
//!
//! Not here: the faster road through AF_XDP (`xsk`).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use timewire_base::{Instant, Utc};

use crate::clock::from_timespec;
use crate::memory::{Frame, FrameMemory};
use crate::socket::{bind_packet, check, check_len, get_option, set_option, socket};

/// Frames taken per system call.
const BATCH: usize = 32;
/// Room for the control messages of one frame: a VLAN tag and a stamp.
const CONTROL: usize = 128;
/// The longest frame that fits a buffer.
const LONGEST: u32 = FrameMemory::BUFFER - FrameMemory::HEADROOM;
/// Every protocol: linux v6.12 `include/uapi/linux/if_ether.h`.
const ETH_P_ALL: u16 = 0x0003;
/// Bytes of a frame that an observer looks at: every header up to a message's own.
pub const PREFIX: usize = 128;

/// What a socket is for.
#[derive(Clone, Copy, Debug)]
pub struct PacketOptions {
    /// Receive what the interface receives (never what it sends).
    pub receive: bool,
    /// Ask for a kernel stamp with each received frame.
    pub stamps: bool,
    /// Receive buffer, bytes; the kernel grants less without CAP_NET_ADMIN.
    pub buffer_bytes: u32,
}

/// One frame as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// When the kernel received it; `None` if the kernel gave no stamp.
    pub stamp: Option<Instant<Utc>>,
    /// Length in bytes without the check sequence.
    pub length: u32,
    /// How many bytes of `prefix` are valid.
    pub prefix_len: usize,
    /// The first bytes.
    pub prefix: [u8; PREFIX],
}

impl Default for Observed {
    fn default() -> Observed {
        Observed { stamp: None, length: 0, prefix_len: 0, prefix: [0; PREFIX] }
    }
}

/// An AF_PACKET socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    batch: Box<Batch>,
    /// Received frames that no buffer holds, since [`PacketSocket::take_drops`].
    too_long: u32,
}

impl PacketSocket {
    /// Opens a socket on an interface of the caller's network namespace.
    ///
    /// **Errors**: `EPERM` without CAP_NET_RAW.
    pub fn open(interface: u32, options: PacketOptions) -> io::Result<PacketSocket> {
        // Protocol 0: nothing arrives before the socket is bound to its one interface.
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let one: libc::c_int = 1;
        if options.receive {
            set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one)?;
            set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, &one)?;
            // FORCE goes past the administrator's limit and needs CAP_NET_ADMIN in the first user
            // namespace; without it the plain option gives as much as the limit allows.
            let forced = set_option(
                fd.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                &options.buffer_bytes,
            );
            if forced.is_err() {
                set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &options.buffer_bytes)?;
            }
        }
        if options.stamps {
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        }
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &one)?;
        bind_packet(fd.as_fd(), interface, if options.receive { ETH_P_ALL } else { 0 })?;
        Ok(PacketSocket { fd, batch: Box::new(Batch::new()), too_long: 0 })
    }

    /// Receives waiting frames into free buffers, taking each used one from `free`; appends to
    /// `got` as far as its capacity goes, so that it never allocates. A frame longer than a
    /// buffer is dropped and counted. Returns how many came, those included.
    pub fn receive(
        &mut self,
        memory: &FrameMemory,
        free: &mut Vec<u32>,
        got: &mut Vec<Frame>,
    ) -> io::Result<usize> {
        let room = free.len().min(got.capacity() - got.len()).min(BATCH);
        for slot in 0..room {
            let buffer = free[free.len() - 1 - slot];
            self.batch.point(slot, memory.at(buffer_address(buffer), LONGEST), LONGEST as usize);
        }
        // SAFETY: each of the `room` entries points to its own free buffer inside `memory`, which
        // the caller keeps alive and nobody else uses while it is free.
        let count = unsafe { self.batch.receive(self.fd.as_fd(), room)? };
        let top = free.len();
        for slot in 0..count {
            let (length, extras) = self.batch.result(slot);
            if length > LONGEST {
                self.too_long = self.too_long.saturating_add(1);
                continue;
            }
            let mut frame = Frame { address: buffer_address(free[top - 1 - slot]), length };
            if let Some(tag) = extras.vlan {
                frame = put_tag_back(memory, frame, tag);
            }
            got.push(frame);
        }
        // The used buffers leave the list; those of frames that were too long stay.
        let mut kept = top - count;
        for slot in (0..count).rev() {
            if self.batch.length(slot) > LONGEST {
                free[kept] = free[top - 1 - slot];
                kept += 1;
            }
        }
        free.truncate(kept);
        Ok(count)
    }

    /// Receives the first bytes and the stamps of waiting frames; returns how many came.
    pub fn observe(&mut self, into: &mut [Observed]) -> io::Result<usize> {
        let room = into.len().min(BATCH);
        for (slot, observed) in into.iter_mut().take(room).enumerate() {
            self.batch.point(slot, observed.prefix.as_mut_ptr(), PREFIX);
        }
        // SAFETY: each of the `room` entries points to the prefix of its own element of `into`,
        // which is exclusively borrowed until this function returns.
        let count = unsafe { self.batch.receive(self.fd.as_fd(), room)? };
        for (slot, observed) in into.iter_mut().take(count).enumerate() {
            let (length, extras) = self.batch.result(slot);
            let tag_bytes = if extras.vlan.is_some() { 4 } else { 0 };
            observed.length = length + tag_bytes;
            observed.prefix_len = PREFIX.min(length as usize);
            observed.stamp = extras.stamp;
        }
        Ok(count)
    }

    /// Sends one frame at once.
    ///
    /// **Errors**: `WouldBlock` or `ENOBUFS` when the device takes no more now; the frame is not
    /// sent.
    pub fn send(&self, memory: &FrameMemory, frame: Frame) -> io::Result<()> {
        let from = memory.at(frame.address, frame.length);
        // SAFETY: `at` checked that `length` bytes at `from` lie inside the mapping.
        let sent = unsafe {
            libc::send(self.fd.as_raw_fd(), from.cast(), frame.length as usize, libc::MSG_DONTWAIT)
        };
        check_len(sent).map(drop)
    }

    /// How many received frames were lost since the last call: the kernel had no room, or they were
    /// longer than a buffer.
    pub fn take_drops(&mut self) -> io::Result<u32> {
        let zero = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let stats = get_option(self.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, zero)?;
        Ok(stats.tp_drops.saturating_add(std::mem::take(&mut self.too_long)))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn buffer_address(buffer: u32) -> u64 {
    u64::from(buffer) * u64::from(FrameMemory::BUFFER) + u64::from(FrameMemory::HEADROOM)
}

/// Moves the addresses four bytes forward and writes the tag between them and the EtherType.
fn put_tag_back(memory: &FrameMemory, frame: Frame, tag: [u8; 4]) -> Frame {
    let tagged = Frame { address: frame.address - 4, length: frame.length + 4 };
    let to = memory.at(tagged.address, tagged.length);
    // SAFETY: `at` checked the bounds of the longer frame, which has the headroom before it; the
    // regions overlap, which `copy` allows, and a frame with a tag has at least its two addresses.
    unsafe {
        std::ptr::copy(to.add(4), to, 12);
        std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(12), 4);
    }
    tagged
}

/// What the kernel says beside a frame.
struct Extras {
    vlan: Option<[u8; 4]>,
    stamp: Option<Instant<Utc>>,
}

/// The arrays `recvmmsg` works on. Kept from call to call: clearing them takes longer than the
/// call.
struct Batch {
    iovecs: [libc::iovec; BATCH],
    headers: [libc::mmsghdr; BATCH],
    control: [[u64; CONTROL / 8]; BATCH],
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
    fn new() -> Batch {
        // SAFETY: all-zero is valid for all three: null pointers and plain integers.
        unsafe { std::mem::zeroed() }
    }

    fn point(&mut self, slot: usize, to: *mut u8, length: usize) {
        self.iovecs[slot] = libc::iovec { iov_base: to.cast(), iov_len: length };
    }

    /// # Safety
    /// The first `room` entries must point to memory that is writable for their length and that
    /// nobody else touches during the call.
    unsafe fn receive(&mut self, fd: BorrowedFd<'_>, room: usize) -> io::Result<usize> {
        for slot in 0..room {
            let header = &mut self.headers[slot].msg_hdr;
            header.msg_iov = &raw mut self.iovecs[slot];
            header.msg_iovlen = 1;
            header.msg_control = self.control[slot].as_mut_ptr().cast();
            header.msg_controllen = CONTROL;
        }
        if room == 0 {
            return Ok(0);
        }
        let count = libc::c_uint::try_from(room).expect("invariant: at most BATCH");
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the headers point to our own iovecs and control buffers, which do not move during
        // the call, and these to memory the caller vouches for; no timeout is given.
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

    /// The full length of a received frame.
    fn length(&self, slot: usize) -> u32 {
        self.headers[slot].msg_len
    }

    /// The full length of a received frame, and what came beside it.
    fn result(&self, slot: usize) -> (u32, Extras) {
        let header = &self.headers[slot].msg_hdr;
        let mut extras = Extras { vlan: None, stamp: None };
        // SAFETY: the kernel filled `header` in `receive`; its control pointer and length still
        // describe our own buffer.
        let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !message.is_null() {
            // SAFETY: FIRSTHDR and NXTHDR return only headers that lie whole in the buffer.
            let (level, kind, data) =
                unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
            if level == libc::SOL_PACKET && kind == libc::PACKET_AUXDATA {
                // SAFETY: the kernel put a tpacket_auxdata there; reads of any alignment are fine.
                let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                extras.vlan = tag_of(&aux);
            } else if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
                // SAFETY: the kernel put a timespec there; reads of any alignment are fine.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                extras.stamp = Some(from_timespec(&time));
            }
            // SAFETY: `message` came from FIRSTHDR or NXTHDR on this header.
            message = unsafe { libc::CMSG_NXTHDR(header, message) };
        }
        (self.length(slot), extras)
    }
}

fn tag_of(aux: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if known { aux.tp_vlan_tpid } else { 0x8100 };
    let [a, b] = tpid.to_be_bytes();
    let [c, d] = aux.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_tag_is_put_back_before_the_ethertype() {
        let memory = FrameMemory::new(1).unwrap();
        let untagged: Vec<u8> = (0..20).collect();
        let frame = memory.write(0, &untagged);
        let tagged = put_tag_back(&memory, frame, [0x81, 0, 0x60, 5]);
        let mut bytes = [0; 24];
        assert_eq!(memory.copy_prefix(tagged, &mut bytes), 24);
        assert_eq!(bytes[..12], untagged[..12]);
        assert_eq!(bytes[12..16], [0x81, 0, 0x60, 5]);
        assert_eq!(bytes[16..], untagged[12..]);
        assert_eq!(memory.buffer_of(tagged), 0);
    }

    #[test]
    fn t0_a_tag_without_its_type_is_a_customer_tag() {
        // SAFETY: all-zero is a valid tpacket_auxdata (plain integers).
        let mut aux: libc::tpacket_auxdata = unsafe { std::mem::zeroed() };
        assert_eq!(tag_of(&aux), None);
        aux.tp_status = libc::TP_STATUS_VLAN_VALID;
        aux.tp_vlan_tci = 0xa007;
        assert_eq!(tag_of(&aux), Some([0x81, 0x00, 0xa0, 0x07]));
    }
}

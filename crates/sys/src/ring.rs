// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet socket whose frames the kernel writes into memory that it shares with the receiver
//! (`PACKET_RX_RING`, version 2): no system call while frames wait. Needs CAP_NET_RAW.
//!
//! Version 3 is not used: it hands over blocks, and holds a single frame back until its block's
//! time is over.
//!
//! Source: linux v6.12 `Documentation/networking/packet_mmap.rst`,
//! `include/uapi/linux/if_packet.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use timewire_base::{Instant, Utc};

use crate::filter::FrameFilter;
use crate::messages::tag_of;
use crate::packet::ETH_P_ALL;
use crate::receive::{
    Arrival, Look, SocketOptions, ask_for_timestamps, open_packet, put_tag_back, take_packet_drops,
};
use crate::socket::{bind_packet, set_option};

/// Room before each frame, to put its tag back.
const TAG: u32 = 4;
/// The kernel's header, the address and their alignment, before a frame.
const BEFORE: u32 = 96;
/// Frames taken in one look, at most.
const POLL_BATCH: usize = 64;

const TPACKET_V2: libc::c_int = 1;

/// A packet socket with a ring.
#[derive(Debug)]
pub struct RxPacketRing {
    fd: OwnedFd,
    mapping: NonNull<u8>,
    mapped: usize,
    slot_bytes: usize,
    slots: usize,
    next: usize,
    drops: u64,
}

// SAFETY: the mapping is not tied to a thread, and only `&mut self` touches it.
unsafe impl Send for RxPacketRing {}

impl RxPacketRing {
    /// Opens a ring for the frames that an interface receives and that fit. It has a single
    /// timestamp for each: the NIC's if that was asked for and there is one, else the kernel's.
    ///
    /// **Errors**: as [`crate::receive::ReceiveSocket::frames`]; `ENOMEM` for too large a buffer.
    pub fn open(
        interface: u32,
        filter: &FrameFilter,
        options: SocketOptions,
    ) -> io::Result<RxPacketRing> {
        let fd = open_packet(filter)?;
        let set = |name, value: libc::c_int| set_option(fd.as_fd(), libc::SOL_PACKET, name, &value);
        set(libc::PACKET_VERSION, TPACKET_V2)?;
        set(libc::PACKET_RESERVE, 4)?;
        ask_for_timestamps(fd.as_fd(), options.timestamps)?;
        if options.timestamps.hardware {
            let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
            set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &raw)?;
        }
        if let Some(busy_poll) = options.busy_poll {
            busy_poll.set(fd.as_fd())?;
        }
        let shape = Shape::of(options.longest, options.buffer_bytes);
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &shape.request())?;
        let (mapping, mapped) = shape.map(&fd)?;
        let ring = RxPacketRing {
            fd,
            mapping,
            mapped,
            slot_bytes: to_usize(shape.slot),
            slots: to_usize(shape.count),
            next: 0,
            drops: 0,
        };
        bind_packet(ring.as_fd(), interface, ETH_P_ALL)?;
        Ok(ring)
    }

    /// Takes what waits, at most 64 frames, without waiting; returns how many there were.
    pub fn receive(&mut self, each: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let waiting = (0..POLL_BATCH.min(self.slots))
            .take_while(|ahead| self.status(self.slot(*ahead)) & libc::TP_STATUS_USER != 0)
            .count();
        if waiting == 0 {
            return 0;
        }
        let look = Look::now();
        for _ in 0..waiting {
            let slot = self.slot(0);
            self.hand_over(slot, look, each);
            self.status_of(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
        }
        waiting
    }

    /// The start of the slot that is so many after the next.
    fn slot(&self, ahead: usize) -> NonNull<u8> {
        let at = (self.next + ahead) % self.slots * self.slot_bytes;
        // SAFETY: the mapping has `slots` slots of `slot_bytes`, and `at` is the start of one.
        unsafe { self.mapping.add(at) }
    }

    fn status_of(&self, slot: NonNull<u8>) -> &AtomicU32 {
        // SAFETY: a slot begins with the status, an aligned u32 that both sides access atomically,
        // in a mapping that lives as long as `self`.
        unsafe { slot.cast::<AtomicU32>().as_ref() }
    }

    fn status(&self, slot: NonNull<u8>) -> u32 {
        self.status_of(slot).load(Ordering::Acquire)
    }

    fn hand_over(&mut self, slot: NonNull<u8>, look: Look, each: &mut dyn FnMut(Arrival<'_>)) {
        // SAFETY: the slot is ours (its status says so) and begins with this header; it is large
        // enough for it, and aligned to 16 bytes.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac) - to_usize(TAG);
        let end = usize::from(header.tp_mac) + to_usize(header.tp_snaplen);
        assert!(end <= self.slot_bytes, "a frame ends at {end} of a slot");
        // SAFETY: `start..end` was just checked to lie in the slot, which is ours alone until its
        // status is written; the kernel leaves TAG bytes before a frame (PACKET_RESERVE), and the
        // header has been read.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(slot.as_ptr().add(start), end - start) };
        let tag = tag_of(header.tp_status, header.tp_vlan_tci, header.tp_vlan_tpid);
        let mut length = header.tp_len;
        let bytes = match tag {
            Some(tag) => {
                length += 4;
                put_tag_back(buffer, tag)
            }
            None => &buffer[to_usize(TAG)..],
        };
        let ns = i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec);
        let is_hardware = header.tp_status & libc::TP_STATUS_TS_RAW_HARDWARE != 0;
        each(Arrival {
            bytes,
            length,
            from: None,
            tag,
            hardware_ns: is_hardware.then_some(ns),
            driver: None,
            kernel: (!is_hardware).then(|| look.tai(Instant::<Utc>::from_ns(ns))),
            user: look.user,
        });
    }

    /// Frames that the ring had no room for since it was opened.
    pub fn drops(&mut self) -> io::Result<u64> {
        self.drops += u64::from(take_packet_drops(self.fd.as_fd())?);
        Ok(self.drops)
    }
}

impl AsFd for RxPacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for RxPacketRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `Shape::map` with this size; nobody else knows the address.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).expect("invariant: u32 fits usize on Linux")
}

/// How the memory is cut: blocks of whole slots, so that slots are one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    slot: u32,
    block: u32,
    blocks: u32,
    count: u32,
}

impl Shape {
    /// A slot is a power of two, so that blocks, which are whole pages, have no rest.
    fn of(longest: u32, buffer_bytes: u32) -> Shape {
        let slot = (BEFORE + TAG).saturating_add(longest).clamp(256, 1 << 16).next_power_of_two();
        let block = slot.max(1 << 16);
        let blocks = buffer_bytes.div_ceil(block).clamp(1, 1 << 14);
        Shape { slot, block, blocks, count: block / slot * blocks }
    }

    fn request(self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: self.block,
            tp_block_nr: self.blocks,
            tp_frame_size: self.slot,
            tp_frame_nr: self.count,
        }
    }

    fn map(self, fd: &OwnedFd) -> io::Result<(NonNull<u8>, usize)> {
        let bytes = to_usize(self.block) * to_usize(self.blocks);
        // SAFETY: a shared mapping of the socket's ring with no address hint has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok((NonNull::new(base.cast()).expect("invariant: mmap without hint is not null"), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_slots_hold_the_longest_frame_and_fill_their_blocks() {
        for (longest, bytes) in [(64, 1), (1_518, 1 << 20), (9_216, 1 << 22), (u32::MAX, u32::MAX)]
        {
            let shape = Shape::of(longest, bytes);
            assert!(shape.slot >= longest.saturating_add(BEFORE + TAG).min(1 << 16), "{shape:?}");
            assert_eq!((shape.block % shape.slot, shape.block % 4_096), (0, 0));
            assert_eq!(shape.count * shape.slot / shape.block, shape.blocks);
        }
        assert_eq!(Shape::of(1_518, 1 << 20).count, 512);
    }
}

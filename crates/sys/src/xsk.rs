// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP sockets over the shared [`FrameMemory`]: one socket that receives what an XDP program
//! hands it, one that sends, both on the same memory, so that a frame goes from one interface to
//! the other without a copy in user space.
//! Needs CAP_NET_RAW; receiving needs an XDP program as well (`timewire-bpf`).
//!
//! Source: linux v6.12 `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`.
//!
//! Not here: AF_PACKET, which works everywhere (`packet`).

mod listen;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use listen::{XskArrival, XskListener};

use crate::memory::{Frame, FrameMemory};
use crate::socket::{check, check_len, get_option, set_option, size_of_u32, socket};

/// Entries in each ring.
pub(crate) const RING: u32 = 4_096;
/// Set by the kernel in a ring's flags when it wants a system call (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// Where a socket sends from or receives on.
#[derive(Clone, Copy, Debug)]
pub struct XskQueue {
    /// Index of the interface.
    pub interface: u32,
    /// Its queue.
    pub queue: u32,
    /// Ask for zero copy; otherwise the kernel copies, which every driver can.
    pub zero_copy: bool,
}

/// Why a frame was not sent at once.
#[derive(Debug)]
pub enum SendError {
    /// The ring is full; the frame was not taken.
    Full,
    /// The device did not take it now. The frame waits in the ring, from which there is no way
    /// back, and goes with the next call.
    Kept(io::Error),
}

/// A socket that receives.
#[derive(Debug)]
pub struct XskReceiver {
    fd: OwnedFd,
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    memory: Arc<FrameMemory>,
}

impl XskReceiver {
    /// Registers the memory and binds to one receive queue.
    pub fn open(memory: &Arc<FrameMemory>, on: XskQueue) -> io::Result<XskReceiver> {
        let fd = socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        register(&fd, memory)?;
        set_ring_size(&fd, libc::XDP_RX_RING)?;
        let offsets = ring_offsets(&fd)?;
        let fill = Ring::map(&fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let receive = Ring::map(&fd, &offsets.rx, pgoff(libc::XDP_PGOFF_RX_RING))?;
        bind(&fd, on, None)?;
        Ok(XskReceiver { fd, fill, receive, memory: Arc::clone(memory) })
    }

    /// Gives free buffers to the kernel to receive into, as many as fit; takes them from `free`.
    pub fn offer(&mut self, free: &mut Vec<u32>) {
        while !free.is_empty() && self.fill.free() > 0 {
            let buffer = free.pop().expect("invariant: not empty");
            self.fill.push(u64::from(buffer) * u64::from(FrameMemory::BUFFER));
        }
        self.fill.publish();
    }

    /// Takes received frames, as many as `got` has capacity for. Returns how many came.
    pub fn receive(&mut self, got: &mut Vec<Frame>) -> usize {
        let room = got.capacity() - got.len();
        let mut count = 0;
        while count < room {
            let Some(desc) = self.receive.pop() else {
                break;
            };
            // The kernel wrote this descriptor; `at` panics if it pointed outside our memory.
            self.memory.at(desc.addr, desc.len);
            got.push(Frame { address: desc.addr, length: desc.len });
            count += 1;
        }
        self.receive.release();
        count
    }

    /// Frames lost before they could be taken since the socket was opened: no free buffer, no room
    /// in the ring, or longer than a buffer.
    pub fn drops(&self) -> io::Result<u64> {
        // SAFETY: all-zero is a valid xdp_statistics (plain integers).
        let zero: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let stats = get_option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, zero)?;
        // A frame that found no buffer is in `rx_dropped` as well as in `rx_fill_ring_empty_descs`
        // (linux v6.12 `net/xdp/xsk.c:__xsk_rcv`).
        Ok(stats.rx_dropped + stats.rx_ring_full)
    }
}

impl AsFd for XskReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A socket that sends.
#[derive(Debug)]
pub struct XskSender {
    fd: OwnedFd,
    send: Ring<libc::xdp_desc>,
    complete: Ring<u64>,
    // The kernel wants both rings of a memory on every queue, also on one that only sends.
    _fill: Ring<u64>,
    memory: Arc<FrameMemory>,
}

impl XskSender {
    /// Binds to one transmit queue, sharing the memory of `owner` if given.
    pub fn open(
        memory: &Arc<FrameMemory>,
        owner: Option<&XskReceiver>,
        on: XskQueue,
    ) -> io::Result<XskSender> {
        let fd = socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        match owner {
            Some(_) => set_umem_rings(&fd)?,
            None => register(&fd, memory)?,
        }
        set_ring_size(&fd, libc::XDP_TX_RING)?;
        let offsets = ring_offsets(&fd)?;
        let fill = Ring::map(&fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let complete = Ring::map(&fd, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let send = Ring::map(&fd, &offsets.tx, pgoff(libc::XDP_PGOFF_TX_RING))?;
        bind(&fd, on, owner.map(AsFd::as_fd))?;
        let memory = Arc::clone(memory);
        Ok(XskSender { fd, send, complete, _fill: fill, memory })
    }

    /// Hands one frame to the device at once. Its buffer comes back through
    /// [`XskSender::reclaim`].
    pub fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.send.free() == 0 {
            return Err(SendError::Full);
        }
        self.memory.at(frame.address, frame.length);
        self.send.push(libc::xdp_desc { addr: frame.address, len: frame.length, options: 0 });
        self.send.publish();
        self.kick().map_err(SendError::Kept)
    }

    /// Whether the kernel says when it wants a system call: a sender does at its start.
    pub fn wants_wakeup(&self) -> bool {
        self.send.wants_wakeup()
    }

    /// Makes the kernel send what waits in the ring.
    pub fn kick(&self) -> io::Result<()> {
        if !self.send.wants_wakeup() {
            return Ok(());
        }
        // SAFETY: a send without data has no preconditions.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        check_len(sent).map(drop)
    }

    /// Takes the buffers of sent frames back, as many as `free` has capacity for.
    pub fn reclaim(&mut self, free: &mut Vec<u32>) {
        while free.len() < free.capacity() {
            let Some(address) = self.complete.pop() else {
                break;
            };
            free.push(self.memory.buffer_of(Frame { address, length: 0 }));
        }
        self.complete.release();
    }
}

fn register(fd: &OwnedFd, memory: &FrameMemory) -> io::Result<()> {
    // SAFETY: all-zero is a valid xdp_umem_reg (plain integers).
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = memory.base() as u64;
    registration.len = u64::try_from(memory.byte_len()).expect("invariant: usize fits u64");
    registration.chunk_size = FrameMemory::BUFFER;
    set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
    set_umem_rings(fd)
}

pub(crate) fn set_umem_rings(fd: &OwnedFd) -> io::Result<()> {
    set_ring_size(fd, libc::XDP_UMEM_FILL_RING)?;
    set_ring_size(fd, libc::XDP_UMEM_COMPLETION_RING)
}

pub(crate) fn set_ring_size(fd: &OwnedFd, ring: libc::c_int) -> io::Result<()> {
    set_option(fd.as_fd(), libc::SOL_XDP, ring, &RING)
}

pub(crate) fn pgoff(offset: libc::off_t) -> u64 {
    u64::try_from(offset).expect("invariant: ring offsets are positive")
}

pub(crate) fn ring_offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all-zero is a valid xdp_mmap_offsets (plain integers).
    let zero: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, zero)
}

fn bind(fd: &OwnedFd, on: XskQueue, share: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_xdp (plain integers).
    let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
    address.sxdp_family = libc::__u16::try_from(libc::AF_XDP).expect("invariant: 44");
    address.sxdp_ifindex = on.interface;
    address.sxdp_queue_id = on.queue;
    match share {
        // A sharing socket inherits the copy mode and the wake-up flag.
        Some(owner) => {
            address.sxdp_flags = libc::XDP_SHARED_UMEM;
            address.sxdp_shared_umem_fd =
                libc::__u32::try_from(owner.as_raw_fd()).expect("invariant: open");
        }
        None => {
            let mode = if on.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
            address.sxdp_flags = mode | libc::XDP_USE_NEED_WAKEUP;
        }
    }
    let length = size_of_u32::<libc::sockaddr_xdp>();
    // SAFETY: `address` is a valid sockaddr_xdp of `length` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// One ring shared with the kernel. We are its producer or its consumer, never both; the cursors of
/// the other side are read with acquire, ours written with release.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    mapping: NonNull<u8>,
    mapped: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Our own cursor, published by `publish` or `release`.
    ours: u32,
}

// SAFETY: the mapping is not tied to a thread, and `Ring` has no shared-reference methods that
// write.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    pub(crate) fn map(fd: &OwnedFd, at: &libc::xdp_ring_offset, pgoff: u64) -> io::Result<Ring<T>> {
        let entries_at = usize::try_from(at.desc).expect("invariant: offsets are small");
        let mapped = entries_at + RING as usize * size_of::<T>();
        // SAFETY: a shared mapping of the socket's ring with no address hint has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                libc::off_t::try_from(pgoff).expect("invariant: ring offsets are positive"),
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base: NonNull<u8> =
            NonNull::new(base.cast()).expect("invariant: mmap without hint is never null");
        let field = |offset: u64| {
            let offset = usize::try_from(offset).expect("invariant: offsets are small");
            assert!(offset < mapped, "ring field at {offset} beyond its mapping of {mapped}");
            // SAFETY: just checked to be inside the mapping.
            unsafe { base.add(offset) }
        };
        Ok(Ring {
            mapping: base,
            mapped,
            producer: field(at.producer).cast(),
            consumer: field(at.consumer).cast(),
            flags: field(at.flags).cast(),
            entries: field(at.desc).cast(),
            ours: 0,
        })
    }

    fn load(cursor: NonNull<AtomicU32>) -> u32 {
        // SAFETY: the cursors lie in the mapping, which lives as long as the ring, aligned as the
        // kernel aligns its u32; both sides access them atomically.
        unsafe { cursor.as_ref() }.load(Ordering::Acquire)
    }

    fn store(cursor: NonNull<AtomicU32>, value: u32) {
        // SAFETY: as in `load`.
        unsafe { cursor.as_ref() }.store(value, Ordering::Release);
    }

    fn entry(&self) -> *mut T {
        let index = self.ours & (RING - 1);
        // SAFETY: the mapping holds RING entries from `entries`, and the index is below RING.
        unsafe { self.entries.as_ptr().add(index as usize) }
    }

    /// As producer: entries that can be pushed.
    pub(crate) fn free(&self) -> u32 {
        RING - self.ours.wrapping_sub(Self::load(self.consumer))
    }

    /// As producer: writes an entry; the other side sees it after `publish`.
    pub(crate) fn push(&mut self, value: T) {
        debug_assert!(self.free() > 0);
        // SAFETY: `entry` is in bounds, and between the cursors the entry is ours alone.
        unsafe { self.entry().write(value) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// As producer: entries that the other side has not taken yet.
    pub(crate) fn pending(&self) -> u32 {
        RING - self.free()
    }

    pub(crate) fn publish(&mut self) {
        Self::store(self.producer, self.ours);
    }

    /// As consumer: takes an entry; the other side may reuse it after `release`.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if Self::load(self.producer) == self.ours {
            return None;
        }
        // SAFETY: `entry` is in bounds and was published by the other side (acquire above).
        let value = unsafe { self.entry().read() };
        self.ours = self.ours.wrapping_add(1);
        Some(value)
    }

    /// As consumer: entries that can be taken.
    fn waiting(&self) -> usize {
        let there = Self::load(self.producer).wrapping_sub(self.ours);
        usize::try_from(there).expect("invariant: u32 fits usize")
    }

    pub(crate) fn release(&mut self) {
        Self::store(self.consumer, self.ours);
    }

    pub(crate) fn wants_wakeup(&self) -> bool {
        Self::load(self.flags) & NEED_WAKEUP != 0
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size; nobody else knows the address.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two views of one heap allocation: ours and the kernel's.
    fn pair(memory: &mut [u64]) -> (Ring<u64>, Ring<u64>) {
        let base: NonNull<u8> = NonNull::new(memory.as_mut_ptr()).unwrap().cast();
        // SAFETY: offsets 0, 4 and 8 and the entries from 64 lie inside the test's allocation.
        let view = || unsafe {
            Ring {
                mapping: base,
                mapped: 0,
                producer: base.cast(),
                consumer: base.add(4).cast(),
                flags: base.add(8).cast(),
                entries: base.add(64).cast(),
                ours: 0,
            }
        };
        (view(), view())
    }

    #[test]
    fn t0_a_ring_hands_over_in_order_and_wraps() {
        let mut memory = vec![0_u64; 8 + RING as usize];
        let (mut producer, mut consumer) = pair(&mut memory);
        let near_the_end = u32::MAX - 5;
        producer.ours = near_the_end;
        consumer.ours = near_the_end;
        producer.publish();
        consumer.release();
        let mut sent = 0_u64;
        let mut seen = 0_u64;
        for round in 0..9_u64 {
            for _ in 0..round * 300 {
                if producer.free() == 0 {
                    break;
                }
                producer.push(sent);
                sent += 1;
            }
            assert_eq!(consumer.pop(), None, "nothing is seen before it is published");
            producer.publish();
            while let Some(value) = consumer.pop() {
                assert_eq!(value, seen);
                seen += 1;
            }
            consumer.release();
        }
        assert_eq!(sent, seen);
        assert!(seen > u64::from(RING));
        std::mem::forget((producer, consumer));
    }

    #[test]
    fn t0_a_full_ring_takes_no_more() {
        let mut memory = vec![0_u64; 8 + RING as usize];
        let (mut producer, mut consumer) = pair(&mut memory);
        for value in 0..u64::from(RING) {
            producer.push(value);
        }
        producer.publish();
        assert_eq!(producer.free(), 0);
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(producer.free(), 0, "not free before it is released");
        consumer.release();
        assert_eq!(producer.free(), 1);
        std::mem::forget((producer, consumer));
    }
}

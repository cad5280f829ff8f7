// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An AF_XDP socket for a program that reads each frame where it lies and gives its buffer back at
//! once: with what the XDP program has written before the frame, and with busy polling.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use timewire_base::{Instant, Tai};

use super::{Ring, XskQueue, bind, pgoff, register, ring_offsets, set_ring_size, set_umem_rings};
use crate::busy_poll::BusyPoll;
use crate::clock;
use crate::memory::FrameMemory;
use crate::socket::{check_len, get_option};

/// Frames taken in one look, at most.
const POLL_BATCH: usize = 64;

/// One frame in the shared memory.
#[derive(Debug)]
pub struct XskArrival<'a, const M: usize> {
    /// The frame, without the check sequence.
    pub bytes: &'a [u8],
    /// The bytes before it, the program's word: cleared after, so what is there is of this frame.
    pub metadata: [u8; M],
    /// When it was seen in the ring.
    pub user: Instant<Tai>,
}

/// A socket that receives and gives each buffer back at once.
#[derive(Debug)]
pub struct XskListener {
    fd: OwnedFd,
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    memory: Arc<FrameMemory>,
    /// Its buffers, of all in the memory.
    buffers: Range<u32>,
}

impl XskListener {
    /// Fewest and most buffers of one listener.
    pub const BUFFERS: (u32, u32) = (64, super::RING);

    /// Binds to one receive queue, with these buffers of the memory, which are its alone. The
    /// memory is registered with the kernel, or it is the one that `owner` has registered: of
    /// another queue, of the same or another interface. A sharing socket copies as its owner does.
    ///
    /// **Errors**: `EPERM` without CAP_NET_RAW (busy polling: CAP_NET_ADMIN); `EOPNOTSUPP` or
    /// `EINVAL` where the driver has no zero copy; `EINVAL` where there is no such queue, or the
    /// kernel is older than 5.10 and shares no memory between queues; `EBUSY` when the queue has a
    /// socket.
    ///
    /// **Panics** when these are no buffers of the memory, or more than the ring has entries.
    pub fn open(
        memory: &Arc<FrameMemory>,
        buffers: Range<u32>,
        owner: Option<&XskListener>,
        on: XskQueue,
        busy_poll: Option<BusyPoll>,
    ) -> io::Result<XskListener> {
        assert!(buffers.end <= memory.count(), "{buffers:?} of {}", memory.count());
        assert!(buffers.len() <= super::RING as usize, "{buffers:?} do not fit the ring");
        let fd = super::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        match owner {
            Some(owner) => {
                let is_same = Arc::ptr_eq(memory, &owner.memory);
                let apart =
                    buffers.end <= owner.buffers.start || owner.buffers.end <= buffers.start;
                assert!(is_same && apart, "{buffers:?} beside {:?}", owner.buffers);
                set_umem_rings(&fd)?;
            }
            None => register(&fd, memory)?,
        }
        set_ring_size(&fd, libc::XDP_RX_RING)?;
        let offsets = ring_offsets(&fd)?;
        let mut fill = Ring::map(&fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let receive = Ring::map(&fd, &offsets.rx, pgoff(libc::XDP_PGOFF_RX_RING))?;
        if let Some(busy_poll) = busy_poll {
            busy_poll.set(fd.as_fd())?;
        }
        for buffer in buffers.clone() {
            fill.push(u64::from(buffer) * u64::from(FrameMemory::BUFFER));
        }
        fill.publish();
        bind(&fd, on, owner.map(AsFd::as_fd))?;
        Ok(XskListener { fd, fill, receive, memory: Arc::clone(memory), buffers })
    }

    /// Takes what waits, at most 64 frames, without waiting and without a system call; returns how
    /// many there were. `M` bytes before each frame are the program's.
    pub fn receive<const M: usize>(&mut self, each: &mut dyn FnMut(XskArrival<'_, M>)) -> usize {
        let Some(first) = self.receive.pop() else { return 0 };
        // What is taken with it was there before the clock was read.
        let there = self.receive.waiting().min(POLL_BATCH - 1);
        let user = clock::now();
        self.hand_over(first, user, each);
        for _ in 0..there {
            let Some(desc) = self.receive.pop() else { break };
            self.hand_over(desc, user, each);
        }
        self.receive.release();
        self.fill.publish();
        there + 1
    }

    fn hand_over<const M: usize>(
        &mut self,
        desc: libc::xdp_desc,
        user: Instant<Tai>,
        each: &mut dyn FnMut(XskArrival<'_, M>),
    ) {
        let before = u64::try_from(M).expect("invariant: usize fits u64");
        let start = desc.addr.checked_sub(before).expect("invariant: headroom before a frame");
        let buffer = u32::try_from(desc.addr / u64::from(FrameMemory::BUFFER));
        let buffer = buffer.ok().filter(|it| self.buffers.contains(it));
        let buffer = buffer.expect("invariant: the kernel has this socket's buffers only");
        let length = usize::try_from(desc.len).expect("invariant: u32 fits usize");
        let whole = desc.len + u32::try_from(M).expect("invariant: small");
        // `at` panics if the kernel's descriptor pointed outside our memory.
        let from = self.memory.at(start, whole);
        // SAFETY: `at` checked the bounds; the buffer is one of this socket's, which no other
        // socket of the memory has, and was received, so it is ours alone until it is pushed to the
        // fill ring below.
        let whole = unsafe { std::slice::from_raw_parts_mut(from, M + length) };
        let (head, bytes) = whole.split_at_mut(M);
        let mut metadata = [0; M];
        metadata.copy_from_slice(head);
        head.fill(0);
        each(XskArrival { bytes, metadata, user });
        // There is room: no more buffers than entries.
        self.fill.push(u64::from(buffer) * u64::from(FrameMemory::BUFFER));
    }

    /// Makes the kernel look at the device: a busy-polling socket's whole point, and what a driver
    /// may ask for when it waits for buffers.
    pub fn poll_device(&self) -> io::Result<()> {
        // SAFETY: a receive call without room for data has no preconditions.
        let got =
            unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
        match check_len(got) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Busy, or nothing there.
                Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOBUFS) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Whether the driver waits for [`XskListener::poll_device`] before it takes buffers.
    pub fn wants_wakeup(&self) -> bool {
        self.fill.wants_wakeup()
    }

    /// Frames lost on their way into the ring since the socket was opened: no free buffer, no room,
    /// or longer than a buffer.
    pub fn drops(&self) -> io::Result<u64> {
        // SAFETY: all-zero is a valid xdp_statistics (plain integers).
        let zero: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let stats = get_option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, zero)?;
        // As in `XskReceiver::drops`.
        Ok(stats.rx_dropped + stats.rx_ring_full)
    }
}

impl AsFd for XskListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sending whole frames from memory that is shared with the kernel (`PACKET_TX_RING`, version 2):
//! frames are written where the kernel reads them, and one call sends all that wait.
//!
//! A launch time is that of a call, so frames of different launch times take one call each.
//!
//! Source: linux v6.12 `net/packet/af_packet.c:tpacket_snd`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::outbox::{Counted, Treatment, put, treat};
use crate::socket::{bind_packet, check_len, set_option, socket};
use crate::talk::SO_TXTIME;

/// Frames in a ring.
pub const FRAMES: usize = 1_024;
/// Bytes of the ring for one frame with its header.
const SLOT: usize = 2_048;
/// Where a frame starts in its slot.
const DATA: usize = 32;
/// **Units**: bytes; the longest frame.
pub const LONGEST: usize = SLOT - DATA;

/// A socket and its ring.
#[derive(Debug)]
pub struct TxPacketRing {
    fd: OwnedFd,
    base: NonNull<u8>,
    /// The slot that is written next.
    next: usize,
    /// Slots before it that the kernel has not been given, or has not taken.
    waiting: usize,
    frames: Box<[Waiting]>,
    counted: Counted,
}

// SAFETY: the mapping is not tied to a thread, and is written through exclusive references only.
unsafe impl Send for TxPacketRing {}

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    length: u32,
    id: u32,
    launch_ns: Option<i64>,
}

impl TxPacketRing {
    /// A ring on an interface of the caller's network namespace.
    ///
    /// **Errors**: `EPERM` without `CAP_NET_RAW`, `ENOMEM` when there is no memory for the ring.
    pub fn open(interface: u32, treatment: Treatment) -> io::Result<TxPacketRing> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let yes: libc::c_int = 1;
        set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2)?;
        if treatment.qdisc_bypass {
            set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &yes)?;
        }
        treat(fd.as_fd(), treatment)?;
        let count = |value: usize| libc::c_uint::try_from(value).expect("invariant: small");
        let request = [BLOCK, SIZE / BLOCK, SLOT, FRAMES].map(count);
        set_option(fd.as_fd(), libc::SOL_PACKET, PACKET_TX_RING, &request)?;
        bind_packet(fd.as_fd(), interface, 0)?;
        // SAFETY: a shared mapping of the socket's ring with no address hint has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("invariant: mmap without hint is never null");
        let frames = vec![Waiting::default(); FRAMES].into_boxed_slice();
        Ok(TxPacketRing { fd, base, next: 0, waiting: 0, frames, counted: Counted::new() })
    }

    /// Where the next frame is written; `None` while the kernel has not sent the one that was
    /// there.
    pub fn buffer(&mut self) -> Option<&mut [u8]> {
        let is_free = self.waiting < FRAMES && self.status(self.next) == AVAILABLE;
        is_free.then(|| {
            let to = self.data(self.next);
            // SAFETY: the slot's LONGEST bytes from its data lie in the mapping; while its status
            // is AVAILABLE the kernel does not touch it, and no other reference into it exists,
            // since this one borrows the ring exclusively.
            unsafe { std::slice::from_raw_parts_mut(to, LONGEST) }
        })
    }

    /// Puts the frame that was written into [`TxPacketRing::buffer`] behind the others.
    ///
    /// **Panics** when that gave no buffer, or the frame is longer than it.
    pub fn push(&mut self, length: usize, id: u32, launch_ns: Option<i64>) {
        assert!(length <= LONGEST, "{length} bytes exceed a slot of the ring");
        let is_free = self.waiting < FRAMES && self.status(self.next) == AVAILABLE;
        assert!(is_free, "no slot of the ring is free");
        let length = u32::try_from(length).expect("invariant: a frame fits its slot");
        self.frames[self.next] = Waiting { length, id, launch_ns };
        self.next = (self.next + 1) % FRAMES;
        self.waiting += 1;
    }

    /// How many frames wait for [`TxPacketRing::flush`].
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends what waits, in order. A frame that was not taken is told and not sent later; those
    /// behind it are sent.
    pub fn flush(&mut self, refused: &mut dyn FnMut(u32, io::Error)) {
        while self.waiting > 0 {
            let first = self.first();
            let launch = self.frames[first].launch_ns;
            let same = (0..self.waiting)
                .take_while(|&n| self.frames[(first + n) % FRAMES].launch_ns == launch)
                .count();
            for n in 0..same {
                let slot = (first + n) % FRAMES;
                self.field(slot, LENGTH).store(self.frames[slot].length, Ordering::Relaxed);
                self.field(slot, STATUS).store(SEND_REQUEST, Ordering::Release);
            }
            let result = self.send(launch);
            let mut taken = 0;
            while taken < same && !self.is_left((first + taken) % FRAMES) {
                self.counted.note(self.frames[(first + taken) % FRAMES].id);
                taken += 1;
            }
            self.waiting -= taken;
            match result {
                _ if taken == same => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.drop_first(same - taken, error, refused),
                // Some went, and the next one failed: the call after this one says why.
                Ok(()) if taken > 0 => {}
                Ok(()) => {
                    let error = io::Error::from_raw_os_error(libc::EAGAIN);
                    self.drop_first(same - taken, error, refused);
                }
            }
        }
    }

    /// Our number of the frame that a report names.
    pub fn id_of(&self, message: u32) -> u32 {
        self.counted.id_of(message)
    }

    fn first(&self) -> usize {
        (self.next + FRAMES - self.waiting) % FRAMES
    }

    fn is_left(&self, slot: usize) -> bool {
        matches!(self.status(slot), SEND_REQUEST | WRONG_FORMAT)
    }

    /// Takes the first waiting frame out of the ring. The kernel goes on where it stopped, so those
    /// behind it move up; `asked` of them have been given to it.
    fn drop_first(
        &mut self,
        asked: usize,
        error: io::Error,
        refused: &mut dyn FnMut(u32, io::Error),
    ) {
        let first = self.first();
        for n in 0..asked {
            self.field((first + n) % FRAMES, STATUS).store(AVAILABLE, Ordering::Release);
        }
        let Waiting { id, .. } = self.frames[first];
        // The discipline dropped it after it was counted, and it can be counted no other way.
        if error.raw_os_error() == Some(libc::ENOBUFS) {
            self.counted.note(id);
        }
        for n in 1..self.waiting {
            let (from, to) = ((first + n) % FRAMES, (first + n - 1) % FRAMES);
            // SAFETY: both slots lie in the mapping and are AVAILABLE, so ours; they are different
            // ones, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(self.data(from), self.data(to), LONGEST) };
            self.frames[to] = self.frames[from];
        }
        self.waiting -= 1;
        self.next = (self.next + FRAMES - 1) % FRAMES;
        refused(id, error);
    }

    fn send(&self, launch_ns: Option<i64>) -> io::Result<()> {
        let mut control = Control([0; CONTROL]);
        // SAFETY: all-zero is a valid msghdr: null pointers and plain integers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        if let Some(launch) = launch_ns {
            header.msg_controllen = put(&mut control.0, 0, SO_TXTIME, &launch.to_ne_bytes());
            header.msg_control = control.0.as_mut_ptr().cast();
        }
        // SAFETY: the header points to `control` at most, alive until the call returns; the frames
        // that the kernel reads lie in its own ring.
        let sent =
            unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
        check_len(sent).map(drop)
    }

    fn data(&self, slot: usize) -> *mut u8 {
        assert!(slot < FRAMES, "no slot {slot}");
        // SAFETY: the mapping holds FRAMES slots.
        unsafe { self.base.as_ptr().add(slot * SLOT + DATA) }
    }

    fn field(&self, slot: usize, at: usize) -> &AtomicU32 {
        assert!(slot < FRAMES && at < DATA, "no field {at} of slot {slot}");
        // SAFETY: the mapping holds FRAMES slots, each starting with a `tpacket2_hdr` whose first
        // members are 32 bits wide and aligned; both sides access them as such.
        unsafe { self.base.add(slot * SLOT + at).cast::<AtomicU32>().as_ref() }
    }

    fn status(&self, slot: usize) -> u32 {
        // The kernel says in the upper bits of what clock a timestamp is; this one asks for none.
        self.field(slot, STATUS).load(Ordering::Acquire) & (SEND_REQUEST | SENDING | WRONG_FORMAT)
    }
}

impl AsFd for TxPacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for TxPacketRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this size; nobody else knows the address.
        unsafe { libc::munmap(self.base.as_ptr().cast(), SIZE) };
    }
}

#[repr(align(8))]
struct Control([u8; CONTROL]);

const CONTROL: usize = 24;
const SIZE: usize = FRAMES * SLOT;
/// Physically contiguous memory that the kernel takes at a time.
const BLOCK: usize = 65_536;
// Offsets in `struct tpacket2_hdr`, and values of linux v6.12 `include/uapi/linux/if_packet.h`.
const STATUS: usize = 0;
const LENGTH: usize = 4;
const AVAILABLE: u32 = 0;
const SEND_REQUEST: u32 = 1;
const SENDING: u32 = 2;
const WRONG_FORMAT: u32 = 4;
const PACKET_VERSION: libc::c_int = 10;
const PACKET_TX_RING: libc::c_int = 13;
const TPACKET_V2: libc::c_int = 1;

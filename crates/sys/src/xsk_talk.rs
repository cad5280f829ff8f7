// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An AF_XDP socket that only sends: frames are written into memory that is shared with the kernel,
//! and one call, or with busy polling none, hands over all that wait. Where kernel and driver can,
//! a frame carries a launch time and comes back with a timestamp.
//!
//! Source: linux v6.15 `Documentation/networking/xsk-tx-metadata.rst`, `net/xdp/xsk.c`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use timewire_base::SocketPriority;

use crate::busy_poll::BusyPoll;
use crate::generic::Family;
use crate::memory::FrameMemory;
use crate::netlink::Attributes;
use crate::socket::{check, check_len, get_option, set_option, size_of_u32, socket};
use crate::xsk::{RING, Ring, pgoff, ring_offsets, set_ring_size, set_umem_rings};

/// Frames that can be under way.
pub const FRAMES: u32 = 2_048;
/// **Units**: bytes; the longest frame.
pub const LONGEST: usize = (FrameMemory::BUFFER - FrameMemory::HEADROOM) as usize;

/// Where and how a socket sends.
#[derive(Clone, Copy, Debug)]
pub struct XskTalkOptions {
    /// Index of the interface.
    pub interface: u32,
    /// Its transmit queue.
    pub queue: u32,
    /// Let the driver read the memory itself; otherwise the kernel copies, which every driver can.
    pub zero_copy: bool,
    /// Let the kernel say when it wants a call; otherwise each flush makes one.
    pub need_wakeup: bool,
    /// Look at the NIC's queue with each call.
    pub busy_poll: Option<BusyPoll>,
    /// The priority of what is copied; zero copy goes to its queue as it is.
    pub priority: Option<SocketPriority>,
    /// Room before each frame for a launch time and a timestamp; Linux 6.11.
    pub metadata: bool,
}

/// What a driver can do for frames of AF_XDP with zero copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskFeatures {
    /// The NIC timestamps what it sent.
    pub timestamps: bool,
    /// The NIC holds a frame until its launch time.
    pub launch: bool,
}

/// A frame that has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The number that [`XskTalker::push`] gave it.
    pub id: u32,
    /// When, if a timestamp was asked for and there is one. **Units**: nanoseconds of the NIC's
    /// clock with zero copy; otherwise of TAI, as the copy was freed.
    pub timestamp_ns: Option<i64>,
}

/// A socket, its rings and its memory.
#[derive(Debug)]
pub struct XskTalker {
    fd: OwnedFd,
    send: Ring<libc::xdp_desc>,
    complete: Ring<u64>,
    // The kernel wants both rings of a memory on every queue, also on one that only sends.
    _fill: Ring<u64>,
    memory: Arc<FrameMemory>,
    options: XskTalkOptions,
    free: Vec<u32>,
    /// The number and whether a timestamp was asked for, of the frame in each buffer.
    frames: Box<[(u32, bool)]>,
    /// Which buffer each entry of the ring names.
    entries: Box<[u32]>,
    pushed: u32,
    /// Frames that the kernel has not been asked to take.
    waiting: u32,
}

impl XskTalker {
    /// Makes the memory and binds to the queue.
    ///
    /// **Errors**: `EPERM` without `CAP_NET_RAW`; `EOPNOTSUPP` when the driver has no zero copy;
    /// `EBUSY` when the queue has a socket already; `EINVAL` when the interface has no such queue,
    /// or the kernel no metadata.
    pub fn open(options: XskTalkOptions) -> io::Result<XskTalker> {
        let memory = FrameMemory::new(FRAMES)?;
        let fd = socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        if let Some(priority) = options.priority {
            let value = libc::c_int::from(priority.get());
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, &value)?;
        }
        if let Some(poll) = options.busy_poll {
            poll.set(fd.as_fd())?;
        }
        register(&fd, &memory, options.metadata)?;
        set_ring_size(&fd, libc::XDP_TX_RING)?;
        let offsets = ring_offsets(&fd)?;
        let fill = Ring::map(&fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let complete = Ring::map(&fd, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let send = Ring::map(&fd, &offsets.tx, pgoff(libc::XDP_PGOFF_TX_RING))?;
        bind(&fd, &options)?;
        let frames = vec![(0, false); FRAMES as usize].into_boxed_slice();
        let entries = vec![0; RING as usize].into_boxed_slice();
        Ok(XskTalker {
            fd,
            send,
            complete,
            _fill: fill,
            memory,
            options,
            free: (0..FRAMES).rev().collect(),
            frames,
            entries,
            pushed: 0,
            waiting: 0,
        })
    }

    /// Whether the driver reads the memory itself.
    ///
    /// **Errors**: as `getsockopt`.
    pub fn has_zero_copy(&self) -> io::Result<bool> {
        // SAFETY: all-zero is a valid xdp_options (plain integers).
        let zero: libc::xdp_options = unsafe { std::mem::zeroed() };
        let got = get_option(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, zero)?;
        Ok(got.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Where the next frame is written; `None` while all buffers are under way.
    pub fn buffer(&mut self) -> Option<&mut [u8]> {
        let &buffer = self.free.last()?;
        if self.send.free() == 0 {
            return None;
        }
        let longest = u32::try_from(LONGEST).expect("invariant: less than a buffer");
        let to = self.memory.at(address_of(buffer), longest);
        // SAFETY: `at` checked that LONGEST bytes lie in the mapping; the buffer is free, so the
        // kernel does not touch it, and the memory is this talker's alone, borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(to, LONGEST) })
    }

    /// Puts the frame that was written into [`XskTalker::buffer`] behind the others, with a number
    /// to know it by, perhaps a launch time (nanoseconds of the NIC's clock) and the request for a
    /// timestamp. The kernel may take it at once.
    ///
    /// **Panics** when that gave no buffer, the frame is longer than it, or a launch time or a
    /// timestamp is wanted of a socket without metadata.
    pub fn push(&mut self, length: usize, id: u32, launch_ns: Option<i64>, timestamp: bool) {
        assert!(length <= LONGEST, "{length} bytes exceed a buffer");
        assert!(self.send.free() > 0, "the ring is full");
        let buffer = self.free.pop().expect("invariant: there is a free buffer");
        let wants = launch_ns.is_some() || timestamp;
        assert!(self.options.metadata || !wants, "the socket has no metadata");
        let options = if wants {
            let timestamps = if timestamp { u64::from(libc::XDP_TXMD_FLAGS_TIMESTAMP) } else { 0 };
            let launches = if launch_ns.is_some() { LAUNCH_TIME } else { 0 };
            let metadata = Metadata {
                flags: timestamps | launches,
                // Where the kernel writes a timestamp, over the request for a checksum.
                timestamp_ns: 0,
                launch_ns: launch_ns.unwrap_or(0),
            };
            // SAFETY: `metadata_of` checked that the place lies in the mapping before the frame; it
            // is aligned to 8 and the buffer is ours.
            unsafe { self.metadata_of(buffer).write_volatile(metadata) };
            libc::XDP_TX_METADATA
        } else {
            0
        };
        self.frames[buffer as usize] = (id, timestamp);
        self.entries[(self.pushed % RING) as usize] = buffer;
        self.pushed = self.pushed.wrapping_add(1);
        let length = u32::try_from(length).expect("invariant: less than a buffer");
        self.send.push(libc::xdp_desc { addr: address_of(buffer), len: length, options });
        self.waiting += 1;
    }

    /// How many frames wait for [`XskTalker::flush`].
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Hands over what waits. A frame that the interface dropped is told. Returns how many stay in
    /// the ring, from which there is no way back: they go with the next call, or on their own with
    /// zero copy.
    pub fn flush(&mut self, refused: &mut dyn FnMut(u32, io::Error)) -> u32 {
        self.send.publish();
        self.waiting = 0;
        let mut before = self.send.pending();
        while before > 0 && (!self.options.need_wakeup || self.send.wants_wakeup()) {
            let result = self.kick();
            let left = self.send.pending();
            match result {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    // The interface's queue dropped the frame that was taken last.
                    Some(libc::EBUSY) if left < before => {
                        let entry = self.pushed.wrapping_sub(left).wrapping_sub(1) % RING;
                        let buffer = self.entries[entry as usize];
                        let (id, timestamp) = &mut self.frames[buffer as usize];
                        *timestamp = false;
                        refused(*id, error);
                    }
                    // It takes some frames with each call.
                    Some(libc::EAGAIN | libc::EINTR) if left < before => {}
                    _ => break,
                },
            }
            before = left;
        }
        self.send.pending()
    }

    /// Takes back the buffers of frames that were sent, and says of each when.
    pub fn reclaim(&mut self, on: &mut dyn FnMut(Completed)) {
        while let Some(address) = self.complete.pop() {
            let buffer = u32::try_from(address / u64::from(FrameMemory::BUFFER))
                .expect("invariant: an address lies in the mapping");
            let (id, timestamped) = self.frames[buffer as usize];
            let timestamp_ns = if timestamped {
                // SAFETY: as in `push`; the kernel wrote the timestamp before it completed the
                // frame.
                let metadata = unsafe { self.metadata_of(buffer).read_volatile() };
                Some(metadata.timestamp_ns).filter(|ns| *ns != 0)
            } else {
                None
            };
            self.free.push(buffer);
            on(Completed { id, timestamp_ns });
        }
        self.complete.release();
    }

    fn kick(&self) -> io::Result<()> {
        // SAFETY: a send without data has no preconditions.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        check_len(sent).map(drop)
    }

    fn metadata_of(&self, buffer: u32) -> *mut Metadata {
        self.memory.at(address_of(buffer) - METADATA, METADATA_LEN).cast()
    }
}

impl AsFd for XskTalker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What the driver of an interface of the caller's network namespace can do for frames of AF_XDP
/// with zero copy.
///
/// **Errors**: the kernel is older than 6.8 and does not say.
///
/// **Source**: linux v6.15 `Documentation/netlink/specs/netdev.yaml`, `xsk-flags`.
pub fn xsk_features(interface: u32) -> io::Result<XskFeatures> {
    let mut asked = Attributes::new();
    asked.put(DEV_IFINDEX, &interface.to_ne_bytes());
    let answers = Family::find("netdev")?.ask(DEV_GET, false, &asked)?;
    let flags = answers.iter().flatten().find(|(kind, _)| *kind == DEV_XSK_FEATURES);
    let flags = flags.and_then(|(_, value)| Some(u64::from_ne_bytes(value[..].try_into().ok()?)));
    let flags = flags.ok_or(io::ErrorKind::Unsupported)?;
    Ok(XskFeatures { timestamps: flags & 1 != 0, launch: flags & 4 != 0 })
}

fn address_of(buffer: u32) -> u64 {
    u64::from(buffer) * u64::from(FrameMemory::BUFFER) + u64::from(FrameMemory::HEADROOM)
}

fn register(fd: &OwnedFd, memory: &FrameMemory, metadata: bool) -> io::Result<()> {
    // SAFETY: all-zero is a valid xdp_umem_reg (plain integers).
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = memory.base() as u64;
    registration.len = u64::try_from(memory.byte_len()).expect("invariant: usize fits u64");
    registration.chunk_size = FrameMemory::BUFFER;
    if metadata {
        registration.flags = libc::XDP_UMEM_TX_METADATA_LEN;
        registration.tx_metadata_len = METADATA_LEN;
    }
    set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
    set_umem_rings(fd)
}

fn bind(fd: &OwnedFd, options: &XskTalkOptions) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_xdp (plain integers).
    let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
    address.sxdp_family = libc::__u16::try_from(libc::AF_XDP).expect("invariant: 44");
    address.sxdp_ifindex = options.interface;
    address.sxdp_queue_id = options.queue;
    let copy = if options.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let wakeup = if options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    address.sxdp_flags = copy | wakeup;
    let length = size_of_u32::<libc::sockaddr_xdp>();
    // SAFETY: `address` is a valid sockaddr_xdp of `length` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// `struct xsk_tx_metadata` of linux v6.15 `include/uapi/linux/if_xdp.h`, as it is used here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Metadata {
    flags: u64,
    timestamp_ns: i64,
    launch_ns: i64,
}

const METADATA_LEN: u32 = 24;
const METADATA: u64 = METADATA_LEN as u64;
const _: () = assert!(size_of::<Metadata>() == METADATA_LEN as usize);
const LAUNCH_TIME: u64 = 1 << 2;
// From linux v6.15 include/uapi/linux/netdev.h.
const DEV_GET: u8 = 1;
const DEV_IFINDEX: u16 = 1;
const DEV_XSK_FEATURES: u16 = 6;

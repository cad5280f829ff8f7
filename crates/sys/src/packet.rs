// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets: whole frames in and out of one interface, past the queueing discipline.
//! Needs CAP_NET_RAW in the network namespace's user namespace.
//!
//! The kernel takes an outer VLAN tag off a received frame and hands it over apart
//! (linux v6.12 `net/core/dev.c:__netif_receive_skb_core`); it is restored here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use timewire_base::{Instant, Utc};

use crate::filter::FrameFilter;
use crate::memory::{Frame, FrameMemory};
use crate::messages::{BATCH, Batch};
use crate::socket::{bind_packet, check_len, get_option, set_option, set_receive_buffer, socket};

/// The longest frame that fits a buffer.
const LONGEST: u32 = FrameMemory::BUFFER - FrameMemory::HEADROOM;
/// Every protocol: linux v6.12 `include/uapi/linux/if_ether.h`.
pub(crate) const ETH_P_ALL: u16 = 0x0003;
/// Bytes of a frame that an observer looks at: every header up to a message's own.
pub const PREFIX: usize = 128;

/// What a socket is for.
#[derive(Clone, Copy, Debug)]
pub struct PacketOptions {
    /// Receive what the interface receives (never what it sends).
    pub receive: bool,
    /// Ask for a kernel timestamp with each received frame.
    pub timestamps: bool,
    /// Receive buffer, bytes; the kernel grants less without CAP_NET_ADMIN.
    pub buffer_bytes: u32,
}

/// Which frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// Those that it sends, as they leave its queueing discipline.
    Sent,
    /// Those that it receives.
    Received,
}

/// One frame as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// When the kernel received it; `None` if the kernel gave no timestamp.
    pub timestamp: Option<Instant<Utc>>,
    /// Length in bytes with its tag, without the check sequence.
    pub length: u32,
    /// Its outer VLAN tag as on the link: the kernel has taken it off.
    pub tag: Option<[u8; 4]>,
    /// How many bytes of `prefix` are valid.
    pub prefix_len: usize,
    /// The first bytes, without that tag.
    pub prefix: [u8; PREFIX],
}

impl Default for Observed {
    fn default() -> Observed {
        Observed { timestamp: None, length: 0, tag: None, prefix_len: 0, prefix: [0; PREFIX] }
    }
}

/// An AF_PACKET socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    batch: Batch,
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
            set_receive_buffer(fd.as_fd(), options.buffer_bytes)?;
        }
        if options.timestamps {
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        }
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &one)?;
        bind_packet(fd.as_fd(), interface, if options.receive { ETH_P_ALL } else { 0 })?;
        Ok(PacketSocket { fd, batch: Batch::new(false), too_long: 0 })
    }

    /// Opens a socket for [`PacketSocket::observe`] that takes the frames of one direction that fit
    /// a filter, each with a timestamp.
    ///
    /// **Errors**: as [`PacketSocket::open`].
    pub fn observing(
        interface: u32,
        direction: FrameDirection,
        filter: &FrameFilter,
        buffer_bytes: u32,
    ) -> io::Result<PacketSocket> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let one: libc::c_int = 1;
        match direction {
            FrameDirection::Sent => filter.attach_to_sent(fd.as_fd())?,
            FrameDirection::Received => {
                set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one)?;
                filter.attach(fd.as_fd())?;
            }
        }
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, &one)?;
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        set_receive_buffer(fd.as_fd(), buffer_bytes)?;
        bind_packet(fd.as_fd(), interface, ETH_P_ALL)?;
        Ok(PacketSocket { fd, batch: Batch::new(false), too_long: 0 })
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
            let (length, extras) = (self.batch.length(slot), self.batch.read(slot));
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

    /// Receives the first bytes and the timestamps of waiting frames; returns how many came.
    pub fn observe(&mut self, into: &mut [Observed]) -> io::Result<usize> {
        let room = into.len().min(BATCH);
        for (slot, observed) in into.iter_mut().take(room).enumerate() {
            self.batch.point(slot, observed.prefix.as_mut_ptr(), PREFIX);
        }
        // SAFETY: each of the `room` entries points to the prefix of its own element of `into`,
        // which is exclusively borrowed until this function returns.
        let count = unsafe { self.batch.receive(self.fd.as_fd(), room)? };
        for (slot, observed) in into.iter_mut().take(count).enumerate() {
            let (length, extras) = (self.batch.length(slot), self.batch.read(slot));
            let tag_bytes = if extras.vlan.is_some() { 4 } else { 0 };
            observed.length = length + tag_bytes;
            observed.tag = extras.vlan;
            observed.prefix_len = PREFIX.min(length as usize);
            observed.timestamp = extras.timestamp;
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

    /// Over `lo`, which receives what it sends.
    #[test]
    fn t3_frames_are_observed_by_direction_and_port() {
        use std::net::{Ipv4Addr, UdpSocket};
        let lo = crate::interface_with_address(Ipv4Addr::LOCALHOST).unwrap();
        let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let filter = FrameFilter { udp_port: Some(to.port()), ..FrameFilter::default() };
        let open = |direction| PacketSocket::observing(lo, direction, &filter, 1 << 20);
        let (sent, received) = match (open(FrameDirection::Sent), open(FrameDirection::Received)) {
            (Ok(sent), Ok(received)) => (sent, received),
            (Err(why), _) | (_, Err(why)) if why.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("SKIP: packet sockets need CAP_NET_RAW");
                return;
            }
            (sent, received) => panic!("{sent:?} {received:?}"),
        };
        let talker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for length in [1, 2, 3] {
            talker.send_to(&[0; 3][..length], to).unwrap();
            // The way back has another port.
            listener.send_to(b"back", talker.local_addr().unwrap()).unwrap();
        }
        for mut socket in [sent, received] {
            let mut frames = [Observed::default(); 8];
            let count = socket.observe(&mut frames).unwrap();
            let seen: Vec<_> = frames[..count].iter().map(|frame| frame.length).collect();
            assert_eq!(seen, [43, 44, 45]);
            assert!(frames[..count].iter().all(|frame| frame.timestamp.is_some()));
        }
    }
}

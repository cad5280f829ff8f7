// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that receive many messages with one call and without allocating: UDP, and the frames of
//! one interface. With the timestamps of the kernel and of the NIC.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use timewire_base::{IfName, Instant, Span, Tai, Utc};

use crate::busy_poll::BusyPoll;
use crate::clock;
use crate::filter::FrameFilter;
use crate::messages::{BATCH, Batch, Shared, address_of};
use crate::packet::ETH_P_ALL;
use crate::socket::{
    bind_packet, check, get_option, interface_index, set_option, set_receive_buffer, size_of_u32,
    socket,
};

/// One received message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// A whole frame with its tags, without the check sequence; or what a UDP message carries.
    pub bytes: &'a [u8],
    /// **Units**: bytes; more than there are in `bytes` if it was longer than asked for.
    pub length: u32,
    /// Who sent a UDP message.
    pub from: Option<SocketAddr>,
    /// The outer VLAN tag, if the kernel had taken it off; it is in `bytes` again.
    pub tag: Option<[u8; 4]>,
    /// When the NIC received it. **Units**: nanoseconds of the NIC's own clock.
    pub hardware_ns: Option<i64>,
    /// When an XDP program had it in its hands, which is in or right behind the driver.
    pub driver: Option<Instant<Tai>>,
    /// When the kernel received it.
    pub kernel: Option<Instant<Tai>>,
    /// When the call that brought it had returned; one reading for all that came together.
    pub user: Instant<Tai>,
}

impl Arrival<'_> {
    /// How long the frame or message was, also where only its first bytes are here. **Units**:
    /// bytes.
    #[inline]
    pub fn whole_length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

/// Takes messages as they come. A closure does; who has no instruction to spare for a message is a
/// type instead, whose method can say that it is to be inlined, as a closure cannot.
pub trait Take {
    /// A message came.
    fn take(&mut self, arrival: Arrival<'_>);
}

impl<F> Take for F
where
    F: FnMut(Arrival<'_>) + ?Sized,
{
    #[inline]
    fn take(&mut self, arrival: Arrival<'_>) {
        self(arrival);
    }
}

/// The time at which a look brought messages, and what makes TAI of the kernel's timestamps then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) user: Instant<Tai>,
    offset: Span,
}

/// A message whose timestamp is further away than that is told by an offset that is read anew: TAI
/// is ahead of UTC by whole seconds, so an offset that was set meanwhile is off by one at least.
const NEAR: i64 = 500_000_000;

impl Look {
    /// After the call. The offset is read each time: a clock daemon may set it meanwhile.
    pub(crate) fn now() -> Look {
        let offset = clock::tai_offset();
        Look { user: clock::now(), offset }
    }

    /// With the offset that was read last.
    #[inline]
    fn again(offset: Span) -> Look {
        Look { user: clock::now(), offset }
    }

    #[inline]
    pub(crate) fn tai(&self, timestamp: Instant<Utc>) -> Instant<Tai> {
        Instant::from_ns(timestamp.as_ns()).saturating_add(self.offset)
    }

    /// As [`Look::tai`], with an offset that is read anew when that is in doubt.
    #[inline]
    fn tai_checked(&mut self, timestamp: Instant<Utc>) -> Instant<Tai> {
        // A sum that does not fit wraps to a time that is nowhere near.
        let at = Instant::from_ns(timestamp.as_ns().wrapping_add(self.offset.as_ns()));
        let way = self.user.as_ns().wrapping_sub(at.as_ns());
        if (0..NEAR).contains(&way) { at } else { self.tai_in_doubt(timestamp) }
    }

    #[cold]
    fn tai_in_doubt(&mut self, timestamp: Instant<Utc>) -> Instant<Tai> {
        self.offset = clock::tai_offset();
        self.tai(timestamp)
    }
}

/// Which timestamps a receiver asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveTimestamps {
    /// The kernel's, at the entrance to its stack. It begins a moment after the first socket of
    /// the host has asked for them (`timestamping`); messages before have none.
    pub software: bool,
    /// The NIC's, raw: of its own clock. The NIC must have been told to timestamp received frames
    /// (`nic::set_timestamp_filters`).
    pub hardware: bool,
}

/// What every receiving socket is told.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Timestamps to ask for.
    pub timestamps: ReceiveTimestamps,
    /// Room for waiting messages; the kernel grants less without CAP_NET_ADMIN. **Units**: bytes as
    /// the kernel counts them, with its own books.
    pub buffer_bytes: u32,
    /// The longest message that is taken whole. **Units**: bytes.
    pub longest: u32,
    /// Busy polling.
    pub busy_poll: Option<BusyPoll>,
}

/// Where a UDP socket receives.
#[derive(Clone, Debug)]
pub struct UdpPlace {
    /// Its address; `0.0.0.0` or `::` for every one of the host.
    pub bind: SocketAddr,
    /// The one interface; needed to join a group of IPv6.
    pub device: Option<IfName>,
    /// A multicast group to join.
    pub group: Option<IpAddr>,
}

/// A socket that receives.
#[derive(Debug)]
pub struct ReceiveSocket {
    fd: OwnedFd,
    is_packet: bool,
    batch: Batch,
    /// How far TAI was ahead of UTC.
    offset: Span,
    /// Where messages come.
    pieces: Pieces,
    drops: u64,
    /// What the kernel's counter said last; it wraps.
    counted: u32,
}

/// Before each frame, to put its tag back.
const TAG: usize = 4;
const TIMEOUT: libc::timeval =
    libc::timeval { tv_sec: 0, tv_usec: ReceiveSocket::TIMEOUT.as_ns() / 1_000 };

impl ReceiveSocket {
    /// How long [`ReceiveSocket::await_first`] waits.
    pub const TIMEOUT: Span = Span::from_ms(20);

    /// Binds a UDP socket.
    ///
    /// **Errors**: the address is taken or not the host's; `EPERM` for busy polling without
    /// CAP_NET_ADMIN.
    pub fn udp(place: &UdpPlace, options: SocketOptions) -> io::Result<ReceiveSocket> {
        let domain = if place.bind.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let fd = socket(domain, libc::SOCK_DGRAM, 0)?;
        let mut index = 0;
        if let Some(device) = &place.device {
            let number = interface_index(device)?;
            index = libc::c_int::try_from(number).expect("invariant: an index is positive");
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &index)?;
        }
        let socket = ReceiveSocket::new(fd, false, options)?;
        bind_udp(socket.as_fd(), place.bind)?;
        if let Some(group) = place.group {
            join(socket.as_fd(), group, index)?;
        }
        Ok(socket)
    }

    /// Opens a packet socket for the frames that an interface receives and that fit.
    ///
    /// **Errors**: `EPERM` without CAP_NET_RAW, for busy polling without CAP_NET_ADMIN;
    /// `InvalidInput` as [`FrameFilter::check`].
    pub fn frames(
        interface: u32,
        filter: &FrameFilter,
        options: SocketOptions,
    ) -> io::Result<ReceiveSocket> {
        let fd = open_packet(filter)?;
        let one: libc::c_int = 1;
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, &one)?;
        let socket = ReceiveSocket::new(fd, true, options)?;
        bind_packet(socket.as_fd(), interface, ETH_P_ALL)?;
        Ok(socket)
    }

    fn new(fd: OwnedFd, is_packet: bool, options: SocketOptions) -> io::Result<ReceiveSocket> {
        set_receive_buffer(fd.as_fd(), options.buffer_bytes)?;
        ask_for_timestamps(fd.as_fd(), options.timestamps)?;
        if let Some(busy_poll) = options.busy_poll {
            busy_poll.set(fd.as_fd())?;
        }
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &TIMEOUT)?;
        let longest = usize::try_from(options.longest).expect("invariant: u32 fits usize");
        let (mut batch, pieces) = (Batch::new(!is_packet), Pieces::new(longest));
        for slot in 0..BATCH {
            batch.point(slot, pieces.content(slot), longest);
        }
        Ok(ReceiveSocket {
            fd,
            is_packet,
            batch,
            offset: clock::tai_offset(),
            pieces,
            drops: 0,
            counted: 0,
        })
    }

    /// The address that a UDP socket is bound to.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        // SAFETY: all-zero is a valid sockaddr_in6 (plain integers).
        let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        let mut length = size_of_u32::<libc::sockaddr_in6>();
        // SAFETY: `name` is writable for `length` bytes; a longer address is cut.
        let result = unsafe {
            libc::getsockname(self.fd.as_raw_fd(), (&raw mut name).cast(), &raw mut length)
        };
        check(result)?;
        Ok(address_of(&name))
    }

    /// Takes what waits, at most 32 messages, without waiting; returns how many there were.
    pub fn receive<F>(&mut self, each: &mut F) -> io::Result<usize>
    where
        F: FnMut(Arrival<'_>) + ?Sized,
    {
        // SAFETY: each entry points to its own one of `pieces`, which are written to here alone and
        // while `self` is exclusively borrowed.
        let count = unsafe { self.batch.receive(self.fd.as_fd(), BATCH)? };
        self.hand_over(count, each);
        Ok(count)
    }

    /// As [`ReceiveSocket::receive`], and waits for the first message, if none is there: with the
    /// same system call, for [`ReceiveSocket::TIMEOUT`] and some milliseconds at most, which are
    /// up to the kernel's ticks. `None` then, and no messages after a signal.
    #[inline(always)]
    pub fn await_first<T>(&mut self, to: &mut T) -> io::Result<Option<usize>>
    where
        T: Take + ?Sized,
    {
        // SAFETY: as in `receive`.
        match unsafe { self.batch.await_first(self.fd.as_fd(), BATCH) } {
            Ok(count) => {
                self.hand_over(count, to);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands over the messages that a call has brought.
    #[inline(always)]
    fn hand_over<T>(&mut self, count: usize, to: &mut T)
    where
        T: Take + ?Sized,
    {
        if count == 0 {
            return;
        }
        if !self.is_packet {
            return self.hand_over_payloads(count, to);
        }
        let mut look = Look::again(self.offset);
        for slot in 0..count.min(BATCH) {
            let arrival = self.arrival(slot, &mut look);
            to.take(arrival);
        }
        self.offset = look.offset;
    }

    /// As [`ReceiveSocket::hand_over`], of a UDP socket: with who sent each.
    #[inline(never)]
    fn hand_over_payloads<T>(&mut self, count: usize, to: &mut T)
    where
        T: Take + ?Sized,
    {
        let mut look = Look::again(self.offset);
        for slot in 0..count.min(BATCH) {
            let from = self.batch.sender(slot);
            let arrival = self.arrival(slot, &mut look);
            to.take(Arrival { from, ..arrival });
        }
        self.offset = look.offset;
    }

    /// A message of those that a call has brought, without who sent it.
    #[inline(always)]
    fn arrival(&mut self, slot: usize, look: &mut Look) -> Arrival<'_> {
        let extras = self.batch.read(slot);
        let mut length = self.batch.length(slot);
        let piece = self.pieces.filled(slot, length);
        let bytes = match extras.vlan {
            Some(tag) => {
                length += 4;
                put_tag_back(piece, tag)
            }
            None => &piece[TAG..],
        };
        Arrival {
            bytes,
            length,
            from: None,
            tag: extras.vlan,
            hardware_ns: extras.hardware_ns,
            driver: None,
            kernel: extras.timestamp.map(|timestamp| look.tai_checked(timestamp)),
            user: look.user,
        }
    }

    /// Messages that the kernel had to drop since the socket was opened: there was no room, or,
    /// with UDP, their checksum was wrong.
    pub fn drops(&mut self) -> io::Result<u64> {
        if self.is_packet {
            self.drops += u64::from(take_packet_drops(self.fd.as_fd())?);
        } else {
            let info = get_option(self.fd.as_fd(), libc::SOL_SOCKET, SO_MEMINFO, [0_u32; 9])?;
            self.drops += u64::from(info[8].wrapping_sub(self.counted));
            self.counted = info[8];
        }
        Ok(self.drops)
    }
}

/// **Shape**: one piece for each message of a batch; its first four bytes are for the tag.
struct Pieces {
    memory: Shared<[u8]>,
    /// Bytes of a piece.
    room: usize,
}

// SAFETY: plain bytes, not tied to a thread.
unsafe impl Send for Pieces {}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pieces of {}", self.room)
    }
}

impl Pieces {
    fn new(longest: usize) -> Pieces {
        let room = TAG + longest;
        Pieces { memory: Shared::new(vec![0; room * BATCH].into_boxed_slice()), room }
    }

    /// Where a piece begins.
    #[inline]
    fn start(&self, slot: usize) -> *mut u8 {
        assert!(slot < BATCH, "no piece {slot}");
        // SAFETY: there are so many pieces.
        unsafe { self.memory.as_ptr().cast::<u8>().add(slot * self.room) }
    }

    /// Where the message of a piece goes, with room for the longest.
    fn content(&self, slot: usize) -> *mut u8 {
        // SAFETY: a piece is longer than its tag.
        unsafe { self.start(slot).add(TAG) }
    }

    /// A piece as far as a message of so many bytes fills it.
    #[inline]
    fn filled(&mut self, slot: usize, length: u32) -> &mut [u8] {
        let length = usize::try_from(length).expect("invariant: u32 fits usize");
        let length = self.room.min(TAG.saturating_add(length));
        // SAFETY: a piece has so many bytes, of plain memory; no other reference to them is alive,
        // and the kernel writes only during a call, for which the pieces are borrowed as well.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot), length) }
    }
}

impl AsFd for ReceiveSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What has happened to a socket since this was last asked: `ENETDOWN` when its interface went down
/// or away.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    match get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR, 0_i32)? {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A packet socket that has its filter and receives nothing yet.
pub(crate) fn open_packet(filter: &FrameFilter) -> io::Result<OwnedFd> {
    filter.check()?;
    // Protocol 0: nothing arrives before the socket is bound to its one interface.
    let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let one: libc::c_int = 1;
    set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one)?;
    filter.attach(fd.as_fd())?;
    Ok(fd)
}

/// What a packet socket's queue had no room for since this was last asked.
pub(crate) fn take_packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let zero = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    get_option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero).map(|stats| stats.tp_drops)
}

/// Asks for timestamps of received messages.
pub(crate) fn ask_for_timestamps(
    fd: BorrowedFd<'_>,
    timestamps: ReceiveTimestamps,
) -> io::Result<()> {
    let mut flags = 0;
    if timestamps.software {
        flags |= libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    }
    if timestamps.hardware {
        flags |= libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    }
    if flags == 0 {
        return Ok(());
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
}

/// Moves the addresses to the start and writes the tag behind them. The frame is behind four bytes
/// of room; a frame with a tag has at least its two addresses.
pub(crate) fn put_tag_back(buffer: &mut [u8], tag: [u8; 4]) -> &[u8] {
    if let Some(start) = buffer.first_chunk_mut::<16>() {
        start.copy_within(4..16, 0);
        start[12..].copy_from_slice(&tag);
    }
    buffer
}

fn bind_udp(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let raw = fd.as_raw_fd();
    let result = match address {
        SocketAddr::V4(address) => {
            let name = name_v4(address);
            // SAFETY: `name` is a valid sockaddr_in of that size.
            unsafe { libc::bind(raw, (&raw const name).cast(), size_of_u32::<libc::sockaddr_in>()) }
        }
        SocketAddr::V6(address) => {
            let name = name_v6(address);
            let length = size_of_u32::<libc::sockaddr_in6>();
            // SAFETY: `name` is a valid sockaddr_in6 of that size.
            unsafe { libc::bind(raw, (&raw const name).cast(), length) }
        }
    };
    check(result).map(drop)
}

fn name_v4(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("invariant: 2"),
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

fn name_v6(address: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).expect("invariant: 10"),
        sin6_port: address.port().to_be(),
        sin6_flowinfo: address.flowinfo().to_be(),
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}

/// Has an interface receive a multicast address, or all of them, for a packet socket: NICs drop
/// what nobody asked for. It ends with the socket. Programs on other sockets see these frames too.
///
/// **Errors**: `ENODEV` when there is no such interface.
pub fn take_group(fd: BorrowedFd<'_>, interface: u32, group: Option<[u8; 6]>) -> io::Result<()> {
    let all = if group.is_none() { libc::PACKET_MR_ALLMULTI } else { libc::PACKET_MR_MULTICAST };
    let mut address = [0; 8];
    address[..6].copy_from_slice(&group.unwrap_or_default());
    let request = libc::packet_mreq {
        mr_ifindex: libc::c_int::try_from(interface).expect("invariant: an index is positive"),
        mr_type: libc::c_ushort::try_from(all).expect("invariant: a small constant"),
        mr_alen: 6,
        mr_address: address,
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn join(fd: BorrowedFd<'_>, group: IpAddr, interface: libc::c_int) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from(group).to_be() },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface,
            };
            set_option(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)
        }
        IpAddr::V6(group) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
                ipv6mr_interface: interface.unsigned_abs(),
            };
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
        }
    }
}

// From linux v6.12 include/uapi/asm-generic/socket.h.
const SO_MEMINFO: libc::c_int = 55;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

    use super::*;
    use crate::event::wait_readable;

    fn options() -> SocketOptions {
        let timestamps = ReceiveTimestamps { software: true, hardware: true };
        SocketOptions { timestamps, buffer_bytes: 1 << 20, longest: 16, busy_poll: None }
    }

    fn open(bind: SocketAddr) -> ReceiveSocket {
        ReceiveSocket::udp(&UdpPlace { bind, device: None, group: None }, options()).unwrap()
    }

    #[test]
    fn t0_messages_of_both_families_have_sender_timestamps_and_length() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let Ok(from) = UdpSocket::bind((address, 0)) else {
                eprintln!("SKIP: {address} is not there");
                continue;
            };
            let mut to = open((address, 0).into());
            assert_eq!(to.receive(&mut |_| panic!("nothing was sent")).unwrap(), 0);
            let target = to.local_address().unwrap().unwrap();
            let mut is_timestamped = false;
            while !is_timestamped {
                from.send_to(b"soon", target).unwrap();
                to.receive(&mut |arrival| is_timestamped |= arrival.kernel.is_some()).unwrap();
            }
            while to.receive(&mut |_| ()).unwrap() > 0 {}
            let before = clock::now::<Tai>();
            from.send_to(b"short", target).unwrap();
            from.send_to(b"longer than sixteen", target).unwrap();
            assert!(wait_readable(&[to.as_fd()], None).unwrap());
            let mut seen = Vec::new();
            while seen.len() < 2 {
                let mut take = |arrival: Arrival<'_>| {
                    assert_eq!(arrival.from, Some(from.local_addr().unwrap()));
                    let kernel = arrival.kernel.unwrap();
                    assert!(before <= kernel && kernel <= arrival.user);
                    assert_eq!(arrival.hardware_ns, None);
                    seen.push((arrival.bytes.to_vec(), arrival.length));
                };
                to.receive(&mut take).unwrap();
            }
            let expected = [(&b"short"[..], 5), (b"longer than sixt", 19)];
            assert_eq!(seen, expected.map(|(bytes, length)| (bytes.to_vec(), length)));
            assert_eq!(to.drops().unwrap(), 0);
        }
    }

    #[test]
    fn t0_what_there_was_no_room_for_is_counted_exactly() {
        let small = SocketOptions { buffer_bytes: 8_192, ..options() };
        let bind = (Ipv4Addr::LOCALHOST, 0).into();
        let place = UdpPlace { bind, device: None, group: None };
        let mut to = ReceiveSocket::udp(&place, small).unwrap();
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = to.local_address().unwrap().unwrap();
        for round in 1..=2_u64 {
            for _ in 0..200 {
                from.send_to(&[0; 1_000], target).unwrap();
            }
            let mut count = 0;
            while to.receive(&mut |_| count += 1).unwrap() > 0 {}
            assert!((1..200).contains(&count), "{count}");
            let drops = to.drops().unwrap();
            assert_eq!(drops, to.drops().unwrap(), "asking twice counts once");
            assert!(drops < 200 * round && drops >= round * 100, "{drops}");
            if round == 1 {
                assert_eq!(drops + count, 200);
            }
        }
    }

    #[test]
    fn t0_a_group_is_joined_on_loopback() {
        let device = Some(IfName::new("lo").unwrap());
        let group = Some(IpAddr::from([239, 1, 2, 3]));
        let place = UdpPlace { bind: (Ipv4Addr::UNSPECIFIED, 0).into(), device, group };
        let mut to = match ReceiveSocket::udp(&place, options()) {
            Ok(to) => to,
            Err(error) => return eprintln!("SKIP: {error}"),
        };
        let port = to.local_address().unwrap().unwrap().port();
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Err(error) = from.send_to(b"all", (Ipv4Addr::new(239, 1, 2, 3), port)) {
            return eprintln!("SKIP: no way to a group from here: {error}");
        }
        assert!(wait_readable(&[to.as_fd()], Some(Span::from_secs(10))).unwrap());
        assert_eq!(to.receive(&mut |it| assert_eq!(it.bytes, b"all")).unwrap(), 1);
    }

    #[test]
    fn t0_a_tag_is_put_back_behind_the_addresses() {
        let mut buffer: Vec<u8> = (0..24).collect();
        let tagged = put_tag_back(&mut buffer, [0x81, 0, 0x60, 5]).to_vec();
        assert_eq!(tagged[..12], (4..16).collect::<Vec<u8>>());
        assert_eq!(tagged[12..16], [0x81, 0, 0x60, 5]);
        assert_eq!(tagged[16..], (16..24).collect::<Vec<u8>>());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One interface to every way out of a host: UDP sockets, packet sockets, the packet ring and
//! AF_XDP. A message is written into a buffer of the port, given a destination and perhaps a launch
//! time, and goes with the next flush, together with the others that wait; afterwards the port
//! tells of timestamps and of messages that were not taken, by number.
//!
//! ```text
//! message_buffer -> write -> send -> ... -> flush  =>  one system call for all
//! reports: timestamps at the timestamp points asked for, refused launch times, messages not taken,
//! ICMP errors
//! ```
//!
//! Not here: when to send (`talker`), receiving (`listen`).

mod error;
mod open;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use timewire_base::{IfName, Instant, Mono, SocketPriority, Span, Tai};
use timewire_bpf::pass::Pass;
use timewire_sys::clock;
use timewire_sys::error_queue::{self, Report, ReportReader, TxTime};
use timewire_sys::outbox::{self, ANEW, Outbox, Outgoing};
use timewire_sys::packet_ring::TxPacketRing;
use timewire_sys::xsk_talk::{Completed, XskTalker};

use crate::kernel_timestamp_as_tai;
pub use crate::xdp_mode::XdpMode;

pub use error::PortError;
pub use timewire_sys::BusyPoll;
pub use timewire_sys::error_queue::LaunchRefusal;
pub use timewire_sys::outbox::LaunchClock;

/// A way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP over IPv4 or IPv6: messages are payloads.
    Udp {
        /// The address it is bound to; port 0 for any.
        from: SocketAddr,
        /// The only destination; without, each message names its own.
        to: Option<SocketAddr>,
        /// The only interface.
        device: Option<IfName>,
    },
    /// A packet socket: messages are whole frames without check sequence.
    Frames {
        /// The interface.
        interface: IfName,
    },
    /// A packet socket with memory that is shared with the kernel (`PACKET_TX_RING`).
    Ring {
        /// The interface.
        interface: IfName,
    },
    /// AF_XDP: messages are whole frames, which go to the driver without queueing discipline.
    Xdp(XdpPort),
}

/// An AF_XDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpPort {
    /// The interface.
    pub interface: IfName,
    /// Its transmit queue.
    pub queue: u32,
    /// Who copies.
    pub mode: XdpMode,
    /// Let the kernel say when it wants a call; otherwise each flush makes one.
    pub need_wakeup: bool,
    /// Look at the NIC's queue with each call.
    pub busy_poll: Option<BusyPoll>,
}

/// How the messages of a port are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitOptions {
    /// The socket priority; without, 0.
    pub priority: Option<SocketPriority>,
    /// The byte of the IP header with DSCP and ECN; UDP only.
    pub traffic_class: Option<u8>,
    /// Whether messages can have a launch time.
    pub launch: Option<LaunchOptions>,
    /// Which timestamps come back.
    pub points: TxPoints,
    /// Whole frames go to the driver without the queueing discipline.
    pub qdisc_bypass: bool,
    /// Bytes that may wait in the kernel; without, the system's choice.
    pub buffer_bytes: Option<u32>,
    /// The longest message. **Units**: bytes; 0 for what the interface takes, or 1472 with UDP.
    pub longest: usize,
}

/// How launch times are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchOptions {
    /// The launch time is the latest moment, not the exact one; `etf` must have the same mode.
    pub deadline: bool,
    /// The clock that the queueing discipline wants. AF_XDP has that of the NIC.
    pub clock: LaunchClock,
}

/// Which timestamps come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxPoints {
    /// Before the queueing discipline.
    pub sched: bool,
    /// As it is handed to the interface; with AF_XDP, as the kernel frees its copy.
    pub software: bool,
    /// By the NIC.
    pub hardware: bool,
}

/// Where a message was timestamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TxPoint {
    /// Before the queueing discipline.
    Sched,
    /// As it was handed to the interface.
    Software,
    /// As the kernel freed the copy that it made of a frame of AF_XDP: after it was handed over.
    Freed,
    /// By the NIC.
    Hardware,
}

/// The time of a timestamp, and whose clock that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampTime {
    /// This kernel's clock.
    System(Instant<Tai>),
    /// The NIC's own clock. **Units**: nanoseconds, mostly TAI since 1970.
    Nic {
        /// What it read.
        ns: i64,
    },
}

/// A message that goes with the next flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// By which reports name it: counted from 0, wraps.
    pub id: u32,
}

/// Why a message cannot go with the next flush.
#[derive(Debug)]
pub enum NotSent {
    /// No buffer is free: as many messages are under way as the port can have.
    Full,
    /// It can never go.
    Refused(io::Error),
}

/// What became of a message.
#[derive(Debug)]
pub enum TxReport {
    /// It passed a timestamp point.
    Timestamp {
        /// Its number.
        id: u32,
        /// Which timestamp point.
        point: TxPoint,
        /// When.
        at: TimestampTime,
    },
    /// The kernel did not take it when it was flushed: the interface's queue is full
    /// (`ENOBUFS`, `EBUSY`), as many bytes wait as may (`EAGAIN`), or it can never go.
    NotTaken {
        /// Its number.
        id: u32,
        /// Why.
        error: io::Error,
    },
    /// The queueing discipline dropped a message because of its launch time.
    LaunchRefused {
        /// Why.
        why: LaunchRefusal,
        /// The launch time that it had.
        launch: Instant<Tai>,
    },
    /// Something else about earlier messages, such as an ICMP message.
    Other {
        /// The error's number.
        errno: u32,
        /// Who says so: linux v6.12 `include/uapi/linux/errqueue.h:SO_EE_ORIGIN_*`.
        origin: u8,
    },
}

/// What was chosen when a port was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMode {
    /// The transport in words: `AF_XDP copy`.
    pub name: &'static str,
    /// What was asked for, could not be had, and why, in words.
    pub fallbacks: Vec<String>,
}

impl fmt::Display for PortMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.fallbacks.iter().try_for_each(|fallback| write!(f, "; {fallback}"))
    }
}

/// An open port.
#[derive(Debug)]
pub struct Transmitter {
    socket: TxSocket,
    mode: PortMode,
    longest: usize,
    /// The interface's own, where frames have one.
    address: Option<[u8; 6]>,
    next_id: u32,
    points: TxPoints,
    launch: Option<LaunchClock>,
    offsets: Offsets,
    reader: ReportReader,
    /// What is known already and told with the next reports.
    known: Vec<TxReport>,
    lost: u64,
    /// Some drivers have zero copy only as long as there is one.
    _program: Option<Pass>,
}

#[derive(Debug)]
enum TxSocket {
    Outbox(Outbox),
    Ring(TxPacketRing),
    Xsk(XskTalker),
}

/// How far TAI is ahead of the kernel's other clocks.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    utc: Span,
    mono: Span,
}

impl Offsets {
    fn now() -> Offsets {
        let (mono, tai) = (clock::now::<Mono>(), clock::now::<Tai>());
        Offsets { utc: clock::tai_offset(), mono: Span::from_ns(tai.as_ns() - mono.as_ns()) }
    }

    /// How far TAI is ahead of the clock of launch times.
    #[inline]
    fn ahead_of(self, clock: LaunchClock) -> Span {
        match clock {
            LaunchClock::Tai => Span::ZERO,
            LaunchClock::Mono => self.mono,
        }
    }

    fn timestamp(self, at: TxTime) -> TimestampTime {
        match at {
            TxTime::System(at) => TimestampTime::System(kernel_timestamp_as_tai(at, self.utc)),
            TxTime::Nic { ns } => TimestampTime::Nic { ns },
        }
    }
}

/// Reports that wait to be asked for.
const KNOWN: usize = 4_096;

impl Transmitter {
    /// What was chosen.
    pub fn mode(&self) -> &PortMode {
        &self.mode
    }

    /// The longest message. **Units**: bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The interface's address, for the frames that a program makes; `None` with UDP.
    pub fn address(&self) -> Option<[u8; 6]> {
        self.address
    }

    /// Whether anything comes back of a message that was sent as it should be, or whose launch time
    /// was not.
    pub fn has_reports(&self) -> bool {
        self.launch.is_some() || self.timestamps_per_message() > 0
    }

    /// Where each message is timestamped.
    pub fn points(&self) -> TxPoints {
        self.points
    }

    /// How many timestamps come back of each message.
    pub fn timestamps_per_message(&self) -> u32 {
        let TxPoints { sched, software, hardware } = self.points;
        [sched, software, hardware].into_iter().map(u32::from).sum()
    }

    /// Reports that were lost because they were not asked for in time.
    pub fn lost_reports(&self) -> u64 {
        self.lost
    }

    /// Where the next message is written: with AF_XDP and the ring right in the memory that the
    /// kernel reads. Flushes when no buffer is free. `None` when there is none even then, or the
    /// message is too long.
    #[inline]
    pub fn message_buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        if length > self.longest {
            return None;
        }
        if !self.socket.has_buffer() {
            self.flush();
            self.reclaim();
        }
        self.socket.buffer().map(|buffer| &mut buffer[..length])
    }

    /// Lets the message that was written into [`Transmitter::message_buffer`] go with the next
    /// flush.
    ///
    /// **Errors**: [`NotSent::Refused`] for a launch time on a port that was opened without, or one
    /// that its clock cannot have.
    ///
    /// **Panics** when no buffer was given for it.
    #[inline]
    pub fn send(
        &mut self,
        length: usize,
        to: Option<SocketAddr>,
        launch: Option<Instant<Tai>>,
    ) -> Result<Sent, NotSent> {
        let launch_ns = match launch {
            None => None,
            Some(launch) => Some(self.launch_ns(launch)?),
        };
        if !self.socket.has_buffer() {
            return Err(NotSent::Full);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        match &mut self.socket {
            TxSocket::Outbox(outbox) => outbox.push(Outgoing { length, id, to, launch_ns }),
            TxSocket::Ring(ring) => ring.push(length, id, launch_ns),
            TxSocket::Xsk(xsk) => {
                xsk.push(length, id, launch_ns, self.points.software || self.points.hardware);
            }
        }
        Ok(Sent { id })
    }

    /// Whether something is known already that [`Transmitter::reports`] will tell.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.known.is_empty()
    }

    /// Whether [`Transmitter::again`] can be called: a socket, for which nothing waits.
    #[inline]
    pub fn can_send_again(&self) -> bool {
        matches!(&self.socket, TxSocket::Outbox(outbox) if outbox.waiting() == 0)
    }

    /// For a message that is sent again and again; `anew` is where in it the bytes begin that
    /// [`Again::renew`] writes.
    ///
    /// **Panics** when the port is none that [`Transmitter::can_send_again`], or the message is
    /// longer than the longest.
    pub fn again<'a>(&'a mut self, message: &'a mut [u8], anew: usize) -> Again<'a> {
        let TxSocket::Outbox(outbox) = &mut self.socket else {
            panic!("only sockets send a message again");
        };
        Again {
            socket: outbox.again(message, anew),
            id: self.next_id,
            ahead: self.launch.map(|clock| self.offsets.ahead_of(clock)),
            has_news: !self.known.is_empty(),
            next_id: &mut self.next_id,
            known: &mut self.known,
            lost: &mut self.lost,
        }
    }

    /// A launch time by the clock of the port.
    #[inline]
    fn launch_ns(&self, launch: Instant<Tai>) -> Result<i64, NotSent> {
        let clock = self.launch.ok_or_else(without_launch)?;
        Ok(launch.as_ns().saturating_sub(self.offsets.ahead_of(clock).as_ns()))
    }

    /// Copies a message into a buffer and lets it go with the next flush.
    ///
    /// **Errors**: as [`Transmitter::send`], and [`NotSent::Full`].
    pub fn send_copy(
        &mut self,
        message: &[u8],
        to: Option<SocketAddr>,
        launch: Option<Instant<Tai>>,
    ) -> Result<Sent, NotSent> {
        if message.len() > self.longest {
            let why = "longer than the port's longest message";
            return Err(NotSent::Refused(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let buffer = self.message_buffer(message.len()).ok_or(NotSent::Full)?;
        buffer.copy_from_slice(message);
        self.send(message.len(), to, launch)
    }

    /// Hands over what waits: one system call for up to 32 messages, without waiting for room.
    /// What was not taken is told by [`Transmitter::reports`]. Returns how many frames stay in the
    /// ring of AF_XDP because the interface was busy: they go with the next flush.
    pub fn flush(&mut self) -> u32 {
        let (known, lost) = (&mut self.known, &mut self.lost);
        let refused = &mut |id, error| keep(known, lost, TxReport::NotTaken { id, error });
        match &mut self.socket {
            TxSocket::Outbox(outbox) => outbox.flush(refused),
            TxSocket::Ring(ring) => ring.flush(refused),
            TxSocket::Xsk(xsk) => return xsk.flush(refused),
        }
        0
    }

    /// Tells what has become known since the last call; never waits, and allocates nothing.
    ///
    /// **Errors**: the socket's error queue cannot be read.
    pub fn reports<F>(&mut self, on: &mut F) -> io::Result<()>
    where
        F: FnMut(TxReport) + ?Sized,
    {
        self.tell(&mut All(on))
    }

    /// As [`Transmitter::reports`], to somebody who takes timestamps as they come.
    ///
    /// **Errors**: as of that.
    #[inline]
    pub(crate) fn tell(&mut self, to: &mut impl Hear) -> io::Result<()> {
        self.reclaim();
        if !self.known.is_empty() {
            self.known.drain(..).for_each(|report| to.report(report));
        }
        let (offsets, launch) = (self.offsets, self.launch);
        let fd = match &self.socket {
            TxSocket::Outbox(outbox) => outbox.as_fd(),
            TxSocket::Ring(ring) => ring.as_fd(),
            TxSocket::Xsk(_) => return Ok(()),
        };
        let socket = &self.socket;
        loop {
            let got = self.reader.read(fd, &mut |report| match report {
                Report::Timestamped { point, message, at } => {
                    let point = match point {
                        error_queue::TxPoint::Sched => TxPoint::Sched,
                        error_queue::TxPoint::Send => TxPoint::Software,
                        error_queue::TxPoint::Hardware => TxPoint::Hardware,
                        // Only TCP has it, and is no transport here.
                        error_queue::TxPoint::Acknowledged => return,
                    };
                    to.timestamp(socket.id_of(message), point, offsets.timestamp(at));
                }
                Report::Refused { why, launch_ns } => {
                    let ahead = launch.map_or(Span::ZERO, |clock| offsets.ahead_of(clock));
                    let launch = Instant::from_ns(launch_ns).saturating_add(ahead);
                    to.report(TxReport::LaunchRefused { why, launch });
                }
                Report::Other { errno, origin } => to.report(TxReport::Other { errno, origin }),
            })?;
            // Fewer than fit: the queue is empty.
            if got < error_queue::BATCH {
                return Ok(());
            }
        }
    }

    /// Takes back the buffers of AF_XDP.
    #[inline]
    fn reclaim(&mut self) {
        if matches!(self.socket, TxSocket::Xsk(_)) {
            self.reclaim_xdp();
        }
    }

    fn reclaim_xdp(&mut self) {
        let TxSocket::Xsk(xsk) = &mut self.socket else { return };
        let (known, lost, points) = (&mut self.known, &mut self.lost, self.points);
        xsk.reclaim(&mut |Completed { id, timestamp_ns }| {
            let Some(ns) = timestamp_ns else { return };
            let (point, at) = if points.hardware {
                (TxPoint::Hardware, TimestampTime::Nic { ns })
            } else {
                (TxPoint::Freed, TimestampTime::System(Instant::from_ns(ns)))
            };
            keep(known, lost, TxReport::Timestamp { id, point, at });
        });
    }
}

/// A message that is sent again and again, and all that this needs of its port;
/// [`Transmitter::again`].
#[derive(Debug)]
pub struct Again<'a> {
    socket: outbox::Again<'a>,
    id: u32,
    /// How far TAI is ahead of the clock of launch times, if there can be any.
    ahead: Option<Span>,
    has_news: bool,
    next_id: &'a mut u32,
    known: &'a mut Vec<TxReport>,
    lost: &'a mut u64,
}

impl Again<'_> {
    /// The message, to be changed.
    pub fn message(&mut self) -> &mut [u8] {
        self.socket.message()
    }

    /// As [`Transmitter::has_news`] of the port.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Changes the bytes that are others each time.
    ///
    /// **Panics** when the message has no room for them.
    #[inline(always)]
    pub fn renew(&mut self, bytes: [u8; ANEW]) {
        self.socket.renew(bytes);
    }

    /// Sends the message at once, to the destination of the port or that of the frame. As
    /// [`Transmitter::send`] and [`Transmitter::flush`] in one.
    ///
    /// **Errors**: as [`Transmitter::send`].
    #[inline(always)]
    pub fn send(&mut self, launch: Option<Instant<Tai>>) -> Result<Sent, NotSent> {
        let launch_ns = match (launch, self.ahead) {
            (None, _) => None,
            (Some(launch), Some(ahead)) => Some(launch.as_ns().saturating_sub(ahead.as_ns())),
            (Some(_), None) => return Err(without_launch()),
        };
        let id = self.id;
        self.id = id.wrapping_add(1);
        if let Err(error) = self.socket.send(id, launch_ns) {
            self.has_news = true;
            keep(self.known, self.lost, TxReport::NotTaken { id, error });
        }
        Ok(Sent { id })
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        *self.next_id = self.id;
    }
}

/// For `poll`: it has errors (`POLLERR`) when there are reports of a socket.
impl AsFd for Transmitter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            TxSocket::Outbox(outbox) => outbox.as_fd(),
            TxSocket::Ring(ring) => ring.as_fd(),
            TxSocket::Xsk(xsk) => xsk.as_fd(),
        }
    }
}

#[cold]
fn without_launch() -> NotSent {
    let why = "the port was opened without launch times";
    NotSent::Refused(io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cold]
fn keep(known: &mut Vec<TxReport>, lost: &mut u64, report: TxReport) {
    if known.len() < known.capacity() {
        known.push(report);
    } else {
        *lost += 1;
    }
}

/// Who is told what became of messages.
pub(crate) trait Hear {
    /// One was timestamped: its number, where, and when.
    fn timestamp(&mut self, id: u32, point: TxPoint, at: TimestampTime);
    /// Anything else; of AF_XDP timestamps, too.
    fn report(&mut self, report: TxReport);
}

/// Takes all as reports.
struct All<'a, F: ?Sized>(&'a mut F);

impl<F: FnMut(TxReport) + ?Sized> Hear for All<'_, F> {
    fn timestamp(&mut self, id: u32, point: TxPoint, at: TimestampTime) {
        (self.0)(TxReport::Timestamp { id, point, at });
    }

    fn report(&mut self, report: TxReport) {
        (self.0)(report);
    }
}

impl TxSocket {
    #[inline]
    fn has_buffer(&mut self) -> bool {
        match self {
            TxSocket::Outbox(outbox) => outbox.has_buffer(),
            TxSocket::Ring(ring) => ring.buffer().is_some(),
            TxSocket::Xsk(xsk) => xsk.buffer().is_some(),
        }
    }

    /// Our number of the message that a report names.
    #[inline]
    fn id_of(&self, message: u32) -> u32 {
        match self {
            TxSocket::Outbox(outbox) => outbox.id_of(message),
            TxSocket::Ring(ring) => ring.id_of(message),
            TxSocket::Xsk(_) => message,
        }
    }

    #[inline]
    fn buffer(&mut self) -> Option<&mut [u8]> {
        match self {
            TxSocket::Outbox(outbox) => outbox.buffer(),
            TxSocket::Ring(ring) => ring.buffer(),
            TxSocket::Xsk(xsk) => xsk.buffer(),
        }
    }
}

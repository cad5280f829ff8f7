// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving messages with every timestamp that there is: from UDP, from the frames of an interface
//! by calls or through a ring, and through AF_XDP, with one interface and one filter. Nothing is
//! allocated once a receiver is open.
//!
//! ```text
//! NIC       driver          kernel                user
//!   | hardware | driver (XDP)  | kernel (software)   | user
//! ```
//!
//! Which timestamps a source has:
//!
//! | source | hardware | driver | kernel |
//! | --- | --- | --- | --- |
//! | UDP, frames | yes | no | yes |
//! | ring | yes, instead of the kernel's | no | yes |
//! | XDP | native mode, Linux 6.3, if the driver tells | yes | no |
//!
//! A NIC timestamps received frames only when it was told to: whoever opens a receiver for hardware
//! timestamps calls `timewire_sys::nic::set_timestamp_filters` before, with the former setting in
//! the journal of `timewire_host`, and restores it after.
//!
//! Not here: sending; the frames that a MAC moves on (`mac`).

mod error;
mod listener;
mod others;
mod xdp;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use timewire_base::{IfName, Instant, Mono, Span};
use timewire_sys::receive::{ReceiveSocket, SocketOptions, take_error};
use timewire_sys::ring::RxPacketRing;
use timewire_sys::timestamping::wait_for_receive_timestamps;
use timewire_sys::{clock, event, interface_index};

pub use error::ListenError;
pub use listener::{
    Known, Listener, ListenerCounters, ListenerOptions, StreamKey, StreamSource, WaySummaries,
};
pub use others::{OtherKind, OtherReason};
pub use timewire_bpf::listen::ListenCounters;
pub use timewire_sys::BusyPoll;
pub use timewire_sys::filter::FrameFilter;
pub use timewire_sys::receive::{Arrival, ReceiveTimestamps, Take, UdpPlace};

pub use crate::xdp_mode::XdpMode;
use xdp::XdpPort;

/// Where messages come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A UDP socket, IPv4 or IPv6.
    Udp(UdpPlace),
    /// Whole frames of an interface, by calls.
    Frames {
        /// The interface.
        interface: IfName,
    },
    /// Whole frames of an interface, through memory shared with the kernel.
    Ring {
        /// The interface.
        interface: IfName,
    },
    /// Whole frames of an interface, before the stack has them. They do not reach the stack; all
    /// others do. Between frames of different queues there is no order.
    Xdp {
        /// The interface.
        interface: IfName,
        /// One of its receive queues; all of them with `None`.
        queue: Option<u32>,
        /// In which mode.
        mode: XdpMode,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Udp(place) => write!(f, "UDP on {}", place.bind),
            Source::Frames { interface } => write!(f, "frames of {interface}"),
            Source::Ring { interface } => write!(f, "frames of {interface} through a ring"),
            Source::Xdp { interface, queue: Some(queue), mode } => {
                write!(f, "frames of queue {queue} of {interface} through XDP ({mode})")
            }
            Source::Xdp { interface, queue: None, mode } => {
                write!(f, "frames of {interface} through XDP ({mode})")
            }
        }
    }
}

/// How a receiver waits when nothing is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps.
    #[default]
    Block,
    /// It looks again and again, and takes its CPU for itself.
    Poll,
    /// It has the kernel look at the device again and again for so long, then sleeps. Packet
    /// sockets (frames, ring) do not know their device's queue, so for them it is looking alone.
    BusyPoll(BusyPoll),
}

/// From this on a wait begins with a call that may be late by two ticks of the kernel, of 10 ms at
/// most, and goes on with one that is exact.
const UNHURRIED: Span = Span::from_ms(45);
const _: () = assert!(ReceiveSocket::TIMEOUT.as_ns() + 2 * 10_000_000 < UNHURRIED.as_ns());

/// How a receiver is opened.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveOptions {
    /// Timestamps to ask for; the driver's is always there with XDP.
    pub timestamps: ReceiveTimestamps,
    /// How it waits.
    pub wait: Wait,
    /// Which frames it wants; for UDP none but the default, which fits all.
    pub filter: FrameFilter,
    /// Room for what waits. **Units**: bytes; with XDP buffers of 2048 bytes, in equal parts for
    /// the queues, 64 to 4096 for each.
    pub buffer_bytes: u32,
    /// The longest message that is taken whole. **Units**: bytes. With XDP frames longer than 1792
    /// are lost and counted.
    pub longest: u32,
}

impl Default for ReceiveOptions {
    fn default() -> ReceiveOptions {
        ReceiveOptions {
            timestamps: ReceiveTimestamps { software: true, hardware: false },
            wait: Wait::Block,
            filter: FrameFilter::default(),
            buffer_bytes: 8 << 20,
            longest: 2_048,
        }
    }
}

#[derive(Debug)]
enum Port {
    Socket(ReceiveSocket),
    Ring(RxPacketRing),
    Xdp(XdpPort),
}

/// Receives from one source. What it has changed goes with it, also when the process is killed.
#[derive(Debug)]
pub struct Receiver {
    port: Port,
    wait: Wait,
    software_timestamps: bool,
    mode: String,
    refused: Vec<String>,
}

impl Receiver {
    /// Opens the source.
    ///
    /// **Errors**: no such interface, no privilege, options that exclude each other, another XDP
    /// program on the interface, no wanted mode works.
    pub fn open(source: &Source, options: &ReceiveOptions) -> Result<Receiver, ListenError> {
        let busy_poll = match options.wait {
            Wait::BusyPoll(busy_poll) => Some(busy_poll),
            Wait::Block | Wait::Poll => None,
        };
        let told = SocketOptions {
            timestamps: options.timestamps,
            buffer_bytes: options.buffer_bytes,
            longest: options.longest,
            busy_poll,
        };
        let failed = |error| ListenError::Open { what: source.to_string(), source: error };
        let mut refused = Vec::new();
        let (port, mode) = match source {
            Source::Udp(place) => {
                if !options.filter.is_empty() {
                    return Err(ListenError::Contradiction(
                        "a filter is for frames: a UDP socket receives by its address",
                    ));
                }
                let socket = ReceiveSocket::udp(place, told).map_err(failed)?;
                (Port::Socket(socket), "UDP socket".to_owned())
            }
            Source::Frames { interface } => {
                let index = index_of(interface)?;
                let socket = ReceiveSocket::frames(index, &options.filter, told);
                (Port::Socket(socket.map_err(failed)?), "packet socket".to_owned())
            }
            Source::Ring { interface } => {
                let ring = RxPacketRing::open(index_of(interface)?, &options.filter, told);
                (Port::Ring(ring.map_err(failed)?), "packet ring".to_owned())
            }
            Source::Xdp { interface, queue, mode } => {
                options.filter.check().map_err(failed)?;
                let on = (index_of(interface)?, interface, *queue);
                let port = XdpPort::open(on, *mode, &options.filter, told, &mut refused)?;
                let mode = port.describe();
                (Port::Xdp(port), mode)
            }
        };
        let software_timestamps = options.timestamps.software;
        Ok(Receiver { port, wait: options.wait, software_timestamps, mode, refused })
    }

    /// How it receives, in words.
    pub fn mode(&self) -> &str {
        &self.mode
    }

    /// What was tried before, and why it did not work.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Waits until what is received has the kernel's timestamps, if it was asked for them and has
    /// any; whether it is so, within this time.
    ///
    /// **Errors**: the loopback interface of the caller's network namespace does not work, so
    /// nobody knows.
    pub fn wait_for_timestamps(&self, within: Span) -> io::Result<bool> {
        let has = self.software_timestamps && !matches!(self.port, Port::Xdp(_));
        if has { wait_for_receive_timestamps(within) } else { Ok(true) }
    }

    /// The address that a UDP socket has, if it is one.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.port {
            Port::Socket(socket) => socket.local_address(),
            Port::Ring(_) | Port::Xdp(_) => Ok(None),
        }
    }

    /// Hands over what is there, some tens of messages at most; if nothing is there, waits for the
    /// first. Returns how many there were: none when the time is over, or after a signal.
    ///
    /// **Errors**: `ENETDOWN` when the interface went down or away; it can be called again.
    pub fn receive<F>(&mut self, wait_at_most: Option<Span>, each: &mut F) -> io::Result<usize>
    where
        F: FnMut(Arrival<'_>) + ?Sized,
    {
        if let Some(socket) = self.patient_socket(wait_at_most) {
            let start = clock::now::<Mono>();
            return match socket.await_first(each)? {
                Some(count) => Ok(count),
                None => self.wait_on(start, wait_at_most, &mut |arrival| each(arrival)),
            };
        }
        self.look_and_wait(wait_at_most, &mut |arrival| each(arrival))
    }

    /// As [`Receiver::receive`], for who reads a clock after each call and comes again anyway: none
    /// may come before the time is over, too, so that no clock is read to know when it is. What
    /// takes the messages is inlined where one call looks and waits, if it says so.
    #[inline(always)]
    pub fn receive_some<T>(&mut self, wait_at_most: Option<Span>, to: &mut T) -> io::Result<usize>
    where
        T: Take,
    {
        match self.patient_socket(wait_at_most) {
            // An interface that is gone ends this wait with an error.
            Some(socket) => Ok(socket.await_first(to)?.unwrap_or(0)),
            None => self.look_and_wait(wait_at_most, &mut |arrival| to.take(arrival)),
        }
    }

    /// The socket of which one call looks and waits, where there is so much time that its end need
    /// not be exact.
    #[inline]
    fn patient_socket(&mut self, wait_at_most: Option<Span>) -> Option<&mut ReceiveSocket> {
        match (&mut self.port, self.wait) {
            (Port::Socket(socket), Wait::Block) => {
                wait_at_most.is_none_or(|wait| wait >= UNHURRIED).then_some(socket)
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn look_and_wait(
        &mut self,
        wait_at_most: Option<Span>,
        each: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let count = self.look(each)?;
        if count > 0 || wait_at_most == Some(Span::ZERO) {
            return Ok(count);
        }
        self.wait_on(clock::now(), wait_at_most, each)
    }

    /// Waits until it is over what was waited for since then; nothing came yet.
    fn wait_on(
        &mut self,
        start: Instant<Mono>,
        wait_at_most: Option<Span>,
        each: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let end = wait_at_most.map(|span| start.saturating_add(span));
        let look_until = match self.wait {
            Wait::Block => Some(start),
            Wait::Poll => end,
            Wait::BusyPoll(BusyPoll { microseconds, .. }) => {
                let until = start.saturating_add(Span::from_us(microseconds.into()));
                Some(end.map_or(until, |end| end.min(until)))
            }
        };
        while is_before(look_until) {
            let count = self.look(each)?;
            if count > 0 {
                return Ok(count);
            }
        }
        loop {
            let left = end.map(|end| end - clock::now::<Mono>());
            let is_over = left.is_some_and(|left| left <= Span::ZERO);
            if is_over || !event::wait_readable(&[self.as_fd()], left)? {
                // An interface that is gone makes nothing readable.
                return self.take_error().map(|()| 0);
            }
            let count = self.look(each)?;
            if count > 0 {
                return Ok(count);
            }
            self.take_error()?;
        }
    }

    /// The error that the source has since it was last asked, such as that its interface is gone.
    pub fn take_error(&self) -> io::Result<()> {
        match &self.port {
            Port::Socket(_) | Port::Ring(_) => take_error(self.as_fd()),
            Port::Xdp(port) => port.take_error(),
        }
    }

    fn look(&mut self, each: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        match &mut self.port {
            Port::Socket(socket) => socket.receive(each),
            Port::Ring(ring) => Ok(ring.receive(each)),
            Port::Xdp(port) => port.receive(each),
        }
    }

    /// Messages that were lost since the receiver was opened because it was too slow, or, with XDP,
    /// because they were too long.
    pub fn drops(&mut self) -> io::Result<u64> {
        match &mut self.port {
            Port::Socket(socket) => socket.drops(),
            Port::Ring(ring) => ring.drops(),
            Port::Xdp(port) => port.drops(),
        }
    }

    /// What the XDP program did with the interface's frames, if there is one.
    pub fn counters(&self) -> Option<Result<ListenCounters, ListenError>> {
        match &self.port {
            Port::Xdp(port) => Some(port.counters()),
            Port::Socket(_) | Port::Ring(_) => None,
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.port {
            Port::Socket(socket) => socket.as_fd(),
            Port::Ring(ring) => ring.as_fd(),
            Port::Xdp(port) => port.as_fd(),
        }
    }
}

/// Whether it is earlier than that; always when there is no such time.
fn is_before(until: Option<Instant<Mono>>) -> bool {
    until.is_none_or(|until| clock::now::<Mono>() < until)
}

fn index_of(interface: &IfName) -> Result<u32, ListenError> {
    interface_index(interface)
        .map_err(|source| ListenError::NoInterface { interface: interface.clone(), source })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use timewire_base::Failure as _;

    use super::*;

    #[test]
    fn t0_options_that_exclude_each_other_are_refused_in_words() {
        let bind = (Ipv4Addr::LOCALHOST, 0).into();
        let source = Source::Udp(UdpPlace { bind, device: None, group: None });
        let filter = FrameFilter { vid: Some(5), ..FrameFilter::default() };
        let options = ReceiveOptions { filter, ..ReceiveOptions::default() };
        let error = Receiver::open(&source, &options).unwrap_err();
        assert!(error.to_string().contains("a filter is for frames"), "{error}");
        assert!(!error.is_unsupported());
    }

    #[test]
    fn t0_each_way_of_waiting_ends_in_time_and_sees_a_message() {
        let bind = (Ipv4Addr::LOCALHOST, 0).into();
        let source = Source::Udp(UdpPlace { bind, device: None, group: None });
        let busy = BusyPoll { microseconds: 50, budget: None, prefer: false };
        for wait in [Wait::Block, Wait::Poll, Wait::BusyPoll(busy)] {
            let options = ReceiveOptions { wait, ..ReceiveOptions::default() };
            let mut receiver = match Receiver::open(&source, &options) {
                Ok(receiver) => receiver,
                Err(error) => {
                    assert!(error.hint().is_some_and(|hint| hint.contains("CAP_NET_ADMIN")));
                    eprintln!("SKIP: {error}");
                    continue;
                }
            };
            let told = BusyPoll::of(receiver.as_fd()).unwrap();
            assert_eq!(told, matches!(wait, Wait::BusyPoll(_)).then_some(busy));
            let before = clock::now::<Mono>();
            let wait = Span::from_ms(2);
            assert_eq!(receiver.receive(Some(wait), &mut |_| panic!()).unwrap(), 0);
            assert!(clock::now::<Mono>() - before >= wait);
            assert_eq!(receiver.receive(Some(Span::ZERO), &mut |_| panic!()).unwrap(), 0);
            let none = &mut |_: Arrival<'_>| panic!();
            assert_eq!(receiver.receive_some(Some(UNHURRIED), none).unwrap(), 0);
            let from = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let to = receiver.local_address().unwrap().unwrap();
            let mut take = |arrival: Arrival<'_>| assert_eq!(arrival.bytes, b"now");
            from.send_to(b"now", to).unwrap();
            assert_eq!(receiver.receive(None, &mut take).unwrap(), 1);
            from.send_to(b"now", to).unwrap();
            while receiver.receive_some(Some(UNHURRIED), &mut take).unwrap() == 0 {}
        }
    }
}

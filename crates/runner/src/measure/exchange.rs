// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One exchange of messages: a talker on one thread, receivers on others, and when each of them is
//! done. It is one trial of the receive path or of the whole way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use timewire_base::{IfName, Instant, Mono, Span, Tai};
use timewire_datapath::listen::{BusyPoll, Receiver, Source, UdpPlace, Wait};
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamEvent, StreamReport, StreamSpec, Talker,
};
use timewire_datapath::transmit::{TimestampTime, TransmitOptions, Transport};
use timewire_sys::clock;
use timewire_sys::event::{self, EndRequests};

use super::bench::{End, Pair};
use super::receive::plan::{Over, Waiting};
use crate::RunnerError;
use timewire_datapath::drops::{DropCause, PortDrops, QdiscCounts};

/// The stream of the talker.
pub(super) const STREAM: u16 = 1;
/// How long a receiver waits at a time.
pub(super) const SLICE: Span = Span::from_ms(20);
/// From the start of the talker to its first message.
const LEAD: Span = Span::from_ms(50);
/// Without any message for so long once the talker is done, the rest is lost.
const QUIET: Span = Span::from_ms(200);
/// How long a look at the device goes on with `busy`.
const BUSY_US: u32 = 50;
/// How long a receiver waits for the kernel to begin to timestamp. Messages that come without a
/// timestamp are counted as such, so a kernel that takes longer is told of.
const TIMESTAMPS_WITHIN: Span = Span::from_secs(2);

/// What the threads of an exchange tell each other.
#[derive(Debug, Default)]
pub(super) struct Signals {
    stop: AtomicBool,
    /// Set once the talker has sent all.
    is_sent: AtomicBool,
    sent: AtomicU64,
    /// Set once the receiver is done.
    is_done: AtomicBool,
}

impl Signals {
    /// Everybody ends.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether everybody is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The talker is done, well or not.
    pub(super) fn talker_ended(&self) {
        self.is_sent.store(true, Ordering::Release);
    }

    /// The receiver is done, well or not.
    pub(super) fn receiver_ended(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Whether a receiver has all: what was sent, or nothing more since `last`.
    pub(super) fn is_over(&self, received: u64, now: Instant<Mono>, last: Instant<Mono>) -> bool {
        self.is_sent.load(Ordering::Acquire)
            && (received >= self.sent.load(Ordering::Acquire) || now - last > QUIET)
    }

    /// Waits until the receiver is done; everybody is to end then. Whether a signal ended it before
    /// its time.
    pub(super) fn wait(&self, ends: &EndRequests) -> bool {
        let mut ended_early = false;
        while !self.is_done.load(Ordering::Acquire) {
            // Whatever wakes it, the loop looks again.
            let _ = event::wait_readable(&[ends.as_fd()], Some(SLICE));
            if ends.take() {
                ended_early = true;
                self.stop();
            }
        }
        self.stop();
        ended_early
    }
}

/// What a receiver tells once it is open.
#[derive(Debug)]
pub(super) struct Opened(SyncSender<()>);

impl Opened {
    /// It is.
    pub(super) fn tell(self) {
        // Whoever waits for it is there until all have told it or ended.
        let _ = self.0.send(());
    }
}

/// A receiver, and what came of it.
pub(super) type Receiving<'a, R> =
    Box<dyn FnOnce(&Signals, Opened) -> Result<R, RunnerError> + Send + 'a>;

/// A talker, and what came of it.
pub(super) type Talking<'a, T> = Box<dyn FnOnce(&Signals) -> Result<T, RunnerError> + Send + 'a>;

/// Opens all receivers, lets the talker send, and waits until the first receiver is done; those
/// that answer go on until then. The last value is whether a signal ended it before its time.
/// Without an error, the talker has sent.
///
/// **Errors**: those of the first receiver that failed, or of the talker.
pub(super) fn run<'a, R: Send, T: Send>(
    ends: &EndRequests,
    receivers: Vec<Receiving<'a, R>>,
    talker: Option<Talking<'a, T>>,
) -> Result<(Vec<R>, Option<T>, bool), RunnerError> {
    let signals = &Signals::default();
    let (open, opened) = sync_channel(receivers.len());
    let (received, talked, ended_early) = thread::scope(|scope| {
        let start = |receive: Receiving<'a, R>| {
            let opened = Opened(open.clone());
            scope.spawn(move || {
                let received = receive(signals, opened);
                signals.receiver_ended();
                received
            })
        };
        let receiving: Vec<_> = receivers.into_iter().map(start).collect();
        drop(open);
        let is_open = receiving.iter().all(|_| opened.recv().is_ok());
        if !is_open {
            // Those that are open wait for messages that nobody sends.
            signals.stop();
            signals.talker_ended();
        }
        let talking = talker.filter(|_| is_open).map(|talk| {
            scope.spawn(move || {
                let talked = talk(signals);
                signals.talker_ended();
                talked
            })
        });
        let ended_early = is_open && signals.wait(ends);
        let talked = talking.map(|it| it.join().expect("invariant: talkers do not panic"));
        let received = receiving.into_iter().map(|it| it.join());
        let received: Result<Vec<R>, RunnerError> =
            received.map(|it| it.expect("invariant: receivers do not panic")).collect();
        (received, talked, ended_early)
    });
    Ok((received?, talked.transpose()?, ended_early))
}

/// The time of a timestamp by the clock that made it. **Units**: nanoseconds.
pub(super) fn timestamp_ns(at: TimestampTime) -> i64 {
    match at {
        TimestampTime::System(at) => at.as_ns(),
        TimestampTime::Nic { ns } => ns,
    }
}

/// How many messages a rate makes of a time, at least one.
pub(super) fn messages_in(time: Span, rate: u32) -> u64 {
    let ns = u128::try_from(time.as_ns()).unwrap_or(0);
    u64::try_from(ns * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX).max(1)
}

/// What a talker sends: so many messages of a length at a rate.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) port: (Transport, TransmitOptions),
    /// Where frames leave, if that is known.
    pub(super) interface: Option<IfName>,
    pub(super) to: Destination,
    pub(super) rate: u32,
    pub(super) count: Option<u64>,
    /// **Units**: bytes.
    pub(super) payload: usize,
    /// The counters of queueing disciplines before anything was opened.
    pub(super) before: QdiscCounts,
}

/// A talker that is ready, with the start of its cycle.
#[derive(Debug)]
pub(super) struct Ready {
    talker: Talker,
    drops: PortDrops,
    /// When the first message is due.
    pub(super) start: Instant<Tai>,
    /// From one message to the next.
    pub(super) cycle: Span,
}

impl Sending {
    /// Opens the port; the first message is due soon after.
    pub(super) fn ready(self) -> Result<Ready, RunnerError> {
        let cycle = Span::from_ns(1_000_000_000 / i64::from(self.rate));
        let start = clock::now::<Tai>() + LEAD;
        let cadence = Cadence::Cycle { start, cycle };
        let stream = StreamSpec {
            cycles: self.count,
            send_late: true,
            ..StreamSpec::new(STREAM, self.to, cadence, self.payload)
        };
        let (ports, streams) = ([self.port], [stream]);
        let drops = PortDrops::new(&ports, &streams, self.interface.as_ref(), self.before);
        let mut talker = Talker::new(&ports, &streams)?;
        // A thread that spins up to the next message of a fast stream would never sleep.
        talker.set_spin(Span::from_us(60).min(Span::from_ns(cycle.as_ns() / 2)));
        Ok(Ready { talker, drops, start, cycle })
    }
}

impl Ready {
    /// Sends all, and says how many there were, and why some did not leave.
    pub(super) fn talk(
        mut self,
        signals: &Signals,
        each: &mut dyn FnMut(StreamEvent),
    ) -> Result<(StreamReport, Vec<DropCause>), RunnerError> {
        let drops = &mut self.drops;
        self.talker.run(&signals.stop, None, &mut |event| {
            drops.note(&event);
            each(event);
        })?;
        let mut whole = self.talker.report();
        signals.sent.store(whole.streams[0].counters.sent, Ordering::Release);
        let causes = self.drops.causes(&whole);
        let report = whole.streams.swap_remove(0);
        Ok((report, causes))
    }
}

/// The addresses of a message from one station of the bench to the other.
pub(super) fn bench_addresses(pair: &Pair, port: u16) -> (SocketAddrV4, SocketAddrV4) {
    let address = |end| match pair.ipv4(end) {
        IpAddr::V4(address) => SocketAddrV4::new(address, port),
        IpAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port),
    };
    (address(End::A), address(End::B))
}

/// Whole frames with UDP from one station of the bench to the other.
pub(super) fn bench_frames(pair: &Pair, port: u16) -> (Transport, Destination) {
    let (from, to) = bench_addresses(pair, port);
    let content = FrameContent::Udp { from, to, traffic_class: 0 };
    let destination = pair.mac(End::B).0;
    let header = FrameHeader { source: None, destination, vlan: None, content };
    (Transport::Frames { interface: pair.interface() }, Destination::Frame(header))
}

/// How a receiver waits.
pub(super) fn wait_of(waiting: Waiting) -> Wait {
    match waiting {
        Waiting::Block => Wait::Block,
        Waiting::Poll => Wait::Poll,
        Waiting::Busy => {
            Wait::BusyPoll(BusyPoll { microseconds: BUSY_US, budget: None, prefer: false })
        }
    }
}

/// Where messages come from. Without an interface, only UDP has a place.
pub(super) fn source_of(
    over: Over,
    bind: SocketAddr,
    interface: Option<IfName>,
    queue: Option<u32>,
) -> Source {
    match (over, interface) {
        (Over::Frames, Some(interface)) => Source::Frames { interface },
        (Over::Ring, Some(interface)) => Source::Ring { interface },
        (Over::Xdp(mode), Some(interface)) => Source::Xdp { interface, queue, mode },
        (_, device) => Source::Udp(UdpPlace { bind, device, group: None }),
    }
}

/// Takes what the stack would otherwise answer with an error message: nobody else has the port.
pub(super) fn mute(over: Over, at: SocketAddr) -> Option<UdpSocket> {
    // Without it the messages cost more, not less; it never fails on a bench of our own.
    (over != Over::Udp).then(|| UdpSocket::bind(at).ok()).flatten()
}

/// Waits until messages will have the kernel's timestamps. Where nobody can know, or it takes too
/// long, messages without are counted.
pub(super) fn wait_for_timestamps(receiver: &Receiver) {
    let _ = receiver.wait_for_timestamps(TIMESTAMPS_WITHIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_receiver_is_done_with_all_or_after_a_silence() {
        let signals = Signals::default();
        let (last, soon) = (Instant::from_ns(0), Instant::from_ns(1));
        let later = last + QUIET + Span::from_ns(1);
        signals.sent.store(5, Ordering::Release);
        assert!(!signals.is_over(5, later, last), "the talker still sends");
        signals.talker_ended();
        assert!(signals.is_over(5, soon, last) && !signals.is_over(4, soon, last));
        assert!(signals.is_over(4, later, last) && !signals.is_over(4, last + QUIET, last));
        assert!(!signals.is_stopped());
        signals.stop();
        assert!(signals.is_stopped());
    }

    #[test]
    fn t0_a_receiver_that_cannot_open_ends_the_others() {
        let ends = EndRequests::new().unwrap();
        let refused: Receiving<'_, ()> =
            Box::new(|_, _| Err(RunnerError::Invalid("refused".to_owned())));
        let open: Receiving<'_, ()> = Box::new(|signals, opened| {
            opened.tell();
            let since = clock::now();
            while !signals.is_over(0, clock::now(), since) {
                thread::yield_now();
            }
            Ok(())
        });
        let talker: Talking<'_, ()> = Box::new(|_| panic!("it sends to nobody"));
        let why = run(&ends, vec![refused, open], Some(talker)).unwrap_err();
        assert_eq!(why.to_string(), "refused");
    }

    #[test]
    fn t0_a_rate_makes_so_many_messages_of_a_time() {
        assert_eq!(messages_in(Span::from_secs(2), 1_000), 2_000);
        assert_eq!(messages_in(Span::from_us(1_999), 1_000), 1);
        assert_eq!(messages_in(Span::from_ns(1), 1), 1);
    }

    #[test]
    fn t0_only_busy_waiting_asks_the_kernel_to_poll() {
        assert_eq!((wait_of(Waiting::Block), wait_of(Waiting::Poll)), (Wait::Block, Wait::Poll));
        let busy = BusyPoll { microseconds: BUSY_US, budget: None, prefer: false };
        assert_eq!(wait_of(Waiting::Busy), Wait::BusyPoll(busy));
    }
}

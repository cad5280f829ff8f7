// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of messages known by their header: for each its order and losses, how long its messages
//! took, and when in a cycle they came.
//!
//! Nothing is allocated for a message of a known stream; a new one gets its memory once.
//!
//! Not here: the arithmetic (`timewire_trace::stream`), receiving (`Receiver`).

use std::net::SocketAddr;

use timewire_base::{FrameLen, Instant, Span, Tai};
use timewire_trace::record::Tap;
use timewire_trace::stream::histogram::{BatchedHistogram, HistogramSummary};
use timewire_trace::stream::phase::PhaseCycle;
use timewire_trace::stream::sequence::SequenceLimits;
use timewire_trace::stream::{self, StreamConfig, StreamSnapshot, StreamStats};

use super::Arrival;
use crate::probe::Probe;
use crate::ptp_frame::{is_right_behind_ethertype, probe_of_frame};

/// A frame that is longer is counted as one of so many bytes.
const LONGEST: u32 = 65_535;

/// How streams are watched.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// What is remembered of sequence numbers.
    pub sequence: SequenceLimits,
    /// Times up to this have bins of their own.
    pub longest: Span,
    /// The cycle that arrivals are laid over.
    pub cycle: Option<PhaseCycle>,
    /// How far the card's clock is ahead of TAI, if that is known; else no time from the card's
    /// stamp to another is told.
    pub hardware_ahead: Option<Span>,
    /// Most streams; messages of others are counted.
    pub streams: usize,
}

/// How long a received message took on its way through this host, over all streams.
#[derive(Clone, Debug)]
struct Ways {
    hardware_to_kernel: BatchedHistogram,
    kernel_to_user: BatchedHistogram,
    driver_to_user: BatchedHistogram,
}

/// The same, summed up. `null` where no message had both stamps.
#[derive(Clone, Debug, PartialEq)]
pub struct WaySummaries {
    /// From the card to the kernel.
    pub hardware_to_kernel: Option<HistogramSummary>,
    /// From the kernel to the program.
    pub kernel_to_user: Option<HistogramSummary>,
    /// From the XDP program to the program.
    pub driver_to_user: Option<HistogramSummary>,
}

/// What was counted beside the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Messages of known streams.
    pub known: u64,
    /// Messages without our header.
    pub unknown: u64,
    /// Messages of streams for which there was no room.
    pub no_room: u64,
    /// Messages without any stamp of card, driver or kernel; their time is that of the program.
    pub unstamped: u64,
}

#[derive(Debug)]
struct Stream {
    number: u16,
    /// Whether its messages say when they were to be on the link.
    is_launch: bool,
    stats: StreamStats,
}

/// What a whole frame has in common with the last one, if that was a usual one: an EtherType of its
/// own right behind the addresses and our header behind that, of a stream whose messages all say
/// the same time.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// What stands from the EtherType to the number of the stream.
    head: u64,
    /// The place of its stream.
    place: usize,
}

impl Usual {
    /// Where the head is in a frame, and where our header ends.
    const HEAD: usize = 12;
    const END: usize = 14 + Probe::LEN;

    fn of(frame: &[u8], place: usize) -> Option<Usual> {
        Usual::parts(frame).map(|(head, ..)| Usual { head, place })
    }

    /// The head of a frame, the number of its message and the time that it says.
    #[inline(always)]
    fn parts(frame: &[u8]) -> Option<(u64, u32, i64)> {
        let frame = frame.first_chunk::<{ Usual::END }>()?;
        let (head, rest) = frame[Usual::HEAD..].split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (time, _) = rest.split_first_chunk()?;
        Some((u64::from_le_bytes(*head), u32::from_le_bytes(*seq), i64::from_le_bytes(*time)))
    }
}

const _: () = assert!(Usual::HEAD + 20 == Usual::END, "a head of 8 bytes, number and time");

impl Stream {
    #[inline]
    fn arrived(&mut self, message: stream::Arrival, is_launch: bool) {
        // One whose messages say now the one time, now the other, has no distance of the two.
        let between = message.between.filter(|_| is_launch == self.is_launch);
        self.stats.arrived(stream::Arrival { between, ..message });
    }
}

/// Watches streams.
#[derive(Debug)]
pub struct Listener {
    options: ListenerOptions,
    is_frames: bool,
    /// Where the time that a message took ends.
    ends: Tap,
    /// In order of their numbers, with room for all.
    streams: Vec<Stream>,
    /// The place of the stream that the last message was of.
    last: usize,
    /// What the next message is like, if it is like the last one.
    usual: Option<Usual>,
    ways: Ways,
    counters: ListenerCounters,
}

/// A message as the listener knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its header.
    pub probe: Probe,
    /// When it arrived here, by the earliest stamp of TAI that it has.
    pub at: Instant<Tai>,
    /// From when it was sent, or was to be on the link, to the program.
    pub latency: Span,
}

impl Listener {
    /// A listener for whole frames, or for the content of UDP messages.
    pub fn new(is_frames: bool, options: ListenerOptions) -> Listener {
        let histogram = || BatchedHistogram::up_to(options.longest);
        Listener {
            options,
            is_frames,
            ends: Tap::Receive,
            streams: Vec::with_capacity(options.streams),
            last: 0,
            usual: None,
            ways: Ways {
                hardware_to_kernel: histogram(),
                kernel_to_user: histogram(),
                driver_to_user: histogram(),
            },
            counters: ListenerCounters::default(),
        }
    }

    /// Takes the time that messages take to end at another stamp than the program's: the kernel's
    /// ([`Tap::RxSw`]), the XDP program's ([`Tap::RxXdp`]) or the card's ([`Tap::RxHw`]).
    ///
    /// **Panics** for any other tap.
    #[must_use]
    pub fn ending_at(mut self, tap: Tap) -> Listener {
        let known = [Tap::Receive, Tap::RxSw, Tap::RxXdp, Tap::RxHw];
        assert!(known.contains(&tap), "nothing is received at {}", tap.name());
        self.ends = tap;
        self.usual = None;
        self
    }

    /// A message came; what it is, if its stream is known and there is room for it.
    #[inline(always)]
    pub fn arrived(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        match self.arrived_as_usual(arrival) {
            None => {
                // A copy, so that no other has to be in memory.
                let any = *arrival;
                self.arrived_in_any_way(&any)
            }
            known => known,
        }
    }

    /// Takes a message that is like the last one, as nearly all are, with the kernel's stamp alone.
    /// What becomes of it is what [`Listener::arrived_in_any_way`] makes of it; `None`, and
    /// nothing done, of any other.
    #[inline(always)]
    fn arrived_as_usual(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        let Arrival { hardware_ns: None, driver: None, kernel: Some(at), user, .. } = *arrival
        else {
            return None;
        };
        let (head, number, time) = Usual::parts(arrival.bytes)?;
        let usual = self.usual.as_ref().filter(|usual| usual.head == head)?;
        let stream = self.streams.get_mut(usual.place)?;
        self.ways.kernel_to_user.record(user - at);
        let time = Instant::from_ns(time);
        let latency = from_to(time, user);
        let length = limited(arrival.length);
        stream.stats.arrived(stream::Arrival { at, number, length, between: Some(latency) });
        self.counters.known += 1;
        let Stream { number: of, is_launch, .. } = *stream;
        let probe = Probe { stream: of, seq: number, time, is_launch };
        Some(Known { probe, at, latency })
    }

    /// Takes any message.
    #[inline(never)]
    fn arrived_in_any_way(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        let hardware = self.tai_of_card(arrival.hardware_ns);
        self.watch_ways(arrival, hardware);
        let probe = match self.is_frames {
            true => probe_of_frame(arrival.bytes),
            false => Probe::parse(arrival.bytes),
        };
        let Some(probe) = probe else {
            self.counters.unknown += 1;
            return None;
        };
        let at = match (hardware, arrival.driver, arrival.kernel) {
            (Some(at), ..) | (None, Some(at), _) | (None, None, Some(at)) => at,
            (None, None, None) => {
                self.counters.unstamped += 1;
                arrival.user
            }
        };
        let latency = from_to(probe.time, arrival.user);
        let took = |end: Option<Instant<Tai>>| end.map(|end| from_to(probe.time, end));
        let between = match self.ends {
            Tap::RxSw => took(arrival.kernel),
            Tap::RxXdp => took(arrival.driver),
            Tap::RxHw => took(hardware),
            _ => Some(latency),
        };
        let length = self.frame_len(arrival);
        let message = stream::Arrival { at, number: probe.seq, length, between };
        match self.streams.get_mut(self.last) {
            Some(stream) if stream.number == probe.stream => {
                stream.arrived(message, probe.is_launch);
                let is_usual = self.is_frames
                    && self.ends == Tap::Receive
                    && stream.is_launch == probe.is_launch
                    && is_right_behind_ethertype(arrival.bytes);
                self.usual = Usual::of(arrival.bytes, self.last).filter(|_| is_usual);
            }
            _ => self.arrived_of_other(probe, message)?,
        }
        self.counters.known += 1;
        Some(Known { probe, at, latency })
    }

    /// A message came of another stream than the last one; `None` if there is no room for it.
    #[inline(never)]
    fn arrived_of_other(&mut self, probe: Probe, message: stream::Arrival) -> Option<()> {
        let Some(place) = self.find(&probe) else {
            self.counters.no_room += 1;
            return None;
        };
        // Where there are many streams, the next message is of another one again.
        self.usual = None;
        self.last = place;
        self.streams[place].arrived(message, probe.is_launch);
        Some(())
    }

    /// Of a UDP message that of the frame that carries it without options.
    #[inline]
    fn frame_len(&self, arrival: &Arrival<'_>) -> FrameLen {
        let headers = match arrival.from {
            _ if self.is_frames => return limited(arrival.length),
            Some(SocketAddr::V6(_)) => 14 + 40 + 8,
            Some(SocketAddr::V4(_)) | None => 14 + 20 + 8,
        };
        limited(arrival.length.saturating_add(headers))
    }

    #[inline]
    fn tai_of_card(&self, hardware_ns: Option<i64>) -> Option<Instant<Tai>> {
        let ahead = self.options.hardware_ahead?;
        Some(Instant::from_ns(hardware_ns?) - ahead)
    }

    #[inline]
    fn watch_ways(&mut self, arrival: &Arrival<'_>, hardware: Option<Instant<Tai>>) {
        let Arrival { driver, kernel, user, .. } = *arrival;
        if let (Some(hardware), Some(kernel)) = (hardware, kernel) {
            self.ways.hardware_to_kernel.record(kernel - hardware);
        }
        if let Some(kernel) = kernel {
            self.ways.kernel_to_user.record(user - kernel);
        }
        if let Some(driver) = driver {
            self.ways.driver_to_user.record(user - driver);
        }
    }

    /// The place of a message's stream, which may be new.
    fn find(&mut self, probe: &Probe) -> Option<usize> {
        let Probe { stream: number, is_launch, .. } = *probe;
        match self.streams.binary_search_by_key(&number, |stream| stream.number) {
            Ok(at) => Some(at),
            Err(_) if self.streams.len() == self.options.streams => None,
            Err(at) => {
                let config = StreamConfig {
                    taps: (if is_launch { Tap::Scheduled } else { Tap::Send }, self.ends),
                    sequence: self.options.sequence,
                    longest: self.options.longest,
                    cycle: self.options.cycle,
                };
                let stats = StreamStats::new(config, crate::now());
                self.streams.insert(at, Stream { number, is_launch, stats });
                Some(at)
            }
        }
    }

    /// What was counted beside the streams.
    pub fn counters(&self) -> ListenerCounters {
        self.counters
    }

    /// Every stream as it is now, by its number; ends an interval and begins the next.
    pub fn snapshot(&mut self, now: Instant<Tai>) -> Vec<(u16, StreamSnapshot)> {
        self.streams.iter_mut().map(|it| (it.number, it.stats.snapshot(now))).collect()
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream came yet.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// As [`Listener::snapshot`], of one stream, counted from 0: so that who looks at thousands
    /// need not do it at once.
    pub fn snapshot_of(
        &mut self,
        index: usize,
        now: Instant<Tai>,
    ) -> Option<(u16, StreamSnapshot)> {
        self.streams.get_mut(index).map(|it| (it.number, it.stats.snapshot(now)))
    }

    /// How long messages took on their way through this host, since the start.
    pub fn ways(&mut self) -> WaySummaries {
        let of = |it: &mut BatchedHistogram| {
            let settled = it.settle();
            (settled.count() > 0).then(|| settled.summary())
        };
        WaySummaries {
            hardware_to_kernel: of(&mut self.ways.hardware_to_kernel),
            kernel_to_user: of(&mut self.ways.kernel_to_user),
            driver_to_user: of(&mut self.ways.driver_to_user),
        }
    }

    /// The streams are over: what has not come by now is lost.
    pub fn finish(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.stats.finish());
    }
}

/// A length that is counted.
#[inline]
fn limited(bytes: u32) -> FrameLen {
    FrameLen::new(bytes.min(LONGEST)).expect("invariant: just limited")
}

/// From a time that a message says, which may be any, to one that a clock showed: the end of what a
/// span can be, if it is longer.
#[inline]
fn from_to(said: Instant<Tai>, shown: Instant<Tai>) -> Span {
    match shown.as_ns().checked_sub(said.as_ns()) {
        Some(ns) => Span::from_ns(ns),
        None => longest_after(said),
    }
}

#[cold]
fn longest_after(said: Instant<Tai>) -> Span {
    Span::from_ns(if said.as_ns() < 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ptp_frame;

    fn options() -> ListenerOptions {
        ListenerOptions {
            sequence: SequenceLimits { window: 64, leap: 1_000 },
            longest: Span::from_ms(100),
            cycle: Some(PhaseCycle {
                base_time: Instant::from_ns(0),
                cycle_time: Span::from_us(100),
                bins: 10,
            }),
            hardware_ahead: Some(Span::from_us(5)),
            streams: 2,
        }
    }

    fn message(stream: u16, seq: u32, is_launch: bool) -> [u8; 30] {
        let mut bytes = [0; 30];
        let time = Instant::from_ns(1_000_000);
        Probe { stream, seq, time, is_launch }.write(&mut bytes);
        bytes
    }

    fn arrival(bytes: &[u8]) -> Arrival<'_> {
        Arrival {
            bytes,
            length: u32::try_from(bytes.len()).unwrap(),
            from: Some("10.0.0.1:9".parse().unwrap()),
            tag: None,
            hardware_ns: Some(1_015_000),
            driver: None,
            kernel: Some(Instant::from_ns(1_012_000)),
            user: Instant::from_ns(1_040_000),
        }
    }

    #[test]
    fn t0_each_stream_has_its_own_order_latency_and_phase() {
        let mut listener = Listener::new(false, options());
        for seq in [0, 1, 1, 3] {
            let bytes = message(7, seq, false);
            let known = listener.arrived(&arrival(&bytes)).unwrap();
            let hardware = Instant::from_ns(1_010_000);
            assert_eq!((known.at, known.latency), (hardware, Span::from_us(40)));
        }
        let bytes = message(3, 9, true);
        listener.arrived(&arrival(&bytes)).unwrap();
        // One that says the other time has no latency of the same kind.
        let bytes = message(3, 10, false);
        listener.arrived(&arrival(&bytes)).unwrap();
        assert_eq!(listener.arrived(&arrival(&message(1, 0, false))), None);
        assert_eq!(listener.arrived(&arrival(b"something else")), None);
        let expected = ListenerCounters { known: 6, unknown: 1, no_room: 1, unstamped: 0 };
        assert_eq!(listener.counters(), expected);
        listener.finish();
        let snapshots = listener.snapshot(Instant::from_ns(2_000_000));
        let [(3, launched), (7, sent)] = &snapshots[..] else { panic!("{snapshots:?}") };
        let (sequence, between) = (&sent.sequence, &sent.between);
        assert_eq!((sequence.received, sequence.duplicate, sequence.lost), (3, 1, 1));
        assert_eq!((between.count, between.min_ns, between.max_ns), (3, 40_000, 40_000));
        let phase = sent.phase.as_ref().unwrap();
        assert_eq!((phase.min_ns, phase.max_ns), (Some(10_000), Some(10_000)));
        assert_eq!((sent.frames, sent.frame_bytes), (4, 4 * 72));
        assert_eq!((launched.frames, launched.between.count), (2, 1));
        assert_ne!(launched.from_tap, sent.from_tap);
    }

    #[test]
    fn t0_the_time_that_messages_take_ends_where_one_wants() {
        let bytes = message(7, 0, false);
        for (tap, took) in [
            (Tap::Receive, Some(40)),
            (Tap::RxSw, Some(12)),
            (Tap::RxHw, Some(10)),
            (Tap::RxXdp, None),
        ] {
            let mut listener = Listener::new(false, options()).ending_at(tap);
            assert_eq!(listener.arrived(&arrival(&bytes)).unwrap().latency, Span::from_us(40));
            assert_eq!((listener.len(), listener.is_empty()), (1, false));
            let (number, seen) = listener.snapshot_of(0, Instant::from_ns(0)).unwrap();
            assert_eq!((number, seen.to_tap.as_str()), (7, tap.name()));
            assert_eq!(seen.between.count, u64::from(took.is_some()));
            assert_eq!(seen.between.max_ns, took.map_or(Span::ZERO, Span::from_us).as_ns());
            assert!(listener.snapshot_of(1, Instant::from_ns(0)).is_none());
        }
    }

    #[test]
    fn t0_ways_have_the_messages_that_have_both_stamps() {
        let mut listener = Listener::new(false, options());
        let bytes = message(7, 0, false);
        listener.arrived(&arrival(&bytes));
        let driver = Some(Instant::from_ns(1_030_000));
        listener.arrived(&Arrival { driver, hardware_ns: None, kernel: None, ..arrival(&bytes) });
        let bare = Arrival { hardware_ns: None, kernel: None, ..arrival(&bytes) };
        let known = listener.arrived(&bare).unwrap();
        assert_eq!((known.at, listener.counters().unstamped), (bare.user, 1));
        let ways = listener.ways();
        let only = |it: Option<HistogramSummary>| it.map(|it| (it.count, it.min_ns));
        assert_eq!(only(ways.hardware_to_kernel), Some((1, 2_000)));
        assert_eq!(only(ways.kernel_to_user), Some((1, 28_000)));
        assert_eq!(only(ways.driver_to_user), Some((1, 10_000)));
        // Without knowing the card's clock its stamp says nothing of the others.
        let unknown = ListenerOptions { hardware_ahead: None, ..options() };
        let mut listener = Listener::new(false, unknown);
        let known = listener.arrived(&arrival(&bytes)).unwrap();
        assert_eq!(Some(known.at), arrival(&bytes).kernel);
        assert_eq!(listener.ways().hardware_to_kernel, None);
    }

    #[test]
    fn t0_a_message_may_say_any_time() {
        for (said, took) in [(i64::MIN, i64::MAX), (i64::MAX, 1_040_000 - i64::MAX)] {
            let mut listener = Listener::new(false, options());
            let mut bytes = [0; 30];
            let time = Instant::from_ns(said);
            Probe { stream: 7, seq: 0, time, is_launch: false }.write(&mut bytes);
            let known = listener.arrived(&arrival(&bytes)).unwrap();
            assert_eq!(known.latency, Span::from_ns(took));
            assert_eq!(listener.snapshot(Instant::from_ns(1))[0].1.between.max_ns, took);
        }
    }

    #[test]
    fn t0_whole_frames_are_known_by_what_they_carry() {
        let mut listener = Listener::new(true, options());
        let mut frame = [ptp_frame::DESTINATION, [2, 0, 0, 0, 0, 1]].concat();
        frame.extend(ptp_frame::ETHERTYPE.to_be_bytes());
        frame.resize(14 + ptp_frame::CONTENT, 0);
        let probe = Probe { stream: 5, seq: 1, time: Instant::from_ns(0), is_launch: false };
        let ours = ptp_frame::PtpProbe { domain: 200, probe };
        ours.write([2, 0, 0, 0, 0, 1], &mut frame[14..]);
        let known = listener.arrived(&Arrival { from: None, ..arrival(&frame) }).unwrap();
        assert_eq!(known.probe, probe);
        let snapshots = listener.snapshot(Instant::from_ns(1));
        assert_eq!((snapshots[0].0, snapshots[0].1.frame_bytes), (5, 86));
    }

    /// A frame with our header behind one EtherType, or as it may be otherwise.
    #[derive(Clone, Copy, Debug)]
    enum Kind {
        Plain { ethertype: u16 },
        Tagged,
        Udp,
        Ptp,
    }

    fn frame(kind: Kind, probe: &Probe) -> Vec<u8> {
        let mut frame = vec![2; 12];
        match kind {
            Kind::Plain { ethertype } => frame.extend(ethertype.to_be_bytes()),
            Kind::Tagged => frame.extend([0x81, 0, 0x60, 5, 0x88, 0xb5]),
            Kind::Udp => {
                frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]);
                frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 40, 0, 0]);
            }
            Kind::Ptp => {
                let mut content = [0; ptp_frame::CONTENT];
                let ours = ptp_frame::PtpProbe { domain: 200, probe: *probe };
                ours.write([2, 0, 0, 0, 0, 1], &mut content);
                frame.extend(ptp_frame::ETHERTYPE.to_be_bytes());
                frame.extend(content);
                return frame;
            }
        }
        let start = frame.len();
        frame.resize(start + 32, 0);
        probe.write(&mut frame[start..]);
        frame
    }

    #[test]
    fn t0_the_third_message_of_a_stream_is_usual_and_what_differs_is_not() {
        let unknown = ListenerOptions { hardware_ahead: None, ..options() };
        let mut listener = Listener::new(true, unknown);
        let plain = Kind::Plain { ethertype: 0x88b5 };
        let of = |kind, stream, seq, is_launch| {
            let time = Instant::from_ns(1_000_000);
            frame(kind, &Probe { stream, seq, time, is_launch })
        };
        fn bare(bytes: &[u8]) -> Arrival<'_> {
            Arrival { hardware_ns: None, from: None, ..arrival(bytes) }
        }
        for seq in 0..2 {
            let bytes = of(plain, 1, seq, false);
            assert_eq!(listener.arrived_as_usual(&bare(&bytes)), None);
            listener.arrived(&bare(&bytes)).unwrap();
        }
        let bytes = of(plain, 1, 2, false);
        let unusual = [
            of(plain, 2, 2, false),
            of(plain, 1, 2, true),
            of(Kind::Plain { ethertype: 0x88b6 }, 1, 2, false),
            of(Kind::Tagged, 1, 2, false),
            of(Kind::Ptp, 1, 2, false),
            bytes[..31].to_vec(),
        ];
        for other in &unusual {
            assert_eq!(listener.arrived_as_usual(&bare(other)), None);
        }
        for other in [arrival(&bytes), Arrival { kernel: None, ..bare(&bytes) }] {
            assert_eq!(listener.arrived_as_usual(&other), None);
        }
        let known = listener.arrived_as_usual(&bare(&bytes)).unwrap();
        assert_eq!((known.probe.stream, known.probe.seq), (1, 2));
        assert_eq!((known.at, known.latency), (arrival(&bytes).kernel.unwrap(), Span::from_us(40)));
        // Where the time ends elsewhere, no message is usual.
        let mut listener = listener.ending_at(Tap::RxSw);
        for _ in 0..3 {
            assert_eq!(listener.arrived_as_usual(&bare(&bytes)), None);
            listener.arrived(&bare(&bytes)).unwrap();
        }
        assert_eq!(listener.counters().known, 6);
    }

    /// A message: its frame, and how it came.
    fn any_arrival() -> impl Strategy<Value = (Vec<u8>, Arrival<'static>)> {
        let kind = prop_oneof![
            20 => Just(Kind::Plain { ethertype: 0x88b5 }),
            1 => any::<u16>().prop_map(|ethertype| Kind::Plain { ethertype }),
            1 => Just(Kind::Plain { ethertype: 0x0800 }),
            1 => Just(Kind::Tagged),
            1 => Just(Kind::Udp),
            1 => Just(Kind::Ptp),
        ];
        let stream = prop_oneof![20 => Just(1_u16), 3 => 0_u16..4];
        let seq = prop_oneof![9 => 0_u32..100, 1 => any::<u32>()];
        let time = prop_oneof![9 => 0_i64..2_000_000, 1 => any::<i64>()];
        let header = (kind, stream, seq, time, prop::bool::weighted(0.1));
        let change = prop_oneof![
            20 => Just((None::<(usize, u8)>, usize::MAX)),
            1 => (0_usize..80).prop_map(|cut| (None, cut)),
            2 => (0_usize..80, any::<u8>()).prop_map(|change| (Some(change), usize::MAX)),
        ];
        let rare = |ns| prop_oneof![9 => Just(None), 1 => Just(Some(ns))];
        let stamps = (rare(1_015_000_i64), rare(1_030_000), prop::bool::weighted(0.95));
        let taken = (0_i64..1_000_000, prop_oneof![9 => Just(0), 1 => any::<u32>()]);
        (header, change, stamps, taken).prop_map(|(header, (change, cut), stamps, taken)| {
            let (kind, stream, seq, time, is_launch) = header;
            let time = Instant::from_ns(time);
            let mut bytes = frame(kind, &Probe { stream, seq, time, is_launch });
            if let Some((at, value)) = change {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(cut);
            let (hardware_ns, driver, is_stamped) = stamps;
            let length = u32::try_from(bytes.len()).unwrap().max(taken.1);
            let arrival = Arrival {
                bytes: &[],
                length,
                hardware_ns,
                driver: driver.map(Instant::from_ns),
                kernel: is_stamped.then(|| Instant::from_ns(1_012_000)),
                user: Instant::from_ns(1_040_000 + taken.0),
                ..self::arrival(&[])
            };
            (bytes, arrival)
        })
    }

    proptest! {
        #[test]
        fn t0_a_usual_message_is_taken_as_any(
            arrivals in proptest::collection::vec(any_arrival(), 1..300),
            is_frames in prop::bool::weighted(0.9),
            ahead in prop_oneof![Just(None), Just(Some(Span::from_us(5)))],
            ends in prop_oneof![
                5 => Just(Tap::Receive), 1 => Just(Tap::RxSw), 1 => Just(Tap::RxXdp),
                1 => Just(Tap::RxHw),
            ],
        ) {
            let options = ListenerOptions { hardware_ahead: ahead, ..options() };
            let listener = || Listener::new(is_frames, options).ending_at(ends);
            let (mut one, mut other) = (listener(), listener());
            for (bytes, arrival) in &arrivals {
                let arrival = Arrival { bytes, ..*arrival };
                prop_assert_eq!(one.arrived(&arrival), other.arrived_in_any_way(&arrival));
                prop_assert_eq!(one.counters(), other.counters());
            }
            prop_assert_eq!(one.ways(), other.ways());
            for _ in 0..2 {
                let now = Instant::from_ns(5_000_000);
                let [mut seen, mut expected] = [one.snapshot(now), other.snapshot(now)];
                for (_, seen) in seen.iter_mut().chain(&mut expected) {
                    // The first interval begins when the stream was known.
                    (seen.interval_ns, seen.interval_rate) = (0, None);
                }
                prop_assert_eq!(seen, expected);
                one.finish();
                other.finish();
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of messages known by their header: for each its order and losses, how long its messages
//! took, and when in a cycle they came.
//!
//! Nothing is allocated for a message of a known stream; a new one gets its memory once.
//!
//! Not here: the arithmetic (`timewire_capture::stream`), receiving (`Receiver`).

use std::fmt;
use std::net::SocketAddr;

use timewire_base::wire::MacAddress;
use timewire_base::{FrameLen, Instant, Span, Tai};
use timewire_capture::record::TimestampPoint;
use timewire_capture::stream::phase::PhaseCycle;
use timewire_capture::stream::sequence::SequenceLimits;
use timewire_capture::stream::{self, StreamConfig, StreamSnapshot, StreamStats};
use timewire_stats::{BatchedHistogram, HistogramSummary};

use super::Arrival;
use super::others::{OtherKind, Others};
use crate::probe::Probe;
use crate::ptp_frame::{is_right_behind_ethertype, probe_of_frame, source_of_frame};

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
    /// How far the NIC's clock is ahead of TAI, if that is known; else no time from the NIC's
    /// timestamp to another is told.
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

/// The same, summed up. `null` where no message had both timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct WaySummaries {
    /// From the NIC to the kernel.
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
    /// Messages without any timestamp of NIC, driver or kernel; their time is that of the program.
    pub not_timestamped: u64,
}

/// Who sends the messages of a stream: numbers are chosen by each talker for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamSource {
    /// The address and port that UDP messages come from.
    Udp(SocketAddr),
    /// The address that frames without UDP come from.
    Frames(MacAddress),
    /// A message that does not say.
    Unknown,
}

impl fmt::Display for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamSource::Udp(address) => address.fmt(f),
            StreamSource::Frames(address) => address.fmt(f),
            StreamSource::Unknown => f.write_str("unknown"),
        }
    }
}

/// Which stream: its source and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// The number that its messages say.
    pub number: u16,
    /// Who sends them.
    pub source: StreamSource,
    /// Its flow in records: the number, or one above all numbers where another source was heard
    /// with this number before.
    pub flow: u16,
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number, self.source)
    }
}

#[derive(Debug)]
struct Stream {
    key: StreamKey,
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
    /// What stands before it: whom it is from, and the end of whom it is to.
    from: u64,
    /// Whether what was not sent stands behind the header.
    says_not_sent: bool,
    /// The place of its stream.
    place: usize,
}

impl Usual {
    /// Where `from` begins in a frame, and where our header ends.
    const FROM: usize = 4;
    const END: usize = 14 + Probe::LEN_SKIPPED;

    fn of(frame: &[u8], place: usize) -> Option<Usual> {
        let says_not_sent = Probe::parse(&frame[14..])?.skipped.is_some();
        let (from, head, ..) = Usual::parts(frame)?;
        Some(Usual { head, from, says_not_sent, place })
    }

    /// What is before the head of a frame, the head, the number of its message, its time, and what
    /// stands behind that.
    #[inline(always)]
    fn parts(frame: &[u8]) -> Option<(u64, u64, u32, i64, u32)> {
        let frame = frame.first_chunk::<{ Usual::END }>()?;
        let (from, rest) = frame[Usual::FROM..].split_first_chunk()?;
        let (head, rest) = rest.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        let (behind, _) = rest.split_first_chunk()?;
        let behind = u32::from_le_bytes(*behind);
        let (from, head) = (u64::from_le_bytes(*from), u64::from_le_bytes(*head));
        Some((from, head, u32::from_le_bytes(*seq), i64::from_le_bytes(*time), behind))
    }
}

// Two words of 8 bytes, the number, the time, 4 bytes behind that.
const _: () = assert!(Usual::FROM + 8 + 8 + 4 + 8 + 4 == Usual::END);

impl Stream {
    #[inline]
    fn arrived(&mut self, message: stream::Arrival, probe: &Probe) {
        let is_launch = probe.is_launch;
        if let Some(skipped) = probe.skipped {
            self.stats.said_not_sent(skipped);
        }
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
    ends: TimestampPoint,
    /// In order of their numbers and sources, with room for all.
    streams: Vec<Stream>,
    /// Streams whose number another source had before.
    further: u16,
    /// The place of the stream that the last message was of.
    last: usize,
    /// What the next message is like, if it is like the last one.
    usual: Option<Usual>,
    ways: Ways,
    counters: ListenerCounters,
    others: Others,
}

/// A message as the listener knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its header.
    pub probe: Probe,
    /// When it arrived here, by the earliest timestamp of TAI that it has.
    pub at: Instant<Tai>,
    /// From when it was sent, or was to be on the link, to the program.
    pub latency: Span,
    /// Its flow in records: [`StreamKey::flow`].
    pub flow: u16,
}

impl Listener {
    /// A listener for whole frames, or for the content of UDP messages.
    pub fn new(is_frames: bool, options: ListenerOptions) -> Listener {
        let histogram = || BatchedHistogram::up_to(options.longest);
        Listener {
            options,
            is_frames,
            ends: TimestampPoint::Receive,
            streams: Vec::with_capacity(options.streams),
            further: 0,
            last: 0,
            usual: None,
            ways: Ways {
                hardware_to_kernel: histogram(),
                kernel_to_user: histogram(),
                driver_to_user: histogram(),
            },
            counters: ListenerCounters::default(),
            others: Others::new(),
        }
    }

    /// Takes the time that messages take to end at another timestamp than the program's: the
    /// kernel's ([`TimestampPoint::RxSw`]), the XDP program's ([`TimestampPoint::RxXdp`]) or the
    /// NIC's ([`TimestampPoint::RxHw`]).
    ///
    /// **Panics** for any other timestamp point.
    #[must_use]
    pub fn ending_at(mut self, point: TimestampPoint) -> Listener {
        let known = [
            TimestampPoint::Receive,
            TimestampPoint::RxSw,
            TimestampPoint::RxXdp,
            TimestampPoint::RxHw,
        ];
        assert!(known.contains(&point), "nothing is received at {}", point.name());
        self.ends = point;
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

    /// Takes a message that is like the last one, as nearly all are, with the kernel's timestamp
    /// alone. What becomes of it is what [`Listener::arrived_in_any_way`] makes of it; `None`, and
    /// nothing done, of any other.
    #[inline(always)]
    fn arrived_as_usual(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        let Arrival { hardware_ns: None, driver: None, kernel: Some(at), user, .. } = *arrival
        else {
            return None;
        };
        let (from, head, number, time, behind) = Usual::parts(arrival.bytes)?;
        let usual = self.usual.as_ref();
        let usual = usual.filter(|usual| (usual.head, usual.from) == (head, from))?;
        let skipped = usual.says_not_sent.then_some(behind);
        let stream = self.streams.get_mut(usual.place)?;
        if let Some(skipped) = skipped {
            stream.stats.said_not_sent(skipped);
        }
        self.ways.kernel_to_user.record(user - at);
        let time = Instant::from_ns(time);
        let latency = from_to(time, user);
        let length = limited(arrival.length);
        stream.stats.arrived(stream::Arrival { at, number, length, between: Some(latency) });
        self.counters.known += 1;
        let Stream { key: StreamKey { number: of, flow, .. }, is_launch, .. } = *stream;
        let probe = Probe { stream: of, seq: number, time, is_launch, skipped };
        Some(Known { probe, at, latency, flow })
    }

    /// Takes any message.
    #[inline(never)]
    fn arrived_in_any_way(&mut self, arrival: &Arrival<'_>) -> Option<Known> {
        let hardware = self.tai_of_nic(arrival.hardware_ns);
        self.watch_ways(arrival, hardware);
        let probe = match self.is_frames {
            true => probe_of_frame(arrival.bytes, arrival.whole_length()),
            false => Probe::parse(arrival.bytes),
        };
        let Some(probe) = probe else {
            self.counters.unknown += 1;
            let from = arrival.from.map_or(StreamSource::Unknown, StreamSource::Udp);
            self.others.count(
                arrival.bytes,
                arrival.whole_length(),
                (!self.is_frames).then_some(from),
            );
            return None;
        };
        let at = match (hardware, arrival.driver, arrival.kernel) {
            (Some(at), ..) | (None, Some(at), _) | (None, None, Some(at)) => at,
            (None, None, None) => {
                self.counters.not_timestamped += 1;
                arrival.user
            }
        };
        let latency = from_to(probe.time, arrival.user);
        let took = |end: Option<Instant<Tai>>| end.map(|end| from_to(probe.time, end));
        let between = match self.ends {
            TimestampPoint::RxSw => took(arrival.kernel),
            TimestampPoint::RxXdp => took(arrival.driver),
            TimestampPoint::RxHw => took(hardware),
            _ => Some(latency),
        };
        let length = self.frame_len(arrival);
        let message = stream::Arrival { at, number: probe.seq, length, between };
        let source = self.source_of(arrival);
        let flow = match self.streams.get_mut(self.last) {
            Some(stream) if stream.key.number == probe.stream && stream.key.source == source => {
                stream.arrived(message, &probe);
                let is_usual = self.is_frames
                    && self.ends == TimestampPoint::Receive
                    && stream.is_launch == probe.is_launch
                    && is_right_behind_ethertype(arrival.bytes);
                let flow = stream.key.flow;
                self.usual = Usual::of(arrival.bytes, self.last).filter(|_| is_usual);
                flow
            }
            _ => self.arrived_of_other(probe, source, message)?,
        };
        self.counters.known += 1;
        Some(Known { probe, at, latency, flow })
    }

    /// Who sent it.
    #[inline]
    fn source_of(&self, arrival: &Arrival<'_>) -> StreamSource {
        if self.is_frames {
            return source_of_frame(arrival.bytes, arrival.whole_length());
        }
        arrival.from.map_or(StreamSource::Unknown, StreamSource::Udp)
    }

    /// A message came of another stream than the last one; its flow, or `None` if there is no room
    /// for it.
    #[inline(never)]
    fn arrived_of_other(
        &mut self,
        probe: Probe,
        source: StreamSource,
        message: stream::Arrival,
    ) -> Option<u16> {
        let Some(place) = self.find(&probe, source) else {
            self.counters.no_room += 1;
            return None;
        };
        // Where there are many streams, the next message is of another one again.
        self.usual = None;
        self.last = place;
        self.streams[place].arrived(message, &probe);
        Some(self.streams[place].key.flow)
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
    fn tai_of_nic(&self, hardware_ns: Option<i64>) -> Option<Instant<Tai>> {
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
    fn find(&mut self, probe: &Probe, source: StreamSource) -> Option<usize> {
        let Probe { stream: number, is_launch, .. } = *probe;
        let key_of = |stream: &Stream| (stream.key.number, stream.key.source);
        match self.streams.binary_search_by_key(&(number, source), key_of) {
            Ok(at) => Some(at),
            Err(_) if self.streams.len() == self.options.streams => None,
            Err(at) => {
                let config = StreamConfig {
                    points: (
                        if is_launch { TimestampPoint::Scheduled } else { TimestampPoint::Send },
                        self.ends,
                    ),
                    sequence: self.options.sequence,
                    longest: self.options.longest,
                    cycle: self.options.cycle,
                };
                let stats = StreamStats::new(config, crate::now());
                let same =
                    |stream: Option<&Stream>| stream.is_some_and(|it| it.key.number == number);
                let is_further =
                    same(self.streams.get(at)) || at > 0 && same(self.streams.get(at - 1));
                let flow = if is_further {
                    self.further = self.further.saturating_add(1);
                    Probe::MAX_STREAM.saturating_add(self.further)
                } else {
                    number
                };
                let key = StreamKey { number, source, flow };
                self.streams.insert(at, Stream { key, is_launch, stats });
                Some(at)
            }
        }
    }

    /// What was counted beside the streams.
    pub fn counters(&self) -> ListenerCounters {
        self.counters
    }

    /// What the messages without our header were, each kind with how many; and how many more there
    /// were, of kinds for which there was no room.
    pub fn others(&self) -> (&[(OtherKind, u64)], u64) {
        (self.others.kinds(), self.others.more())
    }

    /// Every stream as it is now, by number and source; ends an interval and begins the next.
    pub fn snapshot(&mut self, now: Instant<Tai>) -> Vec<(StreamKey, StreamSnapshot)> {
        self.streams.iter_mut().map(|it| (it.key, it.stats.snapshot(now))).collect()
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
    ) -> Option<(StreamKey, StreamSnapshot)> {
        self.streams.get_mut(index).map(|it| (it.key, it.stats.snapshot(now)))
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
mod tests;

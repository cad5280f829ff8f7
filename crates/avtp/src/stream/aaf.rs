// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Audio: samples to packets and back.

use timewire_base::{Instant, Span, Tai};

use super::order::{Arrival, Due, Order};
use super::pace::Pace;
use super::{Flags, Late, Launch, Next, Received, StreamCounters};
use crate::bytes::{check, wide};
use crate::pdu::{Aaf, AafFormat, Reserved, STREAM_HEADER_BYTES, StreamHeader, StreamId};
use crate::time::{check_transit, since};
use crate::{AvtpError, AvtpTime, Cadence};

/// How the samples given to a talker are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// As in a WAVE file.
    Little,
    /// As in a packet.
    Big,
}

/// What becomes of the last samples when they do not fill a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// The last packet is shorter than the others.
    #[default]
    Short,
    /// It is filled with silence, so that all packets are equally long.
    Silence,
}

/// An audio talker's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AafTalkerConfig {
    /// The stream's name.
    pub stream: StreamId,
    /// What the samples are.
    pub format: AafFormat,
    /// Samples of every channel in a packet.
    pub samples_per_packet: u16,
    /// Presentation time less launch time: that of the class, or what the application knows better.
    pub transit: Span,
    /// When the first packet is launched.
    pub start: Instant<Tai>,
    /// How long before its launch time a packet is handed out.
    pub lead: Span,
    /// Only packets whose number is a multiple of 8 have a timestamp.
    pub sparse: bool,
    /// **Units**: samples of every channel that the talker holds.
    pub queue: usize,
    /// What becomes of the last samples.
    pub tail: Tail,
}

/// Cuts samples into packets. The n-th sample is presented at the start, plus n sampling periods,
/// plus the transit time; a packet's launch time is that of its first sample less the transit time.
#[derive(Clone, Debug)]
pub struct AafTalker {
    config: AafTalkerConfig,
    cadence: Cadence,
    frame: usize,
    queue: Vec<u8>,
    head: usize,
    packet: Vec<u8>,
    payload: Vec<u8>,
    sent: i64,
    sequence: u8,
    media_restart: bool,
    finished: bool,
}

/// The most samples a talker holds.
const MAX_QUEUE: usize = 1 << 24;

fn cadence(format: AafFormat) -> Result<Cadence, AvtpError> {
    format.check()?;
    Cadence::of_hz(format.rate.hz().ok_or(AvtpError::Value {
        field: "nsr",
        value: 0,
        right: "a rate with a number, 8 kHz to 192 kHz",
    })?)
}

/// The payload of a full packet.
fn payload_bytes(format: AafFormat, samples: u16) -> Result<usize, AvtpError> {
    let bytes = usize::from(samples) * format.frame_bytes();
    let fits = (1..=65_535).contains(&bytes);
    check("bytes of samples in a packet", wide(bytes), fits, "1 to 65535")?;
    Ok(bytes)
}

impl AafTalker {
    /// A talker with an empty queue. Allocates all that it will ever need.
    ///
    /// **Errors**: a format without a rate or that cannot be; a packet without samples, with more
    /// than 65 535 bytes of them, or with more than the queue holds; a negative lead; a transit
    /// time that is negative or longer than [`MAX_TRANSIT`](crate::MAX_TRANSIT).
    pub fn new(config: AafTalkerConfig) -> Result<AafTalker, AvtpError> {
        let cadence = cadence(config.format)?;
        let payload = payload_bytes(config.format, config.samples_per_packet)?;
        let fits = (usize::from(config.samples_per_packet)..=MAX_QUEUE).contains(&config.queue);
        let right = "a packet's samples to 16777216 samples";
        check("queue", wide(config.queue), fits, right)?;
        let lead = config.lead.as_ns();
        check("lead", lead.unsigned_abs(), lead >= 0, "0ns or more")?;
        check_transit(config.transit)?;
        let frame = config.format.frame_bytes();
        Ok(AafTalker {
            config,
            cadence,
            frame,
            queue: Vec::with_capacity(config.queue * frame),
            head: 0,
            packet: vec![0; STREAM_HEADER_BYTES + payload],
            payload: vec![0; payload],
            sent: 0,
            sequence: 0,
            media_restart: false,
            finished: false,
        })
    }

    /// Takes samples, as many as there is room for, and says how many bytes it took: whole frames.
    pub fn push(&mut self, samples: &[u8], order: ByteOrder) -> usize {
        self.queue.copy_within(self.head.., 0);
        self.queue.truncate(self.queue.len() - self.head);
        self.head = 0;
        let room = self.config.queue * self.frame - self.queue.len();
        let taken = room.min(samples.len()) / self.frame * self.frame;
        let at = self.queue.len();
        match order {
            ByteOrder::Big => self.queue.extend_from_slice(&samples[..taken]),
            ByteOrder::Little => {
                self.queue.resize(at + taken, 0);
                self.config.format.sample.swap(&samples[..taken], &mut self.queue[at..]);
            }
        }
        taken
    }

    /// No samples will follow.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Starts anew at another time, say after the samples did not come in time; samples that wait
    /// stay. Listeners see it (`mr`).
    pub fn restart(&mut self, start: Instant<Tai>) {
        self.config.start = start;
        self.sent = 0;
        self.media_restart = !self.media_restart;
    }

    /// **Units**: samples of every channel that wait.
    pub fn queued(&self) -> usize {
        (self.queue.len() - self.head) / self.frame
    }

    /// When the next packet is to be sent.
    pub fn next_launch(&self) -> Instant<Tai> {
        self.config.start.saturating_add(self.cadence.at_floor(self.sent))
    }

    /// The next packet, when it is time.
    ///
    /// **Panics**: never; the settings were checked.
    pub fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        let AafTalkerConfig { format, transit, lead, sparse, stream, .. } = self.config;
        let waiting = &self.queue[self.head..];
        if self.finished && waiting.is_empty() {
            return Next::Done;
        }
        let launch_time = self.next_launch();
        if launch_time > now.saturating_add(lead) {
            return Next::At(launch_time.saturating_add(-lead));
        }
        if waiting.len() < self.payload.len() && !self.finished {
            return Next::Starved;
        }
        let taken = waiting.len().min(self.payload.len());
        self.payload[..taken].copy_from_slice(&waiting[..taken]);
        let mut length = taken;
        if self.config.tail == Tail::Silence {
            self.payload[taken..].fill(0);
            length = self.payload.len();
        }
        let presentation_time = launch_time.saturating_add(transit);
        let timestamped = !sparse || self.sequence.is_multiple_of(8);
        let header = StreamHeader {
            stream,
            sequence: self.sequence,
            media_restart: self.media_restart,
            timestamp: timestamped.then(|| AvtpTime::of(presentation_time)),
            timestamp_uncertain: false,
        };
        let samples = &self.payload[..length];
        let reserved = Reserved::NONE;
        let aaf = Aaf { header, format, sparse, event: 0, samples, reserved };
        let written = aaf.write(&mut self.packet).expect("invariant: checked when made");
        self.head += taken;
        self.sequence = self.sequence.wrapping_add(1);
        let samples = i64::try_from(length / self.frame).expect("invariant: at most 65535");
        self.sent = self.sent.saturating_add(samples);
        Next::Packet(Launch {
            launch_time,
            presentation_time: Some(presentation_time),
            bytes: &self.packet[..written],
        })
    }
}

/// An audio listener's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AafListenerConfig {
    /// The stream's name.
    pub stream: StreamId,
    /// What the samples are; packets with others are counted and dropped.
    pub format: AafFormat,
    /// Samples of every channel in a packet; the last may have fewer.
    pub samples_per_packet: u16,
    /// How many packets may wait for their presentation time.
    pub capacity: usize,
    /// What is done with packets that are late.
    pub late: Late,
}

/// What is to be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sound<'a> {
    /// These samples, in network order.
    Samples {
        /// When the first of them is to be presented.
        at: Instant<Tai>,
        /// Whole frames.
        bytes: &'a [u8],
    },
    /// Nothing: the packets are missing.
    Gap {
        /// When the first missing sample was to be presented.
        at: Instant<Tai>,
        /// How many packets are missing.
        packets: u64,
        /// **Units**: samples of every channel that are missing.
        samples: u64,
    },
}

/// Puts packets into order and hands out their samples at their presentation times.
///
/// Packets without a timestamp are presented as their number says, counted from the last with one.
/// How many packets a long gap has is told from the times, not only from the numbers, where the
/// talker's timestamps have kept to the rate of its samples ([`Pace`]). A gap is
/// reported once a packet after it came: what is missing at the end of a stream is not known.
#[derive(Clone, Debug)]
pub struct AafListener {
    config: AafListenerConfig,
    cadence: Cadence,
    order: Order,
    flags: Flags,
    /// Number and time of the last packet with a timestamp.
    anchor: Option<(i64, Instant<Tai>)>,
    pace: Pace,
    counters: StreamCounters,
}

impl AafListener {
    /// A listener that has heard nothing. Allocates all that it will ever need.
    ///
    /// **Errors**: a format without a rate or that cannot be; a packet without samples or with
    /// more than 65 535 bytes of them; a capacity other than 1 to 4096.
    pub fn new(config: AafListenerConfig) -> Result<AafListener, AvtpError> {
        let payload = payload_bytes(config.format, config.samples_per_packet)?;
        Ok(AafListener {
            config,
            cadence: cadence(config.format)?,
            order: Order::new(config.capacity, payload, config.late)?,
            flags: Flags::default(),
            anchor: None,
            pace: Pace::default(),
            counters: StreamCounters::default(),
        })
    }

    /// How far a timestamp is from where the nominal rate would have it, from any origin.
    fn off_nominal(&self, index: i64, timestamp: Instant<Tai>) -> Span {
        since(timestamp, Instant::from_ns(self.packets(index).as_ns()))
    }

    /// The time that `packets` packets take.
    fn packets(&self, packets: i64) -> Span {
        let samples = i64::from(self.config.samples_per_packet);
        self.cadence.at_floor(packets.saturating_mul(samples))
    }

    /// Takes a packet.
    ///
    /// **Errors**: no packet of audio; it is counted.
    pub fn receive(&mut self, now: Instant<Tai>, packet: &[u8]) -> Result<Received, AvtpError> {
        let aaf = Aaf::parse(packet).inspect_err(|_| self.counters.malformed += 1)?;
        let header = aaf.header;
        if header.stream != self.config.stream {
            self.counters.other_stream += 1;
            return Ok(Received::OtherStream);
        }
        if aaf.format != self.config.format {
            self.counters.other_format += 1;
            return Ok(Received::OtherFormat);
        }
        let (restart, uncertain) = (header.media_restart, header.timestamp_uncertain);
        if self.flags.count(&mut self.counters, restart, uncertain, &aaf.reserved) {
            self.anchor = None;
            self.pace = Pace::default();
        }
        let timestamp = header.timestamp.map(|time| time.near(now));
        let mut index = self.order.index_of(header.sequence, None);
        if let Some(timestamp) = timestamp {
            if let Some((number, time)) = self.anchor {
                // A packet that is behind by its number was not timestamped after one that is
                // ahead.
                if index <= number && timestamp > time {
                    index += 256;
                }
                index += 256
                    * self.pace.turns(
                        self.off_nominal(index, timestamp),
                        self.packets(1),
                        self.packets(256),
                    );
                let expected = time.saturating_add(self.packets(index - number));
                let off = since(timestamp, expected).as_ns().unsigned_abs();
                let half = self.packets(1).as_ns().unsigned_abs() / 2;
                self.counters.irregular += u64::from(off > half.max(1));
            }
            self.pace.note(self.off_nominal(index, timestamp), timestamp);
            self.anchor = Some((index, timestamp));
        }
        let time =
            self.anchor.map(|(number, time)| time.saturating_add(self.packets(index - number)));
        let arrival = Arrival { index, time, marker: false, payload: aaf.samples };
        Ok(self.order.insert(now, arrival, &mut self.counters))
    }

    /// What is to be heard by now. Ask until there is nothing.
    pub fn present(&mut self, now: Instant<Tai>) -> Option<Sound<'_>> {
        let due = self.order.due(now, |packets| self.missing(packets));
        match due? {
            Due::Gap { packets, at } => {
                self.order.pass_gap(&mut self.counters);
                let samples = packets * u64::from(self.config.samples_per_packet);
                Some(Sound::Gap { at, packets, samples })
            }
            Due::Packet { time, .. } => {
                let bytes = self.order.take(&mut self.counters);
                Some(Sound::Samples { at: time, bytes })
            }
        }
    }

    fn missing(&self, packets: u64) -> Span {
        self.packets(i64::try_from(packets).unwrap_or(i64::MAX))
    }

    /// When something is to be heard next; `None` when nothing waits.
    pub fn next_time(&self) -> Option<Instant<Tai>> {
        self.order.next_time(|packets| self.missing(packets))
    }

    /// How many packets wait.
    pub fn waiting(&self) -> usize {
        self.order.waiting()
    }

    /// What was counted so far.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }
}

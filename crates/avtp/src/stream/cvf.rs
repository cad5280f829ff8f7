// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H.264 video: access units to packets and back.

use timewire_base::{Instant, SduLen, Span, Tai};

use super::order::{Arrival, Due, Order};
use super::{Flags, Late, Launch, Next, Received, StreamCounters};
use crate::bytes::{check, wide};
use crate::media::h264::{
    Assembler, AssemblerCounters, MIN_PAYLOAD, NalUnit, StartCodes, nal_units, payloads,
    write_payload,
};
use crate::pdu::{Cvf, CvfFormat, Reserved, StreamHeader, StreamId};
use crate::time::check_transit;
use crate::{AvtpError, AvtpTime, Cadence, Reservation, SrClass};

/// A video talker's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CvfTalkerConfig {
    /// The stream's name.
    pub stream: StreamId,
    /// Its interval paces the packets.
    pub class: SrClass,
    /// Presentation time less the end of the frame period: that of the class, or what the
    /// application knows better.
    pub transit: Span,
    /// When the first packet is launched.
    pub start: Instant<Tai>,
    /// How long before its launch time a packet is handed out.
    pub lead: Span,
    /// Access units in time.
    pub frame_rate: Cadence,
    /// The longest H.264 payload of a packet. **Units**: bytes.
    pub max_payload: u16,
    /// The most packets in an interval of the class.
    pub packets_per_interval: u16,
}

/// Sends a byte stream. Access unit k is sent within the k-th frame period, evenly from its start,
/// and presented one transit time after the end of the period: by then even the longest has come.
#[derive(Clone, Debug)]
pub struct CvfTalker {
    config: CvfTalkerConfig,
    stream: Vec<u8>,
    units: Vec<NalUnit>,
    /// The NAL unit and the payload of it that go next.
    unit: usize,
    nth: usize,
    access_unit: i64,
    /// How many packets of the access unit went.
    sent: u64,
    sequence: u8,
    payload: Vec<u8>,
    packet: Vec<u8>,
}

impl CvfTalker {
    /// A talker for a byte stream. Allocates all that it will ever need.
    ///
    /// **Errors**: those of [`nal_units`]; a negative lead; a transit time that is negative or
    /// longer than [`MAX_TRANSIT`](crate::MAX_TRANSIT); a payload too short to cut NAL units;
    /// no packet in an interval, or too few for the largest access unit within a frame period.
    pub fn new(config: CvfTalkerConfig, stream: Vec<u8>) -> Result<CvfTalker, AvtpError> {
        let units = nal_units(&stream)?;
        let limit = usize::from(config.max_payload);
        let fits = (MIN_PAYLOAD..=65_535 - 4).contains(&limit);
        check("max_payload", config.max_payload, fits, "3 to 65531 bytes")?;
        let each = config.packets_per_interval;
        check("packets in an interval", each, each > 0, "1 or more")?;
        let lead = config.lead.as_ns();
        check("lead", lead.unsigned_abs(), lead >= 0, "0ns or more")?;
        check_transit(config.transit)?;
        let (mut most, mut packets) = (0, 0);
        for unit in &units {
            packets = if unit.begins { 0 } else { packets } + payloads(unit.length, limit);
            most = most.max(packets);
        }
        let period = config.frame_rate.at_floor(1).as_ns();
        let intervals = u64::try_from(period / config.class.interval().as_ns()).unwrap_or(0);
        let least = wide(most).div_ceil(intervals.max(1));
        if u64::from(each) < least || intervals == 0 {
            let (field, value, most) = ("packets in an interval", each.into(), 65_535);
            return Err(AvtpError::Range { field, value, least, most });
        }
        let packet = vec![0; Cvf::H264_OVERHEAD_BYTES + limit];
        Ok(CvfTalker {
            config,
            stream,
            units,
            unit: 0,
            nth: 0,
            access_unit: 0,
            sent: 0,
            sequence: 0,
            payload: vec![0; limit],
            packet,
        })
    }

    /// The NAL units that are sent.
    pub fn units(&self) -> &[NalUnit] {
        &self.units
    }

    /// Whether all was sent.
    pub fn is_done(&self) -> bool {
        self.unit == self.units.len()
    }

    /// Sends the byte stream once more, right after what was sent. Meant for when there is nothing
    /// any more: an access unit that is under way is left unfinished.
    pub fn rewind(&mut self) {
        (self.unit, self.nth) = (0, 0);
        if std::mem::take(&mut self.sent) > 0 {
            self.access_unit += 1;
        }
    }

    /// What the stream reserves.
    ///
    /// **Errors**: a payload with whose headers a frame is longer than 65 535 bytes.
    pub fn reservation(&self) -> Result<Reservation, AvtpError> {
        let payload = wide(Cvf::H264_OVERHEAD_BYTES) + u64::from(self.config.max_payload);
        let length = u32::try_from(payload).ok().and_then(|bytes| SduLen::new(bytes).ok());
        let right = "at most 65507 bytes";
        let (field, value) = ("max_payload", self.config.max_payload.into());
        let length = length.ok_or(AvtpError::Value { field, value, right })?;
        Reservation::new(self.config.class, length, self.config.packets_per_interval)
    }

    /// The next packet, when it is time.
    ///
    /// **Panics**: never; the settings were checked.
    pub fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        let Some(unit) = self.units.get(self.unit).copied() else { return Next::Done };
        let CvfTalkerConfig { stream, class, transit, start, lead, frame_rate, .. } = self.config;
        let intervals = self.sent / u64::from(self.config.packets_per_interval);
        let intervals = i64::try_from(intervals).expect("invariant: within a frame period");
        let pace = class.interval().checked_mul(intervals).unwrap_or(Span::MAX);
        let launch_time =
            start.saturating_add(frame_rate.at_floor(self.access_unit)).saturating_add(pace);
        if launch_time > now.saturating_add(lead) {
            return Next::At(launch_time.saturating_add(-lead));
        }
        let end = start.saturating_add(frame_rate.at_floor(self.access_unit.saturating_add(1)));
        let presentation_time = end.saturating_add(transit);
        let limit = usize::from(self.config.max_payload);
        let body = &self.stream[unit.offset..unit.offset + unit.length];
        let length = write_payload(body, self.nth, limit, &mut self.payload);
        let last = self.nth + 1 == payloads(unit.length, limit);
        let marker = last && unit.ends;
        let cvf = Cvf {
            header: StreamHeader {
                stream,
                sequence: self.sequence,
                media_restart: false,
                timestamp: Some(AvtpTime::of(presentation_time)),
                timestamp_uncertain: false,
            },
            format: CvfFormat::H264 { timestamp: None },
            marker,
            event: 0,
            payload: &self.payload[..length],
            reserved: Reserved::NONE,
        };
        let written = cvf.write(&mut self.packet).expect("invariant: checked when made");
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += 1;
        (self.unit, self.nth) = if last { (self.unit + 1, 0) } else { (self.unit, self.nth + 1) };
        if marker {
            (self.access_unit, self.sent) = (self.access_unit + 1, 0);
        }
        Next::Packet(Launch {
            launch_time,
            presentation_time: Some(presentation_time),
            bytes: &self.packet[..written],
        })
    }
}

/// A video listener's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CvfListenerConfig {
    /// The stream's name.
    pub stream: StreamId,
    /// How many packets may wait for their presentation time: those of two access units or more.
    pub capacity: usize,
    /// The longest H.264 payload of a packet. **Units**: bytes.
    pub max_payload: u16,
    /// The longest access unit, start codes included. **Units**: bytes.
    pub max_access_unit: usize,
    /// The start codes of the byte stream.
    pub start_codes: StartCodes,
    /// What is done with packets that are late.
    pub late: Late,
}

/// A picture with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessUnit<'a> {
    /// When it is to be presented.
    pub at: Instant<Tai>,
    /// Its part of the byte stream: every NAL unit that came whole.
    pub bytes: &'a [u8],
    /// Nothing of it is known to be missing. Where packets are missing between two access units,
    /// neither is whole unless the first had its end.
    pub whole: bool,
}

/// Puts packets into order and access units together.
#[derive(Clone, Debug)]
pub struct CvfListener {
    stream: StreamId,
    order: Order,
    assembler: Assembler,
    flags: Flags,
    /// The time of the access unit that is being put together.
    current: Option<Instant<Tai>>,
    /// The access unit was handed out.
    spent: bool,
    /// Packets are missing right before the next one.
    gap: bool,
    counters: StreamCounters,
}

/// The longest access unit that a listener takes.
const MAX_ACCESS_UNIT: usize = 1 << 28;

impl CvfListener {
    /// A listener that has seen nothing. Allocates all that it will ever need.
    ///
    /// **Errors**: a capacity other than 1 to 4096; access units longer than 256 MiB.
    pub fn new(config: CvfListenerConfig) -> Result<CvfListener, AvtpError> {
        let length = config.max_access_unit;
        check("max_access_unit", wide(length), length <= MAX_ACCESS_UNIT, "at most 256 MiB")?;
        Ok(CvfListener {
            stream: config.stream,
            order: Order::new(config.capacity, config.max_payload.into(), config.late)?,
            assembler: Assembler::new(config.start_codes, length),
            flags: Flags::default(),
            current: None,
            spent: false,
            gap: false,
            counters: StreamCounters::default(),
        })
    }

    /// Takes a packet.
    ///
    /// **Errors**: no packet of video; it is counted.
    pub fn receive(&mut self, now: Instant<Tai>, packet: &[u8]) -> Result<Received, AvtpError> {
        let cvf = Cvf::parse(packet).inspect_err(|_| self.counters.malformed += 1)?;
        let header = cvf.header;
        if header.stream != self.stream {
            self.counters.other_stream += 1;
            return Ok(Received::OtherStream);
        }
        if !matches!(cvf.format, CvfFormat::H264 { .. }) {
            self.counters.other_format += 1;
            return Ok(Received::OtherFormat);
        }
        let (restart, uncertain) = (header.media_restart, header.timestamp_uncertain);
        self.flags.count(&mut self.counters, restart, uncertain, &cvf.reserved);
        let time = header.timestamp.map(|time| time.near(now));
        let index = self.order.index_of(header.sequence, time);
        let arrival = Arrival { index, time, marker: cvf.marker, payload: cvf.payload };
        Ok(self.order.insert(now, arrival, &mut self.counters))
    }

    /// The next access unit that is to be presented by now. Ask until there is none.
    pub fn present(&mut self, now: Instant<Tai>) -> Option<AccessUnit<'_>> {
        self.begin();
        loop {
            match self.order.due(now, |_| Span::ZERO)? {
                Due::Gap { .. } => {
                    self.order.pass_gap(&mut self.counters);
                    self.assembler.gap();
                    self.gap = true;
                }
                Due::Packet { time, .. } if self.current.is_some_and(|at| at != time) => {
                    // The packet with the marker is missing.
                    self.assembler.gap();
                    return self.hand_out();
                }
                Due::Packet { time, marker } => {
                    self.current = Some(time);
                    self.gap = false;
                    self.assembler.payload(self.order.take(&mut self.counters));
                    if marker {
                        return self.hand_out();
                    }
                }
            }
        }
    }

    /// The access unit whose end has not come, when there is one: after the last packet.
    pub fn finish(&mut self) -> Option<AccessUnit<'_>> {
        self.begin();
        self.assembler.gap();
        self.hand_out()
    }

    /// Forgets the access unit that was handed out.
    fn begin(&mut self) {
        if std::mem::take(&mut self.spent) {
            self.assembler.clear();
            self.current = None;
            if self.gap {
                self.assembler.gap();
            }
        }
    }

    fn hand_out(&mut self) -> Option<AccessUnit<'_>> {
        let at = self.current?;
        self.spent = true;
        let (bytes, whole) = self.assembler.access_unit();
        Some(AccessUnit { at, bytes, whole })
    }

    /// When something is to be presented next; `None` when nothing waits.
    pub fn next_time(&self) -> Option<Instant<Tai>> {
        self.order.next_time(|_| Span::ZERO)
    }

    /// How many packets wait.
    pub fn waiting(&self) -> usize {
        self.order.waiting()
    }

    /// What was counted so far.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }

    /// What became of the NAL units.
    pub fn nal_counters(&self) -> AssemblerCounters {
        self.assembler.counters()
    }
}

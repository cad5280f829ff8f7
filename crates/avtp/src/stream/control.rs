// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages, such as CAN frames: gathered into packets, and out of them again.

use timewire_base::{Instant, Span, Tai};

use super::{Flags, Launch, StreamCounters};
use crate::bytes::{check, wide};
use crate::pdu::{AcfMessage, AcfMessages, CommonHeader, Ntscf, Reserved, STREAM_HEADER_BYTES};
use crate::pdu::{StreamHeader, StreamId, Subtype, Tscf};
use crate::time::check_transit;
use crate::{AvtpError, AvtpTime, Sequence, SequenceOrder};

/// In which packets control messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFormat {
    /// With a presentation time: launch plus this transit time.
    Tscf(Span),
    /// Without one.
    Ntscf,
}

/// Gathers messages into packets.
#[derive(Clone, Debug)]
pub struct ControlTalker {
    stream: StreamId,
    format: ControlFormat,
    data: Vec<u8>,
    used: usize,
    sequence: u8,
    packet: Vec<u8>,
}

impl ControlTalker {
    /// A talker whose packets have at most `room` bytes of messages. Allocates all that it will
    /// ever need.
    ///
    /// **Errors**: more room than such a packet has, or less than the smallest message takes; a
    /// transit time that is negative or longer than [`MAX_TRANSIT`](crate::MAX_TRANSIT).
    pub fn new(stream: StreamId, format: ControlFormat, room: usize) -> Result<Self, AvtpError> {
        let fits = match format {
            ControlFormat::Tscf(transit) => {
                check_transit(transit)?;
                (4..=65_535).contains(&room)
            }
            ControlFormat::Ntscf => (4..=2_047).contains(&room),
        };
        check("room for messages", wide(room), fits, "4 to 65535 bytes, NTSCF to 2047")?;
        let packet = vec![0; STREAM_HEADER_BYTES + room];
        Ok(ControlTalker { stream, format, data: vec![0; room], used: 0, sequence: 0, packet })
    }

    /// Puts a message into the next packet; `false` when it does not fit what is there already:
    /// take the packet first.
    ///
    /// **Errors**: a message that cannot be, or longer than a packet has room for.
    pub fn push(&mut self, message: &AcfMessage<'_>) -> Result<bool, AvtpError> {
        if self.used > 0 && message.length() > self.data.len() - self.used {
            return Ok(false);
        }
        self.used += message.write(&mut self.data[self.used..])?;
        Ok(true)
    }

    /// The packet with the messages so far, to be sent now; `None` when there are none.
    ///
    /// **Panics**: never; the messages were checked.
    pub fn next(&mut self, now: Instant<Tai>) -> Option<Launch<'_>> {
        let data = &self.data[..std::mem::take(&mut self.used)];
        if data.is_empty() {
            return None;
        }
        let (stream, sequence, reserved) = (self.stream, self.sequence, Reserved::NONE);
        self.sequence = sequence.wrapping_add(1);
        let (presentation_time, written) = match self.format {
            ControlFormat::Tscf(transit) => {
                let time = now.saturating_add(transit);
                let header = StreamHeader {
                    stream,
                    sequence,
                    media_restart: false,
                    timestamp: Some(AvtpTime::of(time)),
                    timestamp_uncertain: false,
                };
                (Some(time), Tscf { header, data, reserved }.write(&mut self.packet))
            }
            ControlFormat::Ntscf => {
                (None, Ntscf { stream, sequence, data, reserved }.write(&mut self.packet))
            }
        };
        let written = written.expect("invariant: checked when made");
        Some(Launch { launch_time: now, presentation_time, bytes: &self.packet[..written] })
    }
}

/// The messages of a packet.
#[derive(Clone, Debug)]
pub struct Control<'a> {
    /// How it stands to the packets before.
    pub place: SequenceOrder,
    /// When the messages are to be acted on; `None` for at once.
    pub at: Option<Instant<Tai>>,
    /// That time is past.
    pub late: bool,
    /// The messages.
    pub messages: AcfMessages<'a>,
}

/// Takes messages out of packets of either kind as they come, each packet once. Packets do not wait
/// for others: messages without a time are acted on at once, and for those with one it is the
/// application that waits.
#[derive(Clone, Debug)]
pub struct ControlListener {
    stream: StreamId,
    sequence: Sequence,
    flags: Flags,
    counters: StreamCounters,
}

impl ControlListener {
    /// A listener that has heard nothing.
    pub fn new(stream: StreamId) -> ControlListener {
        let counters = StreamCounters::default();
        ControlListener { stream, sequence: Sequence::new(), flags: Flags::default(), counters }
    }

    /// Takes a packet; `None` for one of another stream and one that was here before.
    ///
    /// **Errors**: no packet of control messages; it is counted. Messages are read by the iterator.
    pub fn receive<'a>(
        &mut self,
        now: Instant<Tai>,
        packet: &'a [u8],
    ) -> Result<Option<Control<'a>>, AvtpError> {
        let read = self.read(packet).inspect_err(|_| self.counters.malformed += 1)?;
        let (stream, sequence, time, messages, restart, uncertain, reserved) = read;
        if stream != self.stream {
            self.counters.other_stream += 1;
            return Ok(None);
        }
        self.flags.count(&mut self.counters, restart, uncertain, &reserved);
        let place = self.sequence.note(self.sequence.index_of(sequence));
        self.counters.lost = self.sequence.missing();
        if place == SequenceOrder::Duplicate {
            self.counters.duplicates += 1;
            return Ok(None);
        }
        self.counters.reordered += u64::from(place == SequenceOrder::Behind);
        let at = time.map(|time| time.near(now));
        let late = at.is_some_and(|at| at < now);
        self.counters.late += u64::from(late);
        self.counters.presented += 1;
        Ok(Some(Control { place, at, late, messages }))
    }

    #[allow(
        clippy::type_complexity,
        reason = "what both kinds of packet have, taken apart at once"
    )]
    fn read<'a>(
        &self,
        packet: &'a [u8],
    ) -> Result<(StreamId, u8, Option<AvtpTime>, AcfMessages<'a>, bool, bool, Reserved), AvtpError>
    {
        if CommonHeader::parse(packet)?.subtype == Subtype::Ntscf.code() {
            let ntscf = Ntscf::parse(packet)?;
            let (stream, sequence) = (ntscf.stream, ntscf.sequence);
            return Ok((stream, sequence, None, ntscf.messages(), false, false, ntscf.reserved));
        }
        let tscf = Tscf::parse(packet)?;
        let StreamHeader { stream, sequence, timestamp, .. } = tscf.header;
        let (restart, uncertain) = (tscf.header.media_restart, tscf.header.timestamp_uncertain);
        Ok((stream, sequence, timestamp, tscf.messages(), restart, uncertain, tscf.reserved))
    }

    /// What was counted so far; `lost` are those that have not come yet.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock: its events to timestamps, timestamps to its rate.

use timewire_base::{Instant, Span, Tai};

use super::{Flags, Launch, Next, Received, StreamCounters};
use crate::bytes::{check, wide};
use crate::pdu::{Crf, CrfClock, CrfType, Reserved, StreamId};
use crate::time::check_transit;
use crate::{AvtpError, Cadence, ClockRecovery, Ppb, Sequence, SequenceOrder};

/// A clock talker's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrfTalkerConfig {
    /// The stream's name.
    pub stream: StreamId,
    /// Which clock it is.
    pub clock: CrfClock,
    /// Timestamps in a packet.
    pub timestamps_per_packet: u16,
    /// It is added to the times of events.
    pub transit: Span,
    /// When the first event with a timestamp is.
    pub start: Instant<Tai>,
    /// How long before its launch time a packet is handed out.
    pub lead: Span,
    /// How much faster than nominal the clock runs, more than -10^9.
    pub rate: Ppb,
}

/// Sends the times of a clock's events. A packet is launched at the last event in it; a timestamp
/// is the time of its event plus the transit time.
#[derive(Clone, Debug)]
pub struct CrfTalker {
    config: CrfTalkerConfig,
    cadence: Cadence,
    sequence: u8,
    sent: i64,
    data: Vec<u8>,
    packet: Vec<u8>,
}

impl CrfTalker {
    /// A talker that has sent nothing. Allocates all that it will ever need.
    ///
    /// **Errors**: a user type, whose data has no form; no frequency or interval; timestamps that
    /// do not fit a packet; a start before 1970; a negative lead; a transit time that is
    /// negative or longer than [`MAX_TRANSIT`](crate::MAX_TRANSIT); a clock that stands still.
    pub fn new(config: CrfTalkerConfig) -> Result<CrfTalker, AvtpError> {
        let kind = config.clock.kind;
        check("type", kind.code(), kind != CrfType::User, "a type other than user")?;
        let cadence = config.clock.cadence()?;
        let count = config.timestamps_per_packet;
        check("timestamps in a packet", count, (1..=8_191).contains(&count), "1 to 8191")?;
        let (start, lead) = (config.start.as_ns(), config.lead.as_ns());
        check("start", start.unsigned_abs(), start >= 0, "not before 1970")?;
        check("lead", lead.unsigned_abs(), lead >= 0, "0ns or more")?;
        check_transit(config.transit)?;
        let rate = config.rate.get();
        let fits = (-999_999_999..=1_000_000_000).contains(&rate);
        check("rate", rate.unsigned_abs(), fits, "more than -10^9 and at most 10^9 ppb")?;
        let data = vec![0; usize::from(count) * 8];
        let packet = vec![0; Crf::HEADER_BYTES + data.len()];
        Ok(CrfTalker { config, cadence, sequence: 0, sent: 0, data, packet })
    }

    /// When event `n` with a timestamp is, rounded down.
    fn event(&self, n: i64) -> Instant<Tai> {
        let nominal = i128::from(self.cadence.at_floor(n).as_ns());
        let ns = nominal * 1_000_000_000 / i128::from(1_000_000_000 + self.config.rate.get());
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        self.config.start.saturating_add(Span::from_ns(ns))
    }

    /// The next packet, when it is time.
    ///
    /// **Panics**: never; the settings were checked.
    pub fn next(&mut self, now: Instant<Tai>) -> Next<'_> {
        let CrfTalkerConfig { stream, clock, transit, lead, .. } = self.config;
        let count = i64::from(self.config.timestamps_per_packet);
        let end = self.sent.saturating_add(count);
        let launch_time = self.event(end - 1);
        if launch_time > now.saturating_add(lead) {
            return Next::At(launch_time.saturating_add(-lead));
        }
        for nth in 0..usize::from(self.config.timestamps_per_packet) {
            let event = self.sent.saturating_add(i64::try_from(nth).unwrap_or(i64::MAX));
            let time = self.event(event).saturating_add(transit);
            self.data[nth * 8..nth * 8 + 8].copy_from_slice(&time.as_ns().to_be_bytes());
        }
        let crf = Crf {
            stream,
            sequence: self.sequence,
            media_restart: false,
            frame_sync: false,
            timestamp_uncertain: false,
            clock,
            data: &self.data,
            reserved: Reserved::NONE,
        };
        let written = crf.write(&mut self.packet).expect("invariant: checked when made");
        let presentation_time = Some(self.event(self.sent).saturating_add(transit));
        self.sequence = self.sequence.wrapping_add(1);
        self.sent = end;
        Next::Packet(Launch { launch_time, presentation_time, bytes: &self.packet[..written] })
    }
}

/// Follows a clock by its timestamps.
#[derive(Clone, Debug)]
pub struct CrfListener {
    stream: StreamId,
    clock: CrfClock,
    sequence: Sequence,
    recovery: ClockRecovery,
    flags: Flags,
    per_packet: Option<usize>,
    last: Option<Instant<Tai>>,
    counters: StreamCounters,
}

impl CrfListener {
    /// Follows this clock by its last `window` timestamps. Allocates all that it will ever need.
    ///
    /// **Errors**: a user type; no frequency or interval; a window other than 2 to 1024.
    pub fn new(stream: StreamId, clock: CrfClock, window: usize) -> Result<Self, AvtpError> {
        let fits = clock.kind != CrfType::User;
        check("type", clock.kind.code(), fits, "a type other than user")?;
        Ok(CrfListener {
            stream,
            clock,
            sequence: Sequence::new(),
            recovery: ClockRecovery::new(clock.cadence()?, window)?,
            flags: Flags::default(),
            per_packet: None,
            last: None,
            counters: StreamCounters::default(),
        })
    }

    /// Takes a packet. One that comes after a later one is counted and not used; `presented` counts
    /// those used. One whose last event is past at `now` is counted as late, and used: the rate
    /// does not depend on what the two clocks differ by.
    ///
    /// **Errors**: no packet of a clock; it is counted.
    pub fn receive(&mut self, now: Instant<Tai>, packet: &[u8]) -> Result<Received, AvtpError> {
        let crf = Crf::parse(packet).inspect_err(|_| self.counters.malformed += 1)?;
        if crf.stream != self.stream {
            self.counters.other_stream += 1;
            return Ok(Received::OtherStream);
        }
        let Some(times) = crf.timestamps().filter(|_| crf.clock == self.clock) else {
            self.counters.other_format += 1;
            return Ok(Received::OtherFormat);
        };
        let (restart, uncertain) = (crf.media_restart, crf.timestamp_uncertain);
        let anew = self.flags.count(&mut self.counters, restart, uncertain, &crf.reserved);
        let index = self.sequence.index_of(crf.sequence);
        let place = self.sequence.note(index);
        self.counters.lost = self.sequence.missing();
        match place {
            SequenceOrder::Duplicate => {
                self.counters.duplicates += 1;
                return Ok(Received::Duplicate);
            }
            SequenceOrder::Behind => {
                self.counters.reordered += 1;
                self.counters.discarded += 1;
                return Ok(Received::Late);
            }
            SequenceOrder::First | SequenceOrder::Next | SequenceOrder::Ahead { .. } => {}
        }
        if times.iter().last().is_some_and(|last| last < now) {
            self.counters.late += 1;
        }
        // Events are numbered by packets, which holds as long as these are equally long.
        if anew || self.per_packet.is_some_and(|count| count != times.count()) {
            self.recovery.clear();
        }
        self.per_packet = Some(times.count());
        let count = i64::try_from(wide(times.count())).unwrap_or(i64::MAX);
        let first = index.saturating_mul(count);
        for (event, time) in (first..).zip(times.iter()) {
            self.recovery.push(event, time);
            self.last = Some(time);
        }
        self.counters.presented += 1;
        Ok(Received::Kept)
    }

    /// How much faster than nominal the clock runs; see [`ClockRecovery::rate`].
    pub fn rate(&self) -> Option<Ppb> {
        self.recovery.rate()
    }

    /// The last timestamp that was used.
    pub fn last(&self) -> Option<Instant<Tai>> {
        self.last
    }

    /// What was counted so far; `lost` are those that have not come yet.
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }
}

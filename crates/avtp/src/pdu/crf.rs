// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock as the times of its events: the Clock Reference Format.
//!
//! **Source**: IEEE 1722-2016, clause 10. Bytes: 0 `subtype`; 1 `sv`, `version`, `mr`, reserved,
//! `fs`, `tu`; 2 `sequence_num`; 3 `type`; 4 `stream_id`; 12 `pull` (3 bits), `base_frequency`
//! (29); 16 `crf_data_length`; 18 `timestamp_interval`; 20 timestamps of 64 bits.

use timewire_base::{Instant, Tai};

use super::{CommonHeader, Reserved, StreamId, Subtype, VERSION};
use crate::bytes::{Bytes, check, length16, put, room, wide};
use crate::{AvtpError, Cadence};

/// What the events are.
///
/// **Source**: IEEE 1722-2016, 10.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrfType {
    /// Known to the application; the data may be anything.
    User,
    /// Samples of audio.
    AudioSample,
    /// Pictures.
    VideoFrame,
    /// Lines of pictures.
    VideoLine,
    /// Cycles of a machine.
    MachineCycle,
}

/// The types in the order of their codes.
const TYPES: [CrfType; 5] = [
    CrfType::User,
    CrfType::AudioSample,
    CrfType::VideoFrame,
    CrfType::VideoLine,
    CrfType::MachineCycle,
];

impl CrfType {
    /// The number in the packet.
    pub fn code(self) -> u8 {
        (0..).zip(TYPES).find(|(_, kind)| *kind == self).map_or(0, |(code, _)| code)
    }
}

/// By what the base frequency is multiplied.
///
/// **Source**: IEEE 1722-2016, 10.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pull {
    /// 1.
    One,
    /// 1/1.001.
    Down1001,
    /// 1.001.
    Up1001,
    /// 24/25.
    Down24Of25,
    /// 25/24.
    Up25Of24,
    /// 1/8.
    Eighth,
}

/// The factors in the order of their codes, as numerator and denominator.
const PULLS: [(Pull, u64, u64); 6] = [
    (Pull::One, 1, 1),
    (Pull::Down1001, 1_000, 1_001),
    (Pull::Up1001, 1_001, 1_000),
    (Pull::Down24Of25, 24, 25),
    (Pull::Up25Of24, 25, 24),
    (Pull::Eighth, 1, 8),
];

impl Pull {
    /// All of them, in the order of their codes.
    pub fn all() -> impl Iterator<Item = Pull> {
        PULLS.into_iter().map(|(pull, ..)| pull)
    }

    /// The number in the packet.
    pub fn code(self) -> u8 {
        (0..).zip(PULLS).find(|(_, (pull, ..))| *pull == self).map_or(0, |(code, _)| code)
    }

    /// The factor, as numerator and denominator.
    pub fn factor(self) -> (u64, u64) {
        let found = PULLS.iter().find(|(pull, ..)| *pull == self);
        found.map_or((1, 1), |(_, numerator, denominator)| (*numerator, *denominator))
    }
}

/// Which clock the timestamps are of; the same in all packets of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrfClock {
    /// What the events are.
    pub kind: CrfType,
    /// By what the base frequency is multiplied.
    pub pull: Pull,
    /// **Units**: Hz, below 2^29.
    pub base_frequency_hz: u32,
    /// How many events are between a timestamp and the next.
    #[doc(alias = "timestamp_interval")]
    pub interval: u16,
}

/// What 29 bits hold.
const MAX_FREQUENCY: u32 = (1 << 29) - 1;

impl CrfClock {
    /// The nominal time between two timestamps.
    ///
    /// **Errors**: no frequency or interval.
    pub fn cadence(&self) -> Result<Cadence, AvtpError> {
        let (frequency, interval) = (self.base_frequency_hz, self.interval);
        let fits = (1..=MAX_FREQUENCY).contains(&frequency);
        check("base_frequency", frequency, fits, "1 to 536870911 Hz")?;
        check("timestamp_interval", interval, interval > 0, "1 to 65535 events")?;
        let (numerator, denominator) = self.pull.factor();
        // At most 2^16 * 1001 seconds and 2^29 * 1001 events: both fit.
        Cadence::new(u64::from(interval) * denominator, u64::from(frequency) * numerator)
    }
}

/// Timestamps of 64 bits, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps<'a>(&'a [u8]);

impl Timestamps<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len() / 8
    }

    /// The timestamps, first event first.
    ///
    /// **Units**: nanoseconds of gPTP, which is TAI; 292 years at most.
    pub fn iter(&self) -> impl Iterator<Item = Instant<Tai>> + '_ {
        self.0.chunks_exact(8).map(|chunk| {
            let ns = i64::from_be_bytes(chunk.try_into().expect("invariant: a chunk has 8 bytes"));
            Instant::from_ns(ns)
        })
    }
}

/// A packet with timestamps of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crf<'a> {
    /// Whose packet it is.
    pub stream: StreamId,
    /// Counts the stream's packets, modulo 256.
    pub sequence: u8,
    /// Toggles when the clock starts anew.
    #[doc(alias = "mr")]
    pub media_restart: bool,
    /// The first timestamp is of the first line of a picture.
    #[doc(alias = "fs")]
    pub frame_sync: bool,
    /// The talker's clock is not known to be right.
    #[doc(alias = "tu")]
    pub timestamp_uncertain: bool,
    /// Which clock it is.
    pub clock: CrfClock,
    /// The timestamps as they are in the packet; any bytes for [`CrfType::User`].
    pub data: &'a [u8],
    /// Reserved bits that were read; not written.
    pub reserved: Reserved,
}

impl<'a> Crf<'a> {
    /// What stands before the timestamps. **Units**: bytes.
    pub const HEADER_BYTES: usize = 20;

    /// Reads a packet.
    ///
    /// **Errors**: too short; another subtype or version; a type, factor, frequency, interval or
    /// length that is none; a timestamp beyond the year 2262.
    pub fn parse(bytes: &'a [u8]) -> Result<Crf<'a>, AvtpError> {
        CommonHeader::expect(bytes, Subtype::Crf)?;
        let bytes = Bytes(bytes);
        let wrong =
            |field, offset, read: u64, right| AvtpError::Wrong { field, offset, read, right };
        let flags = bytes.u8("mr", 1)?;
        let mut reserved = Reserved::NONE;
        reserved.note(1, flags & 0x04);
        let kind = bytes.u8("type", 3)?;
        let kind = *TYPES.get(usize::from(kind)).ok_or(wrong(
            "type",
            3,
            kind.into(),
            "0 user, 1 audio sample, 2 video frame, 3 video line or 4 machine cycle",
        ))?;
        let frequency = bytes.u32("base_frequency", 12)?;
        let pull = frequency >> 29;
        let at = usize::try_from(pull).expect("invariant: three bits");
        let (pull, ..) = *PULLS.get(at).ok_or(wrong("pull", 12, pull.into(), "0 to 5"))?;
        let clock = CrfClock {
            kind,
            pull,
            base_frequency_hz: frequency & MAX_FREQUENCY,
            interval: bytes.u16("timestamp_interval", 18)?,
        };
        let length = bytes.u16("crf_data_length", 16)?;
        let data = bytes.slice("crf_data", Self::HEADER_BYTES, length.into())?;
        if kind != CrfType::User {
            if clock.base_frequency_hz == 0 {
                return Err(wrong("base_frequency", 12, 0, "1 or more"));
            }
            if clock.interval == 0 {
                return Err(wrong("timestamp_interval", 18, 0, "1 or more"));
            }
            if length == 0 || length % 8 != 0 {
                let (field, offset, read) = ("crf_data_length", 16, length.into());
                return Err(AvtpError::Pieces { field, offset, read, of: 8 });
            }
            let negative = Timestamps(data).iter().position(|time| time.as_ns() < 0);
            if let Some(nth) = negative {
                let offset = Self::HEADER_BYTES + 8 * nth;
                let read = bytes.u64("crf_data", offset)?;
                return Err(wrong("crf_data", offset, read, "below 2^63 ns"));
            }
        }
        Ok(Crf {
            stream: StreamId::from_bits(bytes.u64("stream_id", 4)?),
            sequence: bytes.u8("sequence_num", 2)?,
            media_restart: flags & 0x08 != 0,
            frame_sync: flags & 0x02 != 0,
            timestamp_uncertain: flags & 0x01 != 0,
            clock,
            data,
            reserved,
        })
    }

    /// The timestamps; `None` for [`CrfType::User`], whose data may be anything.
    pub fn timestamps(&self) -> Option<Timestamps<'a>> {
        (self.clock.kind != CrfType::User).then_some(Timestamps(self.data))
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: no room; a frequency, interval or length that no packet has.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        let CrfClock { kind, pull, base_frequency_hz: frequency, interval } = self.clock;
        if kind == CrfType::User {
            let fits = frequency <= MAX_FREQUENCY;
            check("base_frequency", frequency, fits, "at most 536870911 Hz")?;
        } else {
            self.clock.cadence()?;
            let whole = !self.data.is_empty() && self.data.len().is_multiple_of(8);
            check("crf_data", wide(self.data.len()), whole, "one or more timestamps of 8 bytes")?;
        }
        let length = length16("crf_data", self.data.len(), "at most 65535 bytes")?;
        let total = Self::HEADER_BYTES + self.data.len();
        let out = room(out, total)?;
        let flags = u8::from(self.media_restart) << 3
            | u8::from(self.frame_sync) << 1
            | u8::from(self.timestamp_uncertain);
        let first = [Subtype::Crf.code(), 0x80 | VERSION << 4 | flags, self.sequence, kind.code()];
        put(out, 0, &first);
        put(out, 4, &self.stream.bits().to_be_bytes());
        put(out, 12, &(u32::from(pull.code()) << 29 | frequency).to_be_bytes());
        put(out, 16, &length.to_be_bytes());
        put(out, 18, &interval.to_be_bytes());
        put(out, Self::HEADER_BYTES, self.data);
        Ok(total)
    }
}

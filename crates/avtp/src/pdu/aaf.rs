// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Audio: the AVTP Audio Format with PCM samples.
//!
//! **Source**: IEEE 1722-2016, clause 7. Bytes: 16 `format`; 17 `nsr` (4 bits), reserved (2),
//! `channels_per_frame` (10, to byte 18); 19 `bit_depth`; 20 `stream_data_length` (16 bits);
//! 22 reserved (3), `sp` (1), `evt` (4); 23 reserved; 24 samples.

use super::{Reserved, STREAM_HEADER_BYTES, StreamHeader, Subtype};
use crate::AvtpError;
use crate::bytes::{Bytes, check, length16, put, room, wide};

/// How a sample is written.
///
/// **Source**: IEEE 1722-2016, 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleFormat {
    /// IEEE 754, 32 bits.
    Float32,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 24 bits.
    Int24,
    /// Signed, 16 bits.
    Int16,
}

impl SampleFormat {
    /// All of them, in the order of their codes.
    pub const ALL: [SampleFormat; 4] = [Self::Float32, Self::Int32, Self::Int24, Self::Int16];

    /// The number in the packet.
    pub const fn code(self) -> u8 {
        match self {
            Self::Float32 => 1,
            Self::Int32 => 2,
            Self::Int24 => 3,
            Self::Int16 => 4,
        }
    }

    /// **Units**: bytes of one sample of one channel.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Float32 | Self::Int32 => 4,
            Self::Int24 => 3,
            Self::Int16 => 2,
        }
    }

    /// **Units**: bits of one sample of one channel.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Float32 | Self::Int32 => 32,
            Self::Int24 => 24,
            Self::Int16 => 16,
        }
    }

    /// Copies samples and turns each one's bytes round: little endian to network order and back.
    ///
    /// **Panics** when the lengths differ or are not whole samples.
    pub fn swap(self, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "the samples and their copy are equally long");
        assert_eq!(from.len() % self.bytes(), 0, "samples are whole");
        let pairs = from.chunks_exact(self.bytes()).zip(to.chunks_exact_mut(self.bytes()));
        for (from, to) in pairs {
            to.copy_from_slice(from);
            to.reverse();
        }
    }
}

/// How many samples of each channel a second has, by name.
///
/// **Source**: IEEE 1722-2016, 7.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NominalRate {
    /// Not one of the others; the packet does not say which.
    User,
    /// 8 kHz.
    K8,
    /// 16 kHz.
    K16,
    /// 32 kHz.
    K32,
    /// 44.1 kHz.
    K44_1,
    /// 48 kHz.
    K48,
    /// 88.2 kHz.
    K88_2,
    /// 96 kHz.
    K96,
    /// 176.4 kHz.
    K176_4,
    /// 192 kHz.
    K192,
    /// 24 kHz.
    K24,
}

/// The rates in the order of their codes.
const RATES: [(NominalRate, Option<u32>); 11] = [
    (NominalRate::User, None),
    (NominalRate::K8, Some(8_000)),
    (NominalRate::K16, Some(16_000)),
    (NominalRate::K32, Some(32_000)),
    (NominalRate::K44_1, Some(44_100)),
    (NominalRate::K48, Some(48_000)),
    (NominalRate::K88_2, Some(88_200)),
    (NominalRate::K96, Some(96_000)),
    (NominalRate::K176_4, Some(176_400)),
    (NominalRate::K192, Some(192_000)),
    (NominalRate::K24, Some(24_000)),
];

impl NominalRate {
    /// All of them, in the order of their codes.
    pub fn all() -> impl Iterator<Item = NominalRate> {
        RATES.into_iter().map(|(rate, _)| rate)
    }

    /// The rate of so many samples a second, when it has a name.
    pub fn from_hz(hz: u32) -> Option<NominalRate> {
        RATES.iter().find(|(_, known)| *known == Some(hz)).map(|(rate, _)| *rate)
    }

    /// **Units**: samples of each channel in a second; `None` for [`NominalRate::User`].
    pub fn hz(self) -> Option<u32> {
        RATES.iter().find(|(rate, _)| *rate == self).and_then(|(_, hz)| *hz)
    }

    /// The number in the packet.
    pub fn code(self) -> u8 {
        (0..).zip(RATES).find(|(_, (rate, _))| *rate == self).map_or(0, |(code, _)| code)
    }
}

/// What the samples of a stream are; the same in all its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AafFormat {
    /// How a sample is written.
    pub sample: SampleFormat,
    /// How many a second.
    #[doc(alias = "nsr")]
    pub rate: NominalRate,
    /// How many channels, 1 to 1023.
    #[doc(alias = "channels_per_frame")]
    pub channels: u16,
    /// How many of a sample's bits mean something, 1 to all.
    pub bit_depth: u8,
}

impl AafFormat {
    /// **Errors**: no channel or more than 1023; no meaningful bit or more than a sample has.
    pub fn check(&self) -> Result<(), AvtpError> {
        let (channels, depth) = (self.channels, self.bit_depth);
        check("channels_per_frame", channels, (1..=1023).contains(&channels), "1 to 1023")?;
        let fits = match self.sample {
            SampleFormat::Float32 => depth == 32,
            _ => (1..=self.sample.bits()).contains(&depth),
        };
        check("bit_depth", depth, fits, DEPTHS)
    }

    /// **Units**: bytes of one sample of every channel.
    pub fn frame_bytes(&self) -> usize {
        usize::from(self.channels) * self.sample.bytes()
    }
}

const DEPTHS: &str = "1 to the bits of a sample, for floats 32";

/// A packet of audio.
///
/// **Shape** of `samples`: time × channel, channel fastest, each in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aaf<'a> {
    /// Stream, number and time.
    pub header: StreamHeader,
    /// What the samples are.
    pub format: AafFormat,
    /// Only every eighth packet has a timestamp.
    #[doc(alias = "sp")]
    pub sparse: bool,
    /// An event of the application, 0 to 15.
    #[doc(alias = "evt")]
    pub event: u8,
    /// Whole frames.
    pub samples: &'a [u8],
    /// Reserved bits that were read; not written.
    pub reserved: Reserved,
}

impl<'a> Aaf<'a> {
    /// Reads a packet.
    ///
    /// **Errors**: too short; another subtype, version, format; samples that are no whole frames.
    pub fn parse(bytes: &'a [u8]) -> Result<Aaf<'a>, AvtpError> {
        let bytes = Bytes(bytes);
        let mut reserved = Reserved::NONE;
        let header = StreamHeader::read(bytes, Subtype::Aaf, &mut reserved)?;
        let wrong = |field, offset, read: u16, right| AvtpError::Wrong {
            field,
            offset,
            read: read.into(),
            right,
        };
        let code = bytes.u8("format", 16)?;
        let sample = SampleFormat::ALL.into_iter().find(|format| format.code() == code);
        let sample = sample.ok_or(wrong(
            "format",
            16,
            code.into(),
            "1 FLOAT_32BIT, 2 INT_32BIT, 3 INT_24BIT or 4 INT_16BIT",
        ))?;
        let [nsr, low] = bytes.array("nsr", 17)?;
        let rate = RATES.get(usize::from(nsr >> 4)).map(|(rate, _)| *rate);
        let rate = rate.ok_or(wrong("nsr", 17, (nsr >> 4).into(), "0 to 10"))?;
        let channels = u16::from_be_bytes([nsr & 0x03, low]);
        let bit_depth = bytes.u8("bit_depth", 19)?;
        let format = AafFormat { sample, rate, channels, bit_depth };
        format.check().map_err(|error| match error {
            AvtpError::Value { field: field @ "bit_depth", right, .. } => {
                wrong(field, 19, bit_depth.into(), right)
            }
            _ => wrong("channels_per_frame", 17, channels, "1 to 1023"),
        })?;
        let length = bytes.u16("stream_data_length", 20)?;
        let [info, last] = bytes.array("evt", 22)?;
        reserved.note(17, nsr & 0x0c);
        reserved.note(22, info & 0xe0);
        reserved.note(23, last);
        if usize::from(length) % format.frame_bytes() != 0 {
            return Err(AvtpError::Pieces {
                field: "stream_data_length",
                offset: 20,
                read: length.into(),
                of: wide(format.frame_bytes()),
            });
        }
        Ok(Aaf {
            header,
            format,
            sparse: info & 0x10 != 0,
            event: info & 0x0f,
            samples: bytes.slice("samples", STREAM_HEADER_BYTES, length.into())?,
            reserved,
        })
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: no room; a format, event or length that no packet has.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        let AafFormat { sample, rate, channels, bit_depth } = self.format;
        self.format.check()?;
        check("evt", self.event, self.event <= 15, "0 to 15")?;
        let whole = self.samples.len().is_multiple_of(self.format.frame_bytes());
        check("samples", wide(self.samples.len()), whole, "whole frames")?;
        let length = length16("samples", self.samples.len(), "at most 65535 bytes")?;
        let total = STREAM_HEADER_BYTES + self.samples.len();
        let out = room(out, total)?;
        self.header.put(Subtype::Aaf, out);
        let [high, low] = channels.to_be_bytes();
        put(out, 16, &[sample.code(), rate.code() << 4 | high, low, bit_depth]);
        put(out, 20, &length.to_be_bytes());
        put(out, 22, &[u8::from(self.sparse) << 4 | self.event]);
        put(out, STREAM_HEADER_BYTES, self.samples);
        Ok(total)
    }
}

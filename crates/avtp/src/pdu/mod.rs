// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets: what all of them share, and which one it is.
//!
//! A packet is read from the bytes after the EtherType and borrows its payload from them. Reading
//! is tolerant: bytes after the packet's own length are padding of the link; reserved bits that are
//! not zero are kept in [`Reserved`] for a report, and written as zero.
//!
//! **Source**: IEEE 1722-2016, 4.4 (common and stream headers, subtypes).
//!
//! Not here: the payload of each packet as media ([`crate::media`]); the Ethernet header.

mod aaf;
mod acf;
mod control;
mod crf;
mod cvf;

use std::fmt;

use timewire_base::wire::MacAddress;

pub use aaf::{Aaf, AafFormat, NominalRate, SampleFormat};
pub use acf::{AcfMessage, AcfMessages, Can, CanId, Gpc, OpaqueAcf, acf_type};
pub use control::{Ntscf, Tscf};
pub use crf::{Crf, CrfClock, CrfType, Pull, Timestamps};
pub use cvf::{Cvf, CvfFormat};

use crate::bytes::{Bytes, put};
use crate::{AvtpError, AvtpTime};

/// The EtherType of every packet. **Source**: IEEE 1722-2016, 4.4.2.
pub const ETHERTYPE: u16 = 0x22f0;
/// The length of the stream header with its format fields: before the payload of AAF, CVF, TSCF.
///
/// **Units**: bytes.
pub const STREAM_HEADER_BYTES: usize = 24;
/// The only version there is. **Source**: IEEE 1722-2016, 4.4.3.4.
pub(crate) const VERSION: u8 = 0;

/// The kinds of packet that this crate knows.
///
/// **Source**: IEEE 1722-2016, 4.4.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subtype {
    /// Audio.
    Aaf,
    /// Compressed video.
    Cvf,
    /// A clock as timestamps of its events.
    Crf,
    /// Control messages with a presentation time.
    Tscf,
    /// Control messages without one.
    Ntscf,
}

impl Subtype {
    /// The number in the packet.
    pub const fn code(self) -> u8 {
        match self {
            Subtype::Aaf => 0x02,
            Subtype::Cvf => 0x03,
            Subtype::Crf => 0x04,
            Subtype::Tscf => 0x05,
            Subtype::Ntscf => 0x82,
        }
    }
}

/// What the subtypes are called, those that this crate does not read included; `None` for a
/// reserved one.
///
/// **Source**: IEEE 1722-2016, 4.4.3.2, Table 6.
pub fn subtype_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "IEC 61883/IIDC",
        0x01 => "MMA",
        0x02 => "AAF",
        0x03 => "CVF",
        0x04 => "CRF",
        0x05 => "TSCF",
        0x06 => "SVF",
        0x07 => "RVF",
        0x6e => "AEF continuous",
        0x6f => "VSF",
        0x7f => "EF",
        0x82 => "NTSCF",
        0xec => "ESCF",
        0xed => "EECF",
        0xee => "AEF discrete",
        0xfa => "ADP",
        0xfb => "AECP",
        0xfc => "ACMP",
        0xfe => "MAAP",
        0xff => "EF control",
        _ => return None,
    })
}

/// The first bytes of every packet.
///
/// **Source**: IEEE 1722-2016, 4.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    /// The kind of packet, also kinds that this crate does not read.
    pub subtype: u8,
    /// Whether the packet has a stream's name.
    #[doc(alias = "sv")]
    pub stream_valid: bool,
    /// The version of the format, 0 to 7.
    pub version: u8,
}

impl CommonHeader {
    /// Reads the first two bytes of any packet.
    ///
    /// **Errors**: fewer bytes.
    pub fn parse(bytes: &[u8]) -> Result<CommonHeader, AvtpError> {
        let bytes = Bytes(bytes);
        let second = bytes.u8("sv", 1)?;
        Ok(CommonHeader {
            subtype: bytes.u8("subtype", 0)?,
            stream_valid: second & 0x80 != 0,
            version: second >> 4 & 0x07,
        })
    }

    /// The stream that a packet of any kind names (`sv`), also of a kind that this crate does not
    /// read; `None` when it names none.
    ///
    /// **Source**: IEEE 1722-2016, 4.4.3.3, 4.4.4, 4.4.5.
    pub fn stream_of(bytes: &[u8]) -> Option<StreamId> {
        let is_named = CommonHeader::parse(bytes).is_ok_and(|header| header.stream_valid);
        let id = bytes.get(4..12)?.first_chunk::<8>().filter(|_| is_named)?;
        Some(StreamId(u64::from_be_bytes(*id)))
    }

    /// Writes the first two bytes; the low four bits of the second are zero.
    ///
    /// **Errors**: no room, or a version above 7.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        crate::bytes::check("version", self.version, self.version <= 7, "0 to 7")?;
        let out = crate::bytes::room(out, 2)?;
        put(out, 0, &[self.subtype, u8::from(self.stream_valid) << 7 | self.version << 4]);
        Ok(2)
    }

    /// Reads and demands this kind, version 0 and a stream's name.
    fn expect(bytes: &[u8], subtype: Subtype) -> Result<(), AvtpError> {
        let header = CommonHeader::parse(bytes)?;
        let wrong = |field, offset, read: u8, right| AvtpError::Wrong {
            field,
            offset,
            read: read.into(),
            right,
        };
        if header.subtype != subtype.code() {
            let right = match subtype {
                Subtype::Aaf => "0x02 (AAF)",
                Subtype::Cvf => "0x03 (CVF)",
                Subtype::Crf => "0x04 (CRF)",
                Subtype::Tscf => "0x05 (TSCF)",
                Subtype::Ntscf => "0x82 (NTSCF)",
            };
            return Err(wrong("subtype", 0, header.subtype, right));
        }
        if header.version != VERSION {
            return Err(wrong("version", 1, header.version, "0"));
        }
        if !header.stream_valid {
            return Err(wrong("sv", 1, 0, "1: a packet of a stream names it"));
        }
        Ok(())
    }
}

/// The name of a stream: the talker's MAC address and a number of its own.
///
/// **Source**: IEEE 1722-2016, 4.4.4.6; IEEE 802.1Q-2018, 35.2.2.8.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// The stream with this number, of the talker with this MAC address.
    pub fn new(talker: MacAddress, number: u16) -> StreamId {
        let [a, b, c, d, e, f] = talker.0;
        let [high, low] = number.to_be_bytes();
        StreamId(u64::from_be_bytes([a, b, c, d, e, f, high, low]))
    }

    /// From the 64 bits in the packet.
    pub const fn from_bits(bits: u64) -> StreamId {
        StreamId(bits)
    }

    /// The 64 bits in the packet.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Prints `02:00:00:00:00:01/7`.
impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, high, low] = self.0.to_be_bytes();
        let number = u16::from_be_bytes([high, low]);
        write!(f, "{}/{number}", MacAddress([a, b, c, d, e, g]))
    }
}

/// What all packets of a stream of media or timed control have.
///
/// **Source**: IEEE 1722-2016, 4.4.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// Whose packet it is.
    pub stream: StreamId,
    /// Counts the stream's packets, modulo 256.
    #[doc(alias = "sequence_num")]
    pub sequence: u8,
    /// Toggles when the media's clock starts anew.
    #[doc(alias = "mr")]
    pub media_restart: bool,
    /// When the payload is to be presented; `None` when the packet does not say (`tv` is 0).
    #[doc(alias = "avtp_timestamp")]
    pub timestamp: Option<AvtpTime>,
    /// The talker's clock is not known to be right.
    #[doc(alias = "tu")]
    pub timestamp_uncertain: bool,
}

impl StreamHeader {
    /// Reads bytes 0 to 15.
    fn read(
        bytes: Bytes<'_>,
        subtype: Subtype,
        reserved: &mut Reserved,
    ) -> Result<StreamHeader, AvtpError> {
        CommonHeader::expect(bytes.0, subtype)?;
        let flags = bytes.u8("mr", 1)?;
        let last = bytes.u8("tu", 3)?;
        reserved.note(1, flags & 0x06);
        reserved.note(3, last & 0xfe);
        let timestamp = AvtpTime::from_bits(bytes.u32("avtp_timestamp", 12)?);
        Ok(StreamHeader {
            sequence: bytes.u8("sequence_num", 2)?,
            stream: StreamId(bytes.u64("stream_id", 4)?),
            media_restart: flags & 0x08 != 0,
            timestamp: (flags & 0x01 != 0).then_some(timestamp),
            timestamp_uncertain: last & 0x01 != 0,
        })
    }

    /// Writes bytes 0 to 15; a packet without a timestamp has zero there.
    fn put(&self, subtype: Subtype, out: &mut [u8]) {
        let flags = u8::from(self.media_restart) << 3 | u8::from(self.timestamp.is_some());
        let first =
            [subtype.code(), 0x80 | flags, self.sequence, u8::from(self.timestamp_uncertain)];
        put(out, 0, &first);
        put(out, 4, &self.stream.0.to_be_bytes());
        put(out, 12, &self.timestamp.map_or(0, AvtpTime::bits).to_be_bytes());
    }
}

/// Reserved bits that were not zero, where they were.
///
/// The clauses say that a talker writes zero and a listener ignores them; a bit here is a talker
/// that is newer than this crate, or wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    bits: [u8; STREAM_HEADER_BYTES],
}

impl Reserved {
    /// None.
    pub const NONE: Reserved = Reserved { bits: [0; STREAM_HEADER_BYTES] };

    fn note(&mut self, offset: usize, bits: u8) {
        self.bits[offset] |= bits;
    }

    /// Whether all reserved bits were zero, as they should be.
    pub fn is_zero(&self) -> bool {
        self.bits == Self::NONE.bits
    }

    /// Offset and bits of every byte with reserved bits that were not zero, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        self.bits.iter().copied().enumerate().filter(|(_, bits)| *bits != 0)
    }
}

/// Prints `reserved bits 0x02 at byte 1, 0xfe at byte 3`.
impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_zero() { "no reserved bits" } else { "reserved bits" })?;
        for (nth, (offset, bits)) in self.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma} {bits:#04x} at byte {offset}")?;
        }
        Ok(())
    }
}

/// Any packet that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu<'a> {
    /// Audio.
    Aaf(Aaf<'a>),
    /// Compressed video.
    Cvf(Cvf<'a>),
    /// Timestamps of a clock.
    Crf(Crf<'a>),
    /// Timed control messages.
    Tscf(Tscf<'a>),
    /// Control messages.
    Ntscf(Ntscf<'a>),
}

impl<'a> Pdu<'a> {
    /// Reads a packet of any kind.
    ///
    /// **Errors**: a kind that this crate does not read, and what the kind's own `parse` refuses.
    pub fn parse(bytes: &'a [u8]) -> Result<Pdu<'a>, AvtpError> {
        match CommonHeader::parse(bytes)?.subtype {
            0x02 => Aaf::parse(bytes).map(Pdu::Aaf),
            0x03 => Cvf::parse(bytes).map(Pdu::Cvf),
            0x04 => Crf::parse(bytes).map(Pdu::Crf),
            0x05 => Tscf::parse(bytes).map(Pdu::Tscf),
            0x82 => Ntscf::parse(bytes).map(Pdu::Ntscf),
            other => Err(AvtpError::Wrong {
                field: "subtype",
                offset: 0,
                read: other.into(),
                right: "0x02 AAF, 0x03 CVF, 0x04 CRF, 0x05 TSCF or 0x82 NTSCF",
            }),
        }
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: those of the kind's own `write`.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        match self {
            Pdu::Aaf(pdu) => pdu.write(out),
            Pdu::Cvf(pdu) => pdu.write(out),
            Pdu::Crf(pdu) => pdu.write(out),
            Pdu::Tscf(pdu) => pdu.write(out),
            Pdu::Ntscf(pdu) => pdu.write(out),
        }
    }

    /// Whose packet it is.
    pub fn stream(&self) -> StreamId {
        match self {
            Pdu::Aaf(pdu) => pdu.header.stream,
            Pdu::Cvf(pdu) => pdu.header.stream,
            Pdu::Crf(pdu) => pdu.stream,
            Pdu::Tscf(pdu) => pdu.header.stream,
            Pdu::Ntscf(pdu) => pdu.stream,
        }
    }
}

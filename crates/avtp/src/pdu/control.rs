// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages in a stream: with a presentation time (TSCF) and without (NTSCF).
//!
//! **Source**: IEEE 1722-2016, 9.2 (NTSCF) and 9.3 (TSCF). TSCF, bytes: 16 to 19 reserved; 20
//! `stream_data_length`; 22 and 23 reserved; 24 messages. NTSCF, bytes: 0 `subtype`; 1 `sv`,
//! `version`, reserved (1 bit), `ntscf_data_length` (11, to byte 2); 3 `sequence_num`; 4
//! `stream_id`; 12 messages.

use super::{AcfMessages, CommonHeader, Reserved, STREAM_HEADER_BYTES, StreamHeader};
use super::{StreamId, Subtype};
use crate::AvtpError;
use crate::bytes::{Bytes, check, length16, put, room, wide};

/// A packet of control messages with a presentation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tscf<'a> {
    /// Stream, number and time.
    pub header: StreamHeader,
    /// The messages, one after another.
    pub data: &'a [u8],
    /// Reserved bits that were read; not written.
    pub reserved: Reserved,
}

impl<'a> Tscf<'a> {
    /// Reads a packet, without its messages.
    ///
    /// **Errors**: too short; another subtype or version.
    pub fn parse(bytes: &'a [u8]) -> Result<Tscf<'a>, AvtpError> {
        let bytes = Bytes(bytes);
        let mut reserved = Reserved::NONE;
        let header = StreamHeader::read(bytes, Subtype::Tscf, &mut reserved)?;
        let length = bytes.u16("stream_data_length", 20)?;
        for offset in [16, 17, 18, 19, 22, 23] {
            reserved.note(offset, bytes.u8("reserved", offset)?);
        }
        let data = bytes.slice("messages", STREAM_HEADER_BYTES, length.into())?;
        Ok(Tscf { header, data, reserved })
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: no room, or more than 65 535 bytes of messages.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        let length = length16("messages", self.data.len(), "at most 65535 bytes")?;
        let total = STREAM_HEADER_BYTES + self.data.len();
        let out = room(out, total)?;
        self.header.put(Subtype::Tscf, out);
        put(out, 20, &length.to_be_bytes());
        put(out, STREAM_HEADER_BYTES, self.data);
        Ok(total)
    }

    /// The messages, first to last.
    pub fn messages(&self) -> AcfMessages<'a> {
        AcfMessages::new(self.data, STREAM_HEADER_BYTES)
    }
}

/// A packet of control messages without a presentation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ntscf<'a> {
    /// Whose packet it is.
    pub stream: StreamId,
    /// Counts the stream's packets, modulo 256.
    pub sequence: u8,
    /// The messages, one after another.
    pub data: &'a [u8],
    /// Reserved bits that were read; not written.
    pub reserved: Reserved,
}

/// What 11 bits hold.
const MAX_DATA: usize = 2047;

impl<'a> Ntscf<'a> {
    /// What stands before the messages. **Units**: bytes.
    pub const HEADER_BYTES: usize = 12;

    /// Reads a packet, without its messages.
    ///
    /// **Errors**: too short; another subtype or version.
    pub fn parse(bytes: &'a [u8]) -> Result<Ntscf<'a>, AvtpError> {
        CommonHeader::expect(bytes, Subtype::Ntscf)?;
        let bytes = Bytes(bytes);
        let [high, low] = bytes.array("ntscf_data_length", 1)?;
        let length = u16::from_be_bytes([high & 0x07, low]);
        let mut reserved = Reserved::NONE;
        reserved.note(1, high & 0x08);
        Ok(Ntscf {
            sequence: bytes.u8("sequence_num", 3)?,
            stream: StreamId::from_bits(bytes.u64("stream_id", 4)?),
            data: bytes.slice("messages", Self::HEADER_BYTES, length.into())?,
            reserved,
        })
    }

    /// Writes the packet and says how long it is.
    ///
    /// **Errors**: no room, or more than 2047 bytes of messages.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        let fits = self.data.len() <= MAX_DATA;
        check("messages", wide(self.data.len()), fits, "at most 2047 bytes")?;
        let length = length16("messages", self.data.len(), "at most 2047 bytes")?;
        let total = Self::HEADER_BYTES + self.data.len();
        let out = room(out, total)?;
        let [high, low] = length.to_be_bytes();
        put(out, 0, &[Subtype::Ntscf.code(), 0x80 | high, low, self.sequence]);
        put(out, 4, &self.stream.bits().to_be_bytes());
        put(out, Self::HEADER_BYTES, self.data);
        Ok(total)
    }

    /// The messages, first to last.
    pub fn messages(&self) -> AcfMessages<'a> {
        AcfMessages::new(self.data, Self::HEADER_BYTES)
    }
}

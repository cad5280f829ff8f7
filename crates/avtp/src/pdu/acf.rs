// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages: CAN, CAN without a time, general purpose, and any other as it is.
//!
//! **Source**: IEEE 1722-2016, 9.4. Every message starts with `acf_msg_type` (7 bits) and
//! `acf_msg_length` (9 bits, in quadlets, the header included). CAN (9.4.3), bytes: 2 `pad` (2
//! bits), `mtv`, `rtr`, `eff`, `brs`, `fdf`, `esi`; 3 reserved (3 bits), `can_bus_id` (5); 4
//! `message_timestamp` (64 bits, not in CAN_BRIEF, 9.4.4); then reserved (3 bits) and
//! `can_identifier` (29); then the data and `pad` bytes. GPC (9.4.7): 2 `gpc_msg_id` (48 bits);
//! 8 payload.

use timewire_base::{Instant, Tai};

use super::Reserved;
use crate::AvtpError;
use crate::bytes::{Bytes, check, put, room, wide};

/// Numbers of message types. **Source**: IEEE 1722-2016, Table 22.
pub mod acf_type {
    /// CAN with a time.
    pub const CAN: u8 = 0x01;
    /// CAN without a time.
    pub const CAN_BRIEF: u8 = 0x02;
    /// General purpose.
    pub const GPC: u8 = 0x05;
}

/// The name of a CAN frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CanId {
    /// 11 bits.
    Standard(u16),
    /// 29 bits.
    #[doc(alias = "eff")]
    Extended(u32),
}

/// A frame of a CAN bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Can<'a> {
    /// Which bus, 0 to 31.
    pub bus: u8,
    /// The frame's name.
    pub id: CanId,
    /// Asks for data and has none.
    #[doc(alias = "rtr")]
    pub remote: bool,
    /// A frame of CAN FD: up to 64 bytes.
    #[doc(alias = "fdf")]
    pub flexible: bool,
    /// The data went at the higher rate.
    #[doc(alias = "brs")]
    pub rate_switch: bool,
    /// The sender is error passive.
    #[doc(alias = "esi")]
    pub error_passive: bool,
    /// 0 to 8 bytes; with CAN FD also 12, 16, 20, 24, 32, 48 and 64.
    pub data: &'a [u8],
    /// Reserved bits that were read; not written. Without `eff` the upper 18 bits of the
    /// identifier are reserved, in CAN_BRIEF `mtv` is.
    pub reserved: Reserved,
}

/// Whether a frame of CAN, or of CAN FD, can have so many bytes.
fn can_length(length: usize, flexible: bool) -> bool {
    length <= 8 || flexible && matches!(length, 12 | 16 | 20 | 24 | 32 | 48 | 64)
}

const CAN_LENGTHS: &str = "0 to 8 bytes, with fdf also 12, 16, 20, 24, 32, 48 or 64";

/// The bytes of `message_timestamp`.
const TIME_BYTES: usize = 8;

impl<'a> Can<'a> {
    /// Reads the message at `at`, `length` bytes long, whose time takes `time` bytes.
    fn parse(bytes: Bytes<'a>, at: usize, length: usize, time: usize) -> Result<Self, AvtpError> {
        let wrong = |field, offset, read: usize, right| AvtpError::Wrong {
            field,
            offset,
            read: wide(read),
            right,
        };
        let header = 8 + time;
        if length < header {
            let right = if time == 0 { "2 quadlets or more" } else { "4 quadlets or more" };
            return Err(wrong("acf_msg_length", at, length / 4, right));
        }
        let [flags, bus] = bytes.array("pad", at + 2)?;
        let raw = bytes.u32("can_identifier", at + 4 + time)?;
        let mut reserved = Reserved::NONE;
        reserved.note(3, bus & 0xe0);
        if time == 0 {
            reserved.note(2, flags & 0x20);
        }
        let low = raw & 0x7ff;
        let (id, beyond) = if flags & 0x08 != 0 {
            (CanId::Extended(raw & 0x1fff_ffff), raw & 0xe000_0000)
        } else {
            let low = u16::try_from(low).expect("invariant: 11 bits");
            (CanId::Standard(low), raw & !0x7ff)
        };
        for (offset, bits) in (4 + time..).zip(beyond.to_be_bytes()) {
            reserved.note(offset, bits);
        }
        let pad = usize::from(flags >> 6);
        let Some(data) = (length - header).checked_sub(pad) else {
            return Err(wrong("pad", at + 2, pad, "at most the bytes of the payload"));
        };
        let flexible = flags & 0x02 != 0;
        if !can_length(data, flexible) {
            return Err(wrong("the length of CAN data", at, data, CAN_LENGTHS));
        }
        Ok(Can {
            bus: bus & 0x1f,
            id,
            remote: flags & 0x10 != 0,
            flexible,
            rate_switch: flags & 0x04 != 0,
            error_passive: flags & 0x01 != 0,
            data: bytes.slice("CAN data", at + header, data)?,
            reserved,
        })
    }

    /// **Errors**: a number beyond its bits, or a length that no frame has.
    fn check(&self) -> Result<(), AvtpError> {
        check("can_bus_id", self.bus, self.bus <= 31, "0 to 31")?;
        match self.id {
            CanId::Standard(id) => check("can_identifier", id, id <= 0x7ff, "at most 0x7ff")?,
            CanId::Extended(id) => {
                check("can_identifier", id, id <= 0x1fff_ffff, "at most 0x1fffffff")?;
            }
        }
        let fits = can_length(self.data.len(), self.flexible);
        check("CAN data", wide(self.data.len()), fits, CAN_LENGTHS)
    }

    /// Writes the message after its type and length.
    fn put(&self, time: Option<Option<Instant<Tai>>>, out: &mut [u8]) {
        let pad = self.data.len().next_multiple_of(4) - self.data.len();
        let pad = u8::try_from(pad).expect("invariant: 0 to 3");
        let (extended, id) = match self.id {
            CanId::Standard(id) => (false, u32::from(id)),
            CanId::Extended(id) => (true, id),
        };
        let flags = pad << 6
            | u8::from(time.flatten().is_some()) << 5
            | u8::from(self.remote) << 4
            | u8::from(extended) << 3
            | u8::from(self.rate_switch) << 2
            | u8::from(self.flexible) << 1
            | u8::from(self.error_passive);
        put(out, 2, &[flags, self.bus]);
        let mut at = 4;
        if let Some(time) = time {
            put(out, at, &time.map_or(0, Instant::as_ns).to_be_bytes());
            at += TIME_BYTES;
        }
        put(out, at, &id.to_be_bytes());
        put(out, at + 4, self.data);
    }
}

/// A general purpose message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpc<'a> {
    /// What it means: an EUI-48 of whoever defined it, 48 bits.
    pub id: u64,
    /// Whole quadlets.
    pub payload: &'a [u8],
}

/// A message of a type that this crate does not take apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAcf<'a> {
    /// The message's type, 0 to 127.
    pub kind: u8,
    /// What follows type and length; with these two bytes it is whole quadlets.
    pub body: &'a [u8],
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcfMessage<'a> {
    /// A CAN frame, and when it was on its bus; `None` when `mtv` is 0.
    Can(Can<'a>, Option<Instant<Tai>>),
    /// A CAN frame.
    CanBrief(Can<'a>),
    /// General purpose.
    Gpc(Gpc<'a>),
    /// Any other.
    Opaque(OpaqueAcf<'a>),
}

/// What 9 bits of quadlets hold.
const MAX_MESSAGE: usize = 511 * 4;

impl<'a> AcfMessage<'a> {
    /// Reads the first message of `bytes`, and says how many bytes it takes.
    ///
    /// **Errors**: too short; a length that its type cannot have; a time beyond the year 2262.
    pub fn parse(bytes: &'a [u8]) -> Result<(AcfMessage<'a>, usize), AvtpError> {
        Self::parse_at(bytes, 0)
    }

    fn parse_at(bytes: &'a [u8], at: usize) -> Result<(AcfMessage<'a>, usize), AvtpError> {
        let bytes = Bytes(bytes);
        let head = bytes.u16("acf_msg_type", at)?;
        let length = usize::from(head & 0x1ff) * 4;
        let wrong = |field, offset, read, right| AvtpError::Wrong { field, offset, read, right };
        if length == 0 {
            return Err(wrong("acf_msg_length", at, 0, "1 quadlet or more"));
        }
        let body = &bytes.slice("message", at, length)?[2..];
        let kind = u8::try_from(head >> 9).expect("invariant: seven bits");
        let message = match kind {
            acf_type::CAN => {
                let can = Can::parse(bytes, at, length, TIME_BYTES)?;
                let valid = bytes.u8("mtv", at + 2)? & 0x20 != 0;
                let time = bytes.u64("message_timestamp", at + 4)?;
                let ns = i64::try_from(if valid { time } else { 0 });
                let ns =
                    ns.map_err(|_| wrong("message_timestamp", at + 4, time, "below 2^63 ns"))?;
                AcfMessage::Can(can, valid.then_some(Instant::from_ns(ns)))
            }
            acf_type::CAN_BRIEF => AcfMessage::CanBrief(Can::parse(bytes, at, length, 0)?),
            acf_type::GPC => {
                let Some((id, payload)) = body.split_first_chunk::<6>() else {
                    let read = wide(length / 4);
                    return Err(wrong("acf_msg_length", at, read, "2 quadlets or more"));
                };
                let [a, b, c, d, e, f] = *id;
                AcfMessage::Gpc(Gpc { id: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), payload })
            }
            kind => AcfMessage::Opaque(OpaqueAcf { kind, body }),
        };
        Ok((message, length))
    }

    /// **Units**: bytes that the message takes, a multiple of 4 when it can be written.
    pub fn length(&self) -> usize {
        match self {
            AcfMessage::Can(can, _) => 8 + TIME_BYTES + can.data.len().next_multiple_of(4),
            AcfMessage::CanBrief(can) => 8 + can.data.len().next_multiple_of(4),
            AcfMessage::Gpc(gpc) => 8 + gpc.payload.len(),
            AcfMessage::Opaque(opaque) => 2 + opaque.body.len(),
        }
    }

    /// The message's type.
    pub fn kind(&self) -> u8 {
        match self {
            AcfMessage::Can(..) => acf_type::CAN,
            AcfMessage::CanBrief(_) => acf_type::CAN_BRIEF,
            AcfMessage::Gpc(_) => acf_type::GPC,
            AcfMessage::Opaque(opaque) => opaque.kind,
        }
    }

    /// Writes the message and says how long it is.
    ///
    /// **Errors**: no room; a number beyond its bits; a length that its type cannot have.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, AvtpError> {
        let length = self.length();
        let fits = length.is_multiple_of(4) && length <= MAX_MESSAGE;
        check("acf_msg_length", wide(length), fits, "whole quadlets, at most 2044 bytes")?;
        let kind = self.kind();
        check("acf_msg_type", kind, kind <= 0x7f, "0 to 127")?;
        match self {
            AcfMessage::Can(can, time) => {
                can.check()?;
                let ns = time.map_or(0, Instant::as_ns);
                check("message_timestamp", ns.unsigned_abs(), ns >= 0, "not before 1970")?;
            }
            AcfMessage::CanBrief(can) => can.check()?,
            AcfMessage::Gpc(gpc) => {
                check("gpc_msg_id", gpc.id, gpc.id >> 48 == 0, "at most 48 bits")?;
            }
            AcfMessage::Opaque(opaque) => {
                use acf_type::{CAN, CAN_BRIEF, GPC};
                let opaque = ![CAN, CAN_BRIEF, GPC].contains(&opaque.kind);
                check("acf_msg_type", kind, opaque, "a type that has no variant of its own")?;
            }
        }
        let out = room(out, length)?;
        let quadlets = u16::try_from(length / 4).expect("invariant: at most 511");
        put(out, 0, &(u16::from(kind) << 9 | quadlets).to_be_bytes());
        match self {
            AcfMessage::Can(can, time) => can.put(Some(*time), out),
            AcfMessage::CanBrief(can) => can.put(None, out),
            AcfMessage::Gpc(gpc) => {
                put(out, 2, &gpc.id.to_be_bytes()[2..]);
                put(out, 8, gpc.payload);
            }
            AcfMessage::Opaque(opaque) => put(out, 2, opaque.body),
        }
        Ok(length)
    }
}

/// The messages of a packet, first to last. Ends after the first that cannot be read: where the
/// next one starts is then unknown.
#[derive(Clone, Debug)]
pub struct AcfMessages<'a> {
    data: &'a [u8],
    at: usize,
    /// Where the messages start in the packet, for errors.
    origin: usize,
}

impl<'a> AcfMessages<'a> {
    pub(super) fn new(data: &'a [u8], origin: usize) -> AcfMessages<'a> {
        AcfMessages { data, at: 0, origin }
    }
}

impl<'a> Iterator for AcfMessages<'a> {
    type Item = Result<AcfMessage<'a>, AvtpError>;

    /// **Errors**: those of [`AcfMessage::parse`], with offsets from the start of the packet.
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.data.len() {
            return None;
        }
        match AcfMessage::parse_at(self.data, self.at) {
            Ok((message, length)) => {
                self.at += length;
                Some(Ok(message))
            }
            Err(mut error) => {
                self.at = self.data.len();
                if let AvtpError::Truncated { offset, .. } | AvtpError::Wrong { offset, .. } =
                    &mut error
                {
                    *offset += self.origin;
                }
                Some(Err(error))
            }
        }
    }
}

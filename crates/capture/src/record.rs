// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record file `.twr`, version 1: what one writer timestamped during one case.
//!
//! All numbers are little endian. A file is a header and then blocks of 4096 bytes.
//!
//! **Header**, `k * 4096` bytes at offset 0, zero padded:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic `89 54 57 52 0d 0a 1a 0a` |
//! | 8..10 | version, u16: 1 |
//! | 10..12 | `k`, u16: how many times 4096 bytes the header takes |
//! | 12..14 | bytes per block, u16: 4096 |
//! | 14..16 | bytes per record, u16: 32 |
//! | 16..20 | bytes of JSON, u32 |
//! | 20..24 | CRC-32 (IEEE) over the whole header without these four bytes |
//! | 24.. | [`RecordHeader`] as JSON, with `"schema":"timewire.records/1"` |
//!
//! **Block** number `n`, at offset `(k + n) * 4096`:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | magic `TWRB` |
//! | 4..8 | CRC-32 (IEEE) over the whole block without these four bytes |
//! | 8..16 | `n`, u64 |
//! | 16..24 | timestamps the writer had to give up since the start of the file, u64 |
//! | 24..26 | records in this block, u16: 0 to 127 |
//! | 26..28 | bytes per record, u16: 32 |
//! | 28 | flags: bit 0 = the writer closed the file with this block |
//! | 29..32 | zero |
//! | 32.. | the records; zero after the last |
//!
//! **Record**:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | time of the timestamp, i64: nanoseconds of TAI on the record's clock |
//! | 8..12 | sequence number of the message, u32 |
//! | 12..14 | bytes of the frame without its check sequence, u16; 0 when not known |
//! | 14 | timestamp point, u8: the number of [`TimestampPoint`] |
//! | 15 | station, u8: index into the header's `stations` |
//! | 16..18 | flow, u16: index into the header's `flows`; 0xffff when none is known |
//! | 18 | flags, u8: none defined, written as given |
//! | 19 | clock, u8: index into the header's `clocks` |
//! | 20..32 | zero |
//!
//! A writer may put the block it is filling to the file again and again at the same offset. When it
//! dies, or the machine does, a reader finds every complete block and at most one torn one.
//!
//! Not here: files and when to write them (`timewire-datapath`), what the records mean together
//! (`analyse`).

mod decode;
mod encode;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::Span;

pub use decode::RecordFile;
pub use encode::{Block, Encoder, FinalBlock};

/// **Units**: bytes of a block, and what a header is a multiple of.
pub const BLOCK_BYTES: usize = 4096;
/// **Units**: bytes of a record.
pub const RECORD_BYTES: usize = 32;
/// Most records in one block.
pub const RECORDS_PER_BLOCK: usize = (BLOCK_BYTES - BLOCK_HEADER_BYTES) / RECORD_BYTES;
/// The `schema` field of the header this version writes.
pub const RECORDS_SCHEMA: &str = "timewire.records/1";
/// The version of the byte layout this version writes and reads.
pub const RECORDS_VERSION: u16 = 1;

const BLOCK_HEADER_BYTES: usize = 32;
const FILE_MAGIC: [u8; 8] = *b"\x89TWR\r\n\x1a\n";
const BLOCK_MAGIC: [u8; 4] = *b"TWRB";
const FILE_PREFIX_BYTES: usize = 24;
const FLAG_FINAL: u8 = 1;
// The same two sizes as the 16-bit fields that carry them.
const BLOCK_BYTES_U16: u16 = 4096;
const RECORD_BYTES_U16: u16 = 32;
const _: () = assert!(BLOCK_BYTES_U16 as usize == BLOCK_BYTES);
const _: () = assert!(RECORD_BYTES_U16 as usize == RECORD_BYTES);

/// A named moment of a packet. A measured time is named by its two timestamp points, `Send ->
/// Receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TimestampPoint {
    /// The moment the schedule gave it.
    Scheduled = 1,
    /// The sending program woke.
    Wake = 2,
    /// The sending program handed it over.
    Send = 3,
    /// It entered the queueing discipline.
    QdiscEnter = 4,
    /// It left the queueing discipline.
    QdiscLeave = 5,
    /// The driver took it, by the kernel's clock.
    TxSw = 6,
    /// It left the NIC, by the NIC's clock.
    TxHw = 7,
    /// It reached the NIC, by the NIC's clock.
    RxHw = 8,
    /// The XDP program saw it.
    RxXdp = 9,
    /// The kernel received it, by the kernel's clock.
    RxSw = 10,
    /// It was queued to the socket.
    SocketQueue = 11,
    /// The receiving program was woken.
    Wakeup = 12,
    /// The receiving program has it.
    Receive = 13,
    /// On the shared segment, timestamped where the laboratory's hub receives the frame from the
    /// station's link.
    Segment = 14,
    /// A queueing discipline refused it as it came, because of its launch time. The timestamp is
    /// the launch time.
    LaunchRefused = 15,
    /// A queueing discipline dropped it, because its launch time was over when its turn came. The
    /// timestamp is the launch time.
    LaunchMissed = 16,
    /// The kernel did not take it: its send call failed. The timestamp is when it did.
    NotTaken = 17,
}

impl TimestampPoint {
    /// Every timestamp point, by its number.
    pub const ALL: [TimestampPoint; 17] = [
        TimestampPoint::Scheduled,
        TimestampPoint::Wake,
        TimestampPoint::Send,
        TimestampPoint::QdiscEnter,
        TimestampPoint::QdiscLeave,
        TimestampPoint::TxSw,
        TimestampPoint::TxHw,
        TimestampPoint::RxHw,
        TimestampPoint::RxXdp,
        TimestampPoint::RxSw,
        TimestampPoint::SocketQueue,
        TimestampPoint::Wakeup,
        TimestampPoint::Receive,
        TimestampPoint::Segment,
        TimestampPoint::LaunchRefused,
        TimestampPoint::LaunchMissed,
        TimestampPoint::NotTaken,
    ];

    /// The number in a record: 1 to 17.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The timestamp point of a number; `None` when this version knows none.
    pub fn from_number(number: u8) -> Option<TimestampPoint> {
        let index = usize::from(number).checked_sub(1)?;
        TimestampPoint::ALL.get(index).copied()
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampPoint::Scheduled => "Scheduled",
            TimestampPoint::Wake => "Wake",
            TimestampPoint::Send => "Send",
            TimestampPoint::QdiscEnter => "QdiscEnter",
            TimestampPoint::QdiscLeave => "QdiscLeave",
            TimestampPoint::TxSw => "TxSw",
            TimestampPoint::TxHw => "TxHw",
            TimestampPoint::RxHw => "RxHw",
            TimestampPoint::RxXdp => "RxXdp",
            TimestampPoint::RxSw => "RxSw",
            TimestampPoint::SocketQueue => "SocketQueue",
            TimestampPoint::Wakeup => "Wakeup",
            TimestampPoint::Receive => "Receive",
            TimestampPoint::Segment => "Segment",
            TimestampPoint::LaunchRefused => "LaunchRefused",
            TimestampPoint::LaunchMissed => "LaunchMissed",
            TimestampPoint::NotTaken => "NotTaken",
        }
    }
}

/// One timestamp of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in nanoseconds of TAI on clock `clock`.
    pub at_ns: i64,
    /// Sequence number of the message within its flow.
    pub seq: u32,
    /// Bytes of the frame without its check sequence; 0 when not known.
    pub frame_len: u16,
    /// Where it was timestamped.
    pub point: TimestampPoint,
    /// Index into [`RecordHeader::stations`]: who timestamped it; at [`TimestampPoint::Segment`],
    /// who sent it.
    pub station: u8,
    /// Index into [`RecordHeader::flows`], or [`Record::NO_FLOW`].
    pub flow: u16,
    /// No flag is defined in version 1; write 0.
    pub flags: u8,
    /// Index into [`RecordHeader::clocks`].
    pub clock: u8,
}

impl Record {
    /// The flow of a packet that belongs to none of the header's flows.
    pub const NO_FLOW: u16 = 0xffff;

    /// The record as the file carries it.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.seq.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.frame_len.to_le_bytes());
        bytes[14] = self.point.number();
        bytes[15] = self.station;
        bytes[16..18].copy_from_slice(&self.flow.to_le_bytes());
        bytes[18] = self.flags;
        bytes[19] = self.clock;
        bytes
    }

    /// Reads [`Record::to_bytes`]; `None` for a timestamp point this version does not know.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        Some(Record {
            at_ns: i64::from_le_bytes(field(bytes, 0)),
            seq: u32::from_le_bytes(field(bytes, 8)),
            frame_len: u16::from_le_bytes(field(bytes, 12)),
            point: TimestampPoint::from_number(bytes[14])?,
            station: bytes[15],
            flow: u16::from_le_bytes(field(bytes, 16)),
            flags: bytes[18],
            clock: bytes[19],
        })
    }
}

/// What the numbers in the records of one file stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHeader {
    /// Who wrote the file, e.g. `alpha client control`.
    pub writer: String,
    /// The case it belongs to, `SCENARIO/CASE/LOAD`.
    pub case: String,
    /// The clocks the timestamps were taken from.
    pub clocks: Vec<ClockInfo>,
    /// Names of the stations.
    pub stations: Vec<String>,
    /// Names of the flows.
    pub flows: Vec<String>,
    /// Anything else worth keeping.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
}

/// One clock of a record file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockInfo {
    /// Name, e.g. `CLOCK_TAI`.
    pub name: String,
    /// How far its timestamps can be from TAI of the run, either way.
    #[serde(rename = "error_bound_ns")]
    pub error_bound: Span,
}

/// Bytes that are no record file of this version, or a header that fits none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It does not start as a record file does.
    #[error("this is no record file: it does not start with the .twr magic")]
    NotARecordFile,
    /// Another version of the layout.
    #[error("the record file has version {found}; this program reads version {supported} only")]
    Version {
        /// What the file says.
        found: u16,
        /// What this version reads.
        supported: u16,
    },
    /// The file ends within its header.
    #[error("the record file ends within its header: {bytes} bytes of {wanted}")]
    HeaderTruncated {
        /// Length of the file.
        bytes: usize,
        /// Length of the header.
        wanted: usize,
    },
    /// The header's checksum or sizes are wrong.
    #[error("the header of the record file is damaged: {what}")]
    HeaderDamaged {
        /// What does not fit.
        what: &'static str,
    },
    /// The header's JSON is not that of a record file.
    #[error("the header of the record file cannot be read: {why}")]
    HeaderContent {
        /// What the JSON reader said, or which schema was found.
        why: String,
    },
    /// A header that the format cannot carry.
    #[error("a record file cannot have {count} {what}; at most {max}")]
    TooMany {
        /// What was given.
        count: usize,
        /// Of what.
        what: &'static str,
        /// The bound.
        max: usize,
    },
}

/// `N` bytes at a fixed place of a fixed layout.
///
/// **Panics** when the bytes are too short: the callers have checked the length.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let slice = bytes.get(at..at + N);
    slice.and_then(|s| s.try_into().ok()).expect("invariant: the layout is shorter than the bytes")
}

/// The checksum of a header or block, which leaves out its own four bytes at `at`.
fn crc_without(bytes: &[u8], at: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..at]);
    hasher.update(&bytes[at + 4..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of a capture, version 1: the start of the file and the heads of its blocks.
//!
//! All numbers are little endian. A file is a start of 16 bytes, then blocks one after the other,
//! and at a clean end 16 bytes more.
//!
//! **Start**:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic `89 54 57 43 0d 0a 1a 0a` |
//! | 8..10 | version, u16: 1 |
//! | 10..12 | bytes of a block's head, u16: 64 |
//! | 12..14 | bytes of an event, u16: 44 |
//! | 14..16 | zero |
//!
//! **Head** of a block; its content follows:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic `89 54 57 42 0d 0a 1a 0a` |
//! | 8 | what is in it, u8: 1 header, 2 events, 3 notes, 4 end |
//! | 9..12 | zero |
//! | 12..16 | bytes of content, u32 |
//! | 16..20 | which capture, u32: CRC-32 (IEEE) over the content of its header block |
//! | 20..24 | events or notes in it, u32 |
//! | 24..32 | number of the block, u64: that of the header is 0 |
//! | 32..40 | events in the blocks before it, u64 |
//! | 40..48 | base, u64: of events, the time that theirs are told from, ns |
//! | 48..52 | the earliest event less the base, i32: ns |
//! | 52..56 | the latest event less the base, i32: ns |
//! | 56..60 | CRC-32 (IEEE) over the content |
//! | 60..64 | CRC-32 (IEEE) over the 60 bytes before |
//!
//! **Content**: the header is [`super::CaptureHeader`] as JSON, with
//! `"schema":"timewire.capture/1"`. Notes are lines of JSON, a [`super::Note`] each. The end is
//! JSON, too: [`End`]. An event is its time less the base, i32, and then bytes 8 to 47 of
//! [`crate::event`].
//!
//! **Close**, after the end block: magic `89 54 57 45 0d 0a 1a 0a` and the offset of that block,
//! u64.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::HookCount;
use crate::event::EVENT_BYTES;

/// The version that is written.
pub const CAPTURE_VERSION: u16 = 1;
/// **Units**: bytes of an event in a block.
pub const STORED_BYTES: usize = EVENT_BYTES - 4;
/// **Units**: bytes of a full block of events, with its head.
pub const BLOCK_BYTES: usize = 65_536;
/// Events in a full block.
pub const EVENTS_PER_BLOCK: usize = (BLOCK_BYTES - HEAD_BYTES) / STORED_BYTES;
/// **Units**: bytes that the content of a header block may have.
pub const MAX_HEADER_BYTES: usize = 16 << 20;
/// **Units**: bytes that the content of any other block may have.
pub const MAX_CONTENT_BYTES: usize = 1 << 20;

pub(super) const START_BYTES: usize = 16;
pub(super) const HEAD_BYTES: usize = 64;
pub(super) const CLOSE_BYTES: usize = 16;
pub(super) const START_MAGIC: [u8; 8] = *b"\x89TWC\r\n\x1a\n";
pub(super) const BLOCK_MAGIC: [u8; 8] = *b"\x89TWB\r\n\x1a\n";
pub(super) const CLOSE_MAGIC: [u8; 8] = *b"\x89TWE\r\n\x1a\n";
const HEAD_BYTES_U16: u16 = 64;
const STORED_BYTES_U16: u16 = 44;
const _: () = assert!(HEAD_BYTES_U16 as usize == HEAD_BYTES);
const _: () = assert!(STORED_BYTES_U16 as usize == STORED_BYTES);

/// What a block has.
pub(super) mod content {
    pub const HEADER: u8 = 1;
    pub const EVENTS: u8 = 2;
    pub const NOTES: u8 = 3;
    pub const END: u8 = 4;
}

/// What is said at a clean end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Events in the file.
    pub events: u64,
    /// The time of the earliest, when there is one. **Units**: ns.
    pub first_ns: Option<u64>,
    /// The time of the latest.
    pub last_ns: Option<u64>,
    /// The last [`super::Note::Losses`], when there was one.
    pub losses: Option<BTreeMap<String, HookCount>>,
}

/// The head of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub content: u8,
    pub bytes: u32,
    pub capture: u32,
    pub count: u32,
    pub number: u64,
    pub events_before: u64,
    pub base_ns: u64,
    pub earliest: i32,
    pub latest: i32,
    pub content_crc: u32,
}

impl Head {
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..8].copy_from_slice(&BLOCK_MAGIC);
        bytes[8] = self.content;
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.capture.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.events_before.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.base_ns.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.earliest.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.latest.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.content_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` for bytes that are no head.
    pub fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let crc = u32::from_le_bytes(field(bytes, 60));
        if bytes[0..8] != BLOCK_MAGIC || crc32fast::hash(&bytes[..60]) != crc {
            return None;
        }
        Some(Head {
            content: bytes[8],
            bytes: u32::from_le_bytes(field(bytes, 12)),
            capture: u32::from_le_bytes(field(bytes, 16)),
            count: u32::from_le_bytes(field(bytes, 20)),
            number: u64::from_le_bytes(field(bytes, 24)),
            events_before: u64::from_le_bytes(field(bytes, 32)),
            base_ns: u64::from_le_bytes(field(bytes, 40)),
            earliest: i32::from_le_bytes(field(bytes, 48)),
            latest: i32::from_le_bytes(field(bytes, 52)),
            content_crc: u32::from_le_bytes(field(bytes, 56)),
        })
    }

    /// How long its content is; `None` for longer than any.
    pub fn content_bytes(&self) -> Option<usize> {
        let most =
            if self.content == content::HEADER { MAX_HEADER_BYTES } else { MAX_CONTENT_BYTES };
        usize::try_from(self.bytes).ok().filter(|bytes| *bytes <= most)
    }
}

/// The start of a file.
pub(super) fn start() -> [u8; START_BYTES] {
    let mut bytes = [0; START_BYTES];
    bytes[0..8].copy_from_slice(&START_MAGIC);
    bytes[8..10].copy_from_slice(&CAPTURE_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&HEAD_BYTES_U16.to_le_bytes());
    bytes[12..14].copy_from_slice(&STORED_BYTES_U16.to_le_bytes());
    bytes
}

/// The last bytes of a closed file.
pub(super) fn close(end_block: u64) -> [u8; CLOSE_BYTES] {
    let mut bytes = [0; CLOSE_BYTES];
    bytes[0..8].copy_from_slice(&CLOSE_MAGIC);
    bytes[8..16].copy_from_slice(&end_block.to_le_bytes());
    bytes
}

/// `N` bytes at a fixed place of a fixed layout.
///
/// **Panics** when the bytes are too short: the callers have checked the length.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let slice = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    *slice.expect("invariant: the layout is shorter than the bytes")
}

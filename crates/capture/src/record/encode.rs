// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing a record file: records in, blocks with their offsets out. Nothing is allocated after the
//! start, so that a real-time thread may record.

use serde::Serialize;

use super::{
    BLOCK_BYTES, BLOCK_BYTES_U16, BLOCK_HEADER_BYTES, BLOCK_MAGIC, FILE_MAGIC, FILE_PREFIX_BYTES,
    FLAG_FINAL, RECORD_BYTES, RECORD_BYTES_U16, RECORDS_PER_BLOCK, RECORDS_SCHEMA, RECORDS_VERSION,
    Record, RecordError, RecordHeader, crc_without,
};

/// Bytes that belong at an offset of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// **Units**: bytes from the start of the file.
    pub offset: u64,
    /// The whole block.
    pub bytes: &'a [u8; BLOCK_BYTES],
}

/// The block that closes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalBlock {
    /// **Units**: bytes from the start of the file.
    pub offset: u64,
    /// The whole block.
    pub bytes: Box<[u8; BLOCK_BYTES]>,
}

/// Fills blocks with records.
///
/// A caller puts the header to offset 0 and then every block it is handed to that block's offset.
/// To write a block twice is harmless: the later one holds more.
#[derive(Clone, Debug)]
pub struct Encoder {
    block: Box<[u8; BLOCK_BYTES]>,
    header_bytes: u64,
    sequence: u64,
    count: u16,
    lost: u64,
    unwritten: bool,
}

impl Encoder {
    /// Starts a file: the encoder and the header's bytes.
    ///
    /// **Errors**: more names than the records can index, or a header of more than 256 MiB.
    pub fn new(header: &RecordHeader) -> Result<(Encoder, Vec<u8>), RecordError> {
        let bytes = header_bytes(header)?;
        let header_bytes = u64::try_from(bytes.len()).expect("invariant: a length fits 64 bits");
        let encoder = Encoder {
            block: Box::new([0; BLOCK_BYTES]),
            header_bytes,
            sequence: 0,
            count: 0,
            lost: 0,
            unwritten: true,
        };
        Ok((encoder, bytes))
    }

    /// Adds a record; hands out the block when that filled it.
    pub fn push(&mut self, record: &Record) -> Option<Block<'_>> {
        if usize::from(self.count) == RECORDS_PER_BLOCK {
            self.block.fill(0);
            self.sequence += 1;
            self.count = 0;
        }
        let at = BLOCK_HEADER_BYTES + usize::from(self.count) * RECORD_BYTES;
        self.block[at..at + RECORD_BYTES].copy_from_slice(&record.to_bytes());
        self.count += 1;
        self.unwritten = true;
        if usize::from(self.count) < RECORDS_PER_BLOCK { None } else { self.flush() }
    }

    /// Counts timestamps that had to be given up; they reach the file with the next block.
    pub fn add_lost(&mut self, timestamps: u64) {
        self.lost = self.lost.saturating_add(timestamps);
        self.unwritten |= timestamps > 0;
    }

    /// The block as it stands; `None` when nothing came since it was last handed out.
    pub fn flush(&mut self) -> Option<Block<'_>> {
        if !self.unwritten {
            return None;
        }
        self.unwritten = false;
        self.seal(0);
        Some(Block { offset: self.offset(), bytes: &self.block })
    }

    /// Closes the file, with so many more timestamps given up since the last [`Encoder::add_lost`].
    pub fn finish(mut self, lost: u64) -> FinalBlock {
        self.add_lost(lost);
        self.seal(FLAG_FINAL);
        FinalBlock { offset: self.offset(), bytes: self.block }
    }

    fn offset(&self) -> u64 {
        self.header_bytes + self.sequence * u64::from(BLOCK_BYTES_U16)
    }

    fn seal(&mut self, flags: u8) {
        let block = &mut self.block;
        block[0..4].copy_from_slice(&BLOCK_MAGIC);
        block[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        block[16..24].copy_from_slice(&self.lost.to_le_bytes());
        block[24..26].copy_from_slice(&self.count.to_le_bytes());
        block[26..28].copy_from_slice(&RECORD_BYTES_U16.to_le_bytes());
        block[28] = flags;
        let crc = crc_without(&block[..], 4);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

#[derive(Serialize)]
struct Tagged<'a> {
    schema: &'static str,
    #[serde(flatten)]
    header: &'a RecordHeader,
}

fn header_bytes(header: &RecordHeader) -> Result<Vec<u8>, RecordError> {
    check_names(header)?;
    let json = serde_json::to_vec(&Tagged { schema: RECORDS_SCHEMA, header })
        .expect("invariant: text, numbers and maps of text are always JSON");
    let blocks = (FILE_PREFIX_BYTES + json.len()).div_ceil(BLOCK_BYTES);
    check(blocks, "blocks of header", usize::from(u16::MAX))?;
    let blocks_u16 = u16::try_from(blocks).expect("invariant: just checked");
    let json_len = u32::try_from(json.len()).expect("invariant: 65 535 blocks are below 4 GiB");

    let mut bytes = vec![0; blocks * BLOCK_BYTES];
    bytes[0..8].copy_from_slice(&FILE_MAGIC);
    bytes[8..10].copy_from_slice(&RECORDS_VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&blocks_u16.to_le_bytes());
    bytes[12..14].copy_from_slice(&BLOCK_BYTES_U16.to_le_bytes());
    bytes[14..16].copy_from_slice(&RECORD_BYTES_U16.to_le_bytes());
    bytes[16..20].copy_from_slice(&json_len.to_le_bytes());
    bytes[FILE_PREFIX_BYTES..FILE_PREFIX_BYTES + json.len()].copy_from_slice(&json);
    let crc = crc_without(&bytes, 20);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

/// Whether records can name all that a header has; no reader keeps more.
pub(super) fn check_names(header: &RecordHeader) -> Result<(), RecordError> {
    let index_of_u8 = usize::from(u8::MAX) + 1;
    check(header.clocks.len(), "clocks", index_of_u8)?;
    check(header.stations.len(), "stations", index_of_u8)?;
    check(header.flows.len(), "flows", usize::from(Record::NO_FLOW))
}

fn check(count: usize, what: &'static str, max: usize) -> Result<(), RecordError> {
    if count > max { Err(RecordError::TooMany { count, what, max }) } else { Ok(()) }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a record file: every block whose checksum fits, whatever happened to the others.

use serde::Deserialize;

use super::encode::check_names;
use super::{
    BLOCK_BYTES, BLOCK_BYTES_U16, BLOCK_HEADER_BYTES, BLOCK_MAGIC, FILE_MAGIC, FILE_PREFIX_BYTES,
    FLAG_FINAL, RECORD_BYTES, RECORD_BYTES_U16, RECORDS_PER_BLOCK, RECORDS_SCHEMA, RECORDS_VERSION,
    Record, RecordError, RecordHeader, crc_without, field,
};

/// What a record file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// What the numbers in the records stand for.
    pub header: RecordHeader,
    /// The records, in the order they were written; each names a known timestamp point, and a
    /// station, a clock and (where it has one) a flow of the header.
    pub records: Vec<Record>,
    /// Timestamps the writer had to give up.
    pub lost: u64,
    /// Blocks that were torn or damaged; each held up to [`RECORDS_PER_BLOCK`] records.
    pub corrupt_blocks: u64,
    /// Records left out because they name a timestamp point this version does not know, or a
    /// station, clock or flow that the header does not have.
    pub unknown_records: u64,
    /// Whether the writer closed the file.
    pub clean_end: bool,
}

impl RecordFile {
    /// Reads a whole file.
    ///
    /// **Errors**: no record file, another version, or a header that is cut short, damaged, or has
    /// more names than records can have.
    /// Damage after the header is counted, not an error.
    pub fn decode(bytes: &[u8]) -> Result<RecordFile, RecordError> {
        let (header, blocks) = read_header(bytes)?;
        let mut file = RecordFile {
            header,
            records: Vec::with_capacity(blocks.len() / RECORD_BYTES),
            lost: 0,
            corrupt_blocks: 0,
            unknown_records: 0,
            clean_end: false,
        };
        for (sequence, block) in (0..).zip(blocks.chunks(BLOCK_BYTES)) {
            match read_block(block, sequence) {
                Some(block) => file.take(&block),
                None => {
                    file.corrupt_blocks += 1;
                    file.clean_end = false;
                }
            }
        }
        Ok(file)
    }

    fn take(&mut self, block: &ValidBlock<'_>) {
        self.lost = self.lost.max(block.lost);
        self.clean_end = block.is_final;
        for bytes in block.records.chunks_exact(RECORD_BYTES) {
            match Record::from_bytes(&field(bytes, 0)) {
                Some(record) if self.header.knows(&record) => self.records.push(record),
                _ => self.unknown_records += 1,
            }
        }
    }
}

impl RecordHeader {
    fn knows(&self, record: &Record) -> bool {
        usize::from(record.station) < self.stations.len()
            && usize::from(record.clock) < self.clocks.len()
            && (record.flow == Record::NO_FLOW || usize::from(record.flow) < self.flows.len())
    }
}

struct ValidBlock<'a> {
    lost: u64,
    is_final: bool,
    records: &'a [u8],
}

fn read_block(block: &[u8], sequence: u64) -> Option<ValidBlock<'_>> {
    let whole = block.len() == BLOCK_BYTES && block[0..4] == BLOCK_MAGIC;
    if !whole || u32::from_le_bytes(field(block, 4)) != crc_without(block, 4) {
        return None;
    }
    let count = usize::from(u16::from_le_bytes(field(block, 24)));
    let fits = u64::from_le_bytes(field(block, 8)) == sequence
        && u16::from_le_bytes(field(block, 26)) == RECORD_BYTES_U16
        && count <= RECORDS_PER_BLOCK;
    fits.then(|| ValidBlock {
        lost: u64::from_le_bytes(field(block, 16)),
        is_final: block[28] & FLAG_FINAL != 0,
        records: &block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + count * RECORD_BYTES],
    })
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// The header, and the bytes after it.
fn read_header(bytes: &[u8]) -> Result<(RecordHeader, &[u8]), RecordError> {
    if bytes.len() < FILE_MAGIC.len() || bytes[..FILE_MAGIC.len()] != FILE_MAGIC {
        return Err(RecordError::NotARecordFile);
    }
    let truncated = |wanted| RecordError::HeaderTruncated { bytes: bytes.len(), wanted };
    if bytes.len() < FILE_PREFIX_BYTES {
        return Err(truncated(BLOCK_BYTES));
    }
    let version = u16::from_le_bytes(field(bytes, 8));
    if version != RECORDS_VERSION {
        return Err(RecordError::Version { found: version, supported: RECORDS_VERSION });
    }
    let header_len = usize::from(u16::from_le_bytes(field(bytes, 10))) * BLOCK_BYTES;
    if header_len == 0 {
        return Err(RecordError::HeaderDamaged { what: "it has no length" });
    }
    let Some((head, blocks)) = bytes.split_at_checked(header_len) else {
        return Err(truncated(header_len));
    };
    if u32::from_le_bytes(field(head, 20)) != crc_without(head, 20) {
        return Err(RecordError::HeaderDamaged { what: "its checksum does not fit" });
    }
    if u16::from_le_bytes(field(head, 12)) != BLOCK_BYTES_U16
        || u16::from_le_bytes(field(head, 14)) != RECORD_BYTES_U16
    {
        return Err(RecordError::HeaderDamaged { what: "blocks or records of another size" });
    }
    let json = usize::try_from(u32::from_le_bytes(field(head, 16))).ok();
    let json = json.and_then(|len| head[FILE_PREFIX_BYTES..].get(..len));
    let json = json.ok_or(RecordError::HeaderDamaged { what: "more JSON than there is header" })?;
    let header = read_json(json)?;
    check_names(&header)?;
    Ok((header, blocks))
}

fn read_json(json: &[u8]) -> Result<RecordHeader, RecordError> {
    let content = |error: serde_json::Error| RecordError::HeaderContent { why: error.to_string() };
    let Schema { schema } = serde_json::from_slice(json).map_err(content)?;
    if schema != RECORDS_SCHEMA {
        let why = format!("its schema is `{schema}`, not `{RECORDS_SCHEMA}`");
        return Err(RecordError::HeaderContent { why });
    }
    serde_json::from_slice(json).map_err(content)
}

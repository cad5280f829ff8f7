// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Journals as bytes: a line for each entry, its checksum before it. A journal grows at its end
//! only, so all that a killed writer can leave is a last line without its end, and that is ignored.
//! Anything else that does not fit is damage, and an error.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The format that is written; one that is read must have the same.
pub const FORMAT: u32 = 2;

/// Whose journal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Of a controller: one experiment.
    Controller,
    /// Of an agent: all experiments it took part in.
    Agent,
}

/// Whatever else a later format has in it, this is where its number is.
#[derive(Serialize, Deserialize)]
struct Header {
    timewire_journal: u32,
    side: Side,
}

/// A journal that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A whole line is not what was written.
    #[error("line {line} of the journal is damaged: {why}")]
    Damaged {
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// It begins in a way that this version does not know.
    #[error(
        "the journal has format {found}, and this version of Timewire knows {FORMAT}; end its \
         experiment with the version that began it"
    )]
    Format {
        /// What it says.
        found: u32,
    },
    /// It belongs to the other side.
    #[error("the journal is that of the side `{found:?}`, where one of `{wanted:?}` is wanted")]
    Side {
        /// What it says.
        found: Side,
        /// What was expected.
        wanted: Side,
    },
}

/// What a journal said.
#[derive(Debug, PartialEq, Eq)]
pub struct Reading<E> {
    /// The entries.
    pub entries: Vec<E>,
    /// How many bytes are whole lines; cut the rest off before the next entry is appended. Zero
    /// means that not even the header is whole.
    ///
    /// **Units**: bytes.
    pub whole: usize,
}

/// The first line of a journal.
pub fn header(side: Side) -> Vec<u8> {
    line(&Header { timewire_journal: FORMAT, side })
}

/// The line of an entry.
pub fn line(entry: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(entry).expect("invariant: entries are plain values");
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    line
}

/// Reads a journal. One without a whole header has no entries.
///
/// **Errors**: a whole line is damaged, or the journal is of another format or side.
pub fn read<E: DeserializeOwned>(side: Side, bytes: &[u8]) -> Result<Reading<E>, JournalError> {
    let mut reading = Reading { entries: Vec::new(), whole: 0 };
    for (number, text) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        let Some(text) = text.strip_suffix(b"\n") else { break };
        let damaged = |why: String| JournalError::Damaged { line: number, why };
        let json = checked(text).map_err(damaged)?;
        if number == 1 {
            let header = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
            check_header(side, &header)?;
        } else {
            let entry = serde_json::from_slice(json).map_err(|e| damaged(e.to_string()))?;
            reading.entries.push(entry);
        }
        reading.whole += text.len() + 1;
    }
    Ok(reading)
}

/// The JSON of a line whose checksum is right.
fn checked(text: &[u8]) -> Result<&[u8], String> {
    let parts = text.split_at_checked(9).filter(|(sum, _)| sum[8] == b' ');
    let (sum, json) = parts.ok_or("it has no checksum")?;
    let sum = std::str::from_utf8(&sum[..8]).ok().and_then(|s| u32::from_str_radix(s, 16).ok());
    match sum {
        Some(sum) if sum == crc32fast::hash(json) => Ok(json),
        Some(_) => Err("its checksum does not fit".to_owned()),
        None => Err("its checksum is no number".to_owned()),
    }
}

fn check_header(wanted: Side, header: &Header) -> Result<(), JournalError> {
    let Header { timewire_journal: format, side } = header;
    if *format != FORMAT {
        return Err(JournalError::Format { found: *format });
    }
    if *side != wanted {
        return Err(JournalError::Side { found: *side, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(entries: &[&str]) -> Vec<u8> {
        let mut bytes = header(Side::Agent);
        entries.iter().for_each(|entry| bytes.extend(line(entry)));
        bytes
    }

    #[test]
    fn t0_a_journal_cut_anywhere_has_its_whole_entries() {
        let (bytes, entries) = (journal(&["one", "two\n", "three"]), ["one", "two\n", "three"]);
        let mut seen = Vec::new();
        for cut in 0..=bytes.len() {
            let reading = read::<String>(Side::Agent, &bytes[..cut]).unwrap();
            assert_eq!(reading.entries, entries[..reading.entries.len()], "cut at {cut}");
            assert!(reading.whole <= cut);
            let mut again = bytes[..reading.whole].to_vec();
            if reading.whole == 0 {
                again = header(Side::Agent);
            }
            again.extend(line(&"next"));
            let after = read::<String>(Side::Agent, &again).unwrap().entries;
            assert_eq!(after.last().map(String::as_str), Some("next"));
            seen.push(reading.entries.len());
        }
        assert_eq!((seen[0], seen.last()), (0, Some(&3)));
    }

    #[test]
    fn t0_any_changed_byte_before_the_last_line_is_found() {
        let bytes = journal(&["one", "two"]);
        let last = bytes.len() - 1;
        for at in 0..last {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(read::<String>(Side::Agent, &damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn t0_other_formats_and_sides_are_refused() {
        let future = line(&serde_json::json!({"timewire_journal": FORMAT + 1, "side": "agent"}));
        let error = read::<String>(Side::Agent, &future).unwrap_err();
        assert!(matches!(error, JournalError::Format { found } if found == FORMAT + 1), "{error}");
        let error = read::<String>(Side::Controller, &journal(&[])).unwrap_err();
        assert!(matches!(error, JournalError::Side { .. }), "{error}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of files over a link, in either direction.
//!
//! The sender offers a [`Manifest`]; the receiver asks for what it does not have, from where a
//! transfer that was cut left off; the sender sends that in chunks. A file is known by the SHA-256
//! of its content: what the receiver has already is not sent, and nothing is put in place that has
//! another. The receiver acknowledges when everything is on its disk.
//!
//! A receiver trusts no path: see [`Manifest::check`] and `timewire_sys::beneath`.
//!
//! Not here: which files an experiment needs (`sweep`).

mod manifest;
mod receive;
mod send;

use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::links::error::{LinkError, protocol};
use crate::links::identity::digest_bytes;
use crate::links::link::{Receiver, Sender};

pub use manifest::{FileEntry, FileLimits, Manifest};
pub use receive::receive_files;
pub use send::send_files;

/// What the two ends say to each other, apart from chunks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Say {
    /// From the sender: a part of the manifest.
    Offer { version: u32, files: Vec<FileEntry>, more: bool },
    /// From the receiver: what it wants; none when it has everything, on its disk.
    Want { files: Vec<Wanted>, more: bool },
    /// From either: it is given up, and why.
    Refuse { why: String },
}

/// A file from some byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Its place in the manifest, from 0.
    index: u32,
    /// **Units**: bytes.
    from: u64,
}

/// A part of a file's content.
#[derive(Debug, PartialEq, Eq)]
struct Chunk<'a> {
    index: u32,
    at: u64,
    bytes: &'a [u8],
}

/// What a message is, in its first byte.
const SAY: u8 = b'J';
const CHUNK: u8 = b'C';
/// Bytes of a chunk before its content.
const CHUNK_HEADER: usize = 13;
const VERSION: u32 = 1;
/// Files in one message of a manifest or a request; a path has up to 1 KiB.
const ENTRIES: usize = 100;

impl Chunk<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(CHUNK_HEADER + self.bytes.len());
        message.push(CHUNK);
        message.extend_from_slice(&self.index.to_be_bytes());
        message.extend_from_slice(&self.at.to_be_bytes());
        message.extend_from_slice(self.bytes);
        message
    }

    fn decode(message: &[u8]) -> Result<Chunk<'_>, LinkError> {
        let short = || protocol("a chunk that is too short");
        let (kind, rest) = message.split_first().ok_or_else(short)?;
        let (index, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (at, bytes) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        if *kind != CHUNK {
            return Err(protocol("a chunk was expected"));
        }
        Ok(Chunk { index: u32::from_be_bytes(*index), at: u64::from_be_bytes(*at), bytes })
    }
}

impl Say {
    fn encode(&self) -> Vec<u8> {
        let mut message = vec![SAY];
        serde_json::to_writer(&mut message, self).expect("invariant: numbers and texts");
        message
    }

    fn decode(message: &[u8]) -> Result<Say, LinkError> {
        let Some((&SAY, text)) = message.split_first() else {
            return Err(protocol("a message about files was expected"));
        };
        serde_json::from_slice(text).map_err(|error| protocol(error.to_string()))
    }
}

/// Reads a message as either kind, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn read_any(message: &[u8]) {
    let _ = Chunk::decode(message);
    if let Ok(said) = Say::decode(message) {
        assert_eq!(Say::decode(&said.encode()).ok().as_ref(), Some(&said));
        if let Say::Offer { files, .. } = said {
            let _ = Manifest { files }.check(&FileLimits::default());
        }
    }
}

fn say(sender: &Sender, what: &Say) -> Result<(), LinkError> {
    sender.send(&what.encode())
}

/// The next message, which the other end may take so long for.
fn next(receiver: &mut Receiver, timeout: Duration) -> Result<Vec<u8>, LinkError> {
    let seconds = timeout.as_secs();
    receiver.receive(timeout)?.ok_or(LinkError::Silent { seconds })
}

/// Tells the other end why it is given up, when it is not the link that failed.
fn tell(sender: &Sender, error: LinkError) -> LinkError {
    let of_link =
        error.is_lost_link() || matches!(error, LinkError::Closed { .. } | LinkError::Told { .. });
    if !of_link {
        let why = error.to_string().chars().take(400).collect();
        // The error itself is what the caller hears.
        let _ = say(sender, &Say::Refuse { why });
    }
    error
}

fn refused(why: impl Into<String>) -> LinkError {
    LinkError::Files { why: why.into() }
}

/// Adds so many bytes of a file to a hash, from where it stands.
fn hash_into(context: &mut Context, file: &mut File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let mut rest = file.take(bytes);
    let mut sum = 0;
    loop {
        let count = rest.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        context.update(&buffer[..count]);
        sum += u64::try_from(count).expect("invariant: at most the buffer");
    }
    if sum == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The SHA-256 of a file's first bytes, from where it stands.
fn hash_of(file: &mut File, bytes: u64) -> io::Result<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    hash_into(&mut context, file, bytes)?;
    Ok(digest_bytes(&context.finish()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn t0_arbitrary_messages_about_files_are_errors_or_come_out_again(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            kind in prop_oneof![Just(SAY), Just(CHUNK), any::<u8>()],
        ) {
            let message: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
            if let Ok(say) = Say::decode(&message) {
                prop_assert_eq!(Say::decode(&say.encode()).unwrap(), say);
            }
            if let Ok(chunk) = Chunk::decode(&message) {
                prop_assert_eq!(chunk.encode(), message.clone());
            }
        }
    }

    #[test]
    fn t0_a_part_of_a_manifest_fits_into_a_message() {
        let entry = FileEntry {
            path: "\u{7f}".repeat(1_024),
            size: u64::MAX,
            mode: 0o777,
            sha256: "0".repeat(64),
        };
        let offer = Say::Offer { version: 1, files: vec![entry; ENTRIES], more: true };
        assert!(offer.encode().len() < 1 << 19, "{}", offer.encode().len());
    }
}

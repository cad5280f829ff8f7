// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What strangers can send, for fuzzing: the readers of this crate that are not public. Compiled
//! with `cargo fuzz` only.

use crate::links::discovery::Announcement;
use crate::links::files;
use crate::links::frame::{self, Assembler, Kind};

/// The longest message that the assembler takes here. **Units**: bytes.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// Bytes of a link, in pieces of this many bytes.
///
/// **Panics**: a frame that is longer than its kind may be, or more of it than arrived.
pub fn link(bytes: &[u8], piece: usize) {
    let mut assembler = Assembler::new(MAX_MESSAGE_BYTES);
    let mut sum = 0;
    for some in bytes.chunks(piece.max(1)) {
        assembler.add(some);
        loop {
            match assembler.next() {
                Ok(Some((kind, payload))) => {
                    assert!(
                        payload.len() <= MAX_MESSAGE_BYTES,
                        "{kind:?} of {} bytes",
                        payload.len()
                    );
                    sum += frame::HEADER_BYTES + payload.len();
                    if kind == Kind::Hello {
                        let _ = frame::read_hello(&payload);
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert!(sum <= bytes.len(), "{sum} bytes of frames of {}", bytes.len());
}

/// A packet that may announce an agent.
///
/// **Panics**: an announcement that is written does not read as itself.
pub fn announcement(packet: &[u8]) {
    if let Some(announcement) = Announcement::decode(packet) {
        assert_eq!(Announcement::decode(&announcement.encode()), Some(announcement));
    }
}

/// A message while files are sent.
pub fn files(message: &[u8]) {
    files::read_any(message);
}

/// Examples of what [`link`] takes.
pub fn links() -> Vec<Vec<u8>> {
    let hello = frame::encode(Kind::Hello, &frame::hello(1 << 20));
    let more = [(Kind::Message, &b"{}"[..]), (Kind::Alive, b""), (Kind::Close, b"enough")];
    let more: Vec<u8> = more.iter().flat_map(|(kind, bytes)| frame::encode(*kind, bytes)).collect();
    vec![hello.clone(), [hello, more].concat()]
}

/// An example of what [`announcement`] takes.
pub fn announcements() -> Vec<Vec<u8>> {
    let fingerprint = crate::links::Fingerprint::from_bytes([7; 32]);
    let (name, program) = ("alpha".to_owned(), "timewire 0.1.0".to_owned());
    vec![Announcement { name, port: 4711, fingerprint, program }.encode()]
}

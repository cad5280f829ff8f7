// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on a transport of bytes: four bytes of length, most significant first, one byte of kind,
//! then the payload. Memory is taken as bytes arrive, never because a length says so.

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first in each direction.
    Hello,
    /// A message of the link's user.
    Message,
    /// A sign of life, empty.
    Alive,
    /// Goodbye, with the reason as text.
    Close,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Hello, Kind::Message, Kind::Alive, Kind::Close]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }

    fn byte(self) -> u8 {
        match self {
            Kind::Hello => 0,
            Kind::Message => 1,
            Kind::Alive => 2,
            Kind::Close => 3,
        }
    }

    /// The longest payload. **Units**: bytes.
    fn most(self, message: usize) -> usize {
        match self {
            Kind::Hello => HELLO_BYTES,
            Kind::Message => message,
            Kind::Alive => 0,
            Kind::Close => REASON_BYTES,
        }
    }
}

/// Length of the part before the payload.
pub(crate) const HEADER_BYTES: usize = 5;
/// Length of a hello's payload.
pub(crate) const HELLO_BYTES: usize = 14;
/// The longest reason of a goodbye.
pub(crate) const REASON_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"timewire";
/// The version of the protocol, which both ends must have.
pub(crate) const VERSION: u16 = 1;

/// A frame as bytes.
///
/// **Panics**: with more than 4 GiB of payload; senders keep to limits far below.
pub(crate) fn encode(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("invariant: limits are below 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind.byte());
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload of a hello: who we are and how long messages to us may be.
pub(crate) fn hello(most: u32) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10..].copy_from_slice(&most.to_be_bytes());
    bytes
}

/// How long messages to the other end may be, from its hello.
pub(crate) fn read_hello(payload: &[u8]) -> Result<u32, String> {
    let Ok(bytes) = <&[u8; HELLO_BYTES]>::try_from(payload) else {
        return Err(format!("a hello of {} bytes instead of {HELLO_BYTES}", payload.len()));
    };
    if &bytes[..8] != MAGIC {
        return Err("it does not speak Timewire's protocol".to_owned());
    }
    let version = u16::from_be_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(format!("it speaks version {version}, this program version {VERSION}"));
    }
    Ok(u32::from_be_bytes([bytes[10], bytes[11], bytes[12], bytes[13]]))
}

/// Puts frames together from the bytes that arrive.
#[derive(Debug)]
pub(crate) struct Assembler {
    most: usize,
    bytes: Vec<u8>,
    /// How many of `bytes` belong to frames that were taken.
    taken: usize,
}

impl Assembler {
    /// One for messages up to so many bytes.
    pub(crate) fn new(most: usize) -> Assembler {
        Assembler { most, bytes: Vec::new(), taken: 0 }
    }

    /// Adds what arrived.
    pub(crate) fn add(&mut self, arrived: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(arrived);
    }

    /// The next whole frame.
    ///
    /// **Errors**: a kind that does not exist or a length above the kind's limit, as soon as the
    /// header is there.
    pub(crate) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, String> {
        let rest = &self.bytes[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, kind] = *header;
        let kind = Kind::of(kind).ok_or_else(|| format!("a frame of the unknown kind {kind}"))?;
        let length = u32::from_be_bytes([a, b, c, d]);
        let most = kind.most(self.most);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > most {
            return Err(format!("{kind:?} of {length} bytes, where {most} is the most"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let payload = rest[..length].to_vec();
        self.taken += HEADER_BYTES + length;
        Ok(Some((kind, payload)))
    }

    /// Whether a part of a frame is there.
    pub(crate) fn is_within_a_frame(&self) -> bool {
        self.taken < self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = (Kind, Vec<u8>)> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| (Kind::Message, bytes)),
            Just((Kind::Alive, Vec::new())),
            prop::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| (Kind::Close, bytes)),
        ]
    }

    proptest! {
        #[test]
        fn t0_frames_come_out_as_they_went_in_however_they_are_cut(
            frames in prop::collection::vec(kinds(), 0..12),
            cuts in prop::collection::vec(1_usize..40, 1..60),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(kind, of)| encode(*kind, of)).collect();
            let mut assembler = Assembler::new(200);
            let (mut found, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                assembler.add(now);
                while let Some(frame) = assembler.next().unwrap() {
                    found.push(frame);
                }
                rest = later;
                if rest.is_empty() { break; }
            }
            prop_assert_eq!(found, frames);
            prop_assert!(!assembler.is_within_a_frame());
        }

        #[test]
        fn t0_arbitrary_bytes_never_give_more_than_the_limit(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            short in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if short && bytes.len() > 3 {
                bytes[..3].fill(0);
            }
            let mut assembler = Assembler::new(64);
            assembler.add(&bytes);
            let mut sum = 0;
            while let Ok(Some((kind, payload))) = assembler.next() {
                prop_assert!(payload.len() <= kind.most(64));
                sum += HEADER_BYTES + payload.len();
            }
            prop_assert!(sum <= bytes.len());
            let _ = read_hello(&bytes);
        }
    }

    #[test]
    fn t0_a_length_above_the_limit_is_refused_before_its_payload_comes() {
        let mut assembler = Assembler::new(1_000);
        assembler.add(&[0, 0, 3, 233, 1]);
        assert_eq!(assembler.next(), Err("Message of 1001 bytes, where 1000 is the most".into()));
        let mut assembler = Assembler::new(1_000);
        assembler.add(&[255, 255, 255, 255, 1]);
        assert!(assembler.next().is_err());
        assert!(assembler.bytes.capacity() < 100);
        let mut assembler = Assembler::new(1_000);
        assembler.add(&[0, 0, 0, 0, 9]);
        assert_eq!(assembler.next(), Err("a frame of the unknown kind 9".into()));
    }

    #[test]
    fn t0_a_hello_names_its_version() {
        assert_eq!(read_hello(&hello(77)), Ok(77));
        let mut other = hello(77);
        other[9] = 2;
        assert_eq!(read_hello(&other).unwrap_err(), "it speaks version 2, this program version 1");
        assert!(read_hello(b"GET / HTTP/1.1").is_err());
    }
}

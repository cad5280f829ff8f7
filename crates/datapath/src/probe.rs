// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header of every message that a talker sends and a listener knows again. With it the shortest
//! Ethernet frame still carries UDP over IPv4.
//!
//! **Shape**, little endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | `TWs1` or `TWs2` |
//! | 4..6 | bits 0 to 14 the number of the stream; bit 15: the time is a launch time |
//! | 6..10 | sequence number in its stream, u32; wraps |
//! | 10..18 | when it was sent, or is to be on the link: nanoseconds of TAI, i64 |
//!
//! | 18..22 | with `TWs2`, of messages that are long enough: those not sent before, u32; wraps |
//!
//! The rest of the message is the program's own.

use timewire_base::{Instant, Tai};
use timewire_sys::outbox::ANEW;

const MAGIC: [u8; 4] = *b"TWs1";
const MAGIC_SKIPPED: [u8; 4] = *b"TWs2";
const LAUNCH: u16 = 0x8000;

/// The header of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The stream: 0 to [`Probe::MAX_STREAM`].
    pub stream: u16,
    /// Its number in the stream.
    pub seq: u32,
    /// When it was handed over, or its launch time.
    pub time: Instant<Tai>,
    /// Whether `time` is its launch time.
    pub is_launch: bool,
    /// Messages of the stream before this one that have numbers and were not sent: the talker left
    /// them out, or its kernel did not take them. Modulo 2^32; `None` when it does not say.
    pub skipped: Option<u32>,
}

impl Probe {
    /// **Units**: bytes; the shortest message.
    pub const LEN: usize = 18;
    /// The shortest message that says how many were not sent. **Units**: bytes.
    pub const LEN_SKIPPED: usize = 22;
    /// The highest number of a stream.
    pub const MAX_STREAM: u16 = LAUNCH - 1;

    /// Writes it to the start of a message.
    ///
    /// **Panics** when the message is shorter than [`Probe::LEN`] ([`Probe::LEN_SKIPPED`] when it
    /// says how many were not sent), or the number of the stream is too high.
    #[inline]
    pub fn write(&self, message: &mut [u8]) {
        let magic = match self.skipped {
            Some(skipped) => {
                message[Probe::LEN..Probe::LEN_SKIPPED].copy_from_slice(&skipped.to_le_bytes());
                MAGIC_SKIPPED
            }
            None => MAGIC,
        };
        assert!(self.stream <= Probe::MAX_STREAM, "stream {} has no number", self.stream);
        let stream = self.stream | if self.is_launch { LAUNCH } else { 0 };
        // Of a known length: bounds are looked at once.
        let message: &mut [u8; Probe::LEN] =
            (&mut message[..Probe::LEN]).try_into().expect("invariant: just cut to this length");
        message[..4].copy_from_slice(&magic);
        message[4..6].copy_from_slice(&stream.to_le_bytes());
        message[6..10].copy_from_slice(&self.seq.to_le_bytes());
        message[10..18].copy_from_slice(&self.time.as_ns().to_le_bytes());
    }

    /// Where number and time are: [`Probe::anew`].
    pub(crate) const ANEW: usize = 6;

    /// Number and time as they are in a header.
    #[inline(always)]
    pub(crate) fn anew(seq: u32, time: Instant<Tai>) -> [u8; ANEW] {
        let mut bytes = [0; ANEW];
        bytes[..4].copy_from_slice(&seq.to_le_bytes());
        bytes[4..].copy_from_slice(&time.as_ns().to_le_bytes());
        bytes
    }

    /// Writes number and time into a message that has a header.
    ///
    /// **Panics** when the message is shorter than [`Probe::LEN`].
    #[inline]
    pub(crate) fn renew(message: &mut [u8], seq: u32, time: Instant<Tai>) {
        let message: &mut [u8; Probe::LEN] =
            (&mut message[..Probe::LEN]).try_into().expect("invariant: just cut to this length");
        message[Probe::ANEW..].copy_from_slice(&Probe::anew(seq, time));
    }

    /// The header of a message; `None` for any other.
    #[inline]
    pub fn parse(message: &[u8]) -> Option<Probe> {
        let behind = message.get(Probe::LEN..Probe::LEN_SKIPPED);
        // Of a known length: bounds are looked at once.
        let message = message.first_chunk::<{ Probe::LEN }>()?;
        let [m0, m1, m2, m3, s0, s1, n0, n1, n2, n3, time @ ..] = *message;
        let stream = u16::from_le_bytes([s0, s1]);
        let skipped = match [m0, m1, m2, m3] {
            MAGIC => None,
            MAGIC_SKIPPED => Some(u32::from_le_bytes(*behind?.first_chunk()?)),
            _ => return None,
        };
        Some(Probe {
            stream: stream & !LAUNCH,
            seq: u32::from_le_bytes([n0, n1, n2, n3]),
            time: Instant::from_ns(i64::from_le_bytes(time)),
            is_launch: stream & LAUNCH != 0,
            skipped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_header_is_known_again() {
        for (stream, is_launch) in [(0, false), (7, true), (Probe::MAX_STREAM, true)] {
            let time = Instant::from_ns(-3);
            let probe = Probe { stream, seq: u32::MAX, time, is_launch, skipped: None };
            let mut message = [0xaa; 20];
            probe.write(&mut message);
            assert_eq!(Probe::parse(&message), Some(probe));
            assert_eq!(message[18..], [0xaa; 2]);
            assert_eq!(Probe::parse(&message[..Probe::LEN]), Some(probe));
            assert_eq!(Probe::parse(&message[..17]), None);
            let mut other = message;
            Probe::renew(&mut other, 5, Instant::from_ns(6));
            let renewed = Probe { seq: 5, time: Instant::from_ns(6), ..probe };
            assert_eq!(Probe::parse(&other), Some(renewed));
            let skipped = Some(0x0102_0304);
            let says = Probe { skipped, ..probe };
            let mut longer = [0xaa; 24];
            says.write(&mut longer);
            assert_eq!(Probe::parse(&longer), Some(says));
            assert_eq!((&longer[18..22], &longer[22..]), (&[4, 3, 2, 1][..], &[0xaa; 2][..]));
            assert_eq!(Probe::parse(&longer[..21]), None);
            message[0] ^= 1;
            assert_eq!(Probe::parse(&message), None);
        }
    }
}

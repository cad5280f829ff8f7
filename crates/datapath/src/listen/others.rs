// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that came and have no header of a stream: who sent them, what they are and how many.
//! None of them counts as absent.

use std::fmt;

use timewire_base::wire::Frame;

use super::StreamSource;
use crate::probe::Probe;
use crate::ptp_frame::{ETHERTYPE, source_of_frame};

/// What one message is, as far as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind {
    /// Who sends it.
    pub from: StreamSource,
    /// Of a frame.
    pub ethertype: Option<u16>,
    /// Of a frame with UDP.
    pub to_port: Option<u16>,
    /// Why it is of no stream.
    pub reason: OtherReason,
}

/// Why a message is of no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherReason {
    /// Less than the header.
    TooShort,
    /// The header says that it is longer than the message.
    Cut,
    /// A numbered message of a program of an experiment.
    Experiment,
    /// IP that carries no UDP, or a fragment of it, or that is cut.
    NoUdp,
    /// A message of PTP that carries no number of a talker.
    Ptp,
    /// Fewer bytes than Ethernet's header.
    NoFrame,
    /// It begins with something else.
    NoHeader,
}

impl fmt::Display for OtherReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OtherReason::TooShort => "shorter than the header of a stream, 18 bytes",
            OtherReason::Cut => "the header TWs2 has 22 bytes, and the message is shorter",
            OtherReason::Experiment => {
                "a message of an experiment's program (TWm1), without stream"
            }
            OtherReason::NoUdp => "IP without UDP, a fragment, or cut",
            OtherReason::Ptp => "a message of PTP without the number of a talker",
            OtherReason::NoFrame => "shorter than the header of Ethernet, 14 bytes",
            OtherReason::NoHeader => "neither TWs1 nor TWs2 at its start",
        })
    }
}

/// Kinds that are told apart.
const MAX_KINDS: usize = 64;

/// Counts them; nothing is allocated while it counts.
#[derive(Clone, Debug)]
pub(super) struct Others {
    kinds: Vec<(OtherKind, u64)>,
    /// Messages of kinds beyond the most.
    more: u64,
    /// Where the last one was found.
    last: usize,
}

impl Others {
    pub(super) fn new() -> Others {
        Others { kinds: Vec::with_capacity(MAX_KINDS), more: 0, last: 0 }
    }

    #[cold]
    pub(super) fn count(&mut self, bytes: &[u8], length: usize, from: Option<StreamSource>) {
        let kind = match from {
            Some(from) => OtherKind { from, ethertype: None, to_port: None, reason: why(bytes) },
            None => of_frame(bytes, length),
        };
        let at = match self.kinds.get(self.last) {
            Some((known, _)) if *known == kind => Some(self.last),
            _ => self.kinds.iter().position(|(known, _)| *known == kind),
        };
        match at {
            Some(at) => {
                self.kinds[at].1 += 1;
                self.last = at;
            }
            None if self.kinds.len() < MAX_KINDS => self.kinds.push((kind, 1)),
            None => self.more += 1,
        }
    }

    pub(super) fn kinds(&self) -> &[(OtherKind, u64)] {
        &self.kinds
    }

    pub(super) fn more(&self) -> u64 {
        self.more
    }
}

fn of_frame(bytes: &[u8], length: usize) -> OtherKind {
    let frame = Frame::parse(bytes);
    let ethertype = frame.and_then(|frame| frame.ethertype());
    let reason = match frame.map(|frame| frame.content_of(length)) {
        None => OtherReason::NoFrame,
        Some(None) => OtherReason::NoUdp,
        Some(_) if ethertype == Some(ETHERTYPE) => OtherReason::Ptp,
        Some(Some(content)) => why(content),
    };
    let to_port = frame.and_then(|frame| Some(frame.udp_of(length)?.destination.port()));
    OtherKind { from: source_of_frame(bytes, length), ethertype, to_port, reason }
}

/// Why a message has no header.
fn why(message: &[u8]) -> OtherReason {
    if message.get(4..).is_some_and(|behind| behind.starts_with(b"TWm1")) {
        return OtherReason::Experiment;
    }
    match message.len() {
        0..Probe::LEN => OtherReason::TooShort,
        _ if message.starts_with(b"TWs2") => OtherReason::Cut,
        _ => OtherReason::NoHeader,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message, who sent it over UDP, and what is told of it.
    type Row<'a> = (&'a [u8], Option<StreamSource>, OtherReason, Option<u16>);

    #[test]
    fn t0_each_message_without_a_header_is_named_and_counted_in_a_bounded_table() {
        let mut others = Others::new();
        let udp = |n: u16| Some(StreamSource::Udp(([10, 0, 0, 1], n).into()));
        let frame = |ethertype: [u8; 2], content: &[u8]| {
            [&[1; 6][..], &[2, 0, 0, 0, 0, 7], &ethertype, content].concat()
        };
        let arp = frame([8, 6], &[0; 46]);
        let tcp = frame([8, 0], &[&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6][..], &[0; 36]].concat());
        let table: [Row<'_>; 7] = [
            (b"hello", udp(9), OtherReason::TooShort, None),
            (&[7; 40], udp(9), OtherReason::NoHeader, None),
            (b"TWs2..............+++", udp(9), OtherReason::Cut, None),
            (b"....TWm1", udp(9), OtherReason::Experiment, None),
            (&arp, None, OtherReason::NoHeader, Some(0x0806)),
            (&tcp, None, OtherReason::NoUdp, Some(0x0800)),
            (&[1; 9], None, OtherReason::NoFrame, None),
        ];
        for (bytes, from, ..) in table {
            others.count(bytes, bytes.len(), from);
            others.count(bytes, bytes.len(), from);
        }
        let told: Vec<_> =
            others.kinds().iter().map(|(it, n)| (it.reason, it.ethertype, *n)).collect();
        assert_eq!(told, table.map(|(_, _, reason, ethertype)| (reason, ethertype, 2)));
        // Every message from another port.
        for port in 1_000..3_000 {
            others.count(b"hello", 5, udp(port));
        }
        let counted: u64 = others.kinds().iter().map(|(_, count)| count).sum();
        assert_eq!((others.kinds().len(), counted + others.more()), (MAX_KINDS, 14 + 2_000));
        assert!(others.more() > 1_900);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that came and are not understood: which, why, of which stream, and how many. None of
//! them counts as absent.

use crate::listen::StreamSource;
use serde::{Deserialize, Serialize};
use timewire_avtp::AvtpError;
use timewire_avtp::pdu::{CommonHeader, CvfFormat, Pdu, StreamId, subtype_name};
use timewire_base::wire::MacAddress;

/// Packets of one kind that are not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotUnderstood {
    /// Their kind, by subtype: `IEC 61883/IIDC (subtype 0x00)`.
    pub format: String,
    /// What was read where, and what would be right.
    pub reason: String,
    /// Where that is, from the start of the packet; `null` where no one place is at fault.
    /// **Units**: bytes.
    pub offset: Option<usize>,
    /// The stream that they name; `null` when they name none.
    pub stream: Option<String>,
    /// Whether it is the stream that was listened to, or any where none was named or heard.
    pub wanted: bool,
    /// How many.
    pub packets: u64,
}

impl NotUnderstood {
    /// In one line.
    pub fn describe(&self) -> String {
        let of = match &self.stream {
            Some(stream) => format!("of stream {stream} "),
            None => String::new(),
        };
        format!("{} packets {of}are not understood: {}: {}", self.packets, self.format, self.reason)
    }
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It cannot be read.
    Error(AvtpError),
    /// It was read, and is not what this listener takes.
    Kind(&'static str),
}

/// A stream's packets that another talker than its first one sent: both chose one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// Who sent the first packet, and those that were taken.
    pub talker: String,
    /// Who else sends with the name; of more than 16, the first.
    pub others: Vec<String>,
    /// Their packets, which were left out.
    pub packets: u64,
    /// Of these, packets of talkers beyond those in `others`.
    pub of_further: u64,
}

impl Clash {
    /// In one line.
    pub fn describe(&self) -> String {
        let further = match self.of_further {
            0 => String::new(),
            packets => format!(" and further talkers ({packets} packets)"),
        };
        format!(
            "clash: {} packets of the stream came from {}{further}, not from {}, and were left out",
            self.packets,
            self.others.join(", "),
            self.talker
        )
    }
}

/// Who sends a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Talkers {
    first: Option<MacAddress>,
    others: Vec<MacAddress>,
    packets: u64,
    of_further: u64,
}

/// Other talkers that are told apart.
const MAX_TALKERS: usize = 16;

impl Talkers {
    /// Whether a packet is of the talker that was heard first.
    pub fn is_first(&mut self, source: MacAddress) -> bool {
        if *self.first.get_or_insert(source) == source {
            return true;
        }
        self.packets += 1;
        if !self.others.contains(&source) {
            match self.others.len() < MAX_TALKERS {
                true => self.others.push(source),
                false => self.of_further += 1,
            }
        }
        false
    }

    /// What is to be told.
    pub fn clash(&self) -> Option<Clash> {
        let text = |address: &MacAddress| StreamSource::Frames(*address).to_string();
        let talker = text(self.first.as_ref().filter(|_| self.packets > 0)?);
        let others = self.others.iter().map(text).collect();
        let (packets, of_further) = (self.packets, self.of_further);
        Some(Clash { talker, others, packets, of_further })
    }
}

/// Counts them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread {
    kinds: Vec<(u8, Why, Option<StreamId>, u64)>,
    /// Those beyond the most kinds.
    more: u64,
}

/// Kinds that are told apart.
const MAX_KINDS: usize = 64;

impl Unread {
    /// A packet that cannot be read.
    pub fn failed(&mut self, payload: &[u8], error: AvtpError) {
        self.count(payload, Why::Error(error));
    }

    /// A packet that was read, and is not what the listener takes.
    pub fn not_taken(&mut self, payload: &[u8], packet: &Pdu<'_>, takes: &'static str) {
        let why = match packet {
            Pdu::Aaf(aaf) if aaf.samples.is_empty() => "it has no samples",
            Pdu::Cvf(cvf) => match cvf.format {
                CvfFormat::Mjpeg => "format_subtype at byte 17 is MJPEG; only H.264 is taken",
                CvfFormat::Jpeg2000 => {
                    "format_subtype at byte 17 is JPEG 2000; only H.264 is taken"
                }
                CvfFormat::H264 { .. } => takes,
            },
            _ => takes,
        };
        self.count(payload, Why::Kind(why));
    }

    fn count(&mut self, payload: &[u8], why: Why) {
        let subtype = payload.first().copied().unwrap_or_default();
        let stream = CommonHeader::stream_of(payload);
        // The length that a short packet has makes no kind of its own.
        let same = |other: &Why| match (why, *other) {
            (
                Why::Error(AvtpError::Truncated { field, offset, .. }),
                Why::Error(AvtpError::Truncated { field: f, offset: o, .. }),
            ) => (field, offset) == (f, o),
            (one, other) => one == other,
        };
        let is_known = |(s, w, id, _): &(u8, Why, Option<StreamId>, u64)| {
            *s == subtype && *id == stream && same(w)
        };
        match self.kinds.iter().position(is_known) {
            Some(at) => self.kinds[at].3 += 1,
            None if self.kinds.len() == MAX_KINDS => self.more += 1,
            None => self.kinds.push((subtype, why, stream, 1)),
        }
    }

    /// What there was, for who listened to this stream, or to the first that is heard.
    pub fn told(&self, wanted: Option<StreamId>) -> Vec<NotUnderstood> {
        let one = |&(subtype, why, stream, packets): &(u8, Why, Option<StreamId>, u64)| {
            let (reason, offset) = match why {
                Why::Error(error) => (error.to_string(), error.offset()),
                Why::Kind(what) => (what.to_owned(), None),
            };
            let name = subtype_name(subtype).unwrap_or("reserved");
            NotUnderstood {
                format: format!("{name} (subtype {subtype:#04x} at byte 0)"),
                reason,
                offset,
                stream: stream.map(|stream| stream.to_string()),
                wanted: stream.is_some() && wanted.is_none_or(|wanted| stream == Some(wanted)),
                packets,
            }
        };
        let mut all: Vec<NotUnderstood> = self.kinds.iter().map(one).collect();
        if self.more > 0 {
            all.push(NotUnderstood {
                format: "others".to_owned(),
                reason: format!("of more than {MAX_KINDS} kinds and streams"),
                offset: None,
                stream: None,
                wanted: true,
                packets: self.more,
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each subtype, with two versions and all formats of audio and video: a packet
    /// of the stream is read, or it is named with its place and counted.
    #[test]
    fn t0_packets_of_a_stream_are_read_or_named_whatever_they_are() {
        let stream = StreamId::new(MacAddress([2, 0, 0, 0, 0, 1]), 7);
        let (mut read, mut named) = (0_u32, 0_u32);
        for subtype in 0..=u8::MAX {
            for format in 0..=u8::MAX {
                for version in [0, 1] {
                    let mut packet = vec![0; 64];
                    (packet[0], packet[1]) = (subtype, 0x81 | version << 4);
                    packet[4..12].copy_from_slice(&stream.bits().to_be_bytes());
                    packet[16..20].copy_from_slice(&[format, 0x50, 2, 16]);
                    packet[21] = 24;
                    let mut unread = Unread::default();
                    match Pdu::parse(&packet) {
                        Ok(pdu) => {
                            read += 1;
                            unread.not_taken(&packet, &pdu, "another kind is recorded");
                        }
                        Err(error) => unread.failed(&packet, error),
                    }
                    let told = unread.told(Some(stream));
                    let [one] = &told[..] else { panic!("{told:?}") };
                    assert!(one.wanted && one.packets == 1, "{one:?}");
                    assert!(one.format.contains(&format!("{subtype:#04x}")), "{one:?}");
                    if Pdu::parse(&packet).is_err() {
                        named += 1;
                        let at = one.offset.expect("a place");
                        assert!(one.reason.contains(&format!("byte {at}")), "{one:?}");
                    }
                    assert!(!unread.told(Some(StreamId::from_bits(1)))[0].wanted);
                }
            }
        }
        assert!(read > 200 && named > 100_000, "{read} read, {named} named");
    }

    #[test]
    fn t0_talkers_are_bounded_and_none_is_forgotten() {
        let mut talkers = Talkers::default();
        for n in 0..=20_u8 {
            for _ in 0..2 {
                assert_eq!(talkers.is_first(MacAddress([2, 0, 0, 0, 0, n])), n == 0);
            }
        }
        let clash = talkers.clash().unwrap();
        assert_eq!((clash.others.len(), clash.packets, clash.of_further), (16, 40, 8));
        assert!(clash.describe().contains("and further talkers (8 packets), not from"));
    }

    #[test]
    fn t0_kinds_are_bounded_and_none_is_forgotten() {
        let mut unread = Unread::default();
        for number in 0..1_000_u64 {
            let mut packet = [0; 64];
            packet[1] = 0x80;
            packet[4..12].copy_from_slice(&number.to_be_bytes());
            unread.failed(&packet, Pdu::parse(&packet).unwrap_err());
        }
        let told = unread.told(None);
        assert_eq!(told.len(), MAX_KINDS + 1);
        assert_eq!(told.iter().map(|it| it.packets).sum::<u64>(), 1_000);
        assert!(told[0].format.starts_with("IEC 61883/IIDC"), "{told:?}");
        let mut short = Unread::default();
        for length in 0..2 {
            short.failed(&[0x02; 1][..length], Pdu::parse(&[0x02; 1][..length]).unwrap_err());
        }
        assert_eq!(short.told(None).iter().map(|it| it.packets).sum::<u64>(), 2);
    }
}

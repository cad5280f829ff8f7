// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of the frames that a talker makes itself: Ethernet, perhaps a VLAN tag, perhaps UDP
//! over IPv4, or a PTP message around ours.
//!
//! **Source**: IEEE Std 802.1Q-2022, 9.6 (the tag); RFC 791, RFC 768.

use std::net::SocketAddrV4;

use timewire_base::Instant;

use crate::probe::Probe;
use crate::ptp_frame::{self, PtpProbe};

/// What stands before the message in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Who sends; `None` for the interface's own address.
    pub source: Option<[u8; 6]>,
    /// Who receives.
    pub destination: [u8; 6],
    /// A customer VLAN tag.
    pub vlan: Option<VlanTag>,
    /// What the frame carries.
    pub content: FrameContent,
}

/// A customer VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// 0 (priority only) to 4094.
    pub vid: u16,
    /// 0 to 7.
    pub pcp: u8,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameContent {
    /// The message, after this EtherType.
    EtherType(u16),
    /// The message in UDP over IPv4, without UDP checksum.
    Udp {
        /// Source.
        from: SocketAddrV4,
        /// Destination.
        to: SocketAddrV4,
        /// The byte with DSCP and ECN.
        traffic_class: u8,
    },
    /// The message in a TLV of a PTP Sync message, for NICs that timestamp no other frames
    /// ([`crate::ptp_frame`]). Not for streams that are posted.
    Ptp {
        /// The PTP domain; it must be none that a clock of the segment is in.
        domain: u8,
    },
}

/// **Units**: bytes; shorter frames are filled up with zeros.
const SHORTEST: usize = 60;
const LONGEST: usize = 18 + PTP;
const IPV4: usize = 20;
const UDP: usize = 8;
const PTP: usize = ptp_frame::CONTENT - Probe::LEN;
/// Where the sequence number is in a PTP message.
const PTP_SEQUENCE: usize = 30;

/// A header ready to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    bytes: [u8; LONGEST],
    length: usize,
    /// Where the IPv4 header starts, if there is one.
    ip: Option<usize>,
    /// Where the PTP message starts, if there is one.
    ptp: Option<usize>,
}

impl Template {
    /// No header: the socket makes it.
    pub(crate) const NONE: Template =
        Template { bytes: [0; LONGEST], length: 0, ip: None, ptp: None };

    pub(crate) fn new(header: &FrameHeader, own: [u8; 6]) -> Template {
        let mut template = Template::NONE;
        template.put(&header.destination);
        template.put(&header.source.unwrap_or(own));
        if let Some(VlanTag { vid, pcp }) = header.vlan {
            template.put(&[0x81, 0]);
            template.put(&(u16::from(pcp) << 13 | vid).to_be_bytes());
        }
        match header.content {
            FrameContent::EtherType(number) => template.put(&number.to_be_bytes()),
            FrameContent::Udp { from, to, traffic_class } => {
                template.put(&[8, 0]);
                template.ip = Some(template.length);
                // Version and length, class, total length, identification, do not fragment.
                template.put(&[0x45, traffic_class, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
                template.put(&from.ip().octets());
                template.put(&to.ip().octets());
                template.put(&from.port().to_be_bytes());
                template.put(&to.port().to_be_bytes());
                template.put(&[0; 4]);
            }
            FrameContent::Ptp { domain } => {
                template.put(&ptp_frame::ETHERTYPE.to_be_bytes());
                template.ptp = Some(template.length);
                let time = Instant::from_ns(0);
                let probe = Probe { stream: 0, seq: 0, time, is_launch: false, skipped: None };
                let mut message = [0; ptp_frame::CONTENT];
                PtpProbe { domain, probe }.write(header.source.unwrap_or(own), &mut message);
                template.put(&message[..PTP]);
            }
        }
        template
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// **Units**: bytes of the whole message or frame with so long a content.
    #[inline]
    pub(crate) fn total(&self, content: usize) -> usize {
        let total = self.length + content;
        if self.length == 0 { total } else { total.max(SHORTEST) }
    }

    /// The whole message with a content of zeros: what all messages with so long a content have in
    /// common.
    pub(crate) fn image(&self, content: usize) -> Box<[u8]> {
        let mut image = vec![0; self.total(content)].into_boxed_slice();
        self.write(&mut image, content, 0);
        image
    }

    /// Where the content starts, if it is all that differs from one message to the next.
    pub(crate) fn content(&self) -> Option<usize> {
        self.ptp.is_none().then_some(self.length)
    }

    /// Makes the message of an image that was copied into a buffer the one of this number, and
    /// returns where its content is to be written.
    #[inline]
    pub(crate) fn number<'a>(
        &self,
        buffer: &'a mut [u8],
        content: usize,
        seq: u32,
    ) -> &'a mut [u8] {
        if let Some(ptp) = self.ptp {
            let [.., high, low] = seq.to_be_bytes();
            buffer[ptp + PTP_SEQUENCE..ptp + PTP_SEQUENCE + 2].copy_from_slice(&[high, low]);
        }
        &mut buffer[self.length..self.length + content]
    }

    /// Writes the header to the start of a buffer of [`Template::total`] bytes, zeros to its end,
    /// and returns where the content is to be written. PTP has the lower half of the number.
    pub(crate) fn write<'a>(&self, buffer: &'a mut [u8], content: usize, seq: u32) -> &'a mut [u8] {
        let (header, rest) = buffer.split_at_mut(self.length);
        header.copy_from_slice(&self.bytes[..self.length]);
        if let Some(ptp) = self.ptp {
            let [.., high, low] = seq.to_be_bytes();
            header[ptp + PTP_SEQUENCE..ptp + PTP_SEQUENCE + 2].copy_from_slice(&[high, low]);
        }
        if let Some(ip) = self.ip {
            let length = |bytes: usize| {
                u16::try_from(bytes).expect("invariant: a frame fits its interface").to_be_bytes()
            };
            header[ip + 2..ip + 4].copy_from_slice(&length(IPV4 + UDP + content));
            let sum = checksum(&header[ip..ip + IPV4]);
            header[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            header[ip + IPV4 + 4..ip + IPV4 + 6].copy_from_slice(&length(UDP + content));
        }
        let (content, padding) = rest.split_at_mut(content);
        padding.fill(0);
        content
    }
}

/// Of a header whose own checksum is zero (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("invariant: folded twice")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_headers_are_as_on_the_link() {
        let mut header = FrameHeader {
            source: None,
            destination: [1, 2, 3, 4, 5, 6],
            vlan: Some(VlanTag { vid: 5, pcp: 6 }),
            content: FrameContent::EtherType(0x88b5),
        };
        let own = [2, 0, 0, 0, 0, 9];
        let template = Template::new(&header, own);
        let mut frame = vec![0xff; template.total(10)];
        template.write(&mut frame, 10, 0).fill(7);
        assert_eq!(frame[..12], [1, 2, 3, 4, 5, 6, 2, 0, 0, 0, 0, 9]);
        assert_eq!(frame[12..18], [0x81, 0, 0xc0, 5, 0x88, 0xb5]);
        assert_eq!((frame.len(), &frame[18..28], &frame[28..]), (60, &[7; 10][..], &[0; 32][..]));

        header.source = Some([4; 6]);
        header.vlan = None;
        header.content = FrameContent::Udp {
            from: "192.0.2.1:7".parse().unwrap(),
            to: "192.0.2.2:515".parse().unwrap(),
            traffic_class: 0xb8,
        };
        let template = Template::new(&header, own);
        let mut frame = vec![0xff; template.total(100)];
        template.write(&mut frame, 100, 0).fill(8);
        assert_eq!(frame[6..14], [4, 4, 4, 4, 4, 4, 8, 0]);
        // RFC 1071: the sum over a header with its checksum is zero.
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(frame[16..18], 128_u16.to_be_bytes());
        assert_eq!(frame[34..42], [0, 7, 2, 3, 0, 108, 0, 0]);
        assert_eq!((frame.len(), frame[42], frame[141]), (142, 8, 8));
    }
    #[test]
    fn t0_a_ptp_message_is_as_written_in_one_piece() {
        let (own, time) = ([2, 0, 0, 0, 0, 9], Instant::from_ns(5));
        let probe = Probe { stream: 7, seq: 0x0001_0203, time, is_launch: true, skipped: None };
        let ours = PtpProbe { domain: 200, probe };
        let vlan = Some(VlanTag { vid: 5, pcp: 6 });
        for (vlan, start) in [(None, 14), (vlan, 18)] {
            let content = FrameContent::Ptp { domain: 200 };
            let header = FrameHeader { source: None, destination: [1; 6], vlan, content };
            let template = Template::new(&header, own);
            let mut frame = vec![0xff; template.total(Probe::LEN + 3)];
            let message = template.write(&mut frame, Probe::LEN + 3, probe.seq);
            probe.write(message);
            message[Probe::LEN..].fill(0);
            let mut whole = vec![0; ptp_frame::CONTENT + 3];
            ours.write(own, &mut whole);
            assert_eq!(frame[start - 2..start], [0x88, 0xf7]);
            assert_eq!(frame[start..], whole);
            assert_eq!(ptp_frame::probe_of_frame(&frame, frame.len()), Some(probe));
        }
    }
}

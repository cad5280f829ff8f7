// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a stream's frames go: their Ethernet header, and what is behind it.

use timewire_avtp::pdu::{ETHERTYPE, StreamId};
use timewire_base::wire::{ETHERTYPE_VLAN, Frame, MacAddress};

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The VLAN, 0 to 4094.
    pub vid: u16,
    /// The priority code point, 0 to 7.
    pub pcp: u8,
}

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination.
    pub to: MacAddress,
    /// The tag; `None` on an interface that tags itself.
    pub tag: Option<Tag>,
}

/// The destination of a stream that is told none: of the addresses that are an administrator's to
/// give, the one with the last byte of the stream's number.
///
/// **Source**: IEEE 1722-2016, Annex B, Table B.9 (MAAP locally administered pool).
pub fn default_destination(stream: StreamId) -> MacAddress {
    let [.., low] = stream.bits().to_be_bytes();
    MacAddress([0x91, 0xe0, 0xf0, 0x00, 0xfe, low])
}

/// **Units**: bytes.
const TAG_BYTES: usize = 4;
/// Two addresses.
const ADDRESSES: usize = 12;

impl Route {
    /// The header of frames that come from this address.
    pub(super) fn header(&self, source: MacAddress) -> Vec<u8> {
        let mut header = Vec::with_capacity(ADDRESSES + TAG_BYTES + 2);
        header.extend(self.to.0);
        header.extend(source.0);
        if let Some(Tag { vid, pcp }) = self.tag {
            header.extend(ETHERTYPE_VLAN.to_be_bytes());
            header.extend((u16::from(pcp) << 13 | vid).to_be_bytes());
        }
        header.extend(ETHERTYPE.to_be_bytes());
        header
    }
}

/// What is behind the EtherType of a frame, which may have up to two tags; `None` when it is not
/// IEEE 1722.
pub fn payload(frame: &[u8]) -> Option<&[u8]> {
    let frame = Frame::parse(frame).filter(|frame| frame.ethertype() == Some(ETHERTYPE))?;
    Some(frame.payload())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_is_behind_a_header_is_found_behind_up_to_two_tags() {
        let to = default_destination(StreamId::new(MacAddress([2, 0, 0, 0, 0, 1]), 0x0307));
        assert_eq!(to.to_string(), "91:e0:f0:00:fe:07");
        for tag in [None, Some(Tag { vid: 0x0abc, pcp: 5 })] {
            let mut frame = Route { to, tag }.header(MacAddress([2, 0, 0, 0, 0, 1]));
            assert_eq!(frame.len(), if tag.is_some() { 18 } else { 14 });
            if tag.is_some() {
                assert_eq!(frame[12..16], [0x81, 0, 0xaa, 0xbc]);
            }
            assert_eq!(payload(&frame), Some(&[][..]));
            frame.extend([1, 2, 3]);
            assert_eq!(payload(&frame), Some(&[1, 2, 3][..]));
            for _ in 0..2 {
                frame.splice(12..12, [0x88, 0xa8, 0, 1]);
            }
            let expected = if tag.is_some() { None } else { Some(&[1, 2, 3][..]) };
            assert_eq!(payload(&frame), expected);
            assert_eq!(payload(&frame[..13]), None);
        }
        assert_eq!(payload(&[0; 60]), None);
    }
}

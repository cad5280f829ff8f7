// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packet it is: a tag that is the same on every host that the packet passes.
//!
//! 1. The user may say where in the payload a tag of their own lies ([`TagPlace`]).
//! 2. Messages with Timewire's own header have their number: `TWs1` or `TWs2` (of a talker) the
//!    stream and the number in it, `TWm1` (of an experiment) the number.
//! 3. Of anything else it is made of what headers say and no bridge changes, and of content.
//!
//! **Shape** of a tag: the upper 32 bits are a hash of whose packet it is: IP addresses, protocol
//! and ports; of what is not IP, MAC addresses and EtherType. Of `TWs1` and `TWs2`, the lower 16
//! of them are the stream instead. The lower 32 bits are the number, or a hash of content: the
//! first 64 bytes of the payload, its length, and of IPv4 the number of the packet and the place of
//! a fragment. A tag of the user's that is 8 bytes wide is the whole tag. A tag is never 0.
//!
//! The payload is what stands behind UDP's header, behind TCP's ports (without its checksum, which
//! a NIC may fill in), behind the IP header of anything else, and behind EtherType and VLAN tags
//! of what is not IP, where it is taken for 46 bytes long when it is shorter, since a NIC fills it
//! up. The correction field of PTP's messages, to which switches add, is taken for 0.
//!
//! What is not in it: VLAN tags, TTL, DSCP, checksums.

use timewire_base::wire::{Frame, IpHeader};

use crate::event::Flags;
use crate::filter::{Facts, KEY_WORDS, kind, word};

/// Where in the payload of packets the user's own tag lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagPlace {
    /// **Units**: bytes from the start of the payload.
    pub offset: u16,
    /// **Units**: bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// Whether the first byte is the most significant one.
    pub big_endian: bool,
}

/// Which packet it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The tag.
    pub tag: u64,
    /// [`Flags::TAGGED`], or nothing.
    pub flags: Flags,
}

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// **Units**: bytes of the payload that the hash is made of.
const CONTENT: usize = 64;
/// **Units**: bytes that a frame carries at least.
const MIN_PAYLOAD: usize = 46;
const UDP: u8 = 17;
const TCP: u8 = 6;
const PTP: u16 = 0x88f7;
/// UDP port of PTP's messages that have a correction.
const PTP_EVENT: u16 = 319;

/// Where the payload lies, and what belongs to it.
struct Payload {
    start: usize,
    length: usize,
    /// Number and fragment of IPv4.
    id: u64,
    /// Whether the second 8 bytes of the content are left out.
    corrected: bool,
    /// Whether TCP's checksum is.
    checked: bool,
}

/// The identity of a frame from its destination address on, without the check sequence. `None` for
/// fewer than 14 bytes.
pub fn identify(frame: &[u8], place: Option<TagPlace>) -> Option<Identity> {
    let facts = Facts::of_frame(frame)?;
    let payload = Payload::of(&Frame::parse(frame)?, &facts);
    let keys = facts.keys();
    let flow = flow_hash(&keys.words, facts.kind);
    let there = frame.get(payload.start..).unwrap_or_default();
    let there = &there[..there.len().min(payload.length)];
    let tagged = |tag: u64| Some(Identity { tag: tag.max(1), flags: Flags::TAGGED });
    if let Some(value) = place.and_then(|place| user_tag(there, place)) {
        return tagged(if place?.width == 8 { value } else { flow << 32 | value });
    }
    let mut content = [0; CONTENT];
    let n = there.len().min(CONTENT);
    content[..n].copy_from_slice(&there[..n]);
    let mut words = [0; CONTENT / 8];
    for (word, bytes) in words.iter_mut().zip(content.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    if n >= 18 && (content.starts_with(b"TWs1") || content.starts_with(b"TWs2")) {
        let flow = flow & 0xffff_0000 | words[0] >> 32 & 0x7fff;
        return tagged(flow << 32 | words[0] >> 48 | (words[1] & 0xffff) << 16);
    }
    if n >= 8 && content[4..].starts_with(b"TWm1") {
        return tagged(flow << 32 | words[0] & 0xffff_ffff);
    }
    if payload.corrected {
        words[1] = 0;
    }
    if payload.checked {
        words[1] &= !0xffff_0000_0000;
    }
    let state = words.into_iter().fold(MIX, mix);
    let length = u64::try_from(payload.length).expect("invariant: usize fits u64");
    let tag = flow << 32 | mix(state, payload.id << 32 | length) >> 32;
    Some(Identity { tag: tag.max(1), flags: Flags::default() })
}

/// Whether a packet of that tag is among those that are kept when one of so many is. All hosts keep
/// the same ones.
pub fn is_kept(tag: u64, one_of: u32) -> bool {
    one_of <= 1 || ((tag.wrapping_mul(MIX) >> 32) * u64::from(one_of)) >> 32 == 0
}

impl Payload {
    fn of(headers: &Frame<'_>, facts: &Facts) -> Payload {
        let (start, packet) = (headers.payload_at(), headers.payload());
        let mut payload = Payload {
            start,
            length: packet.len().max(MIN_PAYLOAD),
            id: 0,
            corrected: facts.ether_type == PTP,
            checked: false,
        };
        match headers.ip() {
            Some(ip @ IpHeader::V4(_)) => {
                let (number, fragment) = ip.fragment();
                payload.behind(packet, ip.header_length(), ip.length_field());
                payload.id = u64::from(number) | u64::from(fragment) << 16;
                if fragment == 0 {
                    payload.behind_ports(facts);
                }
            }
            Some(ip @ IpHeader::V6(_)) => {
                let length = ip.length_field();
                let total = if length == 0 { 0 } else { length.saturating_add(40) };
                payload.behind(packet, ip.header_length(), total);
                payload.behind_ports(facts);
            }
            None => {}
        }
        payload
    }

    /// Behind an IP header of a packet that says how long it is; what cannot be is not believed.
    fn behind(&mut self, packet: &[u8], header: usize, total: u16) {
        let total = usize::from(total);
        let all = packet.len();
        let total = if total < header || total > all { all } else { total };
        self.start += header;
        self.length = total.saturating_sub(header);
    }

    fn behind_ports(&mut self, facts: &Facts) {
        let Some((_, to)) = facts.ports else { return };
        let skipped = match facts.protocol {
            Some(UDP) if self.length >= 8 => 8,
            Some(TCP) if self.length >= 20 => 4,
            _ => return,
        };
        self.start += skipped;
        self.length -= skipped;
        self.checked = skipped == 4;
        self.corrected = skipped == 8 && to == PTP_EVENT;
    }
}

fn user_tag(payload: &[u8], place: TagPlace) -> Option<u64> {
    let (offset, width) = (usize::from(place.offset), usize::from(place.width));
    let bytes = payload.get(offset..offset + width).filter(|bytes| !bytes.is_empty())?;
    let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(if place.big_endian {
        bytes.iter().fold(0, shift)
    } else {
        bytes.iter().rev().fold(0, shift)
    })
}

fn flow_hash(words: &[u64; KEY_WORDS], kind: u16) -> u64 {
    let at = |word: u8| words[usize::from(word)];
    if kind & kind::IP == 0 {
        let state = mix(MIX, at(word::ETHER_DESTINATION));
        return mix(state, at(word::ETHER_SOURCE) & word::MAC) >> 32;
    }
    let state = mix(MIX, at(word::SOURCE) ^ u64::from(kind));
    let state = mix(state, at(word::SOURCE_LOW));
    let state = mix(state, at(word::DESTINATION));
    let state = mix(state, at(word::DESTINATION_LOW));
    mix(state, at(word::SOURCE_PORT) << 32 | at(word::DESTINATION_PORT)) >> 32
}

fn mix(state: u64, word: u64) -> u64 {
    let state = (state ^ word).wrapping_mul(MIX);
    state ^ state >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(payload: &[u8], tag: Option<[u8; 2]>, ttl: u8, to: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if let Some(tag) = tag {
            frame.extend([0x81, 0]);
            frame.extend(tag);
        }
        let length = u16::try_from(payload.len()).unwrap();
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((length + 28).to_be_bytes());
        frame.extend([0, 9, 0x40, 0, ttl, 17, ttl, 1, 10, 0, 0, 1]);
        frame.extend(to);
        frame.extend([0x1b, 0x58, 0x1b, 0x59]);
        frame.extend((length + 8).to_be_bytes());
        frame.extend([ttl, 0]);
        frame.extend(payload);
        frame
    }

    fn tag(frame: &[u8]) -> u64 {
        let identity = identify(frame, None).unwrap();
        assert_eq!(identity.flags, Flags::default());
        identity.tag
    }

    #[test]
    fn t0_what_bridges_and_routers_change_changes_nothing() {
        let plain = udp(&[7; 20], None, 64, [10, 0, 0, 2]);
        let mut elsewhere = udp(&[7; 20], Some([0x60, 5]), 63, [10, 0, 0, 2]);
        elsewhere[..12].fill(9);
        let mut padded = plain.clone();
        padded.resize(70, 0);
        for same in [&elsewhere, &padded] {
            assert_eq!(tag(same), tag(&plain));
        }
        // Another content, another length, another number; another flow.
        let mut another = plain.clone();
        another[19] ^= 1;
        let others = [
            udp(&[8; 20], None, 64, [10, 0, 0, 2]),
            udp(&[7; 21], None, 64, [10, 0, 0, 2]),
            another,
        ];
        for other in &others {
            assert_eq!(tag(other) >> 32, tag(&plain) >> 32);
            assert_ne!(tag(other), tag(&plain));
        }
        let to_another = udp(&[7; 20], None, 64, [10, 0, 0, 3]);
        assert_ne!(tag(&to_another) >> 32, tag(&plain) >> 32);
    }

    #[test]
    fn t0_short_frames_are_filled_up_and_ptp_is_corrected() {
        let mut sent = [&[1; 6][..], &[2; 6], &[0x88, 0xf7], &[0x10; 44]].concat();
        let mut received = sent.clone();
        received.resize(60, 0);
        assert_eq!(tag(&sent), tag(&received));
        // The correction is in bytes 8 to 16 of the message.
        received[14 + 8..14 + 16].fill(0xcc);
        assert_eq!(tag(&sent), tag(&received));
        received[14 + 16] ^= 1;
        assert_ne!(tag(&sent), tag(&received));
        sent[12] = 0x89;
        received = sent.clone();
        received[14 + 8] ^= 1;
        assert_ne!(tag(&sent), tag(&received));
    }

    #[test]
    fn t0_own_headers_and_tags_of_the_user_are_numbers() {
        let mut message = *b"TWs1\x05\x80\x04\x03\x02\x01........";
        let to = [10, 0, 0, 2];
        let with = |payload: &[u8], place| identify(&udp(payload, None, 1, to), place).unwrap();
        let flow = with(&[0; 30], None).tag >> 32;
        let expected = (flow & 0xffff_0000 | 5) << 32 | 0x0102_0304;
        assert_eq!(with(&message, None), Identity { tag: expected, flags: Flags::TAGGED });
        message[3] = b'2';
        assert_eq!(with(&message, None), Identity { tag: expected, flags: Flags::TAGGED });
        message[0] = b'X';
        assert_eq!(with(&message, None).flags, Flags::default());
        let measured = with(b"\x09\0\0\0TWm1", None);
        assert_eq!(measured, Identity { tag: flow << 32 | 9, flags: Flags::TAGGED });
        let place = |offset, width, big_endian| Some(TagPlace { offset, width, big_endian });
        for (place, tag) in [
            (place(4, 2, false), flow << 32 | 0x8005),
            (place(4, 2, true), flow << 32 | 0x0580),
            (place(10, 8, true), u64::from_be_bytes(*b"........")),
            (place(4, 4, false), flow << 32 | 0x0304_8005),
        ] {
            assert_eq!(with(&message, place), Identity { tag, flags: Flags::TAGGED });
        }
        // It does not lie within the payload.
        assert_eq!(with(&message, place(11, 8, true)).flags, Flags::default());
    }

    #[test]
    fn t0_one_of_so_many_is_kept() {
        for one_of in [1, 2, 10, 1000] {
            let kept = (0..100_000_u64).filter(|n| is_kept(0xabc << 32 | n, one_of)).count();
            let expected = 100_000 / usize::try_from(one_of).unwrap();
            assert!(kept.abs_diff(expected) * 5 <= expected, "1 of {one_of}: {kept}");
        }
    }
}

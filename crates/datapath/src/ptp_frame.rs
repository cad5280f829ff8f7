// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that a NIC takes for PTP event messages, so that one which timestamps no others
//! timestamps ours: a Sync message straight over Ethernet, with our header in a TLV behind it. It
//! is of a PTP domain of its own, so that no clock listens to it.
//!
//! **Source**: IEEE 1588-2019, 13.3 (header), 13.6 (Sync), 14.3 (organization extension TLV),
//! annex E (transport over IEEE 802.3).

use timewire_base::wire::Frame;

use crate::listen::StreamSource;
use crate::probe::Probe;

/// PTP straight over Ethernet.
pub const ETHERTYPE: u16 = 0x88f7;
/// Where PTP event messages go; bridges with PTP keep them, others forward them.
pub const DESTINATION: [u8; 6] = [0x01, 0x1b, 0x19, 0, 0, 0];

/// Header and body of a Sync message.
const SYNC: usize = 44;
/// Type, length, organization and its subtype.
const TLV: usize = 10;
/// **Units**: bytes from the EtherType's end to where the program's own begin.
pub const CONTENT: usize = SYNC + TLV + Probe::LEN;
/// Organization extension, which clocks that do not know it ignore.
const TLV_TYPE: u16 = 0x0003;
/// Locally administered, with a subtype of ours: nobody else's TLV.
const ORGANIZATION: [u8; 6] = [0x02, b'T', b'W', b'T', b'W', 1];
/// The port identity's second half: any but 0.
const PORT: u16 = 1;
/// The interval is not said.
const NO_INTERVAL: u8 = 0x7f;
/// Two steps: a NIC must not write into the message.
const TWO_STEP: u8 = 0x02;

/// What a frame of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtpProbe {
    /// The PTP domain; it must be none that a clock of the segment is in.
    pub domain: u8,
    /// The stream and its message; the PTP sequence number is the lower half of its own.
    pub probe: Probe,
}

impl PtpProbe {
    /// Writes the content of a frame, behind its EtherType ([`ETHERTYPE`]).
    ///
    /// **Panics** when there is less room than [`CONTENT`], or as [`Probe::write`].
    pub fn write(&self, source: [u8; 6], content: &mut [u8]) {
        let message = &mut content[..CONTENT];
        message.fill(0);
        let length = u16::try_from(CONTENT).expect("invariant: small");
        let [a, b, c, d, e, f] = source;
        // Sync of PTP 2.
        message[..2].copy_from_slice(&[0x00, 0x02]);
        message[2..4].copy_from_slice(&length.to_be_bytes());
        message[4] = self.domain;
        message[6] = TWO_STEP;
        message[20..28].copy_from_slice(&[a, b, c, 0xff, 0xfe, d, e, f]);
        message[28..30].copy_from_slice(&PORT.to_be_bytes());
        let [.., high, low] = self.probe.seq.to_be_bytes();
        message[30..32].copy_from_slice(&[high, low]);
        message[33] = NO_INTERVAL;
        let tlv = &mut message[SYNC..];
        let length = u16::try_from(ORGANIZATION.len() + Probe::LEN).expect("invariant: small");
        tlv[..2].copy_from_slice(&TLV_TYPE.to_be_bytes());
        tlv[2..4].copy_from_slice(&length.to_be_bytes());
        tlv[4..TLV].copy_from_slice(&ORGANIZATION);
        self.probe.write(&mut tlv[TLV..]);
    }

    /// Reads the content of a frame, behind its EtherType; `None` for any other message.
    pub fn parse(content: &[u8]) -> Option<PtpProbe> {
        let message = content.get(..CONTENT)?;
        let is_sync = message[0] & 0x0f == 0 && message[1] & 0x0f == 2;
        let length = u16::from_be_bytes([message[2], message[3]]);
        let tlv = &message[SYNC..];
        let is_ours = tlv[..2] == TLV_TYPE.to_be_bytes()
            && usize::from(u16::from_be_bytes([tlv[2], tlv[3]])) == ORGANIZATION.len() + Probe::LEN
            && tlv[4..TLV] == ORGANIZATION;
        if !is_sync || usize::from(length) != CONTENT || !is_ours {
            return None;
        }
        Some(PtpProbe { domain: message[4], probe: Probe::parse(&tlv[TLV..])? })
    }
}

/// The header of ours in a frame that is `length` bytes long, of which only the first may be at
/// hand: in a PTP message, in a UDP message, or behind the EtherType.
#[inline]
pub fn probe_of_frame(frame: &[u8], length: usize) -> Option<Probe> {
    let frame = Frame::parse(frame)?;
    let content = frame.content_of(length)?;
    if frame.ethertype() == Some(ETHERTYPE) {
        return PtpProbe::parse(content).map(|found| found.probe);
    }
    Probe::parse(content)
}

/// Who sent a frame: of UDP the address and port, else the address of the frame.
pub(crate) fn source_of_frame(frame: &[u8], length: usize) -> StreamSource {
    let Some(frame) = Frame::parse(frame) else { return StreamSource::Unknown };
    let udp = frame.udp_of(length);
    udp.map_or(StreamSource::Frames(frame.source()), |udp| StreamSource::Udp(udp.source))
}

/// Whether our header, if a frame has one, is right behind the one EtherType that it has.
pub(crate) fn is_right_behind_ethertype(frame: &[u8]) -> bool {
    Frame::parse(frame).is_some_and(|headers| {
        headers.ethertype() != Some(ETHERTYPE)
            && headers.content().is_some_and(|content| frame.len() - content.len() == 14)
    })
}

#[cfg(test)]
mod tests {
    use timewire_base::Instant;

    use super::*;

    const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn ours() -> PtpProbe {
        let time = Instant::from_ns(1_234_567_890_123);
        let probe = Probe { stream: 7, seq: 0x0001_0203, time, is_launch: true, skipped: None };
        PtpProbe { domain: 200, probe }
    }

    #[test]
    fn t0_a_message_is_a_sync_of_ptp_2_byte_for_byte() {
        let mut content = [0xee; CONTENT + 2];
        ours().write(SOURCE, &mut content);
        let header = [
            0x00, 0x02, 0, 72, 200, 0, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff,
            0xfe, 0, 0, 9, 0, 1, 0x02, 0x03, 0, 0x7f,
        ];
        assert_eq!(content[..34], header);
        assert_eq!(content[34..44], [0; 10]);
        assert_eq!(content[44..54], [0, 3, 0, 24, 2, b'T', b'W', b'T', b'W', 1]);
        assert_eq!(Probe::parse(&content[54..72]), Some(ours().probe));
        assert_eq!(content[72..], [0xee; 2], "the program's own");
    }

    #[test]
    fn t0_only_our_messages_are_read() {
        let mut content = [0; CONTENT];
        ours().write(SOURCE, &mut content);
        assert_eq!(PtpProbe::parse(&content), Some(ours()));
        assert_eq!(PtpProbe::parse(&content[..CONTENT - 1]), None);
        // Another message type, version, length, TLV, organization, header.
        for at in [0, 1, 3, 45, 47, 49, 53, 54] {
            let mut other = content;
            other[at] ^= 1;
            assert_eq!(PtpProbe::parse(&other), None, "byte {at}");
        }
        // A NIC or a bridge may write the correction.
        content[8] = 9;
        assert_eq!(PtpProbe::parse(&content), Some(ours()));
    }

    #[test]
    fn t0_the_header_is_found_in_each_kind_of_frame() {
        let probe = ours().probe;
        let mut plain = [DESTINATION, SOURCE].concat();
        plain.extend([0x81, 0, 0x60, 5]);
        let mut ptp = plain.clone();
        ptp.extend(ETHERTYPE.to_be_bytes());
        ptp.resize(18 + CONTENT, 0);
        ours().write(SOURCE, &mut ptp[18..]);
        assert_eq!(probe_of_frame(&ptp, ptp.len()), Some(probe));
        let mut raw = plain.clone();
        raw.extend([0x88, 0xb5]);
        raw.resize(18 + Probe::LEN, 0);
        probe.write(&mut raw[18..]);
        assert_eq!(probe_of_frame(&raw, raw.len()), Some(probe));
        let mut udp = plain;
        udp.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        udp.resize(18 + 20, 0);
        udp.extend([0, 9, 0, 9, 0, 26, 0, 0]);
        udp.resize(18 + 46, 0);
        probe.write(&mut udp[46..]);
        assert_eq!(probe_of_frame(&udp, udp.len()), Some(probe));
        // The first bytes of a longer one.
        let mut long = udp.clone();
        (long[21], long[43]) = (46 + 100, 26 + 100);
        assert_eq!(probe_of_frame(&long, long.len() + 100), Some(probe));
        assert_eq!(probe_of_frame(&long, long.len() + 99), None);
        let source = source_of_frame(&long, long.len() + 100);
        assert_eq!(source, StreamSource::Udp("0.0.0.0:9".parse().unwrap()));
        udp[17] = 6;
        assert_eq!(probe_of_frame(&udp, udp.len()), None);
    }
}

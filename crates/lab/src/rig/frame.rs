// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames of a rig: which flow they belong to and which of it they are, readable from any
//! header they may have.
//!
//! Not here: sending and receiving (`traffic`).

/// A frame's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    /// Which run of flows, so that what an earlier one left behind is not counted.
    pub run: u16,
    pub flow: u16,
    pub sequence: u32,
}

/// What precedes the identity in a frame that is sent whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub to: [u8; 6],
    pub from: [u8; 6],
    /// VLAN identifier and PCP.
    pub tag: Option<(u16, u8)>,
}

/// A whole frame of this length without check sequence.
pub(super) fn whole(header: &Header, identity: Identity, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(header.to);
    bytes.extend(header.from);
    if let Some((vid, pcp)) = header.tag {
        bytes.extend(TPID.to_be_bytes());
        bytes.extend((u16::from(pcp) << 13 | vid & 0xfff).to_be_bytes());
    }
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(payload(identity, 0));
    bytes.resize(length.max(bytes.len()), 0);
    bytes
}

/// A payload of this length, or as long as the identity needs.
pub(super) fn payload(identity: Identity, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(MARK);
    bytes.extend(identity.run.to_be_bytes());
    bytes.extend(identity.flow.to_be_bytes());
    bytes.extend(identity.sequence.to_be_bytes());
    bytes.resize(length.max(bytes.len()), 0);
    bytes
}

/// The identity of a received frame without its tag; `None` for a frame that is not of a rig.
pub(super) fn identity(frame: &[u8]) -> Option<Identity> {
    let kind = u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?);
    let network = frame.get(14..)?;
    let payload = match kind {
        ETHERTYPE => network,
        0x0800 if network.get(9) == Some(&UDP) => {
            let header = usize::from(network.first()? & 0xf) * 4;
            network.get(header + 8..)?
        }
        0x86dd if network.get(6) == Some(&UDP) => network.get(48..)?,
        _ => return None,
    };
    let rest = payload.strip_prefix(&MARK)?;
    let run = u16::from_be_bytes(rest.get(..2)?.try_into().ok()?);
    let flow = u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?);
    let sequence = u32::from_be_bytes(rest.get(4..8)?.try_into().ok()?);
    Some(Identity { run, flow, sequence })
}

/// For local experiments, by IEEE 802.
const ETHERTYPE: u16 = 0x88b5;
const TPID: u16 = 0x8100;
const UDP: u8 = 17;
const MARK: [u8; 4] = *b"twrg";

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Identity = Identity { run: 2, flow: 3, sequence: 70_000 };

    #[test]
    fn t0_a_frame_has_the_length_and_identity_it_was_made_with() {
        let header = Header { to: [2; 6], from: [4; 6], tag: None };
        let frame = whole(&header, SOME, 60);
        assert_eq!((frame.len(), identity(&frame)), (60, Some(SOME)));
        let tagged = whole(&Header { tag: Some((10, 5)), ..header }, SOME, 60);
        assert_eq!((tagged.len(), &tagged[12..16]), (60, &[0x81, 0, 0xa0, 10][..]));
        // As a receiver sees it: the tag apart.
        let untagged = [&tagged[..12], &tagged[16..]].concat();
        assert_eq!(identity(&untagged), Some(SOME));
    }

    #[test]
    fn t0_an_identity_is_found_behind_udp() {
        let mut v4 = vec![0; 14 + 20 + 8];
        (v4[12], v4[13], v4[14], v4[14 + 9]) = (0x08, 0x00, 0x45, 17);
        v4.extend(payload(SOME, 30));
        assert_eq!(identity(&v4), Some(SOME));
        let mut v6 = vec![0; 14 + 40 + 8];
        (v6[12], v6[13], v6[14 + 6]) = (0x86, 0xdd, 17);
        v6.extend(payload(SOME, 0));
        assert_eq!(identity(&v6), Some(SOME));
        v6[14 + 6] = 58;
        assert_eq!(identity(&v6), None);
        assert_eq!((identity(&[]), identity(&[0; 60])), (None, None));
    }
}

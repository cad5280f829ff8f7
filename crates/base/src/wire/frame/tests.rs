// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules by which frames are read, as a table; and that no bytes break them.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const C_TAG: [u8; 4] = [0x81, 0x00, 0xa0, 0x05];
const S_TAG: [u8; 4] = [0x88, 0xa8, 0x60, 0x07];
const PRIORITY_TAG: [u8; 4] = [0x81, 0x00, 0xe0, 0x00];

fn ethernet(tags: &[[u8; 4]], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    [&addresses[..], &tags.concat(), &ethertype.to_be_bytes(), packet].concat()
}

/// Ports 15000 and 7000, and a content of four bytes.
fn udp(length: u16) -> Vec<u8> {
    let [high, low] = length.to_be_bytes();
    vec![0x3a, 0x98, 0x1b, 0x58, high, low, 0, 0, 1, 2, 3, 4]
}

fn tcp() -> Vec<u8> {
    let mut segment = vec![0x3a, 0x98, 0x1b, 0x58];
    segment.resize(24, 0);
    segment
}

fn ipv4(options: usize, fragment: u16, protocol: u8, segment: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut packet = vec![0; header];
    packet[0] = 0x40 | u8::try_from(header / 4).unwrap();
    let total = u16::try_from(header + segment.len()).unwrap();
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    [&packet[..], segment].concat()
}

/// With these extension headers of eight bytes each.
fn ipv6(extensions: &[u8], protocol: u8, segment: &[u8]) -> Vec<u8> {
    let chain = [extensions, &[protocol]].concat();
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    let length = u16::try_from(8 * extensions.len() + segment.len()).unwrap();
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[6] = chain[0];
    (packet[23], packet[39]) = (1, 2);
    for next in &chain[1..] {
        packet.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
    }
    [&packet[..], segment].concat()
}

fn changed(mut packet: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    packet[at] = to;
    packet
}

#[test]
fn t0_tags_are_those_of_802_1q_and_two_are_looked_behind() {
    // Tags; VLAN and priority; EtherType.
    let table: [(&[[u8; 4]], _, _); 8] = [
        (&[], None, 0x88b5),
        (&[C_TAG], Some((5, 5)), 0x88b5),
        (&[S_TAG], Some((7, 3)), 0x88b5),
        (&[PRIORITY_TAG], Some((0, 7)), 0x88b5),
        (&[S_TAG, C_TAG], Some((7, 3)), 0x88b5),
        (&[C_TAG, S_TAG], Some((5, 5)), 0x88b5),
        (&[C_TAG, C_TAG, S_TAG], Some((5, 5)), 0x88a8),
        (&[[0x91, 0x00, 0xa0, 0x05]], None, 0x9100),
    ];
    for (tags, tag, ethertype) in table {
        let bytes = ethernet(tags, 0x88b5, &[1, 2, 3]);
        let frame = Frame::parse(&bytes).unwrap();
        assert_eq!(frame.vid().zip(frame.pcp()), tag, "{tags:x?}");
        assert_eq!(frame.ethertype(), Some(ethertype), "{tags:x?}");
        assert_eq!(frame.content(), Some(&bytes[frame.payload_at()..]));
        assert_eq!(frame.destination(), MacAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!(frame.source(), MacAddress([2, 0, 0, 0, 0, 2]));
    }
}

#[test]
fn t0_a_frame_that_ends_within_a_tag_has_no_ethertype() {
    let bytes = ethernet(&[S_TAG, C_TAG], 0x88b5, &[]);
    for length in 0..=bytes.len() {
        let found = Frame::parse(&bytes[..length]);
        let found = found.map(|it| (it.vid(), it.ethertype(), it.last_type(), it.content()));
        let expected = match length {
            0..14 => None,
            14..18 => Some((None, None, 0x88a8, None)),
            18..22 => Some((Some(7), None, 0x8100, None)),
            _ => Some((Some(7), Some(0x88b5), 0x88b5, Some(&[][..]))),
        };
        assert_eq!(found, expected, "{length}");
    }
}

#[test]
fn t0_ports_and_content_are_those_of_packets_that_can_be() {
    let (v4, v6) = (|udp: &[u8]| ipv4(0, 0x4000, 17, udp), |udp: &[u8]| ipv6(&[], 17, udp));
    let good = udp(12);
    // What; EtherType; packet; whether it has ports; bytes of its content.
    let table = vec![
        ("UDP", 0x0800, v4(&good), true, Some(4)),
        ("UDP behind options", 0x0800, ipv4(40, 0, 17, &good), true, Some(4)),
        ("UDP of IPv6", 0x86dd, v6(&good), true, Some(4)),
        ("UDP behind extensions", 0x86dd, ipv6(&[0, 60, 43, 60], 17, &good), true, Some(4)),
        ("TCP", 0x0800, ipv4(0, 0, 6, &tcp()), true, None),
        ("TCP of IPv6", 0x86dd, ipv6(&[], 6, &tcp()), true, None),
        ("UDP that ends before its packet", 0x0800, v4(&udp(10)), true, Some(2)),
        ("UDP without content", 0x86dd, v6(&udp(8)), true, Some(0)),
        ("UDP shorter than its header", 0x0800, v4(&udp(7)), true, None),
        ("UDP of no length", 0x86dd, v6(&udp(0)), true, None),
        ("UDP longer than its packet", 0x0800, v4(&udp(13)), true, None),
        ("a first fragment", 0x0800, ipv4(0, 0x2000, 17, &good), false, None),
        ("a last fragment", 0x0800, ipv4(0, 1, 17, &good), false, None),
        ("a fragment of IPv6", 0x86dd, ipv6(&[44], 17, &good), false, None),
        ("five extensions", 0x86dd, ipv6(&[0; 5], 17, &good), false, None),
        ("authentication", 0x86dd, ipv6(&[51], 17, &good), false, None),
        (
            "an extension that is too long",
            0x86dd,
            changed(ipv6(&[0], 17, &good), 41, 9),
            false,
            None,
        ),
        ("another version", 0x0800, changed(v4(&good), 0, 0x55), false, None),
        ("another version of IPv6", 0x86dd, changed(v6(&good), 0, 0x40), false, None),
        ("a header that is too short", 0x0800, changed(v4(&good), 0, 0x44), false, None),
        ("options that are not there", 0x0800, changed(v4(&good), 0, 0x4f), false, None),
        ("a packet longer than its frame", 0x0800, changed(v4(&good), 3, 33), false, None),
        ("a longer packet of IPv6", 0x86dd, changed(v6(&good), 5, 13), false, None),
        ("a packet that ends in its header", 0x0800, changed(v4(&good), 3, 19), false, None),
        ("a packet that ends in UDP's header", 0x0800, changed(v4(&good), 3, 27), false, None),
        ("TCP that is cut", 0x0800, ipv4(0, 0, 6, &tcp()[..19]), false, None),
        ("ICMP", 0x0800, ipv4(0, 0, 1, &good), false, None),
        ("SCTP", 0x0800, ipv4(0, 0, 132, &good), false, None),
    ];
    for (what, ethertype, packet, has_ports, content) in table {
        for tags in [&[][..], &[PRIORITY_TAG], &[S_TAG, C_TAG], &[C_TAG, C_TAG, C_TAG]] {
            let bytes = ethernet(tags, ethertype, &packet);
            let frame = Frame::parse(&bytes).unwrap();
            let is_behind = tags.len() > MAX_VLAN_TAGS;
            let ports = frame.ports(bytes.len()).map(|it| (it.source, it.destination));
            let expected = (has_ports && !is_behind).then_some((15_000, 7_000));
            assert_eq!(ports, expected, "{what}");
            let length = content.filter(|_| !is_behind);
            assert_eq!(frame.udp().map(|udp| udp.content.len()), length, "{what}");
            if is_behind {
                assert_eq!(frame.content(), Some(frame.payload()), "{what}");
                continue;
            }
            assert_eq!(frame.content().map(<[u8]>::len), length, "{what}");
            // Padding changes nothing.
            let padded = [&bytes[..], &[0; 18]].concat();
            let frame = Frame::parse(&padded).unwrap();
            let is_longer = what.contains("longer packet") || what.contains("longer than its f");
            if !is_longer {
                assert_eq!(frame.ports(padded.len()).is_some(), expected.is_some(), "{what}");
                assert_eq!(frame.content().map(<[u8]>::len), length, "{what}");
            }
        }
    }
}

#[test]
fn t0_a_capture_of_the_headers_has_the_ports_of_the_whole_frame() {
    for packet in [ipv4(4, 0, 17, &udp(12)), ipv4(4, 0, 6, &tcp())] {
        let bytes = ethernet(&[C_TAG], 0x0800, &packet);
        let whole = Frame::parse(&bytes).unwrap().ports(bytes.len());
        for length in 14..bytes.len() {
            let frame = Frame::parse(&bytes[..length]).unwrap();
            let expected = whole.filter(|ports| length >= ports.at + 4);
            assert_eq!(frame.ports(bytes.len()), expected, "{length}");
            assert_eq!(frame.ports(length), None, "{length}");
        }
    }
}

#[test]
fn t0_the_first_bytes_of_a_frame_have_the_first_bytes_of_its_content() {
    for (ethertype, packet) in [
        (0x0800, ipv4(0, 0, 17, &udp(12))),
        (0x86dd, ipv6(&[], 17, &udp(12))),
        (0x88b5, vec![7; 60]),
    ] {
        let bytes = ethernet(&[C_TAG], ethertype, &packet);
        let content = Frame::parse(&bytes).unwrap().content().unwrap();
        let at = bytes.len() - content.len();
        for length in 14..bytes.len() {
            let frame = Frame::parse(&bytes[..length]).unwrap();
            let expected = (length >= at).then(|| &content[..length - at]);
            assert_eq!(frame.content_of(bytes.len()), expected, "{length}");
            let udp = frame.udp_of(bytes.len()).map(|udp| udp.content);
            assert_eq!(udp, expected.filter(|_| ethertype != 0x88b5), "{length}");
        }
    }
}

#[test]
fn t0_what_tcpdump_names_is_right_behind_the_header_of_ip() {
    let ports = Some((15_000, 7_000));
    let table = [
        (0x0800, ipv4(0, 0, 17, &udp(0)), Some((17, ports))),
        (0x0800, ipv4(8, 0x2000, 132, &udp(0)), Some((132, ports))),
        (0x0800, ipv4(0, 1, 17, &udp(0)), Some((17, None))),
        (0x0800, ipv4(0, 0, 1, &udp(0)), Some((1, None))),
        (0x86dd, ipv6(&[], 6, &udp(0)), Some((6, ports))),
        (0x86dd, ipv6(&[0], 17, &udp(0)), Some((0, None))),
        (0x86dd, ipv6(&[44], 17, &udp(0)), Some((17, None))),
        (0x88b5, ipv4(0, 0, 17, &udp(0)), None),
        (0x0800, vec![0x45; 19], None),
    ];
    for (ethertype, packet, expected) in table {
        let bytes = ethernet(&[C_TAG], ethertype, &packet);
        assert_eq!(Frame::parse(&bytes).unwrap().named_ports(), expected, "{packet:x?}");
    }
}

/// Everything that can be asked of it; what is found lies in the frame and agrees.
fn ask(bytes: &[u8], more: usize) {
    let Some(frame) = Frame::parse(bytes) else {
        assert!(bytes.len() < 14);
        return;
    };
    assert!(frame.payload_at() <= bytes.len());
    let _ = (frame.destination(), frame.source(), frame.vid(), frame.pcp(), frame.named_ports());
    if let Some(ip) = frame.ip() {
        let (at, length) = ip.addresses_at();
        assert!(frame.payload_at() + at + 2 * length <= bytes.len());
        let _ = (ip.addresses(), ip.header_length(), ip.length_field(), ip.fragment());
    }
    let ports = frame.ports(bytes.len());
    if let Some(ports) = ports {
        assert!(ports.at < ports.content_at && ports.content_at <= ports.end);
        assert!(ports.end <= bytes.len());
        assert_eq!(frame.ports(bytes.len() + more), Some(ports));
    }
    if let Some(udp) = frame.udp() {
        assert_eq!(ports.map(|it| it.destination), Some(udp.destination.port()));
        assert_eq!(frame.content(), Some(udp.content));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn t0_no_bytes_make_it_panic(bytes in any::<Vec<u8>>(), more in 0_usize..3_000) {
        ask(&bytes, more);
    }

    #[test]
    fn t0_no_changed_or_cut_frame_makes_it_panic(
        tags in proptest::collection::vec(select(vec![C_TAG, S_TAG]), 0..4),
        is_v4: bool,
        extensions in proptest::collection::vec(select(vec![0_u8, 43, 44, 60]), 0..6),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let packet = if is_v4 { ipv4(8, 0, 17, &udp(12)) } else { ipv6(&extensions, 17, &udp(12)) };
        let mut bytes = ethernet(&tags, if is_v4 { 0x0800 } else { 0x86dd }, &packet);
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        for length in 0..=bytes.len() {
            ask(&bytes[..length], 100);
        }
    }
}

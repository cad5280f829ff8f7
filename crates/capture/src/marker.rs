// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tag that a program's marks have for the packets that it sends and receives.

use std::net::{IpAddr, SocketAddr};

use crate::identity;

/// The upper half of the tags of what goes from one UDP socket to another: their addresses and
/// ports, as [`identity`] has them from a frame. An IPv4 and an IPv6 address have nothing between
/// them, and it is 0.
pub fn udp_flow(from: SocketAddr, to: SocketAddr) -> u32 {
    // A message that is known by its number: the tag's lower half is that, and not a hash.
    let message = *b"\0\0\0\0TWm1";
    let mut frame = vec![0; 12];
    match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => return 0,
    }
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend([0, 16, 0, 0]);
    frame.extend(message);
    let tag = identity::identify(&frame, None).map_or(0, |identity| identity.tag);
    u32::try_from(tag >> 32).expect("invariant: 32 bits are left")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Flags;

    /// A frame with VLAN tag, other lengths and content: what goes over the wire.
    fn frame(v6: bool, message: &[u8]) -> Vec<u8> {
        let mut frame = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0x60, 5];
        let length = u16::try_from(8 + message.len()).unwrap();
        if v6 {
            frame.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, 3]);
            frame.extend("fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
            frame.extend("fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        } else {
            frame.extend([0x08, 0, 0x45, 0xb8]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0x12, 0x34, 0x40, 0, 17, 17, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.extend([0x1b, 0x58, 0x1b, 0x59]);
        frame.extend(length.to_be_bytes());
        frame.extend([7, 7]);
        frame.extend(message);
        frame
    }

    #[test]
    fn t0_the_flow_is_that_of_the_packets() {
        let mut message = vec![0xef, 0xbe, 0xad, 0xde];
        message.extend(b"TWm1 and more that is not looked at");
        for (v6, from, to) in [
            (false, "10.0.0.1:7000", "10.0.0.2:7001"),
            (false, "[::ffff:10.0.0.1]:7000", "10.0.0.2:7001"),
            (true, "[fd00::1]:7000", "[fd00::2]:7001"),
        ] {
            let flow = udp_flow(from.parse().unwrap(), to.parse().unwrap());
            let packet = identity::identify(&frame(v6, &message), None).unwrap();
            assert_eq!(packet.flags, Flags::TAGGED);
            assert_eq!(packet.tag, u64::from(flow) << 32 | 0xdead_beef, "{from} {to}");
            assert_ne!(flow, udp_flow(to.parse().unwrap(), from.parse().unwrap()));
        }
        let (v4, v6) = ("10.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert_eq!(udp_flow(v4, v6), 0);
    }
}

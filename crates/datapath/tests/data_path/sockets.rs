// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each socket type is what was asked for, changes no frame, and starts and ends cleanly.

use std::net::UdpSocket;

use timewire_base::Span;
use timewire_datapath::SocketChoice;
use timewire_datapath::mac::{Mac, PathError};

use crate::station::{
    ALL, OTHER, OWN, Socket, now, on_a_station, on_each_socket, raw, run, spec, start, tagged,
    total, wait_for, windows,
};

#[test]
fn t3_frames_of_every_size_pass_unchanged_and_in_order() {
    on_each_socket(|station, socket| {
        let mut mac = start(spec(socket));
        let status = mac.status().unwrap();
        assert_eq!(status.socket, socket.to_string());
        let receive = match socket {
            SocketChoice::AfPacket => "AF_PACKET thread",
            _ => "XDP native + CPUMAP",
        };
        assert_eq!(status.receive, receive);

        let sizes = || (42..=1_514).zip(0..);
        for (length, number) in sizes() {
            station.stack.send(&raw(OTHER, length, number));
        }
        let frames = station.wire.expect(sizes().count());
        for ((length, number), frame) in sizes().zip(frames) {
            assert_eq!(frame, raw(OTHER, length, number), "{length} bytes out");
        }
        for (length, number) in sizes() {
            station.wire.send(&raw(OWN, length, number));
            // One at a time: what the deferring thread cannot keep up with is dropped.
            assert_eq!(station.stack.expect(1), [raw(OWN, length, number)], "{length} bytes in");
        }
        let status = mac.status().unwrap();
        assert_eq!(total(&status).released, 1_473);
        assert_eq!((status.observed.ingress_dropped, status.observed.not_sent.total()), (0, 0));
        mac.stop().unwrap();
    });
}

#[test]
fn t3_vlan_tags_stay_in_both_directions() {
    on_each_socket(|station, socket| {
        let mac = start(spec(socket));
        let tags: [&[u16]; 5] = [&[], &[0x8100], &[0x88a8], &[0x88a8, 0x8100], &[0x8100; 3]];
        for (number, types) in (0..).zip(tags) {
            // The longest that an AF_PACKET sender may have with two tags.
            for length in [60, 1_000, 1_506] {
                let out = tagged(&raw(OTHER, length, number), types);
                station.stack.send(&out);
                assert_eq!(station.wire.expect(1), [out], "{types:x?} out");
                for to in [OWN, ALL] {
                    let into = tagged(&raw(to, length, number), types);
                    station.wire.send(&into);
                    assert_eq!(station.stack.expect(1), [into], "{types:x?} in");
                }
            }
        }
        mac.stop().unwrap();
    });
}

#[test]
fn t3_a_socket_that_cannot_work_says_why() {
    on_a_station(|_| {
        // The driver has no XDP for frames that fill more than a page.
        for name in ["tw0", "tw0-mac"] {
            run("ip", &format!("link set {name} mtu 9000"));
        }
        let error = Mac::start(spec(SocketChoice::AfXdpNative)).err().unwrap();
        assert!(matches!(error, PathError::NoSocket { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("no socket type works here: af_xdp native: "), "{text}");
        assert!(text.contains("interface"), "{text}");

        let mut mac = start(spec(SocketChoice::Auto));
        let status = mac.status().unwrap();
        assert_eq!(status.socket, "af_xdp generic");
        assert!(status.refused.iter().any(|why| text.ends_with(why)), "{:?}", status.refused);
    });
}

#[test]
fn t3_frames_longer_than_a_buffer_are_dropped_and_counted() {
    on_a_station(|station| {
        for name in ["tw0", "tw0-mac", "phy0", "seg0"] {
            run("ip", &format!("link set {name} mtu 9000"));
        }
        run("ip", "address add 10.77.0.1/24 dev tw0");
        run("ip", "neighbour add 10.77.0.2 lladdr 02:00:00:00:00:02 dev tw0");
        let program = UdpSocket::bind("10.77.0.1:0").unwrap();
        for socket in [SocketChoice::AfPacket, SocketChoice::AfXdpGeneric] {
            let mut mac = start(spec(socket));
            let short = raw(OTHER, 1_514, 1);
            for _ in 0..3 {
                program.send_to(&[0x55; 1_900], "10.77.0.2:9").unwrap();
                station.stack.send(&short);
            }
            assert_eq!(station.wire.expect(3), [short.clone(), short.clone(), short]);
            let status = mac.status().unwrap();
            assert_eq!((total(&status).arrived, status.observed.ingress_dropped), (3, 3));
            mac.stop().unwrap();
        }
    });
}

#[test]
fn t3_a_link_has_one_mac_at_a_time() {
    on_each_socket(|station, socket| {
        let first = start(spec(socket));
        for second in [socket, SocketChoice::Auto] {
            let error = Mac::start(spec(second)).err().unwrap().to_string();
            assert_eq!(error, "interface phy0 has a MAC already; stop that one first");
        }
        drop(first);
        let again = start(spec(socket));
        let frame = raw(OTHER, 100, 7);
        station.stack.send(&frame);
        assert_eq!(station.wire.expect(1), [frame]);
        again.stop().unwrap();
    });
}

#[test]
fn t3_a_missing_interface_is_named_and_nothing_is_left() {
    on_a_station(|_| {
        let mut bad = spec(SocketChoice::Auto);
        bad.link = crate::station::name("phy9");
        let error = Mac::start(bad).err().unwrap().to_string();
        assert!(
            error.starts_with("interface phy9: there is no interface phy9; there are "),
            "{error}"
        );
        start(spec(SocketChoice::AfXdpNative)).stop().unwrap();
    });
}

#[test]
fn t3_stopping_does_not_wait_for_frames() {
    on_each_socket(|station, socket| {
        // The only window of an hour has just passed.
        let hour = Span::from_secs(3_600);
        let passed = windows(now() - Span::from_secs(1), hour, Span::from_ms(500));
        let shut = || {
            let spec = spec(socket);
            start(timewire_datapath::mac::MacSpec { windows: Some(passed.clone()), ..spec })
        };
        let mut mac = shut();
        for number in 0..100 {
            station.stack.send(&raw(OTHER, 200, number));
        }
        wait_for(&mut mac, "all wait", |status| total(status).depth == 100);
        let before = now();
        mac.stop().unwrap();
        let mac = shut();
        drop(mac);
        assert!(now() - before < Span::from_secs(2));
        assert_eq!(station.wire.receive(), Vec::<Vec<u8>>::new());
    });
}

#[test]
fn t3_a_lost_interface_ends_the_mac_and_is_named() {
    for lost in ["phy0", "tw0"] {
        on_each_socket(|station, socket| {
            let mut mac = start(spec(socket));
            let frame = raw(OTHER, 300, 1);
            station.stack.send(&frame);
            station.wire.expect(1);
            run("ip", &format!("link del {lost}"));
            if lost == "phy0" {
                // It must bear frames for a link that is not there.
                for _ in 0..100 {
                    station.stack.try_send(&frame);
                }
            }
            let error = mac.ended().expect("it has ended").to_string();
            assert!(error.contains("the MAC's thread has ended: "), "{error}");
            assert!(error.contains(lost) || error.contains("stack's interface"), "{error}");
            assert_eq!(mac.status().err().unwrap().to_string(), error);
            assert_eq!(mac.ended().unwrap().to_string(), error);
            mac.stop().unwrap();
        });
    }
}

#[test]
fn t3_a_link_that_goes_down_and_up_is_used_again() {
    on_each_socket(|station, socket| {
        let mut mac = start(spec(socket));
        run("ip", "link set phy0 down");
        for number in 0..10 {
            station.stack.send(&raw(OTHER, 100, number));
        }
        let status = wait_for(&mut mac, "all were tried", |status| total(status).released == 10);
        // AF_XDP keeps them in its ring; a packet socket does not.
        let observed = status.observed;
        let counts = (observed.not_sent.down, observed.not_sent.total(), observed.sent_late);
        let expected =
            if matches!(socket, SocketChoice::AfPacket) { (10, 10, 0) } else { (0, 0, 10) };
        assert_eq!(counts, expected);
        run("ip", "link set phy0 up");
        let mut wire = Socket::open("seg0");
        let frame = raw(OTHER, 100, 11);
        let mut frames = Vec::new();
        while frames.last() != Some(&frame) {
            station.stack.send(&frame);
            frames.extend(wire.receive());
        }
        assert!(mac.ended().is_none());
        mac.stop().unwrap();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the segment shows reaches the station's stack: by priority, deferred, or not at all.

use std::net::UdpSocket;
use std::slice;

use timewire_bpf::receive::ReceiveCounters;
use timewire_datapath::SocketChoice;
use timewire_datapath::mac::{Mac, MacSpec};
use timewire_sys::scheduler::{self, Attributes, RtPriority};

use crate::station::{
    ALL, OTHER, OWN, Socket, Station, on_a_station, on_each_socket, ports, raw, run, spec, start,
    tagged, udp,
};

const URGENT: u16 = 15_001;
const NORMAL: u16 = 16_001;

fn received(mac: &mut Mac) -> ReceiveCounters {
    mac.status().unwrap().received
}

/// Sends into the station and waits until each frame is in the stack. A few at a time: more than
/// the deferring queue holds would be dropped, as on any overloaded receiver.
fn deliver(station: &mut Station, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut came = Vec::new();
    for some in frames.chunks(32) {
        some.iter().for_each(|frame| station.wire.send(frame));
        came.extend(station.stack.expect(some.len()));
    }
    came
}

#[test]
fn t3_frames_are_counted_by_class_and_arrive() {
    on_each_socket(|station, socket| {
        let recv = ports(&[(u64::from(URGENT), 3), (15_002, 32)]);
        let mut mac = start(MacSpec { recv, ..spec(socket) });
        let mut frames = Vec::new();
        for number in 0..100 {
            frames.push(udp(OWN, 1, URGENT, 60, number));
            frames.push(udp(OWN, 15_002, 9, 1_400, number));
            frames.push(udp(OWN, 1, NORMAL, 60, number));
            frames.push(udp(ALL, 1, NORMAL, 60, number));
            frames.push(udp([1, 0, 0x5e, 0, 0, 9], 1, URGENT, 60, number));
        }
        let mut came = deliver(station, &frames);
        // Urgent frames may overtake normal ones.
        frames.sort();
        came.sort();
        assert_eq!(came, frames);

        for number in 0..50 {
            station.wire.send(&udp(OTHER, 1, URGENT, 60, number));
            station.wire.send(&raw(OTHER, 60, number));
        }
        deliver(station, &[raw(ALL, 60, 0)]);
        let counters = received(&mut mac);
        let mut expected = ReceiveCounters { normal: 201, foreign: 100, ..counters.clone() };
        expected.by_priority = [0; 32];
        (expected.by_priority[2], expected.by_priority[31]) = (200, 100);
        assert_eq!(counters, expected);
        assert_eq!((counters.not_deferred, counters.lost), (0, Some(0)));
        assert_eq!(station.stack.receive(), Vec::<Vec<u8>>::new(), "frames for others arrived");
        mac.stop().unwrap();
    });
}

#[test]
fn t3_normal_frames_keep_their_order() {
    on_each_socket(|station, socket| {
        let recv = ports(&[(u64::from(URGENT), 1)]);
        let mut mac = start(MacSpec { recv, ..spec(socket) });
        let frames: Vec<_> = (0..500).map(|number| udp(OWN, 1, NORMAL, 80, number)).collect();
        assert_eq!(deliver(station, &frames), frames);
        mac.set_recv(&ports(&[])).unwrap();
        assert_eq!(deliver(station, &frames), frames);
        assert_eq!(received(&mut mac).normal, 1_000);
    });
}

#[test]
fn t3_a_new_list_holds_for_every_later_frame() {
    on_each_socket(|station, socket| {
        let mut mac = start(spec(socket));
        let mut expected = ReceiveCounters { lost: Some(0), ..ReceiveCounters::default() };
        for round in 0..60_u64 {
            let (list, class) = match round % 3 {
                0 => (ports(&[(u64::from(URGENT), 1)]), Some(0)),
                1 => (ports(&[(u64::from(URGENT), 7), (u64::from(NORMAL), 8)]), Some(6)),
                _ => (ports(&[]), None),
            };
            mac.set_recv(&list).unwrap();
            let frames: Vec<_> = (0..5).map(|number| udp(OWN, 1, URGENT, 60, number)).collect();
            assert_eq!(deliver(station, &frames), frames);
            match class {
                Some(index) => expected.by_priority[index] += 5,
                None => expected.normal += 5,
            }
            assert_eq!(received(&mut mac), expected, "round {round}");
        }
        let status = mac.status().unwrap();
        assert_eq!(status.recv, ports(&[]));
    });
}

#[test]
fn t3_deferred_frames_without_room_are_counted() {
    on_a_station(|station| {
        let recv = ports(&[(u64::from(URGENT), 1)]);
        let mut mac = start(MacSpec { recv, ..spec(SocketChoice::AfXdpNative) });
        deliver(station, &[udp(OWN, 1, NORMAL, 60, 0)]);
        if mac.status().unwrap().receive != "XDP native + CPUMAP" {
            eprintln!("SKIP: no XDP");
            return;
        }
        // The deferring thread does not run as long as this one has its CPU.
        let fifo = Attributes::fifo(RtPriority::new(50).unwrap());
        let all = scheduler::affinity(scheduler::thread_id()).unwrap();
        scheduler::set_affinity(scheduler::thread_id(), &[0]).unwrap();
        scheduler::set_attributes(scheduler::thread_id(), &fifo).unwrap();
        for number in 0..4_000 {
            station.wire.send(&udp(OWN, 1, NORMAL, 60, number));
        }
        scheduler::set_attributes(scheduler::thread_id(), &Attributes::default()).unwrap();
        scheduler::set_affinity(scheduler::thread_id(), &all).unwrap();
        let counters = received(&mut mac);
        let lost = counters.lost.unwrap();
        eprintln!("{} normal, {lost} lost", counters.normal);
        assert!(lost > 0 && lost <= counters.normal - 2_048, "{counters:?}");
        mac.stop().unwrap();
    });
}

/// Frames of every kind that the classifiers tell apart.
fn kinds() -> Vec<Vec<u8>> {
    let plain = udp(OWN, 1, URGENT, 100, 0);
    let mut fragment = plain.clone();
    fragment[20] = 0x20;
    let mut later_fragment = plain.clone();
    later_fragment[21] = 7;
    let mut options = plain.clone();
    options[14] = 0x46;
    options.splice(34..34, [1, 1, 1, 1]);
    options[16..18].copy_from_slice(&90_u16.to_be_bytes());
    let mut tcp = plain.clone();
    tcp[23] = 6;
    let mut icmp = plain.clone();
    icmp[23] = 1;
    let mut longer_than_the_frame = plain.clone();
    longer_than_the_frame[16..18].copy_from_slice(&87_u16.to_be_bytes());
    let mut ipv6 = plain[..12].to_vec();
    ipv6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64]);
    ipv6.extend([0; 32]);
    ipv6.extend(&plain[34..50]);
    let mut extended = ipv6.clone();
    extended[19] = 24;
    extended[20] = 0;
    extended.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    let double = tagged(&plain, &[0x88a8, 0x8100]);
    vec![
        tagged(&plain, &[0x8100]),
        tagged(&ipv6, &[0x8100]),
        tagged(&plain, &[0x8100; 3]),
        double,
        plain,
        fragment,
        later_fragment,
        options,
        tcp,
        icmp,
        longer_than_the_frame,
        ipv6,
        extended,
    ]
}

#[test]
fn t3_every_kind_of_frame_has_the_class_that_the_mac_gives_it() {
    on_each_socket(|station, socket| {
        let recv = ports(&[(u64::from(URGENT), 4)]);
        let rules = recv.rules().unwrap();
        let mut mac = start(MacSpec { recv, ..spec(socket) });
        let mut prioritised = 0;
        for frame in kinds() {
            let before = received(&mut mac);
            assert_eq!(deliver(station, slice::from_ref(&frame)), slice::from_ref(&frame));
            let after = received(&mut mac);
            let urgent = rules.classify(&frame).is_some();
            prioritised += u32::from(urgent);
            assert_eq!(after.by_priority[3] - before.by_priority[3], u64::from(urgent));
            assert_eq!(after.normal - before.normal, u64::from(!urgent), "{frame:x?}");
        }
        assert_eq!(prioritised, 8);
    });
}

#[test]
fn t3_the_receive_side_does_not_disturb_the_segment() {
    on_each_socket(|station, socket| {
        let mac = start(spec(socket));
        let mut far = Socket::open("tw0-mac");
        for number in 0..20 {
            deliver(station, &[raw(OWN, 100, number)]);
        }
        // Neither does a frame come back to the segment, nor go round to the MAC again.
        assert_eq!(station.wire.receive(), Vec::<Vec<u8>>::new());
        assert_eq!(far.receive(), Vec::<Vec<u8>>::new());
        mac.stop().unwrap();
    });
}

/// Puts the checksum into an IPv4 header without options.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let words =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[24..26].copy_from_slice(&(!folded).to_be_bytes());
    frame
}

#[test]
fn t3_a_program_receives_each_datagram_once_and_the_link_does_not_answer_by_itself() {
    on_each_socket(|station, socket| {
        run("ip", "address add 10.77.0.1/24 dev tw0");
        let program = UdpSocket::bind("10.77.0.1:5000").unwrap();
        program.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let mut mac = start(spec(socket));
        let mut content = [0; 64];
        for number in 0..20 {
            station.wire.send(&with_checksum(udp(OWN, 1, 5_000, 60, number)));
        }
        for number in 0..20_u64 {
            let length = program.recv(&mut content).unwrap();
            assert_eq!(content[..8], number.to_be_bytes());
            assert_eq!(length, 18);
        }
        // Who has 10.77.0.1? One answer, and it went through the MAC.
        let mut ask = ALL.to_vec();
        ask.extend(OTHER);
        ask.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        ask.extend(OTHER);
        ask.extend([10, 77, 0, 2, 0, 0, 0, 0, 0, 0, 10, 77, 0, 1]);
        station.wire.send(&ask);
        let answers = station.wire.expect(1);
        assert_eq!(answers[0][12..14], [8, 6]);
        program.set_nonblocking(true).unwrap();
        assert!(program.recv(&mut content).is_err(), "a datagram came twice");
        assert_eq!(mac.status().unwrap().counters.total().released, 1);
        assert_eq!(station.wire.receive(), Vec::<Vec<u8>>::new());
    });
}

/// A bridge takes the tag off a frame and leaves it to the next interface to restore it. One that
/// offers to insert tags hands it on beside the frame instead, where XDP does not see it.
#[test]
fn t3_tags_survive_a_bridge_and_the_deferring_thread() {
    on_each_socket(|station, socket| {
        run("ip", "link add hub0 type bridge ageing_time 0 mcast_snooping 0");
        run("ip", "link add port1 type veth peer name far1");
        for name in ["seg0", "port1"] {
            run("ip", &format!("link set {name} master hub0"));
        }
        for name in ["hub0", "port1", "far1"] {
            run("ip", &format!("link set {name} up"));
        }
        let recv = ports(&[(u64::from(URGENT), 1)]);
        let mut mac = start(MacSpec { recv, ..spec(socket) });
        let mut far = Socket::open("far1");
        for port in [URGENT, NORMAL] {
            for types in [&[0x8100][..], &[0x88a8, 0x8100]] {
                let frame = tagged(&udp(OWN, 1, port, 100, 1), types);
                far.send(&frame);
                assert_eq!(station.stack.expect(1), [frame], "{types:x?}");
            }
        }
        let counters = received(&mut mac);
        assert_eq!((counters.by_priority[0], counters.normal), (2, 2));
    });
}

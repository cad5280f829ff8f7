// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it runs, a talker neither allocates nor frees, whatever its port, also when timestamps come
//! and frames are not taken, and when a program fills the messages. The allocations of all threads
//! are counted.

use std::net::UdpSocket;

use crate::alone::alone;
use crate::counting::{calls_of_all, check_that_all_count};
use crate::station::{OTHER, name, now, on_a_station, run};
use timewire_base::{Instant, Span};
use timewire_datapath::talker::{
    Cadence, Destination, Filled, FrameContent, FrameHeader, StreamSpec, Talker,
};
use timewire_datapath::transmit::{TransmitOptions, Transport, TxPoints, XdpMode, XdpPort};
use timewire_sys::clock;

#[test]
fn t3_a_running_talker_neither_allocates_nor_frees() {
    alone("talk_no_alloc::t3_a_running_talker_neither_allocates_nor_frees", talker);
}

fn talker() {
    let phy0 = || name("phy0");
    let xdp = Transport::Xdp(XdpPort {
        interface: phy0(),
        queue: 0,
        mode: XdpMode::Auto,
        need_wakeup: true,
        busy_poll: None,
    });
    let any = "127.0.0.1:0".parse().unwrap();
    let ports = [
        (Transport::Frames { interface: phy0() }, true),
        (Transport::Ring { interface: phy0() }, true),
        (xdp, false),
        (Transport::Udp { from: any, to: None, device: None }, true),
    ];
    for (transport, sched) in ports {
        on_a_station(|_| {
            run("ip", "link set lo up");
            let there = UdpSocket::bind(any).unwrap();
            let gone = UdpSocket::bind(any).unwrap().local_addr().unwrap();
            let is_udp = matches!(transport, Transport::Udp { .. });
            let points = TxPoints { sched, software: true, hardware: false };
            let options = TransmitOptions { points, ..TransmitOptions::default() };
            let frame = Destination::Frame(FrameHeader {
                source: None,
                destination: OTHER,
                vlan: None,
                content: FrameContent::EtherType(0x88b5),
            });
            let to = [there.local_addr().unwrap(), gone]
                .map(|address| if is_udp { Destination::Udp(address) } else { frame });
            let stream = |number: u16, to| {
                let cadence = Cadence::Cycle { start: now(), cycle: Span::from_us(400) };
                StreamSpec { frames: 2, ..StreamSpec::new(number, to, cadence, 100) }
            };
            let streams = [
                stream(0, to[0]),
                stream(1, to[1]),
                StreamSpec { cadence: Cadence::Posted, ..stream(2, to[0]) },
            ];
            let mut talker = Talker::new(&[(transport.clone(), options)], &streams).unwrap();
            let poster = talker.poster(2).unwrap();
            let live = talker.live();
            check_that_all_count();
            let (begin, mut calls, mut sent) = (now(), 0, 0_u64);
            // From the talker's own thread, so that no other one is counted.
            let end: Instant<_> = begin + Span::from_ms(300);
            let (mut before, mut started) = (0, false);
            let fill = &mut |draft: timewire_datapath::talker::Draft<'_>| {
                draft.payload.fill(7);
                if draft.seq % 5 == 4 { Filled::LeaveOut } else { Filled::Send }
            };
            talker
                .run_filled(&|| false, Some(end), fill, &mut |_| {
                    let counted = calls_of_all();
                    // The first message is behind it: whatever is made once has been made.
                    if !started {
                        (before, started) = (counted, true);
                    }
                    calls = counted - before;
                    sent += 1;
                    let _ = poster.post(&[1; 50], Some(clock::now()));
                    let _ = poster.post(&[2; 50], None);
                })
                .unwrap();
            eprintln!("  {calls} calls, {sent} events, {}", talker.ports()[0].mode());
            assert!(sent > 50, "only {sent} events");
            assert_eq!(calls, 0);
            assert!(live.of(0).unwrap().0.not_filled > 0);
        });
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it is open, a receiver neither allocates nor frees, whatever its source, and a listener
//! does not for a stream that it knows. The allocations of all threads are counted.

use std::net::{Ipv4Addr, UdpSocket};

use crate::alone::alone;
use crate::counting::{calls_of_all, check_that_all_count};
use crate::station::{OWN, name, now, on_a_station, raw, run};
use timewire_base::Span;
use timewire_capture::stream::sequence::SequenceLimits;
use timewire_datapath::listen::{
    FrameFilter, Listener, ListenerOptions, ReceiveOptions, ReceiveTimestamps, Receiver, Source,
    UdpPlace, Wait, XdpMode,
};
use timewire_datapath::probe::Probe;

const ROUNDS: u32 = 2_000;

/// Sends and receives one message at a time, each known by the listener; counts the calls of all
/// but the first few.
fn calls(receiver: &mut Receiver, is_frames: bool, send: &mut dyn FnMut(Probe)) -> u64 {
    let options = ListenerOptions {
        sequence: SequenceLimits { window: 64, leap: 1_000 },
        longest: Span::from_secs(1),
        cycle: None,
        hardware_ahead: None,
        streams: 4,
    };
    let mut listener = Listener::new(is_frames, options);
    let mut before = 0;
    for seq in 0..ROUNDS {
        if seq == 10 {
            check_that_all_count();
            before = calls_of_all();
        }
        send(Probe { stream: 1, seq, time: now(), is_launch: false, skipped: None });
        let mut known = false;
        while !known {
            let each = &mut |arrival: timewire_datapath::listen::Arrival<'_>| {
                known |= listener.arrived(&arrival).is_some();
            };
            receiver.receive(None, each).unwrap();
        }
        assert_eq!(receiver.drops().unwrap(), 0);
    }
    let calls = calls_of_all() - before;
    assert_eq!(listener.counters().known, u64::from(ROUNDS));
    assert_eq!(listener.snapshot(now())[0].1.sequence.received, u64::from(ROUNDS));
    calls
}

#[test]
fn t3_receiving_neither_allocates_nor_frees() {
    alone("no_alloc_listen::t3_receiving_neither_allocates_nor_frees", receiving);
}

fn receiving() {
    let interface = name("phy0");
    let mut sources = vec![
        Source::Frames { interface: interface.clone() },
        Source::Ring { interface: interface.clone() },
    ];
    for mode in [XdpMode::Generic, XdpMode::Native] {
        sources.push(Source::Xdp { interface: interface.clone(), queue: None, mode });
    }
    let filter = FrameFilter { ethertype: Some(0x88b5), ..FrameFilter::default() };
    let timestamps = ReceiveTimestamps { software: true, hardware: true };
    for wait in [Wait::Block, Wait::Poll] {
        for source in &sources {
            on_a_station(|station| {
                let options =
                    ReceiveOptions { filter, timestamps, wait, ..ReceiveOptions::default() };
                let mut receiver = match Receiver::open(source, &options) {
                    Ok(receiver) => receiver,
                    Err(error) => return eprintln!("SKIP: {error}"),
                };
                let mut frame = raw(OWN, 100, 1);
                let calls = calls(&mut receiver, true, &mut |probe| {
                    probe.write(&mut frame[14..]);
                    station.wire.send(&frame);
                });
                eprintln!("{}, {wait:?}: {calls} calls", receiver.mode());
                assert_eq!(calls, 0);
            });
        }
    }
    on_a_station(|_| {
        run("ip", "link set lo up");
        let bind = (Ipv4Addr::LOCALHOST, 0).into();
        let source = Source::Udp(UdpPlace { bind, device: None, group: None });
        let options = ReceiveOptions { timestamps, ..ReceiveOptions::default() };
        let mut receiver = Receiver::open(&source, &options).unwrap();
        let to = receiver.local_address().unwrap().unwrap();
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut bytes = [0; 64];
        let calls = calls(&mut receiver, false, &mut |probe| {
            probe.write(&mut bytes);
            from.send_to(&bytes, to).unwrap();
        });
        assert_eq!(calls, 0);
    });
}

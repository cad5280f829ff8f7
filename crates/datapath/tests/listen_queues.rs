// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receivers and a MAC on interfaces with several receive queues: no frame of any queue is unseen,
//! or it is counted. A veth pair with several queues has them, and AF_XDP sends through each.

use std::os::fd::AsFd;

use crate::station::{name, now, on_a_station, raw, run, spec};
use timewire_base::{Failure, Span};
use timewire_datapath::SocketChoice;
use timewire_datapath::listen::{ReceiveOptions, Receiver, Source, Wait, XdpMode};
use timewire_datapath::mac::{Mac, PathError};
use timewire_datapath::transmit::{TransmitOptions, Transmitter, Transport, XdpPort};
use timewire_sys::event::wait_readable;
use timewire_sys::nic::receive_queues;

const QUEUES: u32 = 4;
const TIMEOUT: Span = Span::from_secs(20);

/// A pair with four queues each way, `q0` and `q1`, both up.
fn pair() {
    let queues = format!("numtxqueues {QUEUES} numrxqueues {QUEUES}");
    run("ip", &format!("link add q0 {queues} type veth peer name q1 {queues}"));
    for end in ["q0", "q1"] {
        run("ip", &format!("link set {end} up"));
    }
    assert_eq!(receive_queues(&name("q1")).unwrap(), QUEUES);
}

fn sender(queue: u32) -> Transmitter {
    let (mode, need_wakeup) = (XdpMode::Generic, true);
    let port = XdpPort { interface: name("q0"), queue, mode, need_wakeup, busy_poll: None };
    Transmitter::open(&Transport::Xdp(port), &TransmitOptions::default()).unwrap()
}

/// Where a frame goes that is sent through this queue.
fn to(queue: u32) -> [u8; 6] {
    [2, 0, 0, 0, 9, u8::try_from(queue).unwrap()]
}

/// Sends so many frames through each queue, which say so in their destination.
fn send(each: u32) {
    for queue in 0..QUEUES {
        let mut port = sender(queue);
        for number in 0..each {
            let frame = raw(to(queue), 60, number.into());
            while port.send_copy(&frame, None, None).is_err() {
                port.flush();
                port.reports(&mut |_| ()).unwrap();
            }
            port.flush();
        }
    }
}

fn open(queue: Option<u32>, mode: XdpMode, wait: Wait) -> Option<Receiver> {
    let source = Source::Xdp { interface: name("q1"), queue, mode };
    let options = ReceiveOptions { wait, buffer_bytes: 2 << 20, ..ReceiveOptions::default() };
    let deadline = now() + TIMEOUT;
    loop {
        match Receiver::open(&source, &options) {
            Err(timewire_datapath::listen::ListenError::InTheWay { .. }) if now() < deadline => {
                std::thread::yield_now();
            }
            Err(error) if error.hint().is_some() => {
                eprintln!("SKIP: {error}");
                return None;
            }
            opened => return Some(opened.unwrap()),
        }
    }
}

/// What came through each transmit queue, and what the program counted as unheard, when both are so
/// many. Without an XDP program in the driver the kernel gives frames of transmit queue n + 1 to
/// receive queue n (linux v6.12 `net/core/dev.c:netif_get_rxqueue`), so no queue is named here.
fn heard(receiver: &mut Receiver, count: u64) -> (Vec<u32>, u64) {
    let mut per_queue = vec![0; QUEUES as usize];
    let deadline = now() + TIMEOUT;
    let mut each = |arrival: timewire_datapath::listen::Arrival<'_>| {
        let queue = (0..QUEUES).find(|queue| arrival.bytes.starts_with(&to(*queue)));
        per_queue[queue.expect("only these frames") as usize] += 1;
    };
    let (mut came, mut unheard) = (0, 0);
    while came + unheard < count {
        assert!(now() < deadline, "{came} came and {unheard} were counted of {count}");
        let looked = receiver.receive(Some(Span::from_ms(20)), &mut each).unwrap();
        came += u64::try_from(looked).unwrap();
        unheard = receiver.counters().unwrap().unwrap().without_socket;
    }
    (per_queue, unheard)
}

#[test]
fn t3_all_receive_queues_are_heard_and_each_look_is_bounded() {
    for mode in [XdpMode::Generic, XdpMode::Native] {
        for wait in [Wait::Block, Wait::Poll] {
            on_a_station(|_| {
                pair();
                let Some(mut receiver) = open(None, mode, wait) else { return };
                assert!(receiver.mode().ends_with("4 queues"), "{}", receiver.mode());
                send(100);
                assert!(wait_readable(&[receiver.as_fd()], Some(TIMEOUT)).unwrap());
                let (per_queue, unheard) = heard(&mut receiver, 400);
                assert_eq!((per_queue, unheard), (vec![100; 4], 0));
                assert!(!wait_readable(&[receiver.as_fd()], Some(Span::ZERO)).unwrap());
                assert_eq!(receiver.drops().unwrap(), 0);
                send(100);
                let mut most = 0;
                let deadline = now() + TIMEOUT;
                let mut left = 400;
                while left > 0 {
                    assert!(now() < deadline, "{left} did not come");
                    let came = receiver.receive(Some(Span::from_ms(20)), &mut |_| ()).unwrap();
                    (most, left) = (most.max(came), left - came);
                }
                assert!(most <= 64, "{most} in one look");
            });
        }
    }
}

#[test]
fn t3_frames_of_queues_that_are_not_heard_are_counted() {
    for mode in [XdpMode::Generic, XdpMode::Native] {
        on_a_station(|_| {
            pair();
            let Some(mut receiver) = open(Some(2), mode, Wait::Block) else { return };
            assert!(!receiver.mode().contains("queues"), "{}", receiver.mode());
            send(100);
            let (per_queue, unheard) = heard(&mut receiver, 400);
            assert_eq!((per_queue.iter().sum::<u32>(), unheard), (100, 300));
            assert_eq!(per_queue.iter().filter(|count| **count == 100).count(), 1);
        });
    }
}

#[test]
fn t3_a_queue_that_comes_later_is_counted_not_unseen() {
    on_a_station(|_| {
        pair();
        run("ethtool", "-L q1 rx 2");
        let Some(mut receiver) = open(None, XdpMode::Generic, Wait::Block) else { return };
        assert!(receiver.mode().ends_with("2 queues"), "{}", receiver.mode());
        run("ethtool", "-L q1 rx 4");
        send(50);
        assert_eq!(heard(&mut receiver, 200), (vec![50, 50, 50, 0], 50));
    });
}

#[test]
fn t3_a_mac_takes_no_far_side_of_which_it_would_hear_a_part() {
    on_a_station(|_| {
        pair();
        for choice in [SocketChoice::AfXdpGeneric, SocketChoice::AfXdpNative] {
            let far = |choice| timewire_datapath::mac::MacSpec { far: name("q1"), ..spec(choice) };
            let error = Mac::start(far(choice)).map(drop).unwrap_err();
            let PathError::NoSocket { reasons } = &error else { panic!("{error}") };
            assert!(reasons[0].contains("q1 has 4 receive queues"), "{error}");
        }
    });
}

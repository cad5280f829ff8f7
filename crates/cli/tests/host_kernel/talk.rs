// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a talker sends: just before a slot, ahead of a deadline, as soon as something is posted; by
//! the timestamps of a listener of the test's own.

use std::sync::atomic::{AtomicBool, Ordering};

use timewire_base::{IfName, Instant, Span, Tai};
use timewire_datapath::probe::Probe;
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamSpec, Talker,
};
use timewire_datapath::transmit::{TransmitOptions, Transport};
use timewire_lab::fixture::Bench;
use timewire_lab::ns;
use timewire_lab::trial::Trial;
use timewire_sys::packet::{Observed, PacketOptions, PacketSocket};
use timewire_sys::{clock, interface_index};

use super::station::{Station, file, pair, transmit};
use super::us;

pub const TRIALS: &[Trial] = &[
    Trial::new("t4_aligned_messages_leave_just_before_their_slots", aligned),
    Trial::new("t4_messages_with_deadlines_leave_ahead_of_them", deadline),
    Trial::new("t4_posted_messages_leave_at_once", posted),
];

/// Readings of the clock between a wake-up and the timestamp, and a timer's lateness, in
/// nanoseconds.
const MAX_LATENESS_NS: i64 = 32 * 256;

/// The first milliseconds are the program's start, in which the kernel's tick of 10 ms can keep the
/// sender from running.
fn without_start(heard: Vec<(Vec<u8>, i64)>, first: u32) -> Vec<(Probe, i64)> {
    let heard = heard.iter().map(|(message, at)| (Probe::parse(message).unwrap(), *at));
    heard.filter(|(probe, _)| probe.seq >= first).collect()
}

fn eth0() -> IfName {
    IfName::new("eth0").unwrap()
}

/// A socket at `b` that hears everything from now on.
fn listen(bench: &Bench) -> PacketSocket {
    let options = PacketOptions { receive: true, timestamps: true, buffer_bytes: 1 << 22 };
    let open = || PacketSocket::open(interface_index(&eth0()).unwrap(), options).unwrap();
    ns::in_namespace(&bench.netns("b"), open).unwrap()
}

/// What came: the frame after its EtherType, and when.
fn heard(mut socket: PacketSocket) -> Vec<(Vec<u8>, i64)> {
    clock::sleep_until(clock::now::<Tai>() + us(20_000));
    let offset = clock::tai_offset().as_ns();
    let mut got = vec![Observed::default(); 64];
    let mut all = Vec::new();
    loop {
        let count = socket.observe(&mut got).unwrap();
        for frame in &got[..count] {
            let bytes = &frame.prefix[..frame.prefix_len];
            if bytes[12..14] == [0x88, 0xb5] {
                all.push((bytes[14..].to_vec(), frame.timestamp.unwrap().as_ns() + offset));
            }
        }
        if count == 0 {
            return all;
        }
    }
}

const SCENARIO: &str = "
timewire: 1
name: aligned
kind: network
segments: [{ rate: 10Gbit }]
stations:
  - { name: alpha, address: 10.78.0.1/24 }
  - { name: beta, address: 10.78.0.2/24 }
schedule:
  kind: tdm
  cycle_time: 1040us
  guard: 40us
  slots:
    - { station: alpha, transmit: 220us }
    - { station: beta, transmit: 740us }
mac: { queue_frames: 64 }
streams:
  - { name: control, kind: request-response, talker: alpha, listeners: beta, port: 15001,
       size: 64B, class: 7, deadline: 1s, timeout: 1s }
duration: 1300ms
warm_up: 300ms
experiment:
  loads: [alone]
  cases: [{ name: tdm, title: TDM }]
";

/// beta's slot begins 260 us after the cycle; a cycle of a millisecond would meet all phases.
fn aligned() {
    let bench = pair();
    let path = file(SCENARIO);
    let path = path.to_str().unwrap();
    for lead in [0, 40, 300] {
        let socket = listen(&bench);
        let lead_text = format!("{lead}us");
        let ended = Station::of(&bench, "a").timewire(&[
            "talk",
            "ff:ff:ff:ff:ff:ff",
            "--interface",
            "eth0",
            "--count",
            "200",
            "--aligned",
            path,
            "--station",
            "beta",
            "--lead",
            &lead_text,
        ]);
        assert_eq!(ended.err, "", "{ended:?}");
        let heard = without_start(heard(socket), 40);
        assert_eq!(heard.len(), 160, "{ended:?}");
        for (_, at) in &heard {
            let since = (at - (260 - lead) * 1_000).rem_euclid(1_040_000);
            assert!(since <= MAX_LATENESS_NS, "{lead} us before the slot: {since} ns late");
        }
        let gaps: Vec<i64> = heard.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(gaps.iter().all(|gap| (gap - 1_040_000).abs() <= MAX_LATENESS_NS), "{gaps:?}");
    }
}

/// etf in deadline mode takes what is sent that way, and lets it go at once.
fn deadline() {
    let bench = pair();
    let station = Station::of(&bench, "a");
    let desired = "classes: [{ priorities: [3], queues: 1@0, launch_time: { delta: 100us, \
        deadline: \
                true } }, { queues: 1@1 }]";
    station.with(&file(&transmit(desired)), || {
        let talk = |more: &[&str]| {
            let words = "talk ff:ff:ff:ff:ff:ff --interface eth0 --priority 3 --cycle 250us \
                         --count 400 --launch 300us --json";
            let words: Vec<&str> = words.split_whitespace().chain(more.iter().copied()).collect();
            let socket = listen(&bench);
            let ended = station.timewire(&words);
            let told: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
            let total = told["total"].clone();
            (total, without_start(heard(socket), 160))
        };
        let (total, heard) = talk(&["--deadline"]);
        assert_eq!((&total["launch_invalid"], heard.len()), (&0.into(), 240), "{total}");
        for (probe, at) in &heard {
            let ahead = probe.time.as_ns() - at;
            assert!(
                probe.is_launch && (300_000 - MAX_LATENESS_NS..=300_000).contains(&ahead),
                "{ahead}"
            );
        }
        // Without, the launch time is the exact one, which this etf does not have.
        let (total, heard) = talk(&[]);
        assert_eq!((&total["launch_invalid"], heard.len()), (&total["sent"], 0), "{total}");
        assert!(total["sent"].as_u64() >= Some(240), "{total}");
    });
}

fn posted() {
    let bench = pair();
    let socket = listen(&bench);
    let content = FrameContent::EtherType(0x88b5);
    let destination = [0xff; 6];
    let to = Destination::Frame(FrameHeader { source: None, destination, vlan: None, content });
    let spec = StreamSpec::new(1, to, Cadence::Posted, 60);
    let mut posts = Vec::new();
    let counters = ns::in_namespace(&bench.netns("a"), || {
        let ports = [(Transport::Frames { interface: eth0() }, TransmitOptions::default())];
        let mut talker = Talker::new(&ports, &[spec]).unwrap();
        let poster = talker.poster(1).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let talking = scope.spawn(|| {
                talker.run(&stop, None, &mut |_| ()).unwrap();
                talker.report().streams[0].counters
            });
            let start = clock::now::<Tai>() + us(5_000);
            for number in 0..50_u8 {
                // No fraction of how often a talker looks around.
                clock::sleep_until(start + us(7_300 * i64::from(number)));
                let now: Instant<Tai> = clock::now();
                posts.push(now.as_ns());
                // Every fifth is too late already.
                let late = number % 5 == 4;
                let deadline = if late { now - us(1) } else { now + Span::from_secs(1) };
                poster.post(&[number; 60], Some(deadline)).unwrap();
            }
            clock::sleep_until(clock::now::<Tai>() + us(5_000));
            stop.store(true, Ordering::Relaxed);
            talking.join().unwrap()
        })
    })
    .unwrap();
    assert_eq!((counters.planned, counters.sent, counters.expired), (50, 40, 10));
    let heard = heard(socket);
    let numbers: Vec<u8> = heard.iter().map(|(message, _)| message[0]).collect();
    assert_eq!(numbers, (0..50).filter(|number| number % 5 != 4).collect::<Vec<u8>>());
    for (message, at) in &heard {
        let took = at - posts[usize::from(message[0])];
        // Another thread has to wake.
        assert!((0..=MAX_LATENESS_NS).contains(&took), "message {} took {took} ns", message[0]);
    }
}

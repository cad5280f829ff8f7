// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs inside a machine: one sender and one receiver, joined by a cable without length, whose
//! frames pass a discipline; every timestamp is printed. And what is expected of the timestamps.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;

use timewire_base::{Instant, Span, Tai};
use timewire_host::tool::{self, Tool, netns_path};
use timewire_lab::ns;
use timewire_lab::qemu::nic::{self, Timestamped};
use timewire_sys::talk::{LaunchMode, TalkOptions, TalkSocket};
use timewire_sys::udp::TimestampedUdp;
use timewire_sys::{clock, scheduler};

/// Runs a role.
pub fn run(role: &str, arguments: &[String]) {
    match role {
        "gates" => gates(),
        "timestamps" => {
            let kinds: Vec<Timestamped> =
                arguments.iter().map(|text| text.parse().unwrap()).collect();
            let Err(error) = nic::keep_timestamping(&kinds);
            panic!("{error}");
        }
        _ => panic!("no role {role}"),
    }
}

/// Every message is sent at this interval for its launch time, or for its class.
const MESSAGES: i64 = 400;
const LAUNCH_INTERVAL_NS: i64 = 1_000_000;
/// `etf` releases a frame so long before its launch time.
const DELTA_NS: i64 = 200_000;
/// A message is handed over so long before its launch time.
const AHEAD_NS: i64 = 600_000;
const CYCLE_NS: i64 = 1_000_000;
/// Windows of the three classes, as offsets in the cycle.
const WINDOWS: [(i64, i64); 3] = [(0, 300_000), (300_000, 600_000), (600_000, 1_000_000)];
/// Senders of classes do not know the cycle.
const CLASS_INTERVAL_NS: i64 = 970_000;
/// The experiment begins when the machine's clock shows this, whatever came before.
const START_NS: i64 = 1_767_225_600_000_000_000 + 30_000_000_000;

const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Traffic class by priority 0 to 3: the map of the slides, 2 2 1 0 2 2 ...
const MAP: &str = "map 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2 queues 1@0 1@1 2@2";

fn gates() {
    // What is read from the host takes as long as the host needs: have it all before the start.
    scheduler::lock_memory().unwrap();
    cable();
    let tc = |lines: &[String]| tool::batch(Tool::Tc, Some("talker"), lines).unwrap();
    tc(&[
        format!("qdisc add dev end0 root handle 100: mqprio num_tc 3 {MAP} hw 0"),
        format!("qdisc replace dev end0 parent 100:1 etf clockid CLOCK_TAI delta {DELTA_NS}"),
    ]);
    let start = Instant::<Tai>::from_ns(START_NS);
    assert!(clock::now::<Tai>() < start, "getting there took longer than 30 s");
    clock::sleep_until(start);
    // Warm: neighbours are known, code is in memory.
    launches("warm", START_NS + CYCLE_NS * 100);
    launches("launch", START_NS + CYCLE_NS * 1_000);
    tc(&[
        "qdisc del dev end0 root".to_owned(),
        format!(
            "qdisc add dev end0 root handle 100: taprio num_tc 3 {MAP} base-time 0 \
             sched-entry S 01 300000 sched-entry S 02 300000 sched-entry S 04 400000 \
             clockid CLOCK_TAI"
        ),
    ]);
    let begin = START_NS + CYCLE_NS * 3_000;
    thread::scope(|scope| {
        for class in 0..3 {
            scope.spawn(move || classes(class, begin));
        }
    });
}

/// Two namespaces and the cable between them.
fn cable() {
    let ip = |netns: Option<&str>, lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
        tool::batch(Tool::Ip, netns, &lines).unwrap();
    };
    ip(None, &["netns add talker", "netns add listener"]);
    ip(
        Some("talker"),
        &[
            "link add end0 numtxqueues 4 numrxqueues 4 type veth \
             peer name end1 netns listener numtxqueues 4 numrxqueues 4",
            "addr add 10.0.0.1/24 dev end0",
            "link set end0 up",
        ],
    );
    ip(Some("listener"), &["addr add 10.0.0.2/24 dev end1", "link set end1 up"]);
}

fn inside<T: Send>(netns: &str, work: impl FnOnce() -> T + Send) -> T {
    ns::in_namespace(&netns_path(netns), work).unwrap()
}

fn listener(port: u16) -> TimestampedUdp {
    let socket = inside("listener", || TimestampedUdp::bind(SocketAddrV4::new(TO, port))).unwrap();
    socket.set_timeout(Span::from_ns(500_000_000)).unwrap();
    socket
}

fn talker(port: u16, options: TalkOptions) -> TalkSocket<Tai> {
    let from = SocketAddr::from((FROM, port));
    let to = SocketAddr::from((TO, port));
    inside("talker", || TalkSocket::udp(from, to, options)).unwrap()
}

/// Prints `NAME NUMBER Timestamp` for all that arrive; `NAME sent COUNT` at the end.
fn exchange(name: &str, listener: &TimestampedUdp, send: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(send);
        let mut bytes = [0; 64];
        let mut arrived = Vec::new();
        let mut quiet = 0;
        // The first message is some time away, the last one says nothing about itself.
        while quiet < 8 && arrived.len() < usize::try_from(MESSAGES).unwrap() {
            match listener.receive(&mut bytes).unwrap() {
                Some(received) => {
                    let number = i64::from_ne_bytes(bytes[..8].try_into().unwrap());
                    arrived.push((number, received.timestamp.unwrap().as_ns()));
                }
                None => quiet += 1,
            }
        }
        let lines: String =
            arrived.iter().map(|(number, ns)| format!("{name} {number} {ns}\n")).collect();
        print!("{lines}");
    });
}

fn launches(name: &str, begin_ns: i64) {
    let listener = listener(5_000);
    let mode = LaunchMode { deadline: false, report: false };
    let socket = talker(5_000, TalkOptions { priority: 3, launch: Some(mode) });
    exchange(name, &listener, || {
        for number in 0..MESSAGES {
            let launch = begin_ns + number * LAUNCH_INTERVAL_NS;
            clock::sleep_until(Instant::<Tai>::from_ns(launch - AHEAD_NS));
            socket.send(&payload(number), Some(Instant::from_ns(launch))).unwrap();
        }
    });
}

fn classes(class: u16, begin_ns: i64) {
    // Priorities 3, 2 and 0 are classes 0, 1 and 2.
    let priority = [3, 2, 0][usize::from(class)];
    let listener = listener(6_000 + class);
    let socket = talker(6_000 + class, TalkOptions { priority, launch: None });
    exchange(&format!("class{class}"), &listener, || {
        for number in 0..MESSAGES {
            let at = begin_ns + i64::from(class) * 1_000 + number * CLASS_INTERVAL_NS;
            clock::sleep_until(Instant::<Tai>::from_ns(at));
            socket.send(&payload(number), None).unwrap();
        }
    });
}

fn payload(number: i64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// The timestamps of one name: number of the message, instant.
fn timestamps(text: &str, name: &str) -> Vec<(i64, i64)> {
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = words.filter(|words| words[0] == name);
    ours.map(|words| (words[1].parse().unwrap(), words[2].parse().unwrap())).collect()
}

/// Every frame arrived; `etf` released each within microseconds after its instant, never before;
/// none arrived outside its window.
pub fn judge(text: &str) {
    let launches = timestamps(text, "launch");
    assert_eq!(launches.len(), usize::try_from(MESSAGES).unwrap(), "frames lost");
    let begin = START_NS + CYCLE_NS * 1_000;
    let mut errors: Vec<i64> = launches
        .iter()
        .map(|(number, ns)| ns - (begin + number * LAUNCH_INTERVAL_NS - DELTA_NS))
        .collect();
    errors.sort_unstable();
    let (least, most) = (errors[0], errors[errors.len() - 1]);
    let within = errors.iter().filter(|&&ns| ns < LAUNCH_BOUND_NS).count();
    eprintln!("launch error {least} to {most} ns, median {} ns", errors[errors.len() / 2]);
    assert!(least >= 0 && most < LAUNCH_BOUND_NS + INTERRUPT_NS, "{least} to {most} ns");
    assert!(within * 20 >= errors.len() * 19, "{within} of {} within the bound", errors.len());
    for (class, (open, close)) in (0..).zip(WINDOWS) {
        let arrivals = timestamps(text, &format!("class{class}"));
        let missing: Vec<_> =
            (0..MESSAGES).filter(|n| arrivals.iter().all(|(m, _)| m != n)).collect();
        assert!(missing.is_empty(), "class {class} lost {missing:?}");
        // The gate decides as the frame leaves; the timestamp is taken where it arrives, later by
        // what the way there costs at a nanosecond per instruction.
        let after_open = |ns: i64| (ns - open).rem_euclid(CYCLE_NS);
        let mut after: Vec<_> = arrivals.iter().map(|(_, ns)| after_open(*ns)).collect();
        after.sort_unstable();
        let late = |ns: &&i64| **ns >= close - open;
        let outside = after.iter().filter(late).filter(|ns| **ns >= close - open + WAY_NS).count();
        let first = after[0];
        let last = after.iter().filter(|ns| !late(ns)).max().unwrap();
        eprintln!(
            "class {class}: {outside} outside, {} on their way as it closed; {first} ns to {last} \
             ns after its gate opened",
            after.iter().filter(late).count() - outside,
        );
        assert_eq!(outside, 0);
        // Those that waited for the gate leave as it opens.
        assert!(first < WAY_NS);
    }
}

/// From timer to frame, at a nanosecond per instruction.
const LAUNCH_BOUND_NS: i64 = 10_000;
/// What an interrupt between them takes with its softirqs. Which launches meet one depends on how
/// many instructions the program had before, so on how it was compiled.
const INTERRUPT_NS: i64 = 20_000;
/// From the gate to the other end of the cable.
const WAY_NS: i64 = 5_000;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flow with priority under a flood, with and without receive priority, in turns of half a second
//! in one run. Run as root with `cargo bench -p timewire-runner --bench receive_priority
//! [-- --quick]`.
//!
//! ```text
//! CPU 0: sends a timestamped datagram each millisecond (FIFO 80), and a flood in bursts (OTHER)
//! CPU 1: threaded NAPI of the receiving interface (FIFO 50) with the receive program;
//!        `with`: the flood goes to a CPUMAP thread on this CPU (OTHER)
//!        `without`: the same program lets every frame go up at once
//!        receives the datagrams (FIFO 90) and the flood (OTHER)
//! ```
//!
//! A latency is from before the datagram is sent until its receiver has it. All is in a network and
//! a mount namespace of its own, on a virtual cable.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use timewire_base::{IfName, Instant, Mono, Span};
use timewire_datapath::receive_priority::{self, ClassStatus};
use timewire_model::scenario::host::Receive;
use timewire_stats::{Statistics, median};
use timewire_sys::namespace::{self, Namespace};
use timewire_sys::packet::{PacketOptions, PacketSocket};
use timewire_sys::scheduler::{self, Attributes, RtPriority};
use timewire_sys::{FrameMemory, clock, interface_index, machine};

const PORT: u16 = 15_001;
const FLOOD_PORT: u16 = 9_000;
const INTERVAL: Span = Span::from_us(1_000);
const TRIAL: Span = Span::from_ms(500);
/// Frames of a burst of the flood, and the time between two.
const BURST: u32 = 64;
const BETWEEN: Span = Span::from_us(400);
const CONDITIONS: [&str; 2] = ["without", "with"];

/// Latencies of one condition of one run. **Units**: ns.
#[derive(Clone, Debug, Default)]
struct Seen {
    latencies: Vec<i64>,
    sent: u64,
    flood: u64,
}

impl Seen {
    /// Median, 99th percentile and maximum. **Units**: microseconds.
    fn figures(&self) -> [f64; 3] {
        let seen = Statistics::of(self.latencies.clone());
        let us = |ns: i64| f64::from(i32::try_from(ns).unwrap_or(i32::MAX)) / 1e3;
        seen.map_or([0.0; 3], |seen| [seen.p50_ns, seen.p99_ns, seen.max_ns].map(us))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, journal] = arguments.as_slice()
        && verb == timewire_host::watchdog::WATCHDOG_VERB
    {
        timewire_host::watchdog_main(Path::new(journal)).unwrap();
        return;
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    if namespace::effective_user() != 0 {
        eprintln!("SKIP: needs root");
        return;
    }
    let (runs, turns) = if quick { (2, 2) } else { (7, 8) };
    stage();
    println!("{runs} runs of {turns} turns of {TRIAL} with and without, taken alternately");
    println!(
        "{:<4} {:<8} {:>6} {:>6} {:>9} {:>9} {:>9} {:>12}",
        "run", "", "n", "lost", "p50 us", "p99 us", "max us", "flood/s"
    );
    let mut ratios: Vec<[f64; 3]> = Vec::new();
    for run in 0..runs {
        let seen = measure(turns);
        for (name, seen) in CONDITIONS.iter().zip(&seen) {
            let received = u64::try_from(seen.latencies.len()).unwrap();
            let [p50, p99, max] = seen.figures();
            println!(
                "{run:<4} {name:<8} {:>6} {:>6} {:>9.1} {:>9.1} {:>9.1} {:>12}",
                seen.sent,
                seen.sent - received,
                p50,
                p99,
                max,
                seen.flood * 2 / turns,
            );
        }
        let [without, with] = [0, 1].map(|condition| seen[condition].figures());
        ratios.push([0, 1, 2].map(|figure| without[figure] / with[figure]));
    }
    println!("without / with, smallest, median and largest run:");
    for (i, name) in ["p50", "p99", "max"].iter().enumerate() {
        let mut all: Vec<f64> = ratios.iter().map(|ratios| ratios[i]).collect();
        all.sort_by(f64::total_cmp);
        println!(
            "  {name}: {:.2} / {:.2} / {:.2}",
            all[0],
            median(&all).unwrap(),
            all[all.len() - 1]
        );
    }
    let status = receive_priority::show(Some(&interface())).unwrap();
    for class in &status[0].classes {
        let ClassStatus { name, frames, to_kernel, to_threads, turned, lost, .. } = class;
        println!(
            "counters of {name}: {frames} frames, {to_kernel} at once, {to_threads} to the thread, \
             of which {} lost; {turned} turned",
            lost.map_or("an unknown number".to_owned(), |lost| lost.to_string())
        );
    }
    receive_priority::stop(&interface()).unwrap();
}

fn interface() -> IfName {
    IfName::new("in0").unwrap()
}

fn rules(with: bool) -> Receive {
    let class = json!({"name": "control", "priority": 1, "matches": [{"to_port": PORT}]});
    let mut rules = json!({"mode": "native", "classes": [class]});
    if with {
        rules["normal_cpus"] = json!("1");
    }
    Receive::from_json("the benchmark", &rules).unwrap()
}

/// Namespaces, the cable, the program and its threads.
fn stage() {
    namespace::unshare(&[Namespace::Network, Namespace::Mount]).unwrap();
    namespace::make_mounts_private().unwrap();
    namespace::mount_tmpfs(Path::new("/run")).unwrap();
    machine::mount("sysfs", Path::new("/sys"), "", true).unwrap();
    // Where mounts end with the process, the command mounts nothing itself.
    machine::mount("bpf", Path::new(timewire_host::pins::BPF_MOUNT), "mode=0700", true).unwrap();
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        let _ = fs::write(path, "1");
    }
    for line in [
        "link set lo up",
        "link add in0 address 02:00:00:00:00:01 type veth peer name out0",
        "link set out0 address 02:00:00:00:00:02 up",
        "link set in0 up",
        "address add 10.9.0.1/24 dev in0",
        "neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev in0",
    ] {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
    }
    receive_priority::start(&interface(), &rules(false)).unwrap();
    fs::write("/sys/class/net/in0/threaded", "1").unwrap();
    // A first frame, after which its thread is there.
    let memory = FrameMemory::new(1).unwrap();
    out().send(&memory, memory.write(0, &datagram(FLOOD_PORT))).unwrap();
    let threads = || {
        let numbers = fs::read_dir("/proc").unwrap().flatten();
        let numbers = numbers.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("napi/in0")
        };
        numbers.filter(ours).collect::<Vec<_>>()
    };
    let found = threads();
    assert!(!found.is_empty(), "no NAPI thread");
    for tid in found {
        scheduler::set_affinity(tid, &[1]).unwrap();
        scheduler::set_attributes(tid, &fifo(50)).unwrap();
    }
}

fn fifo(priority: u8) -> Attributes {
    Attributes::fifo(RtPriority::new(priority).unwrap())
}

fn out() -> PacketSocket {
    let options = PacketOptions { receive: false, timestamps: false, buffer_bytes: 1 << 20 };
    PacketSocket::open(interface_index(&IfName::new("out0").unwrap()).unwrap(), options).unwrap()
}

/// A frame with a UDP datagram of 26 bytes, and no UDP checksum.
fn datagram(port: u16) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 54, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    ip[10..12].copy_from_slice(&(!folded).to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(ip);
    frame.extend([0x40, 0]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 34, 0, 0]);
    frame.resize(68, 0);
    frame
}

const CONTENT: usize = 42;

fn enter(cpu: u32, attributes: Option<Attributes>) {
    scheduler::set_affinity(scheduler::thread_id(), &[cpu]).unwrap();
    if let Some(attributes) = attributes {
        scheduler::set_attributes(scheduler::thread_id(), &attributes).unwrap();
    }
}

/// One run: both conditions in turns.
fn measure(turns: u64) -> [Seen; 2] {
    let (stop, flooded) = (AtomicBool::new(false), AtomicU64::new(0));
    let urgent = UdpSocket::bind(("10.9.0.1", PORT)).unwrap();
    let normal = UdpSocket::bind(("10.9.0.1", FLOOD_PORT)).unwrap();
    urgent.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    normal.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut seen = [Seen::default(), Seen::default()];
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            enter(1, Some(fifo(90)));
            let mut latencies = [Vec::new(), Vec::new()];
            let mut content = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                let Ok(26) = urgent.recv(&mut content) else { continue };
                let now = clock::now::<Mono>().as_ns();
                let sent = i64::from_be_bytes(content[..8].try_into().unwrap());
                latencies[usize::from(content[8])].push(now - sent);
            }
            latencies
        });
        scope.spawn(|| {
            enter(1, None);
            let mut content = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if normal.recv(&mut content).is_ok() {
                    flooded.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        scope.spawn(|| flood(&stop));
        for turn in 0..turns * 2 {
            let condition = usize::from(turn % 2 == 1);
            receive_priority::set(&interface(), &rules(condition == 1)).unwrap();
            let before = flooded.load(Ordering::Relaxed);
            seen[condition].sent += scope.spawn(move || talk(condition)).join().unwrap();
            seen[condition].flood += flooded.load(Ordering::Relaxed) - before;
        }
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        for (seen, latencies) in seen.iter_mut().zip(receiver.join().unwrap()) {
            seen.latencies = latencies;
        }
    });
    seen
}

/// Sends timestamped datagrams for a turn; how many.
fn talk(condition: usize) -> u64 {
    enter(0, Some(fifo(80)));
    let (out, memory) = (out(), FrameMemory::new(1).unwrap());
    let mut frame = datagram(PORT);
    frame[CONTENT + 8] = u8::try_from(condition).unwrap();
    let end: Instant<Mono> = clock::now::<Mono>() + TRIAL;
    let mut next = clock::now::<Mono>();
    let mut sent = 0;
    while next < end {
        clock::sleep_until(next);
        frame[CONTENT..CONTENT + 8].copy_from_slice(&clock::now::<Mono>().as_ns().to_be_bytes());
        // What the flood leaves no room for is lost, before the program could see it.
        let _ = out.send(&memory, memory.write(0, &frame));
        sent += 1;
        next = (next + INTERVAL).max(clock::now::<Mono>());
    }
    sent
}

/// Sends bursts until it is told to stop.
fn flood(stop: &AtomicBool) {
    enter(0, None);
    let (out, memory) = (out(), FrameMemory::new(1).unwrap());
    let frame = memory.write(0, &datagram(FLOOD_PORT));
    let mut next = clock::now::<Mono>();
    while !stop.load(Ordering::Relaxed) {
        clock::sleep_until(next);
        for _ in 0..BURST {
            // Full is what a flood meets.
            let _ = out.send(&memory, frame);
        }
        next = (next + BETWEEN).max(clock::now::<Mono>());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many streams in one talker: each sends a frame of 64 bytes per millisecond, evenly spread, over
//! a virtual pair whose other end has no reader. How many frames are sent, which are left out and
//! why, how late they are, and what a frame costs of the CPU. Run as root with
//! `cargo bench -p timewire-datapath --bench talkers [-- --quick]`.
//!
//! The transports take turns, so that all meet the same disturbances; ratios are of the same round.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/data_path/station.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod station;

use std::sync::atomic::AtomicBool;

use station::{OTHER, Socket, name, now, on_a_station};
use timewire_base::Span;
use timewire_datapath::talker::{
    Cadence, Destination, FrameContent, FrameHeader, StreamSpec, Talker, TalkerReport,
};
use timewire_datapath::transmit::{TransmitOptions, Transport, XdpMode, XdpPort};
use timewire_sys::{namespace, scheduler};

const STREAMS: [u16; 4] = [1, 10, 100, 1_000];
const NAMES: [&str; 3] = ["packet", "ring", "af_xdp"];

/// What one run came to.
#[derive(Clone, Copy, Default)]
struct Run {
    sent: f64,
    planned: f64,
    woke_late: f64,
    overran: f64,
    not_taken: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_ns: f64,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    if namespace::effective_user() != 0 {
        eprintln!("SKIP: needs root");
        return;
    }
    let (rounds, cycles) = if quick { (3, 300) } else { (7, 2_000) };
    println!("{rounds} rounds of {cycles} ms each; medians, ratios min/median/max");
    println!(
        "{:>8} {:<8} {:>10} {:>8} {:>12} {:>10} {:>11} {:>8} {:>8} {:>8} {:>18}",
        "streams",
        "over",
        "kframe/s",
        "sent %",
        "woke late %",
        "overran %",
        "not taken %",
        "p50 us",
        "p99 us",
        "CPU ns",
        "CPU/packet"
    );
    for streams in STREAMS {
        let mut runs: [Vec<Run>; 3] = Default::default();
        for _ in 0..rounds {
            for (transport, runs) in transports().into_iter().zip(&mut runs) {
                runs.push(run(&transport, streams, cycles));
            }
        }
        for (over, own) in NAMES.into_iter().zip(&runs) {
            let of = |field: fn(&Run) -> f64| median(own.iter().map(field).collect());
            let share = |field: fn(&Run) -> f64| {
                median(own.iter().map(|run| field(run) / run.planned * 100.0).collect())
            };
            let ratio = own.iter().zip(&runs[0]).map(|(own, packet)| own.cpu_ns / packet.cpu_ns);
            let seconds = f64::from(cycles) / 1e3;
            println!(
                "{streams:>8} {over:<8} {:>10.1} {:>8.2} {:>12.3} {:>10.3} {:>11.3} {:>8.1} \
                 {:>8.1} {:>8.0} {:>18}",
                of(|run| run.sent) / seconds / 1e3,
                share(|run| run.sent),
                share(|run| run.woke_late),
                share(|run| run.overran),
                share(|run| run.not_taken),
                of(|run| run.p50_us),
                of(|run| run.p99_us),
                of(|run| run.cpu_ns),
                spread(ratio.collect()),
            );
        }
    }
}

fn transports() -> [Transport; 3] {
    let interface = name("phy0");
    let mode = XdpMode::Auto;
    [
        Transport::Frames { interface: interface.clone() },
        Transport::Ring { interface: interface.clone() },
        Transport::Xdp(XdpPort { interface, queue: 0, mode, need_wakeup: true, busy_poll: None }),
    ]
}

fn run(transport: &Transport, streams: u16, cycles: u32) -> Run {
    let mut result = None;
    on_a_station(|station| {
        // A socket on the segment would be a part of every send call.
        station.wire = Socket::open("lo");
        let header = FrameHeader {
            source: None,
            destination: OTHER,
            vlan: None,
            content: FrameContent::EtherType(0x88b5),
        };
        let cycle = Span::from_ms(1);
        let start = now() + Span::from_ms(100);
        let specs: Vec<_> = (0..streams)
            .map(|number| {
                let cadence = Cadence::Cycle { start, cycle };
                let offset = cycle.as_ns() * i64::from(number) / i64::from(streams);
                StreamSpec {
                    offset: Span::from_ns(offset),
                    cycles: Some(cycles.into()),
                    ..StreamSpec::new(number, Destination::Frame(header), cadence, 46)
                }
            })
            .collect();
        let ports = [(transport.clone(), TransmitOptions::default())];
        let mut talker = Talker::new(&ports, &specs).unwrap();
        let priority = scheduler::RtPriority::new(50).unwrap();
        // Of this thread, which ends with the run. Where it is refused, the numbers say so.
        let _ = scheduler::set_attributes(0, &scheduler::Attributes::fifo(priority));
        let before = cpu_time();
        talker.run(&AtomicBool::new(false), None, &mut |_| {}).unwrap();
        result = Some(told(&talker.report(), cpu_time() - before));
    });
    result.expect("the station was made")
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn told(report: &TalkerReport, cpu_ns: f64) -> Run {
    let mut run = Run::default();
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for stream in &report.streams {
        let counters = stream.counters;
        run.sent += counters.sent as f64;
        run.planned += counters.planned as f64;
        run.woke_late += counters.skipped_woke_late as f64;
        run.overran += counters.skipped_overran as f64;
        run.not_taken += counters.not_taken as f64;
        if stream.lateness.count > 0 {
            p50.push(stream.lateness.p50_ns as f64 / 1e3);
            p99.push(stream.lateness.p99_ns as f64 / 1e3);
        }
    }
    // Of the median stream, and of the worst one.
    run.p50_us = median(p50);
    run.p99_us = p99.into_iter().fold(0.0, f64::max);
    run.cpu_ns = cpu_ns / run.sent;
    run
}

/// CPU time of this thread. **Units**: nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few hours")]
fn cpu_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns: u64 = text.split(' ').next().unwrap().parse().unwrap();
    ns as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    timewire_stats::median(&values).unwrap_or(f64::NAN)
}

/// Smallest, median and largest.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (min, max) = (values[0], values[values.len() - 1]);
    format!("{min:.2}/{:.2}/{max:.2}", median(values))
}

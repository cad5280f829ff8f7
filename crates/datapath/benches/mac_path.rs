// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames per second through a station's MAC, from the stack's interface to the link, without
//! windows and on a link so fast that its rate never limits. One thread keeps the ingress full; the
//! segment's side drops. Run as root with
//! `cargo bench -p timewire-datapath --bench mac_path [-- --quick]`.
//!
//! "per core" is what one core would carry if the MAC's thread had it alone: frames divided by the
//! CPU time of that thread. It covers the link's whole send call, since that runs in the thread.
//! Where nothing is lost the source was the slower one, and the figure is a lower bound. The
//! socket types take turns, so that all meet the same disturbances; ratios are of the same round.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/data_path/station.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod station;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use station::{OTHER, SOCKETS, Socket, raw, spec};
use timewire_base::{BitsPerSecond, Span};
use timewire_datapath::SocketChoice;
use timewire_datapath::mac::{Mac, MacSpec};
use timewire_stats::median;
use timewire_sys::{clock, namespace};

const FRAME_BYTES: [usize; 2] = [64, 1_500];
const RATE: u64 = 10_000_000_000_000;

/// What one run carried.
#[derive(Clone, Copy)]
struct Run {
    frames: f64,
    wall_s: f64,
    cpu_s: f64,
    lost: f64,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    if namespace::effective_user() != 0 {
        eprintln!("SKIP: needs root");
        return;
    }
    let (rounds, length) =
        if quick { (3, Duration::from_millis(200)) } else { (9, Duration::from_secs(1)) };
    println!(
        "MAC path, pass-through: {rounds} rounds of {} ms each, min/median/max",
        length.as_millis()
    );
    println!(
        "{:<16} {:>6} {:>24} {:>24} {:>22} {:>8}",
        "socket", "bytes", "kframe/s wall", "kframe/s per core", "per core/af_packet", "lost %"
    );
    for bytes in FRAME_BYTES {
        let mut runs: [Vec<Run>; 3] = Default::default();
        for _ in 0..rounds {
            for (socket, runs) in SOCKETS.into_iter().zip(&mut runs) {
                runs.push(run(socket, bytes, length));
            }
        }
        let packet = runs[2].clone();
        for (socket, runs) in SOCKETS.into_iter().zip(&runs) {
            let wall = runs.iter().map(|run| run.frames / run.wall_s / 1e3);
            let core = runs.iter().map(|run| run.frames / run.cpu_s / 1e3);
            let ratio = runs
                .iter()
                .zip(&packet)
                .map(|(run, packet)| run.frames / run.cpu_s / (packet.frames / packet.cpu_s));
            let lost = runs.iter().map(|run| run.lost / (run.lost + run.frames) * 100.0);
            println!(
                "{:<16} {bytes:>6} {:>24} {:>24} {:>22} {:>8}",
                socket.to_string(),
                spread(wall, 0),
                spread(core, 0),
                spread(ratio, 2),
                spread(lost, 1).split('/').nth(1).unwrap(),
            );
        }
    }
}

/// Smallest, median and largest.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (values[0], values[values.len() - 1]);
    let median = median(&values).unwrap();
    format!("{min:.digits$}/{median:.digits$}/{max:.digits$}")
}

fn run(socket: SocketChoice, bytes: usize, length: Duration) -> Run {
    let mut result = None;
    station::on_a_station(|station| {
        let mut spec: MacSpec = spec(socket);
        spec.config.rate = BitsPerSecond::new(RATE).unwrap();
        // A socket on the segment would be a part of every send call.
        station.wire = Socket::open("lo");
        let before = threads();
        let mut mac = Mac::start(spec).unwrap();
        let thread = mac_thread(&before);
        let frame = raw(OTHER, bytes, 0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut source = Socket::open("tw0");
                while !stop.load(Ordering::Relaxed) {
                    // A full ingress is what this is about.
                    if !source.try_send(&frame) {
                        std::thread::yield_now();
                    }
                }
            });
            clock::sleep_until(station::now() + Span::from_ms(50));
            let start = (Instant::now(), cpu_time(thread), counts(&mut mac));
            std::thread::sleep(length);
            let end = (Instant::now(), cpu_time(thread), counts(&mut mac));
            stop.store(true, Ordering::Relaxed);
            result = Some(Run {
                frames: end.2.0 - start.2.0,
                wall_s: (end.0 - start.0).as_secs_f64(),
                cpu_s: end.1 - start.1,
                lost: end.2.1 - start.2.1,
            });
        });
        mac.stop().unwrap();
    });
    result.expect("the station was made")
}

/// Frames that left, and frames lost on the way.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn counts(mac: &mut Mac) -> (f64, f64) {
    let status = mac.status().unwrap();
    let total = status.counters.total();
    let failed = status.observed.not_sent.total();
    let lost = failed + total.dropped_full + status.observed.ingress_dropped;
    ((total.released - failed) as f64, lost as f64)
}

fn threads() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// The MAC's thread, the only new one of that name.
fn mac_thread(before: &BTreeSet<u32>) -> u32 {
    let is_mac = |tid: &&u32| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
        name.is_ok_and(|name| name.trim() == "tw-mac")
    };
    let after = threads();
    *after.difference(before).find(is_mac).expect("the MAC has a thread")
}

/// CPU time of a thread. **Units**: seconds.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few hours")]
fn cpu_time(thread: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    let ns: u64 = text.split(' ').next().unwrap().parse().unwrap();
    ns as f64 / 1e9
}

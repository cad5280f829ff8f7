// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a simulated hop costs, on lines, rings and fat trees that grow. Run with
//! `cargo bench -p timewire-sim --bench net`; with `-- large`, a thousand bridges and a hundred
//! thousand streams for one second too. Of the words `line`, `ring` and `fat-tree` those that are
//! given are run, and of the sizes; `long` makes each ten times as long, so that the first touch
//! of memory counts less; `describe` prints the networks instead of running them. Times are
//! processor time, without finding the ways.
//!
//! Not here: whether it is right (`tests/net.rs`).
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

use timewire_base::{BitsPerSecond, FrameLen, Span};
use timewire_sim::net::{Delay, LinkSpec, Network, NodeSpec, Simulation, StreamSpec, Traffic};

const ROUNDS: usize = 2;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let said = |word: &str| words.iter().any(|said| said == word);
    if !said("describe") {
        println!(
            "{:<10} {:>7} {:>8} {:>10} {:>10} {:>9} {:>9} {:>8}",
            "network", "bridges", "streams", "events", "hops", "Mevent/s", "Mhop/s", "ns/hop"
        );
    }
    let named = ["line", "ring", "fat-tree"].into_iter().any(said);
    let sizes: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let longer = if said("long") { 10 } else { 1 };
    let run = |name: &str, bridges: usize, mut network: Network| {
        let sized = sizes.is_empty() || sizes.contains(&bridges);
        if sized && (!named || said(name)) {
            network.duration = Span::from_ns(network.duration.as_ns() * longer);
            if said("describe") { describe(&network) } else { show(name, bridges, &network) }
        }
    };
    for bridges in [8, 64, 512] {
        run("line", bridges, line(bridges, false));
        run("ring", bridges, line(bridges, true));
    }
    for arity in [4, 8, 16] {
        run("fat-tree", arity * arity * 5 / 4, fat_tree(arity));
    }
    if said("large") {
        show("large", 1_000, &large());
        println!("most memory of this process: {} kB", most_memory_kb());
    }
}

fn show(name: &str, bridges: usize, network: &Network) {
    let mut best = f64::INFINITY;
    let mut counted = (0, 0);
    for _ in 0..if name == "large" { 1 } else { ROUNDS } {
        let mut simulation = Simulation::new(network).unwrap();
        let started = cpu_seconds();
        while simulation.go_on(u64::MAX) {}
        let outcome = simulation.finish();
        best = best.min(cpu_seconds() - started);
        assert!(outcome.violations.is_empty());
        counted = (outcome.events, outcome.hops);
    }
    let (events, hops) = counted;
    let per = |count: u64| f64::from(u32::try_from(count).unwrap()) / best / 1e6;
    println!(
        "{name:<10} {bridges:>7} {:>8} {events:>10} {hops:>10} {:>9.2} {:>9.2} {:>8.1}",
        network.streams.len(),
        per(events),
        per(hops),
        1e3 / per(hops)
    );
}

/// The network in words, for another simulator (`cargo xtask peers-sim`).
fn describe(network: &Network) {
    println!("nodes {}\nrate {}", network.nodes.len(), rate().get());
    println!("duration {}", network.duration.as_ns());
    for link in &network.links {
        let [(one, _), (other, _)] = link.ends;
        println!("link {one} {other} {}", link.delay.as_ns());
    }
    for stream in &network.streams {
        let Traffic::Cyclic { period, offset, .. } = &stream.traffic else { continue };
        let (from, to, bytes) = (stream.from, stream.to, stream.frame.wire_len().get());
        println!("stream {from} {to} {bytes} {} {}", period.as_ns(), offset.as_ns());
    }
    println!("end");
}

fn rate() -> BitsPerSecond {
    BitsPerSecond::new(1_000_000_000).unwrap()
}

/// A station at each bridge, with streams to stations a few hops away. About the same number of
/// hops in each network, so that times are of one size.
fn line(bridges: usize, ring: bool) -> Network {
    let mut network = Network::empty(Span::from_ns(ns(1_600_000_000 / bridges)), 1);
    network.nodes = vec![NodeSpec::default(); 2 * bridges];
    let delay = Span::from_ns(500);
    for bridge in 1..bridges {
        network.links.push(LinkSpec::plain(bridge - 1, bridge, rate(), delay));
    }
    if ring {
        network.links.push(LinkSpec::plain(bridges - 1, 0, rate(), delay));
    }
    for bridge in 0..bridges {
        network.links.push(LinkSpec::plain(bridge, bridges + bridge, rate(), delay));
        let to = if ring || bridge + 4 < bridges { (bridge + 4) % bridges } else { bridge - 4 };
        network.streams.extend((0..4).map(|n| stream(bridges + bridge, bridges + to, n)));
    }
    network
}

/// The usual tree of `k`-port bridges: `k` pods, `k^3 / 4` stations. All streams of a pod go over
/// one core, as ways are found here, so the larger the pod the longer the periods: 29 % of the
/// busiest links is used in each tree.
fn fat_tree(k: usize) -> Network {
    let (half, delay) = (k / 2, Span::from_ns(500));
    let slower = ns(half * half / 4);
    let (cores, edges) = (half * half, k * half);
    let stations = edges * half;
    let mut network = Network::empty(Span::from_ns(slower * ns(1_600_000_000 / stations)), 1);
    network.nodes = vec![NodeSpec::default(); cores + 2 * edges + stations];
    for pod in 0..k {
        for above in 0..half {
            let aggregation = cores + pod * half + above;
            for core in 0..half {
                network.links.push(LinkSpec::plain(
                    aggregation,
                    above * half + core,
                    rate(),
                    delay,
                ));
            }
            for below in 0..half {
                let edge = cores + edges + pod * half + below;
                network.links.push(LinkSpec::plain(aggregation, edge, rate(), delay));
            }
        }
        for below in 0..half {
            let edge = cores + edges + pod * half + below;
            for n in 0..half {
                let station = cores + 2 * edges + (pod * half + below) * half + n;
                network.links.push(LinkSpec::plain(edge, station, rate(), delay));
            }
        }
    }
    for station in 0..stations {
        // To another pod.
        let to = (station + stations / 2 + 1) % stations;
        let first = cores + 2 * edges;
        network.streams.extend((0..4).map(|n| stream(first + station, first + to, n)));
    }
    for stream in &mut network.streams {
        if let Traffic::Cyclic { period, offset, .. } = &mut stream.traffic {
            *period = Span::from_ns(period.as_ns() * slower);
            *offset = Span::from_ns(offset.as_ns() * slower);
        }
    }
    network
}

/// A thousand bridges in a ring, two thousand stations, a hundred thousand streams of 100 frames a
/// second, four bridges apart.
fn large() -> Network {
    const BRIDGES: usize = 1_000;
    let mut network = Network::empty(Span::from_secs(1), 1);
    network.nodes = vec![NodeSpec::default(); 3 * BRIDGES];
    let delay = Span::from_ns(500);
    for bridge in 0..BRIDGES {
        network.links.push(LinkSpec::plain(bridge, (bridge + 1) % BRIDGES, rate(), delay));
        for station in [BRIDGES + bridge, 2 * BRIDGES + bridge] {
            network.links.push(LinkSpec::plain(bridge, station, rate(), delay));
        }
    }
    for number in 0..100_000 {
        let bridge = number % BRIDGES;
        let (from, to) = (BRIDGES + bridge, 2 * BRIDGES + (bridge + 4) % BRIDGES);
        let mut stream = stream(from, to, number / BRIDGES);
        stream.traffic = cyclic(Span::from_ms(10), Span::from_ns(ns(number * 97)));
        network.streams.push(stream);
    }
    network
}

fn stream(from: usize, to: usize, number: usize) -> StreamSpec {
    let frame = FrameLen::new(200).unwrap();
    let traffic =
        cyclic(Span::from_us(100), Span::from_ns(ns((from * 7 + number * 20_011) % 99_991)));
    StreamSpec { from, to, class: number % 8, frame, traffic, launch: None, shape: None }
}

fn cyclic(period: Span, offset: Span) -> Traffic {
    Traffic::Cyclic { period, offset, jitter: Delay::NONE, frames: 1, spacing: Span::ZERO }
}

fn ns(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}

/// What this process has computed: other programs on the machine do not change it much.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn most_memory_kb() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("?").trim_end_matches("kB").trim().to_owned()
}

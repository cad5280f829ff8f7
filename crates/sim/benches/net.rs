// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a simulated hop costs, on lines, rings and fat trees that grow. Run with
//! `cargo bench -p timewire-sim --bench net`; with `-- large`, a thousand bridges and a hundred
//! thousand streams for one second too. Of the words `line`, `ring`, `fat-tree` and `even-tree`
//! (where no frame waits for another) those that are given are run, and of the sizes; `long` makes
//! each ten times as long, so that the first touch of memory counts less; `describe` prints the
//! networks instead of running them. Times are processor time, without finding the ways.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

mod networks;

use timewire_base::Span;
use timewire_sim::net::{Network, Simulation, Traffic};

use networks::{fat_tree, large, line, rate};

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
    let named = ["line", "ring", "fat-tree", "even-tree"].into_iter().any(said);
    let sizes: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let longer = if said("long") { 10 } else { 1 };
    let run = |name: &str, bridges: usize, mut network: Network| {
        let sized = sizes.is_empty() || sizes.contains(&bridges);
        if sized && (!named || said(name)) {
            network.duration = Span::from_ns(network.duration.as_ns() * longer);
            if said("describe") { describe(&network) } else { show(name, bridges, &network) }
        }
    };
    for bridges in [8, 64, 512, 4096] {
        run("line", bridges, line(bridges, false));
        run("ring", bridges, line(bridges, true));
    }
    for arity in [4, 8, 16, 32] {
        run("fat-tree", arity * arity * 5 / 4, fat_tree(arity, false));
        run("even-tree", arity * arity * 5 / 4, fat_tree(arity, true));
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
        while simulation.go_on(u64::MAX).unwrap() {}
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

/// The network in words, for another simulator (`cargo peers sim`).
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

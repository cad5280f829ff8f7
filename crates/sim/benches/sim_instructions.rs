// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed workloads to count instructions of: `sim_instructions COUNT NAME` simulates so many hops.
//! Two runs with different counts, subtracted, leave the cost of a hop without that of the start.
//! The bounds are in `instructions.txt`: as the network grows they hardly do.
//!
//! - `line-8`, `line-512`: a line of so many bridges, with four streams from each.
//! - `gated-8`: the line of 8 with gates, credit and preemption in every port.
//! - `tree-20`, `tree-320`: a fat tree of so many bridges in which no frame waits for another.
#![allow(clippy::unwrap_used, reason = "a benchmark")]

mod networks;

use timewire_base::{BitsPerSecond, Span};
use timewire_sim::net::{Network, Simulation};
use timewire_tsn::port::{CreditRules, GateEntry, GateList, Ps};

use networks::{fat_tree, large, line};

fn main() {
    // `cargo bench` adds an option of its own.
    #[expect(clippy::disallowed_methods, reason = "a benchmark takes arguments")]
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|text| !text.starts_with('-')).collect();
    let count = arguments.first().map_or(Ok(20_000), |text| text.parse::<u64>());
    let name = arguments.get(1).map_or("line-8", String::as_str);
    let network = match name {
        "line-8" => Some(line(8, false)),
        "gated-8" => Some(gated(8)),
        "line-512" => Some(line(512, false)),
        "line-4096" => Some(line(4_096, false)),
        "tree-20" => Some(fat_tree(4, true)),
        "tree-320" => Some(fat_tree(16, true)),
        "tree-1280" => Some(fat_tree(32, true)),
        "ring" => Some(large()),
        _ => None,
    };
    let (Some(mut network), Ok(count)) = (network, count) else {
        eprintln!("usage: sim_instructions [COUNT [NAME]], of line-8, gated-8, line-512,");
        eprintln!("line-4096, tree-20, tree-320, tree-1280 and ring");
        #[expect(clippy::disallowed_methods, reason = "a benchmark is a program")]
        std::process::exit(2);
    };
    network.duration = Span::from_secs(3_600);
    let mut simulation = Simulation::new(&network).unwrap();
    while simulation.hops() < count {
        simulation.go_on(64).unwrap();
    }
    println!("{name}: {}", simulation.finish().hops);
}

/// The line with everything that can hold a frame back in its ports: gates of the upper and of the
/// lower classes in turn, credit of two classes, and a class that is preempted.
fn gated(bridges: usize) -> Network {
    let mut network = line(bridges, false);
    let entry = |open, us| GateEntry { open, interval: Span::from_us(us), hold: false };
    let entries = [entry(0xf0, 20), entry(0x0f, 30)];
    let gates = GateList::new(Ps::ZERO, None, &entries).unwrap();
    let share = BitsPerSecond::new(400_000_000).unwrap();
    for (_, port) in network.links.iter_mut().flat_map(|link| &mut link.ends) {
        port.gates = Some(gates.clone());
        port.classes[0].preemptable = true;
        for class in [2, 6] {
            port.classes[class].credit = Some((share, CreditRules::Standard));
        }
    }
    network
}

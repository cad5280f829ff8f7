// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed workloads to count instructions of: `plan_instructions COUNT NAME`. Two runs with
//! different counts, subtracted, leave the cost of a stream without that of starting up. The bounds
//! are in `instructions.txt`.
//!
//! - `torus`: a stream that is made up and planned beside the others, on 36 bridges.
//! - `fat_tree`: the same on 68 bridges, where ways are short.
//! - `online`: a stream added to a plan of 2000, without a move, and another one removed.

use timewire_base::Span;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{Problem, StreamId};
use timewire_plan::synth::{Budget, Change, Options, Planner};

const TORUS: Topology = Topology::Torus(6, 6);
const FAT_TREE: Topology = Topology::FatTree { pods: 6, width: 4, cores: 5 };

fn main() {
    // `cargo bench` adds an option of its own.
    #[expect(clippy::disallowed_methods, reason = "a benchmark takes arguments")]
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|text| !text.starts_with('-')).collect();
    let count = arguments.first().map_or(Ok(500), |text| text.parse::<usize>());
    let name = arguments.get(1).map_or("torus", String::as_str);
    let done = match (name, count) {
        ("torus", Ok(count)) => planned(problem(TORUS, count)).1,
        ("fat_tree", Ok(count)) => planned(problem(FAT_TREE, count)).1,
        ("online", Ok(count)) => online(count),
        _ => {
            eprintln!("usage: plan_instructions [COUNT [torus | fat_tree | online]]");
            #[expect(clippy::disallowed_methods, reason = "a benchmark is a program")]
            std::process::exit(2);
        }
    };
    println!("{name}: {done}");
}

fn problem(topology: Topology, streams: usize) -> Problem {
    let mut recipe = Recipe::new(topology, 4, streams, 1);
    recipe.lengths = (64, 200);
    recipe.intervals = [1, 2, 4, 8].map(Span::from_ms).to_vec();
    recipe.problem().expect("invariant: a recipe that works")
}

fn planned(problem: Problem) -> (Planner, usize) {
    let mut planner = Planner::new(problem, Options::default());
    planner.run(&mut Budget { work: u64::MAX, go_on: &mut |_| true });
    let placed = planner.plan().admitted.len();
    (planner, placed)
}

/// Each round adds a stream and removes another one.
fn online(count: usize) -> usize {
    let all = problem(TORUS, 4_000);
    let (first, more) = all.streams().split_at(2_000);
    let first = Problem::new(all.network().clone(), first.to_vec());
    let (mut planner, _) = planned(first.expect("invariant: a part of a problem"));
    let mut added = 0;
    for stream in more.iter().take(count) {
        let change = planner.add(stream.clone(), 0).expect("invariant: a stream of the network");
        added += usize::from(matches!(change, Change::Admitted { .. }));
        planner.remove(StreamId::from_index(added % planner.problem().streams().len()));
    }
    added
}

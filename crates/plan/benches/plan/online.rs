// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream more and one less in a plan of 10 000, which stays as large: each admitted stream is
//! followed by one that goes, and whoever went or was refused comes again later.

use std::collections::VecDeque;

use timewire_base::Sequence;
use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::model::{Problem, Stream, StreamId};
use timewire_plan::synth::{Change, Planner};
use timewire_stats::{median, nearest_rank};

use crate::{cpu_seconds, run};

pub const STREAMS: usize = 10_000;
/// The least operations of each kind that are measured, and how many additions are tried for it.
const COUNT: usize = 2_000;
const TRIES: usize = 40_000;
pub const MOVES: usize = 8;

/// What one kind of operation took: microseconds, and steps of the search.
#[derive(Default)]
pub struct Kind {
    took: Vec<f64>,
    steps: Vec<u64>,
}

impl Kind {
    pub fn add(&mut self, seconds: f64, steps: u64) {
        self.took.push(seconds * 1e6);
        self.steps.push(steps);
    }

    pub fn print(&mut self, what: &str) {
        self.took.sort_by(f64::total_cmp);
        self.steps.sort_unstable();
        let (Some(p50), Some(p99), Some(longest), Some(steps), Some(most)) = (
            median(&self.took),
            nearest_rank(&self.took, 990_000),
            self.took.last(),
            nearest_rank(&self.steps, 990_000),
            self.steps.last(),
        ) else {
            return println!("  {what}: none");
        };
        println!(
            "  {what:<40} {:>5} times: p50 {p50:>7.1} us, p99 {p99:>7.1} us, max {longest:>8.1} \
             us; p99 {steps:>6} steps, max {most:>6}",
            self.took.len(),
        );
    }
}

#[derive(Default)]
struct Kinds {
    still: Kind,
    moved: Kind,
    full: Kind,
    removed: Kind,
    moves: usize,
}

/// CPU time, which has a grain of nanoseconds, and not that of the clock's tick.
pub fn online() {
    for (name, longest, moves) in [("roomy", 500, 0), ("full", 1100, MOVES)] {
        let mut recipe = Recipe::new(Topology::Torus(10, 10), 3, STREAMS + STREAMS / 10, 1);
        recipe.lengths = (64, longest);
        let all = recipe.problem().expect("a recipe that works");
        let (first, more) = all.streams().split_at(STREAMS);
        let problem = Problem::new(all.network().clone(), first.to_vec()).expect("a part of it");
        let mut outcome = run(problem, 5.0, 0);
        let start = cpu_seconds();
        outcome.planner.prepare();
        let prepared = cpu_seconds() - start;
        let load = outcome.planner.link_loads().into_iter().max().unwrap_or(0) / 10_000;
        let (placed, seconds) = (outcome.placed, outcome.seconds);
        println!(
            "online, {name} torus: {placed} streams, most load {load} %, in {seconds:.3} CPU s, \
             prepared in {prepared:.3}"
        );
        let mut kinds = Kinds::default();
        come_and_go(outcome.planner, more.to_vec().into(), moves, &mut kinds);
        kinds.still.print("added, nothing moved");
        kinds.moved.print(&format!("added, 1 to {MOVES} moved ({} in all)", kinds.moves));
        kinds.full.print(&format!("not added, at most {moves} to be moved"));
        kinds.removed.print("removed");
    }
}

fn come_and_go(mut planner: Planner, mut pool: VecDeque<Stream>, moves: usize, kinds: &mut Kinds) {
    let mut random = Sequence::new(1);
    for _ in 0..TRIES {
        let wanted = if moves == 0 { &kinds.still } else { &kinds.moved };
        let Some(stream) = pool.pop_front().filter(|_| wanted.took.len() < COUNT) else { return };
        let copy = stream.clone();
        let (start, work) = (cpu_seconds(), planner.work());
        let change = planner.add(copy, moves).expect("a stream of this network");
        let (took, steps) = (cpu_seconds() - start, planner.work() - work);
        match change {
            Change::Refused(_) => {
                kinds.full.add(took, steps);
                pool.push_back(stream);
                continue;
            }
            Change::Admitted { moved, .. } if moved.is_empty() => kinds.still.add(took, steps),
            Change::Admitted { moved, .. } => {
                kinds.moves += moved.len();
                kinds.moved.add(took, steps);
            }
        }
        let victim = StreamId::from_index(random.below(planner.problem().streams().len()));
        pool.push_back(planner.problem().stream(victim).clone());
        let (start, work) = (cpu_seconds(), planner.work());
        planner.remove(victim);
        kinds.removed.add(cpu_seconds() - start, planner.work() - work);
    }
}

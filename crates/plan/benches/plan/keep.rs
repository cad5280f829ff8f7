// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream more beside the reservations of 10 000, which come from a file: reading them,
//! checking and seating them, and placing the one.

use timewire_plan::generate::{Recipe, Topology};
use timewire_plan::keep::{Replan, Reservations};
use timewire_plan::model::Problem;
use timewire_plan::synth::{Budget, Options};

use crate::online::{Kind, MOVES, STREAMS};
use crate::{cpu_seconds, run};

/// How many streams come, each alone.
const COUNT: usize = 300;

/// CPU time, as of additions without a file.
pub fn keep() {
    for (name, longest, moves) in [("roomy", 500, 0), ("full", 1100, MOVES)] {
        let mut recipe = Recipe::new(Topology::Torus(10, 10), 3, STREAMS + COUNT, 1);
        recipe.lengths = (64, longest);
        let all = recipe.problem().expect("a recipe that works");
        let (first, more) = all.streams().split_at(STREAMS);
        let first = Problem::new(all.network().clone(), first.to_vec()).expect("a part of it");
        let mut outcome = run(first, 5.0, 0);
        let plan = outcome.planner.plan();
        let admitted = plan.admitted.iter();
        let problem = outcome.planner.problem();
        let admitted = admitted.map(|it| problem.stream(it.stream).clone()).collect();
        let kept = Problem::new(all.network().clone(), admitted).expect("a part of it");
        let text = Reservations::of(name, problem, &plan).to_text();
        let start = cpu_seconds();
        let earlier = Reservations::read(name, &text).expect("what was written");
        let (bytes, read) = (text.len(), cpu_seconds() - start);
        println!(
            "keep, {name} torus: {} reservations, {bytes} bytes read in {read:.3} CPU s",
            earlier.streams.len()
        );
        let [mut seated, mut first, mut ready] = [(); 3].map(|()| Kind::default());
        let [mut still, mut moved, mut full] = [(); 3].map(|()| Kind::default());
        for stream in more {
            let mut problem = kept.clone();
            problem.add(stream.clone()).expect("a stream of this network");
            let options = Options::default();
            let start = cpu_seconds();
            let replan = Replan::new(problem, options, &earlier, &mut || true);
            let mut replan = replan.expect("reservations that hold");
            seated.add(cpu_seconds() - start, replan.planner().work());
            if moves == 0 {
                // Without lines of busy time: those that it asks for are made meanwhile.
                let mut replan = replan.clone();
                let start = cpu_seconds();
                replan.run(moves, &mut Budget { work: u64::MAX, go_on: &mut |_| true });
                first.add(cpu_seconds() - start, replan.planner().work());
            }
            let start = cpu_seconds();
            replan.planner().prepare();
            ready.add(cpu_seconds() - start, 0);
            let (start, work) = (cpu_seconds(), replan.planner().work());
            replan.run(moves, &mut Budget { work: u64::MAX, go_on: &mut |_| true });
            let took = cpu_seconds() - start;
            let steps = replan.planner().work() - work;
            let changes = replan.changes();
            let kind = match (changes.added.len(), changes.moved.len()) {
                (0, _) => &mut full,
                (_, 0) => &mut still,
                _ => &mut moved,
            };
            kind.add(took, steps);
        }
        seated.print("checked and seated");
        first.print("the first of all, unprepared");
        ready.print("prepared");
        still.print("added, nothing moved");
        moved.print(&format!("added, 1 to {MOVES} moved"));
        full.print(&format!("not added, at most {moves} to be moved"));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links that are nearly full: how many problems that are known to have a plan are solved, and how
//! many with one frame more are decided. `--first=SEED` and `--count=N` choose the problems.

#[path = "../../tests/packings/made.rs"]
mod made;

use self::made::Packing;
use timewire_plan::check::{Verdict, check};
use timewire_plan::model::Problem;

use crate::run;

/// What one problem may take, if `--seconds=N` does not say so. **Units**: CPU seconds.
const SECONDS: u64 = 5;

#[derive(Default)]
struct Counts {
    solved: usize,
    proven: usize,
    open: usize,
    steps: u64,
    seconds: f64,
    most: f64,
}

/// Prints a line for each problem, and the counts of each kind.
pub fn packings() {
    let first = option("--first=").unwrap_or(1_000);
    let count = option("--count=").unwrap_or(60);
    let mut known = Counts::default();
    let mut more = [Counts::default(), Counts::default()];
    let mut coarse = Counts::default();
    for seed in first..first + count {
        let packing = Packing::of(seed);
        decide("known", &packing, packing.problem(), &mut known);
        for (counts, (name, left)) in more.iter_mut().zip([("full", 0), ("more", -1_000)]) {
            if let Some(problem) = packing.with_one_more(left) {
                decide(name, &packing, problem, counts);
            }
        }
        decide("coarse", &packing, packing.too_coarse(), &mut coarse);
    }
    let [full, too_many] = more;
    for (name, it) in [
        ("known to have a plan", known),
        ("one frame more", full),
        ("one too many", too_many),
        ("too coarse", coarse),
    ] {
        println!(
            "{name}: {} solved, {} proven to have none, {} open; {} steps, {:.2} CPU s, one at \
             most {:.3}",
            it.solved, it.proven, it.open, it.steps, it.seconds, it.most
        );
    }
}

fn option(name: &str) -> Option<u64> {
    let mut all = std::env::args();
    all.find_map(|text| text.strip_prefix(name).and_then(|rest| rest.parse().ok()))
}

fn decide(name: &str, packing: &Packing, problem: Problem, counts: &mut Counts) {
    let streams = problem.streams().len();
    let spare = packing.spare(&problem);
    let seconds = option("--seconds=").unwrap_or(SECONDS) as f64;
    let mut outcome = run(problem.clone(), seconds, 0);
    let plan = outcome.planner.plan();
    let report = check(&problem, &plan).expect("a cycle that can be gone through");
    assert!(report.is_clean(), "{packing:?}: {:?}", report.findings);
    let proven = report.verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Proven);
    let steps = outcome.planner.work();
    let is_solved = outcome.placed == streams;
    counts.solved += usize::from(is_solved);
    counts.proven += usize::from(!is_solved && proven);
    counts.open += usize::from(!is_solved && !proven);
    counts.steps += steps;
    counts.seconds += outcome.seconds;
    counts.most = counts.most.max(outcome.seconds);
    let verdict = match (is_solved, proven) {
        (true, _) => "solved",
        (false, true) => "proven",
        (false, false) => "open",
    };
    println!(
        "{name} {} {} {} %, {} stations, {} bytes/ms, {spare} spare: {} of {streams} placed, \
         {verdict}, {steps} steps, {:.3} CPU s",
        packing.seed,
        if packing.harmonic { "harmonic" } else { "mixed" },
        packing.load_percent,
        packing.stations,
        packing.bytes,
        outcome.placed,
        outcome.seconds,
    );
}
